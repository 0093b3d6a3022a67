/* SPDX-License-Identifier: MIT
 *
 * warp.cuh: what kernels of all kinds do with a whole warp.
 */
#ifndef PLEAT_HW_CUDA_WARP_CUH
#define PLEAT_HW_CUDA_WARP_CUH

#include <stdint.h>

#define PLEAT__ALL_THREADS 0xFFFFFFFFu

/* Inclusive prefix sum over a warp. */
static __device__ inline uint32_t pleat__warp_prefix(uint32_t x) {
#pragma unroll 1
    for (uint32_t by = 1; by < 32; by *= 2) {
        const uint32_t before = __shfl_up_sync(PLEAT__ALL_THREADS, x, by);
        if (threadIdx.x % 32 >= by) x += before;
    }
    return x;
}

#endif
