/* SPDX-License-Identifier: MIT
 *
 * test_forecast.c: what a forecast says of a sequence, step by step, beside a cache that does it.
 *
 * Whole lanes, windows and equal budgets are said to the page, in a step and after it.  A hole that a forecast counts may
 * be a slot that the lane's last token has left (reclaim.h): then it says a page too many, never one too few.  What
 * depends on the text is near: a page a lane, and a share.
 */
#include "cache_rig.h"
#include "core/types.h"
#include "pleat/forecast.h"

enum { LAYERS = 2, HEADS = 4, GROUP = 2, D = 32, CAP = 400, ROW = HEADS * GROUP * D, KV_ROW = HEADS * D };
enum { LANES = LAYERS * HEADS, COURSES = 6 };

static const uint32_t one_window[LAYERS] = {48, 0}, all_windows[LAYERS] = {48, 48}, two_windows[LAYERS] = {16, 48};

typedef struct trial {
    const char *spec;
    uint32_t page_tokens; /* 0: the cache's choice */
    const uint32_t *windows;
    bool is_near;
} trial;

static const trial trials[] = {
    {"f16", 16, NULL, false},
    {"k8v4", 0, NULL, false},
    {"f16", 16, one_window, false},
    {"k4v2", 32, all_windows, false},
    {"h2o:budget=60,window=16,sinks=2", 16, NULL, false},
    {"h2o:budget=64,window=16,reclaim=copy", 16, NULL, false},
    {"h2o:budget=64,window=16", 32, NULL, false},
    {"h2o:budget=30%,window=8,format=f16", 16, NULL, false},
    {"h2o:budget=128KiB,window=8", 16, NULL, false},
    {"streaming:budget=37,sinks=3,reclaim=none", 16, NULL, false},
    {"recent:budget=20%,reclaim=copy", 16, NULL, false},
    {"random:budget=40,window=4", 32, NULL, false},
    {"h2o:budget=160KiB,window=16+merge", 16, NULL, false},
    {"snapkv:budget=25%,window=16,reclaim=copy+merge", 16, one_window, false},
    {"snapkv:budget=25%,window=16", 16, NULL, false},
    {"novel:budget=60,window=16", 16, NULL, false},
    {"novel:budget=160KiB,window=8", 16, one_window, false},
    {"novel:budget=60,window=16+merge", 16, NULL, false},
    {"h2o:budget=60,window=16+novel", 16, NULL, false},
    {"leverage:budget=60,window=16", 16, NULL, false},
    {"leverage:budget=60,window=16,fall=50%", 16, NULL, true},
    {"expected:budget=60,window=16", 16, NULL, false},
    {"dropkv:budget=60,window=16", 16, NULL, false},
    {"expected:budget=320KiB,window=8", 16, one_window, false},
    {"snapkv:budget=70,window=16,reclaim=copy", 32, NULL, false},
    {"snapkv:budget=70,window=16,reclaim=none", 16, NULL, false},
    {"pyramidkv:budget=64,window=8", 16, NULL, true},
    {"adakv:budget=50,window=12", 16, NULL, true},
    {"leankv:ah=1.5,al=0.6,window=16", 16, NULL, true},
    {"leankv:ah=1.2,al=0.5,window=9,low=k8v4,step=code", 32, NULL, true},
    {"leankv:ah=3,al=0,window=3,low=k2v2", 0, NULL, true},
    {"leankv:ah=3,al=0,window=3,low=h3v2", 0, NULL, true},
    {"leankv:ah=1,al=1,window=20", 16, NULL, true},
    {"leankv:ah=1.5,al=0.6,window=16,every=8", 16, NULL, true},
    {"leankv:ah=3,al=0,window=3,low=k2v2,every=4", 0, NULL, true},
    {"topk:keep=30%,window=12,format=k8v4", 16, NULL, true},
    {"kvcomp:k=0.1,v=0.2,block=32,buffer=40", 0, NULL, true},
    {"kvcomp:k=0.3,v=0.2,block=64,buffer=30", 32, NULL, true},
    {"kivi:bits=4", 0, NULL, true},
    {"kvcomp:k=0.2,v=0.2,block=32,sinks=0,buffer=40", 16, NULL, true},
    {"kvcomp:k=0.2,v=0.2,block=32,sinks=70,buffer=40", 16, NULL, true},
    {"h2o:budget=60,window=16,sinks=2", 16, one_window, false},
    {"h2o:budget=64,window=16,reclaim=copy", 16, one_window, false},
    {"h2o:budget=192KiB,window=8", 16, one_window, false},
    {"snapkv:budget=70,window=16,reclaim=none", 32, one_window, false},
    {"adakv:budget=50,window=12", 16, one_window, true},
    {"leankv:ah=1.5,al=0.6,window=16", 16, one_window, true},
    {"leankv:ah=3,al=0,window=3,low=k2v2", 0, one_window, true},
    {"topk:keep=30%,window=12,format=k8v4", 16, one_window, true},
    {"kvcomp:k=0.1,v=0.2,block=32,buffer=40", 0, one_window, true},
    {"kivi:bits=4", 0, one_window, true},
};

