/* SPDX-License-Identifier: MIT
 *
 * bench_run.c: `pleat bench run`: speed of reading prompts and of generating, in llama-bench's terms.
 *
 *     pp512          a prompt of 512 tokens read into an empty cache
 *     tg128          128 single steps from an empty cache
 *     ... @ d4096    the same after 4096 tokens that are already stored
 *
 * All specs are measured in one run, turn and turn about; tokens are random ordinary ones, the same for every spec.
 * Speeds are mean and standard deviation over the repetitions, as llama-bench gives them.
 */
#include <math.h>
#include <stdlib.h>

#include "commands.h"
#include "common.h"
#include "load.h"
#include "output.h"
#include "progress.h"

enum { DEFAULT_REPS = 5 };

typedef struct bench {
    const options *o;
    loaded l;
    output out;
    pleat_engine *engines[SPECS_CAP];
    pleat_token *tokens; /* [n_ctx], random */
    float *logits;       /* [n_vocab] */
    double *speed;       /* [specs][reps] tokens/s */
    uint32_t reps;
    table t;
    json_t *rows;
    uint64_t n_done;
} bench;

/* One test: `n` tokens after `depth`, in chunks of `chunk`. */
typedef struct shape {
    const char *kind; /* "pp" or "tg" */
    uint32_t n, depth, chunk;
} shape;

static int feed(bench *b, pleat_engine *engine, pleat_seq seq, uint32_t first, uint32_t n, uint32_t chunk) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    for (uint32_t done = 0; done < n;) {
        const uint32_t left = n - done, now = left < chunk ? left : chunk;
        const int wanted = now == left || chunk == 1;
        const pleat_engine_item item = {seq, b->tokens + first + done, now, wanted ? 1 : 0, wanted ? b->logits : NULL};
        const pleat_status status = pleat_engine_step(engine, &item, 1, &err);
        if (status != PLEAT_OK) return cli_fail("a step failed", status, &err);
        done += now;
    }
    return CLI_OK;
}

static int run_once(bench *b, pleat_engine *engine, const shape *s, double *tokens_per_s) {
    pleat_seq seq;
    pleat_status status = pleat_engine_open(engine, s->depth + s->n, &seq);
    if (status != PLEAT_OK) return cli_fail("cannot open a sequence", status, NULL);
    int code = feed(b, engine, seq, 0, s->depth, b->o->chunk_tokens);
    const double start_s = cli_seconds();
    if (code == CLI_OK) code = feed(b, engine, seq, s->depth, s->n, s->chunk);
    *tokens_per_s = s->n / (cli_seconds() - start_s);
    status = pleat_engine_close(engine, seq);
    if (code == CLI_OK && status != PLEAT_OK) code = cli_fail("cannot close a sequence", status, NULL);
    progress_update(++b->n_done);
    return code;
}

static void add_row(bench *b, const shape *s, uint32_t spec) {
    const double *speed = b->speed + (size_t)spec * b->reps;
    double mean = 0, variance = 0;
    char test[64];
    for (uint32_t i = 0; i < b->reps; i++) mean += speed[i] / b->reps;
    for (uint32_t i = 0; i < b->reps; i++)
        variance += (speed[i] - mean) * (speed[i] - mean) / (b->reps > 1 ? b->reps - 1 : 1);
    if (s->depth)
        snprintf(test, sizeof test, "%s%u @ d%u", s->kind, s->n, s->depth);
    else
        snprintf(test, sizeof test, "%s%u", s->kind, s->n);
    table_put_text(&b->t, b->o->model);
    table_put(&b->t, "%s", b->o->kv.text[spec]);
    table_put(&b->t, "%u", pleat_workers_count(b->l.workers));
    table_put(&b->t, "%s", test);
    table_put(&b->t, "%.2f", mean);
    table_put(&b->t, "%.2f", sqrt(variance));
    json_t *params = json_pack("{s:o, s:s, s:s, s:i, s:i, s:i, s:i}", "model", json_text(b->o->model), "kv",
                               b->o->kv.text[spec], "test", test, "n", (int)s->n, "depth", (int)s->depth, "threads",
                               (int)pleat_workers_count(b->l.workers), "reps", (int)b->reps);
    json_array_append_new(b->rows, json_pack("{s:s, s:o, s:o, s:o}", "what", "run", "params", params, "tokens_per_s",
                                             json_number(mean), "sd", json_number(sqrt(variance))));
}

