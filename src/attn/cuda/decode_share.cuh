/* SPDX-License-Identifier: MIT
 *
 * decode_share.cuh: what the schedule and the kernels of decode attention tell each other: the lanes of a layer, where
 * each warp's share of them starts, and what else a kernel is called with.  decode.h has the picture,
 * decode_schedule.cu the schedule.
 *
 *     share w   from starts[w] to starts[w + 1]: the rest of a lane, whole lanes, the beginning of one
 *     tiles     of a lane are counted through both sides, high first
 */
#ifndef PLEAT_ATTN_CUDA_DECODE_SHARE_CUH
#define PLEAT_ATTN_CUDA_DECODE_SHARE_CUH

#include "attn/cuda/decode.h"
#include "core/device_view.h"

/* Most warps of a block. */
#define PLEAT__DECODE_WARPS 16

/* A lane of a layer, as the schedule found it. */
typedef struct pleat__device_lane {
    uint32_t row;
    uint32_t n_slots[2];
    uint32_t first_share, last_share;
    uint32_t prefix; /* the schedule's cost of the lanes before */
    uint32_t pad[2];
} pleat__device_lane;

/* Where a share starts: a tile of a lane, counted through both sides; with a copy of that lane and the tile's page, so
 * that a warp need not wait for them. */
typedef struct pleat__share_start {
    uint32_t lane, tile;
    uint32_t row;
    uint32_t n_slots[2];
    uint32_t first_share, last_share;
    uint32_t page_id; /* PLEAT__NO_PAGE: the lane has no tile */
} pleat__share_start;

#define PLEAT__NO_PAGE UINT32_MAX

/* Lanes that are cut by their own lengths: at most `most` pieces, of `least` tiles at least. */
typedef struct pleat__pieces {
    uint32_t most, least;
} pleat__pieces;

/* A piece of a lane; the pieces of a block are those from its place to the next block's. */
typedef struct pleat__piece_place {
    uint32_t lane, piece;
} pleat__piece_place;

typedef struct pleat__decode_params {
    pleat__device_view view;
    bool reads_ahead;
    const uint16_t *q;
    float scale;
    void *out; /* f16 if is_f16, else f32 */
    bool is_f16;
    float *lse2, *logits;
    uint64_t logits_stride;
    const uint32_t *scored_seqs;
    const pleat__share_start *starts; /* [n_shares + 1] of the layer */
    const pleat__device_lane *lanes;  /* [lanes] of the layer */
    uint32_t *arrivals;               /* [lanes] of the layer: blocks, or pieces, that have left their part */
    float *block_parts;               /* [n_blocks][2], or [lanes][pieces.most] */
    const pleat__piece_place *places; /* [n_blocks + 1] of the layer */
    pleat__pieces pieces;
} pleat__decode_params;

typedef void (*pleat__decode_fn)(pleat__decode_params params);

/* A row of the table of kernels. */
typedef struct pleat__decode_kernel {
    pleat_format formats[2];
    uint32_t head_dim;
    pleat__decode_fn fn, pieces_fn;
    uint32_t heads;      /* of a group, at most */
    uint32_t step_tiles; /* of a warp's step */
    uint32_t resident;   /* blocks of a multiprocessor */
    uint32_t max_warps;  /* of a block, PLEAT__DECODE_WARPS at most */
    uint32_t warp_bytes; /* shared memory of a warp's ring; a part stands behind it */
} pleat__decode_kernel;

#define PLEAT__PART_O 16u /* where o begins, behind [8] m and [8] l */

static __host__ __device__ constexpr uint32_t pleat__part_floats(uint32_t d, uint32_t n_group) {
    return PLEAT__PART_O + n_group * d;
}

/* ---- views ----------------------------------------------------------------------------------------------- */

static inline bool pleat__is_format(pleat_format a, pleat_format b) {
    return a.k_bits == b.k_bits && a.v_bits == b.v_bits && a.rotated == b.rotated;
}

/* Only where the formats differ is there a low side: its counts, or NULL. */
static inline const uint32_t *pleat__low_slots(const pleat__device_view *v) {
    return pleat__is_format(v->layouts[0].format, v->layouts[1].format) ? NULL : v->n_slots[1];
}

/* Is the view one that the plan is for?  Else PLEAT_E_ARG. */
pleat_status pleat__device_attn_check_view(const pleat__device_attn_plan *plan, const pleat__device_view *view,
                                           pleat_error *err);

/* Thread blocks for a batch. */
uint32_t pleat__device_attn_blocks(const pleat__device_attn_plan *plan, uint32_t n_seqs);

/* ---- shares ------------------------------------------------------------------------------------------------ */

/* Tile `tile` of lane `lane`. */
struct position {
    uint32_t lane, tile;
};

static __device__ __forceinline__ bool is_before(position a, position b) {
    return a.lane < b.lane || (a.lane == b.lane && a.tile < b.tile);
}

/* The tiles of a share on one side of a lane. */
struct tile_run {
    uint32_t first, count;
    uint32_t n_slots; /* of the side */
};

static __device__ __forceinline__ uint32_t tiles_of(uint32_t n_slots) { return (n_slots + 15) / 16; }

/* Tiles [*from, *to) of the lane, counted through both sides, are the share's. */
static __device__ __forceinline__ void share_cut(position start, position end, uint32_t lane,
                                                 const pleat__device_lane &l, uint32_t *from, uint32_t *to) {
    *from = lane == start.lane ? start.tile : 0;
    *to = lane == end.lane ? end.tile : tiles_of(l.n_slots[0]) + tiles_of(l.n_slots[1]);
}

static __device__ __forceinline__ tile_run run_of(const pleat__device_lane &l, int side, uint32_t from, uint32_t to) {
    const uint32_t n_high = tiles_of(l.n_slots[0]);
    if (side) {
        from = max(from, n_high) - n_high;
        to = max(to, n_high) - n_high;
    } else {
        from = min(from, n_high);
        to = min(to, n_high);
    }
    return {from, to - from, side ? l.n_slots[1] : l.n_slots[0]};
}

static __device__ __forceinline__ pleat__device_lane load_lane(const pleat__device_lane *lanes, uint32_t lane) {
    const uint4 x = __ldg((const uint4 *)(const void *)(lanes + lane));
    pleat__device_lane l = {};
    l.row = x.x;
    l.n_slots[0] = x.y;
    l.n_slots[1] = x.z;
    return l;
}

/* Tiles of all pieces of a lane but its last; step: of the kernel's step. */
static __device__ __forceinline__ uint32_t tiles_of_piece(const pleat__pieces &p, uint32_t step, uint32_t n_tiles) {
    const uint32_t each = max((n_tiles + p.most - 1) / p.most, p.least);
    return (each + step - 1) / step * step;
}

/* Start i of the layer. */
static __device__ __forceinline__ pleat__share_start load_start(const pleat__share_start *starts, uint32_t i) {
    const uint4 x = __ldg((const uint4 *)(const void *)(starts + i));
    const uint4 y = __ldg((const uint4 *)(const void *)(starts + i) + 1);
    return {x.x, x.y, x.z, {x.w, y.x}, y.y, y.z, y.w};
}

#endif
