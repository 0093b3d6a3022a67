/* SPDX-License-Identifier: MIT
 *
 * pack_encode.cuh: a block of tokens as a payload of kvcomp+pack, by a thread block: the bytes that
 * pleat__block_quantise() and pleat__block_encode() make of the same values.
 *
 *     values of keys ── extremes ──> units ──> codes;  the same of values
 *     codes ── which 16 tokens stand together (codec/pack_order.c) ──> order
 *     packs ── minimum and width each ── prefix sum ──> where each pack's fields stand ──> payload
 *
 * Floats are rounded as in quant/bounded.c, operation by operation.  Rows of codes are a token's keys, then its values:
 * for the order both count alike.  All warps know the order so far and the ranges of the group under way.  Each looks at
 * every eighth candidate, and a thread at 8 channels of it (4 where heads have 64).  The width of four ranges is the
 * number of ones once their highest one has been spread downwards.  A block takes some 50,000 instructions a warp, most
 * for the order.
 */
#ifndef PLEAT_CODEC_CUDA_PACK_ENCODE_CUH
#define PLEAT_CODEC_CUDA_PACK_ENCODE_CUH

#include <cuda_fp16.h>

#include "codec/cuda/pack_encode.h"
#include "hw/cuda/warp.cuh"

#define PLEAT__PACK_THREADS 256u
#define PLEAT__PACK_WARPS 8u

/* Shared memory. */
template <int D> struct pleat__pack_work {
    union {
        float x[PLEAT__PACK_TOKENS * D];             /* of keys, then of values */
        uint8_t payload[PLEAT__PACK_TOKENS * D * 4]; /* once there are codes: more than any takes */
    };
    uint32_t rows[PLEAT__PACK_TOKENS][D / 2]; /* codes: a token's keys, then its values */
    uint16_t k_mins[D], k_steps[D], v_mins[PLEAT__PACK_TOKENS], v_steps[PLEAT__PACK_TOKENS];
    uint16_t before[4 * D + 1]; /* widths of the packs before each */
    uint8_t widths[4 * D], mins[4 * D];
    uint8_t order[PLEAT__PACK_TOKENS];
    __align__(16) uint32_t finds[2][PLEAT__PACK_WARPS]; /* else what is read at once has neighbours in it */
    uint32_t own[4];
    float extremes[2][PLEAT__PACK_WARPS];
};

/* ---- units (quant/bounded.c) ------------------------------------------------------------------------------- */

static __device__ inline float pack_f32(uint32_t half) { return __half2float(__ushort_as_half((uint16_t)half)); }
static __device__ inline uint32_t pack_f16(float x) { return __half_as_ushort(__float2half_rn(__fadd_rn(x, 0.0f))); }

static __device__ inline uint32_t pack_f16_below(float x) {
    const uint32_t h = pack_f16(x);
    if (!(pack_f32(h) > x)) return h;
    return h & 0x8000u ? h + 1 : h - 1;
}

static __device__ inline uint32_t pack_f16_above(float x) {
    uint32_t h = pack_f16(x);
    h += pack_f32(h) < x;
    return h > 0x7BFFu ? 0x7BFFu : h;
}

static __device__ inline float pack_step_of_equal(float x) {
    const int last = x < 0 ? 64 : 63;
    x = 2 * fabsf(x);
    for (int z = 1; z <= last && x > 0; z++) {
        const float step = __fdiv_rn(x, (float)z);
        if ((__float_as_uint(step) & 0x7FFFFu) == 0 && __fmul_rn(step, (float)z) == x) return step;
    }
    return 0;
}

/* Minimum and step as f16. */
typedef struct pack_unit {
    uint32_t min, step;
} pack_unit;

