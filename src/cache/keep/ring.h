/* SPDX-License-Identifier: MIT
 *
 * ring.h: what rings take of a sequence's bytes, for rows that share these with them.
 */
#ifndef PLEAT_CACHE_KEEP_RING_H
#define PLEAT_CACHE_KEEP_RING_H

#include "cache/keep/keep.h"

/* Pages that all rings of a sequence hold at most. */
uint64_t pleat__ring_pages(const pleat_cache *cache);

#endif
