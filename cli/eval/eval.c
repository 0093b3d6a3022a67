/* SPDX-License-Identifier: MIT
 *
 * eval.c: `pleat eval`: one row per KV spec: task accuracy, perplexity, divergence from the first spec, bytes.
 *
 *     accuracy    of a task: turns answered right / turns; of a row: the mean over tasks
 *     gain        what that is above the first spec's
 *     ..._se      standard errors: of accuracies over samples, of a gain sample by sample, of a text's over its windows
 *     fraction    bytes held at the ends of the samples over what f16 would hold, summed over the samples; without
 *                 --tasks, the same over the windows of the text; fraction_short: of those of fewer than 300 tokens
 *     kld_mean    mean over scored positions of KL(first spec's prediction || this spec's), nats
 *     same_top1   share of them where both find the same token likeliest
 *     seconds     in steps of tasks and text
 *
 * With --serve the tasks are requests of one serving, and rows say what that did in place of what a text says.
 */
#include <stdlib.h>

#include "cli/eval/report/report.h"
#include "cli/lib/common.h"
#include "cli/lib/interrupt.h"
#include "cli/lib/progress.h"
#include "cli/lib/score/score.h"

/* ---- options --------------------------------------------------------------------------------- */

typedef struct eval_options {
    score_options score;
    service_options service;
    int serve;
    const char *report;  /* HTML page to write; NULL: none */
    const char *answers; /* file of answers to write; NULL: none */
} eval_options;
_Static_assert(offsetof(eval_options, score) == 0 && offsetof(score_options, common) == 0, "common_options come first");

/* clang-format off */
static const option_row rows[] = {
    LOAD_ROWS(eval_options, score.load),
    LOAD_DEVICE_ROW(eval_options, score.load),
    CPU_MASK_ROW(score_options),
    {GROUP_CACHE, "kv", NULL, "SPEC", "how the cache is kept: f16, k8v4, leankv, h2o, kvcomp, ...; repeat to compare (default f16)",
     KIND_SPECS, .offset = offsetof(eval_options, score.load.kv), .words = option_spec_names},
    SCORE_ROWS(eval_options, score),
    TEXT_WINDOWS_ROW(eval_options, score, "the first N windows of the text (default: all)"),
    {GROUP_SCORE, "scored", NULL, "N", "score the last N tokens of each window; the others are its prompt (default: half)",
     KIND_U32, .offset = offsetof(eval_options, score.scored), 1, 16777215, .needs = "text"},
    HALF_ROW(eval_options, score,
             "all; choose or show: what calibrates or what is published; even or odd: by places (default all)"),
    {GROUP_SCORE, "unseen", NULL, NULL, "read each document as a prompt of its own, and what is evicted goes before the "
     "question comes", KIND_SWITCH, .offset = offsetof(eval_options, score.unseen), .needs = "tasks", .excludes = "serve",
     .because = "a serving cuts prompts by itself"},
    {GROUP_SERVICE, "serve", NULL, NULL, "ask the samples as requests of one serving, with kept prefixes, as bench serve does",
     KIND_SWITCH, .offset = offsetof(eval_options, serve), .needs = "tasks", .excludes = "text",
     .because = "requests are the samples of the tasks; a text is predicted, and asks nothing"},
    POOL_ROW(eval_options, service, "the pool of pages, as 64MiB (default: room for one request more than -np)", "serve"),
    SERVICE_ROWS(eval_options, service, "serve"),
    {GROUP_OUTPUT, "answers", NULL, "FILE", "write what was answered to each turn, one JSON object a line", KIND_OUTPUT,
     .offset = offsetof(eval_options, answers), .needs = "tasks"},
    {GROUP_OUTPUT, "report", NULL, "FILE", "write a page with charts of accuracy, memory and tokens kept (HTML, no scripts)",
     KIND_OUTPUT, .offset = offsetof(eval_options, report), .excludes = "serve",
     .because = "the page is about sequences that share nothing"},
    COMMON_ROWS(score_options),
};
/* clang-format on */

static const option_demand demands[] = {
    NO_MODEL,
    {"tasks text", "nothing to evaluate: give --tasks FILE or --text FILE, as eval/tasks.jsonl and eval/prose.txt"},
};

