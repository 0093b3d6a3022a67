/* SPDX-License-Identifier: MIT
 *
 * resume.c: see resume.h.
 */
#include "resume.h"

#include <stdlib.h>

#include "cli/lib/common.h"
#include "job.h"
#include "reply.h"

#define FIELD "previous_response_id"

/* One that is looked for. */
typedef struct sought {
    conversation_search search; /* first */
    connection_work work;
    server *s;
    connection *c;
    json_t *body;
    const key_terms *terms;
} sought;

static void refuse(connection *c, json_t *body, const refusal *why) {
    json_decref(body);
    reply_refuse(c, why->status, why->field, why->text);
}

static int absent(refusal *why) {
    return params_refuse(
        why, 404, FIELD,
        "no conversation with this id is kept for this key and cache_salt, or not any more: \"store\": "
        "true keeps one.  Without the field, all messages may be sent");
}

/* The messages of the text and then the body's own, in the body.  0, or -1 with *why. */
static int join(const server *s, json_t *body, const char *text, size_t n, refusal *why) {
    json_t *own = json_object_get(body, "messages");
    if (params_check_messages(own, why) != 0) return -1;
    if (n > s->o->body_bytes)
        return params_refuse(why, 413, FIELD, "the conversation has %zu bytes, more than --body-bytes", n);
    if (params_have_many_lists(text, n))
        return params_refuse(why, 413, FIELD, "the conversation has more than %d of { and [", PARAMS_LISTS_MAX);
    json_t *all = json_loadb(text, n, 0, NULL);
    if (!json_is_array(all)) {
        json_decref(all);
        return absent(why);
    }
    json_array_extend(all, own);
    json_object_set_new(body, "messages", all);
    return 0;
}

/* text NULL: there is none. */
static void go_on(server *s, connection *c, json_t *body, const key_terms *terms, const char *text, size_t n) {
    refusal why = {.status = 400};
    if ((text ? join(s, body, text, n, &why) : absent(&why)) == 0)
        job_start(s, c, body, 1, terms);
    else
        refuse(c, body, &why);
}

static void found(conversation_search *search, const char *text, size_t n) {
    const sought one = *(sought *)search;
    free(search);
    connection_set_work(one.c, NULL);
    go_on(one.s, one.c, one.body, one.terms, text, n);
}

/* Its client has gone. */
static void leave(connection_work *work) {
    sought *one = (sought *)((char *)work - offsetof(sought, work));
    conversations_leave(one->s->conversations, &one->search);
    json_decref(one->body);
    free(one);
}

void resume_chat(server *s, connection *c, json_t *body, const key_terms *terms) {
    json_t *previous = json_object_get(body, FIELD);
    const char *tenant = terms ? s->keys.tenants[terms->tenant].name : "", *text = NULL;
    char salt[JOB_SALT_CAP];
    size_t n = 0;
    refusal why = {.status = 400};
    if (!json_is_string(previous)) { /* params.c says what else it may be */
        job_start(s, c, body, 1, terms);
        return;
    }
    job_salt(tenant, json_string_value(json_object_get(body, "cache_salt")), salt, sizeof salt);
    sought *one = cli_alloc(1, sizeof *one);
    *one = (sought){{NULL, NULL, found}, {leave}, s, c, body, terms};
    switch (conversations_find(s->conversations, salt, json_string_value(previous), &one->search, &text, &n)) {
        case CONVERSATION_SOUGHT: connection_set_work(c, &one->work); return;
        case CONVERSATION_BUSY:
            params_refuse(&why, 503, FIELD, "the store does not say now what it has");
            refuse(c, body, &why);
            break;
        case CONVERSATION_HERE:
        case CONVERSATION_ABSENT: go_on(s, c, body, terms, text, n);
    }
    free(one);
}
