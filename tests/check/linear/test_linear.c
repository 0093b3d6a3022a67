/* SPDX-License-Identifier: MIT
 *
 * test_linear.c: matrix products (src/linear/linear.h) against float64.
 *
 * Weights are random bytes of each stored type, decoded a second time from the formulas (linear_rig.h); sizes are odd where the
 * type allows; every buffer ends at an unreadable page.  The bounds are those of linear.h.  Then bits: a vector's
 * product is the same alone and in any batch, wherever the vectors stand, a job's the same for any team and whatever
 * else it holds.  AMX's kernels leave what they do not take to VNNI's, which so check them bit by bit.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "linear/gemm.h"
#include "linear/linear.h"
#include "linear_rig.h"

/* Limbs of a code, 1 or 2: each test below runs with both. */
static uint32_t n_limbs;

/* What coding x may add to the error of a product with weights of these sizes: 32 columns at a time. */
static double coding_error(const double *sizes, const float *x, uint32_t cols) {
    double error = 0;
    for (uint32_t col = 0; col < cols; col += 32) {
        double max = 0, sum = 0;
        for (uint32_t i = col; i < col + 32; i++) {
            max = fmax(max, fabs((double)x[i]));
            sum += sizes[i];
        }
        error += sum * (max < 0x1p-100 ? max : max / (n_limbs == 1 ? 250 : 63000));
    }
    return error;
}

/* Is y the product of row `row` with x, within linear.h's bound?  `before` was added to it. */
static int is_product(const random_matrix *r, uint32_t row, const float *x, float before, float y) {
    const uint32_t cols = r->m.cols;
    const double *w = r->values + (size_t)row * cols;
    const double *sizes = r->sizes + (size_t)row * cols;
    double sum = (double)before, magnitude = fabs((double)before);
    for (uint32_t i = 0; i < cols; i++) {
        sum += w[i] * (double)x[i];
        magnitude += sizes[i] * fabs((double)x[i]);
    }
    double bound = 0x1p-23 * (cols / 8 + 36) * magnitude + 1e-38;
    if (pleat__is_quantised(r->m.type)) {
        const double coding = coding_error(sizes, x, cols);
        bound = coding + 0x1p-23 * (cols / 16 + 8) * (magnitude + coding) + 1e-38;
    }
    const int ok = fabs((double)y - sum) <= bound;
    if (!ok) check_context("row %u: %.9g, should be %.9g within %.3g", row, (double)y, sum, bound);
    return ok;
}

/* ---- variants ------------------------------------------------------------------------------------ */

typedef struct variant {
    const char *name;
    uint32_t needs;
    bool of_floats, of_quantised; /* which types it serves */
    void (*fill)(pleat__linear_dsp *dsp, uint32_t n_limbs);
    bool is_many; /* fills the kernels for many step rows */
} variant;

static const variant variants[] = {
    {"ref", 0, true, true, pleat__linear_fill_ref, false},
#if PLEAT_X86
    {"avx2", PLEAT_CPU_AVX2, true, false, pleat__linear_fill_avx2, false},
    {"packed_avx2", PLEAT_CPU_AVX2, false, true, pleat__linear_fill_packed_avx2, false},
    {"many_avx2", PLEAT_CPU_AVX2, false, true, pleat__linear_fill_many_avx2, true},
    {"packed_avxvnni", PLEAT_CPU_AVX2 | PLEAT_CPU_AVX_VNNI, false, true, pleat__linear_fill_packed_avxvnni, false},
    {"avx512", PLEAT_CPU_AVX2 | PLEAT_CPU_AVX512, true, false, pleat__linear_fill_avx512, false},
    {"packed_avx512", PLEAT_CPU_AVX2 | PLEAT_CPU_AVX512 | PLEAT_CPU_VNNI, false, true, pleat__linear_fill_packed_avx512,
     false},
    {"many_avx512", PLEAT_CPU_AVX2 | PLEAT_CPU_AVX512 | PLEAT_CPU_VNNI, false, true, pleat__linear_fill_many_avx512,
     true},
    {"packed_amx", PLEAT_CPU_AVX2 | PLEAT_CPU_AVX512 | PLEAT_CPU_VNNI | PLEAT_CPU_AMX_INT8, false, true,
     pleat__linear_fill_packed_amx, false},
#elif PLEAT_ARM
    {"neon", PLEAT_CPU_NEON, true, false, pleat__linear_fill_neon, false},
    {"packed_neon", PLEAT_CPU_NEON, false, true, pleat__linear_fill_packed_neon, false},
    {"packed_dotprod", PLEAT_CPU_NEON | PLEAT_CPU_DOTPROD, false, true, pleat__linear_fill_packed_dotprod, false},
#endif
};