static __device__ inline bool pack_on_grid(float min, float max, float rel, pack_unit *unit) {
    const float wanted = min < max ? __fmul_rn(rel, __fsub_rn(max, min)) : pack_step_of_equal(min);
    *unit = pack_unit{0, 0};
    if (!(wanted > 0)) return min == 0 && max == 0;
    if (!(wanted >= 0x1p-13f && wanted < 2 * 65504.0f)) return false;
    const float step = __uint_as_float(__float_as_uint(wanted) >> 19 << 19);
    const float z = ceilf(__fdiv_rn(2 * min, step)), origin = __fmul_rn(__fmul_rn(z, step), 0.5f);
    *unit = pack_unit{pack_f16(origin), pack_f16(step)};
    return step <= 65504.0f && z >= -64 && z <= 63 && fabsf(origin) <= 65504.0f;
}

/* How codes are made with a unit. */
typedef struct pack_scale {
    float origin, inverse, top;
} pack_scale;

/* False: it should be on a grid and is not. */
static __device__ inline bool pack_unit_of(float min, float max, const pleat__pack_matrix &m, bool on_grid,
                                           uint16_t *min_out, uint16_t *step_out, pack_scale *s) {
    pack_unit unit;
    min = min > -65504.0f ? min : -65504.0f;
    max = max < 65504.0f ? max : 65504.0f;
    max = max > min ? max : min;
    const bool fits = !on_grid || pack_on_grid(min, max, m.rel, &unit);
    if (!on_grid) {
        unit.min = pack_f16_below(min);
        unit.step = pack_f16_above(__fmul_rn(m.rel, __fsub_rn(max, pack_f32(unit.min))));
    }
    s->origin = pack_f32(unit.min);
    s->inverse = unit.step ? __fdiv_rn(1.0f, pack_f32(unit.step)) : 0.0f;
    s->top = __fmul_rn(__fsub_rn(max, s->origin), s->inverse);
    const float top = (float)(on_grid ? m.top_grid : m.top_wide);
    s->top = s->top < top ? s->top : top;
    *min_out = (uint16_t)unit.min;
    *step_out = (uint16_t)unit.step;
    return fits;
}

static __device__ inline uint8_t pack_code(float x, pack_scale s) {
    float y = __fmul_rn(__fsub_rn(x, s.origin), s.inverse);
    y = y > 0 ? y : 0;
    y = y < s.top ? y : s.top;
    return (uint8_t)__float_as_uint(__fadd_rn(y, 0x1.8p23f));
}

typedef struct pack_extremes {
    float min, max;
} pack_extremes;

static __device__ inline void pack_extremes_add(pack_extremes *e, float min, float max) {
    e->min = min < e->min ? min : e->min;
    e->max = max > e->max ? max : e->max;
}

/* Over the warp. */
static __device__ inline void pack_extremes_all(pack_extremes *e) {
#pragma unroll
    for (int i = 16; i > 0; i /= 2)
        pack_extremes_add(e, __shfl_xor_sync(PLEAT__ALL_THREADS, e->min, i),
                          __shfl_xor_sync(PLEAT__ALL_THREADS, e->max, i));
}

/* ---- codes ---------------------------------------------------------------------------------------------- */

template <int D>
static __device__ inline uint8_t *pack_codes_of(pleat__pack_work<D> *w, uint32_t token, bool is_values) {
    return (uint8_t *)w->rows[token] + (is_values ? D : 0);
}

