/* SPDX-License-Identifier: MIT
 *
 * serving_step.c: one step.
 *
 *     relieve     plan the running requests' next items; while pages are short, evict, compress or preempt, and plan
 *                 again: each turn there are fewer prefixes, stages or running requests, so it ends.  Before anybody is
 *                 preempted, prefixes go that only their maker stands on
 *     let in      candidates, as long as there is room; those that a prefix under way will serve are put off
 *     run         one step of the backend.  PLEAT_AGAIN: one gives way, and the rest run.  An error: whose is it?
 *     take in     of each item: pages, prefix, token; who has finished goes
 *
 * The scheduler's demands are always those of the next step: they are told when a request is let in, has run or was
 * compressed.  An error in the middle (no memory) leaves requests waiting or running as they were.
 */
#include <assert.h>
#include <string.h>

#include "core/clock.h"
#include "core/error.h"
#include "engine/serving_internal.h"

/* Waiting requests that are put off in a step, for each one that can run: enough to pass over those that wait for one
 * prefix, few enough not to look at every waiting request in every step. */
#define PUT_OFF_MOST(max_running) (4u * (max_running) + 16u)

/* ---- the clock of the scheduling itself ------------------------------------------------------------------------ */

uint64_t pleat__serving_leave(void) { return pleat__clock_ns(); }

void pleat__serving_back(pleat_serving *s, uint64_t left_ns, bool manages) {
    const uint64_t ns = pleat__clock_ns() - left_ns;
    s->elsewhere_ns += ns;
    if (manages) s->stats.manage_ns += ns;
}

/* ---- demands ------------------------------------------------------------------------------------------------------ */

pleat__portion pleat__serving_portion(const pleat_serving *s, const pleat__served *r, uint32_t n_stored) {
    if (n_stored >= r->n_prompt) return (pleat__portion){.n_tokens = 1, .generates = true};
    const uint32_t end = pleat__serving_next_cut(s, r, n_stored);
    uint32_t flags = pleat__serving_seal_at(s, r, end);
    if (flags == 0 && end < r->n_prompt) flags = PLEAT_ITEM_MORE;
    return (pleat__portion){.n_tokens = end - n_stored, .flags = flags};
}

static uint64_t next_pages(const pleat_serving *s, const pleat__served *r) {
    const pleat__portion p = pleat__serving_portion(s, r, r->n_stored);
    const uint64_t n = s->backend.pages_needed(s->backend.ctx, r->seq, p.n_tokens, p.flags);
    return n == UINT64_MAX ? 0 : n; /* an item that will be refused */
}

/* The most tokens of any chunk from position `from` on: of the prompt, or of the generation that follows it. */
static uint32_t largest_chunk(const pleat__backend_shape *shape, uint32_t from, uint32_t n_prompt) {
    return from < n_prompt ? pleat__min_u32(n_prompt - from, shape->chunk_tokens) : 1;
}

static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

/* Pages that a request shares with a prefix that it stands on, whatever comes: the others are copied. */
static uint64_t shared_pages(const pleat_serving *s, pleat__kept_id base) {
    const pleat__kept *k = &s->kept[base.v];
    return base.v ? less(s->backend.pages_of(s->backend.ctx, k->seq), k->copied_pages) : 0;
}

/* What it will have of its own at most from n_stored tokens on. */
static uint64_t most_own(const pleat_serving *s, const pleat__served *r, pleat__kept_id base, uint32_t n_stored) {
    return less(pleat__backend_pages_for(&s->backend.shape, &r->extent, n_stored), shared_pages(s, base));
}

/* What a running request will take beyond its next item and the scheduler is to keep free: all of it where that is
 * known but for one tenant, whose requests are weighed together (weigh); else until its prompt is read. */
static uint64_t coming_pages(const pleat_serving *s, const pleat__served *r, uint32_t end) {
    const pleat__backend_shape *shape = &s->backend.shape;
    if (!shape->is_bounded) return end < r->n_prompt ? pleat__backend_pages_behind(shape, end, r->n_prompt - end) : 0;
    if (s->opt.n_tenants == 1) return 0;
    return less(most_own(s, r, r->base, r->n_stored), r->own_pages + r->step_pages);
}

