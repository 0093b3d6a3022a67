/* SPDX-License-Identifier: MIT
 *
 * recent.c: the newest tokens stay.  rank = position.  It needs no window and has no sinks.
 */
#include "policy/evict.h"

/* Exact up to 2^24. */
void pleat__rank_position(const pleat__evict_lane *lane, const pleat__tracked *page, uint32_t first,
                          float *restrict ranks) {
    (void)lane;
    const int32_t *positions = page->positions + first;
    for (uint32_t i = 0; i < PLEAT__SCAN_BLOCK; i++) ranks[i] = (float)positions[i];
}

const pleat__evictor pleat__evictor_recent = {
    .scoring = PLEAT__SCORING_NONE, .in_generation = true, .rank_block = pleat__rank_position};
