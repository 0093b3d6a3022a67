/* SPDX-License-Identifier: MIT
 *
 * format.c: how a spec's blocks are made.
 */
#include "codec/block.h"
#include "quant/bounded.h"

#define KIVI_TOKENS 32u
#define KIVI_V_GROUP 32u

static pleat__block_format kvcomp_format(const pleat_spec *spec, uint32_t head_dim) {
    return (pleat__block_format){.tokens = spec->block,
                                 .by_channel = spec->kunit == PLEAT_K_UNIT_CHANNEL,
                                 .v_group = head_dim,
                                 .k_rel = spec->k,
                                 .v_rel = spec->v,
                                 .coder = spec->pack ? PLEAT__CODER_PACK : PLEAT__CODER_HUFFMAN};
}

static pleat__block_format kivi_format(const pleat_spec *spec, uint32_t head_dim) {
    const float rel = 1.0f / (float)((1u << spec->bits) - 1);
    return (pleat__block_format){.tokens = KIVI_TOKENS,
                                 .by_channel = true,
                                 .v_group = head_dim % KIVI_V_GROUP == 0 ? KIVI_V_GROUP : KIVI_V_GROUP / 2,
                                 .k_rel = rel,
                                 .v_rel = rel,
                                 .coder = PLEAT__CODER_RAW};
}

static bool is_rel(float rel) { return rel >= 1.0f / 255 && rel <= 1; }

static bool is_kvcomp(const pleat_spec *s) {
    return s->compressor == PLEAT_COMPRESSOR_KVCOMP && is_rel(s->k) && is_rel(s->v) && s->block >= 16 &&
           s->block <= 256 && (s->block & (s->block - 1)) == 0;
}

pleat_status pleat__block_format_of(const pleat_spec *spec, uint32_t head_dim, pleat__block_format *format) {
    if (head_dim < 16 || head_dim > PLEAT__MAX_HEAD_DIM || head_dim % 16 != 0) return PLEAT_E_ARG;
    if (is_kvcomp(spec))
        *format = kvcomp_format(spec, head_dim);
    else if (spec->compressor == PLEAT_COMPRESSOR_KIVI && (spec->bits == 2 || spec->bits == 4))
        *format = kivi_format(spec, head_dim);
    else
        return PLEAT_E_ARG;
    format->head_dim = head_dim;
    format->k_levels = pleat__bounded_levels(format->k_rel);
    format->v_levels = pleat__bounded_levels(format->v_rel);
    return PLEAT_OK;
}
