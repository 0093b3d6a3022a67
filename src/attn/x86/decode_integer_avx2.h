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

/* The levels of a rotated format plus 128, by code, for each 16 bytes. */
INLINE __m256i load_levels(uint32_t width) {
    const __m128i level = _mm_loadu_si128((const __m128i *)(const void *)pleat__levels[width - 10]);
    return _mm256_xor_si256(_mm256_broadcastsi128_si256(level), _mm256_set1_epi8((char)0x80));
}

/* Bit `bit` of each 16-bit word of `thirds`, where codes have their third. */
INLINE __m256i third_bit(__m256i thirds, uint32_t bit) {
    const __m256i at = bit < 2 ? _mm256_slli_epi16(thirds, (int)(2 - bit)) : _mm256_srli_epi16(thirds, (int)(bit - 2));
    return _mm256_and_si256(at, _mm256_set1_epi16(4));
}

/* Plane `plane` of the codes in 16-bit words: 8/bits planes of low bytes, then as many of high bytes.  thirds: the third
 * bits of the line of which the words are half `half`. */
INLINE __m256i code_plane(__m256i words, uint32_t width, uint32_t plane, const uint8_t *thirds, uint32_t half) {
    const uint32_t bits = pleat__plane_bits(width), planes = 16 / bits;
    __m256i code = plane == 0 ? words : _mm256_srli_epi16(words, (int)(plane * bits));
    if (plane < planes - 1) code = _mm256_and_si256(code, _mm256_set1_epi16((short)((1 << bits) - 1)));
    if (width == 13) {
        const __m256i both = _mm256_load_si256((const __m256i *)(const void *)thirds);
        code = _mm256_or_si256(code, third_bit(both, plane % 4 + 4 * half + 8 * (plane / 4)));
    }
    if (pleat__has_levels(width)) /* high bytes: an index with the top bit gives 0 */
        code = _mm256_shuffle_epi8(load_levels(width), _mm256_or_si256(code, _mm256_set1_epi16((short)0x8000)));
    return code;
}

