/* SPDX-License-Identifier: MIT
 *
 * test_device_calls.c: device caches as their callers see them.  Attention against float64 and what it adds to scores,
 * a step in a graph against the same step launched, calls out of turn, refusals, what a cache tells of itself, misuse,
 * failures of the runtime.  test_device_cache.c holds what prompts and steps do to pages.
 */
#include <math.h>

#include "device_cache_rig.h"

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* What is live in a lane of `now`, dequantised. */
typedef struct lane_tokens {
    uint32_t n;
    float *k, *v;   /* [n][d] */
    float **scores; /* [n] where a slot's score is; NULL: it has none */
} lane_tokens;

static lane_tokens tokens_of(const rig *r, const image *m, uint32_t row) {
    const uint32_t cap = m->n_slots[0][row] + m->n_slots[1][row];
    lane_tokens t = {0, must_alloc(cap * r->d * 4), must_alloc(cap * r->d * 4), must_alloc(cap * sizeof(float *))};
    for (int side = 0; side < 2; side++) {
        const pleat__page_layout *l = &r->cache->lanes.layouts[side];
        for (uint32_t slot = 0; slot < m->n_slots[side][row]; slot++) {
            const slot_at at = slot_of(r, m, row, side, slot);
            if (l->tracked && pleat__positions(l, at.page)[at.slot] < 0) continue;
            pleat__quant_load_token(l, at.page, at.slot, t.k + t.n * r->d, t.v + t.n * r->d);
            t.scores[t.n++] = l->tracked ? pleat__scores(l, at.page) + at.slot : NULL;
        }
    }
    return t;
}

/* Attention of one query in double precision; weights[n] become the largest of theirs and these. */
static void attend_exactly(const rig *r, const lane_tokens *t, const float *q, double *out, double *weights) {
    double sum = 0, *w = must_alloc(t->n * sizeof *w);
    for (uint32_t i = 0; i < t->n; i++) {
        for (uint32_t j = 0; j < r->d; j++) w[i] += (double)q[j] * (double)t->k[i * r->d + j];
        sum += w[i] = exp(w[i] / sqrt(r->d));
    }
    memset(out, 0, r->d * sizeof *out);
    for (uint32_t i = 0; i < t->n; i++) {
        w[i] /= sum;
        weights[i] = fmax(weights[i], w[i]);
        for (uint32_t j = 0; j < r->d; j++) out[j] += w[i] * (double)t->v[i * r->d + j];
    }
    free(w);
}

static void check_attention(rig *r, uint32_t layer, const uint32_t *batch, uint32_t n_seqs) {
    const uint32_t n_q = HEADS * GROUP * r->d;
    uint16_t *q = must_alloc(n_seqs * n_q * 2);
    float *out = must_alloc(n_seqs * n_q * 4), x[128];
    double want[128], diff = 0, norm = 0, score_diff = 0, score_norm = 0;
    for (uint32_t i = 0; i < n_seqs * n_q; i++) q[i] = pleat__f32_to_f16(check_normal());
    copy(r->device_q, q, n_seqs * n_q * 2);
    bring_image(r, &r->want);
    CHECK_STATUS(pleat_device_cache_attend(r->cache, layer, r->device_q, r->device_out, NULL, NULL, NULL), PLEAT_OK);
    copy(out, r->device_out, n_seqs * n_q * 4);
    bring_image(r, &r->now);
    for (uint32_t lane = 0; lane < n_seqs * HEADS; lane++) {
        const uint32_t row = row_of(batch[lane / HEADS], layer, lane % HEADS);
        const lane_tokens before = tokens_of(r, &r->want, row), after = tokens_of(r, &r->now, row);
        double *weights = must_alloc(before.n * sizeof *weights);
        for (uint32_t g = 0; g < GROUP; g++) {
            const uint64_t at = (uint64_t)(lane * GROUP + g) * r->d;
            for (uint32_t j = 0; j < r->d; j++) x[j] = pleat__f16_to_f32(q[at + j]);
            attend_exactly(r, &before, x, want, weights);
            for (uint32_t j = 0; j < r->d; j++) {
                diff += (out[at + j] - want[j]) * (out[at + j] - want[j]);
                norm += want[j] * want[j];
            }
        }
        for (uint32_t i = 0; i < before.n; i++) {
            if (!before.scores[i]) continue;
            const double given = (double)*after.scores[i] - (double)*before.scores[i];
            score_diff += (given - weights[i]) * (given - weights[i]);
            score_norm += weights[i] * weights[i];
        }
        free(weights);
        for (int which = 0; which < 2; which++) {
            const lane_tokens *t = which ? &after : &before;
            free(t->k);
            free(t->v);
            free(t->scores);
        }
    }
    CHECK_NEAR(sqrt(diff), 0, 1e-3 * sqrt(norm));
    if (r->spec.policy == PLEAT_POLICY_LEANKV) CHECK_NEAR(sqrt(score_diff), 0, 1e-3 * sqrt(score_norm));
    free(q);
    free(out);
}

