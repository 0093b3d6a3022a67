/* SPDX-License-Identifier: MIT
 *
 * blocks.h: kvcomp's blocks on a GPU, to time attention's two products on.
 *
 *     device_vectors   what is multiplied, and where results go: for all that is compared
 *     device_blocks    one spec's blocks of all lanes
 *
 *     vectors_init ── blocks_init ── (time | check), any number ── blocks_release ── vectors_release
 *
 * Keys have an offset and a scale for each channel, as keys of models have; values are normal variates.  Some hundred
 * blocks are made and dealt out to all lanes, each of which gets bytes of its own.
 */
#ifndef PLEAT_CLI_BENCH_DEVICE_BLOCKS_H
#define PLEAT_CLI_BENCH_DEVICE_BLOCKS_H

#include "device.h"
#include "pleat/device_blocks.h"

/* logits: K q; outputs: p V. */
typedef enum block_product { PRODUCT_LOGITS, PRODUCT_OUTPUTS, N_PRODUCTS } block_product;

typedef struct device_vectors {
    const gpu *gpu;                         /* not owned */
    uint32_t n_lanes, n_tokens, head_dim;   /* n_tokens of a lane, a multiple of 256 */
    uint32_t max_vectors;                   /* of a lane */
    float *x[N_PRODUCTS];                   /* device memory: normal variates for any number of vectors */
    float *out;                             /* results of either product */
    void *matrix, *x16[N_PRODUCTS], *out16; /* vectors and results in f16 for cuBLAS, and its matrix; NULL without it */
} device_vectors;

/* PLEAT_E_MEMORY: it does not fit.  Release it in either case. */
pleat_status device_vectors_init(device_vectors *v, const gpu *g, uint32_t n_lanes, uint32_t n_tokens,
                                 uint32_t head_dim, uint32_t max_vectors, int has_f16, pleat_error *err);
void device_vectors_release(device_vectors *v);

/* Values of one lane and vector that go into a product, or come out of it. */
uint32_t product_inputs(const device_vectors *v, block_product product);
uint32_t product_results(const device_vectors *v, block_product product);

/* cuBLAS's product with n_vectors a lane. */
pleat_status device_vectors_blas(const device_vectors *v, gpu_blas *blas, block_product product, uint32_t n_vectors,
                                 pleat_error *err);

/* fused: the library's way; bit-serial: a row a thread and bit by bit, as KVComp's paper has it. */
typedef enum block_decoder { DECODER_FUSED, DECODER_BIT_SERIAL, N_DECODERS } block_decoder;

typedef struct device_blocks {
    const device_vectors *vectors; /* not owned */
    pleat_codec *codec;
    uint32_t block_tokens, n_distinct;
    uint8_t *payloads; /* [n_distinct] at `cap` bytes each */
    uint64_t cap;
    uint64_t *n_bytes;                    /* [n_distinct] */
    uint64_t *distinct_bytes[N_PRODUCTS]; /* [n_distinct] keys' and values' */
    pleat_device_blocks *blocks[N_DECODERS];
    uint64_t payload_bytes[N_PRODUCTS];     /* of all keys, of all values, as the CPU's payloads have them */
    uint64_t bytes[N_DECODERS][N_PRODUCTS]; /* keys and values as they lie on the device, with what they are found by */
} device_blocks;

/* PLEAT_E_MEMORY: it does not fit.  Release it in either case. */
pleat_status device_blocks_init(device_blocks *b, const device_vectors *v, const pleat_spec *spec, pleat_error *err);
void device_blocks_release(device_blocks *b);

/* Put one product with n_vectors a lane on the stream. */
pleat_status device_blocks_multiply(device_blocks *b, block_product product, block_decoder decoder, uint32_t n_vectors,
                                    pleat_error *err);

/* |out - ref| / |ref| (L2) of the last lane's first and last vectors, the worse, against float64 on the values that
 * the codec decodes.  Multiplies, and waits.  PLEAT_E_STATE: it is wrong; PLEAT_E_ARG: the decoder does not take so
 * many vectors. */
pleat_status device_blocks_check(device_blocks *b, block_product product, block_decoder decoder, uint32_t n_vectors,
                                 double *max_rel_err, pleat_error *err);

#endif
