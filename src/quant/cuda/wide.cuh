/* SPDX-License-Identifier: MIT
 *
 * wide.cuh: token.cuh's put for heads of any length: a whole warp a token.
 *
 * A head has head_dim/4 quads, head_dim a multiple of 16 up to 256.  Thread t of the warp has quads t and t + 32, as far
 * as there are any.  Threads that share a word of a key's codes stand side by side, all with a quad or all without.
 * Same bytes as the CPU's.
 */
#ifndef PLEAT_QUANT_CUDA_WIDE_CUH
#define PLEAT_QUANT_CUDA_WIDE_CUH

#include "quant/cuda/token.cuh"

#define PLEAT__WIDE_QUADS 2
#define PLEAT__WIDE_DIM (PLEAT__WIDE_QUADS * 128u)

/* A thread's part of a token. */
typedef struct pleat__device_wide {
    pleat__device_quad quads[PLEAT__WIDE_QUADS];
} pleat__device_wide;

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

static __device__ inline void pleat__device_wide_meta(uint16_t *meta, uint32_t token, const pleat__device_scale &s) {
    if (threadIdx.x % 32 == 0) meta[token] = s.scale_f16;
    if (threadIdx.x % 32 == 1) meta[PLEAT__TILE + token] = s.min_f16;
}

static __device__ inline void pleat__device_wide_put_key(const pleat__page_layout &l, uint8_t *page, uint32_t slot,
                                                         const pleat__device_wide &w, uint32_t n_quads) {
    const uint32_t bits = l.format.k_bits, token = slot % PLEAT__TILE;
    uint8_t *tile = pleat__device_k_tile(l, page, slot / PLEAT__TILE);
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
    const uint32_t mask = (1u << bits) - 1, shift = pleat__device_value_shift(bits, token);
    uint8_t *tile = pleat__device_v_tile(l, page, slot / PLEAT__TILE);
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

#endif
