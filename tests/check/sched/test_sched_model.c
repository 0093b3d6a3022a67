/* SPDX-License-Identifier: MIT
 *
 * test_sched_model.c: the scheduler under random traffic against a slow oracle.
 *
 * A world is a pool, its tenants and up to 48 requests.  These read a prompt in chunks, generate token by token, take a
 * page whenever one is full, use kept prefixes and leave some behind, are compressed, preempted (swapped out, or to be
 * computed again), deferred and cancelled.  Each call's answer is compared with the oracle's, which keeps no state but
 * the world's own: it sorts and sums everything each time.  Millions of calls in many worlds; at the end of each world
 * nobody comes any more and everybody has to finish.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "sched/sched.h"

enum { MOST = 48, MAX_TENANTS = 4, MAX_CHUNK = 16, PAGE = 8, MAX_LEVEL = 3 };

typedef enum place { NOWHERE, WAITS, DEFERRED, RUNS } place;

typedef struct request {
    place at;
    pleat__sched_id id;
    uint32_t tenant;
    int32_t priority;
    uint64_t arrival;
    uint32_t n_prompt, n_tokens; /* to read; and to have at the end */
    uint32_t n_done, n_reached;  /* tokens whose pages it holds; the most it ever had */
    uint32_t n_saved;            /* tokens that were swapped out */
    uint64_t held, pinned;       /* its pages; pages of a prefix that it uses */
    uint32_t level;              /* of compression */
    bool may_compress, grew;
    pleat__sched_demand told; /* the demand that the scheduler knows, while it runs */
} request;

typedef struct tenant {
    uint64_t quota, service, counter;
    uint32_t weight;
    bool is_refused;
} tenant;

typedef struct world {
    pleat__sched *s;
    pleat__sched_options opt;
    tenant tenants[MAX_TENANTS];
    request requests[MOST];
    uint64_t shared, cached; /* pages: to lend; of kept prefixes that nobody uses */
    uint64_t arrival;
    int last_tenant; /* that became idle, or -1 */
    bool closed;
    /* The step: those in it, in order, and whether more may come. */
    request *run[MOST];
    uint32_t n_run;
    bool blocked, lends;
    uint64_t occupied;
} world;

static struct {
    uint64_t calls, steps, evicted, compressed, preempted, borrowers_first, admitted, refused_pool, refused_tenant,
        refused_step, closed, deferred, cancelled, finished, alone_above_high, cut_short;
} seen;

/* ---- the world ------------------------------------------------------------------------------------- */

static uint64_t pages_of(const request *r, uint32_t n_tokens) {
    return (n_tokens * (4 - r->level) + 4 * PAGE - 1) / (4 * PAGE);
}

static uint64_t used_pages(const world *w) {
    uint64_t sum = w->cached;
    for (uint32_t i = 0; i < MOST; i++) sum += w->requests[i].held + w->requests[i].pinned;
    return sum;
}

static uint64_t held_by(const world *w, uint32_t t) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < MOST; i++)
        if (w->requests[i].at != NOWHERE && w->requests[i].tenant == t) sum += w->requests[i].held;
    return sum;
}

static uint32_t count_at(const world *w, place at) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < MOST; i++) n += w->requests[i].at == at;
    return n;
}

/* Chunks are of any length; the request and its position decide. */
static uint32_t chunk_of(const request *r, uint32_t have) {
    return 1 + (uint32_t)((r->arrival * 7 + have * 5) % MAX_CHUNK);
}

static pleat__sched_demand demand_of(const request *r) {
    const bool swapped = r->n_done == 0 && r->n_saved > 0;
    const uint32_t have = swapped ? r->n_saved : r->n_done,
                   known = r->n_reached > r->n_prompt ? r->n_reached : r->n_prompt;
    pleat__sched_demand d = {.n_tokens = 1, .generates = have >= r->n_prompt, .held_pages = r->held};
    if (!d.generates) d.n_tokens = pleat__min_u32(chunk_of(r, have), r->n_prompt - have);
    d.later_tokens = have + d.n_tokens < r->n_prompt ? MAX_CHUNK : 1;
    const uint64_t next = pages_of(r, have + d.n_tokens), all = pages_of(r, known);
    d.n_pages = next - r->held;
    d.coming_pages = all > next ? all - next : 0;
    d.can_compress = r->may_compress && r->level < MAX_LEVEL && r->grew;
    return d;
}

