/* SPDX-License-Identifier: MIT
 *
 * hparams.c: see hparams.h.  The keys are llama.cpp's.
 *
 * A key that would change the result and that Pleat does not obey is refused rather than passed over.
 */
#include "model/hparams.h"

#include <math.h>
#include <string.h>

#include "core/error.h"
#include "model/keys.h"

/* What the cache and the kernels take: see pleat/cache.h. */
#define MAX_LAYERS 1024u
#define MAX_KV_HEADS 1024u
#define MAX_Q_HEADS (MAX_KV_HEADS * PLEAT__MAX_GROUP)
#define MAX_CONTEXT (1u << 24)
#define MAX_WIDTH (1u << 20)

static pleat_status read_architecture(pleat_model *m, const pleat_gguf *g, pleat_error *err) {
    pleat__str name = {0};
    char shown[64], names[160];
    PLEAT_TRY(pleat__gguf_need_string(g, "general.architecture", &name, err));
    m->arch = pleat__arch_find(name);
    PLEAT_FAIL_IF(!m->arch, err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "architecture '%s' is not supported; those that are: %s", pleat__str_show(name, shown, sizeof shown),
                  pleat__arch_names(names, sizeof names));
    m->info.architecture = m->arch->name;
    return PLEAT_OK;
}

static pleat_status read_heads(pleat_model_info *info, pleat__keys *k) {
    PLEAT_TRY(pleat__keys_u32(k, "attention.head_count", MAX_Q_HEADS, &info->n_q_heads));
    info->n_kv_heads = info->n_q_heads;
    PLEAT_TRY(pleat__keys_u32(k, "attention.head_count_kv", MAX_KV_HEADS, &info->n_kv_heads));
    PLEAT_FAIL_IF(info->n_q_heads % info->n_kv_heads != 0 || info->n_q_heads / info->n_kv_heads > PLEAT__MAX_GROUP,
                  k->err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "%u query heads on %u KV heads: a multiple of up to %u is supported", info->n_q_heads,
                  info->n_kv_heads, PLEAT__MAX_GROUP);
    PLEAT_FAIL_IF(info->n_kv_heads > MAX_KV_HEADS, k->err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "%u KV heads, at most %u are supported", info->n_kv_heads, MAX_KV_HEADS);

    const bool is_even = info->n_embd % info->n_q_heads == 0;
    uint32_t k_length = is_even ? info->n_embd / info->n_q_heads : 0;
    PLEAT_TRY(pleat__keys_u32(k, "attention.key_length", MAX_WIDTH, &k_length));
    uint32_t v_length = k_length;
    PLEAT_TRY(pleat__keys_u32(k, "attention.value_length", MAX_WIDTH, &v_length));
    PLEAT_FAIL_IF(k_length != v_length, k->err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "keys of %u and values of %u elements: only equal lengths are supported", k_length, v_length);
    PLEAT_FAIL_IF(k_length % 16 != 0 || k_length > PLEAT__MAX_HEAD_DIM, k->err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "heads of %u elements: a multiple of 16 up to %u is supported", k_length, PLEAT__MAX_HEAD_DIM);
    info->head_dim = k_length;
    return PLEAT_OK;
}

/* ---- windows ----------------------------------------------------------------------------------------------------- */

static const char pattern_key[] = "attention.sliding_window_pattern";

/* Whether layer i has the window: the file's pattern, an item for each layer or a period, or the architecture's. */
static bool is_windowed(const pleat_model *m, uint32_t i) {
    pleat__keys k = {.gguf = m->gguf, .arch = m->arch->name};
    const pleat__gguf_value *v = pleat__keys_find(&k, pattern_key);
    int64_t period = m->arch->window_period;
    bool is_it = false;
    if (v && v->is_array) return pleat__gguf_bool(m->gguf, v, i, &is_it) && is_it;
    if (v) (void)pleat__gguf_i64(m->gguf, v, 0, &period);
    return period == 0 || i % period != period - 1;
}

