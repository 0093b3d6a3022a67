/* SPDX-License-Identifier: MIT
 *
 * forecast.c: see pleat/forecast.h.  What a step plans and its end does (step.c, keep/), in numbers of slots alone:
 *
 *     counts     slots of a lane while the step is open, then classing, then slots when it has ended
 *     pages      whole pages of these, group of lanes by group of lanes
 *
 * tests/check/serving/test_serving_simulated.c holds it against an engine.
 */
#include <math.h>
#include <stdlib.h>

#include "cache/create.h"
#include "cache/keep/keep.h"
#include "core/error.h"
#include "core/memory.h"
#include "pleat/forecast.h"
#include "policy/evict.h"

/* ---- make ------------------------------------------------------------------------------------------ */

/* Layers with a window hold its newest tokens; one size is all that a forecast knows. */
static pleat_status count_rings(const pleat_cache_options *opt, pleat_forecast *f, pleat_error *err) {
    for (uint32_t layer = 0; opt->windows && layer < opt->n_layers; layer++) {
        const uint32_t window = opt->windows[layer];
        if (window == 0 || window >= opt->max_tokens) continue;
        PLEAT_FAIL_IF(f->ring_slots > 0 && f->ring_slots != window, err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                      "forecast: layers with windows of %u and of %u tokens", f->ring_slots, window);
        f->ring_slots = window;
        f->n_ring_lanes += opt->n_kv_heads;
    }
    return PLEAT_OK;
}

pleat_status pleat_forecast_for(const pleat_cache_options *opt, pleat_forecast *out, pleat_error *err) {
    pleat_cache c = {0};
    PLEAT_FAIL_IF(!opt || !out, err, PLEAT_E_ARG, PLEAT_NOWHERE, "forecast: no options, or no place for the result");
    PLEAT_TRY(pleat__cache_derive(&c, opt, err));
    pleat_forecast f = {
        .size_bytes = sizeof f, .traits = c.traits, .spec = opt->spec, .n_kv_heads = opt->n_kv_heads, .fraction = 1};
    if (c.keep->forecast) c.keep->forecast(&c, &f);
    f.is_measured = f.kind == PLEAT_LANES_WHOLE || f.kind == PLEAT_LANES_BUDGET;
    PLEAT_FAIL_IF(f.kind == PLEAT_LANES_BUDGET && opt->spec.reclaim == PLEAT_RECLAIM_BLOCK, err, PLEAT_E_UNSUPPORTED,
                  PLEAT_NOWHERE, "forecast: with reclaim=block it depends on the text which pages become empty");
    PLEAT_TRY(count_rings(opt, &f, err));
    *out = f;
    return PLEAT_OK;
}

pleat_forecast pleat_forecast_of_fraction(uint32_t n_lanes, uint32_t page_tokens, uint64_t page_bytes,
                                          double fraction) {
    return (pleat_forecast){.size_bytes = sizeof(pleat_forecast),
                            .traits = {.size_bytes = sizeof(pleat_cache_traits),
                                       .page_bytes = page_bytes,
                                       .high_page_tokens = page_tokens,
                                       .low_page_tokens = page_tokens,
                                       .n_lanes = n_lanes},
                            .fraction = fraction,
                            .is_measured = 1};
}

/* ---- samples --------------------------------------------------------------------------------------- */

/* The first lane of a group. */
static uint32_t group_begin(uint32_t n_lanes, uint32_t group) {
    return (uint32_t)((uint64_t)n_lanes * group / PLEAT_FORECAST_GROUPS);
}

