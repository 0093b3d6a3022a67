/* SPDX-License-Identifier: MIT
 *
 * keep.c: which kind of lanes the options ask for.
 */
#include "cache/keep/keep.h"

#include "core/error.h"

/* Layers that keep fewer tokens than the longest sequence has. */
static bool wants_rings(const pleat_cache_options *opt) {
    bool any = false;
    for (uint32_t layer = 0; opt->windows && layer < opt->n_layers; layer++)
        any |= opt->windows[layer] > 0 && opt->windows[layer] < opt->max_tokens;
    return any;
}

pleat_status pleat__keep_check(const pleat_cache_options *opt, pleat_error *err) {
    if (!wants_rings(opt)) return PLEAT_OK;
    PLEAT_FAIL_IF(opt->spec.policy != PLEAT_POLICY_NONE, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "cache: a policy on layers with a sliding window is not supported: choose a spec without one");
    PLEAT_FAIL_IF(
        opt->spec.compressor != PLEAT_COMPRESSOR_NONE, err, PLEAT_E_ARG, PLEAT_NOWHERE,
        "cache: blocks (kvcomp, kivi) on layers with a sliding window are not supported: choose another spec");
    return PLEAT_OK;
}

const pleat__keep *pleat__keep_of_kind(pleat_lane_kind kind) {
    static const pleat__keep *const rows[] = {&pleat__keep_all, &pleat__keep_ring, &pleat__keep_levels,
                                              &pleat__keep_budget, &pleat__keep_blocks};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i]->kind == kind) return rows[i];
    return &pleat__keep_all;
}

const pleat__keep *pleat__keep_of(const pleat_cache_options *opt) {
    if (opt->spec.compressor != PLEAT_COMPRESSOR_NONE) return &pleat__keep_blocks;
    if (pleat_policy_evicts(opt->spec.policy)) return &pleat__keep_budget;
    if (opt->spec.policy != PLEAT_POLICY_NONE) return &pleat__keep_levels;
    return wants_rings(opt) ? &pleat__keep_ring : &pleat__keep_all;
}
