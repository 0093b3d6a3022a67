/* SPDX-License-Identifier: MIT
 *
 * step.c: begin, end and cancel of a step: the only code that changes tables and the pool while sequences live.
 *
 * begin checks every item against its limits, plans the pages of all lanes of all items, and commits only if all fit.
 */
#include <string.h>

#include "cache/internal.h"
#include "core/error.h"

/* Fill c->items from the caller's.  A failure leaves no trace but in step ids, which tell nothing outside. */
static pleat_status read_items(pleat_cache *c, const pleat_cache_item *items, uint32_t n_items) {
    uint64_t n_rows = 0;
    c->step_id++;
    for (uint32_t i = 0; i < n_items; i++) {
        pleat__sequence *seq = pleat__cache_seq(c, items[i].seq);
        if (!seq || items[i].n_tokens == 0 || seq->step_id == c->step_id) return PLEAT_E_ARG;
        seq->step_id = c->step_id;
        if (items[i].n_tokens > seq->max_tokens - seq->n_tokens) return PLEAT_E_LIMIT;
        c->items[i] = (pleat__step_item){
            .seq = seq, .n_before = seq->n_tokens, .n_new = items[i].n_tokens, .row = (uint32_t)n_rows};
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
    uint32_t n_units = 0, n_tiles = 0;
    for (uint32_t i = 0; i < c->n_items; i++) {
        pleat__step_item *item = &c->items[i];
        if (item->n_new > 1) {
            c->prompt_items[c->n_prompt_items++] = i;
            item->stage_tile = n_tiles;
            n_tiles += pleat__div_up_u32(item->n_new, PLEAT__TILE);
            item->n_cuts = pleat__div_up_u32(item->n_new, block_queries);
        } else {
            item->n_cuts = pleat__cache_n_splits(item->n_before + item->n_new);
        }
        item->first_unit = n_units;
        n_units += item->n_cuts * c->opt.n_kv_heads;
    }
    c->n_units = n_units;
}

/* A plan that does not fit: waiting helps unless some sequence needs more than the whole pool. */
static pleat_status full_or_too_small(const pleat_cache *c) {
    for (uint32_t i = 0; i < c->n_items; i++) {
        const pleat__table *table = &c->items[i].seq->table;
        uint64_t n_pages = 0;
        for (uint32_t lane = 0; lane < c->n_lanes; lane++) {
            const pleat__lane *l = &table->lanes[lane];
            n_pages += pleat__lane_high_pages(l, c->items[i].n_new, c->layout.tokens);
            n_pages += l->n_pages[PLEAT__LOW];
        }
        if (n_pages > c->pool.n_pages) return PLEAT_E_LIMIT;
    }
    return PLEAT_AGAIN;
}

pleat_status pleat_cache_begin(pleat_cache *c, const pleat_cache_item *items, uint32_t n_items) {
    if (!c || !items || n_items == 0 || n_items > c->opt.max_seqs) return PLEAT_E_ARG;
    if (c->in_step) return PLEAT_E_STATE;
    PLEAT_TRY(read_items(c, items, n_items));
    pleat__plan_begin(&c->plan);
    for (uint32_t i = 0; i < n_items; i++)
        pleat__plan_add(&c->plan, &c->items[i].seq->table, c->items[i].n_new, c->layout.tokens);
    if (!pleat__plan_fits(&c->plan, &c->pool)) return full_or_too_small(c);
    pleat__plan_commit(&c->plan, &c->pool);
    pleat__cache_number_units(c);
    memset(c->stored, 0, c->opt.n_layers);
    c->in_step = true;
    return PLEAT_OK;
}

/* The step's tokens count from now on in every lane. */
static void grow_seq(pleat__sequence *seq, uint32_t n_new) {
    for (uint32_t i = 0; i < seq->table.n_lanes; i++) seq->table.lanes[i].n_slots[PLEAT__HIGH] += n_new;
    seq->n_tokens += n_new;
}

pleat_status pleat_cache_end(pleat_cache *c) {
    if (!c) return PLEAT_E_ARG;
    if (!c->in_step || memchr(c->stored, 0, c->opt.n_layers)) return PLEAT_E_STATE;
    for (uint32_t i = 0; i < c->n_items; i++) {
        pleat__sequence *seq = c->items[i].seq;
        grow_seq(seq, c->items[i].n_new);
        if (c->plan.total == 0) continue; /* no page was taken: most steps of generation */
        const uint64_t n_pages = pleat__table_n_pages(&seq->table);
        if (n_pages > seq->n_pages_peak) seq->n_pages_peak = n_pages;
    }
    c->in_step = false;
    return PLEAT_OK;
}

pleat_status pleat_cache_cancel(pleat_cache *c) {
    if (!c) return PLEAT_E_ARG;
    if (!c->in_step) return PLEAT_E_STATE;
    for (uint32_t i = 0; i < c->n_items; i++) {
        pleat__table *table = &c->items[i].seq->table;
        for (uint32_t lane = 0; lane < c->n_lanes; lane++) {
            const uint32_t n_keep = pleat__lane_high_pages(&table->lanes[lane], 0, c->layout.tokens);
            pleat__lane_give_back(table, lane, PLEAT__HIGH, n_keep, &c->pool);
        }
    }
    c->in_step = false;
    return PLEAT_OK;
}
