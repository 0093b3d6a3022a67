/* SPDX-License-Identifier: MIT
 *
 * linear_rig.h: random matrices of every stored type, and what their weights are: decoded weight by weight from the
 * formulas of the formats, a second time and apart from src/linear/format.c.
 */
#ifndef CHECK_LINEAR_RIG_H
#define CHECK_LINEAR_RIG_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "core/half.h"
#include "linear/linear.h"

static inline void store_u16(uint8_t *p, uint16_t v) { memcpy(p, &v, sizeof v); }

static inline double float_at(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return (double)pleat__f16_to_f32(h);
}

/* Nibble i of 32 in 16 bytes: first the low ones. */
static inline int nibble(const uint8_t *p, uint32_t i) { return i < 16 ? p[i] & 15 : p[i - 16] >> 4; }
static inline int bit(const uint8_t *p, uint32_t i) { return p[i / 8] >> i % 8 & 1; }
static inline int two_bits(const uint8_t *p, uint32_t i) { return p[i / 4] >> 2 * (i % 4) & 3; }
static inline int nibble_of_pair(const uint8_t *p, uint32_t i) { return p[i / 2] >> 4 * (i % 2) & 15; }

/* A weight is factor * code + min, in f32. */
typedef struct weight_parts {
    double factor, code, min;
} weight_parts;

/* Sub-scale and minimum of group g of 8, 6 bits each, in 12 bytes. */
static inline weight_parts parts_6_6(const uint8_t *b, uint32_t g, int code) {
    const uint8_t *s = b + 4;
    const int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) + (s[g - 4] >> 6) * 16;
    const int min = g < 4 ? s[g + 4] & 63 : (s[g + 4] >> 4) + (s[g] >> 6) * 16;
    return (weight_parts){float_at(b) * scale, code, -float_at(b + 2) * min};
}

static inline int q3_scale(const uint8_t *s, uint32_t g) {
    const int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4;
    return low + 16 * (s[8 + g % 4] >> 2 * (g / 4) & 3) - 32;
}

