/* SPDX-License-Identifier: MIT
 *
 * test_cache.c: the cache through its public interface, against an oracle in float64.
 *
 * The oracle keeps every token's exact key and value.  What a token sees is: itself and its chunk exactly, earlier
 * tokens as the cache exports them.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cache_rig.h"

enum { LAYERS = 2, KV_HEADS = 2, MAX_TOKENS = 300, MAX_SEQS = 3 };

static const char *const specs[] = {"f32",  "f16",  "k8v8", "k8v4", "k8v2", "k4v8", "k4v4",
                                    "k4v2", "k2v8", "k2v4", "k2v2", "h4v4", "h3v2", "h2v3"};

/* A cache and what was put into it. */
typedef struct rig {
    pleat_cache *cache;
    pleat_cache_options opt;
    uint32_t d, hq; /* head_dim, query heads */
    bool f32;
    pleat_seq seqs[MAX_SEQS];
    uint32_t n_tokens[MAX_SEQS];
    float *k[MAX_SEQS], *v[MAX_SEQS]; /* [LAYERS][MAX_TOKENS][KV_HEADS][d] */
} rig;

static size_t kv_at(const rig *r, uint32_t layer, uint32_t token, uint32_t head) {
    return (((size_t)layer * MAX_TOKENS + token) * KV_HEADS + head) * r->d;
}

static pleat_cache_options options_of(const char *spec, uint32_t d, uint32_t group, pleat_workers *workers) {
    const cache_shape shape = {.n_layers = LAYERS,
                               .n_kv_heads = KV_HEADS,
                               .head_dim = d,
                               .group = group,
                               .max_seqs = MAX_SEQS,
                               .max_tokens = MAX_TOKENS,
                               .step_tokens = 2 * MAX_TOKENS,
                               .workers = workers};
    return cache_options_of(spec, &shape);
}

static rig rig_new(const char *spec, uint32_t d, uint32_t group, pleat_workers *workers) {
    rig r = {
        .opt = options_of(spec, d, group, workers), .d = d, .hq = KV_HEADS * group, .f32 = strcmp(spec, "f32") == 0};
    r.cache = cache_made(&r.opt);
    for (int s = 0; s < MAX_SEQS; s++) {
        r.seqs[s] = cache_seq(r.cache, MAX_TOKENS);
        r.k[s] = calloc((size_t)LAYERS * MAX_TOKENS * KV_HEADS * d, sizeof(float));
        r.v[s] = calloc((size_t)LAYERS * MAX_TOKENS * KV_HEADS * d, sizeof(float));
    }
    return r;
}

static void rig_free(rig *r) {
    CHECK(pleat_cache_is_valid(r->cache));
    for (int s = 0; s < MAX_SEQS; s++) {
        CHECK_STATUS(pleat_cache_close(r->cache, r->seqs[s]), PLEAT_OK);
        free(r->k[s]);
        free(r->v[s]);
    }
    cache_check_empty(r->cache);
    pleat_cache_destroy(&r->cache);
}

/* Token contents that depend on (sequence, layer, token) alone.  Keys have channels with offsets of their own. */
static void make_token(const rig *r, uint32_t seq, uint32_t layer, uint32_t token, float *q, float *k, float *v) {
    pleat__rng rng = rng_of_token(seq, layer, token);
    fill_within(&rng, q, (size_t)r->hq * r->d, 4);
    for (uint32_t i = 0; i < KV_HEADS * r->d; i++) k[i] = rng_within(&rng, 2) + (float)(i % 7) * 0.5f;
    for (uint32_t i = 0; i < KV_HEADS * r->d; i++) v[i] = rng_within(&rng, 2) - 0.3f;
}

typedef struct batch {
    uint32_t n_items;
    uint32_t seq[MAX_SEQS];
    uint32_t n[MAX_SEQS];
} batch;

static uint32_t batch_rows(const batch *b) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_items; i++) n += b->n[i];
    return n;
}

static pleat_status begin(rig *r, const batch *b) {
    pleat_cache_item items[MAX_SEQS];
    for (uint32_t i = 0; i < b->n_items; i++)
        items[i] = (pleat_cache_item){.seq = r->seqs[b->seq[i]], .n_tokens = b->n[i], 0};
    return pleat_cache_begin(r->cache, items, b->n_items);
}

