/* SPDX-License-Identifier: MIT
 *
 * cache.c: see cache.h.
 */
#include "cache.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/lib/exact.h"
#include "cli/lib/measure.h"

enum { LEAST_LAYERS = 4, MAX_LAYERS = 256, LEAST_CALLS = 8, PLANS_A_GRAPH = 20 };
enum { STEPS = 8 };        /* of a repetition: with leankv's every as many are counted as are its part of all */
enum { PAGE_SLACK = 256 }; /* slots that a side's last page, and a page taken ahead, may leave unused */

static pleat_device_schedule schedule_of(device_how how) {
    return how == HOW_LANES ? PLEAT_DEVICE_PER_LANE : PLEAT_DEVICE_EQUAL_SHARES;
}

/* Tokens that steps may add: those of repetitions, and of some to warm up. */
static uint32_t step_room(const device_cache *c) { return (c->device->reps + 8) * STEPS; }

/* ---- sizes ---------------------------------------------------------------------------------------------- */

static int is_mixed(const pleat_spec *s) { return s->policy == PLEAT_POLICY_LEANKV && s->al < s->ah; }

static uint32_t low_of(const device_shape *s, const pleat_spec *spec, uint32_t n_tokens) {
    const uint32_t n = is_mixed(spec) ? (uint32_t)(s->low_share * (float)n_tokens) : 0;
    return n < n_tokens ? n : n_tokens - 1;
}

/* Tokens of the i-th shortest of n lanes: from 2 ctx / (spread + 1) in even steps to spread times that. */
static uint32_t length_of(const device_shape *s, uint32_t i, uint32_t n) {
    const double least = 2.0 * s->ctx / (s->spread + 1.0);
    const double part = n > 1 ? (double)i / (n - 1) : 0.5;
    const double tokens = least * (1 + (s->spread - 1.0) * part);
    return tokens < 1 ? 1 : (uint32_t)(tokens + 0.5);
}

static uint32_t longest_of(const device_shape *s) {
    const uint32_t n = s->batch * s->kv_heads;
    return length_of(s, n - 1, n);
}

/* Bytes of n tokens of a lane, of which some are low; `more` bytes for each, `slack` slots on either side. */
static uint64_t tokens_bytes(const device_shape *s, const pleat_spec *spec, uint32_t n, uint32_t more, uint32_t slack) {
    const uint64_t low = low_of(s, spec, n), high = n - low;
    uint64_t bytes = (high + slack) * (pleat_format_token_bytes(spec->high, s->head_dim) + more);
    if (is_mixed(spec)) bytes += (low + slack) * (pleat_format_token_bytes(spec->low, s->head_dim) + more);
    return bytes;
}

/* Codes and metadata. */
static uint64_t bytes_of_layer(const device_shape *s, const pleat_spec *spec) {
    return tokens_bytes(s, spec, s->ctx, 0, 0) * s->batch * s->kv_heads;
}

uint32_t device_layers_for(const device_shape *s, const pleat_spec *spec, uint64_t bytes) {
    const uint64_t layer = bytes_of_layer(s, spec), n = (bytes + layer - 1) / layer;
    return n < LEAST_LAYERS ? LEAST_LAYERS : n < MAX_LAYERS ? (uint32_t)n : MAX_LAYERS;
}

/* Scores and positions take 8 bytes a token of a policy's pages; and filling a place may reserve for each of its lanes
 * what the longest needs, as high tokens. */
static uint64_t pool_bytes(const device_cache *c) {
    const device_shape *s = &c->shape;
    const uint32_t more = c->spec.policy == PLEAT_POLICY_NONE ? 0 : 8, n = s->batch * s->kv_heads;
    const uint64_t high = pleat_format_token_bytes(c->spec.high, s->head_dim) + more;
    uint64_t lanes = 0, fill_slack = (uint64_t)s->kv_heads * (longest_of(s) + PAGE_SLACK) * high;
    for (uint32_t i = 0; i < n; i++)
        lanes += tokens_bytes(s, &c->spec, length_of(s, i, n) + step_room(c), more, PAGE_SLACK);
    if (!is_mixed(&c->spec) && s->spread == 1) fill_slack = 0;
    return (lanes + fill_slack) * c->n_layers + ((uint64_t)1 << 20);
}

/* ---- filling -------------------------------------------------------------------------------------------- */

