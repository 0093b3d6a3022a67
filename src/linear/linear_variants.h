/* SPDX-License-Identifier: MIT
 *
 * linear_variants.h: the functions of a dispatch table, one for each stored type, from a file's always-inline templates
 * mul(type, ...) and load(type, ...), in which `type` is a constant then.
 */
#ifndef PLEAT_LINEAR_LINEAR_VARIANTS_H
#define PLEAT_LINEAR_LINEAR_VARIANTS_H

#include "core/compiler.h"
#include "linear/linear.h"

/* R rows from r0 on for C vectors. */
typedef void (*linear_tile_fn)(pleat__weight_type type, const int R, const int C, const pleat__matrix *w, uint32_t r0,
                               const void *const *x, float *const *y, bool add);

/* All rows for C vectors; what is left of R rows one by one. */
INLINE void band_of(linear_tile_fn tile, pleat__weight_type type, const int R, const int C, const pleat__matrix *w,
                    uint32_t row_from, uint32_t row_to, const void *const *x, float *const *y, bool add) {
    uint32_t r = row_from;
    for (; r + R <= row_to; r += R) tile(type, R, C, w, r, x, y, add);
    for (; r < row_to; r++)
        for (int c = 0; c < C; c++) tile(type, 1, 1, w, r, x + c, y + c, add);
}

#define LINEAR_MUL(name, type)                                                                               \
    static void mul_##name(const pleat__matrix *w, uint32_t row_from, uint32_t row_to, const void *const *x, \
                           float *const *y, uint32_t n, bool add) {                                          \
        mul(type, w, row_from, row_to, x, y, n, add);                                                        \
    }

#define LINEAR_LOAD(name, type)                                                                       \
    static void load_##name(const pleat__matrix *w, uint32_t row_from, uint32_t row_to, float *out) { \
        load(type, w, row_from, row_to, out);                                                         \
    }

/* Of floats. */
#define LINEAR_VARIANTS             \
    LINEAR_MUL(f32, PLEAT__W_F32)   \
    LINEAR_MUL(f16, PLEAT__W_F16)   \
    LINEAR_MUL(bf16, PLEAT__W_BF16) \
    LINEAR_LOAD(f32, PLEAT__W_F32)  \
    LINEAR_LOAD(f16, PLEAT__W_F16)  \
    LINEAR_LOAD(bf16, PLEAT__W_BF16)

#define LINEAR_FILL(dsp)                        \
    do {                                        \
        (dsp)->mul[PLEAT__W_F32] = mul_f32;     \
        (dsp)->mul[PLEAT__W_F16] = mul_f16;     \
        (dsp)->mul[PLEAT__W_BF16] = mul_bf16;   \
        (dsp)->load[PLEAT__W_F32] = load_f32;   \
        (dsp)->load[PLEAT__W_F16] = load_f16;   \
        (dsp)->load[PLEAT__W_BF16] = load_bf16; \
    } while (0)

/* Of quantised types: X(name, type). */
#define PACKED_TYPES(X)        \
    X(q8_0, PLEAT__W_Q8_0)     \
    X(q4_0, PLEAT__W_Q4_0)     \
    X(q4_1, PLEAT__W_Q4_1)     \
    X(q5_0, PLEAT__W_Q5_0)     \
    X(q5_1, PLEAT__W_Q5_1)     \
    X(q2_k, PLEAT__W_Q2_K)     \
    X(q3_k, PLEAT__W_Q3_K)     \
    X(q4_k, PLEAT__W_Q4_K)     \
    X(q5_k, PLEAT__W_Q5_K)     \
    X(q6_k, PLEAT__W_Q6_K)     \
    X(iq4_nl, PLEAT__W_IQ4_NL) \
    X(iq4_xs, PLEAT__W_IQ4_XS) \
    X(mxfp4, PLEAT__W_MXFP4)

#define PACKED_MUL(name, type)                                                                                        \
    static void mul_one_limb_##name(const pleat__matrix *w, uint32_t row_from, uint32_t row_to, const void *const *x, \
                                    float *const *y, uint32_t n, bool add) {                                          \
        mul(type, 1, w, row_from, row_to, x, y, n, add);                                                              \
    }                                                                                                                 \
    static void mul_##name(const pleat__matrix *w, uint32_t row_from, uint32_t row_to, const void *const *x,          \
                           float *const *y, uint32_t n, bool add) {                                                   \
        mul(type, 2, w, row_from, row_to, x, y, n, add);                                                              \
    }
#define PACKED_MUL_ONE_LIMB_ENTRY(name, type) [type] = mul_one_limb_##name,
#define PACKED_MUL_ENTRY(name, type) [type] = mul_##name,

/* packed_muls [n_limbs - 1], from a template mul(type, n_limbs, ...). */
#define PACKED_MULS                                                             \
    PACKED_TYPES(PACKED_MUL)                                                    \
    static const pleat__linear_mul_fn packed_muls[2][PLEAT__N_WEIGHT_TYPES] = { \
        {PACKED_TYPES(PACKED_MUL_ONE_LIMB_ENTRY)}, {PACKED_TYPES(PACKED_MUL_ENTRY)}};

/* And codes likewise, from a template code_row(n_limbs, ...). */
#define PACKED_VARIANTS                                                                                         \
    PACKED_MULS                                                                                                 \
    static void code_one_limb(const float *x, uint32_t cols, pleat__coded *out) { code_row(1, x, cols, out); }  \
    static void code_two_limbs(const float *x, uint32_t cols, pleat__coded *out) { code_row(2, x, cols, out); } \
    static const pleat__linear_code_fn codes[2] = {code_one_limb, code_two_limbs};

/* packed_muls in their places. */
static inline void fill_packed(pleat__linear_mul_fn *muls, const pleat__linear_mul_fn *packed_muls) {
    for (uint32_t type = 0; type < PLEAT__N_WEIGHT_TYPES; type++)
        if (packed_muls[type]) muls[type] = packed_muls[type];
}

/* A table that serves few step rows and many. */
#define PACKED_FILL(dsp, n_limbs, rows)                    \
    do {                                                   \
        fill_packed((dsp)->mul, packed_muls[(n_limbs)-1]); \
        (dsp)->code = codes[(n_limbs)-1];                  \
        (dsp)->packed_rows = (rows);                       \
        (dsp)->many_rows = UINT32_MAX;                     \
    } while (0)

#endif
