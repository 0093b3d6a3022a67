/* SPDX-License-Identifier: MIT
 *
 * bench_attn.c: `pleat bench attn`: decode attention of one layer, for each spec, context and batch.
 *
 *     for each repetition:  every spec's cache, all its layers in turn  |  one read of the bandwidth buffer
 *
 * Rules
 *  1. Everything that is compared runs turn and turn about in one run; figures are medians.
 *  2. A cache has as many layers as it takes to outgrow the processor's caches, up to MAX_LAYERS, so each call reads from
 *     memory.
 *  3. Keys, values and queries are normal variates, never zeros.
 *  4. bytes are those that must move: codes and metadata of the stored tokens of one layer.
 *  5. max_rel_err is |out - ref| / |ref| (L2, one query head), the worst of several heads, against float64 attention
 *     on the values that the cache gives back: the error of the kernel, without that of the format.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bandwidth.h"
#include "commands.h"
#include "common.h"
#include "load.h"
#include "output.h"
#include "progress.h"

enum { STEP_TOKENS = 512, DEFAULT_REPS = 15, MAX_LAYERS = 1024 };
static const size_t noise_floats = (size_t)1 << 22;

/* One spec's cache and its times. */
typedef struct contender {
    pleat_cache *cache;
    pleat_seq *seqs; /* [batch] */
    uint32_t n_layers;
    double *ms; /* [reps]: mean over the layers of one pass */
    cli_spread spread;
    double max_rel_err;
} contender;

typedef struct bench {
    options *o;
    output out;
    pleat_workers *workers;
    bandwidth memory;
    double *gb_per_s; /* [reps] */
    double peak_gb_per_s;
    uint32_t reps;
    uint32_t ctx, batch; /* of the configuration under way */
    contender contenders[SPECS_CAP];
    float *noise;      /* [noise_floats] */
    float *q, *result; /* [batch][heads][head_dim] */
    table t;
    json_t *rows;
} bench;

/* ---- caches ------------------------------------------------------------------------------------ */

static uint64_t layer_bytes(const bench *b, pleat_spec spec) {
    return (uint64_t)b->ctx * b->batch * b->o->kv_heads * pleat_format_token_bytes(spec.high, b->o->head_dim);
}

static int make_cache(bench *b, uint32_t i) {
    const options *o = b->o;
    contender *c = &b->contenders[i];
    pleat_cache_options opt;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    const uint64_t bytes = layer_bytes(b, o->kv.spec[i]);
    const uint64_t n_layers = bytes ? (bandwidth_working_set() + bytes - 1) / bytes : 1;
    c->n_layers = n_layers < MAX_LAYERS ? (uint32_t)n_layers : MAX_LAYERS;
    pleat_cache_options_default(&opt);
    opt.spec = o->kv.spec[i];
    opt.n_layers = c->n_layers;
    opt.n_kv_heads = o->kv_heads;
    opt.n_q_heads = o->heads;
    opt.head_dim = o->head_dim;
    opt.max_seqs = b->batch;
    opt.max_tokens = b->ctx;
    opt.step_tokens = STEP_TOKENS;
    opt.workers = b->workers;
    pleat_status status = pleat_cache_create(&opt, &c->cache, &err);
    if (status != PLEAT_OK) return cli_fail(o->kv.text[i], status, &err);
    c->seqs = cli_alloc(b->batch, sizeof *c->seqs);
    c->ms = cli_alloc(b->reps, sizeof *c->ms);
    for (uint32_t s = 0; s < b->batch && status == PLEAT_OK; s++)
        status = pleat_cache_open(c->cache, b->ctx, &c->seqs[s]);
    return status == PLEAT_OK ? CLI_OK : cli_fail(o->kv.text[i], status, NULL);
}

/* n floats from somewhere in the noise; a chunk of another place is other data. */
static const float *some_noise(const bench *b, cli_rng *rng, size_t n) {
    return b->noise + (n < noise_floats ? cli_rng_next(rng) % (noise_floats - n) : 0);
}