static pleat_status make(device_cache *c, pleat_error *err) {
    const device_shape *s = &c->shape;
    pleat_device_cache_options opt;
    pleat_device_cache_options_default(&opt);
    opt.spec = c->spec;
    opt.n_layers = c->n_layers;
    opt.n_kv_heads = s->kv_heads;
    opt.n_q_heads = s->kv_heads * s->group;
    opt.head_dim = s->head_dim;
    opt.max_seqs = s->batch;
    opt.max_tokens = longest_of(s) + step_room(c);
    if (opt.max_tokens < c->spec.window) opt.max_tokens = c->spec.window;
    opt.pool_bytes = pool_bytes(c);
    return pleat_device_cache_create(&opt, &c->cache, err);
}

/* A layer's lengths in a random order, the same for every spec. */
static void deal(const device_shape *s, uint32_t *lengths, measure_rng *rng) {
    const uint32_t n = s->batch * s->kv_heads;
    for (uint32_t i = 0; i < n; i++) lengths[i] = length_of(s, i, n);
    for (uint32_t i = n; i > 1; i--) {
        const uint32_t j = measure_rng_next(rng) % i, other = lengths[i - 1];
        lengths[i - 1] = lengths[j];
        lengths[j] = other;
    }
}

/* Fill sequence by sequence, from lengths[layer][seq_idx][head]. */
static pleat_status fill_seqs(device_cache *c, const uint32_t *lengths, pleat_error *err) {
    const device_shape *s = &c->shape;
    const uint32_t n_lanes = c->n_layers * s->kv_heads;
    uint32_t *n_high = cli_alloc(n_lanes, sizeof *n_high), *n_low = cli_alloc(n_lanes, sizeof *n_low);
    pleat_status status = PLEAT_OK;
    for (uint32_t seq_idx = 0; seq_idx < s->batch && status == PLEAT_OK; seq_idx++) {
        for (uint32_t lane = 0; lane < n_lanes; lane++) {
            const uint32_t layer = lane / s->kv_heads, head = lane % s->kv_heads;
            const uint32_t n = lengths[((uint64_t)layer * s->batch + seq_idx) * s->kv_heads + head];
            n_low[lane] = low_of(s, &c->spec, n);
            n_high[lane] = n - n_low[lane];
        }
        status = pleat_device_cache_fill(c->cache, seq_idx, n_high, is_mixed(&c->spec) ? n_low : NULL, 42 + seq_idx,
                                         c->device->gpu.stream, err);
        if (status == PLEAT_AGAIN) {
            snprintf(err->text, sizeof err->text, "the cache's pool is too small for what fills it");
            status = PLEAT_E_MEMORY;
        }
    }
    free(n_high);
    free(n_low);
    return status;
}

static pleat_status fill(device_cache *c, pleat_error *err) {
    const device_shape *s = &c->shape;
    const uint64_t n = (uint64_t)s->batch * s->kv_heads;
    measure_rng rng = {42};
    uint32_t *lengths = cli_alloc(c->n_layers * n, sizeof *lengths), *seq_idxs = cli_alloc(s->batch, sizeof *seq_idxs);
    for (uint32_t layer = 0; layer < c->n_layers; layer++) deal(s, lengths + layer * n, &rng);
    pleat_status status = fill_seqs(c, lengths, err);
    for (uint32_t i = 0; i < s->batch; i++) seq_idxs[i] = i;
    DEVICE_THEN(status, pleat_device_cache_set_batch(c->cache, seq_idxs, s->batch, c->device->gpu.stream, err));
    free(lengths);
    free(seq_idxs);
    return status;
}

/* ---- graphs --------------------------------------------------------------------------------------------- */

static pleat_status plan(device_cache *c, pleat_device_schedule schedule, pleat_error *err) {
    return pleat_device_cache_plan(c->cache, schedule, c->device->gpu.stream, err);
}

/* As the last plan has it. */
static pleat_status attend(device_cache *c, uint32_t layer, pleat_error *err) {
    return pleat_device_cache_attend(c->cache, layer, c->q, c->out, NULL, c->device->gpu.stream, err);
}

static pleat_status put_calls(device_cache *c, pleat_error *err) {
    pleat_status status = PLEAT_OK;
    for (uint32_t i = 0; i < c->n_calls && status == PLEAT_OK; i++) status = attend(c, i % c->n_layers, err);
    return status;
}

static pleat_status put_step(device_cache *c, pleat_error *err) {
    const device_shape *s = &c->shape;
    const size_t n = (size_t)s->batch * s->kv_heads * s->head_dim;
    void *stream = c->device->gpu.stream;
    const uint16_t *k = c->kv;
    pleat_status status = pleat_device_cache_begin(c->cache, stream, err);
    for (uint32_t i = 0; i < c->n_layers && status == PLEAT_OK; i++) {
        status = pleat_device_cache_append(c->cache, i, k, k + n, stream, err);
        DEVICE_THEN(status, attend(c, i, err));
    }
    DEVICE_THEN(status, pleat_device_cache_end(c->cache, stream, err));
    return status;
}

