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

/* Four sums of a thread in shared memory: fours of threads lie side by side. */
static __device__ __forceinline__ void put_four(uint32_t at, const float *sums) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(at), "f"(sums[0]), "f"(sums[1]), "f"(sums[2]),
                 "f"(sums[3])
                 : "memory");
}

static __device__ __forceinline__ float4 get_four(uint32_t at) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
}

static __device__ __forceinline__ float2 get_two(uint32_t at) {
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at) : "memory");
    return v;
}

static __device__ __forceinline__ void put_one(uint32_t at, float sum) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(sum) : "memory");
}

/* A warp's sums of its tile and 8 rows of x, where its lanes exchange them: the warp's part of a row of fours.  Lanes that
 * write at once, as wgmma has sums, and that read four or two neighbours at once find different banks. */
#define BLOCK_STEP (MULTIPLIERS * 16)

static __device__ __forceinline__ uint32_t place_of_sum(uint32_t x_row, uint32_t row) {
    const uint32_t two = x_row / 2, in_two = row / 4 * 8 + x_row % 2 * 4 + row % 4;
    return (two * 32 + (in_two ^ two % 2 * 4 ^ two / 2 * 16)) * 4;
}

/* Sums of rows 2q and 2q + 1 of x, of the rows g and g + 8; at: of the first. */
static __device__ __forceinline__ void put_sums(uint32_t at, const float *sums) {
    put_one(at, sums[0]);
    put_one(at ^ 16, sums[1]);
    put_one(at ^ 64, sums[2]);
    put_one(at ^ 16 ^ 64, sums[3]);
}

/* y += four values; nobody else adds to y meanwhile, but an addition that is not waited for is the fastest. */
static __device__ __forceinline__ void add_four(float *y, const float (&v)[4]) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(y), "f"(v[0]), "f"(v[1]), "f"(v[2]),
                 "f"(v[3])
                 : "memory");
}

/* Sums of four rows, from `row` on. */
static __device__ __forceinline__ void end_four(const pleat__device_mul &m, uint32_t x_row, uint32_t row, float4 sums) {
    float v[4] = {sums.x, sums.y, sums.z, sums.w};
    float *y = m.y + (uint64_t)x_row * m.y_stride + row;
    const bool adds = m.end == PLEAT__MUL_ADD;
    const int n = min(4, (int)(m.w.tiles.rows - row));
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (adds) {
            v[i] = pleat__addend(m, row + (i < n ? i : 0), v[i]);
        } else {
            v[i] *= m.scale;
            if (m.cap > 0) v[i] = m.cap * tanhf(v[i] / m.cap);
        }
    }
    if (n == 4 && (uint64_t)y % 16 == 0) {
        if (adds)
            add_four(y, v);
        else
            *(float4 *)(void *)y = make_float4(v[0], v[1], v[2], v[3]);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (i >= n) break;
        if (adds)
            atomicAdd(y + i, v[i]);
        else
            y[i] = v[i];
    }
}

/* Rows `row` and row + 1 of either matrix of a pair; row is even. */
static __device__ __forceinline__ void end_two_gates(const pleat__device_mul &m, uint32_t x_row, uint32_t row,
                                                     float2 gate, float2 up) {
    const uint32_t both =
        pleat__as_word(__floats2half2_rn(pleat__act(gate.x, m.is_gelu) * up.x, pleat__act(gate.y, m.is_gelu) * up.y));
    uint16_t *h = m.h + (uint64_t)x_row * m.y_stride + row;
    if (m.h_is_packed) {
        *(uint32_t *)(void *)((uint8_t *)m.h + pleat__packed_at(x_row, row)) = both;
    } else if (row + 1 < m.w.tiles.rows / 2 && (uint64_t)h % 4 == 0) {
        *(uint32_t *)(void *)h = both;
    } else {
        h[0] = (uint16_t)both;
        if (row + 1 < m.w.tiles.rows / 2) h[1] = (uint16_t)(both >> 16);
    }
}

/* BLOCKS of 8 rows of x each, from x_from on, whose sums the warp has put. */
template <int BLOCKS>
static __device__ __forceinline__ void end_blocks(const pleat__device_mul &m, uint32_t tile, uint32_t x_from,
                                                  uint32_t of_warp) {
    const uint32_t lane = threadIdx.x % 32, x_row = x_from + lane / 4;
    if (m.end == PLEAT__MUL_GATE) {
        const uint32_t row = tile * (PLEAT__TILE_ROWS / 2) + lane % 4 * 2,
                       at = of_warp + place_of_sum(lane / 4, lane % 4 * 2);
        if (row >= m.w.tiles.rows / 2) return;
#pragma unroll 4
        for (uint32_t i = 0; i < BLOCKS; i++)
            if (x_row + 8 * i < m.n)
                end_two_gates(m, x_row + 8 * i, row, get_two(at + i * BLOCK_STEP), get_two((at ^ 64) + i * BLOCK_STEP));
        return;
    }
    const uint32_t row = tile * PLEAT__TILE_ROWS + lane % 4 * 4, at = of_warp + place_of_sum(lane / 4, lane % 4 * 4);
    if (row >= m.w.tiles.rows) return;
#pragma unroll 4
    for (uint32_t i = 0; i < BLOCKS; i++)
        if (x_row + 8 * i < m.n) end_four(m, x_row + 8 * i, row, get_four(at + i * BLOCK_STEP));
}

