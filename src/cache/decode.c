/* SPDX-License-Identifier: MIT
 *
 * decode.c: the units of single tokens: a split of a lane's slots, and what the last of a lane's splits does.
 *
 * A lane's slots stand on one line, which splits cut at whole tiles into parts of equal bytes:
 *
 *     | high slots ... | fill to 16 | low slots ... |
 *     0              n_high      low_from         n_line
 *
 * Where cold tokens are in blocks these stand in place of the low slots, and splits cut them at whole groups of blocks.
 *
 * Under a policy the kernels leave the logits of the whole line, and when all splits are merged the attention that each
 * slot received is added to its score.  Logits of a short unsplit lane stay in the worker's scratch.
 */
#include <math.h>

#include "cache/internal.h"

/* As many as arrive in the half microsecond that making a query ready takes. */
#define START_BYTES 8192u

/* One lane in this step. */
typedef struct lane_line {
    pleat__kv_run high, low;
    pleat__block_run blocks; /* in place of low */
    uint32_t low_from, n_line;
    uint64_t n_bytes; /* of all its tiles */
    uint32_t n_splits;
    uint32_t n_sealed[2]; /* [pleat__side] slots that are scored no more, whole pages */
    uint32_t new_slot;    /* high slot of the step's token; PLEAT__NO_SLOT in a read */
} lane_line;

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

/* Slots on a line of n_tokens may be that, a hole and the fill between the sides. */
uint32_t pleat__cache_most_splits(const pleat_cache *c, uint32_t n_tokens) {
    const uint32_t n_slots = n_tokens + (c->tracked || c->has_blocks ? 2 * PLEAT__TILE : 0);
    const uint64_t high = side_bytes(&c->layouts[PLEAT__HIGH], n_slots);
    const uint64_t low = side_bytes(&c->layouts[PLEAT__LOW], n_slots);
    return pleat__attn_ranges(high > low ? high : low, n_slots);
}

/* The first token of the group of blocks that byte `at` of the blocks is in. */
static uint32_t block_from(const pleat_cache *c, uint64_t at) {
    const uint32_t group = c->blocks.tokens * PLEAT__STREAMS;
    return (uint32_t)(at / block_bytes(c, group)) * group;
}

/* The slot at which a split begins, a multiple of PLEAT__TILE; the line's end for the one after the last. */
static uint32_t split_from(const pleat_cache *c, const lane_line *line, uint32_t split) {
    if (split == line->n_splits) return line->n_line;
    const uint64_t at = line->n_bytes * split / line->n_splits;
    const uint64_t high_bytes = side_bytes(line->high.layout, line->low_from);
    const bool is_high = at < high_bytes;
    if (!is_high && c->has_blocks) return line->low_from + block_from(c, at - high_bytes);
    const pleat__page_layout *l = is_high ? line->high.layout : line->low.layout;
    const uint64_t tile = (is_high ? at : at - high_bytes) * (l->tokens / PLEAT__TILE) / l->used_bytes;
    return (is_high ? 0 : line->low_from) + (uint32_t)tile * PLEAT__TILE;
}

static lane_line line_of(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head) {
    const pleat_cache *c = job->cache;
    const pleat__table *table = &item->seq->table;
    const uint32_t lane_idx = pleat__cache_lane_of(c, job->layer, head);
    const pleat__lane lane = pleat__table_lane(table, lane_idx);
    lane_line line = {.new_slot = PLEAT__NO_SLOT};
    uint32_t n_high = lane.n_slots[PLEAT__HIGH];
    if (item->n_new > 0) line.new_slot = lane.hole ? lane.hole - 1 : n_high++;
    line.high = pleat__cache_run(c, table, lane_idx, PLEAT__HIGH, n_high);
    line.low = pleat__cache_run(c, table, lane_idx, PLEAT__LOW, lane.n_slots[PLEAT__LOW]);
    if (c->has_blocks) {
        line.blocks = pleat__cache_block_run(c, item->seq, lane_idx);
        line.low.n_slots = item->seq->n_classed; /* what is said of slots is of tokens */
    }
    line.low_from = whole_tiles(n_high);
    line.n_line = line.low.n_slots > 0 ? line.low_from + line.low.n_slots : n_high;
    line.n_bytes = side_bytes(line.high.layout, n_high) +
                   (c->has_blocks ? block_bytes(c, line.low.n_slots) : side_bytes(line.low.layout, line.low.n_slots));
    line.n_splits = pleat__attn_ranges(line.n_bytes, line.n_line);
    for (int side = PLEAT__HIGH; side <= PLEAT__LOW; side++)
        line.n_sealed[side] = lane.n_sealed[side] * c->page_tokens[side];
    return line;
}

/* ---- memory ------------------------------------------------------------------------------------ */

