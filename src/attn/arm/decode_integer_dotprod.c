/* SPDX-License-Identifier: MIT
 *
 * decode_integer_dotprod.c: keys and values of 8, 4 and 2 bits by SDOT, which adds four 8-bit products to each of four
 * sums and takes its multipliers, four of 16, from any quarter of a register: nothing is broadcast.
 *
 * Queries and weights are two limbs of 8 bits, so 16 multipliers of a head are two registers.  A block of four heads
 * by two registers of codes has 16 sums, 8 registers of multipliers and 2 + 2 of codes: 28 and a mask, of 32.  Fewer
 * heads take four registers of codes.
 *
 * SDOT multiplies signed by signed.  Codes of 4 and 2 bits are that; values of 8 bits are stored signed; keys of 8 bits
 * are made so by flipping their top bit, and then stand around 128:
 *     sum q*(scale*code + min) = scale * sum q*(code - 128) + (min + 128*scale) * sum q
 * which costs nothing for each key, and keeps the two terms from cancelling.
 *
 * Instructions for a token of k8v4 at d = 128, G = 4 (gcc 12.2 -O3, 2026-11), from objdump of the inner loops:
 *     keys_8x4      98 for 16 dimensions of 8 tokens, 64 of them SDOT (94 where nothing is prefetched)     96
 *     values_4x4    104 for 8 dimensions of 16 tokens, 64 of them SDOT (101)                              102.5
 * of which 128 are SDOT, and 307 with all that stands around the loops, softmax included: what qemu-aarch64 -singlestep
 * -d nochain,exec lists more for 768 tokens than for 512, divided by 256.  Without dot products it is 482.
 */
#include "attn/arm/decode_neon.h"
#include "core/arm/lanes_neon.h"

/* Registers of codes at once. */
#define WIDTH(heads) ((heads) == 4 ? 2u : QUARTERS)
#define DIMS(heads) (LANES * WIDTH(heads))

typedef struct limb_sums {
    int32x4_t hi[HEADS][QUARTERS];
    int32x4_t lo[HEADS][QUARTERS];
} limb_sums;

INLINE int32x4_t join_limbs(int32x4_t hi, int32x4_t lo) { return vaddq_s32(lo, vshlq_n_s32(hi, 8)); }

/* Third bits of register x of codes, whose quad has them at `at`; the registers begin in its byte `from`, 0 or 32. */
INLINE uint8x16_t load_thirds(const uint8_t *at, uint32_t from, uint32_t x) {
    const uint32_t nth = from / 16 + x;
    const uint8x16_t both = vld1q_u8(at + 16 * (nth % 2));
    return nth < 2 ? both : vshrq_n_u8(both, 4);
}

/* Add the products of 16 multipliers: those of head h at hi and lo + h*stride.  The codes that meet them are part of
 * bits/2 quads, `line` bytes apart, from byte `from` of each on; thirds: their third bits. */
INLINE void add_sixteen(limb_sums *s, uint32_t width, uint32_t heads, bool is_key, const uint8_t *at, size_t line,
                        const uint8_t *thirds_at, uint32_t from, const int8_t *hi, const int8_t *lo, size_t stride) {
    const uint32_t planes = 8 / pleat__plane_bits(width);
    const int8x16_t levels = load_levels(width);
    int8x16_t a[HEADS], b[HEADS];
    for (uint32_t h = 0; h < heads; h++) {
        a[h] = vld1q_s8(hi + h * stride);
        b[h] = vld1q_s8(lo + h * stride);
    }
    UNROLL
    for (uint32_t quad = 0; quad < 4 / planes; quad++, at += line) {
        uint8x16_t raw[QUARTERS], thirds[QUARTERS];
        for (uint32_t x = 0; x < WIDTH(heads); x++) {
            raw[x] = vld1q_u8(at + 16 * x);
            thirds[x] = width == 13 ? load_thirds(thirds_at, from, x) : vdupq_n_u8(0);
            if (width == 8 && is_key) raw[x] = veorq_u8(raw[x], vdupq_n_u8(0x80));
        }
        UNROLL
        for (uint32_t p = 0; p < planes; p++) {
            int8x16_t code[QUARTERS];
            for (uint32_t x = 0; x < WIDTH(heads); x++)
                code[x] = vreinterpretq_s8_u8(code_plane(raw[x], thirds[x], width, p, levels));
            for (uint32_t h = 0; h < heads; h++) {
                for (uint32_t x = 0; x < WIDTH(heads); x++) {
                    s->hi[h][x] = dot_lane(s->hi[h][x], code[x], a[h], quad * planes + p);
                    s->lo[h][x] = dot_lane(s->lo[h][x], code[x], b[h], quad * planes + p);
                }
            }
            if (p + 1 < planes) finish_before(s->lo, heads, WIDTH(heads), raw);
        }
    }
}

