/* SPDX-License-Identifier: MIT
 *
 * made.c: see made.h.
 */
#include "cli/bench/lib/made.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cli/lib/common.h"
#include "cli/lib/machine/free_memory.h"
#include "cli/lib/output.h"
#include "cli/lib/progress.h"
#include "cli/lib/shape/archs.h"
#include "cli/lib/shape/hf_config.h"

enum { ALIGN = 32, BYTE_TOKENS = 256, TENSOR_NAME_CAP = 48, TENSORS_PER_LAYER = 20, SEED = 11, UNIT_BYTES = 1 << 20 };
enum { GGUF_U32 = 4, GGUF_I32 = 5, GGUF_F32 = 6, GGUF_STRING = 8, GGUF_ARRAY = 9, GGML_F32 = 0 };

/* ---- which shape ------------------------------------------------------------------------------- */

static int read_config(const char *path, model_shape *out) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    char *text = NULL;
    size_t n = 0;
    if (cli_read_file(CONTENT_CONFIG, path, &text, &n) != CLI_OK) return CLI_FAILED;
    const pleat_status status = hf_config_parse(text, n, out, &err);
    free(text);
    return status == PLEAT_OK ? CLI_OK : cli_fail(path, status, &err);
}

static int find_named(const char *name, model_shape *out) {
    char hint[HINT_CAP];
    const arch *a = archs_find(name);
    if (!a) {
        cli_error(
            "--shape '%s': no such model is known%s (`pleat plan --arch list` shows all); a config.json also serves",
            name, cli_hint(hint, "", name, archs_nearest(name)));
        return CLI_USAGE;
    }
    *out = a->shape;
    snprintf(out->name, sizeof out->name, "%s", name);
    return CLI_OK;
}

/* An architecture that `run` takes, and what it has: traits, windows in all layers but each `period`th, experts. */
typedef struct made_arch {
    const char *name;
    uint32_t traits;   /* all that it has but TRAIT_TIED and TRAIT_MXFP4, which it may have */
    uint32_t period;   /* 0: no windows; UINT32_MAX: in every layer, or in none */
    int experts;       /* 1: always; 0: never; -1: as there are */
    int expert_length; /* its experts' rows have a key of their own */
} made_arch;

static const made_arch made_archs[] = {
    {"llama", 0, UINT32_MAX, -1, 0},
    {"qwen2", TRAIT_QKV_BIAS, 0, 0, 0},
    {"qwen3", TRAIT_QK_NORM, 0, 0, 0},
    {"qwen3moe", TRAIT_QK_NORM, 0, 1, 1},
    {"gemma2", TRAIT_FOUR_NORMS, 2, 0, 0},
    {"gemma3", TRAIT_FOUR_NORMS | TRAIT_QK_NORM, 6, 0, 0},
    {"gpt-oss", TRAIT_QKV_BIAS | TRAIT_O_BIAS | TRAIT_MLP_BIAS | TRAIT_SINKS, 2, 1, 1},
};

static int has_windows_of(const made_arch *a, const model_shape *s) {
    if (a->period == UINT32_MAX && s->n_windowed == 0) return 1;
    return s->n_windowed == (a->period ? shape_windowed(s->n_layers, a->period) : 0);
}

/* The architecture that has what the shape has, or NULL. */
static const made_arch *find_architecture(const model_shape *s) {
    const uint32_t traits = s->traits & ~(uint32_t)(TRAIT_TIED | TRAIT_MXFP4);
    for (size_t i = 0; i < sizeof made_archs / sizeof made_archs[0]; i++) {
        const made_arch *a = &made_archs[i];
        if (a->traits == traits && (a->experts < 0 || a->experts == (s->n_experts > 0)) && has_windows_of(a, s))
            return a;
    }
    return NULL;
}

/* What such a model has that is not made here, or NULL. */
static const char *what_is_missing(const model_shape *s) {
    if (!find_architecture(s)) return "norms, biases, windows or experts as no architecture that Pleat runs";
    if (!s->n_embd || !s->n_ff || !s->n_ctx) return "a size that is not known";
    if (s->n_vocab < BYTE_TOKENS) return "a vocabulary of fewer than 256 tokens";
    if (s->n_embd % ALIGN || s->n_ff % ALIGN || s->n_q_heads * s->head_dim % ALIGN)
        return "matrices whose rows are no multiple of 32 weights";
    return NULL;
}

