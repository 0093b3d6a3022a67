/* SPDX-License-Identifier: MIT
 *
 * test_engine.c: the engine through its public interface: limits in words, flow control, mixed steps, weights that
 * give no finite numbers, weights that are held once, the likeliest tokens, activations of 8 bits, and every allocation
 * failing once.  What it computes is checked by test_golden.c.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gguf/gguf.h"
#include "model/internal.h"
#include "model_rig.h"

static pleat_engine_options options_of(const char *spec, uint32_t max_seqs, uint32_t max_tokens) {
    pleat_engine_options opt = engine_options_of(spec);
    opt.max_seqs = max_seqs;
    opt.max_tokens = max_tokens;
    opt.chunk_tokens = 16;
    return opt;
}

static void test_limits_name_both_numbers(void) {
    pleat_model *model = model_of(REFERENCE_MODEL);
    pleat_engine_options opt = options_of("f16", 2, 40);
    opt.step_tokens = 20;
    pleat_engine *engine = NULL;
    pleat_error err = {0};
    pleat_seq a, b;
    const pleat_token tokens[32] = {0};
    if (!CHECK_STATUS(pleat_engine_create(model, &opt, &engine, &err), PLEAT_OK)) return;
    pleat_engine_get_options(engine, &opt);
    CHECK_EQ_U64(opt.page_tokens, 32); /* the default below 8192 tokens */
    CHECK(opt.allocator != NULL);
    CHECK_STATUS(pleat_engine_open(engine, 10, &a), PLEAT_OK);
    CHECK_STATUS(pleat_engine_open(engine, 41, &b), PLEAT_E_ARG);
    CHECK_STATUS(pleat_engine_open(engine, 40, &b), PLEAT_OK);

    const pleat_engine_item long_a = {.seq = a, .tokens = tokens, .n_tokens = 11};
    CHECK_STATUS(pleat_engine_step(engine, &long_a, 1, &err), PLEAT_E_LIMIT);
    CHECK(strstr(err.text, "11") && strstr(err.text, "10"));
    const pleat_engine_item chunk = {.seq = b, .tokens = tokens, .n_tokens = 17};
    CHECK_STATUS(pleat_engine_step(engine, &chunk, 1, &err), PLEAT_E_LIMIT);
    CHECK(strstr(err.text, "17") && strstr(err.text, "16"));
    const pleat_engine_item both[] = {{.seq = b, .tokens = tokens, .n_tokens = 16},
                                      {.seq = a, .tokens = tokens, .n_tokens = 5}};
    CHECK_STATUS(pleat_engine_step(engine, both, 2, &err), PLEAT_E_LIMIT);
    CHECK(strstr(err.text, "20") != NULL);
    CHECK_EQ_U64(pleat_engine_length(engine, a) + pleat_engine_length(engine, b), 0);
    CHECK(pleat_engine_is_valid(engine));
    pleat_engine_destroy(&engine);
    CHECK(engine == NULL);
    opt = options_of("f16", 1, 4097);
    CHECK_STATUS(pleat_engine_create(model, &opt, &engine, &err), PLEAT_E_LIMIT);
    CHECK(strstr(err.text, "4097") && strstr(err.text, "4096") && engine == NULL);
    pleat_model_destroy(&model);
}

