/* SPDX-License-Identifier: MIT
 *
 * keep.h: how a lane keeps its tokens: one row of functions and traits a kind, one file a row.
 *
 *     all.c      every token, in one format, in the order of positions
 *     ring.c     the newest tokens of a layer with a sliding window, in the spec's high format
 *     levels.c   a policy keeps each token high, low or not at all (leankv, topk)
 *     budget.c   a policy keeps so many tokens of each lane (eviction)
 *     blocks.c   the first and newest tokens in pages of one format, cold ones in compressed blocks (kvcomp, kivi)
 *
 * Three rows are the upper half of a kind: levels.c over compact.c, budget.c over evict.c and
 * novelty.c, blocks.c over block_writer.c.
 * What several kinds do alike stands in plain.h (lanes without scores), scored.h, and groups.h (lanes whose lengths
 * depend on the text, counted without a cache).
 *
 * A cache has one row or two: lanes of full layers, whose queries see all tokens, have the spec's, c->keep, and lanes of
 * layers with a sliding window have the rings', c->ring.  What a lane does, pleat__keep_at() of its layer answers.  What
 * a sequence or a step does is c->keep's, whose loops over lanes leave rings out; of a ring's row there is also called
 * what is marked so below.  A spec's lanes do not notice: they have the bits of a cache that lacks the other layers.
 *
 * A step asks a row a few times a unit of work, never in a loop over slots; kernels know nothing of it.  A row has no
 * state of its own: what derive finds out stands in the cache, its own part in c->kept.  Of the other files of src/cache
 * rows call lane.c, scratch.c and layouts.c alone.
 *
 * A new kind is a file with a row, an entry in pleat__keep_of(), and its tests.
 */
#ifndef PLEAT_CACHE_KEEP_KEEP_H
#define PLEAT_CACHE_KEEP_KEEP_H

#include "cache/lane.h"
#include "cache/scratch.h"
#include "pleat/forecast.h"

/* Pages of a lane that a step writes: some of the high ones, and those of each side from some page on. */
typedef struct pleat__written {
    struct {
        uint32_t first, end;
    } high;           /* high pages that tokens leave or move to */
    uint32_t from[2]; /* [pleat__side] */
} pleat__written;

/* High pages that a lane's tokens have left for good: n of them, behind those that stay. */
typedef struct pleat__left {
    uint32_t first; /* pages that stay */
    uint32_t n;
} pleat__left;

/* Where a token of a lane stands. */
typedef struct pleat__token_at {
    pleat_level level;
    bool is_in_block;
    uint8_t *page;  /* NULL: dropped, in a block, or a low token in a page that has no positions */
    uint32_t slot;  /* in the page, or in the block */
    uint32_t block; /* of the lane */
} pleat__token_at;

/* Counts of an image that is being restored. */
typedef struct pleat__image_counts {
    uint32_t n_tokens, n_classed;
} pleat__image_counts;

