/* SPDX-License-Identifier: MIT
 *
 * blocks.h: decode attention over blocks of compressed tokens (codec/block.h), fused with their decoding.
 *
 * Up to PLEAT__STREAMS blocks at a time, a *group*, whose streams are decoded side by side, a slice of 16 rows of each
 * at once:
 *
 *     keys      for each 16 tokens: decode 4 x 16 x d codes to L1; logit2 = sum q*middle + sum (q*step) * (code - c)
 *     cap       where the model bounds its logits: cap.h
 *     softmax   weights of all tokens of the group against their maximum
 *     values    for each 16 dimensions: decode 4 x 16 x T codes to L1; o += sum w*middle + sum (w*step) * (code - c)
 *
 * Nothing is dequantised and nothing but a slice is ever stored.  Steps fold into the query, once a block, and into the
 * weights.  Codes are taken around their middle, c = (levels - 1)/2, middle = min + c*step, so that no two large sums
 * cancel.  In vectors q*step and w*step are 16-bit numbers, with AVX-512's integer dot product two limbs of 8 bits.  So
 * the relative error against float64 on the decoded values is <= 1e-4 in norm, as of pages of integer formats, and what
 * the rounding of large f32 logits does to weights; the scalar one's is <= 1e-6.  KVComp, section 3.3.2.
 *
 * The same bits for the same range of blocks, always.  Ranges begin at multiples of PLEAT__STREAMS blocks.
 */
#ifndef PLEAT_ATTN_BLOCKS_H
#define PLEAT_ATTN_BLOCKS_H

#include "attn/attn.h"
#include "codec/block.h"

/* Bytes of scratch for a call, aligned to 64 and a multiple of it. */
uint64_t pleat__attn_blocks_scratch_bytes(const pleat__block_format *format, uint32_t n_group);

/* pleat__attn_blocks_fn (attn.h): add blocks [block_from, block_to) of the run to acc, as pleat__attn_decode_fn adds
 * slots.  query->f32 alone is read.  Blocks were written by this cache: one that does not open (damaged memory) is
 * skipped, one whose codes end elsewhere than its bytes gives some finite codes, and false is returned for both. */
bool pleat__attn_blocks_ref(const pleat__attn_query *query, const pleat__codec_dsp *codec, const pleat__block_run *run,
                            uint32_t block_from, uint32_t block_to, pleat__attn_acc *acc, void *scratch);
/* Needs PLEAT_CPU_AVX2. */
bool pleat__attn_blocks_avx2(const pleat__attn_query *query, const pleat__codec_dsp *codec, const pleat__block_run *run,
                             uint32_t block_from, uint32_t block_to, pleat__attn_acc *acc, void *scratch);
/* Needs PLEAT_CPU_AVX_VNNI; the bits of the AVX2 variant. */
bool pleat__attn_blocks_avxvnni(const pleat__attn_query *query, const pleat__codec_dsp *codec,
                                const pleat__block_run *run, uint32_t block_from, uint32_t block_to,
                                pleat__attn_acc *acc, void *scratch);
/* Needs PLEAT_CPU_NEON. */
bool pleat__attn_blocks_neon(const pleat__attn_query *query, const pleat__codec_dsp *codec, const pleat__block_run *run,
                             uint32_t block_from, uint32_t block_to, pleat__attn_acc *acc, void *scratch);
/* Needs PLEAT_CPU_VNNI. */
bool pleat__attn_blocks_vnni(const pleat__attn_query *query, const pleat__codec_dsp *codec, const pleat__block_run *run,
                             uint32_t block_from, uint32_t block_to, pleat__attn_acc *acc, void *scratch);
/* Needs PLEAT_CPU_VBMI2; the bits of the VNNI variant. */
bool pleat__attn_blocks_vbmi2(const pleat__attn_query *query, const pleat__codec_dsp *codec,
                              const pleat__block_run *run, uint32_t block_from, uint32_t block_to, pleat__attn_acc *acc,
                              void *scratch);
/* Needs PLEAT_CPU_AMX_INT8; the bits of the VNNI variant. */
bool pleat__attn_blocks_amx(const pleat__attn_query *query, const pleat__codec_dsp *codec, const pleat__block_run *run,
                            uint32_t block_from, uint32_t block_to, pleat__attn_acc *acc, void *scratch);

#endif