static void tell_demand(world *w, request *r) {
    r->told = demand_of(r);
    pleat__sched_demand_set(w->s, r->id, &r->told);
    seen.calls++;
}

static bool is_idle(const world *w, uint32_t t) {
    for (uint32_t i = 0; i < MOST; i++)
        if (w->requests[i].at != NOWHERE && w->requests[i].tenant == t) return false;
    return true;
}

static void free_pages(world *w, request *r, bool keep_prefix) {
    const uint64_t kept = keep_prefix ? check_below(r->held + 1) : 0;
    w->cached += r->pinned + kept;
    r->held = r->pinned = 0;
}

static void finish(world *w, request *r) {
    pleat__sched_finish(w->s, r->id);
    seen.calls++;
    if (r->at == RUNS) w->blocked = true; /* until the next plan */
    free_pages(w, r, check_below(2));
    r->at = NOWHERE;
    if (is_idle(w, r->tenant)) w->last_tenant = (int)r->tenant;
}

static void preempt(world *w, request *r) {
    pleat__sched_preempt(w->s, r->id);
    seen.calls++;
    r->n_saved = check_below(2) ? r->n_done : 0;
    r->n_done = 0;
    free_pages(w, r, false);
    r->at = WAITS;
    w->closed = w->blocked = true;
}

/* c tokens at weight a are so many at weight b. */
static uint64_t at_weight(uint64_t c, uint32_t a, uint32_t b) { return c * b / a; }

/* Who was idle gets no credit. */
static void wake(world *w, uint32_t t) {
    if (!is_idle(w, t)) return;
    int least = -1;
    for (uint32_t i = 0; i < w->opt.n_tenants; i++)
        if (!is_idle(w, i) && (least < 0 || w->tenants[i].counter * w->tenants[least].weight <
                                                w->tenants[least].counter * w->tenants[i].weight))
            least = (int)i;
    if (least < 0) least = w->last_tenant;
    if (least < 0) return;
    const uint64_t start = at_weight(w->tenants[least].counter, w->tenants[least].weight, w->tenants[t].weight);
    if (w->tenants[t].counter < start) w->tenants[t].counter = start;
}

/* A new request that can be served at all: its pages, uncompressed, fit where it is alone. */
static void come(world *w) {
    request *r = w->requests;
    while (r < w->requests + MOST && r->at != NOWHERE) r++;
    const uint32_t n_there = MOST - count_at(w, NOWHERE), t = (uint32_t)check_below(w->opt.n_tenants);
    const int32_t priority = check_below(3) ? 0 : (int32_t)check_below(5) - 2;
    pleat__sched_id id = {0};
    seen.calls++;
    if (n_there == w->opt.max_requests) {
        CHECK_STATUS(pleat__sched_add(w->s, t, priority, w->arrival, &id), PLEAT_E_LIMIT);
        return;
    }
    const uint64_t most = pleat__sched_max_pages(w->s, t) * PAGE;
    if (most < 2) return;
    uint32_t n_tokens = (uint32_t)check_between(2, check_below(3) ? 60 : 400);
    if (n_tokens > most) n_tokens = (uint32_t)most;
    wake(w, t);
    *r = (request){.tenant = t, .priority = priority, .arrival = w->arrival++, .n_tokens = n_tokens};
    r->n_prompt = (uint32_t)check_between(1, check_below(2) ? n_tokens : 1 + n_tokens / 16);
    r->may_compress = check_below(3) == 0;
    CHECK_STATUS(pleat__sched_add(w->s, t, priority, r->arrival, &r->id), PLEAT_OK);
    r->at = WAITS;
}

/* ---- the oracle ------------------------------------------------------------------------------------ */

static int by_rank(const void *a, const void *b) {
    const request *x = *(request *const *)a, *y = *(request *const *)b;
    if (x->priority != y->priority) return x->priority > y->priority ? -1 : 1;
    return x->arrival < y->arrival ? -1 : 1;
}

static uint32_t sorted(world *w, place at, request **out) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < MOST; i++)
        if (w->requests[i].at == at) out[n++] = &w->requests[i];
    qsort(out, n, sizeof *out, by_rank);
    return n;
}

static uint32_t step_tokens(const world *w) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < w->n_run; i++) sum += w->run[i]->told.n_tokens;
    return sum;
}

