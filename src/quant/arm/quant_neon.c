/* SPDX-License-Identifier: MIT
 *
 * quant_neon.c: quant.h with registers of four elements, 16 dimensions at a time.  x86/quant_avx512.c has the scheme.
 *
 * NaN: FMAX and FMIN keep it, and the specification does not, so the lower clamp is a comparison and a select.
 */
#include <arm_neon.h>

#include "quant/variants.h"

#define LANES 4u

static inline float32x4_t load_clamped(const float *x) {
    const float32x4_t low = vdupq_n_f32(-PLEAT__F16_MAX), y = vld1q_f32(x);
    return vminq_f32(vbslq_f32(vcgtq_f32(y, low), y, low), vdupq_n_f32(PLEAT__F16_MAX));
}

static inline pleat__quant_scale put_scale(uint16_t *meta, uint32_t bits, uint32_t head_dim, uint32_t token,
                                           const float *x) {
    float32x4_t min = load_clamped(x), max = min;
    for (uint32_t i = LANES; i < head_dim; i += LANES) {
        const float32x4_t y = load_clamped(x + i);
        min = vminq_f32(min, y);
        max = vmaxq_f32(max, y);
    }
    const pleat__quant_scale s = pleat__quant_scale_of(vminvq_f32(min), vmaxvq_f32(max), bits);
    meta[token] = s.scale_f16;
    meta[PLEAT__TILE + token] = s.min_f16;
    return s;
}

/* Codes of 4 values, one in each 32-bit element. */
static inline uint32x4_t codes_of(const float *x, pleat__quant_scale s, uint32_t bits) {
    const float32x4_t y = vmulq_n_f32(vsubq_f32(load_clamped(x), vdupq_n_f32(s.min)), s.inverse);
    const float32x4_t top = vdupq_n_f32((float)((1u << bits) - 1));
    return vcvtnq_u32_f32(vminq_f32(vmaxq_f32(y, vdupq_n_f32(0)), top));
}

/* Codes of 16 values, one in each byte. */
static inline uint8x16_t sixteen_codes(const float *x, pleat__quant_scale s, uint32_t bits) {
    const uint16x8_t a = vcombine_u16(vmovn_u32(codes_of(x, s, bits)), vmovn_u32(codes_of(x + 4, s, bits)));
    const uint16x8_t b = vcombine_u16(vmovn_u32(codes_of(x + 8, s, bits)), vmovn_u32(codes_of(x + 12, s, bits)));
    return vcombine_u8(vmovn_u16(a), vmovn_u16(b));
}

static inline void put_key_f16(uint16_t *out, uint32_t head_dim, const float *x) {
    for (uint32_t i = 0; i < head_dim; i += LANES, out += LANES * PLEAT__TILE) {
        const uint16x4_t h = vreinterpret_u16_f16(vcvt_f16_f32(load_clamped(x + i)));
        vst1_lane_u16(out, h, 0);
        vst1_lane_u16(out + PLEAT__TILE, h, 1);
        vst1_lane_u16(out + 2 * PLEAT__TILE, h, 2);
        vst1_lane_u16(out + 3 * PLEAT__TILE, h, 3);
    }
}

/* 16 codes to a tile's words of four dimensions, `out` being the token's first one. */
static inline void put_words(uint32_t *out, uint32_t bits, uint8x16_t codes) {
    const uint32x4_t words = vreinterpretq_u32_u8(codes);
    if (bits == 8) {
        vst1q_lane_u32(out, words, 0);
        vst1q_lane_u32(out + PLEAT__TILE, words, 1);
        vst1q_lane_u32(out + 2 * PLEAT__TILE, words, 2);
        vst1q_lane_u32(out + 3 * PLEAT__TILE, words, 3);
        return;
    }
    const uint8x16_t swapped = vreinterpretq_u8_u32(vrev64q_u32(words)); /* words 1, 0, 3, 2 */
    if (bits == 4) {
        const uint32x4_t pairs = vreinterpretq_u32_u8(vsliq_n_u8(codes, swapped, 4));
        vst1q_lane_u32(out, pairs, 0);
        vst1q_lane_u32(out + PLEAT__TILE, pairs, 2);
        return;
    }
    const uint8x16_t pairs = vsliq_n_u8(codes, swapped, 2);
    vst1q_lane_u32(out, vreinterpretq_u32_u8(vsliq_n_u8(pairs, vextq_u8(pairs, pairs, 8), 4)), 0);
}

static inline void put_key(uint8_t *tile, uint16_t *meta, uint32_t bits, uint32_t head_dim, uint32_t token,
                           const float *x) {
    if (bits == 16) {
        put_key_f16((uint16_t *)(void *)tile + token, head_dim, x);
        return;
    }
    const pleat__quant_scale s = put_scale(meta, bits, head_dim, token, x);
    uint32_t *out = (uint32_t *)(void *)tile + token;
    for (uint32_t i = 0; i < head_dim; i += 16, out += bits / 2 * PLEAT__TILE)
        put_words(out, bits, sixteen_codes(x + i, s, bits));
}