/* Codes of keys, from x; false: not all units are on grids, as they should be.  The same in all threads. */
template <int D>
static __device__ inline bool pack_keys(pleat__pack_work<D> *w, const pleat__pack_coder &c, bool on_grid) {
    const uint32_t t = threadIdx.x;
    pack_extremes e = {65504.0f, -65504.0f};
    pack_scale s;
    bool fits = true;
    if (c.by_channel) {
        for (uint32_t i = 0; i < PLEAT__PACK_TOKENS && t < D; i++)
            pack_extremes_add(&e, w->x[i * D + t], w->x[i * D + t]);
        if (t < D) fits = pack_unit_of(e.min, e.max, c.k, on_grid, &w->k_mins[t], &w->k_steps[t], &s);
    } else {
        for (uint32_t i = t; i < PLEAT__PACK_TOKENS * D; i += PLEAT__PACK_THREADS)
            pack_extremes_add(&e, w->x[i], w->x[i]);
        pack_extremes_all(&e);
        if (t % 32 == 0) {
            w->extremes[0][t / 32] = e.min;
            w->extremes[1][t / 32] = e.max;
        }
        __syncthreads();
        for (uint32_t i = 0; i < PLEAT__PACK_WARPS; i++) pack_extremes_add(&e, w->extremes[0][i], w->extremes[1][i]);
        uint16_t min, step;
        fits = pack_unit_of(e.min, e.max, c.k, on_grid, &min, &step, &s);
        if (t == 0) w->k_mins[0] = min;
        if (t == 0) w->k_steps[0] = step;
    }
    if (!__syncthreads_and(fits)) return false;
    if (c.by_channel) {
        for (uint32_t i = 0; i < PLEAT__PACK_TOKENS && t < D; i++)
            pack_codes_of(w, i, false)[t] = pack_code(w->x[i * D + t], s);
    } else {
        for (uint32_t i = t; i < PLEAT__PACK_TOKENS * D; i += PLEAT__PACK_THREADS)
            pack_codes_of(w, i / D, false)[i % D] = pack_code(w->x[i], s);
    }
    return true;
}

/* Of values: a warp for each token. */
template <int D>
static __device__ inline bool pack_values(pleat__pack_work<D> *w, const pleat__pack_coder &c, bool on_grid) {
    const uint32_t thread = threadIdx.x % 32;
    bool fits = true;
    for (uint32_t token = threadIdx.x / 32; token < PLEAT__PACK_TOKENS; token += PLEAT__PACK_WARPS) {
        const float *x = w->x + token * D + thread;
        pack_extremes e = {65504.0f, -65504.0f};
        pack_scale s;
        uint16_t min, step;
        for (uint32_t i = 0; i < D; i += 32) pack_extremes_add(&e, x[i], x[i]);
        pack_extremes_all(&e);
        fits &= pack_unit_of(e.min, e.max, c.v, on_grid, &min, &step, &s);
        for (uint32_t i = 0; i < D; i += 32) pack_codes_of(w, token, true)[thread + i] = pack_code(x[i], s);
        if (thread == 0) w->v_mins[token] = min;
        if (thread == 0) w->v_steps[token] = step;
    }
    return __syncthreads_and(fits);
}

/* ---- order (codec/pack_order.c) ---------------------------------------------------------------------------- */

/* The ranges of a thread's channels. */
template <int D> struct pack_range { uint32_t min[D / 64], max[D / 64]; };

template <int D>
static __device__ inline void pack_range_set(pack_range<D> *r, const pleat__pack_work<D> *w, uint32_t token) {
#pragma unroll
    for (int j = 0; j < D / 64; j++) r->min[j] = r->max[j] = w->rows[token][32 * j + threadIdx.x % 32];
}

template <int D>
static __device__ inline pack_range<D> pack_range_with(const pack_range<D> &r, const pleat__pack_work<D> *w,
                                                       uint32_t token) {
    pack_range<D> next;
#pragma unroll
    for (int j = 0; j < D / 64; j++) {
        const uint32_t x = w->rows[token][32 * j + threadIdx.x % 32];
        next.min[j] = __vminu4(r.min[j], x);
        next.max[j] = __vmaxu4(r.max[j], x);
    }
    return next;
}

/* The sum of all widths, in all threads of the warp. */
template <int D> static __device__ inline uint32_t pack_width(const pack_range<D> &r) {
    uint32_t sum = 0;
#pragma unroll
    for (int j = 0; j < D / 64; j++) {
        uint32_t x = r.max[j] - r.min[j]; /* bytes below 16, none borrows */
        x |= x >> 1 & 0x07070707u;
        x |= x >> 2 & 0x03030303u;
        sum += __popc(x);
    }
    return __reduce_add_sync(PLEAT__ALL_THREADS, sum);
}

