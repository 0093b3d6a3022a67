/* SPDX-License-Identifier: MIT
 *
 * words.h: how codes stand in a GPU's memory: the words of a codebook as entropy/stream.h has them, taken 32 bits at a time
 * instead of a byte.
 *
 * A CPU's lanes have 16 bits and take a byte before every symbol, if they need it.  A warp that does so decodes 32 lanes
 * in 12 instructions a step; half of them see to bytes.  Here lanes have 64 bits, and see to them once in a *group* of
 * symbols: 4, or 2 of a WIDE codebook.  So streams are made anew when they are copied to a device, of the same
 * codes, which costs a lane about 30 bits at its end.  They have the payloads' codebook, or pairs where that has single
 * codes of 9 to 16 levels or thereabouts: a lookup gives two codes, and takes no more than it took for one.  A CPU's
 * tables hold such pairs in 8 bits as well, but are slower by them (entropy/codebook.h).
 *
 *     codes       as in stream.h: lane j = 0..31 has bytes 2j and 2j+1 of each vector of 64, in the same order
 *     lane        its symbols' words one behind the other from bit 0 of its first 32 bits on, zeros at the end
 *     stream      the lanes' first 32 bits, lane by lane; their second ones; then, after each group but the last, the next
 *                 32 bits of every lane that has used up 32 of the 64 that it had, lane by lane
 *
 * Whoever reads takes 32 bits after the last group too; they are not there, and not needed.
 *
 * What a lane needs for a word is an entry of a table, by the next max_bits bits:
 *
 *     bits 0..4    length of the word, 1..9
 *     bits 16..23  code a less the centre, two's complement
 *     bits 24..31  code b less the centre (pairs, else 0)
 *
 * The centre, levels / 2, makes codes of up to 256 levels signed bytes, and sums small.
 */
#ifndef PLEAT_ENTROPY_CUDA_WORDS_H
#define PLEAT_ENTROPY_CUDA_WORDS_H

#include "entropy/codebook.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLEAT__TABLE_CENTRE(n_levels) ((n_levels) / 2)
#define PLEAT__WORDS_LANES 32u
#define PLEAT__TABLE_CAP (1u << PLEAT__CODEBOOK_WIDE_BITS)

/* The codebook that codes of `payloads` stand in a device's memory with: pairs in up to 8 bits, where those are single
 * codes of at most 16 levels and pairs take at most 1/32 more bits; else the same.  pairs[a | b << 4]: how often codes a
 * and b are a pair (codebook.h), in some of the blocks or in all. */
void pleat__words_codebook(const pleat__codebook *payloads, const uint64_t pairs[PLEAT__CODEBOOK_SYMBOLS],
                           pleat__codebook *out);

/* Symbols of a group. */
#define PLEAT__WORDS_GROUP(kind) ((kind) == PLEAT__CODEBOOK_WIDE ? 2u : 4u)

/* The entries, 1 << codebook->max_bits of them; returns that number. */
uint32_t pleat__words_table(const pleat__codebook *codebook, uint32_t table[PLEAT__TABLE_CAP]);

/* Most 32-bit words of a stream. */
static inline size_t pleat__words_cap(uint32_t n_vectors) {
    return PLEAT__WORDS_LANES * (2 + (size_t)n_vectors * 2 * PLEAT__CODEBOOK_WIDE_BITS / 32 + 1);
}

/* Encode n_vectors vectors, a multiple of 4, of codes below codebook->n_levels; returns the 32-bit words. */
size_t pleat__words_encode(const pleat__codebook *codebook, const uint8_t *codes, uint32_t n_vectors, uint32_t *out);

#ifdef __cplusplus
}
#endif
#endif