static bool runs_here(const variant *v) { return (pleat_cpu_flags() & v->needs) == v->needs; }

static bool serves(const variant *v, pleat__weight_type type) {
    if (!pleat__is_quantised(type) || !v->is_many) return pleat__is_quantised(type) ? v->of_quantised : v->of_floats;
    pleat__linear_dsp dsp;
    v->fill(&dsp, n_limbs);
    return dsp.mul_many[type] != NULL;
}

static pleat__linear_dsp table_of(const variant *v) {
    pleat__linear_dsp dsp;
    pleat__linear_fill_ref(&dsp, n_limbs);
    v->fill(&dsp, n_limbs);
    if (v->is_many) {
        memcpy(dsp.mul, dsp.mul_many, sizeof dsp.mul);
        dsp.code = dsp.code_many;
    }
    return dsp;
}

static uint32_t random_cols(pleat__weight_type type) {
    const uint32_t longest = 300, block = pleat__weight_formats[type].block;
    return block * (uint32_t)check_between(1, block < longest / 2 ? longest / block : 3);
}

#define MAX_VECTORS 70u
#define MAX_GAP 3u /* slots from one coded vector to the next */

/* x and y of n vectors, each between guards; all coded ones between guards. */
typedef struct vectors {
    check_buf x_buf[MAX_VECTORS], y_buf[MAX_VECTORS], coded_buf;
    const float *x[MAX_VECTORS];
    const void *usable[MAX_VECTORS]; /* as kernels read them: coded for quantised types */
    float *y[MAX_VECTORS];
} vectors;

/* Slots of n coded vectors, from 0 to the last one that is used: runs at equal distances, upwards or downwards. */
static uint32_t random_slots(uint32_t *slots, uint32_t n) {
    uint32_t at = 0;
    for (uint32_t i = 0, gap = 1; i < n; i++, at += gap) {
        slots[i] = at;
        if (check_below(12) == 0) gap = (uint32_t)check_between(1, MAX_GAP);
    }
    const uint32_t last = slots[n - 1];
    for (uint32_t i = 0, down = (uint32_t)check_below(2); i < n && down; i++) slots[i] = last - slots[i];
    return last + 1;
}

static void vectors_init(vectors *v, const pleat__linear_dsp *dsp, const pleat__matrix *w, uint32_t n) {
    const uint32_t rows = w->rows, cols = w->cols, n_blocks = cols / 32;
    uint32_t slots[MAX_VECTORS] = {0};
    const uint32_t n_slots = random_slots(slots, n);
    v->coded_buf = check_buf_new((size_t)n_slots * n_blocks * sizeof(pleat__coded), _Alignof(pleat__coded));
    for (uint32_t i = 0; i < n; i++) {
        v->x_buf[i] = check_buf_new(cols * sizeof(float), 4);
        v->y_buf[i] = check_buf_new(rows * sizeof(float), 4);
        check_fill(v->x_buf[i].p, cols, (unsigned)check_below(CHECK_N_FILLS), 3.0f);
        check_fill_normal(v->y_buf[i].p, rows);
        v->y[i] = v->y_buf[i].p;
        v->usable[i] = v->x[i] = v->x_buf[i].p;
        if (!pleat__is_quantised(w->type)) continue;
        pleat__coded *coded = (pleat__coded *)v->coded_buf.p + (size_t)slots[i] * n_blocks;
        dsp->code(v->x[i], cols, coded);
        v->usable[i] = coded;
    }
}

static void vectors_release(vectors *v, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        CHECK(check_buf_is_intact(&v->y_buf[i]));
        check_buf_free(&v->x_buf[i]);
        check_buf_free(&v->y_buf[i]);
    }
    CHECK(check_buf_is_intact(&v->coded_buf));
    check_buf_free(&v->coded_buf);
}

