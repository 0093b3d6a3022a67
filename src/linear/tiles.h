/* SPDX-License-Identifier: MIT
 *
 * tiles.h: a matrix in the order of a GPU's tensor cores, made on the CPU: the law that the products of src/model/cuda
 * read by, and nothing of CUDA.
 *
 *     matrix    tiles of 16 rows, one behind the other
 *     tile      groups of 128 columns, one behind the other: what a warp reads is one stream
 *     group     4 slices of 32 columns: codes, then scales
 *
 * mma.m16n8k16 wants of lane 4g + q, g < 8, q < 4, weights of the rows g and g + 8.  Which columns these are is free as
 * long as both factors agree.  So a lane has columns 8q .. 8q+7 of each slice, side by side in the activations too:
 *
 *     format   a group's codes, at lane l = 4g + q; r is 0 for row g, 1 for row g + 8       a weight is
 *     F16      rows, not groups: see below                                                  the half
 *     Q8       u8[8]  at slice * 512 + 16 l + 8 r                                           scale * (code - 128)
 *     Q4       u32    at (slice / 2) * 512 + 16 l + 8 (slice % 2) + 4 r: columns            scale * (code - 8)
 *              8q + 2i in its nibbles i = 0..3, 8q + 2i + 1 in nibbles i + 4
 *     Q4_MIN   as Q4                                                                        scale * code + min
 *     Q8_HALF  as Q8                                                 its half slice's scale * (code - 128)
 *
 *     A tile of F16 is its 16 rows, one behind the other: a matrix is rows of n_groups * 128 halves, which is what
 *     libraries multiply by too.  A lane's eight are 16 bytes of a row.
 *
 *     scales   f16 behind the codes: at 16 g + 4 slice + 2 r.  Q4_MIN has a second plane of 128 bytes, of minima;
 *              Q8_HALF one for columns 16..31 of each slice
 *
 * What is behind the last row and the last column of a matrix is zeros.  Q8_0, Q5_0, IQ4_NL, Q4_0, Q4_1 and F16 keep
 * their weights exactly; products round each to f16 (model/cuda/mul.h).  Scales of Q4_K, Q6_K, Q3_K and IQ4_XS are
 * products in the file, and are rounded to f16: by 2^-11.  All other types become F16, rounded likewise, and one beyond
 * 65504 infinite.
 */
#ifndef PLEAT_LINEAR_TILES_H
#define PLEAT_LINEAR_TILES_H

#include "linear/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pleat__tile_format {
    PLEAT__TILE_F16,
    PLEAT__TILE_Q8,
    PLEAT__TILE_Q4,
    PLEAT__TILE_Q4_MIN,
    PLEAT__TILE_Q8_HALF,
    PLEAT__N_TILE_FORMATS
} pleat__tile_format;

#define PLEAT__TILE_ROWS 16u
#define PLEAT__TILE_SLICES 4u  /* of a group */
#define PLEAT__GROUP_COLS 128u /* 4 slices of 32 */

#define PLEAT__TILE_SCALES_BYTES 128u /* a plane of scales */

/* What one product multiplies with: up to three matrices of one width. */
typedef struct pleat__tile_source {
    pleat__matrix parts[3]; /* as the file stores them; cols a multiple of 32 */
    uint32_t n_parts;
    bool in_pairs; /* two parts of equal shape: a tile is 8 rows of the first, then the same 8 of the second; else the
                    * parts' rows follow each other */
} pleat__tile_source;

typedef struct pleat__tiles {
    pleat__tile_format format;
    uint32_t rows; /* of all parts */
    uint32_t cols;
    uint32_t n_tiles;
    uint32_t n_groups; /* of a tile */
} pleat__tiles;

/* Names, for messages: "F16", ... */
const char *pleat__tile_format_name(pleat__tile_format format);

/* The one that matrices of this type become. */
pleat__tile_format pleat__tile_format_of(pleat__weight_type type);

/* Bytes of a group: a multiple of 128.  Of F16 it is what a group's columns take in 16 rows. */
uint32_t pleat__tile_group_bytes(pleat__tile_format format);

/* What the source becomes; parts of several formats become F16. */
pleat__tiles pleat__tiles_of(const pleat__tile_source *source);

uint64_t pleat__tiles_bytes(const pleat__tiles *tiles);

/* Tiles [from, to) into out, which is where tile `from` begins. */
void pleat__tiles_pack(const pleat__tiles *tiles, const pleat__tile_source *source, uint32_t from, uint32_t to,
                       uint8_t *out);

#ifdef __cplusplus
}
#endif
#endif
