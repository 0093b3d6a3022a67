/* SPDX-License-Identifier: MIT
 *
 * fuzz_block.c: any bytes as a payload.
 *
 *     input   format u8[4] | counts of the codebooks' codes u8[8] | payload
 *
 * Opened and decoded, with and without vectors, nothing outside the payload and its pad is read, codes are below the
 * levels, and both ways give the same.  That is tried with the bytes as they are and with a header that fits them, so
 * that most inputs reach the decoders; and what the public codec decodes has the sum that it says.
 */
#include "fuzz.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codec/internal.h"
#include "hw/cpu.h"
#include "pleat/codec.h"
#include "quant/bounded.h"

#define HEAD 12u /* bytes before the payload */

static const float rels[] = {1.0f, 0.5f, 0.3f, 0.2f, 0.15f, 0.05f, 0.03f, 1.0f / 255};

static pleat__block_format format_of(const uint8_t *head) {
    pleat__block_format f = {.head_dim = 16u << head[0] % 3, .tokens = 16u << head[0] / 3 % 3};
    f.coder = (pleat__block_coder)(head[1] % 3);
    f.by_channel = head[1] / 3 % 2;
    f.v_group = head[1] / 6 % 2 ? 16 : f.head_dim;
    pleat__block_set_steps(&f, rels[head[2] % 8], rels[head[3] % 8], head[1] / 12 % 2);
    return f;
}

/* A codebook in which code i is as frequent as byte i % 8 of `frequent` says. */
static void make_codebook(pleat__codebook *codebook, const uint8_t *frequent, uint32_t n_levels) {
    pleat__code_counts counts = {0};
    for (uint32_t i = 0; i < n_levels; i++) {
        counts.single[i] = 1ull << frequent[i % 8] % 20;
        for (uint32_t j = 0; n_levels <= 8 && j < n_levels; j++)
            counts.pair[i * 8 + j] = counts.single[i] * (1ull << frequent[j % 8] % 20);
    }
    pleat__codebook_build(codebook, &counts, n_levels);
}

static void expect_below(const uint8_t *codes, size_t n, uint32_t n_levels) {
    for (size_t i = 0; i < n; i++) EXPECT(codes[i] < n_levels);
}

/* Both matrices, slice by slice: keys one, values three at a time. */
static void decode(const pleat__block_format *f, const pleat__block_codebooks *codebooks, uint32_t flags,
                   const pleat__block_reader *opened, uint8_t *out) {
    pleat__block_reader reader = *opened;
    pleat__codec_dsp dsp;
    pleat__codec_dsp_init(&dsp, flags);
    for (uint32_t m = 0; m < 2; m++) {
        pleat__section *s = m ? &reader.v : &reader.k;
        const uint32_t slice = s->n_columns / 4, n_vectors = pleat__block_vectors(f);
        for (uint32_t v = 0, n; v < n_vectors; v += n, out += (size_t)64 * n) {
            n = pleat__min_u32(m ? 3 * slice : slice, n_vectors - v);
            pleat__sections_decode(&dsp, m ? &codebooks->v : &codebooks->k, &s, 1, n, &out);
        }
        (void)pleat__section_is_done(s);
    }
}

static void try_payload(const pleat__block_format *f, const pleat__block_codebooks *codebooks, const uint8_t *payload,
                        size_t n) {
    pleat__block_reader reader;
    const size_t n_codes = (size_t)f->tokens * f->head_dim;
    uint8_t *units = malloc(pleat__block_units_bytes(f));
    EXPECT(units);
    const bool opens = pleat__block_open(f, codebooks, payload, n, units, &reader) == PLEAT_OK;
    free(units);
    if (!opens) return;
    EXPECT(n <= pleat__block_bound(f));
    uint8_t *out = aligned_alloc(64, 4 * n_codes);
    EXPECT(out);
    decode(f, codebooks, 0, &reader, out);
    decode(f, codebooks, pleat_cpu_flags(), &reader, out + 2 * n_codes);
    expect_below(out, n_codes, f->k_levels);
    expect_below(out + n_codes, n_codes, f->v_levels);
    EXPECT(memcmp(out, out + 2 * n_codes, 2 * n_codes) == 0);
    free(out);
}

