/* SPDX-License-Identifier: MIT
 *
 * wide.cuh: token.cuh's put for heads of any length: a whole warp a token.
 *
 * A head has head_dim/4 quads, head_dim a multiple of 16 up to 256.  Thread t of the warp has quads t and t + 32, as far
 * as there are any.  Threads that share a word of a key's codes stand side by side, all with a quad or all without.
 * Same bytes as the CPU's.
 *
 * Rotated formats are put here alone, heads of 64 and 128 too.  A warp has a vector in shared memory for that, in which
 * sums are taken in the CPU's order.
 */
#ifndef PLEAT_QUANT_CUDA_WIDE_CUH
#define PLEAT_QUANT_CUDA_WIDE_CUH

#include "quant/cuda/token.cuh"

extern "C" {
#include "quant/rotate.h"
}

#define PLEAT__WIDE_QUADS 2
#define PLEAT__WIDE_DIM (PLEAT__WIDE_QUADS * 128u)

/* A thread's part of a token. */
typedef struct pleat__device_wide {
    pleat__device_quad quads[PLEAT__WIDE_QUADS];
} pleat__device_wide;

static __device__ inline void pleat__device_wide_clamp(pleat__device_wide *w) {
#pragma unroll
    for (uint32_t i = 0; i < PLEAT__WIDE_QUADS; i++) w->quads[i] = pleat__device_clamp_quad(w->quads[i]);
}

/* Row of f16 at `from`, [4 n_quads], aligned to 8. */
static __device__ inline pleat__device_wide pleat__device_wide_of(const void *from, uint32_t n_quads) {
    pleat__device_wide w = {};
#pragma unroll
    for (uint32_t i = 0; i < PLEAT__WIDE_QUADS; i++) {
        const uint32_t t = threadIdx.x % 32 + 32 * i;
        if (t < n_quads) w.quads[i] = pleat__device_clamp_quad(pleat__device_quad_of(((const uint2 *)from)[t]));
    }
    return w;
}

/* pleat__device_scale_of() of the warp's token. */
static __device__ inline pleat__device_scale pleat__device_wide_scale(const pleat__device_wide &w, uint32_t n_quads,
                                                                      uint32_t bits) {
    float min = INFINITY, max = -INFINITY;
#pragma unroll
    for (uint32_t i = 0; i < PLEAT__WIDE_QUADS; i++) {
        const float *x = w.quads[i].x;
        if (threadIdx.x % 32 + 32 * i >= n_quads) continue;
        min = fminf(min, fminf(fminf(x[0], x[1]), fminf(x[2], x[3])));
        max = fmaxf(max, fmaxf(fmaxf(x[0], x[1]), fmaxf(x[2], x[3])));
    }
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
        min = fminf(min, __shfl_xor_sync(PLEAT__ALL_THREADS, min, apart));
        max = fmaxf(max, __shfl_xor_sync(PLEAT__ALL_THREADS, max, apart));
    }
    return pleat__device_scale_between(min, max, bits);
}

/* ---- rotation -------------------------------------------------------------------------------------------------- */

#define PLEAT__VECTOR_WARPS 8u /* most of a block that calls what follows */

/* The warp's vector in shared memory. */
static __device__ inline float *pleat__device_vector(void) {
    __shared__ __align__(16) float vectors[PLEAT__VECTOR_WARPS][PLEAT__WIDE_DIM];
    return vectors[threadIdx.x / 32];
}

/* The warp's quads into its vector, for all threads to see; and back. */
static __device__ inline float *pleat__device_wide_write(const pleat__device_wide &w, uint32_t n_quads) {
    float *x = pleat__device_vector();
#pragma unroll
    for (uint32_t i = 0; i < PLEAT__WIDE_QUADS; i++) {
        const uint32_t t = threadIdx.x % 32 + 32 * i;
        if (t < n_quads)
            ((float4 *)(void *)x)[t] = make_float4(w.quads[i].x[0], w.quads[i].x[1], w.quads[i].x[2], w.quads[i].x[3]);
    }
    __syncwarp();
    return x;
}

static __device__ inline void pleat__device_wide_read(pleat__device_wide *w, uint32_t n_quads) {
    const float4 *x = (const float4 *)(const void *)pleat__device_vector();
#pragma unroll
    for (uint32_t i = 0; i < PLEAT__WIDE_QUADS; i++) {
        const uint32_t t = threadIdx.x % 32 + 32 * i;
        if (t < n_quads) w->quads[i] = pleat__device_quad{{x[t].x, x[t].y, x[t].z, x[t].w}};
    }
    __syncwarp();
}

