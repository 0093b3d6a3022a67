/* SPDX-License-Identifier: MIT
 *
 * test_tokenizer.c: merges of bytes and special tokens, and the shipped model's tokens.  Words: test_pretokenize.c.
 *
 * Outside truth: eval/golden-q8_0.json has prompts with the ids that the model was trained on.  Merges are held against
 * the obvious loop over random vocabularies.
 */
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "core/memory.h"
#include "gguf_writer.h"
#include "model/internal.h"
#include "tokenizer_rig.h"

static const char model_path[] = "models/pleat-28m-q8_0.gguf";
static const char prose_path[] = "eval/prose.txt";
static const char golden_path[] = "eval/golden-q8_0.json";

/* ---- helpers --------------------------------------------------------------------------------------- */

static pleat_model *load_model(void) {
    pleat_model *m = NULL;
    pleat_error err = {0};
    check_context("%s", model_path);
    if (!CHECK_STATUS(pleat_model_load(model_path, NULL, &m, &err), PLEAT_OK)) fprintf(stderr, "  %s\n", err.text);
    return m;
}

/* The bytes of the tokens, one behind the other, are the text. */
static int is_text_of(const pleat_model *m, const pleat_token *ids, uint32_t n, const char *text, size_t n_bytes) {
    size_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        size_t len = 0;
        const char *p = pleat_model_token_text(m, ids[i], &len);
        if (!p || len > n_bytes - at || memcmp(p, text + at, len) != 0) return 0;
        at += len;
    }
    return at == n_bytes;
}

/* ---- merges ------------------------------------------------------------------------------------------- */

#define MAX_MERGES 60
#define MAX_PIECE 40

typedef struct merge {
    char left[MAX_PIECE], right[MAX_PIECE];
} merge;

/* Random merges over letters a, b, c.  Different pairs may make the same token, as in real vocabularies. */
static unsigned random_merges(merge *merges, unsigned n, char tokens[][MAX_PIECE], unsigned *n_tokens) {
    unsigned n_made = 0;
    *n_tokens = 3;
    for (unsigned i = 0; i < 3; i++) snprintf(tokens[i], MAX_PIECE, "%c", 'a' + (int)i);
    for (unsigned tries = 0; n_made < n && tries < 10 * n; tries++) {
        const char *left = tokens[check_below(*n_tokens)], *right = tokens[check_below(*n_tokens)];
        char joined[2 * MAX_PIECE];
        bool is_new_pair = true, is_new_token = true;
        if (snprintf(joined, sizeof joined, "%s%s", left, right) >= MAX_PIECE) continue;
        for (unsigned i = 0; i < n_made; i++) {
            if (strcmp(merges[i].left, left) == 0 && strcmp(merges[i].right, right) == 0) is_new_pair = false;
        }
        if (!is_new_pair) continue;
        snprintf(merges[n_made].left, MAX_PIECE, "%s", left);
        snprintf(merges[n_made++].right, MAX_PIECE, "%s", right);
        for (unsigned i = 0; i < *n_tokens; i++) is_new_token = is_new_token && strcmp(tokens[i], joined) != 0;
        if (is_new_token) memcpy(tokens[(*n_tokens)++], joined, MAX_PIECE);
    }
    return n_made;
}

/* The obvious loop: join the leftmost pair of the lowest rank until there is none.  Returns the number of parts. */
static unsigned merge_slowly(const merge *merges, unsigned n_merges, char parts[][MAX_PIECE], unsigned n) {
    for (;;) {
        unsigned best_rank = n_merges, best = 0;
        for (unsigned i = 0; i + 1 < n; i++) {
            for (unsigned r = 0; r < best_rank; r++) {
                if (strcmp(merges[r].left, parts[i]) != 0 || strcmp(merges[r].right, parts[i + 1]) != 0) continue;
                best_rank = r;
                best = i;
            }
        }
        if (best_rank == n_merges) return n;
        memmove(parts[best] + strlen(parts[best]), parts[best + 1], strlen(parts[best + 1]) + 1);
        memmove(parts[best + 1], parts[best + 2], (n - best - 2) * sizeof parts[0]);
        n--;
    }
}

