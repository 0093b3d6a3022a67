/* SPDX-License-Identifier: MIT
 *
 * prompt_attend_wgmma.cu: pass 1 on Hopper: out and lse2 of 128 queries of one head per block.
 *
 *     warpgroup 0      one thread starts bulk copies of q, then of K and V tiles, two stages each; a warp clears what
 *                      the diagonal's V holds past the prompt's end
 *     warpgroups 1, 2  64 queries each: s and o in registers, q, K and V from shared memory
 *
 * From the diagonal down, so that only the first tile is masked.  While a tile's weights are made from s, the tile
 * before's weights meet its values:
 *
 *     s = q.K[j]      ─ start ────────── wait ── p' = 2^(s..) ──────────┐
 *     o += p V[j+1]   ───── start ─────────────────────────── wait ── o *= shrink, p = p'
 *
 * and the two warpgroups start products in turns.  A chunk's blocks stand where a whole prompt's would: rows of the first
 * that are before the chunk are zeros, and are not written.  After FlashAttention-3 (Shah et al. 2024, sections 3.1 and 3.2).
 */
#include "attn/cuda/prompt_wgmma.cuh"

#define STAGES 2u

typedef struct attend_barriers {
    uint64_t q_full, k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
    uint64_t v_clear; /* the diagonal's tile has zeros past the prompt's end */
} attend_barriers;

/* Where a block stands. */
typedef struct attend_place {
    prompt_seq seq;
    uint32_t head;     /* query head */
    uint32_t first;    /* query's key: a multiple of TILE_ROWS */
    uint32_t n_past;   /* keys before the prompt's first query */
    uint32_t n_tiles;  /* of keys, the diagonal's included */
    uint32_t q_tile;   /* shared addresses */
    uint32_t kv_tiles; /* [stage] K, V */
} attend_place;

#if PLEAT__HAS_WGMMA

template <int C> static __device__ inline void init_barriers(attend_barriers *b) {
    barrier_init(&b->q_full, 1);
    barrier_init(&b->v_clear, 32);
    for (uint32_t i = 0; i < STAGES; i++) {
        barrier_init(&b->k_full[i], 1);
        barrier_init(&b->v_full[i], 1);
        barrier_init(&b->k_empty[i], C * CONSUMERS * 4);
        barrier_init(&b->v_empty[i], C * CONSUMERS * 4);
    }
    barriers_publish();
}

/* One thread. */
template <int D, int C>
static __device__ inline void produce(const attend_place &at, const prompt_maps &maps, uint32_t kv_head,
                                      attend_barriers *b) {
    constexpr uint32_t bytes = TILE_ROWS * D * 2;
    barrier_expect(&b->q_full, bytes);
    copy_tile<D>(at.q_tile, &maps.q, at.head, at.seq.first + at.first - at.n_past, &b->q_full); /* below 0: zeros */
    for (uint32_t i = 0; i < at.n_tiles; i++) {
        const uint32_t stage = i % STAGES, parity = (i / STAGES & 1) ^ 1;
        const uint32_t token = at.seq.first + (at.n_tiles - 1 - i) * TILE_ROWS;
        const uint32_t tile = at.kv_tiles + stage * 2 * bytes;
        barrier_wait(&b->k_empty[stage], parity);
        barrier_expect(&b->k_full[stage], bytes);
        copy_shared_tile<D, C>(tile, &maps.k, kv_head, token, &b->k_full[stage]);
        barrier_wait(&b->v_empty[stage], parity);
        barrier_expect(&b->v_full[stage], bytes);
        copy_shared_tile<D, C>(tile + bytes, &maps.v, kv_head, token, &b->v_full[stage]);
    }
}

static __device__ inline bool is_ragged(const attend_place &at) { return at.first + TILE_ROWS > at.n_past + at.seq.n; }

