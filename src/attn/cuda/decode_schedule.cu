/* SPDX-License-Identifier: MIT
 *
 * decode_schedule.cu: where each warp's share of a layer's lanes starts, as the lanes are when this runs.  See
 * decode.h.
 *
 * The schedule of a layer, by one block.  A lane costs its tiles, and a little more for its query and output.  What a
 * tile takes a warp hardly depends on its bytes: it waits for memory, which all warps share:
 *
 *     cost(lane) = sum over tiles of (bytes/32 + TILE_UNITS) + LANE_UNITS      prefix(lane) = sum of those before
 *     share w    = costs [w*size, (w+1)*size)                                  size = total / shares, rounded up
 *
 * where a unit is 32 bytes, or, in caches whose rows could hold more than 2^31 of them in a layer, as many as it takes:
 * sums are of 32 bits.
 *
 * A share starts with the tile in which w*size falls, or with the next lane, if it falls in a lane's last LANE_UNITS.
 * A size of two tiles, and of a kernel's step, and two LANE_UNITS at least makes every share start before the next;
 * shares behind the total are empty.
 *
 * Where lanes are few and about equal, each takes whole blocks, and its warps equally many whole steps of the kernel: so
 * no block has two lanes, and no step is cut in two.
 *
 * Where lanes are about equal, every block may take whole lanes, and its warps equal shares of them, which begin with a
 * step: then nothing is
 * merged across blocks.  It does if as many for each block cost no more than an equal share and what merging across
 * blocks costs.
 */
#include "attn/cuda/decode.h"
#include "attn/cuda/decode_share.cuh"
#include "hw/cuda/cuda.cuh"
#include "hw/cuda/warp.cuh"

/* What a block merging with others costs, in lane_units, on an H200, 2026-11-22 (docs/PERF.md): between what it gains
 * with k8v4 and k4v2, and with f16, where 256 equal lanes are dealt out. */
#define MERGE_LANES 21u
/* Lanes take whole blocks if none of these has more than a fair share and so many-th of it. */
#define SPLIT_SLACK 8u
/* What a piece costs beside its tiles, in tiles. */
#define PIECE_TILES 4u
#define SCHEDULE_THREADS 1024u

typedef struct schedule_params {
    pleat__device_view view;
    pleat__share_start *starts;
    pleat__device_lane *lanes;
    uint32_t *arrivals;
    uint32_t lanes_cap;
    uint32_t n_shares, n_warps;
    uint32_t step_tiles; /* of the kernel's step */
    pleat__pieces pieces;
    pleat__piece_place *places;
    uint32_t n_blocks, n_blocks_cap; /* of the batch; of the plan */
    uint32_t tile_units[2], lane_units;
} schedule_params;

/* Exclusive prefix sum over the block's threads; *total is the sum of all. */
static __device__ uint32_t prefix_of(uint32_t x, uint32_t *total) {
    __shared__ uint32_t sums[33];
    const uint32_t thread = threadIdx.x & 31, warp = threadIdx.x / 32;
    const uint32_t sum = pleat__warp_prefix(x);
    if (thread == 31) sums[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        const uint32_t own = sums[thread], of_warp = pleat__warp_prefix(own);
        sums[thread] = of_warp - own;
        if (thread == 31) sums[32] = of_warp;
    }
    __syncthreads();
    *total = sums[32];
    return sums[warp] + sum - x;
}

static __device__ pleat__device_lane lane_of(const pleat__device_view &v, uint32_t layer, uint32_t lane) {
    const uint32_t place = v.seq_idxs[lane / v.n_kv_heads];
    pleat__device_lane l = {};
    l.row = (uint32_t)pleat__device_row(&v, place, layer, lane % v.n_kv_heads);
    for (int side = 0; side < 2; side++) l.n_slots[side] = v.n_slots[side] ? v.n_slots[side][l.row] : 0;
    return l;
}

static __device__ uint32_t tiles_cost(const schedule_params &a, const pleat__device_lane &l) {
    return tiles_of(l.n_slots[0]) * a.tile_units[0] + tiles_of(l.n_slots[1]) * a.tile_units[1];
}

