/* SPDX-License-Identifier: MIT
 *
 * evict.c: what a policy with a budget drops at the end of a step (policy/evict.h decides), and what becomes of the
 * slots that are left (reclaim/reclaim.h plans).
 *
 *     begin   the budget of the sequence for this step; with reclaim=copy, fresh pages for what a lane may keep
 *     end     a prompt: layer by layer, since policies weigh a layer's lanes against each other
 *             a single token: lane by lane, at most one token of each
 *
 * The tokens' positions are cleared first, then tokens move as planned, then the row's cells are put in their new
 * order: pages that are needed no more stand behind the others, where pleat__table_trim() finds them.
 */
#include <assert.h>
#include <math.h>

#include "cache/internal.h"

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
    return l->c->pages + (uint64_t)cell_of(l, idx)->v * l->c->page_bytes;
}

/* ---- budgets ------------------------------------------------------------------------------------------- */

uint32_t pleat__cache_most_budget(const pleat_cache *c, uint32_t n_prompt) {
    const pleat_spec *spec = &c->opt.spec;
    uint64_t most = pleat__evict_budget(spec, n_prompt, c->byte_tokens);
    if (spec->policy == PLEAT_POLICY_ADAKV) most *= c->opt.n_kv_heads;
    if (spec->policy == PLEAT_POLICY_PYRAMIDKV) most *= 2;
    return most < UINT32_MAX ? (uint32_t)most : UINT32_MAX;
}

/* The most that a lane of the item holds after the step. */
static uint32_t most_kept(const pleat_cache *c, const pleat__step_item *item) {
    const uint32_t n_after = item->n_before + item->n_new;
    const pleat__table *table = &item->seq->table;
    uint64_t most = pleat__cache_most_budget(c, item->n_prompt_after);
    uint32_t n_sealed = 0; /* pages */
    for (uint32_t lane = 0; lane < c->n_lanes; lane++)
        n_sealed = pleat__max_u32(n_sealed, table->n_sealed[PLEAT__HIGH][lane]);
    const uint64_t n_spared = (uint64_t)n_sealed * c->page_tokens[PLEAT__HIGH] + c->opt.spec.sinks + c->opt.spec.window;
    if (n_sealed > 0 && most < n_spared) most = n_spared; /* beside a sealed prefix these stay */
    return most < n_after ? (uint32_t)most : n_after;
}

void pleat__cache_plan_eviction(const pleat_cache *c, pleat__step_item *item) {
    const pleat_spec *spec = &c->opt.spec;
    item->budget = pleat__evict_budget(spec, item->n_prompt_after, c->byte_tokens);
    const bool is_over = item->n_before + item->n_new > item->budget || c->evictor->budgets;
    const bool may_drop = is_over && (item->compaction == PLEAT__COMPACT_PROMPT || c->evictor->in_generation);
    if (may_drop && spec->reclaim == PLEAT_RECLAIM_COPY) /* what may be kept takes a look at every lane */
        item->n_fresh = pleat__reclaim_fresh(spec->reclaim, most_kept(c, item), c->page_tokens[PLEAT__HIGH]);
}

/* Slots of a lane that hold no token of the budget: lanes of lengths of their own waste a page each at most, all others
 * have a slot for the token that comes next. */
static uint32_t slots_lost(const pleat_cache *c) {
    const bool differ = c->opt.spec.policy == PLEAT_POLICY_ADAKV || c->opt.spec.policy == PLEAT_POLICY_PYRAMIDKV;
    return differ ? c->page_tokens[PLEAT__HIGH] : 1;
}

/* Bytes of a sequence beside its pages, and of a page in every lane. */
static void bytes_of_seq(const pleat_cache *c, double *fixed, double *per_page) {
    pleat__sequence seq = {0};
    pleat__arena arena = {0};
    *fixed = (double)(pleat__cache_carve_seq(c, c->opt.max_tokens, &seq, &arena) + sizeof(pleat__sequence));
    *per_page = (double)c->n_lanes * (double)(c->page_bytes + PLEAT__POOL_BYTES_PER_PAGE);
}

