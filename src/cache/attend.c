/* SPDX-License-Identifier: MIT
 *
 * attend.c: one layer of a step: new keys and values into pages, attention over pages.
 *
 * Two parallel loops at most.  The first, for prompt chunks only, writes each head's chunk into its pages and, as exact
 * f32 tiles, into the staging buffer.  The second computes attention by units (internal.h).  The unit of a single token
 * that holds the lane's last slot stores the token first; no other unit reads that page.
 */
#include <math.h>

#include "cache/internal.h"

/* One call's arguments, handed to the units. */
typedef struct layer_job {
    pleat_cache *cache;
    uint32_t layer;
    const float *q;
    const float *k; /* NULL in a read */
    const float *v;
    float *out;
    float *lse; /* natural logarithm; NULL but in some reads */
} layer_job;

/* ---- storing --------------------------------------------------------------------------------- */

static uint32_t lane_of(const pleat_cache *c, uint32_t layer, uint32_t head) {
    return layer * c->opt.n_kv_heads + head;
}

/* The first n_slots of a lane's high side. */
static pleat__kv_run lane_run(const pleat_cache *c, const pleat__table *table, uint32_t lane, uint32_t n_slots) {
    return (pleat__kv_run){.layout = &c->layout,
                           .base = c->pages,
                           .page_bytes = c->page_bytes,
                           .ids = pleat__table_cell(table, lane, PLEAT__HIGH, 0),
                           .step = 1,
                           .n_slots = n_slots};
}

