/* SPDX-License-Identifier: MIT
 *
 * decode_float_neon.c: keys and values of 32 and 16 bits.  Multipliers (keys: the query; values: weights) come four to
 * a register and are used by lane: four heads take 16 sums, 4 registers of multipliers and 4 of keys or values.
 *
 * One head would have 4 sums, which wait for each other: they are split into even and odd multipliers.
 */
#include "attn/arm/decode_neon.h"

#define DIMS(heads) 16u

#define SPLITS(heads) ((heads) == 1 ? 2u : 1u)

typedef struct float_sums {
    float32x4_t v[HEADS][QUARTERS][2];
} float_sums;

INLINE float32x4_t fma_lane(float32x4_t sum, float32x4_t x, float32x4_t multipliers, uint32_t lane) {
    switch (lane) {
        case 0: return vfmaq_laneq_f32(sum, x, multipliers, 0);
        case 1: return vfmaq_laneq_f32(sum, x, multipliers, 1);
        case 2: return vfmaq_laneq_f32(sum, x, multipliers, 2);
        default: return vfmaq_laneq_f32(sum, x, multipliers, 3);
    }
}

INLINE void clear(float_sums *s, uint32_t heads) {
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t x = 0; x < QUARTERS; x++) s->v[h][x][0] = s->v[h][x][1] = vdupq_n_f32(0);
    }
}

INLINE float32x4_t sum_of(const float_sums *s, uint32_t heads, uint32_t h, uint32_t x) {
    return SPLITS(heads) == 2 ? vaddq_f32(s->v[h][x][0], s->v[h][x][1]) : s->v[h][x][0];
}

/* Add four rows of 16 numbers, `row` bytes apart, each times its multiplier: those of head h at m + h*stride. */
INLINE void add_rows(float_sums *s, uint32_t bits, uint32_t heads, const uint8_t *at, size_t row, const float *m,
                     size_t stride) {
    float32x4_t y[HEADS];
    for (uint32_t h = 0; h < heads; h++) y[h] = vld1q_f32(m + h * stride);
    UNROLL
    for (uint32_t j = 0; j < 4; j++, at += row) {
        float32x4_t x[QUARTERS];
        for (uint32_t i = 0; i < QUARTERS; i++)
            x[i] = bits == 32 ? vld1q_f32((const float *)(const void *)at + LANES * i) : load_f16(at + 2 * LANES * i);
        for (uint32_t h = 0; h < heads; h++) {
            for (uint32_t i = 0; i < QUARTERS; i++) {
                float32x4_t *sum = &s->v[h][i][j % SPLITS(heads)];
                *sum = fma_lane(*sum, x[i], y[h], j);
            }
        }
    }
}

/* The lines of four rows of 16 numbers that follow each other. */
INLINE void prefetch_rows(const uint8_t *ahead, uint32_t bits) {
    for (uint32_t line = 0; line < bits / 8; line++) __builtin_prefetch(ahead + 64 * line);
}

INLINE void keys_of_tile(uint32_t bits, uint32_t heads, const pleat__attn_query *query, uint32_t head,
                         const pleat__tile_group *g, uint32_t t, float (*out)[TILES][PLEAT__TILE]) {
    const uint32_t d = query->head_dim;
    const float *q = query->f32 + (size_t)head * d;
    const size_t row = PLEAT__TILE * (size_t)bits / 8; /* bytes of a dimension */
    float_sums s;
    clear(&s, heads);
    for (uint32_t i = 0; i < d; i += 4) {
        prefetch_rows(g->k_ahead[t] + i * row, bits);
        add_rows(&s, bits, heads, g->k[t] + i * row, row, q + i, d);
    }
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t x = 0; x < QUARTERS; x++) vst1q_f32(out[h][t] + LANES * x, sum_of(&s, heads, h, x));
    }
}

/* 16 dimensions from `dim`.  A tile is read in columns and prefetched from start to end. */
INLINE void values_of_dims(uint32_t bits, uint32_t heads, const pleat__weights_neon *w, const pleat__tile_group *g,
                           uint32_t d, uint32_t dim, float *o) {
    const size_t row = (size_t)d * bits / 8; /* bytes of a token */
    float_sums s;
    clear(&s, heads);
    for (uint32_t t = 0; t < g->n_tiles; t++) {
        const uint8_t *v = g->v[t] + (size_t)dim * bits / 8, *ahead = g->v_ahead[t] + (size_t)dim * 2 * bits;
        for (uint32_t token = 0; token < PLEAT__TILE; token += 4) {
            prefetch_rows(ahead + (size_t)token * 2 * bits, bits);
            add_rows(&s, bits, heads, v + token * row, row, w->u.f32[0][t] + token, TILES * PLEAT__TILE);
        }
    }
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t x = 0; x < QUARTERS; x++)
            fold_values(o + (size_t)h * d + dim + LANES * x, sum_of(&s, heads, h, x), 1.0f, w->rescale[h]);
    }
}

NEON_VARIANTS(16)
NEON_VARIANTS(32)

const pleat__keys_neon_row pleat__keys_neon_float[2] = {NEON_ROW(keys, 16), NEON_ROW(keys, 32)};
const pleat__values_neon_row pleat__values_neon_float[2] = {NEON_ROW(values, 16), NEON_ROW(values, 32)};
