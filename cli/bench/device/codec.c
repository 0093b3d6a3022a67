/* SPDX-License-Identifier: MIT
 *
 * codec.c: `pleat bench codec --device cuda`: attention's two products over kvcomp's blocks, fused with
 * their decoding, beside the decoder of KVComp's paper, fused in the same way, and cuBLAS's products over as many f16
 * numbers.
 *
 *     for each repetition:  every spec: K q and p V for each group, fused | the same bit-serial  |  cuBLAS  |  one copy
 *
 * Rules
 *  1. All run turn and turn about in one run; figures are medians of single calls, by the device's own clock.  Before
 *     each call as much is copied as outgrows the level-2 cache four times, so every call reads from memory.
 *  2. cuBLAS multiplies a matrix of normal variates; on zeros a GPU runs faster.
 *  3. bytes are those that must move: of blocks the units and codes of keys or values and where they are; of cuBLAS the
 *     matrix; of both the vectors and the results.
 *  4. f16 GB/s is what a product over f16 would have to read in that time.
 *  5. What does not fit in memory is skipped, and said; so is cuBLAS where there is none.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "blocks.h"
#include "cli/lib/load.h"
#include "cli/lib/measure.h"
#include "cli/lib/progress.h"

enum { KV_HEADS = 8, DEFAULT_BATCH = 32, DEFAULT_CTX = 8192, CTX_UNIT = 256, L2_TIMES = 4 };

static const char *const product_names[N_PRODUCTS] = {"K q", "p V"};
static const char *const decoder_names[N_DECODERS] = {"fused", "bit-serial"};

/* Times and error of one product with each group. */
typedef struct figures {
    double *us[NUMBERS_CAP]; /* [reps] each */
    double max_rel_err[NUMBERS_CAP];
    int is_missing[NUMBERS_CAP]; /* nothing multiplies so many vectors */
} figures;

typedef struct contender {
    uint32_t spec; /* index */
    device_blocks blocks;
    figures f[N_DECODERS][N_PRODUCTS];
    pleat_status status; /* of making the blocks */
    pleat_error err;
} contender;

typedef struct bench {
    codec_options *o;
    output out;
    bench_device device;
    gpu_blas *blas; /* NULL: there is none */
    pleat_workers *workers;
    uint32_t reps;
    uint32_t ctx, batch, head_dim; /* under way */
    device_vectors vectors;
    contender made[SPECS_CAP];        /* one for each spec, whether it fits or not */
    contender *contenders[SPECS_CAP]; /* those that do */
    uint32_t n_contenders;
    figures rivals[N_PRODUCTS]; /* cuBLAS's */
    table t;
    json_t *rows, *skipped;
    char label[96];
    uint64_t n_done;
} bench;

static void figures_init(const bench *b, figures f[N_PRODUCTS]) {
    for (int p = 0; p < N_PRODUCTS; p++)
        for (uint32_t i = 0; i < b->o->gqa.n; i++) {
            f[p].us[i] = cli_alloc(b->reps, sizeof(double));
            f[p].max_rel_err[i] = NAN;
        }
}

static void figures_release(figures f[N_PRODUCTS]) {
    for (int p = 0; p < N_PRODUCTS; p++)
        for (uint32_t i = 0; i < NUMBERS_CAP; i++) free(f[p].us[i]);
    memset(f, 0, N_PRODUCTS * sizeof *f);
}

/* ---- making contenders ---------------------------------------------------------------------------------- */

static json_t *params_json(const bench *b, const char *kv) {
    return json_pack("{s:s, s:s, s:o, s:i, s:i, s:i, s:i, s:i, s:i}", "kv", kv, "device", "cuda", "gpu",
                     json_text(b->device.gpu.info.name), "ctx", (int)b->ctx, "batch", (int)b->batch, "kv_heads",
                     KV_HEADS, "lanes", (int)(b->batch * KV_HEADS), "head_dim", (int)b->head_dim, "reps", (int)b->reps);
}

static void skip(bench *b, const char *kv, const pleat_error *err) {
    json_array_append_new(b->skipped,
                          json_pack("{s:o, s:o}", "params", params_json(b, kv), "reason", json_text(err->text)));
    if (!b->o->common.quiet)
        cli_note("skipped: %s, %u x %u tokens, head dimension %u: %s", kv, b->batch, b->ctx, b->head_dim, err->text);
}

