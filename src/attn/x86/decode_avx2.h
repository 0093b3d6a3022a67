/* SPDX-License-Identifier: MIT
 *
 * decode_avx2.h: what the parts of decode attention with 256-bit registers hand to each other; as decode_avx512.h.
 *
 *     decode_avx2.c            the walk, the softmax, the choice of plain AVX2
 *     decode_keys_avx2.c       logits: floats, and integers without a dot product
 *     decode_values_avx2.c     weighted sums of values, likewise
 *     decode_avxvnni.c         both for integers with AVX-VNNI
 *     decode_integer_avx2.h    what integers do, with and without
 *
 * Functions are made from always-inline templates whose `heads` is a constant, so that accumulators stay in registers.
 */
#ifndef PLEAT_ATTN_X86_DECODE_AVX2_H
#define PLEAT_ATTN_X86_DECODE_AVX2_H

#include "attn/decode.h"
#include "attn/x86/vector_avx2.h"

#define TILES PLEAT__DECODE_TILES
#define HEADS PLEAT__DECODE_HEADS

INLINE __m256 load_f16(const void *p) { return _mm256_cvtph_ps(_mm_load_si128((const __m128i *)p)); }

/* Add sum*step to o*rescale. */
INLINE void fold(float *o, __m256 sum, float step, float rescale) {
    const __m256 old = _mm256_mul_ps(_mm256_load_ps(o), _mm256_set1_ps(rescale));
    _mm256_store_ps(o, _mm256_fmadd_ps(sum, _mm256_set1_ps(step), old));
}

/* As pleat__keys_avx512_fn. */
typedef void (*pleat__keys_avx2_fn)(const pleat__attn_query *query, uint32_t head, const pleat__tile_group *group,
                                    float (*out)[TILES][PLEAT__TILE]);

/* As pleat__weights_avx512. */
typedef struct pleat__weights_avx2 {
    union {
        float f32[HEADS][TILES][PLEAT__TILE];
        int16_t fixed[HEADS][TILES][PLEAT__TILE]; /* each four in the order 0, 2, 1, 3 */
    } u;
    int32_t sum[HEADS]; /* of fixed */
    float step[HEADS];
    float rescale[HEADS];
} __attribute__((aligned(64))) pleat__weights_avx2;

/* As pleat__values_avx512_fn. */
typedef void (*pleat__values_avx2_fn)(const pleat__weights_avx2 *w, const pleat__tile_group *group, uint32_t head_dim,
                                      float *o);

/* Functions of these types from templates keys_KIND() and values_KIND(), which take `tiles` tiles or 16*blocks
 * dimensions at a time, and what is left one by one.  More than eight accumulators would not leave room for the rest;
 * fewer would wait for each other. */
#define KEYS(bits, heads, tiles, kind)                                                                           \
    static void keys_##bits##x##heads(const pleat__attn_query *query, uint32_t head, const pleat__tile_group *g, \
                                      float(*out)[TILES][PLEAT__TILE]) {                                         \
        uint32_t t = 0;                                                                                          \
        for (; t + (tiles) <= g->n_tiles; t += (tiles)) keys_##kind(bits, heads, tiles, query, head, g, t, out); \
        if (t < g->n_tiles) keys_##kind(bits, heads, 1, query, head, g, t, out);                                 \
    }
#define KEYS_ALL_HEADS(bits, kind) KEYS(bits, 1, 2, kind) KEYS(bits, 2, 2, kind) KEYS(bits, 4, 1, kind)

#define VALUES(bits, heads, blocks, kind)                                                                     \
    static void values_##bits##x##heads(const pleat__weights_avx2 *w, const pleat__tile_group *g, uint32_t d, \
                                        float *o) {                                                           \
        uint32_t i = 0;                                                                                       \
        for (; i + 16 * (blocks) <= d; i += 16 * (blocks)) values_##kind(bits, heads, blocks, w, g, d, i, o); \
        if (i < d) values_##kind(bits, heads, 1, w, g, d, i, o);                                              \
    }
#define VALUES_ALL_HEADS(bits, kind) VALUES(bits, 1, 2, kind) VALUES(bits, 2, 2, kind) VALUES(bits, 4, 1, kind)

#define ROW(what, bits) \
    { NULL, what##_##bits##x1, what##_##bits##x2, NULL, what##_##bits##x4 }

/* By pleat__decode_row() and the heads of a block (1, 2, 4); NULL where there is none. */
extern const pleat__keys_avx2_fn pleat__keys_avx2[PLEAT__DECODE_ROWS][HEADS + 1];
extern const pleat__values_avx2_fn pleat__values_avx2[PLEAT__DECODE_ROWS][HEADS + 1];

/* pleat__attn_decode_avx2() with these functions, by heads, for the run's format. */
void pleat__decode_walk_avx2(const pleat__keys_avx2_fn *keys, const pleat__values_avx2_fn *values,
                             const pleat__attn_query *query, const pleat__kv_run *run, uint32_t slot_from,
                             uint32_t slot_to, pleat__attn_acc *acc, float *logits, size_t logits_stride);

#endif
