/* SPDX-License-Identifier: MIT
 *
 * raw.c: codes as bit planes.  Plane p of a vector is 8 bytes: bit i is bit p of code i.
 *
 * Eight codes at a time, in the bytes of a 64-bit word.
 */
#include "codec/internal.h"

#define EACH_BYTE 0x0101010101010101u

/* Bit p of each byte of `codes`: that of byte i becomes bit i.  The factor's term 2^(56-7i) moves it from
 * 8i to 56+i. */
static uint8_t gather_bits(uint64_t codes, uint32_t p) {
    return (uint8_t)((((codes >> p) & EACH_BYTE) * 0x0102040810204080u) >> 56);
}

/* Bit i of `bits` as byte i, 0 or 1: a copy in each byte, of which byte i keeps bit i, whose carry bit 7 catches. */
static uint64_t spread_bits(uint8_t bits) {
    const uint64_t kept = (bits * EACH_BYTE) & 0x8040201008040201u;
    return ((kept + 0x7F * EACH_BYTE) >> 7) & EACH_BYTE;
}

void pleat__raw_encode(const uint8_t *codes, uint32_t n_bits, uint32_t n_vectors, uint8_t *out) {
    for (uint32_t v = 0; v < n_vectors; v++, codes += 64, out += (size_t)8 * n_bits) {
        for (uint32_t i = 0; i < 8; i++) {
            const uint64_t eight = pleat__load_u64(codes + 8 * i);
            for (uint32_t p = 0; p < n_bits; p++) out[8 * p + i] = gather_bits(eight, p);
        }
    }
}

void pleat__raw_decode_ref(const uint8_t *bytes, uint32_t n_bits, uint32_t n_vectors, uint8_t *out) {
    for (uint32_t v = 0; v < n_vectors; v++, out += 64, bytes += (size_t)8 * n_bits) {
        for (uint32_t i = 0; i < 8; i++) {
            uint64_t eight = 0;
            for (uint32_t p = 0; p < n_bits; p++) eight |= spread_bits(bytes[8 * p + i]) << p;
            memcpy(out + 8 * i, &eight, sizeof eight);
        }
    }
}
