/* SPDX-License-Identifier: MIT
 *
 * prompt_received_wgmma.cu: pass 2 on Hopper: what 128 keys of one KV head receive from the queries after them.  With
 * the tensor maps that both passes copy by.
 *
 *     warpgroup 0      bulk copies of the keys, then of tiles of 128 queries, one head of the group after the other,
 *                      four stages; its threads bring a tile's lse2
 *     warpgroups 1, 2  64 keys each are rows, queries are columns: x = max(x, (k.q)*scale2 - lse2); after the group's
 *                      last head sum += 2^x
 *
 * Queries past the prompt's end get lse2 = infinity and so count nothing.  Only the first tile crosses the diagonal.
 * Splits and partial sums are those of prompt_received.cu.
 */
#include "attn/cuda/prompt_wgmma.cuh"

#define STAGES 4u

typedef struct received_barriers {
    uint64_t k_full, full[STAGES], empty[STAGES];
    float lse2[STAGES][TILE_ROWS];
} received_barriers;

/* Where a block stands. */
struct received_place : received_part {
    uint32_t k_tile, q_tiles; /* shared addresses */
};

static_assert(RECEIVED_KEYS == TILE_ROWS, "a block's keys are a tile");

#if PLEAT__HAS_WGMMA

/* All of warpgroup 0. */
template <int D>
static __device__ inline void produce(const pleat__prompt_args &args, const received_place &at, const prompt_maps &maps,
                                      received_barriers *b) {
    const pleat__device_prompt_attn &p = args.p;
    constexpr uint32_t bytes = TILE_ROWS * D * 2;
    if (threadIdx.x == 0) {
        barrier_expect(&b->k_full, bytes);
        copy_tile<D>(at.k_tile, &maps.k, at.head, at.seq.first + at.first, &b->k_full);
    }
    uint32_t i = 0;
    for (uint32_t query = at.from; query < at.to; query += TILE_ROWS) {
        const uint32_t own = query + threadIdx.x;
        const float *lse2 = p.lse2 + (uint64_t)(at.seq.first + own) * args.lse2_stride + at.head * p.n_group;
        for (uint32_t g = 0; g < p.n_group; g++, i++) {
            const uint32_t stage = i % STAGES;
            const float shift = own < at.to ? lse2[g] : INFINITY;
            barrier_wait(&b->empty[stage], (i / STAGES & 1) ^ 1);
            b->lse2[stage][threadIdx.x] = shift;
            if (threadIdx.x == 0) {
                barrier_expect(&b->full[stage], bytes);
                copy_tile<D>(at.q_tiles + stage * bytes, &maps.q, at.head * p.n_group + g, at.seq.first + query,
                             &b->full[stage]);
            } else {
                barrier_arrive(&b->full[stage]);
            }
        }
    }
}

/* x = the logits of s, or the maximum of both.  NaN, which queries past the end may give, is never a maximum. */
template <bool FIRST>
static __device__ inline void meet(float (&x)[64], const float (&s)[64], const float *lse2, float scale2) {
#pragma unroll
    for (uint32_t n = 0; n < 16; n++) {
        const float2 shift = *reinterpret_cast<const float2 *>(lse2 + n * 8 + (threadIdx.x & 3) * 2);
#pragma unroll
        for (uint32_t e = 0; e < 4; e++) {
            const float logit = fmaf(s[n * 4 + e], scale2, e & 1 ? -shift.y : -shift.x);
            x[n * 4 + e] = fmaxf(FIRST ? -INFINITY : x[n * 4 + e], logit);
        }
    }
}

/* sum += 2^x; of the diagonal's tile only queries after the key.  `key` is the thread's first row. */
template <bool DIAGONAL>
static __device__ inline void add(float (&sum)[2], const float (&x)[64], uint32_t key, uint32_t every) {
    const uint32_t column = (threadIdx.x & 3) * 2;
#pragma unroll
    for (uint32_t i = 0; i < 64; i++) {
        const uint32_t query = i / 4 * 8 + column + (i & 1);
        const bool counts = !DIAGONAL || (query + 1) * every - 1 > key + (i >> 1 & 1) * 8;
        sum[i >> 1 & 1] += counts ? power_of_two(x[i]) : 0.0f;
    }
}

