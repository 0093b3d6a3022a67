/* SPDX-License-Identifier: MIT
 *
 * raw_avx512.c: bit planes are mask registers.
 */
#include <immintrin.h>

#include "codec/internal.h"
#include "core/compiler.h"

INLINE void decode(const uint8_t *bytes, uint32_t n_bits, uint32_t n_vectors, uint8_t *out) {
    for (uint32_t v = 0; v < n_vectors; v++, out += 64) {
        __m512i codes = _mm512_maskz_set1_epi8(pleat__load_u64(bytes), 1);
        bytes += 8;
        for (uint32_t p = 1; p < n_bits; p++, bytes += 8)
            codes = _mm512_mask_add_epi8(codes, pleat__load_u64(bytes), codes, _mm512_set1_epi8((char)(1u << p)));
        _mm512_storeu_si512(out, codes);
    }
}

void pleat__raw_decode_avx512(const uint8_t *bytes, uint32_t n_bits, uint32_t n_vectors, uint8_t *out) {
    pleat__raw_decode_by(decode, bytes, n_bits, n_vectors, out);
}
