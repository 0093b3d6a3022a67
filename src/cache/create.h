/* SPDX-License-Identifier: MIT
 *
 * create.h: a cache's sizes without its memory, for questions about caches that are not there.
 */
#ifndef PLEAT_CACHE_CREATE_H
#define PLEAT_CACHE_CREATE_H

#include "cache/cache.h"

/* Everything that follows from the options without memory; `cache` is zero but for its allocator. */
pleat_status pleat__cache_derive(pleat_cache *cache, const pleat_cache_options *opt, pleat_error *err);

#endif
