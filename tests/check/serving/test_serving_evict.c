/* SPDX-License-Identifier: MIT
 * ctest-labels: slow
 *
 * test_serving_evict.c: serving under eviction policies and strategies of reclamation, with the reference model.
 *
 *     the same tokens      alone, in company, preempted by swap and by being computed again, from kept prefixes,
 *                          forked, by hand
 *     budgets              what lanes hold while prompts of 1900 tokens are read and after, by every policy, with
 *                          prefixes kept every 512; and the same tokens in every way of these too
 *     no preemption        reuse and copy in a pool that is far too small for all: nobody is preempted, and what is
 *                          promised to those who run stays within the low watermark at every step
 *     long prompts         with prefixes kept a prompt never stands in its pages whole: it is taken into a pool that it
 *                          would not fit, and holds what was counted for it at every step
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
    "novel:budget=48,window=16,format=f16",
    "novel:budget=48,window=16,mean=model",
    "novel:budget=40%,window=16,reclaim=block",
    "novel:budget=48,window=16+merge",
    "random:budget=48,window=8,reclaim=copy",
    "recent:budget=64,reclaim=block",
    "h2o:budget=64,window=16,format=f16,reclaim=none",
    "h2o:budget=64,window=16,reclaim=copy+kvcrush:share=40%",
    "pyramidkv:budget=64,window=16,reclaim=copy",
    "adakv:budget=64,window=16,reclaim=copy",
    "adakv:budget=64,window=16",
    "snapkv:budget=64,window=16,reclaim=block",
    "snapkv:budget=64,window=16,reclaim=copy+merge",
    "h2o:budget=64,window=16+merge",
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
        outcome alone[MAX_REQUESTS];
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

/* ---- budgets ------------------------------------------------------------------------------------------------- */

enum { LONG = 1900, LONG_MAX = 2048, LONG_CHUNK = 512, LONG_PAGE = 32, SHARED = 1100, N_LONG = 3, LONG_ANSWER = 24 };

static const char *const budget_policies[] = {"h2o",    "streaming", "random", "recent",
                                              "snapkv", "pyramidkv", "adakv",  "novel"};

static pleat_engine_options long_options(const char *policy, uint32_t budget) {
    char spec[64];
    snprintf(spec, sizeof spec, "%s:budget=%u", policy, budget);
    check_context("%s", spec);
    pleat_engine_options o = engine_options(spec);
    o.max_tokens = LONG_MAX;
    o.chunk_tokens = LONG_CHUNK;
    o.step_tokens = LONG_CHUNK + MAX_ITEMS;
    o.page_tokens = LONG_PAGE;
    return o;
}

static pleat_serving_options long_serving_options(void) {
    pleat_serving_options so = serving_options();
    so.prefix_tokens = LONG_CHUNK;
    so.preemption = PLEAT_PREEMPT_SWAP;
    return so;
}

/* Tokens that a lane holds, counted one by one. */
static uint32_t count_held(const pleat_cache *cache, pleat_seq seq, uint32_t layer, uint32_t head) {
    static pleat_cache_token tokens[LONG_MAX];
    const uint32_t n = pleat_cache_length(cache, seq);
    uint32_t n_held = 0;
    CHECK_STATUS(pleat_cache_tokens(cache, seq, layer, head, 0, n, tokens), PLEAT_OK);
    for (uint32_t i = 0; i < n; i++) n_held += tokens[i].level != PLEAT_LEVEL_DROPPED;
    return n_held;
}

static bool evicts_in_generation(const pleat_spec *spec) {
    return spec->policy <= PLEAT_POLICY_H2O || spec->policy == PLEAT_POLICY_NOVEL;
}

/* A lane holds its budget and what it may grow by: where the policy moves budget between lanes, all of them together
 * do.  Its pages hold that, the window and a page more at most. */