static pleat_cache_options options_of(const trial *t) {
    const cache_shape shape = {.n_layers = LAYERS,
                               .n_kv_heads = HEADS,
                               .head_dim = D,
                               .group = GROUP,
                               .page_tokens = t->page_tokens,
                               .max_seqs = 2,
                               .max_tokens = CAP,
                               .step_tokens = CAP};
    pleat_cache_options opt = cache_options_of(t->spec, &shape);
    opt.windows = t->windows;
    return opt;
}

/* ---- a cache --------------------------------------------------------------------------------------------- */

/* Numbers of a layer's new tokens: queries lean one way, and one key in eight does too, in half of the heads. */
static void fill_layer(uint32_t n, uint32_t first, float *q, float *k, float *v) {
    for (uint32_t t = 0; t < n; t++) {
        for (uint32_t i = 0; i < ROW; i++) q[t * ROW + i] = check_normal() + (i % 3 == 0 ? 1.0f : -0.5f);
        for (uint32_t i = 0; i < KV_ROW; i++) {
            const bool attracts = (first + t) % 8 == 3 && i / D % 2 == 0;
            k[t * KV_ROW + i] = check_normal() + (attracts ? (i % 3 == 0 ? 0.8f : -0.4f) : 0);
            v[t * KV_ROW + i] = check_normal();
        }
    }
}

static void step(pleat_cache *cache, pleat_seq seq, uint32_t n, uint32_t flags) {
    static float q[CAP * ROW], k[CAP * KV_ROW], v[CAP * KV_ROW];
    const pleat_cache_item item = {.seq = seq, .n_tokens = n, .flags = flags};
    const uint32_t first = pleat_cache_length(cache, seq);
    if (!CHECK_STATUS(pleat_cache_begin(cache, &item, 1), PLEAT_OK)) return;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        fill_layer(n, first, q, k, v);
        CHECK_STATUS(pleat_cache_attend(cache, layer, q, k, v, q), PLEAT_OK);
    }
    CHECK_STATUS(pleat_cache_end(cache), PLEAT_OK);
}

/* Prompts of four lengths, each in two parts. */
static void measure(pleat_cache *cache, pleat_forecast *f) {
    static const uint32_t lengths[PLEAT_FORECAST_SAMPLES] = {90, 170, 260, 390};
    for (uint32_t i = 0; i < PLEAT_FORECAST_SAMPLES; i++) {
        const pleat_seq seq = cache_seq(cache, CAP);
        step(cache, seq, 50, PLEAT_ITEM_MORE);
        step(cache, seq, lengths[i] - 50, 0);
        CHECK_STATUS(pleat_forecast_measure(f, cache, seq), PLEAT_OK);
        CHECK_STATUS(pleat_cache_close(cache, seq), PLEAT_OK);
    }
    CHECK_EQ_U64(f->n_samples > 1, f->wants_samples); /* of the shortest there may be nothing to see */
    CHECK_EQ_U64(f->is_measured, 1);
}

/* ---- both ------------------------------------------------------------------------------------------------ */

/* Pages that a forecast may say beyond a cache's: of lanes whose last slot has died where it counts a hole. */
static uint64_t more_by_hole(const pleat_forecast *f, bool has_hole, uint64_t n_slots) {
    return has_hole && n_slots % f->traits.high_page_tokens == 1 ? LANES : 0;
}

static void check_pages(const trial *t, uint64_t said, uint64_t real, uint64_t more) {
    if (t->is_near)
        CHECK_NEAR((double)said, (double)real, LANES + 0.1 * (double)real);
    else if (!CHECK(said >= real && said - real <= more))
        check_context("%s: %llu pages said, %llu there", t->spec, (unsigned long long)said, (unsigned long long)real);
}

