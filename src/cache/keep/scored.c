/* SPDX-License-Identifier: MIT
 *
 * scored.c: see scored.h.
 */
#include "cache/keep/scored.h"

#include <math.h>
#include <string.h>

#include "cache/image_form.h"
#include "cache/keep/plain.h"

void pleat__scored_derive(pleat_cache *c) {
    const pleat__scoring scoring = pleat__counted_of(&c->opt.spec);
    const bool of_window = scoring == PLEAT__SCORING_WINDOW || scoring == PLEAT__SCORING_ERROR;
    c->counting = (pleat__counting){.of_prompts = scoring != PLEAT__SCORING_NONE,
                                    .of_steps = scoring == PLEAT__SCORING_MAX || scoring == PLEAT__SCORING_SUM,
                                    .is_largest = scoring == PLEAT__SCORING_MAX,
                                    .is_by_head = c->opt.spec.crush && c->n_group > 1,
                                    .first = pleat__first_counted(&c->opt.spec),
                                    .is_error = scoring == PLEAT__SCORING_ERROR,
                                    .is_peak = scoring == PLEAT__SCORING_REPLAY,
                                    .every_log2 = log2f((float)pleat__counted_every(&c->opt.spec)),
                                    .n_queries = of_window ? c->opt.spec.window : 0};
}

/* ---- a step -------------------------------------------------------------------------------------- */

bool pleat__scored_end(const pleat__item_counts *n, const pleat_spec *spec, pleat__item_end *end) {
    const uint32_t n_after = n->n_before + n->n_new, window = spec->window;
    end->seal = n->flags & (PLEAT_ITEM_SEAL | PLEAT_ITEM_SEAL_ALL);
    if ((n->flags & PLEAT_ITEM_MORE) || n_after <= window + end->n_classed) return false;
    const uint32_t n_leaving = n_after - window - end->n_classed;
    const bool is_first_prompt = n->n_prompt == 0; /* whose last part may be a single token */
    const bool is_step = n->n_new == 1 && !is_first_prompt && n_leaving <= pleat__counted_every(spec);
    if (is_step && !pleat__step_is_counted(spec, n_after)) return false;
    end->compaction = is_step ? PLEAT__COMPACT_STEP : PLEAT__COMPACT_PROMPT;
    end->n_classed = n_after - window;
    return true;
}

uint32_t pleat__scored_first_written(const pleat_cache *c, const pleat__table *table, uint32_t lane, pleat__side side) {
    if (c->layouts[side].tracked) return table->n_sealed[side][lane];
    return pleat__plain_first_written(c, table, lane, side);
}

/* A hole that the step's token has taken is a hole again. */
void pleat__scored_cancel(const pleat_cache *c, const pleat__step_item *item) {
    const pleat__table *table = &item->seq->table;
    for (uint32_t lane = 0; item->n_new == 1 && lane < c->n_lanes; lane++) {
        const uint32_t hole = table->hole[lane];
        if (!hole || pleat__cache_is_ring(c, lane)) continue;
        const pleat__kv_run run = pleat__cache_run(c, table, lane, PLEAT__HIGH, hole);
        uint8_t *page = pleat__kv_page(&run, (hole - 1) / run.layout->tokens);
        pleat__positions(run.layout, page)[(hole - 1) % run.layout->tokens] = -1;
    }
}

/* ---- seals --------------------------------------------------------------------------------------- */

/* Do all slots of a full page hold tokens before position n_final? */
static bool is_final(const pleat__page_layout *layout, uint8_t *page, uint32_t n_final) {
    const int32_t *positions = pleat__positions(layout, page);
    bool all = true;
    for (uint32_t i = 0; i < layout->tokens; i++) all &= (uint32_t)positions[i] < n_final; /* -1 is not */
    return all;
}