/* What a unit works in. */
typedef struct decode_scratch {
    void *query;
    void *acc;
    void *blocks;
    float *logits; /* [n_group][PLEAT__SCRATCH_LINE_SLOTS] */
} decode_scratch;

static void carve_scratch(const pleat_cache *c, decode_scratch *s, pleat__arena *arena) {
    s->query = pleat__arena_take(arena, pleat__attn_query_bytes(c->n_group, c->opt.head_dim), 1);
    s->acc = pleat__arena_take(arena, c->acc_bytes, 1);
    s->blocks =
        c->has_blocks ? pleat__arena_take(arena, pleat__attn_blocks_scratch_bytes(&c->blocks, c->n_group), 1) : NULL;
    const uint64_t n_logits = c->tracked ? (uint64_t)c->n_group * PLEAT__SCRATCH_LINE_SLOTS : 0;
    s->logits = pleat__arena_take(arena, n_logits, sizeof *s->logits);
}

uint64_t pleat__cache_decode_scratch_bytes(const pleat_cache *c) {
    decode_scratch s;
    pleat__arena arena = {0};
    carve_scratch(c, &s, &arena);
    return arena.used_bytes;
}

/* Index of the item's lane in this layer among all items'. */
static uint64_t lane_in_step(const pleat_cache *c, const pleat__step_item *item, uint32_t head) {
    return (uint64_t)(item - c->items) * c->opt.n_kv_heads + head;
}

/* Accumulator of one split of one lane. */
static void *partial_of(const pleat_cache *c, const pleat__step_item *item, uint32_t head, uint32_t split) {
    return c->partials + (lane_in_step(c, item, head) * c->splits_cap + split) * c->acc_bytes;
}

/* Point at an accumulator that another unit filled. */
static pleat__attn_acc acc_at(const pleat_cache *c, void *memory) {
    pleat__attn_acc acc;
    pleat__attn_acc_view(&acc, memory, c->n_group, c->opt.head_dim);
    return acc;
}

/* Does what a single token attends to count? */
static bool scores_steps(const pleat_cache *c) {
    return c->scoring == PLEAT__SCORING_MAX || c->scoring == PLEAT__SCORING_SUM;
}

/* Logits of a lane's line: [g] at data + g*stride; data is NULL where nothing is scored. */
typedef struct line_logits {
    float *data;
    size_t stride;
} line_logits;

static line_logits logits_of(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head,
                             const lane_line *line, const decode_scratch *scratch) {
    const pleat_cache *c = job->cache;
    if (!scores_steps(c) || item->n_new == 0) return (line_logits){0};
    if (line->n_splits == 1 && line->n_line <= PLEAT__SCRATCH_LINE_SLOTS)
        return (line_logits){scratch->logits, PLEAT__SCRATCH_LINE_SLOTS};
    return (line_logits){c->logits + lane_in_step(c, item, head) * c->n_group * c->logits_cap, c->logits_cap};
}

/* ---- units ------------------------------------------------------------------------------------- */

void pleat__cache_decode_begin(const pleat__layer_job *job) {
    pleat_cache *c = job->cache;
    for (uint32_t i = 0; i < c->n_items; i++) {
        const pleat__step_item *item = &c->items[i];
        for (uint32_t head = 0; head < c->opt.n_kv_heads && item->n_new <= 1 && item->n_cuts > 1; head++) {
            const lane_line line = line_of(job, item, head);
            atomic_store_explicit(&c->pending[lane_in_step(c, item, head)], line.n_splits, memory_order_relaxed);
        }
    }
}

/* Count what slots from `from` on have received: of all heads the largest, or of each, in one sum or in sums of their
 * own. */
static void count_received(const pleat_cache *c, const pleat__kv_run *run, uint32_t from, line_logits logits,
                           const float *lse2) {
    if (c->scoring == PLEAT__SCORING_MAX) {
        c->attn.received(run, from, run->n_slots, logits.data, logits.stride, lse2, c->n_group);
        return;
    }
    pleat__page_layout layout = *run->layout;
    pleat__kv_run of_head = *run;
    of_head.layout = &layout;
    for (uint32_t g = 0; g < c->n_group; g++) {
        c->attn.received(&of_head, from, run->n_slots, logits.data + g * logits.stride, logits.stride, lse2 + g, 1);
        if (layout.n_scores > 1) layout.score_off += (uint32_t)(layout.tokens * sizeof(float));
    }
}

