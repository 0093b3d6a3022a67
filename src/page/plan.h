/* SPDX-License-Identifier: MIT
 *
 * plan.h: one step's page needs of many lanes, decided before anything is touched; and the return of what they leave.
 *
 *     pleat__plan_begin
 *         pleat__plan_add(table, want)...            per table: each lane's need on both sides, and their sum so far
 *     pleat__plan_fits                               does the pool have enough?
 *     pleat__plan_commit                             cannot fail: a table's lanes take pages from the table's sum on
 *     ...
 *     pleat__table_trim                              after the step: pages that no slot needs go back
 *
 * The plan is const towards pools and tables; a plan that does not fit is forgotten and has cost nothing.  A table may
 * stand in it once, and is left alone until commit.  The prefix sum is kept for each table: its lanes take their pages
 * one after the other, a lane's high pages before its low pages, and tables may do so in any order or at once.  Ids
 * depend on the order of the tables and lanes alone, so they are the same for any thread count (and on any device).
 * LeanKV, section 5.3: planning, coordination, commit.
 */
#ifndef PLEAT_PAGE_PLAN_H
#define PLEAT_PAGE_PLAN_H

#include "page/table.h"

/* What every lane of a table wants: room for n_new more slots on each side.  Lanes that have so many slots at most want
 * room for n_new_limited high ones, or for as many as they may have, and none on the low side. */
typedef struct pleat__want {
    uint32_t n_new[2];         /* [pleat__side] */
    uint32_t page_tokens[2];   /* slots of a page of each side */
    bool fill_hole;            /* a lane with a hole needs one high slot less */
    const uint32_t *max_slots; /* [n_lanes] high slots that a lane has at most, UINT32_MAX: any number; NULL: likewise
                                * in all lanes */
    uint32_t n_new_limited;    /* at most n_new's high ones */
} pleat__want;

/* Pages that the lane's side has too few of to hold want->n_new[side] more slots: (2) and (3) of table.h. */
uint32_t pleat__lane_need(const pleat__table *table, uint32_t lane, pleat__side side, const pleat__want *want);

/* What one table wants. */
typedef struct pleat__plan_part {
    pleat__table *table;
    pleat__want want;
    uint32_t first_word; /* in the plan's words: the one of its first lanes */
    bool many;           /* a lane may need more than one page of a side */
    uint64_t n_pages;    /* pages that its lanes take */
    uint64_t first;      /* pages that the parts before it take */
} pleat__plan_part;

/* 64 lanes of a table: the first is the highest bit. */
typedef struct pleat__plan_word {
    uint64_t needs[2]; /* [pleat__side] 1: the lane needs pages of this side */
} pleat__plan_word;

typedef struct pleat__plan {
    uint32_t part_cap, word_cap;
    uint32_t n_parts, n_words;
    pleat__plan_part *parts; /* [part_cap] */
    pleat__plan_word *words; /* [word_cap] */
    uint64_t total;          /* pages to take in all */
} pleat__plan;

/* Hand out the arrays for at most part_cap tables with at most lane_cap lanes in all. */
void pleat__plan_carve(pleat__plan *plan, uint32_t part_cap, uint32_t lane_cap, pleat__arena *arena);

static inline void pleat__plan_begin(pleat__plan *plan) {
    plan->n_parts = plan->n_words = 0;
    plan->total = 0;
}

/* Each lane of `table` wants what `want` says.  The caller has checked that the rows have room and that the
 * caps hold. */
void pleat__plan_add(pleat__plan *plan, pleat__table *table, const pleat__want *want);

/* Has the pool enough free pages? */
bool pleat__plan_fits(const pleat__plan *plan, const pleat__pool *pool);

/* Take the pages: append them to the sides of each lane. */
void pleat__plan_commit(const pleat__plan *plan, pleat__pool *pool);

/* The share of one part.  Different parts may run in any order or at once; then pleat__pool_advance(total). */
void pleat__plan_commit_part(const pleat__plan *plan, uint32_t part_idx, pleat__pool *pool);

/* Drop the lane's references to the pages past its first n_keep of a side, the last page first. */
void pleat__lane_return_pages(pleat__table *table, uint32_t lane, pleat__side side, uint32_t n_keep, pleat__pool *pool);

/* Return every page that no slot needs, lane by lane, high side first: (2) and (3) of table.h hold again. */
void pleat__table_trim(pleat__table *table, const uint32_t page_tokens[2], pleat__pool *pool);

/* Return every page: every lane is empty.  Their order depends on the tables and on whether any page is shared, never
 * on threads. */
void pleat__table_clear(pleat__table *table, pleat__pool *pool);

#endif