static pleat__tokenizer *tokenizer_of(const merge *merges, unsigned n_merges, char tokens[][MAX_PIECE],
                                      unsigned n_tokens) {
    gguf_writer w;
    const char *more[MAX_MERGES];
    char spelled[MAX_MERGES][2 * MAX_PIECE];
    const char *lines[MAX_MERGES];
    pleat__tokenizer *t = NULL;
    pleat_error err;
    for (unsigned i = 3; i < n_tokens; i++) more[i - 3] = tokens[i];
    for (unsigned i = 0; i < n_merges; i++) {
        const int n = snprintf(spelled[i], sizeof spelled[i], "%s %s", merges[i].left, merges[i].right);
        CHECK(n > 0 && n < (int)sizeof spelled[i]);
        lines[i] = spelled[i];
    }
    gw_header(&w, 3);
    gw_tokenizer(&w, "qwen2", more, n_tokens - 3, 0, lines, n_merges);
    if (!CHECK_STATUS(make_tokenizer(&w, NULL, &t, &err), PLEAT_OK)) fprintf(stderr, "  %s\n", err.text);
    return t;
}

static void test_merges(void) {
    static merge merges[MAX_MERGES];
    static char tokens[MAX_MERGES + 3][MAX_PIECE], parts[200][MAX_PIECE];
    for (uint64_t round = 0; round < check_rounds(300, 40) && check_failures() == 0; round++) {
        unsigned n_tokens;
        const unsigned n_merges = random_merges(merges, (unsigned)check_between(1, MAX_MERGES), tokens, &n_tokens);
        pleat__tokenizer *t = tokenizer_of(merges, n_merges, tokens, n_tokens);
        if (!t) return;
        for (int word = 0; word < 20; word++) {
            char text[200];
            pleat_token ids[200];
            uint32_t n_ids = 0;
            const unsigned n = (unsigned)check_between(1, sizeof text);
            for (unsigned i = 0; i < n; i++) {
                text[i] = (char)('a' + check_below(3));
                snprintf(parts[i], MAX_PIECE, "%c", text[i]);
            }
            const unsigned n_parts = merge_slowly(merges, n_merges, parts, n);
            check_context("round %llu: %.*s", (unsigned long long)round, (int)n, text);
            CHECK_STATUS(pleat__tokenizer_run(t, text, n, 0, ids, 200, &n_ids, NULL), PLEAT_OK);
            if (!CHECK_EQ_U64(n_ids, n_parts)) break;
            for (unsigned i = 0; i < n_ids; i++) {
                const pleat__str s = pleat__vocab_text(&t->vocab, ids[i]);
                CHECK(s.n_bytes == strlen(parts[i]) && memcmp(s.p, parts[i], s.n_bytes) == 0);
            }
        }
        pleat__tokenizer_destroy(t);
    }
}

/* Every byte's spelling, there and back. */
static void test_spelling(void) {
    for (unsigned b = 0; b < 256; b++) {
        char text[4], byte[4];
        uint64_t n = 0;
        const size_t len = gw_spell_byte(b, text);
        check_context("byte 0x%02x", b);
        CHECK(pleat__vocab_unspell(PLEAT__SPELLING_GPT2, (pleat__str){text, len}, byte, &n));
        CHECK_EQ_U64(n, 1);
        CHECK_EQ_U64((unsigned char)byte[0], b);
    }
    static const char *const bad[] = {" ", "\n", "\x7F", "\xC2\xAD", "\xC5\x84", "\xC3", "\xFF", "\xE2\x82\xAC"};
    for (size_t i = 0; i < CHECK_COUNT(bad); i++) {
        char out[8];
        uint64_t n;
        check_context("case %zu", i);
        CHECK(!pleat__vocab_unspell(PLEAT__SPELLING_GPT2, (pleat__str){bad[i], strlen(bad[i])}, out, &n));
    }
}

/* llama-bpe: a word that is a token is taken whole; qwen2: only what the merges make. */
static void test_ignore_merges(void) {
    static const char *const more[] = {"abc"};
    for (int is_llama = 0; is_llama < 2; is_llama++) {
        gguf_writer w;
        pleat__tokenizer *t = NULL;
        pleat_token ids[8];
        uint32_t n = 0;
        gw_header(&w, 3);
        gw_tokenizer(&w, is_llama ? "llama-bpe" : "qwen2", more, 1, 0, NULL, 0);
        if (!CHECK_STATUS(make_tokenizer(&w, NULL, &t, NULL), PLEAT_OK)) return;
        CHECK_STATUS(pleat__tokenizer_run(t, "abc", 3, 0, ids, 8, &n, NULL), PLEAT_OK);
        CHECK_EQ_U64(n, is_llama ? 1 : 3);
        CHECK_EQ_I64(ids[0], is_llama ? 256 : 'a');
        pleat__tokenizer_destroy(t);
    }
}

