/* SPDX-License-Identifier: MIT
 *
 * decode_kernel.cuh: the kernel of decode attention, for any pair of formats: a warp's walk over its share, and what is
 * merged afterwards.  decode.h has the picture; decode_tile.cuh does the arithmetic.
 *
 *     feeder   walks ahead: starts copies of step t + stages - 1 ...           ids 32 to 64 pages ahead, in registers
 *     ring     some steps of shared memory, the warp's own
 *     state    ... while step t is added: no two warps wait for each other before the end
 *
 * A step is T tiles of a page, T = 1 or 2, or one where the page or the run ends.  Parts are [8] m, [8] l, [n_group][D] o
 * in f32.  A lane that goes on behind a warp's share leaves its part in the warp's ring, which is idle by then; one that
 * began before and ends in it, behind the ring: a warp has at most one of each.  A block has at most two lanes that it
 * shares with others: one that began before it (slot 2b + 1 of the workspace, whether it ends in it or not), and one that
 * goes on (slot 2b).
 */
#ifndef PLEAT_ATTN_CUDA_DECODE_KERNEL_CUH
#define PLEAT_ATTN_CUDA_DECODE_KERNEL_CUH

#include "attn/cuda/decode_tile.cuh"

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

/* Where a share starts: a tile of a lane, counted through both sides; with a copy of that lane and the tile's page, so that
 * a warp need not wait for them. */
typedef struct pleat__share_start {
    uint32_t lane, tile;
    uint32_t row;
    uint32_t n_slots[2];
    uint32_t first_share, last_share;
    uint32_t page_id; /* PLEAT__NO_PAGE: the lane has no tile */
} pleat__share_start;

#define PLEAT__NO_PAGE UINT32_MAX

typedef struct pleat__decode_params {
    pleat__device_view view;
    const uint16_t *q;
    float scale;
    float *out, *lse2, *logits;
    uint64_t logits_stride;
    const pleat__share_start *starts; /* of the layer, as lanes and arrivals */
    const pleat__device_lane *lanes;
    uint32_t *arrivals;
    float *block_parts;
} pleat__decode_params;

typedef void (*pleat__decode_fn)(pleat__decode_params params);

/* A row of the table of kernels. */
typedef struct pleat__decode_kernel {
    pleat_format formats[2];
    uint32_t head_dim;
    pleat__decode_fn fn;
    uint32_t heads;      /* most of a group */
    uint32_t resident;   /* blocks of a multiprocessor */
    uint32_t most_warps; /* of a block, PLEAT__DECODE_WARPS at most */
    uint32_t warp_bytes; /* shared memory of a warp's ring; a part stands behind it */
} pleat__decode_kernel;

#define PLEAT__PART_O 16u /* where o begins, behind [8] m and [8] l */

static __host__ __device__ constexpr uint32_t pleat__part_floats(uint32_t d, uint32_t n_group) {
    return PLEAT__PART_O + n_group * d;
}

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

/* ---- the feeder ---------------------------------------------------------------------------------------------- */

/* Walks a share's steps, page by page. */
struct feeder {
    uint32_t left;             /* tiles of the run that are still to be started */
    uint32_t tile, page_tiles; /* next tile in its page */
    uint32_t page_idx;
    uint32_t ids, ids_next; /* of 32 pages, one a lane of the warp */
    uint32_t meta;          /* meta_source() of the side */
    uint32_t side;
    const uint8_t *page;
};

/* What a feeder needs only where a run or 32 pages end: in shared memory, since registers are what the kernel has too
 * few of.  Written by lane 0 of the warp. */
struct feeder_run {
    position end;              /* of the share */
    uint32_t lane, side, from; /* of the lane, the first tile that is the share's */
    uint32_t row;
    uint32_t n_slots[2];
    uint32_t page_id; /* where the share's first run starts; PLEAT__NO_PAGE from then on */
};

