/* SPDX-License-Identifier: MIT
 *
 * packed_lines.h: codes out of the lines of packed.h, in vectors of VECTOR_BYTES, which an including file defines: 16,
 * 32 or 64.  Written once for every instruction set, as shifts and masks of the compiler's own vectors.
 */
#ifndef PLEAT_LINEAR_PACKED_LINES_H
#define PLEAT_LINEAR_PACKED_LINES_H

#include "linear/packed.h"

#ifndef VECTOR_BYTES
#define VECTOR_BYTES 16
#endif

typedef uint8_t bytes_v __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t words_v __attribute__((vector_size(VECTOR_BYTES)));

/* Bits of each byte, moved right, or left if `by` is negative, under a mask that what crosses bytes is outside of. */
INLINE bytes_v moved(bytes_v v, int by, uint8_t mask) {
    const words_v words = (words_v)v;
    return (bytes_v)(by >= 0 ? words >> by : words << -by) & mask;
}

/* Codes of group k from its bytes of the low line and the high one; of a table's types they are indices. */
INLINE bytes_v codes_from(pleat__weight_type type, uint32_t k, bytes_v low, bytes_v high) {
    const int low_bits = pleat__weight_formats[type].low_bits, high_bits = pleat__weight_formats[type].high_bits;
    const uint8_t low_mask = (uint8_t)((1u << low_bits) - 1), high_mask = (uint8_t)((1u << high_bits) - 1);
    if (low_bits == 8) return low;
    const bytes_v codes = moved(low, low_bits * (int)k % 8, low_mask);
    if (high_bits == 0) return codes;
    return codes | moved(high, high_bits * (int)k % 8 - low_bits, (uint8_t)(high_mask << low_bits));
}

#endif
