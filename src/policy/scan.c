/* SPDX-License-Identifier: MIT
 *
 * scan.c: searches through a lane's slots.  See scan.h.
 *
 * Loops over BLOCK slots have a fixed count and no branch, so that compilers turn them into vector instructions (gcc 12
 * at -O2; at -O3 it unrolls them first and then fails to, at half the speed).
 */
#include "policy/scan.h"

#include "hw/cpu.h"

#define BLOCK PLEAT__SCAN_BLOCK

/* Pages that are fetched ahead.  A lane's pages are strewn over the pool: of 64 lanes of 4000 slots that no longer fit
 * the L2 cache, a search takes 1.6 times as long without (2 MB of L2, 2026-11). */
#define AHEAD 4u

/* A segment of a page; nothing if page_idx >= n_pages. */
static void fetch(const pleat__kv_run *run, uint32_t page_idx, uint32_t n_pages, uint32_t segment_off) {
    if (page_idx >= n_pages) return;
    const uint8_t *segment = pleat__kv_page(run, page_idx) + segment_off;
    for (uint32_t i = 0; i < run->layout->tokens * sizeof(float); i += PLEAT__ALIGN) __builtin_prefetch(segment + i);
}

/* ---- tests of blocks ------------------------------------------------------------------------------ */

static bool block_may_have(const float *sums, const int32_t *positions, const pleat__scan_bound *bound) {
    int32_t found = 0;
    for (uint32_t i = 0; i < BLOCK; i++) {
        const float m = (float)(int32_t)(bound->newest - (uint32_t)positions[i]);
        found |= ((sums[i] <= bound->limit * m) & (positions[i] < bound->end)) ? -1 : 0;
    }
    return found;
}

static uint32_t below_ref(const pleat__tracked *page, uint32_t from, const pleat__scan_bound *bound) {
    while (from < page->n && !block_may_have(page->sums + from, page->positions + from, bound)) from += BLOCK;
    return from;
}

static bool block_has(const int32_t *positions, int32_t wanted) {
    int32_t found = 0;
    for (uint32_t i = 0; i < BLOCK; i++) found |= positions[i] == wanted ? -1 : 0;
    return found;
}

static uint32_t last_ref(const int32_t *positions, uint32_t n, int32_t wanted) {
    for (uint32_t end = pleat__div_up_u32(n, BLOCK) * BLOCK; end > 0; end -= BLOCK) {
        if (!block_has(positions + end - BLOCK, wanted)) continue;
        for (uint32_t i = pleat__min_u32(end, n); i > end - BLOCK; i--)
            if (positions[i - 1] == wanted) return i;
    }
    return 0;
}

void pleat__scan_dsp_init(pleat__scan_dsp *dsp, uint32_t cpu_flags) {
    *dsp = (pleat__scan_dsp){below_ref, last_ref};
#if PLEAT_X86
    if (!(cpu_flags & PLEAT_CPU_AVX2)) return;
    *dsp = (pleat__scan_dsp){pleat__scan_below_avx2, pleat__scan_last_avx2};
    if (!(cpu_flags & PLEAT_CPU_AVX512)) return;
    *dsp = (pleat__scan_dsp){pleat__scan_below_avx512, pleat__scan_last_avx512};
#else
    (void)cpu_flags;
#endif
}

/* ---- one token ------------------------------------------------------------------------------------ */

/* From the last slot back: the newest tokens mostly stand there. */
uint32_t pleat__scan_find(const pleat__scan_dsp *dsp, const pleat__kv_run *run, uint32_t position) {
    const uint32_t n_pages = pleat__tracked_pages(run);
    for (uint32_t page_idx = n_pages; page_idx-- > 0;) {
        fetch(run, page_idx - AHEAD, n_pages, run->layout->pos_off); /* wraps to none */
        const pleat__tracked page = pleat__tracked_page(run, page_idx);
        const uint32_t found = dsp->last(page.positions, page.n, (int32_t)position);
        if (found) return page.first + found - 1;
    }
    return PLEAT__NO_SLOT;
}

