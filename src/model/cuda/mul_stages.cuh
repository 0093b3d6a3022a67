/* SPDX-License-Identifier: MIT
 *
 * mul_stages.cuh: what mul_wgmma.cu multiplies, on its way into shared memory: how a product is cut into units, the ring
 * of stages that a block has, and the warps that fill them.
 *
 *     unit     a quarter of the columns (mul.h, rule 1) of 16 tiles of W.  Each cluster of two blocks has as many, one
 *              behind the other, as all others, give or take one
 *     stage    a group of 128 columns: two panels of x, then 8 tiles of W.  A warp fills every fourth
 *     x        blocks of a cluster multiply the same columns of x: each copies its panels into all of them
 *     weights  a stage's 8 tiles are one box.  Of F16 each slice is one, whose rows of 64 bytes are swizzled
 *     ring     as many stages as fit beside the totals of tiles under way.  Where quarters end together there are few
 */
#ifndef PLEAT_MODEL_CUDA_MUL_STAGES_CUH
#define PLEAT_MODEL_CUDA_MUL_STAGES_CUH

#include "hw/cuda/bulk.cuh"
#include "hw/cuda/copy.cuh"
#include "hw/cuda/launch.cuh"
#include "model/cuda/tile.cuh"

#define CLUSTER 2u
#define MULTIPLIERS 256u /* threads */
#define THREADS (32 * COPIERS + MULTIPLIERS)
#define TILES 8u                                     /* of a block: a warp each */
#define X_ROWS PLEAT__MUL_PACKED                     /* of a product, and of a packed panel */
#define PANEL_BYTES (X_ROWS * 128u)                  /* packed */
#define SLICE_BYTES (TILES * PLEAT__TILE_ROWS * 64u) /* of F16, in a stage */
#define LINE_BYTES 128u                              /* of the boxes that other formats come by */
#define SLOTS 3u                                     /* quarters that a cluster hands over, at most */
#define MAX_CLUSTERS 80u
#define ALIGN_BYTES 1024u
#define COPIERS 4u /* warps */
#define MAX_STAGES 8u
#define SHARED_BYTES 232448u /* that a block of Hopper may ask for */

/* How a product is cut. */
typedef struct cut {
    uint32_t each;       /* groups of a range */
    uint32_t n_quarters; /* that have columns */
    uint32_t n_units;
    bool ends_together; /* a cluster has one unit each */
    const uint8_t *x;   /* packed */
    uint32_t *flags;    /* of a block: it has handed over; then a counter of each piece and rank */
    float *slabs;       /* of a block: [SLOTS], of a thread its sums by fours */
} cut;