/* Store zeros in every layer of a step of `n` new tokens, and end it. */
static void store_and_end(pleat_cache *cache, uint32_t n, uint32_t d) {
    float *zeros = calloc((size_t)n * KV_HEADS * d, sizeof *zeros);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        CHECK_STATUS(pleat_cache_end(cache), PLEAT_E_STATE); /* a layer has not been stored */
        CHECK_STATUS(pleat_cache_store(cache, layer, zeros, zeros), PLEAT_OK);
    }
    CHECK_STATUS(pleat_cache_end(cache), PLEAT_OK);
    free(zeros);
}

/* Attend with one layer of a step that has begun; out is [rows][hq][d]. */
static void attend_layer(rig *r, const batch *b, uint32_t layer, float *q, float *out) {
    const uint32_t rows = batch_rows(b);
    float *k = malloc((size_t)rows * KV_HEADS * r->d * sizeof *k),
          *v = malloc((size_t)rows * KV_HEADS * r->d * sizeof *v);
    uint32_t row = 0;
    for (uint32_t i = 0; i < b->n_items; i++) {
        for (uint32_t t = 0; t < b->n[i]; t++, row++) {
            const uint32_t s = b->seq[i], token = r->n_tokens[s] + t;
            float *k_row = k + (size_t)row * KV_HEADS * r->d, *v_row = v + (size_t)row * KV_HEADS * r->d;
            make_token(r, s, layer, token, q + (size_t)row * r->hq * r->d, k_row, v_row);
            memcpy(r->k[s] + kv_at(r, layer, token, 0), k_row, KV_HEADS * r->d * sizeof(float));
            memcpy(r->v[s] + kv_at(r, layer, token, 0), v_row, KV_HEADS * r->d * sizeof(float));
        }
    }
    CHECK_STATUS(pleat_cache_attend(r->cache, layer, q, k, v, out), PLEAT_OK);
    free(k);
    free(v);
}

/* One step through all layers; outs [LAYERS] are [rows][hq][d]. */
static void run_step(rig *r, const batch *b, float **qs, float **outs) {
    if (!CHECK_STATUS(begin(r, b), PLEAT_OK)) return;
    const size_t n = (size_t)batch_rows(b) * r->hq * r->d;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        qs[layer] = malloc(n * sizeof(float));
        outs[layer] = malloc(n * sizeof(float));
        attend_layer(r, b, layer, qs[layer], outs[layer]);
    }
    CHECK_STATUS(pleat_cache_end(r->cache), PLEAT_OK);
    for (uint32_t i = 0; i < b->n_items; i++) r->n_tokens[b->seq[i]] += b->n[i];
}

static void free_step(float **qs, float **outs) {
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        free(qs[layer]);
        free(outs[layer]);
    }
}

/* ||out - oracle|| and ||oracle|| squared for one row and query head, added up. */
static void oracle_head(const float *q, const float *k, const float *v, uint32_t n, size_t stride, uint32_t d,
                        float sink, const float *out, double *diff2, double *norm2) {
    double *w = malloc(n * sizeof *w), max = (double)sink, sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        w[i] = 0;
        for (uint32_t j = 0; j < d; j++) w[i] += (double)q[j] * (double)k[i * stride + j];
        w[i] = cache_logit(w[i] / sqrt((double)d));
        if (w[i] > max) max = w[i];
    }
    for (uint32_t i = 0; i < n; i++) sum += w[i] = exp(w[i] - max);
    sum += exp((double)sink - max);
    for (uint32_t j = 0; j < d; j++) {
        double o = 0;
        for (uint32_t i = 0; i < n; i++) o += w[i] * (double)v[i * stride + j];
        o /= sum;
        *diff2 += (o - (double)out[j]) * (o - (double)out[j]);
        *norm2 += o * o;
    }
    free(w);
}

