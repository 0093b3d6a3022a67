/* SPDX-License-Identifier: MIT
 *
 * fma_peak.h: how many f32 multiply-adds a second one core does in its vector registers, which bounds a kernel's speed
 * in cache.
 *
 * Twelve chains hide a latency of 4 to 6 cycles at 2 instructions a cycle.  They are named variables, each kept in its
 * register by an asm: an array might end in memory.
 */
#ifndef BENCH_KERNELS_FMA_PEAK_H
#define BENCH_KERNELS_FMA_PEAK_H

#include <stdint.h>

#include "cli/lib/measure.h"
#include "hw/cpu.h"

#if PLEAT_X86
#include <immintrin.h>

#define FMA_EACH_CHAIN(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11)
#define FMA_CHAIN_8(i) __m256 s##i = a;
#define FMA_CHAIN_16(i) __m512 s##i = a;
#define FMA_STEP_8(i) __asm__ volatile("vfmadd213ps %1, %1, %0" : "+x"(s##i) : "x"(a));
#define FMA_STEP_16(i) __asm__ volatile("vfmadd213ps %1, %1, %0" : "+v"(s##i) : "v"(a));
#define FMA_PEAK(name, isa, vec, set, lanes)                                    \
    __attribute__((target(isa))) static inline double name(uint32_t n_rounds) { \
        const vec a = set(0.5f);                                                \
        FMA_EACH_CHAIN(FMA_CHAIN_##lanes)                                       \
        const double start = measure_now_s();                                   \
        for (uint32_t n = 0; n < n_rounds; n++) {                               \
            FMA_EACH_CHAIN(FMA_STEP_##lanes)                                    \
        }                                                                       \
        return n_rounds * 12.0 * lanes / (measure_now_s() - start);             \
    }
FMA_PEAK(fma_peak_256, "avx2,fma", __m256, _mm256_set1_ps, 8)
FMA_PEAK(fma_peak_512, "avx512f", __m512, _mm512_set1_ps, 16)
#endif

/* By the widest vectors of `flags` (PLEAT_CPU_*), which the machine has; 0 where they name none that is known.  It
 * takes about 12 ns a round. */
static inline double fma_peak(uint32_t flags, uint32_t n_rounds) {
#if PLEAT_X86
    if (flags & PLEAT_CPU_AVX512) return fma_peak_512(n_rounds);
    if (flags & PLEAT_CPU_AVX2) return fma_peak_256(n_rounds);
#endif
    (void)flags, (void)n_rounds;
    return 0;
}

#endif
