/* SPDX-License-Identifier: MIT
 *
 * lexer.c: see lexer.h.
 */
#include "chat/lexer.h"

#include <ctype.h>

#include "chat/text.h"
#include "core/utf8.h"

#define BRACKETS_MAX 200u /* open ones in one tag */
#define TEMPLATE_BYTES_MAX (16u << 20)

typedef struct lexer {
    pleat__vm *vm;
    const char *s; /* [n], line ends are \n */
    uint32_t n, at;
    pleat__tokens *out;
    bool is_line_start; /* what was read last ended a line */
    char brackets[BRACKETS_MAX];
    uint32_t n_brackets;
} lexer;

static pleat_status add(lexer *l, pleat__token_kind kind, pleat__value value) {
    pleat__tokens *t = l->out;
    if (t->n == t->cap) {
        void *p;
        const uint32_t cap = t->cap ? 2 * t->cap : 256;
        PLEAT_TRY(pleat__vm_take(l->vm, (uint64_t)cap * sizeof *t->v, &p));
        if (t->n > 0) memcpy(p, t->v, t->n * sizeof *t->v);
        t->v = p;
        t->cap = cap;
    }
    t->v[t->n++] = (pleat__token){.kind = kind, .line = l->vm->line, .value = value};
    return pleat__vm_charge(l->vm, 1);
}

static bool looking_at(const lexer *l, const char *what) {
    const size_t n = strlen(what);
    return l->n - l->at >= n && memcmp(l->s + l->at, what, n) == 0;
}

/* Go on to `to`, counting lines. */
static void advance(lexer *l, uint32_t to) {
    for (uint32_t i = l->at; i < to; i++) l->vm->line += l->s[i] == '\n';
    if (to > l->at) l->is_line_start = l->s[to - 1] == '\n';
    l->at = to;
}

static uint32_t after_blanks(const lexer *l, uint32_t at) {
    uint32_t len;
    while (at < l->n && pleat__char_is_space(pleat__char_at(l->s, l->n, at, &len))) at += len;
    return at;
}

/* The end of s[from..to) without the blanks before it. */
static uint32_t before_blanks(const lexer *l, uint32_t from, uint32_t to) {
    while (to > from) {
        uint32_t start = to - 1, len;
        while (start > from && (l->s[start] & 0xC0) == 0x80) start--;
        if (!pleat__char_is_space(pleat__char_at(l->s, l->n, start, &len))) break;
        to = start;
    }
    return to;
}

/* Where data that ends at a tag really ends: sign is the one behind the tag's braces, or 0. */
static uint32_t data_end(const lexer *l, uint32_t from, uint32_t to, char sign, bool is_print) {
    if (sign == '-') return before_blanks(l, from, to);
    if (sign == '+' || is_print) return to;
    uint32_t line = to;
    while (line > from && l->s[line - 1] != '\n') line--;
    if (line == from && !l->is_line_start) return to;
    return before_blanks(l, line, to) == line ? line : to;
}

/* ---- inside tags ------------------------------------------------------------------------------------------------- */

static uint32_t digits_end(const lexer *l, uint32_t at, int base) {
    const uint32_t from = at;
    for (; at < l->n; at++) {
        const int c = (unsigned char)l->s[at];
        const int digit = isdigit(c) ? c - '0' : isalpha(c) ? tolower(c) - 'a' + 10 : 99;
        if (digit < base) continue;
        const bool is_joint =
            c == '_' && at > from && l->s[at - 1] != '_' && at + 1 < l->n && isalnum((unsigned char)l->s[at + 1]);
        if (!is_joint) break;
    }
    return at;
}

/* The end of a float that begins here, or 0. */
static uint32_t float_end(const lexer *l) {
    if (l->at > 0 && l->s[l->at - 1] == '.') return 0;
    uint32_t at = digits_end(l, l->at, 10), end = 0;
    if (at == l->at) return 0;
    if (at + 1 < l->n && l->s[at] == '.' && isdigit((unsigned char)l->s[at + 1])) end = at = digits_end(l, at + 1, 10);
    if (at < l->n && (l->s[at] | 32) == 'e') {
        uint32_t e = at + 1;
        if (e < l->n && (l->s[e] == '+' || l->s[e] == '-')) e++;
        if (e < l->n && isdigit((unsigned char)l->s[e])) end = digits_end(l, e, 10);
    }
    return end;
}

