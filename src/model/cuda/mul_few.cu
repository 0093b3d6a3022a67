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
 *
 *     Q8 and Q8_HALF, up to 8 rows, matrices of many tiles, Hopper: a block goes from tile to tile.  Its warps copy what
 *     comes next into rings in shared memory, while they multiply
 */
#include "hw/cuda/copy.cuh"
#include "hw/cuda/launch.cuh"
#include "model/cuda/tile.cuh"

#define WARPS PLEAT__MUL_RANGES
#define THREADS (32 * WARPS)

/* Where a lane reads x: the first of its columns in the group under way, of each of NT rows; and how many columns are left
 * from there on.  In place of a row that is not there it reads the last one, and nobody reads the sums. */
template <int NT, bool X_F32> struct columns {
    const uint8_t *at[NT];
    int32_t left;
};

template <int NT, bool X_F32>
static __device__ __forceinline__ columns<NT, X_F32> columns_from(const pleat__device_mul &m, uint32_t group,
                                                                  uint32_t lane) {
    const uint32_t col = group * PLEAT__GROUP_COLS + 8 * (lane % 4);
    columns<NT, X_F32> x;
#pragma unroll
    for (int t = 0; t < NT; t++) {
        const uint64_t at = (uint64_t)min(8 * t + lane / 4, m.n - 1) * m.x_stride + col;
        x.at[t] = (const uint8_t *)m.x + at * (X_F32 ? 4 : 2);
    }
    x.left = (int32_t)(m.w.tiles.cols - col);
    return x;
}

template <int NT, bool X_F32> static __device__ __forceinline__ void next_group(columns<NT, X_F32> &x) {
#pragma unroll
    for (int t = 0; t < NT; t++) x.at[t] += PLEAT__GROUP_COLS * (X_F32 ? 4 : 2);
    x.left -= (int32_t)PLEAT__GROUP_COLS;
}

/* Eight columns of slice j of a row, as f16; zeros where there is none.  WHOLE: there are. */
template <bool WHOLE, int NT, bool X_F32>
static __device__ __forceinline__ uint4 load_x(const columns<NT, X_F32> &x, int t, int j) {
    if (!WHOLE && x.left <= 32 * j) return make_uint4(0, 0, 0, 0);
    const uint8_t *at = x.at[t] + 32 * j * (X_F32 ? 4 : 2);
    if constexpr (X_F32) return pleat__halves_of((const float *)(const void *)at);
    return *(const uint4 *)(const void *)at;
}

/* Tiles of a thread block. */
template <int F, int NT> static constexpr int n_tiles = NT == 1 || F == PLEAT__TILE_F16 ? 1 : 2;

/* How a warp has the next group under way: a second one in registers; words of it in place of those that are done with;
 * or none, where a group takes as many registers as there are. */
template <int F, int NT> static constexpr bool refills = n_tiles<F, NT> == 2;
template <int F, int NT> static constexpr bool has_two = !refills<F, NT> && F != PLEAT__TILE_F16;

/* Groups that a turn of the loop has: two spare moving the second's words.  Q4 is no faster so. */
template <int F, int NT> static constexpr int of_turn = has_two<F, NT> &&F != PLEAT__TILE_Q4 ? 2 : 1;

/* What a warp walks: groups of its tiles. */
typedef struct walk {
    const uint8_t *at; /* the group, of the first tile */
    uint64_t tile_bytes;
    uint32_t row_bytes, lane;
} walk;

