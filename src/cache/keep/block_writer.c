/* SPDX-License-Identifier: MIT
 *
 * block_writer.c: cold tokens of a lane become compressed blocks at the end of a step; blocks.c has the picture of a
 * row.
 *
 * A block takes block.tokens / page_tokens whole high pages, and its payload is no larger than they are, which derive
 * has checked.  So the low pages that payloads need are those that they have emptied: ceil(payloads / page) <= emptied
 * ones.  Compressing needs no page from the pool, but for copies of shared ones at begin:
 *
 *     high pages    | sinks | taken as low | empty | not compressed |
 *     then          | sinks | not compressed | empty |            and trim returns what is empty
 *
 * Sinks stand before the first token of a block, and their number need not be a multiple of a page: then a block begins
 * and ends in the middle of a page.  When one has been quantised, its last tokens have left the first slots of the page
 * that it ended in.  The sinks of the page that it began in move there (S: sinks, T: a block of two pages):
 *
 *     pages         | S T T T | T T T T | T b b b | b b                 | T T T T | T T T T | S b b b | b b
 *
 * From that page on the row is as if the block had never been.
 *
 * The first blocks of a sequence make its codebooks: of each layer, from the codes of all its heads (KVComp, section
 * 3.2).  What is decoded does not depend on them, so that a sequence on a shared prefix has the bits that it would have
 * alone.
 */
#include "cache/keep/block_writer.h"

#include <assert.h>
#include <string.h>

#include "cache/keep/promise.h"

#define FINER 4u /* levels of an octave */

/* One lane being compressed. */
typedef struct work {
    const pleat_cache *c;
    pleat__sequence *seq;
    uint32_t lane;
    pleat__block_scratch *s;
    pleat__kv_run high; /* as the step left it */
    uint32_t n_stay;    /* high pages of sinks alone */
    uint32_t n_empty;   /* high pages behind those that are compressed */
    uint32_t n_taken;   /* emptied pages that are low now: their ids are in s->pages */
    uint32_t low_end;   /* slots of the low side */
} work;

static work work_on(const pleat_cache *c, const pleat__step_item *item, uint32_t lane, pleat__block_scratch *s) {
    const pleat__table *table = &item->seq->table;
    return (work){.c = c,
                  .seq = item->seq,
                  .lane = lane,
                  .s = s,
                  .high = pleat__cache_run(c, table, lane, PLEAT__HIGH, table->n_slots[PLEAT__HIGH][lane]),
                  .n_stay = c->opt.spec.sinks / c->page_tokens[PLEAT__HIGH],
                  .low_end = table->n_slots[PLEAT__LOW][lane]};
}

/* Load the tokens of slots [from, to), which are in one tile, as rows of the scratch from row `row` on. */
static void load_rows(const work *w, uint32_t from, uint32_t to, uint32_t row) {
    const uint32_t d = w->c->opt.head_dim, tokens = w->high.layout->tokens, first = from % PLEAT__TILE;
    const uint8_t *page = pleat__kv_page(&w->high, from / tokens);
    w->c->quant.load_k(w->high.layout, page, from % tokens / PLEAT__TILE, w->s->k_tile);
    w->c->quant.load_v(w->high.layout, page, from % tokens / PLEAT__TILE, w->s->v_tile);
    for (uint32_t t = 0; t < to - from; t++)
        for (uint32_t i = 0; i < d; i++) w->s->k[(size_t)(row + t) * d + i] = w->s->k_tile[i * PLEAT__TILE + first + t];
    memcpy(w->s->v + (size_t)row * d, w->s->v_tile + (size_t)first * d, (size_t)(to - from) * d * sizeof(float));
}

/* Load block `idx` of those that are due. */
static void load(const work *w, uint32_t idx) {
    const pleat__block_format *format = &w->c->kept.blocks.format;
    const uint32_t first = w->c->opt.spec.sinks + idx * format->tokens, end = first + format->tokens;
    for (uint32_t from = first, to; from < end; from = to) {
        to = pleat__min_u32(end, from - from % PLEAT__TILE + PLEAT__TILE);
        load_rows(w, from, to, from - first);
    }
}