/* Compare one item's rows of one layer with the oracle. */
static void check_item(rig *r, uint32_t s, uint32_t n_before, uint32_t n_new, uint32_t layer, const float *q,
                       const float *out) {
    for (uint32_t head = 0; head < KV_HEADS; head++) {
        /* What the tokens see: a copy of the exact values, overwritten by the stored ones where those count. */
        const uint32_t n_stored = n_new == 1 ? n_before + 1 : n_before, group = r->hq / KV_HEADS;
        float *k = malloc(MAX_TOKENS * r->d * sizeof *k), *v = malloc(MAX_TOKENS * r->d * sizeof *v);
        for (uint32_t t = 0; t < n_before + n_new; t++) {
            memcpy(k + (size_t)t * r->d, r->k[s] + kv_at(r, layer, t, head), r->d * sizeof(float));
            memcpy(v + (size_t)t * r->d, r->v[s] + kv_at(r, layer, t, head), r->d * sizeof(float));
        }
        CHECK_STATUS(pleat_cache_export(r->cache, r->seqs[s], layer, head, 0, n_stored, k, v), PLEAT_OK);
        double diff2 = 0, norm2 = 0;
        for (uint32_t t = 0; t < n_new; t++)
            for (uint32_t g = 0; g < group; g++) {
                const size_t at = ((size_t)t * r->hq + head * group + g) * r->d;
                oracle_head(q + at, k, v, n_before + t + 1, r->d, r->d, cache_sink(layer, head * group + g), out + at,
                            &diff2, &norm2);
            }
        CHECK_NEAR(sqrt(diff2 / norm2), 0, 3e-4);
        free(k);
        free(v);
    }
}

static void check_step(const char *spec, uint32_t d, uint32_t group) {
    check_context("%s d %u group %u", spec, d, group);
    rig r = rig_new(spec, d, group, NULL);
    const uint64_t n_steps = check_rounds(12, 5);
    for (uint64_t step = 0; step < n_steps; step++) {
        batch b = {0};
        uint32_t before[MAX_SEQS];
        for (uint32_t s = 0; s < MAX_SEQS; s++) {
            const uint32_t room = MAX_TOKENS - r.n_tokens[s];
            uint32_t n = check_below(3) ? 1 : (uint32_t)check_between(2, 70);
            if (n > room) n = room;
            if (n == 0 || check_below(4) == 0) continue;
            before[b.n_items] = r.n_tokens[s];
            b.seq[b.n_items] = s;
            b.n[b.n_items++] = n;
        }
        if (b.n_items == 0) continue;
        float *qs[LAYERS], *outs[LAYERS];
        run_step(&r, &b, qs, outs);
        CHECK(pleat_cache_is_valid(r.cache));
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            uint32_t row = 0;
            for (uint32_t i = 0; i < b.n_items; i++) {
                const size_t at = (size_t)row * r.hq * d;
                check_item(&r, b.seq[i], before[i], b.n[i], layer, qs[layer] + at, outs[layer] + at);
                row += b.n[i];
            }
        }
        free_step(qs, outs);
    }
    rig_free(&r);
}

static void test_steps_match_the_oracle(void) {
    for (size_t i = 0; i < CHECK_COUNT(specs); i++) {
        check_step(specs[i], 64, 2);
        check_step(specs[i], 80, 1);
        check_step(specs[i], 16, 5);
        cache_logit_cap = 2;
        check_step(specs[i], 32, 3);
        cache_logit_cap = 0;
        cache_has_sinks = true;
        check_step(specs[i], 32, 3);
        cache_has_sinks = false;
    }
}

/* Exported values are within half a step of what was stored. */
static void test_export_is_near_what_was_stored(void) {
    static const struct {
        const char *spec;
        double k_tol, v_tol; /* of a range of 7 and 4 */
    } cases[] = {{"f32", 0, 0}, {"f16", 3e-3, 2e-3}, {"k8v8", 0.02, 0.012}, {"k4v2", 0.25, 0.7}};
    for (size_t c = 0; c < CHECK_COUNT(cases); c++) {
        check_context("%s", cases[c].spec);
        rig r = rig_new(cases[c].spec, 64, 1, NULL);
        float *qs[LAYERS], *outs[LAYERS], k[70 * 64], v[70 * 64];
        run_step(&r, &(batch){.n_items = 1, .seq = {1}, .n = {70}}, qs, outs);
        CHECK_STATUS(pleat_cache_export(r.cache, r.seqs[1], 1, 1, 0, 70, k, v), PLEAT_OK);
        for (uint32_t t = 0; t < 70; t++) {
            CHECK_NEAR_ALL(k + t * 64, r.k[1] + kv_at(&r, 1, t, 1), 64, cases[c].k_tol, 0);
            CHECK_NEAR_ALL(v + t * 64, r.v[1] + kv_at(&r, 1, t, 1), 64, cases[c].v_tol, 0);
        }
        free_step(qs, outs);
        rig_free(&r);
    }
}

