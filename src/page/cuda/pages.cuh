/* SPDX-License-Identifier: MIT
 *
 * pages.cuh: what kernels of other folders do with rows while they run: find them, their pages and slots.
 *
 *     row = pleat__device_lane_row(&p, lane)
 *     at = pleat__device_slot_at(&p, row, side, slot)      page at.page, slot at.slot of it
 *
 * Pages are appended and returned by pages.h's launchers alone.  Kernels change n_slots, hole and dead of rows that they
 * own.  A row's next token takes the hole of the high side, if there is one, or the slot behind a side's last, for which
 * take has found a page.  A kernel of a step does nothing where pleat__device_refused() is true.
 */
#ifndef PLEAT_PAGE_CUDA_PAGES_CUH
#define PLEAT_PAGE_CUDA_PAGES_CUH

#include "page/cuda/pages.h"

/* Where a token stands. */
typedef struct pleat__device_slot {
    uint32_t page; /* id in the pool */
    uint32_t slot; /* in the page */
} pleat__device_slot;

/* Did the last plan not fit?  Then the step's kernels leave everything as it is. */
static __device__ inline bool pleat__device_refused(const pleat__device_pages *p) { return p->pool->refused != 0; }

/* Do lanes of the sequence want low slots? */
static __device__ inline bool pleat__device_wants_low(const pleat__device_want *want, uint32_t seq_idx) {
    if (!want->n_tokens) return true;
    const uint32_t n_tokens = want->n_tokens[seq_idx];
    return n_tokens >= want->low_from && (want->low_every < 2 || (n_tokens + 1) % want->low_every == 0);
}

/* Row of lane `lane` of the batch. */
static __device__ inline uint32_t pleat__device_lane_row(const pleat__device_pages *p, uint32_t lane) {
    const uint32_t item = lane / p->rows_per_seq;
    return p->seq_idxs[item] * p->rows_per_seq + (lane - item * p->rows_per_seq);
}

/* The cell of page `idx` of a row's side. */
static __device__ inline uint32_t *pleat__device_cell(const pleat__device_pages *p, uint32_t row, int side,
                                                      uint32_t idx) {
    return p->ids + (uint64_t)row * p->row_len + (side == 0 ? idx : p->row_len - 1 - idx);
}

/* Where slot `slot` of a side stands, which has a page for it. */
static __device__ inline pleat__device_slot pleat__device_slot_at(const pleat__device_pages *p, uint32_t row, int side,
                                                                  uint32_t slot) {
    const uint32_t tokens = p->page_tokens[side], idx = slot / tokens;
    return pleat__device_slot{*pleat__device_cell(p, row, side, idx), slot - idx * tokens};
}

#endif
