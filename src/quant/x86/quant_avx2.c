/* SPDX-License-Identifier: MIT
 *
 * quant_avx2.c: quant.h with registers of 8 elements; quant_avx512.c with half the width.
 */
#include <immintrin.h>

#include "quant/pack_word.h"

static inline __m256 load_clamped(const float *x) {
    const __m256 low = _mm256_set1_ps(-PLEAT__F16_MAX), high = _mm256_set1_ps(PLEAT__F16_MAX);
    return _mm256_min_ps(_mm256_max_ps(_mm256_loadu_ps(x), low), high);
}

static inline float reduce_min(__m256 x) {
    __m128 m = _mm_min_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    m = _mm_min_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_min_ss(m, _mm_movehdup_ps(m)));
}

static inline float reduce_max(__m256 x) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

static inline pleat__quant_scale put_scale(uint16_t *meta, uint32_t bits, uint32_t head_dim, uint32_t token,
                                           const float *x) {
    __m256 min = load_clamped(x), max = min;
    for (uint32_t i = 8; i < head_dim; i += 8) {
        const __m256 y = load_clamped(x + i);
        min = _mm256_min_ps(min, y);
        max = _mm256_max_ps(max, y);
    }
    const pleat__quant_scale s = pleat__quant_scale_of(reduce_min(min), reduce_max(max), bits);
    meta[token] = s.scale_f16;
    meta[PLEAT__TILE + token] = s.min_f16;
    return s;
}

/* Codes of 8 values, one in each 32-bit element. */
static inline __m256i codes_of(const float *x, __m256 min, __m256 inverse, __m256 top) {
    __m256 y = _mm256_mul_ps(_mm256_sub_ps(load_clamped(x), min), inverse);
    y = _mm256_min_ps(_mm256_max_ps(y, _mm256_setzero_ps()), top);
    return _mm256_cvtps_epi32(y);
}

static inline void put_key(uint8_t *tile, uint16_t *meta, uint32_t bits, uint32_t head_dim, uint32_t token,
                           const float *x) {
    if (bits == 16) {
        uint16_t *out = (uint16_t *)(void *)tile + token;
        for (uint32_t i = 0; i < head_dim; i += 8) {
            uint16_t h[8];
            _mm_storeu_si128((__m128i *)(void *)h, _mm256_cvtps_ph(load_clamped(x + i), _MM_FROUND_TO_NEAREST_INT));
            for (uint32_t j = 0; j < 8; j++) out[(i + j) * PLEAT__TILE] = h[j];
        }
        return;
    }
    const pleat__quant_scale s = put_scale(meta, bits, head_dim, token, x);
    const __m256 min = _mm256_set1_ps(s.min), inverse = _mm256_set1_ps(s.inverse);
    const __m256 top = _mm256_set1_ps((float)((1u << bits) - 1));
    uint32_t *out = (uint32_t *)(void *)tile + token;
    for (uint32_t i = 0; i < head_dim; i += 16) {
        const __m256i a = codes_of(x + i, min, inverse, top), b = codes_of(x + i + 8, min, inverse, top);
        const __m256i halves = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xD8);
        uint32_t w[4]; /* four dimensions a word */
        _mm_storeu_si128((__m128i *)(void *)w,
                         _mm_packus_epi16(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1)));
        pleat__pack_key(out, bits, i, w);
    }
}

static inline void put_value(uint8_t *tile, uint16_t *meta, uint32_t bits, uint32_t head_dim, uint32_t token,
                             const float *x) {
    if (bits == 16) {
        uint16_t *out = (uint16_t *)(void *)tile + (size_t)token * head_dim;
        for (uint32_t i = 0; i < head_dim; i += 8)
            _mm_storeu_si128((__m128i *)(void *)(out + i),
                             _mm256_cvtps_ph(load_clamped(x + i), _MM_FROUND_TO_NEAREST_INT));
        return;
    }
    const pleat__quant_scale s = put_scale(meta, bits, head_dim, token, x);
    const __m256 min = _mm256_set1_ps(s.min), inverse = _mm256_set1_ps(s.inverse);
    const uint32_t top = (1u << bits) - 1, per = 8 / bits;
    const uint32_t shift = 8 * (token % 4) + bits * (token / 4 % per); /* in the word of tokens token/4*4 .. +3 */
    const __m128i count = _mm_cvtsi32_si128((int)shift);
    const __m256i keep = _mm256_set1_epi32((int)~(top << shift));
    const __m256i flip = _mm256_set1_epi32(bits == 8 ? 0x80 : 0);
    uint8_t *out = tile + token / (4 * per) * 4 * head_dim;
    for (uint32_t i = 0; i < head_dim; i += 8) {
        __m256i *at = (__m256i *)(void *)(out + 4 * i);
        const __m256i code = codes_of(x + i, min, inverse, _mm256_set1_ps((float)top));
        const __m256i old = _mm256_and_si256(_mm256_load_si256(at), keep);
        _mm256_store_si256(at, _mm256_or_si256(old, _mm256_sll_epi32(_mm256_xor_si256(code, flip), count)));
    }
}

