/* SPDX-License-Identifier: MIT
 *
 * measure.h: what every measurement needs: a clock, the spread of repetitions, and made-up data that is the same on
 * every machine.  For the command and for the benches of kernels; needs the C library alone.
 */
#ifndef PLEAT_CLI_MEASURE_H
#define PLEAT_CLI_MEASURE_H

#include <stddef.h>
#include <stdint.h>

/* Seconds on a clock that only moves forward. */
double measure_now_s(void);

/* Least, median and greatest of some values. */
typedef struct measure_spread {
    double min, median, max;
} measure_spread;

/* The spread of n >= 1 values; sorts them.  The median of an even number is the mean of the middle two. */
measure_spread measure_spread_of(double *values, uint32_t n);

/* The median alone; sorts the values too. */
double measure_median(double *values, uint32_t n);

/* A small generator for benchmark data: splitmix64.  A seed is the first state. */
typedef struct measure_rng {
    uint64_t state;
} measure_rng;

/* The next 32 bits, all alike likely. */
uint32_t measure_rng_next(measure_rng *rng);

/* Fill out[n] with normal variates of mean 0 and variance 1. */
void measure_rng_normal(measure_rng *rng, float *out, size_t n);

#endif
