/* SPDX-License-Identifier: MIT
 *
 * mul_wgmma.cu: products with more rows of x than mul_few.cu takes, on Hopper: batches, and prompts without cuBLASLt; 128
 * rows of x at a time.
 *
 *     pack         x becomes panels of 64 columns, as they are to stand in shared memory, unless it is packed
 *     block        a warpgroup fills stages (mul_stages.cuh), two multiply, with four tiles of W each, a warp one;
 *                  what becomes of their sums is in mul_ends.cuh
 *
 * Of a slice a lane has weights of the columns 8q .. 8q+7.  wgmma, as mma, wants of it places 2q, 2q+1, 2q+8 and 2q+9 of
 * 16, twice.  So word i of x's piece of 8 columns q, i < 4, becomes word q of the slice's piece i.
 */
#include "hw/cuda/boxes.cuh"
#include "hw/cuda/wgmma.cuh"
#include "model/cuda/mul_ends.cuh"

/* ---- x ----------------------------------------------------------------------------------------------------- */

#define PACK_THREADS 256u

/* A thread's eight columns of a row; zeros behind the last. */
static __global__ void __launch_bounds__(PACK_THREADS)
    pack(const __grid_constant__ pleat__device_mul m, uint32_t first, uint32_t n, uint8_t *out) {
    const uint32_t n_pieces = m.w.tiles.n_groups * (PLEAT__GROUP_COLS / 8);
    const uint32_t i = blockIdx.x * PACK_THREADS + threadIdx.x, row = i / n_pieces, piece = i % n_pieces;
    pleat__let_next_start();
    pleat__wait_for_last();
    if (row >= n) return;
    uint4 v = make_uint4(0, 0, 0, 0);
    if (piece * 8 < m.w.tiles.cols) {
        const uint64_t from = (uint64_t)(first + row) * m.x_stride + piece * 8;
        v = m.x_is_f32 ? pleat__halves_of((const float *)m.x + from)
                       : *(const uint4 *)(const void *)((const uint16_t *)m.x + from);
    }
#pragma unroll
    for (uint32_t word = 0; word < 4; word++)
        *(uint32_t *)(void *)(out + pleat__packed_at(row, 8 * piece + 2 * word)) = pleat__word_of(v, (int)word);
}

#if PLEAT__HAS_WGMMA

/* ---- operands ------------------------------------------------------------------------------------------------ */

/* Slices that are multiplied at a time, as registers allow. */
template <int F> static constexpr int together = F == PLEAT__TILE_F16 ? 1 : 2;

/* A warp's operands of two turns: those under way, and the next. */
template <int F> struct feed {
    uint32_t tile, x_low; /* the group's, in shared memory */
    pleat__lane_group<F> w;
    uint32_t first[2][together<F>][4], second[2][together<F>][4];
};

/* Keeps operands in their registers until here: wgmma reads them while it is under way. */
static __device__ __forceinline__ void hold(const uint32_t (&a)[4]) {
    asm volatile("" ::"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]) : "memory");
}

template <int F> static __device__ __forceinline__ void hold(const feed<F> &f, int which) {
#pragma unroll
    for (int i = 0; i < together<F>; i++) {
        hold(f.first[which][i]);
        hold(f.second[which][i]);
    }
}

static __device__ __forceinline__ uint4 load_shared(uint32_t at) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
    return v;
}

/* The words that slice j is the first to need. */
template <int F, int J> static __device__ __forceinline__ void load_codes(pleat__lane_group<F> &w, uint32_t tile) {
    constexpr int each = pleat__n_codes<F> < 4 ? 2 : 1; /* slices that a word is of */
    const uint32_t lane = threadIdx.x % 32;
    if constexpr (F == PLEAT__TILE_F16) {
        const uint32_t g = lane / 4, at = tile + J * SLICE_BYTES + g * 64 + (lane % 4 ^ g / 2) * 16;
        w.codes[2 * J] = load_shared(at);
        w.codes[2 * J + 1] = load_shared(at + 8 * 64);
    } else if constexpr (J % each == 0) {
        w.codes[J / each] = load_shared(tile + 512 * (J / each) + 16 * lane);
    }
}

