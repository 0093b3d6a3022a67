/* SPDX-License-Identifier: MIT
 * ctest-labels: slow
 *
 * test_serving_failures.c: what is refused and what goes wrong in serving, with the reference model: bad requests and
 * options, steps that fail for one request, weights that give no numbers, cancelling in every state, and every
 * allocation failing once.  Whoever is not at fault comes out as it does alone.
 */
#include "gguf/gguf.h"
#include "serving_rig.h"

/* ---- refusals --------------------------------------------------------------------------------------------- */

/* A request that is refused with this status, and a word that says why. */
typedef struct refusal {
    const char *word;
    pleat_status status;
    uint32_t n_prompt, n_predict, breakpoint;
    uint32_t breakpoints[2];
    const char *tenant;
    float ah, temperature;
    bool has_bad_token;
} refusal;

static const refusal refusals[] = {
    {"no prompt", PLEAT_E_ARG, .n_prompt = 0, .n_predict = 1},
    {"n_predict", PLEAT_E_ARG, .n_prompt = 1, .n_predict = 0},
    {"8192", PLEAT_E_ARG, .n_prompt = 2, .n_predict = 1, .has_bad_token = true}, /* the model has tokens 0..8191 */
    {"breakpoint", PLEAT_E_ARG, .n_prompt = 2, .n_predict = 1, .breakpoint = 3},
    {"breakpoint at 0", PLEAT_E_ARG, .n_prompt = 2, .n_predict = 1, .breakpoints = {0, 1}},
    {"breakpoint at 3", PLEAT_E_ARG, .n_prompt = 2, .n_predict = 1, .breakpoints = {1, 3}},
    {"ascending", PLEAT_E_ARG, .n_prompt = 2, .n_predict = 1, .breakpoints = {2, 2}},
    {"nobody", PLEAT_E_ARG, .n_prompt = 2, .n_predict = 1, .tenant = "nobody"},
    {"max_ah", PLEAT_E_ARG, .n_prompt = 2, .n_predict = 1, .ah = NAN},
    {"max_ah", PLEAT_E_ARG, .n_prompt = 2, .n_predict = 1, .ah = -1},
    {"temperature", PLEAT_E_ARG, .n_prompt = 2, .n_predict = 1, .temperature = NAN},
    {"512", PLEAT_E_LIMIT, .n_prompt = 500, .n_predict = 13}, /* 513 tokens of MAX_TOKENS */
    {"512", PLEAT_E_LIMIT, .n_prompt = 500, .n_predict = UINT32_MAX},
    /* of the array there are 2: nobody may look for the others */
    {"512", PLEAT_E_LIMIT, .n_prompt = UINT32_MAX, .n_predict = 1, .has_bad_token = true},
    {"512", PLEAT_E_LIMIT, .n_prompt = 513, .n_predict = 1, .has_bad_token = true},
    {"640", PLEAT_E_LIMIT, .n_prompt = 400, .n_predict = 1}, /* 401 tokens: 26 pages in 32 lanes of a pool of 640 */
    {"'poor'", PLEAT_E_LIMIT, .n_prompt = 60, .n_predict = 1, .tenant = "poor"}, /* 4 in 32 of the 64 lent to it */
};

/* Two tenants, 20 pages a lane, two requests at once. */
static bool make_small_rig(rig *r) {
    static const pleat_tenant tenants[] = {{"some", 0.9, 1}, {"poor", 0, 1}};
    const pleat_engine_options eo = engine_options("f16");
    pleat_serving_options so = serving_options();
    so.tenants = tenants;
    so.n_tenants = 2;
    so.max_requests = 2;
    return rig_make(r, &eo, &so, 32 * 20);
}

static void check_refusal(rig *r, const refusal *c) {
    const pleat_token bad[2] = {5, 8192};
    pleat_request q = request_of(c->has_bad_token ? bad : text, c->n_prompt, c->n_predict);
    pleat_request_id id = {77};
    pleat_error err = {0};
    q.breakpoint = c->breakpoint;
    if (c->breakpoints[1] > 0) q.breakpoints = c->breakpoints;
    if (c->breakpoints[1] > 0) q.n_breakpoints = 2;
    q.tenant = c->tenant;
    q.max_ah = c->ah;
    q.sampling.temperature = c->temperature;
    CHECK_STATUS(pleat_serving_submit(r->serving, &q, &id, &err), c->status);
    CHECK(err.code == c->status && id.v == 77); /* untouched */
    if (!CHECK(strstr(err.text, c->word) != NULL)) printf("%s\n", err.text);
}

