/* SPDX-License-Identifier: MIT
 *
 * sum.c: see sum.h.
 */
#include "image/sum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "pleat/common.h"

uint64_t pleat__piece_sum_ref(const void *piece, uint64_t n_bytes, uint64_t idx) {
    return XXH3_64bits_withSeed(piece, n_bytes, idx);
}

pleat__piece_sum_fn pleat__piece_sum_of(uint32_t cpu_flags) {
#if PLEAT_X86
    if (cpu_flags & PLEAT_CPU_AVX2) return pleat__piece_sum_avx2;
#else
    (void)cpu_flags;
#endif
    return pleat__piece_sum_ref;
}
