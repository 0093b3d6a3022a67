/* SPDX-License-Identifier: MIT
 *
 * share.c: sequences on the same pages: fork, the copies that a step makes before it writes, and sealing.
 *
 *     one side of a lane    | sealed ............... | open ......... | behind the last token
 *                             never written again      written by every step under a policy, else only its last page
 *
 *   (1) a page that a step writes has one holder: begin copies those that have more (cache.h's head)
 *   (2) only fork makes second holders, so only a sequence that was forked since its last step has copies due; with
 *       blocks one that ever was: f16 pages stay shared until the step that compresses their tokens and writes there
 *   (3) sealed pages are full, hold tokens whose level is final, and instead of sums of attention received hold its mean:
 *       neither depends on how long the sequence has become since
 */
#include <string.h>

#include "cache/internal.h"
#include "core/error.h"

/* ---- fork ---------------------------------------------------------------------------------------- */

/* Fill an empty table with what another holds; rows may be longer or shorter, but have room. */
static void share_rows(pleat_cache *c, const pleat__table *from, pleat__table *to) {
    for (uint32_t lane = 0; lane < from->n_lanes; lane++) {
        for (int s = PLEAT__HIGH; s <= PLEAT__LOW; s++) {
            const pleat__side side = (pleat__side)s;
            for (uint32_t i = 0; i < from->n_pages[side][lane]; i++) {
                const pleat__page_id id = *pleat__table_cell(from, lane, side, i);
                *pleat__table_cell(to, lane, side, i) = id;
                pleat__pool_ref(&c->pool, id);
            }
            to->n_pages[side][lane] = from->n_pages[side][lane];
            to->n_slots[side][lane] = from->n_slots[side][lane];
            to->n_sealed[side][lane] = from->n_sealed[side][lane];
        }
        to->hole[lane] = from->hole[lane];
        to->n_dead[lane] = from->n_dead[lane];
    }
    to->n_pages_all = from->n_pages_all;
}

pleat_status pleat_cache_fork(pleat_cache *c, pleat_seq handle, uint32_t max_tokens, pleat_seq *out) {
    pleat__sequence *from = c ? pleat__cache_seq(c, handle) : NULL;
    if (!from || !out || max_tokens < 1 || max_tokens < from->n_tokens || max_tokens > c->opt.max_tokens)
        return PLEAT_E_ARG;
    if (c->in_step) return PLEAT_E_STATE;
    pleat__sequence *to;
    PLEAT_TRY(pleat__cache_open_seq(c, max_tokens, &to));
    share_rows(c, &from->table, &to->table);
    to->n_tokens = from->n_tokens;
    to->n_classed = from->n_classed;
    if (c->has_blocks) pleat__cache_share_blocks(c, from, to);
    to->n_prompt = from->n_prompt;
    to->n_pages_peak = to->table.n_pages_all;
    to->spec = from->spec;
    from->copies_due = to->copies_due = true;
    *out = pleat__cache_handle(c, to);
    return PLEAT_OK;
}

/* ---- copies -------------------------------------------------------------------------------------- */

uint32_t pleat__cache_first_written(const pleat_cache *c, const pleat__table *table, uint32_t lane, pleat__side side) {
    if (c->layouts[side].tracked) return table->n_sealed[side][lane];
    if (pleat__cache_ring(c, lane)) return 0;
    if (c->has_blocks && side == PLEAT__HIGH) return 0; /* payloads go into pages that their tokens leave */
    return table->n_slots[side][lane] / c->page_tokens[side];
}

/* Call visit for the cell of each page that a step of the sequence may write and others hold; the sum of what it gives.
 * `owner` is the cache for visits that change it. */
typedef uint64_t (*visit_fn)(pleat_cache *owner, pleat__page_id *cell);

static uint64_t visit_pages(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, pleat__side side,
                            uint32_t from, uint32_t to, pleat_cache *owner, visit_fn visit) {
    uint64_t n = 0;
    for (uint32_t i = from; i < pleat__min_u32(to, seq->table.n_pages[side][lane]); i++) {
        pleat__page_id *cell = pleat__table_cell(&seq->table, lane, side, i);
        if (pleat__pool_is_shared(&c->pool, *cell)) n += visit(owner, cell);
    }
    return n;
}

