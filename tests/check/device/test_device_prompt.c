/* SPDX-License-Identifier: MIT
 *
 * test_device_prompt.c: prompt attention on a GPU, and what keys receive in it, against float64 on the same f16 inputs.
 *
 * A case is some prompts, one after the other in padded rows, in buffers that end where the sizes say.  Each way
 * (mma.sync, wgmma) must keep 1e-3 in norm, write every element that is its own and none that is not, and give the
 * same bytes again, from a captured graph too.
 */
#include <stdlib.h>
#include <string.h>

#include "attn/cuda/prompt.h"
#include "check.h"
#include "core/half.h"

#define GAP 8u      /* elements between rows of padded arrays */
#define CANARY 0xA5 /* every byte of what is not written */
#define MAX_SEQS 4u

typedef struct shape {
    uint32_t n_kv_heads, n_group, d;
    uint32_t n_seqs, tokens[MAX_SEQS];
    bool out_f32;
    unsigned kind; /* of check_fill() */
    float size;
    uint32_t every; /* query that counts; 0: all do */
    bool sums_heads;
    uint32_t first_query;
} shape;

typedef struct tensor {
    void *host;
    void *device;
    uint64_t bytes;
} tensor;

typedef struct rig {
    shape s;
    uint32_t starts[MAX_SEQS + 1];
    tensor q, k, v, out, lse2, received, workspace, starts_t;
    pleat__device_prompt_attn p;
    double *want_out, *want_lse2, *want_received; /* dense */
} rig;

static const pleat__device_stream default_stream = {NULL};

static tensor tensor_new(uint64_t bytes) {
    tensor t = {calloc(1, bytes + 1), NULL, bytes};
    if (!t.host) abort();
    CHECK_STATUS(pleat__device_alloc(bytes + 16, &t.device, NULL), PLEAT_OK);
    return t;
}

static void tensor_free(tensor *t) {
    free(t->host);
    pleat__device_free(t->device);
}

static void tensor_send(const tensor *t) {
    CHECK_STATUS(pleat__device_copy(t->device, t->host, t->bytes, default_stream, NULL), PLEAT_OK);
}

static void tensor_fetch(const tensor *t) {
    CHECK_STATUS(pleat__device_copy(t->host, t->device, t->bytes, default_stream, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_wait(default_stream, NULL), PLEAT_OK);
}

static tensor tensor_f16(uint32_t n_rows, uint32_t width, uint32_t stride, unsigned kind, float size) {
    tensor t = tensor_new(((uint64_t)(n_rows - 1) * stride + width) * 2);
    memset(t.host, 0xFF, t.bytes); /* NaN between the rows */
    float *row = malloc(width * sizeof *row);
    for (uint32_t i = 0; i < n_rows; i++) {
        check_fill(row, width, kind, size);
        uint16_t *to = (uint16_t *)t.host + (uint64_t)i * stride;
        for (uint32_t c = 0; c < width; c++) to[c] = pleat__f32_to_f16(row[c]);
    }
    free(row);
    tensor_send(&t);
    return t;
}

/* ---- float64 ------------------------------------------------------------------------------------ */

static void rows_f64(double *to, const uint16_t *from, uint32_t n, uint32_t stride, uint32_t d) {
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t c = 0; c < d; c++) to[i * d + c] = pleat__f16_to_f32(from[(uint64_t)i * stride + c]);
}

/* One query of one head: its weights on keys 0..i in w, its output, its lse2. */
static double attend_one(const double *q, const double *k, const double *v, uint32_t i, uint32_t d, double scale,
                         double *w, double *out) {
    double top = -INFINITY, sum = 0;
    for (uint32_t j = 0; j <= i; j++) {
        w[j] = 0;
        for (uint32_t c = 0; c < d; c++) w[j] += q[c] * k[j * d + c];
        w[j] *= scale;
        if (w[j] > top) top = w[j];
    }
    for (uint32_t j = 0; j <= i; j++) sum += w[j] = exp(w[j] - top);
    memset(out, 0, d * sizeof *out);
    for (uint32_t j = 0; j <= i; j++) {
        w[j] /= sum;
        for (uint32_t c = 0; c < d; c++) out[c] += w[j] * v[j * d + c];
    }
    return (top + log(sum)) / log(2.0);
}

