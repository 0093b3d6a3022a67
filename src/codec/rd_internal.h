/* SPDX-License-Identifier: MIT
 *
 * rd_internal.h: what rd_write.c and rd_read.c share: the payload's fixed part, steps of values, escapes.
 */
#ifndef PLEAT_CODEC_RD_INTERNAL_H
#define PLEAT_CODEC_RD_INTERNAL_H

#include <string.h>

#include "codec/rd.h"
#include "core/half.h"

#define PLEAT__RD_HEADER_BYTES PLEAT__RD_FIXED_BYTES /* before the exponents */
#define PLEAT__RD_ESCAPE_BYTES 4u

/* Where numbers stand in the fixed part. */
enum {
    PLEAT__RD_AT_K_BYTES = 4,
    PLEAT__RD_AT_V_BYTES = 6,
    PLEAT__RD_AT_SHIFT = 8,
    PLEAT__RD_AT_OWN = 9,
    PLEAT__RD_AT_K_ESCAPES = 10,
    PLEAT__RD_AT_V_ESCAPES = 12,
    PLEAT__RD_AT_LEAST = 14,
    PLEAT__RD_AT_WIDTH = 15
};

/* Bytes of a block's exponents, `width` bits each.  They are 40 to 144, so that seven bits say any of them beside the
 * least. */
#define PLEAT__RD_MOST_WIDTH 7u
static inline uint32_t pleat__rd_exponents_bytes(uint32_t width) { return PLEAT__RD_TOKENS / 8 * width; }

/* Which matrices of a payload have classes of their own, before their streams: a byte for eight columns of keys, for
 * sixteen dimensions of values. */
#define PLEAT__RD_OWN_KEYS 1u
#define PLEAT__RD_OWN_VALUES 2u
#define PLEAT__RD_QUARTERS 12u /* of an octave of keys' steps, times 4 */
static inline uint32_t pleat__rd_k_class_bytes(uint32_t head_dim) { return head_dim / PLEAT__RD_K_COLUMNS; }
static inline uint32_t pleat__rd_v_class_bytes(uint32_t head_dim) { return head_dim / PLEAT__RD_V_DIMS; }

/* Choose the classes of a matrix, codes [64][d] that are within -127..127, in groups of n_dims of d: of_lane, or others
 * where these are worth it, and true. */
bool pleat__rd_choose_classes(const pleat__codebook *books, const int8_t *codes, uint32_t d, uint32_t n_dims,
                              const uint8_t *of_lane, uint8_t *classes);

/* ---- rd_lane.c, for rd_rate.c: how steps are chosen ---- */

/* Bits of round(x) for a normal x of deviation s. */
double pleat__rd_entropy_of(double s);

/* Is the mean of a channel worth taking away?  It is where that makes its code a twentieth of a bit shorter. */
bool pleat__rd_mean_pays(float mean_square, float spread);

/* What the energy of any channel of keys is taken to be more than it is. */
float pleat__rd_floor_energy(const pleat__rd_source *source, uint32_t head_dim);

/* A channel's step before it is rounded. */
float pleat__rd_key_step(float energy, float spread, float k);

/* Escapes of keys, and of values, at most.  Their entries fit into as many bytes as there are numbers. */
static inline uint32_t pleat__rd_most_escapes(uint32_t head_dim) { return PLEAT__RD_TOKENS * head_dim / 16; }

/* A stream and its escapes at most: eight bits a number, what lanes read ahead, and some of what scales take in pages. */
static inline size_t pleat__rd_matrix_bound(uint32_t head_dim) { return PLEAT__RD_TOKENS * (size_t)head_dim + 160; }

/* A block's level: its steps are 2^((level - SAME)/4) times the lane's, half of them at least.  2^26 is from 2^-14 to 2^12. */
#define PLEAT__RD_MOST_LEVEL (PLEAT__RD_SAME_LEVEL + 4 * 26u)

/* In a payload: whole octaves as a signed byte, quarters in bits 2 and 3 of the byte behind it. */
static inline uint32_t pleat__rd_level_of(const uint8_t *payload) {
    return (uint32_t)(uint8_t)(payload[PLEAT__RD_AT_SHIFT] + PLEAT__RD_SAME_LEVEL / 4) * 4 +
           (payload[PLEAT__RD_AT_OWN] >> 2 & 3u);
}

/* The step of least exponent is 2^-14: fifteen of it are a normal f16. */
#define PLEAT__RD_LEAST_EXPONENT 40

/* {1, 1.1875, 1.4375, 1.6875}[e % 4] * 2^(e/4 - 24) */
static inline float pleat__rd_step(uint8_t exponent) {
    static const uint32_t mantissas[4] = {0, 0x180000, 0x380000, 0x580000};
    return pleat__bits_f32((uint32_t)(exponent / 4 + 127 - 24) << 23 | mantissas[exponent % 4]);
}

static inline float pleat__rd_f16(const uint8_t *halves, uint32_t i) { return pleat__f16_at(halves + 2 * (size_t)i); }

/* A step of keys at a level, as f16: {16, 19, 23, 27}/16 of it to five significant bits, and octaves; within 2^-14 and 2^12,
 * so that fifteen of it are an f16 too. */
static inline uint16_t pleat__rd_half_at(uint16_t step, uint32_t level) {
    static const uint8_t sixteenths[4] = {16, 19, 23, 27};
    const uint32_t product = (16 + (step >> 6 & 15u)) * sixteenths[level % 4]; /* 256 to 837 sixteenths */
    const uint32_t carry = product >= 504, five = (product + (8u << carry)) >> (4 + carry);
    const int32_t octaves = (int32_t)(level / 4) - (int32_t)(PLEAT__RD_SAME_LEVEL / 4);
    const int32_t half = (int32_t)(step & 0x7C00u) + (octaves + (int32_t)carry) * 0x400 + ((int32_t)five - 16) * 64;
    return (uint16_t)(half < 0x0400 ? 0x0400 : half > 0x6C00 ? 0x6C00 : half);
}

static inline float pleat__rd_step_at(const uint8_t *steps, uint32_t i, uint32_t level) {
    uint16_t half;
    memcpy(&half, steps + 2 * (size_t)i, sizeof half);
    return pleat__f16_to_f32(pleat__rd_half_at(half, level));
}

#endif
