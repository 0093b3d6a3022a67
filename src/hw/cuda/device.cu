/* SPDX-License-Identifier: MIT
 *
 * device.cu: hw/device.h on the CUDA runtime.
 */
#include <stdio.h>

#include "hw/cuda/cuda.cuh"

/* The oldest devices that this build has code for (CMakeLists.txt). */
#define LEAST_CAPABILITY 80

/* ---- errors ------------------------------------------------------------------------------------------ */

static uint64_t calls_left; /* until one fails on purpose; 0: none does */

void pleat__device_fail_at(uint64_t nth) { __atomic_store_n(&calls_left, nth, __ATOMIC_RELAXED); }

static bool fails_now(void) {
    const uint64_t n = __atomic_load_n(&calls_left, __ATOMIC_RELAXED);
    if (n > 0) __atomic_store_n(&calls_left, n - 1, __ATOMIC_RELAXED);
    return n == 1;
}

static pleat_status say(cudaError_t code, const char *what, pleat_error *err) {
    (void)cudaGetLastError(); /* else the next launch would report it again */
    switch (code) {
        case cudaErrorMemoryAllocation:
            return pleat__error_set(err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "%s: too little free memory", what);
        case cudaErrorNoDevice:
            return pleat__error_set(err, PLEAT_E_DEVICE, PLEAT_NOWHERE,
                                    "no GPU: the CUDA driver answers, but shows none (CUDA_VISIBLE_DEVICES?)");
        case cudaErrorStubLibrary:
            return pleat__error_set(err, PLEAT_E_DEVICE, PLEAT_NOWHERE,
                                    "no GPU: what was found as the CUDA driver is the toolkit's stub of it");
        case cudaErrorInsufficientDriver: {
            int has = 0;
            (void)cudaDriverGetVersion(&has);
            if (has == 0)
                return pleat__error_set(err, PLEAT_E_DEVICE, PLEAT_NOWHERE,
                                        "no GPU: there is no CUDA driver on this machine");
            return pleat__error_set(err, PLEAT_E_DEVICE, PLEAT_NOWHERE,
                                    "the CUDA driver is too old: it knows CUDA %d.%d, this build needs %d.%d",
                                    has / 1000, has % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
        }
        case cudaErrorNoKernelImageForDevice:
            return pleat__error_set(
                err, PLEAT_E_DEVICE, PLEAT_NOWHERE,
                "%s: this build has no code for this GPU; it needs compute capability %d.%d or more", what,
                LEAST_CAPABILITY / 10, LEAST_CAPABILITY % 10);
        default:
            return pleat__error_set(err, PLEAT_E_DEVICE, PLEAT_NOWHERE, "%s: the GPU failed: %s (%s)", what,
                                    cudaGetErrorString(code), cudaGetErrorName(code));
    }
}

static pleat_status status_of(cudaError_t code, cudaError_t injected, const char *what, pleat_error *err) {
    if (fails_now()) code = injected;
    return code == cudaSuccess ? PLEAT_OK : say(code, what, err);
}

pleat_status pleat__cuda_status(int code, const char *what, pleat_error *err) {
    return status_of((cudaError_t)code, cudaErrorLaunchFailure, what, err);
}

/* ---- devices ----------------------------------------------------------------------------------------- */

pleat_status pleat_device_count(uint32_t *n_devices, pleat_error *err) {
    PLEAT_FAIL_IF(!n_devices, err, PLEAT_E_ARG, PLEAT_NOWHERE, "device count: no place for the answer");
    int n = 0;
    *n_devices = 0;
    PLEAT_CUDA_TRY(cudaGetDeviceCount(&n), "counting GPUs", err);
    if (n == 0) return say(cudaErrorNoDevice, "counting GPUs", err);
    *n_devices = (uint32_t)n;
    return PLEAT_OK;
}

/* The device's memory.  Only the thread's own device tells it: for the while, it is this one. */
static pleat_status ask_memory(uint32_t device, size_t *free_bytes, size_t *all_bytes, pleat_error *err) {
    int before = 0;
    PLEAT_CUDA_TRY(cudaGetDevice(&before), "asking which GPU is in use", err);
    PLEAT_TRY(pleat__device_use(device, err));
    const cudaError_t code = cudaMemGetInfo(free_bytes, all_bytes);
    if (before != (int)device) (void)cudaSetDevice(before);
    return pleat__cuda_status((int)code, "asking for the GPU's free memory", err);
}

pleat_status pleat_device_get_info(uint32_t device, pleat_device_info *info, pleat_error *err) {
    uint32_t n;
    cudaDeviceProp p;
    size_t free_bytes, all_bytes;
    int driver = 0;
    PLEAT_FAIL_IF(!info, err, PLEAT_E_ARG, PLEAT_NOWHERE, "device info: no place for the answer");
    PLEAT_TRY(pleat_device_count(&n, err));
    PLEAT_FAIL_IF(device >= n, err, PLEAT_E_DEVICE, PLEAT_NOWHERE, "no GPU %u: there %s %u, counted from 0", device,
                  n == 1 ? "is" : "are", n);
    PLEAT_CUDA_TRY(cudaGetDeviceProperties(&p, (int)device), "asking what the GPU is", err);
    PLEAT_TRY(ask_memory(device, &free_bytes, &all_bytes, err));
    PLEAT_CUDA_TRY(cudaDriverGetVersion(&driver), "asking for the driver's version", err);
    pleat_device_info found = {};
    snprintf(found.name, sizeof found.name, "%s", p.name);
    found.compute_capability = (uint32_t)(10 * p.major + p.minor);
    found.n_multiprocessors = (uint32_t)p.multiProcessorCount;
    found.memory_bytes = all_bytes;
    found.free_bytes = free_bytes;
    found.l2_bytes = (uint64_t)p.l2CacheSize;
    found.driver_version = (uint32_t)driver;
    found.runtime_version = CUDART_VERSION;
    *info = found;
    return PLEAT_OK;
}

/* Whether the device can run this build's code was asked when it was chosen here; to ask which one is the thread's now
 * costs next to nothing, to choose it again a microsecond. */
pleat_status pleat__device_use(uint32_t device, pleat_error *err) {
    int now = -1, major = 0, minor = 0;
    static __thread int chosen = -1; /* the last one chosen here that can, be it the thread's still or not */
    PLEAT_CUDA_TRY(cudaGetDevice(&now), "asking which GPU is in use", err);
    if (chosen == (int)device && now == chosen) return PLEAT_OK;
    PLEAT_CUDA_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, (int)device), "asking the GPU",
                   err);
    PLEAT_CUDA_TRY(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, (int)device), "asking the GPU",
                   err);
    if (10 * major + minor < LEAST_CAPABILITY) return say(cudaErrorNoKernelImageForDevice, "choosing the GPU", err);
    PLEAT_CUDA_TRY(cudaSetDevice((int)device), "choosing the GPU", err);
    chosen = (int)device;
    return PLEAT_OK;
}

