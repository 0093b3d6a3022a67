/* SPDX-License-Identifier: MIT
 *
 * plain.h: what lanes do whose tokens stand in the order of positions and have no scores; other kinds take from it what
 * is the same for them.
 */
#ifndef PLEAT_CACHE_KEEP_PLAIN_H
#define PLEAT_CACHE_KEEP_PLAIN_H

#include "cache/keep/keep.h"
#include "cache/layouts.h"

/* What layouts depend on in this cache. */
pleat__layouts_of pleat__plain_layouts(const pleat_cache *cache, bool is_two_sided);

/* Tokens of a page that the options name, or the default for them. */
uint32_t pleat__plain_page_tokens(const pleat_cache_options *opt);

/* Set the cache's layouts to those of `tokens` high tokens a page.  PLEAT_E_ARG, saying why. */
pleat_status pleat__plain_lay_out(pleat_cache *cache, const pleat__layouts_of *of, uint32_t tokens, pleat_error *err);

pleat_status pleat__plain_derive(pleat_cache *cache, pleat_error *err);
uint32_t pleat__plain_lane_slots(const pleat_cache *cache, uint32_t layer, uint32_t n_tokens, bool is_read);
uint64_t pleat__plain_lane_pages(const pleat_cache *cache, uint32_t n_slots, bool in_step);
uint32_t pleat__plain_first_written(const pleat_cache *cache, const pleat__table *table, uint32_t lane,
                                    pleat__side side);
pleat__kv_run pleat__plain_low_run(const pleat_cache *cache, const pleat__sequence *seq, uint32_t lane,
                                   pleat__block_run *blocks);
bool pleat__plain_lane_is_sound(const pleat_cache *cache, uint32_t lane_idx, const pleat__lane *lane,
                                const pleat__image_counts *counts);

/* The token in a high slot of the lane. */
pleat__token_at pleat__plain_token(const pleat_cache *cache, const pleat__sequence *seq, uint32_t lane, uint32_t slot);
pleat__token_at pleat__plain_find(const pleat_cache *cache, const pleat__sequence *seq, uint32_t lane,
                                  uint32_t position);
void pleat__plain_list(const pleat_cache *cache, const pleat__sequence *seq, uint32_t lane, uint32_t first,
                       uint32_t n_tokens, pleat_cache_token *out);
bool pleat__plain_is_valid(const pleat_cache *cache, const pleat__sequence *seq, uint32_t lane, uint8_t *scratch);

#endif
