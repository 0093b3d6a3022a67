/* SPDX-License-Identifier: MIT
 *
 * waiting.c: waiting requests: a leftist heap for each tenant, linked by the requests' own indices, and the list of
 * those that were deferred.
 *
 * Leftist heaps (Crane 1972; Knuth, The Art of Computer Programming 3, 5.2.3): tenants then share one array, and a
 * request that is cancelled leaves from the middle.  Everything costs O(log waiting), in the worst case too.
 *
 *     (1) nobody stands above somebody of higher rank
 *     (2) dist(none) = 0, dist(v) = 1 + dist(right(v)), dist(left(v)) >= dist(right(v)): the way to the right is short
 */
#include <assert.h>

#include "sched/internal.h"

static uint32_t dist_of(const pleat__sched *s, uint32_t v) { return v ? s->requests[v].dist : 0; }

static void set_parent(pleat__sched *s, uint32_t v, uint32_t parent) {
    if (v) s->requests[v].parent = parent;
}

/* Restore (2) at v, whose children hold it.  Did its dist change? */
static bool settle(pleat__sched *s, uint32_t v) {
    pleat__sched_request *r = &s->requests[v];
    if (dist_of(s, r->left) < dist_of(s, r->right)) {
        const uint32_t left = r->left;
        r->left = r->right;
        r->right = left;
    }
    const uint32_t before = r->dist;
    r->dist = 1 + dist_of(s, r->right);
    return r->dist != before;
}

/* Both heaps in one; its top has no parent yet.  Goes down both ways to the right: at most 2 log2(n) calls deep. */
static uint32_t merge(pleat__sched *s, uint32_t a, uint32_t b) {
    if (!a || !b) return a | b;
    if (pleat__sched_before(s, b, a)) {
        const uint32_t above = b;
        b = a;
        a = above;
    }
    const uint32_t right = merge(s, s->requests[a].right, b);
    s->requests[a].right = right;
    set_parent(s, right, a);
    settle(s, a);
    return a;
}

void pleat__waiting_push(pleat__sched *s, uint32_t v) {
    pleat__sched_request *r = &s->requests[v];
    r->state = PLEAT__SCHED_WAITING;
    r->left = r->right = 0;
    r->dist = 1;
    uint32_t *heap = &s->tenants[r->tenant].heap;
    *heap = merge(s, *heap, v);
    set_parent(s, *heap, 0);
    s->n_waiting++;
}

void pleat__waiting_remove(pleat__sched *s, uint32_t v) {
    const pleat__sched_request *r = &s->requests[v];
    assert(r->state == PLEAT__SCHED_WAITING);
    const uint32_t rest = merge(s, r->left, r->right);
    uint32_t above = r->parent;
    set_parent(s, rest, above);
    if (!above)
        s->tenants[r->tenant].heap = rest;
    else if (s->requests[above].left == v)
        s->requests[above].left = rest;
    else
        s->requests[above].right = rest;
    /* dist of those whose dist changes grows on the way up, so there are O(log n) of them. */
    while (above && settle(s, above)) above = s->requests[above].parent;
    s->n_waiting--;
}

static bool is_linked(const pleat__sched *s, uint32_t v) {
    const pleat__sched_request *r = &s->requests[v];
    if (r->dist != 1 + dist_of(s, r->right) || dist_of(s, r->left) < dist_of(s, r->right)) return false;
    if (r->left && s->requests[r->left].parent != v) return false;
    if (r->right && s->requests[r->right].parent != v) return false;
    if (!r->parent) return s->tenants[r->tenant].heap == v;
    const pleat__sched_request *above = &s->requests[r->parent];
    return above->state == PLEAT__SCHED_WAITING && above->tenant == r->tenant &&
           (above->left == v || above->right == v) && pleat__sched_before(s, r->parent, v);
}

/* Whoever waits has a parent that waits and is of higher rank, or is a heap's top: so all hang together, and without
 * circles. */
bool pleat__waiting_is_valid(const pleat__sched *s) {
    for (uint32_t v = 1; v <= s->n_touched; v++)
        if (s->requests[v].state == PLEAT__SCHED_WAITING && !is_linked(s, v)) return false;
    for (uint32_t t = 0; t < s->opt.n_tenants; t++) {
        const uint32_t top = s->tenants[t].heap;
        if (!top) continue;
        const pleat__sched_request *r = &s->requests[top];
        if (r->state != PLEAT__SCHED_WAITING || r->tenant != t || r->parent) return false;
    }
    return true;
}

/* ---- deferred ------------------------------------------------------------------------------------ */

void pleat__deferred_push(pleat__sched *s, uint32_t v) {
    pleat__sched_request *r = &s->requests[v];
    r->state = PLEAT__SCHED_DEFERRED;
    r->left = 0;
    r->right = s->deferred;
    if (r->right) s->requests[r->right].left = v;
    s->deferred = v;
    s->n_waiting++;
}

void pleat__deferred_remove(pleat__sched *s, uint32_t v) {
    const pleat__sched_request *r = &s->requests[v];
    assert(r->state == PLEAT__SCHED_DEFERRED);
    if (r->right) s->requests[r->right].left = r->left;
    if (r->left)
        s->requests[r->left].right = r->right;
    else
        s->deferred = r->right;
    s->n_waiting--;
}

void pleat__deferred_requeue(pleat__sched *s) {
    while (s->deferred) {
        const uint32_t v = s->deferred;
        pleat__deferred_remove(s, v);
        pleat__waiting_push(s, v);
    }
}
