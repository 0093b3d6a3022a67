/* SPDX-License-Identifier: MIT
 *
 * format.h: the types that weights are stored in: a row for each, and the blocks of the quantised ones.
 *
 * A row of a matrix is a run of blocks of 32 or 256 weights.  Everything else is done in slices of 32 weights; a slice
 * has one scale, or one for each half:
 *
 *     weight = scale * value + min        scale, min: f32, exact
 *     value  = code - 2^zero_shift        or, with a table, table[code];  only the code where the type has minima
 *     scale  = d * sub-scale              d: f16, or a power of two; the sub-scale is 1 in blocks of 32
 *     min    = m, or -m * sub-minimum
 *
 *     type       block   bytes   code bits   scales     sub-scales                     minima
 *     Q8_0          32      34   8           1          -                              -
 *     Q4_0 Q5_0     32   18 22   4, 5        1          -                              -
 *     Q4_1 Q5_1     32   20 24   4, 5        1          -                              m
 *     IQ4_NL        32      18   4, table    1          -                              -
 *     MXFP4         32      17   4, table    1          -       (d is 2^(byte - 128))  -
 *     Q2_K         256      84   2           halves     0..15                          0..15
 *     Q3_K         256     110   3           halves     -32..31                        -
 *     Q4_K Q5_K    256 144 176   4, 5        1          0..63                          0..63
 *     Q6_K         256     210   6           halves     -128..127                      -
 *     IQ4_XS       256     136   4, table    1          -32..31                        -
 *
 * A new type of this kind is an entry of the enum, a row of the table, its codes and sub-scales in format.c, and its
 * name in linear_variants.h.
 */
#ifndef PLEAT_LINEAR_FORMAT_H
#define PLEAT_LINEAR_FORMAT_H

#include "linear/matrix.h"

/* Weights of a slice, which is also what activations are coded in. */
#define PLEAT__WEIGHT_BLOCK 32u

/* How a strip (packed.h) stores the sub-scales of a block. */
typedef enum pleat__sub_form {
    PLEAT__SUB_NONE,  /* there are none */
    PLEAT__SUB_BYTE,  /* s8 */
    PLEAT__SUB_4_4,   /* 4 bits, and 4 of the sub-minimum */
    PLEAT__SUB_6_6,   /* 6 bits, and 6 of the sub-minimum */
    PLEAT__SUB_SIGNED /* 6 bits, minus 32 */
} pleat__sub_form;

typedef struct pleat__weight_format {
    const char *name;
    uint8_t ggml;       /* the type's number in files */
    uint16_t block;     /* weights of a block; 1 for floats, whose other fields but bytes are 0 */
    uint16_t bytes;     /* of a block */
    uint8_t d_at;       /* where in a block d is, which m follows */
    uint8_t low_bits;   /* of a code: 8, 4 or 2 in the planes of low bits ... */
    uint8_t high_bits;  /* ... and 0, 1 or 2 in those of high bits */
    uint8_t zero_shift; /* with a table: of what makes its values unsigned bytes */
    bool has_min;
    bool has_halves; /* a scale for each 16 weights */
    bool is_power;   /* d is one byte, an exponent */
    pleat__sub_form sub;
    int8_t table[16]; /* values of codes; all 0: none */
} pleat__weight_format;

#define PLEAT__IQ4_VALUES \
    { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 }
#define PLEAT__FP4_VALUES \
    { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 } /* twice E2M1's */

