/* SPDX-License-Identifier: MIT
 *
 * linear.c: a job of linear.h cut into units and run.
 *
 * A unit is a block of output rows of one part; with join, of parts 0 and 1 at once.  Blocks are cut by shapes alone:
 *
 *     vector kernels only   blocks of about 48 KB of stored weights: a microsecond or two, so that threads end together
 *     any span by GEMM      blocks that dequantise to at most 256 KB of f32, a part of L2
 *
 * A vector kernel's result does not depend on the block that an output row stands in, and the block of a GEMM is the
 * same in every job, so neither depends on what else the job holds.
 */
#include "model/linear.h"

#include "hw/cpu.h"
#include "model/gemm.h"

#define VECTOR_BLOCK_BYTES 49152u
#define GEMM_BLOCK_FLOATS 65536u
#define GEMM_BLOCK_MAX_ROWS 128u
#define ROWS_MULTIPLE 16u /* of both kinds of block; tiles have 4 or 8 rows */

void pleat__linear_dsp_init(pleat__linear_dsp *dsp, uint32_t cpu_flags) {
    pleat__linear_fill_ref(dsp);
#if PLEAT_X86
    if (!(cpu_flags & PLEAT_CPU_AVX2)) return;
    pleat__linear_fill_avx2(dsp);
    if (!(cpu_flags & PLEAT_CPU_AVX512)) return;
    pleat__linear_fill_avx512(dsp);
#else
    (void)cpu_flags;
#endif
}

static uint32_t round_rows(uint64_t rows) {
    return rows < ROWS_MULTIPLE ? ROWS_MULTIPLE : (uint32_t)(rows / ROWS_MULTIPLE * ROWS_MULTIPLE);
}

static uint32_t gemm_block_rows(const pleat__matrix *w) {
    return pleat__min_u32(round_rows(GEMM_BLOCK_FLOATS / w->cols), GEMM_BLOCK_MAX_ROWS);
}

static uint32_t vector_block_rows(const pleat__matrix *w) { return round_rows(VECTOR_BLOCK_BYTES / w->row_bytes); }

uint64_t pleat__linear_scratch_bytes(uint32_t max_cols) {
    const uint64_t floats = (uint64_t)max_cols * ROWS_MULTIPLE;
    return (floats > GEMM_BLOCK_FLOATS ? floats : GEMM_BLOCK_FLOATS) * sizeof(float);
}

static bool takes_gemm(const pleat__linear_job *job, uint32_t s) {
    return job->spans[s].n_rows > job->dsp->vector_rows && !job->vectors_only && pleat__gemm_is_there();
}

static const float *span_x(const pleat__linear_job *job, uint32_t s, const pleat__matrix *w) {
    return job->x + (size_t)job->spans[s].row * w->cols;
}

static float *span_y(const pleat__linear_job *job, uint32_t s, const pleat__linear_part *part) {
    return job->outputs ? job->outputs[s] : part->y + (size_t)job->spans[s].row * part->w->rows;
}

/* Vectors that wait for a call of the kernel. */
typedef struct batch {
    const float *x[PLEAT__VECTOR_TILE];
    float *y[PLEAT__VECTOR_TILE];
    uint32_t n;
} batch;

/* The output rows of one part that a unit makes. */
typedef struct block {
    const pleat__linear_part *part;
    uint32_t row_from;
    uint32_t row_to;
} block;

static void flush(const pleat__linear_job *job, const block *b, batch *waiting) {
    const pleat__matrix *w = b->part->w;
    job->dsp->mul[w->type](w, b->row_from, b->row_to, waiting->x, waiting->y, waiting->n, job->add);
    waiting->n = 0;
}

/* Add a span's rows to the batch and call the kernel each time it is full: weights are read once for a batch. */
static void push_span(const pleat__linear_job *job, const block *b, uint32_t s, batch *waiting) {
    const float *x = span_x(job, s, b->part->w);
    float *y = span_y(job, s, b->part);
    for (uint32_t i = 0; i < job->spans[s].n_rows; i++) {
        waiting->x[waiting->n] = x + (size_t)i * b->part->w->cols;
        waiting->y[waiting->n] = y + (size_t)i * b->part->w->rows;
        if (++waiting->n == PLEAT__VECTOR_TILE) flush(job, b, waiting);
    }
}

/* A span by GEMM; `weights` holds the block, dequantised. */
static bool gemm_span(const pleat__linear_job *job, const block *b, uint32_t s, const float *weights) {
    const pleat__matrix *w = b->part->w;
    return pleat__gemm(span_x(job, s, w), job->spans[s].n_rows, weights, b->row_to - b->row_from, w->cols,
                       span_y(job, s, b->part) + b->row_from, w->rows, job->add);
}

static void mul_block(const pleat__linear_job *job, const block *b, float *scratch) {
    const pleat__matrix *w = b->part->w;
    bool is_loaded = false;
    batch waiting = {.n = 0};
    for (uint32_t s = 0; s < job->n_spans; s++) {
        if (takes_gemm(job, s)) {
            if (!is_loaded) job->dsp->load[w->type](w, b->row_from, b->row_to, scratch);
            is_loaded = true;
            if (gemm_span(job, b, s, scratch)) continue;
        }
        push_span(job, b, s, &waiting);
    }
    if (waiting.n > 0) flush(job, b, &waiting);
}

/* a = join(a, b) on the block's columns of every row. */
static void join_block(const pleat__linear_job *job, const block *b) {
    for (uint32_t s = 0; s < job->n_spans; s++) {
        float *a = span_y(job, s, &job->parts[0]) + b->row_from;
        const float *other = span_y(job, s, &job->parts[1]) + b->row_from;
        for (uint32_t i = 0; i < job->spans[s].n_rows; i++) {
            const size_t at = (size_t)i * b->part->w->rows;
            job->join(a + at, other + at, b->row_to - b->row_from);
        }
    }
}

typedef struct plan {
    const pleat__linear_job *job;
    uint32_t block_rows[3];
    uint32_t n_blocks[3]; /* units of each part; with join of the first only */
} plan;

static void run_unit(void *ctx, uint32_t unit, uint32_t worker) {
    const plan *p = ctx;
    const pleat__linear_job *job = p->job;
    uint32_t part = 0;
    while (unit >= p->n_blocks[part]) unit -= p->n_blocks[part++];
    block b = {.part = &job->parts[part], .row_from = unit * p->block_rows[part]};
    b.row_to = pleat__min_u32(b.row_from + p->block_rows[part], b.part->w->rows);
    mul_block(job, &b, job->scratch[worker]);
    if (!job->join) return;
    b.part = &job->parts[1];
    mul_block(job, &b, job->scratch[worker]);
    join_block(job, &b);
}

void pleat__linear_run(const pleat__linear_job *job, pleat_workers *workers) {
    bool any_gemm = false;
    for (uint32_t s = 0; s < job->n_spans; s++) any_gemm |= takes_gemm(job, s);
    plan p = {.job = job};
    uint32_t n_units = 0;
    for (uint32_t part = 0; part < (job->join ? 1 : job->n_parts); part++) {
        const pleat__matrix *w = job->parts[part].w;
        p.block_rows[part] = any_gemm ? gemm_block_rows(w) : vector_block_rows(w);
        p.n_blocks[part] = pleat__div_up_u32(w->rows, p.block_rows[part]);
        n_units += p.n_blocks[part];
    }
    if (job->n_spans > 0) pleat_workers_run(workers, n_units, run_unit, &p);
}
