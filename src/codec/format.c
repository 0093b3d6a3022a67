/* SPDX-License-Identifier: MIT
 *
 * format.c: how a spec's blocks are made.
 */
#include <assert.h>

#include "codec/rd.h"
#include "quant/bounded.h"

static_assert(PLEAT__BLOCK_TOKENS_MAX - 1 <= UINT8_MAX, "tokens of a block are counted in bytes by its order");

#define KIVI_TOKENS 32u
#define KIVI_V_GROUP 32u

static pleat__block_format kvcomp_format(const pleat_spec *spec, uint32_t head_dim) {
    return (pleat__block_format){.tokens = spec->block,
                                 .by_channel = spec->kunit == PLEAT_K_UNIT_CHANNEL,
                                 .v_group = head_dim,
                                 .coder = spec->pack ? PLEAT__CODER_PACK : PLEAT__CODER_HUFFMAN};
}

static pleat__block_format kivi_format(uint32_t head_dim) {
    return (pleat__block_format){.tokens = KIVI_TOKENS,
                                 .by_channel = true,
                                 .v_group = head_dim % KIVI_V_GROUP == 0 ? KIVI_V_GROUP : KIVI_V_GROUP / 2,
                                 .coder = PLEAT__CODER_RAW};
}

static bool is_rel(float rel) { return rel >= 1.0f / 255 && rel <= 1; }

static bool is_kvcomp(const pleat_spec *s) {
    return s->compressor == PLEAT_COMPRESSOR_KVCOMP && is_rel(s->k) && is_rel(s->v) && s->block >= 16 &&
           s->block <= PLEAT__BLOCK_TOKENS_MAX && (s->block & (s->block - 1)) == 0;
}

/* Levels of a relative step, and whether units are tried on grids.  Not with two: most values would be 0, a small
 * difference of large numbers in attention. */
static uint32_t levels_of(float rel, bool may_be_on_grids, bool *on_grids) {
    const uint32_t n = pleat__bounded_grid_levels(rel);
    *on_grids = may_be_on_grids && n > 2 && n <= PLEAT__GRID_LEVELS;
    return *on_grids ? n : pleat__bounded_levels(rel);
}

void pleat__block_set_steps(pleat__block_format *f, float k_rel, float v_rel, bool may_be_on_grids) {
    f->k_rel = k_rel;
    f->v_rel = v_rel;
    f->k_levels = levels_of(k_rel, may_be_on_grids, &f->k_on_grids);
    f->v_levels = levels_of(v_rel, may_be_on_grids, &f->v_on_grids);
}

pleat_status pleat__block_format_of(const pleat_spec *spec, uint32_t head_dim, pleat__block_format *format) {
    if (head_dim < 16 || head_dim > PLEAT__MAX_HEAD_DIM || head_dim % 16 != 0) return PLEAT_E_ARG;
    if (is_kvcomp(spec)) {
        *format = kvcomp_format(spec, head_dim);
        pleat__block_set_steps(format, spec->k, spec->v, true);
    } else if (spec->compressor == PLEAT_COMPRESSOR_RD || spec->compressor == PLEAT_COMPRESSOR_AUTO) {
        *format = pleat__rd_format(head_dim);
    } else if (spec->compressor == PLEAT_COMPRESSOR_KIVI && (spec->bits == 2 || spec->bits == 4)) {
        const float rel = 1.0f / (float)((1u << spec->bits) - 1);
        *format = kivi_format(head_dim);
        pleat__block_set_steps(format, rel, rel, false); /* as published: an f16 minimum and step */
    } else {
        return PLEAT_E_ARG;
    }
    format->head_dim = head_dim;
    return PLEAT_OK;
}
