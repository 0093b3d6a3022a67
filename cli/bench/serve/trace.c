/* SPDX-License-Identifier: MIT
 *
 * trace.c: see trace.h.
 */
#include "trace.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"
#include "cli/lib/measure.h"
#include "cli/lib/whole_file.h"

enum { TOLD_CAP = 20 }; /* messages about one trace: a file may be wrong from end to end */

trace_request *trace_add(trace *t) {
    if (t->n == t->cap) {
        const uint32_t cap = t->cap ? t->cap * 2 : 1024;
        trace_request *grown = cli_alloc(cap, sizeof *grown);
        if (t->n) memcpy(grown, t->requests, t->n * sizeof *grown);
        free(t->requests);
        t->requests = grown;
        t->cap = cap;
    }
    return &t->requests[t->n++];
}

static void release_request(trace_request *r) {
    free(r->prefix);
    free(r->salt);
    free(r->prompt);
    *r = (trace_request){0};
}

void trace_release(trace *t) {
    for (uint32_t i = 0; i < t->n; i++) release_request(&t->requests[i]);
    free(t->requests);
    *t = (trace){0};
}

void trace_reject(const trace *t, uint32_t line, uint32_t *n_rejected, const char *fmt, ...) {
    char text[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (*n_rejected < TOLD_CAP && t->path)
        cli_error("%s:%u: rejected: %s", t->path, line, text);
    else if (*n_rejected < TOLD_CAP)
        cli_error("request %u: rejected: %s", line, text);
    else if (*n_rejected == TOLD_CAP)
        cli_error("more are rejected, and counted without a word");
    (*n_rejected)++;
}

/* ---- tenants ----------------------------------------------------------------------------------- */

/* "30%" or 0.3, then the end or `stop`.  Its end, or NULL. */
static const char *read_share(const char *text, double *out) {
    char *end;
    if (!isdigit((unsigned char)text[0]) && text[0] != '.') return NULL;
    *out = options_decimal(text, &end);
    if (*end == '%') {
        *out /= 100;
        end++;
    }
    return *out >= 0 && *out <= 1 ? end : NULL;
}

/* NAME:QUOTA[:WEIGHT] */
static int parse_tenant(const char *word, pleat_tenant *out) {
    const char *colon = strchr(word, ':'), *end = colon ? read_share(colon + 1, &out->quota) : NULL;
    char *rest;
    out->weight = 1;
    if (!end || colon == word) return 0;
    if (*end == ':') {
        const unsigned long weight = strtoul(end + 1, &rest, 10);
        if (!isdigit((unsigned char)end[1]) || weight < 1 || weight > 1000000) return 0;
        out->weight = (uint32_t)weight;
        end = rest;
    }
    out->name = cli_copy(word, (size_t)(colon - word));
    return *end == 0;
}

static int is_new_name(const tenant_list *tenants, const char *name) {
    for (uint32_t i = 0; i + 1 < tenants->n; i++)
        if (!strcmp(tenants->v[i].name, name)) return 0;
    return 1;
}

int tenants_parse(const char *text, tenant_list *out) {
    double sum = 0;
    int code = CLI_OK;
    *out = (tenant_list){0};
    char *copy = cli_copy(text, strlen(text)), *at = copy;
    for (char *word = strsep(&at, ","); word && code == CLI_OK; word = strsep(&at, ",")) {
        code = CLI_USAGE;
        if (out->n == TENANTS_CAP)
            cli_error("--tenants: more than %d", TENANTS_CAP);
        else if (!parse_tenant(word, &out->v[out->n++]))
            cli_error("--tenants: '%s' is not NAME:QUOTA%%[:WEIGHT], as chat:30%%:2; weights are whole numbers", word);
        else if (!is_new_name(out, out->v[out->n - 1].name))
            cli_error("--tenants: '%s' stands there twice", out->v[out->n - 1].name);
        else
            code = CLI_OK;
        if (code == CLI_OK) sum += out->v[out->n - 1].quota;
    }
    free(copy);
    if (code == CLI_OK && !(sum <= 1 + 1e-9)) {
        cli_error("--tenants: the quotas add up to %.4g %% of the pool", 100 * sum);
        code = CLI_USAGE;
    }
    return code;
}

void tenants_release(tenant_list *tenants) {
    for (uint32_t i = 0; i < tenants->n; i++) free((char *)tenants->v[i].name);
    *tenants = (tenant_list){0};
}

static int find_tenant(const tenant_list *tenants, const char *name, uint32_t *out) {
    for (*out = 0; *out < tenants->n; (*out)++)
        if (!strcmp(tenants->v[*out].name, name)) return 1;
    return !tenants->n && !name[0];
}

/* ---- reading ----------------------------------------------------------------------------------- */

/* What a line is read for, and with. */
typedef struct reader {
    trace *t;
    const loaded *l; /* NULL: no model */
    const tenant_list *tenants;
    uint32_t line;
    double last_s; /* arrival of the request before */
} reader;

#define REJECT(r, ...) (trace_reject((r)->t, (r)->line, &(r)->t->n_rejected, __VA_ARGS__), 0)

static int has_known_keys(const reader *r, json_t *object) {
    static const char *const keys[] = {"arrival", "prompt_tokens", "output_tokens", "tenant", "priority",
                                       "prefix",  "prefix_tokens", "salt",          "prompt"};
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        const char *nearest = keys[cli_nearest(key, keys, sizeof keys / sizeof keys[0])];
        char hint[HINT_CAP];
        if (strcmp(key, nearest) != 0)
            return REJECT(r, "unknown \"%s\"%s", key, cli_hint(hint, " known", key, nearest));
    }
    return 1;
}

