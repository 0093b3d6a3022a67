/* SPDX-License-Identifier: MIT
 *
 * wgmma.cuh: Hopper's products of a warpgroup, for all kernels: 64 rows times rows in shared memory.
 *
 * Rows of 64 f16 are 128 bytes: chunk c of 16 bytes of row r stands at place c ^ (r & 7), and the first row is aligned to
 * 1024.  That is the "128-byte swizzle", which descriptors here mean.
 *
 * Only sm_90a has these instructions: bodies stand under PLEAT__HAS_WGMMA.
 */
#ifndef PLEAT_HW_CUDA_WGMMA_CUH
#define PLEAT_HW_CUDA_WGMMA_CUH

#include <stdint.h>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define PLEAT__HAS_WGMMA 1
#else
#define PLEAT__HAS_WGMMA 0
#endif

#if PLEAT__HAS_WGMMA

/* A descriptor's low half: where, and `lead` bytes to the next panel where rows are summed over.  From thread 0, so
 * that the compiler keeps it, and what is added to it, in uniform registers: wgmma reads it there. */
static __device__ inline uint32_t describe(uint32_t at, uint32_t lead) {
    return __shfl_sync(~0u, (lead >> 4) << 16 | (at & 0x3FFFFu) >> 4, 0);
}

/* The descriptor of what is n_bytes on: 128-byte swizzle, eight rows are 1024 bytes. */
static __device__ inline uint64_t descriptor(uint32_t low, uint32_t n_bytes) {
    return (uint64_t)(1u << 30 | 1024 >> 4) << 32 | (low + (n_bytes >> 4));
}

static __device__ inline void wgmma_begin(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

static __device__ inline void wgmma_commit(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/* Until at most N groups are under way; then settle() what they wrote. */
template <int N> static __device__ inline void wgmma_wait(void) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Keeps the compiler from using accumulators before the wait above. */
template <int N> static __device__ inline void settle(float (&c)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(c[i])::"memory");
}

/* Eight accumulators as operands. */
#define ACC_8(c, i)                                                                                                   \
    "+f"((c)[i]), "+f"((c)[(i) + 1]), "+f"((c)[(i) + 2]), "+f"((c)[(i) + 3]), "+f"((c)[(i) + 4]), "+f"((c)[(i) + 5]), \
        "+f"((c)[(i) + 6]), "+f"((c)[(i) + 7])

/* c = a b^T (+ c), a in registers, as for mma.  Element 4*n + e of c is row thread/4 + 8*(e/2), column 8*n +
 * 2*(thread%4) + e%2.  SUMMED 1: b is described by the rows that are summed over. */
template <int SUMMED>
static __device__ inline void wgmma(float (&c)[64], const uint32_t (&a)[4], uint64_t b, bool add) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %69, 0; "
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "{%64, %65, %66, %67}, %68, p, 1, 1, %70;}"
                 : ACC_8(c, 0), ACC_8(c, 8), ACC_8(c, 16), ACC_8(c, 24), ACC_8(c, 32), ACC_8(c, 40), ACC_8(c, 48),
                   ACC_8(c, 56)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add), "n"(SUMMED));
}

template <int SUMMED>
static __device__ inline void wgmma(float (&c)[32], const uint32_t (&a)[4], uint64_t b, bool add) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %37, 0; "
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, %36, p, 1, 1, %38;}"
                 : ACC_8(c, 0), ACC_8(c, 8), ACC_8(c, 16), ACC_8(c, 24)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add), "n"(SUMMED));
}

template <int SUMMED>
static __device__ inline void wgmma(float (&c)[16], const uint32_t (&a)[4], uint64_t b, bool add) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %21, 0; "
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
                 "{%16, %17, %18, %19}, %20, p, 1, 1, %22;}"
                 : ACC_8(c, 0), ACC_8(c, 8)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add), "n"(SUMMED));
}

#endif
#endif
