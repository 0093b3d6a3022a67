/* SPDX-License-Identifier: MIT
 *
 * quant.h: tokens into pages and back.
 *
 * Per token and lane, separately for key and value, with b bits:
 *     m = f16(min x)    s = f16((max x - m) / (2^b - 1))    code = clamp(round((x - m) * (1/s)), 0, 2^b - 1)
 * So codes are made against the rounded m and s that readers will use.  round is to nearest, ties to even; 1/s is an
 * f32 division; a constant vector has s = 0 and every code 0.  Values are clamped to +-65504 first (f32 pages keep
 * them).  Error, for x in that range: |x - x'| <= s/2 + 2^-11*(|m| + (2^b-1)*s) + 2^(b-25), the last for m and s that
 * are subnormal in f16; tests/check/quant/test_quant.c asserts it.  (LeanKV section 4 has the formula; rounding s and m
 * before quantising is ours.)
 *
 * Rotated formats, h4v4 to h2v2, have levels in place of a minimum: levels.h.  A cache hands them rotated vectors.
 *
 * A tile's slots are filled from the first.  Storing into slot 0 of a tile clears the whole tile before, metadata,
 * scores, positions (to -1) and masses (to 0) included.  So the unused rest of a tile holds only finite values, zeros or tokens that
 * stood there before: kernels may load it and mask afterwards without meeting NaN.
 *
 * All variants write the same bytes.
 */
#ifndef PLEAT_QUANT_QUANT_H
#define PLEAT_QUANT_QUANT_H

#include <string.h>

#include "quant/layout.h"

/* What storing into a tile's first slot does first. */
static inline void pleat__quant_clear_tile(const pleat__page_layout *l, uint8_t *page, uint32_t tile) {
    memset(pleat__k_tile(l, page, tile), 0, l->k_tile_bytes);
    memset(pleat__v_tile(l, page, tile), 0, l->v_tile_bytes);
    if (pleat__format_is_quantised(l->format)) {
        memset(pleat__k_meta(l, page, tile), 0, pleat__meta_tile_bytes(l->format));
        memset(pleat__v_meta(l, page, tile), 0, pleat__meta_tile_bytes(l->format));
    }
    if (l->tracked) {
        for (uint32_t h = 0; h < l->n_scores; h++)
            memset(pleat__head_scores(l, page, h) + tile * PLEAT__TILE, 0, PLEAT__TILE * sizeof(float));
        memset(pleat__positions(l, page) + tile * PLEAT__TILE, 0xFF, PLEAT__TILE * sizeof(int32_t));
    }
    if (l->mass_off) memset(pleat__masses(l, page) + tile * PLEAT__TILE, 0, PLEAT__TILE * sizeof(uint16_t));
}

/* Store `n` tokens into slots [slot, slot + n) of a page, slot + n <= layout->tokens.  k and v are [n] rows of
 * head_dim f32, `stride` floats apart.  Slots below `slot` of the same tile keep their contents; scores, positions and
 * masses of the stored slots are not written (beyond the clearing above): the caller owns them. */
typedef void (*pleat__quant_store_fn)(const pleat__page_layout *layout, uint8_t *page, uint32_t slot, uint32_t n,
                                      const float *k, const float *v, size_t stride);

/* Dequantise one tile to f32: keys as [head_dim][16 tokens], values as [16 tokens][head_dim]; out is aligned to 64. */
typedef void (*pleat__quant_load_fn)(const pleat__page_layout *layout, const uint8_t *page, uint32_t tile, float *out);

/* Store one token into a slot of a tile that is in use.  Every other slot keeps its codes and metadata, and no score,
 * position or mass is touched.  k and v are head_dim f32. */
typedef void (*pleat__quant_replace_fn)(const pleat__page_layout *layout, uint8_t *page, uint32_t slot, const float *k,
                                        const float *v);

/* Copy one token, bit for bit, to a slot of another page (or the same) of the same layout: codes, metadata, score, position
 * and mass.  Other slots of the target's tile keep their contents; nothing is cleared.  The same code for all CPUs.  The
 * target need not be aligned. */
void pleat__quant_copy(const pleat__page_layout *layout, uint8_t *to_page, uint32_t to_slot, const uint8_t *from_page,
                       uint32_t from_slot);

/* Copy a token's value alone, codes and metadata, in the same way. */
void pleat__quant_copy_value(const pleat__page_layout *layout, uint8_t *to_page, uint32_t to_slot,
                             const uint8_t *from_page, uint32_t from_slot);

/* Copy the tokens of a page, in slots [0, n_slots) with n_slots <= layout->tokens, to another of page_bytes bytes, and
 * nothing else of it: slots behind them become as pleat__quant_clear_tile() leaves them, and what is in no segment zeros.
 * So equal tokens make equal pages.  The target need not be aligned. */
void pleat__quant_copy_page(const pleat__page_layout *layout, uint8_t *to, const uint8_t *from, uint64_t page_bytes,
                            uint32_t n_slots);

/* Dequantise the token in a slot: k and v are head_dim f32, the same bits as in its tile's. */
void pleat__quant_load_token(const pleat__page_layout *layout, const uint8_t *page, uint32_t slot, float *k, float *v);

typedef struct pleat__quant_dsp {
    pleat__quant_store_fn store;
    pleat__quant_replace_fn replace;
    pleat__quant_load_fn load_k;
    pleat__quant_load_fn load_v;
} pleat__quant_dsp;

/* Largest magnitude that a cache takes.  With it, no logit and no sum of values leaves f32 (2^96 * 512 * the largest
 * softmax scale, 2^16), so kernels need not look for infinities. */
#define PLEAT__VALUE_MAX 0x1p48f

/* True if |x[i]| < PLEAT__VALUE_MAX for all i: false for infinities and NaN. */
bool pleat__values_in_range(const float *x, size_t n);

/* Fill the table with the best variants for these CPU flags (pleat_cpu_flags()). */
void pleat__quant_dsp_init(pleat__quant_dsp *dsp, uint32_t cpu_flags);

#endif