static pleat_status check(bench *b, contender *c, int decoder, int product, pleat_error *err) {
    figures *f = &c->f[decoder][product];
    pleat_status status = PLEAT_OK;
    for (uint32_t i = 0; i < b->o->gqa.n && status == PLEAT_OK; i++) {
        status = device_blocks_check(&c->blocks, (block_product)product, (block_decoder)decoder, b->o->gqa.v[i],
                                     &f->max_rel_err[i], err);
        f->is_missing[i] = decoder != DECODER_FUSED && status == PLEAT_E_ARG;
        if (f->is_missing[i]) status = PLEAT_OK;
    }
    return status;
}

static void release_contender(contender *c) {
    device_blocks_release(&c->blocks);
    for (int i = 0; i < N_DECODERS; i++) figures_release(c->f[i]);
}

/* Blocks of one spec; specs are made by several threads at once, as putting codes in the device's order takes time. */
static void make_blocks(void *ctx, uint32_t spec, uint32_t worker) {
    bench *b = ctx;
    contender *c = &b->made[spec];
    (void)worker;
    c->status = device_blocks_init(&c->blocks, &b->vectors, &b->o->kv.spec[spec], &c->err);
}

static pleat_status check_all(bench *b, contender *c, pleat_error *err) {
    pleat_status status = PLEAT_OK;
    for (int i = 0; i < N_DECODERS * N_PRODUCTS && status == PLEAT_OK; i++)
        status = check(b, c, i / N_PRODUCTS, i % N_PRODUCTS, err);
    return status;
}

static int make_contenders(bench *b) {
    const codec_options *o = b->o;
    int code = CLI_OK;
    for (uint32_t i = 0; i < o->kv.n; i++) {
        b->made[i] = (contender){.spec = i, .err = {0, PLEAT_NOWHERE, ""}};
        for (int d = 0; d < N_DECODERS; d++) figures_init(b, b->made[i].f[d]);
    }
    pleat_workers_run(b->workers, o->kv.n, make_blocks, b);
    for (uint32_t i = 0; i < o->kv.n; i++) {
        contender *c = &b->made[i];
        if (code == CLI_OK) DEVICE_THEN(c->status, check_all(b, c, &c->err));
        if (code == CLI_OK && c->status == PLEAT_OK) {
            b->contenders[b->n_contenders++] = c;
            continue;
        }
        if (code == CLI_OK && c->status == PLEAT_E_MEMORY) skip(b, o->kv.text[i], &c->err);
        if (code == CLI_OK && c->status != PLEAT_E_MEMORY) code = cli_fail(o->kv.text[i], c->status, &c->err);
        release_contender(c);
    }
    return code;
}

/* ---- time ----------------------------------------------------------------------------------------------- */

/* One call, from memory.  c NULL: cuBLAS's. */
static pleat_status time_call(bench *b, contender *c, block_product p, block_decoder decoder, uint32_t n_vectors,
                              double *us, pleat_error *err) {
    const gpu *g = &b->device.gpu;
    const uint64_t bytes = L2_TIMES * g->info.l2_bytes, most = b->device.copy_bytes;
    pleat_status status = gpu_copy(g, b->device.to, b->device.from, bytes < most ? bytes : most, err);
    DEVICE_THEN(status, gpu_clock_start(g, err));
    DEVICE_THEN(status, c ? device_blocks_multiply(&c->blocks, p, decoder, n_vectors, err)
                          : device_vectors_blas(&b->vectors, b->blas, p, n_vectors, err));
    DEVICE_THEN(status, gpu_clock_stop(g, us, err));
    return status;
}

/* rep -1 warms up and is not kept. */
static pleat_status time_turn(bench *b, contender *c, block_decoder decoder, int rep, pleat_error *err) {
    figures *f = c ? c->f[decoder] : b->rivals;
    pleat_status status = PLEAT_OK;
    double unused;
    for (int p = 0; p < N_PRODUCTS; p++)
        for (uint32_t i = 0; i < b->o->gqa.n && status == PLEAT_OK; i++) {
            if (f[p].is_missing[i]) continue;
            double *us = rep < 0 ? &unused : &f[p].us[i][rep];
            status = time_call(b, c, (block_product)p, decoder, b->o->gqa.v[i], us, err);
        }
    return status;
}

