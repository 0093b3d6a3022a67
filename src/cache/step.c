/* SPDX-License-Identifier: MIT
 *
 * step.c: begin, end and cancel of a step: the only code that takes pages from the pool and, but for close, returns them.
 *
 *     begin    check every item against its limits; plan the pages of all lanes of all items, and of copies of those that
 *              others hold too; commit if all fit
 *     end      count the new tokens; let the policy act on each lane (compact.c, lanes in parallel), or compress what is
 *              due layer by layer (blocks.c, layers in parallel); trim the tables; seal
 *
 * Pages that the policy may need at the end are taken at begin, so that end cannot fail: one low page for a lane whose low
 * side is full when one token leaves the window, two when several do.  What is not needed goes back in the same step.
 */
#include <string.h>

#include "cache/internal.h"
#include "core/clock.h"
#include "core/error.h"

/* What the policy will have to do when this item's tokens are stored. */
static void plan_compaction(const pleat_cache *c, pleat__step_item *item, uint32_t flags) {
    const uint32_t n_after = item->n_before + item->n_new, window = c->opt.spec.window;
    /* Its last part may be a single token. */
    const bool ends_prompt = !(flags & PLEAT_ITEM_MORE) && (item->n_new > 1 || item->seq->n_prompt == 0 ||
                                                            n_after > window + item->seq->n_classed + 1);
    item->compaction = PLEAT__COMPACT_NOT;
    item->n_prompt_after = ends_prompt ? n_after : item->seq->n_prompt;
    item->seal = c->tracked ? flags & (PLEAT_ITEM_SEAL | PLEAT_ITEM_SEAL_ALL) : 0;
    item->n_classed_after = item->seq->n_classed;
    if (c->has_blocks && !(flags & PLEAT_ITEM_MORE)) {
        item->n_classed_after += pleat__cache_count_blocked(c, item->n_classed_after, n_after);
        if (item->n_classed_after > item->seq->n_classed) item->compaction = PLEAT__COMPACT_PROMPT;
    }
    if (!c->tracked || (flags & PLEAT_ITEM_MORE) || n_after <= window + item->n_classed_after) return;
    const uint32_t n_leaving = n_after - window - item->n_classed_after;
    item->compaction = n_leaving == 1 && item->n_new == 1 ? PLEAT__COMPACT_STEP : PLEAT__COMPACT_PROMPT;
    item->n_classed_after = n_after - window;
    if (c->evictor) pleat__cache_plan_eviction(c, item);
}

pleat_status pleat__cache_read_item(const pleat_cache *c, const pleat_cache_item *in, pleat__step_item *out) {
    pleat__sequence *seq = pleat__cache_seq(c, in->seq);
    const uint32_t f = in->flags; /* one of them or none */
    if (!seq || in->n_tokens == 0 || (f & (f - 1)) || f > PLEAT_ITEM_SEAL_ALL) return PLEAT_E_ARG;
    if (in->n_tokens > seq->max_tokens - seq->n_tokens) return PLEAT_E_LIMIT;
    if (seq->lost) return PLEAT_E_STATE;
    *out = (pleat__step_item){.seq = seq, .n_before = seq->n_tokens, .n_new = in->n_tokens};
    plan_compaction(c, out, in->flags);
    return PLEAT_OK;
}

/* Fill c->items from the caller's.  A failure leaves no trace but in step ids, which tell nothing outside. */
static pleat_status read_items(pleat_cache *c, const pleat_cache_item *items, uint32_t n_items) {
    uint64_t n_rows = 0;
    c->step_id++;
    for (uint32_t i = 0; i < n_items; i++) {
        PLEAT_TRY(pleat__cache_read_item(c, &items[i], &c->items[i]));
        pleat__sequence *seq = c->items[i].seq;
        if (seq->step_id == c->step_id) return PLEAT_E_ARG;
        seq->step_id = c->step_id;
        c->items[i].row = (uint32_t)n_rows;
        n_rows += items[i].n_tokens;
        if (n_rows > c->opt.step_tokens) return PLEAT_E_LIMIT;
    }
    c->n_items = n_items;
    c->n_rows = (uint32_t)n_rows;
    return PLEAT_OK;
}

