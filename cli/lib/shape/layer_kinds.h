/* SPDX-License-Identifier: MIT
 *
 * layer_kinds.h: what a cache keeps the layers of a model as: the spec in full layers, and in those with a sliding window
 * their newest tokens in the spec's high format.
 */
#ifndef PLEAT_CLI_LIB_SHAPE_LAYER_KINDS_H
#define PLEAT_CLI_LIB_SHAPE_LAYER_KINDS_H

#include "pleat/pleat.h"

typedef struct layer_kind {
    uint32_t n_layers;
    uint32_t window;                   /* newest tokens that they keep; 0: full layers */
    char kept_as[PLEAT_SPEC_TEXT_CAP]; /* a spec's canonical text */
    uint64_t token_bytes;              /* of a token in all of them, kept high, without slack and tables */
    uint64_t bytes;                    /* of a sequence's */
} layer_kind;

/* The kinds of layers of a cache of these options, one or two of them; 0 for options that no cache takes.  bytes: what a
 * sequence of n_tokens holds, which are shared out: rings have their pages and full layers the rest, tables too. */
uint32_t layer_kinds_of(const pleat_cache_options *opt, uint32_t n_tokens, uint64_t bytes, layer_kind out[2]);

/* Of a token in all layers, kept high. */
uint64_t layer_kinds_token_bytes(const layer_kind *kinds, uint32_t n_kinds);

/* "all tokens", or "the newest 512". */
#define LAYER_KIND_SEES_CAP 32
const char *layer_kind_sees(const layer_kind *kind, char out[LAYER_KIND_SEES_CAP]);

#endif