/* What wgmma reads of slice J. */
template <int F, int J>
static __device__ __forceinline__ void make_operands(pleat__lane_group<F> &w, uint32_t tile, uint32_t (&first)[4],
                                                     uint32_t (&second)[4]) {
    uint32_t g[4], g8[4];
    load_codes<F, J>(w, tile);
    pleat__operands<F>(w, J, g, g8);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        first[i] = i % 2 ? g8[i / 2] : g[i / 2];
        second[i] = i % 2 ? g8[2 + i / 2] : g[2 + i / 2];
    }
}

/* Of the slices of a group's turn AT. */
template <int F, int AT> static __device__ __forceinline__ void make_turn(feed<F> &f) {
    constexpr int from = AT * together<F>, which = AT % 2;
    make_operands<F, from>(f.w, f.tile, f.first[which][0], f.second[which][0]);
    if constexpr (together<F> == 2) make_operands<F, from + 1>(f.w, f.tile, f.first[which][1], f.second[which][1]);
}

template <int F> static __device__ __forceinline__ void load_scales(pleat__lane_group<F> &w, uint32_t tile) {
#pragma unroll
    for (int i = 0; i < pleat__n_scales<F>; i++)
        w.scales[i] = load_shared(tile + pleat__scales_at<F>(threadIdx.x % 32, i));
}

/* The warp's tile of the group whose turn it is, once it is there. */
template <int F, int N> static __device__ __forceinline__ uint32_t wait_for_tile(const place &at, const turn &t) {
    constexpr uint32_t tile_bytes = F == PLEAT__TILE_F16 ? PLEAT__TILE_ROWS * 64 : pleat__group_bytes<F>;
    pleat__bar_wait(at.full + t.stage * 8, t.parity);
    return at.stages + t.stage * stages<F, N>::bytes + stages<F, N>::x_bytes + (threadIdx.x / 32 - 4) * tile_bytes;
}

/* The first operands of the group whose turn it is, once it is there. */
template <int F, int N> static __device__ __forceinline__ void enter_group(feed<F> &f, const place &at, const turn &t) {
    f.tile = wait_for_tile<F, N>(at, t);
    load_scales(f.w, f.tile);
    make_turn<F, 0>(f);
}

/* ---- a group ------------------------------------------------------------------------------------------------- */

/* c = or += slice j's product. */
template <int N>
static __device__ __forceinline__ void start_slice(float (&c)[N / 2], const uint32_t (&first)[4],
                                                   const uint32_t (&second)[4], uint32_t x_low, int j, bool adds) {
    const uint32_t at = j / 2 * (N * 128) + j % 2 * 64;
    wgmma<0>(c, first, descriptor(x_low, at), adds);
    wgmma<0>(c, second, descriptor(x_low, at + 32), true);
}

/* Makes ready what comes behind turn AT: the group's next, or the next group's first. */
template <int F, int N, int AT>
static __device__ __forceinline__ void look_ahead(feed<F> &f, const place &at, const turn &next, bool goes_on) {
    if constexpr ((AT + 1) * together<F> < (int)PLEAT__TILE_SLICES)
        make_turn<F, AT + 1>(f);
    else if (goes_on)
        enter_group<F, N>(f, at, next);
}

/* sums += the product of a group from its turn AT on.  While a turn is multiplied the next is made ready. */
template <int F, int N, int AT>
static __device__ __forceinline__ void add_weights(float (&sums)[N / 2], feed<F> &f, const place &at, const turn &next,
                                                   bool goes_on) {
    constexpr bool is_last = (AT + 1) * together<F> == (int)PLEAT__TILE_SLICES;
    wgmma_begin();
#pragma unroll
    for (int s = 0; s < together<F>; s++)
        start_slice<N>(sums, f.first[AT % 2][s], f.second[AT % 2][s], f.x_low, AT * together<F> + s, true);
    wgmma_commit();
    if constexpr (AT > 0) { /* the turn before has ended: its registers are free */
        wgmma_wait<1>();
        hold(f, (AT + 1) % 2);
    }
    look_ahead<F, N, AT>(f, at, next, goes_on);
    if constexpr (is_last) {
        wgmma_wait<0>();
        settle(sums);
        hold(f, AT % 2);
    } else {
        add_weights<F, N, AT + 1>(sums, f, at, next, goes_on);
    }
}

