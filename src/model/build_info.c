/* SPDX-License-Identifier: MIT
 *
 * build_info.c: what this build holds and what it found, in one line for a person.
 */
#include <stdio.h>

#include "hw/cpu.h"
#include "linear/gemm.h"
#include "pleat/device.h"
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

/* What there is, or why there is nothing. */
static void describe_cuda(char *text, size_t cap) {
    pleat_error err;
    pleat_device_info info;
    uint32_t n = 0;
    if (!PLEAT_CUDA)
        snprintf(text, cap, "not in this build");
    else if (pleat_device_count(&n, &err) != PLEAT_OK || pleat_device_get_info(0, &info, &err) != PLEAT_OK)
        snprintf(text, cap, "%.200s", err.text);
    else
        snprintf(text, cap, "%u x %.200s (sm_%u)", n, info.name, info.compute_capability);
}

const char *pleat_build_info(void) {
    static char text[512];
    char gemm[64], cpu[96], cuda[256];
    pleat__gemm_describe(gemm, sizeof gemm);
    describe_cpu(cpu, sizeof cpu);
    describe_cuda(cuda, sizeof cuda);
    snprintf(text, sizeof text, "GEMM: %s; cpu: %s; cuda: %s", gemm, cpu, cuda);
    return text;
}