/* A whole number in min..max; left alone where there is none and it may be missing. */
static int read_integer(const reader *r, json_t *object, const char *key, int is_needed, int64_t min, int64_t max,
                        int64_t *out) {
    json_t *value = json_object_get(object, key);
    if (!value && !is_needed) return 1;
    if (!value) return REJECT(r, "no \"%s\"", key);
    if (!json_is_integer(value) || json_integer_value(value) < min || json_integer_value(value) > max)
        return REJECT(r, "\"%s\" is not a whole number between %lld and %lld", key, (long long)min, (long long)max);
    *out = json_integer_value(value);
    return 1;
}

static int read_text(const reader *r, json_t *object, const char *key, char **out) {
    json_t *value = json_object_get(object, key);
    if (!value) return 1;
    const char *text = json_string_value(value);
    if (!text || strlen(text) != json_string_length(value)) return REJECT(r, "\"%s\" is not a text without NULs", key);
    *out = cli_copy(text, strlen(text));
    return 1;
}

static int read_arrival(reader *r, json_t *object, trace_request *out) {
    json_t *value = json_object_get(object, "arrival");
    if (!value) return REJECT(r, "no \"arrival\"");
    const double arrival_s = json_number_value(value);
    if (!json_is_number(value) || !(arrival_s >= 0 && arrival_s <= TRACE_SECONDS_MAX))
        return REJECT(r, "\"arrival\" is not a number of seconds between 0 and %.0f", TRACE_SECONDS_MAX);
    if (!(arrival_s >= r->last_s))
        return REJECT(r, "\"arrival\" %.9g is before %.9g, that of the request before it", arrival_s, r->last_s);
    out->arrival_s = arrival_s;
    return 1;
}

/* The prompt's length, or its text's tokens. */
static int read_prompt(const reader *r, json_t *object, trace_request *out) {
    json_t *text = json_object_get(object, "prompt");
    int64_t n = 0;
    char what[64];
    if (!text) {
        if (!read_integer(r, object, "prompt_tokens", 1, 1, TRACE_TOKENS_MAX, &n)) return 0;
        out->n_prompt = (uint32_t)n;
        return 1;
    }
    if (!json_is_string(text)) return REJECT(r, "\"prompt\" is not a text");
    if (json_object_get(object, "prompt_tokens"))
        return REJECT(r, "\"prompt\" and \"prompt_tokens\" exclude each other");
    if (!r->l) return REJECT(r, "\"prompt\" needs a model: give -m, or \"prompt_tokens\"");
    snprintf(what, sizeof what, "line %u", r->line);
    if (load_tokens(r->l, what, json_string_value(text), json_string_length(text), PLEAT_TOKENIZE_ADD_BOS, &out->prompt,
                    &out->n_prompt) != CLI_OK)
        return REJECT(r, "\"prompt\" cannot be made tokens");
    return out->n_prompt ? 1 : REJECT(r, "\"prompt\" is empty");
}

