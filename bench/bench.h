/* SPDX-License-Identifier: MIT
 *
 * bench.h: what the programs of bench/kernels and bench/allocators share: the command's clock and medians
 * (cli/lib/measure.h), made-up values, and memory in huge pages.  Random numbers are the library's (core/rng.h).
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "cli/lib/measure.h"
#include "core/rng.h"

/* About normal, with mean 0 and deviation 1: a sum of three uniform variates. */
static inline float bench_noise(pleat__rng *rng) {
    return 2 * (pleat__rng_f32(rng) + pleat__rng_f32(rng) + pleat__rng_f32(rng)) - 3;
}

/* Memory that begins at a huge page, or the end of the program. */
static inline void *reserve(uint64_t bytes) {
    const uint64_t huge = (uint64_t)2 << 20;
    void *p = aligned_alloc(huge, (bytes + huge - 1) / huge * huge);
    if (!p) {
        fprintf(stderr, "bench: no memory for %llu bytes\n", (unsigned long long)bytes);
        exit(1);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

#endif
