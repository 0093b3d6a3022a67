/* SPDX-License-Identifier: MIT
 *
 * vector_neon.h: what decode and prompt attention both do with registers of four floats: powers of two, halves, masks.
 */
#ifndef PLEAT_ATTN_ARM_VECTOR_NEON_H
#define PLEAT_ATTN_ARM_VECTOR_NEON_H

#include <arm_neon.h>
#include <stdint.h>

#include "core/compiler.h"

/* Floats in a register. */
#define LANES 4u

/* 2^x for x <= 0 as exp2_256() has it (x86/vector_avx2.h): exactly 1 at 0, +0 below -126, else within 8e-8 relative. */
INLINE float32x4_t exp2_neon(float32x4_t x) {
    const float32x4_t n = vrndnq_f32(x), f = vsubq_f32(x, n);
    float32x4_t y = vfmaq_f32(vdupq_n_f32(0x1.5f3e54p-10f), vdupq_n_f32(0x1.41fbbap-13f), f);
    y = vfmaq_f32(vdupq_n_f32(0x1.3b2d4cp-7f), y, f);
    y = vfmaq_f32(vdupq_n_f32(0x1.c6aee8p-5f), y, f);
    y = vfmaq_f32(vdupq_n_f32(0x1.ebfbdcp-3f), y, f);
    y = vfmaq_f32(vdupq_n_f32(0x1.62e430p-1f), y, f);
    y = vfmaq_f32(vdupq_n_f32(1.0f), y, f);
    const int32x4_t scaled = vaddq_s32(vreinterpretq_s32_f32(y), vshlq_n_s32(vcvtq_s32_f32(n), 23));
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_s32(scaled), vcltq_f32(x, vdupq_n_f32(-126.0f))));
}

/* Four halves as floats. */
INLINE float32x4_t load_f16(const void *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)p))); }

/* All ones in element j where bit j is set, j = 0..3. */
INLINE uint32x4_t mask_of(uint64_t bits) {
    static const uint32_t bit[LANES] = {1, 2, 4, 8};
    return vtstq_u32(vdupq_n_u32((uint32_t)bits & 0xF), vld1q_u32(bit));
}

/* x where `keep` is set, else -infinity. */
INLINE float32x4_t hide(float32x4_t x, uint32x4_t keep) { return vbslq_f32(keep, x, vdupq_n_f32(-__builtin_inff())); }

/* x where `keep` is set, else +0. */
INLINE float32x4_t zero_unless(float32x4_t x, uint32x4_t keep) {
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x), keep));
}

#endif
