/* SPDX-License-Identifier: MIT
 *
 * bulk.cuh: Hopper's copies of whole pieces into shared memory, the barriers that count their bytes, and clusters of
 * thread blocks, for all kernels.
 *
 *     pleat__bar_expect(full, bytes); pleat__bulk_copy(to, from, bytes, full);      one thread
 *     pleat__bar_wait(full, parity);                                                whoever reads
 *     pleat__bar_arrive(empty); pleat__bar_arrive_at(empty, rank);                  has read; here, and in that block
 *
 * An arrival at another block's barrier orders what its thread has read before, but nothing that it has written: to say
 * so with the scope of a cluster costs a memory barrier each time, half of a product's time.
 *
 * Addresses of shared memory and sizes are multiples of 16, of barriers of 8.  parity: 0 for a barrier's first phase, 1
 * for its second, and so on.  A wait for parity 1 of a new barrier returns at once.
 */
#ifndef PLEAT_HW_CUDA_BULK_CUH
#define PLEAT_HW_CUDA_BULK_CUH

#include <cuda.h>
#include <stdint.h>

#include "hw/cuda/wgmma.cuh"

#if PLEAT__HAS_WGMMA

static __device__ __forceinline__ void pleat__bar_init(uint32_t bar, uint32_t n_arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(n_arrivals) : "memory");
}

/* What this thread initialised is seen by the cluster and by copies. */
static __device__ __forceinline__ void pleat__bars_are_ready(void) {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Arrive, and have the phase wait for so many bytes. */
static __device__ __forceinline__ void pleat__bar_expect(uint32_t bar, uint32_t n_bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(n_bytes) : "memory");
}

static __device__ __forceinline__ void pleat__bar_arrive(uint32_t bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

/* Arrive at the barrier that stands there in another block of the cluster. */
static __device__ __forceinline__ void pleat__bar_arrive_at(uint32_t bar, uint32_t rank) {
    asm volatile("{.reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; "
                 "mbarrier.arrive.shared::cluster.b64 _, [there];}" ::"r"(bar),
                 "r"(rank)
                 : "memory");
}

static __device__ __forceinline__ void pleat__bar_wait(uint32_t bar, uint32_t parity) {
    asm volatile("{.reg .pred p; "
                 "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; "
                 "@!p bra again;}" ::"r"(bar),
                 "r"(parity)
                 : "memory");
}

static __device__ __forceinline__ void pleat__bulk_copy(uint32_t to, const void *from, uint32_t n_bytes, uint32_t bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(n_bytes), "r"(bar)
                 : "memory");
}

/* The same into the blocks of the cluster that `ranks` has bits of, each with its own barrier. */
static __device__ __forceinline__ void pleat__bulk_copy_to(uint32_t to, const void *from, uint32_t n_bytes,
                                                           uint32_t bar, uint16_t ranks) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(n_bytes), "r"(bar), "h"(ranks)
                 : "memory");
}

/* A box of a matrix that `map` describes, from column and row on. */
static __device__ __forceinline__ void pleat__box_copy(uint32_t to, const CUtensorMap *map, uint32_t col, uint32_t row,
                                                       uint32_t bar) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
                 "[%4];" ::"r"(to),
                 "l"(map), "r"(col), "r"(row), "r"(bar)
                 : "memory");
}

/* A box of three dimensions, the first of which it has whole. */
static __device__ __forceinline__ void pleat__deep_box_copy(uint32_t to, const CUtensorMap *map, uint32_t at1,
                                                            uint32_t at2, uint32_t bar) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {0, %2, %3}], "
                 "[%4];" ::"r"(to),
                 "l"(map), "r"(at1), "r"(at2), "r"(bar)
                 : "memory");
}

static __device__ __forceinline__ void pleat__wait_for_cluster(void) {
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

#endif
#endif