/* A prompt's tokens of one KV head, exact, the first n of them. */
static lane_tokens prompt_tokens(const rig *r, uint32_t head, uint32_t n) {
    lane_tokens t = {n, must_alloc(n * r->d * 4), must_alloc(n * r->d * 4), NULL};
    for (uint32_t i = 0; i < n; i++) {
        row_at(r, r->k, i, head, t.k + i * r->d);
        row_at(r, r->v, i, head, t.v + i * r->d);
    }
    return t;
}

/* How far query head `head * GROUP + g` of every token is off, and what its weights are: weights[t][i], the largest of
 * those and these. */
static void compare_head(const rig *r, const uint16_t *q, const uint16_t *out, uint32_t head, uint32_t g, uint32_t n,
                         double *weights, double sums[2]) {
    lane_tokens t = prompt_tokens(r, head, n);
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t at = ((uint64_t)(i * HEADS + head) * GROUP + g) * r->d;
        float x[128];
        double want[128];
        for (uint32_t j = 0; j < r->d; j++) x[j] = pleat__f16_to_f32(q[at + j]);
        t.n = i + 1;
        attend_exactly(r, &t, x, want, weights + (uint64_t)i * n);
        for (uint32_t j = 0; j < r->d; j++) {
            const double off = (double)pleat__f16_to_f32(out[at + j]) - want[j];
            sums[0] += off * off;
            sums[1] += want[j] * want[j];
        }
    }
    free(t.k);
    free(t.v);
}

/* What each token received from later ones, in `received`, against the weights. */
static void compare_received(const float *received, const double *weights, uint32_t n, double sums[2]) {
    for (uint32_t i = 0; i < n; i++) {
        double want = 0;
        for (uint32_t t = i + 1; t < n; t++) want += weights[(uint64_t)t * n + i];
        sums[0] += ((double)received[i] - want) * ((double)received[i] - want);
        sums[1] += want * want;
    }
}

static void check_prompt_attention(rig *r, uint32_t n) {
    const uint64_t n_q = (uint64_t)n * HEADS * GROUP * r->d;
    uint16_t *q = must_alloc(n_q * 2), *out = must_alloc(n_q * 2), *device_q = device_alloc(n_q * 2);
    uint16_t *device_out = device_alloc(n_q * 2);
    double off[2] = {0, 0}, received_off[2] = {0, 0};
    for (uint64_t i = 0; i < n_q; i++) q[i] = pleat__f32_to_f16(check_normal());
    copy(device_q, q, n_q * 2);
    make_rows(r, n);
    CHECK_STATUS(pleat_device_cache_prompt_attend(r->cache, 0, device_q, r->device_k, r->device_v, device_out,
                                                  r->device_received, NULL, NULL),
                 PLEAT_OK);
    copy(out, device_out, n_q * 2);
    copy(r->received, r->device_received, (uint64_t)n * HEADS * 4);
    for (uint32_t head = 0; head < HEADS; head++) {
        double *weights = must_alloc((uint64_t)n * n * sizeof *weights);
        for (uint32_t g = 0; g < GROUP; g++) compare_head(r, q, out, head, g, n, weights, off);
        compare_received(r->received + head * n, weights, n, received_off);
        free(weights);
    }
    CHECK_NEAR(sqrt(off[0]), 0, 1e-3 * sqrt(off[1]));
    CHECK_NEAR(sqrt(received_off[0]), 0, 1e-3 * sqrt(received_off[1]));
    free(q);
    free(out);
    pleat__device_free(device_q);
    pleat__device_free(device_out);
}

