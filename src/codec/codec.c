/* SPDX-License-Identifier: MIT
 *
 * codec.c: the public codec: a format, its codebooks, and the memory for one block on its way in or out.
 *
 * Payloads come from outside: decode copies one, with the pad that decoders read, checks its sum, and only writes what
 * decoded whole.  Codebooks may come from outside too: codebooks.c checks them.
 */
#include "pleat/codec.h"

#include <assert.h>

#include "codec/device_blocks.h"
#include "codec/internal.h"
#include "core/checked.h"
#include "core/error.h"
#include "hw/cpu.h"
#include "quant/quant.h"

static_assert(PLEAT_CODEC_AT_ONCE == PLEAT__STREAMS, "payloads that are decoded side by side");
static_assert(PLEAT_CODEC_PAD == PLEAT__STREAM_PAD, "bytes that decoders may read behind a payload");

struct pleat_codec {
    pleat_allocator al;
    pleat__block_format format;
    pleat__codec_dsp dsp;
    bool has_codebooks;                      /* trained, or they were set; where the coder has none too */
    pleat__block_codebooks *codebooks;       /* HUFFMAN, else NULL */
    pleat__code_counts *k_counts, *v_counts; /* of train */
    pleat__block_codes codes;
    uint8_t *payload;         /* [bound + pad] decode's copy */
    uint8_t *units;           /* of what is decoded */
    float *k_tiles, *v_tiles; /* [T * d] */
    void *memory;             /* all of the above */
    uint64_t memory_bytes;
};

/* Codes of a block's keys, or of its values. */
static size_t matrix_codes(const pleat__block_format *f) { return (size_t)f->tokens * f->head_dim; }

static void carve(pleat_codec *c, pleat__arena *arena) {
    const pleat__block_format *f = &c->format;
    if (f->coder == PLEAT__CODER_HUFFMAN) c->codebooks = pleat__arena_take(arena, 1, sizeof *c->codebooks);
    c->k_counts = pleat__arena_take(arena, 1, sizeof *c->k_counts);
    c->v_counts = pleat__arena_take(arena, 1, sizeof *c->v_counts);
    pleat__block_codes_carve(f, &c->codes, arena);
    c->payload = pleat__arena_take(arena, pleat__block_bound(f) + PLEAT__STREAM_PAD, 1);
    c->units = pleat__arena_take(arena, pleat__block_units_bytes(f), 1);
    c->k_tiles = pleat__arena_take(arena, matrix_codes(f), sizeof *c->k_tiles);
    c->v_tiles = pleat__arena_take(arena, matrix_codes(f), sizeof *c->v_tiles);
}

pleat_status pleat_codec_create(const pleat_spec *spec, uint32_t head_dim, const pleat_allocator *allocator,
                                pleat_codec **out, pleat_error *err) {
    pleat__block_format format;
    PLEAT_FAIL_IF(!spec || !out, err, PLEAT_E_ARG, PLEAT_NOWHERE, "codec: no spec or no place for the result");
    PLEAT_FAIL_IF(pleat__block_format_of(spec, head_dim, &format) != PLEAT_OK || format.is_rd, err, PLEAT_E_ARG,
                  PLEAT_NOWHERE,
                  "codec: the spec is not kvcomp or kivi, or head_dim %u is not a multiple of 16 in 16..%u", head_dim,
                  PLEAT__MAX_HEAD_DIM);
    const pleat_allocator al = pleat__allocator_or_default(allocator);
    pleat_codec *c = pleat__alloc_zero(&al, 1, sizeof *c);
    PLEAT_FAIL_IF(!c, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "codec: out of memory");
    c->al = al;
    c->format = format;
    pleat__codec_dsp_init(&c->dsp, pleat_cpu_flags());
    pleat__arena arena = {0};
    carve(c, &arena);
    c->memory_bytes = arena.used_bytes;
    c->memory = pleat__alloc_zero(&al, 1, c->memory_bytes);
    if (!c->memory) {
        pleat_codec_destroy(&c);
        return pleat__error_set(err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "codec: out of memory");
    }
    arena = (pleat__arena){.base = c->memory, .cap_bytes = c->memory_bytes};
    carve(c, &arena);
    *out = c;
    return PLEAT_OK;
}

