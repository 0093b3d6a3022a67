/* SPDX-License-Identifier: MIT
 *
 * filters.c: see filters.h.
 */
#include "chat/filters.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "chat/access.h"
#include "chat/format.h"
#include "chat/json.h"
#include "chat/methods.h"
#include "chat/operators.h"

/* ---- text ------------------------------------------------------------------------------------------------------------ */

/* str() of a value; safe HTML stays so. */
static pleat_status soft_str(pleat__vm *vm, pleat__value v, pleat__value *out) {
    PLEAT_TRY(pleat__to_str(vm, v, out));
    if (v.kind == PLEAT__V_STR) out->sub = v.sub;
    return PLEAT_OK;
}

static pleat_status filter_string(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    PLEAT_TRY(pleat__bind(run->vm, args, "string", 0, "", NULL));
    return soft_str(run->vm, v, out);
}

static pleat_status filter_lower(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    PLEAT_TRY(pleat__bind(run->vm, args, "lower", 0, "", NULL));
    PLEAT_TRY(soft_str(run->vm, v, out));
    return pleat__str_case(run->vm, *out, PLEAT__CASE_LOWER, out);
}

static pleat_status filter_upper(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    PLEAT_TRY(pleat__bind(run->vm, args, "upper", 0, "", NULL));
    PLEAT_TRY(soft_str(run->vm, v, out));
    return pleat__str_case(run->vm, *out, PLEAT__CASE_UPPER, out);
}

static pleat_status filter_capitalize(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    PLEAT_TRY(pleat__bind(run->vm, args, "capitalize", 0, "", NULL));
    PLEAT_TRY(soft_str(run->vm, v, out));
    return pleat__str_capitalize(run->vm, *out, out);
}

static bool begins_word(uint32_t cp) {
    return pleat__char_is_space(cp) || (cp < 0x80 && strchr("-({[<", (int)cp) && cp);
}

/* A capital behind blanks, dashes and opening brackets, and small letters elsewhere. */
static pleat_status filter_title(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    pleat__value s;
    pleat__builder b = {0};
    bool is_first = true;
    PLEAT_TRY(pleat__bind(run->vm, args, "title", 0, "", NULL));
    PLEAT_TRY(soft_str(run->vm, v, &s));
    for (uint32_t i = 0, len; i < s.n; i += len) {
        uint32_t cased[3];
        const uint32_t cp = pleat__char_at(s.s, s.n, i, &len);
        const uint32_t n = pleat__char_case(cp, is_first ? PLEAT__CASE_UPPER : PLEAT__CASE_LOWER, cased);
        for (uint32_t k = 0; k < n; k++) PLEAT_TRY(pleat__put_char(run->vm, &b, cased[k]));
        is_first = begins_word(cp);
    }
    *out = pleat__built(&b);
    return pleat__vm_charge(run->vm, s.n / 16);
}

static pleat_status filter_trim(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    pleat__value chars[1], s;
    PLEAT_TRY(pleat__bind(run->vm, args, "trim", 0, "chars", chars));
    PLEAT_TRY(soft_str(run->vm, v, &s));
    const bool has = !pleat__is_missing(chars[0]) && chars[0].kind != PLEAT__V_NONE;
    if (has && chars[0].kind != PLEAT__V_STR) return pleat__vm_fail(run->vm, PLEAT_E_ARG, "trim wants a str");
    PLEAT_TRY(pleat__vm_charge(run->vm, (1 + s.n / 64) * (uint64_t)(has ? chars[0].n : 1)));
    *out = pleat__str_strip(s, has ? &chars[0] : NULL, PLEAT__BOTH);
    return PLEAT_OK;
}

static pleat_status filter_replace(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    pleat__value a[3], s, old, new;
    PLEAT_TRY(pleat__bind(run->vm, args, "replace", 2, "old new count", a));
    PLEAT_TRY(pleat__to_str(run->vm, v, &s));
    PLEAT_TRY(pleat__to_str(run->vm, a[0], &old));
    PLEAT_TRY(pleat__to_str(run->vm, a[1], &new));
    const bool is_limited = !pleat__is_missing(a[2]) && a[2].kind != PLEAT__V_NONE;
    if (is_limited && !pleat__value_is_int(a[2]))
        return pleat__vm_fail(run->vm, PLEAT_E_ARG, "replace wants a whole number");
    return pleat__str_replace(run->vm, s, old, new, is_limited ? pleat__value_to_int(a[2]) : -1, out);
}

