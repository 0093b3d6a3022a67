/* SPDX-License-Identifier: MIT
 *
 * quant_avx512.c: quant.h with registers of 16 elements.
 *
 * One token at a time, also for whole tiles: a row of codes is made in registers.  Then keys are spread over the tile
 * as 32-bit words, one for each 64-byte line, and values are merged into 32-bit words of 16 dimensions.
 */
#include <immintrin.h>

#include "quant/pack_word.h"

static inline __m512 clamp(__m512 x) {
    return _mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(-PLEAT__F16_MAX)), _mm512_set1_ps(PLEAT__F16_MAX));
}

static inline __m512 load_clamped(const float *x) { return clamp(_mm512_loadu_ps(x)); }

static inline pleat__quant_scale put_scale(uint16_t *meta, uint32_t bits, uint32_t head_dim, uint32_t token,
                                           const float *x) {
    __m512 min = load_clamped(x), max = min;
    for (uint32_t i = 16; i < head_dim; i += 16) {
        const __m512 y = load_clamped(x + i);
        min = _mm512_min_ps(min, y);
        max = _mm512_max_ps(max, y);
    }
    const pleat__quant_scale s = pleat__quant_scale_of(_mm512_reduce_min_ps(min), _mm512_reduce_max_ps(max), bits);
    meta[token] = s.scale_f16;
    meta[PLEAT__TILE + token] = s.min_f16;
    return s;
}

/* Codes of 16 values, one in each 32-bit element. */
static inline __m512i codes_of(const float *x, __m512 min, __m512 inverse, __m512 top) {
    __m512 y = _mm512_mul_ps(_mm512_sub_ps(load_clamped(x), min), inverse);
    y = _mm512_min_ps(_mm512_max_ps(y, _mm512_setzero_ps()), top);
    return _mm512_cvtps_epi32(y);
}

static inline void put_key(uint8_t *tile, uint16_t *meta, uint32_t bits, uint32_t head_dim, uint32_t token,
                           const float *x) {
    if (bits == 16) {
        uint16_t *out = (uint16_t *)(void *)tile + token;
        for (uint32_t i = 0; i < head_dim; i += 16) {
            uint16_t h[16];
            _mm256_storeu_si256((__m256i *)(void *)h, _mm512_cvtps_ph(load_clamped(x + i), _MM_FROUND_TO_NEAREST_INT));
            for (uint32_t j = 0; j < 16; j++) out[(i + j) * PLEAT__TILE] = h[j];
        }
        return;
    }
    const pleat__quant_scale s = put_scale(meta, bits, head_dim, token, x);
    const __m512 min = _mm512_set1_ps(s.min), inverse = _mm512_set1_ps(s.inverse);
    const __m512 top = _mm512_set1_ps((float)((1u << bits) - 1));
    uint32_t *out = (uint32_t *)(void *)tile + token;
    for (uint32_t i = 0; i < head_dim; i += 16) {
        uint32_t w[4]; /* four dimensions a word */
        _mm_storeu_si128((__m128i *)(void *)w, _mm512_cvtepi32_epi8(codes_of(x + i, min, inverse, top)));
        pleat__pack_key(out, bits, i, w);
    }
}

static inline void put_value(uint8_t *tile, uint16_t *meta, uint32_t bits, uint32_t head_dim, uint32_t token,
                             const float *x) {
    if (bits == 16) {
        uint16_t *out = (uint16_t *)(void *)tile + (size_t)token * head_dim;
        for (uint32_t i = 0; i < head_dim; i += 16)
            _mm256_storeu_si256((__m256i *)(void *)(out + i),
                                _mm512_cvtps_ph(load_clamped(x + i), _MM_FROUND_TO_NEAREST_INT));
        return;
    }
    const pleat__quant_scale s = put_scale(meta, bits, head_dim, token, x);
    const __m512 min = _mm512_set1_ps(s.min), inverse = _mm512_set1_ps(s.inverse);
    const uint32_t top = (1u << bits) - 1, per = 8 / bits;
    const uint32_t shift = 8 * (token % 4) + bits * (token / 4 % per); /* in the word of tokens token/4*4 .. +3 */
    const __m128i count = _mm_cvtsi32_si128((int)shift);
    const __m512i keep = _mm512_set1_epi32((int)~(top << shift));
    const __m512i flip = _mm512_set1_epi32(bits == 8 ? 0x80 : 0);
    uint8_t *out = tile + token / (4 * per) * 4 * head_dim;
    for (uint32_t i = 0; i < head_dim; i += 16) {
        const __m512i code = codes_of(x + i, min, inverse, _mm512_set1_ps((float)top));
        const __m512i old = _mm512_and_si512(_mm512_load_si512(out + 4 * i), keep);
        _mm512_store_si512(out + 4 * i, _mm512_or_si512(old, _mm512_sll_epi32(_mm512_xor_si512(code, flip), count)));
    }
}