void pleat__serving_demand(pleat_serving *s, pleat__served *r) {
    const pleat__portion p = pleat__serving_portion(s, r, r->n_stored);
    r->step_pages = next_pages(s, r);
    const uint32_t end = r->n_stored + p.n_tokens;
    const pleat__sched_demand demand = {
        .n_tokens = p.n_tokens,
        .generates = p.generates,
        .n_pages = r->step_pages,
        .held_pages = r->own_pages,
        .later_tokens = largest_chunk(&s->backend.shape, end, r->n_prompt),
        .coming_pages = coming_pages(s, r, end),
        .can_compress = pleat__serving_can_compress(s, r),
    };
    r->told_pages = demand.n_pages + demand.coming_pages;
    pleat__sched_demand_set(s->sched, r->sched, &demand);
}

void pleat__serving_count_own(pleat_serving *s, pleat__served *r) {
    void *ctx = s->backend.ctx;
    r->n_pages = s->backend.pages_of(ctx, r->seq);
    s->own_pages -= r->own_pages;
    r->own_pages = r->n_pages;
    if (r->base.v) r->own_pages -= s->backend.pages_shared(ctx, r->seq, s->kept[r->base.v].seq);
    s->own_pages += r->own_pages;
}

/* ---- relief --------------------------------------------------------------------------------------------------------- */

/* Free pages of prefixes that one running request alone stands on and nobody else has used. */
static bool leave_some_base(pleat_serving *s) {
    for (uint32_t i = 0; i < s->n_running; i++) {
        pleat__served *r = s->running[i];
        if (!pleat__serving_leave_base(s, r, false)) continue;
        pleat__serving_demand(s, r);
        return true;
    }
    return false;
}

/* Plan until the running requests' items fit. */
static void relieve(pleat_serving *s, pleat__sched_plan *plan) {
    bool can_evict = true;
    for (;;) {
        const pleat__sched_pages pages = {.n_free = pleat__serving_free_pages(s),
                                          .n_evictable = can_evict ? s->evictable_pages : 0};
        s->occupied_pages = s->backend.shape.n_pages - pages.n_free - s->evictable_pages;
        pleat__sched_plan_step(s->sched, pages, plan);
        if (plan->relief == PLEAT__RELIEF_NONE) return;
        pleat__served *victim = s->requests[plan->victim.v];
        if (plan->relief == PLEAT__RELIEF_EVICT)
            can_evict = pleat__serving_make_room(s, pages.n_free + plan->n_short);
        else if (plan->relief == PLEAT__RELIEF_COMPRESS)
            pleat__serving_compress(s, victim);
        else if (!leave_some_base(s))
            pleat__serving_preempt(s, victim, true);
    }
}

/* ---- letting in ------------------------------------------------------------------------------------------------------ */

/* What a waiting request would start with. */
typedef struct start {
    pleat__kept_id from;
    pleat__sched_demand demand;
} start;

/* What it takes: its next item, and until its prompt is read, or to its end where that is known; of prefixes what would
 * no longer be evictable. */
