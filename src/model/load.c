/* SPDX-License-Identifier: MIT
 *
 * load.c: a GGUF becomes a model: its shape (hparams.c), its tokenizer, and its tensors, each held against the shape.
 *
 *     token_embd.weight   [n_vocab][n_embd]              output.weight              [n_vocab][n_embd] or none
 *     output_norm.weight  [n_embd]                       rope_freqs.weight          [n_dims/2]        or none
 *                                                        rope_factors_{long,short}.weight, the same
 *     blk.N.*             layer_rows: each with the feature (arch.h) that brings it
 *
 * Rows are written last here and stand first in C; the file lists dimensions the other way round.  Matrices stay in
 * the mapping; vectors are copied to f32.  A tensor that nobody asked for would change the result: such a file is
 * refused.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/half.h"
#include "core/memory.h"
#include "hw/os_memory.h"
#include "linear/format.h"
#include "model/hparams.h"
#include "model/keys.h"
#include "tokenizer/tokenizer.h"

/* Features of single tensors, which a layer of a file may have or not. */
#define OPTIONAL (PLEAT__QKV_BIAS | PLEAT__O_BIAS)

#define TENSORS_PER_LAYER 6u /* of every architecture at least */

/* One pass over the tensors.  The first, with m->norms NULL, checks all and counts the floats that vectors need; the
 * second copies them. */
typedef struct loader {
    pleat_model *m;
    uint8_t *is_used; /* [n_tensors] */
    uint64_t n_floats;
    pleat_error *err;
} loader;

/* A tensor's dimensions, the outermost first as in C. */
typedef struct extent {
    uint64_t slices, rows, cols;
} extent;

/* Find a tensor of a supported type and these dimensions; a vector has one row, a matrix one slice. */
static pleat_status find(loader *l, const char *name, extent is, const pleat__gguf_tensor **out,
                         pleat__weight_type *type) {
    const pleat__gguf_tensor *t = pleat__gguf_find_tensor(l->m->gguf, name);
    PLEAT_FAIL_IF(!t, l->err, PLEAT_E_FORMAT, PLEAT_NOWHERE, "tensor '%s' is missing", name);
    PLEAT_FAIL_IF(!pleat__weight_type_of(t->type, type), l->err, PLEAT_E_UNSUPPORTED, t->info_offset,
                  "tensor '%s' is of type %s; supported are %s", name, t->type_name, PLEAT__WEIGHT_TYPE_NAMES);
    char want[80];
    snprintf(want, sizeof want, is.slices > 1 ? "%llu x %llu x %llu" : "%llu x %llu", (unsigned long long)is.cols,
             (unsigned long long)is.rows, (unsigned long long)is.slices);
    PLEAT_FAIL_IF(t->dims[0] != is.cols || t->dims[1] != is.rows || t->dims[2] != is.slices || t->dims[3] != 1, l->err,
                  PLEAT_E_FORMAT, t->info_offset, "tensor '%s' is %llu x %llu x %llu x %llu, not %s", name,
                  (unsigned long long)t->dims[0], (unsigned long long)t->dims[1], (unsigned long long)t->dims[2],
                  (unsigned long long)t->dims[3], want);
    l->is_used[t - l->m->gguf->tensors] = 1;
    *out = t;
    return PLEAT_OK;
}

static pleat_status take_stack(loader *l, const char *name, uint32_t n, uint32_t rows, uint32_t cols,
                               pleat__stack *out) {
    const pleat__gguf_tensor *t = NULL;
    pleat__weight_type type = PLEAT__W_F32;
    PLEAT_TRY(find(l, name, (extent){n, rows, cols}, &t, &type));
    out->stride = t->n_bytes / n;
    out->first = (pleat__matrix){.type = type,
                                 .rows = rows,
                                 .cols = cols,
                                 .row_bytes = out->stride / rows,
                                 .data = l->m->gguf->bytes + t->offset};
    return PLEAT_OK;
}

