/* SPDX-License-Identifier: MIT
 *
 * tokenizer.h: text to tokens by a GGUF's `gpt2` tokenizer: special tokens, then words, then merges.
 *
 *     text ── special tokens cut out ── words (pretokenize.h) ── bytes' tokens ── merges (bpe.h) ── ids
 *
 * Text is taken as it is: there is no normalisation, and the tokens' bytes, joined, are the text again.
 */
#ifndef PLEAT_TOKENIZER_TOKENIZER_H
#define PLEAT_TOKENIZER_TOKENIZER_H

#include "tokenizer/bpe.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/vocab.h"

typedef struct pleat__tokenizer {
    pleat_allocator al;
    pleat__vocab vocab;
    pleat__bpe bpe;
    pleat__pretokenizer *pre;
    bool ignore_merges;
    bool add_bos;         /* only where there is a bos */
    pleat_token bos, eos; /* -1: none */
} pleat__tokenizer;

/* Read the tokenizer.ggml.* metadata.  The tokenizer keeps nothing of the file. */
pleat_status pleat__tokenizer_create(const pleat_gguf *gguf, const pleat_allocator *al, pleat__tokenizer **out,
                                     pleat_error *err);
void pleat__tokenizer_destroy(pleat__tokenizer *tokenizer);

/* See pleat_model_tokenize(), whose work it does. */
pleat_status pleat__tokenizer_run(const pleat__tokenizer *tokenizer, const char *text, uint64_t n_bytes, uint32_t flags,
                                  pleat_token *ids, uint32_t cap, uint32_t *n_tokens, pleat_error *err);

#endif
