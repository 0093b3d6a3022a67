/* SPDX-License-Identifier: MIT
 *
 * gpu_scan.cu: gpu.h's rival of page management: CUB's exclusive sum over the lanes' counts, and a kernel that deals
 * out ids.
 *
 *     counts ──cub::DeviceScan::ExclusiveSum──> offsets ──scatter──> row of each lane
 *
 * It is less than pages need: nothing is returned, no lane's need is worked out, nobody looks whether it fits, and the
 * circular list stays where it is.
 */
#include <ostream>
#include <stdlib.h>

/* CUB includes <iostream> for the type of a stream: with it every program would need the C++ library's start-up code.
 * */
#define _GLIBCXX_IOSTREAM 1
#include <cub/device/device_scan.cuh>

#include "gpu.cuh"

enum { ROW_CELLS = 8, BLOCK = 256 };

struct gpu_scan {
    uint32_t n_lanes, n_list;
    uint32_t *counts, *offsets, *list, *rows; /* [n_lanes], [n_lanes], [n_list], [n_lanes][ROW_CELLS] */
    void *scratch;
    size_t scratch_bytes;
};

static __global__ void scatter_kernel(const uint32_t *counts, const uint32_t *offsets, const uint32_t *list,
                                      uint32_t *rows, uint32_t n_lanes, uint32_t start, uint32_t n_list) {
    const uint32_t lane = blockIdx.x * blockDim.x + threadIdx.x;
    if (lane >= n_lanes) return;
    for (uint32_t i = 0; i < counts[lane] && i < ROW_CELLS; i++)
        rows[lane * ROW_CELLS + i] = list[(start + offsets[lane] + i) % n_list];
}

static cudaError_t sum(gpu_scan *s, cudaStream_t stream) {
    return cub::DeviceScan::ExclusiveSum(s->scratch, s->scratch_bytes, s->counts, s->offsets, (int)s->n_lanes, stream);
}

static pleat_status take(uint32_t **out, uint64_t n, pleat_error *err) {
    void *p = NULL;
    const pleat_status status = gpu_alloc(&p, n * sizeof **out, err);
    *out = (uint32_t *)p;
    return status;
}

static pleat_status fill(const gpu *g, gpu_scan *s, const uint32_t *counts, pleat_error *err) {
    const uint64_t bytes = (uint64_t)s->n_lanes * sizeof *counts;
    pleat_status status = take(&s->counts, s->n_lanes, err);
    if (status == PLEAT_OK) status = take(&s->offsets, s->n_lanes, err);
    if (status == PLEAT_OK) status = take(&s->list, s->n_list, err);
    if (status == PLEAT_OK) status = take(&s->rows, (uint64_t)s->n_lanes * ROW_CELLS, err);
    if (status != PLEAT_OK) return status;
    GPU_TRY(cudaMemsetAsync(s->list, 0x5A, s->n_list * sizeof *s->list, gpu_stream(g)), "filling the list", err);
    GPU_TRY(sum(s, gpu_stream(g)), "asking CUB for its scratch", err); /* without scratch it says how much */
    status = gpu_alloc(&s->scratch, s->scratch_bytes, err);
    if (status == PLEAT_OK) status = gpu_copy(g, s->counts, counts, bytes, err);
    return status == PLEAT_OK ? gpu_wait(g, err) : status;
}

extern "C" pleat_status gpu_scan_create(const gpu *g, const uint32_t *counts, uint32_t n_lanes, gpu_scan **out,
                                        pleat_error *err) {
    gpu_scan *s = (gpu_scan *)calloc(1, sizeof *s);
    if (!s) return gpu_fail(PLEAT_E_MEMORY, err, "no memory for CUB's scan");
    s->n_lanes = n_lanes;
    s->n_list = 4 * n_lanes;
    const pleat_status status = fill(g, s, counts, err);
    if (status != PLEAT_OK) gpu_scan_destroy(&s);
    *out = s;
    return status;
}

extern "C" pleat_status gpu_scan_run(const gpu *g, gpu_scan *s, pleat_error *err) {
    GPU_TRY(sum(s, gpu_stream(g)), "CUB's scan", err);
    scatter_kernel<<<(s->n_lanes + BLOCK - 1) / BLOCK, BLOCK, 0, gpu_stream(g)>>>(s->counts, s->offsets, s->list,
                                                                                  s->rows, s->n_lanes, 5, s->n_list);
    return gpu_status(cudaGetLastError(), "handing out", err);
}

extern "C" void gpu_scan_destroy(gpu_scan **scan) {
    gpu_scan *s = *scan;
    if (!s) return;
    gpu_free(s->counts);
    gpu_free(s->offsets);
    gpu_free(s->list);
    gpu_free(s->rows);
    gpu_free(s->scratch);
    free(s);
    *scan = NULL;
}