#define PACK_WINDOW 48u

/* Of a group of 16 in their own order, by a warp. */
template <int D> static __device__ inline uint32_t pack_own_width(const pleat__pack_work<D> *w, uint32_t group) {
    pack_range<D> r;
    pack_range_set(&r, w, 16 * group);
    for (uint32_t i = 1; i < 16; i++) r = pack_range_with(r, w, 16 * group + i);
    return pack_width(r);
}

template <int D> static __device__ inline void pack_order(pleat__pack_work<D> *w) {
    const uint32_t thread = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t left[2] = {thread, thread + 32}, width = 0; /* tokens that are left, in order */
    pack_range<D> r;
    if (warp < 4) {
        const uint32_t own = pack_own_width(w, warp);
        if (thread == 0) w->own[warp] = own;
    }
    for (uint32_t i = 0; i < PLEAT__PACK_TOKENS; i++) {
        const uint32_t n_left = PLEAT__PACK_TOKENS - i, n = n_left < PACK_WINDOW ? n_left : PACK_WINDOW;
        uint32_t at = 0;
        if (i % 16 != 0) {
            uint32_t best = UINT32_MAX; /* width, then the candidate */
            for (uint32_t k = warp; k < n; k += PLEAT__PACK_WARPS) {
                const uint32_t token = __shfl_sync(PLEAT__ALL_THREADS, left[k / 32], k % 32);
                best = min(best, pack_width(pack_range_with(r, w, token)) << 8 | k);
            }
            if (thread == 0) w->finds[i % 2][warp] = best;
            __syncthreads();
            for (uint32_t k = 0; k < PLEAT__PACK_WARPS; k++) best = min(best, w->finds[i % 2][k]);
            at = best & 255;
        } else {
            __syncthreads(); /* finds have been read */
        }
        const uint32_t token = __shfl_sync(PLEAT__ALL_THREADS, at < 32 ? left[0] : left[1], at % 32);
        if (i % 16 == 0)
            pack_range_set(&r, w, token);
        else
            r = pack_range_with(r, w, token);
        if (i % 16 == 15) width += pack_width(r);
        if (threadIdx.x == 0) w->order[i] = (uint8_t)token;
        const uint32_t next[2] = {__shfl_down_sync(PLEAT__ALL_THREADS, left[0], 1),
                                  __shfl_down_sync(PLEAT__ALL_THREADS, left[1], 1)};
        const uint32_t first = __shfl_sync(PLEAT__ALL_THREADS, left[1], 0);
        if (thread >= at) left[0] = thread == 31 ? first : next[0];
        if (thread + 32 >= at) left[1] = next[1];
    }
    __syncthreads();
    if (w->own[0] + w->own[1] + w->own[2] + w->own[3] <= width && threadIdx.x < PLEAT__PACK_TOKENS)
        w->order[threadIdx.x] = (uint8_t)threadIdx.x;
    __syncthreads();
}

/* ---- sections ------------------------------------------------------------------------------------------- */

/* A matrix as packs: 4 * D of them, slice by slice. */
template <int D, bool VALUES> struct pack_shape {
    enum { IN_SLICE = VALUES ? 64 : D, SLICES = 4 * D / IN_SLICE };
};

/* Code i of pack `pack`. */
template <int D, bool VALUES>
static __device__ inline uint32_t pack_code_at(pleat__pack_work<D> *w, uint32_t pack, uint32_t i) {
    const uint32_t slice = pack / pack_shape<D, VALUES>::IN_SLICE, p = pack % pack_shape<D, VALUES>::IN_SLICE;
    const uint32_t place = VALUES ? p / 16 * 16 + i : 16 * slice + i, channel = VALUES ? 16 * slice + p % 16 : p;
    return pack_codes_of(w, w->order[place], VALUES)[channel];
}