void pleat__quant_store_avx2(const pleat__page_layout *layout, uint8_t *page, uint32_t slot, uint32_t n, const float *k,
                             const float *v, size_t stride) {
    pleat__quant_store_rows(layout, page, slot, n, k, v, stride, put_key, put_value);
}

void pleat__quant_replace_avx2(const pleat__page_layout *layout, uint8_t *page, uint32_t slot, const float *k,
                               const float *v) {
    pleat__quant_put_row(layout, page, slot, k, v, put_key, put_value);
}

static inline __m256 load_f16(const void *p) { return _mm256_cvtph_ps(_mm_load_si128((const __m128i *)p)); }

static void widen_f16(const uint8_t *from, uint32_t n, float *out) {
    for (uint32_t i = 0; i < n; i += 8) _mm256_store_ps(out + i, load_f16(from + 2 * i));
}

/* The code at `shift` of each 32-bit element. */
static inline __m256 code_at(__m256i words, uint32_t shift, __m256i mask) {
    const __m256i code = _mm256_and_si256(_mm256_srl_epi32(words, _mm_cvtsi32_si128((int)shift)), mask);
    return _mm256_cvtepi32_ps(code);
}

static inline void load_k_codes(const uint8_t *codes, const uint8_t *meta, uint32_t bits, uint32_t head_dim,
                                float *out) {
    const uint32_t n_bytes = head_dim * PLEAT__TILE * bits / 8;
    const __m256 scale[2] = {load_f16(meta), load_f16(meta + 16)}, min[2] = {load_f16(meta + 32), load_f16(meta + 48)};
    const __m256i mask = _mm256_set1_epi32((1 << bits) - 1);
    for (uint32_t at = 0; at < n_bytes; at += 64, out += 4 * (8 / bits) * PLEAT__TILE) {
        for (uint32_t half = 0; half < 2; half++) { /* 8 tokens */
            const __m256i words = _mm256_load_si256((const __m256i *)(const void *)(codes + at + 32 * half));
            float *to = out + 8 * half;
            for (uint32_t p = 0; p < 8 / bits; p++) {
                for (uint32_t j = 0; j < 4; j++, to += PLEAT__TILE)
                    _mm256_store_ps(to,
                                    _mm256_fmadd_ps(code_at(words, 8 * j + bits * p, mask), scale[half], min[half]));
            }
        }
    }
}

void pleat__quant_load_k_avx2(const pleat__page_layout *layout, const uint8_t *page, uint32_t tile, float *out) {
    pleat__quant_load_k(layout, page, tile, out, widen_f16, load_k_codes);
}

static inline void load_v_codes(const uint8_t *codes, const uint8_t *meta, uint32_t bits, uint32_t head_dim,
                                float *out) {
    const uint32_t per = 8 / bits;
    float scales[2 * PLEAT__TILE] __attribute__((aligned(32)));
    widen_f16(meta, 2 * PLEAT__TILE, scales);
    const __m256i mask = _mm256_set1_epi32((1 << bits) - 1);
    const __m256i flip = _mm256_set1_epi8(bits == 8 ? (char)0x80 : 0);
    for (uint32_t token = 0; token < PLEAT__TILE; token++) {
        const uint8_t *from = codes + token / (4 * per) * 4 * head_dim;
        const uint32_t shift = 8 * (token % 4) + bits * (token / 4 % per);
        const __m256 s = _mm256_set1_ps(scales[token]), m = _mm256_set1_ps(scales[PLEAT__TILE + token]);
        for (uint32_t i = 0; i < head_dim; i += 8, out += 8) {
            const __m256i words =
                _mm256_xor_si256(_mm256_load_si256((const __m256i *)(const void *)(from + 4 * i)), flip);
            _mm256_store_ps(out, _mm256_fmadd_ps(code_at(words, shift, mask), s, m));
        }
    }
}

void pleat__quant_load_v_avx2(const pleat__page_layout *layout, const uint8_t *page, uint32_t tile, float *out) {
    pleat__quant_load_v(layout, page, tile, out, widen_f16, load_v_codes);
}
