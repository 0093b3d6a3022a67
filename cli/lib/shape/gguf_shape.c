/* SPDX-License-Identifier: MIT
 *
 * gguf_shape.c: see gguf_shape.h.
 *
 *     <arch>.block_count   <arch>.attention.head_count   <arch>.embedding_length
 *     <arch>.attention.head_count_kv (as many as query heads)   <arch>.attention.key_length (embedding / heads)
 *     <arch>.context_length   <arch>.attention.sliding_window   <arch>.expert_count   <arch>.expert_used_count
 *
 * Which layers a sliding window holds for a file seldom says, and then by <arch>.attention.sliding_window_pattern: a truth
 * value for each layer, or a period.  Otherwise `periods` has what `pleat run` and llama.cpp have built in.  In those not
 * named every layer counts as seeing everything, and so does one whose window is as long as the context.
 */
#include "gguf_shape.h"

#include <stdio.h>
#include <string.h>

enum { KEY_CAP = 160 };

static const struct {
    const char *arch;
    uint32_t period; /* layers period, 2 period, ... see everything */
} periods[] = {{"gemma2", 2}, {"gemma3", 6}, {"gpt-oss", 2}, {"llama", UINT32_MAX}, {"phi3", UINT32_MAX}};

typedef struct reader {
    const pleat_gguf *gguf;
    pleat_gguf_info info;
    char arch[64];
    pleat_error *err;
} reader;

/* The text of a metadata entry; 0 if there is none. */
static int find_text(const reader *r, const char *wanted, char *out, size_t cap) {
    char key[KEY_CAP];
    for (uint64_t i = 0; i < r->info.n_metadata; i++)
        if (pleat_gguf_metadata(r->gguf, i, key, sizeof key, out, cap) == PLEAT_OK && !strcmp(key, wanted)) return 1;
    out[0] = 0;
    return 0;
}

/* <arch>.<key> in 1..most; missing: `missing`, or an error if that is UINT32_MAX. */
static pleat_status get_u32(reader *r, const char *key, uint32_t most, uint32_t missing, uint32_t *out) {
    char full[KEY_CAP], text[80];
    uint64_t v = 0;
    snprintf(full, sizeof full, "%s.%s", r->arch, key);
    *out = missing;
    if (pleat_gguf_get_u64(r->gguf, full, &v) == PLEAT_OK && v >= 1 && v <= most) {
        *out = (uint32_t)v;
        return PLEAT_OK;
    }
    const int is_there = find_text(r, full, text, sizeof text);
    if (!is_there && missing != UINT32_MAX) return PLEAT_OK;
    if (is_there && v == 0 && !strcmp(text, "0") && missing != UINT32_MAX)
        return PLEAT_OK; /* experts of a dense model */
    return shape_error(r->err, PLEAT_E_FORMAT, "%s is %.40s: a whole number from 1 to %u is needed", full,
                       is_there ? text : "missing", most);
}

/* Layers with the window, by the file's pattern if it has one, else one in so many without. */
static uint32_t count_windowed(const reader *r, const model_shape *s, uint32_t period) {
    char key[KEY_CAP];
    uint64_t item = 0, file_period = 0;
    uint32_t n = 0;
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", r->arch);
    if (pleat_gguf_get_u64(r->gguf, key, &file_period) == PLEAT_OK && file_period >= 1 && file_period <= s->n_layers)
        return shape_windowed(s->n_layers, (uint32_t)file_period);
    if (pleat_gguf_get_item(r->gguf, key, 0, &item) != PLEAT_OK) return shape_windowed(s->n_layers, period);
    for (uint32_t i = 0; i < s->n_layers; i++)
        n += pleat_gguf_get_item(r->gguf, key, i, &item) == PLEAT_OK && item != 0;
    return n;
}

static pleat_status read_windows(reader *r, model_shape *s) {
    SHAPE_TRY(get_u32(r, "attention.sliding_window", 1u << 30, 0, &s->window));
    if (s->n_ctx && s->window >= s->n_ctx) s->window = 0;
    for (size_t i = 0; s->window && i < sizeof periods / sizeof periods[0]; i++)
        if (!strcmp(periods[i].arch, r->arch)) s->n_windowed = count_windowed(r, s, periods[i].period);
    if (!s->n_windowed) s->window = 0;
    return PLEAT_OK;
}

