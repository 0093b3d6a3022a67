/* SPDX-License-Identifier: MIT
 *
 * operators.c: see operators.h.
 */
#include "chat/operators.h"

#include <math.h>

#include "chat/format.h"
#include "chat/text.h"
#include "core/bytes.h"

static const char *const symbols[] = {
    [PLEAT__OP_ADD] = "+",       [PLEAT__OP_SUB] = "-", [PLEAT__OP_MUL] = "*", [PLEAT__OP_DIV] = "/",
    [PLEAT__OP_FLOORDIV] = "//", [PLEAT__OP_MOD] = "%", [PLEAT__OP_POW] = "**"};

static pleat_status mismatch(pleat__vm *vm, pleat__op op, pleat__value a, pleat__value b) {
    if (a.kind == PLEAT__V_UNDEFINED) return pleat__undefined_fail(vm, a);
    if (b.kind == PLEAT__V_UNDEFINED) return pleat__undefined_fail(vm, b);
    return pleat__vm_fail(vm, PLEAT_E_ARG, "no %s between a %s and a %s", symbols[op], pleat__value_type(a),
                          pleat__value_type(b));
}

static pleat_status too_large(pleat__vm *vm) {
    return pleat__vm_fail(vm, PLEAT_E_UNSUPPORTED, "an integer beyond 64 bits is not supported");
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static pleat_status int_power(pleat__vm *vm, int64_t a, int64_t b, pleat__value *out) {
    if (b < 0) {
        if (a == 0) return pleat__vm_fail(vm, PLEAT_E_ARG, "0 to a negative power");
        *out = pleat__value_float(pow((double)a, (double)b));
        return PLEAT_OK;
    }
    int64_t x = 1;
    if (a == 0 || a == 1 || a == -1) {
        x = b == 0 ? 1 : a == -1 && b % 2 == 0 ? 1 : a;
    } else {
        for (; b > 0; b--) {
            if (__builtin_mul_overflow(x, a, &x)) return too_large(vm);
        }
    }
    *out = pleat__value_int(x);
    return PLEAT_OK;
}

static pleat_status int_binary(pleat__vm *vm, pleat__op op, int64_t a, int64_t b, pleat__value *out) {
    int64_t x = 0;
    bool wraps = false;
    if (op == PLEAT__OP_POW) return int_power(vm, a, b, out);
    if (b == 0 && (op == PLEAT__OP_DIV || op == PLEAT__OP_FLOORDIV || op == PLEAT__OP_MOD)) {
        return pleat__vm_fail(vm, PLEAT_E_ARG, "division by 0");
    }
    switch (op) {
        case PLEAT__OP_ADD: wraps = __builtin_add_overflow(a, b, &x); break;
        case PLEAT__OP_SUB: wraps = __builtin_sub_overflow(a, b, &x); break;
        case PLEAT__OP_MUL: wraps = __builtin_mul_overflow(a, b, &x); break;
        case PLEAT__OP_DIV: *out = pleat__value_float((double)a / (double)b); return PLEAT_OK;
        case PLEAT__OP_FLOORDIV:
            wraps = a == INT64_MIN && b == -1;
            if (!wraps) x = a / b - (a % b != 0 && (a < 0) != (b < 0));
            break;
        default: x = b == -1 ? 0 : a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0); break;
    }
    if (wraps) return too_large(vm);
    *out = pleat__value_int(x);
    return PLEAT_OK;
}

/* The remainder has b's sign. */
static double float_mod(double a, double b) {
    double m = fmod(a, b);
    if (m != 0 && (m < 0) != (b < 0)) m += b;
    return m == 0 ? copysign(0.0, b) : m;
}

static double float_floordiv(double a, double b) {
    const double m = fmod(a, b);
    double q = (a - m) / b;
    if (m != 0 && (m < 0) != (b < 0)) q -= 1;
    if (q == 0) return copysign(0.0, a / b);
    const double whole = floor(q);
    return q - whole > 0.5 ? whole + 1 : whole;
}