/* ---- memory ------------------------------------------------------------------------------------------ */

pleat_status pleat__device_alloc(uint64_t bytes, void **p, pleat_error *err) {
    char what[64];
    void *got = NULL;
    snprintf(what, sizeof what, "taking %llu bytes of the GPU's memory", (unsigned long long)bytes);
    const bool fails = fails_now();
    const cudaError_t code = fails ? cudaErrorMemoryAllocation : cudaMalloc(&got, bytes);
    if (code != cudaSuccess) return say(code, what, err);
    *p = got;
    return PLEAT_OK;
}

void pleat__device_free(void *p) { (void)cudaFree(p); }

pleat_status pleat__device_alloc_host(uint64_t bytes, void **p, pleat_error *err) {
    void *got = NULL;
    const bool fails = fails_now();
    const cudaError_t code = fails ? cudaErrorMemoryAllocation : cudaMallocHost(&got, bytes);
    if (code != cudaSuccess) return say(code, "taking memory of the host for copies", err);
    *p = got;
    return PLEAT_OK;
}

void pleat__device_free_host(void *p) { (void)cudaFreeHost(p); }

pleat_status pleat__device_copy(void *to, const void *from, uint64_t bytes, pleat__device_stream stream,
                                pleat_error *err) {
    return pleat__cuda_status((int)cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, pleat__cuda_stream(stream)),
                              "copying", err);
}

pleat_status pleat__device_fill(void *p, int byte, uint64_t bytes, pleat__device_stream stream, pleat_error *err) {
    return pleat__cuda_status((int)cudaMemsetAsync(p, byte, bytes, pleat__cuda_stream(stream)), "filling memory", err);
}