static void set_defaults(void *opts) {
    eval_options *o = opts;
    score_defaults(&o->score);
    service_defaults(&o->service);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static json_t *tasks_json(const evaluation *e, const score_row *row) {
    json_t *tasks = json_object();
    for (uint32_t t = 0; t < e->set.n_tasks; t++) {
        const task_score *s = &row->score[t];
        json_object_set_new(tasks, e->set.names[t],
                            json_pack("{s:i, s:i, s:o, s:o, s:o}", "correct", (int)s->correct, "total", (int)s->total,
                                      "accuracy", json_number(score_task_accuracy(row, t)), "se",
                                      json_number(score_task_error(e, row, t)), "fraction",
                                      json_number(score_quotient((double)s->bytes, (double)s->bytes_f16))));
    }
    return tasks;
}

/* NULL without blocks that are the model's. */
static json_t *drift_json(const score_row *row) {
    const pleat_cache_drift *d = &row->drift;
    if (!d->n_blocks) return json_null();
    return json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "share", json_number(score_drift(row)), "blocks",
                     (json_int_t)d->n_blocks, "own_keys", (json_int_t)d->n_own_keys, "own_values",
                     (json_int_t)d->n_own_values, "coarser", (json_int_t)d->n_coarser, "finer", (json_int_t)d->n_finer,
                     "escapes", (json_int_t)d->n_escapes, "bytes", (json_int_t)d->bytes);
}

static json_t *row_json(const evaluation *e, const score_row *row) {
    const double n = (double)row->n_scored;
    uint64_t bytes, bytes_f16;
    score_bytes(e, row, &bytes, &bytes_f16);
    const double accuracy = score_accuracy(e, row);
    return json_pack(
        "{s:s, s:s*, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:f, s:o, s:o}", "kv",
        row->kv, "chosen", row->choice[0] ? row->choice : NULL, "tasks", tasks_json(e, row), "accuracy",
        json_number(accuracy), "accuracy_se", json_number(score_accuracy_error(e, row)), "gain",
        json_number(accuracy - score_accuracy(e, &e->rows[0])), "gain_se", json_number(score_gain_error(e, row)),
        "perplexity", json_number(score_perplexity(row)), "kld_mean", json_number(score_quotient(row->kld_sum, n)),
        "kld_se", json_number(score_figure_error(&row->kld)), "same_top1",
        json_number(score_quotient((double)row->n_same_top1, n)), "same_top1_se",
        json_number(score_figure_error(&row->same_top1)), "fraction",
        json_number(score_quotient((double)bytes, (double)bytes_f16)), "fraction_short",
        json_number(score_fraction_short(e, row)), "bytes", (json_int_t)bytes, "bytes_f16", (json_int_t)bytes_f16,
        "seconds", row->seconds, "served", score_served_json(row), "drift", drift_json(row));
}

static void write_json(const evaluation *e, output *out, int is_complete) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < e->n_rows; i++) json_array_append_new(list, row_json(e, &e->rows[i]));
    output_json(out, json_pack("{s:o, s:s, s:b, s:i, s:i, s:I, s:b, s:o}", "model", json_text(e->o->load.model), "half",
                               half_names[e->o->half], "unseen", e->o->unseen, "samples", (int)e->set.n_samples,
                               "left_out", (int)e->set.n_out, "scored_tokens", (json_int_t)e->rows[0].n_scored,
                               "complete", is_complete, "rows", list));
}

static void write_table(evaluation *e, output *out) {
    table t;
    score_table(e, &t);
    if (out->format == FORMAT_TERMINAL) table_drop_unknown(&t);
    table_write(&t, out);
    table_release(&t);
}

/* Nor does it show drift, nor what auto has chosen. */
static void say_drift(const evaluation *e) {
    for (uint32_t i = 0; i < e->n_rows; i++) {
        const score_row *row = &e->rows[i];
        if (row->choice[0] && !e->o->common.quiet)
            cli_note("%s is %s, but coarser in %.1f %% of the blocks and finer in %.1f %%", row->kv, row->choice,
                     100 * score_quotient((double)row->drift.n_coarser, (double)row->drift.n_blocks),
                     100 * score_quotient((double)row->drift.n_finer, (double)row->drift.n_blocks));
        if (!row->drift.n_blocks || e->o->common.quiet) continue;
        cli_note(
            "%s: drift from the model's statistics: %.1f %% of the blocks' keys and values have classes of their own",
            row->kv, 100 * score_drift(row));
    }
}

