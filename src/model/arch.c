/* SPDX-License-Identifier: MIT
 *
 * arch.c: see arch.h.
 */
#include "model/arch.h"

#include <stdio.h>
#include <string.h>

static const pleat__arch *const archs[] = {
    &pleat__arch_gemma2, &pleat__arch_gemma3,   &pleat__arch_gpt_oss, &pleat__arch_granite,
    &pleat__arch_llama,  &pleat__arch_phi3,     &pleat__arch_qwen2,   &pleat__arch_qwen2moe,
    &pleat__arch_qwen3,  &pleat__arch_qwen3moe, &pleat__arch_smollm3,
};

#define N_ARCHS (sizeof archs / sizeof archs[0])

const pleat__arch *pleat__arch_find(pleat__str name) {
    for (size_t i = 0; i < N_ARCHS; i++)
        if (pleat__str_eq(name, (pleat__str){archs[i]->name, strlen(archs[i]->name)})) return archs[i];
    return NULL;
}

const char *pleat__arch_names(char *text, size_t cap) {
    size_t n = 0;
    text[0] = 0;
    for (size_t i = 0; i < N_ARCHS && n < cap; i++)
        n += (size_t)snprintf(text + n, cap - n, "%s%s", n > 0 ? ", " : "", archs[i]->name);
    return text;
}