/* Make the sections' words fit the bytes that there are, if they can: keys as many as the header says, modulo that. */
static void mend_header(const pleat__block_format *f, uint8_t *payload, size_t n) {
    if (n < PLEAT__BLOCK_HEADER_BYTES) return;
    uint32_t words[2] = {pleat__load_u32(payload + 4), pleat__load_u32(payload + 8)};
    if (!f->k_on_grids) words[0] |= PLEAT__MATRIX_WIDE;
    if (!f->v_on_grids) words[1] |= PLEAT__MATRIX_WIDE;
    const size_t fixed = pleat__block_fixed_bytes(f, words[0], words[1]);
    if (n < fixed) return;
    const uint32_t left = (uint32_t)(n - fixed);
    uint32_t k_bytes = pleat__matrix_section_bytes(words[0]) % (left + 1);
    const size_t k_raw = pleat__raw_bytes(pleat__code_bits(f->k_levels), pleat__block_vectors(f));
    const size_t v_raw = pleat__raw_bytes(pleat__code_bits(f->v_levels), pleat__block_vectors(f));
    if (pleat__matrix_coder(words[0]) == PLEAT__CODER_RAW && k_raw <= left) k_bytes = (uint32_t)k_raw;
    if (pleat__matrix_coder(words[1]) == PLEAT__CODER_RAW && v_raw <= left) k_bytes = left - (uint32_t)v_raw;
    words[0] = k_bytes << 3 | (words[0] & 7);
    words[1] = (left - k_bytes) << 3 | (words[1] & 7);
    memcpy(payload + 4, words, sizeof words);
}

/* The public codec of the smallest blocks of each coder; the sum is made to hold. */
static void try_codec(const uint8_t *head, uint8_t *payload, size_t n) {
    static const char *const texts[] = {"kivi:bits=2", "kvcomp:k=0.2,v=0.15,block=16",
                                        "kvcomp:k=0.2,v=0.15,block=16+pack"};
    pleat_spec spec;
    pleat_codec *codec;
    if (n < PLEAT__BLOCK_HEADER_BYTES) return;
    EXPECT(pleat_spec_parse(texts[head[1] % 3], &spec, NULL) == PLEAT_OK);
    EXPECT(pleat_codec_create(&spec, 16, NULL, &codec, NULL) == PLEAT_OK);
    EXPECT(pleat_codec_train(codec, NULL, NULL, 0) == PLEAT_OK);
    const uint32_t sum = XXH32(payload + 4, n - 4, 0);
    memcpy(payload, &sum, sizeof sum);
    float k[32 * 16], v[32 * 16];
    const pleat_status status = pleat_codec_decode(codec, payload, n, k, v);
    EXPECT(status == PLEAT_OK || status == PLEAT_E_FORMAT);
    payload[n - 1] ^= 1;
    EXPECT(pleat_codec_decode(codec, payload, n, k, v) == PLEAT_E_FORMAT);
    payload[n - 1] ^= 1;
    pleat_codec_destroy(&codec);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < HEAD) return 0;
    const pleat__block_format f = format_of(data);
    const size_t n = size - HEAD;
    pleat__block_codebooks codebooks;
    make_codebook(&codebooks.k, data + 4, f.k_levels);
    make_codebook(&codebooks.v, data + 4, f.v_levels);
    uint8_t *payload = malloc(n + PLEAT__STREAM_PAD);
    EXPECT(payload);
    memcpy(payload, data + HEAD, n);
    memset(payload + n, data[0], PLEAT__STREAM_PAD);
    try_payload(&f, &codebooks, payload, n);
    mend_header(&f, payload, n);
    try_payload(&f, &codebooks, payload, n);
    try_codec(data, payload, n);
    free(payload);
    return 0;
}
