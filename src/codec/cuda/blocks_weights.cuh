/* SPDX-License-Identifier: MIT
 *
 * blocks_weights.cuh: what a block's codes are multiplied with: queries or attention weights times the units' steps, as
 * two limbs of 8 bits, in the order in which blocks.cuh decodes codes.
 */
#ifndef PLEAT_CODEC_CUDA_BLOCKS_WEIGHTS_CUH
#define PLEAT_CODEC_CUDA_BLOCKS_WEIGHTS_CUH

#include <cuda_fp16.h>

#include "codec/cuda/blocks.h"
#include "entropy/cuda/words.cuh"
extern "C" {
#include "entropy/cuda/words.h"
}

/* Weights of 16 columns: [QUADS of heads][4 heads][2 c][2 halves][2 limbs] of 4 bytes. */
#define QUAD_BYTES 128u

/* A thread's own x, in a way that the compiler has to keep, not to make again where it is used. */
static __device__ __forceinline__ uint32_t kept(uint32_t x) {
    return __shfl_sync(PLEAT__ALL_THREADS, x, threadIdx.x % 32);
}

/* A kernel is made for a number of columns that is usual, or for any: 0. */
template <int COLUMNS> static __device__ __forceinline__ uint32_t columns_of(const pleat__device_matrices &m) {
    return COLUMNS ? COLUMNS : m.columns;
}

/* Four columns of a block: those of one word of weights, in its order. */
typedef struct quad_units {
    float step[4], middle[4];
} quad_units;

/* A word's first column; the others are 4, 1 and 5 further on. */
static __device__ __forceinline__ uint32_t quad_column(uint32_t word) {
    return word / 4 * 16 + word / 2 % 2 * 8 + word % 2 * 2;
}

/* Two COMPACT units (codec/units.c), those of words' bytes `at` and at + 2.  z + 64 is made a float by what stands
 * above it, and what that adds is taken off again. */
static __device__ __forceinline__ void compact_units(uint32_t two, float centre, quad_units *u, uint32_t at) {
    const uint32_t steps = two >> 1 & 0x7FC07FC0u;
    const float2 step = __half22float2(*(const __half2 *)&steps);
    const float first = __uint_as_float((two & 0x7F) ^ 0x4B000040u);
    const float second = __uint_as_float((two >> 16 & 0x7F) ^ 0x4B000040u);
    u->step[at] = step.x;
    u->step[at + 2] = step.y;
    u->middle[at] = step.x * fmaf(first, 0.5f, centre - 4194336.0f);
    u->middle[at + 2] = step.y * fmaf(second, 0.5f, centre - 4194336.0f);
}

static __device__ __forceinline__ void wide_units(uint32_t mins, uint32_t steps, float centre, quad_units *u,
                                                  uint32_t at) {
    const float2 min = __half22float2(*(const __half2 *)&mins), step = __half22float2(*(const __half2 *)&steps);
    u->step[at] = step.x;
    u->step[at + 2] = step.y;
    u->middle[at] = min.x + step.x * centre;
    u->middle[at + 2] = min.y + step.y * centre;
}

/* Those of a word, from the units of a block. */
static __device__ __forceinline__ quad_units load_units(const pleat__device_matrices &m, const uint8_t *units,
                                                        bool is_wide, uint32_t word) {
    const float centre = (float)PLEAT__TABLE_CENTRE(m.n_levels);
    quad_units u;
    if (m.has_column_units) {
        const uint32_t *two = (const uint32_t *)units + quad_column(word) / 2;
        const uint32_t first = __ldg(two), second = __ldg(two + 2);
        if (is_wide) {
            wide_units(first, __ldg(two + m.columns / 2), centre, &u, 0);
            wide_units(second, __ldg(two + m.columns / 2 + 2), centre, &u, 1);
        } else {
            compact_units(first, centre, &u, 0);
            compact_units(second, centre, &u, 1);
        }
    } else { /* one for all: twice */
        const uint32_t bits = __ldg((const uint32_t *)units);
        const uint32_t first = __byte_perm(bits, 0, 0x1010), second = __byte_perm(bits, 0, 0x3232);
        for (uint32_t i = 0; i < 2; i++) {
            if (is_wide) {
                wide_units(first, second, centre, &u, i);
            } else {
                compact_units(first, centre, &u, i);
            }
        }
    }
    return u;
}

/* x*step of a word's columns; adds their x*middle. */
static __device__ __forceinline__ void fold(const float *x, const quad_units &u, float *folded, float *middle) {
    const float2 first = __ldg((const float2 *)x), second = __ldg((const float2 *)(x + 4));
    const float value[4] = {first.x, second.x, first.y, second.y};
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        folded[i] = value[i] * u.step[i];
        *middle += value[i] * u.middle[i];
    }
}

static __device__ __forceinline__ float most_of(const float *folded) {
    return fmaxf(fmaxf(fabsf(folded[0]), fabsf(folded[1])), fmaxf(fabsf(folded[2]), fabsf(folded[3])));
}

/* Both limbs of 4 weights.  Adding 1.5 * 2^23 leaves a sum's whole number in the lowest bits of the float; 128 more,
 * and the high limb is rounded, and the low one's highest bit turned. */
static __device__ __forceinline__ void limbs(const float *folded, float inverse, uint32_t *high, uint32_t *low) {
    uint32_t n[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) n[i] = __float_as_uint(fmaf(folded[i], inverse, 12582912.0f + 128.0f));
    const uint32_t first = __byte_perm(n[0], n[1], 0x5140), second = __byte_perm(n[2], n[3], 0x5140);
    *low = __byte_perm(first, second, 0x5410) ^ 0x80808080u;
    *high = __byte_perm(first, second, 0x7632);
}

