/* SPDX-License-Identifier: MIT
 *
 * step.c: begin, end and cancel of a step.
 *
 *     begin    check every item against its limits; plan the pages of all lanes of all items, and of copies of those that
 *              others hold too; commit if all fit
 *     end      count the new tokens; let the kind of lanes do what is due (keep/keep.h), in parallel; trim the tables;
 *              seal
 *
 * Pages that the end may need are taken at begin, so that end cannot fail.  What is not needed is returned in the
 * same step.
 */
#include <string.h>

#include "cache/decode.h"
#include "cache/fork.h"
#include "cache/keep/keep.h"
#include "cache/prompt.h"
#include "core/clock.h"
#include "core/error.h"

/* What will have to be done when this item's tokens are stored. */
static void plan_end(const pleat_cache *c, pleat__step_item *item, uint32_t flags) {
    const pleat__item_counts n = {.n_before = item->n_before,
                                  .n_new = item->is_replay ? 0 : item->n_new,
                                  .n_classed = item->seq->n_classed,
                                  .n_prompt = item->seq->n_prompt,
                                  .flags = flags};
    item->end = pleat__item_end_at(&n, &c->opt.spec);
    if (c->keep->plan) c->keep->plan(c, &n, &item->end);
}

/* One flag or none, or MORE with REPLAY. */
static bool flags_are_valid(const pleat_cache *c, const pleat_cache_item *in) {
    const uint32_t f = in->flags & ~PLEAT_ITEM_REPLAY;
    if (f == in->flags) return !(f & (f - 1)) && f <= PLEAT_ITEM_SEAL_ALL;
    return c->counting.is_peak && in->n_tokens > 1 && f <= PLEAT_ITEM_MORE;
}

/* What a step with this item would do, without beginning it. */
static pleat_status read_item(const pleat_cache *c, const pleat_cache_item *in, pleat__step_item *out) {
    pleat__sequence *seq = pleat__cache_seq(c, in->seq);
    const bool is_replay = in->flags & PLEAT_ITEM_REPLAY;
    if (!seq || in->n_tokens == 0 || !flags_are_valid(c, in) || (is_replay && seq->n_tokens == 0)) return PLEAT_E_ARG;
    if (in->n_tokens > seq->max_tokens - seq->n_tokens) return PLEAT_E_LIMIT;
    if (seq->lost) return PLEAT_E_STATE;
    *out = (pleat__step_item){.seq = seq, .n_before = seq->n_tokens, .n_new = in->n_tokens, .is_replay = is_replay};
    plan_end(c, out, in->flags);
    return PLEAT_OK;
}

/* Fill step.items from the caller's.  A failure leaves no trace but in step ids, which tell nothing outside. */
static pleat_status read_items(pleat_cache *c, const pleat_cache_item *items, uint32_t n_items) {
    uint64_t n_rows = 0;
    c->step.id++;
    for (uint32_t i = 0; i < n_items; i++) {
        PLEAT_TRY(read_item(c, &items[i], &c->step.items[i]));
        pleat__sequence *seq = c->step.items[i].seq;
        if (seq->step_id == c->step.id) return PLEAT_E_ARG;
        seq->step_id = c->step.id;
        c->step.items[i].row = (uint32_t)n_rows;
        n_rows += items[i].n_tokens;
        if (n_rows > c->opt.step_tokens) return PLEAT_E_LIMIT;
    }
    c->step.n_items = n_items;
    c->step.n_rows = (uint32_t)n_rows;
    return PLEAT_OK;
}

void pleat__cache_number_units(pleat_cache *c) {
    c->step.n_prompt_items = 0;
    c->step.walks_twice = false;
    uint32_t n_units = 0, n_tiles = 0, n_received = 0, n_strands = 0;
    for (uint32_t i = 0; i < c->step.n_items; i++) {
        pleat__step_item *item = &c->step.items[i];
        if (item->n_new > 1) {
            c->step.prompt_items[c->step.n_prompt_items++] = i;
            item->units.stage_tile = n_tiles;
            n_tiles += pleat__div_up_u32(item->n_new, PLEAT__TILE);
            item->units.n_parts = pleat__cache_prompt_parts(c, item);
            item->units.first_strand = n_strands;
            if (pleat__cache_is_scored_at_once(c, item))
                n_strands += item->units.n_parts;
            else
                c->step.walks_twice |= pleat__cache_counts(c, item);
            item->units.first_received = n_received;
            if (pleat__cache_counts(c, item)) n_received += pleat__cache_n_received(item) * c->opt.n_kv_heads;
        } else {
            /* no lane has more slots than this: its tokens, a hole, and tiles filled up on both sides */
            item->units.n_parts = pleat__cache_max_splits(c, item->n_before + item->n_new);
        }
        item->units.first = n_units;
        n_units += item->units.n_parts * c->opt.n_kv_heads;
    }
    c->step.n_units = n_units;
    c->step.n_received_units = n_received;
}

