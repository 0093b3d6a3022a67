/* SPDX-License-Identifier: MIT
 *
 * plan.c: the next step: who runs, who is preempted, who is admitted.  The rules are sched.h's, by their numbers.
 */
#include <assert.h>

#include "sched/internal.h"

/* ---- who runs -------------------------------------------------------------------------------------- */

static void join_step(pleat__sched *s, uint32_t v) {
    const pleat__sched_request *r = &s->requests[v];
    pleat__tenant *t = &s->tenants[r->tenant];
    s->run[s->n_run++].v = v;
    s->step_tokens += r->demand.n_tokens;
    s->step_pages += r->demand.n_pages;
    t->step_tokens += r->demand.n_tokens;
    t->step_pages += r->demand.n_pages;
}

static void begin_step(pleat__sched *s, pleat__sched_pages pages) {
    assert(pages.n_free <= s->opt.n_pages && pages.n_evictable <= s->opt.n_pages - pages.n_free);
    pleat__deferred_requeue(s);
    for (uint32_t i = 0; i < s->opt.n_tenants; i++) {
        s->tenants[i].step_pages = s->tenants[i].step_tokens = 0;
        s->tenants[i].is_refused = false;
    }
    s->occupied_pages = s->opt.n_pages - pages.n_free - pages.n_evictable;
    s->step_pages = 0;
    s->step_tokens = 0;
    s->n_run = 0;
    s->lends = true;
}

/* All generations, then prompts until a chunk does not fit: false then, as those behind it may not overtake it. */
static bool fill_step(pleat__sched *s) {
    for (uint32_t i = 0; i < s->n_running; i++)
        if (s->requests[s->running[i]].demand.generates) join_step(s, s->running[i]);
    for (uint32_t i = 0; i < s->n_running; i++) {
        const pleat__sched_demand *d = &s->requests[s->running[i]].demand;
        if (d->generates) continue;
        if (d->n_tokens > s->opt.step_tokens - s->step_tokens) return false;
        join_step(s, s->running[i]);
    }
    return true;
}

/* ---- who makes room -------------------------------------------------------------------------------- */

/* Pages that somebody has to return before the step: by (3), or (1) where one is alone, and by (5). */
static uint64_t shortfall(const pleat__sched *s) {
    if (s->n_running == 0) return 0;
    const uint64_t max = s->n_running == 1 ? s->opt.n_pages : s->opt.high_pages;
    const uint64_t after = s->occupied_pages + s->step_pages, borrowed = pleat__tenants_borrow_step(s);
    const uint64_t beyond_max = after > max ? after - max : 0;
    const uint64_t beyond_shared = borrowed > s->shared_pages ? borrowed - s->shared_pages : 0;
    return beyond_max > beyond_shared ? beyond_max : beyond_shared;
}

static bool somebody_borrows(const pleat__sched *s) {
    for (uint32_t i = 0; i < s->opt.n_tenants; i++)
        if (pleat__tenant_borrows(&s->tenants[i])) return true;
    return false;
}

/* From the lowest rank up, among those who borrow if anybody does (6): the first that can be compressed, else the
 * first. */
static pleat__sched_room choose_victim(const pleat__sched *s, pleat__sched_id *victim) {
    const bool only_borrowers = somebody_borrows(s);
    victim->v = 0;
    for (uint32_t i = s->n_running; i-- > 0;) {
        const uint32_t v = s->running[i];
        const pleat__sched_request *r = &s->requests[v];
        if (only_borrowers && !pleat__tenant_borrows(&s->tenants[r->tenant])) continue;
        if (r->demand.can_compress) {
            victim->v = v;
            return PLEAT__ROOM_COMPRESS;
        }
        if (!victim->v) victim->v = v;
    }
    return PLEAT__ROOM_PREEMPT;
}