/* ---- special tokens ----------------------------------------------------------------------------------- */

static void expect_ids(const pleat__tokenizer *t, const char *text, uint32_t flags, const pleat_token *want,
                       uint32_t n_want) {
    pleat_token ids[64];
    uint32_t n = 0;
    check_context("'%s', flags %u", text, flags);
    CHECK_STATUS(pleat__tokenizer_run(t, text, strlen(text), flags, ids, 64, &n, NULL), PLEAT_OK);
    if (CHECK_EQ_U64(n, n_want)) CHECK_EQ_MEM(ids, want, n * sizeof *ids);
}

static void test_specials(void) {
    static const char *const more[] = {"<u>", "<|a|>", "<|a|>b"}; /* ids 256, 257, 258 */
    gguf_writer w;
    pleat__tokenizer *t = NULL;
    gw_header(&w, 3);
    gw_kv_u32(&w, "tokenizer.ggml.bos_token_id", 257);
    gw_kv_bool(&w, "tokenizer.ggml.add_bos_token", 1);
    gw_tokenizer(&w, "qwen2", more, 3, 3, NULL, 0);
    /* Make the first of the three user-defined: its kind stands before the two others' and the empty merges. */
    const size_t merges = 8 + strlen("tokenizer.ggml.merges") + 4 + 4 + 8;
    const uint32_t user_defined = 4;
    memcpy(w.p + w.n - merges - 12, &user_defined, 4);
    if (!CHECK_STATUS(make_tokenizer(&w, NULL, &t, NULL), PLEAT_OK)) return;

    const uint32_t special = PLEAT_TOKENIZE_SPECIAL, bos = PLEAT_TOKENIZE_ADD_BOS;
    expect_ids(t, "x<|a|>b<u><|a|>c", special, (const pleat_token[]){'x', 258, 256, 257, 'c'}, 5);
    expect_ids(t, "<|a|>", special | bos, (const pleat_token[]){257, 257}, 2);
    expect_ids(t, "<|a|>", bos, (const pleat_token[]){257, '<', '|', 'a', '|', '>'}, 6);
    expect_ids(t, "<u><", 0, (const pleat_token[]){256, '<'}, 2);
    expect_ids(t, "<|a|", special, (const pleat_token[]){'<', '|', 'a', '|'}, 4);
    expect_ids(t, "", special, NULL, 0);
    expect_ids(t, "", bos, (const pleat_token[]){257}, 1);
    pleat__tokenizer_destroy(t);
}

/* ---- refusals ------------------------------------------------------------------------------------------ */

/* Expects the status and words of the message. */
static void refuse(gguf_writer *w, pleat_status want, const char *word) {
    pleat__tokenizer *t = NULL;
    pleat_error err = {0};
    check_context("%s", word);
    CHECK_STATUS(make_tokenizer(w, NULL, &t, &err), want);
    if (!CHECK(strstr(err.text, word) != NULL)) fprintf(stderr, "  message: %s\n", err.text);
    pleat__tokenizer_destroy(t);
}