/* Write n tokens of one head into consecutive slots of its lane. */
static void store_run(const pleat_cache *c, const pleat__kv_run *run, uint32_t slot, uint32_t n, const float *k,
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

static void store_item(const layer_job *job, const pleat__step_item *item, uint32_t head) {
    const pleat_cache *c = job->cache;
    const pleat__kv_run run =
        lane_run(c, &item->seq->table, lane_of(c, job->layer, head), item->n_before + item->n_new);
    const size_t at = ((size_t)item->row * c->opt.n_kv_heads + head) * c->opt.head_dim;
    store_run(c, &run, item->n_before, item->n_new, job->k + at, job->v + at);
}

/* The staged chunk of one head: f32 tiles in a row. */
static pleat__kv_run stage_run(const pleat_cache *c, const pleat__step_item *item, uint32_t head) {
    const uint64_t n_tiles = pleat__div_up_u32(item->n_new, PLEAT__TILE);
    const uint64_t first = (uint64_t)item->stage_tile * c->opt.n_kv_heads + n_tiles * head;
    return (pleat__kv_run){.layout = &c->stage_layout,
                           .base = c->stage + first * c->stage_layout.used_bytes,
                           .page_bytes = c->stage_layout.used_bytes,
                           .ids = c->stage_ids,
                           .step = 1,
                           .n_slots = item->n_new};
}

/* f32 pages hold the chunk exactly: they are their own staging buffer. */
static bool is_staged(const pleat_cache *c) { return c->layout.format.k_bits != 32; }

static void prompt_store_unit(void *ctx, uint32_t unit, uint32_t worker) {
    (void)worker;
    const layer_job *job = ctx;
    const pleat_cache *c = job->cache;
    const pleat__step_item *item = &c->items[c->prompt_items[unit / c->opt.n_kv_heads]];
    const uint32_t head = unit % c->opt.n_kv_heads;
    store_item(job, item, head);
    if (!is_staged(c)) return;
    const pleat__kv_run run = stage_run(c, item, head);
    const size_t at = ((size_t)item->row * c->opt.n_kv_heads + head) * c->opt.head_dim;
    store_run(c, &run, 0, item->n_new, job->k + at, job->v + at);
}

static void store_unit(void *ctx, uint32_t unit, uint32_t worker) {
    (void)worker;
    const layer_job *job = ctx;
    store_item(job, &job->cache->items[unit / job->cache->opt.n_kv_heads], unit % job->cache->opt.n_kv_heads);
}

/* ---- attention ------------------------------------------------------------------------------- */

static uint8_t *scratch_of(const pleat_cache *c, uint32_t worker) {
    return c->worker_scratch + worker * c->worker_scratch_bytes;
}

/* Index of a row's head in q, out and (without head_dim) lse. */
static size_t head_at(const pleat_cache *c, uint32_t row, uint32_t kv_head) {
    return (size_t)row * c->opt.n_q_heads + (size_t)kv_head * c->n_group;
}

static void prompt_unit(const layer_job *job, const pleat__step_item *item, uint32_t head, uint32_t block,
                        uint32_t worker) {
    const pleat_cache *c = job->cache;
    const uint32_t block_queries = pleat__cache_block_queries(c);
    const uint32_t first = (item->n_cuts - 1 - block) * block_queries; /* long blocks first: less waiting at the end */
    const uint32_t lane = lane_of(c, job->layer, head);
    const bool staged = is_staged(c);
    const pleat__kv_view past = {.high = lane_run(c, &item->seq->table, lane, item->n_before)};
    const pleat__kv_run self =
        staged ? stage_run(c, item, head) : lane_run(c, &item->seq->table, lane, item->n_before + item->n_new);
    const size_t row_floats = (size_t)c->opt.n_q_heads * c->opt.head_dim;
    const size_t at = head_at(c, item->row + first, head) * c->opt.head_dim;
    const pleat__attn_prompt args = {
        .past = staged && item->n_before > 0 ? &past : NULL,
        .self = &self,
        .self_seen = staged ? first : item->n_before + first,
        .n_queries = pleat__min_u32(block_queries, item->n_new - first),
        .n_group = c->n_group,
        .head_dim = c->opt.head_dim,
        .scale = c->scale,
        .q = job->q + at,
        .q_stride = row_floats,
        .out = job->out + at,
        .out_stride = row_floats,
        .quant = &c->quant,
        .scratch = scratch_of(c, worker),
    };
    c->attn.prompt(&args);
}

static void finish_head(const layer_job *job, const pleat__step_item *item, uint32_t head, const pleat__attn_acc *acc) {
    const pleat_cache *c = job->cache;
    const size_t at = head_at(c, item->row, head);
    float lse2[PLEAT__MAX_GROUP];
    pleat__attn_finish(acc, c->n_group, c->opt.head_dim, job->out + at * c->opt.head_dim, lse2);
    if (!job->lse) return;
    for (uint32_t g = 0; g < c->n_group; g++) job->lse[at + g] = lse2[g] * (float)M_LN2;
}

/* Accumulator of one split of one lane. */
static void *partial_of(const pleat_cache *c, const pleat__step_item *item, uint32_t head, uint32_t split) {
    const uint64_t lane = (uint64_t)(item - c->items) * c->opt.n_kv_heads + head;
    return c->partials + (lane * c->splits_cap + split) * c->acc_bytes;
}

/* Point at an accumulator that another unit filled. */
static pleat__attn_acc acc_at(const pleat_cache *c, void *memory) {
    pleat__attn_acc acc;
    pleat__attn_acc_view(&acc, memory, c->n_group, c->opt.head_dim);
    return acc;
}

/* The last unit of a split lane to finish merges all of it, in order. */
static void merge_splits(const layer_job *job, const pleat__step_item *item, uint32_t head) {
    pleat_cache *c = job->cache;
    _Atomic uint32_t *pending = &c->pending[(uint64_t)(item - c->items) * c->opt.n_kv_heads + head];
    if (atomic_fetch_sub_explicit(pending, 1, memory_order_acq_rel) != 1) return;
    pleat__attn_acc acc = acc_at(c, partial_of(c, item, head, 0));
    for (uint32_t split = 1; split < item->n_cuts; split++) {
        const pleat__attn_acc other = acc_at(c, partial_of(c, item, head, split));
        pleat__attn_merge(&acc, &other, c->n_group, c->opt.head_dim);
    }
    finish_head(job, item, head, &acc);
}

static void decode_unit(const layer_job *job, const pleat__step_item *item, uint32_t head, uint32_t split,
                        uint32_t worker) {
    const pleat_cache *c = job->cache;
    const uint32_t n_slots = item->n_before + item->n_new;
    const uint32_t split_slots = pleat__cache_split_slots(c, n_slots);
    const uint32_t from = pleat__min_u32(n_slots, split * split_slots);
    const uint32_t to = pleat__min_u32(n_slots, from + split_slots);
    if (to == n_slots && from < to && item->n_new > 0) store_item(job, item, head);

    uint8_t *scratch = scratch_of(c, worker);
    pleat__attn_query query;
    pleat__attn_query_init(&query, scratch, job->q + head_at(c, item->row, head) * c->opt.head_dim, c->n_group,
                           c->opt.head_dim, c->scale);
    const bool whole = item->n_cuts == 1;
    pleat__attn_acc acc;
    pleat__attn_acc_init(
        &acc, whole ? scratch + pleat__attn_query_bytes(c->n_group, c->opt.head_dim) : partial_of(c, item, head, split),
        c->n_group, c->opt.head_dim);
    const pleat__kv_run run = lane_run(c, &item->seq->table, lane_of(c, job->layer, head), n_slots);
    if (from < to) c->attn.decode(&query, &run, from, to, &acc, NULL, 0);
    if (whole)
        finish_head(job, item, head, &acc);
    else
        merge_splits(job, item, head);
}

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
    const layer_job *job = ctx;
    const pleat__step_item *item = item_of(job->cache, unit);
    const uint32_t local = unit - item->first_unit;
    const uint32_t head = local % job->cache->opt.n_kv_heads, cut = local / job->cache->opt.n_kv_heads;
    if (item->n_new > 1)
        prompt_unit(job, item, head, cut, worker);
    else
        decode_unit(job, item, head, cut, worker);
}

