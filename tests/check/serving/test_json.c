/* SPDX-License-Identifier: MIT
 *
 * test_json.c: the recogniser of JSON objects against jansson, which reads whole texts: what is taken and whole is an
 * object for jansson, what is an object for jansson is taken and whole, and what is taken can be completed.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "serving/json.h"

enum { TEXT_CAP = 4096 };

/* Numbers too large for a double and names with a NUL are JSON all the same: *may_be is true where one stopped jansson. */
static bool read_object(const char *text, size_t n, bool *may_be) {
    json_error_t error;
    json_t *value = json_loadb(text, n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);
    const bool is = json_is_object(value);
    *may_be = !value && (json_error_code(&error) == json_error_numeric_overflow ||
                         json_error_code(&error) == json_error_null_byte_in_key);
    json_decref(value);
    return is;
}

/* 0: no object begins so.  1: one may.  2: it is one. */
static int verdict(const char *text, size_t n) {
    pleat__json s = {0};
    if (!pleat__json_take(&s, text, n)) return 0;
    return pleat__json_is_whole(&s) ? 2 : 1;
}

/* Do both say the same? */
static bool agree(const char *text, size_t n) {
    bool may_be;
    const bool is = read_object(text, n, &may_be);
    return may_be || (verdict(text, n) == 2) == is;
}

/* ---- every short text ------------------------------------------------------------------------------------------------- */

/* All texts of up to `longest` letters, by letter; a text that is refused is refused however it goes on, which jansson
 * confirms for each. */
static void all_texts(const char *alphabet, uint32_t longest) {
    char text[16];
    uint32_t digits[16] = {0};
    const uint32_t n_letters = (uint32_t)strlen(alphabet);
    for (uint32_t n = 1; n <= longest; n++) {
        memset(digits, 0, sizeof digits);
        for (bool has_more = true; has_more && check_failures() == 0;) {
            for (uint32_t i = 0; i < n; i++) text[i] = alphabet[digits[i]];
            text[n] = 0;
            check_context("%s", text);
            CHECK(agree(text, n));
            uint32_t i = 0;
            while (i < n && ++digits[i] == n_letters) digits[i++] = 0;
            has_more = i < n;
        }
    }
}

static void test_short(void) {
    all_texts("{}[]\":,1", (uint32_t)check_rounds(7, 5));
    all_texts("{}\"\\u:", (uint32_t)check_rounds(8, 6));
}

/* What stands between {"a": and }. */
static void test_values(void) {
    static const char *const alphabets[] = {"0123-+.eE", "truefalsn", "dD89cC0\\u\"", "[],0 \n"};
    static char text[64];
    for (size_t k = 0; k < CHECK_COUNT(alphabets); k++) {
        const size_t n_letters = strlen(alphabets[k]);
        for (uint64_t round = 0; round < check_rounds(200000, 20000) && check_failures() == 0; round++) {
            size_t n = (size_t)sprintf(text, k == 2 ? "{\"a\":\"\\u" : "{\"a\":");
            const uint64_t n_more = check_between(1, k == 2 ? 11 : 6);
            for (uint64_t i = 0; i < n_more; i++) text[n++] = alphabets[k][check_below(n_letters)];
            n += (size_t)sprintf(text + n, k == 2 ? "\"}" : "}");
            check_context("%s", text);
            CHECK(agree(text, n));
        }
    }
}

/* ---- objects as they come, and damaged ---------------------------------------------------------------------------------- */

static size_t put(char *out, const char *text) {
    const size_t n = strlen(text);
    memcpy(out, text, n);
    return n;
}

static size_t some(char *out, const char *const *choices, uint64_t n) { return put(out, choices[check_below(n)]); }

static size_t some_string(char *out) {
    static const char *const parts[] = {"a",
                                        " ",
                                        "\\n",
                                        "\\\"",
                                        "\\u00e9",
                                        "\\uD83D\\uDE00",
                                        "\xc3\xa9",
                                        "\xe2\x80\x94",
                                        "\xf0\x9f\x98\x80",
                                        "\xed\x9f\xbf",
                                        "\xee\x80\x80",
                                        "\xf4\x8f\xbf\xbf",
                                        "}",
                                        "\\\\",
                                        "\xe0\xa0\x80",
                                        "\x7f",
                                        "\\/",
                                        "\\ud7ff"};
    size_t n = put(out, "\"");
    for (uint64_t k = check_below(5); k > 0; k--) n += some(out + n, parts, CHECK_COUNT(parts));
    return n + put(out + n, "\"");
}

static size_t some_blanks(char *out) {
    static const char *const blanks[] = {"", "", "", " ", "\n", "\t \r\n"};
    return some(out, blanks, CHECK_COUNT(blanks));
}

static size_t some_value(char *out, uint32_t depth);

