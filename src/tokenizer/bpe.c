/* SPDX-License-Identifier: MIT
 *
 * bpe.c: see bpe.h.
 *
 * Heap and list:
 * 1. symbols[i].rank is the rank of the pair (i, its next), PLEAT__NO_RANK if it has none or i is gone;
 * 2. every pair with a rank has an entry in the heap; an entry whose rank is not symbols[left].rank is stale and
 *    is skipped when it comes up.  A rank names one pair of tokens and symbols only grow, so a rank never comes back to
 *    a symbol: no entry counts twice;
 * 3. a merge takes one entry out and puts at most two in, and there are less than n merges: the heap holds 2n.
 */
#include "tokenizer/bpe.h"

#include "core/memory.h"

#define NONE UINT32_MAX

typedef struct pleat__bpe_symbol {
    pleat_token id;
    uint32_t prev, next; /* NONE at the ends */
    uint32_t rank;       /* of the pair with next */
    pleat_token joined;  /* what that pair becomes */
} symbol;

/* ---- the table of merges ----------------------------------------------------------------------------------------- */

pleat_status pleat__bpe_init(pleat__bpe *bpe, uint32_t n_merges, const pleat_allocator *al) {
    uint64_t n_slots = 16;
    while (n_slots < 2 * (uint64_t)n_merges) n_slots *= 2;
    *bpe = (pleat__bpe){.al = *al, .mask = n_slots - 1};
    bpe->slots = pleat__alloc(al, n_slots, sizeof *bpe->slots);
    if (!bpe->slots) return PLEAT_E_MEMORY;
    for (uint64_t i = 0; i < n_slots; i++) bpe->slots[i].left = -1;
    return PLEAT_OK;
}

void pleat__bpe_release(pleat__bpe *bpe) {
    pleat__free(&bpe->al, bpe->slots, bpe->mask + 1, sizeof *bpe->slots);
    bpe->slots = NULL;
}

/* The slot of the pair, or the free one where it would go. */
static pleat__bpe_slot *find_slot(const pleat__bpe *bpe, pleat_token left, pleat_token right) {
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
    h ^= h >> 32;
    for (uint64_t i = h & bpe->mask;; i = (i + 1) & bpe->mask) {
        pleat__bpe_slot *s = &bpe->slots[i];
        if (s->left < 0 || (s->left == left && s->right == right)) return s;
    }
}

bool pleat__bpe_add(pleat__bpe *bpe, pleat_token left, pleat_token right, uint32_t rank, pleat_token joined) {
    pleat__bpe_slot *s = find_slot(bpe, left, right);
    if (s->left >= 0) return false;
    *s = (pleat__bpe_slot){left, right, rank, joined};
    return true;
}

const pleat__bpe_slot *pleat__bpe_find(const pleat__bpe *bpe, pleat_token left, pleat_token right) {
    const pleat__bpe_slot *s = find_slot(bpe, left, right);
    return s->left < 0 ? NULL : s;
}

/* ---- scratch ----------------------------------------------------------------------------------------------------- */

pleat_status pleat__bpe_scratch_reserve(pleat__bpe_scratch *scratch, uint32_t n_bytes) {
    if (n_bytes <= scratch->cap) return PLEAT_OK;
    uint32_t cap = 256;
    while (cap < n_bytes) cap *= 2;
    pleat__bpe_scratch_release(scratch);
    scratch->cap = cap;
    scratch->ids = pleat__alloc(scratch->al, cap, sizeof *scratch->ids);
    scratch->symbols = pleat__alloc(scratch->al, cap, sizeof *scratch->symbols);
    scratch->heap = pleat__alloc(scratch->al, 2 * (uint64_t)cap, sizeof *scratch->heap);
    if (scratch->ids && scratch->symbols && scratch->heap) return PLEAT_OK;
    pleat__bpe_scratch_release(scratch);
    return PLEAT_E_MEMORY;
}

void pleat__bpe_scratch_release(pleat__bpe_scratch *scratch) {
    pleat__free(scratch->al, scratch->heap, 2 * (uint64_t)scratch->cap, sizeof *scratch->heap);
    pleat__free(scratch->al, scratch->symbols, scratch->cap, sizeof *scratch->symbols);
    pleat__free(scratch->al, scratch->ids, scratch->cap, sizeof *scratch->ids);
    *scratch = (pleat__bpe_scratch){.al = scratch->al};
}

/* ---- a min-heap of u64 ------------------------------------------------------------------------------------------- */

static void heap_push(uint64_t *heap, uint32_t *n, uint64_t x) {
    uint32_t i = (*n)++;
    while (i > 0 && heap[(i - 1) / 2] > x) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = x;
}

static uint64_t heap_pop(uint64_t *heap, uint32_t *n) {
    const uint64_t top = heap[0], x = heap[--*n];
    uint32_t i = 0;
    for (uint32_t child = 1; child < *n; child = 2 * i + 1) {
        if (child + 1 < *n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= x) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = x;
    return top;
}

/* ---- merging ----------------------------------------------------------------------------------------------------- */

/* Look up the pair (i, its next) and enter it into the heap. */
static void rank_pair(const pleat__bpe *bpe, pleat__bpe_scratch *scratch, uint32_t *n_heap, uint32_t i) {
    symbol *s = &scratch->symbols[i];
    const pleat__bpe_slot *merge = s->next == NONE ? NULL : pleat__bpe_find(bpe, s->id, scratch->symbols[s->next].id);
    s->rank = merge ? merge->rank : PLEAT__NO_RANK;
    if (!merge) return;
    s->joined = merge->joined;
    heap_push(scratch->heap, n_heap, (uint64_t)merge->rank << 32 | i);
}

uint32_t pleat__bpe_merge(const pleat__bpe *bpe, pleat__bpe_scratch *scratch, uint32_t n) {
    symbol *symbols = scratch->symbols;
    if (n == 0) return 0;
    for (uint32_t i = 0; i < n; i++) {
        symbols[i] = (symbol){.id = scratch->ids[i], .prev = i ? i - 1 : NONE, .next = i + 1 < n ? i + 1 : NONE};
    }
    uint32_t n_heap = 0;
    for (uint32_t i = 0; i < n; i++) rank_pair(bpe, scratch, &n_heap, i);

    while (n_heap > 0) {
        const uint64_t top = heap_pop(scratch->heap, &n_heap);
        const uint32_t i = (uint32_t)top;
        symbol *s = &symbols[i];
        if (s->rank != top >> 32) continue;
        symbol *gone = &symbols[s->next];
        s->id = s->joined;
        s->next = gone->next;
        gone->rank = PLEAT__NO_RANK;
        if (s->next != NONE) symbols[s->next].prev = i;
        rank_pair(bpe, scratch, &n_heap, i);
        if (s->prev != NONE) rank_pair(bpe, scratch, &n_heap, s->prev);
    }

    uint32_t n_out = 0;
    for (uint32_t i = 0; i != NONE; i = symbols[i].next) scratch->ids[n_out++] = symbols[i].id;
    return n_out;
}
