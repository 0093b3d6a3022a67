/* SPDX-License-Identifier: MIT
 *
 * layouts.c: see layouts.h.
 */
#include "cache/layouts.h"

#include "core/error.h"
#include "page/pool.h"
#include "policy/evict.h"
#include "quant/layout.h"

/* Lay out low's page in page_bytes: as many tiles as fit.  Where no low token can ever be dropped (al = 0) nobody asks
 * for its score and position, and its pages do without. */
static pleat_status fit_low(const pleat__layouts_of *of, uint64_t page_bytes, pleat__page_layout *low) {
    const bool tracked = of->spec->al > 0;
    pleat__page_layout next;
    PLEAT_TRY(pleat__page_layout_init(low, of->spec->low, of->head_dim, PLEAT__TILE, tracked));
    if (low->used_bytes > page_bytes) return PLEAT_E_ARG;
    while (low->tokens < of->max_low_tokens &&
           pleat__page_layout_init(&next, of->spec->low, of->head_dim, low->tokens + PLEAT__TILE, tracked) ==
               PLEAT_OK &&
           next.used_bytes <= page_bytes)
        *low = next;
    return PLEAT_OK;
}

pleat_status pleat__layouts_init(pleat__layouts *l, const pleat__layouts_of *of, uint32_t tokens) {
    const pleat_spec *spec = of->spec;
    pleat__page_layout *high = &l->side[0], *low = &l->side[1];
    const uint32_t n_scores = pleat__n_scores_of(spec, of->n_group);
    if (spec->merge)
        PLEAT_TRY(pleat__page_layout_init_massed(high, spec->high, of->head_dim, tokens, n_scores));
    else if (spec->policy != PLEAT_POLICY_NONE)
        PLEAT_TRY(pleat__page_layout_init_scored(high, spec->high, of->head_dim, tokens, n_scores));
    else
        PLEAT_TRY(pleat__page_layout_init(high, spec->high, of->head_dim, tokens, false));
    l->page_bytes = ((uint64_t)high->used_bytes + PLEAT__ALIGN - 1) & ~(uint64_t)(PLEAT__ALIGN - 1);
    *low = *high;
    return of->two_sided ? fit_low(of, l->page_bytes, low) : PLEAT_OK;
}

/* Sizes are compared by a lane of this many low tokens.  Each side ends in half a page on average, low pages have a
 * rest that no tile fits in, and each page costs a cell of the table and of the pool.  32 tokens at least:
 * docs/ARCHITECTURE.md, Pages. */
#define TYPICAL_LOW_TOKENS 2048u
#define MIN_PAGE_TOKENS 32u

uint32_t pleat__layouts_choose(const pleat__layouts_of *of) {
    uint32_t best = PLEAT__DEFAULT_PAGE_TOKENS;
    uint64_t best_waste = UINT64_MAX;
    for (uint32_t tokens = MIN_PAGE_TOKENS; tokens <= PLEAT__MAX_CHOSEN_PAGE_TOKENS; tokens += PLEAT__TILE) {
        pleat__layouts l;
        if (pleat__layouts_init(&l, of, tokens) != PLEAT_OK) continue;
        const pleat__page_layout *low = &l.side[1];
        const uint64_t lost = l.page_bytes - low->used_bytes + PLEAT__POOL_BYTES_PER_PAGE + sizeof(pleat__page_id);
        const uint64_t waste = l.page_bytes + TYPICAL_LOW_TOKENS * lost / low->tokens;
        if (waste >= best_waste) continue;
        best_waste = waste;
        best = tokens;
    }
    return best;
}
