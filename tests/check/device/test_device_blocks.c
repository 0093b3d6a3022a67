/* SPDX-License-Identifier: MIT
 *
 * test_device_blocks.c: attention's products over payloads on a GPU (pleat/device_blocks.h) against sums in float64 over
 * what the CPU's codec decodes from the same bytes.
 *
 * Lanes have blocks of their own number, none among them; formats are random: head dimensions, block sizes, units, levels
 * of every kind of codebook, sections that are RAW because coding does not shorten them.
 */
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "check.h"
#include "codec/device_blocks.h"
#include "core/half.h"
#include "hw/device.h"

#define MAX_LANES 5u
#define MAX_BLOCKS 40u
#define MAX_GROUP PLEAT_DEVICE_BLOCKS_GROUP_MAX

/* Blocks of some lanes, and their values. */
typedef struct rig {
    pleat__block_format format;
    pleat__block_codebooks codebooks;
    uint32_t n_lanes, n_blocks[MAX_LANES], n_all;
    uint64_t stride;       /* tokens */
    double k_span, v_span; /* the largest step times half the levels */
    bool is_usual;         /* as in caches: errors are held against results */
    uint8_t *bytes;
    const void *payloads[MAX_BLOCKS];
    uint64_t n_bytes[MAX_BLOCKS];
    float *k, *v; /* [n_all * tokens][d], as payloads hold them */
} rig;

/* ---- making payloads ----------------------------------------------------------------------------------- */

static pleat__block_format format_of(uint32_t d, uint32_t tokens, bool by_channel, float k_rel, float v_rel,
                                     bool may_be_on_grids) {
    pleat__block_format f = {
        .head_dim = d, .tokens = tokens, .by_channel = by_channel, .v_group = d, .coder = PLEAT__CODER_HUFFMAN};
    pleat__block_set_steps(&f, k_rel, v_rel, may_be_on_grids);
    return f;
}

static float random_rel(void) {
    static const float rels[] = {1, 0.25f, 0.25f, 0.15f, 0.13f, 0.1f, 0.05f, 1 / 31.0f, 0.01f, 1 / 255.0f};
    return rels[check_below(CHECK_COUNT(rels))];
}

static pleat__block_format random_format(void) {
    static const uint32_t dims[] = {16, 64, 80, 128, 128, 256, 512};
    return format_of(dims[check_below(CHECK_COUNT(dims))], 16u << check_below(5), check_below(2) != 0, random_rel(),
                     random_rel(), check_below(4) > 0);
}

static void fill_tokens(rig *r, unsigned kind) {
    const uint32_t d = r->format.head_dim;
    const size_t n = (size_t)r->n_all * r->format.tokens * d;
    check_fill(r->k, n, kind, 1);
    check_fill(r->v, n, kind, 1);
    for (uint32_t i = 0; i < d && kind == 0; i++) {
        const float offset = 2 * check_normal(), scale = expf(0.5f * check_normal());
        for (size_t t = i; t < n; t += d) r->k[t] = offset + scale * r->k[t];
    }
}

/* Codes of all blocks, then codebooks, then payloads. */
static void encode(rig *r) {
    const pleat__block_format *f = &r->format;
    const size_t of_block = (size_t)f->tokens * f->head_dim;
    static pleat__block_codes codes[MAX_BLOCKS];
    static pleat__code_counts counts[2];
    memset(counts, 0, sizeof counts);
    pleat__arena arena = {0};
    for (uint32_t i = 0; i < r->n_all; i++) pleat__block_codes_carve(f, &codes[i], &arena);
    const uint64_t cap = arena.used_bytes + 64;
    void *memory = aligned_alloc(64, (cap + 63) / 64 * 64);
    arena = (pleat__arena){.base = memory, .cap_bytes = cap};
    for (uint32_t i = 0; i < r->n_all; i++) {
        pleat__block_codes_carve(f, &codes[i], &arena);
        pleat__block_quantise(f, r->k + i * of_block, r->v + i * of_block, f->head_dim, &codes[i]);
        pleat__code_counts_add(&counts[0], codes[i].k, pleat__block_vectors(f), f->k_levels);
        pleat__code_counts_add(&counts[1], codes[i].v, pleat__block_vectors(f), f->v_levels);
    }
    pleat__block_codebooks_build(f, &counts[0], &counts[1], &r->codebooks);
    r->bytes = calloc(r->n_all + 1, pleat__block_bound(f) + PLEAT__STREAM_PAD);
    uint8_t *at = r->bytes;
    for (uint32_t i = 0; i < r->n_all; i++) {
        r->payloads[i] = at;
        r->n_bytes[i] = pleat__block_encode(f, &r->codebooks, &codes[i], at);
        at += r->n_bytes[i] + PLEAT__STREAM_PAD;
    }
    free(memory);
}

