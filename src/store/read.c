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
    if (status == PLEAT_AGAIN) pleat__store_learn(s, &key, false);
    if (status != PLEAT_OK || row.body_bytes == 0 || row.body_bytes > row.bytes) return PLEAT_AGAIN;
    *body_bytes = row.body_bytes;
    return PLEAT_OK;
}

void pleat_store_count_miss(pleat_store *s) {
    if (s) pleat__store_add(s, &s->stats.misses[PLEAT_STORE_ABSENT], 1);
}

/* ---- a file -------------------------------------------------------------------------------------------- */

enum { READ = PLEAT_STORE_N_MISSES, STOPPED }; /* no miss; nobody wants it any more */

/* A file that is read. */
typedef struct reading {
    pleat_store *s;
    const pleat_image_head *wanted;
    pleat__store_key key;
    uint8_t *head; /* [n_head] as a file of what is wanted has it */
    uint64_t n_head;
    uint8_t *body; /* [wanted->body_bytes] */
    bool (*goes_on)(void *ctx);
    void *ctx;
} reading;

/* The body, piece by piece: each is checked while it is in the CPU's cache. */
static int read_body(const reading *r, int fd, const pleat_image_head *h) {
    const pleat__files *files = &r->s->files;
    for (uint64_t at = 0, i = 0; at < h->body_bytes; at += h->piece_bytes, i++) {
        const uint64_t left = h->body_bytes - at, n = left < h->piece_bytes ? left : h->piece_bytes;
        if (pleat__files_read(files, fd, r->body + at, n, r->n_head + at) != 0) return PLEAT_STORE_IO;
        if (r->goes_on && !r->goes_on(r->ctx)) return STOPPED;
        if (pleat_image_check_piece(r->head, r->n_head, i, r->body + at) != PLEAT_OK) return PLEAT_STORE_DAMAGED;
    }
    return READ;
}

static int read_open(const reading *r, int fd) {
    const pleat__files *files = &r->s->files;
    pleat_image_head h;
    const int64_t size = files->size(files->ctx, fd);
    if (size < 0) return PLEAT_STORE_IO;
    if ((uint64_t)size < r->n_head) return PLEAT_STORE_DAMAGED;
    if (pleat__files_read(files, fd, r->head, r->n_head, 0) != 0) return PLEAT_STORE_IO;
    if (pleat_image_read_head(r->head, r->n_head, &h, NULL, NULL) != PLEAT_OK) return PLEAT_STORE_DAMAGED;
    if (!pleat__store_head_is(&h, r->wanted)) return PLEAT_STORE_OTHER;
    if ((uint64_t)size != r->n_head + h.body_bytes) return PLEAT_STORE_DAMAGED;
    return read_body(r, fd, &h);
}

/* READ, STOPPED, or the miss. */
static int read_file(const reading *r) {
    const pleat__files *files = &r->s->files;
    char path[PLEAT__STORE_PATH_CAP];
    pleat__store_path(r->s, &r->key, path);
    const int fd = files->open(files->ctx, path);
    if (fd < 0) return fd == -ENOENT ? PLEAT_STORE_GONE : PLEAT_STORE_IO;
    const int result = read_open(r, fd);
    (void)files->close(files->ctx, fd);
    return result;
}

/* ---- what came of it ----------------------------------------------------------------------------------- */

static void count_read(pleat_store *s, int result, uint64_t n_bytes, uint64_t ns) {
    const double speed = (double)n_bytes * 1e9 / (double)(ns > 0 ? ns : 1);
    (void)pthread_mutex_lock(&s->lock);
    if (result == READ) {
        s->speed = s->stats.hits == 0 ? speed : 0.75 * s->speed + 0.25 * speed;
        s->stats.hits++;
        s->stats.read_bytes += n_bytes;
        s->stats.read_ns += ns;
    } else if (result != STOPPED) {
        s->stats.misses[result]++;
    }
    (void)pthread_mutex_unlock(&s->lock);
}

/* The writer hears of it. */
static void tell(pleat_store *s, int result, const pleat__store_key *key) {
    if (result == PLEAT_STORE_IO || result == STOPPED) return;
    pleat__store_learn(s, key, result == READ);
    pleat__store_note(s, result == READ ? PLEAT__JOB_USE : PLEAT__JOB_FORGET, key);
}

pleat_status pleat__store_read_while(pleat_store *s, const pleat_image_head *wanted, void *body, uint64_t body_bytes,
                                     bool (*goes_on)(void *ctx), void *ctx) {
    pleat_image_head w = *wanted;
    w.body_bytes = body_bytes;
    w.piece_bytes = PLEAT_IMAGE_PIECE_DEFAULT;
    reading r = {.s = s, .wanted = &w, .body = body, .goes_on = goes_on, .ctx = ctx};
    r.n_head = pleat_image_head_bytes(&w);
    if (r.n_head == 0) return PLEAT_E_ARG;
    r.head = pleat__alloc(&s->al, 1, r.n_head);
    if (!r.head) return PLEAT_E_MEMORY;
    r.key = pleat__store_key_of(&w);
    const uint64_t start_ns = pleat__clock_ns();
    const int result = read_file(&r);
    count_read(s, result, r.n_head + body_bytes, pleat__clock_ns() - start_ns);
    pleat__free(&s->al, r.head, 1, r.n_head);
    tell(s, result, &r.key);
    return result == READ ? PLEAT_OK : PLEAT_AGAIN;
}

pleat_status pleat_store_read(pleat_store *s, const pleat_image_head *wanted, void *body, uint64_t body_bytes) {
    if (!s || !wanted || !body) return PLEAT_E_ARG;
    return pleat__store_read_while(s, wanted, body, body_bytes, NULL, NULL);
}

double pleat_store_read_speed(pleat_store *s) {
    if (!s) return 0;
    (void)pthread_mutex_lock(&s->lock);
    const double speed = s->speed;
    (void)pthread_mutex_unlock(&s->lock);
    return speed;
}