/* What every lane of the item's table wants in this step. */
static pleat__want want_of(const pleat_cache *c, const pleat__step_item *item) {
    const uint32_t n_fresh = item->end.n_fresh * c->page_tokens[PLEAT__HIGH];
    const uint32_t n_low = c->keep->low_wanted ? c->keep->low_wanted(c, item) : 0;
    pleat__want want = {.n_new = {item->n_new + n_fresh, n_low},
                        .fill_hole = item->n_new == 1,
                        .max_slots = c->max_slots,
                        .n_new_limited = item->n_new};
    memcpy(want.page_tokens, c->page_tokens, sizeof want.page_tokens);
    return want;
}

/* Pages that all lanes of the item's table need in this step. */
static uint64_t pages_needed(const pleat_cache *c, const pleat__step_item *item) {
    const pleat__want want = want_of(c, item);
    const uint32_t n_differ = c->keep->has_equal_lanes && !c->ring ? 1 : c->n_lanes; /* the others are as the first */
    uint64_t n_pages = 0;
    for (uint32_t lane = 0; lane < n_differ; lane++)
        for (int side = PLEAT__HIGH; side <= PLEAT__LOW; side++)
            n_pages += pleat__lane_need(&item->seq->table, lane, (pleat__side)side, &want);
    return n_pages * (c->n_lanes / n_differ);
}

uint64_t pleat_cache_pages_needed(const pleat_cache *c, const pleat_cache_item *in) {
    pleat__step_item item;
    if (!c || !in || c->step.is_open || read_item(c, in, &item) != PLEAT_OK) return UINT64_MAX;
    return pages_needed(c, &item) + pleat__cache_count_copies(c, &item);
}

/* A plan that does not fit: waiting helps unless some sequence needs more than the whole pool. */
static pleat_status full_or_too_small(const pleat_cache *c) {
    for (uint32_t i = 0; i < c->step.n_items; i++)
        if (c->step.items[i].seq->table.n_pages_all + pages_needed(c, &c->step.items[i]) > c->pool.n_pages)
            return PLEAT_E_LIMIT;
    return PLEAT_AGAIN;
}

/* Which of the two kinds of step pleat_cache_times counts this as. */
static int kind_of_step(const pleat_cache *c) { return c->step.n_prompt_items > 0 ? 0 : 1; }

static void note_peak(pleat__sequence *seq) {
    if (seq->table.n_pages_all > seq->n_pages_peak) seq->n_pages_peak = seq->table.n_pages_all;
}

/* Memory beside pages that the ends of the items need. */
static pleat_status reserve_all(pleat_cache *c) {
    pleat_status status = PLEAT_OK;
    for (uint32_t i = 0; c->keep->reserve && i < c->step.n_items && status == PLEAT_OK; i++)
        status = c->keep->reserve(c, c->step.items[i].seq, c->step.items[i].end.n_classed);
    for (uint32_t i = 0; status != PLEAT_OK && i < c->step.n_items; i++) c->keep->cancel(c, &c->step.items[i]);
    return status;
}

pleat_status pleat_cache_begin(pleat_cache *c, const pleat_cache_item *items, uint32_t n_items) {
    if (!c || !items || n_items == 0 || n_items > c->opt.max_items) return PLEAT_E_ARG;
    if (c->step.is_open) return PLEAT_E_STATE;
    PLEAT_TRY(read_items(c, items, n_items));
    const uint64_t start_ns = pleat__clock_ns();
    uint64_t n_copies = 0;
    pleat__plan_begin(&c->step.plan);
    for (uint32_t i = 0; i < n_items; i++) {
        n_copies += pleat__cache_count_copies(c, &c->step.items[i]);
        const pleat__want want = want_of(c, &c->step.items[i]);
        pleat__plan_add(&c->step.plan, &c->step.items[i].seq->table, &want);
    }
    if (c->step.plan.total + n_copies > c->pool.n_free) n_copies = pleat__cache_count_step_copies(c);
    if (c->step.plan.total + n_copies > c->pool.n_free) return full_or_too_small(c);
    PLEAT_TRY(reserve_all(c));
    for (uint32_t i = 0; i < n_items; i++) pleat__cache_make_copies(c, &c->step.items[i]);
    pleat__plan_commit(&c->step.plan, &c->pool);
    for (uint32_t i = 0; i < n_items && c->step.plan.total > 0; i++) note_peak(c->step.items[i].seq);
    const uint64_t end_ns = pleat__clock_ns();
    pleat__cache_number_units(c);
    c->times.pages_ns[kind_of_step(c)] += end_ns - start_ns;
    memset(c->step.stored, 0, c->opt.n_layers);
    c->step.is_open = true;
    return PLEAT_OK;
}

