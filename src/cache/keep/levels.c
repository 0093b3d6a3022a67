/* SPDX-License-Identifier: MIT
 *
 * levels.c: lanes of which a policy keeps each token high, low or not at all: leankv, and topk, which knows no low
 * side.
 *
 * When a step ends, tokens that left the window are classed (compact.c), lane by lane.  Where leankv has a low side
 * (al < ah), pages that the end may need are taken at begin, so that the end cannot fail.  That is one low page for a
 * lane whose low side is full at the end of a step of generation, two at that of a prompt.  What is not needed is returned in
 * the same step.
 */
#include "cache/keep/compact.h"
#include "cache/keep/groups.h"
#include "cache/keep/plain.h"
#include "cache/keep/scored.h"

/* Lanes of a unit: their memory's latencies overlap. */
#define UNIT_LANES 8u

/* Pages beyond those of a lane's tokens in the high format that a step may take.  Of a lane with two sides: the low
 * side's last page, which may be part-filled, and two that the end works with.  Of one with a high side alone: a
 * hole's. */
#define SPARE_PAGES_TWO_SIDED 3u
#define SPARE_PAGES_HIGH_ALONE 1u

static pleat_status derive(pleat_cache *c, pleat_error *err) {
    const bool is_two_sided = pleat__policy_has_low_side(&c->opt.spec);
    const pleat__layouts_of of = pleat__plain_layouts(c, is_two_sided);
    const bool chooses = is_two_sided && c->opt.page_tokens == 0;
    pleat__scored_derive(c);
    c->kept.levels.is_two_sided = is_two_sided;
    c->traits.spare_pages = is_two_sided ? SPARE_PAGES_TWO_SIDED : SPARE_PAGES_HIGH_ALONE;
    c->traits.can_compress = is_two_sided;
    return pleat__plain_lay_out(c, &of, chooses ? pleat__layouts_choose(&of) : pleat__plain_page_tokens(&c->opt), err);
}

/* With two sides, between steps: high and low slots together are at most the tokens and a hole, both sides end in a
 * part-filled page, and no low page holds fewer tokens than a high one. */
static uint64_t lane_pages(const pleat_cache *c, uint32_t n_slots, bool in_step) {
    const uint32_t tokens = c->page_tokens[PLEAT__HIGH];
    if (!c->kept.levels.is_two_sided) return pleat__plain_lane_pages(c, n_slots, in_step);
    if (in_step) return (uint64_t)pleat__div_up_u32(n_slots, tokens) + PLEAT__ROW_SPARE;
    return (uint64_t)pleat__div_up_u32(n_slots + 1, tokens) + 1;
}

/* ---- a step -------------------------------------------------------------------------------------- */

static void plan(const pleat_cache *c, const pleat__item_counts *n, pleat__item_end *end) {
    (void)pleat__scored_end(n, &c->opt.spec, end);
}

/* Tokens that may become low in a step of generation. */
static uint32_t most_demoted(const pleat_spec *spec) { return spec->every > 1 ? 2 * spec->every : 1; }
_Static_assert(PLEAT__LEAVERS_CAP <= PLEAT__TILE, "so a lane takes a low page at most");

/* low_slots: of a page; 0: there is no low side. */
static uint32_t low_wanted_of(const pleat_spec *spec, pleat__compaction compaction, uint32_t low_slots) {
    if (low_slots == 0 || compaction == PLEAT__COMPACT_NOT) return 0;
    return compaction == PLEAT__COMPACT_STEP ? most_demoted(spec) : 2 * low_slots;
}

static uint32_t low_slots_of(const pleat_cache *c) {
    return c->kept.levels.is_two_sided ? c->page_tokens[PLEAT__LOW] : 0;
}

static uint32_t low_wanted(const pleat_cache *c, const pleat__step_item *item) {
    return low_wanted_of(&c->opt.spec, item->end.compaction, low_slots_of(c));
}

static uint64_t end_bytes(const pleat_cache *c) {
    pleat__compact_scratch scratch;
    pleat__arena arena = {0};
    pleat__cache_carve_compact(c, &scratch, &arena);
    return arena.used_bytes;
}

static uint32_t end_units(const pleat_cache *c) { return pleat__div_up_u32(c->n_lanes, UNIT_LANES); }

