/* SPDX-License-Identifier: MIT
 *
 * blocks.cu: the kernels of blocks.h.
 *
 * A warp is a thread block, and walks the blocks of one part of a lane.  Of a block:
 *
 *     payload up to its keys' end, and its values ── blocks_payload.cuh ──> shared memory
 *     q * steps of keys ──> f16, in registers                                     s = q.min + (q*step).code
 *     32 places of keys ── blocks_codes.cuh ──> rows of nibbles ── mma ──> logits
 *     weights * steps of values ──> f16                                           o = sum p*min + (p*step).code
 *     32 dimensions of values ──> rows of nibbles ── mma ──> sums
 *
 * Products are m16n8k16, with codes as the rows of A and query heads as the columns of B.  Codes are nibbles until they
 * are in registers, where one mask makes subnormal halves of two.  Those of odd nibbles are 16 times as large, and stand
 * in sums of their own.
 *
 * Of up to four heads the other four columns hold what rounding q*step and p*step took, so that nothing is lost.  Of more
 * a middling code's part of it is made good.
 *
 *     C of 16 places          rows r, r + 8: places 4r + 2i, 4r + 2i + 1 of 32; of 16 dimensions likewise
 *     A of 16 places (values) columns 2j, 2j + 1, 2j + 8, 2j + 9: places 8j + i, + 4, + 2, + 6 of 32
 *
 * Values come while keys are multiplied, the next block's keys while values are.
 *
 *     shared memory of a warp   head: payload up to its keys' end | tail: its values | rows
 */
#include "attn/cuda/blocks.h"
#include "attn/cuda/blocks_codes.cuh"
#include "attn/cuda/blocks_payload.cuh"
#include "attn/cuda/ops.cuh"
#include "hw/cuda/cuda.cuh"

#define RESTS 4u /* up to so many heads, columns RESTS further on have what rounding to halves took from theirs */
#define HEADER 12u
#define WIDE 4u
#define CODER 3u
#define CODER_RAW 0u
#define WARPS 16         /* of a multiprocessor, at least: what registers are for */
#define EVEN 0x000F000Fu /* codes of even nibbles, at the lower end of halves */
#define ODD 0x00F000F0u
#define BEHIND 16u /* what is read behind a section, at most */
#define TWO_24 16777216.0f
#define TWO_20 1048576.0f
#define QUERY_SHIFT 3 /* queries are taken times 2^-3: times a step they are not to be above what a half can be */

/* Addresses in shared memory. */
typedef struct warp_plan {
    uint32_t head, tail, rows, bars, end; /* head: a payload up to its keys; tail: its values */
    uint32_t head_units;                  /* that are copied, if there are so many */
} warp_plan;

template <int D>
static __host__ __device__ inline warp_plan plan_of(uint32_t base, const pleat__device_block_lanes &l) {
    const uint32_t unit_bytes = 4 * ((l.by_channel ? D : 1) + T), plane_bytes = T * D / 8;
    warp_plan w;
    w.head_units = (HEADER + unit_bytes + T + plane_bytes * l.k_bits + 15) / 16;
    w.head = base;
    w.tail = w.head + w.head_units * 16 + BEHIND;
    w.rows = (w.tail + plane_bytes * l.v_bits + 16 + BEHIND + 127) / 128 * 128;
    w.bars = w.rows + D * ROW_BYTES;
    w.end = w.bars + 16;
    return w;
}

/* ---- a block -------------------------------------------------------------------------------------------- */

/* What a warp knows of its part: of query heads 2*(thread%4) and one more. */
template <int D> struct sums {
    float max[2], weight[2], middle[2]; /* logit2; sum of weights; of weights * minimums: this thread's places alone */
    float out[D / 16][4];               /* C of 16 dimensions */
};

/* B of 16 dimensions each, of head thread/4, RESTS heads fewer if it is one of rests. */
template <int D> struct queries { uint32_t x[D / 16][2]; };

template <int D, bool HAS_RESTS>
static __device__ __forceinline__ void load_queries(const pleat__device_blocks_attn &a, const uint16_t *q,
                                                    queries<D> *to) {
    const uint32_t row = threadIdx.x / 4, n = a.lanes.n_group, head = HAS_RESTS ? row % RESTS : row;
#pragma unroll
    for (uint32_t k = 0; k < D / 16; k++)
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            const uint16_t *at = q + head * D + 16 * k + 8 * i + 2 * (threadIdx.x % 4);
            to->x[k][i] =
                head < n ? multiply_halves(__ldg((const uint32_t *)(const void *)at), power_halves(-QUERY_SHIFT)) : 0;
        }
}

