/* SPDX-License-Identifier: MIT
 *
 * steps.c: what every step of a server does and holds, counted and not timed: with all requests there from the start it
 * is the same each time, and another machine's prices can be put on it.  Prints JSON.
 *
 *     spvllm_steps MODEL SPEC TRACE TEXT POOL_BYTES CONTEXT
 *
 * TRACE is as `pleat bench serve --write-trace` writes it; prompts are cut from TEXT, and answers are drawn (temperature
 * 1) to their full lengths.  Pages of 16 tokens; preempted requests are computed again; no prefix is kept.
 *
 *     fragmentation   of one running request after one step, in hundredths, rounded down: median, 99th percentile,
 *                     and `medians` of the steps 0.., 100.., ..
 *     moving_steps    in which tokens changed their slots when others had been dropped
 *     steps           [requests that run, prompt tokens or tokens computed again, generated tokens, pages in use]
 *     tokens          [request][i] the step that gave its i-th token
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pleat/pleat.h"

enum { PAGE_TOKENS = 16, CHUNK = 512, MAX_RUNNING = 256, SPAN = 100, CLASSES = 101, LINE = 1024, THREADS = 2 };

typedef struct request {
    uint32_t n_prompt, n_output, n_given;
    uint32_t *given; /* [n_output] steps */
} request;

typedef struct step {
    uint32_t n_running, n_prompt, n_generated;
    uint64_t pages;
} step;

typedef struct study {
    pleat_model *model;
    pleat_engine *engine;
    pleat_serving *serving;
    pleat_workers *workers;
    pleat_token *text;
    uint32_t n_text;
    request *requests;
    uint32_t n_requests;
    step *steps;
    uint32_t n_steps, cap;
    int *medians; /* [n_steps / SPAN + 1] */
    uint32_t n_medians, n_moving;
} study;

static void die(const char *what, pleat_status status, const pleat_error *err) {
    fprintf(stderr, "steps: %s: %s%s%s\n", what, pleat_status_str(status), err && err->text[0] ? ": " : "",
            err ? err->text : "");
    exit(1);
}

static void *grown(void *p, size_t n, size_t size) {
    p = realloc(p, n * size);
    if (!p) die("memory", PLEAT_E_MEMORY, NULL);
    return p;
}

/* ---- input ------------------------------------------------------------------------------------- */

static void read_text(study *s, const char *path) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) != 0) die(path, PLEAT_E_IO, NULL);
    const size_t n = (size_t)ftell(f);
    char *text = grown(NULL, n + 1, 1);
    rewind(f);
    if (fread(text, 1, n, f) != n) die(path, PLEAT_E_IO, NULL);
    fclose(f);
    s->text = grown(NULL, n + 1, sizeof *s->text); /* a token has a byte at least */
    const pleat_status status = pleat_model_tokenize(s->model, text, n, 0, s->text, (uint32_t)n, &s->n_text, &err);
    if (status != PLEAT_OK) die(path, status, &err);
    free(text);
}

static uint32_t number_of(const char *line, const char *key) {
    const char *at = strstr(line, key);
    return at ? (uint32_t)strtoul(at + strlen(key), NULL, 10) : 0;
}

static void read_trace(study *s, const char *path) {
    char line[LINE];
    FILE *f = fopen(path, "r");
    if (!f) die(path, PLEAT_E_IO, NULL);
    while (fgets(line, sizeof line, f)) {
        request r = {.n_prompt = number_of(line, "\"prompt_tokens\":"),
                     .n_output = number_of(line, "\"output_tokens\":")};
        if (!r.n_prompt || !r.n_output) continue;
        r.given = grown(NULL, r.n_output, sizeof *r.given);
        s->requests = grown(s->requests, s->n_requests + 1, sizeof *s->requests);
        s->requests[s->n_requests++] = r;
    }
    fclose(f);
}

/* ---- serving ----------------------------------------------------------------------------------- */

