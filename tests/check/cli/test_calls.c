/* SPDX-License-Identifier: MIT
 *
 * test_calls.c: tool calls in forged answers: what is a call in each form, what stays text, and that it does not matter
 * where a text is cut.
 *
 * An answer is shown as one string: text as it is, a call as "{{name|arguments}}".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cli/serve/calls.h"

enum { SHOWN_CAP = 1 << 16 };

static json_t *tools(void) {
    return json_loads(
        "[{\"type\": \"function\", \"function\": {\"name\": \"tide\"}}, {\"type\": \"function\", \"function\": "
        "{\"name\": \"wind.at-sea\", \"parameters\": {}}}, {\"type\": \"other\"}, 3]",
        0, NULL);
}

static void show(calls *c, char *shown) {
    calls_piece p;
    size_t n = strlen(shown);
    while (calls_next(c, &p)) {
        const int space = (int)(SHOWN_CAP - n);
        if (p.text)
            snprintf(shown + n, (size_t)space, "%.*s", (int)p.n_text, p.text);
        else
            snprintf(shown + n, (size_t)space, "{{%s|%s}}", p.name, p.arguments);
        n += strlen(shown + n);
    }
}

/* The text in pieces of at most `longest` bytes; 0: whole. */
static void read_answer(calls_form form, const json_t *list, const char *text, size_t longest, char *shown) {
    calls *c = calls_create(form, list);
    const size_t n = strlen(text);
    shown[0] = '\0';
    for (size_t at = 0; at < n;) {
        const size_t most = longest ? check_between(1, longest) : n, piece = most < n - at ? most : n - at;
        calls_put(c, text + at, piece);
        show(c, shown);
        at += piece;
    }
    calls_end(c);
    show(c, shown);
    calls_destroy(&c);
    CHECK(c == NULL);
}

#define TIDE "{\"name\": \"tide\", \"arguments\": {\"day\": 1}}"
#define SAID_TIDE "{{tide|{\"day\": 1}}}"

