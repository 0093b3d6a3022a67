/* SPDX-License-Identifier: MIT
 *
 * gpu.cu: gpu.h's device, memory, clock and graphs.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cuda_fp16.h>

#include "gpu.cuh"

/* ---- errors ---------------------------------------------------------------------------------------------- */

pleat_status gpu_fail(pleat_status status, pleat_error *err, const char *fmt, ...) {
    va_list args;
    if (!err) return status;
    va_start(args, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);
    err->code = status;
    err->where = PLEAT_NOWHERE;
    return status;
}

pleat_status gpu_status(cudaError_t code, const char *what, pleat_error *err) {
    if (code == cudaSuccess) return PLEAT_OK;
    (void)cudaGetLastError(); /* else the next launch would report it again */
    if (code == cudaErrorMemoryAllocation)
        return gpu_fail(PLEAT_E_MEMORY, err, "%s: the GPU has too little free memory", what);
    return gpu_fail(PLEAT_E_DEVICE, err, "%s: the GPU failed: %s (%s)", what, cudaGetErrorString(code),
                    cudaGetErrorName(code));
}

/* ---- the device ------------------------------------------------------------------------------------------ */

static pleat_status make_stream(gpu *g, pleat_error *err) {
    cudaStream_t stream;
    cudaEvent_t event;
    GPU_TRY(cudaSetDevice(0), "choosing the GPU", err);
    GPU_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream", err);
    g->stream = stream;
    GPU_TRY(cudaEventCreate(&event), "making an event", err);
    g->from = event;
    GPU_TRY(cudaEventCreate(&event), "making an event", err);
    g->to = event;
    return PLEAT_OK;
}

extern "C" pleat_status gpu_open(gpu *g, pleat_error *err) {
    memset(g, 0, sizeof *g);
    pleat_status status = pleat_device_get_info(0, &g->info, err);
    if (status == PLEAT_OK) status = make_stream(g, err);
    if (status != PLEAT_OK) gpu_close(g);
    return status;
}

extern "C" void gpu_close(gpu *g) {
    if (g->stream) cudaStreamDestroy((cudaStream_t)g->stream);
    if (g->from) cudaEventDestroy((cudaEvent_t)g->from);
    if (g->to) cudaEventDestroy((cudaEvent_t)g->to);
    memset(g, 0, sizeof *g);
}

extern "C" pleat_status gpu_wait(const gpu *g, pleat_error *err) {
    return gpu_status(cudaStreamSynchronize(gpu_stream(g)), "waiting for the GPU", err);
}

/* ---- memory ---------------------------------------------------------------------------------------------- */

extern "C" pleat_status gpu_alloc(void **p, uint64_t bytes, pleat_error *err) {
    char what[64];
    snprintf(what, sizeof what, "taking %llu bytes", (unsigned long long)bytes);
    *p = NULL;
    return gpu_status(cudaMalloc(p, bytes ? bytes : 1), what, err);
}

extern "C" pleat_status gpu_alloc_host(void **p, uint64_t bytes, pleat_error *err) {
    *p = NULL;
    return gpu_status(cudaMallocHost(p, bytes ? bytes : 1), "taking memory of the host", err);
}

extern "C" void gpu_free(void *p) {
    if (p) cudaFree(p);
}

extern "C" void gpu_free_host(void *p) {
    if (p) cudaFreeHost(p);
}

extern "C" uint64_t gpu_free_bytes(void) {
    size_t left = 0, all = 0;
    if (cudaMemGetInfo(&left, &all) == cudaSuccess) return left;
    (void)cudaGetLastError();
    return 0;
}

extern "C" pleat_status gpu_copy(const gpu *g, void *to, const void *from, uint64_t bytes, pleat_error *err) {
    return gpu_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, gpu_stream(g)), "copying", err);
}