static void test_refused(void) {
    gguf_writer w;
    gw_header(&w, 3);
    gw_kv_str(&w, "tokenizer.ggml.model", "bert");
    refuse(&w, PLEAT_E_UNSUPPORTED, "tokenizer 'bert'");
    gw_header(&w, 3);
    gw_tokenizer(&w, "default", NULL, 0, 0, NULL, 0);
    refuse(&w, PLEAT_E_UNSUPPORTED, "pre-tokenizer 'default' (tokenizer.ggml.pre) is not supported");
    gw_header(&w, 3);
    gw_tokenizer(&w, "gemma4", NULL, 0, 0, NULL, 0);
    refuse(&w, PLEAT_E_UNSUPPORTED, "tokenizer 'gpt2' with the pre-tokenizer 'gemma4' is not supported");
    gw_header(&w, 3);
    gw_kv_str(&w, "tokenizer.ggml.model", "gpt2");
    refuse(&w, PLEAT_E_FORMAT, "'tokenizer.ggml.pre' is missing");
    gw_header(&w, 3);
    gw_tokenizer(&w, "qwen2", (const char *const[]){"a"}, 1, 0, NULL, 0);
    refuse(&w, PLEAT_E_FORMAT, "tokens 97 and 256 are both 'a'");
    gw_header(&w, 3);
    gw_tokenizer(&w, "qwen2", (const char *const[]){"<s>", "<s>"}, 2, 2, NULL, 0);
    refuse(&w, PLEAT_E_FORMAT, "are both '<s>'");
    gw_header(&w, 3);
    gw_tokenizer(&w, "qwen2", NULL, 0, 0, (const char *const[]){"a b"}, 1);
    refuse(&w, PLEAT_E_FORMAT, "a part or the whole is no token");
    gw_header(&w, 3);
    gw_tokenizer(&w, "qwen2", (const char *const[]){"ab"}, 1, 0, (const char *const[]){"ab"}, 1);
    refuse(&w, PLEAT_E_FORMAT, "is no pair");
    gw_header(&w, 3);
    gw_tokenizer(&w, "qwen2", (const char *const[]){"ab"}, 1, 0, (const char *const[]){"a b", "a b"}, 2);
    refuse(&w, PLEAT_E_FORMAT, "stands twice");
    gw_header(&w, 3);
    gw_kv_u32(&w, "tokenizer.ggml.eos_token_id", 256);
    gw_tokenizer(&w, "qwen2", NULL, 0, 0, NULL, 0);
    refuse(&w, PLEAT_E_FORMAT, "no token id below 256");
    gw_header(&w, 3);
    gw_kv_u32(&w, "tokenizer.ggml.add_bos_token", 1);
    gw_tokenizer(&w, "qwen2", NULL, 0, 0, NULL, 0);
    refuse(&w, PLEAT_E_FORMAT, "is no boolean");
    gw_header(&w, 3);
    gw_kv_str(&w, "tokenizer.ggml.model", "gpt2");
    gw_kv_str(&w, "tokenizer.ggml.pre", "qwen2");
    gw_kv_array(&w, "tokenizer.ggml.tokens", GW_STRING, 1);
    gw_str(&w, "a");
    refuse(&w, PLEAT_E_FORMAT, "byte 0x20 has no token of its own");
    char longest[PLEAT__MAX_SPECIAL_BYTES + 2];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    gw_header(&w, 3);
    gw_tokenizer(&w, "qwen2", (const char *const[]){longest}, 1, 1, NULL, 0);
    refuse(&w, PLEAT_E_UNSUPPORTED, "special token 256 has 1025 bytes, 1024 are allowed");
}

/* Tokens and merges that share a slot of their hash tables, more than honest ones do: such a file would take quadratic
 * time.  The hashes are those of vocab.c and bpe.c; with others these would be honest files, and the test would say so. */
enum { MANY = 600, MANY_SLOTS = 2048 };

static void test_shared_hash(void) {
    static char texts[MANY][8];
    const char *more[MANY];
    unsigned n = 0;
    for (unsigned x = 0; n < MANY; x++) {
        uint64_t h = 0xCBF29CE484222325u;
        for (unsigned i = 0; i < 6; i++) h = (h ^ (texts[n][i] = (char)('a' + (x >> 4 * i) % 16))) * 0x100000001B3u;
        more[n] = texts[n];
        n += ((h ^ h >> 32) & (MANY_SLOTS - 1)) == 0;
    }
    gguf_writer w;
    gw_header(&w, 3);
    gw_tokenizer(&w, "qwen2", more, MANY, 0, NULL, 0);
    refuse(&w, PLEAT_E_FORMAT, "has the hash of 512 others");

    const pleat_allocator al = pleat__allocator_or_default(NULL);
    pleat__bpe bpe;
    pleat__join join;
    if (!CHECK_STATUS(pleat__bpe_init(&bpe, MANY_SLOTS / 2, &al), PLEAT_OK)) return;
    n = 0;
    for (uint64_t pair = 0; n < MANY; pair++) {
        uint64_t h = pair * 0x9E3779B97F4A7C15u;
        h ^= h >> 32;
        if ((h & (MANY_SLOTS - 1)) != 0) continue;
        const pleat_token right = (pleat_token)pair;
        const pleat_status want = n < PLEAT__MAX_PROBES ? PLEAT_OK : PLEAT_E_LIMIT;
        CHECK_STATUS(pleat__bpe_add(&bpe, 0, right, (pleat__join){n, right}), want);
        CHECK(pleat__bpe_join(&bpe, 0, right, PLEAT__STR(""), &join) == (want == PLEAT_OK));
        n++;
    }
    pleat__bpe_release(&bpe);
}