static pleat_status read_sizes(reader *r, model_shape *s) {
    char latent[KEY_CAP], text[16];
    snprintf(latent, sizeof latent, "%s.attention.kv_lora_rank", r->arch);
    if (find_text(r, latent, text, sizeof text))
        return shape_error(r->err, PLEAT_E_UNSUPPORTED,
                           "%s: the model keeps a latent for each token (MLA), and Pleat's pages hold keys and values "
                           "of heads",
                           latent);
    SHAPE_TRY(get_u32(r, "block_count", SHAPE_LAYERS_MAX, UINT32_MAX, &s->n_layers));
    SHAPE_TRY(get_u32(r, "attention.head_count", SHAPE_Q_HEADS_MAX, UINT32_MAX, &s->n_q_heads));
    SHAPE_TRY(get_u32(r, "embedding_length", SHAPE_EMBD_MAX, UINT32_MAX, &s->n_embd));
    SHAPE_TRY(get_u32(r, "attention.head_count_kv", SHAPE_KV_HEADS_MAX, s->n_q_heads, &s->n_kv_heads));
    SHAPE_TRY(get_u32(r, "attention.key_length", SHAPE_HEAD_DIM_MAX, s->n_embd / s->n_q_heads, &s->head_dim));
    SHAPE_TRY(get_u32(r, "context_length", 1u << 30, 0, &s->n_ctx));
    SHAPE_TRY(get_u32(r, "expert_count", SHAPE_EXPERTS_MAX, 0, &s->n_experts));
    if (s->n_experts) SHAPE_TRY(get_u32(r, "expert_used_count", s->n_experts, s->n_experts, &s->n_experts_used));
    SHAPE_TRY(read_windows(r, s));
    if (s->n_kv_heads > SHAPE_KV_HEADS_MAX || s->head_dim < 1 || s->head_dim > SHAPE_HEAD_DIM_MAX)
        return shape_error(r->err, PLEAT_E_UNSUPPORTED, "%u KV heads of dimension %u are beyond %d of 1 to %d",
                           s->n_kv_heads, s->head_dim, SHAPE_KV_HEADS_MAX, SHAPE_HEAD_DIM_MAX);
    return shape_check(s, r->err);
}

/* Whether a tensor holds all experts of a layer: blk.N.ffn_gate_exps.weight, ... */
static int is_expert(const char *name) {
    const char *end = strstr(name, "_exps.");
    return end && strstr(name, ".ffn_") && strstr(name, ".ffn_") < end;
}

static void weigh(const reader *r, gguf_weights *w) {
    uint64_t embedding = 0;
    int has_output = 0, all_known = 1;
    memset(w, 0, sizeof *w);
    for (uint64_t i = 0; i < r->info.n_tensors; i++) {
        pleat_gguf_tensor t;
        if (pleat_gguf_get_tensor(r->gguf, i, &t) != PLEAT_OK) continue;
        all_known &= t.n_bytes > 0;
        w->bytes += t.n_bytes; /* each lies within the file, so that the sum is far from 2^64 */
        if (is_expert(t.name)) w->experts += t.n_bytes;
        if (!strcmp(t.name, "token_embd.weight")) embedding = t.n_bytes;
        if (!strcmp(t.name, "output.weight")) has_output = 1;
    }
    if (has_output) w->lookup = embedding;
    if (!all_known) memset(w, 0, sizeof *w);
}

pleat_status gguf_shape_read(const pleat_gguf *gguf, model_shape *out, gguf_weights *weights, pleat_error *err) {
    reader r = {.gguf = gguf, .err = err};
    model_shape shape = {.n_layers = 0};
    pleat_gguf_get_info(gguf, &r.info);
    if (!find_text(&r, "general.architecture", r.arch, sizeof r.arch))
        return shape_error(err, PLEAT_E_FORMAT, "general.architecture is missing");
    SHAPE_TRY(read_sizes(&r, &shape));
    if (!find_text(&r, "general.name", shape.name, sizeof shape.name))
        snprintf(shape.name, sizeof shape.name, "%s", r.arch);
    shape.n_params = r.info.n_params;
    weigh(&r, weights);
    *out = shape;
    return PLEAT_OK;
}
