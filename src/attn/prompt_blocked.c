/* SPDX-License-Identifier: MIT
 *
 * prompt_blocked.c: the walk over a lane's blocks that the variants of prompt attention share.  See prompt.h.
 *
 * Scratch, carved in this order, every piece a multiple of 64 bytes:
 *
 *     q [128][d] | o [128][d] | k [4 tiles][d][16] | v [4 tiles][16][d] | s [128][64]
 *     visible u64 [144] | l, m, rescale, lse2 [144] | received [64]
 *
 * It knows pages, formats, dead slots and who sees what, and does no arithmetic on keys or values.  Queries are
 * copied before anything is written, so that out may be q.
 */
#include <math.h>
#include <string.h>

#include "attn/prompt.h"

#define LOG2_E 1.44269504088896341

#define QUERY_FLOATS(d) ((uint64_t)PLEAT__PROMPT_ROWS * (d))
#define TILES_FLOATS(d) ((uint64_t)PLEAT__PROMPT_KEYS * (d))
#define LOGIT_FLOATS ((uint64_t)PLEAT__PROMPT_ROWS * PLEAT__PROMPT_KEYS)

uint64_t pleat__attn_prompt_scratch_bytes(uint32_t head_dim) {
    return PLEAT__PROMPT_ROW_CAP * sizeof(uint64_t) + (2 * QUERY_FLOATS(head_dim) + 2 * TILES_FLOATS(head_dim) +
                                                       LOGIT_FLOATS + 4 * PLEAT__PROMPT_ROW_CAP + PLEAT__PROMPT_KEYS) *
                                                          sizeof(float);
}

/* One call. */
typedef struct walk {
    const pleat__attn_prompt *args;
    const pleat__prompt_ops *ops;
    pleat__prompt_block block; /* its arrays are those below, where they are const there */
    float *q;
    float *k;
    float *v;
    uint64_t *visible;
    float *lse2;
} walk;

static float *take(float **next, uint64_t n) {
    float *taken = *next;
    *next += n;
    return taken;
}

static void walk_init(walk *w, const pleat__attn_prompt *args, const pleat__prompt_ops *ops) {
    const uint32_t d = args->head_dim;
    float *next = args->scratch;
    *w = (walk){.args = args, .ops = ops};
    pleat__prompt_block *b = &w->block;
    b->head_dim = d;
    b->n_group = args->n_group;
    b->n_rows = args->n_queries * args->n_group;
    b->q = w->q = take(&next, QUERY_FLOATS(d));
    b->o = take(&next, QUERY_FLOATS(d));
    w->k = take(&next, TILES_FLOATS(d));
    w->v = take(&next, TILES_FLOATS(d));
    b->s = take(&next, LOGIT_FLOATS);
    b->visible = w->visible = (uint64_t *)(void *)take(&next, 2 * PLEAT__PROMPT_ROW_CAP);
    b->l = take(&next, PLEAT__PROMPT_ROW_CAP);
    b->m = take(&next, PLEAT__PROMPT_ROW_CAP);
    b->rescale = take(&next, PLEAT__PROMPT_ROW_CAP);
    b->lse2 = w->lse2 = take(&next, PLEAT__PROMPT_ROW_CAP);
    b->received = take(&next, PLEAT__PROMPT_KEYS);
}

static void read_queries(walk *w) {
    const pleat__attn_prompt *args = w->args;
    const float factor = (float)(args->scale * LOG2_E);
    const size_t row_floats = (size_t)args->n_group * args->head_dim;
    for (uint32_t i = 0; i < args->n_queries; i++) {
        const float *from = args->q + i * args->q_stride;
        float *to = w->q + i * row_floats;
        for (size_t c = 0; c < row_floats; c++) to[c] = from[c] * factor;
    }
    memset(w->block.o, 0, args->n_queries * row_floats * sizeof(float));
    for (uint32_t r = 0; r < PLEAT__PROMPT_ROW_CAP; r++) {
        w->block.l[r] = 0;
        w->block.m[r] = -INFINITY;
    }
}

/* The lowest n bits, n <= 64. */
static uint64_t low_bits(uint32_t n) { return n < 64 ? ((uint64_t)1 << n) - 1 : ~(uint64_t)0; }

