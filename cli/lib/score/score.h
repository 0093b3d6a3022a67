/* SPDX-License-Identifier: MIT
 *
 * score.h: how good a model is with its cache kept as a KV spec says: tasks, a text, and the figures made of both.  For
 * `pleat eval` and `pleat calibrate`.
 *
 *     score_tasks.c     answers the samples of a task file, each in a sequence of its own
 *     score_served.c    the same as requests of one serving
 *     score_answers.c   which answers are right, and what was answered
 *     score_text.c      predicts a text
 *     score.c           figures, their standard errors, and a table of the rows
 *
 * A request is a sample of the tasks, or a window of the text.
 */
#ifndef PLEAT_CLI_SCORE_H
#define PLEAT_CLI_SCORE_H

#include "cli/lib/half.h"
#include "cli/lib/load.h"
#include "cli/lib/output.h"
#include "cli/lib/service.h"
#include "clusters.h"
#include "tasks.h"

#define GROUP_SCORE "What to evaluate"
typedef struct score_options {
    common_options common;
    load_options load;
    const char *tasks, *text; /* NULL: not given */
    uint32_t samples;         /* of each task; 0: all */
    uint32_t text_windows;    /* 0: all */
    uint32_t ctx_window;      /* tokens in a window of the text */
    uint32_t scored;          /* of these, its last; 0: the second half */
    uint32_t parallel;        /* sequences in flight */
    int unseen;               /* documents are read before their questions come */
    sample_half half;         /* of those samples and windows */
} score_options;

/* clang-format off */
/* Their rows, but for --kv, --text-windows and --half; `type` has the score_options as `member`, or is the same. */
#define SCORE_ROWS(type, member)                                                                                       \
    {GROUP_SCORE, "tasks", NULL, "FILE", "samples with exact answers, one JSON object a line", KIND_INPUT,             \
     .offset = offsetof(type, member.tasks)},                                                                          \
    {GROUP_SCORE, "samples", NULL, "N", "the first N samples of each task (default: all)", KIND_U32,                   \
     .offset = offsetof(type, member.samples), 1, UINT32_MAX},                                                         \
    {GROUP_SCORE, "text", NULL, "FILE", "text for perplexity", KIND_INPUT, .offset = offsetof(type, member.text)},     \
    {GROUP_SCORE, "ctx-window", NULL, "N", "tokens in a window; its second half is scored (default 2048)",             \
     KIND_U32, .offset = offsetof(type, member.ctx_window), 4, 16777216},                                              \
    {GROUP_SCORE, "parallel", "np", "N", "sequences in flight (default 16); results do not depend on it", KIND_U32,    \
     .offset = offsetof(type, member.parallel), 1, 1024}
#define TEXT_WINDOWS_ROW(type, member, text)                                                                           \
    {GROUP_SCORE, "text-windows", NULL, "N", text, KIND_U32, .offset = offsetof(type, member.text_windows), 1, UINT32_MAX}
#define HALF_ROW(type, member, text)                                                                                   \
    {GROUP_SCORE, "half", NULL, "HALF", text, KIND_WORD, .offset = offsetof(type, member.half), .words = half_names}
/* clang-format on */

void score_defaults(score_options *o);

/* Requests of fewer tokens, prompts and answers together, are short: pages' unused ends weigh most there, and nothing
 * that keeps the newest tokens better has old ones yet. */
#define SCORE_SHORT_TOKENS 300u

/* Of short requests alone. */
typedef struct score_short {
    uint64_t bytes, bytes_f16; /* held at their ends, summed */
} score_short;

typedef struct task_score {
    uint32_t correct, total;   /* answers */
    uint64_t bytes, bytes_f16; /* held at the ends of the samples, summed */
    score_short of_short;
} task_score;

/* What was answered: of each turn the tokens up to the first that is wrong, that one included; of an open turn all. */
typedef struct score_answers {
    pleat_token *tokens; /* [set->n_answers], a turn's from its `first` on */
    uint32_t *n_tokens;  /* [set->n_turns] */
    uint32_t *n_right;   /* [set->n_turns] answers found, of as many as the turn asks for */
    uint8_t *is_wrong;   /* [set->n_turns] */
} score_answers;

/* Tokens of a text that make a cluster where there are few windows: divergences of neighbours are alike. */
#define SCORE_BLOCK_TOKENS 64u

/* Windows that are enough to be clusters themselves. */
#define SCORE_MANY_WINDOWS 8u

/* A figure of scored tokens, in clusters of both kinds. */
typedef struct score_figure {
    clusters blocks, windows;
} score_figure;

/* Somebody who looks at each request's cache at its end, before it is closed. */
typedef struct score_watch {
    int (*request_ended)(void *ctx, const pleat_cache *cache, pleat_seq seq); /* CLI_OK, or a code after a message */
    void *ctx;
} score_watch;

