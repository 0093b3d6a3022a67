/* SPDX-License-Identifier: MIT
 *
 * mul_many.cu: products with more rows of x than mul_few.cu takes: prompts, and batches.
 *
 *     a thread block of 8 warps has 32 or 128 rows of W by 128 rows of x
 *     groups of 128 columns, weights as they lie and x as f16, are copied to shared memory, 2 or 3 under way
 *     a warp multiplies MT tiles of W by NT times 8 rows of x: 4 by 4 of 128 rows, 2 by 2 of 32
 *
 * Three sums a lane and result: of the range under way, of its quarter, and of the quarters that are done (mul.h, rule
 * 1).
 *
 * A row of x has 16 pieces of 16 bytes in a group.  Piece p of row r stands at p ^ 4 (r % 2), so that the eight lanes
 * which read at once find eight different banks.
 */
#include "hw/cuda/copy.cuh"
#include "hw/cuda/launch.cuh"
#include "model/cuda/tile.cuh"

#define THREADS 256u
#define X_ROWS 128u
#define PIECES 16u       /* of a row of x in a group */
#define MANY_BLOCKS 128u /* of 128 rows: about as many as a GPU has multiprocessors */
#define X_STAGE_BYTES (X_ROWS * PIECES * 16)

/* How warps share a block. */
template <int MT> struct shape {
    static constexpr int nt = MT == 4 ? 4 : 2;          /* times 8 rows of x of a warp */
    static constexpr int warps_n = 16 / nt;             /* warps side by side along x */
    static constexpr int warps_m = 8 / warps_n;         /* along W */
    static constexpr uint32_t stages = MT == 4 ? 3 : 2; /* of shared memory; 2 fit every GPU, twice where it has much */
    static constexpr uint32_t tiles = MT * warps_m;     /* of a block */
};

template <int F, int MT>
static constexpr uint32_t stage_bytes = shape<MT>::tiles *pleat__group_bytes<F> + X_STAGE_BYTES;

static __device__ __forceinline__ uint32_t piece_at(uint32_t row, uint32_t piece) {
    return (row * PIECES + (piece ^ (row % 2 * 4))) * 16;
}

/* A group of the block's tiles and of its rows of x, into a stage. */
template <int F, int MT>
static __device__ __forceinline__ void copy_group(const pleat__device_mul &m, uint32_t stage, uint32_t tile0,
                                                  uint32_t x0, uint32_t group) {
    constexpr uint32_t bytes = pleat__group_bytes<F>, pieces = bytes / 16;
    const pleat__tiles &t = m.w.tiles;
    const uint32_t row_bytes = pleat__row_bytes(t);
    for (uint32_t i = threadIdx.x; i < shape<MT>::tiles * pieces; i += THREADS) {
        const uint32_t tile = tile0 + i / pieces;
        const bool is_there = tile < t.n_tiles;
        const uint8_t *from = pleat__group_at<F>(m.w, is_there ? tile : 0, group);
        pleat__copy_16_or_zeros(stage + i * 16, from + pleat__piece_at<F>(i % pieces, row_bytes), is_there);
    }
    const uint32_t x_stage = stage + shape<MT>::tiles * bytes;
    for (uint32_t i = threadIdx.x; i < X_ROWS * PIECES; i += THREADS) {
        const uint32_t row = x0 + i / PIECES, col = group * PLEAT__GROUP_COLS + i % PIECES * 8;
        const bool is_there = row < m.n && col < t.cols;
        const uint16_t *from = (const uint16_t *)m.x + (is_there ? (uint64_t)row * m.x_stride + col : 0);
        pleat__copy_16_or_zeros(x_stage + piece_at(i / PIECES, i % PIECES), from, is_there);
    }
}

/* The words of slice j alone, so that a lane never holds a whole group of F16. */
template <int F>
static __device__ __forceinline__ void read_slice(pleat__lane_group<F> &to, const uint8_t *group, uint32_t lane,
                                                  int j) {
    constexpr int together = pleat__n_codes<F> < 4 ? 2 : 1; /* slices that a word is of */
#pragma unroll
    for (int i = 0; i < pleat__n_codes<F>; i++)
        if (i * 4 / pleat__n_codes<F> == j / together * together)
            to.codes[i] = *(const uint4 *)(const void *)(group + 512 * i + 16 * lane);
#pragma unroll
    for (int i = 0; i < pleat__n_scales<F>; i++)
        to.scales[i] = *(const uint4 *)(const void *)(group + pleat__scales_at<F>(lane, i));
}