static pleat_status float_binary(pleat__vm *vm, pleat__op op, double a, double b, pleat__value *out) {
    double x;
    if (b == 0 && (op == PLEAT__OP_DIV || op == PLEAT__OP_FLOORDIV || op == PLEAT__OP_MOD)) {
        return pleat__vm_fail(vm, PLEAT_E_ARG, "division by 0");
    }
    switch (op) {
        case PLEAT__OP_ADD: x = a + b; break;
        case PLEAT__OP_SUB: x = a - b; break;
        case PLEAT__OP_MUL: x = a * b; break;
        case PLEAT__OP_DIV: x = a / b; break;
        case PLEAT__OP_FLOORDIV: x = float_floordiv(a, b); break;
        case PLEAT__OP_MOD: x = float_mod(a, b); break;
        default:
            x = pow(a, b);
            if ((a == 0 && b < 0) || (isnan(x) && !isnan(a) && !isnan(b)) || (isinf(x) && !isinf(a) && !isinf(b))) {
                return pleat__vm_fail(vm, PLEAT_E_ARG, "a power that is no finite real number");
            }
            break;
    }
    *out = pleat__value_float(x);
    return PLEAT_OK;
}

/* ---- strings and lists --------------------------------------------------------------------------------------------- */

/* Safe HTML stays so: what is added to it is escaped. */
static pleat_status add_html(pleat__vm *vm, pleat__value a, pleat__value b, pleat__value *out) {
    pleat__builder text = {0};
    const pleat__value parts[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        if (parts[i].sub)
            PLEAT_TRY(pleat__put(vm, &text, parts[i].s, parts[i].n));
        else
            PLEAT_TRY(pleat__put_escaped(vm, &text, parts[i].s, parts[i].n));
    }
    *out = pleat__built(&text);
    out->sub = 1;
    return PLEAT_OK;
}

static pleat_status add_strings(pleat__vm *vm, pleat__value a, pleat__value b, pleat__value *out) {
    if (a.sub || b.sub) return add_html(vm, a, b, out);
    pleat__builder text = {.p = (char *)(uintptr_t)a.s, .n = a.n, .cap = a.n}; /* grows in place if it was made last */
    if (a.n == 0) text = (pleat__builder){0};
    PLEAT_TRY(pleat__put(vm, &text, b.s, b.n));
    *out = pleat__built(&text);
    return PLEAT_OK;
}

static pleat_status add_items(pleat__vm *vm, pleat__list *to, const pleat__list *from) {
    PLEAT_TRY(pleat__vm_charge(vm, from->n));
    for (uint32_t i = 0; i < from->n; i++) PLEAT_TRY(pleat__list_add(vm, to, from->items[i]));
    return PLEAT_OK;
}

static pleat_status add_lists(pleat__vm *vm, pleat__value a, pleat__value b, pleat__value *out) {
    PLEAT_TRY(pleat__list_new(vm, a.kind, a.list->n + b.list->n, out));
    PLEAT_TRY(add_items(vm, out->list, a.list));
    return add_items(vm, out->list, b.list);
}

static pleat_status repeat(pleat__vm *vm, pleat__value v, int64_t times, pleat__value *out) {
    if (times < 0) times = 0;
    if (v.kind == PLEAT__V_STR) {
        pleat__builder text = {0};
        PLEAT_TRY(pleat__put_repeated(vm, &text, v.s, v.n, (uint64_t)times));
        *out = pleat__built(&text);
        out->sub = v.sub;
        return PLEAT_OK;
    }
    PLEAT_TRY(pleat__list_new(vm, v.kind, 0, out));
    for (int64_t i = 0; i < times && v.list->n > 0; i++) PLEAT_TRY(add_items(vm, out->list, v.list));
    return PLEAT_OK;
}

static bool is_repeatable(pleat__value v) {
    return v.kind == PLEAT__V_STR || v.kind == PLEAT__V_LIST || v.kind == PLEAT__V_TUPLE;
}