static void try_mul(const variant *var, const pleat__linear_dsp *dsp, pleat__weight_type type) {
    const uint32_t rows = (uint32_t)check_between(1, 50), cols = random_cols(type);
    const uint32_t n = (uint32_t)check_between(1, check_below(3) ? 17 : MAX_VECTORS);
    const uint32_t step = pleat__is_quantised(type) ? PLEAT__STRIP_ROWS : 1; /* where a call may start */
    const uint32_t from = (uint32_t)check_below(rows) / step * step, to = (uint32_t)check_between(from, rows);
    const bool add = check_below(2);
    check_context("%s %s rows %u..%u of %u, cols %u, n %u, add %d", var->name, pleat__weight_formats[type].name, from,
                  to, rows, cols, n, add);
    random_matrix r = matrix_new(type, rows, cols);
    vectors v;
    vectors_init(&v, dsp, &r.m, n);
    float *before = malloc((size_t)n * rows * sizeof(float));
    float *alone = malloc(rows * sizeof(float));
    for (uint32_t i = 0; i < n; i++) memcpy(before + (size_t)i * rows, v.y[i], rows * sizeof(float));

    dsp->mul[type](&r.usable, from, to, v.usable, v.y, n, add);
    for (uint32_t i = 0; i < n; i++) {
        const float *was = before + (size_t)i * rows;
        for (uint32_t row = from; row < to; row++)
            if (!CHECK(is_product(&r, row, v.x[i], add ? was[row] : 0, v.y[i][row]))) break;
        memcpy(alone, was, rows * sizeof(float));
        for (uint32_t row = from; row < to; row += step)
            dsp->mul[type](&r.usable, row, pleat__min_u32(row + step, to), &v.usable[i], &alone, 1, add);
        CHECK_EQ_MEM(alone, v.y[i], rows * sizeof(float)); /* and nothing outside from..to was written */
    }
    vectors_release(&v, n);
    matrix_free(&r);
    free(before);
    free(alone);
}

static void test_mul(void) {
    for (size_t i = 0; i < CHECK_COUNT(variants); i++) {
        if (!runs_here(&variants[i])) continue;
        const pleat__linear_dsp dsp = table_of(&variants[i]);
        for (uint32_t type = 0; type < PLEAT__N_WEIGHT_TYPES; type++)
            for (uint64_t round = serves(&variants[i], type) ? check_rounds(60, 15) : 0; round > 0; round--)
                try_mul(&variants[i], &dsp, (pleat__weight_type)type);
    }
}

/* Kernels for many step rows have the bits of those for few. */
static void try_many(pleat__weight_type type, const pleat__linear_dsp *few, const pleat__linear_dsp *many) {
    const uint32_t rows = (uint32_t)check_between(1, 50), cols = random_cols(type);
    check_context("%s rows %u cols %u", pleat__weight_formats[type].name, rows, cols);
    random_matrix r = matrix_new(type, rows, cols);
    float *x = malloc(cols * sizeof(float)), *y[2] = {malloc(rows * sizeof(float)), malloc(rows * sizeof(float))};
    pleat__coded *coded = malloc(cols / 32 * sizeof *coded);
    const void *usable = coded;
    check_fill(x, cols, (unsigned)check_below(CHECK_N_FILLS), 3.0f);
    few->code(x, cols, coded);
    few->mul[type](&r.usable, 0, rows, &usable, &y[0], 1, false);
    many->code(x, cols, coded);
    many->mul[type](&r.usable, 0, rows, &usable, &y[1], 1, false);
    CHECK_EQ_MEM(y[0], y[1], rows * sizeof(float));
    free(x), free(y[0]), free(y[1]), free(coded);
    matrix_free(&r);
}

static void test_many(void) {
    for (size_t i = 1; i < CHECK_COUNT(variants); i++) {
        if (!variants[i].is_many || !runs_here(&variants[i])) continue;
        const pleat__linear_dsp few = table_of(&variants[i - 1]), many = table_of(&variants[i]);
        for (uint32_t round = 0; round < 200; round++) {
            const pleat__weight_type type = (pleat__weight_type)check_between(PLEAT__W_Q8_0, PLEAT__N_WEIGHT_TYPES - 1);
            if (serves(&variants[i], type)) try_many(type, &few, &many);
        }
    }
}

