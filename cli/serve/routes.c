/* SPDX-License-Identifier: MIT
 *
 * routes.c: which path does what.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "admin.h"
#include "cli/lib/common.h"
#include "embedded.h"
#include "job.h"
#include "reply.h"
#include "resume.h"
#include "routes.h"

typedef struct route {
    const char *method, *path;
    void (*get)(server *s, connection *c);
    /* Takes the body.  terms: of the key that was sent; NULL: none was asked for. */
    void (*post)(server *s, connection *c, json_t *body, const key_terms *terms);
} route;

static void answer(connection *c, json_t *object) { reply_send(c, 200, object); }

/* ---- questions ---------------------------------------------------------------------------------------------------------- */

static void get_health(server *s, connection *c) {
    reply_send(c, s->is_stopping ? 503 : 200, json_pack("{s:s}", "status", s->is_stopping ? "stopping" : "ok"));
}

static void get_version(server *s, connection *c) {
    (void)s;
    answer(c, json_pack("{s:s, s:s}", "version", pleat_version(), "build", pleat_build_info()));
}

static void get_models(server *s, connection *c) {
    json_t *specs = json_array();
    for (uint32_t i = 0; i < s->n_served; i++) json_array_append_new(specs, json_string(s->served[i].kv));
    json_t *model =
        json_pack("{s:s, s:s, s:I, s:s, s:I, s:s}", "id", s->name, "object", "model", "created", (json_int_t)s->start_s,
                  "owned_by", "pleat", "max_model_len", (json_int_t)s->n_ctx, "kv", s->served[0].kv);
    json_object_set_new(model, "kv_specs", specs);
    answer(c, json_pack("{s:s, s:[o]}", "object", "list", "data", model));
}

static json_t *token_or_null(const server *s, pleat_token id) {
    return id >= 0 ? reply_token(s->l->model, id) : json_null();
}

static void get_tokenizer_info(server *s, connection *c) {
    const pleat_model_info *info = &s->l->info;
    answer(c, json_pack("{s:o, s:o, s:b, s:I, s:I}", "bos_token", token_or_null(s, info->bos), "eos_token",
                        token_or_null(s, info->eos), "add_bos_token", info->add_bos, "vocab_size",
                        (json_int_t)info->n_vocab, "model_max_length", (json_int_t)s->n_ctx));
}

static void get_metrics(server *s, connection *c) {
    spec_stats specs[SPECS_CAP];
    char *text = NULL;
    size_t n = 0;
    for (uint32_t i = 0; i < s->n_served; i++) {
        specs[i] = (spec_stats){.kv = s->served[i].kv, .page_bytes = s->served[i].page_bytes};
        driver_get_stats(s->served[i].driver, &specs[i].serving);
    }
    pleat_store_stats store;
    pleat_store_get_stats(s->store, &store);
    pleat_events_stats events;
    pleat_events_get_stats(s->events, &events);
    FILE *f = open_memstream(&text, &n);
    const metrics_facts facts = {.model = s->name,
                                 .keys = &s->keys,
                                 .specs = specs,
                                 .n_specs = s->n_served,
                                 .store = s->store ? &store : NULL,
                                 .events = s->events ? &events : NULL,
                                 .n_conversations = conversations_count(s->conversations),
                                 .uptime_s = difftime(time(NULL), (time_t)s->start_s)};
    if (f) metrics_print(f, &s->metrics, &facts);
    if (f && fclose(f) == 0)
        connection_answer(c, 200, "text/plain; version=0.0.4", text, n);
    else
        reply_refuse(c, 503, "", "out of memory");
    free(text);
}

static void get_slots(server *s, connection *c) { answer(c, job_slots(s)); }

