/* SPDX-License-Identifier: MIT
 *
 * inspect.c: `pleat inspect`: what a GGUF file holds, and what its KV cache would take under each spec.
 *
 * Works on any well-formed GGUF, also of architectures that Pleat cannot run: a cache's shape is what `pleat plan` reads
 * (gguf_shape.h), so both give the same figures.  Whether `run` takes the file is what the loader says of it.
 *
 * Bytes for a context are those of one sequence opened for just that many tokens: whole pages and tables included.
 * Bytes per token are without them.  With a policy both are the most that can be held, every token kept high; so they
 * are with compressed blocks, every token in the buffer.
 */
#include <string.h>

#include "cli/lib/common.h"
#include "cli/lib/hub/hub.h"
#include "cli/lib/output.h"
#include "cli/lib/shape/gguf_shape.h"
#include "cli/lib/shape/layer_kinds.h"
#include "devices.h"

typedef struct inspect_options {
    common_options common;
    const char *model, *file; /* one of both; NULL: not given */
    spec_list kv;
    number_list ctx;
    int metadata;
    int devices; /* list GPUs instead */
} inspect_options;

#define GROUP_SHOWN "What to show"
#define AT(field) .offset = offsetof(inspect_options, field)
/* clang-format off */
static const option_row rows[] = {
    {GROUP_MACHINE, "FILE", NULL, "FILE", "GGUF file", KIND_OPERAND, AT(file), .excludes = "model",
     .because = "one file, please"},
    {GROUP_MACHINE, "model", "m", "FILE", "the same", KIND_INPUT, AT(model)},
    HUB_ROWS("model FILE"),
    CPU_MASK_ROW(inspect_options),
    {GROUP_CACHE, "kv", NULL, "SPEC", "how the cache is kept; repeat to compare (default \"f16 k8v8 k8v4 k4v4 k4v2\")",
     KIND_SPECS, AT(kv), .words = option_spec_names},
    {GROUP_SHAPE, "ctx", NULL, "N,..", "context lengths to give sizes for", KIND_NUMBERS, AT(ctx), 1, 16777216},
    {GROUP_SHOWN, "metadata", NULL, NULL, "all metadata entries", KIND_SWITCH, AT(metadata)},
    {GROUP_SHOWN, "devices", NULL, NULL, "the GPUs of this machine, instead of a file", KIND_SWITCH, AT(devices),
     .excludes = "FILE model hf-repo", .because = "it lists the GPUs of this machine and takes no file"},
    COMMON_ROWS(inspect_options),
};
/* clang-format on */

static const option_demand demands[] = {
    {"FILE model devices", "no file: give the path of a GGUF file, or --devices to list GPUs"},
};

enum { KEY_CAP = 256, VALUE_CAP = 4096, TYPES_CAP = 64, TEMPLATE_CAP = 32 << 20 };

/* Tensors of one type, summed. */
typedef struct type_row {
    const char *name; /* lives as long as the gguf */
    uint64_t n_tensors, n_params, n_bytes;
} type_row;

typedef struct inspection {
    inspect_options *o;
    const char *path;
    pleat_gguf *gguf;
    pleat_gguf_info info;
    char arch[64], name[KEY_CAP]; /* "" if the file does not say */
    type_row types[TYPES_CAP];
    uint32_t n_types;
    uint64_t n_ctx; /* 0: not said */
    model_shape shape;
    uint32_t windows[SHAPE_LAYERS_MAX]; /* which layers have one does not matter to sums: the first */
    pleat_cache_options geometry;       /* n_layers 0: not known */
    pleat_error no_shape;               /* why it is not */
    int runs;                           /* `pleat run` takes the file */
    uint64_t weight_bytes;              /* that it then holds in memory */
    pleat_error why_not;
    int has_template;        /* the file brings a chat template along */
    pleat_error no_template; /* why it is not supported; code PLEAT_OK: it is */
    number_list contexts;
    output out;
} inspection;

/* ---- the file ---------------------------------------------------------------------------------- */

/* The text of a metadata entry, or "" if there is none. */
static void find_text(const inspection *p, const char *wanted, char *out, size_t cap) {
    char key[KEY_CAP], value[VALUE_CAP];
    out[0] = 0;
    for (uint64_t i = 0; i < p->info.n_metadata && !out[0]; i++)
        if (pleat_gguf_metadata(p->gguf, i, key, sizeof key, value, sizeof value) == PLEAT_OK && !strcmp(key, wanted))
            snprintf(out, cap, "%.*s", (int)cap - 1, value);
}

