/* SPDX-License-Identifier: MIT
 *
 * novelty.cu: see novelty.h.  A key is with a warp, its pairs thread, thread + 32, ...: those that turn first.
 */
#include "cache/cuda/lanes.cuh"

#define NEAR_TURNS 256u /* policy/novelty.h's PLEAT__NEAR_TURNS */
#define WARPS 8u
#define NEAR_MOST 16u   /* the spec's largest `near` */
#define LEAST 0x1p-126f /* of own: none ranks as unscored */

/* A thread's share of a key before RoPE, and of what has its shape. */
template <int D> struct key_part { float a[D / 64], b[D / 64]; };

/* The dimensions of pair i. */
static __device__ inline uint2 dims_of(const pleat__device_turns *t, uint32_t pair) {
    if (t && pair < t->n_pairs) return make_uint2(t->first * pair, t->first * pair + t->other);
    return make_uint2(2 * pair, 2 * pair + 1);
}

template <int D> static __device__ inline uint2 my_dims(const pleat__device_turns *t, int i) {
    return dims_of(t, threadIdx.x % 32 + 32 * i);
}

static __device__ inline float sum_of_warp(float x) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) x += __shfl_xor_sync(PLEAT__ALL_THREADS, x, apart);
    return x;
}

/* pleat__key_tile_unturn() of a token; gives its scale. */
template <int D>
static __device__ inline float unturn(const pleat__device_turns *t, uint32_t position, key_part<D> *k) {
    float square = 0;
#pragma unroll
    for (int i = 0; i < D / 64; i++) {
        const uint32_t pair = threadIdx.x % 32 + 32 * i;
        if (t && pair < t->n_pairs) {
            const float *near = t->near + (uint64_t)(position % NEAR_TURNS) * 2 * t->n_pairs + pair;
            const float *far = t->far + (uint64_t)(position / NEAR_TURNS) * 2 * t->n_pairs + pair;
            const float c = near[0] * far[0] - near[t->n_pairs] * far[t->n_pairs];
            const float s = near[t->n_pairs] * far[0] + near[0] * far[t->n_pairs];
            const float x = k->a[i], y = k->b[i];
            k->a[i] = c * x + s * y;
            k->b[i] = c * y - s * x;
        }
        square += k->a[i] * k->a[i] + k->b[i] * k->b[i];
    }
    square = sum_of_warp(square);
    return square > 0 ? 1 / sqrtf(square) : 0;
}

template <int D> static __device__ inline float own_of(const key_part<D> &k, float scale, const key_part<D> &mean) {
    float dot = 0;
#pragma unroll
    for (int i = 0; i < D / 64; i++) dot += k.a[i] * mean.a[i] + k.b[i] * mean.b[i];
    return fmaxf(1 - sum_of_warp(dot) * scale, LEAST);
}

template <int D> static __device__ inline key_part<D> read_floats(const pleat__device_turns *t, const float *from) {
    key_part<D> k;
#pragma unroll
    for (int i = 0; i < D / 64; i++) {
        const uint2 at = my_dims<D>(t, i);
        k.a[i] = from[at.x];
        k.b[i] = from[at.y];
    }
    return k;
}

static __device__ inline const pleat__device_turns *turns_of(const pleat__device_novelty &n, uint32_t layer) {
    const uint32_t which = n.turns_of[layer];
    return which < n.n_turns ? &n.turns[which] : NULL;
}

/* ---- a prompt -------------------------------------------------------------------------------------------- */

/* A token's key as it was handed in, unturned. */
template <int D>
static __device__ inline key_part<D> prompt_key(const pleat__device_lanes &l, const pleat__device_prompt &p,
                                                const pleat__device_turns *t, uint32_t head, uint32_t token,
                                                float *scale) {
    const __half *from = (const __half *)p.k + ((uint64_t)token * l.n_kv_heads + head) * D;
    key_part<D> k;
#pragma unroll
    for (int i = 0; i < D / 64; i++) {
        const uint2 at = my_dims<D>(t, i);
        k.a[i] = pleat__device_clamp(__half2float(from[at.x]));
        k.b[i] = pleat__device_clamp(__half2float(from[at.y]));
    }
    *scale = unturn<D>(t, token, &k);
    return k;
}