/* sums += a group's product; NT times 8 rows of x. */
template <bool WHOLE, int F, int NT, bool X_F32>
static __device__ __forceinline__ void add_slices(float (&sums)[n_tiles<F, NT>][NT][4],
                                                  pleat__lane_group<F> (&w)[n_tiles<F, NT>],
                                                  const columns<NT, X_F32> &from, const walk &at, bool goes_on) {
#pragma unroll
    for (int j = 0; j < (int)PLEAT__TILE_SLICES; j++) {
        uint4 x[NT];
#pragma unroll
        for (int t = 0; t < NT; t++) x[t] = load_x<WHOLE>(from, t, j);
#pragma unroll
        for (int i = 0; i < n_tiles<F, NT>; i++) {
            uint32_t g[4], g8[4];
            pleat__operands<F>(w[i], j, g, g8);
#pragma unroll
            for (int t = 0; t < NT; t++) pleat__add_slice(sums[i][t], g, g8, x[t]);
            if (refills<F, NT> && goes_on)
                pleat__refill<F>(w[i], at.at + i * at.tile_bytes + pleat__group_step<F>, at.row_bytes, at.lane, j);
        }
    }
}

template <int F, int NT, bool X_F32>
static __device__ __forceinline__ void add_group(float (&sums)[n_tiles<F, NT>][NT][4],
                                                 pleat__lane_group<F> (&w)[n_tiles<F, NT>], const columns<NT, X_F32> &x,
                                                 bool is_whole, const walk &at, bool goes_on) {
    if (!refills<F, NT> && is_whole) /* two ways make refilling slower */
        add_slices<true, F>(sums, w, x, at, goes_on);
    else
        add_slices<false, F>(sums, w, x, at, goes_on);
}

/* A warp's sums of a tile, where all find them. */
template <int NT>
static __device__ __forceinline__ void leave_sums(float (&all)[WARPS][8 * NT][PLEAT__TILE_ROWS],
                                                  const float (&sums)[NT][4]) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int t = 0; t < NT; t++)
#pragma unroll
        for (int i = 0; i < 4; i++) all[warp][8 * t + 2 * (lane % 4) + i % 2][lane / 4 + i / 2 * 8] = sums[t][i];
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
    columns<NT, X_F32> x = columns_from<NT, X_F32>(m, from, lane);
    pleat__wait_for_last();
#pragma unroll(of_turn <F, NT>)
    for (uint32_t group = from; group < to; group++, at.at += pleat__group_step<F>, next_group(x)) {
        const bool goes_on = group + 1 < to, is_whole = (group + 1) * PLEAT__GROUP_COLS <= m.w.tiles.cols;
        if constexpr (has_two<F, NT>)
            if (goes_on) pleat__load_group<F>(next[0], at.at + pleat__group_step<F>, at.row_bytes, lane);
        add_group<F>(sums, w, x, is_whole, at, goes_on);
        if constexpr (has_two<F, NT>) w[0] = next[0];
        if constexpr (!has_two<F, NT> && !refills<F, NT>)
            if (goes_on) pleat__load_group<F>(w[0], at.at + pleat__group_step<F>, at.row_bytes, lane);
    }
#pragma unroll
    for (int k = 0; k < MT; k++) {
        if (k > 0) __syncthreads();
        leave_sums<NT>(all, sums[k]);
        __syncthreads();
        end_tile<NT, END>(m, all, tile + k);
    }
}

/* ---- rings ------------------------------------------------------------------------------------------------ */

#define RING_ROWS 8u
#define RING_BLOCKS 2u     /* of a multiprocessor */
#define RING_BYTES 104448u /* what lets so many share it, on Hopper */

/* Bytes are faster by rings, nibbles and F16 are not. */
template <int F> static constexpr bool has_ring = F == PLEAT__TILE_Q8 || F == PLEAT__TILE_Q8_HALF;

/* Groups that a warp has under way. */
template <int F> static constexpr uint32_t n_slots = RING_BYTES / (WARPS * pleat__group_bytes<F>);

/* What a warp's copies walk over: its range of groups in each of the block's tiles. */
typedef struct stream {
    const uint8_t *at; /* NULL: there are no more */
    uint32_t tile, from, n, left;
} stream;

template <int F> static __device__ __forceinline__ void enter_tile(stream &s, const pleat__device_mul &m) {
    s.at = s.n > 0 && s.tile < m.w.tiles.n_tiles ? pleat__group_at<F>(m.w, s.tile, s.from) : NULL;
    s.left = s.n;
}

