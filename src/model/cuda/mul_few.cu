/* SPDX-License-Identifier: MIT
 *
 * mul_few.cu: products with 1 to 32 rows of x, which take as long as their weights take to be read.
 *
 *     a thread block has a tile of 16 rows, or two; a warp has one of the 16 ranges of columns
 *     each lane loads its part of a group, 16 bytes at a time, straight into the registers that tensor cores read
 *     the first group is under way before the kernel waits for x
 *     sums of the warps are added in order by way of shared memory
 *
 * With up to 8 rows of x two blocks of 16 warps share a multiprocessor: 128 KB (F16) to 72 KB (Q4) are under way.  With
 * more, a block reads more bytes of x than of codes: so two tiles share them, which takes 0.74 (Q4) to 0.83 (Q8) of the
 * time at 32 rows of x and the shapes of Llama-3-8B (H100, 2026-11-27).  F16 is no faster so.
 */
#include "hw/cuda/launch.cuh"
#include "model/cuda/tile.cuh"

#define WARPS PLEAT__MUL_RANGES
#define THREADS (32 * WARPS)

/* Eight columns of a row of x from column `at` on, as f16; zeros where there is none. */
template <bool X_F32>
static __device__ __forceinline__ uint4 load_x(const pleat__device_mul &m, uint32_t x_row, uint32_t at) {
    if (x_row >= m.n || at >= m.w.tiles.cols) return make_uint4(0, 0, 0, 0);
    const uint64_t from = (uint64_t)x_row * m.x_stride + at;
    if constexpr (!X_F32) return *(const uint4 *)(const void *)((const uint16_t *)m.x + from);
    return pleat__halves_of((const float *)m.x + from);
}

/* Tiles of a thread block. */
template <int F, int NT> static constexpr int n_tiles = NT == 1 || F == PLEAT__TILE_F16 ? 1 : 2;

/* How a warp has the next group under way: a second one in registers; words of it in place of those that are done with;
 * or none, where a group takes as many registers as there are. */
template <int F, int NT> static constexpr bool refills = n_tiles<F, NT> == 2;
template <int F, int NT> static constexpr bool has_two = !refills<F, NT> && F != PLEAT__TILE_F16;

/* What a warp walks: groups of its tiles. */
typedef struct walk {
    const uint8_t *at; /* the group, of the first tile */
    uint64_t tile_bytes;
    uint32_t row_bytes, lane;
} walk;

/* sums += a group's product; NT times 8 rows of x. */
template <int F, int NT, bool X_F32>
static __device__ __forceinline__ void add_group(float (&sums)[n_tiles<F, NT>][NT][4],
                                                 pleat__lane_group<F> (&w)[n_tiles<F, NT>], const pleat__device_mul &m,
                                                 uint32_t group, const walk &at, bool goes_on) {
#pragma unroll
    for (int j = 0; j < (int)PLEAT__TILE_SLICES; j++) {
        uint4 x[NT];
#pragma unroll
        for (int t = 0; t < NT; t++)
            x[t] = load_x<X_F32>(m, 8 * t + at.lane / 4, group * PLEAT__GROUP_COLS + 32 * j + 8 * (at.lane % 4));
#pragma unroll
        for (int i = 0; i < n_tiles<F, NT>; i++) {
            uint32_t g[4], g8[4];
            pleat__operands<F>(w[i], j, g, g8);
            const float2 scales = pleat__scales_of<F>(w[i], j);
#pragma unroll
            for (int t = 0; t < NT; t++) pleat__add_slice<F>(sums[i][t], g, g8, x[t], scales);
            if (refills<F, NT> && goes_on)
                pleat__refill<F>(w[i], at.at + i * at.tile_bytes + pleat__group_step<F>, at.row_bytes, at.lane, j);
        }
    }
}

/* The sums of all warps, quarter by quarter. */
template <int NT>
static __device__ __forceinline__ float add_warps(const float (&all)[WARPS][8 * NT][PLEAT__TILE_ROWS], uint32_t x_row,
                                                  uint32_t row) {
    float sum = 0;
#pragma unroll
    for (int first = 0; first < (int)WARPS; first += PLEAT__MUL_QUARTER) {
        float quarter = 0;
#pragma unroll
        for (int warp = first; warp < first + (int)PLEAT__MUL_QUARTER; warp++) quarter += all[warp][x_row][row];
        sum += quarter;
    }
    return sum;
}

/* What becomes of a tile's sums, which are in `all`. */
template <int NT, int END>
static __device__ __forceinline__ void end_tile(const pleat__device_mul &m,
                                                const float (&all)[WARPS][8 * NT][PLEAT__TILE_ROWS], uint32_t tile) {
    constexpr uint32_t n_rows = END == PLEAT__MUL_GATE ? PLEAT__TILE_ROWS / 2 : PLEAT__TILE_ROWS;
    for (uint32_t i = threadIdx.x; i < n_rows * m.n; i += THREADS) {
        const uint32_t x_row = i / n_rows, in_tile = i % n_rows, row = tile * n_rows + in_tile;
        if constexpr (END == PLEAT__MUL_GATE) {
            if (row < m.w.tiles.rows / 2)
                pleat__end_gate(m, x_row, row, add_warps<NT>(all, x_row, in_tile),
                                add_warps<NT>(all, x_row, in_tile + 8));
        } else if (row < m.w.tiles.rows) {
            pleat__end_sum<END>(m, x_row, row, add_warps<NT>(all, x_row, in_tile));
        }
    }
}