/* Scores of a page from sums to means, or back. */
static void average(const pleat__page_layout *layout, uint8_t *page, uint32_t n_tokens, bool to_mean) {
    const int32_t *positions = pleat__positions(layout, page);
    for (uint32_t i = 0; i < layout->n_scores * layout->tokens; i++) {
        const uint32_t position = (uint32_t)positions[i % layout->tokens];
        float *score = pleat__scores(layout, page) + i;
        *score = to_mean ? pleat__significance(*score, position, n_tokens) : *score * (float)(n_tokens - 1 - position);
    }
}

static void seal_side(const pleat_cache *c, pleat__sequence *seq, uint32_t lane, pleat__side side, uint32_t n_final) {
    const pleat__page_layout *layout = &c->layouts[side];
    pleat__table *table = &seq->table;
    const uint32_t n_full = table->n_slots[side][lane] / layout->tokens;
    uint32_t i = table->n_sealed[side][lane];
    for (; i < n_full; i++) {
        if (!layout->tracked) continue; /* low tokens, all of them classed */
        uint8_t *page = pleat__cache_page(c, table, lane, side, i);
        if (!is_final(layout, page, n_final)) break;
        average(layout, page, seq->n_tokens, true);
    }
    table->n_sealed[side][lane] = i;
}

void pleat__scored_seal(const pleat_cache *c, pleat__sequence *seq, uint32_t n_final) {
    for (uint32_t lane = 0; lane < c->n_lanes; lane++) {
        if (pleat__cache_is_ring(c, lane)) continue;
        seal_side(c, seq, lane, PLEAT__HIGH, n_final);
        seal_side(c, seq, lane, PLEAT__LOW, n_final);
    }
}

void pleat__scored_unseal(const pleat_cache *c, pleat__sequence *seq, uint32_t lane) {
    pleat__table *table = &seq->table;
    for (int s = PLEAT__HIGH; s <= PLEAT__LOW; s++) {
        const pleat__side side = (pleat__side)s;
        uint32_t *n_sealed = &table->n_sealed[side][lane];
        while (*n_sealed > 0 &&
               !pleat__pool_is_shared(&c->pool, *pleat__table_cell(table, lane, side, *n_sealed - 1))) {
            --*n_sealed;
            if (c->layouts[side].tracked)
                average(&c->layouts[side], pleat__cache_page(c, table, lane, side, *n_sealed), seq->n_tokens, false);
        }
    }
}

bool pleat__scored_lane_is_sound(const pleat_cache *c, uint32_t lane_idx, const pleat__lane *lane,
                                 const pleat__image_counts *counts) {
    (void)c, (void)lane_idx;
    return (uint64_t)lane->n_slots[PLEAT__HIGH] + lane->n_slots[PLEAT__LOW] <= (uint64_t)counts->n_tokens + 1;
}

/* ---- tokens -------------------------------------------------------------------------------------- */

static bool find_in_run(const pleat__kv_run *run, uint32_t position, pleat__token_at *out) {
    const uint32_t page_tokens = run->layout->tokens;
    for (uint32_t first = 0; first < run->n_slots; first += page_tokens) {
        uint8_t *page = pleat__kv_page(run, first / page_tokens);
        const int32_t *positions = pleat__positions(run->layout, page);
        for (uint32_t i = 0; i < pleat__min_u32(page_tokens, run->n_slots - first); i++) {
            if (positions[i] != (int32_t)position) continue;
            out->page = page;
            out->slot = i;
            return true;
        }
    }
    return false;
}

pleat__token_at pleat__scored_find(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, uint32_t position) {
    const pleat__kv_run high = pleat__cache_side(c, &seq->table, lane, PLEAT__HIGH);
    const pleat__kv_run low = pleat__cache_side(c, &seq->table, lane, PLEAT__LOW);
    pleat__token_at at = {.level = PLEAT_LEVEL_HIGH};
    if (find_in_run(&high, position, &at)) return at;
    at.level = PLEAT_LEVEL_LOW;
    if (!low.layout->tracked || find_in_run(&low, position, &at)) return at;
    return (pleat__token_at){.level = PLEAT_LEVEL_DROPPED};
}