static pleat__sched_demand demand_of(const pleat_serving *s, const pleat__served *r, pleat__kept_id from) {
    const pleat__backend_shape *shape = &s->backend.shape;
    const pleat__kept *k = &s->kept[from.v];
    const bool is_restored = r->image.data != NULL;
    const uint32_t at = is_restored ? r->image_stored : k->n_tokens;
    const pleat__portion p = pleat__serving_portion(s, r, at);
    uint64_t first = pleat__backend_pages_in_step(shape, &r->extent, at, p.n_tokens);
    if (is_restored) first += r->image.n_pages;
    if (from.v && !is_restored) first += k->copied_pages;
    const uint32_t end = at + p.n_tokens;
    uint64_t rest = shape->n_lanes; /* a page a lane of headroom */
    if (end < r->n_prompt) rest += pleat__backend_pages_behind(shape, end, r->n_prompt - end);
    if (shape->is_bounded || !from.v) {
        const uint64_t most = most_own(s, r, from, at);
        if (first > most) first = most;
        if (shape->is_bounded || rest > most - first) rest = most - first;
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
    const pleat__served *r;
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
    return less(grown > read ? grown : read, c->n_shared);
}

static course course_of(const pleat_serving *s, uint32_t i) {
    const pleat__served *r = s->running[i];
    return (course){r, r->n_stored, shared_pages(s, r->base)};
}

/* The most pages that those who run and one more would hold together in any step to come; more than `most` is no longer
 * counted.  Each holds more and more until it leaves: so the sum is largest in somebody's last step, or when only those
 * are left whose last step is not known.  Not counted is what prefixes cost that are kept from now on: they go before
 * anybody is preempted (relieve), and who starts from one is let in with it counted. */
static uint64_t most_together(const pleat_serving *s, const course *one, uint64_t locked, uint64_t most) {
    const pleat__backend_shape *shape = &s->backend.shape;
    uint64_t largest = 0;
    for (uint32_t i = 0; i < s->n_running + 2 && largest <= most; i++) {
        const course whose = i < s->n_running ? course_of(s, i) : *one;
        const uint32_t t = i <= s->n_running ? last_step(&whose) : UINT32_MAX;
        uint64_t sum = locked + own_at(shape, one, t);
        for (uint32_t k = 0; k < s->n_running && sum <= most; k++) {
            const course c = course_of(s, k);
            sum += own_at(shape, &c, t);
        }
        if (largest < sum) largest = sum;
    }
    return largest;
}

/* Where it is known what all of them come to hold, let one more in if they fit together at every step to come: what the
 * scheduler is told is what is missing to that. */
static void weigh(const pleat_serving *s, const pleat__served *r, start *how) {
    const pleat__kept *k = &s->kept[how->from.v];
    const course one = {r, r->image.data ? r->image_stored : k->n_tokens, shared_pages(s, how->from)};
    const uint64_t locked = s->added_pages - s->evictable_pages + pleat__serving_lock_pages(s, how->from);
    uint64_t told = s->occupied_pages;
    for (uint32_t i = 0; i < s->n_running; i++) told += s->running[i]->told_pages;
    const uint64_t n_pages = less(most_together(s, &one, locked, s->backend.shape.n_pages), told);
    if (how->demand.n_pages > n_pages) how->demand.n_pages = n_pages;
    how->demand.coming_pages = n_pages - how->demand.n_pages;
}

/* How the request would start.  False: it waits for a prefix that is being computed. */
static bool prepare(pleat_serving *s, pleat__served *r, start *out) {
    out->from = r->image_base;
    if (!r->image.data) {
        bool waits = r->waits_version == s->promises_version;
        if (!waits) out->from = pleat__serving_find(s, r, &waits);
        if (waits) r->waits_version = s->promises_version;
        if (waits) return false;
    }
    out->demand = demand_of(s, r, out->from);
    if (!out->from.v || out->demand.n_pages + out->demand.coming_pages <= pleat__sched_most_pages(s->sched, r->tenant))
        return true;
    /* With what it would stand on it can never be let in: it goes without. */
    if (r->image.data) s->stats.images_lost++;
    pleat__serving_drop_image(s, r);
    r->shares_nothing = true;
    out->from.v = 0;
    out->demand = demand_of(s, r, out->from);
    return true;
}

static void count_start(pleat_serving *s, pleat__served *r, bool is_hit) {
    const uint32_t n = r->n_stored;
    if (is_hit) s->kept[r->base.v].n_hits++;
    if (!r->has_started && s->tree) s->stats.lookups++;
    if (!r->has_started && is_hit) s->stats.hits++;
    if (!r->has_started && is_hit) r->stats.n_hit = n;
    if (is_hit && n > r->n_seen) s->stats.hit_tokens += n - r->n_seen;
    if (n > r->n_seen) r->n_seen = n;
    r->has_started = true;
}

/* The scheduler has admitted it: open its sequence. */
static pleat_status start_request(pleat_serving *s, pleat__served *r, pleat__kept_id from) {
    const bool is_restored = r->image.data != NULL;
    pleat__serving_use(s, from);
    pleat_status status = PLEAT_OK;
    if (!r->sampler && r->sampling.temperature > 0 && s->backend.shape.model)
        status = pleat_sampler_create(&r->sampling, s->backend.shape.n_vocab, &s->al, &r->sampler, NULL);
    if (status == PLEAT_OK && is_restored) (void)pleat__serving_make_room(s, r->image.n_pages);
    if (status == PLEAT_OK) status = pleat__serving_open(s, r, from);
    if (status != PLEAT_OK) {
        pleat__serving_unuse(s, from);
        pleat__sched_preempt(s->sched, r->sched);
        return status == PLEAT_AGAIN ? PLEAT_OK : status;
    }
    if (s->n_running > s->stats.n_running_most) s->stats.n_running_most = s->n_running;
    count_start(s, r, from.v && !is_restored);
    pleat__serving_promise(s, r);
    r->step_pages = next_pages(s, r); /* the scheduler goes on by the estimate, what it stands on included */
    return PLEAT_OK;
}

static pleat_status let_in(pleat_serving *s, pleat__sched_plan *plan) {
    uint32_t n_put_off = 0;
    for (;;) {
        const pleat__sched_id id = pleat__sched_candidate(s->sched);
        if (!id.v) return PLEAT_OK;
        pleat__served *r = s->requests[id.v];
        start how;
        if (!prepare(s, r, &how)) {
            if (n_put_off++ == PUT_OFF_MOST(s->max_running)) return PLEAT_OK;
            pleat__sched_defer(s->sched, id);
            continue;
        }
        if (s->backend.shape.is_bounded && s->opt.n_tenants == 1 && s->n_running > 0) weigh(s, r, &how);
        if (pleat__sched_admit(s->sched, id, &how.demand, plan) != PLEAT__ADMITTED) continue;
        r->told_pages = how.demand.n_pages + how.demand.coming_pages;
        PLEAT_TRY(start_request(s, r, how.from));
        if (!r->runs) return PLEAT_OK;
    }
}

/* ---- running --------------------------------------------------------------------------------------------------------- */

static void add_item(pleat_serving *s, pleat__served *r, uint32_t i) {
    const pleat__portion p = pleat__serving_portion(s, r, r->n_stored);
    const bool wants = r->n_stored + p.n_tokens == pleat__served_known(r) && s->backend.shape.model;
    s->items[i] = (pleat_engine_item){.seq = r->seq,
                                      .tokens = r->tokens + r->n_stored,
                                      .n_tokens = p.n_tokens,
                                      .n_logits = wants,
                                      .logits = wants ? s->logits + (size_t)i * s->backend.shape.n_vocab : NULL,
                                      .flags = p.flags};
    s->in_step[i] = r;
    r->in_step = true;
}

/* The plan's first request whose next item is to be a step by itself; NULL if there is none. */
static pleat__served *loner(const pleat_serving *s, const pleat__sched_plan *plan) {
    for (uint32_t i = 0; i < plan->n_run; i++) {
        pleat__served *r = s->requests[plan->run[i].v];
        if (!r || !r->runs || r->alone_to == 0) continue;
        if (r->n_stored + pleat__serving_portion(s, r, r->n_stored).n_tokens == r->alone_to) return r;
    }
    return NULL;
}

/* The plan's items, less those of requests that run no longer; or a loner's alone, and the others wait for a step. */
static uint32_t make_items(pleat_serving *s, const pleat__sched_plan *plan) {
    pleat__served *alone = loner(s, plan);
    if (alone) add_item(s, alone, 0);
    if (alone) return 1;
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n_run; i++) {
        pleat__served *r = s->requests[plan->run[i].v];
        if (r && r->runs) add_item(s, r, n++);
    }
    return n;
}

