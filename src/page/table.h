/* SPDX-License-Identifier: MIT
 *
 * table.h: which pages hold the tokens of each lane of one sequence.  Integers only.
 *
 * One row per lane.  High pages grow from the left, low pages from the right (LeanKV, section 5.2: one row serves
 * both, since what one side gives up the other may need):
 *
 *     row   | h0 h1 h2 ->            <- l1 l0 |
 *             left = 3                right = 2
 *
 *     (1) left + right <= row_len
 *     (2) left  = ceil(high slots / tokens per high page)
 *     (3) right = ceil(low slots / tokens per low page)
 *
 * At rest (1) to (3) hold; in a step a side may hold pages ahead of its slots, never too few.
 *
 * row_len is ceil(max_tokens / tokens per high page) plus PLEAT__ROW_SPARE.  The paper's row, without the spare cells,
 * overflows: with 2 high or 4 low tokens a page and 8 tokens, 7 high and 1 low need 4 + 1 pages.  One cell more than
 * the quotient is needed because both sides may end in a part-filled page, one because a hole may stand in the way of
 * filling them, and two are free low pages to write to while a prompt's high pages are read (cache/compact.c).
 */
#ifndef PLEAT_PAGE_TABLE_H
#define PLEAT_PAGE_TABLE_H

#include "page/pool.h"

typedef enum pleat__side { PLEAT__HIGH, PLEAT__LOW } pleat__side;

/* One lane's pages and slots. */
typedef struct pleat__lane {
    uint32_t n_pages[2]; /* [pleat__side]: left and right */
    uint32_t n_slots[2]; /* slots in use on each side; every page but the side's last is full */
    uint32_t hole;       /* 1 + the one dead slot of the high side, which the next token takes; 0: none */
} pleat__lane;

typedef struct pleat__table {
    uint32_t n_lanes;
    uint32_t row_len;
    pleat__lane *lanes;  /* [n_lanes] */
    pleat__page_id *ids; /* [n_lanes][row_len] */
} pleat__table;

/* Cells of a row beyond ceil(max_tokens / tokens per high page). */
#define PLEAT__ROW_SPARE 4u

/* Cells of a row for a lane of at most max_tokens tokens. */
static inline uint32_t pleat__table_row_len(uint32_t max_tokens, uint32_t high_page_tokens) {
    return pleat__div_up_u32(max_tokens, high_page_tokens) + PLEAT__ROW_SPARE;
}

/* Hand out the arrays of a table from an arena; then initialise: every lane empty. */
void pleat__table_carve(pleat__table *table, uint32_t n_lanes, uint32_t row_len, pleat__arena *arena);
void pleat__table_init(pleat__table *table);

/* A lane's row, and the cell of page `idx` of a side. */
static inline pleat__page_id *pleat__table_row(const pleat__table *table, uint32_t lane) {
    return table->ids + (uint64_t)lane * table->row_len;
}
static inline pleat__page_id *pleat__table_cell(const pleat__table *table, uint32_t lane, pleat__side side,
                                                uint32_t idx) {
    return pleat__table_row(table, lane) + (side == PLEAT__HIGH ? idx : table->row_len - 1 - idx);
}

/* Pages that all rows hold, shared ones included. */
uint64_t pleat__table_n_pages(const pleat__table *table);

/* Count the references that this table holds: refs[id] += 1 for each cell in use.  False when a row breaks (1) or a
 * cell holds an id >= n_pages. */
bool pleat__table_count_refs(const pleat__table *table, uint32_t n_pages, uint32_t *refs);

#endif
