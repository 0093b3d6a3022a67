/* SPDX-License-Identifier: MIT
 *
 * pretokenize.h: cuts a text into the words that byte-pair merging never crosses, by the models' own regular
 * expressions, unchanged, in PCRE2.
 *
 * Which expression is the model's choice (tokenizer.ggml.pre).  Another one would change tokens without a sign, so an
 * unknown name is refused.
 */
#ifndef PLEAT_TOKENIZER_PRETOKENIZE_H
#define PLEAT_TOKENIZER_PRETOKENIZE_H

#include "gguf/gguf.h"

typedef struct pleat__pretokenizer pleat__pretokenizer;

/* What else hangs on the name of a pre-tokenizer. */
typedef struct pleat__pretokenizer_traits {
    bool add_bos;       /* bos stands in front unless the file says otherwise */
    bool ignore_merges; /* a word that is a token is taken whole, whatever the merges say */
} pleat__pretokenizer_traits;

/* Make the pre-tokenizer called `name`; PLEAT_E_UNSUPPORTED names those that there are. */
pleat_status pleat__pretokenizer_create(pleat__str name, const pleat_allocator *al, pleat__pretokenizer **out,
                                        pleat__pretokenizer_traits *traits, pleat_error *err);
void pleat__pretokenizer_destroy(pleat__pretokenizer *pre);

/* Backtracking that a text of n_bytes may cost before the match is given up with an error; for tests.  The default, 0,
 * grows with the text and is out of reach for the expressions here. */
void pleat__pretokenizer_set_limit(pleat__pretokenizer *pre, uint32_t match_limit);

/* A walk over the words of one text; one thread's. */
typedef struct pleat__words {
    const pleat__pretokenizer *pre;
    void *match_data;    /* pcre2_match_data */
    void *match_context; /* pcre2_match_context */
} pleat__words;

/* Takes memory from the pre-tokenizer's allocator.  n_bytes is the most that will be walked. */
pleat_status pleat__words_init(pleat__words *words, const pleat__pretokenizer *pre, uint64_t n_bytes);
void pleat__words_release(pleat__words *words);

/* The word that starts at text[at], at < n_bytes: *end is where it ends, > at.  The text is valid UTF-8 and no word
 * reaches beyond text[n_bytes). */
pleat_status pleat__words_next(pleat__words *words, const char *text, uint64_t n_bytes, uint64_t at, uint64_t *end,
                               pleat_error *err);

#endif
