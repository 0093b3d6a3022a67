/* SPDX-License-Identifier: MIT
 *
 * eval.h: what `pleat eval` finds out about one KV spec, the two parts that find it out, and the figures made of it.
 *
 * A request is a sample of the tasks, or a window of the text.
 */
#ifndef PLEAT_CLI_EVAL_H
#define PLEAT_CLI_EVAL_H

#include "output.h"
#include "tasks.h"

typedef struct task_score {
    uint32_t correct, total;   /* turns */
    uint64_t bytes, bytes_f16; /* held at the ends of the samples, summed */
} task_score;

/* Somebody who looks at each request's cache at its end, before it is closed. */
typedef struct eval_watch {
    int (*request_ended)(void *ctx, const pleat_cache *cache, pleat_seq seq); /* CLI_OK, or a code after a message */
    void *ctx;
} eval_watch;

/* One spec's results.  Sums; the figures that are shown are quotients of them. */
typedef struct eval_row {
    pleat_spec spec;
    const char *kv; /* the spec's canonical text, not owned */
    task_score score[TASKS_CAP];
    uint64_t n_scored;         /* tokens of the text that were predicted */
    double nll_sum;            /* of their negative log-likelihoods, nats */
    double kld_sum;            /* of KL(first spec's prediction || this one's), nats */
    uint64_t n_same_top1;      /* positions where the likeliest token is the first spec's */
    uint64_t bytes, bytes_f16; /* held at the ends of the windows, summed */
    double seconds;            /* in steps */
    eval_watch watch;          /* request_ended NULL: nobody */
    double watch_seconds;      /* that it took; not among `seconds` */
} eval_row;

/* Answer every sample with row->spec. */
int eval_tasks(const options *o, const loaded *l, const task_set *set, eval_row *row);

/* Predict the text at `path` with every row's spec, the first being the reference. */
int eval_text(const options *o, const loaded *l, const char *path, eval_row *rows, uint32_t n_rows);

/* For both: the request `what` is over.  Add what it holds to *bytes and *bytes_f16, let the watch look, close it. */
int eval_close(eval_row *row, const char *what, pleat_engine *engine, pleat_seq seq, uint64_t *bytes,
               uint64_t *bytes_f16);

/* ---- the whole --------------------------------------------------------------------------------- */

#define EVAL_COLUMNS_CAP (TASKS_CAP + 8)
typedef struct evaluation {
    const options *o;
    loaded l;
    task_set set; /* empty without --tasks */
    output out;
    eval_row *rows;                       /* [o->kv.n] */
    const char *titles[EVAL_COLUMNS_CAP]; /* of eval_table() */
} evaluation;

/* a/b, NAN when b is not positive. */
double eval_quotient(double a, double b);

/* NAN where there is nothing to divide by. */
double eval_task_accuracy(const eval_row *row, uint32_t task);
double eval_accuracy(const evaluation *e, const eval_row *row);
double eval_perplexity(const eval_row *row);

/* Bytes held at the ends of the samples, or of the windows if there were no samples. */
void eval_bytes(const evaluation *e, const eval_row *row, uint64_t *bytes, uint64_t *bytes_f16);

/* All rows as a table; its titles live in *e.  The caller releases it. */
void eval_table(evaluation *e, table *t);

#endif
