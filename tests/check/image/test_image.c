/* SPDX-License-Identifier: MIT
 *
 * test_image.c: files of sequences: what is written is read, and what is damaged is refused, whichever byte it is.
 */
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "check.h"
#include "image/sum.h"
#include "pleat/image.h"

#define PIECE PLEAT_IMAGE_PIECE_MIN
#define BODY (2u * PIECE + 1234u)
#define TOKENS 57u

/* A file, and what its head was made of. */
typedef struct sample {
    pleat_image_head head;
    pleat_token tokens[TOKENS];
    pleat_image_step steps[3];
    uint8_t *bytes;
    uint64_t n_head, n_bytes;
} sample;

static void sample_init(sample *s) {
    static const char spec[] = "leankv:ah=3,al=0.05", salt[] = "tenant 7";
    memset(s, 0, sizeof *s);
    pleat_image_head_default(&s->head);
    for (uint32_t i = 0; i < TOKENS; i++) s->tokens[i] = (pleat_token)check_below(1u << 20);
    s->steps[0] = (pleat_image_step){0, 32, PLEAT_ITEM_MORE};
    s->steps[1] = (pleat_image_step){32, 2, 0};
    s->steps[2] = (pleat_image_step){40, TOKENS - 40, PLEAT_ITEM_SEAL};
    strcpy(s->head.model, "0123456789abcdef0123456789abcdef");
    s->head.spec = spec;
    s->head.n_spec = sizeof spec - 1;
    s->head.salt = salt;
    s->head.n_salt = sizeof salt - 1;
    s->head.n_layers = 4;
    s->head.n_q_heads = 8;
    s->head.n_kv_heads = 2;
    s->head.head_dim = 64;
    s->head.page_tokens = 32;
    s->head.tokens = s->tokens;
    s->head.n_tokens = TOKENS;
    s->head.steps = s->steps;
    s->head.n_steps = 3;
    s->head.piece_bytes = PIECE;
    s->head.body_bytes = BODY;
    s->n_head = pleat_image_head_bytes(&s->head);
    s->n_bytes = s->n_head + BODY;
    s->bytes = aligned_alloc(64, (s->n_bytes + 63) / 64 * 64);
    for (uint64_t i = s->n_head; i < s->n_bytes; i++) s->bytes[i] = (uint8_t)check_u64();
    CHECK_STATUS(pleat_image_write_head(&s->head, s->bytes + s->n_head, s->bytes, s->n_head - 1), PLEAT_E_ARG);
    CHECK_STATUS(pleat_image_write_head(&s->head, s->bytes + s->n_head, s->bytes, s->n_head), PLEAT_OK);
}

static void sample_release(sample *s) { free(s->bytes); }

/* Make the head's sum hold again. */
static void seal(sample *s) {
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits(s->bytes, s->n_head - sizeof sum));
    memcpy(s->bytes + s->n_head - sizeof sum, &sum, sizeof sum);
}

/* Each variant's number is the one that files have, at any place and of any length. */
static void test_sums(void) {
    const uint32_t n_rounds = (uint32_t)check_rounds(3000, 300);
    const pleat__piece_sum_fn fast = pleat__piece_sum_of(pleat_cpu_flags());
    uint8_t *bytes = malloc(5000);
    for (uint32_t i = 0; i < 5000; i++) bytes[i] = (uint8_t)check_below(256);
    for (uint32_t i = 0; i < n_rounds; i++) {
        const uint64_t at = check_below(64), n = i < 400 ? i : check_below(4900), idx = check_below(1000);
        if (!CHECK_EQ_U64(fast(bytes + at, n, idx), pleat__piece_sum_ref(bytes + at, n, idx))) break;
    }
    CHECK_EQ_U64(pleat__piece_sum_ref("PLEAT", 5, 1), XXH3_64bits_withSeed("PLEAT", 5, 1));
    CHECK(pleat__piece_sum_ref("PLEAT", 5, 1) != pleat__piece_sum_ref("PLEAT", 5, 2));
    free(bytes);
}

