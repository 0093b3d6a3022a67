/* SPDX-License-Identifier: MIT
 *
 * layout.cuh: layout.h's and kv_view.h's pieces of a page, for kernels, which cannot call the host's functions.
 *
 *     pleat__device_k_tile(l, page, tile)       codes of 16 keys; v_tile likewise
 *     pleat__device_k_meta(l, page, tile)       their 16 scales, then their 16 minimums, f16; rotated: scales alone
 *     pleat__device_scores(l, page)             of a tracked page, [n_scores][tokens]
 *     pleat__device_positions(l, page)          [tokens]
 */
#ifndef PLEAT_QUANT_CUDA_LAYOUT_CUH
#define PLEAT_QUANT_CUDA_LAYOUT_CUH

#include <cuda_runtime.h>

extern "C" {
#include "quant/layout.h"
}

static __device__ inline uint8_t *pleat__device_k_tile(const pleat__page_layout &l, uint8_t *page, uint32_t tile) {
    return page + l.k_off + tile * l.k_tile_bytes; /* pages are below 2^31 bytes */
}

static __device__ inline uint8_t *pleat__device_v_tile(const pleat__page_layout &l, uint8_t *page, uint32_t tile) {
    return page + l.v_off + tile * l.v_tile_bytes;
}

/* pleat__meta_tile_bytes(). */
static __device__ inline uint32_t pleat__device_meta_bytes(const pleat__page_layout &l) {
    return l.format.rotated ? PLEAT__META_TILE_BYTES / 2 : PLEAT__META_TILE_BYTES;
}

static __device__ inline uint16_t *pleat__device_k_meta(const pleat__page_layout &l, uint8_t *page, uint32_t tile) {
    return (uint16_t *)(void *)(page + l.k_meta_off + tile * pleat__device_meta_bytes(l));
}

static __device__ inline uint16_t *pleat__device_v_meta(const pleat__page_layout &l, uint8_t *page, uint32_t tile) {
    return (uint16_t *)(void *)(page + l.v_meta_off + tile * pleat__device_meta_bytes(l));
}

static __device__ inline float *pleat__device_scores(const pleat__page_layout &l, uint8_t *page) {
    return (float *)(void *)(page + l.score_off);
}

static __device__ inline int32_t *pleat__device_positions(const pleat__page_layout &l, uint8_t *page) {
    return (int32_t *)(void *)(page + l.pos_off);
}

#endif
