/* SPDX-License-Identifier: MIT
 *
 * admit.c: waiting requests start: which, from what, and with which demand.
 *
 *     candidate ──prepare──> from its image, from a kept prefix, or empty; or deferred, while a prefix that will serve it
 *                            is being computed, or fetched from the store
 *               ──admit────> the scheduler says whether there is room (sched/sched.h)
 *               ──start────> running: its sequence is open, and its next breakpoint promised
 */
#include "core/error.h"
#include "serving/internal.h"

/* Waiting requests that are deferred in a step at most.  Enough to pass over those that wait for one prefix; few enough
 * not to look at every waiting request in every step. */
#define MAX_DEFERRED(max_running) (4u * (max_running) + 16u)

/* ---- what it starts from ------------------------------------------------------------------------------------------- */

typedef struct start {
    pleat__kept_id from;
    pleat__sched_demand demand;
} start;

/* A prefix for a request without an image.  False: it waits for one that is being computed, or looked for. */
static bool choose_prefix(pleat_serving *s, pleat__request *r, pleat__kept_id *from) {
    pleat__waiting_part *part = PLEAT__WAITING(r);
    if (pleat__serving_is_fetching(r)) return false;
    bool waits = part->deferred_version == s->prefixes.version;
    if (!waits) *from = pleat__serving_find(s, r, &waits);
    if (waits) part->deferred_version = s->prefixes.version;
    return !waits && pleat__serving_fetch(s, r, *from);
}

/* The most pages that it ever gets: pinned prefixes stay. */
static uint64_t max_pages(const pleat_serving *s, const pleat__request *r) {
    const uint64_t n_left = s->backend.shape.n_pages - s->prefixes.pinned_pages;
    const uint64_t most = pleat__sched_max_pages(s->sched, r->tenant);
    return most < n_left ? most : n_left;
}

/* How the request would start.  False: it waits for a prefix. */
static bool prepare(pleat_serving *s, pleat__request *r, start *out) {
    if (pleat__request_waits(r) && !choose_prefix(s, r, &out->from)) return false;
    const bool is_restored = pleat__request_is_swapped(r);
    if (is_restored) out->from = PLEAT__SWAPPED(r)->base;
    out->demand = pleat__serving_start_demand(s, r, out->from);
    if (!out->from.v || out->demand.n_pages + out->demand.coming_pages <= max_pages(s, r)) return true;
    /* With what it would stand on it can never be admitted: it goes without. */
    if (is_restored) s->stats.images_lost++;
    if (is_restored) pleat__serving_drop_image(s, r);
    r->shares_nothing = true;
    out->from.v = 0;
    out->demand = pleat__serving_start_demand(s, r, out->from);
    return true;
}

/* ---- starting ------------------------------------------------------------------------------------------------------ */

/* Open a sequence from its image, from a prefix, or empty. */
static pleat_status open_seq(pleat_serving *s, const pleat__request *r, pleat__kept_id from, pleat_seq *out) {
    const pleat__backend *b = &s->backend;
    const pleat_seq base = s->prefixes.kept[from.v].seq;
    const uint32_t max_tokens = r->n_prompt + r->n_predict;
    if (pleat__request_waits(r) && from.v) return b->fork(b->ctx, base, max_tokens, out);
    if (pleat__request_waits(r)) return b->open(b->ctx, max_tokens, out);
    const pleat__image *image = &PLEAT__SWAPPED(r)->image;
    const uint64_t start_ns = b->clock_ns(b->ctx);
    PLEAT_TRY(b->restore(b->ctx, image, base, out));
    const uint64_t ns = b->clock_ns(b->ctx) - start_ns;
    pleat__cost_observe_swap(&s->cost, image->n_bytes, ns);
    s->step.swap_ns += ns;
    return PLEAT_OK;
}

/* Those of the prefix that it begins from, or the spec's. */
static void take_thresholds(const pleat_serving *s, pleat__request *r, pleat__kept_id from) {
    const pleat__kept *k = &s->prefixes.kept[from.v];
    r->is_compressed = k->is_compressed;
    r->ah = from.v ? k->ah : s->backend.shape.ah;
    r->al = from.v ? k->al : s->backend.shape.al;
}

/* Enter RUNNING with an open sequence.  `from` is what the request stands on, in use already.  PLEAT_AGAIN,
 * PLEAT_E_MEMORY: nothing has changed. */
static pleat_status begin_running(pleat_serving *s, pleat__request *r, pleat__kept_id from) {
    pleat__running_part part = {.base = from, .running_idx = s->n_running};
    const uint64_t paused = pleat__serving_pause();
    const pleat_status status = open_seq(s, r, from, &part.seq);
    pleat__serving_resume(s, paused, true);
    PLEAT_TRY(status);
    if (pleat__request_waits(r)) take_thresholds(s, r, from);
    part.promises = s->prefixes.tree && r->root != PLEAT__NO_ROOT && !r->shares_nothing;
    part.n_stored = s->prefixes.kept[from.v].n_tokens;
    if (pleat__request_is_swapped(r)) {
        part.n_stored = PLEAT__SWAPPED(r)->n_stored;
        part.promises &= PLEAT__SWAPPED(r)->keeps_base;
        pleat__serving_drop_image(s, r);
    }
    pleat__request_enter(r, PLEAT__REQUEST_RUNNING);
    *PLEAT__RUNNING(r) = part;
    s->running[s->n_running++] = r;
    pleat__serving_count_own(s, r);
    PLEAT__RUNNING(r)->own_changes = true;
    return PLEAT_OK;
}

