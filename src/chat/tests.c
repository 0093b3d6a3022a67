/* SPDX-License-Identifier: MIT
 *
 * tests.c: see tests.h.
 */
#include "chat/tests.h"

#include "chat/filters.h"
#include "chat/methods.h"
#include "chat/operators.h"

/* What a test without arguments says of a value by its kind alone. */
typedef enum kind_test {
    IS_DEFINED,
    IS_UNDEFINED,
    IS_NONE,
    IS_BOOLEAN,
    IS_FALSE,
    IS_TRUE,
    IS_INTEGER,
    IS_FLOAT,
    IS_STRING,
    IS_MAPPING,
    IS_NUMBER,
    IS_SEQUENCE,
    IS_ITERABLE,
    IS_CALLABLE,
    IS_ESCAPED,
    IS_LOWER,
    IS_UPPER,
    IS_ODD,
    IS_EVEN,
    IS_FILTER,
    IS_TEST,
    N_KIND_TESTS,
    /* the others have an argument */
    IS_DIVISIBLE,
    IS_SAME,
    IS_IN,
    IS_RELATION /* and a pleat__op added to it */
} kind_test;

static const struct {
    const char *name;
    int test;
} tests[] = {
    {"defined", IS_DEFINED},
    {"undefined", IS_UNDEFINED},
    {"none", IS_NONE},
    {"boolean", IS_BOOLEAN},
    {"false", IS_FALSE},
    {"true", IS_TRUE},
    {"integer", IS_INTEGER},
    {"float", IS_FLOAT},
    {"string", IS_STRING},
    {"mapping", IS_MAPPING},
    {"number", IS_NUMBER},
    {"sequence", IS_SEQUENCE},
    {"iterable", IS_ITERABLE},
    {"callable", IS_CALLABLE},
    {"escaped", IS_ESCAPED},
    {"lower", IS_LOWER},
    {"upper", IS_UPPER},
    {"odd", IS_ODD},
    {"even", IS_EVEN},
    {"filter", IS_FILTER},
    {"test", IS_TEST},
    {"divisibleby", IS_DIVISIBLE},
    {"sameas", IS_SAME},
    {"in", IS_IN},
    {"==", IS_RELATION + PLEAT__OP_EQ},
    {"eq", IS_RELATION + PLEAT__OP_EQ},
    {"equalto", IS_RELATION + PLEAT__OP_EQ},
    {"!=", IS_RELATION + PLEAT__OP_NE},
    {"ne", IS_RELATION + PLEAT__OP_NE},
    {">", IS_RELATION + PLEAT__OP_GT},
    {"gt", IS_RELATION + PLEAT__OP_GT},
    {"greaterthan", IS_RELATION + PLEAT__OP_GT},
    {">=", IS_RELATION + PLEAT__OP_GE},
    {"ge", IS_RELATION + PLEAT__OP_GE},
    {"<", IS_RELATION + PLEAT__OP_LT},
    {"lt", IS_RELATION + PLEAT__OP_LT},
    {"lessthan", IS_RELATION + PLEAT__OP_LT},
    {"<=", IS_RELATION + PLEAT__OP_LE},
    {"le", IS_RELATION + PLEAT__OP_LE},
};

int pleat__test_find(pleat__value name) {
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        if (pleat__is_text(name, tests[i].name)) return (int)i;
    }
    return -1;
}

static bool is_sequence(pleat__value v) {
    return v.kind == PLEAT__V_UNDEFINED || v.kind == PLEAT__V_STR || v.kind == PLEAT__V_LIST ||
           v.kind == PLEAT__V_TUPLE || v.kind == PLEAT__V_DICT || v.kind == PLEAT__V_RANGE;
}

static bool is_callable(pleat__value v) {
    return v.kind == PLEAT__V_UNDEFINED || v.kind == PLEAT__V_METHOD || v.kind == PLEAT__V_MACRO ||
           v.kind == PLEAT__V_FUNCTION || v.kind == PLEAT__V_LOOP;
}

static pleat_status by_case(pleat__vm *vm, pleat__value v, pleat__case which, bool *out) {
    pleat__value s;
    PLEAT_TRY(pleat__to_str(vm, v, &s));
    *out = pleat__str_is_case(s, which);
    return pleat__vm_charge(vm, s.n / 64);
}

