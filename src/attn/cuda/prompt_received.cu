/* SPDX-License-Identifier: MIT
 *
 * prompt_received.cu: pass 2 by mma.sync: what 128 keys of one KV head receive from the queries after them.
 *
 *     warp w      keys 32w .. 32w+31, two m16 each, as A fragments in registers for the whole walk
 *     queries     32 at a time, one head of the group after the other, four tiles deep by cp.async
 *     a tile      x = max(x, (k.q)*scale2 - lse2); after the group's last head: sum += 2^x.  Where heads are summed,
 *                 after each
 *
 * The exponential of the maximum is the maximum of the exponentials, so a group costs one.  Queries are columns: the
 * group's heads meet in one register, and a thread adds up its columns alone; four threads' sums meet at the end.
 *
 * Queries may be split in spans, each a block of its own that leaves a partial sum; add_up() adds them in order.
 */
#include "attn/cuda/prompt_tile.cuh"

#define KEYS RECEIVED_KEYS
#define THREADS 128u
#define WARP_KEYS 32u
#define QUERIES 32u
#define N_STAGES 4u

static_assert(KEYS == N_STAGES * QUERIES, "the queries' stages take the keys' tile");

/* Where a block stands. */
typedef struct walk {
    const uint16_t *q; /* the prompt's first query, the group's first head */
    const float *lse2;
    uint32_t lse2_stride;
    uint32_t n_queries; /* of the prompt */
    uint32_t query;     /* the next tile's first query */
    uint32_t group;     /* the next tile's head in the group */
} walk;

/* Fetch the walk's tile into a stage and step on. */
template <int D>
static __device__ inline void fetch(const pleat__device_prompt_attn &p, walk *w, uint32_t tile, uint32_t lse2_row) {
    load_tile<QUERIES, D, THREADS>(tile, w->q + w->group * D, p.q_stride, w->query, w->n_queries);
    if (threadIdx.x < QUERIES) {
        const uint32_t query = w->query + threadIdx.x;
        const bool live = query < w->n_queries;
        pleat__copy_4_or_zeros(lse2_row + threadIdx.x * 4,
                               w->lse2 + (uint64_t)(live ? query : 0) * w->lse2_stride + w->group, live);
    }
    if (++w->group == p.n_group) {
        w->group = 0;
        w->query += QUERIES;
    }
}

/* x = max(x, logits): both [2 of 16 keys][4 of 8 queries]. */
template <int D>
static __device__ inline void meet(float (&x)[2][QUERIES / 8][4], const uint32_t (&a)[2][D / 16][4], uint32_t q_tile,
                                   const float *lse2, float scale2) {
    float s[2][QUERIES / 8][4] = {};
#pragma unroll
    for (uint32_t k = 0; k < D / 16; k++) {
#pragma unroll
        for (uint32_t n = 0; n < QUERIES / 16; n++) {
            uint32_t b[4];
            load_b<QUERIES>(b, q_tile, n * 16, k);
#pragma unroll
            for (uint32_t i = 0; i < 2; i++) {
                multiply(s[i][2 * n], a[i][k], b[0], b[1]);
                multiply(s[i][2 * n + 1], a[i][k], b[2], b[3]);
            }
        }
    }
#pragma unroll
    for (uint32_t n = 0; n < QUERIES / 8; n++) {
        const float2 shift = *reinterpret_cast<const float2 *>(lse2 + n * 8 + (threadIdx.x & 3) * 2);
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
#pragma unroll
            for (uint32_t e = 0; e < 4; e++)
                x[i][n][e] = fmaxf(x[i][n][e], fmaf(s[i][n][e], scale2, e & 1 ? -shift.y : -shift.x));
    }
}

/* sum += 2^x of the queries that attend to the key (all, or those after it and before n_queries); x starts again. */
static __device__ inline void add(float (&sum)[2][2], float (&x)[2][QUERIES / 8][4], bool all, uint32_t key,
                                  uint32_t query, uint32_t n_queries, uint32_t every) {
    const uint32_t thread = threadIdx.x & 31;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
#pragma unroll
        for (uint32_t n = 0; n < QUERIES / 8; n++) {
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) {
                const uint32_t at = query + n * 8 + (thread & 3) * 2 + (e & 1);
                const uint32_t token = (at + 1) * every - 1;
                const bool counts = all || (token > key + i * 16 + (e >> 1) * 8 + thread / 4 && at < n_queries);
                sum[i][e >> 1] += counts ? power_of_two(x[i][n][e]) : 0.0f;
                x[i][n][e] = -INFINITY;
            }
        }
    }
}

template <int D>
static __device__ inline void take_keys(uint32_t (&a)[2][D / 16][4], uint32_t tile, const uint16_t *k, uint32_t stride,
                                        uint32_t first, uint32_t n) {
    load_tile<KEYS, D, THREADS>(tile, k, stride, first, n);
    pleat__copies_commit();
    pleat__copies_wait<0>();
    __syncthreads();
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
#pragma unroll
        for (uint32_t s = 0; s < D / 16; s++) load_a<KEYS>(a[i][s], tile, threadIdx.x / 32 * WARP_KEYS + i * 16, s);
    __syncthreads();
}

