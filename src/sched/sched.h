/* SPDX-License-Identifier: MIT
 *
 * sched.h: which requests run in the next step, which are admitted, which are preempted.  Integers only: requests are
 * numbers of tokens and pages that the caller keeps true; tokens, pages and time are somebody else's.
 *
 *     pleat__sched_add            waiting ──admit──> running ──finish──> gone
 *                                    <──────preempt────┘
 *     each step:
 *         pleat__sched_demand_set                 what each running request takes next, where it changed
 *         pleat__sched_plan_step(pages)           may they all?
 *             PLEAT__ROOM_*                       no: evict prefixes, compress, or preempt `victim`; then plan again
 *             PLEAT__ROOM_ENOUGH                  yes: run[0..n_run)
 *         while (pleat__sched_candidate)          who is next to be admitted, if there is room?
 *             pleat__sched_admit | _defer         it joins run[], or somebody else may have a turn
 *         ... the caller evicts what those admitted need, and runs them all ...
 *         pleat__sched_ran                        how many tokens each took: tenants' shares of the service
 *
 * Rank.  Requests are ordered by priority, the higher first, then by arrival.  One that was preempted keeps its
 * arrival, so it comes back before whoever arrived later.  Victims are taken from the other end: borrowers first
 * (below), then the lowest priority, then the newest.  Nobody is preempted for somebody of lower rank of the same
 * tenant; a request for which no page can be found is its own victim.
 *
 * The step.  Requests in generation take one token each, all of them; what is left of step_tokens goes to prompts in
 * order of rank.  A chunk is taken whole or not at all: where a prompt's chunks end is decided by the request alone, so
 * that neighbours do not change its bits.  The first chunk that does not fit ends the step: nobody overtakes it, and
 * nobody is admitted.  Chunks of at most step_tokens - max_running tokens never wait for those who generate.
 *
 * A request is admitted only where the steps that follow have room for a chunk of everybody who runs: sum of
 * later_tokens <= step_tokens.  So whoever runs takes tokens in every step, as long as there are pages.
 *
 * Pages.  used + free = n_pages; of the used ones `evictable` are held by kept prefixes alone.  These count as free where
 * it is asked what fits, but have to be evicted first.  coming(r) = n_pages + coming_pages of its demand: what a
 * running request will still take until its prompt is read, the planned step's pages included.  admit(r) is the same
 * sum of a candidate's demand.
 *
 *     (1) a step is planned only if its pages fit in what is free
 *     (2) admit:    used - evictable + sum of coming + admit(r) <= low           (methods: admit below the low mark)
 *         or nothing is running and used - evictable + admit(r) <= n_pages: whoever is alone may have the whole pool
 *     (3) preempt:  used - evictable + the step's pages > high  =>  make room; if one request is alone, only > n_pages
 *     (4) hysteresis: after a preemption nobody is admitted until used - evictable <= low, or until nothing is running;
 *         0 < low <= high <= n_pages <= 2^40
 *
 * Tenants.  quota[t] pages are tenant t's own, always; shared = n_pages - sum of quotas can be borrowed by all.
 * held(t) is the sum over its running requests; borrowed(t) = max(0, held(t) - quota[t]).
 *
 *     (5) sum of borrowed <= shared.  For a step that would break it, room is made.  An admission that would, with all
 *         that is coming, is refused to this tenant.  Nor does anybody else borrow in this step, so that it is not
 *         overtaken; those who stay within their quotas are admitted
 *     (6) when a page has to be found, those who borrow come first, whoever they are: victims, to compress as to
 *         preempt, are requests of tenants that would have borrowed after the step, as long as there are any
 *
 * A request that is alone and is the victim has outgrown the pool or (5).  It would come back to the same end, so the
 * caller finishes it.  Who compares its size with pleat__sched_max_pages() when it comes does not get there.
 *
 * Fairness among tenants of one priority: each time it is the turn of the one whose weighted service is least.  That is
 * service[t] / weight[t], tokens computed so far and those of the planned step.  Who was idle starts again from the least
 * of those who were not, or, when all were, from the last who was not: no credit is saved up.  Virtual token counters:
 * Sheng et al. 2024, "Fairness in Serving Large Language Models", section 4.
 *
 * Candidates cost O(tenants + log waiting), a plan O(running + tenants) and O(log waiting) for each that was deferred.
 * Only create allocates.
 */
#ifndef PLEAT_SCHED_SCHED_H
#define PLEAT_SCHED_SCHED_H

#include "core/memory.h"
#include "core/types.h"

typedef struct pleat__sched pleat__sched;

/* A request that was added; 0 is none.  Means nothing once it has finished. */
typedef struct pleat__sched_id {
    uint32_t v;
} pleat__sched_id;

typedef struct pleat__sched_tenant {
    uint64_t quota_pages;
    uint32_t weight; /* >= 1 */
} pleat__sched_tenant;

typedef struct pleat__sched_options {
    uint32_t max_requests;              /* waiting and running at once, >= 1 */
    uint32_t max_running;               /* >= 1 */
    uint32_t step_tokens;               /* >= max_running */
    uint64_t n_pages;                   /* of the pool */
    uint64_t low_pages;                 /* low watermark: (2), (4) */
    uint64_t high_pages;                /* high watermark: (3), (4) */
    uint32_t n_tenants;                 /* >= 1 */
    const pleat__sched_tenant *tenants; /* copied; quotas add up to n_pages at most */
} pleat__sched_options;

/* PLEAT_E_ARG for options that break what is said above; PLEAT_E_MEMORY. */
pleat_status pleat__sched_create(const pleat__sched_options *opt, const pleat_allocator *allocator, pleat__sched **out);