/* The next group, 16 bytes a lane at a time, into a slot of the ring. */
template <int F>
static __device__ __forceinline__ void copy_next(stream &s, const pleat__device_mul &m, uint32_t slot, uint32_t lane) {
    constexpr uint32_t bytes = pleat__group_bytes<F>;
    if (s.at) {
#pragma unroll
        for (uint32_t at = 0; at < bytes; at += 512)
            if (at + 512 <= bytes || at + 16 * lane < bytes)
                pleat__copy_16(slot + at + 16 * lane, s.at + at + 16 * lane);
        s.at += bytes;
        if (--s.left == 0) {
            s.tile += gridDim.x;
            enter_tile<F>(s, m);
        }
    }
    pleat__copies_commit();
}

/* A lane's part of a group in a slot. */
template <int F>
static __device__ __forceinline__ void read_group(pleat__lane_group<F> &to, const uint8_t *slot, uint32_t lane) {
#pragma unroll
    for (int i = 0; i < pleat__n_codes<F>; i++)
        to.codes[i] = *(const uint4 *)(const void *)(slot + 512 * i + 16 * lane);
#pragma unroll
    for (int i = 0; i < pleat__n_scales<F>; i++)
        to.scales[i] = *(const uint4 *)(const void *)(slot + pleat__scales_at<F>(lane, i));
}

template <bool WHOLE, int F>
static __device__ __forceinline__ void add_ring_group(float (&sum)[4], const pleat__lane_group<F> &w,
                                                      const columns<1, false> &from) {
#pragma unroll
    for (int j = 0; j < (int)PLEAT__TILE_SLICES; j++) {
        uint32_t g[4], g8[4];
        const uint4 x = load_x<WHOLE>(from, 0, j);
        pleat__operands<F>(w, j, g, g8);
        pleat__add_slice(sum, g, g8, x);
    }
}

/* Blocks go from tile to tile, and their warps' rings never run dry between them. */
template <int F, int END>
static __global__ void __launch_bounds__(THREADS, RING_BLOCKS) mul_ring(const __grid_constant__ pleat__device_mul m) {
    extern __shared__ __align__(128) uint8_t rings[];
    __shared__ float all[WARPS][RING_ROWS][PLEAT__TILE_ROWS];
    constexpr uint32_t bytes = pleat__group_bytes<F>;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_groups = m.w.tiles.n_groups;
    const uint32_t each = pleat__groups_per_range(n_groups), from = min(warp * each, n_groups);
    const uint32_t to = min(from + each, n_groups);
    const uint8_t *ring = rings + warp * n_slots<F> * bytes;
    const uint32_t ring_at = pleat__shared_address(ring);
    stream ahead = {.tile = blockIdx.x, .from = from, .n = to - from};
    uint32_t slot = 0;
    enter_tile<F>(ahead, m);
    pleat__let_next_start();
    for (uint32_t i = 0; i < n_slots<F>; i++) copy_next<F>(ahead, m, ring_at + i * bytes, lane);
    pleat__wait_for_last();
    for (uint32_t tile = blockIdx.x; tile < m.w.tiles.n_tiles; tile += gridDim.x) {
        float sums[1][4] = {};
        columns<1, false> x = columns_from<1, false>(m, from, lane);
        for (uint32_t group = from; group < to; group++, next_group(x)) {
            pleat__lane_group<F> w;
            pleat__copies_wait<(int)n_slots<F> - 1>();
            __syncwarp();
            read_group<F>(w, ring + slot * bytes, lane);
            __syncwarp();
            copy_next<F>(ahead, m, ring_at + slot * bytes, lane);
            slot = slot + 1 == n_slots<F> ? 0 : slot + 1;
            if ((group + 1) * PLEAT__GROUP_COLS <= m.w.tiles.cols)
                add_ring_group<true, F>(sums[0], w, x);
            else
                add_ring_group<false, F>(sums[0], w, x);
        }
        if (tile != blockIdx.x) __syncthreads(); /* the last tile's sums have been read */
        leave_sums<1>(all, sums);
        __syncthreads();
        end_tile<1, END>(m, all, tile);
    }
}

