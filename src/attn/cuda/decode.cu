/* SPDX-License-Identifier: MIT
 *
 * decode.cu: what surrounds the kernels of decode attention: which runs for which formats, the schedule that is made on
 * the device, and the attention received.  See decode.h.
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
 * A size of two tiles and two LANE_UNITS at least makes every share start before the next; shares behind the total are
 * empty.
 *
 * Where lanes are about equal, and as many for each block cost no more than an equal share and what merging across
 * blocks costs, every block takes whole lanes, and its warps equal shares of them: then nothing is merged across
 * blocks.
 */
#include "attn/cuda/decode.h"
#include "attn/cuda/decode_share.cuh"
#include "attn/cuda/decode_table.cuh"
#include "attn/cuda/ops.cuh"
#include "hw/cuda/cuda.cuh"

/* In units of 32 bytes, from times on an H200, 2026-11-22 (docs/PERF.md): what a tile costs besides its bytes, a lane
 * besides its tiles, and a block merging with others, in LANE_UNITS: between what it gains with k8v4 and k4v2, and with
 * f16, where 256 equal lanes are dealt out. */
#define TILE_UNITS 1024u
#define LANE_UNITS 1700u
#define MERGE_LANES 21u
#define SCHEDULE_THREADS 1024u
#define RECEIVED_THREADS 128u
#define MOST_LANES (1u << 20)
#define ALIGN_BYTES 256u

/* ---- the plan ------------------------------------------------------------------------------------------- */

/* Kernel i of all tables, or NULL. */
static const pleat__decode_kernel *kernel_at(uint32_t i) {
    typedef const pleat__decode_kernel *(*table_fn)(uint32_t *);
    static const table_fn tables[] = {pleat__decode_kernels_f16,  pleat__decode_kernels_k8,
                                      pleat__decode_kernels_k4,   pleat__decode_kernels_mixed,
                                      pleat__decode_kernels_more, pleat__decode_kernels_rare};
    for (uint32_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        uint32_t n;
        const pleat__decode_kernel *rows = tables[t](&n);
        if (i < n) return rows + i;
        i -= n;
    }
    return NULL;
}

static bool is_format(pleat_format a, pleat_format b) { return a.k_bits == b.k_bits && a.v_bits == b.v_bits; }

/* Only where the formats differ is there a low side: its counts, or NULL. */
static const uint32_t *low_slots(const pleat__device_view *v) {
    return is_format(v->layouts[0].format, v->layouts[1].format) ? NULL : v->n_slots[1];
}

/* The first that fits; UINT32_MAX: none does. */
static uint32_t find_kernel(const pleat__device_view *v) {
    const pleat__page_layout *l = v->layouts;
    const bool two_sides = low_slots(v) != NULL;
    if (two_sides && l[0].head_dim != l[1].head_dim) return UINT32_MAX;
    const pleat__decode_kernel *k;
    for (uint32_t i = 0; (k = kernel_at(i)) != NULL; i++) {
        if (k->head_dim == l[0].head_dim && v->n_group <= k->heads && is_format(k->formats[0], l[0].format) &&
            is_format(k->formats[1], l[two_sides].format))
            return i;
    }
    return UINT32_MAX;
}

static pleat_status check_shape(const pleat__device_view *v, uint32_t seqs_cap, pleat_error *err) {
    const pleat__page_layout *l = v->layouts;
    const uint64_t n_lanes = (uint64_t)seqs_cap * v->n_kv_heads;
    if (v->n_group < 1 || v->n_group > 8)
        return pleat__error_set(err, PLEAT_E_ARG, PLEAT_NOWHERE,
                                "attention on the GPU: %u query heads share a KV head; 1 to 8 can", v->n_group);
    if (n_lanes == 0 || n_lanes > MOST_LANES || v->n_layers == 0)
        return pleat__error_set(err, PLEAT_E_ARG, PLEAT_NOWHERE, "attention on the GPU: %llu lanes of %u layers",
                                (unsigned long long)n_lanes, v->n_layers);
    if (find_kernel(v) == UINT32_MAX)
        return pleat__error_set(
            err, PLEAT_E_ARG, PLEAT_NOWHERE, "attention on the GPU: no kernel for k%uv%u and k%uv%u with head_dim %u",
            l[0].format.k_bits, l[0].format.v_bits, l[1].format.k_bits, l[1].format.v_bits, l[0].head_dim);
    return PLEAT_OK;
}

