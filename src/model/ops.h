/* SPDX-License-Identifier: MIT
 *
 * ops.h: what stands between the matrix products of a layer, one row at a time: RMSNorm, RoPE, SwiGLU.
 *
 * A row's result depends on that row alone.  Variants differ from the reference by rounding: relative to the largest
 * magnitude in the row at most 1e-6 (tests/check/model/test_forward.c).
 */
#ifndef PLEAT_MODEL_OPS_H
#define PLEAT_MODEL_OPS_H

#include "core/types.h"

/* out[i] = weight[i] * x[i] / sqrt(mean(x^2) + eps).  out may be x. */
typedef void (*pleat__rmsnorm_fn)(const float *x, const float *weight, uint32_t n, float eps, float *out);

/* a[i] = silu(a[i]) * b[i], silu(z) = z / (1 + e^-z). */
typedef void (*pleat__swiglu_fn)(float *a, const float *b, uint32_t n);

/* Turn the first n_dims dimensions of each head, in pairs (2i, 2i+1) as Llama's GGUF files have them:
 *     x[j] = x[j] * turn[j] + x[j^1] * turn[n_dims + j]
 * x is [n_heads][head_dim], turn what pleat__rope_turn() made for the row's position; n_dims is even. */
typedef void (*pleat__rope_fn)(float *x, uint32_t n_heads, uint32_t head_dim, const float *turn, uint32_t n_dims);

typedef struct pleat__ops_dsp {
    pleat__rmsnorm_fn rmsnorm;
    pleat__swiglu_fn swiglu;
    pleat__rope_fn rope;
} pleat__ops_dsp;

/* Fill the table with the best variants for these CPU flags (pleat_cpu_flags()). */
void pleat__ops_dsp_init(pleat__ops_dsp *dsp, uint32_t cpu_flags);
void pleat__ops_fill_avx2(pleat__ops_dsp *dsp); /* needs AVX2 and FMA */
void pleat__ops_fill_neon(pleat__ops_dsp *dsp); /* needs PLEAT_CPU_NEON */

/* Angles of pair i per position: base^(-2i/n_dims) / factors[i]; factors may be NULL.  [n_dims/2]. */
void pleat__rope_frequencies(double base, const float *factors, uint32_t n_dims, double *frequencies);

/* turn [2*n_dims] = (cos 0, cos 0, cos 1, cos 1, ...) and (-sin 0, sin 0, -sin 1, sin 1, ...) of position times
 * frequency, computed in f64: the angle of a late position has no f32 rounding. */
void pleat__rope_turn(uint32_t position, const double *frequencies, uint32_t n_dims, float *turn);

#endif