/* ---- streams, events, graphs ---------------------------------------------------------------------------- */

pleat_status pleat__device_stream_create(pleat__device_stream *stream, pleat_error *err) {
    cudaStream_t made;
    PLEAT_CUDA_TRY(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "making a stream", err);
    stream->v = made;
    return PLEAT_OK;
}

void pleat__device_stream_destroy(pleat__device_stream *stream) {
    if (stream->v) (void)cudaStreamDestroy(pleat__cuda_stream(*stream));
    stream->v = NULL;
}

pleat_status pleat__device_wait(pleat__device_stream stream, pleat_error *err) {
    return pleat__cuda_status((int)cudaStreamSynchronize(pleat__cuda_stream(stream)), "waiting for the GPU", err);
}

pleat_status pleat__device_event_create(pleat__device_event *event, pleat_error *err) {
    cudaEvent_t made;
    PLEAT_CUDA_TRY(cudaEventCreate(&made), "making an event", err);
    event->v = made;
    return PLEAT_OK;
}

void pleat__device_event_destroy(pleat__device_event *event) {
    if (event->v) (void)cudaEventDestroy((cudaEvent_t)event->v);
    event->v = NULL;
}

pleat_status pleat__device_event_record(pleat__device_event event, pleat__device_stream stream, pleat_error *err) {
    return pleat__cuda_status((int)cudaEventRecord((cudaEvent_t)event.v, pleat__cuda_stream(stream)),
                              "recording an event", err);
}

pleat_status pleat__device_stream_follow(pleat__device_stream stream, pleat__device_event event, pleat_error *err) {
    return pleat__cuda_status((int)cudaStreamWaitEvent(pleat__cuda_stream(stream), (cudaEvent_t)event.v, 0),
                              "having a stream wait for another", err);
}

pleat_status pleat__device_event_wait(pleat__device_event event, pleat_error *err) {
    return pleat__cuda_status((int)cudaEventSynchronize((cudaEvent_t)event.v), "waiting for the GPU", err);
}

pleat_status pleat__device_event_elapsed(pleat__device_event from, pleat__device_event to, float *ms,
                                         pleat_error *err) {
    PLEAT_CUDA_TRY(cudaEventSynchronize((cudaEvent_t)to.v), "waiting for an event", err);
    return pleat__cuda_status((int)cudaEventElapsedTime(ms, (cudaEvent_t)from.v, (cudaEvent_t)to.v),
                              "reading two events", err);
}

pleat_status pleat__device_graph_begin(pleat__device_stream stream, pleat_error *err) {
    const bool fails = fails_now(); /* then nothing is being recorded */
    const cudaError_t code = fails
                                 ? cudaErrorLaunchFailure
                                 : cudaStreamBeginCapture(pleat__cuda_stream(stream), cudaStreamCaptureModeThreadLocal);
    return code == cudaSuccess ? PLEAT_OK : say(code, "recording a graph", err);
}

pleat_status pleat__device_graph_end(pleat__device_stream stream, pleat__device_graph *graph, pleat_error *err) {
    cudaGraph_t recorded = NULL;
    cudaGraphExec_t made;
    const cudaError_t ended = cudaStreamEndCapture(pleat__cuda_stream(stream), &recorded);
    const pleat_status status = pleat__cuda_status((int)ended, "recording a graph", err);
    if (status != PLEAT_OK) {
        if (recorded) (void)cudaGraphDestroy(recorded);
        return status;
    }
    const bool fails = fails_now(); /* it takes memory of the device */
    const cudaError_t code = fails ? cudaErrorMemoryAllocation : cudaGraphInstantiate(&made, recorded, 0);
    (void)cudaGraphDestroy(recorded);
    if (code != cudaSuccess) return say(code, "making a graph", err);
    graph->v = made;
    return PLEAT_OK;
}

pleat_status pleat__device_graph_launch(pleat__device_graph graph, pleat__device_stream stream, pleat_error *err) {
    return pleat__cuda_status((int)cudaGraphLaunch((cudaGraphExec_t)graph.v, pleat__cuda_stream(stream)),
                              "launching a graph", err);
}

void pleat__device_graph_destroy(pleat__device_graph *graph) {
    if (graph->v) (void)cudaGraphExecDestroy((cudaGraphExec_t)graph->v);
    graph->v = NULL;
}
