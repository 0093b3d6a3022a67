/* SPDX-License-Identifier: MIT
 *
 * test_nearest.c: which word was meant: edits against the recursive definition, the bound, and slips that people make.
 */
#include <string.h>

#include "check.h"

enum { LONGEST = 7 };

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* Optimal string alignment as it is defined: the last characters are deleted, inserted, replaced or swapped. */
static uint32_t edits(const char *a, size_t na, const char *b, size_t nb) {
    if (!na || !nb) return (uint32_t)(na + nb);
    uint32_t best = least(edits(a, na - 1, b, nb) + 1, edits(a, na, b, nb - 1) + 1);
    best = least(best, edits(a, na - 1, b, nb - 1) + (a[na - 1] != b[nb - 1]));
    if (na > 1 && nb > 1 && a[na - 1] == b[nb - 2] && a[na - 2] == b[nb - 1])
        best = least(best, edits(a, na - 2, b, nb - 2) + 1);
    return best;
}

static int is_near(const char *word, const char *meant) {
    const size_t n = strlen(word), n_meant = strlen(meant), longer = n > n_meant ? n : n_meant;
    if (n >= 3 && strncmp(word, meant, n) == 0) return 1;
    return edits(word, n, meant, n_meant) <= longer / 3 && (longer > 4 || word[0] == meant[0]);
}

static size_t make_word(char *out) {
    const size_t n = (size_t)check_between(1, LONGEST);
    for (size_t i = 0; i < n; i++) out[i] = (char)('a' + check_below(3));
    out[n] = 0;
    return n;
}

static void test_as_defined(void) {
    for (uint64_t round = 0; round < check_rounds(4000, 400); round++) {
        char text[4][LONGEST + 1], word[LONGEST + 1];
        const char *words[4] = {text[0], text[1], text[2], text[3]};
        uint32_t fewest = UINT32_MAX;
        const char *want = NULL;
        for (int i = 0; i < 4; i++) make_word(text[i]);
        const size_t n = make_word(word);
        for (int i = 0; i < 4; i++) {
            const size_t n_word = strlen(words[i]);
            const uint32_t d = edits(word, n, words[i], n_word);
            const size_t longer = n > n_word ? n : n_word;
            const int is_slip = d <= longer / 3 && (longer > 4 || word[0] == words[i][0]);
            const uint32_t cost = is_slip ? d : 1;
            if (!is_near(word, words[i]) || cost >= fewest) continue;
            fewest = cost;
            want = words[i];
        }
        check_context("'%s' among '%s' '%s' '%s' '%s'", word, text[0], text[1], text[2], text[3]);
        CHECK(pleat_nearest_word(word, n, words, 4) == want);
        for (int i = 0; i < 4; i++) CHECK_EQ_I64(pleat_word_is_near(word, n, words[i]), is_near(word, words[i]));
    }
}

static void test_slips(void) {
    static const char *const words[] = {"leankv", "k8v4", "h2o", "streaming", "cpu", "cuda", "json", "csv"};
    static const struct {
        const char *word, *want; /* NULL: none */
    } cases[] = {
        {"leakv", "leankv"},
        {"laenkv", "leankv"},
        {"LeanKV", "leankv"},
        {"K8V4", "k8v4"},
        {"k8v5", "k8v4"},
        {"h20", "h2o"},
        {"stream", "streaming"},
        {"st", NULL},
        {"gpu", NULL},
        {"cup", "cpu"},
        {"cdua", "cuda"},
        {"cvs", "csv"},
        {"jsno", "json"},
        {"xml", NULL},
        {"", NULL},
        {"q", NULL},
        {"turbo", NULL},
        {"k9v9", NULL},
        {"streamnig", "streaming"},
        {"a_word_that_is_longer_than_the_63_bytes_of_a_word_that_are_compared", NULL},
    };
    for (size_t i = 0; i < CHECK_COUNT(cases); i++) {
        const char *got = pleat_nearest_word(cases[i].word, strlen(cases[i].word), words, CHECK_COUNT(words));
        check_context("'%s'", cases[i].word);
        CHECK_EQ_STR(got ? got : "none", cases[i].want ? cases[i].want : "none");
    }
    CHECK_EQ_STR(pleat_nearest_word("h20:budget", 3, words, CHECK_COUNT(words)), "h2o");
    CHECK(pleat_nearest_word(NULL, 3, words, 1) == NULL && pleat_nearest_word("h2o", 3, NULL, 1) == NULL);
    CHECK(!pleat_word_is_near("h2o", 3, NULL) && !pleat_word_is_near(NULL, 3, "h2o"));
}

static const check_test tests[] = {{"as_defined", test_as_defined}, {"slips", test_slips}};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
