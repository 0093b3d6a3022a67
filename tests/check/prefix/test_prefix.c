/* SPDX-License-Identifier: MIT
 *
 * test_prefix.c: the tree of prefixes, case by case and against a naive oracle.
 *
 * The oracle is a plain list of entries, each with its tokens; what the tree answers in one walk it answers by looking
 * at all of them.  A million random operations drive both, over an alphabet of three tokens, so that prefixes collide
 * all the time.  The tree swings between full and empty, and the operations that took effect are counted.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "prefix/radix.h"

/* Tokens and how many there are. */
#define TOKENS(...) (const int32_t[]){__VA_ARGS__}, (uint32_t)(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static const pleat__prefix none = {0};

/* ---- a tree and the memory that it has ------------------------------------------------------------------------------- */

typedef struct rig {
    check_alloc memory;
    pleat__radix *tree;
    uint32_t root;
} rig;

static bool rig_open(rig *r, uint32_t max_entries, uint32_t max_roots) {
    *r = (rig){0};
    check_alloc_init(&r->memory, 0, 0);
    return CHECK_STATUS(pleat__radix_create(max_entries, max_roots, &r->memory.a, &r->tree), PLEAT_OK) &&
           CHECK_STATUS(pleat__radix_root(r->tree, "r", 1, &r->root), PLEAT_OK);
}

static void rig_check(const rig *r, uint32_t n_entries, uint64_t n_tokens) {
    CHECK(pleat__radix_is_valid(r->tree));
    CHECK_EQ_U64(pleat__radix_n_entries(r->tree), n_entries);
    CHECK_EQ_U64(pleat__radix_n_tokens(r->tree), n_tokens);
    CHECK_EQ_U64(pleat__radix_bytes(r->tree), r->memory.live_bytes);
}

static void rig_close(rig *r) {
    pleat__radix_destroy(&r->tree);
    CHECK(r->tree == NULL);
    CHECK_EQ_U64(r->memory.live, 0);
}

static pleat__prefix promise(rig *r, const int32_t *tokens, uint32_t n_tokens) {
    pleat__prefix entry = none;
    CHECK_STATUS(pleat__radix_promise(r->tree, r->root, tokens, n_tokens, &entry), PLEAT_OK);
    CHECK(entry.v != 0);
    return entry;
}

static pleat__prefix keep(rig *r, uint32_t value, const int32_t *tokens, uint32_t n_tokens) {
    const pleat__prefix entry = promise(r, tokens, n_tokens);
    pleat__radix_keep(r->tree, entry, value);
    return entry;
}

static uint32_t found(const rig *r, const int32_t *tokens, uint32_t n_tokens) {
    return pleat__radix_find(r->tree, r->root, tokens, n_tokens).v;
}

static uint32_t found_kept(const rig *r, const int32_t *tokens, uint32_t n_tokens) {
    return pleat__radix_find_kept(r->tree, r->root, tokens, n_tokens).v;
}

static uint32_t oldest(const rig *r) { return pleat__radix_oldest_leaf(r->tree).v; }

/* ---- case by case ---------------------------------------------------------------------------------------------------- */

static void test_splits_an_edge(void) {
    rig r;
    if (!rig_open(&r, 8, 1)) return;
    const pleat__prefix a = keep(&r, 70, TOKENS(1, 2, 3, 4));
    rig_check(&r, 1, 4);
    const pleat__prefix b = keep(&r, 71, TOKENS(1, 2)); /* ends in the middle of an edge */
    rig_check(&r, 2, 4);
    const pleat__prefix c = keep(&r, 72, TOKENS(1, 2, 7, 8)); /* leaves at a node */
    rig_check(&r, 3, 6);
    const pleat__prefix d = keep(&r, 73, TOKENS(1, 2, 3, 9)); /* leaves in the middle of an edge */
    rig_check(&r, 4, 7);
    CHECK_EQ_U64(found(&r, TOKENS(1)), 0);
    CHECK_EQ_U64(found(&r, TOKENS(1, 2)), b.v);
    CHECK_EQ_U64(found(&r, TOKENS(1, 2, 3)), b.v);
    CHECK_EQ_U64(found(&r, TOKENS(1, 2, 7)), b.v);
    CHECK_EQ_U64(found(&r, TOKENS(1, 2, 7, 8)), c.v);
    CHECK_EQ_U64(found(&r, TOKENS(1, 2, 3, 4, 5, 6)), a.v);
    CHECK_EQ_U64(found(&r, TOKENS(1, 2, 3, 9, 9)), d.v);
    CHECK_EQ_U64(found(&r, TOKENS(2, 2, 3, 9, 9)), 0);
    CHECK_EQ_U64(pleat__radix_info(r.tree, a).value, 70); /* an entry survives the splits above it */
    CHECK_EQ_U64(pleat__radix_info(r.tree, a).n_tokens, 4);
    CHECK_EQ_U64(pleat__radix_info(r.tree, b).n_tokens, 2);
    rig_close(&r);
}

