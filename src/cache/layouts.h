/* SPDX-License-Identifier: MIT
 *
 * layouts.h: what the pages of a cache look like, on either device: how many tokens of each format one holds.
 *
 * All pages of a cache have one size: that of the high format's page_tokens tokens.  The low format's page holds as many
 * tokens as fit, in whole tiles; pleat__layouts_choose() weighs what is left over.
 */
#ifndef PLEAT_CACHE_LAYOUTS_H
#define PLEAT_CACHE_LAYOUTS_H

#include "core/kv_view.h"

#define PLEAT__DEFAULT_PAGE_TOKENS 32u
/* A whole group of decode's tiles: 5 to 10 % faster from memory (k8v8, d 128; 2026-11), where half a page a lane is
 * below 0.4 % of what a sequence can hold. */
#define PLEAT__LONG_PAGE_TOKENS 64u
#define PLEAT__LONG_PAGE_FROM 8192u

/* The largest pages that are ever chosen. */
#define PLEAT__MAX_CHOSEN_PAGE_TOKENS 128u

/* What they depend on. */
typedef struct pleat__layouts_of {
    const pleat_spec *spec;
    uint32_t head_dim;
    uint32_t n_group;
    bool two_sided;          /* there is a low side of tokens */
    uint32_t max_low_tokens; /* of a low page */
} pleat__layouts_of;

typedef struct pleat__layouts {
    pleat__page_layout side[2]; /* [pleat__side]; without a low side both are the high side's */
    uint64_t page_bytes;        /* a multiple of PLEAT__ALIGN */
} pleat__layouts;

/* Lay out both sides' pages of `tokens` high tokens.  PLEAT_E_ARG: there is no such page. */
pleat_status pleat__layouts_init(pleat__layouts *layouts, const pleat__layouts_of *of, uint32_t tokens);

/* Tokens of a high page that waste least in a two-sided cache. */
uint32_t pleat__layouts_choose(const pleat__layouts_of *of);

#endif
