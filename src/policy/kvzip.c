/* SPDX-License-Identifier: MIT
 *
 * kvzip.c: tokens stay that a reading of the prompt behind itself looks at (KVzip, Kim et al. 2025, arXiv 2505.23416).
 *
 *     replay      a request to repeat the prompt and the prompt's tokens are read behind it, and none of them is kept
 *                 (PLEAT_ITEM_REPLAY; who reads prompts sends it)
 *     rank(i)     the most that one query head of it has given to token i
 *
 * The lanes of a layer share its budget, and none is sure of a part (kvpress has this as `layerwise`).  The paper's share
 * goes over all layers, too, and its softmax is over the part of the prompt that is repeated; here it is over all that is
 * stored.  Tokens are dropped where a replay ends and at no other time: what comes later stays.
 */
#include "policy/evict.h"

static void budgets(const pleat__evict_layer *layer, float *const *ranks, int64_t *middle) {
    pleat__share_layer(layer, ranks, middle, 0);
}

static uint32_t spread(uint32_t n_lanes) { return n_lanes; }

const pleat__evictor pleat__evictor_kvzip = {
    .scoring = PLEAT__SCORING_REPLAY, .rank_block = pleat__rank_received, .budgets = budgets, .budget_spread = spread};
