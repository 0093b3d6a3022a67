/* SPDX-License-Identifier: MIT
 *
 * vocab.h: the tokens of a byte-level vocabulary: id to bytes, bytes to id, and the special ones.
 *
 * A GGUF of tokenizer `gpt2` spells each byte of a normal token as a printable character (GPT-2's table: a space is
 * U+0120).  Here tokens are the bytes themselves; special ones, as <|im_end|>, are spelled as they stand in a text.
 */
#ifndef PLEAT_TOKENIZER_VOCAB_H
#define PLEAT_TOKENIZER_VOCAB_H

#include "gguf/gguf.h"

#define PLEAT__MAX_VOCAB (1u << 24)

/* Kinds of tokens; the numbers are the file's (tokenizer.ggml.token_type).  Kind 6, byte, is no gpt2 token. */
typedef enum pleat__token_kind {
    PLEAT__TOKEN_NORMAL = 1,
    PLEAT__TOKEN_UNKNOWN = 2,
    PLEAT__TOKEN_CONTROL = 3,
    PLEAT__TOKEN_USER = 4,
    PLEAT__TOKEN_UNUSED = 5
} pleat__token_kind;

/* A control or user-defined token. */
typedef struct pleat__special {
    const char *p;
    uint64_t n_bytes;
    pleat_token id;
    bool is_control;
} pleat__special;

typedef struct pleat__vocab {
    pleat_allocator al;
    void *block; /* all arrays below */
    uint64_t block_bytes;

    uint32_t n_tokens;
    char *text;             /* all tokens' bytes in the order of ids */
    uint64_t *starts;       /* [n_tokens + 1] token i is text[starts[i] .. starts[i+1]) */
    uint8_t *kinds;         /* [n_tokens] pleat__token_kind */
    pleat_token bytes[256]; /* the token of each byte; -1 for those that UTF-8 never has */

    uint32_t *table;     /* [table_mask + 1] id + 1 of normal tokens by hash of their bytes, open addressing; 0: free */
    uint64_t table_mask; /* a power of two, at least twice the tokens, less 1 */

    pleat__special *specials; /* [n_specials] by first byte, then longest first */
    uint32_t n_specials;
    uint32_t special_first[257]; /* specials[special_first[b] .. special_first[b+1]) begin with byte b */
} pleat__vocab;

/* Read tokenizer.ggml.tokens and .token_type.  Every token has a text of its own and every byte of UTF-8 a token. */
pleat_status pleat__vocab_init(pleat__vocab *vocab, const pleat_gguf *gguf, const pleat_allocator *al,
                               pleat_error *err);
void pleat__vocab_release(pleat__vocab *vocab);

/* The normal token whose bytes are a and b, one behind the other; -1 if there is none. */
pleat_token pleat__vocab_find(const pleat__vocab *vocab, pleat__str a, pleat__str b);

/* The special token spelled `name`; -1 if there is none. */
pleat_token pleat__vocab_find_special(const pleat__vocab *vocab, pleat__str name);

/* The longest special token that text[0..n_bytes), n_bytes > 0, begins with, or NULL.  Control tokens only if
 * with_control.  O(special tokens with that first byte). */
const pleat__special *pleat__vocab_special_at(const pleat__vocab *vocab, const char *text, uint64_t n_bytes,
                                              bool with_control);

/* Bytes of a token; id is in range. */
pleat__str pleat__vocab_text(const pleat__vocab *vocab, pleat_token id);

/* Undo GPT-2's spelling of `s` into out [s.n_bytes]; false where a character stands for no byte. */
bool pleat__vocab_unspell(pleat__str s, char *out, uint64_t *n_out);

#endif
