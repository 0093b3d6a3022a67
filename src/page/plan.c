/* SPDX-License-Identifier: MIT
 *
 * plan.c: plan, prefix sum, commit, and what goes back.  See plan.h.
 *
 * Few steps move many pages: a step of generation looks at all lanes, and one in page_tokens takes a page.  So planning
 * counts a block of lanes at once and looks at single ones only where some need pages and some do not.  Commit goes to
 * the lanes whose bits are set, and copies a cache line of ids where a whole block takes pages side by side.
 *
 * Loops over a block have a fixed count and no branch, so that compilers turn them into vector instructions (gcc 12 at
 * -O2).  What a lane costs then is the reading of its counts, 12 bytes, and of its id.  One thread plans and commits
 * 32,768 lanes that all take a page in 41 us when their counts are in its L2 cache and in 60 when they are not.  (It
 * took 102 and 128 before: a record for each lane, cells row by row.)  A second thread, which first has to fetch the
 * counts from the first one's cache, made it no faster (2026-11).
 */
#include "page/plan.h"

#include <assert.h>
#include <string.h>

enum { WORD_LANES = 64, BLOCK = PLEAT__ROW_BLOCK };
_Static_assert(WORD_LANES % BLOCK == 0, "words are whole blocks");

static uint32_t n_words_of(uint32_t n_lanes) { return pleat__div_up_u32(n_lanes, WORD_LANES); }

void pleat__plan_carve(pleat__plan *plan, uint32_t part_cap, uint32_t lane_cap, pleat__arena *arena) {
    plan->part_cap = part_cap;
    plan->word_cap = n_words_of(lane_cap) + part_cap; /* every table may end in a part-filled word */
    plan->parts = pleat__arena_take(arena, part_cap, sizeof *plan->parts);
    plan->words = pleat__arena_take(arena, plan->word_cap, sizeof *plan->words);
}

/* ---- plan ---------------------------------------------------------------------------------------------------------- */

/* No lane can be short of more pages of a side than its new slots fill: it had enough before.  Tables with lanes that may
 * have only so many slots are looked at lane by lane. */
static inline bool needs_many(const pleat__want *want) {
    return want->max_slots || want->n_new[PLEAT__HIGH] > want->page_tokens[PLEAT__HIGH] ||
           want->n_new[PLEAT__LOW] > want->page_tokens[PLEAT__LOW];
}

uint32_t pleat__lane_need(const pleat__table *table, uint32_t lane, pleat__side side, const pleat__want *want) {
    const uint32_t tokens = want->page_tokens[side], most = want->max_slots ? want->max_slots[lane] : UINT32_MAX;
    const uint32_t n_new = most == UINT32_MAX ? want->n_new[side] : side == PLEAT__HIGH ? want->n_new_limited : 0;
    const uint64_t n_have = (uint64_t)table->n_pages[side][lane] * tokens;
    uint64_t n_after = (uint64_t)table->n_slots[side][lane] + n_new;
    assert(table->n_slots[side][lane] <= n_have);
    if (side == PLEAT__HIGH && want->fill_hole) n_after -= (table->hole[lane] != 0) & (n_new > 0);
    if (side == PLEAT__HIGH && n_after > most) n_after = most;
    return n_after > n_have ? pleat__div_up_u32((uint32_t)(n_after - n_have), tokens) : 0;
}

/* 1 if lane i is short of a page of a side.  Slots and pages' slots are below 2^31 (a cache's tokens below 2^25), so
 * the sign of their difference is right.  hole is NULL where holes do not count. */
static inline uint32_t is_short(const uint32_t *n_pages, const uint32_t *n_slots, const uint32_t *hole, uint32_t i,
                                uint32_t tokens, uint32_t n_new) {
    return (n_pages[i] * tokens + (hole && hole[i] != 0) - n_slots[i] - n_new) >> 31;
}

/* The lanes that are short of a page as bits, the first of n lanes in the highest, and how many they are. */
typedef struct shortfall {
    uint64_t bits;
    uint32_t n;
} shortfall;

