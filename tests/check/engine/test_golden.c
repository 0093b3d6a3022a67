/* SPDX-License-Identifier: MIT
 *
 * test_golden.c: the reference model against an independent float32 forward pass (eval/golden-*.json).
 *
 * A golden case is a prompt's token ids, the ten largest logits after it, the greedy continuation and, for some, the
 * mean negative log-likelihood of the prompt's tokens from the second on.  Then what must not matter: the thread count
 * and what else shares a step (bit for bit), how the prompt is cut into chunks (f32: same text), 8-bit pages (same
 * text).
 *
 * The long cases are left out where CHECK_QUICK is set.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_rig.h"

#define F16_MODEL "../shared/model/pleat-28m-f16.gguf"
#define MAX_CASES 8u
#define N_TOP 10u
#define QUICK_TOKENS 500u /* longest prompt where CHECK_QUICK is set */

/* ---- the file ------------------------------------------------------------------------------------- */

typedef struct golden_case {
    char name[32];
    pleat_token *prompt; /* [n_prompt] */
    uint32_t n_prompt;
    pleat_token top_ids[N_TOP];
    double top_logits[N_TOP];
    pleat_token *greedy; /* [n_greedy] */
    uint32_t n_greedy;
    bool has_nll;
    double mean_nll;
} golden_case;

typedef struct golden {
    golden_case cases[MAX_CASES];
    uint32_t n_cases;
} golden;

static uint32_t read_ids(const json_t *array, pleat_token **out) {
    const uint32_t n = (uint32_t)json_array_size(array);
    *out = malloc((n + 1) * sizeof **out);
    for (uint32_t i = 0; i < n; i++) (*out)[i] = (pleat_token)json_integer_value(json_array_get(array, i));
    return n;
}

static void read_case(const json_t *object, golden_case *c) {
    snprintf(c->name, sizeof c->name, "%s", json_string_value(json_object_get(object, "name")));
    c->n_prompt = read_ids(json_object_get(object, "prompt_ids"), &c->prompt);
    c->n_greedy = read_ids(json_object_get(object, "greedy_ids"), &c->greedy);
    const json_t *top = json_object_get(object, "top10");
    for (uint32_t i = 0; i < N_TOP; i++) {
        c->top_ids[i] = (pleat_token)json_integer_value(json_array_get(json_array_get(top, i), 0));
        c->top_logits[i] = json_number_value(json_array_get(json_array_get(top, i), 1));
    }
    const json_t *nll = json_object_get(object, "mean_nll");
    c->has_nll = nll != NULL;
    c->mean_nll = json_number_value(nll);
}

/* 1 if the file was read.  max_prompt leaves out longer cases. */
static int golden_read(const char *path, uint32_t max_prompt, golden *g) {
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    if (!CHECK(root != NULL)) return 0;
    size_t i;
    json_t *object;
    g->n_cases = 0;
    json_array_foreach(json_object_get(root, "cases"), i, object) {
        if (json_array_size(json_object_get(object, "prompt_ids")) > max_prompt) continue;
        if (!CHECK(g->n_cases < MAX_CASES)) break;
        read_case(object, &g->cases[g->n_cases++]);
    }
    json_decref(root);
    return CHECK(g->n_cases > 0);
}

static void golden_free(golden *g) {
    for (uint32_t i = 0; i < g->n_cases; i++) {
        free(g->cases[i].prompt);
        free(g->cases[i].greedy);
    }
}

/* ---- an engine and a run --------------------------------------------------------------------------- */

typedef struct rig {
    pleat_model *model;
    pleat_workers *workers;
    pleat_engine *engine;
    uint32_t n_vocab;
} rig;

static void rig_free(rig *r) {
    pleat_engine_destroy(&r->engine);
    pleat_workers_destroy(&r->workers);
    pleat_model_destroy(&r->model);
}

static int rig_make(rig *r, const char *path, const char *spec, uint32_t n_threads, uint32_t max_seqs) {
    pleat_model_info info;
    pleat_engine_options opt = engine_options_of(spec);
    *r = (rig){.model = model_of(path)};
    if (r->model && CHECK_STATUS(pleat_workers_create(n_threads, NULL, &r->workers), PLEAT_OK)) {
        pleat_model_get_info(r->model, &info);
        r->n_vocab = info.n_vocab;
        opt.workers = r->workers;
        opt.max_seqs = max_seqs;
        opt.max_tokens = 1024;
        opt.chunk_tokens = 1024;
        opt.step_tokens = 1024 + max_seqs;
        r->engine = engine_made(r->model, &opt);
    }
    if (!r->engine) rig_free(r);
    return r->engine != NULL;
}

/* A greedy continuation and the logits that led to it. */
typedef struct trace {
    pleat_token ids[64];
    float *logits; /* [n][n_vocab] */
    uint32_t n;
} trace;

/* A case on its way through an engine. */
typedef struct runner {
    const golden_case *c;
    pleat_seq seq;
    uint32_t n_fed; /* tokens handed in */
    uint32_t chunk_tokens;
    trace t;
} runner;

