/* SPDX-License-Identifier: MIT
 *
 * reply.c: see reply.h.
 */
#include "reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "cli/lib/common.h"
#include "cli/lib/utf8.h"

static const char *type_of(int status) {
    switch (status) {
        case 401: return "authentication_error";
        case 403: return "permission_error";
        case 404: return "not_found_error";
        case 409: return "conflict_error";
        case 429: return "rate_limit_error";
        case 500: return "server_error";
        case 503: return "unavailable_error";
        default: return "invalid_request_error";
    }
}

/* A message may quote what a client wrote, and end within a character of it. */
static json_t *valid(const char *text) {
    const size_t n = strlen(text);
    utf8_stream stream = {0};
    char *out = cli_alloc(UTF8_STREAM_CAP(n) + UTF8_STREAM_CAP(0), 1);
    size_t n_out = utf8_stream_put(&stream, text, n, out);
    n_out += utf8_stream_end(&stream, out + n_out);
    json_t *string = json_stringn(out, n_out);
    free(out);
    return string;
}

json_t *reply_error(int status, const char *field, const char *text) {
    json_t *error =
        json_pack("{s:o, s:s, s:n, s:i}", "message", valid(text), "type", type_of(status), "param", "code", status);
    if (field[0]) json_object_set_new(error, "param", json_string(field));
    return json_pack("{s:o}", "error", error);
}

int reply_make_id(const char *kind, char *out, size_t cap) {
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != sizeof random) return 0;
    snprintf(out, cap, "%s-%016llx%016llx", kind, (unsigned long long)random[0], (unsigned long long)random[1]);
    return 1;
}

json_t *reply_token(const pleat_model *model, pleat_token id) {
    size_t n = 0;
    const char *text = id >= 0 ? pleat_model_token_text(model, id, &n) : NULL;
    if (!text) return json_string("");
    if (utf8_first_invalid(text, n) == n) return json_stringn(text, n);
    char *name = cli_alloc(6 + 4 * n + 1, 1);
    size_t at = (size_t)sprintf(name, "bytes:");
    for (size_t i = 0; i < n; i++) at += (size_t)sprintf(name + at, "\\x%02x", (unsigned char)text[i]);
    json_t *string = json_string(name);
    free(name);
    return string;
}

uint32_t reply_characters(const pleat_model *model, pleat_token id) {
    size_t n = 0;
    uint32_t n_characters = 0;
    const char *text = pleat_model_token_text(model, id, &n);
    for (size_t i = 0; text && i < n; i++) n_characters += ((unsigned char)text[i] & 0xC0) != 0x80;
    return n_characters;
}

static json_t *number_of(float logprob) { return json_real(logprob >= -9999 ? (double)logprob : -9999); }

static json_t *bytes_of(const pleat_model *model, pleat_token id) {
    size_t n = 0;
    const char *text = pleat_model_token_text(model, id, &n);
    json_t *bytes = json_array();
    for (size_t i = 0; text && i < n; i++) json_array_append_new(bytes, json_integer((unsigned char)text[i]));
    return bytes;
}

static json_t *chat_entry(const pleat_model *model, const pleat_logprob *p) {
    return json_pack("{s:o, s:o, s:o}", "token", reply_token(model, p->token), "logprob", number_of(p->logprob),
                     "bytes", bytes_of(model, p->token));
}

json_t *reply_chat_logprob(const pleat_model *model, const pleat_logprob *row, uint32_t n_top) {
    json_t *entry = chat_entry(model, &row[0]), *top = json_array();
    for (uint32_t i = 1; i <= n_top; i++) json_array_append_new(top, chat_entry(model, &row[i]));
    json_object_set_new(entry, "top_logprobs", top);
    return entry;
}

json_t *reply_logprobs(void) {
    return json_pack("{s:[], s:[], s:[], s:[]}", "tokens", "token_logprobs", "top_logprobs", "text_offset");
}