static type_row *type_of(inspection *p, const char *name) {
    for (uint32_t i = 0; i < p->n_types; i++)
        if (!strcmp(p->types[i].name, name)) return &p->types[i];
    if (p->n_types == TYPES_CAP) /* more types than GGUF has: the rest goes with the last */
        return &p->types[TYPES_CAP - 1];
    p->types[p->n_types].name = name;
    return &p->types[p->n_types++];
}

static void count_tensors(inspection *p) {
    for (uint64_t i = 0; i < p->info.n_tensors; i++) {
        pleat_gguf_tensor t;
        if (pleat_gguf_get_tensor(p->gguf, i, &t) != PLEAT_OK) continue;
        type_row *row = type_of(p, t.type_name);
        row->n_tensors++;
        row->n_params += t.dims[0] * t.dims[1] * t.dims[2] * t.dims[3]; /* the reader has checked the product */
        row->n_bytes += t.n_bytes;
    }
}

/* ---- the cache's geometry ---------------------------------------------------------------------- */

static void find_geometry(inspection *p) {
    pleat_cache_options *g = &p->geometry;
    gguf_weights weights;
    pleat_cache_options_default(g);
    if (gguf_shape_read(p->gguf, &p->shape, &weights, &p->no_shape) != PLEAT_OK) return;
    p->n_ctx = p->shape.n_ctx;
    for (uint32_t i = 0; i < p->shape.n_windowed; i++) p->windows[i] = p->shape.window;
    g->n_layers = p->shape.n_layers;
    g->n_q_heads = p->shape.n_q_heads;
    g->n_kv_heads = p->shape.n_kv_heads;
    g->head_dim = p->shape.head_dim;
    g->windows = p->windows;
}

/* Weights are mapped, not packed: this takes what the vocabulary takes. */
static void find_whether_it_runs(inspection *p) {
    pleat_model *model = NULL;
    pleat_model_info info = {0};
    p->runs = pleat_model_load(p->path, NULL, &model, &p->why_not) == PLEAT_OK;
    pleat_model_get_info(model, &info);
    p->weight_bytes = info.weight_bytes;
    pleat_model_destroy(&model);
}

/* The metadata entry i in memory of its own, uncut up to TEMPLATE_CAP; NULL if it is not the chat template. */
static char *read_template(const inspection *p, uint64_t i) {
    char key[KEY_CAP];
    for (size_t cap = VALUE_CAP;; cap *= 4) {
        char *value = cli_alloc(cap, 1);
        const pleat_status status = pleat_gguf_metadata(p->gguf, i, key, sizeof key, value, cap);
        if (status == PLEAT_OK && !strcmp(key, "tokenizer.chat_template")) {
            if (strlen(value) + 1 < cap || cap >= TEMPLATE_CAP) return value;
            free(value);
            continue;
        }
        free(value);
        return NULL;
    }
}

/* Whether conversations can be written by the file's template; also for files that run does not take. */
static void find_template(inspection *p) {
    for (uint64_t i = 0; i < p->info.n_metadata && !p->has_template; i++) {
        char *text = read_template(p, i);
        if (!text) continue;
        pleat_chat_template *made = NULL;
        p->has_template = text[0] != 0;
        p->no_template.code = pleat_chat_template_compile(text, strlen(text), NULL, &made, &p->no_template);
        pleat_chat_template_destroy(&made);
        free(text);
    }
}

/* --ctx, or round lengths up to the model's context, and that. */
static void choose_contexts(inspection *p) {
    static const uint32_t usual[] = {1024, 4096, 8192, 32768};
    p->contexts = p->o->ctx;
    if (p->contexts.n) return;
    for (uint32_t i = 0; i < sizeof usual / sizeof usual[0]; i++)
        if (!p->n_ctx || usual[i] < p->n_ctx) p->contexts.v[p->contexts.n++] = usual[i];
    if (p->n_ctx) p->contexts.v[p->contexts.n++] = (uint32_t)p->n_ctx;
}

/* A cache of this spec for sequences of n_tokens, or as many as the spec needs. */
static pleat_cache_options cache_at(const inspection *p, pleat_spec spec, uint32_t n_tokens) {
    pleat_cache_options g = p->geometry;
    g.spec = spec;
    const uint32_t least = pleat_cache_least_tokens(&spec);
    g.max_tokens = n_tokens > least ? n_tokens : least;
    return g;
}

