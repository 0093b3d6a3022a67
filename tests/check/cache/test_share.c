/* SPDX-License-Identifier: MIT
 *
 * test_share.c: sequences on shared pages: fork, copies before writing, seals, images, compression.
 *
 * `lives` runs random lives in a cache where everything is shared that can be, beside a cache where nothing ever is: a
 * fork there is the same steps done again from the first token.  Outputs must agree to the bit, and a sequence must not
 * notice what its relatives do.  `million` runs many more operations without attention, against lists of pages that are
 * counted the slow way.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cache_rig.h"

enum { LAYERS = 2, HEADS = 2, GROUP = 2, D = 16, MAX_TOKENS = 400, SEQS = 6, STEPS_CAP = 400, CHUNK = 60 };

/* ---- caches ------------------------------------------------------------------------------------------ */

static pleat_workers *workers;  /* of caches made from now on; NULL: none */
static const uint32_t *windows; /* likewise */
static const uint32_t first_layer[LAYERS] = {27, 0};

static pleat_cache *cache_new(const char *spec, uint32_t max_seqs, uint32_t n_layers, uint64_t pool_bytes) {
    const cache_shape shape = {.n_layers = n_layers,
                               .n_kv_heads = HEADS,
                               .head_dim = D,
                               .group = GROUP,
                               .page_tokens = 16,
                               .max_seqs = max_seqs,
                               .max_items = 2,
                               .max_tokens = MAX_TOKENS,
                               .step_tokens = 2 * CHUNK,
                               .pool_bytes = pool_bytes,
                               .workers = workers};
    pleat_cache_options opt = cache_options_of(spec, &shape);
    opt.windows = windows;
    return cache_made(&opt);
}

/* ---- lives --------------------------------------------------------------------------------------------- */

/* What a sequence was given: the same steps give the same bits. */
typedef struct life_step {
    uint32_t n, flags;
    uint64_t seed;
    float ah, al; /* n 0: compressed to these */
} life_step;

typedef struct life {
    bool open, swapped;
    pleat_seq seq, shadow;
    uint32_t n_tokens, n_steps;
    life_step steps[STEPS_CAP];
    uint8_t *image;
    uint64_t image_bytes;
    pleat_seq base; /* the image's; 0: none */
} life;

typedef struct world {
    pleat_cache *cache, *plain;
    bool tracked, low;
    life lives[SEQS];
    uint64_t n_forks, n_swaps, n_on_base, n_lost, n_copies, n_sealed, n_compressed, n_again;
} world;

/* One sequence's step in one cache; out gets the outputs of all layers. */
static pleat_status run_step(pleat_cache *cache, pleat_seq seq, const life_step *s, float *out) {
    static float q[CHUNK * HEADS * GROUP * D], k[CHUNK * HEADS * D], v[CHUNK * HEADS * D];
    if (s->n == 0) return pleat_cache_compress(cache, seq, s->ah, s->al);
    const pleat_cache_item item = {seq, s->n, s->flags};
    const pleat_status status = pleat_cache_begin(cache, &item, 1);
    const size_t n_out = (size_t)s->n * HEADS * GROUP * D;
    for (uint32_t layer = 0; status == PLEAT_OK && layer < LAYERS; layer++) {
        pleat__rng rng = rng_of_seed(s->seed << 8 | layer);
        fill_within(&rng, q, n_out, 3);
        fill_within(&rng, k, (size_t)s->n * HEADS * D, 2);
        fill_within(&rng, v, (size_t)s->n * HEADS * D, 1);
        CHECK_STATUS(pleat_cache_attend(cache, layer, q, k, v, out + layer * n_out), PLEAT_OK);
    }
    if (status == PLEAT_OK) CHECK_STATUS(pleat_cache_end(cache), PLEAT_OK);
    return status;
}

/* Do in the cache that shares nothing what was done so far. */
static void open_shadow(world *w, life *l) {
    static float out[LAYERS * CHUNK * HEADS * GROUP * D];
    l->shadow = cache_seq(w->plain, MAX_TOKENS);
    for (uint32_t i = 0; i < l->n_steps; i++) CHECK_STATUS(run_step(w->plain, l->shadow, &l->steps[i], out), PLEAT_OK);
}

static life *pick(world *w, bool open, bool swapped) {
    const uint32_t first = (uint32_t)check_below(SEQS);
    for (uint32_t i = 0; i < SEQS; i++) {
        life *l = &w->lives[(first + i) % SEQS];
        if (l->open == open && l->swapped == swapped) return l;
    }
    return NULL;
}

static void op_open(world *w) {
    life *l = pick(w, false, false);
    if (!l) return;
    *l = (life){.open = true};
    l->seq = cache_seq(w->cache, MAX_TOKENS);
    open_shadow(w, l);
}