void pleat__cache_number_units(pleat_cache *c) {
    const uint32_t block_queries = pleat__cache_block_queries(c);
    c->n_prompt_items = 0;
    uint32_t n_units = 0, n_tiles = 0, n_given = 0;
    for (uint32_t i = 0; i < c->n_items; i++) {
        pleat__step_item *item = &c->items[i];
        if (item->n_new > 1) {
            c->prompt_items[c->n_prompt_items++] = i;
            item->stage_tile = n_tiles;
            n_tiles += pleat__div_up_u32(item->n_new, PLEAT__TILE);
            item->n_cuts = pleat__div_up_u32(item->n_new, block_queries);
            item->first_given = n_given;
            n_given += pleat__cache_n_given(item) * c->opt.n_kv_heads;
        } else {
            /* no lane has more slots than this: its tokens, a hole, and tiles filled up on both sides */
            item->n_cuts = pleat__cache_most_splits(c, item->n_before + item->n_new);
        }
        item->first_unit = n_units;
        n_units += item->n_cuts * c->opt.n_kv_heads;
    }
    c->n_units = n_units;
    c->n_given_units = c->scoring != PLEAT__SCORING_NONE ? n_given : 0;
}

pleat__want pleat__cache_want(const pleat_cache *c, const pleat__step_item *item) {
    const uint32_t n_fresh = item->n_fresh * c->page_tokens[PLEAT__HIGH];
    pleat__want want = {
        .n_new = {item->n_new + n_fresh, 0}, .fill_hole = item->n_new == 1, .most_slots = c->most_slots};
    memcpy(want.page_tokens, c->page_tokens, sizeof want.page_tokens);
    if (c->two_sided && item->compaction == PLEAT__COMPACT_STEP) want.n_new[PLEAT__LOW] = 1;
    if (c->two_sided && item->compaction == PLEAT__COMPACT_PROMPT)
        want.n_new[PLEAT__LOW] = 2 * c->page_tokens[PLEAT__LOW];
    return want;
}

uint64_t pleat__cache_need(const pleat_cache *c, const pleat__step_item *item) {
    const pleat__want want = pleat__cache_want(c, item);
    const uint32_t n_differ = c->tracked || c->windows ? c->n_lanes : 1; /* else all lanes are as the first */
    uint64_t n_pages = 0;
    for (uint32_t lane = 0; lane < n_differ; lane++)
        for (int side = PLEAT__HIGH; side <= PLEAT__LOW; side++)
            n_pages += pleat__lane_need(&item->seq->table, lane, (pleat__side)side, &want);
    return n_pages * (c->n_lanes / n_differ);
}

uint64_t pleat_cache_pages_needed(const pleat_cache *c, const pleat_cache_item *in) {
    pleat__step_item item;
    if (!c || !in || c->in_step || pleat__cache_read_item(c, in, &item) != PLEAT_OK) return UINT64_MAX;
    return pleat__cache_need(c, &item) + pleat__cache_count_copies(c, &item);
}

/* A plan that does not fit: waiting helps unless some sequence needs more than the whole pool. */
static pleat_status full_or_too_small(const pleat_cache *c) {
    for (uint32_t i = 0; i < c->n_items; i++)
        if (c->items[i].seq->table.n_pages_all + pleat__cache_need(c, &c->items[i]) > c->pool.n_pages)
            return PLEAT_E_LIMIT;
    return PLEAT_AGAIN;
}

/* Which of the two kinds of step pleat_cache_times counts this as. */
static int kind_of_step(const pleat_cache *c) { return c->n_prompt_items > 0 ? 0 : 1; }

static void note_peak(pleat__sequence *seq) {
    if (seq->table.n_pages_all > seq->n_pages_peak) seq->n_pages_peak = seq->table.n_pages_all;
}

