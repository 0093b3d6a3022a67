/* SPDX-License-Identifier: MIT
 *
 * test_sentencepiece.c: tokenizers whose tokens are spelled with U+2581 (`llama`, `gemma4`), over vocabularies made
 * here, and the detokenizer, which is the same for all.
 *
 * Merging by scores is held against the obvious loop over the whole text, which knows nothing of heaps and seams.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "core/memory.h"
#include "core/utf8.h"
#include "gguf_writer.h"
#include "model/internal.h"
#include "serving/answer.h"
#include "tokenizer_rig.h"

/* ---- vocabularies ------------------------------------------------------------------------------------ */

#define SPACE "\xE2\x96\x81"
#define MAX_TOKENS 400

enum { NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE };

typedef struct token {
    char text[40];
    uint32_t kind;
    float score;
} token;

typedef struct vocabulary {
    token tokens[MAX_TOKENS];
    uint32_t n;
} vocabulary;

static pleat_token add(vocabulary *v, const char *text, uint32_t kind, float score) {
    token *t = &v->tokens[v->n];
    snprintf(t->text, sizeof t->text, "%s", text);
    t->kind = kind;
    t->score = score;
    return (pleat_token)v->n++;
}

/* <unk>, <s>, </s>, the bytes (ids 3..258) and a space (259). */
static void begin(vocabulary *v) {
    char name[8];
    v->n = 0;
    add(v, "<unk>", UNKNOWN, 0);
    add(v, "<s>", CONTROL, 0);
    add(v, "</s>", CONTROL, 0);
    for (unsigned b = 0; b < 256; b++) {
        snprintf(name, sizeof name, "<0x%02X>", b);
        add(v, name, BYTE, 0);
    }
    add(v, SPACE, NORMAL, -1000);
}

/* The tokenizer's keys but for the optional ones, which the caller wrote. */
static void write_tokens(gguf_writer *w, const vocabulary *v, const char *model) {
    gw_kv_str(w, "tokenizer.ggml.model", model);
    gw_kv_array(w, "tokenizer.ggml.tokens", GW_STRING, v->n);
    for (uint32_t i = 0; i < v->n; i++) gw_str(w, v->tokens[i].text);
    gw_kv_array(w, "tokenizer.ggml.token_type", GW_I32, v->n);
    for (uint32_t i = 0; i < v->n; i++) gw_u32(w, v->tokens[i].kind);
}

static void write_scores(gguf_writer *w, const vocabulary *v, uint32_t n) {
    gw_kv_array(w, "tokenizer.ggml.scores", GW_F32, n);
    for (uint32_t i = 0; i < n; i++) gw_bytes(w, &v->tokens[i].score, sizeof(float));
}

static pleat__tokenizer *make_scored(const vocabulary *v, uint8_t add_space) {
    gguf_writer w;
    pleat__tokenizer *t = NULL;
    pleat_error err = {0};
    gw_header(&w, 3);
    gw_kv_bool(&w, "tokenizer.ggml.add_space_prefix", add_space);
    write_tokens(&w, v, "llama");
    write_scores(&w, v, v->n);
    if (!CHECK_STATUS(make_tokenizer(&w, NULL, &t, &err), PLEAT_OK)) fprintf(stderr, "  %s\n", err.text);
    return t;
}

static void expect_ids(const pleat__tokenizer *t, const char *text, uint32_t flags, const pleat_token *want,
                       uint32_t n_want) {
    pleat_token ids[64];
    uint32_t n = 0;
    check_context("'%s', flags %u", text, flags);
    CHECK_STATUS(pleat__tokenizer_run(t, text, strlen(text), flags, ids, 64, &n, NULL), PLEAT_OK);
    if (CHECK_EQ_U64(n, n_want)) CHECK_EQ_MEM(ids, want, n * sizeof *ids);
}

#define IDS(...) (const pleat_token[]){__VA_ARGS__}, sizeof((const pleat_token[]){__VA_ARGS__}) / sizeof(pleat_token)
#define BYTE_ID(b) (3 + (b))
#define SPACE_ID 259

/* ---- merging by scores ---------------------------------------------------------------------------------- */