static double span_of(const uint8_t *steps, uint32_t n, uint32_t n_levels, double most) {
    for (uint32_t i = 0; i < n; i++) {
        uint16_t step;
        memcpy(&step, steps + (size_t)2 * i, sizeof step);
        most = fmax(most, (double)pleat__f16_to_f32(step) * n_levels / 2);
    }
    return most;
}

/* Keys and values become what payloads hold. */
static void decode(rig *r) {
    const pleat__block_format *f = &r->format;
    const uint32_t d = f->head_dim, tokens = f->tokens;
    const size_t of_block = (size_t)tokens * d;
    uint8_t *codes = aligned_alloc(64, (of_block + 63) / 64 * 64), *units = malloc(pleat__block_units_bytes(f));
    float *tiles = malloc(of_block * sizeof *tiles);
    pleat__codec_dsp dsp;
    pleat__codec_dsp_init(&dsp, 0);
    for (uint32_t b = 0; b < r->n_all; b++) {
        pleat__block_reader reader;
        CHECK_STATUS(pleat__block_open(f, &r->codebooks, r->payloads[b], r->n_bytes[b], units, &reader), PLEAT_OK);
        CHECK_STATUS(pleat__block_load(&dsp, f, &r->codebooks, &reader, codes, tiles, r->v + b * of_block), PLEAT_OK);
        r->k_span = span_of(reader.k_steps, pleat__block_k_units(f), f->k_levels, r->k_span);
        r->v_span = span_of(reader.v_steps, tokens, f->v_levels, r->v_span);
        float *to = r->k + b * of_block;
        for (size_t i = 0; i < of_block; i++) to[i] = tiles[(i / d / 16 * d + i % d) * 16 + i / d % 16];
    }
    free(codes);
    free(units);
    free(tiles);
}

static rig *rig_new(pleat__block_format format, uint32_t n_lanes, uint32_t max_blocks, unsigned kind) {
    rig *r = calloc(1, sizeof *r);
    r->format = format;
    r->n_lanes = n_lanes;
    for (uint32_t i = 0; i < n_lanes; i++) {
        r->n_blocks[i] = (uint32_t)check_between(i == 0, max_blocks); /* not all have none */
        r->n_all += r->n_blocks[i];
        if (r->n_blocks[i] * format.tokens > r->stride) r->stride = r->n_blocks[i] * format.tokens;
    }
    r->stride += 2 * check_below(3);
    const size_t n = (size_t)(r->n_all + 1) * format.tokens * format.head_dim;
    r->k = calloc(n, sizeof *r->k);
    r->v = calloc(n, sizeof *r->v);
    fill_tokens(r, kind);
    encode(r);
    decode(r);
    return r;
}

static void rig_free(rig *r) {
    free(r->k);
    free(r->v);
    free(r->bytes);
    free(r);
}

static pleat_status create(const rig *r, pleat__device_decoder decoder, pleat_device_blocks **blocks,
                           pleat_error *err) {
    const pleat__host_blocks host = {r->n_lanes, r->n_blocks, r->payloads, r->n_bytes};
    return pleat__device_blocks_create(&r->format, &r->codebooks, &host, decoder, NULL, blocks, err);
}

/* ---- products -------------------------------------------------------------------------------------------- */

/* A vector and a result, here and on the device. */
typedef struct arrays {
    size_t n_x, n_out;
    float *x, *out, *again;
    void *device_x, *device_out;
} arrays;

static const pleat__device_stream no_stream = {NULL};