/* Set the block's tiles to those of slots [slot, slot + n_slots) and return which of these are alive. */
static uint64_t fetch(walk *w, const pleat__kv_run *run, uint32_t slot, uint32_t n_slots, bool with_values) {
    const pleat__page_layout *layout = run->layout;
    const bool in_place = layout->format.k_bits == 32;
    const uint32_t tile_floats = PLEAT__TILE * layout->head_dim;
    pleat__prompt_block *b = &w->block;
    uint64_t alive = low_bits(n_slots);
    b->n_tiles = pleat__div_up_u32(n_slots, PLEAT__TILE);
    for (uint32_t t = 0; t < b->n_tiles; t++) {
        const uint32_t first = slot + t * PLEAT__TILE;
        const uint32_t page_slot = first % layout->tokens, tile = page_slot / PLEAT__TILE;
        uint8_t *page = pleat__kv_page(run, first / layout->tokens);
        if (in_place) {
            b->k[t] = (const float *)(const void *)pleat__k_tile(layout, page, tile);
            b->v[t] = (const float *)(const void *)pleat__v_tile(layout, page, tile);
        } else {
            float *k = w->k + t * tile_floats, *v = w->v + t * tile_floats;
            w->args->quant->load_k(layout, page, tile, k);
            if (with_values) w->args->quant->load_v(layout, page, tile, v);
            b->k[t] = k;
            b->v[t] = v;
        }
        if (!layout->tracked) continue;
        const int32_t *pos = pleat__positions(layout, page) + page_slot;
        for (uint32_t j = 0; j < PLEAT__TILE; j++)
            if (pos[j] < 0) alive &= ~((uint64_t)1 << (t * PLEAT__TILE + j));
    }
    for (uint32_t t = b->n_tiles; t < PLEAT__PROMPT_TILES; t++) b->k[t] = b->k[0];
    return alive;
}

/* Slots of `run` that query i sees in this walk; only the chunk's own run is causal. */
static uint32_t query_end(const walk *w, const pleat__kv_run *run, uint32_t i, bool with_own) {
    if (run != w->args->self) return run->n_slots;
    return w->args->self_seen + i + (with_own ? 1 : 0);
}

/* Say which rows see which of the slots from `slot` on, `alive` being those that anyone may see. */
static void set_visible(walk *w, const pleat__kv_run *run, uint32_t slot, uint64_t alive, bool with_own) {
    const uint32_t n_group = w->args->n_group;
    w->block.row_from = w->block.n_rows;
    for (uint32_t i = w->args->n_queries; i-- > 0;) {
        const uint32_t end = query_end(w, run, i, with_own);
        if (end <= slot) break; /* and so it is for all queries before */
        const uint64_t visible = alive & low_bits(pleat__min_u32(end - slot, PLEAT__PROMPT_KEYS));
        w->block.row_from = i * n_group;
        for (uint32_t g = 0; g < n_group; g++) w->visible[i * n_group + g] = visible;
    }
}

/* First walk: the output. */
static void attend(walk *w, const pleat__kv_run *run) {
    const uint32_t end = query_end(w, run, w->args->n_queries - 1, true);
    for (uint32_t slot = 0; slot < end; slot += PLEAT__PROMPT_KEYS) {
        const uint64_t alive = fetch(w, run, slot, pleat__min_u32(end - slot, PLEAT__PROMPT_KEYS), true);
        if (alive == 0) continue;
        set_visible(w, run, slot, alive, true);
        w->ops->logits(&w->block);
        w->ops->weights(&w->block);
        w->ops->values(&w->block);
    }
}

/* Second walk: the attention that each slot received.  Without each query's own slot. */
static void receive(walk *w, const pleat__kv_run *run, float *received) {
    const uint32_t end = query_end(w, run, w->args->n_queries - 1, false);
    for (uint32_t slot = 0; received && slot < end; slot += PLEAT__PROMPT_KEYS) {
        const uint32_t n_slots = pleat__min_u32(end - slot, PLEAT__PROMPT_KEYS);
        const uint64_t alive = fetch(w, run, slot, n_slots, false);
        if (alive == 0) continue;
        set_visible(w, run, slot, alive, false);
        memset(w->block.received, 0, PLEAT__PROMPT_KEYS * sizeof(float));
        memcpy(w->block.received, received + slot, n_slots * sizeof(float));
        w->ops->logits(&w->block);
        w->ops->received(&w->block);
        memcpy(received + slot, w->block.received, n_slots * sizeof(float));
    }
}

/* Every row has seen its own slot at least, so l > 0. */
static void finish(walk *w) {
    const pleat__attn_prompt *args = w->args;
    const uint32_t d = args->head_dim;
    for (uint32_t r = 0; r < w->block.n_rows; r++) {
        const uint32_t i = r / args->n_group, g = r % args->n_group;
        const float *o = w->block.o + (size_t)r * d;
        float *out = args->out + i * args->out_stride + (size_t)g * d;
        const float weight = 1 / w->block.l[r];
        /* + 0: no -0, the one trace that a skipped block could leave */
        for (uint32_t c = 0; c < d; c++) out[c] = o[c] * weight + 0.0f;
        w->lse2[r] = w->block.m[r] + log2f(w->block.l[r]);
    }
    if (args->lse2) memcpy(args->lse2, w->lse2, w->block.n_rows * sizeof(float));
}

void pleat__attn_prompt_blocked(const pleat__attn_prompt *args, const pleat__prompt_ops *ops) {
    walk w;
    if (args->n_queries == 0) return;
    walk_init(&w, args, ops);
    read_queries(&w);
    if (args->past) {
        attend(&w, &args->past->high);
        attend(&w, &args->past->low);
    }
    attend(&w, args->self);
    finish(&w);
    if (args->past) {
        receive(&w, &args->past->high, args->received_past_high);
        receive(&w, &args->past->low, args->received_past_low);
    }
    receive(&w, args->self, args->received_self);
}
