/* SPDX-License-Identifier: MIT
 *
 * blocks.c: cold tokens in compressed blocks (codec/block.h): how they are made at the end of a step, and read.
 *
 * All lanes of a sequence have the same tokens in blocks, the first n_classed.  The high side holds the others, in f16:
 *
 *     tokens    | block 0 | block 1 | ... | f16: n_classed, n_classed + 1, ... n_tokens - 1 |
 *     row       | high pages ->                                        <- low pages: payloads, 16 bytes a slot |
 *
 * A block takes block.tokens / page_tokens whole high pages, and its payload is smaller than they are.  So the low pages
 * that payloads need are those that they have emptied, of which at most floor(payload / page) + 1 <= emptied ones are
 * taken, and compressing needs no page from the pool, but for copies of shared ones at begin:
 *
 *     high pages    | taken as low | empty | not compressed |
 *     then          | not compressed | empty |                    and trim gives back what is empty
 *
 * The first blocks of a sequence make its codebooks: of each layer, from the codes of all its heads (KVComp, section
 * 3.2).  What is decoded does not depend on them, so that a sequence on a shared prefix has the bits that it would have
 * alone.
 */
#include <assert.h>
#include <string.h>

#include "cache/internal.h"

/* One lane being compressed. */
typedef struct work {
    const pleat_cache *c;
    pleat__sequence *seq;
    uint32_t lane;
    pleat__block_scratch *s;
    pleat__kv_run high; /* as the step left it */
    uint32_t n_empty;   /* high pages from the first on that are compressed */
    uint32_t n_taken;   /* of these, now low: their ids are in s->pages */
    uint32_t low_end;   /* slots of the low side */
} work;

uint32_t pleat__cache_count_blocked(const pleat_cache *c, uint32_t n_before, uint32_t n_after) {
    const uint32_t buffer = c->opt.spec.buffer, n_tokens = c->blocks.tokens, n_warm = n_after - n_before;
    if (n_warm <= buffer) return 0;
    return pleat__min_u32(pleat__div_up_u32(n_warm - buffer, n_tokens), n_warm / n_tokens) * n_tokens;
}

void pleat__cache_carve_blocks(const pleat_cache *c, pleat__block_scratch *s, pleat__arena *arena) {
    const uint64_t d = c->opt.head_dim, n = c->blocks.tokens * d;
    const uint32_t row_len = pleat__table_row_len(c->opt.max_tokens, c->page_tokens[PLEAT__HIGH]);
    *s = (pleat__block_scratch){0};
    pleat__block_codes_carve(&c->blocks, &s->codes, arena);
    s->counts = pleat__arena_take(arena, 2, sizeof *s->counts);
    s->k_tile = pleat__arena_take(arena, PLEAT__TILE * d, sizeof *s->k_tile);
    s->v_tile = pleat__arena_take(arena, PLEAT__TILE * d, sizeof *s->v_tile);
    s->k = pleat__arena_take(arena, n, sizeof *s->k);
    s->v = pleat__arena_take(arena, n, sizeof *s->v);
    s->payload = pleat__arena_take(arena, pleat__block_bound(&c->blocks), 1);
    s->pages = pleat__arena_take(arena, row_len, sizeof *s->pages);
    s->left = pleat__arena_take(arena, row_len, sizeof *s->left);
}

/* ---- making ---------------------------------------------------------------------------------------------- */

static work work_on(const pleat_cache *c, const pleat__step_item *item, uint32_t lane, pleat__block_scratch *s) {
    const pleat__table *table = &item->seq->table;
    return (work){.c = c,
                  .seq = item->seq,
                  .lane = lane,
                  .s = s,
                  .high = pleat__cache_run(c, table, lane, PLEAT__HIGH, table->n_slots[PLEAT__HIGH][lane]),
                  .low_end = table->n_slots[PLEAT__LOW][lane]};
}

