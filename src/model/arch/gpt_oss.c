/* SPDX-License-Identifier: MIT
 *
 * gpt_oss.c: GPT-OSS.  Every other layer has a window of 128, the first one too.  Each query head's softmax has a sink, a
 * logit that no token has.  Experts with biases, whose gates and ups are bounded to 7, are in place of a feed-forward.
 *
 * transformers' yarn does not round the pairs between which it changes over (truncate is false in the model's
 * configuration); the file does not say so.  The norm before the experts goes by the name post_attention_norm.
 */
#include "model/arch.h"

const pleat__arch pleat__arch_gpt_oss = {
    .name = "gpt-oss",
    .has = PLEAT__CORE | PLEAT__FFN_NORM_POST | PLEAT__SPLIT_QKV | PLEAT__QKV_BIAS | PLEAT__O_BIAS | PLEAT__SINKS |
           PLEAT__EXPERTS | PLEAT__EXPERT_BIAS,
    .rope_halves = true,
    .is_clipped = true,
    .is_smooth_yarn = true,
    .sums_experts_to_1 = true,
    .window_period = 2,
    .window = 128,
};