static void run_attention(layer_job *job) {
    pleat_cache *c = job->cache;
    for (uint32_t i = 0; i < c->n_items; i++)
        for (uint32_t head = 0; head < c->opt.n_kv_heads; head++)
            atomic_store_explicit(&c->pending[(uint64_t)i * c->opt.n_kv_heads + head], c->items[i].n_cuts,
                                  memory_order_relaxed);
    pleat_workers_run(c->opt.workers, c->n_units, attend_unit, job);
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
    if (!c->in_step) return PLEAT_E_STATE;
    if (!rows_in_range(c, q, k, v)) return PLEAT_E_RANGE;
    layer_job job = {.cache = c, .layer = layer, .q = q, .k = k, .v = v, .out = out};
    if (c->n_prompt_items > 0)
        pleat_workers_run(c->opt.workers, c->n_prompt_items * c->opt.n_kv_heads, prompt_store_unit, &job);
    run_attention(&job);
    c->stored[layer] = 1;
    return PLEAT_OK;
}

pleat_status pleat_cache_store(pleat_cache *c, uint32_t layer, const float *k, const float *v) {
    if (!c || !k || !v || layer >= c->opt.n_layers) return PLEAT_E_ARG;
    if (!c->in_step) return PLEAT_E_STATE;
    if (!rows_in_range(c, NULL, k, v)) return PLEAT_E_RANGE;
    layer_job job = {.cache = c, .layer = layer, .k = k, .v = v};
    pleat_workers_run(c->opt.workers, c->n_items * c->opt.n_kv_heads, store_unit, &job);
    c->stored[layer] = 1;
    return PLEAT_OK;
}

pleat_status pleat_cache_read(pleat_cache *c, uint32_t layer, const pleat_seq *seqs, uint32_t n_seqs, const float *q,
                              float *out, float *lse) {
    if (!c || !seqs || !q || !out || layer >= c->opt.n_layers || n_seqs == 0 || n_seqs > c->opt.max_seqs)
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
    layer_job job = {.cache = c, .layer = layer, .q = q, .out = out, .lse = lse};
    run_attention(&job);
    return PLEAT_OK;
}

pleat_status pleat_cache_export(const pleat_cache *c, pleat_seq handle, uint32_t layer, uint32_t kv_head,
                                uint32_t first, uint32_t n_tokens, float *k, float *v) {
    const pleat__sequence *seq = c ? pleat__cache_seq(c, handle) : NULL;
    if (!seq || layer >= c->opt.n_layers || kv_head >= c->opt.n_kv_heads || first > seq->n_tokens ||
        n_tokens > seq->n_tokens - first)
        return PLEAT_E_ARG;
    const uint32_t d = c->opt.head_dim;
    const pleat__kv_run run = lane_run(c, &seq->table, lane_of(c, layer, kv_head), seq->n_tokens);
    _Alignas(64) float tile[PLEAT__TILE * PLEAT__MAX_HEAD_DIM];
    for (uint32_t i = 0; i < n_tokens; i++) {
        const uint32_t slot = first + i, in_page = slot % run.layout->tokens, t = slot % PLEAT__TILE;
        const uint8_t *page = pleat__kv_page(&run, slot / run.layout->tokens);
        if (k) c->quant.load_k(run.layout, page, in_page / PLEAT__TILE, tile);
        for (uint32_t j = 0; k && j < d; j++) k[(size_t)i * d + j] = tile[j * PLEAT__TILE + t];
        if (v) c->quant.load_v(run.layout, page, in_page / PLEAT__TILE, tile);
        for (uint32_t j = 0; v && j < d; j++) v[(size_t)i * d + j] = tile[t * d + j];
    }
    return PLEAT_OK;
}
