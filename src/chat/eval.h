/* SPDX-License-Identifier: MIT
 *
 * eval.h: a tree is run: statements write text, expressions have values.
 *
 * Variables stand in scopes.  The root, each pass of a loop, each call of a macro, each `with` and each body that becomes
 * a text has one; a branch of an `if` has none.  Reading goes outwards, to the context in the end and to the functions
 * that every template has.  `set` writes into the innermost scope, so what a loop sets is gone after its pass.  A macro
 * sees the scopes around its definition, not those of its caller.
 *
 *     run ── scope ──> parent ──> ... ──> root scope ──> context ──> range, namespace, ...
 */
#ifndef PLEAT_CHAT_EVAL_H
#define PLEAT_CHAT_EVAL_H

#include "chat/ast.h"
#include "chat/text.h"

typedef struct pleat__scope pleat__scope;
struct pleat__scope {
    pleat__scope *parent; /* NULL: the root */
    pleat__dict vars;
};

struct pleat__macro {
    const pleat__node *node; /* PLEAT__N_MACRO */
    pleat__scope *scope;     /* around its definition */
};

struct pleat__loop {
    const pleat__node *node; /* PLEAT__N_FOR */
    pleat__scope *scope;     /* around it */
    const pleat__list *items;
    uint32_t index0, depth0;
    pleat__value seen; /* what loop.changed() was called with last: a list, or none */
};

typedef struct pleat__run {
    pleat__vm *vm;
    const pleat__dict *context;
    pleat__scope *scope;
    pleat__builder *out; /* where statements write */
} pleat__run;

/* A call's arguments once they have values. */
typedef struct pleat__args {
    pleat__list *plain;
    pleat__dict *named;
} pleat__args;

/* Run a template's statements; what they write is appended to run->out. */
pleat_status pleat__render(pleat__run *run, const pleat__node *body, const pleat__node *hidden);

pleat_status pleat__eval(pleat__run *run, const pleat__node *node, pleat__value *out);
pleat_status pleat__eval_args(pleat__run *run, const pleat__node *first, pleat__args *out);
pleat_status pleat__lookup(const pleat__run *run, pleat__value name, pleat__value *out);
pleat_status pleat__call(pleat__run *run, pleat__value callee, const pleat__args *args, pleat__value *out);
/* `loop(items)` in a recursive loop. */
pleat_status pleat__call_loop(pleat__run *run, pleat__loop *loop, pleat__value over, pleat__value *out);
pleat_status pleat__call_macro(pleat__run *run, pleat__macro *macro, const pleat__args *args, pleat__value *out);
/* The value of a chain of filters on `input`. */
pleat_status pleat__eval_filters(pleat__run *run, const pleat__node *filter, pleat__value input, pleat__value *out);

/* ---- arguments by name ------------------------------------------------------------------------------------------- */

/* An argument that was not handed over. */
static inline bool pleat__is_missing(pleat__value v) { return v.kind == PLEAT__V_UNDEFINED && !v.s; }

/* Sort arguments into v[], one for each word of `params`; the first n_needed have to be there. */
pleat_status pleat__bind(pleat__vm *vm, const pleat__args *args, const char *who, uint32_t n_needed, const char *params,
                         pleat__value *v);

#endif
