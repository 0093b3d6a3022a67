/* SPDX-License-Identifier: MIT
 *
 * attend.c: the calls of one layer of a step: new keys and values into pages, attention over pages.
 *
 * Three parallel loops at most.  The first, for prompt chunks only, writes each head's chunk into its pages and, as exact
 * f32 tiles, into the staging buffer.  The second computes attention by units (prompt.c, decode.c).  The unit of a single
 * token whose split holds the new token's slot stores it first; no other unit reads that slot's tile.
 * The third, for prompt chunks under a policy, adds up the attention that each slot received: it needs the log-sum-exp
 * that the second found.
 */
#include <string.h>

#include "cache/internal.h"

/* ---- storing --------------------------------------------------------------------------------- */

pleat__kv_run pleat__cache_run(const pleat_cache *c, const pleat__table *table, uint32_t lane, pleat__side side,
                               uint32_t n_slots) {
    return (pleat__kv_run){.layout = &c->layouts[side],
                           .base = c->pages,
                           .page_bytes = c->page_bytes,
                           .ids = pleat__table_cell(table, lane, side, 0),
                           .step = pleat__table_step(table, lane, side),
                           .n_slots = n_slots};
}

void pleat__cache_store_run(const pleat_cache *c, const pleat__kv_run *run, uint32_t slot, uint32_t n, const float *k,
                            const float *v) {
    const size_t stride = (size_t)c->opt.n_kv_heads * c->opt.head_dim;
    const uint32_t page_tokens = run->layout->tokens;
    while (n > 0) {
        const uint32_t at = slot % page_tokens;
        const uint32_t n_here = pleat__min_u32(n, page_tokens - at);
        c->quant.store(run->layout, pleat__kv_page(run, slot / page_tokens), at, n_here, k, v, stride);
        slot += n_here;
        n -= n_here;
        k += n_here * stride;
        v += n_here * stride;
    }
}

/* Slots [slot, slot + n) hold the tokens from `position` on, which nobody has looked at yet. */
static void track(const pleat__kv_run *run, uint32_t slot, uint32_t n, uint32_t position) {
    const uint32_t page_tokens = run->layout->tokens;
    for (uint32_t i = 0; i < n; i++) {
        uint8_t *page = pleat__kv_page(run, (slot + i) / page_tokens);
        for (uint32_t h = 0; h < run->layout->n_scores; h++)
            pleat__head_scores(run->layout, page, h)[(slot + i) % page_tokens] = 0;
        pleat__positions(run->layout, page)[(slot + i) % page_tokens] = (int32_t)(position + i);
    }
}

void pleat__cache_store_item(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head) {
    const pleat_cache *c = job->cache;
    const uint32_t lane_idx = pleat__cache_lane_of(c, job->layer, head);
    const pleat__lane lane = pleat__table_lane(&item->seq->table, lane_idx);
    const bool fills_hole = item->n_new == 1 && lane.hole;
    const uint32_t slot = fills_hole ? lane.hole - 1 : lane.n_slots[PLEAT__HIGH];
    const pleat__kv_run run = pleat__cache_run(c, &item->seq->table, lane_idx, PLEAT__HIGH, slot + item->n_new);
    const size_t at = ((size_t)item->row * c->opt.n_kv_heads + head) * c->opt.head_dim;
    if (fills_hole)
        c->quant.replace(run.layout, pleat__kv_page(&run, slot / run.layout->tokens), slot % run.layout->tokens,
                         job->k + at, job->v + at);
    else
        pleat__cache_store_run(c, &run, slot, item->n_new, job->k + at, job->v + at);
    if (c->tracked) track(&run, slot, item->n_new, item->n_before);
}

static void store_unit(void *ctx, uint32_t unit, uint32_t worker) {
    const pleat__layer_job *job = ctx;
    const uint32_t n_heads = job->cache->opt.n_kv_heads, head = unit % n_heads;
    const pleat__step_item *item = &job->cache->items[unit / n_heads];
    if (item->n_new > 1 && pleat__cache_ring(job->cache, pleat__cache_lane_of(job->cache, job->layer, head)))
        pleat__cache_ring_unit(job, item, head, worker);
    else
        pleat__cache_store_item(job, item, head);
}

/* ---- attention ------------------------------------------------------------------------------- */

/* The item that unit belongs to: the last whose first unit is not after it. */
static const pleat__step_item *item_of(const pleat_cache *c, uint32_t unit) {
    uint32_t low = 0, high = c->n_items;
    while (high - low > 1) {
        const uint32_t mid = low + (high - low) / 2;
        if (c->items[mid].first_unit <= unit)
            low = mid;
        else
            high = mid;
    }
    return &c->items[low];
}

