/* SPDX-License-Identifier: MIT
 *
 * lanes_neon.h: products with one lane of a register, which an instruction names: `lane` is a constant at each call.
 */
#ifndef PLEAT_CORE_ARM_LANES_NEON_H
#define PLEAT_CORE_ARM_LANES_NEON_H

#include <arm_neon.h>

#include "core/compiler.h"

/* sum[0], sum[1] += codes * multipliers[lane], the low and the high four codes. */
INLINE void add_products(int32x4_t *sum, int16x8_t codes, int16x4_t multipliers, uint32_t lane) {
#define ADD(n)                                                                \
    case n:                                                                   \
        sum[0] = vmlal_lane_s16(sum[0], vget_low_s16(codes), multipliers, n); \
        sum[1] = vmlal_high_lane_s16(sum[1], codes, multipliers, n);          \
        break
    switch (lane) {
        ADD(0);
        ADD(1);
        ADD(2);
        ADD(3);
    }
#undef ADD
}

#if defined(__ARM_FEATURE_DOTPROD)
/* sum[i] += the dot product of codes 4i .. 4i+3 with limbs 4*lane .. 4*lane+3. */
INLINE int32x4_t dot_lane(int32x4_t sum, int8x16_t codes, int8x16_t limbs, uint32_t lane) {
    switch (lane) {
        case 0: return vdotq_laneq_s32(sum, codes, limbs, 0);
        case 1: return vdotq_laneq_s32(sum, codes, limbs, 1);
        case 2: return vdotq_laneq_s32(sum, codes, limbs, 2);
        default: return vdotq_laneq_s32(sum, codes, limbs, 3);
    }
}
#endif

#endif
