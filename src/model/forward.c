/* SPDX-License-Identifier: MIT
 *
 * forward.c: the forward pass (pass.h): its memory, packed weights, and the step from embeddings to logits.
 *
 * What follows the last layer's attention runs, for the rows whose logits are wanted, on the vector kernels.  Their
 * results do not depend on how many rows there are, so that logits do not depend on n_logits.
 *
 * Memory: one block, carved at create, in huge OS pages where there are any.  Most of it is the model's quantised
 * matrices, packed (linear.h): as many bytes as the file's, which are not read again but for the embeddings of tokens.
 * With 4 KiB pages, as the mapped file has, a token would take twice as long (28M parameters, Granite Rapids).
 *
 * Loops: matrix products as in linear.h.  What is between them goes in units of ROW_UNIT rows, so that a token or a few
 * run on the caller's thread without waking the team.
 */
#include "model/forward.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "core/error.h"
#include "core/half.h"
#include "core/memory.h"
#include "hw/os_memory.h"
#include "model/pass.h"

#define ROW_UNIT 16u
#define PACK_UNIT 16u /* strips */

/* ---- memory ----------------------------------------------------------------------------------- */

static uint32_t widest_ff(const pleat_model *m) {
    return pleat__max_u32(m->info.n_ff, pleat__max_u32(m->n_ff_expert, m->n_ff_shared));
}

static uint32_t widest(const pleat_model *m) {
    return pleat__max_u32(pleat__max_u32(m->info.n_embd, widest_ff(m)), m->info.n_q_heads * m->info.head_dim);
}

/* A product's matrix: w itself, or the place for its packed copy. */
static pleat__matrix carve_matrix(pleat__arena *arena, const pleat__matrix *w) {
    pleat__matrix m = *w;
    if (pleat__is_quantised(w->type)) m.data = pleat__arena_take(arena, 1, pleat__linear_packed_bytes(w));
    return m;
}

/* The same for n_experts matrices. */
static pleat__stack carve_stack(pleat__arena *arena, const pleat__stack *stack, uint32_t n) {
    pleat__stack s = *stack;
    if (n == 0 || !pleat__is_quantised(s.first.type)) return s;
    s.stride = (pleat__linear_packed_bytes(&s.first) + PLEAT__ALIGN - 1) / PLEAT__ALIGN * PLEAT__ALIGN;
    s.first.data = pleat__arena_take(arena, n, s.stride);
    return s;
}

/* A layer's matrices, in pleat__layer. */
static const size_t matrices[] = {offsetof(pleat__layer, q),    offsetof(pleat__layer, k),
                                  offsetof(pleat__layer, v),    offsetof(pleat__layer, o),
                                  offsetof(pleat__layer, gate), offsetof(pleat__layer, up),
                                  offsetof(pleat__layer, down), offsetof(pleat__layer, router)};
static const size_t stacks[] = {offsetof(pleat__layer, gates), offsetof(pleat__layer, ups),
                                offsetof(pleat__layer, downs)};

#define N_MATRICES (sizeof matrices / sizeof matrices[0])
#define N_STACKS (sizeof stacks / sizeof stacks[0])

static void *field(const pleat__layer *layer, size_t at) { return (uint8_t *)(uintptr_t)layer + at; }

static void carve_matrices(pleat__arena *arena, const pleat_model *model, pleat__forward *fw) {
    fw->layers = pleat__arena_take(arena, model->info.n_layers, sizeof *fw->layers);
    for (uint32_t i = 0; i < model->info.n_layers; i++) {
        pleat__layer layer = model->layers[i];
        for (size_t f = 0; f < N_MATRICES; f++) {
            pleat__matrix *m = field(&layer, matrices[f]);
            *m = carve_matrix(arena, m);
        }
        for (size_t f = 0; f < N_STACKS; f++) {
            pleat__stack *s = field(&layer, stacks[f]);
            *s = carve_stack(arena, s, model->n_experts);
        }
        if (fw->layers) fw->layers[i] = layer;
    }
    fw->output = carve_matrix(arena, &model->output);
}

