/* SPDX-License-Identifier: MIT
 *
 * text.c: see text.h.  Tables of code points are in unicode.c.
 */
#include "chat/text.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "chat/eval.h"
#include "core/utf8.h"

#define STRING_BYTES_MAX (1u << 30)

/* ---- code points ------------------------------------------------------------------------------------------------- */

uint32_t pleat__text_length(const char *s, uint32_t n) {
    uint32_t n_chars = 0;
    for (uint32_t i = 0; i < n; i++) n_chars += (s[i] & 0xC0) != 0x80;
    return n_chars;
}

uint32_t pleat__text_offset(const char *s, uint32_t n, uint32_t n_chars) {
    uint32_t at = 0;
    for (; n_chars > 0 && at < n; n_chars--) at += pleat__char_bytes(s[at]);
    return at;
}

uint32_t pleat__char_at(const char *s, uint32_t n, uint32_t at, uint32_t *len) {
    uint32_t cp = 0xFFFD;
    *len = pleat__utf8_decode(s + at, n - at, &cp);
    if (*len == 0) *len = 1; /* all text has been checked: cannot happen */
    return cp;
}

uint32_t pleat__char_put(uint32_t cp, char out[4]) {
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    const uint32_t len = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (uint32_t i = len - 1; i > 0; i--, cp >>= 6) out[i] = (char)(0x80 | (cp & 0x3F));
    out[0] = (char)((0xF00u >> len & 0xFF) | cp);
    return len;
}

/* ---- building ---------------------------------------------------------------------------------------------------- */

static pleat_status make_room(pleat__vm *vm, pleat__builder *b, uint64_t more) {
    const uint64_t max = b->max ? b->max : STRING_BYTES_MAX;
    if (more > max || b->n > max - more) {
        return pleat__vm_fail(vm, PLEAT_E_LIMIT, "a text is longer than %llu bytes", (unsigned long long)max);
    }
    if (b->cap - b->n >= more) return PLEAT_OK;
    const uint64_t need = b->n + more;
    if (pleat__vm_extend(vm, b->p, b->cap, need - b->cap)) {
        b->cap = (uint32_t)need;
        return PLEAT_OK;
    }
    uint64_t cap = b->cap < 64 ? 64 : 2 * (uint64_t)b->cap;
    if (cap < need) cap = need;
    char *p;
    PLEAT_TRY(pleat__vm_take_text(vm, cap, &p));
    if (b->n > 0) memcpy(p, b->p, b->n);
    b->p = p;
    b->cap = (uint32_t)cap;
    return PLEAT_OK;
}

pleat_status pleat__put(pleat__vm *vm, pleat__builder *b, const char *s, uint64_t n) {
    if (n == 0) return PLEAT_OK;
    PLEAT_TRY(pleat__vm_charge(vm, n / 64));
    PLEAT_TRY(make_room(vm, b, n));
    memcpy(b->p + b->n, s, n);
    b->n += (uint32_t)n;
    return PLEAT_OK;
}

pleat_status pleat__put_text(pleat__vm *vm, pleat__builder *b, const char *s) {
    return pleat__put(vm, b, s, strlen(s));
}

pleat_status pleat__put_char(pleat__vm *vm, pleat__builder *b, uint32_t cp) {
    char utf8[4];
    return pleat__put(vm, b, utf8, pleat__char_put(cp, utf8));
}

pleat_status pleat__put_repeated(pleat__vm *vm, pleat__builder *b, const char *s, uint64_t n, uint64_t times) {
    if (n == 0 || times == 0) return PLEAT_OK;
    if (times > STRING_BYTES_MAX / n) return pleat__vm_fail(vm, PLEAT_E_LIMIT, "a text is repeated too often");
    PLEAT_TRY(pleat__vm_charge(vm, times));
    PLEAT_TRY(make_room(vm, b, n * times));
    for (uint64_t i = 0; i < times; i++) PLEAT_TRY(pleat__put(vm, b, s, n));
    return PLEAT_OK;
}