/* Run the same three sequences alone or together, with n_threads; give the last layer's outputs of sequence 1. */
static void collect(const char *spec, uint32_t n_threads, bool together, float *out, size_t n_out) {
    pleat_workers *workers = NULL;
    CHECK_STATUS(pleat_workers_create(n_threads, NULL, &workers), PLEAT_OK);
    rig r = rig_new(spec, 64, 3, workers);
    size_t at = 0;
    const uint32_t sizes[] = {200, 1, 1, 33, 1, 60, 1, 1};
    for (size_t step = 0; step < CHECK_COUNT(sizes); step++) {
        float *qs[LAYERS], *outs[LAYERS];
        batch b = {.n_items = 1, .seq = {1}, .n = {sizes[step]}};
        if (together)
            b = (batch){.n_items = 3, .seq = {2, 1, 0}, .n = {step % 2 ? 17 : 1, sizes[step], step % 3 ? 1 : 29}};
        run_step(&r, &b, qs, outs);
        const size_t first = together ? (size_t)b.n[0] * r.hq * r.d : 0, n = (size_t)sizes[step] * r.hq * r.d;
        if (CHECK(at + n <= n_out)) memcpy(out + at, outs[LAYERS - 1] + first, n * sizeof *out);
        at += n;
        free_step(qs, outs);
    }
    rig_free(&r);
    pleat_workers_destroy(&workers);
}

static void test_threads_and_batch_change_no_bit(void) {
    const size_t n = 300 * 6 * 64;
    float *alone = calloc(n, sizeof *alone), *other = calloc(n, sizeof *other);
    for (size_t i = 0; i < CHECK_COUNT(specs); i++) {
        check_context("%s", specs[i]);
        collect(specs[i], 1, false, alone, n);
        collect(specs[i], 3, false, other, n);
        CHECK_EQ_MEM(alone, other, n * sizeof *alone);
        collect(specs[i], 2, true, other, n);
        CHECK_EQ_MEM(alone, other, n * sizeof *alone);
    }
    free(alone);
    free(other);
}

/* A lane long enough to be split: the same bits for any thread count, and right. */
static void test_long_lanes_are_split(void) {
    enum { N = 2600, D = 32 };
    float *k = malloc(N * D * sizeof *k), *v = malloc(N * D * sizeof *v), q[4 * D], outs[3][4 * D], lse[4];
    check_fill_normal(k, N * D);
    check_fill_normal(v, N * D);
    check_fill_normal(q, 4 * D);
    for (uint32_t n_threads = 1; n_threads <= 3; n_threads++) {
        pleat_workers *workers = NULL;
        CHECK_STATUS(pleat_workers_create(n_threads, NULL, &workers), PLEAT_OK);
        pleat_cache_options opt = options_of("k8v8", D, 4, workers);
        opt.n_kv_heads = 1;
        opt.n_q_heads = 4;
        opt.n_layers = 1;
        opt.max_tokens = opt.step_tokens = N;
        pleat_cache *cache = cache_made(&opt);
        const pleat_seq seq = cache_seq(cache, N);
        CHECK_STATUS(pleat_cache_begin(cache, &(pleat_cache_item){seq, N, 0}, 1), PLEAT_OK);
        CHECK_STATUS(pleat_cache_store(cache, 0, k, v), PLEAT_OK);
        CHECK_STATUS(pleat_cache_end(cache), PLEAT_OK);
        CHECK_STATUS(pleat_cache_read(cache, 0, &seq, 1, q, outs[n_threads - 1], lse), PLEAT_OK);
        float *k2 = malloc(N * D * sizeof *k2), *v2 = malloc(N * D * sizeof *v2);
        CHECK_STATUS(pleat_cache_export(cache, seq, 0, 0, 0, N, k2, v2), PLEAT_OK);
        double diff2 = 0, norm2 = 0;
        for (int g = 0; g < 4; g++)
            oracle_head(q + g * D, k2, v2, N, D, D, -INFINITY, outs[n_threads - 1] + g * D, &diff2, &norm2);
        CHECK_NEAR(sqrt(diff2 / norm2), 0, 3e-4);
        for (int g = 0; g < 4; g++) {
            double sum = 0;
            for (uint32_t i = 0; i < N; i++) {
                double s = 0;
                for (int j = 0; j < D; j++) s += (double)q[g * D + j] * (double)k2[i * D + j];
                sum += exp(s / sqrt(D));
            }
            CHECK_NEAR(lse[g], log(sum), 1e-3);
        }
        free(k2);
        free(v2);
        pleat_cache_destroy(&cache);
        pleat_workers_destroy(&workers);
    }
    CHECK_EQ_MEM(outs[0], outs[1], sizeof outs[0]);
    CHECK_EQ_MEM(outs[0], outs[2], sizeof outs[0]);
    free(k);
    free(v);
}

