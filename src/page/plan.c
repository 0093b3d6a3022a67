/* SPDX-License-Identifier: MIT
 *
 * plan.c: plan, prefix sum, commit.  See plan.h.
 */
#include "page/plan.h"

#include <assert.h>

void pleat__plan_carve(pleat__plan *plan, uint32_t part_cap, uint32_t lane_cap, pleat__arena *arena) {
    plan->part_cap = part_cap;
    plan->lane_cap = lane_cap;
    plan->parts = pleat__arena_take(arena, part_cap, sizeof *plan->parts);
    plan->need = pleat__arena_take(arena, lane_cap, sizeof *plan->need);
}

void pleat__plan_add(pleat__plan *plan, pleat__table *table, uint32_t n_new, uint32_t page_tokens) {
    assert(plan->n_parts < plan->part_cap && table->n_lanes <= plan->lane_cap - plan->n_lanes);
    plan->parts[plan->n_parts++] = (pleat__plan_part){.table = table, .first = plan->n_lanes};
    uint32_t *need = plan->need + plan->n_lanes;
    for (uint32_t lane = 0; lane < table->n_lanes; lane++) {
        const pleat__lane *l = &table->lanes[lane];
        need[lane] = pleat__lane_high_pages(l, n_new, page_tokens) - l->n_pages[PLEAT__HIGH];
    }
    plan->n_lanes += table->n_lanes;
}

bool pleat__plan_fits(pleat__plan *plan, const pleat__pool *pool) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < plan->n_lanes; i++) {
        const uint32_t need = plan->need[i];
        plan->need[i] = (uint32_t)sum; /* below n_free wherever it is used */
        sum += need;
    }
    plan->total = sum;
    return sum <= pool->n_free;
}

static void commit_lane(pleat__table *table, uint32_t lane, pleat__pool *pool, uint32_t from, uint32_t to) {
    uint32_t *n_pages = &table->lanes[lane].n_pages[PLEAT__HIGH];
    for (uint32_t offset = from; offset < to; offset++)
        *pleat__table_cell(table, lane, PLEAT__HIGH, (*n_pages)++) = pleat__pool_take_at(pool, offset);
}

void pleat__plan_commit(const pleat__plan *plan, pleat__pool *pool) {
    if (plan->total == 0) return;
    for (uint32_t p = 0; p < plan->n_parts; p++) {
        const pleat__plan_part *part = &plan->parts[p];
        for (uint32_t lane = 0; lane < part->table->n_lanes; lane++) {
            const uint32_t i = part->first + lane;
            const uint32_t to = i + 1 < plan->n_lanes ? plan->need[i + 1] : (uint32_t)plan->total;
            commit_lane(part->table, lane, pool, plan->need[i], to);
        }
    }
    pleat__pool_advance(pool, (uint32_t)plan->total);
}

void pleat__lane_give_back(pleat__table *table, uint32_t lane, pleat__side side, uint32_t n_keep, pleat__pool *pool) {
    uint32_t *n_pages = &table->lanes[lane].n_pages[side];
    while (*n_pages > n_keep) pleat__pool_unref(pool, *pleat__table_cell(table, lane, side, --*n_pages));
}