/* A block's shared memory. */
template <int F, int N> struct stages {
    static constexpr uint32_t x_bytes = N * PLEAT__GROUP_COLS * 2;
    static constexpr uint32_t w_bytes = TILES * pleat__group_bytes<F>;
    static constexpr uint32_t bytes = (x_bytes + w_bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    static constexpr uint32_t copied_bytes = x_bytes + w_bytes;
    static constexpr bool is_nibbles = F == PLEAT__TILE_Q4 || F == PLEAT__TILE_Q4_MIN;
    static constexpr int n_kept = N < 128 ? 0 : F == PLEAT__TILE_F16 ? 32 : is_nibbles ? 8 : 0;
    static constexpr uint32_t totals_bytes = MULTIPLIERS * (N / 2 - n_kept) * 4; /* the others are in registers */
    static constexpr uint32_t few_totals_bytes = MULTIPLIERS * (N / 8) * 4;      /* where quarters end together */

    static __host__ __device__ constexpr uint32_t n_beside(uint32_t kept_bytes) {
        const uint32_t fit = (SHARED_BYTES - ALIGN_BYTES - kept_bytes) / (bytes + 16);
        return fit < MAX_STAGES ? fit : MAX_STAGES;
    }
    static constexpr uint32_t n = n_beside(totals_bytes), n_together = n_beside(few_totals_bytes);

    static __host__ __device__ constexpr uint32_t n_of(const cut &c) { return c.ends_together ? n_together : n; }
    static constexpr uint32_t all_bytes(const cut &c) {
        return ALIGN_BYTES + n_of(c) * (bytes + 16) + (c.ends_together ? few_totals_bytes : totals_bytes);
    }
};

#if PLEAT__HAS_WGMMA

/* ---- where a block is ---------------------------------------------------------------------------------------- */

static __device__ __forceinline__ uint32_t first_unit(const cut &c, uint32_t cluster) {
    return (uint32_t)((uint64_t)cluster * c.n_units / (gridDim.x / CLUSTER));
}

/* A place in the ring of stages: which, and the parity of the round. */
typedef struct turn {
    uint32_t stage, parity;
} turn;

static __device__ __forceinline__ void advance(turn &t, uint32_t n_stages) {
    if (++t.stage < n_stages) return;
    t.stage = 0;
    t.parity ^= 1;
}

/* Shared memory, by address. */
typedef struct place {
    uint32_t stages, totals, full, empty, n_stages;
} place;

template <int F, int N> static __device__ __forceinline__ place place_of(const uint8_t *shared, const cut &c) {
    using s = stages<F, N>;
    const uint32_t at = (pleat__shared_address(shared) + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    const uint32_t n = s::n_of(c), totals = at + n * s::bytes;
    const uint32_t full = totals + (c.ends_together ? s::few_totals_bytes : s::totals_bytes);
    return place{at, totals, full, full + n * 8, n};
}

/* ---- copies ------------------------------------------------------------------------------------------------- */

/* What a lane of a copying warp walks over: groups of units. */
typedef struct walk {
    uint32_t unit, last, piece, quarter, group, to; /* to: of the quarter's groups */
} walk;

static __device__ __forceinline__ void enter(walk &w, const cut &c, uint32_t n_groups) {
    const uint32_t width = c.each * PLEAT__MUL_QUARTER;
    w.group = w.quarter * width;
    w.to = min(w.group + width, n_groups);
}

static __device__ __forceinline__ walk walk_from(const cut &c, uint32_t cluster, uint32_t n_groups) {
    walk w = {first_unit(c, cluster), first_unit(c, cluster + 1)};
    w.piece = w.unit / c.n_quarters;
    w.quarter = w.unit % c.n_quarters;
    enter(w, c, n_groups);
    return w;
}

static __device__ __forceinline__ void step(walk &w, const cut &c, uint32_t n_groups) {
    if (++w.group < w.to) return;
    w.unit++;
    if (++w.quarter == c.n_quarters) {
        w.quarter = 0;
        w.piece++;
    }
    enter(w, c, n_groups);
}

/* The block's weights of a group: of F16 its slices, whose rows of 64 bytes are swizzled by them, else its tiles in one
 * box.  Tiles behind the last are zeros. */
template <int F, int N>
static __device__ __forceinline__ void copy_weights(const pleat__device_mul &m, const CUtensorMap &map, const walk &w,
                                                    uint32_t stage, uint32_t bar) {
    using s = stages<F, N>;
    const uint32_t lane = threadIdx.x % 32, to = stage + s::x_bytes;
    const uint32_t tile0 = (w.piece * CLUSTER + blockIdx.x % CLUSTER) * TILES;
    if (lane == 0) pleat__bar_expect(bar, s::copied_bytes);
    __syncwarp();
    if constexpr (F == PLEAT__TILE_F16) {
        if (lane < PLEAT__TILE_SLICES)
            pleat__box_copy(to + lane * SLICE_BYTES, &map, w.group * PLEAT__GROUP_COLS + lane * 32,
                            tile0 * PLEAT__TILE_ROWS, bar);
    } else if (lane == 0) {
        pleat__deep_box_copy(to, &map, w.group * (pleat__group_bytes<F> / LINE_BYTES), tile0, bar);
    }
}

/* The block's panels of a group, for the whole cluster. */
template <int F, int N>
static __device__ __forceinline__ void copy_x(const cut &c, uint32_t group, uint32_t stage, uint32_t bar) {
    constexpr uint32_t each = 2 / CLUSTER, bytes = N * 128;
    const uint32_t lane = threadIdx.x % 32, panel = blockIdx.x % CLUSTER * each + lane;
    if (lane >= each) return;
    const uint8_t *from = c.x + (uint64_t)(2 * group + panel) * PANEL_BYTES;
    if constexpr (CLUSTER > 1)
        pleat__bulk_copy_to(stage + panel * bytes, from, bytes, bar, (1u << CLUSTER) - 1);
    else
        pleat__bulk_copy(stage + panel * bytes, from, bytes, bar);
}

/* A copying warp's groups are every n_copiers-th.  What fits comes before what was launched earlier has ended: weights. */
template <int F, int N>
static __device__ __forceinline__ void fill_stages(const pleat__device_mul &m, const CUtensorMap &map, const cut &c,
                                                   const place &at) {
    using s = stages<F, N>;
    const uint32_t n_groups = m.w.tiles.n_groups, mine = threadIdx.x / 32, n_copiers = min(at.n_stages, COPIERS);
    if (mine >= n_copiers) return; /* else one might be two rounds ahead */
    walk w = walk_from(c, blockIdx.x / CLUSTER, n_groups);
    for (uint32_t i = 0; i < mine; i++) step(w, c, n_groups);
    walk first = w;
    for (uint32_t i = mine; i < at.n_stages && first.unit < first.last; i += n_copiers) {
        copy_weights<F, N>(m, map, first, at.stages + i * s::bytes, at.full + i * 8);
        for (uint32_t k = 0; k < n_copiers; k++) step(first, c, n_groups);
    }
    pleat__wait_for_last();
    turn t = {mine, 1};
    for (uint32_t i = mine; w.unit < w.last; i += n_copiers) {
        const uint32_t stage = at.stages + t.stage * s::bytes, full = at.full + t.stage * 8;
        if (i >= at.n_stages) {
            pleat__bar_wait(at.empty + t.stage * 8, t.parity);
            copy_weights<F, N>(m, map, w, stage, full);
        }
        copy_x<F, N>(c, w.group, stage, full);
        for (uint32_t k = 0; k < n_copiers; k++) {
            step(w, c, n_groups);
            advance(t, at.n_stages);
        }
    }
}

#endif
#endif