static pleat_status check_pattern(const pleat_model *m, pleat__keys *k) {
    const pleat__gguf_value *v = pleat__keys_find(k, pattern_key);
    int64_t period;
    bool first;
    if (!v) return PLEAT_OK;
    PLEAT_FAIL_IF(m->arch->window_period == 0 || m->arch->window_period == PLEAT__ALL_WINDOWED, k->err,
                  PLEAT_E_UNSUPPORTED, v->offset, "metadata key '%s' asks for something that is not supported", k->key);
    PLEAT_FAIL_IF(v->is_array && (v->n_items != m->info.n_layers || !pleat__gguf_bool(k->gguf, v, 0, &first)), k->err,
                  PLEAT_E_FORMAT, v->offset, "metadata key '%s' is no array of %u truth values", k->key,
                  m->info.n_layers);
    PLEAT_FAIL_IF(!v->is_array && (!pleat__gguf_i64(k->gguf, v, 0, &period) || period < 0 || period > MAX_LAYERS),
                  k->err, PLEAT_E_FORMAT, v->offset, "metadata key '%s' is no number of layers", k->key);
    return PLEAT_OK;
}

/* 0 and no such key: none.  One that reaches over the whole context counts as none, unless layers with a window turn by
 * another RoPE. */
static pleat_status read_window(pleat_model *m, pleat__keys *k) {
    static const char key[] = "attention.sliding_window";
    double window = m->arch->window;
    PLEAT_TRY(check_pattern(m, k));
    (void)pleat__keys_any(k, key, &window);
    if (window == 0) return PLEAT_OK;
    m->info.window = m->arch->window > 0 ? m->arch->window : MAX_CONTEXT;
    PLEAT_TRY(pleat__keys_u32(k, key, UINT32_MAX, &m->info.window));
    if (m->info.window >= m->info.n_ctx && m->arch->window_rope_base == 0) m->info.window = 0;
    if (m->info.window == 0) return PLEAT_OK;
    PLEAT_FAIL_IF(m->arch->window_period == 0, k->err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "metadata key '%s' asks for something that is not supported", k->key);
    for (uint32_t i = 0; i < m->info.n_layers; i++) m->info.n_windowed += is_windowed(m, i);
    if (m->info.n_windowed == 0) m->info.window = 0;
    return PLEAT_OK;
}

void pleat__hparams_layer(const pleat_model *m, uint32_t i, pleat__layer *layer) {
    const bool has_rope = m->arch->rope_skip == 0 || (i + 1) % m->arch->rope_skip != 0;
    layer->window = m->info.window > 0 && is_windowed(m, i) ? m->info.window : 0;
    layer->rope = has_rope ? layer->window > 0 && m->n_ropes > 1 : PLEAT__NO_ROPE;
}

/* ---- RoPE -------------------------------------------------------------------------------------------------------- */

