/* SPDX-License-Identifier: MIT
 *
 * test_auto.c: caches of `auto`: at every step of a long generation, whatever is generated, no sequence holds more than
 * the share of f16's bytes that was promised.  The same tokens are the same bytes.  What cannot be promised is refused
 * with what can.
 */
#include <stdio.h>

#include "stats_rig.h"

#include "cache/cache.h"

#define MAX_TOKENS 2100u

static const cache_shape shape = {.n_layers = 2,
                                  .n_kv_heads = 2,
                                  .head_dim = 32,
                                  .group = 2,
                                  .max_seqs = 3,
                                  .max_tokens = MAX_TOKENS,
                                  .step_tokens = MAX_TOKENS};

/* ---- the promise --------------------------------------------------------------------------------------------- */

typedef enum text_kind { TEXT_LIKE, TEXT_WIDE, TEXT_EXTREME, TEXT_TURNS, N_TEXT_KINDS } text_kind;

/* Rows of tokens [at, at + n) of a text: like the statistics', three times as wide, as large as f16 holds, or all of these in
 * turns. */
static void fill_rows(text_kind kind, uint32_t at, uint32_t n, float *k, float *v) {
    const uint32_t row = shape.n_kv_heads * shape.head_dim;
    for (uint32_t i = 0; i < n * row; i++) {
        const text_kind now = kind == TEXT_TURNS ? (text_kind)((at + i / row) / 300 % TEXT_TURNS) : kind;
        if (now == TEXT_WIDE) k[i] *= 3, v[i] *= i % 32 < 16 ? 8 : 1;
        if (now == TEXT_EXTREME) k[i] = check_below(2) ? 60000 : -60000, v[i] = check_below(9) ? v[i] : 60000;
    }
}

/* A step of n tokens of a text. */
static void feed(pleat_cache *cache, pleat_seq seq, text_kind kind, const uint64_t *ids, uint32_t n, uint32_t flags) {
    static float q[MAX_TOKENS * 128], k[MAX_TOKENS * 64], v[MAX_TOKENS * 64], out[MAX_TOKENS * 128];
    const pleat_cache_item item = {seq, n, flags};
    const stats_part part = {seq, ids, n, flags};
    const uint32_t at = pleat_cache_length(cache, seq);
    CHECK_STATUS(pleat_cache_begin(cache, &item, 1), PLEAT_OK);
    for (uint32_t layer = 0; layer < shape.n_layers; layer++) {
        stats_rows(cache, &shape, &part, 1, layer, q, k, v);
        fill_rows(kind, at, n, k, v);
        CHECK_STATUS(pleat_cache_attend(cache, layer, q, k, v, out), PLEAT_OK);
    }
    CHECK_STATUS(pleat_cache_end(cache), PLEAT_OK);
}

static void draw_ids(uint64_t *ids, uint32_t n) {
    for (uint32_t t = 0; t < n; t++) ids[t] = check_u64() >> 24;
}

/* Bytes counted anew, from pages and tables; they are what the cache says. */
static uint64_t count_bytes(const pleat_cache *cache, const pleat_cache_options *opt, pleat_seq seq) {
    pleat_cache_traits traits = {.size_bytes = sizeof traits};
    CHECK_STATUS(pleat_cache_get_traits(cache, &traits), PLEAT_OK);
    const uint64_t n_bytes =
        pleat_cache_pages_held(cache, seq) * (traits.page_bytes + 8) + pleat_cache_bytes_for(opt, 0, MAX_TOKENS);
    CHECK_EQ_U64(cache_usage(cache, seq).bytes, n_bytes);
    return n_bytes;
}

