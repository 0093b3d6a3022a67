/* SPDX-License-Identifier: MIT
 *
 * test_codec.c: the public codec (pleat/codec.h), and every payload against the teaching decoder of docs/FORMAT.md.
 * test_codebooks.c has its codebooks as bytes.
 */
#include "codec_rig.h"

/* ---- the document ------------------------------------------------------------------------------------- */

/* The library and the document's decoder read the same numbers, bit for bit. */
static void test_teaching_decoder(void) {
    static const uint32_t head_dims[] = {16, 48, 64, 80, 128};
    for (uint64_t round = check_rounds(8, 1); round > 0; round--) {
        for (size_t i = 0; i < CHECK_COUNT(codec_specs); i++) {
            rig r = rig_new(codec_specs[i], head_dims[check_below(CHECK_COUNT(head_dims))]);
            fill(&r);
            train(&r);
            if (check_below(2)) fill(&r); /* not what the codebooks were made for */
            encode(&r);
            CHECK_STATUS(pleat_codec_decode(r.codec, r.payload, r.n_bytes, r.k_out, r.v_out), PLEAT_OK);
            float *k = malloc(2 * r.n * sizeof *k);
            const char *wrong = teach(&r, r.payload, r.n_bytes, k, k + r.n);
            if (!CHECK(wrong == NULL)) check_context("%s", wrong);
            CHECK_EQ_MEM(k, r.k_out, r.n * sizeof *k);
            CHECK_EQ_MEM(k + r.n, r.v_out, r.n * sizeof *k);
            free(k);
            rig_free(&r);
        }
    }
}

/* The document's example, section 10: the library writes it, and its text is what both decoders read. */
static void test_documents_example(void) {
    static const uint8_t codebooks[49] = {
        0x50, 0x4c, 0x43, 0x42, 1, 1, 6, 0, 16, 0, 16, 0, 16, 0, 2, 3, /* the format */
        0,    2,    4,    4,    4, 4, 4, 4, 4,  4, 1,                  /* K */
        0,    3,    1,    5,    5, 6, 6, 6, 6,  6, 6,  6, 6,  6, 6, 6, 6, 2, 0xf5, 0xd6, 0xe6, 0xbe};
    uint8_t payload[142] = {0xe3, 0x00, 0xc1, 0x90, 0, 2, 0, 0, 1, 1, 0, 0, 0, 0x70};
    for (uint32_t i = 0; i < 16; i++) payload[15 + 2 * i] = 0x78;
    payload[54] = 1;
    payload[110] = payload[111] = 0x55;
    rig r = rig_new("kvcomp:k=0.5,v=0.35,kunit=block,block=16", 16);
    memset(r.v, 0, r.n * sizeof *r.v);
    for (uint32_t t = 0; t < 16; t++) r.v[16 * t] = 3;
    for (size_t i = 0; i < r.n; i++) r.k[i] = i > 0;
    train(&r);
    for (size_t i = 0; i < r.n; i++) r.k[i] = i == 0;
    encode(&r);
    CHECK_EQ_U64(r.n_codebooks, sizeof codebooks);
    CHECK_EQ_MEM(r.codebooks, codebooks, sizeof codebooks);
    CHECK_EQ_U64(r.n_bytes, sizeof payload);
    CHECK_EQ_MEM(r.payload, payload, sizeof payload);
    CHECK(teach(&r, payload, sizeof payload, r.k_out, r.v_out) == NULL);
    CHECK_EQ_MEM(r.k_out, r.k, 2 * r.n * sizeof *r.k);
    rig_free(&r);
}

/* ---- what the codec promises ---------------------------------------------------------------------------- */

/* rel * range / 2 of a unit, and rounding of f32; a WIDE one's minimum and step are f16: an eleventh of a bit each, and the
 * smallest step there is. */
static double max_error(float rel, float low, float high, bool is_wide) {
    const double range = (double)high - (double)low, size = fmax(fabs((double)low), fabs((double)high));
    if (!is_wide) return 0.5 * (double)rel * range * (1 + 1e-4);
    return 0.5 * (double)rel * (range + fabs((double)low) / 1024) * 1.001 + 6e-8 + 1e-6 * size;
}