/* ---- the least significant ---------------------------------------------------------------------- */

/* Look closely at a block, where exact division tells.  bound->limit becomes the least that was found below it. */
static void search_block(const pleat__tracked *page, uint32_t block, uint32_t n_tokens, pleat__scan_bound *bound,
                         uint32_t *slot) {
    for (uint32_t i = block; i < pleat__min_u32(block + BLOCK, page->n); i++) {
        if (page->positions[i] < 0 || page->positions[i] >= bound->end) continue;
        const float s = pleat__significance(page->sums[i], (uint32_t)page->positions[i], n_tokens);
        if (!(s < bound->limit)) continue;
        bound->limit = s; /* from here on only less is of interest */
        *slot = page->first + i;
    }
}

uint32_t pleat__scan_least(const pleat__scan_dsp *dsp, const pleat__kv_run *run, uint32_t n_tokens, uint32_t window,
                           float limit, float *least) {
    pleat__scan_bound bound = {.newest = n_tokens - 1, .end = (int32_t)(n_tokens - window), .limit = limit};
    const uint32_t n_pages = pleat__tracked_pages(run);
    uint32_t slot = PLEAT__NO_SLOT;
    for (uint32_t page_idx = 0; page_idx < n_pages && bound.limit > 0; page_idx++) {
        fetch(run, page_idx + AHEAD, n_pages, run->layout->score_off);
        fetch(run, page_idx + AHEAD, n_pages, run->layout->pos_off);
        const pleat__tracked page = pleat__tracked_page(run, page_idx);
        for (uint32_t block = dsp->below(&page, 0, &bound); block < page.n && bound.limit > 0;
             block = dsp->below(&page, block + BLOCK, &bound))
            search_block(&page, block, n_tokens, &bound, &slot);
    }
    if (slot != PLEAT__NO_SLOT) *least = bound.limit;
    return slot;
}

/* ---- all that are below --------------------------------------------------------------------------- */

uint32_t pleat__scan_below(const pleat__scan_dsp *dsp, const pleat__kv_run *run, uint32_t n_tokens, uint32_t window,
                           float limit, uint32_t most, uint32_t *slots, float *significances) {
    const pleat__scan_bound bound = {.newest = n_tokens - 1, .end = (int32_t)(n_tokens - window), .limit = limit};
    const uint32_t n_pages = pleat__tracked_pages(run);
    uint32_t n = 0;
    for (uint32_t page_idx = 0; page_idx < n_pages && n < most && limit > 0; page_idx++) {
        fetch(run, page_idx + AHEAD, n_pages, run->layout->score_off);
        fetch(run, page_idx + AHEAD, n_pages, run->layout->pos_off);
        const pleat__tracked page = pleat__tracked_page(run, page_idx);
        for (uint32_t i = dsp->below(&page, 0, &bound); i < page.n && n < most;
             i = (i + 1) % BLOCK ? i + 1 : dsp->below(&page, i + 1, &bound)) {
            if (page.positions[i] < 0 || page.positions[i] >= bound.end) continue;
            const float s = pleat__significance(page.sums[i], (uint32_t)page.positions[i], n_tokens);
            if (!(s < limit)) continue;
            slots[n] = page.first + i;
            significances[n++] = s;
        }
    }
    return n;
}

/* ---- how many ------------------------------------------------------------------------------------ */

static uint32_t block_live(const int32_t *positions) {
    uint32_t n_live = 0;
    for (uint32_t i = 0; i < BLOCK; i++) n_live += positions[i] >= 0;
    return n_live;
}

uint32_t pleat__scan_live(const pleat__kv_run *run) {
    pleat__tracked page;
    uint32_t n_live = 0;
    for (pleat__page_walk walk = pleat__walk_pages(run); pleat__next_page(&walk, &page);) {
        uint32_t i = 0;
        for (; i + BLOCK <= page.n; i += BLOCK) n_live += block_live(page.positions + i);
        for (; i < page.n; i++) n_live += page.positions[i] >= 0;
    }
    return n_live;
}