static void carve_routing(pleat__arena *arena, const pleat_model *model, uint64_t rows, pleat__routing *r) {
    if (model->n_experts == 0) return;
    const uint64_t n_used = rows * model->n_experts_used;
    r->logits = pleat__arena_take(arena, rows * model->n_experts, sizeof *r->logits);
    r->chosen = pleat__arena_take(arena, n_used, sizeof *r->chosen);
    r->weights = pleat__arena_take(arena, n_used, sizeof *r->weights);
    r->starts = pleat__arena_take(arena, (uint64_t)model->n_experts + 1, sizeof *r->starts);
    r->rows = pleat__arena_take(arena, n_used, sizeof *r->rows);
    r->shares = pleat__arena_take(arena, n_used, sizeof *r->shares);
    r->x = pleat__arena_take(arena, rows * model->info.n_embd, sizeof *r->x);
    r->y = pleat__arena_take(arena, rows * model->info.n_embd, sizeof *r->y);
}

static void carve_rows(pleat__arena *arena, const pleat_model *model, uint64_t rows, pleat__forward *fw) {
    const pleat_model_info *info = &model->info;
    const uint64_t q_width = (uint64_t)info->n_q_heads * info->head_dim;
    const uint64_t kv_width = (uint64_t)info->n_kv_heads * info->head_dim;
    const uint64_t turn_width = 2ull * model->n_ropes * model->ropes[0].n_dims;
    fw->x = pleat__arena_take(arena, rows * info->n_embd, sizeof(float));
    fw->normed = pleat__arena_take(arena, rows * info->n_embd, sizeof(float));
    fw->branch = pleat__arena_take(arena, rows * info->n_embd, sizeof(float));
    fw->q = pleat__arena_take(arena, rows * q_width, sizeof(float));
    fw->k = pleat__arena_take(arena, rows * kv_width, sizeof(float));
    fw->v = pleat__arena_take(arena, rows * kv_width, sizeof(float));
    fw->gate = pleat__arena_take(arena, rows * widest_ff(model), sizeof(float));
    fw->up = pleat__arena_take(arena, rows * widest_ff(model), sizeof(float));
    fw->turns = pleat__arena_take(arena, rows * turn_width + 1, sizeof(float));
    fw->coded = pleat__arena_take(arena, rows * (widest(model) / PLEAT__WEIGHT_BLOCK), sizeof(pleat__coded));
}

static void carve(pleat__arena *arena, const pleat_model *model, uint32_t max_rows, uint32_t n_workers,
                  pleat__forward *fw) {
    const uint64_t rows = max_rows, scratch_bytes = pleat__linear_scratch_bytes(widest(model));
    (void)pleat__arena_take(arena, 1, sizeof *fw);
    carve_matrices(arena, model, fw);
    for (uint32_t r = 0; r < model->n_ropes; r++)
        fw->frequencies[r] = pleat__arena_take(arena, model->ropes[r].n_dims / 2 + 1, sizeof(double));
    fw->scratch = pleat__arena_take(arena, n_workers, sizeof(float *));
    for (uint32_t worker = 0; worker < n_workers; worker++) {
        float *scratch = pleat__arena_take(arena, 1, scratch_bytes);
        if (fw->scratch) fw->scratch[worker] = scratch;
    }
    fw->tokens = pleat__arena_take(arena, rows, sizeof(pleat_token));
    fw->positions = pleat__arena_take(arena, rows, sizeof(uint32_t));
    fw->wanted = pleat__arena_take(arena, rows, sizeof(uint32_t));
    fw->spans = pleat__arena_take(arena, rows, sizeof(pleat__linear_span));
    fw->wanted_spans = pleat__arena_take(arena, rows, sizeof(pleat__linear_span));
    fw->logits = pleat__arena_take(arena, rows, sizeof(float *));
    carve_rows(arena, model, rows, fw);
    carve_routing(arena, model, rows, &fw->routing);
}