/* Tokens that no text is made of: empty ones, and normal ones that are not spelled in bytes.  They do no harm. */
static void test_odd_tokens(void) {
    static const char *const more[] = {"", "a b", "\xE2\x84\xA2", "", "<s>"};
    gguf_writer w;
    pleat__tokenizer *t = NULL;
    gw_header(&w, 3);
    gw_tokenizer(&w, "qwen2", more, CHECK_COUNT(more), 2, NULL, 0); /* the second empty one is a control token */
    if (!CHECK_STATUS(make_tokenizer(&w, NULL, &t, NULL), PLEAT_OK)) return;
    const uint32_t special = PLEAT_TOKENIZE_SPECIAL;
    expect_ids(t, "a b<s>", special, (const pleat_token[]){'a', ' ', 'b', 260}, 4);
    expect_ids(t, "\xE2\x84\xA2", special, (const pleat_token[]){0xE2, 0x84, 0xA2}, 3);
    CHECK_EQ_U64(pleat__vocab_text(&t->vocab, 256).n_bytes, 0);
    CHECK_EQ_U64(pleat__vocab_text(&t->vocab, 257).n_bytes, 3);
    pleat__tokenizer_destroy(t);
}

/* ---- the shipped model ------------------------------------------------------------------------------------ */

static void test_golden(void) {
    json_error_t json_err;
    json_t *golden = json_load_file(golden_path, 0, &json_err);
    pleat_model *m = load_model();
    size_t i;
    json_t *c;
    if (!CHECK(golden != NULL) || !m) goto done;
    json_array_foreach(json_object_get(golden, "cases"), i, c) {
        static pleat_token ids[8192];
        const char *prompt = json_string_value(json_object_get(c, "prompt"));
        const json_t *want = json_object_get(c, "prompt_ids");
        uint32_t n = 0;
        check_context("case %s", json_string_value(json_object_get(c, "name")));
        CHECK_STATUS(pleat_model_tokenize(m, prompt, strlen(prompt), PLEAT_TOKENIZE_ADD_BOS | PLEAT_TOKENIZE_SPECIAL,
                                          ids, 8192, &n, NULL),
                     PLEAT_OK);
        if (!CHECK_EQ_U64(n, json_array_size(want))) continue;
        for (uint32_t k = 0; k < n; k++) CHECK_EQ_I64(ids[k], json_integer_value(json_array_get(want, k)));
    }
    CHECK(i >= 5);
done:
    json_decref(golden);
    pleat_model_destroy(&m);
}

static double now_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* 480 KB of prose come back byte by byte. */
static void test_prose(void) {
    size_t n_bytes = 0;
    char *text = (char *)check_read_file(prose_path, &n_bytes);
    pleat_model *m = load_model();
    pleat_token *ids = malloc((n_bytes + 1) * sizeof *ids);
    uint32_t n = 0, n_again = 0;
    if (!CHECK(text != NULL && ids != NULL) || !m) goto done;
    const double start = now_seconds();
    CHECK_STATUS(pleat_model_tokenize(m, text, n_bytes, 0, ids, (uint32_t)n_bytes, &n, NULL), PLEAT_OK);
    printf("     %zu bytes, %u tokens, %.1f ms\n", n_bytes, n, 1e3 * (now_seconds() - start));
    CHECK(is_text_of(m, ids, n, text, n_bytes));
    CHECK_STATUS(pleat_model_tokenize(m, text, n_bytes, 0, NULL, 0, &n_again, NULL), PLEAT_E_LIMIT);
    CHECK_EQ_U64(n_again, n);
done:
    free(ids);
    free(text);
    pleat_model_destroy(&m);
}