/* A cancelled step leaves no trace, even when it had stored its tokens. */
static void test_cancel_leaves_no_trace(void) {
    for (size_t i = 0; i < CHECK_COUNT(specs); i++) {
        check_context("%s", specs[i]);
        rig a = rig_new(specs[i], 64, 2, NULL), b = rig_new(specs[i], 64, 2, NULL);
        float *qs[LAYERS], *outs[LAYERS], *qs2[LAYERS], *outs2[LAYERS];
        const batch first = {.n_items = 1, .seq = {0}, .n = {37}}, big = {.n_items = 2, .seq = {0, 1}, .n = {50, 1}},
                    one = {.n_items = 1, .seq = {0}, .n = {1}};
        run_step(&a, &first, qs, outs);
        free_step(qs, outs);
        run_step(&b, &first, qs, outs);
        free_step(qs, outs);
        const pleat_cache_usage before = cache_usage_all(a.cache);
        CHECK_STATUS(begin(&a, &big), PLEAT_OK);
        float *q = malloc((size_t)51 * a.hq * a.d * sizeof *q);
        attend_layer(&a, &big, 0, q, q);
        CHECK(pleat_cache_is_valid(a.cache));
        CHECK_STATUS(pleat_cache_cancel(a.cache), PLEAT_OK);
        free(q);
        const pleat_cache_usage after = cache_usage_all(a.cache);
        CHECK_EQ_U64(before.pages_used, after.pages_used);
        CHECK_EQ_U64(before.bytes, after.bytes);
        CHECK(pleat_cache_is_valid(a.cache));
        run_step(&a, &one, qs, outs);
        run_step(&b, &one, qs2, outs2);
        for (int layer = 0; layer < LAYERS; layer++)
            CHECK_EQ_MEM(outs[layer], outs2[layer], (size_t)a.hq * a.d * sizeof(float));
        free_step(qs, outs);
        free_step(qs2, outs2);
        rig_free(&a);
        rig_free(&b);
    }
}

static void test_full_pool_is_flow_control(void) {
    pleat_cache_options opt = options_of("k8v4", 64, 1, NULL);
    const uint64_t page_bytes = 32 * (64 + 32 + 8);
    opt.pool_bytes = page_bytes * LAYERS * KV_HEADS * 3 + page_bytes / 2; /* three pages a lane */
    pleat_cache *cache = cache_made(&opt);
    const pleat_seq a = cache_seq(cache, 300), b = cache_seq(cache, 300);
    CHECK_STATUS(pleat_cache_begin(cache, &(pleat_cache_item){a, 64, 0}, 1), PLEAT_OK);
    store_and_end(cache, 64, 64);
    const pleat_cache_item both[] = {{a, 1, 0}, {b, 1, 0}};
    const pleat_cache_usage before = cache_usage_all(cache);
    CHECK_STATUS(pleat_cache_begin(cache, both, 2), PLEAT_AGAIN);
    const pleat_cache_usage after = cache_usage_all(cache);
    CHECK_EQ_MEM(&before, &after, sizeof before);
    CHECK_STATUS(pleat_cache_end(cache), PLEAT_E_STATE);
    CHECK_STATUS(pleat_cache_begin(cache, &both[1], 1), PLEAT_OK);
    store_and_end(cache, 1, 64);
    CHECK_STATUS(pleat_cache_begin(cache, &(pleat_cache_item){b, 96, 0}, 1), PLEAT_E_LIMIT); /* 4 pages of 3 */
    CHECK_STATUS(pleat_cache_begin(cache, &(pleat_cache_item){b, 95, 0}, 1), PLEAT_AGAIN);
    CHECK_STATUS(pleat_cache_close(cache, a), PLEAT_OK);
    CHECK_STATUS(pleat_cache_begin(cache, &(pleat_cache_item){b, 95, 0}, 1), PLEAT_OK);
    store_and_end(cache, 95, 64);
    CHECK(pleat_cache_is_valid(cache));
    pleat_cache_destroy(&cache);
}

