/* SPDX-License-Identifier: MIT
 *
 * linear.h: products with the model's matrices, y = W x, on the weights as the file stores them.
 *
 *     step rows   0 .. n_rows-1    one for each new token, or for each row of logits
 *     span        a run of rows that belong to one item of the step
 *     job         up to three matrices that read the same rows: q, k, v in one parallel loop, gate and up in one
 *
 * A unit of the loop is a block of output rows of one matrix.  A short span, of at most vector_rows rows, takes the
 * kernels of this table, which turn stored weights into f32 in registers and serve several rows with one pass over
 * them; a longer span takes GEMM (gemm.h) on a block of weights dequantised to scratch, unless the job is vectors_only.
 * Which of the two depends on the span's own length alone, and a kernel adds the products of one (output row, step row)
 * in one order whatever else shares the call: a result depends neither on the other items nor on the thread count, and
 * in a vectors_only job not on the span either.
 *
 * Every stored type becomes f32 exactly: a scale of 11 significant bits times a code of 8 fits 24.  So a product is an
 * f32 dot product of exact weights, in 8 or 16 partial sums: |error| <= 2^-23 * (cols/8 + 36) * sum |w*x|.
 */
#ifndef PLEAT_MODEL_LINEAR_H
#define PLEAT_MODEL_LINEAR_H

#include "model/internal.h"

/* For output rows r in [row_from, row_to) and i < n:  y[i][r] = dot(W[r], x[i]), plus y[i][r] as it was if `add`.
 * Each x[i] is [cols] f32, each y[i] [rows]; no alignment is needed; y may not overlap x. */
typedef void (*pleat__linear_mul_fn)(const pleat__matrix *w, uint32_t row_from, uint32_t row_to, const float *const *x,
                                     float *const *y, uint32_t n, bool add);

/* Dequantise rows [row_from, row_to) to out [row_to - row_from][cols]. */
typedef void (*pleat__linear_load_fn)(const pleat__matrix *w, uint32_t row_from, uint32_t row_to, float *out);

typedef struct pleat__linear_dsp {
    pleat__linear_mul_fn mul[PLEAT__N_WEIGHT_TYPES];
    pleat__linear_load_fn load[PLEAT__N_WEIGHT_TYPES];
    uint32_t vector_rows; /* longest span for which mul beats dequantising and GEMM (oneDNN 2.6, Zen 5) */
} pleat__linear_dsp;

/* Fill the table with the best variants for these CPU flags (pleat_cpu_flags()). */
void pleat__linear_dsp_init(pleat__linear_dsp *dsp, uint32_t cpu_flags);

/* The variants.  _avx2 and _avx512 need those features. */
void pleat__linear_fill_ref(pleat__linear_dsp *dsp);
void pleat__linear_fill_avx2(pleat__linear_dsp *dsp);
void pleat__linear_fill_avx512(pleat__linear_dsp *dsp);

/* Weights in a block of a quantised type, and the bytes of a block. */
#define PLEAT__WEIGHT_BLOCK 32u
#define PLEAT__Q8_0_BYTES 34u
#define PLEAT__Q4_0_BYTES 18u

/* Most vectors that linear.c hands to one call of a kernel: a multiple of the tiles' widths, 6 and 3. */
#define PLEAT__VECTOR_TILE 24u

typedef struct pleat__linear_span {
    uint32_t row;    /* first row */
    uint32_t n_rows; /* >= 1 */
} pleat__linear_span;

typedef struct pleat__linear_part {
    const pleat__matrix *w;
    float *y; /* [n_rows][w->rows]; unused when the job has outputs */
} pleat__linear_part;

typedef struct pleat__linear_job {
    const pleat__linear_dsp *dsp;
    const float *x; /* [n_rows][cols] */
    const pleat__linear_span *spans;
    uint32_t n_spans;
    pleat__linear_part parts[3];
    uint32_t n_parts;
    float *const *outputs; /* NULL, or where the products of each span go: [n_spans] of [span rows][w->rows] */
    bool add;              /* y += W x */
    bool vectors_only;     /* long spans take the vector kernels too */
    /* NULL, or called on what a unit made: parts 0 and 1 have equal shapes then and a unit makes the same rows of
     * both; a and b [n]: a[i] = join(a[i], b[i]). */
    void (*join)(float *a, const float *b, uint32_t n);
    float *const *scratch; /* [workers] of pleat__linear_scratch_bytes() */
} pleat__linear_job;

/* Scratch of one worker for matrices of up to max_cols columns. */
uint64_t pleat__linear_scratch_bytes(uint32_t max_cols);

/* Do the job with the team (may be NULL). */
void pleat__linear_run(const pleat__linear_job *job, pleat_workers *workers);

#endif
