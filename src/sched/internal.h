/* SPDX-License-Identifier: MIT
 *
 * internal.h: what the files of src/sched share.
 *
 *     sched.c      create, requests: added, running, preempted, gone; is_valid
 *     waiting.c    each tenant's waiting requests, a heap
 *     tenant.c     pages that tenants hold and borrow, their shares of the service; the split of a pool
 *     plan.c       the step: plan, making room, candidates, admission
 *     cost.c       by itself: cost.h
 *
 * A request is a cell of one array, and its id is the cell's index; cell 0 is nobody.  A waiting request stands in its
 * tenant's heap or, deferred, in one list of all tenants until the next plan; a running one in `running`, which is kept
 * in order of rank.
 */
#ifndef PLEAT_SCHED_INTERNAL_H
#define PLEAT_SCHED_INTERNAL_H

#include "sched/sched.h"

typedef enum pleat__sched_state {
    PLEAT__SCHED_FREE, /* in the list of free cells, by `right` */
    PLEAT__SCHED_WAITING,
    PLEAT__SCHED_DEFERRED,
    PLEAT__SCHED_RUNNING,
} pleat__sched_state;

typedef struct pleat__sched_request {
    uint64_t arrival;
    pleat__sched_demand demand; /* while it runs */
    int32_t priority;
    uint32_t tenant;
    /* WAITING: the heap of waiting.c.  DEFERRED: left and right are the neighbours in the list. */
    uint32_t left, right, parent, dist;
    pleat__sched_state state;
} pleat__sched_request;

typedef struct pleat__tenant {
    uint64_t quota_pages;
    uint64_t held_pages;   /* pages of its running requests */
    uint64_t coming_pages; /* n_pages + coming_pages of its running requests' demands */
    uint64_t service;      /* tokens computed */
    uint64_t counter;      /* service, lifted after idleness: what fairness compares */
    uint32_t weight;
    uint32_t heap;       /* the first waiting request, or 0 */
    uint32_t n_requests; /* waiting and running; idle if 0 */
    /* Of the step that is planned. */
    uint64_t step_pages;
    uint64_t step_tokens;
    bool is_refused; /* none of its requests is admitted in this step */
} pleat__tenant;

#define PLEAT__NO_TENANT UINT32_MAX

struct pleat__sched {
    pleat__sched_options opt; /* tenants is NULL */
    pleat_allocator al;
    uint64_t block_bytes; /* this struct and all arrays */
    uint64_t shared_pages;
    pleat__sched_request *requests; /* [max_requests + 1] */
    pleat__tenant *tenants;         /* [n_tenants] */
    uint32_t *running;              /* [running_cap] in order of rank */
    pleat__sched_id *run;           /* [running_cap] the plan's */
    uint32_t running_cap;           /* max_running, but no more than max_requests */
    uint32_t n_running;
    uint32_t n_waiting;   /* deferred ones too */
    uint32_t n_touched;   /* cells 1..n_touched have ever been used */
    uint32_t free_head;   /* head of the list of free cells among 1..n_touched */
    uint32_t deferred;    /* head of the list of deferred requests */
    uint32_t last_tenant; /* tenant that became idle last */
    uint64_t coming_pages;
    uint64_t later_tokens; /* sum over running requests */
    bool is_closed;        /* rule (4) */
    /* The step that is planned. */
    uint64_t occupied_pages; /* used - evictable */
    uint64_t step_pages;
    uint32_t step_tokens;
    uint32_t n_run;
    bool lends;  /* nobody has been refused for rule (5) */
    bool admits; /* the plan stands, and nobody has been refused for the pool or the step */
};

static inline pleat__sched_request *pleat__sched_at(const pleat__sched *s, uint32_t v) { return &s->requests[v]; }

/* Is a of higher rank than b?  A total order: ids decide between equals. */
static inline bool pleat__sched_before(const pleat__sched *s, uint32_t a, uint32_t b) {
    const pleat__sched_request *x = &s->requests[a], *y = &s->requests[b];
    if (x->priority != y->priority) return x->priority > y->priority;
    return x->arrival != y->arrival ? x->arrival < y->arrival : a < b;
}

/* waiting.c: into its tenant's heap, out of it wherever it stands, and are all heaps well formed? */
void pleat__waiting_push(pleat__sched *s, uint32_t v);
void pleat__waiting_remove(pleat__sched *s, uint32_t v);
bool pleat__waiting_is_valid(const pleat__sched *s);

/* The list of deferred requests: one goes out; all go back to their heaps. */
void pleat__deferred_push(pleat__sched *s, uint32_t v);
void pleat__deferred_remove(pleat__sched *s, uint32_t v);
void pleat__deferred_requeue(pleat__sched *s);

/* sched.c: a request of no place becomes a running one. */
void pleat__running_insert(pleat__sched *s, uint32_t v, const pleat__sched_demand *demand);

/* tenant.c */
/* A tenant's first request is there, or its last one has gone. */
void pleat__tenant_wakes(pleat__sched *s, uint32_t tenant);
void pleat__tenant_sleeps(pleat__sched *s, uint32_t tenant);
void pleat__tenant_served(pleat__tenant *t, uint32_t n_tokens);
/* Has a had less of the service than b, by weight, with what the planned step gives them?  -1, 0 or 1. */
int pleat__tenant_compare(const pleat__tenant *a, const pleat__tenant *b);
/* Would it borrow after the planned step? */
bool pleat__tenant_borrows(const pleat__tenant *t);
/* Sum of what all would have borrowed after the planned step. */
uint64_t pleat__tenants_borrow_step(const pleat__sched *s);
/* Would rule (5) hold if a request of this tenant took n_pages, and all that run read their prompts? */
bool pleat__tenant_has_room(const pleat__sched *s, uint32_t tenant, uint64_t n_pages);

#endif
