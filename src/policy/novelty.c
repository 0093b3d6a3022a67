/* SPDX-License-Identifier: MIT
 *
 * novelty.c: see novelty.h.
 */
#include "policy/novelty.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "core/error.h"

#define TILE PLEAT__TILE

/* ---- turns -------------------------------------------------------------------------------------------- */

#define LARGEST 65536.0 /* of a magnitude, and a frequency is below it */

#define REQUIRE(cond, ...) PLEAT_FAIL_IF(!(cond), err, PLEAT_E_ARG, PLEAT_NOWHERE, __VA_ARGS__)

pleat_status pleat__turns_check(const pleat_rope *rope, uint32_t head_dim, uint32_t layer, pleat_error *err) {
    if (!rope) return PLEAT_OK;
    const double magnitude = (double)rope->magnitude;
    REQUIRE(rope->n_dims >= 2 && rope->n_dims % 2 == 0 && rope->n_dims <= head_dim,
            "cache: ropes[%u] turns %u dimensions: allowed are even numbers from 2 to head_dim %u", layer, rope->n_dims,
            head_dim);
    REQUIRE(magnitude >= 1 / LARGEST && magnitude <= LARGEST,
            "cache: the magnitude of ropes[%u] is outside 2^-16..65536", layer);
    REQUIRE(rope->frequencies, "cache: ropes[%u] has no frequencies", layer);
    for (uint32_t i = 0; i < rope->n_dims / 2; i++)
        REQUIRE(fabs(rope->frequencies[i]) < LARGEST,
                "cache: frequency %u of ropes[%u] is not below 65536 in magnitude", i, layer);
    return PLEAT_OK;
}

static uint32_t far_rows(uint32_t max_tokens) { return pleat__div_up_u32(max_tokens, PLEAT__NEAR_TURNS); }

void pleat__turns_carve(const pleat_rope *rope, uint32_t max_tokens, pleat__turns *turns, pleat__arena *arena) {
    const uint32_t n_pairs = rope ? rope->n_dims / 2 : 0;
    *turns = (pleat__turns){.n_pairs = n_pairs, .first = 1, .other = 1, .unscale = 1};
    if (n_pairs == 0) return;
    turns->near = pleat__arena_take(arena, PLEAT__NEAR_TURNS, 2 * n_pairs * sizeof *turns->near);
    turns->far = pleat__arena_take(arena, far_rows(max_tokens), 2 * n_pairs * sizeof *turns->far);
    turns->ahead = pleat__arena_take(arena, 2 * n_pairs, sizeof *turns->ahead);
}

/* Rows of the positions 0, step, 2*step, ... */
static void fill_rows(const pleat_rope *rope, uint32_t n_rows, uint32_t step, double size, float *rows) {
    const uint32_t n_pairs = rope->n_dims / 2;
    for (uint32_t row = 0; row < n_rows; row++, rows += 2 * (size_t)n_pairs) {
        for (uint32_t i = 0; i < n_pairs; i++) {
            const double angle = (double)row * step * rope->frequencies[i];
            rows[i] = (float)(cos(angle) * size);
            rows[n_pairs + i] = (float)(sin(angle) * size);
        }
    }
}

static void fill_ahead(const pleat_rope *rope, float *row) {
    const uint32_t n_pairs = rope->n_dims / 2;
    for (uint32_t i = 0; i < n_pairs; i++) {
        double c = 0, s = 0;
        for (uint32_t p = 1; p <= PLEAT__TURNS_AHEAD; p++) {
            c += cos(p * rope->frequencies[i]);
            s += sin(p * rope->frequencies[i]);
        }
        row[i] = (float)(c / PLEAT__TURNS_AHEAD);
        row[n_pairs + i] = (float)(s / PLEAT__TURNS_AHEAD);
    }
}

void pleat__turns_init(const pleat_rope *rope, uint32_t max_tokens, pleat__turns *turns) {
    if (turns->n_pairs == 0) return;
    turns->first = rope->is_halves ? 1 : 2;
    turns->other = rope->is_halves ? turns->n_pairs : 1;
    turns->unscale = 1 / rope->magnitude;
    fill_rows(rope, PLEAT__NEAR_TURNS, 1, (double)turns->unscale, turns->near);
    fill_rows(rope, far_rows(max_tokens), PLEAT__NEAR_TURNS, 1, turns->far);
    fill_ahead(rope, turns->ahead);
}

