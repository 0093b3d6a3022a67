/* SPDX-License-Identifier: MIT
 *
 * input.h: lines for a conversation, from a terminal or from what is piped in.
 *
 *     a terminal    a prompt sign in front of each line; with libedit editing, history and pastes (edit.h), without it
 *                   what the terminal itself can do
 *     a pipe        neither; the last line needs no newline
 *
 * Lines may hold any byte.  The newline is left out, and one carriage return before it.
 */
#ifndef PLEAT_CLI_INPUT_H
#define PLEAT_CLI_INPUT_H

#include <stddef.h>

typedef struct chat_input chat_input;

typedef enum input_kind {
    INPUT_LINE,
    INPUT_DROPPED,   /* Ctrl-C, while something had been typed */
    INPUT_INTERRUPT, /* Ctrl-C, at an empty line as far as is known */
    INPUT_END,       /* of what is piped in, or Ctrl-D */
    INPUT_FAILED     /* after a message */
} input_kind;

/* From standard input; prompts and what is typed show on stderr. */
chat_input *input_open(void);

int input_is_terminal(const chat_input *in);

/* Wait for a line.  After INPUT_LINE alone *line is set, n bytes with a NUL behind, and the caller frees it. */
input_kind input_read(chat_input *in, const char *prompt, char **line, size_t *n);

/* Keep a message for arrow keys to bring back, where there is a history: for as long as the input is open. */
void input_remember(chat_input *in, const char *message);

/* Set *in to NULL; *in may be NULL. */
void input_close(chat_input **in);

#endif
