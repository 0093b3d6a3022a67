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

#include "made.h"

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

static void fill_blocks(const made_type *t, unsigned char *out, uint64_t n, double deviation, measure_rng *rng) {
    const uint16_t d = half_of(deviation / t->unit), m = t->m_of_d != 0 ? half_of(deviation / t->unit * t->m_of_d) : 0;
    put_random(out, n * t->block_bytes, rng);
    for (uint64_t i = 0; i < n; i++, out += t->block_bytes) {
        put_u16(out + t->d_at, d);
        if (t->m_of_d != 0) put_u16(out + t->d_at + 2, m);
    }
}

/* The scale is a power of two: of 2^(byte - 128), which codes multiply, the next to what is wanted. */
static void fill_powers(const made_type *t, unsigned char *out, uint64_t n, double deviation, measure_rng *rng) {
    const int power = 128 + (int)lrint(log2(deviation / t->unit));
    put_random(out, n * t->block_bytes, rng);
    for (uint64_t i = 0; i < n; i++) out[i * t->block_bytes + t->d_at] = (unsigned char)power;
}

/* Sign and mantissa at random, one exponent: magnitudes from a to 2 a have a root mean square of 1.53 a. */
static void fill_f16(const made_type *t, unsigned char *out, uint64_t n, double deviation, measure_rng *rng) {
    const uint16_t exponent = half_of(deviation / t->unit) & 0x7C00;
    for (uint64_t i = 0; i < n; i++) put_u16(out + 2 * i, (uint16_t)((measure_rng_next(rng) & 0x83FF) | exponent));
}

static void fill_bf16(const made_type *t, unsigned char *out, uint64_t n, double deviation, measure_rng *rng) {
    const float a = (float)(deviation / t->unit);
    uint32_t bits;
    memcpy(&bits, &a, sizeof bits);
    for (uint64_t i = 0; i < n; i++)
        put_u16(out + 2 * i, (uint16_t)((measure_rng_next(rng) & 0x807F) | (bits >> 16 & 0x7F80)));
}

static const made_type types[] = {
    /*        number block bytes  d   unit  m_of_d */
    {"q8_0", 8, 32, 34, 0, 73.9, 0, fill_blocks},      {"q4_0", 2, 32, 18, 0, 4.61, 0, fill_blocks},
    {"q4_1", 3, 32, 20, 0, 4.61, -7.5, fill_blocks},   {"q5_0", 6, 32, 22, 0, 9.23, 0, fill_blocks},
    {"q5_1", 7, 32, 24, 0, 9.23, -15.5, fill_blocks},  {"q2_k", 10, 256, 84, 80, 13.9, 1.5, fill_blocks},
    {"q3_k", 11, 256, 110, 108, 43.4, 0, fill_blocks}, {"q4_k", 12, 256, 144, 0, 258, 7.5, fill_blocks},
    {"q5_k", 13, 256, 176, 0, 527, 15.5, fill_blocks}, {"q6_k", 14, 256, 210, 208, 1367, 0, fill_blocks},
    {"iq4_nl", 20, 32, 18, 0, 67.6, 0, fill_blocks},   {"iq4_xs", 23, 256, 136, 0, 1250, 0, fill_blocks},
    {"mxfp4", 39, 32, 17, 0, 5.85, 0, fill_powers},    {"f16", 1, 1, 2, 0, 1.53, 0, fill_f16},
    {"bf16", 30, 1, 2, 0, 1.53, 0, fill_bf16},
};

const char *const made_type_names[] = {"q8_0", "q4_0", "q4_1",   "q5_0",   "q5_1",  "q2_k", "q3_k", "q4_k",
                                       "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4", "f16",  "bf16", NULL};
_Static_assert(sizeof made_type_names / sizeof made_type_names[0] == sizeof types / sizeof types[0] + 1,
               "a name for each type");

const made_type *made_type_at(uint32_t idx) { return &types[idx]; }