enum key_units { COMPACT_UNITS, WIDE_UNITS, ONE_UNIT };

/* B for a block's codes: q * step, or what rounding it took.  Returns q.min of heads 2*(thread%4) and one more. */
template <int D, bool HAS_RESTS, key_units KIND>
static __device__ __forceinline__ float2 scale_queries(uint32_t units, unit_pair one, float centre, const queries<D> &q,
                                                       queries<D> *to) {
    const uint32_t minus = !HAS_RESTS || threadIdx.x >= 4 * RESTS ? 0xBC00BC00u : 0; /* -1, or nothing */
    const uint32_t centres = floats_to_halves(centre, centre);
    float c[4] = {0, 0, 0, 0};
#pragma unroll
    for (uint32_t k = 0; k < D / 16; k++) {
        uint32_t mins[2], rests[2];
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            unit_pair u = one;
            if (KIND != ONE_UNIT)
                u = key_units_at<KIND == WIDE_UNITS>(units, D, 16 * k + 8 * i + 2 * (threadIdx.x % 4));
            const uint32_t x = multiply_halves(q.x[k][i], u.step);
            mins[i] = u.min;
            rests[i] = fma_halves(q.x[k][i], u.step, multiply_halves(x, minus));
            to->x[k][i] = HAS_RESTS ? rests[i] : x;
        }
        const uint32_t codes[4] = {mins[0], mins[0], mins[1], mins[1]};
        multiply(c, codes, q.x[k][0], q.x[k][1]);
        if (HAS_RESTS) continue;
        const uint32_t middling[4] = {centres, centres, centres, centres};
        multiply(c, middling, rests[0], rests[1]);
    }
    return make_float2(c[0], c[1]);
}

template <int D, bool HAS_RESTS>
static __device__ __forceinline__ float2 scale_queries(const pleat__device_blocks_attn &a, uint32_t units, bool is_wide,
                                                       const queries<D> &q, queries<D> *to) {
    const float centre = (float)((1u << a.lanes.k_bits) - 1) / 2;
    const unit_pair none = {0, 0};
    if (!a.lanes.by_channel)
        return scale_queries<D, HAS_RESTS, ONE_UNIT>(units, unit_of_block(units, is_wide), centre, q, to);
    return is_wide ? scale_queries<D, HAS_RESTS, WIDE_UNITS>(units, none, centre, q, to)
                   : scale_queries<D, HAS_RESTS, COMPACT_UNITS>(units, none, centre, q, to);
}

/* Products of codes of two rows each, in a word's even and odd nibbles: of columns 0..7 in x, of 8..15 in y. */
static __device__ __forceinline__ void multiply_rows(float c[4], uint32_t x, uint32_t y, const uint32_t b[2]) {
    const uint32_t codes[4] = {x & EVEN, x & ODD, y & EVEN, y & ODD};
    multiply(c, codes, b[0], b[1]);
}

/* C of 16 places each: those of rows r times 2^-24, of rows r + 8 times 2^-20. */
template <int D>
static __device__ __forceinline__ void multiply_keys(const warp_plan &w, section *s, const queries<D> &q,
                                                     float logits[T / 16][4]) {
    constexpr int N = D / 32;
    const uint32_t at = key_row<N>(w.rows, threadIdx.x);
#pragma unroll 1
    for (uint32_t half = 0; half < 2; half++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            logits[0][j] = logits[2][j], logits[1][j] = logits[3][j];
            logits[2][j] = logits[3][j] = 0;
        }
        __syncwarp();
        if (s->is_raw)
            put_raw_keys<N>(s, w.rows);
        else
            put_packed_keys<N>(s, w.rows);
        __syncwarp();
#pragma unroll
        for (uint32_t k = 0; k < N; k++) {
            uint32_t x[4];
            load_matrices_transposed(x, at + k * 32 * ROW_BYTES);
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                multiply_rows(logits[2 + i % 2], x[i / 2 * 2] >> i % 2 * 8, x[i / 2 * 2 + 1] >> i % 2 * 8,
                              q.x[2 * k + i / 2]);
        }
    }
}

