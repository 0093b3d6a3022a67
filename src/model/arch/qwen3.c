/* SPDX-License-Identifier: MIT
 *
 * qwen3.c: Qwen 3: norms of the heads of q and k in place of Qwen 2's biases.
 */
#include "model/arch.h"

const pleat__arch pleat__arch_qwen3 = {
    .name = "qwen3",
    .has = PLEAT__PLAIN | PLEAT__SPLIT_QKV | PLEAT__SPLIT_FFN | PLEAT__QK_NORM,
    .rope_halves = true,
};
