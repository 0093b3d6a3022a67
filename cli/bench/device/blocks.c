/* SPDX-License-Identifier: MIT
 *
 * blocks.c: see blocks.h.
 */
#include "blocks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/lib/exact.h"
#include "cli/lib/measure.h"

enum { DISTINCT_TOKENS = 16384, TRAIN_TOKENS = 2048 };
enum { SECTION_BYTES = 16 }; /* what the device finds a block's keys or values by */

/* ---- vectors -------------------------------------------------------------------------------------------- */

uint32_t product_inputs(const device_vectors *v, block_product product) {
    return product == PRODUCT_LOGITS ? v->head_dim : v->n_tokens;
}

uint32_t product_results(const device_vectors *v, block_product product) {
    return product == PRODUCT_LOGITS ? v->n_tokens : v->head_dim;
}

static uint64_t values_of(const device_vectors *v, uint32_t each) {
    return (uint64_t)v->n_lanes * v->max_vectors * each;
}

static pleat_status make_f32(float **out, uint64_t n, pleat_error *err) {
    void *p = NULL;
    const pleat_status status = gpu_alloc(&p, n * sizeof **out, err);
    *out = p;
    return status;
}

static pleat_status make_f16(device_vectors *v, pleat_error *err) {
    const uint64_t n = (uint64_t)v->n_lanes * v->n_tokens * v->head_dim;
    pleat_status status = gpu_alloc(&v->matrix, n * sizeof(uint16_t), err);
    DEVICE_THEN(status, gpu_normal_f16(v->gpu, v->matrix, n, 1, 1, err));
    DEVICE_THEN(status, gpu_alloc(&v->out16, values_of(v, v->n_tokens) * sizeof(uint16_t), err));
    for (int i = 0; i < N_PRODUCTS && status == PLEAT_OK; i++) {
        const uint64_t n_x = values_of(v, product_inputs(v, (block_product)i));
        status = gpu_alloc(&v->x16[i], n_x * sizeof(uint16_t), err);
        DEVICE_THEN(status, gpu_normal_f16(v->gpu, v->x16[i], n_x, 0.1f, 2 + (uint64_t)i, err));
    }
    return status;
}

pleat_status device_vectors_init(device_vectors *v, const gpu *g, uint32_t n_lanes, uint32_t n_tokens,
                                 uint32_t head_dim, uint32_t max_vectors, int has_f16, pleat_error *err) {
    *v = (device_vectors){
        .gpu = g, .n_lanes = n_lanes, .n_tokens = n_tokens, .head_dim = head_dim, .max_vectors = max_vectors};
    const uint32_t longest = n_tokens > head_dim ? n_tokens : head_dim;
    pleat_status status = make_f32(&v->out, values_of(v, longest), err);
    for (int i = 0; i < N_PRODUCTS && status == PLEAT_OK; i++) {
        const uint64_t n_x = values_of(v, product_inputs(v, (block_product)i));
        status = make_f32(&v->x[i], n_x, err);
        DEVICE_THEN(status, gpu_normal_f32(g, v->x[i], n_x, 1, 4 + (uint64_t)i, err));
    }
    if (has_f16) DEVICE_THEN(status, make_f16(v, err));
    return status;
}

void device_vectors_release(device_vectors *v) {
    for (int i = 0; i < N_PRODUCTS; i++) {
        gpu_free(v->x[i]);
        gpu_free(v->x16[i]);
    }
    gpu_free(v->out);
    gpu_free(v->out16);
    gpu_free(v->matrix);
    memset(v, 0, sizeof *v);
}

pleat_status device_vectors_blas(const device_vectors *v, gpu_blas *blas, block_product product, uint32_t n_vectors,
                                 pleat_error *err) {
    const gpu_product p = {.m = v->matrix,
                           .x = v->x16[product],
                           .out = v->out16,
                           .n_lanes = v->n_lanes,
                           .n_tokens = v->n_tokens,
                           .head_dim = v->head_dim,
                           .n_vectors = n_vectors};
    return product == PRODUCT_LOGITS ? gpu_blas_logits(blas, &p, err) : gpu_blas_outputs(blas, &p, err);
}

/* ---- blocks --------------------------------------------------------------------------------------------- */

/* Keys of some channel mean and scale, and values, for all different blocks. */
static void make_data(float *k, float *v, uint32_t n_tokens, uint32_t d) {
    measure_rng rng = {11};
    const size_t n = (size_t)n_tokens * d;
    float *shape = cli_alloc(2 * (size_t)d, sizeof *shape);
    measure_rng_normal(&rng, k, n);
    measure_rng_normal(&rng, v, n);
    measure_rng_normal(&rng, shape, 2 * (size_t)d);
    for (size_t i = 0; i < n; i++) k[i] = 2 * shape[i % d] + expf(0.5f * shape[d + i % d]) * k[i];
    free(shape);
}

