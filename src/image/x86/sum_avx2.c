/* SPDX-License-Identifier: MIT
 *
 * sum_avx2.c: the sum of a piece in registers of 256 bits: xxHash's own code, compiled for them.
 */
#include "image/sum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t pleat__piece_sum_avx2(const void *piece, uint64_t n_bytes, uint64_t idx) {
    return XXH3_64bits_withSeed(piece, n_bytes, idx);
}
