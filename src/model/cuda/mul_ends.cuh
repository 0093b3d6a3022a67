/* SPDX-License-Identifier: MIT
 *
 * mul_ends.cuh: what becomes of the quarters' sums that mul_wgmma.cu has: they are added up in order, within a block and
 * by way of global memory, and end in y or h.
 *
 *     hand over    where a tile's quarters are of several clusters, the one with the first adds up those of the others.
 *                  They come first in the others' turn
 *     together     where each cluster has one quarter, each of the four adds up a quarter of the rows of x
 */
#ifndef PLEAT_MODEL_CUDA_MUL_ENDS_CUH
#define PLEAT_MODEL_CUDA_MUL_ENDS_CUH

#include "model/cuda/mul_stages.cuh"

#if PLEAT__HAS_WGMMA

/* ---- between clusters ------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ void wait_for_multipliers(void) {
    asm volatile("bar.sync 1, %0;" ::"n"(MULTIPLIERS) : "memory");
}

/* A thread's sums of a slot, by fours: fours of threads lie side by side. */
template <int N> static __device__ __forceinline__ float4 *slab_of(const cut &c, uint32_t cluster, uint32_t slot) {
    const uint64_t block = cluster * CLUSTER + blockIdx.x % CLUSTER;
    return (float4 *)(void *)(c.slabs + (block * SLOTS + slot) * (X_ROWS / 2 * MULTIPLIERS)) + threadIdx.x - 128;
}

template <int N>
static __device__ __forceinline__ void hand_over(const float (&quarter)[N / 2], const cut &c, uint32_t slot,
                                                 bool is_last) {
    float4 *to = slab_of<N>(c, blockIdx.x / CLUSTER, slot);
#pragma unroll
    for (int i = 0; i < N / 8; i++)
        __stcg(to + i * MULTIPLIERS,
               make_float4(quarter[4 * i], quarter[4 * i + 1], quarter[4 * i + 2], quarter[4 * i + 3]));
    if (!is_last) return;
    __threadfence();
    wait_for_multipliers();
    if (threadIdx.x == 128)
        asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(c.flags + blockIdx.x), "r"(1) : "memory");
}

/* Until that cluster's block has handed over; its flag is as before then. */
static __device__ __forceinline__ void wait_for_slabs(const cut &c, uint32_t cluster) {
    uint32_t *flag = c.flags + cluster * CLUSTER + blockIdx.x % CLUSTER, is_there = 0;
    if (threadIdx.x == 128) {
        while (!is_there) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(is_there) : "l"(flag) : "memory");
        *flag = 0;
    }
    wait_for_multipliers();
}

/* sums += the quarters that other clusters have of the tiles, from `unit` to `to`. */
template <int N>
static __device__ __forceinline__ void take_over(float (&sums)[N / 2], const cut &c, uint32_t unit, uint32_t to) {
    uint32_t cluster = blockIdx.x / CLUSTER, first = 0;
    for (; unit < to; unit++) {
        if (unit == first_unit(c, cluster + 1)) {
            first = first_unit(c, ++cluster);
            wait_for_slabs(c, cluster);
        }
        const float4 *from = slab_of<N>(c, cluster, unit - first);
#pragma unroll
        for (int i = 0; i < N / 8; i++) {
            const float4 v = __ldcg(from + i * MULTIPLIERS);
            sums[4 * i] += v.x;
            sums[4 * i + 1] += v.y;
            sums[4 * i + 2] += v.z;
            sums[4 * i + 3] += v.w;
        }
    }
}

/* ---- what becomes of sums ---------------------------------------------------------------------------------------- */

/* Where element i of a thread's sums goes: row and row of x. */
static __device__ __forceinline__ uint2 place_of_sum(uint32_t tile, uint32_t x_from, int i) {
    const uint32_t lane = threadIdx.x % 32;
    return make_uint2(tile * PLEAT__TILE_ROWS + lane / 4 + i % 4 / 2 * 8, x_from + i / 4 * 8 + 2 * (lane % 4) + i % 2);
}