static pleat_status take_matrix(loader *l, const char *name, uint32_t rows, uint32_t cols, pleat__matrix *out) {
    pleat__stack one;
    PLEAT_TRY(take_stack(l, name, 1, rows, cols, &one));
    *out = one.first;
    return PLEAT_OK;
}

static float read_float(const uint8_t *p, pleat__weight_type type, uint64_t i) {
    uint16_t half;
    float x;
    if (type == PLEAT__W_F32) {
        memcpy(&x, p + 4 * (size_t)i, sizeof x);
        return x;
    }
    memcpy(&half, p + 2 * (size_t)i, sizeof half);
    return type == PLEAT__W_F16 ? pleat__f16_to_f32(half) : pleat__bf16_to_f32(half);
}

/* Rows of f32, copied. */
static pleat_status take_rows(loader *l, const char *name, uint32_t rows, uint32_t cols, const float **out) {
    const pleat__gguf_tensor *t = NULL;
    pleat__weight_type type = PLEAT__W_F32;
    const uint64_t n = (uint64_t)rows * cols;
    PLEAT_TRY(find(l, name, (extent){1, rows, cols}, &t, &type));
    PLEAT_FAIL_IF(type != PLEAT__W_F32 && type != PLEAT__W_F16 && type != PLEAT__W_BF16, l->err, PLEAT_E_UNSUPPORTED,
                  t->info_offset, "tensor '%s' is of type %s; for a vector F32, F16 and BF16 are supported", name,
                  t->type_name);
    if (l->m->norms) {
        float *copy = l->m->norms + l->n_floats;
        for (uint64_t i = 0; i < n; i++) copy[i] = read_float(l->m->gguf->bytes + t->offset, type, i);
        *out = copy;
    }
    l->n_floats += n;
    return PLEAT_OK;
}

static pleat_status take_vector(loader *l, const char *name, uint32_t n, const float **out) {
    return take_rows(l, name, 1, n, out);
}

/* ---- all tensors ------------------------------------------------------------------------------------------------- */

/* Widths that tensors have, in elements. */
enum width { EMBD, Q, N_Q_HEADS, KV, QKV, HEAD, FF, TWO_FF, N_EXPERTS, FF_EXPERT, FF_SHARED };

static uint32_t width_of(const pleat_model *m, enum width width) {
    const pleat_model_info *info = &m->info;
    const uint32_t n_q = info->n_q_heads * info->head_dim, n_kv = info->n_kv_heads * info->head_dim;
    switch (width) {
        case EMBD: return info->n_embd;
        case Q: return n_q;
        case N_Q_HEADS: return info->n_q_heads;
        case KV: return n_kv;
        case QKV: return n_q + 2 * n_kv;
        case HEAD: return info->head_dim;
        case FF: return info->n_ff;
        case TWO_FF: return 2 * info->n_ff;
        case N_EXPERTS: return m->n_experts;
        case FF_EXPERT: return m->n_ff_expert;
        case FF_SHARED: return m->n_ff_shared;
    }
    return 0;
}

enum kind { VECTOR, ROWS, MATRIX, STACK };

/* A tensor of a layer, and where it goes. */
typedef struct layer_row {
    const char *name; /* behind "blk.N." */
    uint32_t feature; /* one of these brings it */
    enum kind kind;
    enum width rows; /* a vector's length */
    enum width cols; /* unused for a vector */
    size_t at;       /* in pleat__layer */
} layer_row;