/* The id of page i of the run, for whichever of 32 pages this lane of the warp holds. */
static __device__ __forceinline__ uint32_t feeder_load_ids(const feeder &f, const feeder_run &run,
                                                           const pleat__device_view &v, uint32_t page_idx) {
    if (page_idx * f.page_tiles >= tiles_of(run.side ? run.n_slots[1] : run.n_slots[0])) return 0;
    return __ldg(v.ids + (uint64_t)run.row * v.row_len + (run.side ? v.row_len - 1 - page_idx : page_idx));
}

static __device__ __forceinline__ void feeder_set_page(feeder &f, const pleat__device_view &v, uint32_t page_id) {
    const uint32_t id = page_id != PLEAT__NO_PAGE ? page_id : __shfl_sync(PLEAT__ALL_LANES, f.ids, f.page_idx & 31);
    f.page = v.base + (uint64_t)id * v.page_bytes;
}

/* Begin a run. */
static __device__ __forceinline__ void feeder_begin(feeder &f, const feeder_run &at, const pleat__device_view &v,
                                                    const tile_run &run, int warp_lane) {
    f.left = run.count;
    f.side = at.side;
    f.page_tiles = (at.side ? v.layouts[1].tokens : v.layouts[0].tokens) / 16;
    f.page_idx = run.first / f.page_tiles;
    f.tile = run.first - f.page_idx * f.page_tiles;
    f.ids = feeder_load_ids(f, at, v, (f.page_idx & ~31u) + warp_lane);
    f.ids_next = feeder_load_ids(f, at, v, (f.page_idx & ~31u) + 32 + warp_lane);
    feeder_set_page(f, v, at.page_id);
}

/* Move to the next side that is the share's; false: there is none. */
static __device__ __forceinline__ bool feeder_run_next(feeder_run &r, const pleat__device_lane *lanes) {
    if (r.side++ == 1) {
        r.side = 0;
        r.lane++;
        r.from = 0;
        if (is_before({r.lane, 0}, r.end)) {
            const pleat__device_lane l = load_lane(lanes, r.lane);
            r.row = l.row;
            r.n_slots[0] = l.n_slots[0];
            r.n_slots[1] = l.n_slots[1];
        }
    }
    if (is_before({r.lane, r.from}, r.end)) return true;
    r.side = 1; /* stay at the end */
    r.lane--;
    return false;
}

/* Go to the share's next run that is not empty; false: there is none. */
template <class C>
static __device__ __forceinline__ bool feeder_next_run(feeder &f, feeder_run *shared, const pleat__decode_params &a,
                                                       int warp_lane) {
    feeder_run r = *shared;
    bool more;
    while ((more = feeder_run_next(r, a.lanes))) {
        pleat__device_lane l = {};
        l.n_slots[0] = r.n_slots[0];
        l.n_slots[1] = r.n_slots[1];
        const uint32_t to = r.lane == r.end.lane ? r.end.tile : tiles_of(l.n_slots[0]) + tiles_of(l.n_slots[1]);
        const tile_run run = run_of(l, (int)r.side, r.from, to);
        if (run.count == 0) continue;
        feeder_begin(f, r, a.view, run, warp_lane);
        f.meta = C::one_format || r.side == 0 ? meta_source<C::d, C::kh, C::vh, C::t>(a.view.layouts[0], warp_lane)
                                              : meta_source<C::d, C::kl, C::vl, C::t>(a.view.layouts[1], warp_lane);
        r.page_id = PLEAT__NO_PAGE;
        break;
    }
    __syncwarp();
    if (warp_lane == 0) *shared = r;
    __syncwarp();
    return more;
}

