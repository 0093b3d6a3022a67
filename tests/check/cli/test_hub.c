/* SPDX-License-Identifier: MIT
 *
 * test_hub.c: names behind -hf, paths that a hub may list, which file of a list is meant, and the hub's answers.
 */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "cli/lib/hub/listing.h"

static void test_names(void) {
    static const struct {
        const char *text, *repo, *quant; /* repo NULL: refused */
    } cases[] = {
        {"a/b", "a/b", ""},
        {"Ab-c_d.e/f1.2-GGUF", "Ab-c_d.e/f1.2-GGUF", ""},
        {"a/b:Q4_K_M", "a/b", "Q4_K_M"},
        {"a/b:UD-Q4_K_XL", "a/b", "UD-Q4_K_XL"},
        {"", NULL, NULL},
        {"a", NULL, NULL},
        {"a/", NULL, NULL},
        {"/b", NULL, NULL},
        {"a/b/c", NULL, NULL},
        {"a/b:", NULL, NULL},
        {"a/b:c/d", NULL, NULL},
        {"a:q/b", NULL, NULL},
        {"a/b:c:d", NULL, NULL},
        {"../b", NULL, NULL},
        {"a/..", NULL, NULL},
        {"a/b..c", NULL, NULL},
        {"a/b--c", NULL, NULL},
        {"-a/b", NULL, NULL},
        {"a/b c", NULL, NULL},
        {"a/b?c", NULL, NULL},
        {"a/b%2e", NULL, NULL},
        {"a/\xc3\xa4", NULL, NULL},
        {"a/b:Q234567890123456789012345678901X", NULL, NULL},
    };
    for (size_t i = 0; i < CHECK_COUNT(cases); i++) {
        hub_name name;
        hub_why why = "";
        check_context("'%s'", cases[i].text);
        const int is_taken = hub_name_parse(cases[i].text, &name, why);
        CHECK(is_taken == (cases[i].repo != NULL));
        CHECK(is_taken == !why[0]);
        if (!is_taken || !cases[i].repo) continue;
        CHECK_EQ_STR(name.repo, cases[i].repo);
        CHECK_EQ_STR(name.quant, cases[i].quant);
    }
}

static void test_long_names(void) {
    char text[HUB_REPO_CAP + 8];
    hub_name name;
    hub_why why;
    memset(text, 'x', sizeof text);
    text[96] = '/';
    text[193] = 0;
    CHECK(hub_name_parse(text, &name, why) == 1);
    CHECK_EQ_STR(name.repo, text);
    text[193] = 'x';
    text[194] = 0;
    CHECK(hub_name_parse(text, &name, why) == 0);
}

static void test_paths(void) {
    static const char *const good[] = {"a.gguf", "a/b.gguf", "a b.gguf", ".a",
                                       "..a",    "a..",      "...",      "1/2/3/4/5/6/7/8/9"};
    static const char *const bad[] = {"",     "/",    "/a",    "a/",     "a//b",    ".",
                                      "..",   "../a", "a/..",  "a/../b", "./a",     "a/./b",
                                      "a\\b", "a\nb", "a\x7f", "a/b/.",  "a/b/c/.", "1/2/3/4/5/6/7/8/9/10"};
    char part[300], path[HUB_PATH_CAP + 8];
    for (size_t i = 0; i < CHECK_COUNT(good); i++) CHECK(hub_is_path(good[i]) == 1);
    for (size_t i = 0; i < CHECK_COUNT(bad); i++) CHECK(hub_is_path(bad[i]) == 0);
    memset(part, 'x', sizeof part);
    part[255] = 0;
    CHECK(hub_is_path(part) == 1);
    part[255] = 'x';
    part[256] = 0;
    CHECK(hub_is_path(part) == 0);
    for (size_t i = 0; i < sizeof path; i++) path[i] = i % 200 == 199 ? '/' : 'x';
    path[HUB_PATH_CAP - 1] = 0;
    CHECK(hub_is_path(path) == 1);
    path[HUB_PATH_CAP - 1] = 'x';
    path[HUB_PATH_CAP] = 0;
    CHECK(hub_is_path(path) == 0);
}

