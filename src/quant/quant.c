/* SPDX-License-Identifier: MIT
 *
 * quant.c: which quantiser runs on which CPU.
 */
#include "hw/cpu.h"
#include "quant/variants.h"

void pleat__quant_dsp_init(pleat__quant_dsp *dsp, uint32_t cpu_flags) {
    dsp->store = pleat__quant_store_ref;
    dsp->load_k = pleat__quant_load_k_ref;
    dsp->load_v = pleat__quant_load_v_ref;
#if PLEAT_X86
    if (!(cpu_flags & PLEAT_CPU_AVX2)) return;
    dsp->store = pleat__quant_store_avx2;
    dsp->load_k = pleat__quant_load_k_avx2;
    dsp->load_v = pleat__quant_load_v_avx2;
    if (!(cpu_flags & PLEAT_CPU_AVX512)) return;
    dsp->store = pleat__quant_store_avx512;
    dsp->load_k = pleat__quant_load_k_avx512;
    dsp->load_v = pleat__quant_load_v_avx512;
#else
    (void)cpu_flags;
#endif
}
