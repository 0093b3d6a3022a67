/* SPDX-License-Identifier: MIT
 *
 * fuzz_codebooks.c: any bytes as codebooks.
 *
 *     input   which codec u8 | codebooks
 *
 * The codec takes the bytes if they are its own format's and the teaching decoder takes them, and not otherwise.  Then
 * it hands out the same bytes, and a block that it encodes comes back the same from both.  That is tried with the bytes
 * as they are, and with the codec's own head and a sum that holds, so that most inputs reach the lengths.
 */
#include "fuzz.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "pleat/codec.h"
#include "tests/teach/decode.h"

#define D 16u     /* head_dim */
#define MAX_T 32u /* tokens of a block */
#define HEAD 16u  /* bytes before the codebooks */
#define MIN_BYTES 20u

static const char *const texts[] = {"kvcomp:k=0.2,v=0.15,block=16", "kvcomp:k=0.05,v=0.004,kunit=block,block=16",
                                    "kvcomp:k=1,v=0.5,block=16", "kvcomp:k=0.2,v=0.15,block=16+pack", "kivi:bits=2"};
#define N_TEXTS (sizeof texts / sizeof *texts)

static pleat_codec *codec_new(const char *text) {
    pleat_spec spec;
    pleat_codec *codec;
    EXPECT(pleat_spec_parse(text, &spec, NULL) == PLEAT_OK);
    EXPECT(pleat_codec_create(&spec, D, NULL, &codec, NULL) == PLEAT_OK);
    EXPECT(pleat_codec_block_tokens(codec) <= MAX_T);
    return codec;
}

/* A block that the bytes choose goes through the codec, and through the teaching decoder. */
static void try_block(pleat_codec *codec, const teach_format *f, const uint8_t *bytes, size_t n) {
    float k[MAX_T * D], v[MAX_T * D], k_out[MAX_T * D], v_out[MAX_T * D], k_taught[MAX_T * D], v_taught[MAX_T * D];
    uint8_t payload[MAX_T * D * 4];
    uint64_t n_bytes;
    const uint32_t n_numbers = pleat_codec_block_tokens(codec) * D;
    for (uint32_t i = 0; i < n_numbers; i++) {
        k[i] = (float)bytes[i % n];
        v[i] = (float)bytes[(7 * i + 3) % n];
    }
    EXPECT(pleat_codec_payload_cap(codec) <= sizeof payload);
    EXPECT(pleat_codec_encode(codec, k, v, payload, sizeof payload, &n_bytes) == PLEAT_OK);
    EXPECT(pleat_codec_decode(codec, payload, n_bytes, k_out, v_out) == PLEAT_OK);
    EXPECT(teach_decode(f, payload, n_bytes, k_taught, v_taught) == NULL);
    EXPECT(memcmp(k_out, k_taught, n_numbers * sizeof *k) == 0);
    EXPECT(memcmp(v_out, v_taught, n_numbers * sizeof *v) == 0);
}

/* `own` is the codec's head. */
static void try_codebooks(pleat_codec *codec, const uint8_t *own, const uint8_t *bytes, size_t n) {
    pleat_error err = {0};
    teach_format f;
    uint8_t again[600];
    uint64_t n_again;
    const int is_sound = teach_codebooks(&f, bytes, n) == NULL;
    const pleat_status status = pleat_codec_set_codebooks(codec, bytes, n, &err);
    EXPECT(status == (is_sound && memcmp(bytes, own, HEAD) == 0 ? PLEAT_OK : PLEAT_E_FORMAT));
    EXPECT(status == PLEAT_OK || (err.where <= n && err.text[0] != '\0'));
    if (status != PLEAT_OK) return;
    EXPECT(n <= pleat_codec_codebooks_cap(codec) && n <= sizeof again);
    EXPECT(pleat_codec_get_codebooks(codec, again, sizeof again, &n_again) == PLEAT_OK);
    EXPECT(n_again == n && memcmp(again, bytes, n) == 0);
    try_block(codec, &f, bytes, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    const size_t n = size - 1;
    uint8_t own[600], *bytes = malloc(n ? n : 1);
    uint64_t n_own;
    EXPECT(bytes);
    memcpy(bytes, data + 1, n);
    pleat_codec *codec = codec_new(texts[data[0] % N_TEXTS]);
    EXPECT(pleat_codec_train(codec, NULL, NULL, 0) == PLEAT_OK);
    EXPECT(pleat_codec_get_codebooks(codec, own, sizeof own, &n_own) == PLEAT_OK);
    try_codebooks(codec, own, bytes, n);
    if (n >= MIN_BYTES) {
        memcpy(bytes, own, HEAD);
        const uint32_t sum = XXH32(bytes, n - 4, 0);
        for (uint32_t i = 0; i < 4; i++) bytes[n - 4 + i] = (uint8_t)(sum >> 8 * i);
        try_codebooks(codec, own, bytes, n);
    }
    pleat_codec_destroy(&codec);
    free(bytes);
    return 0;
}
