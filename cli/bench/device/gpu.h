/* SPDX-License-Identifier: MIT
 *
 * gpu.h: what the benchmarks of GPUs need of the CUDA runtime, as plain C: memory, clocks, graphs, and the rivals that
 * come with CUDA.  Everything that is compared runs on one stream, gpu.stream.
 *
 *     cli/cuda/gpu*.cu    with CUDA
 *     cli/gpu_none.c      in builds without: gpu_open() is an error that says so, nothing else is ever called
 *
 * Rules
 *  1. Results are statuses of the library: PLEAT_E_MEMORY where the device has too little, PLEAT_E_DEVICE for all else;
 *     err says what was being done.
 *  2. Functions that take a gpu return before the device is done, but where it is said that they wait.
 */
#ifndef PLEAT_CLI_GPU_H
#define PLEAT_CLI_GPU_H

#include "pleat/pleat.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A device, and the one stream on which all is done. */
typedef struct gpu {
    void *stream;
    void *from, *to; /* the clock's events */
    pleat_device_info info;
} gpu;

/* Device 0.  PLEAT_E_DEVICE: there is none, or this build has no CUDA; err says which. */
pleat_status gpu_open(gpu *g, pleat_error *err);
void gpu_close(gpu *g); /* fine on a gpu of zeros */

/* Wait until all is done; what failed meanwhile is reported here. */
pleat_status gpu_wait(const gpu *g, pleat_error *err);

/* ---- memory -------------------------------------------------------------------------------------------- */

/* Device memory, not cleared; NULL is fine for free.  *_host: the host's, which copies reach without a detour. */
pleat_status gpu_alloc(void **p, uint64_t bytes, pleat_error *err);
pleat_status gpu_alloc_host(void **p, uint64_t bytes, pleat_error *err);
void gpu_free(void *p);
void gpu_free_host(void *p);

/* Device memory that is free now; 0 if the device does not answer. */
uint64_t gpu_free_bytes(void);

/* Copy between any two of device and host. */
pleat_status gpu_copy(const gpu *g, void *to, const void *from, uint64_t bytes, pleat_error *err);

/* n normal variates, f16 or f32, times `scale`; they depend on seed and index alone. */
pleat_status gpu_normal_f16(const gpu *g, void *out, uint64_t n, float scale, uint64_t seed, pleat_error *err);
pleat_status gpu_normal_f32(const gpu *g, float *out, uint64_t n, float scale, uint64_t seed, pleat_error *err);

/* ---- time ---------------------------------------------------------------------------------------------- */

/* The device's own time from start to stop, of what was put on the stream between them.  stop waits. */
pleat_status gpu_clock_start(const gpu *g, pleat_error *err);
pleat_status gpu_clock_stop(const gpu *g, double *us, pleat_error *err);

/* ---- graphs -------------------------------------------------------------------------------------------- */

typedef struct gpu_graph {
    void *v;
} gpu_graph;

/* Record what is put on the stream, and make a graph of it that is launched at once.  After a failure in between, end
 * is called too, with NULL. */
pleat_status gpu_graph_begin(const gpu *g, pleat_error *err);
pleat_status gpu_graph_end(const gpu *g, gpu_graph *graph, pleat_error *err);
pleat_status gpu_graph_launch(const gpu *g, gpu_graph graph, pleat_error *err);
void gpu_graph_destroy(gpu_graph *graph); /* fine on one of zeros */

/* ---- rivals: CUB's scan, and a scatter ------------------------------------------------------------------- */

typedef struct gpu_scan gpu_scan;

/* The least that hands pages out in parallel: an exclusive sum of counts[n_lanes] (host memory) with
 * cub::DeviceScan, and a kernel in which every lane copies its ids from the circular list to its row. */
pleat_status gpu_scan_create(const gpu *g, const uint32_t *counts, uint32_t n_lanes, gpu_scan **out, pleat_error *err);
pleat_status gpu_scan_run(const gpu *g, gpu_scan *scan, pleat_error *err);
void gpu_scan_destroy(gpu_scan **scan);

/* ---- rivals: cuBLAS -------------------------------------------------------------------------------------- */

typedef struct gpu_blas gpu_blas;

/* libcublas.so.13 as the loader finds it; PLEAT_E_UNSUPPORTED: it is not there, and err says what the loader said. */
pleat_status gpu_blas_open(const gpu *g, gpu_blas **out, pleat_error *err);
void gpu_blas_close(gpu_blas **blas);

/* Products of n_lanes matrices m [n_tokens][head_dim], f16, summed in f32, with G vectors each:
 *     logits    out[lane][g][token] = m . x[lane][g]       x [n_lanes][G][head_dim]
 *     outputs   out[lane][g]        = x[lane][g] * m       x [n_lanes][G][n_tokens]
 * x and out f16. */
typedef struct gpu_product {
    const void *m, *x;
    void *out;
    uint32_t n_lanes, n_tokens, head_dim, n_vectors;
} gpu_product;
pleat_status gpu_blas_logits(gpu_blas *blas, const gpu_product *p, pleat_error *err);
pleat_status gpu_blas_outputs(gpu_blas *blas, const gpu_product *p, pleat_error *err);

#ifdef __cplusplus
}
#endif
#endif
