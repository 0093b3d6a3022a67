/* SPDX-License-Identifier: MIT
 *
 * weights.c: see weights.h.
 *
 * One walk over the model does both: without memory it counts bytes, with it each tensor is packed into memory of the
 * host that copies read at full speed, and sent from there.
 */
#include "model/cuda/weights.h"

#include <string.h>

#include "core/error.h"
#include "core/memory.h"

#define ALIGN_BYTES 256u
#define STAGING_BYTES (64u << 20)
#define PACK_TILES 4u /* of a unit */

typedef struct walk {
    pleat__device_weights *to;
    uint8_t *base; /* NULL: only count */
    uint64_t used_bytes;
    uint8_t *staging; /* [STAGING_BYTES] */
    pleat_workers *workers;
    pleat_error *err;
} walk;

/* Where the next `bytes` go; NULL while counting. */
static uint8_t *take(walk *w, uint64_t bytes) {
    uint8_t *at = w->base ? w->base + w->used_bytes : NULL;
    w->used_bytes += (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    return at;
}

static pleat_status send(walk *w, void *to, uint64_t bytes) {
    const pleat__device_stream stream = {NULL};
    PLEAT_TRY(pleat__device_copy(to, w->staging, bytes, stream, w->err));
    return pleat__device_wait(stream, w->err);
}

/* ---- matrices ---------------------------------------------------------------------------------------- */

typedef struct pack_job {
    const pleat__tiles *tiles;
    const pleat__tile_source *source;
    uint32_t from, to;
    uint64_t tile_bytes;
    uint8_t *out;
} pack_job;

static void pack_unit(void *ctx, uint32_t unit, uint32_t worker) {
    const pack_job *job = ctx;
    const uint32_t from = job->from + unit * PACK_TILES, to = pleat__min_u32(from + PACK_TILES, job->to);
    (void)worker;
    pleat__tiles_pack(job->tiles, job->source, from, to, job->out + (from - job->from) * job->tile_bytes);
}

static pleat_status place_matrix(walk *w, const pleat__tile_source *source, pleat__device_matrix *out) {
    out->tiles = pleat__tiles_of(source);
    const uint64_t bytes = pleat__tiles_bytes(&out->tiles), tile_bytes = bytes / out->tiles.n_tiles;
    uint8_t *at = take(w, bytes);
    out->data = at;
    const uint32_t each = (uint32_t)(STAGING_BYTES / tile_bytes);
    PLEAT_FAIL_IF(each == 0, w->err, PLEAT_E_LIMIT, PLEAT_NOWHERE, "weights on a GPU: rows of %u columns are too long",
                  out->tiles.cols);
    for (uint32_t from = 0; at && from < out->tiles.n_tiles; from += each) {
        const uint32_t to = pleat__min_u32(from + each, out->tiles.n_tiles);
        pack_job job = {&out->tiles, source, from, to, tile_bytes, w->staging};
        pleat_workers_run(w->workers, pleat__div_up_u32(to - from, PACK_TILES), pack_unit, &job);
        PLEAT_TRY(send(w, at + from * tile_bytes, (to - from) * tile_bytes));
    }
    return PLEAT_OK;
}

static pleat_status place_one(walk *w, const pleat__matrix *m, pleat__device_matrix *out) {
    const pleat__tile_source source = {.parts = {*m}, .n_parts = 1};
    return place_matrix(w, &source, out);
}

static pleat_status place_qkv(walk *w, const pleat__layer *from, pleat__device_layer *to) {
    const pleat__tile_source all = {.parts = {from->q, from->k, from->v}, .n_parts = 3};
    const pleat__tile_format q = pleat__tile_format_of(from->q.type);
    if (q == pleat__tile_format_of(from->k.type) && q == pleat__tile_format_of(from->v.type)) {
        to->n_qkv = 1;
        return place_matrix(w, &all, &to->qkv[0]);
    }
    to->n_qkv = 3;
    for (int i = 0; i < 3; i++) PLEAT_TRY(place_one(w, &all.parts[i], &to->qkv[i]));
    return PLEAT_OK;
}

/* ---- vectors ------------------------------------------------------------------------------------------- */

static pleat_status place_vector(walk *w, const float *v, uint32_t n, const float **out) {
    if (!v) return PLEAT_OK;
    float *at = (float *)(void *)take(w, n * sizeof *v);
    *out = at;
    if (!at) return PLEAT_OK;
    memcpy(w->staging, v, n * sizeof *v);
    return send(w, at, n * sizeof *v);
}

/* cos and sin at positions [from, to). */
static void fill_turns(const pleat__rope *rope, const double *frequencies, uint32_t from, uint32_t to, float *out) {
    const uint32_t n_pairs = rope->n_dims / 2;
    float turn[2 * 256];
    for (uint32_t position = from; position < to; position++, out += (size_t)2 * n_pairs) {
        pleat__rope_turn(rope, position, frequencies, turn);
        for (uint32_t i = 0; i < n_pairs; i++) {
            const uint32_t first = rope->is_halves ? i : 2 * i, second = rope->is_halves ? i + n_pairs : 2 * i + 1;
            out[2 * i] = turn[first];
            out[2 * i + 1] = turn[rope->n_dims + second];
        }
    }
}

static pleat_status place_turns(walk *w, const pleat__rope *rope, uint32_t max_tokens, const float **out) {
    const uint64_t row_bytes = (uint64_t)rope->n_dims * sizeof(float);
    double frequencies[128];
    uint8_t *at = take(w, max_tokens * row_bytes);
    *out = (const float *)(const void *)at;
    if (!at) return PLEAT_OK;
    pleat__rope_frequencies(rope, max_tokens, frequencies);
    const uint32_t each = (uint32_t)(STAGING_BYTES / row_bytes);
    for (uint32_t from = 0; from < max_tokens; from += each) {
        const uint32_t to = pleat__min_u32(from + each, max_tokens);
        fill_turns(rope, frequencies, from, to, (float *)(void *)w->staging);
        PLEAT_TRY(send(w, at + from * row_bytes, (to - from) * row_bytes));
    }
    return PLEAT_OK;
}

/* ---- the model ----------------------------------------------------------------------------------------- */

static pleat_status place_layer(walk *w, const pleat__layer *from, const float *const *turns, pleat__device_layer *to) {
    const pleat_model_info *info = &w->to->model->info;
    const uint32_t widths[3] = {info->n_q_heads * info->head_dim, info->n_kv_heads * info->head_dim,
                                info->n_kv_heads * info->head_dim};
    PLEAT_TRY(place_qkv(w, from, to));
    PLEAT_TRY(place_one(w, &from->o, &to->o));
    const pleat__tile_source gate_up = {.parts = {from->gate, from->up}, .n_parts = 2, .in_pairs = true};
    PLEAT_TRY(place_matrix(w, &gate_up, &to->gate_up));
    PLEAT_TRY(place_one(w, &from->down, &to->down));
    PLEAT_TRY(place_vector(w, from->attn_norm, info->n_embd, &to->attn_norm));
    PLEAT_TRY(place_vector(w, from->ffn_norm, info->n_embd, &to->ffn_norm));
    PLEAT_TRY(place_vector(w, from->post_attn_norm, info->n_embd, &to->post_norms[0]));
    PLEAT_TRY(place_vector(w, from->post_ffn_norm, info->n_embd, &to->post_norms[1]));
    PLEAT_TRY(place_vector(w, from->q_norm, info->head_dim, &to->head_norms[0]));
    PLEAT_TRY(place_vector(w, from->k_norm, info->head_dim, &to->head_norms[1]));
    PLEAT_TRY(place_vector(w, from->o_bias, info->n_embd, &to->o_bias));
    for (int i = 0; i < 3; i++) PLEAT_TRY(place_vector(w, from->biases[i], widths[i], &to->biases[i]));
    to->rope = from->rope;
    to->turns = from->rope == PLEAT__NO_ROPE ? NULL : turns[from->rope];
    return PLEAT_OK;
}

static pleat_status place_all(walk *w, uint32_t max_tokens) {
    pleat__device_weights *to = w->to;
    const pleat_model *m = to->model;
    const float *turns[2] = {NULL, NULL};
    w->used_bytes = 0;
    for (uint32_t r = 0; r < m->n_ropes; r++) PLEAT_TRY(place_turns(w, &m->ropes[r], max_tokens, &turns[r]));
    PLEAT_TRY(place_one(w, &m->embedding, &to->embedding));
    to->output = to->embedding;
    if (m->output.data != m->embedding.data) PLEAT_TRY(place_one(w, &m->output, &to->output));
    PLEAT_TRY(place_vector(w, m->output_norm, m->info.n_embd, &to->output_norm));
    for (uint32_t i = 0; i < m->info.n_layers; i++) {
        to->layers[i] = (pleat__device_layer){.n_qkv = 0};
        PLEAT_TRY(place_layer(w, &m->layers[i], turns, &to->layers[i]));
    }
    return PLEAT_OK;
}

/* Why no GPU can run the model, NULL if one can. */
static const char *lack_of(const pleat_model *m) {
    if (m->n_experts > 0) return "experts";
    if (m->info.n_embd % 32 || m->info.n_ff % 32 || m->info.n_q_heads * m->info.head_dim % 32)
        return "matrices whose rows are no multiple of 32 weights";
    for (uint32_t i = 0; i < m->info.n_layers; i++) {
        if (m->layers[i].gate.rows == 0) return "no gate";
        if (m->layers[i].sinks) return "sinks of attention";
    }
    return NULL;
}

static pleat_status init(pleat__device_weights *to, const pleat_model *model, const pleat_allocator *al,
                         pleat_error *err) {
    const char *lack = lack_of(model);
    PLEAT_FAIL_IF(lack, err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE, "on a GPU there are no products yet for: %s", lack);
    *to = (pleat__device_weights){.al = *al, .model = model};
    to->layers = pleat__alloc_zero(al, model->info.n_layers, sizeof *to->layers);
    PLEAT_FAIL_IF(!to->layers, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "weights: out of memory");
    return PLEAT_OK;
}

pleat_status pleat__device_weights_bytes(const pleat_model *model, uint32_t max_tokens, const pleat_allocator *al,
                                         uint64_t *bytes, pleat_error *err) {
    pleat__device_weights counted;
    PLEAT_TRY(init(&counted, model, al, err));
    walk w = {.to = &counted, .err = err};
    const pleat_status status = place_all(&w, max_tokens);
    pleat__free(al, counted.layers, model->info.n_layers, sizeof *counted.layers);
    *bytes = w.used_bytes;
    return status;
}

static pleat_status fill(pleat__device_weights *to, uint32_t max_tokens, pleat_workers *workers, pleat_error *err) {
    walk w = {.to = to, .workers = workers, .err = err};
    void *staging = NULL;
    PLEAT_TRY(place_all(&w, max_tokens));
    PLEAT_TRY(pleat__device_alloc(w.used_bytes, &to->memory, err));
    to->bytes = w.used_bytes;
    PLEAT_TRY(pleat__device_alloc_host(STAGING_BYTES, &staging, err));
    w.base = to->memory;
    w.staging = staging;
    const pleat_status status = place_all(&w, max_tokens);
    pleat__device_free_host(staging);
    return status;
}

pleat_status pleat__device_weights_create(const pleat_model *model, uint32_t max_tokens, pleat_workers *workers,
                                          const pleat_allocator *al, pleat__device_weights **out, pleat_error *err) {
    pleat__device_weights *to = pleat__alloc_zero(al, 1, sizeof *to);
    PLEAT_FAIL_IF(!to, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "weights: out of memory");
    pleat_status status = init(to, model, al, err);
    if (status != PLEAT_OK) {
        pleat__free(al, to, 1, sizeof *to);
        return status;
    }
    status = fill(to, max_tokens, workers, err);
    if (status != PLEAT_OK) {
        pleat__device_weights_destroy(&to);
        return status;
    }
    *out = to;
    return PLEAT_OK;
}

void pleat__device_weights_destroy(pleat__device_weights **weights) {
    if (!weights || !*weights) return;
    pleat__device_weights *w = *weights;
    const pleat_allocator al = w->al;
    pleat__device_free(w->memory);
    pleat__free(&al, w->layers, w->model->info.n_layers, sizeof *w->layers);
    pleat__free(&al, w, 1, sizeof *w);
    *weights = NULL;
}
