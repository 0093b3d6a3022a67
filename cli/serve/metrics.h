/* SPDX-License-Identifier: MIT
 *
 * metrics.h: counters of a server, and the text that Prometheus reads: vLLM's names where it has them, ours beside.
 */
#ifndef PLEAT_CLI_SERVE_METRICS_H
#define PLEAT_CLI_SERVE_METRICS_H

#include <stdio.h>

#include "keys.h"
#include "pleat/pleat.h"

enum { HISTOGRAM_BOUNDS = 16, METRICS_STATUSES = 600 };

typedef struct histogram {
    uint64_t
        counts[HISTOGRAM_BOUNDS + 1]; /* [i]: values up to the i-th bound and above the one before; the last: more */
    double sum;
} histogram;

typedef struct tenant_counts {
    uint64_t n_texts, n_prompt, n_generated; /* texts that came to their end, and their tokens */
} tenant_counts;

typedef struct metrics {
    uint64_t responses[METRICS_STATUSES];           /* by status */
    uint64_t n_finished[PLEAT_FINISH_DEADLINE + 1]; /* texts by pleat_finish */
    uint64_t n_aborted;                             /* requests whose client left, or that the server's end cut off */
    tenant_counts *tenants;                         /* by index in the keys */
    uint32_t n_connections;                         /* open now */
    uint64_t n_displaced;                           /* closed to make room for others */
    histogram first_token_s, token_s, whole_s;
} metrics;

void histogram_add(histogram *h, double seconds);

/* A KV spec that is served. */
typedef struct spec_stats {
    const char *kv;
    uint64_t page_bytes;
    pleat_serving_stats serving;
} spec_stats;

/* What the text has beside the counters. */
typedef struct metrics_facts {
    const char *model;
    const api_keys *keys;
    const spec_stats *specs; /* [n_specs] */
    uint32_t n_specs;
    const pleat_store_stats *store;   /* NULL: there is none */
    const pleat_events_stats *events; /* NULL: nobody is told */
    uint32_t n_conversations;         /* in memory */
    double uptime_s;
} metrics_facts;

void metrics_print(FILE *f, const metrics *m, const metrics_facts *facts);

#endif