/* Start copying the next step, if there is one, and commit: one group a call. */
template <class C>
static __device__ __forceinline__ void feeder_start_step(feeder &f, feeder_run *run, const pleat__decode_params &a,
                                                         uint32_t to, int warp_lane) {
    if (f.left > 0 || feeder_next_run<C>(f, run, a, warp_lane)) {
        if (f.tile == f.page_tiles) {
            f.tile = 0;
            f.page_idx++;
            if ((f.page_idx & 31) == 0) {
                f.ids = f.ids_next;
                f.ids_next = feeder_load_ids(f, *run, a.view, f.page_idx + 32 + warp_lane);
            }
            feeder_set_page(f, a.view, PLEAT__NO_PAGE);
        }
        const uint32_t n = C::t == 1 ? 1 : min(min(f.left, f.page_tiles - f.tile), 2u);
        if (C::one_format || f.side == 0)
            copy_step<C::d, C::kh, C::vh, C::t>(to, f.page, a.view.layouts[0], f.meta, f.tile, n, warp_lane);
        else
            copy_step<C::d, C::kl, C::vl, C::t>(to, f.page, a.view.layouts[1], f.meta, f.tile, n, warp_lane);
        f.tile += n;
        f.left -= n;
    }
    pleat__copies_commit();
}

/* ---- parts ------------------------------------------------------------------------------------------------- */

/* o of one head, times `factor`, to [D] floats. */
template <int D>
static __device__ __forceinline__ void store_head(float *to, const warp_state<D> &st, int h, float factor, int r) {
#pragma unroll
    for (int i = 0; i < D / 32; i++) {
        const float *x = st.o[2 * i], *y = st.o[2 * i + 1];
        const float4 o = make_float4(x[h] * factor, x[2 + h] * factor, y[h] * factor, y[2 + h] * factor);
        *(float4 *)(void *)(to + 32 * i + 4 * r) = o;
    }
}

/* The lane is done: its output.  lane: index of (sequence, KV head). */
template <int D>
static __device__ __forceinline__ void state_finish(const warp_state<D> &st, const pleat__decode_params &a,
                                                    uint32_t lane, int warp_lane) {
    const int r = warp_lane >> 2, j = warp_lane & 3;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint32_t head = 2 * j + h;
        if (head >= a.view.n_group) continue;
        const uint64_t at = (uint64_t)lane * a.view.n_group + head;
        store_head<D>(a.out + at * D, st, h, st.l[h] > 0 ? 1 / st.l[h] : 0, r);
        if (a.lse2 && r == 0) a.lse2[at] = st.mb[h] + log2f(st.l[h]);
    }
}

template <int D>
static __device__ __forceinline__ void state_leave(const warp_state<D> &st, float *part, uint32_t n_group,
                                                   int warp_lane) {
    const int r = warp_lane >> 2, j = warp_lane & 3;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint32_t head = 2 * j + h;
        if (head >= n_group) continue;
        store_head<D>(part + PLEAT__PART_O + head * D, st, h, 1, r);
        if (r == 0) {
            part[head] = st.mb[h];
            part[8 + head] = st.l[h];
        }
    }
}

/* Four elements of o, with their head's m and l. */
struct merged {
    float m, l;
    float4 o;
};

/* Raise x's reference to `most`, not below x.m. */
static __device__ __forceinline__ void merged_raise(merged &x, float most) {
    const float factor = power_of_two(x.m - most);
    x = {most, x.l * factor, {x.o.x * factor, x.o.y * factor, x.o.z * factor, x.o.w * factor}};
}

/* Add y, whose m is not above x.m. */
static __device__ __forceinline__ void merged_add(merged &x, const merged &y) {
    const float factor = power_of_two(y.m - x.m);
    x.l += y.l * factor;
    x.o.x += y.o.x * factor;
    x.o.y += y.o.y * factor;
    x.o.z += y.o.z * factor;
    x.o.w += y.o.w * factor;
}

static __device__ __forceinline__ merged merged_none() { return {-3.0e38f, 0, {0, 0, 0, 0}}; }

/* Of a part in the workspace. */
template <int D> static __device__ __forceinline__ merged load_part(const float *part, uint32_t element) {
    const float4 o = __ldcg((const float4 *)(const void *)(part + PLEAT__PART_O + element));
    return {__ldcg(part + element / D), __ldcg(part + 8 + element / D), o};
}

