/* SPDX-License-Identifier: MIT
 *
 * tree.c: see tree.h.
 */
#include "prefix/tree.h"

#include <assert.h>
#include <string.h>

#include "core/rng.h"

/* ---- memory ---------------------------------------------------------------------------------------------------------- */

uint64_t pleat__tree_block_bytes(uint64_t bytes) {
    uint64_t rounded = 0;
    (void)pleat__align_u64(bytes, PLEAT__ALIGN, &rounded);
    return rounded;
}

static int32_t *edge_alloc(pleat__radix *tree, uint32_t n) {
    int32_t *tokens = pleat__alloc(&tree->allocator, n, sizeof *tokens);
    if (tokens) tree->bytes += pleat__tree_block_bytes(n * sizeof *tokens);
    return tokens;
}

int32_t *pleat__tree_edge_copy(pleat__radix *tree, const int32_t *from, uint32_t n) {
    int32_t *tokens = edge_alloc(tree, n);
    if (tokens) memcpy(tokens, from, n * sizeof *tokens);
    return tokens;
}

void pleat__tree_edge_free(pleat__radix *tree, int32_t *tokens, uint32_t n) {
    if (!tokens) return;
    tree->bytes -= pleat__tree_block_bytes(n * sizeof *tokens);
    pleat__free(&tree->allocator, tokens, n, sizeof *tokens);
}

static uint32_t node_take(pleat__radix *tree) {
    const uint32_t i = tree->free;
    assert(tree->n_free > 0 && tree->nodes[i].state == PLEAT__NODE_FREE);
    tree->free = tree->nodes[i].parent;
    tree->n_free--;
    return i;
}

void pleat__tree_return_node(pleat__radix *tree, uint32_t i) {
    tree->nodes[i] = (pleat__node){.state = PLEAT__NODE_FREE, .parent = tree->free};
    tree->free = i;
    tree->n_free++;
}

/* ---- who is whose child ---------------------------------------------------------------------------------------------- */

static uint32_t home_slot(const pleat__radix *tree, uint32_t parent, int32_t first) {
    pleat__rng mix = {(uint64_t)parent << 32 | (uint32_t)first};
    return (uint32_t)pleat__rng_u64(&mix) & tree->slot_mask;
}

/* The slot that holds the child, or the empty one where it would stand. */
static uint32_t find_slot(const pleat__radix *tree, uint32_t parent, int32_t first) {
    uint32_t at = home_slot(tree, parent, first);
    for (;; at = (at + 1) & tree->slot_mask) {
        const pleat__node *n = &tree->nodes[tree->slots[at]];
        if (tree->slots[at] == 0 || (n->parent == parent && n->first == first)) return at;
    }
}

uint32_t pleat__tree_child(const pleat__radix *tree, uint32_t parent, int32_t first) {
    return tree->slots[find_slot(tree, parent, first)];
}

/* Node i, whose parent and first are set, becomes that parent's child. */
static void link_child(pleat__radix *tree, uint32_t i) {
    const pleat__node *n = &tree->nodes[i];
    tree->slots[find_slot(tree, n->parent, n->first)] = i;
    tree->nodes[n->parent].n_children++;
    tree->nodes[n->parent].children ^= i;
}

/* The reverse.  Nodes further on in the table move into the gap unless that would be before their home. */
static void unlink_child(pleat__radix *tree, uint32_t i) {
    const pleat__node *n = &tree->nodes[i];
    const uint32_t mask = tree->slot_mask;
    uint32_t gap = find_slot(tree, n->parent, n->first);
    for (uint32_t at = (gap + 1) & mask; tree->slots[at] != 0; at = (at + 1) & mask) {
        const pleat__node *other = &tree->nodes[tree->slots[at]];
        const uint32_t home = home_slot(tree, other->parent, other->first);
        if (((at - home) & mask) < ((at - gap) & mask)) continue;
        tree->slots[gap] = tree->slots[at];
        gap = at;
    }
    tree->slots[gap] = 0;
    tree->nodes[n->parent].n_children--;
    tree->nodes[n->parent].children ^= i;
}

/* ---- leaves ---------------------------------------------------------------------------------------------------------- */

static bool should_be_leaf(const pleat__node *n) {
    return n->state == PLEAT__NODE_KEPT && n->n_locks == 0 && n->n_children == 0;
}

static uint64_t leaf_use(const pleat__radix *tree, uint32_t at) { return tree->nodes[tree->leaves[at]].last_use; }

static void leaf_put(pleat__radix *tree, uint32_t at, uint32_t i) {
    tree->leaves[at] = i;
    tree->nodes[i].leaf = at + 1;
}