/* Grid: parts, heads. */
template <int D>
static __global__ void __launch_bounds__(WARPS * 32)
    add_keys(const __grid_constant__ pleat__device_lanes l, const __grid_constant__ pleat__device_prompt p) {
    __shared__ float sums[WARPS][D];
    const uint32_t head = blockIdx.y, warp = threadIdx.x / 32;
    const pleat__device_turns *t = turns_of(l.novelty, p.layer);
    key_part<D> sum = {};
    for (uint32_t token = blockIdx.x * WARPS + warp; token < p.n_tokens; token += PLEAT__NOVELTY_PARTS * WARPS) {
        float scale;
        const key_part<D> k = prompt_key<D>(l, p, t, head, token, &scale);
#pragma unroll
        for (int i = 0; i < D / 64; i++) {
            sum.a[i] += k.a[i] * scale;
            sum.b[i] += k.b[i] * scale;
        }
    }
#pragma unroll
    for (int i = 0; i < D / 64; i++) {
        const uint2 at = my_dims<D>(t, i);
        sums[warp][at.x] = sum.a[i];
        sums[warp][at.y] = sum.b[i];
    }
    __syncthreads();
    if (threadIdx.x >= D) return;
    float all = 0;
    for (uint32_t w = 0; w < WARPS; w++) all += sums[w][threadIdx.x];
    l.novelty.parts[((uint64_t)head * PLEAT__NOVELTY_PARTS + blockIdx.x) * D + threadIdx.x] = all;
}

/* pleat__key_mean() of a sum in a warp. */
template <int D> static __device__ inline key_part<D> mean_of(const key_part<D> &sum) {
    double square = 0;
#pragma unroll
    for (int i = 0; i < D / 64; i++) square += (double)sum.a[i] * sum.a[i] + (double)sum.b[i] * sum.b[i];
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) square += __shfl_xor_sync(PLEAT__ALL_THREADS, square, apart);
    const double scale = square > 0 ? 1 / sqrt(square) : 0;
    key_part<D> mean;
#pragma unroll
    for (int i = 0; i < D / 64; i++) {
        mean.a[i] = (float)(sum.a[i] * scale);
        mean.b[i] = (float)(sum.b[i] * scale);
    }
    return mean;
}

template <int D>
static __device__ inline void write_floats(const pleat__device_turns *t, const key_part<D> &k, float *to) {
#pragma unroll
    for (int i = 0; i < D / 64; i++) {
        const uint2 at = my_dims<D>(t, i);
        to[at.x] = k.a[i];
        to[at.y] = k.b[i];
    }
}

/* A warp a head. */
template <int D>
static __global__ void __launch_bounds__(32)
    mean_key(const __grid_constant__ pleat__device_lanes l, const __grid_constant__ pleat__device_prompt p) {
    const uint32_t head = blockIdx.x;
    const pleat__device_turns *t = turns_of(l.novelty, p.layer);
    const float *parts = l.novelty.parts + (uint64_t)head * PLEAT__NOVELTY_PARTS * D;
    key_part<D> sum = {};
    for (uint32_t part = 0; part < PLEAT__NOVELTY_PARTS; part++) {
        const key_part<D> k = read_floats<D>(t, parts + part * D);
#pragma unroll
        for (int i = 0; i < D / 64; i++) {
            sum.a[i] += k.a[i];
            sum.b[i] += k.b[i];
        }
    }
    write_floats<D>(t, sum, l.novelty.sums + (uint64_t)pleat__device_row_at(l, p.seq_idx, p.layer, head) * D);
    write_floats<D>(t, mean_of<D>(sum), l.novelty.means + head * D);
}

/* Grid: parts, heads. */
template <int D>
static __global__ void __launch_bounds__(WARPS * 32)
    score_keys(const __grid_constant__ pleat__device_lanes l, const __grid_constant__ pleat__device_prompt p) {
    const uint32_t head = blockIdx.y, warp = threadIdx.x / 32;
    const pleat__device_turns *t = turns_of(l.novelty, p.layer);
    const uint32_t mean_row = l.novelty.has_means ? p.layer * l.n_kv_heads + head : head;
    const key_part<D> mean = read_floats<D>(t, l.novelty.means + mean_row * D);
    for (uint32_t token = blockIdx.x * WARPS + warp; token < p.n_tokens; token += PLEAT__NOVELTY_PARTS * WARPS) {
        float scale;
        const key_part<D> k = prompt_key<D>(l, p, t, head, token, &scale);
        const float own = own_of<D>(k, scale, mean);
        if (threadIdx.x % 32 == 0) l.novelty.own[(uint64_t)head * p.n_tokens + token] = own;
    }
}

