/* SPDX-License-Identifier: MIT
 *
 * prompt.c: the units of prompt chunks: staging, attention, and the attention that slots received.
 *
 * A chunk sees itself as it is, in f32 tiles, and earlier tokens as stored.  Its own slots in the pages come after the
 * n_slots of the lane, which still are those before the step.  In a ring it takes its slots when its queries have been
 * answered (keep/ring.c).
 *
 * What slots receive is found in the walk of attention itself where an item's tokens are few enough to keep their
 * weights (PLEAT__SCORED_TOKENS).  A work unit is then a *strand*: consecutive blocks of queries, 16 strands at most.
 * Each adds up what it gives in an array of its own, and the units of ranges add the strands' in their order.  Other
 * items' ranges walk their keys a second time.
 */
#include "cache/prompt.h"

#include <math.h>
#include <string.h>

#include "cache/keep/keep.h"
#include "policy/dropkv.h"

/* The staged chunk of one head: f32 tiles in a row. */
static pleat__kv_run stage_run(const pleat_cache *c, const pleat__step_item *item, uint32_t head) {
    const uint64_t n_tiles = pleat__div_up_u32(item->n_new, PLEAT__TILE);
    const uint64_t first = (uint64_t)item->units.stage_tile * c->opt.n_kv_heads + n_tiles * head;
    return (pleat__kv_run){.layout = &c->work.stage_layout,
                           .base = c->work.stage + first * c->work.stage_layout.used_bytes,
                           .page_bytes = c->work.stage_layout.used_bytes,
                           .ids = c->work.stage_ids,
                           .step = 1,
                           .n_slots = item->n_new};
}

/* f32 pages hold the chunk exactly: they are their own staging buffer, unless slots may be dead or cold tokens are in
 * blocks. */
static bool is_staged(const pleat_cache *c) {
    return c->layouts[PLEAT__HIGH].tracked || c->opt.spec.high.k_bits != 32 || c->keep->carve_loader;
}

/* One side of the lane as it was before the step. */
static pleat__kv_run past_run(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head,
                              pleat__side side) {
    const uint32_t lane = pleat__cache_lane_of(job->cache, job->layer, head);
    return pleat__cache_side(job->cache, &item->seq->table, lane, side);
}

void pleat__cache_prompt_store_unit(void *ctx, uint32_t unit, uint32_t worker) {
    (void)worker;
    const pleat__layer_job *job = ctx;
    const pleat_cache *c = job->cache;
    const pleat__step_item *item = &c->step.items[c->step.prompt_items[unit / c->opt.n_kv_heads]];
    const uint32_t head = unit % c->opt.n_kv_heads;
    const bool is_late = pleat__keep_at(c, job->layer)->put_chunk != NULL;
    if (!is_late) pleat__cache_store_item(job, item, head);
    if (!is_late && !is_staged(c)) return;
    const pleat__kv_run run = stage_run(c, item, head);
    const size_t at = ((size_t)item->row * c->opt.n_kv_heads + head) * c->opt.head_dim;
    pleat__cache_store_run(c, &run, 0, item->n_new, job->k + at, job->v + at);
}

/* Query positions in a block of a prompt. */
static uint32_t queries_of_block(const pleat_cache *cache) { return PLEAT__PROMPT_ROWS / cache->n_group; }

bool pleat__cache_counts(const pleat_cache *c, const pleat__step_item *item) {
    return c->counting.of_prompts && (item->is_replay || !c->counting.is_peak);
}

/* ---- strands ------------------------------------------------------------------------------------- */

bool pleat__cache_is_scored_at_once(const pleat_cache *c, const pleat__step_item *item) {
    return pleat__cache_keeps_weights(c) && item->n_new >= PLEAT__STRAND_QUERIES &&
           (uint64_t)item->n_before + item->n_new <= PLEAT__SCORED_TOKENS;
}

static uint32_t blocks_of_part(const pleat_cache *c, const pleat__step_item *item) {
    if (!pleat__cache_is_scored_at_once(c, item)) return 1;
    const uint32_t block_queries = queries_of_block(c);
    return pleat__max_u32(pleat__div_up_u32(PLEAT__STRAND_QUERIES, block_queries),
                          pleat__div_up_u32(item->n_new, block_queries * PLEAT__ITEM_STRANDS));
}