/* What is left after a removal takes the memory that it took before. */
static void test_merges_edges(void) {
    rig r;
    if (!rig_open(&r, 8, 1)) return;
    const uint64_t empty_bytes = r.memory.live_bytes;
    const pleat__prefix a = keep(&r, 70, TOKENS(1, 2, 3, 4, 5, 6));
    const uint64_t n_blocks = r.memory.live;
    const pleat__prefix b = keep(&r, 71, TOKENS(1, 2, 3));
    CHECK_EQ_U64(r.memory.live, n_blocks + 1);
    CHECK_EQ_U64(pleat__radix_remove(r.tree, b), 71); /* with one child */
    rig_check(&r, 1, 6);
    CHECK_EQ_U64(r.memory.live, n_blocks);
    const pleat__prefix c = keep(&r, 72, TOKENS(1, 2, 8));
    CHECK_EQ_U64(r.memory.live, n_blocks + 2);
    CHECK_EQ_U64(pleat__radix_remove(r.tree, c), 72); /* a leaf, whose sibling remains */
    rig_check(&r, 1, 6);
    CHECK_EQ_U64(r.memory.live, n_blocks);
    CHECK_EQ_U64(found(&r, TOKENS(1, 2, 3, 4, 5, 6)), a.v);
    const pleat__prefix d = keep(&r, 73, TOKENS(1, 2, 3)), e = keep(&r, 74, TOKENS(1, 2, 3, 8));
    CHECK_EQ_U64(pleat__radix_remove(r.tree, d), 73); /* with two children: its node stays */
    rig_check(&r, 2, 7);
    CHECK_EQ_U64(found(&r, TOKENS(1, 2, 3)), 0);
    CHECK_EQ_U64(pleat__radix_remove(r.tree, a), 70);
    rig_check(&r, 1, 4);
    CHECK_EQ_U64(found(&r, TOKENS(1, 2, 3, 8)), e.v);
    CHECK_EQ_U64(pleat__radix_remove(r.tree, e), 74);
    rig_check(&r, 0, 0);
    CHECK_EQ_U64(r.memory.live_bytes, empty_bytes);
    rig_close(&r);
}

static void test_promises(void) {
    rig r;
    if (!rig_open(&r, 8, 1)) return;
    const pleat__prefix a = promise(&r, TOKENS(1, 2));
    pleat__prefix again = none;
    CHECK_STATUS(pleat__radix_promise(r.tree, r.root, TOKENS(1, 2), &again), PLEAT_E_STATE);
    CHECK_EQ_U64(again.v, a.v);
    CHECK(!pleat__radix_info(r.tree, a).is_kept);
    CHECK_EQ_U64(found(&r, TOKENS(1, 2, 3)), a.v);
    CHECK_EQ_U64(found_kept(&r, TOKENS(1, 2, 3)), 0);
    CHECK_EQ_U64(oldest(&r), 0);
    const pleat__prefix b = keep(&r, 70, TOKENS(1, 2, 3, 4)), c = promise(&r, TOKENS(1, 2, 3, 4, 5));
    CHECK_EQ_U64(found_kept(&r, TOKENS(1, 2, 3, 4, 5)), b.v); /* between two promises */
    CHECK_EQ_U64(found(&r, TOKENS(1, 2, 3, 4, 5)), c.v);
    CHECK_EQ_U64(oldest(&r), 0); /* a promise below is an entry below */
    CHECK_EQ_U64(pleat__radix_remove(r.tree, c), 0);
    CHECK_EQ_U64(oldest(&r), b.v);
    CHECK_EQ_U64(pleat__radix_remove(r.tree, a), 0);
    rig_check(&r, 1, 4);
    CHECK_STATUS(pleat__radix_promise(r.tree, r.root, TOKENS(1, 2, 3, 4), &again), PLEAT_E_STATE);
    CHECK_EQ_U64(again.v, b.v); /* kept ones too */
    CHECK(pleat__radix_info(r.tree, b).is_kept);
    rig_close(&r);
}

