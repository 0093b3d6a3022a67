/* SPDX-License-Identifier: MIT
 *
 * prompt_wgmma.cuh: what Hopper's way of both passes uses: barriers that count bytes, bulk tensor copies, wgmma.
 *
 *     producer   waits until a stage is empty, says how many bytes will come, starts the copies
 *     consumers  wait until it is full, multiply from it, and arrive at its "empty" barrier
 *
 * A barrier's phases alternate: who waits for the n-th completion (from 0) waits for parity n & 1; "empty" barriers
 * begin as if completed once, so producers wait for the other parity.
 *
 * Pass 1 of a long prompt goes by pairs of blocks, clusters of two, where a head has two panels and a group an even number
 * of heads: each copies a panel of K and V into both.  "Empty" barriers count both then.
 *
 * Tiles are those of prompt_tile.cuh, 128 rows, aligned to 1024.  A descriptor names 16 elements along the sum: two
 * chunks of a panel's rows where rows are outputs (q, k), 16 rows where they are summed over (v).
 *
 * Only sm_90a has these instructions: bodies stand under PLEAT__HAS_WGMMA, and a kernel without a body has no static
 * shared memory, by which launchers know it.
 */
#ifndef PLEAT_ATTN_CUDA_PROMPT_WGMMA_CUH
#define PLEAT_ATTN_CUDA_PROMPT_WGMMA_CUH

#include <cuda.h>

#include "attn/cuda/prompt_tile.cuh"
#include "hw/cuda/bulk.cuh"

#define TILE_ROWS 128u
#define CONSUMERS 2u /* warpgroups of 64 rows */
#define WGMMA_THREADS ((1 + CONSUMERS) * 128u)

/* q, k and v as tensors [token][head][element]; a copy takes 128 tokens' panel of one head. */
typedef struct prompt_maps {
    CUtensorMap q, k, v;
} prompt_maps;

#if PLEAT__HAS_WGMMA

/* ---- barriers ----------------------------------------------------------------------------------- */

static __device__ inline void barrier_init(uint64_t *b, uint32_t n_arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(pleat__shared_address(b)), "r"(n_arrivals) : "memory");
}

static __device__ inline void barriers_publish(void) {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ inline void barrier_arrive(uint64_t *b) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(pleat__shared_address(b)) : "memory");
}

static __device__ inline void barrier_expect(uint64_t *b, uint32_t n_bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(pleat__shared_address(b)), "r"(n_bytes)
                 : "memory");
}

static __device__ inline void barrier_wait(uint64_t *b, uint32_t parity) {
    asm volatile("{.reg .pred p; again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @!p bra again;}" ::"r"(
                     pleat__shared_address(b)),
                 "r"(parity)
                 : "memory");
}

/* The D/64 panels of 128 tokens of one head. */
template <int D>
static __device__ inline void copy_tile(uint32_t tile, const CUtensorMap *map, uint32_t head, uint32_t token,
                                        uint64_t *b) {
#pragma unroll
    for (uint32_t panel = 0; panel < D / 64; panel++)
        asm volatile(
            "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
            "[%5];" ::"r"(tile + panel * TILE_ROWS * 128),
            "l"(map), "r"(panel * 64), "r"(head), "r"(token), "r"(pleat__shared_address(b))
            : "memory");
}

/* The same of a tile that all C blocks of a cluster read: each copies a panel to all. */
template <int D, int C>
static __device__ inline void copy_shared_tile(uint32_t tile, const CUtensorMap *map, uint32_t head, uint32_t token,
                                               uint64_t *b) {
    static_assert(C == 1 || C == D / 64, "a panel a block");
    if constexpr (C == 1) {
        copy_tile<D>(tile, map, head, token, b);
    } else {
        const uint32_t panel = blockIdx.x % C;
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                     "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(tile + panel * TILE_ROWS * 128),
                     "l"(map), "r"(panel * 64), "r"(head), "r"(token), "r"(pleat__shared_address(b)),
                     "h"((uint16_t)((1u << C) - 1))
                     : "memory");
    }
}