/* sums += the product of the group whose turn it is; then it is the next one's. */
template <int F, int N>
static __device__ __forceinline__ void add_group(float (&sums)[N / 2], feed<F> &f, const place &at, turn &t,
                                                 bool goes_on) {
    const uint32_t empty = at.empty + t.stage * 8, x_low = describe(at.stages + t.stage * stages<F, N>::bytes, 16);
    f.x_low = x_low;
    advance(t, at.n_stages);
    add_weights<F, N, 0>(sums, f, at, t, goes_on);
    pleat__bar_arrive(empty); /* each lane for itself, or racecheck sees hazards; of others' blocks one for the warp */
    __syncwarp();
    if (threadIdx.x % 32 < CLUSTER && threadIdx.x % 32 != blockIdx.x % CLUSTER)
        pleat__bar_arrive_at(empty, threadIdx.x % 32);
}

/* ---- a unit ---------------------------------------------------------------------------------------------------- */

/* Groups of a unit. */
static __device__ __forceinline__ uint32_t groups_of(const pleat__device_mul &m, const cut &c, uint32_t unit) {
    const uint32_t width = PLEAT__MUL_QUARTER * c.each, from = unit % c.n_quarters * width;
    return min(width, m.w.tiles.n_groups - from);
}

/* A quarter's sums, of n groups; n_left: that the block has from here on. */
template <int F, int N>
static __device__ __forceinline__ void add_quarter(float (&quarter)[N / 2], feed<F> &f, const cut &c, const place &at,
                                                   turn &t, uint32_t n, uint32_t n_left) {
#pragma unroll
    for (int i = 0; i < N / 2; i++) quarter[i] = 0;
    for (uint32_t from = 0; from < n;) {
        float sums[N / 2] = {};
        const uint32_t end = min(from + c.each, n);
        for (; from < end; from++) add_group<F, N>(sums, f, at, t, --n_left > 0);
#pragma unroll
        for (int i = 0; i < N / 2; i++) quarter[i] += sums[i];
    }
}

/* Two warpgroups multiply all units. */
template <int F, int N>
static __device__ __forceinline__ void multiply_all(const pleat__device_mul &m, const cut &c, const place &at) {
    const uint32_t cluster = blockIdx.x / CLUSTER, first = first_unit(c, cluster), last = first_unit(c, cluster + 1);
    turn t = {0, 0};
    totals<F, N> total;
    feed<F> f;
    uint32_t n_left = 0;
    for (uint32_t unit = first; unit < last; unit++) n_left += groups_of(m, c, unit);
    enter_group<F, N>(f, at, t);
    total.at = at.totals + (threadIdx.x - 128) * 16;
    for (uint32_t unit = first; unit < last; unit++) {
        const uint32_t piece = unit / c.n_quarters, quarter = unit % c.n_quarters, begins = piece * c.n_quarters;
        const uint32_t n = groups_of(m, c, unit);
        float sums[N / 2];
        add_quarter<F, N>(sums, f, c, at, t, n, n_left);
        n_left -= n;
        const uint32_t tile = (piece * CLUSTER + blockIdx.x % CLUSTER) * TILES + threadIdx.x / 32 - 4;
        if (c.ends_together) {
            end_together<N>(m, sums, c, piece, quarter, tile, total.at);
            break;
        }
        const bool is_last = unit + 1 == last;
        if (begins < first) { /* the tiles are another's */
            hand_over<N>(sums, c, unit - first, is_last || quarter + 1 == c.n_quarters);
            continue;
        }
        if (quarter > 0) add<F, N>(sums, total);
        if (quarter + 1 < c.n_quarters && !is_last) {
            put<F, N>(total, sums);
            continue;
        }
        take_over<N>(sums, c, unit + 1, begins + c.n_quarters);
        end_tile<N>(m, sums, tile, 0, total.at);
    }
}

#endif

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