/* With blocks: high pages that the step empties, which payloads go into, and what stands behind the last token. */
static uint64_t visit_copies(const pleat_cache *c, const pleat__sequence *seq, uint32_t n_emptied, pleat_cache *owner,
                             visit_fn visit) {
    const pleat__table *table = &seq->table;
    uint64_t n = 0;
    for (uint32_t lane = 0; seq->copies_due && c->pool.n_shares > 0 && lane < c->n_lanes; lane++) {
        const uint32_t n_full = table->n_slots[PLEAT__HIGH][lane] / c->page_tokens[PLEAT__HIGH];
        const uint32_t high =
            c->has_blocks ? pleat__max_u32(n_emptied, n_full) : pleat__cache_first_written(c, table, lane, PLEAT__HIGH);
        n += visit_pages(c, seq, lane, PLEAT__HIGH, 0, n_emptied, owner, visit);
        n += visit_pages(c, seq, lane, PLEAT__HIGH, high, UINT32_MAX, owner, visit);
        const uint32_t low = pleat__cache_first_written(c, table, lane, PLEAT__LOW);
        n += visit_pages(c, seq, lane, PLEAT__LOW, low, UINT32_MAX, owner, visit);
    }
    return n;
}

/* High pages of a lane that the item's step empties. */
static uint32_t count_emptied(const pleat_cache *c, const pleat__step_item *item) {
    return c->has_blocks ? (item->n_classed_after - item->seq->n_classed) / c->page_tokens[PLEAT__HIGH] : 0;
}

static uint64_t count_one(pleat_cache *owner, pleat__page_id *cell) {
    (void)owner;
    (void)cell;
    return 1;
}

uint64_t pleat__cache_count_copies(const pleat_cache *c, const pleat__step_item *item) {
    return visit_copies(c, item->seq, count_emptied(c, item), NULL, count_one);
}

/* How many of the step's items hold a page is counted in the upper half of its count of shares, for a moment: both are
 * below 65,536, as sequences are. */
static uint64_t note_holder(pleat_cache *c, pleat__page_id *cell) {
    c->pool.shares[cell->v] += 1u << 16;
    return 0;
}

static uint64_t count_holders(pleat_cache *c, pleat__page_id *cell) {
    uint32_t *shares = &c->pool.shares[cell->v];
    const uint32_t n_holders = *shares >> 16;
    if (n_holders == 0) return 0; /* counted with the first of them */
    *shares &= 0xffffu;
    return pleat__min_u32(n_holders, *shares);
}

static uint64_t visit_items(pleat_cache *c, visit_fn visit) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < c->n_items; i++)
        n += visit_copies(c, c->items[i].seq, count_emptied(c, &c->items[i]), c, visit);
    return n;
}

uint64_t pleat__cache_count_step_copies(pleat_cache *c) {
    (void)visit_items(c, note_holder);
    return visit_items(c, count_holders);
}

/* Move the cell to a page of its own with the same bytes. */
static uint64_t copy_page(pleat_cache *c, pleat__page_id *cell) {
    pleat__pool_taker taker = pleat__pool_taker_at(&c->pool, 0);
    const pleat__page_id own = pleat__pool_take(&taker);
    pleat__pool_advance(&c->pool, 1);
    memcpy(c->pages + own.v * c->page_bytes, c->pages + cell->v * c->page_bytes, c->page_bytes);
    pleat__pool_unref(&c->pool, *cell);
    *cell = own;
    return 1;
}

void pleat__cache_make_copies(pleat_cache *c, const pleat__step_item *item) {
    (void)visit_copies(c, item->seq, count_emptied(c, item), c, copy_page);
    item->seq->copies_due &= c->has_blocks; /* what a later step empties may still be shared */
}

/* Pages of a lane's side that both hold, page `ahead` of b being where a's first would stand. */
static uint64_t count_both(const pleat__table *a, const pleat__table *b, uint32_t lane, pleat__side side,
                           uint32_t ahead) {
    const uint32_t n_a = a->n_pages[side][lane], n_b = b->n_pages[side][lane];
    uint64_t n = 0;
    for (uint32_t i = 0; i < n_a && i + ahead < n_b; i++)
        n += pleat__table_cell(a, lane, side, i)->v == pleat__table_cell(b, lane, side, i + ahead)->v;
    return n;
}

