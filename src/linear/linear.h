/* SPDX-License-Identifier: MIT
 *
 * linear.h: products with the model's matrices, y = W x.
 *
 *     step rows   0 .. n_rows-1    one for each new token, or for each row of logits
 *     span        a run of rows that belong to one item of the step
 *     job         up to three matrices that read the same rows: q, k, v in one parallel loop, gate and up in one
 *
 * Matrices of floats are read as the file stores them.  A short span, of at most vector_rows rows, takes the kernels of
 * this table.  They turn stored weights into f32 in registers and serve several rows with one pass over them.  A longer
 * span takes GEMM (gemm.h) on a block of weights made f32 in scratch, unless the job is vectors_only.
 *
 * Quantised matrices, of the types of format.h, are packed once, into as many bytes as the file gives them, for vectors
 * and prompts alike.  They become strips of 16 rows (packed.h), in which a register of 64, 32 or 16 bytes is 16, 8 or 4
 * rows by 4 columns.  They are multiplied as integers: a step row is coded once for all output rows, in slices of 32
 * with a scale each.  Codes have 16 bits, which byte products take as two limbs, or 8 bits, which are one limb.  The
 * caller chooses when it fills the table; a kernel is a template of both.
 *
 * All types share one kernel of each instruction set, a template whose constants are a row of format.h.  It walks the
 * slices of a strip and does four things, of which only the first two differ from type to type:
 *
 *     codes     unsigned bytes of 4 columns, out of planes of bits: shifts and masks (packed_lines.h), or a table of 16
 *     scales    of 16 rows, from the block's record; and minima
 *     products  sums of codes * codes, exact, of a slice or of its halves; less 2^zero_shift * the step row's sum
 *     adding    acc += (scale * row's scale) * sums;  acc += min * (row's scale * row's sum), where there are minima
 *
 * Many step rows have kernels of their own with AVX2 and with AVX-512's VNNI: weights become 16 bits wide, or bytes for
 * one limb, once for up to 96 rows (x86/packed_many_avx2.c, x86/packed_many_avx512.c).  The sums are the same, and so
 * the bits.
 *
 * Scalar code and NEON without the dot product leave spans of more than packed_rows rows to GEMM too.  Measured
 * against f32 products on the file's layout, Q8_0, 28M weights, Granite Rapids, 2026-11: a vector 2.4 times as fast on
 * one thread, 26 of the 29 GB/s of a plain read (10 on 4 KiB pages).  Eight vectors reach 1.15 times the peak of f32
 * FMAs, AMX with 16 vectors 1.9 times.
 *
 * Which kernel a span takes depends on the span's own length alone, but for kernels of the same bits.  A kernel adds
 * the products of one (output row, step row) in one order, whatever else shares the call.  So a result depends neither
 * on the other items nor on the thread count, and not on the span either where the job is vectors_only, or the matrix
 * quantised and packed_rows unlimited.
 *
 * Errors, with M(b) the largest magnitude among the 32 activations of block b:
 *     floats      exact as f32; 8 or 16 partial sums:      2^-23 * (cols/8 + 36) * sum |w*x|
 *     quantised   sum over b of M(b)/63000 * sum |w| in b  +  2^-23 * (cols/16 + 8) * sum |w*x|, where |w| stands for
 *                 |scale * value| + |min| in types that have minima; with one limb M(b)/250, not M(b)/63000;
 *                 blocks with M(b) < 2^-100 count as zeros; one with an activation that is no finite number gives none
 */
#ifndef PLEAT_LINEAR_LINEAR_H
#define PLEAT_LINEAR_LINEAR_H

#include "core/compiler.h"
#include "core/types.h"
#include "linear/format.h"
#include "linear/packed.h"
#include "pleat/common.h"

/* 32 activations: scale * code.  Which form the codes have is the variant's choice. */
typedef struct pleat__coded {
    float scale; /* M/32639; of one limb M/127 */
    union {
        int32_t sum[2]; /* of the codes of each half: what minima are multiplied with, unsigned codes count too much */
        float scaled_sum[2]; /* code_many's: scale * sum */
    };
    union {
        int32_t total;      /* sum[0] + sum[1] */
        float scaled_total; /* code_many's: scale * total */
    };
    union {
        int16_t whole[32]; /* -32639..32639; some variants' in another order */
        struct {
            int8_t high[32], low[32]; /* 256*high + low */
        } limbs;
        struct {
            int8_t high[32];                   /* -127..127; `whole` where the variant has no limbs */
            float scaled_sum[2], scaled_total; /* beside sum and total: one form serves few step rows and many */
        } one_limb;
    } codes;
} pleat__coded;

#define PLEAT__CODED_ZERO 0x1p-100f /* a block below this in magnitude is coded as zeros */

/* The largest code: 127*256 + 127, or 127. */
INLINE float pleat__code_max(uint32_t n_limbs) { return n_limbs == 1 ? 127 : 32639; }

/* For output rows r in [row_from, row_to) and i < n:  y[i][r] = dot(W[r], x[i]), plus y[i][r] as it was if `add`.
 * Of floats:    x[i] is [cols] f32; no alignment is needed.
 * Quantised:    w->data is packed, a strip is 16*row_bytes; row_from is a multiple of 16; x[i] is [cols/32]
 *               pleat__coded of the same table's code().
 * Each y[i] is [rows]; it may not overlap x. */
