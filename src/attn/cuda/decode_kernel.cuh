/* SPDX-License-Identifier: MIT
 *
 * decode_kernel.cuh: the kernel of decode attention, for any pair of formats: a warp's walk over its share.  decode.h
 * has the picture; decode_tile.cuh does the arithmetic, decode_merge.cuh what comes after.
 *
 *     feeder   walks ahead: starts copies of step t + stages - 1 ...           ids 32 to 64 pages ahead, in registers
 *     ring     some steps of shared memory, the warp's own
 *     state    ... while step t is added: no two warps wait for each other before the end
 *
 * A step is T tiles of a page, T = 1, 2 or 4, or fewer where the page or the run ends.
 */
#ifndef PLEAT_ATTN_CUDA_DECODE_KERNEL_CUH
#define PLEAT_ATTN_CUDA_DECODE_KERNEL_CUH

#include "attn/cuda/decode_merge.cuh"
#include "hw/cuda/launch.cuh"

/* ---- the feeder ---------------------------------------------------------------------------------------------- */

/* Walks a share's steps, page by page. */
struct feeder {
    uint32_t left;             /* tiles of the run that are still to be started */
    uint32_t tile, page_tiles; /* next tile in its page */
    uint32_t page_idx;
    uint32_t ids, ids_next; /* of 32 pages, one a thread of the warp */
    uint32_t meta;          /* meta_source() of the side */
    uint32_t side;
    const uint8_t *page;
    uint64_t policy; /* where there are two formats: pages make room in the level-2 cache for the logits of a step */
};

/* What a feeder needs only where a run or 32 pages end: in shared memory, since registers are what the kernel has too
 * few of.  Written by thread 0 of the warp. */
struct feeder_run {
    position end;              /* of the share */
    uint32_t lane, side, from; /* of the lane, the first tile that is the share's */
    uint32_t row;
    uint32_t n_slots[2];
    uint32_t page_id; /* where the share's first run starts; PLEAT__NO_PAGE from then on */
};

/* The id of page i of the run, for whichever of 32 pages this thread holds. */
static __device__ __forceinline__ uint32_t feeder_load_ids(const feeder &f, const feeder_run &run,
                                                           const pleat__device_view &v, uint32_t page_idx) {
    if (page_idx * f.page_tiles >= tiles_of(run.side ? run.n_slots[1] : run.n_slots[0])) return 0;
    return __ldg(v.ids + (uint64_t)run.row * v.row_len + (run.side ? v.row_len - 1 - page_idx : page_idx));
}

static __device__ __forceinline__ void feeder_set_page(feeder &f, const pleat__device_view &v, uint32_t page_id) {
    const uint32_t id = page_id != PLEAT__NO_PAGE ? page_id : __shfl_sync(PLEAT__ALL_THREADS, f.ids, f.page_idx & 31);
    f.page = v.base + (uint64_t)id * v.page_bytes;
}

/* Begin a run. */
static __device__ __forceinline__ void feeder_begin(feeder &f, const feeder_run &at, const pleat__device_view &v,
                                                    const tile_run &run, int thread) {
    f.left = run.count;
    f.side = at.side;
    f.page_tiles = (at.side ? v.layouts[1].tokens : v.layouts[0].tokens) / 16;
    f.page_idx = run.first / f.page_tiles;
    f.tile = run.first - f.page_idx * f.page_tiles;
    f.ids = feeder_load_ids(f, at, v, (f.page_idx & ~31u) + thread);
    f.ids_next = feeder_load_ids(f, at, v, (f.page_idx & ~31u) + 32 + thread);
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
                                                       int thread) {
    feeder_run r = *shared;
    bool more;
    while ((more = feeder_run_next(r, a.lanes))) {
        pleat__device_lane l = {};
        l.n_slots[0] = r.n_slots[0];
        l.n_slots[1] = r.n_slots[1];
        const uint32_t to = r.lane == r.end.lane ? r.end.tile : tiles_of(l.n_slots[0]) + tiles_of(l.n_slots[1]);
        const tile_run run = run_of(l, (int)r.side, r.from, to);
        if (run.count == 0) continue;
        feeder_begin(f, r, a.view, run, thread);
        f.meta = C::one_format || r.side == 0 ? meta_source<C::d, C::kh, C::vh, C::t>(a.view.layouts[0], thread)
                                              : meta_source<C::d, C::kl, C::vl, C::t>(a.view.layouts[1], thread);
        r.page_id = PLEAT__NO_PAGE;
        break;
    }
    __syncwarp();
    if (thread == 0) *shared = r;
    __syncwarp();
    return more;
}

