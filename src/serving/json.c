/* SPDX-License-Identifier: MIT
 *
 * json.c: see json.h.
 */
#include "serving/json.h"

#include <string.h>

static bool go(pleat__json *s, pleat__json_mode mode) {
    s->mode = (uint8_t)mode;
    return true;
}

static bool is_digit(uint8_t c) { return c >= '0' && c <= '9'; }
static bool is_hex(uint8_t c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

/* ---- what encloses ----------------------------------------------------------------------------------------------------- */

static bool in_list(const pleat__json *s) { return s->stack & 1; }

static bool open(pleat__json *s, bool is_list) {
    if (s->depth == PLEAT__JSON_DEPTH) return false;
    s->depth++;
    s->stack = s->stack << 1 | is_list;
    return go(s, is_list ? PLEAT__JSON_VALUE_OR_END : PLEAT__JSON_KEY_OR_END);
}

static bool close(pleat__json *s) {
    s->depth--;
    s->stack >>= 1;
    return go(s, s->depth > 0 ? PLEAT__JSON_AFTER : PLEAT__JSON_WHOLE);
}

/* ---- values -------------------------------------------------------------------------------------------------------------- */

static bool begin_string(pleat__json *s, bool is_key) {
    s->is_key = is_key;
    return go(s, PLEAT__JSON_STRING);
}

static bool begin_value(pleat__json *s, uint8_t c) {
    static const struct {
        char first;
        const char *rest;
    } literals[] = {{'t', "rue"}, {'f', "alse"}, {'n', "ull"}};
    if (c == '{' || c == '[') return open(s, c == '[');
    if (c == '"') return begin_string(s, false);
    if (c == '-') return go(s, PLEAT__JSON_MINUS);
    if (is_digit(c)) return go(s, c == '0' ? PLEAT__JSON_ZERO : PLEAT__JSON_INT);
    for (uint32_t i = 0; i < 3; i++) {
        if (c != literals[i].first) continue;
        s->rest = literals[i].rest;
        return go(s, PLEAT__JSON_LITERAL);
    }
    return false;
}

static bool after_value(pleat__json *s, uint8_t c) {
    if (c == ',') return go(s, in_list(s) ? PLEAT__JSON_VALUE : PLEAT__JSON_KEY);
    return c == (in_list(s) ? ']' : '}') && close(s);
}

/* Bytes between tokens of JSON. */
static bool take_structure(pleat__json *s, uint8_t c) {
    switch (s->mode) {
        case PLEAT__JSON_START: return c == '{' && open(s, false);
        case PLEAT__JSON_KEY_OR_END: return c == '}' ? close(s) : c == '"' && begin_string(s, true);
        case PLEAT__JSON_KEY: return c == '"' && begin_string(s, true);
        case PLEAT__JSON_COLON: return c == ':' && go(s, PLEAT__JSON_VALUE);
        case PLEAT__JSON_VALUE: return begin_value(s, c);
        case PLEAT__JSON_VALUE_OR_END: return c == ']' ? close(s) : begin_value(s, c);
        case PLEAT__JSON_AFTER: return after_value(s, c);
        default: return false; /* WHOLE */
    }
}

static bool take_outside(pleat__json *s, uint8_t c) {
    if (c == ' ' || c == '\n' || c == '\r' || c == '\t') return s->n_blanks++ < PLEAT__JSON_BLANKS;
    s->n_blanks = 0;
    return take_structure(s, c);
}

/* ---- strings ------------------------------------------------------------------------------------------------------------- */

/* The first byte of a character beyond ASCII (RFC 3629): ranges of the second keep out long forms and surrogates. */
static bool begin_character(pleat__json *s, uint8_t c) {
    if (c < 0xC2 || c > 0xF4) return false;
    s->n_more = c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : 1;
    s->low = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
    s->high = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    return go(s, PLEAT__JSON_UTF8);
}

static bool take_character(pleat__json *s, uint8_t c) {
    if (c < s->low || c > s->high) return false;
    s->low = 0x80;
    s->high = 0xBF;
    return --s->n_more > 0 || go(s, PLEAT__JSON_STRING);
}

static bool take_plain(pleat__json *s, uint8_t c) {
    if (c == '"') return go(s, s->is_key ? PLEAT__JSON_COLON : PLEAT__JSON_AFTER);
    if (c == '\\') return go(s, PLEAT__JSON_ESCAPE);
    return c >= 0x80 ? begin_character(s, c) : c >= 0x20;
}

static bool begin_hex(pleat__json *s, uint8_t n_more, pleat__json_mode mode) {
    s->n_more = n_more;
    return go(s, mode);
}

/* \uXXXX: its digits are 1 and 3, and after D 1, 1 and 2. */
static bool take_escape(pleat__json *s, uint8_t c) {
    switch (s->mode) {
        case PLEAT__JSON_ESCAPE:
            if (c == 'u') return begin_hex(s, 4, PLEAT__JSON_HEX);
            return c && strchr("\"\\/bfnrt", c) && go(s, PLEAT__JSON_STRING);
        case PLEAT__JSON_HEX:
            if (!is_hex(c)) return false;
            if (s->n_more == 4 && (c == 'd' || c == 'D')) return go(s, PLEAT__JSON_HEX_D);
            if (--s->n_more > 0) return true;
            if (!s->is_high) return go(s, PLEAT__JSON_STRING);
            s->is_high = false;
            return begin_hex(s, 3, PLEAT__JSON_LOW);
        case PLEAT__JSON_HEX_D:
            if (!is_hex(c) || (c >= 'c' && c <= 'f') || (c >= 'C' && c <= 'F')) return false;
            s->is_high = c > '7';
            return begin_hex(s, 2, PLEAT__JSON_HEX);
        case PLEAT__JSON_LOW:
            if (s->n_more == 1 ? c != 'd' && c != 'D' : c != (s->n_more == 3 ? '\\' : 'u')) return false;
            return --s->n_more > 0 || go(s, PLEAT__JSON_LOW_D);
        default: /* LOW_D */
            return ((c >= 'c' && c <= 'f') || (c >= 'C' && c <= 'F')) && begin_hex(s, 2, PLEAT__JSON_HEX);
    }
}

/* ---- numbers and literals -------------------------------------------------------------------------------------------------- */

static bool take_number(pleat__json *s, uint8_t c) {
    switch (s->mode) {
        case PLEAT__JSON_MINUS: return is_digit(c) && go(s, c == '0' ? PLEAT__JSON_ZERO : PLEAT__JSON_INT);
        case PLEAT__JSON_POINT: return is_digit(c) && go(s, PLEAT__JSON_FRACTION);
        case PLEAT__JSON_EXP:
            if (c == '+' || c == '-') return go(s, PLEAT__JSON_EXP_SIGN);
            return is_digit(c) && go(s, PLEAT__JSON_EXP_DIGITS);
        case PLEAT__JSON_EXP_SIGN: return is_digit(c) && go(s, PLEAT__JSON_EXP_DIGITS);
        default: break; /* the number may end here */
    }
    if (is_digit(c)) return s->mode != PLEAT__JSON_ZERO;
    if (c == '.' && s->mode <= PLEAT__JSON_INT) return go(s, PLEAT__JSON_POINT);
    if ((c == 'e' || c == 'E') && s->mode != PLEAT__JSON_EXP_DIGITS) return go(s, PLEAT__JSON_EXP);
    (void)go(s, PLEAT__JSON_AFTER);
    return take_outside(s, c);
}

static bool take_literal(pleat__json *s, uint8_t c) {
    if (c != (uint8_t)*s->rest++) return false;
    return *s->rest || go(s, PLEAT__JSON_AFTER);
}

static bool take(pleat__json *s, uint8_t c) {
    if (s->mode < PLEAT__JSON_STRING) return take_outside(s, c);
    if (s->mode == PLEAT__JSON_STRING) return take_plain(s, c);
    if (s->mode == PLEAT__JSON_UTF8) return take_character(s, c);
    if (s->mode < PLEAT__JSON_MINUS) return take_escape(s, c);
    return s->mode == PLEAT__JSON_LITERAL ? take_literal(s, c) : take_number(s, c);
}

bool pleat__json_take(pleat__json *json, const char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!take(json, (uint8_t)bytes[i])) return false;
    return true;
}