static pleat_status encode(device_blocks *b, const float *k, const float *v) {
    const size_t n = (size_t)b->block_tokens * b->vectors->head_dim;
    const uint32_t n_train = TRAIN_TOKENS / b->block_tokens;
    pleat_status status = pleat_codec_train(b->codec, k, v, n_train < b->n_distinct ? n_train : b->n_distinct);
    for (uint32_t i = 0; i < b->n_distinct && status == PLEAT_OK; i++)
        status = pleat_codec_encode(b->codec, k + i * n, v + i * n, b->payloads + i * b->cap, b->cap, &b->n_bytes[i]);
    return status;
}

static pleat_status make_payloads(device_blocks *b, const pleat_spec *spec, pleat_error *err) {
    const device_vectors *v = b->vectors;
    pleat_status status = pleat_codec_create(spec, v->head_dim, NULL, &b->codec, err);
    if (status != PLEAT_OK) return status;
    b->block_tokens = pleat_codec_block_tokens(b->codec);
    const uint32_t n_tokens = v->n_tokens < DISTINCT_TOKENS ? v->n_tokens : DISTINCT_TOKENS;
    b->n_distinct = n_tokens / b->block_tokens;
    b->cap = (pleat_codec_payload_cap(b->codec) + PLEAT_CODEC_PAD + 63) / 64 * 64;
    b->payloads = cli_alloc(b->n_distinct, b->cap);
    b->n_bytes = cli_alloc(b->n_distinct, sizeof *b->n_bytes);
    float *keys = cli_alloc((size_t)n_tokens * v->head_dim, sizeof *keys);
    float *values = cli_alloc((size_t)n_tokens * v->head_dim, sizeof *values);
    make_data(keys, values, n_tokens, v->head_dim);
    status = encode(b, keys, values);
    free(keys);
    free(values);
    return status;
}

/* Units and codes of each kind. */
static pleat_status weigh(device_blocks *b) {
    pleat_status status = PLEAT_OK;
    for (int i = 0; i < N_PRODUCTS; i++) b->distinct_bytes[i] = cli_alloc(b->n_distinct, sizeof(uint64_t));
    for (uint32_t i = 0; i < b->n_distinct && status == PLEAT_OK; i++) {
        pleat_codec_parts p;
        status = pleat_codec_get_parts(b->codec, b->payloads + i * b->cap, b->n_bytes[i], &p);
        if (status != PLEAT_OK) break;
        b->distinct_bytes[PRODUCT_LOGITS][i] = p.k_unit_bytes + p.k_code_bytes;
        b->distinct_bytes[PRODUCT_OUTPUTS][i] = p.v_unit_bytes + p.v_code_bytes;
    }
    return status;
}

static uint32_t blocks_per_lane(const device_blocks *b) { return b->vectors->n_tokens / b->block_tokens; }

/* Which of the different blocks is a lane's: neighbours have different ones. */
static uint32_t distinct_of(const device_blocks *b, uint32_t lane, uint32_t block) {
    return (uint32_t)(((uint64_t)lane * 37 + block) % b->n_distinct);
}

static pleat_status upload(device_blocks *b, pleat_error *err) {
    const device_vectors *v = b->vectors;
    const uint32_t n = blocks_per_lane(b);
    const void **payloads = cli_alloc((size_t)v->n_lanes * n, sizeof *payloads);
    uint64_t *n_bytes = cli_alloc((size_t)v->n_lanes * n, sizeof *n_bytes);
    uint32_t *n_blocks = cli_alloc(v->n_lanes, sizeof *n_blocks);
    for (uint32_t lane = 0; lane < v->n_lanes; lane++) {
        n_blocks[lane] = n;
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t which = distinct_of(b, lane, i);
            payloads[(size_t)lane * n + i] = b->payloads + which * b->cap;
            n_bytes[(size_t)lane * n + i] = b->n_bytes[which];
            for (int p = 0; p < N_PRODUCTS; p++) b->payload_bytes[p] += b->distinct_bytes[p][which];
        }
    }
    pleat_status status = pleat_device_blocks_create(b->codec, v->n_lanes, n_blocks, payloads, n_bytes, NULL,
                                                     &b->blocks[DECODER_FUSED], err);
    DEVICE_THEN(status, pleat_device_blocks_create_bit_serial(b->codec, v->n_lanes, n_blocks, payloads, n_bytes, NULL,
                                                              &b->blocks[DECODER_BIT_SERIAL], err));
    free(payloads);
    free(n_bytes);
    free(n_blocks);
    return status;
}

/* The device's bytes, parted as the payloads' are. */
static void weigh_on_device(device_blocks *b, int decoder) {
    uint64_t block_bytes, other_bytes;
    pleat_device_blocks_get_bytes(b->blocks[decoder], &block_bytes, &other_bytes);
    const double all = (double)(b->payload_bytes[PRODUCT_LOGITS] + b->payload_bytes[PRODUCT_OUTPUTS]);
    const uint64_t found_by = (uint64_t)SECTION_BYTES * blocks_per_lane(b) * b->vectors->n_lanes;
    for (int p = 0; p < N_PRODUCTS; p++)
        b->bytes[decoder][p] = (uint64_t)((double)block_bytes * (double)b->payload_bytes[p] / all) + found_by;
}

