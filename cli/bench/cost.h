/* SPDX-License-Identifier: MIT
 *
 * cost.h: the rates of include/pleat/cost.h, measured turn and turn about with what they are to predict.
 *
 * A few calls of one format, k8v8, are timed.  Some have everything in the cores' own caches: from these come the rates
 * of work.  Others read from memory: they show how much of the shorter of reading and computing stays visible.  Other
 * formats and shapes are then predictions.
 */
#ifndef PLEAT_CLI_BENCH_COST_H
#define PLEAT_CLI_BENCH_COST_H

#include "caches.h"
#include "pleat/cost.h"

#define BENCH_COST_CASES 14

typedef struct bench_cost {
    uint32_t n_cases; /* of which the caches are there */
    bench_cache caches[BENCH_COST_CASES];
    pleat_cost_work work[BENCH_COST_CASES];
    uint32_t n_passes[BENCH_COST_CASES];
    double *ms[BENCH_COST_CASES]; /* [reps] */
} bench_cost;

/* Make the caches.  CLI_OK, or CLI_FAILED after a message; release it in either case. */
int bench_cost_init(bench_cost *c, const bench_noise *noise, pleat_workers *workers, uint32_t reps);
void bench_cost_release(bench_cost *c);

/* Time every call once and keep it as repetition `rep`; rep -1 warms up. */
int bench_cost_measure(bench_cost *c, int rep);

/* The rates by the medians of all repetitions, and the bandwidth measured beside them. */
int bench_cost_rates(bench_cost *c, uint32_t reps, double gb_per_s, pleat_cost_rates *out);

/* What one layer's attention of a shape takes, in milliseconds; NAN for a shape that the model does not know. */
double bench_cost_predict(const bench_shape *shape, pleat_spec spec, uint32_t n_threads, const pleat_cost_rates *rates);

#endif
