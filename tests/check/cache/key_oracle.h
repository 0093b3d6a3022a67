/* SPDX-License-Identifier: MIT
 *
 * key_oracle.h: keys as they were before RoPE, and how far they stand out: what novelty.h and leverage.h say, one by one in
 * double precision.
 */
#ifndef TESTS_CHECK_CACHE_KEY_ORACLE_H
#define TESTS_CHECK_CACHE_KEY_ORACLE_H

#include <math.h>
#include <string.h>

#include "policy_rig.h"

/* A vector of a layer, turned back from a position by hand, or turned to it: way -1 or 1. */
static inline void oracle_turn(uint32_t layer, double position, int way, double *u) {
    const pleat_rope *rope = cache_rope(layer, D);
    for (uint32_t i = 0; rope && i < rope->n_dims / 2; i++) {
        const uint32_t first = rope->is_halves ? i : 2 * i, other = rope->is_halves ? i + rope->n_dims / 2 : 2 * i + 1;
        const double angle = position * rope->frequencies[i] * way, x = u[first], y = u[other];
        const double size = way < 0 ? 1 / (double)rope->magnitude : (double)rope->magnitude;
        u[first] = (x * cos(angle) - y * sin(angle)) * size;
        u[other] = (y * cos(angle) + x * sin(angle)) * size;
    }
}

/* The key of a lane at a position, turned back by hand. */
static inline void oracle_key(uint32_t lane, uint32_t position, double *u) {
    static float q[ROW], k[KV_ROW], v[KV_ROW];
    rig_token(0, lane / HEADS, position, q, k, v);
    for (uint32_t i = 0; i < D; i++) u[i] = (double)k[lane % HEADS * D + i];
    oracle_turn(lane / HEADS, position, -1, u);
}

/* y = a^-1 x, by elimination; a is positive definite, and is used up. */
static inline void oracle_solve(double a[D][D], const double *x, double *y) {
    memcpy(y, x, D * sizeof *y);
    for (uint32_t i = 0; i < D; i++)
        for (uint32_t row = i + 1; row < D; row++) {
            const double part = a[row][i] / a[i][i];
            for (uint32_t j = i; j < D; j++) a[row][j] -= part * a[i][j];
            y[row] -= part * y[i];
        }
    for (uint32_t i = D; i-- > 0;) {
        for (uint32_t j = i + 1; j < D; j++) y[i] -= a[i][j] * y[j];
        y[i] /= a[i][i];
    }
}

/* x^T (C + r I)^-1 x: the leverage of each of n rows among those that `counts` names. */
static inline void oracle_leverage(double (*rows)[D], const bool *counts, uint32_t n, double *out) {
    static double spread[D][D], a[D][D];
    double mean[D] = {0}, y[D], ridge = 0, n_counted = 0;
    memset(spread, 0, sizeof spread);
    for (uint32_t t = 0; t < n; t++) n_counted += counts[t];
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t i = 0; counts[t] && i < D; i++) mean[i] += rows[t][i] / n_counted;
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t i = 0; i < D; i++) {
            rows[t][i] -= mean[i];
            for (uint32_t j = 0; counts[t] && j <= i; j++) spread[i][j] += rows[t][i] * rows[t][j] / n_counted;
        }
    for (uint32_t i = 0; i < D; i++) ridge += 0.1 * spread[i][i] / D;
    for (uint32_t i = 0; i < D; i++) spread[i][i] += ridge;
    for (uint32_t t = 0; t < n; t++) {
        for (uint32_t i = 0; i < D; i++)
            for (uint32_t j = 0; j < D; j++) a[i][j] = j <= i ? spread[i][j] : spread[j][i];
        oracle_solve(a, rows[t], y);
        out[t] = 0;
        for (uint32_t i = 0; i < D; i++) out[t] += rows[t][i] * y[i];
    }
}

#endif