/* The letters of random texts and tokens.  The last two are no tokens by themselves. */
static const char *const letters[] = {"a", "b", SPACE, "\xC3\xA9", "\xF0\x9F\x98\x80", "z"};
enum { N_LETTERS = 6, N_TOKEN_LETTERS = 5 };

static void random_vocabulary(vocabulary *v) {
    begin(v);
    for (uint32_t i = 0; i < 4; i++) {
        if (i != 2) add(v, letters[i], NORMAL, -500);
    }
    const uint32_t n = (uint32_t)check_between(1, 60);
    for (uint32_t made = 0; made < n; made++) {
        char text[40] = "";
        bool is_new = true;
        for (uint64_t k = check_between(2, 5); k > 0; k--) strcat(text, letters[check_below(N_TOKEN_LETTERS)]);
        for (uint32_t i = 0; i < v->n; i++) is_new = is_new && strcmp(v->tokens[i].text, text) != 0;
        if (is_new) add(v, text, NORMAL, -(float)check_below(12)); /* few scores: ties are common */
    }
}

static pleat_token find(const vocabulary *v, const char *text) {
    for (uint32_t i = 0; i < v->n; i++) {
        if (v->tokens[i].kind == NORMAL && strcmp(v->tokens[i].text, text) == 0) return (pleat_token)i;
    }
    return -1;
}

/* Join the leftmost pair of the highest score until no pair is a token.  Returns the number of ids. */
static uint32_t merge_slowly(const vocabulary *v, char parts[][256], uint32_t n, pleat_token *ids) {
    for (;;) {
        pleat_token best = -1;
        uint32_t best_at = 0, n_ids = 0;
        for (uint32_t i = 0; i + 1 < n; i++) {
            char joined[512];
            strcat(strcpy(joined, parts[i]), parts[i + 1]);
            const pleat_token id = find(v, joined);
            if (id < 0 || (best >= 0 && v->tokens[id].score <= v->tokens[best].score)) continue;
            best = id;
            best_at = i;
        }
        if (best >= 0) {
            snprintf(parts[best_at], 256, "%s", v->tokens[best].text);
            memmove(parts[best_at + 1], parts[best_at + 2], (n - best_at - 2) * sizeof parts[0]);
            n--;
            continue;
        }
        for (uint32_t i = 0; i < n; i++) {
            const pleat_token id = find(v, parts[i]);
            if (id >= 0) ids[n_ids++] = id;
            for (const char *p = parts[i]; id < 0 && *p; p++) ids[n_ids++] = BYTE_ID((uint8_t)*p);
        }
        return n_ids;
    }
}

static void test_scores(void) {
    static vocabulary v;
    static char parts[120][256];
    for (uint64_t round = 0; round < check_rounds(300, 40) && check_failures() == 0; round++) {
        random_vocabulary(&v);
        const uint8_t add_space = check_below(2) == 1;
        pleat__tokenizer *t = make_scored(&v, add_space);
        if (!t) return;
        for (int k = 0; k < 20; k++) {
            char text[1000] = "";
            pleat_token want[500], ids[500];
            uint32_t n = 0, n_ids = 0;
            if (add_space) snprintf(parts[n++], 256, SPACE);
            for (uint64_t left = check_between(1, 100); left > 0; left--) {
                const char *letter = letters[check_below(N_LETTERS)];
                strcat(text, strcmp(letter, SPACE) == 0 && check_below(8) > 0 ? " " : letter);
                snprintf(parts[n++], 256, "%s", letter);
            }
            const uint32_t n_want = merge_slowly(&v, parts, n, want);
            check_context("round %llu: '%s'", (unsigned long long)round, text);
            CHECK_STATUS(pleat__tokenizer_run(t, text, strlen(text), 0, ids, 500, &n_ids, NULL), PLEAT_OK);
            if (!CHECK_EQ_U64(n_ids, n_want) || !CHECK_EQ_MEM(ids, want, n_ids * sizeof *ids)) break;
        }
        pleat__tokenizer_destroy(t);
    }
}

