/* SPDX-License-Identifier: MIT
 *
 * print.c: see print.h.
 *
 *     terminal, md   the model; what is held; what a step reads; what preemption costs; the answers
 *     csv            one table of all of it
 *     json           docs/CLI.md
 *
 * What is not known is null, or -, and the options that would tell are named.
 */
#include "print.h"

#include "cli/lib/output.h"
#include "cli/lib/shape/archs.h"

static double fraction_of(const plan_row *r) { return (double)(r->kv + r->tables) / (double)r->f16_bytes; }

static int has_weights(const plan *p) { return p->q.weights.bytes > 0; }
static int has_device(const plan *p) { return p->q.device_bytes > 0 && has_weights(p); }

/* The options whose figures are missing; n of them. */
static uint32_t list_missing(const plan *p, const char *out[5]) {
    uint32_t n = 0;
    if (!has_weights(p)) out[n++] = "--weights";
    if (!p->q.device_bytes) out[n++] = "--device-bytes";
    if (!p->q.bytes_per_s) out[n++] = "--bandwidth";
    if (!p->q.swap_bytes_per_s) out[n++] = "--swap-bandwidth";
    if (!(p->q.prompt_tokens_per_s > 0)) out[n++] = "--prefill";
    return n;
}

/* Which of swapping and reading the prompt again is over sooner; NULL if that cannot be said. */
static const char *cheaper(const plan_row *r) {
    if (!(r->swap_ms > 0) || !(r->prompt_ms > 0)) return NULL;
    return 2 * r->swap_ms <= r->prompt_ms ? "swap" : "recompute";
}

static const char *certainty_name(const plan_row *r) {
    static const char *const names[] = {"exact", "forecast", "measured", "by --fraction"};
    return names[r->certainty];
}

/* ---- JSON -------------------------------------------------------------------------------------- */

static json_t *int_or_null(int is_known, uint64_t v) { return is_known ? json_integer((json_int_t)v) : json_null(); }
static json_t *text_or_null(const char *text) { return text ? json_string(text) : json_null(); }