static void test_error_bound(void) {
    for (uint64_t round = check_rounds(4, 1); round > 0; round--) {
        for (size_t i = 0; i < CHECK_COUNT(codec_specs); i++) {
            rig r = rig_new(codec_specs[i], 64);
            const uint32_t d = r.f.head_dim, T = r.f.tokens, g = r.f.v_group;
            fill(&r);
            CHECK_STATUS(pleat_codec_train(r.codec, NULL, NULL, 0), PLEAT_OK);
            encode(&r);
            CHECK_STATUS(pleat_codec_decode(r.codec, r.payload, r.n_bytes, r.k_out, r.v_out), PLEAT_OK);
            for (uint32_t at = 0; at < r.n && check_failures() == 0; at++) { /* rel * range / 2 of its unit */
                float k_low = r.k[at], k_high = r.k[at], v_low = r.v[at], v_high = r.v[at];
                for (uint32_t j = r.f.by_channel ? at % d : 0; j < r.n; j += r.f.by_channel ? d : 1) {
                    k_low = fminf(k_low, r.k[j]);
                    k_high = fmaxf(k_high, r.k[j]);
                }
                for (uint32_t j = at / g * g; j < at / g * g + g; j++) {
                    v_low = fminf(v_low, r.v[j]);
                    v_high = fmaxf(v_high, r.v[j]);
                }
                const double k_error = fabs((double)r.k_out[at] - (double)r.k[at]);
                const double v_error = fabs((double)r.v_out[at] - (double)r.v[at]);
                CHECK(k_error <= max_error(r.f.k_rel, k_low, k_high, (r.payload[4] & 4) != 0));
                CHECK(v_error <= max_error(r.f.v_rel, v_low, v_high, (r.payload[8] & 4) != 0));
                if (!r.f.by_channel && at >= 100) break; /* all units are one */
            }
            CHECK_EQ_U64(T, pleat_codec_block_tokens(r.codec));
            rig_free(&r);
        }
    }
}

/* Every changed byte and every beginning is refused, and nothing is written. */
static void test_damage(void) {
    for (size_t i = 0; i < CHECK_COUNT(codec_specs); i++) {
        rig r = rig_new(codec_specs[i], 16);
        fill(&r);
        train(&r);
        encode(&r);
        for (size_t j = 0; j < r.n; j++) r.k_out[j] = r.v_out[j] = 7.5f;
        float *k = malloc(2 * r.n * sizeof *k);
        for (uint64_t at = 0; at < r.n_bytes; at++) {
            const uint8_t was = r.payload[at];
            r.payload[at] ^= (uint8_t)check_between(1, 255);
            CHECK_STATUS(pleat_codec_decode(r.codec, r.payload, r.n_bytes, r.k_out, r.v_out), PLEAT_E_FORMAT);
            CHECK(teach(&r, r.payload, r.n_bytes, k, k + r.n) != NULL);
            r.payload[at] = was;
        }
        for (uint64_t n = 0; n < r.n_bytes; n++) {
            uint8_t *cut = malloc(n ? n : 1);
            memcpy(cut, r.payload, n);
            CHECK_STATUS(pleat_codec_decode(r.codec, cut, n, r.k_out, r.v_out), PLEAT_E_FORMAT);
            free(cut);
        }
        CHECK_STATUS(pleat_codec_decode(r.codec, r.payload, r.n_bytes + 1, r.k_out, r.v_out), PLEAT_E_FORMAT);
        CHECK_STATUS(pleat_codec_decode(r.codec, r.payload, UINT64_MAX, r.k_out, r.v_out), PLEAT_E_FORMAT);
        CHECK_STATUS(pleat_codec_decode(r.codec, NULL, 0, r.k_out, r.v_out), PLEAT_E_FORMAT);
        for (size_t j = 0; j < r.n; j++) CHECK(r.k_out[j] == 7.5f && r.v_out[j] == 7.5f);
        free(k);
        rig_free(&r);
    }
}