static void close_life(world *w, life *l) {
    if (!l->swapped) CHECK_STATUS(pleat_cache_close(w->cache, l->seq), PLEAT_OK);
    CHECK_STATUS(pleat_cache_close(w->plain, l->shadow), PLEAT_OK);
    free(l->image);
    *l = (life){.open = false};
}

static void op_close(world *w) {
    life *l = pick(w, true, check_below(4) == 0);
    if (l) close_life(w, l);
}

static void op_fork(world *w) {
    life *from = pick(w, true, false), *to = pick(w, false, false);
    if (!from || !to) return;
    const pleat_cache_usage before = cache_usage_all(w->cache);
    *to = *from;
    CHECK_STATUS(pleat_cache_fork(w->cache, from->seq, MAX_TOKENS, &to->seq), PLEAT_OK);
    CHECK_EQ_U64(cache_usage_all(w->cache).pages_used, before.pages_used);
    CHECK_EQ_U64(pleat_cache_length(w->cache, to->seq), from->n_tokens);
    CHECK_EQ_U64(pleat_cache_pages_shared(w->cache, from->seq, to->seq), cache_usage(w->cache, to->seq).pages_used);
    CHECK_EQ_U64(cache_usage(w->cache, to->seq).pages_own, 0);
    open_shadow(w, to);
    w->n_forks++;
}

/* The step as begin sees it: as many pages as were foretold, and the bits that nobody else has a part in. */
static void op_step(world *w) {
    static float out[2][LAYERS * CHUNK * HEADS * GROUP * D];
    life *l = pick(w, true, false);
    if (!l || l->n_tokens == MAX_TOKENS || l->n_steps == STEPS_CAP) return;
    life_step s = {.n = check_below(3) ? 1 : (uint32_t)check_between(2, CHUNK), .seed = check_below(1u << 30)};
    if (s.n > MAX_TOKENS - l->n_tokens) s.n = MAX_TOKENS - l->n_tokens;
    if (s.n > 1) s.flags = (1u << check_below(4)) & 7u; /* MORE, SEAL, SEAL_ALL or nothing */
    const pleat_cache_usage before = cache_usage_all(w->cache), own = cache_usage(w->cache, l->seq);
    const uint64_t n_needed = pleat_cache_pages_needed(w->cache, &(pleat_cache_item){l->seq, s.n, s.flags});
    if (check_below(8) == 0 && pleat_cache_begin(w->cache, &(pleat_cache_item){l->seq, s.n, s.flags}, 1) == PLEAT_OK) {
        CHECK_EQ_U64(cache_usage_all(w->cache).pages_used, before.pages_used + n_needed);
        CHECK_STATUS(pleat_cache_cancel(w->cache), PLEAT_OK);
    }
    const pleat_status status = run_step(w->cache, l->seq, &s, out[0]);
    const uint64_t n_free = before.pages_total - before.pages_used;
    CHECK_EQ_I64(status, n_needed <= n_free ? PLEAT_OK : PLEAT_AGAIN);
    w->n_again += status == PLEAT_AGAIN;
    if (status != PLEAT_OK) return;
    if (!CHECK_STATUS(run_step(w->plain, l->shadow, &s, out[1]), PLEAT_OK)) return;
    CHECK_EQ_MEM(out[0], out[1], LAYERS * (size_t)s.n * HEADS * GROUP * D * sizeof(float));
    w->n_copies +=
        own.pages_own < own.pages_used && cache_usage(w->cache, l->seq).pages_own > own.pages_own + n_needed / 2;
    w->n_sealed += s.flags >= PLEAT_ITEM_SEAL;
    l->n_tokens += s.n;
    l->steps[l->n_steps++] = s;
}

static void op_save(world *w) {
    life *l = pick(w, true, false), *base = check_below(2) ? pick(w, true, false) : NULL;
    if (!l) return;
    if (base == l) base = NULL;
    l->base = base ? base->seq : (pleat_seq){0};
    l->image_bytes = pleat_cache_image_bytes(w->cache, l->seq, l->base);
    l->image = malloc(l->image_bytes);
    CHECK_STATUS(pleat_cache_save(w->cache, l->seq, l->base, l->image, l->image_bytes - 1), PLEAT_E_ARG);
    CHECK_STATUS(pleat_cache_save(w->cache, l->seq, l->base, l->image, l->image_bytes), PLEAT_OK);
    const uint64_t n_pages = cache_usage(w->cache, l->seq).pages_used;
    CHECK(pleat_cache_image_pages(w->cache, l->image, l->image_bytes) <= n_pages);
    w->n_on_base += pleat_cache_image_pages(w->cache, l->image, l->image_bytes) < n_pages;
    CHECK_STATUS(pleat_cache_close(w->cache, l->seq), PLEAT_OK);
    l->swapped = true;
    w->n_swaps++;
}