static int time_all(bench *b) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_status status = PLEAT_OK;
    for (int rep = -1; rep < (int)b->reps && status == PLEAT_OK; rep++) {
        for (uint32_t i = 0; i < b->n_contenders; i++)
            for (int d = 0; d < N_DECODERS; d++)
                DEVICE_THEN(status, time_turn(b, b->contenders[i], (block_decoder)d, rep, &err));
        if (b->blas) DEVICE_THEN(status, time_turn(b, NULL, DECODER_FUSED, rep, &err));
        DEVICE_THEN(status, bench_device_measure_copy(&b->device, rep, &err));
        progress_update(b->n_done += rep >= 0);
    }
    return status == PLEAT_OK ? CLI_OK : cli_fail(b->device.gpu.info.name, status, &err);
}

/* ---- rows ----------------------------------------------------------------------------------------------- */

/* Bytes of what is multiplied with and of the results, of `value_bytes` each. */
static uint64_t vector_bytes(const bench *b, block_product p, uint32_t n_vectors, uint32_t value_bytes) {
    const device_vectors *v = &b->vectors;
    return (uint64_t)v->n_lanes * n_vectors * (product_inputs(v, p) + product_results(v, p)) * value_bytes;
}

/* What a row says. */
typedef struct row {
    const char *kv, *how;
    block_product product;
    uint32_t group, block_tokens; /* 0: of no blocks */
    uint64_t bytes;
    measure_spread us;
    double bits, payload_bits, gcodes_per_s, gb_per_s, peak_gb_per_s, f16_gb_per_s;
    double speed_to_cublas, speed_to_bit_serial, max_rel_err; /* NAN where it is not known */
} row;

/* How many times as fast as `other`, NAN where that has not run. */
static double speed_to(const bench *b, const figures *other, uint32_t group_idx, double us) {
    return other->is_missing[group_idx] ? NAN : bench_median(other->us[group_idx], b->reps) / us;
}

/* c NULL: cuBLAS's. */
static row row_of(const bench *b, const contender *c, block_product p, int decoder, uint32_t group_idx) {
    const device_vectors *v = &b->vectors;
    const figures *f = c ? &c->f[decoder][p] : &b->rivals[p];
    const double n_codes = (double)v->n_lanes * v->n_tokens * v->head_dim;
    const uint64_t matrix_bytes = c ? c->blocks.bytes[decoder][p] : (uint64_t)n_codes * sizeof(uint16_t);
    row r = {.kv = c ? b->o->kv.text[c->spec] : "f16",
             .how = c ? decoder_names[decoder] : "cuBLAS",
             .product = p,
             .group = b->o->gqa.v[group_idx],
             .block_tokens = c ? c->blocks.block_tokens : 0,
             .us = measure_spread_of(f->us[group_idx], b->reps),
             .bits = 8 * (double)matrix_bytes / n_codes,
             .payload_bits = c ? 8 * (double)c->blocks.payload_bytes[p] / n_codes : NAN,
             .peak_gb_per_s = bench_device_peak(&b->device),
             .speed_to_cublas = NAN,
             .speed_to_bit_serial = NAN,
             .max_rel_err = f->max_rel_err[group_idx]};
    r.bytes = matrix_bytes + vector_bytes(b, p, r.group, c ? sizeof(float) : sizeof(uint16_t));
    r.gcodes_per_s = n_codes / r.us.median / 1e3;
    r.gb_per_s = (double)r.bytes / r.us.median / 1e3;
    r.f16_gb_per_s = sizeof(uint16_t) * r.gcodes_per_s;
    if (b->blas) r.speed_to_cublas = speed_to(b, &b->rivals[p], group_idx, r.us.median);
    if (c) r.speed_to_bit_serial = speed_to(b, &c->f[DECODER_BIT_SERIAL][p], group_idx, r.us.median);
    return r;
}

