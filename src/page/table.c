/* SPDX-License-Identifier: MIT
 *
 * table.c: the bidirectional page table.  See table.h.
 */
#include "page/table.h"

#include <string.h>

enum { N_COUNTS = 8 };

void pleat__table_carve(pleat__table *table, uint32_t n_lanes, uint32_t row_len, pleat__arena *arena) {
    uint32_t *counts = pleat__arena_take(arena, (uint64_t)N_COUNTS * n_lanes, sizeof *counts);
    *table = (pleat__table){.n_lanes = n_lanes, .row_len = row_len};
    table->ids = pleat__arena_take(arena, (uint64_t)n_lanes * row_len, sizeof *table->ids);
    if (!counts) return; /* counting, or no room */
    table->n_pages[PLEAT__HIGH] = counts;
    table->n_pages[PLEAT__LOW] = counts + n_lanes;
    table->n_slots[PLEAT__HIGH] = counts + 2 * (size_t)n_lanes;
    table->n_slots[PLEAT__LOW] = counts + 3 * (size_t)n_lanes;
    table->n_sealed[PLEAT__HIGH] = counts + 4 * (size_t)n_lanes;
    table->n_sealed[PLEAT__LOW] = counts + 5 * (size_t)n_lanes;
    table->hole = counts + 6 * (size_t)n_lanes;
    table->n_dead = counts + 7 * (size_t)n_lanes;
}

void pleat__table_init(pleat__table *table) {
    table->n_pages_all = 0;
    memset(table->n_pages[PLEAT__HIGH], 0, (size_t)N_COUNTS * table->n_lanes * sizeof *table->hole);
}

bool pleat__table_count_refs(const pleat__table *table, uint32_t n_pages, uint32_t *refs) {
    uint64_t n_seen = 0;
    for (uint32_t lane = 0; lane < table->n_lanes; lane++) {
        const pleat__lane l = pleat__table_lane(table, lane);
        if ((uint64_t)l.n_pages[PLEAT__HIGH] + l.n_pages[PLEAT__LOW] > table->row_len) return false;
        for (int side = PLEAT__HIGH; side <= PLEAT__LOW; side++) {
            for (uint32_t i = 0; i < l.n_pages[side]; i++) {
                const uint32_t id = pleat__table_cell(table, lane, (pleat__side)side, i)->v;
                if (id >= n_pages) return false;
                refs[id]++;
                n_seen++;
            }
        }
    }
    return n_seen == table->n_pages_all;
}
