/* SPDX-License-Identifier: MIT
 *
 * read.c: what is stored, found and read, and what came of it.
 */
#include "core/clock.h"
#include "core/error.h"
#include "store/internal.h"

int pleat__store_look(pleat_store *s, const pleat_image_head *heads, uint32_t n, uint32_t *which,
                      uint64_t *body_bytes) {
    pleat__store_key keys[PLEAT__STORE_FIND_MAX];
    for (uint32_t i = 0; i < n; i++) keys[i] = pleat__store_key_of(&heads[i]);
    const int result = s->shelf.find(s->shelf.ctx, keys, n, which, body_bytes);
    for (uint32_t i = 0; i < *which; i++) pleat__store_learn(s, &keys[i], false);
    if (result == PLEAT_STORE_DAMAGED) {
        pleat__store_learn(s, &keys[*which], false);
        pleat__store_note(s, PLEAT__JOB_FORGET, &keys[*which]);
    }
    return result;
}

pleat_status pleat_store_find(pleat_store *s, const pleat_image_head *head, uint64_t *body_bytes) {
    if (!s || !head || !body_bytes || !head->spec || !head->tokens) return PLEAT_E_ARG;
    uint32_t which;
    const int result = pleat__store_look(s, head, 1, &which, body_bytes);
    if (result != PLEAT_STORE_ABSENT && result != PLEAT__READ) pleat__store_add(s, &s->stats.misses[result], 1);
    return result == PLEAT__READ ? PLEAT_OK : PLEAT_AGAIN;
}

int pleat__store_check_head(const pleat__reading *r) {
    pleat_image_head h;
    if (pleat_image_read_head(r->head, r->n_head, &h, NULL, NULL) != PLEAT_OK) return PLEAT_STORE_DAMAGED;
    return pleat__store_head_is(&h, r->wanted) ? PLEAT__READ : PLEAT_STORE_OTHER;
}

/* ---- what came of it ----------------------------------------------------------------------------------- */

static void count_hit(pleat_store *s, uint64_t n_bytes, uint64_t ns) {
    const double speed = (double)n_bytes * 1e9 / (double)(ns > 0 ? ns : 1);
    (void)pthread_mutex_lock(&s->lock);
    s->speed = s->stats.hits == 0 ? speed : 0.75 * s->speed + 0.25 * speed;
    s->stats.hits++;
    s->stats.read_bytes += n_bytes;
    s->stats.read_ns += ns;
    (void)pthread_mutex_unlock(&s->lock);
}

/* The writer hears of it. */
static void tell(pleat_store *s, int result, const pleat__store_key *key) {
    if (result == PLEAT_STORE_IO || result == PLEAT_STORE_TIMEOUT || result == PLEAT__READ_STOPPED) return;
    pleat__store_learn(s, key, result == PLEAT__READ);
    pleat__store_note(s, result == PLEAT__READ ? PLEAT__JOB_USE : PLEAT__JOB_FORGET, key);
}

static pleat_image_head head_of_body(const pleat_image_head *wanted, uint64_t body_bytes) {
    pleat_image_head head = *wanted;
    head.body_bytes = body_bytes;
    head.piece_bytes = PLEAT_IMAGE_PIECE_DEFAULT;
    return head;
}

void pleat__store_refuse(pleat_store *s, const pleat_image_head *head, uint64_t body_bytes) {
    const pleat_image_head w = head_of_body(head, body_bytes);
    const pleat__store_key key = pleat__store_key_of(&w);
    (void)pthread_mutex_lock(&s->lock);
    s->stats.hits--; /* it was none */
    s->stats.misses[PLEAT_STORE_DAMAGED]++;
    (void)pthread_mutex_unlock(&s->lock);
    tell(s, PLEAT_STORE_DAMAGED, &key);
}

pleat_status pleat__store_read_while(pleat_store *s, const pleat_image_head *wanted, void *body, uint64_t body_bytes,
                                     bool (*goes_on)(void *ctx), void *ctx, int *result) {
    const pleat_image_head w = head_of_body(wanted, body_bytes);
    const pleat__store_key key = pleat__store_key_of(&w);
    pleat__reading r = {.key = &key, .wanted = &w, .body = body, .goes_on = goes_on, .ctx = ctx};
    r.n_head = pleat_image_head_bytes(&w);
    if (r.n_head == 0) return PLEAT_E_ARG;
    r.head = pleat__alloc(&s->al, 1, r.n_head);
    if (!r.head) return PLEAT_E_MEMORY;
    const uint64_t start_ns = pleat__clock_ns();
    *result = s->shelf.read(s->shelf.ctx, &r);
    if (*result == PLEAT__READ) count_hit(s, r.n_head + body_bytes, pleat__clock_ns() - start_ns);
    pleat__free(&s->al, r.head, 1, r.n_head);
    tell(s, *result, &key);
    return *result == PLEAT__READ ? PLEAT_OK : PLEAT_AGAIN;
}

pleat_status pleat_store_read(pleat_store *s, const pleat_image_head *wanted, void *body, uint64_t body_bytes) {
    if (!s || !wanted || !body) return PLEAT_E_ARG;
    int result;
    const pleat_status status = pleat__store_read_while(s, wanted, body, body_bytes, NULL, NULL, &result);
    if (status == PLEAT_AGAIN) pleat__store_add(s, &s->stats.misses[result], 1);
    return status;
}

double pleat_store_read_speed(pleat_store *s) {
    if (!s) return 0;
    (void)pthread_mutex_lock(&s->lock);
    const double speed = s->speed;
    (void)pthread_mutex_unlock(&s->lock);
    return speed;
}
