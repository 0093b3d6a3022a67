/* SPDX-License-Identifier: MIT
 *
 * trace.h: who asks what, and when: the traffic that `pleat bench serve` replays.
 *
 *     a file of one JSON object a line     trace_load       a synthetic one     synthetic.h
 *
 *     {"arrival": 0.25, "prompt_tokens": 225, "output_tokens": 209, "tenant": "a", "priority": 1,
 *      "prefix": "system-1", "prefix_tokens": 96, "salt": "x"}
 *
 * Only arrival, output_tokens and prompt_tokens must stand there; `prompt`, a text, may stand for prompt_tokens.  The
 * tokens of a prompt are made up unless it has a text: the first prefix_tokens are the same wherever the prefix has the
 * same name, the others are the request's own.
 */
#ifndef PLEAT_CLI_TRACE_H
#define PLEAT_CLI_TRACE_H

#include <stdio.h>

#include "cli/lib/load.h"

/* Most of each that a request may say: far above any model's, so that sums stay within 32 bits. */
enum { TRACE_TOKENS_MAX = 1 << 24 };
#define TRACE_SECONDS_MAX 1e9

typedef struct trace_request {
    double arrival_s; /* since the replay's start; not before the request in front of it */
    uint32_t n_prompt, n_output;
    uint32_t n_prefix; /* first tokens of the prompt that others share; 0: none */
    uint32_t tenant;   /* index into tenants */
    int32_t priority;
    uint32_t line;       /* in the file, or its number, from 1 */
    char *prefix, *salt; /* owned; NULL: none */
    pleat_token *prompt; /* [n_prompt] of its text, owned; NULL: made up */
} trace_request;

/* --tenants NAME:QUOTA%[:WEIGHT],...  A name is the text before its colon. */
#define TENANTS_CAP 64
typedef struct tenant_list {
    uint32_t n; /* 0: not given: one tenant, "" */
    pleat_tenant v[TENANTS_CAP];
} tenant_list;

/* Parse `text`.  CLI_OK, or CLI_USAGE after a message; tenants_release() is due in either case. */
int tenants_parse(const char *text, tenant_list *out);
void tenants_release(tenant_list *tenants);

typedef struct trace {
    const char *path;        /* NULL: synthetic */
    trace_request *requests; /* [n] by arrival */
    uint32_t n, cap;
    uint32_t n_rejected; /* lines that were no request */
} trace;

/* A new request at the end, all zeros.  Valid until the next one. */
trace_request *trace_add(trace *t);

/* Read `path` ("-": stdin), at most `most` requests (0: all).  Lines that are wrong are told as FILE:LINE and counted,
 * the others go on.  l: the model for texts; NULL: none.  CLI_OK, or CLI_USAGE after a message if the file cannot be
 * read at all; trace_release() is due in either case. */
int trace_load(trace *t, const char *path, const loaded *l, const tenant_list *tenants, uint32_t most);

/* Tell why a request is not served, by its line (of a synthetic trace: its number from 1), and count it in *n_rejected;
 * only the first of many are told. */
void trace_reject(const trace *t, uint32_t line, uint32_t *n_rejected, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Arrivals anew: at random and independent of each other, rate_s of them a second; all at 0 if that is infinite. */
void trace_arrivals(trace *t, double rate_s, uint64_t seed);

/* Write it as a file that trace_load() reads.  CLI_OK, or CLI_FAILED after a message. */
int trace_write(const trace *t, const tenant_list *tenants, const char *path);

void trace_release(trace *t);

/* Where made-up tokens come from: any of n_vocab ordinary ones, or a text's in their order. */
typedef struct token_source {
    const loaded *l;         /* NULL: no model; every id below n_vocab is ordinary */
    const pleat_token *text; /* [n_text]; NULL: random ones */
    uint32_t n_text, n_vocab;
    uint64_t seed;
} token_source;

/* The prompt of request `r`, the trace's i-th, into out[n_prompt]: the same for the same seed, whatever else the trace
 * holds. */
void trace_prompt(const trace_request *r, uint32_t i, const token_source *source, pleat_token *out);

/* `out` becomes the i-th of as many requests as a server would have under way that has long been busy with the trace's:
 * each is met as often as its output is long, at any of its tokens alike.  What it has generated is part of its prompt,
 * made up as the rest. */
void trace_age(const trace *t, uint32_t i, uint64_t seed, trace_request *out);

#endif