/* One word of 4 MB: a run of spaces, of a letter, of a sign, of line ends.  Quadratic time would not end. */
static void test_long_words(void) {
    pleat_model *m = load_model();
    const size_t n_bytes = check_rounds(4 << 20, 1 << 18);
    char *text = malloc(n_bytes);
    pleat_token *ids = malloc(n_bytes * sizeof *ids);
    for (const char *c = " a-\n\t"; m && *c; c++) {
        uint32_t n = 0;
        check_context("%zu times 0x%02x", n_bytes, (unsigned)*c);
        memset(text, *c, n_bytes);
        const double start = now_seconds();
        CHECK_STATUS(pleat_model_tokenize(m, text, n_bytes, 0, ids, (uint32_t)n_bytes, &n, NULL), PLEAT_OK);
        printf("     %zu bytes of 0x%02x: %u tokens, %.0f ms\n", n_bytes, (unsigned)*c, n,
               1e3 * (now_seconds() - start));
        CHECK(is_text_of(m, ids, n, text, n_bytes));
    }
    free(ids);
    free(text);
    pleat_model_destroy(&m);
}

/* Random Unicode comes back byte by byte. */
static void test_round_trip(void) {
    pleat_model *m = load_model();
    for (uint64_t round = 0; m && round < check_rounds(2000, 200); round++) {
        char text[512];
        pleat_token ids[512];
        uint32_t n = 0;
        size_t n_bytes = 0;
        while (n_bytes < 200 && check_below(60) > 0) {
            static const uint32_t tops[] = {0x7F, 0x20, 0x7FF, 0xD7FF, 0x10FFFF};
            uint32_t cp = (uint32_t)check_below(tops[check_below(5)]) + 1;
            if (cp >= 0xD800 && cp <= 0xDFFF) cp = '\n';
            if (cp < 0x80) {
                text[n_bytes++] = (char)cp;
            } else {
                const int len = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
                text[n_bytes++] = (char)((0xF00u >> len) | cp >> (6 * (len - 1)));
                for (int i = len - 2; i >= 0; i--) text[n_bytes++] = (char)(0x80 | ((cp >> (6 * i)) & 0x3F));
            }
        }
        CHECK_STATUS(pleat_model_tokenize(m, text, n_bytes, PLEAT_TOKENIZE_SPECIAL, ids, 512, &n, NULL), PLEAT_OK);
        if (!CHECK(is_text_of(m, ids, n, text, n_bytes))) break;
    }
    pleat_model_destroy(&m);
}

static void test_bad_utf8(void) {
    static const struct {
        const char *text;
        uint64_t where;
    } cases[] = {
        {"abc\x80", 3},
        {"\xC0\x80", 0},
        {"a\xC1\xBF", 1},
        {"\xE0\x9F\xBF", 0},
        {"\xED\xA0\x80", 0},
        {"\xF0\x8F\xBF\xBF", 0},
        {"\xF4\x90\x80\x80", 0},
        {"\xF5\x80\x80\x80", 0},
        {"ok \xE2\x82", 3},
        {"ok \xF0\x9F\x98", 3},
        {"\xC3(", 0},
        {"\xFF", 0},
    };
    pleat_model *m = load_model();
    for (size_t i = 0; m && i < CHECK_COUNT(cases); i++) {
        pleat_error err = {0};
        pleat_token ids[16] = {-7};
        uint32_t n = 77;
        check_context("case %zu", i);
        CHECK_STATUS(pleat_model_tokenize(m, cases[i].text, strlen(cases[i].text), 0, ids, 16, &n, &err),
                     PLEAT_E_SYNTAX);
        CHECK_EQ_U64(err.where, cases[i].where);
        CHECK(ids[0] == -7 && n == 77);
    }
    pleat_model_destroy(&m);
}

