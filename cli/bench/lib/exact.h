/* SPDX-License-Identifier: MIT
 *
 * exact.h: what benchmarks hold attention against: the same in double precision, and how far off a result is.
 */
#ifndef PLEAT_CLI_EXACT_H
#define PLEAT_CLI_EXACT_H

#include <stdint.h>

/* Attention of one query q[head_dim], scaled by 1/sqrt(head_dim), to n tokens, rows of k and v; a key of zeros is no
 * token.  ref[head_dim]. */
void exact_attend(const float *q, const float *k, const float *v, uint32_t n, uint32_t head_dim, double *ref);

/* |out - ref| / |ref|, L2. */
double exact_relative_error(const float *out, const double *ref, uint32_t n);

/* *worst = the larger of both; once it is NaN it stays so. */
static inline void exact_keep_worst(double *worst, double error) {
    if (*worst == *worst && !(error <= *worst)) *worst = error;
}

#endif
