/* SPDX-License-Identifier: MIT
 *
 * test_codebooks.c: codebooks as bytes (docs/FORMAT.md, section 9): what pleat/codec.h hands out and takes in, against
 * bytes put together here and against the teaching decoder.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codec_rig.h"

/* A sum for bytes that were changed. */
static void mend_sum(uint8_t *bytes, size_t n) {
    const uint32_t sum = XXH32(bytes, n - 4, 0);
    for (uint32_t i = 0; i < 4; i++) bytes[n - 4 + i] = (uint8_t)(sum >> 8 * i);
}

/* A codec of the rig's format that has no codebooks. */
static pleat_codec *codec_like(const char *text, uint32_t d) {
    pleat_spec spec;
    pleat_codec *codec = NULL;
    CHECK_STATUS(pleat_spec_parse(text, &spec, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_codec_create(&spec, d, NULL, &codec, NULL), PLEAT_OK);
    return codec;
}

/* Bytes are no codebooks for the codec: with a message, and nothing is changed. */
static void check_refused(pleat_codec *codec, const uint8_t *bytes, size_t n) {
    pleat_error err = {0};
    CHECK_STATUS(pleat_codec_set_codebooks(codec, bytes, n, &err), PLEAT_E_FORMAT);
    CHECK(err.code == PLEAT_E_FORMAT && err.where <= n && strstr(err.text, "codebooks") != NULL);
    CHECK_STATUS(pleat_codec_set_codebooks(codec, bytes, n, NULL), PLEAT_E_FORMAT);
}

/* ---- what is handed out --------------------------------------------------------------------------------- */

/* A codebook of these codes by the document's section 6, but for the lengths, which build() finds. */
static size_t oracle_codebook(const rig *r, const uint8_t *codes, uint32_t n_levels, uint8_t *out) {
    pleat__code_counts *counts = calloc(1, sizeof *counts);
    pleat__codebook codebook;
    pleat__code_counts_add(counts, codes, pleat__block_vectors(&r->f), n_levels);
    pleat__codebook_build(&codebook, counts, n_levels);
    free(counts);
    size_t n = 2;
    out[0] = codebook.kind;
    out[1] = (uint8_t)(n_levels - 1);
    for (uint32_t b = 0; b < (codebook.kind == 0 ? n_levels : 1); b++)
        for (uint32_t a = 0; a < n_levels; a++) out[n++] = codebook.bits[a + 16 * b];
    return n;
}

/* The bytes are those of section 9, from the block's codes. */
static void test_bytes(void) {
    for (uint64_t round = check_rounds(8, 2); round > 0; round--) {
        for (size_t i = 0; i < CHECK_COUNT(codec_specs); i++) {
            rig r = rig_new(codec_specs[i], 16 * (uint32_t)check_between(1, 9));
            const pleat__block_format *f = &r.f;
            uint8_t want[16 + 2 * 258 + 4] = {'P', 'L', 'C', 'B', 1, (uint8_t)f->coder};
            want[6] = (uint8_t)((f->by_channel ? 1 : 0) + (f->k_on_grids ? 2 : 0) + (f->v_on_grids ? 4 : 0));
            const uint32_t sizes[3] = {f->tokens, f->head_dim, f->v_group};
            for (uint32_t j = 0; j < 6; j++) want[8 + j] = (uint8_t)(sizes[j / 2] >> 8 * (j % 2));
            want[14] = (uint8_t)(f->k_levels - 1);
            want[15] = (uint8_t)(f->v_levels - 1);
            size_t n = 16;
            fill(&r);
            train(&r);
            uint8_t *codes = malloc(2 * r.n);
            CHECK_STATUS(pleat_codec_quantise(r.codec, r.k, r.v, codes), PLEAT_OK);
            if (f->coder == PLEAT__CODER_HUFFMAN) {
                n += oracle_codebook(&r, codes, f->k_levels, want + n);
                n += oracle_codebook(&r, codes + r.n, f->v_levels, want + n);
            }
            mend_sum(want, n + 4);
            CHECK_EQ_U64(r.n_codebooks, n + 4);
            CHECK_EQ_MEM(r.codebooks, want, n + 4);
            free(codes);
            rig_free(&r);
        }
    }
}

/* ---- and taken in ---------------------------------------------------------------------------------------- */

/* Another codec with the codebooks hands out the same, reads the payload and writes it. */
static void check_same(const rig *r, pleat_codec *codec) {
    uint8_t *bytes = malloc(r->cap + r->codebooks_cap), *payload = bytes + r->codebooks_cap;
    float *k = malloc(2 * r->n * sizeof *k);
    uint64_t n;
    CHECK_STATUS(pleat_codec_get_codebooks(codec, bytes, r->codebooks_cap, &n), PLEAT_OK);
    CHECK_EQ_U64(n, r->n_codebooks);
    CHECK_EQ_MEM(bytes, r->codebooks, r->n_codebooks);
    CHECK_STATUS(pleat_codec_decode(codec, r->payload, r->n_bytes, k, k + r->n), PLEAT_OK);
    CHECK_EQ_MEM(k, r->k_out, r->n * sizeof *k);
    CHECK_EQ_MEM(k + r->n, r->v_out, r->n * sizeof *k);
    CHECK_STATUS(pleat_codec_encode(codec, r->k, r->v, payload, r->cap, &n), PLEAT_OK);
    CHECK_EQ_U64(n, r->n_bytes);
    CHECK_EQ_MEM(payload, r->payload, r->n_bytes);
    free(k);
    free(bytes);
}

static void test_round_trip(void) {
    for (uint64_t round = check_rounds(8, 2); round > 0; round--) {
        for (size_t i = 0; i < CHECK_COUNT(codec_specs); i++) {
            const uint32_t d = 16 * (uint32_t)check_between(1, 8);
            rig r = rig_new(codec_specs[i], d);
            uint64_t n;
            double k_bits = 1, v_bits = 1;
            fill(&r);
            train(&r);
            encode(&r);
            CHECK_STATUS(pleat_codec_decode(r.codec, r.payload, r.n_bytes, r.k_out, r.v_out), PLEAT_OK);
            pleat_codec *codec = codec_like(codec_specs[i], d);
            CHECK_STATUS(pleat_codec_get_codebooks(codec, r.codebooks, r.codebooks_cap, &n), PLEAT_E_STATE);
            CHECK_STATUS(pleat_codec_set_codebooks(codec, r.codebooks, r.n_codebooks, NULL), PLEAT_OK);
            check_same(&r, codec);
            CHECK_STATUS(pleat_codec_train(codec, r.v, r.k, 1), PLEAT_OK); /* others, and these again */
            CHECK_STATUS(pleat_codec_set_codebooks(codec, r.codebooks, r.n_codebooks, NULL), PLEAT_OK);
            check_same(&r, codec);
            pleat_codec_entropy(codec, &k_bits, &v_bits);
            CHECK(k_bits == 0 && v_bits == 0);
            pleat_codec_destroy(&codec);
            rig_free(&r);
        }
    }
}

/* What a reader need not know may differ: the buffer, and a step that makes as many levels. */
static void test_other_texts(void) {
    static const char *const same[] = {"kvcomp:k=0.25,v=0.15,kunit=channel,block=64,buffer=7",
                                       "kvcomp:k=0.251,v=0.149,kunit=channel,block=64"};
    for (size_t i = 0; i < CHECK_COUNT(same); i++) {
        rig r = rig_new(codec_specs[0], 64);
        float *k = malloc(2 * r.n * sizeof *k);
        fill(&r);
        train(&r);
        encode(&r);
        CHECK_STATUS(pleat_codec_decode(r.codec, r.payload, r.n_bytes, r.k_out, r.v_out), PLEAT_OK);
        pleat_codec *codec = codec_like(same[i], 64);
        CHECK_STATUS(pleat_codec_set_codebooks(codec, r.codebooks, r.n_codebooks, NULL), PLEAT_OK);
        CHECK_STATUS(pleat_codec_decode(codec, r.payload, r.n_bytes, k, k + r.n), PLEAT_OK);
        CHECK_EQ_MEM(k, r.k_out, r.n * sizeof *k);
        CHECK_EQ_MEM(k + r.n, r.v_out, r.n * sizeof *k);
        pleat_codec_destroy(&codec);
        free(k);
        rig_free(&r);
    }
}

/* Any codebook of the levels will do, not only those that build() makes: all single codes, where it takes pairs. */
static void test_other_kinds(void) {
    rig r = rig_new("kvcomp:k=0.5,v=0.35,kunit=block,block=16", 16); /* 3 and 4 levels */
    uint8_t bytes[16 + 2 + 3 + 2 + 4 + 4] = {0};
    float *k = malloc(2 * r.n * sizeof *k);
    for (uint64_t round = check_rounds(20, 4); round > 0; round--) {
        fill(&r);
        train(&r);
        memcpy(bytes, r.codebooks, 16);
        memcpy(bytes + 16, (const uint8_t[]){1, 2, 2, 1, 2}, 5);
        memcpy(bytes + 21, (const uint8_t[]){2, 3, 3, 1, 2, 3}, 6);
        mend_sum(bytes, sizeof bytes);
        CHECK_STATUS(pleat_codec_set_codebooks(r.codec, bytes, sizeof bytes, NULL), PLEAT_OK);
        encode(&r);
        CHECK_STATUS(pleat_codec_decode(r.codec, r.payload, r.n_bytes, r.k_out, r.v_out), PLEAT_OK);
        memcpy(r.codebooks, bytes, r.n_codebooks = sizeof bytes);
        CHECK(teach(&r, r.payload, r.n_bytes, k, k + r.n) == NULL);
        CHECK_EQ_MEM(k, r.k_out, r.n * sizeof *k);
        CHECK_EQ_MEM(k + r.n, r.v_out, r.n * sizeof *k);
    }
    free(k);
    rig_free(&r);
}

/* ---- what is not taken ------------------------------------------------------------------------------------ */

/* A changed byte anywhere, any beginning, and bytes behind the end. */
static void test_damage(void) {
    for (size_t i = 0; i < CHECK_COUNT(codec_specs); i++) {
        rig r = rig_new(codec_specs[i], 32);
        teach_format f;
        fill(&r);
        train(&r);
        encode(&r);
        CHECK_STATUS(pleat_codec_decode(r.codec, r.payload, r.n_bytes, r.k_out, r.v_out), PLEAT_OK);
        for (uint64_t at = 0; at < r.n_codebooks; at++) {
            const uint8_t was = r.codebooks[at];
            r.codebooks[at] ^= (uint8_t)check_between(1, 255);
            check_refused(r.codec, r.codebooks, r.n_codebooks);
            CHECK(teach_codebooks(&f, r.codebooks, r.n_codebooks) != NULL);
            r.codebooks[at] = was;
        }
        for (uint64_t n = 0; n <= r.n_codebooks + 1; n++) {
            check_buf exact = check_buf_new(n, 1); /* unreadable behind it */
            memcpy(exact.p, r.codebooks, n < r.n_codebooks ? n : r.n_codebooks);
            if (n != r.n_codebooks) check_refused(r.codec, exact.p, n);
            if (n != r.n_codebooks) CHECK(teach_codebooks(&f, exact.p, n) != NULL);
            if (n >= 20 && n != r.n_codebooks) { /* of another length, with a sum that holds */
                mend_sum(exact.p, n);
                check_refused(r.codec, exact.p, n);
                CHECK(teach_codebooks(&f, exact.p, n) != NULL);
            }
            check_buf_free(&exact);
        }
        check_refused(r.codec, NULL, 0);
        check_same(&r, r.codec); /* what it had it has */
        rig_free(&r);
    }
}

/* Bytes that were made to look whole: each byte of the head and of the lengths, and a sum that holds.  A head of
 * another format is refused, and so are lengths that no codebook has; the teaching decoder agrees which those are. */
static void test_forgery(void) {
    uint32_t n_taken = 0, n_refused = 0;
    for (size_t i = 0; i < CHECK_COUNT(codec_specs); i++) {
        rig r = rig_new(codec_specs[i], 32);
        fill(&r);
        train(&r);
        pleat_codec *codec = codec_like(codec_specs[i], 32);
        uint8_t *bytes = malloc(r.n_codebooks);
        for (uint64_t round = 0; round < check_rounds(20, 2) * r.n_codebooks; round++) {
            const size_t at = round % (r.n_codebooks - 4), other = 16 + check_below(r.n_codebooks - 19);
            memcpy(bytes, r.codebooks, r.n_codebooks);
            if (at >= 16 && check_below(2)) { /* two lengths change places */
                bytes[at] = r.codebooks[other];
                bytes[other] = r.codebooks[at];
            } else {
                bytes[at] = (uint8_t)(check_below(2) ? check_u64() : bytes[at] + 1u);
            }
            mend_sum(bytes, r.n_codebooks);
            teach_format f;
            const bool is_own = memcmp(bytes, r.codebooks, 16) == 0;
            const bool is_sound = teach_codebooks(&f, bytes, r.n_codebooks) == NULL;
            if (is_own && is_sound) {
                CHECK_STATUS(pleat_codec_set_codebooks(codec, bytes, r.n_codebooks, NULL), PLEAT_OK);
                n_taken += at >= 16;
            } else {
                check_refused(codec, bytes, r.n_codebooks);
                n_refused += is_own;
            }
        }
        free(bytes);
        pleat_codec_destroy(&codec);
        rig_free(&r);
    }
    CHECK(n_taken > 20 && n_refused > 20);
}

/* A sound head, and codebooks that are sound with another: of other levels, or of a kind that has no room for these. */
static void test_other_codebooks(void) {
    static const struct {
        uint8_t kind;
        uint32_t n_lengths;
    } of_22[] = {{0, 22}, {0, 22 * 22}, {1, 21}, {1, 23}, {2, 21}, {3, 22}, {255, 22}};
    rig r = rig_new("kvcomp:k=0.05,v=0.05,kunit=block,block=16", 16), other = rig_new(codec_specs[0], 16);
    uint8_t *bytes = calloc(1, 2000);
    teach_format f;
    fill(&r);
    train(&r);
    fill(&other);
    train(&other);
    memcpy(bytes, r.codebooks, 16);
    memcpy(bytes + 16, other.codebooks + 16, other.n_codebooks - 16);
    mend_sum(bytes, other.n_codebooks);
    check_refused(r.codec, bytes, other.n_codebooks);
    CHECK(teach_codebooks(&f, bytes, other.n_codebooks) != NULL);
    for (size_t i = 0; i < CHECK_COUNT(of_22); i++) {
        check_context("kind %u, %u lengths", of_22[i].kind, of_22[i].n_lengths);
        size_t n = 16;
        for (uint32_t m = 0; m < 2; m++) {
            bytes[n++] = of_22[i].kind;
            bytes[n++] = 21;
            const uint32_t n_fours =
                of_22[i].n_lengths < 32 ? 32 - of_22[i].n_lengths : 0; /* the others are 5: complete */
            for (uint32_t j = 0; j < of_22[i].n_lengths; j++) bytes[n++] = j < n_fours ? 4 : 5;
        }
        mend_sum(bytes, n + 4);
        check_refused(r.codec, bytes, n + 4);
        CHECK(teach_codebooks(&f, bytes, n + 4) != NULL);
    }
    free(bytes);
    rig_free(&other);
    rig_free(&r);
}

/* Every codec takes the codebooks of its own format alone, and reads the payloads of no other. */
static void test_other_formats(void) {
    enum { N = CHECK_COUNT(codec_specs) };
    rig rigs[2 * N];
    for (size_t i = 0; i < 2 * N; i++) {
        rigs[i] = rig_new(codec_specs[i % N], i < N ? 32 : 64);
        fill(&rigs[i]);
        train(&rigs[i]);
        encode(&rigs[i]);
    }
    for (size_t i = 0; i < 2 * N; i++) {
        for (size_t j = 0; j < 2 * N; j++) {
            pleat_codec *codec = rigs[i].codec;
            check_context("%s d %u takes %s d %u", codec_specs[i % N], rigs[i].f.head_dim, codec_specs[j % N],
                          rigs[j].f.head_dim);
            if (i == j) continue;
            check_refused(codec, rigs[j].codebooks, rigs[j].n_codebooks);
            CHECK_STATUS(pleat_codec_decode(codec, rigs[j].payload, rigs[j].n_bytes, rigs[i].k_out, NULL),
                         PLEAT_E_FORMAT);
        }
    }
    for (size_t i = 0; i < 2 * N; i++) rig_free(&rigs[i]);
}

/* Codes of the payload as the codec reads them, whatever its sum is. */
static pleat_status read_codes(pleat_codec *codec, const rig *r, uint8_t *codes) {
    const void *payloads[1] = {r->payload};
    return pleat_codec_decode_codes(codec, payloads, &r->n_bytes, 1, &codes);
}

/* Other codebooks of the same format: two symbols have each other's words, as if other tokens had been trained on.
 * Often enough the payload's streams still end where they should, with other codes.  Its sum alone tells. */
static void test_silent_payloads(void) {
    static const char text[] = "kvcomp:k=0.2,v=0.15,block=16";
    uint32_t n_silent = 0;
    for (uint64_t round = check_rounds(60, 20); round > 0; round--) {
        rig r = rig_new(text, 32);
        fill(&r);
        train(&r);
        encode(&r);
        uint8_t *bytes = malloc(r.n_codebooks), *codes = aligned_alloc(64, 4 * r.n);
        memcpy(bytes, r.codebooks, r.n_codebooks);
        const size_t a = 18 + check_below(6), b = 18 + check_below(6); /* of K's lengths */
        bytes[a] = r.codebooks[b];
        bytes[b] = r.codebooks[a];
        mend_sum(bytes, r.n_codebooks);
        const bool differs = bytes[a] != bytes[b];
        pleat_codec *codec = codec_like(text, 32);
        CHECK_STATUS(pleat_codec_set_codebooks(codec, bytes, r.n_codebooks, NULL), PLEAT_OK);
        CHECK_STATUS(pleat_codec_decode(codec, r.payload, r.n_bytes, r.k_out, r.v_out),
                     differs ? PLEAT_E_FORMAT : PLEAT_OK);
        CHECK_STATUS(read_codes(r.codec, &r, codes), PLEAT_OK);
        n_silent += read_codes(codec, &r, codes + 2 * r.n) == PLEAT_OK && memcmp(codes, codes + 2 * r.n, 2 * r.n) != 0;
        free(codes);
        free(bytes);
        pleat_codec_destroy(&codec);
        rig_free(&r);
    }
    CHECK(n_silent > 0);
}

/* ---- arguments and memory --------------------------------------------------------------------------------- */

static void test_arguments(void) {
    rig r = rig_new(codec_specs[0], 32);
    pleat_error err;
    uint64_t n = 77;
    fill(&r);
    CHECK_STATUS(pleat_codec_get_codebooks(r.codec, r.codebooks, r.codebooks_cap, &n), PLEAT_E_STATE);
    CHECK_EQ_U64(n, 77);
    train(&r);
    CHECK_STATUS(pleat_codec_get_codebooks(r.codec, r.codebooks, r.codebooks_cap - 1, &n), PLEAT_E_ARG);
    CHECK_STATUS(pleat_codec_get_codebooks(r.codec, NULL, r.codebooks_cap, &n), PLEAT_E_ARG);
    CHECK_STATUS(pleat_codec_get_codebooks(r.codec, r.codebooks, r.codebooks_cap, NULL), PLEAT_E_ARG);
    CHECK_STATUS(pleat_codec_get_codebooks(NULL, r.codebooks, r.codebooks_cap, &n), PLEAT_E_ARG);
    CHECK_EQ_U64(n, 77);
    CHECK_STATUS(pleat_codec_set_codebooks(NULL, r.codebooks, r.n_codebooks, &err), PLEAT_E_ARG);
    CHECK_STATUS(pleat_codec_set_codebooks(r.codec, NULL, 20, &err), PLEAT_E_ARG);
    CHECK_EQ_U64(pleat_codec_codebooks_cap(NULL), 0);
    rig_free(&r);
    r = rig_new("kvcomp:k=0.004,v=0.004", 512); /* the most there are */
    CHECK_EQ_U64(r.codebooks_cap, 20 + 2 * 2 + r.f.k_levels + r.f.v_levels);
    CHECK(r.codebooks_cap < 600);
    rig_free(&r);
    r = rig_new("kivi:bits=2", 16);
    CHECK_EQ_U64(r.codebooks_cap, 20);
    rig_free(&r);
}

/* Each allocation fails; and once a codec is there nothing allocates any more. */
static void test_no_memory(void) {
    for (size_t i = 0; i < CHECK_COUNT(codec_specs); i++) {
        rig r = rig_new(codec_specs[i], 32);
        pleat_spec spec;
        fill(&r);
        train(&r);
        encode(&r);
        CHECK_STATUS(pleat_codec_decode(r.codec, r.payload, r.n_bytes, r.k_out, r.v_out), PLEAT_OK);
        CHECK_STATUS(pleat_spec_parse(codec_specs[i], &spec, NULL), PLEAT_OK);
        for (uint64_t nth = 1;; nth++) {
            check_alloc ca;
            pleat_codec *codec = NULL;
            check_alloc_init(&ca, nth, 1);
            const pleat_status status = pleat_codec_create(&spec, 32, &ca.a, &codec, NULL);
            if (status == PLEAT_OK) { /* the nth would be the next */
                CHECK_STATUS(pleat_codec_set_codebooks(codec, r.codebooks, r.n_codebooks, NULL), PLEAT_OK);
                check_same(&r, codec);
                CHECK_EQ_U64(ca.count, nth - 1);
            } else {
                CHECK_STATUS(status, PLEAT_E_MEMORY);
            }
            pleat_codec_destroy(&codec);
            CHECK_EQ_U64(ca.live, 0);
            if (status == PLEAT_OK) break;
        }
        rig_free(&r);
    }
}

static const check_test tests[] = {
    {"bytes", test_bytes},
    {"round_trip", test_round_trip},
    {"other_texts", test_other_texts},
    {"other_kinds", test_other_kinds},
    {"damage", test_damage},
    {"forgery", test_forgery},
    {"other_codebooks", test_other_codebooks},
    {"other_formats", test_other_formats},
    {"silent_payloads", test_silent_payloads},
    {"arguments", test_arguments},
    {"no_memory", test_no_memory},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
