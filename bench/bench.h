/* SPDX-License-Identifier: MIT
 *
 * bench.h: what the programs of bench/ have in common: a clock, medians, memory in huge pages.
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static inline double bench_seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline double now_s(void) { return bench_seconds(CLOCK_MONOTONIC); }

static inline int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Leaves x in order. */
static inline double median(double *x, size_t n) {
    qsort(x, n, sizeof *x, by_value);
    return x[n / 2];
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
