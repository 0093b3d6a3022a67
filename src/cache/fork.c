/* SPDX-License-Identifier: MIT
 *
 * fork.c: sequences on the same pages: fork, and the copies that a step makes before it writes.
 *
 *   (1) a page that a step writes has one holder: begin copies those that have more (cache.h's head)
 *   (2) only fork makes second holders, so only a sequence that was forked since its last step has copies due; where
 *       a kind shares late (traits.shares_late) one that ever was.  Compression is a step without tokens, which writes no
 *       ring: copies of these stay due
 *   (3) which pages a step writes, the kind of lanes says (keep.h)
 */
#include "cache/fork.h"

#include <string.h>

#include "cache/keep/keep.h"
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
    if (c->step.is_open) return PLEAT_E_STATE;
    pleat__sequence *to;
    PLEAT_TRY(pleat__cache_open_seq(c, max_tokens, &to));
    const pleat_status status = c->keep->reserve ? c->keep->reserve(c, to, from->n_classed) : PLEAT_OK;
    if (status != PLEAT_OK) {
        (void)pleat_cache_close(c, pleat__cache_handle(c, to));
        return status;
    }
    share_rows(c, &from->table, &to->table);
    to->n_tokens = from->n_tokens;
    to->n_classed = from->n_classed;
    if (c->keep->fork) c->keep->fork(c, from, to);
    to->n_prompt = from->n_prompt;
    to->n_pages_peak = to->table.n_pages_all;
    to->spec = from->spec;
    from->copies_due = to->copies_due = true;
    *out = pleat__cache_handle(c, to);
    return PLEAT_OK;
}

/* ---- copies -------------------------------------------------------------------------------------- */

/* Call visit for the cell of each page that a step of the sequence may write and others hold; the sum of what it
 * returns.  `owner` is the cache for visits that change it. */
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

static pleat__written written_by(const pleat_cache *c, const pleat__step_item *item, uint32_t lane) {
    const pleat__table *table = &item->seq->table;
    const pleat__keep *keep = pleat__keep_of_lane(c, lane);
    if (keep->written) return keep->written(c, item, lane);
    return (pleat__written){
        .from = {keep->first_written(c, table, lane, PLEAT__HIGH), keep->first_written(c, table, lane, PLEAT__LOW)}};
}

static uint64_t visit_copies(const pleat_cache *c, const pleat__step_item *item, pleat_cache *owner, visit_fn visit) {
    const pleat__sequence *seq = item->seq;
    uint64_t n = 0;
    for (uint32_t lane = 0; seq->copies_due && c->pool.n_shares > 0 && lane < c->n_lanes; lane++) {
        const pleat__written w = written_by(c, item, lane);
        n += visit_pages(c, seq, lane, PLEAT__HIGH, w.high.first, w.high.end, owner, visit);
        n += visit_pages(c, seq, lane, PLEAT__HIGH, w.from[PLEAT__HIGH], UINT32_MAX, owner, visit);
        n += visit_pages(c, seq, lane, PLEAT__LOW, w.from[PLEAT__LOW], UINT32_MAX, owner, visit);
    }
    return n;
}

static uint64_t count_one(pleat_cache *owner, pleat__page_id *cell) {
    (void)owner;
    (void)cell;
    return 1;
}

uint64_t pleat__cache_count_copies(const pleat_cache *c, const pleat__step_item *item) {
    return visit_copies(c, item, NULL, count_one);
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
    for (uint32_t i = 0; i < c->step.n_items; i++) n += visit_copies(c, &c->step.items[i], c, visit);
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
    (void)visit_copies(c, item, c, copy_page);
    const bool leaves_rings = c->ring && item->n_new == 0;
    item->seq->copies_due &= c->traits.shares_late != 0 || leaves_rings;
}

/* Pages of a lane's side that both hold, a having left `more` than b has. */
static uint64_t count_both(const pleat__table *a, const pleat__table *b, uint32_t lane, pleat__side side,
                           pleat__left more) {
    const uint32_t n_a = a->n_pages[side][lane], n_b = b->n_pages[side][lane];
    uint64_t n = 0;
    for (uint32_t i = 0; i < n_a; i++) {
        const uint32_t k = i < more.first ? i : i + more.n;
        n += k < n_b && pleat__table_cell(a, lane, side, i)->v == pleat__table_cell(b, lane, side, k)->v;
    }
    return n;
}

/* High pages that the sequence's tokens have left for good in each full layer's lane. */
static pleat__left left(const pleat_cache *c, const pleat__sequence *seq) {
    return c->keep->left ? c->keep->left(c, seq) : (pleat__left){0};
}

uint64_t pleat_cache_pages_shared(const pleat_cache *c, pleat_seq handle_a, pleat_seq handle_b) {
    const pleat__sequence *a = c ? pleat__cache_seq(c, handle_a) : NULL;
    const pleat__sequence *b = c ? pleat__cache_seq(c, handle_b) : NULL;
    if (!a || !b) return 0;
    if (a == b) return a->table.n_pages_all;
    if (left(c, a).n < left(c, b).n) {
        const pleat__sequence *other = a;
        a = b;
        b = other;
    }
    const pleat__left none = {0}, more = {.first = left(c, a).first, .n = left(c, a).n - left(c, b).n};
    uint64_t n = 0;
    for (uint32_t lane = 0; c->pool.n_shares > 0 && lane < c->n_lanes; lane++)
        n += count_both(&a->table, &b->table, lane, PLEAT__HIGH, pleat__cache_is_ring(c, lane) ? none : more) +
             count_both(&a->table, &b->table, lane, PLEAT__LOW, none);
    return n;
}
