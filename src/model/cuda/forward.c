/* SPDX-License-Identifier: MIT
 *
 * forward.c: the forward pass on a GPU: its memory, and the order of launches.
 *
 *     a step      embed | per layer: norm, qkv, heads and append, attend, o, norm, gate and up, down | norm, output,
 *                 choose
 *     a prompt    the same in blocks of rows, but for attention, which sees the prompt whole
 *     both        a step whose last rows are a short prompt's: weights are read once for all
 *
 * Products add to x or gate where they end, so that nothing else stands between them.  What follows the last layer's
 * attention runs for the rows alone whose logits are wanted.
 *
 * Matrices of F16 go by cuBLASLt in prompts and steps of PLEAT__GEMM_FROM rows and more.  Of prompts of PLEAT__GEMM_LEAST
 * tokens all others do too: a layer's are taken out of their tiles once, before its blocks.  Where bits are fixed it is
 * all prompts, and no step.
 */
#include "model/cuda/forward.h"

#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "model/cuda/gemm.h"
#include "model/cuda/rows.h"

#define BLOCK_ROWS PLEAT__GEMM_ROWS /* of a prompt, in which all but attention goes */
#define ALIGN_BYTES 256u

struct pleat__device_forward {
    pleat_allocator al;
    const pleat__device_weights *weights;
    const pleat_model *model;
    uint32_t max_rows, max_items;
    bool has_scores, is_fixed;
    uint32_t n_q, n_kv;       /* widths of q, and of k and v */
    pleat__device_gemm *gemm; /* NULL: nothing has rows enough, or there is no library */

    /* Device memory; rows are those of a step or of a prompt, blocks BLOCK_ROWS of them. */
    uint8_t *memory;
    float *x;             /* [rows][n_embd] */
    uint16_t *q, *k, *v;  /* [rows][n_q or n_kv] f16 */
    uint16_t *attended;   /* [rows][n_q] f16 */
    float *step_attended; /* [max_items][n_q] */
    uint16_t *normed;     /* [block][n_embd] f16 */
    float *qkv;           /* [block][n_q + 2 n_kv] */
    float *branch;        /* [block][n_embd] where branches are normed */
    uint16_t *h;          /* [block][n_ff] f16 */
    float *logits;        /* [logit rows][n_vocab] */
    float *received;      /* [n_kv_heads][rows], or NULL */
    int32_t *tokens;      /* [rows] */
    uint32_t *positions;  /* [max_items] */
    uint64_t *choices;    /* [logit rows][PLEAT__CHOOSE_PARTS] of choosing */
    uint16_t *plain;      /* with gemm: a layer's matrices, one behind the other */
    uint16_t *pairs;      /* with gemm: [block][2 n_ff] */
    float *parts;         /* with gemm: [PLEAT__DEVICE_PARTS][rows of a step, up to PLEAT__GEMM_BATCH][n_embd] */
    void *gemm_work;      /* with gemm */
    void *mul_work;       /* of products of many rows on Hopper, or NULL */

    pleat__device_parts pending; /* what x is to get before it is normed, in a step */

    /* Memory of the host. */
    int32_t *host_tokens;     /* [rows] */
    uint32_t *host_positions; /* [max_items] */
    uint32_t *host_greedy;    /* [max_items] */
};

/* ---- memory -------------------------------------------------------------------------------------------- */

typedef struct carver {
    uint8_t *base; /* NULL: only count */
    uint64_t used_bytes;
} carver;

static void *carve(carver *c, uint64_t n, uint64_t bytes) {
    void *at = c->base ? c->base + c->used_bytes : NULL;
    c->used_bytes += (n * bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    return at;
}

static uint64_t packed_width(uint32_t width) {
    return (uint64_t)pleat__div_up_u32(width, PLEAT__GROUP_COLS) * PLEAT__GROUP_COLS;
}

static uint32_t logit_rows(uint32_t max_items) { return pleat__max_u32(PLEAT__LOGIT_ROWS, max_items); }

/* Is a product of n rows one of those that pack x, and take it as f32 too? */
static bool packs(uint32_t n) { return n >= PLEAT__MUL_PACKED_FROM && pleat__device_mul_has_wgmma(); }

/* Rows of what is made for products: a packed x has as many as it can. */
static uint64_t product_rows(const pleat__device_forward *fw, uint64_t n) {
    return packs(fw->max_rows) && n < PLEAT__MUL_PACKED ? PLEAT__MUL_PACKED : n;
}

static bool wants_gemm(const pleat__device_forward *fw) {
    return (fw->is_fixed || fw->max_rows >= PLEAT__GEMM_FROM) && pleat__device_gemm_exists();
}

static bool is_plain(const pleat__device_matrix *m) { return m->tiles.format == PLEAT__TILE_F16; }

/* Bytes of the largest layer's matrices as f16, each in whole tiles and aligned; but for those that are plain. */
static uint64_t plain_bytes(const pleat_model *m) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < m->info.n_layers; i++) {
        const pleat__layer *l = &m->layers[i];
        const pleat__matrix *all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        uint64_t halves = 0;
        for (size_t j = 0; j < sizeof all / sizeof *all; j++)
            if (pleat__tile_format_of(all[j]->type) != PLEAT__TILE_F16)
                halves += (uint64_t)(all[j]->rows + PLEAT__TILE_ROWS) *
                              pleat__div_up_u32(all[j]->cols, PLEAT__GROUP_COLS) * PLEAT__GROUP_COLS +
                          ALIGN_BYTES;
        most = halves > most ? halves : most;
    }
    return most * sizeof(uint16_t);
}

