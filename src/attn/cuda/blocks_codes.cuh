/* SPDX-License-Identifier: MIT
 *
 * blocks_codes.cuh: codes of a block's keys and values as rows of 32 nibbles in a warp's shared memory.
 *
 *     PACK   a pack's fields are spread to nibbles, all widths alike: no branch, no table
 *     RAW    planes are transposed to nibbles
 *
 *     row    16 bytes, 32 codes                                      n-th row of a matrix, 8 rows to 128 bytes
 *     keys   a row is a dimension, its codes 32 places               all dimensions, two slices of places
 *     values PACK: half a dimension, its codes 32 places             32 dimensions, two slices of them
 *            RAW: a place, its codes 32 dimensions                   all places, two slices of dimensions
 *
 * So one ldmatrix hands a thread 8 codes in a register, and a mask makes two halves of them: a code n is the subnormal
 * half n * 2^-24, or, a nibble further up, n * 2^-20.
 */
#ifndef PLEAT_ATTN_CUDA_BLOCKS_CODES_CUH
#define PLEAT_ATTN_CUDA_BLOCKS_CODES_CUH

#include "attn/cuda/blocks.h"
#include "attn/cuda/ops.cuh"

#define T PLEAT__DEVICE_BLOCK_TOKENS
#define ROW_BYTES 16u

static __device__ __forceinline__ void put_8(uint32_t at, uint32_t x, uint32_t y) {
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(at), "r"(x), "r"(y) : "memory");
}
static __device__ __forceinline__ void put_16(uint32_t at, uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}

/* x * y + z by the pipe for products. */
static __device__ __forceinline__ uint32_t product(uint32_t x, uint32_t y, uint32_t z) {
    uint32_t r;
    asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(z));
    return r;
}

/* 32 bits from bit `bit` of what begins at `at`, a multiple of 4, on. */
static __device__ __forceinline__ uint32_t load_bits(uint32_t at, uint32_t bit) {
    at += bit / 32 * 4;
    return __funnelshift_r(load_4(at), load_4(at + 4), bit);
}

/* Inclusive prefix sum over the warp. */
static __device__ __forceinline__ uint32_t prefix_of(uint32_t x) {
#pragma unroll
    for (int by = 1; by < 32; by *= 2)
        asm volatile("{.reg .pred p; .reg .b32 y; shfl.sync.up.b32 y|p, %0, %1, 0, -1; @p add.u32 %0, %0, y;}"
                     : "+r"(x)
                     : "r"(by));
    return x;
}

/* A section under way. */
typedef struct section {
    uint32_t at;   /* address of the next slice: a multiple of 2 */
    uint32_t bits; /* of a code */
    bool is_raw;
} section;

/* ---- packs ---------------------------------------------------------------------------------------------- */

/* Where a thread's packs of a slice stand: 32 * N packs, of which thread t has those from N*t on. */
template <int N> struct packs { uint32_t at, widths, mins; };

static __device__ __forceinline__ uint32_t width_bits_of(uint32_t bits) { return bits == 4 ? 3 : bits == 1 ? 1 : 2; }

/* Widths and minimums of the thread's packs of the slice that begins at `at`; returns the sum of those widths. */
template <int N>
static __device__ __forceinline__ uint32_t load_widths(uint32_t at, uint32_t bits, uint32_t width_bits, packs<N> *p) {
    const uint32_t aligned = at & ~3u, first = at % 4 * 8;
    p->widths = load_bits(aligned, first + threadIdx.x * N * width_bits);
    p->mins = load_bits(aligned, first + 32 * N * width_bits + threadIdx.x * N * bits);
    uint32_t sum = 0;
#pragma unroll
    for (int j = 0; j < N; j++) sum += p->widths >> j * width_bits & ((1u << width_bits) - 1);
    return sum;
}

