/* SPDX-License-Identifier: MIT
 *
 * mul_wgmma.cu: products with more rows of x than mul_few.cu takes, on Hopper: batches, and prompts without cuBLASLt.
 *
 *     a thread block of two warpgroups has 8 tiles of W, a warp each, and 64 rows of x
 *     weights    as in mul_few.cu straight into registers, where wgmma reads them
 *     x          a group's 128 columns at a time, by way of registers into shared memory, where wgmma reads them: two
 *                stages
 *     columns    a cluster of 1 or 8 blocks shares the ranges (mul.h, rule 1); their sums are added in order by way of
 *                its shared memory
 *
 * Of a slice a lane has weights of the columns 8q .. 8q+7.  wgmma, as mma, wants of it places 2q, 2q+1, 2q+8 and 2q+9 of
 * 16, twice.  So word i of x's piece of 8 columns q, i < 4, becomes word q of the slice's piece i.
 */
#include "hw/cuda/copy.cuh"
#include "hw/cuda/wgmma.cuh"
#include "model/cuda/launch.cuh"
#include "model/cuda/tile.cuh"

#define THREADS 256u
#define BLOCKS 2u  /* that share a multiprocessor */
#define TILES 8u   /* of a block: a warp each */
#define X_ROWS 64u /* of a block */
#define STAGE_BYTES (X_ROWS * PLEAT__GROUP_COLS * 2)
#define PANEL_BYTES (X_ROWS * 128) /* 64 columns */
#define SLAB_STRIDE \
    (TILES * PLEAT__TILE_ROWS + 4)            /* of a row of x in a slab: lanes that write at once find other banks */
#define SLAB_BYTES (X_ROWS * SLAB_STRIDE * 4) /* sums of a range, or of all */
#define ALIGN_BYTES 1024u

/* How a product is cut. */
typedef struct cut {
    uint32_t n_ranks;  /* blocks of a cluster */
    uint32_t each;     /* groups of a range */
    uint32_t per_rank; /* ranges of a rank */
    uint32_t n_slabs;  /* one for each range that is not empty; or, of one rank, one for all */
} cut;

#if PLEAT__HAS_WGMMA

/* ---- rows of x ------------------------------------------------------------------------------------------- */

/* What a thread has of a group's rows of x: pieces of 8 columns.  Eight threads have the eight pieces of a row in a panel
 * of 64 columns; a warp four rows. */
typedef struct x_pieces {
    uint4 of[4];
} x_pieces;

/* Where piece i of the thread is. */
typedef struct x_place {
    uint32_t panel, row, piece;
} x_place;

static __device__ __forceinline__ x_place place_of(int i) {
    const uint32_t four = (uint32_t)i / 2 * 8 + threadIdx.x / 32, lane = threadIdx.x % 32; /* rows, by fours */
    return x_place{(uint32_t)i % 2, four * 4 + lane / 8, lane % 8};
}

static __device__ __forceinline__ x_pieces load_x(const pleat__device_mul &m, uint32_t x0, uint32_t group) {
    x_pieces x = {};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const x_place at = place_of(i);
        const uint32_t row = x0 + at.row, col = group * PLEAT__GROUP_COLS + at.panel * 64 + at.piece * 8;
        const uint16_t *from = (const uint16_t *)m.x + (uint64_t)row * m.x_stride + col;
        if (row < m.n && col < m.w.tiles.cols) x.of[i] = *(const uint4 *)(const void *)from;
    }
    return x;
}

/* Words go to other banks than those of the 31 other threads. */
static __device__ __forceinline__ void store_x(uint8_t *stage, const x_pieces &x) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const x_place at = place_of(i);
        uint8_t *row = stage + at.panel * PANEL_BYTES + at.row * 128 + at.piece % 4 * 4;
#pragma unroll
        for (int word = 0; word < 4; word++)
            *(uint32_t *)(void *)(row + ((at.piece / 4 * 4 + word ^ at.row) & 7) * 16) = pleat__word_of(x.of[i], word);
    }
}

/* Of columns 16k.. of a stage. */
static __device__ __forceinline__ uint32_t columns_at(uint32_t k) { return k / 4 * PANEL_BYTES + k % 4 * 32; }

