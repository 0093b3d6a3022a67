/* SPDX-License-Identifier: MIT
 *
 * codec_rig.h: a public codec with a block, its codebooks and its payload, for check_codec and check_codebooks.
 */
#ifndef CHECK_CODEC_RIG_H
#define CHECK_CODEC_RIG_H

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "codec/internal.h"
#include "core/half.h"
#include "pleat/codec.h"
#include "tests/teach/decode.h"

static const char *const codec_specs[] = {
    "kvcomp:k=0.25,v=0.15,kunit=channel,block=64",
    "kvcomp:k=0.05,v=0.15,kunit=block,block=16",
    "kvcomp:k=0.01,v=1,kunit=block,block=32",
    "kvcomp:k=1,v=0.004,kunit=channel,block=128",
    "kvcomp:k=0.25,v=0.15,block=64+pack",
    "kvcomp:k=0.05,v=0.01,kunit=block,block=32+pack",
    "kvcomp:k=1,v=0.4,block=256+pack",
    "kivi:bits=2",
    "kivi:bits=4",
};

/* A codec, a block of tokens, and their payload. */
typedef struct rig {
    pleat_codec *codec;
    pleat__block_format f;
    size_t n; /* numbers of the keys, and of the values */
    float *k, *v, *k_out, *v_out;
    uint8_t *payload; /* [cap + pad] */
    uint64_t cap, n_bytes;
    uint8_t *codebooks; /* as bytes, [codebooks_cap] */
    uint64_t codebooks_cap, n_codebooks;
} rig;

static inline rig rig_new(const char *text, uint32_t d) {
    rig r = {0};
    pleat_spec spec;
    check_context("%s d %u", text, d);
    CHECK_STATUS(pleat_spec_parse(text, &spec, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__block_format_of(&spec, d, &r.f), PLEAT_OK);
    CHECK_STATUS(pleat_codec_create(&spec, d, NULL, &r.codec, NULL), PLEAT_OK);
    r.n = (size_t)r.f.tokens * d;
    r.k = malloc(4 * r.n * sizeof *r.k);
    r.v = r.k + r.n;
    r.k_out = r.v + r.n;
    r.v_out = r.k_out + r.n;
    r.cap = pleat_codec_payload_cap(r.codec);
    r.payload = malloc(r.cap + PLEAT_CODEC_PAD);
    memset(r.payload, 0xD0, r.cap + PLEAT_CODEC_PAD);
    r.codebooks_cap = pleat_codec_codebooks_cap(r.codec);
    r.codebooks = malloc(r.codebooks_cap);
    return r;
}

static inline void rig_free(rig *r) {
    pleat_codec_destroy(&r->codec);
    CHECK(r->codec == NULL);
    free(r->k);
    free(r->payload);
    free(r->codebooks);
}

/* Train on the block, and keep the codebooks as bytes. */
static inline void train(rig *r) {
    CHECK_STATUS(pleat_codec_train(r->codec, r->k, r->v, 1), PLEAT_OK);
    memset(r->codebooks, 0xD0, r->codebooks_cap);
    CHECK_STATUS(pleat_codec_get_codebooks(r->codec, r->codebooks, r->codebooks_cap, &r->n_codebooks), PLEAT_OK);
    CHECK(r->n_codebooks <= r->codebooks_cap);
}

static inline void fill(rig *r) {
    check_fill(r->k, r->n, check_below(2) ? 0 : (unsigned)check_below(CHECK_N_FILLS), (float)check_uniform(0.1, 9));
    check_fill(r->v, r->n, check_below(2) ? 0 : (unsigned)check_below(CHECK_N_FILLS), (float)check_uniform(0.1, 9));
    if (check_below(3) > 0) return;
    float *far = check_below(2) ? r->k : r->v; /* from 0: units are WIDE */
    for (size_t i = 0; i < r->n; i++) far[i] = 700 + far[i];
}

static inline void encode(rig *r) {
    CHECK_STATUS(pleat_codec_encode(r->codec, r->k, r->v, r->payload, r->cap, &r->n_bytes), PLEAT_OK);
    CHECK(r->n_bytes <= r->cap && r->cap < 4 * r->n);
}

/* What the document's decoder takes the rig's codebooks for: its format, and nothing else. */
static inline teach_format teach_format_of(const rig *r) {
    teach_format f = {0};
    const char *wrong = teach_codebooks(&f, r->codebooks, r->n_codebooks);
    if (!CHECK(wrong == NULL)) check_context("%s", wrong);
    CHECK(f.T == r->f.tokens && f.d == r->f.head_dim && f.g == r->f.v_group && f.by_channel == r->f.by_channel);
    CHECK(f.k_levels == r->f.k_levels && f.v_levels == r->f.v_levels && f.coder == (unsigned)r->f.coder);
    CHECK(f.k_compact == r->f.k_on_grids && f.v_compact == r->f.v_on_grids);
    return f;
}

/* A payload by the document's decoder, with the rig's codebooks.  NULL, or what is wrong with it. */
static inline const char *teach(const rig *r, const uint8_t *payload, size_t n, float *k, float *v) {
    const teach_format f = teach_format_of(r);
    return teach_decode(&f, payload, n, k, v);
}

#endif
