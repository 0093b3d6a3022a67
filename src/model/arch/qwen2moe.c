/* SPDX-License-Identifier: MIT
 *
 * qwen2moe.c: Qwen 1.5 and 2 with experts, one of them shared by all tokens.  The weights of the chosen experts keep
 * their share of the softmax over all.
 */
#include "model/arch.h"

const pleat__arch pleat__arch_qwen2moe = {
    .name = "qwen2moe",
    .has = PLEAT__PLAIN | PLEAT__SPLIT_QKV | PLEAT__QKV_BIAS | PLEAT__EXPERTS | PLEAT__SHARED_EXPERT,
    .rope_halves = true,
};