/* The halves give what the whole does, one to four payloads at a time. */
static void test_halves(void) {
    for (size_t i = 0; i < CHECK_COUNT(codec_specs); i++) {
        rig r = rig_new(codec_specs[i], 64);
        uint8_t *codes[4], *out[4], *payloads[4];
        uint64_t n_bytes[4];
        for (uint32_t j = 0; j < 4; j++) {
            codes[j] = malloc(2 * r.n);
            out[j] = aligned_alloc(64, 2 * r.n);
            payloads[j] = malloc(r.cap + PLEAT_CODEC_PAD);
            fill(&r);
            if (j == 0) train(&r);
            encode(&r);
            CHECK_STATUS(pleat_codec_quantise(r.codec, r.k, r.v, codes[j]), PLEAT_OK);
            CHECK_STATUS(pleat_codec_encode_codes(r.codec, codes[j], payloads[j], r.cap, &n_bytes[j]), PLEAT_OK);
            CHECK_EQ_U64(n_bytes[j], r.n_bytes);
            CHECK_EQ_MEM(payloads[j], r.payload, r.n_bytes);
        }
        for (uint32_t n = 1; n <= 4; n++) {
            const void *in[4] = {payloads[0], payloads[1], payloads[2], payloads[3]};
            for (uint32_t j = 0; j < 4; j++) memset(out[j], 0xD0, 2 * r.n);
            CHECK_STATUS(pleat_codec_decode_codes(r.codec, in, n_bytes, n, out), PLEAT_OK);
            for (uint32_t j = 0; j < n; j++) CHECK_EQ_MEM(out[j], codes[j], 2 * r.n);
        }
        memset(codes[0], 255, 2 * r.n);
        CHECK_STATUS(pleat_codec_encode_codes(r.codec, codes[0], payloads[0], r.cap, &n_bytes[0]),
                     r.f.k_levels == 256 && r.f.v_levels == 256 ? PLEAT_OK : PLEAT_E_ARG);
        for (uint32_t j = 0; j < 4; j++) {
            free(codes[j]);
            free(out[j]);
            free(payloads[j]);
        }
        rig_free(&r);
    }
}

static void test_parts(void) {
    for (size_t i = 0; i < CHECK_COUNT(codec_specs); i++) {
        rig r = rig_new(codec_specs[i], 64);
        pleat_codec_parts p;
        double k_bits, v_bits;
        fill(&r);
        train(&r);
        encode(&r);
        CHECK_STATUS(pleat_codec_get_parts(r.codec, r.payload, r.n_bytes, &p), PLEAT_OK);
        CHECK_EQ_U64(r.n_bytes, p.header_bytes + p.k_unit_bytes + p.v_unit_bytes + p.order_bytes + p.k_code_bytes +
                                    p.v_code_bytes);
        CHECK_EQ_U64(p.order_bytes, r.f.coder == PLEAT__CODER_PACK ? r.f.tokens : 0);
        CHECK_EQ_U64(p.k_unit_bytes, (r.payload[4] & 4 ? 4 : 2) * (r.f.by_channel ? r.f.head_dim : 1));
        CHECK_EQ_U64(p.v_unit_bytes, (r.payload[8] & 4 ? 4 : 2) * r.n / r.f.v_group);
        CHECK((pleat_codec_codebook_bytes(r.codec) > 0) == (r.f.coder == PLEAT__CODER_HUFFMAN));
        pleat_codec_entropy(r.codec, &k_bits, &v_bits);
        CHECK(k_bits >= 0 && k_bits <= log2(r.f.k_levels) + 1e-9);
        CHECK(v_bits >= 0 && v_bits <= log2(r.f.v_levels) + 1e-9);
        rig_free(&r);
    }
}

