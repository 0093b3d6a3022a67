/* SPDX-License-Identifier: MIT
 *
 * decode_integer_neon.c: keys and values of 8, 4 and 2 bits without a dot product.
 *
 * LD4 splits a quad into the first, second, third and fourth bytes of its 16 elements.  Codes are widened to 16 bits
 * and multiplied by one lane of a register of multipliers (SMLAL), four products to an instruction, each onto its
 * element's own sum.  So queries and weights are 16-bit numbers and nothing is added across a register.  Four heads
 * take 16 sums, 4 registers of multipliers, 4 of bytes and 2 of codes.
 */
#include "attn/arm/decode_neon.h"
#include "core/arm/lanes_neon.h"

#define DIMS(heads) 16u

/* Add the products of the quad at `at` and its multipliers: those of head h at m + h*stride.  Keys are unsigned, and
 * their multipliers stand in the order 0, 2, 1, 3; of values those of 8 bits are signed, and levels always.  Third bits
 * are at thirds_at. */
INLINE void add_quad(int32x4_t (*sum)[QUARTERS], uint32_t width, uint32_t heads, bool is_key, const uint8_t *at,
                     const uint8_t *thirds_at, const int16_t *m, size_t stride) {
    const uint32_t bits = pleat__plane_bits(width);
    const bool is_signed = pleat__has_levels(width) || (width == 8 && !is_key);
    const int8x16_t levels = load_levels(width);
    uint8x16x4_t bytes = vld4q_u8(at);
    uint8x16_t thirds[4] = {vdupq_n_u8(0), vdupq_n_u8(0), vdupq_n_u8(0), vdupq_n_u8(0)};
    if (width == 13) {
        const uint8x8x4_t both = vld4_u8(thirds_at);
        for (uint32_t j = 0; j < 4; j++) thirds[j] = vcombine_u8(both.val[j], vshr_n_u8(both.val[j], 4));
    }
    UNROLL
    for (uint32_t p = 0; p < 8 / bits; p++) {
        int16x4_t x[HEADS];
        for (uint32_t h = 0; h < heads; h++) x[h] = vld1_s16(m + h * stride + 4 * p);
        UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            const uint8x16_t code = code_plane(bytes.val[j], thirds[j], width, p, levels);
            int16x8_t wide[2] = {vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(code))),
                                 vreinterpretq_s16_u16(vmovl_high_u8(code))};
            if (is_signed) {
                wide[0] = vmovl_s8(vreinterpret_s8_u8(vget_low_u8(code)));
                wide[1] = vmovl_high_s8(vreinterpretq_s8_u8(code));
            }
            const uint32_t lane = is_key && (j == 1 || j == 2) ? 3 - j : j;
            for (uint32_t h = 0; h < heads; h++) {
                add_products(sum[h], wide[0], x[h], lane);
                add_products(sum[h] + 2, wide[1], x[h], lane);
            }
        }
        if (p + 1 < 8 / bits) finish_before(sum, heads, QUARTERS, bytes.val);
    }
}

/* Logits of tile t.  The sums fit: pleat__attn_query_init() sees to it. */
INLINE void keys_of_tile(uint32_t width, uint32_t heads, const pleat__attn_query *query, uint32_t head,
                         const pleat__tile_group *g, uint32_t t, float (*out)[TILES][PLEAT__TILE]) {
    const uint32_t d = query->head_dim;
    const int16_t *q = query->both + (size_t)head * d;
    const uint8_t *k = g->k[t], *ahead = g->k_ahead[t], *thirds = pleat__third_bits(k, d, 0);
    int32x4_t sum[HEADS][QUARTERS];
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t x = 0; x < QUARTERS; x++) sum[h][x] = vdupq_n_s32(0);
    }
    for (uint32_t i = 0; i < d; i += 4 * (8 / pleat__plane_bits(width)), k += 64, ahead += 64, thirds += 32) {
        __builtin_prefetch(ahead);
        add_quad(sum, width, heads, true, k, thirds, q + i, d);
    }
    for (uint32_t x = 0; x < QUARTERS; x++) {
        const uint16_t *meta = g->k_meta[t] + LANES * x;
        const float32x4_t scale = load_f16(meta);
        const float32x4_t min = pleat__has_levels(width) ? vdupq_n_f32(0) : load_f16(meta + PLEAT__TILE);
        for (uint32_t h = 0; h < heads; h++)
            store_logits(out[h][t] + LANES * x, sum[h][x], scale, min, query->step[head + h], query->sum[head + h]);
    }
}

/* 16 dimensions from `dim`.  Sums fit: 64 * 32639 * 255 < 2^31. */
INLINE void values_of_dims(uint32_t width, uint32_t heads, const pleat__weights_neon *w, const pleat__tile_group *g,
                           uint32_t d, uint32_t dim, float *o) {
    const uint32_t bits = pleat__plane_bits(width);
    int32x4_t sum[HEADS][QUARTERS];
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t x = 0; x < QUARTERS; x++) sum[h][x] = minus_middle(w, h, width);
    }
    for (uint32_t t = 0; t < g->n_tiles; t++) {
        for (uint32_t quad = 0; quad < bits / 2; quad++) {
            const size_t at = ((size_t)quad * d + dim) * 4;
            __builtin_prefetch(g->v_ahead[t] + at);
            add_quad(sum, width, heads, false, g->v[t] + at, pleat__third_bits(g->v[t], d, at),
                     w->u.fixed[0][t] + 4 * (8 / bits) * quad, TILES * PLEAT__TILE);
        }
    }
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t x = 0; x < QUARTERS; x++)
            fold_values(o + (size_t)h * d + dim + LANES * x, vcvtq_f32_s32(sum[h][x]), w->step[h], w->rescale[h]);
    }
}

NEON_VARIANTS(2)
NEON_VARIANTS(4)
NEON_VARIANTS(8)
NEON_VARIANTS(12)
NEON_VARIANTS(13)
NEON_VARIANTS(14)

const pleat__keys_neon_row pleat__keys_neon_integer[PLEAT__DECODE_ROWS] = {
    {NULL}, NEON_ROW(keys, 2),  NEON_ROW(keys, 4),  NEON_ROW(keys, 8), {NULL},
    {NULL}, NEON_ROW(keys, 12), NEON_ROW(keys, 13), NEON_ROW(keys, 14)};
const pleat__values_neon_row pleat__values_neon_integer[PLEAT__DECODE_ROWS] = {
    {NULL}, NEON_ROW(values, 2),  NEON_ROW(values, 4),  NEON_ROW(values, 8), {NULL},
    {NULL}, NEON_ROW(values, 12), NEON_ROW(values, 13), NEON_ROW(values, 14)};