/* Budgets that leave no room for what always stays. */
static int check_specs(const inspection *p) {
    pleat_error err;
    for (uint32_t i = 0; p->geometry.n_layers && i < p->o->kv.n; i++)
        for (uint32_t c = 0; c < p->contexts.n; c++) {
            const pleat_cache_options g = cache_at(p, p->o->kv.spec[i], p->contexts.v[c]);
            if (pleat_cache_check(&g, &err) == PLEAT_OK) continue;
            cli_error("--kv '%s' with %u tokens: %s", p->o->kv.text[i], p->contexts.v[c], err.text);
            return CLI_FAILED;
        }
    return CLI_OK;
}

static uint64_t bytes_at(const inspection *p, pleat_spec spec, uint32_t n_tokens) {
    const pleat_cache_options g = cache_at(p, spec, n_tokens);
    return pleat_cache_bytes_kept(&g, n_tokens, n_tokens);
}

/* The kinds of layers, and what they hold at the longest context. */
static uint32_t kinds_of(const inspection *p, pleat_spec spec, layer_kind out[2]) {
    const uint32_t n_tokens = p->contexts.v[p->contexts.n - 1];
    const pleat_cache_options g = cache_at(p, spec, n_tokens);
    return layer_kinds_of(&g, n_tokens, bytes_at(p, spec, n_tokens), out);
}

/* Of a token that is kept high. */
static uint64_t bytes_per_token(const inspection *p, pleat_spec spec) {
    layer_kind kinds[2];
    return layer_kinds_token_bytes(kinds, kinds_of(p, spec, kinds));
}

/* Of the f16 bytes of the tokens that layers see. */
static double fraction_at(const inspection *p, pleat_spec spec, uint32_t n_tokens) {
    const double f16 = 4.0 * p->geometry.head_dim * p->geometry.n_kv_heads;
    return (double)bytes_at(p, spec, n_tokens) / (f16 * (double)shape_layer_tokens(&p->shape, n_tokens));
}

/* ---- JSON -------------------------------------------------------------------------------------- */

static json_t *metadata_json(const inspection *p) {
    json_t *all = json_object();
    char key[KEY_CAP], value[VALUE_CAP];
    for (uint64_t i = 0; i < p->info.n_metadata; i++)
        if (pleat_gguf_metadata(p->gguf, i, key, sizeof key, value, sizeof value) == PLEAT_OK)
            json_object_set_new(all, key, json_text(value));
    return all;
}

static json_t *types_json(const inspection *p) {
    json_t *types = json_array();
    for (uint32_t i = 0; i < p->n_types; i++) {
        const type_row *t = &p->types[i];
        json_array_append_new(types,
                              json_pack("{s:s, s:I, s:I, s:I}", "type", t->name, "count", (json_int_t)t->n_tensors,
                                        "params", (json_int_t)t->n_params, "bytes", (json_int_t)t->n_bytes));
    }
    return types;
}

static json_t *kinds_json(const inspection *p, pleat_spec spec) {
    layer_kind kinds[2];
    const uint32_t n_kinds = kinds_of(p, spec, kinds);
    json_t *all = json_array();
    for (uint32_t i = 0; i < n_kinds; i++)
        json_array_append_new(all, json_pack("{s:i, s:o, s:s, s:I, s:I}", "layers", (int)kinds[i].n_layers, "window",
                                             kinds[i].window ? json_integer(kinds[i].window) : json_null(), "kept_as",
                                             kinds[i].kept_as, "bytes_per_token", (json_int_t)kinds[i].token_bytes,
                                             "bytes", (json_int_t)kinds[i].bytes));
    return all;
}

static json_t *spec_json(const inspection *p, uint32_t i) {
    const pleat_spec spec = p->o->kv.spec[i];
    json_t *at = json_array();
    for (uint32_t c = 0; c < p->contexts.n; c++) {
        const uint32_t n = p->contexts.v[c];
        json_array_append_new(at,
                              json_pack("{s:i, s:I, s:o}", "tokens", (int)n, "bytes", (json_int_t)bytes_at(p, spec, n),
                                        "fraction", json_number(fraction_at(p, spec, n))));
    }
    return json_pack("{s:s, s:I, s:o, s:o}", "kv", p->o->kv.text[i], "bytes_per_token",
                     (json_int_t)bytes_per_token(p, spec), "kinds", kinds_json(p, spec), "contexts", at);
}