/* Of 256 weights, i is in group g of 32. */
static inline weight_parts parts_of_k(pleat__weight_type type, const uint8_t *b, uint32_t i) {
    static const int8_t iq4[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    const uint32_t g = i / 32, j = i % 32, half = i / 128;
    switch (type) {
        case PLEAT__W_Q2_K:
            return (weight_parts){float_at(b + 80) * (b[i / 16] & 15), b[16 + 32 * half + j] >> 2 * (g % 4) & 3,
                                  -float_at(b + 82) * (b[i / 16] >> 4)};
        case PLEAT__W_Q3_K:
            return (weight_parts){float_at(b + 108) * q3_scale(b + 96, i / 16),
                                  (b[32 + 32 * half + j] >> 2 * (g % 4) & 3) - (b[j] >> g & 1 ? 0 : 4), 0};
        case PLEAT__W_Q4_K:
            return parts_6_6(b, g, g % 2 ? b[16 + 32 * (g / 2) + j] >> 4 : b[16 + 32 * (g / 2) + j] & 15);
        case PLEAT__W_Q5_K: {
            const uint8_t low = b[48 + 32 * (g / 2) + j];
            return parts_6_6(b, g, (g % 2 ? low >> 4 : low & 15) + 16 * (b[16 + j] >> g & 1));
        }
        case PLEAT__W_Q6_K: {
            const uint8_t low = b[64 * half + i % 64], high = b[128 + 32 * half + j];
            const int code = (i % 128 < 64 ? low & 15 : low >> 4) + 16 * (high >> 2 * (g % 4) & 3);
            return (weight_parts){float_at(b + 208) * (int8_t)b[192 + i / 16], code - 32, 0};
        }
        default: {
            const int scale = nibble_of_pair(b + 4, g) + 16 * two_bits(b + 2, g) - 32;
            return (weight_parts){float_at(b) * scale, iq4[nibble(b + 8 + 16 * g, j)], 0};
        }
    }
}

/* Weight i of a block of a quantised type. */
static inline weight_parts parts_of(pleat__weight_type type, const uint8_t *b, uint32_t i) {
    static const int8_t iq4[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    static const double fp4[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6};
    switch (type) {
        case PLEAT__W_Q8_0: return (weight_parts){float_at(b), (int8_t)b[2 + i], 0};
        case PLEAT__W_Q4_0: return (weight_parts){float_at(b), nibble(b + 2, i) - 8, 0};
        case PLEAT__W_Q4_1: return (weight_parts){float_at(b), nibble(b + 4, i), float_at(b + 2)};
        case PLEAT__W_Q5_0: return (weight_parts){float_at(b), nibble(b + 6, i) + 16 * bit(b + 2, i) - 16, 0};
        case PLEAT__W_Q5_1: return (weight_parts){float_at(b), nibble(b + 8, i) + 16 * bit(b + 4, i), float_at(b + 2)};
        case PLEAT__W_IQ4_NL: return (weight_parts){float_at(b), iq4[nibble(b + 2, i)], 0};
        case PLEAT__W_MXFP4: return (weight_parts){ldexp(1, b[0] - 127), fp4[nibble(b + 1, i)], 0};
        default: return parts_of_k(type, b, i);
    }
}

/* ---- matrices ---------------------------------------------------------------------------------------------------- */

typedef struct random_matrix {
    pleat__matrix m;      /* as a file has it */
    pleat__matrix usable; /* as kernels read it: packed if quantised */
    check_buf bytes, packed;
    double *values; /* [rows][cols] */
    double *sizes;  /* [rows][cols] |value|; of types with minima |factor * code| + |min| */
} random_matrix;

static inline float random_scale(void) { return check_below(16) ? check_normal() * 0.01f : 6.0e-6f; }

/* A block of random codes and sub-scales at p, and what its weights are. */
static inline void fill_block(pleat__weight_type type, uint8_t *p, double *values, double *sizes) {
    const pleat__weight_format *f = &pleat__weight_formats[type];
    for (uint32_t j = 0; j < f->bytes; j++) p[j] = (uint8_t)check_u64();
    if (f->is_power)
        *p = (uint8_t)(check_below(16) ? check_between(100, 130) : check_below(4));
    else
        store_u16(p + f->d_at, pleat__f32_to_f16(random_scale()));
    if (f->has_min) store_u16(p + f->d_at + 2, pleat__f32_to_f16(random_scale()));
    for (uint32_t i = 0; i < f->block; i++) {
        const weight_parts w = parts_of(type, p, i);
        values[i] = (double)(float)(w.factor * w.code + w.min);
        sizes[i] = fabs(w.factor * w.code) + fabs(w.min);
    }
}

static inline void fill_float(pleat__weight_type type, uint8_t *p, double *value, double *size) {
    const float x = check_below(16) ? check_normal() : 1e-7f * check_normal();
    const uint16_t half = pleat__f32_to_f16(x);
    const uint16_t brain = (uint16_t)(pleat__f32_bits(x) >> 16);
    if (type == PLEAT__W_F32) {
        memcpy(p, &x, 4);
        *value = (double)x;
    } else if (type == PLEAT__W_F16) {
        store_u16(p, half);
        *value = (double)pleat__f16_to_f32(half);
    } else {
        store_u16(p, brain);
        *value = (double)pleat__bf16_to_f32(brain);
    }
    *size = fabs(*value);
}

static inline random_matrix matrix_new(pleat__weight_type type, uint32_t rows, uint32_t cols) {
    const pleat__weight_format *f = &pleat__weight_formats[type];
    random_matrix r = {.m = {.type = type, .rows = rows, .cols = cols}};
    r.m.row_bytes = (uint64_t)cols / f->block * f->bytes;
    r.bytes = check_buf_new(r.m.row_bytes * rows, 2);
    r.values = malloc((size_t)rows * cols * sizeof(double));
    r.sizes = malloc((size_t)rows * cols * sizeof(double));
    uint8_t *p = r.bytes.p;
    for (size_t at = 0; at < (size_t)rows * cols; at += f->block, p += f->bytes) {
        if (pleat__is_quantised(type))
            fill_block(type, p, r.values + at, r.sizes + at);
        else
            fill_float(type, p, r.values + at, r.sizes + at);
    }
    r.usable = r.m;
    r.usable.data = r.m.data = r.bytes.p;
    if (!pleat__is_quantised(type)) return r;
    const uint32_t n_strips = pleat__div_up_u32(rows, PLEAT__STRIP_ROWS);
    const uint32_t cut = (uint32_t)check_below(n_strips + 1);
    r.packed = check_buf_new(pleat__linear_packed_bytes(&r.m), 2);
    pleat__linear_pack(&r.m, cut, n_strips, r.packed.p);
    pleat__linear_pack(&r.m, 0, cut, r.packed.p);
    r.usable.data = r.packed.p;
    return r;
}

static inline void matrix_free(random_matrix *r) {
    check_buf_free(&r->bytes);
    if (r->packed.p) {
        CHECK(check_buf_is_intact(&r->packed));
        check_buf_free(&r->packed);
    }
    free(r->values);
    free(r->sizes);
}

#endif