static int read_prefix(const reader *r, json_t *object, trace_request *out) {
    int64_t n = 0;
    if (!read_text(r, object, "prefix", &out->prefix)) return 0;
    if (!read_integer(r, object, "prefix_tokens", out->prefix != NULL, 1, TRACE_TOKENS_MAX, &n)) return 0;
    if (n > out->n_prompt)
        return REJECT(r, "\"prefix_tokens\" is %lld, the prompt has %u tokens", (long long)n, out->n_prompt);
    if (n && !out->prefix && !out->prompt) return REJECT(r, "\"prefix_tokens\" without \"prefix\": whose?");
    out->n_prefix = (uint32_t)n;
    return 1;
}

static int read_tenant(const reader *r, json_t *object, trace_request *out) {
    json_t *value = json_object_get(object, "tenant");
    if (!value) return 1;
    if (!json_is_string(value)) return REJECT(r, "\"tenant\" is not a text");
    const char *name = json_string_value(value);
    if (find_tenant(r->tenants, name, &out->tenant)) return 1;
    return REJECT(r, "unknown tenant '%.100s'%s", name, r->tenants->n ? "" : ": --tenants names none");
}

static int read_request(reader *r, json_t *object, trace_request *out) {
    int64_t n_output = 0, priority = 0;
    if (!json_is_object(object)) return REJECT(r, "not an object");
    if (!has_known_keys(r, object) || !read_arrival(r, object, out) || !read_prompt(r, object, out) ||
        !read_integer(r, object, "output_tokens", 1, 1, TRACE_TOKENS_MAX, &n_output) ||
        !read_integer(r, object, "priority", 0, INT32_MIN, INT32_MAX, &priority) || !read_prefix(r, object, out) ||
        !read_tenant(r, object, out) || !read_text(r, object, "salt", &out->salt))
        return 0;
    out->n_output = (uint32_t)n_output;
    out->priority = (int32_t)priority;
    out->line = r->line;
    return 1;
}

static void read_line(reader *r, const char *line, size_t n) {
    json_error_t err;
    trace_request request = {0};
    json_t *object = json_loadb(line, n, JSON_REJECT_DUPLICATES, &err);
    if (!object) {
        trace_reject(r->t, r->line, &r->t->n_rejected, "column %d: %s", err.column, err.text);
        return;
    }
    if (read_request(r, object, &request)) {
        r->last_s = request.arrival_s;
        *trace_add(r->t) = request;
    } else {
        release_request(&request);
    }
    json_decref(object);
}

int trace_load(trace *t, const char *path, const loaded *l, const tenant_list *tenants, uint32_t most) {
    reader r = {t, l, tenants, 0, 0};
    char *text;
    size_t n_bytes;
    *t = (trace){.path = path};
    if (cli_read_file(CONTENT_TRACE, path, &text, &n_bytes) != CLI_OK) return CLI_USAGE;
    for (size_t at = 0; at < n_bytes && !(most && t->n == most);) {
        const char *newline = memchr(text + at, '\n', n_bytes - at);
        const size_t end = newline ? (size_t)(newline - text) : n_bytes;
        r.line++;
        while (at < end && isspace((unsigned char)text[at])) at++;
        if (at < end) read_line(&r, text + at, end - at);
        at = end + 1;
    }
    free(text);
    return CLI_OK;
}

/* ---- writing ----------------------------------------------------------------------------------- */

