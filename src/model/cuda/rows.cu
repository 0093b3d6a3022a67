/* SPDX-License-Identifier: MIT
 *
 * rows.cu: see rows.h.
 *
 *     embed    a block a row; a thread has eight columns, as a lane of the products would
 *     norm     a block a row; its sum of squares is added up thread by thread, warp by warp, in a fixed order
 *     heads    a warp a head; a lane has the pairs lane, lane + 32, ...
 *     choose   a block a part of a row, then a thread a row
 */
#include "model/cuda/rows.h"

#include "core/cuda/heads.cuh"
#include "hw/cuda/launch.cuh"
#include "hw/cuda/warp.cuh"
#include "model/cuda/tile.cuh"

/* ---- embeddings ---------------------------------------------------------------------------------------- */

#define EMBED_THREADS 128u

template <int F>
static __global__ void __launch_bounds__(EMBED_THREADS)
    embed(pleat__device_matrix m, const int32_t *tokens, float scale, float *x) {
    pleat__let_next_start();
    pleat__wait_for_last();
    const uint32_t row = (uint32_t)tokens[blockIdx.x];
    for (uint32_t i = threadIdx.x; i < m.tiles.cols / 8; i += EMBED_THREADS) {
        const uint32_t slice = i / 4, lane = row % 8 * 4 + i % 4, r = row % PLEAT__TILE_ROWS / 8;
        const int j = (int)(slice % PLEAT__TILE_SLICES);
        pleat__lane_group<F> w;
        uint32_t g[4], g8[4];
        pleat__load_group<F>(w, pleat__group_at<F>(m, row / PLEAT__TILE_ROWS, slice / PLEAT__TILE_SLICES),
                             pleat__row_bytes(m.tiles), lane);
#pragma unroll
        for (int at = 0; at < (int)PLEAT__TILE_SLICES; at++) /* registers are named, not indexed */
            if (at == j) pleat__operands<F>(w, at, g, g8);
        float *to = x + (uint64_t)blockIdx.x * m.tiles.cols + 8 * i;
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float2 two = __half22float2(pleat__as_half2(r ? g8[e] : g[e]));
            to[2 * e] = scale * two.x;
            to[2 * e + 1] = scale * two.y;
        }
    }
}

template <int F>
static void launch_embed(const pleat__device_matrix &m, const int32_t *tokens, uint32_t n, float scale, float *x,
                         pleat__device_stream stream) {
    embed<F><<<n, EMBED_THREADS, 0, pleat__cuda_stream(stream)>>>(m, tokens, scale, x);
}

extern "C" pleat_status pleat__device_embed(const pleat__device_matrix *m, const int32_t *tokens, uint32_t n,
                                            float scale, float *x, pleat__device_stream stream, pleat_error *err) {
    switch (m->tiles.format) {
        case PLEAT__TILE_F16: launch_embed<PLEAT__TILE_F16>(*m, tokens, n, scale, x, stream); break;
        case PLEAT__TILE_Q8: launch_embed<PLEAT__TILE_Q8>(*m, tokens, n, scale, x, stream); break;
        case PLEAT__TILE_Q4: launch_embed<PLEAT__TILE_Q4>(*m, tokens, n, scale, x, stream); break;
        case PLEAT__TILE_Q4_MIN: launch_embed<PLEAT__TILE_Q4_MIN>(*m, tokens, n, scale, x, stream); break;
        default: launch_embed<PLEAT__TILE_Q8_HALF>(*m, tokens, n, scale, x, stream); break;
    }
    return PLEAT_CUDA_LAUNCHED("fetching embeddings", err);
}

/* ---- norms --------------------------------------------------------------------------------------------- */

#define NORM_THREADS 512u

static __device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int by = 16; by > 0; by /= 2) x += __shfl_xor_sync(PLEAT__ALL_THREADS, x, by);
    return x;
}

static __device__ __forceinline__ float square_sum(const float4 &v) {
    return v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
}

/* 1 / sqrt(mean(x^2) + eps) of the block's row, in all threads; sum: of a thread's squares. */
static __device__ __forceinline__ float norm_factor(float sum, uint32_t width, float eps) {
    __shared__ float sums[NORM_THREADS / 32];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
#pragma unroll
    for (uint32_t warp = 0; warp < NORM_THREADS / 32; warp++) sum += sums[warp];
    return 1.0f / sqrtf(sum / (float)width + eps);
}