pleat_status pleat_cache_begin(pleat_cache *c, const pleat_cache_item *items, uint32_t n_items) {
    if (!c || !items || n_items == 0 || n_items > c->opt.max_items) return PLEAT_E_ARG;
    if (c->in_step) return PLEAT_E_STATE;
    PLEAT_TRY(read_items(c, items, n_items));
    const uint64_t start_ns = pleat__clock_ns();
    uint64_t n_copies = 0;
    pleat__plan_begin(&c->plan);
    for (uint32_t i = 0; i < n_items; i++) {
        n_copies += pleat__cache_count_copies(c, &c->items[i]);
        const pleat__want want = pleat__cache_want(c, &c->items[i]);
        pleat__plan_add(&c->plan, &c->items[i].seq->table, &want);
    }
    if (c->plan.total + n_copies > c->pool.n_free) n_copies = pleat__cache_count_step_copies(c);
    if (c->plan.total + n_copies > c->pool.n_free) return full_or_too_small(c);
    for (uint32_t i = 0; i < n_items; i++) pleat__cache_make_copies(c, &c->items[i]);
    pleat__plan_commit(&c->plan, &c->pool);
    for (uint32_t i = 0; i < n_items && c->plan.total > 0; i++) note_peak(c->items[i].seq);
    const uint64_t end_ns = pleat__clock_ns();
    pleat__cache_number_units(c);
    c->times.pages_ns[kind_of_step(c)] += end_ns - start_ns;
    memset(c->stored, 0, c->opt.n_layers);
    c->in_step = true;
    return PLEAT_OK;
}

/* ---- the end ----------------------------------------------------------------------------------- */

/* The step's tokens count from now on in every lane. */
static void grow_seq(pleat__sequence *seq, uint32_t n_new) {
    const uint32_t n_lanes = seq->table.n_lanes;
    uint32_t *n_slots = seq->table.n_slots[PLEAT__HIGH], *hole = seq->table.hole;
    for (uint32_t i = 0; i < n_lanes && n_new == 1; i++) n_slots[i] -= hole[i] != 0; /* the token takes the hole */
    for (uint32_t i = 0; i < n_lanes; i++) n_slots[i] += n_new;
    if (n_new == 1) memset(hole, 0, n_lanes * sizeof *hole);
    seq->n_tokens += n_new;
}

/* Lanes of a unit: their memory's latencies overlap. */
#define UNIT_LANES 8u

static uint32_t units_of_item(const pleat_cache *c) {
    const uint32_t n_units = pleat__div_up_u32(c->n_lanes, UNIT_LANES);
    if (c->has_blocks) return c->opt.n_layers;
    return c->evictor ? pleat__max_u32(n_units, c->opt.n_layers) : n_units;
}

/* A layer at the end of a prompt, else a few lanes. */
static void evict_unit(const pleat_cache *c, const pleat__step_item *item, uint32_t unit,
                       pleat__compact_scratch *scratch) {
    if (item->compaction == PLEAT__COMPACT_PROMPT) {
        if (unit < c->opt.n_layers) pleat__cache_evict_layer(c, item, unit, scratch);
    } else {
        const uint32_t end = pleat__min_u32((unit + 1) * UNIT_LANES, c->n_lanes);
        for (uint32_t lane = unit * UNIT_LANES; lane < end; lane++) pleat__cache_evict_lane(c, item, lane, scratch);
    }
    if (scratch->n_moved > 0) atomic_fetch_add_explicit(&item->seq->n_moved, scratch->n_moved, memory_order_relaxed);
}

/* Unit: a few lanes of one item, or one of its layers. */
static void compact_unit(void *ctx, uint32_t unit, uint32_t worker) {
    const pleat_cache *c = ctx;
    const pleat__step_item *item = &c->items[unit / units_of_item(c)];
    if (item->compaction == PLEAT__COMPACT_NOT) return;
    pleat__arena arena = {.base = pleat__cache_scratch(c, worker), .cap_bytes = c->worker_scratch_bytes};
    if (c->has_blocks) {
        pleat__block_scratch blocks;
        pleat__cache_carve_blocks(c, &blocks, &arena);
        pleat__cache_compress_layer(c, item, unit % units_of_item(c), &blocks);
        return;
    }
    pleat__compact_scratch scratch;
    pleat__cache_carve_compact(c, &scratch, &arena);
    if (c->evictor) {
        evict_unit(c, item, unit % units_of_item(c), &scratch);
        return;
    }
    const uint32_t first = unit % units_of_item(c) * UNIT_LANES, n = pleat__min_u32(UNIT_LANES, c->n_lanes - first);
    if (item->compaction == PLEAT__COMPACT_PROMPT) {
        for (uint32_t i = 0; i < n; i++) pleat__cache_compact_lane(c, item, first + i, &scratch);
        return;
    }
    pleat__policy_step steps[UNIT_LANES];
    for (uint32_t i = 0; i < n; i++) steps[i] = pleat__cache_decide_lane(c, item, first + i);
    for (uint32_t i = 0; i < n; i++) pleat__cache_step_lane(c, item, first + i, &steps[i], &scratch);
}

