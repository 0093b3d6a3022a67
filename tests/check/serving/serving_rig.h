/* SPDX-License-Identifier: MIT
 *
 * serving_rig.h: an engine on the reference model with a serving on it, requests, and what came of them: for the tests of
 * serving with a model.
 */
#ifndef CHECK_SERVING_RIG_H
#define CHECK_SERVING_RIG_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "gguf_writer.h"
#include "model_rig.h"
#include "pleat/pleat.h"
#include "serving/internal.h"

#define MODEL "models/pleat-28m-q8_0.gguf"
#define STATS "models/pleat-28m-q8_0.stats"
#define TEXT "eval/prose.txt"

enum { CHUNK = 32, PREFIX = 64, MAX_TOKENS = 512, MAX_ITEMS = 6, MAX_SEQS = 40, MAX_REQUESTS = 6, MAX_PREDICT = 120 };

static pleat_model *model;
static uint32_t n_devices;       /* GPUs that engines run on */
static pleat_stats *model_stats; /* of the model */
static pleat_token text[3000];

static inline bool load_once(void) {
    if (model) return true;
    pleat_error err = {0};
    if (!CHECK_STATUS(pleat_model_load(MODEL, NULL, &model, &err), PLEAT_OK)) return false;
    make_least(model, 1);
    if (!CHECK_STATUS(pleat_stats_load(STATS, NULL, &model_stats, &err), PLEAT_OK)) return false;
    size_t n_bytes;
    unsigned char *bytes = check_read_file(TEXT, &n_bytes);
    uint32_t n = 0;
    if (!CHECK(bytes != NULL)) return false;
    const pleat_status status = pleat_model_tokenize(model, (char *)bytes, n_bytes < 16000 ? n_bytes : 16000, 0, text,
                                                     CHECK_COUNT(text), &n, NULL);
    free(bytes);
    make_tokens_least(text, CHECK_COUNT(text));
    return CHECK(status == PLEAT_OK || status == PLEAT_E_LIMIT) && CHECK(n >= CHECK_COUNT(text));
}

/* Pages that each of the model's lanes has one of. */
static inline uint64_t a_page_each(void) {
    pleat_model_info info;
    pleat_model_get_info(model, &info);
    return (uint64_t)info.n_layers * info.n_kv_heads;
}

/* The model in these bytes of a GGUF file; NULL with a failed check. */
static inline pleat_model *load_bytes(const unsigned char *bytes, size_t n_bytes) {
    pleat_model *loaded = NULL;
    char path[256];
    if (!CHECK(check_write_temp(bytes, n_bytes, path, sizeof path))) return NULL;
    CHECK_STATUS(pleat_model_load(path, NULL, &loaded, NULL), PLEAT_OK);
    make_least(loaded, 1);
    unlink(path);
    return loaded;
}

/* The reference model with a sliding window in every layer. */
static inline pleat_model *windowed_model(uint32_t window) {
    enum { COUNT_AT = 16, METADATA_AT = 24, ALIGNMENT = 32 };
    size_t n_bytes;
    unsigned char *file = check_read_file(MODEL, &n_bytes);
    if (!CHECK(file != NULL)) return NULL;
    gguf_writer w = {0};
    uint64_t n_metadata;
    memcpy(&n_metadata, file + COUNT_AT, sizeof n_metadata);
    gw_bytes(&w, file, COUNT_AT);
    gw_u64(&w, n_metadata + 2);
    gw_kv_u32(&w, "llama.attention.sliding_window", window);
    gw_kv_u32(&w, "xx", 0); /* so long that the tensors stay aligned */
    CHECK_EQ_U64((w.n - METADATA_AT) % ALIGNMENT, 0);
    gw_bytes(&w, file + METADATA_AT, n_bytes - METADATA_AT);
    pleat_model *windowed = load_bytes(w.p, w.n);
    gw_free(&w);
    free(file);
    return windowed;
}

static inline bool is_slow(void) { return !(pleat_cpu_flags() & PLEAT_CPU_AVX2); }

