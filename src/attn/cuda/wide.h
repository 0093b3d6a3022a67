/* SPDX-License-Identifier: MIT
 *
 * wide.h: attention on a GPU for shapes that decode.h and prompt.h have no kernels for: heads of any length, groups up
 * to 16, windows, bounded logits.  Pages of one format.
 *
 *     pleat__device_wide_decode    a token of every sequence of a batch against its lanes' pages
 *     pleat__device_wide_prompt    a prompt or a chunk, against keys and values in f16
 *
 * Decode cuts a lane at every so many slots of its own, by what a lane may hold at most.  Each piece is a block's, and
 * pieces are merged in their order: so a lane's bits depend on that lane alone, whatever the batch.  In a lane with a
 * window all slots are seen: it is a ring (cache/cuda/wide.cu).  A chunk's query i stands at n_past + i and sees the
 * keys up to itself, with a window the newest so many of them.  It has the same bits for every n_past that differs by
 * whole PLEAT__WIDE_KEYS: keys that no window holds may be left out so.
 *
 * Logits and all sums are f32.  In prompts weights meet values as f16, by mma.sync.  Launchers neither allocate nor
 * wait; they can be recorded in a graph.
 */
#ifndef PLEAT_ATTN_CUDA_WIDE_H
#define PLEAT_ATTN_CUDA_WIDE_H

#include "core/device_view.h"
#include "hw/device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLEAT__WIDE_GROUP 16u
#define PLEAT__WIDE_KEYS 32u /* that a prompt's queries meet at a time */
#define PLEAT__WIDE_HEAD_DIM 256u

/* All pointers are device memory. */
typedef struct pleat__device_wide_attn {
    pleat__device_view view; /* head_dim a multiple of 16 up to 256, n_group up to 16; the high side alone is read */
    uint32_t layer;
    uint32_t max_slots; /* most slots of any lane of the cache */
    const uint16_t *q;  /* f16 [n_seqs][n_kv_heads * n_group][head_dim], aligned to 16 */
    float scale;        /* > 0 */
    float cap;          /* logits x become cap * tanh(x / cap); 0: they stay */
    float *out;         /* [n_seqs][n_kv_heads * n_group][head_dim]; a lane without slots: 0 */
    float *lse2;        /* [n_seqs][n_kv_heads * n_group] log2 of the sum of 2^logit2, or NULL */
    void *workspace;    /* pleat__device_wide_bytes() */
} pleat__device_wide_attn;

uint64_t pleat__device_wide_bytes(uint32_t seqs_cap, uint32_t n_q_heads, uint32_t head_dim, uint32_t max_slots);
pleat_status pleat__device_wide_decode(const pleat__device_wide_attn *attn, pleat__device_stream stream,
                                       pleat_error *err);

typedef struct pleat__device_wide_chunk {
    const uint16_t *q;     /* f16 [n_tokens][n_kv_heads * n_group][head_dim] */
    const uint16_t *k, *v; /* f16 [n_past + n_tokens][n_kv_heads][head_dim]; all aligned to 16 */
    uint32_t n_past, n_tokens;
    uint32_t n_kv_heads, n_group, head_dim;
    uint32_t window; /* 0: none */
    float scale, cap;
    uint16_t *out; /* as q; not q */
} pleat__device_wide_chunk;

pleat_status pleat__device_wide_prompt(const pleat__device_wide_chunk *chunk, pleat__device_stream stream,
                                       pleat_error *err);

#ifdef __cplusplus
}
#endif
#endif