/* An odd last tile is read twice, and ends once: its twin's rows are behind the matrix's. */
template <int F, int NT, int END, bool X_F32>
static __global__ void __launch_bounds__(THREADS, NT == 1 ? 2 : 1)
    mul_few(const __grid_constant__ pleat__device_mul m) {
    constexpr int MT = n_tiles<F, NT>;
    __shared__ float all[WARPS][8 * NT][PLEAT__TILE_ROWS];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_groups = m.w.tiles.n_groups;
    const uint32_t each = pleat__groups_per_range(n_groups), from = min(warp * each, n_groups);
    const uint32_t to = min(from + each, n_groups), tile = blockIdx.x * MT;
    const uint64_t tile_bytes = tile + MT > m.w.tiles.n_tiles ? 0 : (uint64_t)n_groups * pleat__group_bytes<F>;
    walk at = {pleat__group_at<F>(m.w, tile, from), tile_bytes, pleat__row_bytes(m.w.tiles), lane};
    pleat__lane_group<F> w[MT], next[MT];
    float sums[MT][NT][4] = {};
    pleat__let_next_start();
#pragma unroll
    for (int i = 0; i < MT; i++)
        if (from < to) pleat__load_group<F>(w[i], at.at + i * tile_bytes, at.row_bytes, lane);
    pleat__wait_for_last();
    for (uint32_t group = from; group < to; group++, at.at += pleat__group_step<F>) {
        const bool goes_on = group + 1 < to;
        if constexpr (has_two<F, NT>)
            if (goes_on) pleat__load_group<F>(next[0], at.at + pleat__group_step<F>, at.row_bytes, lane);
        add_group<F, NT, X_F32>(sums, w, m, group, at, goes_on);
        if constexpr (has_two<F, NT>) w[0] = next[0];
        if constexpr (!has_two<F, NT> && !refills<F, NT>)
            if (goes_on) pleat__load_group<F>(w[0], at.at + pleat__group_step<F>, at.row_bytes, lane);
    }
#pragma unroll
    for (int k = 0; k < MT; k++) {
        if (k > 0) __syncthreads();
#pragma unroll
        for (int t = 0; t < NT; t++)
#pragma unroll
            for (int i = 0; i < 4; i++) all[warp][8 * t + 2 * (lane % 4) + i % 2][lane / 4 + i / 2 * 8] = sums[k][t][i];
        __syncthreads();
        end_tile<NT, END>(m, all, tile + k);
    }
}

/* ---- launchers ----------------------------------------------------------------------------------------- */

template <int F, int NT, int END> static void launch(const pleat__device_mul &m, pleat__device_stream stream) {
    const uint32_t n_blocks = (m.w.tiles.n_tiles + n_tiles<F, NT> - 1) / n_tiles<F, NT>;
    if constexpr (END == PLEAT__MUL_ADD) {
        if (m.x_is_f32) {
            pleat__launch(mul_few<F, NT, END, true>, n_blocks, THREADS, 0, stream, m);
            return;
        }
    }
    pleat__launch(mul_few<F, NT, END, false>, n_blocks, THREADS, 0, stream, m);
}

template <int F, int NT> static void launch_end(const pleat__device_mul &m, pleat__device_stream stream) {
    switch (m.end) {
        case PLEAT__MUL_STORE: launch<F, NT, PLEAT__MUL_STORE>(m, stream); break;
        case PLEAT__MUL_ADD: launch<F, NT, PLEAT__MUL_ADD>(m, stream); break;
        case PLEAT__MUL_GATE: launch<F, NT, PLEAT__MUL_GATE>(m, stream); break;
    }
}

template <int F> static void launch_rows(const pleat__device_mul &m, pleat__device_stream stream) {
    if (m.n <= 8)
        launch_end<F, 1>(m, stream);
    else if (m.n <= 16)
        launch_end<F, 2>(m, stream);
    else
        launch_end<F, 4>(m, stream);
}

extern "C" pleat_status pleat__device_mul_few(const pleat__device_mul *m, pleat__device_stream stream,
                                              pleat_error *err) {
    PLEAT_FAIL_IF(m->n == 0 || m->n > PLEAT__MUL_FEW, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "product on a GPU: %u rows, of 1 to %u", m->n, PLEAT__MUL_FEW);
    PLEAT_FAIL_IF(m->x_is_f32 && m->end != PLEAT__MUL_ADD, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "product on a GPU: f32 rows only where the product is added");
    switch (m->w.tiles.format) {
        case PLEAT__TILE_F16: launch_rows<PLEAT__TILE_F16>(*m, stream); break;
        case PLEAT__TILE_Q8: launch_rows<PLEAT__TILE_Q8>(*m, stream); break;
        case PLEAT__TILE_Q4: launch_rows<PLEAT__TILE_Q4>(*m, stream); break;
        case PLEAT__TILE_Q4_MIN: launch_rows<PLEAT__TILE_Q4_MIN>(*m, stream); break;
        default: launch_rows<PLEAT__TILE_Q8_HALF>(*m, stream); break;
    }
    return PLEAT_CUDA_LAUNCHED("multiplying a few rows", err);
}
