/* SPDX-License-Identifier: MIT
 *
 * test_bounded.c: error-bounded quantisation (src/quant/bounded.h) against its definition in float64.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "core/half.h"
#include "quant/bounded.h"

#define MAX_TOKENS 64u
#define MAX_DIM 512u

static const uint32_t head_dims[] = {16, 32, 48, 64, 80, 128, 256, 512};
static const float rels[] = {1.0f / 255, 0.01f, 0.05f, 1.0f / 15, 0.15f, 0.2f, 0.3f, 1.0f / 3, 0.4f, 0.5f, 0.7f, 1.0f};

/* Fills beyond check_fill()'s. */
#define N_FILLS (CHECK_N_FILLS + 9)
static void fill(float *x, size_t n, unsigned kind) {
    if (kind < CHECK_N_FILLS) {
        check_fill(x, n, kind, (float)check_uniform(0.01, 30));
        return;
    }
    const float offset = ldexpf(check_normal(), (int)check_below(12));
    for (size_t i = 0; i < n; i++) {
        const float r = check_normal();
        switch (kind - CHECK_N_FILLS) {
            case 0: x[i] = i % 3 ? 65504.0f : -65504.0f; break;
            case 1: x[i] = 1e30f * r; break;
            case 2: x[i] = 3e-7f * r; break;                            /* subnormal in f16 */
            case 3: x[i] = 1e-42f * (float)check_below(9); break;       /* subnormal in f32 */
            case 4: x[i] = ldexpf(r, (int)check_below(60) - 40); break; /* a huge range */
            case 5: x[i] = 1000.7f + 1e-3f * r; break;                  /* an offset far beyond the range */
            case 6: x[i] = -30000.0f + 1e-2f * (float)check_below(3); break;
            case 7: x[i] = offset; break; /* equal, hardly ever an f16 */
            default: x[i] = i % 2 ? -0.0f : 0.0f; break;
        }
    }
}

static double clamped(float x) { return x > 65504 ? 65504 : x < -65504 ? -65504 : (double)x; }

/* The value comes back within half a step, and rounding of f32. */
static void check_value(float x, uint8_t code, uint16_t min_f16, uint16_t step_f16, float rel, bool on_grid) {
    const double min = pleat__f16_to_f32(min_f16), step = pleat__f16_to_f32(step_f16), want = clamped(x);
    const double error = fabs(min + step * code - want), rounding = 4 * 0x1p-24 * (fabs(min) + fabs(want));
    const double capped = step == 65504 && rel > 0.5f ? 65504 : 0; /* bounded.h: the rest of the range */
    CHECK(error <= step / 2 + rounding || error <= capped);
    CHECK(code < (on_grid ? pleat__bounded_grid_levels(rel) : pleat__bounded_levels(rel)));
    CHECK(min <= want + (on_grid ? step / 2 + rounding : 0));
}

static float x[MAX_TOKENS * (MAX_DIM + 3)];
static uint8_t codes[MAX_TOKENS * MAX_DIM];
static uint16_t mins[MAX_TOKENS * MAX_DIM / 16], steps[MAX_TOKENS * MAX_DIM / 16];

/* ---- one unit ----------------------------------------------------------------------------------------- */

/* round(1 / rel) + 1, and on grids round(17/16 / rel) + 1. */
static void test_levels(void) {
    CHECK_EQ_U64(pleat__bounded_levels(1.0f), 2);
    CHECK_EQ_U64(pleat__bounded_levels(1.0f / 255), 256);
    CHECK_EQ_U64(pleat__bounded_levels(0.05f), 21);
    CHECK_EQ_U64(pleat__bounded_levels(0.15f), 8);
    CHECK_EQ_U64(pleat__bounded_levels(0.25f), 5);
    for (uint32_t bits = 1; bits <= 8; bits++)
        CHECK_EQ_U64(pleat__bounded_levels(1.0f / (float)((1u << bits) - 1)), 1u << bits);
    CHECK_EQ_U64(pleat__bounded_grid_levels(1.0f), 2);
    CHECK_EQ_U64(pleat__bounded_grid_levels(0.25f), 5);
    CHECK_EQ_U64(pleat__bounded_grid_levels(0.2f), 6);
    CHECK_EQ_U64(pleat__bounded_grid_levels(0.15f), 8);
    CHECK_EQ_U64(pleat__bounded_grid_levels(0.05f), 22);
}