static void check_budget(const rig *r, pleat_seq seq, const pleat_spec *spec, uint32_t n_prompt) {
    const pleat_cache *cache = pleat_engine_cache(r->engine);
    const uint32_t n = pleat_cache_length(cache, seq), budget = (uint32_t)spec->budget.value;
    const uint32_t grown = !evicts_in_generation(spec) && n > n_prompt ? n - n_prompt : 0;
    const bool moves = spec->policy == PLEAT_POLICY_PYRAMIDKV || spec->policy == PLEAT_POLICY_ADAKV;
    pleat_model_info info;
    pleat_model_get_info(model, &info);
    uint64_t n_all = 0, n_lanes = (uint64_t)info.n_layers * info.n_kv_heads;
    for (uint32_t lane = 0; lane < n_lanes; lane++) {
        const uint32_t n_held = count_held(cache, seq, lane / info.n_kv_heads, lane % info.n_kv_heads);
        CHECK(moves || n_held <= budget + grown);
        n_all += n_held;
    }
    pleat_cache_sides sides;
    CHECK_STATUS(pleat_cache_get_sides(cache, seq, &sides), PLEAT_OK);
    CHECK(n_all > 0 && n_all <= n_lanes * (budget + grown));
    CHECK_EQ_U64(sides.live_slots, n_all);
    CHECK(sides.held_slots <= n_lanes * (budget + spec->window + LONG_PAGE));
}

/* What cannot be had back while they run is what they hold themselves: no prefix is kept for them that nobody shares. */
static void check_live_pages(const pleat_serving *s, const pleat_spec *spec) {
    const uint32_t window = spec->window, budget = (uint32_t)spec->budget.value;
    const uint64_t most = pleat__div_up_u32(budget + window, LONG_PAGE) + 1;
    pleat_serving_stats stats;
    pleat_serving_get_stats(s, &stats);
    for (uint32_t i = 0; i < s->n_running; i++) {
        const pleat__request *r = s->running[i];
        if (PLEAT__RUNNING(r)->n_stored <= r->n_prompt) return; /* it may have begun from one in this step */
    }
    CHECK(stats.pages_used - stats.pages_evictable <= s->n_running * s->backend.shape.n_lanes * most);
}

/* Serve to the end, preempting somebody now and then; all who run and all kept prefixes keep to the budget at every
 * step. */
static void run_in_budget(rig *r, const set *all, const pleat_spec *spec, outcome *out, bool preempts) {
    for (uint32_t i = 0; i < all->n; i++) submit(r->serving, &all->q[i], &out[i]);
    const pleat_serving *s = r->serving;
    while (check_failures() == 0) {
        const pleat_status status = pleat_serving_step(r->serving, NULL);
        take_events(r->serving);
        if (status == PLEAT_AGAIN) break;
        CHECK_STATUS(status, PLEAT_OK);
        check_live_pages(s, spec);
        for (uint32_t i = 0; i < s->n_running; i++) {
            const pleat__running_part *run = PLEAT__RUNNING(s->running[i]);
            if (run->n_stored > 0) check_budget(r, run->seq, spec, s->running[i]->n_prompt);
        }
        for (uint32_t i = 1; i <= s->opt.max_prefixes; i++)
            if (s->prefixes.kept[i].seq.v) check_budget(r, s->prefixes.kept[i].seq, spec, LONG_MAX);
        if (preempts) maybe_preempt(r->serving);
    }
    for (uint32_t i = 0; i < all->n; i++) CHECK(out[i].finish == PLEAT_FINISH_LENGTH);
}

/* Each alone, and then together, preempted, and once more from what these have kept: the same tokens. */
static void check_budgets(const char *policy, uint32_t budget, const set *all) {
    const pleat_engine_options eo = long_options(policy, budget);
    const pleat_serving_options so = long_serving_options();
    outcome alone[N_LONG], out[N_LONG];
    rig r;
    if (rig_make(&r, &eo, &so, 0)) {
        for (uint32_t i = 0; i < all->n; i++) {
            const set one = {.n = 1, .q = {all->q[i]}};
            run_in_budget(&r, &one, &eo.spec, &alone[i], false);
            pleat_serving_forget_prefixes(r.serving);
        }
        for (int twice = 0; twice < 2; twice++) {
            run_in_budget(&r, all, &eo.spec, out, true);
            check_same(out, alone, all->n);
        }
        pleat_serving_stats s;
        pleat_serving_get_stats(r.serving, &s);
        CHECK(s.hits > N_LONG && s.n_prefixes > 0 && s.preempted_swap > 0);
    }
    rig_free(&r);
}

/* Together alone. */
static void check_budget_once(const char *policy, uint32_t budget, const set *all) {
    const pleat_engine_options eo = long_options(policy, budget);
    const pleat_serving_options so = long_serving_options();
    outcome out[N_LONG];
    rig r;
    if (rig_make(&r, &eo, &so, 0)) {
        run_in_budget(&r, all, &eo.spec, out, true);
        pleat_serving_stats s;
        pleat_serving_get_stats(r.serving, &s);
        CHECK(s.n_prefixes > 0 && s.preempted_swap > 0);
    }
    rig_free(&r);
}

