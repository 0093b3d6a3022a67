/* SPDX-License-Identifier: MIT
 *
 * linear.c: a job of linear.h cut into units and run.
 *
 * The strips of a job, 16 output rows each, are counted through, part after part; with join those of part 0 stand for
 * both.  A work unit is an equal stretch of them:
 *
 *     kernels     UNITS_PER_WORKER units for each thread: a result does not depend on the cut
 *     any GEMM    strips that make at most 256 KB of f32, a part of L2; a stretch then ends with its part, so that the
 *                 block of a GEMM is cut by the matrix's shape alone and is the same in every job
 */
#include "linear/linear.h"

#include "hw/cpu.h"
#include "linear/gemm.h"

#define GEMM_BLOCK_FLOATS 65536u
#define GEMM_BLOCK_MAX_ROWS 128u
#define UNITS_PER_WORKER 3u       /* threads that start or run unevenly end together; more cost more to hand out */
#define PROMPT_UNIT_BYTES 131072u /* weights that stay in L2 while the rows of a prompt pass by */
#define CODE_ROWS 16u             /* rows of a unit of coding */
#define FEW_ROWS 24u              /* up to so many, weights are read from memory nearly as slowly as multiplied */
#define STRIP PLEAT__STRIP_ROWS

void pleat__linear_dsp_init(pleat__linear_dsp *dsp, uint32_t cpu_flags, uint32_t n_limbs) {
    pleat__linear_fill_ref(dsp, n_limbs);
#if PLEAT_X86
    if (!(cpu_flags & PLEAT_CPU_AVX2)) return;
    pleat__linear_fill_avx2(dsp, n_limbs);
    pleat__linear_fill_packed_avx2(dsp, n_limbs);
    pleat__linear_fill_many_avx2(dsp, n_limbs);
    if (cpu_flags & PLEAT_CPU_AVX_VNNI) pleat__linear_fill_packed_avxvnni(dsp, n_limbs);
    if (!(cpu_flags & PLEAT_CPU_AVX512)) return;
    pleat__linear_fill_avx512(dsp, n_limbs);
    if (cpu_flags & PLEAT_CPU_VNNI) pleat__linear_fill_packed_avx512(dsp, n_limbs);
    if (cpu_flags & PLEAT_CPU_VNNI) pleat__linear_fill_many_avx512(dsp, n_limbs);
    if (cpu_flags & PLEAT_CPU_AMX_INT8) pleat__linear_fill_packed_amx(dsp, n_limbs);
#elif PLEAT_ARM
    if (!(cpu_flags & PLEAT_CPU_NEON)) return;
    pleat__linear_fill_neon(dsp, n_limbs);
    pleat__linear_fill_packed_neon(dsp, n_limbs);
    if (cpu_flags & PLEAT_CPU_DOTPROD) pleat__linear_fill_packed_dotprod(dsp, n_limbs);
#else
    (void)cpu_flags;
#endif
}

static uint32_t strips_of(const pleat__matrix *w) { return pleat__div_up_u32(w->rows, STRIP); }

static uint32_t gemm_block_strips(uint32_t cols) {
    return pleat__max_u32(1, pleat__min_u32(GEMM_BLOCK_FLOATS / cols, GEMM_BLOCK_MAX_ROWS) / STRIP);
}

uint64_t pleat__linear_scratch_bytes(uint32_t max_cols) {
    const uint64_t floats = (uint64_t)max_cols * STRIP;
    return (floats > GEMM_BLOCK_FLOATS ? floats : GEMM_BLOCK_FLOATS) * sizeof(float);
}

static bool takes_gemm(const pleat__linear_job *job, uint32_t s, const pleat__matrix *w) {
    const uint32_t most = pleat__is_quantised(w->type) ? job->dsp->packed_rows : job->dsp->vector_rows;
    return job->spans[s].n_rows > most && !job->vectors_only && pleat__gemm_is_there();
}

static uint32_t count_rows(const pleat__linear_job *job) {
    uint32_t n = 0;
    for (uint32_t s = 0; s < job->n_spans; s++) n += job->spans[s].n_rows;
    return n;
}

