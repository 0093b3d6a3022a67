/* SPDX-License-Identifier: MIT
 *
 * seam.h: places of a text that no token spans, so that what stands on both sides can be merged by itself.
 *
 *     The|quick|brown|fox        | where no token of the vocabulary holds the two characters side by side
 *
 * A merge across a place makes a token in which the characters on both sides are neighbours.  So where no token has
 * that pair, there is no such merge, and the text is cut there without changing a single token.  That is what keeps
 * SentencePiece's merging of a whole text as fast as merging words.
 *
 * The pairs that tokens hold stand in a bitmap by their hash; two pairs on one bit only cost a cut.
 */
#ifndef PLEAT_TOKENIZER_SEAM_H
#define PLEAT_TOKENIZER_SEAM_H

#include "tokenizer/vocab.h"

/* Gemma's 262,144 tokens set an eighth of the bits; the bitmap takes 256 KiB. */
#define PLEAT__SEAM_BITS 21

typedef struct pleat__seams {
    pleat_allocator al;
    uint64_t *bits; /* [2^PLEAT__SEAM_BITS / 64] */
} pleat__seams;

/* From the vocabulary's normal tokens.  PLEAT_E_MEMORY. */
pleat_status pleat__seams_init(pleat__seams *seams, const pleat__vocab *vocab, const pleat_allocator *al);
void pleat__seams_release(pleat__seams *seams);

/* The end of the piece that starts at text[at], at < n_bytes: the first seam behind it, or n_bytes.  The text is UTF-8. */
uint64_t pleat__seams_next(const pleat__seams *seams, const char *text, uint64_t n_bytes, uint64_t at);

#endif