/* The next two slices' packs. */
template <int N> static __device__ __forceinline__ void find_packs(section *s, packs<N> *first, packs<N> *second) {
    const uint32_t width_bits = width_bits_of(s->bits), head_bytes = 4 * N * (width_bits + s->bits);
    const uint32_t sum = load_widths<N>(s->at, s->bits, width_bits, first);
    const uint32_t next = s->at + head_bytes + 2 * __reduce_add_sync(PLEAT__ALL_THREADS, sum);
    const uint32_t both = sum | load_widths<N>(next, s->bits, width_bits, second) << 16;
    const uint32_t ends = prefix_of(both), before = ends - both;
    first->at = s->at + head_bytes + 2 * (before & 0xFFFFu);
    second->at = next + head_bytes + 2 * (before >> 16);
    s->at = next + head_bytes + 2 * (__shfl_sync(PLEAT__ALL_THREADS, ends, 31) >> 16);
}

/* What spreads fields of a width: left shifts as factors, since products have a pipe of their own; and the width's ones
 * in each nibble. */
typedef struct spread {
    uint32_t by_4, by_2, by_1, mask; /* 2^(16 - 4 width), 2^(8 - 2 width), 2^(4 - width) */
} spread;

static __device__ __forceinline__ spread spread_of(uint32_t width) {
    const uint32_t by_1 = 16u >> width, by_2 = product(by_1, by_1, 0);
    return spread{product(by_2, by_2, 0), by_2, by_1, product(1u << width, 0x11111111u, 0u - 0x11111111u)};
}

/* Eight fields from bit 0 of x on as eight nibbles; min is added to each. */
static __device__ __forceinline__ uint32_t to_nibbles(uint32_t x, const spread &s, uint32_t min) {
    x = permute_bytes(x, product(x, s.by_4, 0), 0x7610);
    x = merge_bits(0x00FF00FFu, x, product(x, s.by_2, 0));
    x = merge_bits(0x0F0F0F0Fu, x, product(x, s.by_1, 0));
    return product(min, 0x11111111u, x & s.mask);
}

/* The thread's next pack: 16 nibbles. */
template <int N> static __device__ __forceinline__ uint2 take_pack(packs<N> *p, uint32_t bits) {
    const uint32_t width_bits = width_bits_of(bits), width = p->widths & ((1u << width_bits) - 1);
    const uint32_t word = p->at & ~3u, shift = product(p->at, 8, 0), middle = load_4(word + 4);
    const uint32_t low = __funnelshift_r(load_4(word), middle, shift);
    const uint32_t high = __funnelshift_r(middle, load_4(word + 8), shift);
    const uint32_t min = p->mins & ((1u << bits) - 1);
    const spread s = spread_of(width);
    p->at = product(width, 2, p->at);
    p->widths >>= width_bits;
    p->mins >>= bits;
    return make_uint2(to_nibbles(low, s, min), to_nibbles(__funnelshift_rc(low, high, product(width, 8, 0)), s, min));
}

/* ---- planes --------------------------------------------------------------------------------------------- */

/* Bits 4i + j of words p, p and j = 0..3, become bits 4i + p of words j. */
static __device__ __forceinline__ void transpose_nibbles(uint32_t x[4]) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const uint32_t t = (x[i] >> 1 ^ x[i + 1]) & 0x55555555u;
        x[i + 1] ^= t;
        x[i] ^= t << 1;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t t = (x[i] >> 2 ^ x[i + 2]) & 0x33333333u;
        x[i + 2] ^= t;
        x[i] ^= t << 2;
    }
}

/* The planes of 8 rows by 4 columns, 32 bits each and 8 bytes apart, from byte `at` on, as 8 codes of 4 bits of each
 * column. */
static __device__ __forceinline__ void load_planes(uint32_t at, uint32_t n, uint32_t x[4]) {
    const uint32_t bit = at % 4 * 8;
#pragma unroll
    for (uint32_t p = 0; p < 4; p++) x[p] = p < n ? load_bits(at & ~3u, bit + 64 * p) : 0;
    transpose_nibbles(x);
}

