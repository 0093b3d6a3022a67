/* SPDX-License-Identifier: MIT
 *
 * attn.h: attention of one lane, straight from its pages.
 *
 * Decode: one query position, the G query heads that share the KV head.  The caller cuts the lane's slots into
 * ranges, runs each into its own accumulator, merges them in a fixed order and finishes:
 *
 *     query_init ── decode(range 0) ──> acc 0 ─┐
 *                └─ decode(range 1) ──> acc 1 ─┴─ merge ── finish ──> out, lse
 *
 * Prompt: a block of consecutive query positions against the past (all visible) and the chunk itself (causal), or the
 * newest tokens of both.
 *
 * Logits are kept in units of log2: logit2 = scale * log2(e) * q.k, so that exp2 serves.  An accumulator after slots S
 * is
 *     m[g] = max over S of logit2     l[g] = sum of 2^(logit2 - m[g])     o[g][:] = sum of 2^(logit2 - m[g]) * v'
 * and empty is m = -infinity, l = 0, o = 0.  Dead slots (position -1 in a tracked page) and slots past n_slots count
 * nothing.
 *
 * Errors are against float64 on the dequantised k', v', relative in norm:
 *
 *     decode, quantised     <= 3e-4    queries and attention weights are two 8-bit limbs, 16 bits together
 *     decode, f32 and f16   <= 2e-6
 *     prompt, all           <= 2e-6    it dequantises
 *     received in a prompt  <= 1e-5    of each sum
 *     bounded logits        + 3e-7 times the largest of them, in units of logit2 (cap.h)
 *
 * Kernels neither allocate nor keep state.  Variants may differ in their last bits; one variant gives the same bits for
 * the same range, always.
 */
#ifndef PLEAT_ATTN_ATTN_H
#define PLEAT_ATTN_ATTN_H

#include "attn/cap.h"
#include "codec/loader.h"
#include "quant/quant.h"

/* The group's query vectors of one lane, made ready for the kernels.  Points into caller's memory of
 * pleat__attn_query_bytes(), aligned to 64. */
typedef struct pleat__attn_query {
    uint32_t n_group;  /* G, 1..PLEAT__MAX_GROUP */
    uint32_t head_dim; /* d */
    float *f32;        /* [G][d], times scale*log2(e) */
    int8_t *hi;        /* [G][d] high limbs, |hi| <= 127: f32 ~= step[g] * (256*hi + lo) */
    int8_t *lo;        /* [G][d] low limbs, -128..127 */
    int16_t *both;     /* [G][d] 256*hi + lo, each four in the order 0, 2, 1, 3: for multiplying 16-bit pairs */
    float *step;       /* [G] */
    float *sum;        /* [G] sum over d of step[g]*(256*hi + lo): meets K's minimum */
    float cap2;        /* logit2 becomes cap2 * tanh(logit2 / cap2) (cap.h); 0, as query_init leaves it: it stays */
} pleat__attn_query;

uint64_t pleat__attn_query_bytes(uint32_t n_group, uint32_t head_dim);

/* Lay a query out in `memory` and fill it from q [G][d] f32 (heads contiguous).  A zero head gets step 0. */
void pleat__attn_query_init(pleat__attn_query *query, void *memory, const float *q, uint32_t n_group, uint32_t head_dim,
                            float scale);
/* The same without limbs, steps and sums: for slots of float formats and for compressed blocks. */
void pleat__attn_query_init_floats(pleat__attn_query *query, void *memory, const float *q, uint32_t n_group,
                                   uint32_t head_dim, float scale);

/* See the head of this file.  Memory of pleat__attn_acc_bytes(), aligned to 64. */
typedef struct pleat__attn_acc {
    float *m; /* [G] */
    float *l; /* [G] */
    float *o; /* [G][d] */
} pleat__attn_acc;

