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
#include "quant/rotate.h"
#include "stats/stats.h"

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

/* ---- rotated formats -------------------------------------------------------------------------- */

/* Rows of a unit: what one takes is long against handing it out. */
#define ROTATED_ROWS 16u

/* Vectors of a call and where they are rotated to: what is NULL is left out. */
typedef struct rotation {
    const pleat_cache *cache;
    const float *from[3];
    float *to[3];
    uint32_t n_heads[3];
    uint32_t n_rows;
    bool is_back;
} rotation;

static void rotate_unit(void *ctx, uint32_t unit, uint32_t worker) {
    const rotation *r = ctx;
    const uint32_t first = unit * ROTATED_ROWS, n = pleat__min_u32(ROTATED_ROWS, r->n_rows - first);
    (void)worker;
    for (uint32_t i = 0; i < 3; i++) {
        const size_t at = (size_t)first * r->n_heads[i] * r->cache->opt.head_dim;
        if (!r->from[i]) continue;
        if (r->is_back)
            pleat__rotate_back(r->from[i] + at, n * r->n_heads[i], r->cache->opt.head_dim, r->to[i] + at);
        else
            pleat__rotate(r->from[i] + at, n * r->n_heads[i], r->cache->opt.head_dim, r->to[i] + at);
    }
}

static void rotate_all(rotation *r) {
    pleat_workers_run(r->cache->opt.workers, pleat__div_up_u32(r->n_rows, ROTATED_ROWS), rotate_unit, r);
}

/* Put rotated copies in place of what the call was given. */
static void rotate_job(pleat__layer_job *job, uint32_t n_rows) {
    const pleat_cache *c = job->cache;
    const uint32_t n_kv = c->opt.n_kv_heads;
    if (!pleat__cache_is_rotated(c)) return;
    rotation r = {.cache = c,
                  .from = {job->q, job->k, job->v},
                  .to = {c->work.rotated_q, c->work.rotated_k, c->work.rotated_v},
                  .n_heads = {c->opt.n_q_heads, n_kv, n_kv},
                  .n_rows = n_rows};
    rotate_all(&r);
    job->q = job->q ? c->work.rotated_q : NULL;
    job->k = job->k ? c->work.rotated_k : NULL;
    job->v = job->v ? c->work.rotated_v : NULL;
}

/* The results are values: they are turned back. */
static void rotate_out(const pleat__layer_job *job, uint32_t n_rows) {
    if (!pleat__cache_is_rotated(job->cache)) return;
    rotation r = {.cache = job->cache,
                  .from = {job->out},
                  .to = {job->out},
                  .n_heads = {job->cache->opt.n_q_heads},
                  .n_rows = n_rows,
                  .is_back = true};
    rotate_all(&r);
}

/* ---- the calls ------------------------------------------------------------------------------- */

/* Everything that a step brings is looked at once, before anything is written: one pass over rows that are in cache. */
static bool rows_in_range(const pleat_cache *c, const float *q, const float *k, const float *v) {
    const size_t n_q = (size_t)c->step.n_rows * c->opt.n_q_heads * c->opt.head_dim;
    const size_t n_kv = (size_t)c->step.n_rows * c->opt.n_kv_heads * c->opt.head_dim;
    return (!q || pleat__values_in_range(q, n_q)) && pleat__values_in_range(k, n_kv) && pleat__values_in_range(v, n_kv);
}

/* Chunks are what statistics are made of. */
static void show_collector(const pleat_cache *c, uint32_t layer, const float *q, const float *k, const float *v) {
    const size_t kv_row = (size_t)c->opt.n_kv_heads * c->opt.head_dim, q_row = kv_row * c->n_group;
    for (uint32_t i = 0; i < c->step.n_items; i++) {
        const pleat__step_item *item = &c->step.items[i];
        if (item->n_new < 2) continue;
        pleat__collector_see(c->opt.collector, layer, item->n_before, item->n_new, q + item->row * q_row,
                             k + item->row * kv_row, v + item->row * kv_row);
    }
}

/* ---- the calls ------------------------------------------------------------------------------- */

pleat_status pleat_cache_attend(pleat_cache *c, uint32_t layer, const float *q, const float *k, const float *v,
                                float *out) {
    if (!c || !q || !k || !v || !out || layer >= c->opt.n_layers) return PLEAT_E_ARG;
    const bool once = c->traits.has_policy || (c->step.n_prompt_items > 0 && pleat__cache_window(c, layer) > 0);
    if (!c->step.is_open || (once && c->step.stored[layer])) return PLEAT_E_STATE;
    if (!rows_in_range(c, q, k, v)) return PLEAT_E_RANGE;
    if (c->opt.collector) show_collector(c, layer, q, k, v);
    pleat__layer_job job = {.cache = c, .layer = layer, .q = q, .k = k, .v = v, .out = out};
    const uint32_t n_prompt_units = c->step.n_prompt_items * c->opt.n_kv_heads;
    if (pleat__keep_at(c, layer)->look) pleat__keep_at(c, layer)->look(&job);
    rotate_job(&job, c->step.n_rows);
    if (n_prompt_units > 0) pleat_workers_run(c->opt.workers, n_prompt_units, pleat__cache_prompt_store_unit, &job);
    run_attention(&job);
    rotate_out(&job, c->step.n_rows);
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
    rotate_job(&job, c->step.n_rows);
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
    rotate_job(&job, n_seqs);
    run_attention(&job);
    rotate_out(&job, n_seqs);
    return PLEAT_OK;
}