/* Whose turn comes last: lower priority, then later arrival. */
static pleat__served *lowest(const pleat_serving *s) {
    pleat__served *low = s->running[0];
    for (uint32_t i = 1; i < s->n_running; i++) {
        pleat__served *r = s->running[i];
        if (r->priority != low->priority ? r->priority < low->priority : r->arrival > low->arrival) low = r;
    }
    return low;
}

/* Take those that run no longer out of items[0..n). */
static uint32_t drop_gone(pleat_serving *s, uint32_t n) {
    uint32_t n_left = 0;
    for (uint32_t i = 0; i < n; i++) {
        pleat__served *r = s->in_step[i];
        if (r && r->runs) add_item(s, r, n_left++);
    }
    return n_left;
}

/* One call of the backend, and what it teaches about prices. */
static pleat_status run_items(pleat_serving *s, uint32_t first, uint32_t n, pleat_error *err) {
    uint32_t n_prompt = 0, n_single = 0;
    uint64_t n_pages = 0;
    for (uint32_t i = first; i < first + n; i++) {
        const bool is_single = s->items[i].n_tokens == 1;
        n_single += is_single;
        n_prompt += is_single ? 0 : s->items[i].n_tokens;
        n_pages += is_single ? s->in_step[i]->n_pages : 0;
    }
    const uint64_t left = pleat__serving_leave(), start_ns = s->backend.clock_ns(s->backend.ctx);
    const pleat_status status = s->backend.run(s->backend.ctx, s->items + first, n, err);
    const uint64_t ns = s->backend.clock_ns(s->backend.ctx) - start_ns;
    pleat__serving_back(s, left, false);
    if (status == PLEAT_OK)
        pleat__cost_observe_step(&s->cost, n_prompt, n_single, n_pages * s->backend.shape.page_bytes, ns);
    return status;
}

