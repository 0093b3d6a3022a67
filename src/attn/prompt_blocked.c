/* SPDX-License-Identifier: MIT
 *
 * prompt_blocked.c: the walk over a lane's blocks that the variants of prompt attention share.  See prompt.h.
 *
 * Scratch, carved in this order, every piece a multiple of 64 bytes:
 *
 *     q [128][d] | o [128][d] | k [4 tiles][d][16] | v [4 tiles][16][d] | s [128][64]
 *     visible u64 [144] | l, m, rescale, lse2 [144]
 *
 * It knows pages, formats, dead slots and who sees what, and does no arithmetic on keys or values.  Queries are
 * copied before anything is written, so that out may be q.
 */
#include <math.h>
#include <string.h>

#include "attn/mass.h"
#include "attn/prompt.h"

#define LOG2_E 1.44269504088896341

#define QUERY_FLOATS(d) ((uint64_t)PLEAT__PROMPT_ROWS * (d))
#define TILES_FLOATS(d) ((uint64_t)PLEAT__PROMPT_KEYS * (d))
#define LOGIT_FLOATS ((uint64_t)PLEAT__PROMPT_ROWS * PLEAT__PROMPT_KEYS)

uint64_t pleat__attn_prompt_scratch_bytes(uint32_t head_dim) {
    return PLEAT__PROMPT_ROW_CAP * sizeof(uint64_t) +
           (2 * QUERY_FLOATS(head_dim) + 2 * TILES_FLOATS(head_dim) + LOGIT_FLOATS + 4 * PLEAT__PROMPT_ROW_CAP) *
               sizeof(float);
}

uint64_t pleat__attn_prompt_kept_bytes(uint32_t n_slots) {
    return (uint64_t)pleat__div_up_u32(n_slots, PLEAT__PROMPT_KEYS) * sizeof(pleat__prompt_kept);
}

/* ---- shared with received_blocked.c ----------------------------------------------------------------------------------- */

/* The lowest n bits, n <= 64. */
static uint64_t low_bits(uint32_t n) { return n < 64 ? ((uint64_t)1 << n) - 1 : ~(uint64_t)0; }

uint64_t pleat__prompt_fetch(pleat__prompt_block *b, const pleat__kv_run *run, uint32_t slot, uint32_t n_slots,
                             const pleat__quant_dsp *quant, float *k, float *v) {
    const pleat__page_layout *layout = run->layout;
    const bool in_place = layout->format.k_bits == 32;
    const uint32_t tile_floats = PLEAT__TILE * layout->head_dim;
    uint64_t alive = low_bits(n_slots);
    b->n_tiles = pleat__div_up_u32(n_slots, PLEAT__TILE);
    for (uint32_t t = 0; t < b->n_tiles; t++) {
        const uint32_t first = slot + t * PLEAT__TILE;
        const uint32_t page_slot = first % layout->tokens, tile = page_slot / PLEAT__TILE;
        uint8_t *page = pleat__kv_page(run, first / layout->tokens);
        b->mass[t] = pleat__mass_tile(layout, page, tile);
        if (in_place) {
            b->k[t] = (const float *)(const void *)pleat__k_tile(layout, page, tile);
            b->v[t] = (const float *)(const void *)pleat__v_tile(layout, page, tile);
        } else {
            b->k[t] = k + t * tile_floats;
            quant->load_k(layout, page, tile, k + t * tile_floats);
            b->v[t] = v ? v + t * tile_floats : NULL;
            if (v) quant->load_v(layout, page, tile, v + t * tile_floats);
        }
        if (!layout->tracked) continue;
        const int32_t *pos = pleat__positions(layout, page) + page_slot;
        for (uint32_t j = 0; j < PLEAT__TILE; j++)
            if (pos[j] < 0) alive &= ~((uint64_t)1 << (t * PLEAT__TILE + j));
    }
    for (uint32_t t = b->n_tiles; t < PLEAT__PROMPT_TILES; t++) b->k[t] = b->k[0];
    return alive;
}