/* A step of both. */
static void check_step(const trial *t, const pleat_forecast *f, pleat_cache *cache, pleat_seq seq,
                       pleat_forecast_seq *q, uint32_t n, uint32_t flags) {
    const pleat_cache_item item = {.seq = seq, .n_tokens = n, .flags = flags};
    const pleat_forecast_seq before = *q;
    const uint64_t in_step = pleat_cache_pages_held(cache, seq) + pleat_cache_pages_needed(cache, &item);
    pleat_cache_sides sides = {0};
    *q = pleat_forecast_step(f, q, n, flags);
    check_context("%s: %u tokens and %u more, flags %u", t->spec, before.n_tokens, n, flags);
    check_pages(t, q->step_pages, in_step, more_by_hole(f, before.has_hole && n > 1, before.n_slots + n));
    step(cache, seq, n, flags);
    CHECK_STATUS(pleat_cache_get_sides(cache, seq, &sides), PLEAT_OK);
    check_pages(t, q->n_pages, pleat_cache_pages_held(cache, seq), more_by_hole(f, q->has_hole, q->n_slots));
    CHECK_EQ_U64(q->n_tokens, pleat_cache_length(cache, seq));
    if (f->block_tokens) CHECK_EQ_U64(q->high_pages, sides.high_pages);
    if (!t->is_near && !f->traits.n_ring_lanes)
        CHECK_EQ_U64((uint64_t)(q->full_pages * f->traits.high_page_tokens + 0.5), sides.live_slots);
}

static uint32_t any_seal(void) {
    const uint32_t i = (uint32_t)check_below(4);
    return i == 0 ? PLEAT_ITEM_SEAL : i == 1 ? PLEAT_ITEM_SEAL_ALL : 0;
}

/* Prompts, in parts or not, sealed or not, of one token too, and some generated tokens behind each.  Where levels depend on
 * the text the first prompt is as long as a sample's: how much of short turns is kept, samples do not say. */
static void check_course(const trial *t, const pleat_forecast *f, pleat_cache *cache) {
    const bool is_level = f->wants_samples && !f->block_tokens;
    const pleat_seq seq = cache_seq(cache, CAP);
    pleat_forecast_seq q = {0};
    while (check_failures() == 0 && q.n_tokens < CAP - 1) {
        const uint32_t least = is_level ? 200 : 1, left = CAP - q.n_tokens;
        if (left < least) break;
        const uint32_t n = least + (uint32_t)check_below(pleat__min_u32(left - least + 1, 120));
        const uint32_t n_more = (uint32_t)check_below(2) * (n / 2);
        if (n_more > 0) check_step(t, f, cache, seq, &q, n_more, PLEAT_ITEM_MORE);
        check_step(t, f, cache, seq, &q, n - n_more, is_level ? 0 : any_seal());
        for (uint32_t i = (uint32_t)check_below(40); i > 0 && q.n_tokens < CAP && check_failures() == 0; i--)
            check_step(t, f, cache, seq, &q, 1, 0);
    }
    CHECK_STATUS(pleat_cache_close(cache, seq), PLEAT_OK);
}

static void test_step_by_step(void) {
    for (size_t i = 0; i < CHECK_COUNT(trials) && check_failures() == 0; i++) {
        const trial *t = &trials[i];
        const pleat_cache_options opt = options_of(t);
        pleat_forecast f;
        pleat_cache *cache = cache_made(&opt);
        check_context("%s", t->spec);
        if (!cache || !CHECK_STATUS(pleat_forecast_for(&opt, &f, NULL), PLEAT_OK)) continue;
        CHECK_EQ_U64(f.is_measured, !f.wants_samples);
        measure(cache, &f);
        for (size_t k = 0; k < check_rounds(COURSES, 1) && check_failures() == 0; k++) check_course(t, &f, cache);
        cache_check_empty(cache);
        pleat_cache_destroy(&cache);
    }
}

