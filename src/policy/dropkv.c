/* SPDX-License-Identifier: MIT
 *
 * dropkv.c: see dropkv.h.  The policy is a row; what it ranks by is counted with a prompt's attention (cache/prompt.c).
 */
#include "policy/dropkv.h"

#include "policy/evict.h"

#define TILE PLEAT__TILE
#define LEAST_REST 0x1p-20f /* of 1 - p */
#define MOST 0x1p90f        /* that a query head adds: sums of those that are counted stay finite */

void pleat__dropkv_add(const float *restrict v, uint32_t head_dim, const float *restrict o, const float *p,
                       float *restrict scores) {
    for (uint32_t i = 0; i < TILE; i++) {
        const float rest = 1 - p[i] > LEAST_REST ? 1 - p[i] : LEAST_REST, gain = p[i] / rest;
        float square = 0;
        for (uint32_t d = 0; d < head_dim; d++) square += (v[i * head_dim + d] - o[d]) * (v[i * head_dim + d] - o[d]);
        const float more = gain * gain * square;
        if (p[i] > 0) scores[i] += more < MOST ? more : MOST; /* what is no token may be no number */
    }
}

const pleat__evictor pleat__evictor_dropkv = {.scoring = PLEAT__SCORING_ERROR, .rank_block = pleat__rank_received};