/* Keeps operands in their registers until here: wgmma reads them while it is under way. */
static __device__ __forceinline__ void hold(const uint32_t (&a)[4]) {
    asm volatile("" ::"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]) : "memory");
}

/* ---- a group --------------------------------------------------------------------------------------------- */

/* c = or += slice j's product. */
static __device__ __forceinline__ void start_slice(float (&c)[32], const uint32_t (&g)[4], const uint32_t (&g8)[4],
                                                   uint32_t x_low, int j, bool adds) {
    const uint32_t first[4] = {g[0], g8[0], g[1], g8[1]}, second[4] = {g[2], g8[2], g[3], g8[3]};
    wgmma_begin();
    wgmma<0>(c, first, descriptor(x_low, columns_at(2 * j)), adds);
    wgmma<0>(c, second, descriptor(x_low, columns_at(2 * j + 1)), true);
    wgmma_commit();
}

/* Has a lane registers for two groups?  Else words of the next take the place of those that are done with. */
template <int F> static constexpr bool has_two = F == PLEAT__TILE_Q4 || F == PLEAT__TILE_Q4_MIN;

/* What a lane reads next: its tile's next group. */
typedef struct next_group {
    const uint8_t *at;
    uint32_t row_bytes;
    bool is_there;
} next_group;

template <int F> static __device__ __forceinline__ void refill(pleat__lane_group<F> &w, const next_group &next, int j) {
    if (!has_two<F> && next.is_there) pleat__refill<F>(w, next.at, next.row_bytes, threadIdx.x % 32, j);
}

/* sums += a group's product, of a format whose slices' sums are scaled. */
template <int F>
static __device__ __forceinline__ void add_scaled(float (&sums)[32], pleat__lane_group<F> &w, uint32_t x_low,
                                                  const next_group &next) {
#pragma unroll
    for (int j = 0; j < (int)PLEAT__TILE_SLICES; j++) {
        uint32_t g[4], g8[4];
        float c[32];
        pleat__operands<F>(w, j, g, g8);
        const float2 scales = pleat__scales_of<F>(w, j);
        start_slice(c, g, g8, x_low, j, false);
        refill<F>(w, next, j);
        wgmma_wait<0>();
        settle(c);
        hold(g);
        hold(g8);
#pragma unroll
        for (int i = 0; i < 32; i++) sums[i] = fmaf(i % 4 < 2 ? scales.x : scales.y, c[i], sums[i]);
    }
}

/* The same of other formats: all slices are under way at once. */
template <int F>
static __device__ __forceinline__ void add_weights(float (&sums)[32], pleat__lane_group<F> &w, uint32_t x_low,
                                                   const next_group &next) {
    constexpr int slices = (int)PLEAT__TILE_SLICES;
    uint32_t g[slices][4], g8[slices][4];
#pragma unroll
    for (int j = 0; j < slices; j++) {
        pleat__operands<F>(w, j, g[j], g8[j]);
        start_slice(sums, g[j], g8[j], x_low, j, true);
    }
    wgmma_wait<0>();
    settle(sums);
#pragma unroll
    for (int j = 0; j < slices; j++) {
        hold(g[j]);
        hold(g8[j]);
        refill<F>(w, next, j);
    }
}

/* ---- sums ------------------------------------------------------------------------------------------------ */

/* A warp's tile into its place of a slab, or added to what is there; sums are 0 then. */
static __device__ __forceinline__ void store_sums(float *slab, float (&sums)[32], bool adds) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float *to = slab + 2 * (lane % 4) * SLAB_STRIDE + warp * PLEAT__TILE_ROWS + lane / 4;
#pragma unroll
    for (int i = 0; i < 32; i++) {
        float *at = to + (i / 4 * 8 + i % 2) * SLAB_STRIDE + i % 4 / 2 * 8;
        *at = (adds ? *at : 0) + sums[i];
        sums[i] = 0;
    }
}

static __device__ __forceinline__ void wait_for_cluster(void) {
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* Four floats of another rank's shared memory. */
static __device__ __forceinline__ float4 load_of(uint32_t at, uint32_t rank) {
    uint32_t there;
    float4 v;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(there)
                 : "memory");
    return v;
}

/* Four rows' sums of all slabs, in order. */
static __device__ __forceinline__ float4 sums_at(uint32_t slabs, uint32_t x_row, uint32_t row, const cut &cut) {
    const uint32_t at = slabs + (x_row * SLAB_STRIDE + row) * 4;
    float4 sum = make_float4(0, 0, 0, 0);
    for (uint32_t slab = 0; slab < cut.n_slabs; slab++) {
        const float4 v = load_of(at + slab % cut.per_rank * SLAB_BYTES, slab / cut.per_rank);
        sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
    }
    return sum;
}

