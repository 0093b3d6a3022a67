/* SPDX-License-Identifier: MIT
 *
 * test_pretokenize.c: words by the models' expressions: what they are, how long they may be, and at what cost.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "core/memory.h"
#include "tokenizer/expressions.h"

#define MAX_WORDS 12

static void expect_words(const char *name, const char *text, const char *const *want) {
    const pleat_allocator al = pleat__allocator_or_default(NULL);
    pleat__pretokenizer *pre = NULL;
    pleat__pretokenizer_traits traits;
    pleat__words words;
    const size_t n = strlen(text);
    check_context("%s: '%s'", name, text);
    if (!CHECK_STATUS(pleat__pretokenizer_create((pleat__str){name, strlen(name)}, &al, &pre, &traits, NULL),
                      PLEAT_OK)) {
        return;
    }
    CHECK_STATUS(pleat__words_init(&words, pre, n), PLEAT_OK);
    pleat__words_begin(&words, text, n);
    uint64_t at = 0;
    for (int i = 0; at < n; i++) {
        char word[64];
        uint64_t end = n;
        if (!CHECK_STATUS(pleat__words_next(&words, &end, NULL), PLEAT_OK)) break;
        snprintf(word, sizeof word, "%.*s", (int)(end - at), text + at);
        if (!CHECK(want[i] != NULL) || !CHECK_EQ_STR(word, want[i])) break;
        at = end;
    }
    pleat__words_release(&words);
    pleat__pretokenizer_destroy(pre);
}

static void test_words(void) {
    static const struct {
        const char *text;
        const char *words[MAX_WORDS];
    } cases[] = {
        {"Hello world", {"Hello", " world"}},
        {"I'm sure he'LL", {"I", "'m", " sure", " he", "'LL"}},
        {"a  b", {"a", " ", " b"}},
        {"a\n\n  b", {"a", "\n\n", " ", " b"}},
        {"  \n", {"  \n"}},
        {"a   ", {"a", "   "}},
        {"x...\n\ny", {"x", "...\n\n", "y"}},
        {"(foo) != [1]", {"(foo", ")", " !=", " [", "1", "]"}},
        {"\xC3\xA9t\xC3\xA9 na\xC3\xAFve", {"\xC3\xA9t\xC3\xA9", " na\xC3\xAFve"}},
        {"\xE4\xBD\xA0\xE5\xA5\xBD,\xE4\xB8\x96", {"\xE4\xBD\xA0\xE5\xA5\xBD", ",\xE4\xB8\x96"}},
        {"don\xE2\x80\x99t", {"don", "\xE2\x80\x99t"}},
        {"\xD9\xA3x", {"\xD9\xA3", "x"}},
        {"\xF0\x9F\x98\x80!", {"\xF0\x9F\x98\x80!"}},
    };
    for (size_t i = 0; i < CHECK_COUNT(cases); i++) {
        expect_words("qwen2", cases[i].text, cases[i].words);
        expect_words("llama-bpe", cases[i].text, cases[i].words);
    }
    static const char *const gpt2[] = {"gpt-2", "mpt", "olmo"};
    for (size_t i = 0; i < CHECK_COUNT(gpt2); i++) {
        expect_words(gpt2[i], "I'm x\n\n  a1 22.\n",
                     (const char *const[]){"I", "'m", " x", "\n\n ", " a", "1", " 22", ".", "\n", NULL});
    }
    expect_words("smollm", "a 12b", (const char *const[]){"a", " ", "1", "2", "b", NULL});
    expect_words("qwen35", "x\xCC\x81 2", (const char *const[]){"x\xCC\x81", " ", "2", NULL});
    expect_words("qwen2", "x\xCC\x81 2", (const char *const[]){"x", "\xCC\x81", " ", "2", NULL});
    expect_words("gpt-4o", "camelCase HTTPServer's 1234",
                 (const char *const[]){"camel", "Case", " HTTPServer's", " ", "123", "4", NULL});
    expect_words("tekken", "aB's/\n/12", (const char *const[]){"a", "B", "'s", "/\n/", "1", "2", NULL});
    expect_words("falcon", "a, 12345!?", (const char *const[]){"a", ",", " ", "123", "45", "!?", NULL});
    expect_words("deepseek-llm", "ab c1x,y \n ",
                 (const char *const[]){"ab", " c", "1", "x", ",", "y", " ", "\n", " ", NULL});
    expect_words("deepseek-coder", "ab c12 ,\n", (const char *const[]){"ab", " c", "1", "2", " ,", "\n", NULL});
    expect_words("deepseek-v3", "_ab 1234\xE4\xB8\x80",
                 (const char *const[]){"_ab", " ", "123", "4", "\xE4\xB8\x80", NULL});
    expect_words("gpt-2",
                 "a\xE1\xA0\x8E"
                 "b\xC2\x85"
                 "c", /* U+180E is no space, U+0085 is one */
                 (const char *const[]){"a", "\xE1\xA0\x8E", "b", "\xC2\x85", "c", NULL});
    expect_words("qwen2", " 1234", (const char *const[]){" ", "1", "2", "3", "4", NULL});
    expect_words("llama-bpe", " 1234567", (const char *const[]){" ", "123", "456", "7", NULL});
}