/* ---- which file -------------------------------------------------------------------------------- */

/* Pick from a list of paths, NULL behind the last. */
static const char *pick(const char *const *paths, const char *quant, const char *path, hub_why why) {
    static hub_file found;
    hub_listing list = {0};
    hub_name name = {.repo = "a/b"};
    snprintf(name.quant, sizeof name.quant, "%s", quant);
    for (; *paths; paths++) {
        hub_file file = {.path = ""};
        snprintf(file.path, sizeof file.path, "%s", *paths);
        hub_listing_add(&list, &file);
    }
    const hub_file *file = hub_pick(&list, &name, path, why);
    if (file) found = *file;
    hub_listing_release(&list);
    return file ? found.path : "";
}

#define PATHS(...) \
    (const char *const[]) { __VA_ARGS__, NULL }

static void test_picks(void) {
    static const char *const many[] = {"m-Q4_K_M.gguf",
                                       "m-Q4_K_S.gguf",
                                       "m.q5_0.gguf",
                                       "Q6_K/m.gguf",
                                       "m-UD-Q4_K_XL.gguf",
                                       "m-IQ4_NL.gguf",
                                       "mmproj-m-BF16.gguf",
                                       "m-bf16.gguf",
                                       "m_F16.gguf",
                                       "imatrix.gguf",
                                       NULL};
    static const struct {
        const char *quant, *path;
    } cases[] = {
        {"", "m-Q4_K_M.gguf"},
        {"Q4_K_M", "m-Q4_K_M.gguf"},
        {"q4_k_s", "m-Q4_K_S.gguf"},
        {"Q5_0", "m.q5_0.gguf"},
        {"Q6_K", "Q6_K/m.gguf"},
        {"Q4_K_XL", "m-UD-Q4_K_XL.gguf"},
        {"UD-Q4_K_XL", "m-UD-Q4_K_XL.gguf"},
        {"IQ4_NL", "m-IQ4_NL.gguf"},
        {"BF16", "m-bf16.gguf"},
        {"F16", "m_F16.gguf"},
        {"Q4_K", ""},
        {"Q4", ""},
        {"Q4_NL", ""},
        {"gguf", ""},
        {"m", ""},
    };
    hub_why why;
    for (size_t i = 0; i < CHECK_COUNT(cases); i++) {
        check_context("quant '%s'", cases[i].quant);
        CHECK_EQ_STR(pick(many, cases[i].quant, NULL, why), cases[i].path);
        CHECK(!why[0] == (cases[i].path[0] != 0));
    }
    CHECK_EQ_STR(pick(many, "", "m_F16.gguf", why), "m_F16.gguf");
    CHECK_EQ_STR(pick(many, "", "mmproj-m-BF16.gguf", why), "mmproj-m-BF16.gguf"); /* by its name */
    CHECK_EQ_STR(pick(many, "", "m_f16.gguf", why), "");
    CHECK(strstr(why, "there is no file 'm_f16.gguf' in it; there are: m-Q4_K_M.gguf, ") && !strstr(why, "mmproj"));
}

