/* SPDX-License-Identifier: MIT
 *
 * prompt.h: the units of prompt chunks (prompt.c).
 */
#ifndef PLEAT_CACHE_PROMPT_H
#define PLEAT_CACHE_PROMPT_H

#include "cache/step.h"

/* Slots in a range of attention received: four blocks of the kernel, so that queries are made ready for enough work. */
#define PLEAT__RECEIVED_SLOTS 256u

/* Whether what slots receive from this item of two tokens or more is counted. */
bool pleat__cache_counts(const pleat_cache *cache, const pleat__step_item *item);

/* Whether that is found in the walk of attention. */
bool pleat__cache_is_scored_at_once(const pleat_cache *cache, const pleat__step_item *item);

/* Units that an item's queries of a head make: blocks of queries, or strands where it is scored at once. */
uint32_t pleat__cache_prompt_parts(const pleat_cache *cache, const pleat__step_item *item);

/* Ranges of attention received that an item's lane has at most. */
uint32_t pleat__cache_n_received(const pleat__step_item *item);

/* Bytes of a worker's scratch that these units take. */
uint64_t pleat__cache_prompt_bytes(const pleat_cache *cache);

/* Unit: one head's chunk into its pages and the staging buffer. */
void pleat__cache_prompt_store_unit(void *job, uint32_t unit, uint32_t worker);

/* One of the item's parts, for a head. */
void pleat__cache_prompt_unit(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head, uint32_t unit,
                              uint32_t worker);

/* Unit: one head's chunk into its ring, in the place of what its queries have seen. */
void pleat__cache_prompt_put_unit(void *job, uint32_t unit, uint32_t worker);

/* Unit: one range of slots, which queries of the step have attended to. */
void pleat__cache_received_unit(void *job, uint32_t unit, uint32_t worker);

#endif