/* Minimum and step are the nearest f16 on their side: checked against all of them. */
static void test_unit_rounds_outwards(void) {
    for (uint64_t round = check_rounds(2000, 200); round > 0; round--) {
        float pair[2];
        fill(pair, 2, (unsigned)check_below(N_FILLS));
        const float a = (float)clamped(pair[0]), b = (float)clamped(pair[1]);
        const float low = fminf(a, b), high = fmaxf(a, b), rel = rels[check_below(CHECK_COUNT(rels))];
        const pleat__bounded unit = pleat__bounded_of(low, high, rel);
        const double min = pleat__f16_to_f32(unit.min), step = pleat__f16_to_f32(unit.step);
        double best_min = -INFINITY, best_step = 65504;
        const double want_step = (double)(rel * (high - (float)min));
        for (uint32_t h = 0; h < 0x10000; h++) {
            const double f = pleat__f16_to_f32((uint16_t)h);
            if (!isfinite(f)) continue;
            if (f <= low && f > best_min) best_min = f;
            if (f >= want_step && f < best_step) best_step = f;
        }
        check_context("low %a high %a rel %g", (double)low, (double)high, (double)rel);
        CHECK(min == best_min);
        CHECK(step == best_step);
    }
}

static void test_unit_of_equal_values(void) {
    const float exact[] = {0.0f, -0.0f, 1.5f, -65504.0f, 65504.0f, 0x1p-24f, -0x1p-24f};
    for (size_t i = 0; i < CHECK_COUNT(exact); i++) {
        const pleat__bounded unit = pleat__bounded_of(exact[i], exact[i], 0.1f);
        CHECK_EQ_U64(unit.step, 0);
        CHECK(pleat__f16_to_f32(unit.min) == exact[i]);
    }
    const pleat__bounded unit = pleat__bounded_of(1.0001f, 1.0001f, 0.1f);
    CHECK(pleat__f16_to_f32(unit.min) == 1.0f);
    CHECK(unit.step > 0 && pleat__f16_to_f32(unit.step) < 1.1e-4f);
    CHECK_EQ_U64(pleat__bounded_of(-0.0f, -0.0f, 1.0f).min, 0);
}

/* Is it a multiple z * step/2 of some step of 5 significant bits? */
static bool has_grid(double value) {
    if (value == 0) return true;
    for (uint32_t h = 0x0800; h < 0x7C00; h += 64)
        for (int z = -64; z <= 63; z++)
            if (z * (double)pleat__f16_to_f32((uint16_t)h) == 2 * value) return true;
    return false;
}

/* A grid is the definition's, or there is a reason that it is none. */
static void check_grid(float low, float high, float rel) {
    pleat__bounded unit;
    const bool fits = pleat__bounded_on_grid(low, high, rel, &unit);
    const double wanted = (double)(rel * (high - low));
    check_context("low %a high %a rel %g", (double)low, (double)high, (double)rel);
    if (!fits) {
        const double ratio = (double)low / wanted; /* with a step up to a 17th smaller */
        const bool far = ratio > 29 || ratio < -30, outside = fabs((double)low) + wanted / 2 >= 65504;
        CHECK(low == high ? !has_grid(low) : wanted < 0x1p-13 || wanted >= 65536 || far || outside);
        return;
    }
    const double min = pleat__f16_to_f32(unit.min), step = pleat__f16_to_f32(unit.step);
    CHECK_EQ_U64(unit.step & 0x803F, 0);
    if (unit.step == 0) {
        CHECK(low == 0 && high == 0 && unit.min == 0);
        return;
    }
    const double z = 2 * min / step;
    CHECK(step >= 0x1p-13 && z == nearbyint(z) && z >= PLEAT__GRID_MIN_Z && z <= PLEAT__GRID_MAX_Z);
    CHECK(low == high ? min == (double)low : step <= wanted && step > wanted * 16 / 17);
    CHECK(min - (double)low >= -step * 0x1p-16 && min - (double)low < step / 2 * (1 + 0x1p-16));
}