/* Store n tokens in every layer of one sequence. */
static pleat_status fill_chunk(bench *b, contender *c, pleat_seq seq, uint32_t n, cli_rng *rng) {
    const pleat_cache_item item = {.seq = seq, .n_tokens = n};
    const size_t n_floats = (size_t)n * b->o->kv_heads * b->o->head_dim;
    pleat_status status = pleat_cache_begin(c->cache, &item, 1);
    for (uint32_t layer = 0; layer < c->n_layers && status == PLEAT_OK; layer++) {
        const float *k = some_noise(b, rng, n_floats), *v = some_noise(b, rng, n_floats);
        status = pleat_cache_store(c->cache, layer, k, v);
    }
    return status == PLEAT_OK ? pleat_cache_end(c->cache) : status;
}

static int fill_cache(bench *b, uint32_t i) {
    contender *c = &b->contenders[i];
    cli_rng rng = {42}; /* the same data for every spec */
    /* a step's keys must fit in the noise twice over */
    const size_t fit = noise_floats / 2 / ((size_t)b->o->kv_heads * b->o->head_dim);
    const uint32_t chunk = fit < STEP_TOKENS ? (uint32_t)(fit ? fit : 1) : STEP_TOKENS;
    pleat_status status = PLEAT_OK;
    for (uint32_t s = 0; s < b->batch; s++)
        for (uint32_t done = 0; done < b->ctx && status == PLEAT_OK;) {
            const uint32_t left = b->ctx - done, n = left < chunk ? left : chunk;
            status = fill_chunk(b, c, c->seqs[s], n, &rng);
            done += n;
        }
    return status == PLEAT_OK ? CLI_OK : cli_fail(b->o->kv.text[i], status, NULL);
}

/* ---- error ------------------------------------------------------------------------------------- */

/* Attention of one query over n tokens in double precision: ref[head_dim].  weight is scratch, [n]. */
static void attend_exactly(const float *q, const float *k, const float *v, uint32_t n, uint32_t head_dim,
                           double *weight, double *ref) {
    const double scale = 1 / sqrt((double)head_dim);
    double max = -INFINITY, sum = 0;
    for (uint32_t t = 0; t < n; t++) {
        double dot = 0;
        for (uint32_t d = 0; d < head_dim; d++) dot += (double)q[d] * (double)k[(size_t)t * head_dim + d];
        weight[t] = dot * scale;
        if (weight[t] > max) max = weight[t];
    }
    memset(ref, 0, head_dim * sizeof *ref);
    for (uint32_t t = 0; t < n; t++) {
        const double w = exp(weight[t] - max);
        sum += w;
        for (uint32_t d = 0; d < head_dim; d++) ref[d] += w * (double)v[(size_t)t * head_dim + d];
    }
    for (uint32_t d = 0; d < head_dim; d++) ref[d] /= sum;
}

static double relative_error(const float *out, const double *ref, uint32_t n) {
    double diff = 0, norm = 0;
    for (uint32_t d = 0; d < n; d++) {
        diff += ((double)out[d] - ref[d]) * ((double)out[d] - ref[d]);
        norm += ref[d] * ref[d];
    }
    return sqrt(diff / norm);
}

/* Compare the query heads of one KV head of the last sequence with the reference. */
static pleat_status check_kv_head(bench *b, contender *c, uint32_t kv_head) {
    const options *o = b->o;
    const uint32_t group = o->heads / o->kv_heads, dim = o->head_dim, seq = b->batch - 1;
    float *k = cli_alloc((size_t)b->ctx * dim, sizeof *k), *v = cli_alloc((size_t)b->ctx * dim, sizeof *v);
    double *weight = cli_alloc(b->ctx, sizeof *weight), *ref = cli_alloc(dim, sizeof *ref);
    const pleat_status status = pleat_cache_export(c->cache, c->seqs[seq], 0, kv_head, 0, b->ctx, k, v);
    for (uint32_t h = kv_head * group; h < (kv_head + 1) * group && status == PLEAT_OK; h++) {
        const size_t at = ((size_t)seq * o->heads + h) * dim;
        attend_exactly(b->q + at, k, v, b->ctx, dim, weight, ref);
        const double err = relative_error(b->result + at, ref, dim);
        if (!(err <= c->max_rel_err)) /* NaN must show */
            c->max_rel_err = err;
    }
    free(k);
    free(v);
    free(weight);
    free(ref);
    return status;
}

