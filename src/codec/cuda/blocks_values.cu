/* SPDX-License-Identifier: MIT
 *
 * blocks_values.cu: sums of compressed values by weights.  See blocks.h; the kernel is in blocks.cuh.  Where a lane has
 * more than one task, a second launch adds what they left.
 */
#include "codec/cuda/blocks.cuh"

/* A thread block adds the parts of a lane, in the order of its tasks. */
static __global__ void __launch_bounds__(256)
    add_tasks(const __grid_constant__ pleat__device_matrices m, const __grid_constant__ pleat__device_product p) {
    const uint32_t from = m.lane_tasks[blockIdx.x], to = m.lane_tasks[blockIdx.x + 1];
    const uint32_t n = p.n_group * m.rows;
    if (to - from == 1) return;
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
        float sum = 0;
        for (uint32_t task = from; task < to; task++) sum += p.partial[(uint64_t)task * n + i];
        p.out[(uint64_t)blockIdx.x * n + i] = sum;
    }
}

extern "C" pleat_status pleat__blocks_add_tasks(const pleat__device_matrices *m, const pleat__device_product *p,
                                                pleat__device_stream stream, pleat_error *err) {
    if (!p->has_partial) return PLEAT_OK;
    add_tasks<<<m->n_lanes, 256, 0, pleat__cuda_stream(stream)>>>(*m, *p);
    return PLEAT_CUDA_LAUNCHED("adding the parts of lanes", err);
}

extern "C" pleat_status pleat__blocks_values(const pleat__device_matrices *m, const pleat__device_product *p,
                                             const pleat__device_shape *shape, pleat__device_stream stream,
                                             pleat_error *err) {
    PLEAT_TRY(launch_kind<true>(m, p, shape, stream, err));
    return pleat__blocks_add_tasks(m, p, stream, err);
}