static void test_misuse_changes_nothing(void) {
    rig r = rig_new("f16", 64, 1, NULL);
    float x[4 * 64] = {0};
    pleat_seq extra = {0};
    CHECK_STATUS(pleat_cache_open(r.cache, 10, &extra), PLEAT_E_LIMIT);
    CHECK_STATUS(pleat_cache_open(r.cache, MAX_TOKENS + 1, &extra), PLEAT_E_ARG);
    CHECK_STATUS(pleat_cache_open(r.cache, 0, &extra), PLEAT_E_ARG);
    CHECK_STATUS(pleat_cache_attend(r.cache, 0, x, x, x, x), PLEAT_E_STATE);
    CHECK_STATUS(pleat_cache_store(r.cache, 0, x, x), PLEAT_E_STATE);
    CHECK_STATUS(pleat_cache_cancel(r.cache), PLEAT_E_STATE);
    CHECK_STATUS(pleat_cache_begin(r.cache, &(pleat_cache_item){r.seqs[0], 0, 0}, 1), PLEAT_E_ARG);
    CHECK_STATUS(pleat_cache_begin(r.cache, &(pleat_cache_item){{0}, 1, 0}, 1), PLEAT_E_ARG);
    CHECK_STATUS(pleat_cache_begin(r.cache, &(pleat_cache_item){{12345}, 1, 0}, 1), PLEAT_E_ARG);
    CHECK_STATUS(pleat_cache_begin(r.cache, &(pleat_cache_item){r.seqs[0], MAX_TOKENS + 1, 0}, 1), PLEAT_E_LIMIT);
    const pleat_cache_item twice[] = {{r.seqs[0], 1, 0}, {r.seqs[0], 1, 0}};
    CHECK_STATUS(pleat_cache_begin(r.cache, twice, 2), PLEAT_E_ARG);
    const pleat_cache_item many[] = {{r.seqs[0], MAX_TOKENS, 0}, {r.seqs[1], MAX_TOKENS, 0}, {r.seqs[2], 1, 0}};
    CHECK_STATUS(pleat_cache_begin(r.cache, many, 3), PLEAT_E_LIMIT);                 /* step_tokens */
    CHECK_STATUS(pleat_cache_read(r.cache, 0, r.seqs, 1, x, x, NULL), PLEAT_E_STATE); /* empty */
    CHECK_STATUS(pleat_cache_export(r.cache, r.seqs[0], 0, 0, 0, 1, x, x), PLEAT_E_ARG);
    CHECK_STATUS(pleat_cache_begin(r.cache, twice, 1), PLEAT_OK);
    CHECK_STATUS(pleat_cache_begin(r.cache, twice, 1), PLEAT_E_STATE);
    CHECK_STATUS(pleat_cache_close(r.cache, r.seqs[0]), PLEAT_E_STATE);
    CHECK_STATUS(pleat_cache_attend(r.cache, LAYERS, x, x, x, x), PLEAT_E_ARG);
    CHECK_STATUS(pleat_cache_cancel(r.cache), PLEAT_OK);
    CHECK_EQ_U64(pleat_cache_length(r.cache, r.seqs[0]), 0);
    const pleat_seq old = r.seqs[0];
    CHECK_STATUS(pleat_cache_close(r.cache, old), PLEAT_OK);
    CHECK_STATUS(pleat_cache_close(r.cache, old), PLEAT_E_ARG);
    r.seqs[0] = cache_seq(r.cache, MAX_TOKENS);
    CHECK(old.v != r.seqs[0].v); /* a stale handle is not taken for the new sequence */
    CHECK_STATUS(pleat_cache_close(r.cache, old), PLEAT_E_ARG);
    rig_free(&r);
}

