/* SPDX-License-Identifier: MIT
 *
 * decode_integer_avx2.h: keys and values of 2, 4 and 8 bits with 256-bit registers, for the files compiled with AVX2
 * and the one with AVX-VNNI: only dot_pairs() differs.
 *
 * Codes are widened to 16 bits, two of the four bytes of a 32-bit element at a time, and multiplied in pairs: bytes 0
 * and 2 by an AND, bytes 1 and 3 by a shift.  So queries and weights are 16-bit numbers, and each four of them stand in
 * the order 0, 2, 1, 3.  AVX-VNNI could as well multiply bytes by two limbs, which are as many products; but with 16
 * registers only half as many tiles would share what is broadcast, and the limbs' sums must be put together.
 */
#ifndef PLEAT_ATTN_X86_DECODE_INTEGER_AVX2_H
#define PLEAT_ATTN_X86_DECODE_INTEGER_AVX2_H

#include "attn/x86/decode_avx2.h"

/* sum[i] += codes[i] * pair for i = 0, 1, two products to an element.  Not intrinsics: gcc 12 copies the accumulator of
 * the one, and makes all products of the others first, which spills them.  Both products before both sums: 4 % faster on
 * an EPYC of family 25 than each sum behind its product.  {vex}: the form that needs no AVX-512. */
INLINE void dot_pairs(__m256i *sum, const __m256i *codes, __m256i pair) {
#ifdef __AVXVNNI__
    __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum[0]) : "x"(codes[0]), "x"(pair));
    __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum[1]) : "x"(codes[1]), "x"(pair));
#else
    __m256i a, b;
    __asm__("vpmaddwd %6, %4, %2\n\tvpmaddwd %6, %5, %3\n\tvpaddd %2, %0, %0\n\tvpaddd %3, %1, %1"
            : "+x"(sum[0]), "+x"(sum[1]), "=&x"(a), "=&x"(b)
            : "x"(codes[0]), "x"(codes[1]), "x"(pair));
#endif
}

/* Plane `plane` of the codes in 16-bit words: 8/bits planes of low bytes, then as many of high bytes. */
INLINE __m256i code_plane(__m256i words, uint32_t bits, uint32_t plane) {
    const uint32_t planes = 16 / bits;
    const __m256i low = plane == 0 ? words : _mm256_srli_epi16(words, (int)(plane * bits));
    return plane == planes - 1 ? low : _mm256_and_si256(low, _mm256_set1_epi16((short)((1 << bits) - 1)));
}

/* Where the pair that meets a plane stands among its 4*8/bits numbers in the order 0, 2, 1, 3. */
INLINE uint32_t pair_of_plane(uint32_t bits, uint32_t plane) {
    return 4 * (plane % (8 / bits)) + 2 * (plane / (8 / bits));
}

/* What was read at p is read again when it is next needed, and addresses are made from p alone: numbers and addresses
 * that gcc keeps push accumulators out of registers. */
#define FORGET(p) __asm__("" : "+r"(p))

/* step(0) to step(16/bits - 1), each with a constant: gcc 12 does not unroll a loop of eight. */
#define EACH_PLANE(bits, step) \
    step(0);                   \
    step(1);                   \
    if ((bits) < 8) {          \
        step(2);               \
        step(3);               \
    }                          \
    if ((bits) < 4) {          \
        step(4);               \
        step(5);               \
        step(6);               \
        step(7);               \
    }

/* One plane of 64 bytes of each tile, times the queries q of each head. */
INLINE void keys_plane(uint32_t bits, uint32_t heads, uint32_t tiles, uint32_t plane, const uint8_t **k,
                       const int16_t **q, __m256i (*sum)[2][2]) {
    __m256i code[2][2];
    for (uint32_t t = 0; t < tiles; t++) {
        const __m256i *at = (const __m256i *)(const void *)k[t];
        code[t][0] = code_plane(_mm256_load_si256(at), bits, plane);
        code[t][1] = code_plane(_mm256_load_si256(at + 1), bits, plane);
        FORGET(k[t]);
    }
    for (uint32_t h = 0; h < heads; h++) {
        const __m256i x = broadcast_pair(q[h] + pair_of_plane(bits, plane));
        for (uint32_t t = 0; t < tiles; t++) dot_pairs(sum[h][t], code[t], x);
    }
}

/* Logits of `tiles` tiles from t0.  Elements are tokens; a tile is two registers wide.  The sums fit:
 * pleat__attn_query_init() sees to it. */
