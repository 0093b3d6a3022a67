/* SPDX-License-Identifier: MIT
 *
 * radix.h: which prefixes of token ids have been computed and kept.  Integers only: what is kept behind a prefix is one
 * number of the caller's.
 *
 *     root "f16 | alice" ── 5 9 2 7 ──(A: 4)── 1 1 ──(B: 6)          (X: n) an entry, at the end of n tokens
 *                              └──────────────── 8 3 3 ── 4 ──(C: 8)
 *
 * A root stands for everything but the tokens that a prefix depends on: model, KV spec, tenant's salt.  Below it each
 * edge carries a run of token ids; edges of one node begin with different ids.  Ids are compared, never hashed alone.
 *
 * An entry is a place where somebody stopped and kept what was computed so far.  It is promised first (someone is
 * computing it: others may wait) and kept when its value is known; a promise that is not kept is forgotten.  Entries can
 * be locked, by those who use them.  An entry that is kept, not locked and has none below it is a leaf; leaves go in the
 * order of their last use, which is when they were kept or last unlocked.
 *
 *     (1) an entry stands at the end of the edge that leads to it: inserting in the middle of an edge splits it
 *     (2) a node without an entry has at least two children, roots apart: removing merges edges.  Where the memory for
 *         that is refused the node stays, with one child, until a new entry takes its place or its turn comes
 *     (3) the heap of leaves holds exactly the entries that are kept, not locked and have no entry below them,
 *         least recently used on top
 *     (4) n_entries counts entries; n_tokens the ids on all edges; bytes is what the allocator has handed out
 *
 * SGLang's RadixAttention (Zheng et al. 2024, section 3) with promises and without its page runs, which are the cache's.
 *
 * Walking along n tokens costs O(n), however many children a node has: one hash table from (parent, first id) to child
 * serves the whole tree.  The oldest leaf is found in O(1); what makes or ends a leaf costs O(log leaves).  Nodes, table
 * and heap are allocated by create, the ids of edges when they come: a promise allocates at most three times, removing
 * at most once, which may be refused.  One thread at a time.
 */
#ifndef PLEAT_PREFIX_RADIX_H
#define PLEAT_PREFIX_RADIX_H

#include "core/memory.h"
#include "core/types.h"

typedef struct pleat__radix pleat__radix;

/* An entry of a tree; 0 is none.  Means nothing once it has been removed. */
typedef struct pleat__prefix {
    uint32_t v;
} pleat__prefix;

/* max_entries and max_roots: how many there may be at once, 1..PLEAT__RADIX_MAX; about 170 bytes for each entry are
 * taken now.  PLEAT_E_ARG, PLEAT_E_MEMORY. */
#define PLEAT__RADIX_MAX (1u << 30)
pleat_status pleat__radix_create(uint32_t max_entries, uint32_t max_roots, const pleat_allocator *allocator,
                                 pleat__radix **out);

#define PLEAT__NO_ROOT UINT32_MAX

/* The root of `key`, n_bytes >= 0 bytes of any kind, made at first use; kept until destroy.  PLEAT_E_LIMIT when there
 * are max_roots others, PLEAT_E_MEMORY.  O(roots). */
pleat_status pleat__radix_root(pleat__radix *tree, const void *key, uint32_t n_bytes, uint32_t *root);

/* It, if it has been made; else PLEAT__NO_ROOT.  O(roots). */
uint32_t pleat__radix_find_root(const pleat__radix *tree, const void *key, uint32_t n_bytes);

/* The longest entry that is a prefix of tokens[0..n_tokens), kept ones and promises alike; v is 0 if there is none. */
pleat__prefix pleat__radix_find(const pleat__radix *tree, uint32_t root, const int32_t *tokens, uint32_t n_tokens);

/* The longest kept entry that is a prefix of tokens[0..n_tokens). */
pleat__prefix pleat__radix_find_kept(const pleat__radix *tree, uint32_t root, const int32_t *tokens, uint32_t n_tokens);

/* Promise an entry for exactly tokens[0..n_tokens), n_tokens >= 1.  PLEAT_E_STATE when there is one (*out names it),
 * PLEAT_E_LIMIT when there are max_entries, PLEAT_E_MEMORY; nothing has changed then, but that nodes left over by (2) may
 * have been merged. */
pleat_status pleat__radix_promise(pleat__radix *tree, uint32_t root, const int32_t *tokens, uint32_t n_tokens,
                                  pleat__prefix *out);

/* Keep a promise: value is what stands behind it from now on.  The entry is the most recently used. */
void pleat__radix_keep(pleat__radix *tree, pleat__prefix entry, uint32_t value);

/* Remove a promise, or a kept entry that is not locked; entries below it stay.  Returns its value (0 for a promise). */
uint32_t pleat__radix_remove(pleat__radix *tree, pleat__prefix entry);

/* Users of a kept entry: while there is one it is not evicted.  Locking counts a hit. */
void pleat__radix_lock(pleat__radix *tree, pleat__prefix entry);
void pleat__radix_unlock(pleat__radix *tree, pleat__prefix entry); /* it is the most recently used */

/* The least recently used leaf, or none. */
pleat__prefix pleat__radix_oldest_leaf(const pleat__radix *tree);

typedef struct pleat__prefix_info {
    uint32_t n_tokens; /* of the whole prefix */
    uint32_t value;
    uint32_t n_locks;
    uint64_t n_hits; /* times that it was locked */
    bool is_kept;    /* no promise */
} pleat__prefix_info;
pleat__prefix_info pleat__radix_info(const pleat__radix *tree, pleat__prefix entry);

/* The tokens of an entry's prefix into tokens [n_tokens]; returns its root. */
uint32_t pleat__radix_path(const pleat__radix *tree, pleat__prefix entry, int32_t *tokens);

/* The key of a root, which is the tree's. */
const void *pleat__radix_key(const pleat__radix *tree, uint32_t root, uint32_t *n_bytes);

uint32_t pleat__radix_n_entries(const pleat__radix *tree);
uint64_t pleat__radix_n_tokens(const pleat__radix *tree);
uint64_t pleat__radix_bytes(const pleat__radix *tree); /* memory that it holds now, as the allocator counts it */

/* Recompute (1) to (4).  For tests: O(nodes squared). */
bool pleat__radix_is_valid(const pleat__radix *tree);

/* Set *tree to NULL.  NULL and *tree == NULL are fine. */
void pleat__radix_destroy(pleat__radix **tree);

#endif
