/* SPDX-License-Identifier: MIT
 *
 * block_writer.h: compressing the cold tokens of one layer.
 */
#ifndef PLEAT_CACHE_KEEP_BLOCK_WRITER_H
#define PLEAT_CACHE_KEEP_BLOCK_WRITER_H

#include "cache/keep/keep.h"

/* Compress the item's tokens that are due in all lanes of a layer, whose slots count the step's tokens already.  Takes
 * no page from the pool, and returns none: payloads go into the high pages that they empty, and what is left of those to
 * pleat__table_trim(). */
void pleat__write_blocks(const pleat_cache *cache, const pleat__step_item *item, uint32_t layer,
                         pleat__block_scratch *scratch);

/* All layers' at once, within the spec's promise: block by block, lane by lane. */
void pleat__write_promised_blocks(const pleat_cache *cache, const pleat__step_item *item,
                                  pleat__block_scratch *scratch);

#endif
