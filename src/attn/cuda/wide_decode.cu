/* SPDX-License-Identifier: MIT
 *
 * wide_decode.cu: see wide.h.  A block has a piece of a lane and goes over it ROUND slots at a time:
 *
 *     logits     a warp 16 tokens: a token has two threads, each with every other quad of its key
 *     weights    a warp a query head: the largest logit rises, what was added up before shrinks
 *     values     a thread a quad, of every so many tokens; their sums are added in one order at the end
 *
 * A piece leaves [n_group] of (m, l, o[head_dim]); a lane of one piece is finished by its block.
 */
#include <math.h>

#include "attn/cuda/ops.cuh"
#include "attn/cuda/wide.h"
#include "hw/cuda/cuda.cuh"
#include "quant/cuda/token.cuh"

#define THREADS 256u
#define WARPS (THREADS / 32)
#define ROUND 256u     /* slots */
#define MAX_PIECES 32u /* of a lane */
#define LOG2_E 1.44269504088896341f
#define G PLEAT__WIDE_GROUP

/* Slots of a piece. */
static uint32_t piece_slots(uint32_t max_slots) {
    const uint32_t each = (max_slots + MAX_PIECES - 1) / MAX_PIECES;
    return each <= ROUND ? ROUND : (each + ROUND - 1) / ROUND * ROUND;
}

static uint32_t pieces_of(uint32_t max_slots) {
    const uint32_t each = piece_slots(max_slots);
    return max_slots <= each ? 1 : (max_slots + each - 1) / each;
}

extern "C" uint64_t pleat__device_wide_bytes(uint32_t seqs_cap, uint32_t n_q_heads, uint32_t head_dim,
                                             uint32_t max_slots) {
    return (uint64_t)seqs_cap * n_q_heads * pieces_of(max_slots) * (head_dim + 2) * sizeof(float);
}

/* What kernels are handed. */
typedef struct decode_args {
    pleat__device_wide_attn a;
    uint32_t piece_slots, n_pieces;
    float *parts; /* [lanes][n_pieces][n_group][2 + head_dim] */
} decode_args;

typedef struct block_state {
    float q[G][PLEAT__WIDE_HEAD_DIM]; /* in the end: o */
    float p[G][ROUND];
    float m[G], l[G], shrink[G];
} block_state;

/* A lane and a piece of it. */
typedef struct piece {
    uint32_t row, n_slots; /* of the lane */
    uint32_t from, to;     /* slots */
} piece;

static __device__ inline uint32_t n_pieces_of(const decode_args &d, uint32_t n_slots) {
    return n_slots <= d.piece_slots ? 1 : (n_slots + d.piece_slots - 1) / d.piece_slots;
}

static __device__ inline piece piece_at(const decode_args &d, uint32_t lane, uint32_t i) {
    const pleat__device_view &v = d.a.view;
    piece at;
    at.row = (uint32_t)pleat__device_row(&v, v.seq_idxs[lane / v.n_kv_heads], d.a.layer, lane % v.n_kv_heads);
    at.n_slots = v.n_slots[0][at.row];
    at.from = i * d.piece_slots;
    at.to = min(at.n_slots, at.from + d.piece_slots);
    return at;
}

static __device__ inline uint8_t *page_of(const pleat__device_view &v, uint32_t row, uint32_t slot) {
    const uint32_t id = v.ids[(uint64_t)row * v.row_len + slot / v.layouts[0].tokens];
    return v.base + (uint64_t)id * v.page_bytes;
}

/* log2(e) times the logit. */
static __device__ inline float logit2_of(const pleat__device_wide_attn &a, float dot) {
    const float x = dot * a.scale;
    return LOG2_E * (a.cap > 0 ? a.cap * tanhf(x / a.cap) : x);
}