pleat_status device_blocks_init(device_blocks *b, const device_vectors *v, const pleat_spec *spec, pleat_error *err) {
    *b = (device_blocks){.vectors = v};
    pleat_status status = make_payloads(b, spec, err);
    DEVICE_THEN(status, weigh(b));
    DEVICE_THEN(status, upload(b, err));
    for (int i = 0; i < N_DECODERS && status == PLEAT_OK; i++) weigh_on_device(b, i);
    return status;
}

void device_blocks_release(device_blocks *b) {
    for (int i = 0; i < N_DECODERS; i++) pleat_device_blocks_destroy(&b->blocks[i]);
    pleat_codec_destroy(&b->codec);
    for (int i = 0; i < N_PRODUCTS; i++) free(b->distinct_bytes[i]);
    free(b->payloads);
    free(b->n_bytes);
    memset(b, 0, sizeof *b);
}

pleat_status device_blocks_multiply(device_blocks *b, block_product product, block_decoder decoder, uint32_t n_vectors,
                                    pleat_error *err) {
    const device_vectors *v = b->vectors;
    const pleat_device_blocks *blocks = b->blocks[decoder];
    const uint64_t stride = v->n_tokens;
    if (product == PRODUCT_LOGITS)
        return pleat_device_blocks_logits(blocks, v->x[product], n_vectors, v->out, stride, v->gpu->stream, err);
    return pleat_device_blocks_outputs(blocks, v->x[product], n_vectors, stride, v->out, v->gpu->stream, err);
}

/* ---- error ---------------------------------------------------------------------------------------------- */

/* Add one block's part of a product: rows [block_tokens][d] from token `first` on. */
static void multiply_block(const float *rows, uint32_t n, uint32_t d, block_product product, uint32_t first,
                           const float *x, double *ref) {
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t i = 0; i < d; i++) {
            const double value = (double)rows[(size_t)t * d + i];
            if (product == PRODUCT_LOGITS)
                ref[first + t] += value * (double)x[i];
            else
                ref[i] += value * (double)x[first + t];
        }
}

/* One vector's product with a lane in double precision: ref[product_results()], zeros before. */
static pleat_status multiply_exactly(device_blocks *b, uint32_t lane, block_product product, const float *x,
                                     double *ref) {
    const uint32_t d = b->vectors->head_dim;
    float *rows = cli_alloc((size_t)b->block_tokens * d, sizeof *rows);
    pleat_status status = PLEAT_OK;
    for (uint32_t i = 0; i < blocks_per_lane(b) && status == PLEAT_OK; i++) {
        const uint32_t which = distinct_of(b, lane, i);
        status = pleat_codec_decode(b->codec, b->payloads + which * b->cap, b->n_bytes[which],
                                    product == PRODUCT_LOGITS ? rows : NULL, product == PRODUCT_LOGITS ? NULL : rows);
        if (status == PLEAT_OK) multiply_block(rows, b->block_tokens, d, product, i * b->block_tokens, x, ref);
    }
    free(rows);
    return status;
}

/* Vector `at` of all lanes', as it lies on the device. */
static pleat_status check_vector(device_blocks *b, block_product product, uint64_t at, uint32_t lane, double *worst,
                                 pleat_error *err) {
    const device_vectors *v = b->vectors;
    const uint32_t n_x = product_inputs(v, product), n = product_results(v, product);
    float *x = cli_alloc(n_x, sizeof *x), *out = cli_alloc(n, sizeof *out);
    double *ref = cli_alloc(n, sizeof *ref);
    pleat_status status = gpu_copy(v->gpu, x, v->x[product] + at * n_x, n_x * sizeof *x, err);
    DEVICE_THEN(status, gpu_copy(v->gpu, out, v->out + at * n, n * sizeof *out, err));
    DEVICE_THEN(status, gpu_wait(v->gpu, err));
    DEVICE_THEN(status, multiply_exactly(b, lane, product, x, ref));
    exact_keep_worst(worst, exact_relative_error(out, ref, n));
    free(x);
    free(out);
    free(ref);
    return status;
}

pleat_status device_blocks_check(device_blocks *b, block_product product, block_decoder decoder, uint32_t n_vectors,
                                 double *max_rel_err, pleat_error *err) {
    const uint32_t lane = b->vectors->n_lanes - 1;
    const uint64_t first = (uint64_t)lane * n_vectors;
    *max_rel_err = 0;
    pleat_status status = device_blocks_multiply(b, product, decoder, n_vectors, err);
    DEVICE_THEN(status, check_vector(b, product, first, lane, max_rel_err, err));
    if (n_vectors > 1) DEVICE_THEN(status, check_vector(b, product, first + n_vectors - 1, lane, max_rel_err, err));
    DEVICE_THEN(status, bench_device_judge(*max_rel_err, err));
    return status;
}
