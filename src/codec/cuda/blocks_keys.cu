/* SPDX-License-Identifier: MIT
 *
 * blocks_keys.cu: logits over compressed keys.  See blocks.h; the kernel is in blocks.cuh.  What is known of the device
 * is asked for here too.
 */
#include "codec/cuda/blocks.cuh"

static pleat_status ask(cudaDeviceAttr what, int device, uint32_t *value, pleat_error *err) {
    int n = 0;
    PLEAT_CUDA_TRY(cudaDeviceGetAttribute(&n, what, device), "asking for the GPU's size", err);
    *value = (uint32_t)n;
    return PLEAT_OK;
}

extern "C" pleat_status pleat__device_shape_get(pleat__device_shape *shape, pleat_error *err) {
    int device = 0;
    PLEAT_CUDA_TRY(cudaGetDevice(&device), "asking for the GPU", err);
    PLEAT_TRY(ask(cudaDevAttrMaxSharedMemoryPerMultiprocessor, device, &shape->shared_bytes, err));
    PLEAT_TRY(ask(cudaDevAttrMaxSharedMemoryPerBlockOptin, device, &shape->shared_block_bytes, err));
    PLEAT_TRY(ask(cudaDevAttrReservedSharedMemoryPerBlock, device, &shape->reserved_bytes, err));
    PLEAT_TRY(ask(cudaDevAttrMaxThreadsPerMultiProcessor, device, &shape->n_threads, err));
    return ask(cudaDevAttrMultiProcessorCount, device, &shape->n_multiprocessors, err);
}

extern "C" pleat_status pleat__blocks_keys(const pleat__device_matrices *m, const pleat__device_product *p,
                                           const pleat__device_shape *shape, pleat__device_stream stream,
                                           pleat_error *err) {
    return launch_kind<false>(m, p, shape, stream, err);
}
