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

/* Of quantised types. */
#define PACKED_VARIANTS             \
    LINEAR_MUL(q8_0, PLEAT__W_Q8_0) \
    LINEAR_MUL(q4_0, PLEAT__W_Q4_0)

#define PACKED_FILL(dsp, rows)                \
    do {                                      \
        (dsp)->mul[PLEAT__W_Q8_0] = mul_q8_0; \
        (dsp)->mul[PLEAT__W_Q4_0] = mul_q4_0; \
        (dsp)->code = code;                   \
        (dsp)->packed_rows = (rows);          \
    } while (0)

#endif
