/* SPDX-License-Identifier: MIT
 *
 * device_view.h: kv_view.h's twin for a GPU: what its kernels see of all lanes of a cache.  A plain struct that is
 * handed to kernels by value; every pointer is device memory.
 *
 * Pages have the layout of quant/layout.h, byte for byte: one law for both.  So pages are copied between host and
 * device as they are, and every kernel is held against the CPU's on the same bytes.  Tables differ: a row's cells stand
 * side by side, high pages from the left and low ones from the right:
 *
 *     row of (seq_idx, layer, head)   (seq_idx * n_layers + layer) * n_kv_heads + head
 *     high page i of a row            ids[row * row_len + i]
 *     low page i                      ids[row * row_len + row_len - 1 - i]
 *
 * A sequence index, 0..max_seqs-1, names a sequence of the cache; a step's batch is a list of them.
 */
#ifndef PLEAT_CORE_DEVICE_VIEW_H
#define PLEAT_CORE_DEVICE_VIEW_H

#include "core/kv_view.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pleat__device_view {
    uint8_t *base;                 /* the pool's first byte, aligned to 256 */
    uint64_t page_bytes;           /* a multiple of 128 */
    pleat__page_layout layouts[2]; /* [side] high, low; without a low side both are the high side's */
    const uint32_t *ids;           /* [n_rows][row_len] */
    const uint32_t *n_slots[2];    /* [side][n_rows] slots in use; every page but the last of a side is full */
    uint32_t row_len;
    uint32_t n_layers, n_kv_heads;
    uint32_t n_group;         /* query heads of a KV head, 1..8 */
    const uint32_t *seq_idxs; /* [n_seqs] sequence indexes: the batch */
    uint32_t n_seqs;
} pleat__device_view;

#ifdef __cplusplus
}
#endif

#if defined(__CUDACC__)
static __host__ __device__ inline uint64_t pleat__device_row(const pleat__device_view *v, uint32_t seq_idx,
                                                             uint32_t layer, uint32_t head) {
    return ((uint64_t)seq_idx * v->n_layers + layer) * v->n_kv_heads + head;
}
#endif

#endif