/* ---- what became of an item ------------------------------------------------------------------------------------------ */

static void give_token(pleat_serving *s, pleat__served *r, pleat_token token) {
    r->tokens[pleat__served_known(r)] = token;
    r->stats.n_generated++;
    s->stats.generated_tokens++;
    if (r->stats.n_generated == r->n_predict) {
        pleat__serving_finish(s, r, token, PLEAT_FINISH_LENGTH, PLEAT_OK);
        return;
    }
    s->events[s->n_events++] = (pleat_serving_event){.id = r->id, .user = r->user, .token = token};
}

static void sample(pleat_serving *s, pleat__served *r, const float *logits) {
    const pleat_model *model = s->backend.shape.model;
    pleat_token token = 0;
    if (model) {
        const uint64_t left = pleat__serving_leave();
        const pleat_status status = pleat_sampler_sample(r->sampler ? r->sampler : s->greedy, logits, &token);
        const bool is_end = status == PLEAT_OK && !r->ignores_end && pleat_model_token_is_end(model, token);
        pleat__serving_back(s, left, false);
        if (status != PLEAT_OK) {
            pleat__serving_finish(s, r, -1, PLEAT_FINISH_FAILED, PLEAT_E_RANGE);
            return;
        }
        if (is_end) {
            pleat__serving_finish(s, r, -1, PLEAT_FINISH_END, PLEAT_OK);
            return;
        }
    }
    give_token(s, r, token);
}

static void count_tokens(pleat_serving *s, pleat__served *r, uint32_t n) {
    const uint32_t end = r->n_stored + n, old = r->n_seen > r->n_stored ? r->n_seen - r->n_stored : 0;
    const uint32_t n_replayed = pleat__min_u32(old, n);
    s->stats.replayed_tokens += n_replayed;
    if (end <= r->n_prompt) s->stats.prompt_tokens += n - n_replayed;
    if (end > r->n_seen) r->n_seen = end;
}

/* The item has run: its tokens are stored. */
static void take_in(pleat_serving *s, uint32_t i) {
    pleat__served *r = s->in_step[i];
    const uint32_t n = s->items[i].n_tokens;
    count_tokens(s, r, n);
    r->n_stored += n;
    if (r->n_stored >= r->alone_to) r->alone_to = 0;
    r->was_compressed = false;
    pleat__sched_ran(s->sched, r->sched, n);
    if (r->own_changes || (s->backend.shape.shares_late && r->base.v)) {
        pleat__serving_count_own(s, r);
        r->own_changes = false;
    } else {
        const uint64_t n_pages = s->backend.pages_of(s->backend.ctx, r->seq);
        r->own_pages += n_pages - r->n_pages; /* may wrap on the way */
        s->own_pages += n_pages - r->n_pages;
        r->n_pages = n_pages;
    }
    if (r->promise.v && r->promised_stop == r->n_stored) pleat__serving_keep(s, r);
    if (r->n_stored == pleat__served_known(r)) sample(s, r, s->items[i].logits);
}

/* A step of n items failed for a reason that is one request's.  Run one by one, they tell whose.  The failed step may have
 * left traces in the others, with a policy in their scores, in full rings more than that: those sequences are lost
 * (PLEAT_E_STATE, cache.h).  They are computed again, to come out as they would have alone; and if whose fault it was
 * cannot be told since its sequence is lost too, the lost ones go by themselves when they come to this item again, so
 * that it shows. */
static pleat_status isolate(pleat_serving *s, uint32_t n, pleat_status status, pleat_error *err) {
    uint32_t n_failed = 0, n_lost = 0;
    for (uint32_t i = 0; i < n; i++) {
        s->statuses[i] = n == 1 ? status : run_items(s, i, 1, err);
        if (s->statuses[i] == PLEAT_E_MEMORY) return PLEAT_E_MEMORY;
        n_lost += n > 1 && s->statuses[i] == PLEAT_E_STATE;
        n_failed += s->statuses[i] < 0;
    }
    n_failed -= n_lost;
    const bool all_spoilt = s->backend.shape.has_policy && n > 1 && n_failed + n_lost > 0;
    for (uint32_t i = 0; i < n; i++) {
        pleat__served *r = s->in_step[i];
        const bool is_lost = n > 1 && s->statuses[i] == PLEAT_E_STATE;
        if (is_lost && n_failed == 0) r->alone_to = r->n_stored + s->items[i].n_tokens;
        if (s->statuses[i] < 0 && !is_lost)
            pleat__serving_finish(s, r, -1, PLEAT_FINISH_FAILED, s->statuses[i]);
        else if (is_lost || all_spoilt)
            pleat__serving_preempt(s, r, false);
        else if (s->statuses[i] == PLEAT_OK)
            take_in(s, i);
        else
            pleat__serving_count_own(s, r); /* it has had its copies */
    }
    return PLEAT_OK;
}

