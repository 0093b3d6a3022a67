/* SPDX-License-Identifier: MIT
 *
 * text_rig.h: eval/prose.txt in the reference model's tokens, and engines that read it: for tests of engines on a GPU.
 */
#ifndef CHECK_TEXT_RIG_H
#define CHECK_TEXT_RIG_H

#include <stdlib.h>

#include "model_rig.h"

typedef struct text {
    pleat_model *model;
    pleat_model_info info;
    pleat_token *tokens;
    uint32_t n;
} text;

/* n_layers: with CHECK_LEAST; two where it counts what a layer leaves to the next. */
static inline text text_new(uint32_t n_layers) {
    text t = {.model = model_of(REFERENCE_MODEL)};
    make_least(t.model, n_layers);
    size_t n_bytes;
    char *prose = (char *)check_read_file("eval/prose.txt", &n_bytes);
    pleat_model_get_info(t.model, &t.info);
    t.tokens = malloc(n_bytes * sizeof *t.tokens);
    CHECK_STATUS(pleat_model_tokenize(t.model, prose, n_bytes, 0, t.tokens, (uint32_t)n_bytes, &t.n, NULL), PLEAT_OK);
    free(prose);
    make_tokens_least(t.tokens, t.n);
    return t;
}

static inline void text_free(text *t) {
    free(t->tokens);
    pleat_model_destroy(&t->model);
}

static inline pleat_engine *engine_on(const text *t, const char *spec, int devices, uint32_t max_seqs,
                                      pleat_workers *w) {
    pleat_engine_options opt = engine_options_of(spec);
    opt.max_seqs = max_seqs;
    opt.max_tokens = 2048;
    opt.chunk_tokens = 2048;
    opt.step_tokens = 4096;
    opt.devices = (uint32_t)devices;
    opt.workers = w;
    return engine_made(t->model, &opt);
}

static inline pleat_status step_one(pleat_engine *e, pleat_seq seq, const pleat_token *tokens, uint32_t n,
                                    float *logits, pleat_token *likeliest) {
    pleat_error err = {0};
    const pleat_engine_item item = {.seq = seq, .tokens = tokens, .n_tokens = n, .n_logits = 1, .logits = logits};
    const pleat_status status = pleat_engine_step_likeliest(e, &item, 1, likeliest, &err);
    if (status != PLEAT_OK) check_context("%s", err.text);
    return status;
}

#endif