/* What a thread of a consumer holds. */
template <int D> struct receive_rows {
    uint32_t k[D / 16][4]; /* its warp's 16 keys as A fragments */
    float x[64];           /* largest logits so far of a tile's queries */
    float sum[2];          /* what its two keys received */
    uint32_t key;          /* the first of its keys in the block; the second is 8 more */
    uint32_t every;        /* tokens from query to query */
};

/* Products with a tile, left under way. */
template <int D> static __device__ inline void start(float (&s)[64], const receive_rows<D> &r, uint32_t q_low) {
    wgmma_begin();
#pragma unroll
    for (uint32_t k = 0; k < D / 16; k++) wgmma<0>(s, r.k[k], descriptor(q_low, element_bytes(k)), k > 0);
    wgmma_commit();
}

template <int D>
static __device__ inline void rows_init(receive_rows<D> &r, const received_place &at, received_barriers *b) {
    const uint32_t row = (threadIdx.x / 32 - 4) * 16;
    r.key = row + (threadIdx.x & 31) / 4;
    r.sum[0] = r.sum[1] = 0;
    barrier_wait(&b->k_full, 0);
#pragma unroll
    for (uint32_t k = 0; k < D / 16; k++) load_a<TILE_ROWS>(r.k[k], at.k_tile, row, k);
}

/* What a tile's queries give, once all heads of the group are met. */
template <int D> static __device__ inline void add_tile(receive_rows<D> &r, bool is_diagonal) {
    if (is_diagonal)
        add<true>(r.sum, r.x, r.key, r.every);
    else
        add<false>(r.sum, r.x, r.key, r.every);
}

/* What a tile gives is added up beside the next one's first product.  Warpgroups take no turns: with them, and in halves of
 * 64 queries, it took a tenth longer (H200, 2026-11-29).  The wait for the next tile stands where it keeps ptxas from moving
 * the wait for products up. */
template <int D>
static __device__ inline void consume(receive_rows<D> &r, const received_place &at, received_barriers *b,
                                      uint32_t n_group, float scale2) {
    const uint32_t n_tiles = (at.to - at.from + TILE_ROWS - 1) / TILE_ROWS * n_group;
    float s[64];
    barrier_wait(&b->full[0], 0);
    for (uint32_t i = 0, g = 0; i < n_tiles; g = g + 1 == n_group ? 0 : g + 1) {
        const uint32_t stage = i % STAGES, q_low = describe(at.q_tiles + stage * (TILE_ROWS * D * 2), 16);
        start<D>(s, r, q_low);
        if (g == 0 && i > 0) add_tile(r, at.from * r.every == at.first && i == n_group);
        i++;
        if (i < n_tiles) barrier_wait(&b->full[i % STAGES], i / STAGES & 1);
        wgmma_wait<0>();
        settle(s);
        if (g == 0)
            meet<true>(r.x, s, b->lse2[stage], scale2);
        else
            meet<false>(r.x, s, b->lse2[stage], scale2);
        barrier_arrive(&b->empty[stage]);
    }
    add_tile(r, at.from * r.every == at.first && n_tiles == n_group);
}

static __device__ inline void store_sums(float *to, const float (&sum)[2], uint32_t key, uint32_t n_keys, float times) {
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        float x = sum[h];
        x += __shfl_xor_sync(~0u, x, 1);
        x += __shfl_xor_sync(~0u, x, 2);
        if ((threadIdx.x & 3) == 0 && key + h * 8 < n_keys) to[key + h * 8] = x * times;
    }
}

#endif

/* Grid: KV heads times blocks of keys times splits, 1, prompts. */
template <int D>
static __global__ void __launch_bounds__(WGMMA_THREADS, 1)
    received_wgmma(const pleat__prompt_args args, const __grid_constant__ prompt_maps maps) {
#if PLEAT__HAS_WGMMA
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ received_barriers barriers;
    const pleat__device_prompt_attn &p = args.p;
    received_place at;
    if (!take_part(args, &at)) return;
    at.k_tile = (pleat__shared_address(shared) + 1023) & ~1023u;
    at.q_tiles = at.k_tile + TILE_ROWS * D * 2;
    if (threadIdx.x == 0) {
        barrier_init(&barriers.k_full, 1);
        for (uint32_t i = 0; i < STAGES; i++) {
            barrier_init(&barriers.full[i], 128);
            barrier_init(&barriers.empty[i], CONSUMERS * 128);
        }
        barriers_publish();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        registers_give<40>();
        produce<D>(args, at, maps, &barriers);
    } else {
        registers_take<232>();
        receive_rows<D> r;
        r.every = args.every;
        rows_init<D>(r, at, &barriers);
        consume<D>(r, at, &barriers, p.n_group, args.scale2);
        store_sums(at.out, r.sum, at.first + r.key, at.seq.n, (float)args.every);
    }
#else
    (void)args;
    (void)maps;
#endif
}