pleat_status pleat__binary(pleat__vm *vm, pleat__op op, pleat__value a, pleat__value b, pleat__value *out) {
    if (pleat__value_is_int(a) && pleat__value_is_int(b)) {
        return int_binary(vm, op, pleat__value_to_int(a), pleat__value_to_int(b), out);
    }
    if (pleat__value_is_number(a) && pleat__value_is_number(b)) {
        return float_binary(vm, op, pleat__value_to_float(a), pleat__value_to_float(b), out);
    }
    if (op == PLEAT__OP_ADD && a.kind == b.kind) {
        if (a.kind == PLEAT__V_STR) return add_strings(vm, a, b, out);
        if (a.kind == PLEAT__V_LIST || a.kind == PLEAT__V_TUPLE) return add_lists(vm, a, b, out);
    }
    if (op == PLEAT__OP_MUL && is_repeatable(a) && pleat__value_is_int(b))
        return repeat(vm, a, pleat__value_to_int(b), out);
    if (op == PLEAT__OP_MUL && is_repeatable(b) && pleat__value_is_int(a))
        return repeat(vm, b, pleat__value_to_int(a), out);
    if (op == PLEAT__OP_MOD && a.kind == PLEAT__V_STR) return pleat__format_percent(vm, a, b, out);
    return mismatch(vm, op, a, b);
}

pleat_status pleat__negative(pleat__vm *vm, pleat__value a, pleat__value *out) {
    if (a.kind == PLEAT__V_UNDEFINED) return pleat__undefined_fail(vm, a);
    if (a.kind == PLEAT__V_FLOAT) {
        *out = pleat__value_float(-a.f);
        return PLEAT_OK;
    }
    if (!pleat__value_is_int(a)) return pleat__vm_fail(vm, PLEAT_E_ARG, "no - in front of a %s", pleat__value_type(a));
    return int_binary(vm, PLEAT__OP_SUB, 0, pleat__value_to_int(a), out);
}

pleat_status pleat__positive(pleat__vm *vm, pleat__value a, pleat__value *out) {
    if (a.kind == PLEAT__V_UNDEFINED) return pleat__undefined_fail(vm, a);
    if (!pleat__value_is_number(a))
        return pleat__vm_fail(vm, PLEAT_E_ARG, "no + in front of a %s", pleat__value_type(a));
    *out = a.kind == PLEAT__V_BOOL ? pleat__value_int(a.b) : a;
    return PLEAT_OK;
}

/* ---- comparisons --------------------------------------------------------------------------------------------------- */

pleat_status pleat__contains(pleat__vm *vm, pleat__value container, pleat__value item, bool *out) {
    *out = false;
    if (container.kind == PLEAT__V_STR) {
        if (item.kind != PLEAT__V_STR) {
            return pleat__vm_fail(vm, PLEAT_E_ARG, "a %s cannot be in a str", pleat__value_type(item));
        }
        *out = item.n == 0 || (container.n > 0 && memmem(container.s, container.n, item.s, item.n));
        return pleat__vm_charge(vm, container.n / 16);
    }
    if (container.kind == PLEAT__V_DICT) {
        pleat__value *value;
        PLEAT_TRY(pleat__dict_find(vm, container.dict, item, &value));
        *out = value != NULL;
        return PLEAT_OK;
    }
    pleat__list *items;
    if (!pleat__value_is_iterable(container)) {
        return pleat__vm_fail(vm, PLEAT_E_ARG, "nothing can be in a %s", pleat__value_type(container));
    }
    PLEAT_TRY(pleat__value_items(vm, container, &items));
    for (uint32_t i = 0; i < items->n && !*out; i++) {
        PLEAT_TRY(pleat__vm_charge(vm, 1));
        PLEAT_TRY(pleat__value_equal(vm, items->items[i], item, out));
    }
    return PLEAT_OK;
}

pleat_status pleat__relation(pleat__vm *vm, pleat__op op, pleat__value a, pleat__value b, bool *out) {
    int order = 0;
    switch (op) {
        case PLEAT__OP_EQ: return pleat__value_equal(vm, a, b, out);
        case PLEAT__OP_NE:
            PLEAT_TRY(pleat__value_equal(vm, a, b, out));
            *out = !*out;
            return PLEAT_OK;
        case PLEAT__OP_IN: return pleat__contains(vm, b, a, out);
        case PLEAT__OP_NOT_IN:
            PLEAT_TRY(pleat__contains(vm, b, a, out));
            *out = !*out;
            return PLEAT_OK;
        default: break;
    }
    PLEAT_TRY(pleat__value_compare(vm, a, b, &order));
    const bool is_less = order<0, is_more = order> 0 && order != 2, is_same = order == 0;
    *out = op == PLEAT__OP_LT   ? is_less
           : op == PLEAT__OP_LE ? is_less || is_same
           : op == PLEAT__OP_GT ? is_more
                                : is_more || is_same;
    return PLEAT_OK;
}