/* Column `at` of a tile's turn [2][n_pairs][TILE]. */
static void turn_at(const pleat__turns *t, uint32_t position, uint32_t at, float *turn) {
    const uint32_t n = t->n_pairs;
    const float *near = t->near + (size_t)(position % PLEAT__NEAR_TURNS) * 2 * n;
    const float *far = t->far + (size_t)(position / PLEAT__NEAR_TURNS) * 2 * n;
    for (uint32_t i = 0; i < n; i++) {
        turn[i * TILE + at] = near[i] * far[i] - near[n + i] * far[n + i];
        turn[(n + i) * TILE + at] = near[n + i] * far[i] + near[i] * far[n + i];
    }
}

/* ---- tiles -------------------------------------------------------------------------------------------- */

static void unturn_pair(float *restrict a, float *restrict b, const float *restrict c, const float *restrict s) {
    for (uint32_t i = 0; i < TILE; i++) {
        const float x = a[i], y = b[i];
        a[i] = c[i] * x + s[i] * y;
        b[i] = c[i] * y - s[i] * x;
    }
}

void pleat__key_tile_unturn(const pleat__turns *turns, pleat__key_tile *tile) {
    const uint32_t n = turns->n_pairs;
    for (uint32_t i = 0; i < TILE && n > 0; i++)
        turn_at(turns, tile->positions[i] < 0 ? 0 : (uint32_t)tile->positions[i], i, tile->turn);
    for (uint32_t i = 0; i < n; i++) {
        float *a = tile->k + (size_t)turns->first * i * TILE;
        unturn_pair(a, a + (size_t)turns->other * TILE, tile->turn + (size_t)i * TILE,
                    tile->turn + (size_t)(n + i) * TILE);
    }
    float squares[TILE] = {0};
    for (uint32_t d = 0; d < tile->head_dim; d++)
        for (uint32_t i = 0; i < TILE; i++) squares[i] += tile->k[d * TILE + i] * tile->k[d * TILE + i];
    for (uint32_t i = 0; i < TILE; i++)
        tile->scales[i] = squares[i] > 0 && tile->positions[i] >= 0 ? 1 / sqrtf(squares[i]) : 0;
}

void pleat__key_tile_add(const pleat__key_tile *tile, int32_t from, float *sum) {
    float scales[TILE];
    for (uint32_t i = 0; i < TILE; i++) scales[i] = tile->positions[i] >= from ? tile->scales[i] : 0;
    for (uint32_t d = 0; d < tile->head_dim; d++) {
        float x = sum[d];
        for (uint32_t i = 0; i < TILE; i++) x += tile->k[d * TILE + i] * scales[i];
        sum[d] = x;
    }
}

void pleat__key_mean(const float *sum, uint32_t head_dim, float *mean) {
    double square = 0;
    for (uint32_t d = 0; d < head_dim; d++) square += (double)sum[d] * (double)sum[d];
    const double scale = square > 0 ? 1 / sqrt(square) : 0;
    for (uint32_t d = 0; d < head_dim; d++) mean[d] = (float)((double)sum[d] * scale);
}

void pleat__key_tile_score(const pleat__key_tile *tile, const float *mean, float *scores) {
    float dots[TILE] = {0};
    for (uint32_t d = 0; d < tile->head_dim; d++)
        for (uint32_t i = 0; i < TILE; i++) dots[i] += tile->k[d * TILE + i] * mean[d];
    for (uint32_t i = 0; i < TILE; i++) {
        const float score = 1 - dots[i] * tile->scales[i];
        scores[i] = score > FLT_MIN ? score : FLT_MIN;
    }
}

float pleat__near_score(const float *own, uint32_t n_tokens, uint32_t position, uint32_t near) {
    const uint32_t first = position > near ? position - near : 0;
    const uint32_t end = n_tokens - position > near ? position + near + 1 : n_tokens;
    uint32_t n_gone = 0;
    for (uint32_t i = first; i < end; i++) n_gone += own[i] < 0;
    const float part = pleat__near_part(near, n_gone);
    float score = 0;
    for (uint32_t i = first; i < end; i++) score += own[i] < 0 ? 0 : own[i] * part;
    return score;
}