uint64_t pleat__attn_acc_bytes(uint32_t n_group, uint32_t head_dim);
void pleat__attn_acc_view(pleat__attn_acc *acc, void *memory, uint32_t n_group, uint32_t head_dim); /* lays out only */
void pleat__attn_acc_init(pleat__attn_acc *acc, void *memory, uint32_t n_group,
                          uint32_t head_dim); /* lays out, empties */

/* Add slots [slot_from, slot_to) of `run` to `acc`.  slot_from is a multiple of 16; slot_to is one too or equals
 * run->n_slots.  logits: NULL, or [G][logits_stride], where the logit2 of slot s is written at [g][s].  Masked slots
 * get -infinity, and so may entries up to the next multiple of 16 after slot_to. */
typedef void (*pleat__attn_decode_fn)(const pleat__attn_query *query, const pleat__kv_run *run, uint32_t slot_from,
                                      uint32_t slot_to, pleat__attn_acc *acc, float *logits, size_t logits_stride);

/* Ask the memory for the tiles that decode() of slots [slot, slot_to) reads first; it asks for the others itself.  Worth
 * while before the query is made ready. */
void pleat__attn_decode_prefetch(const pleat__kv_run *run, uint32_t slot, uint32_t slot_to);

/* Into how many ranges of about equal bytes a lane is cut that has n_slots and whose tiles have n_bytes.  As many as
 * bring one down to 256 KiB, but of 512 slots or more on average, and 32 at most.  A range costs one more query
 * preparation and merge, about as much as 64 slots; 32 of them feed 32 threads from a single lane. */
uint32_t pleat__attn_ranges(uint64_t n_bytes, uint32_t n_slots);

/* acc = acc merged with `other` (as if other's slots came after). */
void pleat__attn_merge(pleat__attn_acc *acc, const pleat__attn_acc *other, uint32_t n_group, uint32_t head_dim);

/* A logit2 for each head that takes its share of the softmax and has no value. */
void pleat__attn_add_sinks(pleat__attn_acc *acc, const float *sinks2, uint32_t n_group, uint32_t head_dim);

/* out [G][d] = o/l (zeros when l is 0); lse2 [G] = m + log2(l), may be NULL. */
void pleat__attn_finish(const pleat__attn_acc *acc, uint32_t n_group, uint32_t head_dim, float *out, float *lse2);

/* Attention received in decode.  For slots [slot_from, slot_to) of a tracked run, as for decode, add the max over g of
 * 2^(logits[g][s] - lse2[g]) to the page's score of slot s.  (LeanKV: significance is the mean received, max over the
 * group.) */
typedef void (*pleat__attn_decode_received_fn)(const pleat__kv_run *run, uint32_t slot_from, uint32_t slot_to,
                                               const float *logits, size_t logits_stride, const float *lse2,
                                               uint32_t n_group);

/* A block of query positions of one lane. */
typedef struct pleat__attn_prompt {
    const pleat__kv_view *past; /* every slot visible to every query; NULL: none */
    const pleat__kv_run *self;  /* query i sees slots [0, self_seen + i] of it; never tracked */
    uint32_t self_seen;
    uint32_t window;    /* newest tokens that a query sees, its own included; 0: all.  With one, the past is a high side
                         * without dead slots, and holds the tokens before self's slot 0 in a circle of n_slots */
    uint32_t oldest;    /* with a window: the slot of the past's oldest token */
    uint32_t n_queries; /* n_queries * n_group <= PLEAT__PROMPT_ROWS */
    uint32_t n_group;
    uint32_t head_dim;
    float scale;
    float cap2;          /* as a query's */
    const float *sinks2; /* [n_group] logit2 of each head that has no value, counted in lse2; NULL: none */
    const float *q;      /* query i, head g at q + i*q_stride + g*head_dim */
    size_t q_stride;     /* floats */
    float *out;          /* query i, head g at out + i*out_stride + g*head_dim; may be q: rows are read first */
    size_t out_stride;
    float *lse2; /* query i, head g at lse2 + i*lse2_stride + g, or NULL */
    size_t lse2_stride;
    const pleat__quant_dsp *quant; /* loads quantised tiles */
    pleat__block_loader *loader;   /* loads blocks; NULL if the past has none */
    void *scratch;                 /* pleat__attn_prompt_scratch_bytes(), aligned to 64 */

    /* The attention that slots receive, found on the way; NULL: it is not. */
    float *received;     /* [entries of past->high, past->low and self]: the sum over queries of the
                      * largest weight of n_together heads is added, but not what a query gives to its own slot */
    uint32_t n_together; /* n_group, or 1: every head's weight is added */
    void *weights;       /* pleat__attn_prompt_kept_bytes() of so many slots, aligned to 64 */
} pleat__attn_prompt;