static void runner_start(runner *run, const rig *r, const golden_case *c, uint32_t chunk_tokens) {
    *run = (runner){.c = c, .chunk_tokens = chunk_tokens};
    run->t.logits = malloc((size_t)c->n_greedy * r->n_vocab * sizeof(float));
    CHECK_STATUS(pleat_engine_open(r->engine, c->n_prompt + c->n_greedy, &run->seq), PLEAT_OK);
}

static bool runner_is_done(const runner *run) { return run->t.n == run->c->n_greedy; }

static pleat_engine_item runner_next(runner *run, const rig *r) {
    const golden_case *c = run->c;
    pleat_engine_item item = {.seq = run->seq};
    if (run->n_fed < c->n_prompt) {
        const uint32_t left = c->n_prompt - run->n_fed;
        item.tokens = c->prompt + run->n_fed;
        item.n_tokens = left < run->chunk_tokens ? left : run->chunk_tokens;
    } else {
        item.tokens = &run->t.ids[run->t.n - 1];
        item.n_tokens = 1;
    }
    run->n_fed += item.n_tokens;
    if (run->n_fed >= c->n_prompt) {
        item.n_logits = 1;
        item.logits = run->t.logits + (size_t)run->t.n * r->n_vocab;
    }
    return item;
}

static void runner_take(runner *run, const pleat_engine_item *item, uint32_t n_vocab) {
    if (item->n_logits > 0) run->t.ids[run->t.n++] = likeliest(item->logits, n_vocab);
}

/* Run one case alone.  The caller frees the trace's logits. */
static trace run_alone(const rig *r, const golden_case *c, uint32_t chunk_tokens) {
    runner run;
    runner_start(&run, r, c, chunk_tokens);
    while (!runner_is_done(&run)) {
        const pleat_engine_item item = runner_next(&run, r);
        if (!CHECK_STATUS(pleat_engine_step(r->engine, &item, 1, NULL), PLEAT_OK)) break;
        runner_take(&run, &item, r->n_vocab);
    }
    CHECK_STATUS(pleat_engine_close(r->engine, run.seq), PLEAT_OK);
    return run.t;
}

static int is_golden_text(const trace *t, const golden_case *c) {
    return CHECK_EQ_U64(t->n, c->n_greedy) && CHECK_EQ_MEM(t->ids, c->greedy, c->n_greedy * sizeof(pleat_token));
}

static uint32_t longest_prompt(void) { return (uint32_t)check_rounds(UINT32_MAX, QUICK_TOKENS); }

/* ---- golden ------------------------------------------------------------------------------------------ */

