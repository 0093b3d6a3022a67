/* SPDX-License-Identifier: MIT
 *
 * expected.c: see expected.h.  The policy is a row; what it ranks by stands in the pages (cache/keep/expected.h).
 */
#include "policy/expected.h"

#include <math.h>
#include <string.h>

#include "policy/evict.h"

#define TILE PLEAT__TILE

/* The cosine and sine of pair i at a position, times unscale. */
static void turn_of(const pleat__turns *t, uint32_t position, uint32_t i, float *c, float *s) {
    const uint32_t n = t->n_pairs;
    const float *near = t->near + (size_t)(position % PLEAT__NEAR_TURNS) * 2 * n;
    const float *far = t->far + (size_t)(position / PLEAT__NEAR_TURNS) * 2 * n;
    *c = near[i] * far[i] - near[n + i] * far[n + i];
    *s = near[n + i] * far[i] + near[i] * far[n + i];
}

void pleat__query_add(const pleat__turns *turns, uint32_t position, const float *q, uint32_t head_dim,
                      float *restrict sum, float *restrict squares) {
    for (uint32_t d = 0; d < head_dim; d++) squares[d] += q[d] * q[d];
    for (uint32_t i = 0; i < turns->n_pairs; i++) {
        const uint32_t a = turns->first * i, b = a + turns->other;
        float c, s;
        turn_of(turns, position, i, &c, &s);
        sum[a] += c * q[a] + s * q[b];
        sum[b] += c * q[b] - s * q[a];
    }
    for (uint32_t d = 2 * turns->n_pairs; d < head_dim; d++) sum[d] += q[d];
}

/* Of a pair: m is turned to what follows, and the spread is what is left of the squares. */
static void expect_pair(const pleat__turns *t, uint32_t n_tokens, uint32_t i, float *m, float *s) {
    const uint32_t n = t->n_pairs, a = t->first * i, b = a + t->other;
    const float size = 1 / (t->unscale * t->unscale), x = m[a] * size, y = m[b] * size;
    float c, sine;
    turn_of(t, n_tokens - 1, i, &c, &sine);
    const float re = c * t->ahead[i] - sine * t->ahead[n + i], im = sine * t->ahead[i] + c * t->ahead[n + i];
    m[a] = re * x - im * y;
    m[b] = im * x + re * y;
    const float left = (s[a] + s[b] - m[a] * m[a] - m[b] * m[b]) / 2;
    s[a] = s[b] = left > 0 ? left : 0;
}

void pleat__query_expect(const pleat__turns *turns, uint32_t n_tokens, uint32_t n, const float *sum,
                         const float *squares, uint32_t head_dim, float scale, float *m, float *s) {
    memset(m, 0, head_dim * sizeof *m);
    memset(s, 0, head_dim * sizeof *s);
    if (n == 0) return;
    for (uint32_t d = 0; d < head_dim; d++) {
        m[d] = sum[d] / (float)n;
        s[d] = squares[d] / (float)n;
    }
    for (uint32_t i = 0; i < turns->n_pairs; i++) expect_pair(turns, n_tokens, i, m, s);
    for (uint32_t d = 2 * turns->n_pairs; d < head_dim; d++) s[d] = s[d] > m[d] * m[d] ? s[d] - m[d] * m[d] : 0;
    for (uint32_t d = 0; d < head_dim; d++) {
        m[d] *= scale;
        s[d] *= scale * scale / 2;
    }
}

void pleat__expected_logits(const float *restrict k, uint32_t head_dim, const float *m, const float *s,
                            float *restrict z) {
    memset(z, 0, TILE * sizeof *z);
    for (uint32_t d = 0; d < head_dim; d++)
        for (uint32_t i = 0; i < TILE; i++) z[i] += k[d * TILE + i] * (m[d] + s[d] * k[d * TILE + i]);
}

void pleat__value_lengths(const float *restrict v, uint32_t head_dim, float *restrict lengths) {
    for (uint32_t i = 0; i < TILE; i++) {
        float square = 0;
        for (uint32_t d = 0; d < head_dim; d++) square += v[i * head_dim + d] * v[i * head_dim + d];
        lengths[i] = sqrtf(square);
    }
}

const pleat__evictor pleat__evictor_expected = {.scoring = PLEAT__SCORING_EXPECTED, .rank_block = pleat__rank_own};
