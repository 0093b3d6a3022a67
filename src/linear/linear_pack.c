/* SPDX-License-Identifier: MIT
 *
 * linear_pack.c: quantised matrices from the file's blocks (format.h) to strips (packed.h), and from strips to f32.
 */
#include <string.h>

#include "core/half.h"
#include "linear/linear.h"
#include "linear/packed.h"

#define ROWS PLEAT__STRIP_ROWS
#define SLICE PLEAT__WEIGHT_BLOCK
#define LINE PLEAT__LINE_BYTES

uint64_t pleat__linear_packed_bytes(const pleat__matrix *w) {
    if (!pleat__is_quantised(w->type)) return 0;
    return (uint64_t)pleat__div_up_u32(w->rows, ROWS) * ROWS * w->row_bytes;
}

/* ---- packing ----------------------------------------------------------------------------------------------------- */

/* `bits` bits of a row's codes, from bit `from` on, as a plane whose lines start at p; 4 columns at once. */
INLINE void pack_bits_of(const uint8_t *codes, uint32_t from, uint32_t bits, uint8_t *p) {
    const uint32_t mask = (uint32_t)((1u << bits) - 1) * 0x01010101u, n = 8 / bits; /* groups of a line */
    for (uint32_t k = 0; k < SLICE / 4; k += n, p += LINE) {
        uint32_t line = 0;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t four;
            memcpy(&four, codes + (size_t)4 * (k + i), sizeof four);
            line |= (four >> from & mask) << bits * i;
        }
        memcpy(p, &line, sizeof line);
    }
}

/* pack_bits_of() with constants. */
static void pack_plane(const uint8_t *codes, uint32_t from, uint32_t bits, uint8_t *p) {
    switch (bits) {
        case 8: pack_bits_of(codes, 0, 8, p); break;
        case 4: pack_bits_of(codes, 0, 4, p); break;
        case 2: pack_bits_of(codes, from, 2, p); break;
        default: pack_bits_of(codes, from, 1, p); break;
    }
}

/* Bits of row r beside those of others: [16] bytes at p. */
static void pack_bits(uint8_t *p, uint32_t r, uint32_t to, int bits) { p[r] |= (uint8_t)(bits << to); }

/* Row r's scale i of a block, whose sub-scales are at p; the record was all zeros. */
static void pack_sub(pleat__sub_form form, uint32_t n, uint32_t i, uint32_t r, int scale, int min, uint8_t *p) {
    switch (form) {
        case PLEAT__SUB_BYTE: p[ROWS * i + r] = (uint8_t)scale; break;
        case PLEAT__SUB_4_4: p[ROWS * i + r] = (uint8_t)(scale | min << 4); break;
        case PLEAT__SUB_6_6:
            p[ROWS * i + r] = (uint8_t)((scale & 15) | (min & 15) << 4);
            pack_bits(p + (size_t)ROWS * (n + i / 2), r, 4 * (i % 2), scale >> 4 | min >> 4 << 2);
            break;
        case PLEAT__SUB_SIGNED:
            scale += 32;
            pack_bits(p + (size_t)ROWS * (i / 2), r, 4 * (i % 2), scale & 15);
            pack_bits(p + (size_t)ROWS * (n / 2 + i / 4), r, 2 * (i % 4), scale >> 4);
            break;
        default: break;
    }
}

/* d and m of row r; m is what is added. */
static void pack_floats(const pleat__weight_format *f, const uint8_t *block, uint32_t r, uint8_t *record) {
    if (f->is_power) {
        record[r] = *block;
        return;
    }
    memcpy(record + 2 * (size_t)r, block + f->d_at, 2);
    if (!f->has_min) return;
    uint8_t *m = record + 2 * (size_t)(ROWS + r);
    memcpy(m, block + f->d_at + 2, 2);
    if (f->sub != PLEAT__SUB_NONE) m[1] ^= 0x80;
}

/* Row r of a block, whose first slice's codes and record are at these places. */
static void pack_block(pleat__weight_type type, const uint8_t *block, uint32_t r, uint8_t *codes, uint8_t *record) {
    const pleat__weight_format *f = &pleat__weight_formats[type];
    const uint32_t n_slices = pleat__slices_of(type), n_halves = f->has_halves ? 2 : 1;
    uint8_t *sub = record + pleat__sub_at(type);
    pack_floats(f, block, r, record);
    for (uint32_t s = 0; s < n_slices; s++, codes += pleat__codes_bytes(type)) {
        pleat__weight_slice slice;
        pleat__weight_slice_read(type, block, s, &slice);
        pack_plane(slice.codes, 0, f->low_bits, codes + 4 * (size_t)r);
        if (f->high_bits)
            pack_plane(slice.codes, f->low_bits, f->high_bits,
                       codes + (size_t)LINE * pleat__low_lines(type) + 4 * (size_t)r);
        for (uint32_t h = 0; h < n_halves; h++)
            pack_sub(f->sub, n_slices * n_halves, n_halves * s + h, r, slice.scale[h], slice.min[h], sub);
    }
}

