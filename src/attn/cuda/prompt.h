/* SPDX-License-Identifier: MIT
 *
 * prompt.h: attention of whole prompts on a GPU, and what every key receives in it.
 *
 *     q, k, v ── attend ──> out, lse2                      pass 1: softmax(scale * q.k) v, causal
 *     q, k, lse2 ── receive ──> sums ── add up ──> received   pass 2: sum over later queries of the max over the group,
 *                                                         or of the sum over it
 *
 * Rules
 *  1. Prompts stand one after the other in q, k, v, out and lse2; query i of one sees its keys 0..i and adds to
 *     0..i-1: a weight on itself is not received (attn/attn.h, pleat__attn_prompt_received, with self_seen 0).
 *  2. Keys and values are exact f16: quantising comes after (quant/cuda).  Sums are f32; weights meet values as f16.
 *     Error against float64 on the same inputs, relative in norm: out and received <= 1e-3.
 *  3. Every sum has one order that depends on the sizes and the kernel alone: the same bytes on every run.  No atomics.
 *  4. Launchers neither allocate nor wait; they can be captured in a graph.
 *  5. A chunk is one prompt that goes on: n_past keys stand before its first query, and every query sees them all.  A
 *     query has the bits that it has where the whole prompt is one: both go over keys in the same tiles.  What a chunk
 *     receives is not known.
 *
 * Two ways, which differ in last bits: mma.sync, for every GPU from sm_80 on, and wgmma with bulk tensor copies for
 * Hopper.  Pass 2 goes by mma.sync where sums over the group, or the last queries alone, are asked for.
 */
#ifndef PLEAT_ATTN_CUDA_PROMPT_H
#define PLEAT_ATTN_CUDA_PROMPT_H

#include "hw/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pleat__device_prompt_kernel {
    PLEAT__PROMPT_BEST = 0, /* wgmma where the GPU and this build have it */
    PLEAT__PROMPT_MMA = 1,
    PLEAT__PROMPT_WGMMA = 2, /* PLEAT_E_DEVICE where there is none: for tests and benchmarks */
    PLEAT__PROMPT_PAIRS = 3, /* as long prompts go, whose bits are the same */
} pleat__device_prompt_kernel;

/* All pointers but the struct's own are device memory.  Strides are elements from one token to the next and multiples
 * of 8; q, k, v and out are aligned to 16. */
typedef struct pleat__device_prompt_attn {
    const uint16_t *q; /* f16: token t, query head h at q + t*q_stride + h*head_dim */
    const uint16_t *k; /* f16: token t, KV head h at k + t*kv_stride + h*head_dim; heads h*n_group.. share it */
    const uint16_t *v;
    uint32_t q_stride;
    uint32_t kv_stride;
    const uint32_t *starts; /* [n_seqs + 1] prompt i is tokens starts[i] .. starts[i+1]-1; NULL: one prompt */
    uint32_t n_seqs;        /* 1..65535 */
    uint32_t n_past;        /* k and v are of n_past + n_tokens tokens; 0, but for one prompt without `received` */
    uint32_t n_tokens;      /* of all prompts, 0..2^30 */
    uint32_t max_tokens;    /* of the longest, 1..2^20: host and device must agree */
    uint32_t n_kv_heads;    /* 1..1024 */
    uint32_t n_group;       /* 1..8 */
    uint32_t head_dim;      /* 64 or 128 */
    float scale;            /* > 0, 1e30 at most */
    bool out_f32;           /* else f16 */
    void *out;              /* token t, query head h at out + t*out_stride + h*head_dim; may not overlap the inputs */
    uint32_t out_stride;
    float *lse2;     /* [n_tokens][n_kv_heads * n_group] log2 of the sum of 2^logit2 */
    float *received; /* [n_kv_heads][n_tokens], overwritten; NULL: pass 2 is left out */
    uint32_t every; /* received: `every` times from the queries every-1, 2*every-1, ..; 0: 1.  Above that a power of two
                      * to 128, and one prompt */
    bool sums_heads;      /* received: of the group's heads the sum, not the largest */
    uint32_t first_query; /* received: of this query and those after it, below n_tokens; but 0, for one prompt alone and
                           * without every */
    void *workspace;      /* pleat__device_prompt_attn_workspace() bytes, aligned to 16; may be NULL where that is 0 */
    pleat__device_prompt_kernel kernel;
} pleat__device_prompt_attn;

/* Most bytes that pass 2 needs for one prompt, however long.  It takes splits * n_kv_heads * n_tokens floats.  splits >
 * 1 only with fewer than 2048 blocks of 128 keys, and then splits - 1 < 2048 / blocks: less than twice 2048 * 128
 * floats. */
#define PLEAT__PROMPT_WORKSPACE_MAX (2u << 20)

/* Bytes that pass 2 needs for prompts of these sizes (other fields are not read); 0 without `received`.  The same on
 * all GPUs. */
uint64_t pleat__device_prompt_attn_workspace(const pleat__device_prompt_attn *prompt);

/* Both passes.  PLEAT_E_ARG: sizes, strides or alignments that are not as above; nothing was launched. */
pleat_status pleat__device_prompt_attn_run(const pleat__device_prompt_attn *prompt, pleat__device_stream stream,
                                           pleat_error *err);

#ifdef __cplusplus
}
#endif
#endif