static void test_capacity_and_arguments(void) {
    static const char text[] = "The quick brown fox jumps over the lazy dog.";
    pleat_model *m = load_model();
    pleat_token all[64], some[64];
    uint32_t n = 0, n_some = 0;
    size_t len;
    if (!m) return;
    CHECK_STATUS(pleat_model_tokenize(m, text, sizeof text - 1, PLEAT_TOKENIZE_ADD_BOS, all, 64, &n, NULL), PLEAT_OK);
    for (uint32_t cap = 0; cap < n; cap++) {
        memset(some, 0xEE, sizeof some);
        CHECK_STATUS(pleat_model_tokenize(m, text, sizeof text - 1, PLEAT_TOKENIZE_ADD_BOS, some, cap, &n_some, NULL),
                     PLEAT_E_LIMIT);
        CHECK_EQ_U64(n_some, n);
        CHECK_EQ_MEM(some, all, cap * sizeof *all);
        CHECK_EQ_I64(some[cap], (int32_t)0xEEEEEEEE);
    }
    CHECK_STATUS(pleat_model_tokenize(m, NULL, 0, 0, NULL, 0, &n, NULL), PLEAT_OK);
    CHECK_EQ_U64(n, 0);
    CHECK_STATUS(pleat_model_tokenize(m, NULL, 1, 0, NULL, 0, &n, NULL), PLEAT_E_ARG);
    CHECK_STATUS(pleat_model_tokenize(m, "", 0, 16, NULL, 0, &n, NULL), PLEAT_E_ARG);
    CHECK_STATUS(pleat_model_tokenize(m, "", 0, 0, NULL, 1, &n, NULL), PLEAT_E_ARG);
    CHECK_STATUS(pleat_model_tokenize(NULL, "", 0, 0, NULL, 0, &n, NULL), PLEAT_E_ARG);
    CHECK(!pleat_model_token_text(m, -1, &len) && !pleat_model_token_text(m, 8192, &len));
    CHECK(pleat_model_token_is_special(m, 2) && !pleat_model_token_is_special(m, 4));
    CHECK(!pleat_model_token_is_special(m, -1) && !pleat_model_token_is_special(m, 8192));
    CHECK(pleat_model_token_is_end(m, 1) && pleat_model_token_is_end(m, 3));
    CHECK(!pleat_model_token_is_end(m, 0) && !pleat_model_token_is_end(m, 2) && !pleat_model_token_is_end(m, -1));
    pleat_model_destroy(&m);
}

static void test_chat(void) {
    static const pleat_chat_message messages[] = {{"system", "Be brief."}, {"user", "Hi"}};
    static const char want[] = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
                               "<|im_start|>assistant\n";
    static const pleat_chat_message bad = {"tool", "x"};
    pleat_model *m = load_model();
    size_t n = 0;
    if (!m) return;
    CHECK_STATUS(pleat_model_chat(m, messages, 2, NULL, 0, &n, NULL), PLEAT_E_LIMIT);
    CHECK_EQ_U64(n, sizeof want - 1);
    check_buf small = check_buf_new(sizeof want - 1, 1), exact = check_buf_new(sizeof want, 1);
    CHECK_STATUS(pleat_model_chat(m, messages, 2, small.p, small.bytes, &n, NULL), PLEAT_E_LIMIT);
    CHECK_EQ_U64(((unsigned char *)small.p)[0], 0xD0);
    if (CHECK_STATUS(pleat_model_chat(m, messages, 2, exact.p, exact.bytes, &n, NULL), PLEAT_OK)) {
        CHECK_EQ_STR(exact.p, want);
    }
    CHECK(check_buf_is_intact(&small) && check_buf_is_intact(&exact));
    CHECK_STATUS(pleat_model_chat(m, &bad, 1, exact.p, exact.bytes, &n, NULL), PLEAT_E_ARG);
    CHECK_STATUS(pleat_model_chat(m, messages, 0, exact.p, exact.bytes, &n, NULL), PLEAT_E_ARG);
    pleat_chat_template_destroy(&m->chat);
    m->no_chat.code = PLEAT_E_UNSUPPORTED;
    CHECK_STATUS(pleat_model_chat(m, messages, 2, exact.p, exact.bytes, &n, NULL), PLEAT_E_UNSUPPORTED);
    check_buf_free(&small);
    check_buf_free(&exact);
    pleat_model_destroy(&m);
}

/* ---- threads and failures --------------------------------------------------------------------------------- */

typedef struct job {
    const pleat_model *m;
    const char *text;
    size_t n_bytes;
    pleat_token *ids; /* [n_bytes] */
    uint32_t n;
    pleat_status st;
} job;

static void *run_job(void *arg) {
    job *j = arg;
    j->st = pleat_model_tokenize(j->m, j->text, j->n_bytes, 0, j->ids, (uint32_t)j->n_bytes, &j->n, NULL);
    return NULL;
}

