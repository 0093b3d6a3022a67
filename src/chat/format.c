/* SPDX-License-Identifier: MIT
 *
 * format.c: see format.h.
 */
#include "chat/format.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>

#include "chat/access.h"

#define WIDTH_MAX 10000 /* of one field; what is wider is a mistake or an attack */

/* What stands between a field's mark and its type. */
typedef struct spec {
    uint32_t fill; /* a code point */
    char align;    /* < > ^ =, or 0 */
    char sign;     /* + - or a blank */
    bool is_alternate, has_comma;
    int width;     /* 0: none */
    int precision; /* -1: none */
    char type;     /* 0: none */
} spec;

/* ---- padding and numbers ------------------------------------------------------------------------------------------- */

static pleat_status put_padded(pleat__vm *vm, pleat__builder *b, const spec *how, const char *s, uint32_t n,
                               char usual) {
    const int n_chars = (int)pleat__text_length(s, n), missing = how->width > n_chars ? how->width - n_chars : 0;
    const char align = how->align ? how->align : usual;
    const bool has_sign = n > 0 && (s[0] == '-' || s[0] == '+' || s[0] == ' ');
    const uint32_t head = align == '=' && has_sign ? 1 : 0;
    const int before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
    char fill[4];
    const uint32_t fill_bytes = pleat__char_put(how->fill ? how->fill : ' ', fill);
    PLEAT_TRY(pleat__put(vm, b, s, head));
    PLEAT_TRY(pleat__put_repeated(vm, b, fill, fill_bytes, (uint64_t)before));
    PLEAT_TRY(pleat__put(vm, b, s + head, n - head));
    return pleat__put_repeated(vm, b, fill, fill_bytes, (uint64_t)(missing - before));
}

/* The host program's decimal point becomes a full stop, and the exponent keeps two digits, as Python has them. */
static void as_python(char *text) {
    for (char *p = text; *p; p++) {
        if (!isalnum((unsigned char)*p) && *p != '-' && *p != '+' && *p != '%') *p = '.';
    }
}

static uint32_t int_digits(uint64_t x, char type, char *out) {
    const unsigned base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
    const char *digits = type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    char reversed[72];
    uint32_t n = 0;
    do {
        reversed[n++] = digits[x % base];
        x /= base;
    } while (x);
    for (uint32_t i = 0; i < n; i++) out[i] = reversed[n - 1 - i];
    return n;
}

static pleat_status put_int(pleat__vm *vm, pleat__builder *b, const spec *how, int64_t i) {
    char text[160], digits[72];
    uint32_t n = 0;
    const uint32_t n_digits = int_digits(i < 0 ? 0 - (uint64_t)i : (uint64_t)i, how->type, digits);
    if (i < 0 || how->sign == '+' || how->sign == ' ') text[n++] = i < 0 ? '-' : how->sign;
    if (how->is_alternate && how->type && strchr("xXob", how->type)) {
        text[n++] = '0';
        text[n++] = how->type;
    }
    for (uint32_t k = 0; k < n_digits; k++) {
        if (how->has_comma && k > 0 && (n_digits - k) % 3 == 0) text[n++] = ',';
        text[n++] = digits[k];
    }
    return put_padded(vm, b, how, text, n, '>');
}

static pleat_status put_float(pleat__vm *vm, pleat__builder *b, const spec *how, double f) {
    char text[400], form[16];
    const char type = how->type == '%' ? 'f' : how->type;
    const int precision = how->precision < 0 ? 6 : how->precision;
    if (precision > 60 || how->has_comma || (how->is_alternate && type)) {
        return pleat__vm_fail(vm, PLEAT_E_UNSUPPORTED, "this way to format a float is not supported");
    }
    const char *sign = how->sign == '+' ? "+" : how->sign == ' ' ? " " : "";
    if (how->type == '%') f *= 100;
    if (!type && how->precision < 0) {
        char plain[PLEAT__FLOAT_CAP];
        pleat__float_text(f, plain);
        (void)snprintf(text, sizeof text, "%s%s", signbit(f) ? "" : sign, plain);
    } else {
        (void)snprintf(form, sizeof form, "%%%s.*%c%s", sign, type ? type : 'g', how->type == '%' ? "%%" : "");
        (void)snprintf(text, sizeof text, form, precision, f);
        as_python(text);
    }
    return put_padded(vm, b, how, text, (uint32_t)strlen(text), '>');
}

static pleat_status put_cut(pleat__vm *vm, pleat__builder *b, const spec *how, pleat__value text, char usual) {
    uint32_t n = text.n;
    if (how->precision >= 0) n = pleat__text_offset(text.s, text.n, (uint32_t)how->precision);
    return put_padded(vm, b, how, text.s, n, usual);
}