static void op_restore(world *w) {
    life *l = pick(w, true, true);
    if (!l) return;
    const pleat_cache_usage before = cache_usage_all(w->cache);
    const uint64_t n_pages = pleat_cache_image_pages(w->cache, l->image, l->image_bytes);
    const pleat_status status = pleat_cache_restore(w->cache, l->image, l->image_bytes, l->base, &l->seq);
    const uint64_t used = cache_usage_all(w->cache).pages_used;
    CHECK_EQ_U64(used, before.pages_used + (status == PLEAT_OK ? n_pages : 0));
    if (status == PLEAT_AGAIN) {
        CHECK(n_pages > before.pages_total - before.pages_used);
        return;
    }
    if (status == PLEAT_E_FORMAT) { /* the base has gone, or has gone back on its seals */
        CHECK(l->base.v != 0);
        w->n_lost++;
        close_life(w, l);
        return;
    }
    CHECK_STATUS(status, PLEAT_OK);
    CHECK_EQ_U64(pleat_cache_length(w->cache, l->seq), l->n_tokens);
    free(l->image);
    l->image = NULL;
    l->swapped = false;
}

/* Where nobody shares its pages, compression does what it does in the other cache; else only
 * its relatives are watched from then on. */
static void op_compress(world *w) {
    life *l = pick(w, true, false);
    static float out[LAYERS * CHUNK * HEADS * GROUP * D];
    const pleat_cache_usage all = cache_usage_all(w->cache);
    if (!w->low || !l || l->n_steps == STEPS_CAP) return;
    if (all.pages_total - all.pages_used < 2 + LAYERS * HEADS) return; /* some lanes might be left out */
    const life_step s = {.ah = 3 + (float)l->n_steps, .al = 1 + (float)l->n_steps / 2};
    const pleat_cache_usage before = cache_usage(w->cache, l->seq);
    const pleat_status status = run_step(w->cache, l->seq, &s, out);
    if (status == PLEAT_AGAIN) return;
    if (!CHECK_STATUS(status, PLEAT_OK)) return;
    w->n_compressed++;
    CHECK(cache_usage(w->cache, l->seq).pages_used <= before.pages_used + LAYERS * HEADS); /* a low page more */
    if (before.pages_own < before.pages_used) {
        close_life(w, l);
        return;
    }
    CHECK_STATUS(run_step(w->plain, l->shadow, &s, out), PLEAT_OK);
    CHECK_EQ_U64(cache_usage(w->cache, l->seq).tokens_high, cache_usage(w->plain, l->shadow).tokens_high);
    CHECK_EQ_U64(cache_usage(w->cache, l->seq).tokens_dropped, cache_usage(w->plain, l->shadow).tokens_dropped);
    l->steps[l->n_steps++] = s;
}

/* Bytes of a page with this spec. */
static uint64_t page_bytes_of(const char *spec) {
    static float out[LAYERS * CHUNK * HEADS * GROUP * D];
    pleat_cache *cache = cache_new(spec, 2, LAYERS, 0);
    const pleat_seq seq = cache_seq(cache, 1);
    CHECK_STATUS(run_step(cache, seq, &(life_step){.n = 1}, out), PLEAT_OK);
    const pleat_cache_usage u = cache_usage_all(cache);
    pleat_cache_destroy(&cache);
    return u.bytes_pages / u.pages_used;
}

/* n_pages 0: enough. */
static void live(const char *spec, uint64_t n_ops, uint64_t n_pages, uint64_t n_done[8]) {
    const uint64_t pool_bytes = n_pages * page_bytes_of(spec);
    world w = {.cache = cache_new(spec, SEQS, LAYERS, pool_bytes), .plain = cache_new(spec, SEQS, LAYERS, 0)};
    w.tracked = strchr(spec, ':') != NULL;
    w.low = strstr(spec, "al=") != NULL && !strstr(spec, "al=2");
    check_context("%s", spec);
    for (uint64_t i = 0; i < n_ops && check_failures() == 0; i++) {
        switch (check_below(24)) {
            case 0: op_open(&w); break;
            case 1: op_close(&w); break;
            case 2:
            case 3: op_fork(&w); break;
            case 4: op_save(&w); break;
            case 5:
            case 6: op_restore(&w); break;
            case 7: op_compress(&w); break;
            default: op_step(&w);
        }
        if (check_below(8) == 0) CHECK(pleat_cache_is_valid(w.cache));
    }
    CHECK(pleat_cache_is_valid(w.cache) && pleat_cache_is_valid(w.plain));
    const uint64_t done[8] = {w.n_forks,  w.n_swaps,  w.n_on_base,    w.n_lost,
                              w.n_copies, w.n_sealed, w.n_compressed, w.n_again};
    for (uint32_t i = 0; i < 8; i++) n_done[i] += done[i];
    for (uint32_t s = 0; s < SEQS; s++)
        if (w.lives[s].open) close_life(&w, &w.lives[s]);
    cache_check_empty(w.cache);
    pleat_cache_destroy(&w.cache);
    pleat_cache_destroy(&w.plain);
}

