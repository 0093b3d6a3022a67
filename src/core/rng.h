/* SPDX-License-Identifier: MIT
 *
 * rng.h: a small reproducible generator (SplitMix64; Steele, Lea, Flood 2014): same seed, same numbers, everywhere.
 * Not for secrets.
 */
#ifndef PLEAT_CORE_RNG_H
#define PLEAT_CORE_RNG_H

#include "core/types.h"

typedef struct pleat__rng {
    uint64_t state;
} pleat__rng;

static inline uint64_t pleat__rng_u64(pleat__rng *rng) {
    uint64_t z = (rng->state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Uniform in [0, 1), 24 random bits. */
static inline float pleat__rng_f32(pleat__rng *rng) { return (float)(pleat__rng_u64(rng) >> 40) * 0x1p-24f; }

/* Uniform in [0, 1), 53 random bits. */
static inline double pleat__rng_f64(pleat__rng *rng) { return (double)(pleat__rng_u64(rng) >> 11) * 0x1p-53; }

/* Uniform in 0..n-1, n > 0; the bias is below 2^-32 for n < 2^32. */
static inline uint32_t pleat__rng_below(pleat__rng *rng, uint32_t n) {
    return (uint32_t)(((pleat__rng_u64(rng) >> 32) * n) >> 32);
}

#endif
