/* SPDX-License-Identifier: MIT
 *
 * eval.c: statements, loops and macros.  See eval.h.
 */
#include "chat/eval.h"

#include "chat/access.h"

typedef enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE } flow;

static pleat_status exec(pleat__run *run, const pleat__node *body, flow *out);

/* ---- scopes and targets -------------------------------------------------------------------------------------------- */

static pleat_status scope_new(pleat__vm *vm, pleat__scope *parent, const pleat__node *hidden, pleat__scope **out) {
    void *p;
    PLEAT_TRY(pleat__vm_take(vm, sizeof(pleat__scope), &p));
    *out = p;
    **out = (pleat__scope){.parent = parent};
    for (; hidden; hidden = hidden->next) {
        const pleat__value none = pleat__undefined(PLEAT__LACK_NAME, hidden->value.s, hidden->value.n);
        PLEAT_TRY(pleat__dict_set(vm, &(*out)->vars, hidden->value, none));
    }
    return PLEAT_OK;
}

static pleat_status set_ns_attr(pleat__run *run, const pleat__node *target, pleat__value value) {
    pleat__value ns;
    PLEAT_TRY(pleat__lookup(run, target->b->value, &ns));
    run->vm->line = target->line;
    if (ns.kind != PLEAT__V_NAMESPACE) {
        return pleat__vm_fail(run->vm, PLEAT_E_ARG, "'%.*s' is no namespace, whose attributes alone can be set",
                              (int)target->b->value.n, target->b->value.s);
    }
    return pleat__namespace_set(run->vm, ns.dict, target->value, value);
}

static pleat_status assign(pleat__run *run, const pleat__node *target, pleat__value value) {
    if (target->kind == PLEAT__N_NAME) return pleat__dict_set(run->vm, &run->scope->vars, target->value, value);
    if (target->kind == PLEAT__N_NS_ATTR) return set_ns_attr(run, target, value);
    pleat__list *items;
    uint32_t n = 0;
    run->vm->line = target->line;
    PLEAT_TRY(pleat__value_items(run->vm, value, &items));
    for (const pleat__node *part = target->a; part; part = part->next) n++;
    if (n != items->n) {
        return pleat__vm_fail(run->vm, PLEAT_E_ARG, "%u values cannot be unpacked into %u names", items->n, n);
    }
    n = 0;
    for (const pleat__node *part = target->a; part; part = part->next) PLEAT_TRY(assign(run, part, items->items[n++]));
    return PLEAT_OK;
}

/* Run a body in a scope of its own and catch its text.  A jump out of it leaves *out alone. */
static pleat_status catch_text(pleat__run *run, const pleat__node *node, pleat__value *out, flow *jump) {
    pleat__builder text = {.max = run->out->max};
    pleat__run inner = *run;
    PLEAT_TRY(scope_new(run->vm, run->scope, node->hidden, &inner.scope));
    inner.out = &text;
    PLEAT_TRY(exec(&inner, node->c, jump));
    if (*jump == FLOW_NEXT) *out = pleat__built(&text);
    return PLEAT_OK;
}

/* ---- loops ------------------------------------------------------------------------------------------------------- */

/* The items for which the loop's `if` holds. */
static pleat_status select_items(pleat__run *run, const pleat__node *node, pleat__list *all, pleat__list **out) {
    pleat__value made;
    PLEAT_TRY(pleat__list_new(run->vm, PLEAT__V_LIST, 0, &made));
    for (uint32_t i = 0; i < all->n; i++) {
        pleat__run inner = *run;
        pleat__value holds;
        PLEAT_TRY(pleat__vm_charge(run->vm, 1));
        PLEAT_TRY(scope_new(run->vm, run->scope, NULL, &inner.scope));
        PLEAT_TRY(assign(&inner, node->a, all->items[i]));
        PLEAT_TRY(pleat__eval(&inner, node->test, &holds));
        if (pleat__value_truth(holds)) PLEAT_TRY(pleat__list_add(run->vm, made.list, all->items[i]));
    }
    *out = made.list;
    return PLEAT_OK;
}

static pleat_status pass(pleat__run *run, const pleat__node *node, pleat__loop *loop, flow *jump) {
    pleat__run inner = *run;
    PLEAT_TRY(pleat__vm_charge(run->vm, 1));
    PLEAT_TRY(scope_new(run->vm, run->scope, node->hidden, &inner.scope));
    const pleat__value value = {.kind = PLEAT__V_LOOP, .loop = loop};
    PLEAT_TRY(pleat__dict_set(run->vm, &inner.scope->vars, pleat__value_text("loop"), value));
    PLEAT_TRY(assign(&inner, node->a, loop->items->items[loop->index0]));
    return exec(&inner, node->c, jump);
}

