/* SPDX-License-Identifier: MIT
 *
 * plan.c: plan, prefix sum, commit, and what goes back.  See plan.h.
 *
 * Few steps move many pages: a step of generation looks at all lanes and gives pages to one in page_tokens.  So planning
 * reads each lane's record once and leaves bits, without a branch or a division where a lane can lack one page at most;
 * commit goes to the lanes whose bits are set, in one plain loop where all are.  There a lane costs its record, a cell
 * of its row and its page's count, a cache line each.
 */
#include "page/plan.h"

#include <assert.h>

enum { WORD_LANES = 64 };

static uint32_t n_words_of(uint32_t n_lanes) { return pleat__div_up_u32(n_lanes, WORD_LANES); }

void pleat__plan_carve(pleat__plan *plan, uint32_t part_cap, uint32_t lane_cap, pleat__arena *arena) {
    plan->part_cap = part_cap;
    plan->word_cap = n_words_of(lane_cap) + part_cap; /* every table may end in a part-filled word */
    plan->parts = pleat__arena_take(arena, part_cap, sizeof *plan->parts);
    plan->words = pleat__arena_take(arena, plan->word_cap, sizeof *plan->words);
}

/* ---- plan ---------------------------------------------------------------------------------------------------------- */

/* Nobody can lack more pages of a side than its new slots fill: it had enough before. */
static inline bool needs_many(const pleat__want *want) {
    return want->n_new[PLEAT__HIGH] > want->page_tokens[PLEAT__HIGH] ||
           want->n_new[PLEAT__LOW] > want->page_tokens[PLEAT__LOW];
}

/* pleat__lane_need().  `many` is a constant where this is called: without it the answer is 0 or 1. */
static inline uint32_t need_of(const pleat__lane *lane, pleat__side side, const pleat__want *want, bool many) {
    const uint32_t tokens = want->page_tokens[side];
    const uint64_t n_have = (uint64_t)lane->n_pages[side] * tokens;
    uint64_t n_after = (uint64_t)lane->n_slots[side] + want->n_new[side];
    assert(lane->n_slots[side] <= n_have);
    if (side == PLEAT__HIGH && want->fill_hole) n_after -= (lane->hole != 0) & (want->n_new[side] > 0);
    if (!many) return n_after > n_have;
    return n_after > n_have ? pleat__div_up_u32((uint32_t)(n_after - n_have), tokens) : 0;
}

uint32_t pleat__lane_need(const pleat__lane *lane, pleat__side side, const pleat__want *want) {
    return need_of(lane, side, want, true);
}

/* Count the pages that n <= WORD_LANES lanes need and mark who needs some, the first lane in the highest bit. */
static inline uint64_t plan_word(const pleat__lane *lanes, uint32_t n, const pleat__want *want, bool low, bool many,
                                 pleat__plan_word *out) {
    uint64_t bits[2] = {0, 0}, sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t need = need_of(&lanes[i], PLEAT__HIGH, want, many);
        bits[PLEAT__HIGH] = 2 * bits[PLEAT__HIGH] + (need != 0);
        sum += need;
        if (!low) continue;
        const uint32_t need_low = need_of(&lanes[i], PLEAT__LOW, want, many);
        bits[PLEAT__LOW] = 2 * bits[PLEAT__LOW] + (need_low != 0);
        sum += need_low;
    }
    for (int side = 0; side < 2; side++) out->needs[side] = bits[side] << (WORD_LANES - n);
    return sum;
}

void pleat__plan_add(pleat__plan *plan, pleat__table *table, const pleat__want *want) {
    assert(plan->n_parts < plan->part_cap && n_words_of(table->n_lanes) <= plan->word_cap - plan->n_words);
    pleat__plan_part *part = &plan->parts[plan->n_parts++];
    *part = (pleat__plan_part){
        .table = table, .want = *want, .first_word = plan->n_words, .many = needs_many(want), .first = plan->total};
    const bool low = want->n_new[PLEAT__LOW] > 0;
    for (uint32_t lane = 0; lane < table->n_lanes; lane += WORD_LANES) {
        const pleat__lane *lanes = table->lanes + lane;
        const uint32_t n = pleat__min_u32(WORD_LANES, table->n_lanes - lane);
        pleat__plan_word *word = &plan->words[plan->n_words++];
        if (part->many)
            plan->total += plan_word(lanes, n, want, true, true, word);
        else if (low)
            plan->total += plan_word(lanes, n, want, true, false, word);
        else
            plan->total += plan_word(lanes, n, want, false, false, word);
    }
}

bool pleat__plan_fits(const pleat__plan *plan, const pleat__pool *pool) { return plan->total <= pool->n_free; }

/* ---- commit -------------------------------------------------------------------------------------------------------- */

/* Append the next free page to a side of the lane. */
static inline void append(const pleat__table *table, pleat__lane *lane, pleat__page_id *row, pleat__side side,
                          pleat__pool_taker *taker) {
    assert((uint64_t)lane->n_pages[PLEAT__HIGH] + lane->n_pages[PLEAT__LOW] < table->row_len);
    const uint32_t idx = lane->n_pages[side]++;
    row[side == PLEAT__HIGH ? idx : table->row_len - 1 - idx] = pleat__pool_take(taker);
}

/* Append all that the side needs, which is at least one. */
static inline void append_need(const pleat__plan_part *part, pleat__lane *lane, pleat__page_id *row, pleat__side side,
                               bool many, pleat__pool_taker *taker) {
    const uint32_t n = many ? need_of(lane, side, &part->want, true) : 1;
    for (uint32_t i = 0; i < n; i++) append(part->table, lane, row, side, taker);
}

