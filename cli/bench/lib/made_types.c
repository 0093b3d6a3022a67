/* SPDX-License-Identifier: MIT
 *
 * made_types.c: types of random weights; see made.h.
 *
 * A block of a quantised type is random but for its scale d, and, in types with minima, the scale m of those.  `unit` is
 * the deviation of its weights where d is 1: the root mean square of code times sub-scale, all of which are random, less
 * the minimum.  `m_of_d` makes the mean 0: minus the mean code where the minimum is added, else the mean code times what
 * the mean sub-scale is to the mean sub-minimum, which is 1.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cli/bench/lib/made.h"

/* 64 random bits. */
static uint64_t next(measure_rng *rng) { return (uint64_t)measure_rng_next(rng) << 32 | measure_rng_next(rng); }

/* The half float next to a number of less than 65504, towards 0. */
static uint16_t half_of(double v) {
    int exponent;
    const int sign = (v < 0) << 15;
    const double mantissa = frexp(fabs(v), &exponent);                         /* in [0.5, 1) */
    if (fabs(v) < 0x1p-14) return (uint16_t)(sign | (int)(fabs(v) * 0x1p+24)); /* subnormal */
    return (uint16_t)(sign | (exponent + 14) << 10 | ((int)(mantissa * 2048) & 1023));
}

static void put_u16(unsigned char *out, uint16_t v) { memcpy(out, &v, sizeof v); }

static void put_random(unsigned char *out, uint64_t n, measure_rng *rng) {
    for (uint64_t i = 0; i < n; i += 8) {
        const uint64_t bits = next(rng);
        memcpy(out + i, &bits, n - i < 8 ? n - i : 8);
    }
}

typedef struct made_type made_type;
typedef void fill_fn(const made_type *t, uint32_t block_bytes, unsigned char *out, uint64_t n, double deviation,
                     measure_rng *rng);

struct made_type {
    uint32_t d_at; /* where in a block its scale d is, a half float unless `fill` has it otherwise */
    double unit;   /* deviation of weights whose d is 1 */
    double m_of_d; /* scale of the minima, a half float behind d, in units of d; 0: the type has none */
    fill_fn *fill;
};

static void fill_blocks(const made_type *t, uint32_t block_bytes, unsigned char *out, uint64_t n, double deviation,
                        measure_rng *rng) {
    const uint16_t d = half_of(deviation / t->unit), m = t->m_of_d != 0 ? half_of(deviation / t->unit * t->m_of_d) : 0;
    put_random(out, n * block_bytes, rng);
    for (uint64_t i = 0; i < n; i++, out += block_bytes) {
        put_u16(out + t->d_at, d);
        if (t->m_of_d != 0) put_u16(out + t->d_at + 2, m);
    }
}

/* The scale is a power of two: of 2^(byte - 128), which codes multiply, the next to what is wanted. */
static void fill_powers(const made_type *t, uint32_t block_bytes, unsigned char *out, uint64_t n, double deviation,
                        measure_rng *rng) {
    const int power = 128 + (int)lrint(log2(deviation / t->unit));
    put_random(out, n * block_bytes, rng);
    for (uint64_t i = 0; i < n; i++) out[i * block_bytes + t->d_at] = (unsigned char)power;
}

/* Sign and mantissa at random, one exponent: magnitudes from a to 2 a have a root mean square of 1.53 a. */
static void fill_f16(const made_type *t, uint32_t block_bytes, unsigned char *out, uint64_t n, double deviation,
                     measure_rng *rng) {
    const uint16_t exponent = half_of(deviation / t->unit) & 0x7C00;
    for (uint64_t i = 0; i < n; i++)
        put_u16(out + block_bytes * i, (uint16_t)((measure_rng_next(rng) & 0x83FF) | exponent));
}

static void fill_bf16(const made_type *t, uint32_t block_bytes, unsigned char *out, uint64_t n, double deviation,
                      measure_rng *rng) {
    const float a = (float)(deviation / t->unit);
    uint32_t bits;
    memcpy(&bits, &a, sizeof bits);
    for (uint64_t i = 0; i < n; i++)
        put_u16(out + block_bytes * i, (uint16_t)((measure_rng_next(rng) & 0x807F) | (bits >> 16 & 0x7F80)));
}

static const made_type types[N_WEIGHT_TYPES] = {
    /*                 d   unit  m_of_d */
    [WEIGHT_Q8_0] = {0, 73.9, 0, fill_blocks},     [WEIGHT_Q4_0] = {0, 4.61, 0, fill_blocks},
    [WEIGHT_Q4_1] = {0, 4.61, -7.5, fill_blocks},  [WEIGHT_Q5_0] = {0, 9.23, 0, fill_blocks},
    [WEIGHT_Q5_1] = {0, 9.23, -15.5, fill_blocks}, [WEIGHT_Q2_K] = {80, 13.9, 1.5, fill_blocks},
    [WEIGHT_Q3_K] = {108, 43.4, 0, fill_blocks},   [WEIGHT_Q4_K] = {0, 258, 7.5, fill_blocks},
    [WEIGHT_Q5_K] = {0, 527, 15.5, fill_blocks},   [WEIGHT_Q6_K] = {208, 1367, 0, fill_blocks},
    [WEIGHT_IQ4_NL] = {0, 67.6, 0, fill_blocks},   [WEIGHT_IQ4_XS] = {0, 1250, 0, fill_blocks},
    [WEIGHT_MXFP4] = {0, 5.85, 0, fill_powers},    [WEIGHT_F16] = {0, 1.53, 0, fill_f16},
    [WEIGHT_BF16] = {0, 1.53, 0, fill_bf16},
};

void made_fill(const weight_type *type, unsigned char *out, uint64_t n, double deviation, measure_rng *rng) {
    const made_type *t = &types[type - weight_types];
    t->fill(t, type->block_bytes, out, n, deviation, rng);
}
