/* SPDX-License-Identifier: MIT
 *
 * decode_neon.h: what the parts of Arm's decode attention hand to each other.  See decode.h for the scheme.
 *
 *     decode_neon.c              the walk, the softmax, the attention received
 *     decode_float_neon.c        keys and values of 32 and 16 bits
 *     decode_integer_neon.c      keys and values of 8, 4 and 2 bits by 16-bit products
 *     decode_integer_dotprod.c   the same by 8-bit dot products, which not every CPU has
 *
 * Integer keys and values have one shape.  A quad is 64 bytes: 16 elements (keys: the tokens of a tile; values: as many
 * dimensions) of four bytes.  Each plane of a byte meets one multiplier (keys: of the query; values: the weight of a
 * token).  So with planes = 8/bits a quad meets 4*planes multipliers:
 *
 *     keys      quads follow each other       multipliers 4*planes*i on of the query for quad i
 *     values    quads are 4*d bytes apart     multipliers 4*planes*r on of the tile's weights for quad r
 *
 * Functions are made from always-inline templates whose `heads` is a constant, so that sums stay in registers.
 */
#ifndef PLEAT_ATTN_ARM_DECODE_NEON_H
#define PLEAT_ATTN_ARM_DECODE_NEON_H

#include "attn/arm/vector_neon.h"
#include "attn/decode.h"

#define TILES PLEAT__DECODE_TILES
#define HEADS PLEAT__DECODE_HEADS
#define QUARTERS (PLEAT__TILE / LANES) /* registers of 16 sums */

/* logit2 of slot s of tile t for head `head + h` at out[h][t][s], slots that do not count included. */
typedef void (*pleat__keys_neon_fn)(const pleat__attn_query *query, uint32_t head, const pleat__tile_group *group,
                                    float (*out)[TILES][PLEAT__TILE]);

/* Weights of a block of heads in a group, as the values' width and the CPU want them. */
typedef struct pleat__weights_neon {
    union {
        float f32[HEADS][TILES][PLEAT__TILE];     /* 2^(logit2 - m'), for values that are floats */
        int16_t fixed[HEADS][TILES][PLEAT__TILE]; /* in units of step[h] */
        struct {
            int8_t hi[HEADS][TILES][PLEAT__TILE]; /* fixed = 256*hi + lo */
            int8_t lo[HEADS][TILES][PLEAT__TILE];
        } limbs;
    } u;
    int32_t sum[HEADS];   /* of fixed */
    float step[HEADS];    /* includes 2^(group max - m') */
    float rescale[HEADS]; /* 2^(m - m') for what o holds */
} __attribute__((aligned(64))) pleat__weights_neon;

/* o [heads][d] = o*rescale + step * sum over slots of weight * (code - c), or weight * value for floats. */
typedef void (*pleat__values_neon_fn)(const pleat__weights_neon *w, const pleat__tile_group *group, uint32_t head_dim,
                                      float *o);

/* Keys and values of one width, by the heads of a block (1, 2, 4). */
typedef pleat__keys_neon_fn pleat__keys_neon_row[HEADS + 1];
typedef pleat__values_neon_fn pleat__values_neon_row[HEADS + 1];

/* By log2 of the bits: 16 and 32 (4, 5); then 2, 4, 8 (1, 2, 3) and rotated 2, 3, 4 (6, 7, 8), without and with dot
 * products. */
extern const pleat__keys_neon_row pleat__keys_neon_float[2], pleat__keys_neon_integer[PLEAT__DECODE_ROWS],
    pleat__keys_dotprod[PLEAT__DECODE_ROWS];
extern const pleat__values_neon_row pleat__values_neon_float[2], pleat__values_neon_integer[PLEAT__DECODE_ROWS],
    pleat__values_dotprod[PLEAT__DECODE_ROWS];

/* The functions of one width from a file's always-inline templates keys_of_tile(bits, heads, ...) and
 * values_of_dims(bits, heads, ...), which makes DIMS(heads) dimensions; and a table's row of them. */