/* One spec's results.  Sums; the figures that are shown are quotients of them. */
typedef struct score_row {
    pleat_spec spec;
    const char *kv;           /* the spec's canonical text, not owned */
    const pleat_stats *stats; /* NULL: those that the model was loaded with.  For score_text() alone */
    task_score score[TASKS_CAP];
    score_answers answers;
    uint64_t n_requests;        /* of a serving; 0: there was none */
    pleat_serving_stats served; /* what it did */
    uint64_t n_scored;          /* tokens of the text that were predicted */
    uint64_t n_to_score;        /* that there are to predict; more than n_scored where that was interrupted */
    double nll_sum;             /* of their negative log-likelihoods, nats */
    double kld_sum;             /* of KL(first spec's prediction || this one's), nats */
    uint64_t n_same_top1;       /* positions where the likeliest token is the first spec's */
    score_figure kld, same_top1;
    uint64_t bytes, bytes_f16;        /* held at the ends of the windows, summed */
    score_short of_short;             /* windows */
    pleat_cache_drift drift;          /* of all requests, at their ends */
    char choice[PLEAT_SPEC_TEXT_CAP]; /* what `auto` became, "" for other specs */
    double seconds;                   /* in steps */
    score_watch watch;                /* request_ended NULL: nobody */
    double watch_seconds;             /* spent in the watch; not among `seconds` */
} score_row;

/* Is there room to read every sample a second time, where the spec asks for it?  CLI_OK, or CLI_FAILED after a message. */
int score_tasks_fit(const score_options *o, const loaded *l, const task_set *set, const pleat_spec *spec);

/* Answer every sample with row->spec.  score_release_row() is due behind it, whatever comes of it. */
int score_tasks(const score_options *o, const loaded *l, const task_set *set, score_row *row);

/* The same, each turn as a request of one serving. */
int score_tasks_served(const score_options *o, const service_options *service, const loaded *l, const task_set *set,
                       score_row *row);

/* Predict the text at `path` with every row's spec, the first being the reference.  Interrupted, the rows have the figures
 * of the windows that all of them have predicted. */
int score_text(const score_options *o, const loaded *l, const char *path, score_row *rows, uint32_t n_rows);

/* For all: the request `what`, of n_tokens in all, is over. */
typedef struct score_request {
    const char *what;
    uint32_t n_tokens;
    pleat_seq seq;
} score_request;

/* Add what it holds to *bytes and *bytes_f16, and to *of_short if it is short, and let the watch look. */
int score_measure(score_row *row, const pleat_engine *engine, const score_request *request, uint64_t *bytes,
                  uint64_t *bytes_f16, score_short *of_short);

/* The same, then close it. */
int score_close(score_row *row, pleat_engine *engine, const score_request *request, uint64_t *bytes,
                uint64_t *bytes_f16, score_short *of_short);

/* ---- answers ----------------------------------------------------------------------------------- */

/* The model's token number `at` of turn t's answer, from 0: note it, and say whether it is right: the answer's own, and behind
 * the last the end. */
int score_take_token(score_row *row, const loaded *l, const task_set *set, const turn *t, uint32_t at,
                     pleat_token token);

/* Whether the turn ends with that token of its answer: the one behind the answer's last, or, of an open turn, an end or the
 * last that it may have. */
int score_turn_is_over(const loaded *l, const turn *t, uint32_t at, pleat_token token);

/* The turn is over: count what of it is right. */
void score_take_turn(score_row *row, const loaded *l, const sample *s, const turn *t);

/* Take memory for what the set's turns are answered, and give it back. */
void score_begin_row(score_row *row, const task_set *set);
void score_release_row(score_row *row);

/* ---- the whole --------------------------------------------------------------------------------- */

#define SCORE_COLUMNS_CAP (TASKS_CAP + 17)
typedef struct evaluation {
    const score_options *o;
    loaded l;
    task_set set;    /* empty without --tasks */
    score_row *rows; /* [o->load.kv.n] */
    uint32_t n_rows; /* of these, the first that are shown: all, or those that an interruption left */
    int is_served;   /* the tasks were asked as requests of a serving */
    const char *titles[SCORE_COLUMNS_CAP]; /* of score_table() */
} evaluation;

/* a/b, NAN when b is not positive. */
double score_quotient(double a, double b);

/* NAN where there is nothing to divide by. */
double score_task_accuracy(const score_row *row, uint32_t task);
double score_accuracy(const evaluation *e, const score_row *row);
double score_perplexity(const score_row *row);

/* Standard errors, NAN where there is too little to tell.  Of a task's and a row's accuracy: over samples.  Of what a row's
 * is above the first row's: sample by sample.  Of a figure of the text: over windows or, where there are few, over blocks
 * of SCORE_BLOCK_TOKENS. */
double score_task_error(const evaluation *e, const score_row *row, uint32_t task);
double score_accuracy_error(const evaluation *e, const score_row *row);
double score_gain_error(const evaluation *e, const score_row *row);
double score_figure_error(const score_figure *figure);

/* Bytes held at the ends of the samples, or of the windows if there were no samples. */
/* Share of codes' matrices in blocks that have classes of their own; NAN where no block has the model's. */
double score_drift(const score_row *row);

void score_bytes(const evaluation *e, const score_row *row, uint64_t *bytes, uint64_t *bytes_f16);

/* Their bytes over f16's for short requests alone; NAN where there is none. */
double score_fraction_short(const evaluation *e, const score_row *row);

/* All rows as a table; its titles live in *e.  The caller releases it. */
void score_table(evaluation *e, table *t);

/* What a serving did, under the names of `bench serve`; null where there was none. */
json_t *score_served_json(const score_row *row);

/* Write what each row answered to `path`, one JSON object a line:
 * {"kv", "id", "turn", "right", "answer", "tokens"}.  CLI_OK, or CLI_FAILED after a message. */
int score_write_answers(const evaluation *e, const char *path);

#endif