static void test_round_trip(void) {
    sample s;
    sample_init(&s);
    pleat_image_head h;
    const void *body;
    uint64_t n_head = 0;
    CHECK_EQ_U64(s.n_head % 8, 0);
    CHECK_STATUS(pleat_image_check(s.bytes, s.n_bytes, &h, &body, NULL), PLEAT_OK);
    CHECK(body == s.bytes + s.n_head);
    CHECK_EQ_U64(h.n_tokens, TOKENS);
    CHECK_EQ_MEM(h.tokens, s.tokens, sizeof s.tokens);
    CHECK_EQ_U64(h.n_steps, 3);
    CHECK_EQ_MEM(h.steps, s.steps, sizeof s.steps);
    CHECK_EQ_STR(h.model, s.head.model);
    CHECK_EQ_STR(h.profile, "");
    CHECK_EQ_U64(pleat_image_n_pieces(&h), 3);
    CHECK_STATUS(pleat_image_compare(&h, &s.head, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_image_read_head(s.bytes, s.n_head, &h, &n_head, NULL), PLEAT_OK); /* no body is needed */
    CHECK_EQ_U64(n_head, s.n_head);
    for (uint64_t i = 0; i < 3; i++)
        CHECK_STATUS(pleat_image_check_piece(s.bytes, s.n_head, i, (const uint8_t *)body + i * PIECE), PLEAT_OK);
    CHECK_STATUS(pleat_image_check_piece(s.bytes, s.n_head, 3, body), PLEAT_E_ARG);
    CHECK_STATUS(pleat_image_check_piece(s.bytes, s.n_head, 1, body), PLEAT_E_FORMAT); /* a piece of another place */
    sample_release(&s);
}

/* Each byte of the head, in each of eight ways; and bytes of the body. */
static void test_flipped(void) {
    sample s;
    sample_init(&s);
    pleat_image_head h;
    pleat_error err = {0};
    for (uint64_t i = 0; i < 8 * s.n_head; i++) {
        s.bytes[i / 8] ^= (uint8_t)(1u << i % 8);
        const pleat_status status = pleat_image_check(s.bytes, s.n_bytes, &h, NULL, &err);
        check_context("bit %llu of byte %llu of the head", (unsigned long long)i % 8, (unsigned long long)i / 8);
        CHECK(status == PLEAT_E_FORMAT || (status == PLEAT_E_UNSUPPORTED && i / 64 == 1));
        CHECK(err.text[0] != 0);
        s.bytes[i / 8] ^= (uint8_t)(1u << i % 8);
    }
    for (uint64_t i = 0, n = check_rounds(10000, 300); i < n; i++) {
        const uint64_t at = s.n_head + check_below(BODY);
        const uint8_t flips = (uint8_t)check_between(1, 255);
        s.bytes[at] ^= flips;
        CHECK_STATUS(pleat_image_check(s.bytes, s.n_bytes, &h, NULL, &err), PLEAT_E_FORMAT);
        CHECK_EQ_U64(err.where, s.n_head + (at - s.n_head) / PIECE * PIECE);
        s.bytes[at] ^= flips;
    }
    CHECK_STATUS(pleat_image_check(s.bytes, s.n_bytes, &h, NULL, &err), PLEAT_OK);
    sample_release(&s);
}

static void test_cut(void) {
    sample s;
    sample_init(&s);
    pleat_image_head h;
    uint64_t n_head;
    for (uint64_t n = 0; n < s.n_head; n++) {
        CHECK_STATUS(pleat_image_check(s.bytes, n, &h, NULL, NULL), PLEAT_E_FORMAT);
        n_head = 0;
        CHECK_STATUS(pleat_image_read_head(s.bytes, n, &h, &n_head, NULL), PLEAT_AGAIN);
        CHECK_EQ_U64(n_head, n < 16 ? 0 : s.n_head);
    }
    for (uint64_t n = s.n_head; n < s.n_bytes; n += check_between(1, 997))
        CHECK_STATUS(pleat_image_check(s.bytes, n, &h, NULL, NULL), PLEAT_E_FORMAT);
    sample_release(&s);
}

/* What a sum that holds does not excuse. */
static void test_lies(void) {
    static const struct {
        uint32_t at, value;
    } lies[] = {
        {12, 128},       {12, 0}, {16, 0},        {16, BODY + 1},   {16, BODY + PIECE}, {24, PIECE + 8}, {24, 0},
        {24, 2 * PIECE}, {28, 0}, {28, 1u << 30}, {28, TOKENS + 2}, {32, 29},           {32, 4},         {40, 1},
        {44, 0},         {56, 0}, {60, 0},        {64, 0x58585858},
    };
    for (size_t i = 0; i < CHECK_COUNT(lies); i++) {
        sample s;
        sample_init(&s);
        pleat_image_head h;
        check_context("%u at %u", lies[i].value, lies[i].at);
        memcpy(s.bytes + lies[i].at, &lies[i].value, sizeof lies[i].value);
        seal(&s);
        CHECK_STATUS(pleat_image_check(s.bytes, s.n_bytes, &h, NULL, NULL), PLEAT_E_FORMAT);
        sample_release(&s);
    }
}

/* Tokens and steps that cannot be, and heads that nobody may write. */
static void test_refused_heads(void) {
    sample s;
    sample_init(&s);
    pleat_image_head bad = s.head;
    const pleat_image_step steps[][2] = {{{0, 1, 0}, {1, 2, 0}},
                                         {{0, 4, 0}, {3, 2, 0}},
                                         {{0, 4, 0}, {56, 2, 0}},
                                         {{0, 4, 8}, {4, 2, 0}},
                                         {{4, 4, 0}, {0, 2, 0}}};
    bad.n_steps = 2;
    for (size_t i = 0; i < CHECK_COUNT(steps); i++) {
        bad.steps = steps[i];
        CHECK_EQ_U64(pleat_image_head_bytes(&bad), 0);
    }
    s.tokens[5] = -1;
    CHECK_EQ_U64(pleat_image_head_bytes(&s.head), 0);
    s.tokens[5] = 5;
    CHECK(pleat_image_head_bytes(&s.head) > 0);
    bad = s.head;
    bad.model[3] = 'X';
    CHECK_EQ_U64(pleat_image_head_bytes(&bad), 0);
    bad = s.head;
    bad.n_spec = 0;
    CHECK_EQ_U64(pleat_image_head_bytes(&bad), 0);
    bad = s.head;
    bad.body_bytes = 0;
    CHECK_EQ_U64(pleat_image_head_bytes(&bad), 0);
    sample_release(&s);
}

/* Bodies of other versions have bytes of other meanings, so a file of one is refused by name, whatever sums it has. */
static void test_versions(void) {
    sample s;
    sample_init(&s);
    pleat_image_head h;
    pleat_error err = {0};
    CHECK_EQ_U64(s.bytes[8], 2);
    s.bytes[8] = 1; /* its blocks of rd had a byte for each exponent */
    seal(&s);
    CHECK_STATUS(pleat_image_check(s.bytes, s.n_bytes, &h, NULL, &err), PLEAT_E_UNSUPPORTED);
    CHECK(strstr(err.text, "this is version 1, and version 2 can be read") != NULL);
    s.bytes[8] = 3;
    seal(&s);
    CHECK_STATUS(pleat_image_read_head(s.bytes, s.n_bytes, &h, NULL, &err), PLEAT_E_UNSUPPORTED);
    sample_release(&s);
}

static void test_compare(void) {
    sample s;
    sample_init(&s);
    pleat_error err = {0};
    pleat_image_head other = s.head;
    other.model[0] = 'f';
    CHECK_STATUS(pleat_image_compare(&s.head, &other, &err), PLEAT_E_ARG);
    CHECK(strstr(err.text, "another model") != NULL);
    other = s.head;
    other.spec = "f16";
    other.n_spec = 3;
    CHECK_STATUS(pleat_image_compare(&s.head, &other, &err), PLEAT_E_ARG);
    CHECK(strstr(err.text, "leankv:ah=3,al=0.05, not f16") != NULL);
    other = s.head;
    other.n_salt = 0;
    CHECK_STATUS(pleat_image_compare(&s.head, &other, &err), PLEAT_E_ARG);
    CHECK(strstr(err.text, "salt") != NULL && strstr(err.text, "tenant") == NULL); /* which one is nobody's business */
    other = s.head;
    strcpy(other.profile, "00000000000000000000000000000001");
    CHECK_STATUS(pleat_image_compare(&s.head, &other, &err), PLEAT_E_ARG);
    CHECK(strstr(err.text, "profile") != NULL);
    other = s.head;
    other.page_tokens = 64;
    CHECK_STATUS(pleat_image_compare(&s.head, &other, &err), PLEAT_E_ARG);
    CHECK(strstr(err.text, "32 tokens a page, not 64") != NULL);
    sample_release(&s);
}

static const check_test tests[] = {
    {"sums", test_sums}, {"round_trip", test_round_trip},       {"flipped", test_flipped},   {"cut", test_cut},
    {"lies", test_lies}, {"refused_heads", test_refused_heads}, {"versions", test_versions}, {"compare", test_compare},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