/* Read a prompt and generate up to 2000 tokens; returns the largest share, in millionths, of those that are promised. */
static uint64_t largest_share(const pleat_cache_options *opt, text_kind kind, uint32_t n_prompt) {
    uint64_t ids[MAX_TOKENS], largest = 0;
    pleat_cache *cache = cache_made(opt);
    const pleat_seq seq = cache_seq(cache, MAX_TOKENS);
    draw_ids(ids, MAX_TOKENS);
    for (uint32_t n = 0; n < 2000 && check_failures() == 0;) {
        const uint32_t n_new = n ? 1 : n_prompt;
        feed(cache, seq, kind, ids + n, n_new, 0);
        n += n_new;
        if (n < opt->spec.from) continue;
        const uint64_t bytes = count_bytes(cache, opt, seq), f16 = (uint64_t)n * 4 * 4 * shape.head_dim;
        const uint64_t share = (bytes * 1000000 + f16 - 1) / f16;
        if (share > largest) largest = share;
        check_context("%u tokens, text %d: %.4f %%", n, (int)kind, (double)share / 1e4);
        CHECK(bytes <= f16 * (double)opt->spec.bytes + 1e-3);
    }
    CHECK(pleat_cache_is_valid(cache));
    pleat_cache_destroy(&cache);
    return largest;
}

static void test_promise(void) {
    static const char *const specs[] = {"auto:bytes=20%", "auto:bytes=16%,from=1500", "auto:bytes=30%,from=600"};
    static const uint32_t prompts[] = {1, 700, 1700};
    for (uint32_t i = 0; i < CHECK_COUNT(specs); i++)
        for (uint32_t kind = 0; kind < N_TEXT_KINDS; kind++) {
            const pleat_cache_options opt = cache_options_of(specs[i], &shape);
            const uint64_t most = largest_share(&opt, (text_kind)kind, prompts[(i + kind) % 3]);
            check_context("%s, text %u: at most %.4f %%", specs[i], kind, (double)most / 1e4);
            /* what may be held is made use of, if it is looked at where it is the least */
            CHECK(prompts[(i + kind) % 3] > opt.spec.from ||
                  (double)most > (kind == TEXT_EXTREME ? 0.5 : 0.96) * 1e6 * (double)opt.spec.bytes);
        }
}

/* Steps follow what the text takes: near the model's for text like the statistics' until `from`, coarser for any that takes
 * more; and behind `from`, where there is more room for a block, finer. */
static void test_steps_follow(void) {
    uint64_t ids[MAX_TOKENS];
    pleat_cache_drift like, wide, longer;
    pleat_cache *cache = cache_of("auto:bytes=20%", &shape);
    const pleat_seq a = cache_seq(cache, MAX_TOKENS), b = cache_seq(cache, MAX_TOKENS);
    draw_ids(ids, MAX_TOKENS);
    feed(cache, a, TEXT_LIKE, ids, 1024, 0);
    feed(cache, b, TEXT_WIDE, ids, 1024, 0);
    CHECK_STATUS(pleat_cache_get_drift(cache, a, &like), PLEAT_OK);
    CHECK_STATUS(pleat_cache_get_drift(cache, b, &wide), PLEAT_OK);
    feed(cache, a, TEXT_LIKE, ids + 1024, 1000, 0);
    CHECK_STATUS(pleat_cache_get_drift(cache, a, &longer), PLEAT_OK);
    check_context("coarser %llu, %llu, %llu, finer %llu, %llu, %llu of %llu, %llu blocks",
                  (unsigned long long)like.n_coarser, (unsigned long long)wide.n_coarser,
                  (unsigned long long)longer.n_coarser, (unsigned long long)like.n_finer,
                  (unsigned long long)wide.n_finer, (unsigned long long)longer.n_finer,
                  (unsigned long long)like.n_blocks, (unsigned long long)longer.n_blocks);
    CHECK(like.n_coarser < like.n_blocks && 10 * wide.n_coarser >= 9 * wide.n_blocks);
    CHECK(wide.n_finer == 0);
    CHECK(2 * (longer.n_finer - like.n_finer) > longer.n_blocks - like.n_blocks);
    pleat_cache_destroy(&cache);
}

