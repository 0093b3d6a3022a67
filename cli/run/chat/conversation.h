/* SPDX-License-Identifier: MIT
 *
 * conversation.h: what has been said, as texts, and its form in a file.
 *
 *     [system] user assistant user assistant ... user      the model answers
 *                                              `--- the last turn
 *
 * Rules
 *  1. A system message stands first, or nowhere.
 *  2. A turn is a user's message and all that stands behind it.
 *  3. Texts are valid UTF-8 without NUL.
 *
 * A file is one JSON object, {"messages": [{"role": "user", "content": "Hello"}, ...]}; an array alone is read as well.
 */
#ifndef PLEAT_CLI_CONVERSATION_H
#define PLEAT_CLI_CONVERSATION_H

#include <jansson.h>

#include "pleat/pleat.h"

typedef struct conversation {
    pleat_chat_message *messages; /* [n]; contents are owned, roles are constants */
    uint32_t n, cap;
} conversation;

/* Put a message behind the last; n_bytes of content are copied.  `role` is one of "user" and "assistant". */
void conversation_add(conversation *c, const char *role, const char *content, size_t n_bytes);

/* The text of the system message; NULL: there is none. */
const char *conversation_system(const conversation *c);

/* Put it in, or another in its place; NULL: take it out. */
void conversation_set_system(conversation *c, const char *content);

/* User's messages. */
uint32_t conversation_turns(const conversation *c);

/* Whether the last message is a user's, which waits for an answer. */
int conversation_is_asked(const conversation *c);

/* Drop the last message.  There is one. */
void conversation_pop(conversation *c);

/* Drop the last turn.  0 where there is none. */
int conversation_undo(conversation *c);

/* Drop everything but the system message. */
void conversation_clear(conversation *c);

void conversation_release(conversation *c);

/* ---- files ----------------------------------------------------------------------------------- */

/* A new reference. */
json_t *conversation_json(const conversation *c);

#define CONVERSATION_WHY_CAP 160
/* Read a file's text into *c, which is empty.  0 where it is no conversation; why[] then says what is wrong, and *c is
 * empty. */
int conversation_parse(conversation *c, const char *text, size_t n_bytes, char why[CONVERSATION_WHY_CAP]);

#endif