/* A variant's codes are the scalar table's: products with weights that are 0 but for one say what they are. */
static void try_codes(const variant *var, const pleat__linear_dsp *dsp, const pleat__linear_dsp *ref) {
    const uint32_t cols = 32;
    random_matrix r = matrix_new(PLEAT__W_Q8_0, 32, cols);
    float x[32], y[2][32], *ys[2] = {y[0], y[1]};
    pleat__coded coded[2];
    const void *usable[2] = {&coded[0], &coded[1]};
    memset(r.bytes.p, 0, r.m.row_bytes * r.m.rows);
    for (uint32_t row = 0; row < 32; row++) {
        uint8_t *block = (uint8_t *)r.bytes.p + row * r.m.row_bytes;
        store_u16(block, pleat__f32_to_f16(1));
        block[2 + row] = 1;
    }
    pleat__linear_pack(&r.m, 0, 2, r.packed.p);
    check_fill(x, cols, (unsigned)check_below(CHECK_N_FILLS), 3.0f);
    dsp->code(x, cols, &coded[0]);
    ref->code(x, cols, &coded[1]);
    dsp->mul[PLEAT__W_Q8_0](&r.usable, 0, 32, &usable[0], &ys[0], 1, false);
    ref->mul[PLEAT__W_Q8_0](&r.usable, 0, 32, &usable[1], &ys[1], 1, false);
    check_context("%s", var->name);
    CHECK(coded[0].scale == coded[1].scale);
    for (uint32_t i = 0; i < 32; i++) CHECK(y[0][i] == y[1][i]);
    for (uint32_t i = 0; i < 32; i++) {
        CHECK(fabsf(y[1][i]) <= pleat__code_max(n_limbs) * 1.00001f * coded[1].scale);
        CHECK(fabsf(y[1][i] - x[i]) <= 0.501f * coded[1].scale + 0x1p-100f);
    }
    matrix_free(&r);
}

static void test_codes(void) {
    for (n_limbs = 1; n_limbs <= 2; n_limbs++) {
        pleat__linear_dsp ref;
        pleat__linear_fill_ref(&ref, n_limbs);
        for (size_t i = 0; i < CHECK_COUNT(variants); i++) {
            if (!runs_here(&variants[i]) || !serves(&variants[i], PLEAT__W_Q8_0)) continue;
            const pleat__linear_dsp dsp = table_of(&variants[i]);
            for (uint32_t round = 0; round < 100; round++) try_codes(&variants[i], &dsp, &ref);
        }
    }
}

#define EXTREME_COLS 256u

/* Row 0 of r times x [EXTREME_COLS]. */
static float product_of(const pleat__linear_dsp *dsp, const random_matrix *r, const float *x) {
    pleat__coded coded[EXTREME_COLS / 32];
    const void *usable = coded;
    float y = 0, *ys = &y;
    dsp->code(x, EXTREME_COLS, coded);
    dsp->mul[r->m.type](&r->usable, 0, 1, &usable, &ys, 1, false);
    return y;
}

/* Coded rows at the edges: the widest codes alone, of zeros, tiny and huge magnitudes, and with one that is no number. */
static void test_code_extremes(void) {
    static const float magnitudes[] = {0, 1e-45f, 1e-38f, 0x1p-101f, 0x1p-100f, 1e-20f, 1, 1e30f};
    for (size_t i = 0; i < CHECK_COUNT(variants); i++) {
        if (!runs_here(&variants[i]) || !variants[i].of_quantised) continue;
        const pleat__linear_dsp dsp = table_of(&variants[i]);
        for (uint32_t round = 0; round < 20 * CHECK_COUNT(magnitudes); round++) {
            const float magnitude = magnitudes[round % CHECK_COUNT(magnitudes)];
            const pleat__weight_type type = (pleat__weight_type)check_between(PLEAT__W_Q8_0, PLEAT__N_WEIGHT_TYPES - 1);
            if (!serves(&variants[i], type)) continue;
            random_matrix r = matrix_new(type, 1, EXTREME_COLS);
            float x[EXTREME_COLS];
            for (uint32_t j = 0; j < EXTREME_COLS; j++) x[j] = check_below(2) ? magnitude : -magnitude;
            check_context("%s %s, all +-%g", variants[i].name, pleat__weight_formats[type].name, (double)magnitude);
            CHECK(is_product(&r, 0, x, 0, product_of(&dsp, &r, x)));
            const uint32_t at = (uint32_t)check_below(EXTREME_COLS);
            x[at] = round % 2 ? INFINITY : NAN;
            check_context("%s %s, %g at %u", variants[i].name, pleat__weight_formats[type].name, (double)x[at], at);
            CHECK(!isfinite(product_of(&dsp, &r, x)));
            matrix_free(&r);
        }
    }
}

/* out holds the n weights from row `from` on, and nothing beside; it is freed. */
static void check_rows(const random_matrix *r, uint32_t from, size_t n, check_buf *out) {
    const float *got = out->p;
    for (size_t j = 0; j < n; j++)
        if (!CHECK((double)got[j] == r->values[(size_t)from * r->m.cols + j])) break;
    CHECK(check_buf_is_intact(out));
    check_buf_free(out);
}

