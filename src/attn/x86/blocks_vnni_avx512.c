/* SPDX-License-Identifier: MIT
 *
 * blocks_vnni_avx512.c: decode attention over compressed blocks with VNNI's dot product of four bytes.
 */
#include "attn/x86/blocks_dots_avx512.h"

INLINE void dots_of(uint32_t heads, uint32_t splits, const uint8_t *codes, uint32_t n_vectors, const int8_t *limbs,
                    pleat__blocks_sums *sums) {
    __m512i sum[LIMB_ROWS];
    UNROLL
    for (uint32_t i = 0; i < splits * LIMBS * heads; i++) sum[i] = _mm512_setzero_si512();
    for (uint32_t from = 0; from < n_vectors; from += COLUMNS / 4, limbs += LIMB_BYTES) {
        const uint32_t n = pleat__min_u32(n_vectors - from, COLUMNS / 4); /* a multiple of 4 */
        const int8_t *p = limbs;
        for (uint32_t v = 0; v < n; v += splits, codes += splits * VECTOR, p += 4 * splits) {
            UNROLL
            for (uint32_t s = 0; s < splits; s++)
                add_vector(heads, _mm512_load_si512(codes + s * VECTOR), p + 4 * s, sum + s * LIMBS * heads);
        }
    }
    store_sums(heads, splits, sum, sums);
}

static void dots(const uint8_t *codes, uint32_t n_columns, const int8_t *limbs, uint32_t n_heads,
                 pleat__blocks_sums *sums) {
    PLEAT__FOR_HEADS(n_heads, dots_of(heads, SPLITS(heads), codes, n_columns / 4, limbs, sums));
}

static void keys(pleat__blocks_walk *w, uint32_t slice) { keys_by(dots, w, slice); }
static void values(pleat__blocks_walk *w, uint32_t slice) { values_by(dots, w, slice); }
static void end(pleat__blocks_walk *w) { (void)w; }

const pleat__blocks_steps pleat__blocks_steps_vnni = BLOCKS_STEPS(pleat__blocks_begin_avx512, keys, values, end, false);

bool pleat__attn_blocks_vnni(const pleat__attn_query *query, const pleat__codec_dsp *codec, const pleat__block_run *run,
                             uint32_t block_from, uint32_t block_to, pleat__attn_acc *acc, void *scratch) {
    return pleat__blocks_walk_run(&pleat__blocks_steps_vnni, query, codec, run, block_from, block_to, acc, scratch);
}