static void want_head(rig *r, uint32_t seq, uint32_t head) {
    const shape *s = &r->s;
    const uint32_t n = s->tokens[seq], d = s->d, first = r->starts[seq], n_heads = s->n_kv_heads * s->n_group;
    double *buf = malloc(((size_t)n * (3 * d + 2) + 1) * sizeof *buf), *q = buf, *k = q + n * d, *v = k + n * d;
    double *w = v + n * d, *best = w + n;
    const uint64_t at = (uint64_t)first * r->p.kv_stride + head * d;
    rows_f64(k, (uint16_t *)r->k.host + at, n, r->p.kv_stride, d);
    rows_f64(v, (uint16_t *)r->v.host + at, n, r->p.kv_stride, d);
    for (uint32_t i = 0; i < n; i++) {
        memset(best, 0, n * sizeof *best);
        for (uint32_t g = 0; g < s->n_group; g++) {
            const uint32_t h = head * s->n_group + g;
            const uint64_t row = (uint64_t)(first + i) * n_heads + h;
            rows_f64(q, (uint16_t *)r->q.host + (uint64_t)(first + i) * r->p.q_stride + h * d, 1, 0, d);
            r->want_lse2[row] = attend_one(q, k, v, i, d, (double)r->p.scale, w, r->want_out + row * d);
            for (uint32_t j = 0; j < i; j++) best[j] = s->sums_heads ? best[j] + w[j] : w[j] > best[j] ? w[j] : best[j];
        }
        const uint32_t times = s->every > 1 ? s->every : 1;
        for (uint32_t j = 0; j < i && (i + 1) % times == 0 && i >= s->first_query; j++)
            r->want_received[(uint64_t)head * r->p.n_tokens + first + j] += times * best[j];
    }
    free(buf);
}

/* ---- rigs ------------------------------------------------------------------------------------------ */

static void rig_params(rig *r) {
    const shape *s = &r->s;
    const uint32_t n_heads = s->n_kv_heads * s->n_group;
    r->p = (pleat__device_prompt_attn){.q_stride = n_heads * s->d + GAP,
                                       .kv_stride = s->n_kv_heads * s->d + GAP,
                                       .out_stride = n_heads * s->d + GAP,
                                       .n_seqs = s->n_seqs,
                                       .n_kv_heads = s->n_kv_heads,
                                       .n_group = s->n_group,
                                       .head_dim = s->d,
                                       .scale = 1.0f / sqrtf((float)s->d),
                                       .out_f32 = s->out_f32,
                                       .every = s->every,
                                       .sums_heads = s->sums_heads,
                                       .first_query = s->first_query};
    for (uint32_t i = 0; i < s->n_seqs; i++) {
        r->starts[i] = r->p.n_tokens;
        r->p.n_tokens += s->tokens[i];
        if (s->tokens[i] > r->p.max_tokens) r->p.max_tokens = s->tokens[i];
    }
    r->starts[s->n_seqs] = r->p.n_tokens;
}

