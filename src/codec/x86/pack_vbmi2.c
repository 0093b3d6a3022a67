/* SPDX-License-Identifier: MIT
 *
 * pack_vbmi2.c: four packs at a time, each in 128 bits of a register.
 *
 * Eight fields of a pack are w consecutive bytes: an expansion puts them into a 64-bit element, a multishift brings
 * each to its byte, and four packs are 64 codes.  Keys' four packs are a vector but for the order of its bytes; values'
 * sixteen are four vectors, 32-bit words transposed.
 */
#include <immintrin.h>

#include "codec/internal.h"
#include "core/compiler.h"

/* What decoding four packs takes besides their bytes. */
typedef struct tables {
    __m512i top;         /* the largest code */
    __m512i spread;      /* byte i: pack i / 16 of the four, as an index of bytes */
    __m512i byte_in_8;   /* 0..7, 0..7, ... */
    __m512i shifts_low;  /* element w: bits 0, w, 2w, .. 7w, as bytes, w = 0..7 */
    __m512i shifts_high; /* w = 8 */
} tables;

/* 0, w, 2w, ..., 7w as bytes. */
static uint64_t multiples(uint64_t w) { return w * 0x0706050403020100u; }

static tables make_tables(uint32_t n_levels) {
    tables t = {.top = _mm512_set1_epi8((char)(n_levels - 1)), .byte_in_8 = _mm512_set1_epi64(0x0706050403020100)};
    t.spread = _mm512_set_epi64(0x0303030303030303, 0x0303030303030303, 0x0202020202020202, 0x0202020202020202,
                                0x0101010101010101, 0x0101010101010101, 0, 0);
    uint64_t low[8];
    for (uint32_t w = 0; w < 8; w++) low[w] = multiples(w);
    t.shifts_low = _mm512_loadu_si512(low);
    t.shifts_high = _mm512_set1_epi64((long long)multiples(8));
    return t;
}

/* Byte p * 16 + i: code i of pack p of the four that begin at *at, which is moved behind them. */
INLINE __m512i four_packs(const tables *t, const uint8_t *widths, const uint8_t *mins, const uint8_t **at) {
    const __m512i w = _mm512_permutexvar_epi8(t->spread, _mm512_castsi128_si512(_mm_loadu_si32(widths)));
    const __m512i min = _mm512_permutexvar_epi8(t->spread, _mm512_castsi128_si512(_mm_loadu_si32(mins)));
    const __mmask64 taken = _mm512_cmplt_epu8_mask(t->byte_in_8, w);
    const __m512i bits = _mm512_maskz_expand_epi8(taken, _mm512_loadu_si512(*at));
    *at += _mm_popcnt_u64(taken);
    const __m512i index = _mm512_and_si512(w, _mm512_set1_epi64(0xF)); /* of a 64-bit element */
    const __m512i shifts = _mm512_permutex2var_epi64(t->shifts_low, index, t->shifts_high);
    const __m512i ones = _mm512_shuffle_epi8(_mm512_set4_epi32(0, 0xFF, 0x7F3F1F0F, 0x07030100), w); /* 2^w - 1 */
    const __m512i fields = _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, bits), ones);
    return _mm512_min_epu8(_mm512_adds_epu8(fields, min), t->top);
}

static void decode_keys(const void *constants, const pleat__pack_slice *slice, uint32_t n_packs, uint8_t *out) {
    const uint8_t *widths = slice->widths, *mins = slice->mins, *at = slice->fields;
    const tables *t = constants;
    uint8_t order[64]; /* byte 4 * place + pack of a vector, from byte 16 * pack + place */
    for (uint32_t i = 0; i < 64; i++) order[i] = (uint8_t)(i % 4 * 16 + i / 4);
    const __m512i to_vector = _mm512_loadu_si512(order);
    for (uint32_t p = 0; p < n_packs; p += 4, out += 64)
        _mm512_storeu_si512(out, _mm512_permutexvar_epi8(to_vector, four_packs(t, widths + p, mins + p, &at)));
}

static void decode_values(const void *constants, const pleat__pack_slice *slice, uint32_t n_packs, uint8_t *out) {
    const uint8_t *widths = slice->widths, *mins = slice->mins, *at = slice->fields;
    const tables *t = constants;
    /* Word 4 * dim + g of the sixteen packs goes to word dim of vector g: of each two registers, their words g. */
    const __m512i even = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(2));
    for (uint32_t p = 0; p < n_packs; p += 16, out += 256) {
        __m512i x[4];
        for (uint32_t i = 0; i < 4; i++) x[i] = four_packs(t, widths + p + 4 * i, mins + p + 4 * i, &at);
        const __m512i a = _mm512_permutex2var_epi32(x[0], even, x[1]), b = _mm512_permutex2var_epi32(x[2], even, x[3]);
        const __m512i c = _mm512_permutex2var_epi32(x[0], odd, x[1]), d = _mm512_permutex2var_epi32(x[2], odd, x[3]);
        _mm512_storeu_si512(out, _mm512_shuffle_i64x2(a, b, 0x44));
        _mm512_storeu_si512(out + 64, _mm512_shuffle_i64x2(a, b, 0xEE));
        _mm512_storeu_si512(out + 128, _mm512_shuffle_i64x2(c, d, 0x44));
        _mm512_storeu_si512(out + 192, _mm512_shuffle_i64x2(c, d, 0xEE));
    }
}

/* Sixty-four numbers at a time; of the last there may be fewer. */
static void get_numbers(const uint8_t *at, uint32_t n, uint32_t n_bits, uint8_t *out) {
    const __m512i shifts = _mm512_set1_epi64((long long)multiples(n_bits));
    const __m512i ones = _mm512_set1_epi8((char)((1u << n_bits) - 1));
    const __mmask64 taken = 0x0101010101010101u * ((1u << n_bits) - 1);
    for (uint32_t i = 0; i < n; i += 64, at += 8 * n_bits) {
        const __mmask64 wanted = n - i < 64 ? (1ull << (n - i)) - 1 : ~0ull;
        const __m512i bits = _mm512_maskz_expand_epi8(taken, _mm512_loadu_si512(at));
        const __m512i x = _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, bits), ones);
        _mm512_mask_storeu_epi8(out + i, wanted, x);
    }
}

void pleat__pack_decode_vbmi2(pleat__section *s, uint32_t n_vectors, uint8_t *out) {
    static const pleat__pack_ops ops = {get_numbers, decode_keys, decode_values};
    const tables constants = make_tables(s->n_levels);
    pleat__pack_decode_by(&ops, &constants, s, n_vectors, out);
}
