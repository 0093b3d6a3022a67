/* SPDX-License-Identifier: MIT
 *
 * admin.c: see admin.h.
 */
#include "admin.h"

#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"
#include "cli/lib/utf8.h"
#include "job.h"
#include "reply.h"

enum { SHOWN = 24 /* tokens of a prefix's beginning and end */ };

typedef enum action { LIST, PIN, UNPIN, COMPRESS, DROP, N_ACTIONS } action;
static const char *const action_names[N_ACTIONS] = {"list", "pin", "unpin", "compress", "drop"};

/* A prefix as it was between two steps. */
typedef struct shown {
    pleat_kept_prefix prefix;
    uint32_t n_begin, n_end;
    pleat_token begin[SHOWN], end[SHOWN];
} shown;

typedef struct ask {
    driver_ask ask;       /* first */
    connection_work work; /* its client's */
    server *s;
    connection *c; /* NULL: the client has gone */
    uint32_t at;   /* the spec that is asked */
    action action;
    uint64_t id;         /* of the serving; 0: the longest prefix of tokens */
    pleat_token *tokens; /* [n_tokens] */
    uint32_t n_tokens;
    char salt[JOB_SALT_CAP];
    float ah, al; /* al < 0: the prefix's own */
    pleat_status status;
    uint32_t n_dropped;
    shown *list; /* [n] */
    uint32_t n;
    json_t *said; /* LIST: the prefixes of the specs before this one */
} ask;

static void release(ask *a) {
    json_decref(a->said);
    free(a->tokens);
    free(a->list);
    free(a);
}

static void leave(connection_work *work) { ((ask *)((char *)work - offsetof(ask, work)))->c = NULL; }

/* ---- on the driver's thread ---------------------------------------------------------------------------------------------- */

static void show(const pleat_serving *serving, shown *one, pleat_token *room, uint32_t cap) {
    uint32_t n;
    if (pleat_serving_prefix_tokens(serving, one->prefix.id, room, cap, &n) != PLEAT_OK) return;
    one->n_begin = n < SHOWN ? n : SHOWN;
    one->n_end = n - one->n_begin < SHOWN ? n - one->n_begin : SHOWN;
    memcpy(one->begin, room, one->n_begin * sizeof *room);
    memcpy(one->end, room + n - one->n_end, one->n_end * sizeof *room);
}

/* The prefixes that there are, or the one of a->id. */
static void list(ask *a, const pleat_serving *serving) {
    const uint32_t n = pleat_serving_prefixes(serving, NULL, 0), cap = a->s->n_ctx;
    pleat_kept_prefix *all = cli_alloc(n + 1, sizeof *all);
    pleat_token *room = cli_alloc(cap, sizeof *room);
    pleat_serving_prefixes(serving, all, n);
    a->list = cli_alloc(n + 1, sizeof *a->list);
    a->n = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (a->action != LIST && all[i].id != a->id) continue;
        a->list[a->n].prefix = all[i];
        show(serving, &a->list[a->n++], room, cap);
    }
    free(room);
    free(all);
}

static pleat_status compress(ask *a, pleat_serving *serving) {
    list(a, serving);
    const float own = a->n > 0 ? a->list[0].prefix.al : 0;
    free(a->list);
    a->list = NULL;
    return pleat_serving_compress_prefix(serving, a->id, a->ah, a->al < 0 ? own : a->al);
}

static void run(driver_ask *asked, pleat_serving *serving) {
    ask *a = (ask *)asked;
    const uint32_t n_before = pleat_serving_prefixes(serving, NULL, 0);
    if (a->tokens) a->id = pleat_serving_find_prefix(serving, a->salt, a->tokens, a->n_tokens);
    switch (a->action) {
        case PIN:
        case UNPIN: a->status = pleat_serving_pin_prefix(serving, a->id, a->action == PIN); break;
        case COMPRESS: a->status = compress(a, serving); break;
        case DROP: a->status = pleat_serving_drop_prefix(serving, a->id); break;
        default: a->status = PLEAT_OK;
    }
    a->n_dropped = n_before - pleat_serving_prefixes(serving, NULL, 0);
    if (a->status == PLEAT_OK && a->action != DROP) list(a, serving);
}

/* ---- the answer ------------------------------------------------------------------------------------------------------------ */

static json_t *id_json(const ask *a, uint64_t id) {
    return id ? json_integer((json_int_t)(id * a->s->n_served + a->at)) : json_null();
}

