/* SPDX-License-Identifier: MIT
 *
 * pages.h: pool.h, table.h and plan.h on a GPU: the circular list of free pages, reference counts and all rows of all
 * sequences in device memory, and the kernels that change them.  Integers only.
 *
 *     plan      each lane counts the pages that it takes and those that it returns
 *     scan      exclusive prefix sums over the lanes, in the order of the batch: offsets from start and from end
 *     commit    each lane copies ids between the ring and its row
 *
 * in one launch; which ids a lane gets depends on the order of lanes alone, and they are those that page/plan.h and
 * page/pool.h give for the same input.  A plan that does not fit changes nothing and sets pool->n_refused.
 * LeanKV, section 5.3.
 */
#ifndef PLEAT_PAGE_CUDA_PAGES_H
#define PLEAT_PAGE_CUDA_PAGES_H

#include "core/types.h"
#include "hw/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* pool.h's counters, in device memory. */
typedef struct pleat__device_pool {
    uint32_t n_pages;
    uint32_t start;
    uint32_t n_free;
    uint32_t n_peak;
    uint64_t n_shares;
    uint64_t n_refused; /* plans that did not fit, since the pool was made */
} pleat__device_pool;

/* Handed to kernels by value; every pointer is device memory.  Rows and cells as core/device_view.h has them. */
typedef struct pleat__device_pages {
    pleat__device_pool *pool;
    uint32_t *ring;       /* [n_pages] */
    uint32_t *shares;     /* [n_pages] references beyond the first */
    uint32_t *ids;        /* [n_rows][row_len] */
    uint32_t *n_pages[2]; /* [side][n_rows] */
    uint32_t *n_slots[2]; /* [side][n_rows] */
    uint32_t *hole;       /* [n_rows] 1 + the dead slot of the high side that the next token takes; 0: none */
    uint32_t n_rows, row_len;
    uint32_t page_tokens[2];
    uint32_t rows_per_place; /* n_layers * n_kv_heads */
    const uint32_t *places;  /* [n_seqs] the batch: lanes are its rows, place by place */
    uint32_t n_seqs;
} pleat__device_pages;

#ifdef __cplusplus
}
#endif
#endif
