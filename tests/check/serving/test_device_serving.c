/* SPDX-License-Identifier: MIT
 *
 * test_device_serving.c: serving on a GPU with the reference model.  With fixed splits what comes out is what came out
 * alone there, to the token: in company, swapped, computed again, from prefixes.  Ten times as many as fit; the pool is exact.
 */
#include "serving_ways.h"

static const way device_ways[] = {
    {"together", false, PLEAT_PREEMPT_CHEAPER, false, false},
    {"swapped", false, PLEAT_PREEMPT_SWAP, true, false},
    {"computed again", false, PLEAT_PREEMPT_RECOMPUTE, true, false},
    {"from prefixes", false, PLEAT_PREEMPT_CHEAPER, false, true},
    {"from prefixes, swapped", false, PLEAT_PREEMPT_SWAP, true, true},
    {"from prefixes, computed again", false, PLEAT_PREEMPT_RECOMPUTE, true, true},
    {"short of pages, swapped", true, PLEAT_PREEMPT_SWAP, false, false},
    {"short of pages, computed again", true, PLEAT_PREEMPT_RECOMPUTE, false, false},
};

static bool begin(void) {
    n_devices = 1;
    return load_once();
}

/* With CHECK_LEAST: swapped, from prefixes where there are any. */
static void same_tokens(const char *spec, bool has_prefixes) {
    const size_t first = check_cases(0, has_prefixes ? 4 : 1), each = check_cases(1, CHECK_COUNT(device_ways));
    set all = some_requests(), growing = growing_requests();
    outcome alone[MAX_REQUESTS];
    check_context("%s, alone", spec);
    run_alone(spec, &all, alone);
    for (size_t i = first; i < CHECK_COUNT(device_ways) && check_failures() == 0; i += each)
        if (!device_ways[i].is_short && (has_prefixes || !device_ways[i].twice))
            check_way(spec, &all, alone, &device_ways[i], 0);
    if (check_cases(0, 1)) return;
    run_alone(spec, &growing, alone);
    for (size_t i = first; i < CHECK_COUNT(device_ways) && check_failures() == 0; i += each)
        if (device_ways[i].is_short)
            check_way(spec, &growing, alone, &device_ways[i], a_page_each() * (has_prefixes ? 14 : 16));
}

static void uniform_formats_answer_alike(void) {
    static const char *const some[] = {"k8v4", "f16", "k4v2"};
    CHECK_DEVICE();
    if (!begin()) return;
    for (size_t i = 0; i < check_cases(CHECK_COUNT(some), 1); i++) same_tokens(some[i], true);
}

/* Prompts are read whole, so only those who name breakpoints share. */
static void levels_answer_alike(void) {
    CHECK_DEVICE();
    if (!begin()) return;
    same_tokens("leankv:ah=1,al=0.02,window=32,every=8", false);
    if (check_cases(1, 0)) same_tokens("leankv:ah=1,al=0.02,window=32", false);
}

static void budgets_answer_alike(void) {
    static const char *const some[] = {"random:budget=50%,window=8,format=k8v4,reclaim=copy",
                                       "streaming:budget=48",
                                       "streaming:budget=60,reclaim=block",
                                       "streaming:budget=60,format=k8v8,reclaim=none",
                                       "h2o:budget=60,window=8",
                                       "snapkv:budget=50%,window=16,format=k8v4",
                                       "pyramidkv:budget=60,window=8,reclaim=none",
                                       "novel:budget=50%,window=16",
                                       "novel:mean=model,budget=60,window=16,near=2",
                                       "adakv:budget=50%,window=8"};
    CHECK_DEVICE();
    if (!begin()) return;
    for (size_t i = 0; i < check_cases(CHECK_COUNT(some), 1); i++) same_tokens(some[i], false);
}

/* Blocks have no images there: who is to be swapped is computed again. */
static void blocks_answer_alike(void) {
    CHECK_DEVICE();
    if (!begin()) return;
    same_tokens("kvcomp:buffer=20+pack", false);
    if (check_cases(1, 0)) same_tokens("kvcomp:k=0.13,v=0.15+pack", false);
}

