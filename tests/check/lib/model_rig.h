/* SPDX-License-Identifier: MIT
 *
 * model_rig.h: the reference model, engines on it, and the likeliest token: for tests that run a model.
 */
#ifndef CHECK_MODEL_RIG_H
#define CHECK_MODEL_RIG_H

#include "check.h"
#include "model/internal.h"
#include "pleat/pleat.h"

#define REFERENCE_MODEL "models/pleat-28m-q8_0.gguf"

/* NULL, and a failed check with the reader's words, if it cannot be loaded. */
static inline pleat_model *model_of(const char *path) {
    pleat_model *model = NULL;
    pleat_error err = {0};
    const pleat_status status = pleat_model_load(path, NULL, &model, &err);
    if (status != PLEAT_OK) check_context("%s: %s", path, err.text);
    CHECK_STATUS(status, PLEAT_OK);
    return model;
}

/* With CHECK_LEAST it has its first n_layers alone, and its first tokens. */
#define LEAST_TOKENS 512u
static inline void make_least(pleat_model *model, uint32_t n_layers) {
    if (!model) return;
    const uint32_t n_all = model->info.n_layers, n = (uint32_t)check_cases(n_all, n_layers);
    for (uint32_t i = n; i < n_all; i++) model->info.n_windowed -= model->layers[i].window > 0;
    model->info.n_layers = n;
    model->info.n_vocab = (uint32_t)check_cases(model->info.n_vocab, LEAST_TOKENS);
    model->embedding.rows = model->output.rows = model->info.n_vocab;
}

/* Tokens that a model has which was made so. */
static inline void make_tokens_least(pleat_token *tokens, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) tokens[i] %= (pleat_token)check_cases(INT32_MAX, LEAST_TOKENS);
}

static inline pleat_engine_options engine_options_of(const char *spec) {
    pleat_engine_options opt;
    pleat_engine_options_default(&opt);
    CHECK_STATUS(pleat_spec_parse(spec, &opt.spec, NULL), PLEAT_OK);
    return opt;
}

/* NULL, and a failed check with the engine's words, if it cannot be made. */
static inline pleat_engine *engine_made(const pleat_model *model, const pleat_engine_options *opt) {
    pleat_engine *engine = NULL;
    pleat_error err = {0};
    const pleat_status status = pleat_engine_create(model, opt, &engine, &err);
    if (status != PLEAT_OK) check_context("%s", err.text);
    CHECK_STATUS(status, PLEAT_OK);
    return engine;
}

/* The lowest id among the largest. */
static inline pleat_token likeliest(const float *logits, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return (pleat_token)best;
}

/* `full` tokens, or `quick` in slow builds and where scalar code would take minutes. */
static inline uint32_t model_rounds(uint32_t full, uint32_t quick) {
    return (pleat_cpu_flags() & PLEAT_CPU_AVX2) ? (uint32_t)check_rounds(full, quick) : quick;
}

#endif