/* Rows of a prompt or a step that go through a layer at once; a step's all do. */
static uint32_t block_rows(const pleat__device_forward *fw) {
    return pleat__max_u32(pleat__min_u32(fw->max_rows, BLOCK_ROWS), fw->max_items);
}

static void carve_gemm(pleat__device_forward *fw, uint64_t block, carver *c) {
    if (!wants_gemm(fw)) return;
    fw->plain = carve(c, fw->is_fixed || fw->max_rows >= PLEAT__GEMM_LEAST ? plain_bytes(fw->model) : 0, 1);
    fw->pairs = carve(c, block * 2 * fw->model->info.n_ff, sizeof(uint16_t));
    fw->gemm_work = carve(c, PLEAT__GEMM_WORK_BYTES, 1);
    fw->parts = carve(c, (uint64_t)PLEAT__DEVICE_PARTS * pleat__min_u32(fw->max_items, PLEAT__GEMM_BATCH),
                      fw->model->info.n_embd * sizeof(float));
}

static void carve_work(pleat__device_forward *fw, carver *c) {
    const pleat_model_info *info = &fw->model->info;
    if (!packs(fw->max_rows)) return;
    fw->mul_work =
        carve(c, pleat__device_mul_work_bytes(pleat__max_u32(pleat__max_u32(info->n_embd, info->n_ff), fw->n_q)), 1);
}

static bool has_post_norms(const pleat_model *m) {
    bool has = false;
    for (uint32_t i = 0; i < m->info.n_layers; i++) has |= m->layers[i].post_attn_norm || m->layers[i].post_ffn_norm;
    return has;
}

static void carve_device(pleat__device_forward *fw, carver *c) {
    const pleat_model_info *info = &fw->model->info;
    const uint64_t rows = fw->max_rows, block = block_rows(fw);
    fw->x = carve(c, rows * info->n_embd, sizeof(float));
    fw->q = carve(c, rows * fw->n_q, sizeof(uint16_t));
    fw->k = carve(c, rows * fw->n_kv, sizeof(uint16_t));
    fw->v = carve(c, rows * fw->n_kv, sizeof(uint16_t));
    fw->attended = carve(c, rows * fw->n_q, sizeof(uint16_t));
    fw->step_attended = carve(c, (uint64_t)fw->max_items * fw->n_q, sizeof(float));
    const uint64_t normed_rows = block > logit_rows(fw->max_items) ? block : logit_rows(fw->max_items);
    fw->normed = carve(c, product_rows(fw, normed_rows) * packed_width(info->n_embd), sizeof(uint16_t));
    fw->qkv = carve(c, block * (fw->n_q + 2 * fw->n_kv), sizeof(float));
    fw->branch = carve(c, has_post_norms(fw->model) ? block * info->n_embd : 0, sizeof(float));
    fw->h = carve(c, product_rows(fw, block) * info->n_ff, sizeof(uint16_t));
    fw->logits = carve(c, (uint64_t)logit_rows(fw->max_items) * info->n_vocab, sizeof(float));
    fw->received = fw->has_scores ? carve(c, rows * info->n_kv_heads, sizeof(float)) : NULL;
    fw->tokens = carve(c, rows, sizeof(int32_t));
    fw->positions = carve(c, fw->max_items, sizeof(uint32_t));
    fw->choices = carve(c, (uint64_t)logit_rows(fw->max_items) * PLEAT__CHOOSE_PARTS, sizeof(uint64_t));
    carve_gemm(fw, block, c);
    carve_work(fw, c);
}

static void carve_host(pleat__device_forward *fw, carver *c) {
    fw->host_tokens = carve(c, fw->max_rows, sizeof(int32_t));
    fw->host_positions = carve(c, fw->max_items, sizeof(uint32_t));
    fw->host_greedy = carve(c, fw->max_items, sizeof(uint32_t));
}

static pleat__device_forward empty_for(const pleat_model *model, const pleat__device_forward_options *opt) {
    return (pleat__device_forward){.model = model,
                                   .max_rows = pleat__max_u32(opt->max_rows, opt->max_items),
                                   .max_items = opt->max_items,
                                   .has_scores = opt->has_scores,
                                   .is_fixed = opt->is_fixed,
                                   .n_q = model->info.n_q_heads * model->info.head_dim,
                                   .n_kv = model->info.n_kv_heads * model->info.head_dim};
}