/* One warp: zeros for what the first tile of V holds of the next prompt, as weights of 0 do not stop its NaN. */
template <int D> static __device__ inline void clear_values(const attend_place &at, attend_barriers *b) {
    constexpr uint32_t panel_bytes = TILE_ROWS * 128;
    const uint32_t live_bytes = (at.n_past + at.seq.n - at.first) * 128, v_tile = at.kv_tiles + TILE_ROWS * D * 2;
    barrier_wait(&b->v_full[0], 0);
#pragma unroll
    for (uint32_t panel = 0; panel < D / 64; panel++)
        for (uint32_t i = live_bytes + (threadIdx.x & 31) * 16; i < panel_bytes; i += 32 * 16)
            asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(v_tile + panel * panel_bytes + i), "r"(0)
                         : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    barrier_arrive(&b->v_clear);
}

/* Until the i-th tile of K is here, if there is one. */
static __device__ inline void wait_keys(const attend_place &at, attend_barriers *b, uint32_t i) {
    if (i < at.n_tiles) barrier_wait(&b->k_full[i % STAGES], i / STAGES & 1);
}

/* Until the i-th tile of V is here. */
static __device__ inline void wait_values(const attend_place &at, attend_barriers *b, uint32_t i) {
    barrier_wait(&b->v_full[i % STAGES], i / STAGES & 1);
    if (i == 0 && is_ragged(at)) barrier_wait(&b->v_clear, 0);
}

/* What a thread holds of its two rows, thread/4 and 8 more. */
template <int D> struct attend_rows {
    float o[D / 2];
    float m[2], l[2], shrink[2];
    uint32_t p[TILE_ROWS / 16][4]; /* weights as A fragments */
};

/* The diagonal's tile: key c of it is seen by row c and later. */
static __device__ inline void mask_diagonal(float (&s)[64], uint32_t row) {
    const uint32_t column = (threadIdx.x & 3) * 2;
#pragma unroll
    for (uint32_t i = 0; i < 64; i++)
        if (i / 4 * 8 + column + (i & 1) > row + (i >> 1 & 1) * 8) s[i] = -INFINITY;
}

/* Turns s into weights relative to the new maxima, and notes by what older ones shrink. */
template <int D> static __device__ inline void soften(attend_rows<D> &r, float (&s)[64], float scale2) {
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        float top = r.m[h];
#pragma unroll
        for (uint32_t i = 2 * h; i < 64; i += 4) top = fmaxf(top, fmaxf(s[i], s[i + 1]));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        const float shift = top * scale2;
        r.shrink[h] = power_of_two((r.m[h] - top) * scale2);
        r.m[h] = top;
        float sum = 0;
#pragma unroll
        for (uint32_t i = 2 * h; i < 64; i += 4) {
            s[i] = power_of_two(fmaf(s[i], scale2, -shift));
            s[i + 1] = power_of_two(fmaf(s[i + 1], scale2, -shift));
            sum += s[i] + s[i + 1];
        }
        r.l[h] = fmaf(r.l[h], r.shrink[h], sum);
    }
}

template <int D> static __device__ inline void pack(attend_rows<D> &r, const float (&s)[64]) {
#pragma unroll
    for (uint32_t i = 0; i < 32; i++) r.p[i / 4][i % 4] = floats_to_halves(s[2 * i], s[2 * i + 1]);
}

/* o += p V, left under way. */
template <int D> static __device__ inline void add_values(attend_rows<D> &r, uint32_t v_tile) {
    const uint32_t v_low = describe(v_tile, TILE_ROWS * 128);
#pragma unroll
    for (uint32_t k = 0; k < TILE_ROWS / 16; k++) wgmma<1>(r.o, r.p[k], descriptor(v_low, row_bytes(k)), true);
    wgmma_commit();
}

/* A warp has read: here, and for the other of a pair. */
template <int C> static __device__ inline void release(uint64_t *b) {
    if constexpr (C == 1) {
        if ((threadIdx.x & 31) == 0) barrier_arrive(b);
    } else {
        if ((threadIdx.x & 31) < C) pleat__bar_arrive_at(pleat__shared_address(b), threadIdx.x & 31);
    }
}