#define AT(field) offsetof(pleat__layer, field)
/* clang-format off */
static const layer_row layer_rows[] = {
    {"attn_norm.weight",           PLEAT__CORE,          VECTOR, EMBD,      EMBD,      AT(attn_norm)},
    {"attn_q.weight",              PLEAT__SPLIT_QKV,     MATRIX, Q,         EMBD,      AT(q)},
    {"attn_k.weight",              PLEAT__SPLIT_QKV,     MATRIX, KV,        EMBD,      AT(k)},
    {"attn_v.weight",              PLEAT__SPLIT_QKV,     MATRIX, KV,        EMBD,      AT(v)},
    {"attn_qkv.weight",            PLEAT__FUSED_QKV,     MATRIX, QKV,       EMBD,      AT(q)},
    {"attn_q.bias",                PLEAT__QKV_BIAS,      VECTOR, Q,         EMBD,      AT(biases[0])},
    {"attn_k.bias",                PLEAT__QKV_BIAS,      VECTOR, KV,        EMBD,      AT(biases[1])},
    {"attn_v.bias",                PLEAT__QKV_BIAS,      VECTOR, KV,        EMBD,      AT(biases[2])},
    {"attn_q_norm.weight",         PLEAT__QK_NORM,       VECTOR, HEAD,      EMBD,      AT(q_norm)},
    {"attn_k_norm.weight",         PLEAT__QK_NORM,       VECTOR, HEAD,      EMBD,      AT(k_norm)},
    {"attn_output.weight",         PLEAT__CORE,          MATRIX, EMBD,      Q,         AT(o)},
    {"attn_output.bias",           PLEAT__O_BIAS,        VECTOR, EMBD,      EMBD,      AT(o_bias)},
    {"attn_sinks.weight",          PLEAT__SINKS,         VECTOR, N_Q_HEADS, EMBD,      AT(sinks)},
    {"post_attention_norm.weight", PLEAT__POST_NORM,     VECTOR, EMBD,      EMBD,      AT(post_attn_norm)},
    {"post_attention_norm.weight", PLEAT__FFN_NORM_POST, VECTOR, EMBD,      EMBD,      AT(ffn_norm)},
    {"ffn_norm.weight",            PLEAT__FFN_NORM,      VECTOR, EMBD,      EMBD,      AT(ffn_norm)},
    {"ffn_gate.weight",            PLEAT__SPLIT_FFN,     MATRIX, FF,        EMBD,      AT(gate)},
    {"ffn_up.weight",              PLEAT__SPLIT_FFN,     MATRIX, FF,        EMBD,      AT(up)},
    {"ffn_up.weight",              PLEAT__FUSED_FFN,     MATRIX, TWO_FF,    EMBD,      AT(gate)},
    {"ffn_down.weight", PLEAT__SPLIT_FFN | PLEAT__FUSED_FFN, MATRIX, EMBD,  FF,        AT(down)},
    {"ffn_gate_inp.weight",        PLEAT__EXPERTS,       MATRIX, N_EXPERTS, EMBD,      AT(router)},
    {"ffn_gate_exps.weight",       PLEAT__EXPERTS,       STACK,  FF_EXPERT, EMBD,      AT(gates)},
    {"ffn_up_exps.weight",         PLEAT__EXPERTS,       STACK,  FF_EXPERT, EMBD,      AT(ups)},
    {"ffn_down_exps.weight",       PLEAT__EXPERTS,       STACK,  EMBD,      FF_EXPERT, AT(downs)},
    {"ffn_gate_inp.bias",          PLEAT__EXPERT_BIAS,   VECTOR, N_EXPERTS, EMBD,      AT(router_bias)},
    {"ffn_gate_exps.bias",         PLEAT__EXPERT_BIAS,   ROWS,   N_EXPERTS, FF_EXPERT, AT(gate_biases)},
    {"ffn_up_exps.bias",           PLEAT__EXPERT_BIAS,   ROWS,   N_EXPERTS, FF_EXPERT, AT(up_biases)},
    {"ffn_down_exps.bias",         PLEAT__EXPERT_BIAS,   ROWS,   N_EXPERTS, EMBD,      AT(down_biases)},
    {"ffn_gate_inp_shexp.weight",  PLEAT__SHARED_EXPERT, VECTOR, EMBD,      EMBD,      AT(shared_gate)},
    {"ffn_gate_shexp.weight",      PLEAT__SHARED_EXPERT, MATRIX, FF_SHARED, EMBD,      AT(gate)},
    {"ffn_up_shexp.weight",        PLEAT__SHARED_EXPERT, MATRIX, FF_SHARED, EMBD,      AT(up)},
    {"ffn_down_shexp.weight",      PLEAT__SHARED_EXPERT, MATRIX, EMBD,      FF_SHARED, AT(down)},
    {"post_ffw_norm.weight",       PLEAT__POST_NORM,     VECTOR, EMBD,      EMBD,      AT(post_ffn_norm)},
};
/* clang-format on */