pleat_status pleat__put_escaped(pleat__vm *vm, pleat__builder *b, const char *s, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        switch (s[i]) {
            case '&': PLEAT_TRY(pleat__put_text(vm, b, "&amp;")); break;
            case '<': PLEAT_TRY(pleat__put_text(vm, b, "&lt;")); break;
            case '>': PLEAT_TRY(pleat__put_text(vm, b, "&gt;")); break;
            case '"': PLEAT_TRY(pleat__put_text(vm, b, "&#34;")); break;
            case '\'': PLEAT_TRY(pleat__put_text(vm, b, "&#39;")); break;
            default: PLEAT_TRY(pleat__put(vm, b, s + i, 1)); break;
        }
    }
    return pleat__vm_charge(vm, n / 64);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* The digits of f, without its sign, and the power of ten of the first one: 0.5 is "5" and -1.  Only digits are looked
 * at, since the decimal point is the host program's. */
static int shortest_digits(double f, char digits[24]) {
    char text[40];
    int precision = 0;
    do {
        (void)snprintf(text, sizeof text, "%.*e", precision, f);
    } while (strtod(text, NULL) != f && ++precision < 17);
    int n = 0, exponent = 0;
    const char *p = text;
    for (; *p && *p != 'e'; p++) {
        if (isdigit((unsigned char)*p) && n < 23) digits[n++] = *p;
    }
    if (*p == 'e') exponent = (int)strtol(p + 1, NULL, 10);
    while (n > 1 && digits[n - 1] == '0') n--;
    digits[n] = '\0';
    return exponent;
}

