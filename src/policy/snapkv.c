/* SPDX-License-Identifier: MIT
 *
 * snapkv.c: what the end of a prompt attends to (SnapKV, Li et al. 2024, section 4).
 *
 *     rank(i) = a(i-2) + a(i-1) + a(i) + a(i+1) + a(i+2)      a(i): attention that position i has received from the
 *                                                             last `window` queries, summed over the group
 *
 * As in its authors' code a is 0 outside [0, N - window), where their convolution pads, and the sinks are pooled with
 * the others.  Here it is also 0 where no token stands in the run (dropped or sealed ones), and for representatives.  A
 * sum in place of their mean over 5 positions orders tokens alike.
 */
#include <string.h>

#include "policy/evict.h"

#define PAD 2u   /* positions on either side of the pooled one */
#define BLOCK 4u /* by_position has 2*PAD + BLOCK floats behind the last position */

/* x[i] = x[i] + .. + x[i + 2*PAD], in place; reads and writes whole blocks. */
static void pool(float *x, uint32_t n) {
    for (uint32_t first = 0; first < n; first += BLOCK) {
        float *at = x + first, sums[BLOCK];
        for (uint32_t i = 0; i < BLOCK; i++) sums[i] = at[i] + at[i + 1] + at[i + 2] + at[i + 3] + at[i + 4];
        memcpy(at, sums, sizeof sums);
    }
}

void pleat__rank_pooled(const pleat__evict_lane *lane, float *ranks, float *by_position) {
    const pleat__kv_run *run = lane->run;
    const uint32_t window = lane->spec->window;
    const uint32_t end = lane->n_tokens > window ? lane->n_tokens - window : 0;
    pleat__tracked page;
    memset(by_position, 0, ((size_t)end + 2 * PAD + BLOCK) * sizeof(float));
    for (pleat__page_walk walk = pleat__walk_pages(run); pleat__next_page(&walk, &page);) {
        for (uint32_t i = 0; i < page.n; i++)
            if ((uint32_t)page.positions[i] < end)
                by_position[(uint32_t)page.positions[i] + PAD] = ranks[page.first + i];
    }
    pool(by_position, end);
    for (pleat__page_walk walk = pleat__walk_pages(run); pleat__next_page(&walk, &page);) {
        for (uint32_t i = 0; i < page.n; i++) {
            const uint32_t position = (uint32_t)page.positions[i];
            ranks[page.first + i] = position < end ? by_position[position] : 0.0f;
        }
    }
}

const pleat__evictor pleat__evictor_snapkv = {
    .scoring = PLEAT__SCORING_WINDOW, .rank_block = pleat__rank_received, .rank = pleat__rank_pooled};
