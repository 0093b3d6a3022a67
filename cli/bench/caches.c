/* SPDX-License-Identifier: MIT
 *
 * caches.c: see caches.h.
 */
#include "caches.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/lib/exact.h"
#include "cli/lib/measure.h"

/* A step's keys and values are taken from anywhere in the noise; it stays in the cores' own caches. */
enum { NOISE_FLOATS = 1 << 19, STEP_FLOATS = NOISE_FLOATS / 4, STEP_TOKENS = 512, MAX_LAYERS = 1000 };

/* Of each layer, for statistics of the noise: its deviations are within a twentieth. */
enum { STATS_TOKENS = 512 };

void bench_noise_init(bench_noise *noise) {
    measure_rng rng = {1};
    noise->n = NOISE_FLOATS;
    noise->v = cli_alloc(noise->n, sizeof *noise->v);
    measure_rng_normal(&rng, noise->v, noise->n);
}

void bench_noise_release(bench_noise *noise) {
    free(noise->v);
    noise->v = NULL;
}

static double bits_of_step(float rel) { return ceil(log2(round(1 / (double)rel) + 1)); }

/* Of a token that has been compressed: codes, and at most a quarter byte a dimension for minimums and steps (kivi's). */
static uint64_t compressed_token_bytes(pleat_spec spec, uint32_t head_dim) {
    const int is_kivi = spec.compressor == PLEAT_COMPRESSOR_KIVI;
    const double bits = is_kivi ? 2.0 * spec.bits : bits_of_step(spec.k) + bits_of_step(spec.v);
    return (uint64_t)(bits / 8 * head_dim) + head_dim / 4;
}

uint64_t bench_layer_bytes(const bench_shape *s, pleat_spec spec) {
    const uint64_t bytes = pleat_format_token_bytes(spec.high, s->head_dim);
    uint64_t lane_bytes = bytes * s->ctx;
    const uint32_t n_kept = spec.sinks + spec.buffer;
    if (spec.compressor != PLEAT_COMPRESSOR_NONE && s->ctx > n_kept)
        lane_bytes = bytes * n_kept + compressed_token_bytes(spec, s->head_dim) * (s->ctx - n_kept);
    return lane_bytes * s->batch * s->kv_heads;
}

uint32_t bench_layers_for(const bench_shape *shape, pleat_spec spec, uint64_t bytes) {
    const uint64_t layer = bench_layer_bytes(shape, spec), n = (bytes + layer - 1) / layer;
    return n < 1 ? 1 : n < MAX_LAYERS ? (uint32_t)n : MAX_LAYERS;
}

static pleat_cache_options options_of(const bench_cache *c, pleat_workers *workers) {
    const bench_shape *s = &c->shape;
    pleat_cache_options opt;
    pleat_cache_options_default(&opt);
    opt.n_layers = c->n_layers;
    opt.n_kv_heads = s->kv_heads;
    opt.n_q_heads = s->kv_heads * s->group;
    opt.head_dim = s->head_dim;
    opt.workers = workers;
    opt.ropes = c->ropes;
    return opt;
}

/* ---- statistics -------------------------------------------------------------------------------- */

/* Every layer attends to n tokens of noise more. */
static pleat_status attend_to_noise(const bench_cache *c, pleat_cache *cache, pleat_seq seq, uint32_t n, float *out,
                                    measure_rng *rng) {
    const pleat_cache_item item = {.seq = seq, .n_tokens = n};
    const size_t n_floats = (size_t)n * c->shape.kv_heads * c->shape.group * c->shape.head_dim;
    pleat_status status = pleat_cache_begin(cache, &item, 1);
    for (uint32_t layer = 0; layer < c->n_layers && status == PLEAT_OK; layer++) {
        const float *from[3];
        for (uint32_t i = 0; i < 3; i++) from[i] = c->noise->v + measure_rng_next(rng) % (c->noise->n - n_floats + 1);
        status = pleat_cache_attend(cache, layer, from[0], from[1], from[2], out);
    }
    return status == PLEAT_OK ? pleat_cache_end(cache) : status;
}

/* A collector's pass over a sequence of noise. */
static pleat_status collect_pass(const bench_cache *c, pleat_cache *cache) {
    const size_t row = (size_t)c->shape.kv_heads * c->shape.group * c->shape.head_dim, fit = c->noise->n / 2 / row;
    const uint32_t chunk = fit < STEP_TOKENS ? (uint32_t)(fit ? fit : 1) : STEP_TOKENS;
    float *out = cli_alloc(chunk * row, sizeof *out);
    measure_rng rng = {3};
    pleat_seq seq;
    pleat_status status = pleat_cache_open(cache, STATS_TOKENS, &seq);
    for (uint32_t done = 0, n; done < STATS_TOKENS && status == PLEAT_OK; done += n) {
        n = STATS_TOKENS - done < chunk ? STATS_TOKENS - done : chunk;
        status = attend_to_noise(c, cache, seq, n, out, &rng);
    }
    free(out);
    return status == PLEAT_OK ? pleat_cache_close(cache, seq) : status;
}

