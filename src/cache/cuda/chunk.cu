/* SPDX-License-Identifier: MIT
 *
 * chunk.cu: more tokens behind those that a sequence of uniform formats has, and a copy of any sequence.
 *
 *     gather    a warp a token and KV head: dequantised, rounded to f16
 *     extend    a warp a tile of 16 slots and KV head, token by token: the first tile may have tokens of before, and
 *               each has one writer
 *     copy      a block a page, and the page of the same number of the low side
 *
 * A lane of a uniform format has token i in slot i of the high side.
 */
#include "cache/cuda/lanes.cuh"

#define WARPS 4u

/* ---- gather -------------------------------------------------------------------------------------------- */

template <int D>
static __global__ void __launch_bounds__(WARPS * 32)
    gather(const __grid_constant__ pleat__device_lanes l, const __grid_constant__ pleat__device_prompt p, uint2 *keys,
           uint2 *values) {
    const uint32_t unit = blockIdx.x * WARPS + threadIdx.x / 32, token = unit / l.n_kv_heads;
    if (token >= p.n_past) return;
    const uint32_t head = unit % l.n_kv_heads, row = pleat__device_row_at(l, p.seq_idx, p.layer, head);
    const pleat__device_slot_bytes at = pleat__device_bytes_of(l, row, 0, token);
    const pleat__device_quad key = pleat__device_load_key<D>(l.layouts[0], at.page, at.slot);
    const pleat__device_quad value = pleat__device_load_value<D>(l.layouts[0], at.page, at.slot);
    if (!pleat__device_in_first_team<D>()) return;
    const uint64_t to = (uint64_t)unit * (D / 4) + pleat__device_team_thread<D>();
    keys[to] = pleat__device_quad_f16(key);
    values[to] = pleat__device_quad_f16(value);
}

extern "C" pleat_status pleat__device_lanes_gather(const pleat__device_lanes *l, const pleat__device_prompt *p,
                                                   uint16_t *keys, uint16_t *values, pleat__device_stream stream,
                                                   pleat_error *err) {
    const uint32_t n_blocks = (uint32_t)(((uint64_t)p->n_past * l->n_kv_heads + WARPS - 1) / WARPS);
    uint2 *k = (uint2 *)(void *)keys, *v = (uint2 *)(void *)values;
    if (l->head_dim == 128)
        gather<128><<<n_blocks, WARPS * 32, 0, pleat__cuda_stream(stream)>>>(*l, *p, k, v);
    else
        gather<64><<<n_blocks, WARPS * 32, 0, pleat__cuda_stream(stream)>>>(*l, *p, k, v);
    return PLEAT_CUDA_LAUNCHED("gathering a sequence's tokens", err);
}

/* ---- extend -------------------------------------------------------------------------------------------- */

/* Nobody reads a row's count while it is a chunk's: the warp of its first tile sets it. */
template <int D>
static __global__ void __launch_bounds__(WARPS * 32)
    extend(const __grid_constant__ pleat__device_lanes l, const __grid_constant__ pleat__device_prompt p) {
    const uint32_t unit = blockIdx.x * WARPS + threadIdx.x / 32, head = unit % l.n_kv_heads;
    const uint32_t tile = p.n_past / PLEAT__TILE + unit / l.n_kv_heads, end = p.n_past + p.n_tokens;
    const uint32_t first = max(p.n_past, tile * PLEAT__TILE), behind = min(end, (tile + 1) * PLEAT__TILE);
    if (first >= end) return;
    const uint32_t row = pleat__device_row_at(l, p.seq_idx, p.layer, head);
    const pleat__page_layout &layout = l.layouts[0];
    const pleat__device_slot_bytes at = pleat__device_bytes_of(l, row, 0, tile * PLEAT__TILE); /* one page's tile */
    if (first == tile * PLEAT__TILE) pleat__device_clear_tile(layout, at.page, at.slot / PLEAT__TILE);
    __syncwarp();
    for (uint32_t slot = first; slot < behind; slot++) {
        const uint64_t from = ((uint64_t)(slot - p.n_past) * l.n_kv_heads + head) * (D / 4);
        const uint2 key = ((const uint2 *)p.k)[from + pleat__device_team_thread<D>()];
        const uint2 value = ((const uint2 *)p.v)[from + pleat__device_team_thread<D>()];
        const uint32_t to = at.slot + slot % PLEAT__TILE;
        const bool writes = pleat__device_in_first_team<D>();
        pleat__device_put_value<D>(layout, at.page, to, pleat__device_quad_of(value), writes);
        pleat__device_put_key<D>(layout, at.page, to, pleat__device_quad_of(key), writes);
        __syncwarp();
    }
    if (threadIdx.x % 32 == 0 && unit < l.n_kv_heads) l.pages.n_slots[0][row] = end;
}

extern "C" pleat_status pleat__device_lanes_extend(const pleat__device_lanes *l, const pleat__device_prompt *p,
                                                   pleat__device_stream stream, pleat_error *err) {
    const uint32_t n_tiles = (p->n_past + p->n_tokens - 1) / PLEAT__TILE - p->n_past / PLEAT__TILE + 1;
    const uint32_t n_blocks = (uint32_t)(((uint64_t)n_tiles * l->n_kv_heads + WARPS - 1) / WARPS);
    if (l->head_dim == 128)
        extend<128><<<n_blocks, WARPS * 32, 0, pleat__cuda_stream(stream)>>>(*l, *p);
    else
        extend<64><<<n_blocks, WARPS * 32, 0, pleat__cuda_stream(stream)>>>(*l, *p);
    return PLEAT_CUDA_LAUNCHED("storing a chunk's tokens", err);
}

/* ---- copy ---------------------------------------------------------------------------------------------- */

#define COPY_THREADS 128u

static __global__ void __launch_bounds__(COPY_THREADS)
    copy_pages(const __grid_constant__ pleat__device_lanes l, uint32_t from_row, uint32_t to_row, uint32_t first_page) {
    const uint32_t from_lane = from_row + blockIdx.x, to_lane = to_row + blockIdx.x, page = first_page + blockIdx.y;
    if (blockIdx.y == 0 && threadIdx.x == 0) {
        l.pages.hole[to_lane] = l.pages.hole[from_lane];
        l.pages.dead[to_lane] = l.pages.dead[from_lane];
    }
    for (int side = 0; side < 2; side++) {
        if (page * l.pages.page_tokens[side] >= l.pages.n_slots[side][from_lane]) continue;
        const uint8_t *from = l.base + *pleat__device_cell(&l.pages, from_lane, side, page) * l.page_bytes;
        uint8_t *to = l.base + *pleat__device_cell(&l.pages, to_lane, side, page) * l.page_bytes;
        for (uint32_t i = threadIdx.x; i < l.page_bytes / 16; i += COPY_THREADS)
            ((uint4 *)(void *)to)[i] = ((const uint4 *)(const void *)from)[i];
    }
}

extern "C" pleat_status pleat__device_lanes_copy(const pleat__device_lanes *l, uint32_t from, uint32_t to,
                                                 uint32_t first_page, uint32_t n_pages, pleat__device_stream stream,
                                                 pleat_error *err) {
    const uint32_t n_rows = l->pages.rows_per_seq;
    if (n_pages <= first_page) return PLEAT_OK;
    copy_pages<<<dim3(n_rows, n_pages - first_page), COPY_THREADS, 0, pleat__cuda_stream(stream)>>>(
        *l, from * n_rows, to * n_rows, first_page);
    return PLEAT_CUDA_LAUNCHED("copying a sequence's pages", err);
}
