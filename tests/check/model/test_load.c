/* SPDX-License-Identifier: MIT
 *
 * test_load.c: what a loaded model says of itself, and models that are refused, each by the name of what is wrong.
 *
 * A tiny model is written with one thing changed: a key left out or given another value, a tensor left out, of another
 * type or of another shape, or something added.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "core/half.h"
#include "gguf/gguf.h"
#include "gguf_writer.h"
#include "model/internal.h"

enum { F32 = 0, F16 = 1, Q4_0 = 2, Q4_1 = 3, Q8_0 = 8, Q8_1 = 9, BF16 = 30 };

/* The tiny model: 1 layer, 2 query heads on 1 KV head of 16, feed-forward 64. */
enum { N_EMBD = 32, N_FF = 64, HEAD_DIM = 16, N_VOCAB = 258 };

typedef struct change {
    const char *skip;   /* a key or tensor that is left out */
    const char *retype; /* a tensor that is of `type` */
    uint32_t type;
    const char *reshape;   /* a tensor with one more row */
    const char *extra_u32; /* a key in front of all others, with `value`; give it in `skip` too to replace it */
    uint32_t value;
    const char *extra_str; /* the same for a string */
    const char *text;
    const char *extra_array; /* the same for an array of two */
    uint32_t items[2];
    const char *extra_tensor; /* a tensor of HEAD_DIM/2 floats behind all others */
} change;

#define REPLACE_U32(key, x) .skip = (key), .extra_u32 = (key), .value = (x)

static int is(const char *a, const char *b) { return a && strcmp(a, b) == 0; }

static void put_u32(gguf_writer *w, const change *c, const char *key, uint32_t x) {
    if (!is(c->skip, key)) gw_kv_u32(w, key, x);
}

static void put_tensor(gguf_writer *w, const change *c, const char *name, uint32_t type, uint64_t cols, uint64_t rows) {
    if (is(c->skip, name)) return;
    if (is(c->retype, name)) type = c->type;
    if (is(c->reshape, name)) rows++;
    const uint64_t dims[2] = {cols, rows};
    const uint64_t n = cols * rows;
    const uint64_t bytes = type == F32    ? 4 * n
                           : type == Q8_0 ? n / 32 * 34
                           : type == Q4_0 ? n / 32 * 18
                           : type == Q4_1 ? n / 32 * 20
                           : type == Q8_1 ? n / 32 * 36
                                          : 2 * n;
    gw_tensor(w, name, type, rows == 1 ? 1 : 2, dims, bytes);
}

static void write_model(gguf_writer *w, const change *c) {
    static const char *const special[] = {"<|im_start|>", "<|im_end|>"};
    gw_header(w, 3);
    if (c->extra_u32) gw_kv_u32(w, c->extra_u32, c->value);
    if (c->extra_array) {
        gw_kv_array(w, c->extra_array, GW_U32, 2);
        gw_bytes(w, c->items, sizeof c->items);
    }
    if (c->extra_str) gw_kv_str(w, c->extra_str, c->text);
    if (!is(c->skip, "general.architecture")) gw_kv_str(w, "general.architecture", "llama");
    gw_kv_str(w, "general.name", "tiny");
    put_u32(w, c, "llama.context_length", 128);
    put_u32(w, c, "llama.embedding_length", N_EMBD);
    put_u32(w, c, "llama.block_count", 1);
    put_u32(w, c, "llama.feed_forward_length", N_FF);
    put_u32(w, c, "llama.attention.head_count", 2);
    put_u32(w, c, "llama.attention.head_count_kv", 1);
    if (!is(c->skip, "llama.attention.layer_norm_rms_epsilon")) {
        gw_kv_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    }
    gw_kv_str(w, "tokenizer.chat_template", "<|im_start|>{{ role }} ... <|im_end|>");
    gw_tokenizer(w, "llama-bpe", special, 2, 2, NULL, 0);

    put_tensor(w, c, "token_embd.weight", Q8_0, N_EMBD, N_VOCAB);
    put_tensor(w, c, "output_norm.weight", F32, N_EMBD, 1);
    put_tensor(w, c, "blk.0.attn_norm.weight", F16, N_EMBD, 1);
    put_tensor(w, c, "blk.0.ffn_norm.weight", BF16, N_EMBD, 1);
    put_tensor(w, c, "blk.0.attn_q.weight", F16, N_EMBD, 2 * HEAD_DIM);
    put_tensor(w, c, "blk.0.attn_k.weight", BF16, N_EMBD, HEAD_DIM);
    put_tensor(w, c, "blk.0.attn_v.weight", Q4_0, N_EMBD, HEAD_DIM);
    put_tensor(w, c, "blk.0.attn_output.weight", F32, 2 * HEAD_DIM, N_EMBD);
    put_tensor(w, c, "blk.0.ffn_gate.weight", Q8_0, N_EMBD, N_FF);
    put_tensor(w, c, "blk.0.ffn_up.weight", Q8_0, N_EMBD, N_FF);
    put_tensor(w, c, "blk.0.ffn_down.weight", Q8_0, N_FF, N_EMBD);
    if (c->extra_tensor) put_tensor(w, c, c->extra_tensor, F32, HEAD_DIM / 2, 1);
    gw_data(w);
}