/* Keys turn by position as those of a model do. */
static void make_ropes(bench_cache *c) {
    const uint32_t d = c->shape.head_dim;
    c->frequencies = cli_alloc(d / 2, sizeof *c->frequencies);
    c->ropes = cli_alloc(c->n_layers, sizeof *c->ropes);
    for (uint32_t i = 0; i < d / 2; i++) c->frequencies[i] = pow(10000, -2.0 * i / d);
    c->rope = (pleat_rope){d, 1, 1, c->frequencies};
    for (uint32_t i = 0; i < c->n_layers; i++) c->ropes[i] = &c->rope;
}

/* What rd knows of a model it knows of the noise here: statistics as `pleat stats` makes them of a text. */
static int collect(bench_cache *c, pleat_workers *workers) {
    make_ropes(c);
    pleat_cache_options opt = options_of(c, workers);
    pleat_cache *cache = NULL;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_status status = pleat_collector_create(NULL, &opt.collector);
    opt.max_seqs = 1;
    opt.max_tokens = opt.step_tokens = STATS_TOKENS;
    if (status == PLEAT_OK) status = pleat_cache_create(&opt, &cache, &err);
    if (status == PLEAT_OK) status = collect_pass(c, cache);
    if (status == PLEAT_OK) status = pleat_collector_count(opt.collector, 8192);
    if (status == PLEAT_OK) status = collect_pass(c, cache);
    if (status == PLEAT_OK)
        status = pleat_collector_finish(opt.collector, "00000000000000000000000000000000", &c->stats);
    pleat_cache_destroy(&cache);
    pleat_collector_destroy(&opt.collector);
    return status == PLEAT_OK ? CLI_OK : cli_fail(c->name, status, &err);
}

/* ---- filling ----------------------------------------------------------------------------------- */

static int make(bench_cache *c, pleat_workers *workers) {
    const bench_shape *s = &c->shape;
    pleat_cache_options opt = options_of(c, workers);
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    opt.spec = c->spec;
    opt.stats = c->stats;
    opt.max_seqs = s->batch;
    opt.max_tokens = s->ctx;
    opt.step_tokens = STEP_TOKENS;
    pleat_status status = pleat_cache_create(&opt, &c->cache, &err);
    if (status != PLEAT_OK) return cli_fail(c->name, status, &err);
    for (uint32_t i = 0; i < s->batch && status == PLEAT_OK; i++)
        status = pleat_cache_open(c->cache, s->ctx, &c->seqs[i]);
    return status == PLEAT_OK ? CLI_OK : cli_fail(c->name, status, NULL);
}

/* Store n tokens in every layer of one sequence. */
static pleat_status fill_chunk(bench_cache *c, pleat_seq seq, uint32_t n, measure_rng *rng) {
    const pleat_cache_item item = {.seq = seq, .n_tokens = n};
    const size_t n_floats = (size_t)n * c->shape.kv_heads * c->shape.head_dim, room = c->noise->n - n_floats + 1;
    pleat_status status = pleat_cache_begin(c->cache, &item, 1);
    for (uint32_t layer = 0; layer < c->n_layers && status == PLEAT_OK; layer++) {
        const float *k = c->noise->v + measure_rng_next(rng) % room, *v = c->noise->v + measure_rng_next(rng) % room;
        status = pleat_cache_store(c->cache, layer, k, v);
    }
    return status == PLEAT_OK ? pleat_cache_end(c->cache) : status;
}

static int fill(bench_cache *c) {
    const size_t fit = STEP_FLOATS / ((size_t)c->shape.kv_heads * c->shape.head_dim);
    const uint32_t chunk = fit < STEP_TOKENS ? (uint32_t)(fit ? fit : 1) : STEP_TOKENS;
    measure_rng rng = {42}; /* the same data for every spec */
    pleat_status status = PLEAT_OK;
    for (uint32_t s = 0; s < c->shape.batch; s++)
        for (uint32_t done = 0, n; done < c->shape.ctx && status == PLEAT_OK; done += n) {
            n = c->shape.ctx - done < chunk ? c->shape.ctx - done : chunk;
            status = fill_chunk(c, c->seqs[s], n, &rng);
        }
    return status == PLEAT_OK ? CLI_OK : cli_fail(c->name, status, NULL);
}

