/* SPDX-License-Identifier: MIT
 *
 * memory.h: allocation through the caller's allocator, and the carving of one block into many arrays.
 *
 * Objects ask for all their memory when they are created.  An object with several arrays computes its need with
 * an arena in counting mode (base NULL), allocates once, and runs the same carving code again on the block:
 *
 *     pleat__arena a = {0};               carve(&a, obj);     counts
 *     block = pleat__alloc(&al, 1, a.used_bytes);
 *     a = (pleat__arena){.base = block, .cap_bytes = n};  carve(&a, obj);     hands out
 */
#ifndef PLEAT_CORE_MEMORY_H
#define PLEAT_CORE_MEMORY_H

#include "core/types.h"

/* *allocator, or the default one when it is NULL. */
pleat_allocator pleat__allocator_or_default(const pleat_allocator *allocator);

/* `count` elements of `bytes` each, aligned to PLEAT__ALIGN, not cleared (0xD0 in debug builds).  NULL when the product
 * does not fit or the allocator refuses.  count and bytes may not be 0. */
void *pleat__alloc(const pleat_allocator *al, uint64_t count, uint64_t bytes);

/* Like pleat__alloc(), but cleared. */
void *pleat__alloc_zero(const pleat_allocator *al, uint64_t count, uint64_t bytes);

/* Return what pleat__alloc(al, count, bytes) returned.  NULL is fine. */
void pleat__free(const pleat_allocator *al, void *p, uint64_t count, uint64_t bytes);

/* A block that is carved from its start.  used_bytes <= cap_bytes unless base is NULL; overflow says that a size
 * did not fit into 64 bits or the block. */
typedef struct pleat__arena {
    uint8_t *base;
    uint64_t cap_bytes;
    uint64_t used_bytes;
    bool overflow;
} pleat__arena;

/* The next `count` elements of `bytes` each, aligned to PLEAT__ALIGN; NULL while counting and on overflow. */
void *pleat__arena_take(pleat__arena *arena, uint64_t count, uint64_t bytes);

#endif
