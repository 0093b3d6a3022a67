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
        const __m512i all = splits == 2 ? _mm512_add_epi32(sum[i], sum[rows + i]) : sum[i];
        _mm512_store_si512(sums->of[i / heads * HEADS + i % heads], all);
    }
}

/* sums = codes of n_vectors vectors times limbs, of n_heads heads or HEADS if there are more. */
static void dots(const uint8_t *codes, uint32_t n_vectors, const int8_t *limbs, uint32_t n_heads,
                 pleat__blocks_sums *sums) {
    if (n_heads == 1)
        dots_of(1, 2, codes, n_vectors, limbs, sums);
    else if (n_heads == 2)
        dots_of(2, 2, codes, n_vectors, limbs, sums);
    else if (n_heads == 3)
        dots_of(3, 1, codes, n_vectors, limbs, sums);
    else
        dots_of(4, 1, codes, n_vectors, limbs, sums);
}

static void keys(pleat__blocks_walk *w, uint32_t slice) {
    const uint32_t n_vectors = w->format->head_dim / 4, n_group = w->query->n_group;
    pleat__blocks_sums sums[PLEAT__STREAMS];
    for (uint32_t head = 0; head < n_group; head += HEADS) {
        for (uint32_t b = 0; b < w->n_blocks; b++)
            dots(w->codes + (size_t)b * n_vectors * VECTOR, n_vectors, pleat__key_limbs(w, b, head), n_group - head,
                 &sums[b]);
        pleat__blocks_write_logits(w, head, slice, sums);
    }
}

static void values(pleat__blocks_walk *w, uint32_t slice) {
    const uint32_t n_group = w->query->n_group;
    pleat__blocks_sums sums[MOST_PARTS];
    for (uint32_t head = 0; head < n_group; head += HEADS) {
        const int8_t *limbs = pleat__value_limbs(w, head);
        for (uint32_t from = 0, p = 0; from < w->n_tokens; from += PART_TOKENS, p++)
            dots(w->codes + (size_t)from * ROWS, pleat__min_u32(w->n_tokens - from, PART_TOKENS) / 4,
                 limbs + p * PART_LIMB_BYTES, n_group - head, &sums[p]);
        pleat__blocks_add_values(w, head, slice, sums);
    }
}

static void end(pleat__blocks_walk *w) { (void)w; }

static const pleat__blocks_steps steps_vnni = {.begin = pleat__blocks_begin_avx512,
                                               .keys_begin = pleat__blocks_keys_begin_avx512,
                                               .keys = keys,
                                               .softmax = pleat__blocks_softmax_avx512,
                                               .values_begin = pleat__blocks_values_begin_avx512,
                                               .values = values,
                                               .end = end};

bool pleat__attn_blocks_vnni(const pleat__attn_query *query, const pleat__codec_dsp *codec, const pleat__block_run *run,
                             uint32_t block_from, uint32_t block_to, pleat__attn_acc *acc, void *scratch) {
    return pleat__blocks_walk_run(&steps_vnni, query, codec, run, block_from, block_to, acc, scratch);
}
