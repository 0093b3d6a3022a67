/* SPDX-License-Identifier: MIT
 *
 * test_serving.c: serving with the reference model: what comes out is what came out alone, to the token.
 *
 * A set of greedy and sampled requests is run alone first.  Then it is run in company, preempted by swap and by being
 * computed again (at random steps, and for want of pages), and started from kept prefixes, for specs of every kind; each
 * way has to have happened, which the statistics tell.  Further: what a shared prefix takes, compression, bad requests,
 * cancelling in every state, weights that give no numbers, and every allocation failing once.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "engine/serving_internal.h"
#include "model/gguf.h"
#include "pleat/pleat.h"

#define MODEL "models/pleat-28m-q8_0.gguf"
#define TEXT "eval/prose.txt"

enum { CHUNK = 32, PREFIX = 64, MAX_TOKENS = 512, MAX_ITEMS = 6, MAX_SEQS = 40, MOST_REQUESTS = 6, MOST_PREDICT = 48 };

static pleat_model *model;
static pleat_token text[3000];

static bool load_once(void) {
    if (model) return true;
    pleat_error err = {0};
    if (!CHECK_STATUS(pleat_model_load(MODEL, NULL, &model, &err), PLEAT_OK)) return false;
    size_t n_bytes;
    unsigned char *bytes = check_read_file(TEXT, &n_bytes);
    uint32_t n = 0;
    if (!CHECK(bytes != NULL)) return false;
    const pleat_status status = pleat_model_tokenize(model, (char *)bytes, n_bytes < 16000 ? n_bytes : 16000, 0, text,
                                                     CHECK_COUNT(text), &n, NULL);
    free(bytes);
    return CHECK(status == PLEAT_OK || status == PLEAT_E_LIMIT) && CHECK(n >= CHECK_COUNT(text));
}

/* ---- rig ------------------------------------------------------------------------------------------------------------- */

typedef struct rig {
    pleat_engine *engine;
    pleat_serving *serving;
} rig;

static pleat_engine_options engine_options(const char *spec) {
    pleat_engine_options o;
    pleat_engine_options_default(&o);
    CHECK_STATUS(pleat_spec_parse(spec, &o.spec, NULL), PLEAT_OK);
    o.max_seqs = MAX_SEQS;
    o.max_items = MAX_ITEMS;
    o.max_tokens = MAX_TOKENS;
    o.chunk_tokens = CHUNK;
    o.step_tokens = 2 * CHUNK + MAX_ITEMS;
    if (o.spec.policy == PLEAT_POLICY_NONE) o.page_tokens = 16;
    return o;
}

static pleat_serving_options serving_options(void) {
    pleat_serving_options o;
    pleat_serving_options_default(&o);
    o.max_requests = 100;
    o.prefix_tokens = PREFIX;
    return o;
}

/* A pool of n_pages, or as large as it can need to be (0). */
static bool rig_make(rig *r, const pleat_engine_options *eo, const pleat_serving_options *so, uint64_t n_pages) {
    pleat_engine_options o = *eo;
    pleat_error err = {0};
    *r = (rig){0};
    if (n_pages > 0) {
        if (!CHECK_STATUS(pleat_engine_create(model, &o, &r->engine, &err), PLEAT_OK)) return false;
        pleat__backend b;
        CHECK_STATUS(pleat__backend_on_engine(r->engine, NULL, &b, NULL), PLEAT_OK);
        o.pool_bytes = n_pages * b.shape.page_bytes;
        b.destroy(b.ctx);
        pleat_engine_destroy(&r->engine);
    }
    if (!CHECK_STATUS(pleat_engine_create(model, &o, &r->engine, &err), PLEAT_OK) ||
        !CHECK_STATUS(pleat_serving_create(r->engine, so, &r->serving, &err), PLEAT_OK)) {
        printf("%s\n", err.text);
        return false;
    }
    return true;
}

/* Nothing is left: not a page. */
static void rig_free(rig *r) {
    pleat_serving_stats s;
    if (r->serving) {
        CHECK(pleat_serving_is_valid(r->serving));
        pleat_serving_forget_prefixes(r->serving);
        pleat_serving_get_stats(r->serving, &s);
        CHECK_EQ_U64(s.pages_used, 0);
        CHECK(pleat_serving_is_valid(r->serving));
    }
    pleat_serving_destroy(&r->serving);
    pleat_engine_destroy(&r->engine);
}

