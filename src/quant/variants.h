/* SPDX-License-Identifier: MIT
 *
 * variants.h: the implementations behind pleat__quant_dsp, and what they share.
 *
 * A variant supplies two functions that write one token's key and value into a tile.  The walk over slots and the
 * clearing of fresh tiles are here, once; what the functions do with scalars is in pack_word.h.
 *
 * The planes of layout.h as one formula.  With per = 8/bits codes in a byte,
 *     key     byte (dim/(4*per))*64 + token*4 + dim%4        shift bits*((dim/4) % per)
 *     value   byte (token/(4*per))*4*d + dim*4 + token%4     shift bits*((token/4) % per)
 */
#ifndef PLEAT_QUANT_VARIANTS_H
#define PLEAT_QUANT_VARIANTS_H

#include <string.h>

#include "core/half.h"
#include "quant/levels.h"
#include "quant/quant.h"

void pleat__quant_store_ref(const pleat__page_layout *layout, uint8_t *page, uint32_t slot, uint32_t n, const float *k,
                            const float *v, size_t stride);
void pleat__quant_replace_ref(const pleat__page_layout *layout, uint8_t *page, uint32_t slot, const float *k,
                              const float *v);
void pleat__quant_load_k_ref(const pleat__page_layout *layout, const uint8_t *page, uint32_t tile, float *out);
void pleat__quant_load_v_ref(const pleat__page_layout *layout, const uint8_t *page, uint32_t tile, float *out);

void pleat__quant_store_avx2(const pleat__page_layout *layout, uint8_t *page, uint32_t slot, uint32_t n, const float *k,
                             const float *v, size_t stride);
void pleat__quant_replace_avx2(const pleat__page_layout *layout, uint8_t *page, uint32_t slot, const float *k,
                               const float *v);
void pleat__quant_load_k_avx2(const pleat__page_layout *layout, const uint8_t *page, uint32_t tile, float *out);
void pleat__quant_load_v_avx2(const pleat__page_layout *layout, const uint8_t *page, uint32_t tile, float *out);

void pleat__quant_store_avx512(const pleat__page_layout *layout, uint8_t *page, uint32_t slot, uint32_t n,
                               const float *k, const float *v, size_t stride);
void pleat__quant_replace_avx512(const pleat__page_layout *layout, uint8_t *page, uint32_t slot, const float *k,
                                 const float *v);
void pleat__quant_load_k_avx512(const pleat__page_layout *layout, const uint8_t *page, uint32_t tile, float *out);
void pleat__quant_load_v_avx512(const pleat__page_layout *layout, const uint8_t *page, uint32_t tile, float *out);

void pleat__quant_store_neon(const pleat__page_layout *layout, uint8_t *page, uint32_t slot, uint32_t n, const float *k,
                             const float *v, size_t stride);
void pleat__quant_replace_neon(const pleat__page_layout *layout, uint8_t *page, uint32_t slot, const float *k,
                               const float *v);
void pleat__quant_load_k_neon(const pleat__page_layout *layout, const uint8_t *page, uint32_t tile, float *out);
void pleat__quant_load_v_neon(const pleat__page_layout *layout, const uint8_t *page, uint32_t tile, float *out);

/* Write x [head_dim] as token `token` (0..15) of a tile; meta is the tile's metadata, unused for f32 and f16. */
typedef void (*pleat__quant_put_fn)(uint8_t *tile, uint16_t *meta, uint32_t bits, uint32_t head_dim, uint32_t token,
                                    const float *x);

/* Write one token's key and value: the body of every replace. */
static inline __attribute__((always_inline)) void pleat__quant_put_row(const pleat__page_layout *l, uint8_t *page,
                                                                       uint32_t slot, const float *k, const float *v,
                                                                       pleat__quant_put_fn put_k,
                                                                       pleat__quant_put_fn put_v) {
    if (l->format.rotated) {
        pleat__levels_put(l, page, slot, k, v);
        return;
    }
    const uint32_t tile = slot / PLEAT__TILE, token = slot % PLEAT__TILE;
    put_k(pleat__k_tile(l, page, tile), pleat__k_meta(l, page, tile), l->format.k_bits, l->head_dim, token, k);
    put_v(pleat__v_tile(l, page, tile), pleat__v_meta(l, page, tile), l->format.v_bits, l->head_dim, token, v);
}

/* The body of every store: `put_k` and `put_v` are constants at each call, so no call goes through a pointer. */
static inline __attribute__((always_inline)) void pleat__quant_store_rows(const pleat__page_layout *l, uint8_t *page,
                                                                          uint32_t slot, uint32_t n, const float *k,
                                                                          const float *v, size_t stride,
                                                                          pleat__quant_put_fn put_k,
                                                                          pleat__quant_put_fn put_v) {
    for (uint32_t i = 0; i < n; i++) {
        if ((slot + i) % PLEAT__TILE == 0) pleat__quant_clear_tile(l, page, (slot + i) / PLEAT__TILE);
        pleat__quant_put_row(l, page, slot + i, k + i * stride, v + i * stride, put_k, put_v);
    }
}

/* Scale and minimum of a token: as stored, and as the quantiser uses them. */
typedef struct pleat__quant_scale {
    uint16_t scale_f16;
    uint16_t min_f16;
    float min;
    float inverse; /* 1/scale, or 0 */
} pleat__quant_scale;

/* From the extremes of a token's clamped values.  Adding 0 turns -0 into +0: which zero is a vector's minimum
 * depends on the order.  The rounded minimum may lie above the maximum: no range then. */
static inline pleat__quant_scale pleat__quant_scale_of(float min, float max, uint32_t bits) {
    pleat__quant_scale s;
    s.min_f16 = pleat__f32_to_f16(min + 0.0f);
    s.min = pleat__f16_to_f32(s.min_f16);
    const float range = max - s.min;
    s.scale_f16 = max > min && range > 0 ? pleat__f32_to_f16(range / (float)((1u << bits) - 1)) : 0;
    s.inverse = s.scale_f16 ? 1.0f / pleat__f16_to_f32(s.scale_f16) : 0.0f;
    return s;
}

/* Clamp like a vector max and min do: NaN becomes -65504. */
static inline float pleat__quant_clamp(float x) {
    x = x > -PLEAT__F16_MAX ? x : -PLEAT__F16_MAX;
    return x < PLEAT__F16_MAX ? x : PLEAT__F16_MAX;
}

#endif
