/* SPDX-License-Identifier: MIT
 *
 * serving_inspect.c: what can be asked of a serving between steps, and whether all of it holds.
 */
#include <string.h>

#include "engine/serving_internal.h"

/* ---- questions ------------------------------------------------------------------------------------------------------- */

const pleat_serving_event *pleat_serving_events(const pleat_serving *s, uint32_t *n_events) {
    if (n_events) *n_events = s ? s->n_events : 0;
    return s ? s->events : NULL;
}

static void add_sides(const pleat_serving *s, pleat_seq seq, pleat_serving_stats *out) {
    uint64_t high, low;
    s->backend.pages_by_side(s->backend.ctx, seq, &high, &low);
    out->pages_high += high;
    out->pages_low += low;
}

void pleat_serving_get_stats(const pleat_serving *s, pleat_serving_stats *out) {
    if (!s || !out) return;
    *out = s->stats;
    out->n_waiting = pleat__sched_n_waiting(s->sched);
    out->n_running = s->n_running;
    out->n_prefixes = s->n_kept;
    out->pages_total = s->backend.shape.n_pages;
    out->pages_used = s->own_pages + s->added_pages;
    out->pages_evictable = s->evictable_pages;
    for (uint32_t i = 0; i < s->n_running; i++) add_sides(s, s->running[i]->seq, out);
    for (uint32_t i = 1; i <= s->opt.max_prefixes; i++)
        if (s->kept[i].seq.v) add_sides(s, s->kept[i].seq, out);
    pleat__backend_work work;
    s->backend.work(s->backend.ctx, &work);
    out->manage_ns += work.pages_ns + work.compact_ns;
    out->compact_ns = work.compact_ns;
    out->tokens_moved = work.tokens_moved;
    out->pages_returned = work.pages_returned;
    out->fixed_ns = s->cost.fixed_ns;
    out->prompt_ns = s->cost.prompt_ns;
    out->token_ns = s->cost.token_ns;
    out->byte_ns = s->cost.byte_ns;
    out->swap_ns = s->cost.swap_ns;
}

pleat_status pleat_serving_tenant_pages(const pleat_serving *s, const char *tenant, uint64_t *held,
                                        uint64_t *borrowed) {
    const uint32_t i = s ? pleat__serving_tenant(s, tenant) : 0;
    if (!s || i >= s->opt.n_tenants) return PLEAT_E_ARG;
    if (held) *held = pleat__sched_held(s->sched, i);
    if (borrowed) *borrowed = pleat__sched_borrowed(s->sched, i);
    return PLEAT_OK;
}

uint64_t pleat_serving_clock_ns(const pleat_serving *s) { return s ? s->backend.clock_ns(s->backend.ctx) : 0; }

void pleat_serving_clock_advance(pleat_serving *s, uint64_t ns) {
    if (s) s->backend.advance(s->backend.ctx, ns);
}

void pleat_serving_forget_prefixes(pleat_serving *s) {
    if (!s) return;
    const uint64_t evicted = s->stats.evicted; /* counts those that had to go */
    while (pleat__serving_evict(s)) {}
    s->stats.evicted = evicted;
}

/* ---- is_valid -------------------------------------------------------------------------------------------------------- */

/* (1), (3), (5) and the lists of running and swapped requests. */
static bool request_is_valid(const pleat_serving *s, const pleat__served *r) {
    if (r->runs && (r->running_idx >= s->n_running || s->running[r->running_idx] != r)) return false;
    if (r->runs == (r->image.data != NULL) && r->runs) return false;
    if (r->promise.v && (!r->runs || r->promised_stop <= r->n_stored)) return false;
    if (!r->runs) return r->own_pages == 0 && r->seq.v == 0 && r->base.v == 0;
    void *ctx = s->backend.ctx;
    const uint64_t n_pages = s->backend.pages_of(ctx, r->seq);
    const uint64_t shared = r->base.v ? s->backend.pages_shared(ctx, r->seq, s->kept[r->base.v].seq) : 0;
    return n_pages == r->n_pages && r->own_pages == n_pages - shared && r->n_stored < pleat__served_known(r) &&
           r->n_seen >= r->n_stored;
}

/* Does a user stand on the prefix, or on one below it? */
static bool stands_on(const pleat_serving *s, pleat__kept_id base, uint32_t kept) {
    while (base.v && base.v != kept) base = s->kept[base.v].parent;
    return base.v == kept;
}

/* (4) and (7) of one prefix. */
static bool kept_is_valid(const pleat_serving *s, uint32_t i) {
    const pleat__kept *k = &s->kept[i];
    void *ctx = s->backend.ctx;
    const pleat__prefix_info info = pleat__radix_info(s->tree, k->entry);
    if (!info.is_kept || info.value != i) return false;
    const uint64_t shared = k->parent.v ? s->backend.pages_shared(ctx, k->seq, s->kept[k->parent.v].seq) : 0;
    if (k->added_pages != s->backend.pages_of(ctx, k->seq) - shared) return false;
    if (k->parent.v && !s->kept[k->parent.v].seq.v) return false;
    uint32_t n_users = 0, n_children = 0;
    for (uint32_t j = 0; j < s->n_running; j++) n_users += stands_on(s, s->running[j]->base, i);
    for (uint32_t j = 1; j <= s->opt.max_prefixes; j++) n_children += s->kept[j].seq.v && s->kept[j].parent.v == i;
    return n_users == k->n_users && n_children == k->n_children;
}

/* Does the scheduler know how many pages each tenant's requests hold? */
static bool tenants_are_valid(const pleat_serving *s) {
    for (uint32_t t = 0; t < s->opt.n_tenants; t++) {
        uint64_t held = 0;
        for (uint32_t i = 0; i < s->n_running; i++) held += s->running[i]->tenant == t ? s->running[i]->own_pages : 0;
        if (held != pleat__sched_held(s->sched, t)) return false;
    }
    return true;
}

int pleat_serving_is_valid(const pleat_serving *s) {
    if (!s || !pleat__sched_is_valid(s->sched) || (s->tree && !pleat__radix_is_valid(s->tree))) return 0;
    if (!tenants_are_valid(s)) return 0;
    uint64_t own = 0, added = 0, evictable = 0, swapped_bytes = 0;
    uint32_t n_running = 0, n_requests = 0, n_swapped = 0, n_kept = 0;
    for (uint32_t i = 1; i <= s->opt.max_requests; i++) {
        const pleat__served *r = s->requests[i];
        if (!r) continue;
        if (r->sched.v != i || !request_is_valid(s, r)) return 0;
        n_requests++;
        n_running += r->runs;
        own += r->own_pages;
        n_swapped += r->image.data != NULL;
        swapped_bytes += r->image.n_bytes;
    }
    for (uint32_t i = 1; i <= s->opt.max_prefixes; i++) {
        const pleat__kept *k = &s->kept[i];
        if (!k->seq.v) continue;
        if (!kept_is_valid(s, i)) return 0;
        n_kept++;
        added += k->added_pages;
        evictable += k->n_users == 0 ? k->added_pages : 0;
    }
    for (const pleat__served *r = s->swapped; r; r = r->next_swapped) n_swapped--;
    return n_running == s->n_running && n_running == pleat__sched_n_running(s->sched) &&
           n_requests == n_running + pleat__sched_n_waiting(s->sched) && n_kept == s->n_kept && n_swapped == 0 &&
           swapped_bytes == s->stats.swapped_bytes && own == s->own_pages && added == s->added_pages &&
           evictable == s->evictable_pages && own + added == s->backend.pages_used(s->backend.ctx) &&
           s->backend.is_valid(s->backend.ctx);
}
