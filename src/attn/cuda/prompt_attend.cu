/* SPDX-License-Identifier: MIT
 *
 * prompt_attend.cu: pass 1 by mma.sync: out and lse2 of 128 queries of one head per block, one pass over
 * the keys they see.
 *
 *     warp w      rows 32w .. 32w+31 of the queries, two m16 each; o, m and l of a row live in the four threads of it
 *     keys        64 at a time, K and V double buffered by cp.async; the next tile is on its way while one is used
 *     a tile      s = q.k  ->  m rises, o and l shrink by 2^(m - m')  ->  p = 2^(s*scale2 - m') -> o += p v, l += p
 *
 * Query i of a chunk is row i and sees the keys up to n_past + i.
 *
 * Logits stay unscaled until they meet exp2: one multiply-add a weight.  Only tiles that cross the diagonal are masked;
 * queries beyond the prompt's end compute on zeros and are not written.  Blocks with the most keys start first.
 *
 * After FlashAttention-2 (Dao 2023, section 3); the split of rows over warps is its.
 */
#include "attn/cuda/prompt_tile.cuh"

#define ROWS 128u
#define KEYS 64u
#define THREADS 128u
#define WARP_ROWS 32u

static_assert(ROWS == THREADS / 32 * WARP_ROWS, "every row has a warp");

/* What a thread holds of its warp's rows: row (i, h) is 16*i + 8*h + thread/4. */
template <int D> struct rows_state {
    float o[2][D / 8][4];
    float m[2][2]; /* max of q.k so far */
    float l[2][2]; /* of this thread's columns only, until the end */
};

template <int D> static __device__ inline void dot(float (&s)[2][KEYS / 8][4], uint32_t q_tile, uint32_t k_tile) {
    const uint32_t row = threadIdx.x / 32 * WARP_ROWS;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
#pragma unroll
        for (uint32_t n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) s[i][n][e] = 0;
#pragma unroll
    for (uint32_t k = 0; k < D / 16; k++) {
        uint32_t a[2][4];
        load_a<ROWS>(a[0], q_tile, row, k);
        load_a<ROWS>(a[1], q_tile, row + 16, k);
#pragma unroll
        for (uint32_t n = 0; n < KEYS / 16; n++) {
            uint32_t b[4];
            load_b<KEYS>(b, k_tile, n * 16, k);
#pragma unroll
            for (uint32_t i = 0; i < 2; i++) {
                multiply(s[i][2 * n], a[i], b[0], b[1]);
                multiply(s[i][2 * n + 1], a[i], b[2], b[3]);
            }
        }
    }
}

/* Column 0 of the tile is key `key`; the warp's first query sees keys 0..row. */
static __device__ inline void mask(float (&s)[2][KEYS / 8][4], uint32_t row, uint32_t key) {
    const uint32_t thread = threadIdx.x & 31;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
#pragma unroll
        for (uint32_t n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (uint32_t e = 0; e < 4; e++)
                if (key + n * 8 + (thread & 3) * 2 + (e & 1) > row + i * 16 + (e >> 1) * 8 + thread / 4)
                    s[i][n][e] = -INFINITY;
}

/* Turns s into weights relative to the new maxima. */
template <int D> static __device__ inline void soften(rows_state<D> &r, float (&s)[2][KEYS / 8][4], float scale2) {
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            float top = r.m[i][h];
#pragma unroll
            for (uint32_t n = 0; n < KEYS / 8; n++) top = fmaxf(top, fmaxf(s[i][n][2 * h], s[i][n][2 * h + 1]));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
            const float shrink = power_of_two((r.m[i][h] - top) * scale2), shift = top * scale2;
            r.m[i][h] = top;
            float sum = 0;
#pragma unroll
            for (uint32_t n = 0; n < KEYS / 8; n++) {
                s[i][n][2 * h] = power_of_two(fmaf(s[i][n][2 * h], scale2, -shift));
                s[i][n][2 * h + 1] = power_of_two(fmaf(s[i][n][2 * h + 1], scale2, -shift));
                sum += s[i][n][2 * h] + s[i][n][2 * h + 1];
            }
            r.l[i][h] = fmaf(r.l[i][h], shrink, sum);
#pragma unroll
            for (uint32_t n = 0; n < D / 8; n++) {
                r.o[i][n][2 * h] *= shrink;
                r.o[i][n][2 * h + 1] *= shrink;
            }
        }
    }
}

template <int D>
static __device__ inline void add_values(rows_state<D> &r, float (&p)[2][KEYS / 8][4], uint32_t v_tile) {
#pragma unroll
    for (uint32_t k = 0; k < KEYS / 16; k++) {
        uint32_t a[2][4];
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
#pragma unroll
            for (uint32_t e = 0; e < 4; e++)
                a[i][e] = floats_to_halves(p[i][2 * k + e / 2][e % 2 * 2], p[i][2 * k + e / 2][e % 2 * 2 + 1]);
#pragma unroll
        for (uint32_t n = 0; n < D / 16; n++) {
            uint32_t b[4];
            load_b_transposed<KEYS>(b, v_tile, k * 16, n);
#pragma unroll
            for (uint32_t i = 0; i < 2; i++) {
                multiply(r.o[i][2 * n], a[i], b[0], b[1]);
                multiply(r.o[i][2 * n + 1], a[i], b[2], b[3]);
            }
        }
    }
}

