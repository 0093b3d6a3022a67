/* SPDX-License-Identifier: MIT
 * ctest-labels: slow
 *
 * test_serving.c: serving with the reference model: what comes out is what came out alone, to the token.
 *
 * A set of greedy and sampled requests is run alone first.  Then it is run in company, preempted by swap and by being
 * computed again (at random steps, and for want of pages), and started from kept prefixes, for specs of every kind.
 * Each way has to have happened, which the statistics tell.  Further: a model with a sliding window, forks, what a
 * shared prefix takes, conversations, tenants and priorities in a pool that is too small, compression.  Where there is
 * no AVX2 a part of it has to do.
 */
#include "serving_ways.h"

/* ---- the same tokens, however they were served ------------------------------------------------------------------------ */

/* Cold tokens in blocks. */
#define BLOCKS "kvcomp:k=0.2,v=0.2,block=32,buffer=40"

static void test_same_tokens(void) {
    if (!load_once()) return;
    set all = some_requests(), growing = growing_requests();
    if (is_slow()) {
        all.n = 2;
        outcome alone[2];
        run_alone(specs[1], &all, alone);
        check_way(specs[1], &all, alone, &ways[1], 0);
        return;
    }
    const size_t n_specs = check_rounds(CHECK_COUNT(specs), 2);
    for (size_t i = 0; i < n_specs && check_failures() == 0; i++) {
        outcome alone[MAX_REQUESTS];
        check_context("%s, alone", specs[i]);
        run_alone(specs[i], &all, alone);
        const size_t first = i < 2 ? 0 : 4; /* two specs are served in every way */
        for (size_t j = first; j < CHECK_COUNT(ways); j++)
            if (!ways[j].is_short) check_way(specs[i], &all, alone, &ways[j], 0);
        /* a little more than one of them needs alone */
        const uint64_t n_few = (uint64_t)32 * (engine_options(specs[i]).spec.policy != PLEAT_POLICY_NONE ? 16 : 14);
        run_alone(specs[i], &growing, alone);
        for (size_t j = first; j < CHECK_COUNT(ways); j++)
            if (ways[j].is_short) check_way(specs[i], &growing, alone, &ways[j], n_few);
    }
}

/* Layers with a sliding window: rings are swapped, computed again and forked from prefixes. */
static void test_window(void) {
    enum { WINDOW = 40 };
    static const char *const some[] = {"f32", "k8v4"};
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    pleat_model *windowed = windowed_model(WINDOW), *without = model;
    if (!windowed) return;
    pleat_model_info info;
    pleat_model_get_info(windowed, &info);
    CHECK_EQ_U64(info.window, WINDOW);
    model = windowed;
    for (size_t i = 0; i < CHECK_COUNT(some) && check_failures() == 0; i++) {
        const set all = some_requests();
        outcome alone[MAX_REQUESTS];
        check_context("%s, alone", some[i]);
        run_alone(some[i], &all, alone);
        for (size_t j = 0; j < CHECK_COUNT(ways); j++)
            if (!ways[j].is_short) check_way(some[i], &all, alone, &ways[j], 0); /* rings hardly grow */
    }
    model = without;
    pleat_model_destroy(&windowed);
}

static void test_forks(void) {
    static const char *const some[] = {"f32", "f16", "leankv:ah=1,al=0.02,window=32", BLOCKS};
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    for (size_t i = 0; i < CHECK_COUNT(some); i++) check_forks(some[i]);
}

static void test_as_by_hand(void) {
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    for (size_t i = 0; i < 4; i++) check_as_by_hand(specs[i]);
}

/* ---- prefixes ---------------------------------------------------------------------------------------------------------- */

/* n requests with the same 1990 tokens compute them once and hold them once, but for the pages that each has to copy:
 * the last one of each side of a lane. */