static void write_rows(evaluation *e, output *out, int is_complete) {
    if (e->o->common.format == FORMAT_JSON)
        write_json(e, out, is_complete);
    else
        write_table(e, out);
    if (e->o->common.format != FORMAT_JSON) say_drift(e);
}

/* ---- the command ----------------------------------------------------------------------------- */

/* Files that cannot be written are refused before the work and not after it. */
static int check_files(const eval_options *own) {
    const int code = own->report ? report_check(&own->score, own->report) : CLI_OK;
    return code == CLI_OK && own->answers ? whole_file_check(own->answers) : code;
}

static int prepare(evaluation *e, eval_options *own) {
    static const char *const default_specs[] = {"f16", NULL};
    score_options *o = &own->score;
    const tasks_wanted wanted = {o->samples, o->half, o->unseen, o->common.quiet};
    options_default_specs(&o->load.kv, default_specs);
    int code = service_check(&own->service);
    if (code == CLI_OK && load_wants_gpu(&o->load) && (own->serve || own->report)) {
        cli_error("%s asks for what a cache on a GPU does not tell yet: leave out --device",
                  own->serve ? "--serve" : "--report");
        code = CLI_USAGE;
    }
    if (code == CLI_OK) code = check_files(own);
    o->load.replays = !own->serve && !own->report;
    if (code == CLI_OK) code = load_model(&o->load, &o->common, &e->l);
    e->rows = cli_alloc(o->load.kv.n, sizeof *e->rows);
    e->n_rows = o->load.kv.n;
    for (uint32_t i = 0; i < o->load.kv.n;
         i++) { /* load_model() has put what a profile says in the place of its name */
        e->rows[i].spec = o->load.kv.spec[i];
        e->rows[i].kv = o->load.kv.text[i];
    }
    if (code == CLI_OK && o->tasks) code = tasks_load(&e->set, &e->l, o->tasks, &wanted);
    for (uint32_t i = 0; i < o->load.kv.n && code == CLI_OK && o->tasks; i++)
        code = score_tasks_fit(o, &e->l, &e->set, &e->rows[i].spec);
    return code;
}

/* A table does not show which samples its figures are of. */
static void say_half(const evaluation *e) {
    const score_options *o = e->o;
    if (o->common.quiet || o->half == HALF_ALL) return;
    if (o->tasks)
        cli_note("--half %s: %u sample%s of %s%s%s", half_names[o->half], e->set.n_samples,
                 e->set.n_samples == 1 ? "" : "s", o->tasks, o->text ? ", and that half of " : "",
                 o->text ? o->text : "");
    else
        cli_note("--half %s: that half of %s", half_names[o->half], o->text);
}

/* Nor how long the windows are. */
static void say_window(const evaluation *e) {
    const score_options *o = e->o;
    if (o->text && !o->common.quiet && o->ctx_window > e->l.info.n_ctx)
        cli_note("--ctx-window %u: no window is longer than the model's context, %u tokens", o->ctx_window,
                 e->l.info.n_ctx);
}

/* Run all the rows that were asked for.  Interrupted, e->n_rows are those that are complete, but for the text. */
static int evaluate(evaluation *e, const eval_options *own, int has_report) {
    const score_options *o = e->o;
    const uint32_t n_parts = (o->tasks ? o->load.kv.n : 0) + (o->text != NULL);
    int code = CLI_OK;
    for (uint32_t i = 0; o->tasks && i < o->load.kv.n && code == CLI_OK; i++) {
        progress_part(i, n_parts);
        code = e->is_served ? score_tasks_served(o, &own->service, &e->l, &e->set, &e->rows[i])
                            : score_tasks(o, &e->l, &e->set, &e->rows[i]);
        if (code == CLI_INTERRUPTED) e->n_rows = i;
    }
    if (o->text) progress_part(n_parts - 1, n_parts);
    if (o->tasks && has_report) report_unwatch(e); /* its requests are the samples alone */
    if (code == CLI_OK && o->text) code = score_text(o, &e->l, o->text, e->rows, o->load.kv.n);
    if (code == CLI_INTERRUPTED && !o->tasks && e->rows[0].n_scored == 0) e->n_rows = 0;
    return code;
}