static void test_locks(void) {
    rig r;
    if (!rig_open(&r, 8, 1)) return;
    const pleat__prefix a = keep(&r, 70, TOKENS(1, 2)), b = keep(&r, 71, TOKENS(3));
    pleat__radix_lock(r.tree, a);
    pleat__radix_lock(r.tree, a);
    CHECK_EQ_U64(oldest(&r), b.v);
    pleat__radix_lock(r.tree, b);
    CHECK_EQ_U64(oldest(&r), 0);
    pleat__radix_unlock(r.tree, a);
    CHECK_EQ_U64(oldest(&r), 0);
    CHECK_EQ_U64(pleat__radix_info(r.tree, a).n_locks, 1);
    pleat__radix_unlock(r.tree, b);
    pleat__radix_unlock(r.tree, a);
    CHECK_EQ_U64(oldest(&r), b.v); /* a was unlocked later */
    CHECK_EQ_U64(pleat__radix_info(r.tree, a).n_locks, 0);
    CHECK_EQ_U64(pleat__radix_info(r.tree, a).n_hits, 2);
    CHECK_EQ_U64(pleat__radix_info(r.tree, b).n_hits, 1);
    rig_check(&r, 2, 3);
    keep(&r, 72, TOKENS(1, 2, 3));
    keep(&r, 73, TOKENS(1, 2, 4));
    CHECK_EQ_U64(pleat__radix_remove(r.tree, a), 70);
    const pleat__prefix c = promise(&r, TOKENS(1, 2)); /* a new entry at the old one's node */
    CHECK_EQ_U64(c.v, a.v);
    CHECK(pleat__radix_info(r.tree, c).n_hits == 0 && pleat__radix_info(r.tree, c).value == 0);
    rig_close(&r);
}

/* Leaves go in the order of their last use; who becomes a leaf again is as old as its own last use says. */
static void test_leaves_in_order_of_use(void) {
    rig r;
    if (!rig_open(&r, 8, 1)) return;
    const pleat__prefix inner = keep(&r, 70, TOKENS(1));
    const pleat__prefix a = keep(&r, 71, TOKENS(1, 2, 3)), b = keep(&r, 72, TOKENS(1, 5)), c = keep(&r, 73, TOKENS(9));
    const pleat__prefix split = keep(&r, 74, TOKENS(1, 2)); /* above a: no leaf */
    CHECK_EQ_U64(oldest(&r), a.v);
    pleat__radix_lock(r.tree, a);
    pleat__radix_unlock(r.tree, a);
    static const uint32_t order[] = {72, 73, 71, 74, 70};
    const pleat__prefix leaves[] = {b, c, a, split, inner};
    for (size_t i = 0; i < CHECK_COUNT(order); i++) {
        const pleat__prefix leaf = pleat__radix_oldest_leaf(r.tree);
        CHECK_EQ_U64(leaf.v, leaves[i].v);
        if (leaf.v == 0) break;
        CHECK_EQ_U64(pleat__radix_remove(r.tree, leaf), order[i]);
        CHECK(pleat__radix_is_valid(r.tree));
    }
    rig_check(&r, 0, 0);
    const pleat__prefix d = keep(&r, 75, TOKENS(1)), e = keep(&r, 76, TOKENS(2)), f = keep(&r, 77, TOKENS(1, 1));
    CHECK_EQ_U64(oldest(&r), e.v);
    pleat__radix_remove(r.tree, f);
    CHECK_EQ_U64(oldest(&r), d.v); /* older than e, though a leaf since just now */
    rig_close(&r);
}