uint32_t pleat__cache_byte_tokens(const pleat_cache *c, double budget_bytes) {
    double fixed, per_page;
    bytes_of_seq(c, &fixed, &per_page);
    const double n_pages = floor((budget_bytes - fixed) / per_page);
    if (!(n_pages >= 1)) return 0;
    return (uint32_t)fmin(n_pages * c->page_tokens[PLEAT__HIGH], UINT32_MAX) - slots_lost(c);
}

double pleat__cache_bytes_of_budget(const pleat_cache *c, uint32_t n_tokens) {
    double fixed, per_page;
    bytes_of_seq(c, &fixed, &per_page);
    return fixed + per_page * pleat__div_up_u32(n_tokens + slots_lost(c), c->page_tokens[PLEAT__HIGH]);
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

static void carry_out(const open_lane *l, pleat__compact_scratch *s) {
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
static pleat_reclaim way_of(const pleat_cache *c, const pleat__reclaim_lane *lane) {
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

/* Do what the verdicts say; gives the number of dead slots. */
static uint32_t clear_dropped(const open_lane *l, const uint8_t *verdicts) {
    const pleat__page_layout *layout = l->run.layout;
    uint32_t n_dead = 0;
    for (uint32_t slot = 0; slot < l->run.n_slots; slot++) {
        uint8_t *page = pleat__kv_page(&l->run, slot / layout->tokens);
        const uint32_t at = slot % layout->tokens;
        if (verdicts[slot] == PLEAT__VERDICT_DROP) pleat__positions(layout, page)[at] = -1;
        n_dead += verdicts[slot] == PLEAT__VERDICT_DROP;
        for (uint32_t h = 0; verdicts[slot] == PLEAT__VERDICT_STAND && h < layout->n_scores; h++)
            pleat__head_scores(layout, page, h)[at] = INFINITY;
    }
    return n_dead;
}

void pleat__cache_evict_layer(const pleat_cache *c, const pleat__step_item *item, uint32_t layer,
                              pleat__compact_scratch *s) {
    const uint32_t n_heads = c->opt.n_kv_heads, first = layer * n_heads;
    for (uint32_t head = 0; head < n_heads; head++) {
        const open_lane l = open_lane_of(c, item->seq, first + head);
        s->views[head] = (pleat__kv_view){.high = l.run, .n_sealed = l.n_sealed * l.run.layout->tokens};
    }
    const pleat__evict_layer args = {.spec = &item->seq->spec,
                                     .layer = layer,
                                     .n_layers = c->opt.n_layers,
                                     .n_lanes = n_heads,
                                     .n_tokens = item->seq->n_tokens,
                                     .budget = item->budget,
                                     .page_tokens = c->page_tokens[PLEAT__HIGH],
                                     .lanes = s->views};
    pleat__evict_prompt(&args, &s->evict, s->verdicts);
    for (uint32_t head = 0; head < n_heads; head++) {
        const open_lane l = open_lane_of(c, item->seq, first + head);
        const pleat__reclaim_lane lane = reclaim_lane(&l, clear_dropped(&l, s->verdicts[head]));
        pleat__reclaim_many(way_of(c, &lane), &lane, &s->reclaim);
        carry_out(&l, s);
    }
}

/* ---- generation ---------------------------------------------------------------------------------------- */

void pleat__cache_evict_lane(const pleat_cache *c, const pleat__step_item *item, uint32_t lane,
                             pleat__compact_scratch *s) {
    const pleat__lane counts = pleat__table_lane(&item->seq->table, lane);
    if (!c->evictor->in_generation || pleat__lane_live_high(&counts) <= item->budget) return;
    const open_lane l = open_lane_of(c, item->seq, lane);
    const pleat__evict_lane args = {.spec = &item->seq->spec,
                                    .run = &l.run,
                                    .layer = lane / c->opt.n_kv_heads,
                                    .head = lane % c->opt.n_kv_heads,
                                    .n_tokens = item->seq->n_tokens};
    const uint32_t slot = pleat__evict_victim(&args, s->floats);
    if (slot == PLEAT__NO_SLOT) return;
    const uint32_t tokens = l.run.layout->tokens;
    pleat__positions(l.run.layout, pleat__kv_page(&l.run, slot / tokens))[slot % tokens] = -1;
    const pleat__reclaim_lane view = reclaim_lane(&l, dead_slots(&l) + 1);
    pleat__reclaim_one(way_of(c, &view), &view, slot, &s->reclaim);
    carry_out(&l, s);
}