static void rig_init(rig *r, const shape *s) {
    *r = (rig){.s = *s};
    rig_params(r);
    pleat__device_prompt_attn *p = &r->p;
    const uint32_t n = p->n_tokens, n_heads = s->n_kv_heads * s->n_group, width = n_heads * s->d;
    r->q = tensor_f16(n, width, p->q_stride, s->kind, s->size);
    r->k = tensor_f16(n, s->n_kv_heads * s->d, p->kv_stride, s->kind, s->size);
    r->v = tensor_f16(n, s->n_kv_heads * s->d, p->kv_stride, s->kind == 2 ? 0 : s->kind, s->size);
    r->out = tensor_new(((uint64_t)(n - 1) * p->out_stride + width) * (s->out_f32 ? 4 : 2));
    r->lse2 = tensor_new((uint64_t)n * n_heads * 4);
    r->received = tensor_new((uint64_t)n * s->n_kv_heads * 4);
    p->q = r->q.device, p->k = r->k.device, p->v = r->v.device;
    p->out = r->out.device, p->lse2 = r->lse2.device, p->received = r->received.device;
    r->workspace = tensor_new(pleat__device_prompt_attn_workspace(p) + 16);
    p->workspace = r->workspace.device;
    r->starts_t = tensor_new(sizeof r->starts);
    memcpy(r->starts_t.host, r->starts, sizeof r->starts);
    tensor_send(&r->starts_t);
    p->starts = s->n_seqs > 1 ? r->starts_t.device : NULL;
    r->want_out = calloc((size_t)n * width, sizeof(double));
    r->want_lse2 = calloc((size_t)n * n_heads, sizeof(double));
    r->want_received = calloc((size_t)n * s->n_kv_heads, sizeof(double));
    for (uint32_t i = 0; i < s->n_seqs; i++)
        for (uint32_t h = 0; h < s->n_kv_heads; h++) want_head(r, i, h);
}

static void rig_free(rig *r) {
    tensor *all[] = {&r->q, &r->k, &r->v, &r->out, &r->lse2, &r->received, &r->workspace, &r->starts_t};
    for (size_t i = 0; i < CHECK_COUNT(all); i++) tensor_free(all[i]);
    free(r->want_out);
    free(r->want_lse2);
    free(r->want_received);
}

static double got_out(const rig *r, uint64_t row, uint32_t c) {
    const uint64_t at = row * r->p.out_stride + c;
    return r->s.out_f32 ? (double)((float *)r->out.host)[at] : (double)pleat__f16_to_f32(((uint16_t *)r->out.host)[at]);
}

/* Norm of the difference over the norm of what is wanted, or the former where the latter is 0. */
static double relative(double error, double norm) { return sqrt(error) / (norm > 0 ? sqrt(norm) : 1); }

static double out_error(const rig *r) {
    const uint32_t width = r->s.n_kv_heads * r->s.n_group * r->s.d;
    double error = 0, norm = 0;
    for (uint64_t t = 0; t < r->p.n_tokens; t++) {
        for (uint32_t c = 0; c < width; c++) {
            const double want = r->want_out[t * width + c], e = got_out(r, t, c) - want;
            error += e * e;
            norm += want * want;
        }
    }
    return relative(error, norm);
}

static double f32_error(const float *got, const double *want, uint64_t n) {
    double error = 0, norm = 0;
    for (uint64_t i = 0; i < n; i++) {
        error += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        norm += want[i] * want[i];
    }
    return relative(error, norm);
}

static bool gaps_are_whole(const rig *r) {
    const uint32_t size = r->s.out_f32 ? 4 : 2, width = r->s.n_kv_heads * r->s.n_group * r->s.d * size;
    const uint8_t *out = r->out.host;
    for (uint64_t t = 0; t + 1 < r->p.n_tokens; t++)
        for (uint32_t i = width; i < r->p.out_stride * size; i++)
            if (out[t * r->p.out_stride * size + i] != CANARY) return false;
    return true;
}

/* Poison what is written, run, fetch.  False: this GPU has no such way. */
static bool rig_run(rig *r, pleat__device_prompt_kernel kernel, pleat__device_graph *graph,
                    pleat__device_stream stream) {
    const tensor *written[] = {&r->out, &r->lse2, &r->received, &r->workspace};
    for (size_t i = 0; i < CHECK_COUNT(written); i++)
        CHECK_STATUS(pleat__device_fill(written[i]->device, CANARY, written[i]->bytes, stream, NULL), PLEAT_OK);
    r->p.kernel = kernel;
    pleat_error err = {0};
    if (graph) {
        CHECK_STATUS(pleat__device_graph_launch(*graph, stream, &err), PLEAT_OK);
    } else {
        const pleat_status st = pleat__device_prompt_attn_run(&r->p, stream, &err);
        if (kernel >= PLEAT__PROMPT_WGMMA && strstr(err.text, "has no wgmma")) return false;
        CHECK_STATUS(st, PLEAT_OK);
    }
    CHECK_STATUS(pleat__device_wait(stream, &err), PLEAT_OK);
    for (size_t i = 0; i < 3; i++) tensor_fetch(written[i]);
    return true;
}

