/* SPDX-License-Identifier: MIT
 *
 * decode.c: the units of single tokens: a split of a lane's slots, and what the last of a lane's splits does.
 *
 * A lane's slots on one axis are its span, which splits cut at whole tiles into parts of equal bytes:
 *
 *     | high slots ... | fill to 16 | low slots ... |
 *     0              n_high      low_from         n_span
 *
 * Where cold tokens are in blocks these stand in place of the low slots, and splits cut them at whole groups of blocks.
 *
 * Under a policy the kernels leave the logits of the whole span, and when all splits are merged the attention that each
 * slot received is added to its score.  Logits of a short unsplit lane stay in the worker's scratch.
 */
#include "cache/decode.h"

#include <math.h>

#include "cache/keep/keep.h"

/* One lane in this step. */
typedef struct slot_span {
    pleat__kv_run high, low; /* low.blocks is &blocks where cold tokens are in blocks: slots are tokens then */
    pleat__block_run blocks;
    uint32_t low_from, n_span;
    uint64_t n_bytes; /* of all its tiles */
    uint32_t n_splits;
    uint32_t n_sealed[2]; /* [pleat__side] slots that are scored no more, whole pages */
    uint32_t new_slot;    /* high slot of the step's token; PLEAT__NO_SLOT in a read */
} slot_span;

static uint32_t whole_tiles(uint32_t n_slots) { return pleat__div_up_u32(n_slots, PLEAT__TILE) * PLEAT__TILE; }

/* Bytes of n slots, tiles filled up, with all that belongs to them. */
static uint64_t side_bytes(const pleat__page_layout *l, uint32_t n_slots) {
    return (uint64_t)l->used_bytes * whole_tiles(n_slots) / l->tokens;
}

/* What blocks count as: half a byte a value, about what their payloads take.  Long ranges, since a range begins with a
 * group of blocks that is not in cache: with four times as much a value `pleat bench attn --kv kvcomp` takes 7 % longer
 * from memory (8192 tokens, d 128; 2026-11). */
static uint64_t block_bytes(const pleat_cache *c, uint32_t n_tokens) {
    return (uint64_t)n_tokens * c->opt.head_dim / 2;
}

uint32_t pleat__cache_max_splits(const pleat_cache *c, uint32_t n_tokens) {
    const uint32_t n_slots = n_tokens + c->keep->span_slack;
    const uint64_t high = side_bytes(&c->layouts[PLEAT__HIGH], n_slots);
    const uint64_t low = side_bytes(&c->layouts[PLEAT__LOW], n_slots);
    return pleat__attn_ranges(high > low ? high : low, n_slots);
}

/* The first token of the group of blocks that byte `at` of the blocks is in. */
static uint32_t block_from(const pleat_cache *c, const pleat__block_run *blocks, uint64_t at) {
    const uint32_t group = blocks->format->tokens * PLEAT__STREAMS;
    return (uint32_t)(at / block_bytes(c, group)) * group;
}

/* The slot at which a split begins, a multiple of PLEAT__TILE; the span's end for the one after the last. */
static uint32_t split_from(const pleat_cache *c, const slot_span *span, uint32_t split) {
    if (split == span->n_splits) return span->n_span;
    const uint64_t at = span->n_bytes * split / span->n_splits;
    const uint64_t high_bytes = side_bytes(span->high.layout, span->low_from);
    const bool is_high = at < high_bytes;
    if (!is_high && span->low.blocks) return span->low_from + block_from(c, span->low.blocks, at - high_bytes);
    const pleat__page_layout *l = is_high ? span->high.layout : span->low.layout;
    const uint64_t tile = (is_high ? at : at - high_bytes) * (l->tokens / PLEAT__TILE) / l->used_bytes;
    return (is_high ? 0 : span->low_from) + (uint32_t)tile * PLEAT__TILE;
}

