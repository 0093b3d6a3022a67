/* SPDX-License-Identifier: MIT
 *
 * decode.h: decode attention on a GPU: one new token of every sequence of a batch against its lanes' pages.
 *
 *     pleat__device_attn_plan_init    host    picks kernel, grid and workspace for a cache's shape
 *     pleat__device_attn_schedule     device  once a step: cuts the lanes of every layer into shares
 *     pleat__device_attn_decode       device  once a layer: attention, merged
 *     pleat__device_attn_received     device  once a layer where scores are kept: what each slot received
 *
 * Lengths, page ids and sequence indexes are read on the device and never come to the host, so a step can be captured
 * in a graph and replayed while lanes grow.  Nothing allocates or waits.
 *
 * Work is cut in equal shares, in units of tiles, high side first, across the borders of lanes:
 *
 *     lane 0 |hhhhhhhhlll|  lane 1 |hhl|  lane 2 |hhhhhhhhhhhhhhhhhllllll|
 *     share    0      |     1        |      2       |      3       |        of a warp; a block has n_warps in a row
 *
 * What a warp adds up of a lane is a part (m, l, o).  A lane that one warp read alone is finished by it; else the block
 * merges its warps' parts, and if other blocks have more, the last of them to arrive merges those.  Parts are always
 * merged in one order: the same input gives the same bytes, whoever comes last.  How a lane is cut, and so its
 * last bits, depends on the whole batch, as on the GPU's size.  PER_LANE and FIXED_SPLITS cut a lane by its own length
 * alone: there the last bits do not depend on the batch (decode_pieces.cuh).  Where lanes are about equal, blocks take
 * whole ones, or each takes whole blocks (decode_schedule.cu).
 *
 * Against float64 on the dequantised keys and values k', v':
 *     logits   error <= scale * (1.6e-5 * max|q| * sum|k'| + 1e-6 * sum|q| * max|k'|): q meets codes as 16-bit integers
 *              of its largest (groups of up to 4) or as it is; scale*code and minimum are added in f32
 *     out      relative error in norm <= 1e-3, usually 3e-4: weights are rounded to f16, or, for rotated values of 2
 *              and 3 bits, to 2^-16 of the largest of 32 or 64 tokens; all sums are f32; beside that what the logits'
 *              error makes of it, where they are so large that it counts
 *
 * Formats of one side: f16, k8v8, k8v4, k4v4, k4v2, k8v2, k4v8, k2v8, k2v4, k2v2.  High and low: any two of the first
 * five, the one with fewer bits low.  For groups of up to 4 also h4v4 to h2v2, and h3v2 or h2v2 below k8v8 or k8v4: q is
 * rotated then, as the pages are, and so is what comes out.
 */
#ifndef PLEAT_ATTN_CUDA_DECODE_H
#define PLEAT_ATTN_CUDA_DECODE_H

#include "core/device_view.h"
#include "hw/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pleat__device_schedule_kind {
    PLEAT__DEVICE_EQUAL_SHARES = 0, /* of tiles; those with more bytes count a little more: decode_schedule.cu */
    PLEAT__DEVICE_PER_LANE = 1,     /* one thread block a lane, as in LeanKV: what EQUAL_SHARES is measured against */
    PLEAT__DEVICE_FIXED_SPLITS = 2  /* pieces of lanes, whose sizes each lane's own length decides: decode_pieces.cuh */
} pleat__device_schedule_kind;

/* A cache's shape, and what follows from it.  Filled by plan_init, fixed from then on.  Offsets are into the
 * workspace. */
