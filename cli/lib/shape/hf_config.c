/* SPDX-License-Identifier: MIT
 *
 * hf_config.c: see hf_config.h.
 *
 *     needed     num_hidden_layers  num_attention_heads  hidden_size
 *     may lack   num_key_value_heads (as many as query heads)  head_dim (hidden_size / num_attention_heads)
 *                max_position_embeddings  vocab_size  intermediate_size  tie_word_embeddings  attention_bias  mlp_bias
 *     experts    num_local_experts | num_experts,  num_experts_per_tok | experts_per_token,
 *                moe_intermediate_size, if it is not intermediate_size
 *     windows    layer_types, or sliding_window with sliding_window_pattern, use_sliding_window and max_window_layers
 *
 * A file of a model that also sees or hears has these in text_config.  null counts as missing, as in transformers.
 * Refused by name: latent attention (kv_lora_rank), models with a state (mamba, rwkv, jamba, ..), layers that are neither full nor sliding attention.
 */
#include "hf_config.h"

#include <jansson.h>
#include <string.h>

/* Which layers see a window only, where the file has a sliding_window and does not say. */
typedef enum window_rule {
    WINDOW_UNKNOWN,
    WINDOW_ALL,
    WINDOW_LATE,  /* from max_window_layers on, if use_sliding_window */
    WINDOW_EVEN,  /* the first, the third, ... */
    WINDOW_SIXTH, /* all but every sixth */
} window_rule;

/* What transformers' class for a model_type has built in. */
typedef struct family {
    const char *model_type;
    uint32_t traits;
    window_rule windows;
    int has_own_head_dim; /* head_dim is not hidden_size / heads where it is missing */
} family;

static const family families[] = {
    {"llama", 0, WINDOW_UNKNOWN, 0},
    {"mistral", 0, WINDOW_ALL, 0},
    {"mixtral", 0, WINDOW_ALL, 0},
    {"qwen2", TRAIT_QKV_BIAS, WINDOW_LATE, 0},
    {"qwen3", TRAIT_QK_NORM, WINDOW_LATE, 1},
    {"qwen3_moe", TRAIT_QK_NORM, WINDOW_LATE, 1},
    {"gemma", TRAIT_TIED, WINDOW_UNKNOWN, 1},
    {"gemma2", TRAIT_TIED | TRAIT_FOUR_NORMS, WINDOW_EVEN, 1},
    {"gemma3_text", TRAIT_TIED | TRAIT_FOUR_NORMS | TRAIT_QK_NORM, WINDOW_SIXTH, 1},
    {"phi3", 0, WINDOW_ALL, 0},
    {"gpt_oss", TRAIT_MLP_BIAS | TRAIT_SINKS, WINDOW_EVEN, 1},
};

typedef struct reader {
    const json_t *object;
    model_shape shape;
    const family *family; /* NULL: a model_type that is not in the table */
    pleat_error *err;
} reader;

/* ---- fields ------------------------------------------------------------------------------------ */

/* The field, or NULL if it is missing or null. */
static const json_t *find(const reader *r, const char *key) {
    const json_t *v = json_object_get(r->object, key);
    return json_is_null(v) ? NULL : v;
}

static const char *kind_of(const json_t *v) {
    switch (json_typeof(v)) {
        case JSON_OBJECT: return "an object";
        case JSON_ARRAY: return "an array";
        case JSON_STRING: return "a string";
        case JSON_INTEGER: return "a whole number";
        case JSON_REAL: return "a fraction";
        case JSON_TRUE:
        case JSON_FALSE: return "true or false";
        default: return "null";
    }
}

/* The field as a whole number in 1..most.  Missing: `missing`, or an error if that is 0 and `needed`. */
static pleat_status get_u32(reader *r, const char *key, uint32_t most, int needed, uint32_t missing, uint32_t *out) {
    const json_t *v = find(r, key);
    *out = missing;
    if (!v && !needed) return PLEAT_OK;
    if (!v)
        return shape_error(r->err, PLEAT_E_FORMAT, "%s is missing: a whole number from 1 to %u is needed", key, most);
    if (!json_is_integer(v))
        return shape_error(r->err, PLEAT_E_FORMAT, "%s is %s: a whole number from 1 to %u is needed", key, kind_of(v),
                           most);
    const json_int_t n = json_integer_value(v);
    if (n < 1 || n > (json_int_t)most)
        return shape_error(r->err, PLEAT_E_FORMAT, "%s is %lld: a whole number from 1 to %u is needed", key,
                           (long long)n, most);
    *out = (uint32_t)n;
    return PLEAT_OK;
}

/* The same for the first of two names that is there. */
static pleat_status get_either(reader *r, const char *a, const char *b, uint32_t most, uint32_t *out) {
    return get_u32(r, find(r, a) ? a : b, most, 0, 0, out);
}

static pleat_status get_bool(reader *r, const char *key, int missing, int *out) {
    const json_t *v = find(r, key);
    *out = v ? json_is_true(v) : missing;
    if (v && !json_is_boolean(v))
        return shape_error(r->err, PLEAT_E_FORMAT, "%s is %s: true or false is needed", key, kind_of(v));
    return PLEAT_OK;
}