/* As jinja2 has it, `else` follows unless one pass was run to its end: without break or continue. */
static pleat_status run_loop(pleat__run *run, const pleat__node *node, pleat__value over, uint32_t depth0) {
    pleat__list *items;
    run->vm->line = node->line;
    PLEAT_TRY(pleat__value_items(run->vm, over, &items));
    if (node->test) PLEAT_TRY(select_items(run, node, items, &items));
    void *p;
    PLEAT_TRY(pleat__vm_take(run->vm, sizeof(pleat__loop), &p));
    pleat__loop *loop = p;
    *loop = (pleat__loop){.node = node, .scope = run->scope, .items = items, .depth0 = depth0, .seen = PLEAT__NONE};
    bool is_done = false;
    const uint32_t n = items->n;
    for (; loop->index0 < n; loop->index0++) {
        flow jump = FLOW_NEXT;
        PLEAT_TRY(pass(run, node, loop, &jump));
        if (jump == FLOW_NEXT) is_done = true;
        if (jump == FLOW_BREAK) break;
    }
    if (is_done || !node->d) return PLEAT_OK;
    pleat__run inner = *run;
    flow jump = FLOW_NEXT;
    PLEAT_TRY(scope_new(run->vm, run->scope, node->hidden_else, &inner.scope));
    return exec(&inner, node->d, &jump);
}

static pleat_status exec_for(pleat__run *run, const pleat__node *node) {
    pleat__value over;
    PLEAT_TRY(pleat__eval(run, node->b, &over));
    return run_loop(run, node, over, 0);
}

pleat_status pleat__call_loop(pleat__run *run, pleat__loop *loop, pleat__value over, pleat__value *out) {
    if (!loop->node->id) {
        return pleat__vm_fail(run->vm, PLEAT_E_ARG, "loop() is for loops with the word 'recursive'");
    }
    pleat__builder text = {.max = run->out->max};
    pleat__run inner = *run;
    inner.out = &text;
    inner.scope = loop->scope;
    PLEAT_TRY(pleat__vm_enter(run->vm));
    PLEAT_TRY(run_loop(&inner, loop->node, over, loop->depth0 + 1));
    pleat__vm_leave(run->vm);
    *out = pleat__built(&text);
    return PLEAT_OK;
}

/* ---- macros ------------------------------------------------------------------------------------------------------ */

static pleat_status macro_new(pleat__run *run, const pleat__node *node, pleat__value *out) {
    void *p;
    PLEAT_TRY(pleat__vm_take(run->vm, sizeof(pleat__macro), &p));
    *out = (pleat__value){.kind = PLEAT__V_MACRO, .macro = p};
    *out->macro = (pleat__macro){.node = node, .scope = run->scope};
    return PLEAT_OK;
}

static bool is_parameter(const pleat__node *macro, pleat__value name) {
    for (const pleat__node *param = macro->a; param; param = param->next) {
        if (param->value.n == name.n && memcmp(param->value.s, name.s, name.n) == 0) return true;
    }
    return false;
}

/* Parameters that the call has values for; *n_plain plain arguments are taken. */
static pleat_status take_arguments(pleat__run *inner, const pleat__node *macro, const pleat__args *args,
                                   uint32_t *n_plain) {
    pleat__vm *vm = inner->vm;
    *n_plain = 0;
    for (const pleat__node *param = macro->a; param; param = param->next) {
        const pleat__value *named = pleat__dict_get(args->named, param->value.s, param->value.n);
        if (*n_plain < args->plain->n) {
            if (named) {
                return pleat__vm_fail(vm, PLEAT_E_ARG, "a macro was called with '%.*s' twice", (int)param->value.n,
                                      param->value.s);
            }
            PLEAT_TRY(pleat__dict_set(vm, &inner->scope->vars, param->value, args->plain->items[(*n_plain)++]));
        } else if (named) {
            PLEAT_TRY(pleat__dict_set(vm, &inner->scope->vars, param->value, *named));
        }
    }
    return PLEAT_OK;
}

static pleat_status take_defaults(pleat__run *inner, const pleat__node *macro) {
    pleat__vm *vm = inner->vm;
    for (const pleat__node *param = macro->a; param; param = param->next) {
        pleat__value value;
        if (pleat__dict_get(&inner->scope->vars, param->value.s, param->value.n)) continue;
        if (param->a) {
            PLEAT_TRY(pleat__eval(inner, param->a, &value));
        } else {
            pleat__builder why = {0};
            PLEAT_TRY(pleat__put_text(vm, &why, "a macro's parameter '"));
            PLEAT_TRY(pleat__put(vm, &why, param->value.s, param->value.n));
            PLEAT_TRY(pleat__put_text(vm, &why, "' was not handed over"));
            value = pleat__undefined(PLEAT__LACK_SAID, why.p, why.n);
        }
        PLEAT_TRY(pleat__dict_set(vm, &inner->scope->vars, param->value, value));
    }
    return PLEAT_OK;
}