/* Place, or dimension, of row thread/4 and, k = 1, 8 rows more of C number i. */
static __device__ __forceinline__ uint32_t number_of(uint32_t i, uint32_t k) {
    return i / 2 * 32 + threadIdx.x / 4 * 4 + i % 2 * 2 + k;
}

/* Logits to base 2; `most` becomes the largest of each head. */
template <bool HAS_RESTS>
static __device__ __forceinline__ void scale_logits(float scale, float2 middle, float logits[T / 16][4],
                                                    float most[2]) {
    const float scales[2] = {scale * TWO_24, scale * TWO_20};
    middle.x *= scale;
    middle.y *= scale;
#pragma unroll
    for (uint32_t i = 0; i < T / 16; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (HAS_RESTS) logits[i][j] += __shfl_xor_sync(PLEAT__ALL_THREADS, logits[i][j], 2);
            logits[i][j] = fmaf(logits[i][j], scales[j / 2], j % 2 ? middle.y : middle.x);
            most[j % 2] = fmaxf(most[j % 2], logits[i][j]);
        }
    most[0] = max_over_rows(most[0]);
    most[1] = max_over_rows(most[1]);
}

/* Sums so far, as if `most` had been the largest logits. */
template <int D> static __device__ __forceinline__ void scale_sums(const float most[2], sums<D> *sum) {
    float less[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        less[h] = power_of_two(sum->max[h] - most[h]);
        sum->max[h] = most[h];
        sum->weight[h] *= less[h];
        sum->middle[h] *= less[h];
    }
    if (!__any_sync(PLEAT__ALL_THREADS, less[0] != 1.0f || less[1] != 1.0f)) return;
#pragma unroll
    for (int i = 0; i < D / 16; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sum->out[i][j] *= less[j % 2];
}

/* Units of the thread's places. */
static __device__ __forceinline__ void load_value_units(uint32_t units, bool is_wide, unit_pair u[T / 16]) {
    if (is_wide) {
#pragma unroll
        for (uint32_t i = 0; i < T / 16; i++) u[i] = value_units_at<true>(units, number_of(i, 0));
    } else {
#pragma unroll
        for (uint32_t i = 0; i < T / 16; i++) u[i] = value_units_at<false>(units, number_of(i, 0));
    }
}

/* Logits become weights * steps: B of 16 places each, of 32 those of even numbers and those of odd ones. */
template <int D, bool HAS_RESTS>
static __device__ __forceinline__ void weigh(const unit_pair units[T / 16], const float logits[T / 16][4], sums<D> *sum,
                                             uint32_t weights[T / 32][2][2]) {
    const float rounded = HAS_RESTS && threadIdx.x % 4 >= 2 ? -1.0f : 0.0f; /* times what rests are without */
#pragma unroll
    for (uint32_t i = 0; i < T / 16; i++) {
        const float2 mins = halves_to_floats(units[i].min), steps = halves_to_floats(units[i].step);
#pragma unroll
        for (uint32_t k = 0; k < 2; k++) {
            float p[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                p[h] = power_of_two(logits[i][2 * k + h] - sum->max[h]);
                sum->weight[h] += p[h];
                sum->middle[h] += p[h] * (k ? mins.y : mins.x);
                p[h] *= k ? steps.y : steps.x;
            }
            uint32_t both = floats_to_halves(p[0], p[1]);
            if (HAS_RESTS) {
                const float2 x = halves_to_floats(both);
                both = floats_to_halves(fmaf(x.x, rounded, p[0]), fmaf(x.y, rounded, p[1]));
            }
            weights[i / 2][k][i % 2] = transpose_8x8(both);
        }
    }
}

/* Products of 32 dimensions of values: PACK, a row is a dimension. */
static __device__ __forceinline__ void multiply_packed(uint32_t rows, const uint32_t weights[T / 32][2][2],
                                                       float out[2][4]) {
    const uint32_t in_8 = threadIdx.x % 8, odd = threadIdx.x / 8 % 2, half = threadIdx.x / 16;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        float even_places[4] = {0, 0, 0, 0}, odd_places[4] = {0, 0, 0, 0};
        uint32_t x[4];
        load_matrices(x, value_row(rows, 4 * in_8 + 2 * i + odd, half));
#pragma unroll
        for (uint32_t k = 0; k < T / 32; k++) {
            const uint32_t a = x[2 * k], b = x[2 * k + 1];
            const uint32_t even[4] = {a & EVEN, b & EVEN, a >> 8 & EVEN, b >> 8 & EVEN};
            const uint32_t odds[4] = {a & ODD, b & ODD, a >> 8 & ODD, b >> 8 & ODD};
            multiply(even_places, even, weights[k][0][0], weights[k][0][1]);
            multiply(odd_places, odds, weights[k][1][0], weights[k][1][1]);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) out[i][j] = fmaf(odd_places[j], 0.0625f, even_places[j]);
    }
}