/* ---- the end ----------------------------------------------------------------------------------- */

/* The step's tokens count from now on in every lane. */
static void grow_seq(pleat__sequence *seq, uint32_t n_new) {
    const uint32_t n_lanes = seq->table.n_lanes;
    uint32_t *n_slots = seq->table.n_slots[PLEAT__HIGH], *hole = seq->table.hole;
    for (uint32_t i = 0; i < n_lanes; i++) n_slots[i] = pleat__slots_grown(n_slots[i], hole[i] != 0, n_new);
    if (n_new == 1) memset(hole, 0, n_lanes * sizeof *hole);
    seq->n_tokens += n_new;
}

/* Unit: a part of one item's end. */
static void end_unit(void *ctx, uint32_t unit, uint32_t worker) {
    const pleat_cache *c = ctx;
    const uint32_t n_units = c->keep->end_units(c);
    const pleat__step_item *item = &c->step.items[unit / n_units];
    pleat__arena scratch = pleat__cache_scratch(c, worker);
    if (item->end.compaction != PLEAT__COMPACT_NOT) c->keep->end_unit(c, item, unit % n_units, &scratch);
}

static void compact_all(pleat_cache *c) {
    const uint64_t start_ns = pleat__clock_ns();
    bool any = false;
    for (uint32_t i = 0; i < c->step.n_items; i++) {
        any |= c->step.items[i].end.compaction != PLEAT__COMPACT_NOT;
        c->times.tokens_moved -= c->step.items[i].seq->n_moved;
    }
    if (any) pleat_workers_run(c->opt.workers, c->step.n_items * c->keep->end_units(c), end_unit, c);
    for (uint32_t i = 0; i < c->step.n_items; i++) {
        const pleat__step_item *item = &c->step.items[i];
        item->seq->n_classed = item->end.n_classed;
        item->seq->n_prompt = item->end.n_prompt;
        c->times.tokens_moved += item->seq->n_moved;
    }
    if (!any) return;
    c->times.compact_ns[kind_of_step(c)] += pleat__clock_ns() - start_ns;
}

static void trim_all(pleat_cache *c) {
    const uint64_t start_ns = pleat__clock_ns();
    for (uint32_t i = 0; i < c->step.n_items; i++) {
        pleat__sequence *seq = c->step.items[i].seq;
        const uint64_t n_before = seq->table.n_pages_all;
        pleat__table_trim(&seq->table, c->page_tokens, &c->pool);
        seq->n_returned += n_before - seq->table.n_pages_all;
        c->times.pages_returned += n_before - seq->table.n_pages_all;
    }
    c->times.pages_ns[kind_of_step(c)] += pleat__clock_ns() - start_ns;
}

static void seal(const pleat_cache *c, const pleat__step_item *item) {
    if (item->end.seal == PLEAT_ITEM_SEAL) c->keep->seal(c, item->seq, item->seq->n_classed);
    if (item->end.seal == PLEAT_ITEM_SEAL_ALL) c->keep->seal(c, item->seq, item->seq->n_tokens);
}

pleat_status pleat_cache_end(pleat_cache *c) {
    if (!c) return PLEAT_E_ARG;
    if (!c->step.is_open || memchr(c->step.stored, 0, c->opt.n_layers)) return PLEAT_E_STATE;
    for (uint32_t i = 0; i < c->step.n_items; i++) {
        if (c->step.items[i].is_replay) continue;
        grow_seq(c->step.items[i].seq, c->step.items[i].n_new);
        if (c->ring) c->ring->grown(c, c->step.items[i].seq);
    }
    if (c->keep->end_unit) {
        compact_all(c);
        trim_all(c);
        for (uint32_t i = 0; i < c->step.n_items; i++) seal(c, &c->step.items[i]);
    }
    c->times.n_steps[kind_of_step(c)]++;
    c->step.is_open = false;
    return PLEAT_OK;
}

pleat_status pleat_cache_cancel(pleat_cache *c) {
    if (!c) return PLEAT_E_ARG;
    if (!c->step.is_open) return PLEAT_E_STATE;
    for (uint32_t i = 0; i < c->step.n_items; i++) {
        const pleat__step_item *item = &c->step.items[i];
        if (c->keep->cancel) c->keep->cancel(c, item);
        if (c->ring) c->ring->cancel(c, item);
        pleat__table_trim(&item->seq->table, c->page_tokens, &c->pool);
    }
    c->step.is_open = false;
    return PLEAT_OK;
}