/* The state that a sample was taken of is the one that is said. */
static void test_a_sample_is_said_again(void) {
    enum { N = 333 };
    for (size_t i = 0; i < CHECK_COUNT(trials); i++) {
        const trial *t = &trials[i];
        const pleat_cache_options opt = options_of(t);
        pleat_forecast f;
        pleat_cache *cache = cache_made(&opt);
        check_context("%s", t->spec);
        if (!cache || !CHECK_STATUS(pleat_forecast_for(&opt, &f, NULL), PLEAT_OK)) continue;
        const pleat_seq seq = cache_seq(cache, CAP);
        step(cache, seq, N, 0);
        CHECK_STATUS(pleat_forecast_measure(&f, cache, seq), PLEAT_OK);
        pleat_forecast_seq q = {0};
        q = pleat_forecast_step(&f, &q, N, 0);
        pleat_cache_sides sides = {0};
        CHECK_STATUS(pleat_cache_get_sides(cache, seq, &sides), PLEAT_OK);
        if (f.wants_samples) CHECK_NEAR((double)q.high_pages, (double)sides.high_pages, 1);
        if (f.wants_samples) CHECK_NEAR((double)q.n_pages, (double)(sides.high_pages + sides.low_pages), 2);
        CHECK_STATUS(pleat_cache_close(cache, seq), PLEAT_OK);
        pleat_cache_destroy(&cache);
    }
}

static void test_bytes_and_budgets(void) {
    for (size_t i = 0; i < CHECK_COUNT(trials); i++) {
        const pleat_cache_options opt = options_of(&trials[i]);
        pleat_forecast f;
        pleat_cache *cache = cache_made(&opt);
        check_context("%s", trials[i].spec);
        if (!cache || !CHECK_STATUS(pleat_forecast_for(&opt, &f, NULL), PLEAT_OK)) continue;
        const pleat_seq seq = cache_seq(cache, CAP);
        step(cache, seq, 211, 0);
        const uint64_t n_pages = pleat_cache_pages_held(cache, seq);
        const pleat_forecast_seq none = {0}, q = pleat_forecast_step(&f, &none, 211, 0);
        CHECK_EQ_U64(cache_usage(cache, seq).bytes, pleat_forecast_bytes(&f, n_pages) +
                                                        pleat_cache_bytes_for(&opt, 0, CAP) +
                                                        (q.n_classed > 0 ? f.codebooks_bytes : 0));
        for (uint32_t n = 1; n < CAP; n += 37)
            CHECK_EQ_U64(pleat_forecast_max_kept(&f, n), pleat_cache_max_kept(cache, n));
        CHECK_STATUS(pleat_cache_close(cache, seq), PLEAT_OK);
        pleat_cache_destroy(&cache);
    }
}

static void test_what_is_refused(void) {
    const trial block = {"h2o:budget=80,reclaim=block", 16, NULL, false}, rings = {"f16", 16, two_windows, false};
    const trial again = {"kvzip:budget=80", 16, NULL, false};
    const trial lean = {"leankv", 16, NULL, true}, plain = {"f16", 16, NULL, false};
    pleat_cache_options opt = options_of(&block);
    pleat_forecast f = {0}, other;
    pleat_error err = {0};
    CHECK_STATUS(pleat_forecast_for(&opt, &f, &err), PLEAT_E_UNSUPPORTED);
    opt = options_of(&rings);
    CHECK_STATUS(pleat_forecast_for(&opt, &f, &err), PLEAT_E_UNSUPPORTED);
    opt = options_of(&again);
    CHECK_STATUS(pleat_forecast_for(&opt, &f, &err), PLEAT_E_UNSUPPORTED);
    CHECK_STATUS(pleat_forecast_for(NULL, &f, &err), PLEAT_E_ARG);
    CHECK_EQ_U64(f.size_bytes, 0);
    opt = options_of(&lean);
    CHECK_STATUS(pleat_forecast_for(&opt, &f, NULL), PLEAT_OK);
    pleat_cache *cache = cache_made(&opt);
    const pleat_seq seq = cache_seq(cache, CAP);
    step(cache, seq, 150, 0);
    opt = options_of(&plain);
    CHECK_STATUS(pleat_forecast_for(&opt, &other, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_forecast_measure(&other, cache, seq), PLEAT_E_ARG);
    CHECK_STATUS(pleat_forecast_measure(&f, cache, (pleat_seq){77}), PLEAT_E_ARG);
    for (uint32_t i = 0; i < PLEAT_FORECAST_SAMPLES; i++)
        CHECK_STATUS(pleat_forecast_measure(&f, cache, seq), PLEAT_OK);
    CHECK_STATUS(pleat_forecast_measure(&f, cache, seq), PLEAT_E_LIMIT);
    pleat_cache_destroy(&cache);
}

static const check_test tests[] = {
    {"step_by_step", test_step_by_step},
    {"a_sample_is_said_again", test_a_sample_is_said_again},
    {"bytes_and_budgets", test_bytes_and_budgets},
    {"what_is_refused", test_what_is_refused},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
