/* SPDX-License-Identifier: MIT
 *
 * forecast.c: see pleat/forecast.h.  What a step does to lanes of some kind is the kind's row (keep/keep.h), which counts
 * with the functions that a step itself plans by; here are what all have in common, and samples.
 *
 * tests/check/cache/test_forecast.c holds it against a cache, step by step, and test_serving_simulated.c against an
 * engine that serves.
 */
#include <stdlib.h>

#include "cache/create.h"
#include "cache/keep/groups.h"
#include "core/error.h"
#include "core/memory.h"
#include "page/pool.h"
#include "pleat/forecast.h"

/* ---- make ------------------------------------------------------------------------------------------ */

/* One size of windows is all that a forecast knows. */
static pleat_status check_rings(const pleat_cache *c, pleat_error *err) {
    for (uint32_t layer = 0; layer < c->opt.n_layers; layer++) {
        const uint32_t window = pleat__cache_window(c, layer);
        PLEAT_FAIL_IF(window > 0 && window != c->traits.ring_slots, err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                      "forecast: layers with windows of %u and of %u tokens", window, c->traits.ring_slots);
    }
    return PLEAT_OK;
}

pleat_status pleat_forecast_for(const pleat_cache_options *opt, pleat_forecast *out, pleat_error *err) {
    pleat_cache c = {0};
    PLEAT_FAIL_IF(!opt || !out, err, PLEAT_E_ARG, PLEAT_NOWHERE, "forecast: no options, or no place for the result");
    PLEAT_TRY(pleat__cache_derive(&c, opt, err));
    pleat_forecast f = {.size_bytes = sizeof f,
                        .traits = c.traits,
                        .kind = c.keep->kind,
                        .spec = opt->spec,
                        .n_kv_heads = opt->n_kv_heads,
                        .fraction = 1,
                        .wants_samples = c.keep->sample_high != NULL,
                        .is_measured = c.keep->sample_high == NULL};
    if (c.keep->forecast) c.keep->forecast(&c, &f);
    PLEAT_FAIL_IF(c.keep->max_kept && opt->spec.reclaim == PLEAT_RECLAIM_BLOCK, err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "forecast: with reclaim=block it depends on the text which pages become empty");
    PLEAT_FAIL_IF(c.counting.is_peak, err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "forecast: kvzip drops tokens when a prompt has been read twice, and forecasts know of one reading");
    PLEAT_TRY(check_rings(&c, err));
    *out = f;
    return PLEAT_OK;
}

pleat_forecast pleat_forecast_of_fraction(uint32_t n_lanes, uint32_t page_tokens, uint64_t page_bytes,
                                          double fraction) {
    return (pleat_forecast){.size_bytes = sizeof(pleat_forecast), /* its kind: whole lanes */
                            .traits = {.size_bytes = sizeof(pleat_cache_traits),
                                       .page_bytes = page_bytes,
                                       .high_page_tokens = page_tokens,
                                       .low_page_tokens = page_tokens,
                                       .n_lanes = n_lanes},
                            .fraction = fraction,
                            .is_measured = 1};
}

/* ---- samples --------------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static int descending(const void *a, const void *b) { return ascending(b, a); }

/* Each group's mean; values: [n_lanes >= 1], sorted.  A group without a lane has the one before's, or the first lane's. */
static void group_means(const float *values, uint32_t n_lanes, float *out) {
    float last = values[0];
    for (uint32_t g = 0; g < PLEAT_FORECAST_GROUPS; g++) {
        const uint32_t from = pleat__group_begin(n_lanes, g), to = pleat__group_begin(n_lanes, g + 1);
        double sum = 0;
        for (uint32_t i = from; i < to; i++) sum += (double)values[i];
        if (to > from) last = (float)(sum / (to - from));
        out[g] = last;
    }
}

/* High and low slots of each full layer's lane for a classed token of the sequence. */
static void look_at_lanes(const pleat_cache *c, const pleat__sequence *seq, float *high, float *low) {
    for (uint32_t i = 0; i < c->n_lanes; i++) {
        if (pleat__cache_is_ring(c, i)) continue;
        const pleat__lane lane = pleat__table_lane(&seq->table, i);
        *high++ = c->keep->sample_high(&lane, seq->n_tokens - seq->n_classed, seq->n_classed);
        *low++ = (float)lane.n_slots[PLEAT__LOW] / (float)seq->n_classed;
    }
}

pleat_status pleat_forecast_measure(pleat_forecast *f, const pleat_cache *c, pleat_seq handle) {
    const pleat__sequence *seq = c ? pleat__cache_seq(c, handle) : NULL;
    if (!f || !seq || c->step.is_open || f->kind != c->keep->kind) return PLEAT_E_ARG;
    if (!f->wants_samples) return PLEAT_OK;
    if (f->n_samples == PLEAT_FORECAST_SAMPLES) return PLEAT_E_LIMIT;
    f->is_measured = 1;
    if (seq->n_classed == 0) return PLEAT_OK; /* so short: nothing to be seen */
    const uint32_t n_lanes = pleat__n_full_lanes(c);
    float *values = pleat__alloc(&c->al, 2 * (size_t)n_lanes, sizeof *values);
    if (!values) return PLEAT_E_MEMORY;
    pleat_forecast_sample *sample = &f->samples[f->n_samples++];
    sample->n_classed = seq->n_classed;
    float *high = values, *low = values + n_lanes;
    look_at_lanes(c, seq, high, low);
    qsort(high, n_lanes, sizeof *high, ascending);
    qsort(low, n_lanes, sizeof *low, descending); /* who keeps more high has less low */
    group_means(high, n_lanes, sample->high);
    group_means(low, n_lanes, sample->low);
    pleat__free(&c->al, values, 2 * (size_t)n_lanes, sizeof *values);
    return PLEAT_OK;
}

/* ---- a step ---------------------------------------------------------------------------------------- */

uint32_t pleat_forecast_max_kept(const pleat_forecast *f, uint32_t n_prompt) {
    const pleat__keep *keep = pleat__keep_of_kind(f->kind);
    return keep->forecast_kept ? keep->forecast_kept(f, n_prompt) : UINT32_MAX;
}

pleat_forecast_seq pleat_forecast_step(const pleat_forecast *f, const pleat_forecast_seq *before, uint32_t n_new,
                                       uint32_t flags) {
    const pleat__item_counts n = {.n_before = before->n_tokens,
                                  .n_new = n_new,
                                  .n_classed = before->n_classed,
                                  .n_prompt = before->n_prompt,
                                  .flags = flags};
    const pleat__item_end end = pleat__item_end_at(&n, &f->spec);
    pleat_forecast_seq q = *before;
    q.n_tokens += n_new;
    q.n_prompt = end.n_prompt;
    pleat__keep_forecast_step(f, &n, end, &q);
    return q;
}

uint64_t pleat_forecast_bytes(const pleat_forecast *f, uint64_t n_pages) {
    return n_pages * (f->traits.page_bytes + PLEAT__POOL_BYTES_PER_PAGE);
}
