/* SPDX-License-Identifier: MIT
 *
 * llama.c: Llama 2 and 3, and what is converted as one of them: Mistral (a window in every layer), Mixtral (experts),
 * SmolLM2, TinyLlama.
 *
 * Converters permute the rows of Wq and Wk so that pairs of RoPE stand side by side.
 */
#include "model/arch.h"

const pleat__arch pleat__arch_llama = {
    .name = "llama",
    .has = PLEAT__PLAIN | PLEAT__SPLIT_QKV | PLEAT__SPLIT_FFN,
    .may_have = PLEAT__EXPERTS | PLEAT__QKV_BIAS | PLEAT__O_BIAS | PLEAT__ROPE_FREQS,
    .sums_experts_to_1 = true,
    .window_period = PLEAT__ALL_WINDOWED,
};