/* Where the pair that meets a plane stands among its 4*8/bits numbers in the order 0, 2, 1, 3. */
INLINE uint32_t pair_of_plane(uint32_t width, uint32_t plane) {
    const uint32_t planes = 8 / pleat__plane_bits(width);
    return 4 * (plane % planes) + 2 * (plane / planes);
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

/* One plane of 64 bytes of each tile, whose third bits are at `thirds`, times the queries q of each head. */
INLINE void keys_plane(uint32_t width, uint32_t heads, uint32_t tiles, uint32_t plane, const uint8_t **k,
                       const uint8_t *const *thirds, const int16_t **q, __m256i (*sum)[2][2]) {
    __m256i code[2][2];
    for (uint32_t t = 0; t < tiles; t++) {
        const __m256i *at = (const __m256i *)(const void *)k[t];
        code[t][0] = code_plane(_mm256_load_si256(at), width, plane, thirds[t], 0);
        code[t][1] = code_plane(_mm256_load_si256(at + 1), width, plane, thirds[t], 1);
        FORGET(k[t]);
    }
    for (uint32_t h = 0; h < heads; h++) {
        const __m256i x = broadcast_pair(q[h] + pair_of_plane(width, plane));
        for (uint32_t t = 0; t < tiles; t++) dot_pairs(sum[h][t], code[t], x);
    }
}

/* Logits of `tiles` tiles from t0.  Elements are tokens; a tile is two registers wide.  The sums fit:
 * pleat__attn_query_init() sees to it. */
INLINE void keys_integer(uint32_t width, uint32_t heads, uint32_t tiles, const pleat__attn_query *query, uint32_t head,
                         const pleat__tile_group *g, uint32_t t0, float (*out)[TILES][PLEAT__TILE]) {
    const size_t d = query->head_dim, line = 4 * (8 / pleat__plane_bits(width)); /* dimensions of 64 bytes */
    const int16_t *q[HEADS];
    const uint8_t *k[2] = {g->k[t0], g->k[t0 + tiles - 1]}, *ahead[2] = {g->k_ahead[t0], g->k_ahead[t0 + tiles - 1]};
    const uint8_t *thirds[2] = {pleat__third_bits(k[0], query->head_dim, 0),
                                pleat__third_bits(k[1], query->head_dim, 0)};
    __m256i sum[HEADS][2][2];
    for (uint32_t h = 0; h < heads; h++) {
        q[h] = query->both + (head + h) * d;
        for (uint32_t t = 0; t < tiles; t++) sum[h][t][0] = sum[h][t][1] = _mm256_setzero_si256();
    }
    for (size_t i = 0; i < d; i += line) {
        for (uint32_t t = 0; t < tiles; t++, ahead[t - 1] += 64) _mm_prefetch((const char *)ahead[t], _MM_HINT_T1);
#define STEP(plane) keys_plane(width, heads, tiles, plane, k, thirds, q, sum)
        EACH_PLANE(pleat__plane_bits(width), STEP)
#undef STEP
        for (uint32_t h = 0; h < heads; h++) {
            q[h] += line;
            FORGET(q[h]);
        }
        for (uint32_t t = 0; t < tiles; t++) {
            k[t] += 64;
            thirds[t] += 32;
        }
    }
    for (uint32_t i = 0; i < 2 * tiles; i++) {
        const uint16_t *meta = g->k_meta[t0 + i / 2] + 8 * (i % 2);
        const __m256 scale = load_f16(meta);
        const __m256 min =
            pleat__has_levels(width) ? _mm256_mul_ps(scale, _mm256_set1_ps(-128)) : load_f16(meta + PLEAT__TILE);
        for (uint32_t h = 0; h < heads; h++) {
            const __m256 dot = _mm256_cvtepi32_ps(sum[h][i / 2][i % 2]);
            const __m256 x = _mm256_mul_ps(dot, _mm256_broadcast_ss(query->step + head + h));
            const __m256 y = _mm256_mul_ps(min, _mm256_broadcast_ss(query->sum + head + h));
            _mm256_store_ps(out[h][t0 + i / 2] + 8 * (i % 2), _mm256_fmadd_ps(x, scale, y));
        }
    }
}

/* One plane of 16*blocks dimensions at v, whose third bits are at `thirds`, times the weights of each head; raw is what
 * 8-bit planes share. */
INLINE void values_plane(uint32_t width, uint32_t heads, uint32_t blocks, uint32_t plane, const __m256i **v,
                         const uint8_t *thirds, const int16_t *weight, __m256i *raw, __m256i (*sum)[4]) {
    const __m256i top_bit = _mm256_set1_epi8((char)0x80);
    __m256i code[4];
    for (uint32_t b = 0; b < 2 * blocks; b++) {
        if (width != 8 || plane == 0) raw[b] = _mm256_load_si256(*v + b);
        if (width == 8 && plane == 0) raw[b] = _mm256_xor_si256(raw[b], top_bit); /* stored signed */
        code[b] = code_plane(raw[b], width, plane, thirds + 32 * (b / 2), b % 2);
    }
    FORGET(*v);
    for (uint32_t h = 0; h < heads; h++) {
        const __m256i x = broadcast_pair(weight + h * TILES * PLEAT__TILE + pair_of_plane(width, plane));
        for (uint32_t b = 0; b < 2 * blocks; b += 2) dot_pairs(sum[h] + b, code + b, x);
    }
}

/* Sums of 16*blocks dimensions from `dim` over the whole group.  Elements are dimensions.  The sums fit:
 * 64 * 32639 * 255 < 2^31. */
INLINE void values_integer(uint32_t width, uint32_t heads, uint32_t blocks, const pleat__weights_avx2 *w,
                           const pleat__tile_group *g, uint32_t d, uint32_t dim, float *o) {
    const uint32_t planes = 8 / pleat__plane_bits(width), bits = pleat__has_levels(width) ? 8 : width; /* of a code */
    __m256i sum[HEADS][4];
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t b = 0; b < 2 * blocks; b++)
            sum[h][b] = _mm256_set1_epi32(pleat__minus_middle(bits, w->sum[h])); /* codes around their middle */
    }
    const size_t ahead = (size_t)dim * 4 / planes * 4;
    for (uint32_t r = 0; r < 4 / planes; r++) {
        for (uint32_t t = 0; t < g->n_tiles; t++) {
            const __m256i *v = (const __m256i *)(const void *)(g->v[t] + ((size_t)r * d + dim) * 4);
            const uint8_t *thirds = pleat__third_bits(g->v[t], d, 4 * (size_t)dim);
            const int16_t *weight = w->u.fixed[0][t] + 4 * r * planes;
            FORGET(weight);
            __m256i raw[4];
            for (uint32_t b = 0; b < blocks; b++)
                _mm_prefetch((const char *)g->v_ahead[t] + ahead + 64 * (r * blocks + b), _MM_HINT_T1);
#define STEP(plane) values_plane(width, heads, blocks, plane, &v, thirds, weight, raw, sum)
            EACH_PLANE(pleat__plane_bits(width), STEP)
#undef STEP
        }
    }
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t b = 0; b < 2 * blocks; b++)
            fold(o + (size_t)h * d + dim + 8 * b, _mm256_cvtepi32_ps(sum[h][b]), w->step[h], w->rescale[h]);
    }
}

#endif
