/* SPDX-License-Identifier: MIT
 *
 * tiles_rig.h: a weight of packed tiles, read by the law of linear/tiles.h, a second time and apart from its code.
 */
#ifndef CHECK_TILES_RIG_H
#define CHECK_TILES_RIG_H

#include "linear/tiles.h"
#include "tests/check/linear/linear_rig.h"

static inline double scale_in(const uint8_t *scales, uint32_t g, uint32_t slice, uint32_t r) {
    return float_at(scales + 16 * g + 4 * slice + 2 * r);
}

/* Weight of row `at` of a tile, in column `col`. */
static inline double weight_in(const pleat__tiles *t, const uint8_t *tiles, uint32_t tile, uint32_t at, uint32_t col) {
    const uint8_t *group = tiles + ((uint64_t)tile * t->n_groups + col / 128) * pleat__tile_group_bytes(t->format);
    const uint32_t slice = col % 128 / 32, in_slice = col % 32, q = in_slice / 8, e = in_slice % 8;
    const uint32_t g = at % 8, r = at / 8, lane = 4 * g + q;
    uint32_t word;
    switch (t->format) {
        case PLEAT__TILE_F16: return float_at(tiles + ((uint64_t)tile * 16 + at) * t->n_groups * 256 + 2 * col);
        case PLEAT__TILE_Q8:
            return scale_in(group + 2048, g, slice, r) * (group[slice * 512 + 16 * lane + 8 * r + e] - 128);
        case PLEAT__TILE_Q8_HALF:
            return scale_in(group + 2048 + in_slice / 16 * 128, g, slice, r) *
                   (group[slice * 512 + 16 * lane + 8 * r + e] - 128);
        default: break;
    }
    memcpy(&word, group + slice / 2 * 512 + 16 * lane + 8 * (slice % 2) + 4 * r, sizeof word);
    const int code = (int)(word >> 4 * (e / 2 + e % 2 * 4) & 15);
    const double scale = scale_in(group + 1024, g, slice, r);
    return t->format == PLEAT__TILE_Q4 ? scale * (code - 8) : scale * code + scale_in(group + 1152, g, slice, r);
}

/* Tiles of a source, to be freed. */
static inline uint8_t *tiles_new(const pleat__tile_source *source, pleat__tiles *t) {
    *t = pleat__tiles_of(source);
    uint8_t *tiles = malloc(pleat__tiles_bytes(t));
    const uint32_t middle = t->n_tiles / 2;
    pleat__tiles_pack(t, source, 0, middle, tiles);
    pleat__tiles_pack(t, source, middle, t->n_tiles, tiles + pleat__tiles_bytes(t) / t->n_tiles * middle);
    return tiles;
}

#endif
