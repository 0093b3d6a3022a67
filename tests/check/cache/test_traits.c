/* SPDX-License-Identifier: MIT
 *
 * test_traits.c: what a cache says of how its lanes keep their tokens, for each kind, and the counts that go with it.
 */
#include <string.h>

#include "check.h"
#include "pleat/cache.h"

enum { LAYERS = 2, HEADS = 2, HEAD_DIM = 64, MAX_TOKENS = 256 };

static pleat_cache_options options_of(const char *spec, const uint32_t *windows) {
    pleat_cache_options opt;
    pleat_cache_options_default(&opt);
    CHECK_STATUS(pleat_spec_parse(spec, &opt.spec, NULL), PLEAT_OK);
    opt.n_layers = LAYERS;
    opt.n_kv_heads = opt.n_q_heads = HEADS;
    opt.head_dim = HEAD_DIM;
    opt.max_seqs = 2;
    opt.max_tokens = MAX_TOKENS;
    opt.windows = windows;
    return opt;
}

static const uint32_t all_windows[LAYERS] = {16, 32}, one_window[LAYERS] = {16, 0}, no_window[LAYERS] = {MAX_TOKENS, 0};

typedef struct expectation {
    const char *spec;
    const uint32_t *windows;
    pleat_cache_traits traits; /* without sizes of pages and lanes */
    uint32_t max_kept;         /* of a prompt of 200 tokens */
} expectation;

/* 384: three of the largest pages that a cache chooses. */
static const expectation expectations[] = {
    {"f16", NULL, {.unshared_tokens = 384}, UINT32_MAX},
    {"k4v4", no_window, {.unshared_tokens = 384}, UINT32_MAX},
    {"f16", all_windows, {.n_ring_lanes = 4, .ring_slots = 32, .unshared_tokens = UINT32_MAX}, UINT32_MAX},
    {"f16", one_window, {.n_ring_lanes = 2, .ring_slots = 16, .unshared_tokens = UINT32_MAX}, UINT32_MAX},
    {"leankv:ah=3,al=0",
     one_window,
     {.has_policy = 1,
      .window = 64,
      .n_ring_lanes = 2,
      .ring_slots = 16,
      .spare_pages = 3,
      .can_compress = 1,
      .unshared_tokens = UINT32_MAX},
     UINT32_MAX},
    {"snapkv:budget=100",
     one_window,
     {.has_policy = 1,
      .window = 64,
      .n_ring_lanes = 2,
      .ring_slots = 16,
      .is_packed = 1,
      .unshared_tokens = UINT32_MAX},
     100},
    {"kvcomp:k=0.1,v=0.1",
     one_window,
     {.n_ring_lanes = 2, .ring_slots = 16, .shares_late = 1, .unshared_tokens = UINT32_MAX},
     UINT32_MAX},
    {"leankv:ah=3,al=0",
     NULL,
     {.has_policy = 1, .window = 64, .spare_pages = 3, .can_compress = 1, .unshared_tokens = 448},
     UINT32_MAX},
    {"leankv:ah=1,al=1", NULL, {.has_policy = 1, .window = 64, .spare_pages = 1, .unshared_tokens = 448}, UINT32_MAX},
    {"topk:keep=50%,window=8",
     NULL,
     {.has_policy = 1, .window = 8, .spare_pages = 1, .unshared_tokens = 392},
     UINT32_MAX},
    {"h2o:budget=100",
     NULL,
     {.has_policy = 1, .window = 64, .is_packed = 1, .is_bounded = 1, .unshared_tokens = UINT32_MAX},
     100},
    {"h2o:budget=100,reclaim=block", NULL, {.has_policy = 1, .window = 64, .unshared_tokens = UINT32_MAX}, 100},
    {"streaming:budget=50%,reclaim=copy",
     NULL,
     {.has_policy = 1, .window = 1, .is_packed = 1, .is_bounded = 1, .takes_fresh = 1, .unshared_tokens = UINT32_MAX},
     100},
    {"snapkv:budget=100", NULL, {.has_policy = 1, .window = 64, .is_packed = 1, .unshared_tokens = UINT32_MAX}, 100},
    {"adakv:budget=100",
     NULL,
     {.has_policy = 1, .window = 64, .is_packed = 1, .unshared_tokens = UINT32_MAX},
     HEADS * 100}, /* one lane may have the whole layer's */
    {"pyramidkv:budget=100",
     NULL,
     {.has_policy = 1, .window = 64, .is_packed = 1, .unshared_tokens = UINT32_MAX},
     200}, /* the first layers have what the last ones go without */
    {"kvcomp:k=0.1,v=0.1", NULL, {.shares_late = 1, .unshared_tokens = 4 + 128 + 64 + 384}, UINT32_MAX},
    {"kvcomp:k=0.2,v=0.2,sinks=9,buffer=60,high=k8v8",
     NULL,
     {.shares_late = 1, .unshared_tokens = 9 + 60 + 64 + 384},
     UINT32_MAX},
};