uint64_t pleat__forward_bytes(const pleat_model *model, uint32_t max_rows, const pleat_workers *workers) {
    pleat__arena arena = {0};
    pleat__forward counting = {0};
    carve(&arena, model, max_rows, pleat_workers_count(workers), &counting);
    return arena.overflow ? 0 : arena.used_bytes;
}

/* ---- packing ------------------------------------------------------------------------------------ */

typedef struct pack_job {
    const pleat__matrix *from;
    uint8_t *to;
} pack_job;

static void pack_unit(void *ctx, uint32_t unit, uint32_t worker) {
    const pack_job *job = ctx;
    const uint32_t n_strips = pleat__div_up_u32(job->from->rows, PLEAT__STRIP_ROWS);
    (void)worker;
    pleat__linear_pack(job->from, unit * PACK_UNIT, pleat__min_u32((unit + 1) * PACK_UNIT, n_strips), job->to);
}

static void pack_matrix(const pleat__matrix *from, const pleat__matrix *to, pleat_workers *workers) {
    pack_job job = {from, (uint8_t *)(uintptr_t)to->data};
    if (pleat__is_quantised(from->type))
        pleat_workers_run(workers, pleat__div_up_u32(from->rows, PACK_UNIT * PLEAT__STRIP_ROWS), pack_unit, &job);
}

static void pack_matrices(pleat__forward *fw) {
    for (uint32_t i = 0; i < fw->model->info.n_layers; i++) {
        const pleat__layer *from = &fw->model->layers[i], *to = &fw->layers[i];
        for (size_t f = 0; f < N_MATRICES; f++)
            pack_matrix(field(from, matrices[f]), field(to, matrices[f]), fw->workers);
        for (size_t f = 0; f < N_STACKS; f++)
            for (uint32_t e = 0; e < fw->model->n_experts; e++) {
                const pleat__matrix stored = pleat__stack_at(field(from, stacks[f]), e);
                const pleat__matrix packed = pleat__stack_at(field(to, stacks[f]), e);
                pack_matrix(&stored, &packed, fw->workers);
            }
    }
    pack_matrix(&fw->model->output, &fw->output, fw->workers);
}

/* ---- create and destroy ------------------------------------------------------------------------- */

pleat_status pleat__forward_create(const pleat_model *model, uint32_t max_rows, uint32_t max_tokens,
                                   uint32_t activation_bits, pleat_workers *workers, const pleat_allocator *allocator,
                                   pleat__forward **out, pleat_error *err) {
    PLEAT_FAIL_IF(!model || max_rows == 0 || !out, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "forward pass: no model, no rows or no place for the result");
    PLEAT_FAIL_IF(activation_bits != 8 && activation_bits != 16, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "forward pass: activations of %u bits", activation_bits);
    const pleat_allocator al = pleat__allocator_or_default(allocator);
    const uint64_t bytes = pleat__forward_bytes(model, max_rows, workers);
    void *block = bytes ? pleat__alloc(&al, 1, bytes) : NULL;
    PLEAT_FAIL_IF(!block, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "forward pass: no memory for steps of %u tokens",
                  max_rows);
    pleat__os_advise_huge(block, bytes);
    pleat__forward *fw = block;
    *fw = (pleat__forward){.al = al, .model = model, .workers = workers, .max_rows = max_rows, .block_bytes = bytes};
    pleat__arena arena = {.base = block, .cap_bytes = bytes};
    carve(&arena, model, max_rows, pleat_workers_count(workers), fw);
    pleat__linear_dsp_init(&fw->linear, pleat_cpu_flags(), activation_bits / 8);
    pleat__ops_dsp_init(&fw->ops, pleat_cpu_flags());
    for (uint32_t r = 0; r < model->n_ropes; r++)
        pleat__rope_frequencies(&model->ropes[r], max_tokens, fw->frequencies[r]);
    pack_matrices(fw);
    *out = fw;
    return PLEAT_OK;
}