/* Do the kernels for many step rows serve the job?  Its types have to have one each, since they read the same codes. */
static bool has_many(const pleat__linear_job *job) {
    if (count_rows(job) < job->dsp->many_rows) return false;
    for (uint32_t part = 0; part < job->n_parts; part++) {
        const pleat__weight_type type = job->parts[part].w->type;
        if (pleat__is_quantised(type) && !job->dsp->mul_many[type]) return false;
    }
    return true;
}

static const float *row_x(const pleat__linear_job *job, uint32_t row) {
    return job->x + (size_t)row * job->parts[0].w->cols;
}

static pleat__coded *row_coded(const pleat__linear_job *job, uint32_t row) {
    return job->coded + (size_t)row * (job->parts[0].w->cols / PLEAT__WEIGHT_BLOCK);
}

static float *span_y(const pleat__linear_job *job, uint32_t s, const pleat__linear_part *part) {
    return job->outputs ? job->outputs[s] : part->y + (size_t)job->spans[s].row * part->w->rows;
}

/* Vectors that wait for a call of the kernel. */
typedef struct batch {
    const void *x[PLEAT__VECTOR_TILE];
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
    const bool is_many = pleat__is_quantised(w->type) && has_many(job);
    const pleat__linear_mul_fn mul = is_many ? job->dsp->mul_many[w->type] : job->dsp->mul[w->type];
    mul(w, b->row_from, b->row_to, waiting->x, waiting->y, waiting->n, job->add);
    waiting->n = 0;
}

/* Add a span's rows to the batch and call the kernel each time it is full: weights are read once for a batch. */
static void push_span(const pleat__linear_job *job, const block *b, uint32_t s, batch *waiting) {
    const pleat__matrix *w = b->part->w;
    const pleat__linear_span *span = &job->spans[s];
    float *y = span_y(job, s, b->part);
    for (uint32_t row = span->row; row < span->row + span->n_rows; row++, y += w->rows) {
        if (pleat__is_quantised(w->type))
            waiting->x[waiting->n] = row_coded(job, row);
        else
            waiting->x[waiting->n] = row_x(job, row);
        waiting->y[waiting->n] = y;
        if (++waiting->n == PLEAT__VECTOR_TILE) flush(job, b, waiting);
    }
}

/* A span by GEMM; `weights` holds the block as f32. */
static bool gemm_span(const pleat__linear_job *job, const block *b, uint32_t s, const float *weights) {
    const pleat__matrix *w = b->part->w;
    return pleat__gemm(row_x(job, job->spans[s].row), job->spans[s].n_rows, weights, b->row_to - b->row_from, w->cols,
                       span_y(job, s, b->part) + b->row_from, w->rows, job->add);
}

/* The block's weights as f32. */
static void load_block(const pleat__linear_job *job, const block *b, float *out) {
    const pleat__matrix *w = b->part->w;
    if (pleat__is_quantised(w->type))
        pleat__linear_unpack(w, b->row_from, b->row_to, out);
    else
        job->dsp->load[w->type](w, b->row_from, b->row_to, out);
}

