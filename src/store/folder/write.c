/* SPDX-License-Identifier: MIT
 *
 * write.c: the writer: what changes the folder.
 *
 *     make room        rows of the least worth go, then their files
 *     temporary file   written, locked, and on the disk
 *     one transaction  its row; its name
 *
 * The space is made before the file is written, so that the folder never holds more than max_bytes for long: another process
 * may write at the same time.  So more room is made in the end, if need be.
 */
#include "core/error.h"
#include "store/folder/folder.h"

enum { EVICTED_AT_ONCE = 64 };

/* ---- evicting ------------------------------------------------------------------------------------------ */

static void remove_file(pleat__folder *s, const pleat__store_key *key) {
    char path[PLEAT__FOLDER_PATH_CAP];
    pleat__folder_path(s, key, path);
    (void)s->files.remove(s->files.ctx, path); /* what stays has no row, and goes when the store is opened next */
}

/* Within a transaction: take out rows, the least worth first, until n_bytes fit or there are EVICTED_AT_ONCE. */
static pleat_status remove_rows(pleat__folder *s, uint64_t n_bytes, pleat__store_key *keys, uint32_t *n_keys) {
    uint64_t n_files, bytes;
    PLEAT_TRY(pleat__index_total(s->written, &n_files, &bytes));
    const uint64_t allowed = n_bytes < s->max_bytes ? s->max_bytes - n_bytes : 0;
    while (bytes > allowed && *n_keys < EVICTED_AT_ONCE) {
        pleat__index_row row;
        const pleat_status status = pleat__index_lowest(s->written, &keys[*n_keys], &row);
        if (status == PLEAT_AGAIN) return PLEAT_OK;
        PLEAT_TRY(status);
        PLEAT_TRY(pleat__index_remove(s->written, &keys[*n_keys]));
        bytes -= row.bytes < bytes ? row.bytes : bytes;
        ++*n_keys;
    }
    return PLEAT_OK;
}

/* Some of it; *n_evicted: how many files went. */
static pleat_status evict_some(pleat__folder *s, uint64_t n_bytes, uint32_t *n_evicted) {
    pleat__store_key keys[EVICTED_AT_ONCE];
    *n_evicted = 0;
    PLEAT_TRY(pleat__index_begin(s->written));
    pleat_status status = remove_rows(s, n_bytes, keys, n_evicted);
    if (status == PLEAT_OK)
        status = pleat__index_end(s->written);
    else
        pleat__index_undo(s->written);
    if (status != PLEAT_OK) return status;
    for (uint32_t i = 0; i < *n_evicted; i++) {
        pleat__store_learn(s->store, &keys[i], false);
        remove_file(s, &keys[i]);
    }
    pleat__store_add(s->store, &s->store->stats.evicted, *n_evicted);
    return PLEAT_OK;
}

pleat_status pleat__folder_make_room(pleat__folder *s, uint64_t n_bytes) {
    uint32_t n_evicted;
    do PLEAT_TRY(evict_some(s, n_bytes, &n_evicted));
    while (n_evicted == EVICTED_AT_ONCE);
    return PLEAT_OK;
}

void pleat__folder_count(pleat__folder *s) {
    uint64_t n_files, bytes;
    if (pleat__index_total(s->written, &n_files, &bytes) != PLEAT_OK) return;
    pleat_store *store = s->store;
    (void)pthread_mutex_lock(&store->lock);
    store->stats.n_files = n_files;
    store->stats.bytes = bytes;
    (void)pthread_mutex_unlock(&store->lock);
}

/* ---- a file -------------------------------------------------------------------------------------------- */

/* Name the file and enter its row, both or neither.  It is still open, so that its lock holds. */
static pleat_status publish(pleat__folder *s, const pleat__writing *w, const char *temp) {
    char path[PLEAT__FOLDER_PATH_CAP];
    const pleat__index_row row = {.bytes = pleat__store_disk_bytes(w->n_head + w->head->body_bytes),
                                  .body_bytes = w->head->body_bytes,
                                  .cost_ns = w->cost_ns};
    pleat__folder_path(s, w->key, path);
    PLEAT_TRY(pleat__index_begin(s->written));
    pleat_status status = pleat__index_put(s->written, w->key, &row);
    if (status == PLEAT_OK && s->files.rename(s->files.ctx, temp, path) != 0) status = PLEAT_E_IO;
    if (status != PLEAT_OK) {
        pleat__index_undo(s->written);
        return status;
    }
    status = pleat__index_end(s->written);
    if (status != PLEAT_OK) remove_file(s, w->key);
    return status;
}

/* The bytes, on the disk.  0 or -errno. */
static int write_bytes(pleat__folder *s, const pleat__writing *w, int fd) {
    const pleat__files *f = &s->files;
    (void)f->lock(f->ctx, fd); /* where there are no locks, who opens the folder meanwhile costs this file */
    const int status = pleat__files_write(f, fd, w->file, w->n_head + w->head->body_bytes, 0);
    return status == 0 ? f->sync(f->ctx, fd) : status;
}

static pleat_status write_file(pleat__folder *s, const pleat__writing *w) {
    const pleat__files *f = &s->files;
    char temp[PLEAT__FOLDER_PATH_CAP];
    pleat__folder_temp_path(s, w->key, ++s->serial, temp);
    const int fd = f->create(f->ctx, temp);
    if (fd < 0) return PLEAT_E_IO;
    pleat_status status = write_bytes(s, w, fd) == 0 ? PLEAT_OK : PLEAT_E_IO;
    if (status == PLEAT_OK) status = publish(s, w, temp);
    if (status != PLEAT_OK) (void)f->remove(f->ctx, temp);
    (void)f->close(f->ctx, fd); /* what it held is on the disk */
    if (status == PLEAT_OK) (void)f->sync_folder(f->ctx, s->dir);
    return status;
}

pleat_status pleat__folder_write(void *folder, const pleat__writing *w) {
    pleat__folder *s = folder;
    pleat__index_row row;
    if (pleat__index_find(s->written, w->key, &row) == PLEAT_OK) return PLEAT_AGAIN; /* another process was faster */
    pleat_status status = pleat__folder_make_room(s, pleat__store_disk_bytes(w->n_head + w->head->body_bytes));
    if (status == PLEAT_OK) status = write_file(s, w);
    if (status == PLEAT_OK) (void)pleat__folder_make_room(s, 0);
    pleat__folder_count(s);
    return status;
}

/* ---- the others ---------------------------------------------------------------------------------------- */

/* One change of the index. */
static pleat_status change(pleat__folder *s, const pleat__store_key *key,
                           pleat_status (*fn)(pleat__index *ix, const pleat__store_key *key)) {
    PLEAT_TRY(pleat__index_begin(s->written));
    const pleat_status status = fn(s->written, key);
    if (status == PLEAT_OK) return pleat__index_end(s->written);
    pleat__index_undo(s->written);
    return status;
}

void pleat__folder_use(void *folder, const pleat__store_key *key) { (void)change(folder, key, pleat__index_use); }

void pleat__folder_forget(void *folder, const pleat__store_key *key) {
    pleat__folder *s = folder;
    if (change(s, key, pleat__index_remove) == PLEAT_OK) remove_file(s, key);
    pleat__folder_count(s);
}
