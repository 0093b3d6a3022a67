/* SPDX-License-Identifier: MIT
 *
 * blocks_avxvnni.c: decode attention over compressed blocks with AVX-VNNI's dot product of two 16-bit numbers.  See
 * blocks_avx2.h.
 */
#include "attn/x86/blocks_products_avx2.h"

static void keys(pleat__blocks_walk *w, uint32_t slice) { keys_of(w, slice); }
static void values(pleat__blocks_walk *w, uint32_t slice) { values_of(w, slice); }

static const pleat__blocks_steps steps_avxvnni = BLOCKS_STEPS_AVX2(keys, values);

bool pleat__attn_blocks_avxvnni(const pleat__attn_query *query, const pleat__codec_dsp *codec,
                                const pleat__block_run *run, uint32_t block_from, uint32_t block_to,
                                pleat__attn_acc *acc, void *scratch) {
    return pleat__blocks_walk_run(&steps_avxvnni, query, codec, run, block_from, block_to, acc, scratch);
}
