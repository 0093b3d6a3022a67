/* SPDX-License-Identifier: MIT
 *
 * conversation.c: see conversation.h.
 */
#include "conversation.h"

#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"

static const char *const roles[] = {"system", "user", "assistant"};
enum { N_ROLES = 3 };

static int is_role(const pleat_chat_message *m, const char *role) { return strcmp(m->role, role) == 0; }

static int has_system(const conversation *c) { return c->n && is_role(&c->messages[0], "system"); }

static void reserve(conversation *c) {
    if (c->n < c->cap) return;
    c->cap = c->cap ? 2 * c->cap : 16;
    pleat_chat_message *grown = cli_alloc(c->cap, sizeof *grown);
    if (c->n) memcpy(grown, c->messages, c->n * sizeof *grown);
    free(c->messages);
    c->messages = grown;
}

static void drop_content(pleat_chat_message *m) {
    free((char *)m->content);
    m->content = NULL;
}

void conversation_add(conversation *c, const char *role, const char *content, size_t n_bytes) {
    reserve(c);
    c->messages[c->n++] = (pleat_chat_message){role, cli_copy(content, n_bytes)};
}

const char *conversation_system(const conversation *c) { return has_system(c) ? c->messages[0].content : NULL; }

void conversation_set_system(conversation *c, const char *content) {
    char *copy = content ? cli_copy(content, strlen(content)) : NULL; /* it may be the one that goes */
    if (has_system(c)) {
        drop_content(&c->messages[0]);
        memmove(c->messages, c->messages + 1, --c->n * sizeof *c->messages);
    }
    if (!copy) return;
    reserve(c);
    if (c->n) memmove(c->messages + 1, c->messages, c->n * sizeof *c->messages);
    c->messages[0] = (pleat_chat_message){"system", copy};
    c->n++;
}

uint32_t conversation_turns(const conversation *c) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n; i++) n += is_role(&c->messages[i], "user") ? 1 : 0;
    return n;
}

int conversation_is_asked(const conversation *c) { return c->n && is_role(&c->messages[c->n - 1], "user"); }

void conversation_pop(conversation *c) { drop_content(&c->messages[--c->n]); }

int conversation_undo(conversation *c) {
    if (conversation_turns(c) == 0) return 0;
    while (!conversation_is_asked(c)) conversation_pop(c);
    conversation_pop(c);
    return 1;
}

void conversation_clear(conversation *c) {
    const uint32_t n_kept = has_system(c) ? 1 : 0;
    while (c->n > n_kept) conversation_pop(c);
}

void conversation_release(conversation *c) {
    while (c->n) conversation_pop(c);
    free(c->messages);
    *c = (conversation){0};
}

/* ---- files ------------------------------------------------------------------------------------- */

json_t *conversation_json(const conversation *c) {
    json_t *messages = json_array();
    for (uint32_t i = 0; i < c->n; i++)
        json_array_append_new(messages,
                              json_pack("{s:s, s:s}", "role", c->messages[i].role, "content", c->messages[i].content));
    return json_pack("{s:o}", "messages", messages);
}

/* One message of a file; 0 after saying why not.  Messages count from 1 for readers. */
static int parse_message(conversation *c, const json_t *m, char why[CONVERSATION_WHY_CAP]) {
    const char *role = json_string_value(json_object_get(m, "role"));
    const json_t *content = json_object_get(m, "content");
    uint32_t i = 0;
    while (role && i < N_ROLES && strcmp(role, roles[i]) != 0) i++;
    if (!role || i == N_ROLES) {
        snprintf(why, CONVERSATION_WHY_CAP, "message %u: its role is none of system, user, assistant", c->n + 1);
        return 0;
    }
    if (!json_is_string(content)) {
        snprintf(why, CONVERSATION_WHY_CAP, "message %u: its content is no text", c->n + 1);
        return 0;
    }
    if (i == 0 && c->n) {
        snprintf(why, CONVERSATION_WHY_CAP, "message %u: a system message stands first or nowhere", c->n + 1);
        return 0;
    }
    conversation_add(c, roles[i], json_string_value(content), json_string_length(content));
    return 1;
}

int conversation_parse(conversation *c, const char *text, size_t n_bytes, char why[CONVERSATION_WHY_CAP]) {
    json_error_t error;
    json_t *root = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        snprintf(why, CONVERSATION_WHY_CAP, "it is no JSON: line %d: %.100s", error.line, error.text);
        return 0;
    }
    const json_t *messages = json_is_array(root) ? root : json_object_get(root, "messages"), *m;
    size_t i;
    int is_well = json_is_array(messages);
    if (!is_well) snprintf(why, CONVERSATION_WHY_CAP, "there is no array \"messages\"");
    json_array_foreach(messages, i, m) {
        if (is_well) is_well = parse_message(c, m, why);
    }
    json_decref(root);
    if (!is_well) conversation_release(c);
    return is_well;
}