/* The likeliest and the token itself by their texts; of two with one text the likelier stays. */
static json_t *top_of(const pleat_model *model, const pleat_logprob *row, uint32_t n_top) {
    json_t *top = json_object();
    for (uint32_t i = 1; i <= n_top + 1; i++) {
        const pleat_logprob *p = &row[i <= n_top ? i : 0];
        json_t *name = reply_token(model, p->token);
        if (!json_object_get(top, json_string_value(name)))
            json_object_set_new(top, json_string_value(name), number_of(p->logprob));
        json_decref(name);
    }
    return top;
}

void reply_add_logprob(json_t *logprobs, const pleat_model *model, const pleat_logprob *row, uint32_t n_top,
                       int has_row, uint64_t offset) {
    json_array_append_new(json_object_get(logprobs, "tokens"), reply_token(model, row[0].token));
    json_array_append_new(json_object_get(logprobs, "token_logprobs"),
                          has_row ? number_of(row[0].logprob) : json_null());
    json_array_append_new(json_object_get(logprobs, "top_logprobs"), has_row ? top_of(model, row, n_top) : json_null());
    json_array_append_new(json_object_get(logprobs, "text_offset"), json_integer((json_int_t)offset));
}

json_t *reply_call(const char *name, const char *arguments, uint64_t n) {
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    char id[10] = "";
    for (int i = 8; i >= 0; i--, n /= 36) id[i] = digits[n % 36];
    return json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id, "type", "function", "function", "name", name, "arguments",
                     arguments);
}

json_t *reply_usage(const reply_counts *c, const char *kv) {
    return json_pack("{s:I, s:I, s:I, s:{s:I}, s:s, s:I, s:I}", "prompt_tokens", (json_int_t)c->n_prompt,
                     "completion_tokens", (json_int_t)c->n_generated, "total_tokens",
                     (json_int_t)(c->n_prompt + c->n_generated), "prompt_tokens_details", "cached_tokens",
                     (json_int_t)c->n_hit, "kv", kv, "kv_bytes", (json_int_t)c->kv_bytes, "kv_bytes_f16",
                     (json_int_t)c->kv_bytes_f16);
}

static double per_second(uint64_t n, uint64_t ns) { return ns ? (double)n * 1e9 / (double)ns : 0; }

json_t *reply_timings(const reply_counts *c) {
    return json_pack("{s:I, s:f, s:f, s:I, s:f, s:f}", "prompt_n", (json_int_t)c->n_computed, "prompt_ms",
                     (double)c->prompt_ns * 1e-6, "prompt_per_second", per_second(c->n_computed, c->prompt_ns),
                     "predicted_n", (json_int_t)c->n_generated, "predicted_ms", (double)c->answer_ns * 1e-6,
                     "predicted_per_second", per_second(c->n_generated, c->answer_ns));
}

json_t *reply_progress(const pleat_request_stats *stats, uint32_t n_read) {
    return json_pack("{s:I, s:I, s:I, s:f}", "total", (json_int_t)stats->n_prompt, "cache", (json_int_t)stats->n_hit,
                     "processed", (json_int_t)n_read, "time_ms", (double)stats->prompt_ns * 1e-6);
}

const char *reply_finish(pleat_finish finish) {
    switch (finish) {
        case PLEAT_FINISH_END:
        case PLEAT_FINISH_STOP: return "stop";
        case PLEAT_FINISH_LENGTH: return "length";
        case PLEAT_FINISH_DEADLINE: return "time_limit";
        default: return "error";
    }
}

char *reply_dump(json_t *object, size_t *n_bytes) {
    char *text = json_dumps(object, JSON_COMPACT | JSON_ENCODE_ANY);
    json_decref(object);
    if (!text) { /* no memory, or no UTF-8, which nothing here is */
        cli_error("out of memory");
        exit(CLI_FAILED);
    }
    *n_bytes = strlen(text);
    return text;
}

void reply_send(connection *c, int status, json_t *body) {
    size_t n;
    char *text = reply_dump(body, &n);
    connection_answer(c, status, "application/json", text, n);
    free(text);
}

void reply_refuse(connection *c, int status, const char *field, const char *text) {
    reply_send(c, status, reply_error(status, field, text));
}
