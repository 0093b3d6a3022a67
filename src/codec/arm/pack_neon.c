/* SPDX-License-Identifier: MIT
 *
 * pack_neon.c: a pack at a time in 16-bit elements: a lookup brings each code the two bytes that it lies in, and a shift
 * moves it down.
 */
#include <arm_neon.h>

#include "codec/internal.h"
#include "core/compiler.h"

/* How sixteen numbers of one width are taken apart: by the first byte of each element and the next, and the bits below
 * the number there, negative as a shift to the right wants them. */
typedef struct width {
    uint8_t from[32];
    int16_t shift[16];
} width;

#define SIXTEEN(x, w)                                                                                             \
    x(w, 0), x(w, 1), x(w, 2), x(w, 3), x(w, 4), x(w, 5), x(w, 6), x(w, 7), x(w, 8), x(w, 9), x(w, 10), x(w, 11), \
        x(w, 12), x(w, 13), x(w, 14), x(w, 15)
#define FROM(w, i) (i) * (w) / 8, (i) * (w) / 8 + 1
#define SHIFT(w, i) -((i) * (w) % 8)
#define WIDTH(w)                                  \
    {                                             \
        {SIXTEEN(FROM, w)}, { SIXTEEN(SHIFT, w) } \
    }
static const width by_width[9] = {WIDTH(0), WIDTH(1), WIDTH(2), WIDTH(3), WIDTH(4),
                                  WIDTH(5), WIDTH(6), WIDTH(7), WIDTH(8)};

/* Sixteen numbers of n_bits at `at`.  Reads 16 bytes. */
INLINE uint8x16_t numbers_at(uint32_t n_bits, const uint8_t *at) {
    const width *w = &by_width[n_bits];
    const uint8x16_t bytes = vld1q_u8(at);
    const uint16x8_t low = vreinterpretq_u16_u8(vqtbl1q_u8(bytes, vld1q_u8(w->from)));
    const uint16x8_t high = vreinterpretq_u16_u8(vqtbl1q_u8(bytes, vld1q_u8(w->from + 16)));
    const uint8x16_t x = vuzp1q_u8(vreinterpretq_u8_u16(vshlq_u16(low, vld1q_s16(w->shift))),
                                   vreinterpretq_u8_u16(vshlq_u16(high, vld1q_s16(w->shift + 8))));
    return vandq_u8(x, vdupq_n_u8((uint8_t)((1u << n_bits) - 1)));
}

/* Codes of four packs, the first at *at, which is moved behind them. */
INLINE void four_packs(const uint8_t *widths, const uint8_t *mins, uint8x16_t top, const uint8_t **at, uint8x16_t *x) {
    UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        x[i] = vminq_u8(vqaddq_u8(numbers_at(widths[i], *at), vdupq_n_u8(mins[i])), top);
        *at += 2u * widths[i];
    }
}

/* Four packs are a vector: words of a place's four codes. */
static void decode_keys(const void *constants, const pleat__pack_slice *slice, uint32_t n_packs, uint8_t *out) {
    const uint8_t *widths = slice->widths, *mins = slice->mins, *at = slice->fields;
    const uint8_t top = *(const uint8_t *)constants;
    for (uint32_t p = 0; p < n_packs; p += 4, out += 64) {
        uint8x16_t x[4];
        four_packs(widths + p, mins + p, vdupq_n_u8(top), &at, x);
        vst4q_u8(out, ((uint8x16x4_t){{x[0], x[1], x[2], x[3]}}));
    }
}

/* Sixteen packs are four vectors; four of them are a quarter of each: words, transposed. */
static void decode_values(const void *constants, const pleat__pack_slice *slice, uint32_t n_packs, uint8_t *out) {
    const uint8_t *widths = slice->widths, *mins = slice->mins, *at = slice->fields;
    const uint8_t top = *(const uint8_t *)constants;
    for (uint32_t p = 0; p < n_packs; p += 4) {
        uint8_t *to = out + (size_t)p / 16 * 256 + p % 16 * 4;
        uint8x16_t x[4];
        four_packs(widths + p, mins + p, vdupq_n_u8(top), &at, x);
        const uint32x4_t a = vreinterpretq_u32_u8(x[0]), b = vreinterpretq_u32_u8(x[1]);
        const uint32x4_t c = vreinterpretq_u32_u8(x[2]), d = vreinterpretq_u32_u8(x[3]);
        const uint32x4_t ac = vzip1q_u32(a, c), bd = vzip1q_u32(b, d), ac2 = vzip2q_u32(a, c), bd2 = vzip2q_u32(b, d);
        vst1q_u8(to, vreinterpretq_u8_u32(vzip1q_u32(ac, bd)));
        vst1q_u8(to + 64, vreinterpretq_u8_u32(vzip2q_u32(ac, bd)));
        vst1q_u8(to + 128, vreinterpretq_u8_u32(vzip1q_u32(ac2, bd2)));
        vst1q_u8(to + 192, vreinterpretq_u8_u32(vzip2q_u32(ac2, bd2)));
    }
}

static void get_numbers(const uint8_t *at, uint32_t n, uint32_t n_bits, uint8_t *out) {
    for (uint32_t i = 0; i < n; i += 16, at += 2 * n_bits) vst1q_u8(out + i, numbers_at(n_bits, at));
}

void pleat__pack_decode_neon(pleat__section *s, uint32_t n_vectors, uint8_t *out) {
    static const pleat__pack_ops ops = {get_numbers, decode_keys, decode_values};
    const uint8_t constants = (uint8_t)(s->n_levels - 1); /* the largest code */
    pleat__pack_decode_by(&ops, &constants, s, n_vectors, out);
}
