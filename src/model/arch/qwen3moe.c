/* SPDX-License-Identifier: MIT
 *
 * qwen3moe.c: Qwen 3 with experts.
 */
#include "model/arch.h"

const pleat__arch pleat__arch_qwen3moe = {
    .name = "qwen3moe",
    .has = PLEAT__PLAIN | PLEAT__SPLIT_QKV | PLEAT__QK_NORM | PLEAT__EXPERTS,
    .rope_halves = true,
    .sums_experts_to_1 = true,
};