/* One word of 1 MB: quadratic time would not end. */
static void test_long_word(void) {
    static vocabulary v;
    begin(&v);
    add(&v, "a", NORMAL, -9);
    add(&v, "aa", NORMAL, -2);
    add(&v, "aaaa", NORMAL, -1);
    pleat__tokenizer *t = make_scored(&v, 0);
    const uint32_t n_bytes = (uint32_t)check_rounds(1 << 20, 1 << 16);
    char *text = malloc(n_bytes);
    uint32_t n = 0;
    memset(text, 'a', n_bytes);
    if (t) CHECK_STATUS(pleat__tokenizer_run(t, text, n_bytes, 0, NULL, 0, &n, NULL), PLEAT_E_LIMIT);
    CHECK_EQ_U64(n, n_bytes / 4);
    free(text);
    pleat__tokenizer_destroy(t);
}

/* ---- rules ------------------------------------------------------------------------------------------- */

static void test_rules(void) {
    static vocabulary v;
    begin(&v);
    const pleat_token a = add(&v, "a", NORMAL, -1), space_a = add(&v, SPACE "a", NORMAL, -2);
    const pleat_token user = add(&v, "\n\n", USER, 0), turn = add(&v, "<end_of_turn>", CONTROL, 0);
    const pleat_token odd = add(&v, "x y", NORMAL, -3); /* no text has it: spaces are U+2581 */
    pleat__tokenizer *with = make_scored(&v, 1), *without = make_scored(&v, 0);
    const uint32_t special = PLEAT_TOKENIZE_SPECIAL, bos = PLEAT_TOKENIZE_ADD_BOS, eos = PLEAT_TOKENIZE_ADD_EOS;
    if (!with || !without) return;
    (void)odd;
    CHECK(with->add_bos && with->bos == 1 && with->eos == 2 && !with->add_eos);
    expect_ids(with, "a a", 0, IDS(space_a, space_a));
    expect_ids(without, "a a", 0, IDS(a, space_a));
    expect_ids(with, "a", bos | eos, IDS(1, space_a));
    expect_ids(with, "", 0, NULL, 0);
    expect_ids(with, "", bos, IDS(1));
    expect_ids(with, "a\n\na", 0, IDS(space_a, user, space_a));
    expect_ids(without, "a\n\na\n", 0, IDS(a, user, a, BYTE_ID('\n')));
    expect_ids(with, "a<end_of_turn>a", special, IDS(space_a, turn, space_a));
    expect_ids(without, "<s>", special, IDS(1));
    expect_ids(without, "<s>", 0, IDS(BYTE_ID('<'), BYTE_ID('s'), BYTE_ID('>')));
    expect_ids(without, "\xC3\xA9", 0, IDS(BYTE_ID(0xC3), BYTE_ID(0xA9)));
    expect_ids(without, SPACE "a", 0, IDS(space_a));
    expect_ids(without, "x y", 0, IDS(BYTE_ID('x'), SPACE_ID, BYTE_ID('y')));
    CHECK(pleat__tokenizer_is_end(with, turn) && pleat__tokenizer_is_end(with, 2));
    CHECK(!pleat__tokenizer_is_end(with, a) && !pleat__tokenizer_is_end(with, 1));
    pleat__tokenizer_destroy(with);
    pleat__tokenizer_destroy(without);
}

