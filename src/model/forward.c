/* SPDX-License-Identifier: MIT
 *
 * forward.c: the Llama family's forward pass.
 *
 *     x = embedding rows
 *     each layer:   n = norm(x);  q, k, v = Wq n, Wk n, Wv n;  q, k turned by position;  a = attend(q, k, v)
 *                   x += Wo a;    n = norm(x);  x += Wd (silu(Wg n) * Wu n)
 *     logits = Wout norm(x)
 *
 * Rows are the items' new tokens in order; every buffer is [rows][width].  A row whose logits are not wanted ends after
 * the last layer's attention: nobody reads what would follow.  What follows for the others runs on the vector kernels,
 * whose results do not depend on how many rows there are, so that logits do not depend on n_logits.
 *
 * Memory: one block, carved at create, in huge OS pages where there are any.  Most of it is the model's quantised
 * matrices, packed (linear.h): as many bytes as the file's, which are not read again but for the embeddings of tokens.
 * With 4 KiB pages, as the mapped file has, a token would take twice as long (28M parameters, Granite Rapids).
 *
 * Loops: matrix products as in linear.h, q and k turned by the units that make them.  What is between them goes in
 * units of ROW_UNIT rows, so that a token or a few run on the caller's thread without waking the team.
 */
#include "model/forward.h"

#include <assert.h>
#include <string.h>

#include "core/error.h"
#include "core/half.h"
#include "core/memory.h"
#include "hw/os_memory.h"
#include "linear/linear.h"
#include "model/ops.h"

#define ROW_UNIT 16u
#define PACK_UNIT 16u /* strips */

struct pleat__forward {
    pleat_allocator al;
    const pleat_model *model;
    pleat_workers *workers;
    uint32_t max_rows;
    uint64_t block_bytes; /* of all that follows and this struct */
    pleat__linear_dsp linear;
    pleat__ops_dsp ops;
    pleat__layer *layers; /* [n_layers] the model's, with packed matrices in place of quantised ones */
    pleat__matrix output; /* the model's, packed where it is quantised */
    double *frequencies;  /* [rope_dims/2] */
    float **scratch;      /* [workers] of pleat__linear_scratch_bytes() */

    /* The step. */
    uint32_t n_rows;
    uint32_t n_wanted;
    uint32_t n_spans;
    uint32_t n_wanted_spans;
    pleat_token *tokens;              /* [n_rows] */
    uint32_t *positions;              /* [n_rows] */
    uint32_t *wanted;                 /* [n_wanted] rows whose logits are wanted */
    pleat__linear_span *spans;        /* [n_spans] one for each item */
    pleat__linear_span *wanted_spans; /* [n_wanted_spans] those rows, item by item */
    float **logits;                   /* [n_wanted_spans] where each span's go */
    float *x;                         /* [n_rows][n_embd] the residual stream */
    float *normed;                    /* [n_rows][n_embd] */
    float *q;                         /* [n_rows][n_q_heads][head_dim]; then attention's output */
    float *k;                         /* [n_rows][n_kv_heads][head_dim] */
    float *v;
    float *gate; /* [n_rows][n_ff]; then silu(gate) * up */
    float *up;
    float *turns;        /* [n_rows][2*rope_dims] */
    pleat__coded *coded; /* [n_rows][widest/32] the rows of a product, coded */
};

/* ---- memory ----------------------------------------------------------------------------------- */

static uint32_t widest(const pleat_model_info *info) {
    return pleat__max_u32(pleat__max_u32(info->n_embd, info->n_ff), info->n_q_heads * info->head_dim);
}

/* A product's matrix: w itself, or the place for its packed copy. */
static pleat__matrix carve_matrix(pleat__arena *arena, const pleat__matrix *w) {
    pleat__matrix m = *w;
    if (pleat__is_quantised(w->type)) m.data = pleat__arena_take(arena, 1, pleat__linear_packed_bytes(w));
    return m;
}

static void carve_matrices(pleat__arena *arena, const pleat_model *model, pleat__forward *fw) {
    fw->layers = pleat__arena_take(arena, model->info.n_layers, sizeof *fw->layers);
    for (uint32_t i = 0; i < model->info.n_layers; i++) {
        const pleat__layer *from = &model->layers[i];
        const pleat__layer layer = {.attn_norm = from->attn_norm,
                                    .ffn_norm = from->ffn_norm,
                                    .q = carve_matrix(arena, &from->q),
                                    .k = carve_matrix(arena, &from->k),
                                    .v = carve_matrix(arena, &from->v),
                                    .o = carve_matrix(arena, &from->o),
                                    .gate = carve_matrix(arena, &from->gate),
                                    .up = carve_matrix(arena, &from->up),
                                    .down = carve_matrix(arena, &from->down)};
        if (fw->layers) fw->layers[i] = layer;
    }
    fw->output = carve_matrix(arena, &model->output);
}