/* Which of n <= BLOCK lanes from `first` on are short of a page of a side. */
static inline shortfall shortfall_of(const pleat__table *table, uint32_t first, uint32_t n, pleat__side side,
                                     const uint32_t *hole, const pleat__want *want) {
    const uint32_t *n_pages = table->n_pages[side] + first, *n_slots = table->n_slots[side] + first;
    const uint32_t tokens = want->page_tokens[side], n_new = want->n_new[side];
    shortfall here = {0, 0};
    if (n == BLOCK) {
        for (uint32_t i = 0; i < BLOCK; i++) here.n += is_short(n_pages, n_slots, hole, i, tokens, n_new);
        here.bits = here.n == BLOCK ? (1u << BLOCK) - 1 : 0;
        if (here.n == 0 || here.n == BLOCK) return here;
    }
    here.n = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t bit = is_short(n_pages, n_slots, hole, i, tokens, n_new);
        here.bits = 2 * here.bits + bit;
        here.n += bit;
    }
    return here;
}

/* Which of the n <= WORD_LANES lanes from `first` on are short of pages of a side.  Bits count from the
 * word's highest. */
static shortfall plan_word(const pleat__table *table, uint32_t first, uint32_t n, pleat__side side,
                           const pleat__want *want) {
    const uint32_t *hole = side == PLEAT__HIGH && want->fill_hole ? table->hole + first : NULL;
    shortfall sum = {0, 0};
    for (uint32_t at = 0; at < n; at += BLOCK) {
        const uint32_t n_here = pleat__min_u32(BLOCK, n - at);
        const shortfall here = hole ? shortfall_of(table, first + at, n_here, side, hole + at, want)
                                    : shortfall_of(table, first + at, n_here, side, NULL, want);
        sum.bits |= here.bits << (WORD_LANES - at - n_here);
        sum.n += here.n;
    }
    return sum;
}

static uint64_t sum_needs(const pleat__table *table, uint32_t first, uint32_t n, const pleat__want *want) {
    uint64_t sum = 0;
    for (uint32_t i = first; i < first + n; i++)
        sum += (uint64_t)pleat__lane_need(table, i, PLEAT__HIGH, want) + pleat__lane_need(table, i, PLEAT__LOW, want);
    return sum;
}

void pleat__plan_add(pleat__plan *plan, pleat__table *table, const pleat__want *want) {
    assert(plan->n_parts < plan->part_cap && n_words_of(table->n_lanes) <= plan->word_cap - plan->n_words);
    pleat__plan_part *part = &plan->parts[plan->n_parts++];
    *part = (pleat__plan_part){
        .table = table, .want = *want, .first_word = plan->n_words, .many = needs_many(want), .first = plan->total};
    for (uint32_t first = 0; first < table->n_lanes; first += WORD_LANES) {
        const uint32_t n = pleat__min_u32(WORD_LANES, table->n_lanes - first);
        pleat__plan_word *word = &plan->words[plan->n_words++];
        for (int side = PLEAT__HIGH; side <= PLEAT__LOW; side++) {
            shortfall here = {0, 0};
            if (want->n_new[side] > 0) here = plan_word(table, first, n, (pleat__side)side, want);
            word->needs[side] = here.bits;
            part->n_pages += here.n;
        }
    }
    if (part->many) part->n_pages = sum_needs(table, 0, table->n_lanes, want);
    plan->total += part->n_pages;
}

bool pleat__plan_fits(const pleat__plan *plan, const pleat__pool *pool) { return plan->total <= pool->n_free; }

/* ---- commit -------------------------------------------------------------------------------------------------------- */

/* Append all that the side needs, which is at least one page. */
static inline void append(const pleat__plan_part *part, uint32_t lane, pleat__side side, pleat__pool_taker *taker) {
    const pleat__table *table = part->table;
    const uint32_t n = part->many ? pleat__lane_need(table, lane, side, &part->want) : 1;
    pleat__page_id *cell = pleat__table_cell(table, lane, side, table->n_pages[side][lane]);
    const int32_t step = pleat__table_step(table, lane, side);
    assert((uint64_t)table->n_pages[PLEAT__HIGH][lane] + table->n_pages[PLEAT__LOW][lane] + n <= table->row_len);
    table->n_pages[side][lane] += n;
    for (uint32_t i = 0; i < n; i++, cell += step) *cell = pleat__pool_take(taker);
}

