/* SPDX-License-Identifier: MIT
 *
 * cache.h: what a cache is made of; the files of src/cache from the ground up.
 *
 *     layouts.c    what pages look like; the cache on a GPU asks too
 *     lane.c       one lane's slots: runs, storing tokens
 *     scratch.c    memory by size: every array that units and ends of steps work in
 *     keep/        how a lane keeps its tokens: a row of functions and traits for each kind (keep/keep.h)
 *     sequence.c   open, close, handles, lengths
 *     fork.c       sequences on the same pages, and the copies that begin makes of shared ones
 *     image_form.c  what an image looks like; the cache on a GPU asks too
 *     image.c      save and restore
 *     compress.c   higher thresholds for one sequence
 *     prompt.c     units of prompt chunks
 *     decode.c     units of single tokens
 *     step.c       begin (plan, commit), end, cancel
 *     attend.c     the calls of one layer
 *     create.c     options to sizes, sizes to memory; create and destroy
 *     inspect.c    usage, tokens, exported vectors, validity
 *     inspect_blocks.c  what blocks hold, as bytes
 *     traits.c     what engines and planners ask
 *     forecast.c   what a sequence would hold
 *
 * A file calls those above it in this list, never one below, and the kinds only by their rows.
 *
 * Pages are taken from the pool in four places and nowhere else, each after it has counted what is free: by begin's
 * plan (step.c), for begin's copies (fork.c), by restore (image.c) and by compress (compress.c).  They are returned by
 * the ends of steps, cancel, compress, close, and restore where it fails.
 */
#ifndef PLEAT_CACHE_CACHE_H
#define PLEAT_CACHE_CACHE_H

#include "attn/attn.h"
#include "cache/keep/state.h"
#include "cache/step.h"
#include "policy/scan.h"
#include "stats/stats.h"

/* Memory that attention works in, taken at create. */
typedef struct pleat__workspace {
    pleat__page_layout stage_layout; /* f32, one tile a page */
    uint8_t *stage;                  /* prompt chunks of one layer: for each item, head by head */
    pleat__page_id *stage_ids;       /* 0, 1, 2, ... */
    float *lse2;                     /* [step_tokens][n_q_heads] of a layer's chunks, where prompts are counted */
    float *q_kept;                   /* [step_tokens][n_q_heads][head_dim] copies of q, for when out is q */
    float *rotated_q;                /* [rows][n_q_heads][head_dim] of a call, where formats are rotated */
    float *rotated_k, *rotated_v;    /* [rows][n_kv_heads][head_dim] */
    float *strands;                  /* [strands][n_kv_heads][strand slots] attention received in a layer: prompt.c */
    uint8_t *worker;                 /* [workers][worker_bytes] */
    uint64_t worker_bytes;
    uint8_t *partials; /* accumulators of split lanes: [max_items][n_kv_heads][max_splits][acc_bytes] */
    uint64_t acc_bytes;
    uint32_t max_splits;
    uint64_t blocks_bytes;     /* of a single token's unit, for blocks */
    _Atomic uint32_t *pending; /* [max_items][n_kv_heads] splits that are not done */
    uint64_t logits_cap;       /* slots of the longest lane, tiles filled up */
    float *logits;             /* [max_items][n_kv_heads][n_group][logits_cap], where single tokens are counted and
                                * lanes can be split or long; its own allocation, never cleared, so that only what long
                                * lanes use becomes resident */
    uint64_t logits_bytes;
} pleat__workspace;

struct pleat_cache {
    /* Fixed at create. */
    pleat_allocator al;
    pleat_cache_options opt; /* as given, max_items resolved */
    uint32_t n_group;        /* query heads per KV head */
    float scale;
    float cap2;       /* opt.logit_cap in units of logit2; 0: none */
    float *sinks2;    /* [n_layers][n_q_heads] opt.sink_logits likewise; NULL: none */
    uint32_t n_lanes; /* of a sequence: n_layers * n_kv_heads; lane = layer * n_kv_heads + head */