/* Keyword arguments that are no parameter, the caller of a call block among them. */
static pleat_status take_keywords(pleat__run *inner, const pleat__node *macro, const pleat__args *args) {
    pleat__vm *vm = inner->vm;
    static const char no_caller[] = "no call block calls this macro, so it has no caller";
    const bool wants_caller = macro->op & PLEAT__USES_CALLER && !is_parameter(macro, pleat__value_text("caller"));
    pleat__value rest, caller = pleat__undefined(PLEAT__LACK_SAID, no_caller, sizeof no_caller - 1);
    PLEAT_TRY(pleat__dict_new(vm, &rest));
    uint32_t n_params = 0;
    for (const pleat__node *param = macro->a; param; param = param->next) n_params++;
    for (uint32_t i = 0; i < args->named->n; i++) {
        const pleat__pair *pair = &args->named->pairs[i];
        PLEAT_TRY(pleat__vm_charge(vm, n_params / 8 + 1));
        if (is_parameter(macro, pair->key)) continue;
        if (wants_caller && pleat__is_text(pair->key, "caller"))
            caller = pair->value;
        else if (macro->op & PLEAT__USES_KWARGS)
            PLEAT_TRY(pleat__dict_set(vm, rest.dict, pair->key, pair->value));
        else
            return pleat__vm_fail(vm, PLEAT_E_ARG, "the macro '%.*s' has no parameter '%.*s'", (int)macro->value.n,
                                  macro->value.s, (int)pair->key.n, pair->key.s);
    }
    if (wants_caller) PLEAT_TRY(pleat__dict_set(vm, &inner->scope->vars, pleat__value_text("caller"), caller));
    if (!(macro->op & PLEAT__USES_KWARGS)) return PLEAT_OK;
    return pleat__dict_set(vm, &inner->scope->vars, pleat__value_text("kwargs"), rest);
}

/* Plain arguments behind the last parameter. */
static pleat_status take_rest(pleat__run *inner, const pleat__node *macro, const pleat__args *args, uint32_t n_plain) {
    pleat__vm *vm = inner->vm;
    if (!(macro->op & PLEAT__USES_VARARGS)) {
        if (n_plain == args->plain->n) return PLEAT_OK;
        return pleat__vm_fail(vm, PLEAT_E_ARG, "the macro '%.*s' takes not more than %u arguments", (int)macro->value.n,
                              macro->value.s, n_plain);
    }
    pleat__value rest;
    PLEAT_TRY(pleat__list_new(vm, PLEAT__V_TUPLE, 0, &rest));
    for (uint32_t i = n_plain; i < args->plain->n; i++) {
        PLEAT_TRY(pleat__list_add(vm, rest.list, args->plain->items[i]));
    }
    return pleat__dict_set(vm, &inner->scope->vars, pleat__value_text("varargs"), rest);
}

pleat_status pleat__call_macro(pleat__run *run, pleat__macro *macro, const pleat__args *args, pleat__value *out) {
    pleat__builder text = {.max = run->out->max};
    pleat__run inner = *run;
    uint32_t n_plain;
    flow jump = FLOW_NEXT;
    inner.out = &text;
    PLEAT_TRY(pleat__vm_enter(run->vm));
    PLEAT_TRY(scope_new(run->vm, macro->scope, macro->node->hidden, &inner.scope));
    PLEAT_TRY(take_arguments(&inner, macro->node, args, &n_plain));
    PLEAT_TRY(take_rest(&inner, macro->node, args, n_plain));
    PLEAT_TRY(take_keywords(&inner, macro->node, args));
    PLEAT_TRY(take_defaults(&inner, macro->node));
    PLEAT_TRY(exec(&inner, macro->node->c, &jump));
    pleat__vm_leave(run->vm);
    *out = pleat__built(&text);
    return PLEAT_OK;
}

