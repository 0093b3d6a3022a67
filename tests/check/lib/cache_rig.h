/* SPDX-License-Identifier: MIT
 *
 * cache_rig.h: a cache of a spec and a shape, its sequences and usage, and numbers that depend on a seed alone.
 *
 * What a test needs beyond that (an oracle, rows that attract attention, worlds of many sequences) stands in the test or
 * in its folder's own rig.
 */
#ifndef CHECK_CACHE_RIG_H
#define CHECK_CACHE_RIG_H

#include <math.h>

#include "check.h"
#include "core/rng.h"
#include "pleat/cache.h"
#include "pleat/stats.h"

/* ---- bounded logits ---------------------------------------------------------------------------------- */

/* logit_cap of the caches that are made from now on, and of an oracle's logits; 0: none. */
static float cache_logit_cap;

static inline double cache_logit(double x) {
    const double cap = (double)cache_logit_cap;
    return cap > 0 ? cap * tanh(x / cap) : x;
}

/* Whether they have sinks, and the one of a query head. */
static bool cache_has_sinks;

static inline float cache_sink(uint32_t layer, uint32_t q_head) {
    return cache_has_sinks ? (float)((layer * 7 + q_head * 3) % 5) - 1 : -INFINITY;
}

/* How keys are said to be turned: by layer in two ways of pairing, of half the dimensions or all, or not at all. */
static inline const pleat_rope *cache_rope(uint32_t layer, uint32_t head_dim) {
    static double frequencies[256];
    static pleat_rope ropes[2];
    for (uint32_t i = 0; i < 256; i++) frequencies[i] = pow(0.75, i);
    ropes[0] = (pleat_rope){head_dim / 2, 1, 1.25f, frequencies};
    ropes[1] = (pleat_rope){head_dim, 0, 1, frequencies};
    return layer % 3 < 2 ? &ropes[layer % 3] : NULL;
}

/* Statistics for rd (stats_rig.h makes some); NULL: none. */
static const pleat_stats *cache_stats;

/* ---- caches ---------------------------------------------------------------------------------------- */

/* 0: the library's default. */
typedef struct cache_shape {
    uint32_t n_layers, n_kv_heads, head_dim;
    uint32_t group; /* query heads for each KV head */
    uint32_t page_tokens, max_seqs, max_items;
    uint32_t max_tokens, step_tokens;
    uint64_t pool_bytes;
    pleat_workers *workers;
} cache_shape;

static inline pleat_cache_options cache_options_of(const char *spec, const cache_shape *shape) {
    pleat_cache_options opt;
    pleat_cache_options_default(&opt);
    CHECK_STATUS(pleat_spec_parse(spec, &opt.spec, NULL), PLEAT_OK);
    opt.n_layers = shape->n_layers;
    opt.n_kv_heads = shape->n_kv_heads;
    opt.n_q_heads = shape->n_kv_heads * shape->group;
    opt.head_dim = shape->head_dim;
    opt.logit_cap = cache_logit_cap;
    static float sinks[1024]; /* until the cache has been created */
    for (uint32_t i = 0; cache_has_sinks && i < opt.n_layers * opt.n_q_heads && i < CHECK_COUNT(sinks); i++)
        sinks[i] = cache_sink(i / opt.n_q_heads, i % opt.n_q_heads);
    opt.sink_logits = cache_has_sinks ? sinks : NULL;
    static const pleat_rope *ropes[1024];
    for (uint32_t layer = 0; layer < opt.n_layers && layer < CHECK_COUNT(ropes); layer++)
        ropes[layer] = cache_rope(layer, opt.head_dim);
    opt.ropes = ropes;
    opt.stats = cache_stats;
    opt.page_tokens = shape->page_tokens;
    opt.max_items = shape->max_items;
    opt.max_tokens = shape->max_tokens;
    opt.pool_bytes = shape->pool_bytes;
    opt.workers = shape->workers;
    if (shape->max_seqs) opt.max_seqs = shape->max_seqs;
    if (shape->step_tokens) opt.step_tokens = shape->step_tokens;
    return opt;
}

/* NULL, and a failed check with the cache's words, if it cannot be made. */
static inline pleat_cache *cache_made(const pleat_cache_options *opt) {
    pleat_cache *cache = NULL;
    pleat_error err = {0};
    const pleat_status status = pleat_cache_create(opt, &cache, &err);
    if (status != PLEAT_OK) check_context("%s", err.text);
    CHECK_STATUS(status, PLEAT_OK);
    return cache;
}

static inline pleat_cache *cache_of(const char *spec, const cache_shape *shape) {
    const pleat_cache_options opt = cache_options_of(spec, shape);
    return cache_made(&opt);
}

static inline pleat_seq cache_seq(pleat_cache *cache, uint32_t max_tokens) {
    pleat_seq seq = {0};
    CHECK_STATUS(pleat_cache_open(cache, max_tokens, &seq), PLEAT_OK);
    return seq;
}

/* Of one sequence. */
static inline pleat_cache_usage cache_usage(const pleat_cache *cache, pleat_seq seq) {
    pleat_cache_usage u = {0};
    CHECK_STATUS(pleat_cache_get_usage(cache, seq, &u), PLEAT_OK);
    return u;
}

/* Of the whole cache. */
static inline pleat_cache_usage cache_usage_all(const pleat_cache *cache) { return cache_usage(cache, (pleat_seq){0}); }

/* Nothing is held any more: every page is back. */
static inline void cache_check_empty(const pleat_cache *cache) {
    CHECK_EQ_U64(cache_usage_all(cache).pages_used, 0);
    CHECK_EQ_U64(cache_usage_all(cache).bytes, 0);
    CHECK(pleat_cache_is_valid(cache));
}

/* ---- numbers ------------------------------------------------------------------------------------------ */

/* Seeds are drawn through the generator once, since those of neighbours would give its own sequence, shifted by one. */
static inline pleat__rng rng_of_seed(uint64_t seed) {
    pleat__rng rng = {seed};
    return (pleat__rng){pleat__rng_u64(&rng)};
}

/* The numbers of one token in one layer of a sequence. */
static inline pleat__rng rng_of_token(uint32_t seq, uint32_t layer, uint32_t position) {
    return rng_of_seed((uint64_t)seq << 40 | (uint64_t)layer << 32 | position);
}

/* Uniform in [-size, size). */
static inline float rng_within(pleat__rng *rng, float size) { return size * (2 * pleat__rng_f32(rng) - 1); }

static inline void fill_within(pleat__rng *rng, float *x, size_t n, float size) {
    for (size_t i = 0; i < n; i++) x[i] = rng_within(rng, size);
}

#endif