static void rig_check(rig *r, pleat__device_prompt_kernel kernel) {
    const shape *s = &r->s;
    const uint32_t n = r->p.n_tokens, n_heads = s->n_kv_heads * s->n_group;
    check_context("way %d, %u tokens (%u, %u, %u), %u x %u heads of %u, f32 %d, fill %u", (int)kernel, n, s->tokens[0],
                  s->tokens[1], s->tokens[2], s->n_kv_heads, s->n_group, s->d, s->out_f32, s->kind);
    if (!rig_run(r, kernel, NULL, default_stream)) return;
    CHECK_NEAR(out_error(r), 0, 1e-3);
    CHECK_NEAR_ALL((float[]){(float)f32_error(r->lse2.host, r->want_lse2, (uint64_t)n * n_heads)}, (float[]){0}, 1,
                   1e-5, 0);
    CHECK_NEAR(f32_error(r->received.host, r->want_received, (uint64_t)n * s->n_kv_heads), 0, 1e-3);
    CHECK(gaps_are_whole(r));
    tensor again[3] = {tensor_new(r->out.bytes), tensor_new(r->lse2.bytes), tensor_new(r->received.bytes)};
    const tensor *written[] = {&r->out, &r->lse2, &r->received};
    for (size_t i = 0; i < 3; i++) memcpy(again[i].host, written[i]->host, again[i].bytes);
    rig_run(r, kernel, NULL, default_stream);
    for (size_t i = 0; i < 3; i++) {
        CHECK_EQ_MEM(again[i].host, written[i]->host, again[i].bytes);
        tensor_free(&again[i]);
    }
}

static void check_shape(const shape *s) {
    rig r;
    rig_init(&r, s);
    for (int kernel = PLEAT__PROMPT_BEST; kernel <= PLEAT__PROMPT_PAIRS; kernel++)
        rig_check(&r, (pleat__device_prompt_kernel)kernel);
    rig_free(&r);
}

/* ---- tests ----------------------------------------------------------------------------------------- */

static void test_lengths(void) {
    CHECK_DEVICE();
    static const uint32_t lengths[] = {1, 2, 63, 64, 65, 127, 128, 129, 191, 192, 193, 255, 256, 257, 300, 385};
    for (size_t i = 0; i < CHECK_COUNT(lengths); i += check_cases(1, 5))
        check_shape(&(shape){2, 2, i % 3 ? 128 : 64, 1, {lengths[i]}, i % 2, 0, 1});
}

static void test_groups(void) {
    CHECK_DEVICE();
    for (uint32_t g = 1; g <= 8; g += (uint32_t)check_cases(1, 3))
        check_shape(&(shape){(uint32_t)check_between(1, 3),
                             g,
                             g % 2 ? 128 : 64,
                             1,
                             {(uint32_t)check_between(130, 280)},
                             check_below(2),
                             0,
                             1.5f});
}

static void test_several(void) {
    CHECK_DEVICE();
    check_shape(&(shape){2, 4, 128, 4, {1, 130, 0, 257}, false, 0, 1});
    check_shape(&(shape){1, 3, 64, 3, {200, 64, 129}, true, 0, 1});
    check_shape(&(shape){2, 1, 128, 3, {0, 5, 320}, false, 0, 2});
}