/* The page of a lane's tile, counted through both sides. */
static __device__ uint32_t page_of(const pleat__device_view &v, const pleat__device_lane &l, uint32_t tile) {
    const uint32_t n_high = tiles_of(l.n_slots[0]);
    const uint32_t *row = v.ids + (uint64_t)l.row * v.row_len;
    if (tile < n_high) return row[tile / (v.layouts[0].tokens / 16)];
    if (l.n_slots[1] == 0) return PLEAT__NO_PAGE;
    return row[v.row_len - 1 - (tile - n_high) / (v.layouts[1].tokens / 16)];
}

/* A share behind all lanes. */
static __device__ pleat__share_start no_start(uint32_t n_lanes) {
    return {n_lanes, 0, 0, {0, 0}, 0, 0, PLEAT__NO_PAGE};
}

/* A share that starts at a tile of a lane. */
static __device__ pleat__share_start start_of(const pleat__device_view &v, const pleat__device_lane &l, uint32_t lane,
                                              uint32_t tile) {
    return {lane, tile, l.row, {l.n_slots[0], l.n_slots[1]}, l.first_share, l.last_share, page_of(v, l, tile)};
}

/* The share that starts at `cost` of a lane's, or before it, at a multiple of step tiles.  lanes: of the layer. */
static __device__ pleat__share_start start_at(const schedule_params &a, const pleat__device_lane *lanes,
                                              uint32_t n_lanes, uint32_t lane, uint32_t cost, uint32_t step) {
    const pleat__device_lane l = lanes[lane];
    const uint32_t n_high = tiles_of(l.n_slots[0]), n = n_high + tiles_of(l.n_slots[1]);
    const uint32_t of_high = n_high * a.tile_units[0];
    const uint32_t tile = cost < of_high ? cost / a.tile_units[0] : n_high + (cost - of_high) / a.tile_units[1];
    if (tile < n || n == 0) return start_of(a.view, l, lane, n == 0 ? 0 : tile / step * step);
    return lane + 1 < n_lanes ? start_of(a.view, lanes[lane + 1], lane + 1, 0) : no_start(n_lanes);
}

/* What all threads of a schedule know. */
typedef struct schedule_sums {
    const pleat__device_lane *lanes; /* of the layer; prefix is set */
    uint32_t n_lanes, total;
    uint32_t size, least;     /* of a share; at least */
    uint32_t lanes_per_block; /* 0, and so blocks_per_lane: shares of equal size */
    uint32_t blocks_per_lane;
} schedule_sums;

/* Lane and rest of the cost `at` < total, from lane `lane` on. */
static __device__ pleat__share_start start_from(const schedule_params &a, const schedule_sums &s, uint32_t lane,
                                                uint32_t at, uint32_t step) {
    while (lane + 1 < s.n_lanes && s.lanes[lane + 1].prefix <= at) lane++;
    return start_at(a, s.lanes, s.n_lanes, lane, at - s.lanes[lane].prefix, step);
}

/* Share w, where blocks take whole lanes. */
static __device__ pleat__share_start whole_start(const schedule_params &a, const schedule_sums &s, uint32_t w) {
    const uint32_t first = w / a.n_warps * s.lanes_per_block, next = min(first + s.lanes_per_block, s.n_lanes);
    if (first >= s.n_lanes || w >= a.n_shares) return no_start(s.n_lanes);
    const uint32_t base = s.lanes[first].prefix, cost = (next < s.n_lanes ? s.lanes[next].prefix : s.total) - base;
    const uint32_t size = max((cost + a.n_warps - 1) / a.n_warps, s.least), at = w % a.n_warps * size;
    if (at < cost) return start_from(a, s, first, base + at, a.step_tiles);
    return next < s.n_lanes ? start_of(a.view, s.lanes[next], next, 0) : no_start(s.n_lanes);
}

/* Tiles of a lane's shares, but for its last ones, where lanes take whole blocks. */
static __device__ uint32_t tiles_of_share(const schedule_params &a, const schedule_sums &s, uint32_t n_tiles) {
    const uint32_t n_shares = s.blocks_per_lane * a.n_warps;
    return max((n_tiles + n_shares * a.step_tiles - 1) / (n_shares * a.step_tiles), 1) * a.step_tiles;
}