static int by_value(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Of each group the mean; a group without a lane has the one before's. */
static void group_means(float *of_lanes, uint32_t n_lanes, float *out) {
    qsort(of_lanes, n_lanes, sizeof *of_lanes, by_value);
    float last = of_lanes[0];
    for (uint32_t g = 0; g < PLEAT_FORECAST_GROUPS; g++) {
        const uint32_t from = group_begin(n_lanes, g), to = group_begin(n_lanes, g + 1);
        double sum = 0;
        for (uint32_t i = from; i < to; i++) sum += (double)of_lanes[i];
        if (to > from) last = (float)(sum / (to - from));
        out[g] = last;
    }
}

/* High tokens and low slots of each lane for a classed token of the sequence. */
static void count_lanes(const pleat_forecast *f, const pleat__sequence *seq, uint32_t n_lanes, float *high,
                        float *low) {
    const uint32_t n_warm = seq->n_tokens - seq->n_classed;
    for (uint32_t i = 0; i < n_lanes; i++) {
        const pleat__lane lane = pleat__table_lane(&seq->table, i);
        const uint32_t n_live = pleat__lane_live_high(&lane), n_high = n_live > n_warm ? n_live - n_warm : 0;
        high[i] = f->kind == PLEAT_LANES_LEVELS ? (float)n_high / (float)seq->n_classed : 0;
        low[i] = (float)lane.n_slots[PLEAT__LOW] / (float)seq->n_classed;
    }
}

pleat_status pleat_forecast_measure(pleat_forecast *f, const pleat_cache *c, pleat_seq handle) {
    const pleat__sequence *seq = c ? pleat__cache_seq(c, handle) : NULL;
    if (!f || !seq || c->step.is_open) return PLEAT_E_ARG;
    if (f->kind == PLEAT_LANES_WHOLE || f->kind == PLEAT_LANES_BUDGET) return PLEAT_OK;
    if (f->n_samples == PLEAT_FORECAST_SAMPLES) return PLEAT_E_LIMIT;
    f->is_measured = 1;
    if (seq->n_classed == 0) return PLEAT_OK; /* so short: nothing to be seen */
    float *values = pleat__alloc(&c->al, 2 * (size_t)c->n_lanes, sizeof *values);
    if (!values) return PLEAT_E_MEMORY;
    pleat_forecast_sample *sample = &f->samples[f->n_samples++];
    sample->n_classed = seq->n_classed;
    count_lanes(f, seq, c->n_lanes, values, values + c->n_lanes);
    group_means(values, c->n_lanes, sample->high);
    group_means(values + c->n_lanes, c->n_lanes, sample->low);
    /* Who keeps more high has less low. */
    for (uint32_t g = 0; f->kind == PLEAT_LANES_LEVELS && g < PLEAT_FORECAST_GROUPS / 2; g++) {
        const float other = sample->low[g];
        sample->low[g] = sample->low[PLEAT_FORECAST_GROUPS - 1 - g];
        sample->low[PLEAT_FORECAST_GROUPS - 1 - g] = other;
    }
    pleat__free(&c->al, values, 2 * (size_t)c->n_lanes, sizeof *values);
    return PLEAT_OK;
}

/* A group's shares for so many classed tokens, between the samples nearest to them; without any all are high. */
static void shares_at(const pleat_forecast *f, uint32_t group, uint32_t n_classed, double *high, double *low) {
    const pleat_forecast_sample *s = f->samples;
    uint32_t i = 0;
    *high = f->kind == PLEAT_LANES_LEVELS;
    *low = f->kind == PLEAT_LANES_BLOCKS ? (double)f->low_slots / f->traits.high_page_tokens : 0;
    if (f->n_samples == 0) return;
    while (i + 1 < f->n_samples && s[i + 1].n_classed <= n_classed) i++;
    const uint32_t k = i + 1 < f->n_samples && n_classed > s[i].n_classed ? i + 1 : i;
    const double span = s[k].n_classed - (double)s[i].n_classed;
    const double t = span > 0 ? (n_classed - (double)s[i].n_classed) / span : 0;
    *high = (1 - t) * (double)s[i].high[group] + t * (double)s[k].high[group];
    *low = (1 - t) * (double)s[i].low[group] + t * (double)s[k].low[group];
}

/* ---- pages ----------------------------------------------------------------------------------------- */

static uint64_t pages_of(uint64_t n_slots, uint32_t page_tokens) { return (n_slots + page_tokens - 1) / page_tokens; }

/* Lanes with a slot for each token, or a fraction, or those of a window. */
static void count_whole(const pleat_forecast *f, pleat_forecast_seq *q) {
    const uint32_t tokens = f->traits.high_page_tokens, n_ring = f->n_ring_lanes, n_others = f->traits.n_lanes - n_ring;
    const uint64_t n_slots = (uint64_t)ceil(q->n_tokens * f->fraction);
    const uint64_t n_in_ring = n_slots < f->ring_slots ? n_slots : f->ring_slots;
    q->n_pages = q->high_pages = n_others * pages_of(n_slots, tokens) + n_ring * pages_of(n_in_ring, tokens);
    q->final_pages = q->still_pages = n_others * (n_slots / tokens);
    q->full_pages = ((double)n_others * (double)n_slots + (double)n_ring * (double)n_in_ring) / tokens;
    q->step_pages = q->n_pages;
}

/* Lanes of n_slots each; where a layer's budget moves between them, the last page is half full on average. */
static uint64_t budget_pages(const pleat_forecast *f, uint32_t n_slots, bool is_spread) {
    const uint32_t tokens = f->traits.high_page_tokens;
    if (!is_spread) return f->traits.n_lanes * pages_of(n_slots, tokens);
    return (uint64_t)(f->traits.n_lanes * ((double)n_slots / tokens + 0.5));
}

/* A lane's high and low slots, all groups of lanes in turn: pages, and those of full slots. */
static void count_sides(const pleat_forecast *f, uint32_t n_warm, pleat_forecast_seq *q) {
    const uint32_t tokens = f->traits.high_page_tokens, low_tokens = f->low_slots ? f->low_slots : tokens;
    q->n_pages = q->high_pages = q->final_pages = 0;
    q->full_pages = 0;
    for (uint32_t g = 0; g < PLEAT_FORECAST_GROUPS; g++) {
        const uint32_t n_lanes = group_begin(f->traits.n_lanes, g + 1) - group_begin(f->traits.n_lanes, g);
        double high, low;
        shares_at(f, g, q->n_classed, &high, &low);
        const uint64_t n_old = (uint64_t)(high * q->n_classed + 0.5), n_low = (uint64_t)(low * q->n_classed + 0.5);
        const uint64_t n_high = n_warm + n_old;
        q->high_pages += n_lanes * pages_of(n_high, tokens);
        q->n_pages += n_lanes * pages_of(n_low, low_tokens);
        q->final_pages += n_lanes * (n_low / low_tokens + n_old / tokens);
        q->full_pages += n_lanes * ((double)n_high / tokens + (double)n_low / low_tokens);
    }
    q->n_pages += q->high_pages;
}

/* ---- a step ---------------------------------------------------------------------------------------- */

typedef enum classing { CLASSING_NOT, CLASSING_ONE, CLASSING_MANY } classing;

/* What a policy does at the step's end: scored_plan(). */
static classing class_tokens(const pleat_forecast *f, uint32_t n_new, uint32_t flags, pleat_forecast_seq *q) {
    const uint32_t window = f->spec.window;
    if ((flags & PLEAT_ITEM_MORE) || q->n_tokens <= window + q->n_classed) return CLASSING_NOT;
    const uint32_t n_leaving = q->n_tokens - window - q->n_classed;
    q->n_classed = q->n_tokens - window;
    return n_leaving == 1 && n_new == 1 ? CLASSING_ONE : CLASSING_MANY;
}

static void step_budget(const pleat_forecast *f, uint32_t n_new, uint32_t flags, pleat_forecast_seq *q) {
    const bool is_packed = f->traits.is_packed, is_spread = f->has_shares && q->n_live < q->n_tokens - n_new;
    q->n_live += n_new;
    q->n_slots += n_new - (n_new == 1 ? q->has_hole : 0);
    q->has_hole = n_new == 1 ? 0 : q->has_hole;
    q->step_pages = budget_pages(f, q->n_slots, is_spread);
    const classing how = class_tokens(f, n_new, flags, q);
    const uint32_t budget = pleat__evict_budget(&f->spec, q->n_prompt, f->byte_tokens);
    const bool drops = q->n_live > budget && (how == CLASSING_MANY || (how == CLASSING_ONE && f->evicts_always));
    if (drops) q->n_live = how == CLASSING_MANY ? budget : q->n_live - 1;
    if (drops && f->traits.takes_fresh) q->step_pages += budget_pages(f, q->n_live, is_spread);
    if (drops && is_packed) {
        q->has_hole = how == CLASSING_ONE && !f->traits.takes_fresh;
        q->n_slots = q->n_live + q->has_hole;
    }
    q->n_pages = q->high_pages = budget_pages(f, q->n_slots, f->has_shares && q->n_live < q->n_tokens);
    q->full_pages = (double)f->traits.n_lanes * q->n_live / f->traits.high_page_tokens;
}

static void step_levels(const pleat_forecast *f, uint32_t n_new, uint32_t flags, pleat_forecast_seq *q) {
    pleat_forecast_seq open = *q; /* the new tokens are stored, and none is classed */
    const uint32_t n_warm = q->n_tokens - q->n_classed, n_lanes = f->traits.n_lanes;
    count_sides(f, n_warm + (n_new > 1 ? q->has_hole : 0), &open);
    q->step_pages = open.n_pages;
    if (n_new == 1) q->has_hole = 0;
    const classing how = class_tokens(f, n_new, flags, q);
    if (how != CLASSING_NOT) q->has_hole = how == CLASSING_ONE;
    count_sides(f, q->n_tokens - q->n_classed + q->has_hole, q);
    if (q->step_pages < q->n_pages) q->step_pages = q->n_pages;
    if (f->low_slots && how == CLASSING_MANY) q->step_pages += 2 * n_lanes;
    if ((flags & (PLEAT_ITEM_SEAL | PLEAT_ITEM_SEAL_ALL)) && q->sealed_pages < q->final_pages)
        q->sealed_pages = q->final_pages;
    q->final_pages = q->still_pages = q->sealed_pages < q->n_pages ? q->sealed_pages : q->n_pages;
}

/* Tokens that become blocks: count_due() of keep/blocks.c. */
static uint32_t count_due(const pleat_forecast *f, uint32_t n_warm) {
    const uint32_t buffer = f->spec.buffer, n_block = f->block_tokens;
    if (n_warm <= buffer) return 0;
    return pleat__min_u32(pleat__div_up_u32(n_warm - buffer, n_block), n_warm / n_block) * n_block;
}

static void step_blocks(const pleat_forecast *f, uint32_t flags, pleat_forecast_seq *q) {
    pleat_forecast_seq open = *q;
    count_sides(f, q->n_tokens - q->n_classed, &open);
    if (!(flags & PLEAT_ITEM_MORE)) q->n_classed += count_due(f, q->n_tokens - q->n_classed);
    const uint32_t n_warm = q->n_tokens - q->n_classed;
    count_sides(f, n_warm, q);
    q->step_pages = open.n_pages;
    q->still_pages = q->final_pages + f->traits.n_lanes * (uint64_t)(n_warm / f->traits.high_page_tokens);
}

uint32_t pleat_forecast_max_kept(const pleat_forecast *f, uint32_t n_prompt) {
    if (f->kind != PLEAT_LANES_BUDGET) return UINT32_MAX;
    return pleat__evict_max_budget(&f->spec, f->n_kv_heads, n_prompt, f->byte_tokens);
}

pleat_forecast_seq pleat_forecast_step(const pleat_forecast *f, const pleat_forecast_seq *before, uint32_t n_new,
                                       uint32_t flags) {
    pleat_forecast_seq q = *before;
    q.n_tokens += n_new;
    const bool ends_prompt =
        !(flags & PLEAT_ITEM_MORE) && (n_new > 1 || q.n_prompt == 0 || q.n_tokens > f->spec.window + q.n_classed + 1);
    if (ends_prompt) q.n_prompt = q.n_tokens;
    switch (f->kind) {
        case PLEAT_LANES_BUDGET: step_budget(f, n_new, flags, &q); break;
        case PLEAT_LANES_LEVELS: step_levels(f, n_new, flags, &q); break;
        case PLEAT_LANES_BLOCKS: step_blocks(f, flags, &q); break;
        case PLEAT_LANES_WHOLE:
        default: count_whole(f, &q); break;
    }
    return q;
}
