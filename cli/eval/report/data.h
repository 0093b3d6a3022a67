/* SPDX-License-Identifier: MIT
 *
 * data.h: what the report shows beyond eval's rows, and how it is gathered from the library's public calls.
 *
 *     kept     for each spec with a policy: share of a request's tokens that each lane still holds at its end
 *     study    attention itself: a pass in which every token is scored and none is dropped or requantised
 *     trace    one request under the first policy: what its cache holds after each step
 *
 * A lane is one KV head of one layer; lanes lie as [n_layers][n_heads].  Means and deviations are over requests.
 */
#ifndef PLEAT_CLI_REPORT_DATA_H
#define PLEAT_CLI_REPORT_DATA_H

#include "cli/lib/score/score.h"
#include "stats.h"

enum {
    REPORT_LAYERS = 3,   /* first, middle, last: shown in detail */
    REPORT_REQUESTS = 8, /* most samples of each task, or windows of the text, in the study */
};

typedef struct report_data report_data;

/* Shares of a request's tokens. */
typedef struct share_stat {
    moments high; /* kept high, the window included */
    moments kept; /* kept high or low */
} share_stat;

typedef struct kept_shares {
    report_data *data;  /* for the watch */
    share_stat *layers; /* [n_layers]; NULL: the spec has no policy */
    share_stat *lanes;  /* [n_layers][n_heads] */
} kept_shares;

typedef struct attention_study {
    moments n_tokens;                          /* of a request */
    moments *need_layers;                      /* [n_layers]: mean over the layer's lanes of the same */
    moments *need_lanes;                       /* lanes: least share of the tokens that received REPORT_MASS */
    log_histogram significance[REPORT_LAYERS]; /* of tokens, the newest left out */
    log_histogram norm[REPORT_LAYERS];         /* of value vectors, euclidean */
} attention_study;

/* Of the attention received, how much the tokens counted in need_* make up. */
#define REPORT_MASS 0.95

typedef struct trace_point {
    uint32_t n_tokens; /* of the sequence so far */
    pleat_cache_usage usage;
} trace_point;

typedef struct request_trace {
    const char *kv; /* NULL: no spec has a policy */
    char *what;     /* which request */
    trace_point *points;
    uint32_t n_points;
    uint32_t n_prompt; /* tokens of the first prompt */
} request_trace;

struct report_data {
    const char *path; /* of the page; not owned */
    uint32_t n_layers, n_heads, head_dim;
    uint32_t shown[REPORT_LAYERS], n_shown; /* layers in detail, ascending, each once */
    uint32_t n_rows;
    kept_shares *kept; /* [n_rows] */
    attention_study study;
    request_trace trace;

    uint32_t cap; /* tokens that the scratch holds */
    pleat_cache_token *tokens;
    float *values; /* [cap][head_dim] */
    float *received;
};

report_data *report_data_create(const evaluation *e);
void report_data_destroy(report_data **data);

/* The watch of row `i`, whose spec has a policy. */
score_watch report_watch_kept(report_data *data, uint32_t i);

/* Gather the study and the trace.  CLI_OK, or a code after a message. */
int report_gather(report_data *data, const evaluation *e);

#endif
