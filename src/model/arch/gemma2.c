/* SPDX-License-Identifier: MIT
 *
 * gemma2.c: Gemma 2 is known and refused.  It bounds the logits of attention, c tanh(q.k/c), before the softmax, which
 * none of the kernels that read the cache does.
 */
#include "model/arch.h"

const pleat__arch pleat__arch_gemma2 = {
    .name = "gemma2",
    .why_not = "it bounds the logits of attention (attn_logit_softcapping), which the cache's kernels do not do",
};
