/* SPDX-License-Identifier: MIT
 *
 * decode.h: the units of single tokens (decode.c).
 */
#ifndef PLEAT_CACHE_DECODE_H
#define PLEAT_CACHE_DECODE_H

#include "cache/step.h"

/* The most splits of any lane that holds n_tokens. */
uint32_t pleat__cache_max_splits(const pleat_cache *cache, uint32_t n_tokens);

/* Bytes of a worker's scratch that these units take. */
uint64_t pleat__cache_decode_bytes(const pleat_cache *cache);

/* Set the counters of the layer's lanes before their units run. */
void pleat__cache_decode_begin(const pleat__layer_job *job);

/* One split of an item's lane. */
void pleat__cache_decode_unit(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head, uint32_t split,
                              uint32_t worker);

#endif
