/* SPDX-License-Identifier: MIT
 *
 * bounded.c: two passes over a unit's values: their extremes, then their codes.
 *
 * Loops run over 16 neighbours without branches, so that the compiler turns them into vectors; extremes are kept in 16
 * lanes because a compiler may not reorder the comparisons of one.
 */
#include "quant/bounded.h"

#include <math.h>

#include "core/compiler.h"
#include "core/half.h"

#define LANES 16u

/* Before a loop over lanes: GCC vectorises it only if it has not unrolled it first. */
#if defined(__clang__)
#define AS_LOOP
#else
#define AS_LOOP _Pragma("GCC unroll 1")
#endif

uint32_t pleat__bounded_levels(float rel) { return (uint32_t)lroundf(1.0f / rel) + 1; }

/* The largest f16 <= x, |x| <= 65504. */
static uint16_t f16_below(float x) {
    const uint16_t h = pleat__f32_to_f16(x + 0.0f); /* -0 is +0 */
    if (!(pleat__f16_to_f32(h) > x)) return h;
    return h & 0x8000u ? (uint16_t)(h + 1) : (uint16_t)(h - 1); /* > x: never +0 */
}

/* The smallest f16 >= x >= 0, or the largest there is. */
static uint16_t f16_above(float x) {
    uint16_t h = pleat__f32_to_f16(x + 0.0f);
    h += pleat__f16_to_f32(h) < x;
    return h > 0x7BFFu ? 0x7BFFu : h;
}

pleat__bounded pleat__bounded_of(float min, float max, float rel) {
    pleat__bounded unit = {.min = f16_below(min)};
    unit.step = f16_above(rel * (max - pleat__f16_to_f32(unit.min)));
    return unit;
}

/* A unit as codes are made with it. */
typedef struct scale {
    float min, inverse; /* 1/step; 0 for step 0 */
    float top;          /* the code of the largest value, not rounded: what no other is above */
} scale;

/* What units share. */
typedef struct spacing {
    float rel, top; /* top: the largest code */
} spacing;

static spacing spacing_of(float rel) { return (spacing){rel, (float)(pleat__bounded_levels(rel) - 1)}; }

/* `min` and `max` of values that may be beyond the f16s. */
INLINE scale put_unit(float min, float max, spacing by, uint16_t *min_out, uint16_t *step_out) {
    min = min > -PLEAT__F16_MAX ? min : -PLEAT__F16_MAX;
    max = max < PLEAT__F16_MAX ? max : PLEAT__F16_MAX;
    const pleat__bounded unit = pleat__bounded_of(min, max, by.rel);
    *min_out = unit.min;
    *step_out = unit.step;
    scale s = {.min = pleat__f16_to_f32(unit.min)};
    s.inverse = unit.step ? 1.0f / pleat__f16_to_f32(unit.step) : 0.0f;
    s.top = (max - s.min) * s.inverse;
    s.top = s.top < by.top ? s.top : by.top;
    return s;
}

/* Clamping the code to the unit's extremes clamps the value; NaN is code 0.  Adding 1.5*2^23 rounds to nearest and
 * leaves the integer in the low bits. */
INLINE uint8_t code_of(float x, float min, float inverse, float top) {
    float y = (x - min) * inverse;
    y = y > 0 ? y : 0;
    y = y < top ? y : top;
    return (uint8_t)pleat__f32_bits(y + 0x1.8p23f);
}

/* ---- extremes in lanes; comparisons leave NaN out --------------------------------------------------------- */

typedef struct extremes {
    float min[LANES], max[LANES];
} extremes;

INLINE void extremes_init(extremes *e) {
    for (uint32_t i = 0; i < LANES; i++) {
        e->min[i] = PLEAT__F16_MAX;
        e->max[i] = -PLEAT__F16_MAX;
    }
}

/* n is a multiple of 16. */
INLINE void extremes_add(extremes *e, const float *x, uint32_t n) {
    for (const float *end = x + n; x < end; x += LANES) {
        AS_LOOP
        for (size_t j = 0; j < LANES; j++) {
            e->min[j] = x[j] < e->min[j] ? x[j] : e->min[j];
            e->max[j] = x[j] > e->max[j] ? x[j] : e->max[j];
        }
    }
}