static void test_lives(void) {
    static const char *const specs[] = {"f32",
                                        "f16",
                                        "k8v4",
                                        "k4v2",
                                        "leankv:ah=3,al=0.5,window=16",
                                        "leankv:ah=2,al=1,window=5,step=code",
                                        "leankv:ah=3,window=16",
                                        "leankv:ah=2,al=2,window=16",
                                        "topk:keep=50%,window=16",
                                        "h2o:budget=24,window=8,sinks=2",
                                        "h2o:budget=40%,window=6,reclaim=copy+kvcrush:share=40%",
                                        "snapkv:budget=30%,window=8,reclaim=copy",
                                        "adakv:budget=30,window=8+kvcrush:anchor=random,unit=page",
                                        "streaming:budget=25,reclaim=block",
                                        "h2o:budget=24,window=8,sinks=2+merge",
                                        "snapkv:budget=30%,window=8,reclaim=copy,format=h3v2+merge",
                                        "novel:budget=26,window=6,sinks=1",
                                        "novel:budget=40%,window=4,reclaim=copy",
                                        "novel:budget=28,window=6,sinks=1+merge",
                                        "h2o:budget=28,window=6,sinks=1+novel",
                                        "expected:budget=28,window=6,sinks=1",
                                        "snapkv:budget=28,window=6,sinks=1+novel:share=40%",
                                        "random:budget=30,window=4,sinks=1,reclaim=none",
                                        "kvcomp:k=0.25,v=0.15,block=32,sinks=0,buffer=40",
                                        "kvcomp:k=0.06,v=0.2,kunit=block,block=16,buffer=8+pack",
                                        "kvcomp:k=0.13,v=0.25,block=32,sinks=40,buffer=24,high=k8v8",
                                        "kivi:bits=2,buffer=30",
                                        "kivi:bits=2,sinks=16,buffer=30,high=k8v8"};
    uint64_t n_done[8] = {0};
    CHECK_STATUS(pleat_workers_create(3, NULL, &workers), PLEAT_OK);
    for (size_t i = 0; i < CHECK_COUNT(specs); i++) {
        live(specs[i], check_rounds(6000, 150), 0, n_done);
        live(specs[i], check_rounds(6000, 150), 120, n_done);
    }
    pleat_workers_destroy(&workers);
    for (uint32_t i = 0; i < 8 && check_rounds(1, 0); i++) CHECK(n_done[i] > 0); /* nothing passes unseen */
}

/* Rings beside what each kind of lanes shares. */
static void test_lives_with_windows(void) {
    static const char *const specs[] = {"f32",
                                        "leankv:ah=3,al=0.5,window=16",
                                        "leankv:ah=3,window=16",
                                        "h2o:budget=40%,window=6,reclaim=copy+kvcrush:share=40%",
                                        "streaming:budget=25,reclaim=block",
                                        "kvcomp:k=0.25,v=0.15,block=32,buffer=40",
                                        "kivi:bits=2,buffer=30,high=k8v8"};
    uint64_t n_done[8] = {0};
    windows = first_layer;
    for (size_t i = 0; i < CHECK_COUNT(specs); i++) {
        live(specs[i], check_rounds(3000, 100), 0, n_done);
        live(specs[i], check_rounds(3000, 100), 120, n_done);
    }
    windows = NULL;
    for (uint32_t i = 0; i < 8 && check_rounds(1, 0); i++) CHECK(n_done[i] > 0);
}

/* ---- seals ----------------------------------------------------------------------------------------------- */

