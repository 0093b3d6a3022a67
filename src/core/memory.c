/* SPDX-License-Identifier: MIT
 *
 * memory.c: see memory.h.  The only file that knows the default allocator.
 */
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

#include "core/checked.h"

static void *default_alloc(void *ctx, size_t bytes, size_t align) {
    (void)ctx;
#ifdef _WIN32
    return _aligned_malloc(bytes, align);
#else
    return aligned_alloc(align, bytes);
#endif
}

static void default_free(void *ctx, void *p, size_t bytes) {
    (void)ctx;
    (void)bytes;
#ifdef _WIN32
    _aligned_free(p);
#else
    free(p);
#endif
}

pleat_allocator pleat__allocator_or_default(const pleat_allocator *allocator) {
    if (allocator) return *allocator;
    return (pleat_allocator){.alloc = default_alloc, .free = default_free, .ctx = NULL};
}

/* Bytes that are asked for: the product, rounded up so that aligned_alloc() accepts it; 0 if it does not fit. */
static uint64_t request_bytes(uint64_t count, uint64_t bytes) {
    uint64_t total;
    if (!pleat__mul_u64(count, bytes, &total) || !pleat__align_u64(total, PLEAT__ALIGN, &total)) return 0;
    return total <= SIZE_MAX / 2 ? total : 0;
}

void *pleat__alloc(const pleat_allocator *al, uint64_t count, uint64_t bytes) {
    const uint64_t total = request_bytes(count, bytes);
    if (total == 0) return NULL;
    void *p = al->alloc(al->ctx, total, PLEAT__ALIGN);
#ifndef NDEBUG
    if (p) memset(p, 0xD0, total);
#endif
    return p;
}

void *pleat__alloc_zero(const pleat_allocator *al, uint64_t count, uint64_t bytes) {
    void *p = pleat__alloc(al, count, bytes);
    if (p) memset(p, 0, count * bytes);
    return p;
}

void pleat__free(const pleat_allocator *al, void *p, uint64_t count, uint64_t bytes) {
    if (!p) return;
    const uint64_t total = request_bytes(count, bytes);
#ifndef NDEBUG
    memset(p, 0xDF, total);
#endif
    al->free(al->ctx, p, total);
}

void *pleat__arena_take(pleat__arena *arena, uint64_t count, uint64_t bytes) {
    uint64_t total, end;
    if (!pleat__mul_u64(count, bytes, &total) || !pleat__align_u64(total, PLEAT__ALIGN, &total) ||
        !pleat__add_u64(arena->used_bytes, total, &end)) {
        arena->overflow = true;
        return NULL;
    }
    const uint64_t start = arena->used_bytes;
    if (arena->base && end > arena->cap_bytes) {
        arena->overflow = true;
        return NULL;
    }
    arena->used_bytes = end;
    return arena->base ? arena->base + start : NULL;
}