/* rotate.c's walsh() on n elements of the warp's vector. */
static __device__ inline void pleat__device_walsh(float *x, uint32_t n) {
    for (uint32_t half = 1; half < n; half *= 2) {
        for (uint32_t i = threadIdx.x % 32; i < n / 2; i += 32) {
            const uint32_t at = 2 * i - (i & (half - 1));
            const float a = x[at], b = x[at + half];
            x[at] = __fadd_rn(a, b);
            x[at + half] = __fsub_rn(a, b);
        }
        __syncwarp();
    }
    const float factor = __fdiv_rn(1.0f, __fsqrt_rn((float)n));
    for (uint32_t i = threadIdx.x % 32; i < n; i += 32) x[i] = __fmul_rn(x[i], factor);
    __syncwarp();
}

/* The largest power of two in d, which is 16 at least. */
static __device__ inline uint32_t pleat__device_power_in(uint32_t d) { return 1u << (31 - __clz((int)d)); }

static __device__ inline void pleat__device_wide_flip(pleat__device_wide *w) {
#pragma unroll
    for (uint32_t i = 0; i < PLEAT__WIDE_QUADS; i++)
#pragma unroll
        for (uint32_t e = 0; e < 4; e++)
            if (pleat__rotation_flips(4 * (threadIdx.x % 32 + 32 * i) + e)) w->quads[i].x[e] = -w->quads[i].x[e];
}

/* pleat__rotate() and pleat__rotate_back() of the warp's token. */
static __device__ inline void pleat__device_wide_rotate(pleat__device_wide *w, uint32_t n_quads) {
    const uint32_t d = 4 * n_quads, power = pleat__device_power_in(d);
    pleat__device_wide_flip(w);
    float *x = pleat__device_wide_write(*w, n_quads);
    pleat__device_walsh(x, power);
    if (power < d) pleat__device_walsh(x + d - power, power);
    pleat__device_wide_read(w, n_quads);
}

static __device__ inline void pleat__device_wide_rotate_back(pleat__device_wide *w, uint32_t n_quads) {
    const uint32_t d = 4 * n_quads, power = pleat__device_power_in(d);
    float *x = pleat__device_wide_write(*w, n_quads);
    if (power < d) pleat__device_walsh(x + d - power, power);
    pleat__device_walsh(x, power);
    pleat__device_wide_read(w, n_quads);
    pleat__device_wide_flip(w);
}

/* ---- levels ------------------------------------------------------------------------------------------------------ */

/* pleat__dot() of the warp's token with itself. */
static __device__ inline float pleat__device_wide_square(const pleat__device_wide &w, uint32_t n_quads) {
    const float *x = pleat__device_wide_write(w, n_quads);
    float sum = 0;
    for (uint32_t i = threadIdx.x % 16; i < 4 * n_quads; i += 16) sum = __fadd_rn(sum, __fmul_rn(x[i], x[i]));
#pragma unroll
    for (int apart = 8; apart > 0; apart /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(PLEAT__ALL_THREADS, sum, apart));
    __syncwarp();
    return sum;
}

/* levels.c's quantise(): codes of the thread's quads, one in each byte; the scale to store.  Squares of levels are whole
 * numbers, whose sum is exact in any order. */
static __device__ inline uint16_t pleat__device_wide_levels(const pleat__device_wide &w, uint32_t n_quads,
                                                            uint32_t bits, uint32_t codes[PLEAT__WIDE_QUADS]) {
    const float norm = __fsqrt_rn(pleat__device_wide_square(w, n_quads)), root = __fsqrt_rn((float)(4 * n_quads));
    const float unit = __fmul_rn(root, __fdiv_rn(127.0f, pleat__device_largest_level(bits)));
    const float inverse = norm > 0 ? __fdiv_rn(unit, norm) : 0;
    uint32_t squares = 0;
#pragma unroll
    for (uint32_t i = 0; i < PLEAT__WIDE_QUADS; i++) codes[i] = 0;
    for (uint32_t c = 1; c < 1u << bits; c++) {
        const float threshold = 0.5f * (float)(pleat__device_level(bits, c - 1) + pleat__device_level(bits, c));
#pragma unroll
        for (uint32_t i = 0; i < PLEAT__WIDE_QUADS; i++)
#pragma unroll
            for (uint32_t e = 0; e < 4; e++)
                codes[i] += __fmul_rn(w.quads[i].x[e], inverse) > threshold ? 1u << (8 * e) : 0;
    }
#pragma unroll
    for (uint32_t i = 0; i < PLEAT__WIDE_QUADS; i++)
        for (uint32_t e = 0; e < 4 && threadIdx.x % 32 + 32 * i < n_quads; e++) {
            const int32_t level = pleat__device_level(bits, codes[i] >> (8 * e) & 255);
            squares += (uint32_t)(level * level);
        }
    squares = __reduce_add_sync(PLEAT__ALL_THREADS, squares);
    const float scale = __fdiv_rn(norm, __fsqrt_rn((float)squares));
    return __half_as_ushort(__float2half_rn(scale < PLEAT__F16_MAX ? scale : PLEAT__F16_MAX));
}