static pleat_status load_file(const gguf_writer *w, pleat_model **out, pleat_error *err) {
    char path[256];
    if (!CHECK(check_write_temp(w->p, w->n, path, sizeof path))) return PLEAT_E_IO;
    const pleat_status st = pleat_model_load(path, NULL, out, err);
    unlink(path);
    return st;
}

static pleat_status load_changed(const change *c, pleat_model **out, pleat_error *err) {
    gguf_writer w;
    write_model(&w, c);
    const pleat_status st = load_file(&w, out, err);
    gw_free(&w);
    return st;
}

/* ---- what loads ----------------------------------------------------------------------------------------- */

static void test_tiny(void) {
    pleat_model *m = NULL;
    pleat_error err = {0};
    pleat_model_info info;
    if (!CHECK_STATUS(load_changed(&(change){0}, &m, &err), PLEAT_OK)) SKIP(err.text);
    pleat_model_get_info(m, &info);
    CHECK_EQ_STR(info.architecture, "llama");
    CHECK_EQ_STR(info.name, "tiny");
    CHECK(info.n_layers == 1 && info.n_embd == N_EMBD && info.n_ff == N_FF && info.n_vocab == N_VOCAB);
    CHECK(info.n_q_heads == 2 && info.n_kv_heads == 1 && info.head_dim == HEAD_DIM && info.n_ctx == 128);
    CHECK(info.bos == -1 && info.eos == -1 && info.add_bos == 0);
    const uint64_t n_embedding = N_VOCAB * N_EMBD, n_q = 2 * HEAD_DIM * N_EMBD, n_kv = HEAD_DIM * N_EMBD,
                   n_ffn = N_EMBD * N_FF;
    CHECK_EQ_U64(info.n_params, n_embedding + 3 * N_EMBD + 2 * n_q + 2 * n_kv + 3 * n_ffn);
    CHECK_EQ_U64(info.weight_bytes, n_embedding / 32 * 34 + (4 + 2 + 2) * N_EMBD + 2 * n_q + 2 * n_kv + n_kv / 32 * 18 +
                                        4 * n_q + 3 * (n_ffn / 32 * 34));
    CHECK(m->chat && m->has_own_chat && m->ropes[0].n_dims == HEAD_DIM && m->ropes[0].base == 10000.0f &&
          !m->ropes[0].factors);
    CHECK(m->output.data == m->embedding.data && m->output.rows == N_VOCAB);
    CHECK(m->layers[0].v.type == PLEAT__W_Q4_0 && m->layers[0].v.rows == HEAD_DIM && m->layers[0].v.row_bytes == 18);
    CHECK(m->layers[0].down.cols == N_FF && m->layers[0].down.rows == N_EMBD);
    pleat_model_destroy(&m);
    CHECK(m == NULL);
}

