/* SPDX-License-Identifier: MIT
 *
 * wide.cu: tokens of uniform formats into lanes whose heads have any length, and whose layers may have a window; and
 * back.  What chunk.cu, prompt.cu and step.cu are for heads of 64 and 128.  Rotated tokens of any head go by here.
 *
 *     count     a thread a KV head: slots and hole of a layer's lanes that hold so many tokens
 *     store     a warp a tile of 16 slots and KV head, slot by slot: a prompt, or a chunk behind it
 *     gather    a warp a token and KV head: dequantised, rounded to f16
 *     append    a warp a lane: a step's token
 *
 * Without a window a lane has token i in slot i.  With one of w tokens it is a ring, as cache/keep/ring.c has it: token
 * i stands in slot i % w, and the hole of a full one is the slot of its oldest token, which the next step's takes.
 */
#include "cache/cuda/lanes.cuh"
#include "quant/cuda/wide.cuh"

#define WARPS 4u

/* The layer's window, or as many slots as there can be. */
static __device__ inline uint32_t slots_of(const pleat__device_lanes &l, uint32_t layer) {
    const uint32_t window = l.windows ? l.windows[layer] : 0;
    return window ? window : UINT32_MAX;
}

/* A token's key or value as it is stored, from its row. */
static __device__ inline pleat__device_wide token_of(const pleat__device_lanes &l, const uint2 *row, uint32_t n_quads) {
    pleat__device_wide w = pleat__device_wide_of(row, n_quads);
    if (!l.is_rotated) return w;
    pleat__device_wide_rotate(&w, n_quads);
    pleat__device_wide_clamp(&w);
    return w;
}

/* ---- count --------------------------------------------------------------------------------------------- */

static __global__ void count(const __grid_constant__ pleat__device_lanes l, uint32_t seq_idx, uint32_t layer,
                             uint32_t n_tokens) {
    const uint32_t head = blockIdx.x * blockDim.x + threadIdx.x, ring = slots_of(l, layer);
    if (head >= l.n_kv_heads) return;
    const uint32_t row = pleat__device_row_at(l, seq_idx, layer, head);
    l.pages.n_slots[0][row] = min(n_tokens, ring);
    l.pages.n_slots[1][row] = 0;
    l.pages.hole[row] = n_tokens >= ring ? n_tokens % ring + 1 : 0;
}

extern "C" pleat_status pleat__device_wide_count(const pleat__device_lanes *l, uint32_t seq_idx, uint32_t layer,
                                                 uint32_t n_tokens, pleat__device_stream stream, pleat_error *err) {
    count<<<(l->n_kv_heads + 127) / 128, 128, 0, pleat__cuda_stream(stream)>>>(*l, seq_idx, layer, n_tokens);
    return PLEAT_CUDA_LAUNCHED("counting a layer's tokens", err);
}

/* ---- store --------------------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(WARPS * 32)
    store(const __grid_constant__ pleat__device_lanes l, const __grid_constant__ pleat__device_prompt p) {
    const uint32_t unit = blockIdx.x * WARPS + threadIdx.x / 32, head = unit % l.n_kv_heads;
    const uint32_t tile = unit / l.n_kv_heads, ring = slots_of(l, p.layer), end = p.n_past + p.n_tokens;
    const uint32_t n_used = min(p.n_past, ring), n_slots = min(end, ring), n_quads = l.head_dim / 4;
    const uint32_t first = tile * PLEAT__TILE, behind = min(n_slots, first + PLEAT__TILE);
    if (first >= n_slots) return;
    const pleat__page_layout &layout = l.layouts[0];
    const pleat__device_slot_bytes at =
        pleat__device_bytes_of(l, pleat__device_row_at(l, p.seq_idx, p.layer, head), 0, first);
    if (first >= n_used) pleat__device_clear_tile(layout, at.page, at.slot / PLEAT__TILE);
    __syncwarp();
    for (uint32_t slot = first; slot < behind; slot++) {
        const uint32_t position = slot + (end - 1 - slot) / ring * ring; /* the newest that belongs here */
        if (position < p.n_past) continue;
        const uint64_t from = ((uint64_t)(position - p.n_past) * l.n_kv_heads + head) * n_quads;
        const uint32_t to = at.slot + slot % PLEAT__TILE;
        pleat__device_wide_put(layout, at.page, to, token_of(l, (const uint2 *)p.k + from, n_quads),
                               token_of(l, (const uint2 *)p.v + from, n_quads), n_quads);
        __syncwarp();
    }
}

extern "C" pleat_status pleat__device_wide_store(const pleat__device_lanes *l, const pleat__device_prompt *p,
                                                 pleat__device_stream stream, pleat_error *err) {
    const uint64_t n_tiles = ((uint64_t)p->n_past + p->n_tokens + PLEAT__TILE - 1) / PLEAT__TILE;
    store<<<(uint32_t)((n_tiles * l->n_kv_heads + WARPS - 1) / WARPS), WARPS * 32, 0, pleat__cuda_stream(stream)>>>(*l,
                                                                                                                    *p);
    return PLEAT_CUDA_LAUNCHED("storing a layer's tokens", err);
}