/* A prompt as an engine reads it: attention gives what its placing asks for. */
static void test_prompt_attention(void) {
    CHECK_DEVICE();
    static const uint32_t lengths[] = {1, 2, 130, 301};
    for (size_t i = 0; i < CHECK_COUNT(lengths); i++) {
        rig r;
        const pleat_device_cache_options opt = options_of("leankv:ah=1.5,al=0.6,window=16", i % 2 ? 64 : 128);
        if (!rig_init(&r, &opt)) return;
        CHECK_STATUS(pleat_device_cache_prompt_attend(r.cache, 0, r.device_q, r.device_k, r.device_v, r.device_out,
                                                      NULL, NULL, NULL),
                     PLEAT_E_STATE);
        CHECK_STATUS(pleat_device_cache_prompt_begin(r.cache, 1, lengths[i], NULL, NULL), PLEAT_OK);
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            check_context("%u tokens, layer %u", lengths[i], layer);
            check_prompt_attention(&r, lengths[i]);
            CHECK_STATUS(
                pleat_device_cache_prompt(r.cache, layer, r.device_k, r.device_v, r.device_received, NULL, NULL),
                PLEAT_OK);
            bring_image(&r, &r.now);
            expect_now(&r);
            for (uint32_t head = 0; head < HEADS; head++) expect_lane(&r, row_of(1, layer, head), head, lengths[i]);
            CHECK(is_as_expected(&r));
        }
        CHECK_STATUS(pleat_device_cache_prompt_end(r.cache, NULL, NULL), PLEAT_OK);
        rig_free(&r);
    }
}

static void test_attention(void) {
    CHECK_DEVICE();
    static const char *const texts[] = {"f16", "k8v8", "leankv:ah=1.5,al=0.6,window=16", "leankv:ah=2,al=0,window=5"};
    for (size_t i = 0; i < CHECK_COUNT(texts); i++) {
        rig r;
        const uint32_t batch[] = {2, 0, 1};
        const pleat_device_cache_options opt = options_of(texts[i], i % 2 ? 64 : 128);
        check_context("%s", texts[i]);
        if (!rig_init(&r, &opt)) return;
        CHECK(read_prompt(&r, 0, 400) && read_prompt(&r, 1, 33) && read_prompt(&r, 2, 1));
        CHECK_STATUS(pleat_device_cache_set_batch(r.cache, batch, 3, NULL, NULL), PLEAT_OK);
        for (uint32_t step = 0; step < check_cases(12, 2); step++) {
            CHECK_STATUS(pleat_device_cache_begin(r.cache, NULL, NULL), PLEAT_OK);
            for (uint32_t layer = 0; layer < LAYERS; layer++) {
                make_rows(&r, 3);
                CHECK_STATUS(pleat_device_cache_append(r.cache, layer, r.device_k, r.device_v, NULL, NULL), PLEAT_OK);
                check_attention(&r, layer, batch, 3);
            }
            CHECK_STATUS(pleat_device_cache_end(r.cache, NULL, NULL), PLEAT_OK);
        }
        CHECK_STATUS(pleat_device_cache_check(r.cache, NULL, NULL), PLEAT_OK);
        rig_free(&r);
    }
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

static void put_step(rig *r, void *stream) {
    CHECK_STATUS(pleat_device_cache_begin(r->cache, stream, NULL), PLEAT_OK);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        CHECK_STATUS(pleat_device_cache_append(r->cache, layer, r->device_k, r->device_v, stream, NULL), PLEAT_OK);
        CHECK_STATUS(
            pleat_device_cache_attend(r->cache, layer, r->device_q, r->device_out, r->device_lse2, stream, NULL),
            PLEAT_OK);
    }
    CHECK_STATUS(pleat_device_cache_end(r->cache, stream, NULL), PLEAT_OK);
}

