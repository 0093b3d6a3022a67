/* SPDX-License-Identifier: MIT
 *
 * rotate.cu: see rotate.h.  A warp a row.
 */
#include "quant/cuda/rotate.h"

#include "hw/cuda/launch.cuh"
#include "quant/cuda/wide.cuh"

#define WARPS 4u

static __global__ void __launch_bounds__(WARPS * 32)
    rotate_queries(const uint2 *q, uint32_t n_rows, uint32_t n_quads, uint2 *to) {
    const uint32_t row = blockIdx.x * WARPS + threadIdx.x / 32;
    pleat__wait_for_last();
    pleat__let_next_start();
    if (row >= n_rows) return;
    pleat__device_wide w = pleat__device_wide_of(q + (uint64_t)row * n_quads, n_quads);
    pleat__device_wide_rotate(&w, n_quads);
#pragma unroll
    for (uint32_t i = 0; i < PLEAT__WIDE_QUADS; i++) {
        const uint32_t t = threadIdx.x % 32 + 32 * i;
#pragma unroll
        for (uint32_t e = 0; e < 4; e++) w.quads[i].x[e] *= 1 / PLEAT__ROTATED_QUERY_UNIT;
        if (t < n_quads) to[(uint64_t)row * n_quads + t] = pleat__device_quad_f16(w.quads[i]);
    }
}

static __global__ void __launch_bounds__(WARPS * 32) rotate_back(float4 *rows, uint32_t n_rows, uint32_t n_quads) {
    const uint32_t row = blockIdx.x * WARPS + threadIdx.x / 32;
    pleat__wait_for_last();
    pleat__let_next_start();
    if (row >= n_rows) return;
    pleat__device_wide w = {};
#pragma unroll
    for (uint32_t i = 0; i < PLEAT__WIDE_QUADS; i++) {
        const uint32_t t = threadIdx.x % 32 + 32 * i;
        if (t >= n_quads) continue;
        const float4 x = rows[(uint64_t)row * n_quads + t];
        w.quads[i] = pleat__device_quad{{x.x, x.y, x.z, x.w}};
    }
    pleat__device_wide_rotate_back(&w, n_quads);
#pragma unroll
    for (uint32_t i = 0; i < PLEAT__WIDE_QUADS; i++) {
        const uint32_t t = threadIdx.x % 32 + 32 * i;
        const float *x = w.quads[i].x;
        if (t < n_quads) rows[(uint64_t)row * n_quads + t] = make_float4(x[0], x[1], x[2], x[3]);
    }
}

static uint32_t blocks_for(uint32_t n_rows) { return (n_rows + WARPS - 1) / WARPS; }

extern "C" pleat_status pleat__device_rotate_queries(const uint16_t *q, uint32_t n_rows, uint32_t head_dim,
                                                     uint16_t *to, pleat__device_stream stream, pleat_error *err) {
    if (n_rows == 0) return PLEAT_OK;
    pleat__launch(rotate_queries, blocks_for(n_rows), WARPS * 32, 0, stream, (const uint2 *)(const void *)q, n_rows,
                  head_dim / 4, (uint2 *)(void *)to);
    return PLEAT_CUDA_LAUNCHED("rotating queries", err);
}

extern "C" pleat_status pleat__device_rotate_back(float *rows, uint32_t n_rows, uint32_t head_dim,
                                                  pleat__device_stream stream, pleat_error *err) {
    if (n_rows == 0) return PLEAT_OK;
    pleat__launch(rotate_back, blocks_for(n_rows), WARPS * 32, 0, stream, (float4 *)(void *)rows, n_rows, head_dim / 4);
    return PLEAT_CUDA_LAUNCHED("turning attention back", err);
}
