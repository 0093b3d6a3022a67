/* SPDX-License-Identifier: MIT
 *
 * layout.h: where everything stands in a page.
 *
 * A page has up to seven segments.  Codes and metadata are stored tile by tile, 16 tokens each, so that a kernel
 * walks memory forward and one 64-byte load feeds 16 logits (keys) or 16 dimensions (values) of a whole GQA group.
 *
 *     | K codes | K metadata | V codes | V metadata | scores f32 | positions i32 | masses f16 |
 *
 * Scores and positions stand there only if it is tracked, masses (attn/mass.h) only where tokens are merged.
 *
 *     K tile   f32, f16   [d][16 tokens]
 *              8 bits     [d/4][16 tokens][4]    u8 codes
 *              4 bits     [d/8][16 tokens][4]    low nibble dimension 8c+j, high nibble 8c+4+j
 *              2 bits     [d/16][16 tokens][4]   bits 2p, 2p+1: dimension 16c+4p+j, p = 0..3
 *     V tile   f32, f16   [16 tokens][d]
 *              8 bits     [4][d][4]              s8 codes, stored as code - 128; byte j of group g: token 4g+j
 *              4 bits     [2][d][4]              low nibble token 8g+j, high nibble 8g+4+j
 *              2 bits     [d][4]                 bits 2p, 2p+1: token 4p+j, p = 0..3
 *     metadata of a tile   scale f16 [16], minimum f16 [16]: 64 bytes; none for f32 and f16
 *                          rotated: scale f16 [16]: 32 bytes
 *
 *     x' = scale*code + minimum, code in 0 .. 2^bits - 1        rotated: x' = scale*level[code] (levels.h)
 *
 * Rotated formats have 4, 3 or 2 bits.  Of 4 and 2 the codes stand as above.  Those of 3 bits are their low two, as 2
 * bits above, and their thirds behind these: for each 64 bytes of the tile 32 more.  There byte i has the thirds of two
 * bytes of the 64: bit p is that of plane p of byte i, and bit 4 + p that of plane p of byte 32 + i.
 *
 * Byte and nibble planes make unpacking one AND and at most one shift; V's 8-bit codes are signed because the
 * integer dot product multiplies unsigned (the attention weights) by signed.  Segments start at multiples of 64 bytes.
 */
#ifndef PLEAT_QUANT_LAYOUT_H
#define PLEAT_QUANT_LAYOUT_H

#include "core/kv_view.h"

/* Bytes of a tile's metadata: 16 scales, 16 minimums. */
#define PLEAT__META_TILE_BYTES 64u

static inline bool pleat__format_is_quantised(pleat_format format) { return format.k_bits <= 8; }

/* Bytes of a tile's metadata: a rotated format's levels stand around 0. */
static inline uint32_t pleat__meta_tile_bytes(pleat_format format) {
    return format.rotated ? PLEAT__META_TILE_BYTES / 2 : PLEAT__META_TILE_BYTES;
}

/* 1 if both bits are 32, both 16, or each is 8, 4 or 2; rotated: 4, 3 or 2. */
bool pleat__format_is_valid(pleat_format format);

/* Lay out a page of `tokens` slots: tracked with one score, or without positions.  PLEAT_E_ARG for an invalid format, a
 * head_dim that is no multiple of 16 in 16..512, tokens that is no multiple of 16, or a page above 2^31 bytes. */
pleat_status pleat__page_layout_init(pleat__page_layout *layout, pleat_format format, uint32_t head_dim,
                                     uint32_t tokens, bool tracked);

/* The same, tracked, with n_scores (0..PLEAT__MAX_GROUP) scores a slot. */
pleat_status pleat__page_layout_init_scored(pleat__page_layout *layout, pleat_format format, uint32_t head_dim,
                                            uint32_t tokens, uint32_t n_scores);

/* The same with masses. */
pleat_status pleat__page_layout_init_massed(pleat__page_layout *layout, pleat_format format, uint32_t head_dim,
                                            uint32_t tokens, uint32_t n_scores);

/* Pieces of a page. */
static inline uint8_t *pleat__k_tile(const pleat__page_layout *l, uint8_t *page, uint32_t tile) {
    return page + l->k_off + (uint64_t)tile * l->k_tile_bytes;
}
static inline uint8_t *pleat__v_tile(const pleat__page_layout *l, uint8_t *page, uint32_t tile) {
    return page + l->v_off + (uint64_t)tile * l->v_tile_bytes;
}
static inline uint16_t *pleat__k_meta(const pleat__page_layout *l, uint8_t *page, uint32_t tile) {
    return (uint16_t *)(void *)(page + l->k_meta_off + (uint64_t)tile * pleat__meta_tile_bytes(l->format));
}
static inline uint16_t *pleat__v_meta(const pleat__page_layout *l, uint8_t *page, uint32_t tile) {
    return (uint16_t *)(void *)(page + l->v_meta_off + (uint64_t)tile * pleat__meta_tile_bytes(l->format));
}
#endif