/* o shrinks by what the last tile's maxima grew.  In pairs, which are for what power limits, only if one did. */
template <int D, int C> static __device__ inline void shrink_rows(attend_rows<D> &r) {
    if (C > 1 && !__any_sync(~0u, r.shrink[0] != 1 || r.shrink[1] != 1)) return;
#pragma unroll
    for (uint32_t c = 0; c < D / 2; c++) r.o[c] *= r.shrink[c >> 1 & 1];
}

/* One warpgroup's rows, from tile row `row0` on. */
template <int D, int C>
static __device__ inline void consume(attend_rows<D> &r, const attend_place &at, attend_barriers *b, uint32_t row0,
                                      float scale2) {
    constexpr uint32_t bytes = TILE_ROWS * D * 2;
    const uint32_t q_low = describe(at.q_tile + row0 * 128, 16);
    float s[64];
    if (threadIdx.x >= 256 && at.n_tiles > 1) turn_pass();
    barrier_wait(&b->q_full, 0);
    wait_keys(at, b, 0);
    wgmma_begin();
    wgmma_dot<D>(s, q_low, at.kv_tiles);
    wgmma_wait<0>();
    settle(s);
    release<C>(&b->k_empty[0]);
    mask_diagonal(s, row0 + (threadIdx.x & 127) / 32 * 16 + (threadIdx.x & 31) / 4);
    soften<D>(r, s, scale2);
    pack<D>(r, s);
    wait_keys(at, b, 1);
    for (uint32_t i = 1; i < at.n_tiles; i++) {
        const uint32_t stage = i % STAGES, before = (i - 1) % STAGES;
        wait_values(at, b, i - 1);
        turn_wait();
        wgmma_begin();
        wgmma_dot<D>(s, q_low, at.kv_tiles + stage * 2 * bytes);
        add_values<D>(r, at.kv_tiles + before * 2 * bytes + bytes);
        if (threadIdx.x < 256 || i + 1 < at.n_tiles) turn_pass();
        wgmma_wait<1>();
        settle(s);
        release<C>(&b->k_empty[stage]);
        soften<D>(r, s, scale2);
        wait_keys(at, b, i + 1); /* here, where it keeps ptxas from moving the next wait above the weights */
        wgmma_wait<0>();
        settle(r.o);
        release<C>(&b->v_empty[before]);
        shrink_rows<D, C>(r);
        pack<D>(r, s);
    }
    const uint32_t last = (at.n_tiles - 1) % STAGES;
    wait_values(at, b, at.n_tiles - 1);
    wgmma_begin();
    add_values<D>(r, at.kv_tiles + last * 2 * bytes + bytes);
    wgmma_wait<0>();
    settle(r.o);
}

/* `row` is the thread's first query's key. */
template <int D>
static __device__ inline void store_rows(const pleat__prompt_args &args, const attend_rows<D> &r,
                                         const attend_place &at, uint32_t row) {
    const uint32_t thread = threadIdx.x & 31, n_heads = args.p.n_kv_heads * args.p.n_group;
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        float l = r.l[h];
        l += __shfl_xor_sync(~0u, l, 1);
        l += __shfl_xor_sync(~0u, l, 2);
        const uint32_t query = row + h * 8 - at.n_past; /* huge: before the chunk */
        if (query >= at.seq.n) continue;
        const uint64_t token = at.seq.first + query;
        const float one = 1 / l;
        if ((thread & 3) == 0) args.p.lse2[token * n_heads + at.head] = fmaf(r.m[h], args.scale2, log2f(l));
#pragma unroll
        for (uint32_t n = 0; n < D / 8; n++)
            store_pair(args.p, token * args.p.out_stride + at.head * D + n * 8 + (thread & 3) * 2,
                       r.o[n * 4 + 2 * h] * one, r.o[n * 4 + 2 * h + 1] * one);
    }
}