uint32_t pleat__cache_prompt_parts(const pleat_cache *c, const pleat__step_item *item) {
    return pleat__div_up_u32(item->n_new, queries_of_block(c) * blocks_of_part(c, item));
}

/* What strand `strand` of an item and head gives to the slots of high, low and self, each filled up to 64. */
static float *strand_at(const pleat_cache *c, const pleat__step_item *item, uint32_t head, uint32_t strand) {
    const uint64_t nth = (uint64_t)(item->units.first_strand + strand) * c->opt.n_kv_heads + head;
    return c->work.strands + nth * pleat__cache_strand_slots(c);
}

/* What a unit works in. */
typedef struct prompt_scratch {
    void *attn;
    void *weights;              /* where they are kept */
    float *rows, *rows_lse2;    /* [PLEAT__MAX_GROUP][head_dim] queries, and theirs, where peaks are counted */
    pleat__block_loader loader; /* empty where no lane has blocks */
} prompt_scratch;

static void carve_scratch(const pleat_cache *c, prompt_scratch *s, pleat__arena *arena) {
    *s = (prompt_scratch){.attn = pleat__arena_take(arena, pleat__attn_prompt_scratch_bytes(c->opt.head_dim), 1)};
    s->weights = pleat__arena_take(arena, pleat__attn_prompt_kept_bytes(pleat__cache_strand_slots(c)), 1);
    if (c->keep->carve_loader) c->keep->carve_loader(c, &s->loader, arena);
    if (!c->counting.is_peak) return;
    s->rows = pleat__arena_take(arena, (uint64_t)PLEAT__MAX_GROUP * c->opt.head_dim, sizeof *s->rows);
    s->rows_lse2 = pleat__arena_take(arena, PLEAT__MAX_GROUP, sizeof *s->rows_lse2);
}

uint64_t pleat__cache_prompt_bytes(const pleat_cache *c) {
    prompt_scratch s;
    pleat__arena arena = {0};
    carve_scratch(c, &s, &arena);
    return arena.used_bytes;
}

/* What the item's queries of a KV head from `first` on attend with; what they see and the scratch are not in it. */
static pleat__attn_prompt prompt_args(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head,
                                      uint32_t first) {
    const pleat_cache *c = job->cache;
    const size_t row_floats = (size_t)c->opt.n_q_heads * c->opt.head_dim;
    const size_t row_head = pleat__cache_head_at(c, item->row + first, head);
    return (pleat__attn_prompt){
        .n_queries = pleat__min_u32(queries_of_block(c), item->n_new - first),
        .n_group = c->n_group,
        .head_dim = c->opt.head_dim,
        .scale = c->scale,
        .cap2 = c->cap2,
        .sinks2 = pleat__cache_sinks(c, job->layer, head),
        .q = job->q + row_head * c->opt.head_dim,
        .q_stride = row_floats,
        .out = job->out + row_head * c->opt.head_dim,
        .out_stride = row_floats,
        .lse2 = c->counting.of_prompts ? c->work.lse2 + row_head : NULL,
        .lse2_stride = c->opt.n_q_heads,
        .quant = &c->quant,
    };
}

/* A part's blocks of queries, in their order; `fixed` has what they share. */
static void attend_blocks(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head, uint32_t part,
                          pleat__attn_prompt *fixed) {
    const pleat_cache *c = job->cache;
    const bool staged = pleat__cache_window(c, job->layer) > 0 || is_staged(c);
    const uint32_t block_queries = queries_of_block(c), n_queries = block_queries * blocks_of_part(c, item);
    const uint32_t end = pleat__min_u32((part + 1) * n_queries, item->n_new);
    for (uint32_t first = part * n_queries; first < end; first += block_queries) {
        pleat__attn_prompt args = prompt_args(job, item, head, first);
        args.past = fixed->past;
        args.self = fixed->self;
        args.self_seen = staged ? first : item->n_before + first;
        args.window = fixed->window;
        args.oldest = fixed->oldest;
        args.loader = fixed->loader;
        args.scratch = fixed->scratch;
        args.received = fixed->received;
        args.n_together = fixed->n_together;
        args.weights = fixed->weights;
        c->attn.prompt(&args);
    }
}