static void test_grids(void) {
    for (uint64_t round = check_rounds(4000, 200); round > 0; round--) {
        float pair[2];
        fill(pair, 2, (unsigned)check_below(N_FILLS));
        const float a = (float)clamped(pair[0]), b = (float)clamped(pair[1]);
        check_grid(fminf(a, b), fmaxf(a, b), rels[check_below(CHECK_COUNT(rels))]);
        const float z = (float)check_between(0, 80) - 40, step = ldexpf((float)check_between(30, 70), -5);
        check_grid(z * step, z * step, 0.1f);
        check_grid(z * step, (z + (float)check_below(9)) * step, 0.25f); /* values half way between codes */
        check_grid((z - 0.5f) * step, (z + 3.5f) * step, 0.25f);
    }
    pleat__bounded unit;
    CHECK(pleat__bounded_on_grid(-1.5f, -1.5f, 0.1f, &unit));
    CHECK(pleat__f16_to_f32(unit.step) == 3.0f && pleat__f16_to_f32(unit.min) == -1.5f); /* the largest step */
    CHECK(!pleat__bounded_on_grid(NAN, NAN, 0.1f, &unit));
}

/* ---- blocks ------------------------------------------------------------------------------------------- */

typedef struct shape {
    uint32_t n, d;
    size_t stride;
    float rel;
} shape;

static shape random_shape(void) {
    shape s = {.n = (uint32_t)check_between(1, MAX_TOKENS), .d = head_dims[check_below(CHECK_COUNT(head_dims))]};
    s.stride = s.d + check_below(4);
    s.rel = check_below(2) ? rels[check_below(CHECK_COUNT(rels))] : (float)check_uniform(1.0 / 255, 1);
    for (uint32_t t = 0; t < s.n; t++) fill(x + t * s.stride, s.d, (unsigned)check_below(N_FILLS));
    if (check_below(2)) fill(x, s.n * s.stride, (unsigned)check_below(N_FILLS)); /* all of one kind */
    check_context("n %u d %u rel %g", s.n, s.d, (double)s.rel);
    return s;
}

/* Where the unit of row t's value i is. */
typedef struct layout {
    bool is_values, by_channel;
    uint32_t group;
} layout;
static uint32_t unit_of(const shape *s, layout l, uint32_t t, uint32_t i) {
    return l.is_values ? t * (s->d / l.group) + i / l.group : l.by_channel ? i : 0;
}

static bool quantise(const shape *s, layout l, bool on_grid) {
    if (l.is_values)
        return pleat__bounded_values(x, s->stride, s->n, s->d, l.group, on_grid, s->rel, mins, steps, codes);
    return pleat__bounded_keys(x, s->stride, s->n, s->d, l.by_channel, on_grid, s->rel, mins, steps, codes);
}

static float lows[MAX_TOKENS * MAX_DIM / 16], highs[MAX_TOKENS * MAX_DIM / 16];

/* Extremes of all units to lows and highs; returns how many they are. */
static uint32_t find_extremes(const shape *s, layout l) {
    const uint32_t n_units = unit_of(s, l, s->n - 1, s->d - 1) + 1;
    for (uint32_t u = 0; u < n_units; u++) lows[u] = 65504, highs[u] = -65504;
    for (uint32_t t = 0; t < s->n; t++) {
        for (uint32_t i = 0; i < s->d; i++) {
            const float value = (float)clamped(x[t * s->stride + i]);
            float *lowest = &lows[unit_of(s, l, t, i)], *highest = &highs[unit_of(s, l, t, i)];
            *lowest = fminf(*lowest, value);
            *highest = fmaxf(*highest, value);
        }
    }
    return n_units;
}

static bool all_on_grids(const shape *s, layout l) {
    const uint32_t n_units = find_extremes(s, l);
    pleat__bounded unit;
    for (uint32_t u = 0; u < n_units; u++)
        if (!pleat__bounded_on_grid(lows[u], highs[u], s->rel, &unit)) return false;
    return true;
}

static void check_codes(const shape *s, layout l, bool on_grid) {
    for (uint32_t t = 0; t < s->n && check_failures() == 0; t++) {
        for (uint32_t i = 0; i < s->d; i++) {
            const uint32_t unit = unit_of(s, l, t, i);
            check_value(x[t * s->stride + i], codes[t * s->d + i], mins[unit], steps[unit], s->rel, on_grid);
        }
    }
}

static layout random_layout(const shape *s, bool is_values) {
    layout l = {.is_values = is_values, .by_channel = check_below(2) != 0, .group = 16};
    while (s->d % (2 * l.group) == 0 && check_below(2)) l.group *= 2;
    if (check_below(3) == 0) l.group = s->d;
    return l;
}

