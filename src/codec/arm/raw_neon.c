/* SPDX-License-Identifier: MIT
 *
 * raw_neon.c: a plane's bytes are broadcast, each to the eight codes whose bits it has, and tested.
 */
#include <arm_neon.h>

#include "codec/internal.h"
#include "core/compiler.h"

INLINE void decode(const uint8_t *bytes, uint32_t n_bits, uint32_t n_vectors, uint8_t *out) {
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
    const uint8x16_t first = vcombine_u8(vdup_n_u8(0), vdup_n_u8(1));
    for (uint32_t v = 0; v < n_vectors; v++, bytes += (size_t)8 * n_bits, out += 64) {
        for (uint32_t i = 0; i < 4; i++) {
            const uint8x16_t which = vaddq_u8(first, vdupq_n_u8((uint8_t)(2 * i)));
            uint8x16_t codes = vdupq_n_u8(0);
            for (uint32_t p = n_bits; p-- > 0;) {
                const uint8x8_t plane = vld1_u8(bytes + 8 * (size_t)p);
                const uint8x16_t mine = vqtbl1q_u8(vcombine_u8(plane, plane), which);
                codes = vsubq_u8(vaddq_u8(codes, codes), vtstq_u8(mine, bit));
            }
            vst1q_u8(out + (size_t)16 * i, codes);
        }
    }
}

void pleat__raw_decode_neon(const uint8_t *bytes, uint32_t n_bits, uint32_t n_vectors, uint8_t *out) {
    pleat__raw_decode_by(decode, bytes, n_bits, n_vectors, out);
}