static int check_result(bench *b, uint32_t i) {
    contender *c = &b->contenders[i];
    c->max_rel_err = 0;
    pleat_status status = pleat_cache_read(c->cache, 0, c->seqs, b->batch, b->q, b->result, NULL);
    if (status == PLEAT_OK) status = check_kv_head(b, c, 0);
    if (status == PLEAT_OK && b->o->kv_heads > 1) status = check_kv_head(b, c, b->o->kv_heads - 1);
    return status == PLEAT_OK ? CLI_OK : cli_fail(b->o->kv.text[i], status, NULL);
}

/* ---- times ------------------------------------------------------------------------------------- */

/* One pass over all layers; *ms for each. */
static int time_pass(bench *b, uint32_t i, double *ms) {
    contender *c = &b->contenders[i];
    pleat_status status = PLEAT_OK;
    const double start_s = cli_seconds();
    for (uint32_t layer = 0; layer < c->n_layers && status == PLEAT_OK; layer++)
        status = pleat_cache_read(c->cache, layer, c->seqs, b->batch, b->q, b->result, NULL);
    *ms = (cli_seconds() - start_s) * 1e3 / c->n_layers;
    return status == PLEAT_OK ? CLI_OK : cli_fail(b->o->kv.text[i], status, NULL);
}

/* rep -1 warms up and is not kept. */
static int time_all(bench *b) {
    int code = CLI_OK;
    double unused;
    progress_begin("bench attn", b->reps, !b->o->quiet);
    for (int rep = -1; rep < (int)b->reps && code == CLI_OK; rep++) {
        for (uint32_t i = 0; i < b->o->kv.n && code == CLI_OK; i++)
            code = time_pass(b, i, rep < 0 ? &unused : &b->contenders[i].ms[rep]);
        *(rep < 0 ? &unused : &b->gb_per_s[rep]) = bandwidth_measure(&b->memory);
        progress_update((uint64_t)(rep + 1));
    }
    progress_end();
    b->peak_gb_per_s = cli_spread_of(b->gb_per_s, b->reps).median;
    for (uint32_t i = 0; i < b->o->kv.n && code == CLI_OK; i++)
        b->contenders[i].spread = cli_spread_of(b->contenders[i].ms, b->reps);
    return code;
}

/* ---- rows -------------------------------------------------------------------------------------- */

static void add_json(bench *b, uint32_t i, uint64_t bytes, double gb_per_s, double ratio) {
    const contender *c = &b->contenders[i];
    const options *o = b->o;
    json_t *params =
        json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "kv", o->kv.text[i], "ctx", (int)b->ctx, "batch",
                  (int)b->batch, "heads", (int)o->heads, "kv_heads", (int)o->kv_heads, "head_dim", (int)o->head_dim,
                  "threads", (int)pleat_workers_count(b->workers), "layers", (int)c->n_layers, "reps", (int)b->reps);
    json_array_append_new(b->rows,
                          json_pack("{s:s, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o}", "what", "attn", "params", params,
                                    "ms", json_spread(c->spread), "bytes", (json_int_t)bytes, "gb_per_s",
                                    json_number(gb_per_s), "peak_gb_per_s", json_number(b->peak_gb_per_s),
                                    "fraction_of_peak", json_number(gb_per_s / b->peak_gb_per_s), "speed_to_first",
                                    json_number(ratio), "max_rel_err", json_number(c->max_rel_err)));
}

static void add_row(bench *b, uint32_t i) {
    const contender *c = &b->contenders[i];
    const uint64_t bytes = layer_bytes(b, b->o->kv.spec[i]);
    const double gb_per_s = (double)bytes / (c->spread.median * 1e-3) / 1e9;
    const double ratio = b->contenders[0].spread.median / c->spread.median;
    add_json(b, i, bytes, gb_per_s, ratio);
    table_put(&b->t, "%s", b->o->kv.text[i]);
    table_put(&b->t, "%u", b->ctx);
    table_put(&b->t, "%u", b->batch);
    table_put(&b->t, "%.4f", c->spread.min);
    table_put(&b->t, "%.4f", c->spread.median);
    table_put(&b->t, "%.4f", c->spread.max);
    table_put(&b->t, "%llu", (unsigned long long)bytes);
    table_put_number(&b->t, 2, gb_per_s);
    table_put_number(&b->t, 2, b->peak_gb_per_s);
    table_put_number(&b->t, 3, gb_per_s / b->peak_gb_per_s);
    table_put_number(&b->t, 2, ratio);
    table_put(&b->t, "%.1e", c->max_rel_err);
}

