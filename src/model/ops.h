/* SPDX-License-Identifier: MIT
 *
 * ops.h: what stands between the matrix products of a layer, one row at a time: RMSNorm, RoPE, gates.
 *
 * A row's result depends on that row alone.  Variants differ from the reference by rounding: relative to the largest
 * magnitude in the row at most 1e-6 (tests/check/model/test_forward.c).
 */
#ifndef PLEAT_MODEL_OPS_H
#define PLEAT_MODEL_OPS_H

#include "core/types.h"

/* out[i] = weight[i] * x[i] / sqrt(mean(x^2) + eps).  out may be x. */
typedef void (*pleat__rmsnorm_fn)(const float *x, const float *weight, uint32_t n, float eps, float *out);

/* a[i] = act(a[i]) * b[i].  swiglu: silu(z) = z / (1 + e^-z).  geglu: GELU by its tanh form, which is
 * z / (1 + e^-2u) with u = sqrt(2/pi) (z + 0.044715 z^3). */
typedef void (*pleat__gate_fn)(float *a, const float *b, uint32_t n);

/* swiglu_clipped, another gate: a[i] = z / (1 + e^(-alpha z)) * (y + 1), z = min(a[i], limit), y = b[i] within +-limit. */
#define PLEAT__CLIP_ALPHA 1.702f
#define PLEAT__CLIP_LIMIT 7.0f

/* Turn the first n_dims dimensions of each head:
 *     x[j] = x[j] * turn[j] + x[j'] * turn[n_dims + j]
 * where j' is the pair's other element: pairs are (2i, 2i+1) in rope, (i, i + n_dims/2) in rope_halves.
 * x is [n_heads][head_dim], turn what pleat__rope_turn() made for the row's position; n_dims is even. */
typedef void (*pleat__rope_fn)(float *x, uint32_t n_heads, uint32_t head_dim, const float *turn, uint32_t n_dims);

/* u = U1 z + U3 z^3. */
#define PLEAT__GELU_U1 0.7978845608028654f
#define PLEAT__GELU_U3 (0.7978845608028654f * 0.044715f)

typedef struct pleat__ops_dsp {
    pleat__rmsnorm_fn rmsnorm;
    pleat__gate_fn swiglu;
    pleat__gate_fn geglu;
    pleat__gate_fn swiglu_clipped;
    pleat__rope_fn rope;
    pleat__rope_fn rope_halves;
} pleat__ops_dsp;

/* Fill the table with the best variants for these CPU flags (pleat_cpu_flags()). */
void pleat__ops_dsp_init(pleat__ops_dsp *dsp, uint32_t cpu_flags);
void pleat__ops_fill_avx2(pleat__ops_dsp *dsp); /* needs AVX2 and FMA */
void pleat__ops_fill_neon(pleat__ops_dsp *dsp); /* needs PLEAT_CPU_NEON */

#endif