/* Weights made f32 are exact. */
static void test_load(void) {
    for (size_t i = 0; i < CHECK_COUNT(variants); i++) {
        if (!runs_here(&variants[i])) continue;
        const pleat__linear_dsp dsp = table_of(&variants[i]);
        for (uint32_t round = 0; round < 20 * PLEAT__N_WEIGHT_TYPES; round++) {
            const pleat__weight_type type = (pleat__weight_type)(round % PLEAT__N_WEIGHT_TYPES);
            const uint32_t rows = (uint32_t)check_between(1, 9), cols = random_cols(type);
            const uint32_t from = (uint32_t)check_below(rows);
            check_context("%s %s rows %u..%u, cols %u", variants[i].name, pleat__weight_formats[type].name, from, rows,
                          cols);
            random_matrix r = matrix_new(type, rows, cols);
            const size_t n = (size_t)(rows - from) * cols;
            check_buf out = check_buf_new(n * sizeof(float), 4);
            dsp.load[type](&r.m, from, rows, out.p);
            check_rows(&r, from, n, &out);
            matrix_free(&r);
        }
    }
}

/* Fixed blocks and FNV-1a of their weights as f32, as the Python package gguf 0.19 decodes them. */
static void test_golden(void) {
    static const struct {
        pleat__weight_type type;
        uint64_t hash;
    } rows[] = {
        {PLEAT__W_Q8_0, 0xec9299dd2ceee3b7u},   {PLEAT__W_Q4_0, 0x72b053dfdcfda5aau},
        {PLEAT__W_Q4_1, 0x2e96f142dbf911b8u},   {PLEAT__W_Q5_0, 0xdc92f1c5ef126af9u},
        {PLEAT__W_Q5_1, 0xf4b67d28a0cf92c0u},   {PLEAT__W_Q2_K, 0xba660f3574f8dd4cu},
        {PLEAT__W_Q3_K, 0xadeea99a4bb49805u},   {PLEAT__W_Q4_K, 0x35ced2d18e9dfd87u},
        {PLEAT__W_Q5_K, 0x01ab1810192271adu},   {PLEAT__W_Q6_K, 0xee2b750b38719127u},
        {PLEAT__W_IQ4_NL, 0x7423def475700e78u}, {PLEAT__W_IQ4_XS, 0xfe552065c45550aau},
        {PLEAT__W_MXFP4, 0x1056ba7363fd6c01u},
    };
    for (size_t i = 0; i < CHECK_COUNT(rows); i++) {
        const pleat__weight_format *f = &pleat__weight_formats[rows[i].type];
        uint8_t block[256];
        for (uint32_t j = 0; j < f->bytes; j++) block[j] = (uint8_t)(j * 37 + 11);
        store_u16(block + f->d_at, pleat__f32_to_f16(0.0123f));
        if (f->has_min) store_u16(block + f->d_at + 2, pleat__f32_to_f16(-0.0456f));
        if (f->is_power) block[0] = 120, block[1] = 37 + 11;
        uint64_t hash = 0xcbf29ce484222325u;
        for (uint32_t slice = 0; slice < f->block / 32u; slice++) {
            float weights[32];
            pleat__weight_slice_load(rows[i].type, block, slice, weights);
            for (uint32_t j = 0; j < 128; j++) {
                const uint32_t bits = pleat__f32_bits(weights[j / 4] + 0.0f); /* -0 is as good as 0 */
                hash = (hash ^ (bits >> 8 * (j % 4) & 255)) * 0x100000001b3u;
            }
        }
        check_context("%s", f->name);
        CHECK_EQ_U64(hash, rows[i].hash);
    }
}

/* Strips made f32 are the file's weights, whichever rows are asked for. */
static void test_unpack(void) {
    for (uint32_t round = 0; round < 10 * PLEAT__N_WEIGHT_TYPES; round++) {
        const pleat__weight_type type = (pleat__weight_type)(round % PLEAT__N_WEIGHT_TYPES);
        if (!pleat__is_quantised(type)) continue;
        const uint32_t rows = (uint32_t)check_between(1, 40), cols = random_cols(type);
        const uint32_t from = (uint32_t)check_below(rows);
        check_context("%s rows %u..%u, cols %u", pleat__weight_formats[type].name, from, rows, cols);
        random_matrix r = matrix_new(type, rows, cols);
        const size_t n = (size_t)(rows - from) * cols;
        check_buf out = check_buf_new(n * sizeof(float), 4);
        pleat__linear_unpack(&r.usable, from, rows, out.p);
        check_rows(&r, from, n, &out);
        matrix_free(&r);
    }
}

