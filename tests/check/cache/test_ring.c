/* SPDX-License-Identifier: MIT
 *
 * test_ring.c: layers with a sliding window, against float64 attention over what a cache without windows has stored.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cache_rig.h"

enum { LAYERS = 4, HEADS = 2, GROUP = 2, D = 16, MAX_TOKENS = 300, ROW = HEADS * D, Q_ROW = HEADS * GROUP * D };

static const uint32_t windows[LAYERS] = {33, 0, 1, 64};

static pleat_cache_options options(const char *spec, const uint32_t *layers_windows) {
    static const cache_shape shape = {.n_layers = LAYERS,
                                      .n_kv_heads = HEADS,
                                      .head_dim = D,
                                      .group = GROUP,
                                      .page_tokens = 16,
                                      .max_seqs = 4,
                                      .max_tokens = MAX_TOKENS,
                                      .step_tokens = MAX_TOKENS};
    pleat_cache_options opt = cache_options_of(spec, &shape);
    opt.windows = layers_windows;
    return opt;
}

static pleat_cache *cache_new(const char *spec, const uint32_t *layers_windows, pleat_workers *workers) {
    pleat_cache_options opt = options(spec, layers_windows);
    opt.workers = workers;
    return cache_made(&opt);
}

static float q[MAX_TOKENS * Q_ROW], k[MAX_TOKENS * ROW], v[MAX_TOKENS * ROW];

/* The same tokens for the same position, layer and seed. */
static void make_rows(uint32_t seed, uint32_t layer, uint32_t first, uint32_t n) {
    for (uint32_t t = 0; t < n; t++) {
        pleat__rng rng = rng_of_token(seed, layer, first + t);
        fill_within(&rng, q + (size_t)t * Q_ROW, Q_ROW, 2);
        fill_within(&rng, k + (size_t)t * ROW, ROW, 2);
        fill_within(&rng, v + (size_t)t * ROW, ROW, 2);
    }
}

static void step(pleat_cache *cache, pleat_seq seq, uint32_t seed, uint32_t n, float *out) {
    const uint32_t first = pleat_cache_length(cache, seq);
    const pleat_cache_item item = {seq, n, 0};
    const uint64_t n_used = cache_usage_all(cache).pages_used, n_needed = pleat_cache_pages_needed(cache, &item);
    if (!CHECK_STATUS(pleat_cache_begin(cache, &item, 1), PLEAT_OK)) return;
    CHECK_EQ_U64(cache_usage_all(cache).pages_used, n_used + n_needed);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        make_rows(seed, layer, first, n);
        if (out)
            CHECK_STATUS(pleat_cache_attend(cache, layer, q, k, v, out + (size_t)layer * n * Q_ROW), PLEAT_OK);
        else
            CHECK_STATUS(pleat_cache_store(cache, layer, k, v), PLEAT_OK);
    }
    CHECK_STATUS(pleat_cache_end(cache), PLEAT_OK);
}

/* One query head over tokens [from, to) in float64; the relative error of out. */
static double error_of(const float *query, const float *keys, const float *values, uint32_t from, uint32_t to,
                       float sink, const float *out) {
    static double w[MAX_TOKENS];
    double o[D] = {0}, sum = exp((double)sink), diff2 = 0, norm2 = 0;
    for (uint32_t i = from; i < to; i++) {
        double dot = 0;
        for (uint32_t j = 0; j < D; j++) dot += (double)query[j] * (double)keys[i * D + j];
        sum += w[i] = exp(cache_logit(dot / sqrt(D)));
    }
    for (uint32_t i = from; i < to; i++)
        for (uint32_t j = 0; j < D; j++) o[j] += w[i] / sum * (double)values[i * D + j];
    for (uint32_t j = 0; j < D; j++) {
        diff2 += (o[j] - (double)out[j]) * (o[j] - (double)out[j]);
        norm2 += o[j] * o[j];
    }
    return sqrt(diff2 / norm2);
}

/* Rings alone: layers without a window are test_cache.c's.  A chunk's own tokens are seen as they are. */
static void check_rows(const pleat_cache *plain, pleat_seq seq, uint32_t seed, uint32_t first, uint32_t n,
                       const float *out, double tol) {
    static float keys[MAX_TOKENS * D], values[MAX_TOKENS * D];
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        if (!windows[layer]) continue;
        make_rows(seed, layer, first, n);
        for (uint32_t head = 0; head < HEADS; head++) {
            CHECK_STATUS(pleat_cache_export(plain, seq, layer, head, 0, first + n, keys, values), PLEAT_OK);
            for (uint32_t t = 0; t < n && n > 1; t++) {
                memcpy(keys + (size_t)(first + t) * D, k + (size_t)t * ROW + head * D, D * sizeof *k);
                memcpy(values + (size_t)(first + t) * D, v + (size_t)t * ROW + head * D, D * sizeof *v);
            }
            for (uint32_t row = 0; row < n * GROUP; row++) {
                const uint32_t t = row / GROUP, at = t * Q_ROW + (head * GROUP + row % GROUP) * D, to = first + t + 1;
                const uint32_t from = to > windows[layer] ? to - windows[layer] : 0;
                const float sink = cache_sink(layer, head * GROUP + row % GROUP);
                CHECK_NEAR(error_of(q + at, keys, values, from, to, sink, out + (size_t)layer * n * Q_ROW + at), 0,
                           tol);
            }
        }
    }
}

