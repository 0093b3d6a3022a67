/* SPDX-License-Identifier: MIT
 *
 * plan.h: one step's page needs of many lanes, decided before anything is touched.
 *
 *     pleat__plan_begin
 *         pleat__plan_add(table, n_new)...           per table: each lane's need, const
 *     pleat__plan_fits                               exclusive prefix sum over lanes; does the pool have enough?
 *     pleat__plan_commit                             cannot fail: lane i takes the pages from offset[i] on
 *
 * The plan is const towards pools and tables; a plan that does not fit is forgotten and has cost nothing.  Ids depend
 * on the order of the tables and lanes alone, so they are the same for any thread count (and on any device).
 * LeanKV, section 5.3: planning, coordination, commit.
 */
#ifndef PLEAT_PAGE_PLAN_H
#define PLEAT_PAGE_PLAN_H

#include "page/table.h"

/* What one table wants. */
typedef struct pleat__plan_part {
    pleat__table *table;
    uint32_t first; /* index of its first lane in the plan */
} pleat__plan_part;

typedef struct pleat__plan {
    uint32_t part_cap, lane_cap;
    uint32_t n_parts, n_lanes;
    pleat__plan_part *parts; /* [part_cap] */
    uint32_t *need;          /* [lane_cap] high pages to take, then their exclusive prefix sum */
    uint64_t total;          /* pages to take in all; valid after pleat__plan_fits */
} pleat__plan;

void pleat__plan_carve(pleat__plan *plan, uint32_t part_cap, uint32_t lane_cap, pleat__arena *arena);

static inline void pleat__plan_begin(pleat__plan *plan) { plan->n_parts = plan->n_lanes = 0; }

/* Each lane of `table` will hold n_new more slots on its high side, in pages of page_tokens.  The caller has checked
 * that the rows have room and that the caps hold. */
void pleat__plan_add(pleat__plan *plan, pleat__table *table, uint32_t n_new, uint32_t page_tokens);

/* Turn needs into offsets.  True if the pool has enough free pages. */
bool pleat__plan_fits(pleat__plan *plan, const pleat__pool *pool);

/* Take the pages: append them to the high side of each lane. */
void pleat__plan_commit(const pleat__plan *plan, pleat__pool *pool);

/* Drop the lane's references to the pages past its first n_keep of a side, the last page first. */
void pleat__lane_give_back(pleat__table *table, uint32_t lane, pleat__side side, uint32_t n_keep, pleat__pool *pool);

#endif