static void test_budgets_hold(void) {
    static pleat_token prompts[N_LONG][LONG];
    static const uint32_t turns[] = {700, 1300};
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    set all = {.n = N_LONG};
    for (uint32_t i = 0; i < N_LONG; i++) { /* two begin alike, one names where its turns end */
        memcpy(prompts[i], text, sizeof prompts[i]);
        if (i > 0) memcpy(prompts[i] + (i == 1 ? SHARED : 0), text + 500 * i, (LONG - SHARED) * sizeof **prompts);
        all.q[i] = request_of(prompts[i], LONG, LONG_ANSWER);
    }
    all.q[2].breakpoints = turns;
    all.q[2].n_breakpoints = CHECK_COUNT(turns);
    const size_t n = check_rounds(CHECK_COUNT(budget_policies), 2);
    for (size_t i = 0; i < n && check_failures() == 0; i++) {
        check_budgets(budget_policies[i], 128, &all);
        check_budget_once(budget_policies[i], 256, &all);
    }
}

/* ---- no preemption ----------------------------------------------------------------------------------------------- */

/* Nobody holds more than is known of it, and what the next step takes fits below low_pages, but for one who is alone. */
static void check_promises(const pleat_serving *s, uint64_t low_pages) {
    const pleat__backend_shape *shape = &s->backend.shape;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->n_running; i++) {
        const pleat__request *r = s->running[i];
        const pleat__running_part *run = PLEAT__RUNNING(r);
        const bool reads = run->n_stored < r->n_prompt;
        const uint64_t most = reads ? pleat__backend_prompt_pages(shape, &r->extent)
                                    : pleat__backend_grown_pages(shape, &r->extent, run->n_stored + 1);
        CHECK(run->own_pages + run->step_pages <= most);
        sum += run->own_pages + run->step_pages;
    }
    CHECK(sum <= (s->n_running > 1 || low_pages == UINT64_MAX ? low_pages : shape->n_pages));
}

/* n requests of all lengths at once. */
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
        check_promises(r.serving, prefix_tokens == 0 ? low_pages : UINT64_MAX);
    }
    pleat_serving_stats s;
    pleat_serving_get_stats(r.serving, &s);
    CHECK_EQ_U64(s.preempted_swap + s.preempted_recompute, 0);
    CHECK_EQ_U64(s.replayed_tokens + s.n_idle_steps, 0);
    CHECK(s.peak_running > 1 && n_short > s.n_steps / 4); /* pages are what is short */
    for (int i = 0; i <= 100; i++) n_counted += s.fragmentation[i];
    CHECK_EQ_U64(n_counted, n_seen);
    for (uint32_t i = 0; i < N; i++) CHECK(out[i].finish == PLEAT_FINISH_LENGTH && out[i].stats.n_stalled <= 2);
    rig_free(&r);
}

static void test_no_preemption(void) {
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    const size_t n = check_rounds(CHECK_COUNT(evict_specs), N_EVERY_WAY);
    for (size_t i = 0; i < n && check_failures() == 0; i++) {
        pleat_spec spec;
        CHECK_STATUS(pleat_spec_parse(evict_specs[i], &spec, NULL), PLEAT_OK);
        const bool evicts = evicts_in_generation(&spec);
        if (!evicts || (spec.reclaim != PLEAT_RECLAIM_REUSE && spec.reclaim != PLEAT_RECLAIM_COPY)) continue;
        /* The longest prompt, and two that generate. */
        const uint32_t n_kept = (uint32_t)spec.budget.value / 16 + 1;
        const uint32_t n_pages = spec.reclaim == PLEAT_RECLAIM_REUSE ? 14 + 2 * n_kept : 20 + 5 * n_kept;
        crowd(evict_specs[i], n_pages, 0);
        crowd(evict_specs[i], n_pages, PREFIX);
    }
}

/* ---- long prompts -------------------------------------------------------------------------------------------------- */

enum { LONG_STOP = 512, N_LONG_PAGES = 26 };

/* Slots of a lane that a prompt of LONG tokens takes at most, worked out for multiples of LONG_STOP: what stays of one part
 * and its hole, and the next. */
static uint32_t read_slots(uint32_t n_kept) { return n_kept + 1 + LONG_STOP; }

