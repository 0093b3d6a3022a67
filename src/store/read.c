/* SPDX-License-Identifier: MIT
 *
 * read.c: what is stored, found and read.  A body is handed out when all of its file is what its reader asked for.
 */
#include <errno.h>
#include <string.h>

#include "core/clock.h"
#include "core/error.h"
#include "store/internal.h"

pleat_status pleat_store_find(pleat_store *s, const pleat_image_head *head, uint64_t *body_bytes) {
    if (!s || !head || !body_bytes || !head->spec || !head->tokens) return PLEAT_E_ARG;
    const pleat__store_key key = pleat__store_key_of(head);
    pleat__index_row row;
    (void)pthread_mutex_lock(&s->find_lock);
    const pleat_status status = pleat__index_find(s->found, &key, &row);
    (void)pthread_mutex_unlock(&s->find_lock);
    if (status == PLEAT_E_IO) pleat__store_add(s, &s->stats.misses[PLEAT_STORE_INDEX], 1);
    if (status != PLEAT_OK || row.body_bytes == 0 || row.body_bytes > row.bytes) return PLEAT_AGAIN;
    *body_bytes = row.body_bytes;
    return PLEAT_OK;
}

void pleat_store_count_miss(pleat_store *s) {
    if (s) pleat__store_add(s, &s->stats.misses[PLEAT_STORE_ABSENT], 1);
}

/* ---- a file -------------------------------------------------------------------------------------------- */

#define READ PLEAT_STORE_N_MISSES /* no miss */

/* Is the head, as read, of what is wanted? */
static bool is_of(const pleat_image_head *h, const pleat_image_head *wanted) {
    return pleat_image_compare(h, wanted, NULL) == PLEAT_OK && h->n_tokens == wanted->n_tokens &&
           h->n_steps == wanted->n_steps && h->body_bytes == wanted->body_bytes &&
           memcmp(h->tokens, wanted->tokens, h->n_tokens * sizeof *h->tokens) == 0 &&
           (h->n_steps == 0 || memcmp(h->steps, wanted->steps, h->n_steps * sizeof *h->steps) == 0);
}

/* The body, piece by piece: each is checked while it is in the CPU's cache. */
static pleat_store_miss read_body(pleat_store *s, int fd, const uint8_t *head, uint64_t n_head,
                                  const pleat_image_head *h, uint8_t *body) {
    for (uint64_t at = 0, i = 0; at < h->body_bytes; at += h->piece_bytes, i++) {
        const uint64_t left = h->body_bytes - at, n = left < h->piece_bytes ? left : h->piece_bytes;
        if (pleat__files_read(&s->files, fd, body + at, n, n_head + at) != 0) return PLEAT_STORE_IO;
        if (pleat_image_check_piece(head, n_head, i, body + at) != PLEAT_OK) return PLEAT_STORE_DAMAGED;
    }
    return READ;
}

/* head: [n_head] scratch, n_head as a file of what is wanted has it. */
static pleat_store_miss read_open(pleat_store *s, int fd, uint8_t *head, uint64_t n_head,
                                  const pleat_image_head *wanted, void *body) {
    pleat_image_head h;
    const int64_t size = s->files.size(s->files.ctx, fd);
    if (size < 0) return PLEAT_STORE_IO;
    if ((uint64_t)size < n_head) return PLEAT_STORE_DAMAGED;
    if (pleat__files_read(&s->files, fd, head, n_head, 0) != 0) return PLEAT_STORE_IO;
    if (pleat_image_read_head(head, n_head, &h, NULL, NULL) != PLEAT_OK) return PLEAT_STORE_DAMAGED;
    if (!is_of(&h, wanted)) return PLEAT_STORE_OTHER;
    if ((uint64_t)size != n_head + h.body_bytes) return PLEAT_STORE_DAMAGED;
    return read_body(s, fd, head, n_head, &h, body);
}

static pleat_store_miss read_file(pleat_store *s, const pleat__store_key *key, uint8_t *head, uint64_t n_head,
                                  const pleat_image_head *wanted, void *body) {
    char path[PLEAT__STORE_PATH_CAP];
    pleat__store_path(s, key, path);
    const int fd = s->files.open(s->files.ctx, path);
    if (fd < 0) return fd == -ENOENT ? PLEAT_STORE_GONE : PLEAT_STORE_IO;
    const pleat_store_miss miss = read_open(s, fd, head, n_head, wanted, body);
    (void)s->files.close(s->files.ctx, fd);
    return miss;
}

/* ---- what came of it ----------------------------------------------------------------------------------- */

static void count_read(pleat_store *s, pleat_store_miss miss, uint64_t n_bytes, uint64_t ns) {
    const double speed = (double)n_bytes * 1e9 / (double)(ns > 0 ? ns : 1);
    (void)pthread_mutex_lock(&s->lock);
    if (miss == READ) {
        s->speed = s->stats.hits == 0 ? speed : 0.75 * s->speed + 0.25 * speed;
        s->stats.hits++;
        s->stats.read_bytes += n_bytes;
        s->stats.read_ns += ns;
    } else {
        s->stats.misses[miss]++;
    }
    (void)pthread_mutex_unlock(&s->lock);
}

pleat_status pleat_store_read(pleat_store *s, const pleat_image_head *wanted, void *body, uint64_t body_bytes) {
    if (!s || !wanted || !body) return PLEAT_E_ARG;
    pleat_image_head w = *wanted;
    w.body_bytes = body_bytes;
    w.piece_bytes = PLEAT_IMAGE_PIECE_DEFAULT;
    const uint64_t n_head = pleat_image_head_bytes(&w);
    if (n_head == 0) return PLEAT_E_ARG;
    uint8_t *head = pleat__alloc(&s->al, 1, n_head);
    if (!head) return PLEAT_E_MEMORY;
    const pleat__store_key key = pleat__store_key_of(&w);
    const uint64_t start_ns = pleat__clock_ns();
    const pleat_store_miss miss = read_file(s, &key, head, n_head, &w, body);
    count_read(s, miss, n_head + body_bytes, pleat__clock_ns() - start_ns);
    pleat__free(&s->al, head, 1, n_head);
    if (miss != PLEAT_STORE_IO) pleat__store_note(s, miss == READ ? PLEAT__JOB_USE : PLEAT__JOB_FORGET, &key);
    return miss == READ ? PLEAT_OK : PLEAT_AGAIN;
}

double pleat_store_read_speed(pleat_store *s) {
    if (!s) return 0;
    (void)pthread_mutex_lock(&s->lock);
    const double speed = s->speed;
    (void)pthread_mutex_unlock(&s->lock);
    return speed;
}