void pleat_codec_destroy(pleat_codec **codec) {
    if (!codec || !*codec) return;
    pleat_codec *c = *codec;
    const pleat_allocator al = c->al;
    pleat__free(&al, c->memory, 1, c->memory_bytes);
    pleat__free(&al, c, 1, sizeof *c);
    *codec = NULL;
}

uint32_t pleat_codec_block_tokens(const pleat_codec *c) { return c ? c->format.tokens : 0; }
uint64_t pleat_codec_payload_cap(const pleat_codec *c) { return c ? pleat__block_bound(&c->format) : 0; }
uint64_t pleat_codec_codebook_bytes(const pleat_codec *c) { return c && c->codebooks ? sizeof *c->codebooks : 0; }

/* ---- codebooks --------------------------------------------------------------------------------------- */

static bool is_finite_block(const pleat__block_format *f, const float *k, const float *v) {
    return pleat__values_in_range(k, matrix_codes(f)) && pleat__values_in_range(v, matrix_codes(f));
}

pleat_status pleat_codec_train(pleat_codec *c, const float *k, const float *v, uint32_t n_blocks) {
    if (!c || (n_blocks > 0 && (!k || !v))) return PLEAT_E_ARG;
    const pleat__block_format *f = &c->format;
    const size_t n = matrix_codes(f);
    for (uint32_t i = 0; i < n_blocks; i++)
        if (!is_finite_block(f, k + i * n, v + i * n)) return PLEAT_E_RANGE;
    memset(c->k_counts, 0, sizeof *c->k_counts);
    memset(c->v_counts, 0, sizeof *c->v_counts);
    for (uint32_t i = 0; i < n_blocks; i++) {
        pleat__block_quantise(f, k + i * n, v + i * n, f->head_dim, &c->codes);
        pleat__code_counts_add(c->k_counts, c->codes.k, pleat__block_vectors(f), f->k_levels);
        pleat__code_counts_add(c->v_counts, c->codes.v, pleat__block_vectors(f), f->v_levels);
    }
    if (c->codebooks) pleat__block_codebooks_build(f, c->k_counts, c->v_counts, c->codebooks);
    c->has_codebooks = true;
    return PLEAT_OK;
}

uint64_t pleat_codec_codebooks_cap(const pleat_codec *c) { return c ? pleat__block_codebooks_cap(&c->format) : 0; }

pleat_status pleat_codec_get_codebooks(const pleat_codec *c, void *bytes, uint64_t cap, uint64_t *n_bytes) {
    if (!c || !bytes || !n_bytes || cap < pleat_codec_codebooks_cap(c)) return PLEAT_E_ARG;
    if (!c->has_codebooks) return PLEAT_E_STATE;
    *n_bytes = pleat__block_codebooks_write(&c->format, c->codebooks, bytes);
    return PLEAT_OK;
}

pleat_status pleat_codec_set_codebooks(pleat_codec *c, const void *bytes, uint64_t n_bytes, pleat_error *err) {
    PLEAT_FAIL_IF(!c || (!bytes && n_bytes > 0), err, PLEAT_E_ARG, PLEAT_NOWHERE, "codebooks: no codec, or no bytes");
    PLEAT_TRY(pleat__block_codebooks_read(&c->format, bytes, n_bytes, c->codebooks, err));
    memset(c->k_counts, 0, sizeof *c->k_counts);
    memset(c->v_counts, 0, sizeof *c->v_counts);
    c->has_codebooks = true;
    return PLEAT_OK;
}

/* ---- making ------------------------------------------------------------------------------------------ */

pleat_status pleat_codec_encode(pleat_codec *c, const float *k, const float *v, void *payload, uint64_t cap,
                                uint64_t *n_bytes) {
    if (!c || !k || !v || !payload || !n_bytes || cap < pleat_codec_payload_cap(c)) return PLEAT_E_ARG;
    if (!c->has_codebooks) return PLEAT_E_STATE;
    if (!is_finite_block(&c->format, k, v)) return PLEAT_E_RANGE;
    pleat__block_quantise(&c->format, k, v, c->format.head_dim, &c->codes);
    *n_bytes = pleat__block_encode(&c->format, c->codebooks, &c->codes, payload);
    return PLEAT_OK;
}

/* ---- reading ----------------------------------------------------------------------------------------- */

