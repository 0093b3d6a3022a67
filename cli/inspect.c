/* SPDX-License-Identifier: MIT
 *
 * inspect.c: `pleat inspect`: what a GGUF file holds, and what its KV cache would take under each spec.
 *
 * Works on any well-formed GGUF, also of architectures that Pleat cannot run: the geometry of a cache needs only
 *
 *     <arch>.block_count   <arch>.attention.head_count   <arch>.attention.head_count_kv   (default: head_count)
 *     <arch>.attention.key_length   (default: <arch>.embedding_length / head_count)
 *
 * Bytes for a context are those of one sequence opened for just that many tokens: whole pages and tables included.
 * Bytes per token are without them.  With a policy both are the most that can be held, every token kept high; so they
 * are with compressed blocks, every token in f16.
 */
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "common.h"
#include "devices.h"
#include "output.h"

enum { KEY_CAP = 256, VALUE_CAP = 4096, TYPES_CAP = 64 };

/* Tensors of one type, summed. */
typedef struct type_row {
    const char *name; /* lives as long as the gguf */
    uint64_t n_tensors, n_params, n_bytes;
} type_row;

typedef struct inspection {
    options *o;
    const char *path;
    pleat_gguf *gguf;
    pleat_gguf_info info;
    char arch[64], name[KEY_CAP]; /* "" if the file does not say */
    type_row types[TYPES_CAP];
    uint32_t n_types;
    uint64_t n_ctx;               /* 0: not said */
    pleat_cache_options geometry; /* n_layers 0: not known */
    char missing[KEY_CAP];        /* the key for want of which the geometry is not known */
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

/* <arch>.<key>, 1..2^24; 0 if it is absent, of another kind or out of range; p->missing then names it. */
static uint32_t find_number(inspection *p, const char *key) {
    char full[KEY_CAP];
    uint64_t v = 0;
    snprintf(full, sizeof full, "%s.%s", p->arch, key);
    if (pleat_gguf_get_u64(p->gguf, full, &v) == PLEAT_OK && v >= 1 && v <= 1u << 24) return (uint32_t)v;
    memcpy(p->missing, full, sizeof full);
    return 0;
}

static void find_geometry(inspection *p) {
    pleat_cache_options *g = &p->geometry;
    pleat_cache_options_default(g);
    if (!p->arch[0]) {
        snprintf(p->missing, sizeof p->missing, "general.architecture");
        return;
    }
    p->n_ctx = find_number(p, "context_length");
    uint32_t head_dim = find_number(p, "attention.key_length");
    const uint32_t n_kv_heads = find_number(p, "attention.head_count_kv");
    const uint32_t n_embd = head_dim ? 0 : find_number(p, "embedding_length");
    p->missing[0] = 0; /* those may be missing; these may not */
    const uint32_t n_layers = find_number(p, "block_count");
    const uint32_t n_heads = find_number(p, "attention.head_count");
    if (!head_dim && n_heads) head_dim = n_embd / n_heads;
    if (!n_layers || !n_heads) return;
    g->n_q_heads = n_heads;
    g->n_kv_heads = n_kv_heads ? n_kv_heads : n_heads;
    g->head_dim = head_dim;
    g->max_tokens = 1;
    g->n_layers = n_layers;
    if (pleat_cache_bytes_for(g, 1, 1) == 0) {
        snprintf(p->missing, sizeof p->missing, "a geometry that Pleat can keep (%u layers, %u KV heads of %u)",
                 n_layers, g->n_kv_heads, head_dim);
        g->n_layers = 0;
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

/* Of a token that is kept high. */
static uint64_t bytes_per_token(const inspection *p, pleat_spec spec) {
    const pleat_cache_options *g = &p->geometry;
    return pleat_cache_token_bytes(&spec, g->head_dim, g->n_q_heads / g->n_kv_heads) * g->n_layers * g->n_kv_heads;
}

static double fraction_at(const inspection *p, pleat_spec spec, uint32_t n_tokens) {
    const double f16 = 4.0 * p->geometry.head_dim * p->geometry.n_layers * p->geometry.n_kv_heads;
    return (double)bytes_at(p, spec, n_tokens) / (f16 * n_tokens);
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

static json_t *spec_json(const inspection *p, uint32_t i) {
    const pleat_spec spec = p->o->kv.spec[i];
    json_t *at = json_array();
    for (uint32_t c = 0; c < p->contexts.n; c++) {
        const uint32_t n = p->contexts.v[c];
        json_array_append_new(at,
                              json_pack("{s:i, s:I, s:o}", "tokens", (int)n, "bytes", (json_int_t)bytes_at(p, spec, n),
                                        "fraction", json_number(fraction_at(p, spec, n))));
    }
    return json_pack("{s:s, s:I, s:o}", "kv", p->o->kv.text[i], "bytes_per_token", (json_int_t)bytes_per_token(p, spec),
                     "contexts", at);
}

static json_t *inspection_json(const inspection *p) {
    const pleat_gguf_info *f = &p->info;
    json_t *root =
        json_pack("{s:o, s:i, s:I, s:o, s:o, s:I, s:I, s:I, s:o}", "file", json_text(p->path), "gguf_version",
                  (int)f->version, "bytes", (json_int_t)f->file_bytes, "architecture", json_text(p->arch), "name",
                  json_text(p->name), "params", (json_int_t)f->n_params, "context", (json_int_t)p->n_ctx, "n_tensors",
                  (json_int_t)f->n_tensors, "tensors", types_json(p));
    if (p->o->metadata) json_object_set_new(root, "metadata", metadata_json(p));
    if (p->geometry.n_layers) {
        json_t *kv = json_array();
        for (uint32_t i = 0; i < p->o->kv.n; i++) json_array_append_new(kv, spec_json(p, i));
        json_object_set_new(root, "layers", json_integer(p->geometry.n_layers));
        json_object_set_new(root, "kv_heads", json_integer(p->geometry.n_kv_heads));
        json_object_set_new(root, "head_dim", json_integer(p->geometry.head_dim));
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

static void write_file_table(inspection *p) {
    static const char *const titles[] = {"what", "value"};
    const pleat_cache_options *g = &p->geometry;
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
    if (p->n_ctx) {
        snprintf(text, sizeof text, "%llu tokens", (unsigned long long)p->n_ctx);
        put_pair(&t, "context", text);
    }
    if (g->n_layers) {
        snprintf(text, sizeof text, "%u layers, %u query heads, %u KV heads, head dimension %u", g->n_layers,
                 g->n_q_heads, g->n_kv_heads, g->head_dim);
        put_pair(&t, "attention", text);
    }
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

static void write_tables(inspection *p) {
    write_file_table(p);
    write_types_table(p);
    if (p->o->metadata) write_metadata_table(p);
    if (p->geometry.n_layers)
        write_kv_table(p);
    else if (!p->o->quiet)
        fprintf(stderr, "no figures for the KV cache: the file lacks %s\n", p->missing);
}

/* ---- the command ------------------------------------------------------------------------------- */

static int open_file(inspection *p, options *o) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    if (!o->operand == !o->model) {
        cli_error(o->model ? "one file, please: FILE or -m FILE"
                           : "no file: give the path of a GGUF file, or --devices to list GPUs");
        return CLI_USAGE;
    }
    for (uint32_t i = 0; i < o->kv.n; i++)
        if (o->kv.spec[i].profile[0]) {
            cli_error("--kv '%s': a profile goes with a model that runs; here give the spec that stands in it",
                      o->kv.text[i]);
            return CLI_USAGE;
        }
    p->path = o->operand ? o->operand : o->model;
    const pleat_status status = pleat_gguf_open(p->path, NULL, &p->gguf, &err);
    if (status != PLEAT_OK) return cli_fail(p->path, status, &err);
    pleat_gguf_get_info(p->gguf, &p->info);
    return CLI_OK;
}

int command_inspect(options *o) {
    static const char *const default_specs[] = {"f16", "k8v8", "k8v4", "k4v4", "k4v2", NULL};
    static inspection p; /* large, and there is one */
    if (o->devices && (o->operand || o->model)) {
        cli_error("--devices lists the GPUs of this machine and takes no file");
        return CLI_USAGE;
    }
    if (o->devices) return devices_print(o);
    p.o = o;
    int code = open_file(&p, o);
    if (code != CLI_OK) return code;
    options_default_specs(o, default_specs);
    find_text(&p, "general.architecture", p.arch, sizeof p.arch);
    find_text(&p, "general.name", p.name, sizeof p.name);
    count_tensors(&p);
    find_geometry(&p);
    choose_contexts(&p);
    code = check_specs(&p);
    if (code != CLI_OK) {
        pleat_gguf_close(&p.gguf);
        return code;
    }
    code = output_open(&p.out, o);
    if (code == CLI_OK && o->format == FORMAT_JSON)
        output_json(&p.out, inspection_json(&p));
    else if (code == CLI_OK)
        write_tables(&p);
    const int closed = output_close(&p.out);
    pleat_gguf_close(&p.gguf);
    return code == CLI_OK ? closed : code;
}
