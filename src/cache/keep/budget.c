/* SPDX-License-Identifier: MIT
 *
 * budget.c: lanes of which a policy keeps so many tokens (eviction).
 *
 *     begin   the budget of the sequence for this step; with reclaim=copy, fresh pages for what a lane may keep
 *     end     evict.c, by layers after a prompt and by lanes after a single token
 *
 * Nothing is sealed here.  Ranks weigh all tokens of a lane against each other, and every token that is spared for good
 * is one that the budget lacks.  So a kept prefix is a sequence like any other: fork.c's rule (1) keeps its pages as they
 * are, and who goes on from it copies them before its first step writes, counted at begin with the rest.  From then on
 * any of its tokens may be dropped there.  Both have the bits of a sequence that was computed to this place, scores
 * included, since a copy is what it was; images hold all of a lane's pages, for none is left to a base.
 *
 * A budget in bytes comes to as many tokens of a lane as whole pages have room for, with the block table of the longest
 * sequence, the slot of the hole, and full rings beside where layers have windows.
 */
#include <math.h>

#include "cache/keep/evict.h"
#include "cache/keep/expected.h"
#include "cache/keep/merge.h"
#include "cache/keep/novelty.h"
#include "cache/keep/plain.h"
#include "cache/keep/ring.h"
#include "cache/keep/scored.h"
#include "core/error.h"

/* Lanes of a unit in generation: their memory's latencies overlap. */
#define UNIT_LANES 8u

static const pleat__evictor *evictor_of(const pleat_cache *c) { return c->kept.budget.evictor; }

/* ---- what policies keep beside a sequence's pages -------------------------------------------------- */

static void carve_seq(const pleat_cache *c, uint32_t max_tokens, pleat__sequence *seq, pleat__arena *arena) {
    pleat__novelty_carve_seq(c, max_tokens, seq, arena);
    pleat__expected_carve_seq(c, seq, arena);
}

static void fork_seq(const pleat_cache *c, const pleat__sequence *from, pleat__sequence *to) {
    pleat__novelty_fork(c, from, to);
    pleat__expected_fork(c, from, to);
}

static uint64_t image_bytes(const pleat_cache *c, uint32_t n_classed) {
    return pleat__novelty_image_bytes(c, n_classed) + pleat__expected_image_bytes(c);
}

/* One of the two has some. */
static void write_image(const pleat_cache *c, const pleat__sequence *seq, uint8_t *out) {
    pleat__novelty_write_image(c, seq, out);
    pleat__expected_write_image(c, seq, out);
}

static bool read_image(const pleat_cache *c, const uint8_t *in, const pleat__image_counts *counts,
                       pleat__sequence *seq) {
    return pleat__novelty_read_image(c, in, counts, seq) && pleat__expected_read_image(c, in, counts, seq);
}

/* ---- budgets in bytes ---------------------------------------------------------------------------- */

/* Slots of a lane that hold no token of the budget: lanes of lengths of their own waste a page each at most, all others
 * have a slot for the token that comes next. */
static uint32_t slots_lost(const pleat_cache *c) {
    return pleat__moves_budgets(&c->opt.spec) ? c->page_tokens[PLEAT__HIGH] : 1;
}

/* Bytes of a sequence beside the pages that its budget is of, and of such a page in every full layer's lane. */
static void bytes_of_seq(const pleat_cache *c, double *fixed, double *per_page) {
    pleat__sequence seq;
    pleat__arena arena = {0};
    pleat__cache_carve_table(c, c->opt.max_tokens, &seq.table, &arena);
    carve_seq(c, c->opt.max_tokens, &seq, &arena);
    const double page_bytes = (double)(c->page_bytes + PLEAT__POOL_BYTES_PER_PAGE);
    *fixed = (double)(arena.used_bytes + sizeof(pleat__sequence)) + (double)pleat__ring_pages(c) * page_bytes;
    *per_page = (double)pleat__n_full_lanes(c) * page_bytes;
}

