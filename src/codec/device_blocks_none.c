/* SPDX-License-Identifier: MIT
 *
 * device_blocks_none.c: device_blocks.h in a build without CUDA: there is no device.
 */
#include "codec/device_blocks.h"
#include "core/error.h"

static pleat_status none(pleat_error *err) {
    return pleat__error_set(err, PLEAT_E_DEVICE, PLEAT_NOWHERE,
                            "this build has no CUDA: build it where nvcc is, with -DPLEAT_CUDA=on, to use a GPU");
}

pleat_status pleat__device_blocks_create(const pleat__block_format *format, const pleat__block_codebooks *codebooks,
                                         const pleat__host_blocks *host, pleat__device_decoder decoder,
                                         const pleat_allocator *allocator, pleat_device_blocks **out,
                                         pleat_error *err) {
    (void)format, (void)codebooks, (void)host, (void)decoder, (void)allocator, (void)out;
    return none(err);
}

void pleat_device_blocks_destroy(pleat_device_blocks **blocks) {
    if (blocks) *blocks = NULL;
}

void pleat_device_blocks_get_bytes(const pleat_device_blocks *blocks, uint64_t *block_bytes, uint64_t *other_bytes) {
    (void)blocks;
    *block_bytes = *other_bytes = 0;
}

pleat_status pleat_device_blocks_logits(const pleat_device_blocks *blocks, const float *q, uint32_t n_group,
                                        float *logits, uint64_t stride, void *stream, pleat_error *err) {
    (void)blocks, (void)q, (void)n_group, (void)logits, (void)stride, (void)stream;
    return none(err);
}

pleat_status pleat_device_blocks_outputs(const pleat_device_blocks *blocks, const float *weights, uint32_t n_group,
                                         uint64_t stride, float *out, void *stream, pleat_error *err) {
    (void)blocks, (void)weights, (void)n_group, (void)stride, (void)out, (void)stream;
    return none(err);
}
