/* SPDX-License-Identifier: MIT
 *
 * tokenizer.h: text to tokens by a GGUF's tokenizer, of one of three kinds (tokenizer.ggml.model).
 *
 *     gpt2    text ── special tokens cut out ── words ── bytes ────── listed merges ── ids
 *     gemma4  text ── special tokens cut out ── words ── characters ─ listed merges ── ids, and bytes of the rest
 *     llama   text ── special tokens cut out ─────────── characters ─ scores ───────── ids, and bytes of the rest
 *                     special.h          pretokenize.h      seam.h         bpe.h
 *
 * Text is taken as it is: there is no normalisation, and the tokens' bytes, joined, are the text again.  But for what
 * the models' own tokenizers do:
 *
 * - `gpt2` leaves a byte out that has no token: control characters and unused planes in some vocabularies;
 * - `llama` and `gemma4` know U+2581 as a space only;
 * - `llama` puts a space in front of a text and behind a special token, unless the file says otherwise
 *   (tokenizer.ggml.add_space_prefix); a detokenizer takes it away again;
 * - special tokens of Phi-3 swallow the whitespace behind them.
 */
#ifndef PLEAT_TOKENIZER_TOKENIZER_H
#define PLEAT_TOKENIZER_TOKENIZER_H

#include "tokenizer/bpe.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/seam.h"
#include "tokenizer/special.h"
#include "tokenizer/vocab.h"

typedef struct pleat__tokenizer {
    pleat_allocator al;
    pleat__vocab vocab;
    pleat__specials specials;
    pleat__pretokenizer *pre; /* NULL: the whole text is one word */
    pleat__pretokenizer_traits traits;
    pleat__bpe bpe;       /* of gpt2 and gemma4 */
    pleat__scores scores; /* of llama */
    pleat__seams seams;   /* of gemma4 and llama */
    pleat__join_fn join;
    const void *join_self; /* bpe or scores */
    bool by_characters;    /* words begin as characters, else as bytes */
    bool add_space;        /* in front of a text and behind special tokens */
    bool add_bos, add_eos; /* only where there is one */
    pleat_token bos, eos;  /* -1: none */
    pleat_token eot, eom;  /* end of turn, of message; -1: none is named by the file */
} pleat__tokenizer;

/* Read the tokenizer.ggml.* metadata.  The tokenizer keeps nothing of the file. */
pleat_status pleat__tokenizer_create(const pleat_gguf *gguf, const pleat_allocator *al, pleat__tokenizer **out,
                                     pleat_error *err);
void pleat__tokenizer_destroy(pleat__tokenizer *tokenizer);

/* See pleat_model_tokenize(), whose work it does. */
pleat_status pleat__tokenizer_run(const pleat__tokenizer *tokenizer, const char *text, uint64_t n_bytes, uint32_t flags,
                                  pleat_token *ids, uint32_t cap, uint32_t *n_tokens, pleat_error *err);

/* Whether the token ends a turn or a document; id is in range. */
bool pleat__tokenizer_is_end(const pleat__tokenizer *tokenizer, pleat_token id);

#endif