static void live(const char *spec, pleat_workers *workers) {
    static float out[LAYERS * MAX_TOKENS * Q_ROW], other[LAYERS * MAX_TOKENS * Q_ROW];
    cache_logit_cap = check_below(3) ? 0 : 1;
    cache_has_sinks = check_below(3) == 0;
    check_context("%s, logit_cap %g", spec, (double)cache_logit_cap);
    pleat_cache *cache = cache_new(spec, windows, workers), *plain = cache_new(spec, NULL, NULL);
    pleat_seq seq = cache_seq(cache, MAX_TOKENS), twin = {0};
    const pleat_seq whole = cache_seq(plain, MAX_TOKENS);
    uint32_t n_tokens = 0;
    while (n_tokens < MAX_TOKENS && check_failures() == 0) {
        uint32_t n = check_below(2) ? 1 : (uint32_t)check_between(2, check_below(4) ? 50 : 150);
        if (n > MAX_TOKENS - n_tokens) n = MAX_TOKENS - n_tokens;
        if (!twin.v && n_tokens > 0 && check_below(4) == 0)
            CHECK_STATUS(pleat_cache_fork(cache, seq, MAX_TOKENS, &twin), PLEAT_OK);
        step(cache, seq, 1, n, out);
        step(plain, whole, 1, n, NULL);
        const bool is_float = spec[0] == 'f';
        check_rows(plain, whole, 1, n_tokens, n, out, is_float ? 3e-6 : 3e-4);
        n_tokens += n;
        CHECK(pleat_cache_is_valid(cache));
        if (!twin.v) continue;
        /* A fork that has got the same token, and was saved and restored, has the same bits. */
        step(cache, twin, 1, n, other);
        CHECK_EQ_MEM(out, other, LAYERS * (size_t)n * Q_ROW * sizeof *out);
        const uint64_t n_bytes = pleat_cache_image_bytes(cache, twin, seq);
        void *image = malloc(n_bytes);
        CHECK_STATUS(pleat_cache_save(cache, twin, seq, image, n_bytes), PLEAT_OK);
        CHECK_STATUS(pleat_cache_close(cache, twin), PLEAT_OK);
        CHECK_STATUS(pleat_cache_restore(cache, image, n_bytes, seq, &twin), PLEAT_OK);
        free(image);
        if (check_below(2) == 0) {
            CHECK_STATUS(pleat_cache_close(cache, twin), PLEAT_OK);
            twin.v = 0;
        }
    }
    pleat_cache_destroy(&cache);
    pleat_cache_destroy(&plain);
}

static void test_windows(void) {
    pleat_workers *workers = NULL;
    CHECK_STATUS(pleat_workers_create(3, NULL, &workers), PLEAT_OK);
    static const char *const specs[] = {"f32", "f16", "k8v8", "k8v4", "k4v2", "k2v2"};
    for (size_t i = 0; i < CHECK_COUNT(specs); i++)
        for (uint64_t round = 0; round < check_rounds(6, 1); round++) live(specs[i], round % 2 ? workers : NULL);
    cache_logit_cap = 0;
    cache_has_sinks = false;
    pleat_workers_destroy(&workers);
}

/* The same bits with any number of threads. */
static void test_threads(void) {
    static float outs[2][LAYERS * MAX_TOKENS * Q_ROW];
    static const uint32_t chunks[] = {100, 1, 37, 2, 120, 1};
    pleat_workers *workers = NULL;
    CHECK_STATUS(pleat_workers_create(3, NULL, &workers), PLEAT_OK);
    pleat_cache *caches[] = {cache_new("k8v4", windows, NULL), cache_new("k8v4", windows, workers)};
    const pleat_seq seqs[] = {cache_seq(caches[0], MAX_TOKENS), cache_seq(caches[1], MAX_TOKENS)};
    for (size_t i = 0; i < CHECK_COUNT(chunks); i++) {
        for (int c = 0; c < 2; c++) step(caches[c], seqs[c], 1, chunks[i], outs[c]);
        CHECK_EQ_MEM(outs[0], outs[1], LAYERS * (size_t)chunks[i] * Q_ROW * sizeof outs[0][0]);
    }
    for (int c = 0; c < 2; c++) pleat_cache_destroy(&caches[c]);
    pleat_workers_destroy(&workers);
}

