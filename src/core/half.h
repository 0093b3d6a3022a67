/* SPDX-License-Identifier: MIT
 *
 * half.h: 16-bit floats as integers: IEEE binary16 (f16) and bfloat16 (bf16), converted to and from f32.
 *
 * Rounding is to nearest, ties to even.  f16 overflow gives infinity, as the hardware's conversion does; whoever
 * stores values clamps to PLEAT__F16_MAX first.  Bit for bit what VCVTPS2PH and VCVTPH2PS give, NaN included
 * (tests/check/core/test_core.c).
 */
#ifndef PLEAT_CORE_HALF_H
#define PLEAT_CORE_HALF_H

#include <string.h>

#include "core/types.h"

static inline uint32_t pleat__f32_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float pleat__bits_f32(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline float pleat__f16_to_f32(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t exponent = (h >> 10) & 0x1Fu;
    const uint32_t mantissa = h & 0x3FFu;
    if (exponent == 31) return pleat__bits_f32(sign | 0x7F800000u | (mantissa << 13) | (mantissa ? 0x400000u : 0));
    if (exponent != 0) return pleat__bits_f32(sign | ((exponent + 112) << 23) | (mantissa << 13));
    const float subnormal = (float)mantissa * 0x1p-24f;
    return sign ? -subnormal : subnormal;
}

/* The f16 at p, which need not be aligned. */
static inline float pleat__f16_at(const uint8_t *p) {
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return pleat__f16_to_f32(half);
}

static inline uint16_t pleat__f32_to_f16(float x) {
    const uint32_t u = pleat__f32_bits(x);
    const uint16_t sign = (uint16_t)((u >> 16) & 0x8000u);
    const uint32_t a = u & 0x7FFFFFFFu;
    if (a > 0x7F800000u) return (uint16_t)(sign | 0x7E00u | ((a >> 13) & 0x3FFu));
    if (a >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u); /* rounds to 65536 or more */
    if (a < 0x38800000u) {                                   /* below 2^-14: subnormal; adding 0.5 aligns the bits */
        const float aligned = pleat__bits_f32(a) + 0.5f;
        return (uint16_t)(sign | (pleat__f32_bits(aligned) - 0x3F000000u));
    }
    const uint32_t odd = (a >> 13) & 1u;
    return (uint16_t)(sign | ((a - (112u << 23) + 0xFFFu + odd) >> 13));
}

static inline float pleat__bf16_to_f32(uint16_t h) { return pleat__bits_f32((uint32_t)h << 16); }

#endif