/* `{% call %}`: the call, with the block as the keyword argument `caller`. */
static pleat_status exec_call_body(pleat__run *run, const pleat__node *node) {
    pleat__args args;
    pleat__value callee, caller, text;
    PLEAT_TRY(pleat__eval(run, node->b->a, &callee));
    PLEAT_TRY(pleat__eval_args(run, node->b->b, &args));
    PLEAT_TRY(macro_new(run, node->a, &caller));
    PLEAT_TRY(pleat__dict_set(run->vm, args.named, pleat__value_text("caller"), caller));
    run->vm->line = node->line;
    PLEAT_TRY(pleat__call(run, callee, &args, &text));
    return pleat__put_str(run->vm, run->out, text);
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

static pleat_status exec_if(pleat__run *run, const pleat__node *node, flow *jump) {
    for (;; node = node->d) {
        pleat__value holds;
        PLEAT_TRY(pleat__eval(run, node->a, &holds));
        if (pleat__value_truth(holds)) return exec(run, node->c, jump);
        if (!node->id) return exec(run, node->d, jump);
    }
}

static pleat_status exec_print(pleat__run *run, const pleat__node *node) {
    pleat__value value;
    PLEAT_TRY(pleat__eval(run, node->a, &value));
    run->vm->line = node->line;
    return pleat__put_str(run->vm, run->out, value);
}

static pleat_status exec_set_body(pleat__run *run, const pleat__node *node, flow *jump) {
    pleat__value value = PLEAT__NONE;
    PLEAT_TRY(catch_text(run, node, &value, jump));
    if (*jump != FLOW_NEXT) return PLEAT_OK;
    PLEAT_TRY(pleat__eval_filters(run, node->b, value, &value));
    return assign(run, node->a, value);
}

static pleat_status exec_filtered(pleat__run *run, const pleat__node *node, flow *jump) {
    pleat__value value = PLEAT__NONE;
    PLEAT_TRY(catch_text(run, node, &value, jump));
    if (*jump != FLOW_NEXT) return PLEAT_OK;
    PLEAT_TRY(pleat__eval_filters(run, node->b, value, &value));
    return pleat__put_str(run->vm, run->out, value);
}

/* All values are computed before any name is set. */
static pleat_status exec_with(pleat__run *run, const pleat__node *node, flow *jump) {
    pleat__run inner = *run;
    PLEAT_TRY(scope_new(run->vm, run->scope, node->hidden, &inner.scope));
    for (const pleat__node *target = node->a; target; target = target->next->next) {
        pleat__value value;
        PLEAT_TRY(pleat__eval(run, target->next, &value));
        PLEAT_TRY(assign(&inner, target, value));
    }
    return exec(&inner, node->c, jump);
}

static pleat_status exec_scope(pleat__run *run, const pleat__node *node, flow *jump) {
    pleat__run inner = *run;
    PLEAT_TRY(scope_new(run->vm, run->scope, node->hidden, &inner.scope));
    return exec(&inner, node->c, jump);
}

static pleat_status exec_one(pleat__run *run, const pleat__node *node, flow *jump) {
    pleat__value value;
    switch ((pleat__node_kind)node->kind) {
        case PLEAT__N_DATA: return pleat__put(run->vm, run->out, node->value.s, node->value.n);
        case PLEAT__N_PRINT: return exec_print(run, node);
        case PLEAT__N_IF: return exec_if(run, node, jump);
        case PLEAT__N_FOR: return exec_for(run, node);
        case PLEAT__N_SET: PLEAT_TRY(pleat__eval(run, node->b, &value)); return assign(run, node->a, value);
        case PLEAT__N_SET_BODY: return exec_set_body(run, node, jump);
        case PLEAT__N_FILTERED: return exec_filtered(run, node, jump);
        case PLEAT__N_WITH: return exec_with(run, node, jump);
        case PLEAT__N_SCOPE: return exec_scope(run, node, jump);
        case PLEAT__N_MACRO:
            PLEAT_TRY(macro_new(run, node, &value));
            return pleat__dict_set(run->vm, &run->scope->vars, node->value, value);
        case PLEAT__N_CALL_BODY: return exec_call_body(run, node);
        default: break;
    }
    *jump = node->kind == PLEAT__N_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
    return PLEAT_OK;
}

static pleat_status exec(pleat__run *run, const pleat__node *body, flow *out) {
    PLEAT_TRY(pleat__vm_enter(run->vm));
    for (const pleat__node *node = body; node && *out == FLOW_NEXT; node = node->next) {
        run->vm->line = node->line;
        PLEAT_TRY(pleat__vm_charge(run->vm, 1));
        PLEAT_TRY(exec_one(run, node, out));
    }
    pleat__vm_leave(run->vm);
    return PLEAT_OK;
}

pleat_status pleat__render(pleat__run *run, const pleat__node *body, const pleat__node *hidden) {
    flow jump = FLOW_NEXT;
    PLEAT_TRY(scope_new(run->vm, NULL, hidden, &run->scope));
    return exec(run, body, &jump);
}
