/* SPDX-License-Identifier: MIT
 *
 * measure.c: see measure.h.
 */
#include "measure.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

double measure_now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

measure_spread measure_spread_of(double *values, uint32_t n) {
    qsort(values, n, sizeof *values, compare_doubles);
    const double median = n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
    return (measure_spread){values[0], median, values[n - 1]};
}

double measure_median(double *values, uint32_t n) { return measure_spread_of(values, n).median; }

uint32_t measure_rng_next(measure_rng *rng) {
    /* splitmix64 (Steele, Lea, Flood 2014) */
    uint64_t z = rng->state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (uint32_t)((z ^ (z >> 31)) >> 32);
}

void measure_rng_normal(measure_rng *rng, float *out, size_t n) {
    const double two_pi = 6.283185307179586;
    for (size_t i = 0; i < n; i += 2) { /* Box-Muller: two variates from two uniforms */
        const double u = (measure_rng_next(rng) + 1.0) / 4294967297.0;
        const double angle = two_pi * measure_rng_next(rng) / 4294967296.0;
        const double radius = sqrt(-2.0 * log(u));
        out[i] = (float)(radius * cos(angle));
        if (i + 1 < n) out[i + 1] = (float)(radius * sin(angle));
    }
}