static void make_engine(study *s, const char *spec, uint64_t pool_bytes, uint32_t context) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_engine_options opt;
    pleat_engine_options_default(&opt);
    pleat_status status = pleat_spec_parse(spec, &opt.spec, &err);
    if (status != PLEAT_OK) die(spec, status, &err);
    if (pleat_workers_create(THREADS, NULL, &s->workers) != PLEAT_OK) die("threads", PLEAT_E_MEMORY, NULL);
    opt.max_seqs = opt.max_items = MAX_RUNNING;
    opt.max_tokens = context;
    opt.chunk_tokens = CHUNK;
    opt.step_tokens = CHUNK + MAX_RUNNING;
    opt.page_tokens = PAGE_TOKENS;
    opt.pool_bytes = pool_bytes;
    opt.workers = s->workers;
    status = pleat_engine_create(s->model, &opt, &s->engine, &err);
    if (status != PLEAT_OK) die("engine", status, &err);
}

static void make_serving(study *s) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_serving_options opt;
    pleat_serving_options_default(&opt);
    opt.prefix_tokens = 0;
    opt.low_watermark = 0.99; /* as vLLM's: a hundredth of the blocks is left when a request is admitted */
    opt.preemption = PLEAT_PREEMPT_RECOMPUTE;
    const pleat_status status = pleat_serving_create(s->engine, &opt, &s->serving, &err);
    if (status != PLEAT_OK) die("serving", status, &err);
}

/* Where in the text a request's prompt begins: anywhere, but always there. */
static uint32_t place_of(const study *s, uint32_t i) { return (uint32_t)(i * 2654435761ull % s->n_text); }

static void submit(study *s) {
    pleat_token *prompt = NULL;
    for (uint32_t i = 0; i < s->n_requests; i++) {
        const request *r = &s->requests[i];
        pleat_error err = {0, PLEAT_NOWHERE, ""};
        pleat_request wanted;
        pleat_request_id id;
        prompt = grown(prompt, r->n_prompt, sizeof *prompt);
        for (uint32_t j = 0; j < r->n_prompt; j++) prompt[j] = s->text[(place_of(s, i) + j) % s->n_text];
        pleat_request_default(&wanted);
        wanted.prompt = prompt;
        wanted.n_prompt = r->n_prompt;
        wanted.n_predict = r->n_output;
        wanted.ignores_end = 1;
        wanted.sampling.temperature = 1;
        wanted.sampling.seed = i + 1;
        wanted.user = &s->requests[i];
        const pleat_status status = pleat_serving_submit(s->serving, &wanted, &id, &err);
        if (status != PLEAT_OK) die("a request", status, &err);
    }
    free(prompt);
}

/* The percentage that `share` of what came between two counts did not exceed; -1: nothing came. */
static int percentile(const uint64_t *now, const uint64_t *before, double share) {
    uint64_t n = 0, below = 0;
    for (int i = 0; i < CLASSES; i++) n += now[i] - (before ? before[i] : 0);
    for (int i = 0; i < CLASSES && n; i++) {
        below += now[i] - (before ? before[i] : 0);
        if ((double)below >= share * (double)n) return i;
    }
    return -1;
}

/* What came of a step. */
static void note(study *s, const pleat_serving_stats *before, const pleat_serving_stats *now) {
    uint32_t n_events;
    const pleat_serving_event *events = pleat_serving_events(s->serving, &n_events);
    if (s->n_steps == s->cap) s->steps = grown(s->steps, s->cap = 2 * s->cap + 1024, sizeof *s->steps);
    for (uint32_t i = 0; i < n_events; i++) {
        request *r = events[i].user;
        if (events[i].finish == PLEAT_FINISH_FAILED) die("a request", events[i].status, NULL);
        if (events[i].token >= 0) r->given[r->n_given++] = s->n_steps;
    }
    const uint64_t n_prompt =
        now->prompt_tokens - before->prompt_tokens + now->replayed_tokens - before->replayed_tokens;
    s->steps[s->n_steps++] = (step){now->n_running, (uint32_t)n_prompt,
                                    (uint32_t)(now->generated_tokens - before->generated_tokens), now->pages_used};
    s->n_moving += now->tokens_moved > before->tokens_moved;
}

