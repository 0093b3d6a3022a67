/* SPDX-License-Identifier: MIT
 *
 * codebook.h: codebooks: how often codes occur, and the length-limited canonical Huffman code that follows.
 *
 *     counts ── build ──> codebook: lengths ──> codes (to encode), table (to decode)
 *
 * KVComp (section 3.2) has one codebook for a layer's keys and one for its values.  They are made from the histogram
 * of the prompt, and stay.  So every code of the alphabet gets a word, whether it was seen or not: one is added to
 * every count.  An alphabet of one code has a word of one bit.  Words are at most PLEAT__CODEBOOK_*_BITS long, which is
 * what the decoder's table is indexed by, and the lengths are optimal under that limit (package-merge).  Words are
 * canonical: by length, then by symbol, each the one before plus one; they are written from their first (highest) bit
 * on, so words[] holds them reversed, for streams that are filled from the lowest bit.
 *
 * Three kinds, by the number of levels L (codes are 0..L-1):
 *
 *     PAIRS    L <= 16   a symbol is two codes a, b: a | b << 4          words of up to 8 bits
 *     NARROW   L <= 32   a symbol is one code                            words of up to 8 bits
 *     WIDE     L <= 256  a symbol is one code                            words of up to 9 bits
 *
 * Pairs halve the lookups, and shorter words make smaller tables.  So the first that the levels allow is taken, unless a
 * later one comes out more than 1.25 % shorter.  They are pairs in up to 6 bits (L <= 5) or 7 (L <= 8), and single codes
 * in up to 7 bits or 8.  Pairs of 7 bits, narrow words of 7 and of 8 are decoded at 21, 13 and 9 G codes/s (one core of
 * a Granite Rapids, VBMI2, four streams; November 2026).
 *
 * Pairs are *plain* if all have a word, with L <= 8 and words of up to 7 bits.  Those that pleat__codebook_build() makes
 * are, and those beside payloads of docs/FORMAT.md.  Others have a writer that can do without some words (codec/rd.h).
 */
#ifndef PLEAT_ENTROPY_CODEBOOK_H
#define PLEAT_ENTROPY_CODEBOOK_H

#include "core/types.h"

#define PLEAT__CODEBOOK_SYMBOLS 256u
#define PLEAT__CODEBOOK_LEVELS 256u
#define PLEAT__CODEBOOK_PAIR_LEVELS 8u /* of plain codebooks */
#define PLEAT__CODEBOOK_PAIR_LEVELS_MAX 16u
#define PLEAT__CODEBOOK_NARROW_LEVELS 32u
#define PLEAT__CODEBOOK_PAIR_BITS 7u
#define PLEAT__CODEBOOK_PAIR_BITS_MAX 8u
#define PLEAT__CODEBOOK_NARROW_BITS 8u
#define PLEAT__CODEBOOK_WIDE_BITS 9u
#define PLEAT__CODEBOOK_TAIL_BITS 6u

typedef enum pleat__codebook_kind {
    PLEAT__CODEBOOK_PAIRS,
    PLEAT__CODEBOOK_NARROW,
    PLEAT__CODEBOOK_WIDE
} pleat__codebook_kind;

/* How often codes occur, and pairs of them where there are at most 8 levels.  All together fewer than 2^54. */
typedef struct pleat__code_counts {
    uint64_t single[PLEAT__CODEBOOK_LEVELS];
    uint64_t pair[PLEAT__CODEBOOK_PAIR_LEVELS * PLEAT__CODEBOOK_PAIR_LEVELS]; /* [b * 8 + a] */
} pleat__code_counts;

/* Add the codes of n_vectors vectors of 64 (an even number).  Of two vectors in a row, byte i of the first and of the
 * second are a pair.  Codes are below n_levels. */
void pleat__code_counts_add(pleat__code_counts *counts, const uint8_t *codes, uint32_t n_vectors, uint32_t n_levels);