static json_t *inspection_json(const inspection *p) {
    const pleat_gguf_info *f = &p->info;
    json_t *root =
        json_pack("{s:o, s:i, s:I, s:o, s:o, s:I, s:I, s:I, s:o}", "file", json_text(p->path), "gguf_version",
                  (int)f->version, "bytes", (json_int_t)f->file_bytes, "architecture", json_text(p->arch), "name",
                  json_text(p->name), "params", (json_int_t)f->n_params, "context", (json_int_t)p->n_ctx, "n_tensors",
                  (json_int_t)f->n_tensors, "tensors", types_json(p));
    json_object_set_new(root, "runs", json_boolean(p->runs));
    json_object_set_new(root, "weight_bytes", p->runs ? json_integer((json_int_t)p->weight_bytes) : json_null());
    json_object_set_new(root, "why_not", p->runs ? json_null() : json_text(p->why_not.text));
    const int is_supported = p->has_template && p->no_template.code == PLEAT_OK;
    json_object_set_new(root, "chat_template", p->has_template ? json_boolean(is_supported) : json_null());
    json_object_set_new(root, "chat_template_why_not",
                        p->has_template && !is_supported ? json_text(p->no_template.text) : json_null());
    if (p->o->metadata) json_object_set_new(root, "metadata", metadata_json(p));
    if (p->geometry.n_layers) {
        json_t *kv = json_array();
        for (uint32_t i = 0; i < p->o->kv.n; i++) json_array_append_new(kv, spec_json(p, i));
        json_object_set_new(root, "layers", json_integer(p->geometry.n_layers));
        json_object_set_new(root, "kv_heads", json_integer(p->geometry.n_kv_heads));
        json_object_set_new(root, "head_dim", json_integer(p->geometry.head_dim));
        json_object_set_new(root, "window", p->shape.window ? json_integer(p->shape.window) : json_null());
        json_object_set_new(root, "windowed_layers", json_integer(p->shape.n_windowed));
        json_object_set_new(root, "kv", kv);
    }
    return root;
}

/* ---- tables ------------------------------------------------------------------------------------ */

/* Bytes for a reader, or for a program. */
static void put_bytes(table *t, const inspection *p, uint64_t n) {
    char text[BYTES_CAP];
    if (p->out.format == FORMAT_CSV)
        table_put(t, "%llu", (unsigned long long)n);
    else
        table_put(t, "%s", print_bytes(text, n));
}

static void write_and_release(table *t, inspection *p) {
    table_write(t, &p->out);
    table_release(t);
    fputc('\n', p->out.file);
}

static void put_pair(table *t, const char *key, const char *value) {
    table_put_text(t, key);
    table_put_text(t, value);
}

static void put_shape(table *t, const inspection *p) {
    const model_shape *s = &p->shape;
    char text[KEY_CAP];
    if (p->n_ctx) {
        snprintf(text, sizeof text, "%llu tokens", (unsigned long long)p->n_ctx);
        put_pair(t, "context", text);
    }
    if (!p->geometry.n_layers) return;
    snprintf(text, sizeof text, "%u layers, %u query heads, %u KV heads, head dimension %u", s->n_layers, s->n_q_heads,
             s->n_kv_heads, s->head_dim);
    put_pair(t, "attention", text);
    if (!s->n_windowed) return;
    snprintf(text, sizeof text, "%u tokens in %u of %u layers", s->window, s->n_windowed, s->n_layers);
    put_pair(t, "sliding window", text);
}

static void put_whether_it_runs(table *t, const inspection *p) {
    char text[KEY_CAP + sizeof p->why_not.text];
    char held[32];
    if (p->runs)
        snprintf(text, sizeof text, "takes it, and holds %s of weights in memory", print_bytes(held, p->weight_bytes));
    else
        snprintf(text, sizeof text, "refuses it: %s", p->why_not.text);
    put_pair(t, "pleat run", text);
}

static void put_template(table *t, const inspection *p) {
    char text[KEY_CAP + sizeof p->no_template.text];
    const int is_supported = p->no_template.code == PLEAT_OK;
    snprintf(text, sizeof text, "%s%s",
             !p->has_template ? "none in the file"
             : is_supported   ? "supported"
                              : "not supported: ",
             is_supported ? "" : p->no_template.text);
    put_pair(t, "chat template", text);
}