static __device__ __forceinline__ float float_of(const float4 &v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/* The rank's rows of x: what becomes of their sums. */
template <int END>
static __device__ __forceinline__ void end_rows(const pleat__device_mul &m, uint32_t slabs, uint32_t x0, uint32_t tile0,
                                                const cut &cut) {
    constexpr uint32_t quads = TILES * (END == PLEAT__MUL_GATE ? 2 : 4);
    const uint32_t each = X_ROWS / cut.n_ranks, first = blockIdx.x * each;
    for (uint32_t i = threadIdx.x; i < each * quads; i += THREADS) {
        const uint32_t in_block = first + i / quads, quad = i % quads, x_row = x0 + in_block;
        if (x_row >= m.n) break;
        if constexpr (END == PLEAT__MUL_GATE) {
            const uint32_t at = quad / 2 * PLEAT__TILE_ROWS + quad % 2 * 4, row = tile0 * 8 + 4 * quad;
            const float4 gates = sums_at(slabs, in_block, at, cut);
            const float4 ups = sums_at(slabs, in_block, at + 8, cut);
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (row + e < m.w.tiles.rows / 2)
                    pleat__end_gate(m, x_row, row + e, float_of(gates, e), float_of(ups, e));
        } else {
            const uint32_t row = tile0 * PLEAT__TILE_ROWS + 4 * quad;
            const float4 sum = sums_at(slabs, in_block, 4 * quad, cut);
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (row + e < m.w.tiles.rows) pleat__end_sum<END>(m, x_row, row + e, float_of(sum, e));
        }
    }
}

#endif

/* ---- the kernel ------------------------------------------------------------------------------------------ */

/* A warp whose tile is behind the last reads the last. */
template <int F, int END>
static __global__ void __launch_bounds__(THREADS, BLOCKS)
    mul_wgmma(const __grid_constant__ pleat__device_mul m, const __grid_constant__ cut cut) {
#if PLEAT__HAS_WGMMA
    extern __shared__ uint8_t unaligned[];
    uint8_t *stages = unaligned + (0u - pleat__shared_address(unaligned)) % ALIGN_BYTES;
    float *slabs = (float *)(void *)(stages + 2 * STAGE_BYTES);
    const uint32_t x0 = blockIdx.y * X_ROWS, tile0 = blockIdx.z * TILES, row_bytes = pleat__row_bytes(m.w.tiles);
    const uint32_t tile = min(tile0 + threadIdx.x / 32, m.w.tiles.n_tiles - 1), n_groups = m.w.tiles.n_groups;
    const uint32_t from = min(blockIdx.x * cut.per_rank * cut.each, n_groups);
    const uint32_t to = min(from + cut.per_rank * cut.each, n_groups);
    const uint8_t *at = pleat__group_at<F>(m.w, tile, from);
    pleat__lane_group<F> w[2]; /* the second where a lane has two */
    float sums[32] = {};
    pleat__let_next_start();
    if (from < to) pleat__load_group<F>(w[0], at, row_bytes, threadIdx.x % 32);
    pleat__wait_for_last();
    x_pieces x = {};
    if (from < to) x = load_x(m, x0, from);
    for (uint32_t first = from; first < to; first += 2)
#pragma unroll
        for (uint32_t odd = 0; odd < 2; odd++) { /* registers are named, not indexed */
            const uint32_t group = first + odd;
            if (group >= to) break;
            uint8_t *stage = stages + odd * STAGE_BYTES;
            at += pleat__group_step<F>;
            store_x(stage, x);
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            __syncthreads(); /* the stage is there, and all have multiplied by the one before */
            constexpr uint32_t two = has_two<F> ? 1 : 0;
            const next_group next = {at, row_bytes, group + 1 < to};
            if (two && next.is_there) pleat__load_group<F>(w[(1 - odd) * two], at, row_bytes, threadIdx.x % 32);
            if (next.is_there) x = load_x(m, x0, group + 1);
            const uint32_t x_low = describe(pleat__shared_address(stage), 16);
            if constexpr (pleat__scales_sums<F>)
                add_scaled<F>(sums, w[odd * two], x_low, next);
            else
                add_weights<F>(sums, w[odd * two], x_low, next);
            if ((group + 1) % cut.each != 0 && group + 1 < to) continue;
            const uint32_t range = (group - from) / cut.each, slab = cut.n_ranks > 1 ? range : 0;
            store_sums(slabs + slab * (SLAB_BYTES / 4), sums, range > slab);
        }
    wait_for_cluster();
    end_rows<END>(m, pleat__shared_address(slabs), x0, tile0, cut);
    wait_for_cluster(); /* others may still read what is here */
#endif
}

/* ---- launchers ------------------------------------------------------------------------------------------- */

/* Blocks of whole rows would be too few for all multiprocessors where a matrix has few rows. */
static cut cut_of(const pleat__device_mul &m, uint32_t n_blocks) {
    cut c = {.n_ranks = n_blocks >= 96 ? 1u : 8u};
    c.each = pleat__groups_per_range(m.w.tiles.n_groups);
    c.n_slabs = c.n_ranks > 1 ? (m.w.tiles.n_groups + c.each - 1) / c.each : 1;
    c.per_rank = PLEAT__MUL_RANGES / c.n_ranks;
    return c;
}

template <int F, int END>
static pleat_status launch(const pleat__device_mul &m, const cut &c, dim3 blocks, pleat__device_stream stream,
                           pleat_error *err) {
    const uint32_t bytes = ALIGN_BYTES + 2 * STAGE_BYTES + (c.n_ranks > 1 ? c.per_rank : 1) * SLAB_BYTES;
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = c.n_ranks;
    attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = bytes;
    config.stream = pleat__cuda_stream(stream);
    config.attrs = attributes;
    config.numAttrs = 2;
    PLEAT_CUDA_TRY(cudaFuncSetAttribute(mul_wgmma<F, END>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                   "asking for shared memory", err);
    (void)cudaLaunchKernelEx(&config, mul_wgmma<F, END>, m, c); /* PLEAT_CUDA_LAUNCHED() tells */
    return PLEAT_CUDA_LAUNCHED("multiplying a batch", err);
}

template <int F, int END>
static pleat_status launch_cut(const pleat__device_mul &m, pleat__device_stream stream, pleat_error *err) {
    const uint32_t n_x = (m.n + X_ROWS - 1) / X_ROWS, n_rows = (m.w.tiles.n_tiles + TILES - 1) / TILES;
    const cut c = cut_of(m, n_x * n_rows);
    const dim3 blocks(c.n_ranks, n_x, n_rows); /* those with the same weights side by side */
    return launch<F, END>(m, c, blocks, stream, err);
}

template <int F>
static pleat_status launch_end(const pleat__device_mul &m, pleat__device_stream stream, pleat_error *err) {
    switch (m.end) {
        case PLEAT__MUL_STORE: return launch_cut<F, PLEAT__MUL_STORE>(m, stream, err);
        case PLEAT__MUL_ADD: return launch_cut<F, PLEAT__MUL_ADD>(m, stream, err);
        default: return launch_cut<F, PLEAT__MUL_GATE>(m, stream, err);
    }
}

/* Asked once: a kernel without a body has hardly a register. */
extern "C" bool pleat__device_mul_has_wgmma(void) {
    static int known = -1;
    cudaFuncAttributes attributes = {};
    if (known >= 0) return known != 0;
    if (cudaFuncGetAttributes(&attributes, mul_wgmma<PLEAT__TILE_Q8, PLEAT__MUL_STORE>) != cudaSuccess) return false;
    known = attributes.numRegs >= 64;
    return known != 0;
}

extern "C" pleat_status pleat__device_mul_wgmma(const pleat__device_mul *m, pleat__device_stream stream,
                                                pleat_error *err) {
    PLEAT_FAIL_IF(m->n == 0 || m->x_is_f32, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "product on a GPU: no rows, or rows of f32");
    PLEAT_FAIL_IF(!pleat__device_mul_has_wgmma(), err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "product on a GPU: this one has no products of warpgroups");
    switch (m->w.tiles.format) {
        case PLEAT__TILE_F16: return launch_end<PLEAT__TILE_F16>(*m, stream, err);
        case PLEAT__TILE_Q8: return launch_end<PLEAT__TILE_Q8>(*m, stream, err);
        case PLEAT__TILE_Q4: return launch_end<PLEAT__TILE_Q4>(*m, stream, err);
        case PLEAT__TILE_Q4_MIN: return launch_end<PLEAT__TILE_Q4_MIN>(*m, stream, err);
        default: return launch_end<PLEAT__TILE_Q8_HALF>(*m, stream, err);
    }
}