/* Quantise block `idx` of those that are due. */
static void quantise(const work *w, uint32_t idx) {
    const pleat_cache *c = w->c;
    const uint32_t d = c->opt.head_dim, page_tokens = w->high.layout->tokens;
    for (uint32_t at = 0; at < c->blocks.tokens; at += PLEAT__TILE) {
        const uint32_t slot = idx * c->blocks.tokens + at, tile = slot % page_tokens / PLEAT__TILE;
        const uint8_t *page = pleat__kv_page(&w->high, slot / page_tokens);
        c->quant.load_k(w->high.layout, page, tile, w->s->k_tile);
        c->quant.load_v(w->high.layout, page, tile, w->s->v_tile);
        for (uint32_t t = 0; t < PLEAT__TILE; t++)
            for (uint32_t i = 0; i < d; i++) w->s->k[(size_t)(at + t) * d + i] = w->s->k_tile[i * PLEAT__TILE + t];
        memcpy(w->s->v + (size_t)at * d, w->s->v_tile, PLEAT__TILE * d * sizeof(float));
    }
    pleat__block_quantise(&c->blocks, w->s->k, w->s->v, d, &w->s->codes);
}

/* The page of the low side's page `idx`: one of the row's, or one that was high. */
static uint8_t *low_page(work *w, uint32_t idx) {
    const pleat__table *table = &w->seq->table;
    const uint32_t n_own = table->n_pages[PLEAT__LOW][w->lane];
    if (idx < n_own) return w->c->pages + pleat__table_cell(table, w->lane, PLEAT__LOW, idx)->v * w->c->page_bytes;
    if (idx - n_own == w->n_taken) {
        assert(w->n_taken < w->n_empty);
        w->s->pages[w->n_taken] = *pleat__table_cell(table, w->lane, PLEAT__HIGH, w->n_taken);
        w->n_taken++;
    }
    return w->c->pages + w->s->pages[idx - n_own].v * w->c->page_bytes;
}

/* Write n bytes behind the low side's. */
static void append(work *w, const uint8_t *bytes, size_t n) {
    uint64_t at = (uint64_t)w->low_end * PLEAT__BLOCK_ALIGN;
    w->low_end += (uint32_t)((n + PLEAT__BLOCK_ALIGN - 1) / PLEAT__BLOCK_ALIGN);
    while (n > 0) {
        const uint64_t in_page = at % w->c->page_bytes, room = w->c->page_bytes - in_page;
        const size_t n_here = n < room ? n : (size_t)room;
        memcpy(low_page(w, (uint32_t)(at / w->c->page_bytes)) + in_page, bytes, n_here);
        at += n_here;
        bytes += n_here;
        n -= n_here;
    }
}

/* The row without the pages that are empty; what is left of these stands behind, for trim to give back. */
static void close_row(work *w) {
    pleat__table *table = &w->seq->table;
    const uint32_t n_high = table->n_pages[PLEAT__HIGH][w->lane], n_left = w->n_empty - w->n_taken;
    for (uint32_t i = 0; i < n_left; i++)
        w->s->left[i] = *pleat__table_cell(table, w->lane, PLEAT__HIGH, w->n_taken + i);
    for (uint32_t i = w->n_empty; i < n_high; i++)
        *pleat__table_cell(table, w->lane, PLEAT__HIGH, i - w->n_empty) =
            *pleat__table_cell(table, w->lane, PLEAT__HIGH, i);
    for (uint32_t i = 0; i < n_left; i++)
        *pleat__table_cell(table, w->lane, PLEAT__HIGH, n_high - w->n_empty + i) = w->s->left[i];
    table->n_pages[PLEAT__HIGH][w->lane] = n_high - w->n_taken;
    for (uint32_t i = 0; i < w->n_taken; i++)
        *pleat__table_cell(table, w->lane, PLEAT__LOW, table->n_pages[PLEAT__LOW][w->lane]++) = w->s->pages[i];
    table->n_slots[PLEAT__HIGH][w->lane] -= w->n_empty * w->high.layout->tokens;
    table->n_slots[PLEAT__LOW][w->lane] = w->low_end;
}

/* Blocks of the item's sequence that are due. */
static uint32_t count_due(const pleat_cache *c, const pleat__step_item *item) {
    return (item->n_classed_after - item->seq->n_classed) / c->blocks.tokens;
}