static size_t some_list(char *out, uint32_t depth, bool is_object_) {
    size_t n = put(out, is_object_ ? "{" : "[");
    const uint64_t n_items = check_below(4);
    n += some_blanks(out + n);
    for (uint64_t i = 0; i < n_items; i++) {
        if (i > 0) n += put(out + n, ",");
        n += some_blanks(out + n);
        if (is_object_) {
            n += some_string(out + n);
            n += some_blanks(out + n);
            n += put(out + n, ":");
            n += some_blanks(out + n);
        }
        n += some_value(out + n, depth + 1);
        n += some_blanks(out + n);
    }
    return n + put(out + n, is_object_ ? "}" : "]");
}

static size_t some_value(char *out, uint32_t depth) {
    static const char *const plain[] = {"0", "-0", "12", "-3.25", "1e5", "1.5E-3", "0e+1", "true", "false", "null"};
    const uint64_t kind = check_below(depth < 4 ? 5 : 3);
    if (kind < 2) return some(out, plain, CHECK_COUNT(plain));
    return kind == 2 ? some_string(out) : some_list(out, depth, kind == 3);
}

static void test_objects(void) {
    static char text[1 << 16];
    for (uint64_t round = 0; round < check_rounds(50000, 5000) && check_failures() == 0; round++) {
        size_t n = some_list(text, 0, true);
        if (!CHECK(n < sizeof text / 2)) return;
        for (uint64_t k = check_below(3); k > 0; k--) { /* damage */
            const size_t at = check_below(n);
            if (check_below(2))
                text[at] = (char)check_between(1, 255); /* jansson 2.14 takes a NUL behind a number */
            else
                memmove(text + at, text + at + 1, --n - at);
            if (n == 0) break;
        }
        check_context("%.*s", (int)n, text);
        CHECK(agree(text, n));
    }
}

/* ---- no dead ends --------------------------------------------------------------------------------------------------------- */

/* The text's shortest end, by trying: false if there is none. */
static bool complete(char *text, size_t *n, pleat__json s) {
    static const char tries[] = "\"}]:0ealsrutnc\x80\x90\xa0\\d{";
    for (uint32_t i = 0; i < 600 && !pleat__json_is_whole(&s); i++) {
        size_t k = 0;
        for (; k < sizeof tries - 1; k++) {
            pleat__json next = s;
            if (!pleat__json_take(&next, tries + k, 1)) continue;
            s = next;
            text[(*n)++] = tries[k];
            break;
        }
        if (k == sizeof tries - 1) return false;
    }
    return pleat__json_is_whole(&s);
}

/* Random bytes that are taken, most of them such as JSON is made of. */
static void test_no_dead_end(void) {
    static const char often[] = "{}[]\",:\\u dD89abcf0123456789-.eEtrufalsn\xc3\xa9\xe2\x80\xf0\x9f\xed\xa0";
    static char text[TEXT_CAP];
    for (uint64_t round = 0; round < check_rounds(20000, 2000) && check_failures() == 0; round++) {
        pleat__json s = {0};
        size_t n = 0;
        const uint64_t n_tries = check_below(300);
        for (uint64_t i = 0; i < n_tries && !pleat__json_is_whole(&s); i++) {
            const char byte = check_below(8) ? often[check_below(sizeof often - 1)] : (char)check_below(256);
            pleat__json next = s;
            if (!pleat__json_take(&next, &byte, 1)) continue;
            s = next;
            text[n++] = byte;
        }
        check_context("%.*s", (int)n, text);
        if (!CHECK(complete(text, &n, s))) break;
        check_context("%.*s", (int)n, text);
        CHECK(agree(text, n) && verdict(text, n) == 2);
    }
}

/* ---- bounds ---------------------------------------------------------------------------------------------------------------- */

static void test_bounds(void) {
    char text[2 * PLEAT__JSON_DEPTH + 300];
    size_t n = put(text, "{\"a\":");
    for (uint32_t i = 1; i < PLEAT__JSON_DEPTH; i++) text[n++] = '[';
    CHECK_EQ_I64(verdict(text, n), 1);
    text[n] = '[';
    CHECK_EQ_I64(verdict(text, n + 1), 0);
    text[n] = '{';
    CHECK_EQ_I64(verdict(text, n + 1), 0);
    for (uint32_t i = 1; i < PLEAT__JSON_DEPTH; i++) text[n++] = ']';
    text[n++] = '}';
    CHECK_EQ_I64(verdict(text, n), 2);

    n = put(text, "{");
    for (uint32_t i = 0; i < PLEAT__JSON_BLANKS; i++) text[n++] = '\n';
    CHECK_EQ_I64(verdict(text, n), 1);
    text[n] = ' ';
    CHECK_EQ_I64(verdict(text, n + 1), 0);
    text[n++] = '}';
    CHECK_EQ_I64(verdict(text, n), 2);
    for (uint32_t i = 0; i < PLEAT__JSON_BLANKS; i++) text[n++] = ' ';
    CHECK_EQ_I64(verdict(text, n), 2);
    text[n] = ' ';
    CHECK_EQ_I64(verdict(text, n + 1), 0);
    CHECK_EQ_I64(verdict("", 0), 1);
    CHECK_EQ_I64(verdict("[]", 1), 0);
}

static const check_test tests[] = {
    {"short", test_short},   {"values", test_values}, {"objects", test_objects}, {"no dead end", test_no_dead_end},
    {"bounds", test_bounds},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
