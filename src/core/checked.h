/* SPDX-License-Identifier: MIT
 *
 * checked.h: sums and products of sizes that come from a file or a caller.
 *
 * Each returns false and leaves *out alone when the result does not fit.
 */
#ifndef PLEAT_CORE_CHECKED_H
#define PLEAT_CORE_CHECKED_H

#include "core/types.h"

static inline bool pleat__mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

static inline bool pleat__add_u64(uint64_t a, uint64_t b, uint64_t *out) {
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

/* Round up to a multiple of `align`, a power of two. */
static inline bool pleat__align_u64(uint64_t a, uint64_t align, uint64_t *out) {
    uint64_t r;
    if (!pleat__add_u64(a, align - 1, &r)) return false;
    *out = r & ~(align - 1);
    return true;
}

#endif