/* 16 rows, of which the first n are there; `rows` is the first one's start. */
static void pack_strip(const pleat__matrix *w, const uint8_t *rows, uint32_t n, uint8_t *out) {
    const uint32_t n_slices = w->cols / SLICE, in_block = pleat__slices_of(w->type);
    if (n < ROWS || pleat__weight_formats[w->type].sub != PLEAT__SUB_NONE) memset(out, 0, ROWS * w->row_bytes);
    for (uint32_t b = 0; b < n_slices; b += in_block) {
        const uint8_t *block = rows + (size_t)(b / in_block) * pleat__weight_formats[w->type].bytes;
        for (uint32_t r = 0; r < n; r++)
            pack_block(w->type, block + r * w->row_bytes, r, out + pleat__codes_at(w->type, b),
                       out + pleat__record_at(w->type, n_slices, b));
    }
}

void pleat__linear_pack(const pleat__matrix *w, uint32_t strip_from, uint32_t strip_to, uint8_t *packed) {
    for (uint32_t strip = strip_from; strip < strip_to; strip++) {
        const size_t at = (size_t)strip * ROWS * w->row_bytes;
        pack_strip(w, w->data + at, pleat__min_u32(ROWS, w->rows - strip * ROWS), packed + at);
    }
}

/* ---- unpacking --------------------------------------------------------------------------------------------------- */

/* The inverse of pack_bits_of(). */
INLINE void unpack_bits_of(const uint8_t *p, uint32_t to, uint32_t bits, uint8_t *codes) {
    const uint32_t mask = (uint32_t)((1u << bits) - 1) * 0x01010101u, n = 8 / bits;
    for (uint32_t k = 0; k < SLICE / 4; k += n, p += LINE) {
        uint32_t line;
        memcpy(&line, p, sizeof line);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t four;
            memcpy(&four, codes + (size_t)4 * (k + i), sizeof four);
            four |= (line >> bits * i & mask) << to;
            memcpy(codes + (size_t)4 * (k + i), &four, sizeof four);
        }
    }
}

static void unpack_plane(const uint8_t *p, uint32_t to, uint32_t bits, uint8_t *codes) {
    switch (bits) {
        case 8: unpack_bits_of(p, 0, 8, codes); break;
        case 4: unpack_bits_of(p, 0, 4, codes); break;
        case 2: unpack_bits_of(p, to, 2, codes); break;
        default: unpack_bits_of(p, to, 1, codes); break;
    }
}

void pleat__linear_unpack_slice(pleat__weight_type type, const uint8_t *strip, uint32_t n_slices, uint32_t b,
                                uint32_t r, pleat__unpacked *out) {
    const pleat__weight_format *f = &pleat__weight_formats[type];
    const uint8_t *codes = strip + pleat__codes_at(type, b) + 4 * (size_t)r;
    const uint8_t *record = strip + pleat__record_at(type, n_slices, b);
    const float d = f->is_power ? pleat__power_scale(record[r]) : pleat__f16_at(record + 2 * (size_t)r);
    const float m = f->has_min ? pleat__f16_at(record + 2 * (size_t)(ROWS + r)) : 0;
    uint8_t bytes[SLICE] = {0};
    unpack_plane(codes, 0, f->low_bits, bytes);
    if (f->high_bits) unpack_plane(codes + (size_t)LINE * pleat__low_lines(type), f->low_bits, f->high_bits, bytes);
    const int zero = f->has_min ? 0 : 1 << f->zero_shift;
    for (uint32_t j = 0; j < SLICE; j++)
        out->values[j] = (int16_t)(pleat__has_table(type) ? f->table[bytes[j]] : bytes[j] - zero);
    for (uint32_t h = 0; h < 2; h++) {
        out->scale[h] = d;
        out->min[h] = m;
        if (f->sub == PLEAT__SUB_NONE) continue;
        const uint32_t s = b % pleat__slices_of(type);
        const pleat__sub_scales sub =
            pleat__sub_scales_at(type, record + pleat__sub_at(type), f->has_halves ? 2 * s + h : s);
        out->scale[h] = d * (float)(int8_t)sub.scale[r];
        out->min[h] = m * (float)sub.min[r];
    }
}

void pleat__linear_unpack(const pleat__matrix *w, uint32_t row_from, uint32_t row_to, float *out) {
    const uint32_t n_slices = w->cols / SLICE;
    for (uint32_t row = row_from; row < row_to; row++) {
        const uint32_t r = row % ROWS;
        const uint8_t *strip = w->data + (row - r) * w->row_bytes;
        for (uint32_t b = 0; b < n_slices; b++) {
            pleat__unpacked u;
            pleat__linear_unpack_slice(w->type, strip, n_slices, b, r, &u);
            for (uint32_t j = 0; j < SLICE; j++)
                *out++ = u.scale[j / (SLICE / 2)] * (float)u.values[j] + u.min[j / (SLICE / 2)];
        }
    }
}