/* v % by == 0 for numbers. */
static pleat_status divides(pleat__vm *vm, pleat__value v, pleat__value by, bool *out) {
    pleat__value rest;
    if (v.kind == PLEAT__V_STR) return pleat__vm_fail(vm, PLEAT_E_ARG, "a str is neither odd nor even");
    PLEAT_TRY(pleat__binary(vm, PLEAT__OP_MOD, v, by, &rest));
    return pleat__value_equal(vm, rest, pleat__value_int(0), out);
}

static pleat_status is_odd(pleat__vm *vm, pleat__value v, bool *out) {
    pleat__value rest;
    if (v.kind == PLEAT__V_STR) return pleat__vm_fail(vm, PLEAT_E_ARG, "a str is neither odd nor even");
    PLEAT_TRY(pleat__binary(vm, PLEAT__OP_MOD, v, pleat__value_int(2), &rest));
    return pleat__value_equal(vm, rest, pleat__value_int(1), out);
}

static pleat_status by_kind(pleat__vm *vm, kind_test test, pleat__value v, bool *out) {
    switch (test) {
        case IS_DEFINED: *out = v.kind != PLEAT__V_UNDEFINED; break;
        case IS_UNDEFINED: *out = v.kind == PLEAT__V_UNDEFINED; break;
        case IS_NONE: *out = v.kind == PLEAT__V_NONE; break;
        case IS_BOOLEAN: *out = v.kind == PLEAT__V_BOOL; break;
        case IS_FALSE: *out = v.kind == PLEAT__V_BOOL && !v.b; break;
        case IS_TRUE: *out = v.kind == PLEAT__V_BOOL && v.b; break;
        case IS_INTEGER: *out = v.kind == PLEAT__V_INT; break;
        case IS_FLOAT: *out = v.kind == PLEAT__V_FLOAT; break;
        case IS_STRING: *out = v.kind == PLEAT__V_STR; break;
        case IS_MAPPING: *out = v.kind == PLEAT__V_DICT; break;
        case IS_NUMBER: *out = pleat__value_is_number(v); break;
        case IS_SEQUENCE: *out = is_sequence(v); break;
        case IS_ITERABLE: *out = pleat__value_is_iterable(v); break;
        case IS_CALLABLE: *out = is_callable(v); break;
        case IS_ESCAPED: *out = v.kind == PLEAT__V_STR && v.sub; break;
        case IS_LOWER: return by_case(vm, v, PLEAT__CASE_LOWER, out);
        case IS_UPPER: return by_case(vm, v, PLEAT__CASE_UPPER, out);
        case IS_ODD: return is_odd(vm, v, out);
        case IS_EVEN: return divides(vm, v, pleat__value_int(2), out);
        case IS_FILTER:
            *out = v.kind == PLEAT__V_STR && (pleat__filter_find(v) >= 0 || pleat__filter_is_left_out(v));
            break;
        default: *out = v.kind == PLEAT__V_STR && pleat__test_find(v) >= 0; break;
    }
    return PLEAT_OK;
}

/* Whether both are one object.  Small values are, as in CPython; a string is where its text is. */
static bool is_same(pleat__value a, pleat__value b) {
    if (a.kind != b.kind) return false;
    switch (a.kind) {
        case PLEAT__V_UNDEFINED: return a.s == b.s;
        case PLEAT__V_NONE: return true;
        case PLEAT__V_BOOL: return a.b == b.b;
        case PLEAT__V_INT: return a.i == b.i;
        case PLEAT__V_STR: return a.n == b.n && (a.n == 0 || memcmp(a.s, b.s, a.n) == 0);
        case PLEAT__V_FLOAT: return a.f == b.f;
        case PLEAT__V_FUNCTION: return a.sub == b.sub;
        default: return a.list == b.list;
    }
}

pleat_status pleat__test_apply(pleat__vm *vm, int id, pleat__value v, const pleat__args *args, bool *out) {
    const int test = tests[id].test;
    pleat__value other[1];
    if (test < N_KIND_TESTS) {
        PLEAT_TRY(pleat__bind(vm, args, tests[id].name, 0, "", NULL));
        return by_kind(vm, (kind_test)test, v, out);
    }
    PLEAT_TRY(pleat__bind(vm, args, tests[id].name, 1, test == IS_IN ? "seq" : "other", other));
    if (test == IS_DIVISIBLE) return divides(vm, v, other[0], out);
    if (test == IS_IN) return pleat__contains(vm, other[0], v, out);
    if (test == IS_SAME) {
        *out = is_same(v, other[0]);
        return PLEAT_OK;
    }
    return pleat__relation(vm, (pleat__op)(test - IS_RELATION), v, other[0], out);
}