/* A side of a row holds the same in both: pages that nobody holds may differ. */
static void check_same_side(const rig r[2], uint32_t row, int side) {
    const pleat__page_layout *l = &r[0].cache->lanes.layouts[side];
    CHECK_EQ_U64(r[0].now.n_slots[side][row], r[1].now.n_slots[side][row]);
    for (uint32_t i = 0; i < r[0].now.n_pages[side][row]; i++) {
        const uint32_t a = *cell_of(&r[0], &r[0].now, row, side, i), b = *cell_of(&r[1], &r[1].now, row, side, i);
        CHECK_EQ_U64(a, b);
        const uint32_t n = r[0].now.n_slots[side][row] - i * l->tokens;
        if (n < l->tokens) continue; /* the last page's unused tiles are anything */
        CHECK_EQ_MEM(r[0].now.pages + a * r[0].cache->lanes.page_bytes,
                     r[1].now.pages + b * r[1].cache->lanes.page_bytes, l->used_bytes);
    }
}

static void check_same(rig r[2], void *stream) {
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(pleat_device_cache_wait(r[i].cache, stream, NULL), PLEAT_OK);
        CHECK_STATUS(pleat_device_cache_check(r[i].cache, stream, NULL), PLEAT_OK);
        bring_image(&r[i], &r[i].now);
    }
    for (uint32_t row = 0; row < 2 * LANES; row++) {
        for (int side = 0; side < 2; side++) check_same_side(r, row, side);
        CHECK_EQ_U64(r[0].now.hole[row], r[1].now.hole[row]);
    }
    CHECK_EQ_MEM(r[0].now.n_tokens, r[1].now.n_tokens, sizeof r[0].now.n_tokens);
}