/* What the file says of ends, and Phi-3's tokens that swallow whitespace. */
static void test_keys(void) {
    static vocabulary v;
    gguf_writer w;
    pleat__tokenizer *t = NULL;
    begin(&v);
    const pleat_token user = add(&v, "<|user|>", CONTROL, 0), end = add(&v, "<|end|>", CONTROL, 0);
    const pleat_token text_end = add(&v, "<|endoftext|>", CONTROL, 0);
    gw_header(&w, 3);
    gw_kv_str(&w, "general.name", "A Phi-3 of ours");
    gw_kv_bool(&w, "tokenizer.ggml.add_bos_token", 0);
    gw_kv_bool(&w, "tokenizer.ggml.add_eos_token", 1);
    gw_kv_bool(&w, "tokenizer.ggml.add_space_prefix", 0);
    gw_kv_u32(&w, "tokenizer.ggml.eos_token_id", (uint32_t)text_end);
    gw_kv_u32(&w, "tokenizer.ggml.eot_token_id", (uint32_t)user);
    write_tokens(&w, &v, "llama");
    write_scores(&w, &v, v.n);
    if (!CHECK_STATUS(make_tokenizer(&w, NULL, &t, NULL), PLEAT_OK)) return;
    expect_ids(t, "<|user|>\n  x<|endoftext|> ",
               PLEAT_TOKENIZE_SPECIAL | PLEAT_TOKENIZE_ADD_BOS | PLEAT_TOKENIZE_ADD_EOS,
               IDS(user, BYTE_ID('x'), text_end, SPACE_ID, text_end));
    CHECK(pleat__tokenizer_is_end(t, user) && pleat__tokenizer_is_end(t, end) && pleat__tokenizer_is_end(t, text_end));
    CHECK(!pleat__tokenizer_is_end(t, 2));
    pleat__tokenizer_destroy(t);
}

/* Listed merges of characters. */
static void test_gemma4(void) {
    static vocabulary v;
    static const char *const merges[] = {SPACE " a", "\n \n", "\n\n \n"};
    gguf_writer w;
    pleat__tokenizer *t = NULL;
    begin(&v);
    const pleat_token a = add(&v, "a", NORMAL, 0), space_a = add(&v, SPACE "a", NORMAL, 0);
    add(&v, "\n", NORMAL, 0);
    const pleat_token two = add(&v, "\n\n", NORMAL, 0), three = add(&v, "\n\n\n", NORMAL, 0);
    const pleat_token four = add(&v, "\n\n\n\n", NORMAL, 0);
    gw_header(&w, 3);
    gw_kv_u32(&w, "tokenizer.ggml.bos_token_id", 1);
    gw_kv_bool(&w, "tokenizer.ggml.add_bos_token", 0); /* the model needs it all the same */
    write_tokens(&w, &v, "gemma4");
    gw_kv_array(&w, "tokenizer.ggml.merges", GW_STRING, CHECK_COUNT(merges));
    for (size_t i = 0; i < CHECK_COUNT(merges); i++) gw_str(&w, merges[i]);
    if (!CHECK_STATUS(make_tokenizer(&w, NULL, &t, NULL), PLEAT_OK)) return;
    expect_ids(t, "a a", PLEAT_TOKENIZE_ADD_BOS, IDS(1, a, space_a));
    expect_ids(t, "\n\n\n", 0, IDS(three));
    expect_ids(t, "\n\n\n\n", 0, IDS(four)); /* whole, though no merge makes it */
    expect_ids(t, "\n\n\n\n\n", 0, IDS(two, three));
    expect_ids(t, "\xC3\xA9", 0, IDS(BYTE_ID(0xC3), BYTE_ID(0xA9)));
    pleat__tokenizer_destroy(t);
}

/* ---- tokens to text ------------------------------------------------------------------------------------- */

/* All of ids through a detokenizer; each piece is UTF-8 by itself. */
static size_t detokenize(const pleat_model *m, uint32_t flags, const pleat_token *ids, uint32_t n, char *text,
                         size_t cap) {
    pleat_detokenizer d;
    size_t used = 0, len = 0;
    CHECK_STATUS(pleat_detokenizer_init(&d, m, flags), PLEAT_OK);
    for (uint32_t i = 0; i <= n; i++) {
        if (i < n)
            CHECK_STATUS(pleat_detokenizer_put(&d, ids[i], text + used, cap - used, &len), PLEAT_OK);
        else
            CHECK_STATUS(pleat_detokenizer_end(&d, text + used, cap - used, &len), PLEAT_OK);
        CHECK(pleat__utf8_prefix(text + used, len) == len);
        used += len;
    }
    return used;
}

static void expect_text(const pleat_model *m, uint32_t flags, const char *want, const pleat_token *ids, uint32_t n) {
    char text[300];
    const size_t used = detokenize(m, flags, ids, n, text, sizeof text - 1);
    text[used] = '\0';
    CHECK_EQ_STR(text, want);
}