/* The lanes' extremes come to stand in lane 0. */
INLINE void extremes_fold(extremes *e) {
    for (size_t half = LANES / 2; half > 0; half /= 2) {
        for (size_t j = 0; j < half; j++) {
            e->min[j] = e->min[j + half] < e->min[j] ? e->min[j + half] : e->min[j];
            e->max[j] = e->max[j + half] > e->max[j] ? e->max[j + half] : e->max[j];
        }
    }
}

/* n is a multiple of 16. */
INLINE void codes_of_unit(const float *restrict x, uint32_t n, scale s, uint8_t *restrict codes) {
    for (size_t i = 0; i < (n & ~15u); i++) codes[i] = code_of(x[i], s.min, s.inverse, s.top);
}

/* ---- keys and values --------------------------------------------------------------------------------- */

static void keys_by_block(const float *k, size_t stride, uint32_t n_tokens, uint32_t head_dim, float rel,
                          uint16_t *mins, uint16_t *steps, uint8_t *codes) {
    const spacing by = spacing_of(rel);
    extremes e;
    extremes_init(&e);
    for (uint32_t t = 0; t < n_tokens; t++) extremes_add(&e, k + t * stride, head_dim);
    extremes_fold(&e);
    const scale s = put_unit(e.min[0], e.max[0], by, mins, steps);
    for (uint32_t t = 0; t < n_tokens; t++) codes_of_unit(k + t * stride, head_dim, s, codes + (size_t)t * head_dim);
}

static void keys_by_channel(const float *k, size_t stride, uint32_t n_tokens, uint32_t head_dim, float rel,
                            uint16_t *mins, uint16_t *steps, uint8_t *codes) {
    float min[PLEAT__MAX_HEAD_DIM], max[PLEAT__MAX_HEAD_DIM], inverse[PLEAT__MAX_HEAD_DIM];
    const spacing by = spacing_of(rel);
    const size_t n = head_dim & ~15u;
    for (size_t i = 0; i < n; i++) {
        min[i] = PLEAT__F16_MAX;
        max[i] = -PLEAT__F16_MAX;
    }
    for (uint32_t t = 0; t < n_tokens; t++) {
        const float *restrict row = k + t * stride;
        for (size_t i = 0; i < n; i++) {
            min[i] = row[i] < min[i] ? row[i] : min[i];
            max[i] = row[i] > max[i] ? row[i] : max[i];
        }
    }
    for (size_t i = 0; i < n; i++) {
        const scale s = put_unit(min[i], max[i], by, mins + i, steps + i);
        min[i] = s.min;
        inverse[i] = s.inverse;
        max[i] = s.top;
    }
    for (uint32_t t = 0; t < n_tokens; t++) {
        const float *restrict row = k + t * stride;
        uint8_t *restrict to = codes + (size_t)t * head_dim;
        for (size_t i = 0; i < n; i++) to[i] = code_of(row[i], min[i], inverse[i], max[i]);
    }
}

void pleat__bounded_keys(const float *k, size_t stride, uint32_t n_tokens, uint32_t head_dim, bool by_channel,
                         float rel, uint16_t *mins, uint16_t *steps, uint8_t *codes) {
    (by_channel ? keys_by_channel : keys_by_block)(k, stride, n_tokens, head_dim, rel, mins, steps, codes);
}

void pleat__bounded_values(const float *v, size_t stride, uint32_t n_tokens, uint32_t head_dim, uint32_t group,
                           float rel, uint16_t *mins, uint16_t *steps, uint8_t *codes) {
    const spacing by = spacing_of(rel);
    for (uint32_t t = 0; t < n_tokens; t++) {
        for (uint32_t i = 0; i < head_dim; i += group) {
            extremes e;
            extremes_init(&e);
            extremes_add(&e, v + t * stride + i, group);
            extremes_fold(&e);
            const scale s = put_unit(e.min[0], e.max[0], by, mins++, steps++);
            codes_of_unit(v + t * stride + i, group, s, codes + (size_t)t * head_dim + i);
        }
    }
}
