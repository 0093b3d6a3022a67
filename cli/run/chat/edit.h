/* SPDX-License-Identifier: MIT
 *
 * edit.h: a line that is edited on the terminal, by libedit where the build has it (PLEAT_EDITLINE).
 *
 *     arrow keys, Ctrl-A, Ctrl-E, Ctrl-R ...    as libedit has them; ~/.editrc is heeded
 *     up and down                               messages of this process; nothing is written to a file
 *     a paste                                   is one text, its newlines too, where the terminal marks pastes
 */
#ifndef PLEAT_CLI_EDIT_H
#define PLEAT_CLI_EDIT_H

#include "input.h"

typedef struct line_editor line_editor;

/* "libedit 2.11" or "no libedit". */
const char *edit_describe(void);

/* On stdin and stderr, which are terminals.  NULL: there is none, or it knows nothing of this terminal. */
line_editor *edit_open(void);

/* As input_read(). */
input_kind edit_read(line_editor *e, const char *prompt, char **line, size_t *n);

void edit_remember(line_editor *e, const char *message);

/* NULL is fine. */
void edit_close(line_editor *e);

#endif
