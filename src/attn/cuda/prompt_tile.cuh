/* SPDX-License-Identifier: MIT
 *
 * prompt_tile.cuh: tiles of f16 rows in shared memory, and the instructions on them that both passes use.
 *
 * A tile of R rows of D elements is D/64 panels of [R][64]: a row of a panel is 128 bytes, eight chunks of 16, and
 * chunk c of row r stands at place c ^ (r & 7).  So eight rows' equal chunks lie in different banks (ldmatrix), and
 * it is what bulk tensor copies write and wgmma reads as the "128-byte swizzle" when the tile is aligned to 1024.
 *
 *     panel 0   row 0   c0 c1 c2 c3 c4 c5 c6 c7        panel 1 at + R * 128
 *               row 1   c1 c0 c3 c2 c5 c4 c7 c6
 *               row 2   c2 c3 c0 c1 c6 c7 c4 c5
 *
 * Fragments of mma.m16n8k16 (thread = 4*r + t): A and C hold rows r and r+8, columns 2t, 2t+1 (A: and 8 more); B holds
 * column r, rows 2t, 2t+1 and 8 more.
 */
#ifndef PLEAT_ATTN_CUDA_PROMPT_TILE_CUH
#define PLEAT_ATTN_CUDA_PROMPT_TILE_CUH

#include "attn/cuda/ops.cuh"
#include "attn/cuda/prompt.h"
#include "hw/cuda/copy.cuh"
#include "hw/cuda/cuda.cuh"

/* What kernels see: the caller's prompt with what follows from it. */
typedef struct pleat__prompt_args {
    pleat__device_prompt_attn p;
    float scale2;           /* scale * log2(e) */
    float *partial;         /* [n_splits][n_kv_heads][n_tokens] */
    uint32_t every;         /* pass 2: query j is token (j+1)*every - 1; p.q, p.q_stride and p.lse2 are those of j's */
    uint32_t lse2_stride;   /* from query to query */
    uint32_t n_splits;      /* of the queries, in pass 2 */
    uint32_t span;          /* queries of a split */
    uint32_t turn_heads[2]; /* [pass] heads that blocks work on at a time: see take_turn() */
    bool in_pairs;          /* of blocks, pass 1 by wgmma */
} pleat__prompt_args;

/* Pass 1, pass 2, and what adds up the splits of either way's pass 2. */
extern "C" pleat_status pleat__prompt_attend_mma(const pleat__prompt_args *args, pleat__device_stream stream,
                                                 pleat_error *err);
extern "C" pleat_status pleat__prompt_received_mma(const pleat__prompt_args *args, pleat__device_stream stream,
                                                   pleat_error *err);
extern "C" pleat_status pleat__prompt_add_up(const pleat__prompt_args *args, pleat__device_stream stream,
                                             pleat_error *err);

/* A prompt's place among all tokens. */
typedef struct prompt_seq {
    uint32_t first, n;
} prompt_seq;

static __device__ inline prompt_seq find_seq(const pleat__device_prompt_attn &p, uint32_t i) {
    if (!p.starts) return {0, p.n_tokens};
    const uint32_t first = p.starts[i];
    return {first, p.starts[i + 1] - first};
}

/* A block's head (a query head in pass 1, a KV head in pass 2) and which of that head's blocks it is. */
typedef struct prompt_turn {
    uint32_t head, block;
} prompt_turn;

/* Blocks of turn_heads heads start before those of the next: block 0 of each, then block 1.  All heads, so that the
 * longest blocks of all start first; or one KV head's, where what all heads read at once would not stay in L2. */
static __device__ inline prompt_turn take_turn(uint32_t turn_heads, uint32_t n_heads) {
    const uint32_t n_blocks = gridDim.x / n_heads, of_turn = turn_heads * n_blocks;
    const uint32_t i = blockIdx.x % of_turn;
    return {blockIdx.x / of_turn * turn_heads + i % turn_heads, i / turn_heads};
}

#define RECEIVED_KEYS 128u /* of a block of pass 2 */

/* What a block of pass 2 has: keys of a KV head, and the queries [from, to) of one of the splits. */
typedef struct received_part {
    prompt_seq seq;
    uint32_t head, first; /* the first key, in the prompt */
    uint32_t from, to;
    float *out; /* of the prompt's first key */
} received_part;

