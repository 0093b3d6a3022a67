/* SPDX-License-Identifier: MIT
 *
 * experts.c: a mixture of experts: each row takes a few of many feed-forwards, which a router chooses.
 *
 *     router logits ── softmax over all experts ── the n_experts_used largest ── weights (divided by their sum)
 *     rows by expert:  e0: 0 3 7 | e1: | e2: 0 1 | ...      one expert after the other: its rows side by side,
 *                                                           gate, up, down, and weight * result added to their branches
 *
 * A row's result depends on the row alone.  An expert's products take the vector kernels, whose results do not depend
 * on how many rows chose it: which do is up to the other items of the step.  And a row's experts are added in the order
 * of their numbers.
 *
 * Among equal logits the expert with the lower number is chosen first.
 */
#include <math.h>
#include <string.h>

#include "model/pass.h"

/* ---- routing ----------------------------------------------------------------------------------------------------- */

/* The largest of the logits that is not among the first n chosen; logits that are not finite are no reason to fail. */
static uint32_t next_best(const float *logits, uint32_t n_experts, const uint32_t *chosen, uint32_t n) {
    uint32_t best = UINT32_MAX;
    for (uint32_t e = 0; e < n_experts; e++) {
        bool is_taken = false;
        for (uint32_t i = 0; i < n; i++) is_taken |= chosen[i] == e;
        if (!is_taken && (best == UINT32_MAX || logits[e] > logits[best])) best = e;
    }
    return best;
}

/* The experts of a row and their weights. */
static void choose_row(const pleat__forward *fw, const void *arg, uint32_t i, uint32_t row) {
    const pleat_model *m = fw->model;
    const pleat__layer *layer = arg;
    float *logits = fw->routing.logits + (size_t)row * m->n_experts;
    uint32_t *chosen = fw->routing.chosen + (size_t)row * m->n_experts_used;
    float *weights = fw->routing.weights + (size_t)row * m->n_experts_used;
    double sum = 0, chosen_sum = 0;
    (void)i;
    for (uint32_t e = 0; layer->router_bias && e < m->n_experts; e++) logits[e] += layer->router_bias[e];
    for (uint32_t n = 0; n < m->n_experts_used; n++) {
        chosen[n] = next_best(logits, m->n_experts, chosen, n);
        chosen_sum += exp((double)logits[chosen[n]] - (double)logits[chosen[0]]);
    }
    for (uint32_t e = 0; e < m->n_experts; e++) sum += exp((double)logits[e] - (double)logits[chosen[0]]);
    if (m->sums_experts_to_1) sum = chosen_sum;
    for (uint32_t n = 0; n < m->n_experts_used; n++)
        weights[n] = (float)(exp((double)logits[chosen[n]] - (double)logits[chosen[0]]) / sum);
    memset(fw->branch + (size_t)row * m->info.n_embd, 0, m->info.n_embd * sizeof(float));
}

/* The rows of each expert, in order. */
static void sort_by_expert(pleat__forward *fw, const pleat__step_rows *on) {
    const pleat_model *m = fw->model;
    pleat__routing *r = &fw->routing;
    memset(r->starts, 0, (m->n_experts + 1) * sizeof *r->starts);
    for (uint32_t i = 0; i < on->n; i++) {
        const uint32_t row = on->rows ? on->rows[i] : i;
        for (uint32_t n = 0; n < m->n_experts_used; n++) r->starts[r->chosen[(size_t)row * m->n_experts_used + n]]++;
    }
    uint32_t end = 0;
    for (uint32_t e = 0; e <= m->n_experts; e++) r->starts[e] = end += r->starts[e];
    for (uint32_t i = on->n; i-- > 0;) { /* backwards: each start moves from its range's end to its begin */
        const uint32_t row = on->rows ? on->rows[i] : i;
        for (uint32_t n = 0; n < m->n_experts_used; n++) {
            const size_t at = (size_t)row * m->n_experts_used + n;
            const uint32_t to = --r->starts[r->chosen[at]];
            r->rows[to] = row;
            r->shares[to] = r->weights[at];
        }
    }
}

/* ---- one expert -------------------------------------------------------------------------------------------------- */

