/* SPDX-License-Identifier: MIT
 *
 * chat.c: writes a conversation in ChatML.
 *
 *     <|im_start|>user\n ... <|im_end|>\n      for each message, and then, for the answer,
 *     <|im_start|>assistant\n
 *
 * The file's own template is a program in Jinja; it is looked at (load.c) but not run.  No system turn is made up, and
 * a message's text goes in as it is.
 */
#include <string.h>

#include "core/error.h"
#include "model/internal.h"

/* Appends while there is room, and counts on when there is none. */
typedef struct writer {
    char *text; /* [cap] */
    size_t cap;
    size_t used;
} writer;

static void put(writer *w, const char *s) {
    const size_t n = strlen(s);
    if (w->used <= w->cap && n <= w->cap - w->used && n > 0) memcpy(w->text + w->used, s, n);
    w->used += n;
}

static void put_conversation(writer *w, const pleat_chat_message *messages, uint32_t n_messages) {
    for (uint32_t i = 0; i < n_messages; i++) {
        put(w, "<|im_start|>");
        put(w, messages[i].role);
        put(w, "\n");
        put(w, messages[i].content);
        put(w, "<|im_end|>\n");
    }
    put(w, "<|im_start|>assistant\n");
}

static bool is_role(const char *role) {
    return strcmp(role, "system") == 0 || strcmp(role, "user") == 0 || strcmp(role, "assistant") == 0;
}

pleat_status pleat_model_chat(const pleat_model *model, const pleat_chat_message *messages, uint32_t n_messages,
                              char *text, size_t cap, size_t *n_bytes, pleat_error *err) {
    PLEAT_FAIL_IF(!model || !messages || n_messages == 0 || (!text && cap > 0) || !n_bytes, err, PLEAT_E_ARG,
                  PLEAT_NOWHERE, "no model, no messages or no place for the text");
    for (uint32_t i = 0; i < n_messages; i++) {
        PLEAT_FAIL_IF(!messages[i].role || !messages[i].content || !is_role(messages[i].role), err, PLEAT_E_ARG,
                      PLEAT_NOWHERE, "message %u: its role is none of system, user, assistant, or it has no text", i);
    }
    PLEAT_FAIL_IF(!model->has_chatml, err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "the model's chat form is not ChatML, the one that is supported");
    writer w = {0};
    put_conversation(&w, messages, n_messages);
    *n_bytes = w.used;
    PLEAT_FAIL_IF(w.used >= cap, err, PLEAT_E_LIMIT, PLEAT_NOWHERE, "the conversation has %zu bytes, room is for %zu",
                  w.used, cap ? cap - 1 : 0);
    w = (writer){.text = text, .cap = cap};
    put_conversation(&w, messages, n_messages);
    text[w.used] = '\0';
    return PLEAT_OK;
}
