/* SPDX-License-Identifier: MIT
 *
 * granite.c: Granite 3 and 4, dense: as Llama, with factors on embeddings, branches, q.k and (dividing) logits.
 */
#include "model/arch.h"

const pleat__arch pleat__arch_granite = {
    .name = "granite",
    .has = PLEAT__PLAIN | PLEAT__SPLIT_QKV | PLEAT__SPLIT_FFN | PLEAT__SCALES,
    .may_have = PLEAT__O_BIAS | PLEAT__ROPE_FREQS,
};