/* A key's codes of quad t into its words: by all threads of the warp. */
static __device__ inline void pleat__device_put_key_levels(uint8_t *tile, uint32_t bits, uint32_t n_quads, uint32_t t,
                                                           uint32_t token, uint32_t codes) {
    const uint32_t low = pleat__device_low_bits(bits);
    uint32_t word = codes & (low == 4 ? 0x0F0F0F0Fu : 0x03030303u), thirds = codes >> 2 & 0x01010101u;
    word |= __shfl_down_sync(PLEAT__ALL_THREADS, word, 1) << low;
    if (low < 4) word |= __shfl_down_sync(PLEAT__ALL_THREADS, word, 2) << (2 * low);
    thirds |= __shfl_down_sync(PLEAT__ALL_THREADS, thirds, 1) << 1;
    thirds |= __shfl_down_sync(PLEAT__ALL_THREADS, thirds, 2) << 2;
    if (t >= n_quads || t % (8 / low) != 0) return;
    *pleat__device_key_word(tile, low, t, token) = word;
    if (bits != 3) return;
    uint32_t *to = pleat__device_key_thirds(tile, n_quads, t, token);
    *to = pleat__device_with_bits(*to, 0x0F0F0F0Fu, pleat__device_key_third_shift(token), thirds);
}

/* The same of a value's.  Thread t has the thirds of quad t + 2 too, whose words are its own. */
static __device__ inline void pleat__device_put_value_levels(uint8_t *tile, uint32_t bits, uint32_t n_quads, uint32_t t,
                                                             uint32_t token, uint32_t codes) {
    const uint32_t low = pleat__device_low_bits(bits), mask = (1u << low) - 1;
    uint32_t shift = pleat__device_value_shift(low, token), thirds = codes >> 2 & 0x01010101u;
    thirds |= __shfl_down_sync(PLEAT__ALL_THREADS, thirds, 2) << 4;
    if (t >= n_quads) return;
    uint4 *words = pleat__device_value_words_of(tile, low, n_quads, t, token), x = *words;
    x.x = pleat__device_with_bits(x.x, mask, shift, codes & mask);
    x.y = pleat__device_with_bits(x.y, mask, shift, codes >> 8 & mask);
    x.z = pleat__device_with_bits(x.z, mask, shift, codes >> 16 & mask);
    x.w = pleat__device_with_bits(x.w, mask, shift, codes >> 24 & mask);
    *words = x;
    if (bits != 3 || t % 4 >= 2) return;
    words = pleat__device_value_thirds(tile, n_quads, t);
    x = *words;
    shift = pleat__device_value_third_shift(t, token);
    x.x = pleat__device_with_bits(x.x, 0x11, shift, thirds & 0x11);
    x.y = pleat__device_with_bits(x.y, 0x11, shift, thirds >> 8 & 0x11);
    x.z = pleat__device_with_bits(x.z, 0x11, shift, thirds >> 16 & 0x11);
    x.w = pleat__device_with_bits(x.w, 0x11, shift, thirds >> 24);
    *words = x;
}

/* ---- put --------------------------------------------------------------------------------------------------------- */

static __device__ inline void pleat__device_wide_meta(uint16_t *meta, uint32_t token, const pleat__device_scale &s) {
    if (threadIdx.x % 32 == 0) meta[token] = s.scale_f16;
    if (threadIdx.x % 32 == 1) meta[PLEAT__TILE + token] = s.min_f16;
}

