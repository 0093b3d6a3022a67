/* SPDX-License-Identifier: MIT
 *
 * decode_received.cu: the attention that slots received in decode, added to their scores.  See decode.h.
 */
#include "attn/cuda/decode.h"
#include "attn/cuda/decode_share.cuh"
#include "attn/cuda/ops.cuh"
#include "hw/cuda/cuda.cuh"

#define RECEIVED_THREADS 128u

typedef struct received_params {
    pleat__device_view view;
    uint32_t layer;
    const float *lse2, *logits;
    uint64_t logits_stride;
    float times;
    bool drops_logits;
} received_params;

/* log2 of the weights that head g gives four slots from `s` on. */
static __device__ float4 weights_of(const received_params &a, const float *logits, const float lse2[8], uint32_t g,
                                    uint32_t s) {
    const float2 *at = (const float2 *)(const void *)(logits + g * a.logits_stride + s);
    const float2 x = at[0], y = at[1];
    return make_float4(x.x - lse2[g], x.y - lse2[g], y.x - lse2[g], y.y - lse2[g]);
}

/* What four slots from `s` on received: the sum over the group, head by head. */
static __device__ float4 summed_by(const received_params &a, const float *logits, const float lse2[8], uint32_t s) {
    float sums[4] = {};
#pragma unroll
    for (uint32_t g = 0; g < 8; g++) {
        if (g >= a.view.n_group) break;
        const float4 x = weights_of(a, logits, lse2, g, s);
        const float of[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (int i = 0; i < 4; i++) sums[i] += power_of_two(of[i]);
    }
    return make_float4(a.times * sums[0], a.times * sums[1], a.times * sums[2], a.times * sums[3]);
}

/* The same by the logits' count: the largest over the group. */
static __device__ float4 received_by(const received_params &a, const float *logits, const float lse2[8], uint32_t s) {
    float most[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
#pragma unroll
    for (uint32_t g = 0; g < 8; g++) {
        if (g >= a.view.n_group) break;
        const float4 x = weights_of(a, logits, lse2, g, s);
        const float of[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (int i = 0; i < 4; i++) most[i] = of[i] > most[i] ? of[i] : most[i];
    }
    return make_float4(a.times * power_of_two(most[0]), a.times * power_of_two(most[1]),
                       a.times * power_of_two(most[2]), a.times * power_of_two(most[3]));
}

/* A lane, as what its slots received is added. */
typedef struct scored_lane {
    uint64_t row;
    uint32_t n_slots[2], low_from; /* [side]; where the low side begins among logits */
} scored_lane;

/* Where the scores of slots s .. s + 3 of both sides are, and how many of these are in use; NULL: they have none. */
static __device__ float *scores_of(const pleat__device_view &v, const scored_lane &l, uint32_t s, uint32_t *n) {
    const uint32_t side = s >= l.low_from, slot = side ? s - l.low_from : s;
    const uint32_t n_slots = side ? l.n_slots[1] : l.n_slots[0];
    const pleat__page_layout &layout = side ? v.layouts[1] : v.layouts[0];
    *n = slot < n_slots ? min(n_slots - slot, 4) : 0;
    if (*n == 0 || !layout.tracked || layout.n_scores != 1) return NULL;
    const uint32_t i = slot / layout.tokens, id = v.ids[l.row * v.row_len + (side ? v.row_len - 1 - i : i)];
    return (float *)(void *)(v.base + (uint64_t)id * v.page_bytes + layout.score_off) + (slot - i * layout.tokens);
}

static __device__ void add_to_scores(float *scores, uint32_t n, float4 received) {
    const float of[4] = {received.x, received.y, received.z, received.w};
    if (n == 4) {
        float4 *four = (float4 *)(void *)scores, x = *four;
        *four = make_float4(x.x + of[0], x.y + of[1], x.z + of[2], x.w + of[3]);
        return;
    }
    for (uint32_t k = 0; k < n; k++) scores[k] += of[k];
}

/* What the block has read of the logits up to `end` is not needed any more: it leaves the level-2 cache without being
 * written to memory. */
static __device__ void drop_logits(const received_params &a, const float *logits, uint32_t end) {
    constexpr uint32_t line = 32, n_lines = RECEIVED_THREADS * 4 / line;
    __syncthreads();
    for (uint32_t from = blockIdx.y * RECEIVED_THREADS * 4; from < end; from += gridDim.y * RECEIVED_THREADS * 4)
        for (uint32_t i = threadIdx.x; i < n_lines * a.view.n_group; i += RECEIVED_THREADS) {
            const uint32_t s = from + i % n_lines * line;
            const float *at = logits + i / n_lines * a.logits_stride + s;
            if (s < end) asm volatile("discard.global.L2 [%0], 128;" ::"l"(at) : "memory");
        }
}

/* Grid: lanes, and stretches of slots in turn, four a thread, of both sides as the logits have them. */
template <bool SUMS>
static __global__ void __launch_bounds__(RECEIVED_THREADS) add_received(const __grid_constant__ received_params a) {
    const pleat__device_view &v = a.view;
    const uint32_t lane = blockIdx.x, step = gridDim.y * RECEIVED_THREADS * 4;
    const uint64_t row = pleat__device_row(&v, v.seq_idxs[lane / v.n_kv_heads], a.layer, lane % v.n_kv_heads);
    const float *logits = a.logits + (uint64_t)lane * v.n_group * a.logits_stride;
    const uint32_t n_high = v.n_slots[0][row], n_low = v.n_slots[1] ? v.n_slots[1][row] : 0;
    const scored_lane l = {row, {n_high, n_low}, tiles_of(n_high) * 16};
    const uint32_t end = l.low_from + n_low;
    uint32_t s = (blockIdx.y * RECEIVED_THREADS + threadIdx.x) * 4, n = 0;
    float *scores = s < end ? scores_of(v, l, s, &n) : NULL;
    float lse2[8];
#pragma unroll
    for (uint32_t g = 0; g < 8; g++) lse2[g] = g < v.n_group ? a.lse2[(uint64_t)lane * v.n_group + g] : 0;
    while (s < end) {
        if (scores) add_to_scores(scores, n, SUMS ? summed_by(a, logits, lse2, s) : received_by(a, logits, lse2, s));
        s += step;
        scores = s < end ? scores_of(v, l, s, &n) : NULL;
    }
    if (a.drops_logits) drop_logits(a, logits, end);
}

pleat_status pleat__device_attn_received(const pleat__device_attn_args *args, pleat__device_stream stream,
                                         pleat_error *err) {
    if (!args->logits || !args->lse2 || args->layer >= args->view.n_layers)
        return pleat__error_set(err, PLEAT_E_ARG, PLEAT_NOWHERE, "attention received: no logits, or no such layer");
    if (args->view.n_seqs == 0) return PLEAT_OK;
    received_params a = {};
    a.view = args->view;
    a.view.n_slots[1] = pleat__low_slots(&args->view);
    a.layer = args->layer;
    a.lse2 = args->lse2;
    a.logits = args->logits;
    a.logits_stride = args->logits_stride;
    a.times = args->times > 0 ? args->times : 1;
    a.drops_logits = args->drops_logits;
    const dim3 grid(args->view.n_seqs * args->view.n_kv_heads, 8);
    cudaStream_t on = pleat__cuda_stream(stream); /* behind another stream's work */
    if (args->sums_heads)
        add_received<true><<<grid, RECEIVED_THREADS, 0, on>>>(a);
    else
        add_received<false><<<grid, RECEIVED_THREADS, 0, on>>>(a);
    return PLEAT_CUDA_LAUNCHED("attention received", err);
}
