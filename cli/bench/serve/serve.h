/* SPDX-License-Identifier: MIT
 *
 * serve.h: what the parts of `pleat bench serve` share.
 *
 *     options.c  what it takes
 *     serve.c    the command: one trace, one spec after another
 *     target.c   what is measured: an engine with its requests, or a simulated one, and its prices
 *     replay.c   requests in at their times, tokens out: latencies, samples
 *     rows.c     the figures, in every form
 *     series.c   the samples as CSV and SVG
 */
#ifndef PLEAT_CLI_BENCH_SERVE_H
#define PLEAT_CLI_BENCH_SERVE_H

#include "cli/bench/lib/made.h"
#include "cli/lib/load.h"
#include "cli/lib/output.h"
#include "cli/lib/service.h"
#include "cli/lib/shape/shape.h"
#include "trace.h"

typedef struct serve_options {
    common_options common;
    load_options load;
    service_options service;
    store_options store;
    uint32_t ctx_size;        /* 0: the model's */
    const char *shape;        /* of a model with random weights; NULL: not given */
    uint32_t weights;         /* theirs */
    const char *arch;         /* NULL: not given */
    const char *trace;        /* NULL: not given */
    const char *synthetic;    /* NULL: not given */
    const char *text;         /* NULL: random tokens */
    const char *write_trace;  /* a file to write; NULL: none */
    const char *svg, *series; /* files to write; NULL: none */
    const char *tenants;      /* NULL: one, without a name */
    int simulate;
    uint64_t seed;
    uint32_t requests; /* 0: all of a file, as many as a preset has */
    float seconds;     /* of measuring, after which nobody is served any more; 0: until all are */
    float warmup;      /* seconds before anything is measured */
    int steady;        /* begin with requests that are midway, as many as there is room for */
    uint32_t max_running;
    float rate; /* requests/s; 0: not given */
    float_list prices, fractions;
    float ah_most, al_most; /* 0: no compression in need */
} serve_options;

/* All of it; `opts` is a serve_options. */
int serve_main(void *opts);

/* ---- what is measured ------------------------------------------------------------------------ */

/* What all specs have in common. */
typedef struct serve_setup {
    serve_options *o;
    loaded l;        /* model NULL: simulated by --arch */
    made_model made; /* bytes NULL: there is a file, or none */
    uint32_t n_layers, n_kv_heads, n_q_heads, head_dim;
    uint32_t window, n_windowed; /* n_windowed layers see the newest `window` tokens only */
    uint32_t max_tokens;         /* of a sequence */
    uint32_t prefix_tokens;      /* prefixes are kept at multiples of this; 0: none */
    tenant_list tenants;
    pleat_store *store;            /* NULL: none */
    uint32_t max_requests;         /* requests that may wait and run at once */
    pleat_serving_options serving; /* but for tenants and max_requests */
} serve_setup;

/* Who serves, under one spec. */
typedef struct serve_target {
    pleat_serving *serving;
    pleat_engine *engine;        /* NULL: simulated */
    pleat_simulation simulation; /* of a simulated one: with the prices in use */
    pleat_forecast forecast;     /* what a simulated sequence holds */
} serve_target;

/* CLI_OK, or CLI_FAILED after a message; release it in either case. */
int serve_target_init(serve_target *target, const serve_setup *setup, uint32_t spec);
void serve_target_release(serve_target *target);

/* ---- the replay ------------------------------------------------------------------------------ */

/* The state at some time of the replay. */
typedef struct serve_sample {
    double time_s;
    uint32_t waiting, running, swapped;
    uint64_t pages_used, pages_evictable, pages_free; /* used ones: the evictable included */
    uint64_t pages_high, pages_low;                   /* as held by sequences: shared ones counted for each */
} serve_sample;

/* Evenly spaced in time: when it is full, every second sample goes and the distance doubles. */
#define SERVE_SAMPLES_CAP 1024
typedef struct serve_series {
    uint32_t n;
    double interval_s, next_s;
    serve_sample v[SERVE_SAMPLES_CAP];
} serve_series;

/* Milliseconds; NAN where there is nothing to take them from. */
typedef struct serve_latency {
    double mean, median, p99;
} serve_latency;

typedef struct serve_result {
    uint32_t n_requests, n_completed, n_failed, n_rejected;
    uint32_t n_submitted, n_ended; /* of the trace's requests, so far */
    uint32_t n_unfinished;         /* under way, waiting, or not there yet when --seconds were over */
    uint64_t input_tokens, output_tokens, hit_tokens; /* of completed requests; output also of unfinished ones */
    uint64_t completed_tokens;                        /* of output_tokens, those of completed requests */
    uint32_t stalled_max;                             /* steps in a row without a token, of any running request */
    double duration_s;
    uint32_t page_tokens; /* of the high format */
    serve_latency ttft, tpot, itl, e2el;
    double running_mean;        /* requests in a step, over the time */
    double used_mean, used_max; /* pages in use, as a share of the pool */
    double live_mean;           /* used_mean without the evictable pages */
    double shared_mean;         /* pages that requests hold from kept prefixes, counted for each, likewise */
    double fragmentation;       /* slots of held pages without a token, as a share; NAN: not known */
    pleat_serving_stats stats;  /* at the end */
    uint64_t pages_left;        /* in use when everybody has left and no prefix is kept: 0, or some were lost */
    serve_series series;
} serve_result;

/* Serve the whole trace under the spec whose text is kv.  CLI_OK, or CLI_FAILED after a message. */
int serve_replay(const serve_setup *setup, const trace *t, const token_source *tokens, serve_target *target,
                 const char *kv, serve_result *out);

/* ---- results --------------------------------------------------------------------------------- */

/* Print a row for each spec. */
void serve_write_rows(const serve_setup *setup, const trace *t, const serve_result *results, output *out);

/* The samples of all specs.  CLI_OK, or CLI_FAILED after a message. */
int serve_write_series(const serve_setup *setup, const serve_result *results, const char *path);
int serve_write_figure(const serve_setup *setup, const serve_result *results, const char *path);

#endif