static double mean_nll(const rig *r, const golden_case *c) {
    const size_t n_vocab = r->n_vocab;
    float *logits = malloc(c->n_prompt * n_vocab * sizeof(float));
    pleat_seq seq;
    CHECK_STATUS(pleat_engine_open(r->engine, c->n_prompt, &seq), PLEAT_OK);
    const pleat_engine_item item = {seq, c->prompt, c->n_prompt, c->n_prompt, logits, 0};
    CHECK_STATUS(pleat_engine_step(r->engine, &item, 1, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_engine_close(r->engine, seq), PLEAT_OK);
    double nll = 0;
    for (uint32_t t = 0; t + 1 < c->n_prompt; t++) {
        const float *row = logits + t * n_vocab;
        const double max = (double)row[likeliest(row, r->n_vocab)];
        double sum = 0;
        for (size_t i = 0; i < n_vocab; i++) sum += exp((double)row[i] - max);
        nll += max + log(sum) - (double)row[c->prompt[t + 1]];
    }
    free(logits);
    return nll / (c->n_prompt - 1);
}

static void check_golden(const char *model_path, const char *golden_path) {
    golden g;
    rig r;
    if (!golden_read(golden_path, longest_prompt(), &g)) return;
    if (rig_make(&r, model_path, "f32", 2, 1)) {
        for (uint32_t i = 0; i < g.n_cases; i++) {
            const golden_case *c = &g.cases[i];
            check_context("%s: %s", golden_path, c->name);
            trace t = run_alone(&r, c, 512);
            for (uint32_t j = 0; j < N_TOP; j++) CHECK_NEAR((double)t.logits[c->top_ids[j]], c->top_logits[j], 2e-3);
            is_golden_text(&t, c);
            if (c->has_nll) CHECK_NEAR(mean_nll(&r, c), c->mean_nll, 1e-3);
            free(t.logits);
        }
        CHECK(pleat_engine_is_valid(r.engine));
        rig_free(&r);
    }
    golden_free(&g);
}

static void test_q8_0(void) { check_golden(REFERENCE_MODEL, "eval/golden-q8_0.json"); }

static void test_f16(void) {
    FILE *file = fopen(F16_MODEL, "rb");
    if (!file) SKIP(F16_MODEL " is not there");
    fclose(file);
    check_golden(F16_MODEL, "eval/golden-f16.json");
}

/* 8-bit pages keep every greedy answer. */
static void test_k8v8(void) {
    golden g;
    rig r;
    if (!golden_read("eval/golden-q8_0.json", longest_prompt(), &g)) return;
    if (rig_make(&r, REFERENCE_MODEL, "k8v8", 2, 1)) {
        for (uint32_t i = 0; i < g.n_cases; i++) {
            check_context("k8v8: %s", g.cases[i].name);
            trace t = run_alone(&r, &g.cases[i], 512);
            is_golden_text(&t, &g.cases[i]);
            free(t.logits);
        }
        rig_free(&r);
    }
    golden_free(&g);
}

/* ---- what must not matter ------------------------------------------------------------------------------ */

/* However a prompt is cut, f32 pages give the same text. */
static void test_splits(void) {
    static const uint32_t chunks[] = {1024, 512, 200, 63, 9, 8, 1};
    golden g;
    rig r;
    if (!golden_read("eval/golden-q8_0.json", QUICK_TOKENS, &g)) return;
    if (rig_make(&r, REFERENCE_MODEL, "f32", 2, 1)) {
        for (uint32_t i = 0; i < g.n_cases; i++)
            for (size_t j = 0; j < CHECK_COUNT(chunks); j++) {
                check_context("%s in chunks of %u", g.cases[i].name, chunks[j]);
                trace t = run_alone(&r, &g.cases[i], chunks[j]);
                is_golden_text(&t, &g.cases[i]);
                for (uint32_t k = 0; k < N_TOP; k++)
                    CHECK_NEAR((double)t.logits[g.cases[i].top_ids[k]], g.cases[i].top_logits[k], 2e-3);
                free(t.logits);
            }
        rig_free(&r);
    }
    golden_free(&g);
}

/* All cases at once, each entering a step later than the one before, in chunks of different sizes; `alone` holds each
 * one's own run. */
static void run_shared(const rig *r, const golden *g, const uint32_t *chunks, const trace *alone) {
    runner runs[MAX_CASES];
    pleat_engine_item items[MAX_CASES];
    runner *of_item[MAX_CASES];
    for (uint32_t i = 0; i < g->n_cases; i++) runner_start(&runs[i], r, &g->cases[i], chunks[i]);
    for (uint32_t step = 0;; step++) {
        uint32_t n_items = 0;
        for (uint32_t i = 0; i < g->n_cases && i <= step; i++) {
            if (runner_is_done(&runs[i])) continue;
            of_item[n_items] = &runs[i];
            items[n_items++] = runner_next(&runs[i], r);
        }
        if (n_items == 0 || !CHECK_STATUS(pleat_engine_step(r->engine, items, n_items, NULL), PLEAT_OK)) break;
        for (uint32_t i = 0; i < n_items; i++) runner_take(of_item[i], &items[i], r->n_vocab);
    }
    for (uint32_t i = 0; i < g->n_cases; i++) {
        check_context("%s shares its steps", g->cases[i].name);
        CHECK_EQ_MEM(runs[i].t.logits, alone[i].logits, (size_t)alone[i].n * r->n_vocab * sizeof(float));
        CHECK_STATUS(pleat_engine_close(r->engine, runs[i].seq), PLEAT_OK);
        free(runs[i].t.logits);
    }
}

/* The logits of a case alone on one thread, alone on two and in company on two are the same bits. */
static void check_bits(const char *spec) {
    static const uint32_t chunks[MAX_CASES] = {5, 16, 101, 300, 77, 8, 9, 40};
    golden g;
    rig one, two;
    trace alone[MAX_CASES];
    if (!golden_read("eval/golden-q8_0.json", longest_prompt(), &g)) return;
    if (rig_make(&one, REFERENCE_MODEL, spec, 1, 1)) {
        for (uint32_t i = 0; i < g.n_cases; i++) alone[i] = run_alone(&one, &g.cases[i], chunks[i]);
        if (rig_make(&two, REFERENCE_MODEL, spec, 2, MAX_CASES)) {
            for (uint32_t i = 0; i < g.n_cases; i++) {
                check_context("%s: %s on two threads", spec, g.cases[i].name);
                trace t = run_alone(&two, &g.cases[i], chunks[i]);
                CHECK_EQ_MEM(t.logits, alone[i].logits, (size_t)t.n * two.n_vocab * sizeof(float));
                free(t.logits);
            }
            run_shared(&two, &g, chunks, alone);
            rig_free(&two);
        }
        for (uint32_t i = 0; i < g.n_cases; i++) free(alone[i].logits);
        rig_free(&one);
    }
    golden_free(&g);
}

static void test_bits_f32(void) { check_bits("f32"); }
static void test_bits_k8v4(void) { check_bits("k8v4"); }

int main(int argc, char **argv) {
    static const check_test tests[] = {
        {"q8_0", test_q8_0},     {"f16", test_f16},           {"k8v8", test_k8v8},
        {"splits", test_splits}, {"bits_f32", test_bits_f32}, {"bits_k8v4", test_bits_k8v4},
    };
    return check_main(tests, CHECK_COUNT(tests), argc, argv);
}