/* What the mask leaves is what runs: of each kind of types the last variant whose needs are met. */
static void test_dispatch(void) {
    for (uint32_t flags = 0; flags < 128; flags++) {
        const uint32_t closed = pleat_cpu_flags() & flags; /* any subset: dispatch climbs a ladder */
        if ((closed && !(closed & (PLEAT_CPU_AVX2 | PLEAT_CPU_NEON))) ||
            (closed & PLEAT_CPU_VNNI && !(closed & PLEAT_CPU_AVX512)) ||
            (closed & PLEAT_CPU_AMX_INT8 && !(closed & PLEAT_CPU_VNNI)))
            continue;
        pleat__linear_dsp chosen, want;
        pleat__linear_dsp_init(&chosen, closed, n_limbs);
        for (size_t i = 0; i < CHECK_COUNT(variants); i++)
            if ((closed & variants[i].needs) == variants[i].needs) variants[i].fill(&want, n_limbs);
        CHECK_EQ_U64(chosen.vector_rows, want.vector_rows);
        CHECK_EQ_U64(chosen.packed_rows, want.packed_rows);
        CHECK_EQ_U64(chosen.many_rows, want.many_rows);
        CHECK(chosen.code == want.code);
        if (chosen.many_rows != UINT32_MAX) CHECK(chosen.code_many == want.code_many);
        for (uint32_t type = 0; type < PLEAT__N_WEIGHT_TYPES; type++)
            CHECK(chosen.mul[type] == want.mul[type] && chosen.load[type] == want.load[type]);
        for (uint32_t type = PLEAT__W_Q8_0; chosen.many_rows != UINT32_MAX && type < PLEAT__N_WEIGHT_TYPES; type++)
            CHECK(chosen.mul_many[type] == want.mul_many[type]);
    }
}

/* ---- jobs ---------------------------------------------------------------------------------------- */

#define JOB_ROWS 250u

static void join_sum(float *a, const float *b, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) a[i] = a[i] * 0.5f + b[i];
}

/* Spans that fill up to JOB_ROWS rows, short and long ones, leaving some rows out. */
static uint32_t random_spans(pleat__linear_span *spans) {
    uint32_t n = 0;
    for (uint32_t row = 0;;) {
        row += (uint32_t)check_below(3);
        const uint32_t n_rows = (uint32_t)(check_below(3) ? check_between(1, 8) : check_between(9, 90));
        if (row + n_rows > JOB_ROWS) return n;
        spans[n++] = (pleat__linear_span){.row = row, .n_rows = n_rows};
        row += n_rows;
    }
}

/* Not the same when done twice, and different for each part and step row. */
static void finish_quarter(const void *ctx, uint32_t part, uint32_t step_row, float *y, uint32_t from, uint32_t to) {
    (void)ctx;
    CHECK(from % PLEAT__STRIP_ROWS == 0 && from < to && step_row < JOB_ROWS);
    for (uint32_t i = from; i < to; i++) y[i] = y[i] * 0.25f + (float)(part + step_row);
}

static float *run_job(pleat__linear_job job, uint32_t n_threads, size_t out_floats, const float *start, float *out) {
    pleat_workers *team = NULL;
    CHECK_STATUS(pleat_workers_create(n_threads, NULL, &team), PLEAT_OK);
    float *scratch[3];
    for (int worker = 0; worker < 3; worker++)
        scratch[worker] = aligned_alloc(64, pleat__linear_scratch_bytes(job.parts[0].w->cols));
    job.scratch = scratch;
    job.coded = malloc((size_t)JOB_ROWS * (job.parts[0].w->cols / 32) * sizeof *job.coded);
    memcpy(out, start, out_floats * sizeof(float));
    pleat__linear_run(&job, team);
    for (int worker = 0; worker < 3; worker++) free(scratch[worker]);
    free(job.coded);
    pleat_workers_destroy(&team);
    return out;
}

/* The joined job left in part 0 of `joined` what joining the plain job's parts gives; `plain` holds both parts. */
static void check_joined(const pleat__linear_job *job, float *plain, size_t part_floats, const float *joined) {
    const uint32_t rows = job->parts[0].w->rows;
    for (uint32_t s = 0; s < job->n_spans; s++) {
        const size_t at = (size_t)job->spans[s].row * rows, n = (size_t)job->spans[s].n_rows * rows;
        join_sum(plain + at, plain + part_floats + at, (uint32_t)n);
        CHECK_EQ_MEM(plain + at, joined + at, n * sizeof(float));
    }
}

