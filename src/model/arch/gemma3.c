/* SPDX-License-Identifier: MIT
 *
 * gemma3.c: Gemma 3, text: norms around attention and feed-forward and on the heads of q and k, five layers with a
 * window to one that sees everything.  The windowed ones have RoPE on its old base, unscaled.  The 27B model (62 layers)
 * scales q.k by the width per head, 168, where heads have 128 elements; its file does not say so.
 *
 * Files have 1 added to the norms' weights.
 */
#include "model/arch.h"

const pleat__arch pleat__arch_gemma3 = {
    .name = "gemma3",
    .has = PLEAT__PLAIN | PLEAT__SPLIT_QKV | PLEAT__SPLIT_FFN | PLEAT__QK_NORM | PLEAT__POST_NORM | PLEAT__LOGIT_CAP,
    .rope_halves = true,
    .is_gelu = true,
    .embeds_by_sqrt = true,
    .window_period = 6,
    .window_rope_base = 10000.0f,
    .by_width_layers = 62,
};