static void write_file_table(inspection *p) {
    static const char *const titles[] = {"what", "value"};
    char text[KEY_CAP], size[BYTES_CAP];
    table t;
    table_init(&t, titles, 2);
    put_pair(&t, "file", p->path);
    snprintf(text, sizeof text, "%s, GGUF version %u", print_bytes(size, p->info.file_bytes), p->info.version);
    put_pair(&t, "size", text);
    put_pair(&t, "architecture", p->arch[0] ? p->arch : "(not said)");
    put_pair(&t, "name", p->name[0] ? p->name : "(not said)");
    snprintf(text, sizeof text, "%llu in %llu tensors", (unsigned long long)p->info.n_params,
             (unsigned long long)p->info.n_tensors);
    put_pair(&t, "parameters", text);
    put_shape(&t, p);
    put_whether_it_runs(&t, p);
    put_template(&t, p);
    write_and_release(&t, p);
}

static void write_types_table(inspection *p) {
    static const char *const titles[] = {"type", "tensors", "parameters", "bytes"};
    table t;
    table_init(&t, titles, 4);
    for (uint32_t i = 0; i < p->n_types; i++) {
        table_put(&t, "%s", p->types[i].name);
        table_put(&t, "%llu", (unsigned long long)p->types[i].n_tensors);
        table_put(&t, "%llu", (unsigned long long)p->types[i].n_params);
        put_bytes(&t, p, p->types[i].n_bytes);
    }
    write_and_release(&t, p);
}

static void write_metadata_table(inspection *p) {
    static const char *const titles[] = {"key", "value"};
    char key[KEY_CAP], value[VALUE_CAP];
    table t;
    table_init(&t, titles, 2);
    for (uint64_t i = 0; i < p->info.n_metadata; i++)
        if (pleat_gguf_metadata(p->gguf, i, key, sizeof key, value, sizeof value) == PLEAT_OK) put_pair(&t, key, value);
    write_and_release(&t, p);
}

static void write_kv_table(inspection *p) {
    char titles[NUMBERS_CAP][32];
    const char *title[2 + NUMBERS_CAP + 1];
    uint32_t n = 0;
    table t;
    title[n++] = "KV cache";
    title[n++] = "bytes/token";
    for (uint32_t c = 0; c < p->contexts.n; c++) {
        snprintf(titles[c], sizeof titles[c], "%u tokens", p->contexts.v[c]);
        title[n++] = titles[c];
    }
    title[n++] = "part of f16";
    table_init(&t, title, n);
    for (uint32_t i = 0; i < p->o->kv.n; i++) {
        const pleat_spec spec = p->o->kv.spec[i];
        table_put(&t, "%s", p->o->kv.text[i]);
        table_put(&t, "%llu", (unsigned long long)bytes_per_token(p, spec));
        for (uint32_t c = 0; c < p->contexts.n; c++) put_bytes(&t, p, bytes_at(p, spec, p->contexts.v[c]));
        table_put(&t, "%.4f", fraction_at(p, spec, p->contexts.v[p->contexts.n - 1]));
    }
    table_write(&t, &p->out);
    table_release(&t);
}

/* What each kind of layers is kept as, where there are two. */
static void write_kinds_table(inspection *p) {
    char tokens[32], sees[LAYER_KIND_SEES_CAP];
    const char *const titles[] = {"KV cache", "layers", "see", "kept as", "bytes/token", tokens};
    layer_kind kinds[2];
    table t;
    if (p->o->kv.n == 0 || kinds_of(p, p->o->kv.spec[0], kinds) < 2) return;
    snprintf(tokens, sizeof tokens, "%u tokens", p->contexts.v[p->contexts.n - 1]);
    table_init(&t, titles, sizeof titles / sizeof titles[0]);
    for (uint32_t i = 0; i < p->o->kv.n; i++) {
        const uint32_t n_kinds = kinds_of(p, p->o->kv.spec[i], kinds);
        for (uint32_t k = 0; k < n_kinds; k++) {
            table_put(&t, "%s", p->o->kv.text[i]);
            table_put(&t, "%u", kinds[k].n_layers);
            table_put(&t, "%s", layer_kind_sees(&kinds[k], sees));
            table_put(&t, "%s", kinds[k].kept_as);
            table_put(&t, "%llu", (unsigned long long)kinds[k].token_bytes);
            put_bytes(&t, p, kinds[k].bytes);
        }
    }
    write_and_release(&t, p);
}

