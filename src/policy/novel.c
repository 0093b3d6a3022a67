/* SPDX-License-Identifier: MIT
 *
 * novel.c: tokens stay whose keys are unlike the rest: rank = the score that novelty.h gives, which stands where other
 * policies have the attention received.
 *
 *     end of a prompt   every token is scored against the mean of all tokens so far
 *     generation        a token is scored when it comes, against the mean up to itself, and keeps that score until a
 *                       prompt ends again; with near it and those before it join each other's scores, so a score is
 *                       whole when as many tokens have come behind it
 *
 * No query is looked at.  So what stays is not what the prompt's end asked for, but what nothing else in it is like.
 */
#include <math.h>

#include "policy/evict.h"

void pleat__rank_own(const pleat__evict_lane *lane, const pleat__tracked *page, uint32_t first, float *restrict ranks) {
    const float *scores = page->sums + first;
    (void)lane;
    for (uint32_t i = 0; i < PLEAT__SCAN_BLOCK; i++)
        ranks[i] = ((scores[i] > 0) & (scores[i] < INFINITY)) ? scores[i] : 0.0f;
}

const pleat__evictor pleat__evictor_novel = {
    .scoring = PLEAT__SCORING_NOVELTY, .in_generation = true, .rank_block = pleat__rank_own};
