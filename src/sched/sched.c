/* SPDX-License-Identifier: MIT
 *
 * sched.c: requests come, run, wait again and go.  See sched.h, and internal.h for the other files.
 */
#include "sched/sched.h"

#include <assert.h>
#include <string.h>

#include "core/error.h"
#include "sched/internal.h"

/* sched.h's bound: no sum over millions of running requests wraps. */
#define MAX_PAGES ((uint64_t)1 << 40)

/* ---- create ---------------------------------------------------------------------------------------- */

static pleat_status check_options(const pleat__sched_options *o) {
    if (o->max_requests == 0 || o->max_requests == UINT32_MAX || o->max_running == 0) return PLEAT_E_ARG;
    if (o->step_tokens < o->max_running || o->n_tenants == 0 || !o->tenants) return PLEAT_E_ARG;
    if (o->low_pages == 0 || o->low_pages > o->high_pages || o->high_pages > o->n_pages) return PLEAT_E_ARG;
    if (o->n_pages > MAX_PAGES || o->n_tenants == PLEAT__NO_TENANT) return PLEAT_E_ARG;
    uint64_t rest = o->n_pages;
    for (uint32_t i = 0; i < o->n_tenants; i++) {
        if (o->tenants[i].weight == 0 || o->tenants[i].quota_pages > rest) return PLEAT_E_ARG;
        rest -= o->tenants[i].quota_pages;
    }
    return PLEAT_OK;
}

/* Carve everything out of one block, the struct first. */
static pleat__sched *carve(const pleat__sched_options *o, pleat__arena *arena) {
    const uint32_t running_cap = pleat__min_u32(o->max_running, o->max_requests);
    pleat__sched *s = pleat__arena_take(arena, 1, sizeof *s);
    pleat__sched_request *requests = pleat__arena_take(arena, (uint64_t)o->max_requests + 1, sizeof *requests);
    pleat__tenant *tenants = pleat__arena_take(arena, o->n_tenants, sizeof *tenants);
    uint32_t *running = pleat__arena_take(arena, running_cap, sizeof *running);
    pleat__sched_id *run = pleat__arena_take(arena, running_cap, sizeof *run);
    if (!arena->base) return NULL;
    *s = (pleat__sched){.requests = requests, .tenants = tenants, .running = running, .run = run};
    s->running_cap = running_cap;
    return s;
}

static void init(pleat__sched *s, const pleat__sched_options *o) {
    s->opt = *o;
    s->opt.tenants = NULL;
    s->last_tenant = PLEAT__NO_TENANT;
    s->shared_pages = o->n_pages;
    for (uint32_t i = 0; i < o->n_tenants; i++) {
        s->tenants[i] = (pleat__tenant){.quota_pages = o->tenants[i].quota_pages, .weight = o->tenants[i].weight};
        s->shared_pages -= o->tenants[i].quota_pages;
    }
}

pleat_status pleat__sched_create(const pleat__sched_options *opt, const pleat_allocator *allocator,
                                 pleat__sched **out) {
    PLEAT_TRY(check_options(opt));
    const pleat_allocator al = pleat__allocator_or_default(allocator);
    pleat__arena arena = {0};
    carve(opt, &arena);
    if (arena.overflow) return PLEAT_E_MEMORY;
    void *block = pleat__alloc(&al, 1, arena.used_bytes);
    if (!block) return PLEAT_E_MEMORY;
    arena = (pleat__arena){.base = block, .cap_bytes = arena.used_bytes};
    pleat__sched *s = carve(opt, &arena);
    s->al = al;
    s->block_bytes = arena.used_bytes;
    init(s, opt);
    *out = s;
    return PLEAT_OK;
}

void pleat__sched_destroy(pleat__sched **sched) {
    if (!sched || !*sched) return;
    const pleat_allocator al = (*sched)->al;
    pleat__free(&al, *sched, 1, (*sched)->block_bytes);
    *sched = NULL;
}

/* ---- running --------------------------------------------------------------------------------------- */