/* What is held is what is read: blocks, tokens that are none yet, codebooks and tables. */
static int weigh(bench_cache *c) {
    pleat_cache_usage usage;
    c->layer_bytes = bench_layer_bytes(&c->shape, c->spec);
    if (c->spec.compressor == PLEAT_COMPRESSOR_NONE) return CLI_OK;
    const pleat_status status = pleat_cache_get_usage(c->cache, (pleat_seq){0}, &usage);
    if (status != PLEAT_OK) return cli_fail(c->name, status, NULL);
    c->layer_bytes = usage.bytes / c->n_layers;
    return CLI_OK;
}

int bench_cache_init(bench_cache *c, const bench_shape *shape, pleat_spec spec, const char *name, uint32_t n_layers,
                     const bench_noise *noise, pleat_workers *workers) {
    const size_t n = (size_t)shape->batch * shape->kv_heads * shape->group * shape->head_dim;
    measure_rng rng = {7};
    *c = (bench_cache){.shape = *shape, .noise = noise, .name = name, .spec = spec, .n_layers = n_layers};
    if ((size_t)shape->kv_heads * shape->head_dim > noise->n) {
        cli_error("%u KV heads of %u dimensions: at most %zu values in a token", shape->kv_heads, shape->head_dim,
                  noise->n);
        return CLI_FAILED;
    }
    c->seqs = cli_alloc(shape->batch, sizeof *c->seqs);
    c->q = cli_alloc(n, sizeof *c->q);
    c->result = cli_alloc(n, sizeof *c->result);
    measure_rng_normal(&rng, c->q, n);
    int code = spec.compressor == PLEAT_COMPRESSOR_RD ? collect(c, workers) : CLI_OK;
    if (code == CLI_OK) code = make(c, workers);
    if (code == CLI_OK) code = fill(c);
    return code == CLI_OK ? weigh(c) : code;
}

void bench_cache_release(bench_cache *c) {
    pleat_cache_destroy(&c->cache);
    pleat_stats_destroy(&c->stats);
    free((void *)c->ropes);
    free(c->frequencies);
    free(c->seqs);
    free(c->q);
    free(c->result);
    memset(c, 0, sizeof *c);
}

/* ---- time -------------------------------------------------------------------------------------- */

int bench_cache_time(bench_cache *c, uint32_t n_passes, double *ms) {
    pleat_status status = PLEAT_OK;
    const double start_s = measure_now_s();
    for (uint32_t pass = 0; pass < n_passes; pass++)
        for (uint32_t layer = 0; layer < c->n_layers && status == PLEAT_OK; layer++)
            status = pleat_cache_read(c->cache, layer, c->seqs, c->shape.batch, c->q, c->result, NULL);
    *ms = (measure_now_s() - start_s) * 1e3 / c->n_layers / n_passes;
    return status == PLEAT_OK ? CLI_OK : cli_fail(c->name, status, NULL);
}

/* ---- error ------------------------------------------------------------------------------------- */

/* Compare the first and last query heads of one KV head of the last sequence with the reference. */
static pleat_status check_kv_head(bench_cache *c, uint32_t kv_head, double *worst) {
    const bench_shape *s = &c->shape;
    const uint32_t dim = s->head_dim, seq = s->batch - 1, stride = s->group > 1 ? s->group - 1 : 1;
    float *k = cli_alloc((size_t)s->ctx * dim, sizeof *k), *v = cli_alloc((size_t)s->ctx * dim, sizeof *v);
    double *ref = cli_alloc(dim, sizeof *ref);
    const pleat_status status = pleat_cache_export(c->cache, c->seqs[seq], 0, kv_head, 0, s->ctx, k, v);
    for (uint32_t g = 0; g < s->group && status == PLEAT_OK; g += stride) {
        const size_t at = (((size_t)seq * s->kv_heads + kv_head) * s->group + g) * dim;
        exact_attend(c->q + at, k, v, s->ctx, dim, ref);
        exact_keep_worst(worst, exact_relative_error(c->result + at, ref, dim));
    }
    free(k);
    free(v);
    free(ref);
    return status;
}

int bench_cache_check(bench_cache *c, double *max_rel_err) {
    *max_rel_err = 0;
    pleat_status status = pleat_cache_read(c->cache, 0, c->seqs, c->shape.batch, c->q, c->result, NULL);
    if (status == PLEAT_OK) status = check_kv_head(c, 0, max_rel_err);
    if (status == PLEAT_OK && c->shape.kv_heads > 1) status = check_kv_head(c, c->shape.kv_heads - 1, max_rel_err);
    return status == PLEAT_OK ? CLI_OK : cli_fail(c->name, status, NULL);
}