static bool arrays_init(arrays *a, size_t n_x, size_t n_out) {
    *a = (arrays){.n_x = n_x, .n_out = n_out};
    a->x = malloc(n_x * sizeof *a->x);
    a->out = malloc(n_out * sizeof *a->out);
    a->again = malloc(n_out * sizeof *a->again);
    check_fill_normal(a->x, n_x);
    return CHECK_STATUS(pleat__device_alloc(n_x * 4, &a->device_x, NULL), PLEAT_OK) &&
           CHECK_STATUS(pleat__device_alloc(n_out * 4, &a->device_out, NULL), PLEAT_OK) &&
           CHECK_STATUS(pleat__device_copy(a->device_x, a->x, n_x * 4, no_stream, NULL), PLEAT_OK);
}

static void arrays_free(arrays *a) {
    pleat__device_free(a->device_x);
    pleat__device_free(a->device_out);
    free(a->x);
    free(a->out);
    free(a->again);
}

static pleat_status product(const pleat_device_blocks *b, const rig *r, arrays *a, bool is_values, uint32_t n_group,
                            void *stream) {
    return is_values ? pleat_device_blocks_outputs(b, a->device_x, n_group, r->stride, a->device_out, stream, NULL)
                     : pleat_device_blocks_logits(b, a->device_x, n_group, a->device_out, r->stride, stream, NULL);
}

/* Into `out`; every float that is not written stays 0xFF bytes, a NaN. */
static bool run(const pleat_device_blocks *b, const rig *r, arrays *a, bool is_values, uint32_t n_group, float *out) {
    return CHECK_STATUS(pleat__device_fill(a->device_out, 0xFF, a->n_out * 4, no_stream, NULL), PLEAT_OK) &&
           CHECK_STATUS(product(b, r, a, is_values, n_group, NULL), PLEAT_OK) &&
           CHECK_STATUS(pleat__device_copy(out, a->device_out, a->n_out * 4, no_stream, NULL), PLEAT_OK) &&
           CHECK_STATUS(pleat__device_wait(no_stream, NULL), PLEAT_OK);
}

/* Squares of a result's errors, of what it should be, and of what it is exact to: weights x*step are rounded to 1/65022
 * of a block's largest, and multiplied with codes up to half the levels from the middle.  Errors of n columns are random:
 * together at most largest |x| * span * sqrt(n) / (65022 * sqrt(3)), 9e-6 of reach; where all codes are alike some rows
 * have more.  (Units of equal values can have steps larger than the values are.) */
typedef struct error_sums {
    double error, want, reach;
} error_sums;

static double largest_of(const float *x, size_t n) {
    double most = 0;
    for (size_t i = 0; i < n; i++) most = fabs((double)x[i]) > most ? fabs((double)x[i]) : most;
    return most;
}

static void compare_row(const rig *r, const arrays *a, bool is_values, uint32_t lane, uint32_t g, uint32_t n_group,
                        uint32_t first, error_sums *sums) {
    const uint32_t d = r->format.head_dim, n_tokens = r->n_blocks[lane] * r->format.tokens;
    const float *m = (is_values ? r->v : r->k) + (size_t)first * r->format.tokens * d;
    const size_t row = (size_t)lane * n_group + g;
    const float *x = a->x + row * (is_values ? r->stride : d), *out = a->out + row * (is_values ? d : r->stride);
    const uint32_t n_rows = is_values ? d : n_tokens, n_columns = is_values ? n_tokens : d;
    const double span = fmax(is_values ? r->v_span : r->k_span, largest_of(m, (size_t)n_tokens * d));
    const double reach = span * largest_of(x, n_columns) * sqrt(n_columns);
    for (uint32_t i = 0; i < n_rows; i++) {
        double want = 0;
        for (uint32_t j = 0; j < n_columns; j++)
            want += (double)x[j] * (double)(is_values ? m[(size_t)j * d + i] : m[(size_t)i * d + j]);
        sums->error += ((double)out[i] - want) * ((double)out[i] - want);
        sums->want += want * want;
        sums->reach += reach * reach;
    }
}

