/* SPDX-License-Identifier: MIT
 *
 * bpe.c: see bpe.h.
 *
 * Heap and list:
 * 1. symbols[i].join.rank is the rank of the pair (i, its next), PLEAT__NO_RANK if it has none or i is gone;
 * 2. every pair with a rank has an entry in the heap; an entry whose rank is not symbols[left].join.rank is stale and
 *    is skipped when it comes up.  A stale entry whose rank came back, as scores may be equal, is the same number as
 *    the entry of the pair that is there now: whichever comes up first is that pair's turn;
 * 3. a merge takes one entry out and puts at most two in, and there are less than n merges: the heap holds 2n.
 */
#include "tokenizer/bpe.h"

#include <math.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"

#define NONE UINT32_MAX

typedef struct pleat__bpe_symbol {
    pleat_token id;
    uint32_t prev, next; /* NONE at the ends */
    uint32_t start;      /* in the word's text */
    pleat__join join;    /* of the pair with next */
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

/* The slot of the pair, or the free one where it would go; NULL: neither is near enough. */
static pleat__bpe_slot *find_slot(const pleat__bpe *bpe, pleat_token left, pleat_token right) {
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
    h ^= h >> 32;
    for (uint64_t i = h; i < h + PLEAT__MAX_PROBES; i++) {
        pleat__bpe_slot *s = &bpe->slots[i & bpe->mask];
        if (s->left < 0 || (s->left == left && s->right == right)) return s;
    }
    return NULL;
}

pleat_status pleat__bpe_add(pleat__bpe *bpe, pleat_token left, pleat_token right, pleat__join join) {
    pleat__bpe_slot *s = find_slot(bpe, left, right);
    if (!s) return PLEAT_E_LIMIT;
    if (s->left >= 0) return PLEAT_E_FORMAT;
    *s = (pleat__bpe_slot){left, right, join};
    return PLEAT_OK;
}

bool pleat__bpe_join(const void *self, pleat_token left, pleat_token right, pleat__str text, pleat__join *out) {
    (void)text;
    if (left < 0 || right < 0) return false;
    const pleat__bpe_slot *s = find_slot(self, left, right);
    if (!s || s->left < 0) return false;
    *out = s->join;
    return true;
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

/* Numbers in the order of floats, turned round: 0 for infinity, below PLEAT__NO_RANK for all. */
static uint32_t rank_of(float score) {
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    if (bits == 0x80000000u) bits = 0; /* -0 is 0 */
    return bits >> 31 ? bits : 0x7FFFFFFFu - bits;
}

pleat_status pleat__scores_init(pleat__scores *scores, const pleat_gguf *gguf, const pleat__vocab *vocab,
                                const pleat_allocator *al, pleat_error *err) {
    static const char key[] = "tokenizer.ggml.scores";
    const pleat__gguf_value *v = pleat__gguf_find(gguf, key);
    PLEAT_FAIL_IF(!v, err, PLEAT_E_FORMAT, PLEAT_NOWHERE, "metadata key '%s' is missing", key);
    PLEAT_FAIL_IF(!v->is_array || v->n_items != vocab->n_tokens, err, PLEAT_E_FORMAT, v->offset,
                  "metadata key '%s' is no array of %u numbers", key, vocab->n_tokens);
    uint32_t *ranks = pleat__alloc(al, vocab->n_tokens, sizeof *ranks);
    PLEAT_FAIL_IF(!ranks, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "no memory for %u scores", vocab->n_tokens);
    *scores = (pleat__scores){*al, vocab, ranks};
    for (uint32_t i = 0; i < vocab->n_tokens; i++) {
        double score = NAN;
        if (!pleat__gguf_f64(gguf, v, i, &score) || isnan(score)) {
            pleat__scores_release(scores);
            return pleat__error_set(err, PLEAT_E_FORMAT, v->offset, "the score of token %u is no number", i);
        }
        ranks[i] = rank_of((float)score);
    }
    return PLEAT_OK;
}

void pleat__scores_release(pleat__scores *scores) {
    if (scores->ranks) pleat__free(&scores->al, scores->ranks, scores->vocab->n_tokens, sizeof *scores->ranks);
    scores->ranks = NULL;
}

bool pleat__scores_join(const void *self, pleat_token left, pleat_token right, pleat__str text, pleat__join *out) {
    const pleat__scores *scores = self;
    (void)left;
    (void)right;
    out->joined = pleat__vocab_find(scores->vocab, text, PLEAT__STR(""));
    if (out->joined < 0) return false;
    out->rank = scores->ranks[out->joined];
    return true;
}

/* ---- scratch ----------------------------------------------------------------------------------------------------- */

pleat_status pleat__bpe_scratch_reserve(pleat__bpe_scratch *scratch, uint32_t n) {
    if (n <= scratch->cap) return PLEAT_OK;
    uint32_t cap = 256;
    while (cap < n) cap *= 2;
    pleat__bpe_scratch_release(scratch);
    scratch->cap = cap;
    scratch->ids = pleat__alloc(scratch->al, cap, sizeof *scratch->ids);
    scratch->starts = pleat__alloc(scratch->al, cap, sizeof *scratch->starts);
    scratch->symbols = pleat__alloc(scratch->al, cap, sizeof *scratch->symbols);
    scratch->heap = pleat__alloc(scratch->al, 2 * (uint64_t)cap, sizeof *scratch->heap);
    if (scratch->ids && scratch->starts && scratch->symbols && scratch->heap) return PLEAT_OK;
    pleat__bpe_scratch_release(scratch);
    return PLEAT_E_MEMORY;
}

void pleat__bpe_scratch_release(pleat__bpe_scratch *scratch) {
    pleat__free(scratch->al, scratch->heap, 2 * (uint64_t)scratch->cap, sizeof *scratch->heap);
    pleat__free(scratch->al, scratch->symbols, scratch->cap, sizeof *scratch->symbols);
    pleat__free(scratch->al, scratch->starts, scratch->cap, sizeof *scratch->starts);
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

/* A word while it is merged. */
typedef struct merging {
    pleat__join_fn join;
    const void *self;
    symbol *symbols;
    uint64_t *heap;
    uint32_t n_heap;
    pleat__str word;
} merging;

/* Look up the pair (i, its next) and enter it into the heap. */
static void rank_pair(merging *m, uint32_t i) {
    symbol *s = &m->symbols[i];
    s->join.rank = PLEAT__NO_RANK;
    if (s->next == NONE) return;
    const symbol *next = &m->symbols[s->next];
    const uint64_t end = next->next == NONE ? m->word.n_bytes : m->symbols[next->next].start;
    pleat__join join;
    if (!m->join(m->self, s->id, next->id, (pleat__str){m->word.p + s->start, end - s->start}, &join)) return;
    s->join = join;
    heap_push(m->heap, &m->n_heap, (uint64_t)join.rank << 32 | i);
}

/* Join symbol i with its next. */
static void join_pair(merging *m, uint32_t i) {
    symbol *s = &m->symbols[i], *gone = &m->symbols[s->next];
    s->id = s->join.joined;
    s->next = gone->next;
    gone->join.rank = PLEAT__NO_RANK;
    if (s->next != NONE) m->symbols[s->next].prev = i;
    rank_pair(m, i);
    if (s->prev != NONE) rank_pair(m, s->prev);
}

uint32_t pleat__bpe_merge(pleat__join_fn join, const void *self, pleat__bpe_scratch *scratch, uint32_t n,
                          pleat__str word) {
    merging m = {.join = join, .self = self, .symbols = scratch->symbols, .heap = scratch->heap, .word = word};
    if (n < 2) return n;
    for (uint32_t i = 0; i < n; i++) {
        m.symbols[i] = (symbol){.id = scratch->ids[i],
                                .prev = i ? i - 1 : NONE,
                                .next = i + 1 < n ? i + 1 : NONE,
                                .start = scratch->starts[i]};
    }
    for (uint32_t i = 0; i < n; i++) rank_pair(&m, i);
    while (m.n_heap > 0) {
        const uint64_t top = heap_pop(m.heap, &m.n_heap);
        if (m.symbols[(uint32_t)top].join.rank == top >> 32) join_pair(&m, (uint32_t)top);
    }
    uint32_t n_out = 0;
    for (uint32_t i = 0; i != NONE; i = m.symbols[i].next) {
        scratch->ids[n_out] = m.symbols[i].id;
        scratch->starts[n_out++] = m.symbols[i].start;
    }
    return n_out;
}