static const char *const specs[] = {"f16",
                                    "leankv:ah=1,al=0.02,window=32",
                                    "k8v4",
                                    "topk:keep=50%,window=32",
                                    "k4v2",
                                    "leankv:ah=3,al=0,window=32",
                                    "f32",
                                    "k8v8",
                                    "kvcomp:k=0.2,v=0.2,block=32,buffer=40",
                                    "rd:k=0.15,v=1.1,buffer=40"};

/* ---- rig ------------------------------------------------------------------------------------------------------------- */

typedef struct rig {
    pleat_engine *engine;
    pleat_serving *serving;
} rig;

static inline pleat_engine_options engine_options(const char *spec) {
    pleat_engine_options o;
    pleat_engine_options_default(&o);
    CHECK_STATUS(pleat_spec_parse(spec, &o.spec, NULL), PLEAT_OK);
    o.stats = model_stats;
    o.max_seqs = MAX_SEQS;
    o.max_items = MAX_ITEMS;
    o.max_tokens = MAX_TOKENS;
    o.chunk_tokens = CHUNK;
    o.step_tokens = 2 * CHUNK + MAX_ITEMS;
    o.page_tokens = 16;
    if (n_devices == 0) return o;
    o.devices = n_devices;
    o.fixed_splits = 1;
    if (!pleat_spec_is_exact(&o.spec)) o.chunk_tokens = MAX_TOKENS; /* prompts are read whole */
    o.step_tokens = 2 * o.chunk_tokens + MAX_ITEMS;
    return o;
}

static inline pleat_serving_options serving_options(void) {
    pleat_serving_options o;
    pleat_serving_options_default(&o);
    o.max_requests = 100;
    o.prefix_tokens = PREFIX;
    return o;
}

/* A pool of n_pages, or as large as it can need to be (0). */
static inline bool rig_make(rig *r, const pleat_engine_options *eo, const pleat_serving_options *so, uint64_t n_pages) {
    pleat_engine_options o = *eo;
    pleat_error err = {0};
    *r = (rig){0};
    if (n_pages > 0) {
        if (!CHECK_STATUS(pleat_engine_create(model, &o, &r->engine, &err), PLEAT_OK)) return false;
        pleat__backend b;
        CHECK_STATUS(pleat__backend_on_engine(r->engine, NULL, &b, NULL), PLEAT_OK);
        o.pool_bytes = n_pages * b.shape.page_bytes;
        b.destroy(b.ctx);
        pleat_engine_destroy(&r->engine);
    }
    if (!CHECK_STATUS(pleat_engine_create(model, &o, &r->engine, &err), PLEAT_OK) ||
        !CHECK_STATUS(pleat_serving_create(r->engine, so, &r->serving, &err), PLEAT_OK)) {
        printf("%s\n", err.text);
        return false;
    }
    return true;
}

/* Nothing is left: not a page. */
static inline void rig_free(rig *r) {
    pleat_serving_stats s;
    if (r->serving) {
        CHECK(pleat_serving_is_valid(r->serving));
        pleat_serving_forget_prefixes(r->serving);
        pleat_serving_get_stats(r->serving, &s);
        CHECK_EQ_U64(s.pages_used, 0);
        CHECK(pleat_serving_is_valid(r->serving));
    }
    pleat_serving_destroy(&r->serving);
    pleat_engine_destroy(&r->engine);
}

/* ---- requests and what came of them ---------------------------------------------------------------------------------- */

typedef struct outcome {
    pleat_token tokens[MAX_PREDICT];
    uint32_t n_tokens;
    pleat_finish finish;
    pleat_status status;
    pleat_request_stats stats;
} outcome;

typedef struct set {
    pleat_request q[MAX_REQUESTS];
    uint32_t n;
} set;

static inline pleat_request request_of(const pleat_token *prompt, uint32_t n_prompt, uint32_t n_predict) {
    pleat_request q;
    pleat_request_default(&q);
    q.prompt = prompt;
    q.n_prompt = n_prompt;
    q.n_predict = n_predict;
    q.ignores_end = 1;
    return q;
}