static pleat_status take_row(loader *l, const layer_row *row, const char *name, pleat__layer *layer) {
    const pleat_model *m = l->m;
    const uint32_t rows = width_of(m, row->rows), cols = width_of(m, row->cols);
    void *out = (uint8_t *)layer + row->at;
    if (row->kind == VECTOR) return take_vector(l, name, rows, out);
    if (row->kind == ROWS) return take_rows(l, name, rows, cols, out);
    if (row->kind == MATRIX) return take_matrix(l, name, rows, cols, out);
    return take_stack(l, name, m->n_experts, rows, cols, out);
}

/* The last `n` rows of a matrix, which are cut off it. */
static pleat__matrix cut_rows(pleat__matrix *m, uint32_t n) {
    pleat__matrix rest = *m;
    m->rows -= n;
    rest.rows = n;
    rest.data += m->rows * m->row_bytes;
    return rest;
}

/* What the cache takes: pleat/cache.h. */
static pleat_status check_sinks(const loader *l, uint32_t idx, const float *sinks) {
    for (uint32_t i = 0; sinks && i < l->m->info.n_q_heads; i++)
        PLEAT_FAIL_IF(!(fabsf(sinks[i]) < 0x1p16f), l->err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                      "tensor 'blk.%u.attn_sinks.weight': element %u is not below 65536 in magnitude", idx, i);
    return PLEAT_OK;
}

static pleat_status take_layer(loader *l, uint32_t idx, pleat__layer *layer) {
    const pleat_model *m = l->m;
    char name[64];
    for (size_t i = 0; i < sizeof layer_rows / sizeof layer_rows[0]; i++) {
        const layer_row *row = &layer_rows[i];
        snprintf(name, sizeof name, "blk.%u.%s", idx, row->name);
        const bool is_optional = !(m->features & row->feature) && (m->arch->may_have & row->feature & OPTIONAL);
        if (!(m->features & row->feature) && !(is_optional && pleat__gguf_find_tensor(m->gguf, name))) continue;
        PLEAT_TRY(take_row(l, row, name, layer));
    }
    PLEAT_TRY(check_sinks(l, idx, layer->sinks));
    if (m->features & PLEAT__FUSED_QKV) {
        layer->v = cut_rows(&layer->q, width_of(m, KV));
        layer->k = cut_rows(&layer->q, width_of(m, KV));
    }
    if (m->features & PLEAT__FUSED_FFN) layer->up = cut_rows(&layer->gate, width_of(m, FF));
    pleat__hparams_layer(m, idx, layer);
    return PLEAT_OK;
}

/* Divisors of RoPE's frequencies, for the layers that see everything. */
static pleat_status take_rope_factors(loader *l, const char *name, const float **out) {
    const uint32_t n = l->m->ropes[0].n_dims / 2;
    PLEAT_TRY(take_vector(l, name, n, out));
    for (uint32_t i = 0; *out && i < n; i++) {
        const float f = (*out)[i];
        PLEAT_FAIL_IF(!isfinite(f) || !(f > 0), l->err, PLEAT_E_FORMAT, PLEAT_NOWHERE,
                      "tensor '%s': element %u is no finite number above 0", name, i);
    }
    return PLEAT_OK;
}

static pleat_status take_all_rope_factors(loader *l) {
    pleat__rope *rope = &l->m->ropes[0];
    if ((l->m->arch->may_have & PLEAT__ROPE_FREQS) && pleat__gguf_find_tensor(l->m->gguf, "rope_freqs.weight"))
        PLEAT_TRY(take_rope_factors(l, "rope_freqs.weight", &rope->factors));
    if (!(l->m->features & PLEAT__ROPE_LONG)) return PLEAT_OK;
    PLEAT_TRY(take_rope_factors(l, "rope_factors_short.weight", &rope->factors));
    return take_rope_factors(l, "rope_factors_long.weight", &rope->long_factors);
}

