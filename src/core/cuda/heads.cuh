/* SPDX-License-Identifier: MIT
 *
 * heads.cuh: a head made ready for the cache, by a warp: the bias added, normed and turned (pleat/device_cache.h), in f32.
 * A thread has the pairs thread, thread + 32, ...
 */
#ifndef PLEAT_CORE_CUDA_HEADS_CUH
#define PLEAT_CORE_CUDA_HEADS_CUH

#include <cuda_fp16.h>
#include <stdint.h>

#include "pleat/device_cache.h"

/* Which head of a row. */
typedef struct pleat__head_place {
    uint32_t part;    /* 0: q, 1: k, 2: v */
    uint32_t in_part; /* its index there */
    uint32_t dim;     /* head_dim */
    uint32_t position;
} pleat__head_place;

/* Where a head's pair stands: its two dimensions. */
static __device__ __forceinline__ uint2 pleat__pair_at(const pleat_device_cache_heads &h, uint32_t pair) {
    const uint32_t n_turning = h.turns ? h.n_dims / 2 : 0;
    if (h.is_halves && pair < n_turning) return make_uint2(pair, pair + n_turning);
    return make_uint2(2 * pair, 2 * pair + 1);
}

/* from: the head's elements in qkv; to: as f16.  PAIRS: of a thread, at most. */
template <int PAIRS>
static __device__ __forceinline__ void pleat__make_head(const pleat_device_cache_heads &h, const pleat__head_place &p,
                                                        const float *from, __half *to) {
    const uint32_t lane = threadIdx.x % 32;
    const float *bias = h.biases[p.part], *norm_of = p.part < 2 ? h.norms[p.part] : NULL;
    const uint32_t n_turning = p.part < 2 && h.turns ? h.n_dims / 2 : 0;
    const float2 *turns = (const float2 *)(const void *)h.turns + (uint64_t)p.position * (h.n_dims / 2);
    float2 turn[PAIRS];
    float a[PAIRS], b[PAIRS], sum = 0;
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        const uint32_t pair = lane + 32 * i;
        a[i] = b[i] = 0;
        if (pair < n_turning) turn[i] = turns[pair];
        if (pair >= p.dim / 2) continue;
        const uint2 dims = pleat__pair_at(h, pair);
        a[i] = from[dims.x];
        b[i] = from[dims.y];
        if (bias) a[i] += bias[p.in_part * p.dim + dims.x];
        if (bias) b[i] += bias[p.in_part * p.dim + dims.y];
        sum += a[i] * a[i] + b[i] * b[i];
    }
#pragma unroll
    for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, by);
    const float factor = norm_of ? 1.0f / sqrtf(sum / (float)p.dim + h.eps) : 1.0f;
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        const uint32_t pair = lane + 32 * i;
        if (pair >= p.dim / 2) continue;
        const uint2 dims = pleat__pair_at(h, pair);
        float first = a[i], second = b[i];
        if (norm_of) {
            first = norm_of[dims.x] * (first * factor);
            second = norm_of[dims.y] * (second * factor);
        }
        if (pair < n_turning) {
            const float turned = first * turn[i].x - second * turn[i].y;
            second = second * turn[i].x + first * turn[i].y;
            first = turned;
        }
        to[dims.x] = __float2half_rn(first);
        to[dims.y] = __float2half_rn(second);
    }
}

#endif
