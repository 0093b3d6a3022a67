/* SPDX-License-Identifier: MIT
 *
 * sum.h: the sum of a piece: XXH3 of 64 bits, whose seed is the piece's index, so that pieces cannot change places.
 *
 * Variants give one number.  xxHash chooses its instructions when it is compiled; without AVX2 it takes longer than reading a file that
 * is in the system's cache.
 */
#ifndef PLEAT_IMAGE_SUM_H
#define PLEAT_IMAGE_SUM_H

#include "hw/cpu.h"

typedef uint64_t (*pleat__piece_sum_fn)(const void *piece, uint64_t n_bytes, uint64_t idx);

uint64_t pleat__piece_sum_ref(const void *piece, uint64_t n_bytes, uint64_t idx);

#if PLEAT_X86
uint64_t pleat__piece_sum_avx2(const void *piece, uint64_t n_bytes, uint64_t idx);
#endif

pleat__piece_sum_fn pleat__piece_sum_of(uint32_t cpu_flags);

#endif