/* A conversation: each turn names where the earlier ones ended. */
static void turns_go_on_from_prefixes(void) {
    static const char *const some[] = {"f16", "k8v4", "leankv:ah=1,al=0.02,window=32", "kvcomp:buffer=20+pack"};
    CHECK_DEVICE();
    if (!begin()) return;
    for (size_t i = check_cases(0, 2); i < CHECK_COUNT(some) && check_failures() == 0; i += check_cases(1, 2)) {
        rig r;
        outcome cold, warm;
        const uint32_t points[2] = {90, 120};
        const pleat_engine_options eo = engine_options(some[i]);
        const pleat_serving_options so = serving_options();
        check_context("%s", some[i]);
        pleat_request first = request_of(text, 90, (uint32_t)check_cases(10, 3)),
                      second = request_of(text, 120, (uint32_t)check_cases(30, 6));
        first.breakpoints = second.breakpoints = points;
        first.n_breakpoints = 1;
        second.n_breakpoints = 2;
        if (rig_make(&r, &eo, &so, 0)) {
            submit(r.serving, &second, &cold);
            run_to_end(r.serving, false);
            CHECK_EQ_U64(cold.stats.n_hit, 0);
            pleat_serving_forget_prefixes(r.serving);
            submit(r.serving, &first, &warm);
            run_to_end(r.serving, false);
            submit(r.serving, &second, &warm);
            run_to_end(r.serving, false);
            CHECK_EQ_U64(warm.stats.n_hit, 90);
            check_same(&warm, &cold, 1);
        }
        rig_free(&r);
    }
}

/* Full pages of a prefix are held once. */
static void prefixes_share_pages(void) {
    CHECK_DEVICE();
    if (!begin()) return;
    rig r;
    outcome out[2];
    const pleat_engine_options eo = engine_options("k8v4");
    const pleat_serving_options so = serving_options();
    pleat_request q = request_of(text, 4 * PREFIX + 3, 4);
    if (rig_make(&r, &eo, &so, 0)) {
        submit(r.serving, &q, &out[0]);
        run_to_end(r.serving, false);
        submit(r.serving, &q, &out[1]);
        CHECK_STATUS(pleat_serving_step(r.serving, NULL), PLEAT_OK);
        take_events(r.serving);
        pleat_serving_stats s;
        pleat_serving_get_stats(r.serving, &s);
        CHECK_EQ_U64(s.n_running, 1);
        CHECK_EQ_U64(s.pages_shared, (uint64_t)4 * PREFIX / 16 * r.serving->backend.shape.n_lanes);
        run_to_end(r.serving, false);
        CHECK_EQ_U64(out[1].stats.n_hit, 4 * PREFIX);
        check_same(&out[1], &out[0], 1);
    }
    rig_free(&r);
}

