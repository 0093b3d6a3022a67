/* SPDX-License-Identifier: MIT
 *
 * h2o.c: heavy hitters (H2O, Zhang et al. 2023): rank = attention received from all later queries, summed over the
 * query heads of the group.  Nothing is divided by a token's age: old tokens have had longer to collect, as in the
 * paper.
 */
#include <math.h>

#include "policy/evict.h"

void pleat__rank_received(const pleat__evict_lane *lane, const pleat__tracked *page, uint32_t first,
                          float *restrict ranks) {
    const pleat__page_layout *layout = lane->run->layout;
    float sums[PLEAT__SCAN_BLOCK] = {0};
    for (uint32_t k = lane->spec->novel; k < layout->n_scores; k++) {
        const float *scores = page->sums + (size_t)k * layout->tokens + first;
        for (uint32_t i = 0; i < PLEAT__SCAN_BLOCK; i++) sums[i] += scores[i];
    }
    for (uint32_t i = 0; i < PLEAT__SCAN_BLOCK; i++) ranks[i] = ((sums[i] > 0) & (sums[i] < INFINITY)) ? sums[i] : 0.0f;
}

const pleat__evictor pleat__evictor_h2o = {
    .scoring = PLEAT__SCORING_SUM, .in_generation = true, .rank_block = pleat__rank_received};