static json_t *model_json(const plan *p) {
    const model_shape *s = &p->q.shape;
    json_t *m = json_pack("{s:o, s:o}", "name", json_text(s->name), "source", json_text(p->source));
    const struct {
        const char *key;
        uint64_t v;
    } sizes[] = {{"layers", s->n_layers},     {"query_heads", s->n_q_heads},
                 {"kv_heads", s->n_kv_heads}, {"head_dim", s->head_dim},
                 {"hidden", s->n_embd},       {"context", s->n_ctx},
                 {"window", s->window},       {"windowed_layers", s->n_windowed},
                 {"experts", s->n_experts},   {"experts_used", s->n_experts_used}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        json_object_set_new(m, sizes[i].key, json_integer((json_int_t)sizes[i].v));
    json_object_set_new(m, "params", int_or_null(s->n_params > 0, s->n_params));
    json_object_set_new(m, "weights", text_or_null(has_weights(p) ? p->q.weights.what : NULL));
    return m;
}

static json_t *step_json(const plan *p, const plan_row *r) {
    const int known = has_weights(p);
    return json_pack("{s:o, s:I, s:o, s:o, s:o}", "weights", int_or_null(known, r->weights_read), "kv",
                     (json_int_t)r->kv_read, "bytes", int_or_null(known, r->weights_read + r->kv_read), "ms",
                     json_number(r->step_ms), "tokens_per_s", json_number(r->tokens_per_s));
}

static json_t *kinds_json(const plan_row *r) {
    json_t *all = json_array();
    for (uint32_t i = 0; i < r->n_kinds; i++)
        json_array_append_new(all, json_pack("{s:i, s:i, s:s, s:I, s:I}", "layers", (int)r->kinds[i].n_layers, "window",
                                             (int)r->kinds[i].window, "kept_as", r->kinds[i].kept_as, "bytes_per_token",
                                             (json_int_t)r->kinds[i].token_bytes, "kv", (json_int_t)r->kinds[i].bytes));
    return all;
}

static json_t *row_json(const plan *p, uint32_t i) {
    const plan_row *r = &p->rows[i];
    const int device = has_device(p);
    json_t *row =
        json_pack("{s:s, s:s, s:I, s:{s:I, s:I, s:I, s:I}, s:{s:o, s:I, s:I, s:I, s:o}, s:I, s:o}", "kv",
                  p->o->kv.text[i], "certainty", certainty_name(r), "bytes_per_token", (json_int_t)r->token_bytes,
                  "sequence", "kv", (json_int_t)r->seq_kv, "tables", (json_int_t)r->seq_tables, "bytes",
                  (json_int_t)(r->seq_kv + r->seq_tables), "most", (json_int_t)r->seq_most, "bytes", "weights",
                  int_or_null(has_weights(p), p->q.weights.bytes), "prefix", (json_int_t)r->prefix, "kv",
                  (json_int_t)r->kv, "tables", (json_int_t)r->tables, "total", int_or_null(has_weights(p), r->total),
                  "bytes_f16", (json_int_t)r->f16_bytes, "fraction", json_number(fraction_of(r)));
    json_object_set_new(row, "kinds", kinds_json(r));
    json_object_set_new(row, "fits", device ? json_boolean(r->fits) : json_null());
    json_object_set_new(row, "most_sequences", int_or_null(device, r->max_seqs));
    json_object_set_new(row, "most_tokens", int_or_null(device, r->most_tokens));
    json_object_set_new(row, "step", step_json(p, r));
    json_object_set_new(row, "batch_kv_passes_weights", int_or_null(has_weights(p), r->crossing));
    json_object_set_new(row, "preempt",
                        json_pack("{s:I, s:o, s:o, s:o, s:o}", "swap_bytes", (json_int_t)r->swap_bytes, "swap_ms",
                                  json_number(r->swap_ms), "swap_both_ms", json_number(2 * r->swap_ms), "recompute_ms",
                                  json_number(r->prompt_ms), "cheaper", text_or_null(cheaper(r))));
    json_object_set_new(row, "worth_it", p->is_worth[i] < 0 ? json_null() : json_boolean(p->is_worth[i]));
    json_object_set_new(row, "answer", json_string(p->answers[i]));
    return row;
}

static json_t *plan_json(const plan *p) {
    const char *missing[5];
    const uint32_t n_missing = list_missing(p, missing);
    json_t *rows = json_array(), *unknown = json_array();
    for (uint32_t i = 0; i < p->o->kv.n; i++) json_array_append_new(rows, row_json(p, i));
    for (uint32_t i = 0; i < n_missing; i++) json_array_append_new(unknown, json_string(missing[i]));
    return json_pack("{s:o, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "model", model_json(p), "ctx",
                     (json_int_t)p->q.n_tokens, "ctx_size", (json_int_t)p->q.max_tokens, "batch",
                     (json_int_t)p->q.n_seqs, "shared", (json_int_t)p->q.n_shared, "device_bytes",
                     int_or_null(p->q.device_bytes > 0, p->q.device_bytes), "rows", rows, "unknown", unknown);
}

/* ---- tables ------------------------------------------------------------------------------------ */

/* Bytes for a reader, or for a program; "-" if not known. */
static void put_bytes(const plan *p, table *t, int is_known, uint64_t n) {
    char text[BYTES_CAP];
    if (!is_known)
        table_put(t, "-");
    else if (p->o->common.format == FORMAT_CSV)
        table_put(t, "%llu", (unsigned long long)n);
    else
        table_put(t, "%s", print_bytes(text, n));
}

static void put_count(table *t, int is_known, uint64_t n) {
    if (is_known)
        table_put(t, "%llu", (unsigned long long)n);
    else
        table_put(t, "-");
}

/* Milliseconds with three figures or more. */
static void put_ms(table *t, double ms) { table_put_number(t, ms < 10 ? 2 : ms < 100 ? 1 : 0, ms); }

static void put_memory(const plan *p, table *t, const plan_row *r) {
    put_count(t, 1, r->token_bytes);
    put_bytes(p, t, has_weights(p), p->q.weights.bytes);
    put_bytes(p, t, 1, r->kv);
    put_bytes(p, t, 1, r->seq_most);
    put_bytes(p, t, 1, r->tables);
    put_bytes(p, t, has_weights(p), r->total);
    table_put(t, "%.4f", fraction_of(r));
    put_count(t, has_device(p), r->max_seqs);
    put_count(t, has_device(p), r->most_tokens);
}

static void put_step(const plan *p, table *t, const plan_row *r) {
    put_bytes(p, t, has_weights(p), r->weights_read);
    put_bytes(p, t, 1, r->kv_read);
    put_ms(t, r->step_ms);
    table_put_number(t, 1, r->tokens_per_s);
    put_count(t, has_weights(p), r->crossing);
}

static void put_preempt(const plan *p, table *t, const plan_row *r) {
    const char *word = cheaper(r);
    put_bytes(p, t, 1, r->swap_bytes);
    put_ms(t, r->swap_ms);
    put_ms(t, 2 * r->swap_ms);
    put_ms(t, r->prompt_ms);
    table_put(t, "%s", word ? word : "-");
}

/* The columns of each part; "kv" stands in front of all. */
#define MEMORY_TITLES \
    "bytes/token", "weights", "KV", "one's most", "tables", "total", "part of f16", "most sequences", "most tokens"
#define STEP_TITLES "weights read", "KV read", "ms at least", "tokens/s at most", "KV passes weights at"
#define PREEMPT_TITLES "swap", "ms out", "ms out and in", "recompute ms", "sooner"

typedef void (*put_fn)(const plan *p, table *t, const plan_row *r);

static void write_part(const plan *p, output *out, const char *const *titles, uint32_t n_cols, put_fn put) {
    table t;
    table_init(&t, titles, n_cols);
    for (uint32_t i = 0; i < p->o->kv.n; i++) {
        const plan_row *r = &p->rows[i];
        table_put(&t, "%s%s%s%s", p->o->kv.text[i], r->certainty ? " (" : "", r->certainty ? certainty_name(r) : "",
                  r->certainty ? ")" : "");
        put(p, &t, r);
    }
    table_write(&t, out);
    table_release(&t);
    fputc('\n', out->file);
}

/* One flat table for programs. */
static void write_csv(const plan *p, output *out) {
    static const char *const titles[] = {"kv",          "certainty", "ctx",          "batch",
                                         MEMORY_TITLES, STEP_TITLES, PREEMPT_TITLES, "answer"};
    table t;
    table_init(&t, titles, sizeof titles / sizeof titles[0]);
    for (uint32_t i = 0; i < p->o->kv.n; i++) {
        const plan_row *r = &p->rows[i];
        table_put(&t, "%s", p->o->kv.text[i]);
        table_put(&t, "%s", certainty_name(r));
        table_put(&t, "%u", p->q.n_tokens);
        table_put(&t, "%u", p->q.n_seqs);
        put_memory(p, &t, r);
        put_step(p, &t, r);
        put_preempt(p, &t, r);
        table_put(&t, "%s", p->answers[i]);
    }
    table_write(&t, out);
    table_release(&t);
}

static void write_model(const plan *p, output *out) {
    static const char *const titles[] = {"what", "value"};
    const model_shape *s = &p->q.shape;
    char bytes[BYTES_CAP], experts[64] = "";
    table t;
    table_init(&t, titles, 2);
    table_put(&t, "model");
    table_put(&t, "%.90s (%.300s)", s->name, p->source);
    table_put(&t, "attention");
    table_put(&t, "%u layers, %u query heads, %u KV heads, head dimension %u", s->n_layers, s->n_q_heads, s->n_kv_heads,
              s->head_dim);
    if (s->n_windowed) {
        table_put(&t, "window");
        table_put(&t, "%u tokens in %u of the layers", s->window, s->n_windowed);
    }
    if (s->n_experts)
        snprintf(experts, sizeof experts, ", %u of %u experts for a token", s->n_experts_used, s->n_experts);
    table_put(&t, "weights");
    if (has_weights(p))
        table_put(&t, "%s, %s, %llu parameters%s", print_bytes(bytes, p->q.weights.bytes), p->q.weights.what,
                  (unsigned long long)s->n_params, experts);
    else
        table_put(&t, "unknown");
    table_put(&t, "sequences");
    if (p->q.n_shared)
        table_put(&t, "%u of %u tokens, the first %u of a kept prefix", p->q.n_seqs, p->q.n_tokens, p->q.n_shared);
    else
        table_put(&t, "%u of %u tokens", p->q.n_seqs, p->q.n_tokens);
    if (p->q.device_bytes) {
        table_put(&t, "device");
        table_put(&t, "%s", print_bytes(bytes, p->q.device_bytes));
    }
    table_write(&t, out);
    table_release(&t);
    fputc('\n', out->file);
}

/* What each kind of layers is kept as, where there are two. */
static void write_kinds(const plan *p, output *out) {
    static const char *const titles[] = {"kv", "layers", "see", "kept as", "bytes/token", "one's KV"};
    char sees[LAYER_KIND_SEES_CAP];
    table t;
    if (p->o->kv.n == 0 || p->rows[0].n_kinds < 2) return;
    table_init(&t, titles, sizeof titles / sizeof titles[0]);
    for (uint32_t i = 0; i < p->o->kv.n; i++) {
        for (uint32_t k = 0; k < p->rows[i].n_kinds; k++) {
            const layer_kind *kind = &p->rows[i].kinds[k];
            table_put(&t, "%s", p->o->kv.text[i]);
            put_count(&t, 1, kind->n_layers);
            table_put(&t, "%s", layer_kind_sees(kind, sees));
            table_put(&t, "%s", kind->kept_as);
            put_count(&t, 1, kind->token_bytes);
            put_bytes(p, &t, 1, kind->bytes);
        }
    }
    table_write(&t, out);
    table_release(&t);
    fputc('\n', out->file);
}

static void write_words(const plan *p, output *out) {
    const char *missing[5], *start = p->o->common.format == FORMAT_MD ? "- " : "";
    const uint32_t n_missing = list_missing(p, missing);
    for (uint32_t i = 0; i < p->o->kv.n; i++) fprintf(out->file, "%s%s: %s\n", start, p->o->kv.text[i], p->answers[i]);
    if (n_missing) fprintf(out->file, "\nUnknown, shown as -: what needs");
    for (uint32_t i = 0; i < n_missing; i++)
        fprintf(out->file, "%s %s", !i ? "" : i + 1 == n_missing ? " or" : ",", missing[i]);
    if (n_missing) fputc('\n', out->file);
}

static void write_tables(const plan *p, output *out) {
    static const char *const memory[] = {"kv", MEMORY_TITLES}, *const step[] = {"kv", STEP_TITLES},
                             *const preempt[] = {"kv", PREEMPT_TITLES};
    write_model(p, out);
    write_kinds(p, out);
    write_part(p, out, memory, sizeof memory / sizeof memory[0], put_memory);
    write_part(p, out, step, sizeof step / sizeof step[0], put_step);
    write_part(p, out, preempt, sizeof preempt / sizeof preempt[0], put_preempt);
    write_words(p, out);
}

int plan_print(const plan *p) {
    output out = {.file = NULL};
    const int code = output_open(&out, &p->o->common);
    if (code != CLI_OK) return code;
    if (out.format == FORMAT_JSON)
        output_json(&out, plan_json(p));
    else if (out.format == FORMAT_CSV)
        write_csv(p, &out);
    else
        write_tables(p, &out);
    return output_close(&out);
}

/* ---- --arch list ------------------------------------------------------------------------------- */

static json_t *arch_json(const arch *a, const model_shape *s) {
    return json_pack("{s:s, s:s, s:o, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:o}", "arch", a->name, "source", a->source,
                     "params", int_or_null(s->n_params > 0, s->n_params), "layers", (int)s->n_layers, "query_heads",
                     (int)s->n_q_heads, "kv_heads", (int)s->n_kv_heads, "head_dim", (int)s->head_dim, "context",
                     (int)s->n_ctx, "window", (int)s->window, "windowed_layers", (int)s->n_windowed, "not_supported",
                     text_or_null(a->why_not));
}

int plan_print_archs(const common_options *common) {
    static const char *const titles[] = {"arch",     "parameters", "layers", "query heads",     "KV heads",
                                         "head dim", "context",    "window", "windowed layers", "source"};
    output out = {.file = NULL};
    uint32_t n;
    const arch *a = archs_all(&n);
    json_t *rows = json_array();
    table t;
    int code = output_open(&out, common);
    table_init(&t, titles, sizeof titles / sizeof titles[0]);
    for (uint32_t i = 0; i < n; i++) {
        model_shape s = a[i].shape;
        if (!a[i].why_not) shape_count_params(&s);
        json_array_append_new(rows, arch_json(&a[i], &s));
        table_put(&t, "%s", a[i].name);
        const uint64_t sizes[] = {s.n_params, s.n_layers, s.n_q_heads, s.n_kv_heads,
                                  s.head_dim, s.n_ctx,    s.window,    s.n_windowed};
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) put_count(&t, sizes[k] > 0, sizes[k]);
        table_put(&t, "%s%s", a[i].source, a[i].why_not ? ": not supported" : "");
    }
    return output_end_rows(&out, code, rows, NULL, &t);
}