/* The group's heads added up, and what a prompt's last queries alone attend to. */
static void test_sums_and_last_queries(void) {
    CHECK_DEVICE();
    static const uint32_t last[] = {1, 5, 16, 32, 33, 64, 200};
    for (size_t i = 0; i < CHECK_COUNT(last); i++) {
        const uint32_t n = 70 + (uint32_t)check_between(131, 300), d = i % 2 ? 64 : 128;
        check_shape(&(shape){2, 1 + (uint32_t)i, d, 1, {n}, false, 0, 1.5f, 0, true, n - last[i]});
        check_shape(&(shape){2, 1 + (uint32_t)i, d, 1, {n}, false, 0, 1.5f, 0, i % 2, i % 3 ? 0 : n - last[i]});
    }
    check_shape(&(shape){1, 3, 128, 1, {1100}, false, 0, 1, 0, true, 0});
    check_shape(&(shape){1, 2, 64, 1, {1100}, false, 0, 1, 0, true, 1100 - 64});
}

/* Extremes: logits up to thousands, equal keys, one outlier. */
static void test_fills(void) {
    CHECK_DEVICE();
    for (unsigned kind = 0; kind < CHECK_N_FILLS; kind += (unsigned)check_cases(1, 3))
        for (uint32_t d = 64; d <= 128; d += 64)
            check_shape(&(shape){1, 2, d, 1, {(uint32_t)check_between(150, 270)}, true, kind, kind ? 3 : 8});
}

/* Enough queries for several splits. */
static void test_long(void) {
    CHECK_DEVICE();
    check_shape(&(shape){1, 2, 128, 1, {1100}, false, 0, 1});
    if (check_cases(1, 0)) check_shape(&(shape){2, 1, 64, 2, {900, 700}, false, 0, 1});
}

/* Keys may receive from every eighth query alone. */
static void test_some_queries(void) {
    CHECK_DEVICE();
    static const uint32_t lengths[] = {1, 7, 8, 9, 128, 135, 136, 257, 1023, 1100};
    for (size_t i = 0; i < CHECK_COUNT(lengths); i++)
        for (uint32_t every = 2; every <= 8; every *= 2)
            check_shape(&(shape){1 + i % 2, 1 + i % 4, i % 3 ? 128 : 64, 1, {lengths[i]}, i % 2, 0, 1, every});
    check_shape(&(shape){1, 2, 128, 1, {5000}, false, 0, 1, 8});
    check_shape(&(shape){1, 1, 64, 1, {700}, false, 0, 1, 128});
}

/* With one head a KV head, weights on others and on itself sum to 1 for each query. */
static void test_sum(void) {
    CHECK_DEVICE();
    rig r;
    rig_init(&r, &(shape){2, 1, 128, 1, {601}, false, 0, 1});
    rig_run(&r, PLEAT__PROMPT_BEST, NULL, default_stream);
    double received = 0, self = 0;
    for (uint32_t i = 0; i < 2 * 601; i++) received += (double)((float *)r.received.host)[i];
    for (uint32_t t = 0; t < 601; t++) {
        for (uint32_t h = 0; h < 2; h++) {
            const uint16_t *q = (uint16_t *)r.q.host + t * r.p.q_stride + h * 128;
            const uint16_t *k = (uint16_t *)r.k.host + t * r.p.kv_stride + h * 128;
            double dot = 0;
            for (uint32_t c = 0; c < 128; c++) dot += (double)pleat__f16_to_f32(q[c]) * (double)pleat__f16_to_f32(k[c]);
            self += exp2(dot * (double)r.p.scale / log(2.0) - (double)((float *)r.lse2.host)[t * 2 + h]);
        }
    }
    CHECK_NEAR((received + self) / (2 * 601), 1, 1e-5);
    rig_free(&r);
}