/* Two hashes of a 64-bit number (splitmix64). */
static __device__ uint64_t hash_of(uint64_t z) {
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Box and Muller's variate from two uniforms. */
static __device__ float normal_of(uint64_t seed, uint64_t i) {
    const uint64_t h = hash_of(seed * 0xD1342543DE82EF95u + i);
    const float u = ((float)(uint32_t)(h >> 32) + 1) * 0x1p-32f, angle = (float)(uint32_t)h * 0x1p-32f;
    return sqrtf(-2 * logf(u)) * cospif(2 * angle);
}

static __device__ void put(float *out, float v) { *out = v; }
static __device__ void put(__half *out, float v) { *out = __float2half_rn(v); }

template <typename T> static __global__ void normal_kernel(T *out, uint64_t n, float scale, uint64_t seed) {
    const uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        put(out + i, scale * normal_of(seed, i));
}

extern "C" pleat_status gpu_normal_f16(const gpu *g, void *out, uint64_t n, float scale, uint64_t seed,
                                       pleat_error *err) {
    normal_kernel<<<1024, 256, 0, gpu_stream(g)>>>((__half *)out, n, scale, seed);
    return gpu_status(cudaGetLastError(), "making random numbers", err);
}

extern "C" pleat_status gpu_normal_f32(const gpu *g, float *out, uint64_t n, float scale, uint64_t seed,
                                       pleat_error *err) {
    normal_kernel<<<1024, 256, 0, gpu_stream(g)>>>(out, n, scale, seed);
    return gpu_status(cudaGetLastError(), "making random numbers", err);
}

/* ---- time ------------------------------------------------------------------------------------------------ */

extern "C" pleat_status gpu_clock_start(const gpu *g, pleat_error *err) {
    return gpu_status(cudaEventRecord((cudaEvent_t)g->from, gpu_stream(g)), "starting the clock", err);
}

extern "C" pleat_status gpu_clock_stop(const gpu *g, double *us, pleat_error *err) {
    float ms = 0;
    GPU_TRY(cudaEventRecord((cudaEvent_t)g->to, gpu_stream(g)), "stopping the clock", err);
    GPU_TRY(cudaEventSynchronize((cudaEvent_t)g->to), "waiting for the GPU", err);
    GPU_TRY(cudaEventElapsedTime(&ms, (cudaEvent_t)g->from, (cudaEvent_t)g->to), "reading the clock", err);
    *us = (double)ms * 1e3;
    return PLEAT_OK;
}

/* ---- graphs ---------------------------------------------------------------------------------------------- */

extern "C" pleat_status gpu_graph_begin(const gpu *g, pleat_error *err) {
    return gpu_status(cudaStreamBeginCapture(gpu_stream(g), cudaStreamCaptureModeThreadLocal), "recording a graph",
                      err);
}

extern "C" pleat_status gpu_graph_end(const gpu *g, gpu_graph *graph, pleat_error *err) {
    cudaGraph_t recorded = NULL;
    cudaGraphExec_t exec = NULL;
    pleat_status status = gpu_status(cudaStreamEndCapture(gpu_stream(g), &recorded), "recording a graph", err);
    if (status == PLEAT_OK && graph) {
        status = gpu_status(cudaGraphInstantiate(&exec, recorded, 0), "making a graph", err);
        if (status == PLEAT_OK) status = gpu_status(cudaGraphUpload(exec, gpu_stream(g)), "making a graph", err);
        graph->v = exec;
    }
    if (recorded) cudaGraphDestroy(recorded);
    return status;
}

extern "C" pleat_status gpu_graph_launch(const gpu *g, gpu_graph graph, pleat_error *err) {
    return gpu_status(cudaGraphLaunch((cudaGraphExec_t)graph.v, gpu_stream(g)), "launching a graph", err);
}

extern "C" void gpu_graph_destroy(gpu_graph *graph) {
    if (graph->v) cudaGraphExecDestroy((cudaGraphExec_t)graph->v);
    graph->v = NULL;
}