static void quantise(const work *w, uint32_t idx) {
    load(w, idx);
    pleat__block_quantise(&w->c->kept.blocks.format, w->s->k, w->s->v, w->c->opt.head_dim, &w->s->codes);
}

/* How fine a block is at most, and its bytes at most. */
typedef struct fit {
    uint32_t level;
    size_t room;
} fit;

/* A block that begins within the spec's first `fine` tokens is an octave finer. */
static uint32_t level_of(const work *w, uint32_t block, uint32_t level) {
    const uint64_t first = (uint64_t)block * w->c->kept.blocks.format.tokens;
    return first < w->c->opt.spec.fine ? level - FINER : level;
}

/* The payload of block `idx` of those that are due, which is the lane's block `block`; returns its bytes. */
static size_t encode(const work *w, uint32_t idx, uint32_t block, const pleat__block_codebooks *codebooks,
                     const fit *within) {
    const pleat_cache *c = w->c;
    if (c->kept.blocks.rd) {
        load(w, idx);
        return pleat__rd_encode_within(&c->kept.blocks.rd[pleat__full_lane_idx(c, w->lane)], block, w->s->k, w->s->v,
                                       c->opt.head_dim, level_of(w, block, within->level), within->room, w->s->rd,
                                       w->s->payload);
    }
    quantise(w, idx);
    return pleat__block_encode(&c->kept.blocks.format, codebooks, &w->s->codes, w->s->payload);
}

/* Move the sinks of the page that block `idx` began in to the one that it ended in. */
static void move_sinks(const work *w, uint32_t idx) {
    const uint32_t tokens = w->high.layout->tokens, block_pages = w->c->kept.blocks.format.tokens / tokens;
    const uint32_t from = w->n_stay + idx * block_pages;
    for (uint32_t slot = 0; slot < w->c->opt.spec.sinks % tokens; slot++)
        pleat__quant_copy(w->high.layout, pleat__kv_page(&w->high, from + block_pages), slot,
                          pleat__kv_page(&w->high, from), slot);
}