static int run_shape(bench *b, const shape *s) {
    int code = CLI_OK;
    if (!s->n) return CLI_OK;
    if ((uint64_t)s->depth + s->n > b->l.info.n_ctx) {
        cli_error("%s%u after %u tokens needs %llu, the model's context is %u", s->kind, s->n, s->depth,
                  (unsigned long long)s->depth + s->n, b->l.info.n_ctx);
        return CLI_FAILED;
    }
    for (uint32_t rep = 0; rep < b->reps; rep++)
        for (uint32_t i = 0; i < b->o->kv.n && code == CLI_OK; i++)
            code = run_once(b, b->engines[i], s, &b->speed[(size_t)i * b->reps + rep]);
    for (uint32_t i = 0; i < b->o->kv.n && code == CLI_OK; i++) add_row(b, s, i);
    return code;
}

static int run_shapes(bench *b) {
    static const char *const titles[] = {"model", "kv", "threads", "test", "t/s", "sd"};
    const options *o = b->o;
    int code = CLI_OK;
    table_init(&b->t, titles, 6);
    b->rows = json_array();
    progress_begin("bench run", (uint64_t)o->depth.n * (o->n_prompt.n + o->n_gen.n) * b->reps * o->kv.n, !o->quiet);
    for (uint32_t d = 0; d < o->depth.n; d++) {
        for (uint32_t i = 0; i < o->n_prompt.n && code == CLI_OK; i++)
            code = run_shape(b, &(shape){"pp", o->n_prompt.v[i], o->depth.v[d], o->chunk_tokens});
        for (uint32_t i = 0; i < o->n_gen.n && code == CLI_OK; i++)
            code = run_shape(b, &(shape){"tg", o->n_gen.v[i], o->depth.v[d], 1});
    }
    progress_end();
    return code;
}

/* Random tokens that end nothing. */
static void fill_tokens(bench *b) {
    cli_rng rng = {5};
    for (uint32_t i = 0; i < b->l.info.n_ctx;) {
        b->tokens[i] = (pleat_token)(cli_rng_next(&rng) % b->l.info.n_vocab);
        if (!pleat_model_token_is_special(b->l.model, b->tokens[i])) i++; /* bytes' tokens are ordinary: it ends */
    }
}

static void default_list(number_list *list, uint32_t v) {
    if (!list->n) *list = (number_list){1, {v}};
}

static int prepare(bench *b, options *o) {
    static const char *const default_specs[] = {"f16", "k8v4", NULL};
    options_default_specs(o, default_specs);
    default_list(&o->n_prompt, 512);
    default_list(&o->n_gen, 128);
    default_list(&o->depth, 0);
    b->reps = o->reps ? o->reps : DEFAULT_REPS;
    int code = load_model(o, &b->l);
    if (code == CLI_OK) code = output_open(&b->out, o);
    for (uint32_t i = 0; i < o->kv.n && code == CLI_OK; i++)
        code = load_engine(o, &b->l, o->kv.spec[i], 1, 0, 0, &b->engines[i]);
    if (code != CLI_OK) return code;
    b->tokens = cli_alloc(b->l.info.n_ctx, sizeof *b->tokens);
    b->logits = cli_alloc(b->l.info.n_vocab, sizeof *b->logits);
    b->speed = cli_alloc((size_t)b->reps * o->kv.n, sizeof *b->speed);
    fill_tokens(b);
    /* a few steps that wake the threads and touch the weights */
    for (uint32_t i = 0; i < o->kv.n && code == CLI_OK; i++) {
        double unused;
        code = run_once(b, b->engines[i], &(shape){"pp", b->l.info.n_ctx < 32 ? 1 : 32, 0, 16}, &unused);
    }
    b->n_done = 0;
    return code;
}

int command_bench_run(options *o) {
    bench b = {.o = o};
    int code = prepare(&b, o);
    if (code == CLI_OK) code = run_shapes(&b);
    if (code == CLI_OK) output_rows(&b.out, b.rows, &b.t);
    const int closed = output_close(&b.out);
    json_decref(b.rows);
    table_release(&b.t);
    for (uint32_t i = 0; i < o->kv.n; i++) pleat_engine_destroy(&b.engines[i]);
    load_release(&b.l);
    free(b.tokens);
    free(b.logits);
    free(b.speed);
    return code == CLI_OK ? closed : code;
}