/* RAW: a row is a place. */
static __device__ __forceinline__ void multiply_raw(uint32_t rows, const uint32_t weights[T / 32][2][2],
                                                    float out[2][4]) {
#pragma unroll
    for (int j = 0; j < 4; j++) out[0][j] = out[1][j] = 0;
#pragma unroll
    for (uint32_t k = 0; k < T / 32; k++) {
        uint32_t x[4];
        load_matrices_transposed(x, rows + (k * 32 + threadIdx.x) * ROW_BYTES);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            multiply_rows(out[i % 2], x[i / 2] >> i % 2 * 8, x[i / 2 + 2] >> i % 2 * 8, weights[k][i / 2]);
    }
#pragma unroll
    for (int j = 2; j < 4; j++) out[0][j] *= 0.0625f, out[1][j] *= 0.0625f;
}

/* all[2i] += c[0], all[2i + 1] += c[1]; all stays in registers. */
template <int N> static __device__ __forceinline__ void add_to(float all[N][4], uint32_t i, const float c[2][4]) {
#define CASE(n)                                                                                         \
    case n:                                                                                             \
        if (2 * n < N)                                                                                  \
            for (int j = 0; j < 8; j++) all[(2 * n < N ? 2 * n : 0) + j / 4][j % 4] += c[j / 4][j % 4]; \
        break;
    switch (i) { CASE(0) CASE(1) CASE(2) CASE(3) }
#undef CASE
}

/* Sums of the block's values. */
template <int D>
static __device__ __forceinline__ void multiply_values(const warp_plan &w, section *s,
                                                       const uint32_t weights[T / 32][2][2], sums<D> *sum) {
#pragma unroll 1
    for (uint32_t i = 0; i < D / 32; i++) {
        float c[2][4];
        __syncwarp();
        if (s->is_raw) {
            put_raw_values(s, w.rows);
            __syncwarp();
            multiply_raw(w.rows, weights, c);
        } else {
            put_packed_values(s, w.rows);
            __syncwarp();
            multiply_packed(w.rows, weights, c);
        }
        add_to<D / 16>(sum->out, i, c);
    }
}

/* The block at `at`, whose head is on its way; the next one's is when this returns.  parity: of the barriers. */
template <int D, bool HAS_RESTS>
static __device__ __forceinline__ void add_block(const pleat__device_blocks_attn &a, const warp_plan &w,
                                                 const queries<D> &q, bool is_last, uint32_t parity, walk *at,
                                                 sums<D> *sum) {
    wait_for_units(w.bars, parity);
    const uint32_t k_word = load_4(w.head + 4), v_word = load_4(w.head + 8), k_units = w.head + HEADER;
    const uint32_t v_units = k_units + (a.lanes.by_channel ? D : 1) * (k_word & WIDE ? 4 : 2);
    section k = {v_units + T * (v_word & WIDE ? 4 : 2) + T, a.lanes.k_bits, (k_word & CODER) == CODER_RAW};
    const uint32_t values = k.at + (k_word >> 3) - w.head, n_before = values / 16;
    section v = {w.tail + values % 16, a.lanes.v_bits, (v_word & CODER) == CODER_RAW};
    walk tail = *at;
    skip_units(a.lanes, &tail, n_before);
    copy_units(a.lanes, tail, at->n - n_before, w.tail, w.bars + 8);
    float logits[T / 16][4] = {}, most[2] = {sum->max[0], sum->max[1]};
    uint32_t weights[T / 32][2][2];
    unit_pair units[T / 16];
    queries<D> scaled;
    const float2 middle = scale_queries<D, HAS_RESTS>(a, k_units, k_word & WIDE, q, &scaled);
    multiply_keys<D>(w, &k, scaled, logits);
    load_value_units(v_units, v_word & WIDE, units);
    __syncwarp();
    if (!is_last) {
        walk_on(a.lanes, at);
        copy_units(a.lanes, *at, min(at->n, w.head_units), w.head, w.bars);
    }
    scale_logits<HAS_RESTS>(a.scale * 1.44269504f * (1 << QUERY_SHIFT), middle, logits, most);
    scale_sums<D>(most, sum);
    weigh<D, HAS_RESTS>(units, logits, sum, weights);
    wait_for_units(w.bars + 8, parity);
    multiply_values<D>(w, &v, weights, sum);
    __syncwarp();
}

