/* SPDX-License-Identifier: MIT
 *
 * phi3.c: Phi-3, 3.5 and 4: q, k and v in one matrix, gate and up in another, and for 128k contexts one set of RoPE
 * divisors for short and one for long contexts (longrope).  A window holds for every layer, as in transformers.
 */
#include "model/arch.h"

const pleat__arch pleat__arch_phi3 = {
    .name = "phi3",
    .has = PLEAT__PLAIN | PLEAT__FUSED_QKV | PLEAT__FUSED_FFN,
    .may_have = PLEAT__ROPE_LONG,
    .rope_halves = true,
    .window_period = PLEAT__ALL_WINDOWED,
};