uint64_t pleat_cache_pages_shared(const pleat_cache *c, pleat_seq handle_a, pleat_seq handle_b) {
    const pleat__sequence *a = c ? pleat__cache_seq(c, handle_a) : NULL;
    const pleat__sequence *b = c ? pleat__cache_seq(c, handle_b) : NULL;
    if (!a || !b) return 0;
    if (a == b) return a->table.n_pages_all;
    if (a->n_classed < b->n_classed) {
        const pleat__sequence *other = a;
        a = b;
        b = other;
    }
    const uint32_t ahead = c->has_blocks ? (a->n_classed - b->n_classed) / c->page_tokens[PLEAT__HIGH] : 0;
    uint64_t n = 0;
    for (uint32_t lane = 0; c->pool.n_shares > 0 && lane < c->n_lanes; lane++)
        n += count_both(&a->table, &b->table, lane, PLEAT__HIGH, ahead) +
             count_both(&a->table, &b->table, lane, PLEAT__LOW, 0);
    return n;
}

/* ---- seals --------------------------------------------------------------------------------------- */

static uint8_t *page_of(const pleat_cache *c, const pleat__table *table, uint32_t lane, pleat__side side,
                        uint32_t idx) {
    return c->pages + (uint64_t)pleat__table_cell(table, lane, side, idx)->v * c->page_bytes;
}

/* Do all slots of a full page hold tokens before position n_final? */
static bool is_final(const pleat__page_layout *layout, uint8_t *page, uint32_t n_final) {
    const int32_t *positions = pleat__positions(layout, page);
    bool all = true;
    for (uint32_t i = 0; i < layout->tokens; i++) all &= (uint32_t)positions[i] < n_final; /* -1 is not */
    return all;
}

/* Scores of a page from sums to means, or back. */
static void average(const pleat__page_layout *layout, uint8_t *page, uint32_t n_tokens, bool to_mean) {
    const int32_t *positions = pleat__positions(layout, page);
    for (uint32_t i = 0; i < layout->n_scores * layout->tokens; i++) {
        const uint32_t position = (uint32_t)positions[i % layout->tokens];
        float *score = pleat__scores(layout, page) + i;
        *score = to_mean ? pleat__significance(*score, position, n_tokens) : *score * (float)(n_tokens - 1 - position);
    }
}

static void seal_side(const pleat_cache *c, pleat__sequence *seq, uint32_t lane, pleat__side side, uint32_t n_final) {
    const pleat__page_layout *layout = &c->layouts[side];
    pleat__table *table = &seq->table;
    const uint32_t n_full = table->n_slots[side][lane] / layout->tokens;
    uint32_t i = table->n_sealed[side][lane];
    for (; i < n_full; i++) {
        if (!layout->tracked) continue; /* low tokens, all of them classed */
        uint8_t *page = page_of(c, table, lane, side, i);
        if (!is_final(layout, page, n_final)) break;
        average(layout, page, seq->n_tokens, true);
    }
    table->n_sealed[side][lane] = i;
}

void pleat__cache_seal(const pleat_cache *c, pleat__sequence *seq, uint32_t n_final) {
    for (uint32_t lane = 0; lane < c->n_lanes; lane++) {
        seal_side(c, seq, lane, PLEAT__HIGH, n_final);
        seal_side(c, seq, lane, PLEAT__LOW, n_final);
    }
}

void pleat__cache_unseal_lane(const pleat_cache *c, pleat__sequence *seq, uint32_t lane) {
    pleat__table *table = &seq->table;
    for (int s = PLEAT__HIGH; s <= PLEAT__LOW; s++) {
        const pleat__side side = (pleat__side)s;
        uint32_t *n_sealed = &table->n_sealed[side][lane];
        while (*n_sealed > 0 &&
               !pleat__pool_is_shared(&c->pool, *pleat__table_cell(table, lane, side, *n_sealed - 1))) {
            --*n_sealed;
            if (c->layouts[side].tracked)
                average(&c->layouts[side], page_of(c, table, lane, side, *n_sealed), seq->n_tokens, false);
        }
    }
}
