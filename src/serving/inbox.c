/* SPDX-License-Identifier: MIT
 *
 * inbox.c: requests and cancellations from other threads, and the driver's sleep.
 *
 *     any thread     post ─────────> places, inbox ──> wake
 *                    post_cancel ──> list of places ─> wake
 *     the driver     step ──> drain: takes both lists at once, and works on them without the lock
 *                    wait ──> sleeps while they are empty and nobody is here, or all wait for the store
 *
 * Who posts checks the request and makes its record itself: what that reads of the serving is constant.
 */
#include <string.h>
#include <time.h>

#include "core/error.h"
#include "serving/internal.h"

/* ---- posting --------------------------------------------------------------------------------------------------------- */

/* The i-th of n continuations of a request. */
static pleat_request continuation(const pleat_request *q, uint32_t i, uint32_t n) {
    pleat_request one = *q;
    one.sampling.seed += i;
    if (n > 1 && q->breakpoint == 0 && q->n_breakpoints == 0) one.breakpoint = q->n_prompt - 1;
    return one;
}

static pleat_status make_records(pleat_serving *s, const pleat_request *q, uint32_t n, pleat__request **records,
                                 pleat_error *err) {
    for (uint32_t i = 0; i < n; i++) {
        const pleat_request one = continuation(q, i, n);
        PLEAT_TRY(pleat__request_create(s, &one, &records[i], err));
        records[i]->index = i;
    }
    return PLEAT_OK;
}

pleat_status pleat_serving_post(pleat_serving *s, const pleat_request *q, uint32_t n, pleat_request_id *ids,
                                pleat_error *err) {
    PLEAT_FAIL_IF(!s || !q || !ids || n == 0 || q->size_bytes != sizeof *q, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "request: no serving, no place for the ids, or not from pleat_request_default()");
    PLEAT_FAIL_IF(n > s->opt.max_requests, err, PLEAT_E_LIMIT, PLEAT_NOWHERE,
                  "request: %u continuations are more than the %u requests that may wait or run", n,
                  s->opt.max_requests);
    pleat__request **records = pleat__alloc_zero(&s->al, n, sizeof *records);
    PLEAT_FAIL_IF(!records, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "serving: out of memory");
    pleat_status status = make_records(s, q, n, records, err);
    if (status == PLEAT_OK && pleat__places_take(s, records, n, ids) != PLEAT_OK)
        status = pleat__error_set(err, PLEAT_E_LIMIT, n,
                                  "request: with %u more there would be more than the %u that may "
                                  "wait or run",
                                  n, s->opt.max_requests);
    for (uint32_t i = 0; status != PLEAT_OK && i < n; i++)
        if (records[i]) pleat__request_free(s, records[i]);
    pleat__free(&s->al, records, n, sizeof *records);
    return status;
}

void pleat_serving_post_cancel(pleat_serving *s, pleat_request_id id) {
    if (!s || id.v == 0) return;
    pleat__inbox *in = &s->inbox;
    const uint32_t i = (uint32_t)(id.v % ((uint64_t)s->opt.max_requests + 1));
    pleat__place *place = &in->places[i];
    (void)pthread_mutex_lock(&in->lock);
    if (place->id == id.v) {
        place->cancel_id = id.v;
        if (!place->is_listed) {
            place->is_listed = true;
            place->next_cancel = in->cancel_head;
            in->cancel_head = i;
        }
        (void)pthread_cond_signal(&in->wake);
    }
    (void)pthread_mutex_unlock(&in->lock);
}

/* ---- the driver's side ----------------------------------------------------------------------------------------------- */

/* Empty both lists at once, so that no cancellation is seen before its request is: *posted, and cancels [n]; returns n. */
static uint32_t take_lists(pleat_serving *s, pleat__request **posted) {
    pleat__inbox *in = &s->inbox;
    uint32_t n = 0;
    (void)pthread_mutex_lock(&in->lock);
    *posted = in->first;
    in->first = NULL;
    in->last = &in->first;
    in->is_woken = false;
    for (uint32_t i = in->cancel_head; i > 0; i = in->places[i].next_cancel) {
        in->cancels[n++] = in->places[i].cancel_id;
        in->places[i].is_listed = false;
    }
    in->cancel_head = 0;
    (void)pthread_mutex_unlock(&in->lock);
    return n;
}

void pleat__inbox_drain(pleat_serving *s) {
    pleat__request *r;
    const uint32_t n_cancels = take_lists(s, &r);
    while (r) {
        pleat__request *next = r->next;
        r->next = NULL;
        (void)pleat__request_enter_queue(s, r, true);
        r = next;
    }
    for (uint32_t i = 0; i < n_cancels; i++) {
        pleat__request *gone = pleat__serving_request(s, (pleat_request_id){s->inbox.cancels[i]});
        if (gone) pleat__serving_release(s, gone);
    }
}

static struct timespec time_in(uint64_t ns) {
    struct timespec t;
    const uint64_t most = (uint64_t)86400 * 365 * 1000000000; /* so that no sum overflows */
    clock_gettime(CLOCK_MONOTONIC, &t);
    const uint64_t at = (uint64_t)t.tv_nsec + (ns < most ? ns : most);
    t.tv_sec += (time_t)(at / 1000000000);
    t.tv_nsec = (long)(at % 1000000000);
    return t;
}

#define FETCH_POLL_NS 20000000u /* a fetch that answers nothing is looked at so often */

pleat_status pleat_serving_wait(pleat_serving *s, uint64_t timeout_ns) {
    if (!s) return PLEAT_E_ARG;
    const bool fetches = s->tier.stands_still && s->tier.fetching;
    if (pleat__sched_n_waiting(s->sched) + pleat__sched_n_running(s->sched) > 0 && !fetches) return PLEAT_OK;
    pleat__inbox *in = &s->inbox;
    const struct timespec until = time_in(fetches && timeout_ns > FETCH_POLL_NS ? FETCH_POLL_NS : timeout_ns);
    bool is_over = false;
    (void)pthread_mutex_lock(&in->lock);
    while (!in->first && !in->is_woken && !is_over) is_over = pthread_cond_timedwait(&in->wake, &in->lock, &until) != 0;
    const bool has_cause = in->first || in->is_woken;
    in->is_woken = false;
    (void)pthread_mutex_unlock(&in->lock);
    return has_cause || fetches ? PLEAT_OK : PLEAT_AGAIN;
}