/* Node i enters the heap where `at` is free: there, or nearer to the top or the bottom. */
static void leaf_settle(pleat__radix *tree, uint32_t at, uint32_t i) {
    const uint64_t use = tree->nodes[i].last_use;
    for (; at > 0 && leaf_use(tree, (at - 1) / 2) > use; at = (at - 1) / 2)
        leaf_put(tree, at, tree->leaves[(at - 1) / 2]);
    for (;;) {
        uint32_t below = 2 * at + 1;
        if (below + 1 < tree->n_leaves && leaf_use(tree, below + 1) < leaf_use(tree, below)) below++;
        if (below >= tree->n_leaves || leaf_use(tree, below) > use) break;
        leaf_put(tree, at, tree->leaves[below]);
        at = below;
    }
    leaf_put(tree, at, i);
}

void pleat__tree_update_leaf(pleat__radix *tree, uint32_t i) {
    pleat__node *n = &tree->nodes[i];
    if (should_be_leaf(n) == (n->leaf != 0)) return;
    if (n->leaf == 0) {
        tree->n_leaves++;
        leaf_settle(tree, tree->n_leaves - 1, i);
        return;
    }
    const uint32_t at = n->leaf - 1, last = tree->leaves[--tree->n_leaves];
    n->leaf = 0;
    if (at < tree->n_leaves) leaf_settle(tree, at, last);
}

/* ---- the shape of the tree ------------------------------------------------------------------------------------------- */

uint32_t pleat__tree_add_child(pleat__radix *tree, uint32_t parent, int32_t *tokens, uint32_t n_edge) {
    const uint32_t i = node_take(tree);
    tree->nodes[i] = (pleat__node){.tokens = tokens,
                                   .n_edge = n_edge,
                                   .first = tokens[0],
                                   .n_tokens = tree->nodes[parent].n_tokens + n_edge,
                                   .parent = parent,
                                   .state = PLEAT__NODE_BARE};
    link_child(tree, i);
    return i;
}

/* Node i gets other tokens and another parent; it has none when this is called. */
static void move_child(pleat__radix *tree, uint32_t i, uint32_t parent, int32_t *tokens, uint32_t n_edge) {
    pleat__node *n = &tree->nodes[i];
    pleat__tree_edge_free(tree, n->tokens, n->n_edge);
    n->tokens = tokens;
    n->n_edge = n_edge;
    n->first = tokens[0];
    n->parent = parent;
    link_child(tree, i);
}

uint32_t pleat__tree_split(pleat__radix *tree, uint32_t i, uint32_t n_upper) {
    const pleat__node n = tree->nodes[i];
    const uint32_t n_lower = n.n_edge - n_upper;
    int32_t *upper = pleat__tree_edge_copy(tree, n.tokens, n_upper);
    int32_t *lower = upper ? pleat__tree_edge_copy(tree, n.tokens + n_upper, n_lower) : NULL;
    if (!lower) {
        pleat__tree_edge_free(tree, upper, n_upper);
        return 0;
    }
    unlink_child(tree, i);
    const uint32_t middle = pleat__tree_add_child(tree, n.parent, upper, n_upper);
    move_child(tree, i, middle, lower, n_lower);
    return middle;
}

/* Node i, which has one child and no entry, goes; its tokens become the first of its child's.  It stays if there is no
 * memory. */
static void merge(pleat__radix *tree, uint32_t i) {
    const pleat__node n = tree->nodes[i];
    const pleat__node child = tree->nodes[n.children];
    int32_t *tokens = edge_alloc(tree, n.n_edge + child.n_edge);
    if (!tokens) {
        tree->is_loose = true;
        return;
    }
    memcpy(tokens, n.tokens, n.n_edge * sizeof *tokens);
    memcpy(tokens + n.n_edge, child.tokens, child.n_edge * sizeof *tokens);
    unlink_child(tree, n.children);
    unlink_child(tree, i);
    move_child(tree, n.children, n.parent, tokens, n.n_edge + child.n_edge);
    pleat__tree_edge_free(tree, n.tokens, n.n_edge);
    pleat__tree_return_node(tree, i);
}

void pleat__tree_tidy(pleat__radix *tree) {
    tree->is_loose = false;
    for (uint32_t i = tree->max_roots + 1; i < tree->n_nodes; i++)
        if (tree->nodes[i].state == PLEAT__NODE_BARE && tree->nodes[i].n_children == 1) merge(tree, i);
}

