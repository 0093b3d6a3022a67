/* SPDX-License-Identifier: MIT
 *
 * ast.h: a template as a tree, and the parser that makes it.
 *
 * One struct serves all nodes; what a, b, c and d are is said at each kind.  Lists (a body's statements, a call's
 * arguments, a list's items) hang together by `next`.
 */
#ifndef PLEAT_CHAT_AST_H
#define PLEAT_CHAT_AST_H

#include "chat/value.h"

typedef enum pleat__node_kind {
    /* expressions */
    PLEAT__N_CONST,   /* value */
    PLEAT__N_NAME,    /* value: the name */
    PLEAT__N_LIST,    /* a: items */
    PLEAT__N_TUPLE,   /* a: items */
    PLEAT__N_DICT,    /* a: key, value, key, value, ... */
    PLEAT__N_OR,      /* a, b */
    PLEAT__N_AND,     /* a, b */
    PLEAT__N_NOT,     /* a */
    PLEAT__N_NEG,     /* a */
    PLEAT__N_POS,     /* a */
    PLEAT__N_BINARY,  /* a op b; op: pleat__op */
    PLEAT__N_CONCAT,  /* a: the operands of ~ */
    PLEAT__N_COMPARE, /* a: the first operand; b: the others, each with the op in front of it */
    PLEAT__N_COND,    /* a if b else c; c may be NULL */
    PLEAT__N_ATTR,    /* a.value */
    PLEAT__N_ITEM,    /* a[b] */
    PLEAT__N_SLICE,   /* a[b:c:d], each of b, c, d may be NULL */
    PLEAT__N_CALL,    /* a(b): b: arguments */
    PLEAT__N_FILTER,  /* a|id(b); a is NULL at the head of a filter block; id -1: jinja2 has no such filter either */
    PLEAT__N_TEST,    /* a is id(b); id -1 likewise */
    PLEAT__N_ARG,     /* a; op: pleat__arg; value: the name of a keyword's */
    PLEAT__N_OPERAND, /* a; op: pleat__op; part of a comparison */
    /* statements */
    PLEAT__N_DATA,      /* value: text */
    PLEAT__N_PRINT,     /* a */
    PLEAT__N_SET,       /* a: target; b: expression */
    PLEAT__N_SET_BODY,  /* a: target; b: filters or NULL; c: body */
    PLEAT__N_FOR,       /* a: target; b: what is walked; c: body; d: else; test: the `if`; id: 1 where recursive */
    PLEAT__N_IF,        /* a: condition; c: body; d: the else body, or where id is 1 the elif as another if */
    PLEAT__N_WITH,      /* a: target, value, target, value, ...; c: body */
    PLEAT__N_MACRO,     /* value: the name; a: parameters; c: body; op: pleat__uses */
    PLEAT__N_CALL_BODY, /* a: the macro, whose body is the block's; b: the call */
    PLEAT__N_FILTERED,  /* b: filters; c: body */
    PLEAT__N_SCOPE,     /* c: body, with its own variables: a generation block */
    PLEAT__N_BREAK,
    PLEAT__N_CONTINUE,
    PLEAT__N_PARAM,  /* value: the name; a: the default or NULL */
    PLEAT__N_NS_ATTR /* a target: b.value, b is a name */
} pleat__node_kind;

typedef enum pleat__op {
    PLEAT__OP_ADD,
    PLEAT__OP_SUB,
    PLEAT__OP_MUL,
    PLEAT__OP_DIV,
    PLEAT__OP_FLOORDIV,
    PLEAT__OP_MOD,
    PLEAT__OP_POW,
    PLEAT__OP_EQ,
    PLEAT__OP_NE,
    PLEAT__OP_LT,
    PLEAT__OP_LE,
    PLEAT__OP_GT,
    PLEAT__OP_GE,
    PLEAT__OP_IN,
    PLEAT__OP_NOT_IN
} pleat__op;

typedef enum pleat__arg { PLEAT__ARG_PLAIN, PLEAT__ARG_KEYWORD, PLEAT__ARG_LIST, PLEAT__ARG_DICT } pleat__arg;

/* What a macro's body asks for beyond its parameters. */
enum pleat__uses { PLEAT__USES_CALLER = 1, PLEAT__USES_VARARGS = 2, PLEAT__USES_KWARGS = 4 };

typedef struct pleat__node pleat__node;
struct pleat__node {
    uint8_t kind; /* pleat__node_kind */
    uint8_t op;
    int16_t id;
    uint32_t line;
    pleat__value value;
    pleat__node *a, *b, *c, *d, *test;
    pleat__node *next;
    pleat__node *hidden;      /* of a node with a scope: names that are undefined when it begins (names.c) */
    pleat__node *hidden_else; /* of a loop: those of its else */
};

/* The template's statements.  PLEAT_E_SYNTAX, PLEAT_E_UNSUPPORTED or PLEAT_E_LIMIT with the line. */
pleat_status pleat__parse(pleat__vm *vm, const char *text, size_t n_bytes, pleat__node **out);

/* Fill in all nodes' hidden names; *hidden are the root's. */
pleat_status pleat__hide_names(pleat__vm *vm, pleat__node *body, pleat__node **hidden);

#endif