static pleat_status put_indented(pleat__vm *vm, pleat__builder *b, const pleat__list *lines, pleat__value by,
                                 bool blank) {
    for (uint32_t i = 0; i < lines->n; i++) {
        if (i > 0) PLEAT_TRY(pleat__put_text(vm, b, "\n"));
        if (i > 0 && (blank || lines->items[i].n > 0)) PLEAT_TRY(pleat__put(vm, b, by.s, by.n));
        PLEAT_TRY(pleat__put(vm, b, lines->items[i].s, lines->items[i].n));
    }
    return PLEAT_OK;
}

/* Lines but the first begin with blanks or, with first=true, all do; empty ones only with blank=true. */
static pleat_status filter_indent(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    pleat__vm *vm = run->vm;
    pleat__value a[3], by, lines, s;
    pleat__builder b = {0}, blanks = {0}, text = {0};
    PLEAT_TRY(pleat__bind(vm, args, "indent", 0, "width first blank", a));
    if (v.kind == PLEAT__V_UNDEFINED) return pleat__undefined_fail(vm, v);
    if (v.kind != PLEAT__V_STR) return pleat__vm_fail(vm, PLEAT_E_ARG, "indent wants a str");
    by = a[0];
    if (by.kind != PLEAT__V_STR) {
        const int64_t width = pleat__is_missing(by) ? 4 : pleat__value_is_int(by) ? pleat__value_to_int(by) : -1;
        if (!pleat__is_missing(by) && !pleat__value_is_int(by))
            return pleat__vm_fail(vm, PLEAT_E_ARG, "indent wants a number or a str");
        PLEAT_TRY(pleat__put_repeated(vm, &blanks, " ", 1, width > 0 ? (uint64_t)width : 0));
        by = pleat__built(&blanks);
    }
    PLEAT_TRY(pleat__put(vm, &text, v.s, v.n));
    PLEAT_TRY(pleat__put_text(vm, &text, "\n")); /* so that an empty text has a line, too */
    s = pleat__built(&text);
    PLEAT_TRY(pleat__str_lines(vm, s, false, &lines));
    if (!pleat__is_missing(a[1]) && pleat__value_truth(a[1])) PLEAT_TRY(pleat__put(vm, &b, by.s, by.n));
    PLEAT_TRY(put_indented(vm, &b, lines.list, by, !pleat__is_missing(a[2]) && pleat__value_truth(a[2])));
    *out = pleat__built(&b);
    out->sub = v.sub;
    return PLEAT_OK;
}

static pleat_status filter_center(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    pleat__value width[1], s;
    PLEAT_TRY(pleat__bind(run->vm, args, "center", 0, "width", width));
    PLEAT_TRY(soft_str(run->vm, v, &s));
    if (!pleat__is_missing(width[0]) && !pleat__value_is_int(width[0]))
        return pleat__vm_fail(run->vm, PLEAT_E_ARG, "center wants a whole number");
    return pleat__str_center(run->vm, s, pleat__is_missing(width[0]) ? 80 : pleat__value_to_int(width[0]), ' ',
                             PLEAT__BOTH, out);
}

static pleat_status filter_wordcount(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    pleat__value s;
    int64_t n = 0;
    bool in_word = false;
    PLEAT_TRY(pleat__bind(run->vm, args, "wordcount", 0, "", NULL));
    PLEAT_TRY(soft_str(run->vm, v, &s));
    for (uint32_t i = 0; i < s.n; i++) {
        if ((uint8_t)s.s[i] >= 0x80)
            return pleat__vm_fail(run->vm, PLEAT_E_UNSUPPORTED, "wordcount beyond ASCII is not supported");
        const char c = s.s[i];
        const bool is_word = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_';
        n += is_word && !in_word;
        in_word = is_word;
    }
    *out = pleat__value_int(n);
    return pleat__vm_charge(run->vm, s.n / 64);
}

static pleat_status filter_safe(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    PLEAT_TRY(pleat__bind(run->vm, args, "safe", 0, "", NULL));
    PLEAT_TRY(pleat__to_str(run->vm, v, out));
    out->sub = 1;
    return PLEAT_OK;
}