uint64_t pleat__device_forward_bytes(const pleat_model *model, const pleat__device_forward_options *opt) {
    pleat__device_forward fw = empty_for(model, opt);
    carver c = {NULL, 0};
    carve_device(&fw, &c);
    return c.used_bytes;
}

static pleat_status take_memory(pleat__device_forward *fw, pleat_error *err) {
    carver c = {NULL, 0};
    void *p = NULL;
    carve_device(fw, &c);
    PLEAT_TRY(pleat__device_alloc(c.used_bytes, &p, err));
    fw->memory = p;
    c = (carver){fw->memory, 0};
    carve_device(fw, &c);
    if (fw->mul_work) {
        PLEAT_TRY(pleat__device_fill(fw->mul_work, 0, PLEAT__MUL_FLAGS_BYTES, (pleat__device_stream){NULL}, err));
        PLEAT_TRY(pleat__device_wait((pleat__device_stream){NULL}, err));
    }
    c = (carver){NULL, 0};
    carve_host(fw, &c);
    PLEAT_TRY(pleat__device_alloc_host(c.used_bytes, &p, err));
    c = (carver){p, 0};
    carve_host(fw, &c);
    return PLEAT_OK;
}

pleat_status pleat__device_forward_create(const pleat__device_weights *weights,
                                          const pleat__device_forward_options *opt, const pleat_allocator *al,
                                          pleat__device_forward **out, pleat_error *err) {
    pleat__device_forward *fw = pleat__alloc(al, 1, sizeof *fw);
    PLEAT_FAIL_IF(!fw, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "forward pass: out of memory");
    *fw = empty_for(weights->model, opt);
    fw->al = *al;
    fw->weights = weights;
    pleat_status status = take_memory(fw, err);
    if (status == PLEAT_OK && wants_gemm(fw)) status = pleat__device_gemm_create(al, &fw->gemm, err);
    if (status != PLEAT_OK) {
        pleat__device_forward_destroy(&fw);
        return status;
    }
    *out = fw;
    return PLEAT_OK;
}

void pleat__device_forward_destroy(pleat__device_forward **forward) {
    if (!forward || !*forward) return;
    pleat__device_forward *fw = *forward;
    const pleat_allocator al = fw->al;
    pleat__device_gemm_destroy(&fw->gemm);
    pleat__device_free(fw->memory);
    pleat__device_free_host(fw->host_tokens); /* the first of the host's */
    pleat__free(&al, fw, 1, sizeof *fw);
    *forward = NULL;
}

int32_t *pleat__device_forward_tokens(pleat__device_forward *fw) { return fw->host_tokens; }
uint32_t *pleat__device_forward_positions(pleat__device_forward *fw) { return fw->host_positions; }
const uint32_t *pleat__device_forward_greedy(const pleat__device_forward *fw) { return fw->host_greedy; }

const float *pleat__device_forward_logits(const pleat__device_forward *fw, uint32_t i) {
    return fw->logits + (uint64_t)i * fw->model->info.n_vocab;
}

/* ---- pieces of a layer ----------------------------------------------------------------------------------- */

/* Where a layer's matrices stand as f16; NULL: nowhere. */
typedef struct plain_layer {
    const uint16_t *qkv[3], *o, *gate_up, *down;
} plain_layer;

/* Where the launches of a step or prompt go. */
typedef struct launches {
    pleat__device_forward *fw;
    pleat_device_cache *cache;
    pleat__device_stream stream;
    pleat_error *err;
    const plain_layer *plain; /* NULL: only tiles of F16 are plain */
    uint32_t n_past;          /* tokens before a chunk's first; 0: a prompt, or a step */
    uint32_t rows_class;      /* of what goes by cuBLASLt; 0: mul.h's kernels do all products */
    bool is_step;             /* branches may leave their products in parts */
} launches;

/* Rows of x that a piece works on. */
typedef struct rows {
    uint32_t from, n;
} rows;

static uint32_t class_of_step(const pleat__device_forward *fw, uint32_t n) {
    const bool has_class = n >= PLEAT__GEMM_FROM && n <= PLEAT__GEMM_ROWS;
    return fw->gemm && !fw->is_fixed && has_class ? pleat__gemm_class(n) : 0;
}

static uint32_t class_of_prompt(const pleat__device_forward *fw, uint32_t n) {
    if (fw->gemm && fw->is_fixed) return PLEAT__GEMM_ROWS;
    return fw->gemm && n >= PLEAT__GEMM_FROM ? pleat__gemm_class(n) : 0;
}

static float *x_of(const launches *l, rows r) { return l->fw->x + (uint64_t)r.from * l->fw->model->info.n_embd; }

/* How rows of x lie. */
typedef enum x_form { AS_F16, AS_F32, PACKED } x_form;

