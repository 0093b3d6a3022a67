/* SPDX-License-Identifier: MIT
 *
 * wide_prompt.cu: see wide.h.  As prompt_attend.cu, with these differences: a warp has 16 queries of a block's 64, and
 * keys come 32 at a time.  Tiles are as wide as the next of 64, 128 and 256, with zeros behind a head's end.  Keys that
 * no query of the block has in its window are passed over.
 */
#include <math.h>

#include "attn/cuda/prompt_tile.cuh"
#include "attn/cuda/wide.h"

#define ROWS 64u
#define KEYS PLEAT__WIDE_KEYS
#define THREADS 128u
#define WARP_ROWS 16u
#define LOG2_E 1.44269504088896341f
#define LEAST -1e30f /* below every logit, and yet finite: rows may have no key in a tile */

static_assert(ROWS == THREADS / 32 * WARP_ROWS, "every row has a warp");

/* What a thread holds of its warp's rows: row h is 8*h + thread/4. */
template <int D> struct wide_rows {
    float o[D / 8][4];
    float m[2];
    float l[2]; /* of this thread's columns only, until the end */
};

typedef float wide_logits[KEYS / 8][4];

/* Rows [first, first + R) of `src` from row n on, and elements from n_dims on: zeros. */
template <int R, int D>
static __device__ inline void load_wide(uint32_t tile, const uint16_t *src, uint64_t stride, uint32_t first, uint32_t n,
                                        uint32_t n_dims) {
#pragma unroll 4
    for (uint32_t idx = threadIdx.x; idx < R * (D / 8); idx += THREADS) {
        const uint32_t row = idx / (D / 8), chunk = idx % (D / 8);
        const bool live = first + row < n && chunk * 8 < n_dims;
        pleat__copy_16_or_zeros(tile + chunk_at<R>(row, chunk), src + (live ? (first + row) * stride + chunk * 8 : 0),
                                live);
    }
}