/* ---- % ------------------------------------------------------------------------------------------------------------- */

typedef struct percent {
    pleat__vm *vm;
    const char *s;
    uint32_t n, at;
    pleat__value values;
    uint32_t n_used; /* of a tuple or the single value */
} percent;

static pleat_status next_value(percent *p, pleat__value *out) {
    const bool is_tuple = p->values.kind == PLEAT__V_TUPLE;
    if (p->n_used >= (is_tuple ? p->values.list->n : 1)) {
        return pleat__vm_fail(p->vm, PLEAT_E_ARG, "not enough values for a text with %%");
    }
    *out = is_tuple ? p->values.list->items[p->n_used] : p->values;
    p->n_used++;
    return PLEAT_OK;
}

static pleat_status named_value(percent *p, pleat__value *out) {
    const uint32_t from = ++p->at;
    while (p->at < p->n && p->s[p->at] != ')') p->at++;
    if (p->at == p->n) return pleat__vm_fail(p->vm, PLEAT_E_ARG, "a name in a text with %% does not end");
    if (p->values.kind != PLEAT__V_DICT)
        return pleat__vm_fail(p->vm, PLEAT_E_ARG, "names in a text with %% want a dict");
    const pleat__value *found = pleat__dict_get(p->values.dict, p->s + from, p->at - from);
    if (!found) return pleat__vm_fail(p->vm, PLEAT_E_ARG, "a name in a text with %% is not in the dict");
    *out = *found;
    p->n_used = 1;
    p->at++;
    return PLEAT_OK;
}

static int read_width(const char *s, uint32_t n, uint32_t *at) {
    int width = 0;
    for (; *at < n && isdigit((unsigned char)s[*at]) && width <= WIDTH_MAX; (*at)++)
        width = width * 10 + (s[*at] - '0');
    return width;
}

static void read_flags(percent *p, spec *how) {
    for (; p->at < p->n && p->s[p->at] && strchr("-+ 0#", p->s[p->at]); p->at++) {
        const char c = p->s[p->at];
        if (c == '-') how->align = '<';
        if (c == '+' || (c == ' ' && !how->sign)) how->sign = c;
        if (c == '#') how->is_alternate = true;
        if (c == '0' && !how->fill) how->fill = '0';
    }
    if (how->align == '<') how->fill = 0;
}

static pleat_status put_percent_value(percent *p, pleat__builder *b, spec *how, pleat__value v) {
    pleat__vm *vm = p->vm;
    if (how->type == 's' || how->type == 'r') {
        pleat__builder text = {0};
        how->fill = 0; /* zeros are for numbers */
        if (how->type == 's')
            PLEAT_TRY(pleat__put_str(vm, &text, v));
        else
            PLEAT_TRY(pleat__put_repr(vm, &text, v));
        return put_cut(vm, b, how, pleat__built(&text), '>');
    }
    if (v.kind == PLEAT__V_UNDEFINED) return pleat__undefined_fail(vm, v);
    if (!pleat__value_is_number(v)) {
        return pleat__vm_fail(vm, PLEAT_E_ARG, "%%%c wants a number, not a %s", how->type, pleat__value_type(v));
    }
    if (how->fill == '0' && !how->align) how->align = '=';
    if (strchr("eEfFgG", how->type)) return put_float(vm, b, how, pleat__value_to_float(v));
    if (v.kind == PLEAT__V_FLOAT && strchr("xXo", how->type))
        return pleat__vm_fail(vm, PLEAT_E_ARG, "%%%c wants a whole number", how->type);
    if (v.kind == PLEAT__V_FLOAT && !(fabs(v.f) < 9e18))
        return pleat__vm_fail(vm, PLEAT_E_ARG, "a float is too large for %%d");
    if (how->precision >= 0) return pleat__vm_fail(vm, PLEAT_E_UNSUPPORTED, "%%.Nd is not supported");
    return put_int(vm, b, how, v.kind == PLEAT__V_FLOAT ? (int64_t)v.f : pleat__value_to_int(v));
}

/* Behind a %. */
static pleat_status put_conversion(percent *p, pleat__builder *b) {
    spec how = {.precision = -1};
    pleat__value v = PLEAT__NONE;
    bool is_named = false;
    if (p->at < p->n && p->s[p->at] == '(') {
        PLEAT_TRY(named_value(p, &v));
        is_named = true;
    }
    read_flags(p, &how);
    how.width = read_width(p->s, p->n, &p->at);
    if (p->at < p->n && p->s[p->at] == '.') {
        p->at++;
        how.precision = read_width(p->s, p->n, &p->at);
    }
    if (p->at == p->n || !p->s[p->at] || !strchr("srdiuxXoeEfFgG%", p->s[p->at]) || how.width > WIDTH_MAX) {
        return pleat__vm_fail(p->vm, PLEAT_E_ARG, "a conversion of a text with %% is damaged or not supported");
    }
    how.type = p->s[p->at++];
    if (how.type == '%') return pleat__put_text(p->vm, b, "%");
    if (!is_named) PLEAT_TRY(next_value(p, &v));
    return put_percent_value(p, b, &how, v);
}

