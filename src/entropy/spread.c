/* SPDX-License-Identifier: MIT
 *
 * spread.c: see spread.h.
 */
#include "entropy/spread.h"

/* Byte j of mask m: how many lanes before j take one, if j does. */
#define BYTE(m, j) \
    ((uint64_t)((m) >> (j)&1 ? __builtin_popcount((unsigned)(m) & ((1u << (j)) - 1)) : 0x80) << (8 * (j)))
#define MASK(m) BYTE(m, 0) | BYTE(m, 1) | BYTE(m, 2) | BYTE(m, 3) | BYTE(m, 4) | BYTE(m, 5) | BYTE(m, 6) | BYTE(m, 7)
#define MASKS_4(m) MASK(m), MASK((m) + 1), MASK((m) + 2), MASK((m) + 3)
#define MASKS_16(m) MASKS_4(m), MASKS_4((m) + 4), MASKS_4((m) + 8), MASKS_4((m) + 12)
#define MASKS_64(m) MASKS_16(m), MASKS_16((m) + 16), MASKS_16((m) + 32), MASKS_16((m) + 48)

_Alignas(64) const uint64_t pleat__spread[256] = {MASKS_64(0), MASKS_64(64), MASKS_64(128), MASKS_64(192)};