void pleat__cache_prompt_unit(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head, uint32_t unit,
                              uint32_t worker) {
    const pleat_cache *c = job->cache;
    const pleat__keep *keep = pleat__keep_at(c, job->layer);
    const uint32_t lane = pleat__cache_lane_of(c, job->layer, head);
    pleat__arena arena = pleat__cache_scratch(c, worker);
    const uint32_t part = item->units.n_parts - 1 - unit; /* long ones first: less waiting at the end */
    const uint32_t window = pleat__cache_window(c, job->layer);
    const bool staged = window > 0 || is_staged(c);
    pleat__block_run blocks;
    const pleat__kv_view past = {.high = past_run(job, item, head, PLEAT__HIGH),
                                 .low = keep->low_run(c, item->seq, lane, &blocks)};
    const pleat__kv_run self =
        staged ? stage_run(c, item, head)
               : pleat__cache_run(c, &item->seq->table, lane, PLEAT__HIGH, item->n_before + item->n_new);
    prompt_scratch scratch;
    carve_scratch(c, &scratch, &arena);
    pleat__attn_prompt args = {.past = staged && item->n_before > 0 ? &past : NULL,
                               .self = &self,
                               .window = window,
                               .oldest = window > 0 && item->n_before >= window ? item->n_before % window : 0,
                               .loader = &scratch.loader,
                               .scratch = scratch.attn};
    if (pleat__cache_is_scored_at_once(c, item) && window == 0) {
        args.received = strand_at(c, item, head, part);
        args.n_together = c->counting.is_largest ? c->n_group : 1;
        args.weights = scratch.weights;
        memset(args.received, 0, pleat__cache_strand_slots(c) * sizeof *args.received);
    }
    attend_blocks(job, item, head, part, &args);
}

void pleat__cache_prompt_put_unit(void *ctx, uint32_t unit, uint32_t worker) {
    (void)worker;
    const pleat__layer_job *job = ctx;
    const pleat_cache *c = job->cache;
    const pleat__step_item *item = &c->step.items[c->step.prompt_items[unit / c->opt.n_kv_heads]];
    if (!item->is_replay) pleat__keep_at(c, job->layer)->put_chunk(job, item, unit % c->opt.n_kv_heads);
}

/* ---- attention received -------------------------------------------------------------------------- */

/* Ranges: those of the chunk itself, then those of the past's high and low slots, which together are at most as many as
 * the tokens and a hole. */
uint32_t pleat__cache_n_received(const pleat__step_item *item) {
    const uint32_t n_self = pleat__div_up_u32(item->n_new, PLEAT__RECEIVED_SLOTS);
    return n_self + (item->n_before > 0 ? pleat__div_up_u32(item->n_before + 1, PLEAT__RECEIVED_SLOTS) + 1 : 0);
}

/* A range of slots that queries attend to, and where its scores stand: slot_from of `run` is scored at
 * score_slot of `pages`. */
typedef struct received_range {
    pleat__kv_run run, pages;
    uint32_t slot_from, slot_to, score_slot;
    uint32_t n_sealed; /* slots of `pages` that are scored no more */
    uint32_t at;       /* of slot_from in a strand's array */
    bool causal;
} received_range;

static uint32_t sealed_slots(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head,
                             pleat__side side) {
    const uint32_t lane = pleat__cache_lane_of(job->cache, job->layer, head);
    return item->seq->table.n_sealed[side][lane] * job->cache->page_tokens[side];
}

static void set_range(received_range *r, uint32_t range) {
    r->slot_from = pleat__min_u32(range * PLEAT__RECEIVED_SLOTS, r->run.n_slots);
    r->slot_to = pleat__min_u32(r->slot_from + PLEAT__RECEIVED_SLOTS, r->run.n_slots);
    r->score_slot += r->slot_from;
    r->at += r->slot_from;
}