/* The matrix as f16, if a product with it goes by cuBLASLt; `plain`: its plain form, or NULL. */
static const uint16_t *library_form(const launches *l, const pleat__device_matrix *w, const uint16_t *plain) {
    if (!l->rows_class) return NULL;
    return is_plain(w) ? (const uint16_t *)(const void *)w->data : plain;
}

/* Are n rows of x packed for a product with the matrix where they are made? */
static bool wants_packed(const launches *l, const pleat__device_matrix *w, const uint16_t *plain, uint32_t n) {
    return packs(n) && n <= PLEAT__MUL_PACKED && !library_form(l, w, plain);
}

/* Does a branch leave its product in parts, for the norm behind it to add? */
static bool leaves_parts(const launches *l, const pleat__device_matrix *w, const float *bias, const float *post_norm) {
    return l->is_step && l->rows_class && l->rows_class <= PLEAT__GEMM_BATCH && is_plain(w) && !bias && !post_norm &&
           w->tiles.cols % (PLEAT__DEVICE_PARTS * 64) == 0;
}

static pleat_status multiply(const launches *l, pleat__device_mul *mul, x_form form, const uint16_t *plain,
                             uint32_t n_parts) {
    const pleat__gemm_memory memory = {library_form(l, &mul->w, plain), l->rows_class, l->fw->pairs, l->fw->gemm_work,
                                       n_parts};
    mul->work = l->fw->mul_work;
    mul->x_is_f32 = form == AS_F32;
    mul->x_is_packed = form == PACKED;
    if (!memory.plain || mul->bias || mul->cap > 0) return pleat__device_mul_run(mul, l->stream, l->err);
    return pleat__device_gemm_run(l->fw->gemm, mul, &memory, l->stream, l->err);
}

static pleat_status norm(const launches *l, const float *weight, bool is_packed, rows r) {
    pleat__device_forward *fw = l->fw;
    const pleat__device_norm_of n = {.x = x_of(l, r),
                                     .parts = fw->pending,
                                     .weight = weight,
                                     .n = r.n,
                                     .width = fw->model->info.n_embd,
                                     .eps = fw->model->rms_eps,
                                     .is_packed = is_packed,
                                     .out = fw->normed};
    fw->pending.n = 0;
    return pleat__device_norm(&n, l->stream, l->err);
}

/* q, k and v of the rows, side by side. */
static pleat_status make_qkv(const launches *l, uint32_t layer_idx, rows r) {
    pleat__device_forward *fw = l->fw;
    const pleat__device_layer *layer = &fw->weights->layers[layer_idx];
    const uint32_t width = fw->n_q + 2 * fw->n_kv, at[3] = {0, fw->n_q, fw->n_q + fw->n_kv};
    bool is_packed = true;
    for (uint32_t i = 0; i < layer->n_qkv; i++)
        is_packed &= wants_packed(l, &layer->qkv[i], l->plain ? l->plain->qkv[i] : NULL, r.n);
    PLEAT_TRY(norm(l, layer->attn_norm, is_packed, r));
    for (uint32_t i = 0; i < layer->n_qkv; i++) {
        pleat__device_mul mul = {.w = layer->qkv[i],
                                 .x = fw->normed,
                                 .x_stride = fw->model->info.n_embd,
                                 .n = r.n,
                                 .end = PLEAT__MUL_STORE,
                                 .y = fw->qkv + at[i],
                                 .y_stride = width,
                                 .scale = 1};
        PLEAT_TRY(multiply(l, &mul, is_packed ? PACKED : AS_F16, l->plain ? l->plain->qkv[i] : NULL, 0));
    }
    return PLEAT_OK;
}

/* What makes them ready for the cache. */
static pleat_device_cache_heads heads_of(const launches *l, uint32_t layer_idx) {
    const pleat__device_layer *layer = &l->fw->weights->layers[layer_idx];
    const pleat__rope *rope = layer->turns ? &l->fw->model->ropes[layer->rope] : NULL;
    return (pleat_device_cache_heads){.qkv = l->fw->qkv,
                                      .biases = {layer->biases[0], layer->biases[1], layer->biases[2]},
                                      .norms = {layer->head_norms[0], layer->head_norms[1]},
                                      .eps = l->fw->model->rms_eps,
                                      .turns = layer->turns,
                                      .n_dims = rope ? rope->n_dims : 0,
                                      .is_halves = rope && rope->is_halves};
}

/* q, k and v of n rows of heads, ready for the cache: q behind q_rows others, k and v behind kv_rows. */
static pleat_status run_heads(const launches *l, const pleat_device_cache_heads *of, uint32_t n,
                              const uint32_t *positions, uint32_t first_position, uint32_t q_rows, uint32_t kv_rows) {
    pleat__device_forward *fw = l->fw;
    const pleat_model_info *info = &fw->model->info;
    const pleat__device_heads heads = {.of = *of,
                                       .n = n,
                                       .n_q_heads = info->n_q_heads,
                                       .n_kv_heads = info->n_kv_heads,
                                       .head_dim = info->head_dim,
                                       .positions = positions,
                                       .first_position = first_position,
                                       .q = fw->q + (uint64_t)q_rows * fw->n_q,
                                       .k = fw->k + (uint64_t)kv_rows * fw->n_kv,
                                       .v = fw->v + (uint64_t)kv_rows * fw->n_kv};
    return pleat__device_heads_run(&heads, l->stream, l->err);
}