static const struct {
    calls_form form;
    const char *text, *want; /* want NULL: the text */
} answers[] = {
    {CALLS_TAGS, "", NULL},
    {CALLS_TAGS, " High water at six.\n", NULL},
    {CALLS_TAGS, "<tool_call>\n" TIDE "\n</tool_call>", SAID_TIDE},
    {CALLS_TAGS, "Let me see.\n\n<tool_call>" TIDE "</tool_call>\n", "Let me see." SAID_TIDE},
    {CALLS_TAGS, "<tool_call>" TIDE "</tool_call>\n<tool_call>" TIDE "</tool_call> so", SAID_TIDE SAID_TIDE "so"},
    {CALLS_TAGS, "<tool_call>" TIDE, SAID_TIDE}, /* the model ended there */
    {CALLS_TAGS, "<tool_call>" TIDE "</tool_", NULL},
    {CALLS_TAGS, "<tool_call>" TIDE "\n\n", SAID_TIDE},
    {CALLS_TAGS, "<tool_call>" TIDE " and </tool_call>", NULL},
    {CALLS_TAGS, "<tool_call>[" TIDE ", " TIDE "]</tool_call>", SAID_TIDE SAID_TIDE},
    {CALLS_TAGS, "<tool_call>[]</tool_call>", NULL},
    {CALLS_TAGS, "<tool_call>[" TIDE ", 3]</tool_call>", NULL},
    {CALLS_TAGS, "<tool_call>{\"arguments\": {\"a\": \"</tool_call>\\\"}\"}, \"name\": \"tide\"}</tool_call>",
     "{{tide|{\"a\": \"</tool_call>\\\"}\"}}}"},
    {CALLS_TAGS, "<tool_call>{\"name\": \"wind.at-sea\"}</tool_call>", "{{wind.at-sea|{}}}"},
    {CALLS_TAGS, "<tool_call>{\"name\": \"ti\\u0064e\", \"arguments\": \"{\\\"day\\\": [1]}\"}</tool_call>",
     "{{tide|{\"day\": [1]}}}"},
    {CALLS_TAGS,
     "<tool_call>{\"name\": \"tide\", \"arguments\": {\"n\": 123456789012345678901, \"x\": 1.10}}</tool_call>",
     "{{tide|{\"n\": 123456789012345678901, \"x\": 1.10}}}"},
    {CALLS_TAGS, "<tool_call>{\"name\": \"moon\", \"arguments\": {}}</tool_call>", NULL}, /* no tool of that name */
    {CALLS_TAGS, "<tool_call>{\"name\": \"tide\", \"arguments\": [1]}</tool_call>", NULL},
    {CALLS_TAGS, "<tool_call>{\"name\": \"tide\", \"arguments\": \"day one\"}</tool_call>", NULL},
    {CALLS_TAGS, "<tool_call>{\"name\": \"tide\", \"name\": \"tide\", \"arguments\": {}}</tool_call>", NULL},
    {CALLS_TAGS, "<tool_call>{\"name\": \"tide\", \"arguments\": {\"day\": 01}}</tool_call>", NULL},
    {CALLS_TAGS, "<tool_call>{\"name\": \"tide\", \"arguments\": {\"day\": 1}</tool_call>", NULL},
    {CALLS_TAGS, "<tool_call>{\"name\": \"ti\\u0000de\", \"arguments\": {}}</tool_call>", NULL},
    {CALLS_TAGS, "<tool_call>{\"name\": 'tide'}</tool_call>", NULL},
    {CALLS_TAGS, "<tool_call>\n<function=tide>\n</function></tool_call>", NULL}, /* a form that is not read */
    {CALLS_TAGS, "<tool_call>{ <tool_call>" TIDE "</tool_call>", "<tool_call>{" SAID_TIDE},
    {CALLS_TAGS, "<tool_call><tool_call>" TIDE "</tool_call>", "<tool_call>" SAID_TIDE},
    {CALLS_TAGS, "<tool<tool_call>" TIDE "</tool_call>", "<tool" SAID_TIDE},
    {CALLS_TAGS, "<tool_call>{\"name\": \"tide\", \"arguments\": {\"day\": 1", NULL},
    {CALLS_TAGS, "<tool_cal", NULL},
    {CALLS_TAGS, "}]<tool_call>}", NULL},
    {CALLS_TAGS, TIDE, NULL},
    {CALLS_PIPES, "<|tool_call|>[" TIDE "]", SAID_TIDE},
    {CALLS_PIPES, "<|tool_call|>[" TIDE "]<|/tool_call|>", SAID_TIDE},
    {CALLS_MISTRAL, "[TOOL_CALLS][" TIDE ", " TIDE "]", SAID_TIDE SAID_TIDE},
    {CALLS_MISTRAL, "[TOOL_CALLS] [" TIDE "]\n", SAID_TIDE},
    {CALLS_MISTRAL, "Yes.[TOOL_CALLS]tide[ARGS]{\"day\": 1}", "Yes." SAID_TIDE},
    {CALLS_MISTRAL, "[TOOL_CALLS]tide[CALL_ID]abcdefghi[ARGS]{\"day\": 1}[TOOL_CALLS]wind.at-sea[ARGS]{}",
     SAID_TIDE "{{wind.at-sea|{}}}"},
    {CALLS_ARGS, "[TOOL_CALLS]tide[ARGS]{\"day\": 1}", SAID_TIDE},
    {CALLS_ARGS, "[TOOL_CALLS][" TIDE "]", SAID_TIDE},
    {CALLS_MISTRAL, "[TOOL_CALLS]moon[ARGS]{}", NULL},
    {CALLS_MISTRAL, "[TOOL_CALLS]tide{}", NULL},
    {CALLS_MISTRAL, "[TOOL_CALLS]tide[ARGS][1]", NULL},
    {CALLS_MISTRAL, "[TOOL_CALLS]tide[ARGS]", NULL},
    {CALLS_MISTRAL, "[TOOL_CALLS][ARGS]{}", NULL},
    {CALLS_MISTRAL, "[TOOL_CALLS][[TOOL_CALLS][" TIDE "]", "[TOOL_CALLS][" SAID_TIDE},
    {CALLS_MISTRAL, "[TOOL_CALLS][" TIDE "] is what I would call.", NULL},
    {CALLS_LLAMA, "{\"name\": \"tide\", \"parameters\": {\"day\": 1}}", SAID_TIDE},
    {CALLS_LLAMA, "\n{\"type\": \"function\", \"name\": \"tide\", \"parameters\": {\"day\": 1}} ", SAID_TIDE},
    {CALLS_LLAMA, TIDE "; " TIDE ";\n", SAID_TIDE SAID_TIDE},
    {CALLS_LLAMA, TIDE "; that is it", SAID_TIDE "that is it"},
    {CALLS_LLAMA, TIDE " is the answer", NULL},
    {CALLS_LLAMA, "It is " TIDE, NULL},
    {CALLS_LLAMA, "{\"name\": \"tide\"}", NULL},
    {CALLS_LLAMA, "{\"name\": \"Ishmael\", \"parameters\": {}}", NULL},
    {CALLS_LLAMA, "[" TIDE "]", NULL},
    {CALLS_NONE, "<tool_call>" TIDE "</tool_call> [TOOL_CALLS]", NULL},
};