static void mul_block(const pleat__linear_job *job, const block *b, float *scratch) {
    const pleat__matrix *w = b->part->w;
    bool is_loaded = false;
    batch waiting = {.n = 0};
    for (uint32_t s = 0; s < job->n_spans; s++) {
        if (takes_gemm(job, s, w)) {
            if (!is_loaded) load_block(job, b, scratch);
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

static void finish_block(const pleat__linear_job *job, const block *b) {
    const uint32_t part = (uint32_t)(b->part - job->parts);
    for (uint32_t s = 0; s < job->n_spans; s++) {
        float *y = span_y(job, s, b->part);
        for (uint32_t i = 0; i < job->spans[s].n_rows; i++, y += b->part->w->rows)
            job->finish(job->finish_ctx, part, job->spans[s].row + i, y, b->row_from, b->row_to);
    }
}

/* ---- rows as codes ----------------------------------------------------------------------------------------------- */

static void code_unit(void *ctx, uint32_t unit, uint32_t worker) {
    const pleat__linear_job *job = ctx;
    const pleat__linear_code_fn code = has_many(job) ? job->dsp->code_many : job->dsp->code;
    uint32_t first = unit * CODE_ROWS, n_left = CODE_ROWS; /* of the rows of all spans */
    (void)worker;
    for (uint32_t s = 0; s < job->n_spans && n_left > 0; s++) {
        const pleat__linear_span *span = &job->spans[s];
        for (; first < span->n_rows && n_left > 0; first++, n_left--)
            code(row_x(job, span->row + first), job->parts[0].w->cols, row_coded(job, span->row + first));
        first -= span->n_rows;
    }
}

/* A row or a few are coded on the caller's thread. */
static void code_rows(const pleat__linear_job *job, uint32_t n_rows, pleat_workers *workers) {
    bool any = false;
    for (uint32_t part = 0; part < job->n_parts; part++) any |= pleat__is_quantised(job->parts[part].w->type);
    if (any) pleat_workers_run(workers, pleat__div_up_u32(n_rows, CODE_ROWS), code_unit, (void *)(uintptr_t)job);
}

/* ---- units ------------------------------------------------------------------------------------------------------- */

typedef struct plan {
    const pleat__linear_job *job;
    uint32_t n_counted;   /* parts whose strips count */
    uint32_t n_strips[3]; /* strips of each part */
    uint32_t unit_strips;
} plan;

static void run_block(const pleat__linear_job *job, uint32_t part, uint32_t strip_from, uint32_t strip_to,
                      float *scratch) {
    block b = {.part = &job->parts[part], .row_from = strip_from * STRIP};
    b.row_to = pleat__min_u32(strip_to * STRIP, b.part->w->rows);
    mul_block(job, &b, scratch);
    if (job->join) {
        b.part = &job->parts[1];
        mul_block(job, &b, scratch);
        join_block(job, &b);
    }
    if (job->finish) finish_block(job, &b);
}

static void run_unit(void *ctx, uint32_t unit, uint32_t worker) {
    const plan *p = ctx;
    uint32_t from = unit * p->unit_strips, n_left = p->unit_strips;
    for (uint32_t part = 0; part < p->n_counted && n_left > 0; part++) {
        if (from >= p->n_strips[part]) {
            from -= p->n_strips[part];
            continue;
        }
        const uint32_t to = pleat__min_u32(from + n_left, p->n_strips[part]);
        run_block(p->job, part, from, to, p->job->scratch[worker]);
        n_left -= to - from;
        from = 0;
    }
}

static bool any_takes_gemm(const pleat__linear_job *job) {
    for (uint32_t s = 0; s < job->n_spans; s++)
        for (uint32_t part = 0; part < job->n_parts; part++)
            if (takes_gemm(job, s, job->parts[part].w)) return true;
    return false;
}

/* Strips of a unit where kernels alone run. */
static uint32_t even_strips(const pleat__linear_job *job, uint32_t n_strips, uint32_t n_rows, uint32_t n_workers) {
    const uint64_t strip_bytes = STRIP * job->parts[0].w->row_bytes;
    const uint32_t even = n_workers > 1 ? pleat__div_up_u32(n_strips, n_workers * UNITS_PER_WORKER) : n_strips;
    if (n_rows <= FEW_ROWS) return even;
    return pleat__min_u32(even, (uint32_t)(PROMPT_UNIT_BYTES / strip_bytes) + 1);
}

void pleat__linear_run(const pleat__linear_job *job, pleat_workers *workers) {
    const uint32_t n_rows = count_rows(job);
    if (n_rows == 0) return;
    plan p = {.job = job, .n_counted = job->join ? 1 : job->n_parts};
    uint32_t n_strips = 0;
    for (uint32_t part = 0; part < p.n_counted; part++) n_strips += p.n_strips[part] = strips_of(job->parts[part].w);
    if (any_takes_gemm(job)) {
        p.unit_strips = gemm_block_strips(job->parts[0].w->cols);
        n_strips = 0;
        for (uint32_t part = 0; part < p.n_counted; part++) {
            p.n_strips[part] = pleat__div_up_u32(p.n_strips[part], p.unit_strips) * p.unit_strips;
            n_strips += p.n_strips[part];
        }
    } else {
        p.unit_strips = even_strips(job, n_strips, n_rows, pleat_workers_count(workers));
    }
    code_rows(job, n_rows, workers);
    pleat_workers_run(workers, pleat__div_up_u32(n_strips, p.unit_strips), run_unit, &p);
}