static pleat_status lex_number(lexer *l) {
    uint32_t end = float_end(l);
    if (end) {
        double f;
        if (!pleat__text_to_float(l->s + l->at, end - l->at, &f)) {
            return pleat__vm_fail(l->vm, PLEAT_E_UNSUPPORTED, "a number with so many digits is not supported");
        }
        PLEAT_TRY(add(l, PLEAT__T_NUMBER, pleat__value_float(f)));
        advance(l, end);
        return PLEAT_OK;
    }
    const int letter = l->at + 2 < l->n && l->s[l->at] == '0' ? tolower((unsigned char)l->s[l->at + 1]) : 0;
    const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    end = digits_end(l, l->at + (base == 10 ? 0 : 2), base);
    int64_t i;
    if (!pleat__text_to_int(l->s + l->at, end - l->at, base, &i)) {
        return pleat__vm_fail(l->vm, PLEAT_E_UNSUPPORTED, "an integer beyond 64 bits is not supported");
    }
    PLEAT_TRY(add(l, PLEAT__T_NUMBER, pleat__value_int(i)));
    advance(l, end);
    return PLEAT_OK;
}

/* \x, \u or \U and its digits at s[*at..end). */
static pleat_status put_coded(lexer *l, pleat__builder *b, uint32_t *at, uint32_t end, uint32_t n_digits) {
    int64_t cp = -1;
    char digits[9] = {0};
    for (uint32_t i = 0; i < n_digits && *at + i < end && isxdigit((unsigned char)l->s[*at + i]); i++)
        digits[i] = l->s[*at + i];
    if (strlen(digits) == n_digits) (void)pleat__text_to_int(digits, n_digits, 16, &cp);
    if (cp < 0 || cp > 0x10FFFF) return pleat__vm_fail(l->vm, PLEAT_E_SYNTAX, "a damaged escape in a string");
    if (cp >= 0xD800 && cp <= 0xDFFF) {
        return pleat__vm_fail(l->vm, PLEAT_E_UNSUPPORTED, "a lone surrogate in a string is not supported");
    }
    *at += n_digits;
    return pleat__put_char(l->vm, b, (uint32_t)cp);
}

/* What follows a backslash at s[*at..end), as Python reads it. */
static pleat_status put_escape(lexer *l, pleat__builder *b, uint32_t *at, uint32_t end) {
    static const char letters[] = "\\'\"abfnrtv", means[] = "\\'\"\a\b\f\n\r\t\v";
    const char c = l->s[(*at)++];
    const char *found = c ? strchr(letters, c) : NULL;
    if (found) return pleat__put(l->vm, b, &means[found - letters], 1);
    if (c == '\n') return PLEAT_OK;
    if (c == 'x' || c == 'u' || c == 'U') return put_coded(l, b, at, end, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    if (c == 'N') return pleat__vm_fail(l->vm, PLEAT_E_UNSUPPORTED, "\\N{...} in a string is not supported");
    if (c >= '0' && c <= '7') {
        uint32_t cp = (uint32_t)(c - '0');
        for (int i = 0; i < 2 && *at < end && l->s[*at] >= '0' && l->s[*at] <= '7'; i++) {
            cp = cp * 8 + (uint32_t)(l->s[(*at)++] - '0');
        }
        return pleat__put_char(l->vm, b, cp);
    }
    PLEAT_TRY(pleat__put_text(l->vm, b, "\\"));
    (*at)--;
    return PLEAT_OK; /* no escape: the backslash stands for itself */
}

static pleat_status lex_string(lexer *l) {
    const char quote = l->s[l->at];
    uint32_t end = l->at + 1;
    bool has_escape = false;
    for (; end < l->n && l->s[end] != quote; end++) {
        if (l->s[end] != '\\') continue;
        has_escape = true;
        end++;
    }
    if (end >= l->n) return pleat__vm_fail(l->vm, PLEAT_E_SYNTAX, "a string does not end");
    pleat__value value = pleat__value_str(l->s + l->at + 1, end - l->at - 1);
    if (has_escape) {
        pleat__builder b = {0};
        for (uint32_t i = l->at + 1; i < end;) {
            if (l->s[i] == '\\') {
                i++;
                PLEAT_TRY(put_escape(l, &b, &i, end));
            } else {
                PLEAT_TRY(pleat__put(l->vm, &b, l->s + i++, 1));
            }
        }
        value = pleat__built(&b);
    }
    PLEAT_TRY(add(l, PLEAT__T_STRING, value));
    advance(l, end + 1);
    return PLEAT_OK;
}

static pleat_status balance(lexer *l, char c) {
    static const char open[] = "([{", close[] = ")]}";
    const char *is_open = strchr(open, c), *is_close = strchr(close, c);
    if (is_open) {
        if (l->n_brackets == BRACKETS_MAX) return pleat__vm_fail(l->vm, PLEAT_E_LIMIT, "brackets nested too deep");
        l->brackets[l->n_brackets++] = close[is_open - open];
    }
    if (is_close) {
        if (l->n_brackets == 0) return pleat__vm_fail(l->vm, PLEAT_E_SYNTAX, "unexpected '%c'", c);
        const char wanted = l->brackets[--l->n_brackets];
        if (wanted != c)
            return pleat__vm_fail(l->vm, PLEAT_E_SYNTAX, "unexpected '%c' where '%c' is wanted", c, wanted);
    }
    return PLEAT_OK;
}

static pleat_status lex_operator(lexer *l) {
    static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                            "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++) {
        if (!looking_at(l, operators[i])) continue;
        if (strlen(operators[i]) == 1) PLEAT_TRY(balance(l, operators[i][0]));
        PLEAT_TRY(add(l, PLEAT__T_OP, pleat__value_text(operators[i])));
        advance(l, l->at + (uint32_t)strlen(operators[i]));
        return PLEAT_OK;
    }
    const unsigned char c = (unsigned char)l->s[l->at];
    if (c >= 0x80) return pleat__vm_fail(l->vm, PLEAT_E_UNSUPPORTED, "a name beyond ASCII is not supported");
    return pleat__vm_fail(l->vm, PLEAT_E_SYNTAX, isprint(c) ? "unexpected character '%c'" : "unexpected byte 0x%02x",
                          c);
}

