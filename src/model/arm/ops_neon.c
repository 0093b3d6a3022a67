/* SPDX-License-Identifier: MIT
 *
 * ops_neon.c: ops.h with registers of four floats, the last ones of a row filled up with zeros.
 */
#include <arm_neon.h>
#include <string.h>

#include "core/compiler.h"
#include "model/ops.h"

#define LANES 4u

/* The first n numbers at p, n <= 4. */
INLINE float32x4_t load_first(const float *p, uint32_t n) {
    if (n == LANES) return vld1q_f32(p);
    float some[LANES] = {0};
    memcpy(some, p, n * sizeof *p);
    return vld1q_f32(some);
}

INLINE void store_first(float *p, float32x4_t x, uint32_t n) {
    if (n == LANES) {
        vst1q_f32(p, x);
        return;
    }
    float some[LANES];
    vst1q_f32(some, x);
    memcpy(p, some, n * sizeof *p);
}

INLINE uint32_t lanes_left(uint32_t n, uint32_t i) { return n - i < LANES ? n - i : LANES; }

static void rmsnorm_neon(const float *x, const float *weight, uint32_t n, float eps, float *out) {
    float32x4_t sums[8];
    for (int j = 0; j < 8; j++) sums[j] = vdupq_n_f32(0);
    uint32_t i = 0;
    for (; i + 8 * LANES <= n; i += 8 * LANES) {
        for (int j = 0; j < 8; j++) {
            const float32x4_t v = vld1q_f32(x + i + (size_t)j * LANES);
            sums[j] = vfmaq_f32(sums[j], v, v);
        }
    }
    for (; i < n; i += LANES) {
        const float32x4_t v = load_first(x + i, lanes_left(n, i));
        sums[0] = vfmaq_f32(sums[0], v, v);
    }
    for (int half = 4; half > 0; half /= 2)
        for (int j = 0; j < half; j++) sums[j] = vaddq_f32(sums[j], sums[j + half]);
    const float factor = 1.0f / __builtin_sqrtf(vaddvq_f32(sums[0]) / (float)n + eps);
    for (i = 0; i < n; i += LANES) {
        const uint32_t live = lanes_left(n, i);
        const float32x4_t v = vmulq_n_f32(load_first(x + i, live), factor);
        store_first(out + i, vmulq_f32(load_first(weight + i, live), v), live);
    }
}

/* e^x for x clamped to +-87, as exp8() of x86/ops_avx2.c has it: error <= 2 ulp. */
INLINE float32x4_t exp_neon(float32x4_t x) {
    x = vminq_f32(vmaxq_f32(x, vdupq_n_f32(-87.0f)), vdupq_n_f32(87.0f));
    const float32x4_t k = vrndnq_f32(vmulq_n_f32(x, 0x1.715476p+0f));
    float32x4_t r = vfmsq_f32(x, k, vdupq_n_f32(0x1.62e400p-1f));
    r = vfmsq_f32(r, k, vdupq_n_f32(0x1.7f7d1cp-20f));
    static const float inverse_factorials[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
    float32x4_t p = vdupq_n_f32(1.0f / 5040);
    for (int i = 0; i < 7; i++) p = vfmaq_f32(vdupq_n_f32(inverse_factorials[i]), p, r);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p), vshlq_n_s32(vcvtq_s32_f32(k), 23)));
}

/* z / (1 + e^-y) */
INLINE float32x4_t gate_neon(float32x4_t z, float32x4_t y) {
    return vdivq_f32(z, vaddq_f32(vdupq_n_f32(1.0f), exp_neon(vnegq_f32(y))));
}

static void swiglu_neon(float *a, const float *b, uint32_t n) {
    for (uint32_t i = 0; i < n; i += LANES) {
        const uint32_t live = lanes_left(n, i);
        const float32x4_t z = load_first(a + i, live);
        store_first(a + i, vmulq_f32(gate_neon(z, z), load_first(b + i, live)), live);
    }
}

static void geglu_neon(float *a, const float *b, uint32_t n) {
    const float32x4_t u1 = vdupq_n_f32(2 * PLEAT__GELU_U1), u3 = vdupq_n_f32(2 * PLEAT__GELU_U3);
    for (uint32_t i = 0; i < n; i += LANES) {
        const uint32_t live = lanes_left(n, i);
        const float32x4_t z = load_first(a + i, live);
        const float32x4_t y = vmulq_f32(z, vfmaq_f32(u1, u3, vmulq_f32(z, z)));
        store_first(a + i, vmulq_f32(gate_neon(z, y), load_first(b + i, live)), live);
    }
}

static void swiglu_clipped_neon(float *a, const float *b, uint32_t n) {
    const float32x4_t top = vdupq_n_f32(PLEAT__CLIP_LIMIT), bottom = vdupq_n_f32(-PLEAT__CLIP_LIMIT);
    for (uint32_t i = 0; i < n; i += LANES) {
        const uint32_t live = lanes_left(n, i);
        const float32x4_t z = vminq_f32(load_first(a + i, live), top);
        const float32x4_t y = vmaxq_f32(vminq_f32(load_first(b + i, live), top), bottom);
        const float32x4_t gate = gate_neon(z, vmulq_n_f32(z, PLEAT__CLIP_ALPHA));
        store_first(a + i, vmulq_f32(gate, vaddq_f32(y, vdupq_n_f32(1.0f))), live);
    }
}

static void rope_neon(float *x, uint32_t n_heads, uint32_t head_dim, const float *turn, uint32_t n_dims) {
    for (uint32_t head = 0; head < n_heads; head++, x += head_dim) {
        for (uint32_t j = 0; j < n_dims; j += LANES) {
            const uint32_t live = lanes_left(n_dims, j);
            const float32x4_t v = load_first(x + j, live), swapped = vrev64q_f32(v); /* pairs */
            const float32x4_t turned = vmulq_f32(swapped, load_first(turn + n_dims + j, live));
            store_first(x + j, vfmaq_f32(turned, v, load_first(turn + j, live)), live);
        }
    }
}

static void rope_halves_neon(float *x, uint32_t n_heads, uint32_t head_dim, const float *turn, uint32_t n_dims) {
    const uint32_t half = n_dims / 2;
    for (uint32_t head = 0; head < n_heads; head++, x += head_dim) {
        for (uint32_t j = 0; j < half; j += LANES) {
            const uint32_t live = lanes_left(half, j);
            const float32x4_t a = load_first(x + j, live), b = load_first(x + half + j, live);
            const float32x4_t from_b = vmulq_f32(b, load_first(turn + n_dims + j, live));
            const float32x4_t from_a = vmulq_f32(a, load_first(turn + n_dims + half + j, live));
            store_first(x + j, vfmaq_f32(from_b, a, load_first(turn + j, live)), live);
            store_first(x + half + j, vfmaq_f32(from_a, b, load_first(turn + half + j, live)), live);
        }
    }
}

void pleat__ops_fill_neon(pleat__ops_dsp *dsp) {
    *dsp = (pleat__ops_dsp){.rmsnorm = rmsnorm_neon,
                            .swiglu = swiglu_neon,
                            .geglu = geglu_neon,
                            .swiglu_clipped = swiglu_clipped_neon,
                            .rope = rope_neon,
                            .rope_halves = rope_halves_neon};
}