typedef struct pleat__device_attn_plan {
    pleat__device_schedule_kind schedule;
    uint32_t head_dim;
    uint32_t n_layers, n_kv_heads, n_group;
    uint32_t seqs_cap;        /* most sequences of a batch */
    uint32_t kernel_idx;      /* in the table of decode.cu */
    uint32_t n_blocks;        /* grid */
    uint32_t n_warps;         /* of a block */
    uint32_t step_tiles;      /* of a warp's step */
    uint32_t n_pieces;        /* FIXED_SPLITS: of a lane, at most */
    uint32_t piece_tiles;     /* FIXED_SPLITS: of all pieces of a lane but its last, at least */
    uint32_t smem_bytes;      /* of a block */
    uint32_t tile_units[2];   /* what a tile costs on either side: decode_schedule.cu */
    uint32_t lane_units;      /* what a lane costs besides its tiles */
    uint64_t starts_off;      /* [n_layers][n_shares + 1] where each warp's share starts */
    uint64_t lanes_off;       /* [n_layers][lanes_cap] */
    uint64_t arrivals_off;    /* [n_layers][lanes_cap] blocks that have left their part of a lane */
    uint64_t block_parts_off; /* [n_blocks][2], or [lanes_cap][n_pieces]; none if a lane has one block */
    uint64_t places_off;      /* FIXED_SPLITS: [n_layers][n_blocks + 1] where each block's pieces start */
    uint64_t workspace_bytes;
} pleat__device_attn_plan;

/* Make the plan for caches like `view`, of batches up to seqs_cap, on the calling thread's device: its layouts, layers,
 * heads, group count and row_len, not its pointers, sequence indexes or n_seqs.  Caches whose layouts have one format
 * are taken to have a high side only; where they have two, n_slots[1] may be NULL all the same.  PLEAT_E_ARG, and err
 * says why: a head_dim other than 64 or 128, a group above 8, formats without a kernel for it, no lanes or more than
 * 2^20. */
pleat_status pleat__device_attn_plan_init(pleat__device_attn_plan *plan, const pleat__device_view *view,
                                          uint32_t seqs_cap, pleat__device_schedule_kind schedule, pleat_error *err);

/* Cut the batch's lanes of all layers, as long as they are when this runs.  view->n_seqs <= seqs_cap.  The workspace
 * (workspace_bytes, aligned to 256) serves one stream at a time. */
pleat_status pleat__device_attn_schedule(const pleat__device_attn_plan *plan, const pleat__device_view *view,
                                         void *workspace, pleat__device_stream stream, pleat_error *err);

/* All pointers are device memory. */
typedef struct pleat__device_attn_args {
    pleat__device_view view; /* as it was when the schedule was made, lengths included */
    uint32_t layer;
    /* The launches since the schedule's wait before they let the next one start, and write to no tile of a lane but its
     * last: then all others are read while the last launch is under way. */
    bool reads_ahead;
    const uint16_t *q; /* f16 [n_seqs][n_kv_heads * n_group][head_dim], aligned to 16 */
    float scale;       /* softmax scale, > 0 */
    void *out;         /* [n_seqs][n_kv_heads * n_group][head_dim], aligned to 16; a lane without live slots: 0 */
    bool is_f16;       /* out is f16, rounded; else f32 */
    float *lse2;       /* [n_seqs][n_kv_heads * n_group] log2 of the sum of 2^logit2, or NULL */
    /* NULL, or [n_seqs][n_kv_heads * n_group][logits_stride]: logit2 of each slot, -infinity where it is dead.  The low
     * side's begin at the high side's count rounded up to 16. */
    float *logits;
    uint64_t logits_stride;      /* even; with drops_logits a multiple of 32, and logits are aligned to 128 */
    const uint32_t *scored_seqs; /* [n_seqs] of whom logits are left: where it is view.seq_idxs; NULL: of all */
    float times;                 /* what received() multiplies by; 0: 1 */
    bool sums_heads;             /* what received() adds: of the group's heads the sum, not the largest */
    bool drops_logits;           /* what received() has read is undefined then, and spares memory its writing */
} pleat__device_attn_args;

pleat_status pleat__device_attn_decode(const pleat__device_attn_plan *plan, const pleat__device_attn_args *args,
                                       void *workspace, pleat__device_stream stream, pleat_error *err);

/* Add to the score of every slot of args->layer what it received: the largest over the group, or the sum, of
 * 2^(logit2 - lse2), `times` over.
 * args->logits and lse2 are what decode wrote.  Sides that are not tracked, or have several scores a slot, are left
 * alone. */
pleat_status pleat__device_attn_received(const pleat__device_attn_args *args, pleat__device_stream stream,
                                         pleat_error *err);

#ifdef __cplusplus
}
#endif
#endif