    /* How lanes keep their tokens: pleat__keep_at() says which row a layer's lanes have. */
    const struct pleat__keep *keep; /* of full layers, whose queries see all tokens: the spec's kind */
    const struct pleat__keep *ring; /* of layers with a sliding window; NULL: there are none */
    pleat__kept kept;               /* what the rows have derived; only src/cache/keep reads it */
    uint64_t seq_bytes;             /* tables of the longest sequence, itself included */
    const struct pleat_cache
        *plain; /* sizes of the cache that the spec's kind chooses for, while one is made; else NULL */
    uint32_t n_full_layers;
    pleat_cache_traits traits;
    pleat__counting counting;
    const uint32_t *max_slots; /* [n_lanes] as in pleat__want */
    uint32_t high_weight;      /* low slots that a high slot's bytes come to where low slots hold no tokens; else 1 */

    /* Pages. */
    pleat__page_layout layouts[2];  /* [pleat__side]; without a low side both are the high side's */
    pleat__page_layout ring_layout; /* a ring's: the high side's format and slots, without scores */
    uint32_t page_tokens[2];        /* [pleat__side] slots of a page */
    uint64_t page_bytes;
    uint8_t *pages; /* [pool.n_pages][page_bytes] */
    uint64_t pages_bytes;
    pleat__pool pool;

    /* Sequences. */
    pleat__sequence *seqs; /* [max_seqs] */
    uint32_t n_open;
    uint32_t first_closed; /* every place before it is open */

    /* Kernels for this CPU. */
    pleat__quant_dsp quant;
    pleat__attn_dsp attn;
    pleat__scan_dsp scan;
    pleat__codec_dsp codec;

    pleat__step step;
    pleat__workspace work;
    pleat_cache_times times; /* where time went since create, in all sequences */

    void *block; /* all arrays but pages and logits */
    uint64_t block_bytes;
};

static inline uint32_t pleat__cache_lane_of(const pleat_cache *c, uint32_t layer, uint32_t head) {
    return layer * c->opt.n_kv_heads + head;
}

/* Whether a layer keeps as many tokens as the longest sequence has, by what the spec says: it has no window, or one that
 * is never full.  A layer that the statistics say nothing of, where the spec asks them, has a window even so. */
static inline bool pleat__cache_is_full(const pleat_cache_options *opt, uint32_t layer) {
    const uint32_t window = opt->windows ? opt->windows[layer] : 0;
    const pleat_stats *asked = pleat_spec_takes_stats(&opt->spec) ? opt->stats : NULL;
    if (window == 0 || window < opt->max_tokens) return window == 0;
    return !asked || layer >= asked->n_layers || asked->has_layer[layer]; /* of fewer layers: refused later */
}

/* Slots of a layer's rings; 0: a full layer. */
static inline uint32_t pleat__cache_window(const pleat_cache *c, uint32_t layer) {
    return c->ring && !pleat__cache_is_full(&c->opt, layer) ? c->opt.windows[layer] : 0;
}

static inline bool pleat__cache_is_ring(const pleat_cache *c, uint32_t lane) {
    return c->ring && pleat__cache_window(c, lane / c->opt.n_kv_heads) > 0;
}

/* What the pages of a lane's side look like. */
static inline const pleat__page_layout *pleat__cache_layout(const pleat_cache *c, uint32_t lane, pleat__side side) {
    return side == PLEAT__HIGH && pleat__cache_is_ring(c, lane) ? &c->ring_layout : &c->layouts[side];
}

/* Whether lanes hold rotated vectors (quant/rotate.h): those of every format do, if one is rotated. */
static inline bool pleat__cache_is_rotated(const pleat_cache *c) {
    return c->opt.spec.high.rotated || c->opt.spec.low.rotated;
}

/* A worker's scratch, empty. */
static inline pleat__arena pleat__cache_scratch(const pleat_cache *c, uint32_t worker) {
    return (pleat__arena){.base = c->work.worker + worker * c->work.worker_bytes, .cap_bytes = c->work.worker_bytes};
}

/* Sinks of a KV head's query heads; NULL: none. */
static inline const float *pleat__cache_sinks(const pleat_cache *c, uint32_t layer, uint32_t kv_head) {
    return c->sinks2 ? c->sinks2 + (size_t)layer * c->opt.n_q_heads + (size_t)kv_head * c->n_group : NULL;
}

/* Index of a row's head in q, out and (without head_dim) lse. */
static inline size_t pleat__cache_head_at(const pleat_cache *c, uint32_t row, uint32_t kv_head) {
    return (size_t)row * c->opt.n_q_heads + (size_t)kv_head * c->n_group;
}

#endif
