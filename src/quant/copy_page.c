/* SPDX-License-Identifier: MIT
 *
 * copy_page.c: the tokens of a page, and nothing else of it: pleat__quant_copy_page().
 *
 *     | K codes | gap | K metadata | gap | V codes | ... | positions | gap |      gaps: to segments' alignment, and to
 *       used      0     used         0     used            used        0          the page's end
 *
 * Pages are handed on as they are: gaps, and tiles that no token has come to, hold what other formats and other
 * sequences have left there.  Here they become what clearing leaves, and so do the last tile's slots without a token.
 */
#include "quant/quant.h"

/* The last tile that is in use, of which the slots up to `end` are. */
static void copy_part(const pleat__page_layout *l, uint8_t *to, const uint8_t *from, uint32_t end) {
    const uint32_t first = end - end % PLEAT__TILE;
    pleat__quant_clear_tile(l, to, first / PLEAT__TILE);
    for (uint32_t slot = first; slot < end; slot++) pleat__quant_copy(l, to, slot, from, slot);
}

/* Zero what lies between segments and behind the last. */
static void clear_gaps(const pleat__page_layout *l, uint8_t *page, uint64_t page_bytes) {
    const uint64_t n_tiles = l->tokens / PLEAT__TILE;
    const uint64_t meta_bytes = pleat__format_is_quantised(l->format) ? n_tiles * pleat__meta_tile_bytes(l->format) : 0;
    const struct {
        uint64_t off, bytes;
    } segments[] = {
        {l->k_off, n_tiles * l->k_tile_bytes},
        {l->k_meta_off, meta_bytes},
        {l->v_off, n_tiles * l->v_tile_bytes},
        {l->v_meta_off, meta_bytes},
        {l->score_off, (uint64_t)l->n_scores * l->tokens * sizeof(float)},
        {l->pos_off, l->tracked ? l->tokens * sizeof(int32_t) : 0},
        {l->mass_off, l->mass_off ? l->tokens * sizeof(uint16_t) : 0},
    };
    uint64_t end = 0;
    for (size_t i = 0; i < sizeof segments / sizeof segments[0]; i++) {
        if (segments[i].bytes == 0) continue;
        memset(page + end, 0, segments[i].off - end);
        end = segments[i].off + segments[i].bytes;
    }
    memset(page + end, 0, page_bytes - end);
}

void pleat__quant_copy_page(const pleat__page_layout *l, uint8_t *to, const uint8_t *from, uint64_t page_bytes,
                            uint32_t n_slots) {
    memcpy(to, from, page_bytes);
    if (n_slots % PLEAT__TILE != 0) copy_part(l, to, from, n_slots);
    for (uint32_t tile = pleat__div_up_u32(n_slots, PLEAT__TILE); tile < l->tokens / PLEAT__TILE; tile++)
        pleat__quant_clear_tile(l, to, tile);
    clear_gaps(l, to, page_bytes);
}
