/* SPDX-License-Identifier: MIT
 *
 * bpe.h: merging the symbols of one word: the pair of lowest rank is joined, the leftmost of equals first, until no pair
 * of neighbours has a rank.
 *
 *     symbols               h e l l o      ranks   h e: 3    l l: 1    he ll: 7    hell o: 9
 *                           h e ll o
 *                           he ll o
 *                           hell o
 *                           hello
 *
 * Where ranks come from is the tokenizer's kind: byte-pair encoding lists its merges, pairs of tokens; SentencePiece
 * gives each token a score, and any two symbols whose text together is a token can be joined, the highest score first.
 * Which symbols a word begins with is the caller's: bytes or characters.
 *
 * The symbols stand in a doubly linked list and the pairs in a heap, so a word of n symbols takes O(n log n) however
 * long it is (a run of spaces is one word).  The table of merges is filled once and read from any thread afterwards;
 * each call of pleat__bpe_merge() works in a scratch of its caller's.
 */
#ifndef PLEAT_TOKENIZER_BPE_H
#define PLEAT_TOKENIZER_BPE_H

#include "tokenizer/vocab.h"

#define PLEAT__NO_RANK UINT32_MAX

/* ---- ranks of pairs ---------------------------------------------------------------------------------------------- */

/* What joining two neighbours makes, and when. */
typedef struct pleat__join {
    uint32_t rank; /* below PLEAT__NO_RANK; the lowest first */
    pleat_token joined;
} pleat__join;

/* Look up two neighbours, whose tokens are left and right (-1: no token) and whose bytes together are `text`.  False
 * where they are not joined. */
typedef bool (*pleat__join_fn)(const void *self, pleat_token left, pleat_token right, pleat__str text,
                               pleat__join *out);

/* (left, right) -> rank and joined token. */
typedef struct pleat__bpe_slot {
    pleat_token left, right; /* left is -1 in a free slot */
    pleat__join join;
} pleat__bpe_slot;

/* The listed merges of byte-pair encoding. */
typedef struct pleat__bpe {
    pleat_allocator al;
    pleat__bpe_slot *slots; /* [mask + 1] open addressing */
    uint64_t mask;          /* a power of two, more than the merges, less 1 */
} pleat__bpe;

/* An empty table for up to n_merges merges.  PLEAT_E_MEMORY. */
pleat_status pleat__bpe_init(pleat__bpe *bpe, uint32_t n_merges, const pleat_allocator *al);
void pleat__bpe_release(pleat__bpe *bpe);

/* Enter a merge.  PLEAT_E_FORMAT if the pair is there already, PLEAT_E_LIMIT if too many pairs share its hash. */
pleat_status pleat__bpe_add(pleat__bpe *bpe, pleat_token left, pleat_token right, pleat__join join);

/* A pleat__join_fn; `self` is a pleat__bpe. */
bool pleat__bpe_join(const void *self, pleat_token left, pleat_token right, pleat__str text, pleat__join *out);

/* The scores of SentencePiece. */
typedef struct pleat__scores {
    pleat_allocator al;
    const pleat__vocab *vocab;
    uint32_t *ranks; /* [vocab->n_tokens] the higher the score, the lower the rank; equal for equal scores */
} pleat__scores;

/* Read tokenizer.ggml.scores, one number for each token of the vocabulary, which stays in place. */
pleat_status pleat__scores_init(pleat__scores *scores, const pleat_gguf *gguf, const pleat__vocab *vocab,
                                const pleat_allocator *al, pleat_error *err);
void pleat__scores_release(pleat__scores *scores);

/* A pleat__join_fn; `self` is a pleat__scores. */
bool pleat__scores_join(const void *self, pleat_token left, pleat_token right, pleat__str text, pleat__join *out);

/* ---- merging ----------------------------------------------------------------------------------------------------- */

struct pleat__bpe_symbol;

/* Room for words of up to `cap` symbols; grows by doubling.  Zero-initialise but for al. */
typedef struct pleat__bpe_scratch {
    const pleat_allocator *al;
    uint32_t cap;
    pleat_token *ids;                  /* [cap] the word: its symbols' tokens in, what they became out; -1: no token */
    uint32_t *starts;                  /* [cap] where each symbol begins in the word, in and out */
    struct pleat__bpe_symbol *symbols; /* [cap] */
    uint64_t *heap;                    /* [2*cap] rank << 32 | index of the pair's left symbol */
} pleat__bpe_scratch;

#define PLEAT__MAX_WORD_BYTES (1u << 30)

/* Make room for a word of n symbols, at most PLEAT__MAX_WORD_BYTES; what it holds is not kept.  PLEAT_E_MEMORY. */
pleat_status pleat__bpe_scratch_reserve(pleat__bpe_scratch *scratch, uint32_t n);
void pleat__bpe_scratch_release(pleat__bpe_scratch *scratch);

/* Merge the n symbols in the scratch, n <= cap, whose text is `word`, in place.  Returns how many are left. */
uint32_t pleat__bpe_merge(pleat__join_fn join, const void *self, pleat__bpe_scratch *scratch, uint32_t n,
                          pleat__str word);

#endif