static pleat_status put_plans(device_cache *c, pleat_error *err) {
    pleat_status status = PLEAT_OK;
    for (int i = 0; i < PLANS_A_GRAPH && status == PLEAT_OK; i++) status = plan(c, PLEAT_DEVICE_EQUAL_SHARES, err);
    return status;
}

static pleat_status record(device_cache *c, pleat_status (*put)(device_cache *, pleat_error *), gpu_graph *graph,
                           pleat_error *err) {
    pleat_status status = gpu_graph_begin(&c->device->gpu, err);
    if (status != PLEAT_OK) return status;
    status = put(c, err);
    if (status == PLEAT_OK) return gpu_graph_end(&c->device->gpu, graph, err);
    (void)gpu_graph_end(&c->device->gpu, NULL, NULL);
    return status;
}

/* ---- error ---------------------------------------------------------------------------------------------- */

/* f16, finite. */
static float half_value(uint16_t h) {
    const int exponent = h >> 10 & 31, fraction = h & 1023;
    const float v = (float)(exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24));
    return h & 0x8000 ? -v : v;
}

/* The first and last query heads of one KV head of the last sequence; q and out as they lie on the device. */
static pleat_status check_kv_head(device_cache *c, uint32_t kv_head, const uint16_t *q, const float *out,
                                  pleat_error *err) {
    const device_shape *s = &c->shape;
    const uint32_t d = s->head_dim, stride = s->group > 1 ? s->group - 1 : 1, seq_idx = s->batch - 1;
    uint32_t n = 0;
    double ref[512];
    float query[512];
    pleat_status status = pleat_device_cache_length(c->cache, seq_idx, &n, c->device->gpu.stream, err);
    float *k = cli_alloc((size_t)n * d, sizeof *k), *v = cli_alloc((size_t)n * d, sizeof *v);
    DEVICE_THEN(status,
                pleat_device_cache_export(c->cache, seq_idx, 0, kv_head, 0, n, k, v, c->device->gpu.stream, err));
    for (uint32_t g = 0; g < s->group && status == PLEAT_OK; g += stride) {
        const size_t at = (((size_t)seq_idx * s->kv_heads + kv_head) * s->group + g) * d;
        for (uint32_t i = 0; i < d; i++) query[i] = half_value(q[at + i]);
        exact_attend(query, k, v, n, d, ref);
        exact_keep_worst(&c->max_rel_err, exact_relative_error(out + at, ref, d));
    }
    free(k);
    free(v);
    return status;
}

static pleat_status check(device_cache *c, pleat_error *err) {
    const device_shape *s = &c->shape;
    const gpu *g = &c->device->gpu;
    const size_t n = (size_t)s->batch * s->kv_heads * s->group * s->head_dim;
    uint16_t *q = cli_alloc(n, sizeof *q);
    float *out = cli_alloc(n, sizeof *out);
    c->max_rel_err = 0;
    pleat_status status = attend(c, 0, err);
    DEVICE_THEN(status, gpu_copy(g, q, c->q, n * sizeof *q, err));
    DEVICE_THEN(status, gpu_copy(g, out, c->out, n * sizeof *out, err));
    DEVICE_THEN(status, gpu_wait(g, err));
    DEVICE_THEN(status, check_kv_head(c, 0, q, out, err));
    if (s->kv_heads > 1) DEVICE_THEN(status, check_kv_head(c, s->kv_heads - 1, q, out, err));
    free(q);
    free(out);
    if (status == PLEAT_OK) return bench_device_judge(c->max_rel_err, err);
    if (status != PLEAT_E_UNSUPPORTED) return status;
    c->max_rel_err = NAN; /* such a cache does not say what it holds */
    return PLEAT_OK;
}

/* ---- the cache ------------------------------------------------------------------------------------------ */

static pleat_status make_data(device_cache *c, pleat_error *err) {
    const device_shape *s = &c->shape;
    const gpu *g = &c->device->gpu;
    const uint64_t n_kv = 2 * (uint64_t)s->batch * s->kv_heads * s->head_dim, n = n_kv / 2 * s->group;
    void *out = NULL;
    pleat_status status = gpu_alloc(&c->q, n * sizeof(uint16_t), err);
    DEVICE_THEN(status, gpu_alloc(&c->kv, n_kv * sizeof(uint16_t), err));
    DEVICE_THEN(status, gpu_alloc(&out, n * sizeof *c->out, err));
    c->out = out;
    DEVICE_THEN(status, gpu_normal_f16(g, c->q, n, 1, 7, err));
    DEVICE_THEN(status, gpu_normal_f16(g, c->kv, n_kv, 1, 8, err));
    return status;
}

