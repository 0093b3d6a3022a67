/* SPDX-License-Identifier: MIT
 *
 * made_types.c: types of random weights; see made.h.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "made.h"

/* 64 random bits. */
static uint64_t next(measure_rng *rng) { return (uint64_t)measure_rng_next(rng) << 32 | measure_rng_next(rng); }

/* The half float below a positive number under 65504. */
static uint16_t half_of(double v) {
    int exponent;
    const double mantissa = frexp(v, &exponent);     /* in [0.5, 1) */
    if (v < 0x1p-14) return (uint16_t)(v * 0x1p+24); /* subnormal */
    return (uint16_t)((unsigned)(exponent + 14) << 10 | ((unsigned)(mantissa * 2048) & 1023));
}

static void put_half(unsigned char *out, double v) {
    const uint16_t half = half_of(v);
    memcpy(out, &half, sizeof half);
}

static void put_random(unsigned char *out, uint32_t n, measure_rng *rng) {
    for (uint32_t i = 0; i < n; i += 8) {
        const uint64_t bits = next(rng);
        memcpy(out + i, &bits, n - i < 8 ? n - i : 8);
    }
}

/* Sign and mantissa at random, one exponent: magnitudes from a to 2 a have a root mean square of 1.53 a. */
static void fill_f16(unsigned char *out, uint64_t n, double deviation, measure_rng *rng) {
    const uint16_t exponent = half_of(deviation / 1.53) & 0x7C00;
    for (uint64_t i = 0; i < n; i++) {
        const uint16_t half = (uint16_t)((measure_rng_next(rng) & 0x83FF) | exponent);
        memcpy(out + 2 * i, &half, sizeof half);
    }
}

/* A half float d, then 32 codes of 8 bits; a weight is d * code.  Codes from -128 to 127 have a deviation of 73.9. */
static void fill_q8_0(unsigned char *out, uint64_t n, double deviation, measure_rng *rng) {
    for (uint64_t i = 0; i < n; i++, out += 34) {
        put_half(out, deviation / 73.9);
        put_random(out + 2, 32, rng);
    }
}

/* A half float d, then 32 codes of 4 bits; a weight is d * (code - 8).  Codes have a deviation of 4.61. */
static void fill_q4_0(unsigned char *out, uint64_t n, double deviation, measure_rng *rng) {
    for (uint64_t i = 0; i < n; i++, out += 18) {
        put_half(out, deviation / 4.61);
        put_random(out + 2, 16, rng);
    }
}

static const made_type types[] = {
    {"q8_0", 8, 32, 34, fill_q8_0},
    {"q4_0", 2, 32, 18, fill_q4_0},
    {"f16", 1, 1, 2, fill_f16},
};

const char *const made_type_names[] = {"q8_0", "q4_0", "f16", NULL};
_Static_assert(sizeof made_type_names / sizeof made_type_names[0] == sizeof types / sizeof types[0] + 1,
               "a name for each type");

const made_type *made_type_at(uint32_t idx) { return &types[idx]; }