static pleat_status make_heads(const launches *l, uint32_t layer_idx, rows r, const uint32_t *positions) {
    const pleat_device_cache_heads of = heads_of(l, layer_idx);
    PLEAT_TRY(make_qkv(l, layer_idx, r));
    return run_heads(l, &of, r.n, positions, l->n_past + r.from, r.from, r.from);
}

/* x += what a branch makes of its rows, which post_norm, where it is not NULL, norms before. */
static pleat_status add_branch(const launches *l, const pleat__device_matrix *w, const uint16_t *plain,
                               const void *from, x_form form, const float *bias, const float *post_norm, rows r) {
    const pleat_model *m = l->fw->model;
    pleat__device_mul mul = {.w = *w,
                             .x = from,
                             .x_stride = w->tiles.cols,
                             .n = r.n,
                             .end = PLEAT__MUL_ADD,
                             .y = x_of(l, r),
                             .y_stride = m->info.n_embd,
                             .bias = bias,
                             .scale = m->residual_scale};
    if (leaves_parts(l, w, bias, post_norm)) {
        mul.y = l->fw->parts;
        l->fw->pending = (pleat__device_parts){mul.y, PLEAT__DEVICE_PARTS, m->residual_scale};
        return multiply(l, &mul, form, plain, PLEAT__DEVICE_PARTS);
    }
    if (!post_norm) return multiply(l, &mul, form, plain, 0);
    mul.y = l->fw->branch;
    mul.scale = 1;
    PLEAT_TRY(pleat__device_fill(mul.y, 0, (uint64_t)r.n * m->info.n_embd * sizeof *mul.y, l->stream, l->err));
    PLEAT_TRY(multiply(l, &mul, form, plain, 0));
    return pleat__device_add_normed(mul.y, post_norm, r.n, m->info.n_embd, m->rms_eps, m->residual_scale, x_of(l, r),
                                    l->stream, l->err);
}

static pleat_status feed_forward(const launches *l, const pleat__device_layer *layer, rows r) {
    pleat__device_forward *fw = l->fw;
    const pleat_model *m = fw->model;
    const uint16_t *plain = l->plain ? l->plain->gate_up : NULL, *plain_down = l->plain ? l->plain->down : NULL;
    const bool is_packed = wants_packed(l, &layer->gate_up, plain, r.n);
    const bool h_is_packed =
        is_packed && wants_packed(l, &layer->down, plain_down, r.n) && m->info.n_ff % PLEAT__GROUP_COLS == 0;
    PLEAT_TRY(norm(l, layer->ffn_norm, is_packed, r));
    pleat__device_mul gate = {.w = layer->gate_up,
                              .x = fw->normed,
                              .x_stride = m->info.n_embd,
                              .n = r.n,
                              .end = PLEAT__MUL_GATE,
                              .h = fw->h,
                              .h_is_packed = h_is_packed,
                              .y_stride = m->info.n_ff,
                              .is_gelu = m->arch->is_gelu};
    PLEAT_TRY(multiply(l, &gate, is_packed ? PACKED : AS_F16, plain, 0));
    return add_branch(l, &layer->down, plain_down, fw->h, h_is_packed ? PACKED : AS_F16, NULL, layer->post_norms[1], r);
}

/* Logits of the rows, at most logit_rows of them, into logits. */
static pleat_status make_logits(const launches *l, rows r) {
    pleat__device_forward *fw = l->fw;
    const pleat_model *m = fw->model;
    const bool is_packed = wants_packed(l, &fw->weights->output, NULL, r.n);
    PLEAT_TRY(norm(l, fw->weights->output_norm, is_packed, r));
    pleat__device_mul mul = {.w = fw->weights->output,
                             .x = fw->normed,
                             .x_stride = m->info.n_embd,
                             .n = r.n,
                             .end = PLEAT__MUL_STORE,
                             .y = fw->logits,
                             .y_stride = m->info.n_vocab,
                             .scale = m->logit_scale,
                             .cap = m->logit_cap};
    return multiply(l, &mul, is_packed ? PACKED : AS_F16, NULL, 0);
}

/* The likeliest token of rows [from, from + n) of the logits, to the host. */
static pleat_status choose(const launches *l, uint32_t from, uint32_t n) {
    pleat__device_forward *fw = l->fw;
    return pleat__device_choose(pleat__device_forward_logits(fw, from), n, fw->model->info.n_vocab, fw->choices,
                                fw->host_greedy, l->stream, l->err);
}

/* ---- a step ------------------------------------------------------------------------------------------------ */