/* A chunk's queries, from n_past on, have the bits that they have in the whole prompt. */
static void check_chunk(rig *r, pleat__device_prompt_kernel kernel, uint32_t n_past) {
    const pleat__device_prompt_attn whole = r->p;
    const uint64_t out_at = (uint64_t)n_past * whole.out_stride * 2,
                   lse2_at = (uint64_t)n_past * r->s.n_kv_heads * r->s.n_group * 4;
    tensor *written[] = {&r->out, &r->lse2};
    void *before[2];
    for (size_t i = 0; i < 2; i++) {
        before[i] = malloc(written[i]->bytes);
        memcpy(before[i], written[i]->host, written[i]->bytes);
        CHECK_STATUS(pleat__device_fill(written[i]->device, CANARY, written[i]->bytes, default_stream, NULL), PLEAT_OK);
    }
    r->p.q += (uint64_t)n_past * whole.q_stride;
    r->p.out = (uint8_t *)whole.out + out_at;
    r->p.lse2 += lse2_at / 4;
    r->p.n_past = n_past;
    r->p.n_tokens = r->p.max_tokens = whole.n_tokens - n_past;
    r->p.received = NULL;
    r->p.kernel = kernel;
    CHECK_STATUS(pleat__device_prompt_attn_run(&r->p, default_stream, NULL), PLEAT_OK);
    for (size_t i = 0; i < 2; i++) tensor_fetch(written[i]);
    check_context("way %d, %u tokens behind %u", (int)kernel, r->p.n_tokens, n_past);
    CHECK(gaps_are_whole(r));
    CHECK_EQ_MEM((uint8_t *)r->out.host + out_at, (uint8_t *)before[0] + out_at, r->out.bytes - out_at);
    CHECK_EQ_MEM((uint8_t *)r->lse2.host + lse2_at, (uint8_t *)before[1] + lse2_at, r->lse2.bytes - lse2_at);
    for (uint64_t i = 0; i < lse2_at; i++) /* nothing before the chunk is written */
        if (!CHECK(((uint8_t *)r->lse2.host)[i] == CANARY)) break;
    for (size_t i = 0; i < 2; i++) {
        memcpy(written[i]->host, before[i], written[i]->bytes);
        free(before[i]);
    }
    r->p = whole;
}

static void test_chunks(void) {
    CHECK_DEVICE();
    static const uint32_t pasts[] = {1, 17, 63, 64, 127, 128, 129, 200, 256, 300, 383, 384};
    for (uint32_t d = 64; d <= 128; d += 64)
        for (int kernel = PLEAT__PROMPT_MMA; kernel <= PLEAT__PROMPT_PAIRS; kernel++) {
            rig r;
            rig_init(&r, &(shape){2, 2, d, 1, {385}, false, 0, 2});
            for (size_t i = 0;
                 rig_run(&r, (pleat__device_prompt_kernel)kernel, NULL, default_stream) && i < CHECK_COUNT(pasts);
                 i += check_cases(1, 4))
                check_chunk(&r, (pleat__device_prompt_kernel)kernel, pasts[i]);
            rig_free(&r);
        }
}

