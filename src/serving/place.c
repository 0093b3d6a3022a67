/* SPDX-License-Identifier: MIT
 *
 * place.c: places of requests, from when they are queued by whichever thread until they are gone.
 *
 *     id = serial * (max_requests + 1) + place           serial counts requests, from 1
 *
 * There are as many places as requests may be there at once, so who has a place has room in the scheduler too.  Turns
 * (arrival) and the order in the inbox are given together, under the lock: they are the same order.
 */
#include <time.h>

#include "serving/internal.h"

pleat_status pleat__places_init(pleat_serving *s) {
    pleat__inbox *in = &s->inbox;
    pthread_condattr_t attr;
    if (pthread_condattr_init(&attr) != 0) return PLEAT_E_MEMORY;
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    const int has_wake = pthread_cond_init(&in->wake, &attr) == 0;
    (void)pthread_condattr_destroy(&attr);
    if (!has_wake) return PLEAT_E_MEMORY;
    if (pthread_mutex_init(&in->lock, NULL) != 0) {
        (void)pthread_cond_destroy(&in->wake);
        return PLEAT_E_MEMORY;
    }
    in->exists = true;
    in->last = &in->first;
    in->n_free = s->opt.max_requests;
    for (uint32_t i = s->opt.max_requests; i > 0; i--) {
        in->places[i].next_free = in->free_head;
        in->free_head = i;
    }
    return PLEAT_OK;
}

void pleat__places_release(pleat_serving *s) {
    pleat__inbox *in = &s->inbox;
    if (!in->exists) return;
    while (in->first) {
        pleat__request *r = in->first;
        in->first = r->next;
        pleat__request_free(s, r);
    }
    (void)pthread_cond_destroy(&in->wake);
    (void)pthread_mutex_destroy(&in->lock);
    in->exists = false;
}

static void take_place(pleat_serving *s, pleat__request *r) {
    pleat__inbox *in = &s->inbox;
    const uint32_t i = in->free_head;
    pleat__place *place = &in->places[i];
    in->free_head = place->next_free;
    in->n_free--;
    r->arrival = ++in->n_submitted;
    r->id.v = r->arrival * ((uint64_t)s->opt.max_requests + 1) + i;
    place->id = r->id.v;
}

pleat_status pleat__places_take(pleat_serving *s, pleat__request *const *requests, uint32_t n,
                                pleat_request_id *posted) {
    pleat__inbox *in = &s->inbox;
    (void)pthread_mutex_lock(&in->lock);
    const bool has_room = n <= in->n_free;
    for (uint32_t i = 0; has_room && i < n; i++) {
        take_place(s, requests[i]);
        if (!posted) continue;
        posted[i] = requests[i]->id; /* once the lock is left, the request is the driver's */
        *in->last = requests[i];
        in->last = &requests[i]->next;
    }
    if (has_room && posted) (void)pthread_cond_signal(&in->wake);
    (void)pthread_mutex_unlock(&in->lock);
    return has_room ? PLEAT_OK : PLEAT_E_LIMIT;
}

void pleat__place_free(pleat_serving *s, const pleat__request *r) {
    pleat__inbox *in = &s->inbox;
    const uint32_t i = (uint32_t)(r->id.v % ((uint64_t)s->opt.max_requests + 1));
    (void)pthread_mutex_lock(&in->lock);
    in->places[i].id = 0; /* it may still be listed: cancel_id is another's than the next one's */
    in->places[i].next_free = in->free_head;
    in->free_head = i;
    in->n_free++;
    (void)pthread_mutex_unlock(&in->lock);
    s->by_place[i] = NULL;
}

void pleat__request_free(const pleat_serving *s, pleat__request *r) {
    pleat__answer_destroy(&s->al, s->backend.shape.n_vocab, r->answer);
    pleat_sampler_destroy(&r->sampler);
    pleat__free(&s->al, r, 1, r->block_bytes);
}

void pleat_serving_wake(pleat_serving *s) {
    if (!s) return;
    (void)pthread_mutex_lock(&s->inbox.lock);
    s->inbox.is_woken = true;
    (void)pthread_cond_signal(&s->inbox.wake);
    (void)pthread_mutex_unlock(&s->inbox.lock);
}