/* ---- requests and what came of them ---------------------------------------------------------------------------------- */

typedef struct outcome {
    pleat_token tokens[MOST_PREDICT];
    uint32_t n_tokens;
    pleat_finish finish;
    pleat_status status;
    pleat_request_stats stats;
} outcome;

typedef struct set {
    pleat_request q[MOST_REQUESTS];
    uint32_t n;
} set;

static pleat_request request_of(const pleat_token *prompt, uint32_t n_prompt, uint32_t n_predict) {
    pleat_request q;
    pleat_request_default(&q);
    q.prompt = prompt;
    q.n_prompt = n_prompt;
    q.n_predict = n_predict;
    q.ignores_end = 1;
    return q;
}

/* Texts of their own, of all lengths around the cuts; one is sampled, one has a breakpoint at no page's end. */
static set some_requests(void) {
    static const uint32_t lengths[MOST_REQUESTS] = {97, 130, 64, 1, 161, 129};
    set all = {.n = MOST_REQUESTS};
    for (uint32_t i = 0; i < all.n; i++) {
        all.q[i] = request_of(text + 300 * i, lengths[i], MOST_PREDICT);
        all.q[i].sampling.seed = 7 + i;
    }
    all.q[1].sampling.temperature = 0.8f;
    all.q[4].breakpoint = 100;
    return all;
}

static void take_events(const pleat_serving *s) {
    uint32_t n;
    const pleat_serving_event *e = pleat_serving_events(s, &n);
    for (uint32_t i = 0; i < n; i++) {
        outcome *o = e[i].user;
        if (!o) continue;
        CHECK(o->finish == PLEAT_FINISH_NOT);
        if (e[i].token >= 0 && CHECK(o->n_tokens < MOST_PREDICT)) o->tokens[o->n_tokens++] = e[i].token;
        o->finish = e[i].finish;
        o->status = e[i].status;
        o->stats = e[i].stats;
    }
}

/* Preempt somebody now and then; the serving's options say how.  Nobody who is alone: that tells serving that the pool is
 * too small. */
static void maybe_preempt(pleat_serving *s) {
    if (s->n_running < 2 || s->stats.preempted_swap + s->stats.preempted_recompute >= 20 || check_below(6)) return;
    pleat__serving_preempt(s, s->running[check_below(s->n_running)], true);
    CHECK(pleat_serving_is_valid(s));
}

static void run_to_end(pleat_serving *s, bool preempts) {
    pleat_error err = {0};
    for (uint32_t i = 0; check_failures() == 0; i++) {
        const pleat_status status = pleat_serving_step(s, &err);
        take_events(s);
        if (status == PLEAT_AGAIN) break;
        if (!CHECK_STATUS(status, PLEAT_OK)) printf("%s\n", err.text);
        if (i % 16 == 0) CHECK(pleat_serving_is_valid(s));
        if (preempts) maybe_preempt(s);
    }
}

static void submit(pleat_serving *s, const pleat_request *q, outcome *o) {
    pleat_request r = *q;
    pleat_request_id id;
    pleat_error err = {0};
    *o = (outcome){0};
    r.user = o;
    if (!CHECK_STATUS(pleat_serving_submit(s, &r, &id, &err), PLEAT_OK)) printf("%s\n", err.text);
}

static void run_set(pleat_serving *s, const set *all, outcome *out, bool preempts) {
    for (uint32_t i = 0; i < all->n; i++) submit(s, &all->q[i], &out[i]);
    run_to_end(s, preempts);
    for (uint32_t i = 0; i < all->n; i++) CHECK(out[i].finish == PLEAT_FINISH_LENGTH);
}

static void check_same(const outcome *a, const outcome *b, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        CHECK_EQ_U64(a[i].n_tokens, b[i].n_tokens);
        if (!CHECK_EQ_MEM(a[i].tokens, b[i].tokens, sizeof a[i].tokens)) printf("of request %u\n", i);
    }
}

/* Each by itself, and nothing kept from one to the next. */
static void run_alone(const char *spec, const set *all, outcome *out) {
    rig r;
    const pleat_engine_options eo = engine_options(spec);
    const pleat_serving_options so = serving_options();
    if (rig_make(&r, &eo, &so, 0)) {
        for (uint32_t i = 0; i < all->n; i++) {
            submit(r.serving, &all->q[i], &out[i]);
            run_to_end(r.serving, false);
            pleat_serving_forget_prefixes(r.serving);
            CHECK_EQ_U64(out[i].stats.n_hit + out[i].stats.n_swapped + out[i].stats.n_recomputed, 0);
        }
    }
    rig_free(&r);
}

