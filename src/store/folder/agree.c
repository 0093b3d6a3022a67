/* SPDX-License-Identifier: MIT
 *
 * agree.c: the folder and its index brought to agree, when a store is opened; and whether they do.
 *
 *     a temporary file that nobody has locked      its process is gone: removed
 *     a file without a row                         entered if its head says what its name says, else removed
 *     a row without a file                         taken out
 *
 * All of it is one transaction: nobody else is between a name and its row meanwhile.
 */
#include <errno.h>
#include <string.h>

#include "core/error.h"
#include "store/folder/folder.h"

#define NS_A_TOKEN 1e6 /* what computing is taken to cost where nobody has said */

/* ---- files --------------------------------------------------------------------------------------------- */

typedef struct look {
    pleat__folder *s;
    pleat_status status;
    uint64_t n_files; /* images that have or get a row */
} look;

/* Remove a temporary file that nobody is writing. */
static void clear_temp(pleat__folder *s, const char *path) {
    const pleat__files *f = &s->files;
    const int fd = f->open(f->ctx, path);
    if (fd < 0) return;
    if (f->lock(f->ctx, fd) == 0) (void)f->remove(f->ctx, path);
    (void)f->close(f->ctx, fd);
}

/* The row of a file that says what it is in `head`, [n_head]. */
static bool row_from(const uint8_t *head, uint64_t n_head, uint64_t size, const pleat__store_key *key,
                     pleat__index_row *row) {
    pleat_image_head h;
    if (pleat_image_read_head(head, n_head, &h, NULL, NULL) != PLEAT_OK || size != n_head + h.body_bytes) return false;
    const pleat__store_key own = pleat__store_key_of(&h);
    *row = (pleat__index_row){
        .bytes = pleat__store_disk_bytes(size), .body_bytes = h.body_bytes, .cost_ns = NS_A_TOKEN * h.n_tokens};
    return memcmp(&own, key, sizeof own) == 0;
}

/* Whether the open file is what its name says.  PLEAT_AGAIN: it is not. */
static pleat_status read_row(pleat__folder *s, int fd, const pleat__store_key *key, pleat__index_row *row) {
    const pleat__files *f = &s->files;
    uint64_t start[2], n_head = 0;
    pleat_image_head h;
    const int64_t size = f->size(f->ctx, fd);
    if (size < (int64_t)sizeof start || pleat__files_read(f, fd, start, sizeof start, 0) != 0) return PLEAT_AGAIN;
    if (pleat_image_read_head(start, sizeof start, &h, &n_head, NULL) != PLEAT_AGAIN || n_head > (uint64_t)size ||
        n_head == 0)
        return PLEAT_AGAIN;
    uint8_t *head = pleat__alloc(&s->al, 1, n_head);
    if (!head) return PLEAT_E_MEMORY;
    const bool is_sound =
        pleat__files_read(f, fd, head, n_head, 0) == 0 && row_from(head, n_head, (uint64_t)size, key, row);
    pleat__free(&s->al, head, 1, n_head);
    return is_sound ? PLEAT_OK : PLEAT_AGAIN;
}

/* A file without a row. */
static pleat_status adopt(pleat__folder *s, const char *path, const pleat__store_key *key) {
    pleat__index_row row;
    const int fd = s->files.open(s->files.ctx, path);
    if (fd < 0) return PLEAT_OK; /* it stays, and is nobody's */
    const pleat_status status = read_row(s, fd, key, &row);
    (void)s->files.close(s->files.ctx, fd);
    if (status == PLEAT_AGAIN) (void)s->files.remove(s->files.ctx, path);
    if (status == PLEAT_AGAIN) return PLEAT_OK;
    PLEAT_TRY(status);
    return pleat__index_put(s->written, key, &row);
}

