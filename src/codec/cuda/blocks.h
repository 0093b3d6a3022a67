/* SPDX-License-Identifier: MIT
 *
 * blocks.h: attention's two products over blocks of codes (codec/block.h) in device memory, fused with their
 * decoding: codes never leave the registers of the warp that decodes them.  KVComp, section 3.3.2.
 *
 *     keys      out[lane][g][token] = sum over dimensions of q[lane][g][dimension] * k'      rows = tokens
 *     values    out[lane][g][dimension] = sum over tokens of p[lane][g][token] * v'          rows = dimensions
 *
 * Both are rows of codes times a vector, x, with a step and a minimum for each column.  As in attn/blocks.h these fold
 * into the vector, once a block, and codes are taken around their middle:
 *
 *     row's sum = sum x*middle + scale * sum weight * (code - centre)      weight = round(x*step / scale), 16 bits
 *
 * in two limbs of 8 bits for the tensor cores' s8 product; scale is 1/32512 of a block's largest |x*step|.
 *
 *     lane's blocks ── cut in tasks ──> a task is a thread block's ── block i is warp i modulo its warps'
 *
 * Sums of values over a task's blocks, then over a lane's tasks, are made in one order: the same bytes always.
 * Launchers can be captured in a graph.
 */
#ifndef PLEAT_CODEC_CUDA_BLOCKS_H
#define PLEAT_CODEC_CUDA_BLOCKS_H

#include "entropy/cuda/bit_tree.h"
#include "hw/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Query heads of a KV head. */
#define PLEAT__BLOCK_GROUP_MAX 8u

/* One matrix of one block. */
typedef struct pleat__device_section {
    uint64_t words;   /* place of its codes (entropy/cuda/words.h), in 4 bytes: those of a lane's next block follow */
    uint32_t units;   /* place of its units, as payloads have them (docs/FORMAT.md, section 2), in 16 bytes */
    uint32_t is_wide; /* units are WIDE: docs/FORMAT.md */
} pleat__device_section;

/* What a thread block does. */
typedef struct pleat__device_task {
    uint32_t lane;
    uint32_t first;    /* the task's first block, counted through all lanes */
    uint32_t index;    /* the task's first block, counted in its lane */
    uint32_t n_blocks; /* may be 0 */
} pleat__device_task;

/* All matrices of a kind.  Pointers are device memory. */
typedef struct pleat__device_matrices {
    const uint8_t *units;
    const uint8_t *words;                  /* aligned to 256, 2048 readable bytes behind */
    const pleat__device_section *sections; /* [n_blocks + 1]; the last one tells where words end */
    const pleat__device_task *tasks;       /* [n_tasks] in the order of lanes; every lane has one or more */
    const uint32_t *lane_tasks;            /* [n_lanes + 1] a lane's first task, its end */
    const uint32_t *table;                 /* [1 << max_bits] entropy/cuda/words.h */
    uint32_t n_lanes, n_tasks;
    uint32_t rows, columns; /* of a block: tokens x dimensions, or the other way round; multiples of 16 */
    uint32_t n_levels;
    uint32_t one;             /* 1: entropy/cuda/words.cuh */
    uint8_t codebook_kind;    /* pleat__codebook_kind */
    uint8_t max_bits;         /* of the codebook */
    uint8_t has_column_units; /* a unit for each column, else one for all */
} pleat__device_matrices;

/* What they are multiplied with.  Pointers are device memory. */
typedef struct pleat__device_product {
    const float *x;   /* keys: [n_lanes][n_group][columns]; values: [n_lanes][n_group][stride] */
    float *out;       /* keys: [n_lanes][n_group][stride]; values: [n_lanes][n_group][rows] */
    float *partial;   /* values, where a lane has more than one task: [n_tasks][n_group][rows] */
    uint64_t stride;  /* tokens from one head's to the next's: no less than a lane has */
    uint32_t n_group; /* 1..PLEAT__BLOCK_GROUP_MAX */
    bool has_partial; /* some lane has more than one task */
} pleat__device_product;

/* What is known of the device: a thread block takes half a multiprocessor, if it can. */
typedef struct pleat__device_shape {
    uint32_t shared_bytes;       /* of a multiprocessor */
    uint32_t shared_block_bytes; /* most of a thread block */
    uint32_t reserved_bytes;     /* of every thread block, taken by the system */
    uint32_t n_threads;          /* of a multiprocessor */
    uint32_t n_multiprocessors;
} pleat__device_shape;

pleat_status pleat__device_shape_get(pleat__device_shape *shape, pleat_error *err);

pleat_status pleat__blocks_keys(const pleat__device_matrices *m, const pleat__device_product *p,
                                const pleat__device_shape *shape, pleat__device_stream stream, pleat_error *err);
pleat_status pleat__blocks_values(const pleat__device_matrices *m, const pleat__device_product *p,
                                  const pleat__device_shape *shape, pleat__device_stream stream, pleat_error *err);

/* Add the parts that tasks left, where a lane has more than one; where none has, nothing is launched. */
pleat_status pleat__blocks_add_tasks(const pleat__device_matrices *m, const pleat__device_product *p,
                                     pleat__device_stream stream, pleat_error *err);

/* ---- the baseline ------------------------------------------------------------------------------------ */

/* Matrices as rows of bits (entropy/cuda/bit_tree.h): m->words are theirs, a task has one block. */
typedef struct pleat__device_rows {
    const uint16_t *row_bits; /* [n_blocks][rows] */
    const pleat__bit_branch *tree;
    uint32_t n_branches;
    uint32_t max_words; /* of a block */
} pleat__device_rows;

/* The same products, decoded bit by bit. */
pleat_status pleat__blocks_bit_serial(const pleat__device_matrices *m, const pleat__device_rows *rows,
                                      const pleat__device_product *p, bool is_values, pleat__device_stream stream,
                                      pleat_error *err);

#ifdef __cplusplus
}
#endif
#endif
