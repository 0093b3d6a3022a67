/* SPDX-License-Identifier: MIT
 *
 * device_blocks.h: compressed blocks (codec.h) on a GPU, and attention's two products over them, fused with their
 * decoding.
 *
 *     codec: encode ──> payloads ── create ──> blocks on the device ── logits, outputs (any number) ── destroy
 *
 * Payloads are the CPU's own bytes.  On the device, codes stand in another order, which kernels read faster
 * (src/entropy/cuda/words.h): as the same words of the same codebook, or, where that has single codes of up to 16 levels,
 * as words for pairs of them.  Each of the 32 parts of a block's keys or values takes some 30 bits more. A lane is a KV head of a sequence; its tokens are those of its blocks, one block behind the other.  Arrays
 * on the device are the caller's, as plain pointers that are not followed on the host. Calls return before they are
 * done: they run in order in `stream`, a cudaStream_t, and can be captured in a graph.
 *
 * Builds without CUDA answer PLEAT_E_DEVICE.  One object is used by one thread, and outputs() in one stream, at a time.
 */
#ifndef PLEAT_DEVICE_BLOCKS_H
#define PLEAT_DEVICE_BLOCKS_H

#include "pleat/codec.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pleat_device_blocks pleat_device_blocks;

/* Most query heads of a KV head. */
#define PLEAT_DEVICE_BLOCKS_GROUP_MAX 8u

/* Copy payloads to the calling thread's device and prepare them.  n_blocks [n_lanes], each may be 0; payloads and
 * n_bytes are those of all lanes, one lane behind the other.  The codec's spec is kvcomp without +pack.  The codec and
 * the payloads are not needed afterwards.  allocator may be NULL.  PLEAT_E_ARG; PLEAT_E_STATE where the codec was
 * neither trained nor took codebooks; PLEAT_E_FORMAT: a payload is damaged, or of other codebooks (err->where is its
 * index); PLEAT_E_MEMORY, PLEAT_E_DEVICE. */
PLEAT_API pleat_status pleat_device_blocks_create(const pleat_codec *codec, uint32_t n_lanes, const uint32_t *n_blocks,
                                                  const void *const *payloads, const uint64_t *n_bytes,
                                                  const pleat_allocator *allocator, pleat_device_blocks **out,
                                                  pleat_error *err);
/* Like pleat_device_blocks_create(), but codes are decoded as in KVComp's paper: a row a thread, bit by bit.  To
 * measure the other decoder against. */
PLEAT_API pleat_status pleat_device_blocks_create_bit_serial(const pleat_codec *codec, uint32_t n_lanes,
                                                             const uint32_t *n_blocks, const void *const *payloads,
                                                             const uint64_t *n_bytes, const pleat_allocator *allocator,
                                                             pleat_device_blocks **out, pleat_error *err);
/* Waits for the device.  NULL is fine. */
PLEAT_API void pleat_device_blocks_destroy(pleat_device_blocks **blocks);

/* Bytes on the device.  First those of blocks: units and codes, each from a multiple of 16 on.  Then all others: 16 +
 * 16 a block to find them by, tasks, tables, room for parts of outputs. */
PLEAT_API void pleat_device_blocks_get_bytes(const pleat_device_blocks *blocks, uint64_t *block_bytes,
                                             uint64_t *other_bytes);

/* logits[lane][g][token] = sum over i of q[lane][g][i] * k'[i]
 *   q       f32 [n_lanes][n_group][head_dim]
 *   logits  f32 [n_lanes][n_group][stride], stride even and no less than the tokens of any lane; others are not
 *           written
 * 1 <= n_group <= PLEAT_DEVICE_BLOCKS_GROUP_MAX; q is aligned to 8.  k' is what pleat_codec_decode() returns.  Relative
 * error in norm about 3e-5: q times a unit's step size is rounded to 16 bits. */
PLEAT_API pleat_status pleat_device_blocks_logits(const pleat_device_blocks *blocks, const float *q, uint32_t n_group,
                                                  float *logits, uint64_t stride, void *stream, pleat_error *err);

/* out[lane][g][i] = sum over tokens of weights[lane][g][token] * v'[token][i]
 *   weights  f32 [n_lanes][n_group][stride], as logits; aligned to 8
 *   out      f32 [n_lanes][n_group][head_dim]
 * Likewise.  The same bytes always from the same blocks; where other lanes are created beside them, or on another GPU,
 * blocks are summed up in other parts, and last bits differ. */
PLEAT_API pleat_status pleat_device_blocks_outputs(const pleat_device_blocks *blocks, const float *weights,
                                                   uint32_t n_group, uint64_t stride, float *out, void *stream,
                                                   pleat_error *err);

#ifdef __cplusplus
}
#endif
#endif
