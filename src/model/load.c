/* SPDX-License-Identifier: MIT
 *
 * load.c: a GGUF becomes a model: its shape (hparams.c), its tokenizer, and its tensors, each held against the shape.
 *
 *     token_embd.weight       [n_vocab][n_embd]         blk.N.attn_norm.weight     [n_embd]
 *     output_norm.weight      [n_embd]                  blk.N.attn_{q,k,v}.weight  [heads*head_dim][n_embd]
 *     output.weight           [n_vocab][n_embd] or none blk.N.attn_output.weight   [n_embd][n_q_heads*head_dim]
 *     rope_freqs.weight       [rope_dims/2]     or none blk.N.ffn_norm.weight      [n_embd]
 *                                                       blk.N.ffn_{gate,up}.weight [n_ff][n_embd]
 *                                                       blk.N.ffn_down.weight      [n_embd][n_ff]
 *
 * Rows are written last here and stand first in C; the file lists dimensions the other way round.  Matrices stay in
 * the mapping; vectors are copied to f32.  A tensor that nobody asked for (a bias, a norm of the heads) would change
 * the result: such a file is refused.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/half.h"
#include "core/memory.h"
#include "linear/format.h"
#include "model/hparams.h"
#include "tokenizer/tokenizer.h"

#define TENSORS_PER_LAYER 9u

/* One pass over the tensors.  The first, with m->norms NULL, checks all and counts the floats that vectors need; the
 * second copies them. */
typedef struct loader {
    pleat_model *m;
    uint8_t *is_used; /* [n_tensors] */
    uint64_t n_floats;
    pleat_error *err;
} loader;

/* Find a tensor of a supported type that is [rows][cols]; a vector has one row. */
static pleat_status find(loader *l, const char *name, uint64_t rows, uint64_t cols, const pleat__gguf_tensor **out,
                         pleat__weight_type *type) {
    const pleat__gguf_tensor *t = pleat__gguf_find_tensor(l->m->gguf, name);
    PLEAT_FAIL_IF(!t, l->err, PLEAT_E_FORMAT, PLEAT_NOWHERE, "tensor '%s' is missing", name);
    PLEAT_FAIL_IF(!pleat__weight_type_of(t->type, type), l->err, PLEAT_E_UNSUPPORTED, t->info_offset,
                  "tensor '%s' is of type %s; supported are %s", name, t->type_name, PLEAT__WEIGHT_TYPE_NAMES);
    PLEAT_FAIL_IF(t->dims[0] != cols || t->dims[1] != rows || t->dims[2] != 1 || t->dims[3] != 1, l->err,
                  PLEAT_E_FORMAT, t->info_offset, "tensor '%s' is %llu x %llu x %llu x %llu, not %llu x %llu", name,
                  (unsigned long long)t->dims[0], (unsigned long long)t->dims[1], (unsigned long long)t->dims[2],
                  (unsigned long long)t->dims[3], (unsigned long long)cols, (unsigned long long)rows);
    l->is_used[t - l->m->gguf->tensors] = 1;
    *out = t;
    return PLEAT_OK;
}

static pleat_status take_matrix(loader *l, const char *name, uint32_t rows, uint32_t cols, pleat__matrix *out) {
    const pleat__gguf_tensor *t = NULL;
    pleat__weight_type type = PLEAT__W_F32;
    PLEAT_TRY(find(l, name, rows, cols, &t, &type));
    *out = (pleat__matrix){.type = type,
                           .rows = rows,
                           .cols = cols,
                           .row_bytes = t->n_bytes / rows,
                           .data = l->m->gguf->bytes + t->offset};
    return PLEAT_OK;
}

static float read_float(const uint8_t *p, pleat__weight_type type, uint32_t i) {
    uint16_t half;
    float x;
    if (type == PLEAT__W_F32) {
        memcpy(&x, p + 4 * (size_t)i, sizeof x);
        return x;
    }
    memcpy(&half, p + 2 * (size_t)i, sizeof half);
    return type == PLEAT__W_F16 ? pleat__f16_to_f32(half) : pleat__bf16_to_f32(half);
}

static pleat_status take_vector(loader *l, const char *name, uint32_t n, const float **out) {
    const pleat__gguf_tensor *t = NULL;
    pleat__weight_type type = PLEAT__W_F32;
    PLEAT_TRY(find(l, name, 1, n, &t, &type));
    PLEAT_FAIL_IF(type != PLEAT__W_F32 && type != PLEAT__W_F16 && type != PLEAT__W_BF16, l->err, PLEAT_E_UNSUPPORTED,
                  t->info_offset, "tensor '%s' is of type %s; for a vector F32, F16 and BF16 are supported", name,
                  t->type_name);
    if (l->m->norms) {
        float *copy = l->m->norms + l->n_floats;
        for (uint32_t i = 0; i < n; i++) copy[i] = read_float(l->m->gguf->bytes + t->offset, type, i);
        *out = copy;
    }
    l->n_floats += n;
    return PLEAT_OK;
}

/* ---- all tensors ------------------------------------------------------------------------------------------------- */