static uint64_t pages_of_items(const pleat_serving *s, uint32_t n) {
    uint64_t n_pages = 0;
    for (uint32_t i = 0; i < n; i++) n_pages += s->in_step[i]->step_pages;
    return n_pages;
}

/* Run what is planned.  *n_ran: items that were run. */
static pleat_status run(pleat_serving *s, const pleat__sched_plan *plan, uint32_t *n_ran, pleat_error *err) {
    uint32_t n = make_items(s, plan);
    *n_ran = 0;
    while (n > 0) {
        (void)pleat__serving_make_room(s, pages_of_items(s, n));
        const pleat_status status = run_items(s, 0, n, err);
        if (status == PLEAT_E_MEMORY) return status;
        if (status != PLEAT_AGAIN) {
            *n_ran = n;
            if (status != PLEAT_OK) return isolate(s, n, status, err);
            for (uint32_t i = 0; i < n; i++) take_in(s, i);
            return PLEAT_OK;
        }
        if (pleat__serving_evict(s)) continue;
        pleat__served *victim = lowest(s);
        for (uint32_t i = 0; i < n; i++)
            if (s->in_step[i] == victim) s->in_step[i] = NULL;
        pleat__serving_preempt(s, victim, true);
        n = drop_gone(s, n);
    }
    return PLEAT_OK;
}

/* ---- the step -------------------------------------------------------------------------------------------------------- */

/* How much of what a running request holds is no token. */
static void count_slots(pleat_serving *s, const pleat__served *r) {
    uint64_t n_live, n_held;
    s->backend.slots_of(s->backend.ctx, r->seq, &n_live, &n_held);
    if (n_held > 0) s->stats.fragmentation[100 * (n_held - n_live) / n_held]++;
}

/* Tell the scheduler what comes next, and count who stood still.  n_planned: items of the plan; where not all of them ran,
 * there may be some who were let in and have no demand of their own yet. */
static void close_step(pleat_serving *s, uint32_t n_planned, uint32_t n_ran) {
    const bool tells_all = n_ran == 0 || n_ran < n_planned;
    for (uint32_t i = 0; i < s->n_running; i++) {
        pleat__served *r = s->running[i];
        r->n_idle = r->in_step ? 0 : r->n_idle + 1;
        if (r->n_idle > r->stats.n_stalled) r->stats.n_stalled = r->n_idle;
        count_slots(s, r);
        if (r->in_step || tells_all) pleat__serving_demand(s, r);
        r->in_step = false;
    }
    s->n_idle_now = n_ran > 0 ? 0 : s->n_idle_now + 1;
    s->stats.n_idle_steps += n_ran == 0;
    if (s->n_idle_now > s->stats.n_idle_steps_most) s->stats.n_idle_steps_most = s->n_idle_now;
    s->stats.n_steps++;
}

pleat_status pleat_serving_step(pleat_serving *s, pleat_error *err) {
    if (!s) return PLEAT_E_ARG;
    s->n_events = 0;
    if (pleat__sched_n_waiting(s->sched) + pleat__sched_n_running(s->sched) == 0) return PLEAT_AGAIN;
    const uint64_t start_ns = pleat__clock_ns(), clock_ns = s->backend.clock_ns(s->backend.ctx);
    s->elsewhere_ns = 0;
    uint32_t n_ran = 0;
    pleat__sched_plan plan;
    relieve(s, &plan);
    pleat_status status = let_in(s, &plan);
    if (status == PLEAT_OK) status = run(s, &plan, &n_ran, err);
    close_step(s, plan.n_run, n_ran);
    s->stats.step_ns += s->backend.clock_ns(s->backend.ctx) - clock_ns;
    s->stats.schedule_ns += pleat__clock_ns() - start_ns - s->elsewhere_ns;
    if (status == PLEAT_E_MEMORY) (void)pleat__error_set(err, status, PLEAT_NOWHERE, "serving: out of memory");
    return status;
}