/* Entries of `received` that a run takes: its slots, filled up. */
static inline uint32_t pleat__attn_received_slots(uint32_t n_slots) { return (n_slots + 63) / 64 * 64; }

/* Memory for the weights of a call's rows, for finding what these slots receive; a multiple of 64 slots. */
uint64_t pleat__attn_prompt_kept_bytes(uint32_t n_slots);

/* Rows (queries times group) of a block: enough to pay for dequantising a tile, small enough for L2. */
#define PLEAT__PROMPT_ROWS 128u

uint64_t pleat__attn_prompt_scratch_bytes(uint32_t head_dim);

typedef void (*pleat__attn_prompt_fn)(const pleat__attn_prompt *args);

/* What a range of slots receives from the queries of a prompt, once their lse2 are known.  Ranges may run at once:
 * each owns its slots and adds up the queries in order, so its sums do not depend on how the slots were cut. */
typedef struct pleat__attn_prompt_received {
    const pleat__kv_run *run;
    bool causal; /* run is the chunk itself: slots [0, self_seen + i*step) receive from query i, so not its own */
    uint32_t self_seen; /* only if causal; otherwise every slot receives from every query */
    uint32_t step;      /* only if causal: tokens from one query to the next, 1 or more */
    uint32_t slot_from; /* a multiple of PLEAT__TILE * 4 */
    uint32_t slot_to;
    uint32_t n_queries; /* any number */
    uint32_t n_group;
    uint32_t head_dim;
    float scale;
    float cap2;        /* as a query's */
    const float *q;    /* query i, head g at q + i*q_stride + g*head_dim */
    size_t q_stride;   /* floats */
    const float *lse2; /* query i, head g at lse2 + i*lse2_stride + g */
    size_t lse2_stride;
    float *received; /* [slot_to - slot_from]: the sum over queries of the max over g of the weight is added */
    const pleat__quant_dsp *quant;
    void *scratch; /* pleat__attn_prompt_scratch_bytes(), aligned to 64 */
} pleat__attn_prompt_received;

typedef void (*pleat__attn_prompt_received_fn)(const pleat__attn_prompt_received *args);

/* attn/blocks.h: the same for a lane's compressed blocks. */
struct pleat__codec_dsp;
struct pleat__block_run;
typedef bool (*pleat__attn_blocks_fn)(const pleat__attn_query *query, const struct pleat__codec_dsp *codec,
                                      const struct pleat__block_run *run, uint32_t block_from, uint32_t block_to,
                                      pleat__attn_acc *acc, void *scratch);

typedef struct pleat__attn_dsp {
    pleat__attn_decode_fn decode;
    pleat__attn_blocks_fn blocks;
    pleat__attn_decode_received_fn decode_received;
    pleat__attn_prompt_fn prompt;
    pleat__attn_prompt_received_fn prompt_received;
} pleat__attn_dsp;

/* Fill the table with the best variants for these CPU flags. */
void pleat__attn_dsp_init(pleat__attn_dsp *dsp, uint32_t cpu_flags);

#endif