static pleat_status take_layer(loader *l, uint32_t idx, pleat__layer *layer) {
    const pleat_model_info *info = &l->m->info;
    const uint32_t n_q = info->n_q_heads * info->head_dim, n_kv = info->n_kv_heads * info->head_dim;
    const struct {
        const char *name;
        uint32_t rows, cols;
        pleat__matrix *out;
    } matrices[] = {
        {"attn_q", n_q, info->n_embd, &layer->q},
        {"attn_k", n_kv, info->n_embd, &layer->k},
        {"attn_v", n_kv, info->n_embd, &layer->v},
        {"attn_output", info->n_embd, n_q, &layer->o},
        {"ffn_gate", info->n_ff, info->n_embd, &layer->gate},
        {"ffn_up", info->n_ff, info->n_embd, &layer->up},
        {"ffn_down", info->n_embd, info->n_ff, &layer->down},
    };
    char name[48];
    for (size_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++) {
        snprintf(name, sizeof name, "blk.%u.%s.weight", idx, matrices[i].name);
        PLEAT_TRY(take_matrix(l, name, matrices[i].rows, matrices[i].cols, matrices[i].out));
    }
    snprintf(name, sizeof name, "blk.%u.attn_norm.weight", idx);
    PLEAT_TRY(take_vector(l, name, info->n_embd, &layer->attn_norm));
    snprintf(name, sizeof name, "blk.%u.ffn_norm.weight", idx);
    return take_vector(l, name, info->n_embd, &layer->ffn_norm);
}

/* The divisors of RoPE's frequencies, where the file has them. */
static pleat_status take_rope_factors(loader *l) {
    pleat_model *m = l->m;
    if (!pleat__gguf_find_tensor(m->gguf, "rope_freqs.weight")) return PLEAT_OK;
    PLEAT_TRY(take_vector(l, "rope_freqs.weight", m->rope_dims / 2, &m->rope_factors));
    for (uint32_t i = 0; m->rope_factors && i < m->rope_dims / 2; i++) {
        const float f = m->rope_factors[i];
        PLEAT_FAIL_IF(!isfinite(f) || !(f > 0), l->err, PLEAT_E_FORMAT, PLEAT_NOWHERE,
                      "tensor 'rope_freqs.weight': element %u is no finite number above 0", i);
    }
    return PLEAT_OK;
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
    return take_rope_factors(l);
}

/* Also sums up the weights' bytes. */
static pleat_status refuse_unused(const loader *l) {
    const pleat_gguf *g = l->m->gguf;
    l->m->info.weight_bytes = 0;
    for (uint64_t i = 0; i < g->info.n_tensors; i++) {
        PLEAT_FAIL_IF(!l->is_used[i], l->err, PLEAT_E_UNSUPPORTED, g->tensors[i].info_offset,
                      "tensor '%s' is not supported: architecture llama has no use for it here", g->tensors[i].name);
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

/* ---- names and the chat form ------------------------------------------------------------------------------------- */

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

static bool is_chatml(const pleat_model *m) {
    static const char start[] = "<|im_start|>", end[] = "<|im_end|>";
    pleat__str template;
    return pleat__gguf_string(m->gguf, "tokenizer.chat_template", &template) &&
           memmem(template.p, template.n_bytes, start, sizeof start - 1) &&
           memmem(template.p, template.n_bytes, end, sizeof end - 1) &&
           pleat__vocab_find_special(&m->tokenizer->vocab, PLEAT__STR(start)) >= 0 &&
           pleat__vocab_find_special(&m->tokenizer->vocab, PLEAT__STR(end)) >= 0;
}

static pleat_status load_tokenizer(pleat_model *m, pleat_error *err) {
    PLEAT_TRY(pleat__tokenizer_create(m->gguf, &m->al, &m->tokenizer, err));
    m->info.n_vocab = m->tokenizer->vocab.n_tokens;
    m->info.bos = m->tokenizer->bos;
    m->info.eos = m->tokenizer->eos;
    m->info.add_bos = m->tokenizer->add_bos;
    m->has_chatml = is_chatml(m);

    uint64_t n_vocab;
    const pleat_status st = pleat_gguf_get_u64(m->gguf, "llama.vocab_size", &n_vocab);
    PLEAT_FAIL_IF(st == PLEAT_OK && n_vocab != m->info.n_vocab, err, PLEAT_E_FORMAT, PLEAT_NOWHERE,
                  "metadata key 'llama.vocab_size' is %llu, but there are %u tokens", (unsigned long long)n_vocab,
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

void pleat_model_destroy(pleat_model **model) {
    if (!model || !*model) return;
    pleat_model *m = *model;
    const pleat_allocator al = m->al;
    pleat__free(&al, m->name, m->name_bytes, 1);
    pleat__free(&al, m->norms, m->n_norms, sizeof *m->norms);
    pleat__free(&al, m->layers, m->info.n_layers, sizeof *m->layers);
    pleat__tokenizer_destroy(m->tokenizer);
    pleat_gguf_close(&m->gguf);
    pleat__free(&al, m, 1, sizeof *m);
    *model = NULL;
}
