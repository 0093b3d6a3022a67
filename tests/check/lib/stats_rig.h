/* SPDX-License-Identifier: MIT
 *
 * stats_rig.h: statistics of a made-up model, as a collector finds them, and the keys that it has.
 */
#ifndef CHECK_STATS_RIG_H
#define CHECK_STATS_RIG_H

#include <stdlib.h>
#include <string.h>

#include "cache_rig.h"
#include "pleat/stats.h"

#define STATS_MODEL "0123456789abcdef0123456789abcdef"

/* Element i of the mean key of a lane, before it is turned, and its deviation. */
static inline float stats_mean(uint32_t layer, uint32_t head, uint32_t i) {
    return (i * 7 + head * 3 + layer) % 5 == 0 ? 1.5f - 0.5f * (float)(i % 4) : 0;
}
static inline float stats_spread(uint32_t i) { return 0.25f + 0.25f * (float)(i % 6); }

/* k0 [d] turned to a position by the layer's rope (cache_rope). */
static inline void stats_turn(const pleat_rope *rope, uint32_t position, uint32_t d, float *k) {
    for (uint32_t i = 0; rope && i < rope->n_dims / 2; i++) {
        const uint32_t x = rope->is_halves ? i : 2 * i, y = rope->is_halves ? i + rope->n_dims / 2 : 2 * i + 1;
        const double a = rope->frequencies[i] * position, m = (double)rope->magnitude;
        const double kx = (double)k[x], ky = (double)k[y];
        k[x] = (float)(m * (cos(a) * kx - sin(a) * ky));
        k[y] = (float)(m * (sin(a) * kx + cos(a) * ky));
    }
    (void)d;
}

/* The key and value of a token in a lane, which depend on its id and position alone. */
static inline void stats_token(uint64_t id, uint32_t layer, uint32_t head, uint32_t position, uint32_t d, float *k,
                               float *v) {
    pleat__rng rng = rng_of_seed(id << 16 | layer << 8 | head);
    const float size = 0.5f + 2 * pleat__rng_f32(&rng);
    for (uint32_t i = 0; i < d; i++) {
        k[i] = stats_mean(layer, head, i) + stats_spread(i) * rng_within(&rng, 1.7f);
        v[i] = size * rng_within(&rng, 1);
    }
    stats_turn(cache_rope(layer, d), position, d, k);
}

/* A sequence's part of a step: token t has ids[t]. */
typedef struct stats_part {
    pleat_seq seq;
    const uint64_t *ids;
    uint32_t n, flags;
} stats_part;

/* Rows of one layer of n parts, one behind the other. */
static inline void stats_rows(const pleat_cache *cache, const cache_shape *s, const stats_part *parts, uint32_t n,
                              uint32_t layer, float *q, float *k, float *v) {
    const uint32_t d = s->head_dim;
    const size_t kv_row = (size_t)s->n_kv_heads * d, q_row = kv_row * s->group;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t t = 0; t < parts[i].n; t++, q += q_row, k += kv_row, v += kv_row) {
            const uint32_t position = pleat_cache_length(cache, parts[i].seq) + t;
            pleat__rng rng = rng_of_seed(parts[i].ids[t] * 31 + layer);
            fill_within(&rng, q, q_row, 1);
            for (uint32_t head = 0; head < s->n_kv_heads; head++)
                stats_token(parts[i].ids[t], layer, head, position, d, k + head * d, v + head * d);
        }
}

/* A step of at most 8 parts.  out, [n_layers] of all rows, may be NULL. */
static inline void stats_step_of(pleat_cache *cache, const cache_shape *s, const stats_part *parts, uint32_t n_parts,
                                 float *out) {
    const size_t kv_row = (size_t)s->n_kv_heads * s->head_dim, q_row = kv_row * s->group;
    pleat_cache_item items[8];
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_parts; n += parts[i++].n)
        items[i] = (pleat_cache_item){parts[i].seq, parts[i].n, parts[i].flags};
    float *q = malloc(n * q_row * sizeof *q), *k = malloc(n * kv_row * sizeof *k), *v = malloc(n * kv_row * sizeof *v);
    float *own = malloc(n * q_row * sizeof *own);
    CHECK_STATUS(pleat_cache_begin(cache, items, n_parts), PLEAT_OK);
    for (uint32_t layer = 0; layer < s->n_layers; layer++) {
        stats_rows(cache, s, parts, n_parts, layer, q, k, v);
        CHECK_STATUS(pleat_cache_attend(cache, layer, q, k, v, out ? out + layer * n * q_row : own), PLEAT_OK);
    }
    CHECK_STATUS(pleat_cache_end(cache), PLEAT_OK);
    free(q);
    free(k);
    free(v);
    free(own);
}