/* pleat__near_score() where nothing has been dropped; nothing is scored that fits in the window. */
static __global__ void __launch_bounds__(WARPS * 32)
    near_scores(const __grid_constant__ pleat__device_lanes l, const __grid_constant__ pleat__device_prompt p) {
    const uint32_t token = blockIdx.x * WARPS * 32 + threadIdx.x, near = l.novelty.near, n = p.n_tokens;
    if (token >= n) return;
    const uint64_t row = (uint64_t)blockIdx.y * n;
    const uint32_t first = token > near ? token - near : 0, end = n - token > near ? token + near + 1 : n;
    const float part = __fdiv_rn(1.0f, (float)(2 * near + 1));
    float score = 0;
    for (uint32_t i = first; i < end; i++) score += l.novelty.own[row + i] * part;
    l.novelty.scores[row + token] = n > l.policy.window ? score : 0;
}

/* ---- a step ------------------------------------------------------------------------------------------------ */

/* A warp's lane. */
typedef struct step_lane {
    uint32_t row, position; /* of the newest */
    const pleat__device_turns *turns;
} step_lane;

/* slots[i], i <= near: where the token `i` before `position` stands; UINT32_MAX: it does not. */
static __device__ inline void find_near(const pleat__device_lanes &l, uint32_t row, uint32_t position,
                                        uint32_t *slots) {
    const uint32_t thread = threadIdx.x % 32, n_slots = l.pages.n_slots[0][row], near = l.novelty.near;
    if (thread <= near) slots[thread] = UINT32_MAX;
    __syncwarp();
    for (uint32_t slot = 4 * thread; slot < n_slots; slot += 128) {
        const pleat__device_slot_bytes at = pleat__device_bytes_of(l, row, 0, slot);
        const int4 four = *(const int4 *)(const void *)(pleat__device_positions(l.layouts[0], at.page) + at.slot);
        const int32_t positions[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t before = position - (uint32_t)positions[i];
            if (slot + i < n_slots && positions[i] >= 0 && before <= near) slots[before] = slot + i;
        }
    }
    __syncwarp();
}

/* The key in a slot, unturned.  rows: scratch. */
template <int D>
static __device__ inline key_part<D> stored_key(const pleat__device_lanes &l, const step_lane &lane, uint32_t slot,
                                                uint32_t position, float *row, float *scale) {
    const pleat__device_slot_bytes at = pleat__device_bytes_of(l, lane.row, 0, slot);
    const pleat__device_quad quad = pleat__device_load_key<D>(l.layouts[0], at.page, at.slot);
    __syncwarp();
    for (int i = 0; i < 4 && pleat__device_in_first_team<D>(); i++)
        row[4 * pleat__device_team_thread<D>() + i] = quad.x[i];
    __syncwarp();
    key_part<D> k = read_floats<D>(lane.turns, row);
    *scale = unturn<D>(lane.turns, position, &k);
    return k;
}

static __device__ inline float *score_at(const pleat__device_lanes &l, uint32_t row, uint32_t slot) {
    const pleat__device_slot_bytes at = pleat__device_bytes_of(l, row, 0, slot);
    return pleat__device_scores(l.layouts[0], at.page) + at.slot;
}

/* What the token is compared with: the model's mean, or its lane's, which it joins. */
template <int D>
static __device__ inline key_part<D> mean_with(const pleat__device_lanes &l, const step_lane &lane, uint32_t position,
                                               const key_part<D> &k, float scale) {
    if (l.novelty.has_means)
        return read_floats<D>(lane.turns, l.novelty.means + (uint64_t)(lane.row % l.pages.rows_per_seq) * D);
    float *sums = l.novelty.sums + (uint64_t)lane.row * D;
    key_part<D> sum = {};
    if (position > 0) sum = read_floats<D>(lane.turns, sums);
#pragma unroll
    for (int i = 0; i < D / 64; i++) {
        sum.a[i] += k.a[i] * scale;
        sum.b[i] += k.b[i] * scale;
    }
    write_floats<D>(lane.turns, sum, sums);
    return mean_of<D>(sum);
}

