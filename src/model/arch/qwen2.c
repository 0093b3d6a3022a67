/* SPDX-License-Identifier: MIT
 *
 * qwen2.c: Qwen 2 and 2.5: biases on q, k and v.
 */
#include "model/arch.h"

const pleat__arch pleat__arch_qwen2 = {
    .name = "qwen2",
    .has = PLEAT__PLAIN | PLEAT__SPLIT_QKV | PLEAT__SPLIT_FFN | PLEAT__QKV_BIAS,
    .rope_halves = true,
};
