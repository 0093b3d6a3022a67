/* SPDX-License-Identifier: MIT
 *
 * test_long_text.c: 1 MB of made-up text in six scripts, code, emoji, digits and white space, by the two real models'
 * tokenizers: the ids are those of llama.cpp, and the detokenizer gives the text back byte by byte.
 *
 * The constants are FNV-1a over the ids as 32-bit numbers.  With the same text and files llama-cpp-python 0.3.36
 * (tokenize, special=True) made the same ids, number by number, on 2026-11-23.  tools/real_models.sh fetches the files.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "core/memory.h"
#include "core/rng.h"
#include "model/internal.h"
#include "tokenizer/tokenizer.h"

/* ---- the text ---------------------------------------------------------------------------------------- */

#define TEXT_BYTES (1u << 20)

static char text[TEXT_BYTES + 4096];
static size_t n_text;
static pleat__rng rng; /* no test's seed changes the text */

static uint32_t below(uint32_t n) { return pleat__rng_below(&rng, n); }

static void put(const char *s) {
    const size_t n = strlen(s);
    memcpy(text + n_text, s, n);
    n_text += n;
}

static void put_character(uint32_t cp) {
    static const uint32_t limits[] = {0x80, 0x800, 0x10000, 0x110000};
    int len = 1;
    while (cp >= limits[len - 1]) len++;
    if (len == 1) {
        text[n_text++] = (char)cp;
        return;
    }
    text[n_text++] = (char)((0xF00u >> len) | cp >> (6 * (len - 1)));
    for (int i = len - 2; i >= 0; i--) text[n_text++] = (char)(0x80 | ((cp >> (6 * i)) & 0x3F));
}

/* A word of 1 to n characters of [first, last]. */
static void put_word(uint32_t first, uint32_t last, uint32_t n) {
    for (uint32_t left = 1 + below(n); left > 0; left--) put_character(first + below(last - first + 1));
}

#define PICK(list) (list)[below(sizeof(list) / sizeof *(list))]

static void put_latin(void) {
    static const char *const words[] = {
        "the",
        "of",
        "and",
        "answer",
        "is",
        "Where",
        "house",
        "QUESTION",
        "don't",
        "we'll",
        "I'M",
        "na\xC3\xAFve",
        "was",
        "that",
        "people",
        "light",
        "\xC3\xA9t\xC3\xA9",
        "Gro\xC3\x9F",
        "internationalization",
        "token",
        "x",
        "he's",
    };
    static const char *const starts[] = {"b", "tr", "sh", "qu", "L", "mn", "pre", "un"};
    static const char *const ends[] = {"a", "ing", "ou", "tion", "\xC3\xB1o", "er", "ea", "ism"};
    if (below(3) > 0) {
        put(PICK(words));
        return;
    }
    for (uint32_t left = 1 + below(3); left > 0; left--) {
        put(PICK(starts));
        put(PICK(ends));
    }
}

static void put_script(void) {
    switch (below(8)) {
        case 0: put_word(0x430, 0x44F, 9); break;   /* Cyrillic */
        case 1: put_word(0x3B1, 0x3C9, 9); break;   /* Greek */
        case 2: put_word(0x627, 0x64E, 7); break;   /* Arabic, with vowel signs */
        case 3: put_word(0x915, 0x94D, 6); break;   /* Devanagari, with signs */
        case 4: put_word(0x4E00, 0x9FA5, 4); break; /* Han */
        case 5: put_word(0x3041, 0x30FA, 6); break; /* Kana */
        case 6: put_word(0xAC00, 0xD7A3, 4); break; /* Hangul */
        default: put_word(0xE01, 0xE2E, 12);        /* Thai */
    }
}

static void put_number(uint32_t n) {
    for (uint32_t left = 1 + below(n); left > 0; left--) put_character('0' + below(10));
}

static void put_code(void) {
    static const char *const pieces[] = {
        "int main(void) {\n    return 0;\n}\n",
        "for (i = 0; i < n; i++) {\n\t\t",
        "}\r\n",
        "def f(self, **kw):\n        ",
        "<table><tr><td class=\"x\">",
        "</td></tr></table>\n",
        " != ",
        " += ",
        "\"key\": [",
        "], ",
        "// ",
        "#include <",
        "0x",
        "->",
        "&&",
        "SELECT * FROM `",
        "`;\n",
        "${HOME:-~}/",
        " | grep -E '^[a-z]+$' > ",
        "<|im_end|>",
        "</s>",
        "<end_of_turn>\n",
        "===========",
        "------------------------",
        "https://",
        "@Override\n",
    };
    for (uint32_t left = 1 + below(8); left > 0; left--) {
        put(PICK(pieces));
        if (below(2) > 0) put_word('a', 'z', 7);
        if (below(3) == 0) put_number(6);
    }
}

static void put_space(void) {
    static const char *const kinds[] = {"\n", "\n\n", "\t", "\r\n", "\xC2\xA0", "\xE3\x80\x80", " \n", "\xE2\x80\xA8"};
    const char *kind = PICK(kinds);
    for (uint32_t left = 1 + below(below(8) == 0 ? 40 : 2); left > 0; left--) put(kind);
    if (below(3) == 0) n_text += (size_t)sprintf(text + n_text, "%*s", (int)below(40), "");
}