static void test_variants(void) {
    static const change good[] = {
        {.extra_u32 = "llama.attention.key_length", .value = HEAD_DIM},
        {.extra_u32 = "llama.attention.value_length", .value = HEAD_DIM},
        {.extra_u32 = "llama.rope.dimension_count", .value = 8},
        {.extra_u32 = "llama.vocab_size", .value = N_VOCAB},
        {.extra_u32 = "llama.expert_count", .value = 0},
        {.extra_u32 = "llama.attention.sliding_window", .value = 16},
        {.extra_u32 = "llama.attention.sliding_window", .value = 0},
        {.extra_u32 = "llama.embedding_scale", .value = 0},
        {.extra_str = "llama.rope.scaling.type", .text = "none"},
        {.extra_str = "llama.rope.scaling.type", .text = "linear"},
        {.extra_u32 = "llama.logit_scale", .value = 1},
        {.retype = "token_embd.weight", .type = Q4_0},
        {.retype = "token_embd.weight", .type = Q4_1},
        {.retype = "blk.0.ffn_down.weight", .type = F32},
        {.retype = "output_norm.weight", .type = F16},
    };
    for (size_t i = 0; i < CHECK_COUNT(good); i++) {
        pleat_model *m = NULL;
        pleat_error err = {0};
        check_context("case %zu", i);
        if (!CHECK_STATUS(load_changed(&good[i], &m, &err), PLEAT_OK)) fprintf(stderr, "  message: %s\n", err.text);
        const bool is_window = good[i].extra_u32 && strcmp(good[i].extra_u32, "llama.attention.sliding_window") == 0;
        if (m) CHECK_EQ_U64(m->info.window, is_window ? good[i].value : 0);
        if (m) CHECK_EQ_U64(pleat_model_layer_window(m, 0), m->info.window);
        if (m) CHECK(m->info.n_windowed == (m->info.window > 0) && pleat_model_layer_window(m, 1) == 0);
        pleat_model_destroy(&m);
    }
}

/* Vectors of each type arrive as the floats they are. */
static void test_vectors(void) {
    gguf_writer w;
    pleat_model *m = NULL;
    pleat_error err = {0};
    write_model(&w, &(change){0});
    /* Data in the order written: embedding, output_norm F32, attn_norm F16, ffn_norm BF16. */
    unsigned char *data = w.p + w.n - w.data_bytes + (N_VOCAB * N_EMBD / 32 * 34 + 31) / 32 * 32;
    for (uint32_t i = 0; i < N_EMBD; i++) {
        const float x = 0.25f * (float)i - 3.0f; /* exact in all three */
        const uint16_t f16 = pleat__f32_to_f16(x), bf16 = (uint16_t)(pleat__f32_bits(x) >> 16);
        memcpy(data + 4 * i, &x, 4);
        memcpy(data + 4 * N_EMBD + 2 * i, &f16, 2);
        memcpy(data + 6 * N_EMBD + 2 * i, &bf16, 2);
    }
    if (CHECK_STATUS(load_file(&w, &m, &err), PLEAT_OK)) {
        for (uint32_t i = 0; i < N_EMBD; i++) {
            const float x = 0.25f * (float)i - 3.0f;
            CHECK(m->output_norm[i] == x && m->layers[0].attn_norm[i] == x && m->layers[0].ffn_norm[i] == x);
        }
    }
    pleat_model_destroy(&m);
    gw_free(&w);
}

static void test_rope_factors(void) {
    gguf_writer w;
    pleat_model *m = NULL;
    pleat_error err = {0};
    write_model(
        &w, &(change){.extra_tensor = "rope_freqs.weight", .extra_str = "llama.rope.scaling.type", .text = "llama3"});
    unsigned char *data = w.p + w.n - 32;
    CHECK_STATUS(load_file(&w, &m, &err), PLEAT_E_FORMAT); /* factors of 0 */
    CHECK(strstr(err.text, "rope_freqs.weight") != NULL);
    for (uint32_t i = 0; i < HEAD_DIM / 2; i++) {
        const float x = 1.0f + (float)i;
        memcpy(data + 4 * i, &x, 4);
    }
    if (CHECK_STATUS(load_file(&w, &m, &err), PLEAT_OK)) {
        for (uint32_t i = 0; i < HEAD_DIM / 2; i++) CHECK(m->ropes[0].factors[i] == 1.0f + (float)i);
    }
    pleat_model_destroy(&m);
    gw_free(&w);
}

/* A count may be written once for each layer, if all are equal. */
static void test_arrays(void) {
    static const char key[] = "llama.attention.head_count_kv";
    pleat_model *m = NULL;
    pleat_error err = {0};
    CHECK_STATUS(load_changed(&(change){.skip = key, .extra_array = key, .items = {1, 1}}, &m, &err), PLEAT_OK);
    pleat_model_destroy(&m);
    CHECK_STATUS(load_changed(&(change){.skip = key, .extra_array = key, .items = {1, 2}}, &m, &err),
                 PLEAT_E_UNSUPPORTED);
    CHECK(strstr(err.text, "'llama.attention.head_count_kv' differs between layers") != NULL);
}