/* Runs of 1 MB for every pre-tokenizer: no limit is passed, and quadratic time would not end. */
static void test_runs(void) {
    const pleat_allocator al = pleat__allocator_or_default(NULL);
    const uint64_t n = check_rounds(1 << 20, 1 << 16);
    char *text = malloc(n);
    for (uint32_t row = 0; row < pleat__n_expressions; row++) {
        const char *names = pleat__expressions_table[row].names;
        const pleat__str name = {names, (uint64_t)(strchr(names, ' ') - names)};
        pleat__pretokenizer *pre = NULL;
        pleat__pretokenizer_traits traits;
        pleat__words words;
        if (!CHECK_STATUS(pleat__pretokenizer_create(name, &al, &pre, &traits, NULL), PLEAT_OK)) continue;
        CHECK_STATUS(pleat__words_init(&words, pre, n), PLEAT_OK);
        for (const char *c = " aB1-\n\t"; *c; c++) {
            check_context("%.*s: a run of 0x%02x", (int)name.n_bytes, name.p, (unsigned)*c);
            memset(text, *c, n);
            text[n - 1] = 'x';
            pleat__words_begin(&words, text, n);
            for (uint64_t at = 0, end; at < n; at = end) {
                end = n;
                if (!CHECK_STATUS(pleat__words_next(&words, &end, NULL), PLEAT_OK) || !CHECK(end > at)) break;
            }
        }
        pleat__words_release(&words);
        pleat__pretokenizer_destroy(pre);
    }
    free(text);
}

/* The match limit is an error, never a wrong cut; and it is out of reach without being lowered. */
static void test_match_limit(void) {
    const pleat_allocator al = pleat__allocator_or_default(NULL);
    pleat__pretokenizer *pre = NULL;
    pleat__pretokenizer_traits traits;
    pleat__words words;
    pleat_error err;
    enum { N = 1 << 20 };
    char *spaces = malloc(N + 1);
    memset(spaces, ' ', N);
    spaces[N] = 'x';
    CHECK_STATUS(pleat__pretokenizer_create(PLEAT__STR("qwen2"), &al, &pre, &traits, &err), PLEAT_OK);
    for (uint32_t limit = 0; limit <= 1; limit++) {
        uint64_t end = 0;
        pleat__pretokenizer_set_limit(pre, limit);
        CHECK_STATUS(pleat__words_init(&words, pre, N + 1), PLEAT_OK);
        pleat__words_begin(&words, spaces, N + 1);
        const pleat_status st = pleat__words_next(&words, &end, &err);
        CHECK_STATUS(st, limit ? PLEAT_E_LIMIT : PLEAT_OK);
        CHECK_EQ_U64(end, limit ? 0 : N - 1);
        pleat__words_release(&words);
    }
    pleat__pretokenizer_destroy(pre);
    free(spaces);
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        {"words", test_words},
        {"runs", test_runs},
        {"match_limit", test_match_limit},
    };
    return check_main(tests, CHECK_COUNT(tests), argc, argv);
}