int made_find_shape(const char *text, model_shape *out) {
    const size_t n = strlen(text);
    const int is_path = strchr(text, '/') || (n > 5 && !strcmp(text + n - 5, ".json"));
    const int code = is_path ? read_config(text, out) : find_named(text, out);
    const char *why = code == CLI_OK ? what_is_missing(out) : NULL;
    if (!why) return code;
    cli_error("--shape %s: it has %s, which is not made here", text, why);
    return CLI_FAILED;
}

/* ---- tensors ----------------------------------------------------------------------------------- */

typedef struct tensor {
    char name[TENSOR_NAME_CAP];
    uint64_t slices;     /* matrices or vectors, one for each expert; 1: no experts' */
    uint64_t rows, cols; /* of one of them; rows 0: a vector of f32 */
    float value;         /* of a vector's elements */
    uint64_t n_bytes, offset;
} tensor;

typedef struct tensors {
    const weight_type *type;
    uint32_t n;
    uint64_t n_bytes; /* of all, each at a multiple of ALIGN */
    tensor *at;
} tensors;

static void add_stack(tensors *list, int layer, const char *name, uint64_t slices, uint64_t rows, uint64_t cols,
                      float value) {
    tensor *t = &list->at[list->n++];
    if (layer < 0)
        snprintf(t->name, sizeof t->name, "%s", name);
    else
        snprintf(t->name, sizeof t->name, "blk.%d.%s", layer, name);
    t->slices = slices;
    t->rows = rows;
    t->cols = cols;
    t->value = value;
    const uint64_t row_bytes = cols / list->type->block_values * list->type->block_bytes;
    t->n_bytes = slices * (rows ? rows * row_bytes : cols * sizeof(float));
    t->offset = list->n_bytes;
    list->n_bytes += (t->n_bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static void add(tensors *list, int layer, const char *name, uint64_t rows, uint64_t cols, float value) {
    add_stack(list, layer, name, 1, rows, cols, value);
}

static void add_feed_forward(tensors *list, int i, const model_shape *s) {
    if (s->n_experts == 0) {
        add(list, i, "ffn_gate.weight", s->n_ff, s->n_embd, 0);
        add(list, i, "ffn_up.weight", s->n_ff, s->n_embd, 0);
        add(list, i, "ffn_down.weight", s->n_embd, s->n_ff, 0);
        return;
    }
    add(list, i, "ffn_gate_inp.weight", s->n_experts, s->n_embd, 0);
    add_stack(list, i, "ffn_gate_exps.weight", s->n_experts, s->n_ff, s->n_embd, 0);
    add_stack(list, i, "ffn_up_exps.weight", s->n_experts, s->n_ff, s->n_embd, 0);
    add_stack(list, i, "ffn_down_exps.weight", s->n_experts, s->n_embd, s->n_ff, 0);
    if (!(s->traits & TRAIT_MLP_BIAS)) return;
    add(list, i, "ffn_gate_inp.bias", 0, s->n_experts, 0);
    add_stack(list, i, "ffn_gate_exps.bias", s->n_experts, 0, s->n_ff, 0);
    add_stack(list, i, "ffn_up_exps.bias", s->n_experts, 0, s->n_ff, 0);
    add_stack(list, i, "ffn_down_exps.bias", s->n_experts, 0, s->n_embd, 0);
}

static void add_layer(tensors *list, int i, const model_shape *s) {
    const uint64_t n_q = (uint64_t)s->n_q_heads * s->head_dim, n_kv = (uint64_t)s->n_kv_heads * s->head_dim;
    add(list, i, "attn_norm.weight", 0, s->n_embd, 1);
    add(list, i, "attn_q.weight", n_q, s->n_embd, 0);
    add(list, i, "attn_k.weight", n_kv, s->n_embd, 0);
    add(list, i, "attn_v.weight", n_kv, s->n_embd, 0);
    if (s->traits & TRAIT_QKV_BIAS) {
        add(list, i, "attn_q.bias", 0, n_q, 0);
        add(list, i, "attn_k.bias", 0, n_kv, 0);
        add(list, i, "attn_v.bias", 0, n_kv, 0);
    }
    if (s->traits & TRAIT_QK_NORM) {
        add(list, i, "attn_q_norm.weight", 0, s->head_dim, 1);
        add(list, i, "attn_k_norm.weight", 0, s->head_dim, 1);
    }
    add(list, i, "attn_output.weight", s->n_embd, n_q, 0);
    if (s->traits & TRAIT_O_BIAS) add(list, i, "attn_output.bias", 0, s->n_embd, 0);
    if (s->traits & TRAIT_SINKS) add(list, i, "attn_sinks.weight", 0, s->n_q_heads, 0);
    if (s->traits & (TRAIT_FOUR_NORMS | TRAIT_SINKS)) add(list, i, "post_attention_norm.weight", 0, s->n_embd, 1);
    if (!(s->traits & TRAIT_SINKS)) add(list, i, "ffn_norm.weight", 0, s->n_embd, 1); /* GPT-OSS has the one above */
    add_feed_forward(list, i, s);
    if (s->traits & TRAIT_FOUR_NORMS) add(list, i, "post_ffw_norm.weight", 0, s->n_embd, 1);
}

static void list_tensors(tensors *list, const model_shape *s, const weight_type *type) {
    *list = (tensors){.type = type, .at = cli_alloc((size_t)s->n_layers * TENSORS_PER_LAYER + 3, sizeof(tensor))};
    add(list, -1, "token_embd.weight", s->n_vocab, s->n_embd, 0);
    add(list, -1, "output_norm.weight", 0, s->n_embd, 1);
    if (!(s->traits & TRAIT_TIED)) add(list, -1, "output.weight", s->n_vocab, s->n_embd, 0);
    for (uint32_t i = 0; i < s->n_layers; i++) add_layer(list, (int)i, s);
}

/* ---- the file's head --------------------------------------------------------------------------- */

/* Counts where there is no memory yet. */
typedef struct writer {
    unsigned char *out; /* NULL: only count */
    uint64_t n;
} writer;

static void put(writer *w, const void *bytes, size_t n) {
    if (w->out) memcpy(w->out + w->n, bytes, n);
    w->n += n;
}
static void put_u32(writer *w, uint32_t v) { put(w, &v, sizeof v); }
static void put_u64(writer *w, uint64_t v) { put(w, &v, sizeof v); }
static void put_text(writer *w, const char *text) {
    put_u64(w, strlen(text));
    put(w, text, strlen(text));
}
static void put_key_text(writer *w, const char *key, const char *text) {
    put_text(w, key);
    put_u32(w, GGUF_STRING);
    put_text(w, text);
}
static void put_key_array(writer *w, const char *key, uint32_t kind, uint64_t n) {
    put_text(w, key);
    put_u32(w, GGUF_ARRAY);
    put_u32(w, kind);
    put_u64(w, n);
}

/* GPT-2's spelling of a byte: printable ones are themselves, the others are numbered from U+0100. */
static void spell_byte(uint32_t byte, char out[3]) {
    uint32_t code = 0x100;
    for (uint32_t b = 0; b <= byte; b++) {
        const int prints = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        if (b == byte && prints) code = byte;
        if (b < byte && !prints) code++;
    }
    if (code < 0x80)
        snprintf(out, 3, "%c", (int)code);
    else
        snprintf(out, 3, "%c%c", (int)(0xC0 | code >> 6), (int)(0x80 | (code & 0x3F)));
}

static void put_vocabulary(writer *w, const model_shape *s) {
    put_key_text(w, "tokenizer.ggml.model", "gpt2");
    put_key_text(w, "tokenizer.ggml.pre", "llama-bpe");
    put_key_array(w, "tokenizer.ggml.tokens", GGUF_STRING, s->n_vocab);
    for (uint32_t i = 0; i < s->n_vocab; i++) {
        char text[16];
        if (i < BYTE_TOKENS)
            spell_byte(i, text);
        else
            snprintf(text, sizeof text, "%06x", i);
        put_text(w, text);
    }
    put_key_array(w, "tokenizer.ggml.token_type", GGUF_I32, s->n_vocab);
    for (uint32_t i = 0; i < s->n_vocab; i++) put_u32(w, 1); /* normal */
    put_key_array(w, "tokenizer.ggml.merges", GGUF_STRING, 0);
}

static void put_metadata(writer *w, const model_shape *s, const char *name) {
    const made_arch *a = find_architecture(s);
    const struct {
        const char *key;
        uint32_t value;
    } sizes[] = {{"block_count", s->n_layers},
                 {"context_length", s->n_ctx},
                 {"embedding_length", s->n_embd},
                 {"feed_forward_length", s->n_ff},
                 {"attention.head_count", s->n_q_heads},
                 {"attention.head_count_kv", s->n_kv_heads},
                 {"attention.key_length", s->head_dim},
                 {"attention.value_length", s->head_dim},
                 {"expert_count", s->n_experts},
                 {"expert_used_count", s->n_experts_used},
                 {"attention.sliding_window", s->n_windowed ? s->window : 0},
                 {"expert_feed_forward_length", a->expert_length ? s->n_ff : 0}};
    const size_t n_sizes = sizeof sizes / sizeof sizes[0];
    uint32_t n_keys = 0;
    for (size_t i = 0; i < n_sizes; i++) n_keys += sizes[i].value > 0;
    const float epsilon = 1e-5f;
    char key[64];
    put_u64(w, n_keys + 3 + 5);
    put_key_text(w, "general.architecture", a->name);
    put_key_text(w, "general.name", name);
    for (size_t i = 0; i < n_sizes; i++) {
        if (sizes[i].value == 0) continue;
        snprintf(key, sizeof key, "%s.%s", a->name, sizes[i].key);
        put_text(w, key);
        put_u32(w, GGUF_U32);
        put_u32(w, sizes[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", a->name);
    put_text(w, key);
    put_u32(w, GGUF_F32);
    put(w, &epsilon, sizeof epsilon);
    put_vocabulary(w, s);
}

/* All before the tensors' data. */
static void put_head(writer *w, const model_shape *s, const tensors *list, const char *name) {
    put(w, "GGUF", 4);
    put_u32(w, 3);
    put_u64(w, list->n);
    put_metadata(w, s, name);
    for (uint32_t i = 0; i < list->n; i++) {
        const tensor *t = &list->at[i];
        put_text(w, t->name);
        put_u32(w, 1 + (t->rows > 0) + (t->slices > 1));
        put_u64(w, t->cols);
        if (t->rows) put_u64(w, t->rows);
        if (t->slices > 1) put_u64(w, t->slices);
        put_u32(w, t->rows ? list->type->number : GGML_F32);
        put_u64(w, t->offset);
    }
    w->n = (w->n + ALIGN - 1) / ALIGN * ALIGN;
}

/* ---- the file ---------------------------------------------------------------------------------- */

/* A matrix's blocks, cut into units for threads.  A unit's weights hang on its number alone, whoever makes it. */
typedef struct fill_job {
    const weight_type *type;
    unsigned char *out;
    uint64_t n_blocks, unit_blocks;
    double deviation;
    uint64_t seed; /* of unit 0; the next have the next numbers */
} fill_job;

static void fill_unit(void *ctx, uint32_t unit, uint32_t worker) {
    const fill_job *job = ctx;
    const uint64_t from = unit * job->unit_blocks, n_left = job->n_blocks - from;
    measure_rng rng = {job->seed + unit};
    (void)worker;
    made_fill(job->type, job->out + from * job->type->block_bytes,
              n_left < job->unit_blocks ? n_left : job->unit_blocks, job->deviation, &rng);
}

/* How many units it had. */
static uint32_t fill_tensor(const tensor *t, const weight_type *type, unsigned char *out, uint64_t seed,
                            pleat_workers *workers) {
    if (t->rows) {
        const fill_job job = {.type = type,
                              .out = out,
                              .n_blocks = t->slices * t->rows * (t->cols / type->block_values),
                              .unit_blocks = UNIT_BYTES / type->block_bytes,
                              .deviation = 1 / sqrt((double)t->cols),
                              .seed = seed};
        const uint32_t n_units = (uint32_t)((job.n_blocks + job.unit_blocks - 1) / job.unit_blocks);
        pleat_workers_run(workers, n_units, fill_unit, (void *)&job);
        return n_units;
    }
    for (uint64_t i = 0; i < t->slices * t->cols; i++) memcpy(out + i * sizeof(float), &t->value, sizeof(float));
    return 0;
}

/* With all cores: one would take half a minute for 16 GB. */
static int fill(const tensors *list, unsigned char *data, int is_quiet) {
    pleat_workers *workers = NULL;
    uint64_t seed = SEED;
    const pleat_status status = pleat_workers_create(0, NULL, &workers);
    if (status != PLEAT_OK) return cli_fail("cannot start threads", status, NULL);
    progress_begin("making random weights, MB", list->n_bytes / 1000000, !is_quiet);
    for (uint32_t i = 0; i < list->n; i++) {
        seed += fill_tensor(&list->at[i], list->type, data + list->at[i].offset, seed, workers);
        progress_update((list->at[i].offset + list->at[i].n_bytes) / 1000000);
    }
    progress_end();
    pleat_workers_destroy(&workers);
    return CLI_OK;
}

/* Whether there is memory for the model and for what engines pack of it, and where it is. */
static int take_memory(made_model *m, uint64_t n_packed, int is_quiet) {
    char need[BYTES_CAP], room[BYTES_CAP];
    const uint64_t free_bytes = free_memory_bytes();
    const uint64_t n_needed = m->n_bytes + n_packed;
    print_bytes(need, n_needed);
    print_bytes(room, free_bytes);
    if (n_needed > free_bytes) {
        cli_error("%s takes %s of memory, and %s are free", m->name, need, room);
        return CLI_FAILED;
    }
    if (!is_quiet) cli_note("%s takes %s of memory, of %s that are free", m->name, need, room);
    void *bytes = mmap(NULL, m->n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED) {
        cli_error("%s: no memory for its %s: %s", m->name, need, strerror(errno));
        return CLI_FAILED;
    }
    m->bytes = bytes;
    return CLI_OK;
}

/* Whether the library takes such a model, before its weights are made; they are zeros yet. */
static int check_head(const made_model *m) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_model *model = NULL;
    const pleat_status status = pleat_model_load_memory(m->bytes, m->n_bytes, NULL, &model, &err);
    pleat_model_destroy(&model);
    return status == PLEAT_OK ? CLI_OK : cli_fail(m->name, status, &err);
}

/* Rows are whole blocks. */
static int check_rows(const tensors *list, const char *name) {
    for (uint32_t i = 0; i < list->n; i++) {
        const tensor *t = &list->at[i];
        if (!t->rows || t->cols % list->type->block_values == 0) continue;
        cli_error("%s: rows of %s have %llu weights, no multiple of the %u of a block", name, t->name,
                  (unsigned long long)t->cols, list->type->block_values);
        return CLI_FAILED;
    }
    return CLI_OK;
}

int made_build(const model_shape *shape, const weight_type *type, uint32_t n_engines, int is_quiet, made_model *out) {
    tensors list;
    writer w = {NULL, 0};
    *out = (made_model){.bytes = NULL};
    snprintf(out->name, sizeof out->name, "%s, random %s", shape->name, type->name);
    list_tensors(&list, shape, type);
    put_head(&w, shape, &list, out->name);
    out->n_bytes = w.n + list.n_bytes;
    int code = check_rows(&list, out->name);
    const uint64_t n_packed = type->block_values > 1 ? n_engines * list.n_bytes : 0;
    if (code == CLI_OK) code = take_memory(out, n_packed, is_quiet);
    if (code == CLI_OK) {
        w = (writer){out->bytes, 0};
        put_head(&w, shape, &list, out->name);
        code = check_head(out);
    }
    if (code == CLI_OK) code = fill(&list, out->bytes + w.n, is_quiet);
    free(list.at);
    return code;
}

void made_release(made_model *m) {
    if (m->bytes) munmap(m->bytes, m->n_bytes);
    m->bytes = NULL;
}
