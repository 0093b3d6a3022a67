/* SPDX-License-Identifier: MIT
 *
 * tree.h: the nodes of a tree of prefixes, for radix.c: their memory, who is whose child, which are leaves.
 *
 *     nodes   [ 0: none | 1..max_roots: roots | the others, in use or in the list of free ones ]
 *     slots   hash table of the nodes that have a parent, by (parent, first id of the edge); linear probing, at most
 *             half full, erased by shifting back what follows
 *     leaves  binary heap by last use
 *
 * An entry's number is its node's: splitting puts a new node above, merging keeps the lower one.  A node without
 * children has an entry, roots apart; so "no entry below" is "no children".
 *
 * max_entries = M need at most 2 M nodes besides the roots: by (2) there are fewer nodes without an entry than entries.
 * Only where memory was refused there may be more; they are merged before the last nodes would be used up.
 */
#ifndef PLEAT_PREFIX_TREE_H
#define PLEAT_PREFIX_TREE_H

#include "core/checked.h"
#include "prefix/radix.h"

typedef enum pleat__node_state {
    PLEAT__NODE_FREE,
    PLEAT__NODE_BARE, /* without an entry */
    PLEAT__NODE_PROMISED,
    PLEAT__NODE_KEPT
} pleat__node_state;

typedef struct pleat__node {
    int32_t *tokens;   /* of the edge that leads here, [n_edge]; NULL at a root */
    uint32_t n_edge;   /* >= 1, but 0 at a root */
    int32_t first;     /* tokens[0] */
    uint32_t n_tokens; /* from the root to the end of the edge */
    uint32_t parent;   /* 0 at a root; of a free node: the next free one, or 0 */
    uint32_t n_children;
    uint32_t children; /* exclusive or of their numbers: an only child's number */
    pleat__node_state state;
    uint32_t value;
    uint32_t n_locks;
    uint32_t leaf; /* place in the heap, counted from 1; 0: no leaf */
    uint64_t n_hits;
    uint64_t last_use; /* the tree's clock, different for all kept entries */
} pleat__node;

typedef struct pleat__root_key {
    void *bytes; /* NULL if there are none */
    uint32_t n_bytes;
} pleat__root_key;

struct pleat__radix {
    pleat_allocator allocator;
    uint32_t max_entries, max_roots;
    uint32_t n_entries, n_roots, n_leaves;
    uint32_t n_nodes;          /* in the array, with 0 and the roots */
    uint32_t n_free;           /* nodes in the list */
    uint32_t free;             /* the first of them */
    uint32_t slot_mask;        /* slots are a power of two, >= twice the nodes with a parent */
    bool is_loose;             /* there may be nodes that could not be merged */
    uint64_t clock;            /* uses so far */
    uint64_t n_tokens;         /* on all edges */
    uint64_t own_bytes, bytes; /* the block of all this; with edges and keys */
    pleat__node *nodes;        /* [n_nodes] */
    uint32_t *slots;           /* [slot_mask + 1] a node, or 0 */
    uint32_t *leaves;          /* [max_entries], n_leaves in use */
    pleat__root_key *keys;     /* [max_roots], n_roots in use */
};

static inline bool pleat__node_is_entry(const pleat__node *n) {
    return n->state == PLEAT__NODE_PROMISED || n->state == PLEAT__NODE_KEPT;
}

/* What the allocator is asked for when `bytes` are wanted. */
uint64_t pleat__tree_block_bytes(uint64_t bytes);

/* The tokens of an edge, n >= 1; NULL when there is no memory.  Freeing NULL is fine. */
int32_t *pleat__tree_edge_copy(pleat__radix *tree, const int32_t *from, uint32_t n);
void pleat__tree_edge_free(pleat__radix *tree, int32_t *tokens, uint32_t n);

/* Node i is free from now on; its edge has been freed, or has gone elsewhere. */
void pleat__tree_return_node(pleat__radix *tree, uint32_t i);

/* The child of `parent` whose edge begins with `first`, or 0. */
uint32_t pleat__tree_child(const pleat__radix *tree, uint32_t parent, int32_t first);

/* A new child, without an entry, at the end of an edge of n_edge tokens, which the tree owns from now on.  There is a
 * free node, and no child whose edge begins alike. */
uint32_t pleat__tree_add_child(pleat__radix *tree, uint32_t parent, int32_t *tokens, uint32_t n_edge);

/* A new node after the first n_upper tokens of the edge to node i, 0 < n_upper < n_edge.  There is a free node.  0: no
 * memory, nothing has changed. */
uint32_t pleat__tree_split(pleat__radix *tree, uint32_t i, uint32_t n_upper);

/* (3), after a change to node i or to the number of its children. */
void pleat__tree_update_leaf(pleat__radix *tree, uint32_t i);

/* (2) and (3), after node i has lost its entry: for it and those above. */
void pleat__tree_prune(pleat__radix *tree, uint32_t i);

/* Merge what could not be merged when it should have been. */
void pleat__tree_tidy(pleat__radix *tree);

#endif