/* Tiles of keys, by place, to rows by token. */
static void rows_of_keys(const pleat__block_format *f, const float *tiles, const uint8_t *order, float *k) {
    for (uint32_t place = 0; place < f->tokens; place++) {
        const float *column = tiles + (size_t)(place / 16) * f->head_dim * 16 + place % 16;
        float *row = k + (size_t)(order ? order[place] : place) * f->head_dim;
        for (uint32_t i = 0; i < f->head_dim; i++) row[i] = column[(size_t)i * 16];
    }
}

static void rows_of_values(const pleat__block_format *f, const float *tiles, const uint8_t *order, float *v) {
    for (uint32_t place = 0; place < f->tokens; place++)
        memcpy(v + (size_t)(order ? order[place] : place) * f->head_dim, tiles + (size_t)place * f->head_dim,
               f->head_dim * sizeof *v);
}

pleat_status pleat_codec_decode(pleat_codec *c, const void *payload, uint64_t n_bytes, float *k, float *v) {
    if (!c || (!payload && n_bytes > 0)) return PLEAT_E_ARG;
    if (!c->has_codebooks) return PLEAT_E_STATE;
    const pleat__block_format *f = &c->format;
    if (n_bytes > pleat_codec_payload_cap(c) || n_bytes < PLEAT__BLOCK_HEADER_BYTES) return PLEAT_E_FORMAT;
    memcpy(c->payload, payload, n_bytes);
    memset(c->payload + n_bytes, 0, PLEAT__STREAM_PAD);
    pleat__block_reader reader;
    if (!pleat__block_is_intact(f, c->codebooks, c->payload, n_bytes)) return PLEAT_E_FORMAT;
    PLEAT_TRY(pleat__block_open(f, c->codebooks, c->payload, n_bytes, c->units, &reader));
    PLEAT_TRY(pleat__block_load(&c->dsp, f, c->codebooks, &reader, c->codes.k, c->k_tiles, c->v_tiles));
    if (k) rows_of_keys(f, c->k_tiles, reader.order, k);
    if (v) rows_of_values(f, c->v_tiles, reader.order, v);
    return PLEAT_OK;
}

pleat_status pleat_codec_get_parts(const pleat_codec *c, const void *payload, uint64_t n_bytes,
                                   pleat_codec_parts *out) {
    if (!c || !payload || !out) return PLEAT_E_ARG;
    if (!c->has_codebooks) return PLEAT_E_STATE;
    pleat__block_reader reader;
    PLEAT_TRY(pleat__block_open(&c->format, c->codebooks, payload, n_bytes, NULL, &reader));
    *out = (pleat_codec_parts){.header_bytes = PLEAT__BLOCK_HEADER_BYTES,
                               .k_unit_bytes = reader.k_unit_bytes,
                               .v_unit_bytes = reader.v_unit_bytes,
                               .order_bytes = pleat__block_order_bytes(&c->format),
                               .k_code_bytes = reader.k.n_bytes,
                               .v_code_bytes = reader.v.n_bytes};
    return PLEAT_OK;
}

/* ---- the halves -------------------------------------------------------------------------------------- */

pleat_status pleat_codec_quantise(pleat_codec *c, const float *k, const float *v, uint8_t *codes) {
    if (!c || !k || !v || !codes) return PLEAT_E_ARG;
    if (!is_finite_block(&c->format, k, v)) return PLEAT_E_RANGE;
    const size_t n = matrix_codes(&c->format);
    pleat__block_quantise(&c->format, k, v, c->format.head_dim, &c->codes);
    memcpy(codes, c->codes.k, n);
    memcpy(codes + n, c->codes.v, n);
    return PLEAT_OK;
}

static bool are_below(const uint8_t *codes, size_t n, uint32_t n_levels) {
    uint8_t max = 0;
    for (size_t i = 0; i < n; i++) max = codes[i] > max ? codes[i] : max;
    return max < n_levels;
}