static void release_caches(bench *b) {
    for (uint32_t i = 0; i < b->o->kv.n; i++) {
        pleat_cache_destroy(&b->contenders[i].cache);
        free(b->contenders[i].seqs);
        free(b->contenders[i].ms);
    }
    memset(b->contenders, 0, sizeof b->contenders);
}

static int run_shape(bench *b) {
    const size_t n = (size_t)b->batch * b->o->heads * b->o->head_dim;
    cli_rng rng = {7};
    int code = CLI_OK;
    b->q = cli_alloc(n, sizeof *b->q);
    b->result = cli_alloc(n, sizeof *b->result);
    cli_rng_normal(&rng, b->q, n);
    for (uint32_t i = 0; i < b->o->kv.n && code == CLI_OK; i++) {
        code = make_cache(b, i);
        if (code == CLI_OK) code = fill_cache(b, i);
        if (code == CLI_OK) code = check_result(b, i);
    }
    if (code == CLI_OK) code = time_all(b);
    for (uint32_t i = 0; i < b->o->kv.n && code == CLI_OK; i++) add_row(b, i);
    release_caches(b);
    free(b->q);
    free(b->result);
    return code;
}

static int run_shapes(bench *b) {
    static const char *const titles[] = {"kv",    "ctx",  "batch",     "ms min",       "ms median", "ms max",
                                         "bytes", "GB/s", "peak GB/s", "part of peak", "x first",   "max rel err"};
    int code = CLI_OK;
    table_init(&b->t, titles, 12);
    b->rows = json_array();
    for (uint32_t i = 0; i < b->o->ctx.n; i++)
        for (uint32_t j = 0; j < b->o->batch.n && code == CLI_OK; j++) {
            b->ctx = b->o->ctx.v[i];
            b->batch = b->o->batch.v[j];
            code = run_shape(b);
        }
    return code;
}

static int prepare(bench *b, options *o) {
    static const char *const default_specs[] = {"f16", "k8v8", "k8v4", "k4v4", "k4v2", NULL};
    options_default_specs(o, default_specs);
    if (!o->ctx.n) o->ctx = (number_list){1, {8192}};
    if (!o->batch.n) o->batch = (number_list){1, {1}};
    if (o->heads % o->kv_heads != 0 || o->head_dim % 16 != 0) {
        cli_error("--heads %u must be a multiple of --kv-heads %u, and --head-dim %u a multiple of 16 from 16 to 512",
                  o->heads, o->kv_heads, o->head_dim);
        return CLI_USAGE;
    }
    for (uint32_t i = 0; i < o->kv.n; i++)
        if (o->kv.spec[i].policy != PLEAT_POLICY_NONE) {
            cli_error("--kv %s: this measures formats, as f16 or k8v4; `pleat bench run` measures a policy's caches",
                      o->kv.text[i]);
            return CLI_USAGE;
        }
    b->reps = o->reps ? o->reps : DEFAULT_REPS;
    b->gb_per_s = cli_alloc(b->reps, sizeof *b->gb_per_s);
    b->noise = cli_alloc(noise_floats, sizeof *b->noise);
    cli_rng rng = {1};
    cli_rng_normal(&rng, b->noise, noise_floats);
    int code = output_open(&b->out, o);
    if (code == CLI_OK) code = load_workers(o, &b->workers);
    if (code == CLI_OK) code = bandwidth_init(&b->memory, b->workers);
    return code;
}

int command_bench_attn(options *o) {
    bench b = {.o = o};
    int code = prepare(&b, o);
    if (code == CLI_OK) code = run_shapes(&b);
    if (code == CLI_OK) output_rows(&b.out, b.rows, &b.t);
    const int closed = output_close(&b.out);
    json_decref(b.rows);
    table_release(&b.t);
    bandwidth_release(&b.memory);
    pleat_workers_destroy(&b.workers);
    free(b.gb_per_s);
    free(b.noise);
    return code == CLI_OK ? closed : code;
}
