/* SPDX-License-Identifier: MIT
 *
 * table.c: the bidirectional page table.  See table.h.
 */
#include "page/table.h"

#include <string.h>

void pleat__table_carve(pleat__table *table, uint32_t n_lanes, uint32_t row_len, pleat__arena *arena) {
    table->n_lanes = n_lanes;
    table->row_len = row_len;
    table->lanes = pleat__arena_take(arena, n_lanes, sizeof *table->lanes);
    table->ids = pleat__arena_take(arena, (uint64_t)n_lanes * row_len, sizeof *table->ids);
}

void pleat__table_init(pleat__table *table) { memset(table->lanes, 0, (size_t)table->n_lanes * sizeof *table->lanes); }

uint64_t pleat__table_n_pages(const pleat__table *table) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < table->n_lanes; i++)
        n += (uint64_t)table->lanes[i].n_pages[PLEAT__HIGH] + table->lanes[i].n_pages[PLEAT__LOW];
    return n;
}

bool pleat__table_count_refs(const pleat__table *table, uint32_t n_pages, uint32_t *refs) {
    for (uint32_t lane = 0; lane < table->n_lanes; lane++) {
        const pleat__lane *l = &table->lanes[lane];
        if ((uint64_t)l->n_pages[PLEAT__HIGH] + l->n_pages[PLEAT__LOW] > table->row_len) return false;
        for (int side = PLEAT__HIGH; side <= PLEAT__LOW; side++) {
            for (uint32_t i = 0; i < l->n_pages[side]; i++) {
                const uint32_t id = pleat__table_cell(table, lane, (pleat__side)side, i)->v;
                if (id >= n_pages) return false;
                refs[id]++;
            }
        }
    }
    return true;
}