/* ---- the same tokens, however they were served ------------------------------------------------------------------------ */

static const char *const specs[] = {"f16",  "leankv:ah=1,al=0.02,window=32", "k8v4", "topk:keep=50%,window=32",
                                    "k4v2", "leankv:ah=3,al=0,window=32",    "f32",  "k8v8"};

typedef struct way {
    const char *name;
    uint64_t n_pages; /* 0: plenty */
    pleat_preemption preemption;
    bool preempts; /* at random */
    bool twice;    /* again with what the first time kept */
} way;

static const way ways[] = {
    {"together", 0, PLEAT_PREEMPT_CHEAPER, false, false},
    {"swapped", 0, PLEAT_PREEMPT_SWAP, true, false},
    {"computed again", 0, PLEAT_PREEMPT_RECOMPUTE, true, false},
    {"from prefixes", 0, PLEAT_PREEMPT_CHEAPER, false, true},
    {"from prefixes, swapped", 0, PLEAT_PREEMPT_SWAP, true, true},
    {"short of pages, swapped", 1, PLEAT_PREEMPT_SWAP, false, false},
    {"short of pages, computed again", 1, PLEAT_PREEMPT_RECOMPUTE, false, true},
};

/* Few enough pages that what is let in, by its prompt, does not find room to the end. */
static uint64_t few_pages(const pleat_engine_options *o) {
    const bool has_policy = o->spec.policy != PLEAT_POLICY_NONE;
    return (uint64_t)32 * (has_policy ? 14 : 24);
}

static void check_way(const char *spec, const set *all, const outcome *alone, const way *w) {
    rig r;
    outcome out[MOST_REQUESTS];
    const pleat_engine_options eo = engine_options(spec);
    pleat_serving_options so = serving_options();
    so.preemption = w->preemption;
    so.low_watermark = so.high_watermark = 1;
    check_context("%s, %s", spec, w->name);
    if (rig_make(&r, &eo, &so, w->n_pages ? few_pages(&eo) : 0)) {
        run_set(r.serving, all, out, w->preempts);
        check_same(out, alone, all->n);
        if (w->twice) run_set(r.serving, all, out, w->preempts);
        if (w->twice) check_same(out, alone, all->n);
        pleat_serving_stats s;
        pleat_serving_get_stats(r.serving, &s);
        printf("%s, %s: most %u swap %llu rec %llu hits %llu evicted %llu idle %llu\n", spec, w->name, s.n_running_most,
               (unsigned long long)s.preempted_swap, (unsigned long long)s.preempted_recompute,
               (unsigned long long)s.hits, (unsigned long long)s.evicted, (unsigned long long)s.n_idle_steps_most);
        CHECK(s.n_running_most > 1 && s.n_idle_steps_most <= 2);
        CHECK(!w->twice || w->n_pages || s.hits >= 4); /* two are too short */
        if (w->preempts || w->n_pages)
            CHECK((w->preemption == PLEAT_PREEMPT_SWAP ? s.preempted_swap : s.preempted_recompute) > 0);
    }
    rig_free(&r);
}

static void test_same_tokens(void) {
    if (!load_once()) return;
    const set all = some_requests();
    const size_t n_specs = check_rounds(CHECK_COUNT(specs), 2);
    for (size_t i = 0; i < n_specs && check_failures() == 0; i++) {
        outcome alone[MOST_REQUESTS];
        check_context("%s, alone", specs[i]);
        run_alone(specs[i], &all, alone);
        const size_t first = i < 2 ? 0 : 4; /* two specs are served in every way */
        for (size_t j = first; j < CHECK_COUNT(ways); j++) check_way(specs[i], &all, alone, &ways[j]);
    }
}

/* ---- prefixes ---------------------------------------------------------------------------------------------------------- */

