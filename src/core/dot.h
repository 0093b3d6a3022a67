/* SPDX-License-Identifier: MIT
 *
 * dot.h: a product of vectors whose bits no CPU and no compiler changes.
 */
#ifndef PLEAT_CORE_DOT_H
#define PLEAT_CORE_DOT_H

#include "core/types.h"

#define PLEAT__DOT_STRANDS 16u

/* x.y of n floats, a multiple of 16: in strands, so that compilers use vectors and every CPU gets the same bits. */
static inline float pleat__dot(const float *x, const float *y, uint32_t n) {
    float sum[PLEAT__DOT_STRANDS] = {0};
    for (uint32_t i = 0; i < n; i += PLEAT__DOT_STRANDS)
        for (uint32_t j = 0; j < PLEAT__DOT_STRANDS; j++) sum[j] += x[i + j] * y[i + j];
    for (uint32_t half = PLEAT__DOT_STRANDS / 2; half > 0; half /= 2)
        for (uint32_t j = 0; j < half; j++) sum[j] += sum[j + half];
    return sum[0];
}

#endif
