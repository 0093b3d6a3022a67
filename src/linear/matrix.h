/* SPDX-License-Identifier: MIT
 *
 * matrix.h: a model's matrix as the file stores it.
 *
 * A matrix is [rows][cols], row-major, y = W x with x [cols], y [rows].  What the types are is format.h's.  Mapped data
 * has no alignment beyond a byte.
 */
#ifndef PLEAT_LINEAR_MATRIX_H
#define PLEAT_LINEAR_MATRIX_H

#include "core/types.h"

typedef enum pleat__weight_type {
    PLEAT__W_F32,
    PLEAT__W_F16,
    PLEAT__W_BF16,
    PLEAT__W_Q8_0, /* the first that is quantised */
    PLEAT__W_Q4_0,
    PLEAT__W_Q4_1,
    PLEAT__W_Q5_0,
    PLEAT__W_Q5_1,
    PLEAT__W_Q2_K,
    PLEAT__W_Q3_K,
    PLEAT__W_Q4_K,
    PLEAT__W_Q5_K,
    PLEAT__W_Q6_K,
    PLEAT__W_IQ4_NL,
    PLEAT__W_IQ4_XS,
    PLEAT__W_MXFP4,
    PLEAT__N_WEIGHT_TYPES
} pleat__weight_type;

typedef struct pleat__matrix {
    pleat__weight_type type;
    uint32_t rows;
    uint32_t cols; /* a multiple of the type's block */
    uint64_t row_bytes;
    const uint8_t *data;
} pleat__matrix;

#endif