/* NaN, infinities and values too large are refused before anything is written. */
static void test_values_out_of_range(void) {
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY, 0x1p48f, -3e38f};
    for (size_t i = 0; i < CHECK_COUNT(specs); i++) {
        rig r = rig_new(specs[i], 64, 1, NULL);
        enum { N = 5 * KV_HEADS * 64 };
        float q[N], k[N], v[N], out[N], k_back[64], v_back[64];
        check_fill_normal(q, N);
        check_fill_normal(k, N);
        check_fill_normal(v, N);
        CHECK_STATUS(begin(&r, &(batch){.n_items = 1, .seq = {0}, .n = {5}}), PLEAT_OK);
        for (size_t b = 0; b < CHECK_COUNT(bad); b++) {
            float *const rows[] = {q, k, v};
            for (size_t j = 0; j < CHECK_COUNT(rows); j++) {
                float *x = &rows[j][check_below(N)];
                const float good = *x;
                *x = bad[b];
                check_context("%s %g in %zu", specs[i], (double)bad[b], j);
                CHECK_STATUS(pleat_cache_attend(r.cache, 0, q, k, v, out), PLEAT_E_RANGE);
                if (j > 0) CHECK_STATUS(pleat_cache_store(r.cache, 1, k, v), PLEAT_E_RANGE);
                CHECK_STATUS(pleat_cache_end(r.cache), PLEAT_E_STATE); /* nothing was stored */
                *x = good;
            }
        }
        q[7] = -0x1p47f;
        k[7] = 0x1p47f;
        for (uint32_t layer = 0; layer < LAYERS; layer++)
            CHECK_STATUS(pleat_cache_attend(r.cache, layer, q, k, v, out), PLEAT_OK);
        for (size_t j = 0; j < N; j++) CHECK(isfinite(out[j]));
        CHECK_STATUS(pleat_cache_end(r.cache), PLEAT_OK);
        CHECK_STATUS(pleat_cache_read(r.cache, 0, r.seqs, 1, q, out, NULL), PLEAT_OK);
        for (size_t j = 0; j < KV_HEADS * 64; j++) CHECK(isfinite(out[j]));
        CHECK_STATUS(pleat_cache_export(r.cache, r.seqs[0], 0, 0, 0, 1, k_back, v_back), PLEAT_OK);
        q[0] = NAN;
        CHECK_STATUS(pleat_cache_read(r.cache, 0, r.seqs, 1, q, out, NULL), PLEAT_E_RANGE);
        rig_free(&r);
    }
}

