/* SPDX-License-Identifier: MIT
 *
 * scan.c: searches through a lane's slots.  See scan.h.
 *
 * Loops over BLOCK slots have a fixed count and no branch, so that compilers turn them into vector instructions (gcc 12
 * at -O2; at -O3 it unrolls them first and then fails to, at half the speed).  They read a page's last block to its
 * end: slots that are not in use hold anything, and are left out where it counts.
 */
#include "policy/scan.h"

#define BLOCK 16u
_Static_assert(PLEAT__TILE % BLOCK == 0, "pages are whole blocks");

/* Pages that are fetched ahead.  A lane's pages are strewn over the pool: of 64 lanes of 4000 slots that no longer fit
 * the L2 cache, a search takes 1.6 times as long without (2 MB of L2, 2026-11). */
#define AHEAD 4u

/* A segment of a page; nothing if page_idx >= n_pages. */
static void fetch(const pleat__kv_run *run, uint32_t page_idx, uint32_t n_pages, uint32_t segment_off) {
    if (page_idx >= n_pages) return;
    const uint8_t *segment = pleat__kv_page(run, page_idx) + segment_off;
    for (uint32_t i = 0; i < run->layout->tokens * sizeof(float); i += PLEAT__ALIGN) __builtin_prefetch(segment + i);
}

/* ---- one token ------------------------------------------------------------------------------------ */

static bool block_has(const int32_t *positions, int32_t wanted) {
    int32_t found = 0;
    for (uint32_t i = 0; i < BLOCK; i++) found |= positions[i] == wanted ? -1 : 0;
    return found;
}

/* From the last slot back: the newest tokens mostly stand there. */
uint32_t pleat__scan_find(const pleat__kv_run *run, uint32_t position) {
    const uint32_t n_pages = pleat__tracked_pages(run);
    for (uint32_t page_idx = n_pages; page_idx-- > 0;) {
        fetch(run, page_idx - AHEAD, n_pages, run->layout->pos_off); /* wraps to none */
        const pleat__tracked page = pleat__tracked_page(run, page_idx);
        for (uint32_t block = pleat__div_up_u32(page.n, BLOCK) * BLOCK; block > 0; block -= BLOCK) {
            const uint32_t begin = block - BLOCK;
            if (!block_has(page.positions + begin, (int32_t)position)) continue;
            for (uint32_t i = begin; i < pleat__min_u32(block, page.n); i++)
                if (page.positions[i] == (int32_t)position) return page.first + i;
        }
    }
    return PLEAT__NO_SLOT;
}

/* ---- the least significant ---------------------------------------------------------------------- */

/* May a token of the block that is outside the window have a significance below `limit`?  Exact division is for those
 * blocks only.  With m = N - 1 - i, an exact float up to 2^24: if sum/m rounds to less than limit, then
 * sum < limit * m, and as rounding keeps order and sum is a float, sum <= limit * m rounded. */
static bool block_may_have(const float *sums, const int32_t *positions, uint32_t newest, int32_t end, float limit) {
    int32_t found = 0;
    for (uint32_t i = 0; i < BLOCK; i++) {
        const float m = (float)(int32_t)(newest - (uint32_t)positions[i]);
        found |= (sums[i] <= limit * m) & (positions[i] < end) ? -1 : 0;
    }
    return found;
}

uint32_t pleat__scan_least(const pleat__kv_run *run, uint32_t n_tokens, uint32_t window, float limit, float *least) {
    const int32_t end = (int32_t)(n_tokens - window);
    const uint32_t n_pages = pleat__tracked_pages(run);
    uint32_t slot = PLEAT__NO_SLOT;
    for (uint32_t page_idx = 0; page_idx < n_pages && limit > 0; page_idx++) {
        fetch(run, page_idx + AHEAD, n_pages, run->layout->score_off);
        fetch(run, page_idx + AHEAD, n_pages, run->layout->pos_off);
        const pleat__tracked page = pleat__tracked_page(run, page_idx);
        for (uint32_t block = 0; block < page.n && limit > 0; block += BLOCK) {
            if (!block_may_have(page.sums + block, page.positions + block, n_tokens - 1, end, limit)) continue;
            for (uint32_t i = block; i < pleat__min_u32(block + BLOCK, page.n); i++) {
                if (page.positions[i] < 0 || page.positions[i] >= end) continue;
                const float s = pleat__significance(page.sums[i], (uint32_t)page.positions[i], n_tokens);
                if (!(s < limit)) continue;
                *least = limit = s; /* from here on only less is of interest */
                slot = page.first + i;
            }
        }
    }
    return slot;
}

/* ---- how many ------------------------------------------------------------------------------------ */

static uint32_t block_live(const int32_t *positions) {
    uint32_t n_live = 0;
    for (uint32_t i = 0; i < BLOCK; i++) n_live += positions[i] >= 0;
    return n_live;
}

uint32_t pleat__scan_live(const pleat__kv_run *run) {
    const uint32_t n_pages = pleat__tracked_pages(run);
    uint32_t n_live = 0;
    for (uint32_t page_idx = 0; page_idx < n_pages; page_idx++) {
        const pleat__tracked page = pleat__tracked_page(run, page_idx);
        uint32_t i = 0;
        for (; i + BLOCK <= page.n; i += BLOCK) n_live += block_live(page.positions + i);
        for (; i < page.n; i++) n_live += page.positions[i] >= 0;
    }
    return n_live;
}