/* Fill *span, which low.blocks may point into. */
static void find_span(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head, slot_span *span) {
    const pleat_cache *c = job->cache;
    const pleat__table *table = &item->seq->table;
    const uint32_t lane_idx = pleat__cache_lane_of(c, job->layer, head);
    const pleat__lane lane = pleat__table_lane(table, lane_idx);
    span->new_slot = PLEAT__NO_SLOT;
    uint32_t n_high = lane.n_slots[PLEAT__HIGH];
    if (item->n_new > 0) span->new_slot = lane.hole ? lane.hole - 1 : n_high++;
    span->high = pleat__cache_run(c, table, lane_idx, PLEAT__HIGH, n_high);
    span->low = pleat__keep_at(c, job->layer)->low_run(c, item->seq, lane_idx, &span->blocks);
    span->low_from = whole_tiles(n_high);
    span->n_span = span->low.n_slots > 0 ? span->low_from + span->low.n_slots : n_high;
    span->n_bytes =
        side_bytes(span->high.layout, n_high) +
        (span->low.blocks ? block_bytes(c, span->low.n_slots) : side_bytes(span->low.layout, span->low.n_slots));
    span->n_splits = pleat__attn_ranges(span->n_bytes, span->n_span);
    for (int side = PLEAT__HIGH; side <= PLEAT__LOW; side++)
        span->n_sealed[side] = lane.n_sealed[side] * c->page_tokens[side];
}

/* ---- memory ------------------------------------------------------------------------------------ */

uint64_t pleat__cache_decode_bytes(const pleat_cache *c) {
    pleat__decode_scratch s;
    pleat__arena arena = {0};
    pleat__cache_carve_decode(c, &s, &arena);
    return arena.used_bytes;
}

/* Index of the item's lane in this layer among all items'. */
static uint64_t lane_in_step(const pleat_cache *c, const pleat__step_item *item, uint32_t head) {
    return (uint64_t)(item - c->step.items) * c->opt.n_kv_heads + head;
}

/* Accumulator of one split of one lane. */
static void *partial_of(const pleat_cache *c, const pleat__step_item *item, uint32_t head, uint32_t split) {
    return c->work.partials + (lane_in_step(c, item, head) * c->work.max_splits + split) * c->work.acc_bytes;
}

/* Point at an accumulator that another unit filled. */
static pleat__attn_acc acc_at(const pleat_cache *c, void *memory) {
    pleat__attn_acc acc;
    pleat__attn_acc_view(&acc, memory, c->n_group, c->opt.head_dim);
    return acc;
}

/* Logits of a lane's span: [g] at data + g*stride; data is NULL where nothing is scored. */
typedef struct span_logits {
    float *data;
    size_t stride;
} span_logits;

static span_logits logits_of(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head,
                             const slot_span *span, const pleat__decode_scratch *scratch) {
    const pleat_cache *c = job->cache;
    if (!c->counting.of_steps || !span->high.layout->tracked || item->n_new == 0) return (span_logits){0};
    if (!pleat__step_is_counted(&c->opt.spec, item->n_before + 1)) return (span_logits){0};
    if (span->n_splits == 1 && span->n_span <= PLEAT__SCRATCH_SPAN_SLOTS)
        return (span_logits){scratch->logits, PLEAT__SCRATCH_SPAN_SLOTS};
    return (span_logits){c->work.logits + lane_in_step(c, item, head) * c->n_group * c->work.logits_cap,
                         c->work.logits_cap};
}

/* ---- units ------------------------------------------------------------------------------------- */

void pleat__cache_decode_begin(const pleat__layer_job *job) {
    pleat_cache *c = job->cache;
    for (uint32_t i = 0; i < c->step.n_items; i++) {
        const pleat__step_item *item = &c->step.items[i];
        for (uint32_t head = 0; head < c->opt.n_kv_heads && item->n_new <= 1 && item->units.n_parts > 1; head++) {
            slot_span span;
            find_span(job, item, head, &span);
            atomic_store_explicit(&c->work.pending[lane_in_step(c, item, head)], span.n_splits, memory_order_relaxed);
        }
    }
}