static void test_roots(void) {
    rig r;
    uint32_t f16, alice, again, empty;
    if (!rig_open(&r, 8, 4)) return;
    CHECK_STATUS(pleat__radix_root(r.tree, "f16", 3, &f16), PLEAT_OK);
    CHECK_STATUS(pleat__radix_root(r.tree, "f16\0alice", 9, &alice), PLEAT_OK);
    CHECK_STATUS(pleat__radix_root(r.tree, NULL, 0, &empty), PLEAT_OK);
    CHECK(f16 != alice && f16 != r.root && alice != r.root && empty != r.root && empty != f16 && empty != alice);
    CHECK_STATUS(pleat__radix_root(r.tree, "f16\0bobby", 9, &again), PLEAT_E_LIMIT);
    CHECK_STATUS(pleat__radix_root(r.tree, "f16\0alice", 9, &again), PLEAT_OK);
    CHECK_EQ_U64(again, alice);
    CHECK_STATUS(pleat__radix_root(r.tree, "", 0, &again), PLEAT_OK);
    CHECK_EQ_U64(again, empty);
    r.root = f16;
    const pleat__prefix a = keep(&r, 70, TOKENS(1, 2));
    CHECK_EQ_U64(pleat__radix_find(r.tree, alice, TOKENS(1, 2)).v, 0);
    r.root = alice;
    const pleat__prefix b = keep(&r, 71, TOKENS(1, 2));
    CHECK(a.v != b.v);
    rig_check(&r, 2, 4);
    CHECK_EQ_U64(pleat__radix_find(r.tree, f16, TOKENS(1, 2)).v, a.v);
    CHECK_EQ_U64(pleat__radix_find(r.tree, alice, TOKENS(1, 2)).v, b.v);
    CHECK_EQ_U64(pleat__radix_remove(r.tree, a), 70);
    CHECK_EQ_U64(pleat__radix_find(r.tree, alice, TOKENS(1, 2)).v, b.v);
    rig_close(&r);
}

/* Short edges, no tokens, tokens that end before the edge does, negative ids. */
static void test_short_and_negative(void) {
    rig r;
    if (!rig_open(&r, 8, 1)) return;
    CHECK_EQ_U64(found(&r, NULL, 0), 0);
    CHECK_EQ_U64(found(&r, TOKENS(1)), 0);
    CHECK_EQ_U64(oldest(&r), 0);
    const pleat__prefix a = keep(&r, 70, TOKENS(-1, INT32_MIN, -1)), b = keep(&r, 71, TOKENS(INT32_MAX));
    CHECK_EQ_U64(found(&r, TOKENS(-1)), 0); /* ends before the edge does */
    CHECK_EQ_U64(found(&r, TOKENS(-1, INT32_MIN)), 0);
    CHECK_EQ_U64(found(&r, NULL, 0), 0);
    CHECK_EQ_U64(found(&r, TOKENS(-1, INT32_MIN, -1)), a.v);
    CHECK_EQ_U64(found(&r, TOKENS(INT32_MAX, 0)), b.v);
    const pleat__prefix c = keep(&r, 72, TOKENS(-1)), d = keep(&r, 73, TOKENS(-1, INT32_MIN)),
                        e = keep(&r, 74, TOKENS(0));
    rig_check(&r, 5, 5); /* every edge has one token */
    CHECK_EQ_U64(found(&r, TOKENS(-1, 0)), c.v);
    CHECK_EQ_U64(found(&r, TOKENS(-1, INT32_MIN, 0)), d.v);
    CHECK_EQ_U64(found(&r, TOKENS(0, 0)), e.v);
    CHECK_EQ_U64(pleat__radix_remove(r.tree, d), 73);
    CHECK_EQ_U64(pleat__radix_remove(r.tree, c), 72);
    rig_check(&r, 3, 5);
    CHECK_EQ_U64(found(&r, TOKENS(-1, INT32_MIN, -1, 5)), a.v);
    rig_close(&r);
}

static void test_limits(void) {
    pleat__radix *tree = NULL;
    CHECK_STATUS(pleat__radix_create(0, 1, NULL, &tree), PLEAT_E_ARG);
    CHECK_STATUS(pleat__radix_create(1, 0, NULL, &tree), PLEAT_E_ARG);
    CHECK_STATUS(pleat__radix_create(PLEAT__RADIX_MAX + 1, 1, NULL, &tree), PLEAT_E_ARG);
    CHECK_STATUS(pleat__radix_create(1, UINT32_MAX, NULL, &tree), PLEAT_E_ARG);
    CHECK(tree == NULL);
    pleat__radix_destroy(&tree);
    pleat__radix_destroy(NULL);
    rig r;
    if (!rig_open(&r, 2, 1)) return;
    const pleat__prefix a = keep(&r, 70, TOKENS(1, 2, 3, 4)), b = keep(&r, 71, TOKENS(1, 2, 5));
    pleat__prefix entry = none;
    const uint64_t n_calls = r.memory.count;
    CHECK_STATUS(pleat__radix_promise(r.tree, r.root, TOKENS(1, 2), &entry), PLEAT_E_LIMIT);
    CHECK_STATUS(pleat__radix_promise(r.tree, r.root, TOKENS(1), &entry), PLEAT_E_LIMIT);
    CHECK_STATUS(pleat__radix_promise(r.tree, r.root, TOKENS(9), &entry), PLEAT_E_LIMIT);
    CHECK_STATUS(pleat__radix_promise(r.tree, r.root, TOKENS(1, 2, 5), &entry), PLEAT_E_STATE);
    CHECK_EQ_U64(entry.v, b.v);
    CHECK_EQ_U64(r.memory.count, n_calls);
    rig_check(&r, 2, 5);
    CHECK_EQ_U64(pleat__radix_remove(r.tree, a), 70);
    CHECK_STATUS(pleat__radix_promise(r.tree, r.root, TOKENS(9), &entry), PLEAT_OK);
    rig_check(&r, 2, 4);
    rig_close(&r);
}