static pleat_status lex_inner(lexer *l) {
    const unsigned char c = (unsigned char)l->s[l->at];
    if (isdigit(c)) return lex_number(l);
    if (c == '\'' || c == '"') return lex_string(l);
    if (!isalpha(c) && c != '_') return lex_operator(l);
    uint32_t end = l->at;
    while (end < l->n && (isalnum((unsigned char)l->s[end]) || l->s[end] == '_')) end++;
    PLEAT_TRY(add(l, PLEAT__T_NAME, pleat__value_str(l->s + l->at, end - l->at)));
    advance(l, end);
    return PLEAT_OK;
}

/* Where the text goes on behind the tag that ends here, or 0 if none does. */
static uint32_t tag_end(const lexer *l, uint32_t at, const char *close, bool is_print) {
    const char sign = at < l->n && (l->s[at] == '-' || (l->s[at] == '+' && !is_print)) ? l->s[at] : 0;
    const uint32_t end = at + (sign ? 1u : 0u);
    if (l->n - end < 2 || end > l->n || memcmp(l->s + end, close, 2) != 0) return 0;
    if (sign == '-') return after_blanks(l, end + 2);
    if (sign == '+' || is_print) return end + 2;
    return end + 2 + (end + 2 < l->n && l->s[end + 2] == '\n');
}

static pleat_status lex_tag(lexer *l, bool is_print) {
    const char *close = is_print ? "}}" : "%}";
    l->n_brackets = 0;
    for (;;) {
        const uint32_t end = l->n_brackets == 0 && l->at < l->n ? tag_end(l, l->at, close, is_print) : 0;
        if (end) {
            PLEAT_TRY(add(l, is_print ? PLEAT__T_PRINT_END : PLEAT__T_BLOCK_END, PLEAT__NONE));
            advance(l, end);
            return PLEAT_OK;
        }
        if (l->at == l->n) return pleat__vm_fail(l->vm, PLEAT_E_SYNTAX, "a tag does not end");
        const uint32_t behind = after_blanks(l, l->at);
        if (behind > l->at)
            advance(l, behind);
        else
            PLEAT_TRY(lex_inner(l));
    }
}

/* ---- between tags ------------------------------------------------------------------------------------------------ */

/* `{#` has been read. */
static pleat_status skip_comment(lexer *l) {
    for (uint32_t i = l->at; i + 1 < l->n; i++) {
        if (l->s[i] != '#' || l->s[i + 1] != '}') continue;
        const bool has_sign = i > l->at && (l->s[i - 1] == '-' || l->s[i - 1] == '+');
        const char sign = has_sign ? l->s[i - 1] : 0;
        uint32_t end = i + 2;
        if (sign == '-')
            end = after_blanks(l, end);
        else if (!sign && end < l->n && l->s[end] == '\n')
            end++;
        advance(l, end);
        return PLEAT_OK;
    }
    return pleat__vm_fail(l->vm, PLEAT_E_SYNTAX, "a comment does not end");
}

/* Behind `word` at s[at..], blanks before and behind it skipped; 0 if it is not there. */
static uint32_t after_word(const lexer *l, uint32_t at, const char *word) {
    at = after_blanks(l, at);
    const size_t n = strlen(word);
    if (l->n - at < n || memcmp(l->s + at, word, n) != 0) return 0;
    return after_blanks(l, at + (uint32_t)n);
}

