/* SPDX-License-Identifier: MIT
 *
 * format.c: the blocks of quantised types, byte by byte.  j counts the 32 weights of a slice, s the slices of a block:
 *
 *     Q4_0 Q4_1 IQ4_NL MXFP4   scales, then 16 bytes: low nibbles j < 16, high ones the rest; IQ4_XS 16 for each slice
 *     Q5_0 Q5_1                scales, u32 of fifth bits, then as Q4_0
 *     Q4_K Q5_K                d, m, 12 bytes of sub-scales, Q5_K: 32 bytes, bit s of byte j; then 32 bytes for two
 *                              slices, low nibbles the even one
 *     Q6_K                     low bits: 64 bytes for four slices, nibbles s/2 % 2; high: 32 bytes, bits 2*(s%4)
 *     Q2_K                     16 bytes of sub-scales; 32 bytes for four slices, bits 2*(s%4)
 *     Q3_K                     32 bytes of third bits, bit s of byte j; then as Q2_K
 */
#include "linear/format.h"

#include <string.h>

#include "core/half.h"

#define SLICE PLEAT__WEIGHT_BLOCK

bool pleat__weight_type_of(uint32_t ggml, pleat__weight_type *out) {
    for (uint32_t type = 0; type < PLEAT__N_WEIGHT_TYPES; type++) {
        if (pleat__weight_formats[type].ggml != ggml) continue;
        *out = (pleat__weight_type)type;
        return true;
    }
    return false;
}

uint64_t pleat__weight_row_bytes(pleat__weight_type type, uint32_t cols) {
    const pleat__weight_format *f = &pleat__weight_formats[type];
    return (uint64_t)(cols / f->block) * f->bytes;
}

/* Below 2^-126 the bits of a power of two are no exponent. */
float pleat__power_scale(uint8_t exponent) {
    return pleat__bits_f32(exponent < 2 ? 0x00200000u << exponent : (uint32_t)(exponent - 1) << 23);
}

/* ---- codes ------------------------------------------------------------------------------------------------------- */

/* From 16 bytes: low nibbles, then high ones. */
static void read_nibbles(const uint8_t *p, uint8_t *codes) {
    for (uint32_t j = 0; j < SLICE / 2; j++) {
        codes[j] = p[j] & 15;
        codes[j + SLICE / 2] = p[j] >> 4;
    }
}

/* From 32 bytes: `bits` bits from bit `from` on. */
static void read_bits(const uint8_t *p, uint32_t from, uint32_t bits, uint8_t *codes) {
    const uint8_t mask = (uint8_t)((1u << bits) - 1);
    for (uint32_t j = 0; j < SLICE; j++) codes[j] = (uint8_t)(p[j] >> from & mask);
}

/* From 32 bytes: `bits` more bits for each code, to stand at `to`. */
static void add_bits(const uint8_t *p, uint32_t from, uint32_t bits, uint32_t to, uint8_t *codes) {
    const uint8_t mask = (uint8_t)((1u << bits) - 1);
    for (uint32_t j = 0; j < SLICE; j++) codes[j] |= (uint8_t)((p[j] >> from & mask) << to);
}

/* Bit j of the u32 at p becomes bit 4 of code j. */
static void add_fifth_bits(const uint8_t *p, uint8_t *codes) {
    for (uint32_t j = 0; j < SLICE; j++) codes[j] |= (uint8_t)((p[j / 8] >> j % 8 & 1) << 4);
}