static const float *run_finished(pleat__linear_job job, size_t out_floats, const float *start, float *out) {
    job.finish = finish_quarter;
    return run_job(job, 2, out_floats, start, out);
}

/* Every element that a span has was finished once. */
static void check_finished(const pleat__linear_job *job, const float *plain, const float *finished,
                           size_t part_floats) {
    const uint32_t rows = job->parts[0].w->rows;
    for (uint32_t s = 0; s < job->n_spans; s++)
        for (uint32_t i = 0; i < 2 * job->spans[s].n_rows * rows; i++) {
            const uint32_t part = i % 2, step_row = job->spans[s].row + i / 2 / rows;
            const size_t at = part * part_floats + (size_t)step_row * rows + i / 2 % rows;
            if (!CHECK(finished[at] == plain[at] * 0.25f + (float)(part + step_row))) return;
        }
}

/* Two parts of equal shape, so that one job can be run plainly and joined. */
static void try_job(pleat__weight_type type, bool add, bool vectors_only, bool join) {
    const uint32_t block = pleat__max_u32(32, pleat__weight_formats[type].block);
    const uint32_t rows = (uint32_t)check_between(1, 300), cols = block * (uint32_t)check_between(1, 400 / block);
    check_context("%s rows %u cols %u add %d vectors_only %d join %d", pleat__weight_formats[type].name, rows, cols,
                  add, vectors_only, join);
    random_matrix r[2] = {matrix_new(type, rows, cols), matrix_new(type, rows, cols)};
    pleat__linear_dsp dsp;
    pleat__linear_dsp_init(&dsp, pleat_cpu_flags(), n_limbs);
    pleat__linear_span spans[JOB_ROWS];
    const uint32_t n_spans = random_spans(spans);
    const size_t part_floats = (size_t)JOB_ROWS * rows, out_floats = 2 * part_floats;
    float *x = malloc((size_t)JOB_ROWS * cols * sizeof(float));
    float *start = malloc(out_floats * sizeof(float)), *out = malloc(out_floats * sizeof(float));
    float *again = malloc(out_floats * sizeof(float));
    check_fill_normal(x, (size_t)JOB_ROWS * cols);
    check_fill_normal(start, out_floats);

    pleat__linear_job job = {.dsp = &dsp, .x = x, .spans = spans, .n_spans = n_spans, .n_parts = 2, .add = add};
    job.parts[0] = (pleat__linear_part){&r[0].usable, out};
    job.parts[1] = (pleat__linear_part){&r[1].usable, out + part_floats};
    job.vectors_only = vectors_only;
    job.join = join ? join_sum : NULL;
    run_job(job, 1, out_floats, start, out);

    for (uint32_t s = 0; s < n_spans && !join; s++)
        for (uint32_t i = 0; i < 2 * spans[s].n_rows; i++) {
            const uint32_t step_row = spans[s].row + i / 2, row = (uint32_t)check_below(rows);
            const size_t at = (i % 2) * part_floats + (size_t)step_row * rows + row;
            CHECK(is_product(&r[i % 2], row, x + (size_t)step_row * cols, add ? start[at] : 0, out[at]));
        }

    job.parts[0].y = again;
    job.parts[1].y = again + part_floats;
    if (join) {
        job.join = NULL;
        check_joined(&job, run_job(job, 1, out_floats, start, again), part_floats, out);
        job.join = join_sum;
    }
    run_job(job, 3, out_floats, start, again);
    CHECK_EQ_MEM(out, again, out_floats * sizeof(float)); /* rows of no span stay as they were, too */
    if (!join) check_finished(&job, out, run_finished(job, out_floats, start, again), part_floats);
    for (uint32_t s = 0; s < n_spans; s++) {
        job.spans = &spans[s];
        job.n_spans = 1;
        run_job(job, 2, out_floats, start, again);
        const size_t at = (size_t)spans[s].row * rows, n = (size_t)spans[s].n_rows * rows;
        CHECK_EQ_MEM(out + at, again + at, n * sizeof(float));
        if (!join) CHECK_EQ_MEM(out + part_floats + at, again + part_floats + at, n * sizeof(float));
    }
    free(x), free(start), free(out), free(again);
    matrix_free(&r[0]);
    matrix_free(&r[1]);
}

static void test_job(void) {
    for (uint64_t round = 0; round < check_rounds(64, 16); round++)
        try_job((pleat__weight_type)(round % PLEAT__N_WEIGHT_TYPES), check_below(2), check_below(2),
                check_below(4) == 0);
}

