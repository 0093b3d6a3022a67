/* SPDX-License-Identifier: MIT
 * ctest-labels: slow
 *
 * test_serving_evict.c: serving under eviction policies and strategies of reclamation, with the reference model.
 *
 *     the same tokens      alone, in company, preempted by swap and by being computed again, from kept prefixes,
 *                          forked, by hand
 *     no preemption        reuse and copy in a pool that is far too small for all: nobody gives way, and what is
 *                          promised to those who run stays within the low watermark at every step
 *     fragmentation        the histogram of a single request whose slots can be counted by hand
 */
#include "serving_ways.h"

static const char *const evict_specs[] = {
    "h2o:budget=64,window=16,format=f16",
    "h2o:budget=64,window=16,reclaim=copy",
    "streaming:budget=48",
    "snapkv:budget=64,window=16,format=f16,reclaim=copy",
    "h2o:budget=40%,window=16,reclaim=block",
    "h2o:budget=64,window=16+kvcrush:share=25%",
    "streaming:budget=64,format=f16,reclaim=none",
    "snapkv:budget=50%,window=16",
    "random:budget=48,window=8,reclaim=copy",
    "recent:budget=64,reclaim=block",
    "h2o:budget=64,window=16,format=f16,reclaim=none",
    "h2o:budget=64,window=16,reclaim=copy+kvcrush:share=40%",
    "pyramidkv:budget=64,window=16,reclaim=copy",
    "adakv:budget=64,window=16,reclaim=copy",
    "adakv:budget=64,window=16",
    "snapkv:budget=64,window=16,reclaim=block",
    "snapkv:budget=64,window=16,reclaim=none+kvcrush:share=25%",
};
enum { N_EVERY_WAY = 3 }; /* the first are served in every way, the others in some */

/* Prompts beyond the budgets, and answers of some length. */
static set long_requests(void) {
    set all = {.n = 4};
    for (uint32_t i = 0; i < all.n; i++) all.q[i] = request_of(text + 250 * i, 120 + i, 60);
    return all;
}

static void test_same_tokens(void) {
    enum { LANES = 32, FEW = 28 * LANES }; /* two requests fit, with what copying takes, and four do not */
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    const set all = some_requests(), growing = long_requests();
    const size_t n_specs = check_rounds(CHECK_COUNT(evict_specs), N_EVERY_WAY);
    for (size_t i = 0; i < n_specs && check_failures() == 0; i++) {
        const char *spec = evict_specs[i];
        outcome alone[MOST_REQUESTS];
        check_context("%s, alone", spec);
        run_alone(spec, &all, alone);
        const size_t first = i < N_EVERY_WAY ? 0 : 4;
        for (size_t j = first; j < CHECK_COUNT(ways); j++)
            if (!ways[j].is_short) check_way(spec, &all, alone, &ways[j], 0);
        run_alone(spec, &growing, alone);
        for (size_t j = first; j < CHECK_COUNT(ways); j++)
            if (ways[j].is_short) check_way(spec, &growing, alone, &ways[j], FEW);
    }
}

static void test_as_by_hand(void) {
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    for (size_t i = 0; i < check_rounds(CHECK_COUNT(evict_specs), N_EVERY_WAY) && check_failures() == 0; i++) {
        check_as_by_hand(evict_specs[i]);
    }
}

static void test_forks(void) {
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    for (size_t i = 0; i < check_rounds(CHECK_COUNT(evict_specs), N_EVERY_WAY) && check_failures() == 0; i++)
        check_forks(evict_specs[i]);
}

/* ---- no preemption ----------------------------------------------------------------------------------------------- */

/* Nobody holds more than is known of it, and what the next step takes fits below the low watermark, but for one who is
 * alone. */