static __device__ inline void pleat__device_wide_put_key(const pleat__page_layout &l, uint8_t *page, uint32_t slot,
                                                         const pleat__device_wide &w, uint32_t n_quads) {
    const uint32_t bits = l.format.k_bits, token = slot % PLEAT__TILE;
    uint8_t *tile = pleat__device_k_tile(l, page, slot / PLEAT__TILE);
    if (l.format.rotated) {
        uint32_t codes[PLEAT__WIDE_QUADS];
        const uint16_t scale = pleat__device_wide_levels(w, n_quads, bits, codes);
#pragma unroll
        for (uint32_t i = 0; i < PLEAT__WIDE_QUADS; i++)
            pleat__device_put_key_levels(tile, bits, n_quads, threadIdx.x % 32 + 32 * i, token, codes[i]);
        if (threadIdx.x % 32 == 0) pleat__device_k_meta(l, page, slot / PLEAT__TILE)[token] = scale;
        return;
    }
    pleat__device_scale s = {};
    if (bits < 16) s = pleat__device_wide_scale(w, n_quads, bits);
#pragma unroll
    for (uint32_t i = 0; i < PLEAT__WIDE_QUADS; i++) {
        const uint32_t t = threadIdx.x % 32 + 32 * i;
        if (bits == 16) {
            __half *halves = (__half *)(void *)tile + 4 * t * PLEAT__TILE + token;
            for (uint32_t e = 0; e < 4 && t < n_quads; e++) halves[e * PLEAT__TILE] = __float2half_rn(w.quads[i].x[e]);
            continue;
        }
        uint32_t word = pleat__device_codes(s.min, s.inverse, bits, w.quads[i]);
        if (bits < 8) word |= __shfl_down_sync(PLEAT__ALL_THREADS, word, 1) << bits;
        if (bits < 4) word |= __shfl_down_sync(PLEAT__ALL_THREADS, word, 2) << (2 * bits);
        if (t < n_quads && t % (8 / bits) == 0) *pleat__device_key_word(tile, bits, t, token) = word;
    }
    if (bits < 16) pleat__device_wide_meta(pleat__device_k_meta(l, page, slot / PLEAT__TILE), token, s);
}

static __device__ inline void pleat__device_wide_put_value(const pleat__page_layout &l, uint8_t *page, uint32_t slot,
                                                           const pleat__device_wide &w, uint32_t n_quads) {
    const uint32_t bits = l.format.v_bits, token = slot % PLEAT__TILE;
    uint8_t *tile = pleat__device_v_tile(l, page, slot / PLEAT__TILE);
    if (l.format.rotated) {
        uint32_t codes[PLEAT__WIDE_QUADS];
        const uint16_t scale = pleat__device_wide_levels(w, n_quads, bits, codes);
#pragma unroll
        for (uint32_t i = 0; i < PLEAT__WIDE_QUADS; i++)
            pleat__device_put_value_levels(tile, bits, n_quads, threadIdx.x % 32 + 32 * i, token, codes[i]);
        if (threadIdx.x % 32 == 0) pleat__device_v_meta(l, page, slot / PLEAT__TILE)[token] = scale;
        return;
    }
    const uint32_t mask = (1u << bits) - 1, shift = pleat__device_value_shift(bits, token);
    pleat__device_scale s = {};
    if (bits < 16) s = pleat__device_wide_scale(w, n_quads, bits);
#pragma unroll
    for (uint32_t i = 0; i < PLEAT__WIDE_QUADS; i++) {
        const uint32_t t = threadIdx.x % 32 + 32 * i;
        if (t >= n_quads) continue;
        if (bits == 16) {
            ((uint2 *)(void *)tile)[token * n_quads + t] = pleat__device_quad_f16(w.quads[i]);
            continue;
        }
        uint32_t codes = pleat__device_codes(s.min, s.inverse, bits, w.quads[i]);
        if (bits == 8) codes ^= 0x80808080u; /* stored as code - 128 */
        uint4 *words = pleat__device_value_words_of(tile, bits, n_quads, t, token), x = *words;
        x.x = pleat__device_with_bits(x.x, mask, shift, codes & 0xFF);
        x.y = pleat__device_with_bits(x.y, mask, shift, codes >> 8 & 0xFF);
        x.z = pleat__device_with_bits(x.z, mask, shift, codes >> 16 & 0xFF);
        x.w = pleat__device_with_bits(x.w, mask, shift, codes >> 24);
        *words = x;
    }
    if (bits < 16) pleat__device_wide_meta(pleat__device_v_meta(l, page, slot / PLEAT__TILE), token, s);
}

/* Key and value. */
static __device__ inline void pleat__device_wide_put(const pleat__page_layout &l, uint8_t *page, uint32_t slot,
                                                     const pleat__device_wide &k, const pleat__device_wide &v,
                                                     uint32_t n_quads) {
    pleat__device_wide_put_key(l, page, slot, k, n_quads);
    pleat__device_wide_put_value(l, page, slot, v, n_quads);
}

#endif