template <int F, int MT>
static __device__ __forceinline__ void add_group(float (&sums)[MT][shape<MT>::nt][4], const uint8_t *stage,
                                                 uint32_t lane, uint32_t warp_m, uint32_t warp_n) {
    constexpr int NT = shape<MT>::nt;
    const uint8_t *x_stage = stage + shape<MT>::tiles * pleat__group_bytes<F>;
#pragma unroll
    for (int j = 0; j < (int)PLEAT__TILE_SLICES; j++) {
        uint4 x[NT];
#pragma unroll
        for (int t = 0; t < NT; t++)
            x[t] =
                *(const uint4 *)(const void *)(x_stage + piece_at((warp_n * NT + t) * 8 + lane / 4, 4 * j + lane % 4));
#pragma unroll
        for (int i = 0; i < MT; i++) {
            pleat__lane_group<F> w;
            uint32_t g[4], g8[4];
            read_slice<F>(w, stage + (warp_m * MT + i) * pleat__group_bytes<F>, lane, j);
            pleat__operands<F>(w, j, g, g8);
#pragma unroll
            for (int t = 0; t < NT; t++) pleat__add_slice(sums[i][t], g, g8, x[t]);
        }
    }
}

/* Adds sums to a level above, and empties them. */
template <int MT>
static __device__ __forceinline__ void move_up(float (&above)[MT][shape<MT>::nt][4],
                                               float (&sums)[MT][shape<MT>::nt][4]) {
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int t = 0; t < shape<MT>::nt; t++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                above[i][t][e] += sums[i][t][e];
                sums[i][t][e] = 0;
            }
}

/* A lane's four results of a tile and 8 rows of x. */
template <int END>
static __device__ __forceinline__ void end_tile(const pleat__device_mul &m, const float (&sum)[4], uint32_t tile,
                                                uint32_t x_row, uint32_t g) {
#pragma unroll
    for (int e = 0; e < 2; e++) {
        if (x_row + e >= m.n) continue;
        if constexpr (END == PLEAT__MUL_GATE) {
            const uint32_t row = tile * (PLEAT__TILE_ROWS / 2) + g;
            if (row < m.w.tiles.rows / 2) pleat__end_gate(m, x_row + e, row, sum[e], sum[e + 2]);
        } else {
            const uint32_t row = tile * PLEAT__TILE_ROWS + g;
            if (row < m.w.tiles.rows) pleat__end_sum<END>(m, x_row + e, row, sum[e]);
            if (row + 8 < m.w.tiles.rows) pleat__end_sum<END>(m, x_row + e, row + 8, sum[e + 2]);
        }
    }
}

template <int F, int MT, int END>
static __global__ void __launch_bounds__(THREADS, MT == 4 ? 1 : 2)
    mul_many(const __grid_constant__ pleat__device_mul m) {
    extern __shared__ __align__(128) uint8_t shared[];
    constexpr int NT = shape<MT>::nt;
    constexpr uint32_t STAGES = shape<MT>::stages;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t warp_m = warp / shape<MT>::warps_n, warp_n = warp % shape<MT>::warps_n;
    const uint32_t tile0 = blockIdx.x * shape<MT>::tiles, x0 = blockIdx.y * X_ROWS;
    const uint32_t n_groups = m.w.tiles.n_groups, each = pleat__groups_per_range(n_groups);
    const uint32_t base = pleat__shared_address(shared);
    float sums[MT][NT][4] = {}, quarters[MT][NT][4] = {}, totals[MT][NT][4] = {};
    pleat__let_next_start();
    pleat__wait_for_last();
#pragma unroll
    for (uint32_t s = 0; s < STAGES - 1; s++) {
        if (s < n_groups) copy_group<F, MT>(m, base + s * stage_bytes<F, MT>, tile0, x0, s);
        pleat__copies_commit();
    }
    for (uint32_t group = 0; group < n_groups; group++) {
        pleat__copies_wait<(int)STAGES - 2>();
        __syncthreads(); /* the group is there, and all have read the one that is overwritten now */
        const uint32_t next = group + STAGES - 1;
        if (next < n_groups) copy_group<F, MT>(m, base + next % STAGES * stage_bytes<F, MT>, tile0, x0, next);
        pleat__copies_commit();
        add_group<F, MT>(sums, shared + group % STAGES * stage_bytes<F, MT>, lane, warp_m, warp_n);
        const bool is_last = group + 1 == n_groups;
        if ((group + 1) % each == 0 || is_last) move_up<MT>(quarters, sums);
        if ((group + 1) % (PLEAT__MUL_QUARTER * each) == 0 || is_last) move_up<MT>(totals, quarters);
    }
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int t = 0; t < NT; t++)
            end_tile<END>(m, totals[i][t], tile0 + warp_m * MT + i, x0 + (warp_n * NT + t) * 8 + 2 * (lane % 4),
                          lane / 4);
}