/* A sealed prefix reports the same significance whatever follows, and is continued by whoever forks it. */
static void test_sealed_scores_stay(void) {
    static float out[LAYERS * CHUNK * HEADS * GROUP * D];
    static pleat_cache_token before[MAX_TOKENS], after[MAX_TOKENS];
    pleat_cache *cache = cache_new("leankv:ah=2,al=0.5,window=8", 2, LAYERS, 0);
    const pleat_seq seq = cache_seq(cache, MAX_TOKENS);
    CHECK_STATUS(run_step(cache, seq, &(life_step){.n = CHUNK, .flags = PLEAT_ITEM_MORE, .seed = 1}, out), PLEAT_OK);
    CHECK_STATUS(run_step(cache, seq, &(life_step){.n = CHUNK, .flags = PLEAT_ITEM_SEAL, .seed = 2}, out), PLEAT_OK);
    CHECK_STATUS(pleat_cache_tokens(cache, seq, 0, 0, 0, 2 * CHUNK, before), PLEAT_OK);
    for (uint64_t i = 0; i < 60; i++)
        CHECK_STATUS(run_step(cache, seq, &(life_step){.n = 1, .seed = 10 + i}, out), PLEAT_OK);
    CHECK_STATUS(pleat_cache_tokens(cache, seq, 0, 0, 0, 2 * CHUNK, after), PLEAT_OK);
    uint32_t n_same = 0, n_high = 0;
    for (uint32_t i = 0; i < 2 * CHUNK; i++) {
        n_high += before[i].level == PLEAT_LEVEL_HIGH && i < 2 * CHUNK - 8;
        n_same += before[i].level == PLEAT_LEVEL_HIGH && after[i].level == before[i].level &&
                  memcmp(&before[i].significance, &after[i].significance, sizeof before[i].significance) == 0;
    }
    CHECK(n_high >= 16 && n_same >= n_high / 16 * 16); /* full pages of 16 are sealed, and there is one */
    CHECK(pleat_cache_is_valid(cache));
    pleat_cache_destroy(&cache);
}

/* 64 sequences on one prefix of 2000 tokens would take: here 40 on one of 230 with pages of 16: 14 full pages a lane
 * once, and one of its own for each. */
static void test_prefix_stands_once(void) {
    enum { N = 40, PREFIX = 230, LANES = LAYERS * HEADS };
    static float out[LAYERS * CHUNK * HEADS * GROUP * D];
    pleat_cache *cache = cache_new("f16", N + 1, LAYERS, 0);
    const pleat_seq prefix = cache_seq(cache, PREFIX);
    pleat_seq seqs[N];
    for (uint32_t at = 0; at < PREFIX; at += 46)
        CHECK_STATUS(run_step(cache, prefix, &(life_step){.n = 46, .seed = at}, out), PLEAT_OK);
    CHECK_EQ_U64(cache_usage_all(cache).pages_used, 15 * LANES);
    for (uint32_t i = 0; i < N; i++) {
        CHECK_STATUS(pleat_cache_fork(cache, prefix, MAX_TOKENS, &seqs[i]), PLEAT_OK);
        CHECK_STATUS(run_step(cache, seqs[i], &(life_step){.n = 1, .seed = i}, out), PLEAT_OK);
    }
    CHECK_EQ_U64(cache_usage_all(cache).pages_used, (15 + N) * LANES);
    CHECK(pleat_cache_is_valid(cache));
    CHECK_STATUS(pleat_cache_close(cache, prefix), PLEAT_OK);
    CHECK_EQ_U64(cache_usage_all(cache).pages_used, (14 + N) * LANES);
    for (uint32_t i = 0; i < N; i++) CHECK_STATUS(pleat_cache_close(cache, seqs[i]), PLEAT_OK);
    CHECK_EQ_U64(cache_usage_all(cache).pages_used, 0);
    pleat_cache_destroy(&cache);
}

/* Forks that all write one page leave it to the last of them: a pool that holds just as many is enough. */
static void test_last_holder_keeps_the_page(void) {
    enum { LANES = LAYERS * HEADS };
    static float rows[LAYERS * CHUNK * HEADS * GROUP * D];
    for (uint32_t n_spare = 0; n_spare < 3; n_spare++) {
        pleat_cache *cache = cache_new("f16", 4, LAYERS, (2 + n_spare) * LANES * page_bytes_of("f16"));
        pleat_seq seqs[2];
        seqs[0] = cache_seq(cache, 16);
        CHECK_STATUS(run_step(cache, seqs[0], &(life_step){.n = 6, .seed = 1}, rows), PLEAT_OK);
        CHECK_STATUS(pleat_cache_fork(cache, seqs[0], 16, &seqs[1]), PLEAT_OK);
        const pleat_cache_item items[] = {{seqs[0], 1, 0}, {seqs[1], 1, 0}};
        CHECK_STATUS(pleat_cache_begin(cache, items, 2), PLEAT_OK);
        CHECK_EQ_U64(cache_usage_all(cache).pages_used, 2 * LANES);
        CHECK_STATUS(pleat_cache_cancel(cache), PLEAT_OK);
        CHECK(pleat_cache_is_valid(cache));
        pleat_cache_destroy(&cache);
    }
}

/* ---- refusals ---------------------------------------------------------------------------------------------- */

