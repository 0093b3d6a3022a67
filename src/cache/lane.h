/* SPDX-License-Identifier: MIT
 *
 * lane.h: the slots of one lane: a run of them as kernels see it, the open ones behind its seals, and storing tokens.
 *
 * The ground floor of src/cache: nothing here knows how a lane keeps its tokens, and nothing here takes a page.
 */
#ifndef PLEAT_CACHE_LANE_H
#define PLEAT_CACHE_LANE_H

#include "cache/cache.h"

/* Page `idx` of a lane's side. */
static inline uint8_t *pleat__cache_page(const pleat_cache *c, const pleat__table *table, uint32_t lane,
                                         pleat__side side, uint32_t idx) {
    return c->pages + (uint64_t)pleat__table_cell(table, lane, side, idx)->v * c->page_bytes;
}

/* The first n_slots of a lane's side. */
pleat__kv_run pleat__cache_run(const pleat_cache *cache, const pleat__table *table, uint32_t lane, pleat__side side,
                               uint32_t n_slots);

/* All slots of a lane's side. */
static inline pleat__kv_run pleat__cache_side(const pleat_cache *c, const pleat__table *table, uint32_t lane,
                                              pleat__side side) {
    return pleat__cache_run(c, table, lane, side, table->n_slots[side][lane]);
}

/* A lane's slots behind its sealed pages, of one side. */
pleat__kv_run pleat__cache_open_run(const pleat_cache *cache, const pleat__table *table, uint32_t lane,
                                    pleat__side side);

/* Write n tokens of one head into consecutive slots of a run. */
void pleat__cache_store_run(const pleat_cache *cache, const pleat__kv_run *run, uint32_t slot, uint32_t n,
                            const float *k, const float *v);

/* Store the item's new tokens of one head in its lane: in the hole, or behind its slots. */
void pleat__cache_store_item(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head);

#endif