typedef void (*pleat__linear_mul_fn)(const pleat__matrix *w, uint32_t row_from, uint32_t row_to, const void *const *x,
                                     float *const *y, uint32_t n, bool add);

/* Code a row; cols is a multiple of 32. */
typedef void (*pleat__linear_code_fn)(const float *x, uint32_t cols, pleat__coded *out);

/* Rows [row_from, row_to), as the file stores them, to f32: out [row_to - row_from][cols]. */
typedef void (*pleat__linear_load_fn)(const pleat__matrix *w, uint32_t row_from, uint32_t row_to, float *out);

typedef struct pleat__linear_dsp {
    pleat__linear_mul_fn mul[PLEAT__N_WEIGHT_TYPES];
    pleat__linear_load_fn load[PLEAT__N_WEIGHT_TYPES];
    pleat__linear_code_fn code;
    uint32_t vector_rows; /* of floats: longest span for which mul beats GEMM (oneDNN 2.6, Zen 5) */
    uint32_t packed_rows; /* of quantised ones, likewise; UINT32_MAX: mul is always faster */

    /* Quantised, for jobs of many_rows step rows and more: other kernels, whose codes have another form, with the bits
     * of mul and code.  UINT32_MAX: there are none.  A type without one, NULL, takes mul, as do those beside it. */
    pleat__linear_mul_fn mul_many[PLEAT__N_WEIGHT_TYPES];
    pleat__linear_code_fn code_many;
    uint32_t many_rows;
} pleat__linear_dsp;

/* Fill the table with the best variants for these CPU flags (pleat_cpu_flags()) and 1 or 2 limbs of a code. */
void pleat__linear_dsp_init(pleat__linear_dsp *dsp, uint32_t cpu_flags, uint32_t n_limbs);

/* The variants.  _ref fills the table.  The others need the features that they are named after, _packed_avx512,
 * _many_avx512 and _packed_amx VNNI too, and overwrite what serves quantised types (_packed) or floats. */
void pleat__linear_fill_ref(pleat__linear_dsp *dsp, uint32_t n_limbs);
void pleat__linear_fill_avx2(pleat__linear_dsp *dsp, uint32_t n_limbs);
void pleat__linear_fill_avx512(pleat__linear_dsp *dsp, uint32_t n_limbs);
void pleat__linear_fill_packed_avx2(pleat__linear_dsp *dsp, uint32_t n_limbs);
void pleat__linear_fill_many_avx2(pleat__linear_dsp *dsp, uint32_t n_limbs);
void pleat__linear_fill_packed_avxvnni(pleat__linear_dsp *dsp, uint32_t n_limbs);
void pleat__linear_fill_packed_avx512(pleat__linear_dsp *dsp, uint32_t n_limbs);
void pleat__linear_fill_many_avx512(pleat__linear_dsp *dsp, uint32_t n_limbs);
void pleat__linear_fill_packed_amx(pleat__linear_dsp *dsp, uint32_t n_limbs);
void pleat__linear_fill_neon(pleat__linear_dsp *dsp, uint32_t n_limbs);
void pleat__linear_fill_packed_neon(pleat__linear_dsp *dsp, uint32_t n_limbs);
void pleat__linear_fill_packed_dotprod(pleat__linear_dsp *dsp, uint32_t n_limbs);

/* The mul of _packed_avx512, to which _packed_amx leaves few step rows, and types whose slices have two scales. */
void pleat__linear_mul_packed_avx512(pleat__weight_type type, uint32_t n_limbs, const pleat__matrix *w,
                                     uint32_t row_from, uint32_t row_to, const void *const *x, float *const *y,
                                     uint32_t n, bool add);

/* Bytes of a quantised matrix when packed; 0 for one of floats. */
uint64_t pleat__linear_packed_bytes(const pleat__matrix *w);

/* Pack strips [strip_from, strip_to) of w, which is as the file stores it, into packed [packed_bytes]. */
void pleat__linear_pack(const pleat__matrix *w, uint32_t strip_from, uint32_t strip_to, uint8_t *packed);

/* Rows [row_from, row_to) of a packed matrix to f32: out [row_to - row_from][cols]. */
void pleat__linear_unpack(const pleat__matrix *w, uint32_t row_from, uint32_t row_to, float *out);

/* Most vectors that linear.c hands to one call of a kernel: a multiple of what the variants take at once. */
#define PLEAT__VECTOR_TILE 96u

typedef struct pleat__linear_span {
    uint32_t row;    /* first row */
    uint32_t n_rows; /* >= 1 */
} pleat__linear_span;

typedef struct pleat__linear_part {
    const pleat__matrix *w; /* packed if quantised */
    float *y;               /* [n_rows][w->rows]; unused when the job has outputs */
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
    /* NULL, or called on what a unit made of a part for one step row: elements [from, to) of y [w->rows], `from` a
     * multiple of 16, `to` one or the end. */
    void (*finish)(const void *ctx, uint32_t part, uint32_t step_row, float *y, uint32_t from, uint32_t to);
    const void *finish_ctx;
    pleat__coded *coded;   /* [n_rows][cols/32] for the rows' codes; unused when no part is quantised */
    float *const *scratch; /* [workers] of pleat__linear_scratch_bytes() */
} pleat__linear_job;

/* Scratch of one worker for matrices of up to max_cols columns. */
uint64_t pleat__linear_scratch_bytes(uint32_t max_cols);

/* Do the job with the team (may be NULL). */
void pleat__linear_run(const pleat__linear_job *job, pleat_workers *workers);

#endif