static void test_defaults(void) {
    hub_why why;
    CHECK_EQ_STR(pick(PATHS("m-Q8_0.gguf", "m-F16.gguf"), "", NULL, why), "m-Q8_0.gguf");
    CHECK_EQ_STR(pick(PATHS("m-F16.gguf", "mmproj.gguf"), "", NULL, why), "m-F16.gguf");
    CHECK_EQ_STR(pick(PATHS("m-F16.gguf", "m-mmproj-F16.gguf"), "", NULL, why), "m-F16.gguf");
    CHECK_EQ_STR(pick(PATHS("m.GGUF"), "", NULL, why), "m.GGUF");
    CHECK_EQ_STR(pick(PATHS("m-F16.gguf", "m-Q6_K.gguf"), "", NULL, why), "");
    CHECK_EQ_STR(why, "name one, as USER/REPO:QUANT or with --hf-file; there are: m-F16.gguf, m-Q6_K.gguf");
    CHECK_EQ_STR(pick(PATHS("a-Q4_K_M.gguf", "b-Q4_K_M.gguf", "c-Q8_0.gguf"), "", NULL, why), "");
    CHECK_EQ_STR(why, "2 files are of Q4_K_M, so name one with --hf-file: a-Q4_K_M.gguf, b-Q4_K_M.gguf");
    CHECK_EQ_STR(pick(PATHS("mmproj.gguf", "m.bin"), "", NULL, why), "");
    CHECK_EQ_STR(why, "there is no GGUF model in it");
    CHECK_EQ_STR(pick(PATHS("m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"), "", NULL, why), "");
    CHECK(strstr(why, "m-Q8_0-00001-of-00002.gguf is one of 2 parts"));
    CHECK_EQ_STR(pick(PATHS("m-Q8_0-00001-of-00001.gguf"), "q8_0", NULL, why), "m-Q8_0-00001-of-00001.gguf");
    CHECK_EQ_STR(pick(PATHS("m-Q8_0-00001-of-00002x.gguf"), "q8_0", NULL, why), "m-Q8_0-00001-of-00002x.gguf");
}

/* A refusal that would be longer than its room is cut, and ends. */
static void test_long_lists(void) {
    enum { FILES = 300 };
    char paths[FILES][120];
    const char *list[FILES + 1] = {NULL};
    hub_why why;
    for (int i = 0; i < FILES; i++) {
        snprintf(paths[i], sizeof paths[i], "%0100d.gguf", i);
        list[i] = paths[i];
    }
    memset(why, 'x', sizeof why);
    CHECK_EQ_STR(pick(list, "", NULL, why), "");
    CHECK(memchr(why, 0, sizeof why) != NULL);
    CHECK(strlen(why) > sizeof why / 2);
}

/* ---- answers ----------------------------------------------------------------------------------- */

#define SHA "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void test_listing(void) {
    static const char json[] =
        "[{\"type\":\"directory\",\"path\":\"d.gguf\",\"size\":0},{\"type\":\"file\",\"path\":\"README.md\"},"
        "{\"type\":\"file\",\"path\":\"a.gguf\",\"size\":5,\"lfs\":{\"oid\":\"" SHA "\",\"size\":7}},"
        "{\"type\":\"file\",\"path\":\"b.gguf\",\"size\":9,\"oid\":\"x\"}]";
    hub_listing list = {0};
    hub_why why;
    if (!CHECK(hub_listing_parse(json, sizeof json - 1, &list, why) == 1) || !CHECK_EQ_U64(list.n, 2)) return;
    CHECK_EQ_STR(list.at[0].path, "a.gguf");
    CHECK_EQ_STR(list.at[0].sha256, SHA);
    CHECK_EQ_U64(list.at[0].size_bytes, 7);
    CHECK_EQ_STR(list.at[1].sha256, "");
    CHECK_EQ_U64(list.at[1].size_bytes, 9);
    for (size_t n = 0; n < sizeof json - 1; n++) { /* every beginning is refused */
        hub_listing part = {0};
        CHECK(hub_listing_parse(json, n, &part, why) == 0);
        hub_listing_release(&part);
    }
    hub_listing_release(&list);
}

static void test_commit(void) {
    static const char good[] = "{\"sha\": \"0123456789abcdef0123456789abcdef01234567\", \"id\": \"a/b\"}";
    char commit[41];
    hub_why why;
    CHECK(hub_commit_parse(good, sizeof good - 1, commit, why) == 1);
    CHECK_EQ_STR(commit, "0123456789abcdef0123456789abcdef01234567");
    for (size_t n = 0; n < sizeof good - 1; n++) CHECK(hub_commit_parse(good, n, commit, why) == 0);
}

static const check_test tests[] = {
    {"names", test_names},       {"long_names", test_long_names}, {"paths", test_paths},     {"picks", test_picks},
    {"defaults", test_defaults}, {"long_lists", test_long_lists}, {"listing", test_listing}, {"commit", test_commit},
};
int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
