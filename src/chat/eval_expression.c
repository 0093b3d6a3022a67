/* SPDX-License-Identifier: MIT
 *
 * eval_expression.c: expressions and calls.
 */
#include <time.h>

#include "chat/access.h"
#include "chat/eval.h"
#include "chat/filters.h"
#include "chat/methods.h"
#include "chat/operators.h"
#include "chat/tests.h"
#include "core/utf8.h"

#define RANGE_MAX 100000 /* the sandbox's: a longer range() is an error */

static const struct {
    const char *name;
    pleat__function function;
} globals[] = {{"range", PLEAT__F_RANGE},
               {"dict", PLEAT__F_DICT},
               {"namespace", PLEAT__F_NAMESPACE},
               {"raise_exception", PLEAT__F_RAISE},
               {"strftime_now", PLEAT__F_STRFTIME}};

/* ---- names and arguments ----------------------------------------------------------------------------------------- */

pleat_status pleat__lookup(const pleat__run *run, pleat__value name, pleat__value *out) {
    pleat__value *found = NULL;
    for (const pleat__scope *scope = run->scope; scope && !found; scope = scope->parent) {
        PLEAT_TRY(pleat__dict_find(run->vm, &scope->vars, name, &found));
    }
    if (!found) PLEAT_TRY(pleat__dict_find(run->vm, run->context, name, &found));
    if (found) {
        *out = *found;
        return PLEAT_OK;
    }
    for (size_t i = 0; i < sizeof globals / sizeof globals[0]; i++) {
        if (!pleat__is_text(name, globals[i].name)) continue;
        *out = (pleat__value){.kind = PLEAT__V_FUNCTION, .sub = (uint8_t)globals[i].function};
        return PLEAT_OK;
    }
    *out = pleat__undefined(PLEAT__LACK_NAME, name.s, name.n);
    return PLEAT_OK;
}

static pleat_status add_list_args(pleat__vm *vm, pleat__value value, pleat__list *plain) {
    pleat__list *items;
    PLEAT_TRY(pleat__value_items(vm, value, &items));
    for (uint32_t i = 0; i < items->n; i++) PLEAT_TRY(pleat__list_add(vm, plain, items->items[i]));
    return pleat__vm_charge(vm, items->n);
}

static pleat_status add_dict_args(pleat__vm *vm, pleat__value value, pleat__dict *named) {
    if (value.kind != PLEAT__V_DICT) return pleat__vm_fail(vm, PLEAT_E_ARG, "** wants a dict");
    for (uint32_t i = 0; i < value.dict->n; i++) {
        const pleat__pair *pair = &value.dict->pairs[i];
        if (pair->key.kind != PLEAT__V_STR)
            return pleat__vm_fail(vm, PLEAT_E_ARG, "** wants a dict with names for keys");
        PLEAT_TRY(pleat__dict_set(vm, named, pair->key, pair->value));
    }
    return pleat__vm_charge(vm, value.dict->n);
}

pleat_status pleat__eval_args(pleat__run *run, const pleat__node *first, pleat__args *out) {
    pleat__vm *vm = run->vm;
    pleat__value plain, named, value;
    PLEAT_TRY(pleat__list_new(vm, PLEAT__V_LIST, first ? 2 : 0, &plain));
    PLEAT_TRY(pleat__dict_new(vm, &named));
    for (const pleat__node *arg = first; arg; arg = arg->next) {
        PLEAT_TRY(pleat__eval(run, arg->a, &value));
        vm->line = arg->line;
        switch ((pleat__arg)arg->op) {
            case PLEAT__ARG_PLAIN: PLEAT_TRY(pleat__list_add(vm, plain.list, value)); break;
            case PLEAT__ARG_KEYWORD: PLEAT_TRY(pleat__dict_set(vm, named.dict, arg->value, value)); break;
            case PLEAT__ARG_LIST: PLEAT_TRY(add_list_args(vm, value, plain.list)); break;
            case PLEAT__ARG_DICT: PLEAT_TRY(add_dict_args(vm, value, named.dict)); break;
        }
    }
    *out = (pleat__args){plain.list, named.dict};
    return PLEAT_OK;
}

/* The place of `name` among the words of `params`, or -1. */
static int param_index(const char *params, pleat__value name) {
    int i = 0;
    for (const char *word = params; *word; i++) {
        const size_t n = strcspn(word, " ");
        if (n == name.n && memcmp(word, name.s, n) == 0) return i;
        word += n + (word[n] == ' ');
    }
    return -1;
}

