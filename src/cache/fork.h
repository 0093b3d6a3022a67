/* SPDX-License-Identifier: MIT
 *
 * fork.h: the copies of shared pages that a sequence's step makes before it writes.
 */
#ifndef PLEAT_CACHE_FORK_H
#define PLEAT_CACHE_FORK_H

#include "cache/step.h"

/* Pages of the item's sequence that its step may write and others hold. */
uint64_t pleat__cache_count_copies(const pleat_cache *cache, const pleat__step_item *item);

/* Copies that all items of the step take together: of a page that k of them hold, and others or not, the last keeps
 * it. */
uint64_t pleat__cache_count_step_copies(pleat_cache *cache);

/* Replace these pages by copies that the sequence holds alone; as many as were counted are free. */
void pleat__cache_make_copies(pleat_cache *cache, const pleat__step_item *item);

#endif
