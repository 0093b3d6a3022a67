/* SPDX-License-Identifier: MIT
 *
 * pretokenize.h: cuts a text into the words that merging never crosses, by the models' own regular expressions in PCRE2.
 *
 * Which expressions is the model's choice (tokenizer.ggml.pre).  Others would change tokens without a sign, so an
 * unknown name is refused.  Some models have several, each of which cuts the pieces that the one before it left: what
 * it matches is a piece, and so is what lies between two matches.
 *
 *     The answer is 42.
 *     \p{N}             The answer is |4|2|.
 *     then  ?\p{L}+ ..  The| answer| is| |4|2|.
 */
#ifndef PLEAT_TOKENIZER_PRETOKENIZE_H
#define PLEAT_TOKENIZER_PRETOKENIZE_H

#include "gguf/gguf.h"

#define PLEAT__MAX_CUTS 6 /* expressions of a pre-tokenizer */

typedef struct pleat__pretokenizer pleat__pretokenizer;

/* What else hangs on the name of a pre-tokenizer. */
typedef struct pleat__pretokenizer_traits {
    bool add_bos;          /* bos stands in front unless the file says otherwise */
    bool ignore_merges;    /* a word that is a token is taken whole, whatever the merges say */
    bool no_newline_merge; /* a word of newlines alone that is a token is taken whole */
} pleat__pretokenizer_traits;

/* Make the pre-tokenizer called `name`; PLEAT_E_UNSUPPORTED where there is none. */
pleat_status pleat__pretokenizer_create(pleat__str name, const pleat_allocator *al, pleat__pretokenizer **out,
                                        pleat__pretokenizer_traits *traits, pleat_error *err);
void pleat__pretokenizer_destroy(pleat__pretokenizer *pre);

/* Backtracking that a text of n_bytes may cost before a match is given up with an error; for tests.  The default, 0,
 * grows with the text and is out of reach for the expressions here. */
void pleat__pretokenizer_set_limit(pleat__pretokenizer *pre, uint32_t match_limit);

/* The piece of one expression that a walk is in. */
typedef struct pleat__cut {
    uint64_t start, end; /* of the piece */
    uint64_t match_end;  /* of the match that begins where the piece ends; 0: none is known */
} pleat__cut;

/* A walk over the words of one text; one thread's. */
typedef struct pleat__words {
    const pleat__pretokenizer *pre;
    void *match_data;    /* pcre2_match_data */
    void *match_context; /* pcre2_match_context */
    const char *text;    /* [n_bytes] */
    uint64_t n_bytes;
    uint64_t at; /* where the next word begins */
    pleat__cut cuts[PLEAT__MAX_CUTS];
} pleat__words;

/* Takes memory from the pre-tokenizer's allocator.  n_bytes is the most that any text will have. */
pleat_status pleat__words_init(pleat__words *words, const pleat__pretokenizer *pre, uint64_t n_bytes);
void pleat__words_release(pleat__words *words);

/* Begin a text of valid UTF-8, which stays in place. */
void pleat__words_begin(pleat__words *words, const char *text, uint64_t n_bytes);

/* The next word, while words->at < n_bytes: it ends at *end, where the one behind it begins. */
pleat_status pleat__words_next(pleat__words *words, uint64_t *end, pleat_error *err);

#endif