/* Say of every token that stands on one side, and whose position is in [first, first + n_tokens), how it is kept. */
static void list_side(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, pleat__side side, uint32_t first,
                      uint32_t n_tokens, pleat_cache_token *out) {
    const pleat__kv_run run = pleat__cache_side(c, &seq->table, lane, side);
    const uint32_t page_tokens = run.layout->tokens, n_sealed = seq->table.n_sealed[side][lane];
    const bool are_sums = !pleat__is_own_score(pleat__scoring_of(&seq->spec)) && !c->counting.is_peak;
    const uint32_t first_score = are_sums ? c->counting.first : 0;
    const uint32_t end_score = are_sums || !c->counting.first ? run.layout->n_scores : c->counting.first;
    for (uint32_t slot = 0; slot < run.n_slots; slot++) {
        uint8_t *page = pleat__kv_page(&run, slot / page_tokens);
        const int32_t pos = pleat__positions(run.layout, page)[slot % page_tokens];
        if (pos < (int32_t)first || (uint32_t)pos - first >= n_tokens) continue; /* the hole's is -1 */
        float sum = 0;
        for (uint32_t h = first_score; h < end_score; h++)
            sum += pleat__head_scores(run.layout, page, h)[slot % page_tokens];
        out[(uint32_t)pos - first] = (pleat_cache_token){
            .level = side == PLEAT__HIGH ? PLEAT_LEVEL_HIGH : PLEAT_LEVEL_LOW,
            .significance = slot / page_tokens < n_sealed || !are_sums /* a mean or a score already */
                                ? sum
                                : pleat__significance(sum, (uint32_t)pos, seq->n_tokens)};
    }
}

void pleat__scored_list(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, uint32_t first,
                        uint32_t n_tokens, pleat_cache_token *out) {
    const bool low_known = c->layouts[PLEAT__LOW].tracked;
    for (uint32_t i = 0; i < n_tokens; i++)
        out[i] = (pleat_cache_token){.level = low_known ? PLEAT_LEVEL_DROPPED : PLEAT_LEVEL_LOW};
    list_side(c, seq, lane, PLEAT__HIGH, first, n_tokens, out);
    if (low_known) list_side(c, seq, lane, PLEAT__LOW, first, n_tokens, out);
}

/* ---- validity ------------------------------------------------------------------------------------ */

/* The slots of one side hold each position at most once, below n_tokens; dead are the hole and as many as are counted. */
static bool positions_are_valid(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, pleat__side side,
                                uint8_t *seen) {
    const pleat__lane l = pleat__table_lane(&seq->table, lane);
    const pleat__kv_run run = pleat__cache_side(c, &seq->table, lane, side);
    if (!run.layout->tracked) return true;
    uint32_t n_dead = 0;
    for (uint32_t slot = 0; slot < run.n_slots; slot++) {
        uint8_t *page = pleat__kv_page(&run, slot / run.layout->tokens);
        const int32_t pos = pleat__positions(run.layout, page)[slot % run.layout->tokens];
        const bool is_hole = side == PLEAT__HIGH && l.hole == slot + 1;
        if (is_hole && !c->step.is_open && pos != -1) return false;
        n_dead += !is_hole && pos == -1;
        if (is_hole || pos == -1) continue;
        if (!pleat__position_is_new(pos, seq->n_tokens, seen)) return false;
    }
    return n_dead == (side == PLEAT__HIGH ? l.n_dead : 0);
}

/* Every token that has not left the window stands in some slot; others may be dropped where low pages say so. */
bool pleat__scored_is_valid(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, uint8_t *seen) {
    const pleat__lane l = pleat__table_lane(&seq->table, lane);
    const uint32_t n_live = pleat__lane_live_high(&l) + l.n_slots[PLEAT__LOW];
    if (c->layouts[PLEAT__LOW].tracked ? n_live > seq->n_tokens : n_live != seq->n_tokens) return false;
    memset(seen, 0, seq->n_tokens);
    if (!positions_are_valid(c, seq, lane, PLEAT__HIGH, seen) || !positions_are_valid(c, seq, lane, PLEAT__LOW, seen))
        return false;
    return !memchr(seen + seq->n_classed, 0, seq->n_tokens - seq->n_classed);
}
