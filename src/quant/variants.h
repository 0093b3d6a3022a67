/* SPDX-License-Identifier: MIT
 *
 * variants.h: the implementations behind pleat__quant_dsp, and what they share.
 *
 * A variant supplies functions that write one token's key and value into a tile as f16 or as codes, and that read a
 * tile of either.  The walk over slots, the clearing of fresh tiles, and which of them a format takes are here, once, as
 * are f32 pages, which have nothing to convert.  Rotated formats go to levels.h.
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

/* ---- tokens into tiles ------------------------------------------------------------------------------------------- */

/* Write x [head_dim] as token `token` (0..15) of a tile.  bits: 16, when meta is unused, or 8, 4 or 2. */
typedef void (*pleat__quant_put_fn)(uint8_t *tile, uint16_t *meta, uint32_t bits, uint32_t head_dim, uint32_t token,
                                    const float *x);

static inline void pleat__put_key_f32(uint8_t *tile, uint32_t head_dim, uint32_t token, const float *x) {
    float *out = (float *)(void *)tile + token;
    for (uint32_t i = 0; i < head_dim; i++) out[i * PLEAT__TILE] = x[i];
}

static inline void pleat__put_value_f32(uint8_t *tile, uint32_t head_dim, uint32_t token, const float *x) {
    memcpy((float *)(void *)tile + (size_t)token * head_dim, x, head_dim * sizeof *x);
}

/* Write one token's key and value: the body of every replace. */
static inline __attribute__((always_inline)) void pleat__quant_put_row(const pleat__page_layout *l, uint8_t *page,
                                                                       uint32_t slot, const float *k, const float *v,
                                                                       pleat__quant_put_fn put_k,
                                                                       pleat__quant_put_fn put_v) {
    const uint32_t tile = slot / PLEAT__TILE, token = slot % PLEAT__TILE, d = l->head_dim;
    uint8_t *k_tile = pleat__k_tile(l, page, tile), *v_tile = pleat__v_tile(l, page, tile);
    if (l->format.rotated) {
        pleat__levels_put(l, page, slot, k, v);
        return;
    }
    if (l->format.k_bits == 32)
        pleat__put_key_f32(k_tile, d, token, k);
    else
        put_k(k_tile, pleat__k_meta(l, page, tile), l->format.k_bits, d, token, k);
    if (l->format.v_bits == 32)
        pleat__put_value_f32(v_tile, d, token, v);
    else
        put_v(v_tile, pleat__v_meta(l, page, tile), l->format.v_bits, d, token, v);
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

/* ---- and back ---------------------------------------------------------------------------------------------------- */

/* n f16 to f32; n is a multiple of 16. */
typedef void (*pleat__quant_widen_fn)(const uint8_t *from, uint32_t n, float *out);

/* A tile's codes of 8, 4 or 2 bits to f32, as pleat__quant_load_fn has them.  meta: scales, and minimums behind them. */
typedef void (*pleat__quant_codes_fn)(const uint8_t *codes, const uint8_t *meta, uint32_t bits, uint32_t head_dim,
                                      float *out);

/* The bodies of every load_k and load_v; `widen` and `load_codes` are constants as above. */
static inline __attribute__((always_inline)) void pleat__quant_load_k(const pleat__page_layout *l, const uint8_t *page,
                                                                      uint32_t tile, float *out,
                                                                      pleat__quant_widen_fn widen,
                                                                      pleat__quant_codes_fn load_codes) {
    const uint8_t *codes = page + l->k_off + (uint64_t)tile * l->k_tile_bytes;
    const uint8_t *meta = page + l->k_meta_off + (uint64_t)tile * PLEAT__META_TILE_BYTES;
    if (l->format.rotated)
        pleat__levels_load_k(l, page, tile, out);
    else if (l->format.k_bits == 32)
        memcpy(out, codes, l->k_tile_bytes);
    else if (l->format.k_bits == 16)
        widen(codes, l->head_dim * PLEAT__TILE, out);
    else
        load_codes(codes, meta, l->format.k_bits, l->head_dim, out);
}

static inline __attribute__((always_inline)) void pleat__quant_load_v(const pleat__page_layout *l, const uint8_t *page,
                                                                      uint32_t tile, float *out,
                                                                      pleat__quant_widen_fn widen,
                                                                      pleat__quant_codes_fn load_codes) {
    const uint8_t *codes = page + l->v_off + (uint64_t)tile * l->v_tile_bytes;
    const uint8_t *meta = page + l->v_meta_off + (uint64_t)tile * PLEAT__META_TILE_BYTES;
    if (l->format.rotated)
        pleat__levels_load_v(l, page, tile, out);
    else if (l->format.v_bits == 32)
        memcpy(out, codes, l->v_tile_bytes);
    else if (l->format.v_bits == 16)
        widen(codes, l->head_dim * PLEAT__TILE, out);
    else
        load_codes(codes, meta, l->format.v_bits, l->head_dim, out);
}

/* ---- scales ------------------------------------------------------------------------------------------------------- */

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
