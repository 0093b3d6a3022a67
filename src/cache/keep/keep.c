/* SPDX-License-Identifier: MIT
 *
 * keep.c: which kinds of lanes the options ask for, and whether they have what these need.
 */
#include "cache/keep/keep.h"

#include "core/error.h"
#include "stats/stats.h"

/* Layers that keep fewer tokens than the longest sequence has. */
static uint32_t count_windows(const pleat_cache_options *opt) {
    uint32_t n = 0;
    for (uint32_t layer = 0; opt->windows && layer < opt->n_layers; layer++) n += !pleat__cache_is_full(opt, layer);
    return n;
}

static const pleat__keep *keep_of_spec(const pleat_spec *spec) {
    if (spec->compressor != PLEAT_COMPRESSOR_NONE) return &pleat__keep_blocks;
    if (pleat_policy_evicts(spec->policy)) return &pleat__keep_budget;
    return spec->policy != PLEAT_POLICY_NONE ? &pleat__keep_levels : &pleat__keep_all;
}

/* A policy or blocks that no layer has would say nothing. */
pleat_status pleat__keep_check(const pleat_cache_options *opt, pleat_error *err) {
    PLEAT_FAIL_IF(
        keep_of_spec(&opt->spec) != &pleat__keep_all && count_windows(opt) == opt->n_layers, err, PLEAT_E_ARG,
        PLEAT_NOWHERE,
        "cache: every layer has a sliding window, which keeps its newest tokens in one format: no layer is left "
        "for a policy or for blocks; choose a spec without");
    return PLEAT_OK;
}

pleat_status pleat__keep_check_stats(const pleat_cache_options *opt, const char *why, pleat_error *err) {
    const pleat_stats *s = opt->stats;
    PLEAT_TRY(pleat__stats_check(s, opt->n_layers, opt->n_kv_heads, opt->head_dim, why, err));
    for (uint32_t i = 0; i < opt->n_layers; i++)
        PLEAT_FAIL_IF(pleat__cache_is_full(opt, i) && !s->has_layer[i], err, PLEAT_E_ARG, PLEAT_NOWHERE,
                      "cache: the statistics say nothing of layer %u", i);
    return PLEAT_OK;
}

void pleat__keep_choose(pleat_cache *c) {
    const uint32_t n_windows = count_windows(&c->opt);
    c->keep = keep_of_spec(&c->opt.spec);
    c->ring = n_windows > 0 ? &pleat__keep_ring : NULL;
    c->n_full_layers = c->opt.n_layers - n_windows;
}

const pleat__keep *pleat__keep_of_kind(pleat_lane_kind kind) {
    static const pleat__keep *const rows[] = {&pleat__keep_all, &pleat__keep_levels, &pleat__keep_budget,
                                              &pleat__keep_blocks};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i]->kind == kind) return rows[i];
    return &pleat__keep_all;
}

void pleat__keep_forecast_step(const pleat_forecast *f, const pleat__item_counts *n, pleat__item_end end,
                               pleat_forecast_seq *q) {
    pleat__keep_of_kind(f->kind)->forecast_step(f, n, end, q);
    if (f->traits.n_ring_lanes > 0) pleat__keep_ring.forecast_step(f, n, end, q);
}