static inline void stats_step(pleat_cache *cache, const cache_shape *s, pleat_seq seq, const uint64_t *ids, uint32_t n,
                              uint32_t flags, float *out) {
    const stats_part one = {seq, ids, n, flags};
    stats_step_of(cache, s, &one, 1, out);
}

/* Tokens in random parts of at most `most`, some of which end a prompt.  About half of them share their step with a
 * neighbour's tokens, before or behind them; the cache has room for it. */
static inline void stats_feed(pleat_cache *cache, const cache_shape *s, pleat_seq seq, const uint64_t *ids, uint32_t n,
                              uint32_t most) {
    const pleat_seq neighbour = cache_seq(cache, s->max_tokens);
    uint64_t others[64];
    for (uint32_t at = 0; at < n;) {
        const uint32_t part = (uint32_t)check_between(1, n - at < most ? n - at : most);
        const stats_part mine = {seq, ids + at, part, at + part < n && check_below(2) ? PLEAT_ITEM_MORE : 0};
        const uint32_t n_left = s->max_tokens - pleat_cache_length(cache, neighbour);
        const stats_part other = {neighbour, others, (uint32_t)check_between(1, n_left < 64 ? n_left + !n_left : 64),
                                  0};
        for (uint32_t i = 0; i < 64; i++) others[i] = check_u64() >> 24;
        const bool is_alone = check_below(2) || n_left == 0 || part + other.n > s->step_tokens,
                   is_first = check_below(2);
        const stats_part both[2] = {is_first ? mine : other, is_first ? other : mine};
        stats_step_of(cache, s, is_alone ? &mine : both, is_alone ? 1 : 2, NULL);
        at += part;
    }
    CHECK_STATUS(pleat_cache_close(cache, neighbour), PLEAT_OK);
}

/* What a collector finds that has seen n_texts texts of 200 tokens, twice. */
static inline pleat_stats *stats_of_texts(const cache_shape *shape, uint32_t n_texts,
                                          const pleat_allocator *allocator) {
    cache_shape own = *shape;
    own.max_tokens = own.step_tokens = 200;
    own.max_seqs = own.max_items = 1;
    pleat_cache_options opt = cache_options_of("f16", &own);
    pleat_collector *collector = NULL;
    pleat_stats *stats = NULL;
    CHECK_STATUS(pleat_collector_create(allocator, &collector), PLEAT_OK);
    opt.collector = collector;
    pleat_cache *cache = cache_made(&opt);
    uint64_t ids[200];
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t text = 0; text < n_texts; text++) {
            const pleat_seq seq = cache_seq(cache, 200);
            for (uint32_t t = 0; t < 200; t++) ids[t] = 1000000 + text * 200 + t;
            stats_step(cache, &own, seq, ids, 200, 0, NULL);
            CHECK_STATUS(pleat_cache_close(cache, seq), PLEAT_OK);
        }
        if (pass == 0) CHECK_STATUS(pleat_collector_count(collector, 4000), PLEAT_OK);
    }
    CHECK_STATUS(pleat_collector_finish(collector, STATS_MODEL, &stats), PLEAT_OK);
    pleat_cache_destroy(&cache);
    pleat_collector_destroy(&collector);
    return stats;
}

static inline pleat_stats *stats_new(const cache_shape *shape) { return stats_of_texts(shape, 8, NULL); }

/* check_main() with statistics of this shape's model in every cache that is made. */
static inline int stats_main(const cache_shape *shape, const check_test *tests, size_t n_tests, int argc, char **argv) {
    pleat_stats *stats = stats_new(shape);
    cache_stats = stats;
    const int code = check_main(tests, n_tests, argc, argv);
    pleat_stats_destroy(&stats);
    return code;
}

#endif