/* The same of a run of blocks.  A block of fewer tokens than are fetched is copied away before the next is loaded. */
static uint64_t fetch_blocks(pleat__prompt_block *b, const pleat__block_run *run, uint32_t slot, uint32_t n_slots,
                             pleat__block_loader *loader, float *k, float *v) {
    const uint32_t n_tokens = run->format->tokens, tile_floats = PLEAT__TILE * run->format->head_dim;
    b->n_tiles = pleat__div_up_u32(n_slots, PLEAT__TILE);
    for (uint32_t t = 0; t < b->n_tiles; t++) {
        const uint32_t first = slot + t * PLEAT__TILE, at = first % n_tokens / PLEAT__TILE * tile_floats;
        (void)pleat__block_loader_load(loader, run, first / n_tokens);
        b->mass[t] = NULL;
        b->k[t] = loader->k + at;
        b->v[t] = loader->v + at;
        if (n_tokens >= PLEAT__PROMPT_KEYS) continue;
        b->k[t] = memcpy(k + t * tile_floats, b->k[t], tile_floats * sizeof *k);
        b->v[t] = memcpy(v + t * tile_floats, b->v[t], tile_floats * sizeof *v);
    }
    for (uint32_t t = b->n_tiles; t < PLEAT__PROMPT_TILES; t++) b->k[t] = b->k[0];
    return low_bits(n_slots);
}

void pleat__prompt_set_visible(pleat__prompt_block *b, uint32_t slot, uint64_t alive, uint32_t n_queries, uint32_t seen,
                               uint32_t step) {
    b->row_from = b->n_rows;
    for (uint32_t i = n_queries; i-- > 0;) {
        const uint32_t end = seen + i * step;
        if (end <= slot) break; /* and so it is for all queries before */
        const uint64_t visible = alive & low_bits(pleat__min_u32(end - slot, PLEAT__PROMPT_KEYS));
        b->row_from = i * b->n_group;
        for (uint32_t g = 0; g < b->n_group; g++) b->visible[i * b->n_group + g] = visible;
    }
}

/* Bits of slots [from, to) in the block that begins at `slot`. */
static uint64_t bits_of(uint32_t slot, uint32_t from, uint32_t to) {
    const uint32_t n_before = from > slot ? from - slot : 0, n_until = to > slot ? to - slot : 0;
    return low_bits(n_until) & ~low_bits(n_before);
}

/* Of slots [slot, slot + 64), those that query i misses. */
static uint64_t missed(const pleat__prompt_hidden *hidden, uint32_t slot, uint32_t i) {
    const int64_t n = hidden->n_hidden + i;
    if (n <= 0) return 0;
    if (n >= hidden->n) return ~(uint64_t)0;
    const uint32_t end = hidden->oldest + (uint32_t)n;
    const uint64_t missed = bits_of(slot, hidden->oldest, pleat__min_u32(end, hidden->n));
    return end > hidden->n ? missed | bits_of(slot, 0, end - hidden->n) : missed;
}

void pleat__prompt_adjust(const pleat__prompt_block *b, pleat__attn_cap_fn cap, float cap2) {
    for (uint32_t row = b->row_from; cap2 > 0 && row < b->n_rows; row++)
        cap(b->s + row * PLEAT__PROMPT_KEYS, (size_t)b->n_tiles * PLEAT__TILE, cap2);
    for (uint32_t row = b->row_from; b->mass[0] && row < b->n_rows; row++)
        for (uint32_t t = 0; t < b->n_tiles; t++)
            pleat__mass_add(b->mass[t], b->s + row * PLEAT__PROMPT_KEYS + t * PLEAT__TILE);
}

void pleat__prompt_read_queries(float *to, const float *q, size_t q_stride, uint32_t n_queries, size_t row_floats,
                                float scale) {
    const float factor = (float)(scale * LOG2_E);
    for (uint32_t i = 0; i < n_queries; i++, q += q_stride, to += row_floats)
        for (size_t c = 0; c < row_floats; c++) to[c] = q[c] * factor;
}

/* ---- the walk ------------------------------------------------------------------------------------------------------- */

/* One call. */
typedef struct walk {
    const pleat__attn_prompt *args;
    const pleat__prompt_ops *ops;
    pleat__prompt_block block;
    float *k; /* dequantised */
    float *v;
    pleat__prompt_kept *kept; /* NULL: nothing is */
    uint32_t n_kept;
    uint32_t run_at; /* where the run at hand begins in `received` */
} walk;

