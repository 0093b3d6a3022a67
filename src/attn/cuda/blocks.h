/* SPDX-License-Identifier: MIT
 *
 * blocks.h: attention of a step's tokens over compressed blocks (codec/block.h) in a GPU's pages: kvcomp's, with fixed
 * widths (+pack).
 *
 *     lane's blocks ── cut in parts ── a warp each ──> sums of a part ──┐
 *     the lane's other tokens ── decode.h ──> result and lse2 ──────────┴── merge ──> result
 *
 * Payloads are the CPU's bytes.  Of kvcomp's two coders this is a GPU's: packs have their widths before them, so threads
 * find their own by a prefix sum, and fields of all widths become nibbles alike, without a branch.  A Huffman stream is
 * read symbol by symbol.
 *
 * Limits: head_dim 64 or 128, up to 8 query heads a KV head, blocks of 64 tokens, up to 16 levels, no windows.
 */
#ifndef PLEAT_ATTN_CUDA_BLOCKS_H
#define PLEAT_ATTN_CUDA_BLOCKS_H

#include "core/types.h"
#include "hw/device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLEAT__DEVICE_BLOCK_TOKENS 64u
#define PLEAT__DEVICE_BLOCK_LEVELS 16u

/* Blocks of all lanes; pointers are device memory, handed over by value.  Payloads stand in the low side's pages of a
 * row, one behind the other in units of 16 bytes (PLEAT__BLOCK_ALIGN). */
typedef struct pleat__device_block_lanes {
    const uint8_t *base; /* the pool's first byte */
    uint64_t page_bytes;
    uint32_t page_units;      /* units of a page */
    const uint32_t *ids;      /* [rows][row_len]: page i of a row's blocks is at row_len - 1 - i */
    uint32_t row_len;         /* cells of a row */
    const uint32_t *ends;     /* [rows][ends_cap] units before each block's end */
    uint32_t ends_cap;        /* most blocks of a row */
    const uint32_t *n_blocks; /* [rows] */
    const uint32_t *seq_idxs; /* [n_seqs] */
    uint32_t n_seqs, n_layers, n_kv_heads, n_group, head_dim;
    uint32_t k_bits, v_bits; /* of a code */
    bool by_channel;         /* keys' units */
} pleat__device_block_lanes;

typedef struct pleat__device_blocks_attn {
    pleat__device_block_lanes lanes;
    uint32_t layer;
    uint32_t n_parts;   /* of a lane */
    const uint16_t *q;  /* f16 [n_seqs][n_kv_heads * n_group][head_dim], aligned to 16 */
    float scale;        /* softmax scale */
    float *parts;       /* pleat__device_blocks_parts_floats() */
    const float *other; /* [n_seqs][n_kv_heads * n_group][head_dim] attention over the lane's other tokens, and */
    float *lse2; /* [n_seqs][n_kv_heads * n_group] log2 of their sum: of no tokens -infinity; becomes that of all */
    void *out;   /* as other, f16 or f32; may be other */
    bool is_f16;
} pleat__device_blocks_attn;

/* Parts that fill the calling thread's device once with so many lanes. */
pleat_status pleat__device_blocks_parts(const pleat__device_block_lanes *lanes, uint32_t *n_parts, pleat_error *err);

static inline uint64_t pleat__device_blocks_parts_floats(const pleat__device_block_lanes *l, uint32_t n_parts) {
    return (uint64_t)l->n_seqs * l->n_kv_heads * n_parts * l->n_group * (l->head_dim + 2u);
}

/* Can be recorded in a graph. */
pleat_status pleat__device_blocks_attend(const pleat__device_blocks_attn *args, pleat__device_stream stream,
                                         pleat_error *err);

#ifdef __cplusplus
}
#endif
#endif