typedef struct pleat__keep {
    pleat_cache_traits traits; /* of every cache of the kind; derive adds what depends on the options */
    bool has_equal_lanes;      /* its lanes of a sequence hold as many high pages */
    uint32_t span_slack;       /* slots of a lane's span in decode beyond its tokens, at most */

    /* ---- create */

    /* Layouts, traits, counting, and kept's part of the kind, from the options alone; c->ring's comes after c->keep's.
     * PLEAT_E_ARG, saying why. */
    pleat_status (*derive)(pleat_cache *c, pleat_error *err);
    /* The kind chooses something, so that images go from cache to cache, for one with the spec's own pages and sequences of
     * so many tokens: c->plain in check and init.  0, or NULL: it does not. */
    uint32_t (*plain_tokens)(const pleat_cache *c);
    /* What was chosen: *out, which is the cache's spec, becomes one that says it.  NULL: nothing is. */
    void (*choice)(const pleat_cache *c, pleat_spec *out);
    /* What the options of a cache must have, and those of one that is only planned need not.  PLEAT_E_ARG.  NULL: no
     * more. */
    pleat_status (*check)(const pleat_cache *c, const pleat_cache_options *opt, pleat_error *err);
    /* Arrays of the cache; then their contents, of the caller's options: first those of rings.  NULL: none. */
    void (*carve)(pleat_cache *c, pleat__arena *arena);
    void (*init)(pleat_cache *c, const pleat_cache_options *opt);
    /* Arrays of a sequence beside its table.  NULL: none. */
    void (*carve_seq)(const pleat_cache *c, uint32_t max_tokens, pleat__sequence *seq, pleat__arena *arena);
    /* Their contents in a new sequence.  NULL: they need none. */
    void (*open_seq)(const pleat_cache *c, pleat__sequence *seq);
    /* Take the memory beside these arrays that a sequence with so many classed tokens needs, if it has not got it.
     * PLEAT_E_MEMORY: nothing has changed.  NULL: none. */
    pleat_status (*reserve)(pleat_cache *c, pleat__sequence *seq, uint32_t n_classed);
    /* Bytes of it at n_tokens tokens.  NULL: none. */
    uint64_t (*reserved_bytes)(const pleat_cache *c, uint32_t n_tokens);
    /* Bytes that a sequence never holds more than once its prompt has been read; UINT64_MAX where nothing is promised.  NULL:
     * nothing ever is. */
    uint64_t (*promised_bytes)(const pleat_cache *c, uint32_t n_tokens);
    /* Bytes of a worker's scratch that end_unit takes.  NULL: none. */
    uint64_t (*end_bytes)(const pleat_cache *c);
    /* High slots that a lane of n_tokens tokens holds at most; is_read: once its prompt has been read. */
    uint32_t (*lane_slots)(const pleat_cache *c, uint32_t layer, uint32_t n_tokens, bool is_read);
    /* Pages that a lane of n_slots > 0 such slots holds at most: in a step, or between steps. */
    uint64_t (*lane_pages)(const pleat_cache *c, uint32_t n_slots, bool in_step);
    /* Tokens of a lane that stay at most when a prompt of n_prompt tokens has ended.  NULL: no budget. */
    uint32_t (*max_kept)(const pleat_cache *c, uint32_t n_prompt);

    /* ---- forecasts: what a step does, in numbers and without a cache; by the functions that plan, lane_slots and
     * low_wanted call, too */

    pleat_lane_kind kind; /* the row's name in a forecast; rings have none */
    /* What a forecast has to know of the options.  NULL: nothing. */
    void (*forecast)(const pleat_cache *c, pleat_forecast *out);
    /* *q, which holds what there was before, becomes what there is after a step with the counts n.  end: the one that
     * changes no lane.  Of *q n_tokens and n_prompt are the caller's.  Rings, asked last, add their pages to *q. */
    void (*forecast_step)(const pleat_forecast *f, const pleat__item_counts *n, pleat__item_end end,
                          pleat_forecast_seq *q);
    /* As max_kept.  NULL: no budget. */
    uint32_t (*forecast_kept)(const pleat_forecast *f, uint32_t n_prompt);
    /* Of a lane that was looked at, its high slots for a classed token.  n_warm: tokens that are not classed.  NULL: no
     * sample is wanted, since nothing depends on the text. */
    float (*sample_high)(const pleat__lane *lane, uint32_t n_warm, uint32_t n_classed);

    /* ---- a step */

    /* What the end of a step with the counts n does: *end, which changes no lane.  NULL: nothing. */
    void (*plan)(const pleat_cache *c, const pleat__item_counts *n, pleat__item_end *end);
    /* Low slots that each lane needs free at the end.  NULL: none. */
    uint32_t (*low_wanted)(const pleat_cache *c, const pleat__step_item *item);
    /* The first page of a lane's side that a step may write: those before it are full, and sealed where tokens are
     * scored. */
    uint32_t (*first_written)(const pleat_cache *c, const pleat__table *table, uint32_t lane, pleat__side side);
    /* The pages of a lane that the item's step writes.  NULL: those from first_written on. */
    pleat__written (*written)(const pleat_cache *c, const pleat__step_item *item, uint32_t lane);
    /* Rings alone: the step's tokens count from now on. */
    void (*grown)(const pleat_cache *c, pleat__sequence *seq);
    /* Units of an item's end, which run in parallel, and one of them.  NULL: the end changes no page. */
    uint32_t (*end_units)(const pleat_cache *c);
    void (*end_unit)(const pleat_cache *c, const pleat__step_item *item, uint32_t unit, pleat__arena *scratch);
    /* Seal full pages whose tokens all stand before position n_final.  NULL: there are no seals. */
    void (*seal)(const pleat_cache *c, pleat__sequence *seq, uint32_t n_final);
    /* The step is given up, or does not begin: undo what storing has done to the item's lanes, and return what was
     * reserved for it alone.  Rings are asked too, of steps that began.  NULL: nothing to undo. */
    void (*cancel)(const pleat_cache *c, const pleat__step_item *item);

    /* ---- attention */

    /* A layer's queries, as they came, before anything of the step is stored in it.  NULL: the kind looks at none. */
    void (*look)(const pleat__layer_job *job);
    /* Rings alone: put a chunk's tokens of one head in the place of those that its queries, which have all been answered,
     * may have seen.  NULL: chunks are stored behind what there is, before their queries. */
    void (*put_chunk)(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head);
    /* What is read beside the high side.  Where these are blocks, run.blocks is `blocks`, which is filled. */
    pleat__kv_run (*low_run)(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, pleat__block_run *blocks);
    /* What dequantises blocks for prompts and export.  NULL: there are none. */
    void (*carve_loader)(const pleat_cache *c, pleat__block_loader *loader, pleat__arena *arena);

    /* ---- fork, image, compress */

    /* High pages that the sequence's tokens have left in each lane.  NULL: none. */
    pleat__left (*left)(const pleat_cache *c, const pleat__sequence *seq);
    /* Copy what a fork does not share by its table.  NULL: nothing. */
    void (*fork)(const pleat_cache *c, const pleat__sequence *from, pleat__sequence *to);
    /* What an image holds beside tables and pages: bytes, writing, reading.  read: false if no cache writes such a
     * thing; the sequence's table is filled.  NULL: nothing. */
    uint64_t (*image_bytes)(const pleat_cache *c, uint32_t n_classed);
    const char *(*image_key)(const pleat_cache *c); /* a text that has to be alike beside the spec; NULL: none */
    void (*write_image)(const pleat_cache *c, const pleat__sequence *seq, uint8_t *out);
    bool (*read_image)(const pleat_cache *c, const uint8_t *in, const pleat__image_counts *counts,
                       pleat__sequence *seq);
    /* May a lane have these slots?  Asked before they are believed. */
    bool (*lane_is_sound)(const pleat_cache *c, uint32_t lane_idx, const pleat__lane *lane,
                          const pleat__image_counts *counts);
    /* Do the restored pages of the lane hold what can be read?  scratch: as is_valid's.  NULL: always. */
    bool (*is_intact)(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, uint8_t *scratch);
    /* Open the lane's sealed pages again, back to the last shared one.  NULL: there are no seals. */
    void (*unseal)(const pleat_cache *c, pleat__sequence *seq, uint32_t lane);
    /* Class a lane's open tokens again by seq->spec; two low pages of its row are free.  Asked where
     * traits.can_compress. */
    void (*reclass)(const pleat_cache *c, pleat__sequence *seq, uint32_t lane, pleat__arena *scratch);

    /* ---- inspection */

    /* Tokens of a lane that are not high, and the slots that are held for them.  NULL: those of the low side. */
    void (*count_low)(const pleat_cache *c, const pleat__sequence *seq, const pleat__lane *lane, uint32_t *n_tokens,
                      uint64_t *n_slots);
    pleat__token_at (*find)(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, uint32_t position);
    /* How the tokens at [first, first + n_tokens) are kept. */
    void (*list)(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, uint32_t first, uint32_t n_tokens,
                 pleat_cache_token *out);
    /* Whether the lane's slots and pages hold what they must.  scratch: pleat__keep_check_bytes(). */
    bool (*is_valid)(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, uint8_t *scratch);
    uint64_t (*check_bytes)(const pleat_cache *c);
} pleat__keep;