/* Ctrl-C: what is missing of what was asked for. */
static void say_interrupted(const evaluation *e, const eval_options *own, int is_complete) {
    const score_options *o = e->o;
    const uint32_t n = o->load.kv.n, n_missing = n - e->n_rows;
    const score_row *first = &e->rows[0];
    if (e->n_rows == 0) {
        cli_error(
            "interrupted before a row was complete: nothing is kept; --samples N and --text-windows N take less time");
        return;
    }
    fprintf(stderr, "pleat eval: interrupted: ");
    if (n_missing > 0) fprintf(stderr, "%u of %u rows are complete; what is missing is", e->n_rows, n);
    for (uint32_t i = e->n_rows; i < n; i++) fprintf(stderr, "%s %s", i > e->n_rows ? "," : "", o->load.kv.text[i]);
    if (n_missing > 0 && o->text) fprintf(stderr, ", and the text");
    if (n_missing == 0 && o->text && first->n_scored < first->n_to_score)
        fprintf(stderr, "of the text %llu of %llu tokens are scored", (unsigned long long)first->n_scored,
                (unsigned long long)first->n_to_score);
    else if (n_missing == 0)
        fprintf(stderr, "all rows are complete");
    if (own->answers && !is_complete) fprintf(stderr, "; --answers is not written");
    fprintf(stderr, "%s\n", own->report ? "; --report is not written" : "");
}

static void release_rows(evaluation *e) {
    for (uint32_t i = 0; e->rows && i < e->o->load.kv.n; i++) score_release_row(&e->rows[i]);
    free(e->rows);
}

static int run(void *opts) {
    eval_options *own = opts;
    score_options *o = &own->score;
    evaluation e = {.o = o, .is_served = own->serve};
    output out = {.file = NULL};
    int code = prepare(&e, own);
    if (code == CLI_OK) code = output_open(&out, &o->common);
    report_data *report = code == CLI_OK && own->report ? report_begin(&e, own->report) : NULL;
    interrupt_catch();
    if (code == CLI_OK) say_half(&e);
    if (code == CLI_OK) say_window(&e);
    if (code == CLI_OK) code = evaluate(&e, own, report != NULL);
    const int is_complete = code == CLI_OK;
    if (is_complete || (code == CLI_INTERRUPTED && e.n_rows > 0)) write_rows(&e, &out, is_complete);
    whole_file_hold();
    const int closed = output_close(&out); /* first: should the report fail, stdout has the rows */
    if (closed != CLI_OK && (code == CLI_OK || code == CLI_INTERRUPTED)) code = closed;
    if (code == CLI_OK && own->answers) code = score_write_answers(&e, own->answers);
    progress_part(0, 0);
    if (code == CLI_OK && report) code = report_finish(report, &e);
    if (code == CLI_INTERRUPTED) say_interrupted(&e, own, is_complete);
    const int kept =
        whole_file_commit(code == CLI_INTERRUPTED ? CLI_OK : code); /* what is whole of an interrupted one */
    if (kept != CLI_OK || code != CLI_INTERRUPTED) code = kept;
    report_release(&report);
    tasks_release(&e.set);
    load_release(&e.l);
    release_rows(&e);
    return code;
}

const command eval_command = {
    .name = "eval",
    .help = "compare KV specs: task accuracy, perplexity, divergence, bytes",
    .usage = "-m MODEL [--tasks FILE [--serve]] [--text FILE] [--kv SPEC]...",
    .about =
        "Answers the samples of a task file and predicts a text with the model's cache kept as each spec says, and "
        "prints a row for each: accuracy, perplexity, divergence from the first spec, and the bytes held.  --serve "
        "asks the samples as many users would: as requests of one serving, whose later turns go on from kept prefixes.",
    ROWS_OF(rows),
    DEMANDS_OF(demands),
    .options_bytes = sizeof(eval_options),
    .set_defaults = set_defaults,
    .run = run,
};
