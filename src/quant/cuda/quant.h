/* SPDX-License-Identifier: MIT
 *
 * quant.h: quant/quant.h's operations on single tokens and tiles as a list that the GPU works off, in order: what tests
 * hold against the CPU's bytes.  The cache's kernels call the same device functions (token.cuh, tile.cuh) directly.
 */
#ifndef PLEAT_QUANT_CUDA_QUANT_H
#define PLEAT_QUANT_CUDA_QUANT_H

#include "hw/device.h"
#include "quant/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pleat__device_quant_kind {
    PLEAT__DEVICE_STORE,      /* row `row` into `to`, as pleat__quant_store_fn */
    PLEAT__DEVICE_REPLACE,    /* as pleat__quant_replace_fn */
    PLEAT__DEVICE_STORE_TILE, /* rows row .. row + n - 1, 1 <= n <= 16, into the tile that begins at `to`, whose scores
                               * and positions stay */
    PLEAT__DEVICE_COPY,       /* `from` to `to`, as pleat__quant_copy(); of one layout */
    PLEAT__DEVICE_REQUANTISE, /* `from` dequantised and stored in `to` */
    PLEAT__DEVICE_LOAD        /* `from` into row `row` of out_k and out_v, as pleat__quant_load_token() */
} pleat__device_quant_kind;

/* A token's place: which layout, which page, which slot. */
typedef struct pleat__device_quant_slot {
    uint32_t layout, page, slot;
} pleat__device_quant_slot;

typedef struct pleat__device_quant_op {
    pleat__device_quant_kind kind;
    pleat__device_quant_slot to, from;
    uint32_t row, n;
} pleat__device_quant_op;

/* Pointers but layouts are device memory. */
typedef struct pleat__device_quant_args {
    pleat__page_layout layouts[2]; /* head_dim 64 or 128 */
    uint8_t *base;
    uint64_t page_bytes;
    const pleat__device_quant_op *ops; /* [n_ops] */
    uint32_t n_ops;
    const void *k, *v; /* [rows][head_dim] f16 */
    float *out_k, *out_v;
} pleat__device_quant_args;

/* By one warp, one after the other. */
pleat_status pleat__device_quant_run(const pleat__device_quant_args *args, pleat__device_stream stream,
                                     pleat_error *err);

#ifdef __cplusplus
}
#endif
#endif
