/* SPDX-License-Identifier: MIT
 *
 * lanes.cuh: what the kernels of prompt.cu, step.cu and end.cu share: finding a slot's bytes, and policy/leankv.h's arithmetic,
 * rounded as on the CPU, so that both decide the same.
 */
#ifndef PLEAT_CACHE_CUDA_LANES_CUH
#define PLEAT_CACHE_CUDA_LANES_CUH

#include "cache/cuda/lanes.h"
#include "hw/cuda/cuda.cuh"
#include "page/cuda/pages.cuh"
#include "pleat/cache.h"
#include "quant/cuda/token.cuh"

/* A slot's page and its place there. */
typedef struct pleat__device_slot_bytes {
    uint8_t *page;
    uint32_t slot;
} pleat__device_slot_bytes;

static __device__ inline pleat__device_slot_bytes pleat__device_bytes_of(const pleat__device_lanes &l, uint32_t row,
                                                                         int side, uint32_t slot) {
    const pleat__device_slot at = pleat__device_slot_at(&l.pages, row, side, slot);
    return pleat__device_slot_bytes{l.base + at.page * l.page_bytes, at.slot};
}

/* A step's token in a tracked page: nobody has attended to it. */
static __device__ inline void pleat__device_track(const pleat__page_layout &l, uint8_t *page, uint32_t slot,
                                                  uint32_t position) {
    if (l.n_scores) pleat__device_scores(l, page)[slot] = 0;
    pleat__device_positions(l, page)[slot] = (int32_t)position;
}

/* Row of a layer's KV head in a sequence. */
static __device__ inline uint32_t pleat__device_row_at(const pleat__device_lanes &l, uint32_t seq_idx, uint32_t layer,
                                                       uint32_t head) {
    return (seq_idx * l.n_layers + layer) * l.n_kv_heads + head;
}

/* pleat__significance(). */
static __device__ inline float pleat__device_significance(float sum, uint32_t position, uint32_t n_tokens) {
    return position + 1 < n_tokens ? __fdiv_rn(sum, (float)(n_tokens - 1 - position)) : 0.0f;
}

/* The step's token of a lane of the batch, by one 16-byte load. */
static __device__ inline pleat__device_new_token pleat__device_token_of(const pleat__device_lanes &l, uint32_t lane) {
    const uint4 t = *(const uint4 *)(const void *)&l.fresh[lane];
    return pleat__device_new_token{t.x, t.y, t.z, t.w};
}

/* pleat__step_is_counted(). */
static __device__ inline bool pleat__device_step_is_counted(const pleat__device_policy &p, uint32_t n_tokens) {
    return p.every == 1 || n_tokens % p.every == 0;
}

/* ah/L and al/L. */
typedef struct pleat__device_thresholds {
    float ah, al;
} pleat__device_thresholds;

static __device__ inline pleat__device_thresholds pleat__device_thresholds_at(const pleat__device_policy &p,
                                                                              uint32_t length) {
    return pleat__device_thresholds{__fdiv_rn(p.ah, (float)length), __fdiv_rn(p.al, (float)length)};
}

/* pleat__leankv_level() of a token outside the window. */
static __device__ inline pleat_level pleat__device_level(pleat__device_thresholds t, float significance) {
    return significance >= t.ah ? PLEAT_LEVEL_HIGH : significance >= t.al ? PLEAT_LEVEL_LOW : PLEAT_LEVEL_DROPPED;
}

#endif