/* 64 requests with the same 2000 tokens compute them once and hold them once. */
static void test_shared_prefix(void) {
    enum { N = 64, SHARED = 2000, OWN = 6, PREDICT = 3, PAGE = 32, LANES = 32, SPARE_SEQS = 8 };
    if (!load_once()) return;
    rig r;
    pleat_engine_options eo = engine_options("f16");
    pleat_serving_options so = serving_options();
    const uint32_t n_shared = (uint32_t)check_rounds(SHARED, 200);
    eo.page_tokens = PAGE;
    eo.max_tokens = SHARED + OWN + PREDICT;
    eo.max_items = N;
    eo.max_seqs = N + SPARE_SEQS;
    eo.chunk_tokens = 100;
    eo.step_tokens = 500;
    so.prefix_tokens = 500;
    if (!rig_make(&r, &eo, &so, 0)) return;
    static pleat_token prompts[N][SHARED + OWN];
    static outcome out[N];
    uint64_t n_own = 0;
    for (uint32_t i = 0; i < N; i++) {
        const uint32_t n_prompt = n_shared + 1 + i % OWN;
        memcpy(prompts[i], text, n_shared * sizeof text[0]);
        for (uint32_t j = n_shared; j < n_prompt; j++) prompts[i][j] = text[SHARED + 11 * i + j - n_shared];
        pleat_request q = request_of(prompts[i], n_prompt, PREDICT);
        q.breakpoint = n_shared;
        submit(r.serving, &q, &out[i]);
        n_own += n_prompt - n_shared;
    }
    uint64_t most_pages = 0;
    pleat_serving_stats s = {0};
    while (check_failures() == 0 && pleat_serving_step(r.serving, NULL) == PLEAT_OK) {
        take_events(r.serving);
        pleat_serving_get_stats(r.serving, &s);
        if (s.pages_used > most_pages) most_pages = s.pages_used;
    }
    CHECK_EQ_U64(s.prompt_tokens, n_shared + n_own);
    CHECK_EQ_U64(s.hits, N - 1);
    CHECK_EQ_U64(s.hit_tokens, (uint64_t)(N - 1) * n_shared);
    CHECK_EQ_U64(s.n_running_most, N);
    CHECK_EQ_U64(s.preempted_swap + s.preempted_recompute, 0);
    /* The prefix, one page a lane of each request, and of each prefix that is kept beside. */
    const uint64_t columns = (n_shared + PAGE - 1) / PAGE + N + SPARE_SEQS;
    CHECK(most_pages <= columns * LANES && most_pages >= (columns - SPARE_SEQS) * LANES);
    for (uint32_t i = 0; i < N; i++) CHECK(out[i].finish == PLEAT_FINISH_LENGTH && out[i].n_tokens == PREDICT);
    rig_free(&r);
}

/* A conversation: each turn's prompt is all that was said before and a few tokens more, its breakpoints where the prompts
 * before it ended. */
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
        one.q[0].breakpoints = ends; /* the last by the other name */
        one.q[0].n_breakpoints = turn > 0 ? turn - 1 : 0;
        one.q[0].breakpoint = turn > 0 ? ends[turn - 1] : 0;
        run_set(r.serving, &one, &kept, false);
        CHECK_EQ_U64(kept.stats.n_hit, turn > 0 ? ends[turn - 1] : 0);
        run_alone(spec, &one, &alone);
        check_same(&kept, &alone, 1);
        ends[turn] = n;
        memcpy(prompt + n, kept.tokens, PREDICT * sizeof *prompt);
        memcpy(prompt + n + PREDICT, text + 200 + 50 * turn, SAID * sizeof *prompt);
        n += PREDICT + SAID;
    }
    rig_free(&r);
}

static void test_conversation(void) {
    if (!load_once()) return;
    for (size_t i = 0; i < check_rounds(4, 1); i++) {
        check_context("%s", specs[i]);
        converse(specs[i]);
    }
}