static void test_states_and_arguments(void) {
    rig r = rig_new(codec_specs[0], 32);
    uint64_t n;
    fill(&r);
    CHECK_STATUS(pleat_codec_encode(r.codec, r.k, r.v, r.payload, r.cap, &n), PLEAT_E_STATE);
    CHECK_STATUS(pleat_codec_decode(r.codec, r.payload, r.cap, r.k_out, r.v_out), PLEAT_E_STATE);
    train(&r);
    CHECK_STATUS(pleat_codec_encode(r.codec, r.k, r.v, r.payload, r.cap - 1, &n), PLEAT_E_ARG);
    encode(&r);
    r.v[5] = NAN;
    CHECK_STATUS(pleat_codec_train(r.codec, r.k, r.v, 1), PLEAT_E_RANGE);
    CHECK_STATUS(pleat_codec_encode(r.codec, r.k, r.v, r.payload, r.cap, &n), PLEAT_E_RANGE);
    CHECK_STATUS(pleat_codec_decode(r.codec, r.payload, r.n_bytes, NULL, r.v_out),
                 PLEAT_OK); /* the codebooks are still there */
    r.v[5] = INFINITY;
    CHECK_STATUS(pleat_codec_encode(r.codec, r.k, r.v, r.payload, r.cap, &n), PLEAT_E_RANGE);
    rig_free(&r);

    pleat_spec spec;
    pleat_codec *codec = NULL;
    pleat_error err;
    CHECK_STATUS(pleat_spec_parse("f16", &spec, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_codec_create(&spec, 64, NULL, &codec, &err), PLEAT_E_ARG);
    CHECK_STATUS(pleat_spec_parse(codec_specs[0], &spec, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_codec_create(&spec, 24, NULL, &codec, &err), PLEAT_E_ARG);
    CHECK_STATUS(pleat_codec_create(&spec, 528, NULL, &codec, &err), PLEAT_E_ARG);
    CHECK_STATUS(pleat_codec_create(&spec, 0, NULL, &codec, NULL), PLEAT_E_ARG);
    CHECK(codec == NULL);
    pleat_codec_destroy(NULL);
    pleat_codec_destroy(&codec);
}

/* Levels are round(1 / rel) + 1, on grids round(17/16 / rel) + 1 (quant/bounded.h); up to PLEAT__GRID_LEVELS on grids. */
static void test_formats(void) {
    pleat_spec spec;
    pleat__block_format f;
    CHECK_STATUS(pleat_spec_parse("kvcomp:k=0.05,v=0.15,kunit=block,block=32+pack", &spec, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__block_format_of(&spec, 80, &f), PLEAT_OK);
    CHECK(f.head_dim == 80 && f.tokens == 32 && !f.by_channel && f.v_group == 80 && f.coder == PLEAT__CODER_PACK);
    CHECK(f.k_levels == 22 && f.v_levels == 8 && f.k_on_grids && f.v_on_grids);
    CHECK_STATUS(pleat_spec_parse("kvcomp:k=0.01,v=0.02", &spec, NULL), PLEAT_OK); /* 107 levels on grids, 54 */
    CHECK_STATUS(pleat__block_format_of(&spec, 80, &f), PLEAT_OK);
    CHECK(f.k_levels == 101 && f.v_levels == 54 && !f.k_on_grids && f.v_on_grids);
    CHECK_STATUS(pleat_spec_parse("kivi:bits=2", &spec, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__block_format_of(&spec, 64, &f), PLEAT_OK);
    CHECK(f.tokens == 32 && f.by_channel && f.v_group == 32 && f.coder == PLEAT__CODER_RAW);
    CHECK(f.k_levels == 4 && f.v_levels == 4 && !f.k_on_grids && !f.v_on_grids);
    CHECK_STATUS(pleat__block_format_of(&spec, 48, &f), PLEAT_OK);
    CHECK_EQ_U64(f.v_group, 16); /* 48 is no multiple of 32 */
    spec.bits = 3;
    CHECK_STATUS(pleat__block_format_of(&spec, 64, &f), PLEAT_E_ARG);
    CHECK_STATUS(pleat_spec_parse("kvcomp", &spec, NULL), PLEAT_OK);
    spec.block = 48;
    CHECK_STATUS(pleat__block_format_of(&spec, 64, &f), PLEAT_E_ARG);
    spec.block = 64;
    spec.k = NAN;
    CHECK_STATUS(pleat__block_format_of(&spec, 64, &f), PLEAT_E_ARG);
}

static void test_no_memory(void) {
    pleat_spec spec;
    CHECK_STATUS(pleat_spec_parse(codec_specs[0], &spec, NULL), PLEAT_OK);
    for (uint64_t nth = 1;; nth++) {
        check_alloc ca;
        pleat_codec *codec = NULL;
        check_alloc_init(&ca, nth, 0);
        const pleat_status status = pleat_codec_create(&spec, 64, &ca.a, &codec, NULL);
        if (status != PLEAT_OK) CHECK_STATUS(status, PLEAT_E_MEMORY);
        pleat_codec_destroy(&codec);
        CHECK_EQ_U64(ca.live, 0);
        if (status == PLEAT_OK) break;
    }
}

static const check_test tests[] = {
    {"teaching_decoder", test_teaching_decoder},
    {"documents_example", test_documents_example},
    {"error_bound", test_error_bound},
    {"damage", test_damage},
    {"halves", test_halves},
    {"parts", test_parts},
    {"states_and_arguments", test_states_and_arguments},
    {"formats", test_formats},
    {"no_memory", test_no_memory},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