/* Count what slots from `from` on have received: of all heads the largest, or of each, in one sum or in sums of their
 * own. */
static void count_received(const pleat_cache *c, const pleat__kv_run *run, uint32_t from, span_logits logits,
                           const float *lse2) {
    if (c->counting.is_largest) {
        c->attn.decode_received(run, from, run->n_slots, logits.data, logits.stride, lse2, c->n_group);
        return;
    }
    pleat__page_layout layout = *run->layout;
    pleat__kv_run of_head = *run;
    of_head.layout = &layout;
    layout.score_off += (uint32_t)(c->counting.first * layout.tokens * sizeof(float));
    for (uint32_t g = 0; g < c->n_group; g++) {
        c->attn.decode_received(&of_head, from, run->n_slots, logits.data + g * logits.stride, logits.stride, lse2 + g,
                                1);
        if (c->counting.is_by_head) layout.score_off += (uint32_t)(layout.tokens * sizeof(float));
    }
}

/* The whole lane has been seen: write the result and count the attention that its slots received. */
static void finish_head(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head, const slot_span *span,
                        pleat__attn_acc *acc, span_logits logits) {
    const pleat_cache *c = job->cache;
    const size_t at = pleat__cache_head_at(c, item->row, head);
    const float *sinks2 = pleat__cache_sinks(c, job->layer, head);
    float lse2[PLEAT__MAX_GROUP];
    if (sinks2) pleat__attn_add_sinks(acc, sinks2, c->n_group, c->opt.head_dim);
    pleat__attn_finish(acc, c->n_group, c->opt.head_dim, job->out + at * c->opt.head_dim, lse2);
    for (uint32_t g = 0; job->lse && g < c->n_group; g++) job->lse[at + g] = lse2[g] * (float)M_LN2;
    if (!logits.data) return;
    for (uint32_t g = 0; g < c->n_group; g++) lse2[g] -= c->counting.every_log2;
    const uint32_t high_from = span->n_sealed[PLEAT__HIGH], low_from = span->n_sealed[PLEAT__LOW];
    count_received(c, &span->high, high_from, logits, lse2);
    const span_logits low_logits = {logits.data + span->low_from, logits.stride};
    if (span->low.n_slots > low_from && span->low.layout->tracked)
        count_received(c, &span->low, low_from, low_logits, lse2);
    const uint32_t tokens = span->high.layout->tokens; /* what the token received from itself does not count */
    uint8_t *page = pleat__kv_page(&span->high, span->new_slot / tokens);
    for (uint32_t h = 0; h < span->high.layout->n_scores; h++)
        pleat__head_scores(span->high.layout, page, h)[span->new_slot % tokens] = 0;
}

/* The last unit of a split lane to finish merges all of it, in order. */
static void merge_splits(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head,
                         const slot_span *span, span_logits logits) {
    pleat_cache *c = job->cache;
    if (atomic_fetch_sub_explicit(&c->work.pending[lane_in_step(c, item, head)], 1, memory_order_acq_rel) != 1) return;
    pleat__attn_acc acc = acc_at(c, partial_of(c, item, head, 0));
    for (uint32_t split = 1; split < span->n_splits; split++) {
        const pleat__attn_acc other = acc_at(c, partial_of(c, item, head, split));
        pleat__attn_merge(&acc, &other, c->n_group, c->opt.head_dim);
    }
    finish_head(job, item, head, span, &acc, logits);
}

