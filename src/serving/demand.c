/* SPDX-License-Identifier: MIT
 *
 * demand.c: pages that requests take: in their next item, until their prompt is read, at any time until they leave.
 *
 * The scheduler's demands are always those of the next step: they are reported when a request is admitted, has run or was
 * compressed.
 *
 * Where a lane's slots are bounded (backend.h) it is known what a request holds at most at every step to come.  Then
 * requests are weighed together: one more is admitted if the sum fits at each of those steps.
 */
#include "serving/internal.h"

/* The most tokens of any chunk from position `from` on: of the prompt, or of the generation that follows it. */
static uint32_t largest_chunk(const pleat__backend_shape *shape, uint32_t from, uint32_t n_prompt) {
    return from < n_prompt ? pleat__min_u32(n_prompt - from, shape->chunk_tokens) : 1;
}

/* Pages that a request shares for good with a prefix that it stands on. */
static uint64_t shared_pages(const pleat_serving *s, pleat__kept_id base) {
    return base.v ? pleat__serving_shared_pages(s, &s->prefixes.kept[base.v]) : 0;
}

/* Pages of its own that it will have at most from n_stored tokens on. */
static uint64_t max_own(const pleat_serving *s, const pleat__request *r, pleat__kept_id base, uint32_t n_stored) {
    return pleat__less(pleat__backend_pages_for(&s->backend.shape, &r->extent, n_stored), shared_pages(s, base));
}

/* ---- running requests -------------------------------------------------------------------------------------------- */

uint64_t pleat__serving_next_pages(const pleat_serving *s, const pleat__request *r) {
    const pleat__running_part *run = PLEAT__RUNNING(r);
    const pleat__portion p = pleat__serving_portion(s, r, run->n_stored);
    const uint64_t n = s->backend.pages_needed(s->backend.ctx, run->seq, p.n_tokens, p.flags);
    return n == UINT64_MAX ? 0 : n; /* an item that will be refused */
}

/* Pages for the scheduler to keep free: what a running request will take beyond its next item until its prompt is read, or
 * until it leaves where that is known.  A single tenant's requests are then weighed together instead (fit_demand). */
static uint64_t coming_pages(const pleat_serving *s, const pleat__request *r, uint32_t end) {
    const pleat__backend_shape *shape = &s->backend.shape;
    const pleat__running_part *run = PLEAT__RUNNING(r);
    const uint64_t known = run->own_pages + run->step_pages;
    if (shape->is_bounded && s->opt.n_tenants == 1) return 0;
    if (shape->is_bounded) return pleat__less(max_own(s, r, run->base, run->n_stored), known);
    if (end >= r->n_prompt) return 0;
    const uint64_t n = pleat__backend_pages_behind(shape, end, r->n_prompt - end);
    const uint64_t most = pleat__less(pleat__backend_prompt_pages(shape, &r->extent), known);
    return shape->is_packed && n > most ? most : n;
}

void pleat__serving_demand(pleat_serving *s, pleat__request *r) {
    pleat__running_part *run = PLEAT__RUNNING(r);
    const pleat__portion p = pleat__serving_portion(s, r, run->n_stored);
    run->step_pages = pleat__serving_next_pages(s, r);
    const uint32_t end = run->n_stored + p.n_tokens;
    const pleat__sched_demand demand = {
        .n_tokens = p.n_tokens,
        .generates = p.generates,
        .n_pages = run->step_pages,
        .held_pages = run->own_pages,
        .later_tokens = largest_chunk(&s->backend.shape, end, r->n_prompt),
        .coming_pages = coming_pages(s, r, end),
        .can_compress = pleat__serving_can_compress(s, r),
    };
    run->reported_pages = demand.n_pages + demand.coming_pages;
    pleat__sched_demand_set(s->sched, r->sched, &demand);
}

/* ---- requests that would start ----------------------------------------------------------------------------------- */

/* Tokens that its sequence would have at first. */
static uint32_t start_length(const pleat_serving *s, const pleat__request *r, pleat__kept_id from) {
    return pleat__request_is_swapped(r) ? PLEAT__SWAPPED(r)->n_stored : s->prefixes.kept[from.v].n_tokens;
}

/* Its next item, and what follows until its prompt is read, or to its end where that is known; of prefixes what would no
 * longer be evictable. */
