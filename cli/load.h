/* SPDX-License-Identifier: MIT
 *
 * load.h: a model and its team of threads, as every command that computes needs them.
 */
#ifndef PLEAT_CLI_LOAD_H
#define PLEAT_CLI_LOAD_H

#include "options.h"

typedef struct loaded {
    pleat_model *model;
    pleat_model_info info;
    pleat_workers *workers;
    double load_ms;
} loaded;

/* Start the threads that -t asks for.  CLI_OK, or CLI_FAILED after a message. */
int load_workers(const options *o, pleat_workers **workers);

/* Load -m, read the profiles that o's specs name (the specs and their texts are then what the profiles say), and start
 * the threads.  CLI_OK, or an exit code after a message; *l then holds nothing. */
int load_model(options *o, loaded *l);
void load_release(loaded *l);

/* What load_engine() makes an engine with. */
pleat_engine_options load_engine_options(const options *o, const loaded *l, pleat_spec spec, uint32_t max_seqs,
                                         uint32_t max_tokens, uint32_t step_tokens);

/* Make an engine on l's model and threads with o's chunk size; step_tokens 0 means the engine's default.  Sequences may
 * be shorter than the spec's window, the model's context may not.  CLI_OK, or CLI_FAILED after a message. */
int load_engine(const options *o, const loaded *l, pleat_spec spec, uint32_t max_seqs, uint32_t max_tokens,
                uint32_t step_tokens, pleat_engine **out);
int load_engine_with(const loaded *l, const pleat_engine_options *opt, pleat_engine **out);

/* Tokens of a text; *ids is allocated, the caller frees it.  `what` names the text in a message. */
int load_tokens(const loaded *l, const char *what, const char *text, size_t n_bytes, uint32_t flags, pleat_token **ids,
                uint32_t *n_tokens);

/* The id of the likeliest token; the lowest among equals, as greedy sampling takes it. */
pleat_token greedy_token(const float *logits, uint32_t n_vocab);

#endif