static void carve(pleat__arena *arena, const pleat_model *model, uint32_t max_rows, uint32_t n_workers,
                  pleat__forward *fw) {
    const pleat_model_info *info = &model->info;
    const uint64_t rows = max_rows;
    const uint64_t q_width = (uint64_t)info->n_q_heads * info->head_dim;
    const uint64_t kv_width = (uint64_t)info->n_kv_heads * info->head_dim;
    const uint64_t scratch_bytes = pleat__linear_scratch_bytes(widest(info));

    (void)pleat__arena_take(arena, 1, sizeof *fw);
    carve_matrices(arena, model, fw);
    fw->frequencies = pleat__arena_take(arena, model->rope_dims / 2 + 1, sizeof(double));
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
    fw->x = pleat__arena_take(arena, rows * info->n_embd, sizeof(float));
    fw->normed = pleat__arena_take(arena, rows * info->n_embd, sizeof(float));
    fw->q = pleat__arena_take(arena, rows * q_width, sizeof(float));
    fw->k = pleat__arena_take(arena, rows * kv_width, sizeof(float));
    fw->v = pleat__arena_take(arena, rows * kv_width, sizeof(float));
    fw->gate = pleat__arena_take(arena, rows * info->n_ff, sizeof(float));
    fw->up = pleat__arena_take(arena, rows * info->n_ff, sizeof(float));
    fw->turns = pleat__arena_take(arena, rows * 2 * model->rope_dims + 1, sizeof(float));
    fw->coded = pleat__arena_take(arena, rows * (widest(info) / PLEAT__WEIGHT_BLOCK), sizeof(pleat__coded));
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
        const pleat__layer *from = &fw->model->layers[i];
        const pleat__layer *to = &fw->layers[i];
        pack_matrix(&from->q, &to->q, fw->workers);
        pack_matrix(&from->k, &to->k, fw->workers);
        pack_matrix(&from->v, &to->v, fw->workers);
        pack_matrix(&from->o, &to->o, fw->workers);
        pack_matrix(&from->gate, &to->gate, fw->workers);
        pack_matrix(&from->up, &to->up, fw->workers);
        pack_matrix(&from->down, &to->down, fw->workers);
    }
    pack_matrix(&fw->model->output, &fw->output, fw->workers);
}

/* ---- create and destroy ------------------------------------------------------------------------- */

pleat_status pleat__forward_create(const pleat_model *model, uint32_t max_rows, pleat_workers *workers,
                                   const pleat_allocator *allocator, pleat__forward **out, pleat_error *err) {
    PLEAT_FAIL_IF(!model || max_rows == 0 || !out, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "forward pass: no model, no rows or no place for the result");
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
    pleat__linear_dsp_init(&fw->linear, pleat_cpu_flags());
    pleat__ops_dsp_init(&fw->ops, pleat_cpu_flags());
    pleat__rope_frequencies((double)model->rope_base, model->rope_factors, model->rope_dims, fw->frequencies);
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
    pleat__forward *fw;
    void (*fn)(pleat__forward *fw, const float *weight, uint32_t row);
    const float *weight;
    const uint32_t *rows; /* [n] which; NULL: 0..n-1 */
    uint32_t n;
} row_loop;

static void run_row_unit(void *ctx, uint32_t unit, uint32_t worker) {
    const row_loop *loop = ctx;
    (void)worker;
    const uint32_t end = pleat__min_u32((unit + 1) * ROW_UNIT, loop->n);
    for (uint32_t i = unit * ROW_UNIT; i < end; i++) loop->fn(loop->fw, loop->weight, loop->rows ? loop->rows[i] : i);
}

static void for_rows(row_loop loop) {
    pleat_workers_run(loop.fw->workers, pleat__div_up_u32(loop.n, ROW_UNIT), run_row_unit, &loop);
}

static void start_row(pleat__forward *fw, const float *weight, uint32_t row) {
    const pleat_model *model = fw->model;
    const uint32_t token = (uint32_t)fw->tokens[row];
    (void)weight;
    fw->linear.load[model->embedding.type](&model->embedding, token, token + 1,
                                           fw->x + (size_t)row * model->info.n_embd);
    pleat__rope_turn(fw->positions[row], fw->frequencies, model->rope_dims,
                     fw->turns + (size_t)row * 2 * model->rope_dims);
}

static void norm_row(pleat__forward *fw, const float *weight, uint32_t row) {
    const uint32_t n = fw->model->info.n_embd;
    const size_t at = (size_t)row * n;
    fw->ops.rmsnorm(fw->x + at, weight, n, fw->model->rms_eps, fw->normed + at);
}

static void norm_all(pleat__forward *fw, const float *weight) {
    for_rows((row_loop){.fw = fw, .fn = norm_row, .weight = weight, .n = fw->n_rows});
}