typedef struct pleat__codebook {
    uint8_t kind;      /* pleat__codebook_kind */
    uint8_t max_bits;  /* of the longest word that there is, 1..9 */
    uint16_t n_levels; /* 1..256 */
    uint8_t base;      /* what decoding adds to a code; 0 unless pleat__codebook_rebase() said so */
    /* By symbol; 0 where there is none: */
    uint8_t bits[PLEAT__CODEBOOK_SYMBOLS];
    uint16_t words[PLEAT__CODEBOOK_SYMBOLS]; /* reversed: the first bit is the lowest */
    /* By the next max_bits bits of the stream (the first is the lowest), repeated up to 512 entries.  Where no word
     * fits (an alphabet of one symbol) the symbol that there is.  Of single codes with the base added. */
    uint8_t symbol[1u << PLEAT__CODEBOOK_WIDE_BITS];
    uint8_t symbol_bits[1u << PLEAT__CODEBOOK_WIDE_BITS];
    /* For decoders whose tables are small.  Longer words than short_bits, 4 or 5, all begin with n_ones ones, as words
     * are canonical; all that begin so are here by the max_bits - n_ones bits behind them.  These are at most 4 with
     * short_bits 4, else at most 6.  short_bits 0: this codebook is not so, or is wide. */
    uint8_t short_bits, n_ones;
    uint8_t tail_symbol[1u << PLEAT__CODEBOOK_TAIL_BITS];
    uint8_t tail_bits[1u << PLEAT__CODEBOOK_TAIL_BITS];
} pleat__codebook;

/* Codes of a symbol: 2 for pairs, else 1. */
static inline uint32_t pleat__codebook_codes_per_symbol(const pleat__codebook *codebook) {
    return codebook->kind == PLEAT__CODEBOOK_PAIRS ? 2 : 1;
}

/* Decode to codes from `base` on, not from 0; what is encoded counts from 0 as before.  Narrow codebooks and pairs whose
 * codes stay below 32 with it. */
void pleat__codebook_rebase(pleat__codebook *codebook, uint8_t base);

/* Build the codebook of the best kind for these counts.  1 <= n_levels <= 256.  Deterministic. */
void pleat__codebook_build(pleat__codebook *codebook, const pleat__code_counts *counts, uint32_t n_levels);

/* Optimal lengths of n words, 1 <= n <= 256, none longer than max_bits, 2^max_bits >= n.  weights[i] > 0 of all symbols
 * (build adds the one), together less than 2^54.  bits[i] >= 1.  n = 1 gives 1 bit.  Ties go to the lower symbol.
 * (Larmore and Hirschberg 1990: package-merge.) */
void pleat__codebook_lengths(const uint64_t *weights, uint32_t n, uint32_t max_bits, uint8_t *bits);

/* A codebook from its kind, number of levels and lengths, as a codebook holds them.  False: they are no complete
 * prefix code of that kind's alphabet, or of some of its pairs. */
bool pleat__codebook_from_bits(pleat__codebook *codebook, pleat__codebook_kind kind, uint32_t n_levels,
                               const uint8_t bits[PLEAT__CODEBOOK_SYMBOLS]);

/* True of codebooks that are no pairs, and of plain pairs. */
bool pleat__codebook_is_plain(const pleat__codebook *codebook);

/* A codebook as bytes: kind, levels less one, lengths (docs/FORMAT.md, section 6). */
#define PLEAT__CODEBOOK_HEAD_BYTES 2u
/* Most bytes of one with so many levels, whatever its kind. */
uint32_t pleat__codebook_bytes_cap(uint32_t n_levels);
/* Returns the bytes. */
size_t pleat__codebook_write(const pleat__codebook *codebook, uint8_t *out);
/* From bytes from anywhere, which may go on behind it.  Returns its bytes; 0: they begin with no codebook, and
 * *codebook is as it was. */
size_t pleat__codebook_read(pleat__codebook *codebook, const uint8_t *bytes, size_t n_bytes);

/* Bits of these counts in this plain codebook's words (of pairs, by pairs). */
uint64_t pleat__codebook_cost_bits(const pleat__codebook *codebook, const pleat__code_counts *counts);

/* Shannon's bound in bits a code for the single counts: sum of -p log2 p; 0 for no counts. */
double pleat__code_entropy(const pleat__code_counts *counts, uint32_t n_levels);

#endif