static pleat_status take_tensors(loader *l) {
    pleat_model *m = l->m;
    l->n_floats = 0;
    PLEAT_TRY(take_matrix(l, "token_embd.weight", m->info.n_vocab, m->info.n_embd, &m->embedding));
    m->output = m->embedding;
    if (pleat__gguf_find_tensor(m->gguf, "output.weight")) {
        PLEAT_TRY(take_matrix(l, "output.weight", m->info.n_vocab, m->info.n_embd, &m->output));
    }
    PLEAT_TRY(take_vector(l, "output_norm.weight", m->info.n_embd, &m->output_norm));
    for (uint32_t i = 0; i < m->info.n_layers; i++) PLEAT_TRY(take_layer(l, i, &m->layers[i]));
    return take_all_rope_factors(l);
}

/* Also sums up the weights' bytes. */
static pleat_status refuse_unused(const loader *l) {
    const pleat_gguf *g = l->m->gguf;
    l->m->info.weight_bytes = 0;
    for (uint64_t i = 0; i < g->info.n_tensors; i++) {
        PLEAT_FAIL_IF(!l->is_used[i], l->err, PLEAT_E_UNSUPPORTED, g->tensors[i].info_offset,
                      "tensor '%s' is not supported: architecture %s has no use for it here", g->tensors[i].name,
                      l->m->arch->name);
        l->m->info.weight_bytes += g->tensors[i].n_bytes;
    }
    l->m->info.n_params = g->info.n_params;
    return PLEAT_OK;
}

static pleat_status load_tensors(pleat_model *m, pleat_error *err) {
    const uint64_t n_tensors = m->gguf->info.n_tensors;
    PLEAT_FAIL_IF(n_tensors / TENSORS_PER_LAYER < m->info.n_layers, err, PLEAT_E_FORMAT, PLEAT_NOWHERE,
                  "%u layers, but only %llu tensors", m->info.n_layers, (unsigned long long)n_tensors);
    loader l = {.m = m, .is_used = pleat__alloc_zero(&m->al, n_tensors, 1), .err = err};
    m->layers = pleat__alloc_zero(&m->al, m->info.n_layers, sizeof *m->layers);
    pleat_status st = PLEAT_E_MEMORY;
    if (!l.is_used || !m->layers) goto done;
    if ((st = take_tensors(&l)) != PLEAT_OK || (st = refuse_unused(&l)) != PLEAT_OK) goto done;
    m->n_norms = l.n_floats;
    m->norms = pleat__alloc(&m->al, m->n_norms, sizeof *m->norms);
    st = m->norms ? take_tensors(&l) : PLEAT_E_MEMORY;
done:
    if (st == PLEAT_E_MEMORY) pleat__error_set(err, st, PLEAT_NOWHERE, "no memory for %u layers", m->info.n_layers);
    pleat__free(&m->al, l.is_used, n_tensors, 1);
    return st;
}

/* ---- names and the tokenizer ------------------------------------------------------------------------------------- */

static pleat_status load_name(pleat_model *m, pleat_error *err) {
    pleat__str name = PLEAT__STR("");
    (void)pleat__gguf_string(m->gguf, "general.name", &name);
    m->name_bytes = name.n_bytes + 1;
    m->name = pleat__alloc(&m->al, m->name_bytes, 1);
    PLEAT_FAIL_IF(!m->name, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "no memory for the model's name");
    memcpy(m->name, name.p, name.n_bytes);
    m->name[name.n_bytes] = '\0';
    m->info.name = m->name;
    return PLEAT_OK;
}

static pleat_status load_tokenizer(pleat_model *m, pleat_error *err) {
    PLEAT_TRY(pleat__tokenizer_create(m->gguf, &m->al, &m->tokenizer, err));
    m->info.n_vocab = m->tokenizer->vocab.n_tokens;
    m->info.bos = m->tokenizer->bos;
    m->info.eos = m->tokenizer->eos;
    m->info.add_bos = m->tokenizer->add_bos;
    m->info.add_eos = m->tokenizer->add_eos;

    uint64_t n_vocab;
    pleat__keys k = {.gguf = m->gguf, .arch = m->arch->name};
    (void)pleat__keys_find(&k, "vocab_size");
    const pleat_status st = pleat_gguf_get_u64(m->gguf, k.key, &n_vocab);
    PLEAT_FAIL_IF(st == PLEAT_OK && n_vocab != m->info.n_vocab, err, PLEAT_E_FORMAT, PLEAT_NOWHERE,
                  "metadata key '%s' is %llu, but there are %u tokens", k.key, (unsigned long long)n_vocab,
                  m->info.n_vocab);
    return PLEAT_OK;
}