/* A root with thousands of children, half of which go again: none is lost when the table of children closes gaps. */
static void test_many_children(void) {
    enum { N = 5000 };
    rig r;
    if (!rig_open(&r, N, 1)) return;
    static pleat__prefix entries[N];
    for (uint32_t i = 0; i < N; i++) entries[i] = keep(&r, i, TOKENS((int32_t)(i * 7919), 1, (int32_t)i));
    CHECK_EQ_U64(pleat__radix_n_tokens(r.tree), 3 * N);
    static bool is_gone[N];
    for (uint32_t n = 0; n < N / 2;) {
        const uint32_t i = (uint32_t)check_below(N);
        if (is_gone[i]) continue;
        CHECK_EQ_U64(pleat__radix_remove(r.tree, entries[i]), i);
        is_gone[i] = true;
        n++;
    }
    for (uint32_t i = 0; i < N; i++)
        CHECK_EQ_U64(found(&r, TOKENS((int32_t)(i * 7919), 1, (int32_t)i)), is_gone[i] ? 0 : entries[i].v);
    rig_check(&r, N / 2, 3 * (N / 2));
    rig_close(&r);
}

/* ---- memory that is refused ------------------------------------------------------------------------------------------ */

/* A script of everything that allocates.  When a step finds no memory, nothing has changed, and it succeeds when it is
 * done again.  How many steps failed. */
static uint32_t build_with_failure(rig *r) {
    static const struct {
        int32_t tokens[6];
        uint32_t n_tokens;
    } steps[] = {{{1, 2, 3, 4, 5, 6}, 6}, {{1, 2, 3, 4}, 4}, {{1, 2, 9}, 3}, {{1, 2}, 2}, {{7}, 1}, {{7, 8}, 2}};
    uint32_t n_failed = 0;
    pleat_status st = pleat__radix_root(r->tree, "key", 3, &r->root);
    for (; st == PLEAT_E_MEMORY; st = pleat__radix_root(r->tree, "key", 3, &r->root)) n_failed++;
    for (size_t i = 0; i < CHECK_COUNT(steps); i++) {
        const uint64_t n_tokens = pleat__radix_n_tokens(r->tree), live = r->memory.live;
        const uint32_t before = found(r, steps[i].tokens, steps[i].n_tokens);
        pleat__prefix entry = none;
        st = pleat__radix_promise(r->tree, r->root, steps[i].tokens, steps[i].n_tokens, &entry);
        if (st != PLEAT_OK) {
            CHECK_STATUS(st, PLEAT_E_MEMORY);
            CHECK_EQ_U64(entry.v, 0);
            CHECK_EQ_U64(r->memory.live, live);
            CHECK_EQ_U64(found(r, steps[i].tokens, steps[i].n_tokens), before);
            rig_check(r, (uint32_t)i, n_tokens);
            n_failed++;
            entry = promise(r, steps[i].tokens, steps[i].n_tokens);
        }
        pleat__radix_keep(r->tree, entry, (uint32_t)i);
    }
    rig_check(r, CHECK_COUNT(steps), 9);
    return n_failed;
}

static void test_nth_allocation_fails(void) {
    uint64_t n_failed = 0;
    for (uint64_t nth = 1; nth < 100; nth++) {
        rig r = {0};
        check_alloc_init(&r.memory, nth, 0);
        const pleat_status st = pleat__radix_create(6, 1, &r.memory.a, &r.tree);
        if (st != PLEAT_OK) {
            CHECK_STATUS(st, PLEAT_E_MEMORY);
            CHECK(r.tree == NULL);
            CHECK_EQ_U64(r.memory.live, 0);
            n_failed++;
            continue;
        }
        const uint32_t n = build_with_failure(&r);
        n_failed += n;
        rig_close(&r);
        if (n == 0) break;
        CHECK_EQ_U64(n, 1);
    }
    CHECK_EQ_U64(n_failed, 1 + 1 + (1 + 2 + 3 + 0 + 1 + 1)); /* create, root, the six promises */
}