/* A table does not show where a budget is not counted: what a policy drops at a prompt's end alone is held until then, and
 * so are slots of dropped tokens that no other takes. */
static void say_undropped(const inspection *p) {
    const uint32_t n_tokens = p->contexts.v[p->contexts.n - 1];
    for (uint32_t i = 0; i < p->o->kv.n && !p->o->common.quiet; i++) {
        const pleat_cache_options g = cache_at(p, p->o->kv.spec[i], n_tokens);
        pleat_cache_traits traits = {.size_bytes = sizeof traits};
        if (!pleat_policy_evicts(g.spec.policy) || pleat_cache_traits_for(&g, &traits, NULL) != PLEAT_OK) continue;
        if (!traits.is_bounded)
            cli_note("%s: bytes are those of all tokens, none dropped; `pleat run --format json` and `pleat eval` "
                     "count what stays",
                     p->o->kv.text[i]);
    }
}

/* Nor what blocks take, which the text decides.  What auto promises is shown. */
static void say_unblocked(const inspection *p) {
    for (uint32_t i = 0; i < p->o->kv.n && !p->o->common.quiet; i++) {
        const pleat_compressor compressor = p->o->kv.spec[i].compressor;
        if (compressor != PLEAT_COMPRESSOR_NONE && compressor != PLEAT_COMPRESSOR_AUTO)
            cli_note("%s: bytes are those of a buffer that holds all tokens, none in blocks; `pleat run --format json` "
                     "and `pleat eval` count what blocks take",
                     p->o->kv.text[i]);
    }
}

static void write_tables(inspection *p) {
    write_file_table(p);
    write_types_table(p);
    if (p->o->metadata) write_metadata_table(p);
    if (p->geometry.n_layers) write_kinds_table(p);
    if (p->geometry.n_layers) {
        write_kv_table(p);
        say_undropped(p);
        say_unblocked(p);
    } else if (!p->o->common.quiet) {
        fprintf(stderr, "no figures for the KV cache: %s\n", p->no_shape.text);
    }
}

/* ---- the command ------------------------------------------------------------------------------- */

static int open_file(inspection *p, const inspect_options *o) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    for (uint32_t i = 0; i < o->kv.n; i++)
        if (o->kv.spec[i].profile[0]) {
            cli_error("--kv '%s': a profile goes with a model that runs; here give the spec that stands in it",
                      o->kv.text[i]);
            return CLI_USAGE;
        }
    p->path = o->file ? o->file : o->model;
    const pleat_status status = pleat_gguf_open(p->path, NULL, &p->gguf, &err);
    if (status != PLEAT_OK) return cli_fail(p->path, status, &err);
    pleat_gguf_get_info(p->gguf, &p->info);
    return CLI_OK;
}

static int run(void *opts) {
    inspect_options *o = opts;
    static inspection p; /* large, and there is one */
    if (o->devices) return devices_print(&o->common);
    p.o = o;
    int code = open_file(&p, o);
    if (code != CLI_OK) return code;
    options_default_specs(&o->kv, option_plain_specs);
    find_text(&p, "general.architecture", p.arch, sizeof p.arch);
    find_text(&p, "general.name", p.name, sizeof p.name);
    count_tensors(&p);
    find_geometry(&p);
    find_whether_it_runs(&p);
    find_template(&p);
    choose_contexts(&p);
    code = check_specs(&p);
    if (code != CLI_OK) {
        pleat_gguf_close(&p.gguf);
        return code;
    }
    code = output_open(&p.out, &o->common);
    if (code == CLI_OK && o->common.format == FORMAT_JSON)
        output_json(&p.out, inspection_json(&p));
    else if (code == CLI_OK)
        write_tables(&p);
    const int closed = output_close(&p.out);
    pleat_gguf_close(&p.gguf);
    return code == CLI_OK ? closed : code;
}

const command inspect_command = {
    .name = "inspect",
    .help = "what a GGUF file holds, and what its KV cache would take",
    .usage = "FILE [--kv SPEC]... [--ctx N,..] [--metadata] | --devices",
    .about = "Shows the size, architecture and tensors of a GGUF file, and for each spec what a KV cache would take.  "
             "With --devices it lists the GPUs of this machine instead.",
    ROWS_OF(rows),
    DEMANDS_OF(demands),
    .options_bytes = sizeof(inspect_options),
    .run = run,
};