template <int F, int N>
static __global__ void __launch_bounds__(THREADS, 1)
    mul_wgmma(const __grid_constant__ pleat__device_mul m, const __grid_constant__ CUtensorMap map,
              const __grid_constant__ cut c) {
#if PLEAT__HAS_WGMMA
    extern __shared__ uint8_t shared[];
    const place at = place_of<F, N>(shared, c);
    pleat__let_next_start();
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < at.n_stages; i++) {
            pleat__bar_init(at.full + i * 8, 1);
            pleat__bar_init(at.empty + i * 8, MULTIPLIERS + (CLUSTER - 1) * (MULTIPLIERS / 32));
        }
        pleat__bars_are_ready();
    }
    pleat__wait_for_cluster();
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        fill_stages<F, N>(m, map, c, at);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        pleat__wait_for_last();
        multiply_all<F, N>(m, c, at);
    }
    __syncwarp();
    pleat__wait_for_cluster(); /* others may still copy to here, and arrive */
#endif
}

/* ---- launchers ------------------------------------------------------------------------------------------------------ */

template <int F, int N>
static pleat_status launch(const pleat__device_mul &m, const CUtensorMap &map, const cut &c, uint32_t n_clusters,
                           pleat__device_stream stream, pleat_error *err) {
    const uint32_t bytes = stages<F, N>::all_bytes(c);
    PLEAT_CUDA_TRY(cudaFuncSetAttribute(mul_wgmma<F, N>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES),
                   "asking for shared memory", err);
    pleat__launch_clusters(mul_wgmma<F, N>, n_clusters * CLUSTER, CLUSTER, THREADS, bytes, stream, m, map, c);
    return PLEAT_CUDA_LAUNCHED("multiplying a batch", err);
}

/* Of F16 boxes of a slice, its 32 columns of 128 rows; else of a group's lines in TILES tiles. */
static pleat_status describe_weights(const pleat__device_matrix &w, uint32_t group_bytes, CUtensorMap *map,
                                     pleat_error *err) {
    const pleat__tiles &t = w.tiles;
    const uint32_t n_lines = group_bytes / LINE_BYTES;
    const pleat__boxes_of rows = {w.data,
                                  true,
                                  t.n_groups * PLEAT__GROUP_COLS,
                                  t.n_tiles * PLEAT__TILE_ROWS,
                                  pleat__row_bytes(t),
                                  32,
                                  TILES * PLEAT__TILE_ROWS,
                                  0,
                                  0,
                                  0,
                                  CU_TENSOR_MAP_SWIZZLE_64B};
    const pleat__boxes_of lines = {w.data,
                                   false,
                                   LINE_BYTES,
                                   (uint64_t)t.n_groups * n_lines,
                                   LINE_BYTES,
                                   LINE_BYTES,
                                   n_lines,
                                   t.n_tiles,
                                   (uint64_t)t.n_groups * group_bytes,
                                   TILES,
                                   CU_TENSOR_MAP_SWIZZLE_NONE};
    return pleat__describe_boxes(t.format == PLEAT__TILE_F16 ? rows : lines, map, err);
}

/* Clusters that run at once, which those that wait for others rely on: a block has a multiprocessor to itself. */
static pleat_status count_clusters(uint32_t *n, pleat_error *err) {
    int device = 0, n_processors = 0;
    PLEAT_CUDA_TRY(cudaGetDevice(&device), "asking which GPU is in use", err);
    PLEAT_CUDA_TRY(cudaDeviceGetAttribute(&n_processors, cudaDevAttrMultiProcessorCount, device), "asking the GPU",
                   err);
    *n = (uint32_t)n_processors / CLUSTER;
    if (*n > MAX_CLUSTERS) *n = MAX_CLUSTERS;
    return PLEAT_OK;
}

template <int F, int N>
static pleat_status launch_end(const pleat__device_mul &m, cut c, pleat__device_stream stream, pleat_error *err) {
    uint32_t n_clusters = 0;
    CUtensorMap map = {};
    PLEAT_TRY(describe_weights(m.w, pleat__group_bytes<F>, &map, err));
    PLEAT_TRY(count_clusters(&n_clusters, err));
    if (n_clusters > c.n_units) n_clusters = c.n_units;
    c.ends_together = n_clusters == c.n_units && c.n_quarters == PLEAT__MUL_QUARTER;
    return launch<F, N>(m, map, c, n_clusters, stream, err);
}

