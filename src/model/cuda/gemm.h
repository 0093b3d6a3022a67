/* SPDX-License-Identifier: MIT
 *
 * gemm.h: products with many rows of x, as prompts have them, by cuBLASLt: NVIDIA's library, which is looked for when it
 * is first wanted, and without which mul.h's kernels do all.
 *
 *     tiles --plain--> rows of f16 --cuBLASLt--> y                 STORE, ADD
 *     tiles of F16 ----^                     '-> pairs --gate--> h  GATE
 *
 * Rules
 *  1. Weights become f16 first, rounded as mul.h's are.  Tiles of F16 are read where they are.  Sums are f32.
 *  2. A caller names a class of row counts: pleat__gemm_class().  How a matrix is multiplied is chosen
 *     once for each, for so many rows, and kept: within a class a row has the same bits however many rows share the
 *     product.  They are not those of the other class, nor of mul.h's kernels.
 *  3. gate x and up x are f16 for a while: one that does not fit is infinite, and the forward pass finds that.
 *  4. Nothing waits.  Products can be recorded in a graph.
 */
#ifndef PLEAT_MODEL_CUDA_GEMM_H
#define PLEAT_MODEL_CUDA_GEMM_H

#include "model/cuda/mul.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows from which on a product of F16 is faster so: mul_few.cu takes as long for 16 as cuBLASLt for 17 to 32. */
#define PLEAT__GEMM_FROM 17u

/* Classes of row counts are 32, its doubles, and blocks of a prompt.  What is best for 2048 rows has tiles so large that 200
 * rows of x have work for a quarter of an H200. */
#define PLEAT__GEMM_BATCH 128u /* the last whose tiles are chosen here (gemm.cu) */
#define PLEAT__GEMM_ROWS 2048u

/* The class of a step, or a prompt, of n rows. */
static inline uint32_t pleat__gemm_class(uint32_t n) {
    uint32_t most = 32;
    while (most < n && most < PLEAT__GEMM_ROWS) most *= 2;
    return most;
}

/* Memory of the device that cuBLASLt works in. */
#define PLEAT__GEMM_WORK_BYTES (32u << 20)

typedef struct pleat__device_gemm pleat__device_gemm;

/* Is the library here? */
bool pleat__device_gemm_exists(void);

/* For the calling thread's device.  Without the library: PLEAT_OK, and *out is NULL. */
pleat_status pleat__device_gemm_create(const pleat_allocator *al, pleat__device_gemm **out, pleat_error *err);
void pleat__device_gemm_destroy(pleat__device_gemm **gemm);

/* Halves of a matrix's plain form: [rows, up to whole tiles][cols, up to whole groups], tiles' rows in their order. */
uint64_t pleat__device_plain_halves(const pleat__tiles *tiles);

/* out = the plain form, whose columns behind the matrix's are not written.  Not of F16, whose data are it: PLEAT_E_ARG. */
pleat_status pleat__device_plain(const pleat__device_matrix *m, uint16_t *out, pleat__device_stream stream,
                                 pleat_error *err);

/* What a product needs besides. */
typedef struct pleat__gemm_memory {
    const uint16_t *plain; /* mul->w's plain form */
    uint32_t rows_class;   /* rule 2 */
    uint16_t *pairs;       /* GATE: [n][rows of w] */
    void *work;            /* PLEAT__GEMM_WORK_BYTES */
    uint32_t n_parts; /* ADD: 0, or y is not added to: it gets so many parts, [n_parts][n][rows of w], whose sum times
                            * mul->scale is the product.  They divide the columns into multiples of 64 */
} pleat__gemm_memory;

/* Like pleat__device_mul_run(), but by cuBLASLt.  x is f16, and there is no bias or cap: else PLEAT_E_ARG. */
pleat_status pleat__device_gemm_run(pleat__device_gemm *gemm, const pleat__device_mul *mul,
                                    const pleat__gemm_memory *memory, pleat__device_stream stream, pleat_error *err);

/* h [n][n_ff] f16 = act(gate) * up, of pairs [n][2 n_ff] f16: 8 gates, then their 8 ups.  n_ff is a multiple of 8. */
pleat_status pleat__device_gate(const uint16_t *pairs, uint32_t n, uint32_t n_ff, bool is_gelu, uint16_t *h,
                                uint32_t h_stride, pleat__device_stream stream, pleat_error *err);

#ifdef __cplusplus
}
#endif
#endif
