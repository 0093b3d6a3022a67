/* SPDX-License-Identifier: MIT
 *
 * cost.c: see cost.h.
 */
#include "cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/measure.h"

/* Calls in cache differ in each kind of work; each thread has a sequence.  Those from memory: lanes so short that their
 * beginning counts, long ones that read as much as they compute, and long ones that compute little.  */
typedef struct cost_case {
    uint32_t ctx, kv_heads, group, head_dim;
    uint32_t mib; /* read from memory, in turn; 0: one layer, in cache */
} cost_case;

static const cost_case cases[BENCH_COST_CASES] = {
    {16, 1, 1, 64, 0},   {16, 1, 8, 256, 0},   {16, 64, 1, 64, 0},    {16, 64, 4, 128, 0},   {512, 1, 1, 256, 0},
    {512, 1, 8, 256, 0}, {2048, 1, 1, 64, 0},  {2048, 1, 8, 64, 0},   {1024, 1, 4, 128, 0},  {2048, 1, 4, 64, 0},
    {512, 8, 4, 64, 48}, {512, 8, 4, 128, 48}, {8192, 8, 1, 128, 48}, {8192, 8, 4, 128, 48},
};

static const double least_ms = 0.1; /* that a turn of a case in cache takes, so that the clock does not matter */

static pleat_status work_of(const bench_shape *s, pleat_spec spec, uint32_t n_threads, pleat_cost_work *out) {
    const pleat_cost_shape shape = {.format = spec.high,
                                    .head_dim = s->head_dim,
                                    .n_group = s->group,
                                    .n_lanes = s->batch * s->kv_heads,
                                    .n_tokens = s->ctx,
                                    .n_threads = n_threads,
                                    .cpu_flags = pleat_cpu_flags()};
    return pleat_cost_work_of(&shape, out);
}

static int make_case(bench_cost *c, const cost_case *from, const bench_noise *noise, pleat_workers *workers) {
    static const char name[] = "k8v8";
    const uint32_t n_threads = pleat_workers_count(workers), i = c->n_cases;
    const bench_shape shape = {from->ctx, from->mib ? 1 : n_threads, from->kv_heads, from->group, from->head_dim};
    pleat_spec spec;
    pleat_status status = pleat_spec_parse(name, &spec, NULL);
    if (status == PLEAT_OK) status = work_of(&shape, spec, n_threads, &c->work[i]);
    if (status != PLEAT_OK) return cli_fail("the cost model", status, NULL);
    c->n_cases++;
    return bench_cache_init(&c->caches[i], &shape, spec, name,
                            bench_layers_for(&shape, spec, (uint64_t)from->mib << 20), noise, workers);
}

int bench_cost_init(bench_cost *c, const bench_noise *noise, pleat_workers *workers, uint32_t reps) {
    int code = CLI_OK;
    memset(c, 0, sizeof *c);
    for (uint32_t i = 0; i < BENCH_COST_CASES; i++) c->ms[i] = cli_alloc(reps, sizeof(double));
    for (uint32_t i = 0; i < BENCH_COST_CASES && code == CLI_OK; i++) code = make_case(c, &cases[i], noise, workers);
    return code;
}

void bench_cost_release(bench_cost *c) {
    for (uint32_t i = 0; i < c->n_cases; i++) bench_cache_release(&c->caches[i]);
    for (uint32_t i = 0; i < BENCH_COST_CASES; i++) free(c->ms[i]);
    memset(c, 0, sizeof *c);
}

int bench_cost_measure(bench_cost *c, int rep) {
    int code = CLI_OK;
    for (uint32_t i = 0; i < c->n_cases && code == CLI_OK; i++) {
        double ms;
        if (!cases[i].mib) code = bench_cache_time(&c->caches[i], 1, &ms); /* into the caches */
        if (rep < 0 && code == CLI_OK) {
            code = bench_cache_time(&c->caches[i], 1, &ms);
            c->n_passes[i] = cases[i].mib ? 1 : 1 + (uint32_t)(least_ms / ms);
        } else if (code == CLI_OK) {
            code = bench_cache_time(&c->caches[i], c->n_passes[i], &c->ms[i][rep]);
        }
    }
    return code;
}

int bench_cost_rates(bench_cost *c, uint32_t reps, double gb_per_s, pleat_cost_rates *out) {
    double ns[BENCH_COST_CASES];
    uint32_t n_core = 0;
    for (uint32_t i = 0; i < c->n_cases; i++) {
        ns[i] = 1e6 * measure_median(c->ms[i], reps);
        n_core += !cases[i].mib;
    }
    memset(out, 0, sizeof *out);
    out->gb_per_s = gb_per_s;
    pleat_status status = pleat_cost_fit_core(c->work, ns, n_core, out);
    if (status == PLEAT_OK) status = pleat_cost_fit_memory(c->work + n_core, ns + n_core, c->n_cases - n_core, out);
    return status == PLEAT_OK ? CLI_OK : cli_fail("the cost model", status, NULL);
}

double bench_cost_predict(const bench_shape *shape, pleat_spec spec, uint32_t n_threads,
                          const pleat_cost_rates *rates) {
    pleat_cost_work work;
    if (work_of(shape, spec, n_threads, &work) != PLEAT_OK) return NAN;
    return 1e-6 * pleat_cost_ns(&work, rates, 1);
}
