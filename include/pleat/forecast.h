/* SPDX-License-Identifier: MIT
 *
 * forecast.h: the pages that a sequence would hold, step by step, without a cache: from options alone where these say it,
 * and with samples where it depends on the text.
 *
 *     pleat_forecast_for(options)            what the spec keeps of a lane's tokens, and when
 *     pleat_forecast_measure(cache, seq)     a sample: how many were kept high, what blocks took (levels, blocks)
 *     pleat_forecast_step(before, n, flags)  what a sequence holds after a step, and in it
 *     pleat_forecast_bytes(pages)            of that in bytes
 *
 * Budgets, windows and uniform formats need no sample.  How many tokens leankv and topk keep, and what compressed blocks
 * take, is known when they are made: a forecast of these is_measured when a sequence that was has been looked at.
 * Lanes are counted by groups of equal shares, of 1/16 of them each.
 *
 * Not counted: representatives of kvcrush beyond a budget, sealed tokens beside a budget, and thresholds that are raised.
 */
#ifndef PLEAT_FORECAST_H
#define PLEAT_FORECAST_H

#include "pleat/cache.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLEAT_FORECAST_GROUPS 16
#define PLEAT_FORECAST_SAMPLES 4

/* How lanes of full layers, those without a window, keep their tokens. */
typedef enum pleat_lane_kind {
    PLEAT_LANES_WHOLE = 0, /* all tokens in one format, or a fraction of them */
    PLEAT_LANES_BUDGET,    /* a number of tokens in one format */
    PLEAT_LANES_LEVELS,    /* tokens high, low or dropped */
    PLEAT_LANES_BLOCKS     /* the newest tokens in the buffer's format, the others in blocks */
} pleat_lane_kind;

/* What was kept of a sequence's classed tokens, those behind the window or in blocks; groups of lanes in ascending
 * order. */
typedef struct pleat_forecast_sample {
    uint32_t n_classed;
    float high[PLEAT_FORECAST_GROUPS]; /* high slots for a classed token; 0 in blocks */
    float low[PLEAT_FORECAST_GROUPS];  /* low slots for a classed token */
} pleat_forecast_sample;

/* Plain data: copy it as you like. */
typedef struct pleat_forecast {
    size_t size_bytes;         /* sizeof(pleat_forecast) */
    pleat_cache_traits traits; /* how many lanes are rings, too */
    pleat_lane_kind kind;      /* of the others, whose alone samples, budgets and slots are */
    pleat_spec spec;
    uint32_t n_kv_heads;
    uint32_t byte_tokens;      /* tokens of a lane that a budget in bytes comes to */
    uint32_t low_slots;        /* of a low page; 0: there is no low side */
    uint32_t block_tokens;     /* of a block; 0: there are none */
    uint64_t codebooks_bytes;  /* of a sequence that has blocks, beside its tables */
    double fraction;           /* part of its tokens that a lane of PLEAT_LANES_WHOLE has slots for */
    float most_high, most_low; /* slots for a classed token as long as there is no sample */
    uint32_t wants_samples;    /* 1: what lanes keep depends on the text, and each keeps another part */
    uint32_t is_measured;      /* 1: no sample is wanting */
    uint32_t n_samples;
    pleat_forecast_sample samples[PLEAT_FORECAST_SAMPLES]; /* ascending by n_classed */
} pleat_forecast;

/* A sequence, between steps; zeros: an empty one.  Pages are summed over its lanes. */
typedef struct pleat_forecast_seq {
    uint32_t n_tokens, n_classed;
    uint32_t n_prompt; /* tokens when its last prompt had been read */
    uint32_t n_live;   /* budgets: tokens of a lane */
    uint32_t n_slots;  /* budgets: slots of a lane */
    uint32_t has_hole; /* 1: the next token takes a slot that is there */
    uint64_t n_pages;
    uint64_t high_pages;   /* of n_pages, those of the high side */
    uint64_t step_pages;   /* the most that it held in the step */
    uint64_t sealed_pages; /* by items that seal */
    uint64_t final_pages;  /* full pages that are never written again: forks share them */
    uint64_t still_pages;  /* final ones, and full pages whose tokens are still to be compressed */
    double full_pages;     /* pages that its live slots would fill */
} pleat_forecast_seq;

/* A forecast for a cache of these options.  The errors of pleat_cache_create(), but for memory; PLEAT_E_UNSUPPORTED for
 * reclaim=block, where the text decides which pages become empty, and for windows of several sizes.  err may be NULL. */
PLEAT_API pleat_status pleat_forecast_for(const pleat_cache_options *opt, pleat_forecast *out, pleat_error *err);

/* A forecast of lanes that hold a slot for each token, or a fraction of them: of numbers alone. */
PLEAT_API pleat_forecast pleat_forecast_of_fraction(uint32_t n_lanes, uint32_t page_tokens, uint64_t page_bytes,
                                                    double fraction);

/* Take a sample from a sequence whose prompt has been read, in a cache of the same spec; longer ones after shorter ones.
 * Nothing is taken where no sample is wanted.  PLEAT_E_LIMIT when there are PLEAT_FORECAST_SAMPLES already, PLEAT_E_ARG for
 * a cache of another kind of lanes or one in a step.  Samples are per token: those of one forecast may be copied to
 * another of the same spec, whatever its pages hold. */
PLEAT_API pleat_status pleat_forecast_measure(pleat_forecast *forecast, const pleat_cache *cache, pleat_seq seq);

/* The most tokens that a lane keeps when a prompt of n_prompt tokens has been read; UINT32_MAX: all. */
PLEAT_API uint32_t pleat_forecast_max_kept(const pleat_forecast *forecast, uint32_t n_prompt);

/* What `before` holds after a step with n_new >= 1 tokens and flags PLEAT_ITEM_*. */
PLEAT_API pleat_forecast_seq pleat_forecast_step(const pleat_forecast *forecast, const pleat_forecast_seq *before,
                                                 uint32_t n_new, uint32_t flags);

/* Bytes of so many pages, with the pool's for each, as pleat_cache_usage counts them.  A sequence's tables are
 * pleat_cache_bytes_for() for no token, and codebooks_bytes once it has n_classed > 0 tokens in blocks. */
PLEAT_API uint64_t pleat_forecast_bytes(const pleat_forecast *forecast, uint64_t n_pages);

#ifdef __cplusplus
}
#endif
#endif