pleat_status pleat__format_percent(pleat__vm *vm, pleat__value text, pleat__value values, pleat__value *out) {
    if (text.sub) return pleat__vm_fail(vm, PLEAT_E_UNSUPPORTED, "%% on safe HTML is not supported");
    percent p = {.vm = vm, .s = text.s, .n = text.n, .values = values};
    pleat__builder b = {0};
    while (p.at < p.n) {
        const char *mark = memchr(p.s + p.at, '%', p.n - p.at);
        const uint32_t end = mark ? (uint32_t)(mark - p.s) : p.n;
        PLEAT_TRY(pleat__put(vm, &b, p.s + p.at, end - p.at));
        p.at = end;
        if (!mark) break;
        p.at++;
        PLEAT_TRY(put_conversion(&p, &b));
    }
    const bool may_remain = values.kind == PLEAT__V_DICT || values.kind == PLEAT__V_LIST ||
                            values.kind == PLEAT__V_RANGE || values.kind == PLEAT__V_UNDEFINED;
    if (!may_remain && p.n_used < (values.kind == PLEAT__V_TUPLE ? values.list->n : 1)) {
        return pleat__vm_fail(vm, PLEAT_E_ARG, "more values than a text with %% takes");
    }
    *out = pleat__built(&b);
    return PLEAT_OK;
}

/* ---- {} ------------------------------------------------------------------------------------------------------------ */

typedef struct braces {
    pleat__vm *vm;
    const pleat__args *args;
    uint32_t n_auto;
    bool is_numbered; /* a field had a number; fields with and without do not mix */
} braces;

static pleat_status damaged(const braces *p) {
    return pleat__vm_fail(p->vm, PLEAT_E_ARG, "a field of format() is damaged or not supported");
}

static pleat_status plain_value(braces *p, int64_t at, pleat__value *out) {
    if (at < 0 || at >= p->args->plain->n)
        return pleat__vm_fail(p->vm, PLEAT_E_ARG, "format() has no value number %lld", (long long)at);
    *out = p->args->plain->items[at];
    return PLEAT_OK;
}

/* The value that "0", "name" or "" stands for. */
static pleat_status first_value(braces *p, const char *s, uint32_t n, pleat__value *out) {
    int64_t at;
    if (n == 0) {
        if (p->is_numbered) return damaged(p);
        return plain_value(p, p->n_auto++, out);
    }
    if (isdigit((unsigned char)s[0]) && pleat__text_to_int(s, n, 10, &at)) {
        if (p->n_auto > 0) return damaged(p);
        p->is_numbered = true;
        return plain_value(p, at, out);
    }
    const pleat__value *found = pleat__dict_get(p->args->named, s, n);
    if (!found) return pleat__vm_fail(p->vm, PLEAT_E_ARG, "format() has no value '%.*s'", n > 60 ? 60 : (int)n, s);
    *out = *found;
    return PLEAT_OK;
}

/* ".name" and "[key]" behind it, at s[at..n). */
static pleat_status follow(braces *p, const char *s, uint32_t n, uint32_t at, pleat__value *out) {
    while (at < n) {
        const bool is_item = s[at] == '[';
        const uint32_t from = ++at;
        while (at < n && (is_item ? s[at] != ']' : s[at] != '.' && s[at] != '[')) at++;
        if (at == from || (is_item && at == n)) return damaged(p);
        pleat__value key = pleat__value_str(s + from, at - from);
        int64_t number;
        if (is_item && isdigit((unsigned char)s[from]) && pleat__text_to_int(key.s, key.n, 10, &number))
            key = pleat__value_int(number);
        if (is_item)
            PLEAT_TRY(pleat__get_item(p->vm, *out, key, out));
        else
            PLEAT_TRY(pleat__get_attr(p->vm, *out, key, out));
        at += is_item;
        if (at < n && s[at] != '.' && s[at] != '[') return damaged(p);
    }
    return PLEAT_OK;
}

static bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