/* All lanes of a whole block take one page of the high side.  Where they stand at one index, as in a sequence whose
 * lanes have lost no token, their cells are one line.  False: not so, nothing is done. */
static inline bool append_line(const pleat__table *table, uint32_t first, pleat__pool_taker *taker) {
    uint32_t *n_pages = table->n_pages[PLEAT__HIGH] + first, differ = 0;
    for (uint32_t i = 0; i < BLOCK; i++) differ |= n_pages[i] ^ n_pages[0];
    const pleat__page_id *ids = differ ? NULL : pleat__pool_take_run(taker, BLOCK);
    if (!ids) return false;
    memcpy(pleat__table_cell(table, first, PLEAT__HIGH, n_pages[0]), ids, BLOCK * sizeof *ids);
    for (uint32_t i = 0; i < BLOCK; i++) n_pages[i]++;
    return true;
}

/* The lanes of a block whose bits are set take pages; the first lane's bits are the highest of n. */
static void commit_block(const pleat__plan_part *part, uint32_t first, uint32_t n, uint32_t high, uint32_t low,
                         pleat__pool_taker *taker) {
    for (uint32_t left = high | low; left != 0;) {
        const uint32_t i = n - 1 - (31 - (uint32_t)__builtin_clz(left)), bit = 1u << (n - 1 - i);
        if (high & bit) append(part, first + i, PLEAT__HIGH, taker);
        if (low & bit) append(part, first + i, PLEAT__LOW, taker);
        left ^= bit;
    }
}

/* Likewise the n <= WORD_LANES lanes of a word. */
static inline void commit_word(const pleat__plan_part *part, uint32_t first, uint32_t n, const pleat__plan_word *word,
                               pleat__pool_taker *taker) {
    const uint32_t all = (1u << BLOCK) - 1;
    for (uint32_t at = 0; at < n; at += BLOCK) {
        const uint32_t n_here = pleat__min_u32(BLOCK, n - at), shift = WORD_LANES - at - n_here;
        const uint32_t mask = (1u << n_here) - 1;
        const uint32_t high = (uint32_t)(word->needs[PLEAT__HIGH] >> shift) & mask;
        const uint32_t low = (uint32_t)(word->needs[PLEAT__LOW] >> shift) & mask;
        const bool may_be_line = high == all && low == 0 && !part->many;
        if (!may_be_line || !append_line(part->table, first + at, taker))
            commit_block(part, first + at, n_here, high, low, taker);
    }
}

void pleat__plan_commit_part(const pleat__plan *plan, uint32_t part_idx, pleat__pool *pool) {
    const pleat__plan_part *part = &plan->parts[part_idx];
    pleat__table *table = part->table;
    pleat__pool_taker taker = pleat__pool_taker_at(pool, part->first);
    const pleat__plan_word *word = plan->words + part->first_word;
    for (uint32_t first = 0; first < table->n_lanes; first += WORD_LANES, word++)
        if (word->needs[PLEAT__HIGH] | word->needs[PLEAT__LOW])
            commit_word(part, first, pleat__min_u32(WORD_LANES, table->n_lanes - first), word, &taker);
    table->n_pages_all += part->n_pages;
}

void pleat__plan_commit(const pleat__plan *plan, pleat__pool *pool) {
    if (plan->total == 0) return;
    for (uint32_t part = 0; part < plan->n_parts; part++) pleat__plan_commit_part(plan, part, pool);
    pleat__pool_advance(pool, (uint32_t)plan->total);
}

/* ---- return -------------------------------------------------------------------------------------------------------- */

/* Drop the lane's references to the pages past its first n_keep of a side, the last page first.  How many they were. */
static inline uint32_t return_pages(const pleat__table *table, uint32_t lane, pleat__side side, uint32_t n_keep,
                                    pleat__pool_returns *returns) {
    const uint32_t n = table->n_pages[side][lane];
    if (n <= n_keep) return 0; /* most lanes: no store */
    const pleat__page_id *cell = pleat__table_cell(table, lane, side, n - 1);
    const int32_t step = pleat__table_step(table, lane, side);
    for (uint32_t i = n_keep; i < n; i++, cell -= step) pleat__pool_return(returns, *cell);
    table->n_pages[side][lane] = n_keep;
    return n - n_keep;
}