/* Ten times as many as the pool holds at once, some cancelled. */
static void many_come_to_their_end(void) {
    enum { N = 60 };
    const uint32_t n = (uint32_t)check_cases(N, 6), shorter = (uint32_t)check_cases(1, 6);
    static const char *const some[] = {"f16", "k8v4", "leankv:ah=1,al=0.02,window=32", "streaming:budget=48",
                                       "kvcomp:buffer=20+pack"};
    CHECK_DEVICE();
    if (!begin()) return;
    for (size_t i = 0; i < check_cases(CHECK_COUNT(some), 1) && check_failures() == 0; i++) {
        rig r;
        static outcome out[N];
        pleat_request_id ids[N];
        uint32_t n_done = 0, n_cancelled = 0;
        const pleat_engine_options eo = engine_options(some[i]);
        const pleat_serving_options so = serving_options();
        check_context("%s", some[i]);
        if (rig_make(&r, &eo, &so, a_page_each() * (pleat_spec_is_exact(&eo.spec) ? 40 : 50) / check_cases(1, 4))) {
            for (uint32_t k = 0; k < n; k++) {
                pleat_request q = request_of(text + 20 * (k % 30), 60 + 3 * k, (40 + k) / shorter);
                out[k] = (outcome){0};
                q.user = &out[k];
                CHECK_STATUS(pleat_serving_submit(r.serving, &q, &ids[k], NULL), PLEAT_OK);
            }
            for (uint32_t k = 0; pleat_serving_step(r.serving, NULL) == PLEAT_OK && check_failures() == 0; k++) {
                take_events(r.serving);
                if (k % 64 == 0) CHECK(pleat_serving_is_valid(r.serving));
                if (k % 100 == 50 && k < 600) n_cancelled += !pleat_serving_cancel(r.serving, ids[n - 1 - k / 100]);
            }
            take_events(r.serving);
            for (uint32_t k = 0; k < n; k++) n_done += out[k].finish == PLEAT_FINISH_LENGTH;
            CHECK_EQ_U64(n_done + n_cancelled, n);
            pleat_serving_stats s;
            pleat_serving_get_stats(r.serving, &s);
            CHECK(s.max_idle_steps <= 2);
            printf("# %s: %u preempted, %u hits, %u cancelled, %u at once\n", some[i],
                   (uint32_t)(s.preempted_recompute + s.preempted_swap), (uint32_t)s.hits, n_cancelled, s.peak_running);
        }
        rig_free(&r);
    }
}

/* Probabilities and penalties look at logits, which come to the host for them. */
static void answers_have_probabilities(void) {
    CHECK_DEVICE();
    if (!begin()) return;
    rig r;
    const pleat_engine_options eo = engine_options("f16");
    const pleat_serving_options so = serving_options();
    const uint32_t n = (uint32_t)check_cases(12, 4);
    pleat_request q = request_of(text, 50, n);
    outcome plain, told;
    uint32_t n_told = 0, n_events;
    if (rig_make(&r, &eo, &so, 0)) {
        submit(r.serving, &q, &plain);
        run_to_end(r.serving, false);
        q.wants_logprobs = 1;
        q.n_top = 2;
        submit(r.serving, &q, &told);
        while (pleat_serving_step(r.serving, NULL) == PLEAT_OK) {
            const pleat_serving_event *e = pleat_serving_events(r.serving, &n_events);
            for (uint32_t i = 0; i < n_events; i++)
                n_told += e[i].n_logprobs == 3 && e[i].logprobs[0].logprob >= e[i].logprobs[2].logprob;
            take_events(r.serving);
        }
        CHECK_EQ_U64(n_told, n);
        check_same(&told, &plain, 1);
        q.repetition_penalty = 1e6f;
        submit(r.serving, &q, &told);
        run_to_end(r.serving, false);
        CHECK(memcmp(told.tokens, plain.tokens, sizeof told.tokens) != 0);
    }
    rig_free(&r);
}

static void what_it_lacks_is_refused(void) {
    CHECK_DEVICE();
    if (!begin()) return;
    pleat_engine *engine = NULL;
    pleat_serving *s = NULL;
    pleat_error err = {0};
    pleat_engine_options eo = engine_options("leankv:ah=1,al=0.02,window=32");
    pleat_serving_options so = serving_options();
    eo.chunk_tokens = CHUNK;
    CHECK_STATUS(pleat_engine_create(model, &eo, &engine, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_serving_create(engine, &so, &s, &err), PLEAT_E_UNSUPPORTED);
    CHECK(strstr(err.text, "whole") != NULL);
    pleat_engine_destroy(&engine);
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        {"uniform formats answer alike", uniform_formats_answer_alike},
        {"levels answer alike", levels_answer_alike},
        {"budgets answer alike", budgets_answer_alike},
        {"blocks answer alike", blocks_answer_alike},
        {"turns go on from prefixes", turns_go_on_from_prefixes},
        {"prefixes share pages", prefixes_share_pages},
        {"many come to their end", many_come_to_their_end},
        {"answers have probabilities", answers_have_probabilities},
        {"what it lacks is refused", what_it_lacks_is_refused},
    };
    const int rc = check_main(tests, CHECK_COUNT(tests), argc, argv);
    pleat_model_destroy(&model);
    return rc;
}
