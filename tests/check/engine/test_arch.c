/* SPDX-License-Identifier: MIT
 *
 * test_arch.c: each architecture against transformers: tests/golden/NAME.gguf, tiny random models whose metadata hold a
 * prompt and the logits that transformers' float32 pass gives it (tests/golden/make_tiny.py).
 *
 * The cache is f32, so that nothing is between the two passes but the order of sums.  Prompts go in one chunk, in
 * several and token by token.  Then bits: a sequence alone and one in company have the same.
 */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gguf/gguf.h"
#include "model/internal.h"
#include "model_rig.h"

#define FOLDER "tests/golden"

/* Largest difference of a logit, of the norm of its position's logits: 7e-7 was the largest when this was written.
 * Where weights are quantised, the rows that they meet are too. */
#define TOLERANCE 5e-6
#define QUANTISED_TOLERANCE 2e-4

typedef struct golden {
    pleat_model *model;
    pleat_model_info info;
    uint32_t n_tokens;
    pleat_token *tokens; /* [n_tokens] */
    float *logits;       /* [n_tokens][n_vocab] */
} golden;

static bool golden_load(golden *g, const char *name) {
    char path[512];
    *g = (golden){0};
    snprintf(path, sizeof path, FOLDER "/%s.gguf", name);
    g->model = model_of(path);
    if (!g->model) return false;
    pleat_model_get_info(g->model, &g->info);
    const pleat_gguf *gguf = g->model->gguf;
    const pleat__gguf_value *tokens = pleat__gguf_find(gguf, "golden.tokens");
    const pleat__gguf_value *logits = pleat__gguf_find(gguf, "golden.logits");
    if (!CHECK(tokens && logits && logits->n_items == tokens->n_items * g->info.n_vocab)) return false;
    g->n_tokens = (uint32_t)tokens->n_items;
    g->tokens = malloc(g->n_tokens * sizeof *g->tokens);
    g->logits = malloc(logits->n_items * sizeof *g->logits);
    for (uint32_t i = 0; i < g->n_tokens; i++) {
        int64_t id = -1;
        CHECK(pleat__gguf_i64(gguf, tokens, i, &id));
        g->tokens[i] = (pleat_token)id;
    }
    for (uint64_t i = 0; i < logits->n_items; i++) {
        double x = NAN;
        CHECK(pleat__gguf_f64(gguf, logits, i, &x));
        g->logits[i] = (float)x;
    }
    return true;
}

static void golden_free(golden *g) {
    free(g->tokens), free(g->logits);
    pleat_model_destroy(&g->model);
}

/* fn(g) for each file of the folder, in no order. */
static void for_goldens(void (*fn)(const golden *g)) {
    DIR *folder = opendir(FOLDER);
    uint32_t n = 0;
    if (!CHECK(folder != NULL)) return;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        char name[256];
        const size_t length = strlen(entry->d_name);
        golden g;
        if (length < 6 || strcmp(entry->d_name + length - 5, ".gguf") != 0) continue;
        snprintf(name, sizeof name, "%.*s", (int)(length - 5), entry->d_name);
        check_context("%s", name);
        if (golden_load(&g, name)) fn(&g);
        golden_free(&g);
        n++;
    }
    closedir(folder);
    CHECK(n >= 15);
}

