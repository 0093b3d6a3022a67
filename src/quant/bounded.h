/* SPDX-License-Identifier: MIT
 *
 * bounded.h: error-bounded quantisation of a block of tokens: the quantiser of KVComp (section 3.1.1) and of KIVI.
 *
 * Values that share a unit share a minimum and a step, relative to their range:
 *
 *     min = f16(min x), rounded down     step = f16(rel * (max x - min)), rounded up, from that rounded min
 *     code = round((x - min) / step), to nearest     x' = min + step * code
 *
 * so |x - x'| <= step/2 for every value (up to the rounding of f32: a few units in the last place of |min| + |x|), and
 * codes are 0 .. L-1 with L = round(1/rel) + 1 levels.  Rounding outwards is ours: with the nearest f16 a value at the
 * edge would be off by more.  A unit of equal values has step 0 and codes 0 if their value is an f16's, else a tiny
 * step.  Values are clamped to +-65504 first; NaN is code 0.  A step beyond the largest f16, which takes rel > 1/2 and a
 * range beyond 65504, becomes that f16: there the error can be the rest of the range.
 *
 *     keys     unit BLOCK: all tokens x dimensions of the block; CHANNEL: one dimension of its tokens (KIVI: rel =
 *              1/(2^bits-1))
 *     values   `group` dimensions of one token (KVComp: all of them; KIVI: 32)
 */
#ifndef PLEAT_QUANT_BOUNDED_H
#define PLEAT_QUANT_BOUNDED_H

#include "core/types.h"

/* Levels of a relative step: codes are below it.  2..256 for rel in [1/255, 1]. */
uint32_t pleat__bounded_levels(float rel);

typedef struct pleat__bounded {
    uint16_t min, step; /* f16 */
} pleat__bounded;

/* The unit of values in [min, max], both within +-65504. */
pleat__bounded pleat__bounded_of(float min, float max, float rel);

/* Keys k: n_tokens rows of head_dim, `stride` floats apart.  head_dim is a multiple of 16, 16..512.  mins and steps:
 * [1] or, by channel, [head_dim].  codes: [n_tokens][head_dim]. */
void pleat__bounded_keys(const float *k, size_t stride, uint32_t n_tokens, uint32_t head_dim, bool by_channel,
                         float rel, uint16_t *mins, uint16_t *steps, uint8_t *codes);

/* Values v, as keys are; `group` divides head_dim and is a multiple of 16.  mins and steps: [n_tokens][head_dim /
 * group]. */
void pleat__bounded_values(const float *v, size_t stride, uint32_t n_tokens, uint32_t head_dim, uint32_t group,
                           float rel, uint16_t *mins, uint16_t *steps, uint8_t *codes);

#endif