/* Widths and minimums of all packs, and their sums before each; returns the sum of all. */
template <int D, bool VALUES> static __device__ inline uint32_t pack_measure(pleat__pack_work<D> *w) {
    constexpr uint32_t N = 4 * D / PLEAT__PACK_THREADS; /* packs of a thread */
    const uint32_t warp = threadIdx.x / 32;
    uint32_t sum = 0, width[N];
#pragma unroll
    for (uint32_t j = 0; j < N; j++) {
        const uint32_t pack = N * threadIdx.x + j;
        uint32_t min_code = 255, max_code = 0;
        for (uint32_t i = 0; i < 16; i++) {
            const uint32_t code = pack_code_at<D, VALUES>(w, pack, i);
            min_code = min(min_code, code);
            max_code = max(max_code, code);
        }
        width[j] = 32 - __clz((int)(max_code - min_code));
        w->widths[pack] = (uint8_t)width[j];
        w->mins[pack] = (uint8_t)min_code;
        sum += width[j];
    }
    const uint32_t end = pleat__warp_prefix(sum);
    if (threadIdx.x % 32 == 31) w->finds[0][warp] = end;
    __syncthreads();
    uint32_t before = end - sum, all = 0;
    for (uint32_t i = 0; i < PLEAT__PACK_WARPS; i++) {
        if (i < warp) before += w->finds[0][i];
        all += w->finds[0][i];
    }
#pragma unroll
    for (uint32_t j = 0; j < N; j++) {
        w->before[N * threadIdx.x + j] = (uint16_t)before;
        before += width[j];
    }
    __syncthreads();
    return all;
}

static __device__ inline void pack_put(uint8_t *at, uint32_t bits, uint32_t n_bytes) {
    for (uint32_t i = 0; i < n_bytes; i++) at[i] = (uint8_t)(bits >> 8 * i);
}

/* Eight numbers of n_bits <= 4. */
static __device__ inline uint32_t pack_eight(const uint8_t *x, uint32_t n_bits) {
    uint32_t bits = 0;
    for (uint32_t i = 0; i < 8; i++) bits |= (uint32_t)x[i] << i * n_bits;
    return bits;
}

template <int D, bool VALUES>
static __device__ inline void pack_put_slices(pleat__pack_work<D> *w, uint8_t *at, uint32_t code_bits,
                                              uint32_t width_bits) {
    constexpr uint32_t IN_SLICE = pack_shape<D, VALUES>::IN_SLICE, N = 4 * D;
    const uint32_t width_bytes = IN_SLICE / 8 * width_bits, head_bytes = width_bytes + IN_SLICE / 8 * code_bits;
    for (uint32_t eight = threadIdx.x; eight < N / 8; eight += PLEAT__PACK_THREADS) {
        const uint32_t slice = 8 * eight / IN_SLICE, in_slice = eight % (IN_SLICE / 8);
        uint8_t *head = at + slice * head_bytes + 2 * w->before[slice * IN_SLICE];
        pack_put(head + in_slice * width_bits, pack_eight(w->widths + 8 * eight, width_bits), width_bits);
        pack_put(head + width_bytes + in_slice * code_bits, pack_eight(w->mins + 8 * eight, code_bits), code_bits);
    }
    for (uint32_t pack = threadIdx.x; pack < N; pack += PLEAT__PACK_THREADS) {
        const uint32_t width = w->widths[pack], least = w->mins[pack];
        uint8_t *fields = at + (pack / IN_SLICE + 1) * head_bytes + 2 * w->before[pack];
        for (uint32_t half = 0; half < 2; half++) {
            uint32_t bits = 0;
            for (uint32_t i = 0; i < 8; i++)
                bits |= (pack_code_at<D, VALUES>(w, pack, 8 * half + i) - least) << i * width;
            pack_put(fields + half * width, bits, width);
        }
    }
}

