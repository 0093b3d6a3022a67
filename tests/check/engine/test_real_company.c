/* SPDX-License-Identifier: MIT
 *
 * ctest-labels: slow
 *
 * test_real_company.c: every family of KV specs on two real models (tools/real_models.sh, in build/real if at all): each
 * runs, with finite logits, and a sequence has the same bits alone on one thread as beside another on two.
 */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "model_rig.h"

/* A prompt of which kvcomp and kivi code some. */
enum { PROMPT = 280, BESIDE = 30, STEPS = 4, MAX_TOKENS = 512 };

static const char *const specs[] = {
    "f16",
    "k8v4",
    "k4v2",
    "leankv",
    "topk:keep=50%",
    "h2o:budget=50%",
    "snapkv:budget=50%",
    "pyramidkv:budget=50%",
    "adakv:budget=50%",
    "streaming:budget=50%",
    "recent:budget=50%",
    "random:budget=50%",
    "snapkv:budget=50%+kvcrush",
    "snapkv:budget=50%+merge",
    "kvcomp",
    "kvcomp+pack",
    "kivi:bits=2",
};

static pleat_engine *engine_of(const pleat_model *model, const char *spec, pleat_workers *workers) {
    pleat_engine_options opt = engine_options_of(spec);
    opt.max_tokens = MAX_TOKENS;
    opt.max_seqs = 2;
    opt.step_tokens = PROMPT + BESIDE;
    opt.workers = workers;
    return engine_made(model, &opt);
}

static int is_finite(const float *x, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return 0;
    return 1;
}

/* One sequence of `tokens`, and in `shared` one of their second half beside it: a prompt, then single tokens. */
static void run_both(pleat_engine *shared, pleat_engine *alone, const pleat_token *tokens, uint32_t n_vocab) {
    float *logits[3];
    pleat_seq seq, own, beside;
    for (uint32_t i = 0; i < 3; i++) logits[i] = malloc(n_vocab * sizeof(float));
    CHECK_STATUS(pleat_engine_open(shared, MAX_TOKENS, &seq), PLEAT_OK);
    CHECK_STATUS(pleat_engine_open(shared, MAX_TOKENS, &beside), PLEAT_OK);
    CHECK_STATUS(pleat_engine_open(alone, MAX_TOKENS, &own), PLEAT_OK);
    for (uint32_t step = 0, at = 0, at_b = PROMPT / 2; step <= STEPS; step++) {
        const uint32_t n = step ? 1 : PROMPT, n_b = step ? 1 : BESIDE;
        const pleat_engine_item both[2] = {{seq, tokens + at, n, 1, logits[0], 0},
                                           {beside, tokens + at_b, n_b, 1, logits[1], 0}};
        const pleat_engine_item item = {own, tokens + at, n, 1, logits[2], 0};
        if (!CHECK_STATUS(pleat_engine_step(shared, both, 2, NULL), PLEAT_OK)) break;
        if (!CHECK_STATUS(pleat_engine_step(alone, &item, 1, NULL), PLEAT_OK)) break;
        CHECK(is_finite(logits[0], n_vocab) && is_finite(logits[1], n_vocab));
        CHECK_EQ_MEM(logits[0], logits[2], n_vocab * sizeof(float));
        at += n;
        at_b += n_b;
    }
    for (uint32_t i = 0; i < 3; i++) free(logits[i]);
}

static void try_model(const char *path) {
    pleat_token tokens[PROMPT + STEPS];
    pleat_model_info info;
    pleat_workers *workers = NULL;
    pleat_model *model = model_of(path);
    if (!model) return;
    pleat_model_get_info(model, &info);
    CHECK_STATUS(pleat_workers_create(2, NULL, &workers), PLEAT_OK);
    for (uint32_t i = 0; i < PROMPT + STEPS; i++) tokens[i] = (pleat_token)check_between(1000, 40000);
    for (size_t i = 0; i < CHECK_COUNT(specs); i++) {
        check_context("%s, %s", path, specs[i]);
        pleat_engine *shared = engine_of(model, specs[i], workers), *alone = engine_of(model, specs[i], NULL);
        if (shared && alone) run_both(shared, alone, tokens, info.n_vocab);
        pleat_engine_destroy(&shared);
        pleat_engine_destroy(&alone);
    }
    pleat_workers_destroy(&workers);
    pleat_model_destroy(&model);
}

static void test_smollm2(void) {
    static const char path[] = "build/real/SmolLM2-135M-Instruct.Q4_1.gguf";
    if (access(path, R_OK) != 0) SKIP("no build/real: make real-models");
    try_model(path);
}

static void test_gemma3(void) {
    static const char path[] = "build/real/gemma-3-270m-q4_k_m.gguf";
    if (access(path, R_OK) != 0) SKIP("no build/real: make real-models");
    try_model(path);
}

static const check_test tests[] = {{"smollm2", test_smollm2}, {"gemma3", test_gemma3}};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