static received_range find_range(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head,
                                 uint32_t range) {
    const uint32_t n_self = pleat__div_up_u32(item->n_new, PLEAT__RECEIVED_SLOTS);
    received_range r = {.run = past_run(job, item, head, PLEAT__HIGH),
                        .n_sealed = sealed_slots(job, item, head, PLEAT__HIGH)};
    const uint32_t n_high = pleat__div_up_u32(r.run.n_slots, PLEAT__RECEIVED_SLOTS);
    r.pages = r.run;
    const pleat__kv_run low = past_run(job, item, head, PLEAT__LOW);
    if (range < n_self) {
        r.score_slot = r.run.n_slots; /* the chunk stands behind the lane's slots */
        r.at = pleat__attn_received_slots(r.run.n_slots) + pleat__attn_received_slots(low.n_slots);
        r.run = stage_run(job->cache, item, head);
        r.causal = true;
        set_range(&r, range);
    } else if (range - n_self < n_high) {
        set_range(&r, range - n_self);
    } else {
        r.at = pleat__attn_received_slots(r.run.n_slots);
        r.pages = r.run = low;
        r.n_sealed = sealed_slots(job, item, head, PLEAT__LOW);
        set_range(&r, range - n_self - n_high);
    }
    return r;
}

/* Score `idx` of each slot becomes a share of what it was, and `times` what the slot has received. */
static void add_scores(const received_range *r, uint32_t idx, float kept, float times, const float *received) {
    const uint32_t page_tokens = r->pages.layout->tokens;
    for (uint32_t i = 0; i < r->slot_to - r->slot_from; i++) {
        const uint32_t slot = r->score_slot + i;
        if (slot < r->n_sealed) continue;
        uint8_t *page = pleat__kv_page(&r->pages, slot / page_tokens);
        float *score = pleat__head_scores(r->pages.layout, page, idx) + slot % page_tokens;
        *score = *score < INFINITY ? *score * kept + times * received[i] : *score; /* 0 * infinity is no number */
    }
}

/* The first of the item's queries that count, and what share of earlier scores stays: policy/evict.h. */
static uint32_t first_query(const pleat_cache *c, const pleat__step_item *item, float *kept) {
    const uint32_t window = c->counting.n_queries, every = pleat__counted_every_of_prompts(&c->opt.spec);
    *kept = 1;
    if (window == 0) return every - 1 - item->n_before % every;
    const uint32_t n = pleat__min_u32(item->n_new, window);
    *kept = (float)(window - n) / (float)window;
    return item->n_new - n;
}

/* What the range receives from the heads that count together, args->n_group of them from `args->q` on. */
static void receive(const pleat_cache *c, const received_range *r, pleat__attn_prompt_received args, uint32_t idx,
                    float kept) {
    float received[PLEAT__RECEIVED_SLOTS] = {0};
    const uint32_t n_heads = c->n_group / args.n_group; /* that add up in one score, one after another */
    const uint32_t n_together = c->counting.is_by_head ? 1 : n_heads;
    args.received = received;
    for (uint32_t g = 0; g < n_together; g++, args.q += c->opt.head_dim, args.lse2++) c->attn.prompt_received(&args);
    add_scores(r, idx, kept, (float)pleat__counted_every_of_prompts(&c->opt.spec), received);
}

/* What the range has received from all strands. */
static void add_strands(const pleat_cache *c, const pleat__step_item *item, uint32_t head, const received_range *r) {
    float received[PLEAT__RECEIVED_SLOTS] = {0};
    for (uint32_t strand = 0; strand < item->units.n_parts; strand++) {
        const float *given = strand_at(c, item, head, strand) + r->at;
        for (uint32_t i = 0; i < r->slot_to - r->slot_from; i++) received[i] += given[i];
    }
    add_scores(r, c->counting.first, 1, 1, received);
}

/* ---- what queries would miss (policy/dropkv.h) ---------------------------------------------------- */