static __device__ __forceinline__ uint2 normed(const float4 &v, const float4 &w, float factor) {
    return make_uint2(pleat__as_word(__floats2half2_rn(w.x * (v.x * factor), w.y * (v.y * factor))),
                      pleat__as_word(__floats2half2_rn(w.z * (v.z * factor), w.w * (v.w * factor))));
}

#define NORM_KEPT 4u /* float4s of a thread that it reads once */

/* Columns 4 at .. of the block's row. */
static __device__ __forceinline__ void put(uint16_t *out, uint32_t width, uint32_t at, bool is_packed, uint2 v) {
    uint8_t *to = (uint8_t *)(void *)out;
    if (is_packed) {
        *(uint32_t *)(void *)(to + pleat__packed_at(blockIdx.x, 4 * at)) = v.x;
        *(uint32_t *)(void *)(to + pleat__packed_at(blockIdx.x, 4 * at + 2)) = v.y;
    } else {
        *(uint2 *)(void *)(to + ((uint64_t)blockIdx.x * width + 4 * at) * 2) = v;
    }
}

/* Four columns of the block's row of x, once it has its parts. */
template <bool HAS_PARTS> static __device__ __forceinline__ float4 whole(const pleat__device_norm_of &n, uint32_t at) {
    const uint64_t i = (uint64_t)blockIdx.x * (n.width / 4) + at, of_part = (uint64_t)n.n * (n.width / 4);
    const float4 *parts = (const float4 *)(const void *)n.parts.at + i;
    float4 *to = (float4 *)(void *)n.x + i, v = *to;
    if constexpr (HAS_PARTS) {
        float4 sum = __ldcg(parts);
#pragma unroll
        for (uint32_t p = 1; p < PLEAT__DEVICE_PARTS; p++) {
            const float4 part = __ldcg(parts + p * of_part);
            sum.x += part.x;
            sum.y += part.y;
            sum.z += part.z;
            sum.w += part.w;
        }
        v.x += n.parts.scale * sum.x;
        v.y += n.parts.scale * sum.y;
        v.z += n.parts.scale * sum.z;
        v.w += n.parts.scale * sum.w;
        *to = v;
    }
    return v;
}

