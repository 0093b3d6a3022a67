/* SPDX-License-Identifier: MIT
 *
 * reclaim.c: the plans of reclaim.h.
 *
 * One token dies in each lane with each generated token, so pleat__reclaim_one() looks at no slot more than it must:
 *
 *     none, reuse   no slot
 *     block         the page of the token that died; when that leaves, every page's place in the order is written
 *     copy          every slot
 */
#include "reclaim/reclaim.h"

#include <assert.h>

void pleat__reclaim_carve(pleat__reclaim_plan *plan, uint32_t slots_cap, uint32_t pages_cap, pleat__arena *arena) {
    plan->moves = pleat__arena_take(arena, slots_cap, sizeof *plan->moves);
    plan->pages = pleat__arena_take(arena, pages_cap, sizeof *plan->pages);
}

static uint32_t n_pages_of(const pleat__kv_run *run) { return pleat__div_up_u32(run->n_slots, run->layout->tokens); }

/* Slots in use of a page: all, unless it is the last. */
static uint32_t n_slots_in(const pleat__kv_run *run, uint32_t page_idx) {
    return pleat__min_u32(run->layout->tokens, run->n_slots - page_idx * run->layout->tokens);
}

static const int32_t *positions_in(const pleat__kv_run *run, uint32_t page_idx) {
    return pleat__positions(run->layout, pleat__kv_page(run, page_idx));
}

static bool page_lives(const pleat__kv_run *run, uint32_t page_idx) {
    const int32_t *positions = positions_in(run, page_idx);
    for (uint32_t i = 0, n = n_slots_in(run, page_idx); i < n; i++)
        if (positions[i] >= 0) return true;
    return false;
}

/* The plan of `none`, from which the others start. */
static void plan_none(const pleat__reclaim_lane *lane, pleat__reclaim_plan *plan) {
    plan->n_moves = plan->n_pages = plan->hole = 0;
    plan->n_slots = lane->run.n_slots;
    plan->n_dead = lane->n_dead;
}

/* Of the pages first..end-1 those without a living token leave: the order is filled from both ends, with the pages that
 * stay and with those that leave.  All other pages are known to live. */
static void plan_block(const pleat__reclaim_lane *lane, uint32_t first, uint32_t end, pleat__reclaim_plan *plan) {
    const pleat__kv_run *run = &lane->run;
    const uint32_t n_pages = n_pages_of(run);
    uint32_t n_stay = 0, n_leave = 0;
    bool in_order = true; /* of the pages that stay, none moves up */
    for (uint32_t i = 0; i < n_pages; i++) {
        if (i < first || i >= end || page_lives(run, i)) {
            in_order = in_order && n_leave == 0;
            plan->pages[n_stay++] = i;
        } else {
            plan->pages[n_pages - ++n_leave] = i;
            plan->n_slots -= n_slots_in(run, i);
            plan->n_dead -= n_slots_in(run, i);
        }
    }
    plan->n_pages = in_order ? 0 : n_pages;
}

/* Every living token moves to the fresh pages, which come to stand in front of the old ones. */
static void plan_copy(const pleat__reclaim_lane *lane, pleat__reclaim_plan *plan) {
    const pleat__kv_run *run = &lane->run;
    const uint32_t n_pages = n_pages_of(run), tokens = run->layout->tokens, fresh = n_pages * tokens;
    uint32_t n_live = 0;
    for (uint32_t page_idx = 0; page_idx < n_pages; page_idx++) {
        const int32_t *positions = positions_in(run, page_idx);
        /* A dead slot's move is overwritten by the next one's; n_live <= slot, so it has room. */
        for (uint32_t i = 0, n = n_slots_in(run, page_idx); i < n; i++) {
            plan->moves[n_live] = (pleat__reclaim_move){.from = page_idx * tokens + i, .to = fresh + n_live};
            n_live += positions[i] >= 0;
        }
    }
    assert(n_live == run->n_slots - lane->n_dead && n_live <= lane->n_fresh * tokens);
    plan->n_moves = plan->n_slots = n_live;
    plan->n_dead = 0;
    for (uint32_t i = 0; i < lane->n_fresh; i++) plan->pages[i] = n_pages + i;
    for (uint32_t i = 0; i < n_pages; i++) plan->pages[lane->n_fresh + i] = i;
    plan->n_pages = lane->n_fresh + n_pages;
}

/* The last slot before `end` that lives; there is one. */
static uint32_t last_living(const pleat__kv_run *run, uint32_t end) {
    for (uint32_t page_idx = (end - 1) / run->layout->tokens;; page_idx--) {
        const int32_t *positions = positions_in(run, page_idx);
        const uint32_t first = page_idx * run->layout->tokens;
        while (end > first)
            if (positions[--end - first] >= 0) return end;
    }
}

/* Dead slots before n_live take the last tokens: as many tokens live behind n_live as slots are dead before it. */
static void plan_fill(const pleat__reclaim_lane *lane, pleat__reclaim_plan *plan) {
    const pleat__kv_run *run = &lane->run;
    const uint32_t n_live = run->n_slots - lane->n_dead, tokens = run->layout->tokens;
    uint32_t n_moves = 0, from = run->n_slots;
    for (uint32_t first = 0; first < n_live; first += tokens) {
        const int32_t *positions = positions_in(run, first / tokens);
        for (uint32_t i = 0, n = pleat__min_u32(tokens, n_live - first); i < n; i++) {
            if (positions[i] >= 0) continue;
            from = last_living(run, from);
            assert(from >= n_live);
            plan->moves[n_moves++] = (pleat__reclaim_move){.from = from, .to = first + i};
        }
    }
    plan->n_moves = n_moves;
    plan->n_slots = n_live;
    plan->n_dead = 0;
}

/* The lane's only dead slot: cut off if it is the last, else the hole. */
static void plan_hole(uint32_t slot, pleat__reclaim_plan *plan) {
    if (slot + 1 < plan->n_slots) {
        plan->hole = slot + 1;
        return;
    }
    plan->n_slots = slot;
    plan->n_dead = 0;
}

void pleat__reclaim_one(pleat_reclaim how, const pleat__reclaim_lane *lane, uint32_t slot, pleat__reclaim_plan *plan) {
    assert(slot < lane->run.n_slots && lane->n_dead > 0 && lane->n_dead <= lane->run.n_slots);
    const uint32_t page_idx = slot / lane->run.layout->tokens;
    plan_none(lane, plan);
    switch (how) {
        case PLEAT_RECLAIM_NONE: break;
        case PLEAT_RECLAIM_BLOCK:
            if (!page_lives(&lane->run, page_idx)) plan_block(lane, page_idx, page_idx + 1, plan);
            break;
        case PLEAT_RECLAIM_COPY: plan_copy(lane, plan); break;
        case PLEAT_RECLAIM_REUSE:
            if (lane->n_dead == 1)
                plan_hole(slot, plan);
            else
                plan_fill(lane, plan);
            break;
    }
}

void pleat__reclaim_many(pleat_reclaim how, const pleat__reclaim_lane *lane, pleat__reclaim_plan *plan) {
    assert(lane->n_dead <= lane->run.n_slots);
    plan_none(lane, plan);
    if (lane->n_dead == 0) return;
    switch (how) {
        case PLEAT_RECLAIM_NONE: break;
        case PLEAT_RECLAIM_BLOCK: plan_block(lane, 0, n_pages_of(&lane->run), plan); break;
        case PLEAT_RECLAIM_COPY: plan_copy(lane, plan); break;
        case PLEAT_RECLAIM_REUSE: plan_fill(lane, plan); break;
    }
}