static void compact_all(pleat_cache *c) {
    const uint64_t start_ns = pleat__clock_ns();
    bool any = false;
    for (uint32_t i = 0; i < c->n_items; i++) {
        any |= c->items[i].compaction != PLEAT__COMPACT_NOT;
        c->n_moved -= c->items[i].seq->n_moved;
    }
    if (any) pleat_workers_run(c->opt.workers, c->n_items * units_of_item(c), compact_unit, c);
    for (uint32_t i = 0; i < c->n_items; i++) {
        c->items[i].seq->n_classed = c->items[i].n_classed_after;
        c->items[i].seq->n_prompt = c->items[i].n_prompt_after;
        c->n_moved += c->items[i].seq->n_moved;
    }
    if (!any) return;
    c->times.compact_ns[kind_of_step(c)] += pleat__clock_ns() - start_ns;
}

static void trim_all(pleat_cache *c) {
    const uint64_t start_ns = pleat__clock_ns();
    for (uint32_t i = 0; i < c->n_items; i++) {
        pleat__sequence *seq = c->items[i].seq;
        const uint64_t n_before = seq->table.n_pages_all;
        pleat__table_trim(&seq->table, c->page_tokens, &c->pool);
        seq->n_returned += n_before - seq->table.n_pages_all;
        c->n_returned += n_before - seq->table.n_pages_all;
    }
    c->times.pages_ns[kind_of_step(c)] += pleat__clock_ns() - start_ns;
}

static void seal(const pleat_cache *c, const pleat__step_item *item) {
    if (item->seal == PLEAT_ITEM_SEAL) pleat__cache_seal(c, item->seq, item->seq->n_classed);
    if (item->seal == PLEAT_ITEM_SEAL_ALL) pleat__cache_seal(c, item->seq, item->seq->n_tokens);
}

pleat_status pleat_cache_end(pleat_cache *c) {
    if (!c) return PLEAT_E_ARG;
    if (!c->in_step || memchr(c->stored, 0, c->opt.n_layers)) return PLEAT_E_STATE;
    for (uint32_t i = 0; i < c->n_items; i++) {
        grow_seq(c->items[i].seq, c->items[i].n_new);
        if (c->windows) pleat__cache_turn_rings(c, c->items[i].seq);
    }
    if (c->tracked || c->has_blocks) {
        compact_all(c);
        trim_all(c);
        for (uint32_t i = 0; i < c->n_items; i++) seal(c, &c->items[i]);
    }
    c->times.n_steps[kind_of_step(c)]++;
    c->in_step = false;
    return PLEAT_OK;
}

/* A hole that the step's token has taken is a hole again. */
static void reopen_holes(const pleat_cache *c, const pleat__table *table) {
    for (uint32_t lane = 0; lane < c->n_lanes; lane++) {
        const uint32_t hole = table->hole[lane];
        if (!hole) continue;
        const pleat__kv_run run = pleat__cache_run(c, table, lane, PLEAT__HIGH, hole);
        uint8_t *page = pleat__kv_page(&run, (hole - 1) / run.layout->tokens);
        pleat__positions(run.layout, page)[(hole - 1) % run.layout->tokens] = -1;
    }
}

pleat_status pleat_cache_cancel(pleat_cache *c) {
    if (!c) return PLEAT_E_ARG;
    if (!c->in_step) return PLEAT_E_STATE;
    for (uint32_t i = 0; i < c->n_items; i++) {
        pleat__table *table = &c->items[i].seq->table;
        if (c->tracked && c->items[i].n_new == 1) reopen_holes(c, table);
        c->items[i].seq->lost |= pleat__cache_ring_is_torn(c, &c->items[i]);
        pleat__table_trim(table, c->page_tokens, &c->pool);
    }
    c->in_step = false;
    return PLEAT_OK;
}
