/* SPDX-License-Identifier: MIT
 *
 * blocks_vnni_avx512.c: decode attention over compressed blocks with VNNI's dot product of four bytes.
 *
 * A vector of codes is loaded once for all limbs and heads; a limb's four bytes are broadcast from memory.  Elements
 * are rows, so nothing is summed across a register, and all sums of a slice stay in registers.
 */
#include "attn/x86/blocks_avx512.h"

/* sum += u8 codes * four s8 limbs at p, four products to an element.  Not the intrinsic: decode_avx512.h says why. */
INLINE __m512i dot_four_at(__m512i sum, __m512i codes, const int8_t *p) {
    typedef struct {
        int8_t limbs[4];
    } four;
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(codes), "m"(*(const four *)p));
    return sum;
}

/* sum[s][l * heads + h]: few sums would wait for each other, so `splits` vectors in turn have sums of their own. */
INLINE void dots_of(uint32_t heads, uint32_t splits, const uint8_t *codes, uint32_t n_vectors, const int8_t *limbs,
                    pleat__blocks_sums *sums) {
    const uint32_t rows = LIMBS * heads;
    __m512i sum[LIMB_ROWS];
    UNROLL
    for (uint32_t i = 0; i < splits * rows; i++) sum[i] = _mm512_setzero_si512();
    for (uint32_t from = 0; from < n_vectors; from += COLUMNS / 4, limbs += LIMB_BYTES) {
        const uint32_t n = pleat__min_u32(n_vectors - from, COLUMNS / 4); /* a multiple of 4 */
        const int8_t *p = limbs;
        for (uint32_t v = 0; v < n; v += splits, codes += splits * VECTOR, p += 4 * splits) {
            UNROLL
            for (uint32_t i = 0; i < splits * rows; i++) {
                const uint32_t s = i / rows, l = i % rows / heads, h = i % heads;
                const __m512i x = _mm512_load_si512(codes + s * VECTOR);
                sum[i] = dot_four_at(sum[i], x, p + 4 * s + (l * HEADS + h) * COLUMNS);
            }
        }
    }
    UNROLL
    for (uint32_t i = 0; i < rows; i++) {
        __m512i all = sum[i];
        UNROLL
        for (uint32_t s = 1; s < splits; s++) all = _mm512_add_epi32(all, sum[s * rows + i]);
        _mm512_store_si512(sums->of[i / heads * HEADS + i % heads], all);
    }
}

static void dots(const uint8_t *codes, uint32_t n_columns, const int8_t *limbs, uint32_t n_heads,
                 pleat__blocks_sums *sums) {
    const uint32_t n_vectors = n_columns / 4;
    if (n_heads == 1)
        dots_of(1, 4, codes, n_vectors, limbs, sums);
    else if (n_heads == 2)
        dots_of(2, 2, codes, n_vectors, limbs, sums);
    else if (n_heads == 3)
        dots_of(3, 1, codes, n_vectors, limbs, sums);
    else
        dots_of(4, 1, codes, n_vectors, limbs, sums);
}

static void keys(pleat__blocks_walk *w, uint32_t slice) { keys_by(dots, w, slice); }
static void values(pleat__blocks_walk *w, uint32_t slice) { values_by(dots, w, slice); }
static void end(pleat__blocks_walk *w) { (void)w; }

const pleat__blocks_steps pleat__blocks_steps_vnni = BLOCKS_STEPS(pleat__blocks_begin_avx512, keys, values, end);

bool pleat__attn_blocks_vnni(const pleat__attn_query *query, const pleat__codec_dsp *codec, const pleat__block_run *run,
                             uint32_t block_from, uint32_t block_to, pleat__attn_acc *acc, void *scratch) {
    return pleat__blocks_walk_run(&pleat__blocks_steps_vnni, query, codec, run, block_from, block_to, acc, scratch);
}
