/* SPDX-License-Identifier: MIT
 *
 * pack_avx2.h: sixteen numbers of one width, 16 bits each, for what decodes packs (pack_avx2.c) and what multiplies them
 * (attn/x86/blocks_packs_avx2.h).
 *
 * A pack of width w is 2w bytes, which stand in both halves of a register.  A shuffle brings each number the two bytes
 * that it lies in, with one bit of others below it at least; a multiplication moves it down, and what is above is masked.
 */
#ifndef PLEAT_CODEC_X86_PACK_AVX2_H
#define PLEAT_CODEC_X86_PACK_AVX2_H

#include <immintrin.h>

#include "codec/pack.h"
#include "core/compiler.h"

/* By number: which bytes, 2^(16 - bits below it), and 2^w - 1.  Of 128 bytes, so that a shift finds it. */
typedef struct pleat__pack_width {
    _Alignas(128) uint8_t from[32];
    uint16_t factor[16], mask[16];
} pleat__pack_width;

extern const pleat__pack_width pleat__pack_widths[9];

INLINE __m256i pack_numbers_at(const pleat__pack_width *w, const uint8_t *at) { /* reads 16 bytes */
    const __m256i bytes = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)at));
    const __m256i words = _mm256_shuffle_epi8(bytes, _mm256_load_si256((const __m256i *)(const void *)w->from));
    const __m256i low = _mm256_mulhi_epu16(words, _mm256_load_si256((const __m256i *)(const void *)w->factor));
    return _mm256_and_si256(low, _mm256_load_si256((const __m256i *)(const void *)w->mask));
}

#endif