/* `row` is the warp's first query. */
template <int D>
static __device__ inline void store_rows(const pleat__prompt_args &args, rows_state<D> &r, prompt_seq seq, uint32_t row,
                                         uint32_t head) {
    const uint32_t thread = threadIdx.x & 31, n_heads = args.p.n_kv_heads * args.p.n_group;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            float l = r.l[i][h];
            l += __shfl_xor_sync(~0u, l, 1);
            l += __shfl_xor_sync(~0u, l, 2);
            const uint32_t query = row + i * 16 + h * 8 + thread / 4;
            if (query >= seq.n) continue;
            const uint64_t token = seq.first + query;
            const float one = 1 / l;
            if ((thread & 3) == 0) args.p.lse2[token * n_heads + head] = fmaf(r.m[i][h], args.scale2, log2f(l));
#pragma unroll
            for (uint32_t n = 0; n < D / 8; n++)
                store_pair(args.p, token * args.p.out_stride + head * D + n * 8 + (thread & 3) * 2,
                           r.o[i][n][2 * h] * one, r.o[i][n][2 * h + 1] * one);
        }
    }
}

template <int D> static __device__ inline void rows_init(rows_state<D> &r) {
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        r.m[i][0] = r.m[i][1] = -INFINITY;
        r.l[i][0] = r.l[i][1] = 0;
#pragma unroll
        for (uint32_t n = 0; n < D / 8; n++)
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) r.o[i][n][e] = 0;
    }
}

/* Grid: query heads times blocks of queries, 1, prompts. */
template <int D> static __global__ void __launch_bounds__(THREADS, 2) attend(const pleat__prompt_args args) {
    extern __shared__ __align__(1024) uint8_t shared[];
    constexpr uint32_t tile_bytes = KEYS * D * 2;
    const pleat__device_prompt_attn &p = args.p;
    const prompt_seq seq = find_seq(p, blockIdx.z);
    const prompt_turn turn = take_turn(args.turn_heads[0], p.n_kv_heads * p.n_group);
    const uint32_t head = turn.head, first = ((p.max_tokens + ROWS - 1) / ROWS - 1 - turn.block) * ROWS;
    if (first >= seq.n) return;
    const uint16_t *k = p.k + (uint64_t)seq.first * p.kv_stride + head / p.n_group * D;
    const uint16_t *v = p.v + (uint64_t)seq.first * p.kv_stride + head / p.n_group * D;
    const uint32_t q_tile = pleat__shared_address(shared), kv_tiles = q_tile + ROWS * D * 2;
    load_tile<ROWS, D, THREADS>(q_tile, p.q + (uint64_t)seq.first * p.q_stride + head * D, p.q_stride, first, seq.n);
    load_tile<KEYS, D, THREADS>(kv_tiles, k, p.kv_stride, 0, p.n_past + seq.n);
    load_tile<KEYS, D, THREADS>(kv_tiles + tile_bytes, v, p.kv_stride, 0, p.n_past + seq.n);
    pleat__copies_commit();

    const uint32_t row = first + threadIdx.x / 32 * WARP_ROWS; /* the warp's first */
    const uint32_t sees = p.n_past + row, n_keys = p.n_past + min(first + ROWS, seq.n);
    rows_state<D> r;
    rows_init(r);
    for (uint32_t key = 0, stage = 0; key < n_keys; key += KEYS, stage ^= 1) {
        pleat__copies_wait<0>();
        __syncthreads(); /* the tile is here, and all are done with the one before */
        const uint32_t k_tile = kv_tiles + stage * 2 * tile_bytes, next = kv_tiles + (stage ^ 1) * 2 * tile_bytes;
        if (key + KEYS < n_keys) {
            load_tile<KEYS, D, THREADS>(next, k, p.kv_stride, key + KEYS, p.n_past + seq.n);
            load_tile<KEYS, D, THREADS>(next + tile_bytes, v, p.kv_stride, key + KEYS, p.n_past + seq.n);
        }
        pleat__copies_commit();
        if (key > sees + WARP_ROWS - 1) continue; /* all masked */
        float s[2][KEYS / 8][4];
        dot<D>(s, q_tile, k_tile);
        if (key + KEYS - 1 > sees) mask(s, sees, key);
        soften<D>(r, s, args.scale2);
        add_values<D>(r, s, k_tile + tile_bytes);
    }
    store_rows<D>(args, r, seq, row, head);
}

template <int D>
static pleat_status launch(const pleat__prompt_args *args, pleat__device_stream stream, pleat_error *err) {
    const int bytes = (int)((ROWS + 4 * KEYS) * D * 2);
    PLEAT_CUDA_TRY(cudaFuncSetAttribute(attend<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                   "prompt attention's shared memory", err);
    const pleat__device_prompt_attn *p = &args->p;
    const dim3 grid(p->n_kv_heads * p->n_group * ((p->max_tokens + ROWS - 1) / ROWS), 1, p->n_seqs);
    attend<D><<<grid, THREADS, bytes, pleat__cuda_stream(stream)>>>(*args);
    return PLEAT_CUDA_LAUNCHED("prompt attention", err);
}

extern "C" pleat_status pleat__prompt_attend_mma(const pleat__prompt_args *args, pleat__device_stream stream,
                                                 pleat_error *err) {
    return args->p.head_dim == 64 ? launch<64>(args, stream, err) : launch<128>(args, stream, err);
}