/* Tokens of a lane that a sequence of budget_bytes bytes has room for, whatever it does; 0: for none. */
static uint32_t byte_tokens(const pleat_cache *c, double budget_bytes) {
    double fixed, per_page;
    bytes_of_seq(c, &fixed, &per_page);
    const double n_pages = floor((budget_bytes - fixed) / per_page);
    if (!(n_pages >= 1)) return 0;
    return (uint32_t)fmin(n_pages * c->page_tokens[PLEAT__HIGH], UINT32_MAX) - slots_lost(c);
}

/* Bytes that so many tokens need. */
static double bytes_of_budget(const pleat_cache *c, uint32_t n_tokens) {
    double fixed, per_page;
    bytes_of_seq(c, &fixed, &per_page);
    return fixed + per_page * pleat__div_up_u32(n_tokens + slots_lost(c), c->page_tokens[PLEAT__HIGH]);
}

/* A budget in bytes has room for what always stays. */
static pleat_status derive_budget(pleat_cache *c, pleat_error *err) {
    const pleat_spec *spec = &c->opt.spec;
    const uint32_t least = spec->sinks + spec->window;
    if (spec->budget.unit != PLEAT_BUDGET_BYTES) return PLEAT_OK;
    const uint32_t n_tokens = c->kept.budget.byte_tokens = byte_tokens(c, spec->budget.value);
    PLEAT_FAIL_IF(n_tokens < least, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "cache: a budget of %.0f bytes leaves a lane %u tokens, sinks=%u + window=%u need %u: allowed are "
                  "%.0f bytes and more",
                  spec->budget.value, n_tokens, spec->sinks, spec->window, least, bytes_of_budget(c, least));
    return PLEAT_OK;
}

/* ---- create -------------------------------------------------------------------------------------- */

static pleat_status derive(pleat_cache *c, pleat_error *err) {
    const pleat_spec *spec = &c->opt.spec;
    const pleat__evictor *evictor = c->kept.budget.evictor = pleat__evictor_of(spec->policy);
    pleat__scored_derive(c);
    c->traits.is_packed = spec->reclaim == PLEAT_RECLAIM_REUSE || spec->reclaim == PLEAT_RECLAIM_COPY;
    c->traits.is_bounded = c->traits.is_packed && evictor->in_generation;
    c->traits.takes_fresh = spec->reclaim == PLEAT_RECLAIM_COPY;
    PLEAT_TRY(pleat__plain_derive(c, err));
    return derive_budget(c, err);
}

static uint32_t lane_slots(const pleat_cache *c, uint32_t layer, uint32_t n_tokens, bool is_read) {
    (void)layer;
    if (!is_read || !c->traits.is_bounded) return n_tokens;
    const uint32_t budget = pleat__evict_budget(&c->opt.spec, n_tokens, c->kept.budget.byte_tokens);
    return pleat__min_u32(n_tokens, budget + 1); /* and a hole */
}

/* ---- begin --------------------------------------------------------------------------------------- */

/* What the end of a step depends on beside its counts. */
typedef struct rule {
    const pleat_spec *spec;
    const pleat__evictor *evictor;
    uint32_t n_kv_heads, page_tokens;
    uint32_t byte_tokens;
} rule;

static rule rule_of(const pleat_cache *c) {
    return (rule){&c->opt.spec, evictor_of(c), c->opt.n_kv_heads, c->page_tokens[PLEAT__HIGH],
                  c->kept.budget.byte_tokens};
}

static uint32_t most_of(const rule *r, uint32_t n_prompt) {
    return pleat__evict_max_budget(r->spec, r->n_kv_heads, n_prompt, r->byte_tokens);
}

static uint32_t max_kept(const pleat_cache *c, uint32_t n_prompt) {
    const rule r = rule_of(c);
    return most_of(&r, n_prompt);
}