void pleat__lane_return_pages(pleat__table *table, uint32_t lane, pleat__side side, uint32_t n_keep,
                              pleat__pool *pool) {
    pleat__pool_returns returns = pleat__pool_returns_begin(pool);
    table->n_pages_all -= return_pages(table, lane, side, n_keep, &returns);
    pleat__pool_returns_end(pool, &returns);
}

static inline uint32_t trim_side(const pleat__table *table, uint32_t lane, pleat__side side, uint32_t tokens,
                                 pleat__pool_returns *returns) {
    const uint32_t n_slots = table->n_slots[side][lane];
    const uint64_t n_have = (uint64_t)table->n_pages[side][lane] * tokens;
    if (n_have < (uint64_t)n_slots + tokens) return 0; /* the last page is in use, or there is none */
    return return_pages(table, lane, side, pleat__div_up_u32(n_slots, tokens), returns);
}

/* May one of a whole block's lanes have a page of the side too many? */
static inline bool may_trim(const pleat__table *table, uint32_t first, pleat__side side, uint32_t tokens) {
    const uint32_t *n_pages = table->n_pages[side] + first, *n_slots = table->n_slots[side] + first;
    uint32_t n_kept = 0;
    for (uint32_t i = 0; i < BLOCK; i++) n_kept += is_short(n_pages, n_slots, NULL, i, tokens, tokens);
    return n_kept < BLOCK;
}

void pleat__table_trim(pleat__table *table, const uint32_t page_tokens[2], pleat__pool *pool) {
    const uint32_t high = page_tokens[PLEAT__HIGH], low = page_tokens[PLEAT__LOW];
    pleat__pool_returns returns = pleat__pool_returns_begin(pool);
    for (uint32_t first = 0; first < table->n_lanes; first += BLOCK) {
        const uint32_t n = pleat__min_u32(BLOCK, table->n_lanes - first);
        if (n == BLOCK && !may_trim(table, first, PLEAT__HIGH, high) && !may_trim(table, first, PLEAT__LOW, low))
            continue;
        for (uint32_t lane = first; lane < first + n; lane++) {
            table->n_pages_all -= trim_side(table, lane, PLEAT__HIGH, high, &returns);
            table->n_pages_all -= trim_side(table, lane, PLEAT__LOW, low, &returns);
        }
    }
    pleat__pool_returns_end(pool, &returns);
}

/* All pages of a side of a block of n lanes, which stand in one piece where the lanes hold equally many. */
static void clear_side(const pleat__table *table, uint32_t first, uint32_t n, pleat__side side,
                       pleat__pool_returns *returns) {
    const uint32_t *n_pages = table->n_pages[side] + first;
    uint32_t differ = 0;
    for (uint32_t i = 0; i < n; i++) differ |= n_pages[i] ^ n_pages[0];
    if (!differ && n_pages[0] == 0) return;
    const uint32_t lowest = side == PLEAT__HIGH ? 0 : n_pages[0] - 1; /* the page whose cells come first */
    if (!differ && pleat__pool_return_run(returns, pleat__table_cell(table, first, side, lowest), n * n_pages[0]))
        return;
    for (uint32_t lane = first; lane < first + n; lane++) return_pages(table, lane, side, 0, returns);
}

void pleat__table_clear(pleat__table *table, pleat__pool *pool) {
    pleat__pool_returns returns = pleat__pool_returns_begin(pool);
    for (uint32_t first = 0; first < table->n_lanes; first += BLOCK) {
        const uint32_t n = pleat__min_u32(BLOCK, table->n_lanes - first);
        clear_side(table, first, n, PLEAT__HIGH, &returns);
        clear_side(table, first, n, PLEAT__LOW, &returns);
    }
    pleat__pool_returns_end(pool, &returns);
    pleat__table_init(table);
}