static void test_each_kind_has_its_traits(void) {
    for (size_t i = 0; i < CHECK_COUNT(expectations); i++) {
        const expectation *e = &expectations[i];
        const pleat_cache_options opt = options_of(e->spec, e->windows);
        pleat_cache_traits t = {.size_bytes = sizeof t}, without = {.size_bytes = sizeof without};
        pleat_cache *cache = NULL;
        check_context("%s", e->spec);
        if (!CHECK_STATUS(pleat_cache_create(&opt, &cache, NULL), PLEAT_OK)) continue;
        CHECK_STATUS(pleat_cache_get_traits(cache, &t), PLEAT_OK);
        CHECK_STATUS(pleat_cache_traits_for(&opt, &without, NULL), PLEAT_OK);
        CHECK_EQ_U64(without.n_pages, 0);
        without.n_pages = t.n_pages;
        CHECK_EQ_MEM(&t, &without, sizeof t);
        CHECK_EQ_U64(t.n_lanes, LAYERS * HEADS);
        CHECK_EQ_U64(t.high_page_tokens, pleat_cache_page_tokens(cache));
        CHECK_EQ_U64(t.low_page_tokens == 0, opt.spec.compressor != PLEAT_COMPRESSOR_NONE);
        CHECK_EQ_U64(pleat_cache_max_kept(cache, 200), e->max_kept);
        t.size_bytes = t.n_pages = t.page_bytes = 0;
        t.high_page_tokens = t.low_page_tokens = t.n_lanes = 0;
        CHECK_EQ_MEM(&t, &e->traits, sizeof t);
        pleat_cache_destroy(&cache);
    }
}

/* One step of n tokens, all alike. */
static void feed(pleat_cache *cache, pleat_seq seq, uint32_t n) {
    static float kv[MAX_TOKENS * HEADS * HEAD_DIM], out[MAX_TOKENS * HEADS * HEAD_DIM];
    const pleat_cache_item item = {.seq = seq, .n_tokens = n};
    check_fill_normal(kv, (size_t)n * HEADS * HEAD_DIM);
    if (!CHECK_STATUS(pleat_cache_begin(cache, &item, 1), PLEAT_OK)) return;
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        CHECK_STATUS(pleat_cache_attend(cache, layer, kv, kv, kv, out), PLEAT_OK);
    CHECK_STATUS(pleat_cache_end(cache), PLEAT_OK);
}