/* Share w, where lanes take whole blocks. */
static __device__ pleat__share_start split_start(const schedule_params &a, const schedule_sums &s, uint32_t w) {
    const uint32_t of_lane = s.blocks_per_lane * a.n_warps, lane = w / of_lane;
    if (lane >= s.n_lanes) return no_start(s.n_lanes);
    const pleat__device_lane l = s.lanes[lane];
    const uint32_t n = tiles_of(l.n_slots[0]) + tiles_of(l.n_slots[1]), tile = w % of_lane * tiles_of_share(a, s, n);
    if (tile < n || tile == 0) return start_of(a.view, l, lane, tile);
    return lane + 1 < s.n_lanes ? start_of(a.view, s.lanes[lane + 1], lane + 1, 0) : no_start(s.n_lanes);
}

/* Share w of equal shares.  prefixes: of every thread's first lane; a thread has `each`. */
static __device__ pleat__share_start equal_start(const schedule_params &a, const schedule_sums &s, uint32_t w,
                                                 const uint32_t *prefixes, uint32_t each) {
    const uint64_t at = (uint64_t)w * s.size;
    if (at >= s.total) return no_start(s.n_lanes);
    uint32_t low = 0,
             high = blockDim.x; /* prefixes[low] <= at < prefixes[high]; threads without lanes have the total */
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (prefixes[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return start_from(a, s, low * each, (uint32_t)at, 1);
}

/* A block a layer.  Every thread takes a stretch of lanes, and then shares in turn. */
static __global__ void __launch_bounds__(SCHEDULE_THREADS) schedule_shares(const __grid_constant__ schedule_params a) {
    __shared__ uint32_t prefixes[SCHEDULE_THREADS], most;
    const uint32_t layer = blockIdx.x, n_lanes = a.view.n_seqs * a.view.n_kv_heads;
    pleat__device_lane *lanes = a.lanes + (uint64_t)layer * a.lanes_cap;
    const uint32_t each = (n_lanes + blockDim.x - 1) / blockDim.x;
    const uint32_t from = min(threadIdx.x * each, n_lanes), to = min(from + each, n_lanes);
    uint32_t cost = 0, largest = 0;
    if (threadIdx.x == 0) most = 0;
    for (uint32_t lane = from; lane < to; lane++) {
        pleat__device_lane l = lane_of(a.view, layer, lane);
        l.prefix = cost; /* in the stretch */
        lanes[lane] = l;
        a.arrivals[(uint64_t)layer * a.lanes_cap + lane] = 0;
        const uint32_t of_lane = tiles_cost(a, l) + a.lane_units;
        largest = max(largest, of_lane);
        cost += of_lane;
    }
    schedule_sums s = {
        lanes, n_lanes, 0, 0, max(2, a.step_tiles) * max(a.tile_units[0], a.tile_units[1]) + 2 * a.lane_units, 0, 0};
    const uint32_t prefix = prefix_of(cost, &s.total);
    prefixes[threadIdx.x] = prefix;
    atomicMax(&most, largest);
    s.size = max((s.total + a.n_shares - 1) / a.n_shares, s.least);
    for (uint32_t lane = from; lane < to; lane++) {
        const pleat__device_lane l = lanes[lane];
        const uint32_t tiles = tiles_cost(a, l), begin = prefix + l.prefix;
        const uint32_t first = l.n_slots[0] ? a.tile_units[0] : l.n_slots[1] ? a.tile_units[1] : a.lane_units;
        lanes[lane].prefix = begin;
        lanes[lane].first_share = (begin + first - 1) / s.size;
        lanes[lane].last_share = (begin + max(tiles, first) - 1) / s.size;
    }
    __syncthreads();
    const uint32_t n_blocks = a.n_shares / a.n_warps, fair = s.total / n_blocks;
    const uint32_t whole = (n_lanes + n_blocks - 1) / n_blocks, blocks = n_blocks / n_lanes;
    if ((uint64_t)whole * most <= (uint64_t)fair + MERGE_LANES * a.lane_units)
        s.lanes_per_block = whole;
    else if (blocks > 1 && most / blocks <= fair + fair / SPLIT_SLACK)
        s.blocks_per_lane = blocks;
    for (uint32_t lane = from; lane < to && s.blocks_per_lane; lane++) {
        const uint32_t n = tiles_of(lanes[lane].n_slots[0]) + tiles_of(lanes[lane].n_slots[1]);
        lanes[lane].first_share = lane * s.blocks_per_lane * a.n_warps;
        lanes[lane].last_share = lanes[lane].first_share + (max(n, 1) - 1) / tiles_of_share(a, s, n);
    }
    __syncthreads();
    for (uint32_t w = threadIdx.x; w <= a.n_shares; w += blockDim.x)
        a.starts[(uint64_t)layer * (a.n_shares + 1) + w] = s.blocks_per_lane   ? split_start(a, s, w)
                                                           : s.lanes_per_block ? whole_start(a, s, w)
                                                                               : equal_start(a, s, w, prefixes, each);
}

/* PER_LANE: a thread a lane, of which warps take equally many tiles.  The last ones may have none: they start with the next
 * lane. */
static __global__ void schedule_lanes(const __grid_constant__ schedule_params a) {
    const uint32_t layer = blockIdx.y, lane = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t n_lanes = a.view.n_seqs * a.view.n_kv_heads;
    pleat__share_start *starts = a.starts + (uint64_t)layer * (a.n_shares + 1), behind = no_start(n_lanes);
    if (lane >= a.lanes_cap) return;
    if (lane + 1 == a.lanes_cap) starts[a.n_shares] = behind;
    if (lane + 1 < n_lanes) behind = start_of(a.view, lane_of(a.view, layer, lane + 1), lane + 1, 0);
    pleat__device_lane l = {};
    uint32_t n_tiles = 0;
    if (lane < n_lanes) {
        l = lane_of(a.view, layer, lane);
        n_tiles = tiles_of(l.n_slots[0]) + tiles_of(l.n_slots[1]);
        l.first_share = lane * a.n_warps;
        l.last_share = l.first_share + a.n_warps - 1;
        a.lanes[(uint64_t)layer * a.lanes_cap + lane] = l;
        a.arrivals[(uint64_t)layer * a.lanes_cap + lane] = 0;
    }
    const uint32_t each = (n_tiles + a.n_warps - 1) / a.n_warps;
    for (uint32_t w = 0; w < a.n_warps; w++)
        starts[lane * a.n_warps + w] =
            lane < n_lanes && (w == 0 || w * each < n_tiles) ? start_of(a.view, l, lane, w * each) : behind;
}

/* What a lane costs, in tiles or pieces. */
typedef struct lane_pieces {
    uint32_t n_tiles, each, n, cost;
} lane_pieces;

static __device__ lane_pieces pieces_of(const schedule_params &a, const pleat__device_lane &l) {
    lane_pieces p;
    p.n_tiles = tiles_of(l.n_slots[0]) + tiles_of(l.n_slots[1]);
    p.each = tiles_of_piece(a.pieces, a.step_tiles, p.n_tiles);
    p.n = max((p.n_tiles + p.each - 1) / p.each, 1);
    p.cost = p.n_tiles + p.n * PIECE_TILES;
    return p;
}

/* FIXED_SPLITS: where the pieces of each block start.  A block a layer; a thread takes a stretch of lanes, and then blocks in
 * turn.  Blocks have a piece each while there are enough; else pieces that cost about as much. */
static __global__ void __launch_bounds__(SCHEDULE_THREADS) schedule_places(const __grid_constant__ schedule_params a) {
    __shared__ uint32_t prefixes[SCHEDULE_THREADS];
    const uint32_t layer = blockIdx.x, n_lanes = a.view.n_seqs * a.view.n_kv_heads;
    pleat__device_lane *lanes = a.lanes + (uint64_t)layer * a.lanes_cap;
    const uint32_t each = (n_lanes + blockDim.x - 1) / blockDim.x;
    const uint32_t from = min(threadIdx.x * each, n_lanes), to = min(from + each, n_lanes);
    uint32_t cost = 0, count = 0, total, n_pieces;
    for (uint32_t lane = from; lane < to; lane++) {
        const pleat__device_lane l = lane_of(a.view, layer, lane);
        lanes[lane] = l;
        a.arrivals[(uint64_t)layer * a.lanes_cap + lane] = 0;
        const lane_pieces p = pieces_of(a, l);
        cost += p.cost;
        count += p.n;
    }
    const uint32_t count_before = prefix_of(count, &n_pieces);
    __syncthreads();
    const uint32_t cost_before = prefix_of(cost, &total);
    const bool by_count = n_pieces <= a.n_blocks;
    prefixes[threadIdx.x] = by_count ? count_before : cost_before;
    __syncthreads();
    for (uint32_t b = threadIdx.x; b <= a.n_blocks; b += blockDim.x) {
        const uint32_t at = by_count ? b : (uint32_t)((uint64_t)total * b / a.n_blocks);
        pleat__piece_place place = {n_lanes, 0};
        if (b < a.n_blocks && at < (by_count ? n_pieces : total)) {
            uint32_t low = 0, high = blockDim.x; /* prefixes[low] <= at < prefixes[high] */
            while (high - low > 1) {
                const uint32_t middle = (low + high) / 2;
                if (prefixes[middle] <= at)
                    low = middle;
                else
                    high = middle;
            }
            uint32_t lane = low * each, rest = at - prefixes[low];
            lane_pieces p = pieces_of(a, lanes[lane]);
            while (rest >= (by_count ? p.n : p.cost)) {
                rest -= by_count ? p.n : p.cost;
                p = pieces_of(a, lanes[++lane]);
            }
            place = {lane, by_count ? rest : (rest + p.each + PIECE_TILES - 1) / (p.each + PIECE_TILES)};
            if (place.piece >= p.n) place = {lane + 1, 0};
        }
        a.places[(uint64_t)layer * (a.n_blocks_cap + 1) + b] = place;
    }
}

pleat_status pleat__device_attn_schedule(const pleat__device_attn_plan *plan, const pleat__device_view *view,
                                         void *workspace, pleat__device_stream stream, pleat_error *err) {
    PLEAT_TRY(pleat__device_attn_check_view(plan, view, err));
    if (view->n_seqs == 0) return PLEAT_OK;
    uint8_t *memory = (uint8_t *)workspace;
    schedule_params a = {};
    a.view = *view;
    a.view.n_slots[1] = pleat__low_slots(view);
    a.starts = (pleat__share_start *)(void *)(memory + plan->starts_off);
    a.lanes = (pleat__device_lane *)(void *)(memory + plan->lanes_off);
    a.arrivals = (uint32_t *)(void *)(memory + plan->arrivals_off);
    a.lanes_cap = plan->seqs_cap * plan->n_kv_heads;
    a.n_shares = plan->n_blocks * plan->n_warps;
    a.n_warps = plan->n_warps;
    for (int side = 0; side < 2; side++) a.tile_units[side] = plan->tile_units[side];
    a.lane_units = plan->lane_units;
    a.step_tiles = plan->step_tiles;
    a.pieces = {plan->n_pieces, plan->piece_tiles};
    a.places = (pleat__piece_place *)(void *)(memory + plan->places_off);
    a.n_blocks = pleat__device_attn_blocks(plan, view->n_seqs);
    a.n_blocks_cap = plan->n_blocks;
    const dim3 lanes((a.lanes_cap + 255) / 256, plan->n_layers);
    switch (plan->schedule) {
        case PLEAT__DEVICE_PER_LANE: schedule_lanes<<<lanes, 256, 0, pleat__cuda_stream(stream)>>>(a); break;
        case PLEAT__DEVICE_FIXED_SPLITS:
            schedule_places<<<plan->n_layers, SCHEDULE_THREADS, 0, pleat__cuda_stream(stream)>>>(a);
            break;
        default: schedule_shares<<<plan->n_layers, SCHEDULE_THREADS, 0, pleat__cuda_stream(stream)>>>(a);
    }
    return PLEAT_CUDA_LAUNCHED("attention's schedule", err);
}