/* The first text of an answer, which goes on from its prompt's text or begins one. */
static void test_answer(void) {
    static vocabulary v;
    const pleat_allocator al = pleat__allocator_or_default(NULL);
    begin(&v);
    const pleat_token space_a = add(&v, SPACE "a", NORMAL, -2);
    pleat_model m = {.tokenizer = make_scored(&v, 1)};
    if (!m.tokenizer) return;
    for (int goes_on = 0; goes_on < 2; goes_on++) {
        pleat_request q;
        pleat__answer *a = NULL;
        pleat_serving_event event = {.chosen = space_a};
        pleat_request_default(&q);
        q.wants_text = 1;
        q.text_goes_on = goes_on;
        if (!CHECK_STATUS(pleat__answer_create(&q, &m, 8, &al, &a), PLEAT_OK)) break;
        CHECK(!pleat__answer_take(a, space_a));
        pleat__answer_tell(a, &event);
        CHECK(event.n_text == 1u + (unsigned)goes_on && memcmp(event.text, &" a"[!goes_on], event.n_text) == 0);
        pleat__answer_destroy(&al, 0, a);
    }
    pleat__tokenizer_destroy(m.tokenizer);
}

static void test_detokenizer(void) {
    static vocabulary v;
    begin(&v);
    const pleat_token a = add(&v, "a", NORMAL, -1), space_a = add(&v, SPACE "a", NORMAL, -2);
    pleat_model with = {.tokenizer = make_scored(&v, 1)}, without = {.tokenizer = make_scored(&v, 0)};
    const uint32_t special = PLEAT_DETOKENIZE_SPECIAL, middle = PLEAT_DETOKENIZE_MIDDLE;
    if (!with.tokenizer || !without.tokenizer) return;
    expect_text(&with, 0, "a a", IDS(space_a, space_a));
    expect_text(&with, middle, " a a", IDS(space_a, space_a));
    expect_text(&without, 0, " aa", IDS(space_a, a));
    expect_text(&with, 0, "aa", IDS(1, space_a, 2, space_a));
    expect_text(&with, special, "<s>a</s>a", IDS(1, space_a, 2, space_a));
    expect_text(&with, special, "<unk>", IDS(0));
    expect_text(&with, 0, "", IDS(0));
    expect_text(&with, 0, "\xF0\x9F\x98\x80", IDS(BYTE_ID(0xF0), BYTE_ID(0x9F), BYTE_ID(0x98), BYTE_ID(0x80)));
    expect_text(&with, 0,
                "\xEF\xBF\xBD"
                "a",
                IDS(BYTE_ID(0xF0), BYTE_ID(0x9F), a));
    expect_text(&with, 0, "\xEF\xBF\xBD", IDS(BYTE_ID(0xF0), BYTE_ID(0x9F), BYTE_ID(0x98)));
    expect_text(&with, 0, "\xEF\xBF\xBD\xEF\xBF\xBD", IDS(BYTE_ID(0xED), BYTE_ID(0xA0)));

    pleat_detokenizer d, before;
    char text[4] = "...";
    size_t n = 7;
    CHECK_STATUS(pleat_detokenizer_init(&d, &without, 0), PLEAT_OK);
    before = d;
    CHECK_STATUS(pleat_detokenizer_put(&d, space_a, text, 1, &n), PLEAT_E_LIMIT);
    CHECK(n == 2 && memcmp(&d, &before, sizeof d) == 0);
    CHECK_STATUS(pleat_detokenizer_put(&d, space_a, NULL, 0, &n), PLEAT_E_LIMIT);
    CHECK_STATUS(pleat_detokenizer_put(&d, -1, text, 3, &n), PLEAT_E_ARG);
    CHECK_STATUS(pleat_detokenizer_put(&d, (pleat_token)v.n, text, 3, &n), PLEAT_E_ARG);
    CHECK_STATUS(pleat_detokenizer_put(&d, a, NULL, 3, &n), PLEAT_E_ARG);
    CHECK_STATUS(pleat_detokenizer_put(&d, BYTE_ID(0xF0), text, 3, &n), PLEAT_OK);
    CHECK_EQ_U64(n, 0);
    CHECK_STATUS(pleat_detokenizer_end(&d, text, 2, &n), PLEAT_E_LIMIT);
    CHECK_STATUS(pleat_detokenizer_end(&d, text, 3, &n), PLEAT_OK);
    CHECK_EQ_U64(n, 3);
    CHECK_STATUS(pleat_detokenizer_init(&d, NULL, 0), PLEAT_E_ARG);
    CHECK_STATUS(pleat_detokenizer_init(&d, &with, 8), PLEAT_E_ARG);
    pleat__tokenizer_destroy(with.tokenizer);
    pleat__tokenizer_destroy(without.tokenizer);
}

