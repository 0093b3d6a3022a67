/* SPDX-License-Identifier: MIT
 *
 * packed.h: where things are in a packed matrix: strips of 16 rows, each of 16 rows' bytes.
 *
 *     of blocks of 32     [cols/32] codes of a slice                             then  [cols/32] records
 *     of blocks of 256    [cols/256] of { [8] codes of a slice, a record }
 *
 * A slice's codes are lines of [16 rows][4 columns] bytes, a plane of low bits, then one of high bits.  k counts its
 * eight groups of 4 columns.  In a plane of
 *
 *     8 bits    line k         the code
 *     4 bits    line k/2       low nibbles even k
 *     2 bits    line k/4       bits 2*(k%4)
 *     1 bit     line 0         bit k
 *
 * A record has what a block has beside codes, for 16 rows at a time: d [16] f16, or [16] bytes where it is a power; m
 * [16] f16, negated where the type takes sub-minima off; then sub-scales.  i counts the block's scales, n of them:
 *
 *     BYTE      [n][16]       s8
 *     4_4       [n][16]       the scale low, the minimum high
 *     6_6       [n][16]       lower four bits as in 4_4;  [n/2][16] upper two: bits 4*(i%2), the minimum's 2 above
 *     SIGNED    [n/2][16]     lower four bits, plus 32: nibbles i%2;  [n/4][16] upper two: bits 2*(i%4)
 */
#ifndef PLEAT_LINEAR_PACKED_H
#define PLEAT_LINEAR_PACKED_H

#include <string.h>

#include "core/compiler.h"
#include "linear/format.h"

/* Rows of a strip; the last strip is filled up with rows of zeros. */
#define PLEAT__STRIP_ROWS 16u

/* Bytes of a line: 4 columns of a strip. */
#define PLEAT__LINE_BYTES 64u

/* Slices of a block. */
INLINE uint32_t pleat__slices_of(pleat__weight_type type) {
    return pleat__weight_formats[type].block / PLEAT__WEIGHT_BLOCK;
}

/* Lines of a slice's low bits, and bytes of all its codes. */
INLINE uint32_t pleat__low_lines(pleat__weight_type type) { return pleat__weight_formats[type].low_bits; }

INLINE uint32_t pleat__codes_bytes(pleat__weight_type type) {
    const pleat__weight_format *f = &pleat__weight_formats[type];
    return PLEAT__LINE_BYTES * ((uint32_t)f->low_bits + f->high_bits);
}

/* Bytes of a strip for each slice, on average. */
INLINE uint32_t pleat__slice_bytes(pleat__weight_type type) {
    return PLEAT__STRIP_ROWS * pleat__weight_formats[type].bytes / pleat__slices_of(type);
}

INLINE uint32_t pleat__record_bytes(pleat__weight_type type) {
    return PLEAT__STRIP_ROWS * pleat__weight_formats[type].bytes - pleat__slices_of(type) * pleat__codes_bytes(type);
}

/* Slice b's codes in a strip of n_slices. */
INLINE size_t pleat__codes_at(pleat__weight_type type, uint32_t b) {
    const size_t n = pleat__slices_of(type), block_bytes = PLEAT__STRIP_ROWS * pleat__weight_formats[type].bytes;
    if (n == 1) return (size_t)b * pleat__codes_bytes(type);
    return b / n * block_bytes + b % n * pleat__codes_bytes(type);
}

/* The record of slice b's block. */
INLINE size_t pleat__record_at(pleat__weight_type type, uint32_t n_slices, uint32_t b) {
    const size_t n = pleat__slices_of(type), block_bytes = PLEAT__STRIP_ROWS * pleat__weight_formats[type].bytes;
    const size_t codes_bytes = pleat__codes_bytes(type);
    if (n == 1) return n_slices * codes_bytes + (size_t)b * pleat__record_bytes(type);
    return b / n * block_bytes + n * codes_bytes;
}

