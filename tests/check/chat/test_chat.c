/* SPDX-License-Identifier: MIT
 *
 * test_chat.c: chat templates against what Python's jinja2 makes of them, in cases.jsonl (tests/long/chat_cases.py); bounds,
 * refusals by line, JSON, and every allocation that fails.
 */
#include <jansson.h>

#include "chat_rig.h"

/* ---- the language -------------------------------------------------------------------------------------------------- */

static void check_case(const char *context, const json_t *one, char *text) {
    size_t n = 0;
    pleat_error err = {0};
    const json_t *template = json_object_get(one, "template"), *want = json_object_get(one, "want");
    const pleat_status status =
        chat_render(json_string_value(template), json_string_length(template), context, text, &n, &err);
    check_context("%s: %s", json_string_value(template), status == PLEAT_OK ? "" : err.text);
    if (!json_is_string(want)) {
        CHECK(status != PLEAT_OK);
        return;
    }
    if (!CHECK_STATUS(status, PLEAT_OK)) return;
    CHECK_EQ_STR(text, json_string_value(want));
    CHECK_EQ_U64(n, json_string_length(want));
}

static void test_cases(void) {
    size_t n_bytes = 0;
    char *file = (char *)check_read_file("tests/check/chat/cases.jsonl", &n_bytes), *text = malloc(CHAT_CAP);
    chat_use_utc();
    if (CHECK(file && text)) {
        char *save = NULL;
        const char *context = strtok_r(file, "\n", &save);
        for (const char *line; (line = strtok_r(NULL, "\n", &save));) {
            json_t *one = json_loads(line, JSON_ALLOW_NUL, NULL);
            if (CHECK(one)) check_case(context, one, text);
            json_decref(one);
        }
    }
    free(file);
    free(text);
}

/* ---- refusals ------------------------------------------------------------------------------------------------------ */

static void refuses(const char *source, const char *json, pleat_status want, const char *text) {
    static char out[CHAT_CAP];
    size_t n = 0;
    pleat_error err = {0};
    check_context("%s", source);
    CHECK_STATUS(chat_render(source, strlen(source), json, out, &n, &err), want);
    CHECK_EQ_STR(err.text, text);
}

static void test_refusals(void) {
    refuses("a\n{% include 'x' %}", "{}", PLEAT_E_UNSUPPORTED, "line 2: the tag 'include' is not supported");
    refuses("{{ 1 }}\n\n{{ x|urlize }}", "{}", PLEAT_E_UNSUPPORTED, "line 3: the filter 'urlize' is not supported");
    refuses("\n{% nothing %}", "{}", PLEAT_E_SYNTAX, "line 2: there is no tag 'nothing' here");
    refuses("\n\n{{ x|nothing }}", "{}", PLEAT_E_SYNTAX, "line 3: there is no filter 'nothing'");
    refuses("{{\n1 +\n}}", "{}", PLEAT_E_SYNTAX, "line 3: an expression is wanted, not '}}'");
    refuses("{# open", "{}", PLEAT_E_SYNTAX, "line 1: a comment does not end");
    refuses("x\n{% if a %}\n{{ b", "{}", PLEAT_E_SYNTAX, "line 3: a tag does not end");
    refuses("\n{{ messages[0].x.y }}", "{\"messages\":[{}]}", PLEAT_E_ARG,
            "line 2: 'x' is undefined: what it is asked of has none");
    refuses("\n{{ raise_exception('roles must take turns') }}", "{}", PLEAT_E_ARG, "line 2: roles must take turns");
    refuses("{{ 'a'.casefold() }}", "{}", PLEAT_E_UNSUPPORTED,
            "line 1: the method casefold() of a str is not supported");
    refuses("{{ 9223372036854775807 + 1 }}", "{}", PLEAT_E_UNSUPPORTED,
            "line 1: an integer beyond 64 bits is not supported");
    refuses("\xff", "{}", PLEAT_E_SYNTAX, "line 1: the template is no UTF-8");
}

