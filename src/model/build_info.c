/* SPDX-License-Identifier: MIT
 *
 * build_info.c: what this build holds and what it found, in one line for a person.
 */
#include <stdio.h>

#include "model/gemm.h"
#include "pleat/version.h"

static const char *cpu_text(void) {
    const uint32_t flags = pleat_cpu_flags();
    if (flags & PLEAT_CPU_VNNI) return "avx2 avx512 vnni";
    if (flags & PLEAT_CPU_AVX512) return "avx2 avx512";
    if (flags & PLEAT_CPU_AVX2) return "avx2";
    return PLEAT_X86 ? "scalar" : "scalar (x86 kernels not built)";
}

const char *pleat_build_info(void) {
    static char text[160];
    char gemm[64];
    pleat__gemm_describe(gemm, sizeof gemm);
    snprintf(text, sizeof text, "prompts: %s; cpu: %s; cuda: not in this build", gemm, cpu_text());
    return text;
}
