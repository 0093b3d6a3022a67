/* SPDX-License-Identifier: MIT
 *
 * chat.h: rendering as the model needs it: messages without JSON, and names that the file knows.
 */
#ifndef PLEAT_CHAT_CHAT_H
#define PLEAT_CHAT_CHAT_H

#include "core/types.h"
#include "pleat/chat.h"

/* A variable of the template unless the caller's context has it. */
typedef struct pleat__chat_variable {
    const char *name;
    const char *value; /* [n_bytes]; what is no UTF-8 is left out */
    size_t n_bytes;
} pleat__chat_variable;

typedef struct pleat__chat_input {
    const char *json; /* [n_json]; NULL: the messages */
    size_t n_json;
    const pleat_chat_message *messages; /* [n_messages]; add_generation_prompt is true then */
    uint32_t n_messages;
    const pleat__chat_variable *variables; /* [n_variables] */
    uint32_t n_variables;
    const char *drop; /* [n_drop] what is left out at the text's beginning, if it is there; NULL: nothing */
    size_t n_drop;
} pleat__chat_input;

/* Like pleat_chat_template_render(). */
pleat_status pleat__chat_render(const pleat_chat_template *chat_template, const pleat__chat_input *input,
                                const pleat_chat_options *opt, char *text, size_t cap, size_t *n_bytes,
                                pleat_error *err);

#endif
