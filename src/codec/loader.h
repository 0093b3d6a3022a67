/* SPDX-License-Identifier: MIT
 *
 * loader.h: blocks of a lane as f32 tiles, one at a time, for whoever reads keys and values themselves: prompts, and
 * export.
 */
#ifndef PLEAT_CODEC_LOADER_H
#define PLEAT_CODEC_LOADER_H

#include "codec/block.h"

typedef struct pleat__block_loader {
    const pleat__codec_dsp *codec;
    uint8_t *copy, *codes; /* scratch */
    float *k;              /* [T/16][d][16 tokens] of the block that is loaded */
    float *v;              /* [T/16][16 tokens][d] */
    uint8_t *order;        /* [T] the token of the block at each place */
    uint32_t loaded;       /* 1 + the block; 0: none */
} pleat__block_loader;

/* Take the loader's arrays from an arena.  It is empty. */
void pleat__block_loader_carve(const pleat__block_format *format, const pleat__codec_dsp *codec,
                               pleat__block_loader *loader, pleat__arena *arena);

/* Have a block of the run loaded; nothing is done if it is.  A loader serves one run at a time: set loaded to 0 for
 * another.  A block that does not open is zeros, and false is returned. */
bool pleat__block_loader_load(pleat__block_loader *loader, const pleat__block_run *run, uint32_t block);

#endif
