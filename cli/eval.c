/* SPDX-License-Identifier: MIT
 *
 * eval.c: `pleat eval`: one row per KV spec: task accuracy, perplexity, divergence from the first spec, bytes.
 *
 *     accuracy    of a task: turns answered right / turns; of a row: the mean over tasks
 *     fraction    bytes held at the ends of the samples over what f16 would hold, summed over the samples; without
 *                 --tasks, the same over the windows of the text
 *     kld_mean    mean over scored positions of KL(first spec's prediction || this spec's), nats
 *     same_top1   share of them where both find the same token likeliest
 *     seconds     in steps of tasks and text
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "common.h"
#include "eval.h"
#include "report.h"

double eval_quotient(double a, double b) { return b > 0 ? a / b : NAN; }

double eval_task_accuracy(const eval_row *row, uint32_t task) {
    return eval_quotient(row->score[task].correct, row->score[task].total);
}

double eval_accuracy(const evaluation *e, const eval_row *row) {
    double sum = 0;
    for (uint32_t t = 0; t < e->set.n_tasks; t++) sum += eval_task_accuracy(row, t);
    return eval_quotient(sum, e->set.n_tasks);
}

double eval_perplexity(const eval_row *row) { return exp(eval_quotient(row->nll_sum, (double)row->n_scored)); }

void eval_bytes(const evaluation *e, const eval_row *row, uint64_t *bytes, uint64_t *bytes_f16) {
    *bytes = *bytes_f16 = 0;
    for (uint32_t t = 0; t < e->set.n_tasks; t++) {
        *bytes += row->score[t].bytes;
        *bytes_f16 += row->score[t].bytes_f16;
    }
    if (!e->set.n_tasks) {
        *bytes = row->bytes;
        *bytes_f16 = row->bytes_f16;
    }
}

static json_t *tasks_json(const evaluation *e, const eval_row *row) {
    json_t *tasks = json_object();
    for (uint32_t t = 0; t < e->set.n_tasks; t++) {
        const task_score *s = &row->score[t];
        json_object_set_new(tasks, e->set.names[t],
                            json_pack("{s:i, s:i, s:o, s:o}", "correct", (int)s->correct, "total", (int)s->total,
                                      "accuracy", json_number(eval_task_accuracy(row, t)), "fraction",
                                      json_number(eval_quotient((double)s->bytes, (double)s->bytes_f16))));
    }
    return tasks;
}

static json_t *row_json(const evaluation *e, const eval_row *row) {
    const double n = (double)row->n_scored;
    uint64_t bytes, bytes_f16;
    eval_bytes(e, row, &bytes, &bytes_f16);
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:f}", "kv", row->kv, "tasks", tasks_json(e, row),
                     "accuracy", json_number(eval_accuracy(e, row)), "perplexity", json_number(eval_perplexity(row)),
                     "kld_mean", json_number(eval_quotient(row->kld_sum, n)), "same_top1",
                     json_number(eval_quotient((double)row->n_same_top1, n)), "fraction",
                     json_number(eval_quotient((double)bytes, (double)bytes_f16)), "bytes", (json_int_t)bytes,
                     "bytes_f16", (json_int_t)bytes_f16, "seconds", row->seconds);
}

static void write_json(evaluation *e) {
    json_t *rows = json_array();
    for (uint32_t i = 0; i < e->o->kv.n; i++) json_array_append_new(rows, row_json(e, &e->rows[i]));
    output_json(&e->out,
                json_pack("{s:o, s:i, s:I, s:o}", "model", json_text(e->o->model), "samples", (int)e->set.n_samples,
                          "scored_tokens", (json_int_t)e->rows[0].n_scored, "rows", rows));
}

static void put_row(table *t, const evaluation *e, const eval_row *row) {
    const double n = (double)row->n_scored;
    uint64_t bytes, bytes_f16;
    char held[BYTES_CAP];
    eval_bytes(e, row, &bytes, &bytes_f16);
    table_put(t, "%s", row->kv);
    for (uint32_t k = 0; k < e->set.n_tasks; k++) table_put_number(t, 3, eval_task_accuracy(row, k));
    table_put_number(t, 4, eval_accuracy(e, row));
    table_put_number(t, 3, eval_perplexity(row));
    table_put_number(t, 5, eval_quotient(row->kld_sum, n));
    table_put_number(t, 4, eval_quotient((double)row->n_same_top1, n));
    table_put_number(t, 4, eval_quotient((double)bytes, (double)bytes_f16));
    if (e->out.format == FORMAT_CSV)
        table_put(t, "%llu", (unsigned long long)bytes);
    else
        table_put(t, "%s", print_bytes(held, bytes));
    table_put(t, "%.1f", row->seconds);
}

void eval_table(evaluation *e, table *t) {
    static const char *const figures[] = {"accuracy", "perplexity", "kld_mean", "same_top1",
                                          "fraction", "bytes",      "seconds"};
    enum { N_FIGURES = sizeof figures / sizeof figures[0] };
    _Static_assert(1 + TASKS_CAP + N_FIGURES <= EVAL_COLUMNS_CAP, "a title for each column");
    uint32_t n = 0;
    e->titles[n++] = "kv";
    for (uint32_t i = 0; i < e->set.n_tasks; i++) e->titles[n++] = e->set.names[i];
    for (uint32_t i = 0; i < N_FIGURES; i++) e->titles[n++] = figures[i];
    table_init(t, e->titles, n);
    for (uint32_t i = 0; i < e->o->kv.n; i++) put_row(t, e, &e->rows[i]);
}

static void write_table(evaluation *e) {
    table t;
    eval_table(e, &t);
    table_write(&t, &e->out);
    table_release(&t);
}

int eval_close(eval_row *row, const char *what, pleat_engine *engine, pleat_seq seq, uint64_t *bytes,
               uint64_t *bytes_f16) {
    pleat_cache_usage usage;
    pleat_status status = pleat_engine_get_usage(engine, seq, &usage);
    if (status != PLEAT_OK) return cli_fail(what, status, NULL);
    *bytes += usage.bytes;
    *bytes_f16 += usage.bytes_f16;
    if (row->watch.request_ended) {
        const double start_s = cli_seconds();
        const int code = row->watch.request_ended(row->watch.ctx, pleat_engine_cache(engine), seq);
        row->watch_seconds += cli_seconds() - start_s;
        if (code != CLI_OK) return code;
    }
    status = pleat_engine_close(engine, seq);
    return status == PLEAT_OK ? CLI_OK : cli_fail(what, status, NULL);
}

static int prepare(evaluation *e, options *o) {
    static const char *const default_specs[] = {"f16", NULL};
    if (!o->tasks && !o->text) {
        cli_error("nothing to evaluate: give --tasks FILE or --text FILE, as eval/tasks.jsonl and eval/prose.txt");
        return CLI_USAGE;
    }
    options_default_specs(o, default_specs);
    int code = o->report ? report_check(o) : CLI_OK;
    if (code == CLI_OK) code = load_model(o, &e->l);
    e->rows = cli_alloc(o->kv.n, sizeof *e->rows);
    for (uint32_t i = 0; i < o->kv.n; i++) { /* load_model() has put what a profile says in the place of its name */
        e->rows[i].spec = o->kv.spec[i];
        e->rows[i].kv = o->kv.text[i];
    }
    if (code == CLI_OK && o->tasks) code = tasks_load(&e->set, &e->l, o->tasks, o->samples);
    if (code == CLI_OK) code = output_open(&e->out, o);
    return code;
}

/* Run all the rows that were asked for. */
static int evaluate(evaluation *e, int has_report) {
    const options *o = e->o;
    int code = CLI_OK;
    for (uint32_t i = 0; o->tasks && i < o->kv.n && code == CLI_OK; i++)
        code = eval_tasks(o, &e->l, &e->set, &e->rows[i]);
    if (o->tasks && has_report) report_unwatch(e); /* its requests are the samples alone */
    if (code == CLI_OK && o->text) code = eval_text(o, &e->l, o->text, e->rows, o->kv.n);
    return code;
}

int command_eval(options *o) {
    evaluation e = {.o = o};
    int code = prepare(&e, o);
    report_data *report = code == CLI_OK && o->report ? report_begin(&e) : NULL;
    if (code == CLI_OK) code = evaluate(&e, report != NULL);
    if (code == CLI_OK && o->format == FORMAT_JSON)
        write_json(&e);
    else if (code == CLI_OK)
        write_table(&e);
    const int closed = output_close(&e.out);
    if (code == CLI_OK) code = closed;
    if (code == CLI_OK && report) code = report_finish(report, &e); /* last: should it fail, the rows are out */
    report_release(&report);
    tasks_release(&e.set);
    load_release(&e.l);
    free(e.rows);
    return code;
}