static pleat_status escape(pleat__run *run, pleat__value v, bool again, pleat__value *out) {
    pleat__builder b = {0};
    *out = v;
    if (v.kind == PLEAT__V_STR && v.sub && !again) return PLEAT_OK;
    PLEAT_TRY(pleat__to_str(run->vm, v, out));
    PLEAT_TRY(pleat__put_escaped(run->vm, &b, out->s, out->n));
    *out = pleat__built(&b);
    out->sub = 1;
    return PLEAT_OK;
}

static pleat_status filter_escape(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    PLEAT_TRY(pleat__bind(run->vm, args, "escape", 0, "", NULL));
    return escape(run, v, false, out);
}

static pleat_status filter_forceescape(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    PLEAT_TRY(pleat__bind(run->vm, args, "forceescape", 0, "", NULL));
    return escape(run, v, true, out);
}

static pleat_status filter_format(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    pleat__value s;
    if (args->plain->n > 0 && args->named->n > 0) {
        return pleat__vm_fail(run->vm, PLEAT_E_ARG, "format takes plain or keyword arguments, not both");
    }
    PLEAT_TRY(soft_str(run->vm, v, &s));
    const pleat__value plain = {.kind = PLEAT__V_TUPLE, .list = args->plain};
    const pleat__value named = {.kind = PLEAT__V_DICT, .dict = args->named};
    return pleat__format_percent(run->vm, s, args->named->n > 0 ? named : plain, out);
}

/* ---- numbers --------------------------------------------------------------------------------------------------------- */

static pleat_status filter_abs(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    PLEAT_TRY(pleat__bind(run->vm, args, "abs", 0, "", NULL));
    PLEAT_TRY(pleat__positive(run->vm, v, out));
    if (out->kind == PLEAT__V_FLOAT) out->f = fabs(out->f);
    return out->kind == PLEAT__V_INT && out->i < 0 ? pleat__negative(run->vm, *out, out) : PLEAT_OK;
}

/* Towards zero; false where the float is not in reach. */
static bool float_to_int(double f, int64_t *out) {
    if (!(fabs(f) < 9.2e18)) return false;
    *out = (int64_t)f;
    return true;
}

static pleat_status filter_int(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    pleat__value a[2];
    int64_t i;
    double f;
    PLEAT_TRY(pleat__bind(run->vm, args, "int", 0, "default base", a));
    if (v.kind == PLEAT__V_UNDEFINED) return pleat__undefined_fail(run->vm, v);
    const int64_t base = pleat__is_missing(a[1]) ? 10 : pleat__value_is_int(a[1]) ? pleat__value_to_int(a[1]) : -1;
    if (base != 0 && (base < 2 || base > 36))
        return pleat__vm_fail(run->vm, PLEAT_E_ARG, "int: the base is 0 or 2 to 36");
    *out = pleat__is_missing(a[0]) ? pleat__value_int(0) : a[0];
    if (pleat__value_is_int(v)) *out = pleat__value_int(pleat__value_to_int(v));
    if (v.kind == PLEAT__V_FLOAT) {
        if (!isnan(v.f) && !float_to_int(v.f, &i))
            return pleat__vm_fail(run->vm, PLEAT_E_ARG, "int: the number is too large");
        if (!isnan(v.f)) *out = pleat__value_int(i);
    }
    if (v.kind != PLEAT__V_STR) return PLEAT_OK;
    if (pleat__text_to_int(v.s, v.n, (int)base, &i) || (pleat__text_to_float(v.s, v.n, &f) && float_to_int(f, &i))) {
        *out = pleat__value_int(i);
    }
    return PLEAT_OK;
}

static pleat_status filter_float(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    pleat__value a[1];
    double f;
    PLEAT_TRY(pleat__bind(run->vm, args, "float", 0, "default", a));
    if (v.kind == PLEAT__V_UNDEFINED) return pleat__undefined_fail(run->vm, v);
    *out = pleat__is_missing(a[0]) ? pleat__value_float(0) : a[0];
    if (pleat__value_is_number(v)) *out = pleat__value_float(pleat__value_to_float(v));
    if (v.kind == PLEAT__V_STR && pleat__text_to_float(v.s, v.n, &f)) *out = pleat__value_float(f);
    return PLEAT_OK;
}

