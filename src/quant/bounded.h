/* SPDX-License-Identifier: MIT
 *
 * bounded.h: error-bounded quantisation of a block of tokens: the quantiser of KVComp (section 3.1.1) and of KIVI.
 *
 * Values that share a unit share a minimum and a step, relative to their range:
 *
 *     code = round((x - min) / step), to nearest     x' = min + step * code
 *
 * so |x - x'| <= step/2 for every value (up to the rounding of f32: a few units in the last place of |min| + |x|).
 * There are two kinds:
 *
 *     WIDE     min = f16(min x), rounded down; step = f16(rel * (max x - min)), rounded up, from that rounded min.
 *              Codes are below round(1/rel) + 1.
 *     GRID     step = rel * (max x - min x), rounded down to 5 significant bits; min = z * step/2, where z is the least
 *              integer that makes it no less than min x, a number of 7 bits, -64..63: so a unit is 16 bits (9 of the
 *              step and z), and its minimum is an f16 too.  Halves, since a grid of whole steps would take a code more
 *              now and then, and a code that hardly occurs is dear in a Huffman code.  The step is the smaller by up to
 *              a 17th: codes are below round(17/16 / rel) + 1.
 *
 * Not every unit is on a grid: not where its values are far from 0 (z), its step no normal f16 or its minimum none, nor
 * one of equal values that are no product of such z and step.  WIDE always is.  Rounding outwards is ours: with the
 * nearest f16 a value at the edge would be off by more.  A WIDE unit of equal values has step 0 and codes 0 if their
 * value is an f16's, else a tiny step.  Values are clamped to +-65504 first; NaN is code 0.  A WIDE step beyond the
 * largest f16, which takes rel > 1/2 and a range beyond 65504, becomes that f16: there the error can be the rest of the
 * range.
 *
 *     keys     unit BLOCK: all tokens x dimensions of the block; CHANNEL: one dimension of its tokens (KIVI: rel =
 *              1/(2^bits-1))
 *     values   `group` dimensions of one token (KVComp: all of them; KIVI: 32)
 */
#ifndef PLEAT_QUANT_BOUNDED_H
#define PLEAT_QUANT_BOUNDED_H

#include "core/types.h"

/* Levels of a relative step, WIDE and GRID: codes are below it.  For rel in [1/255, 1] 2..256, and 2..272. */
uint32_t pleat__bounded_levels(float rel);
uint32_t pleat__bounded_grid_levels(float rel);

#define PLEAT__GRID_MIN_Z (-64)
#define PLEAT__GRID_MAX_Z 63

typedef struct pleat__bounded {
    uint16_t min, step; /* f16 */
} pleat__bounded;

/* The WIDE unit of values in [min, max], both within +-65504. */
pleat__bounded pleat__bounded_of(float min, float max, float rel);

/* Their GRID unit; false: they have none. */
bool pleat__bounded_on_grid(float min, float max, float rel, pleat__bounded *unit);

/* Keys k: n_tokens rows of head_dim, `stride` floats apart.  head_dim is a multiple of 16, 16..512.  mins and steps:
 * [1] or, by channel, [head_dim].  codes: [n_tokens][head_dim].  False: some unit is not on a grid as it should be, and
 * nothing that was written counts. */
bool pleat__bounded_keys(const float *k, size_t stride, uint32_t n_tokens, uint32_t head_dim, bool by_channel,
                         bool on_grid, float rel, uint16_t *mins, uint16_t *steps, uint8_t *codes);

/* Values v, as keys are; `group` divides head_dim and is a multiple of 16.  mins and steps: [n_tokens][head_dim /
 * group]. */
bool pleat__bounded_values(const float *v, size_t stride, uint32_t n_tokens, uint32_t head_dim, uint32_t group,
                           bool on_grid, float rel, uint16_t *mins, uint16_t *steps, uint8_t *codes);

#endif