static void test_answers(void) {
    static char shown[SHOWN_CAP];
    json_t *list = tools();
    for (size_t i = 0; i < CHECK_COUNT(answers); i++) {
        const char *want = answers[i].want ? answers[i].want : answers[i].text;
        for (size_t longest = 0; longest < 8; longest++) {
            check_context("answer %zu in pieces of %zu: %s", i, longest, answers[i].text);
            read_answer(answers[i].form, list, answers[i].text, longest, shown);
            CHECK_EQ_STR(shown, want);
        }
    }
    json_decref(list);
}

/* Answers put together from parts whose meaning is known. */
static void test_composed(void) {
    static const struct {
        const char *text, *means;
    } parts[] = {
        {"<tool_call>" TIDE "</tool_call>", SAID_TIDE},
        {"<tool_call>\n [" TIDE "] </tool_call>", SAID_TIDE},
        {"<tool_call>{]</tool_call>", "<tool_call>{]</tool_call>"},
        {"<tool_call>{\"a\": \"b\"}</tool_call>", "<tool_call>{\"a\": \"b\"}</tool_call>"},
        {"<tool_call>", "<tool_call>"},
        {"</tool_call>", "</tool_call>"},
        {"The tide", "The tide"},
        {"{\"x\": [", "{\"x\": ["},
        {"<", "<"},
        {"\xe2\x80\x94", "\xe2\x80\x94"},
    };
    static char text[8192], want[8192], shown[SHOWN_CAP];
    json_t *list = tools();
    const uint64_t n_rounds = check_rounds(4000, 400);
    for (uint64_t round = 0; round < n_rounds; round++) {
        text[0] = want[0] = '\0';
        const uint64_t n = check_between(0, 12);
        for (uint64_t i = 0; i < n; i++) {
            const uint64_t k = check_below(CHECK_COUNT(parts));
            strcat(text, parts[k].text);
            strcat(want, parts[k].means);
            if (i + 1 == n) break;
            strcat(text, "."); /* so that no part is another's continuation, and no blank is next to a call */
            strcat(want, ".");
        }
        check_context("%s", text);
        read_answer(CALLS_TAGS, list, text, check_below(9), shown);
        if (!CHECK_EQ_STR(shown, want)) break;
    }
    json_decref(list);
}