/* Nodes that cannot be merged use up what there is, and are merged when there is memory again. */
static void test_refused_merges(void) {
    static const uint32_t lengths[] = {1, 2, 6};
    const int32_t tokens[6] = {1, 2, 3, 4, 5, 6};
    rig r;
    if (!rig_open(&r, 2, 1)) return; /* four nodes */
    pleat__prefix entry = none, other = none;
    for (uint32_t i = 0; i < CHECK_COUNT(lengths); i++) {
        const pleat__prefix longer = keep(&r, i, tokens, lengths[i]);
        r.memory.fail_at = r.memory.count + 1;
        if (i > 0) CHECK_EQ_U64(pleat__radix_remove(r.tree, entry), i - 1);
        entry = longer;
        rig_check(&r, 1, lengths[i]);
        CHECK_EQ_U64(found(&r, tokens, lengths[i] - 1), 0);
        CHECK_EQ_U64(found(&r, tokens, lengths[i]), entry.v);
        CHECK_EQ_U64(r.memory.live, 2 + 1 + i); /* tree, key, an edge for each node */
        r.memory.fail_at = 0;
    }
    r.memory.fail_at = r.memory.count + 1;
    r.memory.for_ever = 1;
    CHECK_STATUS(pleat__radix_promise(r.tree, r.root, TOKENS(1, 2, 3, 9), &other), PLEAT_E_MEMORY); /* two nodes more */
    rig_check(&r, 1, 6);
    CHECK_EQ_U64(r.memory.live, 2 + 3);
    r.memory.fail_at = 0;
    CHECK_STATUS(pleat__radix_promise(r.tree, r.root, TOKENS(1, 2, 3, 9), &other), PLEAT_OK);
    CHECK_EQ_U64(r.memory.live, 2 + 3); /* one node where there were three, and two new ones */
    rig_check(&r, 2, 7);
    CHECK_EQ_U64(found(&r, tokens, 6), entry.v);
    rig_close(&r);
}

/* ---- against the oracle ---------------------------------------------------------------------------------------------- */

enum { MAX_ENTRIES = 40, N_ROOTS = 3, MAX_TOKENS = 48 };

typedef struct known {
    pleat__prefix entry;
    uint32_t root, n_tokens, value, n_locks;
    uint64_t n_hits, last_use;
    bool is_kept;
    int32_t tokens[MAX_TOKENS];
} known;

typedef struct world {
    rig r;
    known all[MAX_ENTRIES];
    uint32_t n;
    uint64_t clock;
    bool growing; /* more is promised than removed */
    bool fails;   /* now and then there is no memory */
    /* Operations that took effect. */
    uint64_t n_found, n_promised, n_twice, n_full, n_refused, n_removed, n_evicted, n_locked, n_swings;
} world;

static bool begins_with(const int32_t *tokens, uint32_t n_tokens, const known *k) {
    return k->n_tokens <= n_tokens && memcmp(tokens, k->tokens, k->n_tokens * sizeof *tokens) == 0;
}

/* The longest entry, or kept entry, that tokens begin with. */
static uint32_t oracle_find(const world *w, uint32_t root, const int32_t *tokens, uint32_t n_tokens, bool only_kept) {
    const known *best = NULL;
    for (uint32_t i = 0; i < w->n; i++) {
        const known *k = &w->all[i];
        if (k->root != root || (only_kept && !k->is_kept) || !begins_with(tokens, n_tokens, k)) continue;
        if (!best || best->n_tokens < k->n_tokens) best = k;
    }
    return best ? best->entry.v : 0;
}

static bool oracle_is_leaf(const world *w, const known *k) {
    if (!k->is_kept || k->n_locks > 0) return false;
    for (uint32_t i = 0; i < w->n; i++) {
        const known *other = &w->all[i];
        if (other != k && other->root == k->root && begins_with(other->tokens, other->n_tokens, k)) return false;
    }
    return true;
}

static const known *oracle_oldest_leaf(const world *w) {
    const known *best = NULL;
    for (uint32_t i = 0; i < w->n; i++) {
        const known *k = &w->all[i];
        if ((!best || k->last_use < best->last_use) && oracle_is_leaf(w, k)) best = k;
    }
    return best;
}