extern const pleat__keep pleat__keep_all, pleat__keep_ring, pleat__keep_levels, pleat__keep_budget, pleat__keep_blocks;

/* Whether there are rows for such options, whose spec is valid.  PLEAT_E_ARG, saying what does not go together. */
pleat_status pleat__keep_check(const pleat_cache_options *opt, pleat_error *err);

/* Are the options' statistics there, and of such a model?  PLEAT_E_ARG; why: what they are for. */
pleat_status pleat__keep_check_stats(const pleat_cache_options *opt, const char *why, pleat_error *err);

/* Set the cache's rows, and how many layers each has, by its options, which pleat__keep_check() takes. */
void pleat__keep_choose(pleat_cache *cache);

/* The row of full layers that a forecast is of. */
const pleat__keep *pleat__keep_of_kind(pleat_lane_kind kind);

/* What `before` becomes in a step, in lanes of either row; arguments as for forecast_step. */
void pleat__keep_forecast_step(const pleat_forecast *forecast, const pleat__item_counts *n, pleat__item_end end,
                               pleat_forecast_seq *q);

/* ---- layers and rows */

/* The row of a layer's lanes, and of a lane. */
static inline const pleat__keep *pleat__keep_at(const pleat_cache *c, uint32_t layer) {
    return pleat__cache_window(c, layer) ? c->ring : c->keep;
}

static inline const pleat__keep *pleat__keep_of_lane(const pleat_cache *c, uint32_t lane) {
    return pleat__cache_is_ring(c, lane) ? c->ring : c->keep;
}

/* Bytes of scratch that is_valid and is_intact take. */
static inline uint64_t pleat__keep_check_bytes(const pleat_cache *c) {
    return c->keep->check_bytes ? c->keep->check_bytes(c) : c->opt.max_tokens;
}

/* A full layer's index among those. */
static inline uint32_t pleat__full_idx(const pleat_cache *c, uint32_t layer) {
    return c->ring ? c->kept.ring.full_idx[layer] : layer;
}

/* A full layer's lane among the lanes of those. */
static inline uint32_t pleat__full_lane_idx(const pleat_cache *c, uint32_t lane) {
    const uint32_t n_heads = c->opt.n_kv_heads;
    return c->ring ? pleat__full_idx(c, lane / n_heads) * n_heads + lane % n_heads : lane;
}

static inline uint32_t pleat__n_full_lanes(const pleat_cache *c) { return c->n_full_layers * c->opt.n_kv_heads; }

/* Those of [first, first + n) that are lanes of full layers, into lanes; how many they are. */
static inline uint32_t pleat__full_lanes(const pleat_cache *c, uint32_t first, uint32_t n, uint32_t *lanes) {
    uint32_t n_full = 0;
    for (uint32_t lane = first; lane < first + n; lane++)
        if (!pleat__cache_is_ring(c, lane)) lanes[n_full++] = lane;
    return n_full;
}

/* Lanes of full layers that a forecast counts. */
static inline uint32_t pleat__forecast_full_lanes(const pleat_forecast *f) {
    return f->traits.n_lanes - f->traits.n_ring_lanes;
}

#endif
