/* SPDX-License-Identifier: MIT
 *
 * streaming.c: StreamingLLM (Xiao et al. 2024): the first tokens, to which attention sinks, and the newest.  As recent,
 * with sinks, which evict.c protects.  Tokens keep the positions that they had (the paper numbers what is left anew).
 */
#include "policy/evict.h"

const pleat__evictor pleat__evictor_streaming = {
    .scoring = PLEAT__SCORING_NONE, .in_generation = true, .rank_block = pleat__rank_position};