/* Rows [first, first + n) of x. */
template <int F>
static pleat_status launch_rows(const pleat__device_mul &all, uint32_t first, uint32_t n, pleat__device_stream stream,
                                pleat_error *err) {
    const uint32_t n_groups = all.w.tiles.n_groups, n_pieces = n * n_groups * (PLEAT__GROUP_COLS / 8);
    uint8_t *work = (uint8_t *)all.work;
    float *slabs = (float *)(void *)(work + PLEAT__MUL_FLAGS_BYTES);
    uint8_t *x = work + pleat__device_mul_work_bytes(0);
    cut c = {.each = pleat__groups_per_range(n_groups)};
    c.n_quarters = (n_groups + PLEAT__MUL_QUARTER * c.each - 1) / (PLEAT__MUL_QUARTER * c.each);
    c.n_units = (all.w.tiles.n_tiles + CLUSTER * TILES - 1) / (CLUSTER * TILES) * c.n_quarters;
    c.x = all.x_is_packed ? (const uint8_t *)all.x : x;
    c.flags = (uint32_t *)(void *)work;
    c.slabs = slabs;
    if (!all.x_is_packed) {
        pleat__launch(pack, (n_pieces + PACK_THREADS - 1) / PACK_THREADS, PACK_THREADS, 0, stream, all, first, n, x);
        PLEAT_TRY(PLEAT_CUDA_LAUNCHED("packing rows", err));
    }
    pleat__device_mul m = all;
    m.n = n;
    if (m.y) m.y += (uint64_t)first * m.y_stride;
    if (m.h) m.h += (uint64_t)first * m.y_stride;
    if (n <= X_ROWS / 4) return launch_end<F, X_ROWS / 4>(m, c, stream, err);
    return n <= X_ROWS / 2 ? launch_end<F, X_ROWS / 2>(m, c, stream, err) : launch_end<F, X_ROWS>(m, c, stream, err);
}

template <int F>
static pleat_status launch_all(const pleat__device_mul &m, pleat__device_stream stream, pleat_error *err) {
    for (uint32_t first = 0; first < m.n; first += X_ROWS)
        PLEAT_TRY(launch_rows<F>(m, first, m.n - first < X_ROWS ? m.n - first : X_ROWS, stream, err));
    return PLEAT_OK;
}

/* Asked once: a kernel without a body has hardly a register. */
extern "C" bool pleat__device_mul_has_wgmma(void) {
    static int known = -1;
    cudaFuncAttributes attributes = {};
    if (known >= 0) return known != 0;
    if (cudaFuncGetAttributes(&attributes, mul_wgmma<PLEAT__TILE_Q4, X_ROWS>) != cudaSuccess) return false;
    known = attributes.numRegs >= 64;
    return known != 0;
}

extern "C" uint64_t pleat__device_mul_work_bytes(uint32_t max_cols) {
    const uint64_t n_groups = (max_cols + PLEAT__GROUP_COLS - 1) / PLEAT__GROUP_COLS;
    const uint64_t slab_bytes = X_ROWS / 2 * MULTIPLIERS * sizeof(float);
    return PLEAT__MUL_FLAGS_BYTES + MAX_CLUSTERS * CLUSTER * SLOTS * slab_bytes + n_groups * 2 * PANEL_BYTES;
}

extern "C" pleat_status pleat__device_mul_wgmma(const pleat__device_mul *m, pleat__device_stream stream,
                                                pleat_error *err) {
    PLEAT_FAIL_IF(m->n == 0 || !m->work || ((m->x_is_packed || m->h_is_packed) && m->n > X_ROWS), err, PLEAT_E_ARG,
                  PLEAT_NOWHERE, "product on a GPU: no rows, no memory, or too many packed rows");
    PLEAT_FAIL_IF(!pleat__device_mul_has_wgmma(), err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "product on a GPU: this one has no products of warpgroups");
    switch (m->w.tiles.format) {
        case PLEAT__TILE_F16: return launch_all<PLEAT__TILE_F16>(*m, stream, err);
        case PLEAT__TILE_Q8: return launch_all<PLEAT__TILE_Q8>(*m, stream, err);
        case PLEAT__TILE_Q4: return launch_all<PLEAT__TILE_Q4>(*m, stream, err);
        case PLEAT__TILE_Q4_MIN: return launch_all<PLEAT__TILE_Q4_MIN>(*m, stream, err);
        default: return launch_all<PLEAT__TILE_Q8_HALF>(*m, stream, err);
    }
}