static json_t *text_json(const ask *a, const pleat_token *ids, uint32_t n) {
    size_t n_text;
    char *text = job_text(a->s, ids, n, &n_text);
    json_t *json = json_stringn(text, n_text);
    free(text);
    return json ? json : json_string("");
}

/* "TENANT\nSALT", as job_salt() has made it. */
static void add_salt(json_t *object, const pleat_kept_prefix *p) {
    const char *line = p->n_salt ? memchr(p->salt, '\n', p->n_salt) : NULL;
    const size_t n_tenant = line ? (size_t)(line - p->salt) : 0;
    json_object_set_new(object, "tenant", json_stringn(line ? p->salt : "", n_tenant));
    json_object_set_new(object, "cache_salt", json_stringn(line ? line + 1 : "", line ? p->n_salt - n_tenant - 1 : 0));
}

static json_t *prefix_json(const ask *a, const shown *one) {
    const pleat_kept_prefix *p = &one->prefix;
    const served *of = &a->s->served[a->at];
    json_t *object = json_pack("{s:o, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:b}", "id", id_json(a, p->id), "parent",
                               id_json(a, p->parent), "kv", of->kv, "tokens", (json_int_t)p->n_tokens, "bytes",
                               (json_int_t)(p->n_pages * of->page_bytes), "users", (json_int_t)p->n_users, "children",
                               (json_int_t)p->n_children, "hits", (json_int_t)p->n_hits, "pinned", p->is_pinned);
    json_object_set_new(object, "begins", text_json(a, one->begin, one->n_begin));
    json_object_set_new(object, "ends", text_json(a, one->end, one->n_end));
    if (p->ah > 0) json_object_set_new(object, "ah", json_real((double)p->ah));
    if (p->ah > 0) json_object_set_new(object, "al", json_real((double)p->al));
    add_salt(object, p);
    return object;
}

/* Why the serving has not done it. */
static void refuse(const ask *a) {
    const served *of = &a->s->served[a->at];
    refusal why = {.status = 409};
    if (a->status == PLEAT_E_UNSUPPORTED)
        params_refuse(&why, 400, "kv", "%s has no thresholds to raise: prefixes of leankv are compressed", of->kv);
    else if (a->id == 0)
        params_refuse(&why, 404, "prompt",
                      "no beginning of these %u tokens is kept: a prefix is when a request has read it, and ends at a "
                      "multiple of %u",
                      a->n_tokens, of->prefix_tokens);
    else if (a->status == PLEAT_E_ARG && a->action != COMPRESS)
        params_refuse(&why, 404, "id", "no prefix of this id is kept now");
    else if (a->status == PLEAT_E_ARG)
        params_refuse(&why, 400, "ah", "no prefix of this id is kept now, or these thresholds are none above its own");
    else if (a->status == PLEAT_E_LIMIT)
        params_refuse(&why, 409, "", "pinned prefixes would have more than half of the pool");
    else if (a->status == PLEAT_E_STATE)
        params_refuse(&why, 409, "", "a text stands on it, or it or one that goes on from it is pinned");
    else
        params_refuse(&why, 503, "", "the pool has no page to work with now");
    reply_refuse(a->c, why.status, why.field, why.text);
}

static void answer(ask *a) {
    if (a->status != PLEAT_OK)
        refuse(a);
    else if (a->action == LIST)
        reply_send(a->c, 200, json_pack("{s:s, s:O}", "object", "list", "data", a->said));
    else if (a->action == DROP)
        reply_send(a->c, 200, json_pack("{s:o, s:I}", "id", id_json(a, a->id), "dropped", (json_int_t)a->n_dropped));
    else
        reply_send(a->c, 200, prefix_json(a, &a->list[0]));
}

/* The driver has run it: the next spec's turn, or the answer. */
static void answered(driver_ask *asked) {
    ask *a = (ask *)asked;
    for (uint32_t i = 0; a->c && a->action == LIST && i < a->n; i++)
        json_array_append_new(a->said, prefix_json(a, &a->list[i]));
    if (a->c && a->action == LIST && a->at + 1 < a->s->n_served) {
        free(a->list);
        a->list = NULL;
        a->at++;
        driver_put_ask(a->s->served[a->at].driver, &a->ask);
        return;
    }
    if (a->c) connection_set_work(a->c, NULL);
    if (a->c) answer(a);
    release(a);
}