/* Add part [from, to) of the span to acc. */
static void decode_part(const pleat_cache *c, const slot_span *span, const pleat__attn_query *query, uint32_t from,
                        uint32_t to, pleat__attn_acc *acc, span_logits logits, const pleat__decode_scratch *scratch) {
    const uint32_t high_to = pleat__min_u32(to, span->high.n_slots);
    if (from < high_to) c->attn.decode(query, &span->high, from, high_to, acc, logits.data, logits.stride);
    if (to <= span->low_from) return;
    const uint32_t low_from = pleat__max_u32(from, span->low_from) - span->low_from;
    if (span->low.blocks) {
        const uint32_t n_tokens = span->low.blocks->format->tokens;
        (void)c->attn.blocks(query, &c->codec, span->low.blocks, low_from / n_tokens, (to - span->low_from) / n_tokens,
                             acc, scratch->blocks);
        return;
    }
    c->attn.decode(query, &span->low, low_from, to - span->low_from, acc,
                   logits.data && span->low.layout->tracked ? logits.data + span->low_from : NULL, logits.stride);
}

/* The query of the lane, with limbs where some of its formats take them. */
static void init_query(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head, const slot_span *span,
                       void *memory, pleat__attn_query *query) {
    const pleat_cache *c = job->cache;
    const bool has_integers =
        pleat__format_is_quantised(span->high.layout->format) || (span->low.n_slots > 0 && !span->low.blocks);
    const float *q = job->q + pleat__cache_head_at(c, item->row, head) * c->opt.head_dim;
    if (has_integers)
        pleat__attn_query_init(query, memory, q, c->n_group, c->opt.head_dim, c->scale);
    else
        pleat__attn_query_init_floats(query, memory, q, c->n_group, c->opt.head_dim, c->scale);
    query->cap2 = c->cap2;
}

/* Let the run that `split` ends in go on, for those who prefetch, to the unit that this worker is likely to take next:
 * units are handed out in order, and all take about as long.  *next is filled. */
static void foresee(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head, uint32_t split,
                    slot_span *span, slot_span *next) {
    const pleat_cache *c = job->cache;
    const uint32_t n_heads = c->opt.n_kv_heads, unit = split * n_heads + head + pleat_workers_count(c->opt.workers);
    find_span(job, item, unit % n_heads, next);
    if (unit / n_heads >= next->n_splits) return;
    const uint32_t from = split_from(c, next, unit / n_heads);
    pleat__kv_run *last = split_from(c, span, split + 1) <= span->low_from ? &span->high : &span->low;
    const pleat__kv_run *first = from < next->low_from ? &next->high : &next->low;
    if (last->blocks || first->blocks || last->layout != first->layout) return;
    last->then = first;
    last->then_slot = first == &next->low ? from - next->low_from : from;
}

void pleat__cache_decode_unit(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head, uint32_t split,
                              uint32_t worker) {
    const pleat_cache *c = job->cache;
    slot_span span, next;
    find_span(job, item, head, &span);
    if (split >= span.n_splits) return; /* other lanes of the item are longer */
    foresee(job, item, head, split, &span, &next);
    const uint32_t from = split_from(c, &span, split), to = split_from(c, &span, split + 1);
    if (span.new_slot >= from && span.new_slot < to) pleat__cache_store_item(job, item, head);

    if (from < span.low_from)
        pleat__attn_decode_prefetch(&span.high, from, pleat__min_u32(to, span.high.n_slots));
    else if (!span.low.blocks)
        pleat__attn_decode_prefetch(&span.low, from - span.low_from, to - span.low_from);
    pleat__decode_scratch scratch;
    pleat__arena arena = pleat__cache_scratch(c, worker);
    pleat__cache_carve_decode(c, &scratch, &arena);
    pleat__attn_query query;
    init_query(job, item, head, &span, scratch.query, &query);
    const bool whole = span.n_splits == 1;
    const span_logits logits = logits_of(job, item, head, &span, &scratch);
    pleat__attn_acc acc;
    pleat__attn_acc_init(&acc, whole ? scratch.acc : partial_of(c, item, head, split), c->n_group, c->opt.head_dim);
    if (from < to) decode_part(c, &span, &query, from, to, &acc, logits, &scratch);
    if (whole)
        finish_head(job, item, head, &span, &acc, logits);
    else
        merge_splits(job, item, head, &span, logits);
}
