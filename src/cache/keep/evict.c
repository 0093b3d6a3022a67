/* SPDX-License-Identifier: MIT
 *
 * evict.c: see evict.h.
 *
 *     a prompt         layer by layer, since policies weigh a layer's lanes against each other
 *     a single token   lane by lane, at most one token of each
 *
 * Where the spec merges, what goes is first put into what stays (merge.h).
 *
 * The tokens' positions are cleared first, then tokens move as planned, then the row's cells are put in their new
 * order: pages that are needed no more stand behind the others, where pleat__table_trim() finds them.
 */
#include <assert.h>
#include <math.h>

#include "cache/keep/evict.h"
#include "cache/keep/expected.h"
#include "cache/keep/merge.h"
#include "cache/keep/novelty.h"

/* One lane's slots behind its sealed pages. */
typedef struct open_lane {
    const pleat_cache *c;
    pleat__table *table;
    uint32_t lane_idx;
    uint32_t n_sealed; /* pages */
    pleat__kv_run run;
} open_lane;

static open_lane open_lane_of(const pleat_cache *c, pleat__sequence *seq, uint32_t lane) {
    return (open_lane){.c = c,
                       .table = &seq->table,
                       .lane_idx = lane,
                       .n_sealed = seq->table.n_sealed[PLEAT__HIGH][lane],
                       .run = pleat__cache_open_run(c, &seq->table, lane, PLEAT__HIGH)};
}

/* The cell of the idx-th page behind the sealed ones. */
static pleat__page_id *cell_of(const open_lane *l, uint32_t idx) {
    return pleat__table_cell(l->table, l->lane_idx, PLEAT__HIGH, l->n_sealed + idx);
}

static uint8_t *page_of(const open_lane *l, uint32_t idx) {
    return pleat__cache_page(l->c, l->table, l->lane_idx, PLEAT__HIGH, l->n_sealed + idx);
}

/* ---- slots --------------------------------------------------------------------------------------------- */

/* Fresh pages are filled from the first slot on, so that no tile has a slot that was never written. */
static void move_token(const open_lane *l, pleat__reclaim_move move) {
    const pleat__page_layout *layout = l->run.layout;
    const uint32_t tokens = layout->tokens, to = move.to % tokens;
    uint8_t *page = page_of(l, move.to / tokens);
    const bool is_fresh = move.to / tokens >= pleat__div_up_u32(l->run.n_slots, tokens);
    if (is_fresh && to % PLEAT__TILE == 0) pleat__quant_clear_tile(layout, page, to / PLEAT__TILE);
    pleat__quant_copy(layout, page, to, page_of(l, move.from / tokens), move.from % tokens);
}

/* Put the row's pages into the plan's order. */
static void order_pages(const open_lane *l, const pleat__reclaim_plan *plan, pleat__page_id *ids) {
    for (uint32_t i = 0; i < plan->n_pages; i++) ids[i] = *cell_of(l, plan->pages[i]);
    for (uint32_t i = 0; i < plan->n_pages; i++) *cell_of(l, i) = ids[i];
}

static void carry_out(const open_lane *l, pleat__drop_scratch *s) {
    const pleat__reclaim_plan *plan = &s->reclaim;
    const uint32_t n_sealed = l->n_sealed * l->run.layout->tokens;
    for (uint32_t i = 0; i < plan->n_moves; i++) move_token(l, plan->moves[i]);
    order_pages(l, plan, s->pages);
    s->n_moved += plan->n_moves;
    l->table->n_slots[PLEAT__HIGH][l->lane_idx] = n_sealed + plan->n_slots;
    l->table->n_dead[l->lane_idx] = plan->n_dead - (plan->hole ? 1 : 0);
    l->table->hole[l->lane_idx] = plan->hole ? n_sealed + plan->hole : 0;
}

/* What to do with a lane's dead slots.  Were there ever too few fresh pages, they would be left where they are. */
static pleat_reclaim reclaim_how(const pleat_cache *c, const pleat__reclaim_lane *lane) {
    const pleat_reclaim how = c->opt.spec.reclaim;
    const uint32_t n_live = lane->run.n_slots - lane->n_dead;
    const bool fits = lane->n_dead == 0 || pleat__reclaim_fresh(how, n_live, lane->run.layout->tokens) <= lane->n_fresh;
    assert(fits);
    return fits ? how : PLEAT_RECLAIM_BLOCK;
}

static pleat__reclaim_lane reclaim_lane(const open_lane *l, uint32_t n_dead) {
    const uint32_t n_pages = pleat__div_up_u32(l->run.n_slots, l->run.layout->tokens);
    const uint32_t n_all = l->table->n_pages[PLEAT__HIGH][l->lane_idx] - l->n_sealed;
    return (pleat__reclaim_lane){.run = l->run, .n_dead = n_dead, .n_fresh = n_all - n_pages};
}