/* A few lanes of one item. */
static void end_unit(const pleat_cache *c, const pleat__step_item *item, uint32_t unit, pleat__arena *arena) {
    const uint32_t first = unit * UNIT_LANES;
    uint32_t lanes[UNIT_LANES];
    const uint32_t n = pleat__full_lanes(c, first, pleat__min_u32(UNIT_LANES, c->n_lanes - first), lanes);
    pleat__compact_scratch scratch;
    pleat__cache_carve_compact(c, &scratch, arena);
    if (item->end.compaction == PLEAT__COMPACT_PROMPT) {
        for (uint32_t i = 0; i < n; i++) pleat__compact_prompt(c, item, lanes[i], &scratch);
        return;
    }
    if (c->opt.spec.every > 1) {
        for (uint32_t i = 0; i < n; i++) pleat__compact_counted(c, item, lanes[i], &scratch);
        return;
    }
    pleat__policy_step steps[UNIT_LANES];
    for (uint32_t i = 0; i < n; i++) steps[i] = pleat__compact_decide(c, item, lanes[i]);
    for (uint32_t i = 0; i < n; i++) pleat__compact_step(c, item, lanes[i], &steps[i], &scratch);
}

/* ---- forecasts --------------------------------------------------------------------------------- */

static void forecast(const pleat_cache *c, pleat_forecast *out) {
    out->low_slots = low_slots_of(c);
    out->most_high = 1;
}

static float sample_high(const pleat__lane *lane, uint32_t n_warm, uint32_t n_classed) {
    const uint32_t n_live = pleat__lane_live_high(lane);
    return (float)(n_live > n_warm ? n_live - n_warm : 0) / (float)n_classed;
}

static void forecast_step(const pleat_forecast *f, const pleat__item_counts *n, pleat__item_end end,
                          pleat_forecast_seq *q) {
    (void)pleat__scored_end(n, &f->spec, &end);
    const uint32_t n_slots = n->n_before - n->n_classed + q->has_hole,
                   low = low_wanted_of(&f->spec, end.compaction, f->low_slots);
    const pleat__group_pages open =
        pleat__groups_count(f, n->n_classed, pleat__slots_grown(n_slots, q->has_hole, n->n_new), low);
    q->has_hole &= n->n_new > 1;
    if (end.compaction != PLEAT__COMPACT_NOT) q->has_hole = end.compaction == PLEAT__COMPACT_STEP && f->spec.every <= 1;
    q->n_classed = end.n_classed;
    const pleat__group_pages left = pleat__groups_count(f, q->n_classed, q->n_tokens - q->n_classed + q->has_hole, 0);
    q->high_pages = left.high;
    q->n_pages = left.high + left.low;
    q->full_pages = left.full;
    q->step_pages = open.high + open.low > q->n_pages ? open.high + open.low : q->n_pages;
    uint64_t n_sealed = end.seal ? left.full_old : 0;
    if (end.seal == PLEAT_ITEM_SEAL_ALL) n_sealed = left.full_high + left.full_low;
    if (q->sealed_pages < n_sealed) q->sealed_pages = n_sealed;
    q->final_pages = q->still_pages = q->sealed_pages < q->n_pages ? q->sealed_pages : q->n_pages;
}

/* ---- pages that are opened again ------------------------------------------------------------------ */

static void reclass(const pleat_cache *c, pleat__sequence *seq, uint32_t lane, pleat__arena *arena) {
    pleat__compact_scratch scratch;
    pleat__cache_carve_compact(c, &scratch, arena);
    pleat__compact_again(c, seq, lane, &scratch);
}

const pleat__keep pleat__keep_levels = {
    .kind = PLEAT_LANES_LEVELS,
    .traits = {.has_policy = 1},
    .span_slack = 2 * PLEAT__TILE,
    .derive = derive,
    .end_bytes = end_bytes,
    .lane_slots = pleat__plain_lane_slots,
    .lane_pages = lane_pages,
    .forecast = forecast,
    .forecast_step = forecast_step,
    .sample_high = sample_high,
    .plan = plan,
    .low_wanted = low_wanted,
    .first_written = pleat__scored_first_written,
    .end_units = end_units,
    .end_unit = end_unit,
    .seal = pleat__scored_seal,
    .cancel = pleat__scored_cancel,
    .low_run = pleat__plain_low_run,
    .lane_is_sound = pleat__scored_lane_is_sound,
    .is_intact = pleat__scored_is_valid,
    .unseal = pleat__scored_unseal,
    .reclass = reclass,
    .find = pleat__scored_find,
    .list = pleat__scored_list,
    .is_valid = pleat__scored_is_valid,
};
