/* SPDX-License-Identifier: MIT
 *
 * select.c: the best of a lane's slots.  See select.h.
 *
 * Counts go over blocks of a fixed size without a branch, as in scan.c: compilers make vector instructions of them.
 */
#include "policy/select.h"

#include <math.h>

#include "policy/scan.h"

#define BLOCK 64u

static int32_t block_reach(const float *x, int32_t least) {
    int32_t n_reach = 0;
    for (uint32_t i = 0; i < BLOCK; i++) n_reach += pleat__rank_bits(x[i]) >= least ? 1 : 0;
    return n_reach;
}

uint32_t pleat__count_reach(const float *x, uint32_t n, int32_t least) {
    int32_t n_reach = 0;
    uint32_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) n_reach += block_reach(x + i, least);
    for (; i < n; i++) n_reach += pleat__rank_bits(x[i]) >= least;
    return (uint32_t)n_reach;
}

static int32_t block_least(const float *x, int32_t least, int32_t found) {
    for (uint32_t i = 0; i < BLOCK; i++) {
        const int32_t bits = pleat__rank_bits(x[i]) >= least ? pleat__rank_bits(x[i]) : INT32_MAX;
        found = bits < found ? bits : found;
    }
    return found;
}

/* The least of those that reach `least`; there are some. */
static float least_of_reach(const float *x, uint32_t n, int32_t least) {
    int32_t found = INT32_MAX;
    uint32_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) found = block_least(x + i, least, found);
    for (; i < n; i++)
        if (pleat__rank_bits(x[i]) >= least && pleat__rank_bits(x[i]) < found) found = pleat__rank_bits(x[i]);
    return pleat__bits_f32((uint32_t)found);
}

/* Floats that are not negative have the order of their bits.  [low, high] holds the largest that k of them reach:
 * n_low reach low, n_high reach what comes after high.  Every other turn halves it, which ends whatever a lane holds;
 * the turns between go where the counts say, as bits are about logarithms.  Mostly some ten find one that exactly k
 * reach. */
float pleat__kth_largest(const float *x, uint32_t n, uint32_t k) {
    int32_t low = 0, high = pleat__rank_bits(INFINITY);
    uint32_t n_low = n, n_high = 0;
    for (bool halves = true; low < high; halves = !halves) {
        const double part = halves ? 0.5 : (double)(n_low - k) / (double)(n_low - n_high);
        const int32_t middle = low + 1 + (int32_t)(part * (high - low - 1));
        const uint32_t n_reach = pleat__count_reach(x, n, middle);
        if (n_reach == k) return least_of_reach(x, n, middle);
        if (n_reach > k) {
            low = middle;
            n_low = n_reach;
        } else {
            high = middle - 1;
            n_high = n_reach;
        }
    }
    return pleat__bits_f32((uint32_t)low);
}

/* Only ranks equal to `last` are in doubt: they become their tokens' ages, those above infinite, the rest 0. */
static void rank_by_age(const pleat__kv_run *run, const float *ranks, uint32_t n_tokens, float last, float *ages) {
    pleat__tracked page;
    for (pleat__page_walk walk = pleat__walk_pages(run); pleat__next_page(&walk, &page);) {
        for (uint32_t i = 0; i < page.n; i++) {
            const float rank = ranks[page.first + i];
            const float age = (float)(n_tokens - (uint32_t)page.positions[i]); /* at least 1 */
            ages[page.first + i] = rank > last ? INFINITY : rank == last ? age : 0.0f;
        }
    }
}

static void mark_block(const float *restrict x, float least, uint8_t mark, uint8_t *restrict marks) {
    for (uint32_t i = 0; i < BLOCK; i++) marks[i] = x[i] >= least ? mark : marks[i];
}

static void mark_reach(const float *x, uint32_t n, float least, uint8_t mark, uint8_t *marks) {
    uint32_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) mark_block(x + i, least, mark, marks + i);
    for (; i < n; i++) marks[i] = x[i] >= least ? mark : marks[i];
}

void pleat__select_top(const pleat__kv_run *run, const float *ranks, uint32_t k, uint32_t n_tokens, uint8_t mark,
                       uint8_t *marks, float *scratch) {
    const uint32_t n = run->n_slots;
    if (k == 0) return;
    if (pleat__count_reach(ranks, n, 0) <= k) {
        mark_reach(ranks, n, 0.0f, mark, marks);
        return;
    }
    float last = pleat__kth_largest(ranks, n, k);
    if (pleat__count_reach(ranks, n, pleat__rank_bits(last)) > k) {
        rank_by_age(run, ranks, n_tokens, last, scratch);
        last = pleat__kth_largest(scratch, n, k);
        ranks = scratch;
    }
    mark_reach(ranks, n, last, mark, marks);
}