/* q of the rows, and their keys and values in the cache. */
static pleat_status step_heads(const launches *l, uint32_t layer_idx, rows r) {
    pleat__device_forward *fw = l->fw;
    if (!pleat_device_cache_takes_heads(l->cache)) {
        PLEAT_TRY(make_heads(l, layer_idx, r, fw->positions));
        return pleat_device_cache_append(l->cache, layer_idx, fw->k, fw->v, l->stream.v, l->err);
    }
    const pleat_device_cache_heads heads = heads_of(l, layer_idx);
    PLEAT_TRY(make_qkv(l, layer_idx, r));
    return pleat_device_cache_append_heads(l->cache, layer_idx, &heads, fw->q, l->stream.v, l->err);
}

/* Attention of the rows, into step_attended, or as f16 into attended. */
static pleat_status step_attend(const launches *l, uint32_t layer_idx, rows r, bool is_f32) {
    pleat__device_forward *fw = l->fw;
    if (!is_f32 && pleat_device_cache_takes_heads(l->cache))
        return pleat_device_cache_attend_f16(l->cache, layer_idx, fw->q, fw->attended, l->stream.v, l->err);
    PLEAT_TRY(pleat_device_cache_attend(l->cache, layer_idx, fw->q, fw->step_attended, NULL, l->stream.v, l->err));
    if (is_f32) return PLEAT_OK;
    return pleat__device_halve(fw->step_attended, (uint64_t)r.n * fw->n_q, fw->attended, l->stream, l->err);
}

static pleat_status step_layer(const launches *l, uint32_t layer_idx, rows r) {
    pleat__device_forward *fw = l->fw;
    const pleat__device_layer *layer = &fw->weights->layers[layer_idx];
    const bool is_f32 = (r.n <= PLEAT__MUL_FEW || packs(r.n)) && !(l->rows_class && is_plain(&layer->o));
    PLEAT_TRY(step_heads(l, layer_idx, r));
    PLEAT_TRY(step_attend(l, layer_idx, r, is_f32));
    const void *attended = is_f32 ? (const void *)fw->step_attended : fw->attended;
    PLEAT_TRY(
        add_branch(l, &layer->o, NULL, attended, is_f32 ? AS_F32 : AS_F16, layer->o_bias, layer->post_norms[0], r));
    return feed_forward(l, layer, r);
}

pleat_status pleat__device_forward_step(pleat__device_forward *fw, pleat_device_cache *cache, uint32_t n,
                                        pleat__device_stream stream, pleat_error *err) {
    const launches l = {fw, cache, stream, err, NULL, 0, class_of_step(fw, n), true};
    fw->pending.n = 0;
    const rows r = {0, n};
    const pleat_model *m = fw->model;
    if (!pleat_device_cache_takes_heads(cache))
        PLEAT_TRY(pleat__device_copy(fw->positions, fw->host_positions, n * sizeof *fw->positions, stream, err));
    PLEAT_TRY(pleat__device_embed(&fw->weights->embedding, fw->host_tokens, n, m->embedding_scale, fw->x, stream, err));
    PLEAT_TRY(pleat_device_cache_begin(cache, stream.v, err));
    pleat_status status = PLEAT_OK;
    for (uint32_t i = 0; status == PLEAT_OK && i < m->info.n_layers; i++) status = step_layer(&l, i, r);
    const pleat_status ended =
        pleat_device_cache_end(cache, stream.v, status == PLEAT_OK ? err : NULL); /* or given up */
    PLEAT_TRY(status);
    PLEAT_TRY(ended);
    PLEAT_TRY(make_logits(&l, r));
    return choose(&l, 0, n);
}

/* ---- a prompt ---------------------------------------------------------------------------------------------- */

static pleat_status prompt_attend(const launches *l, uint32_t layer_idx, uint32_t n_tokens) {
    pleat__device_forward *fw = l->fw;
    for (uint32_t from = 0; from < n_tokens; from += BLOCK_ROWS)
        PLEAT_TRY(make_heads(l, layer_idx, (rows){from, pleat__min_u32(BLOCK_ROWS, n_tokens - from)}, NULL));
    if (l->n_past > 0)
        PLEAT_TRY(pleat_device_cache_chunk_attend(l->cache, layer_idx, fw->q, fw->k, fw->v, fw->attended, l->stream.v,
                                                  l->err));
    else
        PLEAT_TRY(pleat_device_cache_prompt_attend(l->cache, layer_idx, fw->q, fw->k, fw->v, fw->attended, fw->received,
                                                   l->stream.v, l->err));
    return pleat_device_cache_prompt(l->cache, layer_idx, fw->k, fw->v, fw->received, l->stream.v, l->err);
}