/* A factor without a type means linear scaling.  llama3 is told by rope_freqs.weight, longrope by rope_factors_*. */
static pleat_status read_scaling(pleat_model *m, pleat__keys *k, pleat__rope *rope) {
    pleat__str type = PLEAT__STR("linear");
    char shown[64];
    float factor = 1, ext_factor = 1;
    if (pleat__keys_find(k, "rope.scaling.type")) PLEAT_TRY(pleat__gguf_need_string(k->gguf, k->key, &type, k->err));
    PLEAT_TRY(pleat__keys_factor(k, "rope.scale_linear", &factor)); /* the older name */
    PLEAT_TRY(pleat__keys_factor(k, "rope.scaling.factor", &factor));
    const bool is_linear = pleat__str_eq(type, PLEAT__STR("linear")), is_none = pleat__str_eq(type, PLEAT__STR("none"));
    const bool is_llama3 =
        pleat__str_eq(type, PLEAT__STR("llama3")) && pleat__gguf_find_tensor(k->gguf, "rope_freqs.weight");
    const bool is_long = pleat__str_eq(type, PLEAT__STR("longrope")) && (m->features & PLEAT__ROPE_LONG);
    rope->is_yarn = pleat__str_eq(type, PLEAT__STR("yarn"));
    PLEAT_FAIL_IF(!is_linear && !is_none && !is_llama3 && !is_long && !rope->is_yarn, k->err, PLEAT_E_UNSUPPORTED,
                  PLEAT_NOWHERE,
                  "RoPE scaling '%s' is not supported here; those that are: none, linear, yarn, llama3 with "
                  "rope_freqs.weight, longrope with rope_factors_long.weight",
                  pleat__str_show(type, shown, sizeof shown));
    if (is_linear || rope->is_yarn) rope->factor = factor;
    if (rope->is_yarn) {
        rope->magnitude = factor > 1 ? 0.1f * logf(factor) + 1 : 1;
        PLEAT_TRY(pleat__keys_f32(k, "rope.scaling.yarn_attn_factor", &rope->magnitude));
        PLEAT_TRY(pleat__keys_f32(k, "rope.scaling.yarn_beta_fast", &rope->beta_fast));
        PLEAT_TRY(pleat__keys_f32(k, "rope.scaling.yarn_beta_slow", &rope->beta_slow));
        PLEAT_TRY(pleat__keys_f32(k, "rope.scaling.yarn_ext_factor", &ext_factor));
        PLEAT_FAIL_IF(ext_factor != 1, k->err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                      "metadata key '%s' asks for something that is not supported", k->key);
    }
    float attn_factor = 1;
    PLEAT_TRY(pleat__keys_f32(k, "rope.scaling.attn_factor", &attn_factor));
    rope->magnitude *= attn_factor;
    return PLEAT_OK;
}