static void share_prefix(const char *spec, uint32_t n) {
    enum { MOST = 64, SHARED = 2000, OWN = 6, PREDICT = 3, PAGE = 32, LANES = 32, SPARE_SEQS = 8 };
    rig r;
    pleat_engine_options eo = engine_options(spec);
    pleat_serving_options so = serving_options();
    const uint32_t n_shared = (uint32_t)check_rounds(SHARED - 10, 198), n_sides = eo.spec.low.k_bits > 0 ? 2 : 1;
    eo.page_tokens = PAGE;
    eo.max_tokens = SHARED + OWN + PREDICT;
    eo.max_items = n;
    eo.max_seqs = n + SPARE_SEQS;
    eo.chunk_tokens = 100;
    eo.step_tokens = 500;
    so.prefix_tokens = 500;
    static pleat_token prompts[MOST][SHARED + OWN];
    static outcome out[MOST];
    uint64_t n_own = 0, most_own = 0, max_added = 0;
    check_context("%s", spec);
    if (!rig_make(&r, &eo, &so, 0)) return;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t n_prompt = n_shared + 1 + i % OWN;
        memcpy(prompts[i], text, n_shared * sizeof text[0]);
        for (uint32_t j = n_shared; j < n_prompt; j++) prompts[i][j] = text[SHARED + 11 * i + j - n_shared];
        pleat_request q = request_of(prompts[i], n_prompt, PREDICT);
        q.breakpoint = n_shared;
        submit(r.serving, &q, &out[i]);
        n_own += n_prompt - n_shared;
    }
    while (check_failures() == 0 && pleat_serving_step(r.serving, NULL) == PLEAT_OK) {
        take_events(r.serving);
        if (r.serving->n_running == n && r.serving->own_pages > most_own) most_own = r.serving->own_pages;
        if (r.serving->prefixes.added_pages > max_added) max_added = r.serving->prefixes.added_pages;
    }
    pleat_serving_stats s;
    pleat_serving_get_stats(r.serving, &s);
    CHECK_EQ_U64(s.prompt_tokens, n_shared + n_own);
    CHECK_EQ_U64(s.hits, n - 1);
    CHECK_EQ_U64(s.hit_tokens, (uint64_t)(n - 1) * n_shared);
    CHECK_EQ_U64(s.peak_running, n);
    CHECK_EQ_U64(s.preempted_swap + s.preempted_recompute, 0);
    /* A new page beside the copies here and there, where there are two sides. */
    CHECK(most_own >= (uint64_t)n * LANES && most_own <= (uint64_t)n * LANES * (n_sides == 1 ? 4 : 10) / 4);
    /* Four stops, three of which end inside a page. */
    CHECK(max_added <= ((n_shared + PAGE - 1) / PAGE + 3 * 3) * LANES);
    for (uint32_t i = 0; i < n; i++) CHECK(out[i].finish == PLEAT_FINISH_LENGTH && out[i].n_tokens == PREDICT);
    rig_free(&r);
}

static void test_shared_prefix(void) {
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    share_prefix("f16", 64);
    share_prefix("leankv:ah=1,al=0.02,window=32", 16);
}

/* A conversation: each turn's prompt is all that was said before and a few tokens more, its breakpoints where it ends and
 * where the prompts before it ended. */
static void converse(const char *spec) {
    enum { TURNS = 4, PREDICT = 20, SAID = 37 };
    rig r;
    const pleat_engine_options eo = engine_options(spec);
    const pleat_serving_options so = serving_options();
    pleat_token prompt[TURNS * (PREDICT + SAID) + 64];
    uint32_t n = 60, ends[TURNS] = {0};
    memcpy(prompt, text, n * sizeof *prompt);
    if (!rig_make(&r, &eo, &so, 0)) return;
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        outcome kept, alone;
        set one = {.n = 1, .q = {request_of(prompt, n, PREDICT)}};
        ends[turn] = n;
        one.q[0].breakpoints = ends; /* the last by the other name */
        one.q[0].n_breakpoints = turn;
        one.q[0].breakpoint = n;
        run_set(r.serving, &one, &kept, false);
        CHECK_EQ_U64(kept.stats.n_hit, turn > 0 ? ends[turn - 1] : 0);
        run_alone(spec, &one, &alone);
        check_same(&kept, &alone, 1);
        memcpy(prompt + n, kept.tokens, PREDICT * sizeof *prompt);
        memcpy(prompt + n + PREDICT, text + 200 + 50 * turn, SAID * sizeof *prompt);
        n += PREDICT + SAID;
    }
    rig_free(&r);
}

static void test_conversation(void) {
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    for (size_t i = 0; i < check_rounds(4, 1); i++) {
        check_context("%s", specs[i]);
        converse(specs[i]);
    }
}

/* The same tokens with and without a breakpoint: what lies behind it was cut otherwise, and is not shared. */
static void test_breakpoints_apart(void) {
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    for (size_t i = 0; i < 2; i++) {
        rig r;
        outcome out[3], alone[3];
        const pleat_engine_options eo = engine_options(specs[i]);
        const pleat_serving_options so = serving_options();
        set all = {.n = 3};
        for (uint32_t k = 0; k < 3; k++) all.q[k] = request_of(text, 161, 20);
        all.q[0].breakpoint = 100;
        all.q[2].breakpoint = 90;
        check_context("%s", specs[i]);
        run_alone(specs[i], &all, alone);
        if (rig_make(&r, &eo, &so, 0)) {
            for (uint32_t k = 0; k < 3; k++) {
                submit(r.serving, &all.q[k], &out[k]);
                run_to_end(r.serving, false);
                CHECK_EQ_U64(out[k].stats.n_hit, k == 0 ? 0 : PREFIX);
            }
            check_same(out, alone, 3);
        }
        rig_free(&r);
    }
}