/* The whole lane has been seen: write the result and count the attention that its slots received. */
static void finish_head(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head, const lane_line *line,
                        const pleat__attn_acc *acc, line_logits logits) {
    const pleat_cache *c = job->cache;
    const size_t at = pleat__cache_head_at(c, item->row, head);
    float lse2[PLEAT__MAX_GROUP];
    pleat__attn_finish(acc, c->n_group, c->opt.head_dim, job->out + at * c->opt.head_dim, lse2);
    for (uint32_t g = 0; job->lse && g < c->n_group; g++) job->lse[at + g] = lse2[g] * (float)M_LN2;
    if (!logits.data) return;
    const uint32_t high_from = line->n_sealed[PLEAT__HIGH], low_from = line->n_sealed[PLEAT__LOW];
    count_received(c, &line->high, high_from, logits, lse2);
    const line_logits low_logits = {logits.data + line->low_from, logits.stride};
    if (line->low.n_slots > low_from && line->low.layout->tracked)
        count_received(c, &line->low, low_from, low_logits, lse2);
    const uint32_t tokens = line->high.layout->tokens; /* what the token gave itself does not count */
    uint8_t *page = pleat__kv_page(&line->high, line->new_slot / tokens);
    for (uint32_t h = 0; h < line->high.layout->n_scores; h++)
        pleat__head_scores(line->high.layout, page, h)[line->new_slot % tokens] = 0;
}

/* The last unit of a split lane to finish merges all of it, in order. */
static void merge_splits(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head,
                         const lane_line *line, line_logits logits) {
    pleat_cache *c = job->cache;
    if (atomic_fetch_sub_explicit(&c->pending[lane_in_step(c, item, head)], 1, memory_order_acq_rel) != 1) return;
    pleat__attn_acc acc = acc_at(c, partial_of(c, item, head, 0));
    for (uint32_t split = 1; split < line->n_splits; split++) {
        const pleat__attn_acc other = acc_at(c, partial_of(c, item, head, split));
        pleat__attn_merge(&acc, &other, c->n_group, c->opt.head_dim);
    }
    finish_head(job, item, head, line, &acc, logits);
}

/* Add part [from, to) of the line to acc. */
static void decode_part(const pleat_cache *c, const lane_line *line, const pleat__attn_query *query, uint32_t from,
                        uint32_t to, pleat__attn_acc *acc, line_logits logits, const decode_scratch *scratch) {
    const uint32_t high_to = pleat__min_u32(to, line->high.n_slots);
    if (from < high_to) c->attn.decode(query, &line->high, from, high_to, acc, logits.data, logits.stride);
    if (to <= line->low_from) return;
    const uint32_t low_from = pleat__max_u32(from, line->low_from) - line->low_from;
    if (c->has_blocks) {
        const uint32_t n_tokens = c->blocks.tokens;
        (void)c->attn.blocks(query, &c->codec, &line->blocks, low_from / n_tokens, (to - line->low_from) / n_tokens,
                             acc, scratch->blocks);
        return;
    }
    c->attn.decode(query, &line->low, low_from, to - line->low_from, acc,
                   logits.data && line->low.layout->tracked ? logits.data + line->low_from : NULL, logits.stride);
}

/* Ask for the first bytes of a run's slots, which arrive while the query is made ready; the kernel asks for the rest. */
static void prefetch_start(const pleat__kv_run *run, uint32_t slot) {
    if (slot >= run->n_slots) return;
    const uint8_t *page = pleat__kv_page(run, slot / run->layout->tokens);
    const uint32_t n_bytes = pleat__min_u32(run->layout->used_bytes, START_BYTES);
    for (uint32_t i = 0; i < n_bytes; i += 64) __builtin_prefetch(page + i, 0, 2);
}

void pleat__cache_decode_unit(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head, uint32_t split,
                              uint32_t worker) {
    const pleat_cache *c = job->cache;
    const lane_line line = line_of(job, item, head);
    if (split >= line.n_splits) return; /* other lanes of the item are longer */
    const uint32_t from = split_from(c, &line, split), to = split_from(c, &line, split + 1);
    if (line.new_slot >= from && line.new_slot < to) pleat__cache_store_item(job, item, head);

    if (from < line.low_from)
        prefetch_start(&line.high, from);
    else if (!c->has_blocks)
        prefetch_start(&line.low, from - line.low_from);
    decode_scratch scratch;
    pleat__arena arena = {.base = pleat__cache_scratch(c, worker), .cap_bytes = c->worker_scratch_bytes};
    carve_scratch(c, &scratch, &arena);
    pleat__attn_query query;
    pleat__attn_query_init(&query, scratch.query, job->q + pleat__cache_head_at(c, item->row, head) * c->opt.head_dim,
                           c->n_group, c->opt.head_dim, c->scale);
    const bool whole = line.n_splits == 1;
    const line_logits logits = logits_of(job, item, head, &line, &scratch);
    pleat__attn_acc acc;
    pleat__attn_acc_init(&acc, whole ? scratch.acc : partial_of(c, item, head, split), c->n_group, c->opt.head_dim);
    if (from < to) decode_part(c, &line, &query, from, to, &acc, logits, &scratch);
    if (whole)
        finish_head(job, item, head, &line, &acc, logits);
    else
        merge_splits(job, item, head, &line, logits);
}