/* y += sums: AT_ONCE of them are read before any of these is written. */
#define AT_ONCE 32

template <int N>
static __device__ __forceinline__ void end_add(const pleat__device_mul &m, const float (&sums)[N / 2], uint32_t tile,
                                               uint32_t x_from) {
    constexpr int n = N / 2 < AT_ONCE ? N / 2 : AT_ONCE;
#pragma unroll
    for (int from = 0; from < N / 2; from += n) {
        float old[n];
#pragma unroll
        for (int i = 0; i < n; i++) {
            const uint2 at = place_of_sum(tile, x_from, from + i);
            if (at.x < m.w.tiles.rows && at.y < m.n) old[i] = m.y[(uint64_t)at.y * m.y_stride + at.x];
        }
#pragma unroll
        for (int i = 0; i < n; i++) {
            const uint2 at = place_of_sum(tile, x_from, from + i);
            if (at.x >= m.w.tiles.rows || at.y >= m.n) continue;
            const float sum = sums[from + i];
            m.y[(uint64_t)at.y * m.y_stride + at.x] = old[i] + m.scale * (m.bias ? sum + m.bias[at.x] : sum);
        }
    }
}

/* A lane's four results of 8 rows of x. */
template <int END>
static __device__ __forceinline__ void end_four(const pleat__device_mul &m, const float *sums, uint32_t tile,
                                                uint32_t x_row, uint32_t g) {
    const uint32_t row = tile * PLEAT__TILE_ROWS + g, of_pair = tile * (PLEAT__TILE_ROWS / 2) + g;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        if (x_row + e >= m.n) continue;
        if constexpr (END == PLEAT__MUL_GATE) {
            if (of_pair < m.w.tiles.rows / 2) pleat__end_gate(m, x_row + e, of_pair, sums[e], sums[2 + e]);
        } else {
            if (row < m.w.tiles.rows) pleat__end_sum<END>(m, x_row + e, row, sums[e]);
            if (row + 8 < m.w.tiles.rows) pleat__end_sum<END>(m, x_row + e, row + 8, sums[2 + e]);
        }
    }
}

/* Of N rows of x. */
template <int END, int N>
static __device__ __forceinline__ void end_tile(const pleat__device_mul &m, const float (&sums)[N / 2], uint32_t tile,
                                                uint32_t x_from) {
    const uint32_t lane = threadIdx.x % 32;
    if constexpr (END == PLEAT__MUL_ADD) {
        end_add<N>(m, sums, tile, x_from);
        return;
    }
    if (tile >= m.w.tiles.n_tiles) return;
#pragma unroll
    for (int i = 0; i < N / 8; i++) end_four<END>(m, sums + 4 * i, tile, x_from + 8 * i + 2 * (lane % 4), lane / 4);
}

/* ---- quarters that end together ----------------------------------------------------------------------------------- */

/* Where each cluster has one unit, the four with a tile's quarters end a quarter of its rows of x each.  A counter goes
 * on by four in a product: it says when all have given what is others'. */

template <int N>
static __device__ __forceinline__ void give(const float (&quarter)[N / 2], const cut &c, uint32_t mine) {
    float4 *to = slab_of<N>(c, blockIdx.x / CLUSTER, 0);
#pragma unroll
    for (int i = 0; i < N / 8; i++)
        if (i / (N / 32) != mine)
            __stcg(to + i * MULTIPLIERS,
                   make_float4(quarter[4 * i], quarter[4 * i + 1], quarter[4 * i + 2], quarter[4 * i + 3]));
}