static void test_many(void) {
    static char text[32768], shown[SHOWN_CAP];
    json_t *list = tools();
    for (int n = CALLS_MAX; n <= CALLS_MAX + 1; n++) {
        strcpy(text, "<tool_call>[");
        for (int i = 0; i < n; i++) strcat(strcat(text, i ? "," : ""), TIDE);
        strcat(text, "]</tool_call>");
        read_answer(CALLS_TAGS, list, text, 50, shown);
        int n_calls = 0;
        for (const char *at = shown; (at = strstr(at, "{{tide")); at++) n_calls++;
        CHECK_EQ_I64(n_calls, n == CALLS_MAX ? CALLS_MAX : 0);
        if (n > CALLS_MAX) CHECK_EQ_STR(shown, text);
    }
    json_decref(list);
}

/* What costs a reader most that looks again behind each marker.  Looking at every byte from each marker on would take
 * 10^11 looks, which no test's limit bears. */
static void test_hostile(void) {
    static const char *const parts[] = {"<tool_call>{", "<tool_call>{\"", "<tool_call>{\"a\": \"", "<tool_call>[[",
                                        "<tool_call>   "};
    json_t *list = tools();
    for (size_t i = 0; i < CHECK_COUNT(parts); i++) {
        calls *c = calls_create(CALLS_TAGS, list);
        calls_piece p;
        size_t n_in = 0, n_out = 0;
        for (int k = 0; k < 100000; k++) {
            calls_put(c, parts[i], strlen(parts[i]));
            n_in += strlen(parts[i]);
            while (calls_next(c, &p)) n_out += CHECK(p.text) ? p.n_text : 0;
        }
        calls_end(c);
        while (calls_next(c, &p)) n_out += p.n_text;
        CHECK_EQ_U64(n_in, n_out);
        calls_destroy(&c);
    }
    json_decref(list);
}

/* A call that is forced is one where its arguments are an object. */
static void test_frames(void) {
    static char shown[SHOWN_CAP];
    json_t *list = tools();
    for (calls_form form = CALLS_TAGS; form <= CALLS_LLAMA; form++) {
        char *before, *behind, text[512];
        calls_frame(form, "wind.at-sea", &before, &behind);
        snprintf(text, sizeof text, "%s{\"a\": [1]}%s", before, behind);
        check_context("form %d: %s", (int)form, text);
        read_answer(form, list, text, 3, shown);
        CHECK_EQ_STR(shown, "{{wind.at-sea|{\"a\": [1]}}}");
        read_answer(form, list, before, 3, shown);
        CHECK_EQ_STR(shown, before);
        free(before);
        free(behind);
    }
    json_decref(list);
}

static void test_forms(void) {
    static const struct {
        const char *text;
        calls_form form;
    } templates[] = {
        {"{%- if tools %}... within <tool_call></tool_call> XML tags", CALLS_TAGS},
        {"{{ \"[TOOL_CALLS] [\" }}", CALLS_MISTRAL},
        {"{{ \"[TOOL_CALLS]\" + name + \"[ARGS]\" }}", CALLS_ARGS},
        {"'<|tool_call|>'", CALLS_PIPES},
        {"{{- \"<|python_tag|>\" }}", CALLS_LLAMA},
        {"{{- '{\"name\": function name, \"parameters\": dictionary' }}<|eot_id|>", CALLS_LLAMA},
        {"{{ m.content }}<|eot_id|>", CALLS_NONE},
        {"", CALLS_NONE},
    };
    for (size_t i = 0; i < CHECK_COUNT(templates); i++)
        CHECK_EQ_I64(calls_form_of(templates[i].text, strlen(templates[i].text)), templates[i].form);
    CHECK_EQ_I64(calls_form_of(NULL, 0), CALLS_NONE);
}

static const check_test tests[] = {
    {"answers", test_answers}, {"composed", test_composed}, {"many", test_many},
    {"hostile", test_hostile}, {"frames", test_frames},     {"forms", test_forms},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