/* One more matrix out of its tiles, behind those before it. */
static pleat_status make_plain(const launches *l, const pleat__device_matrix *m, uint64_t *used, const uint16_t **out) {
    uint16_t *to = l->fw->plain + *used;
    *out = NULL;
    if (is_plain(m)) return PLEAT_OK;
    *out = to;
    *used += (pleat__device_plain_halves(&m->tiles) + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    return pleat__device_plain(m, to, l->stream, l->err);
}

static pleat_status make_plain_layer(const launches *l, const pleat__device_layer *layer, plain_layer *out) {
    uint64_t used = 0;
    for (uint32_t i = 0; i < layer->n_qkv; i++) PLEAT_TRY(make_plain(l, &layer->qkv[i], &used, &out->qkv[i]));
    PLEAT_TRY(make_plain(l, &layer->o, &used, &out->o));
    PLEAT_TRY(make_plain(l, &layer->gate_up, &used, &out->gate_up));
    return make_plain(l, &layer->down, &used, &out->down);
}

/* A layer, of which the rows from `wanted` on go on. */
static pleat_status prompt_layer(const launches *all, uint32_t layer_idx, uint32_t n_tokens, uint32_t wanted) {
    pleat__device_forward *fw = all->fw;
    const pleat__device_layer *layer = &fw->weights->layers[layer_idx];
    plain_layer plain = {.o = NULL};
    launches here = *all;
    const launches *l = &here;
    here.rows_class = class_of_prompt(fw, n_tokens);
    if (fw->gemm && (fw->is_fixed || n_tokens >= PLEAT__GEMM_LEAST)) {
        PLEAT_TRY(make_plain_layer(all, layer, &plain));
        here.plain = &plain;
    }
    PLEAT_TRY(prompt_attend(l, layer_idx, n_tokens));
    for (uint32_t from = wanted; from < n_tokens; from += BLOCK_ROWS) {
        const rows r = {from, pleat__min_u32(BLOCK_ROWS, n_tokens - from)};
        PLEAT_TRY(add_branch(l, &layer->o, l->plain ? plain.o : NULL, fw->attended + (uint64_t)from * fw->n_q, AS_F16,
                             layer->o_bias, layer->post_norms[0], r));
        PLEAT_TRY(feed_forward(l, layer, r));
    }
    return PLEAT_OK;
}

/* Logits of the rows from `wanted` on. */
static pleat_status prompt_logits(const launches *l, uint32_t n_tokens, uint32_t wanted, uint32_t n_logits,
                                  bool has_greedy, float *logits) {
    pleat__device_forward *fw = l->fw;
    const uint64_t n_vocab = fw->model->info.n_vocab;
    for (uint32_t from = wanted; from < n_tokens; from += PLEAT__LOGIT_ROWS) {
        const rows r = {from, pleat__min_u32(PLEAT__LOGIT_ROWS, n_tokens - from)};
        PLEAT_TRY(make_logits(l, r));
        if (has_greedy && from + r.n == n_tokens) PLEAT_TRY(choose(l, r.n - 1, 1));
        if (n_logits > 0)
            PLEAT_TRY(pleat__device_copy(logits + (from - wanted) * n_vocab, fw->logits, r.n * n_vocab * sizeof *logits,
                                         l->stream, l->err));
        PLEAT_TRY(pleat__device_wait(l->stream, l->err));
    }
    return pleat__device_wait(l->stream, l->err);
}

static pleat_status run_prompt(const launches *l, const pleat_token *tokens, uint32_t n_tokens, uint32_t wanted) {
    pleat__device_forward *fw = l->fw;
    const pleat_model *m = fw->model;
    const uint32_t n_layers = m->info.n_layers;
    memcpy(fw->host_tokens, tokens, n_tokens * sizeof *tokens);
    PLEAT_TRY(pleat__device_copy(fw->tokens, fw->host_tokens, n_tokens * sizeof *fw->tokens, l->stream, l->err));
    PLEAT_TRY(pleat__device_embed(&fw->weights->embedding, fw->tokens, n_tokens, m->embedding_scale, fw->x, l->stream,
                                  l->err));
    for (uint32_t i = 0; i < n_layers; i++) PLEAT_TRY(prompt_layer(l, i, n_tokens, i + 1 == n_layers ? wanted : 0));
    return pleat_device_cache_prompt_end(l->cache, l->stream.v, l->err);
}

pleat_status pleat__device_forward_prompt(pleat__device_forward *fw, pleat_device_cache *cache, uint32_t seq_idx,
                                          uint32_t n_past, const pleat_token *tokens, uint32_t n_tokens,
                                          uint32_t n_logits, bool has_greedy, float *logits,
                                          pleat__device_stream stream, pleat_error *err) {
    const launches l = {fw, cache, stream, err, NULL, n_past, 0, false};
    fw->pending.n = 0;
    const uint32_t n_wanted = n_logits > 0 ? n_logits : has_greedy ? 1 : 0, wanted = n_tokens - n_wanted;
    if (n_past > 0)
        PLEAT_TRY(pleat_device_cache_chunk_begin(cache, seq_idx, n_tokens, stream.v, err));
    else
        PLEAT_TRY(pleat_device_cache_prompt_begin(cache, seq_idx, n_tokens, stream.v, err));
    PLEAT_TRY(run_prompt(&l, tokens, n_tokens, wanted));
    return prompt_logits(&l, n_tokens, wanted, n_logits, has_greedy, logits);
}

/* ---- a step with a prompt ---------------------------------------------------------------------------------- */

bool pleat__device_forward_mixes(const pleat__device_forward *fw, const pleat_device_cache *cache, uint32_t n,
                                 uint32_t n_tokens) {
    const uint32_t n_all = n + n_tokens;
    const bool has_rows = n_all <= pleat__min_u32(fw->max_rows, BLOCK_ROWS) && n < logit_rows(fw->max_items);
    const bool stays_in_tiles = n_all < PLEAT__GEMM_LEAST || !fw->gemm || is_plain(&fw->weights->layers[0].gate_up);
    return !fw->is_fixed && pleat_device_cache_takes_heads(cache) && has_rows && stays_in_tiles;
}

/* Rows of n single tokens, and behind them a prompt's. */
static pleat_status mixed_layer(const launches *l, uint32_t layer_idx, uint32_t n, uint32_t n_tokens) {
    pleat__device_forward *fw = l->fw;
    const pleat__device_layer *layer = &fw->weights->layers[layer_idx];
    const rows all = {0, n + n_tokens};
    pleat_device_cache_heads heads = heads_of(l, layer_idx);
    uint16_t *q = fw->q + (uint64_t)n * fw->n_q, *attended = fw->attended + (uint64_t)n * fw->n_q;
    PLEAT_TRY(make_qkv(l, layer_idx, all));
    PLEAT_TRY(pleat_device_cache_append_heads(l->cache, layer_idx, &heads, fw->q, l->stream.v, l->err));
    PLEAT_TRY(pleat_device_cache_attend_f16(l->cache, layer_idx, fw->q, fw->attended, l->stream.v, l->err));
    heads.qkv += (uint64_t)n * (fw->n_q + 2 * fw->n_kv);
    PLEAT_TRY(run_heads(l, &heads, n_tokens, NULL, 0, n, 0));
    PLEAT_TRY(pleat_device_cache_prompt_attend(l->cache, layer_idx, q, fw->k, fw->v, attended, fw->received,
                                               l->stream.v, l->err));
    PLEAT_TRY(pleat_device_cache_prompt(l->cache, layer_idx, fw->k, fw->v, fw->received, l->stream.v, l->err));
    PLEAT_TRY(add_branch(l, &layer->o, NULL, fw->attended, AS_F16, layer->o_bias, layer->post_norms[0], all));
    return feed_forward(l, layer, all);
}

/* Logits of the single tokens and of the prompt's last, and their likeliest tokens. */
static pleat_status mixed_logits(launches *l, uint32_t n, uint32_t n_tokens) {
    pleat__device_forward *fw = l->fw;
    const uint64_t n_embd = fw->model->info.n_embd;
    float *last = fw->x + (n + n_tokens - 1) * n_embd, *next = fw->x + n * n_embd;
    if (last != next) PLEAT_TRY(pleat__device_copy(next, last, n_embd * sizeof *next, l->stream, l->err));
    l->rows_class = class_of_step(fw, n + 1);
    PLEAT_TRY(make_logits(l, (rows){0, n + 1}));
    return choose(l, 0, n + 1);
}

pleat_status pleat__device_forward_mixed(pleat__device_forward *fw, pleat_device_cache *cache, uint32_t n,
                                         uint32_t seq_idx, const pleat_token *tokens, uint32_t n_tokens,
                                         pleat__device_stream stream, pleat_error *err) {
    launches l = {fw, cache, stream, err, NULL, 0, class_of_step(fw, n + n_tokens), false};
    const pleat_model *m = fw->model;
    fw->pending.n = 0;
    memcpy(fw->host_tokens + n, tokens, n_tokens * sizeof *tokens);
    PLEAT_TRY(pleat_device_cache_prompt_begin(cache, seq_idx, n_tokens, stream.v, err));
    PLEAT_TRY(pleat__device_copy(fw->tokens, fw->host_tokens, (n + n_tokens) * sizeof *fw->tokens, stream, err));
    PLEAT_TRY(
        pleat__device_embed(&fw->weights->embedding, fw->tokens, n + n_tokens, m->embedding_scale, fw->x, stream, err));
    PLEAT_TRY(pleat_device_cache_begin(cache, stream.v, err));
    pleat_status status = PLEAT_OK;
    for (uint32_t i = 0; status == PLEAT_OK && i < m->info.n_layers; i++) status = mixed_layer(&l, i, n, n_tokens);
    if (status == PLEAT_OK) status = pleat_device_cache_prompt_end(cache, stream.v, err);
    const pleat_status ended =
        pleat_device_cache_end(cache, stream.v, status == PLEAT_OK ? err : NULL); /* or given up */
    PLEAT_TRY(status);
    PLEAT_TRY(ended);
    return mixed_logits(&l, n, n_tokens);
}