static void gather_row(const pleat__forward *fw, const void *arg, uint32_t i, uint32_t row) {
    const size_t n = fw->model->info.n_embd;
    (void)arg;
    memcpy(fw->routing.x + i * n, fw->normed + row * n, n * sizeof(float));
}

/* An expert at work; its biases are NULL where the layer has none. */
typedef struct expert {
    const float *shares; /* of its rows */
    const float *gate_bias, *up_bias, *down_bias;
} expert;

static void scatter_row(const pleat__forward *fw, const void *arg, uint32_t i, uint32_t row) {
    const expert *ex = arg;
    const size_t n = fw->model->info.n_embd;
    float *y = fw->routing.y + i * n, *to = fw->branch + row * n;
    for (size_t j = 0; ex->down_bias && j < n; j++) y[j] += ex->down_bias[j];
    for (size_t j = 0; j < n; j++) to[j] += ex->shares[i] * y[j];
}

/* gate = act(gate + bias) * (up + bias) */
static void gate_row(const pleat__forward *fw, const void *arg, uint32_t i, uint32_t row) {
    const expert *ex = arg;
    const uint32_t n = fw->model->n_ff_expert;
    float *gate = fw->gate + (size_t)i * n, *up = fw->up + (size_t)i * n;
    (void)row;
    for (uint32_t j = 0; j < n; j++) gate[j] += ex->gate_bias[j];
    for (uint32_t j = 0; j < n; j++) up[j] += ex->up_bias[j];
    (fw->model->arch->is_clipped ? fw->ops.swiglu_clipped : fw->ops.swiglu)(gate, up, n);
}

static void run_gate(pleat__forward *fw, const pleat__matrix *gate, const pleat__matrix *up, const expert *ex,
                     pleat__linear_job job, uint32_t n_rows) {
    if (!ex->gate_bias) {
        pleat__gate_run(fw, gate, up, job);
        return;
    }
    job.n_parts = 2;
    job.parts[0] = (pleat__linear_part){gate, fw->gate};
    job.parts[1] = (pleat__linear_part){up, fw->up};
    pleat__linear_run(&job, fw->workers);
    pleat__for_rows(fw, gate_row, ex, NULL, n_rows);
}

static void run_expert(pleat__forward *fw, const pleat__layer *layer, uint32_t e) {
    const pleat__routing *r = &fw->routing;
    const uint32_t *rows = r->rows + r->starts[e];
    const uint32_t n = r->starts[e + 1] - r->starts[e];
    const pleat__matrix gate = pleat__stack_at(&layer->gates, e), up = pleat__stack_at(&layer->ups, e);
    const pleat__matrix down = pleat__stack_at(&layer->downs, e);
    const pleat__linear_span span = {.row = 0, .n_rows = n};
    const size_t n_ff = fw->model->n_ff_expert, n_embd = fw->model->info.n_embd;
    expert ex = {.shares = r->shares + r->starts[e]};
    if (n == 0) return;
    if (layer->gate_biases) {
        ex.gate_bias = layer->gate_biases + e * n_ff;
        ex.up_bias = layer->up_biases + e * n_ff;
        ex.down_bias = layer->down_biases + e * n_embd;
    }
    pleat__for_rows(fw, gather_row, NULL, rows, n);
    pleat__linear_job job = {.dsp = &fw->linear,
                             .x = r->x,
                             .spans = &span,
                             .n_spans = 1,
                             .vectors_only = true,
                             .coded = fw->coded,
                             .scratch = fw->scratch};
    run_gate(fw, &gate, &up, &ex, job, n);
    job.x = fw->gate;
    job.n_parts = 1;
    job.parts[0] = (pleat__linear_part){&down, r->y};
    pleat__linear_run(&job, fw->workers);
    pleat__for_rows(fw, scatter_row, &ex, rows, n);
}

void pleat__experts_run(pleat__forward *fw, const pleat__layer *layer, const pleat__step_rows *on) {
    pleat__linear_job router = on->job;
    router.x = fw->normed;
    router.n_parts = 1;
    router.parts[0] = (pleat__linear_part){&layer->router, fw->routing.logits};
    pleat__linear_run(&router, fw->workers);
    pleat__for_rows(fw, choose_row, layer, on->rows, on->n);
    sort_by_expert(fw, on);
    for (uint32_t e = 0; e < fw->model->n_experts; e++) run_expert(fw, layer, e);
}
