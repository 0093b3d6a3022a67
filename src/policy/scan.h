/* SPDX-License-Identifier: MIT
 *
 * scan.h: searches through the scores and positions of a tracked run.  They run once for each lane and generated token
 * over thousands of slots, so most slots are only looked at 16 at a time, with an inexact test that cannot miss.
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

/* The slot of the token at `position`, or PLEAT__NO_SLOT.  No two slots have one position. */
uint32_t pleat__scan_find(const pleat__kv_run *run, uint32_t position);

/* The slot whose token has the least significance of all that are outside the window and below `limit`, the lowest
 * among equals; or PLEAT__NO_SLOT.  *least: its significance, left alone if there is none.  n_tokens > window > 0.
 * With a limit of 0 the run's pages are not read, and need not be tracked. */
uint32_t pleat__scan_least(const pleat__kv_run *run, uint32_t n_tokens, uint32_t window, float limit, float *least);

/* Slots that are not dead. */
uint32_t pleat__scan_live(const pleat__kv_run *run);

#endif