/* Logits of 4*WIDTH tokens of tile t, from `token` on.  The sums fit: pleat__attn_query_init() sees to it. */
INLINE void keys_of_tokens(uint32_t width, uint32_t heads, const pleat__attn_query *query, uint32_t head,
                           const pleat__tile_group *g, uint32_t t, uint32_t token, float (*out)[TILES][PLEAT__TILE]) {
    const uint32_t d = query->head_dim;
    const uint32_t bits = pleat__plane_bits(width);
    const size_t from = (size_t)head * d, step = 32 * (size_t)bits; /* bytes of 16 dimensions */
    const uint8_t *k = g->k[t] + 4 * token, *ahead = g->k_ahead[t], *thirds = pleat__third_bits(g->k[t], d, 0);
    limb_sums s;
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t x = 0; x < WIDTH(heads); x++) s.hi[h][x] = s.lo[h][x] = vdupq_n_s32(0);
    }
    for (uint32_t i = 0; i < d; i += 16, k += step, ahead += step, thirds += 32) {
        for (uint32_t quad = 0; token == 0 && quad < bits / 2; quad++) __builtin_prefetch(ahead + 64 * quad);
        add_sixteen(&s, width, heads, true, k, 64, thirds, 4 * token, query->hi + from + i, query->lo + from + i, d);
    }
    for (uint32_t x = 0; x < WIDTH(heads); x++) {
        const uint16_t *meta = g->k_meta[t] + token + LANES * x;
        const float32x4_t scale = load_f16(meta);
        const float32x4_t min = pleat__has_levels(width) ? vdupq_n_f32(0) : load_f16(meta + PLEAT__TILE);
        const float32x4_t common = width == 8 ? vfmaq_n_f32(min, scale, 128) : min;
        for (uint32_t h = 0; h < heads; h++)
            store_logits(out[h][t] + token + LANES * x, join_limbs(s.hi[h][x], s.lo[h][x]), scale, common,
                         query->step[head + h], query->sum[head + h]);
    }
}

INLINE void keys_of_tile(uint32_t width, uint32_t heads, const pleat__attn_query *query, uint32_t head,
                         const pleat__tile_group *g, uint32_t t, float (*out)[TILES][PLEAT__TILE]) {
    for (uint32_t token = 0; token < PLEAT__TILE; token += LANES * WIDTH(heads))
        keys_of_tokens(width, heads, query, head, g, t, token, out);
}

/* 4*WIDTH dimensions from `dim`.  |256*hi + lo| < 64 * 32639 * 255 < 2^31. */
INLINE void values_of_dims(uint32_t width, uint32_t heads, const pleat__weights_neon *w, const pleat__tile_group *g,
                           uint32_t d, uint32_t dim, float *o) {
    const uint32_t bits = pleat__plane_bits(width);
    limb_sums s;
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t x = 0; x < WIDTH(heads); x++) {
            s.hi[h][x] = vdupq_n_s32(0);
            s.lo[h][x] = minus_middle(w, h, width);
        }
    }
    for (uint32_t t = 0; t < g->n_tiles; t++) {
        for (uint32_t quad = 0; dim % 16 == 0 && quad < bits / 2; quad++)
            __builtin_prefetch(g->v_ahead[t] + ((size_t)quad * d + dim) * 4);
        add_sixteen(&s, width, heads, false, g->v[t] + (size_t)dim * 4, 4 * (size_t)d,
                    pleat__third_bits(g->v[t], d, 64 * (size_t)(dim / 16)), 4 * (dim % 16), w->u.limbs.hi[0][t],
                    w->u.limbs.lo[0][t], sizeof w->u.limbs.hi[0]);
    }
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t x = 0; x < WIDTH(heads); x++)
            fold_values(o + (size_t)h * d + dim + LANES * x, vcvtq_f32_s32(join_limbs(s.hi[h][x], s.lo[h][x])),
                        w->step[h], w->rescale[h]);
    }
}

NEON_VARIANTS(2)
NEON_VARIANTS(4)
NEON_VARIANTS(8)
NEON_VARIANTS(12)
NEON_VARIANTS(13)
NEON_VARIANTS(14)

const pleat__keys_neon_row pleat__keys_dotprod[PLEAT__DECODE_ROWS] = {
    {NULL}, NEON_ROW(keys, 2),  NEON_ROW(keys, 4),  NEON_ROW(keys, 8), {NULL},
    {NULL}, NEON_ROW(keys, 12), NEON_ROW(keys, 13), NEON_ROW(keys, 14)};
const pleat__values_neon_row pleat__values_dotprod[PLEAT__DECODE_ROWS] = {
    {NULL}, NEON_ROW(values, 2),  NEON_ROW(values, 4),  NEON_ROW(values, 8), {NULL},
    {NULL}, NEON_ROW(values, 12), NEON_ROW(values, 13), NEON_ROW(values, 14)};
