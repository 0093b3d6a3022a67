/* SPDX-License-Identifier: MIT
 *
 * device.h: GPUs: which there are.  Only builds with CUDA (pleat_build_info() says so) ever find one.  Without CUDA,
 * without a GPU, or with a driver too old for this build, the answer is PLEAT_E_DEVICE with the reason.  All of Pleat
 * that runs on the CPU works as ever.
 *
 * A build with CUDA holds the CUDA runtime of its toolkit, 13 or later.  When it runs it needs a driver of that major
 * version.  It works in the device's primary context, as every runtime does: memory, streams and events of a program's
 * own CUDA runtime, or of PyTorch's, are what calls here take and return.
 *
 * Thread-safe.
 */
#ifndef PLEAT_DEVICE_H
#define PLEAT_DEVICE_H

#include "pleat/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pleat_device_info {
    char name[256];
    uint32_t compute_capability; /* 10 * major + minor: 80, 89, 90, ... */
    uint32_t n_multiprocessors;
    uint64_t memory_bytes, free_bytes;
    uint64_t l2_bytes;
    uint32_t driver_version, runtime_version; /* of CUDA: 13000 is 13.0 */
} pleat_device_info;

/* How many GPUs the CUDA driver shows.  PLEAT_E_DEVICE, and *n_devices = 0: none, and err says why; err may be NULL. */
PLEAT_API pleat_status pleat_device_count(uint32_t *n_devices, pleat_error *err);

/* What device 0..count-1 is.  PLEAT_E_DEVICE: there is no such device, it does not answer, or it is older than what
 * this build has code for.  Which device is the calling thread's (cudaSetDevice) stays as it was. */
PLEAT_API pleat_status pleat_device_get_info(uint32_t device, pleat_device_info *info, pleat_error *err);

#ifdef __cplusplus
}
#endif
#endif