static void attend_unit(void *ctx, uint32_t unit, uint32_t worker) {
    const pleat__layer_job *job = ctx;
    const pleat__step_item *item = item_of(job->cache, unit);
    const uint32_t local = unit - item->first_unit;
    const uint32_t head = local % job->cache->opt.n_kv_heads, cut = local / job->cache->opt.n_kv_heads;
    if (item->n_new > 1)
        pleat__cache_prompt_unit(job, item, head, cut, worker);
    else
        pleat__cache_decode_unit(job, item, head, cut, worker);
}

static void run_attention(pleat__layer_job *job) {
    pleat_cache *c = job->cache;
    if (c->n_given_units > 0 && job->q == job->out) { /* queries are needed again when their results stand there */
        memcpy(c->q_kept, job->q, (size_t)c->n_rows * c->opt.n_q_heads * c->opt.head_dim * sizeof *job->q);
        job->q = c->q_kept;
    }
    pleat__cache_decode_begin(job);
    pleat_workers_run(c->opt.workers, c->n_units, attend_unit, job);
    if (c->n_given_units > 0 && job->k)
        pleat_workers_run(c->opt.workers, c->n_given_units, pleat__cache_given_unit, job);
}

/* Everything that a step brings is looked at once, before anything is written: one pass over rows that are in cache. */
static bool rows_in_range(const pleat_cache *c, const float *q, const float *k, const float *v) {
    const size_t n_q = (size_t)c->n_rows * c->opt.n_q_heads * c->opt.head_dim;
    const size_t n_kv = (size_t)c->n_rows * c->opt.n_kv_heads * c->opt.head_dim;
    return (!q || pleat__values_in_range(q, n_q)) && pleat__values_in_range(k, n_kv) && pleat__values_in_range(v, n_kv);
}

/* ---- the calls ------------------------------------------------------------------------------- */

pleat_status pleat_cache_attend(pleat_cache *c, uint32_t layer, const float *q, const float *k, const float *v,
                                float *out) {
    if (!c || !q || !k || !v || !out || layer >= c->opt.n_layers) return PLEAT_E_ARG;
    if (!c->in_step || (c->tracked && c->stored[layer])) return PLEAT_E_STATE;
    if (!rows_in_range(c, q, k, v)) return PLEAT_E_RANGE;
    pleat__layer_job job = {.cache = c, .layer = layer, .q = q, .k = k, .v = v, .out = out};
    if (c->n_prompt_items > 0)
        pleat_workers_run(c->opt.workers, c->n_prompt_items * c->opt.n_kv_heads, pleat__cache_prompt_store_unit, &job);
    run_attention(&job);
    c->stored[layer] = 1;
    return PLEAT_OK;
}

pleat_status pleat_cache_store(pleat_cache *c, uint32_t layer, const float *k, const float *v) {
    if (!c || !k || !v || layer >= c->opt.n_layers) return PLEAT_E_ARG;
    if (!c->in_step) return PLEAT_E_STATE;
    if (!rows_in_range(c, NULL, k, v)) return PLEAT_E_RANGE;
    pleat__layer_job job = {.cache = c, .layer = layer, .k = k, .v = v};
    pleat_workers_run(c->opt.workers, c->n_items * c->opt.n_kv_heads, store_unit, &job);
    c->stored[layer] = 1;
    return PLEAT_OK;
}

pleat_status pleat_cache_read(pleat_cache *c, uint32_t layer, const pleat_seq *seqs, uint32_t n_seqs, const float *q,
                              float *out, float *lse) {
    if (!c || !seqs || !q || !out || layer >= c->opt.n_layers || n_seqs == 0 || n_seqs > c->opt.max_items)
        return PLEAT_E_ARG;
    if (c->in_step) return PLEAT_E_STATE;
    if (!pleat__values_in_range(q, (size_t)n_seqs * c->opt.n_q_heads * c->opt.head_dim)) return PLEAT_E_RANGE;
    for (uint32_t i = 0; i < n_seqs; i++) {
        pleat__sequence *seq = pleat__cache_seq(c, seqs[i]);
        if (!seq) return PLEAT_E_ARG;
        if (seq->n_tokens == 0) return PLEAT_E_STATE;
        c->items[i] = (pleat__step_item){.seq = seq, .n_before = seq->n_tokens, .row = i};
    }
    c->n_items = n_seqs;
    pleat__cache_number_units(c);
    pleat__layer_job job = {.cache = c, .layer = layer, .q = q, .out = out, .lse = lse};
    run_attention(&job);
    return PLEAT_OK;
}
