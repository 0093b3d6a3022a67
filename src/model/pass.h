/* SPDX-License-Identifier: MIT
 *
 * pass.h: the forward pass's memory, and its pieces: forward.c calls them in order.
 *
 *     x = embedding rows * embedding_scale                                                                forward.c
 *     each layer:   n = norm(x);  q, k, v = Wq n, Wk n, Wv n (+ biases; heads normed);  q, k turned     attention.c
 *                   a = attend(q, k, v);  x += branch(Wo a)
 *                   n = norm(x);  x += branch(feed-forward or experts of n)                          feed_forward.c
 *     logits = bounded(logit_scale * Wout norm(x))                                                        forward.c
 *
 *     branch(y) = residual_scale * norm(y + bias), each part where the layer has it
 *     feed-forward(n) = Wd (act(Wg n) * Wu n)
 *     experts(n) = sum over the chosen experts of weight * feed-forward of the expert, each matrix's product with its
 *                  bias where there is one                                                                experts.c
 *
 * It is one pass for all architectures: what a layer does not have is skipped, and no piece knows an architecture.
 *
 * Rows are the items' new tokens in order; every buffer is [rows][width].  A row whose logits are not wanted ends after
 * the last layer's attention: nobody reads what would follow.
 */
#ifndef PLEAT_MODEL_PASS_H
#define PLEAT_MODEL_PASS_H

#include "linear/linear.h"
#include "model/forward.h"
#include "model/ops.h"

/* Rows that a piece of the pass works on: all of the step, or those whose logits are wanted. */
typedef struct pleat__step_rows {
    pleat__linear_job job; /* what products on these rows have in common */
    const uint32_t *rows;  /* [n] which; NULL: 0..n-1 */
    uint32_t n;
} pleat__step_rows;

/* What experts need; all NULL where the model has none. */
typedef struct pleat__routing {
    float *logits;    /* [n_rows][n_experts] of the router */
    uint32_t *chosen; /* [n_rows][n_experts_used] */
    float *weights;   /* [n_rows][n_experts_used] */
    uint32_t *starts; /* [n_experts + 1] where each expert's rows begin in `rows` */
    uint32_t *rows;   /* [n_rows*n_experts_used] rows by expert, each expert's in order */
    float *shares;    /* [n_rows*n_experts_used] their weights */
    float *x;         /* [n_rows][n_embd] one expert's rows, side by side */
    float *y;         /* [n_rows][n_embd] what it makes of them */
} pleat__routing;

struct pleat__forward {
    pleat_allocator al;
    const pleat_model *model;
    pleat_workers *workers;
    uint32_t max_rows;
    uint64_t block_bytes; /* of all that follows and this struct */
    pleat__linear_dsp linear;
    pleat__ops_dsp ops;
    pleat__layer *layers;   /* [n_layers] the model's, with packed matrices in place of quantised ones */
    pleat__matrix output;   /* the model's, packed where it is quantised */
    double *frequencies[2]; /* [n_dims/2] of each of the model's ropes */
    float **scratch;        /* [workers] of pleat__linear_scratch_bytes() */

    /* The step. */
    uint32_t n_rows;
    uint32_t n_wanted;
    uint32_t n_spans;
    uint32_t n_wanted_spans;
    pleat_token *tokens;              /* [n_rows] */
    uint32_t *positions;              /* [n_rows] */
    uint32_t *wanted;                 /* [n_wanted] rows whose logits are wanted */
    pleat__linear_span *spans;        /* [n_spans] one for each item */
    pleat__linear_span *wanted_spans; /* [n_wanted_spans] those rows, item by item */
    float **logits;                   /* [n_wanted_spans] where each span's go */
    float *x;                         /* [n_rows][n_embd] the residual stream */
    float *normed;                    /* [n_rows][n_embd] */
    float *branch;                    /* [n_rows][n_embd] what is going to be added to x */
    float *q;                         /* [n_rows][n_q_heads][head_dim]; then attention's output */
    float *k;                         /* [n_rows][n_kv_heads][head_dim] */
    float *v;
    float *gate; /* [n_rows][widest feed-forward]; then act(gate) * up */
    float *up;
    float *turns;        /* [n_ropes][n_rows][2*n_dims] */
    pleat__coded *coded; /* [n_rows][widest/32] the rows of a product, coded */
    pleat__routing routing;
};

/* fn(fw, arg, i, row) for the i-th of the rows, in units that a team shares; a few run on the caller's thread. */
typedef void (*pleat__row_fn)(const pleat__forward *fw, const void *arg, uint32_t i, uint32_t row);
void pleat__for_rows(const pleat__forward *fw, pleat__row_fn fn, const void *arg, const uint32_t *rows, uint32_t n);

/* normed = norm(x). */
void pleat__norm_rows(const pleat__forward *fw, const float *weight, const pleat__step_rows *on);

/* Attention of a layer, up to q: Wo is the branch's.  The cache's status. */
pleat_status pleat__attention_run(pleat__forward *fw, pleat_cache *cache, uint32_t layer_idx,
                                  const pleat__step_rows *on);

/* x += branch(w rows), rows [n_rows][w->cols]; bias and norm may be NULL. */
void pleat__branch_run(pleat__forward *fw, const pleat__matrix *w, const float *rows, const float *bias,
                       const float *norm, const pleat__step_rows *on);

/* The feed-forward of a layer, or its experts, added to x. */
void pleat__feed_forward_run(pleat__forward *fw, const pleat__layer *layer, const pleat__step_rows *on);

/* gate = act(gate) * up, of the rows of `job`. */
void pleat__gate_run(pleat__forward *fw, const pleat__matrix *gate, const pleat__matrix *up, pleat__linear_job job);

/* branch = the sum over each row's experts. */
void pleat__experts_run(pleat__forward *fw, const pleat__layer *layer, const pleat__step_rows *on);

#endif
