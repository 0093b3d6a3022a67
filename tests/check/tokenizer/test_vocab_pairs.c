/* SPDX-License-Identifier: MIT
 *
 * test_vocab_pairs.c: token ids of other people's vocabularies against what the models' own tokenizers made of the same
 * texts: build/real/vocab/NAME.gguf with NAME.gguf.inp (texts) and NAME.gguf.out (a line of ids for each).
 *
 * The files are llama.cpp's test data; tools/real_models.sh fetches them, and without them the tests are skipped.
 */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "core/memory.h"
#include "tokenizer/tokenizer.h"

static const char separator[] = "\n__ggml_vocab_test__\n";

static double now_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static pleat_status open_tokenizer(const char *path, pleat__tokenizer **out, pleat_error *err) {
    const pleat_allocator al = pleat__allocator_or_default(NULL);
    pleat_gguf *g = NULL;
    pleat_status st = pleat_gguf_open(path, NULL, &g, err);
    const double start = now_seconds();
    if (st == PLEAT_OK) st = pleat__tokenizer_create(g, &al, out, err);
    if (st == PLEAT_OK) printf("     %s: loaded in %.0f ms\n", path, 1e3 * (now_seconds() - start));
    pleat_gguf_close(&g);
    return st;
}

/* Tokens of text against the ids on the line; both are shown where they differ. */
static void expect_line(const pleat__tokenizer *t, const char *text, size_t n_bytes, const char *line) {
    pleat_token *ids = malloc((n_bytes + 1) * sizeof *ids);
    uint32_t n = 0, i = 0;
    char *rest;
    CHECK_STATUS(pleat__tokenizer_run(t, text, n_bytes, 0, ids, (uint32_t)n_bytes + 1, &n, NULL), PLEAT_OK);
    for (;; i++) {
        const long want = strtol(line, &rest, 10);
        if (rest == line) break;
        line = rest;
        if (i >= n || ids[i] != want) {
            fprintf(stderr, "  '%.*s': token %u of %u is %d, not %ld\n", (int)n_bytes, text, i, n, i < n ? ids[i] : -1,
                    want);
            CHECK(0);
            break;
        }
    }
    CHECK_EQ_U64(n, i);
    free(ids);
}

/* The file as a text with a NUL behind it, or NULL. */
static char *read_text(const char *path) {
    size_t n = 0;
    char *p = (char *)check_read_file(path, &n);
    char *text = p ? malloc(n + 1) : NULL;
    if (text) {
        memcpy(text, p, n);
        text[n] = '\0';
    }
    free(p);
    return text;
}

static void check_pair(const char *inp_path) {
    char path[300];
    pleat__tokenizer *t = NULL;
    pleat_error err = {0};
    const int n_path = (int)strlen(inp_path) - 4; /* without .inp */
    snprintf(path, sizeof path, "%.*s", n_path, inp_path);
    const pleat_status st = open_tokenizer(path, &t, &err);
    check_context("%s", path);
    if (strstr(path, "bert")) { /* WordPiece: models that generate nothing */
        CHECK_STATUS(st, PLEAT_E_UNSUPPORTED);
        CHECK(strstr(err.text, "tokenizer 'bert'") != NULL);
        return;
    }
    if (!CHECK_STATUS(st, PLEAT_OK)) {
        fprintf(stderr, "  %s\n", err.text);
        return;
    }
    char *texts = read_text(inp_path), *lines;
    snprintf(path, sizeof path, "%.*s.out", n_path, inp_path);
    lines = read_text(path);
    if (CHECK(texts && lines)) {
        char *line = lines;
        for (char *text = texts; text;) {
            char *end = strstr(text, separator), *line_end = strchr(line, '\n');
            if (line_end) *line_end = '\0';
            expect_line(t, text, end ? (size_t)(end - text) : strlen(text), line);
            text = end ? end + sizeof separator - 1 : NULL;
            line = line_end ? line_end + 1 : line + strlen(line);
        }
    }
    free(lines);
    free(texts);
    pleat__tokenizer_destroy(t);
}

static void test_pairs(void) {
    glob_t found;
    if (glob("build/real/vocab/*.gguf.inp", 0, NULL, &found) != 0)
        SKIP("build/real/vocab is not there: tools/real_models.sh fetches it");
    for (size_t i = 0; i < found.gl_pathc; i++) check_pair(found.gl_pathv[i]);
    globfree(&found);
}

/* Vocabularies without a pair load, or are refused for a reason that is known. */
static void test_others(void) {
    static const struct {
        const char *path, *reason; /* NULL: loads */
    } files[] = {
        {"build/real/vocab/ggml-vocab-baichuan.gguf", NULL},
        {"build/real/vocab/ggml-vocab-gpt-neox.gguf", "'tokenizer.ggml.pre' is missing"},
        {"build/real/vocab/ggml-vocab-nomic-bert-moe.gguf", "tokenizer 't5'"},
        {"build/real/SmolLM2-135M-Instruct.Q4_1.gguf", NULL},
        {"build/real/gemma-3-270m-q4_k_m.gguf", NULL},
    };
    for (size_t i = 0; i < CHECK_COUNT(files); i++) {
        pleat__tokenizer *t = NULL;
        pleat_error err = {0};
        FILE *f = fopen(files[i].path, "rb");
        if (!f) SKIP("build/real is not there: tools/real_models.sh fetches it");
        fclose(f);
        check_context("%s", files[i].path);
        const pleat_status st = open_tokenizer(files[i].path, &t, &err);
        CHECK((st == PLEAT_OK) == !files[i].reason);
        if (files[i].reason) CHECK(strstr(err.text, files[i].reason) != NULL);
        pleat__tokenizer_destroy(t);
    }
}

int main(int argc, char **argv) {
    static const check_test tests[] = {{"pairs", test_pairs}, {"others", test_others}};
    return check_main(tests, CHECK_COUNT(tests), argc, argv);
}
