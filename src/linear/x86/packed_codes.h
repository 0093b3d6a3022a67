/* SPDX-License-Identifier: MIT
 *
 * packed_codes.h: codes and scales of a strip in registers of VECTOR_BYTES, which an including file defines: 32 or 64
 * bytes are 8 or 16 rows.
 */
#ifndef PLEAT_LINEAR_X86_PACKED_CODES_H
#define PLEAT_LINEAR_X86_PACKED_CODES_H

#include <immintrin.h>

#ifndef VECTOR_BYTES
#define VECTOR_BYTES 64
#endif

#include "linear/linear.h"
#include "linear/packed_lines.h"

#define SLICE PLEAT__WEIGHT_BLOCK
#define ROWS PLEAT__STRIP_ROWS

/* How far before the bytes in use lines are asked for; for one vector, which reads weights from memory. */
#define AHEAD_BYTES 8192
#define LINE_BYTES PLEAT__LINE_BYTES

#if VECTOR_BYTES == 64
typedef __m512 floats_v;
typedef __m512i ints_v;
#define V(name) _mm512_##name
#define TO_INTS(bytes) _mm512_cvtepu8_epi32(bytes)
#define TO_SIGNED_INTS(bytes) _mm512_cvtepi8_epi32(bytes)
#define HALVES_TO_FLOATS(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#define BYTES_OF_ROWS(p) _mm_loadu_si128((const __m128i *)(const void *)(p))
#define REPEATED(bytes) _mm512_broadcast_i32x4(bytes)
#else
typedef __m256 floats_v;
typedef __m256i ints_v;
#define V(name) _mm256_##name
#define TO_INTS(bytes) _mm256_cvtepu8_epi32(bytes)
#define TO_SIGNED_INTS(bytes) _mm256_cvtepi8_epi32(bytes)
#define HALVES_TO_FLOATS(p) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define BYTES_OF_ROWS(p) _mm_loadl_epi64((const __m128i *)(const void *)(p))
#define REPEATED(bytes) _mm256_broadcastsi128_si256(bytes)
#endif

/* Rows of a register. */
#define LANES (VECTOR_BYTES / 4)

/* Ask for the bytes of a slice at p. */
INLINE void ask_for(pleat__weight_type type, const uint8_t *p) {
    UNROLL
    for (uint32_t line = 0; line < pleat__slice_bytes(type); line += LINE_BYTES)
        _mm_prefetch((const char *)p + line, _MM_HINT_T0);
}