static uint32_t dead_slots(const open_lane *l) {
    return l->table->n_dead[l->lane_idx] + (l->table->hole[l->lane_idx] ? 1 : 0);
}

/* ---- the end of a prompt ------------------------------------------------------------------------------- */

/* Do what the verdicts say; returns the number of dead slots. */
static uint32_t clear_dropped(const open_lane *l, const uint8_t *verdicts) {
    const pleat__page_layout *layout = l->run.layout;
    const uint32_t n_marked = l->c->opt.spec.novel ? 1 : layout->n_scores;
    uint32_t n_dead = 0;
    for (uint32_t slot = 0; slot < l->run.n_slots; slot++) {
        uint8_t *page = pleat__kv_page(&l->run, slot / layout->tokens);
        const uint32_t at = slot % layout->tokens;
        if (verdicts[slot] == PLEAT__VERDICT_DROP) pleat__positions(layout, page)[at] = -1;
        n_dead += verdicts[slot] == PLEAT__VERDICT_DROP;
        for (uint32_t h = 0; verdicts[slot] == PLEAT__VERDICT_STAND && h < n_marked; h++)
            pleat__head_scores(layout, page, h)[at] = INFINITY;
    }
    return n_dead;
}

void pleat__drop_layer(const pleat_cache *c, const pleat__step_item *item, uint32_t layer, pleat__drop_scratch *s) {
    const uint32_t n_heads = c->opt.n_kv_heads, first = layer * n_heads;
    for (uint32_t head = 0; head < n_heads; head++) {
        const open_lane l = open_lane_of(c, item->seq, first + head);
        if (pleat__scores_keys(c)) pleat__novelty_of_prompt(c, item, first + head, &s->novelty);
        if (pleat__scores_leverage(c)) pleat__leverage_of_prompt(c, item, first + head, &s->novelty);
        if (pleat__expects(c)) pleat__expected_of_prompt(c, item, first + head, &s->expected);
        s->views[head] = (pleat__kv_view){.high = l.run, .n_sealed = l.n_sealed * l.run.layout->tokens};
    }
    const pleat__evict_layer args = {.spec = &item->seq->spec,
                                     .layer = pleat__full_idx(c, layer),
                                     .n_layers = c->n_full_layers,
                                     .n_lanes = n_heads,
                                     .n_tokens = item->seq->n_tokens,
                                     .budget = item->end.budget,
                                     .page_tokens = c->page_tokens[PLEAT__HIGH],
                                     .lanes = s->views};
    pleat__evict_prompt(&args, &s->evict, s->verdicts);
    for (uint32_t head = 0; head < n_heads; head++) {
        const open_lane l = open_lane_of(c, item->seq, first + head);
        const pleat__merge_lane merging = {c, &l.run, item->seq->n_tokens};
        if (c->opt.spec.merge) pleat__merge_dropped(&merging, s->verdicts[head], &s->merge);
        const pleat__reclaim_lane lane = reclaim_lane(&l, clear_dropped(&l, s->verdicts[head]));
        pleat__reclaim_many(reclaim_how(c, &lane), &lane, &s->reclaim);
        carry_out(&l, s);
    }
}

/* ---- generation ---------------------------------------------------------------------------------------- */

void pleat__drop_one(const pleat_cache *c, const pleat__step_item *item, uint32_t lane, pleat__drop_scratch *s) {
    const pleat__lane counts = pleat__table_lane(&item->seq->table, lane);
    if (pleat__scores_keys(c)) pleat__novelty_of_step(c, item, lane, &s->novelty);
    if (!pleat__drop_is_due(pleat__lane_live_high(&counts), item->end.budget)) return;
    const open_lane l = open_lane_of(c, item->seq, lane);
    const pleat__evict_lane args = {.spec = &item->seq->spec,
                                    .run = &l.run,
                                    .layer = pleat__full_idx(c, lane / c->opt.n_kv_heads),
                                    .head = lane % c->opt.n_kv_heads,
                                    .n_tokens = item->seq->n_tokens};
    const uint32_t slot = pleat__evict_victim(&args, s->ranks);
    if (slot == PLEAT__NO_SLOT) return;
    const pleat__merge_lane merging = {c, &l.run, item->seq->n_tokens};
    if (c->opt.spec.merge) pleat__merge_one(&merging, slot, &s->merge);
    const uint32_t tokens = l.run.layout->tokens;
    pleat__positions(l.run.layout, pleat__kv_page(&l.run, slot / tokens))[slot % tokens] = -1;
    const pleat__reclaim_lane view = reclaim_lane(&l, dead_slots(&l) + 1);
    pleat__reclaim_one(reclaim_how(c, &view), &view, slot, &s->reclaim);
    carry_out(&l, s);
}