/* ---- the public functions ---------------------------------------------------------------------------------------- */

#define BYTES_ALIGN 64u /* of a file in memory: what its tensors are aligned to counts from its beginning */

/* The model of an open file, which closes it. */
static pleat_status load_from(pleat_gguf *gguf, const pleat_allocator *al, pleat_model **out, pleat_error *err) {
    pleat_model *m = pleat__alloc_zero(al, 1, sizeof *m);
    if (!m) pleat_gguf_close(&gguf);
    PLEAT_FAIL_IF(!m, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "no memory for the model");
    m->al = *al;
    m->gguf = gguf;
    pleat_status st;
    if ((st = pleat__hparams_read(m, m->gguf, err)) != PLEAT_OK) goto fail;
    if ((st = load_tokenizer(m, err)) != PLEAT_OK) goto fail;
    if ((st = pleat__model_load_chat(m, err)) != PLEAT_OK) goto fail;
    if ((st = load_tensors(m, err)) != PLEAT_OK) goto fail;
    if ((st = load_name(m, err)) != PLEAT_OK) goto fail;
    *out = m;
    return PLEAT_OK;
fail:
    pleat_model_destroy(&m);
    return st;
}

pleat_status pleat_model_load(const char *path, const pleat_allocator *allocator, pleat_model **out, pleat_error *err) {
    PLEAT_FAIL_IF(!path || !out, err, PLEAT_E_ARG, PLEAT_NOWHERE, "path and out may not be NULL");
    const pleat_allocator al = pleat__allocator_or_default(allocator);
    pleat_gguf *gguf = NULL;
    PLEAT_TRY(pleat_gguf_open(path, &al, &gguf, err));
    return load_from(gguf, &al, out, err);
}

pleat_status pleat_model_load_memory(const void *bytes, size_t n_bytes, const pleat_allocator *allocator,
                                     pleat_model **out, pleat_error *err) {
    PLEAT_FAIL_IF(!bytes || !out || (uintptr_t)bytes % BYTES_ALIGN != 0, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "bytes and out may not be NULL, and bytes are aligned to %u", BYTES_ALIGN);
    const pleat_allocator al = pleat__allocator_or_default(allocator);
    pleat_gguf *gguf = NULL;
    PLEAT_TRY(pleat_gguf_open_memory(bytes, n_bytes, &al, &gguf, err));
    return load_from(gguf, &al, out, err);
}

void pleat_model_get_info(const pleat_model *model, pleat_model_info *out) {
    if (model && out) *out = model->info;
}

uint32_t pleat_model_layer_window(const pleat_model *model, uint32_t layer) {
    return model && layer < model->info.n_layers ? model->layers[layer].window : 0;
}

void pleat__model_release(const pleat_model *model) {
    if (model->gguf->is_mapped) pleat__os_release_mapped(model->gguf->bytes, model->gguf->info.file_bytes);
}

void pleat_model_destroy(pleat_model **model) {
    if (!model || !*model) return;
    pleat_model *m = *model;
    const pleat_allocator al = m->al;
    pleat__free(&al, m->name, m->name_bytes, 1);
    pleat__free(&al, m->norms, m->n_norms, sizeof *m->norms);
    pleat__free(&al, m->layers, m->info.n_layers, sizeof *m->layers);
    pleat_chat_template_destroy(&m->chat);
    pleat__tokenizer_destroy(m->tokenizer);
    pleat_gguf_close(&m->gguf);
    pleat__free(&al, m, 1, sizeof *m);
    *model = NULL;
}
