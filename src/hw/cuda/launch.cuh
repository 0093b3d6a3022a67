/* SPDX-License-Identifier: MIT
 *
 * launch.cuh: launches that may overlap with the kernel before them (programmatic dependent launch).
 *
 *     pleat__launch(kernel, blocks, threads, shared, stream, args...);
 *
 *     __global__ void kernel(...) {
 *         pleat__let_next_start();      the next kernel's blocks may come as soon as there is room
 *         ...                           what depends on no kernel before: weights
 *         pleat__wait_for_last();       all kernels before have ended, and what they wrote is seen
 *
 * Every kernel that is launched so waits before it reads or writes anything that another touches, also where it only
 * overwrites.  Since each waits for the one before, all earlier ones have ended too.  Before compute capability 9.0
 * launches follow each other as ever.
 */
#ifndef PLEAT_HW_CUDA_LAUNCH_CUH
#define PLEAT_HW_CUDA_LAUNCH_CUH

#include "hw/cuda/cuda.cuh"

static __device__ __forceinline__ void pleat__let_next_start(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

static __device__ __forceinline__ void pleat__wait_for_last(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Whether the thread's device knows such launches; asked once. */
static inline bool pleat__can_overlap(void) {
    static int known = -1;
    int device = 0, major = 0;
    if (known >= 0) return known != 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess)
        return false;
    known = major >= 9;
    return known != 0;
}

/* Of so many blocks a cluster, which Hopper alone has. */
template <typename... Params, typename... Args>
static inline void pleat__launch_clusters(void (*kernel)(Params...), dim3 blocks, uint32_t n_of_cluster,
                                          uint32_t threads, uint32_t shared_bytes, pleat__device_stream stream,
                                          Args... args) {
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = n_of_cluster;
    attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = pleat__cuda_stream(stream);
    config.attrs = attributes;
    config.numAttrs = 2;
    (void)cudaLaunchKernelEx(&config, kernel, Params(args)...); /* PLEAT_CUDA_LAUNCHED() tells */
}

template <typename... Params, typename... Args>
static inline void pleat__launch(void (*kernel)(Params...), dim3 blocks, uint32_t threads, uint32_t shared_bytes,
                                 pleat__device_stream stream, Args... args) {
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = pleat__cuda_stream(stream);
    config.attrs = &overlap;
    config.numAttrs = pleat__can_overlap() ? 1 : 0;
    (void)cudaLaunchKernelEx(&config, kernel, Params(args)...); /* PLEAT_CUDA_LAUNCHED() tells */
}

#endif
