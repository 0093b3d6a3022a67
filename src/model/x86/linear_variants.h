/* SPDX-License-Identifier: MIT
 *
 * linear_variants.h: the functions of a dispatch table, one for each stored type, from a file's always-inline templates
 * mul(type, ...) and load(type, ...), in which `type` is a constant then.
 */
#ifndef PLEAT_MODEL_X86_LINEAR_VARIANTS_H
#define PLEAT_MODEL_X86_LINEAR_VARIANTS_H

#include "model/linear.h"

#define LINEAR_VARIANT(name, type)                                                                            \
    static void mul_##name(const pleat__matrix *w, uint32_t row_from, uint32_t row_to, const float *const *x, \
                           float *const *y, uint32_t n, bool add) {                                           \
        mul(type, w, row_from, row_to, x, y, n, add);                                                         \
    }                                                                                                         \
    static void load_##name(const pleat__matrix *w, uint32_t row_from, uint32_t row_to, float *out) {         \
        load(type, w, row_from, row_to, out);                                                                 \
    }

#define LINEAR_VARIANTS                 \
    LINEAR_VARIANT(f32, PLEAT__W_F32)   \
    LINEAR_VARIANT(f16, PLEAT__W_F16)   \
    LINEAR_VARIANT(bf16, PLEAT__W_BF16) \
    LINEAR_VARIANT(q8_0, PLEAT__W_Q8_0) \
    LINEAR_VARIANT(q4_0, PLEAT__W_Q4_0)

/* The table of these functions; `rows` is its vector_rows. */
#define LINEAR_DSP(rows)                       \
    (pleat__linear_dsp) {                      \
        .mul = {[PLEAT__W_F32] = mul_f32,      \
                [PLEAT__W_F16] = mul_f16,      \
                [PLEAT__W_BF16] = mul_bf16,    \
                [PLEAT__W_Q8_0] = mul_q8_0,    \
                [PLEAT__W_Q4_0] = mul_q4_0},   \
        .load = {[PLEAT__W_F32] = load_f32,    \
                 [PLEAT__W_F16] = load_f16,    \
                 [PLEAT__W_BF16] = load_bf16,  \
                 [PLEAT__W_Q8_0] = load_q8_0,  \
                 [PLEAT__W_Q4_0] = load_q4_0}, \
        .vector_rows = (rows),                 \
    }

#endif