void pleat__tree_prune(pleat__radix *tree, uint32_t i) {
    while (i > tree->max_roots && tree->nodes[i].state == PLEAT__NODE_BARE && tree->nodes[i].n_children == 0) {
        const pleat__node n = tree->nodes[i];
        unlink_child(tree, i);
        pleat__tree_edge_free(tree, n.tokens, n.n_edge);
        tree->n_tokens -= n.n_edge;
        pleat__tree_return_node(tree, i);
        i = n.parent;
    }
    if (i > tree->max_roots && tree->nodes[i].state == PLEAT__NODE_BARE && tree->nodes[i].n_children == 1)
        merge(tree, i);
    pleat__tree_update_leaf(tree, i);
}

/* ---- is it sound? ---------------------------------------------------------------------------------------------------- */

/* Node i and its place among its parent's children; roots have none of this. */
static bool edge_is_valid(const pleat__radix *tree, uint32_t i) {
    const pleat__node *n = &tree->nodes[i];
    if (n->parent == 0 || n->parent >= tree->n_nodes || n->n_edge == 0 || !n->tokens) return false;
    const pleat__node *parent = &tree->nodes[n->parent];
    return parent->state != PLEAT__NODE_FREE && n->n_tokens == parent->n_tokens + n->n_edge &&
           n->first == n->tokens[0] && pleat__tree_child(tree, n->parent, n->first) == i;
}

/* What a node says of its children, and (1) to (3). */
static bool node_is_valid(const pleat__radix *tree, uint32_t i) {
    const pleat__node *n = &tree->nodes[i];
    const bool is_root = i <= tree->max_roots;
    uint32_t n_children = 0, children = 0;
    for (uint32_t j = tree->max_roots + 1; j < tree->n_nodes; j++) {
        if (tree->nodes[j].state == PLEAT__NODE_FREE || tree->nodes[j].parent != i) continue;
        n_children++;
        children ^= j;
    }
    if (n->n_children != n_children || n->children != children) return false;
    if (is_root ? n->state != PLEAT__NODE_BARE || n->parent != 0 || n->n_tokens != 0 : !edge_is_valid(tree, i))
        return false;
    if (!is_root && n->state == PLEAT__NODE_BARE && n_children < (tree->is_loose ? 1u : 2u)) return false;
    if (n->state != PLEAT__NODE_KEPT && (n->n_locks != 0 || n->value != 0)) return false;
    if (n->state == PLEAT__NODE_KEPT && (n->last_use == 0 || n->last_use > tree->clock)) return false;
    if (!should_be_leaf(n)) return n->leaf == 0;
    return n->leaf > 0 && n->leaf <= tree->n_leaves && tree->leaves[n->leaf - 1] == i &&
           (n->leaf == 1 || leaf_use(tree, n->leaf / 2 - 1) < n->last_use);
}

/* The list of free nodes ends after n_free of them. */
static bool free_is_valid(const pleat__radix *tree) {
    uint32_t i = tree->free;
    for (uint32_t n = 0; n < tree->n_free; n++) {
        if (i <= tree->max_roots || i >= tree->n_nodes || tree->nodes[i].state != PLEAT__NODE_FREE) return false;
        i = tree->nodes[i].parent;
    }
    return i == 0;
}

bool pleat__radix_is_valid(const pleat__radix *tree) {
    uint32_t n_entries = 0, n_free = 0, n_leaves = 0, n_linked = 0;
    uint64_t n_tokens = 0, bytes = tree->own_bytes;
    for (uint32_t i = 1; i < tree->n_nodes; i++) {
        const pleat__node *n = &tree->nodes[i];
        n_free += n->state == PLEAT__NODE_FREE;
        if (n->state == PLEAT__NODE_FREE) continue;
        if (!node_is_valid(tree, i)) return false;
        n_entries += pleat__node_is_entry(n);
        n_leaves += n->leaf != 0;
        n_tokens += n->n_edge;
        bytes += pleat__tree_block_bytes(n->n_edge * sizeof *n->tokens);
    }
    for (uint64_t at = 0; at <= tree->slot_mask; at++) n_linked += tree->slots[at] != 0;
    for (uint32_t i = 0; i < tree->n_roots; i++) bytes += pleat__tree_block_bytes(tree->keys[i].n_bytes);
    return n_entries == tree->n_entries && n_entries <= tree->max_entries && n_tokens == tree->n_tokens &&
           bytes == tree->bytes && n_leaves == tree->n_leaves && n_free == tree->n_free && free_is_valid(tree) &&
           n_linked == tree->n_nodes - 1 - tree->max_roots - n_free;
}