template <bool HAS_PARTS>
static __global__ void __launch_bounds__(NORM_THREADS) norm(const __grid_constant__ pleat__device_norm_of n) {
    const uint32_t width = n.width;
    const float4 *row = (const float4 *)(const void *)(n.x + (uint64_t)blockIdx.x * width);
    const float4 *weights = (const float4 *)(const void *)n.weight;
    float4 v[NORM_KEPT], w[NORM_KEPT];
    float sum = 0;
    pleat__let_next_start();
#pragma unroll
    for (uint32_t i = 0; i < NORM_KEPT; i++) {
        const uint32_t at = threadIdx.x + i * NORM_THREADS;
        if (at < width / 4) w[i] = weights[at];
    }
    pleat__wait_for_last();
#pragma unroll
    for (uint32_t i = 0; i < NORM_KEPT; i++) {
        const uint32_t at = threadIdx.x + i * NORM_THREADS;
        v[i] = at < width / 4 ? whole<HAS_PARTS>(n, at) : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (uint32_t i = 0; i < NORM_KEPT; i++) sum += square_sum(v[i]);
    for (uint32_t at = threadIdx.x + NORM_KEPT * NORM_THREADS; at < width / 4; at += NORM_THREADS)
        sum += square_sum(whole<HAS_PARTS>(n, at));
    const float factor = norm_factor(sum, width, n.eps);
#pragma unroll
    for (uint32_t i = 0; i < NORM_KEPT; i++) {
        const uint32_t at = threadIdx.x + i * NORM_THREADS;
        if (at < width / 4) put(n.out, width, at, n.is_packed, normed(v[i], w[i], factor));
    }
    for (uint32_t at = threadIdx.x + NORM_KEPT * NORM_THREADS; at < width / 4; at += NORM_THREADS)
        put(n.out, width, at, n.is_packed, normed(row[at], weights[at], factor));
    const uint32_t end = (width + PLEAT__GROUP_COLS - 1) / PLEAT__GROUP_COLS * PLEAT__GROUP_COLS;
    for (uint32_t at = width / 4 + threadIdx.x; at < end / 4 && n.is_packed; at += NORM_THREADS)
        put(n.out, width, at, true, make_uint2(0, 0));
}

extern "C" pleat_status pleat__device_norm(const pleat__device_norm_of *n, pleat__device_stream stream,
                                           pleat_error *err) {
    pleat__launch(n->parts.n ? norm<true> : norm<false>, n->n, NORM_THREADS, 0, stream, *n);
    return PLEAT_CUDA_LAUNCHED("norming rows", err);
}

static __global__ void __launch_bounds__(NORM_THREADS)
    add_normed(const float *y, const float *weight, uint32_t width, float eps, float scale, float *x) {
    const float4 *row = (const float4 *)(const void *)(y + (uint64_t)blockIdx.x * width);
    float4 *to = (float4 *)(void *)(x + (uint64_t)blockIdx.x * width);
    pleat__let_next_start();
    pleat__wait_for_last();
    float square = 0;
    for (uint32_t i = threadIdx.x; i < width / 4; i += NORM_THREADS) square += square_sum(row[i]);
    const float factor = norm_factor(square, width, eps);
    for (uint32_t i = threadIdx.x; i < width / 4; i += NORM_THREADS) {
        const float4 v = row[i], w = ((const float4 *)(const void *)weight)[i];
        float4 sum = to[i];
        sum.x += scale * (w.x * (v.x * factor));
        sum.y += scale * (w.y * (v.y * factor));
        sum.z += scale * (w.z * (v.z * factor));
        sum.w += scale * (w.w * (v.w * factor));
        to[i] = sum;
    }
}

extern "C" pleat_status pleat__device_add_normed(const float *y, const float *weight, uint32_t n, uint32_t width,
                                                 float eps, float scale, float *x, pleat__device_stream stream,
                                                 pleat_error *err) {
    pleat__launch(add_normed, n, NORM_THREADS, 0, stream, y, weight, width, eps, scale, x);
    return PLEAT_CUDA_LAUNCHED("adding a normed branch", err);
}

#define HALVE_THREADS 256u

static __global__ void __launch_bounds__(HALVE_THREADS) halve(const float *x, uint64_t n, uint4 *out) {
    const uint64_t i = (uint64_t)blockIdx.x * HALVE_THREADS + threadIdx.x;
    pleat__let_next_start();
    pleat__wait_for_last();
    if (i >= n) return;
    out[i] = pleat__halves_of(x + 8 * i);
}

extern "C" pleat_status pleat__device_halve(const float *x, uint64_t n, uint16_t *out, pleat__device_stream stream,
                                            pleat_error *err) {
    const uint32_t n_blocks = (uint32_t)((n / 8 + HALVE_THREADS - 1) / HALVE_THREADS);
    pleat__launch(halve, n_blocks, HALVE_THREADS, 0, stream, x, n / 8, (uint4 *)(void *)out);
    return PLEAT_CUDA_LAUNCHED("rounding rows to f16", err);
}

/* ---- heads --------------------------------------------------------------------------------------------- */

#define HEADS_WARPS 4u
#define MAX_PAIRS 4 /* of a thread: 256 dimensions */

static __global__ void __launch_bounds__(HEADS_WARPS * 32) heads(const __grid_constant__ pleat__device_heads h) {
    const uint32_t n_heads = h.n_q_heads + 2 * h.n_kv_heads;
    const uint64_t at = (uint64_t)blockIdx.x * HEADS_WARPS + threadIdx.x / 32;
    const uint32_t row = (uint32_t)(at / n_heads), head = (uint32_t)(at % n_heads);
    pleat__let_next_start();
    pleat__wait_for_last();
    if (row >= h.n) return;
    const uint32_t part = head < h.n_q_heads ? 0 : head < h.n_q_heads + h.n_kv_heads ? 1 : 2;
    const uint32_t in_part = head - (part == 0 ? 0 : part == 1 ? h.n_q_heads : h.n_q_heads + h.n_kv_heads);
    const uint32_t n_of_part = part == 0 ? h.n_q_heads : h.n_kv_heads;
    const pleat__head_place place = {part, in_part, h.head_dim,
                                     h.positions ? h.positions[row] : h.first_position + row};
    uint16_t *to = part == 0 ? h.q : part == 1 ? h.k : h.v;
    pleat__make_head<MAX_PAIRS>(h.of, place, h.of.qkv + at * h.head_dim,
                                (__half *)(void *)to + ((uint64_t)row * n_of_part + in_part) * h.head_dim);
}

extern "C" pleat_status pleat__device_heads_run(const pleat__device_heads *h, pleat__device_stream stream,
                                                pleat_error *err) {
    const uint64_t n_warps = (uint64_t)h->n * (h->n_q_heads + 2 * h->n_kv_heads);
    pleat__launch(heads, (uint32_t)((n_warps + HEADS_WARPS - 1) / HEADS_WARPS), HEADS_WARPS * 32, 0, stream, *h);
    return PLEAT_CUDA_LAUNCHED("making heads ready", err);
}

/* ---- the likeliest token --------------------------------------------------------------------------------- */

#define CHOOSE_THREADS 512u

/* A candidate as a number: the larger is the better, and a row with a logit that is no finite number has NO_TOKEN. */
#define NO_TOKEN UINT64_MAX

/* The logit's bits, in the order of numbers, and below them the id from above. */
static __device__ __forceinline__ uint64_t candidate_of(float logit, uint32_t id) {
    const uint32_t bits = __float_as_uint(logit + 0.0f); /* -0 is 0 */
    if (!isfinite(logit)) return NO_TOKEN;
    return (uint64_t)(bits >> 31 ? ~bits : bits | 0x80000000u) << 32 | (UINT32_MAX - id);
}

static __device__ __forceinline__ uint64_t best_of_warp(uint64_t mine) {
#pragma unroll
    for (int by = 16; by > 0; by /= 2) {
        const uint64_t other = __shfl_xor_sync(PLEAT__ALL_THREADS, mine, by);
        mine = other > mine ? other : mine;
    }
    return mine;
}

/* A block a part of a row. */
static __global__ void __launch_bounds__(CHOOSE_THREADS)
    choose_parts(const float *logits, uint32_t n_vocab, uint64_t *out) {
    __shared__ uint64_t of_warps[CHOOSE_THREADS / 32];
    const float *row = logits + (uint64_t)blockIdx.y * n_vocab;
    const uint32_t each = (n_vocab + PLEAT__CHOOSE_PARTS - 1) / PLEAT__CHOOSE_PARTS, from = blockIdx.x * each;
    const uint32_t end = from + each < n_vocab ? from + each : n_vocab;
    uint64_t mine = 0;
    pleat__let_next_start();
    pleat__wait_for_last();
#pragma unroll 8
    for (uint32_t i = from + threadIdx.x; i < end; i += CHOOSE_THREADS) {
        const uint64_t other = candidate_of(row[i], i);
        mine = other > mine ? other : mine;
    }
    mine = best_of_warp(mine);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    mine = best_of_warp(threadIdx.x < CHOOSE_THREADS / 32 ? of_warps[threadIdx.x] : 0);
    if (threadIdx.x == 0) out[blockIdx.y * PLEAT__CHOOSE_PARTS + blockIdx.x] = mine;
}

/* A thread a row. */
static __global__ void choose_rows(const uint64_t *parts, uint32_t n, uint32_t *out) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    pleat__wait_for_last();
    if (row >= n) return;
    uint64_t best = 0;
#pragma unroll
    for (uint32_t i = 0; i < PLEAT__CHOOSE_PARTS; i++) {
        const uint64_t other = parts[row * PLEAT__CHOOSE_PARTS + i];
        best = other > best ? other : best;
    }
    out[row] = best == NO_TOKEN ? UINT32_MAX : UINT32_MAX - (uint32_t)best;
}

extern "C" pleat_status pleat__device_choose(const float *logits, uint32_t n, uint32_t n_vocab, uint64_t *work,
                                             uint32_t *out, pleat__device_stream stream, pleat_error *err) {
    pleat__launch(choose_parts, dim3(PLEAT__CHOOSE_PARTS, n), CHOOSE_THREADS, 0, stream, logits, n_vocab, work);
    PLEAT_TRY(PLEAT_CUDA_LAUNCHED("choosing tokens", err));
    pleat__launch(choose_rows, (n + 31) / 32, 32, 0, stream, (const uint64_t *)work, n, out);
    return PLEAT_CUDA_LAUNCHED("choosing tokens", err);
}