/* The vector at `at`: 16 rows of 4 columns, a column's in each of first and second. */
static __device__ __forceinline__ void load_vector(uint32_t at, uint32_t n, uint32_t first[4], uint32_t second[4]) {
    load_planes(at, n, first);
    load_planes(at + 4, n, second);
}

/* ---- rows ----------------------------------------------------------------------------------------------- */

/* Row of a dimension of keys.  Neither what 8 threads write at once meets in a bank, nor what ldmatrix reads. */
template <int N> static __device__ __forceinline__ uint32_t key_row(uint32_t rows, uint32_t dimension) {
    return rows + (dimension ^ dimension / 8 % N) * ROW_BYTES;
}

/* The next two slices of keys: 32 places of 32 * N dimensions. */
template <int N> static __device__ __forceinline__ void put_packed_keys(section *s, uint32_t rows) {
    packs<N> a, b;
    find_packs<N>(s, &a, &b);
#pragma unroll
    for (uint32_t j = 0; j < N; j++) {
        const uint2 x = take_pack<N>(&a, s->bits), y = take_pack<N>(&b, s->bits);
        put_16(key_row<N>(rows, N * threadIdx.x + j), x.x, x.y, y.x, y.y);
    }
}

template <int N> static __device__ __forceinline__ void put_raw_keys(section *s, uint32_t rows) {
    const uint32_t first_dimension = N * threadIdx.x;
#pragma unroll
    for (uint32_t slice = 0; slice < 2; slice++) {
        uint32_t x[4], y[4];
        load_vector(s->at + first_dimension / 4 * 8 * s->bits, s->bits, x, y);
#pragma unroll
        for (uint32_t j = 0; j < N; j++) {
            const bool is_upper = N == 2 && threadIdx.x % 2 != 0; /* two threads have a vector */
            put_8(key_row<N>(rows, first_dimension + j) + 8 * slice, is_upper ? x[(j + 2) % 4] : x[j],
                  is_upper ? y[(j + 2) % 4] : y[j]);
        }
        s->at += N * 8 * 8 * s->bits;
    }
}

/* Row of 32 places of a dimension, of 32. */
static __device__ __forceinline__ uint32_t value_row(uint32_t rows, uint32_t dimension, uint32_t half) {
    const uint32_t slice = dimension / 16, in_4 = dimension / 4 % 4, upper = dimension / 2 % 2, odd = dimension % 2;
    return rows + (in_4 + 4 * (slice ^ upper) + 8 * (odd + 2 * upper + 4 * half)) * ROW_BYTES;
}

/* Row of a place. */
static __device__ __forceinline__ uint32_t place_row(uint32_t rows, uint32_t place) {
    return rows + (place / 4 % 8 + 8 * (place % 4 + place / 32 * 4)) * ROW_BYTES;
}

/* The next two slices of values: 32 dimensions of all places. */
static __device__ __forceinline__ void put_packed_values(section *s, uint32_t rows) {
    const uint32_t thread = threadIdx.x, dimension = 2 * thread % 16, group = thread / 8;
    packs<2> a, b;
    find_packs<2>(s, &a, &b);
#pragma unroll
    for (uint32_t j = 0; j < 2; j++) {
        const uint2 x = take_pack<2>(&a, s->bits), y = take_pack<2>(&b, s->bits);
        put_8(value_row(rows, dimension + j, group / 2) + group % 2 * 8, x.x, x.y);
        put_8(value_row(rows, dimension + 16 + j, group / 2) + group % 2 * 8, y.x, y.y);
    }
}

static __device__ __forceinline__ void put_raw_values(section *s, uint32_t rows) {
    const uint32_t slice = threadIdx.x / 16, vector = threadIdx.x % 16;
    uint32_t x[4], y[4];
    load_vector(s->at + threadIdx.x * 8 * s->bits, s->bits, x, y);
#pragma unroll
    for (uint32_t j = 0; j < 4; j++) put_8(place_row(rows, 4 * vector + j) + 8 * slice, x[j], y[j]);
    s->at += 32 * 8 * s->bits;
}

#endif