/* Of N rows of x; at: of the thread's fours in shared memory, MOST sums of which are free.  By that way four neighbours in
 * a row of y come to one lane, and what becomes of sums stands in the code for few of them.  Where it stood for each a
 * kernel had 90 to 134 KB, and fetching it took as long as a fifth of a product. */
template <int N, int MOST = 32>
static __device__ __forceinline__ void end_tile(const pleat__device_mul &m, float (&sums)[N / 2], uint32_t tile,
                                                uint32_t x_from, uint32_t at) {
    constexpr int n = N / 2 < MOST ? N / 2 : MOST;
    const uint32_t lane = threadIdx.x % 32, of_warp = at - lane * 16;
    const uint32_t mine = of_warp + place_of_sum(lane % 4 * 2, lane / 4);
    __syncwarp(); /* totals have been read */
#pragma unroll 1
    for (int from = 0; from < N / 2; from += n) {
#pragma unroll
        for (int i = 0; i < n / 4; i++) put_sums(mine + i * BLOCK_STEP, sums + 4 * i);
        __syncwarp();
        end_blocks<n / 4>(m, tile, x_from + 2 * from, of_warp);
        __syncwarp();
#pragma unroll
        for (int i = 0; i + n < N / 2; i++) sums[i] = sums[i + n];
    }
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
    wait_for_multipliers();
    if (threadIdx.x == 128) {
        asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(was) : "l"(counter) : "memory");
        const uint32_t until = was / PLEAT__MUL_QUARTER * PLEAT__MUL_QUARTER + PLEAT__MUL_QUARTER;
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(is) : "l"(counter) : "memory");
        while ((int32_t)(is - until) < 0);
    }
    wait_for_multipliers();
}

/* All quarters of the MINE-th part of the rows of x. */
template <int N, int MINE>
static __device__ __forceinline__ void add_part(float (&sums)[N / 8], const float (&quarter)[N / 2], const cut &c,
                                                uint32_t piece) {
#pragma unroll
    for (int q = 0; q < (int)PLEAT__MUL_QUARTER; q++)
#pragma unroll
        for (int i = 0; i < N / 8; i += 4) {
            const int at = MINE * (N / 8) + i;
            float4 v = make_float4(quarter[at], quarter[at + 1], quarter[at + 2], quarter[at + 3]);
            if (q != MINE) v = __ldcg(slab_of<N>(c, piece * PLEAT__MUL_QUARTER + q, 0) + at / 4 * MULTIPLIERS);
            sums[i] = q ? sums[i] + v.x : v.x;
            sums[i + 1] = q ? sums[i + 1] + v.y : v.y;
            sums[i + 2] = q ? sums[i + 2] + v.z : v.z;
            sums[i + 3] = q ? sums[i + 3] + v.w : v.w;
        }
}

template <int N>
static __device__ __forceinline__ void end_together(const pleat__device_mul &m, const float (&quarter)[N / 2],
                                                    const cut &c, uint32_t piece, uint32_t mine, uint32_t tile,
                                                    uint32_t at) {
    float sums[N / 8];
    give<N>(quarter, c, mine);
    wait_for_givers(c, piece);
    switch (mine) {
        case 0: add_part<N, 0>(sums, quarter, c, piece); break;
        case 1: add_part<N, 1>(sums, quarter, c, piece); break;
        case 2: add_part<N, 2>(sums, quarter, c, piece); break;
        default: add_part<N, 3>(sums, quarter, c, piece); break;
    }
    end_tile<N / 4>(m, sums, tile, mine * (N / 4), at);
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
    for (int i = n_kept; i < N / 2; i += 4) put_four(t.at + (i - n_kept) * MULTIPLIERS * 4, sums + i);
}

template <int F, int N> static __device__ __forceinline__ void add(float (&sums)[N / 2], const totals<F, N> &t) {
    constexpr int n_kept = stages<F, N>::n_kept;
#pragma unroll
    for (int i = 0; i < n_kept; i++) sums[i] = t.kept[i] + sums[i];
#pragma unroll
    for (int i = n_kept; i < N / 2; i += 4) {
        const float4 v = get_four(t.at + (i - n_kept) * MULTIPLIERS * 4);
        sums[i] = v.x + sums[i];
        sums[i + 1] = v.y + sums[i + 1];
        sums[i + 2] = v.z + sums[i + 2];
        sums[i + 3] = v.w + sums[i + 3];
    }
}

#endif
#endif
