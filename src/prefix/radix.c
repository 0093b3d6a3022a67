/* SPDX-License-Identifier: MIT
 *
 * radix.c: walking down the tree of prefixes, and what radix.h promises.  The nodes are tree.c's.
 */
#include <assert.h>
#include <string.h>

#include "core/memory.h"
#include "prefix/tree.h"

/* ---- walking down ---------------------------------------------------------------------------------------------------- */

/* How far tokens lead.  All of the edge to `node` has been read, and n_shared tokens of the edge to `child`, less than
 * that has; 0 if no edge goes on like this. */
typedef struct place {
    uint32_t node;
    uint32_t n_read; /* the node's n_tokens */
    uint32_t child;
    uint32_t n_shared;
    uint32_t entry, kept; /* the last ones on the way, node included, or 0 */
} place;

/* Tokens that a and b [n] begin with together. */
static uint32_t n_common(const int32_t *a, const int32_t *b, uint32_t n) {
    uint32_t i = 0;
    while (n - i >= PLEAT__TILE && memcmp(a + i, b + i, PLEAT__TILE * sizeof *a) == 0) i += PLEAT__TILE;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

static place walk(const pleat__radix *tree, uint32_t root, const int32_t *tokens, uint32_t n_tokens) {
    assert(root < tree->n_roots);
    place at = {.node = root + 1};
    while (at.n_read < n_tokens) {
        at.child = pleat__tree_child(tree, at.node, tokens[at.n_read]);
        if (at.child == 0) break;
        const pleat__node *n = &tree->nodes[at.child];
        at.n_shared = n_common(n->tokens, tokens + at.n_read, pleat__min_u32(n->n_edge, n_tokens - at.n_read));
        if (at.n_shared < n->n_edge) break;
        at = (place){.node = at.child, .n_read = n->n_tokens, .entry = at.entry, .kept = at.kept};
        if (pleat__node_is_entry(n)) at.entry = at.node;
        if (n->state == PLEAT__NODE_KEPT) at.kept = at.node;
    }
    return at;
}

/* The node of an entry. */
static pleat__node *node_of(const pleat__radix *tree, pleat__prefix entry) {
    assert(entry.v > tree->max_roots && entry.v < tree->n_nodes && pleat__node_is_entry(&tree->nodes[entry.v]));
    return &tree->nodes[entry.v];
}

/* ---- the interface --------------------------------------------------------------------------------------------------- */

static pleat__radix *carve(pleat__arena *arena, uint32_t max_entries, uint32_t max_roots) {
    uint64_t n_slots = 4;
    while (n_slots < 4 * (uint64_t)max_entries) n_slots *= 2;
    const uint32_t n_nodes = 1 + max_roots + 2 * max_entries;
    pleat__radix *tree = pleat__arena_take(arena, 1, sizeof *tree);
    pleat__node *nodes = pleat__arena_take(arena, n_nodes, sizeof *nodes);
    uint32_t *slots = pleat__arena_take(arena, n_slots, sizeof *slots);
    uint32_t *leaves = pleat__arena_take(arena, max_entries, sizeof *leaves);
    pleat__root_key *keys = pleat__arena_take(arena, max_roots, sizeof *keys);
    if (!tree) return NULL;
    *tree = (pleat__radix){.max_entries = max_entries,
                           .max_roots = max_roots,
                           .n_nodes = n_nodes,
                           .slot_mask = (uint32_t)(n_slots - 1),
                           .nodes = nodes,
                           .slots = slots,
                           .leaves = leaves,
                           .keys = keys};
    return tree;
}

pleat_status pleat__radix_create(uint32_t max_entries, uint32_t max_roots, const pleat_allocator *allocator,
                                 pleat__radix **out) {
    if (max_entries == 0 || max_entries > PLEAT__RADIX_MAX) return PLEAT_E_ARG;
    if (max_roots == 0 || max_roots > PLEAT__RADIX_MAX) return PLEAT_E_ARG;
    const pleat_allocator al = pleat__allocator_or_default(allocator);
    pleat__arena arena = {0};
    carve(&arena, max_entries, max_roots);
    const uint64_t n_bytes = arena.used_bytes;
    void *block = pleat__alloc_zero(&al, 1, n_bytes);
    if (!block) return PLEAT_E_MEMORY;
    arena = (pleat__arena){.base = block, .cap_bytes = n_bytes};
    pleat__radix *tree = carve(&arena, max_entries, max_roots);
    tree->allocator = al;
    tree->own_bytes = tree->bytes = n_bytes;
    for (uint32_t i = 1; i <= max_roots; i++) tree->nodes[i].state = PLEAT__NODE_BARE;
    for (uint32_t i = tree->n_nodes - 1; i > max_roots; i--) pleat__tree_return_node(tree, i);
    *out = tree;
    return PLEAT_OK;
}

uint32_t pleat__radix_find_root(const pleat__radix *tree, const void *key, uint32_t n_bytes) {
    for (uint32_t i = 0; i < tree->n_roots; i++) {
        const pleat__root_key *k = &tree->keys[i];
        if (k->n_bytes == n_bytes && (n_bytes == 0 || memcmp(k->bytes, key, n_bytes) == 0)) return i;
    }
    return PLEAT__NO_ROOT;
}

pleat_status pleat__radix_root(pleat__radix *tree, const void *key, uint32_t n_bytes, uint32_t *root) {
    *root = pleat__radix_find_root(tree, key, n_bytes);
    if (*root != PLEAT__NO_ROOT) return PLEAT_OK;
    if (tree->n_roots == tree->max_roots) return PLEAT_E_LIMIT;
    pleat__root_key k = {.n_bytes = n_bytes};
    if (n_bytes > 0) {
        k.bytes = pleat__alloc(&tree->allocator, n_bytes, 1);
        if (!k.bytes) return PLEAT_E_MEMORY;
        memcpy(k.bytes, key, n_bytes);
        tree->bytes += pleat__tree_block_bytes(n_bytes);
    }
    tree->keys[tree->n_roots] = k;
    *root = tree->n_roots++;
    return PLEAT_OK;
}

pleat__prefix pleat__radix_find(const pleat__radix *tree, uint32_t root, const int32_t *tokens, uint32_t n_tokens) {
    return (pleat__prefix){walk(tree, root, tokens, n_tokens).entry};
}

pleat__prefix pleat__radix_find_kept(const pleat__radix *tree, uint32_t root, const int32_t *tokens,
                                     uint32_t n_tokens) {
    return (pleat__prefix){walk(tree, root, tokens, n_tokens).kept};
}

/* The node at the end of `tokens`, of which `at` are known, made if there is none.  0: no memory, nothing changed. */
static uint32_t reach(pleat__radix *tree, place at, const int32_t *tokens, uint32_t n_tokens) {
    const uint32_t n_known = at.n_read + at.n_shared, n_rest = n_tokens - n_known;
    if (tree->n_free < (at.child != 0 ? 1u : 0u) + (n_rest > 0 ? 1u : 0u)) return 0;
    int32_t *rest = n_rest > 0 ? pleat__tree_edge_copy(tree, tokens + n_known, n_rest) : NULL;
    if (n_rest > 0 && !rest) return 0;
    uint32_t i = at.child != 0 ? pleat__tree_split(tree, at.child, at.n_shared) : at.node;
    if (i == 0) {
        pleat__tree_edge_free(tree, rest, n_rest);
        return 0;
    }
    if (n_rest == 0) return i;
    const uint32_t above = i;
    i = pleat__tree_add_child(tree, above, rest, n_rest);
    tree->n_tokens += n_rest;
    pleat__tree_update_leaf(tree, above);
    return i;
}

pleat_status pleat__radix_promise(pleat__radix *tree, uint32_t root, const int32_t *tokens, uint32_t n_tokens,
                                  pleat__prefix *out) {
    assert(n_tokens > 0);
    if (tree->is_loose && tree->n_free < 2) pleat__tree_tidy(tree);
    const place at = walk(tree, root, tokens, n_tokens);
    if (at.n_read == n_tokens && pleat__node_is_entry(&tree->nodes[at.node])) {
        out->v = at.node;
        return PLEAT_E_STATE;
    }
    if (tree->n_entries == tree->max_entries) return PLEAT_E_LIMIT;
    const uint32_t i = reach(tree, at, tokens, n_tokens);
    if (i == 0) return PLEAT_E_MEMORY;
    tree->nodes[i].state = PLEAT__NODE_PROMISED;
    tree->n_entries++;
    out->v = i;
    return PLEAT_OK;
}

void pleat__radix_keep(pleat__radix *tree, pleat__prefix entry, uint32_t value) {
    pleat__node *n = node_of(tree, entry);
    assert(n->state == PLEAT__NODE_PROMISED);
    n->state = PLEAT__NODE_KEPT;
    n->value = value;
    n->last_use = ++tree->clock;
    pleat__tree_update_leaf(tree, entry.v);
}

uint32_t pleat__radix_remove(pleat__radix *tree, pleat__prefix entry) {
    pleat__node *n = node_of(tree, entry);
    assert(n->n_locks == 0);
    const uint32_t value = n->value;
    n->state = PLEAT__NODE_BARE;
    n->value = 0;
    n->n_hits = n->last_use = 0;
    tree->n_entries--;
    pleat__tree_update_leaf(tree, entry.v);
    pleat__tree_prune(tree, entry.v);
    return value;
}

void pleat__radix_lock(pleat__radix *tree, pleat__prefix entry) {
    pleat__node *n = node_of(tree, entry);
    assert(n->state == PLEAT__NODE_KEPT);
    n->n_locks++;
    n->n_hits++;
    pleat__tree_update_leaf(tree, entry.v);
}

void pleat__radix_unlock(pleat__radix *tree, pleat__prefix entry) {
    pleat__node *n = node_of(tree, entry);
    assert(n->n_locks > 0);
    n->n_locks--;
    n->last_use = ++tree->clock;
    pleat__tree_update_leaf(tree, entry.v);
}

pleat__prefix pleat__radix_oldest_leaf(const pleat__radix *tree) {
    return (pleat__prefix){tree->n_leaves > 0 ? tree->leaves[0] : 0};
}

pleat__prefix_info pleat__radix_info(const pleat__radix *tree, pleat__prefix entry) {
    const pleat__node *n = node_of(tree, entry);
    return (pleat__prefix_info){.n_tokens = n->n_tokens,
                                .value = n->value,
                                .n_locks = n->n_locks,
                                .n_hits = n->n_hits,
                                .is_kept = n->state == PLEAT__NODE_KEPT};
}

uint32_t pleat__radix_path(const pleat__radix *tree, pleat__prefix entry, int32_t *tokens) {
    const pleat__node *n = node_of(tree, entry);
    uint32_t i = entry.v;
    for (; n->n_edge > 0; n = &tree->nodes[i]) {
        memcpy(tokens + n->n_tokens - n->n_edge, n->tokens, n->n_edge * sizeof *tokens);
        i = n->parent;
    }
    return i - 1;
}

const void *pleat__radix_key(const pleat__radix *tree, uint32_t root, uint32_t *n_bytes) {
    assert(root < tree->n_roots);
    *n_bytes = tree->keys[root].n_bytes;
    return tree->keys[root].bytes;
}

uint32_t pleat__radix_n_entries(const pleat__radix *tree) { return tree->n_entries; }
uint64_t pleat__radix_n_tokens(const pleat__radix *tree) { return tree->n_tokens; }
uint64_t pleat__radix_bytes(const pleat__radix *tree) { return tree->bytes; }

void pleat__radix_destroy(pleat__radix **tree) {
    if (!tree || !*tree) return;
    pleat__radix *t = *tree;
    for (uint32_t i = t->max_roots + 1; i < t->n_nodes; i++)
        pleat__tree_edge_free(t, t->nodes[i].tokens, t->nodes[i].n_edge);
    for (uint32_t i = 0; i < t->n_roots; i++) pleat__free(&t->allocator, t->keys[i].bytes, t->keys[i].n_bytes, 1);
    const pleat_allocator al = t->allocator;
    pleat__free(&al, t, 1, t->own_bytes);
    *tree = NULL;
}