/* To the nearest number of so many digits, as it prints; halves that a float has exactly go to the even one. */
static double round_digits(double f, int digits) {
    char text[400];
    double x;
    if (!isfinite(f) || digits > 22) return f;
    if (digits < 0) {
        const double scale = pow(10, -digits);
        return nearbyint(f / scale) * scale;
    }
    (void)snprintf(text, sizeof text, "%.*f", digits, f);
    for (char *p = text; *p; p++) {
        if (*p == ',') *p = '.';
    }
    return pleat__text_to_float(text, (uint32_t)strlen(text), &x) ? x : strtod(text, NULL);
}

static pleat_status filter_round(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    pleat__value a[2];
    PLEAT_TRY(pleat__bind(run->vm, args, "round", 0, "precision method", a));
    if (v.kind == PLEAT__V_UNDEFINED) return pleat__undefined_fail(run->vm, v);
    if (!pleat__value_is_number(v)) return pleat__vm_fail(run->vm, PLEAT_E_ARG, "round wants a number");
    const bool has_digits = !pleat__is_missing(a[0]);
    if (has_digits && !pleat__value_is_int(a[0]))
        return pleat__vm_fail(run->vm, PLEAT_E_ARG, "round wants a whole number of digits");
    const int64_t digits = has_digits ? pleat__value_to_int(a[0]) : 0;
    if (digits < -20 || digits > 300)
        return pleat__vm_fail(run->vm, PLEAT_E_UNSUPPORTED, "round to so many digits is not supported");
    const bool is_common = pleat__is_missing(a[1]) || pleat__is_text(a[1], "common");
    if (is_common && pleat__value_is_int(v)) {
        *out = pleat__value_int(pleat__value_to_int(v));
        return digits < 0 ? pleat__vm_fail(run->vm, PLEAT_E_UNSUPPORTED, "round of an integer to tens is not supported")
                          : PLEAT_OK;
    }
    if (!is_common && !pleat__is_text(a[1], "ceil") && !pleat__is_text(a[1], "floor")) {
        return pleat__vm_fail(run->vm, PLEAT_E_ARG, "round: the method is common, ceil or floor");
    }
    const double scale = pow(10, (double)digits), f = pleat__value_to_float(v);
    *out = pleat__value_float(is_common ? round_digits(f, (int)digits)
                                        : (pleat__is_text(a[1], "ceil") ? ceil(f * scale) : floor(f * scale)) / scale);
    return PLEAT_OK;
}

/* ---- any value ------------------------------------------------------------------------------------------------------- */

static pleat_status filter_default(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    pleat__value a[2];
    PLEAT_TRY(pleat__bind(run->vm, args, "default", 0, "default_value boolean", a));
    const bool by_truth = !pleat__is_missing(a[1]) && pleat__value_truth(a[1]);
    *out = v;
    if (v.kind == PLEAT__V_UNDEFINED || (by_truth && !pleat__value_truth(v))) {
        *out = pleat__is_missing(a[0]) ? pleat__value_text("") : a[0];
    }
    return PLEAT_OK;
}

static pleat_status filter_length(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    uint32_t n;
    bool has;
    PLEAT_TRY(pleat__bind(run->vm, args, "length", 0, "", NULL));
    PLEAT_TRY(pleat__value_length(run->vm, v, &n, &has));
    if (v.kind == PLEAT__V_LOOP) {
        has = true;
        n = v.loop->items->n;
    }
    if (!has) return pleat__vm_fail(run->vm, PLEAT_E_ARG, "a %s has no length", pleat__value_type(v));
    *out = pleat__value_int(n);
    return PLEAT_OK;
}

static pleat_status filter_attr(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    pleat__value name[1];
    PLEAT_TRY(pleat__bind(run->vm, args, "attr", 1, "name", name));
    if (name[0].kind != PLEAT__V_STR) return pleat__vm_fail(run->vm, PLEAT_E_ARG, "attr wants a name");
    if (v.kind == PLEAT__V_DICT) { /* attributes alone, not the dict's items */
        pleat__value empty;
        PLEAT_TRY(pleat__dict_new(run->vm, &empty));
        PLEAT_TRY(pleat__get_attr(run->vm, empty, name[0], out));
        if (out->kind == PLEAT__V_METHOD) out->method->self = v;
        return PLEAT_OK;
    }
    return pleat__get_attr(run->vm, v, name[0], out);
}