/* "[[fill]align][sign][#][0][width][,][.precision][type]" */
static pleat_status read_spec(braces *p, const char *s, uint32_t n, spec *out) {
    uint32_t at = 0, len = 0;
    const uint32_t first = n > 0 ? pleat__char_at(s, n, 0, &len) : 0;
    *out = (spec){.precision = -1};
    if (n > len && len > 0 && is_align(s[len])) {
        out->fill = first;
        out->align = s[len];
        at = len + 1;
    } else if (n > 0 && is_align(s[0])) {
        out->align = s[at++];
    }
    if (at < n && strchr("+- ", s[at]) && s[at]) out->sign = s[at++];
    if (at < n && s[at] == '#') out->is_alternate = s[at++] == '#';
    if (at < n && s[at] == '0') {
        if (!out->fill) out->fill = '0';
        if (!out->align) out->align = '=';
        at++;
    }
    out->width = read_width(s, n, &at);
    if (at < n && s[at] == ',') out->has_comma = s[at++] == ',';
    if (at < n && s[at] == '.') {
        const uint32_t from = ++at;
        out->precision = read_width(s, n, &at);
        if (at == from) return damaged(p);
    }
    if (at < n) out->type = s[at++];
    return at < n || out->width > WIDTH_MAX || out->precision > WIDTH_MAX ? damaged(p) : PLEAT_OK;
}

static pleat_status put_value(braces *p, pleat__builder *b, const spec *how, pleat__value v, bool has_spec) {
    if (!has_spec) return pleat__put_str(p->vm, b, v);
    if (v.kind == PLEAT__V_STR) {
        if (how->sign || how->has_comma || how->is_alternate || how->align == '=' || (how->type && how->type != 's'))
            return damaged(p);
        return put_cut(p->vm, b, how, v, '<');
    }
    const bool is_float_type = how->type && strchr("eEfFgG%", how->type);
    if (v.kind == PLEAT__V_FLOAT || (pleat__value_is_int(v) && is_float_type)) {
        if (how->type && !is_float_type) return damaged(p);
        if (!how->type && how->precision >= 0) return damaged(p);
        return put_float(p->vm, b, how, pleat__value_to_float(v));
    }
    if (!pleat__value_is_int(v) || how->precision >= 0 || (how->type && !strchr("dxXob", how->type))) return damaged(p);
    return put_int(p->vm, b, how, pleat__value_to_int(v));
}

/* A field's inside, s[0..n). */
static pleat_status put_field(braces *p, pleat__builder *b, const char *s, uint32_t n) {
    uint32_t name = 0, end, first = 0;
    spec how;
    char conversion = 0;
    pleat__value v;
    while (name < n && s[name] != ':' && s[name] != '!') name++;
    end = name;
    if (end < n && s[end] == '!') {
        if (n - end < 2 || (s[end + 1] != 'r' && s[end + 1] != 's') || (n - end > 2 && s[end + 2] != ':'))
            return damaged(p);
        conversion = s[end + 1];
        end += 2;
    }
    while (first < name && s[first] != '.' && s[first] != '[') first++;
    PLEAT_TRY(first_value(p, s, first, &v));
    PLEAT_TRY(follow(p, s, name, first, &v));
    if (conversion) {
        pleat__builder text = {0};
        PLEAT_TRY(conversion == 'r' ? pleat__put_repr(p->vm, &text, v) : pleat__put_str(p->vm, &text, v));
        v = pleat__built(&text);
    }
    const bool has_spec = end + 1 < n;
    PLEAT_TRY(read_spec(p, s + end + has_spec, has_spec ? n - end - 1 : 0, &how));
    return put_value(p, b, &how, v, has_spec);
}

pleat_status pleat__format_braces(pleat__vm *vm, pleat__value text, const pleat__args *args, pleat__value *out) {
    braces p = {.vm = vm, .args = args};
    pleat__builder b = {0};
    if (text.sub) return pleat__vm_fail(vm, PLEAT_E_UNSUPPORTED, "format() of safe HTML is not supported");
    for (uint32_t i = 0; i < text.n;) {
        const char c = text.s[i];
        if (c != '{' && c != '}') {
            PLEAT_TRY(pleat__put(vm, &b, text.s + i++, 1));
            continue;
        }
        if (i + 1 < text.n && text.s[i + 1] == c) {
            PLEAT_TRY(pleat__put(vm, &b, &c, 1));
            i += 2;
            continue;
        }
        uint32_t end = i + 1;
        while (end < text.n && text.s[end] != '}' && text.s[end] != '{') end++;
        if (c == '}' || end == text.n || text.s[end] == '{') return damaged(&p);
        PLEAT_TRY(put_field(&p, &b, text.s + i + 1, end - i - 1));
        i = end + 1;
    }
    *out = pleat__built(&b);
    return PLEAT_OK;
}