/* ---- the question ---------------------------------------------------------------------------------------------------------- */

static ask *make(server *s, connection *c, action what) {
    ask *a = cli_alloc(1, sizeof *a);
    *a = (ask){.ask = {NULL, run, answered}, .work = {leave}, .s = s, .c = c, .action = what};
    return a;
}

static void put(ask *a) {
    connection_set_work(a->c, &a->work);
    driver_put_ask(a->s->served[a->at].driver, &a->ask);
}

void admin_list(server *s, connection *c) {
    ask *a = make(s, c, LIST);
    a->said = json_array();
    put(a);
}

static int read_action(ask *a, const json_t *body, refusal *why) {
    const char *name = json_string_value(json_object_get(body, "action"));
    for (int i = PIN; name && i < N_ACTIONS; i++)
        if (strcmp(action_names[i], name) == 0) a->action = (action)i;
    return a->action != LIST ? 0 : params_refuse(why, 400, "action", "action is one of pin, unpin, compress and drop");
}

static int read_threshold(const json_t *body, const char *field, float *out, refusal *why) {
    const json_t *value = json_object_get(body, field);
    const double number = json_number_value(value);
    *out = (float)number;
    return json_is_number(value) && number >= 0 && number <= 1e6
               ? 0
               : params_refuse(why, 400, field, "%s is a number in 0..1e6, and compress needs it", field);
}

/* Tokens of a prompt or of messages, in the cache of a tenant and a salt. */
static int read_beginning(ask *a, json_t *body, const key_terms *terms, refusal *why) {
    json_t *messages = json_object_get(body, "messages"), *prompt = json_object_get(body, "prompt");
    const char *tenant = json_string_value(json_object_get(body, "tenant"));
    const char *salt = json_string_value(json_object_get(body, "cache_salt"));
    const chat_ask ask_of = {.messages = messages, .tools = json_object_get(body, "tools"), .is_unprompted = 1};
    if (!tenant) tenant = a->s->keys.tenants[terms->tenant].name;
    if (strlen(tenant) >= TENANT_CAP || (salt && strlen(salt) > PARAMS_SALT_MAX))
        return params_refuse(why, 400, "cache_salt", "tenant or cache_salt is longer than any");
    job_salt(tenant, salt, a->salt, sizeof a->salt);
    if (job_find_spec(a->s, json_string_value(json_object_get(body, "kv")), &a->at, why) != 0) return -1;
    if (messages)
        return params_check_messages(messages, why) != 0
                   ? -1
                   : job_chat_tokens(a->s, &ask_of, &a->tokens, &a->n_tokens, why);
    if (!json_is_string(prompt))
        return params_refuse(why, 400, "id", "say which: id is a number, prompt a string, or messages a list");
    const uint32_t flags = PLEAT_TOKENIZE_ADD_BOS | (a->s->o->special ? PLEAT_TOKENIZE_SPECIAL : 0);
    return job_tokens(a->s, json_string_value(prompt), json_string_length(prompt), flags, &a->tokens, &a->n_tokens,
                      why);
}

static int read_ask(ask *a, json_t *body, const key_terms *terms, refusal *why) {
    const json_t *id = json_object_get(body, "id");
    const json_int_t number = json_integer_value(id);
    if (!json_is_object(body)) return params_refuse(why, 400, "", "the body is no object");
    if (read_action(a, body, why) != 0) return -1;
    a->al = -1;
    if (a->action == COMPRESS && (read_threshold(body, "ah", &a->ah, why) != 0 ||
                                  (json_object_get(body, "al") && read_threshold(body, "al", &a->al, why) != 0)))
        return -1;
    if (!id) return read_beginning(a, body, terms, why);
    if (!json_is_integer(id) || number < (json_int_t)a->s->n_served)
        return params_refuse(why, 404, "id", "no prefix of this id is kept now");
    a->id = (uint64_t)number / a->s->n_served;
    a->at = (uint32_t)((uint64_t)number % a->s->n_served);
    return 0;
}

void admin_act(server *s, connection *c, json_t *body, const key_terms *terms) {
    refusal why = {.status = 400};
    ask *a = make(s, c, LIST);
    if (read_ask(a, body, terms, &why) == 0) {
        put(a);
    } else {
        release(a);
        reply_refuse(c, why.status, why.field, why.text);
    }
    json_decref(body);
}
