/* SPDX-License-Identifier: MIT
 *
 * inspect.c: what can be asked of a serving between steps, and whether all of it holds.
 */
#include "serving/internal.h"

/* ---- questions ------------------------------------------------------------------------------------------------------- */

const pleat_serving_event *pleat_serving_events(const pleat_serving *s, uint32_t *n_events) {
    if (n_events) *n_events = s ? s->step.n_events : 0;
    return s ? s->step.events : NULL;
}

pleat_seq pleat_serving_sequence(const pleat_serving *s, pleat_request_id id) {
    const pleat__request *r = s ? pleat__serving_request(s, id) : NULL;
    if (!r || !pleat__request_runs(r) || !s->backend.shape.model) return (pleat_seq){0};
    return PLEAT__RUNNING(r)->seq;
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
    out->n_prefixes = s->prefixes.n_kept;
    out->pages_total = s->backend.shape.n_pages;
    out->pages_used = s->own_pages + s->prefixes.added_pages;
    out->pages_evictable = s->prefixes.evictable_pages;
    for (uint32_t i = 0; i < s->n_running; i++) {
        const pleat__running_part *run = PLEAT__RUNNING(s->running[i]);
        add_sides(s, run->seq, out);
        out->pages_shared += run->n_pages - run->own_pages;
    }
    for (uint32_t i = 1; i <= s->opt.max_prefixes; i++)
        if (s->prefixes.kept[i].seq.v) add_sides(s, s->prefixes.kept[i].seq, out);
    pleat__backend_work work;
    s->backend.work(s->backend.ctx, &work);
    out->manage_ns += work.pages_ns + work.compact_ns;
    out->compact_ns = work.compact_ns;
    out->tokens_moved = work.tokens_moved;
    out->pages_returned = work.pages_returned;
    out->fixed_ns = s->cost.fixed_ns;
    out->chunk_ns = s->cost.chunk_ns;
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

/* (1), (3), (5) of a running request, and its place among those. */
static bool running_is_valid(const pleat_serving *s, const pleat__request *r) {
    const pleat__running_part *run = PLEAT__RUNNING(r);
    const pleat__kept *kept = s->prefixes.kept;
    void *ctx = s->backend.ctx;
    if (run->running_idx >= s->n_running || s->running[run->running_idx] != r) return false;
    if (run->promise.v && run->promised_breakpoint <= run->n_stored) return false;
    const uint64_t n_pages = s->backend.pages_of(ctx, run->seq);
    const uint64_t shared = run->base.v ? s->backend.pages_shared(ctx, run->seq, kept[run->base.v].seq) : 0;
    return n_pages == run->n_pages && run->own_pages == n_pages - shared && run->n_stored < pleat__request_known(r) &&
           r->n_seen >= run->n_stored;
}

/* What the state says it has. */
static bool request_is_valid(const pleat_serving *s, const pleat__request *r) {
    if (pleat__request_runs(r)) return running_is_valid(s, r);
    return !pleat__request_is_swapped(r) || PLEAT__SWAPPED(r)->image.data != NULL;
}

/* Does a user stand on the prefix, or on one below it? */
static bool stands_on(const pleat_serving *s, pleat__kept_id base, uint32_t kept) {
    while (base.v && base.v != kept) base = s->prefixes.kept[base.v].parent;
    return base.v == kept;
}

/* (4), (7) and (8) of one prefix. */
static bool kept_is_valid(const pleat_serving *s, uint32_t i) {
    const pleat__kept *k = &s->prefixes.kept[i];
    void *ctx = s->backend.ctx;
    const pleat__prefix_info info = pleat__radix_info(s->prefixes.tree, k->entry);
    if (!info.is_kept || info.value != i) return false;
    const uint64_t shared = k->parent.v ? s->backend.pages_shared(ctx, k->seq, s->prefixes.kept[k->parent.v].seq) : 0;
    if (k->added_pages != s->backend.pages_of(ctx, k->seq) - shared) return false;
    if (k->parent.v && !s->prefixes.kept[k->parent.v].seq.v) return false;
    uint32_t n_users = 0, n_children = 0, n_pins = 0;
    for (uint32_t j = 0; j < s->n_running; j++) n_users += stands_on(s, PLEAT__RUNNING(s->running[j])->base, i);
    for (uint32_t j = 1; j <= s->opt.max_prefixes; j++) {
        const pleat__kept *other = &s->prefixes.kept[j];
        n_children += other->seq.v && other->parent.v == i;
        n_pins += other->seq.v && other->is_pinned && stands_on(s, (pleat__kept_id){j}, i);
    }
    return n_users + n_pins == k->n_users && n_children == k->n_children && n_pins == k->n_pins;
}

/* Does the scheduler know how many pages each tenant's requests hold? */
static bool tenants_are_valid(const pleat_serving *s) {
    for (uint32_t t = 0; t < s->opt.n_tenants; t++) {
        uint64_t held = 0;
        for (uint32_t i = 0; i < s->n_running; i++)
            held += s->running[i]->tenant == t ? PLEAT__RUNNING(s->running[i])->own_pages : 0;
        if (held != pleat__sched_held(s->sched, t)) return false;
    }
    return true;
}

/* Each request, and their sums and lists. */
static bool requests_are_valid(const pleat_serving *s) {
    uint64_t own = 0, swapped_bytes = 0;
    uint32_t n_running = 0, n_requests = 0, n_swapped = 0, n_fetching = 0;
    for (uint32_t i = 1; i <= s->opt.max_requests; i++) {
        const pleat__request *r = s->requests[i];
        if (!r) continue;
        if (r->sched.v != i || !request_is_valid(s, r)) return false;
        n_requests++;
        n_running += pleat__request_runs(r);
        own += pleat__request_runs(r) ? PLEAT__RUNNING(r)->own_pages : 0;
        n_swapped += pleat__request_is_swapped(r);
        n_fetching += pleat__request_waits(r) && PLEAT__WAITING(r)->fetch;
        swapped_bytes += pleat__request_is_swapped(r) ? PLEAT__SWAPPED(r)->image.n_bytes : 0;
    }
    for (const pleat__request *r = s->swapped; r; r = PLEAT__SWAPPED(r)->next) n_swapped--;
    for (const pleat__request *r = s->tier.fetching; r; r = PLEAT__WAITING(r)->next_fetching) n_fetching--;
    return n_running == s->n_running && n_running == pleat__sched_n_running(s->sched) &&
           n_requests == n_running + pleat__sched_n_waiting(s->sched) && n_swapped == 0 && n_fetching == 0 &&
           swapped_bytes == s->stats.swapped_bytes && own == s->own_pages;
}

/* Each kept prefix, and their sums. */
static bool prefixes_are_valid(const pleat_serving *s) {
    const pleat__prefixes *p = &s->prefixes;
    uint64_t added = 0, evictable = 0, pinned = 0;
    uint32_t n_kept = 0;
    for (uint32_t i = 1; i <= s->opt.max_prefixes; i++) {
        const pleat__kept *k = &p->kept[i];
        if (!k->seq.v) continue;
        if (!kept_is_valid(s, i)) return false;
        n_kept++;
        added += k->added_pages;
        evictable += k->n_users == 0 ? k->added_pages : 0;
        pinned += k->n_pins > 0 ? k->added_pages : 0;
    }
    return n_kept == p->n_kept && added == p->added_pages && evictable == p->evictable_pages &&
           pinned == p->pinned_pages && pinned == s->inbox.pinned_pages;
}

int pleat_serving_is_valid(const pleat_serving *s) {
    if (!s || !pleat__sched_is_valid(s->sched)) return 0;
    if (s->prefixes.tree && !pleat__radix_is_valid(s->prefixes.tree)) return 0;
    return tenants_are_valid(s) && requests_are_valid(s) && prefixes_are_valid(s) &&
           s->own_pages + s->prefixes.added_pages == s->backend.pages_used(s->backend.ctx) &&
           s->backend.is_valid(s->backend.ctx);
}