/* ---- gather -------------------------------------------------------------------------------------------- */

/* As f16, turned back. */
static __device__ inline void write_row(const pleat__device_lanes &l, pleat__device_wide *w, uint32_t n_quads,
                                        uint2 *to) {
    if (l.is_rotated) pleat__device_wide_rotate_back(w, n_quads);
#pragma unroll
    for (uint32_t i = 0; i < PLEAT__WIDE_QUADS; i++) {
        const uint32_t t = threadIdx.x % 32 + 32 * i;
        if (t < n_quads) to[t] = pleat__device_quad_f16(w->quads[i]);
    }
}

/* Tokens from `first` on. */
static __global__ void __launch_bounds__(WARPS * 32)
    gather(const __grid_constant__ pleat__device_lanes l, const __grid_constant__ pleat__device_prompt p,
           uint32_t first, uint2 *keys, uint2 *values) {
    const uint32_t unit = blockIdx.x * WARPS + threadIdx.x / 32, token = first + unit / l.n_kv_heads;
    if (token >= p.n_past) return;
    const uint32_t head = unit % l.n_kv_heads, n_quads = l.head_dim / 4;
    const pleat__device_slot_bytes at =
        pleat__device_bytes_of(l, pleat__device_row_at(l, p.seq_idx, p.layer, head), 0, token % slots_of(l, p.layer));
    pleat__device_wide key = {}, value = {};
#pragma unroll
    for (uint32_t i = 0; i < PLEAT__WIDE_QUADS; i++) {
        const uint32_t t = threadIdx.x % 32 + 32 * i;
        if (t >= n_quads) continue;
        key.quads[i] = pleat__device_key_quad(l.layouts[0], at.page, at.slot, t);
        value.quads[i] = pleat__device_value_quad(l.layouts[0], at.page, at.slot, n_quads, t);
    }
    write_row(l, &key, n_quads, keys + (uint64_t)unit * n_quads);
    write_row(l, &value, n_quads, values + (uint64_t)unit * n_quads);
}

extern "C" pleat_status pleat__device_wide_gather(const pleat__device_lanes *l, const pleat__device_prompt *p,
                                                  uint32_t first, uint16_t *keys, uint16_t *values,
                                                  pleat__device_stream stream, pleat_error *err) {
    const uint32_t n_blocks = (uint32_t)(((uint64_t)(p->n_past - first) * l->n_kv_heads + WARPS - 1) / WARPS);
    gather<<<n_blocks, WARPS * 32, 0, pleat__cuda_stream(stream)>>>(*l, *p, first, (uint2 *)(void *)keys,
                                                                    (uint2 *)(void *)values);
    return PLEAT_CUDA_LAUNCHED("gathering a sequence's tokens", err);
}

/* ---- append -------------------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(WARPS * 32)
    append(const __grid_constant__ pleat__device_lanes l, uint32_t layer, const uint2 *k, const uint2 *v) {
    const uint32_t unit = blockIdx.x * WARPS + threadIdx.x / 32, seq = unit / l.n_kv_heads, n_quads = l.head_dim / 4;
    if (seq >= l.pages.n_seqs) return;
    const pleat__device_wide key = token_of(l, k + (uint64_t)unit * n_quads, n_quads);
    const pleat__device_wide value = token_of(l, v + (uint64_t)unit * n_quads, n_quads);
    const pleat__device_new_token to = l.fresh[seq * l.pages.rows_per_seq + layer * l.n_kv_heads + unit % l.n_kv_heads];
    if (to.slot == PLEAT__NO_NEW_SLOT) return;
    uint8_t *page = l.base + to.page * l.page_bytes;
    if (!(to.slot & PLEAT__NEW_SLOT_IS_HOLE) && to.at % PLEAT__TILE == 0)
        pleat__device_clear_tile(l.layouts[0], page, to.at / PLEAT__TILE);
    __syncwarp();
    pleat__device_wide_put(l.layouts[0], page, to.at, key, value, n_quads);
    if (l.layouts[0].tracked && threadIdx.x % 32 == 0) pleat__device_track(l.layouts[0], page, to.at, to.position);
}

extern "C" pleat_status pleat__device_wide_append(const pleat__device_lanes *l, uint32_t layer, const void *k,
                                                  const void *v, pleat__device_stream stream, pleat_error *err) {
    const uint32_t n_blocks = (uint32_t)(((uint64_t)l->pages.n_seqs * l->n_kv_heads + WARPS - 1) / WARPS);
    append<<<n_blocks, WARPS * 32, 0, pleat__cuda_stream(stream)>>>(*l, layer, (const uint2 *)k, (const uint2 *)v);
    return PLEAT_CUDA_LAUNCHED("storing a step's tokens", err);
}