/* Whether some bytes behind p[0..n) would make a character of it. */
static bool can_become_one(const char *p, uint32_t n) {
    char tried[4];
    uint32_t cp;
    memcpy(tried, p, n);
    for (uint32_t more = 0; more < (1u << 6 * (4 - n)); more++) {
        for (uint32_t i = n, bits = more; i < 4; i++, bits >>= 6) tried[i] = (char)(0x80 | (bits & 0x3F));
        if (pleat__utf8_decode(tried, 4, &cp) > n) return true;
    }
    return false;
}

/* Random bytes against the rule itself: the longest beginning of a character, or one byte, becomes one U+FFFD. */
static void test_broken_text(void) {
    static vocabulary v;
    begin(&v);
    pleat_model m = {.tokenizer = make_scored(&v, 0)};
    static const unsigned char heads[] = {0x41, 0x80, 0x9F, 0xA0, 0xBF, 0xC2, 0xE0, 0xE2, 0xED, 0xF0, 0xF3, 0xF4, 0xFF};
    for (uint64_t round = 0; m.tokenizer && round < check_rounds(3000, 200) && check_failures() == 0; round++) {
        char bytes[20], want[100], text[100];
        pleat_token ids[16];
        uint32_t cp;
        size_t n_want = 0;
        const uint32_t n = (uint32_t)check_between(1, 16);
        for (uint32_t i = 0; i < n; i++) {
            bytes[i] = (char)heads[check_below(sizeof heads)];
            ids[i] = BYTE_ID((uint8_t)bytes[i]);
        }
        for (uint32_t at = 0; at < n;) {
            uint32_t len = pleat__utf8_decode(bytes + at, n - at, &cp);
            if (len > 0) {
                memcpy(want + n_want, bytes + at, len);
                n_want += len;
            } else {
                for (len = n - at < 3 ? n - at : 3; len > 1 && !can_become_one(bytes + at, len);) len--;
                memcpy(want + n_want, "\xEF\xBF\xBD", 3);
                n_want += 3;
            }
            at += len;
        }
        CHECK_EQ_U64(detokenize(&m, 0, ids, n, text, sizeof text), n_want);
        CHECK_EQ_MEM(text, want, n_want);
    }
    pleat__tokenizer_destroy(m.tokenizer);
}

/* Random text comes back byte by byte, but for U+2581, which is a space. */
static void test_round_trip(void) {
    static vocabulary v;
    for (uint64_t round = 0; round < check_rounds(300, 40) && check_failures() == 0; round++) {
        random_vocabulary(&v);
        pleat_model m = {.tokenizer = make_scored(&v, round % 2 == 1)};
        char text[1000] = "", back[1000];
        pleat_token ids[1000];
        uint32_t n = 0;
        if (!m.tokenizer) return;
        for (uint64_t left = check_below(100); left > 0; left--) {
            const uint64_t i = check_below(N_LETTERS + 3);
            const char *letter = i < N_LETTERS ? letters[i] : i == N_LETTERS ? "<s>" : " ";
            strcat(text, strcmp(letter, SPACE) == 0 ? " " : letter);
        }
        check_context("'%s'", text);
        CHECK_STATUS(pleat__tokenizer_run(m.tokenizer, text, strlen(text), PLEAT_TOKENIZE_SPECIAL, ids, 1000, &n, NULL),
                     PLEAT_OK);
        back[detokenize(&m, PLEAT_DETOKENIZE_SPECIAL, ids, n, back, sizeof back - 1)] = '\0';
        CHECK_EQ_STR(back, text);
        pleat__tokenizer_destroy(m.tokenizer);
    }
}

