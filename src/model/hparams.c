/* SPDX-License-Identifier: MIT
 *
 * hparams.c: see hparams.h.  The keys are those of llama.cpp's `llama` architecture.
 *
 * A key that would change the result and that Pleat does not obey is refused rather than passed over.
 */
#include "model/hparams.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "gguf/gguf.h"

/* What the cache and the kernels take: see pleat/cache.h. */
#define MAX_LAYERS 1024u
#define MAX_KV_HEADS 1024u
#define MAX_Q_HEADS (MAX_KV_HEADS * PLEAT__MAX_GROUP)
#define MAX_CONTEXT (1u << 24)
#define MAX_WIDTH (1u << 20)

/* An integer in 1..max; a missing one leaves *out, which is then an error if it is 0.  An array, one item for each
 * layer, has to say the same for all. */
static pleat_status get_u32(const pleat_gguf *g, const char *key, uint32_t max, uint32_t *out, pleat_error *err) {
    const pleat__gguf_value *v = pleat__gguf_find(g, key);
    PLEAT_FAIL_IF(!v && *out == 0, err, PLEAT_E_FORMAT, PLEAT_NOWHERE, "metadata key '%s' is missing", key);
    if (!v) return PLEAT_OK;
    int64_t first = 0;
    for (uint64_t i = 0; i < v->n_items; i++) {
        int64_t x;
        PLEAT_FAIL_IF(!pleat__gguf_i64(g, v, i, &x), err, PLEAT_E_FORMAT, v->offset,
                      "metadata key '%s' is no integer that fits into 63 bits", key);
        if (i == 0) first = x;
        PLEAT_FAIL_IF(x != first, err, PLEAT_E_UNSUPPORTED, v->offset, "metadata key '%s' differs between layers", key);
    }
    PLEAT_FAIL_IF(first < 1, err, PLEAT_E_FORMAT, v->offset, "metadata key '%s' is %lld", key, (long long)first);
    PLEAT_FAIL_IF(first > max, err, PLEAT_E_UNSUPPORTED, v->offset,
                  "metadata key '%s' is %lld, at most %u is supported", key, (long long)first, max);
    *out = (uint32_t)first;
    return PLEAT_OK;
}

/* A finite number above 0; a missing one leaves *out, which is then an error if it is 0. */
static pleat_status get_f32(const pleat_gguf *g, const char *key, float *out, pleat_error *err) {
    const pleat__gguf_value *v = pleat__gguf_find(g, key);
    PLEAT_FAIL_IF(!v && *out == 0, err, PLEAT_E_FORMAT, PLEAT_NOWHERE, "metadata key '%s' is missing", key);
    if (!v) return PLEAT_OK;
    double x = 0;
    const bool ok = !v->is_array && pleat__gguf_f64(g, v, 0, &x);
    PLEAT_FAIL_IF(!ok || !isfinite((float)x) || !((float)x > 0), err, PLEAT_E_FORMAT, v->offset,
                  "metadata key '%s' is no finite number above 0", key);
    *out = (float)x;
    return PLEAT_OK;
}

static pleat_status read_architecture(pleat_model *m, const pleat_gguf *g, pleat_error *err) {
    pleat__str name = {0};
    char shown[64];
    PLEAT_TRY(pleat__gguf_need_string(g, "general.architecture", &name, err));
    PLEAT_FAIL_IF(!pleat__str_eq(name, PLEAT__STR("llama")), err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "architecture '%s' is not supported; the one that is: llama",
                  pleat__str_show(name, shown, sizeof shown));
    m->info.architecture = "llama";
    return PLEAT_OK;
}

static pleat_status read_heads(pleat_model_info *info, const pleat_gguf *g, pleat_error *err) {
    PLEAT_TRY(get_u32(g, "llama.attention.head_count", MAX_Q_HEADS, &info->n_q_heads, err));
    info->n_kv_heads = info->n_q_heads;
    PLEAT_TRY(get_u32(g, "llama.attention.head_count_kv", MAX_KV_HEADS, &info->n_kv_heads, err));
    PLEAT_FAIL_IF(info->n_q_heads % info->n_kv_heads != 0 || info->n_q_heads / info->n_kv_heads > PLEAT__MAX_GROUP, err,
                  PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "%u query heads on %u KV heads: a multiple of up to %u is supported", info->n_q_heads,
                  info->n_kv_heads, PLEAT__MAX_GROUP);
    PLEAT_FAIL_IF(info->n_kv_heads > MAX_KV_HEADS, err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "%u KV heads, at most %u are supported", info->n_kv_heads, MAX_KV_HEADS);

    const bool is_even = info->n_embd % info->n_q_heads == 0;
    uint32_t k_length = is_even ? info->n_embd / info->n_q_heads : 0;
    PLEAT_TRY(get_u32(g, "llama.attention.key_length", MAX_WIDTH, &k_length, err));
    uint32_t v_length = k_length;
    PLEAT_TRY(get_u32(g, "llama.attention.value_length", MAX_WIDTH, &v_length, err));
    PLEAT_FAIL_IF(k_length != v_length, err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "keys of %u and values of %u elements: only equal lengths are supported", k_length, v_length);
    PLEAT_FAIL_IF(k_length % 16 != 0 || k_length > PLEAT__MAX_HEAD_DIM, err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "heads of %u elements: a multiple of 16 up to %u is supported", k_length, PLEAT__MAX_HEAD_DIM);
    info->head_dim = k_length;
    return PLEAT_OK;
}

