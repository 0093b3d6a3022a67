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

uint32_t pleat__bounded_levels(float rel) { return (uint32_t)lroundf(1.0f / rel) + 1; }
uint32_t pleat__bounded_grid_levels(float rel) { return (uint32_t)lroundf(17.0f / 16 / rel) + 1; }

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

/* Adding it rounds |x| < 2^21 to nearest and leaves the integer in the low bits. */
#define ROUNDING 0x1.8p23f

/* A unit as codes are made with it: those of (x - origin) * inverse, held to [0, top] and rounded. */
typedef struct scale {
    float origin;
    float inverse; /* 1/step; 0 for step 0 */
    float top;     /* the largest value's, or the largest code */
} scale;

/* What units share. */
typedef struct spacing {
    float rel;
    uint32_t top; /* the largest code */
    bool on_grid;
} spacing;

static spacing spacing_of(float rel, bool on_grid) {
    return (spacing){rel, (on_grid ? pleat__bounded_grid_levels(rel) : pleat__bounded_levels(rel)) - 1, on_grid};
}

/* Clamping the code to that of the unit's largest clamps the value; NaN is code 0. */
INLINE uint8_t code_of(float x, scale s) {
    float y = (x - s.origin) * s.inverse;
    y = y > 0 ? y : 0;
    y = y < s.top ? y : s.top;
    return (uint8_t)pleat__f32_bits(y + ROUNDING);
}

static scale scale_of(pleat__bounded unit, float max, uint32_t top) {
    scale s = {.origin = pleat__f16_to_f32(unit.min)};
    s.inverse = unit.step ? 1.0f / pleat__f16_to_f32(unit.step) : 0.0f;
    s.top = (max - s.origin) * s.inverse;
    s.top = s.top < (float)top ? s.top : (float)top;
    return s;
}

/* ---- grids ------------------------------------------------------------------------------------------- */

#define GRID_STEP_SHIFT 19     /* bits of an f32's 23 that a step has not */
#define GRID_MIN_STEP 0x1p-13f /* half of it is a normal f16 */

/* The largest step of which x is a multiple of half; 0: none. */
static float step_of_equal(float x) {
    const int last = x < 0 ? -PLEAT__GRID_MIN_Z : PLEAT__GRID_MAX_Z;
    x = 2 * fabsf(x);
    for (int z = 1; z <= last && x > 0; z++) {
        const float step = x / (float)z;
        const bool is_short = (pleat__f32_bits(step) & ((1u << GRID_STEP_SHIFT) - 1)) == 0;
        if (is_short && step * (float)z == x) return step;
    }
    return 0;
}

/* Both f16s are exact: z * step/2 has 11 significant bits. */
bool pleat__bounded_on_grid(float min, float max, float rel, pleat__bounded *unit) {
    const float wanted = min < max ? rel * (max - min) : step_of_equal(min);
    *unit = (pleat__bounded){0};
    if (!(wanted > 0)) return min == 0 && max == 0;
    if (!(wanted >= GRID_MIN_STEP && wanted < 2 * PLEAT__F16_MAX)) return false;
    const float step = pleat__bits_f32(pleat__f32_bits(wanted) >> GRID_STEP_SHIFT << GRID_STEP_SHIFT);
    const float z = ceilf(2 * min / step), origin = z * step / 2;
    *unit = (pleat__bounded){.min = pleat__f32_to_f16(origin + 0.0f), .step = pleat__f32_to_f16(step)};
    return step <= PLEAT__F16_MAX && z >= PLEAT__GRID_MIN_Z && z <= PLEAT__GRID_MAX_Z &&
           fabsf(origin) <= PLEAT__F16_MAX;
}

/* ---- units ------------------------------------------------------------------------------------------- */

/* The unit of `min` and `max` of values that may be beyond the f16s, and its scale.  False: it should be on a grid and is
 * not. */
INLINE bool put_unit(float min, float max, spacing by, uint16_t *min_out, uint16_t *step_out, scale *s) {
    min = min > -PLEAT__F16_MAX ? min : -PLEAT__F16_MAX;
    max = max < PLEAT__F16_MAX ? max : PLEAT__F16_MAX;
    max = max > min ? max : min; /* nothing but NaN: a unit of equal values */
    pleat__bounded unit;
    if (by.on_grid && !pleat__bounded_on_grid(min, max, by.rel, &unit)) return false;
    if (!by.on_grid) unit = pleat__bounded_of(min, max, by.rel);
    *s = scale_of(unit, max, by.top);
    *min_out = unit.min;
    *step_out = unit.step;
    return true;
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
    for (size_t i = 0; i < (n & ~15u); i++) codes[i] = code_of(x[i], s);
}