/* Start copying the next step, if there is one, and commit: one group a call. */
template <class C>
static __device__ __forceinline__ void feeder_start_step(feeder &f, feeder_run *run, const pleat__decode_params &a,
                                                         uint32_t to, int thread) {
    if (f.left > 0 || feeder_next_run<C>(f, run, a, thread)) {
        if (f.tile == f.page_tiles) {
            f.tile = 0;
            f.page_idx++;
            if ((f.page_idx & 31) == 0) {
                f.ids = f.ids_next;
                f.ids_next = feeder_load_ids(f, *run, a.view, f.page_idx + 32 + thread);
            }
            feeder_set_page(f, a.view, PLEAT__NO_PAGE);
        }
        const uint32_t n = C::t == 1 ? 1 : min(min(f.left, f.page_tiles - f.tile), (uint32_t)C::t);
        const copier<!C::one_format> by = {f.policy, thread};
        if (C::one_format || f.side == 0)
            copy_step<C::d, C::kh, C::vh, C::t>(to, f.page, a.view.layouts[0], f.meta, f.tile, n, by);
        else
            copy_step<C::d, C::kl, C::vl, C::t>(to, f.page, a.view.layouts[1], f.meta, f.tile, n, by);
        f.tile += n;
        f.left -= n;
    }
    pleat__copies_commit();
}

/* ---- the kernel -------------------------------------------------------------------------------------------- */

/* D: head_dim; formats of high and low side; T: tiles of a step. */
template <int D, int KH, int VH, int KL, int VL, int T> struct decode_config {
    static constexpr int d = D, kh = KH, vh = VH, kl = KL, vl = VL, t = T;
    static constexpr bool one_format = KH == KL && VH == VL;
    static constexpr int heads = T == 1 ? 8 : 4; /* of a group, at most */
    static constexpr int high = step_shape<D, KH, VH, T>::bytes, low = step_shape<D, KL, VL, T>::bytes;
    static constexpr int step_bytes = high > low ? high : low;
    /* Steps of the ring, one of which is read while the others are on their way, blocks of a multiprocessor, and warps
     * of a block: what was fastest on an H200, 2026-11-22.  With more than 100 to 170 KiB of rings on a multiprocessor
     * memory becomes slower.  One block begins faster, two hide each other's beginning and end. */
    static constexpr int stages = T >= 2 ? 2 : step_bytes > 4000 ? 3 : 4;
    static constexpr bool is_k4v2 = one_format && KH == 4 && VH == 2, is_k8 = one_format && KH == 8 && T == 2;
    static constexpr int resident = KH == 16 || is_k4v2 || T == 4 ? 1 : 2;
    static constexpr int max_of_128 = KH == 16 ? 8 : is_k8 ? 5 : T == 2 && !one_format ? 6 : 16;
    static constexpr int max_warps =
        D == 128 && max_of_128 < PLEAT__DECODE_WARPS / resident ? max_of_128 : PLEAT__DECODE_WARPS / resident;
    static constexpr int warp_bytes = step_bytes * stages;
    static_assert(warp_bytes >= (int)(pleat__part_floats(D, heads) * sizeof(float)), "a part fits a ring");
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
                                               const tile_run &run, float *logits, int thread) {
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
        feeder_start_step<C>(f, ring.run, a, ring.before, thread);
        uint32_t n = 1;
        if (C::t >= 2) {
            n = min(min(left, page_tiles - tile), (uint32_t)C::t);
            tile = tile + n == page_tiles ? 0 : tile + n;
        }
        t.at = ring.at;
        t.n_valid = min(slots, 16 * n);
        add_step<C::d, KB, VB, C::t>(st, t, thread);
        ring.before = ring.at;
        ring.at += C::step_bytes;
        if (ring.at == ring.start + C::warp_bytes) ring.at = ring.start;
        left -= n;
        slots -= 16 * n;
        if (t.logits) t.logits += 16 * n;
    }
}

template <class C, int KB>
static __device__ __forceinline__ void set_query(warp_state<C::d> &st, const uint16_t *q, float scale, int thread) {
    if constexpr (C::t >= 2)
        state_set_query_bytes<C::d, KB>(st, q, scale, thread);
    else
        state_set_query<C::d, KB>(st, q, scale, thread);
}

/* Where a lane's logits are left; NULL: nowhere. */
static __device__ __forceinline__ float *logits_of(const pleat__decode_params &a, uint32_t lane) {
    const uint32_t item = lane / a.view.n_kv_heads;
    if (!a.logits || (a.scored_seqs && a.scored_seqs[item] != a.view.seq_idxs[item])) return NULL;
    return a.logits + (uint64_t)lane * a.view.n_group * a.logits_stride;
}