static pleat_status read_rope(pleat_model *m, pleat__keys *k) {
    pleat__rope *rope = &m->ropes[0];
    *rope = (pleat__rope){.n_dims = m->info.head_dim,
                          .is_halves = m->arch->rope_halves,
                          .is_smooth = m->arch->is_smooth_yarn,
                          .base = 10000.0f,
                          .factor = 1,
                          .beta_fast = 32,
                          .beta_slow = 1,
                          .magnitude = 1,
                          .n_ctx_orig = m->info.n_ctx};
    PLEAT_TRY(pleat__keys_u32(k, "rope.dimension_count", m->info.head_dim, &rope->n_dims));
    PLEAT_FAIL_IF(rope->n_dims % 2 != 0, k->err, PLEAT_E_FORMAT, PLEAT_NOWHERE, "metadata key '%s' is odd", k->key);
    PLEAT_TRY(pleat__keys_f32(k, "rope.freq_base", &rope->base));
    PLEAT_TRY(pleat__keys_u32(k, "rope.scaling.original_context_length", MAX_CONTEXT, &rope->n_ctx_orig));
    PLEAT_TRY(read_scaling(m, k, rope));
    m->n_ropes = 1;
    if (m->info.window == 0 || m->arch->window_rope_base == 0) return PLEAT_OK;
    m->ropes[m->n_ropes++] = (pleat__rope){.n_dims = rope->n_dims,
                                           .is_halves = rope->is_halves,
                                           .base = m->arch->window_rope_base,
                                           .factor = 1,
                                           .magnitude = 1};
    return pleat__keys_f32(k, "rope.freq_base_swa", &m->ropes[1].base);
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

/* Of what a row has in two forms, the one that the file has. */
static void find_features(pleat_model *m, const pleat_gguf *g) {
    const uint32_t optional = m->arch->may_have;
    m->features = m->arch->has;
    if ((m->features & PLEAT__FUSED_QKV) && !pleat__gguf_find_tensor(g, "blk.0.attn_qkv.weight"))
        m->features ^= PLEAT__FUSED_QKV | PLEAT__SPLIT_QKV;
    if ((optional & PLEAT__ROPE_LONG) && pleat__gguf_find_tensor(g, "rope_factors_long.weight"))
        m->features |= PLEAT__ROPE_LONG;
}

static pleat_status read_experts(pleat_model *m, pleat__keys *k) {
    double n_experts = 0, sums = m->arch->sums_experts_to_1;
    const uint32_t known = m->arch->has | m->arch->may_have;
    if (!(known & PLEAT__EXPERTS)) return PLEAT_OK;
    const bool is_there = pleat__keys_any(k, "expert_count", &n_experts) && n_experts != 0;
    if (!is_there && !(m->arch->has & PLEAT__EXPERTS)) return PLEAT_OK;
    PLEAT_TRY(pleat__keys_u32(k, "expert_count", PLEAT__MAX_EXPERTS, &m->n_experts));
    PLEAT_TRY(pleat__keys_u32(k, "expert_used_count", m->n_experts, &m->n_experts_used));
    m->n_ff_expert = m->info.n_ff;
    PLEAT_TRY(pleat__keys_u32(k, "expert_feed_forward_length", MAX_WIDTH, &m->n_ff_expert));
    if (m->info.n_ff == 0) m->info.n_ff = m->n_ff_expert;
    m->n_ff_shared = m->info.n_ff;
    PLEAT_TRY(pleat__keys_u32(k, "expert_shared_feed_forward_length", MAX_WIDTH, &m->n_ff_shared));
    (void)pleat__keys_any(k, "expert_weights_norm", &sums);
    m->sums_experts_to_1 = sums != 0;
    m->features = (m->features & ~(uint32_t)PLEAT__SPLIT_FFN) | PLEAT__EXPERTS;
    return PLEAT_OK;
}

/* 0 is no cap; a file that does not say leaves the architecture's. */
static pleat_status read_cap(pleat__keys *k, const char *suffix, float *cap) {
    double x = 1;
    if (pleat__keys_any(k, suffix, &x) && x == 0) *cap = 0;
    return pleat__keys_factor(k, suffix, cap);
}

/* What the cache takes: pleat/cache.h. */
static pleat_status read_attn_cap(pleat_model *m, pleat__keys *k) {
    PLEAT_TRY(read_cap(k, "attn_logit_softcapping", &m->info.attn_logit_cap));
    if (m->info.attn_logit_cap == 0) return PLEAT_OK;
    PLEAT_FAIL_IF(m->info.attn_logit_cap < 0x1p-16f || m->info.attn_logit_cap > 0x1p16f, k->err, PLEAT_E_UNSUPPORTED,
                  PLEAT_NOWHERE, "metadata key '%s' is outside 2^-16..65536", k->key);
    return PLEAT_OK;
}

static pleat_status read_scales(pleat_model *m, pleat__keys *k) {
    const pleat_model_info *info = &m->info;
    const bool by_width = m->arch->by_width_layers && m->arch->by_width_layers == info->n_layers;
    float divisor = 0;
    m->embedding_scale = m->arch->embeds_by_sqrt ? sqrtf((float)info->n_embd) : 1;
    m->residual_scale = 1;
    m->info.softmax_scale = 1 / sqrtf((float)(by_width ? info->n_embd / info->n_q_heads : info->head_dim));
    m->logit_scale = 1;
    m->logit_cap = m->arch->logit_cap;
    m->info.attn_logit_cap = m->arch->attn_logit_cap;
    if (m->features & PLEAT__LOGIT_CAP) PLEAT_TRY(read_cap(k, "final_logit_softcapping", &m->logit_cap));
    if (m->features & PLEAT__ATTN_CAP) PLEAT_TRY(read_attn_cap(m, k));
    if (!(m->features & PLEAT__SCALES)) return PLEAT_OK;
    PLEAT_TRY(pleat__keys_factor(k, "embedding_scale", &m->embedding_scale));
    PLEAT_TRY(pleat__keys_factor(k, "residual_scale", &m->residual_scale));
    PLEAT_TRY(pleat__keys_factor(k, "attention.scale", &m->info.softmax_scale));
    PLEAT_TRY(pleat__keys_f32(k, "logit_scale", &divisor));
    m->logit_scale = 1 / divisor;
    return PLEAT_OK;
}

/* Keys that say nothing where they are 0 (or `neutral`) and change the result otherwise, unless the row obeys them. */
static pleat_status refuse_extras(const pleat_model *m, pleat__keys *k) {
    static const struct {
        const char *suffix;
        uint32_t obeyed_by;
        double neutral;
    } rows[] = {
        {"expert_count", PLEAT__EXPERTS, 0},
        {"expert_gating_func", 0, 1},
        {"expert_weights_scale", 0, 1},
        {"expert_group_count", 0, 1},
        {"leading_dense_block_count", 0, 0},
        {"interleave_moe_layer_step", 0, 1},
        {"nextn_predict_layers", 0, 0},
        {"embedding_scale", PLEAT__SCALES, 1},
        {"residual_scale", PLEAT__SCALES, 1},
        {"attention.scale", PLEAT__SCALES, 0},
        {"logit_scale", PLEAT__SCALES, 1},
        {"final_logit_softcapping", PLEAT__LOGIT_CAP, 0},
        {"attn_logit_softcapping", PLEAT__ATTN_CAP, 0},
        {"attention.clamp_kqv", 0, 0},
        {"attention.max_alibi_bias", 0, 0},
        {"attention.temperature_scale", 0, 0},
        {"use_parallel_residual", 0, 0},
        {"rope.scaling.alpha", 0, 0},
        {"rope.scaling.yarn_log_multiplier", 0, 0},
    };
    double x;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if ((m->features & rows[i].obeyed_by) || !pleat__keys_any(k, rows[i].suffix, &x)) continue;
        PLEAT_FAIL_IF(x != 0 && x != rows[i].neutral, k->err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                      "metadata key '%s' asks for something that is not supported", k->key);
    }
    const bool is_acausal = pleat__keys_any(k, "attention.causal", &x) && x != 1;
    PLEAT_FAIL_IF(is_acausal, k->err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "metadata key '%s' asks for something that is not supported", k->key);
    /* Granite's files without RoPE say so by this. */
    const bool has_no_rope = pleat__keys_any(k, "rope.scaling.finetuned", &x) && x != 1;
    PLEAT_FAIL_IF(has_no_rope && (m->features & PLEAT__SCALES), k->err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "metadata key '%s' asks for something that is not supported", k->key);
    return PLEAT_OK;
}