/* What a request takes next, and what it has. */
typedef struct pleat__sched_demand {
    uint32_t n_tokens;     /* tokens of its next chunk, 1..step_tokens; 1 if it generates */
    uint32_t later_tokens; /* tokens of the largest chunk after the next one; 1 when only generation is left */
    bool generates;        /* the chunk is the next token of a generation (or of its replay) */
    uint64_t n_pages;      /* pages that the chunk takes; all page counts are 2^40 at most */
    uint64_t held_pages;   /* pages of its own, which preempting it frees */
    uint64_t coming_pages; /* pages beyond n_pages until its prompt is read, and all is back that it had before a
                            * preemption */
    bool can_compress;     /* it allows harder compression, and has not been asked since it grew */
} pleat__sched_demand;

/* A new request, waiting; `arrival` is the order among equals (the caller's counter).  tenant < n_tenants.
 * PLEAT_E_LIMIT when there are max_requests. */
pleat_status pleat__sched_add(pleat__sched *sched, uint32_t tenant, int32_t priority, uint64_t arrival,
                              pleat__sched_id *out);

/* What a running request takes next.  Those that have not changed need not be told again. */
void pleat__sched_demand_set(pleat__sched *sched, pleat__sched_id id, const pleat__sched_demand *demand);

/* Pages of the pool now. */
typedef struct pleat__sched_pages {
    uint64_t n_free;
    uint64_t n_evictable;
} pleat__sched_pages;

typedef enum pleat__sched_room {
    PLEAT__ROOM_ENOUGH,   /* the plan stands */
    PLEAT__ROOM_EVICT,    /* free shortfall_pages by evicting prefixes */
    PLEAT__ROOM_COMPRESS, /* compress victim harder, and say so in its demand */
    PLEAT__ROOM_PREEMPT,  /* preempt victim */
} pleat__sched_room;

typedef struct pleat__sched_plan {
    pleat__sched_room room;
    uint64_t shortfall_pages;   /* pages to evict, or that victims have to return; 0 where none are missing */
    pleat__sched_id victim;     /* of COMPRESS and PREEMPT */
    const pleat__sched_id *run; /* [n_run] in order of rank, generations first; behind them those admitted, in the
                                 * order of admission; the scheduler's, until the next plan */
    uint32_t n_run;
    uint32_t n_tokens; /* tokens of all in run */
} pleat__sched_plan;

/* Plan the next step of the running requests.  Changes nothing but the plan: after room was made it is asked again. */
void pleat__sched_plan_step(pleat__sched *sched, pleat__sched_pages pages, pleat__sched_plan *out);

/* The waiting request to be admitted next, or none.  None: nobody waits, max_running run, the step's tokens are spent,
 * admission is closed (4), or one was refused for the pool or the step.  After a plan with PLEAT__ROOM_ENOUGH, and until a
 * running request is preempted or finished; repeats itself until the candidate is admitted, refused, deferred or
 * finished. */
pleat__sched_id pleat__sched_candidate(pleat__sched *sched);

typedef enum pleat__admission {
    PLEAT__ADMITTED,       /* it runs and is in the plan: `plan` has grown */
    PLEAT__REFUSED_POOL,   /* no room now; nobody else is admitted in this step, so that it is not overtaken */
    PLEAT__REFUSED_TENANT, /* its tenant has no room (5); others may have, within their quotas */
    PLEAT__REFUSED_STEP,   /* its chunk does not fit in what is left of the step's tokens: as REFUSED_POOL */
} pleat__admission;

/* Admit the candidate, if it fits: demand->n_pages + coming_pages is what it is going to take (admit(r)), held_pages
 * what it already holds.  Pages of a kept prefix that it uses are evictable no longer once it runs, so they are taken
 * too: the caller adds them to coming_pages here, and leaves them out of its next demand.  Prefixes that must be evicted
 * for it are the caller's to evict before it runs. */
pleat__admission pleat__sched_admit(pleat__sched *sched, pleat__sched_id candidate, const pleat__sched_demand *demand,
                                    pleat__sched_plan *plan);

/* The candidate cannot start yet (it waits for a prefix that another computes): not again in this step. */
void pleat__sched_defer(pleat__sched *sched, pleat__sched_id candidate);

/* A running request waits again, and admission is closed (4).  Its pages are gone. */
void pleat__sched_preempt(pleat__sched *sched, pleat__sched_id id);

/* A running request computed n_tokens. */
void pleat__sched_ran(pleat__sched *sched, pleat__sched_id id, uint32_t n_tokens);

/* Forget a request, wherever it stands. */
void pleat__sched_finish(pleat__sched *sched, pleat__sched_id id);

uint32_t pleat__sched_n_waiting(const pleat__sched *sched);
uint32_t pleat__sched_n_running(const pleat__sched *sched);
uint64_t pleat__sched_held(const pleat__sched *sched, uint32_t tenant);     /* pages */
uint64_t pleat__sched_borrowed(const pleat__sched *sched, uint32_t tenant); /* pages */
uint64_t pleat__sched_service(const pleat__sched *sched, uint32_t tenant);  /* tokens */
/* The most pages that one request of the tenant can ever hold: its quota and all that can be borrowed. */
uint64_t pleat__sched_max_pages(const pleat__sched *sched, uint32_t tenant);

/* Recompute sums, heaps and (5), which holds while requests take what they demanded.  Slow, for tests. */
bool pleat__sched_is_valid(const pleat__sched *sched);

/* Split n_pages by shares (any non-negative numbers, not all 0) so that no page is lost: rounded down, and what is left
 * goes to the largest remainders, the first among equals.  PLEAT_E_ARG for shares that are NaN, infinite, negative or
 * all 0. */
pleat_status pleat__sched_split(uint64_t n_pages, const double *shares, uint32_t n, uint64_t *pages);

void pleat__sched_destroy(pleat__sched **sched);

#endif