/* Of one in shared memory. */
template <int D> static __device__ __forceinline__ merged part_at(const float *part, uint32_t element) {
    return {part[element / D], part[8 + element / D], *(const float4 *)(const void *)(part + PLEAT__PART_O + element)};
}

template <int D> static __device__ __forceinline__ void store_part(float *part, const merged &x, uint32_t element) {
    *(float4 *)(void *)(part + PLEAT__PART_O + element) = x.o;
    if (element % D == 0) {
        part[element / D] = x.m;
        part[8 + element / D] = x.l;
    }
}

template <int D>
static __device__ __forceinline__ void store_merged(const merged &x, const pleat__decode_params &a, uint32_t lane,
                                                    uint32_t element) {
    const uint64_t at = (uint64_t)lane * a.view.n_group + element / D;
    const float inverse = x.l > 0 ? 1 / x.l : 0;
    *(float4 *)(void *)(a.out + at * D + element % D) =
        make_float4(x.o.x * inverse, x.o.y * inverse, x.o.z * inverse, x.o.w * inverse);
    if (a.lse2 && element % D == 0) a.lse2[at] = x.m + log2f(x.l);
}

/* A lane that several warps of a block have read, or several blocks. */
struct shared_lane {
    uint32_t lane;
    uint32_t first, last; /* warps of the block, in the lane's order */
    bool before, after;   /* the lane begins before the block, goes on behind it */
};

/* A block's shared memory: for each warp its ring, and behind it the part of a lane that began before it and ends in
 * it. */
template <class C> struct block_memory {
    float *rings;
    uint32_t stride; /* from warp to warp, floats */

    __device__ __forceinline__ block_memory(uint8_t *memory, uint32_t n_group)
        : rings((float *)(void *)memory), stride(C::warp_bytes / sizeof(float) + pleat__part_floats(C::d, n_group)) {}
    __device__ __forceinline__ float *ring(uint32_t warp) const { return rings + warp * stride; }
    __device__ __forceinline__ float *end_part(uint32_t warp) const {
        return ring(warp) + C::warp_bytes / sizeof(float);
    }
};

/* Merge elements i, i + by, .. of what the block's warps have of a lane.  If other blocks have read it too, leave the
 * result for the last of them to come. */
template <class C>
static __device__ __forceinline__ void merge_lane(const shared_lane &s, const pleat__decode_params &a,
                                                  const block_memory<C> &memory, uint32_t i, uint32_t by) {
    const uint32_t in_rings = s.after ? s.last + 1 : s.last;
    float *left = a.block_parts + (2 * (uint64_t)blockIdx.x + s.before) * pleat__part_floats(C::d, a.view.n_group);
#pragma unroll 1
    for (; i < a.view.n_group * C::d; i += by) {
        merged x = merged_none();
        if (!s.after) x = part_at<C::d>(memory.end_part(s.last), i);
        float most = x.m;
#pragma unroll 4
        for (uint32_t w = s.first; w < in_rings; w++) most = fmaxf(most, memory.ring(w)[i / C::d]);
        merged_raise(x, most);
#pragma unroll 4
        for (uint32_t w = s.first; w < in_rings; w++) merged_add(x, part_at<C::d>(memory.ring(w), i));
        if (s.before || s.after)
            store_part<C::d>(left, x, i);
        else
            store_merged<C::d>(x, a, s.lane, i);
    }
}

/* Four elements of what blocks from, from + by, .. last have left of a lane that begins in block `first`; eight parts
 * are loaded at once. */
