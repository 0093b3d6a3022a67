/* SPDX-License-Identifier: MIT
 *
 * decode_pieces.cuh: the kernel of decode attention where lanes are cut by their own lengths, so that no bit of a lane
 * depends on the others.
 *
 *     lane 0 |hhhhhhhh|hhhhllll|l  lane 1 |hhl  lane 2 |hhhhhhhh|hhhhhhhh|...      pieces, of whole steps
 *     block         0          |           1         |           2                 as many as cost about as much
 *
 * A piece's warps have equally many steps of it, in order, and their parts are merged in this order; so are pieces' parts, by
 * the block that leaves the lane last.  Which blocks have the pieces depends on the batch, and changes no bit.
 */
#ifndef PLEAT_ATTN_CUDA_DECODE_PIECES_CUH
#define PLEAT_ATTN_CUDA_DECODE_PIECES_CUH

#include "attn/cuda/decode_kernel.cuh"

/* A piece, and what a warp has of it: tiles [from, to) of the lane.  Of few steps the last warps have none. */
struct piece_cut {
    pleat__device_lane l;
    uint32_t n_pieces, n_warps; /* of the lane; that have tiles */
    uint32_t from, to;
};

template <class C>
static __device__ __forceinline__ piece_cut cut_piece(const pleat__decode_params &a, const pleat__piece_place &at) {
    const uint32_t n_warps = blockDim.x / 32, warp = threadIdx.x / 32;
    piece_cut cut;
    cut.l = load_lane(a.lanes, at.lane);
    const uint32_t n_tiles = tiles_of(cut.l.n_slots[0]) + tiles_of(cut.l.n_slots[1]);
    const uint32_t each = tiles_of_piece(a.pieces, C::t, n_tiles), first = at.piece * each;
    const uint32_t end = min(first + each, n_tiles), n_steps = (end - first + C::t - 1) / C::t;
    cut.n_pieces = max((n_tiles + each - 1) / each, 1);
    cut.n_warps = min(n_warps, n_steps);
    cut.from = min(first + (n_steps >= n_warps ? n_steps * warp / n_warps : warp) * C::t, end);
    cut.to = min(first + (n_steps >= n_warps ? n_steps * (warp + 1) / n_warps : warp + 1) * C::t, end);
    return cut;
}

/* Start a warp's first steps of a piece. */
template <class C>
static __device__ __forceinline__ warp_ring begin_piece(feeder &f, feeder_run *run, const pleat__decode_params &a,
                                                        const pleat__piece_place &at, const piece_cut &cut,
                                                        uint32_t memory, int thread) {
    const pleat__share_start start = {at.lane, cut.from, cut.l.row,     {cut.l.n_slots[0], cut.l.n_slots[1]},
                                      0,       0,        PLEAT__NO_PAGE};
    return begin_share<C>(f, run, a, start, {at.lane, cut.to}, memory, thread);
}

/* Merge what the block's warps have of a piece: the lane's output, if it is all of the lane, or a part. */
template <class C>
static __device__ __forceinline__ void merge_piece(const pleat__decode_params &a, const pleat__piece_place &at,
                                                   const piece_cut &cut, const block_memory<C> &memory) {
    float *left =
        a.block_parts + ((uint64_t)at.lane * a.pieces.most + at.piece) * pleat__part_floats(C::d, a.view.n_group);
#pragma unroll 1
    for (uint32_t i = threadIdx.x * 4; i < a.view.n_group * C::d; i += blockDim.x * 4) {
        merged x = merged_none();
        float most = x.m;
#pragma unroll 4
        for (uint32_t w = 0; w < cut.n_warps; w++) most = fmaxf(most, memory.end_part(w)[i / C::d]);
        merged_raise(x, most);
#pragma unroll 4
        for (uint32_t w = 0; w < cut.n_warps; w++) merged_add(x, part_at<C::d>(memory.end_part(w), i));
        if (cut.n_pieces == 1)
            store_merged<C::d>(x, a, at.lane, i);
        else
            store_part<C::d>(left, x, i);
    }
}

/* Count `n` pieces of a lane as left; whoever has the last merges all. */
template <class C>
static __device__ __forceinline__ void leave_pieces(const pleat__decode_params &a, uint32_t lane, uint32_t n,
                                                    uint32_t n_pieces, bool *is_last) {
    if (threadIdx.x == 0) {
        *is_last = arrive(a.arrivals + lane, n) + n == n_pieces;
        if (*is_last) a.arrivals[lane] = 0;
    }
    __syncthreads();
    if (!*is_last) return;
    const float *parts = a.block_parts + (uint64_t)lane * a.pieces.most * pleat__part_floats(C::d, a.view.n_group);
#pragma unroll 1
    for (uint32_t i = threadIdx.x * 4; i < a.view.n_group * C::d; i += blockDim.x * 4)
        store_merged<C::d>(merge_some<C::d>(a, parts, n_pieces, i), a, lane, i);
}

/* A block has pieces one after the other: the next one's first steps are under way while one is merged. */
template <class C>
static __global__ void __launch_bounds__(C::max_warps * 32, C::resident)
    pieces_kernel(const __grid_constant__ pleat__decode_params a) {
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ feeder_run runs[C::max_warps];
    __shared__ bool is_last;
    const int thread = threadIdx.x & 31;
    const uint32_t warp = threadIdx.x / 32;
    const block_memory<C> memory(shared, a.view.n_group);
    const uint32_t ring_at = pleat__shared_address(memory.ring(warp));
    if (!a.reads_ahead) pleat__wait_for_last();
    pleat__piece_place at = a.places[blockIdx.x];
    const pleat__piece_place end = a.places[blockIdx.x + 1];
    if (at.lane == end.lane && at.piece == end.piece) return;
    piece_cut cut = cut_piece<C>(a, at);
    if (at.piece + 1 == cut.n_pieces) pleat__wait_for_last(); /* the lane's last tile is the piece's */
    feeder f;
    warp_ring ring = begin_piece<C>(f, runs + warp, a, at, cut, ring_at, thread);
    pleat__wait_for_last();
    for (uint32_t n_left = 1;; n_left++) {
        const pleat__piece_place now = at;
        const uint32_t n_pieces = cut.n_pieces;
        {
            warp_state<C::d> st;
            state_clear<C::d>(st);
            add_lane<C>(st, f, ring, a, at.lane, cut.l, cut.from, cut.to, thread);
            state_settle<C::d, C::t>(st);
            state_leave<C::d>(st, memory.end_part(warp), C::t >= 2 && (thread & 2) ? 0 : a.view.n_group, thread);
        }
        const piece_cut own = cut;
        if (++at.piece == n_pieces) at = {at.lane + 1, 0};
        const bool more = at.lane != end.lane || at.piece != end.piece;
        if (more) {
            cut = cut_piece<C>(a, at);
            __syncwarp(); /* the ring is read */
            ring = begin_piece<C>(f, runs + warp, a, at, cut, ring_at, thread);
        }
        __syncthreads();
        merge_piece<C>(a, now, own, memory);
        __syncthreads();
        if (n_pieces > 1 && (!more || at.lane != now.lane)) leave_pieces<C>(a, now.lane, n_left, n_pieces, &is_last);
        if (!more) break;
        if (at.lane != now.lane) n_left = 0;
    }
    pleat__copies_wait<0>();
    pleat__let_next_start();
}

#endif