/* p = logits of slots [from, to), -infinity behind them. */
static __device__ inline void add_logits(const decode_args &d, const piece &at, block_state *s, uint32_t from,
                                         uint32_t to) {
    const pleat__device_view &v = d.a.view;
    const uint32_t n_quads = v.layouts[0].head_dim / 4, half = threadIdx.x % 32 / 16;
    for (uint32_t i = threadIdx.x / 32 * 16 + threadIdx.x % 16; i < ROUND; i += WARPS * 16) {
        const uint32_t slot = from + i;
        float dots[G] = {0};
        if (slot < to) {
            uint8_t *page = page_of(v, at.row, slot);
            const uint32_t in_page = slot % v.layouts[0].tokens;
            for (uint32_t t = half; t < n_quads; t += 2) {
                const pleat__device_quad k = pleat__device_key_quad(v.layouts[0], page, in_page, t);
#pragma unroll
                for (uint32_t h = 0; h < G; h++)
                    if (h < v.n_group) {
                        const float4 q = *(const float4 *)(const void *)&s->q[h][4 * t];
                        dots[h] += q.x * k.x[0] + q.y * k.x[1] + q.z * k.x[2] + q.w * k.x[3];
                    }
            }
        }
#pragma unroll
        for (uint32_t h = 0; h < G; h++)
            if (h < v.n_group) {
                const float dot = dots[h] + __shfl_xor_sync(PLEAT__ALL_THREADS, dots[h], 16);
                if (half == 0) s->p[h][i] = slot < to ? logit2_of(d.a, dot) : -INFINITY;
            }
    }
}

/* p = weights relative to the new largest; shrink is what the sums so far are multiplied by. */
static __device__ inline void soften(const decode_args &d, block_state *s) {
    for (uint32_t h = threadIdx.x / 32; h < d.a.view.n_group; h += WARPS) {
        float most = s->m[h], sum = 0;
        for (uint32_t i = threadIdx.x % 32; i < ROUND; i += 32) most = fmaxf(most, s->p[h][i]);
#pragma unroll
        for (int by = 16; by > 0; by /= 2) most = fmaxf(most, __shfl_xor_sync(PLEAT__ALL_THREADS, most, by));
        for (uint32_t i = threadIdx.x % 32; i < ROUND; i += 32) {
            const float w = power_of_two(s->p[h][i] - most);
            s->p[h][i] = w;
            sum += w;
        }
#pragma unroll
        for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(PLEAT__ALL_THREADS, sum, by);
        __syncwarp();
        if (threadIdx.x % 32 > 0) continue;
        s->shrink[h] = power_of_two(s->m[h] - most);
        s->l[h] = s->l[h] * s->shrink[h] + sum;
        s->m[h] = most;
    }
}

/* Sums of a thread's quad, of its tokens. */
typedef struct quad_sums {
    float o[G][4];
} quad_sums;

static __device__ inline void add_values(const decode_args &d, const piece &at, const block_state *s, uint32_t from,
                                         uint32_t to, quad_sums *sums) {
    const pleat__device_view &v = d.a.view;
    const uint32_t n_quads = v.layouts[0].head_dim / 4, t = threadIdx.x % n_quads, team = threadIdx.x / n_quads;
    const uint32_t n_teams = THREADS / n_quads;
#pragma unroll
    for (uint32_t h = 0; h < G; h++)
        for (uint32_t e = 0; e < 4 && h < v.n_group; e++) sums->o[h][e] *= s->shrink[h];
    if (team >= n_teams) return;
    for (uint32_t slot = from + team; slot < to; slot += n_teams) {
        const pleat__device_quad x =
            pleat__device_value_quad(v.layouts[0], page_of(v, at.row, slot), slot % v.layouts[0].tokens, n_quads, t);
#pragma unroll
        for (uint32_t h = 0; h < G; h++)
            if (h < v.n_group) {
                const float w = s->p[h][slot - from];
#pragma unroll
                for (uint32_t e = 0; e < 4; e++) sums->o[h][e] += w * x.x[e];
            }
    }
}

/* q = all threads' sums, team by team. */
static __device__ inline void join_sums(const decode_args &d, block_state *s, const quad_sums &sums) {
    const uint32_t n_quads = d.a.view.layouts[0].head_dim / 4, t = threadIdx.x % n_quads, mine = threadIdx.x / n_quads;
    for (uint32_t team = 0; team < THREADS / n_quads; team++) {
        __syncthreads();
        if (mine != team) continue;
#pragma unroll
        for (uint32_t h = 0; h < G; h++)
            for (uint32_t e = 0; e < 4 && h < d.a.view.n_group; e++)
                s->q[h][4 * t + e] = sums.o[h][e] + (team ? s->q[h][4 * t + e] : 0);
    }
    __syncthreads();
}