template <int D>
static __device__ __forceinline__ merged merge_some(const pleat__decode_params &a, uint32_t first, uint32_t last,
                                                    uint32_t from, uint32_t by, uint32_t element) {
    merged x = merged_none();
#pragma unroll 1
    for (; from <= last; from += 8 * by) {
        merged y[8];
        float most = x.m;
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) {
            const uint32_t b = from + i * by;
            const uint64_t slot = 2 * (uint64_t)b + (b > first);
            y[i] = merged_none();
            if (b <= last) y[i] = load_part<D>(a.block_parts + slot * pleat__part_floats(D, a.view.n_group), element);
        }
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) most = fmaxf(most, y[i].m);
        merged_raise(x, most);
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) merged_add(x, y[i]);
    }
    return x;
}

/* What a block's warps share: where its shares start, and the lanes at its borders, that other blocks have read too:
 * blocks first..last. */
struct block_borders {
    position starts[PLEAT__DECODE_WARPS + 1];
    uint32_t lanes[2], first[2], last[2];
    bool is_last[2]; /* this block came last to the lane at its front border, at its back */
};

/* Merge what many blocks have left of a lane, by all threads: groups take every n_groups'th block and meet in shared
 * memory. */
template <class C>
static __device__ __forceinline__ void merge_many(const pleat__decode_params &a, const block_borders &b, int border,
                                                  float *shared) {
    const uint32_t part_floats = pleat__part_floats(C::d, a.view.n_group), items = a.view.n_group * C::d / 4;
    const uint32_t n_groups = min(blockDim.x / items, blockDim.x / 32); /* a part of each fits the rings: one a warp */
    const uint32_t group = threadIdx.x / items, element = threadIdx.x % items * 4;
    if (group < n_groups)
        store_part<C::d>(
            shared + group * part_floats,
            merge_some<C::d>(a, b.first[border], b.last[border], b.first[border] + group, n_groups, element), element);
    __syncthreads();
    if (group == 0) {
        merged x = merged_none();
        for (uint32_t g = 0; g < n_groups; g++) {
            const merged y = part_at<C::d>(shared + g * part_floats, element);
            merged_raise(x, fmaxf(x.m, y.m));
            merged_add(x, y);
        }
        store_merged<C::d>(x, a, b.lanes[border], element);
    }
    __syncthreads();
}

/* Merge what blocks have left of the lanes at this block's borders to which it came last. */
template <class C>
static __device__ __forceinline__ void merge_blocks(const pleat__decode_params &a, const block_borders &b,
                                                    float *shared) {
    const uint32_t items = a.view.n_group * C::d / 4;
    const bool has_groups = blockDim.x >= 2 * items;
    bool is_many[2];
    for (int i = 0; i < 2; i++) is_many[i] = has_groups && b.last[i] - b.first[i] >= 8;
    for (uint32_t k = threadIdx.x; k < 2 * items; k += blockDim.x) {
        const int i = k >= items;
        const uint32_t element = (i ? k - items : k) * 4;
        if (b.is_last[i] && !is_many[i])
            store_merged<C::d>(merge_some<C::d>(a, b.first[i], b.last[i], b.first[i], 1, element), a, b.lanes[i],
                               element);
    }
    for (int i = 0; i < 2; i++)
        if (b.is_last[i] && is_many[i]) merge_many<C>(a, b, i, shared);
}

/* Merge what the block's warps have of every lane that goes across a border of their shares: groups of threads take
 * lanes in turn. */
template <class C>
static __device__ __forceinline__ void merge_shared(const pleat__decode_params &a, const block_borders &b,
                                                    const block_memory<C> &memory) {
    const uint32_t n_warps = blockDim.x / 32, items = a.view.n_group * C::d / 4;
    const uint32_t n_groups = max(blockDim.x / items, 1), of_group = min(blockDim.x, items);
    const uint32_t group = threadIdx.x / of_group, element = threadIdx.x % of_group * 4;
    uint32_t turn = 0;
    for (uint32_t k = 0; k <= n_warps; k++) {
        if (b.starts[k].tile == 0) continue;
        shared_lane s = {b.starts[k].lane, k > 0 ? k - 1 : 0, k, k == 0, false};
        while (k < n_warps && b.starts[k + 1].lane == s.lane) k++;
        s.after = k == n_warps;
        s.last = s.after ? n_warps - 1 : k;
        if (turn++ % n_groups == group) merge_lane<C>(s, a, memory, element, of_group * 4);
    }
}

