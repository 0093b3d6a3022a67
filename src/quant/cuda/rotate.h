/* SPDX-License-Identifier: MIT
 *
 * rotate.h: the rotation (quant/rotate.h) of a step's queries, and of what attention makes of them, on a GPU.
 *
 * Queries are f16 before and after, where rotated they may be larger by the root of head_dim.  So they come out divided
 * by PLEAT__ROTATED_QUERY_UNIT, which attention's scale makes good.  What is rounded is 2^-11 of an element, as the query
 * itself was, or 2^-20 where that is more.
 */
#ifndef PLEAT_QUANT_CUDA_ROTATE_H
#define PLEAT_QUANT_CUDA_ROTATE_H

#include "hw/device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLEAT__ROTATED_QUERY_UNIT 16.0f

/* q and to: f16 [n_rows][head_dim] of device memory, aligned to 8, head_dim a multiple of 16 up to 256. */
pleat_status pleat__device_rotate_queries(const uint16_t *q, uint32_t n_rows, uint32_t head_dim, uint16_t *to,
                                          pleat__device_stream stream, pleat_error *err);

/* Turn rows [n_rows][head_dim] of f32 back, in place; aligned to 16. */
pleat_status pleat__device_rotate_back(float *rows, uint32_t n_rows, uint32_t head_dim, pleat__device_stream stream,
                                       pleat_error *err);

#ifdef __cplusplus
}
#endif
#endif