/* The tile of a range that slot `first` of its run begins: k, v, and whether each slot is a token. */
static void load_tile(const pleat_cache *c, const received_range *r, uint32_t first, float *k, float *v,
                      bool *is_token) {
    const pleat__page_layout *layout = r->run.layout;
    uint8_t *page = pleat__kv_page(&r->run, first / layout->tokens);
    const uint32_t slot = first % layout->tokens;
    c->quant.load_k(layout, page, slot / PLEAT__TILE, k);
    c->quant.load_v(layout, page, slot / PLEAT__TILE, v);
    for (uint32_t i = 0; i < PLEAT__TILE; i++)
        is_token[i] = first + i < r->slot_to && (!layout->tracked || pleat__positions(layout, page)[slot + i] >= 0);
}

/* What a query head gives to the tokens of a tile of which it sees the first n_seen; lse2 is its own. */
static void weigh_tile(const pleat__attn_prompt_received *a, const float *k, const bool *is_token, const float *q,
                       float lse2, uint32_t n_seen, float *p) {
    float logits[PLEAT__TILE] = {0};
    for (uint32_t d = 0; d < a->head_dim; d++)
        for (uint32_t i = 0; i < PLEAT__TILE; i++) logits[i] += k[d * PLEAT__TILE + i] * q[d];
    for (uint32_t i = 0; i < PLEAT__TILE; i++) {
        float logit2 = logits[i] * a->scale * 0x1.715476p+0f; /* log2(e) */
        if (a->cap2 > 0) logit2 = a->cap2 * tanhf(logit2 / a->cap2);
        p[i] = i < n_seen && is_token[i] ? exp2f(logit2 - lse2) : 0;
    }
}

/* Score `idx` of the range: what the queries of `args` would miss without each slot; o: what the first of them found. */
static void miss(const pleat_cache *c, const received_range *r, const pleat__attn_prompt_received *args, const float *o,
                 float kept) {
    float *k = args->scratch, *v = k + (size_t)PLEAT__TILE * args->head_dim, missed[PLEAT__RECEIVED_SLOTS] = {0};
    for (uint32_t slot = r->slot_from; slot < r->slot_to; slot += PLEAT__TILE) {
        bool is_token[PLEAT__TILE];
        float p[PLEAT__TILE];
        load_tile(c, r, slot, k, v, is_token);
        for (uint32_t i = 0; i < args->n_queries; i++) {
            const uint32_t seen = r->causal ? args->self_seen + i : UINT32_MAX;
            for (uint32_t g = 0; seen > slot && g < c->n_group; g++) {
                const size_t at = i * args->q_stride + (size_t)g * args->head_dim;
                weigh_tile(args, k, is_token, args->q + at, args->lse2[i * args->lse2_stride + g], seen - slot, p);
                pleat__dropkv_add(v, args->head_dim, o + at, p, missed + (slot - r->slot_from));
            }
        }
    }
    add_scores(r, c->counting.first, kept, 1, missed);
}

/* ---- what a replay's queries give at most (policy/kvzip.c) ----------------------------------------- */

/* The score of each slot of the range becomes what a query head gives it, where that is more.  A kernel that is handed
 * many queries as one with many heads finds the most that these give. */
static void raise_peaks(const pleat_cache *c, const received_range *r, pleat__attn_prompt_received args,
                        const prompt_scratch *s) {
    const uint32_t n_group = c->n_group, n_together = PLEAT__MAX_GROUP / n_group, n_queries = args.n_queries;
    const size_t row = (size_t)n_group * c->opt.head_dim;
    float most[PLEAT__RECEIVED_SLOTS] = {0};
    const float *q = args.q, *lse2 = args.lse2;
    args.q = s->rows;
    args.lse2 = s->rows_lse2;
    args.n_queries = 1;
    for (uint32_t first = 0; first < n_queries; first += n_together) {
        const uint32_t n = pleat__min_u32(n_together, n_queries - first);
        float received[PLEAT__RECEIVED_SLOTS] = {0};
        for (uint32_t i = 0; i < n; i++) {
            memcpy(s->rows + i * row, q + (first + i) * args.q_stride, row * sizeof *q);
            memcpy(s->rows_lse2 + i * n_group, lse2 + (first + i) * args.lse2_stride, n_group * sizeof *lse2);
        }
        args.n_group = n * n_group;
        args.received = received;
        c->attn.prompt_received(&args);
        for (uint32_t i = 0; i < PLEAT__RECEIVED_SLOTS; i++) most[i] = received[i] > most[i] ? received[i] : most[i];
    }
    for (uint32_t i = 0; i < r->slot_to - r->slot_from; i++) {
        const uint32_t tokens = r->pages.layout->tokens, slot = r->score_slot + i;
        float *score = pleat__scores(r->pages.layout, pleat__kv_page(&r->pages, slot / tokens)) + slot % tokens;
        *score = most[i] > *score ? most[i] : *score;
    }
}