pleat_status pleat_codec_encode_codes(pleat_codec *c, const uint8_t *codes, void *bytes, uint64_t cap,
                                      uint64_t *n_bytes) {
    if (!c || !codes || !bytes || !n_bytes || cap < pleat_codec_payload_cap(c)) return PLEAT_E_ARG;
    if (!c->has_codebooks) return PLEAT_E_STATE;
    const pleat__block_format *f = &c->format;
    const size_t n = matrix_codes(f);
    if (!are_below(codes, n, f->k_levels) || !are_below(codes + n, n, f->v_levels)) return PLEAT_E_ARG;
    memcpy(c->codes.k, codes, n);
    memcpy(c->codes.v, codes + n, n);
    *n_bytes = pleat__block_encode(f, c->codebooks, &c->codes, bytes);
    return PLEAT_OK;
}

pleat_status pleat_codec_decode_codes(pleat_codec *c, const void *const *payloads, const uint64_t *n_bytes, uint32_t n,
                                      uint8_t *const *codes) {
    if (!c || !payloads || !n_bytes || !codes || n == 0 || n > PLEAT_CODEC_AT_ONCE) return PLEAT_E_ARG;
    if (!c->has_codebooks) return PLEAT_E_STATE;
    const pleat__block_format *f = &c->format;
    pleat__block_reader readers[PLEAT_CODEC_AT_ONCE];
    pleat__section *keys[PLEAT_CODEC_AT_ONCE], *values[PLEAT_CODEC_AT_ONCE];
    uint8_t *v_codes[PLEAT_CODEC_AT_ONCE];
    for (uint32_t i = 0; i < n; i++) {
        if (!payloads[i] || !codes[i] || (uintptr_t)codes[i] % PLEAT__ALIGN != 0) return PLEAT_E_ARG;
        PLEAT_TRY(pleat__block_open(f, c->codebooks, payloads[i], n_bytes[i], NULL, &readers[i]));
        keys[i] = &readers[i].k;
        values[i] = &readers[i].v;
        v_codes[i] = codes[i] + matrix_codes(f);
    }
    pleat__sections_decode(&c->dsp, c->codebooks ? &c->codebooks->k : NULL, keys, n, pleat__block_vectors(f), codes);
    pleat__sections_decode(&c->dsp, c->codebooks ? &c->codebooks->v : NULL, values, n, pleat__block_vectors(f),
                           v_codes);
    for (uint32_t i = 0; i < n; i++)
        if (!pleat__section_is_done(keys[i]) || !pleat__section_is_done(values[i])) return PLEAT_E_FORMAT;
    return PLEAT_OK;
}

void pleat_codec_entropy(const pleat_codec *c, double *k_bits, double *v_bits) {
    *k_bits = c ? pleat__code_entropy(c->k_counts, c->format.k_levels) : 0;
    *v_bits = c ? pleat__code_entropy(c->v_counts, c->format.v_levels) : 0;
}

/* ---- to a device ------------------------------------------------------------------------------------- */

static pleat_status to_device(const pleat_codec *c, const pleat__host_blocks *host, pleat__device_decoder decoder,
                              const pleat_allocator *allocator, pleat_device_blocks **out, pleat_error *err) {
    PLEAT_FAIL_IF(!c, err, PLEAT_E_ARG, PLEAT_NOWHERE, "device blocks: no codec");
    PLEAT_FAIL_IF(!c->has_codebooks, err, PLEAT_E_STATE, PLEAT_NOWHERE,
                  "device blocks: the codec has no codebooks yet");
    return pleat__device_blocks_create(&c->format, c->codebooks, host, decoder, allocator, out, err);
}

pleat_status pleat_device_blocks_create(const pleat_codec *c, uint32_t n_lanes, const uint32_t *n_blocks,
                                        const void *const *payloads, const uint64_t *n_bytes,
                                        const pleat_allocator *allocator, pleat_device_blocks **out, pleat_error *err) {
    const pleat__host_blocks host = {n_lanes, n_blocks, payloads, n_bytes};
    return to_device(c, &host, PLEAT__DECODER_TABLE, allocator, out, err);
}

pleat_status pleat_device_blocks_create_bit_serial(const pleat_codec *c, uint32_t n_lanes, const uint32_t *n_blocks,
                                                   const void *const *payloads, const uint64_t *n_bytes,
                                                   const pleat_allocator *allocator, pleat_device_blocks **out,
                                                   pleat_error *err) {
    const pleat__host_blocks host = {n_lanes, n_blocks, payloads, n_bytes};
    return to_device(c, &host, PLEAT__DECODER_BIT_SERIAL, allocator, out, err);
}