/* Two prompts of 60 pages a lane, in a pool of 26. */
static void check_long(const char *policy, uint32_t budget, bool is_in_generation) {
    const pleat_engine_options eo = long_options(policy, budget);
    pleat_serving_options so = serving_options();
    so.prefix_tokens = LONG_STOP;
    so.preemption = PLEAT_PREEMPT_RECOMPUTE;
    outcome out[2];
    rig r;
    if (!rig_make(&r, &eo, &so, (uint64_t)N_LONG_PAGES * 32)) return;
    for (uint32_t i = 0; i < 2; i++) {
        const pleat_request q = request_of(text + 100 * i, LONG, LONG_ANSWER);
        submit(r.serving, &q, &out[i]);
    }
    const pleat__backend_shape *shape = &r.serving->backend.shape;
    uint64_t most_seen = 0;
    while (check_failures() == 0 && pleat_serving_step(r.serving, NULL) == PLEAT_OK) {
        take_events(r.serving);
        for (uint32_t i = 0; i < r.serving->n_running; i++) {
            const pleat__request *q = r.serving->running[i];
            const pleat__running_part *run = PLEAT__RUNNING(q);
            CHECK_EQ_U64(q->extent.n_read, read_slots(budget));
            if (run->n_stored >= q->n_prompt) continue;
            CHECK(run->own_pages + run->step_pages <= pleat__backend_prompt_pages(shape, &q->extent));
            if (most_seen < run->own_pages + run->step_pages) most_seen = run->own_pages + run->step_pages;
        }
    }
    CHECK(most_seen + 2 * shape->n_lanes >= shape->n_lanes * pleat__div_up_u32(read_slots(budget), LONG_PAGE));
    pleat_serving_stats s;
    pleat_serving_get_stats(r.serving, &s);
    CHECK(!is_in_generation || s.preempted_swap + s.preempted_recompute == 0);
    for (uint32_t i = 0; i < 2; i++) CHECK(out[i].finish == PLEAT_FINISH_LENGTH);
    rig_free(&r);
}

static void test_long_prompts(void) {
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    check_long("h2o", 128, true);
    check_long("streaming", 200, true);
    check_long("snapkv", 128, false);
}

/* Named breakpoints, also of parts of one token; without prefixes, or with dead slots in the row, all of the prompt. */
static void test_read_slots(void) {
    static const uint32_t stops[] = {510, 511};
    static const struct {
        const char *spec;
        uint32_t prefix_tokens, n_stops, n_read;
    } cases[] = {
        {"h2o:budget=128", 512, 0, 129 + 512},
        {"h2o:budget=128", 0, 0, LONG},
        {"h2o:budget=128", 0, 2, LONG},
        {"h2o:budget=80", 512, 2, 81 + 512},
        {"snapkv:budget=80", 512, 2, 81 + 1 + 1 + 512}, /* nothing goes where a single token has come */
        {"h2o:budget=80", 1024, 2, 81 + LONG - 1024},
        {"h2o:budget=1500", 512, 0, 1501 + LONG - 1536},
        {"h2o:budget=50%", 1024, 0, 513 + LONG - 1024},
        {"h2o:budget=128,reclaim=none", 512, 0, LONG},
        {"f16", 512, 0, LONG},
    };
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    for (size_t i = 0; i < CHECK_COUNT(cases); i++) {
        pleat_engine_options eo = long_options("h2o", 128);
        pleat_serving_options so = serving_options();
        outcome out;
        rig r;
        CHECK_STATUS(pleat_spec_parse(cases[i].spec, &eo.spec, NULL), PLEAT_OK);
        so.prefix_tokens = cases[i].prefix_tokens;
        check_context("%s, prefixes of %u", cases[i].spec, so.prefix_tokens);
        if (!rig_make(&r, &eo, &so, 0)) continue;
        pleat_request q = request_of(text, LONG, LONG_ANSWER);
        q.breakpoints = stops;
        q.n_breakpoints = cases[i].n_stops;
        submit(r.serving, &q, &out);
        for (uint32_t id = 0; id <= r.serving->opt.max_requests; id++)
            if (r.serving->requests[id]) CHECK_EQ_U64(r.serving->requests[id]->extent.n_read, cases[i].n_read);
        rig_free(&r);
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
    {"same_tokens", test_same_tokens},   {"as_by_hand", test_as_by_hand},       {"forks", test_forks},
    {"budgets_hold", test_budgets_hold}, {"no_preemption", test_no_preemption}, {"long_prompts", test_long_prompts},
    {"read_slots", test_read_slots},     {"fragmentation", test_fragmentation},
};

int main(int argc, char **argv) {
    const int rc = check_main(tests, CHECK_COUNT(tests), argc, argv);
    pleat_model_destroy(&model);
    return rc;
}