/* ---- the parts of a config --------------------------------------------------------------------- */

static pleat_status read_family(reader *r) {
    const json_t *v = find(r, "model_type");
    if (v && !json_is_string(v))
        return shape_error(r->err, PLEAT_E_FORMAT, "model_type is %s: a name is needed", kind_of(v));
    const char *name = v ? json_string_value(v) : "unnamed";
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (!strcmp(families[i].model_type, name)) r->family = &families[i];
    for (size_t i = 0; i + 1 < sizeof r->shape.name && name[i]; i++) r->shape.name[i] = name[i];
    r->shape.traits = r->family ? r->family->traits : 0;
    return PLEAT_OK;
}

/* Models whose layers, or many of them, keep a state and no keys and values. */
static pleat_status check_attends(reader *r) {
    static const char *const others[] = {"mamba", "falcon_mamba", "rwkv", "jamba", "bamba", "zamba", "recurrent_gemma"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (!strncmp(r->shape.name, others[i], strlen(others[i])))
            return shape_error(r->err, PLEAT_E_UNSUPPORTED,
                               "model_type %s: its layers, or some, keep a state and no keys and values",
                               r->shape.name);
    return PLEAT_OK;
}

static pleat_status read_heads(reader *r) {
    model_shape *s = &r->shape;
    if (find(r, "kv_lora_rank"))
        return shape_error(r->err, PLEAT_E_UNSUPPORTED,
                           "kv_lora_rank: the model keeps a latent for each token (MLA), and Pleat's pages hold keys "
                           "and values of heads");
    SHAPE_TRY(get_u32(r, "num_hidden_layers", SHAPE_LAYERS_MAX, 1, 0, &s->n_layers));
    SHAPE_TRY(get_u32(r, "num_attention_heads", SHAPE_Q_HEADS_MAX, 1, 0, &s->n_q_heads));
    SHAPE_TRY(get_u32(r, "hidden_size", SHAPE_EMBD_MAX, 1, 0, &s->n_embd));
    const uint32_t same = s->n_q_heads <= SHAPE_KV_HEADS_MAX ? s->n_q_heads : 0;
    SHAPE_TRY(get_u32(r, "num_key_value_heads", SHAPE_KV_HEADS_MAX, same == 0, same, &s->n_kv_heads));
    if (!find(r, "head_dim") && !(r->family && r->family->has_own_head_dim) && s->n_embd % s->n_q_heads != 0)
        return shape_error(r->err, PLEAT_E_FORMAT,
                           "hidden_size %u is no multiple of num_attention_heads %u, and head_dim is missing",
                           s->n_embd, s->n_q_heads);
    const int must_say = (r->family && r->family->has_own_head_dim) || s->n_embd % s->n_q_heads != 0 ||
                         s->n_embd / s->n_q_heads > SHAPE_HEAD_DIM_MAX;
    return get_u32(r, "head_dim", SHAPE_HEAD_DIM_MAX, must_say, s->n_embd / s->n_q_heads, &s->head_dim);
}

static pleat_status read_sizes(reader *r) {
    model_shape *s = &r->shape;
    uint32_t expert_ff;
    int tied, attention_bias, mlp_bias;
    SHAPE_TRY(get_u32(r, "max_position_embeddings", 1u << 30, 0, 0, &s->n_ctx));
    SHAPE_TRY(get_u32(r, "vocab_size", SHAPE_VOCAB_MAX, 0, 0, &s->n_vocab));
    SHAPE_TRY(get_u32(r, "intermediate_size", SHAPE_FF_MAX, 0, 0, &s->n_ff));
    SHAPE_TRY(get_either(r, "num_local_experts", "num_experts", SHAPE_EXPERTS_MAX, &s->n_experts));
    SHAPE_TRY(get_u32(r, "moe_intermediate_size", SHAPE_FF_MAX, 0, 0, &expert_ff));
    if (s->n_experts && expert_ff) s->n_ff = expert_ff;
    if (s->n_experts)
        SHAPE_TRY(get_either(r, "num_experts_per_tok", "experts_per_token", s->n_experts, &s->n_experts_used));
    SHAPE_TRY(get_bool(r, "tie_word_embeddings", (s->traits & TRAIT_TIED) != 0, &tied));
    SHAPE_TRY(get_bool(r, "attention_bias", 0, &attention_bias));
    SHAPE_TRY(get_bool(r, "mlp_bias", 0, &mlp_bias));
    s->traits = (s->traits & ~(uint32_t)TRAIT_TIED) | (tied ? TRAIT_TIED : 0);
    if (attention_bias) s->traits |= TRAIT_QKV_BIAS | TRAIT_O_BIAS;
    if (mlp_bias) s->traits |= TRAIT_MLP_BIAS;
    const json_t *quantisation = find(r, "quantization_config");
    const char *method = json_string_value(json_object_get(quantisation, "quant_method"));
    if (method && !strcmp(method, "mxfp4")) s->traits |= TRAIT_MXFP4;
    return PLEAT_OK;
}

/* ---- windows ----------------------------------------------------------------------------------- */

static pleat_status read_layer_types(reader *r, const json_t *types) {
    model_shape *s = &r->shape;
    if (!json_is_array(types) || json_array_size(types) != s->n_layers)
        return shape_error(r->err, PLEAT_E_FORMAT, "layer_types is no array of num_hidden_layers = %u names",
                           s->n_layers);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (type && !strcmp(type, "sliding_attention"))
            s->n_windowed++;
        else if (!type || strcmp(type, "full_attention") != 0)
            return shape_error(r->err, PLEAT_E_UNSUPPORTED,
                               "layer_types[%u] is '%.40s': it may be full_attention or sliding_attention", i,
                               type ? type : "no name");
    }
    if (s->n_windowed && !s->window)
        return shape_error(r->err, PLEAT_E_FORMAT, "sliding_window is missing, and layer_types has %u that slide",
                           s->n_windowed);
    return PLEAT_OK;
}