static void check_promises(const pleat_serving *s, uint64_t low_pages) {
    const pleat__backend_shape *shape = &s->backend.shape;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->n_running; i++) {
        const pleat__served *r = s->running[i];
        const bool reads = r->n_stored < r->n_prompt;
        const uint64_t most = reads ? pleat__backend_prompt_pages(shape, &r->extent)
                                    : pleat__backend_grown_pages(shape, &r->extent, r->n_stored + 1);
        CHECK(r->own_pages + r->step_pages <= most);
        sum += r->own_pages + r->step_pages;
    }
    CHECK(sum <= (s->n_running > 1 ? low_pages : shape->n_pages));
}

/* n requests of all lengths at once.  Breakpoints and prefixes make seals, which hold more than budgets allow. */
static void crowd(const char *spec, uint32_t n_pages_a_lane, uint32_t prefix_tokens) {
    enum { N = 16, LANES = 32 };
    static outcome out[N];
    rig r;
    const pleat_engine_options eo = engine_options(spec);
    pleat_serving_options so = serving_options();
    so.preemption = PLEAT_PREEMPT_RECOMPUTE;
    so.prefix_tokens = prefix_tokens;
    check_context("%s, prefixes at %u", spec, prefix_tokens);
    if (!rig_make(&r, &eo, &so, (uint64_t)n_pages_a_lane * LANES)) return;
    for (uint32_t i = 0; i < N; i++) {
        pleat_request q = request_of(text + 70 * i, 10 + 37 * i % 200, 20 + 53 * i % 100);
        if (i % 3 == 0 && q.n_prompt > 50) q.breakpoint = 50;
        submit(r.serving, &q, &out[i]);
    }
    const uint64_t low_pages = (uint64_t)(so.low_watermark * (double)r.serving->backend.shape.n_pages);
    uint64_t n_seen = 0, n_counted = 0, n_short = 0;
    while (check_failures() == 0 && pleat_serving_step(r.serving, NULL) == PLEAT_OK) {
        take_events(r.serving);
        n_seen += r.serving->n_running;
        n_short += pleat__sched_n_waiting(r.serving->sched) > 0 && r.serving->n_running < MAX_ITEMS - 1;
        if (prefix_tokens == 0) check_promises(r.serving, low_pages);
    }
    pleat_serving_stats s;
    pleat_serving_get_stats(r.serving, &s);
    CHECK_EQ_U64(s.preempted_swap + s.preempted_recompute, 0);
    CHECK_EQ_U64(s.replayed_tokens + s.n_idle_steps, 0);
    CHECK(s.n_running_most > 1 && n_short > s.n_steps / 4); /* pages are what is short */
    for (int i = 0; i <= 100; i++) n_counted += s.fragmentation[i];
    CHECK_EQ_U64(n_counted, n_seen);
    for (uint32_t i = 0; i < N; i++) CHECK(out[i].finish == PLEAT_FINISH_LENGTH && out[i].stats.n_stalled <= 2);
    rig_free(&r);
}

static void test_no_preemption(void) {
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    for (size_t i = 0; i < CHECK_COUNT(evict_specs) && check_failures() == 0; i++) {
        pleat_spec spec;
        CHECK_STATUS(pleat_spec_parse(evict_specs[i], &spec, NULL), PLEAT_OK);
        const bool evicts = spec.policy <= PLEAT_POLICY_H2O; /* in generation */
        if (!evicts || (spec.reclaim != PLEAT_RECLAIM_REUSE && spec.reclaim != PLEAT_RECLAIM_COPY)) continue;
        /* The longest prompt, and two that generate. */
        const uint32_t n_kept = (uint32_t)spec.budget.value / 16 + 1;
        const uint32_t n_pages = spec.reclaim == PLEAT_RECLAIM_REUSE ? 14 + 2 * n_kept : 20 + 5 * n_kept;
        crowd(evict_specs[i], n_pages, 0);
        crowd(evict_specs[i], n_pages, PREFIX);
    }
}

/* ---- fragmentation ----------------------------------------------------------------------------------------------- */