static void test_bad_images(void) {
    static float out[LAYERS * CHUNK * HEADS * GROUP * D];
    pleat_cache *cache = cache_new("leankv:ah=2,al=0.5,window=8", 2, LAYERS, 0);
    pleat_seq seq, other;
    seq = cache_seq(cache, MAX_TOKENS);
    for (uint64_t i = 0; i < 3; i++)
        CHECK_STATUS(run_step(cache, seq, &(life_step){.n = 40, .flags = 2, .seed = i}, out), PLEAT_OK);
    const uint64_t n = pleat_cache_image_bytes(cache, seq, (pleat_seq){0});
    uint8_t *image = malloc(n), *bad = malloc(n);
    CHECK_STATUS(pleat_cache_save(cache, seq, (pleat_seq){0}, image, n), PLEAT_OK);
    const uint64_t used = cache_usage_all(cache).pages_used, rounds = check_rounds(3000, 300);
    uint64_t n_refused = 0;
    for (uint64_t i = 0; i < rounds; i++) { /* any damage */
        memcpy(bad, image, n);
        bad[check_below(i % 2 ? 80 : n)] ^= (uint8_t)(1u << check_below(8));
        n_refused += pleat_cache_restore(cache, bad, n, (pleat_seq){0}, &other) == PLEAT_E_FORMAT;
        CHECK_EQ_U64(cache_usage_all(cache).pages_used, used);
    }
    CHECK_EQ_U64(n_refused, rounds);
    CHECK_STATUS(pleat_cache_restore(cache, image, n - 1, (pleat_seq){0}, &other), PLEAT_E_FORMAT);
    CHECK_STATUS(pleat_cache_restore(cache, image, n, seq, &other), PLEAT_E_FORMAT);
    CHECK_STATUS(pleat_cache_fork(cache, seq, 119, &other), PLEAT_E_ARG);
    CHECK_STATUS(pleat_cache_fork(cache, (pleat_seq){0}, 200, &other), PLEAT_E_ARG);
    CHECK_STATUS(pleat_cache_compress(cache, seq, 1, 0.5f), PLEAT_E_ARG);
    CHECK_STATUS(pleat_cache_compress(cache, seq, NAN, 0.5f), PLEAT_E_ARG);
    CHECK_STATUS(pleat_cache_compress(cache, seq, 3, 4), PLEAT_E_ARG);
    CHECK_EQ_U64(pleat_cache_pages_needed(cache, &(pleat_cache_item){seq, 1, 3}), UINT64_MAX);
    CHECK(pleat_cache_is_valid(cache));
    free(image);
    free(bad);
    pleat_cache_destroy(&cache);
}

/* Attend to what a sequence holds and have it back, whatever that is; then close it. */
static void use_and_close(pleat_cache *cache, pleat_seq seq) {
    static float q[HEADS * GROUP * D], out[HEADS * GROUP * D], k[MAX_TOKENS * D], v[MAX_TOKENS * D];
    const uint32_t n_tokens = pleat_cache_length(cache, seq);
    pleat__rng rng = rng_of_seed(n_tokens);
    fill_within(&rng, q, HEADS * GROUP * D, 1);
    for (uint32_t layer = 0; n_tokens > 0 && layer < LAYERS; layer++) {
        CHECK_STATUS(pleat_cache_read(cache, layer, &seq, 1, q, out, NULL), PLEAT_OK);
        const pleat_status status = pleat_cache_export(cache, seq, layer, HEADS - 1, 0, n_tokens, k, v);
        CHECK(status == PLEAT_OK || status == PLEAT_E_FORMAT); /* a codebook that is one, but another */
    }
    CHECK_STATUS(pleat_cache_close(cache, seq), PLEAT_OK);
}

/* Each byte is another, and the hash does not tell: the image is refused, or what comes of it is valid. */
static void check_forged(pleat_cache *cache, const uint8_t *image, uint64_t n) {
    uint8_t *bad = malloc(n);
    const uint64_t used = cache_usage_all(cache).pages_used, bytes = cache_usage_all(cache).bytes,
                   step = check_rounds(1, 7);
    uint64_t n_taken = 0, n_refused = 0;
    for (uint64_t at = sizeof(uint64_t) + check_below(step); at < n && check_failures() == 0; at += step) {
        pleat_seq seq;
        memcpy(bad, image, n);
        bad[at] ^= (uint8_t)check_between(1, 255);
        const uint64_t hash = XXH3_64bits(bad + sizeof hash, n - sizeof hash);
        memcpy(bad, &hash, sizeof hash);
        const pleat_status status = pleat_cache_restore(cache, bad, n, (pleat_seq){0}, &seq);
        n_taken += status == PLEAT_OK;
        n_refused += status == PLEAT_E_FORMAT;
        check_context("byte %u of %u: status %d", (unsigned)at, (unsigned)n, (int)status);
        CHECK(status == PLEAT_E_FORMAT || (status == PLEAT_OK && pleat_cache_is_valid(cache)));
        if (status == PLEAT_OK) use_and_close(cache, seq);
        CHECK_EQ_U64(cache_usage_all(cache).pages_used, used);
        CHECK_EQ_U64(cache_usage_all(cache).bytes, bytes);
    }
    CHECK(n_taken > 0 && n_refused > 0);
    CHECK(pleat_cache_is_valid(cache));
    free(bad);
}

