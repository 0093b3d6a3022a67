/* SPDX-License-Identifier: MIT
 *
 * layout.c: sizes and offsets of a page's segments.  See layout.h.
 */
#include "quant/layout.h"

static bool is_low_bits(uint8_t bits) { return bits == 8 || bits == 4 || bits == 2; }

static bool has_levels(uint8_t bits) { return bits >= 2 && bits <= 4; }

bool pleat__format_is_valid(pleat_format f) {
    if (f.rotated) return f.rotated == 1 && has_levels(f.k_bits) && has_levels(f.v_bits);
    if (f.k_bits == 32 || f.k_bits == 16) return f.v_bits == f.k_bits;
    return is_low_bits(f.k_bits) && is_low_bits(f.v_bits);
}

uint64_t pleat_format_token_bytes(pleat_format format, uint32_t head_dim) {
    if (!pleat__format_is_valid(format)) return 0;
    const uint64_t bits = (uint64_t)head_dim * (format.k_bits + (uint32_t)format.v_bits);
    return (bits + 7) / 8 + (pleat__format_is_quantised(format) ? 2 * pleat__meta_tile_bytes(format) / PLEAT__TILE : 0);
}

/* Append a segment and return its offset, which is right while *end stays below 2^32. */
static uint32_t append_segment(uint64_t *end, uint64_t bytes) {
    const uint64_t off = (*end + PLEAT__ALIGN - 1) & ~(uint64_t)(PLEAT__ALIGN - 1);
    *end = off + bytes;
    return (uint32_t)off;
}

static pleat_status lay_out(pleat__page_layout *layout, pleat_format format, uint32_t head_dim, uint32_t tokens,
                            bool tracked, uint32_t n_scores, bool has_mass) {
    if (!pleat__format_is_valid(format) || head_dim < 16 || head_dim > PLEAT__MAX_HEAD_DIM || head_dim % 16 != 0 ||
        tokens == 0 || tokens % PLEAT__TILE != 0 || n_scores > PLEAT__MAX_GROUP)
        return PLEAT_E_ARG;
    const uint64_t n_tiles = tokens / PLEAT__TILE;
    pleat__page_layout l = {.format = format, .head_dim = head_dim, .tokens = tokens};
    l.tracked = tracked;
    l.n_scores = n_scores;
    l.k_tile_bytes = PLEAT__TILE * head_dim * format.k_bits / 8;
    l.v_tile_bytes = PLEAT__TILE * head_dim * format.v_bits / 8;
    const bool meta = pleat__format_is_quantised(format);
    uint64_t end = 0;
    l.k_off = append_segment(&end, n_tiles * l.k_tile_bytes);
    if (meta) l.k_meta_off = append_segment(&end, n_tiles * pleat__meta_tile_bytes(format));
    l.v_off = append_segment(&end, n_tiles * l.v_tile_bytes);
    if (meta) l.v_meta_off = append_segment(&end, n_tiles * pleat__meta_tile_bytes(format));
    if (n_scores > 0) l.score_off = append_segment(&end, (uint64_t)n_scores * tokens * sizeof(float));
    if (tracked) l.pos_off = append_segment(&end, (uint64_t)tokens * sizeof(int32_t));
    if (has_mass) l.mass_off = append_segment(&end, (uint64_t)tokens * sizeof(uint16_t));
    if (end > UINT32_MAX / 2) return PLEAT_E_ARG;
    l.used_bytes = (uint32_t)end;
    *layout = l;
    return PLEAT_OK;
}

pleat_status pleat__page_layout_init(pleat__page_layout *layout, pleat_format format, uint32_t head_dim,
                                     uint32_t tokens, bool tracked) {
    return lay_out(layout, format, head_dim, tokens, tracked, tracked ? 1 : 0, false);
}

pleat_status pleat__page_layout_init_scored(pleat__page_layout *layout, pleat_format format, uint32_t head_dim,
                                            uint32_t tokens, uint32_t n_scores) {
    return lay_out(layout, format, head_dim, tokens, true, n_scores, false);
}

pleat_status pleat__page_layout_init_massed(pleat__page_layout *layout, pleat_format format, uint32_t head_dim,
                                            uint32_t tokens, uint32_t n_scores) {
    return lay_out(layout, format, head_dim, tokens, true, n_scores, true);
}
