/* SPDX-License-Identifier: MIT
 *
 * pack_encode.h: what pack_encode.cuh knows of a format: kvcomp+pack's blocks of 64 tokens and up to 16 levels.
 */
#ifndef PLEAT_CODEC_CUDA_PACK_ENCODE_H
#define PLEAT_CODEC_CUDA_PACK_ENCODE_H

#include "core/types.h"

#define PLEAT__PACK_TOKENS 64u
#define PLEAT__PACK_LEVELS 16u

/* A matrix: keys or values. */
typedef struct pleat__pack_matrix {
    float rel;
    uint32_t bits;     /* of a code */
    uint32_t top_grid; /* the largest code of units on grids */
    uint32_t top_wide; /* the largest code of other units */
    bool on_grids;     /* units are tried on grids first */
} pleat__pack_matrix;

typedef struct pleat__pack_coder {
    pleat__pack_matrix k, v;
    bool by_channel;    /* keys: a unit is a channel, else the block */
    uint32_t seed;      /* of payloads' sums */
    uint32_t cap_bytes; /* most of a payload, a multiple of 16 */
} pleat__pack_coder;

#endif