/* is_stored: it begins from a prefix of the store. */
static void count_start(pleat_serving *s, pleat__request *r, bool is_kept, bool is_stored) {
    const bool is_hit = is_kept || is_stored;
    const pleat__running_part *run = PLEAT__RUNNING(r);
    const uint32_t n = run->n_stored;
    if (is_kept && s->prefixes.kept[run->base.v].n_hits++ == 0) pleat__serving_store(s, r, run->base);
    s->stats.store_hits += is_stored;
    s->stats.store_tokens += is_stored ? n : 0;
    if (!r->has_started && s->prefixes.tree) s->stats.lookups++;
    if (!r->has_started && is_hit) s->stats.hits++;
    if (!r->has_started && is_hit) r->stats.n_hit = n;
    if (is_hit && n > r->n_seen) s->stats.hit_tokens += n - r->n_seen;
    if (n > r->n_seen) r->n_seen = n;
    if (r->has_started) return;
    r->start_ns = s->backend.clock_ns(s->backend.ctx);
    r->has_started = true;
    if (r->wants_progress) pleat__serving_tell_progress(s, r);
}

/* Pages that are taken as its sequence is opened. */
static uint64_t opening_pages(const pleat_serving *s, const pleat__request *r, pleat__kept_id from) {
    if (pleat__request_is_swapped(r)) return PLEAT__SWAPPED(r)->image.n_pages;
    return from.v ? s->backend.fork_pages(s->backend.ctx, s->prefixes.kept[from.v].seq) : 0;
}

/* The scheduler has admitted it. */
static pleat_status start_request(pleat_serving *s, pleat__request *r, const start *how) {
    const bool is_restored = pleat__request_is_swapped(r), is_stored = is_restored && PLEAT__SWAPPED(r)->fetch;
    pleat__serving_use(s, how->from);
    pleat_status status = PLEAT_OK;
    if (!r->sampler && r->sampling.temperature > 0 && s->backend.shape.model)
        status = pleat_sampler_create(&r->sampling, s->backend.shape.n_vocab, &s->al, &r->sampler, NULL);
    if (status == PLEAT_OK && r->answer)
        status = pleat__answer_begin(r->answer, &r->stats, r->tokens, &s->al, s->backend.shape.n_vocab);
    if (status == PLEAT_OK) (void)pleat__serving_evict_until(s, opening_pages(s, r, how->from));
    if (status == PLEAT_OK) status = begin_running(s, r, how->from);
    if (status != PLEAT_OK) {
        pleat__serving_unuse(s, how->from);
        pleat__sched_preempt(s->sched, r->sched);
        const bool is_refused = is_stored && status != PLEAT_AGAIN && status != PLEAT_E_MEMORY;
        if (is_refused && status == PLEAT_E_FORMAT) pleat__serving_refuse(PLEAT__SWAPPED(r));
        if (is_refused) pleat__serving_drop_image(s, r); /* it is computed instead */
        return status == PLEAT_AGAIN || is_refused ? PLEAT_OK : status;
    }
    if (s->n_running > s->stats.peak_running) s->stats.peak_running = s->n_running;
    count_start(s, r, how->from.v && !is_restored, is_stored);
    if (is_stored)
        pleat__serving_keep_stored(s, r);
    else
        pleat__serving_promise(s, r);
    /* The scheduler goes on by the estimate, what the request stands on included. */
    pleat__running_part *run = PLEAT__RUNNING(r);
    run->reported_pages = how->demand.n_pages + how->demand.coming_pages;
    run->step_pages = pleat__serving_next_pages(s, r);
    return PLEAT_OK;
}

pleat_status pleat__serving_admit(pleat_serving *s, pleat__sched_plan *plan) {
    uint32_t n_deferred = 0;
    for (;;) {
        const pleat__sched_id id = pleat__sched_candidate(s->sched);
        if (!id.v) return PLEAT_OK;
        pleat__request *r = s->requests[id.v];
        start how;
        if (!prepare(s, r, &how)) {
            if (n_deferred++ == MAX_DEFERRED(s->max_running)) return PLEAT_OK;
            pleat__sched_defer(s->sched, id);
            continue;
        }
        s->step.tried = id;
        pleat__serving_fit_demand(s, r, how.from, &how.demand);
        if (pleat__sched_admit(s->sched, id, &how.demand, plan) != PLEAT__ADMITTED) continue;
        PLEAT_TRY(start_request(s, r, &how));
        if (!pleat__request_runs(r)) return PLEAT_OK;
    }
}
