/* SPDX-License-Identifier: MIT
 *
 * traits.c: what engines, schedulers and planners ask of a cache, or of options that no cache has been made from.
 */
#include "cache/create.h"
#include "cache/keep/keep.h"
#include "core/error.h"
#include "spec/spec.h"

pleat_status pleat_cache_check(const pleat_cache_options *opt, pleat_error *err) {
    pleat_cache c = {0};
    PLEAT_FAIL_IF(!opt, err, PLEAT_E_ARG, PLEAT_NOWHERE, "cache: no options");
    return pleat__cache_derive(&c, opt, err);
}

pleat_status pleat_cache_get_traits(const pleat_cache *c, pleat_cache_traits *out) {
    if (!c || !out || out->size_bytes != sizeof *out) return PLEAT_E_ARG;
    *out = c->traits;
    return PLEAT_OK;
}

pleat_status pleat_cache_traits_for(const pleat_cache_options *opt, pleat_cache_traits *out, pleat_error *err) {
    pleat_cache c = {0};
    PLEAT_FAIL_IF(!opt || !out || out->size_bytes != sizeof *out, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "cache: no options, or no place for the traits");
    PLEAT_TRY(pleat__cache_derive(&c, opt, err));
    *out = c.traits;
    return PLEAT_OK;
}

uint64_t pleat_cache_token_bytes(const pleat_spec *spec, uint32_t head_dim, uint32_t n_group) {
    if (!spec || pleat__spec_check(spec, NULL) != PLEAT_OK) return 0;
    const uint64_t tracking = (pleat__n_scores_of(spec, n_group) + 1) * sizeof(float) + /* and the position */
                              (spec->merge ? sizeof(uint16_t) : 0);                     /* and the mass */
    return pleat_format_token_bytes(spec->high, head_dim) + (spec->policy == PLEAT_POLICY_NONE ? 0 : tracking);
}

uint32_t pleat_cache_page_tokens(const pleat_cache *c) { return c ? c->page_tokens[PLEAT__HIGH] : 0; }

uint32_t pleat_cache_max_kept(const pleat_cache *c, uint32_t n_prompt) {
    if (!c) return 0;
    return c->keep->max_kept ? c->keep->max_kept(c, n_prompt) : UINT32_MAX;
}

uint64_t pleat_cache_pages_held(const pleat_cache *c, pleat_seq handle) {
    const pleat__sequence *seq = c ? pleat__cache_seq(c, handle) : NULL;
    if (c && handle.v == 0) return pleat__pool_used(&c->pool);
    return seq ? seq->table.n_pages_all : 0;
}

pleat_status pleat_cache_get_sides(const pleat_cache *c, pleat_seq handle, pleat_cache_sides *out) {
    const pleat__sequence *seq = c ? pleat__cache_seq(c, handle) : NULL;
    if (!seq || !out) return PLEAT_E_ARG;
    pleat_cache_sides s = {0};
    for (uint32_t i = 0; i < c->n_lanes; i++) {
        const pleat__lane lane = pleat__table_lane(&seq->table, i);
        s.high_pages += lane.n_pages[PLEAT__HIGH];
        s.low_pages += lane.n_pages[PLEAT__LOW];
        s.live_slots += (uint64_t)pleat__lane_live_high(&lane) * c->high_weight + lane.n_slots[PLEAT__LOW];
        s.held_slots += (uint64_t)lane.n_pages[PLEAT__HIGH] * c->page_tokens[PLEAT__HIGH] * c->high_weight;
        s.held_slots += (uint64_t)lane.n_pages[PLEAT__LOW] * c->page_tokens[PLEAT__LOW];
    }
    *out = s;
    return PLEAT_OK;
}