static inline void put_value(uint8_t *tile, uint16_t *meta, uint32_t bits, uint32_t head_dim, uint32_t token,
                             const float *x) {
    if (bits == 16) {
        uint16_t *out = (uint16_t *)(void *)tile + (size_t)token * head_dim;
        for (uint32_t i = 0; i < head_dim; i += LANES)
            vst1_u16(out + i, vreinterpret_u16_f16(vcvt_f16_f32(load_clamped(x + i))));
        return;
    }
    const pleat__quant_scale s = put_scale(meta, bits, head_dim, token, x);
    const uint32_t top = (1u << bits) - 1, per = 8 / bits;
    const uint32_t shift = 8 * (token % 4) + bits * (token / 4 % per); /* in the word of tokens token/4*4 .. +3 */
    const int32x4_t count = vdupq_n_s32((int32_t)shift);
    const uint32x4_t mine = vdupq_n_u32(top << shift), flip = vdupq_n_u32(bits == 8 ? 0x80 : 0);
    uint32_t *out = (uint32_t *)(void *)(tile + token / (4 * per) * 4 * head_dim);
    for (uint32_t i = 0; i < head_dim; i += LANES) {
        const uint32x4_t code = veorq_u32(codes_of(x + i, s, bits), flip);
        vst1q_u32(out + i, vbslq_u32(mine, vshlq_u32(code, count), vld1q_u32(out + i)));
    }
}

void pleat__quant_store_neon(const pleat__page_layout *layout, uint8_t *page, uint32_t slot, uint32_t n, const float *k,
                             const float *v, size_t stride) {
    pleat__quant_store_rows(layout, page, slot, n, k, v, stride, put_key, put_value);
}

void pleat__quant_replace_neon(const pleat__page_layout *layout, uint8_t *page, uint32_t slot, const float *k,
                               const float *v) {
    pleat__quant_put_row(layout, page, slot, k, v, put_key, put_value);
}

static inline float32x4_t load_f16(const void *p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)p)));
}

static void widen_f16(const uint8_t *from, uint32_t n, float *out) {
    for (uint32_t i = 0; i < n; i += LANES) vst1q_f32(out + i, load_f16(from + 2 * i));
}

/* The code at `shift` of each 32-bit element. */
static inline float32x4_t code_at(uint32x4_t words, uint32_t shift, uint32x4_t mask) {
    return vcvtq_f32_u32(vandq_u32(vshlq_u32(words, vdupq_n_s32(-(int32_t)shift)), mask));
}

static inline void load_k_codes(const uint8_t *codes, const uint8_t *meta, uint32_t bits, uint32_t head_dim,
                                float *out) {
    const uint32_t n_bytes = head_dim * PLEAT__TILE * bits / 8;
    const uint32x4_t mask = vdupq_n_u32((1u << bits) - 1);
    for (uint32_t token = 0; token < PLEAT__TILE; token += LANES, out += LANES) {
        const float32x4_t scale = load_f16(meta + 2 * token), min = load_f16(meta + 2 * PLEAT__TILE + 2 * token);
        float *to = out;
        for (uint32_t at = 4 * token; at < n_bytes; at += 64) {
            const uint32x4_t words = vld1q_u32((const uint32_t *)(const void *)(codes + at)); /* 4 tokens */
            for (uint32_t p = 0; p < 8 / bits; p++) {
                for (uint32_t j = 0; j < 4; j++, to += PLEAT__TILE)
                    vst1q_f32(to, vfmaq_f32(min, code_at(words, 8 * j + bits * p, mask), scale));
            }
        }
    }
}

void pleat__quant_load_k_neon(const pleat__page_layout *layout, const uint8_t *page, uint32_t tile, float *out) {
    pleat__quant_load_k(layout, page, tile, out, widen_f16, load_k_codes);
}

static inline void load_v_codes(const uint8_t *codes, const uint8_t *meta, uint32_t bits, uint32_t head_dim,
                                float *out) {
    const uint32_t per = 8 / bits;
    float scales[2 * PLEAT__TILE];
    widen_f16(meta, 2 * PLEAT__TILE, scales);
    const uint32x4_t mask = vdupq_n_u32((1u << bits) - 1), flip = vdupq_n_u32(bits == 8 ? 0x80808080u : 0);
    for (uint32_t token = 0; token < PLEAT__TILE; token++) {
        const uint32_t *from = (const uint32_t *)(const void *)(codes + token / (4 * per) * 4 * head_dim);
        const uint32_t shift = 8 * (token % 4) + bits * (token / 4 % per);
        const float32x4_t min = vdupq_n_f32(scales[PLEAT__TILE + token]);
        for (uint32_t i = 0; i < head_dim; i += LANES, out += LANES) {
            const uint32x4_t words = veorq_u32(vld1q_u32(from + i), flip);
            vst1q_f32(out, vfmaq_n_f32(min, code_at(words, shift, mask), scales[token]));
        }
    }
}

void pleat__quant_load_v_neon(const pleat__page_layout *layout, const uint8_t *page, uint32_t tile, float *out) {
    pleat__quant_load_v(layout, page, tile, out, widen_f16, load_v_codes);
}