static void read_codes(pleat__weight_type type, const uint8_t *b, uint32_t s, uint8_t *codes) {
    switch (type) {
        case PLEAT__W_Q8_0:
            for (uint32_t j = 0; j < SLICE; j++) codes[j] = b[2 + j] ^ 0x80;
            break;
        case PLEAT__W_Q4_0:
        case PLEAT__W_IQ4_NL: read_nibbles(b + 2, codes); break;
        case PLEAT__W_Q4_1: read_nibbles(b + 4, codes); break;
        case PLEAT__W_MXFP4: read_nibbles(b + 1, codes); break;
        case PLEAT__W_IQ4_XS: read_nibbles(b + 8 + (size_t)16 * s, codes); break;
        case PLEAT__W_Q5_0:
            read_nibbles(b + 6, codes);
            add_fifth_bits(b + 2, codes);
            break;
        case PLEAT__W_Q5_1:
            read_nibbles(b + 8, codes);
            add_fifth_bits(b + 4, codes);
            break;
        case PLEAT__W_Q2_K: read_bits(b + 16 + (size_t)32 * (s / 4), 2 * (s % 4), 2, codes); break;
        case PLEAT__W_Q3_K:
            read_bits(b + 32 + (size_t)32 * (s / 4), 2 * (s % 4), 2, codes);
            add_bits(b, s, 1, 2, codes);
            break;
        case PLEAT__W_Q4_K: read_bits(b + 16 + (size_t)32 * (s / 2), 4 * (s % 2), 4, codes); break;
        case PLEAT__W_Q5_K:
            read_bits(b + 48 + (size_t)32 * (s / 2), 4 * (s % 2), 4, codes);
            add_bits(b + 16, s, 1, 4, codes);
            break;
        case PLEAT__W_Q6_K:
            read_bits(b + (size_t)64 * (s / 4) + (size_t)32 * (s % 2), 4 * (s / 2 % 2), 4, codes);
            add_bits(b + 128 + (size_t)32 * (s / 4), 2 * (s % 4), 2, 4, codes);
            break;
        default: break;
    }
}

/* ---- sub-scales -------------------------------------------------------------------------------------------------- */

/* Of Q4_K and Q5_K, from 12 bytes: 6 bits each; slices 4..7 have their upper two where those of 0..3 leave room. */
static void read_sub_6_6(const uint8_t *p, uint32_t s, int8_t *scale, int8_t *min) {
    if (s < 4) {
        *scale = p[s] & 63;
        *min = p[s + 4] & 63;
        return;
    }
    *scale = (int8_t)((p[s + 4] & 15) | p[s - 4] >> 6 << 4);
    *min = (int8_t)(p[s + 4] >> 4 | p[s] >> 6 << 4);
}

/* Of Q3_K, i of 16 in 12 bytes: 8 of nibbles, 4 of upper pairs of bits. */
static int8_t read_sub_q3(const uint8_t *p, uint32_t i) {
    const int low = i < 8 ? p[i] & 15 : p[i - 8] >> 4;
    return (int8_t)((low | (p[8 + i % 4] >> 2 * (i / 4) & 3) << 4) - 32);
}

/* Of IQ4_XS: a u16 of upper pairs of bits, then nibbles. */
static int8_t read_sub_iq4(const uint8_t *p, uint32_t s) {
    const int low = p[2 + s / 2] >> 4 * (s % 2) & 15, high = p[s / 4] >> 2 * (s % 4) & 3;
    return (int8_t)((low | high << 4) - 32);
}

void pleat__weight_slice_read(pleat__weight_type type, const uint8_t *block, uint32_t slice, pleat__weight_slice *out) {
    read_codes(type, block, slice, out->codes);
    out->scale[0] = out->scale[1] = out->min[0] = out->min[1] = 1;
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t i = 2 * slice + h;
        switch (type) {
            case PLEAT__W_Q2_K:
                out->scale[h] = block[i] & 15;
                out->min[h] = block[i] >> 4;
                break;
            case PLEAT__W_Q3_K: out->scale[h] = read_sub_q3(block + 96, i); break;
            case PLEAT__W_Q4_K:
            case PLEAT__W_Q5_K: read_sub_6_6(block + 4, slice, &out->scale[h], &out->min[h]); break;
            case PLEAT__W_Q6_K: out->scale[h] = (int8_t)block[192 + i]; break;
            case PLEAT__W_IQ4_XS: out->scale[h] = read_sub_iq4(block + 2, slice); break;
            default: break;
        }
    }
}

void pleat__weight_slice_load(pleat__weight_type type, const uint8_t *block, uint32_t slice, float *out) {
    const pleat__weight_format *f = &pleat__weight_formats[type];
    const int zero = f->has_min ? 0 : 1 << f->zero_shift;
    const float d = f->is_power ? pleat__power_scale(*block) : pleat__f16_at(block + f->d_at);
    float m = f->has_min ? pleat__f16_at(block + f->d_at + 2) : 0;
    if (f->sub != PLEAT__SUB_NONE) m = -m;
    pleat__weight_slice s;
    pleat__weight_slice_read(type, block, slice, &s);
    for (uint32_t j = 0; j < SLICE; j++) {
        const uint32_t h = j / (SLICE / 2);
        const int value = pleat__has_table(type) ? f->table[s.codes[j]] : s.codes[j] - zero;
        out[j] = d * (float)s.scale[h] * (float)value;
        if (f->has_min) out[j] += m * (float)s.min[h];
    }
}