/* `{% raw %}` has been read: its text up to `{% endraw %}`. */
static pleat_status lex_raw(lexer *l) {
    for (uint32_t i = l->at; i + 1 < l->n; i++) {
        if (l->s[i] != '{' || l->s[i + 1] != '%') continue;
        const char sign = i + 2 < l->n && (l->s[i + 2] == '-' || l->s[i + 2] == '+') ? l->s[i + 2] : 0;
        const uint32_t at = after_word(l, i + 2 + (sign ? 1u : 0u), "endraw");
        const uint32_t end = at ? tag_end(l, at, "%}", false) : 0;
        if (!end) continue;
        const uint32_t data = data_end(l, l->at, i, sign, false);
        PLEAT_TRY(add(l, PLEAT__T_DATA, pleat__value_str(l->s + l->at, data - l->at)));
        advance(l, end);
        return PLEAT_OK;
    }
    return pleat__vm_fail(l->vm, PLEAT_E_SYNTAX, "'raw' does not end");
}

/* Where the text of `{% raw %}` begins, for the tag whose braces end at `at`; 0 if it is another tag. */
static uint32_t raw_begin(const lexer *l, uint32_t at) {
    const uint32_t behind = after_word(l, at, "raw");
    if (!behind) return 0;
    if (l->n - behind >= 3 && memcmp(l->s + behind, "-%}", 3) == 0) return after_blanks(l, behind + 3);
    return l->n - behind >= 2 && memcmp(l->s + behind, "%}", 2) == 0 ? behind + 2 : 0;
}

/* Data up to the next tag, and that tag. */
static pleat_status lex_piece(lexer *l) {
    uint32_t tag = l->at;
    while (tag + 1 < l->n && !(l->s[tag] == '{' && strchr("%{#", l->s[tag + 1]) && l->s[tag + 1])) tag++;
    if (tag + 1 >= l->n) {
        PLEAT_TRY(add(l, PLEAT__T_DATA, pleat__value_str(l->s + l->at, l->n - l->at)));
        l->at = l->n;
        return PLEAT_OK;
    }
    const char what = l->s[tag + 1];
    const char sign = tag + 2 < l->n && (l->s[tag + 2] == '-' || l->s[tag + 2] == '+') ? l->s[tag + 2] : 0;
    const uint32_t end = data_end(l, l->at, tag, sign, what == '{'), behind = tag + 2 + (sign ? 1u : 0u);
    if (end > l->at) PLEAT_TRY(add(l, PLEAT__T_DATA, pleat__value_str(l->s + l->at, end - l->at)));
    const uint32_t raw = what == '%' ? raw_begin(l, behind) : 0;
    advance(l, raw ? raw : behind);
    if (raw) return lex_raw(l);
    if (what == '#') return skip_comment(l);
    PLEAT_TRY(add(l, what == '{' ? PLEAT__T_PRINT_BEGIN : PLEAT__T_BLOCK_BEGIN, PLEAT__NONE));
    return lex_tag(l, what == '{');
}

/* A copy with \n for every line end, without the last one. */
static pleat_status normalise(lexer *l, const char *text, size_t n_bytes) {
    char *copy;
    if (n_bytes > TEMPLATE_BYTES_MAX) return pleat__vm_fail(l->vm, PLEAT_E_LIMIT, "the template is longer than 16 MiB");
    const uint64_t good = pleat__utf8_prefix(text, n_bytes);
    for (uint64_t i = 0; i < good && good < n_bytes; i++) l->vm->line += text[i] == '\n';
    if (good < n_bytes) return pleat__vm_fail(l->vm, PLEAT_E_SYNTAX, "the template is no UTF-8");
    PLEAT_TRY(pleat__vm_take_text(l->vm, n_bytes + 1, &copy));
    uint32_t n = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        if (text[i] == '\r' && i + 1 < n_bytes && text[i + 1] == '\n') continue;
        copy[n++] = text[i];
        if (text[i] == '\r') copy[n - 1] = '\n';
    }
    if (n > 0 && copy[n - 1] == '\n') n--;
    l->s = copy;
    l->n = n;
    return PLEAT_OK;
}

pleat_status pleat__lex(pleat__vm *vm, const char *text, size_t n_bytes, pleat__tokens *out) {
    lexer l = {.vm = vm, .out = out, .is_line_start = true};
    vm->line = 1;
    PLEAT_TRY(normalise(&l, text, n_bytes));
    while (l.at < l.n) PLEAT_TRY(lex_piece(&l));
    return add(&l, PLEAT__T_END, PLEAT__NONE);
}
