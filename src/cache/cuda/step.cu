/* SPDX-License-Identifier: MIT
 *
 * step.cu: one token more in every lane of the batch.
 *
 *     grow      a thread for each lane: its slot for the new token, which counts from now on.  The last block to finish
 *               counts the token in n_tokens, which all others have read
 *     append    a warp for each lane of a layer: one owner reads, changes and writes the tile's words
 */
#include "cache/cuda/lanes.cuh"
#include "core/cuda/heads.cuh"
#include "hw/cuda/launch.cuh"

/* ---- grow -------------------------------------------------------------------------------------------- */

#define GROW_THREADS 256

/* Has some sequence of the batch max_tokens?  The same in all threads of a block. */
static __device__ inline bool is_full(const pleat__device_lanes &l) {
    bool full = false;
    for (uint32_t i = threadIdx.x; i < l.pages.n_seqs; i += GROW_THREADS)
        full |= l.n_tokens[l.pages.seq_idxs[i]] >= l.max_tokens;
    return __syncthreads_or(full);
}

/* All blocks have read the lengths: the sequences are one token longer. */
static __device__ inline void count_tokens(const pleat__device_lanes &l, bool fits, bool full) {
    for (uint32_t i = threadIdx.x; i < l.pages.n_seqs && fits; i += GROW_THREADS) l.n_tokens[l.pages.seq_idxs[i]]++;
    if (threadIdx.x > 0) return;
    l.step->refused = !fits;
    l.step->n_full += full && !pleat__device_refused(&l.pages);
    l.step->n_blocks = 0;
}

/* 1 + the slot of a ring's oldest token, once it is full; 0: it is not, or the lane is no ring. */
static __device__ inline uint32_t next_hole(const pleat__device_lanes &l, uint32_t row, uint32_t n_tokens) {
    const uint32_t ring = l.windows ? l.windows[row % l.pages.rows_per_seq / l.n_kv_heads] : 0;
    return ring && n_tokens >= ring ? n_tokens % ring + 1 : 0;
}

/* The lane's slot for its token is in use from now on. */
static __device__ inline pleat__device_new_token take_slot(const pleat__device_lanes &l, uint32_t row) {
    const uint32_t hole = l.pages.hole[row], slot = hole ? hole - 1 : l.pages.n_slots[0][row];
    const pleat__device_slot at = pleat__device_slot_at(&l.pages, row, 0, slot);
    const uint32_t position = l.n_tokens[row / l.pages.rows_per_seq];
    l.pages.hole[row] = next_hole(l, row, position + 1);
    if (!hole) l.pages.n_slots[0][row] = slot + 1;
    return pleat__device_new_token{at.page, at.slot, hole ? slot | PLEAT__NEW_SLOT_IS_HOLE : slot, position};
}

/* The tables have a row more than there are sequences. */
static __device__ inline uint32_t empty_seq(const pleat__device_lanes &l) {
    return l.pages.n_rows / l.pages.rows_per_seq - 1;
}

static __global__ void __launch_bounds__(GROW_THREADS) grow(const __grid_constant__ pleat__device_lanes l) {
    __shared__ bool is_last;
    const uint32_t lane = blockIdx.x * GROW_THREADS + threadIdx.x;
    const bool full = is_full(l), fits = !full && !pleat__device_refused(&l.pages);
    if (lane < l.pages.n_seqs) {
        const uint32_t seq_idx = l.pages.seq_idxs[lane];
        const bool is_scored = fits && pleat__device_step_is_counted(l.policy, l.n_tokens[seq_idx] + 1);
        l.scored_seqs[lane] = is_scored ? seq_idx : empty_seq(l);
    }
    if (lane < l.pages.n_seqs * l.pages.rows_per_seq) {
        pleat__device_new_token token = {0, 0, PLEAT__NO_NEW_SLOT, 0};
        if (fits) token = take_slot(l, pleat__device_lane_row(&l.pages, lane));
        *(uint4 *)(void *)&l.fresh[lane] = make_uint4(token.page, token.at, token.slot, token.position);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        is_last = atomicAdd(&l.step->n_blocks, 1) + 1 == gridDim.x;
    }
    __syncthreads();
    if (is_last) count_tokens(l, fits, full);
}

/* ---- append ------------------------------------------------------------------------------------------ */

#define STEP_WARPS 4

/* A lane's new token into its slot: by a warp. */
template <int D>
static __device__ inline void store_token(const pleat__device_lanes &l, const pleat__device_new_token &to,
                                          uint2 key_row, uint2 value_row) {
    if (to.slot == PLEAT__NO_NEW_SLOT) return;
    const pleat__page_layout &layout = l.layouts[0];
    uint8_t *page = l.base + to.page * l.page_bytes;
    const bool is_hole = to.slot & PLEAT__NEW_SLOT_IS_HOLE;
    if (!is_hole && to.at % PLEAT__TILE == 0) pleat__device_clear_tile(layout, page, to.at / PLEAT__TILE);
    pleat__device_put_value<D>(layout, page, to.at, pleat__device_quad_of(value_row), pleat__device_in_first_team<D>());
    pleat__device_put_key<D>(layout, page, to.at, pleat__device_quad_of(key_row), pleat__device_in_first_team<D>());
    if (layout.tracked && threadIdx.x % 32 == 0) pleat__device_track(layout, page, to.at, to.position);
}

/* Of a layer's KV head: index among the batch's lanes. */
static __device__ inline uint32_t lane_of(const pleat__device_lanes &l, uint32_t item, uint32_t layer, uint32_t head) {
    return item * l.pages.rows_per_seq + layer * l.n_kv_heads + head;
}

