/* SPDX-License-Identifier: MIT
 *
 * rope.c: see rope.h.
 */
#include "model/rope.h"

#include <math.h>

/* The pair, as a fraction, that turns `n` times in n_ctx_orig tokens. */
static double pair_of_turns(const pleat__rope *rope, double n) {
    const double tokens_per_turn = rope->n_ctx_orig / n;
    return rope->n_dims * log(tokens_per_turn / (2 * M_PI)) / (2 * log((double)rope->base));
}

/* By how much of `factor` each pair's frequency is divided: weights 0 before pair `from`, 1 behind pair `to`. */
static void stretch_by_yarn(const pleat__rope *rope, double *frequencies) {
    const double first = pair_of_turns(rope, (double)rope->beta_fast);
    const double last = pair_of_turns(rope, (double)rope->beta_slow);
    const double from = fmax(rope->is_smooth ? first : floor(first), 0),
                 to = fmin(rope->is_smooth ? last : ceil(last), rope->n_dims - 1);
    for (uint32_t i = 0; i < rope->n_dims / 2; i++) {
        const double weight = fmin(fmax((i - from) / fmax(to - from, 0.001), 0), 1);
        frequencies[i] *= 1 - weight + weight / (double)rope->factor;
    }
}

void pleat__rope_frequencies(const pleat__rope *rope, uint32_t max_tokens, double *frequencies) {
    const bool is_long = rope->long_factors && max_tokens > rope->n_ctx_orig;
    const float *factors = is_long ? rope->long_factors : rope->factors;
    for (uint32_t i = 0; i < rope->n_dims / 2; i++) {
        frequencies[i] = pow((double)rope->base, -2.0 * i / rope->n_dims) / (factors ? (double)factors[i] : 1.0);
        if (!rope->is_yarn) frequencies[i] /= (double)rope->factor;
    }
    if (rope->is_yarn) stretch_by_yarn(rope, frequencies);
}

void pleat__rope_turn(const pleat__rope *rope, uint32_t position, const double *frequencies, float *turn) {
    const uint32_t n_dims = rope->n_dims, n_pairs = n_dims / 2;
    for (uint32_t i = 0; i < n_pairs; i++) {
        const uint32_t first = rope->is_halves ? i : 2 * i, second = rope->is_halves ? i + n_pairs : 2 * i + 1;
        const double angle = position * frequencies[i], size = (double)rope->magnitude;
        const float c = (float)(cos(angle) * size), s = (float)(sin(angle) * size);
        turn[first] = c;
        turn[second] = c;
        turn[n_dims + first] = -s;
        turn[n_dims + second] = s;
    }
}