/* Scores are read and written; low pages have some only where low tokens can be dropped. */
static pleat_status weigh(device_cache *c, pleat_error *err) {
    enum { SCORE_BYTES = 2 * sizeof(float) };
    pleat_device_cache_usage usage;
    const pleat_status status = pleat_device_cache_get_usage(c->cache, &usage, c->device->gpu.stream, err);
    if (status != PLEAT_OK) return status;
    c->layer_bytes = usage.bytes_attend / c->n_layers;
    if (c->spec.policy != PLEAT_POLICY_NONE)
        c->score_bytes = SCORE_BYTES * (usage.tokens_high + (c->spec.al > 0 ? usage.tokens_low : 0)) / c->n_layers /
                         (c->spec.every > 1 ? c->spec.every : 1);
    return PLEAT_OK;
}

pleat_status device_cache_init(device_cache *c, bench_device *d, const device_shape *shape, const pleat_spec *spec,
                               const char *name, uint32_t n_layers, pleat_error *err) {
    *c = (device_cache){.device = d, .shape = *shape, .name = name, .spec = *spec, .n_layers = n_layers};
    c->n_calls = n_layers > LEAST_CALLS ? n_layers : (LEAST_CALLS + n_layers - 1) / n_layers * n_layers;
    pleat_status status = make(c, err);
    DEVICE_THEN(status, make_data(c, err));
    DEVICE_THEN(status, fill(c, err));
    DEVICE_THEN(status, weigh(c, err));
    DEVICE_THEN(status, plan(c, PLEAT_DEVICE_EQUAL_SHARES, err));
    DEVICE_THEN(status, check(c, err));
    DEVICE_THEN(status, record(c, put_plans, &c->plan_graph, err));
    DEVICE_THEN(status, record(c, put_calls, &c->calls_graph, err));
    if (shape->spread == 1) DEVICE_THEN(status, record(c, put_step, &c->step_graph, err));
    return status;
}

void device_cache_release(device_cache *c) {
    gpu_graph_destroy(&c->plan_graph);
    gpu_graph_destroy(&c->calls_graph);
    gpu_graph_destroy(&c->step_graph);
    pleat_device_cache_destroy(&c->cache);
    gpu_free(c->q);
    gpu_free(c->kv);
    gpu_free(c->out);
    memset(c, 0, sizeof *c);
}

/* ---- time ----------------------------------------------------------------------------------------------- */

static pleat_status put(device_cache *c, device_how how, pleat_error *err) {
    switch (how) {
        case HOW_GRAPH: return gpu_graph_launch(&c->device->gpu, c->calls_graph, err);
        case HOW_STEP: return gpu_graph_launch(&c->device->gpu, c->step_graph, err);
        default: return put_calls(c, err);
    }
}

/* A step that was refused has done nothing. */
static pleat_status check_step(device_cache *c, pleat_error *err) {
    const pleat_status status = pleat_device_cache_wait(c->cache, c->device->gpu.stream, err);
    if (status != PLEAT_AGAIN) return status;
    snprintf(err->text, sizeof err->text, "a step's pages did not fit in the pool");
    return PLEAT_E_MEMORY;
}

pleat_status device_cache_time(device_cache *c, device_how how, double *us, pleat_error *err) {
    const gpu *g = &c->device->gpu;
    const uint32_t n_steps = how == HOW_STEP ? STEPS : 1;
    pleat_status status = PLEAT_OK;
    if (how != HOW_STEP) status = plan(c, schedule_of(how), err);
    DEVICE_THEN(status, gpu_clock_start(g, err));
    for (uint32_t i = 0; i < n_steps; i++) DEVICE_THEN(status, put(c, how, err));
    DEVICE_THEN(status, gpu_clock_stop(g, us, err));
    if (how == HOW_STEP) DEVICE_THEN(status, check_step(c, err));
    *us /= how == HOW_STEP ? n_steps * c->n_layers : c->n_calls;
    return status;
}

pleat_status device_cache_time_plan(device_cache *c, double *us, pleat_error *err) {
    const gpu *g = &c->device->gpu;
    pleat_status status = gpu_clock_start(g, err);
    DEVICE_THEN(status, gpu_graph_launch(g, c->plan_graph, err));
    DEVICE_THEN(status, gpu_clock_stop(g, us, err));
    *us /= PLANS_A_GRAPH;
    return status;
}
