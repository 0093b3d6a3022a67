/* SPDX-License-Identifier: MIT
 *
 * gemma2.c: Gemma 2: norms around attention and feed-forward, every other layer with a window, the first one too.  The
 * logits of attention are bounded to 50 before the softmax and those of the output to 30, c tanh(x/c).  The 27B model (46
 * layers) scales q.k by the width per head, 144, where heads have 128 elements; its file does not say so.
 *
 * Files have 1 added to the norms' weights.  The oldest name neither bounds nor the window.
 */
#include "model/arch.h"

const pleat__arch pleat__arch_gemma2 = {
    .name = "gemma2",
    .has = PLEAT__PLAIN | PLEAT__SPLIT_QKV | PLEAT__SPLIT_FFN | PLEAT__POST_NORM | PLEAT__LOGIT_CAP | PLEAT__ATTN_CAP,
    .rope_halves = true,
    .is_gelu = true,
    .embeds_by_sqrt = true,
    .window_period = 2,
    .window = 4096,
    .logit_cap = 30,
    .attn_logit_cap = 50,
    .by_width_layers = 46,
};
