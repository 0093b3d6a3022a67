/* SPDX-License-Identifier: MIT
 *
 * feed_forward.c: what follows attention in a layer, and how branches join the residual stream.
 *
 * A branch without bias, norm and factor is added by the product itself.  Any other goes through fw->branch.
 */
#include <math.h>

#include "model/pass.h"

/* ---- branches ---------------------------------------------------------------------------------------------------- */

typedef struct branch {
    const float *bias; /* [n_embd] or NULL */
    const float *norm; /* [n_embd] or NULL */
} branch;

static void add_row(const pleat__forward *fw, const void *arg, uint32_t i, uint32_t row) {
    const branch *b = arg;
    const uint32_t n = fw->model->info.n_embd;
    const float scale = fw->model->residual_scale;
    float *y = fw->branch + (size_t)row * n, *x = fw->x + (size_t)row * n;
    (void)i;
    for (uint32_t j = 0; b->bias && j < n; j++) y[j] += b->bias[j];
    if (b->norm) fw->ops.rmsnorm(y, b->norm, n, fw->model->rms_eps, y);
    for (uint32_t j = 0; j < n; j++) x[j] += scale * y[j];
}

/* x += branch(what is in fw->branch). */
static void branch_add(pleat__forward *fw, const float *bias, const float *norm, const pleat__step_rows *on) {
    const branch b = {bias, norm};
    pleat__for_rows(fw, add_row, &b, on->rows, on->n);
}

void pleat__branch_run(pleat__forward *fw, const pleat__matrix *w, const float *rows, const float *bias,
                       const float *norm, const pleat__step_rows *on) {
    const bool is_plain = !bias && !norm && fw->model->residual_scale == 1;
    pleat__linear_job job = on->job;
    job.x = rows;
    job.n_parts = 1;
    job.parts[0] = (pleat__linear_part){w, is_plain ? fw->x : fw->branch};
    job.add = is_plain;
    pleat__linear_run(&job, fw->workers);
    if (!is_plain) branch_add(fw, bias, norm, on);
}

/* ---- the feed-forward -------------------------------------------------------------------------------------------- */

void pleat__gate_run(pleat__forward *fw, const pleat__matrix *gate, const pleat__matrix *up, pleat__linear_job job) {
    job.n_parts = 2;
    job.parts[0] = (pleat__linear_part){gate, fw->gate};
    job.parts[1] = (pleat__linear_part){up, fw->up};
    job.join = fw->model->arch->is_gelu ? fw->ops.geglu : fw->ops.swiglu;
    pleat__linear_run(&job, fw->workers);
}

/* gate *= sigmoid(shared_gate . normed): by how much the shared expert counts for the row. */
static void weigh_shared(const pleat__forward *fw, const void *arg, uint32_t i, uint32_t row) {
    const pleat__layer *layer = arg;
    const float *n = fw->normed + (size_t)row * fw->model->info.n_embd;
    float *gate = fw->gate + (size_t)row * layer->gate.rows;
    double sum = 0;
    (void)i;
    for (uint32_t j = 0; j < fw->model->info.n_embd; j++) sum += (double)layer->shared_gate[j] * (double)n[j];
    const float share = (float)(1 / (1 + exp(-sum)));
    for (uint32_t j = 0; j < layer->gate.rows; j++) gate[j] *= share;
}

/* branch += the shared expert. */
static void add_shared_expert(pleat__forward *fw, const pleat__layer *layer, const pleat__step_rows *on) {
    pleat__linear_job job = on->job;
    job.x = fw->normed;
    pleat__gate_run(fw, &layer->gate, &layer->up, job);
    pleat__for_rows(fw, weigh_shared, layer, on->rows, on->n);
    job.x = fw->gate;
    job.n_parts = 1;
    job.parts[0] = (pleat__linear_part){&layer->down, fw->branch};
    job.add = true;
    pleat__linear_run(&job, fw->workers);
}

void pleat__feed_forward_run(pleat__forward *fw, const pleat__layer *layer, const pleat__step_rows *on) {
    pleat__norm_rows(fw, layer->ffn_norm, on);
    if (layer->router.rows > 0) {
        pleat__experts_run(fw, layer, on);
        if (layer->shared_gate) add_shared_expert(fw, layer, on);
        branch_add(fw, NULL, layer->post_ffn_norm, on);
        return;
    }
    pleat__linear_job job = on->job;
    job.x = fw->normed;
    pleat__gate_run(fw, &layer->gate, &layer->up, job);
    pleat__branch_run(fw, &layer->down, fw->gate, NULL, layer->post_ffn_norm, on);
}