/* score_next() of keep/novelty.c. */
template <int D>
static __device__ inline void score_next(const pleat__device_lanes &l, const step_lane &lane, uint32_t position,
                                         float *row, uint32_t *slots) {
    find_near(l, lane.row, position, slots);
    if (slots[0] == UINT32_MAX) return;
    const bool is_first = threadIdx.x % 32 == 0;
    const uint32_t near = min(l.novelty.near, position);
    const float part = __fdiv_rn(1.0f, (float)(2 * l.novelty.near + 1));
    float scale, score = 0;
    const key_part<D> k = stored_key<D>(l, lane, slots[0], position, row, &scale);
    const key_part<D> mean = mean_with<D>(l, lane, position, k, scale);
    const float own = own_of<D>(k, scale, mean) * part;
    for (uint32_t before = near; before > 0; before--) {
        if (slots[before] == UINT32_MAX) continue;
        const key_part<D> other = stored_key<D>(l, lane, slots[before], position - before, row, &scale);
        score += own_of<D>(other, scale, mean) * part;
        if (is_first) *score_at(l, lane.row, slots[before]) += own;
    }
    if (is_first) *score_at(l, lane.row, slots[0]) = score + own;
    __syncwarp();
}

template <int D>
static __global__ void __launch_bounds__(WARPS * 32) score_step(const __grid_constant__ pleat__device_lanes l) {
    __shared__ float rows[WARPS][D];
    __shared__ uint32_t slots[WARPS][NEAR_MOST + 1];
    const uint32_t warp = threadIdx.x / 32, at = blockIdx.x * WARPS + warp;
    if (at >= l.pages.n_seqs * l.pages.rows_per_seq) return;
    const pleat__device_new_token fresh = pleat__device_token_of(l, at);
    if (fresh.slot == PLEAT__NO_NEW_SLOT || fresh.position < l.policy.window) return;
    const uint32_t row = pleat__device_lane_row(&l.pages, at);
    const step_lane lane = {row, fresh.position, turns_of(l.novelty, row % l.pages.rows_per_seq / l.n_kv_heads)};
    for (uint32_t i = fresh.position > l.policy.window ? fresh.position : 0; i <= fresh.position; i++)
        score_next<D>(l, lane, i, rows[warp], slots[warp]);
}

/* ---- launchers ----------------------------------------------------------------------------------------------- */

static uint32_t blocks_for(uint32_t n, uint32_t each) { return (n + each - 1) / each; }

template <int D>
static void launch_prompt(const pleat__device_lanes &l, const pleat__device_prompt &p, cudaStream_t stream) {
    const dim3 parts(PLEAT__NOVELTY_PARTS, l.n_kv_heads), tokens(blocks_for(p.n_tokens, WARPS * 32), l.n_kv_heads);
    if (!l.novelty.has_means) {
        add_keys<D><<<parts, WARPS * 32, 0, stream>>>(l, p);
        mean_key<D><<<l.n_kv_heads, 32, 0, stream>>>(l, p);
    }
    score_keys<D><<<parts, WARPS * 32, 0, stream>>>(l, p);
    near_scores<<<tokens, WARPS * 32, 0, stream>>>(l, p);
}

extern "C" pleat_status pleat__device_lanes_score_prompt(const pleat__device_lanes *l, const pleat__device_prompt *p,
                                                         pleat__device_stream stream, pleat_error *err) {
    if (l->head_dim == 128)
        launch_prompt<128>(*l, *p, pleat__cuda_stream(stream));
    else
        launch_prompt<64>(*l, *p, pleat__cuda_stream(stream));
    return PLEAT_CUDA_LAUNCHED("scoring a prompt's keys", err);
}

extern "C" pleat_status pleat__device_lanes_score_step(const pleat__device_lanes *l, pleat__device_stream stream,
                                                       pleat_error *err) {
    const uint32_t n_blocks = blocks_for(l->pages.n_seqs * l->pages.rows_per_seq, WARPS);
    if (l->head_dim == 128)
        score_step<128><<<n_blocks, WARPS * 32, 0, pleat__cuda_stream(stream)>>>(*l);
    else
        score_step<64><<<n_blocks, WARPS * 32, 0, pleat__cuda_stream(stream)>>>(*l);
    return PLEAT_CUDA_LAUNCHED("scoring a step's keys", err);
}
