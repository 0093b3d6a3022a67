/* SPDX-License-Identifier: MIT
 *
 * rd.h: what a cache of the compressor rd holds beside sequences: for each full lane its steps, columns and mean key
 * (codec/rd.h), made from the model's statistics when the cache is created.
 */
#ifndef PLEAT_CACHE_KEEP_RD_H
#define PLEAT_CACHE_KEEP_RD_H

#include "cache/keep/keep.h"

/* Are the options' statistics there, and of such a model? */
pleat_status pleat__keep_rd_check(const pleat_cache_options *opt, pleat_error *err);

void pleat__keep_rd_carve(pleat_cache *cache, pleat__arena *arena);
void pleat__keep_rd_init(pleat_cache *cache, const pleat_cache_options *opt);

#endif