static void check_bad_calls(rig *r, const pleat_request *good) {
    pleat_request_id id;
    pleat_request q = *good;
    q.size_bytes--;
    CHECK_STATUS(pleat_serving_submit(r->serving, &q, &id, NULL), PLEAT_E_ARG);
    CHECK_STATUS(pleat_serving_submit(r->serving, NULL, &id, NULL), PLEAT_E_ARG);
    CHECK_STATUS(pleat_serving_cancel(r->serving, (pleat_request_id){0}), PLEAT_E_ARG);
    CHECK_STATUS(pleat_serving_cancel(r->serving, (pleat_request_id){UINT64_MAX}), PLEAT_E_ARG);
    CHECK_STATUS(pleat_serving_tenant_pages(r->serving, "nobody", NULL, NULL), PLEAT_E_ARG);
}

/* Each of these is refused with a word of its own, and whoever is there goes on. */
static void test_refusals(void) {
    if (!load_once()) return;
    rig r;
    if (!make_small_rig(&r)) return;
    outcome out;
    pleat_request_id id;
    const pleat_request good = request_of(text, 70, 40);
    submit(r.serving, &good, &out);
    for (size_t i = 0; i < CHECK_COUNT(refusals); i++) {
        check_refusal(&r, &refusals[i]);
        CHECK_STATUS(pleat_serving_step(r.serving, NULL), PLEAT_OK);
        take_events(r.serving);
    }
    check_bad_calls(&r, &good);
    run_to_end(r.serving, false);
    CHECK(out.finish == PLEAT_FINISH_LENGTH && out.n_tokens == 40);
    for (int i = 0; i < 2; i++) CHECK_STATUS(pleat_serving_submit(r.serving, &good, &id, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_serving_submit(r.serving, &good, &id, NULL), PLEAT_E_LIMIT); /* max_requests */
    pleat_serving_destroy(&r.serving);                                              /* cancels what is left */
    CHECK(pleat_engine_is_valid(r.engine));
    pleat_cache_usage u;
    CHECK_STATUS(pleat_engine_get_usage(r.engine, (pleat_seq){0}, &u), PLEAT_OK);
    CHECK_EQ_U64(u.pages_used, 0);
    rig_free(&r);
}

/* Options outside their ranges. */
static void test_bad_options(void) {
    if (!load_once()) return;
    pleat_engine_options eo = engine_options("f16");
    pleat_engine *engine = NULL;
    pleat_serving *serving = NULL;
    CHECK_STATUS(pleat_engine_create(model, &eo, &engine, NULL), PLEAT_OK);
    static const pleat_tenant twice[] = {{"a", 0, 1}, {"a", 0, 1}}, much[] = {{"a", 0.6, 1}, {"b", 0.5, 1}},
                              nan_quota[] = {{"a", NAN, 1}}, no_weight[] = {{"a", 0.5, 0}}, no_name[] = {{NULL, 0, 1}};
    static const pleat_tenant *const lists[] = {twice, much, nan_quota, no_weight, no_name};
    static const uint32_t lengths[] = {2, 2, 1, 1, 1};
    pleat_error err;
    for (uint32_t i = 0; i < 14; i++) {
        pleat_serving_options so = serving_options();
        if (i < 5) so.tenants = lists[i];
        if (i < 5) so.n_tenants = lengths[i];
        if (i == 5) so.tenants = twice; /* none of them */
        if (i == 6) so.max_requests = 0;
        if (i == 7) so.max_requests = (1u << 24) + 1;
        if (i == 8) so.prefix_tokens = (1u << 24) + 1;
        if (i == 9) so.max_prefixes = MAX_SEQS - MAX_ITEMS + 1;
        if (i == 10) so.low_watermark = NAN;
        if (i == 11) so.high_watermark = 0.5;
        if (i == 12) so.size_bytes = 0;
        if (i == 13) so.preemption = (pleat_preemption)9;
        err.text[0] = 0;
        check_context("case %u", i);
        CHECK_STATUS(pleat_serving_create(engine, &so, &serving, &err), PLEAT_E_ARG);
        CHECK(serving == NULL && err.text[0]);
    }
    const pleat_serving_options so = serving_options();
    pleat_seq seq;
    CHECK_STATUS(pleat_engine_open(engine, 10, &seq), PLEAT_OK);
    CHECK_STATUS(pleat_serving_create(engine, &so, &serving, &err), PLEAT_E_ARG); /* somebody else drives it */
    CHECK_STATUS(pleat_engine_close(engine, seq), PLEAT_OK);
    pleat_engine_destroy(&engine);
    eo.step_tokens = CHUNK;
    CHECK_STATUS(pleat_engine_create(model, &eo, &engine, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_serving_create(engine, &so, &serving, &err), PLEAT_E_ARG); /* no room for a chunk */
    CHECK_STATUS(pleat_serving_create(NULL, &so, &serving, &err), PLEAT_E_ARG);
    pleat_engine_destroy(&engine);
}

/* A backend in which a step with the token `odd` fails, as one does whose keys are no numbers. */
static const pleat_token odd = 8000;
static pleat__backend whole;

static pleat_status run_but_odd(void *ctx, const pleat_engine_item *items, uint32_t n_items, pleat_token *likeliest,
                                pleat_error *err) {
    for (uint32_t i = 0; i < n_items; i++)
        for (uint32_t t = 0; t < items[i].n_tokens; t++)
            if (items[i].tokens[t] == odd) return PLEAT_E_RANGE;
    return whole.run(ctx, items, n_items, likeliest, err);
}

/* The request with the odd token fails; the others come out as they do alone. */
static void test_one_fails(void) {
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    const set all = some_requests();
    pleat_token prompt[90];
    memcpy(prompt, text + 2000, sizeof prompt);
    prompt[70] = odd;
    for (size_t i = 0; i < 2; i++) {
        outcome alone[MAX_REQUESTS], out[MAX_REQUESTS], bad;
        check_context("%s", specs[i]);
        run_alone(specs[i], &all, alone);
        rig r = {0};
        const pleat_engine_options eo = engine_options(specs[i]);
        const pleat_serving_options so = serving_options();
        CHECK_STATUS(pleat_engine_create(model, &eo, &r.engine, NULL), PLEAT_OK);
        CHECK_STATUS(pleat__backend_on_engine(r.engine, NULL, &whole, NULL), PLEAT_OK);
        pleat__backend backend = whole;
        backend.run = run_but_odd;
        if (!CHECK_STATUS(pleat__serving_create_on(&backend, &so, &r.serving, NULL), PLEAT_OK)) return;
        for (uint32_t k = 0; k < all.n - 1; k++) submit(r.serving, &all.q[k], &out[k]);
        const pleat_request q = request_of(prompt, 90, 5);
        submit(r.serving, &q, &bad);
        run_to_end(r.serving, false);
        check_same(out, alone, all.n - 1);
        CHECK(bad.finish == PLEAT_FINISH_FAILED && bad.n_tokens == 0);
        CHECK_STATUS(bad.status, PLEAT_E_RANGE);
        pleat_serving_stats s;
        pleat_serving_get_stats(r.serving, &s);
        CHECK((s.preempted_recompute > 0) == (eo.spec.policy != PLEAT_POLICY_NONE));
        rig_free(&r);
    }
}

/* A simulated engine of a model with rings: a step that fails loses every sequence that had a chunk in it. */
static bool is_lost[MAX_SEQS + 1];

static pleat_status run_on_rings(void *ctx, const pleat_engine_item *items, uint32_t n_items, pleat_token *likeliest,
                                 pleat_error *err) {
    for (uint32_t i = 0; i < n_items; i++)
        if (is_lost[items[i].seq.v]) return PLEAT_E_STATE;
    const pleat_status status = run_but_odd(ctx, items, n_items, likeliest, err);
    for (uint32_t i = 0; i < n_items; i++) is_lost[items[i].seq.v] |= status == PLEAT_E_RANGE && items[i].n_tokens > 1;
    return status;
}

static void close_ring(void *ctx, pleat_seq seq) {
    is_lost[seq.v] = false;
    whole.close(ctx, seq);
}

static pleat_serving *serving_on_rings(uint32_t n_chunks) {
    const pleat_simulation simulation = {.size_bytes = sizeof simulation,
                                         .n_lanes = 4,
                                         .page_tokens = 16,
                                         .page_bytes = 4096,
                                         .n_pages = 4000,
                                         .fraction = 1,
                                         .max_items = MAX_ITEMS,
                                         .max_seqs = MAX_SEQS,
                                         .max_tokens = MAX_TOKENS,
                                         .chunk_tokens = CHUNK,
                                         .step_tokens = n_chunks * CHUNK + MAX_ITEMS,
                                         .fixed_ns = 1,
                                         .swap_bytes_per_s = 1e9};
    const pleat_serving_options so = serving_options();
    pleat_serving *s = NULL;
    if (!CHECK_STATUS(pleat__backend_simulated(&simulation, NULL, &whole, NULL), PLEAT_OK)) return NULL;
    pleat__backend backend = whole;
    backend.run = run_on_rings;
    backend.close = close_ring;
    CHECK_STATUS(pleat__serving_create_on(&backend, &so, &s, NULL), PLEAT_OK);
    return s;
}

/* Whose fault it was does not show when all sequences of the step are lost.  The requests with the odd token, two of six,
 * come to their end all the same, and so do the others. */
static void test_one_fails_on_rings(void) {
    enum { N = 6, N_PROMPT = 150, N_PREDICT = 50, MAX_STEPS = 1000 };
    for (uint32_t n_chunks = 1; n_chunks <= 4; n_chunks++) {
        static pleat_token prompts[N][N_PROMPT];
        outcome out[N];
        pleat_serving *s = serving_on_rings(n_chunks);
        check_context("%u chunks in a step", n_chunks);
        if (!s) return;
        for (uint32_t k = 0; k < N; k++) {
            for (uint32_t i = 0; i < N_PROMPT; i++) prompts[k][i] = (pleat_token)(N_PROMPT * k + i);
            if (k == 1 || k == 4) prompts[k][70] = odd;
            const pleat_request q = request_of(prompts[k], N_PROMPT, N_PREDICT);
            submit(s, &q, &out[k]);
        }
        for (uint32_t step = 0; pleat_serving_step(s, NULL) == PLEAT_OK && CHECK(step < MAX_STEPS); step++) {
            take_events(s);
            CHECK(pleat_serving_is_valid(s));
        }
        for (uint32_t k = 0; k < N; k++) {
            const bool is_odd = k == 1 || k == 4;
            CHECK(out[k].finish == (is_odd ? PLEAT_FINISH_FAILED : PLEAT_FINISH_LENGTH));
            CHECK_STATUS(out[k].status, is_odd ? PLEAT_E_RANGE : PLEAT_OK);
            CHECK_EQ_U64(out[k].n_tokens, is_odd ? 0 : N_PREDICT);
        }
        pleat_serving_destroy(&s);
    }
}

/* One whose sequence is lost though nobody else was in the step does not try for ever. */
static void test_lost_alone(void) {
    outcome out;
    const pleat_request q = request_of(text, 100, 5);
    pleat_serving *s = serving_on_rings(1);
    if (!s) return;
    submit(s, &q, &out);
    CHECK_STATUS(pleat_serving_step(s, NULL), PLEAT_OK);
    is_lost[PLEAT__RUNNING(s->running[0])->seq.v] = true;
    CHECK_STATUS(pleat_serving_step(s, NULL), PLEAT_OK);
    take_events(s);
    CHECK(out.finish == PLEAT_FINISH_FAILED && s->n_running == 0);
    CHECK_STATUS(out.status, PLEAT_E_STATE);
    pleat_serving_destroy(&s);
}

/* A backend that finds too few pages now and then though the plan had counted them: somebody is preempted, the rest run. */
static uint32_t n_runs;

static pleat_status run_or_again(void *ctx, const pleat_engine_item *items, uint32_t n_items, pleat_token *likeliest,
                                 pleat_error *err) {
    return ++n_runs % 9 == 0 && n_items > 1 ? PLEAT_AGAIN : whole.run(ctx, items, n_items, likeliest, err);
}

static void test_pages_not_found(void) {
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    const set all = some_requests();
    outcome alone[MAX_REQUESTS], out[MAX_REQUESTS];
    run_alone("k8v4", &all, alone);
    rig r = {0};
    const pleat_engine_options eo = engine_options("k8v4");
    const pleat_serving_options so = serving_options();
    CHECK_STATUS(pleat_engine_create(model, &eo, &r.engine, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__backend_on_engine(r.engine, NULL, &whole, NULL), PLEAT_OK);
    pleat__backend backend = whole;
    backend.run = run_or_again;
    if (!CHECK_STATUS(pleat__serving_create_on(&backend, &so, &r.serving, NULL), PLEAT_OK)) return;
    run_set(r.serving, &all, out, false);
    check_same(out, alone, all.n);
    pleat_serving_stats s;
    pleat_serving_get_stats(r.serving, &s);
    CHECK(s.preempted_swap + s.preempted_recompute > 2 && s.max_idle_steps <= 2);
    rig_free(&r);
}

/* A model in which one token's embedding is no number.  Its logits come from the same matrix, so everybody fails: who
 * has the token in the step that reads it, the others when they are to be given a token. */
static pleat_model *damaged_model(pleat_token token) {
    size_t n_bytes;
    unsigned char *file = check_read_file(MODEL, &n_bytes);
    pleat_gguf *gguf = NULL;
    pleat_model *damaged = NULL;
    if (!CHECK(file != NULL) || !CHECK_STATUS(pleat_gguf_open_memory(file, n_bytes, NULL, &gguf, NULL), PLEAT_OK))
        return NULL;
    const pleat__gguf_tensor *t = pleat__gguf_find_tensor(gguf, "token_embd.weight");
    if (CHECK(t != NULL)) {
        const uint64_t row_bytes = t->n_bytes / t->dims[1];
        memset(file + t->offset + (uint64_t)token * row_bytes, 0xFF, 2); /* the first block's scale, f16 */
    }
    pleat_gguf_close(&gguf);
    damaged = load_bytes(file, n_bytes);
    free(file);
    return damaged;
}

static void test_damaged_weights(void) {
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    pleat_model *damaged = damaged_model(odd), *undamaged = model;
    if (!damaged) return;
    model = damaged;
    for (size_t i = 0; i < 2; i++) {
        rig r;
        const pleat_engine_options eo = engine_options(specs[i]);
        const pleat_serving_options so = serving_options();
        pleat_token prompt[90];
        memcpy(prompt, text, sizeof prompt);
        prompt[70] = odd;
        check_context("%s", specs[i]);
        if (rig_make(&r, &eo, &so, 0)) {
            outcome out[3];
            const pleat_request q[3] = {request_of(text + 300, 90, 5), request_of(prompt, 90, 5),
                                        request_of(text + 600, 60, 5)};
            for (uint32_t k = 0; k < 3; k++) submit(r.serving, &q[k], &out[k]);
            run_to_end(r.serving, false);
            for (uint32_t k = 0; k < 3; k++) {
                CHECK(out[k].finish == PLEAT_FINISH_FAILED && out[k].n_tokens == 0);
                CHECK_STATUS(out[k].status, PLEAT_E_RANGE);
            }
        }
        rig_free(&r);
    }
    model = undamaged;
    pleat_model_destroy(&damaged);
}

/* ---- cancelling ---------------------------------------------------------------------------------------------------------- */

enum { WAITS, WAITS_FOR_PREFIX, READS, GENERATES, SWAPPED, N_STATES };

static bool is_in(const pleat__request *r, int state) {
    if (state == WAITS) return !r->has_started;
    if (state == WAITS_FOR_PREFIX) return !r->has_started && PLEAT__WAITING(r)->deferred_version > 0;
    if (state == SWAPPED) return pleat__request_is_swapped(r) && PLEAT__SWAPPED(r)->image.data != NULL;
    if (!pleat__request_runs(r)) return false;
    const uint32_t n_stored = PLEAT__RUNNING(r)->n_stored;
    return state == READS ? n_stored > 0 && n_stored < r->n_prompt : r->stats.n_generated > 0;
}

static void cancel_in(pleat_serving *s, int state) {
    outcome out[2];
    pleat_request_id id;
    const pleat_request q = request_of(text, 150, 20);
    for (uint32_t i = 0; i < 2; i++) {
        const pleat_request other = request_of(text + (state == WAITS_FOR_PREFIX ? 0 : 200 + 200 * i), 140, 20);
        submit(s, &other, &out[i]);
    }
    CHECK_STATUS(pleat_serving_submit(s, &q, &id, NULL), PLEAT_OK);
    pleat__request *r = pleat__serving_request(s, id);
    for (uint32_t i = 0; i < 20 && !is_in(r, state); i++) {
        if (state == SWAPPED && is_in(r, GENERATES))
            pleat__serving_preempt(s, r, true);
        else
            CHECK_STATUS(pleat_serving_step(s, NULL), PLEAT_OK);
        take_events(s);
    }
    CHECK(is_in(r, state));
    CHECK_STATUS(pleat_serving_cancel(s, id), PLEAT_OK);
    CHECK_STATUS(pleat_serving_cancel(s, id), PLEAT_E_ARG);
    CHECK(pleat_serving_is_valid(s));
    run_to_end(s, false);
    CHECK(out[0].finish == PLEAT_FINISH_LENGTH && out[1].finish == PLEAT_FINISH_LENGTH);
}

static void test_cancel_in_every_state(void) {
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    const pleat_engine_options eo = engine_options("k8v4");
    pleat_serving_options so = serving_options();
    so.preemption = PLEAT_PREEMPT_SWAP;
    for (int state = WAITS; state < N_STATES; state++) {
        rig r;
        check_context("state %d", state);
        if (rig_make(&r, &eo, &so, 0)) cancel_in(r.serving, state);
        rig_free(&r);
    }
}

/* ---- memory ------------------------------------------------------------------------------------------------------------ */

/* Three requests, one of them swapped, with the nth allocation failing: whatever fails can be tried again. */
static bool run_with_failure(pleat_engine *engine, check_alloc *ca, outcome *out) {
    pleat_serving_options so = serving_options();
    pleat_serving *s = NULL;
    so.allocator = &ca->a;
    so.preemption = PLEAT_PREEMPT_SWAP;
    pleat_status status = pleat_serving_create(engine, &so, &s, NULL);
    if (status != PLEAT_OK) {
        CHECK_STATUS(status, PLEAT_E_MEMORY);
        CHECK_EQ_U64(ca->live, 0);
        status = pleat_serving_create(engine, &so, &s, NULL);
    }
    if (!CHECK_STATUS(status, PLEAT_OK)) return false;
    for (uint32_t i = 0; i < 3; i++) {
        pleat_request q = request_of(text + (i == 2 ? 0 : 300 * i), 70 + i, 8);
        pleat_request_id id;
        if (i == 1) q.sampling.temperature = 1;
        q.user = &out[i];
        out[i] = (outcome){0};
        status = pleat_serving_submit(s, &q, &id, NULL);
        if (status != PLEAT_OK) CHECK_STATUS(status, PLEAT_E_MEMORY);
        if (status != PLEAT_OK) CHECK_STATUS(pleat_serving_submit(s, &q, &id, NULL), PLEAT_OK);
    }
    for (uint32_t i = 0; (status = pleat_serving_step(s, NULL)) != PLEAT_AGAIN && check_failures() == 0; i++) {
        take_events(s);
        if (status != PLEAT_OK) CHECK_STATUS(status, PLEAT_E_MEMORY);
        CHECK(pleat_serving_is_valid(s));
        if (i == 3 && s->n_running > 1) pleat__serving_preempt(s, s->running[0], true);
    }
    take_events(s);
    pleat_serving_destroy(&s);
    CHECK_EQ_U64(ca->live, 0);
    return true;
}

static void test_allocation_failure(void) {
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    const pleat_engine_options eo = engine_options("k8v4");
    pleat_engine *engine = NULL;
    if (!CHECK_STATUS(pleat_engine_create(model, &eo, &engine, NULL), PLEAT_OK)) return;
    outcome first[3], out[3];
    check_alloc ca;
    check_alloc_init(&ca, 0, 0);
    if (!run_with_failure(engine, &ca, first)) return;
    const uint64_t n = ca.count;
    CHECK(n > 15);
    for (uint64_t nth = 1; nth <= n && check_failures() == 0; nth++) {
        check_context("allocation %llu of %llu", (unsigned long long)nth, (unsigned long long)n);
        check_alloc_init(&ca, nth, 0);
        if (!run_with_failure(engine, &ca, out)) break;
        check_same(out, first, 3);
    }
    pleat_cache_usage u;
    CHECK_STATUS(pleat_engine_get_usage(engine, (pleat_seq){0}, &u), PLEAT_OK);
    CHECK_EQ_U64(u.pages_used, 0);
    pleat_engine_destroy(&engine);
}

static const check_test tests[] = {
    {"refusals", test_refusals},
    {"bad_options", test_bad_options},
    {"one_fails", test_one_fails},
    {"one_fails_on_rings", test_one_fails_on_rings},
    {"lost_alone", test_lost_alone},
    {"pages_not_found", test_pages_not_found},
    {"damaged_weights", test_damaged_weights},
    {"cancel_in_every_state", test_cancel_in_every_state},
    {"allocation_failure", test_allocation_failure},
};

int main(int argc, char **argv) {
    const int rc = check_main(tests, CHECK_COUNT(tests), argc, argv);
    pleat_model_destroy(&model);
    return rc;
}
