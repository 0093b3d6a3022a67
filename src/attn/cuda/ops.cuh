/* SPDX-License-Identifier: MIT
 *
 * ops.cuh: the instructions that attention is made of, by name: loads from shared memory, products of small matrices,
 * arithmetic on pairs of f16, sums over a warp.  All exist from sm_80 on.
 *
 * Products are of a warp: thread 4r + j holds rows r and r + 8 of A and C, column r of B, columns 2j and 2j + 1 of C.
 */
#ifndef PLEAT_ATTN_CUDA_OPS_CUH
#define PLEAT_ATTN_CUDA_OPS_CUH

#include <cuda_fp16.h>
#include <stdint.h>

#include "hw/cuda/warp.cuh"

static __device__ __forceinline__ uint32_t load_4(uint32_t at) {
    uint32_t x;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(at) : "memory");
    return x;
}

static __device__ __forceinline__ uint2 load_8(uint32_t at) {
    uint2 x;
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(at) : "memory");
    return x;
}

static __device__ __forceinline__ uint4 load_16(uint32_t at) {
    uint4 x;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(at)
                 : "memory");
    return x;
}

/* Four 8x8 matrices of f16; threads 8i..8i+7 have the addresses of the rows of the i-th. */
static __device__ __forceinline__ void load_matrices(uint32_t a[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(at)
                 : "memory");
}

static __device__ __forceinline__ void load_matrices_transposed(uint32_t a[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(at)
                 : "memory");
}

static __device__ __forceinline__ uint32_t transpose_8x8(uint32_t x) {
    uint32_t y;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

/* c += a b */
static __device__ __forceinline__ void multiply(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* c += a b on bytes: a of codes, unsigned, b signed. */
static __device__ __forceinline__ void multiply_bytes(int32_t c[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* The same with a signed, of levels. */
static __device__ __forceinline__ void multiply_signed_bytes(int32_t c[4], const uint32_t a[4], uint32_t b0,
                                                             uint32_t b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* c = a b + base: a of levels, b unsigned. */
static __device__ __forceinline__ void multiply_by_bytes(int32_t c[4], const uint32_t a[4], uint32_t b0, uint32_t b1,
                                                         const int32_t base[4]) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %11, %12, %13};"
        : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(base[0]), "r"(base[1]), "r"(base[2]),
          "r"(base[3]));
}

/* 2^x, to about 2 ulp; 0 below 2^-126. */
static __device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ float approximate_inverse(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* x * y + z on pairs of f16.  In assembly, so that no one folds it; subnormals count. */
static __device__ __forceinline__ uint32_t fma_halves(uint32_t x, uint32_t y, uint32_t z) {
    uint32_t r;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(z));
    return r;
}

static __device__ __forceinline__ uint32_t multiply_halves(uint32_t x, uint32_t y) {
    uint32_t r;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
    return r;
}

static __device__ __forceinline__ float2 halves_to_floats(uint32_t x) {
    __half2 h;
    *(uint32_t *)&h = x;
    return __half22float2(h);
}

static __device__ __forceinline__ uint32_t floats_to_halves(float low, float high) {
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

/* 1/x of a power of two. */
static __device__ __forceinline__ float inverse_of_power(float x) {
    return __uint_as_float((254u << 23) - __float_as_uint(x));
}

/* 2^n twice, -14 <= n <= 15. */
static __device__ __forceinline__ uint32_t power_halves(int n) { return (uint32_t)(n + 15) * 0x04000400u; }

/* Four bytes of x and y by the nibbles of `which`, or, where a nibble is 8 more, eight times the byte's top bit.  In
 * assembly: __byte_perm() is only promised for eight bytes. */
static __device__ __forceinline__ uint32_t permute_bytes(uint32_t x, uint32_t y, uint32_t which) {
    uint32_t r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(which));
    return r;
}

/* x where mask is 1, y where it is 0.  In assembly: of a constant mask the compiler makes two instructions. */
static __device__ __forceinline__ uint32_t merge_bits(uint32_t mask, uint32_t x, uint32_t y) {
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0xE2;" : "=r"(r) : "r"(x), "r"(mask), "r"(y));
    return r;
}

static __device__ __forceinline__ uint32_t rotate_left(uint32_t x, int by) {
    return __funnelshift_l(x, x, (uint32_t)by);
}

/* Low halves of two words as one, and high halves. */
static __device__ __forceinline__ uint32_t low_halves(uint32_t x, uint32_t y) { return __byte_perm(x, y, 0x5410); }
static __device__ __forceinline__ uint32_t high_halves(uint32_t x, uint32_t y) { return __byte_perm(x, y, 0x7632); }

/* Sum and maximum over r, the threads with the same j. */
static __device__ __forceinline__ float sum_over_rows(float x) {
    x += __shfl_xor_sync(PLEAT__ALL_THREADS, x, 4);
    x += __shfl_xor_sync(PLEAT__ALL_THREADS, x, 8);
    return x + __shfl_xor_sync(PLEAT__ALL_THREADS, x, 16);
}

static __device__ __forceinline__ float max_over_rows(float x) {
    x = fmaxf(x, __shfl_xor_sync(PLEAT__ALL_THREADS, x, 4));
    x = fmaxf(x, __shfl_xor_sync(PLEAT__ALL_THREADS, x, 8));
    return fmaxf(x, __shfl_xor_sync(PLEAT__ALL_THREADS, x, 16));
}

#endif