static json_t *request_json(const trace_request *r, const tenant_list *tenants) {
    json_t *object = json_pack("{s:f, s:I, s:I}", "arrival", r->arrival_s, "prompt_tokens", (json_int_t)r->n_prompt,
                               "output_tokens", (json_int_t)r->n_output);
    if (tenants->n) json_object_set_new(object, "tenant", json_string(tenants->v[r->tenant].name));
    if (r->priority) json_object_set_new(object, "priority", json_integer(r->priority));
    if (r->prefix) json_object_set_new(object, "prefix", json_string(r->prefix));
    if (r->prefix) json_object_set_new(object, "prefix_tokens", json_integer(r->n_prefix));
    if (r->salt) json_object_set_new(object, "salt", json_string(r->salt));
    return object;
}

int trace_write(const trace *t, const tenant_list *tenants, const char *path) {
    whole_file w;
    if (whole_file_open(&w, path) != CLI_OK) return CLI_FAILED;
    for (uint32_t i = 0; i < t->n; i++) {
        json_t *object = request_json(&t->requests[i], tenants);
        json_dumpf(object, w.file, JSON_COMPACT | JSON_REAL_PRECISION(17));
        fputc('\n', w.file);
        json_decref(object);
    }
    return whole_file_close(&w);
}

/* ---- times and tokens -------------------------------------------------------------------------- */

void trace_arrivals(trace *t, double rate_s, uint64_t seed) {
    measure_rng rng = {seed ^ 0xA77124A15ull};
    double now_s = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        t->requests[i].arrival_s = now_s;
        if (isfinite(rate_s)) now_s -= log((measure_rng_next(&rng) + 1.0) / 4294967296.0) / rate_s;
    }
}

/* n tokens that `seed` stands for; fewer of one seed are the first of more. */
static void make_tokens(const token_source *s, uint64_t seed, uint32_t n, pleat_token *out) {
    measure_rng rng = {seed};
    if (s->text) {
        const uint32_t first = measure_rng_next(&rng) % s->n_text;
        for (uint32_t i = 0; i < n; i++) out[i] = s->text[((uint64_t)first + i) % s->n_text];
        return;
    }
    for (uint32_t i = 0; i < n;) {
        out[i] = (pleat_token)(measure_rng_next(&rng) % s->n_vocab);
        if (!s->l || !pleat_model_token_is_special(s->l->model, out[i])) i++; /* bytes' tokens are ordinary: it ends */
    }
}

/* FNV-1a: a name's own stream of tokens. */
static uint64_t seed_of_name(const char *name) {
    uint64_t hash = 0xCBF29CE484222325ull;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001B3ull;
    return hash;
}

/* Requests stand one behind the other, as long as their outputs, and points as far apart as a mean one: who is hit has come
 * as far. */
void trace_age(const trace *t, uint32_t i, uint64_t seed, trace_request *out) {
    measure_rng rng = {seed};
    const double first = measure_rng_next(&rng) / 4294967296.0;
    uint64_t n_all = 0, n_before = 0;
    for (uint32_t k = 0; k < t->n; k++) n_all += t->requests[k].n_output;
    const uint64_t at = (uint64_t)((i + first) / t->n * (double)n_all);
    uint32_t hit = 0;
    while (hit + 1 < t->n && n_before + t->requests[hit].n_output <= at) n_before += t->requests[hit++].n_output;
    const uint32_t n_last = t->requests[hit].n_output - 1,
                   n_done = at - n_before < n_last ? (uint32_t)(at - n_before) : n_last;
    const uint32_t line = out->line;
    *out = t->requests[hit];
    out->line = line;
    out->prompt = NULL;
    out->n_prompt += n_done;
    out->n_output -= n_done;
}

void trace_prompt(const trace_request *r, uint32_t i, const token_source *source, pleat_token *out) {
    if (r->prompt) {
        memcpy(out, r->prompt, r->n_prompt * sizeof *out);
        return;
    }
    if (r->n_prefix) make_tokens(source, source->seed ^ seed_of_name(r->prefix), r->n_prefix, out);
    const uint64_t own = source->seed + 0x632BE59BD9B4E019ull * (i + 1ull);
    make_tokens(source, own, r->n_prompt - r->n_prefix, out + r->n_prefix);
}