/* ---- fingerprints ----------------------------------------------------------------------------------------- */

static int fingerprint_changed(const change *c, char out[PLEAT_FINGERPRINT_CAP]) {
    pleat_model *m = NULL;
    pleat_error err = {0};
    const int ok =
        CHECK_STATUS(load_changed(c, &m, &err), PLEAT_OK) && CHECK_STATUS(pleat_model_fingerprint(m, out), PLEAT_OK);
    pleat_model_destroy(&m);
    return ok;
}

static void test_fingerprint_changes(void) {
    static const struct {
        change change;
        int is_same;
    } cases[] = {
        {{0}, 1},
        {{.extra_str = "general.description", .text = "of no account"}, 1},
        {{.extra_u32 = "llama.attention.key_length", .value = HEAD_DIM}, 1}, /* says what is so anyway */
        {{REPLACE_U32("llama.context_length", 127)}, 0},
        {{.extra_u32 = "llama.rope.dimension_count", .value = 8}, 0},
        {{.retype = "blk.0.ffn_down.weight", .type = F32}, 0},
        {{.retype = "output_norm.weight", .type = F16}, 0},
    };
    char base[PLEAT_FINGERPRINT_CAP], other[PLEAT_FINGERPRINT_CAP];
    if (!fingerprint_changed(&(change){0}, base)) return;
    CHECK(strlen(base) == 32 && strspn(base, "0123456789abcdef") == 32);
    for (size_t i = 0; i < CHECK_COUNT(cases); i++) {
        check_context("case %zu", i);
        if (!fingerprint_changed(&cases[i].change, other)) continue;
        CHECK((strcmp(base, other) == 0) == cases[i].is_same);
    }
    CHECK_STATUS(pleat_model_fingerprint(NULL, other), PLEAT_E_ARG);
}

/* The same bytes as a file and in memory are the same model, which reads those bytes and no copy. */
static void test_memory(void) {
    pleat_model *by_file = NULL, *in_memory = NULL;
    pleat_error err = {0};
    gguf_writer w;
    char a[PLEAT_FINGERPRINT_CAP] = "a", b[PLEAT_FINGERPRINT_CAP] = "b";
    write_model(&w, &(change){0});
    const size_t n_aligned = (w.n + 127) / 64 * 64;
    unsigned char *bytes = aligned_alloc(64, n_aligned);
    if (!CHECK(bytes != NULL)) return;
    memcpy(bytes, w.p, w.n);
    memmove(bytes + 1, bytes, w.n);
    CHECK_STATUS(pleat_model_load_memory(bytes + 1, w.n, NULL, &in_memory, &err), PLEAT_E_ARG);
    memmove(bytes, bytes + 1, w.n);
    CHECK_STATUS(pleat_model_load_memory(NULL, w.n, NULL, &in_memory, &err), PLEAT_E_ARG);
    CHECK_STATUS(pleat_model_load_memory(bytes, w.n, NULL, NULL, &err), PLEAT_E_ARG);
    CHECK_STATUS(pleat_model_load_memory(bytes, w.n - 1, NULL, &in_memory, &err), PLEAT_E_FORMAT);
    CHECK(in_memory == NULL);
    if (CHECK_STATUS(load_file(&w, &by_file, &err), PLEAT_OK) &&
        CHECK_STATUS(pleat_model_load_memory(bytes, w.n, NULL, &in_memory, &err), PLEAT_OK)) {
        CHECK_STATUS(pleat_model_fingerprint(by_file, a), PLEAT_OK);
        CHECK_STATUS(pleat_model_fingerprint(in_memory, b), PLEAT_OK);
        CHECK_EQ_STR(a, b);
        const unsigned char *data = in_memory->embedding.data;
        CHECK(data > bytes && data < bytes + w.n);
    }
    pleat_model_destroy(&by_file);
    pleat_model_destroy(&in_memory);
    free(bytes);
    gw_free(&w);
}