static void test_json(void) {
    static const char *const damaged[] = {"",
                                          "{",
                                          "{\"a\":}",
                                          "{\"a\":1,}",
                                          "[1]",
                                          "{} x",
                                          "{\"a\" 1}",
                                          "{\"a\":01}",
                                          "{\"a\":1.}",
                                          "{\"a\":\"\\ud800\"}",
                                          "{a:1}",
                                          "nul",
                                          "{\"a\":\"\n\"}",
                                          "{\"a\":+1}",
                                          "{\"a\":\"\\x\"}",
                                          "\"\xff",
                                          "{\"a\":[}",
                                          "{\"a\":18446744073709551616}"};
    static char out[CHAT_CAP];
    char deep[512];
    size_t n;
    pleat_error err = {0};
    for (size_t i = 0; i < CHECK_COUNT(damaged); i++) {
        check_context("%s", damaged[i]);
        CHECK_STATUS(chat_render("x", 1, damaged[i], out, &n, &err), PLEAT_E_SYNTAX);
    }
    CHECK_STATUS(chat_render("x", 1, "{\"a\": [1, }", out, &n, &err), PLEAT_E_SYNTAX);
    CHECK_EQ_U64(err.where, 10);
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    CHECK_STATUS(chat_render("x", 1, deep, out, &n, &err), PLEAT_E_SYNTAX);
    const char all[] = "{{ [a, b] }}{{ [a, b]|tojson }}";
    const char json[] = "{\"a\":\"\\u00e9\\ud83d\\ude00\\n\\\"\",\"b\":[1,-2.5e3,true,null,{}],\"a\":\"last\"} ";
    if (CHECK_STATUS(chat_render(all, sizeof all - 1, json, out, &n, &err), PLEAT_OK)) {
        CHECK_EQ_STR(out, "['last', [1, -2500.0, True, None, {}]][\"last\", [1, -2500.0, true, null, {}]]");
    }
}

/* ---- bounds -------------------------------------------------------------------------------------------------------- */

static void test_bounds(void) {
    static const char *const endless[] = {
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}",
        "{% set ns = namespace(x='ab') %}{% for a in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x=[]) %}{% for a in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=[]) %}{% for a in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x|tojson }}",
        "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{{ 'x' * 1000000000 * 3 }}",
        "{{ ('%9999d' % 1) * 99999 * 99 }}",
        "{% for a in range(99999) %}{{ 'x' * 99999 }}{% endfor %}"};
    static char out[CHAT_CAP];
    size_t n;
    pleat_error err = {0};
    for (size_t i = 0; i < CHECK_COUNT(endless); i++) {
        check_context("%s", endless[i]);
        pleat_chat_template *made = NULL;
        pleat_chat_options opt = chat_options();
        opt.max_steps = 1000000;
        opt.max_memory_bytes = 16u << 20;
        if (!CHECK_STATUS(pleat_chat_template_compile(endless[i], strlen(endless[i]), NULL, &made, &err), PLEAT_OK))
            continue;
        CHECK_STATUS(pleat_chat_template_render(made, "{}", 2, &opt, out, sizeof out, &n, &err), PLEAT_E_LIMIT);
        pleat_chat_template_destroy(&made);
    }
    char deep[4096];
    memset(deep, '(', sizeof deep);
    memcpy(deep, "{{ ", 3);
    pleat_chat_template *made = NULL;
    CHECK_STATUS(pleat_chat_template_compile(deep, 1000, NULL, &made, &err), PLEAT_E_LIMIT);
    for (size_t i = 0; i + 12 < sizeof deep; i += 12) memcpy(deep + i, "{% if 1 %}  ", 12);
    CHECK_STATUS(pleat_chat_template_compile(deep, 4092, NULL, &made, &err), PLEAT_E_LIMIT);
    CHECK(made == NULL);
    for (size_t i = 0; i + 12 < sizeof deep; i += 12) memcpy(deep + i, "1 if 0 else ", 12);
    memcpy(deep, "{{          ", 12);
    memcpy(deep + 4092, "0}}", 3);
    CHECK_STATUS(pleat_chat_template_compile(deep, 4095, NULL, &made, &err), PLEAT_E_LIMIT);
}

