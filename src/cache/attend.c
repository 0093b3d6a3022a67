/* SPDX-License-Identifier: MIT
 *
 * attend.c: the calls of one layer of a step: new keys and values into pages, attention over pages.
 *
 * Three parallel loops at most.  The first, for prompt chunks only, writes each head's chunk into its pages (but for
 * rings) and, as exact f32 tiles, into the staging buffer.  The second computes attention by units (prompt.c,
 * decode.c).  The unit of a single token whose split holds the new token's slot stores it first; no other unit reads
 * that slot's tile.  The third, for prompt chunks under a policy, adds up the attention that each slot received: what
 * strands of the second have left, or by the log-sum-exp that it found.  Or, in a layer with a window, it puts the chunks
 * into their rings.
 */
#include <string.h>

#include "cache/decode.h"
#include "cache/keep/keep.h"
#include "cache/prompt.h"

/* ---- storing --------------------------------------------------------------------------------- */

static void store_unit(void *ctx, uint32_t unit, uint32_t worker) {
    const pleat__layer_job *job = ctx;
    const pleat_cache *c = job->cache;
    const pleat__keep *keep = pleat__keep_at(c, job->layer);
    const uint32_t head = unit % c->opt.n_kv_heads;
    const pleat__step_item *item = &c->step.items[unit / c->opt.n_kv_heads];
    (void)worker;
    if (item->n_new > 1 && keep->put_chunk)
        keep->put_chunk(job, item, head);
    else
        pleat__cache_store_item(job, item, head);
}

/* ---- attention ------------------------------------------------------------------------------- */

/* The item that unit belongs to: the last whose first unit is not after it. */
static const pleat__step_item *item_of(const pleat_cache *c, uint32_t unit) {
    uint32_t low = 0, high = c->step.n_items;
    while (high - low > 1) {
        const uint32_t mid = low + (high - low) / 2;
        if (c->step.items[mid].units.first <= unit)
            low = mid;
        else
            high = mid;
    }
    return &c->step.items[low];
}

static void attend_unit(void *ctx, uint32_t unit, uint32_t worker) {
    const pleat__layer_job *job = ctx;
    const pleat__step_item *item = item_of(job->cache, unit);
    const uint32_t local = unit - item->units.first;
    const uint32_t head = local % job->cache->opt.n_kv_heads, part = local / job->cache->opt.n_kv_heads;
    if (item->n_new > 1)
        pleat__cache_prompt_unit(job, item, head, part, worker);
    else
        pleat__cache_decode_unit(job, item, head, part, worker);
}

static void run_attention(pleat__layer_job *job) {
    pleat_cache *c = job->cache;
    const uint32_t n_received_units = pleat__cache_window(c, job->layer) ? 0 : c->step.n_received_units;
    if (n_received_units > 0 && c->step.walks_twice &&
        job->q == job->out) { /* queries are needed again when their results stand there */
        memcpy(c->work.q_kept, job->q, (size_t)c->step.n_rows * c->opt.n_q_heads * c->opt.head_dim * sizeof *job->q);
        job->q = c->work.q_kept;
    }
    pleat__cache_decode_begin(job);
    pleat_workers_run(c->opt.workers, c->step.n_units, attend_unit, job);
    if (n_received_units > 0 && job->k)
        pleat_workers_run(c->opt.workers, n_received_units, pleat__cache_received_unit, job);
}

/* Everything that a step brings is looked at once, before anything is written: one pass over rows that are in cache. */
static bool rows_in_range(const pleat_cache *c, const float *q, const float *k, const float *v) {
    const size_t n_q = (size_t)c->step.n_rows * c->opt.n_q_heads * c->opt.head_dim;
    const size_t n_kv = (size_t)c->step.n_rows * c->opt.n_kv_heads * c->opt.head_dim;
    return (!q || pleat__values_in_range(q, n_q)) && pleat__values_in_range(k, n_kv) && pleat__values_in_range(v, n_kv);
}

/* ---- the calls ------------------------------------------------------------------------------- */

pleat_status pleat_cache_attend(pleat_cache *c, uint32_t layer, const float *q, const float *k, const float *v,
                                float *out) {
    if (!c || !q || !k || !v || !out || layer >= c->opt.n_layers) return PLEAT_E_ARG;
    const bool once = c->traits.has_policy || (c->step.n_prompt_items > 0 && pleat__cache_window(c, layer) > 0);
    if (!c->step.is_open || (once && c->step.stored[layer])) return PLEAT_E_STATE;
    if (!rows_in_range(c, q, k, v)) return PLEAT_E_RANGE;
    pleat__layer_job job = {.cache = c, .layer = layer, .q = q, .k = k, .v = v, .out = out};
    const uint32_t n_prompt_units = c->step.n_prompt_items * c->opt.n_kv_heads;
    if (n_prompt_units > 0) pleat_workers_run(c->opt.workers, n_prompt_units, pleat__cache_prompt_store_unit, &job);
    run_attention(&job);
    if (n_prompt_units > 0 && pleat__keep_at(c, layer)->put_chunk)
        pleat_workers_run(c->opt.workers, n_prompt_units, pleat__cache_prompt_put_unit, &job);
    c->step.stored[layer] = 1;
    return PLEAT_OK;
}

pleat_status pleat_cache_store(pleat_cache *c, uint32_t layer, const float *k, const float *v) {
    if (!c || !k || !v || layer >= c->opt.n_layers) return PLEAT_E_ARG;
    if (!c->step.is_open) return PLEAT_E_STATE;
    if (!rows_in_range(c, NULL, k, v)) return PLEAT_E_RANGE;
    pleat__layer_job job = {.cache = c, .layer = layer, .k = k, .v = v};
    pleat_workers_run(c->opt.workers, c->step.n_items * c->opt.n_kv_heads, store_unit, &job);
    c->step.stored[layer] = 1;
    return PLEAT_OK;
}

pleat_status pleat_cache_read(pleat_cache *c, uint32_t layer, const pleat_seq *seqs, uint32_t n_seqs, const float *q,
                              float *out, float *lse) {
    if (!c || !seqs || !q || !out || layer >= c->opt.n_layers || n_seqs == 0 || n_seqs > c->opt.max_items)
        return PLEAT_E_ARG;
    if (c->step.is_open) return PLEAT_E_STATE;
    if (!pleat__values_in_range(q, (size_t)n_seqs * c->opt.n_q_heads * c->opt.head_dim)) return PLEAT_E_RANGE;
    for (uint32_t i = 0; i < n_seqs; i++) {
        pleat__sequence *seq = pleat__cache_seq(c, seqs[i]);
        if (!seq) return PLEAT_E_ARG;
        if (seq->n_tokens == 0) return PLEAT_E_STATE;
        c->step.items[i] = (pleat__step_item){.seq = seq, .n_before = seq->n_tokens, .row = i};
    }
    c->step.n_items = n_seqs;
    pleat__cache_number_units(c);
    pleat__layer_job job = {.cache = c, .layer = layer, .q = q, .out = out, .lse = lse};
    run_attention(&job);
    return PLEAT_OK;
}
