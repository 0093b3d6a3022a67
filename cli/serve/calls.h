/* SPDX-License-Identifier: MIT
 *
 * calls.h: the tool calls that a model writes into its text, taken out of it.  It knows neither network nor model.
 *
 * How models write them, which the text of their chat template tells:
 *
 *     CALLS_TAGS      <tool_call>{"name": "tide", "arguments": {"day": 1}}</tool_call>    Qwen, Hermes, SmolLM; also a list
 *     CALLS_PIPES     <|tool_call|>[{"name": "tide", "arguments": {"day": 1}}]             Granite 3, Phi 4
 *     CALLS_MISTRAL   [TOOL_CALLS][{"name": "tide", "arguments": {"day": 1}}]              Mistral
 *     CALLS_ARGS      [TOOL_CALLS]tide[ARGS]{"day": 1}                                     newer ones; each may write either
 *     CALLS_LLAMA     {"name": "tide", "parameters": {"day": 1}}                           the whole text; several with ;
 *
 *     TEXT ──marker──> BODY ──its JSON is whole──> TAIL ──end marker, or the text's end──> calls, and TEXT again
 *       <────────────── no call: text like any other ──┘
 *
 * What is no call stays text, byte for byte: damaged JSON, a name twice in an object, arguments that are no object, more
 * than CALLS_MAX at once, a tool that the request has not.  Blanks around a call are none of the text's.  So all that was
 * put in comes out, in order, but for markers, blanks, and the form of calls.
 *
 * Nothing of a call is handed out before it is whole: then its arguments are valid JSON, as the model wrote them.  A byte
 * is looked at a bounded number of times: outside of strings JSON has no byte that a marker needs, so a body ends where
 * another would begin.
 */
#ifndef PLEAT_CLI_SERVE_CALLS_H
#define PLEAT_CLI_SERVE_CALLS_H

#include <jansson.h>
#include <stddef.h>

enum { CALLS_MAX = 128 /* in one body */ };

typedef enum calls_form { CALLS_NONE, CALLS_TAGS, CALLS_PIPES, CALLS_MISTRAL, CALLS_ARGS, CALLS_LLAMA } calls_form;

/* The form that a chat template speaks of.  text NULL: none. */
calls_form calls_form_of(const char *text, size_t n);

/* The text that stands before a call's JSON: "<tool_call>"; "" where nothing does. */
const char *calls_marker(calls_form form);

/* What a call's arguments are called in its JSON. */
const char *calls_arguments(calls_form form);

/* What stands in a call's text before its arguments, and behind them: for a call of this tool that is forced.  name NULL:
 * before its JSON, and behind it.  The caller frees both. */
void calls_frame(calls_form form, const char *name, char **before, char **behind);

typedef struct calls calls;

/* A reader of one answer's text; tools, of the request, outlives it. */
calls *calls_create(calls_form form, const json_t *tools);
void calls_destroy(calls **c);

/* More of the text, n bytes of UTF-8.  n 0 is fine. */
void calls_put(calls *c, const char *text, size_t n);

/* Nothing follows. */
void calls_end(calls *c);

/* What is certain by now: text, or a call, whose arguments are a JSON object. */
typedef struct calls_piece {
    const char *text; /* [n_text]; NULL: a call */
    size_t n_text;
    const char *name, *arguments;
} calls_piece;

/* The next piece, which lives until the next call of any of these functions.  0: there is none yet. */
int calls_next(calls *c, calls_piece *out);

#endif
