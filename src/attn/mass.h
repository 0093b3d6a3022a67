/* SPDX-License-Identifier: MIT
 *
 * mass.h: what a token's attention is multiplied by because others that are gone stand in it (+merge, keep/merge.h).
 *
 *     mass = s_c/s      s the attention that a token receives, s_c that of all that stand in it
 *     logit2 += log2(mass)      after the cap, before the softmax
 *
 * So a query gives the token what it would have given to all of them.  A page holds log2(mass) as f16, 0 to
 * PLEAT__MASS_TOP; a new token has 0.  Pages without mass_off have none.  Added where logits are bounded (cap.h), in one
 * place for decode and one for prompts; what is left behind for the scores has it.
 */
#ifndef PLEAT_ATTN_MASS_H
#define PLEAT_ATTN_MASS_H

#include "core/half.h"
#include "core/kv_view.h"

/* The largest log2 of a mass, 512 times, and its f16.  Those that are allowed are 0 and the bits up to it, as whole
 * numbers. */
#define PLEAT__MASS_TOP 9.0f
#define PLEAT__MASS_TOP_BITS 0x4880u

/* A mass of 0 or more and finite as f32: exact, and without a branch. */
static inline float pleat__mass_f32(uint16_t half) { return pleat__bits_f32((uint32_t)half << 13) * 0x1p112f; }

/* Add the masses of a tile's 16 slots, NULL for a page without, to its logits. */
static inline void pleat__mass_add(const uint16_t *mass, float *logit2) {
    for (uint32_t s = 0; mass && s < PLEAT__TILE; s++) logit2[s] += pleat__mass_f32(mass[s]);
}

/* Where they stand; NULL for a page without. */
static inline const uint16_t *pleat__mass_tile(const pleat__page_layout *l, uint8_t *page, uint32_t tile) {
    return l->mass_off ? pleat__masses(l, page) + (size_t)tile * PLEAT__TILE : NULL;
}

#endif