/* Count one more block at a lane; how many were there before.  What the block's threads wrote before the barrier that is
 * before this is seen by whoever comes later, and behind its next barrier by its other threads. */
static __device__ __forceinline__ uint32_t arrive(uint32_t *counter) {
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
    return before;
}

/* Merge every lane that goes across a border of a share of the block. */
template <class C>
static __device__ __forceinline__ void merge_lanes(const pleat__decode_params &a, block_borders &b,
                                                   const block_memory<C> &memory) {
    const uint32_t n_warps = blockDim.x / 32;
    merge_shared<C>(a, b, memory);
    const position front = b.starts[0], back = b.starts[n_warps];
    if (front.tile == 0 && back.tile == 0) return;
    __syncthreads();
    if (threadIdx.x < 2) {
        const position at = threadIdx.x ? back : front;
        const bool both = front.tile > 0 && front.lane == back.lane; /* one lane, counted once */
        bool is_last = false;
        if (at.tile > 0 && !(threadIdx.x && both)) {
            is_last = arrive(a.arrivals + at.lane) == b.last[threadIdx.x] - b.first[threadIdx.x];
            if (is_last) a.arrivals[at.lane] = 0;
        }
        b.is_last[threadIdx.x] = is_last;
    }
    __syncthreads();
    merge_blocks<C>(a, b, memory.rings);
}

/* ---- the kernel -------------------------------------------------------------------------------------------- */

/* D: head_dim; formats of high and low side; T: tiles of a step. */
template <int D, int KH, int VH, int KL, int VL, int T> struct decode_config {
    static constexpr int d = D, kh = KH, vh = VH, kl = KL, vl = VL, t = T;
    static constexpr bool one_format = KH == KL && VH == VL;
    static constexpr int high = step_shape<D, KH, VH, T>::bytes, low = step_shape<D, KL, VL, T>::bytes;
    static constexpr int step_bytes = high > low ? high : low;
    /* Steps of the ring, one of which is read while the others are on their way, blocks of a multiprocessor, and warps of
     * a block: what was fastest on an H200, 2026-11-22.  Memory is busy with 100 to 150 KiB on their way to each
     * multiprocessor, and slower with more.  One block begins faster, two hide each other's beginning and end. */
    static constexpr int stages = T == 2 ? 2 : step_bytes > 4000 ? 3 : 4;
    static constexpr bool is_k4v2 = one_format && KH == 4 && VH == 2, is_k8 = one_format && KH == 8 && T == 2;
    static constexpr int resident = KH == 16 || is_k4v2 ? 1 : 2;
    static constexpr int most_of_128 = KH == 16 ? 8 : is_k8 ? 5 : T == 2 && !one_format ? 6 : 16;
    static constexpr int most_warps =
        D == 128 && most_of_128 < PLEAT__DECODE_WARPS / resident ? most_of_128 : PLEAT__DECODE_WARPS / resident;
    static constexpr int warp_bytes = step_bytes * stages;
    static_assert(warp_bytes >= (int)(pleat__part_floats(D, 8 / T) * sizeof(float)), "a part fits a ring");
};

/* Where the warp stands: its ring, and who fills it. */
struct warp_ring {
    uint32_t start, at, before; /* first step, step to add, the one before */
    feeder_run *run;
};

