/* SPDX-License-Identifier: MIT
 *
 * build_info.c: what this build holds and what it found, in one line for a person.
 */
#include <stdio.h>

#include "hw/cpu.h"
#include "model/gemm.h"
#include "pleat/version.h"

/* The features in use, by the words of /proc/cpuinfo or nearly. */
static void describe_cpu(char *text, size_t cap) {
    static const struct {
        uint32_t flag;
        const char *word;
    } words[] = {{PLEAT_CPU_AVX2, "avx2"},        {PLEAT_CPU_AVX_VNNI, "avx_vnni"}, {PLEAT_CPU_AVX512, "avx512"},
                 {PLEAT_CPU_VNNI, "avx512_vnni"}, {PLEAT_CPU_AMX_INT8, "amx_int8"}, {PLEAT_CPU_VBMI2, "avx512_vbmi2"},
                 {PLEAT_CPU_NEON, "neon"},        {PLEAT_CPU_DOTPROD, "dotprod"}};
    const uint32_t flags = pleat_cpu_flags();
    size_t used = 0;
    snprintf(text, cap, PLEAT_X86 || PLEAT_ARM ? "scalar" : "scalar (no kernels for this CPU's vectors built)");
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (!(flags & words[i].flag) || used >= cap) continue;
        used += (size_t)snprintf(text + used, cap - used, "%s%s", used ? " " : "", words[i].word);
    }
}

const char *pleat_build_info(void) {
    static char text[208];
    char gemm[64], cpu[96];
    pleat__gemm_describe(gemm, sizeof gemm);
    describe_cpu(cpu, sizeof cpu);
    snprintf(text, sizeof text, "GEMM: %s; cpu: %s; cuda: not in this build", gemm, cpu);
    return text;
}