void pleat__forward_destroy(pleat__forward **fw) {
    if (!fw || !*fw) return;
    const pleat_allocator al = (*fw)->al;
    pleat__free(&al, *fw, 1, (*fw)->block_bytes);
    *fw = NULL;
}

/* ---- rows between the products ------------------------------------------------------------------ */

typedef struct row_loop {
    const pleat__forward *fw;
    pleat__row_fn fn;
    const void *arg;
    const uint32_t *rows;
    uint32_t n;
} row_loop;

static void run_row_unit(void *ctx, uint32_t unit, uint32_t worker) {
    const row_loop *loop = ctx;
    (void)worker;
    const uint32_t end = pleat__min_u32((unit + 1) * ROW_UNIT, loop->n);
    for (uint32_t i = unit * ROW_UNIT; i < end; i++) loop->fn(loop->fw, loop->arg, i, loop->rows ? loop->rows[i] : i);
}

void pleat__for_rows(const pleat__forward *fw, pleat__row_fn fn, const void *arg, const uint32_t *rows, uint32_t n) {
    row_loop loop = {fw, fn, arg, rows, n};
    pleat_workers_run(fw->workers, pleat__div_up_u32(n, ROW_UNIT), run_row_unit, &loop);
}

static void norm_row(const pleat__forward *fw, const void *weight, uint32_t i, uint32_t row) {
    const uint32_t n = fw->model->info.n_embd;
    const size_t at = (size_t)row * n;
    (void)i;
    fw->ops.rmsnorm(fw->x + at, weight, n, fw->model->rms_eps, fw->normed + at);
}

void pleat__norm_rows(const pleat__forward *fw, const float *weight, const pleat__step_rows *on) {
    pleat__for_rows(fw, norm_row, weight, on->rows, on->n);
}

/* A row's embedding, and by how much its position turns. */
static void start_row(const pleat__forward *fw, const void *arg, uint32_t i, uint32_t row) {
    const pleat_model *model = fw->model;
    const uint32_t token = (uint32_t)fw->tokens[row], n = model->info.n_embd;
    float *x = fw->x + (size_t)row * n;
    (void)arg, (void)i;
    fw->linear.load[model->embedding.type](&model->embedding, token, token + 1, x);
    for (uint32_t j = 0; model->embedding_scale != 1 && j < n; j++) x[j] *= model->embedding_scale;
    for (uint32_t r = 0; r < model->n_ropes; r++) {
        const size_t width = 2 * (size_t)model->ropes[r].n_dims;
        float *turn = fw->turns + (r * (size_t)fw->max_rows + row) * width;
        pleat__rope_turn(&model->ropes[r], fw->positions[row], fw->frequencies[r], turn);
    }
}

/* ---- the pass ----------------------------------------------------------------------------------- */

/* The items as rows and spans. */
static void lay_out_step(pleat__forward *fw, const pleat__forward_item *items, uint32_t n_items) {
    uint32_t row = 0, n_wanted = 0, n_wanted_spans = 0;
    for (uint32_t i = 0; i < n_items; i++) {
        const pleat__forward_item *item = &items[i];
        const uint32_t end = row + item->n_tokens;
        assert(item->n_tokens > 0 && end <= fw->max_rows && item->n_logits <= item->n_tokens);
        fw->spans[i] = (pleat__linear_span){.row = row, .n_rows = item->n_tokens};
        if (item->n_logits > 0) {
            fw->logits[n_wanted_spans] = item->logits;
            fw->wanted_spans[n_wanted_spans++] =
                (pleat__linear_span){.row = end - item->n_logits, .n_rows = item->n_logits};
        }
        for (uint32_t t = 0; t < item->n_tokens; t++, row++) {
            assert(item->tokens[t] >= 0 && (uint32_t)item->tokens[t] < fw->model->embedding.rows);
            fw->tokens[row] = item->tokens[t];
            fw->positions[row] = item->first_pos + t;
            if (row >= end - item->n_logits) fw->wanted[n_wanted++] = row;
        }
    }
    fw->n_rows = row;
    fw->n_spans = n_items;
    fw->n_wanted = n_wanted;
    fw->n_wanted_spans = n_wanted_spans;
}