enum { N_PROMPT = 61, N_PREDICT = 100, BUDGET = 32, SINKS = 4, PAGE = 16 };

/* Slots that a lane holds with n tokens, of which it keeps the first 4 and the newest 28, in pages of 16.  With reuse
 * it is a page more while it has a hole. */
static uint32_t slots_held(pleat_reclaim reclaim, uint32_t n) {
    uint32_t n_pages = 0;
    if (reclaim == PLEAT_RECLAIM_NONE) return (n + PAGE - 1) / PAGE * PAGE;
    if (reclaim == PLEAT_RECLAIM_COPY || reclaim == PLEAT_RECLAIM_REUSE) return BUDGET;
    for (uint32_t first = 0; first < n; first += PAGE) n_pages += first < SINKS || first + PAGE > n - BUDGET + SINKS;
    return n_pages * PAGE;
}

/* Serve a request to its end.  expected: how often each percentage of empty slots is to be met. */
static void step_through(pleat_serving *serving, pleat_reclaim reclaim, uint64_t expected[101]) {
    outcome out;
    const pleat_request q = request_of(text, N_PROMPT, N_PREDICT);
    submit(serving, &q, &out);
    for (uint32_t n = CHUNK; n < N_PROMPT + N_PREDICT && check_failures() == 0; n = n < N_PROMPT ? N_PROMPT : n + 1) {
        CHECK_STATUS(pleat_serving_step(serving, NULL), PLEAT_OK);
        take_events(serving);
        if (n == N_PROMPT + N_PREDICT - 1) break; /* it has left with its last token, which is not stored */
        const uint32_t n_held = n < N_PROMPT ? CHUNK : slots_held(reclaim, n);
        expected[100 * (n_held - BUDGET) / n_held]++;
    }
    CHECK_EQ_U64(out.n_tokens, N_PREDICT);
}

static void check_fragmentation(const char *how) {
    rig r;
    char spec[80];
    snprintf(spec, sizeof spec, "streaming:budget=%u,sinks=4,reclaim=%s", BUDGET, how);
    check_context("%s", spec);
    const pleat_engine_options eo = engine_options(spec);
    pleat_serving_options so = serving_options();
    so.prefix_tokens = 0;
    if (!rig_make(&r, &eo, &so, 0)) return;
    const pleat_reclaim reclaim = eo.spec.reclaim;
    uint64_t expected[101] = {0};
    step_through(r.serving, reclaim, expected);
    pleat_serving_stats s;
    pleat_serving_get_stats(r.serving, &s);
    if (reclaim == PLEAT_RECLAIM_REUSE) {
        CHECK(s.fragmentation[33] > N_PREDICT * 8 / 10 && s.fragmentation[33] < expected[0]);
        s.fragmentation[0] += s.fragmentation[33];
        s.fragmentation[33] = 0;
    }
    CHECK_EQ_MEM(s.fragmentation, expected, sizeof expected);
    CHECK_EQ_U64(s.tokens_moved > 0, reclaim == PLEAT_RECLAIM_COPY || reclaim == PLEAT_RECLAIM_REUSE);
    CHECK_EQ_U64(s.pages_returned > 0, reclaim != PLEAT_RECLAIM_NONE);
    rig_free(&r);
}

static void test_fragmentation(void) {
    static const char *const hows[] = {"reuse", "copy", "block", "none"};
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    for (size_t i = 0; i < CHECK_COUNT(hows); i++) check_fragmentation(hows[i]);
}

static const check_test tests[] = {
    {"same_tokens", test_same_tokens},     {"as_by_hand", test_as_by_hand},       {"forks", test_forks},
    {"no_preemption", test_no_preemption}, {"fragmentation", test_fragmentation},
};

int main(int argc, char **argv) {
    const int rc = check_main(tests, CHECK_COUNT(tests), argc, argv);
    pleat_model_destroy(&model);
    return rc;
}