static float *take(float **next, uint64_t n) {
    float *taken = *next;
    *next += n;
    return taken;
}

static void walk_init(walk *w, const pleat__attn_prompt *args, const pleat__prompt_ops *ops) {
    const uint32_t d = args->head_dim;
    float *next = args->scratch;
    *w = (walk){.args = args, .ops = ops, .kept = args->received ? args->weights : NULL};
    pleat__prompt_block *b = &w->block;
    b->head_dim = d;
    b->n_group = args->n_group;
    b->n_rows = args->n_queries * args->n_group;
    b->q = take(&next, QUERY_FLOATS(d));
    b->o = take(&next, QUERY_FLOATS(d));
    w->k = take(&next, TILES_FLOATS(d));
    w->v = take(&next, TILES_FLOATS(d));
    b->s = take(&next, LOGIT_FLOATS);
    b->visible = (uint64_t *)(void *)take(&next, 2 * PLEAT__PROMPT_ROW_CAP);
    b->l = take(&next, PLEAT__PROMPT_ROW_CAP);
    b->m = take(&next, PLEAT__PROMPT_ROW_CAP);
    b->rescale = take(&next, PLEAT__PROMPT_ROW_CAP);
    b->lse2 = take(&next, PLEAT__PROMPT_ROW_CAP);
    memset(b->o, 0, (size_t)b->n_rows * d * sizeof(float));
    for (uint32_t r = 0; r < PLEAT__PROMPT_ROW_CAP; r++) {
        b->l[r] = 0;
        b->m[r] = -INFINITY;
    }
}

/* The block at hand, from `slot` of its run on, leaves its weights where they stay. */
static void keep_begin(walk *w, uint32_t slot) {
    pleat__prompt_kept *kept = &w->kept[w->n_kept];
    kept->row_from = w->block.row_from;
    kept->n_tiles = w->block.n_tiles;
    kept->at = w->run_at + slot;
    w->block.s = kept->s;
}

static void keep_end(walk *w) { memcpy(w->kept[w->n_kept++].m, w->block.m, PLEAT__PROMPT_ROW_CAP * sizeof(float)); }

/* Take from what rows see what is hidden from them. */
static void hide(pleat__prompt_block *b, const pleat__prompt_hidden *hidden, uint32_t slot) {
    for (uint32_t row = b->row_from; row < b->n_rows; row++) b->visible[row] &= ~missed(hidden, slot, row / b->n_group);
}

/* Query i sees slots [0, seen + i*step) of `run`, but for those that are hidden, NULL: none. */
static void attend(walk *w, const pleat__kv_run *run, uint32_t seen, uint32_t step,
                   const pleat__prompt_hidden *hidden) {
    const uint32_t n_queries = w->args->n_queries, end = seen + (n_queries - 1) * step;
    for (uint32_t slot = 0; slot < end; slot += PLEAT__PROMPT_KEYS) {
        const uint32_t n_slots = pleat__min_u32(end - slot, PLEAT__PROMPT_KEYS);
        /* What the first query misses, the others do too. */
        if (hidden && (low_bits(n_slots) & ~missed(hidden, slot, 0)) == 0) continue;
        const uint64_t alive = run->blocks
                                   ? fetch_blocks(&w->block, run->blocks, slot, n_slots, w->args->loader, w->k, w->v)
                                   : pleat__prompt_fetch(&w->block, run, slot, n_slots, w->args->quant, w->k, w->v);
        if (alive == 0) continue;
        pleat__prompt_set_visible(&w->block, slot, alive, n_queries, seen, step);
        if (hidden) hide(&w->block, hidden, slot);
        if (w->kept) keep_begin(w, slot);
        w->ops->logits(&w->block);
        pleat__prompt_adjust(&w->block, w->ops->cap, w->args->cap2);
        w->ops->weights(&w->block);
        w->ops->values(&w->block);
        if (w->kept) keep_end(w);
    }
    w->run_at += pleat__attn_received_slots(run->n_slots);
}

