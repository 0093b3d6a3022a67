/* SPDX-License-Identifier: MIT
 *
 * parser.h: what the two halves of the parser, statements and expressions, share.
 */
#ifndef PLEAT_CHAT_PARSER_H
#define PLEAT_CHAT_PARSER_H

#include "chat/ast.h"
#include "chat/lexer.h"

typedef struct pleat__parser {
    pleat__vm *vm;
    const pleat__token *t;      /* the next token */
    uint8_t uses;               /* pleat__uses of the names read so far */
    bool is_soft;               /* in a condition or its branches, where an unknown filter is told when it is run */
    const pleat__node *unknown; /* the first unknown filter or test that is not */
    uint32_t n_loops;           /* open ones; break and continue need one */
} pleat__parser;

/* How a list of nodes grows: `**end` is where the next one hangs. */
typedef struct pleat__chain {
    pleat__node *first, **end;
} pleat__chain;

static inline void pleat__chain_add(pleat__chain *chain, pleat__node *node) {
    if (!chain->first)
        chain->first = node;
    else
        *chain->end = node;
    chain->end = &node->next;
}

pleat_status pleat__node_new(pleat__parser *p, pleat__node_kind kind, pleat__node **out);

/* Whether the next token is this operator or name. */
static inline bool pleat__next_is(const pleat__parser *p, pleat__token_kind kind, const char *text) {
    return p->t->kind == kind && pleat__is_text(p->t->value, text);
}
bool pleat__skip(pleat__parser *p, pleat__token_kind kind, const char *text);           /* goes past it if so */
pleat_status pleat__expect(pleat__parser *p, pleat__token_kind kind, const char *text); /* text NULL: any */
pleat_status pleat__parse_error(pleat__parser *p, const char *wanted);

typedef enum pleat__tuple_rules {
    PLEAT__TUPLE_PLAIN = 0,
    PLEAT__TUPLE_NO_COND = 1,  /* `if` ends it */
    PLEAT__TUPLE_EMPTY = 2,    /* nothing is a tuple, too: in parentheses */
    PLEAT__TUPLE_TO_IN = 4,    /* `in` ends it */
    PLEAT__TUPLE_RECURSIVE = 8 /* `recursive` ends it */
} pleat__tuple_rules;

/* One expression, or several with commas between as a tuple. */
pleat_status pleat__parse_tuple(pleat__parser *p, unsigned rules, pleat__node **out);
pleat_status pleat__parse_expression(pleat__parser *p, pleat__node **out);
/* What may stand left of `=`: names, tuples of them, and where `with_ns` an attribute of a namespace. */
pleat_status pleat__parse_target(pleat__parser *p, bool with_ns, bool to_in, pleat__node **out);
/* `|name(...)|name...` behind `node`; with `is_inline` the first bar is not there. */
pleat_status pleat__parse_filters(pleat__parser *p, pleat__node *node, bool is_inline, pleat__node **out);

#endif