/* ---- refusals and failures -------------------------------------------------------------------------------- */

static void refuse(gguf_writer *w, const char *word) {
    pleat__tokenizer *t = NULL;
    pleat_error err = {0};
    check_context("%s", word);
    CHECK_STATUS(make_tokenizer(w, NULL, &t, &err), PLEAT_E_FORMAT);
    if (!CHECK(strstr(err.text, word) != NULL)) fprintf(stderr, "  message: %s\n", err.text);
    pleat__tokenizer_destroy(t);
}

static void test_refused(void) {
    static vocabulary v;
    gguf_writer w;
    begin(&v);
    gw_header(&w, 3);
    write_tokens(&w, &v, "llama");
    refuse(&w, "'tokenizer.ggml.scores' is missing");
    gw_header(&w, 3);
    write_tokens(&w, &v, "llama");
    write_scores(&w, &v, v.n - 1);
    refuse(&w, "'tokenizer.ggml.scores' is no array of 260 numbers");
    gw_header(&w, 3);
    write_tokens(&w, &v, "gemma4");
    refuse(&w, "'tokenizer.ggml.merges' is missing");
    v.tokens[7].score = 0.0f / 0.0f;
    gw_header(&w, 3);
    write_tokens(&w, &v, "llama");
    write_scores(&w, &v, v.n);
    refuse(&w, "the score of token 7 is no number");
    begin(&v);
    v.tokens[20].kind = UNUSED;
    gw_header(&w, 3);
    write_tokens(&w, &v, "llama");
    write_scores(&w, &v, v.n);
    refuse(&w, "byte 0x11 has no token of its own");
    begin(&v);
    snprintf(v.tokens[20].text, sizeof v.tokens[20].text, "<0xG1>");
    gw_header(&w, 3);
    write_tokens(&w, &v, "llama");
    write_scores(&w, &v, v.n);
    refuse(&w, "token 20, '<0xG1>', is of kind 6 and names no byte");
    begin(&v);
    v.n--;
    gw_header(&w, 3);
    write_tokens(&w, &v, "llama");
    write_scores(&w, &v, v.n);
    refuse(&w, "a space has no token of its own");
}

/* Creating and running with the 1st, 2nd, ... allocation failing. */
static void test_failures(void) {
    static vocabulary v;
    static const char text[] = "a a" SPACE "a<s>b";
    begin(&v);
    add(&v, SPACE "a", NORMAL, -1);
    for (uint64_t nth = 1; check_failures() == 0; nth++) {
        gguf_writer w;
        check_alloc ca;
        pleat__tokenizer *t = NULL;
        pleat_error err = {0};
        uint32_t n = 0;
        check_alloc_init(&ca, nth, 0);
        check_context("allocation %llu", (unsigned long long)nth);
        gw_header(&w, 3);
        write_tokens(&w, &v, "llama");
        write_scores(&w, &v, v.n);
        pleat_status st = make_tokenizer(&w, &ca.a, &t, &err);
        if (st == PLEAT_OK) {
            st = pleat__tokenizer_run(t, text, sizeof text - 1, PLEAT_TOKENIZE_SPECIAL, NULL, 0, &n, &err);
            CHECK(st == PLEAT_E_LIMIT || st == PLEAT_E_MEMORY);
        }
        pleat__tokenizer_destroy(t);
        CHECK_EQ_U64(ca.live, 0);
        if (ca.count < nth) {
            CHECK(st == PLEAT_E_LIMIT && nth > 8);
            break;
        }
        CHECK_STATUS(st, PLEAT_E_MEMORY);
        CHECK(err.code == st);
    }
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        {"scores", test_scores},   {"long_word", test_long_word},     {"rules", test_rules},
        {"keys", test_keys},       {"gemma4", test_gemma4},           {"detokenizer", test_detokenizer},
        {"answer", test_answer},   {"broken_text", test_broken_text}, {"round_trip", test_round_trip},
        {"refused", test_refused}, {"failures", test_failures},
    };
    return check_main(tests, CHECK_COUNT(tests), argc, argv);
}
