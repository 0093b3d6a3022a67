/* SPDX-License-Identifier: MIT
 *
 * pinned.h: much memory of the host at once that copies of a GPU read and write at full speed and without waiting.  In builds
 * with CUDA alone: hw/cuda/pinned.cu.
 */
#ifndef PLEAT_HW_PINNED_H
#define PLEAT_HW_PINNED_H

#include "hw/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where there are huge OS pages it is in them, which takes less than half as long.  bytes > 0; to unpin, the same as
 * pinned.  unpin(NULL) is fine.  Other threads use the device meanwhile. */
pleat_status pleat__device_pin(uint64_t bytes, void **p, pleat_error *err);
void pleat__device_unpin(void *p, uint64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