#define NEON_VARIANT(bits, heads)                                                                                    \
    static void keys_##bits##x##heads(const pleat__attn_query *query, uint32_t head, const pleat__tile_group *group, \
                                      float(*out)[TILES][PLEAT__TILE]) {                                             \
        for (uint32_t t = 0; t < group->n_tiles; t++) keys_of_tile(bits, heads, query, head, group, t, out);         \
    }                                                                                                                \
    static void values_##bits##x##heads(const pleat__weights_neon *w, const pleat__tile_group *group, uint32_t d,    \
                                        float *o) {                                                                  \
        for (uint32_t dim = 0; dim < d; dim += DIMS(heads)) values_of_dims(bits, heads, w, group, d, dim, o);        \
    }
#define NEON_VARIANTS(bits) NEON_VARIANT(bits, 1) NEON_VARIANT(bits, 2) NEON_VARIANT(bits, 4)
#define NEON_ROW(name, bits) \
    { NULL, name##_##bits##x1, name##_##bits##x2, NULL, name##_##bits##x4 }

/* The levels of a rotated format, by code; of another width nothing. */
INLINE int8x16_t load_levels(uint32_t width) {
    return pleat__has_levels(width) ? vld1q_s8(pleat__levels[width - 10]) : vdupq_n_s8(0);
}

/* Plane `p` of codes of some width, or their levels; thirds: bit p of a byte is the third bit of its code. */
INLINE uint8x16_t code_plane_of_bits(uint8x16_t raw, uint32_t bits, uint32_t p) {
    switch (p * bits) {
        case 0: break;
        case 2: raw = vshrq_n_u8(raw, 2); break;
        case 4: raw = vshrq_n_u8(raw, 4); break;
        default: raw = vshrq_n_u8(raw, 6); break;
    }
    return (p + 1) * bits == 8 ? raw : vandq_u8(raw, vdupq_n_u8((uint8_t)((1 << bits) - 1)));
}

INLINE uint8x16_t code_plane(uint8x16_t raw, uint8x16_t thirds, uint32_t width, uint32_t p, int8x16_t levels) {
    uint8x16_t code = code_plane_of_bits(raw, pleat__plane_bits(width), p);
    if (width == 13) {
        const uint8x16_t bit = vandq_u8(thirds, vdupq_n_u8((uint8_t)(1 << p)));
        switch (p) { /* to bit 2 */
            case 0: code = vorrq_u8(code, vshlq_n_u8(bit, 2)); break;
            case 1: code = vorrq_u8(code, vshlq_n_u8(bit, 1)); break;
            case 2: code = vorrq_u8(code, bit); break;
            default: code = vorrq_u8(code, vshrq_n_u8(bit, 1)); break;
        }
    }
    return pleat__has_levels(width) ? vreinterpretq_u8_s8(vqtbl1q_s8(levels, code)) : code;
}

/* Make the sums so far before anything else from `raw`, registers of bytes: gcc 12 would unpack all planes first and
 * run out of registers. */
INLINE void finish_before(int32x4_t (*sum)[QUARTERS], uint32_t heads, uint32_t width, uint8x16_t *raw) {
    for (uint32_t x = 0; x < width; x++) {
        for (uint32_t h = 0; h < heads; h++) __asm__ volatile("" : "+w"(raw[x]) : "w"(sum[h][x]));
    }
}

/* What integer values start their sums from: codes are taken around their middle; those of 8 bits are
 * stored so, and levels are. */
INLINE int32x4_t minus_middle(const pleat__weights_neon *w, uint32_t h, uint32_t width) {
    return vdupq_n_s32(width >= 8 ? 0 : pleat__minus_middle(width, w->sum[h]));
}

/* Logits of four tokens: dot * step * scale + common * sum, where `common` is what each token's keys have in common. */
INLINE void store_logits(float *out, int32x4_t dot, float32x4_t scale, float32x4_t common, float step, float sum) {
    const float32x4_t x = vmulq_n_f32(vcvtq_f32_s32(dot), step);
    vst1q_f32(out, vfmaq_f32(vmulq_n_f32(common, sum), x, scale));
}

/* o = o*rescale + sum*step, four dimensions. */
INLINE void fold_values(float *o, float32x4_t sum, float step, float rescale) {
    const float32x4_t old = vmulq_n_f32(vld1q_f32(o), rescale);
    vst1q_f32(o, vfmaq_n_f32(old, sum, step));
}

#endif