/* ---- a part --------------------------------------------------------------------------------------------- */

/* Head g's D sums, then its largest logit and its sum of weights. */
template <int D, bool HAS_RESTS>
static __device__ __forceinline__ void put_part(const pleat__device_blocks_attn &a, sums<D> *sum) {
    const uint32_t thread = threadIdx.x;
    float *part = a.parts + (uint64_t)blockIdx.x * a.lanes.n_group * (D + 2);
    if (HAS_RESTS)
#pragma unroll
        for (uint32_t i = 0; i < D / 16; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) sum->out[i][j] += __shfl_xor_sync(PLEAT__ALL_THREADS, sum->out[i][j], 2);
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t g = 2 * (thread % 4) + h;
        const float weight = sum_over_rows(sum->weight[h]), middle = sum_over_rows(sum->middle[h]);
        if (g >= a.lanes.n_group) continue;
        float *to = part + g * (D + 2);
#pragma unroll
        for (uint32_t i = 0; i < D / 16; i++)
#pragma unroll
            for (uint32_t k = 0; k < 2; k++) to[number_of(i, k)] = fmaf(sum->out[i][2 * k + h], TWO_24, middle);
        if (thread / 4 == 0) {
            to[D] = sum->max[h];
            to[D + 1] = weight;
        }
    }
}

template <int D, bool HAS_RESTS>
static __global__ void __launch_bounds__(32, WARPS) attend(const __grid_constant__ pleat__device_blocks_attn a) {
    extern __shared__ __align__(128) uint8_t shared[];
    const pleat__device_block_lanes &l = a.lanes;
    const warp_plan w = plan_of<D>(pleat__shared_address(shared), l);
    const uint32_t lane = blockIdx.x / a.n_parts, part = blockIdx.x % a.n_parts, item = lane / l.n_kv_heads;
    const uint32_t row = (l.seq_idxs[item] * l.n_layers + a.layer) * l.n_kv_heads + lane % l.n_kv_heads;
    const uint32_t n = l.n_blocks[row], from = n * part / a.n_parts, to = n * (part + 1) / a.n_parts;
    queries<D> q;
    sums<D> sum;
    load_queries<D, HAS_RESTS>(a, a.q + (uint64_t)lane * l.n_group * D, &q);
    for (int h = 0; h < 2; h++) {
        sum.max[h] = -INFINITY;
        sum.weight[h] = sum.middle[h] = 0;
    }
#pragma unroll
    for (int i = 0; i < D / 16; i++)
        for (int j = 0; j < 4; j++) sum.out[i][j] = 0;
    begin_copies(w.bars);
    if (from < to) {
        walk at = walk_from(l, row, from);
        copy_units(l, at, min(at.n, w.head_units), w.head, w.bars);
#pragma unroll 1
        for (uint32_t block = from; block < to; block++)
            add_block<D, HAS_RESTS>(a, w, q, block + 1 == to, (block - from) % 2, &at, &sum);
    }
    put_part<D, HAS_RESTS>(a, &sum);
}

/* ---- merging -------------------------------------------------------------------------------------------- */