static void put_sign(void) {
    static const char *const emoji[] = {"\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7", "\xE2\x9D\xA4\xEF\xB8\x8F",
                                        "\xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD", "\xF0\x9F\x87\xAB\xF0\x9F\x87\xB7"};
    switch (below(6)) {
        case 0: put(PICK(emoji)); break;
        case 1: put_word(0x1F600, 0x1F64F, 4); break;
        case 2: put_word(0x2190, 0x22FF, 3); break; /* arrows, mathematics */
        case 3: put_word('!', '/', 5); break;
        case 4: put_word(0x300, 0x36F, 2); break; /* combining marks */
        default: put_word(0x2010, 0x203A, 3);     /* dashes, quotes, separators */
    }
}

static void make_text(void) {
    rng.state = 20;
    n_text = 0;
    while (n_text < TEXT_BYTES) {
        const uint32_t kind = below(16);
        for (uint32_t left = 1 + below(12); left > 0 && kind < 11; left--) {
            kind < 6 ? put_latin() : put_script();
            put(left > 1 ? " " : kind == 10 ? "\xE3\x80\x82" : ". ");
        }
        if (kind == 11 || kind == 12) put_code();
        if (kind == 13) put_space();
        if (kind == 14) put_sign();
        if (kind == 15) put_number(20);
    }
}

/* ---- the tests --------------------------------------------------------------------------------------- */

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t hash_ids(const pleat_token *ids, uint32_t n) {
    uint64_t h = 0xCBF29CE484222325u;
    for (uint32_t i = 0; i < n; i++) h = (h ^ (uint32_t)ids[i]) * 0x100000001B3u;
    return h;
}

static void expect_same_text(const pleat__tokenizer *t, const pleat_token *ids, uint32_t n) {
    const pleat_model m = {.tokenizer = (pleat__tokenizer *)t};
    pleat_detokenizer d;
    size_t at = 0;
    CHECK_STATUS(pleat_detokenizer_init(&d, &m, PLEAT_DETOKENIZE_SPECIAL), PLEAT_OK);
    for (uint32_t i = 0; i < n; i++) {
        char piece[400];
        size_t len = 0;
        if (!CHECK_STATUS(pleat_detokenizer_put(&d, ids[i], piece, sizeof piece, &len), PLEAT_OK)) return;
        if (!CHECK(len <= n_text - at) || !CHECK_EQ_MEM(piece, text + at, len)) return;
        at += len;
    }
    CHECK_EQ_U64(at, n_text);
}

static void check_model(const char *path, uint32_t want_n, uint64_t want_hash) {
    const pleat_allocator al = pleat__allocator_or_default(NULL);
    pleat_gguf *g = NULL;
    pleat__tokenizer *t = NULL;
    pleat_error err = {0};
    uint32_t n = 0;
    pleat_token *ids = malloc((n_text + 1) * sizeof *ids);
    check_context("%s", path);
    double start = cpu_seconds();
    CHECK_STATUS(pleat_gguf_open(path, NULL, &g, &err), PLEAT_OK);
    if (g && CHECK_STATUS(pleat__tokenizer_create(g, &al, &t, &err), PLEAT_OK)) {
        printf("     %s: loaded in %.0f ms", path, 1e3 * (cpu_seconds() - start));
        start = cpu_seconds();
        CHECK_STATUS(pleat__tokenizer_run(t, text, n_text, PLEAT_TOKENIZE_SPECIAL, ids, (uint32_t)n_text + 1, &n, &err),
                     PLEAT_OK);
        printf(", %zu bytes to %u tokens in %.0f ms\n", n_text, n, 1e3 * (cpu_seconds() - start));
        CHECK_EQ_U64(n, want_n);
        CHECK_EQ_U64(hash_ids(ids, n), want_hash);
        expect_same_text(t, ids, n);
    }
    pleat__tokenizer_destroy(t);
    pleat_gguf_close(&g);
    free(ids);
}

static void test_real_models(void) {
    static const struct {
        const char *path;
        uint32_t n;
        uint64_t hash;
    } models[] = {
        {"build/real/SmolLM2-135M-Instruct.Q4_1.gguf", 542420, 10256243088085191661u},
        {"build/real/gemma-3-270m-q4_k_m.gguf", 430236, 18202308022375904745u},
    };
    for (size_t i = 0; i < CHECK_COUNT(models); i++) {
        FILE *f = fopen(models[i].path, "rb");
        if (!f) SKIP("build/real is not there: tools/real_models.sh fetches it");
        fclose(f);
    }
    make_text();
    for (size_t i = 0; i < CHECK_COUNT(models); i++) check_model(models[i].path, models[i].n, models[i].hash);
}

int main(int argc, char **argv) {
    static const check_test tests[] = {{"real_models", test_real_models}};
    return check_main(tests, CHECK_COUNT(tests), argc, argv);
}
