/* SPDX-License-Identifier: MIT
 *
 * reclaim.h: what becomes of a lane's slots when their tokens are dropped.  SpvLLM, sections 1 and 2.
 *
 * Attention is a sum, so the order of slots does not matter to it.  A token is known by its position, which stands in
 * its slot; a dead slot's is -1.
 *
 *     none    dead slots stay where they are, and are read past
 *     block   the same; a page whose slots are all dead leaves the row
 *     copy    what lives is copied, in order, to fresh pages that the step has taken for it; all pages it stood on
 *             leave
 *     reuse   a single dead slot becomes the lane's hole, which the next token takes; of many (the end of a prompt)
 *             those at the front take the living tokens from the lane's end.  Pages that are left empty leave
 *
 *     before   | a . c | d . . | g h   |          . dead      page of three slots
 *     none     | a . c | d . . | g h   |          block the same; | a . c | . . . | g h | would become | a . c | g h |
 *     copy     | a c d | g h   |  on fresh pages
 *     reuse    | a h c | d g   |  2 moves
 *
 * A plan says which tokens move and in which order the row's pages stand afterwards; those behind the last that is
 * needed go back to the pool.  Nothing is changed here.  Runs begin behind a lane's sealed pages and hold pages with
 * one reference alone: a step has copied all others (cache/fork.c), so no plan writes a shared page.
 *
 * Afterwards a lane has no dead slot but its hole with how = reuse or copy, and no page without a living token with
 * block.  Living tokens are the same for all four.
 *
 * At the edges.  Slots count from the run's first.  A part-filled last page stays the last when one before it leaves,
 * so that no other page is ever part-filled; if it leaves itself, n_slots ends at a full page.  With none and block the
 * dead slots of a page that stays are held, those at its end too.  Where nothing lives n_slots is 0 afterwards (with
 * none it stays); where nothing is dead nothing changes, and copy's fresh pages go back unused.  A hole is a slot in
 * use: while it is open, a lane whose tokens would just fill whole pages holds one page more.
 */
#ifndef PLEAT_RECLAIM_RECLAIM_H
#define PLEAT_RECLAIM_RECLAIM_H

#include "core/kv_view.h"
#include "core/memory.h"

typedef struct pleat__reclaim_lane {
    pleat__kv_run run; /* n_slots of the row's pages; all but the last page full */
    uint32_t n_dead;   /* of the n_slots */
    uint32_t n_fresh;  /* pages behind the run's in the row: for copy enough for what lives; others do not look at it */
} pleat__reclaim_lane;

/* A token's slots before and after, in pages as they stood: `to` may be in a fresh page.  In the order given, no move
 * overwrites what a later one reads. */
typedef struct pleat__reclaim_move {
    uint32_t from, to;
} pleat__reclaim_move;

typedef struct pleat__reclaim_plan {
    uint32_t n_moves;
    uint32_t n_pages;           /* of the new order: the run's and, for copy, the fresh; 0: they stay in their order */
    uint32_t n_slots;           /* slots after the moves */
    uint32_t n_dead;            /* dead slots after the moves, the hole included */
    uint32_t hole;              /* 1 + the slot that the next token takes, in the new order; 0: behind the last */
    pleat__reclaim_move *moves; /* [slots_cap] */
    uint32_t *pages;            /* [pages_cap] pages[i]: where the page that stands i-th afterwards stood before */
} pleat__reclaim_plan;

/* For runs of at most slots_cap slots; pages_cap: of a run's pages and the fresh pages together. */
void pleat__reclaim_carve(pleat__reclaim_plan *plan, uint32_t slots_cap, uint32_t pages_cap, pleat__arena *arena);

/* The token in `slot` has just died (its position is -1, n_dead counts it); it is the only one since the last plan.
 * With reuse, a lane whose hole no token has taken meanwhile has two dead slots: planned as many.
 * Cost: none, reuse O(1); block O(slots of a page), and O(pages) when a page leaves; copy O(slots). */
void pleat__reclaim_one(pleat_reclaim how, const pleat__reclaim_lane *lane, uint32_t slot, pleat__reclaim_plan *plan);

/* Any number have died.  No plan has a hole: with reuse, n_slots is what lives, in the fewest moves that leave pages in
 * their order.  O(slots). */
void pleat__reclaim_many(pleat_reclaim how, const pleat__reclaim_lane *lane, pleat__reclaim_plan *plan);

/* Fresh pages that a plan for a lane of n_live living tokens may need. */
static inline uint32_t pleat__reclaim_fresh(pleat_reclaim how, uint32_t n_live, uint32_t page_tokens) {
    return how == PLEAT_RECLAIM_COPY ? pleat__div_up_u32(n_live, page_tokens) : 0;
}

#endif