/* The prompt item that range `unit` belongs to. */
static const pleat__step_item *received_item(const pleat_cache *c, uint32_t unit) {
    uint32_t i = c->step.n_prompt_items - 1;
    while (c->step.items[c->step.prompt_items[i]].units.first_received > unit) i--;
    return &c->step.items[c->step.prompt_items[i]];
}

/* What a range receives from the queries of a KV head that count, from `first` on; q and lse2 are those of its first query
 * head. */
static pleat__attn_prompt_received received_args(const pleat__layer_job *job, const pleat__step_item *item,
                                                 uint32_t head, const received_range *r, uint32_t first,
                                                 void *scratch) {
    const pleat_cache *c = job->cache;
    const uint32_t every = pleat__counted_every_of_prompts(&c->opt.spec),
                   n_rest = first < item->n_new ? item->n_new - first : 0;
    const size_t row_head = pleat__cache_head_at(c, item->row + first, head);
    return (pleat__attn_prompt_received){
        .run = &r->run,
        .causal = r->causal,
        .self_seen = first,
        .step = every,
        .slot_from = r->slot_from,
        .slot_to = r->slot_to,
        .n_queries = pleat__div_up_u32(n_rest, every),
        .n_group = c->counting.is_largest ? c->n_group : 1,
        .head_dim = c->opt.head_dim,
        .scale = c->scale,
        .cap2 = c->cap2,
        .q = job->q + row_head * c->opt.head_dim,
        .q_stride = (size_t)c->opt.n_q_heads * c->opt.head_dim * every,
        .lse2 = c->work.lse2 + row_head,
        .lse2_stride = (size_t)c->opt.n_q_heads * every,
        .quant = &c->quant,
        .scratch = scratch,
    };
}

void pleat__cache_received_unit(void *ctx, uint32_t unit, uint32_t worker) {
    const pleat__layer_job *job = ctx;
    const pleat_cache *c = job->cache;
    const pleat__step_item *item = received_item(c, unit);
    const uint32_t local = unit - item->units.first_received;
    const uint32_t head = local % c->opt.n_kv_heads;
    const received_range r = find_range(job, item, head, local / c->opt.n_kv_heads);
    const bool is_sealed = r.score_slot + (r.slot_to - r.slot_from) <= r.n_sealed;
    const bool is_lost = item->is_replay && r.causal; /* what is not kept needs no score */
    if (r.slot_from >= r.slot_to || !r.pages.layout->tracked || is_sealed || is_lost) return;
    if (pleat__cache_is_scored_at_once(c, item)) {
        add_strands(c, item, head, &r);
        return;
    }
    float kept;
    const uint32_t first = first_query(c, item, &kept);
    pleat__arena arena = pleat__cache_scratch(c, worker);
    prompt_scratch scratch;
    carve_scratch(c, &scratch, &arena);
    pleat__attn_prompt_received args = received_args(job, item, head, &r, first, scratch.attn);
    if (c->counting.is_peak) {
        raise_peaks(c, &r, args, &scratch);
        return;
    }
    if (c->counting.is_error) {
        miss(c, &r, &args, job->out + (args.q - job->q), kept);
        return;
    }
    for (uint32_t idx = c->counting.first; idx < r.pages.layout->n_scores; idx++) {
        receive(c, &r, args, idx, kept);
        args.q += c->opt.head_dim;
        args.lse2++;
    }
}
