/* SPDX-License-Identifier: MIT
 *
 * attention.c: q, k and v of a layer, shaped and handed to the cache.
 *
 * Where a head's pairs stand side by side and heads are not normed, pieces of a row will do.  The unit of the product
 * that made one adds its bias and turns it, while it is in the cache of its core.  Elsewhere a head has to be whole:
 * biases, norms and turns are a pass over the rows.
 */
#include <string.h>

#include "model/pass.h"

/* Whether heads are shaped by rows, not by the units of the product. */
static bool needs_heads(const pleat__forward *fw, const pleat__layer *layer) {
    const bool has_halves = layer->rope != PLEAT__NO_ROPE && fw->model->ropes[layer->rope].is_halves;
    return layer->q_norm || layer->k_norm || has_halves;
}

static void add_bias(const float *bias, float *y, uint32_t from, uint32_t to) {
    for (uint32_t i = from; bias && i < to; i++) y[i] += bias[i];
}

static const float *turns_of(const pleat__forward *fw, const pleat__layer *layer, uint32_t row) {
    const size_t width = 2 * (size_t)fw->model->ropes[layer->rope].n_dims;
    return fw->turns + (layer->rope * (size_t)fw->max_rows + row) * width;
}

/* ---- by units ---------------------------------------------------------------------------------------------------- */

typedef struct unit_context {
    const pleat__forward *fw;
    const pleat__layer *layer;
} unit_context;

/* RoPE on dimensions [from, to) of one head at x, of those that turn. */
static void turn_piece(const pleat__forward *fw, const float *turns, uint32_t n_dims, float *x, uint32_t from,
                       uint32_t to) {
    float piece[2 * PLEAT__STRIP_ROWS];
    to = pleat__min_u32(to, n_dims);
    while (from < to) {
        const uint32_t n = pleat__min_u32(to - from, PLEAT__STRIP_ROWS);
        memcpy(piece, turns + from, n * sizeof(float));
        memcpy(piece + n, turns + n_dims + from, n * sizeof(float));
        fw->ops.rope(x + from, 1, n, piece, n);
        from += n;
    }
}

/* What a unit of q, k, v made for one row: whole heads, before and after them a part of one. */
static void shape_piece(const void *ctx, uint32_t part, uint32_t row, float *y, uint32_t from, uint32_t to) {
    const unit_context *unit = ctx;
    const pleat__forward *fw = unit->fw;
    add_bias(unit->layer->biases[part], y, from, to);
    if (part == 2 || unit->layer->rope == PLEAT__NO_ROPE) return;
    const uint32_t n_dims = fw->model->ropes[unit->layer->rope].n_dims, head_dim = fw->model->info.head_dim;
    const float *turns = turns_of(fw, unit->layer, row);
    const uint32_t first = pleat__div_up_u32(from, head_dim) * head_dim, last = to / head_dim * head_dim;
    if (first > last) { /* inside one head */
        turn_piece(fw, turns, n_dims, y + last, from - last, to - last);
        return;
    }
    if (from < first) turn_piece(fw, turns, n_dims, y + first - head_dim, from + head_dim - first, head_dim);
    fw->ops.rope(y + first, (last - first) / head_dim, head_dim, turns, n_dims);
    turn_piece(fw, turns, n_dims, y + last, 0, to - last);
}

/* ---- by rows ----------------------------------------------------------------------------------------------------- */

static void shape_heads(const pleat__forward *fw, const pleat__layer *layer, uint32_t row, float *heads, uint32_t n,
                        const float *norm) {
    const uint32_t head_dim = fw->model->info.head_dim;
    for (uint32_t h = 0; norm && h < n; h++)
        fw->ops.rmsnorm(heads + (size_t)h * head_dim, norm, head_dim, fw->model->rms_eps, heads + (size_t)h * head_dim);
    if (layer->rope == PLEAT__NO_ROPE) return;
    const pleat__rope *rope = &fw->model->ropes[layer->rope];
    const pleat__rope_fn turn = rope->is_halves ? fw->ops.rope_halves : fw->ops.rope;
    turn(heads, n, head_dim, turns_of(fw, layer, row), rope->n_dims);
}

static void shape_row(const pleat__forward *fw, const void *arg, uint32_t i, uint32_t row) {
    const pleat__layer *layer = arg;
    const pleat_model_info *info = &fw->model->info;
    const uint32_t n_q = info->n_q_heads * info->head_dim, n_kv = info->n_kv_heads * info->head_dim;
    float *q = fw->q + (size_t)row * n_q, *k = fw->k + (size_t)row * n_kv, *v = fw->v + (size_t)row * n_kv;
    (void)i;
    add_bias(layer->biases[0], q, 0, n_q);
    add_bias(layer->biases[1], k, 0, n_kv);
    add_bias(layer->biases[2], v, 0, n_kv);
    shape_heads(fw, layer, row, q, info->n_q_heads, layer->q_norm);
    shape_heads(fw, layer, row, k, info->n_kv_heads, layer->k_norm);
}

pleat_status pleat__attention_run(pleat__forward *fw, pleat_cache *cache, uint32_t layer_idx,
                                  const pleat__step_rows *on) {
    const pleat__layer *layer = &fw->layers[layer_idx];
    const unit_context unit = {fw, layer};
    const bool by_rows = needs_heads(fw, layer);
    pleat__norm_rows(fw, layer->attn_norm, on);
    pleat__linear_job qkv = on->job;
    qkv.x = fw->normed;
    qkv.n_parts = 3;
    qkv.parts[0] = (pleat__linear_part){&layer->q, fw->q};
    qkv.parts[1] = (pleat__linear_part){&layer->k, fw->k};
    qkv.parts[2] = (pleat__linear_part){&layer->v, fw->v};
    if (!by_rows) qkv.finish = shape_piece;
    qkv.finish_ctx = &unit;
    pleat__linear_run(&qkv, fw->workers);
    if (by_rows) pleat__for_rows(fw, shape_row, layer, on->rows, on->n);
    return pleat_cache_attend(cache, layer_idx, fw->q, fw->k, fw->v, fw->q);
}