/* The past's slots and the chunk's that lie before the newest args->window tokens of each query. */
static void attend_in_window(walk *w) {
    const pleat__attn_prompt *args = w->args;
    const int64_t n_missed = (int64_t)args->self_seen + 1 - args->window;
    const uint32_t n_past = args->past ? args->past->high.n_slots : 0, n_self = args->self_seen + args->n_queries;
    const pleat__prompt_hidden of_past = {n_past, args->oldest, n_missed + n_past}, of_self = {n_self, 0, n_missed};
    if (args->past) attend(w, &args->past->high, n_past, 0, &of_past);
    attend(w, args->self, args->self_seen + 1, 1, &of_self);
}

/* Each row's sink joins its sums, as pleat__attn_add_sinks() has it. */
static void add_sink(const walk *w, uint32_t row) {
    const pleat__prompt_block *b = &w->block;
    const float sink = w->args->sinks2[row % b->n_group], m = b->m[row] > sink ? b->m[row] : sink;
    const float rescale = exp2f(b->m[row] - m);
    float *o = b->o + (size_t)row * b->head_dim;
    b->m[row] = m;
    b->l[row] = b->l[row] * rescale + exp2f(sink - m);
    for (uint32_t c = 0; c < b->head_dim; c++) o[c] *= rescale;
}

/* Every row has seen its own slot at least, so l > 0. */
static void finish(const walk *w) {
    const pleat__attn_prompt *args = w->args;
    const uint32_t d = args->head_dim;
    for (uint32_t r = 0; r < w->block.n_rows; r++) {
        const uint32_t i = r / args->n_group, g = r % args->n_group;
        if (args->sinks2) add_sink(w, r);
        const float *o = w->block.o + (size_t)r * d;
        float *out = args->out + i * args->out_stride + (size_t)g * d;
        const float weight = 1 / w->block.l[r];
        /* + 0: no -0, the one trace that a skipped block could leave */
        for (uint32_t c = 0; c < d; c++) out[c] = o[c] * weight + 0.0f;
        w->block.lse2[r] = w->block.m[r] + log2f(w->block.l[r]);
        if (args->lse2) args->lse2[i * args->lse2_stride + g] = w->block.lse2[r];
    }
}

/* ---- the attention received ----------------------------------------------------------------------------------------- */

/* What queries give to their own slots does not count; those of the run begin at self_at of `received`. */
static void forget_own(const walk *w, pleat__prompt_kept *kept, uint32_t self_at) {
    const uint32_t n_group = w->args->n_group;
    for (uint32_t r = kept->row_from; r < w->block.n_rows; r++) {
        const uint32_t own = self_at + w->args->self_seen + r / n_group;
        if (own >= kept->at && own - kept->at < PLEAT__PROMPT_KEYS)
            kept->s[r * PLEAT__PROMPT_KEYS + own - kept->at] = 0;
    }
}

static void collect(walk *w, uint32_t self_at) {
    pleat__prompt_block *b = &w->block;
    b->n_group = w->args->n_together;
    for (uint32_t n = 0; n < w->n_kept; n++) {
        pleat__prompt_kept *kept = &w->kept[n];
        if (kept->at >= self_at) forget_own(w, kept, self_at);
        b->s = kept->s;
        b->m = kept->m;
        b->row_from = kept->row_from;
        b->n_tiles = kept->n_tiles;
        b->received = w->args->received + kept->at;
        w->ops->collect(b);
    }
}

void pleat__attn_prompt_blocked(const pleat__attn_prompt *args, const pleat__prompt_ops *ops) {
    walk w;
    if (args->n_queries == 0) return;
    walk_init(&w, args, ops);
    pleat__prompt_read_queries(w.block.q, args->q, args->q_stride, args->n_queries,
                               (size_t)args->n_group * args->head_dim, args->scale);
    uint32_t self_at = 0;
    if (args->window > 0) {
        attend_in_window(&w);
    } else {
        if (args->past) {
            attend(&w, &args->past->high, args->past->high.n_slots, 0, NULL);
            attend(&w, &args->past->low, args->past->low.n_slots, 0, NULL);
        }
        self_at = w.run_at;
        attend(&w, args->self, args->self_seen + 1, 1, NULL);
    }
    finish(&w);
    if (w.kept) collect(&w, self_at);
}