/* Tokens on all edges: of each entry those that no entry before it has in the same places. */
static uint64_t oracle_n_tokens(const world *w) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        uint32_t n_shared = 0;
        for (uint32_t j = 0; j < i; j++) {
            const known *a = &w->all[i], *b = &w->all[j];
            uint32_t n = 0;
            while (a->root == b->root && n < a->n_tokens && n < b->n_tokens && a->tokens[n] == b->tokens[n]) n++;
            if (n_shared < n) n_shared = n;
        }
        sum += w->all[i].n_tokens - n_shared;
    }
    return sum;
}

/* Often the beginning of an entry, then some tokens more; never empty. */
static uint32_t random_tokens(const world *w, int32_t *tokens) {
    static const int32_t alphabet[] = {-1, 5, 128000};
    uint32_t n = 0;
    if (w->n > 0 && check_below(3) > 0) {
        const known *k = &w->all[check_below(w->n)];
        n = (uint32_t)check_below(k->n_tokens + 1);
        memcpy(tokens, k->tokens, n * sizeof *tokens);
    }
    const uint32_t n_all = n + (uint32_t)check_between(n == 0, check_below(4) ? 4 : 20);
    while (n < n_all && n < MAX_TOKENS) tokens[n++] = alphabet[check_below(CHECK_COUNT(alphabet))];
    return n;
}

static void op_find(world *w) {
    int32_t tokens[MAX_TOKENS];
    const uint32_t n = random_tokens(w, tokens), root = (uint32_t)check_below(N_ROOTS);
    const uint32_t entry = oracle_find(w, root, tokens, n, false);
    w->n_found += entry != 0;
    CHECK_EQ_U64(pleat__radix_find(w->r.tree, root, tokens, n).v, entry);
    CHECK_EQ_U64(pleat__radix_find_kept(w->r.tree, root, tokens, n).v, oracle_find(w, root, tokens, n, true));
}

static void op_promise(world *w) {
    known k = {.root = (uint32_t)check_below(N_ROOTS)};
    k.n_tokens = random_tokens(w, k.tokens);
    uint32_t same = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        const known *other = &w->all[i];
        if (other->root == k.root && other->n_tokens == k.n_tokens && begins_with(k.tokens, k.n_tokens, other))
            same = other->entry.v;
    }
    const uint64_t n_tokens = pleat__radix_n_tokens(w->r.tree);
    const pleat_status st = pleat__radix_promise(w->r.tree, k.root, k.tokens, k.n_tokens, &k.entry);
    if (st == PLEAT_E_MEMORY && w->fails && !same && w->n < MAX_ENTRIES) {
        w->n_refused++;
        CHECK_EQ_U64(pleat__radix_n_tokens(w->r.tree), n_tokens);
        return;
    }
    CHECK_STATUS(st, same ? PLEAT_E_STATE : w->n == MAX_ENTRIES ? PLEAT_E_LIMIT : PLEAT_OK);
    CHECK_EQ_U64(k.entry.v != 0, same != 0 || st == PLEAT_OK);
    if (same) CHECK_EQ_U64(k.entry.v, same);
    w->n_twice += st == PLEAT_E_STATE;
    w->n_full += st == PLEAT_E_LIMIT;
    if (st != PLEAT_OK) return;
    w->n_promised++;
    w->all[w->n++] = k;
}

/* Keep it if it is promised; else lock it, or, more often, unlock it. */
static void op_use(world *w) {
    if (w->n == 0) return;
    known *k = &w->all[check_below(w->n)];
    if (!k->is_kept) {
        k->is_kept = true;
        k->value = (uint32_t)check_u64();
        k->last_use = ++w->clock;
        pleat__radix_keep(w->r.tree, k->entry, k->value);
    } else if (k->n_locks > 0 && check_below(w->growing ? 3 : 9)) {
        k->n_locks--;
        k->last_use = ++w->clock;
        pleat__radix_unlock(w->r.tree, k->entry);
    } else {
        k->n_locks++;
        k->n_hits++;
        w->n_locked++;
        pleat__radix_lock(w->r.tree, k->entry);
    }
}

static void remove_known(world *w, uint32_t i) {
    CHECK_EQ_U64(pleat__radix_remove(w->r.tree, w->all[i].entry), w->all[i].value);
    w->all[i] = w->all[--w->n];
    w->n_removed++;
}

static void op_remove(world *w) {
    if (w->n == 0) return;
    const uint32_t i = (uint32_t)check_below(w->n);
    if (w->all[i].n_locks == 0) remove_known(w, i);
}