static pleat_engine *engine_of(const golden *g, const char *spec, uint32_t n_seqs) {
    pleat_engine_options opt = engine_options_of(spec);
    opt.max_tokens = g->n_tokens;
    opt.max_seqs = n_seqs;
    opt.step_tokens = n_seqs * g->n_tokens;
    return engine_made(g->model, &opt);
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

/* The largest difference at any position, of the norm of its logits. */
static double distance(const golden *g, const float *logits) {
    const uint32_t n = g->info.n_vocab;
    double worst = 0;
    for (uint32_t t = 0; t < g->n_tokens; t++) {
        const float *got = logits + (size_t)t * n, *want = g->logits + (size_t)t * n;
        double norm = 0, most = 0;
        for (uint32_t i = 0; i < n; i++) {
            const double difference = fabs((double)got[i] - (double)want[i]);
            norm += (double)want[i] * (double)want[i];
            if (!(difference <= most)) most = difference;
        }
        if (!(most / sqrt(norm) <= worst)) worst = most / sqrt(norm);
    }
    return worst;
}

/* Logits of all positions, read in chunks of `chunk`. */
static void read_in_chunks(const golden *g, const char *spec, uint32_t chunk, float *logits) {
    pleat_engine *engine = engine_of(g, spec, 1);
    pleat_seq seq = {0};
    pleat_error err = {0};
    if (!engine) return;
    CHECK_STATUS(pleat_engine_open(engine, g->n_tokens, &seq), PLEAT_OK);
    for (uint32_t from = 0; from < g->n_tokens; from += chunk) {
        const uint32_t n = from + chunk < g->n_tokens ? chunk : g->n_tokens - from;
        const pleat_engine_item item = {seq, g->tokens + from, n, n, logits + (size_t)from * g->info.n_vocab, 0};
        CHECK_STATUS(pleat_engine_step(engine, &item, 1, &err), PLEAT_OK);
    }
    pleat_engine_destroy(&engine);
}

static void try_values(const golden *g) {
    const uint32_t chunks[] = {g->n_tokens, 7, 1};
    float *logits = malloc((size_t)g->n_tokens * g->info.n_vocab * sizeof *logits);
    for (size_t i = 0; i < CHECK_COUNT(chunks); i++) {
        read_in_chunks(g, "f32", chunks[i], logits);
        const double d = distance(g, logits);
        check_context("%s in chunks of %u: %g of the norm", g->info.name, chunks[i], d);
        CHECK(d <= (strstr(g->info.name, "mxfp4") ? QUANTISED_TOLERANCE : TOLERANCE));
    }
    free(logits);
}

static void test_values(void) { for_goldens(try_values); }

/* ---- bits ------------------------------------------------------------------------------------------------------- */

/* Three sequences with the tokens turned about, read in uneven chunks in common steps, and each alone. */
static void try_company(const golden *g) {
    enum { N_SEQS = 3 };
    const uint32_t n = g->n_tokens, n_vocab = g->info.n_vocab, chunks[] = {20, 1, 9, 2};
    pleat_engine *shared = engine_of(g, "f16", N_SEQS), *alone = engine_of(g, "f16", N_SEQS);
    float *in_company[N_SEQS], *last = malloc(n_vocab * sizeof *last);
    pleat_token *tokens[N_SEQS];
    pleat_seq seqs[N_SEQS], own[N_SEQS];
    for (uint32_t s = 0; s < N_SEQS; s++) {
        in_company[s] = malloc((size_t)n * n_vocab * sizeof(float));
        tokens[s] = malloc(n * sizeof(pleat_token));
        for (uint32_t i = 0; i < n; i++) tokens[s][i] = g->tokens[(i * (s + 1) + s) % n];
        CHECK_STATUS(pleat_engine_open(shared, n, &seqs[s]), PLEAT_OK);
        CHECK_STATUS(pleat_engine_open(alone, n, &own[s]), PLEAT_OK);
    }
    for (uint32_t step = 0, at = 0; step < CHECK_COUNT(chunks); at += chunks[step++]) {
        pleat_engine_item items[N_SEQS];
        for (uint32_t s = 0; s < N_SEQS; s++)
            items[s] = (pleat_engine_item){seqs[s], tokens[s] + at, chunks[step], chunks[step], in_company[s], 0};
        CHECK_STATUS(pleat_engine_step(shared, items, N_SEQS, NULL), PLEAT_OK);
        for (uint32_t s = 0; s < N_SEQS; s++) {
            const pleat_engine_item item = {own[s], tokens[s] + at, chunks[step], 1, last, 0};
            CHECK_STATUS(pleat_engine_step(alone, &item, 1, NULL), PLEAT_OK);
            CHECK_EQ_MEM(last, in_company[s] + (size_t)(chunks[step] - 1) * n_vocab, n_vocab * sizeof(float));
        }
    }
    for (uint32_t s = 0; s < N_SEQS; s++) free(in_company[s]), free(tokens[s]);
    free(last);
    pleat_engine_destroy(&shared);
    pleat_engine_destroy(&alone);
}

static void test_company(void) { for_goldens(try_company); }

/* ---- files that lie --------------------------------------------------------------------------------------------- */

typedef struct file_bytes {
    unsigned char *p;
    size_t n;
} file_bytes;

static file_bytes file_read(const char *name) {
    char path[512];
    file_bytes f = {NULL, 0};
    snprintf(path, sizeof path, FOLDER "/%s.gguf", name);
    FILE *file = fopen(path, "rb");
    if (!CHECK(file != NULL)) return f;
    CHECK(fseek(file, 0, SEEK_END) == 0);
    f.n = (size_t)ftell(file);
    rewind(file);
    f.p = malloc(f.n);
    CHECK(fread(f.p, 1, f.n, file) == f.n);
    fclose(file);
    return f;
}

static pleat_status load_bytes(const file_bytes *f, pleat_model **out, pleat_error *err) {
    char path[256];
    if (!CHECK(check_write_temp(f->p, f->n, path, sizeof path))) return PLEAT_E_IO;
    const pleat_status status = pleat_model_load(path, NULL, out, err);
    unlink(path);
    return status;
}

/* One thing changed in a file: the number behind a key, or a text of the same length in place of another. */
typedef struct lie {
    const char *file;
    const char *key;
    uint32_t value;
    const char *text;
    pleat_status status;
    const char *words;
} lie;

static void tell(const file_bytes *f, const lie *l) {
    unsigned char *at = memmem(f->p, f->n, l->key, strlen(l->key));
    if (!CHECK(at != NULL)) return;
    if (l->text && CHECK(strlen(l->text) == strlen(l->key)))
        memcpy(at, l->text, strlen(l->text));
    else
        memcpy(at + strlen(l->key) + 4, &l->value, sizeof l->value); /* behind the kind */
}

static void test_lies(void) {
    static const lie lies[] = {
        {"mixtral", "llama.expert_count", 0, NULL, PLEAT_E_FORMAT, "'blk.0.ffn_gate.weight' is missing"},
        {"mixtral", "llama.expert_count", 4, NULL, PLEAT_E_FORMAT, "is 32 x 5 x 1 x 1, not 32 x 4"},
        {"mixtral", "llama.expert_count", 1u << 30, NULL, PLEAT_E_UNSUPPORTED, "at most 1024"},
        {"mixtral", "llama.expert_used_count", 0, NULL, PLEAT_E_FORMAT, "'llama.expert_used_count' is 0"},
        {"mixtral", "llama.expert_used_count", 6, NULL, PLEAT_E_UNSUPPORTED, "is 6, at most 5"},
        {"mixtral", "llama.expert_used_count", 0, "llama.expert_used_cows.", PLEAT_E_FORMAT, "is missing"},
        {"mixtral", "blk.0.ffn_up_exps", 0, "blk.0.ffn_up_expX", PLEAT_E_FORMAT, "ffn_up_exps.weight' is missing"},
        {"qwen3moe", "qwen3moe.expert_count", 0, NULL, PLEAT_E_FORMAT, "'qwen3moe.expert_count' is 0"},
        {"qwen3moe", "qwen3moe.expert_feed_forward_length", 31, NULL, PLEAT_E_FORMAT, "not 32 x 31 x 6"},
        {"qwen2moe", "qwen2moe.expert_shared_feed_forward_length", 7, NULL, PLEAT_E_FORMAT, "not 32 x 7"},
        {"qwen2", "blk.1.attn_k.bias", 0, "blk.1.attn_x.bias", PLEAT_E_FORMAT, "'blk.1.attn_k.bias' is missing"},
        {"qwen2", "yarn", 0, "ntkx", PLEAT_E_UNSUPPORTED, "RoPE scaling 'ntkx' is not supported"},
        {"qwen3", "blk.0.attn_q_norm", 0, "blk.0.attn_q_gate", PLEAT_E_FORMAT, "attn_q_norm.weight' is missing"},
        {"gemma3", "gemma3.attention.sliding_window_pattern", UINT32_MAX, NULL, PLEAT_E_FORMAT, "gemma3.att"},
        {"gemma3", "gemma3.block_count", 2, NULL, PLEAT_E_FORMAT, "is no array of 2 truth values"},
        {"gemma3", "gemma3.attention.value_length", 32, NULL, PLEAT_E_UNSUPPORTED, "only equal lengths"},
        {"phi3", "phi3.rope.dimension_count", 7, NULL, PLEAT_E_FORMAT, "'phi3.rope.dimension_count' is odd"},
        {"phi3", "rope_factors_short", 0, "rope_factors_shirt", PLEAT_E_FORMAT, "'rope_factors_short.weight' is miss"},
        {"phi3", "rope_factors_long", 0, "rope_factors_lung", PLEAT_E_UNSUPPORTED, "architecture phi3 has no use"},
        {"smollm3", "blk.0.attn_output.weight", 0, "blk.0.attn_output.waight", PLEAT_E_FORMAT, "is missing"},
        {"granite", "granite.logit_scale", 0, NULL, PLEAT_E_FORMAT, "'granite.logit_scale' is no finite number"},
        {"granite", "granite.residual_scale", 0x7FC00000, NULL, PLEAT_E_FORMAT, "residual_scale' is no finite number"},
        {"gemma2", "gemma2.attn_logit_softcapping", 0x36800000 /* 2^-18 */, NULL, PLEAT_E_UNSUPPORTED, "2^-16..65536"},
        {"gemma2", "gemma2.final_logit_softcapping", 0x7FC00000, NULL, PLEAT_E_FORMAT, "softcapping' is no finite"},
        {"qwen3", "qwen3.attention.head_count", 2, NULL, PLEAT_E_FORMAT, "'blk.0.attn_q.weight'"},
    };
    for (size_t i = 0; i < CHECK_COUNT(lies); i++) {
        file_bytes f = file_read(lies[i].file);
        pleat_model *m = NULL;
        pleat_error err = {0};
        check_context("%s: %s %u %s", lies[i].file, lies[i].key, lies[i].value, lies[i].text ? lies[i].text : "");
        tell(&f, &lies[i]);
        CHECK_STATUS(load_bytes(&f, &m, &err), lies[i].status);
        if (!CHECK(strstr(err.text, lies[i].words) != NULL)) fprintf(stderr, "  message: %s\n", err.text);
        pleat_model_destroy(&m);
        free(f.p);
    }
}

/* Layers with a window turn by a RoPE of their own, also where the window reaches over the whole context. */
static void test_short_context(void) {
    pleat_model *m = NULL;
    file_bytes f = file_read("gemma3");
    CHECK_STATUS(load_bytes(&f, &m, NULL), PLEAT_OK);
    if (!m) {
        free(f.p);
        return;
    }
    const lie shorter = {.file = "gemma3", .key = "gemma3.context_length", .value = m->info.window};
    pleat_model_destroy(&m);
    tell(&f, &shorter);
    CHECK_STATUS(load_bytes(&f, &m, NULL), PLEAT_OK);
    if (m) CHECK(m->n_ropes == 2 && m->ropes[0].base != m->ropes[1].base && m->layers[0].rope == 1);
    pleat_model_destroy(&m);
    free(f.p);
}

/* What the cache takes of sinks, a file is asked for when it is read. */
static void test_sinks(void) {
    static const struct {
        float sink;
        pleat_status status;
    } cases[] = {{65535, PLEAT_OK},
                 {65536, PLEAT_E_UNSUPPORTED},
                 {-70000, PLEAT_E_UNSUPPORTED},
                 {INFINITY, PLEAT_E_UNSUPPORTED},
                 {NAN, PLEAT_E_UNSUPPORTED}};
    file_bytes f = file_read("gpt-oss");
    pleat_gguf *gguf = NULL;
    if (!CHECK_STATUS(pleat_gguf_open_memory(f.p, f.n, NULL, &gguf, NULL), PLEAT_OK)) return;
    const pleat__gguf_tensor *t = pleat__gguf_find_tensor(gguf, "blk.1.attn_sinks.weight");
    for (size_t i = 0; CHECK(t != NULL) && i < CHECK_COUNT(cases); i++) {
        pleat_model *m = NULL;
        pleat_error err = {0};
        check_context("%g", (double)cases[i].sink);
        memcpy(f.p + t->offset + sizeof(float), &cases[i].sink, sizeof(float));
        CHECK_STATUS(load_bytes(&f, &m, &err), cases[i].status);
        if (cases[i].status != PLEAT_OK)
            CHECK_EQ_STR(err.text, "tensor 'blk.1.attn_sinks.weight': element 1 is not below 65536 in magnitude");
        pleat_model_destroy(&m);
    }
    pleat_gguf_close(&gguf);
    free(f.p);
}

static pleat_model *model_with(const char *file, const char *key, uint32_t value) {
    const lie change = {.file = file, .key = key, .value = value};
    file_bytes f = file_read(file);
    pleat_model *m = NULL;
    pleat_error err = {0};
    tell(&f, &change);
    check_context("%s: %s", file, key);
    if (!CHECK_STATUS(load_bytes(&f, &m, &err), PLEAT_OK)) fprintf(stderr, "  message: %s\n", err.text);
    free(f.p);
    return m;
}

/* A cap of 0 is none, also where a file that names none has the architecture's. */
static void test_caps(void) {
    pleat_model *m = model_with("gemma2", "gemma2.attn_logit_softcapping", 0);
    if (m) CHECK(m->info.attn_logit_cap == 0 && m->logit_cap > 0);
    pleat_model_destroy(&m);
    m = model_with("gemma2", "gemma2.final_logit_softcapping", 0);
    if (m) CHECK(m->info.attn_logit_cap > 0 && m->logit_cap == 0);
    pleat_model_destroy(&m);
    m = model_with("gemma3", "gemma3.final_logit_softcapping", 0);
    if (m) CHECK(m->info.attn_logit_cap == 0 && m->logit_cap == 0);
    pleat_model_destroy(&m);
}

static void fingerprint_of(const file_bytes *f, char out[PLEAT_FINGERPRINT_CAP]) {
    pleat_model *m = NULL;
    pleat_error err = {0};
    out[0] = 0;
    if (!CHECK_STATUS(load_bytes(f, &m, &err), PLEAT_OK)) fprintf(stderr, "  message: %s\n", err.text);
    if (m) CHECK_STATUS(pleat_model_fingerprint(m, out), PLEAT_OK);
    pleat_model_destroy(&m);
}

/* What changes the result changes the fingerprint. */
static void test_fingerprints(void) {
    static const lie changes[] = {
        {"mixtral", "llama.expert_used_count", 1, NULL, PLEAT_OK, ""},
        {"qwen2", "qwen2.rope.scaling.original_context_length", 64, NULL, PLEAT_OK, ""},
        {"qwen2", "qwen2.rope.scaling.factor", 0x41000000 /* 8 */, NULL, PLEAT_OK, ""},
        {"gemma3", "gemma3.attention.sliding_window", 10, NULL, PLEAT_OK, ""},
        {"gemma3", "gemma3.rope.scaling.factor", 0x41800000 /* 16 */, NULL, PLEAT_OK, ""},
        {"gemma3", "gemma3.final_logit_softcapping", 0x41800000, NULL, PLEAT_OK, ""},
        {"phi3", "phi3.rope.scaling.attn_factor", 0x40000000 /* 2 */, NULL, PLEAT_OK, ""},
        {"granite", "granite.embedding_scale", 0x40000000, NULL, PLEAT_OK, ""},
        {"granite", "granite.residual_scale", 0x40000000, NULL, PLEAT_OK, ""},
        {"granite", "granite.attention.scale", 0x40000000, NULL, PLEAT_OK, ""},
        {"granite", "granite.logit_scale", 0x40000000, NULL, PLEAT_OK, ""},
    };
    for (size_t i = 0; i < CHECK_COUNT(changes); i++) {
        char before[PLEAT_FINGERPRINT_CAP], after[PLEAT_FINGERPRINT_CAP];
        file_bytes f = file_read(changes[i].file);
        check_context("%s: %s", changes[i].file, changes[i].key);
        fingerprint_of(&f, before);
        tell(&f, &changes[i]);
        fingerprint_of(&f, after);
        CHECK(strcmp(before, after) != 0);
        free(f.p);
    }
}

/* A few tokens through a model that may be anything that loads. */
static void run_a_little(const pleat_model *m) {
    pleat_engine_options opt = engine_options_of("f16");
    pleat_engine *engine = NULL;
    pleat_seq seq;
    pleat_model_info info;
    const pleat_token tokens[] = {1, 2, 3};
    pleat_model_get_info(m, &info);
    opt.max_tokens = opt.chunk_tokens = 8;
    float *logits = malloc(info.n_vocab * sizeof *logits);
    if (pleat_engine_create(m, &opt, &engine, NULL) == PLEAT_OK &&
        CHECK_STATUS(pleat_engine_open(engine, 8, &seq), PLEAT_OK)) {
        const pleat_engine_item item = {seq, tokens, 3, 1, logits, 0};
        const pleat_status status = pleat_engine_step(engine, &item, 1, NULL);
        CHECK(status == PLEAT_OK || status == PLEAT_E_RANGE);
    }
    pleat_engine_destroy(&engine);
    free(logits);
}

/* Bytes of keys, values and tensors' entries flipped at random: refused, or it runs. */
static void test_flips(void) {
    static const char *const files[] = {"mixtral", "gemma3", "phi3", "qwen2moe"};
    for (uint64_t round = check_rounds(400, 100); round > 0; round--) {
        file_bytes f = file_read(files[round % CHECK_COUNT(files)]);
        pleat_model *m = NULL;
        pleat_error err;
        static const char first_key[] = ".context_length", last_key[] = "general.name";
        const unsigned char *from = memmem(f.p, f.n, first_key, sizeof first_key - 1);
        const unsigned char *to = memmem(f.p, f.n, last_key, sizeof last_key - 1);
        const bool is_found = CHECK(from && to && from < to);
        const size_t at = is_found ? (size_t)check_between((uint64_t)(from - f.p), (uint64_t)(to - f.p)) : 0;
        f.p[at] ^= (unsigned char)(1u << check_below(8));
        check_context("%s, byte %zu", files[round % CHECK_COUNT(files)], at);
        if (load_bytes(&f, &m, &err) == PLEAT_OK) run_a_little(m);
        pleat_model_destroy(&m);
        free(f.p);
    }
}

int main(int argc, char **argv) {
    static const check_test tests[] = {{"values", test_values},
                                       {"company", test_company},
                                       {"lies", test_lies},
                                       {"short_context", test_short_context},
                                       {"sinks", test_sinks},
                                       {"caps", test_caps},
                                       {"fingerprints", test_fingerprints},
                                       {"flips", test_flips}};
    return check_main(tests, CHECK_COUNT(tests), argc, argv);
}