static json_t *json_row(const bench *b, const row *r) {
    json_t *params = params_json(b, r->kv);
    json_object_set_new(params, "product", json_string(product_names[r->product]));
    json_object_set_new(params, "how", json_string(r->how));
    json_object_set_new(params, "gqa", json_integer(r->group));
    if (r->block_tokens) json_object_set_new(params, "block_tokens", json_integer(r->block_tokens));
    return json_pack("{s:s, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "what", "codec",
                     "params", params, "us", json_spread(r->us), "bytes", (json_int_t)r->bytes, "bits",
                     json_number(r->bits), "payload_bits", json_number(r->payload_bits), "gcodes_per_s",
                     json_number(r->gcodes_per_s), "gb_per_s", json_number(r->gb_per_s), "peak_gb_per_s",
                     json_number(r->peak_gb_per_s), "fraction_of_peak", json_number(r->gb_per_s / r->peak_gb_per_s),
                     "f16_gb_per_s", json_number(r->f16_gb_per_s), "speed_to_cublas", json_number(r->speed_to_cublas),
                     "speed_to_bit_serial", json_number(r->speed_to_bit_serial), "max_rel_err",
                     json_number(r->max_rel_err));
}

static void put_row(bench *b, const row *r) {
    table_put(&b->t, "%s", r->kv);
    table_put(&b->t, "%s", product_names[r->product]);
    table_put(&b->t, "%s", r->how);
    table_put(&b->t, "%u", b->ctx);
    table_put(&b->t, "%u", b->batch);
    table_put(&b->t, "%u", r->group);
    table_put(&b->t, "%u", b->head_dim);
    table_put(&b->t, "%.2f", r->us.min);
    table_put(&b->t, "%.2f", r->us.median);
    table_put(&b->t, "%.2f", r->us.max);
    table_put(&b->t, "%llu", (unsigned long long)r->bytes);
    table_put_number(&b->t, 3, r->bits);
    table_put_number(&b->t, 0, r->gcodes_per_s);
    table_put_number(&b->t, 0, r->gb_per_s);
    table_put_number(&b->t, 3, r->gb_per_s / r->peak_gb_per_s);
    table_put_number(&b->t, 0, r->f16_gb_per_s);
    table_put_number(&b->t, 2, r->speed_to_cublas);
    table_put_number(&b->t, 2, r->speed_to_bit_serial);
    bench_device_put_error(&b->t, r->max_rel_err);
}

static void add_row(bench *b, const contender *c, block_product p, int decoder, uint32_t group_idx) {
    const row r = row_of(b, c, p, decoder, group_idx);
    json_array_append_new(b->rows, json_row(b, &r));
    put_row(b, &r);
}

static void add_rows(bench *b) {
    for (int p = 0; p < N_PRODUCTS; p++)
        for (uint32_t i = 0; i < b->o->gqa.n; i++) {
            for (uint32_t n = 0; n < b->n_contenders * N_DECODERS; n++) {
                const contender *c = b->contenders[n / N_DECODERS];
                if (!c->f[n % N_DECODERS][p].is_missing[i]) add_row(b, c, (block_product)p, (int)(n % N_DECODERS), i);
            }
            if (b->blas) add_row(b, NULL, (block_product)p, DECODER_FUSED, i);
        }
}

/* ---- the sweep ------------------------------------------------------------------------------------------ */

static uint32_t max_group(const codec_options *o) {
    uint32_t most = 1;
    for (uint32_t i = 0; i < o->gqa.n; i++)
        if (o->gqa.v[i] > most) most = o->gqa.v[i];
    return most;
}

static int run_shape(bench *b) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    snprintf(b->label, sizeof b->label, "%u x %u tokens, d %u", b->batch, b->ctx, b->head_dim);
    progress_update(b->n_done);
    pleat_status status = device_vectors_init(&b->vectors, &b->device.gpu, b->batch * KV_HEADS, b->ctx, b->head_dim,
                                              max_group(b->o), b->blas != NULL, &err);
    int code = CLI_OK;
    if (status == PLEAT_OK) {
        figures_init(b, b->rivals);
        code = make_contenders(b);
        if (code == CLI_OK && b->n_contenders) code = time_all(b);
        if (code == CLI_OK && b->n_contenders) add_rows(b);
    } else if (status == PLEAT_E_MEMORY) {
        skip(b, "all", &err);
    } else {
        code = cli_fail(b->device.gpu.info.name, status, &err);
    }
    for (uint32_t i = 0; i < b->n_contenders; i++) release_contender(b->contenders[i]);
    b->n_contenders = 0;
    figures_release(b->rivals);
    device_vectors_release(&b->vectors);
    return code;
}

