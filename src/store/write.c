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
#include "store/internal.h"

enum { EVICTED_AT_ONCE = 64 };

/* ---- evicting ------------------------------------------------------------------------------------------ */

static void remove_file(pleat_store *s, const pleat__store_key *key) {
    char path[PLEAT__STORE_PATH_CAP];
    pleat__store_path(s, key, path);
    (void)s->files.remove(s->files.ctx, path); /* what stays has no row, and goes when the store is opened next */
}

/* Within a transaction: take out rows, the least worth first, until n_bytes fit or there are EVICTED_AT_ONCE. */
static pleat_status remove_rows(pleat_store *s, uint64_t n_bytes, pleat__store_key *keys, uint32_t *n_keys) {
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
static pleat_status evict_some(pleat_store *s, uint64_t n_bytes, uint32_t *n_evicted) {
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
        pleat__store_learn(s, &keys[i], false);
        remove_file(s, &keys[i]);
    }
    pleat__store_add(s, &s->stats.evicted, *n_evicted);
    return PLEAT_OK;
}

pleat_status pleat__store_make_room(pleat_store *s, uint64_t n_bytes) {
    uint32_t n_evicted;
    do PLEAT_TRY(evict_some(s, n_bytes, &n_evicted));
    while (n_evicted == EVICTED_AT_ONCE);
    return PLEAT_OK;
}

void pleat__store_count(pleat_store *s) {
    uint64_t n_files, bytes;
    if (pleat__index_total(s->written, &n_files, &bytes) != PLEAT_OK) return;
    (void)pthread_mutex_lock(&s->lock);
    s->stats.n_files = n_files;
    s->stats.bytes = bytes;
    (void)pthread_mutex_unlock(&s->lock);
}

/* ---- a file -------------------------------------------------------------------------------------------- */

/* Name the file and enter its row, both or neither.  It is still open, so that its lock holds. */
static pleat_status publish(pleat_store *s, const pleat__job *job, const char *temp) {
    char path[PLEAT__STORE_PATH_CAP];
    const pleat__index_row row = {.bytes = pleat__store_disk_bytes(job->n_head + job->head.body_bytes),
                                  .body_bytes = job->head.body_bytes,
                                  .cost_ns = job->cost_ns};
    pleat__store_path(s, &job->key, path);
    PLEAT_TRY(pleat__index_begin(s->written));
    pleat_status status = pleat__index_put(s->written, &job->key, &row);
    if (status == PLEAT_OK && s->files.rename(s->files.ctx, temp, path) != 0) status = PLEAT_E_IO;
    if (status != PLEAT_OK) {
        pleat__index_undo(s->written);
        return status;
    }
    status = pleat__index_end(s->written);
    if (status != PLEAT_OK) remove_file(s, &job->key);
    return status;
}

/* The bytes, on the disk.  0 or -errno. */
static int write_bytes(pleat_store *s, const pleat__job *job, int fd) {
    const pleat__files *f = &s->files;
    (void)f->lock(f->ctx, fd); /* where there are no locks, who opens the folder meanwhile costs this file */
    const int status = pleat__files_write(f, fd, job->file, job->n_head + job->head.body_bytes, 0);
    return status == 0 ? f->sync(f->ctx, fd) : status;
}

static pleat_status write_file(pleat_store *s, const pleat__job *job) {
    const pleat__files *f = &s->files;
    char temp[PLEAT__STORE_PATH_CAP];
    pleat__store_temp_path(s, &job->key, ++s->serial, temp);
    const int fd = f->create(f->ctx, temp);
    if (fd < 0) return PLEAT_E_IO;
    pleat_status status = write_bytes(s, job, fd) == 0 ? PLEAT_OK : PLEAT_E_IO;
    if (status == PLEAT_OK) status = publish(s, job, temp);
    if (status != PLEAT_OK) (void)f->remove(f->ctx, temp);
    (void)f->close(f->ctx, fd); /* what it held is on the disk */
    if (status == PLEAT_OK) (void)f->sync_folder(f->ctx, s->dir);
    return status;
}

static void write_image(pleat_store *s, pleat__job *job) {
    const uint64_t n_bytes = job->n_head + job->head.body_bytes;
    pleat__index_row row;
    if (pleat__index_find(s->written, &job->key, &row) == PLEAT_OK) { /* another process has been faster */
        pleat__store_learn(s, &job->key, true);
        return;
    }
    pleat_status status = pleat_image_write_head(&job->head, job->file + job->n_head, job->file, job->n_head);
    if (status == PLEAT_OK) status = pleat__store_make_room(s, pleat__store_disk_bytes(n_bytes));
    if (status == PLEAT_OK) status = write_file(s, job);
    pleat__store_add(s, status == PLEAT_OK ? &s->stats.written : &s->stats.failed, 1);
    if (status != PLEAT_OK) return;
    pleat__store_add(s, &s->stats.written_bytes, n_bytes);
    pleat__store_learn(s, &job->key, true);
    (void)pleat__store_make_room(s, 0);
}

/* ---- the others ---------------------------------------------------------------------------------------- */

/* One change of the index. */
static pleat_status change(pleat_store *s, const pleat__store_key *key,
                           pleat_status (*fn)(pleat__index *ix, const pleat__store_key *key)) {
    PLEAT_TRY(pleat__index_begin(s->written));
    const pleat_status status = fn(s->written, key);
    if (status == PLEAT_OK) return pleat__index_end(s->written);
    pleat__index_undo(s->written);
    return status;
}

void pleat__store_do(pleat_store *s, pleat__job *job) {
    if (job->kind == PLEAT__JOB_WRITE) write_image(s, job);
    if (job->kind == PLEAT__JOB_USE) (void)change(s, &job->key, pleat__index_use);
    if (job->kind == PLEAT__JOB_FORGET && change(s, &job->key, pleat__index_remove) == PLEAT_OK)
        remove_file(s, &job->key);
    if (job->kind != PLEAT__JOB_USE) pleat__store_count(s);
}
