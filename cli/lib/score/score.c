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

/* ---- standard errors --------------------------------------------------------------------------- */

/* A sample's answers as a cluster: what `row` has right, less what `base` has, of all. */
static void add_sample(clusters *c, const sample *s, const score_row *row, const score_row *base) {
    double n_right = 0, n_asked = 0;
    for (uint32_t j = 0; j < s->n_turns; j++) {
        const turn *t = &s->turns[j];
        n_right += row->answers.n_right[t->index];
        if (base) n_right -= base->answers.n_right[t->index];
        n_asked += turn_n_asked(t);
    }
    clusters_add(c, n_right, n_asked);
}

static double task_error(const evaluation *e, const score_row *row, const score_row *base, uint32_t task) {
    clusters c = {0};
    if (!row->answers.n_right || (base && !base->answers.n_right)) return NAN;
    for (uint32_t i = 0; i < e->set.n_samples; i++)
        if (e->set.samples[i].task == task) add_sample(&c, &e->set.samples[i], row, base);
    return clusters_error(&c);
}

/* Of the mean over tasks, which are independent. */
static double mean_error(const evaluation *e, const score_row *row, const score_row *base) {
    double squares = 0;
    for (uint32_t t = 0; t < e->set.n_tasks; t++) {
        const double error = task_error(e, row, base, t);
        squares += error * error;
    }
    return score_quotient(sqrt(squares), e->set.n_tasks);
}

double score_task_error(const evaluation *e, const score_row *row, uint32_t task) {
    return task_error(e, row, NULL, task);
}

double score_accuracy_error(const evaluation *e, const score_row *row) { return mean_error(e, row, NULL); }

double score_gain_error(const evaluation *e, const score_row *row) { return mean_error(e, row, &e->rows[0]); }

double score_figure_error(const score_figure *f) {
    return clusters_error(f->windows.n >= SCORE_MANY_WINDOWS ? &f->windows : &f->blocks);
}

/* ---- figures ------------------------------------------------------------------------------------- */

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

double score_drift(const score_row *row) {
    const pleat_cache_drift *d = &row->drift;
    return score_quotient((double)(d->n_own_keys + d->n_own_values), 2 * (double)d->n_blocks);
}

/* Prompt tokens that came from kept prefixes, as a share; NAN where there was no prompt. */
static double hit_rate(const pleat_serving_stats *s) {
    return score_quotient((double)s->hit_tokens, (double)(s->hit_tokens + s->prompt_tokens));
}

json_t *score_served_json(const score_row *row) {
    const pleat_serving_stats *s = &row->served;
    if (!row->n_requests) return json_null();
    return json_pack("{s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "requests", (json_int_t)row->n_requests,
                     "prefix_hit_rate", json_number(hit_rate(s)), "prefix_hits", (json_int_t)s->hits,
                     "prompt_tokens_computed", (json_int_t)s->prompt_tokens, "evicted_prefixes", (json_int_t)s->evicted,
                     "preempted_swap", (json_int_t)s->preempted_swap, "preempted_recompute",
                     (json_int_t)s->preempted_recompute, "images_lost", (json_int_t)s->images_lost, "replayed_tokens",
                     (json_int_t)s->replayed_tokens, "max_concurrency", (json_int_t)s->peak_running, "steps",
                     (json_int_t)s->n_steps);
}

static void put_text_figures(table *t, const score_row *row) {
    const double n = (double)row->n_scored;
    table_put_number(t, 3, score_perplexity(row));
    table_put_number(t, 5, score_quotient(row->kld_sum, n));
    table_put_number(t, 5, score_figure_error(&row->kld));
    table_put_number(t, 4, score_quotient((double)row->n_same_top1, n));
    table_put_number(t, 4, score_figure_error(&row->same_top1));
}

static void put_served_figures(table *t, const score_row *row) {
    const pleat_serving_stats *s = &row->served;
    table_put(t, "%llu", (unsigned long long)s->hits);
    table_put_number(t, 4, hit_rate(s));
    table_put(t, "%llu", (unsigned long long)s->evicted);
    table_put(t, "%llu", (unsigned long long)(s->preempted_swap + s->preempted_recompute));
}

