/* SPDX-License-Identifier: MIT
 *
 * device_blocks.h: include/pleat/device_blocks.h for who has a format and its codebooks rather than a codec.
 *
 *     cuda/device_blocks.c     with CUDA
 *     device_blocks_none.c     without
 */
#ifndef PLEAT_CODEC_DEVICE_BLOCKS_H
#define PLEAT_CODEC_DEVICE_BLOCKS_H

#include "codec/block.h"
#include "pleat/device_blocks.h"

/* Payloads in host memory. */
typedef struct pleat__host_blocks {
    uint32_t n_lanes;
    const uint32_t *n_blocks;    /* [n_lanes] */
    const void *const *payloads; /* of all lanes, one lane behind the other */
    const uint64_t *n_bytes;     /* of each payload, in the same order */
} pleat__host_blocks;

/* How codes stand on the device: as entropy/cuda/words.h has them, or bit_tree.h. */
typedef enum pleat__device_decoder { PLEAT__DECODER_TABLE, PLEAT__DECODER_BIT_SERIAL } pleat__device_decoder;

/* As pleat_device_blocks_create().  PLEAT_E_STATE without codebooks; PLEAT_E_ARG where the coder is not HUFFMAN,
 * or values have units of less than a token. */
pleat_status pleat__device_blocks_create(const pleat__block_format *format, const pleat__block_codebooks *codebooks,
                                         const pleat__host_blocks *host, pleat__device_decoder decoder,
                                         const pleat_allocator *allocator, pleat_device_blocks **out, pleat_error *err);

#endif