/* Find it.  False: the block is done.  What no query comes after has received nothing, which is stored where it has its
 * first split. */
static __device__ inline bool take_part(const pleat__prompt_args &args, received_part *out) {
    const pleat__device_prompt_attn &p = args.p;
    const prompt_turn turn = take_turn(args.turn_heads[1], p.n_kv_heads);
    const uint32_t split = turn.block % args.n_splits;
    received_part at = {find_seq(p, blockIdx.z), turn.head, turn.block / args.n_splits * RECEIVED_KEYS, 0, 0, NULL};
    at.from = max(max(at.first / args.every, split * args.span), p.first_query);
    at.to = min(at.seq.n / args.every, (split + 1) * args.span);
    at.out = args.n_splits == 1 ? p.received : args.partial + (uint64_t)split * p.n_kv_heads * p.n_tokens;
    at.out += (uint64_t)at.head * p.n_tokens + at.seq.first;
    *out = at;
    if (at.first >= at.seq.n) return false;
    if (at.from < at.to) return true;
    const uint32_t key = at.first + threadIdx.x;
    if (at.first / args.every / args.span == split && threadIdx.x < RECEIVED_KEYS && key < at.seq.n) at.out[key] = 0;
    return false;
}

/* Bytes from a tile's start to chunk `chunk` (of 8 elements) of a row. */
template <int ROWS> static __device__ inline uint32_t chunk_at(uint32_t row, uint32_t chunk) {
    return (chunk >> 3) * (ROWS * 128) + row * 128 + (((chunk ^ row) & 7) << 4);
}

/* Rows [first, first + ROWS) of `src`, whose rows are `stride` elements apart; from row n on: zeros. */
template <int ROWS, int D, int THREADS>
static __device__ inline void load_tile(uint32_t tile, const uint16_t *src, uint32_t stride, uint32_t first,
                                        uint32_t n) {
    constexpr uint32_t chunks = D / 8;
    static_assert(ROWS * chunks % THREADS == 0, "uneven");
#pragma unroll
    for (uint32_t i = 0; i < ROWS * chunks / THREADS; i++) {
        const uint32_t idx = i * THREADS + threadIdx.x, row = idx / chunks, chunk = idx % chunks;
        const bool live = first + row < n;
        pleat__copy_16_or_zeros(tile + chunk_at<ROWS>(row, chunk),
                                src + (uint64_t)(live ? first + row : 0) * stride + chunk * 8, live);
    }
}

/* ---- fragments ---------------------------------------------------------------------------------- */

/* A: rows row..row+15, elements 16*k.. of a tile. */
template <int ROWS> static __device__ inline void load_a(uint32_t (&a)[4], uint32_t tile, uint32_t row, uint32_t k) {
    const uint32_t thread = threadIdx.x & 31;
    load_matrices(a, tile + chunk_at<ROWS>(row + (thread & 15), 2 * k + (thread >> 4)));
}

/* B of two neighbouring n8: columns are the tile's rows row..row+15, its k are elements 16*k.. */
template <int ROWS> static __device__ inline void load_b(uint32_t (&b)[4], uint32_t tile, uint32_t row, uint32_t k) {
    const uint32_t thread = threadIdx.x & 31;
    load_matrices(b, tile + chunk_at<ROWS>(row + (thread & 7) + (thread >> 4) * 8, 2 * k + (thread >> 3 & 1)));
}

/* The same of the transpose: columns are elements 16*n.., its k are the tile's rows row..row+15. */
template <int ROWS>
static __device__ inline void load_b_transposed(uint32_t (&b)[4], uint32_t tile, uint32_t row, uint32_t n) {
    const uint32_t thread = threadIdx.x & 31;
    load_matrices_transposed(b, tile + chunk_at<ROWS>(row + (thread & 15), 2 * n + (thread >> 4)));
}

/* Two neighbouring elements of a row of the output. */
static __device__ inline void store_pair(const pleat__device_prompt_attn &p, uint64_t at, float x, float y) {
    if (p.out_f32)
        *reinterpret_cast<float2 *>(static_cast<float *>(p.out) + at) = make_float2(x, y);
    else
        *reinterpret_cast<uint32_t *>(static_cast<uint16_t *>(p.out) + at) = floats_to_halves(x, y);
}

#endif