template <int D, int C>
static __device__ inline void consume_and_store(const pleat__prompt_args &args, const attend_place &at,
                                                attend_barriers *b) {
    attend_rows<D> r;
#pragma unroll
    for (uint32_t c = 0; c < D / 2; c++) r.o[c] = 0;
    r.m[0] = r.m[1] = -INFINITY;
    r.l[0] = r.l[1] = 0;
    const uint32_t row0 = (threadIdx.x / 128 - 1) * 64;
    consume<D, C>(r, at, b, row0, args.scale2);
    store_rows<D>(args, r, at, at.first + row0 + (threadIdx.x & 127) / 32 * 16 + (threadIdx.x & 31) / 4);
}

#endif

/* Grid: query heads times blocks of queries, 1, prompts.  A pair has two heads of a group. */
template <int D, int C>
static __global__ void __launch_bounds__(WGMMA_THREADS, 1)
    attend_wgmma(const pleat__prompt_args args, const __grid_constant__ prompt_maps maps) {
#if PLEAT__HAS_WGMMA
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ attend_barriers barriers;
    const pleat__device_prompt_attn &p = args.p;
    const prompt_turn turn = take_turn(args.turn_heads[0], p.n_kv_heads * p.n_group);
    attend_place at = {find_seq(p, blockIdx.z), turn.head, 0, p.n_past, 0, 0, 0};
    at.first = ((p.n_past + p.max_tokens + TILE_ROWS - 1) / TILE_ROWS - 1 - turn.block) * TILE_ROWS;
    if (at.first >= p.n_past + at.seq.n) return;
    at.n_tiles = at.first / TILE_ROWS + 1;
    at.q_tile = (pleat__shared_address(shared) + 1023) & ~1023u;
    at.kv_tiles = at.q_tile + TILE_ROWS * D * 2;
    if (threadIdx.x == 0) init_barriers<C>(&barriers);
    meet_blocks<C>();
    if (threadIdx.x < 128) {
        registers_give<40>();
        if (threadIdx.x == 0)
            produce<D, C>(at, maps, at.head / p.n_group, &barriers);
        else if (threadIdx.x / 32 == 1 && is_ragged(at))
            clear_values<D>(at, &barriers);
    } else {
        registers_take<232>();
        consume_and_store<D, C>(args, at, &barriers);
    }
    if constexpr (C > 1) meet_blocks<C>();
#else
    (void)args;
    (void)maps;
#endif
}

template <int D, int C>
static pleat_status launch(const pleat__prompt_args *args, const prompt_maps *maps, pleat__device_stream stream,
                           pleat_error *err) {
    const int bytes = (int)((1 + 2 * STAGES) * TILE_ROWS * D * 2 + 1024);
    const pleat__device_prompt_attn *p = &args->p;
    const uint32_t n_blocks = (p->n_past + p->max_tokens + TILE_ROWS - 1) / TILE_ROWS - p->n_past / TILE_ROWS;
    const dim3 grid(p->n_kv_heads * p->n_group * n_blocks, 1, p->n_seqs);
    return launch_blocks<C>(attend_wgmma<D, C>, grid, bytes, args, maps, stream, err);
}

extern "C" pleat_status pleat__prompt_attend_wgmma(const pleat__prompt_args *args, const prompt_maps *maps,
                                                   pleat__device_stream stream, pleat_error *err) {
    if (args->p.head_dim == 64) return launch<64, 1>(args, maps, stream, err);
    return args->in_pairs && args->p.n_group % 2 == 0 ? launch<128, 2>(args, maps, stream, err)
                                                      : launch<128, 1>(args, maps, stream, err);
}

extern "C" pleat_status pleat__prompt_has_wgmma(bool *has, pleat_error *err) {
    cudaFuncAttributes attributes = {};
    PLEAT_CUDA_TRY(cudaFuncGetAttributes(&attributes, attend_wgmma<128, 1>), "prompt attention's code", err);
    *has = attributes.sharedSizeBytes > 0;
    return PLEAT_OK;
}
