/* SPDX-License-Identifier: MIT
 *
 * dropkv.h: how far what a query finds would move without a token.  What dropkv ranks tokens by: DropKV (Zhang et al., as
 * NVIDIA's kvpress has it in its pull request 285).
 *
 *     o = sum of p_j v_j                              what a query head finds, p its attention
 *     o without token j - o = p_j/(1 - p_j) (o - v_j)         since the others' attention grows by 1/(1 - p_j)
 *     score(j) = sum over the last `window` queries and the group's heads of  (p_j/(1 - p_j))^2 |v_j - o|^2
 *
 * So it is exact where one token goes, and in the values' own unit in every head.  Nothing is pooled.
 *
 * A pure function of what it is handed.
 */
#ifndef PLEAT_POLICY_DROPKV_H
#define PLEAT_POLICY_DROPKV_H

#include <stdint.h>

/* What one query head adds to the scores [PLEAT__TILE] of a tile of values [PLEAT__TILE][head_dim]: p [PLEAT__TILE] is what
 * it gives to each, 0 for what it does not see, and o [head_dim] what it finds.  p counts as 1 - 2^-20 at most, and 2^90
 * is added at most: an infinite score would mark a representative, which no budget drops (evict.h). */
void pleat__dropkv_add(const float *v, uint32_t head_dim, const float *o, const float *p, float *scores);

#endif
