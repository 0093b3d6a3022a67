/* SPDX-License-Identifier: MIT
 *
 * blocks_vbmi2.c: the VNNI variant, which multiplies codes of two bits where their planes stand: no code is stored.
 *
 * Plane p of a vector is 8 bytes, whose bit i is bit p of code i.  A byte of both is a matrix of bits, of eight codes by
 * two: VGF2P8AFFINEQB multiplies it with the eight bytes that have one bit, which are taken apart to eight codes.
 */
#include "attn/x86/blocks_dots_avx512.h"

#define PLANES_BYTES 16u /* of a vector */

INLINE __m512i plane_codes(const uint8_t *planes) {
    /* Rows of a matrix, the last byte first: the first plane's byte, the second's, and none. */
    const __m512i rows =
        _mm512_set_epi64(0x070F808080808080, 0x060E808080808080, 0x050D808080808080, 0x040C808080808080,
                         0x030B808080808080, 0x020A808080808080, 0x0109808080808080, 0x0008808080808080);
    const __m512i one_bit = _mm512_set1_epi64((long long)0x8040201008040201u);
    const __m512i both = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)planes));
    return _mm512_gf2p8affine_epi64_epi8(one_bit, _mm512_shuffle_epi8(both, rows), 0);
}

/* Sums of a slice of blocks of n_columns, whose planes these are.  splits: as of dots_of(). */
INLINE void plane_dots_of(uint32_t heads, uint32_t splits, const uint8_t *const *planes, uint32_t n_blocks,
                          uint32_t n_columns, const int8_t *limbs, pleat__blocks_sums *sums) {
    __m512i sum[LIMB_ROWS];
    UNROLL
    for (uint32_t i = 0; i < splits * LIMBS * heads; i++) sum[i] = _mm512_setzero_si512();
    uint32_t vector = 0;
    for (uint32_t b = 0; b < n_blocks; b++) {
        const uint8_t *at = planes[b];
        for (uint32_t n_left = n_columns / 4, n; n_left > 0; n_left -= n, vector += n) { /* multiples of 4 */
            const uint32_t from = vector % (COLUMNS / 4);
            const int8_t *p = limbs + vector / (COLUMNS / 4) * LIMB_BYTES + (size_t)4 * from;
            n = pleat__min_u32(n_left, COLUMNS / 4 - from);
            for (uint32_t v = 0; v < n; v += splits, at += splits * PLANES_BYTES, p += 4 * splits) {
                UNROLL
                for (uint32_t s = 0; s < splits; s++)
                    add_vector(heads, plane_codes(at + s * PLANES_BYTES), p + 4 * s, sum + s * LIMBS * heads);
            }
        }
    }
    store_sums(heads, splits, sum, sums);
}

static void plane_dots(const uint8_t *const *planes, uint32_t n_blocks, uint32_t n_columns, const int8_t *limbs,
                       uint32_t n_heads, pleat__blocks_sums *sums) {
    PLEAT__FOR_HEADS(n_heads, plane_dots_of(heads, SPLITS(heads), planes, n_blocks, n_columns, limbs, sums));
}

static void keys(pleat__blocks_walk *w, uint32_t slice) {
    const uint32_t d = w->format->head_dim, n_group = w->query->n_group;
    pleat__blocks_sums sums[PLEAT__STREAMS];
    if (!w->planes) {
        pleat__blocks_steps_vnni.keys(w, slice);
        return;
    }
    for (uint32_t head = 0; head < n_group; head += HEADS) {
        for (uint32_t b = 0; b < w->n_blocks; b++)
            plane_dots(&w->planes[b], 1, d, pleat__key_limbs(w, b, head), n_group - head, &sums[b]);
        pleat__blocks_write_logits(w, head, slice, sums);
    }
}

static void values(pleat__blocks_walk *w, uint32_t slice) {
    const uint32_t n_group = w->query->n_group, tokens = w->format->tokens;
    pleat__blocks_sums sums[MAX_PARTS];
    if (!w->planes) {
        pleat__blocks_steps_vnni.values(w, slice);
        return;
    }
    for (uint32_t head = 0; head < n_group; head += HEADS) {
        const int8_t *limbs = pleat__value_limbs(w, pleat__blocks_unit_of(w, slice), head);
        for (uint32_t from = 0, p = 0; from < w->n_tokens; from += PART_TOKENS, p++)
            plane_dots(w->planes + from / tokens, pleat__min_u32(w->n_tokens - from, PART_TOKENS) / tokens, tokens,
                       limbs + p * PART_LIMB_BYTES, n_group - head, &sums[p]);
        pleat__blocks_add_values(w, head, slice, sums);
    }
}

static void end(pleat__blocks_walk *w) { (void)w; }

static const pleat__blocks_steps steps_vbmi2 = BLOCKS_STEPS(pleat__blocks_begin_avx512, keys, values, end, true);

bool pleat__attn_blocks_vbmi2(const pleat__attn_query *query, const pleat__codec_dsp *codec,
                              const pleat__block_run *run, uint32_t block_from, uint32_t block_to, pleat__attn_acc *acc,
                              void *scratch) {
    return pleat__blocks_walk_run(&steps_vbmi2, query, codec, run, block_from, block_to, acc, scratch);
}