static uint64_t append(uint64_t *end, uint64_t bytes) {
    const uint64_t off = *end;
    *end = (off + bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    return off;
}

/* Grid, warps and shared memory, and the workspace that follows from them. */
static void lay_out(pleat__device_attn_plan *p, const pleat__decode_kernel *k, uint32_t n_multiprocessors,
                    uint32_t most_smem) {
    const uint64_t lanes_cap = (uint64_t)p->seqs_cap * p->n_kv_heads;
    const uint32_t part_bytes = pleat__part_floats(p->head_dim, p->n_group) * sizeof(float);
    const uint32_t warp_bytes = k->warp_bytes + part_bytes;
    p->n_warps = (most_smem / k->resident - 2048) / warp_bytes; /* a block takes up to 2 KiB besides */
    if (p->n_warps > k->most_warps) p->n_warps = k->most_warps;
    p->smem_bytes = p->n_warps * warp_bytes;
    p->n_blocks = p->schedule == PLEAT__DEVICE_PER_LANE ? (uint32_t)lanes_cap : n_multiprocessors * k->resident;
    const uint64_t n_shares = (uint64_t)p->n_blocks * p->n_warps;
    uint64_t end = 0;
    p->starts_off = append(&end, p->n_layers * (n_shares + 1) * sizeof(pleat__share_start));
    p->lanes_off = append(&end, p->n_layers * lanes_cap * sizeof(pleat__device_lane));
    p->arrivals_off = append(&end, p->n_layers * lanes_cap * sizeof(uint32_t));
    const bool per_lane = p->schedule == PLEAT__DEVICE_PER_LANE;
    p->block_parts_off = append(&end, per_lane ? 0 : (uint64_t)p->n_blocks * 2 * part_bytes);
    p->workspace_bytes = end;
}

/* Costs of tiles and lanes, in units so large that no layer that fits a GPU costs 2^32, however its rows are filled. */
static void set_costs(pleat__device_attn_plan *p, const pleat__device_view *view) {
    uint64_t most = 0; /* of a lane: its tiles */
    for (int side = 0; side < 2; side++) {
        const pleat__page_layout *l = &view->layouts[side];
        const bool meta = l->format.k_bits <= 8;
        p->tile_units[side] =
            (l->k_tile_bytes + l->v_tile_bytes + (meta ? 128 : 0) + (l->tracked ? 64 : 0)) / 32 + TILE_UNITS;
        const uint64_t of_side = (uint64_t)view->row_len * (l->tokens / 16) * p->tile_units[side];
        if (of_side > most) most = of_side;
    }
    const uint64_t total = (uint64_t)p->seqs_cap * p->n_kv_heads * (most + LANE_UNITS);
    uint32_t shift = 0;
    while (total >> shift > UINT32_MAX / 2) shift++;
    const uint32_t up = (1u << shift) - 1; /* no cost is 0 */
    for (int side = 0; side < 2; side++) p->tile_units[side] = (p->tile_units[side] + up) >> shift;
    p->lane_units = (LANE_UNITS + up) >> shift;
}

pleat_status pleat__device_attn_plan_init(pleat__device_attn_plan *plan, const pleat__device_view *view,
                                          uint32_t seqs_cap, pleat__device_schedule_kind schedule, pleat_error *err) {
    PLEAT_TRY(check_shape(view, seqs_cap, err));
    pleat__device_attn_plan p = {};
    p.schedule = schedule;
    p.head_dim = view->layouts[0].head_dim;
    p.n_layers = view->n_layers;
    p.n_kv_heads = view->n_kv_heads;
    p.n_group = view->n_group;
    p.seqs_cap = seqs_cap;
    p.kernel_idx = find_kernel(view);
    set_costs(&p, view);
    int device, n_multiprocessors, most_smem;
    PLEAT_CUDA_TRY(cudaGetDevice(&device), "attention's plan", err);
    PLEAT_CUDA_TRY(cudaDeviceGetAttribute(&n_multiprocessors, cudaDevAttrMultiProcessorCount, device),
                   "attention's plan", err);
    PLEAT_CUDA_TRY(cudaDeviceGetAttribute(&most_smem, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device),
                   "attention's plan", err);
    const pleat__decode_kernel *k = kernel_at(p.kernel_idx);
    lay_out(&p, k, (uint32_t)n_multiprocessors, (uint32_t)most_smem);
    PLEAT_FAIL_IF(p.n_warps == 0, err, PLEAT_E_DEVICE, PLEAT_NOWHERE,
                  "attention's plan: a multiprocessor has %d bytes of shared memory, a warp needs %u", most_smem,
                  k->warp_bytes);
    PLEAT_CUDA_TRY(
        cudaFuncSetAttribute((const void *)k->fn, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)p.smem_bytes),
        "attention's plan", err);
    *plan = p;
    return PLEAT_OK;
}

