/* SPDX-License-Identifier: MIT
 *
 * json_read.c: see json.h.
 */
#include <errno.h>
#include <locale.h>
#include <stdlib.h>

#include "chat/json.h"
#include "core/utf8.h"

typedef struct reader {
    pleat__vm *vm;
    const char *text; /* [n] */
    size_t n, at;
    uint32_t depth;
} reader;

static pleat_status fail(const reader *r, const char *what) {
    return pleat__error_set(r->vm->err, PLEAT_E_SYNTAX, r->at, "JSON: %s at byte %zu", what, r->at);
}

static int peek(const reader *r) { return r->at < r->n ? (unsigned char)r->text[r->at] : -1; }

static void skip_blanks(reader *r) {
    while (r->at < r->n && strchr(" \t\r\n", r->text[r->at]) && r->text[r->at]) r->at++;
}

/* ---- strings ----------------------------------------------------------------------------------------------------- */

static bool read_hex4(reader *r, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        const int c = peek(r);
        if (c >= '0' && c <= '9')
            *out = *out * 16 + (uint32_t)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            *out = *out * 16 + (uint32_t)((c | 32) - 'a' + 10);
        else
            return false;
    }
    return true;
}

/* Behind "\u". */
static pleat_status read_code_point(reader *r, uint32_t *out) {
    uint32_t low;
    if (!read_hex4(r, out)) return fail(r, "four hexadecimal digits are wanted");
    if (*out < 0xD800 || *out > 0xDFFF) return PLEAT_OK;
    const bool is_pair = *out < 0xDC00 && r->n - r->at >= 6 && r->text[r->at] == '\\' && r->text[r->at + 1] == 'u';
    if (!is_pair) return fail(r, "a lone surrogate");
    r->at += 2;
    if (!read_hex4(r, &low) || low < 0xDC00 || low > 0xDFFF) return fail(r, "a lone surrogate");
    *out = 0x10000 + ((*out - 0xD800) << 10) + (low - 0xDC00);
    return PLEAT_OK;
}

static pleat_status read_escape(reader *r, pleat__builder *b) {
    static const char letters[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    const int c = peek(r);
    const char *found = c > 0 ? strchr(letters, c) : NULL;
    if (found) {
        r->at++;
        return pleat__put(r->vm, b, &means[found - letters], 1);
    }
    if (c != 'u') return fail(r, "an escape that JSON does not have");
    r->at++;
    uint32_t cp;
    PLEAT_TRY(read_code_point(r, &cp));
    return pleat__put_char(r->vm, b, cp);
}

/* How many bytes from here on stand for themselves. */
static size_t plain_bytes(const reader *r) {
    size_t i = r->at;
    while (i < r->n && r->text[i] != '"' && r->text[i] != '\\' && (unsigned char)r->text[i] >= 0x20) i++;
    return i - r->at;
}

static pleat_status read_string(reader *r, pleat__value *out) {
    const char *start = r->text + ++r->at;
    size_t n = plain_bytes(r);
    r->at += n;
    if (peek(r) == '"') {
        if (n >= UINT32_MAX / 4) return fail(r, "a string is too long");
        r->at++;
        *out = pleat__value_str(start, n);
        return PLEAT_OK;
    }
    pleat__builder b = {0};
    PLEAT_TRY(pleat__put(r->vm, &b, start, n));
    while (peek(r) == '\\') {
        r->at++;
        PLEAT_TRY(read_escape(r, &b));
        n = plain_bytes(r);
        PLEAT_TRY(pleat__put(r->vm, &b, r->text + r->at, n));
        r->at += n;
    }
    if (peek(r) != '"') return fail(r, r->at == r->n ? "a string does not end" : "a control character in a string");
    r->at++;
    *out = pleat__built(&b);
    return PLEAT_OK;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static size_t skip_digits(reader *r) {
    const size_t from = r->at;
    while (peek(r) >= '0' && peek(r) <= '9') r->at++;
    return r->at - from;
}

/* strtod() follows the locale, in which a host program may have another decimal point. */
static pleat_status to_float(reader *r, const char *s, size_t n, pleat__value *out) {
    char *copy;
    PLEAT_TRY(pleat__vm_take_text(r->vm, n + 8, &copy));
    const char *point = localeconv()->decimal_point;
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '.' && point[1] == '\0')
            copy[k++] = point[0];
        else
            copy[k++] = s[i];
    }
    copy[k] = '\0';
    *out = pleat__value_float(strtod(copy, NULL));
    return PLEAT_OK;
}