/* Where replays are counted nothing is due but at their ends. */
static void end_at(const rule *r, const pleat__item_counts *n, pleat__item_end *end) {
    if (r->evictor->scoring == PLEAT__SCORING_REPLAY && !(n->flags & PLEAT_ITEM_REPLAY)) return;
    const bool is_due = pleat__scored_end(n, r->spec, end);
    const uint32_t n_after = n->n_before + n->n_new;
    end->seal = 0; /* file's head */
    if (!is_due) return;
    end->budget = pleat__evict_budget(r->spec, end->n_prompt, r->byte_tokens);
    const bool drops = end->compaction == PLEAT__COMPACT_PROMPT || r->evictor->in_generation;
    if (drops && (n_after > end->budget ||
                  pleat__moves_budgets(r->spec))) /* copying: what may be kept takes a look at every lane */
        end->n_fresh =
            pleat__reclaim_fresh(r->spec->reclaim, pleat__min_u32(most_of(r, end->n_prompt), n_after), r->page_tokens);
}

static void plan(const pleat_cache *c, const pleat__item_counts *n, pleat__item_end *end) {
    const rule r = rule_of(c);
    end_at(&r, n, end);
}

/* ---- end ----------------------------------------------------------------------------------------- */

static uint64_t end_bytes(const pleat_cache *c) {
    pleat__drop_scratch scratch;
    pleat__arena arena = {0};
    pleat__cache_carve_drop(c, &scratch, &arena);
    pleat__novelty_carve_unit(c, &scratch.novelty, &arena);
    pleat__expected_carve_unit(c, &scratch.expected, &arena);
    pleat__merge_carve_unit(c, &scratch.merge, &arena);
    return arena.used_bytes;
}

static uint32_t end_units(const pleat_cache *c) {
    return pleat__max_u32(pleat__div_up_u32(c->n_lanes, UNIT_LANES), c->opt.n_layers);
}

/* A layer at the end of a prompt, else a few lanes where the policy evicts in generation. */
static void end_unit(const pleat_cache *c, const pleat__step_item *item, uint32_t unit, pleat__arena *arena) {
    pleat__drop_scratch scratch;
    pleat__cache_carve_drop(c, &scratch, arena);
    pleat__novelty_carve_unit(c, &scratch.novelty, arena);
    pleat__expected_carve_unit(c, &scratch.expected, arena);
    pleat__merge_carve_unit(c, &scratch.merge, arena);
    if (item->end.compaction == PLEAT__COMPACT_PROMPT) {
        if (unit < c->opt.n_layers && !pleat__cache_window(c, unit)) pleat__drop_layer(c, item, unit, &scratch);
    } else if (evictor_of(c)->in_generation || pleat__scores_keys(c)) {
        const uint32_t end = pleat__min_u32((unit + 1) * UNIT_LANES, c->n_lanes);
        for (uint32_t lane = unit * UNIT_LANES; lane < end; lane++)
            if (!pleat__cache_is_ring(c, lane)) pleat__drop_one(c, item, lane, &scratch);
    }
    if (scratch.n_moved > 0) atomic_fetch_add_explicit(&item->seq->n_moved, scratch.n_moved, memory_order_relaxed);
}

/* ---- forecasts --------------------------------------------------------------------------------- */

static void forecast(const pleat_cache *c, pleat_forecast *out) { out->byte_tokens = c->kept.budget.byte_tokens; }

static rule rule_of_forecast(const pleat_forecast *f) {
    return (rule){&f->spec, pleat__evictor_of(f->spec.policy), f->n_kv_heads, f->traits.high_page_tokens,
                  f->byte_tokens};
}

static uint32_t forecast_kept(const pleat_forecast *f, uint32_t n_prompt) {
    const rule r = rule_of_forecast(f);
    return most_of(&r, n_prompt);
}

/* Where a layer's budget moves between its lanes, which have lost tokens, the last page is half full on average. */
static uint64_t pages_of(const pleat_forecast *f, const rule *r, const pleat_forecast_seq *q, bool has_lost) {
    const uint32_t n_lanes = pleat__forecast_full_lanes(f);
    if (!pleat__moves_budgets(r->spec) || !has_lost)
        return (uint64_t)n_lanes * pleat__div_up_u32(q->n_slots, r->page_tokens);
    return (uint64_t)(n_lanes * ((double)q->n_slots / r->page_tokens + 0.5));
}