/* A warp for each query head. */
template <int D>
static __global__ void __launch_bounds__(32) merge(const __grid_constant__ pleat__device_blocks_attn a) {
    enum { N = D / 32 };
    const uint32_t head = blockIdx.x, lane = head / a.lanes.n_group, g = head % a.lanes.n_group;
    const float *parts = a.parts + ((uint64_t)lane * a.n_parts * a.lanes.n_group + g) * (D + 2);
    const uint64_t stride = (uint64_t)a.lanes.n_group * (D + 2);
    float most = a.lse2[head];
    for (uint32_t i = 0; i < a.n_parts; i++) most = fmaxf(most, parts[i * stride + D]);
    if (most == -INFINITY) most = 0; /* no tokens at all */
    float weight = power_of_two(a.lse2[head] - most), out[N];
    __syncwarp();
    for (int j = 0; j < N; j++) out[j] = weight * a.other[(uint64_t)head * D + j * 32 + threadIdx.x];
    for (uint32_t i = 0; i < a.n_parts; i++) {
        const float *part = parts + i * stride, less = power_of_two(part[D] - most);
        weight += less * part[D + 1];
        for (int j = 0; j < N; j++) out[j] += less * part[j * 32 + threadIdx.x];
    }
    const float inverse = weight > 0 ? 1 / weight : 0;
    if (threadIdx.x == 0) a.lse2[head] = most + log2f(weight);
    for (int j = 0; j < N; j++) {
        const uint64_t at = (uint64_t)head * D + j * 32 + threadIdx.x;
        if (a.is_f16)
            ((__half *)a.out)[at] = __float2half_rn(out[j] * inverse);
        else
            ((float *)a.out)[at] = out[j] * inverse;
    }
}

/* ---- launching ------------------------------------------------------------------------------------------ */

template <int D> static uint32_t shared_bytes(const pleat__device_block_lanes *l) { return plan_of<D>(0, *l).end; }

typedef void (*attend_kernel)(const pleat__device_blocks_attn);

template <int D> static attend_kernel kernel_of(const pleat__device_block_lanes *l) {
    return l->n_group <= RESTS ? attend<D, true> : attend<D, false>;
}

template <int D> static pleat_status parts_of(const pleat__device_block_lanes *l, uint32_t *n_parts, pleat_error *err) {
    const uint32_t bytes = shared_bytes<D>(l);
    const attend_kernel kernel = kernel_of<D>(l);
    int device, n_multiprocessors, resident;
    PLEAT_CUDA_TRY(cudaGetDevice(&device), "attention over blocks", err);
    PLEAT_CUDA_TRY(cudaDeviceGetAttribute(&n_multiprocessors, cudaDevAttrMultiProcessorCount, device),
                   "attention over blocks", err);
    PLEAT_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                   "attention over blocks", err);
    PLEAT_CUDA_TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, 32, bytes), "attention over blocks",
                   err);
    const uint32_t n = (uint32_t)(n_multiprocessors * resident) / (l->n_seqs * l->n_kv_heads);
    *n_parts = n < 1 ? 1 : n > 64 ? 64 : n;
    return PLEAT_OK;
}

extern "C" pleat_status pleat__device_blocks_parts(const pleat__device_block_lanes *l, uint32_t *n_parts,
                                                   pleat_error *err) {
    return l->head_dim == 128 ? parts_of<128>(l, n_parts, err) : parts_of<64>(l, n_parts, err);
}

template <int D> static pleat_status launch(const pleat__device_blocks_attn *a, cudaStream_t stream, pleat_error *err) {
    const uint32_t n_lanes = a->lanes.n_seqs * a->lanes.n_kv_heads;
    const attend_kernel kernel = kernel_of<D>(&a->lanes);
    PLEAT_CUDA_TRY(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes<D>(&a->lanes)),
        "attention over blocks", err);
    kernel<<<n_lanes * a->n_parts, 32, shared_bytes<D>(&a->lanes), stream>>>(*a);
    PLEAT_TRY(PLEAT_CUDA_LAUNCHED("attention over blocks", err));
    merge<D><<<n_lanes * a->lanes.n_group, 32, 0, stream>>>(*a);
    return PLEAT_CUDA_LAUNCHED("attention over blocks", err);
}

extern "C" pleat_status pleat__device_blocks_attend(const pleat__device_blocks_attn *a, pleat__device_stream stream,
                                                    pleat_error *err) {
    return a->lanes.head_dim == 128 ? launch<128>(a, pleat__cuda_stream(stream), err)
                                    : launch<64>(a, pleat__cuda_stream(stream), err);
}