static __device__ inline void store_sums(float *to, float (&sum)[2][2], uint32_t key, uint32_t n_keys, float times) {
    const uint32_t thread = threadIdx.x & 31;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            float x = sum[i][h];
            x += __shfl_xor_sync(~0u, x, 1);
            x += __shfl_xor_sync(~0u, x, 2);
            const uint32_t at = key + i * 16 + h * 8 + thread / 4;
            if ((thread & 3) == 0 && at < n_keys) to[at] = x * times;
        }
    }
}

/* Grid: KV heads times blocks of keys times splits, 1, prompts. */
template <int D> static __global__ void __launch_bounds__(THREADS, 3) receive(const pleat__prompt_args args) {
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ float lse2[N_STAGES][QUERIES];
    constexpr uint32_t tile_bytes = QUERIES * D * 2;
    const pleat__device_prompt_attn &p = args.p;
    received_part at;
    if (!take_part(args, &at)) return;
    const uint32_t head = at.head, first = at.first, from = at.from, to = at.to;
    const prompt_seq seq = at.seq;
    const uint32_t tiles = pleat__shared_address(shared);
    uint32_t a[2][D / 16][4];
    take_keys<D>(a, tiles, p.k + (uint64_t)seq.first * p.kv_stride + head * D, p.kv_stride, first, seq.n);

    walk w = {p.q + (uint64_t)seq.first * p.q_stride + (uint64_t)head * p.n_group * D,
              p.lse2 + (uint64_t)seq.first * args.lse2_stride + head * p.n_group,
              args.lse2_stride,
              seq.n / args.every,
              from,
              0};
#pragma unroll
    for (uint32_t i = 0; i < N_STAGES - 1; i++) {
        if (w.query < to) fetch<D>(p, &w, tiles + i * tile_bytes, pleat__shared_address(lse2[i]));
        pleat__copies_commit();
    }
    const uint32_t key = first + threadIdx.x / 32 * WARP_KEYS; /* the warp's first */
    float sum[2][2] = {}, x[2][QUERIES / 8][4];
    add(sum, x, false, key, 0, 0, 1); /* nothing, but x starts */
    for (uint32_t query = from, group = 0, stage = 0; query < to; stage = (stage + 1) % N_STAGES) {
        pleat__copies_wait<N_STAGES - 2>();
        __syncthreads(); /* the tile is here, and all are done with the one before, where the next goes */
        const uint32_t free = (stage + N_STAGES - 1) % N_STAGES;
        if (w.query < to) fetch<D>(p, &w, tiles + free * tile_bytes, pleat__shared_address(lse2[free]));
        pleat__copies_commit();
        meet<D>(x, a, tiles + stage * tile_bytes, lse2[stage], args.scale2);
        const bool is_last = ++group == p.n_group;
        const bool all = (query + 1) * args.every - 1 > key + WARP_KEYS - 1 && query + QUERIES <= to;
        if (is_last || p.sums_heads) add(sum, x, all, key, query, to, args.every);
        if (!is_last) continue;
        group = 0;
        query += QUERIES;
    }
    store_sums(at.out, sum, key, seq.n, (float)args.every);
}

/* Grid: blocks of keys, KV heads, prompts.  A key's first split is the one that its block is in. */
static __global__ void __launch_bounds__(KEYS) add_up(const pleat__prompt_args args) {
    const pleat__device_prompt_attn &p = args.p;
    const prompt_seq seq = find_seq(p, blockIdx.z);
    const uint32_t key = blockIdx.x * KEYS + threadIdx.x;
    if (key >= seq.n) return;
    const uint64_t at = (uint64_t)blockIdx.y * p.n_tokens + seq.first + key;
    const uint32_t own = blockIdx.x * KEYS / args.every / args.span, n_queries = seq.n / args.every;
    float sum = 0;
    for (uint32_t s = own; s < args.n_splits && (s == own || s * args.span < n_queries); s++)
        sum += args.partial[(uint64_t)s * p.n_kv_heads * p.n_tokens + at];
    p.received[at] = sum;
}

template <int D>
static pleat_status launch(const pleat__prompt_args *args, pleat__device_stream stream, pleat_error *err) {
    const int bytes = (int)(KEYS * D * 2);
    const pleat__device_prompt_attn *p = &args->p;
    const dim3 grid(p->n_kv_heads * ((p->max_tokens + KEYS - 1) / KEYS) * args->n_splits, 1, p->n_seqs);
    receive<D><<<grid, THREADS, bytes, pleat__cuda_stream(stream)>>>(*args);
    return PLEAT_CUDA_LAUNCHED("attention received", err);
}

extern "C" pleat_status pleat__prompt_received_mma(const pleat__prompt_args *args, pleat__device_stream stream,
                                                   pleat_error *err) {
    return args->p.head_dim == 64 ? launch<64>(args, stream, err) : launch<128>(args, stream, err);
}

extern "C" pleat_status pleat__prompt_add_up(const pleat__prompt_args *args, pleat__device_stream stream,
                                             pleat_error *err) {
    const pleat__device_prompt_attn *p = &args->p;
    const dim3 grid((p->max_tokens + KEYS - 1) / KEYS, p->n_kv_heads, p->n_seqs);
    add_up<<<grid, KEYS, 0, pleat__cuda_stream(stream)>>>(*args);
    return PLEAT_CUDA_LAUNCHED("attention received, summed", err);
}
