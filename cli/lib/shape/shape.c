/* SPDX-License-Identifier: MIT
 *
 * shape.c: see shape.h.
 */
#include "shape.h"

#include <stdarg.h>
#include <stdio.h>

pleat_status shape_error(pleat_error *err, pleat_status code, const char *fmt, ...) {
    va_list args;
    err->code = code;
    err->where = PLEAT_NOWHERE;
    va_start(args, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);
    return code;
}

pleat_status shape_check(const model_shape *s, pleat_error *err) {
    if (s->n_q_heads % s->n_kv_heads != 0)
        return shape_error(err, PLEAT_E_ARG, "%u query heads are no multiple of %u KV heads", s->n_q_heads,
                           s->n_kv_heads);
    if (s->n_q_heads / s->n_kv_heads > 64)
        return shape_error(err, PLEAT_E_UNSUPPORTED,
                           "%u query heads for each KV head: Pleat's attention takes 64 at most",
                           s->n_q_heads / s->n_kv_heads);
    if (s->head_dim % 16 != 0)
        return shape_error(err, PLEAT_E_UNSUPPORTED, "head dimension %u: Pleat's pages take multiples of 16 up to %d",
                           s->head_dim, SHAPE_HEAD_DIM_MAX);
    if (s->n_experts_used > s->n_experts)
        return shape_error(err, PLEAT_E_ARG, "%u experts are used of %u", s->n_experts_used, s->n_experts);
    return PLEAT_OK;
}

static uint64_t attention_params(const model_shape *s) {
    const uint64_t h = s->n_embd, d = s->head_dim, q = s->n_q_heads * d, kv = s->n_kv_heads * d;
    uint64_t n = 2 * h * q + 2 * h * kv;
    if (s->traits & TRAIT_QKV_BIAS) n += q + 2 * kv;
    if (s->traits & TRAIT_O_BIAS) n += h;
    if (s->traits & TRAIT_QK_NORM) n += 2 * d;
    if (s->traits & TRAIT_SINKS) n += s->n_q_heads;
    return n;
}

void shape_count_params(model_shape *s) {
    const uint64_t h = s->n_embd, table = h * s->n_vocab, n_experts = s->n_experts;
    const uint64_t bias = s->traits & TRAIT_MLP_BIAS ? 1 : 0;
    const uint64_t mlp = 3 * h * s->n_ff + bias * (2 * (uint64_t)s->n_ff + h);
    const uint64_t router = n_experts * (h + bias);
    const uint64_t norms = (s->traits & TRAIT_FOUR_NORMS ? 4 : 2) * h;
    const uint64_t layer = attention_params(s) + norms + (n_experts ? n_experts * mlp + router : mlp);
    s->n_params_lookup = s->traits & TRAIT_TIED ? 0 : table;
    s->n_params_expert = n_experts ? mlp * s->n_layers : 0;
    s->n_params = layer * s->n_layers + h + table + s->n_params_lookup;
}
