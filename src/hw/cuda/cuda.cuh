/* SPDX-License-Identifier: MIT
 *
 * cuda.cuh: what every .cu file includes: the CUDA runtime, and its errors as ours.
 *
 *     PLEAT_CUDA_TRY(cudaMemcpyAsync(...), "copying the table", err);
 *     my_kernel<<<grid, block, smem, pleat__cuda_stream(stream)>>>(args);
 *     return PLEAT_CUDA_LAUNCHED("my kernel", err);
 *
 * Kernels are static, so that the library's symbols keep their prefix.  What launches them is extern "C", takes POD
 * structs and a pleat__device_stream, and returns a status.
 */
#ifndef PLEAT_HW_CUDA_CUH
#define PLEAT_HW_CUDA_CUH

#include <cuda_runtime.h>

extern "C" {
#include "core/error.h"
}
#include "hw/device.h"

static inline cudaStream_t pleat__cuda_stream(pleat__device_stream stream) { return (cudaStream_t)stream.v; }

/* Turns `code` into a status; `what` was being done.  Also where pleat__device_fail_at() strikes. */
extern "C" pleat_status pleat__cuda_status(int code, const char *what, pleat_error *err);

#define PLEAT_CUDA_TRY(expr, what, err) PLEAT_TRY(pleat__cuda_status((int)(expr), (what), (err)))

/* The status of the launch just made. */
#define PLEAT_CUDA_LAUNCHED(what, err) pleat__cuda_status((int)cudaGetLastError(), (what), (err))

#endif
