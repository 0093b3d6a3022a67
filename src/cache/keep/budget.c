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
 * sequence and the slot of the hole.
 */
#include <math.h>

#include "cache/keep/evict.h"
#include "cache/keep/plain.h"
#include "cache/keep/scored.h"
#include "core/error.h"

/* Lanes of a unit in generation: their memory's latencies overlap. */
#define UNIT_LANES 8u

static const pleat__evictor *evictor_of(const pleat_cache *c) { return c->kept.budget.evictor; }

/* ---- budgets in bytes ---------------------------------------------------------------------------- */

/* Slots of a lane that hold no token of the budget: lanes of lengths of their own waste a page each at most, all others
 * have a slot for the token that comes next. */
static uint32_t slots_lost(const pleat_cache *c) { return evictor_of(c)->budgets ? c->page_tokens[PLEAT__HIGH] : 1; }

/* Bytes of a sequence beside its pages, and of a page in every lane. */
static void bytes_of_seq(const pleat_cache *c, double *fixed, double *per_page) {
    pleat__table table;
    pleat__arena arena = {0};
    pleat__cache_carve_table(c, c->opt.max_tokens, &table, &arena);
    *fixed = (double)(arena.used_bytes + sizeof(pleat__sequence));
    *per_page = (double)c->n_lanes * (double)(c->page_bytes + PLEAT__POOL_BYTES_PER_PAGE);
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

static uint32_t max_kept(const pleat_cache *c, uint32_t n_prompt) {
    return pleat__evict_max_budget(&c->opt.spec, c->opt.n_kv_heads, n_prompt, c->kept.budget.byte_tokens);
}

static void forecast(const pleat_cache *c, pleat_forecast *out) {
    out->kind = PLEAT_LANES_BUDGET;
    out->byte_tokens = c->kept.budget.byte_tokens;
    out->evicts_always = evictor_of(c)->in_generation;
    out->has_shares = evictor_of(c)->budgets != NULL;
}

/* ---- begin --------------------------------------------------------------------------------------- */

/* The most that a lane of the item holds after the step. */
static uint32_t max_kept_of(const pleat_cache *c, const pleat__step_item *item) {
    return pleat__min_u32(max_kept(c, item->end.n_prompt), item->n_before + item->n_new);
}

static void plan(const pleat_cache *c, pleat__step_item *item, uint32_t flags) {
    const pleat__evictor *evictor = evictor_of(c);
    const bool is_due = pleat__scored_plan(c, item, flags);
    item->end.seal = 0; /* file's head */
    if (!is_due) return;
    item->end.budget = pleat__evict_budget(&c->opt.spec, item->end.n_prompt, c->kept.budget.byte_tokens);
    const bool is_over = item->n_before + item->n_new > item->end.budget || evictor->budgets;
    const bool may_drop = is_over && (item->end.compaction == PLEAT__COMPACT_PROMPT || evictor->in_generation);
    if (may_drop && c->traits.takes_fresh) /* what may be kept takes a look at every lane */
        item->end.n_fresh = pleat__cache_fresh_pages(c, max_kept_of(c, item));
}

/* ---- end ----------------------------------------------------------------------------------------- */

static uint64_t end_bytes(const pleat_cache *c) {
    pleat__drop_scratch scratch;
    pleat__arena arena = {0};
    pleat__cache_carve_drop(c, &scratch, &arena);
    return arena.used_bytes;
}

static uint32_t end_units(const pleat_cache *c) {
    return pleat__max_u32(pleat__div_up_u32(c->n_lanes, UNIT_LANES), c->opt.n_layers);
}

/* A layer at the end of a prompt, else a few lanes where the policy evicts in generation. */
static void end_unit(const pleat_cache *c, const pleat__step_item *item, uint32_t unit, pleat__arena *arena) {
    pleat__drop_scratch scratch;
    pleat__cache_carve_drop(c, &scratch, arena);
    if (item->end.compaction == PLEAT__COMPACT_PROMPT) {
        if (unit < c->opt.n_layers) pleat__drop_layer(c, item, unit, &scratch);
    } else if (evictor_of(c)->in_generation) {
        const uint32_t end = pleat__min_u32((unit + 1) * UNIT_LANES, c->n_lanes);
        for (uint32_t lane = unit * UNIT_LANES; lane < end; lane++) pleat__drop_one(c, item, lane, &scratch);
    }
    if (scratch.n_moved > 0) atomic_fetch_add_explicit(&item->seq->n_moved, scratch.n_moved, memory_order_relaxed);
}

const pleat__keep pleat__keep_budget = {
    .traits = {.has_policy = 1, .unshared_tokens = UINT32_MAX},
    .span_slack = 2 * PLEAT__TILE,
    .derive = derive,
    .end_bytes = end_bytes,
    .lane_slots = lane_slots,
    .lane_pages = pleat__plain_lane_pages,
    .max_kept = max_kept,
    .forecast = forecast,
    .plan = plan,
    .first_written = pleat__scored_first_written,
    .end_units = end_units,
    .end_unit = end_unit,
    .cancel = pleat__scored_cancel,
    .low_run = pleat__plain_low_run,
    .lane_is_sound = pleat__scored_lane_is_sound,
    .find = pleat__scored_find,
    .list = pleat__scored_list,
    .is_valid = pleat__scored_is_valid,
};