/* Each of n lanes takes a page for its high side, and if `low` one for its low side. */
static inline void commit_all(pleat__table *table, uint32_t first, uint32_t n, bool low, pleat__pool_taker *taker) {
    pleat__pool_taker t = *taker; /* in registers */
    pleat__page_id *row = pleat__table_row(table, first);
    for (uint32_t lane = first; lane < first + n; lane++, row += table->row_len) {
        append(table, &table->lanes[lane], row, PLEAT__HIGH, &t);
        if (low) append(table, &table->lanes[lane], row, PLEAT__LOW, &t);
    }
    *taker = t;
}

/* The lanes of a word that need pages take them. */
static inline void commit_some(const pleat__plan_part *part, uint32_t first, const pleat__plan_word *word, bool many,
                               pleat__pool_taker *taker) {
    pleat__pool_taker t = *taker;
    pleat__table *table = part->table;
    uint64_t left = word->needs[PLEAT__HIGH] | word->needs[PLEAT__LOW];
    while (left != 0) {
        const uint32_t i = (uint32_t)__builtin_clzll(left);
        const uint64_t bit = UINT64_C(1) << (WORD_LANES - 1 - i);
        pleat__lane *lane = &table->lanes[first + i];
        pleat__page_id *row = pleat__table_row(table, first + i);
        if (word->needs[PLEAT__HIGH] & bit) append_need(part, lane, row, PLEAT__HIGH, many, &t);
        if (word->needs[PLEAT__LOW] & bit) append_need(part, lane, row, PLEAT__LOW, many, &t);
        left ^= bit;
    }
    *taker = t;
}

void pleat__plan_commit_part(const pleat__plan *plan, uint32_t part_idx, pleat__pool *pool) {
    const pleat__plan_part *part = &plan->parts[part_idx];
    pleat__table *table = part->table;
    pleat__pool_taker taker = pleat__pool_taker_at(pool, part->first);
    const pleat__plan_word *word = plan->words + part->first_word;
    for (uint32_t first = 0; first < table->n_lanes; first += WORD_LANES, word++) {
        const uint32_t n = pleat__min_u32(WORD_LANES, table->n_lanes - first);
        const uint64_t all = UINT64_MAX << (WORD_LANES - n), low = word->needs[PLEAT__LOW];
        if (part->many)
            commit_some(part, first, word, true, &taker);
        else if (word->needs[PLEAT__HIGH] == all && low == 0)
            commit_all(table, first, n, false, &taker);
        else if (word->needs[PLEAT__HIGH] == all && low == all)
            commit_all(table, first, n, true, &taker);
        else
            commit_some(part, first, word, false, &taker);
    }
}

void pleat__plan_commit(const pleat__plan *plan, pleat__pool *pool) {
    if (plan->total == 0) return;
    for (uint32_t part = 0; part < plan->n_parts; part++) pleat__plan_commit_part(plan, part, pool);
    pleat__pool_advance(pool, (uint32_t)plan->total);
}

/* ---- return -------------------------------------------------------------------------------------------------------- */

/* Drop the lane's references to the pages past its first n_keep of a side, the last page first. */
static inline void give_back(pleat__table *table, uint32_t lane, pleat__side side, uint32_t n_keep,
                             pleat__pool_giver *giver) {
    uint32_t n = table->lanes[lane].n_pages[side];
    if (n <= n_keep) return; /* most lanes: no store */
    while (n > n_keep) pleat__pool_give(giver, *pleat__table_cell(table, lane, side, --n));
    table->lanes[lane].n_pages[side] = n;
}

void pleat__lane_give_back(pleat__table *table, uint32_t lane, pleat__side side, uint32_t n_keep, pleat__pool *pool) {
    if (table->lanes[lane].n_pages[side] <= n_keep) return;
    pleat__pool_giver giver = pleat__pool_giver_at_end(pool);
    give_back(table, lane, side, n_keep, &giver);
    pleat__pool_given(pool, &giver);
}

static inline void trim_side(pleat__table *table, uint32_t lane, pleat__side side, uint32_t tokens,
                             pleat__pool_giver *giver) {
    const pleat__lane *l = &table->lanes[lane];
    const uint64_t n_have = (uint64_t)l->n_pages[side] * tokens;
    if (n_have < (uint64_t)l->n_slots[side] + tokens) return; /* the last page is in use, or there is none */
    give_back(table, lane, side, pleat__div_up_u32(l->n_slots[side], tokens), giver);
}

void pleat__table_trim(pleat__table *table, const uint32_t page_tokens[2], pleat__pool *pool) {
    pleat__pool_giver giver = pleat__pool_giver_at_end(pool);
    for (uint32_t lane = 0; lane < table->n_lanes; lane++) {
        trim_side(table, lane, PLEAT__HIGH, page_tokens[PLEAT__HIGH], &giver);
        trim_side(table, lane, PLEAT__LOW, page_tokens[PLEAT__LOW], &giver);
    }
    pleat__pool_given(pool, &giver);
}

void pleat__table_clear(pleat__table *table, pleat__pool *pool) {
    pleat__pool_giver giver = pleat__pool_giver_at_end(pool);
    for (uint32_t lane = 0; lane < table->n_lanes; lane++) {
        give_back(table, lane, PLEAT__HIGH, 0, &giver);
        give_back(table, lane, PLEAT__LOW, 0, &giver);
        table->lanes[lane] = (pleat__lane){0};
    }
    pleat__pool_given(pool, &giver);
}