static int run_shapes(bench *b) {
    static const char *const titles[] = {"kv",       "product",  "how",          "ctx",        "batch",
                                         "gqa",      "d",        "us min",       "us",         "us max",
                                         "bytes",    "bits",     "G codes/s",    "GB/s",       "part of peak",
                                         "f16 GB/s", "x cuBLAS", "x bit-serial", "max rel err"};
    const codec_options *o = b->o;
    const uint32_t n_shapes = o->head_dim.n * o->batch.n * o->ctx.n;
    int code = CLI_OK;
    table_init(&b->t, titles, sizeof titles / sizeof titles[0]);
    b->rows = json_array();
    b->skipped = json_array();
    progress_begin(b->label, (uint64_t)b->reps * n_shapes, !o->common.quiet);
    for (uint32_t n = 0; n < n_shapes && code == CLI_OK; n++) { /* the context changes fastest */
        b->ctx = o->ctx.v[n % o->ctx.n] / CTX_UNIT * CTX_UNIT;
        b->batch = o->batch.v[n / o->ctx.n % o->batch.n];
        b->head_dim = o->head_dim.v[n / o->ctx.n / o->batch.n];
        code = run_shape(b);
    }
    progress_end();
    return code == CLI_OK ? output_check_rows(b->rows, "nothing fits in the GPU's memory") : code;
}

/* ---- the command ---------------------------------------------------------------------------------------- */

static int check_options(codec_options *o) {
    static const char *const default_specs[] = {"kvcomp:k=0.25,v=0.25", "kvcomp:k=0.13,v=0.15",
                                                "kvcomp:k=0.05,v=0.15,kunit=block", NULL};
    options_default_specs(&o->kv, default_specs);
    if (!o->head_dim.n) o->head_dim = (number_list){1, {128}};
    if (!o->ctx.n) o->ctx = (number_list){1, {DEFAULT_CTX}};
    if (!o->batch.n) o->batch = (number_list){1, {DEFAULT_BATCH}};
    if (!o->gqa.n) o->gqa = (number_list){2, {1, 4}};
    for (uint32_t i = 0; i < o->kv.n; i++)
        if (o->kv.spec[i].compressor != PLEAT_COMPRESSOR_KVCOMP || o->kv.spec[i].pack) {
            cli_error("--kv %s: on a GPU there are the blocks of kvcomp without +pack", o->kv.text[i]);
            return CLI_USAGE;
        }
    return CLI_OK;
}

/* Without cuBLAS its rows are missing, and a line says why. */
static int open_blas(bench *b) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    const pleat_status status = gpu_blas_open(&b->device.gpu, &b->blas, &err);
    if (status == PLEAT_E_UNSUPPORTED && !b->o->common.quiet) cli_note("skipped: %s", err.text);
    return status == PLEAT_OK || status == PLEAT_E_UNSUPPORTED ? CLI_OK : cli_fail("cuBLAS", status, &err);
}

int bench_device_codec(codec_options *o) {
    bench b = {.o = o, .reps = o->reps};
    int code = check_options(o);
    if (code != CLI_OK) return code;
    code = output_open(&b.out, &o->common);
    if (code == CLI_OK) code = bench_device_open(&b.device, b.reps);
    if (code == CLI_OK) code = open_blas(&b);
    if (code == CLI_OK) code = load_workers(0, o->common.quiet, &b.workers);
    if (code == CLI_OK) code = run_shapes(&b);
    code = output_end_rows(&b.out, code, b.rows, b.skipped, &b.t);
    pleat_workers_destroy(&b.workers);
    gpu_blas_close(&b.blas);
    bench_device_close(&b.device);
    return code;
}