/* Two places with tokens of both levels, which are the batch. */
static void fill_two(rig *r, void *stream) {
    static const uint32_t batch[] = {0, 1}, n_high[LANES] = {300, 20, 60, 1}, n_low[LANES] = {100, 0, 300, 5};
    for (uint32_t seq_idx = 0; seq_idx < 2; seq_idx++)
        CHECK_STATUS(pleat_device_cache_fill(r->cache, seq_idx, n_high, n_low, 7 + seq_idx, stream, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_set_batch(r->cache, batch, 2, stream, NULL), PLEAT_OK);
}

/* The same steps in two caches, launched and from a graph. */
static void test_graph(void) {
    CHECK_DEVICE();
    const uint32_t n_steps = (uint32_t)check_rounds(40, 4); /* racecheck takes gigabytes for each launch of a graph */
    const pleat_device_cache_options opt = options_of("leankv:ah=1.5,al=0.6,window=16", 128);
    rig r[2];
    pleat__device_stream stream = {NULL};
    pleat__device_graph graph = {NULL};
    CHECK_STATUS(pleat__device_stream_create(&stream, NULL), PLEAT_OK);
    for (int i = 0; i < 2; i++) {
        if (!rig_init(&r[i], &opt)) return;
        fill_two(&r[i], stream.v);
        CHECK_STATUS(pleat_device_cache_plan_pages(r[i].cache, stream.v, NULL), PLEAT_OK); /* steps go on as ever */
        CHECK_STATUS(pleat_device_cache_check(r[i].cache, stream.v, NULL), PLEAT_OK);
    }
    make_rows(&r[0], CAP);
    pleat__device_copy(r[0].device_q, r[0].device_k, 2u * HEADS * GROUP * 128 * 2, default_stream, NULL);
    pleat__device_copy(r[1].device_q, r[0].device_q, 2u * HEADS * GROUP * 128 * 2, default_stream, NULL);
    pleat__device_copy(r[1].device_k, r[0].device_k, 2u * HEADS * 128 * 2, default_stream, NULL);
    pleat__device_copy(r[1].device_v, r[0].device_v, 2u * HEADS * 128 * 2, default_stream, NULL);
    CHECK_STATUS(pleat__device_wait(default_stream, NULL), PLEAT_OK);
    for (uint32_t i = 0; i < n_steps; i++) put_step(&r[0], stream.v);
    CHECK_STATUS(pleat__device_graph_begin(stream, NULL), PLEAT_OK);
    put_step(&r[1], stream.v);
    CHECK_STATUS(pleat__device_graph_end(stream, &graph, NULL), PLEAT_OK);
    for (uint32_t i = 0; i < n_steps; i++) CHECK_STATUS(pleat__device_graph_launch(graph, stream, NULL), PLEAT_OK);
    check_same(r, stream.v);
    CHECK_EQ_U64(r[0].now.n_tokens[0], 400 + n_steps);
    pleat__device_graph_destroy(&graph);
    for (int i = 0; i < 2; i++) rig_free(&r[i]);
    pleat__device_stream_destroy(&stream);
}

/* ---- calls out of turn ------------------------------------------------------------------------------------------- */

/* What the host refuses changes nothing: the calls after it go on. */
static void test_order(void) {
    CHECK_DEVICE();
    rig r;
    const uint32_t batch[] = {0, 1};
    const pleat_device_cache_options opt = options_of("f16", 64);
    if (!rig_init(&r, &opt)) return;
    pleat_device_cache *c = r.cache;
    const uint16_t *q = r.device_q;
    CHECK_STATUS(pleat_device_cache_attend(c, 0, q, r.device_out, NULL, NULL, NULL), PLEAT_E_STATE);
    CHECK_STATUS(pleat_device_cache_set_batch(c, batch, 2, NULL, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_attend(c, 0, q, r.device_out, NULL, NULL, NULL), PLEAT_E_STATE);
    CHECK_STATUS(pleat_device_cache_plan(c, PLEAT_DEVICE_PER_LANE, NULL, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_attend(c, 0, q, r.device_out, NULL, NULL, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_attend(c, 0, q + 1, r.device_out, NULL, NULL, NULL), PLEAT_E_ARG);
    CHECK_STATUS(pleat_device_cache_prompt_begin(c, 0, 5, NULL, NULL), PLEAT_E_STATE); /* the batch's */
    CHECK_STATUS(pleat_device_cache_close(c, 0, NULL, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_prompt_begin(c, 0, 5, NULL, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_begin(c, NULL, NULL), PLEAT_E_STATE);
    CHECK_STATUS(pleat_device_cache_set_batch(c, batch, 2, NULL, NULL), PLEAT_E_STATE);
    CHECK_STATUS(pleat_device_cache_close(c, 0, NULL, NULL), PLEAT_OK); /* gives the prompt up */
    CHECK_STATUS(pleat_device_cache_begin(c, NULL, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_append(c, 0, q + 1, r.device_v, NULL, NULL), PLEAT_E_ARG);
    CHECK_STATUS(pleat_device_cache_close(c, 1, NULL, NULL), PLEAT_E_STATE);
    CHECK_STATUS(pleat_device_cache_prompt_begin(c, 2, 5, NULL, NULL), PLEAT_E_STATE);
    CHECK_STATUS(pleat_device_cache_end(c, NULL, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_prompt_begin(c, 0, 5, NULL, NULL), PLEAT_E_STATE); /* a sequence has begun there */
    CHECK_STATUS(pleat_device_cache_wait(c, NULL, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_check(c, NULL, NULL), PLEAT_OK);
    rig_free(&r);
}

/* A graph's step begins a sequence where one was closed, of which the host hears only from the device. */
static void test_order_graph(void) {
    CHECK_DEVICE();
    rig r;
    const uint32_t batch[] = {0, 1};
    pleat__device_stream stream = {NULL};
    pleat__device_graph graph = {NULL};
    const uint32_t n_filled[LANES] = {30, 1, 64, 100};
    const pleat_device_cache_options opt = options_of("k8v4", 64);
    CHECK_STATUS(pleat__device_stream_create(&stream, NULL), PLEAT_OK);
    if (!rig_init(&r, &opt)) return;
    CHECK_STATUS(pleat__device_wait(default_stream, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_set_batch(r.cache, batch, 2, stream.v, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_graph_begin(stream, NULL), PLEAT_OK);
    put_step(&r, stream.v);
    CHECK_STATUS(pleat__device_graph_end(stream, &graph, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_close(r.cache, 0, stream.v, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_graph_launch(graph, stream, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_prompt_begin(r.cache, 0, 5, stream.v, NULL), PLEAT_E_STATE);
    CHECK_STATUS(pleat_device_cache_close(r.cache, 0, stream.v, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_prompt_begin(r.cache, 0, 5, stream.v, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_close(r.cache, 0, stream.v, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_fill(r.cache, 2, n_filled, NULL, 7, stream.v, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_check(r.cache, stream.v, NULL), PLEAT_OK);
    pleat__device_graph_destroy(&graph);
    rig_free(&r);
    pleat__device_stream_destroy(&stream);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

/* Steps until there are no pages; the refused one leaves everything as it was. */
static void test_refusal(void) {
    CHECK_DEVICE();
    rig r;
    pleat_device_cache_options opt = options_of("leankv:ah=0.5,al=0.4,window=300", 128);
    opt.page_tokens = 16;
    opt.pool_bytes = check_cases(200000, 96000);
    if (!rig_init(&r, &opt)) return;
    const uint32_t batch[] = {3, 1};
    CHECK_STATUS(pleat_device_cache_begin(r.cache, NULL, NULL), PLEAT_E_STATE);
    CHECK_STATUS(pleat_device_cache_set_batch(r.cache, batch, 2, NULL, NULL), PLEAT_OK);
    pleat_status status = PLEAT_OK;
    for (uint32_t step = 0; step < CAP && status == PLEAT_OK; step++) {
        bring_image(&r, &r.now);
        expect_now(&r);
        CHECK_STATUS(pleat_device_cache_begin(r.cache, NULL, NULL), PLEAT_OK);
        CHECK_STATUS(pleat_device_cache_begin(r.cache, NULL, NULL), PLEAT_E_STATE);
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            CHECK_STATUS(pleat_device_cache_append(r.cache, layer, r.device_k, r.device_v, NULL, NULL), PLEAT_OK);
            CHECK_STATUS(pleat_device_cache_attend(r.cache, layer, r.device_q, r.device_out, NULL, NULL, NULL),
                         PLEAT_OK);
        }
        CHECK_STATUS(pleat_device_cache_end(r.cache, NULL, NULL), PLEAT_OK);
        status = pleat_device_cache_wait(r.cache, NULL, NULL);
    }
    CHECK_STATUS(status, PLEAT_AGAIN);
    bring_image(&r, &r.now);
    CHECK(is_as_expected(&r));
    CHECK_STATUS(pleat_device_cache_wait(r.cache, NULL, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_prompt_begin(r.cache, 0, CAP, NULL, NULL), PLEAT_E_LIMIT);
    CHECK_STATUS(pleat_device_cache_prompt_begin(r.cache, 0, 20, NULL, NULL), PLEAT_AGAIN);
    CHECK_STATUS(pleat_device_cache_prompt_begin(r.cache, 1, 1, NULL, NULL), PLEAT_E_STATE);
    CHECK_STATUS(pleat_device_cache_wait(r.cache, NULL, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_close(r.cache, 3, NULL, NULL), PLEAT_OK);
    CHECK(read_prompt(&r, 0, 20));
    rig_free(&r);
}

/* ---- what it holds ----------------------------------------------------------------------------------------------- */

static void test_export(void) {
    CHECK_DEVICE();
    enum { N = 150 };
    rig r;
    const pleat_device_cache_options opt = options_of("leankv:ah=1.5,al=0.6,window=16", 128);
    if (!rig_init(&r, &opt)) return;
    CHECK(read_prompt(&r, 1, N)); /* the last layer of it is layer 0 */
    float *k = must_alloc(N * 128 * 4), *v = must_alloc(N * 128 * 4), x[128];
    uint64_t n_live = 0;
    for (uint32_t head = 0; head < HEADS; head++) {
        CHECK_STATUS(pleat_device_cache_export(r.cache, 1, 0, head, 0, N, k, v, NULL, NULL), PLEAT_OK);
        for (uint32_t i = 0; i < N; i++) {
            const float s = pleat__significance(r.received[head * N + i], i, N);
            const pleat_level level = pleat__leankv_level(&r.spec, s, i, N, true);
            row_at(&r, r.k, i, head, x);
            for (uint32_t j = 0; j < 128 && level == PLEAT_LEVEL_DROPPED; j++) x[j] = 0;
            CHECK_NEAR_ALL(k + i * 128, x, 128, level == PLEAT_LEVEL_LOW ? 0.5 : 0.03, 0);
            n_live += level != PLEAT_LEVEL_DROPPED;
        }
    }
    pleat_device_cache_usage u;
    CHECK_STATUS(pleat_device_cache_get_usage(r.cache, &u, NULL, NULL), PLEAT_OK);
    CHECK(u.tokens_high + u.tokens_low > n_live && u.tokens_low > 0);
    CHECK_EQ_U64(u.bytes_f16, (uint64_t)N * LANES * 4 * 128);
    CHECK_EQ_U64(u.bytes_pages, u.pages_used * u.page_bytes);
    CHECK(u.bytes_pool + u.bytes_tables + u.bytes_workspace > u.bytes && u.bytes > u.bytes_pages);
    CHECK_EQ_U64(u.bytes_attend, 0);
    free(k);
    free(v);
    rig_free(&r);
}

static void test_misuse(void) {
    pleat_device_cache *c = NULL;
    pleat_error err;
    pleat_device_cache_options opt = options_of("k8v4", 128);
    opt.head_dim = 100;
    CHECK(pleat_device_cache_create(&opt, &c, &err) < 0);
    CHECK(pleat_device_cache_create(NULL, &c, NULL) < 0);
    pleat_device_cache_destroy(NULL);
    pleat_device_cache_destroy(&c);
    CHECK_DEVICE();
    CHECK_STATUS(pleat_device_cache_create(&opt, &c, &err), PLEAT_E_ARG);
    CHECK(strstr(err.text, "head_dim 100") != NULL);
    opt = options_of("kvzip:budget=25%", 128);
    CHECK_STATUS(pleat_device_cache_create(&opt, &c, &err), PLEAT_E_UNSUPPORTED);
    opt = options_of("f16", 128);
    opt.pool_bytes = (uint64_t)1 << 46;
    opt.page_tokens = 4096;
    CHECK_STATUS(pleat_device_cache_create(&opt, &c, &err), PLEAT_E_MEMORY);
    opt = options_of("f16", 128);
    opt.device = 1000;
    CHECK_STATUS(pleat_device_cache_create(&opt, &c, &err), PLEAT_E_DEVICE);
    CHECK(!c);
}

/* Every call of the runtime fails once: a named error, and nothing is left. */
static void test_failures(void) {
    CHECK_DEVICE();
    const pleat_device_cache_options opt = options_of("leankv:ah=1.5,al=0.6,window=16", 64);
    const uint32_t batch[] = {0};
    for (uint64_t nth = 1; nth < 200; nth++) {
        pleat_device_cache *c = NULL;
        pleat_error err = {0};
        check_context("call %llu fails", (unsigned long long)nth);
        pleat__device_fail_at(nth);
        pleat_status status = pleat_device_cache_create(&opt, &c, &err);
        if (status == PLEAT_OK) status = pleat_device_cache_set_batch(c, batch, 1, NULL, &err);
        if (status == PLEAT_OK) status = pleat_device_cache_begin(c, NULL, &err);
        if (status == PLEAT_OK) status = pleat_device_cache_end(c, NULL, &err);
        if (status == PLEAT_OK) status = pleat_device_cache_wait(c, NULL, &err);
        pleat__device_fail_at(0);
        pleat_device_cache_destroy(&c);
        if (status == PLEAT_OK) {
            CHECK(nth > 10);
            return;
        }
        CHECK(status == PLEAT_E_MEMORY || status == PLEAT_E_DEVICE);
        CHECK(err.text[0] != 0);
    }
    CHECK(false);
}

static const check_test tests[] = {
    {"attention", test_attention},
    {"prompt_attention", test_prompt_attention},
    {"graph", test_graph},
    {"order", test_order},
    {"order_graph", test_order_graph},
    {"refusal", test_refusal},
    {"export", test_export},
    {"misuse", test_misuse},
    {"failures", test_failures},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