/* Of every layer; 0 and no such key: none. */
static pleat_status read_window(pleat_model_info *info, const pleat_gguf *g, pleat_error *err) {
    static const char key[] = "llama.attention.sliding_window";
    const pleat__gguf_value *v = pleat__gguf_find(g, key);
    int64_t first;
    if (!v || (!v->is_array && pleat__gguf_i64(g, v, 0, &first) && first == 0)) return PLEAT_OK;
    info->window = MAX_CONTEXT;
    return get_u32(g, key, MAX_CONTEXT, &info->window, err);
}

/* Scaling by `rope_freqs.weight`, as Llama 3.1 has it, is the only one. */
static pleat_status read_rope(pleat_model *m, const pleat_gguf *g, pleat_error *err) {
    m->rope_dims = m->info.head_dim;
    m->rope_base = 10000.0f;
    PLEAT_TRY(get_u32(g, "llama.rope.dimension_count", m->info.head_dim, &m->rope_dims, err));
    PLEAT_FAIL_IF(m->rope_dims % 2 != 0, err, PLEAT_E_FORMAT, PLEAT_NOWHERE,
                  "metadata key 'llama.rope.dimension_count' is odd");
    PLEAT_TRY(get_f32(g, "llama.rope.freq_base", &m->rope_base, err));

    pleat__str type = PLEAT__STR("none");
    char shown[64];
    if (pleat__gguf_find(g, "llama.rope.scaling.type")) {
        PLEAT_TRY(pleat__gguf_need_string(g, "llama.rope.scaling.type", &type, err));
    }
    const bool is_llama3 = pleat__str_eq(type, PLEAT__STR("llama3")) && pleat__gguf_find_tensor(g, "rope_freqs.weight");
    PLEAT_FAIL_IF(!is_llama3 && !pleat__str_eq(type, PLEAT__STR("none")), err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "RoPE scaling '%s' is not supported; those that are: none, llama3 with rope_freqs.weight",
                  pleat__str_show(type, shown, sizeof shown));
    return PLEAT_OK;
}

/* Keys that say nothing when they are 0 or 1 and change the result otherwise. */
static pleat_status refuse_extras(const pleat_gguf *g, pleat_error *err) {
    static const char *const keys[] = {
        "llama.expert_count",   "llama.rope.scale_linear", "llama.attention.scale",     "llama.logit_scale",
        "llama.residual_scale", "llama.embedding_scale",   "llama.attention.clamp_kqv",
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const pleat__gguf_value *v = pleat__gguf_find(g, keys[i]);
        double x = -1;
        int64_t n;
        if (!v) continue;
        if (!v->is_array && !pleat__gguf_f64(g, v, 0, &x) && pleat__gguf_i64(g, v, 0, &n)) x = (double)n;
        PLEAT_FAIL_IF(x != 0 && x != 1, err, PLEAT_E_UNSUPPORTED, v->offset,
                      "metadata key '%s' asks for something that is not supported", keys[i]);
    }
    /* A factor without a type means linear scaling in llama.cpp. */
    const pleat__gguf_value *factor = pleat__gguf_find(g, "llama.rope.scaling.factor");
    double x = 1;
    if (!factor || pleat__gguf_find(g, "llama.rope.scaling.type")) return PLEAT_OK;
    const bool is_neutral = !factor->is_array && pleat__gguf_f64(g, factor, 0, &x) && (x == 0 || x == 1);
    PLEAT_FAIL_IF(!is_neutral, err, PLEAT_E_UNSUPPORTED, factor->offset,
                  "RoPE scaling 'linear' (llama.rope.scaling.factor) is not supported");
    return PLEAT_OK;
}

pleat_status pleat__hparams_read(pleat_model *m, const pleat_gguf *g, pleat_error *err) {
    pleat_model_info *info = &m->info;
    PLEAT_TRY(read_architecture(m, g, err));
    PLEAT_TRY(get_u32(g, "llama.context_length", MAX_CONTEXT, &info->n_ctx, err));
    PLEAT_TRY(get_u32(g, "llama.embedding_length", MAX_WIDTH, &info->n_embd, err));
    PLEAT_TRY(get_u32(g, "llama.block_count", MAX_LAYERS, &info->n_layers, err));
    PLEAT_TRY(get_u32(g, "llama.feed_forward_length", MAX_WIDTH, &info->n_ff, err));
    PLEAT_TRY(read_window(info, g, err));
    PLEAT_TRY(read_heads(info, g, err));
    PLEAT_TRY(get_f32(g, "llama.attention.layer_norm_rms_epsilon", &m->rms_eps, err));
    PLEAT_TRY(read_rope(m, g, err));
    return refuse_extras(g, err);
}