/* The separators argument: two strings. */
static pleat_status set_separators(pleat__vm *vm, pleat__value v, pleat__json_style *style) {
    const bool is_pair = (v.kind == PLEAT__V_LIST || v.kind == PLEAT__V_TUPLE) && v.list->n == 2 &&
                         v.list->items[0].kind == PLEAT__V_STR && v.list->items[1].kind == PLEAT__V_STR;
    if (!is_pair) return pleat__vm_fail(vm, PLEAT_E_ARG, "tojson: separators are two strings");
    style->between = v.list->items[0];
    style->colon = v.list->items[1];
    return PLEAT_OK;
}

static pleat_status set_indent(pleat__vm *vm, pleat__value v, pleat__json_style *style) {
    style->is_indented = true;
    style->between = pleat__value_text(",");
    style->indent = v;
    if (v.kind == PLEAT__V_STR) return PLEAT_OK;
    if (!pleat__value_is_int(v)) return pleat__vm_fail(vm, PLEAT_E_ARG, "tojson: indent is a number or a str");
    pleat__builder blanks = {0};
    const int64_t n = pleat__value_to_int(v);
    PLEAT_TRY(pleat__put_repeated(vm, &blanks, " ", 1, n > 0 ? (uint64_t)n : 0));
    style->indent = pleat__built(&blanks);
    return PLEAT_OK;
}

static pleat_status filter_tojson(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    pleat__value a[4];
    pleat__builder b = {0};
    pleat__json_style style = pleat__json_plain();
    PLEAT_TRY(pleat__bind(run->vm, args, "tojson", 0, "ensure_ascii indent separators sort_keys", a));
    style.ensure_ascii = !pleat__is_missing(a[0]) && pleat__value_truth(a[0]);
    style.sort_keys = !pleat__is_missing(a[3]) && pleat__value_truth(a[3]);
    if (!pleat__is_missing(a[1]) && a[1].kind != PLEAT__V_NONE) PLEAT_TRY(set_indent(run->vm, a[1], &style));
    if (!pleat__is_missing(a[2]) && a[2].kind != PLEAT__V_NONE) PLEAT_TRY(set_separators(run->vm, a[2], &style));
    PLEAT_TRY(pleat__json_write(run->vm, &style, v, &b));
    *out = pleat__built(&b);
    return PLEAT_OK;
}

/* ---- by name --------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    pleat__filter_fn apply;
} filters[] = {
    {"abs", filter_abs},
    {"attr", filter_attr},
    {"capitalize", filter_capitalize},
    {"center", filter_center},
    {"count", filter_length},
    {"d", filter_default},
    {"default", filter_default},
    {"dictsort", pleat__filter_dictsort},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"first", pleat__filter_first},
    {"float", filter_float},
    {"forceescape", filter_forceescape},
    {"format", filter_format},
    {"indent", filter_indent},
    {"int", filter_int},
    {"items", pleat__filter_items},
    {"join", pleat__filter_join},
    {"last", pleat__filter_last},
    {"length", filter_length},
    {"list", pleat__filter_list},
    {"lower", filter_lower},
    {"map", pleat__filter_map},
    {"max", pleat__filter_max},
    {"min", pleat__filter_min},
    {"reject", pleat__filter_reject},
    {"rejectattr", pleat__filter_rejectattr},
    {"replace", filter_replace},
    {"reverse", pleat__filter_reverse},
    {"round", filter_round},
    {"safe", filter_safe},
    {"select", pleat__filter_select},
    {"selectattr", pleat__filter_selectattr},
    {"sort", pleat__filter_sort},
    {"string", filter_string},
    {"sum", pleat__filter_sum},
    {"title", filter_title},
    {"tojson", filter_tojson},
    {"trim", filter_trim},
    {"unique", pleat__filter_unique},
    {"upper", filter_upper},
    {"wordcount", filter_wordcount},
};

int pleat__filter_find(pleat__value name) {
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
        if (pleat__is_text(name, filters[i].name)) return (int)i;
    }
    return -1;
}

bool pleat__filter_is_left_out(pleat__value name) {
    static const char *const names[] = {"batch",     "filesizeformat", "groupby",   "pprint", "random",   "slice",
                                        "striptags", "truncate",       "urlencode", "urlize", "wordwrap", "xmlattr"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (pleat__is_text(name, names[i])) return true;
    }
    return false;
}

pleat_status pleat__filter_apply(pleat__run *run, int id, pleat__value input, const pleat__args *args,
                                 pleat__value *out) {
    PLEAT_TRY(pleat__vm_charge(run->vm, 1));
    return filters[id].apply(run, input, args, out);
}
