/* SPDX-License-Identifier: MIT
 *
 * table.h: the block table of one sequence: which pages hold the tokens of each lane.  Integers only.  ("Block table"
 * is vLLM's word; its block is our page.)
 *
 * One row per lane.  High pages grow from the left, low pages from the right (LeanKV, section 5.2: one row serves both,
 * since the other side may need what one side no longer does):
 *
 *     row   | h0 h1 h2 ->            <- l1 l0 |
 *             left = 3                right = 2
 *
 *     (1) left + right <= row_len
 *     (2) left  = ceil(high slots / tokens per high page)
 *     (3) right = ceil(low slots / tokens per low page)
 *     (4) n_pages_all = sum of left + right over the lanes
 *     (5) sealed pages, the first of a side, are full: n_sealed * tokens per page <= slots of the side
 *
 *     (6) hole and n_dead count the slots of the high side without a token
 *
 * At rest (1) to (6) hold; in a step a side may hold pages ahead of its slots, never too few.
 *
 * row_len is ceil(max_tokens / tokens per high page) plus PLEAT__ROW_SPARE.  The paper's row, without the spare cells,
 * overflows: with 2 high or 4 low tokens a page and 8 tokens, 7 high and 1 low need 4 + 1 pages.  One cell more than
 * the quotient is needed because both sides may end in a part-filled page, and one because a hole may stand in the way
 * of filling them.  Two are free low pages to write to while a prompt's high pages are read (cache/keep/compact.c).
 *
 * A step looks at all lanes, and lanes mostly grow together.  So each kind of count has its own array, which is
 * compared 16 lanes at a time.  Rows stand in table blocks: the cells of PLEAT__ROW_BLOCK lanes with one index lie side
 * by side and share a cache line.  (Of 32,768 rows of 132 cells each, to write one cell takes 440 us row by row: as
 * many cache misses as rows; 2026-11.)  In a table block of w lanes, fewer only in a table's last:
 *
 *     cell i of lane first + j   ids[first*row_len + i*w + j]
 */
#ifndef PLEAT_PAGE_TABLE_H
#define PLEAT_PAGE_TABLE_H

#include "page/pool.h"

typedef enum pleat__side { PLEAT__HIGH, PLEAT__LOW } pleat__side;

typedef struct pleat__table {
    uint32_t n_lanes;
    uint32_t row_len;
    uint64_t n_pages_all; /* what all rows hold, shared pages included */

    uint32_t *n_pages[2];  /* [pleat__side][n_lanes] left and right */
    uint32_t *n_slots[2];  /* [pleat__side][n_lanes] slots in use; every page but the side's last is full */
    uint32_t *n_sealed[2]; /* [pleat__side][n_lanes] pages from the first on that are not written any more */
    uint32_t *hole;        /* [n_lanes] 1 + the dead slot of the high side that the next token takes; 0: none */
    uint32_t *n_dead;      /* [n_lanes] other dead slots of the high side */
    pleat__page_id *ids;   /* [n_lanes * row_len], in table blocks */
} pleat__table;

/* One lane's counts, read together. */
typedef struct pleat__lane {
    uint32_t n_pages[2]; /* [pleat__side], as in pleat__table */
    uint32_t n_slots[2];
    uint32_t n_sealed[2];
    uint32_t hole;
    uint32_t n_dead;
} pleat__lane;

/* High slots with a token in them. */
static inline uint32_t pleat__lane_live_high(const pleat__lane *lane) {
    return lane->n_slots[PLEAT__HIGH] - (lane->hole ? 1 : 0) - lane->n_dead;
}

/* Lanes of a table block: a cache line of ids. */
#define PLEAT__ROW_BLOCK 16u

/* Cells of a row beyond ceil(max_tokens / tokens per high page). */
#define PLEAT__ROW_SPARE 4u

/* Cells of a row for a lane of at most max_tokens tokens. */
static inline uint32_t pleat__table_row_len(uint32_t max_tokens, uint32_t high_page_tokens) {
    return pleat__div_up_u32(max_tokens, high_page_tokens) + PLEAT__ROW_SPARE;
}

/* Hand out the arrays of a table from an arena; then initialise: every lane empty. */
void pleat__table_carve(pleat__table *table, uint32_t n_lanes, uint32_t row_len, pleat__arena *arena);
void pleat__table_init(pleat__table *table);

static inline pleat__lane pleat__table_lane(const pleat__table *t, uint32_t lane) {
    return (pleat__lane){.n_pages = {t->n_pages[0][lane], t->n_pages[1][lane]},
                         .n_slots = {t->n_slots[0][lane], t->n_slots[1][lane]},
                         .n_sealed = {t->n_sealed[0][lane], t->n_sealed[1][lane]},
                         .hole = t->hole[lane],
                         .n_dead = t->n_dead[lane]};
}

/* From a lane's cell of one page to that of the side's next, in cells. */
static inline int32_t pleat__table_step(const pleat__table *table, uint32_t lane, pleat__side side) {
    const uint32_t first = lane - lane % PLEAT__ROW_BLOCK;
    const int32_t width = (int32_t)pleat__min_u32(PLEAT__ROW_BLOCK, table->n_lanes - first);
    return side == PLEAT__HIGH ? width : -width;
}

/* The cell of page `idx` of a side. */
static inline pleat__page_id *pleat__table_cell(const pleat__table *table, uint32_t lane, pleat__side side,
                                                uint32_t idx) {
    const uint32_t j = lane % PLEAT__ROW_BLOCK, i = side == PLEAT__HIGH ? idx : table->row_len - 1 - idx;
    const uint32_t width = (uint32_t)pleat__table_step(table, lane, PLEAT__HIGH);
    return table->ids + (uint64_t)(lane - j) * table->row_len + (uint64_t)i * width + j;
}

/* Count the references that this table holds: refs[id] += 1 for each cell in use.  False when a row breaks (1), the
 * table (4), or a cell holds an id >= n_pages. */
bool pleat__table_count_refs(const pleat__table *table, uint32_t n_pages, uint32_t *refs);

#endif
