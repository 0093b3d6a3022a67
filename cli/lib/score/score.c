/* SPDX-License-Identifier: MIT
 *
 * score.c: the figures that rows come to, as numbers and as a table, and the end of a request.
 */
#include "score.h"

#include <math.h>

#include "cli/lib/common.h"
#include "cli/lib/measure.h"

void score_defaults(score_options *o) {
    o->load.chunk_tokens = DEFAULT_CHUNK_TOKENS;
    o->ctx_window = 2048;
    o->parallel = 16;
}

double score_quotient(double a, double b) { return b > 0 ? a / b : NAN; }

double score_task_accuracy(const score_row *row, uint32_t task) {
    return score_quotient(row->score[task].correct, row->score[task].total);
}

double score_accuracy(const evaluation *e, const score_row *row) {
    double sum = 0;
    for (uint32_t t = 0; t < e->set.n_tasks; t++) sum += score_task_accuracy(row, t);
    return score_quotient(sum, e->set.n_tasks);
}

double score_perplexity(const score_row *row) { return exp(score_quotient(row->nll_sum, (double)row->n_scored)); }

void score_bytes(const evaluation *e, const score_row *row, uint64_t *bytes, uint64_t *bytes_f16) {
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

double score_fraction_short(const evaluation *e, const score_row *row) {
    score_short sum = e->set.n_tasks ? (score_short){0, 0} : row->of_short;
    for (uint32_t t = 0; t < e->set.n_tasks; t++) {
        sum.bytes += row->score[t].of_short.bytes;
        sum.bytes_f16 += row->score[t].of_short.bytes_f16;
    }
    return score_quotient((double)sum.bytes, (double)sum.bytes_f16);
}

static void put_row(table *t, const evaluation *e, const score_row *row) {
    const double n = (double)row->n_scored;
    uint64_t bytes, bytes_f16;
    char held[BYTES_CAP];
    score_bytes(e, row, &bytes, &bytes_f16);
    table_put(t, "%s", row->kv);
    for (uint32_t k = 0; k < e->set.n_tasks; k++) table_put_number(t, 3, score_task_accuracy(row, k));
    table_put_number(t, 4, score_accuracy(e, row));
    table_put_number(t, 3, score_perplexity(row));
    table_put_number(t, 5, score_quotient(row->kld_sum, n));
    table_put_number(t, 4, score_quotient((double)row->n_same_top1, n));
    table_put_number(t, 4, score_quotient((double)bytes, (double)bytes_f16));
    table_put_number(t, 4, score_fraction_short(e, row));
    if (e->o->common.format == FORMAT_CSV)
        table_put(t, "%llu", (unsigned long long)bytes);
    else
        table_put(t, "%s", print_bytes(held, bytes));
    table_put(t, "%.1f", row->seconds);
}

void score_table(evaluation *e, table *t) {
    static const char *const figures[] = {"accuracy", "perplexity",     "kld_mean", "same_top1",
                                          "fraction", "fraction_short", "bytes",    "seconds"};
    enum { N_FIGURES = sizeof figures / sizeof figures[0] };
    _Static_assert(1 + TASKS_CAP + N_FIGURES <= SCORE_COLUMNS_CAP, "a title for each column");
    uint32_t n = 0;
    e->titles[n++] = "kv";
    for (uint32_t i = 0; i < e->set.n_tasks; i++) e->titles[n++] = e->set.names[i];
    for (uint32_t i = 0; i < N_FIGURES; i++) e->titles[n++] = figures[i];
    table_init(t, e->titles, n);
    for (uint32_t i = 0; i < e->o->load.kv.n; i++) put_row(t, e, &e->rows[i]);
}

int score_close(score_row *row, pleat_engine *engine, const score_request *r, uint64_t *bytes, uint64_t *bytes_f16,
                score_short *of_short) {
    pleat_cache_usage usage;
    pleat_status status = pleat_engine_get_usage(engine, r->seq, &usage);
    if (status != PLEAT_OK) return cli_fail(r->what, status, NULL);
    *bytes += usage.bytes;
    *bytes_f16 += usage.bytes_f16;
    if (r->n_tokens < SCORE_SHORT_TOKENS) {
        of_short->bytes += usage.bytes;
        of_short->bytes_f16 += usage.bytes_f16;
    }
    if (row->watch.request_ended) {
        const double start_s = measure_now_s();
        const int code = row->watch.request_ended(row->watch.ctx, pleat_engine_cache(engine), r->seq);
        row->watch_seconds += measure_now_s() - start_s;
        if (code != CLI_OK) return code;
    }
    status = pleat_engine_close(engine, r->seq);
    return status == PLEAT_OK ? CLI_OK : cli_fail(r->what, status, NULL);
}
