/* SPDX-License-Identifier: MIT
 *
 * test_spec.c: the KV spec: every name round-trips, every error names its position and the nearest word.
 */
#include <string.h>

#include "check.h"
#include "pleat/spec.h"

static const char *const names[] = {"f32",  "f16",  "k8v8", "k8v4", "k8v2", "k4v8",
                                    "k4v4", "k4v2", "k2v8", "k2v4", "k2v2"};

static void test_round_trip(void) {
    for (size_t i = 0; i < CHECK_COUNT(names); i++) {
        pleat_spec spec;
        char text[PLEAT_SPEC_TEXT_CAP];
        check_context("%s", names[i]);
        if (!CHECK_STATUS(pleat_spec_parse(names[i], &spec, NULL), PLEAT_OK)) continue;
        CHECK_STATUS(pleat_spec_print(&spec, text, sizeof text), PLEAT_OK);
        CHECK_EQ_STR(text, names[i]);
        if (names[i][0] != 'k') continue;
        CHECK_EQ_U64(spec.high.k_bits, (uint64_t)(names[i][1] - '0'));
        CHECK_EQ_U64(spec.high.v_bits, (uint64_t)(names[i][3] - '0'));
    }
}

static void test_errors_name_position_and_word(void) {
    static const struct {
        const char *text;
        uint64_t where;
        const char *says;
    } cases[] = {
        {"", 0, "missing"},
        {"k8v5", 0, "'k8v8'"},
        {"f1", 0, "'f16'"},
        {"K8V4", 0, "unknown name"},
        {" f16", 0, "unknown name"},
        {"k8v4:", 5, "no options"},
        {"k8v4:window=3", 5, "'window'"},
        {"f16+k8v4", 4, "'k8v4'"},
        {"k8v4+", 5, "nothing can"},
        {"+f16", 0, "missing"},
        {":a=1", 0, "missing"},
        {"f16 ", 0, "'f16'"},
        {"quite_a_long_name_that_is_longer_than_any_word_allowed_here", 0, "unknown name"},
    };
    for (size_t i = 0; i < CHECK_COUNT(cases); i++) {
        pleat_error err = {0};
        pleat_spec spec = {.high = {1, 2}};
        check_context("'%s'", cases[i].text);
        CHECK_STATUS(pleat_spec_parse(cases[i].text, &spec, &err), PLEAT_E_SYNTAX);
        CHECK_EQ_U64(err.where, cases[i].where);
        if (!CHECK(strstr(err.text, cases[i].says) != NULL)) check_context("said: %s", err.text);
        CHECK(spec.high.k_bits == 1 && spec.high.v_bits == 2); /* untouched */
    }
    CHECK_STATUS(pleat_spec_parse(NULL, NULL, NULL), PLEAT_E_ARG);
}

static void test_cache_types(void) {
    static const struct {
        const char *k, *v, *spec;
    } cases[] = {{"f32", "f32", "f32"},    {"f16", "f16", "f16"},    {"q8_0", "q8_0", "k8v8"},
                 {"q8_0", "q4_0", "k8v4"}, {"q4_0", "q8_0", "k4v8"}, {"q4_0", "q4_0", "k4v4"}};
    for (size_t i = 0; i < CHECK_COUNT(cases); i++) {
        pleat_spec spec;
        char text[PLEAT_SPEC_TEXT_CAP];
        if (!CHECK_STATUS(pleat_spec_from_cache_types(cases[i].k, cases[i].v, &spec, NULL), PLEAT_OK)) continue;
        CHECK_STATUS(pleat_spec_print(&spec, text, sizeof text), PLEAT_OK);
        CHECK_EQ_STR(text, cases[i].spec);
    }
    pleat_spec spec;
    pleat_error err;
    CHECK_STATUS(pleat_spec_from_cache_types("f16", "q8_0", &spec, &err), PLEAT_E_UNSUPPORTED);
    CHECK_STATUS(pleat_spec_from_cache_types("q5_0", "q8_0", &spec, &err), PLEAT_E_SYNTAX);
    CHECK(strstr(err.text, "q5_0") != NULL);
    CHECK_STATUS(pleat_spec_from_cache_types("q8_0", "", &spec, &err), PLEAT_E_SYNTAX);
    CHECK_STATUS(pleat_spec_from_cache_types(NULL, "f16", &spec, &err), PLEAT_E_SYNTAX);
}

/* design: d*(bk+bv)/8 + 8; f16 4*d. */
static void test_token_bytes(void) {
    CHECK_EQ_U64(pleat_format_token_bytes((pleat_format){16, 16}, 128), 512);
    CHECK_EQ_U64(pleat_format_token_bytes((pleat_format){32, 32}, 64), 512);
    CHECK_EQ_U64(pleat_format_token_bytes((pleat_format){8, 4}, 128), 200);
    CHECK_EQ_U64(pleat_format_token_bytes((pleat_format){4, 2}, 64), 56);
    CHECK_EQ_U64(pleat_format_token_bytes((pleat_format){16, 8}, 64), 0);
    CHECK_EQ_U64(pleat_format_token_bytes((pleat_format){3, 3}, 64), 0);
}

static void test_print_refuses_nonsense(void) {
    char text[PLEAT_SPEC_TEXT_CAP];
    const pleat_spec bad = {.high = {16, 4}}, good = {.high = {8, 4}};
    CHECK_STATUS(pleat_spec_print(&bad, text, sizeof text), PLEAT_E_ARG);
    CHECK_STATUS(pleat_spec_print(&good, text, 3), PLEAT_E_ARG);
}

static const check_test tests[] = {
    {"round_trip", test_round_trip},
    {"errors_name_position_and_word", test_errors_name_position_and_word},
    {"cache_types", test_cache_types},
    {"token_bytes", test_token_bytes},
    {"print_refuses_nonsense", test_print_refuses_nonsense},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
