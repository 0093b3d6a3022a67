/* SPDX-License-Identifier: MIT
 *
 * lexer.h: a template's text into tokens.
 *
 *     Hello {{ name }}!     data  print-begin  name  print-end  data
 *
 * Blanks around tags go as in the environment that chat templates are written for.  A line end behind a block's or
 * comment's tag is dropped (trim_blocks), and so are the blanks in front of one that begins its line (lstrip_blocks).
 * A `-` beside the braces drops all blanks on that side, a `+` keeps them.  Line ends are \n, whatever they were, and
 * the last one of the template is dropped.
 */
#ifndef PLEAT_CHAT_LEXER_H
#define PLEAT_CHAT_LEXER_H

#include "chat/value.h"

typedef enum pleat__token_kind {
    PLEAT__T_END,
    PLEAT__T_DATA, /* value: the text between tags */
    PLEAT__T_PRINT_BEGIN,
    PLEAT__T_PRINT_END,
    PLEAT__T_BLOCK_BEGIN,
    PLEAT__T_BLOCK_END,
    PLEAT__T_NAME,   /* value: a string */
    PLEAT__T_STRING, /* value: with escapes resolved */
    PLEAT__T_NUMBER, /* value: an int or a float */
    PLEAT__T_OP      /* value: the operator's text */
} pleat__token_kind;

typedef struct pleat__token {
    pleat__token_kind kind;
    uint32_t line;
    pleat__value value;
} pleat__token;

typedef struct pleat__tokens {
    pleat__token *v; /* [n]; the last one is PLEAT__T_END */
    uint32_t n, cap;
} pleat__tokens;

/* PLEAT_E_SYNTAX with its line for what is no template. */
pleat_status pleat__lex(pleat__vm *vm, const char *text, size_t n_bytes, pleat__tokens *out);

#endif
