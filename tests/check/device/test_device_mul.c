/* SPDX-License-Identifier: MIT
 *
 * test_device_mul.c: products with a model's matrices on a GPU, and what stands between them, against float64: every
 * format, every kernel, every end; and the rule that a row has the same bits however many share the product.
 */
#include <math.h>

#include "core/memory.h"
#include "model/cuda/gemm.h"
#include "model/cuda/rows.h"
#include "tests/check/linear/tiles_rig.h"

static const pleat__device_stream stream = {NULL};
static const pleat__weight_type types[] = {PLEAT__W_F16, PLEAT__W_Q8_0, PLEAT__W_Q4_0, PLEAT__W_Q4_K, PLEAT__W_Q6_K};

/* ---- memory of the device ------------------------------------------------------------------------------ */

static void *device_new(const void *from, uint64_t bytes) {
    void *p = NULL;
    CHECK_STATUS(pleat__device_alloc(bytes, &p, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_copy(p, from, bytes, stream, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_wait(stream, NULL), PLEAT_OK);
    return p;
}

static void bring(void *to, const void *from, uint64_t bytes) {
    pleat_error err = {0};
    const pleat_status status = pleat__device_copy(to, from, bytes, stream, &err);
    const pleat_status waited = pleat__device_wait(stream, &err);
    if (status != PLEAT_OK || waited != PLEAT_OK) check_context("%s", err.text);
    CHECK_STATUS(status, PLEAT_OK);
    CHECK_STATUS(waited, PLEAT_OK);
}

/* ---- products ------------------------------------------------------------------------------------------ */

#define MAX_N 160u

/* A matrix, or a pair of them, on both sides, and rows of x. */
typedef struct rig {
    random_matrix parts[2];
    pleat__tile_source source;
    pleat__device_matrix w;
    uint8_t *tiles;
    double *weights[2];  /* [rows][cols] of each part, as tiles hold them */
    uint32_t rows, cols; /* rows of a result */
    uint16_t *x;         /* [MAX_N][cols] */
    float *x32, *before; /* the same; [MAX_N][rows] what y is before */
    void *device_x, *device_x32, *device_y, *work;
    float *y; /* [MAX_N][rows] brought back */
} rig;

/* Weights of a part, by the law. */
static double *weights_new(const rig *r, uint32_t part) {
    double *w = malloc((size_t)r->rows * r->cols * sizeof *w);
    for (uint32_t row = 0; row < r->rows; row++)
        for (uint32_t c = 0; c < r->cols; c++) {
            const uint32_t tile = r->source.in_pairs ? row / 8 : row / 16;
            const uint32_t at = r->source.in_pairs ? row % 8 + 8 * part : row % 16;
            w[row * r->cols + c] = weight_in(&r->w.tiles, r->tiles, tile, at, c);
        }
    return w;
}

static rig rig_new(pleat__weight_type type, uint32_t rows, uint32_t cols, bool in_pairs) {
    rig r = {.source = {.n_parts = in_pairs ? 2 : 1, .in_pairs = in_pairs}, .rows = rows, .cols = cols};
    for (uint32_t i = 0; i < r.source.n_parts; i++) {
        r.parts[i] = matrix_new(type, rows, cols);
        r.source.parts[i] = r.parts[i].m;
    }
    r.tiles = tiles_new(&r.source, &r.w.tiles);
    for (uint32_t i = 0; i < r.source.n_parts; i++) r.weights[i] = weights_new(&r, i);
    r.w.data = device_new(r.tiles, pleat__tiles_bytes(&r.w.tiles));
    r.x = malloc(MAX_N * cols * 2);
    r.x32 = malloc(MAX_N * cols * 4);
    for (uint32_t i = 0; i < MAX_N * cols; i++) {
        r.x[i] = pleat__f32_to_f16(0.1f * check_normal()); /* products of two of them fit f16 */
        r.x32[i] = pleat__f16_to_f32(r.x[i]);
    }
    r.before = malloc(MAX_N * rows * 4);
    check_fill_normal(r.before, MAX_N * rows);
    r.device_x = device_new(r.x, MAX_N * cols * 2);
    r.device_x32 = device_new(r.x32, MAX_N * cols * 4);
    r.device_y = device_new(r.before, MAX_N * rows * 4);
    r.y = malloc(MAX_N * rows * 4);
    CHECK_STATUS(pleat__device_alloc(pleat__device_mul_work_bytes(cols), &r.work, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_fill(r.work, 0, PLEAT__MUL_FLAGS_BYTES, stream, NULL), PLEAT_OK);
    return r;
}

static void rig_free(rig *r) {
    for (uint32_t i = 0; i < r->source.n_parts; i++) {
        matrix_free(&r->parts[i]);
        free(r->weights[i]);
    }
    pleat__device_free((void *)(uintptr_t)r->w.data);
    pleat__device_free(r->device_x);
    pleat__device_free(r->device_x32);
    pleat__device_free(r->device_y);
    pleat__device_free(r->work);
    free(r->tiles);
    free(r->x);
    free(r->x32);
    free(r->before);
    free(r->y);
}

static double row_dot(const rig *r, uint32_t part, uint32_t row, uint32_t x_row) {
    double sum = 0;
    for (uint32_t c = 0; c < r->cols; c++)
        sum += r->weights[part][row * r->cols + c] * (double)r->x32[x_row * r->cols + c];
    return sum;
}

/* The library knows no bound. */
static double expected(const rig *r, pleat__mul_end end, uint32_t row, uint32_t x_row, bool is_bounded) {
    const double dot = row_dot(r, 0, row, x_row);
    if (end == PLEAT__MUL_STORE) return is_bounded ? 3 * tanh(0.5 * dot / 3) : 0.5 * dot;
    if (end == PLEAT__MUL_ADD) return (double)r->before[x_row * r->rows + row] + 0.5 * dot;
    return dot / (1 + exp(-dot)) * row_dot(r, 1, row, x_row);
}

static pleat__device_mul mul_of(const rig *r, pleat__mul_end end, uint32_t n, bool x_is_f32) {
    return (pleat__device_mul){.w = r->w,
                               .x = x_is_f32 ? r->device_x32 : r->device_x,
                               .x_stride = r->cols,
                               .x_is_f32 = x_is_f32,
                               .n = n,
                               .end = end,
                               .y = r->device_y,
                               .h = r->device_y,
                               .y_stride = r->rows,
                               .scale = 0.5f,
                               .work = r->work};
}

/* n rows of results, as f32. */
static void bring_results(rig *r, pleat__mul_end end, uint32_t n) {
    bring(r->y, r->device_y, (uint64_t)n * r->rows * (end == PLEAT__MUL_GATE ? 2 : 4));
    if (end != PLEAT__MUL_GATE) return;
    for (uint32_t i = n * r->rows; i-- > 0;) r->y[i] = pleat__f16_to_f32(((uint16_t *)r->y)[i]);
}

#define BY_LIBRARY 1u
#define BY_WGMMA 2u

/* kernel 0: few; 32, 128: many with such blocks; BY_WGMMA. */
static void run_mul(rig *r, pleat__mul_end end, uint32_t n, uint32_t kernel, bool x_is_f32) {
    pleat__device_mul mul = mul_of(r, end, n, x_is_f32);
    mul.cap = 3;
    pleat_error err = {0};
    bring(r->device_y, r->before, MAX_N * r->rows * 4);
    const pleat_status status = kernel == BY_WGMMA ? pleat__device_mul_wgmma(&mul, stream, &err)
                                : kernel           ? pleat__device_mul_many(&mul, kernel, stream, &err)
                                                   : pleat__device_mul_few(&mul, stream, &err);
    if (status != PLEAT_OK) check_context("%s", err.text);
    CHECK_STATUS(status, PLEAT_OK);
    bring_results(r, end, n);
}

static void check_values(rig *r, pleat__mul_end end, uint32_t n, uint32_t kernel, const char *what) {
    double diff = 0, norm = 0, worst = 0;
    uint32_t worst_row = 0, worst_x = 0;
    for (uint32_t x_row = 0; x_row<n; x_row += n> 40 ? 17 : n > 8 ? 3 : 1)
        for (uint32_t row = 0; row < r->rows; row++) {
            const double want = expected(r, end, row, x_row, kernel != BY_LIBRARY),
                         d = fabs((double)r->y[x_row * r->rows + row] - want);
            diff += d * d;
            norm += want * want;
            if (!(d <= worst)) {
                worst = d;
                worst_row = row;
                worst_x = x_row;
            }
        }
    const double error = sqrt(diff / (norm > 0 ? norm : 1));
    check_context("%s as %s, %u x %u, n %u, end %d, kernel %u: error %g; worst %g at row %u of x %u: got %g, want %g",
                  what, pleat__tile_format_name(r->w.tiles.format), r->rows, r->cols, n, (int)end, kernel, error, worst,
                  worst_row, worst_x, (double)r->y[worst_x * r->rows + worst_row],
                  expected(r, end, worst_row, worst_x, kernel != BY_LIBRARY));
    const bool is_rounded = r->w.tiles.format != PLEAT__TILE_F16; /* weights, to f16 */
    CHECK(error <= (is_rounded ? 1.2e-3 : 6e-4));                 /* NaN fails */
}

static const struct {
    uint32_t rows, cols;
    uint32_t n_few, n_many; /* how many of the row counts, */
    uint32_t least[2];      /* and with CHECK_LEAST */
} shapes[] = {{64, 256, 7, 4, {0, 0}},   {40, 512, 7, 4, {3, 3}},   {200, 2304, 7, 4, {0, 0}},
              {4300, 256, 3, 1, {1, 0}}, {9000, 256, 3, 1, {0, 0}}, {264, 2048, 2, 4, {0, 0}}};

/* Kernels of many rows that this GPU has. */
static const uint32_t many_kernels[] = {32, 128, BY_WGMMA};
static uint32_t n_many_kernels(void) { return pleat__device_mul_has_wgmma() ? 3 : 2; }

static void products_are_right(void) {
    static const uint32_t few[] = {3, 9, 17, 1, 8, 16, 32}, many[] = {1, 33, 130, 64};
    CHECK_DEVICE();
    for (size_t t = 0; t < CHECK_COUNT(types); t++)
        for (size_t s = 0; s < CHECK_COUNT(shapes); s++)
            for (int end = 0; end < 3; end++) {
                const uint64_t n_few = check_cases(shapes[s].n_few, shapes[s].least[0]);
                const uint64_t n_many = check_cases(shapes[s].n_many, shapes[s].least[1]);
                if (n_few + n_many == 0) continue;
                rig r = rig_new(types[t], shapes[s].rows, shapes[s].cols, end == PLEAT__MUL_GATE);
                const char *name = pleat__weight_formats[types[t]].name;
                for (size_t i = 0; i < n_few; i++) {
                    run_mul(&r, (pleat__mul_end)end, few[i], 0, false);
                    check_values(&r, (pleat__mul_end)end, few[i], 0, name);
                }
                for (size_t i = 0; i < n_many; i++)
                    for (uint32_t k = 0; k < n_many_kernels(); k++) {
                        run_mul(&r, (pleat__mul_end)end, many[i], many_kernels[k], false);
                        check_values(&r, (pleat__mul_end)end, many[i], many_kernels[k], name);
                    }
                rig_free(&r);
            }
}

/* Every kernel and number of rows gives a row the bits that it has alone. */
static void a_row_has_its_bits_in_any_company(void) {
    static const uint32_t ns[] = {8, 11, 27, 2, 32}, many[] = {129, 27, 50, 1};
    static const uint32_t sizes[][2] = {{72, 4352}, {300, 2048}, {4300, 2048}}; /* quarters: 3; 4, together; 4 */
    CHECK_DEVICE();
    const size_t n_sizes = check_cases(CHECK_COUNT(sizes), 1);
    for (size_t i = 0; i < n_sizes * CHECK_COUNT(types); i++) {
        const size_t t = i / n_sizes;
        rig r = rig_new(types[t], sizes[i % n_sizes][0], sizes[i % n_sizes][1], false);
        float *alone = malloc(r.rows * 4);
        run_mul(&r, PLEAT__MUL_ADD, 1, 0, false);
        memcpy(alone, r.y, r.rows * 4);
        run_mul(&r, PLEAT__MUL_ADD, 1, 0, true);
        check_context("%s, x as f32", pleat__weight_formats[types[t]].name);
        CHECK_EQ_MEM(r.y, alone, r.rows * 4);
        for (size_t k = 0; k < 2 * check_cases(CHECK_COUNT(ns), 3); k++) {
            run_mul(&r, PLEAT__MUL_ADD, ns[k / 2], 0, k % 2);
            check_context("%s, %u rows, as f32 %d", pleat__weight_formats[types[t]].name, ns[k / 2], (int)(k % 2));
            CHECK_EQ_MEM(r.y, alone, r.rows * 4);
        }
        for (size_t j = 0; j < check_cases(CHECK_COUNT(many), 1); j++)
            for (uint32_t k = 0; k < n_many_kernels(); k++) {
                run_mul(&r, PLEAT__MUL_ADD, many[j], many_kernels[k], false);
                check_context("%s, %u rows, kernel %u", pleat__weight_formats[types[t]].name, many[j], many_kernels[k]);
                CHECK_EQ_MEM(r.y, alone, r.rows * 4);
                if (many_kernels[k] != BY_WGMMA) continue;
                run_mul(&r, PLEAT__MUL_ADD, many[j], BY_WGMMA, true);
                CHECK_EQ_MEM(r.y, alone, r.rows * 4);
            }
        free(alone);
        rig_free(&r);
    }
}

/* From rows of f32 over a norm and a gate to an addition. */
static void run_chain(rig *up, rig *down, uint32_t n, bool is_packed, void *normed, void *h) {
    pleat__device_mul gate = mul_of(up, PLEAT__MUL_GATE, n, false), add = mul_of(down, PLEAT__MUL_ADD, n, false);
    gate.x = normed;
    add.x = gate.h = h;
    gate.x_is_packed = add.x_is_packed = gate.h_is_packed = is_packed;
    bring(down->device_y, down->before, MAX_N * down->rows * 4);
    const pleat__device_norm_of norm = {.x = up->device_x32,
                                        .weight = up->device_x32,
                                        .n = n,
                                        .width = up->cols,
                                        .eps = 1e-5f,
                                        .is_packed = is_packed,
                                        .out = normed};
    CHECK_STATUS(pleat__device_norm(&norm, stream, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_mul_run(&gate, stream, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_mul_run(&add, stream, NULL), PLEAT_OK);
    bring_results(down, PLEAT__MUL_ADD, n);
}

/* Columns of x that fill no group are among them. */
static void packed_rows_are_the_same(void) {
    static const uint32_t ns[] = {17, 33, 100, 64, 128};
    CHECK_DEVICE();
    if (!pleat__device_mul_has_wgmma()) SKIP("no products of warpgroups here");
    for (size_t i = 0; i < check_cases(CHECK_COUNT(ns), 3); i++) {
        rig up = rig_new(PLEAT__W_Q8_0, 256, 288, true), down = rig_new(PLEAT__W_F16, 72, 256, false);
        float *plain = malloc(MAX_N * down.rows * 4);
        void *normed = NULL, *h = NULL;
        CHECK_STATUS(pleat__device_alloc(PLEAT__MUL_PACKED * 384 * 2, &normed, NULL), PLEAT_OK);
        CHECK_STATUS(pleat__device_alloc(PLEAT__MUL_PACKED * 256 * 2, &h, NULL), PLEAT_OK);
        CHECK_STATUS(pleat__device_fill(normed, 0xFF, PLEAT__MUL_PACKED * 384 * 2, stream, NULL), PLEAT_OK);
        run_chain(&up, &down, ns[i], true, normed, h);
        memcpy(plain, down.y, ns[i] * down.rows * 4);
        run_chain(&up, &down, ns[i], false, normed, h);
        check_context("%u rows", ns[i]);
        CHECK_EQ_MEM(down.y, plain, ns[i] * down.rows * 4);
        CHECK(memcmp(down.y, down.before, ns[i] * down.rows * 4));
        free(plain);
        pleat__device_free(normed);
        pleat__device_free(h);
        rig_free(&up);
        rig_free(&down);
    }
}

/* ---- between products ---------------------------------------------------------------------------------- */

static void embeddings_are_rows(void) {
    static const int32_t tokens[] = {0, 7, 8, 15, 16, 39, 8};
    CHECK_DEVICE();
    void *device_tokens = device_new(tokens, sizeof tokens);
    for (size_t t = 0; t < CHECK_COUNT(types); t++) {
        rig r = rig_new(types[t], 40, 512, false);
        pleat_error err = {0};
        const uint32_t n = CHECK_COUNT(tokens);
        float *x = malloc(n * r.cols * 4);
        CHECK_STATUS(pleat__device_embed(&r.w, device_tokens, n, 1.5f, r.device_x32, stream, &err), PLEAT_OK);
        bring(x, r.device_x32, n * r.cols * 4);
        double worst = 0;
        for (uint32_t i = 0; i < n * r.cols; i++) {
            const uint32_t row = (uint32_t)tokens[i / r.cols];
            const double want = 1.5 * weight_in(&r.w.tiles, r.tiles, row / 16, row % 16, i % r.cols);
            const double d = fabs((double)x[i] - want) / (fabs(want) + 1e-4);
            if (!(d <= worst)) worst = d;
        }
        check_context("%s: %g", pleat__weight_formats[types[t]].name, worst);
        CHECK(worst <= 2e-3); /* Q4_MIN's sum is rounded to f16 */
        free(x);
        rig_free(&r);
    }
    pleat__device_free(device_tokens);
}

/* Two rows that are zeros until they get their parts, which are x and zeros: out, as of x itself. */
static void parted_rows_are_normed_alike(const pleat__device_norm_of *whole, const float *x, const uint16_t *out) {
    const uint32_t n = 2 * whole->width, bytes = n * (uint32_t)sizeof(float);
    float *parts = calloc(2 * n, sizeof *parts);
    memcpy(parts, x, bytes);
    void *device = device_new(parts, 2ull * bytes), *rows = device_new(parts + n, bytes);
    pleat__device_norm_of norm = *whole;
    norm.x = rows;
    norm.parts = (pleat__device_parts){device, PLEAT__DEVICE_PARTS, 1};
    CHECK_STATUS(pleat__device_norm(&norm, stream, NULL), PLEAT_OK);
    bring(parts, rows, bytes);
    CHECK_EQ_MEM(parts, x, bytes);
    bring(parts, norm.out, n * sizeof *out);
    CHECK_EQ_MEM(parts, out, n * sizeof *out);
    pleat__device_free(device);
    pleat__device_free(rows);
    free(parts);
}

static void norms_and_choices_are_right(void) {
    enum { N = 5, WIDTH = 1056 };
    static float x[N * WIDTH], weight[WIDTH];
    uint16_t out[N * WIDTH];
    uint32_t chosen[N], best[N] = {0};
    uint64_t parts[N * PLEAT__CHOOSE_PARTS] = {0};
    CHECK_DEVICE();
    check_fill_normal(x, N * WIDTH);
    check_fill_normal(weight, WIDTH);
    x[WIDTH + 1000] = x[WIDTH + 17] = 9; /* the lowest id among equals */
    x[3 * WIDTH + 5] = INFINITY;
    void *dx = device_new(x, sizeof x), *dw = device_new(weight, sizeof weight), *dout = device_new(out, sizeof out);
    void *work = device_new(parts, sizeof parts);
    CHECK_STATUS(pleat__device_choose(dx, N, WIDTH, work, dout, stream, NULL), PLEAT_OK);
    bring(chosen, dout, sizeof chosen);
    for (uint32_t i = 0; i < N * WIDTH; i++)
        if (x[i] > x[i / WIDTH * WIDTH + best[i / WIDTH]]) best[i / WIDTH] = i % WIDTH;
    for (uint32_t row = 0; row < N; row++) CHECK_EQ_U64(chosen[row], row == 3 ? UINT32_MAX : best[row]);
    CHECK_EQ_U64(chosen[1], 17);
    CHECK_STATUS(pleat__device_halve(dx, 2 * WIDTH, dout, stream, NULL), PLEAT_OK);
    bring(out, dout, 2 * WIDTH * sizeof *out);
    for (uint32_t i = 0; i < 2 * WIDTH; i++) CHECK_EQ_U64(out[i], pleat__f32_to_f16(x[i]));
    const pleat__device_norm_of norm = {.x = dx, .weight = dw, .n = 2, .width = WIDTH, .eps = 1e-5f, .out = dout};
    CHECK_STATUS(pleat__device_norm(&norm, stream, NULL), PLEAT_OK);
    bring(out, dout, sizeof out);
    for (uint32_t row = 0; row < 2; row++) {
        double sum = 0;
        for (uint32_t i = 0; i < WIDTH; i++) sum += (double)x[row * WIDTH + i] * (double)x[row * WIDTH + i];
        for (uint32_t i = 0; i < WIDTH; i++) {
            const double want = (double)weight[i] * (double)x[row * WIDTH + i] / sqrt(sum / WIDTH + 1e-5);
            CHECK_NEAR((double)pleat__f16_to_f32(out[row * WIDTH + i]), want, 1e-3 * fabs(want) + 1e-6);
        }
    }
    parted_rows_are_normed_alike(&norm, x, out);
    pleat__device_free(dx);
    pleat__device_free(dw);
    pleat__device_free(dout);
    pleat__device_free(work);
}

/* ---- by cuBLASLt ----------------------------------------------------------------------------------------- */

/* The library, and memory for its products of a rig. */
typedef struct gemm_rig {
    pleat__device_gemm *gemm;
    void *made, *pairs, *work; /* made: NULL where tiles are plain as they are */
    const void *plain;
} gemm_rig;

static gemm_rig gemm_rig_new(const rig *r) {
    const pleat_allocator al = pleat__allocator_or_default(NULL);
    gemm_rig g = {.gemm = NULL};
    pleat_error err = {0};
    CHECK_STATUS(pleat__device_gemm_create(&al, &g.gemm, &err), PLEAT_OK);
    CHECK_STATUS(pleat__device_alloc((uint64_t)MAX_N * r->w.tiles.rows * 2, &g.pairs, &err), PLEAT_OK);
    CHECK_STATUS(pleat__device_alloc(PLEAT__GEMM_WORK_BYTES, &g.work, &err), PLEAT_OK);
    g.plain = r->w.data;
    if (r->w.tiles.format != PLEAT__TILE_F16) {
        CHECK_STATUS(pleat__device_alloc(pleat__device_plain_halves(&r->w.tiles) * 2, &g.made, &err), PLEAT_OK);
        g.plain = g.made;
    }
    CHECK_STATUS(pleat__device_plain(&r->w, g.made, stream, &err), g.made ? PLEAT_OK : PLEAT_E_ARG);
    return g;
}

static void gemm_rig_free(gemm_rig *g) {
    pleat__device_gemm_destroy(&g->gemm);
    pleat__device_free(g->made);
    pleat__device_free(g->pairs);
    pleat__device_free(g->work);
}

static void run_gemm(rig *r, const gemm_rig *g, pleat__mul_end end, uint32_t n, uint32_t rows_class) {
    const pleat__device_mul mul = mul_of(r, end, n, false);
    const pleat__gemm_memory memory = {.plain = g->plain, .rows_class = rows_class, .pairs = g->pairs, .work = g->work};
    pleat_error err = {0};
    bring(r->device_y, r->before, MAX_N * r->rows * 4);
    const pleat_status status = pleat__device_gemm_run(g->gemm, &mul, &memory, stream, &err);
    if (status != PLEAT_OK) check_context("%s", err.text);
    CHECK_STATUS(status, PLEAT_OK);
    bring_results(r, end, n);
}

static void plain_forms_are_the_weights(const rig *r, const gemm_rig *g, const char *what) {
    const pleat__tiles *t = &r->w.tiles;
    const uint64_t n = pleat__device_plain_halves(t);
    uint16_t *plain = malloc(n * 2);
    double worst = 0;
    bring(plain, g->plain, n * 2);
    for (uint32_t row = 0; row < t->n_tiles * PLEAT__TILE_ROWS; row++)
        for (uint32_t col = 0; col < t->cols; col++) {
            const double want = weight_in(t, r->tiles, row / 16, row % 16, col);
            const uint16_t half = plain[(uint64_t)row * t->n_groups * PLEAT__GROUP_COLS + col];
            const double d = fabs((double)pleat__f16_to_f32(half) - want) / (fabs(want) + 1e-4);
            if (!(d <= worst)) worst = d;
        }
    check_context("%s, plain: %g", what, worst);
    CHECK(worst <= 2e-3); /* as of embeddings */
    free(plain);
}

/* Of each class of row counts: right, and a row has the same bits in any company. */
static void check_class(rig *r, const gemm_rig *g, pleat__mul_end end, uint32_t rows_class, const char *name) {
    static const uint32_t ns[] = {1, 33, 130, 160};
    float *alone = malloc(r->rows * 4);
    for (size_t i = 0; i < check_cases(CHECK_COUNT(ns), 2); i++) {
        run_gemm(r, g, end, ns[i], rows_class);
        check_values(r, end, ns[i], BY_LIBRARY, name);
        if (i == 0) memcpy(alone, r->y, r->rows * 4);
        check_context("%s, %u rows, class %u", name, ns[i], rows_class);
        CHECK_EQ_MEM(r->y, alone, r->rows * 4);
    }
    free(alone);
}

static void check_library(pleat__weight_type type, uint32_t rows, uint32_t cols, pleat__mul_end end) {
    rig r = rig_new(type, rows, cols, end == PLEAT__MUL_GATE);
    gemm_rig g = gemm_rig_new(&r);
    const char *name = pleat__weight_formats[type].name;
    plain_forms_are_the_weights(&r, &g, name);
    for (uint32_t n = 1; n <= PLEAT__GEMM_ROWS; n = 2 * pleat__gemm_class(n))
        check_class(&r, &g, end, pleat__gemm_class(n), name);
    gemm_rig_free(&g);
    rig_free(&r);
}

static void library_products_are_right(void) {
    CHECK_DEVICE();
    if (!pleat__device_gemm_exists()) SKIP("cuBLASLt is not here");
    for (size_t t = 0; t < CHECK_COUNT(types); t++)
        for (size_t s = 0; s < check_cases(4, 1); s++)
            for (int end = 0; end < 3; end++) {
                if (end == PLEAT__MUL_GATE && shapes[s].rows % 8) continue;
                check_library(types[t], shapes[s].rows, shapes[s].cols, (pleat__mul_end)end);
            }
    check_library(PLEAT__W_F16, 72, 288, PLEAT__MUL_ADD); /* columns that fill no group */
    check_library(PLEAT__W_Q8_0, 72, 288, PLEAT__MUL_ADD);
}

/* y += a product by way of its parts, which the norm adds; out: the norm, of [n][rows] halves. */
static void add_parts(rig *r, const gemm_rig *g, void *parts, uint32_t n, uint32_t rows_class, void *out) {
    pleat__device_mul mul = mul_of(r, PLEAT__MUL_ADD, n, false);
    const pleat__gemm_memory memory = {
        .plain = g->plain, .rows_class = rows_class, .work = g->work, .n_parts = PLEAT__DEVICE_PARTS};
    const pleat__device_norm_of norm = {.x = r->device_y,
                                        .parts = {parts, PLEAT__DEVICE_PARTS, mul.scale},
                                        .weight = r->device_x32,
                                        .n = n,
                                        .width = r->rows,
                                        .eps = 1e-5f,
                                        .out = out};
    pleat_error err = {0};
    mul.y = parts;
    bring(r->device_y, r->before, MAX_N * r->rows * 4);
    CHECK_STATUS(pleat__device_gemm_run(g->gemm, &mul, &memory, stream, &err), PLEAT_OK);
    CHECK_STATUS(pleat__device_norm(&norm, stream, &err), PLEAT_OK);
    bring_results(r, PLEAT__MUL_ADD, n);
}

/* The sum is right and a row has the same bits in any company; the norm is that of the sum. */
static void norms_add_parts(void) {
    static const uint32_t ns[] = {1, 33, 128};
    enum { ROWS = 320, COLS = 1024 };
    static uint16_t with[128 * ROWS], without[128 * ROWS];
    CHECK_DEVICE();
    if (!pleat__device_gemm_exists()) SKIP("cuBLASLt is not here");
    rig r = rig_new(PLEAT__W_F16, ROWS, COLS, false);
    gemm_rig g = gemm_rig_new(&r);
    float alone[ROWS];
    void *parts = NULL, *out = NULL;
    CHECK_STATUS(pleat__device_alloc(PLEAT__DEVICE_PARTS * 128 * ROWS * 4, &parts, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_alloc(sizeof with, &out, NULL), PLEAT_OK);
    for (size_t i = 0; i < CHECK_COUNT(ns); i++) {
        const uint32_t n = ns[i];
        const pleat__device_norm_of norm = {
            .x = r.device_y, .weight = r.device_x32, .n = n, .width = ROWS, .eps = 1e-5f, .out = out};
        add_parts(&r, &g, parts, n, 128, out);
        check_values(&r, PLEAT__MUL_ADD, n, BY_LIBRARY, "in parts");
        if (i == 0) memcpy(alone, r.y, sizeof alone);
        check_context("in parts, %u rows", n);
        CHECK_EQ_MEM(r.y, alone, sizeof alone);
        bring(with, out, (uint64_t)n * ROWS * 2);
        CHECK_STATUS(pleat__device_norm(&norm, stream, NULL), PLEAT_OK);
        bring(without, out, (uint64_t)n * ROWS * 2);
        CHECK_EQ_MEM(with, without, (size_t)n * ROWS * 2);
    }
    pleat__device_free(parts);
    pleat__device_free(out);
    gemm_rig_free(&g);
    rig_free(&r);
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        {"products are right", products_are_right},
        {"a row has its bits in any company", a_row_has_its_bits_in_any_company},
        {"packed rows are the same", packed_rows_are_the_same},
        {"products by cuBLASLt are right", library_products_are_right},
        {"norms add parts", norms_add_parts},
        {"embeddings are rows", embeddings_are_rows},
        {"norms and choices are right", norms_and_choices_are_right},
    };
    return check_main(tests, CHECK_COUNT(tests), argc, argv);
}