/* ---- keys and values --------------------------------------------------------------------------------- */

static bool keys_by_block(const float *k, size_t stride, uint32_t n_tokens, uint32_t head_dim, spacing by,
                          uint16_t *mins, uint16_t *steps, uint8_t *codes) {
    extremes e;
    extremes_init(&e);
    for (uint32_t t = 0; t < n_tokens; t++) extremes_add(&e, k + t * stride, head_dim);
    extremes_fold(&e);
    scale s;
    if (!put_unit(e.min[0], e.max[0], by, mins, steps, &s)) return false;
    for (uint32_t t = 0; t < n_tokens; t++) codes_of_unit(k + t * stride, head_dim, s, codes + (size_t)t * head_dim);
    return true;
}

/* Scales of all dimensions. */
typedef struct channels {
    float origin[PLEAT__MAX_HEAD_DIM], inverse[PLEAT__MAX_HEAD_DIM], top[PLEAT__MAX_HEAD_DIM];
} channels;

/* The extremes, in origin and top, become scales. */
static bool put_channels(channels *c, size_t n, spacing by, uint16_t *mins, uint16_t *steps) {
    for (size_t i = 0; i < n; i++) {
        scale s;
        if (!put_unit(c->origin[i], c->top[i], by, mins + i, steps + i, &s)) return false;
        c->origin[i] = s.origin;
        c->inverse[i] = s.inverse;
        c->top[i] = s.top;
    }
    return true;
}

static bool keys_by_channel(const float *k, size_t stride, uint32_t n_tokens, uint32_t head_dim, spacing by,
                            uint16_t *mins, uint16_t *steps, uint8_t *codes) {
    channels c;
    const size_t n = head_dim & ~15u;
    for (size_t i = 0; i < n; i++) {
        c.origin[i] = PLEAT__F16_MAX;
        c.top[i] = -PLEAT__F16_MAX;
    }
    for (uint32_t t = 0; t < n_tokens; t++) {
        const float *restrict row = k + t * stride;
        for (size_t i = 0; i < n; i++) {
            c.origin[i] = row[i] < c.origin[i] ? row[i] : c.origin[i];
            c.top[i] = row[i] > c.top[i] ? row[i] : c.top[i];
        }
    }
    if (!put_channels(&c, n, by, mins, steps)) return false;
    for (uint32_t t = 0; t < n_tokens; t++) {
        const float *restrict row = k + t * stride;
        uint8_t *restrict to = codes + (size_t)t * head_dim;
        for (size_t i = 0; i < n; i++) to[i] = code_of(row[i], (scale){c.origin[i], c.inverse[i], c.top[i]});
    }
    return true;
}

bool pleat__bounded_keys(const float *k, size_t stride, uint32_t n_tokens, uint32_t head_dim, bool by_channel,
                         bool on_grid, float rel, uint16_t *mins, uint16_t *steps, uint8_t *codes) {
    return (by_channel ? keys_by_channel : keys_by_block)(k, stride, n_tokens, head_dim, spacing_of(rel, on_grid), mins,
                                                          steps, codes);
}

bool pleat__bounded_values(const float *v, size_t stride, uint32_t n_tokens, uint32_t head_dim, uint32_t group,
                           bool on_grid, float rel, uint16_t *mins, uint16_t *steps, uint8_t *codes) {
    const spacing by = spacing_of(rel, on_grid);
    for (uint32_t t = 0; t < n_tokens; t++) {
        for (uint32_t i = 0; i < head_dim; i += group) {
            extremes e;
            scale s;
            extremes_init(&e);
            extremes_add(&e, v + t * stride + i, group);
            extremes_fold(&e);
            if (!put_unit(e.min[0], e.max[0], by, mins++, steps++, &s)) return false;
            codes_of_unit(v + t * stride + i, group, s, codes + (size_t)t * head_dim + i);
        }
    }
    return true;
}