/* Bit planes: byte i of a plane is codes 8i.. of the vector, rows 2i and 2i + 1 of its 16 by 4. */
template <int D, bool VALUES>
static __device__ inline void pack_put_planes(pleat__pack_work<D> *w, uint8_t *at, uint32_t code_bits) {
    const uint32_t columns = VALUES ? PLEAT__PACK_TOKENS : D;
    for (uint32_t n = threadIdx.x; n < 8 * D; n += PLEAT__PACK_THREADS) { /* D vectors of 8 bytes a plane */
        const uint32_t vector = n / 8, i = n % 8, slice = vector / (columns / 4), column = vector % (columns / 4) * 4;
        uint32_t codes[8];
        for (uint32_t k = 0; k < 8; k++) {
            const uint32_t row = 16 * slice + 2 * i + k / 4, c = column + k % 4;
            codes[k] = VALUES ? pack_codes_of(w, w->order[c], true)[row] : pack_codes_of(w, w->order[row], false)[c];
        }
        for (uint32_t p = 0; p < code_bits; p++) {
            uint32_t bits = 0;
            for (uint32_t k = 0; k < 8; k++) bits |= (codes[k] >> p & 1) << k;
            at[vector * 8 * code_bits + 8 * p + i] = (uint8_t)bits;
        }
    }
}

/* A matrix's section at *at, which moves behind it; returns the matrix's word. */
template <int D, bool VALUES>
static __device__ inline uint32_t pack_put_section(pleat__pack_work<D> *w, const pleat__pack_matrix &m, bool is_wide,
                                                   uint32_t *at) {
    const uint32_t width_bits = m.bits == 4 ? 3 : m.bits == 1 ? 1 : 2;
    const uint32_t all = pack_measure<D, VALUES>(w);
    const uint32_t n_packed = 4 * D / 8 * (width_bits + m.bits) + 2 * all, n_raw = 8 * m.bits * D;
    const bool is_packed = n_packed < n_raw;
    const uint32_t n_bytes = is_packed ? n_packed : n_raw;
    if (is_packed)
        pack_put_slices<D, VALUES>(w, w->payload + *at, m.bits, width_bits);
    else
        pack_put_planes<D, VALUES>(w, w->payload + *at, m.bits);
    __syncthreads();
    *at += n_bytes;
    return n_bytes << 3 | (is_wide ? 4 : 0) | (is_packed ? 2 : 0);
}

/* ---- payloads ------------------------------------------------------------------------------------------- */

/* Units from byte `at` on; returns where they end. */
template <int D>
static __device__ inline uint32_t pack_put_units(pleat__pack_work<D> *w, uint32_t at, const uint16_t *mins,
                                                 const uint16_t *steps, uint32_t n, bool is_wide) {
    for (uint32_t i = threadIdx.x; i < n; i += PLEAT__PACK_THREADS) {
        if (is_wide) {
            pack_put(w->payload + at + 2 * i, mins[i], 2);
            pack_put(w->payload + at + 2 * (n + i), steps[i], 2);
        } else {
            const float step = pack_f32(steps[i]);
            const int32_t z = steps[i] ? (int32_t)__fdiv_rn(2 * pack_f32(mins[i]), step) : 0;
            pack_put(w->payload + at + 2 * i, (uint32_t)steps[i] >> 6 << 7 | ((uint32_t)z & 127), 2);
        }
    }
    return at + (is_wide ? 4 : 2) * n;
}