static void norm_wanted(pleat__forward *fw, const float *weight) {
    for_rows((row_loop){.fw = fw, .fn = norm_row, .weight = weight, .rows = fw->wanted, .n = fw->n_wanted});
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

/* What the jobs on all rows, or on the wanted ones, have in common. */
static pleat__linear_job job_on_all(const pleat__forward *fw) {
    return (pleat__linear_job){
        .dsp = &fw->linear, .spans = fw->spans, .n_spans = fw->n_spans, .coded = fw->coded, .scratch = fw->scratch};
}

static pleat__linear_job job_on_wanted(const pleat__forward *fw) {
    return (pleat__linear_job){.dsp = &fw->linear,
                               .spans = fw->wanted_spans,
                               .n_spans = fw->n_wanted_spans,
                               .vectors_only = true,
                               .coded = fw->coded,
                               .scratch = fw->scratch};
}

/* RoPE on dimensions [from, to) of one head at x, of those that turn. */
static void turn_piece(const pleat__forward *fw, const float *turns, float *x, uint32_t from, uint32_t to) {
    const uint32_t n_dims = fw->model->rope_dims;
    float piece[2 * PLEAT__STRIP_ROWS];
    to = pleat__min_u32(to, n_dims);
    while (from < to) {
        const uint32_t n = pleat__min_u32(to - from, PLEAT__STRIP_ROWS);
        memcpy(piece, turns + from, n * sizeof(float));
        memcpy(piece + n, turns + n_dims + from, n * sizeof(float));
        fw->ops.rope(x + from, 1, n, piece, n);
        from += n;
    }
}

/* RoPE on what a unit of q, k, v made for one row: whole heads, before and after them a part of one. */
static void turn(const void *ctx, uint32_t part, uint32_t row, float *y, uint32_t from, uint32_t to) {
    const pleat__forward *fw = ctx;
    const uint32_t n_dims = fw->model->rope_dims, head_dim = fw->model->info.head_dim;
    const float *turns = fw->turns + (size_t)row * 2 * n_dims;
    if (part == 2) return;
    const uint32_t first = pleat__div_up_u32(from, head_dim) * head_dim, last = to / head_dim * head_dim;
    if (first > last) { /* inside one head */
        turn_piece(fw, turns, y + last, from - last, to - last);
        return;
    }
    if (from < first) turn_piece(fw, turns, y + first - head_dim, from + head_dim - first, head_dim);
    fw->ops.rope(y + first, (last - first) / head_dim, head_dim, turns, n_dims);
    turn_piece(fw, turns, y + last, 0, to - last);
}

static pleat_status attention(pleat__forward *fw, pleat_cache *cache, uint32_t layer_idx) {
    const pleat__layer *layer = &fw->layers[layer_idx];
    norm_all(fw, layer->attn_norm);
    pleat__linear_job qkv = job_on_all(fw);
    qkv.x = fw->normed;
    qkv.n_parts = 3;
    qkv.parts[0] = (pleat__linear_part){&layer->q, fw->q};
    qkv.parts[1] = (pleat__linear_part){&layer->k, fw->k};
    qkv.parts[2] = (pleat__linear_part){&layer->v, fw->v};
    qkv.finish = turn;
    qkv.finish_ctx = fw;
    pleat__linear_run(&qkv, fw->workers);
    return pleat_cache_attend(cache, layer_idx, fw->q, fw->k, fw->v, fw->q);
}

/* What follows attention.  `job` says on which rows. */
static void feed_forward(pleat__forward *fw, const pleat__layer *layer, pleat__linear_job job) {
    pleat__linear_job o = job;
    o.x = fw->q;
    o.n_parts = 1;
    o.parts[0] = (pleat__linear_part){&layer->o, fw->x};
    o.add = true;
    pleat__linear_run(&o, fw->workers);

    (job.vectors_only ? norm_wanted : norm_all)(fw, layer->ffn_norm);
    pleat__linear_job gate_up = job;
    gate_up.x = fw->normed;
    gate_up.n_parts = 2;
    gate_up.parts[0] = (pleat__linear_part){&layer->gate, fw->gate};
    gate_up.parts[1] = (pleat__linear_part){&layer->up, fw->up};
    gate_up.join = fw->ops.swiglu;
    pleat__linear_run(&gate_up, fw->workers);

    pleat__linear_job down = job;
    down.x = fw->gate;
    down.n_parts = 1;
    down.parts[0] = (pleat__linear_part){&layer->down, fw->x};
    down.add = true;
    pleat__linear_run(&down, fw->workers);
}

static void write_logits(pleat__forward *fw) {
    norm_wanted(fw, fw->model->output_norm);
    pleat__linear_job output = job_on_wanted(fw);
    output.x = fw->normed;
    output.n_parts = 1;
    output.parts[0] = (pleat__linear_part){.w = &fw->output};
    output.outputs = fw->logits;
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
    for_rows((row_loop){.fw = fw, .fn = start_row, .n = fw->n_rows});
    const uint32_t n_layers = fw->model->info.n_layers;
    for (uint32_t layer = 0; layer < n_layers; layer++) {
        const pleat_status status = attention(fw, cache, layer);
        if (status != PLEAT_OK) return status;
        feed_forward(fw, &fw->layers[layer], layer + 1 == n_layers ? job_on_wanted(fw) : job_on_all(fw));
    }
    write_logits(fw);
    return logits_are_finite(fw) ? PLEAT_OK : PLEAT_E_RANGE;
}
