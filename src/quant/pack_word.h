/* SPDX-License-Identifier: MIT
 *
 * pack_word.h: a key's codes packed into the words of a tile, for variants that make them a byte each.  variants.h has
 * the formula.
 */
#ifndef PLEAT_QUANT_PACK_WORD_H
#define PLEAT_QUANT_PACK_WORD_H

#include "quant/variants.h"

/* Codes of dimensions dim .. dim + 15, a byte each and so four a word, to a tile whose first word of the token is out. */
static inline void pleat__pack_key(uint32_t *out, uint32_t bits, uint32_t dim, const uint32_t w[4]) {
    if (bits == 8) {
        for (uint32_t j = 0; j < 4; j++) out[(dim / 4 + j) * PLEAT__TILE] = w[j];
    } else if (bits == 4) {
        out[dim / 8 * PLEAT__TILE] = w[0] | w[1] << 4;
        out[(dim / 8 + 1) * PLEAT__TILE] = w[2] | w[3] << 4;
    } else {
        out[dim / 16 * PLEAT__TILE] = w[0] | w[1] << 2 | w[2] << 4 | w[3] << 6;
    }
}

#endif
