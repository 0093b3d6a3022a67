/* SPDX-License-Identifier: MIT
 *
 * test_device_wide.c: heads of any length, groups up to 16, windows and bounded logits on a GPU.
 *
 *     the cache     beside the CPU's: cache_pair.h
 *     the engine    tiny random models beside the CPU's engine: those of tests/golden, whose feed-forward is made longer
 *                   and heads of another shape
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache_pair.h"
#include "model/internal.h"
#include "model_rig.h"

/* ---- the cache ------------------------------------------------------------------------------------------------- */

/* Prompts shorter and longer than the windows, one from single tokens alone; chunks; a fork; steps in changing company. */
static void run_pair(pair *p) {
    static const uint32_t all[] = {2, 0, 1}, two[] = {0, 2};
    read_some(p, 0, (uint32_t)check_cases(290, 70));
    read_some(p, 1, 7);
    for (uint32_t i = 0; i < check_cases(20, 1); i++) step(p, all, 3);
    read_some(p, 1, 90);
    if (check_cases(1, 0)) read_some(p, 0, 33);
    read_some(p, 2, 8);
    for (uint32_t i = 0; i < check_cases(12, 0); i++) step(p, two, 2);
    for (uint32_t seq = 0; seq < N_SEQS; seq++) compare_stored(p, seq);
    CHECK_STATUS(pleat_device_cache_close(p->gpu, 2, NULL, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_cache_close(p->cpu, p->seqs[2]), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_fork(p->gpu, 1, 2, NULL, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_cache_fork(p->cpu, p->seqs[1], N_MOST, &p->seqs[2]), PLEAT_OK);
    p->lengths[2] = p->lengths[1];
    for (uint32_t i = 0; i < check_cases(9, 1); i++) step(p, all, 3);
    for (uint32_t seq = 0; seq < N_SEQS; seq++) compare_stored(p, seq);
    CHECK_STATUS(pleat_device_cache_check(p->gpu, NULL, NULL), PLEAT_OK);
}

static void the_cache_is_the_cpus(void) {
    CHECK_DEVICE();
    static const shape shapes[] = {
        {256, 1, 4, {50, 0}, 0, "f16", 0},  {256, 2, 2, {0, 64}, 0, "k8v4", 0},   {80, 2, 3, {0, 0}, 0, "k4v2", 0},
        {96, 1, 16, {17, 0}, 0, "k8v8", 0}, {128, 2, 1, {100, 33}, 5, "k8v4", 0}, {64, 1, 9, {0, 1}, 0, "f16", 0},
        {16, 3, 4, {9, 0}, 50, "k2v4", 0},  {176, 1, 5, {0, 300}, 0, "k2v2", 0},  {112, 2, 8, {31, 32}, 0, "k4v4", 0},
        {128, 2, 4, {0, 0}, 0, "h2v2", 0},  {64, 3, 2, {0, 0}, 0, "h3v2", 0},     {128, 1, 3, {0, 0}, 0, "h4v3", 0},
        {128, 1, 7, {0, 0}, 0, "h3v3", 0},  {80, 2, 3, {0, 40}, 0, "h2v3", 0},    {256, 1, 4, {50, 0}, 30, "h4v4", 0},
        {128, 2, 3, {0, 0}, 0, "k8v4", 0}, /* by the kernels of usual heads */
    };
    for (size_t i = check_cases(0, 3); i < CHECK_COUNT(shapes); i += check_cases(1, 4)) {
        pair p;
        if (pair_init(&p, &shapes[i])) run_pair(&p);
        pair_free(&p);
    }
}

static void what_it_does_not_take_is_named(void) {
    CHECK_DEVICE();
    static const uint32_t windows[] = {0, 8};
    static const struct {
        uint32_t head_dim, n_q_heads;
        const uint32_t *windows;
        float cap;
        const char *spec, *words;
        pleat_status status;
    } cases[] = {
        {272, 1, NULL, 0, "f16", "head_dim 272", PLEAT_E_ARG},
        {72, 1, NULL, 0, "f16", "head_dim 72", PLEAT_E_ARG},
        {64, 17, NULL, 0, "f16", "n_q_heads 17", PLEAT_E_ARG},
        {64, 1, NULL, -1, "f16", "logit_cap", PLEAT_E_ARG},
        {96, 1, NULL, 0, "leankv", "policies", PLEAT_E_UNSUPPORTED},
        {64, 1, windows, 0, "leankv", "policies", PLEAT_E_UNSUPPORTED},
        {64, 9, NULL, 0, "leankv", "policies", PLEAT_E_UNSUPPORTED},
    };
    for (size_t i = 0; i < CHECK_COUNT(cases); i++) {
        pleat_device_cache_options opt;
        pleat_device_cache_options_default(&opt);
        opt.n_layers = 2, opt.n_kv_heads = 1, opt.n_q_heads = cases[i].n_q_heads, opt.head_dim = cases[i].head_dim;
        opt.max_tokens = 100, opt.windows = cases[i].windows, opt.logit_cap = cases[i].cap;
        check_refused(&opt, cases[i].spec, cases[i].status, cases[i].words);
    }
}

/* Chunks of a sequence whose layers are rings take what the rings do, however long it has become. */
static void rings_grow_in_a_small_pool(void) {
    CHECK_DEVICE();
    enum { MOST = 400, FIRST = 100, CHUNK = 60, D = 64 };
    static const uint32_t windows[N_LAYERS] = {16, 16};
    pleat_device_cache_options opt;
    pleat_device_cache *c = NULL;
    pleat_device_cache_options_default(&opt);
    CHECK_STATUS(pleat_spec_parse("f16", &opt.spec, NULL), PLEAT_OK);
    opt.n_layers = N_LAYERS, opt.n_kv_heads = opt.n_q_heads = 1, opt.head_dim = D;
    opt.max_tokens = MOST, opt.windows = windows, opt.page_tokens = 16;
    opt.pool_bytes = 24 * 16 * D * 4; /* 24 pages, of the 50 that it would hold without windows */
    if (!CHECK_STATUS(pleat_device_cache_create(&opt, &c, NULL), PLEAT_OK)) return;
    void *rows = device_alloc(FIRST * D * 2), *out = device_alloc(FIRST * D * 2);
    CHECK_STATUS(pleat__device_fill(rows, 0, FIRST * D * 2, default_stream, NULL), PLEAT_OK);
    for (uint32_t at = 0, n; at < MOST && check_failures() == 0; at += n) {
        n = at ? CHUNK : FIRST;
        check_context("%u tokens behind %u", n, at);
        if (!CHECK_STATUS(at ? pleat_device_cache_chunk_begin(c, 0, n, NULL, NULL)
                             : pleat_device_cache_prompt_begin(c, 0, n, NULL, NULL),
                          PLEAT_OK))
            break;
        for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
            CHECK_STATUS(at ? pleat_device_cache_chunk_attend(c, layer, rows, rows, rows, out, NULL, NULL)
                            : pleat_device_cache_prompt_attend(c, layer, rows, rows, rows, out, NULL, NULL, NULL),
                         PLEAT_OK);
            CHECK_STATUS(pleat_device_cache_prompt(c, layer, rows, rows, NULL, NULL, NULL), PLEAT_OK);
        }
        CHECK_STATUS(pleat_device_cache_prompt_end(c, NULL, NULL), PLEAT_OK);
        CHECK_STATUS(pleat_device_cache_check(c, NULL, NULL), PLEAT_OK);
    }
    CHECK_STATUS(pleat_device_cache_chunk_begin(c, 0, 1, NULL, NULL), PLEAT_E_LIMIT);
    pleat_device_cache_destroy(&c);
    pleat__device_free(rows);
    pleat__device_free(out);
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

enum { N_FF = 64, N_PROMPT = 40, N_CHUNK = 17, N_READ = N_PROMPT + N_CHUNK, N_ALL = N_READ + 20 };

/* A golden model, and what was put in place of its tensors. */
typedef struct tiny {
    pleat_model *model;
    void *of[64];
    uint32_t n;
} tiny;

static pleat__matrix random_matrix(tiny *t, uint32_t rows, uint32_t cols) {
    uint16_t *halves = t->of[t->n++] = malloc((size_t)rows * cols * sizeof *halves);
    for (size_t i = 0; i < (size_t)rows * cols; i++) halves[i] = pleat__f32_to_f16(check_normal() / sqrtf((float)cols));
    return (pleat__matrix){PLEAT__W_F16, rows, cols, (uint64_t)cols * 2, (const uint8_t *)halves};
}

static const float *random_norm(tiny *t, uint32_t n) {
    float *x = t->of[t->n++] = malloc(n * sizeof *x);
    for (uint32_t i = 0; i < n; i++) x[i] = 1 + 0.2f * check_normal();
    return x;
}

/* Heads of another shape in place of a layer's. */
static void reshape_heads(tiny *t, pleat__layer *l) {
    const pleat_model_info *info = &t->model->info;
    const uint32_t d = info->head_dim, n_q = info->n_q_heads * d, n_kv = info->n_kv_heads * d;
    l->q = random_matrix(t, n_q, info->n_embd);
    l->k = random_matrix(t, n_kv, info->n_embd);
    l->v = random_matrix(t, n_kv, info->n_embd);
    l->o = random_matrix(t, info->n_embd, n_q);
    if (l->q_norm) l->q_norm = random_norm(t, d);
    if (l->k_norm) l->k_norm = random_norm(t, d);
}

/* head_dim 0: heads stay. */
static bool tiny_init(tiny *t, const char *name, uint32_t head_dim, uint32_t n_q_heads, uint32_t n_kv_heads) {
    char path[256];
    snprintf(path, sizeof path, "tests/golden/%s.gguf", name);
    *t = (tiny){.model = model_of(path)};
    pleat_model *m = t->model;
    if (!m) return false;
    m->info.n_ff = N_FF;
    for (uint32_t r = 0; head_dim && r < m->n_ropes; r++) m->ropes[r].n_dims = head_dim;
    if (head_dim) {
        m->info.head_dim = head_dim, m->info.n_q_heads = n_q_heads, m->info.n_kv_heads = n_kv_heads;
        m->info.softmax_scale = 1 / sqrtf((float)head_dim);
    }
    for (uint32_t i = 0; i < m->info.n_layers; i++) {
        pleat__layer *l = &m->layers[i];
        l->gate = random_matrix(t, N_FF, m->info.n_embd);
        l->up = random_matrix(t, N_FF, m->info.n_embd);
        l->down = random_matrix(t, m->info.n_embd, N_FF);
        if (head_dim) reshape_heads(t, l);
    }
    return true;
}

static void tiny_free(tiny *t) {
    pleat_model_destroy(&t->model);
    while (t->n > 0) free(t->of[--t->n]);
}

static pleat_engine *engine_on(const tiny *t, const char *spec, uint32_t devices, int fixed_splits) {
    pleat_engine_options opt = engine_options_of(spec);
    opt.max_seqs = opt.max_items = 4;
    opt.max_tokens = opt.chunk_tokens = 120;
    opt.step_tokens = 480;
    opt.devices = devices;
    opt.fixed_splits = fixed_splits;
    return engine_made(t->model, &opt);
}

static void step_one(pleat_engine *e, pleat_seq seq, const pleat_token *tokens, uint32_t n, float *logits) {
    pleat_error err = {0};
    const pleat_engine_item item = {.seq = seq, .tokens = tokens, .n_tokens = n, .n_logits = n, .logits = logits};
    const pleat_status status = pleat_engine_step(e, &item, 1, &err);
    if (status != PLEAT_OK) check_context("%s", err.text);
    CHECK_STATUS(status, PLEAT_OK);
}

/* Tokens of a conversation, N_ALL at most. */
static uint32_t n_told(void) { return N_READ + (uint32_t)check_cases(N_ALL - N_READ, 1); }

/* Logits of all tokens: a prompt, a later turn, single tokens. */
static pleat_seq converse(pleat_engine *e, const pleat_token *tokens, uint32_t n_vocab, float *logits) {
    pleat_seq seq = {0};
    CHECK_STATUS(pleat_engine_open(e, 120, &seq), PLEAT_OK);
    step_one(e, seq, tokens, N_PROMPT, logits);
    step_one(e, seq, tokens + N_PROMPT, N_CHUNK, logits + (size_t)N_PROMPT * n_vocab);
    for (uint32_t i = N_READ; i < n_told(); i++) step_one(e, seq, tokens + i, 1, logits + (size_t)i * n_vocab);
    return seq;
}

/* Mean Kullback-Leibler divergence of positions. */
static double mean_kld(const float *from, const float *to, uint32_t n_rows, uint32_t n_vocab) {
    double sum = 0;
    for (uint32_t row = 0; row < n_rows; row++, from += n_vocab, to += n_vocab) {
        double a = 0, b = 0;
        for (uint32_t i = 0; i < n_vocab; i++) a += exp((double)from[i]), b += exp((double)to[i]);
        for (uint32_t i = 0; i < n_vocab; i++) {
            const double p = (double)from[i] - log(a), q = (double)to[i] - log(b);
            sum += exp(p) * (p - q);
        }
    }
    return sum / n_rows;
}

/* Alone, in company and forked: the same bits. */
static void check_company(pleat_engine *e, pleat_seq seq, const pleat_token *tokens, uint32_t n_vocab) {
    const uint32_t n = (uint32_t)check_cases(10, 1);
    const size_t bytes = n_vocab * sizeof(float);
    float *many = malloc(4 * n * bytes), *alone = malloc(n * bytes);
    pleat_seq all[4] = {seq};
    pleat_engine_item items[4];
    CHECK_STATUS(pleat_engine_fork(e, seq, 120, &all[1]), PLEAT_OK);
    CHECK_STATUS(pleat_engine_fork(e, seq, 120, &all[2]), PLEAT_OK);
    CHECK_STATUS(pleat_engine_open(e, 120, &all[3]), PLEAT_OK);
    for (uint32_t i = 0; i < n; i++) {
        step_one(e, all[2], tokens + i, 1, alone + (size_t)i * n_vocab);
        for (uint32_t j = 0, k = 0; j < 4; j++) {
            if (j == 2) continue;
            items[k++] = (pleat_engine_item){.seq = all[j],
                                             .tokens = tokens + i + (j == 3),
                                             .n_tokens = 1,
                                             .n_logits = 1,
                                             .logits = many + (size_t)(j * n + i) * n_vocab};
        }
        CHECK_STATUS(pleat_engine_step(e, items, 3, NULL), PLEAT_OK);
    }
    CHECK_EQ_MEM(many, alone, n * bytes);
    CHECK_EQ_MEM(many + (size_t)n * n_vocab, alone, n * bytes);
    for (int j = 1; j < 4; j++) CHECK_STATUS(pleat_engine_close(e, all[j]), PLEAT_OK);
    free(many), free(alone);
}

/* A prompt of N_ALL tokens whole, and in parts: the same bits. */
static void check_parts(const tiny *t, const pleat_token *tokens) {
    static const uint32_t parts[] = {33, 2, 3, 9, 20, 50};
    const uint32_t n_vocab = t->model->info.n_vocab;
    const size_t bytes = (size_t)N_ALL * n_vocab * sizeof(float);
    float *whole = malloc(bytes), *parted = malloc(bytes);
    pleat_engine *e = engine_on(t, "f16", 1, 1);
    pleat_seq seq;
    CHECK_STATUS(pleat_engine_open(e, 120, &seq), PLEAT_OK);
    step_one(e, seq, tokens, N_ALL, whole);
    CHECK_STATUS(pleat_engine_close(e, seq), PLEAT_OK);
    for (size_t i = 0; i < check_cases(CHECK_COUNT(parts), 1); i++) {
        CHECK_STATUS(pleat_engine_open(e, 120, &seq), PLEAT_OK);
        for (uint32_t at = 0, n; at < N_ALL; at += n) {
            n = N_ALL - at < parts[i] + 2 ? N_ALL - at : parts[i];
            step_one(e, seq, tokens + at, n, parted + (size_t)at * n_vocab);
        }
        check_context("parts of %u", parts[i]);
        CHECK_EQ_MEM(parted, whole, bytes);
        CHECK_STATUS(pleat_engine_close(e, seq), PLEAT_OK);
    }
    pleat_engine_destroy(&e);
    free(whole), free(parted);
}

static void try_model(const tiny *t, const char *name) {
    static const char *const specs[] = {"f16", "k8v4"};
    const uint32_t n_vocab = t->model->info.n_vocab;
    const size_t n = (size_t)N_ALL * n_vocab;
    pleat_token tokens[N_ALL];
    float *exact = malloc(n * sizeof *exact), *cpu = malloc(n * sizeof *cpu), *gpu = malloc(n * sizeof *gpu);
    for (uint32_t i = 0; i < N_ALL; i++) tokens[i] = (pleat_token)check_below(n_vocab);
    for (size_t i = 0; i < check_cases(CHECK_COUNT(specs), 1); i++) {
        pleat_engine *engines[2] = {engine_on(t, specs[i], 0, 0), engine_on(t, specs[i], 1, 0)};
        if (!engines[0] || !engines[1]) break;
        pleat_cache_usage usages[2];
        const pleat_seq on_cpu = converse(engines[0], tokens, n_vocab, cpu);
        const pleat_seq on_gpu = converse(engines[1], tokens, n_vocab, gpu);
        if (i == 0) memcpy(exact, cpu, n * sizeof *exact);
        const double of_cpu = mean_kld(exact, cpu, n_told(), n_vocab), of_gpu = mean_kld(exact, gpu, n_told(), n_vocab);
        printf("# %s, heads of %u, %s: the CPU's mean KLD from its f16 %.3g, the GPU's %.3g\n", name,
               t->model->info.head_dim, specs[i], of_cpu, of_gpu);
        check_context("%s, heads of %u, %s: %g from f16, and %g on the CPU", name, t->model->info.head_dim, specs[i],
                      of_gpu, of_cpu);
        CHECK(i == 0 ? of_gpu <= 1e-4 : of_gpu <= 1.5 * of_cpu + 1e-4);
        CHECK_STATUS(pleat_engine_get_usage(engines[0], on_cpu, &usages[0]), PLEAT_OK);
        CHECK_STATUS(pleat_engine_get_usage(engines[1], on_gpu, &usages[1]), PLEAT_OK);
        CHECK_EQ_U64(usages[1].tokens_high, usages[0].tokens_high);
        CHECK_EQ_U64(usages[1].pages_used, usages[0].pages_used);
        if (t->model->info.window > 0 || t->model->info.head_dim > 64)
            check_company(engines[1], on_gpu, tokens, n_vocab);
        CHECK(pleat_engine_is_valid(engines[1]));
        for (int e = 0; e < 2; e++) pleat_engine_destroy(&engines[e]);
    }
    if (check_cases(1, 0)) check_parts(t, tokens);
    free(exact), free(cpu), free(gpu);
}

static void models_run_as_on_the_cpu(void) {
    CHECK_DEVICE();
    static const struct {
        const char *name;
        uint32_t head_dim, n_q_heads, n_kv_heads;
    } cases[] = {{"gemma3", 0, 0, 0},   {"gemma3", 256, 4, 1}, {"gemma3", 64, 16, 1}, {"gemma3", 96, 2, 2},
                 {"gemma2", 0, 0, 0},   {"gemma2", 256, 4, 2}, {"gemma2", 80, 4, 1},  {"mistral", 128, 4, 2},
                 {"mistral", 0, 0, 0},  {"phi3", 0, 0, 0},     {"qwen2", 0, 0, 0},    {"qwen3", 0, 0, 0},
                 {"smollm3", 80, 4, 4}, {"granite", 0, 0, 0},  {"llama", 0, 0, 0}};
    for (size_t i = 0; i < CHECK_COUNT(cases); i += check_cases(1, 5)) {
        tiny t;
        check_context("%s", cases[i].name);
        if (tiny_init(&t, cases[i].name, cases[i].head_dim, cases[i].n_q_heads, cases[i].n_kv_heads))
            try_model(&t, cases[i].name);
        tiny_free(&t);
    }
}

static void models_that_do_not_run_are_refused_by_name(void) {
    CHECK_DEVICE();
    static const char *const cases[][2] = {{"mixtral", "experts"},
                                           {"gpt-oss", "experts"},
                                           {"qwen3moe", "experts"},
                                           {"llama", "rows are no multiple of 32"}};
    for (size_t i = 0; i < CHECK_COUNT(cases); i++) {
        char path[256];
        snprintf(path, sizeof path, "tests/golden/%s.gguf", cases[i][0]);
        pleat_model *m = model_of(path);
        pleat_engine_options opt = engine_options_of("f16");
        pleat_engine *e = NULL;
        pleat_error err = {0};
        opt.devices = 1;
        opt.max_tokens = opt.chunk_tokens = 64;
        CHECK_STATUS(pleat_engine_create(m, &opt, &e, &err), PLEAT_E_UNSUPPORTED);
        check_context("%s: %s", cases[i][0], err.text);
        CHECK(strstr(err.text, cases[i][1]) != NULL);
        pleat_model_destroy(&m);
    }
}

/* Each allocation of an engine fails once: it is told, and nothing is left. */
static void memory_that_is_short_is_told(void) {
    CHECK_DEVICE();
    tiny t;
    if (!tiny_init(&t, "gemma3", 0, 0, 0)) return;
    for (uint64_t nth = 1; nth < 1000; nth += check_cases(1, 15)) {
        check_alloc ca;
        check_alloc_init(&ca, nth, 0);
        pleat_engine_options opt = engine_options_of("k8v4");
        pleat_engine *e = NULL;
        opt.devices = 1;
        opt.max_tokens = opt.chunk_tokens = 64;
        opt.allocator = &ca.a;
        const pleat_status status = pleat_engine_create(t.model, &opt, &e, NULL);
        check_context("allocation %llu", (unsigned long long)nth);
        CHECK(status == PLEAT_OK || status == PLEAT_E_MEMORY);
        pleat_engine_destroy(&e);
        CHECK_EQ_U64(ca.live, 0);
        if (ca.count < nth) break; /* none failed */
    }
    tiny_free(&t);
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        {"the cache is the CPU's", the_cache_is_the_cpus},
        {"what it does not take is named", what_it_does_not_take_is_named},
        {"rings grow in a small pool", rings_grow_in_a_small_pool},
        {"models run as on the CPU", models_run_as_on_the_cpu},
        {"models that do not run are refused by name", models_that_do_not_run_are_refused_by_name},
        {"memory that is short is told", memory_that_is_short_is_told},
    };
    return check_main(tests, CHECK_COUNT(tests), argc, argv);
}
