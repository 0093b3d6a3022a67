/* SPDX-License-Identifier: MIT
 *
 * test_half.c: which half has what, and the standard errors of what is measured there, against the formulas written out.
 */
#include <math.h>
#include <string.h>

#include "check.h"
#include "cli/lib/half.h"
#include "cli/lib/score/clusters.h"

/* The ids of eval/tasks.jsonl and their halves, by eval/documents.py, which has the rule a second time. */
static void test_ids(void) {
    static const struct {
        const char *id;
        int shows;
    } known[] = {{"few_shot-300-00", 0},
                 {"few_shot-300-03", 1},
                 {"few_shot-800-00", 1},
                 {"few_shot-800-02", 0},
                 {"kv_recall-400-00", 0},
                 {"kv_recall-400-01", 1},
                 {"", 1},
                 {"\xc3\xa9", 0}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        CHECK(half_shows(known[i].id) == known[i].shows);
        CHECK(half_has_sample(HALF_SHOW, 0, known[i].id) == known[i].shows);
        CHECK(half_has_sample(HALF_CHOOSE, 1, known[i].id) == !known[i].shows);
        CHECK(half_has_sample(HALF_ALL, 7, known[i].id));
        CHECK(half_has_sample(HALF_EVEN, 3, known[i].id) && !half_has_sample(HALF_ODD, 3, known[i].id));
    }
}

/* A part of each half of a text is a part of no other, and windows by places are of the whole. */
static void test_texts(void) {
    static const char *const texts[] = {"", "\n", "a", "ab\ncd\nef\n", "abcdefgh\nx", "ab\ncdefghijk"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const size_t n = strlen(texts[i]);
        size_t n_choose, n_show, n_all;
        CHECK(half_of_text(HALF_CHOOSE, texts[i], n, &n_choose) == 0);
        CHECK(half_of_text(HALF_SHOW, texts[i], n, &n_show) == n_choose);
        CHECK(n_choose + n_show == n && 2 * n_choose >= n);
        CHECK(n_show == 0 || texts[i][n_choose - 1] == '\n');
        CHECK(half_of_text(HALF_EVEN, texts[i], n, &n_all) == 0 && n_all == n);
    }
    CHECK(half_count(HALF_SHOW, 5) == 5 && half_place(HALF_SHOW, 4) == 4 && half_count(HALF_ODD, 5) == 3);
    for (uint32_t half = HALF_ALL; half <= HALF_SHOW; half++) CHECK(half_other(half_other(half)) == half);
}

/* By hand: 3 of 4, 0 of 1, 2 of 2. */
static void test_errors(void) {
    static const double x[] = {3, 0, 2}, y[] = {4, 1, 2}, r = 5.0 / 7;
    clusters c = {0};
    double squares = 0;
    CHECK(isnan(clusters_ratio(&c)) && isnan(clusters_error(&c)));
    for (int i = 0; i < 3; i++) {
        clusters_add(&c, x[i], y[i]);
        squares += (x[i] - r * y[i]) * (x[i] - r * y[i]);
        CHECK(i > 0 || isnan(clusters_error(&c)));
    }
    CHECK(!(fabs(clusters_ratio(&c) - r) > 1e-12));
    CHECK(!(fabs(clusters_error(&c) - sqrt(1.5 * squares) / 7) > 1e-12));
    clusters none = {0};
    clusters_add(&none, 0, 0);
    clusters_add(&none, 0, 0);
    CHECK(isnan(clusters_error(&none)));
}

static const check_test tests[] = {
    {"ids", test_ids},
    {"texts", test_texts},
    {"errors", test_errors},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
