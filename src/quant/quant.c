/* SPDX-License-Identifier: MIT
 *
 * quant.c: which quantiser runs on which CPU.
 */
#include "hw/cpu.h"
#include "quant/variants.h"

void pleat__quant_dsp_init(pleat__quant_dsp *dsp, uint32_t cpu_flags) {
    dsp->store = pleat__quant_store_ref;
    dsp->replace = pleat__quant_replace_ref;
    dsp->load_k = pleat__quant_load_k_ref;
    dsp->load_v = pleat__quant_load_v_ref;
#if PLEAT_X86
    if (!(cpu_flags & PLEAT_CPU_AVX2)) return;
    dsp->store = pleat__quant_store_avx2;
    dsp->replace = pleat__quant_replace_avx2;
    dsp->load_k = pleat__quant_load_k_avx2;
    dsp->load_v = pleat__quant_load_v_avx2;
    if (!(cpu_flags & PLEAT_CPU_AVX512)) return;
    dsp->store = pleat__quant_store_avx512;
    dsp->replace = pleat__quant_replace_avx512;
    dsp->load_k = pleat__quant_load_k_avx512;
    dsp->load_v = pleat__quant_load_v_avx512;
#elif PLEAT_ARM
    if (!(cpu_flags & PLEAT_CPU_NEON)) return;
    dsp->store = pleat__quant_store_neon;
    dsp->replace = pleat__quant_replace_neon;
    dsp->load_k = pleat__quant_load_k_neon;
    dsp->load_v = pleat__quant_load_v_neon;
#else
    (void)cpu_flags;
#endif
}

bool pleat__values_in_range(const float *x, size_t n) {
    const uint32_t largest = pleat__f32_bits(PLEAT__VALUE_MAX) - 1;
    uint32_t borrow = 0; /* its top bit: some magnitude, read as an integer, was above largest */
    for (size_t i = 0; i < n; i++) borrow |= largest - (pleat__f32_bits(x[i]) & 0x7FFFFFFFu);
    return borrow >> 31 == 0;
}