/* All of the cluster, or the block: barriers are there, or nobody copies or arrives here any more. */
template <int C> static __device__ inline void meet_blocks(void) {
    if constexpr (C == 1) {
        __syncthreads();
    } else {
        __syncwarp();
        pleat__wait_for_cluster();
    }
}

/* ---- multiplying -------------------------------------------------------------------------------- */

template <int N> static __device__ inline void registers_give(void) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> static __device__ inline void registers_take(void) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* Of elements 16*k.. of rows; of rows 16*k.. where they are summed over. */
static __device__ inline uint32_t element_bytes(uint32_t k) { return k / 4 * TILE_ROWS * 128 + k % 4 * 32; }
static __device__ inline uint32_t row_bytes(uint32_t k) { return k * 16 * 128; }

/* c = a b^T (+ c): both described.  Element 4*n + e of c is row thread/4 + 8*(e/2), column 8*n + 2*(thread%4) + e%2. */
static __device__ inline void wgmma(float (&c)[64], uint64_t a, uint64_t b, bool add) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %66, 0; "
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "%64, %65, p, 1, 1, 0, 0;}"
                 : ACC_8(c, 0), ACC_8(c, 8), ACC_8(c, 16), ACC_8(c, 24), ACC_8(c, 32), ACC_8(c, 40), ACC_8(c, 48),
                   ACC_8(c, 56)
                 : "l"(a), "l"(b), "r"((int)add));
}

/* s = 64 rows, described, times all rows of a tile, left under way. */
template <int D> static __device__ inline void wgmma_dot(float (&s)[64], uint32_t a_low, uint32_t b_tile) {
    const uint32_t b_low = describe(b_tile, 16);
#pragma unroll
    for (uint32_t k = 0; k < D / 16; k++)
        wgmma(s, descriptor(a_low, element_bytes(k)), descriptor(b_low, element_bytes(k)), k > 0);
    wgmma_commit();
}

/* The two warpgroups of pass 1 start their products in turns, so that one multiplies while the other makes weights.  What
 * one passes, the other waits for: the second passes once before it begins, and not after its last turn. */
static __device__ inline void turn_wait(void) { asm volatile("bar.sync %0, 256;" ::"r"(threadIdx.x / 128) : "memory"); }

static __device__ inline void turn_pass(void) {
    asm volatile("bar.arrive %0, 256;" ::"r"(3 - threadIdx.x / 128) : "memory");
}

#endif

/* ---- host ----------------------------------------------------------------------------------------- */

/* Fill in the maps.  PLEAT_E_DEVICE: this driver makes none. */
extern "C" pleat_status pleat__prompt_maps(const pleat__device_prompt_attn *p, prompt_maps *maps, pleat_error *err);

/* The map of q for pass 2 where not every query counts. */
extern "C" pleat_status pleat__prompt_query_map(const pleat__prompt_args *args, prompt_maps *maps, pleat_error *err);

extern "C" pleat_status pleat__prompt_attend_wgmma(const pleat__prompt_args *args, const prompt_maps *maps,
                                                   pleat__device_stream stream, pleat_error *err);
extern "C" pleat_status pleat__prompt_received_wgmma(const pleat__prompt_args *args, const prompt_maps *maps,
                                                     pleat__device_stream stream, pleat_error *err);

/* C blocks a cluster. */
template <int C, typename Kernel>
static inline pleat_status launch_blocks(Kernel kernel, dim3 grid, int shared_bytes, const pleat__prompt_args *args,
                                         const prompt_maps *maps, pleat__device_stream stream, pleat_error *err) {
    PLEAT_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
                   "prompt attention's shared memory", err);
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = C;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(WGMMA_THREADS);
    config.dynamicSmemBytes = (size_t)shared_bytes;
    config.stream = pleat__cuda_stream(stream);
    config.attrs = &cluster;
    config.numAttrs = C > 1;
    (void)cudaLaunchKernelEx(&config, kernel, *args, *maps); /* PLEAT_CUDA_LAUNCHED() tells */
    return PLEAT_CUDA_LAUNCHED("prompt attention", err);
}

/* Whether the running GPU's code has wgmma. */
extern "C" pleat_status pleat__prompt_has_wgmma(bool *has, pleat_error *err);

#endif