/* What stands side by side is no nesting. */
static void test_long(void) {
    static const char first[] = "{% if 0 %}", more[] = "{% elif 0 %}x", last[] = "{% else %}end{% endif %}{{ 0";
    static char source[100000], out[CHAT_CAP];
    size_t n = 0, n_out = 0;
    pleat_error err = {0};
    memcpy(source, first, sizeof first - 1);
    for (n = sizeof first - 1; n < 60000; n += sizeof more - 1) memcpy(source + n, more, sizeof more - 1);
    memcpy(source + n, last, sizeof last - 1);
    n += sizeof last - 1;
    for (int i = 0; i < 900; i++, n += 2) memcpy(source + n, "+1", 2);
    memcpy(source + n, "}}", 2);
    if (CHECK_STATUS(chat_render(source, n + 2, "{}", out, &n_out, &err), PLEAT_OK)) CHECK_EQ_STR(out, "end900");
}

static void test_capacity(void) {
    static const char source[] = "{{ 'abc' * 3 }}", want[] = "abcabcabc";
    pleat_chat_template *made = NULL;
    size_t n = 0;
    if (!CHECK_STATUS(pleat_chat_template_compile(source, sizeof source - 1, NULL, &made, NULL), PLEAT_OK)) return;
    check_buf small = check_buf_new(sizeof want - 1, 1), exact = check_buf_new(sizeof want, 1);
    CHECK_STATUS(pleat_chat_template_render(made, "{}", 2, NULL, NULL, 0, &n, NULL), PLEAT_E_LIMIT);
    CHECK_EQ_U64(n, sizeof want - 1);
    CHECK_STATUS(pleat_chat_template_render(made, "{}", 2, NULL, small.p, small.bytes, &n, NULL), PLEAT_E_LIMIT);
    CHECK_EQ_U64(((unsigned char *)small.p)[0], 0xD0);
    if (CHECK_STATUS(pleat_chat_template_render(made, "{}", 2, NULL, exact.p, exact.bytes, &n, NULL), PLEAT_OK)) {
        CHECK_EQ_STR(exact.p, want);
    }
    CHECK(check_buf_is_intact(&small) && check_buf_is_intact(&exact));
    pleat_chat_options opt = chat_options();
    opt.size_bytes--;
    CHECK_STATUS(pleat_chat_template_render(made, "{}", 2, &opt, exact.p, exact.bytes, &n, NULL), PLEAT_E_ARG);
    opt = chat_options();
    opt.max_depth = 1001;
    CHECK_STATUS(pleat_chat_template_render(made, "{}", 2, &opt, exact.p, exact.bytes, &n, NULL), PLEAT_E_ARG);
    opt = chat_options();
    opt.max_output_bytes = 8;
    CHECK_STATUS(pleat_chat_template_render(made, "{}", 2, &opt, exact.p, exact.bytes, &n, NULL), PLEAT_E_LIMIT);
    check_buf_free(&small);
    check_buf_free(&exact);
    pleat_chat_template_destroy(&made);
}

/* ---- memory -------------------------------------------------------------------------------------------------------- */

/* Both the tree and what is rendered need several chunks. */
static void test_allocations(void) {
    static char source[40000], out[CHAT_CAP];
    static const char line[] = "{% for m in messages %}{{ m|tojson(indent=2)|upper }}{{ m.content * 99 }}{% endfor %}";
    const char json[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"abc\"},{\"x\":[1,2,{\"y\":null}],\"content\":\"d\"}]}";
    size_t n_source = 0, n = 0;
    check_alloc ca;
    for (; n_source + sizeof line < sizeof source; n_source += sizeof line - 1)
        memcpy(source + n_source, line, sizeof line);
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        for (uint64_t nth = 1;; nth++) {
            pleat_chat_template *made = NULL;
            check_alloc_init(&ca, nth, for_ever);
            pleat_status status = pleat_chat_template_compile(source, n_source, &ca.a, &made, NULL);
            if (status == PLEAT_OK) {
                status = pleat_chat_template_render(made, json, sizeof json - 1, NULL, out, sizeof out, &n, NULL);
            }
            pleat_chat_template_destroy(&made);
            CHECK_EQ_U64(ca.live, 0);
            if (status == PLEAT_OK) {
                CHECK(nth > 10);
                break;
            }
            if (!CHECK_STATUS(status, PLEAT_E_MEMORY)) break;
        }
    }
}

static const check_test tests[] = {{"cases", test_cases},
                                   {"refusals", test_refusals},
                                   {"json", test_json},
                                   {"bounds", test_bounds},
                                   {"long", test_long},
                                   {"capacity", test_capacity},
                                   {"allocations", test_allocations}};
int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
