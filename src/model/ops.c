/* SPDX-License-Identifier: MIT
 *
 * ops.c: the plain variants of ops.h, which specify the others, and the choice among them.
 */
#include "model/ops.h"

#include <math.h>

#include "hw/cpu.h"

static void rmsnorm_ref(const float *x, const float *weight, uint32_t n, float eps, float *out) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    const float factor = (float)(1.0 / sqrt(sum / n + (double)eps));
    for (uint32_t i = 0; i < n; i++) out[i] = weight[i] * (x[i] * factor);
}

static void swiglu_ref(float *a, const float *b, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) a[i] = a[i] / (1.0f + expf(-a[i])) * b[i];
}

static void geglu_ref(float *a, const float *b, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const float u = PLEAT__GELU_U1 * a[i] + PLEAT__GELU_U3 * (a[i] * a[i] * a[i]);
        a[i] = a[i] / (1.0f + expf(-2.0f * u)) * b[i];
    }
}

/* Comparisons, since fminf() and fmaxf() would make a bound of NaN. */
static void swiglu_clipped_ref(float *a, const float *b, uint32_t n) {
    const float top = PLEAT__CLIP_LIMIT, bottom = -PLEAT__CLIP_LIMIT;
    for (uint32_t i = 0; i < n; i++) {
        const float z = a[i] > top ? top : a[i], y = b[i] > top ? top : b[i] < bottom ? bottom : b[i];
        a[i] = z / (1.0f + expf(-PLEAT__CLIP_ALPHA * z)) * (y + 1.0f);
    }
}

static void rope_ref(float *x, uint32_t n_heads, uint32_t head_dim, const float *turn, uint32_t n_dims) {
    for (uint32_t head = 0; head < n_heads; head++, x += head_dim) {
        for (uint32_t j = 0; j < n_dims; j += 2) {
            const float even = x[j], odd = x[j + 1];
            x[j] = even * turn[j] + odd * turn[n_dims + j];
            x[j + 1] = odd * turn[j + 1] + even * turn[n_dims + j + 1];
        }
    }
}

static void rope_halves_ref(float *x, uint32_t n_heads, uint32_t head_dim, const float *turn, uint32_t n_dims) {
    const uint32_t half = n_dims / 2;
    for (uint32_t head = 0; head < n_heads; head++, x += head_dim) {
        for (uint32_t j = 0; j < half; j++) {
            const float first = x[j], second = x[half + j];
            x[j] = first * turn[j] + second * turn[n_dims + j];
            x[half + j] = second * turn[half + j] + first * turn[n_dims + half + j];
        }
    }
}

void pleat__ops_dsp_init(pleat__ops_dsp *dsp, uint32_t cpu_flags) {
    *dsp = (pleat__ops_dsp){.rmsnorm = rmsnorm_ref,
                            .swiglu = swiglu_ref,
                            .geglu = geglu_ref,
                            .swiglu_clipped = swiglu_clipped_ref,
                            .rope = rope_ref,
                            .rope_halves = rope_halves_ref};
#if PLEAT_X86
    if (!(cpu_flags & PLEAT_CPU_AVX2)) return;
    pleat__ops_fill_avx2(dsp);
#elif PLEAT_ARM
    if (!(cpu_flags & PLEAT_CPU_NEON)) return;
    pleat__ops_fill_neon(dsp);
#else
    (void)cpu_flags;
#endif
}