static const pleat__weight_format pleat__weight_formats[PLEAT__N_WEIGHT_TYPES] = {
    [PLEAT__W_F32] = {.name = "F32", .ggml = 0, .block = 1, .bytes = 4},
    [PLEAT__W_F16] = {.name = "F16", .ggml = 1, .block = 1, .bytes = 2},
    [PLEAT__W_BF16] = {.name = "BF16", .ggml = 30, .block = 1, .bytes = 2},
    /*                   name     no block bytes d_at bits zero has_min halves power  sub                table */
    [PLEAT__W_Q8_0] = {"Q8_0", 8, 32, 34, 0, 8, 0, 7, false, false, false, PLEAT__SUB_NONE, {0}},
    [PLEAT__W_Q4_0] = {"Q4_0", 2, 32, 18, 0, 4, 0, 3, false, false, false, PLEAT__SUB_NONE, {0}},
    [PLEAT__W_Q4_1] = {"Q4_1", 3, 32, 20, 0, 4, 0, 0, true, false, false, PLEAT__SUB_NONE, {0}},
    [PLEAT__W_Q5_0] = {"Q5_0", 6, 32, 22, 0, 4, 1, 4, false, false, false, PLEAT__SUB_NONE, {0}},
    [PLEAT__W_Q5_1] = {"Q5_1", 7, 32, 24, 0, 4, 1, 0, true, false, false, PLEAT__SUB_NONE, {0}},
    [PLEAT__W_Q2_K] = {"Q2_K", 10, 256, 84, 80, 2, 0, 0, true, true, false, PLEAT__SUB_4_4, {0}},
    [PLEAT__W_Q3_K] = {"Q3_K", 11, 256, 110, 108, 2, 1, 2, false, true, false, PLEAT__SUB_SIGNED, {0}},
    [PLEAT__W_Q4_K] = {"Q4_K", 12, 256, 144, 0, 4, 0, 0, true, false, false, PLEAT__SUB_6_6, {0}},
    [PLEAT__W_Q5_K] = {"Q5_K", 13, 256, 176, 0, 4, 1, 0, true, false, false, PLEAT__SUB_6_6, {0}},
    [PLEAT__W_Q6_K] = {"Q6_K", 14, 256, 210, 208, 4, 2, 5, false, true, false, PLEAT__SUB_BYTE, {0}},
    [PLEAT__W_IQ4_NL] = {"IQ4_NL", 20, 32, 18, 0, 4, 0, 7, false, false, false, PLEAT__SUB_NONE, PLEAT__IQ4_VALUES},
    [PLEAT__W_IQ4_XS] = {"IQ4_XS", 23, 256, 136, 0, 4, 0, 7, false, false, false, PLEAT__SUB_SIGNED, PLEAT__IQ4_VALUES},
    [PLEAT__W_MXFP4] = {"MXFP4", 39, 32, 17, 0, 4, 0, 4, false, false, true, PLEAT__SUB_NONE, PLEAT__FP4_VALUES},
};

/* Their names, for messages. */
#define PLEAT__WEIGHT_TYPE_NAMES \
    "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4"

static inline bool pleat__is_quantised(pleat__weight_type type) { return type >= PLEAT__W_Q8_0; }

/* Do codes stand for the values of a table?  Both have another value than 0 at 1. */
static inline bool pleat__has_table(pleat__weight_type type) { return pleat__weight_formats[type].table[1] != 0; }

/* The type with this number in files; false if Pleat has no products for it. */
bool pleat__weight_type_of(uint32_t ggml, pleat__weight_type *out);

/* Bytes of a row of `cols` weights, a multiple of the type's block. */
uint64_t pleat__weight_row_bytes(pleat__weight_type type, uint32_t cols);

/* 2^(exponent - 128), as f32: MXFP4's scale; 255 stands for no number, and no file should have it. */
float pleat__power_scale(uint8_t exponent);

/* A slice of a block: what is at `slice` of its block/32. */
typedef struct pleat__weight_slice {
    uint8_t codes[PLEAT__WEIGHT_BLOCK];
    int8_t scale[2], min[2]; /* sub-scales and sub-minima of the halves; 1 where there are none */
} pleat__weight_slice;

void pleat__weight_slice_read(pleat__weight_type type, const uint8_t *block, uint32_t slice, pleat__weight_slice *out);

/* The slice's weights as f32. */
void pleat__weight_slice_load(pleat__weight_type type, const uint8_t *block, uint32_t slice, float *out);

#endif