static void test_bad_options(void) {
    pleat_cache *cache = NULL;
    pleat_error err;
    const pleat_cache_options good = options_of("k8v4", 64, 1, NULL);
#define BAD(assignment)                                                             \
    do {                                                                            \
        pleat_cache_options opt = good;                                             \
        opt.assignment;                                                             \
        check_context("%s", #assignment);                                           \
        CHECK_STATUS(pleat_cache_create(&opt, &cache, &err), PLEAT_E_ARG);          \
        CHECK(cache == NULL && strlen(err.text) > 0);                               \
        CHECK_EQ_U64(pleat_cache_bytes_for(&opt, 1, 1) * (opt.pool_bytes != 1), 0); \
    } while (0)
    BAD(size_bytes = 3);
    BAD(n_layers = 0);
    BAD(n_layers = 1u << 31);
    BAD(n_kv_heads = 0);
    BAD(n_q_heads = 3);
    BAD(n_q_heads = 2 * 65);
    BAD(head_dim = 0);
    BAD(head_dim = 65);
    BAD(head_dim = 1024);
    BAD(softmax_scale = NAN);
    BAD(softmax_scale = -1);
    BAD(softmax_scale = 1e6f);
    const float not_finite[] = {0, INFINITY, 0, 0, 0, 0, 0, 0}, no_number[] = {0, 0, 0, NAN, 0, 0, 0, 0};
    BAD(sink_logits = not_finite);
    BAD(sink_logits = no_number);
    BAD(logit_cap = NAN);
    BAD(logit_cap = -50);
    BAD(logit_cap = 1e-6f);
    BAD(logit_cap = 1e6f);
    BAD(page_tokens = 17);
    BAD(max_seqs = 0);
    BAD(max_tokens = 0);
    BAD(max_tokens = UINT32_MAX);
    BAD(step_tokens = 0);
    BAD(pool_bytes = 1);
    BAD(spec.high.k_bits = 3);
#undef BAD
}

static void test_usage_counts_every_byte(void) {
    for (size_t i = 0; i < CHECK_COUNT(specs); i++) {
        check_context("%s", specs[i]);
        rig r = rig_new(specs[i], 64, 1, NULL);
        float *qs[LAYERS], *outs[LAYERS];
        run_step(&r, &(batch){.n_items = 1, .seq = {0}, .n = {100}}, qs, outs);
        free_step(qs, outs);
        const pleat_cache_usage u = cache_usage(r.cache, r.seqs[0]), all = cache_usage_all(r.cache);
        CHECK_EQ_U64(u.pages_used, 4 * LAYERS * KV_HEADS); /* 100 tokens in pages of 32 */
        CHECK_EQ_U64(u.bytes_pages, u.pages_used * 32 * pleat_format_token_bytes(r.opt.spec.high, 64));
        CHECK_EQ_U64(u.bytes, pleat_cache_bytes_for(&r.opt, 100, MAX_TOKENS));
        CHECK_EQ_U64(u.bytes_f16, 100u * LAYERS * KV_HEADS * 4 * 64);
        CHECK_EQ_U64(u.tokens_high, 100u * LAYERS * KV_HEADS);
        CHECK_EQ_U64(u.tokens_low + u.tokens_dropped, 0);
        CHECK_EQ_U64(u.pages_peak, u.pages_used);
        CHECK_EQ_U64(all.bytes, u.bytes + 2 * pleat_cache_bytes_for(&r.opt, 0, MAX_TOKENS));
        rig_free(&r);
    }
}

static void fail_allocations(const char *spec) {
    for (uint64_t nth = 1;; nth++) {
        check_alloc ca;
        check_alloc_init(&ca, nth, 0);
        pleat_cache_options opt = options_of(spec, 64, 2, NULL);
        opt.allocator = &ca.a;
        opt.max_tokens = 3000; /* lanes that can be split */
        pleat_cache *cache = NULL;
        pleat_seq seq = {0};
        pleat_status st = pleat_cache_create(&opt, &cache, NULL);
        if (st != PLEAT_OK) {
            CHECK_STATUS(st, PLEAT_E_MEMORY);
            CHECK(cache == NULL);
            CHECK_EQ_U64(ca.live, 0);
            continue;
        }
        st = pleat_cache_open(cache, MAX_TOKENS, &seq);
        if (st != PLEAT_OK) {
            CHECK_STATUS(st, PLEAT_E_MEMORY);
            CHECK_EQ_U64(seq.v, 0);
            CHECK_STATUS(pleat_cache_open(cache, MAX_TOKENS, &seq), PLEAT_OK); /* as before the failure */
        }
        const uint64_t count = ca.count;
        CHECK_STATUS(pleat_cache_begin(cache, &(pleat_cache_item){seq, 20, 0}, 1), PLEAT_OK);
        store_and_end(cache, 20, 64);
        CHECK_EQ_U64(ca.count, count); /* a step allocates nothing */
        pleat_cache_destroy(&cache);
        CHECK_EQ_U64(ca.live, 0);
        if (nth > count) return;
    }
}

static void test_allocation_failure(void) {
    fail_allocations("k4v4");
    fail_allocations("leankv:ah=1,al=0.1,window=4"); /* a policy, whose logits are an allocation of their own */
}

static const check_test tests[] = {
    {"steps_match_the_oracle", test_steps_match_the_oracle},
    {"export_is_near_what_was_stored", test_export_is_near_what_was_stored},
    {"threads_and_batch_change_no_bit", test_threads_and_batch_change_no_bit},
    {"long_lanes_are_split", test_long_lanes_are_split},
    {"cancel_leaves_no_trace", test_cancel_leaves_no_trace},
    {"full_pool_is_flow_control", test_full_pool_is_flow_control},
    {"misuse_changes_nothing", test_misuse_changes_nothing},
    {"values_out_of_range", test_values_out_of_range},
    {"bad_options", test_bad_options},
    {"usage_counts_every_byte", test_usage_counts_every_byte},
    {"allocation_failure", test_allocation_failure},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