/* Codebooks from all blocks that are due in the layer. */
static void make_books(const pleat_cache *c, const pleat__step_item *item, uint32_t layer, pleat__block_scratch *s) {
    const uint32_t n_vectors = pleat__block_vectors(&c->blocks);
    memset(s->counts, 0, 2 * sizeof *s->counts);
    for (uint32_t head = 0; head < c->opt.n_kv_heads; head++) {
        const work w = work_on(c, item, pleat__cache_lane_of(c, layer, head), s);
        for (uint32_t i = 0; i < count_due(c, item); i++) {
            quantise(&w, i);
            pleat__code_counts_add(&s->counts[0], s->codes.k, n_vectors, c->blocks.k_levels);
            pleat__code_counts_add(&s->counts[1], s->codes.v, n_vectors, c->blocks.v_levels);
        }
    }
    pleat__book_build(&item->seq->books[layer].k, &s->counts[0], c->blocks.k_levels);
    pleat__book_build(&item->seq->books[layer].v, &s->counts[1], c->blocks.v_levels);
}

void pleat__cache_compress_layer(const pleat_cache *c, const pleat__step_item *item, uint32_t layer,
                                 pleat__block_scratch *s) {
    const pleat__block_books *books = c->has_books ? &item->seq->books[layer] : NULL;
    const uint32_t n_due = count_due(c, item), first = item->seq->n_classed / c->blocks.tokens;
    if (first == 0 && c->has_books) make_books(c, item, layer, s);
    for (uint32_t head = 0; head < c->opt.n_kv_heads; head++) {
        work w = work_on(c, item, pleat__cache_lane_of(c, layer, head), s);
        uint32_t *ends = w.seq->block_ends + (size_t)w.lane * w.seq->blocks_cap;
        for (uint32_t i = 0; i < n_due; i++) {
            quantise(&w, i);
            const size_t n = pleat__block_encode(&c->blocks, books, &s->codes, s->payload);
            w.n_empty = (i + 1) * c->blocks.tokens / w.high.layout->tokens;
            append(&w, s->payload, n);
            ends[first + i] = w.low_end;
        }
        close_row(&w);
    }
}

/* ---- having ----------------------------------------------------------------------------------------------- */

pleat__block_run pleat__cache_block_run(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane) {
    return (pleat__block_run){.format = &c->blocks,
                              .books = c->has_books ? &seq->books[lane / c->opt.n_kv_heads] : NULL,
                              .base = c->pages,
                              .page_bytes = c->page_bytes,
                              .ids = pleat__table_cell(&seq->table, lane, PLEAT__LOW, 0),
                              .step = pleat__table_step(&seq->table, lane, PLEAT__LOW),
                              .ends = seq->block_ends + (size_t)lane * seq->blocks_cap,
                              .n_blocks = seq->n_classed / c->blocks.tokens};
}

void pleat__cache_share_blocks(const pleat_cache *c, const pleat__sequence *from, pleat__sequence *to) {
    const uint32_t n_blocks = from->n_classed / c->blocks.tokens;
    if (n_blocks == 0) return;
    if (c->has_books) memcpy(to->books, from->books, c->opt.n_layers * sizeof *to->books);
    for (size_t lane = 0; lane < c->n_lanes; lane++)
        memcpy(to->block_ends + lane * to->blocks_cap, from->block_ends + lane * from->blocks_cap,
               n_blocks * sizeof *to->block_ends);
}

bool pleat__cache_blocks_are_valid(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, uint8_t *copy) {
    const pleat__block_run run = pleat__cache_block_run(c, seq, lane);
    if (seq->n_classed % c->blocks.tokens != 0) return false;
    for (uint32_t i = 0; i < run.n_blocks; i++) {
        if (run.ends[i] <= (i > 0 ? run.ends[i - 1] : 0)) return false;
        pleat__block_reader reader;
        size_t n_bytes;
        const uint8_t *payload = pleat__block_fetch(&run, i, copy, &n_bytes);
        if (!pleat__block_is_intact(payload, n_bytes)) return false;
        if (pleat__block_open(&c->blocks, run.books, payload, n_bytes, copy, &reader) != PLEAT_OK) return false;
    }
    return seq->table.n_slots[PLEAT__LOW][lane] == (run.n_blocks > 0 ? run.ends[run.n_blocks - 1] : 0);
}