static void check_matrices(bool is_values) {
    for (uint64_t round = check_rounds(600, 60); round > 0; round--) {
        const shape s = random_shape();
        const layout l = random_layout(&s, is_values);
        const bool on_grid = check_below(2) && pleat__bounded_grid_levels(s.rel) <= 256;
        const bool fits = quantise(&s, l, on_grid);
        CHECK(fits == (!on_grid || all_on_grids(&s, l)));
        if (fits) check_codes(&s, l, on_grid);
    }
}

static void test_keys(void) { check_matrices(false); }
static void test_values(void) { check_matrices(true); }

/* Values whose codes, wherever the grid's phase is, take all levels and no more. */
static void test_grid_codes(void) {
    for (uint64_t round = check_rounds(2000, 200); round > 0; round--) {
        const float rel = rels[check_between(2, CHECK_COUNT(rels) - 1)];
        const float low = (float)check_uniform(-6, 5), range = (float)check_uniform(1, 1.1);
        for (uint32_t i = 0; i < 16; i++) x[i] = low + range * (float)check_uniform(0, 1);
        x[check_below(8)] = low;
        x[8 + check_below(8)] = low + range;
        const shape s = {.n = 1, .d = 16, .stride = 16, .rel = rel};
        const layout l = {.is_values = true, .group = 16};
        check_context("low %a range %a rel %g", (double)low, (double)range, (double)rel);
        const bool fits = quantise(&s, l, true);
        CHECK(fits == all_on_grids(&s, l));
        if (fits) check_codes(&s, l, true);
    }
}

/* Each unit is the one of its own extremes, so neighbours do not touch it. */
static void test_units_are_their_own(void) {
    static const layout layouts[] = {{.by_channel = true}, {.is_values = true, .group = 16}};
    const shape s = {.n = 32, .d = 64, .stride = 64, .rel = 0.15f};
    check_fill_normal(x, (size_t)s.n * s.d);
    for (size_t i = 0; i < CHECK_COUNT(layouts); i++) {
        CHECK(quantise(&s, layouts[i], false));
        const uint32_t n_units = find_extremes(&s, layouts[i]);
        CHECK_EQ_U64(n_units, i == 0 ? s.d : s.n * s.d / 16);
        for (uint32_t u = 0; u < n_units; u++) {
            const pleat__bounded unit = pleat__bounded_of(lows[u], highs[u], s.rel);
            CHECK_EQ_U64(mins[u], unit.min);
            CHECK_EQ_U64(steps[u], unit.step);
        }
    }
}

/* Values that no caller may hand over still give codes below the levels: here and there, and all of a unit. */
static void test_nan_and_infinity(void) {
    static const layout layouts[] = {{.by_channel = false}, {.by_channel = true}, {.is_values = true, .group = 32}};
    static const float none[] = {NAN, INFINITY, -INFINITY};
    const shape s = {.n = 16, .d = 64, .stride = 64, .rel = 0.15f};
    for (uint32_t round = 0; round < 24; round++) {
        const layout l = layouts[round % 3];
        const uint32_t kind = round / 3 % 4, unit = unit_of(&s, l, 5, 40); /* all of one kind, or kinds mixed */
        for (uint32_t i = 0; i < s.n * s.d; i++) {
            const bool is_one = unit_of(&s, l, i / s.d, i % s.d) == unit;
            x[i] = check_normal();
            if (kind < 3 ? is_one : i % 11 > 0) x[i] = none[kind < 3 ? kind : i % 5 == 0 ? 0 : i % 7 == 0 ? 1 : 2];
        }
        check_context("layout %u, kind %u", round % 3, kind);
        memset(codes, 0xFF, sizeof codes);
        const bool fits = quantise(&s, l, round >= 12);
        CHECK(fits || round >= 12);
        for (uint32_t i = 0; fits && i < s.n * s.d; i++) CHECK(codes[i] < 8);
    }
}

static const check_test tests[] = {
    {"levels", test_levels},
    {"unit_rounds_outwards", test_unit_rounds_outwards},
    {"unit_of_equal_values", test_unit_of_equal_values},
    {"grids", test_grids},
    {"keys", test_keys},
    {"values", test_values},
    {"grid_codes", test_grid_codes},
    {"units_are_their_own", test_units_are_their_own},
    {"nan_and_infinity", test_nan_and_infinity},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