/* What drop_layer or drop_one leave of a lane whose last slot does not die. */
static void drop(const pleat_forecast *f, const rule *r, const pleat__item_end *end, pleat_forecast_seq *q) {
    if (end->compaction == PLEAT__COMPACT_PROMPT) {
        q->n_live = pleat__min_u32(q->n_live, end->budget);
        if (f->traits.is_packed) q->n_slots = q->n_live;
        if (f->traits.is_packed) q->has_hole = 0;
    } else if (end->compaction == PLEAT__COMPACT_STEP && r->evictor->in_generation &&
               pleat__drop_is_due(q->n_live, end->budget)) {
        q->n_live--;
        q->has_hole = f->traits.is_packed && !f->traits.takes_fresh;
        if (f->traits.takes_fresh) q->n_slots = q->n_live;
    }
}

static void forecast_step(const pleat_forecast *f, const pleat__item_counts *n, pleat__item_end end,
                          pleat_forecast_seq *q) {
    const rule r = rule_of_forecast(f);
    const bool has_lost = q->n_live < n->n_before;
    end_at(&r, n, &end);
    q->n_classed = end.n_classed;
    q->n_live += n->n_new;
    q->n_slots = pleat__slots_grown(q->n_slots, q->has_hole, n->n_new);
    q->has_hole &= n->n_new > 1;
    q->step_pages = pages_of(f, &r, q, has_lost) + (uint64_t)pleat__forecast_full_lanes(f) * end.n_fresh;
    drop(f, &r, &end, q);
    q->n_pages = q->high_pages = pages_of(f, &r, q, q->n_live < q->n_tokens);
    q->full_pages = (double)pleat__forecast_full_lanes(f) * q->n_live / r.page_tokens;
}

/* Positions that pages from an image name are the sequence's, which novelty and merging look up in tables.  Masses are
 * what they can be. */
static bool is_intact(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, uint8_t *seen) {
    const pleat__kv_run run = pleat__cache_side(c, &seq->table, lane, PLEAT__HIGH);
    for (uint32_t first = 0; first < run.n_slots; first += run.layout->tokens)
        if (!pleat__merge_masses_are_sound(run.layout, pleat__kv_page(&run, first / run.layout->tokens))) return false;
    return pleat__scored_is_valid(c, seq, lane, seen);
}

const pleat__keep pleat__keep_budget = {
    .kind = PLEAT_LANES_BUDGET,
    .traits = {.has_policy = 1, .unshared_tokens = UINT32_MAX},
    .span_slack = 2 * PLEAT__TILE,
    .derive = derive,
    .check = pleat__novelty_check,
    .carve = pleat__novelty_carve,
    .init = pleat__novelty_init,
    .carve_seq = carve_seq,
    .open_seq = pleat__expected_open_seq,
    .end_bytes = end_bytes,
    .lane_slots = lane_slots,
    .lane_pages = pleat__plain_lane_pages,
    .max_kept = max_kept,
    .forecast = forecast,
    .forecast_step = forecast_step,
    .forecast_kept = forecast_kept,
    .plan = plan,
    .first_written = pleat__scored_first_written,
    .end_units = end_units,
    .end_unit = end_unit,
    .cancel = pleat__scored_cancel,
    .look = pleat__expected_look,
    .low_run = pleat__plain_low_run,
    .fork = fork_seq,
    .image_bytes = image_bytes,
    .image_key = pleat__novelty_image_key,
    .write_image = write_image,
    .read_image = read_image,
    .lane_is_sound = pleat__scored_lane_is_sound,
    .is_intact = is_intact,
    .find = pleat__scored_find,
    .list = pleat__scored_list,
    .is_valid = pleat__scored_is_valid,
};