static void test_graph(void) {
    CHECK_DEVICE();
    rig r;
    rig_init(&r, &(shape){2, 4, 128, 2, {200, 333}, false, 0, 1});
    pleat__device_stream stream;
    pleat__device_graph graph;
    CHECK_STATUS(pleat__device_stream_create(&stream, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_graph_begin(stream, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_prompt_attn_run(&r.p, stream, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_graph_end(stream, &graph, NULL), PLEAT_OK);
    rig_run(&r, PLEAT__PROMPT_BEST, &graph, stream);
    CHECK_NEAR(out_error(&r), 0, 1e-3);
    CHECK_NEAR(f32_error(r.received.host, r.want_received, (uint64_t)r.p.n_tokens * 2), 0, 1e-3);
    pleat__device_graph_destroy(&graph);
    pleat__device_stream_destroy(&stream);
    rig_free(&r);
}

/* NaN in a prompt stays in it. */
static void test_neighbours(void) {
    CHECK_DEVICE();
    rig r;
    rig_init(&r, &(shape){1, 2, 128, 3, {150, 60, 90}, false, 0, 1});
    const tensor *in[] = {&r.q, &r.k, &r.v};
    for (size_t i = 0; i < 3; i++) {
        const uint32_t stride = i ? r.p.kv_stride : r.p.q_stride;
        memset((uint16_t *)in[i]->host + (uint64_t)150 * stride, 0xFF, (uint64_t)60 * stride * 2);
        tensor_send(in[i]);
    }
    for (int kernel = PLEAT__PROMPT_BEST; kernel <= PLEAT__PROMPT_MMA; kernel++) {
        check_context("way %d", kernel);
        rig_run(&r, (pleat__device_prompt_kernel)kernel, NULL, default_stream);
        bool finite = true, nan = true;
        for (uint32_t t = 0; t < 300; t++) {
            bool *all = t >= 150 && t < 210 ? &nan : &finite;
            for (uint32_t c = 0; c < 256; c++) *all &= isnan(got_out(&r, t, c)) ? all == &nan : all == &finite;
            if (all == &finite) *all &= isfinite(((float *)r.received.host)[t]) != 0;
        }
        CHECK(finite);
        CHECK(nan);
    }
    rig_free(&r);
}

/* Without pass 2; misuse launches nothing. */
static void test_arguments(void) {
    CHECK_DEVICE();
    rig r;
    rig_init(&r, &(shape){2, 2, 64, 1, {70}, false, 0, 1});
    const pleat__device_prompt_attn good = r.p;
    r.p.received = NULL;
    CHECK_EQ_U64(pleat__device_prompt_attn_workspace(&r.p), 0);
    rig_run(&r, PLEAT__PROMPT_BEST, NULL, default_stream);
    CHECK_NEAR(out_error(&r), 0, 1e-3);
    CHECK_EQ_U64(((uint32_t *)r.received.host)[0], 0xA5A5A5A5u);
    pleat__device_prompt_attn bad[11];
    for (size_t i = 0; i < CHECK_COUNT(bad); i++) bad[i] = good;
    bad[0].head_dim = 96;
    bad[1].n_group = 9;
    bad[2].n_group = 0;
    bad[3].n_seqs = 2; /* without starts */
    bad[4].max_tokens = 71;
    bad[5].scale = NAN;
    bad[6].q_stride++;
    bad[7].k = good.k + 1;
    bad[8].lse2 = NULL;
    bad[9].max_tokens = 0;
    bad[10].out_stride = 3 * 64;
    for (size_t i = 0; i < CHECK_COUNT(bad); i++) {
        pleat_error err = {0};
        check_context("bad %d", (int)i);
        CHECK_STATUS(pleat__device_prompt_attn_run(&bad[i], default_stream, &err), PLEAT_E_ARG);
        CHECK(err.text[0] != 0);
    }
    r.p = good;
    r.p.n_tokens = 0;
    CHECK_STATUS(pleat__device_prompt_attn_run(&r.p, default_stream, NULL), PLEAT_OK);
    rig_free(&r);
}

static void test_failed_launch(void) {
    CHECK_DEVICE();
    rig r;
    rig_init(&r, &(shape){1, 1, 128, 1, {300}, false, 0, 1});
    uint64_t nth = 1;
    for (pleat_status st = PLEAT_E_DEVICE; st != PLEAT_OK && nth < 20; nth++) {
        pleat__device_fail_at(nth);
        st = pleat__device_prompt_attn_run(&r.p, default_stream, NULL);
        if (st != PLEAT_OK) CHECK_STATUS(st, PLEAT_E_DEVICE);
    }
    pleat__device_fail_at(0);
    CHECK(nth > 3 && nth < 20);
    CHECK_STATUS(pleat__device_wait(default_stream, NULL), PLEAT_OK);
    rig_free(&r);
}

static const check_test tests[] = {
    {"lengths", test_lengths},
    {"groups", test_groups},
    {"several", test_several},
    {"sums over heads, and last queries", test_sums_and_last_queries},
    {"fills", test_fills},
    {"long", test_long},
    {"some_queries", test_some_queries},
    {"sum", test_sum},
    {"chunks", test_chunks},
    {"graph", test_graph},
    {"neighbours", test_neighbours},
    {"arguments", test_arguments},
    {"failed_launch", test_failed_launch},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