static __device__ __forceinline__ void put_weights(uint32_t at, uint32_t high, uint32_t low) {
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(at), "r"(high), "r"(low) : "memory");
}

/* The largest and the sum over 32 threads, or over halves of 16. */
static __device__ __forceinline__ void reduce(float *most, float *sum, bool is_half) {
#pragma unroll
    for (int i = 8; i > 0; i /= 2) {
        *most = fmaxf(*most, __shfl_xor_sync(PLEAT__ALL_THREADS, *most, i));
        *sum += __shfl_xor_sync(PLEAT__ALL_THREADS, *sum, i);
    }
    if (is_half) return;
    *most = fmaxf(*most, __shfl_xor_sync(PLEAT__ALL_THREADS, *most, 16));
    *sum += __shfl_xor_sync(PLEAT__ALL_THREADS, *sum, 16);
}

/* Nearly 32512 / most: all that its error does is to round weights a little elsewhere, the same ones always. */
static __device__ __forceinline__ float inverse_of(float most) {
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(most));
    return most > 1e-30f ? 32511.0f * inverse : 0;
}

/* A head's scale; and its sum of x*middle, which of values are added up over blocks: they are the same for all rows. */
template <bool VALUES>
static __device__ __forceinline__ void put_head(uint32_t heads, uint32_t head, float most, float middle) {
    const uint32_t at = heads + 8 * head;
    float before = 0;
    if (VALUES) asm volatile("ld.shared.f32 %0, [%1+4];" : "=f"(before) : "r"(at));
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(most * (1 / 32511.0f)), "f"(before + middle)
                 : "memory");
}

/* Where a thread's word of weights is made, of up to 128 columns: a word is a thread's; where 16 threads are enough for
 * all, two heads are made at once. */
typedef struct word_place {
    uint32_t word;    /* it has none if there are fewer */
    uint32_t at;      /* address in shared memory, for the first head */
    uint32_t is_half; /* 16 threads */
    uint32_t second;  /* 1: of the second of two heads */
} word_place;

template <int QUADS, int COLUMNS>
static __device__ __forceinline__ word_place place_word(const pleat__device_matrices &m, uint32_t weights) {
    const uint32_t thread = threadIdx.x % 32;
    word_place w;
    w.is_half = columns_of<COLUMNS>(m) <= 64;
    w.second = kept(w.is_half ? thread / 16 : 0);
    w.word = kept(w.is_half ? thread % 16 : thread);
    w.at = kept(weights + w.word / 4 * (QUADS * QUAD_BYTES) + w.word % 2 * 16 + w.word / 2 % 2 * 8);
    return w;
}

/* Weights of a block for all heads.  x: the thread's, from the block's first column on. */
template <int QUADS, bool VALUES, int COLUMNS>
static __device__ __forceinline__ void make_weights(const pleat__device_matrices &m, uint32_t n_group, const float *x,
                                                    uint64_t x_stride, const uint8_t *units, bool is_wide,
                                                    const word_place &w, uint32_t heads) {
    const bool has_word = COLUMNS != 0 || w.word < m.columns / 4; /* the usual numbers have one for each thread */
    const uint32_t step = w.is_half ? 2 : 1;
    quad_units u = {};
    if (has_word) u = load_units(m, units, is_wide, w.word);
    x += quad_column(w.word) + w.second * x_stride;
#pragma unroll 1
    for (uint32_t head = w.second; pleat__warp_any(head < n_group); head += step, x += step * x_stride) {
        const bool is_active = has_word && head < n_group;
        float folded[4] = {0, 0, 0, 0}, middle = 0;
        if (is_active) fold(x, u, folded, &middle);
        float most = most_of(folded);
        reduce(&most, &middle, w.is_half);
        uint32_t high, low;
        limbs(folded, inverse_of(most), &high, &low);
        if (is_active) put_weights(w.at + head / 4 * QUAD_BYTES + head % 4 * 32, high, low);
        if (is_active && w.word == 0) put_head<VALUES>(heads, head, most, middle);
    }
    __syncwarp();
}

/* The same for more than 128 columns: a thread has several words, twice each head. */
template <int QUADS, bool VALUES>
static __device__ __forceinline__ void make_many_weights(const pleat__device_matrices &m, uint32_t n_group,
                                                         const float *x, uint64_t x_stride, const uint8_t *units,
                                                         bool is_wide, uint32_t weights, uint32_t heads) {
    const uint32_t thread = threadIdx.x % 32, n_words = m.columns / 4;
#pragma unroll 1
    for (uint32_t head = 0; head < n_group; head++, x += x_stride) {
        float folded[4], middle = 0, most = 0, unused = 0;
#pragma unroll 1
        for (uint32_t word = thread; word < n_words; word += 32) {
            fold(x + quad_column(word), load_units(m, units, is_wide, word), folded, &middle);
            most = fmaxf(most, most_of(folded));
        }
        reduce(&most, &middle, false);
#pragma unroll 1
        for (uint32_t word = thread; word < n_words; word += 32) {
            uint32_t high, low;
            fold(x + quad_column(word), load_units(m, units, is_wide, word), folded, &unused);
            limbs(folded, inverse_of(most), &high, &low);
            put_weights(weights + (word / 4 * QUADS + head / 4) * QUAD_BYTES + head % 4 * 32 + word % 2 * 16 +
                            word / 2 % 2 * 8,
                        high, low);
        }
        if (thread == 0) put_head<VALUES>(heads, head, most, middle);
    }
    __syncwarp();
}

#endif