/* ---- the schedule --------------------------------------------------------------------------------------- */

typedef struct schedule_params {
    pleat__device_view view;
    pleat__share_start *starts;
    pleat__device_lane *lanes;
    uint32_t *arrivals;
    uint32_t lanes_cap;
    uint32_t n_shares, n_warps;
    uint32_t tile_units[2], lane_units;
} schedule_params;

/* Exclusive prefix sum over the block's threads; *total is the sum of all. */
static __device__ uint32_t prefix_of(uint32_t x, uint32_t *total) {
    __shared__ uint32_t sums[33];
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const uint32_t sum = pleat__warp_prefix(x);
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        const uint32_t own = sums[lane], of_warp = pleat__warp_prefix(own);
        sums[lane] = of_warp - own;
        if (lane == 31) sums[32] = of_warp;
    }
    __syncthreads();
    *total = sums[32];
    return sums[warp] + sum - x;
}

static __device__ pleat__device_lane lane_of(const pleat__device_view &v, uint32_t layer, uint32_t lane) {
    const uint32_t place = v.places[lane / v.n_kv_heads];
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

/* The share that starts at `cost` of a lane's.  lanes: of the layer. */
static __device__ pleat__share_start start_at(const schedule_params &a, const pleat__device_lane *lanes,
                                              uint32_t n_lanes, uint32_t lane, uint32_t cost) {
    const pleat__device_lane l = lanes[lane];
    const uint32_t n_high = tiles_of(l.n_slots[0]), n = n_high + tiles_of(l.n_slots[1]);
    const uint32_t of_high = n_high * a.tile_units[0];
    const uint32_t tile = cost < of_high ? cost / a.tile_units[0] : n_high + (cost - of_high) / a.tile_units[1];
    if (tile < n || n == 0) return start_of(a.view, l, lane, n == 0 ? 0 : tile);
    return lane + 1 < n_lanes ? start_of(a.view, lanes[lane + 1], lane + 1, 0) : no_start(n_lanes);
}

/* What all threads of a schedule know. */
typedef struct schedule_sums {
    const pleat__device_lane *lanes; /* of the layer; prefix is set */
    uint32_t n_lanes, total;
    uint32_t size, least;     /* of a share; at least */
    uint32_t lanes_per_block; /* 0: shares of equal size */
} schedule_sums;

/* Lane and rest of the cost `at` < total, from lane `lane` on. */
static __device__ pleat__share_start start_from(const schedule_params &a, const schedule_sums &s, uint32_t lane,
                                                uint32_t at) {
    while (lane + 1 < s.n_lanes && s.lanes[lane + 1].prefix <= at) lane++;
    return start_at(a, s.lanes, s.n_lanes, lane, at - s.lanes[lane].prefix);
}

/* Share w, where blocks take whole lanes. */
static __device__ pleat__share_start whole_start(const schedule_params &a, const schedule_sums &s, uint32_t w) {
    const uint32_t first = w / a.n_warps * s.lanes_per_block, next = min(first + s.lanes_per_block, s.n_lanes);
    if (first >= s.n_lanes || w >= a.n_shares) return no_start(s.n_lanes);
    const uint32_t base = s.lanes[first].prefix, cost = (next < s.n_lanes ? s.lanes[next].prefix : s.total) - base;
    const uint32_t size = max((cost + a.n_warps - 1) / a.n_warps, s.least), at = w % a.n_warps * size;
    if (at < cost) return start_from(a, s, first, base + at);
    return next < s.n_lanes ? start_of(a.view, s.lanes[next], next, 0) : no_start(s.n_lanes);
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
    return start_from(a, s, low * each, (uint32_t)at);
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
    schedule_sums s = {lanes, n_lanes, 0, 0, 2 * (max(a.tile_units[0], a.tile_units[1]) + a.lane_units), 0};
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
    const uint32_t whole = (n_lanes + n_blocks - 1) / n_blocks;
    if ((uint64_t)whole * most <= (uint64_t)fair + MERGE_LANES * a.lane_units) s.lanes_per_block = whole;
    for (uint32_t w = threadIdx.x; w <= a.n_shares; w += blockDim.x)
        a.starts[(uint64_t)layer * (a.n_shares + 1) + w] =
            s.lanes_per_block ? whole_start(a, s, w) : equal_start(a, s, w, prefixes, each);
}

/* One block of threads a lane: its warps take equally many tiles; the last may have none. */
static __global__ void schedule_lanes(const __grid_constant__ schedule_params a) {
    const uint32_t layer = blockIdx.y, lane = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t n_lanes = a.view.n_seqs * a.view.n_kv_heads, shares = a.n_warps;
    pleat__share_start *starts = a.starts + (uint64_t)layer * (a.n_shares + 1);
    const pleat__share_start none = no_start(n_lanes);
    if (lane >= a.lanes_cap) return;
    if (lane + 1 == a.lanes_cap) starts[a.n_shares] = none;
    if (lane >= n_lanes) {
        for (uint32_t w = 0; w < shares; w++) starts[lane * shares + w] = none;
        return;
    }
    pleat__device_lane l = lane_of(a.view, layer, lane), next = l;
    if (lane + 1 < n_lanes) next = lane_of(a.view, layer, lane + 1);
    l.first_share = lane * shares;
    l.last_share = l.first_share + shares - 1;
    a.lanes[(uint64_t)layer * a.lanes_cap + lane] = l;
    a.arrivals[(uint64_t)layer * a.lanes_cap + lane] = 0;
    const uint32_t n = tiles_of(l.n_slots[0]) + tiles_of(l.n_slots[1]), each = (n + shares - 1) / shares;
    for (uint32_t w = 0; w < shares; w++)
        starts[lane * shares + w] =
            w == 0 || w * each < n ? start_of(a.view, l, lane, w * each) : start_of(a.view, next, lane + 1, 0);
}

static pleat_status check_view(const pleat__device_attn_plan *p, const pleat__device_view *v, pleat_error *err) {
    if (v->n_seqs > p->seqs_cap || v->n_layers != p->n_layers || v->n_kv_heads != p->n_kv_heads ||
        v->n_group != p->n_group || v->layouts[0].head_dim != p->head_dim || find_kernel(v) != p->kernel_idx)
        return pleat__error_set(err, PLEAT_E_ARG, PLEAT_NOWHERE,
                                "attention on the GPU: a view that the plan is not for");
    return PLEAT_OK;
}

pleat_status pleat__device_attn_schedule(const pleat__device_attn_plan *plan, const pleat__device_view *view,
                                         void *workspace, pleat__device_stream stream, pleat_error *err) {
    PLEAT_TRY(check_view(plan, view, err));
    if (view->n_seqs == 0) return PLEAT_OK;
    uint8_t *memory = (uint8_t *)workspace;
    schedule_params a = {};
    a.view = *view;
    a.view.n_slots[1] = low_slots(view);
    a.starts = (pleat__share_start *)(void *)(memory + plan->starts_off);
    a.lanes = (pleat__device_lane *)(void *)(memory + plan->lanes_off);
    a.arrivals = (uint32_t *)(void *)(memory + plan->arrivals_off);
    a.lanes_cap = plan->seqs_cap * plan->n_kv_heads;
    a.n_shares = plan->n_blocks * plan->n_warps;
    a.n_warps = plan->n_warps;
    for (int side = 0; side < 2; side++) a.tile_units[side] = plan->tile_units[side];
    a.lane_units = plan->lane_units;
    if (plan->schedule == PLEAT__DEVICE_PER_LANE) {
        const dim3 grid((a.lanes_cap + 255) / 256, plan->n_layers);
        schedule_lanes<<<grid, 256, 0, pleat__cuda_stream(stream)>>>(a);
    } else {
        schedule_shares<<<plan->n_layers, SCHEDULE_THREADS, 0, pleat__cuda_stream(stream)>>>(a);
    }
    return PLEAT_CUDA_LAUNCHED("attention's schedule", err);
}

/* ---- attention ------------------------------------------------------------------------------------------- */

pleat_status pleat__device_attn_decode(const pleat__device_attn_plan *plan, const pleat__device_attn_args *args,
                                       void *workspace, pleat__device_stream stream, pleat_error *err) {
    PLEAT_TRY(check_view(plan, &args->view, err));
    if (args->layer >= plan->n_layers || args->logits_stride % 2 != 0)
        return pleat__error_set(err, PLEAT_E_ARG, PLEAT_NOWHERE,
                                "attention on the GPU: layer %u of %u, logits_stride %llu", args->layer, plan->n_layers,
                                (unsigned long long)args->logits_stride);
    if (args->view.n_seqs == 0) return PLEAT_OK;
    uint8_t *memory = (uint8_t *)workspace;
    const uint64_t n_shares = (uint64_t)plan->n_blocks * plan->n_warps;
    const uint64_t lanes_cap = (uint64_t)plan->seqs_cap * plan->n_kv_heads;
    pleat__decode_params a = {};
    a.view = args->view;
    a.q = args->q;
    a.scale = args->scale;
    a.out = args->out;
    a.lse2 = args->lse2;
    a.logits = args->logits;
    a.logits_stride = args->logits_stride;
    a.starts = (const pleat__share_start *)(void *)(memory + plan->starts_off) + args->layer * (n_shares + 1);
    a.lanes = (const pleat__device_lane *)(void *)(memory + plan->lanes_off) + args->layer * lanes_cap;
    a.arrivals = (uint32_t *)(void *)(memory + plan->arrivals_off) + args->layer * lanes_cap;
    a.block_parts = (float *)(void *)(memory + plan->block_parts_off);
    const bool per_lane = plan->schedule == PLEAT__DEVICE_PER_LANE;
    const uint32_t n_blocks = per_lane ? args->view.n_seqs * plan->n_kv_heads : plan->n_blocks;
    kernel_at(plan->kernel_idx)->fn<<<n_blocks, plan->n_warps * 32, plan->smem_bytes, pleat__cuda_stream(stream)>>>(a);
    return PLEAT_CUDA_LAUNCHED("attention", err);
}

/* ---- the attention received ------------------------------------------------------------------------------ */

typedef struct received_params {
    pleat__device_view view;
    uint32_t layer;
    const float *lse2, *logits;
    uint64_t logits_stride;
} received_params;

/* What four slots from `s` on received, by the logits' count: the largest over the group. */
static __device__ float4 received_by(const received_params &a, const float *logits, const float lse2[8], uint32_t s) {
    float most[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
#pragma unroll
    for (uint32_t g = 0; g < 8; g++) {
        if (g >= a.view.n_group) break;
        const float2 *at = (const float2 *)(const void *)(logits + g * a.logits_stride + s);
        const float2 x = at[0], y = at[1];
        const float of[4] = {x.x, x.y, y.x, y.y};
#pragma unroll
        for (int i = 0; i < 4; i++) most[i] = of[i] - lse2[g] > most[i] ? of[i] - lse2[g] : most[i];
    }
    return make_float4(power_of_two(most[0]), power_of_two(most[1]), power_of_two(most[2]), power_of_two(most[3]));
}

/* Add them to the scores of slots s..s+3 of a side, as far as they are in use. */
static __device__ void add_to_scores(const pleat__device_view &v, uint64_t row, uint32_t side, uint32_t s, uint32_t n,
                                     float4 received) {
    const pleat__page_layout &l = side ? v.layouts[1] : v.layouts[0];
    const uint32_t i = s / l.tokens, id = v.ids[row * v.row_len + (side ? v.row_len - 1 - i : i)];
    float *scores = (float *)(void *)(v.base + (uint64_t)id * v.page_bytes + l.score_off) + (s - i * l.tokens);
    const float of[4] = {received.x, received.y, received.z, received.w};
    if (s + 4 <= n) {
        float4 *four = (float4 *)(void *)scores, x = *four;
        *four = make_float4(x.x + of[0], x.y + of[1], x.z + of[2], x.w + of[3]);
        return;
    }
    for (uint32_t k = 0; k < n - s; k++) scores[k] += of[k];
}

/* Grid: lanes, and stretches of slots in turn, four a thread, of both sides as the logits have them. */
static __global__ void __launch_bounds__(RECEIVED_THREADS) add_received(const __grid_constant__ received_params a) {
    const pleat__device_view &v = a.view;
    const uint32_t lane = blockIdx.x, step = gridDim.y * RECEIVED_THREADS * 4;
    const uint64_t row = pleat__device_row(&v, v.places[lane / v.n_kv_heads], a.layer, lane % v.n_kv_heads);
    const float *logits = a.logits + (uint64_t)lane * v.n_group * a.logits_stride;
    const uint32_t n_high = v.n_slots[0][row], n_low = v.n_slots[1] ? v.n_slots[1][row] : 0;
    const uint32_t low_from = tiles_of(n_high) * 16;
    float lse2[8];
#pragma unroll
    for (uint32_t g = 0; g < 8; g++) lse2[g] = g < v.n_group ? a.lse2[(uint64_t)lane * v.n_group + g] : 0;
    for (uint32_t s = (blockIdx.y * RECEIVED_THREADS + threadIdx.x) * 4; s < low_from + n_low; s += step) {
        const uint32_t side = s >= low_from, slot = side ? s - low_from : s, n = side ? n_low : n_high;
        const pleat__page_layout &l = side ? v.layouts[1] : v.layouts[0];
        if (slot >= n || !l.tracked || l.n_scores != 1) continue;
        add_to_scores(v, row, side, slot, n, received_by(a, logits, lse2, s));
    }
}

pleat_status pleat__device_attn_received(const pleat__device_attn_args *args, pleat__device_stream stream,
                                         pleat_error *err) {
    if (!args->logits || !args->lse2 || args->layer >= args->view.n_layers)
        return pleat__error_set(err, PLEAT_E_ARG, PLEAT_NOWHERE, "attention received: no logits, or no such layer");
    if (args->view.n_seqs == 0) return PLEAT_OK;
    received_params a = {};
    a.view = args->view;
    a.view.n_slots[1] = low_slots(&args->view);
    a.layer = args->layer;
    a.lse2 = args->lse2;
    a.logits = args->logits;
    a.logits_stride = args->logits_stride;
    const dim3 grid(args->view.n_seqs * args->view.n_kv_heads, 8);
    add_received<<<grid, RECEIVED_THREADS, 0, pleat__cuda_stream(stream)>>>(a);
    return PLEAT_CUDA_LAUNCHED("attention received", err);
}