/* Salts keep prefixes apart, and a prefix that is under way is waited for. */
static void test_salts_and_promises(void) {
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    rig r;
    const pleat_engine_options eo = engine_options("k8v4");
    const pleat_serving_options so = serving_options();
    if (!rig_make(&r, &eo, &so, 0)) return;
    static const char *const salts[] = {NULL, "", "a", "a", "b", "b"};
    outcome out[6];
    for (uint32_t i = 0; i < 6; i++) {
        pleat_request q = request_of(text, 150 + i, 5);
        q.salt = salts[i];
        submit(r.serving, &q, &out[i]);
    }
    run_to_end(r.serving, false);
    for (uint32_t i = 0; i < 6; i++) CHECK_EQ_U64(out[i].stats.n_hit, i % 2 ? 128 : 0);
    for (uint32_t i = 0; i < 6; i++) CHECK_EQ_U64(out[i].n_tokens, 5);
    rig_free(&r);
}

/* A request that runs has a sequence, which can be asked what it holds; one that waits or is gone has none.  When it has
 * finished its last event says what that held: a token more than before the last step, in pages that were there. */
static void test_sequence(void) {
    if (!load_once()) return;
    rig r;
    pleat_engine_options eo = engine_options("k8v4");
    eo.max_items = 1;
    const pleat_serving_options so = serving_options();
    if (!rig_make(&r, &eo, &so, 0)) return;
    pleat_request q = request_of(text, CHUNK + 8, 3);
    pleat_request_id first = {0}, second = {0};
    pleat_cache_usage usage;
    outcome out = {0};
    q.user = &out;
    CHECK_STATUS(pleat_serving_submit(r.serving, &q, &first, NULL), PLEAT_OK);
    q.user = NULL;
    CHECK_STATUS(pleat_serving_submit(r.serving, &q, &second, NULL), PLEAT_OK);
    CHECK_EQ_U64(pleat_serving_sequence(r.serving, first).v, 0);
    static const uint32_t n_stored[] = {CHUNK, CHUNK + 8, CHUNK + 9}; /* the last token ends it */
    for (size_t i = 0; i < CHECK_COUNT(n_stored) && check_failures() == 0; i++) {
        CHECK_STATUS(pleat_serving_step(r.serving, NULL), PLEAT_OK);
        const pleat_seq seq = pleat_serving_sequence(r.serving, first);
        CHECK_EQ_U64(pleat_engine_length(r.engine, seq), n_stored[i]);
        CHECK_STATUS(pleat_engine_get_usage(r.engine, seq, &usage), PLEAT_OK);
        CHECK(seq.v != 0 && usage.tokens_high == 32ull * n_stored[i]);
        CHECK_EQ_U64(pleat_serving_sequence(r.serving, second).v, 0);
    }
    run_to_end(r.serving, false);
    CHECK_EQ_U64(out.stats.kv_bytes, usage.bytes);
    CHECK_EQ_U64(out.stats.kv_bytes_f16, usage.bytes_f16 / (CHUNK + 9) * (CHUNK + 10));
    CHECK_EQ_U64(out.stats.n_hit, 0);
    CHECK_EQ_U64(out.stats.n_computed, out.stats.n_prompt);
    CHECK(out.stats.prompt_ns > 0 && out.stats.answer_ns > 0);
    CHECK(out.stats.prompt_ns + out.stats.answer_ns < pleat_serving_clock_ns(r.serving));
    CHECK_EQ_U64(pleat_serving_sequence(r.serving, first).v, 0);
    CHECK_EQ_U64(pleat_serving_sequence(r.serving, (pleat_request_id){0}).v, 0);
    CHECK_EQ_U64(pleat_serving_sequence(NULL, first).v, 0);
    CHECK_STATUS(pleat_serving_submit(r.serving, &q, &first, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_serving_step(r.serving, NULL), PLEAT_OK);
    CHECK(pleat_serving_sequence(r.serving, first).v != 0);
    CHECK_STATUS(pleat_serving_cancel(r.serving, first), PLEAT_OK);
    CHECK_EQ_U64(pleat_serving_sequence(r.serving, first).v, 0);
    rig_free(&r);
}

/* ---- many ---------------------------------------------------------------------------------------------------------------- */

/* A few dozen requests of tenants and priorities for a pool of lane_pages pages a lane, which holds three or four; some are cancelled, in any state. */
static void oversubscribe(const char *spec, float max_ah, uint32_t lane_pages) {
    static const pleat_tenant tenants[] = {{"a", 0.5, 2}, {"b", 0.1, 1}};
    enum { N = 36 };
    rig r;
    const pleat_engine_options eo = engine_options(spec);
    pleat_serving_options so = serving_options();
    so.tenants = tenants;
    so.n_tenants = 2;
    so.low_watermark = 0.95;
    if (!rig_make(&r, &eo, &so, 32 * lane_pages)) return;
    static outcome out[N];
    pleat_request_id ids[N];
    bool is_open[N] = {0};
    uint32_t n = 0, n_cancelled = 0;
    pleat_status status = PLEAT_OK;
    for (uint32_t step = 0; (n < N || status == PLEAT_OK) && check_failures() == 0; step++) {
        while (n < N && check_below(2)) {
            pleat_request q = request_of(text + check_below(4) * 100, (uint32_t)check_between(1, 120),
                                         (uint32_t)check_between(1, 100));
            q.tenant = tenants[check_below(2)].name;
            q.priority = (int32_t)check_below(2);
            q.max_ah = max_ah;
            q.user = &out[n];
            out[n] = (outcome){0};
            is_open[n] = CHECK_STATUS(pleat_serving_submit(r.serving, &q, &ids[n], NULL), PLEAT_OK);
            n++;
        }
        const uint32_t i = (uint32_t)check_below(N);
        if (check_below(30) == 0 && i < n && is_open[i] && !out[i].finish) {
            CHECK_STATUS(pleat_serving_cancel(r.serving, ids[i]), PLEAT_OK);
            CHECK_STATUS(pleat_serving_cancel(r.serving, ids[i]), PLEAT_E_ARG);
            is_open[i] = false;
            n_cancelled++;
        }
        status = pleat_serving_step(r.serving, NULL);
        take_events(r.serving);
        if (step % 8 == 0) CHECK(pleat_serving_is_valid(r.serving));
    }
    pleat_serving_stats s;
    pleat_serving_get_stats(r.serving, &s);
    for (uint32_t i = 0; i < n; i++) CHECK(!is_open[i] || out[i].finish == PLEAT_FINISH_LENGTH);
    CHECK(n_cancelled > 0 && s.max_idle_steps <= 2 && s.evicted > 0);
    CHECK((s.compressed > 0) == (max_ah > 0));
    rig_free(&r);
}

static void test_oversubscribed(void) {
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    oversubscribe("k8v4", 0, 40);
    oversubscribe(BLOCKS, 0, 26);
    oversubscribe("leankv:ah=1,al=0.02,window=32", 0, 40);
    oversubscribe("leankv:ah=1,al=0.02,window=32", 30, 40);
}

/* Compression takes pages from a request alone: prefixes that only it stands on go first. */
static void test_compression_frees(void) {
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    rig r;
    const pleat_engine_options eo = engine_options("leankv:ah=1,al=0.02,window=32");
    const pleat_serving_options so = serving_options();
    if (!rig_make(&r, &eo, &so, 0)) return;
    outcome out;
    pleat_request q = request_of(text, 200, 40);
    q.max_ah = 40;
    q.max_al = 1;
    submit(r.serving, &q, &out);
    while (r.serving->n_running == 0 || r.serving->running[0]->stats.n_generated == 0)
        if (!CHECK_STATUS(pleat_serving_step(r.serving, NULL), PLEAT_OK)) return;
    take_events(r.serving);
    pleat_serving_stats before, after;
    pleat__request *served = r.serving->running[0];
    const pleat__running_part *run = PLEAT__RUNNING(served);
    pleat_serving_get_stats(r.serving, &before);
    CHECK(before.n_prefixes == 3 && run->own_pages < run->n_pages);
    CHECK(pleat__serving_can_compress(r.serving, served));
    pleat__serving_compress(r.serving, served);
    pleat__serving_demand(r.serving, served);
    pleat_serving_get_stats(r.serving, &after);
    CHECK(after.n_prefixes == 0 && run->own_pages == run->n_pages);
    CHECK(after.pages_used < before.pages_used && after.pages_used == run->n_pages);
    CHECK(!pleat__serving_can_compress(r.serving, served)); /* until it has grown */
    CHECK(pleat_serving_is_valid(r.serving));
    run_to_end(r.serving, false);
    CHECK_EQ_U64(out.n_tokens, 40);
    CHECK_EQ_U64(out.stats.n_compressed, 1);
    rig_free(&r);
}

static const check_test tests[] = {
    {"same_tokens", test_same_tokens},
    {"window", test_window},
    {"forks", test_forks},
    {"as_by_hand", test_as_by_hand},
    {"shared_prefix", test_shared_prefix},
    {"conversation", test_conversation},
    {"breakpoints_apart", test_breakpoints_apart},
    {"salts_and_promises", test_salts_and_promises},
    {"sequence", test_sequence},
    {"oversubscribed", test_oversubscribed},
    {"compression_frees", test_compression_frees},
};

int main(int argc, char **argv) {
    const int rc = check_main(tests, CHECK_COUNT(tests), argc, argv);
    pleat_model_destroy(&model);
    return rc;
}