static pleat__step_rows all_rows(const pleat__forward *fw) {
    const pleat__linear_job job = {
        .dsp = &fw->linear, .spans = fw->spans, .n_spans = fw->n_spans, .coded = fw->coded, .scratch = fw->scratch};
    return (pleat__step_rows){.job = job, .n = fw->n_rows};
}

static pleat__step_rows wanted_rows(const pleat__forward *fw) {
    const pleat__linear_job job = {.dsp = &fw->linear,
                                   .spans = fw->wanted_spans,
                                   .n_spans = fw->n_wanted_spans,
                                   .vectors_only = true,
                                   .coded = fw->coded,
                                   .scratch = fw->scratch};
    return (pleat__step_rows){.job = job, .rows = fw->wanted, .n = fw->n_wanted};
}

/* Logits that a unit made, scaled and bounded. */
static void shape_logits(const void *ctx, uint32_t part, uint32_t row, float *y, uint32_t from, uint32_t to) {
    const pleat_model *m = ctx;
    (void)part, (void)row;
    for (uint32_t i = from; i < to; i++) y[i] *= m->logit_scale;
    for (uint32_t i = from; m->logit_cap > 0 && i < to; i++) y[i] = m->logit_cap * tanhf(y[i] / m->logit_cap);
}

static void write_logits(pleat__forward *fw) {
    const pleat__step_rows wanted = wanted_rows(fw);
    pleat__norm_rows(fw, fw->model->output_norm, &wanted);
    pleat__linear_job output = wanted.job;
    output.x = fw->normed;
    output.n_parts = 1;
    output.parts[0] = (pleat__linear_part){.w = &fw->output};
    output.outputs = fw->logits;
    if (fw->model->logit_scale != 1 || fw->model->logit_cap > 0) output.finish = shape_logits;
    output.finish_ctx = fw->model;
    pleat__linear_run(&output, fw->workers);
}

/* Weights may be finite and yet too large to compute with. */
static bool logits_are_finite(const pleat__forward *fw) {
    uint32_t n_bad = 0;
    for (uint32_t span = 0; span < fw->n_wanted_spans; span++) {
        const float *logits = fw->logits[span];
        const size_t n = (size_t)fw->wanted_spans[span].n_rows * fw->output.rows;
        for (size_t i = 0; i < n; i++) n_bad |= (pleat__f32_bits(logits[i]) & 0x7F800000u) == 0x7F800000u;
    }
    return n_bad == 0;
}

pleat_status pleat__forward_run(pleat__forward *fw, pleat_cache *cache, const pleat__forward_item *items,
                                uint32_t n_items) {
    lay_out_step(fw, items, n_items);
    pleat__for_rows(fw, start_row, NULL, NULL, fw->n_rows);
    const uint32_t n_layers = fw->model->info.n_layers;
    const pleat__step_rows all = all_rows(fw), wanted = wanted_rows(fw);
    for (uint32_t i = 0; i < n_layers; i++) {
        const pleat__layer *layer = &fw->layers[i];
        const pleat__step_rows *on = i + 1 == n_layers ? &wanted : &all;
        const pleat_status status = pleat__attention_run(fw, cache, i, &all);
        if (status != PLEAT_OK) return status;
        pleat__branch_run(fw, &layer->o, fw->q, layer->o_bias, layer->post_attn_norm, on);
        pleat__feed_forward_run(fw, layer, on);
    }
    write_logits(fw);
    return logits_are_finite(fw) ? PLEAT_OK : PLEAT_E_RANGE;
}