/* Add the tiles [from, to) of a lane. */
template <class C>
static __device__ __forceinline__ void add_lane(warp_state<C::d> &st, feeder &f, warp_ring &ring,
                                                const pleat__decode_params &a, uint32_t lane,
                                                const pleat__device_lane &l, uint32_t from, uint32_t to, int thread) {
    const uint32_t head = ((uint32_t)thread >> 2) % C::heads;
    const uint16_t *q = a.q + ((uint64_t)lane * a.view.n_group + head) * C::d;
    if (head >= a.view.n_group) q = NULL;
    float *logits = logits_of(a, lane);
    const tile_run high = run_of(l, 0, from, to), low = run_of(l, 1, from, to);
    if (high.count > 0) {
        set_query<C, C::kh>(st, q, a.scale, thread);
        add_run<C, C::kh, C::vh>(st, f, ring, a, a.view.layouts[0], high, logits ? logits + high.first * 16 : NULL,
                                 thread);
    }
    if (!C::one_format && low.count > 0) {
        set_query<C, C::kl>(st, q, a.scale, thread);
        if (logits) logits += (tiles_of(l.n_slots[0]) + low.first) * 16;
        add_run<C, C::kl, C::vl>(st, f, ring, a, a.view.layouts[1], low, logits, thread);
    }
}

/* Start the first steps of a share. */
template <class C>
static __device__ __forceinline__ warp_ring begin_share(feeder &f, feeder_run *run, const pleat__decode_params &a,
                                                        const pleat__share_start &start, position end, uint32_t memory,
                                                        int thread) {
    const warp_ring ring = {memory, memory, memory + (C::stages - 1) * C::step_bytes, run};
    if (thread == 0) { /* the next side is 0 */
        const feeder_run first = {
            end, start.lane, UINT32_MAX, start.tile, start.row, {start.n_slots[0], start.n_slots[1]}, start.page_id};
        *run = first;
    }
    __syncwarp();
    f = {};
    f.policy = pleat__leave_first();
    if (!is_before({start.lane, start.tile}, end)) return ring;
#pragma unroll 1
    for (int i = 0; i < C::stages - 1; i++) feeder_start_step<C>(f, run, a, ring.start + i * C::step_bytes, thread);
    return ring;
}

/* Add the share's lanes, one after the other, and finish them or leave their parts. */
template <class C>
static __device__ __forceinline__ void walk_share(feeder &f, warp_ring &ring, const pleat__decode_params &a,
                                                  const pleat__share_start &first, position end,
                                                  const block_memory<C> &memory, int thread) {
    const position start = {first.lane, first.tile};
    const uint32_t warp = threadIdx.x / 32;
    pleat__device_lane l = {};
    l.row = first.row;
    l.n_slots[0] = first.n_slots[0];
    l.n_slots[1] = first.n_slots[1];
    warp_state<C::d> st;
    for (uint32_t lane = start.lane; is_before({lane, lane == start.lane ? start.tile : 0}, end); lane++) {
        if (lane > start.lane) l = load_lane(a.lanes, lane);
        uint32_t from, to;
        share_cut(start, end, lane, l, &from, &to);
        state_clear<C::d>(st);
        add_lane<C>(st, f, ring, a, lane, l, from, to, thread);
        state_settle<C::d, C::t>(st);
        const bool goes_on = lane == end.lane;
        if (from == 0 && !goes_on) {
            state_finish<C::d>(st, a, lane, thread);
            continue;
        }
        __syncwarp(); /* the ring is read */
        float *part = goes_on ? memory.ring(warp) : memory.end_part(warp);
        state_leave<C::d>(st, part, C::t >= 2 && (thread & 2) ? 0 : a.view.n_group, thread);
    }
}

template <class C>
static __global__ void __launch_bounds__(C::max_warps * 32, C::resident)
    decode_kernel(const __grid_constant__ pleat__decode_params a) {
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ block_borders borders;
    __shared__ feeder_run runs[C::max_warps];
    const int thread = threadIdx.x & 31;
    const uint32_t warp = threadIdx.x / 32, share = blockIdx.x * (blockDim.x / 32) + warp;
    if (!a.reads_ahead) pleat__wait_for_last();
    const pleat__share_start first = load_start(a.starts, share), next = load_start(a.starts, share + 1);
    const position end = {next.lane, next.tile};
    if (thread == 0) note_share(borders, warp, first, next);
    const block_memory<C> memory(shared, a.view.n_group);
    if (end.lane > first.lane) pleat__wait_for_last(); /* the lane's last tile is the share's */
    feeder f;
    warp_ring ring = begin_share<C>(f, runs + warp, a, first, end, pleat__shared_address(memory.ring(warp)), thread);
    pleat__wait_for_last();
    walk_share<C>(f, ring, a, first, end, memory, thread);
    pleat__copies_wait<0>();
    __syncthreads();
    merge_lanes<C>(a, borders, memory);
    pleat__let_next_start(); /* not before: weights that are read ahead would hold up the merging */
}

#endif