template <int D> static __device__ inline void dot(wide_logits &s, uint32_t q_tile, uint32_t k_tile) {
#pragma unroll
    for (uint32_t n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (uint32_t e = 0; e < 4; e++) s[n][e] = 0;
#pragma unroll
    for (uint32_t k = 0; k < D / 16; k++) {
        uint32_t a[4];
        load_a<ROWS>(a, q_tile, threadIdx.x / 32 * WARP_ROWS, k);
#pragma unroll
        for (uint32_t n = 0; n < KEYS / 16; n++) {
            uint32_t b[4];
            load_b<KEYS>(b, k_tile, n * 16, k);
            multiply(s[2 * n], a, b[0], b[1]);
            multiply(s[2 * n + 1], a, b[2], b[3]);
        }
    }
}

static __device__ inline void bound(wide_logits &s, float scale, float cap) {
#pragma unroll
    for (uint32_t n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (uint32_t e = 0; e < 4; e++) s[n][e] = cap * tanhf(s[n][e] * scale / cap);
}

/* Column 0 is key `key`; the warp's first query sees keys up to `sees`. */
static __device__ inline void mask(wide_logits &s, uint32_t sees, uint32_t key, uint32_t window) {
    const uint32_t thread = threadIdx.x & 31;
#pragma unroll
    for (uint32_t n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (uint32_t e = 0; e < 4; e++) {
            const uint32_t at = key + n * 8 + (thread & 3) * 2 + (e & 1), row = sees + (e >> 1) * 8 + thread / 4;
            if (at > row || (window && at + window <= row)) s[n][e] = -INFINITY;
        }
}

/* s = weights relative to the new largest. */
template <int D> static __device__ inline void soften(wide_rows<D> &r, wide_logits &s, float scale2) {
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        float top = r.m[h], sum = 0;
#pragma unroll
        for (uint32_t n = 0; n < KEYS / 8; n++) top = fmaxf(top, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        const float shrink = power_of_two((r.m[h] - top) * scale2), shift = top * scale2;
        r.m[h] = top;
#pragma unroll
        for (uint32_t n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (uint32_t e = 2 * h; e < 2 * h + 2; e++) {
                s[n][e] = power_of_two(fmaf(s[n][e], scale2, -shift));
                sum += s[n][e];
            }
        r.l[h] = fmaf(r.l[h], shrink, sum);
#pragma unroll
        for (uint32_t n = 0; n < D / 8; n++) {
            r.o[n][2 * h] *= shrink;
            r.o[n][2 * h + 1] *= shrink;
        }
    }
}

template <int D> static __device__ inline void add_values(wide_rows<D> &r, const wide_logits &p, uint32_t v_tile) {
#pragma unroll
    for (uint32_t k = 0; k < KEYS / 16; k++) {
        uint32_t a[4];
#pragma unroll
        for (uint32_t e = 0; e < 4; e++)
            a[e] = floats_to_halves(p[2 * k + e / 2][e % 2 * 2], p[2 * k + e / 2][e % 2 * 2 + 1]);
#pragma unroll
        for (uint32_t n = 0; n < D / 16; n++) {
            uint32_t b[4];
            load_b_transposed<KEYS>(b, v_tile, k * 16, n);
            multiply(r.o[2 * n], a, b[0], b[1]);
            multiply(r.o[2 * n + 1], a, b[2], b[3]);
        }
    }
}

/* `row` is the warp's first query. */
template <int D>
static __device__ inline void store_rows(const pleat__device_wide_chunk &p, const wide_rows<D> &r, uint32_t row,
                                         uint32_t head) {
    const uint32_t thread = threadIdx.x & 31;
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        float l = r.l[h];
        l += __shfl_xor_sync(~0u, l, 1);
        l += __shfl_xor_sync(~0u, l, 2);
        const uint32_t query = row + h * 8 + thread / 4;
        if (query >= p.n_tokens) continue;
        uint16_t *out = p.out + ((uint64_t)query * p.n_kv_heads * p.n_group + head) * p.head_dim;
        const float one = 1 / l;
#pragma unroll
        for (uint32_t n = 0; n < D / 8; n++) {
            const uint32_t e = n * 8 + (thread & 3) * 2;
            if (e < p.head_dim)
                *(uint32_t *)(void *)(out + e) = floats_to_halves(r.o[n][2 * h] * one, r.o[n][2 * h + 1] * one);
        }
    }
}

/* Grid: query heads, blocks of queries; those with the most keys first. */
template <int D>
static __global__ void __launch_bounds__(THREADS) attend(const __grid_constant__ pleat__device_wide_chunk p) {
    extern __shared__ __align__(1024) uint8_t shared[];
    constexpr uint32_t tile_bytes = KEYS * D * 2;
    const uint32_t head = blockIdx.x, first = (gridDim.y - 1 - blockIdx.y) * ROWS, n_all = p.n_past + p.n_tokens;
    const uint64_t q_stride = (uint64_t)p.n_kv_heads * p.n_group * p.head_dim,
                   stride = (uint64_t)p.n_kv_heads * p.head_dim;
    const uint16_t *k = p.k + head / p.n_group * p.head_dim, *v = p.v + head / p.n_group * p.head_dim;
    const uint32_t n_keys = p.n_past + min(first + ROWS, p.n_tokens), oldest = p.n_past + first + 1;
    const uint32_t begin = p.window && oldest > p.window ? (oldest - p.window) / KEYS * KEYS : 0;
    const uint32_t q_tile = pleat__shared_address(shared), kv_tiles = q_tile + ROWS * D * 2;
    load_wide<ROWS, D>(q_tile, p.q + head * p.head_dim, q_stride, first, p.n_tokens, p.head_dim);
    load_wide<KEYS, D>(kv_tiles, k, stride, begin, n_all, p.head_dim);
    load_wide<KEYS, D>(kv_tiles + tile_bytes, v, stride, begin, n_all, p.head_dim);
    pleat__copies_commit();
    const uint32_t row = first + threadIdx.x / 32 * WARP_ROWS, sees = p.n_past + row;
    const float scale2 = p.cap > 0 ? LOG2_E : p.scale * LOG2_E;
    wide_rows<D> r = {};
    r.m[0] = r.m[1] = LEAST;
    for (uint32_t key = begin, stage = 0; key < n_keys; key += KEYS, stage ^= 1) {
        pleat__copies_wait<0>();
        __syncthreads(); /* the tile is here, and all are done with the one before */
        const uint32_t k_tile = kv_tiles + stage * 2 * tile_bytes, next = kv_tiles + (stage ^ 1) * 2 * tile_bytes;
        if (key + KEYS < n_keys) {
            load_wide<KEYS, D>(next, k, stride, key + KEYS, n_all, p.head_dim);
            load_wide<KEYS, D>(next + tile_bytes, v, stride, key + KEYS, n_all, p.head_dim);
        }
        pleat__copies_commit();
        if (key > sees + WARP_ROWS - 1 || (p.window && key + KEYS - 1 + p.window <= sees)) continue; /* none is seen */
        wide_logits s;
        dot<D>(s, q_tile, k_tile);
        if (p.cap > 0) bound(s, p.scale, p.cap);
        if (key + KEYS - 1 > sees || (p.window && key + p.window <= sees + WARP_ROWS - 1)) mask(s, sees, key, p.window);
        soften<D>(r, s, scale2);
        add_values<D>(r, s, k_tile + tile_bytes);
    }
    store_rows<D>(p, r, row, head);
}

template <int D>
static pleat_status launch(const pleat__device_wide_chunk *p, pleat__device_stream stream, pleat_error *err) {
    const int bytes = (int)((ROWS + 4 * KEYS) * D * 2);
    PLEAT_CUDA_TRY(cudaFuncSetAttribute(attend<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                   "attention's shared memory", err);
    const dim3 grid(p->n_kv_heads * p->n_group, (p->n_tokens + ROWS - 1) / ROWS);
    attend<D><<<grid, THREADS, bytes, pleat__cuda_stream(stream)>>>(*p);
    return PLEAT_CUDA_LAUNCHED("attention of a prompt", err);
}

extern "C" pleat_status pleat__device_wide_prompt(const pleat__device_wide_chunk *p, pleat__device_stream stream,
                                                  pleat_error *err) {
    if (p->head_dim <= 64) return launch<64>(p, stream, err);
    return p->head_dim <= 128 ? launch<128>(p, stream, err) : launch<256>(p, stream, err);
}
