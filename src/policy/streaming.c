/* SPDX-License-Identifier: MIT
 *
 * streaming.c: StreamingLLM (Xiao et al. 2024): the first tokens, to which attention sinks, and the newest.  As recent,
 * with sinks, which evict.c protects.  Tokens keep the positions that they had (the paper numbers what is left anew).
 */
#include "policy/evict.h"

const pleat__evictor pleat__evictor_streaming = {PLEAT__SCORING_NONE, true, pleat__rank_position, NULL, NULL};