pleat__sched_demand pleat__serving_start_demand(const pleat_serving *s, const pleat__request *r, pleat__kept_id from) {
    const pleat__backend_shape *shape = &s->backend.shape;
    const bool is_restored = pleat__request_is_swapped(r);
    const uint32_t at = start_length(s, r, from);
    const pleat__portion p = pleat__serving_portion(s, r, at);
    uint64_t first = pleat__backend_pages_in_step(shape, &r->extent, at, p.n_tokens);
    if (is_restored) first += PLEAT__SWAPPED(r)->image.n_pages;
    if (from.v && !is_restored) first += s->prefixes.kept[from.v].copied_pages;
    const uint32_t end = at + p.n_tokens;
    uint64_t rest = shape->n_lanes; /* a page a lane of headroom */
    if (end < r->n_prompt) rest += pleat__backend_pages_behind(shape, end, r->n_prompt - end);
    if (shape->is_packed || !from.v) {
        const uint64_t max = max_own(s, r, from, at);
        if (first > max) first = max;
        if (shape->is_bounded || rest > max - first) rest = max - first;
    }
    return (pleat__sched_demand){.n_tokens = p.n_tokens,
                                 .later_tokens = largest_chunk(shape, end, r->n_prompt),
                                 .generates = p.generates,
                                 .n_pages = first,
                                 .coming_pages = rest + pleat__serving_lock_pages(s, from)};
}

/* ---- what all of them come to hold ------------------------------------------------------------------------------- */

/* A request that runs, or would: what it has at some later step. */
typedef struct course {
    const pleat__request *r;
    uint32_t n_stored;
    uint64_t n_shared;
} course;

/* Steps from now to its last one; UINT32_MAX: nobody can say, as long as its prompt is not read. */
static uint32_t last_step(const course *c) {
    return c->n_stored < c->r->n_prompt ? UINT32_MAX : c->r->extent.n_tokens - 2 - c->n_stored;
}

/* Pages of its own in the step that comes t steps from now, at most: it takes a token in each, and leaves with its
 * last. */
static uint64_t own_at(const pleat__backend_shape *shape, const course *c, uint32_t t) {
    const pleat__backend_extent *e = &c->r->extent;
    if (t > last_step(c)) return 0;
    const bool reads = c->n_stored < e->n_prompt;
    const uint64_t n = (uint64_t)t + (reads ? e->n_prompt : c->n_stored + 1);
    const uint64_t grown = pleat__backend_grown_pages(shape, e, n < e->n_tokens ? (uint32_t)n : e->n_tokens);
    const uint64_t read = reads ? pleat__backend_prompt_pages(shape, e) : 0;
    return pleat__less(grown > read ? grown : read, c->n_shared);
}

static course course_of(const pleat_serving *s, uint32_t i) {
    const pleat__request *r = s->running[i];
    const pleat__running_part *run = PLEAT__RUNNING(r);
    return (course){r, run->n_stored, shared_pages(s, run->base)};
}

/* The most pages that those who run and one more would hold together in any step to come; more than `max` is no longer
 * counted.  Each holds more and more until it leaves: so the sum is largest in somebody's last step, or when only those
 * are left whose last step is not known.  Not counted is what prefixes cost that are kept from now on: they go before
 * anybody is preempted (step.c), and who starts from one is admitted with it counted. */
static uint64_t max_together(const pleat_serving *s, const course *one, uint64_t locked, uint64_t max) {
    const pleat__backend_shape *shape = &s->backend.shape;
    uint64_t largest = 0;
    for (uint32_t i = 0; i < s->n_running + 2 && largest <= max; i++) {
        const course whose = i < s->n_running ? course_of(s, i) : *one;
        const uint32_t t = i <= s->n_running ? last_step(&whose) : UINT32_MAX;
        uint64_t sum = locked + own_at(shape, one, t);
        for (uint32_t k = 0; k < s->n_running && sum <= max; k++) {
            const course c = course_of(s, k);
            sum += own_at(shape, &c, t);
        }
        if (largest < sum) largest = sum;
    }
    return largest;
}

void pleat__serving_fit_demand(const pleat_serving *s, const pleat__request *r, pleat__kept_id from,
                               pleat__sched_demand *demand) {
    if (!s->backend.shape.is_bounded || s->opt.n_tenants > 1 || s->n_running == 0) return;
    const course one = {r, start_length(s, r, from), shared_pages(s, from)};
    const uint64_t locked = s->prefixes.added_pages - s->prefixes.evictable_pages + pleat__serving_lock_pages(s, from);
    uint64_t reported = s->step.occupied_pages;
    for (uint32_t i = 0; i < s->n_running; i++) reported += PLEAT__RUNNING(s->running[i])->reported_pages;
    const uint64_t n_pages = pleat__less(max_together(s, &one, locked, s->backend.shape.n_pages), reported);
    if (demand->n_pages > n_pages) demand->n_pages = n_pages;
    demand->coming_pages = n_pages - demand->n_pages;
}
