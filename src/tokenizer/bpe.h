/* SPDX-License-Identifier: MIT
 *
 * bpe.h: byte-pair merging of one word: the pair of lowest rank is joined, the leftmost of equals first, until no pair
 * of neighbours has a rank.
 *
 *     ids of single bytes   h e l l o      ranks   h e: 3    l l: 1    he ll: 7    hell o: 9
 *                           h e ll o
 *                           he ll o
 *                           hell o
 *                           hello
 *
 * The symbols stand in a doubly linked list and the pairs in a heap, so a word of n bytes takes O(n log n) however long
 * it is (a run of spaces is one word).  The table of merges is filled once and read from any thread afterwards; each
 * call of pleat__bpe_merge() works in a scratch of its caller's.
 */
#ifndef PLEAT_TOKENIZER_BPE_H
#define PLEAT_TOKENIZER_BPE_H

#include "core/types.h"
#include "pleat/model.h"

#define PLEAT__NO_RANK UINT32_MAX

/* (left, right) -> rank and joined token. */
typedef struct pleat__bpe_slot {
    pleat_token left, right; /* left is -1 in a free slot */
    uint32_t rank;
    pleat_token joined;
} pleat__bpe_slot;

typedef struct pleat__bpe {
    pleat_allocator al;
    pleat__bpe_slot *slots; /* [mask + 1] open addressing */
    uint64_t mask;          /* a power of two, more than the merges, less 1 */
} pleat__bpe;

/* An empty table for up to n_merges merges.  PLEAT_E_MEMORY. */
pleat_status pleat__bpe_init(pleat__bpe *bpe, uint32_t n_merges, const pleat_allocator *al);
void pleat__bpe_release(pleat__bpe *bpe);

/* Enter a merge; false if the pair is there already. */
bool pleat__bpe_add(pleat__bpe *bpe, pleat_token left, pleat_token right, uint32_t rank, pleat_token joined);

/* The merge of a pair, or NULL. */
const pleat__bpe_slot *pleat__bpe_find(const pleat__bpe *bpe, pleat_token left, pleat_token right);

struct pleat__bpe_symbol;

/* Room for words of up to `cap` bytes; grows by doubling.  Zero-initialise but for al. */
typedef struct pleat__bpe_scratch {
    const pleat_allocator *al;
    uint32_t cap;
    pleat_token *ids;                  /* [cap] the word: bytes' tokens in, its tokens out */
    struct pleat__bpe_symbol *symbols; /* [cap] */
    uint64_t *heap;                    /* [2*cap] rank << 32 | index of the pair's left symbol */
} pleat__bpe_scratch;

#define PLEAT__MAX_WORD_BYTES (1u << 30)

/* Make room for a word of n_bytes, at most PLEAT__MAX_WORD_BYTES; ids is not kept.  PLEAT_E_MEMORY. */
pleat_status pleat__bpe_scratch_reserve(pleat__bpe_scratch *scratch, uint32_t n_bytes);
void pleat__bpe_scratch_release(pleat__bpe_scratch *scratch);

/* Merge scratch->ids[0..n) in place, n <= cap.  Returns the number of tokens left. */
uint32_t pleat__bpe_merge(const pleat__bpe *bpe, pleat__bpe_scratch *scratch, uint32_t n);

#endif