/* The lane's output, or the piece's part. */
static __device__ inline void write_piece(const decode_args &d, const piece &at, const block_state *s) {
    const uint32_t n_group = d.a.view.n_group, n_dims = d.a.view.layouts[0].head_dim;
    const uint64_t lane = blockIdx.x;
    const bool is_all = n_pieces_of(d, at.n_slots) == 1;
    float *part = d.parts + (lane * d.n_pieces + blockIdx.y) * n_group * (2 + n_dims);
    for (uint32_t i = threadIdx.x; i < n_group * n_dims; i += THREADS) {
        const uint32_t h = i / n_dims, e = i % n_dims;
        if (is_all)
            d.a.out[lane * n_group * n_dims + i] = s->l[h] > 0 ? s->q[h][e] / s->l[h] : 0;
        else
            part[h * (2 + n_dims) + 2 + e] = s->q[h][e];
    }
    const uint32_t h = threadIdx.x;
    if (h >= n_group) return;
    if (!is_all) {
        part[h * (2 + n_dims)] = s->m[h];
        part[h * (2 + n_dims) + 1] = s->l[h];
    } else if (d.a.lse2) {
        d.a.lse2[lane * n_group + h] = s->m[h] + log2f(s->l[h]);
    }
}

static __global__ void __launch_bounds__(THREADS) decode(const __grid_constant__ decode_args d) {
    __shared__ __align__(16) block_state s;
    const pleat__device_view &v = d.a.view;
    const uint32_t n_dims = v.layouts[0].head_dim;
    const piece at = piece_at(d, blockIdx.x, blockIdx.y);
    if (blockIdx.y >= n_pieces_of(d, at.n_slots)) return;
    for (uint32_t i = threadIdx.x; i < v.n_group * n_dims; i += THREADS)
        s.q[i / n_dims][i % n_dims] =
            __half2float(((const __half *)(const void *)d.a.q)[(uint64_t)blockIdx.x * v.n_group * n_dims + i]);
    if (threadIdx.x < G) {
        s.m[threadIdx.x] = -INFINITY;
        s.l[threadIdx.x] = 0;
    }
    quad_sums sums = {};
    for (uint32_t from = at.from; from < at.to; from += ROUND) {
        const uint32_t to = min(at.to, from + ROUND);
        __syncthreads();
        add_logits(d, at, &s, from, to);
        __syncthreads();
        soften(d, &s);
        __syncthreads();
        add_values(d, at, &s, from, to, &sums);
    }
    join_sums(d, &s, sums);
    write_piece(d, at, &s);
}

/* A block a lane of several pieces. */
static __global__ void __launch_bounds__(THREADS) merge(const __grid_constant__ decode_args d) {
    const uint32_t n_group = d.a.view.n_group, n_dims = d.a.view.layouts[0].head_dim;
    const uint64_t lane = blockIdx.x;
    const uint32_t n = n_pieces_of(d, piece_at(d, blockIdx.x, 0).n_slots), stride = n_group * (2 + n_dims);
    if (n == 1) return;
    for (uint32_t i = threadIdx.x; i < n_group * n_dims; i += THREADS) {
        const uint32_t h = i / n_dims, e = i % n_dims;
        const float *part = d.parts + lane * d.n_pieces * stride + h * (2 + n_dims);
        float most = -INFINITY, l = 0, o = 0;
        for (uint32_t j = 0; j < n; j++) most = fmaxf(most, part[j * stride]);
        for (uint32_t j = 0; j < n; j++) {
            const float factor = power_of_two(part[j * stride] - most);
            l += factor * part[j * stride + 1];
            o += factor * part[j * stride + 2 + e];
        }
        d.a.out[lane * n_group * n_dims + i] = o / l;
        if (d.a.lse2 && e == 0) d.a.lse2[lane * n_group + h] = most + log2f(l);
    }
}

extern "C" pleat_status pleat__device_wide_decode(const pleat__device_wide_attn *attn, pleat__device_stream stream,
                                                  pleat_error *err) {
    decode_args d = {};
    d.a = *attn;
    d.piece_slots = piece_slots(attn->max_slots);
    d.n_pieces = pieces_of(attn->max_slots);
    d.parts = (float *)attn->workspace;
    const uint32_t n_lanes = attn->view.n_seqs * attn->view.n_kv_heads;
    if (n_lanes == 0) return PLEAT_OK;
    decode<<<dim3(n_lanes, d.n_pieces), THREADS, 0, pleat__cuda_stream(stream)>>>(d);
    if (d.n_pieces > 1) merge<<<n_lanes, THREADS, 0, pleat__cuda_stream(stream)>>>(d);
    return PLEAT_CUDA_LAUNCHED("attention", err);
}