static bool look_at(void *arg, const char *name) {
    look *l = arg;
    char path[PLEAT__FOLDER_PATH_CAP];
    pleat__store_key key;
    pleat__index_row row;
    if (!pleat__folder_path_of(l->s, name, path)) return true;
    if (pleat__folder_is_temp(name)) clear_temp(l->s, path);
    if (!pleat__folder_key_of_name(name, &key)) return true;
    l->status = pleat__index_find(l->s->written, &key, &row);
    if (l->status == PLEAT_AGAIN) l->status = adopt(l->s, path, &key);
    return l->status == PLEAT_OK;
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

/* Keys of the index. */
typedef struct keys {
    pleat__store_key *v;
    uint64_t *bytes; /* what the rows say of their files */
    uint64_t n, cap;
} keys;

static bool add_key(void *arg, const pleat__store_key *key, const pleat__index_row *row) {
    keys *k = arg;
    if (k->n == k->cap) return false;
    k->v[k->n] = *key;
    k->bytes[k->n++] = row->bytes;
    return true;
}

static void release_keys(pleat__folder *s, keys *k) {
    pleat__free(&s->al, k->v, k->cap + 1, sizeof *k->v);
    pleat__free(&s->al, k->bytes, k->cap + 1, sizeof *k->bytes);
}

static pleat_status all_keys(pleat__folder *s, keys *k) {
    uint64_t bytes;
    *k = (keys){0};
    PLEAT_TRY(pleat__index_total(s->written, &k->cap, &bytes));
    k->v = pleat__alloc(&s->al, k->cap + 1, sizeof *k->v);
    k->bytes = pleat__alloc(&s->al, k->cap + 1, sizeof *k->bytes);
    const pleat_status status = k->v && k->bytes ? pleat__index_each(s->written, add_key, k) : PLEAT_E_MEMORY;
    if (status != PLEAT_OK) release_keys(s, k);
    return status;
}

/* Bytes of a key's file in the folder; 0: there is none; UINT64_MAX: it cannot be looked at. */
static uint64_t bytes_of(pleat__folder *s, const pleat__store_key *key) {
    char path[PLEAT__FOLDER_PATH_CAP];
    pleat__folder_path(s, key, path);
    const int fd = s->files.open(s->files.ctx, path);
    if (fd < 0) return fd == -ENOENT ? 0 : UINT64_MAX;
    const int64_t size = s->files.size(s->files.ctx, fd);
    (void)s->files.close(s->files.ctx, fd);
    return size < 0 ? UINT64_MAX : pleat__store_disk_bytes((uint64_t)size);
}

/* Take out the rows whose files are not there, or of another length: such a file goes too. */
static pleat_status clear_rows(pleat__folder *s) {
    keys k;
    PLEAT_TRY(all_keys(s, &k));
    pleat_status status = PLEAT_OK;
    for (uint64_t i = 0; i < k.n && status == PLEAT_OK; i++) {
        const uint64_t bytes = bytes_of(s, &k.v[i]);
        if (bytes == UINT64_MAX || bytes == k.bytes[i]) continue;
        char path[PLEAT__FOLDER_PATH_CAP];
        pleat__folder_path(s, &k.v[i], path);
        if (bytes > 0) (void)s->files.remove(s->files.ctx, path);
        status = pleat__index_remove(s->written, &k.v[i]);
    }
    release_keys(s, &k);
    return status;
}

pleat_status pleat__folder_agree(pleat__folder *s) {
    look l = {.s = s, .status = PLEAT_OK};
    PLEAT_TRY(pleat__index_begin(s->written));
    const int listed = s->files.list(s->files.ctx, s->dir, look_at, &l);
    pleat_status status = listed != 0 ? PLEAT_E_IO : l.status;
    if (status == PLEAT_OK) status = clear_rows(s);
    if (status == PLEAT_OK) return pleat__index_end(s->written);
    pleat__index_undo(s->written);
    return status;
}

/* ---- is_valid ------------------------------------------------------------------------------------------ */

static bool count_file(void *arg, const char *name) {
    look *l = arg;
    pleat__store_key key;
    pleat__index_row row;
    if (pleat__folder_is_temp(name)) l->status = PLEAT_E_STATE;
    if (!pleat__folder_key_of_name(name, &key)) return true;
    l->n_files++;
    if (pleat__index_find(l->s->written, &key, &row) != PLEAT_OK) l->status = PLEAT_E_STATE;
    return true;
}

bool pleat__folder_is_valid(void *folder) {
    pleat__folder *s = folder;
    keys k;
    uint64_t sum = 0;
    look l = {.s = s, .status = PLEAT_OK};
    if (s->files.list(s->files.ctx, s->dir, count_file, &l) != 0 || all_keys(s, &k) != PLEAT_OK) return false;
    bool is_valid = l.status == PLEAT_OK && k.n == l.n_files;
    for (uint64_t i = 0; i < k.n; i++) {
        is_valid &= bytes_of(s, &k.v[i]) == k.bytes[i];
        sum += k.bytes[i];
    }
    release_keys(s, &k);
    return is_valid && sum <= s->max_bytes;
}