static __device__ __forceinline__ void wait_for_givers(const cut &c, uint32_t piece) {
    uint32_t *counter = c.flags + MAX_CLUSTERS * CLUSTER + piece * CLUSTER + blockIdx.x % CLUSTER, was, is;
    __threadfence();
    wait_for_multipliers();
    if (threadIdx.x == 128) {
        asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(was) : "l"(counter) : "memory");
        const uint32_t until = was / PLEAT__MUL_QUARTER * PLEAT__MUL_QUARTER + PLEAT__MUL_QUARTER;
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(is) : "l"(counter) : "memory");
        while ((int32_t)(is - until) < 0);
    }
    wait_for_multipliers();
}

/* The block's part of the rows of x, which is the MINE-th. */
template <int END, int N, int MINE>
static __device__ __forceinline__ void end_part(const pleat__device_mul &m, const float (&quarter)[N / 2], const cut &c,
                                                uint32_t piece, uint32_t tile) {
    constexpr int n = N / 32; /* fours of sums */
    float sums[4 * n];
#pragma unroll
    for (int q = 0; q < (int)PLEAT__MUL_QUARTER; q++)
#pragma unroll
        for (int i = 0; i < n; i++) {
            const int at = MINE * n + i;
            float4 v = make_float4(quarter[4 * at], quarter[4 * at + 1], quarter[4 * at + 2], quarter[4 * at + 3]);
            if (q != MINE) v = __ldcg(slab_of<N>(c, piece * PLEAT__MUL_QUARTER + q, 0) + at * MULTIPLIERS);
            sums[4 * i] = q ? sums[4 * i] + v.x : v.x;
            sums[4 * i + 1] = q ? sums[4 * i + 1] + v.y : v.y;
            sums[4 * i + 2] = q ? sums[4 * i + 2] + v.z : v.z;
            sums[4 * i + 3] = q ? sums[4 * i + 3] + v.w : v.w;
        }
    end_tile<END, N / 4>(m, sums, tile, MINE * (N / 4));
}

template <int END, int N>
static __device__ __forceinline__ void end_together(const pleat__device_mul &m, const float (&quarter)[N / 2],
                                                    const cut &c, uint32_t piece, uint32_t mine, uint32_t tile) {
    give<N>(quarter, c, mine);
    wait_for_givers(c, piece);
    switch (mine) {
        case 0: end_part<END, N, 0>(m, quarter, c, piece, tile); break;
        case 1: end_part<END, N, 1>(m, quarter, c, piece, tile); break;
        case 2: end_part<END, N, 2>(m, quarter, c, piece, tile); break;
        default: end_part<END, N, 3>(m, quarter, c, piece, tile); break;
    }
}

/* A thread's totals of the tiles under way: the first in registers. */
template <int F, int N> struct totals {
    float kept[stages<F, N>::n_kept > 0 ? stages<F, N>::n_kept : 1];
    uint32_t at; /* of the others, in shared memory, by fours; only the thread itself reads them */
};

template <int F, int N> static __device__ __forceinline__ void put(totals<F, N> &t, const float (&sums)[N / 2]) {
    constexpr int n_kept = stages<F, N>::n_kept;
#pragma unroll
    for (int i = 0; i < n_kept; i++) t.kept[i] = sums[i];
#pragma unroll
    for (int i = n_kept; i < N / 2; i += 4)
        asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(t.at + (i - n_kept) * MULTIPLIERS * 4),
                     "f"(sums[i]), "f"(sums[i + 1]), "f"(sums[i + 2]), "f"(sums[i + 3])
                     : "memory");
}

template <int F, int N> static __device__ __forceinline__ void add(float (&sums)[N / 2], const totals<F, N> &t) {
    constexpr int n_kept = stages<F, N>::n_kept;
#pragma unroll
    for (int i = 0; i < n_kept; i++) sums[i] = t.kept[i] + sums[i];
#pragma unroll
    for (int i = n_kept; i < N / 2; i += 4) {
        float v[4];
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
                     : "r"(t.at + (i - n_kept) * MULTIPLIERS * 4)
                     : "memory");
#pragma unroll
        for (int e = 0; e < 4; e++) sums[i + e] = v[e] + sums[i + e];
    }
}

#endif
#endif