static void put_row(table *t, const evaluation *e, const score_row *row) {
    uint64_t bytes, bytes_f16;
    char held[BYTES_CAP];
    score_bytes(e, row, &bytes, &bytes_f16);
    table_put(t, "%s", row->kv);
    for (uint32_t k = 0; k < e->set.n_tasks; k++) table_put_number(t, 3, score_task_accuracy(row, k));
    table_put_number(t, 4, score_accuracy(e, row));
    table_put_number(t, 4, score_accuracy_error(e, row));
    table_put_number(t, 4, score_accuracy(e, row) - score_accuracy(e, &e->rows[0]));
    table_put_number(t, 4, score_gain_error(e, row));
    if (!e->is_served) put_text_figures(t, row);
    table_put_number(t, 4, score_quotient((double)bytes, (double)bytes_f16));
    table_put_number(t, 4, score_fraction_short(e, row));
    if (e->o->common.format == FORMAT_CSV)
        table_put(t, "%llu", (unsigned long long)bytes);
    else
        table_put(t, "%s", print_bytes(held, bytes));
    table_put(t, "%.1f", row->seconds);
    if (e->is_served) put_served_figures(t, row);
}

void score_table(evaluation *e, table *t) {
    static const char *const alone[] = {
        "accuracy",  "accuracy_se",  "gain",     "gain_se",        "perplexity", "kld_mean", "kld_se",
        "same_top1", "same_top1_se", "fraction", "fraction_short", "bytes",      "seconds",  NULL};
    static const char *const served[] = {"accuracy",         "accuracy_se", "gain",    "gain_se",     "fraction",
                                         "fraction_short",   "bytes",       "seconds", "prefix_hits", "prefix_hit_rate",
                                         "evicted_prefixes", "preempted",   NULL};
    enum { N_FIGURES = sizeof alone / sizeof alone[0] - 1 };
    _Static_assert(sizeof served <= sizeof alone, "a title for each column");
    _Static_assert(1 + TASKS_CAP + N_FIGURES <= SCORE_COLUMNS_CAP, "a title for each column");
    const char *const *figures = e->is_served ? served : alone;
    uint32_t n = 0;
    e->titles[n++] = "kv";
    for (uint32_t i = 0; i < e->set.n_tasks; i++) e->titles[n++] = e->set.names[i];
    for (uint32_t i = 0; figures[i]; i++) e->titles[n++] = figures[i];
    table_init(t, e->titles, n);
    for (uint32_t i = 0; i < e->n_rows; i++) put_row(t, e, &e->rows[i]);
}

/* Nothing of a cache on a GPU, which has no blocks of the model's. */
static int add_drift(score_row *row, const pleat_engine *engine, const score_request *r) {
    pleat_cache_drift one, *sum = &row->drift;
    const pleat_cache *cache = pleat_engine_cache(engine);
    if (!cache) return CLI_OK;
    const pleat_status status = pleat_cache_get_drift(cache, r->seq, &one);
    if (status != PLEAT_OK) return cli_fail(r->what, status, NULL);
    sum->n_blocks += one.n_blocks;
    sum->n_own_keys += one.n_own_keys;
    sum->n_own_values += one.n_own_values;
    sum->n_coarser += one.n_coarser;
    sum->n_finer += one.n_finer;
    sum->n_escapes += one.n_escapes;
    sum->bytes += one.bytes;
    (void)load_choice(engine, row->choice);
    return CLI_OK;
}

int score_measure(score_row *row, const pleat_engine *engine, const score_request *r, uint64_t *bytes,
                  uint64_t *bytes_f16, score_short *of_short) {
    pleat_cache_usage usage;
    const pleat_status status = pleat_engine_get_usage(engine, r->seq, &usage);
    if (status != PLEAT_OK) return cli_fail(r->what, status, NULL);
    *bytes += usage.bytes;
    *bytes_f16 += usage.bytes_f16;
    if (r->n_tokens < SCORE_SHORT_TOKENS) {
        of_short->bytes += usage.bytes;
        of_short->bytes_f16 += usage.bytes_f16;
    }
    if (add_drift(row, engine, r) != CLI_OK) return CLI_FAILED;
    if (!row->watch.request_ended) return CLI_OK;
    const double start_s = measure_now_s();
    const int code = row->watch.request_ended(row->watch.ctx, pleat_engine_cache(engine), r->seq);
    row->watch_seconds += measure_now_s() - start_s;
    return code;
}

int score_close(score_row *row, pleat_engine *engine, const score_request *r, uint64_t *bytes, uint64_t *bytes_f16,
                score_short *of_short) {
    const int code = score_measure(row, engine, r, bytes, bytes_f16, of_short);
    if (code != CLI_OK) return code;
    const pleat_status status = pleat_engine_close(engine, r->seq);
    return status == PLEAT_OK ? CLI_OK : cli_fail(r->what, status, NULL);
}
