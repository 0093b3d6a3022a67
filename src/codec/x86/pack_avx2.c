/* SPDX-License-Identifier: MIT
 *
 * pack_avx2.c: a pack at a time in 16-bit elements, four to a vector of codes.
 *
 * Numbers of 16 bits are taken as pack_avx2.h says; here they become codes of a byte.
 */
#include "codec/x86/pack_avx2.h"

#include "codec/internal.h"

/* A number that begins at a byte is the upper one of its word; nothing is below. */
#define SIXTEEN(x, w)                                                                                             \
    x(w, 0), x(w, 1), x(w, 2), x(w, 3), x(w, 4), x(w, 5), x(w, 6), x(w, 7), x(w, 8), x(w, 9), x(w, 10), x(w, 11), \
        x(w, 12), x(w, 13), x(w, 14), x(w, 15)
#define BELOW(w, i) ((i) * (w) % 8)
#define FROM(w, i) BELOW(w, i) ? (i) * (w) / 8 : 0x80, BELOW(w, i) ? (i) * (w) / 8 + 1 : (i) * (w) / 8
#define FACTOR(w, i) 1 << (BELOW(w, i) ? 16 - BELOW(w, i) : 8)
#define MASK(w, i) (1 << (w)) - 1
#define WIDTH(w)                                                       \
    {                                                                  \
        {SIXTEEN(FROM, w)}, {SIXTEEN(FACTOR, w)}, { SIXTEEN(MASK, w) } \
    }
const pleat__pack_width pleat__pack_widths[9] = {WIDTH(0), WIDTH(1), WIDTH(2), WIDTH(3), WIDTH(4),
                                                 WIDTH(5), WIDTH(6), WIDTH(7), WIDTH(8)};

/* Four packs, the first at *at, which is moved behind them. */
INLINE void four_packs(const uint8_t *widths, const uint8_t **at, __m256i *x) {
    UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        x[i] = pack_numbers_at(&pleat__pack_widths[widths[i]], *at);
        *at += 2u * widths[i];
    }
}

INLINE __m256i broadcast_four(const uint8_t *p) { return _mm256_set1_epi32((int)pleat__load_u32(p)); }

INLINE __m256i to_codes(__m256i fields, __m256i mins, __m256i top) {
    return _mm256_min_epu8(_mm256_adds_epu8(fields, mins), top);
}

/* Halves of 16 bytes at out and out + gap. */
INLINE void store_halves(uint8_t *out, size_t gap, __m256i x) {
    _mm_storeu_si128((__m128i *)(void *)out, _mm256_castsi256_si128(x));
    _mm_storeu_si128((__m128i *)(void *)(out + gap), _mm256_extracti128_si256(x, 1));
}

/* Four packs are a vector: words of a place's four codes. */
static void decode_keys(const void *constants, const pleat__pack_slice *slice, uint32_t n_packs, uint8_t *out) {
    const uint8_t *widths = slice->widths, *mins = slice->mins, *at = slice->fields;
    const __m256i top = _mm256_load_si256((const __m256i *)constants);
    for (uint32_t p = 0; p < n_packs; p += 4, out += 64) {
        __m256i x[4];
        four_packs(widths + p, &at, x);
        const __m256i a = _mm256_or_si256(x[0], _mm256_slli_epi16(x[1], 8));
        const __m256i b = _mm256_or_si256(x[2], _mm256_slli_epi16(x[3], 8));
        const __m256i min = broadcast_four(mins + p);
        store_halves(out, 32, to_codes(_mm256_unpacklo_epi16(a, b), min, top));
        store_halves(out + 16, 32, to_codes(_mm256_unpackhi_epi16(a, b), min, top));
    }
}

/* Sixteen packs are four vectors; four of them are a quarter of each. */
static void decode_values(const void *constants, const pleat__pack_slice *slice, uint32_t n_packs, uint8_t *out) {
    const uint8_t *widths = slice->widths, *mins = slice->mins, *at = slice->fields;
    const __m256i top = _mm256_load_si256((const __m256i *)constants);
    const __m256i two = _mm256_setr_epi64x(0, 0x0101010101010101, 0, 0x0101010101010101);
    for (uint32_t p = 0; p < n_packs; p += 4) {
        uint8_t *to = out + (size_t)p / 16 * 256 + p % 16 * 4;
        __m256i x[4];
        four_packs(widths + p, &at, x);
        const __m256i min = broadcast_four(mins + p);
        const __m256i min_ab = _mm256_shuffle_epi8(min, two);
        const __m256i min_cd = _mm256_shuffle_epi8(min, _mm256_add_epi8(two, _mm256_set1_epi8(2)));
        const __m256 ab = _mm256_castsi256_ps(to_codes(_mm256_packus_epi16(x[0], x[1]), min_ab, top));
        const __m256 cd = _mm256_castsi256_ps(to_codes(_mm256_packus_epi16(x[2], x[3]), min_cd, top));
        store_halves(to, 128, _mm256_castps_si256(_mm256_shuffle_ps(ab, cd, 0x88)));
        store_halves(to + 64, 128, _mm256_castps_si256(_mm256_shuffle_ps(ab, cd, 0xDD)));
    }
}

void pleat__pack_numbers_avx2(const uint8_t *at, uint32_t n, uint32_t n_bits, uint8_t *out) {
    const pleat__pack_width *w = &pleat__pack_widths[n_bits];
    for (uint32_t i = 0; i < n; i += 16, at += 2 * n_bits) {
        const __m256i x = pack_numbers_at(w, at);
        _mm_storeu_si128((__m128i *)(void *)(out + i),
                         _mm_packus_epi16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)));
    }
}

void pleat__pack_decode_avx2(pleat__section *s, uint32_t n_vectors, uint8_t *out) {
    static const pleat__pack_ops ops = {pleat__pack_numbers_avx2, decode_keys, decode_values};
    const __m256i constants = _mm256_set1_epi8((char)(s->n_levels - 1)); /* the largest code */
    pleat__pack_decode_by(&ops, &constants, s, n_vectors, out);
}