INLINE bytes_v line_at(const uint8_t *p) {
    bytes_v v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* What a table's codes stand for, as unsigned bytes. */
INLINE __m128i table_of(pleat__weight_type type) {
    const pleat__weight_format *f = &pleat__weight_formats[type];
    const __m128i values = _mm_loadu_si128((const __m128i *)(const void *)f->table);
    return _mm_add_epi8(values, _mm_set1_epi8((char)(1u << f->zero_shift)));
}

/* Columns 4k..4k+3 of a slice whose codes start at p, register `part` of the rows: unsigned bytes. */
INLINE ints_v codes4(pleat__weight_type type, const uint8_t *p, uint32_t k, uint32_t part) {
    const bytes_v low = line_at(p + (size_t)LINE_BYTES * pleat__low_line(type, k) + (size_t)VECTOR_BYTES * part);
    bytes_v high = low;
    if (pleat__weight_formats[type].high_bits)
        high = line_at(p + (size_t)LINE_BYTES * pleat__high_line(type, k) + (size_t)VECTOR_BYTES * part);
    const ints_v codes = (ints_v)codes_from(type, k, low, high);
    return pleat__has_table(type) ? V(shuffle_epi8)(REPEATED(table_of(type)), codes) : codes;
}

/* Scales and minima of the rows of register `part`. */
typedef struct row_scales {
    floats_v scale, min;
} row_scales;

/* What a power's exponent stands for: 2^(e-127)/2, where that of 0 has no exponent's bits. */
INLINE floats_v powers_at(const uint8_t *p) {
    const ints_v exponents = TO_INTS(BYTES_OF_ROWS(p));
    const ints_v bits = V(max_epi32)(V(slli_epi32)(exponents, 23), V(set1_epi32)(0x00400000));
    return V(mul_ps)((floats_v)bits, V(set1_ps)(0.5f));
}

/* 8 or 16 of 16 bytes, from 8 * part on. */
INLINE __m128i rows_of(pleat__u8x16 bytes, uint32_t part) {
    return part ? _mm_srli_si128((__m128i)bytes, 8) : (__m128i)bytes;
}

/* Scale i of a block whose record is there. */
INLINE row_scales scales_at(pleat__weight_type type, const uint8_t *record, uint32_t i, uint32_t part) {
    const pleat__weight_format *f = &pleat__weight_formats[type];
    row_scales out = {.min = V(setzero_ps)()};
    if (f->is_power) {
        out.scale = powers_at(record + (size_t)LANES * part);
        return out;
    }
    out.scale = HALVES_TO_FLOATS(record + (size_t)2 * LANES * part);
    if (f->has_min) out.min = HALVES_TO_FLOATS(record + (size_t)2 * (ROWS + LANES * part));
    if (f->sub == PLEAT__SUB_NONE) return out;
    const pleat__sub_scales sub = pleat__sub_scales_at(type, record + pleat__sub_at(type), i);
    out.scale = V(mul_ps)(out.scale, V(cvtepi32_ps)(TO_SIGNED_INTS(rows_of(sub.scale, part))));
    if (f->has_min) out.min = V(mul_ps)(out.min, V(cvtepi32_ps)(TO_INTS(rows_of(sub.min, part))));
    return out;
}

/* What codes that stand too high added to the sums of a slice or a half, whose step row's codes add to `sum`. */
INLINE ints_v without_zero(pleat__weight_type type, ints_v sums, int32_t sum) {
    if (pleat__weight_formats[type].has_min) return sums;
    return V(sub_epi32)(sums, V(slli_epi32)(V(set1_epi32)(sum), pleat__weight_formats[type].zero_shift));
}

/* Store the sums of a block's codes of one limb, and both times its scale, which is there. */
INLINE void put_all_sums(uint32_t sum0, uint32_t sum1, pleat__coded *out) {
    out->sum[0] = (int32_t)sum0;
    out->sum[1] = (int32_t)sum1;
    out->total = (int32_t)(sum0 + sum1);
    for (int h = 0; h < 2; h++) out->codes.one_limb.scaled_sum[h] = out->scale * (float)out->sum[h];
    out->codes.one_limb.scaled_total = out->scale * (float)out->total;
}

/* Store the sums of a block's codes, or what kernels for many step rows take: times its scale, which is there. */
INLINE void put_sums(uint32_t sum0, uint32_t sum1, const bool is_many, pleat__coded *out) {
    const int32_t half0 = (int32_t)sum0, half1 = (int32_t)sum1, total = (int32_t)(sum0 + sum1);
    if (is_many) {
        out->scaled_sum[0] = out->scale * (float)half0;
        out->scaled_sum[1] = out->scale * (float)half1;
        out->scaled_total = out->scale * (float)total;
    } else {
        out->sum[0] = half0;
        out->sum[1] = half1;
        out->total = total;
    }
}

/* Of a block that put_all_sums() or put_sums() for many has filled: the sum of all codes, or of half h, times the
 * scale. */
INLINE float scaled_sum_of(const uint32_t n_limbs, const bool has_halves, const uint32_t h, const pleat__coded *x) {
    if (n_limbs == 1) return has_halves ? x->codes.one_limb.scaled_sum[h] : x->codes.one_limb.scaled_total;
    return has_halves ? x->scaled_sum[h] : x->scaled_total;
}

/* acc plus the products of a slice or a half, whose step row's codes add to `sum`. */
INLINE floats_v add_scaled(pleat__weight_type type, ints_v sums, const row_scales *w, float x_scale, int32_t sum,
                           floats_v acc) {
    const floats_v xs = V(set1_ps)(x_scale);
    acc = V(fmadd_ps)(V(cvtepi32_ps)(without_zero(type, sums, sum)), V(mul_ps)(w->scale, xs), acc);
    if (!pleat__weight_formats[type].has_min) return acc;
    return V(fmadd_ps)(w->min, V(mul_ps)(xs, V(cvtepi32_ps)(V(set1_epi32)(sum))), acc);
}

#endif
