/* SPDX-License-Identifier: MIT
 *
 * terminal.h: what the command writes otherwise where a terminal reads it: styles of text, and how wide it may be.
 *
 *     styles    on a terminal, unless NO_COLOR is set and not empty, or TERM is dumb or not set; else text as it is
 *     lines     that are drawn over again: on a terminal, unless TERM is dumb or not set
 *     columns   COLUMNS where it is set, for stdout and for terminals; else as many as the terminal says it has
 */
#ifndef PLEAT_CLI_TERMINAL_H
#define PLEAT_CLI_TERMINAL_H

#include <stdint.h>
#include <stdio.h>

typedef enum terminal_style {
    STYLE_DIM,     /* what is not the result: the prompt before the text */
    STYLE_HEADING, /* of a table's columns, of groups of options */
    STYLE_ERROR,   /* in front of a message that ends the work */
    STYLE_NOTE,    /* in front of one that does not */
} terminal_style;

/* Whether styles show on f. */
int terminal_has_styles(FILE *f);

/* What begins a style on f, and what ends it: "" where styles do not show. */
const char *terminal_begin(FILE *f, terminal_style style);
const char *terminal_end(FILE *f);

/* Whether a line on f can be drawn over. */
int terminal_can_redraw(FILE *f);

/* Print what a model wrote, n bytes of whole characters.  A file gets it as it is.  On a terminal control characters but
 * line feed and tab show as \x1b, so that none of them moves the cursor or changes the terminal's state. */
void terminal_put_text(FILE *f, const char *text, size_t n);

/* Columns of what is printed to f; UINT32_MAX: no limit. */
uint32_t terminal_columns(FILE *f);

/* Columns that the first n bytes of a text take: none for marks that join what is before them, two for wide characters.
 * What is not UTF-8 takes one a byte. */
uint32_t terminal_width(const char *text, size_t n);

#endif
