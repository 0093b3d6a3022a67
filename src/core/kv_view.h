/* SPDX-License-Identifier: MIT
 *
 * kv_view.h: the one struct that crosses from control to data: what a kernel sees of a lane.
 *
 * A run is the tokens of one side of a lane: n_slots slots in pages that all have one layout, every page full but
 * the last.  A view is a lane: its high run, then its low run.  Views point into tables and pools
 * and own nothing; they are made for one call.
 *
 *     page_of(run, i) = base + ids[i * step] * page_bytes          i = 0 .. ceil(n_slots / layout->tokens) - 1
 *
 * step is +1 on the high side, whose ids grow from the left of the table's row, and -1 on the low side.
 */
#ifndef PLEAT_CORE_KV_VIEW_H
#define PLEAT_CORE_KV_VIEW_H

#include "core/types.h"

struct pleat__page_layout; /* quant/layout.h */

typedef struct pleat__kv_run {
    const struct pleat__page_layout *layout;
    uint8_t *base;             /* the pool's first byte, aligned to PLEAT__ALIGN */
    uint64_t page_bytes;       /* distance of pages; a multiple of PLEAT__ALIGN */
    const pleat__page_id *ids; /* id of the run's first page */
    int32_t step;              /* +1 or -1 */
    uint32_t n_slots;          /* slots in use */
} pleat__kv_run;

typedef struct pleat__kv_view {
    pleat__kv_run high;
    pleat__kv_run low; /* n_slots is 0 where a lane has one side */
} pleat__kv_view;

static inline uint8_t *pleat__kv_page(const pleat__kv_run *run, uint32_t page_idx) {
    return run->base + (uint64_t)run->ids[(int64_t)page_idx * run->step].v * run->page_bytes;
}

#endif
