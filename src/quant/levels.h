/* SPDX-License-Identifier: MIT
 *
 * levels.h: the quantiser of the rotated formats, h4v4 to h2v2: one norm a token and Lloyd-Max levels.
 *
 * A rotated vector's elements are close to normal (rotate.h).  So with b bits, separately for key and value,
 *
 *     y = x * sqrt(d)/|x|      code = how many of the 2^b - 1 thresholds are below y
 *     s = f16(|x| / sqrt(sum over the vector of level[code]^2))      x' = s * level[code]
 *
 * The levels are Lloyd-Max's for a normal variable, scaled so that the largest is 127 and rounded to whole numbers,
 * which the kernels multiply; thresholds are half way between them.  s makes |x'| = |x| up to its rounding: TurboQuant
 * (arXiv 2504.19874) has this quantiser, and the correction of the norm is that of its implementations in vLLM and
 * llama.cpp's family.  Mean squared error of normal elements: 0.1175, 0.0345 and 0.0095 of their variance with 2, 3 and
 * 4 bits; tests/check/quant/test_levels.c asserts it.
 *
 * Values are clamped to +-65504 first, as quant.h has it.  A vector of zeros has s = 0.  s is f16's largest where it
 * would be above.  Sums are taken in 16 strands in a fixed order: the same bytes on every CPU.
 */
#ifndef PLEAT_QUANT_LEVELS_H
#define PLEAT_QUANT_LEVELS_H

#include "quant/layout.h"

/* Levels of 2, 3 and 4 bits, rising: Lloyd-Max's of a normal variable, .4528 1.5104; .2451 .7560 1.3439 2.1519; .1284
 * .3880 .6568 .9423 1.2562 1.6180 2.0690 2.7326; times 127 over the largest. */
#define PLEAT__LEVELS_2 \
    { -127, -38, 38, 127 }
#define PLEAT__LEVELS_3 \
    { -127, -79, -45, -14, 14, 45, 79, 127 }
#define PLEAT__LEVELS_4 \
    { -127, -96, -75, -58, -44, -31, -18, -6, 6, 18, 31, 44, 58, 75, 96, 127 }
#define PLEAT__LARGEST_LEVELS \
    { 0, 0, 1.5104f, 2.1519f, 2.7326f } /* [bits] */
extern const int8_t pleat__levels[5][16];

/* Write one token's key and value into a slot; other slots keep what they have. */
void pleat__levels_put(const pleat__page_layout *layout, uint8_t *page, uint32_t slot, const float *k, const float *v);

/* As pleat__quant_load_fn, pleat__quant_load_token() and pleat__quant_copy(), the latter by key and value, and without
 * scores, positions and masses. */
void pleat__levels_load_k(const pleat__page_layout *layout, const uint8_t *page, uint32_t tile, float *out);
void pleat__levels_load_v(const pleat__page_layout *layout, const uint8_t *page, uint32_t tile, float *out);
void pleat__levels_load_token(const pleat__page_layout *layout, const uint8_t *page, uint32_t slot, float *k, float *v);
void pleat__levels_copy_key(const pleat__page_layout *layout, uint8_t *to_page, uint32_t to_slot,
                            const uint8_t *from_page, uint32_t from_slot);
void pleat__levels_copy_value(const pleat__page_layout *layout, uint8_t *to_page, uint32_t to_slot,
                              const uint8_t *from_page, uint32_t from_slot);

#endif