/* ---- launchers ----------------------------------------------------------------------------------------- */

template <int F, int MT, int END>
static pleat_status launch(const pleat__device_mul &m, pleat__device_stream stream, pleat_error *err) {
    constexpr uint32_t bytes = shape<MT>::stages * stage_bytes<F, MT>;
    const uint32_t n_blocks = (m.w.tiles.n_tiles + shape<MT>::tiles - 1) / shape<MT>::tiles;
    PLEAT_CUDA_TRY(cudaFuncSetAttribute(mul_many<F, MT, END>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                   "asking for shared memory", err);
    pleat__launch(mul_many<F, MT, END>, dim3(n_blocks, (m.n + X_ROWS - 1) / X_ROWS), THREADS, bytes, stream, m);
    return PLEAT_CUDA_LAUNCHED("multiplying many rows", err);
}

template <int F, int MT>
static pleat_status launch_end(const pleat__device_mul &m, pleat__device_stream stream, pleat_error *err) {
    switch (m.end) {
        case PLEAT__MUL_STORE: return launch<F, MT, PLEAT__MUL_STORE>(m, stream, err);
        case PLEAT__MUL_ADD: return launch<F, MT, PLEAT__MUL_ADD>(m, stream, err);
        default: return launch<F, MT, PLEAT__MUL_GATE>(m, stream, err);
    }
}

template <int F>
static pleat_status launch_rows(const pleat__device_mul &m, uint32_t block_rows, pleat__device_stream stream,
                                pleat_error *err) {
    return block_rows == 128 ? launch_end<F, 4>(m, stream, err) : launch_end<F, 2>(m, stream, err);
}

extern "C" pleat_status pleat__device_mul_many(const pleat__device_mul *m, uint32_t block_rows,
                                               pleat__device_stream stream, pleat_error *err) {
    PLEAT_FAIL_IF(m->n == 0 || m->x_is_f32 || (block_rows != 32 && block_rows != 128), err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "product on a GPU: no rows, rows of f32, or blocks of neither 32 nor 128");
    switch (m->w.tiles.format) {
        case PLEAT__TILE_F16: return launch_rows<PLEAT__TILE_F16>(*m, block_rows, stream, err);
        case PLEAT__TILE_Q8: return launch_rows<PLEAT__TILE_Q8>(*m, block_rows, stream, err);
        case PLEAT__TILE_Q4: return launch_rows<PLEAT__TILE_Q4>(*m, block_rows, stream, err);
        case PLEAT__TILE_Q4_MIN: return launch_rows<PLEAT__TILE_Q4_MIN>(*m, block_rows, stream, err);
        default: return launch_rows<PLEAT__TILE_Q8_HALF>(*m, block_rows, stream, err);
    }
}

/* Has a block of the thread's device room for the largest stages of blocks of 128 rows? */
static pleat_status has_room(bool *has, pleat_error *err) {
    int device = 0, most = 0;
    PLEAT_CUDA_TRY(cudaGetDevice(&device), "asking which GPU is in use", err);
    PLEAT_CUDA_TRY(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "asking the GPU",
                   err);
    *has = (uint32_t)most >= shape<4>::stages * stage_bytes<PLEAT__TILE_F16, 4>;
    return PLEAT_OK;
}

/* A block of 128 rows reads x least often; one of 32 gives all multiprocessors something where there are few. */
extern "C" pleat_status pleat__device_mul_run(const pleat__device_mul *m, pleat__device_stream stream,
                                              pleat_error *err) {
    bool has = false;
    if (m->n >= PLEAT__MUL_PACKED_FROM && pleat__device_mul_has_wgmma()) return pleat__device_mul_wgmma(m, stream, err);
    if (m->n <= PLEAT__MUL_FEW) return pleat__device_mul_few(m, stream, err);
    PLEAT_TRY(has_room(&has, err));
    const uint64_t n_blocks = (uint64_t)(m->w.tiles.n_tiles / 8) * ((m->n + X_ROWS - 1) / X_ROWS);
    return pleat__device_mul_many(m, has && n_blocks >= MANY_BLOCKS ? 128 : 32, stream, err);
}