/* The fingerprint of a model file's bytes with the byte at `at` flipped; UINT64_MAX: with none. */
static void fingerprint_flipped(unsigned char *bytes, size_t n, uint64_t at, char out[PLEAT_FINGERPRINT_CAP]) {
    pleat_model *m = NULL;
    pleat_error err = {0};
    gguf_writer w = {.p = bytes, .n = n};
    if (at != UINT64_MAX) bytes[at] ^= 1;
    if (CHECK_STATUS(load_file(&w, &m, &err), PLEAT_OK)) CHECK_STATUS(pleat_model_fingerprint(m, out), PLEAT_OK);
    if (at != UINT64_MAX) bytes[at] ^= 1;
    pleat_model_destroy(&m);
}

/* Only the ends of a large tensor count, and its value never changes: profiles would be refused. */
static void test_fingerprint_reference(void) {
    static const char path[] = "models/pleat-28m-q8_0.gguf";
    enum { END = 65536 };
    char base[PLEAT_FINGERPRINT_CAP] = "", other[PLEAT_FINGERPRINT_CAP] = "";
    pleat_model *m = NULL;
    pleat_error err = {0};
    if (!CHECK_STATUS(pleat_model_load(path, NULL, &m, &err), PLEAT_OK)) return;
    CHECK_STATUS(pleat_model_fingerprint(m, base), PLEAT_OK);
    CHECK_EQ_STR(base, "b4b5e749164b6edba86e54c9eb627fce");
    const size_t n = m->gguf->info.file_bytes;
    const uint64_t first = (uint64_t)(m->embedding.data - m->gguf->bytes);
    const uint64_t last = first + m->embedding.rows * m->embedding.row_bytes - 1;
    unsigned char *bytes = malloc(n);
    if (CHECK(bytes != NULL && last - first > 2 * END)) {
        memcpy(bytes, m->gguf->bytes, n);
        const struct {
            uint64_t at;
            int is_same;
        } cases[] = {{UINT64_MAX, 1},     {first, 0}, {first + END - 1, 0}, {first + END, 1}, {last - END, 1},
                     {last - END + 1, 0}, {last, 0}};
        for (size_t i = 0; i < CHECK_COUNT(cases); i++) {
            check_context("case %zu", i);
            fingerprint_flipped(bytes, n, cases[i].at, other);
            CHECK((strcmp(base, other) == 0) == cases[i].is_same);
        }
    }
    free(bytes);
    pleat_model_destroy(&m);
}

/* ---- what is refused -------------------------------------------------------------------------------------- */