/* The page of the low side's page `idx`: one of the row's, or one that was high. */
static uint8_t *low_page(work *w, uint32_t idx) {
    const pleat__table *table = &w->seq->table;
    const uint32_t n_own = table->n_pages[PLEAT__LOW][w->lane];
    if (idx < n_own) return w->c->pages + pleat__table_cell(table, w->lane, PLEAT__LOW, idx)->v * w->c->page_bytes;
    if (idx - n_own == w->n_taken) {
        assert(w->n_taken < w->n_empty);
        w->s->pages[w->n_taken] = *pleat__table_cell(table, w->lane, PLEAT__HIGH, w->n_stay + w->n_taken);
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

/* The row without the pages that are empty; what is left of these stands behind, for trim to return. */
static void close_row(work *w) {
    pleat__table *table = &w->seq->table;
    const uint32_t n_high = table->n_pages[PLEAT__HIGH][w->lane], n_left = w->n_empty - w->n_taken;
    for (uint32_t i = 0; i < n_left; i++)
        w->s->left[i] = *pleat__table_cell(table, w->lane, PLEAT__HIGH, w->n_stay + w->n_taken + i);
    for (uint32_t i = w->n_stay + w->n_empty; i < n_high; i++)
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
    return (item->end.n_classed - item->seq->n_classed) / c->kept.blocks.format.tokens;
}

/* Codebooks from all blocks that are due in the layer. */
static void make_codebooks(const pleat_cache *c, const pleat__step_item *item, uint32_t layer,
                           pleat__block_scratch *s) {
    const uint32_t n_vectors = pleat__block_vectors(&c->kept.blocks.format);
    memset(s->counts, 0, 2 * sizeof *s->counts);
    for (uint32_t head = 0; head < c->opt.n_kv_heads; head++) {
        const work w = work_on(c, item, pleat__cache_lane_of(c, layer, head), s);
        for (uint32_t i = 0; i < count_due(c, item); i++) {
            quantise(&w, i);
            pleat__code_counts_add(&s->counts[0], s->codes.k, n_vectors, c->kept.blocks.format.k_levels);
            pleat__code_counts_add(&s->counts[1], s->codes.v, n_vectors, c->kept.blocks.format.v_levels);
        }
    }
    pleat__block_codebooks_build(&c->kept.blocks.format, &s->counts[0], &s->counts[1],
                                 &item->seq->blocks.codebooks[pleat__full_idx(c, layer)]);
}

/* Write n blocks of a lane, of which `first` is the first. */
static void write_lane(const pleat_cache *c, const pleat__step_item *item, uint32_t lane, uint32_t first, uint32_t n,
                       const pleat__block_codebooks *codebooks, const fit *within, pleat__block_scratch *s) {
    work w = work_on(c, item, lane, s);
    uint32_t *ends = w.seq->blocks.ends + (size_t)pleat__full_lane_idx(c, lane) * w.seq->blocks.cap;
    for (uint32_t i = 0; i < n; i++) {
        const size_t n_bytes = encode(&w, i, first + i, codebooks, within);
        move_sinks(&w, i);
        w.n_empty = (i + 1) * c->kept.blocks.format.tokens / w.high.layout->tokens;
        append(&w, s->payload, n_bytes);
        ends[first + i] = w.low_end;
    }
    close_row(&w);
}

void pleat__write_blocks(const pleat_cache *c, const pleat__step_item *item, uint32_t layer, pleat__block_scratch *s) {
    const pleat__block_codebooks *codebooks =
        c->kept.blocks.has_codebooks ? &item->seq->blocks.codebooks[pleat__full_idx(c, layer)] : NULL;
    const uint32_t n_due = count_due(c, item), first = item->seq->n_classed / c->kept.blocks.format.tokens;
    const fit any = {PLEAT__RD_SAME_LEVEL, SIZE_MAX};
    if (first == 0 && c->kept.blocks.has_codebooks) make_codebooks(c, item, layer, s);
    for (uint32_t head = 0; head < c->opt.n_kv_heads; head++)
        write_lane(c, item, pleat__cache_lane_of(c, layer, head), first, n_due, codebooks, &any, s);
}

/* ---- under a promise ----------------------------------------------------------------------------- */

static uint64_t count_slots(const pleat_cache *c, const uint32_t *n_slots) {
    uint64_t sum = 0;
    for (uint32_t lane = 0; lane < c->n_lanes; lane++) sum += pleat__cache_is_ring(c, lane) ? 0 : n_slots[lane];
    return sum;
}

void pleat__write_promised_blocks(const pleat_cache *c, const pleat__step_item *item, pleat__block_scratch *s) {
    const uint32_t n_due = count_due(c, item), first = item->seq->n_classed / c->kept.blocks.format.tokens;
    const uint32_t *n_slots = item->seq->table.n_slots[PLEAT__LOW];
    for (uint32_t i = 0; i < n_due; i++) {
        pleat__promise_row row = pleat__promise_open_row(c, first + i, n_slots);
        const uint32_t level = pleat__promise_level(c, first + i, count_slots(c, n_slots));
        for (uint32_t lane = 0; lane < c->n_lanes; lane++) {
            if (pleat__cache_is_ring(c, lane)) continue;
            const uint32_t before = n_slots[lane];
            const size_t room = (size_t)pleat__promise_room(c, &row, before) * PLEAT__BLOCK_ALIGN;
            write_lane(c, item, lane, first + i, 1, NULL, &(fit){level, room}, s);
            pleat__promise_take(c, &row, before, n_slots[lane]);
        }
    }
}