/* A cache of sequences that all end before `from`, or long before a `from` beyond them, has the steps of any other. */
static void test_short(void) {
    static const char *const specs[] = {"auto:bytes=20%", "auto:bytes=20%,from=60000"};
    for (uint32_t i = 0; i < CHECK_COUNT(specs); i++) {
        cache_shape small = shape;
        pleat_cache_drift drift;
        uint64_t ids[MAX_TOKENS];
        small.max_tokens = small.step_tokens = i == 0 ? 512 : MAX_TOKENS;
        pleat_cache *cache = cache_of(specs[i], &small);
        const pleat_seq seq = cache_seq(cache, small.max_tokens);
        draw_ids(ids, MAX_TOKENS);
        feed(cache, seq, TEXT_LIKE, ids, small.max_tokens, 0);
        CHECK_STATUS(pleat_cache_get_drift(cache, seq, &drift), PLEAT_OK);
        check_context("%s: coarser %llu, finer %llu of %llu blocks", specs[i], (unsigned long long)drift.n_coarser,
                      (unsigned long long)drift.n_finer, (unsigned long long)drift.n_blocks);
        CHECK(drift.n_blocks > 0 && 4 * drift.n_coarser < 3 * drift.n_blocks && 4 * drift.n_finer < 3 * drift.n_blocks);
        pleat_cache_destroy(&cache);
    }
}

/* ---- equal tokens, equal bytes --------------------------------------------------------------------------------- */

static uint64_t hash_of(const pleat_cache *cache, pleat_seq seq, uint32_t lane, uint32_t block) {
    uint64_t hash = 0;
    CHECK_STATUS(pleat_cache_block_hash(cache, seq, lane / 2, lane % 2, block, &hash), PLEAT_OK);
    return hash;
}

static void check_equal(const pleat_cache *a, pleat_seq x, const pleat_cache *b, pleat_seq y) {
    if (!CHECK_EQ_U64(pleat_cache_n_blocks(a, x), pleat_cache_n_blocks(b, y))) return;
    for (uint32_t lane = 0; lane < 4; lane++)
        for (uint32_t i = 0; i < pleat_cache_n_blocks(a, x); i++)
            CHECK_EQ_U64(hash_of(a, x, lane, i), hash_of(b, y, lane, i));
}

/* In one step or in many, forked on the way, through an image into a cache of longer sequences. */
static void test_equal_bytes(void) {
    uint64_t ids[MAX_TOKENS];
    cache_shape longer = shape;
    longer.max_tokens = longer.step_tokens = 3000;
    pleat_cache *cache = cache_of("auto:bytes=20%", &shape), *other = cache_of("auto:bytes=20%", &longer);
    const pleat_seq once = cache_seq(cache, MAX_TOKENS), often = cache_seq(cache, MAX_TOKENS);
    pleat_seq twin, moved = {0};
    draw_ids(ids, MAX_TOKENS);
    feed(cache, once, TEXT_WIDE, ids, 1200, 0);
    feed(cache, often, TEXT_WIDE, ids, 500, PLEAT_ITEM_MORE);
    feed(cache, often, TEXT_WIDE, ids + 500, 400, 0);
    CHECK_STATUS(pleat_cache_fork(cache, often, MAX_TOKENS, &twin), PLEAT_OK);
    for (uint32_t t = 900; t < 1200; t++) {
        feed(cache, often, TEXT_WIDE, ids + t, 1, 0);
        feed(cache, twin, TEXT_WIDE, ids + t, 1, 0);
    }
    check_equal(cache, once, cache, often);
    check_equal(cache, once, cache, twin);
    const uint64_t n_bytes = pleat_cache_image_bytes(cache, once, (pleat_seq){0});
    void *image = malloc(n_bytes);
    CHECK_STATUS(pleat_cache_save(cache, once, (pleat_seq){0}, image, n_bytes), PLEAT_OK);
    CHECK_STATUS(pleat_cache_restore_for(other, image, n_bytes, (pleat_seq){0}, 2100, &moved), PLEAT_OK);
    check_equal(cache, once, other, moved);
    CHECK(pleat_cache_is_valid(other));
    free(image);
    pleat_cache_destroy(&cache);
    pleat_cache_destroy(&other);
}

/* ---- what is chosen ---------------------------------------------------------------------------------------------- */

static pleat_spec choice_of(const char *spec, const cache_shape *s) {
    pleat_spec out = {0};
    char text[PLEAT_SPEC_TEXT_CAP];
    pleat_cache *cache = cache_of(spec, s);
    CHECK_STATUS(pleat_cache_get_choice(cache, &out), PLEAT_OK);
    CHECK_STATUS(pleat_spec_print(&out, text, sizeof text), PLEAT_OK);
    CHECK_STATUS(pleat_cache_get_choice(cache, NULL), PLEAT_E_ARG);
    pleat_cache_destroy(&cache);
    return out;
}