/* Layers with a window, by the rule of the family. */
static pleat_status apply_rule(reader *r) {
    model_shape *s = &r->shape;
    uint32_t first = 0;
    switch (r->family ? r->family->windows : WINDOW_UNKNOWN) {
        case WINDOW_ALL: s->n_windowed = s->n_layers; return PLEAT_OK;
        case WINDOW_EVEN: s->n_windowed = shape_windowed(s->n_layers, 2); return PLEAT_OK;
        case WINDOW_SIXTH: s->n_windowed = shape_windowed(s->n_layers, 6); return PLEAT_OK;
        case WINDOW_LATE:
            SHAPE_TRY(get_u32(r, "max_window_layers", SHAPE_LAYERS_MAX, 0, 0, &first));
            s->n_windowed = first < s->n_layers ? s->n_layers - first : 0;
            return PLEAT_OK;
        case WINDOW_UNKNOWN: break;
    }
    return shape_error(r->err, PLEAT_E_UNSUPPORTED,
                       "sliding_window is %u, and nothing says which layers it holds for: layer_types or "
                       "sliding_window_pattern has to",
                       s->window);
}

static pleat_status read_windows(reader *r) {
    model_shape *s = &r->shape;
    const json_t *types = find(r, "layer_types");
    uint32_t period;
    int is_used;
    SHAPE_TRY(get_u32(r, "sliding_window", 1u << 30, 0, 0, &s->window));
    SHAPE_TRY(get_u32(r, "sliding_window_pattern", SHAPE_LAYERS_MAX, 0, 0, &period));
    SHAPE_TRY(get_bool(r, "use_sliding_window", !(r->family && r->family->windows == WINDOW_LATE), &is_used));
    if (types)
        SHAPE_TRY(read_layer_types(r, types));
    else if (s->window && is_used && period)
        s->n_windowed = shape_windowed(s->n_layers, period);
    else if (s->window && is_used)
        SHAPE_TRY(apply_rule(r));
    if (s->n_windowed == 0) s->window = 0;
    return PLEAT_OK;
}

/* ---- the whole --------------------------------------------------------------------------------- */

/* Whether the sizes that are known say how many parameters there are. */
static int can_count(const reader *r) {
    const model_shape *s = &r->shape;
    uint32_t step = 1;
    const json_t *dense = find(r, "mlp_only_layers"), *sparse_step = find(r, "decoder_sparse_step");
    if (json_is_integer(sparse_step)) step = json_integer_value(sparse_step) == 1;
    const int is_mixed = s->n_experts && (step != 1 || json_array_size(dense) > 0);
    return r->family && s->n_vocab && s->n_ff && !is_mixed && (!s->n_experts || s->n_experts_used);
}

static pleat_status read_all(reader *r) {
    const json_t *text = find(r, "text_config");
    if (json_is_object(text) && !find(r, "num_hidden_layers")) r->object = text;
    SHAPE_TRY(read_family(r));
    SHAPE_TRY(check_attends(r));
    SHAPE_TRY(read_heads(r));
    SHAPE_TRY(read_sizes(r));
    SHAPE_TRY(read_windows(r));
    SHAPE_TRY(shape_check(&r->shape, r->err));
    if (can_count(r)) shape_count_params(&r->shape);
    return PLEAT_OK;
}

pleat_status hf_config_parse(const char *bytes, size_t n, model_shape *out, pleat_error *err) {
    json_error_t fault;
    json_t *root = json_loadb(bytes, n, 0, &fault);
    if (!root) return shape_error(err, PLEAT_E_SYNTAX, "not JSON: %.100s, line %d", fault.text, fault.line);
    reader r = {.object = root, .err = err};
    const pleat_status status =
        json_is_object(root) ? read_all(&r) : shape_error(err, PLEAT_E_SYNTAX, "%s and not an object", kind_of(root));
    json_decref(root);
    if (status == PLEAT_OK) *out = r.shape;
    return status;
}