/* Texts of their own, of all lengths around the cuts; one is sampled, one has a breakpoint at no page's end. */
static inline set some_requests(void) {
    static const uint32_t lengths[MAX_REQUESTS] = {97, 130, 64, 1, 161, 129};
    set all = {.n = (uint32_t)check_cases(MAX_REQUESTS, 2)};
    for (uint32_t i = 0; i < all.n; i++) {
        all.q[i] = request_of(text + 300 * i, lengths[i], (uint32_t)check_cases(40, 4));
        all.q[i].sampling.seed = 7 + i;
    }
    all.q[1].sampling.temperature = 0.8f;
    all.q[4].breakpoint = 100;
    return all;
}

/* Short prompts, long answers: what is admitted does not find room to the end. */
static inline set growing_requests(void) {
    set all = {.n = 4};
    for (uint32_t i = 0; i < all.n; i++)
        all.q[i] = request_of(text + 250 * i, 40 + i, (uint32_t)check_cases(MAX_PREDICT, 12));
    return all;
}

static inline void take_events(const pleat_serving *s) {
    uint32_t n;
    const pleat_serving_event *e = pleat_serving_events(s, &n);
    for (uint32_t i = 0; i < n; i++) {
        outcome *o = e[i].user;
        if (!o) continue;
        CHECK(o->finish == PLEAT_FINISH_NOT);
        if (e[i].token >= 0 && CHECK(o->n_tokens < MAX_PREDICT)) o->tokens[o->n_tokens++] = e[i].token;
        o->finish = e[i].finish;
        o->status = e[i].status;
        o->stats = e[i].stats;
    }
}

/* Preempt somebody now and then; the serving's options say how.  Nobody who is alone: that tells serving that the pool is
 * too small. */
static inline void maybe_preempt(pleat_serving *s) {
    if (s->n_running < 2 || s->stats.preempted_swap + s->stats.preempted_recompute >= 20 ||
        check_below(check_cases(6, 2)))
        return;
    pleat__serving_preempt(s, s->running[check_below(s->n_running)], true);
    CHECK(pleat_serving_is_valid(s));
}

static inline void run_to_end(pleat_serving *s, bool preempts) {
    pleat_error err = {0};
    for (uint32_t i = 0; check_failures() == 0; i++) {
        const pleat_status status = pleat_serving_step(s, &err);
        take_events(s);
        if (status == PLEAT_AGAIN) break;
        if (!CHECK_STATUS(status, PLEAT_OK)) printf("%s\n", err.text);
        if (i % 16 == 0) CHECK(pleat_serving_is_valid(s));
        if (preempts) maybe_preempt(s);
    }
}

static inline void submit(pleat_serving *s, const pleat_request *q, outcome *o) {
    pleat_request r = *q;
    pleat_request_id id;
    pleat_error err = {0};
    *o = (outcome){0};
    r.user = o;
    if (!CHECK_STATUS(pleat_serving_submit(s, &r, &id, &err), PLEAT_OK)) printf("%s\n", err.text);
}

static inline void run_set(pleat_serving *s, const set *all, outcome *out, bool preempts) {
    for (uint32_t i = 0; i < all->n; i++) submit(s, &all->q[i], &out[i]);
    run_to_end(s, preempts);
    for (uint32_t i = 0; i < all->n; i++) CHECK(out[i].finish == PLEAT_FINISH_LENGTH);
}

static inline void check_same(const outcome *a, const outcome *b, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        CHECK_EQ_U64(a[i].n_tokens, b[i].n_tokens);
        if (!CHECK_EQ_MEM(a[i].tokens, b[i].tokens, sizeof a[i].tokens)) printf("of request %u\n", i);
    }
}

/* Each by itself, and nothing kept from one to the next. */
static inline void run_alone(const char *spec, const set *all, outcome *out) {
    rig r;
    const pleat_engine_options eo = engine_options(spec);
    const pleat_serving_options so = serving_options();
    if (rig_make(&r, &eo, &so, 0)) {
        for (uint32_t i = 0; i < all->n; i++) {
            submit(r.serving, &all->q[i], &out[i]);
            run_to_end(r.serving, false);
            pleat_serving_forget_prefixes(r.serving);
            CHECK_EQ_U64(out[i].stats.n_hit + out[i].stats.n_swapped + out[i].stats.n_recomputed, 0);
        }
    }
    rig_free(&r);
}

#endif