static void test_counts_agree_with_usage(void) {
    for (size_t i = 0; i < CHECK_COUNT(expectations); i++) {
        const expectation *e = &expectations[i];
        const pleat_cache_options opt = options_of(e->spec, e->windows);
        pleat_cache *cache = NULL;
        pleat_seq seq;
        check_context("%s", e->spec);
        if (!CHECK_STATUS(pleat_cache_create(&opt, &cache, NULL), PLEAT_OK)) continue;
        CHECK_EQ_U64(pleat_cache_n_open(cache), 0);
        CHECK_STATUS(pleat_cache_open(cache, MAX_TOKENS, &seq), PLEAT_OK);
        CHECK_EQ_U64(pleat_cache_n_open(cache), 1);
        feed(cache, seq, 200);
        for (int n = 0; n < 5; n++) feed(cache, seq, 1);
        pleat_cache_usage u;
        pleat_cache_sides s;
        pleat_cache_times times;
        CHECK_STATUS(pleat_cache_get_usage(cache, seq, &u), PLEAT_OK);
        CHECK_STATUS(pleat_cache_get_sides(cache, seq, &s), PLEAT_OK);
        pleat_cache_get_times(cache, &times);
        CHECK_EQ_U64(pleat_cache_pages_held(cache, seq), u.pages_used);
        CHECK_EQ_U64(pleat_cache_pages_held(cache, (pleat_seq){0}), u.pages_used);
        CHECK_EQ_U64(s.high_pages + s.low_pages, u.pages_used);
        CHECK(s.live_slots <= s.held_slots);
        if (opt.spec.compressor == PLEAT_COMPRESSOR_NONE) {
            CHECK_EQ_U64(s.live_slots, u.tokens_high + u.tokens_low);
            CHECK_EQ_U64(s.held_slots, u.slots);
        }
        CHECK_EQ_U64(times.tokens_moved, u.tokens_moved);
        CHECK_EQ_U64(times.pages_returned, u.pages_returned);
        pleat_cache_destroy(&cache);
    }
}

static void test_what_is_refused(void) {
    const pleat_cache_options opt = options_of("f16", NULL);
    pleat_cache_options bad = opt;
    pleat_cache *cache = NULL;
    pleat_cache_traits t = {.size_bytes = sizeof t - 1}, whole = {.size_bytes = sizeof whole};
    pleat_cache_sides sides;
    bad.head_dim = 7;
    if (!CHECK_STATUS(pleat_cache_create(&opt, &cache, NULL), PLEAT_OK)) return;
    CHECK_STATUS(pleat_cache_get_traits(cache, &t), PLEAT_E_ARG);
    CHECK_STATUS(pleat_cache_get_traits(cache, NULL), PLEAT_E_ARG);
    CHECK_STATUS(pleat_cache_get_traits(NULL, &whole), PLEAT_E_ARG);
    CHECK_STATUS(pleat_cache_traits_for(&opt, &t, NULL), PLEAT_E_ARG);
    CHECK_STATUS(pleat_cache_traits_for(&bad, &whole, NULL), PLEAT_E_ARG);
    CHECK_STATUS(pleat_cache_get_sides(cache, (pleat_seq){0}, &sides), PLEAT_E_ARG);
    CHECK_EQ_U64(pleat_cache_pages_held(cache, (pleat_seq){77}), 0);
    CHECK_EQ_U64(pleat_cache_pages_held(NULL, (pleat_seq){0}), 0);
    CHECK_EQ_U64(pleat_cache_max_kept(NULL, 1), 0);
    CHECK_EQ_U64(pleat_cache_n_open(NULL), 0);
    pleat_cache_destroy(&cache);
}

static void test_specs_say_what_they_are(void) {
    for (size_t i = 0; i < CHECK_COUNT(expectations); i++) {
        const pleat_spec spec = options_of(expectations[i].spec, NULL).spec;
        const int has_budget = strstr(expectations[i].spec, "budget") != NULL;
        const int is_plain = strchr(expectations[i].spec, ':') == NULL;
        check_context("%s", expectations[i].spec);
        CHECK_EQ_I64(pleat_policy_evicts(spec.policy), has_budget);
        CHECK_EQ_I64(pleat_spec_is_exact(&spec), is_plain);
    }
    CHECK_EQ_I64(pleat_policy_evicts((pleat_policy)99), 0);
    CHECK_EQ_I64(pleat_spec_is_exact(NULL), 0);
}

static const check_test tests[] = {
    {"each_kind_has_its_traits", test_each_kind_has_its_traits},
    {"counts_agree_with_usage", test_counts_agree_with_usage},
    {"what_is_refused", test_what_is_refused},
    {"specs_say_what_they_are", test_specs_say_what_they_are},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