/* llama-server's names, as far as they mean something here: what holds where a request says nothing. */
static void get_props(server *s, connection *c) {
    const pleat_model_info *info = &s->l->info;
    json_t *defaults =
        json_pack("{s:f, s:f, s:i, s:f, s:f, s:f, s:f}", "temperature", 1.0, "top_p", 1.0, "top_k", 0, "min_p", 0.0,
                  "repeat_penalty", 1.0, "presence_penalty", 0.0, "frequency_penalty", 0.0);
    answer(c, json_pack("{s:{s:I, s:o}, s:I, s:s, s:s, s:s, s:o, s:o}", "default_generation_settings", "n_ctx",
                        (json_int_t)s->n_ctx, "params", defaults, "total_slots", (json_int_t)s->o->parallel,
                        "model_alias", s->name, "build_info", pleat_version(), "kv", s->served[0].kv, "bos_token",
                        token_or_null(s, info->bos), "eos_token", token_or_null(s, info->eos)));
}

static void get_openapi(server *s, connection *c) {
    (void)s;
    connection_answer(c, 200, "application/json", embedded_openapi_json, embedded_openapi_json_bytes);
}

static void get_page(server *s, connection *c) {
    (void)s;
    connection_answer(c, 200, "text/html; charset=utf-8", embedded_page_html, embedded_page_html_bytes);
}

/* ---- text and tokens ------------------------------------------------------------------------------------------------------ */

static json_t *ids_json(const pleat_token *ids, uint32_t n) {
    json_t *array = json_array();
    for (uint32_t i = 0; i < n; i++) json_array_append_new(array, json_integer(ids[i]));
    return array;
}

static int read_tokenize(const server *s, json_t *body, pleat_token **ids, uint32_t *n, refusal *why) {
    json_t *messages = json_object_get(body, "messages"), *text = json_object_get(body, "prompt");
    if (!text) text = json_object_get(body, "content");
    if (messages && !json_is_null(messages)) {
        const chat_ask ask = {.messages = messages,
                              .tools = json_object_get(body, "tools"),
                              .is_unprompted = json_is_false(json_object_get(body, "add_generation_prompt"))};
        return params_check_messages(messages, why) != 0 ? -1 : job_chat_tokens(s, &ask, ids, n, why);
    }
    if (!json_is_string(text)) return params_refuse(why, 400, "prompt", "prompt is a string, or messages a list");
    const int is_plain = json_is_false(json_object_get(body, "add_special_tokens"));
    const uint32_t flags = (is_plain ? 0 : PLEAT_TOKENIZE_ADD_BOS) | (s->o->special ? PLEAT_TOKENIZE_SPECIAL : 0);
    return job_tokens(s, json_string_value(text), json_string_length(text), flags, ids, n, why);
}

static void post_tokenize(server *s, connection *c, json_t *body, const key_terms *terms) {
    (void)terms;
    pleat_token *ids = NULL;
    uint32_t n = 0;
    refusal why = {.status = 400};
    if (read_tokenize(s, body, &ids, &n, &why) == 0)
        answer(c, json_pack("{s:o, s:I, s:I}", "tokens", ids_json(ids, n), "count", (json_int_t)n, "max_model_len",
                            (json_int_t)s->n_ctx));
    else
        reply_refuse(c, why.status, why.field, why.text);
    free(ids);
    json_decref(body);
}

static void post_detokenize(server *s, connection *c, json_t *body, const key_terms *terms) {
    (void)terms;
    pleat_token *ids = NULL;
    uint32_t n = 0;
    size_t n_text = 0;
    refusal why = {.status = 400};
    json_t *tokens = json_object_get(body, "tokens");
    if (params_ids(tokens, &ids, &n, &why) == 0 && job_check_ids(s, ids, n, &why) == 0) {
        char *text = job_text(s, ids, n, &n_text);
        answer(c, json_pack("{s:o, s:o}", "prompt", json_stringn(text, n_text), "content", json_stringn(text, n_text)));
        free(text);
    } else {
        reply_refuse(c, why.status, "tokens", why.text);
    }
    free(ids);
    json_decref(body);
}

static void post_chat(server *s, connection *c, json_t *body, const key_terms *terms) {
    resume_chat(s, c, body, terms);
}

static void post_completion(server *s, connection *c, json_t *body, const key_terms *terms) {
    job_start(s, c, body, 0, terms);
}

/* ---- which is it? ---------------------------------------------------------------------------------------------------------- */