void pleat__quant_store_avx512(const pleat__page_layout *layout, uint8_t *page, uint32_t slot, uint32_t n,
                               const float *k, const float *v, size_t stride) {
    pleat__quant_store_rows(layout, page, slot, n, k, v, stride, put_key, put_value);
}

void pleat__quant_replace_avx512(const pleat__page_layout *layout, uint8_t *page, uint32_t slot, const float *k,
                                 const float *v) {
    pleat__quant_put_row(layout, page, slot, k, v, put_key, put_value);
}

static inline __m512 load_f16(const void *p) { return _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)p)); }

static void widen_f16(const uint8_t *from, uint32_t n, float *out) {
    for (uint32_t i = 0; i < n; i += 16) _mm512_store_ps(out + i, load_f16(from + 2 * i));
}

/* The code at `shift` of each 32-bit element. */
static inline __m512 code_at(__m512i words, uint32_t shift, __m512i mask) {
    const __m512i code = _mm512_and_si512(_mm512_srl_epi32(words, _mm_cvtsi32_si128((int)shift)), mask);
    return _mm512_cvtepi32_ps(code);
}

static inline void load_k_codes(const uint8_t *codes, const uint8_t *meta, uint32_t bits, uint32_t head_dim,
                                float *out) {
    const uint32_t n_bytes = head_dim * PLEAT__TILE * bits / 8;
    const __m512 scale = load_f16(meta), min = load_f16(meta + 32);
    const __m512i mask = _mm512_set1_epi32((1 << bits) - 1);
    for (uint32_t at = 0; at < n_bytes; at += 64) {
        const __m512i words = _mm512_load_si512(codes + at); /* element: token; byte j: dimensions 4p + j */
        for (uint32_t p = 0; p < 8 / bits; p++) {
            for (uint32_t j = 0; j < 4; j++, out += PLEAT__TILE)
                _mm512_store_ps(out, _mm512_fmadd_ps(code_at(words, 8 * j + bits * p, mask), scale, min));
        }
    }
}

void pleat__quant_load_k_avx512(const pleat__page_layout *layout, const uint8_t *page, uint32_t tile, float *out) {
    pleat__quant_load_k(layout, page, tile, out, widen_f16, load_k_codes);
}

static inline void load_v_codes(const uint8_t *codes, const uint8_t *meta, uint32_t bits, uint32_t head_dim,
                                float *out) {
    const uint32_t per = 8 / bits;
    float scale[PLEAT__TILE], min[PLEAT__TILE];
    _mm512_storeu_ps(scale, load_f16(meta));
    _mm512_storeu_ps(min, load_f16(meta + 32));
    const __m512i mask = _mm512_set1_epi32((1 << bits) - 1);
    const __m512i flip = _mm512_set1_epi8(bits == 8 ? (char)0x80 : 0);
    for (uint32_t token = 0; token < PLEAT__TILE; token++) {
        const uint8_t *from = codes + token / (4 * per) * 4 * head_dim;
        const uint32_t shift = 8 * (token % 4) + bits * (token / 4 % per);
        const __m512 s = _mm512_set1_ps(scale[token]), m = _mm512_set1_ps(min[token]);
        for (uint32_t i = 0; i < head_dim; i += 16, out += 16) {
            const __m512i words = _mm512_xor_si512(_mm512_load_si512(from + 4 * i), flip);
            _mm512_store_ps(out, _mm512_fmadd_ps(code_at(words, shift, mask), s, m));
        }
    }
}

void pleat__quant_load_v_avx512(const pleat__page_layout *layout, const uint8_t *page, uint32_t tile, float *out) {
    pleat__quant_load_v(layout, page, tile, out, widen_f16, load_v_codes);
}