/* Misuse is refused and changes nothing: the same sequence then takes a good step. */
static void test_misuse(void) {
    pleat_model *model = model_of(REFERENCE_MODEL);
    const pleat_engine_options opt = options_of("f16", 2, 40);
    pleat_engine *engine = NULL;
    pleat_error err = {0};
    pleat_seq a;
    pleat_token tokens[10] = {0};
    float *logits = malloc(2 * 8192 * sizeof *logits);
    if (!CHECK_STATUS(pleat_engine_create(model, &opt, &engine, &err), PLEAT_OK)) return;
    CHECK_STATUS(pleat_engine_open(engine, 10, &a), PLEAT_OK);
    const pleat_engine_item twice[] = {{.seq = a, .tokens = tokens, .n_tokens = 1},
                                       {.seq = a, .tokens = tokens, .n_tokens = 1}};
    CHECK_STATUS(pleat_engine_step(engine, twice, 2, &err), PLEAT_E_ARG);
    CHECK_STATUS(pleat_engine_step(engine, twice, 3, &err), PLEAT_E_ARG);
    tokens[1] = 8192;
    const pleat_engine_item bad = {.seq = a, .tokens = tokens, .n_tokens = 2};
    CHECK_STATUS(pleat_engine_step(engine, &bad, 1, &err), PLEAT_E_ARG);
    CHECK(strstr(err.text, "8192") != NULL);
    tokens[1] = -1;
    CHECK_STATUS(pleat_engine_step(engine, &bad, 1, &err), PLEAT_E_ARG);
    tokens[1] = 0;
    const pleat_engine_item greedy = {.seq = a, .tokens = tokens, .n_tokens = 1, .n_logits = 2, .logits = logits};
    CHECK_STATUS(pleat_engine_step(engine, &greedy, 1, &err), PLEAT_E_ARG);
    const pleat_engine_item nowhere = {.seq = a, .tokens = tokens, .n_tokens = 1, .n_logits = 1};
    CHECK_STATUS(pleat_engine_step(engine, &nowhere, 1, &err), PLEAT_E_ARG);
    CHECK_EQ_U64(pleat_engine_length(engine, a), 0);
    CHECK(pleat_engine_is_valid(engine));
    const pleat_engine_item good = {.seq = a, .tokens = tokens, .n_tokens = 10, .n_logits = 2, .logits = logits};
    CHECK_STATUS(pleat_engine_step(engine, &good, 1, &err), PLEAT_OK);
    CHECK_EQ_U64(pleat_engine_length(engine, a), 10);
    pleat_engine_destroy(&engine);
    pleat_model_destroy(&model);
    free(logits);
}