/* XXH32 of bytes 4..end of the payload, by four threads, and the rest by the first. */
static __device__ inline uint32_t pack_sum(const uint8_t *payload, uint32_t n_bytes, uint32_t seed) {
    const uint32_t p1 = 0x9E3779B1u, p2 = 0x85EBCA77u, p3 = 0xC2B2AE3Du, p4 = 0x27D4EB2Fu, p5 = 0x165667B1u;
    const uint32_t lane = threadIdx.x % 4, n = n_bytes - 4, n_stripes = n / 16;
    const uint32_t *words = (const uint32_t *)(const void *)(payload + 4);
    uint32_t acc = lane == 0 ? seed + p1 + p2 : lane == 1 ? seed + p2 : lane == 2 ? seed : seed - p1;
    for (uint32_t i = 0; i < n_stripes; i++) {
        acc += words[4 * i + lane] * p2;
        acc = __funnelshift_l(acc, acc, 13) * p1;
    }
    const uint32_t by = lane == 0 ? 1 : lane == 1 ? 7 : lane == 2 ? 12 : 18;
    acc = __funnelshift_l(acc, acc, by);
    acc += __shfl_xor_sync(PLEAT__ALL_THREADS, acc, 1);
    acc += __shfl_xor_sync(PLEAT__ALL_THREADS, acc, 2);
    uint32_t h = (n_stripes > 0 ? acc : seed + p5) + n;
    const uint8_t *at = payload + 4 + 16 * n_stripes;
    uint32_t left = n % 16;
    for (; left >= 4; left -= 4, at += 4) {
        h += *(const uint32_t *)(const void *)at * p3;
        h = __funnelshift_l(h, h, 17) * p4;
    }
    for (; left > 0; left--, at++) {
        h += *at * p5;
        h = __funnelshift_l(h, h, 11) * p1;
    }
    h ^= h >> 15;
    h *= p2;
    h ^= h >> 13;
    h *= p3;
    return h ^ h >> 16;
}

/* The payload of the tokens that load(work, is_values) puts into work->x, [64][D], each time that it is called by all
 * threads: in work->payload, zeros behind it up to a multiple of 16.  Returns its bytes. */
template <int D, typename Load>
static __device__ inline uint32_t pleat__pack_encode(pleat__pack_work<D> *w, const pleat__pack_coder &c, Load load) {
    load(w, false);
    __syncthreads();
    const bool k_wide = !(c.k.on_grids && pack_keys(w, c, true));
    __syncthreads();
    if (k_wide) pack_keys(w, c, false);
    __syncthreads();
    load(w, true);
    __syncthreads();
    const bool v_wide = !(c.v.on_grids && pack_values(w, c, true));
    if (v_wide) pack_values(w, c, false);
    __syncthreads();
    pack_order(w);
    uint16_t *mins = w->before, *steps = w->before + PLEAT__PACK_TOKENS; /* of values, by place */
    if (threadIdx.x < PLEAT__PACK_TOKENS) {
        mins[threadIdx.x] = w->v_mins[w->order[threadIdx.x]];
        steps[threadIdx.x] = w->v_steps[w->order[threadIdx.x]];
    }
    __syncthreads();
    uint32_t at = pack_put_units(w, 12, w->k_mins, w->k_steps, c.by_channel ? D : 1, k_wide);
    at = pack_put_units(w, at, mins, steps, PLEAT__PACK_TOKENS, v_wide);
    if (threadIdx.x < PLEAT__PACK_TOKENS) w->payload[at + threadIdx.x] = w->order[threadIdx.x];
    at += PLEAT__PACK_TOKENS;
    __syncthreads();
    const uint32_t k_word = pack_put_section<D, false>(w, c.k, k_wide, &at);
    const uint32_t v_word = pack_put_section<D, true>(w, c.v, v_wide, &at);
    uint32_t *words = (uint32_t *)(void *)w->payload;
    if (threadIdx.x == 0) words[1] = k_word;
    if (threadIdx.x == 0) words[2] = v_word;
    if (threadIdx.x >= 32 && threadIdx.x < 48 && at + threadIdx.x - 32 < (at + 15) / 16 * 16)
        w->payload[at + threadIdx.x - 32] = 0;
    __syncthreads();
    if (threadIdx.x < 32) {
        const uint32_t sum = pack_sum(w->payload, at, c.seed);
        if (threadIdx.x == 0) words[0] = sum;
    }
    __syncthreads();
    return at;
}

#endif