pleat_status pleat__bind(pleat__vm *vm, const pleat__args *args, const char *who, uint32_t n_needed, const char *params,
                         pleat__value *v) {
    uint32_t n_params = *params ? 1 : 0;
    for (const char *p = params; *p; p++) n_params += *p == ' ';
    for (uint32_t i = 0; i < n_params; i++) v[i] = pleat__undefined(PLEAT__LACK_SAID, NULL, 0);
    if (args->plain->n > n_params) {
        return pleat__vm_fail(vm, PLEAT_E_ARG, "%s takes not more than %u arguments", who, n_params);
    }
    for (uint32_t i = 0; i < args->plain->n; i++) v[i] = args->plain->items[i];
    for (uint32_t i = 0; i < args->named->n; i++) {
        const pleat__value name = args->named->pairs[i].key;
        const int at = param_index(params, name);
        if (at < 0 || !pleat__is_missing(v[at])) {
            return pleat__vm_fail(vm, PLEAT_E_ARG, "%s has no argument '%.*s', or has it twice", who, (int)name.n,
                                  name.s);
        }
        v[at] = args->named->pairs[i].value;
    }
    for (uint32_t i = 0; i < n_needed; i++) {
        if (pleat__is_missing(v[i]))
            return pleat__vm_fail(vm, PLEAT_E_ARG, "%s wants %u arguments or more", who, n_needed);
    }
    return PLEAT_OK;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static pleat_status call_range(pleat__vm *vm, const pleat__args *args, pleat__value *out) {
    int64_t v[3] = {0, 0, 1};
    const uint32_t n = args->plain->n;
    if (n < 1 || n > 3 || args->named->n > 0) return pleat__vm_fail(vm, PLEAT_E_ARG, "range() wants 1 to 3 numbers");
    for (uint32_t i = 0; i < n; i++) {
        const pleat__value arg = args->plain->items[i];
        if (arg.kind == PLEAT__V_UNDEFINED) return pleat__undefined_fail(vm, arg);
        if (!pleat__value_is_int(arg)) return pleat__vm_fail(vm, PLEAT_E_ARG, "range() wants whole numbers");
        v[n == 1 ? 1 : i] = pleat__value_to_int(arg);
    }
    if (v[2] == 0) return pleat__vm_fail(vm, PLEAT_E_ARG, "range() with steps of 0");
    const bool is_up = v[2] > 0;
    uint64_t count = 0;
    if (is_up ? v[0] < v[1] : v[0] > v[1]) {
        const uint64_t span = is_up ? (uint64_t)v[1] - (uint64_t)v[0] : (uint64_t)v[0] - (uint64_t)v[1];
        const uint64_t step = is_up ? (uint64_t)v[2] : 0 - (uint64_t)v[2];
        count = (span - 1) / step + 1;
    }
    if (count > RANGE_MAX) return pleat__vm_fail(vm, PLEAT_E_ARG, "range() of more than %d numbers", RANGE_MAX);
    void *p;
    PLEAT_TRY(pleat__vm_take(vm, sizeof(pleat__range), &p));
    *(pleat__range *)p = (pleat__range){v[0], v[1], v[2], (uint32_t)count};
    *out = (pleat__value){.kind = PLEAT__V_RANGE, .range = p};
    return PLEAT_OK;
}

/* dict() or namespace(): a dict or pairs first, then keywords. */
static pleat_status call_dict(pleat__vm *vm, const pleat__args *args, bool is_namespace, pleat__value *out) {
    PLEAT_TRY(pleat__dict_new(vm, out));
    if (args->plain->n > 1) return pleat__vm_fail(vm, PLEAT_E_ARG, "dict() wants one argument, and keywords");
    const pleat__value from = args->plain->n ? args->plain->items[0] : PLEAT__NONE;
    if (from.kind == PLEAT__V_DICT) {
        for (uint32_t i = 0; i < from.dict->n; i++) {
            PLEAT_TRY(pleat__dict_set(vm, out->dict, from.dict->pairs[i].key, from.dict->pairs[i].value));
        }
    } else if (args->plain->n) {
        pleat__list *pairs, *pair;
        PLEAT_TRY(pleat__value_items(vm, from, &pairs));
        for (uint32_t i = 0; i < pairs->n; i++) {
            PLEAT_TRY(pleat__value_items(vm, pairs->items[i], &pair));
            if (pair->n != 2) return pleat__vm_fail(vm, PLEAT_E_ARG, "dict() wants pairs");
            PLEAT_TRY(pleat__dict_set(vm, out->dict, pair->items[0], pair->items[1]));
        }
    }
    for (uint32_t i = 0; i < args->named->n; i++) {
        PLEAT_TRY(pleat__dict_set(vm, out->dict, args->named->pairs[i].key, args->named->pairs[i].value));
    }
    if (!is_namespace) return PLEAT_OK;
    out->kind = PLEAT__V_NAMESPACE;
    for (uint32_t i = 0; i < out->dict->n; i++) PLEAT_TRY(pleat__namespace_check(vm, out->dict->pairs[i].key));
    return PLEAT_OK;
}

static pleat_status call_raise(pleat__vm *vm, const pleat__args *args) {
    pleat__value message[1], text;
    PLEAT_TRY(pleat__bind(vm, args, "raise_exception()", 1, "message", message));
    PLEAT_TRY(pleat__to_str(vm, message[0], &text));
    return pleat__vm_fail(vm, PLEAT_E_ARG, "%.*s", text.n > 200 ? 200 : (int)text.n, text.s);
}

static pleat_status call_strftime(pleat__vm *vm, const pleat__args *args, pleat__value *out) {
    pleat__value format[1];
    char text[512], form[256];
    struct tm parts;
    PLEAT_TRY(pleat__bind(vm, args, "strftime_now()", 1, "format", format));
    if (format[0].kind != PLEAT__V_STR || format[0].n >= sizeof form ||
        (format[0].n > 0 && memchr(format[0].s, 0, format[0].n))) {
        return pleat__vm_fail(vm, PLEAT_E_ARG, "strftime_now() wants a format of at most %zu bytes", sizeof form - 1);
    }
    if (format[0].n > 0) memcpy(form, format[0].s, format[0].n);
    form[format[0].n] = '\0';
    const time_t now = vm->now < 0 ? time(NULL) : (time_t)vm->now;
#ifdef _WIN32
    const bool is_told = localtime_s(&parts, &now) == 0;
#else
    const bool is_told = localtime_r(&now, &parts) != NULL;
#endif
    if (!is_told) return pleat__vm_fail(vm, PLEAT_E_RANGE, "the time cannot be told");
    const size_t n = strftime(text, sizeof text, form, &parts);
    if (pleat__utf8_prefix(text, n) < n) {
        return pleat__vm_fail(vm, PLEAT_E_UNSUPPORTED, "strftime_now(): the locale's text is not UTF-8");
    }
    pleat__builder b = {0};
    PLEAT_TRY(pleat__put(vm, &b, text, n));
    *out = pleat__built(&b);
    return PLEAT_OK;
}

static pleat_status call_cycle(pleat__vm *vm, const pleat__loop *loop, const pleat__args *args, pleat__value *out) {
    if (args->plain->n == 0 || args->named->n > 0) return pleat__vm_fail(vm, PLEAT_E_ARG, "loop.cycle() wants values");
    *out = args->plain->items[loop->index0 % args->plain->n];
    return PLEAT_OK;
}

static pleat_status call_changed(pleat__vm *vm, pleat__loop *loop, const pleat__args *args, pleat__value *out) {
    const pleat__value now = {.kind = PLEAT__V_TUPLE, .list = args->plain};
    bool same;
    if (args->named->n > 0) return pleat__vm_fail(vm, PLEAT_E_ARG, "loop.changed() wants values");
    PLEAT_TRY(pleat__value_equal(vm, loop->seen, now, &same));
    loop->seen = now;
    *out = pleat__value_bool(!same);
    return PLEAT_OK;
}

static pleat_status call_function(pleat__run *run, pleat__value callee, const pleat__args *args, pleat__value *out) {
    switch ((pleat__function)callee.sub) {
        case PLEAT__F_RANGE: return call_range(run->vm, args, out);
        case PLEAT__F_DICT: return call_dict(run->vm, args, false, out);
        case PLEAT__F_NAMESPACE: return call_dict(run->vm, args, true, out);
        case PLEAT__F_RAISE: return call_raise(run->vm, args);
        case PLEAT__F_STRFTIME: return call_strftime(run->vm, args, out);
        case PLEAT__F_LOOP_CYCLE: return call_cycle(run->vm, callee.loop, args, out);
        case PLEAT__F_LOOP_CHANGED: return call_changed(run->vm, callee.loop, args, out);
        case PLEAT__N_FUNCTIONS: break;
    }
    return PLEAT_OK;
}

pleat_status pleat__call(pleat__run *run, pleat__value callee, const pleat__args *args, pleat__value *out) {
    switch (callee.kind) {
        case PLEAT__V_UNDEFINED: return pleat__undefined_fail(run->vm, callee);
        case PLEAT__V_FUNCTION: return call_function(run, callee, args, out);
        case PLEAT__V_MACRO: return pleat__call_macro(run, callee.macro, args, out);
        case PLEAT__V_METHOD: return pleat__call_method(run->vm, callee.method, args, out);
        case PLEAT__V_LOOP: {
            pleat__value over[1];
            PLEAT_TRY(pleat__bind(run->vm, args, "loop()", 1, "iterable", over));
            return pleat__call_loop(run, callee.loop, over[0], out);
        }
        default: return pleat__vm_fail(run->vm, PLEAT_E_ARG, "a %s cannot be called", pleat__value_type(callee));
    }
}

/* ---- expressions ------------------------------------------------------------------------------------------------- */

static pleat_status eval_items(pleat__run *run, const pleat__node *node, pleat__kind kind, pleat__value *out) {
    pleat__value item;
    PLEAT_TRY(pleat__list_new(run->vm, kind, 0, out));
    for (const pleat__node *part = node->a; part; part = part->next) {
        PLEAT_TRY(pleat__eval(run, part, &item));
        PLEAT_TRY(pleat__list_add(run->vm, out->list, item));
    }
    return PLEAT_OK;
}

static pleat_status eval_dict(pleat__run *run, const pleat__node *node, pleat__value *out) {
    pleat__value key, value;
    PLEAT_TRY(pleat__dict_new(run->vm, out));
    for (const pleat__node *part = node->a; part; part = part->next->next) {
        PLEAT_TRY(pleat__eval(run, part, &key));
        PLEAT_TRY(pleat__eval(run, part->next, &value));
        run->vm->line = part->line;
        PLEAT_TRY(pleat__dict_set(run->vm, out->dict, key, value));
    }
    return PLEAT_OK;
}

static pleat_status eval_concat(pleat__run *run, const pleat__node *node, pleat__value *out) {
    pleat__builder text = {0};
    pleat__value part;
    for (const pleat__node *operand = node->a; operand; operand = operand->next) {
        PLEAT_TRY(pleat__eval(run, operand, &part));
        run->vm->line = operand->line;
        if (!text.p && part.kind == PLEAT__V_STR && part.n > 0) { /* grow the first one where it stands, if that goes */
            text = (pleat__builder){.p = (char *)(uintptr_t)part.s, .n = part.n, .cap = part.n};
            continue;
        }
        PLEAT_TRY(pleat__put_str(run->vm, &text, part));
    }
    *out = pleat__built(&text);
    return PLEAT_OK;
}

static pleat_status eval_compare(pleat__run *run, const pleat__node *node, pleat__value *out) {
    pleat__value left, right;
    bool holds = true;
    PLEAT_TRY(pleat__eval(run, node->a, &left));
    for (const pleat__node *operand = node->b; operand && holds; operand = operand->next) {
        PLEAT_TRY(pleat__eval(run, operand->a, &right));
        run->vm->line = operand->line;
        PLEAT_TRY(pleat__relation(run->vm, (pleat__op)operand->op, left, right, &holds));
        left = right;
    }
    *out = pleat__value_bool(holds);
    return PLEAT_OK;
}

/* What a condition that does not hold leaves where there is no else. */
static pleat_status eval_cond(pleat__run *run, const pleat__node *node, pleat__value *out) {
    static const char why[] = "the inline if was false and has no else";
    PLEAT_TRY(pleat__eval(run, node->b, out));
    if (pleat__value_truth(*out)) return pleat__eval(run, node->a, out);
    if (node->c) return pleat__eval(run, node->c, out);
    *out = pleat__undefined(PLEAT__LACK_SAID, why, sizeof why - 1);
    return PLEAT_OK;
}

static pleat_status eval_slice(pleat__run *run, const pleat__node *node, pleat__value *out) {
    pleat__value object, bounds[3] = {PLEAT__NONE, PLEAT__NONE, PLEAT__NONE};
    const pleat__node *parts[3] = {node->b, node->c, node->d};
    PLEAT_TRY(pleat__eval(run, node->a, &object));
    for (int i = 0; i < 3; i++) {
        if (parts[i]) PLEAT_TRY(pleat__eval(run, parts[i], &bounds[i]));
    }
    run->vm->line = node->line;
    return pleat__get_slice(run->vm, object, bounds, out);
}

static pleat_status eval_call(pleat__run *run, const pleat__node *node, pleat__value *out) {
    pleat__value callee;
    pleat__args args;
    PLEAT_TRY(pleat__eval(run, node->a, &callee));
    PLEAT_TRY(pleat__eval_args(run, node->b, &args));
    run->vm->line = node->line;
    return pleat__call(run, callee, &args, out);
}

static pleat_status apply_filter(pleat__run *run, const pleat__node *node, pleat__value input, pleat__value *out) {
    pleat__args args;
    PLEAT_TRY(pleat__eval_args(run, node->b, &args));
    run->vm->line = node->line;
    if (node->id < 0) {
        return pleat__vm_fail(run->vm, PLEAT_E_ARG, "there is no filter '%.*s'", (int)node->value.n, node->value.s);
    }
    return pleat__filter_apply(run, node->id, input, &args, out);
}

pleat_status pleat__eval_filters(pleat__run *run, const pleat__node *filter, pleat__value input, pleat__value *out) {
    *out = input;
    if (!filter) return PLEAT_OK;
    PLEAT_TRY(pleat__vm_enter(run->vm));
    PLEAT_TRY(pleat__eval_filters(run, filter->a, input, out));
    PLEAT_TRY(apply_filter(run, filter, *out, out));
    pleat__vm_leave(run->vm);
    return PLEAT_OK;
}

static pleat_status eval_test(pleat__run *run, const pleat__node *node, pleat__value *out) {
    pleat__value value;
    pleat__args args;
    bool holds;
    PLEAT_TRY(pleat__eval(run, node->a, &value));
    PLEAT_TRY(pleat__eval_args(run, node->b, &args));
    run->vm->line = node->line;
    if (node->id < 0) {
        return pleat__vm_fail(run->vm, PLEAT_E_ARG, "there is no test '%.*s'", (int)node->value.n, node->value.s);
    }
    PLEAT_TRY(pleat__test_apply(run->vm, node->id, value, &args, &holds));
    *out = pleat__value_bool(holds);
    return PLEAT_OK;
}

/* Nodes with an operand a, and for some an operand b, that are evaluated first. */
static pleat_status eval_operator(pleat__run *run, const pleat__node *node, pleat__value *out) {
    pleat__value a, b = PLEAT__NONE;
    PLEAT_TRY(pleat__eval(run, node->a, &a));
    if (node->b && node->kind != PLEAT__N_FILTER) PLEAT_TRY(pleat__eval(run, node->b, &b));
    run->vm->line = node->line;
    switch ((pleat__node_kind)node->kind) {
        case PLEAT__N_NOT: *out = pleat__value_bool(!pleat__value_truth(a)); return PLEAT_OK;
        case PLEAT__N_NEG: return pleat__negative(run->vm, a, out);
        case PLEAT__N_POS: return pleat__positive(run->vm, a, out);
        case PLEAT__N_BINARY: return pleat__binary(run->vm, (pleat__op)node->op, a, b, out);
        case PLEAT__N_ATTR: return pleat__get_attr(run->vm, a, node->value, out);
        case PLEAT__N_ITEM: return pleat__get_item(run->vm, a, b, out);
        default: return apply_filter(run, node, a, out);
    }
}

static pleat_status eval_kind(pleat__run *run, const pleat__node *node, pleat__value *out) {
    switch ((pleat__node_kind)node->kind) {
        case PLEAT__N_CONST: *out = node->value; return PLEAT_OK;
        case PLEAT__N_NAME: return pleat__lookup(run, node->value, out);
        case PLEAT__N_LIST: return eval_items(run, node, PLEAT__V_LIST, out);
        case PLEAT__N_TUPLE: return eval_items(run, node, PLEAT__V_TUPLE, out);
        case PLEAT__N_DICT: return eval_dict(run, node, out);
        case PLEAT__N_OR:
            PLEAT_TRY(pleat__eval(run, node->a, out));
            return pleat__value_truth(*out) ? PLEAT_OK : pleat__eval(run, node->b, out);
        case PLEAT__N_AND:
            PLEAT_TRY(pleat__eval(run, node->a, out));
            return pleat__value_truth(*out) ? pleat__eval(run, node->b, out) : PLEAT_OK;
        case PLEAT__N_CONCAT: return eval_concat(run, node, out);
        case PLEAT__N_COMPARE: return eval_compare(run, node, out);
        case PLEAT__N_COND: return eval_cond(run, node, out);
        case PLEAT__N_SLICE: return eval_slice(run, node, out);
        case PLEAT__N_CALL: return eval_call(run, node, out);
        case PLEAT__N_TEST: return eval_test(run, node, out);
        default: return eval_operator(run, node, out);
    }
}

pleat_status pleat__eval(pleat__run *run, const pleat__node *node, pleat__value *out) {
    PLEAT_TRY(pleat__vm_enter(run->vm));
    PLEAT_TRY(pleat__vm_charge(run->vm, 1));
    PLEAT_TRY(eval_kind(run, node, out));
    pleat__vm_leave(run->vm);
    return PLEAT_OK;
}