/* A file's head names the statistics where the spec is made with them, also in an engine that has some for nothing. */
static void test_image_heads(void) {
    static const char *const specs[] = {"rd", "k8v4"};
    pleat_model *model = model_of(REFERENCE_MODEL);
    pleat_image_head head;
    pleat_stats *stats = NULL;
    char fingerprint[PLEAT_FINGERPRINT_CAP];
    CHECK_STATUS(pleat_stats_load("models/pleat-28m-q8_0.stats", NULL, &stats, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_model_fingerprint(model, fingerprint), PLEAT_OK);
    for (uint32_t i = 0; i < CHECK_COUNT(specs); i++) {
        pleat_engine_options opt = options_of(specs[i], 1, 64);
        pleat_engine *engine = NULL;
        opt.stats = stats;
        opt.page_tokens = i ? 48 : 0;
        check_context("%s", specs[i]);
        CHECK_STATUS(pleat_engine_create(model, &opt, &engine, NULL), PLEAT_OK);
        CHECK_STATUS(pleat_engine_image_head(engine, &head), PLEAT_OK);
        CHECK_EQ_STR(head.model, fingerprint);
        CHECK_EQ_STR(head.profile, i ? "" : pleat_stats_fingerprint(stats));
        CHECK(head.n_layers == 8 && head.n_q_heads == 8 && head.n_kv_heads == 4 && head.head_dim == 64);
        CHECK_EQ_U64(head.page_tokens, i ? 48 : pleat_cache_page_tokens(pleat_engine_cache(engine)));
        CHECK(head.size_bytes == sizeof head && !head.spec && !head.tokens);
        CHECK_STATUS(pleat_engine_image_head(engine, NULL), PLEAT_E_ARG);
        pleat_engine_destroy(&engine);
    }
    CHECK_STATUS(pleat_engine_image_head(NULL, &head), PLEAT_E_ARG);
    pleat_stats_destroy(&stats);
    pleat_model_destroy(&model);
}

static void test_full_pool_is_flow_control(void) {
    pleat_model *model = model_of(REFERENCE_MODEL);
    pleat_engine_options opt = options_of("k8v4", 2, 64);
    opt.pool_bytes = (uint64_t)8 * 4 * 32 * 104; /* one page a lane */
    pleat_engine *engine = NULL;
    pleat_error err = {0};
    pleat_seq a, b;
    const pleat_token tokens[16] = {0};
    CHECK_STATUS(pleat_engine_create(model, &opt, &engine, &err), PLEAT_OK);
    CHECK_STATUS(pleat_engine_open(engine, 64, &a), PLEAT_OK);
    CHECK_STATUS(pleat_engine_open(engine, 64, &b), PLEAT_OK);
    CHECK_STATUS(pleat_engine_step(engine, &(pleat_engine_item){.seq = a, .tokens = tokens, .n_tokens = 16}, 1, &err),
                 PLEAT_OK);
    CHECK_STATUS(pleat_engine_step(engine, &(pleat_engine_item){.seq = b, .tokens = tokens, .n_tokens = 1}, 1, &err),
                 PLEAT_AGAIN);
    CHECK(strstr(err.text, "32 of 32") != NULL);
    CHECK_STATUS(pleat_engine_close(engine, a), PLEAT_OK);
    const pleat_engine_item half = {.seq = b, .tokens = tokens, .n_tokens = 16};
    for (int i = 0; i < 2; i++) CHECK_STATUS(pleat_engine_step(engine, &half, 1, &err), PLEAT_OK);
    CHECK_EQ_U64(pleat_engine_length(engine, b), 32);
    CHECK_STATUS(pleat_engine_step(engine, &(pleat_engine_item){.seq = b, .tokens = tokens, .n_tokens = 1}, 1, &err),
                 PLEAT_E_LIMIT); /* no pool of this size can hold it */
    CHECK(strstr(err.text, "32 pages") != NULL);
    CHECK(pleat_engine_is_valid(engine));
    pleat_engine_destroy(&engine);
    pleat_model_destroy(&model);
}

/* A model whose weights give NaN: an error, and the sequence is as it was. */
static void test_damaged_weights(void) {
    size_t n_bytes;
    unsigned char *file = check_read_file(REFERENCE_MODEL, &n_bytes);
    if (!CHECK(file != NULL)) return;
    /* The second half of the data: scales of every layer's matrices become f16 NaN here and there. */
    for (size_t i = n_bytes / 2; i + 1 < n_bytes; i += 997) file[i] = file[i + 1] = 0xFF;
    char path[256];
    pleat_model *model = NULL;
    if (CHECK(check_write_temp(file, n_bytes, path, sizeof path))) {
        model = model_of(path);
        unlink(path);
    }
    free(file);
    if (!model) return;
    pleat_engine_options opt = options_of("k8v4", 1, 64);
    pleat_engine *engine = NULL;
    pleat_error err = {0};
    pleat_seq a;
    const pleat_token tokens[16] = {1, 2, 3};
    CHECK_STATUS(pleat_engine_create(model, &opt, &engine, &err), PLEAT_OK);
    CHECK_STATUS(pleat_engine_open(engine, 64, &a), PLEAT_OK);
    CHECK_STATUS(pleat_engine_step(engine, &(pleat_engine_item){.seq = a, .tokens = tokens, .n_tokens = 16}, 1, &err),
                 PLEAT_E_RANGE);
    CHECK(strstr(err.text, "finite") != NULL);
    CHECK_EQ_U64(pleat_engine_length(engine, a), 0);
    pleat_cache_usage u;
    CHECK_STATUS(pleat_engine_get_usage(engine, a, &u), PLEAT_OK);
    CHECK_EQ_U64(u.pages_used, 0);
    CHECK(pleat_engine_is_valid(engine));
    pleat_engine_destroy(&engine);
    pleat_model_destroy(&model);
}

/* A tensor's place in the file's bytes. */
static uint64_t tensor_offset(const unsigned char *file, size_t n_bytes, const char *name) {
    pleat_gguf *gguf = NULL;
    uint64_t at = 0;
    if (!CHECK_STATUS(pleat_gguf_open_memory(file, n_bytes, NULL, &gguf, NULL), PLEAT_OK)) return 0;
    const pleat__gguf_tensor *t = pleat__gguf_find_tensor(gguf, name);
    if (CHECK(t != NULL)) at = t->offset;
    pleat_gguf_close(&gguf);
    return at;
}

/* The status of two steps, with logits and without, on the reference model with `bytes` at the start of a tensor. */
static void check_damage(unsigned char *file, size_t n_bytes, const char *name, const unsigned char *bytes, size_t n,
                         const char *text) {
    char path[256];
    unsigned char old[4];
    const uint64_t at = tensor_offset(file, n_bytes, name);
    memcpy(old, file + at, n);
    memcpy(file + at, bytes, n);
    const bool is_written = CHECK(check_write_temp(file, n_bytes, path, sizeof path));
    memcpy(file + at, old, n);
    pleat_model *model = is_written ? model_of(path) : NULL;
    if (is_written) unlink(path);
    if (!model) return;
    pleat_engine_options opt = options_of("f16", 1, 64);
    pleat_engine *engine = engine_made(model, &opt);
    pleat_error err = {0};
    pleat_seq a;
    const pleat_token tokens[3] = {5, 6, 7};
    float *logits = malloc(8192 * sizeof *logits);
    CHECK_STATUS(pleat_engine_open(engine, 64, &a), PLEAT_OK);
    const pleat_engine_item item = {.seq = a, .tokens = tokens, .n_tokens = 3, .n_logits = 1, .logits = logits};
    check_context("%s", name);
    CHECK_STATUS(pleat_engine_step(engine, &item, 1, &err), PLEAT_E_RANGE);
    CHECK(strstr(err.text, text) != NULL);
    CHECK_EQ_U64(pleat_engine_length(engine, a), 0);
    CHECK(pleat_engine_is_valid(engine));
    free(logits);
    pleat_engine_destroy(&engine);
    pleat_model_destroy(&model);
}

/* A single weight that is not finite is found wherever it stands, also where keys, values and even logits do not show
 * it; finite weights that are too large are found by what comes out. */
static void test_weights_that_are_not_finite(void) {
    static const unsigned char nan16[] = {0x01, 0xFE}, inf16[] = {0x00, 0x7C}, minus_inf16[] = {0x00, 0xFC},
                               inf32[] = {0, 0, 0x80, 0x7F}, huge32[] = {0, 0, 0x7F, 0x7F};
    size_t n_bytes;
    unsigned char *file = check_read_file(REFERENCE_MODEL, &n_bytes);
    if (!CHECK(file != NULL)) return;
    check_damage(file, n_bytes, "token_embd.weight", inf16, 2, "'token_embd.weight'");
    check_damage(file, n_bytes, "output_norm.weight", inf32, 4, "'output_norm.weight'");
    check_damage(file, n_bytes, "blk.7.ffn_down.weight", nan16, 2, "'blk.7.ffn_down.weight'");
    check_damage(file, n_bytes, "blk.7.ffn_gate.weight", minus_inf16, 2, "'blk.7.ffn_gate.weight'");
    check_damage(file, n_bytes, "blk.0.attn_q.weight", minus_inf16, 2, "'blk.0.attn_q.weight'");
    check_damage(file, n_bytes, "blk.7.ffn_norm.weight", huge32, 4, "finite");
    free(file);
}

/* ---- the likeliest tokens -------------------------------------------------------------------------- */

enum { N_SEQS = 3, N_VOCAB = 8192, CHUNK = 16 };

/* One engine is asked for logits, the other for the likeliest tokens with and without logits. */
typedef struct pair {
    pleat_engine *by_logits, *by_token;
    pleat_seq seqs[2][N_SEQS];
    float *logits[2]; /* [N_SEQS][N_VOCAB] */
} pair;

static bool pair_open(pair *p, const pleat_model *model) {
    const pleat_engine_options opt = options_of("k8v4", N_SEQS, 64);
    pleat_engine **engines[] = {&p->by_logits, &p->by_token};
    *p = (pair){0};
    for (uint32_t i = 0; i < 2; i++) {
        pleat_engine_options own = opt;
        own.step_tokens = N_SEQS * CHUNK;
        if (!(*engines[i] = engine_made(model, &own))) return false;
        p->logits[i] = malloc(sizeof(float) * N_SEQS * N_VOCAB);
        for (uint32_t s = 0; s < N_SEQS; s++)
            CHECK_STATUS(pleat_engine_open(*engines[i], 64, &p->seqs[i][s]), PLEAT_OK);
    }
    return true;
}

static void pair_close(pair *p) {
    for (uint32_t i = 0; i < 2; i++) free(p->logits[i]);
    pleat_engine_destroy(&p->by_logits);
    pleat_engine_destroy(&p->by_token);
}

/* A step of both: item s takes tokens[s][n], and next[s] becomes its likeliest.  Every other item has logits. */
static void pair_step(pair *p, pleat_token tokens[N_SEQS][CHUNK], uint32_t n, uint32_t round, pleat_token *next) {
    pleat_engine_item items[2][N_SEQS];
    for (uint32_t s = 0; s < N_SEQS; s++) {
        float *rows[] = {p->logits[0] + s * N_VOCAB, p->logits[1] + s * N_VOCAB};
        const uint32_t n_logits = (s + round) % 2;
        items[0][s] = (pleat_engine_item){p->seqs[0][s], tokens[s], n, 1, rows[0], 0};
        items[1][s] = (pleat_engine_item){p->seqs[1][s], tokens[s], n, n_logits, n_logits ? rows[1] : NULL, 0};
    }
    CHECK_STATUS(pleat_engine_step(p->by_logits, items[0], N_SEQS, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_engine_step_likeliest(p->by_token, items[1], N_SEQS, next, NULL), PLEAT_OK);
    for (uint32_t s = 0; s < N_SEQS; s++) {
        check_context("round %u, item %u", round, s);
        CHECK_EQ_U64(next[s], likeliest(items[0][s].logits, N_VOCAB));
        if (items[1][s].n_logits) CHECK_EQ_MEM(items[1][s].logits, items[0][s].logits, N_VOCAB * sizeof(float));
    }
}

/* Prompts, then tokens that follow from them. */
/* Bytes of files and shared memory that this process has in memory; 0 where the system does not say. */
static uint64_t resident_file_bytes(void) {
    unsigned long long all, resident, shared = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    if (fscanf(f, "%llu %llu %llu", &all, &resident, &shared) != 3) shared = 0;
    fclose(f);
    return shared * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* What is packed leaves the mapped file's memory, and a second engine finds the file as it was. */
static void test_weights_are_held_once(void) {
    pleat_model *model = model_of(REFERENCE_MODEL);
    if (!model) return;
    unsigned sum = 0;
    for (uint64_t i = 0; i < model->gguf->info.file_bytes; i += 64) sum += model->gguf->bytes[i];
    CHECK(sum > 0);
    const uint64_t before = resident_file_bytes();
    float *logits[2];
    for (int i = 0; i < 2; i++) {
        pleat_engine_options opt = options_of("f16", 1, 64);
        pleat_engine *engine = engine_made(model, &opt);
        pleat_seq seq;
        const pleat_token tokens[3] = {5, 6, 7};
        logits[i] = calloc(8192, sizeof **logits);
        CHECK_STATUS(pleat_engine_open(engine, 64, &seq), PLEAT_OK);
        const pleat_engine_item item = {
            .seq = seq, .tokens = tokens, .n_tokens = 3, .n_logits = 1, .logits = logits[i]};
        CHECK_STATUS(pleat_engine_step(engine, &item, 1, NULL), PLEAT_OK);
        if (before > 0) CHECK(resident_file_bytes() + model->info.weight_bytes * 3 / 4 < before);
        pleat_engine_destroy(&engine);
    }
    CHECK(memcmp(logits[0], logits[1], 8192 * sizeof **logits) == 0 && logits[0][0] != 0);
    free(logits[0]);
    free(logits[1]);
    pleat_model_destroy(&model);
    if (before == 0) SKIP("no /proc/self/statm: what is resident was not looked at");
}

static void test_likeliest(void) {
    pleat_model *model = model_of(REFERENCE_MODEL);
    pleat_token tokens[N_SEQS][CHUNK], next[N_SEQS];
    pair p;
    for (uint32_t s = 0; s < N_SEQS; s++)
        for (uint32_t i = 0; i < CHUNK; i++) tokens[s][i] = (pleat_token)check_below(N_VOCAB);
    if (CHECK(model != NULL) && pair_open(&p, model)) {
        pair_step(&p, tokens, CHUNK, 0, next);
        for (uint32_t round = 1; round < 6; round++) {
            for (uint32_t s = 0; s < N_SEQS; s++) tokens[s][0] = next[s];
            pair_step(&p, tokens, 1, round, next);
        }
        const pleat_engine_item item = {
            p.seqs[1][0], tokens[0], CHUNK, CHUNK, malloc(sizeof(float) * CHUNK * N_VOCAB), 0};
        CHECK_STATUS(pleat_engine_step_likeliest(p.by_token, &item, 1, next, NULL), PLEAT_OK);
        CHECK_EQ_U64(next[0], likeliest(item.logits + (size_t)(CHUNK - 1) * N_VOCAB, N_VOCAB)); /* of the last row */
        free(item.logits);
        pair_close(&p);
    }
    pleat_model_destroy(&model);
}

/* The reference model with output row `from` in two other rows too. */
static pleat_model *model_with_twins(uint32_t from, const uint32_t to[2]) {
    size_t n_bytes;
    char path[256];
    pleat_model *model = model_of(REFERENCE_MODEL);
    unsigned char *file = check_read_file(REFERENCE_MODEL, &n_bytes);
    if (!CHECK(model && file)) return NULL;
    const size_t row_bytes = model->output.row_bytes;
    unsigned char *rows = file + (model->output.data - model->gguf->bytes);
    for (uint32_t i = 0; i < 2; i++) memcpy(rows + to[i] * row_bytes, rows + from * row_bytes, row_bytes);
    pleat_model_destroy(&model);
    if (CHECK(check_write_temp(file, n_bytes, path, sizeof path))) {
        model = model_of(path);
        unlink(path);
    }
    free(file);
    return model;
}

/* Among equals it is the lowest id, with logits and without. */
static void test_likeliest_of_equals(void) {
    enum { FIRST = 7000 }; /* of the prompt's tokens, none of which is a twin: the rows are the embedding's too */
    pleat_model *model = model_of(REFERENCE_MODEL);
    pleat_token tokens[N_SEQS][CHUNK], next[N_SEQS];
    pair p;
    if (!CHECK(model != NULL)) return;
    for (uint32_t s = 0; s < N_SEQS; s++)
        for (uint32_t i = 0; i < CHUNK; i++) tokens[s][i] = (pleat_token)(FIRST + i);
    if (pair_open(&p, model)) pair_step(&p, tokens, CHUNK, 0, next);
    pair_close(&p);
    pleat_model_destroy(&model);
    const uint32_t best = (uint32_t)next[0], twins[] = {best / 2, best + 1};
    if (!CHECK(best > 0 && best + 1 < FIRST)) return;
    model = model_with_twins(best, twins);
    if (model && pair_open(&p, model)) {
        pair_step(&p, tokens, CHUNK, 0, next);
        const float *row = p.logits[0];
        CHECK(row[best] == row[twins[0]] && row[best] == row[twins[1]]);
        for (uint32_t s = 0; s < N_SEQS; s++) CHECK_EQ_U64(next[s], best / 2);
        pair_close(&p);
    }
    pleat_model_destroy(&model);
}

/* Rows that nobody sees are allocated when they are first needed, and once; where that fails no step has been. */
static void try_rows(check_alloc *ca, pleat_engine *engine, pleat_seq seq, float *logits) {
    const pleat_token tokens[3] = {5, 6, 7};
    const pleat_engine_item with = {seq, tokens, 3, 1, logits, 0}, without = {seq, tokens, 3, 0, NULL, 0};
    const uint64_t count = ca->count, live_bytes = ca->live_bytes;
    pleat_token next = -1;
    pleat_error err = {0};
    CHECK_STATUS(pleat_engine_step(engine, &without, 1, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_engine_step_likeliest(engine, &with, 1, &next, NULL), PLEAT_OK);
    CHECK_EQ_U64(ca->count, count);
    next = -1;
    ca->fail_at = count + 1;
    CHECK_STATUS(pleat_engine_step_likeliest(engine, &without, 1, &next, &err), PLEAT_E_MEMORY);
    CHECK(strstr(err.text, "memory") && next == -1);
    CHECK_EQ_U64(pleat_engine_length(engine, seq), 6);
    for (uint32_t i = 0; i < 2; i++)
        CHECK_STATUS(pleat_engine_step_likeliest(engine, &without, 1, &next, NULL), PLEAT_OK);
    CHECK_EQ_U64(pleat_engine_length(engine, seq), 12);
    CHECK_EQ_U64(ca->count, count + 2);
    CHECK_EQ_U64(ca->live_bytes, live_bytes + N_VOCAB * sizeof(float));
}

static void test_likeliest_allocates_once(void) {
    pleat_model *model = model_of(REFERENCE_MODEL);
    pleat_engine_options opt = options_of("k8v4", 1, 64);
    check_alloc ca;
    check_alloc_init(&ca, 0, 0);
    opt.allocator = &ca.a;
    pleat_engine *engine = engine_made(model, &opt);
    pleat_seq seq = {0};
    float *logits = malloc(N_VOCAB * sizeof *logits);
    if (engine && CHECK_STATUS(pleat_engine_open(engine, 64, &seq), PLEAT_OK)) {
        try_rows(&ca, engine, seq, logits);
        CHECK(pleat_engine_is_valid(engine));
    }
    pleat_engine_destroy(&engine);
    CHECK_EQ_U64(ca.live, 0);
    pleat_model_destroy(&model);
    free(logits);
}

/* ---- allocations ------------------------------------------------------------------------------------ */

/* Load, create and open with the nth allocation failing; one that only costs the tokenizer its JIT may succeed. */
static pleat_status run_all(check_alloc *ca, pleat_model **model, pleat_engine **engine, pleat_seq *seq) {
    pleat_status st = pleat_model_load(REFERENCE_MODEL, &ca->a, model, NULL);
    if (st != PLEAT_OK) return st;
    pleat_engine_options opt = options_of("k8v4", 1, 64);
    opt.allocator = &ca->a;
    st = pleat_engine_create(*model, &opt, engine, NULL);
    if (st != PLEAT_OK) return st;
    return pleat_engine_open(*engine, 64, seq);
}

static void test_allocation_failure(void) {
    for (uint64_t nth = 1; nth < 1000; nth++) {
        check_alloc ca;
        check_alloc_init(&ca, nth, 0);
        pleat_model *model = NULL;
        pleat_engine *engine = NULL;
        pleat_seq seq = {0};
        const pleat_status st = run_all(&ca, &model, &engine, &seq);
        const bool done = ca.count < nth; /* none failed */
        if (st != PLEAT_OK) {
            CHECK_STATUS(st, PLEAT_E_MEMORY);
            CHECK_EQ_U64(seq.v, 0);
        } else {
            const uint64_t count = ca.count;
            const pleat_token tokens[3] = {0, 5, 6};
            float *logits = malloc(8192 * sizeof *logits);
            const pleat_engine_item item = {
                .seq = seq, .tokens = tokens, .n_tokens = 3, .n_logits = 1, .logits = logits};
            CHECK_STATUS(pleat_engine_step(engine, &item, 1, NULL), PLEAT_OK);
            CHECK_EQ_U64(ca.count, count); /* a step allocates nothing */
            free(logits);
        }
        pleat_engine_destroy(&engine);
        pleat_model_destroy(&model);
        CHECK_EQ_U64(ca.live, 0);
        if (!done) continue;
        CHECK_STATUS(st, PLEAT_OK);
        CHECK(nth > 10);
        return;
    }
    CHECK(!"an end");
}

/* ---- activations of 8 bits ------------------------------------------------------------------------- */

enum { N_READ = 24 }; /* tokens */

/* Logits [N_READ][N_VOCAB] of a text, two tokens a step: no kernel leaves so few to GEMM. */
static float *logits_with(const pleat_model *model, uint32_t activation_bits, uint32_t n_threads) {
    pleat_engine_options opt = options_of("f32", 1, 64);
    CHECK_STATUS(pleat_workers_create(n_threads, NULL, &opt.workers), PLEAT_OK);
    opt.activation_bits = activation_bits;
    pleat_engine *engine = engine_made(model, &opt);
    pleat_seq seq;
    pleat_token tokens[N_READ];
    float *logits = calloc((size_t)N_READ * N_VOCAB, sizeof *logits);
    for (int i = 0; i < N_READ; i++) tokens[i] = 300 + 17 * i;
    CHECK_STATUS(pleat_engine_open(engine, 64, &seq), PLEAT_OK);
    for (int i = 0; i < N_READ; i += 2) {
        const pleat_engine_item item = {seq, tokens + i, 2, 2, logits + (size_t)i * N_VOCAB, 0};
        CHECK_STATUS(pleat_engine_step(engine, &item, 1, NULL), PLEAT_OK);
    }
    pleat_engine_get_options(engine, &opt);
    CHECK_EQ_U64(opt.activation_bits, activation_bits ? activation_bits : 16);
    pleat_engine_destroy(&engine);
    pleat_workers_destroy(&opt.workers);
    return logits;
}

/* Kullback-Leibler divergence of softmax(q) from softmax(p). */
static double divergence(const float *p, const float *q) {
    double sums[2] = {0}, sum = 0;
    for (int i = 0; i < N_VOCAB; i++) sums[0] += exp((double)p[i]), sums[1] += exp((double)q[i]);
    for (int i = 0; i < N_VOCAB; i++)
        sum += exp((double)p[i]) / sums[0] * ((double)p[i] - log(sums[0]) - (double)q[i] + log(sums[1]));
    return sum;
}

/* They change logits, by little, and the thread count does not change them.  16 bits are the default. */
static void test_activations_of_8_bits(void) {
    pleat_model *model = model_of(REFERENCE_MODEL);
    if (!model) return;
    const size_t n_bytes = sizeof(float) * N_READ * N_VOCAB;
    float *of_default = logits_with(model, 0, 1), *of_16 = logits_with(model, 16, 1);
    float *of_8 = logits_with(model, 8, 1), *in_company = logits_with(model, 8, 3);
    double mean = 0;
    for (size_t i = 0; i < N_READ; i++) mean += divergence(of_16 + i * N_VOCAB, of_8 + i * N_VOCAB) / N_READ;
    check_context("mean divergence %g", mean);
    CHECK(mean > 1e-6 && mean < 0.05);
    CHECK_EQ_MEM(of_default, of_16, n_bytes);
    CHECK_EQ_MEM(of_8, in_company, n_bytes);
    free(of_default), free(of_16), free(of_8), free(in_company);
    pleat_model_destroy(&model);
}

static void test_activation_bits_are_refused(void) {
    pleat_model *model = model_of(REFERENCE_MODEL);
    if (!model) return;
    static const struct {
        uint32_t bits, devices;
        pleat_status status;
        const char *text;
    } refused[] = {{7, 0, PLEAT_E_ARG, "activations of 7 bits: they have 8 or 16"},
                   {1, 0, PLEAT_E_ARG, "activations of 1 bits"},
                   {UINT32_MAX, 0, PLEAT_E_ARG, "8 or 16"},
                   {32, 1, PLEAT_E_ARG, "activations of 32 bits"},
                   {8, 1, PLEAT_E_UNSUPPORTED, "are for the CPU"}};
    for (size_t i = 0; i < CHECK_COUNT(refused); i++) {
        pleat_engine_options opt = options_of("f16", 1, 40);
        pleat_engine *engine = NULL;
        pleat_error err = {0};
        opt.activation_bits = refused[i].bits;
        opt.devices = refused[i].devices;
        CHECK_STATUS(pleat_engine_create(model, &opt, &engine, &err), refused[i].status);
        check_context("%s", err.text);
        CHECK(strstr(err.text, refused[i].text) != NULL && engine == NULL);
    }
    pleat_model_destroy(&model);
}

static const check_test tests[] = {
    {"limits_name_both_numbers", test_limits_name_both_numbers},
    {"misuse", test_misuse},
    {"image_heads", test_image_heads},
    {"full_pool_is_flow_control", test_full_pool_is_flow_control},
    {"damaged_weights", test_damaged_weights},
    {"weights_that_are_not_finite", test_weights_that_are_not_finite},
    {"weights_are_held_once", test_weights_are_held_once},
    {"allocation_failure", test_allocation_failure},
    {"likeliest", test_likeliest},
    {"likeliest_of_equals", test_likeliest_of_equals},
    {"likeliest_allocates_once", test_likeliest_allocates_once},
    {"activations_of_8_bits", test_activations_of_8_bits},
    {"activation_bits_are_refused", test_activation_bits_are_refused},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