/* Error of all of a result: in norm, relative to it, and to what it is exact to. */
static double relative_error(const rig *r, const arrays *a, bool is_values, uint32_t n_group, double *of_reach) {
    error_sums sums = {0, 0, 0};
    for (uint32_t lane = 0, first = 0; lane < r->n_lanes; first += r->n_blocks[lane++])
        for (uint32_t g = 0; g < n_group; g++) compare_row(r, a, is_values, lane, g, n_group, first, &sums);
    *of_reach = sums.reach > 0 ? sqrt(sums.error / sums.reach) : sqrt(sums.error);
    return sums.want > 0 ? sqrt(sums.error / sums.want) : sqrt(sums.error);
}

static void check_product(const pleat_device_blocks *b, const rig *r, bool is_values, uint32_t n_group) {
    const size_t rows = (size_t)r->n_lanes * n_group, of_tokens = rows * r->stride, of_dims = rows * r->format.head_dim;
    arrays a;
    if (arrays_init(&a, is_values ? of_tokens : of_dims, is_values ? of_dims : of_tokens) &&
        run(b, r, &a, is_values, n_group, a.out) && run(b, r, &a, is_values, n_group, a.again)) {
        double of_reach;
        const double error = relative_error(r, &a, is_values, n_group, &of_reach);
        CHECK_NEAR(of_reach, 0, 0x1p-15);
        if (r->is_usual) CHECK_NEAR(error, 0, 1e-4);
        CHECK_EQ_MEM(a.out, a.again, a.n_out * sizeof(float));
    }
    arrays_free(&a);
}

static void check_rig(rig *r, uint32_t n_group) {
    const pleat__block_format *f = &r->format;
    pleat_device_blocks *b = NULL;
    pleat_error err = {0, 0, ""};
    check_context("d %u, %u tokens, %s, levels %u %u, codebooks %u %u of %u %u bits, %u lanes, %u blocks, group %u",
                  f->head_dim, f->tokens, f->by_channel ? "channel" : "block", f->k_levels, f->v_levels,
                  r->codebooks.k.kind, r->codebooks.v.kind, r->codebooks.k.max_bits, r->codebooks.v.max_bits,
                  r->n_lanes, r->n_all, n_group);
    for (uint32_t i = 0; i < 2; i++) {
        if (!CHECK_STATUS(create(r, i ? PLEAT__DECODER_BIT_SERIAL : PLEAT__DECODER_TABLE, &b, &err), PLEAT_OK)) break;
        check_product(b, r, false, n_group);
        check_product(b, r, true, n_group);
        pleat_device_blocks_destroy(&b);
        CHECK(b == NULL);
    }
    rig_free(r);
}

/* ---- tests ----------------------------------------------------------------------------------------------- */

static void test_products(void) {
    CHECK_DEVICE();
    for (uint32_t i = 0; i < check_cases(check_rounds(60, 10), 1); i++) {
        const uint32_t n_lanes = (uint32_t)check_between(1, MAX_LANES), n_group = (uint32_t)check_between(1, MAX_GROUP);
        check_rig(rig_new(random_format(), n_lanes, MAX_BLOCKS / MAX_LANES,
                          check_below(2) ? 0 : (unsigned)check_below(CHECK_N_FILLS)),
                  n_group);
    }
}

/* What the cache is recommended with, and the codebooks beside it, for every number of heads. */
static void test_usual(void) {
    static const float rels[][2] = {{0.25f, 0.25f}, {0.13f, 0.15f}, {0.05f, 0.05f}};
    CHECK_DEVICE();
    for (uint32_t i = 0; i < check_cases(CHECK_COUNT(rels), 0); i++)
        for (uint32_t g = 1; g <= MAX_GROUP; g++) {
            rig *r = rig_new(format_of(i == 1 ? 64 : 128, 64, g % 2 == 0, rels[i][0], rels[i][1], true), 3, 8, 0);
            r->is_usual = true;
            check_rig(r, g);
        }
}