/* Add a run of tiles; the feeder stays `stages` - 1 steps ahead. */
template <class C, int KB, int VB>
static __device__ __forceinline__ void add_run(warp_state<C::d> &st, feeder &f, warp_ring &ring,
                                               const pleat__decode_params &a, const pleat__page_layout &layout,
                                               const tile_run &run, float *logits, int warp_lane) {
    step_context t;
    t.tracked = layout.tracked;
    t.n_group = a.view.n_group;
    t.logits = logits;
    t.logits_stride = a.logits_stride;
    const uint32_t page_tiles = layout.tokens / 16;
    uint32_t tile = run.first % page_tiles, slots = run.n_slots - run.first * 16;
    for (uint32_t left = run.count; left > 0;) {
        pleat__copies_wait<C::stages - 2>();
        __syncwarp();
        feeder_start_step<C>(f, ring.run, a, ring.before, warp_lane);
        uint32_t n = 1;
        if (C::t == 2) {
            n = min(min(left, page_tiles - tile), 2u);
            tile = tile + n == page_tiles ? 0 : tile + n;
        }
        t.at = ring.at;
        t.n_valid = min(slots, 16 * n);
        add_step<C::d, KB, VB, C::t>(st, t, warp_lane);
        ring.before = ring.at;
        ring.at += C::step_bytes;
        if (ring.at == ring.start + C::warp_bytes) ring.at = ring.start;
        left -= n;
        slots -= 16 * n;
        if (t.logits) t.logits += 16 * n;
    }
}

template <class C, int KB>
static __device__ __forceinline__ void set_query(warp_state<C::d> &st, const uint16_t *q, float scale, int warp_lane) {
    if (C::t == 2)
        state_set_query_bytes<C::d, KB>(st, q, scale, warp_lane);
    else
        state_set_query<C::d, KB>(st, q, scale, warp_lane);
}

/* Add the tiles [from, to) of a lane. */
template <class C>
static __device__ __forceinline__ void add_lane(warp_state<C::d> &st, feeder &f, warp_ring &ring,
                                                const pleat__decode_params &a, uint32_t lane,
                                                const pleat__device_lane &l, uint32_t from, uint32_t to,
                                                int warp_lane) {
    const uint32_t head = ((uint32_t)warp_lane >> 2) % (8 / C::t);
    const uint16_t *q = a.q + ((uint64_t)lane * a.view.n_group + head) * C::d;
    if (head >= a.view.n_group) q = NULL;
    float *logits = a.logits ? a.logits + (uint64_t)lane * a.view.n_group * a.logits_stride : NULL;
    const tile_run high = run_of(l, 0, from, to), low = run_of(l, 1, from, to);
    if (high.count > 0) {
        set_query<C, C::kh>(st, q, a.scale, warp_lane);
        add_run<C, C::kh, C::vh>(st, f, ring, a, a.view.layouts[0], high, logits ? logits + high.first * 16 : NULL,
                                 warp_lane);
    }
    if (!C::one_format && low.count > 0) {
        set_query<C, C::kl>(st, q, a.scale, warp_lane);
        if (logits) logits += (tiles_of(l.n_slots[0]) + low.first) * 16;
        add_run<C, C::kl, C::vl>(st, f, ring, a, a.view.layouts[1], low, logits, warp_lane);
    }
}

/* Start i of the layer. */
static __device__ __forceinline__ pleat__share_start load_start(const pleat__share_start *starts, uint32_t i) {
    const uint4 x = __ldg((const uint4 *)(const void *)(starts + i));
    const uint4 y = __ldg((const uint4 *)(const void *)(starts + i) + 1);
    return {x.x, x.y, x.z, {x.w, y.x}, y.y, y.z, y.w};
}

/* Which blocks have read the lane at the block's front border (i = 0) or back: the lane in which share s starts. */
static __device__ __forceinline__ void note_border(block_borders &b, int i, const pleat__share_start &s,
                                                   uint32_t n_warps) {
    b.lanes[i] = s.lane;
    b.first[i] = s.first_share / n_warps;
    b.last[i] = s.last_share / n_warps;
}