void pleat__sched_plan_step(pleat__sched *sched, pleat__sched_pages pages, pleat__sched_plan *out) {
    begin_step(sched, pages);
    sched->admits = fill_step(sched);
    *out = (pleat__sched_plan){.room = PLEAT__ROOM_ENOUGH, .run = sched->run, .n_run = sched->n_run};
    out->n_tokens = sched->step_tokens;
    out->shortfall_pages = shortfall(sched);
    if (out->shortfall_pages > 0) {
        out->room = choose_victim(sched, &out->victim);
    } else if (sched->step_pages > pages.n_free) {
        out->room = PLEAT__ROOM_EVICT;
        out->shortfall_pages = sched->step_pages - pages.n_free;
    }
    if (out->room != PLEAT__ROOM_ENOUGH) sched->admits = false;
}

/* ---- who is admitted ------------------------------------------------------------------------------- */

/* Rule (4).  Whoever is alone is admitted however full the pool looks: nobody else could empty it. */
static bool is_closed(pleat__sched *s) {
    if (s->occupied_pages <= s->opt.low_pages) s->is_closed = false;
    return s->is_closed && s->n_running > 0;
}

/* Is tenant a's first request to be admitted before b's?  Higher priority, less service, earlier arrival. */
static bool goes_first(const pleat__sched *s, const pleat__tenant *a, const pleat__tenant *b) {
    const int32_t x = s->requests[a->heap].priority, y = s->requests[b->heap].priority;
    if (x != y) return x > y;
    const int order = pleat__tenant_compare(a, b);
    return order != 0 ? order < 0 : pleat__sched_before(s, a->heap, b->heap);
}

pleat__sched_id pleat__sched_candidate(pleat__sched *sched) {
    const pleat__sched_id nobody = {0};
    if (!sched->admits || sched->n_running == sched->running_cap) return nobody;
    if (sched->step_tokens == sched->opt.step_tokens || is_closed(sched)) return nobody;
    const pleat__tenant *first = NULL;
    for (uint32_t i = 0; i < sched->opt.n_tenants; i++) {
        const pleat__tenant *t = &sched->tenants[i];
        if (t->heap && !t->is_refused && (!first || goes_first(sched, t, first))) first = t;
    }
    return first ? (pleat__sched_id){first->heap} : nobody;
}

/* Rule (2). */
static bool pool_has_room(const pleat__sched *s, const pleat__sched_demand *demand) {
    const uint64_t max = s->n_running == 0 ? s->opt.n_pages : s->opt.low_pages;
    const uint64_t taken = s->occupied_pages + s->coming_pages;
    if (taken > max || demand->n_pages > max - taken) return false;
    return demand->coming_pages <= max - taken - demand->n_pages;
}

/* In this step and in those that follow. */
static bool step_has_room(const pleat__sched *s, const pleat__sched_demand *demand) {
    return demand->n_tokens <= s->opt.step_tokens - s->step_tokens &&
           (s->n_running == 0 || s->later_tokens + demand->later_tokens <= s->opt.step_tokens);
}

pleat__admission pleat__sched_admit(pleat__sched *sched, pleat__sched_id candidate, const pleat__sched_demand *demand,
                                    pleat__sched_plan *plan) {
    const pleat__sched_request *r = pleat__sched_at(sched, candidate.v);
    assert(sched->admits && r->state == PLEAT__SCHED_WAITING);
    const uint64_t pages = demand->held_pages + demand->n_pages + demand->coming_pages;
    if (!pleat__tenant_has_room(sched, r->tenant, pages)) {
        sched->tenants[r->tenant].is_refused = true;
        sched->lends = false;
        return PLEAT__REFUSED_TENANT;
    }
    sched->admits = false;
    if (!step_has_room(sched, demand)) return PLEAT__REFUSED_STEP;
    if (!pool_has_room(sched, demand)) return PLEAT__REFUSED_POOL;
    sched->admits = true;
    pleat__waiting_remove(sched, candidate.v);
    pleat__running_insert(sched, candidate.v, demand);
    join_step(sched, candidate.v);
    plan->n_run = sched->n_run;
    plan->n_tokens = sched->step_tokens;
    return PLEAT__ADMITTED;
}

void pleat__sched_defer(pleat__sched *sched, pleat__sched_id candidate) {
    pleat__waiting_remove(sched, candidate.v);
    pleat__deferred_push(sched, candidate.v);
}
