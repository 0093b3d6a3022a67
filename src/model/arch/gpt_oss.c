/* SPDX-License-Identifier: MIT
 *
 * gpt_oss.c: GPT-OSS is known and refused.  Each of its query heads has a sink, a logit without a token that takes its
 * share of the softmax, which none of the kernels that read the cache knows.
 */
#include "model/arch.h"

const pleat__arch pleat__arch_gpt_oss = {
    .name = "gpt-oss",
    .why_not = "its attention has sinks (attn_sinks.weight), which the cache's kernels do not know",
};
