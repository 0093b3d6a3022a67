/* SPDX-License-Identifier: MIT
 *
 * vocab.h: the tokens of a vocabulary: id to bytes, and bytes to id for those that text is made of.
 *
 * A file spells tokens in one of two ways; here they are the bytes that they stand for.
 *
 *     GPT-2      each byte of a normal token is a printable character: a space is U+0120 (`gpt2`)
 *     spaces     normal tokens are text in which a space is U+2581, and bytes are named: <0x0A> (`llama`, `gemma4`)
 *
 * Special tokens (special.h) are spelled as they stand in a text.  A normal token whose spelling stands for no text, as
 * some vocabularies have, keeps its spelling as its bytes and is never found.
 */
#ifndef PLEAT_TOKENIZER_VOCAB_H
#define PLEAT_TOKENIZER_VOCAB_H

#include "gguf/gguf.h"

#define PLEAT__MAX_VOCAB (1u << 24)

/* Kinds of tokens; the numbers are the file's (tokenizer.ggml.token_type). */
typedef enum pleat__token_kind {
    PLEAT__TOKEN_NORMAL = 1,
    PLEAT__TOKEN_UNKNOWN = 2,
    PLEAT__TOKEN_CONTROL = 3,
    PLEAT__TOKEN_USER = 4,
    PLEAT__TOKEN_UNUSED = 5,
    PLEAT__TOKEN_BYTE = 6
} pleat__token_kind;

/* How far an entry of a hash table may stand from its hash's slot.  In a table that is half full by chance it is some
 * forty; only a file that was made for it has more, and would take quadratic time. */
#define PLEAT__MAX_PROBES 512u

typedef enum pleat__spelling { PLEAT__SPELLING_GPT2, PLEAT__SPELLING_SPACES } pleat__spelling;

typedef struct pleat__vocab {
    pleat_allocator al;
    void *block; /* all arrays below */
    uint64_t block_bytes;

    pleat__spelling spelling;
    uint32_t n_tokens;
    uint32_t longest;       /* bytes of the longest token that can be found */
    char *text;             /* all tokens' bytes in the order of ids */
    uint64_t *starts;       /* [n_tokens + 1] token i is text[starts[i] .. starts[i+1]) */
    uint8_t *kinds;         /* [n_tokens] pleat__token_kind */
    pleat_token bytes[256]; /* the token of each byte; -1: none */

    /* Normal tokens by hash of their bytes, open addressing: high half of the hash << 32 | id + 1; 0 in a free slot. */
    uint64_t *table;     /* [table_mask + 1] */
    uint64_t table_mask; /* a power of two, at least twice the tokens, less 1 */
} pleat__vocab;

/* Read tokenizer.ggml.tokens and .token_type.  No two normal tokens have the same bytes.  Printable ASCII can be
 * spelled in any case; with PLEAT__SPELLING_SPACES a space is a token and so is every byte of UTF-8. */
pleat_status pleat__vocab_init(pleat__vocab *vocab, const pleat_gguf *gguf, pleat__spelling spelling,
                               const pleat_allocator *al, pleat_error *err);
void pleat__vocab_release(pleat__vocab *vocab);

/* The normal token whose bytes are a and b, one behind the other; -1 if there is none. */
pleat_token pleat__vocab_find(const pleat__vocab *vocab, pleat__str a, pleat__str b);

/* Bytes of a token; id is in range. */
pleat__str pleat__vocab_text(const pleat__vocab *vocab, pleat_token id);

/* Undo the spelling of the normal token `s` into out [s.n_bytes]; false where it stands for no text. */
bool pleat__vocab_unspell(pleat__spelling spelling, pleat__str s, char *out, uint64_t *n_out);

#endif
