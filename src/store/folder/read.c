/* SPDX-License-Identifier: MIT
 *
 * read.c: a file found and read.  Its body is handed out when all of it is what its reader asked for.
 */
#include <errno.h>

#include "store/folder/folder.h"

static int find_one(pleat__folder *s, const pleat__store_key *key, uint64_t *body_bytes) {
    pleat__index_row row;
    (void)pthread_mutex_lock(&s->find_lock);
    const pleat_status status = pleat__index_find(s->found, key, &row);
    (void)pthread_mutex_unlock(&s->find_lock);
    if (status == PLEAT_E_IO) return PLEAT_STORE_INDEX;
    if (status != PLEAT_OK || row.body_bytes == 0 || row.body_bytes > row.bytes) return PLEAT_STORE_ABSENT;
    *body_bytes = row.body_bytes;
    return PLEAT__READ;
}

int pleat__folder_find(void *folder, const pleat__store_key *keys, uint32_t n, uint32_t *which, uint64_t *body_bytes) {
    int result = PLEAT_STORE_ABSENT;
    for (*which = 0; *which < n; ++*which) {
        result = find_one(folder, &keys[*which], body_bytes);
        if (result != PLEAT_STORE_ABSENT) break;
    }
    return result;
}

/* The body, piece by piece: each is checked while it is in the CPU's cache. */
static int read_body(const pleat__files *files, int fd, const pleat__reading *r) {
    const pleat_image_head *h = r->wanted;
    for (uint64_t at = 0, i = 0; at < h->body_bytes; at += h->piece_bytes, i++) {
        const uint64_t left = h->body_bytes - at, n = left < h->piece_bytes ? left : h->piece_bytes;
        if (pleat__files_read(files, fd, r->body + at, n, r->n_head + at) != 0) return PLEAT_STORE_IO;
        if (r->goes_on && !r->goes_on(r->ctx)) return PLEAT__READ_STOPPED;
        if (pleat_image_check_piece(r->head, r->n_head, i, r->body + at) != PLEAT_OK) return PLEAT_STORE_DAMAGED;
    }
    return PLEAT__READ;
}

static int read_open(const pleat__files *files, int fd, const pleat__reading *r) {
    const int64_t size = files->size(files->ctx, fd);
    if (size < 0) return PLEAT_STORE_IO;
    if ((uint64_t)size < r->n_head) return PLEAT_STORE_DAMAGED;
    if (pleat__files_read(files, fd, r->head, r->n_head, 0) != 0) return PLEAT_STORE_IO;
    const int result = pleat__store_check_head(r);
    if (result != PLEAT__READ) return result;
    if ((uint64_t)size != r->n_head + r->wanted->body_bytes) return PLEAT_STORE_DAMAGED;
    return read_body(files, fd, r);
}

int pleat__folder_read(void *folder, const pleat__reading *r) {
    const pleat__folder *s = folder;
    char path[PLEAT__FOLDER_PATH_CAP];
    pleat__folder_path(s, r->key, path);
    const int fd = s->files.open(s->files.ctx, path);
    if (fd < 0) return fd == -ENOENT ? PLEAT_STORE_GONE : PLEAT_STORE_IO;
    const int result = read_open(&s->files, fd, r);
    (void)s->files.close(s->files.ctx, fd);
    return result;
}