static pleat_status read_number(reader *r, pleat__value *out) {
    const size_t from = r->at;
    bool is_float = false;
    if (peek(r) == '-') r->at++;
    const bool is_zero = peek(r) == '0';
    const size_t n_digits = skip_digits(r);
    if (n_digits == 0 || (is_zero && n_digits > 1)) return fail(r, "no number, or one with a zero in front,");
    if (peek(r) == '.') {
        is_float = true;
        r->at++;
        if (skip_digits(r) == 0) return fail(r, "digits are wanted");
    }
    if ((peek(r) | 32) == 'e') {
        is_float = true;
        r->at++;
        if (peek(r) == '+' || peek(r) == '-') r->at++;
        if (skip_digits(r) == 0) return fail(r, "digits are wanted");
    }
    if (is_float) return to_float(r, r->text + from, r->at - from, out);
    int64_t x;
    if (r->at - from > 30 || !pleat__text_to_int(r->text + from, (uint32_t)(r->at - from), 10, &x)) {
        return fail(r, "a whole number beyond 64 bits");
    }
    *out = pleat__value_int(x);
    return PLEAT_OK;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static pleat_status read_value(reader *r, pleat__value *out);

static pleat_status read_array(reader *r, pleat__value *out) {
    PLEAT_TRY(pleat__list_new(r->vm, PLEAT__V_LIST, 0, out));
    r->at++;
    skip_blanks(r);
    if (peek(r) == ']') {
        r->at++;
        return PLEAT_OK;
    }
    for (;;) {
        pleat__value item;
        PLEAT_TRY(read_value(r, &item));
        PLEAT_TRY(pleat__list_add(r->vm, out->list, item));
        if (peek(r) == ']') break;
        if (peek(r) != ',') return fail(r, "',' or ']' is wanted");
        r->at++;
    }
    r->at++;
    return PLEAT_OK;
}

static pleat_status read_object(reader *r, pleat__value *out) {
    PLEAT_TRY(pleat__dict_new(r->vm, out));
    r->at++;
    skip_blanks(r);
    if (peek(r) == '}') {
        r->at++;
        return PLEAT_OK;
    }
    for (;;) {
        pleat__value key, value;
        skip_blanks(r);
        if (peek(r) != '"') return fail(r, "a key in quotes is wanted");
        PLEAT_TRY(read_string(r, &key));
        skip_blanks(r);
        if (peek(r) != ':') return fail(r, "':' is wanted");
        r->at++;
        PLEAT_TRY(read_value(r, &value));
        PLEAT_TRY(pleat__dict_set(r->vm, out->dict, key, value));
        if (peek(r) == '}') break;
        if (peek(r) != ',') return fail(r, "',' or '}' is wanted");
        r->at++;
    }
    r->at++;
    return PLEAT_OK;
}

static pleat_status read_word(reader *r, pleat__value *out) {
    static const struct {
        const char *word;
        pleat__value value;
    } words[] = {{"true", {.kind = PLEAT__V_BOOL, .b = true}},
                 {"false", {.kind = PLEAT__V_BOOL}},
                 {"null", {.kind = PLEAT__V_NONE}}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const size_t n = strlen(words[i].word);
        if (r->n - r->at < n || memcmp(r->text + r->at, words[i].word, n) != 0) continue;
        r->at += n;
        *out = words[i].value;
        return PLEAT_OK;
    }
    return fail(r, "no value");
}

/* A value and the blanks around it. */
static pleat_status read_value(reader *r, pleat__value *out) {
    skip_blanks(r);
    PLEAT_TRY(pleat__vm_charge(r->vm, 1));
    const int c = peek(r);
    if (c == '[' || c == '{') {
        if (r->depth >= PLEAT__JSON_DEPTH) return fail(r, "nested too deep");
        r->depth++;
        if (c == '[')
            PLEAT_TRY(read_array(r, out));
        else
            PLEAT_TRY(read_object(r, out));
        r->depth--;
    } else if (c == '"') {
        PLEAT_TRY(read_string(r, out));
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        PLEAT_TRY(read_number(r, out));
    } else {
        PLEAT_TRY(read_word(r, out));
    }
    skip_blanks(r);
    return PLEAT_OK;
}

pleat_status pleat__json_read(pleat__vm *vm, const char *text, size_t n_bytes, pleat__value *out) {
    reader r = {.vm = vm, .text = text, .n = n_bytes};
    const uint64_t good = pleat__utf8_prefix(text, n_bytes);
    if (good < n_bytes) {
        r.at = good;
        return fail(&r, "no UTF-8");
    }
    PLEAT_TRY(read_value(&r, out));
    return r.at == n_bytes ? PLEAT_OK : fail(&r, "something behind the value");
}
