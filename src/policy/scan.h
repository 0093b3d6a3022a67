/* SPDX-License-Identifier: MIT
 *
 * scan.h: searches through the scores and positions of a tracked run.  They run once for each lane and generated token
 * over thousands of slots, so most slots are only looked at 16 at a time, with an inexact test that cannot miss.  These
 * tests have variants for CPUs; which slot is found does not depend on the variant.
 */
#ifndef PLEAT_POLICY_SCAN_H
#define PLEAT_POLICY_SCAN_H

#include "policy/policy.h"

/* What a page of a run holds. */
typedef struct pleat__tracked {
    const float *sums;
    const int32_t *positions;
    uint32_t first; /* slot of the run that stands first */
    uint32_t n;     /* slots in use: the page's, or fewer in the run's last page */
} pleat__tracked;

static inline uint32_t pleat__tracked_pages(const pleat__kv_run *run) {
    return pleat__div_up_u32(run->n_slots, run->layout->tokens);
}

static inline pleat__tracked pleat__tracked_page(const pleat__kv_run *run, uint32_t page_idx) {
    uint8_t *page = pleat__kv_page(run, page_idx);
    const uint32_t tokens = run->layout->tokens, first = page_idx * tokens;
    return (pleat__tracked){pleat__scores(run->layout, page), pleat__positions(run->layout, page), first,
                            pleat__min_u32(tokens, run->n_slots - first)};
}

/* The pages of a run from the first to the last:
 *     pleat__tracked page;
 *     for (pleat__page_walk walk = pleat__walk_pages(run); pleat__next_page(&walk, &page);) ... */
typedef struct pleat__page_walk {
    const pleat__kv_run *run;
    uint32_t page_idx, n_pages; /* the next page, and how many there are */
} pleat__page_walk;

static inline pleat__page_walk pleat__walk_pages(const pleat__kv_run *run) {
    return (pleat__page_walk){run, 0, pleat__tracked_pages(run)};
}

static inline bool pleat__next_page(pleat__page_walk *walk, pleat__tracked *page) {
    if (walk->page_idx == walk->n_pages) return false;
    *page = pleat__tracked_page(walk->run, walk->page_idx++);
    return true;
}

/* Slots that a test looks at together.  A page's last block is read to its end: slots that are not in use hold anything,
 * and are left out where it counts. */
#define PLEAT__SCAN_BLOCK 16u
_Static_assert(PLEAT__TILE % PLEAT__SCAN_BLOCK == 0, "pages are whole blocks");

/* What victims are looked for among: positions below `end`, significances below `limit`. */
typedef struct pleat__scan_bound {
    uint32_t newest; /* N - 1 */
    int32_t end;
    float limit;
} pleat__scan_bound;

/* The first slot of the first block, from the block at slot `from` on, in which a token may be within the bound, or a
 * slot >= page->n.  It may be if, for some slot of the block, sum <= limit * m and position < end, with
 * m = newest - position in 32 bits as f32, exact up to 2^24.  So nothing is missed: if sum/m rounds to less than limit,
 * then sum < limit * m, and as rounding keeps order and sum is a float, sum <= limit * m rounded. */
typedef uint32_t (*pleat__scan_below_fn)(const pleat__tracked *page, uint32_t from, const pleat__scan_bound *bound);

/* 1 + the last of the first n positions that is `wanted`, or 0. */
typedef uint32_t (*pleat__scan_last_fn)(const int32_t *positions, uint32_t n, int32_t wanted);

struct pleat__scan_dsp {
    pleat__scan_below_fn below;
    pleat__scan_last_fn last;
};

uint32_t pleat__scan_below_avx2(const pleat__tracked *page, uint32_t from, const pleat__scan_bound *bound);
uint32_t pleat__scan_last_avx2(const int32_t *positions, uint32_t n, int32_t wanted);
uint32_t pleat__scan_below_avx512(const pleat__tracked *page, uint32_t from, const pleat__scan_bound *bound);
uint32_t pleat__scan_last_avx512(const int32_t *positions, uint32_t n, int32_t wanted);

/* Fill the table with the best variants for these CPU flags (pleat_cpu_flags()). */
void pleat__scan_dsp_init(pleat__scan_dsp *dsp, uint32_t cpu_flags);

/* The slot of the token at `position`, or PLEAT__NO_SLOT.  No two slots have one position. */
uint32_t pleat__scan_find(const pleat__scan_dsp *dsp, const pleat__kv_run *run, uint32_t position);

/* The slot whose token has the least significance of all that are outside the window and below `limit`, the lowest
 * among equals; or PLEAT__NO_SLOT.  *least: its significance, left alone if there is none.  n_tokens > window > 0.
 * With a limit of 0 the run's pages are not read, and need not be tracked. */
uint32_t pleat__scan_least(const pleat__scan_dsp *dsp, const pleat__kv_run *run, uint32_t n_tokens, uint32_t window,
                           float limit, float *least);

/* The first `most` slots whose tokens are outside the window and below `limit`, and their significances; how many there
 * are.  As for the least. */
uint32_t pleat__scan_below(const pleat__scan_dsp *dsp, const pleat__kv_run *run, uint32_t n_tokens, uint32_t window,
                           float limit, uint32_t most, uint32_t *slots, float *significances);

/* Slots that are not dead. */
uint32_t pleat__scan_live(const pleat__kv_run *run);

#endif
