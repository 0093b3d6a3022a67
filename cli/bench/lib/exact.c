/* SPDX-License-Identifier: MIT
 *
 * exact.c: see exact.h.
 */
#include "exact.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"

static int is_zero_row(const float *row, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (row[i] != 0) return 0;
    return 1;
}

void exact_attend(const float *q, const float *k, const float *v, uint32_t n, uint32_t head_dim, double *ref) {
    double max = -INFINITY, sum = 0, *weight = cli_alloc(n, sizeof *weight);
    for (uint32_t t = 0; t < n; t++) {
        const float *key = k + (size_t)t * head_dim;
        double dot = 0;
        for (uint32_t d = 0; d < head_dim; d++) dot += (double)q[d] * (double)key[d];
        weight[t] = is_zero_row(key, head_dim) ? -INFINITY : dot / sqrt((double)head_dim);
        if (weight[t] > max) max = weight[t];
    }
    memset(ref, 0, head_dim * sizeof *ref);
    for (uint32_t t = 0; t < n; t++) {
        const double w = exp(weight[t] - max);
        sum += w;
        for (uint32_t d = 0; d < head_dim; d++) ref[d] += w * (double)v[(size_t)t * head_dim + d];
    }
    for (uint32_t d = 0; d < head_dim; d++) ref[d] /= sum;
    free(weight);
}

double exact_relative_error(const float *out, const double *ref, uint32_t n) {
    double diff = 0, norm = 0;
    for (uint32_t i = 0; i < n; i++) {
        diff += ((double)out[i] - ref[i]) * ((double)out[i] - ref[i]);
        norm += ref[i] * ref[i];
    }
    return sqrt(diff / norm);
}
