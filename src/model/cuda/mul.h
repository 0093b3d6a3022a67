/* SPDX-License-Identifier: MIT
 *
 * mul.h: products with a model's matrices on a GPU: y = W x for any number of rows x.
 *
 *     rows of x      1..16   17..32                more            (rows are the tensor cores' columns)
 *     on Hopper      few     wgmma, 128 rows at a time
 *     elsewhere      few     few                   many: block of 32 rows of W, of 128
 *
 * Rules
 *  1. One law of summing for all kernels: a tile's groups of 128 columns are cut into 16 ranges, as even as whole groups
 *     allow.  A range is summed slice by slice in order; four ranges are added in order to a quarter, and quarters in
 *     order.  So a row's result has the same bits however many rows share the product, and whichever kernel made it.
 *  2. Weights are tiles (linear/tiles.h).  In registers they become f16, rounded to 2^-11, and meet x on tensor cores
 *     that add up in f32.  gemm.h's are rounded likewise.
 *  3. x is f16.  One that does not fit f16 is infinite, and so are its results: the forward pass finds that.
 *  4. Launchers neither allocate nor wait; they can be recorded in a graph.
 */
#ifndef PLEAT_MODEL_CUDA_MUL_H
#define PLEAT_MODEL_CUDA_MUL_H

#include "hw/device.h"
#include "linear/tiles.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A matrix on the device. */
typedef struct pleat__device_matrix {
    pleat__tiles tiles;
    const uint8_t *data; /* device memory, aligned to 128 */
} pleat__device_matrix;

/* What becomes of a product. */
typedef enum pleat__mul_end {
    PLEAT__MUL_STORE, /* y = scale * W x; bounded by `cap` where that is above 0 */
    PLEAT__MUL_ADD,   /* y += scale * (W x + bias) */
    PLEAT__MUL_GATE   /* h = act(gate x) * up x, of a matrix in pairs */
} pleat__mul_end;

typedef struct pleat__device_mul {
    pleat__device_matrix w;
    const void *x;     /* [n][x_stride] f16, or f32 with x_is_f32, or packed */
    uint32_t x_stride; /* elements, a multiple of 8 */
    bool x_is_f32;     /* only for ADD; and for n <= PLEAT__MUL_FEW, or on Hopper */
    bool x_is_packed;  /* only on Hopper, PLEAT__MUL_PACKED_FROM <= n <= PLEAT__MUL_PACKED */
    uint32_t n;        /* 1.. */
    pleat__mul_end end;
    float *y;          /* [n][y_stride] */
    uint16_t *h;       /* GATE: [n][y_stride] f16, or packed */
    bool h_is_packed;  /* columns are a multiple of PLEAT__GROUP_COLS */
    uint32_t y_stride; /* elements */
    const float *bias; /* ADD: [rows] or NULL */
    float scale;
    float cap;    /* STORE: y = cap * tanh(y / cap); 0: none */
    bool is_gelu; /* GATE: act is GELU by its tanh form; else silu */
    void *work;   /* pleat__device_mul_work_bytes() of device memory; NULL: n < PLEAT__MUL_PACKED_FROM, or no Hopper */
} pleat__device_mul;

#define PLEAT__MUL_FEW 32u
#define PLEAT__MUL_PACKED_FROM 17u
#define PLEAT__MUL_PACKED 128u /* rows of a packed x, whatever n is; its columns fill whole groups, with zeros */

pleat_status pleat__device_mul_run(const pleat__device_mul *mul, pleat__device_stream stream, pleat_error *err);

/* Of the kernels, for tests: always this one.  few: n <= PLEAT__MUL_FEW; block_rows 32 or 128; wgmma: PLEAT_E_UNSUPPORTED
 * where has_wgmma is false. */
pleat_status pleat__device_mul_few(const pleat__device_mul *mul, pleat__device_stream stream, pleat_error *err);
pleat_status pleat__device_mul_many(const pleat__device_mul *mul, uint32_t block_rows, pleat__device_stream stream,
                                    pleat_error *err);

bool pleat__device_mul_has_wgmma(void);

/* Memory in which one product at a time works, aligned to 128; its first PLEAT__MUL_FLAGS_BYTES are 0 at first. */
#define PLEAT__MUL_FLAGS_BYTES 1024u
uint64_t pleat__device_mul_work_bytes(uint32_t max_cols);

pleat_status pleat__device_mul_wgmma(const pleat__device_mul *mul, pleat__device_stream stream, pleat_error *err);

#ifdef __cplusplus
}
#endif
#endif