/* Where v stands, or would stand, among those who run. */
static uint32_t place_of(const pleat__sched *s, uint32_t v) {
    uint32_t low = 0, high = s->n_running;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (pleat__sched_before(s, s->running[middle], v))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void count_demand(pleat__sched *s, const pleat__sched_request *r) {
    const uint64_t coming = r->demand.n_pages + r->demand.coming_pages;
    s->tenants[r->tenant].held_pages += r->demand.held_pages;
    s->tenants[r->tenant].coming_pages += coming;
    s->coming_pages += coming;
    s->later_tokens += r->demand.later_tokens;
}

static void uncount_demand(pleat__sched *s, const pleat__sched_request *r) {
    const uint64_t coming = r->demand.n_pages + r->demand.coming_pages;
    s->tenants[r->tenant].held_pages -= r->demand.held_pages;
    s->tenants[r->tenant].coming_pages -= coming;
    s->coming_pages -= coming;
    s->later_tokens -= r->demand.later_tokens;
}

static void check_demand(const pleat__sched *s, const pleat__sched_demand *demand) {
    assert(demand->n_tokens >= 1 && demand->n_tokens <= s->opt.step_tokens);
    assert(!demand->generates || demand->n_tokens == 1);
    assert(demand->n_pages <= MAX_PAGES && demand->held_pages <= MAX_PAGES && demand->coming_pages <= MAX_PAGES);
    (void)s, (void)demand;
}

void pleat__running_insert(pleat__sched *s, uint32_t v, const pleat__sched_demand *demand) {
    assert(s->n_running < s->running_cap);
    check_demand(s, demand);
    pleat__sched_request *r = &s->requests[v];
    const uint32_t place = place_of(s, v);
    memmove(s->running + place + 1, s->running + place, (s->n_running - place) * sizeof *s->running);
    s->running[place] = v;
    s->n_running++;
    r->state = PLEAT__SCHED_RUNNING;
    r->demand = *demand;
    count_demand(s, r);
}

static void running_remove(pleat__sched *s, uint32_t v) {
    const uint32_t place = place_of(s, v);
    assert(place < s->n_running && s->running[place] == v);
    s->n_running--;
    memmove(s->running + place, s->running + place + 1, (s->n_running - place) * sizeof *s->running);
    uncount_demand(s, &s->requests[v]);
    s->admits = false; /* the plan is of those who ran */
}

void pleat__sched_demand_set(pleat__sched *sched, pleat__sched_id id, const pleat__sched_demand *demand) {
    pleat__sched_request *r = pleat__sched_at(sched, id.v);
    assert(r->state == PLEAT__SCHED_RUNNING);
    check_demand(sched, demand);
    uncount_demand(sched, r);
    r->demand = *demand;
    count_demand(sched, r);
}

void pleat__sched_preempt(pleat__sched *sched, pleat__sched_id id) {
    assert(pleat__sched_at(sched, id.v)->state == PLEAT__SCHED_RUNNING);
    running_remove(sched, id.v);
    pleat__waiting_push(sched, id.v);
    sched->is_closed = true;
}

void pleat__sched_ran(pleat__sched *sched, pleat__sched_id id, uint32_t n_tokens) {
    const pleat__sched_request *r = pleat__sched_at(sched, id.v);
    assert(r->state == PLEAT__SCHED_RUNNING);
    pleat__tenant_served(&sched->tenants[r->tenant], n_tokens);
}

/* ---- requests -------------------------------------------------------------------------------------- */

pleat_status pleat__sched_add(pleat__sched *sched, uint32_t tenant, int32_t priority, uint64_t arrival,
                              pleat__sched_id *out) {
    assert(tenant < sched->opt.n_tenants);
    if (sched->n_waiting + sched->n_running == sched->opt.max_requests) return PLEAT_E_LIMIT;
    uint32_t v = sched->free_head;
    if (v)
        sched->free_head = pleat__sched_at(sched, v)->right;
    else
        v = ++sched->n_touched;
    *pleat__sched_at(sched, v) = (pleat__sched_request){.arrival = arrival, .priority = priority, .tenant = tenant};
    if (sched->tenants[tenant].n_requests++ == 0) pleat__tenant_wakes(sched, tenant);
    pleat__waiting_push(sched, v);
    out->v = v;
    return PLEAT_OK;
}

void pleat__sched_finish(pleat__sched *sched, pleat__sched_id id) {
    pleat__sched_request *r = pleat__sched_at(sched, id.v);
    assert(r->state != PLEAT__SCHED_FREE);
    if (r->state == PLEAT__SCHED_RUNNING)
        running_remove(sched, id.v);
    else if (r->state == PLEAT__SCHED_DEFERRED)
        pleat__deferred_remove(sched, id.v);
    else
        pleat__waiting_remove(sched, id.v);
    if (--sched->tenants[r->tenant].n_requests == 0) pleat__tenant_sleeps(sched, r->tenant);
    r->state = PLEAT__SCHED_FREE;
    r->right = sched->free_head;
    sched->free_head = id.v;
}

uint32_t pleat__sched_n_waiting(const pleat__sched *sched) { return sched->n_waiting; }

uint32_t pleat__sched_n_running(const pleat__sched *sched) { return sched->n_running; }

/* ---- is_valid -------------------------------------------------------------------------------------- */

/* Each cell stands in exactly one place: all lists together have as many members as there are cells. */
static bool lists_are_valid(const pleat__sched *s) {
    uint64_t n_in[PLEAT__SCHED_RUNNING + 1] = {0}, n_free = 0, n_deferred = 0;
    for (uint32_t v = 1; v <= s->n_touched; v++) n_in[s->requests[v].state]++;
    for (uint32_t v = s->free_head; v && n_free <= s->n_touched; v = s->requests[v].right, n_free++)
        if (s->requests[v].state != PLEAT__SCHED_FREE) return false;
    for (uint32_t v = s->deferred; v && n_deferred <= s->n_touched; v = s->requests[v].right, n_deferred++)
        if (s->requests[v].state != PLEAT__SCHED_DEFERRED) return false;
    for (uint32_t i = 0; i < s->n_running; i++) {
        if (s->requests[s->running[i]].state != PLEAT__SCHED_RUNNING) return false;
        if (i > 0 && !pleat__sched_before(s, s->running[i - 1], s->running[i])) return false;
    }
    return n_in[PLEAT__SCHED_FREE] == n_free && n_in[PLEAT__SCHED_DEFERRED] == n_deferred &&
           n_in[PLEAT__SCHED_WAITING] + n_deferred == s->n_waiting && n_in[PLEAT__SCHED_RUNNING] == s->n_running;
}

/* One tenant's sums; returns what it has borrowed. */
static bool sums_are_valid(const pleat__sched *s, uint32_t tenant, uint64_t *borrowed) {
    const pleat__tenant *t = &s->tenants[tenant];
    uint64_t held = 0, coming = 0, n = 0;
    for (uint32_t v = 1; v <= s->n_touched; v++) {
        const pleat__sched_request *r = &s->requests[v];
        if (r->tenant != tenant || r->state == PLEAT__SCHED_FREE) continue;
        n++;
        if (r->state != PLEAT__SCHED_RUNNING) continue;
        held += r->demand.held_pages;
        coming += r->demand.n_pages + r->demand.coming_pages;
    }
    *borrowed = held > t->quota_pages ? held - t->quota_pages : 0;
    return held == t->held_pages && coming == t->coming_pages && n == t->n_requests && t->counter >= t->service;
}

bool pleat__sched_is_valid(const pleat__sched *sched) {
    if (!lists_are_valid(sched) || !pleat__waiting_is_valid(sched)) return false;
    uint64_t coming = 0, all_borrowed = 0, borrowed;
    for (uint32_t t = 0; t < sched->opt.n_tenants; t++) {
        if (!sums_are_valid(sched, t, &borrowed)) return false;
        coming += sched->tenants[t].coming_pages;
        all_borrowed += borrowed;
    }
    uint64_t later = 0;
    for (uint32_t i = 0; i < sched->n_running; i++) later += sched->requests[sched->running[i]].demand.later_tokens;
    if (later != sched->later_tokens) return false;
    return coming == sched->coming_pages && all_borrowed <= sched->shared_pages;
}