/* Where a record's sub-scales begin. */
INLINE uint32_t pleat__sub_at(pleat__weight_type type) {
    const pleat__weight_format *f = &pleat__weight_formats[type];
    return PLEAT__STRIP_ROWS * (f->is_power ? 1 : f->has_min ? 4 : 2);
}

/* ---- lines as vectors -------------------------------------------------------------------------------------------- */

/* Lines of a slice in which the code of group k has its bits. */
INLINE uint32_t pleat__low_line(pleat__weight_type type, uint32_t k) {
    return k * pleat__weight_formats[type].low_bits / 8;
}

INLINE uint32_t pleat__high_line(pleat__weight_type type, uint32_t k) {
    return pleat__low_lines(type) + k * pleat__weight_formats[type].high_bits / 8;
}

/* Sub-scale and sub-minimum of 16 rows. */
typedef uint8_t pleat__u8x16 __attribute__((vector_size(16)));
typedef uint16_t pleat__u16x8 __attribute__((vector_size(16)));

typedef struct pleat__sub_scales {
    pleat__u8x16 scale; /* s8 */
    pleat__u8x16 min;   /* 0..63 */
} pleat__sub_scales;

INLINE pleat__u8x16 pleat__u8x16_at(const uint8_t *p) {
    pleat__u8x16 v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Bits from `from` on of each byte, under a mask. */
INLINE pleat__u8x16 pleat__u8x16_bits(pleat__u8x16 v, uint32_t from, uint8_t mask) {
    return (pleat__u8x16)((pleat__u16x8)v >> (uint16_t)from) & mask;
}

/* Scale i of a block whose sub-scales are at p; the type has some. */
INLINE pleat__sub_scales pleat__sub_scales_at(pleat__weight_type type, const uint8_t *p, uint32_t i) {
    const uint32_t n = pleat__slices_of(type) * (pleat__weight_formats[type].has_halves ? 2 : 1);
    const uint8_t *const upper = p + PLEAT__STRIP_ROWS * n;
    pleat__u8x16 low, high;
    switch (pleat__weight_formats[type].sub) {
        case PLEAT__SUB_4_4:
            low = pleat__u8x16_at(p + (size_t)16 * i);
            return (pleat__sub_scales){low & 15, pleat__u8x16_bits(low, 4, 15)};
        case PLEAT__SUB_6_6:
            low = pleat__u8x16_at(p + (size_t)16 * i);
            high = pleat__u8x16_bits(pleat__u8x16_at(upper + (size_t)16 * (i / 2)), 4 * (i % 2), 15);
            return (pleat__sub_scales){(low & 15) | (high & 3) << 4,
                                       pleat__u8x16_bits(low, 4, 15) | (pleat__u8x16)((pleat__u16x8)(high & 12) << 2)};
        case PLEAT__SUB_SIGNED:
            low = pleat__u8x16_bits(pleat__u8x16_at(p + (size_t)16 * (i / 2)), 4 * (i % 2), 15);
            high = pleat__u8x16_bits(pleat__u8x16_at(upper - PLEAT__STRIP_ROWS * n / 2 + (size_t)16 * (i / 4)),
                                     2 * (i % 4), 3);
            return (pleat__sub_scales){(low | high << 4) - 32, low};
        default: return (pleat__sub_scales){pleat__u8x16_at(p + (size_t)16 * i), (pleat__u8x16){0}};
    }
}

/* ---- row by row -------------------------------------------------------------------------------------------------- */

/* A slice of a row: weight j is scale[j/16] * values[j] + min[j/16]. */
typedef struct pleat__unpacked {
    int16_t values[PLEAT__WEIGHT_BLOCK]; /* -128..127 */
    float scale[2], min[2];
} pleat__unpacked;

/* Slice b of row r of a strip of n_slices. */
void pleat__linear_unpack_slice(pleat__weight_type type, const uint8_t *strip, uint32_t n_slices, uint32_t b,
                                uint32_t r, pleat__unpacked *out);

#endif
