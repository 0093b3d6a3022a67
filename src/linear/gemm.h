/* SPDX-License-Identifier: MIT
 *
 * gemm.h: the one call that Pleat makes to oneDNN: an f32 matrix product on the calling thread alone.
 *
 * Without oneDNN (PLEAT_HAVE_ONEDNN undefined) there is none, and linear.c serves long spans with its own kernels,
 * which reach four fifths of oneDNN's speed with AVX-512.
 *
 * oneDNN makes its code on the first call and takes packing buffers from malloc() on each: it does not know our
 * allocator.  It chooses its own instruction set; pleat_cpu_mask() does not reach it.
 */
#ifndef PLEAT_LINEAR_GEMM_H
#define PLEAT_LINEAR_GEMM_H

#include "core/types.h"

/* 1 if pleat__gemm() can work in this build. */
bool pleat__gemm_is_there(void);

/* What serves long spans, for a person: "oneDNN 2.6.3". */
void pleat__gemm_describe(char *text, size_t cap);

/* y[i][j] = dot(x[i], w[j]) for i < m, j < n, plus y[i][j] as it was if `add`.
 *   x  [m][k]      w  [n][k]      y  [m][n], rows y_stride floats apart
 * False when oneDNN refused for want of memory, which it does before it writes.  A row of y depends on its row of x, on
 * w and on m, n, k.  Any number of threads may call at once. */
bool pleat__gemm(const float *x, uint32_t m, const float *w, uint32_t n, uint32_t k, float *y, size_t y_stride,
                 bool add);

#endif