static void forge_images(void) {
    static const char *const specs[] = {
        "kvcomp:k=0.25,v=0.15,block=32,buffer=8", "kvcomp:k=0.25,v=0.2,block=32,buffer=8",
        "kvcomp:k=0.25,v=0.15,block=32,buffer=8,high=k8v8", "kvcomp:k=0.06,v=0.2,kunit=block,block=16,buffer=8+pack",
        "kivi:bits=2,buffer=8"};
    static float out[LAYERS * CHUNK * HEADS * GROUP * D];
    for (size_t i = 0; i < CHECK_COUNT(specs); i++) {
        pleat_cache *cache = cache_new(specs[i], 2, LAYERS, 0);
        pleat_seq seq, other;
        check_context("%s", specs[i]);
        seq = cache_seq(cache, MAX_TOKENS);
        for (uint64_t step = 0; step < 2; step++)
            CHECK_STATUS(run_step(cache, seq, &(life_step){.n = 55, .seed = step}, out), PLEAT_OK);
        const uint64_t n = pleat_cache_image_bytes(cache, seq, (pleat_seq){0});
        uint8_t *image = malloc(n);
        CHECK_STATUS(pleat_cache_save(cache, seq, (pleat_seq){0}, image, n), PLEAT_OK);
        for (size_t j = 0; j < CHECK_COUNT(specs); j++) {
            pleat_cache *there = cache_new(specs[j], 2, LAYERS, 0);
            CHECK_STATUS(pleat_cache_restore(there, image, n, (pleat_seq){0}, &other),
                         i == j ? PLEAT_OK : PLEAT_E_FORMAT);
            CHECK_EQ_U64(pleat_cache_image_pages(there, image, n) > 0, i == j);
            pleat_cache_destroy(&there);
        }
        check_forged(cache, image, n);
        free(image);
        pleat_cache_destroy(&cache);
    }
}

static void test_forged_images(void) {
    forge_images();
    windows = first_layer;
    forge_images();
    windows = NULL;
}

/* ---- a million operations ------------------------------------------------------------------------------------ */

/* Pages of one lane, counted the slow way; every lane is alike. */
enum { M_SEQS = 12, M_PAGES = 4096, M_TOKENS = 120, M_LANES = 1 * HEADS };

typedef struct m_seq {
    bool open, swapped;
    pleat_seq seq;
    uint32_t n;
    uint32_t pages[M_TOKENS / 16 + 1]; /* names of pages */
    float marks[M_TOKENS];             /* what each token's key begins with */
    uint8_t *image;
} m_seq;

static uint32_t m_refs[M_PAGES];

static uint32_t m_new_page(void) {
    uint32_t name = 0;
    while (m_refs[name]) name++;
    m_refs[name] = 1;
    return name;
}

static uint32_t m_n_used(void) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < M_PAGES; i++) n += m_refs[i] > 0;
    return n;
}

static uint32_t m_n_pages(const m_seq *s) { return (s->n + 15) / 16; }

static void m_drop(m_seq *s) {
    for (uint32_t i = 0; i < m_n_pages(s); i++) m_refs[s->pages[i]]--;
}

/* n tokens more: the part-filled last page is copied if somebody else has it too. */
static void m_append(pleat_cache *cache, m_seq *s, uint32_t n_new) {
    static float k[64 * HEADS * D];
    if (n_new > M_TOKENS - s->n) n_new = M_TOKENS - s->n;
    if (n_new == 0) return;
    const uint32_t n_take = (s->n + n_new + 15) / 16 - m_n_pages(s);
    const bool copies = s->n % 16 && m_refs[s->pages[s->n / 16]] > 1;
    const pleat_cache_item item = {s->seq, n_new, 0};
    const pleat_cache_usage u = cache_usage_all(cache);
    CHECK_EQ_U64(pleat_cache_pages_needed(cache, &item), (uint64_t)M_LANES * (n_take + copies));
    const pleat_status status = pleat_cache_begin(cache, &item, 1);
    CHECK_EQ_I64(status,
                 M_LANES * (uint64_t)(n_take + copies) <= u.pages_total - u.pages_used ? PLEAT_OK : PLEAT_AGAIN);
    if (status != PLEAT_OK) return;
    if (copies) {
        m_refs[s->pages[s->n / 16]]--;
        s->pages[s->n / 16] = m_new_page();
    }
    if (check_below(16) == 0) {
        CHECK_STATUS(pleat_cache_cancel(cache), PLEAT_OK);
        return;
    }
    for (uint32_t i = 0; i < n_new; i++) {
        s->marks[s->n + i] = (float)check_below(1000);
        for (uint32_t j = 0; j < HEADS * D; j++) k[i * HEADS * D + j] = s->marks[s->n + i];
    }
    CHECK_STATUS(pleat_cache_store(cache, 0, k, k), PLEAT_OK);
    CHECK_STATUS(pleat_cache_end(cache), PLEAT_OK);
    for (uint32_t i = 0, n_before = m_n_pages(s); i < n_take; i++) s->pages[n_before + i] = m_new_page();
    s->n += n_new;
}

