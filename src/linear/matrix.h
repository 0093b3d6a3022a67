/* SPDX-License-Identifier: MIT
 *
 * matrix.h: a model's matrix as the file stores it.
 *
 * A matrix is [rows][cols], row-major, y = W x with x [cols], y [rows].  Its rows are blocks of 32 weights where
 * quantised.  Of GGUF's Q8_0: f16 scale, 32 s8.  Of Q4_0: f16 scale, 16 bytes: low nibbles weights 0..15, high 16..31,
 * minus 8.  Mapped data has no alignment beyond a byte.
 */
#ifndef PLEAT_LINEAR_MATRIX_H
#define PLEAT_LINEAR_MATRIX_H

#include "core/types.h"

typedef enum pleat__weight_type {
    PLEAT__W_F32,
    PLEAT__W_F16,
    PLEAT__W_BF16,
    PLEAT__W_Q8_0,
    PLEAT__W_Q4_0,
    PLEAT__N_WEIGHT_TYPES
} pleat__weight_type;

typedef struct pleat__matrix {
    pleat__weight_type type;
    uint32_t rows;
    uint32_t cols; /* a multiple of 32 where the type is quantised */
    uint64_t row_bytes;
    const uint8_t *data;
} pleat__matrix;

#endif
