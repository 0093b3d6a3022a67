/* SPDX-License-Identifier: MIT
 *
 * eval.h: what `pleat eval` finds out about one KV spec, and the two parts that find it out.
 */
#ifndef PLEAT_CLI_EVAL_H
#define PLEAT_CLI_EVAL_H

#include "tasks.h"

typedef struct task_score {
    uint32_t correct, total;   /* turns */
    uint64_t bytes, bytes_f16; /* held at the ends of the samples, summed */
} task_score;

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
} eval_row;

/* Answer every sample with row->spec. */
int eval_tasks(const options *o, const loaded *l, const task_set *set, eval_row *row);

/* Predict the text at `path` with every row's spec, the first being the reference. */
int eval_text(const options *o, const loaded *l, const char *path, eval_row *rows, uint32_t n_rows);

#endif