static void test_choice(void) {
    cache_shape longer = shape;
    longer.max_tokens = 2500;
    const pleat_spec some = choice_of("auto:bytes=20%", &shape), more = choice_of("auto:bytes=25%", &shape);
    const pleat_spec later = choice_of("auto:bytes=20%,from=2000", &shape), same = choice_of("auto", &longer);
    CHECK(some.compressor == PLEAT_COMPRESSOR_RD && some.sinks == 4 && some.buffer == 91 && some.high.k_bits == 8);
    CHECK(more.k < some.k && more.v < some.v && later.k < some.k && later.v < some.v);
    CHECK(same.k == some.k && same.v == some.v);
    CHECK_NEAR(some.k / some.v, 0.15 / 1.1, 1e-5);
    const pleat_spec own = choice_of("rd:k=0.1,v=0.8", &shape);
    CHECK(own.k == 0.1f && own.v == 0.8f);
    CHECK_STATUS(pleat_cache_get_choice(NULL, &(pleat_spec){0}), PLEAT_E_ARG);
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

/* The share that the message of a refusal names, in per cent. */
static double named_share(const char *text) {
    const char *at = strstr(text, "that it can is ");
    return at ? strtod(at + strlen("that it can is "), NULL) : -1;
}

/* What it says that can be promised, can; a little less cannot. */
static void test_refused(void) {
    static const char *const from[] = {"1", "100", "400", "1024", "2000"};
    for (uint32_t i = 0; i < CHECK_COUNT(from); i++) {
        char spec[64];
        pleat_error err = {0};
        pleat_cache *cache = NULL;
        snprintf(spec, sizeof spec, "auto:bytes=2%%,from=%s", from[i]);
        pleat_cache_options opt = cache_options_of(spec, &shape);
        CHECK_STATUS(pleat_cache_create(&opt, &cache, &err), PLEAT_E_ARG);
        check_context("%s: %s", spec, err.text);
        CHECK(strstr(err.text, "auto cannot promise"));
        const double share = named_share(err.text);
        if (share < 0) {
            CHECK(strstr(err.text, "any share") && opt.spec.from < 100);
            continue;
        }
        CHECK(share > 2 && share < 101);
        opt.spec.bytes = (float)(share / 100);
        CHECK_STATUS(pleat_cache_create(&opt, &cache, &err), PLEAT_OK);
        pleat_cache_destroy(&cache);
        opt.spec.bytes = (float)((share - 0.1) / 100);
        CHECK_STATUS(pleat_cache_create(&opt, &cache, &err), PLEAT_E_ARG);
    }
}

/* Without statistics, or with another model's; with tables that take the share. */
static void test_refused_options(void) {
    pleat_error err = {0};
    pleat_cache *cache = NULL;
    pleat_cache_options opt = cache_options_of("auto:bytes=20%", &shape);
    opt.stats = NULL;
    CHECK(pleat_cache_bytes_for(&opt, 300, MAX_TOKENS) > 0); /* what is only planned needs none */
    CHECK_STATUS(pleat_cache_create(&opt, &cache, &err), PLEAT_E_ARG);
    CHECK(strstr(err.text, "rd chooses its steps by statistics"));
    opt = cache_options_of("auto:bytes=20%", &shape);
    opt.n_layers = 3;
    CHECK_STATUS(pleat_cache_create(&opt, &cache, &err), PLEAT_E_ARG);
    CHECK(strstr(err.text, "the statistics are of 2 layers"));
    opt = cache_options_of("auto:bytes=20%", &shape);
    opt.max_tokens = 1u << 20;
    opt.pool_bytes = 1u << 20;
    CHECK_STATUS(pleat_cache_create(&opt, &cache, &err), PLEAT_E_ARG);
    check_context("%s", err.text);
    CHECK(strstr(err.text, "with tables for 1048576"));
}

static const check_test tests[] = {{"promise", test_promise},
                                   {"steps_follow", test_steps_follow},
                                   {"equal_bytes", test_equal_bytes},
                                   {"choice", test_choice},
                                   {"short", test_short},
                                   {"refused", test_refused},
                                   {"refused_options", test_refused_options}};

int main(int argc, char **argv) { return stats_main(&shape, tests, CHECK_COUNT(tests), argc, argv); }