static const route routes[] = {
    {"GET", "/health", get_health, NULL},
    {"GET", "/version", get_version, NULL},
    {"GET", "/metrics", get_metrics, NULL},
    {"GET", "/tokenizer_info", get_tokenizer_info, NULL},
    {"GET", "/slots", get_slots, NULL},
    {"GET", "/props", get_props, NULL},
    {"GET", "/openapi.json", get_openapi, NULL},
    {"GET", "/", get_page, NULL},
    {"GET", "/v1/models", get_models, NULL},
    {"POST", "/v1/chat/completions", NULL, post_chat},
    {"POST", "/v1/completions", NULL, post_completion},
    {"POST", "/tokenize", NULL, post_tokenize},
    {"POST", "/detokenize", NULL, post_detokenize},
    {"GET", "/admin/prefixes", admin_list, NULL},
    {"POST", "/admin/prefixes", NULL, admin_act},
};

/* HEAD asks what GET does; the connection leaves the body away. */
static const route *find(const http_head *head, const route **same_path) {
    const char *method = strcmp(head->method, "HEAD") == 0 ? "GET" : head->method;
    *same_path = NULL;
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (strcmp(routes[i].path, head->path) != 0) continue;
        *same_path = &routes[i];
        if (strcmp(routes[i].method, method) == 0) return &routes[i];
    }
    return NULL;
}

/* Of the path of a route. */
static const char *methods_of(const route *of) {
    int gets = 0, posts = 0;
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (strcmp(routes[i].path, of->path) != 0) continue;
        gets |= routes[i].get != NULL;
        posts |= routes[i].post != NULL;
    }
    return gets && posts ? "GET, HEAD, POST" : gets ? "GET, HEAD" : "POST";
}

/* Health is no secret, and the page asks for the key itself; but nobody sends bodies without one. */
static int has_key(const server *s, const http_head *head) {
    const int is_open = strcmp(head->path, "/health") == 0 || strcmp(head->path, "/") == 0;
    if (!s->keys.keys || (is_open && head->content_length == 0)) return 1;
    return keys_find(&s->keys, head->key) != NULL;
}

/* What an administrator alone may ask. */
static int may_ask(const server *s, const http_head *head) {
    if (strncmp(head->path, "/admin/", 7) != 0) return 1;
    const key_terms *terms = s->keys.keys ? keys_find(&s->keys, head->key) : NULL;
    return terms && terms->is_admin;
}

int route_admits(const server *s, connection *c, const http_head *head) {
    const route *same_path;
    char text[128];
    if (!has_key(s, head)) {
        reply_refuse(c, 401, "", "a key is asked for: Authorization: Bearer KEY");
        return 0;
    }
    if (!may_ask(s, head)) {
        reply_refuse(c, 403, "", "this is for a key behind which admin=on stands in the file of --api-key-file");
        return 0;
    }
    if (find(head, &same_path)) return 1;
    const char *methods = same_path ? methods_of(same_path) : "";
    snprintf(text, sizeof text,
             same_path ? "%.60s is asked by %s" : "there is no %.60s here; /openapi.json lists what there is",
             head->path, methods);
    connection_set_allow(c, methods);
    reply_refuse(c, same_path ? 405 : 404, "", text);
    return 0;
}

static void post(server *s, connection *c, const route *r, const char *key, const char *body, size_t n_body) {
    json_error_t error;
    if (params_have_many_lists(body, n_body)) {
        reply_refuse(c, 400, "", "the body has more than 65536 of { and [");
        return;
    }
    json_t *object = json_loadb(body, n_body, JSON_REJECT_DUPLICATES, &error);
    if (object) {
        r->post(s, c, object, s->keys.keys ? keys_find(&s->keys, key) : NULL);
        return;
    }
    char text[256];
    if (json_error_code(&error) == json_error_null_character)
        snprintf(text, sizeof text, "the body has U+0000 before byte %d, which no text has here", error.position);
    else
        snprintf(text, sizeof text, "the body is no JSON: %.120s at byte %d", error.text, error.position);
    reply_refuse(c, 400, "", text);
}

void route_request(server *s, connection *c, const http_head *head, const char *body, size_t n_body) {
    const route *same_path, *r = find(head, &same_path);
    if (r->get)
        r->get(s, c);
    else
        post(s, c, r, head->key, body, n_body);
}