template <class C>
static __global__ void __launch_bounds__(C::most_warps * 32, C::resident)
    decode_kernel(const __grid_constant__ pleat__decode_params a) {
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ block_borders borders;
    __shared__ feeder_run runs[C::most_warps];
    const int warp_lane = threadIdx.x & 31;
    const uint32_t warp = threadIdx.x / 32, n_warps = blockDim.x / 32, share = blockIdx.x * n_warps + warp;
    const pleat__share_start first = load_start(a.starts, share), next = load_start(a.starts, share + 1);
    const position start = {first.lane, first.tile}, end = {next.lane, next.tile};
    if (warp_lane == 0) {
        borders.starts[warp] = start;
        if (warp == 0) note_border(borders, 0, first, n_warps);
        if (warp == n_warps - 1) {
            borders.starts[n_warps] = end;
            note_border(borders, 1, next, n_warps);
        }
    }

    warp_ring ring;
    const block_memory<C> memory(shared, a.view.n_group);
    ring.start = ring.at = pleat__shared_address(memory.ring(warp));
    ring.before = ring.start + (C::stages - 1) * C::step_bytes;
    ring.run = runs + warp;
    feeder f = {};
    pleat__device_lane l = {};
    l.row = first.row;
    l.n_slots[0] = first.n_slots[0];
    l.n_slots[1] = first.n_slots[1];
    if (warp_lane == 0) /* the next side is 0 */
        runs[warp] = {end, start.lane, UINT32_MAX, start.tile, l.row, {l.n_slots[0], l.n_slots[1]}, first.page_id};
    __syncwarp();
    if (is_before(start, end)) {
#pragma unroll 1
        for (int i = 0; i < C::stages - 1; i++)
            feeder_start_step<C>(f, ring.run, a, ring.start + i * C::step_bytes, warp_lane);
    }
    warp_state<C::d> st;
    for (uint32_t lane = start.lane; is_before({lane, lane == start.lane ? start.tile : 0}, end); lane++) {
        if (lane > start.lane) l = load_lane(a.lanes, lane);
        uint32_t from, to;
        share_cut(start, end, lane, l, &from, &to);
        state_clear<C::d>(st);
        add_lane<C>(st, f, ring, a, lane, l, from, to, warp_lane);
        state_settle<C::d, C::t>(st);
        const bool goes_on = lane == end.lane;
        if (from == 0 && !goes_on) {
            state_finish<C::d>(st, a, lane, warp_lane);
            continue;
        }
        __syncwarp(); /* the ring is read */
        float *part = goes_on ? memory.ring(warp) : memory.end_part(warp);
        state_leave<C::d>(st, part, C::t == 2 && (warp_lane & 2) ? 0 : a.view.n_group, warp_lane);
    }
    pleat__copies_wait<0>();
    __syncthreads();
    merge_lanes<C>(a, borders, memory);
}

/* A row of a table: formats, head_dim, tiles of a step. */
#define PLEAT__DECODE_ROW(d, kh, vh, kl, vl, t)                                                             \
    {                                                                                                       \
        {{kh, vh}, {kl, vl}}, d, decode_kernel<decode_config<d, kh, vh, kl, vl, t>>, 8 / (t),               \
            decode_config<d, kh, vh, kl, vl, t>::resident, decode_config<d, kh, vh, kl, vl, t>::most_warps, \
            decode_config<d, kh, vh, kl, vl, t>::warp_bytes                                                 \
    }
/* Both head_dims, one tile a step: for groups of up to 8 heads. */
#define PLEAT__DECODE_ROWS_1(kh, vh, kl, vl) \
    PLEAT__DECODE_ROW(64, kh, vh, kl, vl, 1), PLEAT__DECODE_ROW(128, kh, vh, kl, vl, 1)
/* And before them two, for groups of up to 4: 4- and 8-bit keys only. */
#define PLEAT__DECODE_ROWS(kh, vh, kl, vl)                                               \
    PLEAT__DECODE_ROW(64, kh, vh, kl, vl, 2), PLEAT__DECODE_ROW(128, kh, vh, kl, vl, 2), \
        PLEAT__DECODE_ROWS_1(kh, vh, kl, vl)

#endif
