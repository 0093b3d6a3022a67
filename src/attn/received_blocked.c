/* SPDX-License-Identifier: MIT
 *
 * received_blocked.c: the walk that finds what slots receive from a prompt's queries, shared by its variants.  See prompt.h.
 *
 * Scratch is as large as prompt_blocked.c's, carved anew: what was o, k and v holds the keys of a span.
 *
 *     q [128][d] | k [4 blocks][4 tiles][d][16] | s [128][64] | visible u64 [144] | lse2 [144] | received [4 blocks][64]
 *
 * Keys outside, rows inside: a tile is dequantised once, and scaling a block of queries again for each span costs 1/256
 * of the logits that follow.
 */
#include <string.h>

#include "attn/prompt.h"

/* Blocks of a span. */
#define SPAN_BLOCKS 4u
#define SPAN_KEYS (SPAN_BLOCKS * PLEAT__PROMPT_KEYS)

_Static_assert(SPAN_KEYS <= PLEAT__PROMPT_ROWS + 2 * PLEAT__PROMPT_KEYS, "keys take more than o, k and v");
_Static_assert(PLEAT__PROMPT_ROW_CAP + SPAN_KEYS <= 3 * PLEAT__PROMPT_ROW_CAP, "more per row than l, m and rescale");

/* One call. */
typedef struct walk {
    const pleat__attn_prompt_received *args;
    const pleat__prompt_ops *ops;
    uint32_t seen; /* query i attends to slots [0, seen + i*step) */
    uint32_t step;
    uint32_t n_blocks;                       /* of the span at hand */
    pleat__prompt_block blocks[SPAN_BLOCKS]; /* they share all arrays but tiles and received */
    uint64_t alive[SPAN_BLOCKS];
    float *k;
} walk;

static void walk_init(walk *w, const pleat__attn_prompt_received *args, const pleat__prompt_ops *ops) {
    const size_t d = args->head_dim;
    *w = (walk){.args = args, .ops = ops, .seen = args->causal ? args->self_seen : args->run->n_slots};
    w->step = args->causal ? args->step : 0;
    pleat__prompt_block b = {.head_dim = args->head_dim, .n_group = args->n_group};
    b.q = args->scratch;
    w->k = b.q + PLEAT__PROMPT_ROWS * d;
    b.s = w->k + SPAN_KEYS * d;
    float *after = b.s + (size_t)PLEAT__PROMPT_ROWS * PLEAT__PROMPT_KEYS;
    b.visible = (uint64_t *)(void *)after;
    b.lse2 = after + 2 * PLEAT__PROMPT_ROW_CAP;
    b.received = b.lse2 + PLEAT__PROMPT_ROW_CAP;
    for (uint32_t n = 0; n < SPAN_BLOCKS; n++) {
        w->blocks[n] = b;
        w->blocks[n].received += n * PLEAT__PROMPT_KEYS;
    }
}

/* Keys of slots [slot, end), and what these have received. */
static void read_span(walk *w, uint32_t slot, uint32_t end) {
    const pleat__attn_prompt_received *args = w->args;
    w->n_blocks = pleat__div_up_u32(end - slot, PLEAT__PROMPT_KEYS);
    for (uint32_t n = 0; n < w->n_blocks; n++) {
        const uint32_t first = slot + n * PLEAT__PROMPT_KEYS;
        w->alive[n] =
            pleat__prompt_fetch(&w->blocks[n], args->run, first, pleat__min_u32(end - first, PLEAT__PROMPT_KEYS),
                                args->quant, w->k + (size_t)n * PLEAT__PROMPT_KEYS * args->head_dim, NULL);
    }
    memset(w->blocks[0].received, 0, SPAN_KEYS * sizeof(float));
    memcpy(w->blocks[0].received, args->received + (slot - args->slot_from), (end - slot) * sizeof(float));
}

static void read_rows(walk *w, uint32_t first, uint32_t n_queries) {
    const pleat__attn_prompt_received *args = w->args;
    const uint32_t n_group = args->n_group;
    pleat__prompt_read_queries(w->blocks[0].q, args->q + first * args->q_stride, args->q_stride, n_queries,
                               (size_t)n_group * args->head_dim, args->scale);
    for (uint32_t i = 0; i < n_queries; i++)
        memcpy(w->blocks[0].lse2 + i * n_group, args->lse2 + (first + i) * args->lse2_stride, n_group * sizeof(float));
}

/* Slots from `slot` on receive from queries [first, first + n_queries). */
static void receive_rows(walk *w, uint32_t slot, uint32_t first, uint32_t n_queries) {
    read_rows(w, first, n_queries);
    for (uint32_t n = 0; n < w->n_blocks; n++, slot += PLEAT__PROMPT_KEYS) {
        pleat__prompt_block *b = &w->blocks[n];
        if (w->alive[n] == 0) continue;
        b->n_rows = n_queries * b->n_group;
        pleat__prompt_set_visible(b, slot, w->alive[n], n_queries, w->seen + first * w->step, w->step);
        if (b->row_from == b->n_rows) continue;
        w->ops->logits(b);
        pleat__prompt_adjust(b, w->ops->cap, w->args->cap2);
        w->ops->received(b);
    }
}

void pleat__attn_prompt_received_blocked(const pleat__attn_prompt_received *args, const pleat__prompt_ops *ops) {
    walk w;
    walk_init(&w, args, ops);
    const uint32_t block_queries = PLEAT__PROMPT_ROWS / args->n_group;
    for (uint32_t slot = args->slot_from; slot < args->slot_to; slot += SPAN_KEYS) {
        const uint32_t end = pleat__min_u32(args->slot_to, slot + SPAN_KEYS);
        /* the first query that attends to `slot` */
        const uint32_t first = w.seen > slot ? 0 : w.step ? (slot - w.seen) / w.step + 1 : args->n_queries;
        if (first >= args->n_queries) break;
        read_span(&w, slot, end);
        for (uint32_t i = first; i < args->n_queries; i += block_queries)
            receive_rows(&w, slot, i, pleat__min_u32(block_queries, args->n_queries - i));
        memcpy(args->received + (slot - args->slot_from), w.blocks[0].received, (end - slot) * sizeof(float));
    }
}