void pleat__float_text(double f, char out[PLEAT__FLOAT_CAP]) {
    if (isnan(f) || isinf(f)) {
        (void)snprintf(out, PLEAT__FLOAT_CAP, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    char digits[24];
    const char *sign = signbit(f) ? "-" : "";
    const int e = shortest_digits(fabs(f), digits), n = (int)strlen(digits);
    char text[64]; /* at most 25 characters are used: a sign, 17 digits, a point, "e-308" */
    if (f == 0) {
        (void)snprintf(text, sizeof text, "%s0.0", sign);
    } else if (e < -4 || e >= 16) {
        (void)snprintf(text, sizeof text, "%s%c%s%se%c%02d", sign, digits[0], n > 1 ? "." : "", digits + 1,
                       e < 0 ? '-' : '+', abs(e));
    } else if (e < 0) {
        (void)snprintf(text, sizeof text, "%s0.%.*s%s", sign, -e - 1, "0000", digits);
    } else if (n > e + 1) {
        (void)snprintf(text, sizeof text, "%s%.*s.%s", sign, e + 1, digits, digits + e + 1);
    } else {
        (void)snprintf(text, sizeof text, "%s%s%.*s.0", sign, digits, e + 1 - n, "0000000000000000");
    }
    (void)snprintf(out, PLEAT__FLOAT_CAP, "%.31s", text);
}

/* Blanks around cut off, `_` between digits dropped, as int() and float() read text; false: too long or no number. */
static bool plain_number(const char *s, uint32_t n, char *out, size_t cap) {
    uint32_t from = 0, len;
    while (from < n && pleat__char_is_space(pleat__char_at(s, n, from, &len))) from += len;
    while (n > from && (uint8_t)s[n - 1] < 0x80 && pleat__char_is_space((uint8_t)s[n - 1])) n--;
    size_t k = 0;
    for (uint32_t i = from; i < n; i++) {
        const bool is_between =
            i > from && i + 1 < n && isalnum((unsigned char)s[i - 1]) && isalnum((unsigned char)s[i + 1]);
        if (s[i] == '_' && is_between) continue;
        if (k + 1 >= cap || s[i] == '_' || s[i] == '\0') return false;
        out[k++] = s[i];
    }
    out[k] = '\0';
    return k > 0;
}

bool pleat__text_to_float(const char *s, uint32_t n, double *out) {
    char plain[64], *end;
    if (!plain_number(s, n, plain, sizeof plain)) return false;
    if (strpbrk(plain, "xXpP(,")) return false; /* of C, not of Python */
    char *point = strchr(plain, '.');
    if (point) *point = localeconv()->decimal_point[0]; /* strtod() reads the host program's */
    *out = strtod(plain, &end);
    return *end == '\0' && !isspace((unsigned char)plain[0]);
}

bool pleat__text_to_int(const char *s, uint32_t n, int base, int64_t *out) {
    char plain[80], *end;
    if (!plain_number(s, n, plain, sizeof plain)) return false;
    char *p = plain + (plain[0] == '-' || plain[0] == '+');
    const int letter = p[0] == '0' ? tolower((unsigned char)p[1]) : 0;
    const int marked = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (marked && (base == marked || base == 0)) {
        memmove(p, p + 2, strlen(p + 2) + 1);
        base = marked;
    }
    if (base == 0) base = 10;
    if (!isalnum((unsigned char)*p) || (base == 16 && p[0] == '0' && tolower((unsigned char)p[1]) == 'x')) return false;
    errno = 0;
    *out = strtoll(plain, &end, base);
    return *end == '\0' && errno == 0;
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

static pleat_status put_repr_char(pleat__vm *vm, pleat__builder *b, uint32_t cp, char quote) {
    char text[16];
    switch (cp) {
        case '\n': return pleat__put_text(vm, b, "\\n");
        case '\r': return pleat__put_text(vm, b, "\\r");
        case '\t': return pleat__put_text(vm, b, "\\t");
        case '\\': return pleat__put_text(vm, b, "\\\\");
        default: break;
    }
    if (cp == (uint32_t)quote) PLEAT_TRY(pleat__put_text(vm, b, "\\"));
    if (pleat__char_is_printable(cp)) return pleat__put_char(vm, b, cp);
    (void)snprintf(text, sizeof text, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
    return pleat__put_text(vm, b, text);
}

static pleat_status put_quoted(pleat__vm *vm, pleat__builder *b, pleat__value v) {
    const bool has_single = v.n > 0 && memchr(v.s, '\'', v.n), has_double = v.n > 0 && memchr(v.s, '"', v.n);
    const char quote = has_single && !has_double ? '"' : '\'';
    PLEAT_TRY(pleat__put(vm, b, &quote, 1));
    for (uint32_t i = 0, len; i < v.n; i += len) {
        PLEAT_TRY(put_repr_char(vm, b, pleat__char_at(v.s, v.n, i, &len), quote));
    }
    PLEAT_TRY(pleat__put(vm, b, &quote, 1));
    return pleat__vm_charge(vm, v.n / 16);
}

static pleat_status put_list(pleat__vm *vm, pleat__builder *b, const pleat__list *list, const char *open,
                             const char *close) {
    PLEAT_TRY(pleat__put_text(vm, b, open));
    for (uint32_t i = 0; i < list->n; i++) {
        if (i > 0) PLEAT_TRY(pleat__put_text(vm, b, ", "));
        PLEAT_TRY(pleat__vm_charge(vm, 1));
        PLEAT_TRY(pleat__put_repr(vm, b, list->items[i]));
    }
    return pleat__put_text(vm, b, close);
}

static pleat_status put_dict(pleat__vm *vm, pleat__builder *b, const pleat__dict *dict) {
    PLEAT_TRY(pleat__put_text(vm, b, "{"));
    for (uint32_t i = 0; i < dict->n; i++) {
        if (i > 0) PLEAT_TRY(pleat__put_text(vm, b, ", "));
        PLEAT_TRY(pleat__vm_charge(vm, 1));
        PLEAT_TRY(pleat__put_repr(vm, b, dict->pairs[i].key));
        PLEAT_TRY(pleat__put_text(vm, b, ": "));
        PLEAT_TRY(pleat__put_repr(vm, b, dict->pairs[i].value));
    }
    return pleat__put_text(vm, b, "}");
}

static pleat_status put_nested(pleat__vm *vm, pleat__builder *b, pleat__value v) {
    static const char *const views[] = {"dict_keys([", "dict_values([", "dict_items(["};
    switch (v.kind) {
        case PLEAT__V_LIST: return put_list(vm, b, v.list, "[", "]");
        case PLEAT__V_TUPLE: return put_list(vm, b, v.list, "(", v.list->n == 1 ? ",)" : ")");
        case PLEAT__V_VIEW: return put_list(vm, b, v.list, views[v.sub], "])");
        case PLEAT__V_DICT: return put_dict(vm, b, v.dict);
        case PLEAT__V_NAMESPACE:
            PLEAT_TRY(pleat__put_text(vm, b, "<Namespace "));
            PLEAT_TRY(put_dict(vm, b, v.dict));
            return pleat__put_text(vm, b, ">");
        default:
            return pleat__vm_fail(vm, PLEAT_E_ARG, "a %s has no text that is worth printing", pleat__value_type(v));
    }
}

static pleat_status put_range(pleat__vm *vm, pleat__builder *b, const pleat__range *r) {
    char text[80];
    if (r->step == 1)
        (void)snprintf(text, sizeof text, "range(%lld, %lld)", (long long)r->start, (long long)r->stop);
    else
        (void)snprintf(text, sizeof text, "range(%lld, %lld, %lld)", (long long)r->start, (long long)r->stop,
                       (long long)r->step);
    return pleat__put_text(vm, b, text);
}

pleat_status pleat__put_repr(pleat__vm *vm, pleat__builder *b, pleat__value v) {
    char text[PLEAT__FLOAT_CAP];
    switch (v.kind) {
        case PLEAT__V_UNDEFINED: return pleat__put_text(vm, b, "Undefined");
        case PLEAT__V_NONE: return pleat__put_text(vm, b, "None");
        case PLEAT__V_BOOL: return pleat__put_text(vm, b, v.b ? "True" : "False");
        case PLEAT__V_INT:
            (void)snprintf(text, sizeof text, "%lld", (long long)v.i);
            return pleat__put_text(vm, b, text);
        case PLEAT__V_FLOAT: pleat__float_text(v.f, text); return pleat__put_text(vm, b, text);
        case PLEAT__V_STR:
            if (v.sub) PLEAT_TRY(pleat__put_text(vm, b, "Markup("));
            PLEAT_TRY(put_quoted(vm, b, v));
            return v.sub ? pleat__put_text(vm, b, ")") : PLEAT_OK;
        case PLEAT__V_RANGE: return put_range(vm, b, v.range);
        case PLEAT__V_MACRO:
            PLEAT_TRY(pleat__put_text(vm, b, "<Macro "));
            PLEAT_TRY(put_quoted(vm, b, v.macro->node->value));
            return pleat__put_text(vm, b, ">");
        default: break;
    }
    PLEAT_TRY(pleat__vm_enter(vm));
    PLEAT_TRY(put_nested(vm, b, v));
    pleat__vm_leave(vm);
    return PLEAT_OK;
}

pleat_status pleat__put_str(pleat__vm *vm, pleat__builder *b, pleat__value v) {
    if (v.kind == PLEAT__V_STR) return pleat__put(vm, b, v.s, v.n);
    if (v.kind == PLEAT__V_UNDEFINED) return PLEAT_OK;
    return pleat__put_repr(vm, b, v);
}

pleat_status pleat__to_str(pleat__vm *vm, pleat__value v, pleat__value *out) {
    if (v.kind == PLEAT__V_STR) {
        *out = pleat__value_str(v.s, v.n);
        return PLEAT_OK;
    }
    pleat__builder b = {0};
    PLEAT_TRY(pleat__put_str(vm, &b, v));
    *out = pleat__built(&b);
    return PLEAT_OK;
}