template <int D>
static pleat_status launch(const pleat__prompt_args *args, const prompt_maps *maps, pleat__device_stream stream,
                           pleat_error *err) {
    const int bytes = (int)((1 + STAGES) * TILE_ROWS * D * 2 + 1024);
    PLEAT_CUDA_TRY(cudaFuncSetAttribute(received_wgmma<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                   "attention received: shared memory", err);
    const pleat__device_prompt_attn *p = &args->p;
    const dim3 grid(p->n_kv_heads * ((p->max_tokens + TILE_ROWS - 1) / TILE_ROWS) * args->n_splits, 1, p->n_seqs);
    received_wgmma<D><<<grid, WGMMA_THREADS, bytes, pleat__cuda_stream(stream)>>>(*args, *maps);
    return PLEAT_CUDA_LAUNCHED("attention received", err);
}

extern "C" pleat_status pleat__prompt_received_wgmma(const pleat__prompt_args *args, const prompt_maps *maps,
                                                     pleat__device_stream stream, pleat_error *err) {
    return args->p.head_dim == 64 ? launch<64>(args, maps, stream, err) : launch<128>(args, maps, stream, err);
}

/* ---- tensor maps ---------------------------------------------------------------------------------- */

typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                              const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static bool encode(encode_fn fn, CUtensorMap *map, const uint16_t *data, const pleat__device_prompt_attn *p,
                   uint32_t n_tokens, uint32_t n_heads, uint32_t stride) {
    const cuuint64_t sizes[3] = {p->head_dim, n_heads, n_tokens};
    const cuuint64_t strides[2] = {(cuuint64_t)p->head_dim * 2, (cuuint64_t)stride * 2};
    const cuuint32_t box[3] = {64, 1, TILE_ROWS}, steps[3] = {1, 1, 1};
    return fn(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, const_cast<uint16_t *>(data), sizes, strides, box, steps,
              CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

static pleat_status find_encode(encode_fn *make, pleat_error *err) {
    void *fn = NULL;
    cudaDriverEntryPointQueryResult found;
    PLEAT_CUDA_TRY(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &fn, 12000, cudaEnableDefault, &found),
                   "finding the driver's tensor maps", err);
    PLEAT_FAIL_IF(found != cudaDriverEntryPointSuccess || !fn, err, PLEAT_E_DEVICE, PLEAT_NOWHERE,
                  "the driver has no tensor maps");
    *make = reinterpret_cast<encode_fn>(fn);
    return PLEAT_OK;
}

extern "C" pleat_status pleat__prompt_maps(const pleat__device_prompt_attn *p, prompt_maps *maps, pleat_error *err) {
    encode_fn make;
    PLEAT_TRY(find_encode(&make, err));
    const uint32_t n_heads = p->n_kv_heads * p->n_group, n_keys = p->n_past + p->n_tokens;
    PLEAT_FAIL_IF(!encode(make, &maps->q, p->q, p, p->n_tokens, n_heads, p->q_stride) ||
                      !encode(make, &maps->k, p->k, p, n_keys, p->n_kv_heads, p->kv_stride) ||
                      !encode(make, &maps->v, p->v, p, n_keys, p->n_kv_heads, p->kv_stride),
                  err, PLEAT_E_DEVICE, PLEAT_NOWHERE, "the driver refuses a prompt's tensor map");
    return PLEAT_OK;
}

extern "C" pleat_status pleat__prompt_query_map(const pleat__prompt_args *args, prompt_maps *maps, pleat_error *err) {
    const pleat__device_prompt_attn *p = &args->p;
    encode_fn make;
    PLEAT_TRY(find_encode(&make, err));
    PLEAT_FAIL_IF(!encode(make, &maps->q, p->q, p, p->n_tokens / args->every, p->n_kv_heads * p->n_group, p->q_stride),
                  err, PLEAT_E_DEVICE, PLEAT_NOWHERE, "the driver refuses a prompt's tensor map");
    return PLEAT_OK;
}