static void m_swap(pleat_cache *cache, m_seq *s) {
    const uint64_t n_bytes = pleat_cache_image_bytes(cache, s->seq, (pleat_seq){0});
    if (!s->swapped) {
        s->image = malloc(n_bytes);
        CHECK_STATUS(pleat_cache_save(cache, s->seq, (pleat_seq){0}, s->image, n_bytes), PLEAT_OK);
        CHECK_STATUS(pleat_cache_close(cache, s->seq), PLEAT_OK);
        m_drop(s);
        s->swapped = true;
        return;
    }
    uint64_t n_image; /* the header says it */
    memcpy(&n_image, s->image + 24, sizeof n_image);
    if (pleat_cache_restore(cache, s->image, n_image, (pleat_seq){0}, &s->seq) != PLEAT_OK) return;
    for (uint32_t i = 0; i < m_n_pages(s); i++) s->pages[i] = m_new_page();
    free(s->image);
    s->image = NULL;
    s->swapped = false;
}

static void m_check(const pleat_cache *cache, const m_seq *s) {
    static float k[M_TOKENS * D];
    CHECK_STATUS(pleat_cache_export(cache, s->seq, 0, HEADS - 1, 0, s->n, k, NULL), PLEAT_OK);
    for (uint32_t i = 0; i < s->n; i++) CHECK_NEAR(k[i * D], s->marks[i], 0);
}

static void m_op(pleat_cache *cache, m_seq *seqs) {
    m_seq *s = &seqs[check_below(M_SEQS)], *other = &seqs[check_below(M_SEQS)];
    const uint64_t op = check_below(16);
    if (!s->open) {
        *s = (m_seq){.open = true};
        s->seq = cache_seq(cache, M_TOKENS);
    } else if (op == 0 || (op == 1 && s->swapped)) {
        if (!s->swapped) m_drop(s);
        if (!s->swapped) CHECK_STATUS(pleat_cache_close(cache, s->seq), PLEAT_OK);
        free(s->image);
        *s = (m_seq){.open = false};
    } else if (op <= 2 || s->swapped) {
        m_swap(cache, s);
    } else if (op <= 5 && !other->open) {
        *other = *s;
        CHECK_STATUS(pleat_cache_fork(cache, s->seq, M_TOKENS, &other->seq), PLEAT_OK);
        for (uint32_t i = 0; i < m_n_pages(s); i++) m_refs[s->pages[i]]++;
    } else {
        m_append(cache, s, check_below(4) ? 1 : (uint32_t)check_between(1, 40));
    }
}

static void test_million(void) {
    m_seq seqs[M_SEQS] = {{.open = false}};
    memset(m_refs, 0, sizeof m_refs);
    pleat_cache *cache = cache_new("f16", M_SEQS, 1, 40 * M_LANES * 1024);
    const uint64_t n_ops = check_rounds(1000000, 20000);
    for (uint64_t i = 0; i < n_ops && check_failures() == 0; i++) {
        m_op(cache, seqs);
        if (i % 64) continue;
        CHECK_EQ_U64(cache_usage_all(cache).pages_used, (uint64_t)M_LANES * m_n_used());
        CHECK(pleat_cache_is_valid(cache));
        for (uint32_t s = 0; s < M_SEQS; s++)
            if (seqs[s].open && !seqs[s].swapped) m_check(cache, &seqs[s]);
    }
    for (uint32_t s = 0; s < M_SEQS; s++) free(seqs[s].image);
    pleat_cache_destroy(&cache);
}

static const check_test tests[] = {
    {"lives", test_lives},
    {"lives_with_windows", test_lives_with_windows},
    {"sealed_scores_stay", test_sealed_scores_stay},
    {"prefix_stands_once", test_prefix_stands_once},
    {"last_holder_keeps_the_page", test_last_holder_keeps_the_page},
    {"bad_images", test_bad_images},
    {"forged_bad_images", test_forged_images},
    {"million", test_million},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