/* Each kind of codebook in each length of a row, for every number of heads. */
static void test_kinds(void) {
    static const float rels[] = {0.25f, 0.05f, 0.01f}; /* pairs, narrow, wide */
    static const uint32_t sizes[][2] = {{64, 64}, {128, 128}, {80, 32}};
    CHECK_DEVICE();
    for (uint32_t i = 0; i < CHECK_COUNT(rels) * CHECK_COUNT(sizes) * 2; i++) {
        const float rel = rels[i / 2 / CHECK_COUNT(sizes)];
        const uint32_t *size = sizes[i / 2 % CHECK_COUNT(sizes)];
        check_rig(rig_new(format_of(size[0], size[1], true, rel, rel, true), 2, 3, 0), 1 + i / 2 % 4 + i % 2 * 4);
    }
}

/* A graph's second launch gives what its first did. */
static void test_graph(void) {
    CHECK_DEVICE();
    rig *r = rig_new(format_of(128, 64, true, 0.25f, 0.25f, true), 4, 8, 0);
    pleat_device_blocks *b = NULL;
    arrays a;
    pleat__device_stream stream = {NULL};
    pleat__device_graph graph = {NULL};
    CHECK_STATUS(create(r, PLEAT__DECODER_TABLE, &b, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_stream_create(&stream, NULL), PLEAT_OK);
    if (arrays_init(&a, 4 * 4 * r->stride, 4 * 4 * 128) && run(b, r, &a, true, 4, a.out)) {
        CHECK_STATUS(pleat__device_graph_begin(stream, NULL), PLEAT_OK);
        CHECK_STATUS(product(b, r, &a, true, 4, stream.v), PLEAT_OK);
        CHECK_STATUS(pleat__device_graph_end(stream, &graph, NULL), PLEAT_OK);
        CHECK_STATUS(pleat__device_fill(a.device_out, 0xFF, a.n_out * 4, stream, NULL), PLEAT_OK);
        CHECK_STATUS(pleat__device_graph_launch(graph, stream, NULL), PLEAT_OK);
        CHECK_STATUS(pleat__device_wait(stream, NULL), PLEAT_OK);
        CHECK_STATUS(pleat__device_copy(a.again, a.device_out, a.n_out * 4, stream, NULL), PLEAT_OK);
        CHECK_STATUS(pleat__device_wait(stream, NULL), PLEAT_OK);
        CHECK_EQ_MEM(a.out, a.again, a.n_out * sizeof(float));
    }
    arrays_free(&a);
    pleat__device_graph_destroy(&graph);
    pleat__device_stream_destroy(&stream);
    pleat_device_blocks_destroy(&b);
    rig_free(r);
}

static void test_damage(void) {
    CHECK_DEVICE();
    rig *r = rig_new(format_of(64, 32, true, 0.25f, 0.25f, true), 2, 3, 0);
    for (uint32_t i = 0; i < 20; i++) {
        const uint32_t block = (uint32_t)check_below(r->n_all);
        uint8_t *byte = (uint8_t *)r->payloads[block] + check_below(r->n_bytes[block]);
        const uint8_t before = *byte;
        pleat_device_blocks *b = NULL;
        pleat_error err = {0, 0, ""};
        *byte = (uint8_t)(before ^ 1u << check_below(8));
        CHECK_STATUS(create(r, PLEAT__DECODER_TABLE, &b, &err), PLEAT_E_FORMAT);
        CHECK_EQ_U64(err.where, block);
        CHECK(b == NULL);
        *byte = before;
    }
    rig_free(r);
}

/* Make the sum of a payload hold. */
static void seal(rig *r, uint32_t block) {
    uint8_t *payload = (uint8_t *)r->payloads[block];
    const uint32_t sum = XXH32(payload + 4, r->n_bytes[block] - 4, r->codebooks.sum);
    memcpy(payload, &sum, sizeof sum);
}

/* Payloads whose sums hold and that are noise are refused, or are some numbers; units always are, and no kernel reads
 * outside (run this one under compute-sanitizer). */
static void test_noise(void) {
    CHECK_DEVICE();
    for (uint32_t i = 0; i < check_cases(check_rounds(16, 6), 2); i++) {
        rig *r = rig_new(random_format(), 2, 4, 0);
        pleat_device_blocks *b = NULL;
        arrays a;
        for (uint32_t block = 0; block < r->n_all; block++) {
            uint8_t *payload = (uint8_t *)r->payloads[block];
            const uint64_t n_units = 2 * ((uint64_t)pleat__block_k_units(&r->format) + r->format.tokens);
            for (uint64_t at = 12; at < (i % 2 ? r->n_bytes[block] : 12 + n_units); at++)
                payload[at] = (uint8_t)check_u64();
            seal(r, block);
        }
        const pleat_status status = create(r, PLEAT__DECODER_TABLE, &b, NULL);
        CHECK(status == PLEAT_OK || (i % 2 && status == PLEAT_E_FORMAT));
        if (b && arrays_init(&a, 2 * 3 * r->format.head_dim, 2 * 3 * r->stride)) {
            (void)run(b, r, &a, false, 3, a.out);
            arrays_free(&a);
        }
        if (b && arrays_init(&a, 2 * 3 * r->stride, 2 * 3 * r->format.head_dim)) {
            (void)run(b, r, &a, true, 3, a.out);
            arrays_free(&a);
        }
        pleat_device_blocks_destroy(&b);
        rig_free(r);
    }
}

static void test_misuse(void) {
    CHECK_DEVICE();
    rig *r = rig_new(format_of(64, 32, true, 0.25f, 0.25f, true), 2, 3, 0);
    pleat_device_blocks *b = NULL;
    const uint32_t n_lanes = r->n_lanes;
    r->n_lanes = 0;
    CHECK_STATUS(create(r, PLEAT__DECODER_TABLE, &b, NULL), PLEAT_E_ARG);
    r->n_lanes = n_lanes;
    r->format.coder = PLEAT__CODER_PACK;
    CHECK_STATUS(create(r, PLEAT__DECODER_TABLE, &b, NULL), PLEAT_E_ARG);
    r->format.coder = PLEAT__CODER_HUFFMAN;
    for (uint64_t nth = 1;; nth++) { /* the device fails at every call in turn */
        pleat__device_fail_at(nth);
        const pleat_status status = create(r, PLEAT__DECODER_TABLE, &b, NULL);
        pleat__device_fail_at(0);
        if (status == PLEAT_OK) break;
        CHECK(status == PLEAT_E_MEMORY || status == PLEAT_E_DEVICE);
        if (!CHECK(b == NULL && nth < 100)) break;
    }
    float x;
    CHECK_STATUS(pleat_device_blocks_logits(b, &x, 9, &x, r->stride, NULL, NULL), PLEAT_E_ARG);
    CHECK_STATUS(pleat_device_blocks_logits(b, NULL, 1, &x, r->stride, NULL, NULL), PLEAT_E_ARG);
    pleat_device_blocks_destroy(&b);
    rig_free(r);
}

static pleat_codec *codec_of(const char *text, uint32_t d) {
    pleat_spec spec;
    pleat_codec *codec = NULL;
    CHECK_STATUS(pleat_spec_parse(text, &spec, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_codec_create(&spec, d, NULL, &codec, NULL), PLEAT_OK);
    return codec;
}

/* What a codec without codebooks, or of another coder, is told. */
static void test_refused(void) {
    const uint32_t n_blocks = 0;
    const uint64_t n_bytes = 0;
    const void *payload = NULL;
    pleat_device_blocks *b = NULL;
    pleat_codec *codec = codec_of("kvcomp:k=0.25,v=0.25", 64), *packed = codec_of("kvcomp:k=0.25,v=0.25+pack", 64);
    CHECK_STATUS(pleat_device_blocks_create(NULL, 1, &n_blocks, &payload, &n_bytes, NULL, &b, NULL), PLEAT_E_ARG);
    CHECK_STATUS(pleat_device_blocks_create(codec, 1, &n_blocks, &payload, &n_bytes, NULL, &b, NULL), PLEAT_E_STATE);
    CHECK_STATUS(pleat_codec_train(packed, NULL, NULL, 0), PLEAT_OK);
    const pleat_status status = pleat_device_blocks_create(packed, 1, &n_blocks, &payload, &n_bytes, NULL, &b, NULL);
    CHECK(status == PLEAT_E_ARG || status == PLEAT_E_DEVICE); /* of a build without CUDA */
    CHECK(b == NULL);
    pleat_codec_destroy(&packed);
    pleat_codec_destroy(&codec);
}

/* Other codebooks than the payload's refuse it; `reader` then has them from their bytes, as in another process. */
static void check_other_codebooks(pleat_codec *codec, pleat_codec *reader, const void *const *payloads,
                                  const uint64_t *n_payload_bytes) {
    const uint32_t n_blocks = 1;
    uint8_t codebooks[600];
    uint64_t n_bytes = 0;
    pleat_device_blocks *b = NULL;
    CHECK_STATUS(pleat_codec_train(reader, NULL, NULL, 0), PLEAT_OK);
    CHECK_STATUS(pleat_device_blocks_create(reader, 1, &n_blocks, payloads, n_payload_bytes, NULL, &b, NULL),
                 PLEAT_E_FORMAT);
    CHECK(b == NULL);
    CHECK_STATUS(pleat_codec_get_codebooks(codec, codebooks, sizeof codebooks, &n_bytes), PLEAT_OK);
    CHECK_STATUS(pleat_codec_set_codebooks(reader, codebooks, n_bytes, NULL), PLEAT_OK);
}

/* Logits of one block that `codec` made and `reader` uploads, against what the codec itself decodes. */
static void check_codec(pleat_codec *codec, pleat_codec *reader, float *k, void *payload, uint64_t cap) {
    enum { D = 64 };
    const uint32_t n_tokens = pleat_codec_block_tokens(codec), n_blocks = 1;
    const void *payloads[] = {payload};
    uint64_t n_bytes = 0, block_bytes = 0, other_bytes = 0;
    pleat_device_blocks *b = NULL;
    arrays a;
    CHECK_STATUS(pleat_codec_train(codec, k, k, 1), PLEAT_OK);
    CHECK_STATUS(pleat_codec_encode(codec, k, k, payload, cap, &n_bytes), PLEAT_OK);
    CHECK_STATUS(pleat_codec_decode(codec, payload, n_bytes, k, NULL), PLEAT_OK);
    check_other_codebooks(codec, reader, payloads, &n_bytes);
    CHECK_STATUS(pleat_device_blocks_create(reader, 1, &n_blocks, payloads, &n_bytes, NULL, &b, NULL), PLEAT_OK);
    if (b && arrays_init(&a, D, n_tokens)) {
        pleat_device_blocks_get_bytes(b, &block_bytes, &other_bytes);
        CHECK(block_bytes > 0 && other_bytes > 0);
        CHECK_STATUS(pleat_device_blocks_logits(b, a.device_x, 1, a.device_out, n_tokens, NULL, NULL), PLEAT_OK);
        CHECK_STATUS(pleat__device_copy(a.out, a.device_out, n_tokens * sizeof(float), no_stream, NULL), PLEAT_OK);
        CHECK_STATUS(pleat__device_wait(no_stream, NULL), PLEAT_OK);
        for (uint32_t t = 0; t < n_tokens; t++) {
            double want = 0;
            for (uint32_t i = 0; i < D; i++) want += (double)a.x[i] * (double)k[t * D + i];
            CHECK_NEAR((double)a.out[t], want, 1e-2);
        }
        arrays_free(&a);
    }
    pleat_device_blocks_destroy(&b);
}

static void test_codec(void) {
    CHECK_DEVICE();
    pleat_codec *codec = codec_of("kvcomp:k=0.25,v=0.25", 64), *reader = codec_of("kvcomp:k=0.25,v=0.25", 64);
    const size_t n = (size_t)pleat_codec_block_tokens(codec) * 64;
    const uint64_t cap = pleat_codec_payload_cap(codec);
    float *k = malloc(n * sizeof *k);
    void *payload = malloc(cap);
    check_fill_normal(k, n);
    check_codec(codec, reader, k, payload, cap);
    free(payload);
    free(k);
    pleat_codec_destroy(&reader);
    pleat_codec_destroy(&codec);
}

static const check_test tests[] = {{"products", test_products}, {"usual", test_usual},     {"kinds", test_kinds},
                                   {"graph", test_graph},       {"damage", test_damage},   {"noise", test_noise},
                                   {"misuse", test_misuse},     {"refused", test_refused}, {"codec", test_codec}};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
