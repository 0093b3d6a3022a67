/* SPDX-License-Identifier: MIT
 *
 * plain.cu: gemm.h's kernels: a matrix out of its tiles, and the gates of a product with pairs.
 *
 *     plain    a warp a group of a tile; a lane stores what it holds of the rows g and g + 8, 16 bytes at a time: eight
 *              rows of 64 bytes by one store
 *     gate     a thread 8 gates and their 8 ups
 */
#include "hw/cuda/launch.cuh"
#include "model/cuda/gemm.h"
#include "model/cuda/tile.cuh"

#define WARPS 8u

template <int F> static __global__ void __launch_bounds__(WARPS * 32) plain(pleat__device_matrix m, uint16_t *out) {
    const uint32_t lane = threadIdx.x % 32, tile = blockIdx.x, group = blockIdx.y * WARPS + threadIdx.x / 32;
    pleat__let_next_start();
    pleat__wait_for_last();
    if (group >= m.tiles.n_groups) return;
    pleat__lane_group<F> w;
    const uint32_t row_bytes = pleat__row_bytes(m.tiles), row_halves = row_bytes / 2;
    pleat__load_group<F>(w, pleat__group_at<F>(m, tile, group), row_bytes, lane);
    uint16_t *row = out + ((uint64_t)tile * PLEAT__TILE_ROWS + lane / 4) * row_halves;
#pragma unroll
    for (int j = 0; j < (int)PLEAT__TILE_SLICES; j++) {
        const uint32_t col = group * PLEAT__GROUP_COLS + 32 * j + 8 * (lane % 4);
        uint32_t g[4], g8[4];
        if (col >= m.tiles.cols) break;
        pleat__operands<F>(w, j, g, g8);
        *(uint4 *)(void *)(row + col) = make_uint4(g[0], g[1], g[2], g[3]);
        *(uint4 *)(void *)(row + (uint64_t)8 * row_halves + col) = make_uint4(g8[0], g8[1], g8[2], g8[3]);
    }
}

template <int F> static void launch_plain(const pleat__device_matrix &m, uint16_t *out, pleat__device_stream stream) {
    pleat__launch(plain<F>, dim3(m.tiles.n_tiles, (m.tiles.n_groups + WARPS - 1) / WARPS), WARPS * 32, 0, stream, m,
                  out);
}

extern "C" uint64_t pleat__device_plain_halves(const pleat__tiles *tiles) {
    return (uint64_t)tiles->n_tiles * PLEAT__TILE_ROWS * tiles->n_groups * PLEAT__GROUP_COLS;
}

extern "C" pleat_status pleat__device_plain(const pleat__device_matrix *m, uint16_t *out, pleat__device_stream stream,
                                            pleat_error *err) {
    PLEAT_FAIL_IF(m->tiles.format == PLEAT__TILE_F16, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "a matrix of F16 is plain as it is");
    switch (m->tiles.format) {
        case PLEAT__TILE_Q8: launch_plain<PLEAT__TILE_Q8>(*m, out, stream); break;
        case PLEAT__TILE_Q4: launch_plain<PLEAT__TILE_Q4>(*m, out, stream); break;
        case PLEAT__TILE_Q4_MIN: launch_plain<PLEAT__TILE_Q4_MIN>(*m, out, stream); break;
        default: launch_plain<PLEAT__TILE_Q8_HALF>(*m, out, stream); break;
    }
    return PLEAT_CUDA_LAUNCHED("taking a matrix out of its tiles", err);
}

/* ---- gates ----------------------------------------------------------------------------------------------- */

#define GATE_THREADS 256u

static __global__ void __launch_bounds__(GATE_THREADS)
    gate(const uint4 *pairs, uint32_t n_ff, bool is_gelu, uint16_t *h, uint32_t h_stride) {
    const uint32_t i = blockIdx.x * GATE_THREADS + threadIdx.x, row = blockIdx.y;
    pleat__let_next_start();
    pleat__wait_for_last();
    if (i >= n_ff / 8) return;
    const uint64_t at = (uint64_t)row * (n_ff / 4) + 2 * i;
    const uint4 gates = pairs[at], ups = pairs[at + 1];
    uint32_t out[4];
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const float2 a = __half22float2(pleat__as_half2(pleat__word_of(gates, e)));
        const float2 b = __half22float2(pleat__as_half2(pleat__word_of(ups, e)));
        out[e] = pleat__as_word(__floats2half2_rn(pleat__act(a.x, is_gelu) * b.x, pleat__act(a.y, is_gelu) * b.y));
    }
    *(uint4 *)(void *)(h + (uint64_t)row * h_stride + 8 * i) = make_uint4(out[0], out[1], out[2], out[3]);
}

extern "C" pleat_status pleat__device_gate(const uint16_t *pairs, uint32_t n, uint32_t n_ff, bool is_gelu, uint16_t *h,
                                           uint32_t h_stride, pleat__device_stream stream, pleat_error *err) {
    pleat__launch(gate, dim3((n_ff / 8 + GATE_THREADS - 1) / GATE_THREADS, n), GATE_THREADS, 0, stream,
                  (const uint4 *)(const void *)pairs, n_ff, is_gelu, h, h_stride);
    return PLEAT_CUDA_LAUNCHED("applying gates", err);
}