/* Outputs of their own, as logits have, and many spans of one row. */
static void test_outputs(void) {
    random_matrix r = matrix_new(PLEAT__W_Q8_0, 333, 64);
    pleat__linear_dsp dsp;
    pleat__linear_dsp_init(&dsp, pleat_cpu_flags(), n_limbs);
    pleat__linear_span spans[60];
    float *outputs[60], *x = malloc(60 * 64 * sizeof(float));
    float *scratch = aligned_alloc(64, pleat__linear_scratch_bytes(64));
    pleat__coded *coded = malloc(60 * 2 * sizeof *coded);
    check_fill_normal(x, 60 * 64);
    for (uint32_t s = 0; s < 60; s++) {
        spans[s] = (pleat__linear_span){.row = 59 - s, .n_rows = 1};
        outputs[s] = malloc(333 * sizeof(float));
    }
    const pleat__linear_job job = {.dsp = &dsp,
                                   .x = x,
                                   .spans = spans,
                                   .n_spans = 60,
                                   .parts = {{.w = &r.usable}},
                                   .n_parts = 1,
                                   .outputs = outputs,
                                   .coded = coded,
                                   .scratch = &scratch};
    pleat__linear_run(&job, NULL);
    for (uint32_t s = 0; s < 60; s++) {
        for (uint32_t row = 0; row < 333; row++)
            if (!CHECK(is_product(&r, row, x + (size_t)(59 - s) * 64, 0, outputs[s][row]))) break;
        free(outputs[s]);
    }
    free(x), free(scratch), free(coded);
    matrix_free(&r);
}

/* Threads of this process. */
static uint32_t count_threads(void) {
    uint32_t n = 0;
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) return 0;
    for (const struct dirent *entry; (entry = readdir(tasks)) != NULL;) n += entry->d_name[0] != '.';
    closedir(tasks);
    return n;
}

/* Products are right, and oneDNN starts no threads for them. */
static void test_gemm(void) {
    if (!pleat__gemm_is_there()) SKIP("built without oneDNN");
    const uint32_t n_threads = count_threads();
    for (uint32_t round = 0; round < 30; round++) {
        const uint32_t m = (uint32_t)check_between(1, 300), rows = (uint32_t)check_between(1, 130);
        const uint32_t cols = (uint32_t)check_between(1, 200), stride = rows + (uint32_t)check_below(5);
        check_context("m %u rows %u cols %u stride %u", m, rows, cols, stride);
        random_matrix r = matrix_new(PLEAT__W_F32, rows, cols);
        float *x = malloc((size_t)m * cols * sizeof(float)), *w = malloc((size_t)rows * cols * sizeof(float));
        check_buf y = check_buf_new(((size_t)(m - 1) * stride + rows) * sizeof(float), 4);
        check_fill_normal(x, (size_t)m * cols);
        memcpy(w, r.m.data, (size_t)rows * cols * sizeof(float));
        CHECK(pleat__gemm(x, m, w, rows, cols, y.p, stride, false));
        for (uint32_t i = 0; i < m; i++)
            for (uint32_t row = 0; row < rows; row++)
                CHECK(is_product(&r, row, x + (size_t)i * cols, 0, ((float *)y.p)[(size_t)i * stride + row]));
        CHECK(check_buf_is_intact(&y));
        check_buf_free(&y);
        matrix_free(&r);
        free(x), free(w);
    }
    CHECK_EQ_U64(count_threads(), n_threads);
}

#define WITH_BOTH(name)                                                 \
    static void name##_of_16_bits(void) { n_limbs = 2, test_##name(); } \
    static void name##_of_8_bits(void) { n_limbs = 1, test_##name(); }
WITH_BOTH(mul)
WITH_BOTH(many)
WITH_BOTH(code_extremes)
WITH_BOTH(dispatch)
WITH_BOTH(job)
WITH_BOTH(outputs)

#define BOTH(name) \
    {#name, name##_of_16_bits}, { #name "_8", name##_of_8_bits }

int main(int argc, char **argv) {
    static const check_test tests[] = {
        BOTH(mul),
        BOTH(many),
        BOTH(code_extremes),
        {"load", test_load},
        {"golden", test_golden},
        {"unpack", test_unpack},
        BOTH(dispatch),
        BOTH(job),
        {"codes", test_codes},
        BOTH(outputs),
        {"gemm", test_gemm},
    };
    return check_main(tests, CHECK_COUNT(tests), argc, argv);
}