/* ---- launchers ----------------------------------------------------------------------------------------- */

template <int F, int END>
static pleat_status launch_ring(const pleat__device_mul &m, uint32_t n_blocks, pleat__device_stream stream,
                                pleat_error *err) {
    constexpr uint32_t bytes = WARPS * n_slots<F> * pleat__group_bytes<F>;
    PLEAT_CUDA_TRY(cudaFuncSetAttribute(mul_ring<F, END>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                   "asking for shared memory", err);
    pleat__launch(mul_ring<F, END>, n_blocks, THREADS, bytes, stream, m);
    return PLEAT_OK;
}

/* Blocks of mul_ring's kernel; 0: a block would have a tile, and mul_few's is as fast. */
static pleat_status ring_blocks(const pleat__device_mul &m, uint32_t *n, pleat_error *err) {
    int device = 0, n_processors = 0;
    *n = 0;
    if (m.n > RING_ROWS || m.end == PLEAT__MUL_ADD || !pleat__device_mul_has_wgmma()) return PLEAT_OK;
    PLEAT_CUDA_TRY(cudaGetDevice(&device), "asking which GPU is in use", err);
    PLEAT_CUDA_TRY(cudaDeviceGetAttribute(&n_processors, cudaDevAttrMultiProcessorCount, device), "asking the GPU",
                   err);
    if (m.w.tiles.n_tiles > RING_BLOCKS * (uint32_t)n_processors) *n = RING_BLOCKS * (uint32_t)n_processors;
    return PLEAT_OK;
}

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

template <int F>
static pleat_status launch_rows(const pleat__device_mul &m, pleat__device_stream stream, pleat_error *err) {
    if constexpr (has_ring<F>) {
        uint32_t n_blocks = 0;
        PLEAT_TRY(ring_blocks(m, &n_blocks, err));
        if (n_blocks > 0)
            return m.end == PLEAT__MUL_STORE ? launch_ring<F, PLEAT__MUL_STORE>(m, n_blocks, stream, err)
                                             : launch_ring<F, PLEAT__MUL_GATE>(m, n_blocks, stream, err);
    }
    if (m.n <= 8)
        launch_end<F, 1>(m, stream);
    else if (m.n <= 16)
        launch_end<F, 2>(m, stream);
    else
        launch_end<F, 4>(m, stream);
    return PLEAT_OK;
}

extern "C" pleat_status pleat__device_mul_few(const pleat__device_mul *m, pleat__device_stream stream,
                                              pleat_error *err) {
    PLEAT_FAIL_IF(m->n == 0 || m->n > PLEAT__MUL_FEW, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "product on a GPU: %u rows, of 1 to %u", m->n, PLEAT__MUL_FEW);
    PLEAT_FAIL_IF(m->x_is_f32 && m->end != PLEAT__MUL_ADD, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "product on a GPU: f32 rows only where the product is added");
    switch (m->w.tiles.format) {
        case PLEAT__TILE_F16: PLEAT_TRY(launch_rows<PLEAT__TILE_F16>(*m, stream, err)); break;
        case PLEAT__TILE_Q8: PLEAT_TRY(launch_rows<PLEAT__TILE_Q8>(*m, stream, err)); break;
        case PLEAT__TILE_Q4: PLEAT_TRY(launch_rows<PLEAT__TILE_Q4>(*m, stream, err)); break;
        case PLEAT__TILE_Q4_MIN: PLEAT_TRY(launch_rows<PLEAT__TILE_Q4_MIN>(*m, stream, err)); break;
        default: PLEAT_TRY(launch_rows<PLEAT__TILE_Q8_HALF>(*m, stream, err)); break;
    }
    return PLEAT_CUDA_LAUNCHED("multiplying a few rows", err);
}
