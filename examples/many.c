/* SPDX-License-Identifier: MIT
 *
 * many.c: many requests on one engine: continuous batching over one pool of pages.
 *
 *     many MODEL.gguf KV-SPEC PROMPT...
 *
 * Submits every prompt, then runs steps until all requests have finished.  Each gets the text that it would get alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pleat/pleat.h>

enum { MAX_REQUESTS = 256, MAX_RUNNING = 4, GENERATED = 24, MAX_PROMPT = 2048 };

static struct answer {
    const char *prompt;
    uint32_t n_tokens;
    pleat_token tokens[GENERATED];
} answers[MAX_REQUESTS];
static pleat_error err; /* says what is wrong where a status alone does not */

static void must(pleat_status status) {
    if (status == PLEAT_OK) return;
    fprintf(stderr, "many: %s\n", err.text[0] ? err.text : pleat_status_str(status));
    exit(1);
}

static void submit(pleat_serving *serving, const pleat_model *model, const char *text, struct answer *a) {
    pleat_token ids[MAX_PROMPT]; /* submit copies them */
    pleat_request request;
    pleat_request_id id; /* for pleat_serving_cancel() */
    pleat_request_default(&request);
    must(pleat_model_tokenize(model, text, strlen(text), PLEAT_TOKENIZE_ADD_BOS, ids, MAX_PROMPT, &request.n_prompt,
                              &err));
    a->prompt = text;
    request.prompt = ids;
    request.n_predict = GENERATED;
    request.user = a; /* events bring it back */
    must(pleat_serving_submit(serving, &request, &id, &err));
}

/* Take what a step brought to a request.  1 if it has finished, else 0. */
static uint32_t take_event(const pleat_model *model, const pleat_serving_event *event) {
    struct answer *a = event->user;
    if (event->token >= 0) a->tokens[a->n_tokens++] = event->token;
    if (event->finish == PLEAT_FINISH_NOT) return 0;
    if (event->finish == PLEAT_FINISH_FAILED) must(event->status);
    printf("%s ...", a->prompt);
    for (uint32_t i = 0; i < a->n_tokens; i++) {
        size_t n_bytes;
        const char *bytes = pleat_model_token_text(model, a->tokens[i], &n_bytes);
        fwrite(bytes, 1, n_bytes, stdout);
    }
    printf("\n");
    return 1;
}

int main(int argc, char **argv) {
    pleat_model *model = NULL;
    pleat_engine *engine = NULL;
    pleat_engine_options options;
    pleat_serving *serving = NULL;
    pleat_serving_options serving_options;
    const uint32_t n_requests = argc > 3 ? (uint32_t)argc - 3 : 0;
    if (n_requests < 1 || n_requests > MAX_REQUESTS) {
        fprintf(stderr, "usage: many MODEL.gguf KV-SPEC PROMPT... (%d at most)\n", MAX_REQUESTS);
        return 2;
    }
    must(pleat_model_load(argv[1], NULL, &model, &err));
    pleat_engine_options_default(&options);
    must(pleat_spec_parse(argv[2], &options.spec, &err));
    options.max_items = MAX_RUNNING;                          /* the others wait */
    options.max_seqs = MAX_RUNNING + 4;                       /* four to keep what prompts begin with alike */
    options.step_tokens = options.chunk_tokens + MAX_RUNNING; /* part of a prompt, and a token of everybody else */
    must(pleat_engine_create(model, &options, &engine, &err));
    pleat_serving_options_default(&serving_options);
    must(pleat_serving_create(engine, &serving_options, &serving, &err));
    for (uint32_t i = 0; i < n_requests; i++) submit(serving, model, argv[3 + i], &answers[i]);
    for (uint32_t n_done = 0, n_events; n_done < n_requests;) { /* more may be submitted between steps */
        must(pleat_serving_step(serving, &err));
        const pleat_serving_event *events = pleat_serving_events(serving, &n_events);
        for (uint32_t i = 0; i < n_events; i++) n_done += take_event(model, &events[i]);
    }
    pleat_serving_destroy(&serving);
    pleat_engine_destroy(&engine);
    pleat_model_destroy(&model);
    return 0;
}