static void serve(study *s, pleat_serving_stats *now) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_status status;
    pleat_serving_stats before, span;
    pleat_serving_get_stats(s->serving, now);
    before = span = *now;
    while ((status = pleat_serving_step(s->serving, &err)) == PLEAT_OK) {
        pleat_serving_get_stats(s->serving, now);
        note(s, &before, now);
        before = *now;
        if (s->n_steps % SPAN) continue;
        s->medians = grown(s->medians, s->n_medians + 1, sizeof *s->medians);
        s->medians[s->n_medians++] = percentile(now->fragmentation, span.fragmentation, 0.5);
        span = *now;
    }
    if (status != PLEAT_AGAIN) die("a step", status, &err);
}

/* ---- output ------------------------------------------------------------------------------------ */

static void print_requests(const study *s) {
    printf(",\n \"tokens\": [");
    for (uint32_t i = 0; i < s->n_requests; i++) {
        const request *r = &s->requests[i];
        printf("%s[", i ? ",\n  " : "");
        for (uint32_t j = 0; j < r->n_given; j++) printf("%s%u", j ? "," : "", r->given[j]);
        printf("]");
    }
    printf("]");
}

static void print_study(const study *s, const char *spec, const pleat_serving_stats *end) {
    pleat_cache_usage usage;
    pleat_engine_options opt;
    pleat_engine_get_options(s->engine, &opt);
    if (pleat_engine_get_usage(s->engine, (pleat_seq){0}, &usage) != PLEAT_OK) die("usage", PLEAT_E_STATE, NULL);
    printf("{\"kv\": \"%s\", \"requests\": %u, \"pages_total\": %llu, \"pool_bytes\": %llu,\n", spec, s->n_requests,
           (unsigned long long)usage.pages_total, (unsigned long long)opt.pool_bytes);
    printf(" \"preempted\": %llu, \"computed_again\": %llu, \"tokens_moved\": %llu, \"moving_steps\": %u,\n",
           (unsigned long long)end->preempted_recompute, (unsigned long long)end->replayed_tokens,
           (unsigned long long)end->tokens_moved, s->n_moving);
    printf(" \"pages_returned\": %llu,\n \"fragmentation\": {\"median\": %d, \"p99\": %d, \"medians\": [",
           (unsigned long long)end->pages_returned, percentile(end->fragmentation, NULL, 0.5),
           percentile(end->fragmentation, NULL, 0.99));
    for (uint32_t i = 0; i < s->n_medians; i++) printf("%s%d", i ? "," : "", s->medians[i]);
    printf("]},\n \"steps\": [");
    for (uint32_t i = 0; i < s->n_steps; i++) {
        const step *t = &s->steps[i];
        printf("%s[%u,%u,%u,%llu]", i ? "," : "", t->n_running, t->n_prompt, t->n_generated,
               (unsigned long long)t->pages);
    }
    printf("]");
    print_requests(s);
    printf("}\n");
}

/* ---- all --------------------------------------------------------------------------------------- */

static void release(study *s) {
    pleat_serving_destroy(&s->serving);
    pleat_engine_destroy(&s->engine);
    pleat_workers_destroy(&s->workers);
    pleat_model_destroy(&s->model);
    for (uint32_t i = 0; i < s->n_requests; i++) free(s->requests[i].given);
    free(s->requests);
    free(s->steps);
    free(s->medians);
    free(s->text);
}

int main(int argc, char **argv) {
    if (argc != 7) {
        fprintf(stderr, "usage: spvllm_steps MODEL SPEC TRACE TEXT POOL_BYTES CONTEXT\n");
        return 2;
    }
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_serving_stats end;
    study s = {.n_requests = 0};
    const pleat_status status = pleat_model_load(argv[1], NULL, &s.model, &err);
    if (status != PLEAT_OK) die(argv[1], status, &err);
    read_trace(&s, argv[3]);
    read_text(&s, argv[4]);
    make_engine(&s, argv[2], strtoull(argv[5], NULL, 10), (uint32_t)strtoul(argv[6], NULL, 10));
    make_serving(&s);
    submit(&s);
    serve(&s, &end);
    print_study(&s, argv[2], &end);
    release(&s);
    return 0;
}