INLINE void keys_integer(uint32_t bits, uint32_t heads, uint32_t tiles, const pleat__attn_query *query, uint32_t head,
                         const pleat__tile_group *g, uint32_t t0, float (*out)[TILES][PLEAT__TILE]) {
    const size_t d = query->head_dim, line = 4 * (8 / bits); /* dimensions of 64 bytes */
    const int16_t *q[HEADS];
    const uint8_t *k[2] = {g->k[t0], g->k[t0 + tiles - 1]}, *ahead[2] = {g->k_ahead[t0], g->k_ahead[t0 + tiles - 1]};
    __m256i sum[HEADS][2][2];
    for (uint32_t h = 0; h < heads; h++) {
        q[h] = query->both + (head + h) * d;
        for (uint32_t t = 0; t < tiles; t++) sum[h][t][0] = sum[h][t][1] = _mm256_setzero_si256();
    }
    for (size_t i = 0; i < d; i += line) {
        for (uint32_t t = 0; t < tiles; t++, ahead[t - 1] += 64) _mm_prefetch((const char *)ahead[t], _MM_HINT_T1);
#define STEP(plane) keys_plane(bits, heads, tiles, plane, k, q, sum)
        EACH_PLANE(bits, STEP)
#undef STEP
        for (uint32_t h = 0; h < heads; h++) {
            q[h] += line;
            FORGET(q[h]);
        }
        for (uint32_t t = 0; t < tiles; t++) k[t] += 64;
    }
    for (uint32_t i = 0; i < 2 * tiles; i++) {
        const uint16_t *meta = g->k_meta[t0 + i / 2] + 8 * (i % 2);
        const __m256 scale = load_f16(meta), min = load_f16(meta + PLEAT__TILE);
        for (uint32_t h = 0; h < heads; h++) {
            const __m256 dot = _mm256_cvtepi32_ps(sum[h][i / 2][i % 2]);
            const __m256 x = _mm256_mul_ps(dot, _mm256_broadcast_ss(query->step + head + h));
            const __m256 y = _mm256_mul_ps(min, _mm256_broadcast_ss(query->sum + head + h));
            _mm256_store_ps(out[h][t0 + i / 2] + 8 * (i % 2), _mm256_fmadd_ps(x, scale, y));
        }
    }
}

/* One plane of 16*blocks dimensions at v, times the weights of each head; raw is what 8-bit planes share. */
INLINE void values_plane(uint32_t bits, uint32_t heads, uint32_t blocks, uint32_t plane, const __m256i **v,
                         const int16_t *weight, __m256i *raw, __m256i (*sum)[4]) {
    const __m256i top_bit = _mm256_set1_epi8((char)0x80);
    __m256i code[4];
    for (uint32_t b = 0; b < 2 * blocks; b++) {
        if (bits < 8 || plane == 0) raw[b] = _mm256_load_si256(*v + b);
        if (bits == 8 && plane == 0) raw[b] = _mm256_xor_si256(raw[b], top_bit); /* stored signed */
        code[b] = code_plane(raw[b], bits, plane);
    }
    FORGET(*v);
    for (uint32_t h = 0; h < heads; h++) {
        const __m256i x = broadcast_pair(weight + h * TILES * PLEAT__TILE + pair_of_plane(bits, plane));
        for (uint32_t b = 0; b < 2 * blocks; b += 2) dot_pairs(sum[h] + b, code + b, x);
    }
}

/* Sums of 16*blocks dimensions from `dim` over the whole group.  Elements are dimensions.  The sums fit:
 * 64 * 32639 * 255 < 2^31. */
INLINE void values_integer(uint32_t bits, uint32_t heads, uint32_t blocks, const pleat__weights_avx2 *w,
                           const pleat__tile_group *g, uint32_t d, uint32_t dim, float *o) {
    const uint32_t planes = 8 / bits;
    __m256i sum[HEADS][4];
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t b = 0; b < 2 * blocks; b++)
            sum[h][b] = _mm256_set1_epi32(pleat__minus_middle(bits, w->sum[h])); /* codes around their middle */
    }
    const size_t ahead = (size_t)dim * 4 / planes * 4;
    for (uint32_t r = 0; r < 4 / planes; r++) {
        for (uint32_t t = 0; t < g->n_tiles; t++) {
            const __m256i *v = (const __m256i *)(const void *)(g->v[t] + ((size_t)r * d + dim) * 4);
            const int16_t *weight = w->u.fixed[0][t] + 4 * r * planes;
            FORGET(weight);
            __m256i raw[4];
            for (uint32_t b = 0; b < blocks; b++)
                _mm_prefetch((const char *)g->v_ahead[t] + ahead + 64 * (r * blocks + b), _MM_HINT_T1);
#define STEP(plane) values_plane(bits, heads, blocks, plane, &v, weight, raw, sum)
            EACH_PLANE(bits, STEP)
#undef STEP
        }
    }
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t b = 0; b < 2 * blocks; b++)
            fold(o + (size_t)h * d + dim + 8 * b, _mm256_cvtepi32_ps(sum[h][b]), w->step[h], w->rescale[h]);
    }
}

#endif