static uint64_t step_pages(const world *w, int only_tenant) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < w->n_run; i++)
        if (only_tenant < 0 || w->run[i]->tenant == (uint32_t)only_tenant) sum += w->run[i]->told.n_pages;
    return sum;
}

static uint64_t beyond(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

static bool borrows(const world *w, uint32_t t) { return held_by(w, t) + step_pages(w, (int)t) > w->tenants[t].quota; }

static void oracle_fill(world *w) {
    request *all[MOST];
    const uint32_t n = sorted(w, RUNS, all);
    w->n_run = 0;
    w->blocked = false;
    w->lends = true;
    for (uint32_t i = 0; i < n; i++)
        if (all[i]->told.generates) w->run[w->n_run++] = all[i];
    for (uint32_t i = 0; i < n; i++) {
        if (all[i]->told.generates) continue;
        if (step_tokens(w) + all[i]->told.n_tokens > w->opt.step_tokens) {
            w->blocked = true;
            seen.cut_short++;
            return;
        }
        w->run[w->n_run++] = all[i];
    }
}

/* Whoever is preempted when n_short pages are missing. */
static request *oracle_victim(world *w, pleat__sched_room *room) {
    request *all[MOST], *pool[MOST] = {NULL};
    const uint32_t n = sorted(w, RUNS, all);
    uint32_t n_pool = 0;
    for (uint32_t i = n; i-- > 0;)
        if (borrows(w, all[i]->tenant)) pool[n_pool++] = all[i];
    if (n_pool > 0 && pool[0] != all[n - 1]) seen.borrowers_first++;
    if (n_pool == 0)
        for (uint32_t i = n; i-- > 0;) pool[n_pool++] = all[i];
    for (uint32_t i = 0; i < n_pool; i++) {
        *room = PLEAT__ROOM_COMPRESS;
        if (pool[i]->told.can_compress) return pool[i];
    }
    *room = PLEAT__ROOM_PREEMPT;
    return pool[0];
}

static void compare_run(const world *w, const pleat__sched_plan *p) {
    CHECK_EQ_U64(p->n_tokens, step_tokens(w));
    if (!CHECK_EQ_U64(p->n_run, w->n_run)) return;
    for (uint32_t i = 0; i < w->n_run; i++) CHECK_EQ_U64(p->run[i].v, w->run[i]->id.v);
}

/* Plan, compare, and return whoever is to be preempted, or NULL. */
static request *plan(world *w, pleat__sched_plan *p) {
    const uint64_t n_free = w->opt.n_pages - used_pages(w);
    const uint32_t n_running = count_at(w, RUNS);
    for (uint32_t i = 0; i < MOST; i++)
        if (w->requests[i].at == DEFERRED) w->requests[i].at = WAITS;
    for (uint32_t t = 0; t < w->opt.n_tenants; t++) w->tenants[t].is_refused = false;
    pleat__sched_plan_step(w->s, (pleat__sched_pages){n_free, w->cached}, p);
    seen.calls++;
    oracle_fill(w);
    w->occupied = used_pages(w) - w->cached;
    uint64_t borrowed = 0;
    for (uint32_t t = 0; t < w->opt.n_tenants; t++)
        borrowed += beyond(held_by(w, t) + step_pages(w, (int)t), w->tenants[t].quota);
    const uint64_t after = w->occupied + step_pages(w, -1);
    const uint64_t above = beyond(after, n_running > 1 ? w->opt.high_pages : w->opt.n_pages);
    const uint64_t owed = beyond(borrowed, w->shared), n_short = above > owed ? above : owed;
    pleat__sched_room room = PLEAT__ROOM_ENOUGH;
    request *victim = n_short > 0 ? oracle_victim(w, &room) : NULL;
    const uint64_t n_evict = victim ? 0 : beyond(step_pages(w, -1), n_free);
    if (n_evict > 0) room = PLEAT__ROOM_EVICT;
    seen.alone_above_high += n_running == 1 && !victim && after > w->opt.high_pages;
    CHECK_EQ_U64(p->room, room);
    CHECK_EQ_U64(p->shortfall_pages, n_short + n_evict);
    CHECK_EQ_U64(p->victim.v, victim ? victim->id.v : 0);
    compare_run(w, p);
    if (room != PLEAT__ROOM_ENOUGH) w->blocked = true;
    return victim;
}

static bool served_less(const world *w, const request *a, const request *b) {
    uint64_t x = w->tenants[a->tenant].counter, y = w->tenants[b->tenant].counter;
    for (uint32_t i = 0; i < w->n_run; i++) {
        if (w->run[i]->tenant == a->tenant) x += w->run[i]->told.n_tokens;
        if (w->run[i]->tenant == b->tenant) y += w->run[i]->told.n_tokens;
    }
    x *= w->tenants[b->tenant].weight;
    y *= w->tenants[a->tenant].weight;
    return x != y ? x < y : a->arrival < b->arrival;
}

static request *oracle_candidate(world *w) {
    request *all[MOST], *best = NULL;
    const uint32_t n = sorted(w, WAITS, all), n_running = count_at(w, RUNS);
    if (w->blocked || n_running == w->opt.max_running || step_tokens(w) == w->opt.step_tokens) return NULL;
    if (w->occupied <= w->opt.low_pages) w->closed = false;
    seen.closed += w->closed && n > 0;
    if (w->closed && n_running > 0) return NULL;
    uint32_t tenants_seen = 0; /* only each tenant's first counts: all[] is in order of rank */
    for (uint32_t i = 0; i < n; i++) {
        if (w->tenants[all[i]->tenant].is_refused || tenants_seen >> all[i]->tenant & 1) continue;
        tenants_seen |= 1u << all[i]->tenant;
        if (!best || all[i]->priority > best->priority ||
            (all[i]->priority == best->priority && served_less(w, all[i], best)))
            best = all[i];
    }
    return best;
}

static pleat__admission oracle_admit(world *w, const request *r, const pleat__sched_demand *d) {
    const uint32_t n_running = count_at(w, RUNS);
    uint64_t owed = 0, mine = 0, coming = 0;
    for (uint32_t t = 0; t < w->opt.n_tenants; t++) {
        uint64_t pages = t == r->tenant ? d->n_pages + d->coming_pages : 0;
        for (uint32_t i = 0; i < MOST; i++) {
            const request *other = &w->requests[i];
            if (other->at != RUNS || other->tenant != t) continue;
            pages += other->told.held_pages + other->told.n_pages + other->told.coming_pages;
            coming += other->told.n_pages + other->told.coming_pages;
        }
        owed += beyond(pages, w->tenants[t].quota);
        if (t == r->tenant) mine = beyond(pages, w->tenants[t].quota);
    }
    if (mine > 0 && (owed > w->shared || !w->lends)) return PLEAT__REFUSED_TENANT;
    uint32_t later = d->later_tokens;
    for (uint32_t i = 0; i < MOST; i++) later += w->requests[i].at == RUNS ? w->requests[i].told.later_tokens : 0;
    if (step_tokens(w) + d->n_tokens > w->opt.step_tokens) return PLEAT__REFUSED_STEP;
    if (n_running > 0 && later > w->opt.step_tokens) return PLEAT__REFUSED_STEP;
    const uint64_t all = w->occupied + coming + d->n_pages + d->coming_pages;
    return all > (n_running ? w->opt.low_pages : w->opt.n_pages) ? PLEAT__REFUSED_POOL : PLEAT__ADMITTED;
}

/* ---- a step ---------------------------------------------------------------------------------------- */

static void compress(world *w, request *r) {
    r->level++;
    r->held = pages_of(r, r->n_done);
    r->grew = false;
    tell_demand(w, r);
    seen.compressed++;
}

/* Until the plan stands. */
static void plan_and_relieve(world *w, pleat__sched_plan *p) {
    for (;;) {
        request *victim = plan(w, p);
        if (check_failures() || p->room == PLEAT__ROOM_ENOUGH) return;
        if (p->room == PLEAT__ROOM_EVICT) {
            CHECK(p->shortfall_pages <= w->cached);
            w->cached -= p->shortfall_pages;
            seen.evicted++;
        } else if (p->room == PLEAT__ROOM_COMPRESS) {
            compress(w, victim);
        } else {
            CHECK(count_at(w, RUNS) > 1); /* nobody here outgrows the pool */
            preempt(w, victim);
            seen.preempted++;
        }
    }
}

/* Pages of a kept prefix that r would use: as many as never keep it from running alone. */
static uint64_t choose_pinned(const world *w, const request *r) {
    const uint64_t most = pleat__sched_max_pages(w->s, r->tenant), own = pages_of(r, r->n_tokens);
    if (check_below(2) || own >= most) return 0;
    return check_below((w->cached < most - own ? w->cached : most - own) + 1);
}

static void admit(world *w, request *r, pleat__sched_plan *p) {
    const uint64_t pinned = choose_pinned(w, r);
    pleat__sched_demand d = demand_of(r);
    d.coming_pages += pinned;
    const pleat__admission want = oracle_admit(w, r, &d);
    CHECK_EQ_U64(pleat__sched_admit(w->s, r->id, &d, p), want);
    seen.calls++;
    seen.admitted += want == PLEAT__ADMITTED;
    seen.refused_pool += want == PLEAT__REFUSED_POOL;
    seen.refused_step += want == PLEAT__REFUSED_STEP;
    seen.refused_tenant += want == PLEAT__REFUSED_TENANT;
    if (want == PLEAT__REFUSED_TENANT) {
        w->tenants[r->tenant].is_refused = true;
        w->lends = false;
    }
    if (want == PLEAT__REFUSED_POOL || want == PLEAT__REFUSED_STEP) w->blocked = true;
    if (want != PLEAT__ADMITTED) return;
    r->at = RUNS;
    r->told = d;
    r->pinned = pinned;
    w->cached -= pinned;
    w->run[w->n_run++] = r;
    compare_run(w, p);
}

static void admit_some(world *w, pleat__sched_plan *p, bool busy) {
    while (check_failures() == 0) {
        request *r = oracle_candidate(w);
        seen.calls++;
        if (!CHECK_EQ_U64(pleat__sched_candidate(w->s).v, r ? r->id.v : 0) || !r) return;
        const uint64_t kind = check_below(16);
        if (kind == 0) {
            pleat__sched_defer(w->s, r->id);
            r->at = DEFERRED;
            seen.deferred++;
        } else if (kind == 1 && busy) {
            finish(w, r);
            seen.cancelled++;
        } else {
            admit(w, r, p);
        }
    }
}

/* Everybody in the step takes its pages and has its tokens; those who are done go. */
static void run_step(world *w) {
    const uint64_t n_free = w->opt.n_pages - used_pages(w), n_evict = beyond(step_pages(w, -1), n_free);
    if (!CHECK(n_evict <= w->cached)) return; /* the pool would be overdrawn */
    w->cached -= n_evict;
    for (uint32_t i = 0; i < w->n_run; i++) {
        request *r = w->run[i];
        const uint32_t n = r->told.n_tokens;
        r->n_done = (r->n_done ? r->n_done : r->n_saved) + n;
        r->n_reached = pleat__max_u32(r->n_reached, r->n_done);
        r->held += r->told.n_pages;
        r->grew |= r->told.n_pages > 0;
        pleat__sched_ran(w->s, r->id, n);
        w->tenants[r->tenant].service += n;
        w->tenants[r->tenant].counter += n;
        seen.calls++;
    }
    for (uint32_t i = 0; i < w->n_run; i++) {
        if (w->run[i]->n_done < w->run[i]->n_tokens) {
            tell_demand(w, w->run[i]);
            continue;
        }
        finish(w, w->run[i]);
        seen.finished++;
    }
}

static void check_world(const world *w) {
    uint64_t borrowed = 0;
    CHECK(used_pages(w) <= w->opt.n_pages);
    for (uint32_t t = 0; t < w->opt.n_tenants; t++) {
        const uint64_t held = held_by(w, t);
        CHECK_EQ_U64(pleat__sched_held(w->s, t), held);
        CHECK_EQ_U64(pleat__sched_borrowed(w->s, t), beyond(held, w->tenants[t].quota));
        CHECK_EQ_U64(pleat__sched_service(w->s, t), w->tenants[t].service);
        borrowed += beyond(held, w->tenants[t].quota);
    }
    CHECK(borrowed <= w->shared);
    CHECK_EQ_U64(pleat__sched_n_running(w->s), count_at(w, RUNS));
    CHECK_EQ_U64(pleat__sched_n_waiting(w->s), count_at(w, WAITS) + count_at(w, DEFERRED));
    if (seen.steps % 7 == 0) CHECK(pleat__sched_is_valid(w->s));
}

/* All who generate are in the step, and somebody is if anybody can. */
static void check_progress(const world *w) {
    uint32_t n_generate = 0, n_in_step = 0;
    for (uint32_t i = 0; i < MOST; i++) n_generate += w->requests[i].at == RUNS && w->requests[i].told.generates;
    for (uint32_t i = 0; i < w->n_run; i++) n_in_step += w->run[i]->told.generates;
    CHECK_EQ_U64(n_in_step, n_generate);
    CHECK(w->n_run > 0 || count_at(w, WAITS) + count_at(w, RUNS) == 0);
}

/* Requests come, are cancelled, and are preempted because the caller says so. */
static void disturb(world *w) {
    for (uint64_t n = check_below(4); n > 0; n--) come(w);
    request *r = &w->requests[check_below(MOST)];
    if (r->at != NOWHERE && check_below(8) == 0) {
        finish(w, r);
        seen.cancelled++;
    } else if (r->at == RUNS && check_below(8) == 0) {
        preempt(w, r);
    }
}

static void step(world *w, bool busy) {
    pleat__sched_plan p;
    seen.steps++;
    if (busy) disturb(w);
    plan_and_relieve(w, &p);
    admit_some(w, &p, busy);
    if (check_failures()) return;
    check_progress(w);
    run_step(w);
    check_world(w);
}

/* ---- worlds ---------------------------------------------------------------------------------------- */

static void new_world(world *w) {
    pleat__sched_tenant given[MAX_TENANTS];
    memset(w, 0, sizeof *w);
    w->last_tenant = -1;
    w->opt.max_requests = (uint32_t)check_between(check_below(4) ? MOST / 2 : 1, MOST);
    w->opt.max_running = (uint32_t)check_between(check_below(4) ? 8 : 1, 24);
    w->opt.step_tokens = (uint32_t)check_between(24, 120);
    w->opt.n_pages = check_between(4, 200);
    w->opt.low_pages = check_between(check_below(8) ? w->opt.n_pages * 3 / 4 : 1, w->opt.n_pages);
    w->opt.high_pages = check_between(w->opt.low_pages, w->opt.n_pages);
    w->opt.n_tenants = (uint32_t)check_between(1, MAX_TENANTS);
    w->opt.tenants = given;
    w->shared = w->opt.n_pages;
    const bool quotas = check_below(2);
    for (uint32_t t = 0; t < w->opt.n_tenants; t++) {
        given[t].weight = (uint32_t)check_between(1, 5);
        given[t].quota_pages = quotas && check_below(3) ? check_below(w->shared / 2 + 1) : 0;
        w->shared -= given[t].quota_pages;
        w->tenants[t] = (tenant){.quota = given[t].quota_pages, .weight = given[t].weight};
    }
    CHECK_STATUS(pleat__sched_create(&w->opt, NULL, &w->s), PLEAT_OK);
}

static void run_world(void) {
    static world w;
    enum { MAX_STEPS = 100000 };
    new_world(&w);
    check_context("world of %llu pages, marks %llu and %llu, %u tenants, %llu to lend",
                  (unsigned long long)w.opt.n_pages, (unsigned long long)w.opt.low_pages,
                  (unsigned long long)w.opt.high_pages, w.opt.n_tenants, (unsigned long long)w.shared);
    const uint64_t n_calls = seen.calls + check_between(100, 10000);
    while (seen.calls < n_calls && check_failures() == 0) step(&w, true);
    for (int i = 0; i < MAX_STEPS && check_failures() == 0 && count_at(&w, NOWHERE) < MOST; i++) step(&w, false);
    CHECK_EQ_U64(count_at(&w, NOWHERE), MOST); /* nobody starves */
    CHECK_EQ_U64(used_pages(&w), w.cached);
    CHECK(pleat__sched_is_valid(w.s));
    pleat__sched_destroy(&w.s);
}

static void test_millions_of_calls(void) {
    const uint64_t n = check_rounds(3000000, 1000000);
    memset(&seen, 0, sizeof seen);
    while (seen.calls < n && check_failures() == 0) run_world();
    CHECK(seen.evicted > n / 1000 && seen.compressed > n / 2000 && seen.preempted > n / 3000);
    CHECK(seen.borrowers_first > n / 100000 && seen.alone_above_high > n / 10000);
    CHECK_EQ_U64(seen.cut_short, 0); /* whoever was admitted has room in every step */
    CHECK(seen.admitted > n / 300 && seen.refused_pool > n / 100 && seen.refused_tenant > n / 50);
    CHECK(seen.refused_step > n / 20000 && seen.closed > n / 20000 && seen.deferred > n / 500);
    CHECK(seen.cancelled > n / 700 && seen.finished > n / 500);
}

static const check_test tests[] = {{"millions_of_calls", test_millions_of_calls}};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
