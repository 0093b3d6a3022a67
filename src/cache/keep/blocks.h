/* SPDX-License-Identifier: MIT
 *
 * blocks.h: the blocks of a lane, for whoever looks at payloads themselves.
 */
#ifndef PLEAT_CACHE_KEEP_BLOCKS_H
#define PLEAT_CACHE_KEEP_BLOCKS_H

#include "cache/keep/keep.h"

/* The blocks of a lane, of a cache that keeps cold tokens in blocks. */
pleat__block_run pleat__cache_block_run(const pleat_cache *cache, const pleat__sequence *seq, uint32_t lane);

#endif