static void test_threads(void) {
    enum { N = 4, BYTES = 20000 };
    size_t n_bytes = 0;
    char *text = (char *)check_read_file(prose_path, &n_bytes);
    pleat_model *m = load_model();
    pthread_t threads[N];
    job jobs[N];
    if (!CHECK(text != NULL && n_bytes > BYTES) || !m) goto done;
    while (((unsigned char)text[BYTES] & 0xC0) == 0x80) text[BYTES] = ' ';
    for (int i = 0; i < N; i++) {
        jobs[i] = (job){m, text, BYTES, malloc(BYTES * sizeof(pleat_token)), 0, PLEAT_E_STATE};
        CHECK(pthread_create(&threads[i], NULL, run_job, &jobs[i]) == 0);
    }
    for (int i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
        CHECK_STATUS(jobs[i].st, jobs[0].st);
        CHECK_EQ_U64(jobs[i].n, jobs[0].n);
        CHECK_EQ_MEM(jobs[i].ids, jobs[0].ids, jobs[0].n * sizeof(pleat_token));
    }
    for (int i = 0; i < N; i++) free(jobs[i].ids);
done:
    free(text);
    pleat_model_destroy(&m);
}

/* Loading with the 1st, 2nd, ... allocation failing.  One that only makes the JIT do without its code may succeed. */
static void test_load_failures(void) {
    for (uint64_t nth = 1; check_failures() == 0; nth++) {
        check_alloc ca;
        pleat_model *m = NULL;
        pleat_error err = {0};
        check_alloc_init(&ca, nth, 0);
        check_context("allocation %llu", (unsigned long long)nth);
        const pleat_status st = pleat_model_load(model_path, &ca.a, &m, &err);
        const int is_done = ca.count < nth;
        if (st != PLEAT_OK) {
            CHECK_STATUS(st, PLEAT_E_MEMORY);
            CHECK(m == NULL && err.code == st && err.text[0]);
        }
        pleat_model_destroy(&m);
        CHECK_EQ_U64(ca.live, 0);
        if (is_done) {
            CHECK_STATUS(st, PLEAT_OK);
            CHECK(nth > 8);
            break;
        }
    }
}

static void test_tokenize_failures(void) {
    check_alloc ca;
    pleat_model *m = NULL;
    char text[2000];
    check_alloc_init(&ca, 0, 0);
    if (!CHECK_STATUS(pleat_model_load(model_path, &ca.a, &m, NULL), PLEAT_OK)) return;
    const uint64_t live = ca.live;
    memset(text, 'x', sizeof text); /* longer than the first scratch: it has to grow */
    text[100] = ' ';
    for (uint64_t nth = 1;; nth++) {
        uint32_t n = 0;
        pleat_error err = {0};
        const uint64_t before = ca.count;
        ca.fail_at = before + nth;
        const pleat_status st = pleat_model_tokenize(m, text, sizeof text, 0, NULL, 0, &n, &err);
        CHECK_EQ_U64(ca.live, live);
        if (ca.count < before + nth) {
            CHECK_STATUS(st, PLEAT_E_LIMIT);
            CHECK(nth > 6);
            break;
        }
        if (!CHECK_STATUS(st, PLEAT_E_MEMORY) || !CHECK(err.code == st)) break;
    }
    ca.fail_at = 0;
    pleat_model_destroy(&m);
    CHECK_EQ_U64(ca.live, 0);
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        {"spelling", test_spelling},
        {"merges", test_merges},
        {"ignore_merges", test_ignore_merges},
        {"specials", test_specials},
        {"refused", test_refused},
        {"shared_hash", test_shared_hash},
        {"odd_tokens", test_odd_tokens},
        {"golden", test_golden},
        {"prose", test_prose},
        {"long_words", test_long_words},
        {"round_trip", test_round_trip},
        {"bad_utf8", test_bad_utf8},
        {"capacity_and_arguments", test_capacity_and_arguments},
        {"chat", test_chat},
        {"threads", test_threads},
        {"load_failures", test_load_failures},
        {"tokenize_failures", test_tokenize_failures},
    };
    return check_main(tests, CHECK_COUNT(tests), argc, argv);
}
