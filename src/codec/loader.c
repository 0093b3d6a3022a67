/* SPDX-License-Identifier: MIT
 *
 * loader.c: see loader.h.
 */
#include "codec/loader.h"

#include <string.h>

#include "codec/rd.h"

void pleat__block_loader_carve(const pleat__block_format *f, const pleat__codec_dsp *codec, pleat__block_loader *loader,
                               pleat__arena *arena) {
    const uint64_t n = (uint64_t)f->tokens * f->head_dim;
    *loader = (pleat__block_loader){.codec = codec};
    loader->copy = pleat__arena_take(arena, pleat__block_copy_bytes(f), 1);
    loader->codes = pleat__arena_take(arena, n, 1);
    loader->k = pleat__arena_take(arena, n, sizeof *loader->k);
    loader->v = pleat__arena_take(arena, n, sizeof *loader->v);
    loader->order = pleat__arena_take(arena, f->tokens, 1);
}

bool pleat__block_loader_load(pleat__block_loader *l, const pleat__block_run *run, uint32_t block) {
    const pleat__block_format *f = run->format;
    if (l->loaded == block + 1) return true;
    pleat__block_reader reader;
    const bool opens =
        pleat__block_run_open(run, block, l->copy, &reader) == PLEAT_OK &&
        (run->rd ? pleat__rd_load(l->codec, run->rd, block, &reader, l->codes, l->k, l->v)
                 : pleat__block_load(l->codec, f, run->codebooks, &reader, l->codes, l->k, l->v)) == PLEAT_OK;
    if (!opens) {
        memset(l->k, 0, (size_t)f->tokens * f->head_dim * sizeof *l->k);
        memset(l->v, 0, (size_t)f->tokens * f->head_dim * sizeof *l->v);
    }
    for (uint32_t i = 0; i < f->tokens; i++) l->order[i] = opens && reader.order ? reader.order[i] : (uint8_t)i;
    l->loaded = opens ? block + 1 : 0;
    return opens;
}