template <int D>
static __global__ void __launch_bounds__(STEP_WARPS * 32)
    append(const __grid_constant__ pleat__device_lanes l, uint32_t layer, const uint2 *k, const uint2 *v) {
    const uint32_t unit = blockIdx.x * STEP_WARPS + threadIdx.x / 32, item = unit / l.n_kv_heads;
    if (item >= l.pages.n_seqs) return;
    const uint64_t from = (uint64_t)unit * (D / 4) + pleat__device_team_thread<D>();
    const uint2 key_row = k[from], value_row = v[from]; /* on their way while the slot is asked for */
    store_token<D>(l, pleat__device_token_of(l, lane_of(l, item, layer, unit % l.n_kv_heads)), key_row, value_row);
}

/* A warp a query head, and a warp a KV head, which makes key and value in shared memory.  The next kernel, attention, may
 * start once the last one is waited for, so that what came before that is seen there without waiting. */
template <int D>
static __global__ void __launch_bounds__(STEP_WARPS * 32)
    append_heads(const __grid_constant__ pleat__device_lanes l, uint32_t layer,
                 const __grid_constant__ pleat_device_cache_heads h, uint32_t n_group, __half *q) {
    __shared__ __align__(8) __half rows[STEP_WARPS][2][D];
    const uint32_t n_q_heads = l.n_kv_heads * n_group, n_warps = n_q_heads + l.n_kv_heads;
    const uint32_t at = blockIdx.x * STEP_WARPS + threadIdx.x / 32, item = at / n_warps, in_item = at % n_warps;
    pleat__wait_for_last();
    pleat__let_next_start();
    if (item >= l.pages.n_seqs) return;
    const bool is_q = in_item < n_q_heads;
    const uint32_t head = is_q ? in_item : in_item - n_q_heads;
    const pleat__device_new_token to = pleat__device_token_of(l, lane_of(l, item, layer, is_q ? head / n_group : head));
    const float *from = h.qkv + (uint64_t)item * (n_q_heads + 2 * l.n_kv_heads) * D;
    if (is_q) {
        const pleat__head_place place = {0, head, D, to.position};
        pleat__make_head<D / 64>(h, place, from + head * D, q + ((uint64_t)item * n_q_heads + head) * D);
        return;
    }
    __half(*mine)[D] = rows[threadIdx.x / 32];
    const pleat__head_place key = {1, head, D, to.position}, value = {2, head, D, to.position};
    pleat__make_head<D / 64>(h, key, from + (n_q_heads + head) * D, mine[0]);
    pleat__make_head<D / 64>(h, value, from + (n_q_heads + l.n_kv_heads + head) * D, mine[1]);
    __syncwarp();
    const uint32_t t = pleat__device_team_thread<D>();
    store_token<D>(l, to, ((const uint2 *)(const void *)mine[0])[t], ((const uint2 *)(const void *)mine[1])[t]);
}

/* ---- launchers ----------------------------------------------------------------------------------------- */

static uint32_t blocks_for(uint64_t n, uint32_t each) { return (uint32_t)((n + each - 1) / each); }

extern "C" pleat_status pleat__device_lanes_grow(const pleat__device_lanes *l, pleat__device_stream stream,
                                                 pleat_error *err) {
    const uint32_t n_blocks = blocks_for((uint64_t)l->pages.n_seqs * l->pages.rows_per_seq, GROW_THREADS);
    grow<<<n_blocks, GROW_THREADS, 0, pleat__cuda_stream(stream)>>>(*l);
    return PLEAT_CUDA_LAUNCHED("counting a step's tokens", err);
}

extern "C" pleat_status pleat__device_lanes_append(const pleat__device_lanes *l, uint32_t layer, const void *k,
                                                   const void *v, pleat__device_stream stream, pleat_error *err) {
    const uint32_t n_blocks = blocks_for((uint64_t)l->pages.n_seqs * l->n_kv_heads, STEP_WARPS);
    const uint2 *keys = (const uint2 *)k, *values = (const uint2 *)v;
    if (l->head_dim == 128)
        append<128><<<n_blocks, STEP_WARPS * 32, 0, pleat__cuda_stream(stream)>>>(*l, layer, keys, values);
    else
        append<64><<<n_blocks, STEP_WARPS * 32, 0, pleat__cuda_stream(stream)>>>(*l, layer, keys, values);
    return PLEAT_CUDA_LAUNCHED("storing a step's tokens", err);
}

extern "C" pleat_status pleat__device_lanes_append_heads(const pleat__device_lanes *l, uint32_t layer,
                                                         const pleat_device_cache_heads *heads, uint32_t n_group,
                                                         uint16_t *q, pleat__device_stream stream, pleat_error *err) {
    const uint32_t n_blocks = blocks_for((uint64_t)l->pages.n_seqs * l->n_kv_heads * (n_group + 1), STEP_WARPS);
    pleat__launch(l->head_dim == 128 ? append_heads<128> : append_heads<64>, n_blocks, STEP_WARPS * 32, 0, stream, *l,
                  layer, *heads, n_group, (__half *)(void *)q);
    return PLEAT_CUDA_LAUNCHED("storing a step's tokens", err);
}

/* ---- telling ------------------------------------------------------------------------------------------- */

static __global__ void tell(const pleat__device_pool *pool, const pleat__device_step_state *step,
                            pleat__device_counters *out) {
    const pleat__device_counters now = {*pool, *step};
    *out = now;
}

extern "C" pleat_status pleat__device_lanes_tell(const pleat__device_lanes *l, pleat__device_counters *out,
                                                 pleat__device_stream stream, pleat_error *err) {
    tell<<<1, 1, 0, pleat__cuda_stream(stream)>>>(l->pages.pool, l->step, out);
    return PLEAT_CUDA_LAUNCHED("telling what a step left", err);
}