/* Salts keep prefixes apart, and a prefix that is under way is waited for. */
static void test_salts_and_promises(void) {
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

/* ---- many ---------------------------------------------------------------------------------------------------------------- */

/* A few dozen requests of tenants and priorities for a pool that holds three or four; some are cancelled, in any state. */
static void oversubscribe(const char *spec, float ah_most) {
    static const pleat_tenant tenants[] = {{"a", 0.5, 2}, {"b", 0.1, 1}};
    enum { N = 36 };
    rig r;
    const pleat_engine_options eo = engine_options(spec);
    pleat_serving_options so = serving_options();
    so.tenants = tenants;
    so.n_tenants = 2;
    so.low_watermark = 0.95;
    if (!rig_make(&r, &eo, &so, few_pages(&eo) * 3 / 2)) return;
    static outcome out[N];
    pleat_request_id ids[N];
    bool is_open[N] = {0};
    uint32_t n = 0, n_cancelled = 0;
    pleat_status status = PLEAT_OK;
    for (uint32_t step = 0; (n < N || status == PLEAT_OK) && check_failures() == 0; step++) {
        while (n < N && check_below(2)) {
            pleat_request q = request_of(text + check_below(4) * 100, (uint32_t)check_between(1, 160),
                                         (uint32_t)check_between(1, MOST_PREDICT));
            q.tenant = tenants[check_below(2)].name;
            q.priority = (int32_t)check_below(2);
            q.ah_most = ah_most;
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
    printf("%s: steps %llu swap %llu rec %llu compressed %llu evicted %llu hits %llu idle %llu\n", spec,
           (unsigned long long)s.n_steps, (unsigned long long)s.preempted_swap,
           (unsigned long long)s.preempted_recompute, (unsigned long long)s.compressed, (unsigned long long)s.evicted,
           (unsigned long long)s.hits, (unsigned long long)s.n_idle_steps_most);
    for (uint32_t i = 0; i < n; i++) CHECK(!is_open[i] || out[i].finish == PLEAT_FINISH_LENGTH);
    CHECK(n_cancelled > 0 && s.n_idle_steps_most <= 2 && s.evicted > 0);
    CHECK((s.compressed > 0) == (ah_most > 0));
    rig_free(&r);
}

static void test_oversubscribed(void) {
    if (!load_once()) return;
    oversubscribe("k8v4", 0);
    oversubscribe("leankv:ah=1,al=0.02,window=32", 0);
    oversubscribe("leankv:ah=1,al=0.02,window=32", 30);
}

/* ---- refusals and failures --------------------------------------------------------------------------------------------- */

/* Each of these is refused with a word of its own, and whoever is there goes on. */
static void test_refusals(void) {
    if (!load_once()) return;
    rig r;
    static const pleat_tenant tenants[] = {{"some", 0.9, 1}, {"poor", 0, 1}};
    const pleat_engine_options eo = engine_options("f16");
    pleat_serving_options so = serving_options();
    so.tenants = tenants;
    so.n_tenants = 2;
    so.max_requests = 2;
    if (!rig_make(&r, &eo, &so, 32 * 20)) return;
    const pleat_token bad[2] = {5, 8192};
    outcome out;
    const pleat_request good = request_of(text, 70, 40);
    submit(r.serving, &good, &out);
    static const struct {
        const char *word;
        pleat_status status;
        uint32_t n_prompt, n_predict, breakpoint;
        uint32_t breakpoints[2];
        const char *tenant;
        float ah, temperature;
        bool has_bad_token;
    } cases[] = {
        {"no prompt", PLEAT_E_ARG, .n_prompt = 0, .n_predict = 1},
        {"n_predict", PLEAT_E_ARG, .n_prompt = 1, .n_predict = 0},
        {"8192", PLEAT_E_ARG, .n_prompt = 2, .n_predict = 1, .has_bad_token = true},
        {"breakpoint", PLEAT_E_ARG, .n_prompt = 2, .n_predict = 1, .breakpoint = 3},
        {"breakpoint at 0", PLEAT_E_ARG, .n_prompt = 2, .n_predict = 1, .breakpoints = {0, 1}},
        {"breakpoint at 3", PLEAT_E_ARG, .n_prompt = 2, .n_predict = 1, .breakpoints = {1, 3}},
        {"ascending", PLEAT_E_ARG, .n_prompt = 2, .n_predict = 1, .breakpoints = {2, 2}},
        {"nobody", PLEAT_E_ARG, .n_prompt = 2, .n_predict = 1, .tenant = "nobody"},
        {"ah_most", PLEAT_E_ARG, .n_prompt = 2, .n_predict = 1, .ah = NAN},
        {"ah_most", PLEAT_E_ARG, .n_prompt = 2, .n_predict = 1, .ah = -1},
        {"temperature", PLEAT_E_ARG, .n_prompt = 2, .n_predict = 1, .temperature = NAN},
        {"512", PLEAT_E_LIMIT, .n_prompt = 500, .n_predict = 13},
        {"512", PLEAT_E_LIMIT, .n_prompt = 500, .n_predict = UINT32_MAX},
        {"640", PLEAT_E_LIMIT, .n_prompt = 400, .n_predict = 1},
        {"'poor'", PLEAT_E_LIMIT, .n_prompt = 60, .n_predict = 1, .tenant = "poor"},
    };
    for (size_t i = 0; i < CHECK_COUNT(cases); i++) {
        pleat_request q = request_of(cases[i].has_bad_token ? bad : text, cases[i].n_prompt, cases[i].n_predict);
        pleat_request_id id = {77};
        pleat_error err = {0};
        q.breakpoint = cases[i].breakpoint;
        if (cases[i].breakpoints[1] > 0) q.breakpoints = cases[i].breakpoints;
        if (cases[i].breakpoints[1] > 0) q.n_breakpoints = 2;
        q.tenant = cases[i].tenant;
        q.ah_most = cases[i].ah;
        q.sampling.temperature = cases[i].temperature;
        CHECK_STATUS(pleat_serving_submit(r.serving, &q, &id, &err), cases[i].status);
        CHECK(err.code == cases[i].status && id.v == 77);
        if (!CHECK(strstr(err.text, cases[i].word) != NULL)) printf("%s\n", err.text);
        CHECK_STATUS(pleat_serving_step(r.serving, NULL), PLEAT_OK);
        take_events(r.serving);
    }
    pleat_request_id id;
    pleat_request q = good;
    q.size_bytes--;
    CHECK_STATUS(pleat_serving_submit(r.serving, &q, &id, NULL), PLEAT_E_ARG);
    CHECK_STATUS(pleat_serving_submit(r.serving, NULL, &id, NULL), PLEAT_E_ARG);
    CHECK_STATUS(pleat_serving_cancel(r.serving, (pleat_request_id){0}), PLEAT_E_ARG);
    CHECK_STATUS(pleat_serving_cancel(r.serving, (pleat_request_id){UINT64_MAX}), PLEAT_E_ARG);
    CHECK_STATUS(pleat_serving_tenant_pages(r.serving, "nobody", NULL, NULL), PLEAT_E_ARG);
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
        if (i == 8) so.prefix_tokens = 33;
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

static pleat_status run_but_odd(void *ctx, const pleat_engine_item *items, uint32_t n_items, pleat_error *err) {
    for (uint32_t i = 0; i < n_items; i++)
        for (uint32_t t = 0; t < items[i].n_tokens; t++)
            if (items[i].tokens[t] == odd) return PLEAT_E_RANGE;
    return whole.run(ctx, items, n_items, err);
}

/* The request with the odd token fails; the others come out as they do alone. */
static void test_one_fails(void) {
    if (!load_once()) return;
    const set all = some_requests();
    pleat_token prompt[90];
    memcpy(prompt, text + 2000, sizeof prompt);
    prompt[70] = odd;
    for (size_t i = 0; i < 2; i++) {
        outcome alone[MOST_REQUESTS], out[MOST_REQUESTS], bad;
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
    char path[256];
    if (CHECK(check_write_temp(file, n_bytes, path, sizeof path))) {
        CHECK_STATUS(pleat_model_load(path, NULL, &damaged, NULL), PLEAT_OK);
        unlink(path);
    }
    free(file);
    return damaged;
}

static void test_damaged_weights(void) {
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

static bool is_in(const pleat__served *r, int state) {
    if (state == WAITS) return !r->has_started;
    if (state == WAITS_FOR_PREFIX) return !r->has_started && r->waits_version > 0;
    if (state == READS) return r->runs && r->n_stored > 0 && r->n_stored < r->n_prompt;
    return state == GENERATES ? r->runs && r->stats.n_generated > 0 : r->image.data != NULL;
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
    pleat__served *r = s->requests[id.v % (s->opt.max_requests + 1)];
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
    {"same_tokens", test_same_tokens},
    {"shared_prefix", test_shared_prefix},
    {"conversation", test_conversation},
    {"salts_and_promises", test_salts_and_promises},
    {"oversubscribed", test_oversubscribed},
    {"refusals", test_refusals},
    {"bad_options", test_bad_options},
    {"one_fails", test_one_fails},
    {"damaged_weights", test_damaged_weights},
    {"cancel_in_every_state", test_cancel_in_every_state},
    {"allocation_failure", test_allocation_failure},
};

int main(int argc, char **argv) {
    const int rc = check_main(tests, CHECK_COUNT(tests), argc, argv);
    pleat_model_destroy(&model);
    return rc;
}
