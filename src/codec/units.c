/* SPDX-License-Identifier: MIT
 *
 * units.c: COMPACT units: 16 bits for a minimum and a step on a grid (quant/bounded.h).
 *
 *     bits 15..7   the step's f16 bits 14..6: of the others none is set
 *     bits 6..0    z, in two's complement: the minimum is z * step/2
 */
#include "codec/internal.h"
#include "core/compiler.h"
#include "core/half.h"

void pleat__units_pack(const uint16_t *mins, const uint16_t *steps, uint32_t n, uint8_t *out) {
    for (uint32_t i = 0; i < n; i++) {
        const float step = pleat__f16_to_f32(steps[i]);
        const int32_t z = steps[i] ? (int32_t)(2 * pleat__f16_to_f32(mins[i]) / step) : 0; /* no remainder */
        const uint16_t unit = (uint16_t)(steps[i] >> 6 << 7 | (z & 127));
        memcpy(out + (size_t)2 * i, &unit, sizeof unit);
    }
}

/* f16 bits 15 and 14..0 of an f32 that has 2^-112 times the number: its sign and exponent are where they have to be, no
 * number is subnormal, and 0 is 0. */
INLINE uint32_t grid_minimum(int32_t z, uint32_t scaled_step) {
    return pleat__f32_bits((float)z * 0.5f * pleat__bits_f32(scaled_step)) << 3;
}

/* A unit each in the low and in the high half of 32 bits: a vector of them needs no shuffles.  An f16's bits 14..6 are
 * bits 27..19 of an f32 that has 2^-112 times its number. */
void pleat__units_expand(const uint8_t *restrict units, uint32_t n, uint8_t *restrict mins, uint8_t *restrict steps) {
    const size_t n_bytes = (size_t)4 * ((n + 1) / 2);
    for (size_t i = 0; i < n_bytes; i += 4) {
        const uint32_t two = pleat__load_u32(units + i), high = two << 9;
        const uint32_t step = two >> 1 & 0x7FC07FC0u;
        const uint32_t min = grid_minimum((int32_t)(two << 25) >> 25, two << 12 & 0x0FF80000u) >> 16 |
                             (grid_minimum((int32_t)high >> 25, two >> 4 & 0x0FF80000u) & 0xFFFF0000u) |
                             (high & 0x80008000u);
        memcpy(mins + i, &min, sizeof min);
        memcpy(steps + i, &step, sizeof step);
    }
}