pleat_status pleat__hparams_read(pleat_model *m, const pleat_gguf *g, pleat_error *err) {
    pleat_model_info *info = &m->info;
    PLEAT_TRY(read_architecture(m, g, err));
    pleat__keys k = {.gguf = g, .arch = m->arch->name, .err = err};
    find_features(m, g);
    PLEAT_TRY(pleat__keys_u32(&k, "context_length", MAX_CONTEXT, &info->n_ctx));
    PLEAT_TRY(pleat__keys_u32(&k, "embedding_length", MAX_WIDTH, &info->n_embd));
    PLEAT_TRY(pleat__keys_u32(&k, "block_count", MAX_LAYERS, &info->n_layers));
    if (pleat__keys_find(&k, "feed_forward_length") || !(m->arch->has & PLEAT__EXPERTS))
        PLEAT_TRY(pleat__keys_u32(&k, "feed_forward_length", MAX_WIDTH, &info->n_ff));
    PLEAT_TRY(read_experts(m, &k));
    PLEAT_TRY(read_window(m, &k));
    PLEAT_TRY(read_heads(info, &k));
    PLEAT_TRY(pleat__keys_f32(&k, "attention.layer_norm_rms_epsilon", &m->rms_eps));
    PLEAT_TRY(read_rope(m, &k));
    PLEAT_TRY(read_scales(m, &k));
    return refuse_extras(m, &k);
}