static const struct {
    change change;
    pleat_status status;
    const char *words;
} refused[] = {
    {{.skip = "general.architecture"}, PLEAT_E_FORMAT, "'general.architecture' is missing"},
    {{.skip = "general.architecture", .extra_str = "general.architecture", .text = "qwen2\n"},
     PLEAT_E_UNSUPPORTED,
     "architecture 'qwen2?' is not supported; those that are: gemma2, gemma3, gpt-oss, granite, llama,"},
    {{.skip = "llama.context_length"}, PLEAT_E_FORMAT, "'llama.context_length' is missing"},
    {{REPLACE_U32("llama.context_length", 0)}, PLEAT_E_FORMAT, "'llama.context_length' is 0"},
    {{REPLACE_U32("llama.context_length", UINT32_MAX)}, PLEAT_E_UNSUPPORTED, "at most 16777216"},
    {{.skip = "llama.block_count"}, PLEAT_E_FORMAT, "'llama.block_count' is missing"},
    {{REPLACE_U32("llama.block_count", 2)}, PLEAT_E_FORMAT, "2 layers, but only 11 tensors"},
    {{REPLACE_U32("llama.block_count", UINT32_MAX)}, PLEAT_E_UNSUPPORTED, "'llama.block_count'"},
    {{REPLACE_U32("llama.attention.head_count", 3)}, PLEAT_E_FORMAT, "'llama.attention.key_length' is missing"},
    {{REPLACE_U32("llama.attention.head_count", 4)}, PLEAT_E_UNSUPPORTED, "heads of 8 elements"},
    {{REPLACE_U32("llama.attention.head_count_kv", 3)}, PLEAT_E_UNSUPPORTED, "2 query heads on 3 KV heads"},
    {{.skip = "llama.attention.head_count_kv"}, PLEAT_E_FORMAT, "'blk.0.attn_k.weight' is 32 x 16"},
    {{.skip = "llama.attention.layer_norm_rms_epsilon"}, PLEAT_E_FORMAT, "rms_epsilon' is missing"},
    {{REPLACE_U32("llama.attention.layer_norm_rms_epsilon", 0)}, PLEAT_E_FORMAT, "no finite number above 0"},
    {{.extra_u32 = "llama.attention.value_length", .value = 32}, PLEAT_E_UNSUPPORTED, "only equal lengths"},
    {{.extra_u32 = "llama.rope.dimension_count", .value = 7}, PLEAT_E_FORMAT, "is odd"},
    {{.extra_u32 = "llama.rope.dimension_count", .value = 18}, PLEAT_E_UNSUPPORTED, "at most 16"},
    {{.extra_str = "llama.rope.scaling.type", .text = "dynamic"}, PLEAT_E_UNSUPPORTED, "RoPE scaling 'dynamic'"},
    {{.extra_str = "llama.rope.scaling.type", .text = "llama3"}, PLEAT_E_UNSUPPORTED, "RoPE scaling 'llama3'"},
    {{.extra_u32 = "llama.rope.scaling.factor", .value = 8}, PLEAT_E_FORMAT, "llama.rope.scaling.factor"},
    {{.extra_u32 = "llama.expert_count", .value = 8}, PLEAT_E_FORMAT, "'llama.expert_used_count' is missing"},
    {{.extra_u32 = "llama.logit_scale", .value = 8}, PLEAT_E_UNSUPPORTED, "'llama.logit_scale' asks for"},
    {{.extra_u32 = "llama.attention.causal", .value = 0}, PLEAT_E_UNSUPPORTED, "'llama.attention.causal' asks for"},
    {{.extra_u32 = "llama.vocab_size", .value = 99}, PLEAT_E_FORMAT, "'llama.vocab_size' is 99"},
    {{.skip = "token_embd.weight"}, PLEAT_E_FORMAT, "'token_embd.weight' is missing"},
    {{.skip = "blk.0.ffn_up.weight"}, PLEAT_E_FORMAT, "'blk.0.ffn_up.weight' is missing"},
    {{.reshape = "blk.0.ffn_up.weight"}, PLEAT_E_FORMAT, "'blk.0.ffn_up.weight' is 32 x 65 x 1 x 1, not 32 x 64"},
    {{.reshape = "token_embd.weight"}, PLEAT_E_FORMAT, "'token_embd.weight'"},
    {{.retype = "blk.0.attn_q.weight", .type = Q8_1},
     PLEAT_E_UNSUPPORTED,
     "'blk.0.attn_q.weight' is of type Q8_1; supported are F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, "},
    {{.retype = "output_norm.weight", .type = Q8_0}, PLEAT_E_UNSUPPORTED, "'output_norm.weight' is of type Q8_0"},
    {{.extra_tensor = "blk.0.attn_q.bias"}, PLEAT_E_FORMAT, "'blk.0.attn_q.bias' is 8 x 1"},
    {{.extra_tensor = "blk.0.attn_q_norm.weight"}, PLEAT_E_UNSUPPORTED, "'blk.0.attn_q_norm.weight' is not supp"},
    {{.extra_tensor = "blk.1.attn_norm.weight"}, PLEAT_E_UNSUPPORTED, "'blk.1.attn_norm.weight'"},
    {{.extra_tensor = "output.weight"}, PLEAT_E_FORMAT, "'output.weight' is 8 x 1"},
};

static void test_refused(void) {
    for (size_t i = 0; i < CHECK_COUNT(refused); i++) {
        pleat_model *m = NULL;
        pleat_error err = {0};
        check_context("%s", refused[i].words);
        CHECK_STATUS(load_changed(&refused[i].change, &m, &err), refused[i].status);
        CHECK(m == NULL && err.code == refused[i].status);
        if (!CHECK(strstr(err.text, refused[i].words) != NULL)) fprintf(stderr, "  message: %s\n", err.text);
        pleat_model_destroy(&m);
    }
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        {"memory", test_memory},
        {"tiny", test_tiny},
        {"variants", test_variants},
        {"vectors", test_vectors},
        {"rope_factors", test_rope_factors},
        {"arrays", test_arrays},
        {"refused", test_refused},
        {"fingerprint_changes", test_fingerprint_changes},
        {"fingerprint_reference", test_fingerprint_reference},
    };
    return check_main(tests, CHECK_COUNT(tests), argc, argv);
}
