/* SPDX-License-Identifier: MIT
 *
 * smollm3.c: SmolLM 3: as Llama, with every fourth layer without RoPE.
 */
#include "model/arch.h"

const pleat__arch pleat__arch_smollm3 = {
    .name = "smollm3",
    .has = PLEAT__PLAIN | PLEAT__SPLIT_QKV | PLEAT__SPLIT_FFN,
    .rope_skip = 4,
};