/* A chunk in a ring is read once: its tokens have taken the place of those that it saw. */
static void test_attended_once(void) {
    static float out[LAYERS * MAX_TOKENS * Q_ROW];
    pleat_cache *cache = cache_new("f16", windows, NULL);
    const pleat_seq seq = cache_seq(cache, MAX_TOKENS);
    make_rows(1, 0, 0, 50);
    for (uint32_t n = 50; n > 0; n -= 49) {
        CHECK_STATUS(pleat_cache_begin(cache, &(pleat_cache_item){seq, n, 0}, 1), PLEAT_OK);
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            const bool once = n > 1 && windows[layer] > 0;
            CHECK_STATUS(pleat_cache_attend(cache, layer, q, k, v, out), PLEAT_OK);
            CHECK_STATUS(pleat_cache_attend(cache, layer, q, k, v, out), once ? PLEAT_E_STATE : PLEAT_OK);
        }
        CHECK_STATUS(pleat_cache_end(cache), PLEAT_OK);
        if (n == 1) break;
    }
    pleat_cache_destroy(&cache);
}

/* A ring holds its window and nothing more, as bytes_for says. */
static void test_bytes(void) {
    static float out[LAYERS * MAX_TOKENS * Q_ROW];
    static pleat_cache_token tokens[MAX_TOKENS];
    const pleat_cache_options opt = options("k8v4", windows);
    pleat_cache *cache = cache_new("k8v4", windows, NULL);
    const pleat_seq seq = cache_seq(cache, MAX_TOKENS);
    for (uint32_t n = 1; n <= MAX_TOKENS; n++) {
        step(cache, seq, 1, 1, out);
        const pleat_cache_usage u = cache_usage(cache, seq);
        CHECK_EQ_U64(u.bytes, pleat_cache_bytes_for(&opt, n, MAX_TOKENS));
        uint64_t n_pages = 0, n_live = 0;
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            const uint32_t ring = windows[layer] ? windows[layer] : MAX_TOKENS + 1, kept = n < ring ? n : ring;
            n_pages += HEADS * (uint64_t)((kept + 15) / 16);
            n_live += HEADS * (uint64_t)(n < ring ? n : ring - 1);
        }
        CHECK_EQ_U64(u.pages_used, n_pages);
        CHECK_EQ_U64(u.tokens_high, n_live);
        CHECK_EQ_U64(u.tokens_dropped, (uint64_t)n * LAYERS * HEADS - n_live);
    }
    CHECK_STATUS(pleat_cache_tokens(cache, seq, 0, 1, 0, MAX_TOKENS, tokens), PLEAT_OK);
    for (uint32_t i = 0; i < MAX_TOKENS; i++)
        CHECK_EQ_U64(tokens[i].level, i > MAX_TOKENS - 33 ? PLEAT_LEVEL_HIGH : PLEAT_LEVEL_DROPPED);
    pleat_cache_destroy(&cache);
}

static void test_refusals(void) {
    pleat_error err;
    static const uint32_t everywhere[LAYERS] = {33, 5, 1, 64}; /* no layer is left for a policy or for blocks */
    static const char *const of_full_layers[] = {"leankv", "topk:keep=50%", "snapkv:budget=80", "kivi:bits=4"};
    pleat_cache_options opt;
    pleat_cache *cache = NULL;
    for (size_t i = 0; i < CHECK_COUNT(of_full_layers); i++) {
        opt = options(of_full_layers[i], everywhere);
        opt.page_tokens = 0;
        CHECK_STATUS(pleat_cache_create(&opt, &cache, &err), PLEAT_E_ARG);
        CHECK(strstr(err.text, "every layer has a sliding window") != NULL);
    }
    opt = options("leankv", windows);
    const uint32_t wide[LAYERS] = {MAX_TOKENS, 0, MAX_TOKENS + 5, 0}; /* no window is ever full: not rings */
    opt.windows = wide;
    CHECK_STATUS(pleat_cache_create(&opt, &cache, &err), PLEAT_OK);
    pleat_cache_destroy(&cache);

    /* A chunk that is cancelled after it took tokens' places leaves a sequence that cannot go on, and says so. */
    static float out[LAYERS * MAX_TOKENS * Q_ROW];
    cache = cache_new("f16", windows, NULL);
    const pleat_seq seq = cache_seq(cache, MAX_TOKENS), other = cache_seq(cache, MAX_TOKENS);
    step(cache, seq, 1, 40, out);
    for (uint32_t n = 1; n <= 2; n++) { /* a single token takes the place of one out of sight */
        CHECK_STATUS(pleat_cache_begin(cache, &(pleat_cache_item){seq, n, 0}, 1), PLEAT_OK);
        CHECK_STATUS(pleat_cache_attend(cache, 0, q, k, v, out), PLEAT_OK);
        CHECK_STATUS(pleat_cache_cancel(cache), PLEAT_OK);
        CHECK_STATUS(pleat_cache_begin(cache, &(pleat_cache_item){seq, 1, 0}, 1), n == 1 ? PLEAT_OK : PLEAT_E_STATE);
        if (n == 1) CHECK_STATUS(pleat_cache_cancel(cache), PLEAT_OK);
    }
    step(cache, other, 1, 1, out);
    CHECK_STATUS(pleat_cache_close(cache, seq), PLEAT_OK);
    CHECK(pleat_cache_is_valid(cache));
    pleat_cache_destroy(&cache);
}

static const check_test tests[] = {{"windows", test_windows},
                                   {"threads", test_threads},
                                   {"attended once", test_attended_once},
                                   {"bytes", test_bytes},
                                   {"refusals", test_refusals}};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
