/* SPDX-License-Identifier: MIT
 *
 * gpu.cuh: what the files behind gpu.h share: CUDA's errors as statuses of the library.
 *
 *     GPU_TRY(cudaMemcpyAsync(...), "copying", err);
 *
 * Host code here does without the C++ library: the command is linked as C.
 */
#ifndef PLEAT_CLI_CUDA_GPU_CUH
#define PLEAT_CLI_CUDA_GPU_CUH

#include <cuda_runtime.h>

#include "cli/bench/device/gpu.h"

/* PLEAT_OK, or err filled with what was being done and what CUDA says. */
pleat_status gpu_status(cudaError_t code, const char *what, pleat_error *err);

/* Fill err, which may be NULL; returns the status. */
pleat_status gpu_fail(pleat_status status, pleat_error *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#define GPU_TRY(expr, what, err)                                      \
    do {                                                              \
        const pleat_status try_status_ = gpu_status(expr, what, err); \
        if (try_status_ != PLEAT_OK) return try_status_;              \
    } while (0)

static inline cudaStream_t gpu_stream(const gpu *g) { return (cudaStream_t)g->stream; }

#endif