static void op_evict(world *w) {
    const known *k = oracle_oldest_leaf(w);
    CHECK_EQ_U64(pleat__radix_oldest_leaf(w->r.tree).v, k ? k->entry.v : 0);
    if (!k) return;
    remove_known(w, (uint32_t)(k - w->all));
    w->n_evicted++;
}

static void compare(const world *w) {
    rig_check(&w->r, w->n, oracle_n_tokens(w));
    const known *leaf = oracle_oldest_leaf(w);
    CHECK_EQ_U64(oldest(&w->r), leaf ? leaf->entry.v : 0);
    for (uint32_t i = 0; i < w->n; i++) {
        const known *k = &w->all[i];
        const pleat__prefix_info info = pleat__radix_info(w->r.tree, k->entry);
        CHECK(info.n_tokens == k->n_tokens && info.value == k->value && info.n_locks == k->n_locks);
        CHECK(info.n_hits == k->n_hits && info.is_kept == k->is_kept);
        CHECK_EQ_U64(pleat__radix_find(w->r.tree, k->root, k->tokens, k->n_tokens).v, k->entry.v);
    }
}

/* Grow until it is full, shrink until it is nearly empty. */
static void swing(world *w) {
    if (w->growing ? w->n < MAX_ENTRIES : w->n > 2) return;
    if (check_below(40)) return; /* stay for a while */
    w->growing = !w->growing;
    w->n_swings++;
}

static void run(world *w, uint64_t n_operations) {
    for (uint64_t i = 0; i < n_operations && check_failures() == 0; i++) {
        swing(w);
        if (w->fails) w->r.memory.fail_at = check_below(4) ? 0 : w->r.memory.count + check_between(1, 3);
        switch (check_below(8)) {
            case 0:
            case 1: op_find(w); break;
            case 2: w->growing || check_below(8) == 0 ? op_promise(w) : op_remove(w); break;
            case 3: w->growing ? op_promise(w) : op_remove(w); break;
            case 4: check_below(w->growing ? 8 : 2) ? op_use(w) : op_remove(w); break;
            case 5: check_below(w->growing ? 8 : 2) ? op_use(w) : op_evict(w); break;
            default: op_use(w); break;
        }
        if (i % 61 == 0 || i + 1 == n_operations) compare(w);
    }
}

static void against_oracle(bool fails, uint64_t n) {
    world *w = calloc(1, sizeof *w);
    if (!rig_open(&w->r, MAX_ENTRIES, N_ROOTS)) return;
    for (uint32_t i = 0, root; i < N_ROOTS; i++) {
        const char key = "rst"[i];
        CHECK_STATUS(pleat__radix_root(w->r.tree, &key, 1, &root), PLEAT_OK);
        CHECK_EQ_U64(root, i);
    }
    w->fails = fails;
    run(w, n);
    CHECK(w->n_found > n / 20 && w->n_promised > n / 20 && w->n_twice > n / 200 && w->n_full > n / 200);
    CHECK(w->n_removed > n / 20 && w->n_evicted > n / 100 && w->n_locked > n / 20 && w->n_swings > n / 1000);
    CHECK(fails ? w->n_refused > n / 200 : w->n_refused == 0);
    w->r.memory.fail_at = 0;
    while (w->n > 0) {
        for (; w->all[0].n_locks > 0; w->all[0].n_locks--) pleat__radix_unlock(w->r.tree, w->all[0].entry);
        remove_known(w, 0);
    }
    rig_check(&w->r, 0, 0);
    CHECK_EQ_U64(w->r.memory.live, 1 + N_ROOTS);
    rig_close(&w->r);
    free(w);
}

static void test_million_operations(void) { against_oracle(false, check_rounds(1000000, 50000)); }
static void test_operations_without_memory(void) { against_oracle(true, check_rounds(200000, 20000)); }

static const check_test tests[] = {
    {"splits_an_edge", test_splits_an_edge},
    {"merges_edges", test_merges_edges},
    {"promises", test_promises},
    {"locks", test_locks},
    {"leaves_in_order_of_use", test_leaves_in_order_of_use},
    {"roots", test_roots},
    {"short_and_negative", test_short_and_negative},
    {"limits", test_limits},
    {"many_children", test_many_children},
    {"nth_allocation_fails", test_nth_allocation_fails},
    {"refused_merges", test_refused_merges},
    {"million_operations", test_million_operations},
    {"operations_without_memory", test_operations_without_memory},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
