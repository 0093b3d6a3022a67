/* SPDX-License-Identifier: MIT
 *
 * cap_neon.c: bounded logits with registers of four floats.  See cap.h.
 */
#include "attn/arm/vector_neon.h"
#include "attn/cap.h"

INLINE float32x4_t tanh_neon(float32x4_t y) {
    const float32x4_t one = vdupq_n_f32(1), size = vabsq_f32(y), square = vmulq_f32(y, y);
    float32x4_t p = vfmaq_f32(vdupq_n_f32(PLEAT__TANH_3), vdupq_n_f32(PLEAT__TANH_4), square);
    p = vfmaq_f32(vdupq_n_f32(PLEAT__TANH_2), p, square);
    p = vfmaq_f32(vdupq_n_f32(PLEAT__TANH_1), p, square);
    p = vfmaq_f32(vdupq_n_f32(PLEAT__TANH_0), p, square);
    const float32x4_t near = vfmaq_f32(y, vmulq_f32(p, square), y);
    const float32x4_t e = exp2_neon(vmulq_n_f32(size, PLEAT__TANH_EXP2_FACTOR));
    const float32x4_t far = vdivq_f32(vsubq_f32(one, e), vaddq_f32(one, e));
    const float32x4_t signed_far = vbslq_f32(vdupq_n_u32(0x80000000u), y, far);
    return vbslq_f32(vcltq_f32(size, vdupq_n_f32(PLEAT__TANH_POLYNOMIAL_TO)), near, signed_far);
}

void pleat__attn_cap_neon(float *x, size_t n, float cap2) {
    const float inverse = 1 / cap2;
    for (size_t i = 0; i < n; i += LANES)
        vst1q_f32(x + i, vmulq_n_f32(tanh_neon(vmulq_n_f32(vld1q_f32(x + i), inverse)), cap2));
}
