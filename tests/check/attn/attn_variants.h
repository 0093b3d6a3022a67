/* SPDX-License-Identifier: MIT
 *
 * attn_variants.h: every variant of the attention kernels, in one list for the tests and for bench/.
 */
#ifndef CHECK_ATTN_VARIANTS_H
#define CHECK_ATTN_VARIANTS_H

#include "attn/prompt.h"
#include "hw/cpu.h"

/* Decode and the attention received in it: what pleat__attn_dsp_init() chooses with these flags. */
typedef struct decode_variant {
    const char *name;
    uint32_t flags;
} decode_variant;

static const decode_variant decode_variants[] = {
    {"ref", 0},
    {"avx2", PLEAT_CPU_AVX2},
    {"avxvnni", PLEAT_CPU_AVX2 | PLEAT_CPU_AVX_VNNI},
    {"avx512", PLEAT_CPU_AVX2 | PLEAT_CPU_AVX512},
    {"vnni", PLEAT_CPU_AVX2 | PLEAT_CPU_AVX512 | PLEAT_CPU_VNNI},
    {"neon", PLEAT_CPU_NEON},
    {"dotprod", PLEAT_CPU_NEON | PLEAT_CPU_DOTPROD},
};

typedef struct cap_variant {
    const char *name;
    uint32_t needs;
    pleat__attn_cap_fn fn;
} cap_variant;

static const cap_variant cap_variants[] = {
    {"ref", 0, pleat__attn_cap_ref},
#if PLEAT_X86
    {"avx2", PLEAT_CPU_AVX2, pleat__attn_cap_avx2},
    {"avx512", PLEAT_CPU_AVX512, pleat__attn_cap_avx512},
#elif PLEAT_ARM
    {"neon", PLEAT_CPU_NEON, pleat__attn_cap_neon},
#endif
};

typedef struct prompt_variant {
    const char *name;
    uint32_t needs;
    pleat__attn_prompt_fn fn;
    pleat__attn_prompt_received_fn received;
} prompt_variant;

static const prompt_variant prompt_variants[] = {
    {"ref", 0, pleat__attn_prompt_ref, pleat__attn_prompt_received_ref},
#if PLEAT_X86
    {"avx2", PLEAT_CPU_AVX2, pleat__attn_prompt_avx2, pleat__attn_prompt_received_avx2},
    {"avx512", PLEAT_CPU_AVX512, pleat__attn_prompt_avx512, pleat__attn_prompt_received_avx512},
#elif PLEAT_ARM
    {"neon", PLEAT_CPU_NEON, pleat__attn_prompt_neon, pleat__attn_prompt_received_neon},
#endif
};

#endif
