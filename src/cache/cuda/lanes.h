/* SPDX-License-Identifier: MIT
 *
 * lanes.h: what a device cache does to the tokens of its lanes: the launchers of prompt.cu, chunk.cu, step.cu,
 * end.cu and evict.cu, and the struct that their kernels are handed.
 *
 *     a prompt, layer by layer     class: levels, and which token takes which slot
 *                                  (page/cuda: settle: each side gets its pages)
 *                                  place: quantise into pages
 *     a chunk, layer by layer      (page/cuda: take)
 *                                  gather: what is there, for attention
 *                                  extend: store
 *     a step                       (page/cuda: take)
 *                                  grow: each lane has a slot for its new token, which counts from now on
 *                                  append, layer by layer
 *                                  end: the policy on every lane (policy/leankv.h), and what it decides is done
 *                                  (page/cuda: trim)
 *
 * Where lanes have a budget (policy/evict.h), keep stands for class, and evict for end: of policies that let lanes grow
 * behind a prompt, nothing does.
 *
 * A step whose pages do not fit, or one sequence of which has max_tokens already, leaves every lane as it is: grow says
 * that no lane has a new slot, and what follows goes by that.
 *
 * Everything here can be recorded in a graph; nothing waits.
 */
#ifndef PLEAT_CACHE_CUDA_LANES_H
#define PLEAT_CACHE_CUDA_LANES_H

#include "cache/cuda/image_hash.h"
#include "cache/cuda/novelty.h"
#include "codec/cuda/pack_encode.h"
#include "core/device_view.h"
#include "page/cuda/pages.h"
#include "pleat/device_cache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where a step's token of a lane stands, made by grow so that append finds it with one load. */
typedef struct pleat__device_new_token {
    uint32_t page; /* id */
    uint32_t at;   /* slot in the page */
    uint32_t slot; /* of the high side; PLEAT__NEW_SLOT_IS_HOLE: a dead token was there; PLEAT__NO_NEW_SLOT: none */
    uint32_t position;
} pleat__device_new_token;

#define PLEAT__NO_NEW_SLOT UINT32_MAX
#define PLEAT__NEW_SLOT_IS_HOLE 0x80000000u

/* What a token's rank is where lanes have a budget. */
typedef enum pleat__device_ranks {
    PLEAT__DEVICE_RANKS_NONE,     /* they have none */
    PLEAT__DEVICE_RANKS_POSITION, /* recent, streaming */
    PLEAT__DEVICE_RANKS_HASH,     /* random */
    PLEAT__DEVICE_RANKS_SCORE     /* h2o, snapkv, pyramidkv, adakv, novel */
} pleat__device_ranks;

/* adakv: of its own middle a lane is sure of one such part. */
#define PLEAT__DEVICE_SURE_PARTS 5u

/* What is counted as a token's score: policy/evict.h. */
typedef enum pleat__device_counting {
    PLEAT__DEVICE_COUNTS_NONE,
    PLEAT__DEVICE_COUNTS_MAX,   /* leankv */
    PLEAT__DEVICE_COUNTS_SUM,   /* h2o */
    PLEAT__DEVICE_COUNTS_WINDOW /* snapkv, pyramidkv, adakv: of a prompt's last queries, not of steps */
} pleat__device_counting;

/* What policy/leankv.h or policy/evict.h asks of a spec.  Without either every token stays high, and pages keep neither
 * scores nor positions. */
typedef struct pleat__device_policy {
    bool is_leankv;
    bool has_blocks; /* cold tokens become blocks: pleat__device_lane_blocks */
    bool is_code;    /* step=code */
    bool by_position;
    uint32_t every; /* steps are counted where the sequence's length is a multiple of it; 1: all */
    uint32_t window;
    float ah, al;
    pleat__device_counting counts;
    pleat__device_ranks ranks;
    bool is_pooled;     /* of scores: a prompt's are summed over five positions, as snapkv.c does */
    bool in_generation; /* lanes above their budget lose a token in each step */
    pleat_reclaim reclaim;
    uint32_t sinks;
} pleat__device_policy;

/* Of lanes whose cold tokens become blocks (cache/keep/blocks.c): the first policy.sinks tokens and the newest stand in
 * the high side, the others in payloads of 64 tokens in the low side's pages, 16 bytes a slot. */
typedef struct pleat__device_lane_blocks {
    pleat__pack_coder coder;
    uint32_t buffer;    /* most tokens behind the sinks that stay */
    uint32_t ends_cap;  /* most blocks of a lane */
    uint32_t *ends;     /* [rows][ends_cap] slots before each block's end */
    uint32_t *n_blocks; /* [rows] */
    uint8_t *payloads;  /* [n_kv_heads][ends_cap][coder.cap_bytes] of one layer's prompt, and their bytes */
    uint32_t *sizes;    /* [n_kv_heads][ends_cap] */
} pleat__device_lane_blocks;

/* Tokens of a side that leave a lane in a counted step where not all are, at most: policy/policy.h. */
#define PLEAT__DEVICE_LEAVERS_CAP 16u

/* What a step is, in device memory. */
typedef struct pleat__device_step_state {
    uint32_t refused;  /* 1: this step changes nothing */
    uint32_t n_full;   /* steps refused since create because some sequence had max_tokens */
    uint32_t n_blocks; /* of grow, that are done; 0 between launches */
} pleat__device_step_state;

/* Handed to kernels by value; pointers are device memory. */
typedef struct pleat__device_lanes {
    pleat__device_pages pages; /* the batch is in here */
    uint8_t *base;             /* the pool's first byte */
    uint64_t page_bytes;
    pleat__page_layout layouts[2]; /* [side] */
    pleat__device_policy policy;
    pleat__device_lane_blocks blocks;
    pleat__device_novelty novelty;
    uint32_t n_layers, n_kv_heads, head_dim, max_tokens;
    bool is_rotated; /* keys and values are (quant/rotate.h) */
    const uint32_t
        *windows;        /* [n_layers] newest tokens that the layer's lanes keep; 0: all.  NULL: all layers keep all */
    uint32_t many_lanes; /* from so many in a batch on, end gives each lane a warp, below eight */
    uint32_t *n_tokens;  /* [max_seqs] stored in the sequence, a step's new one included from grow on */
    pleat__device_new_token *fresh; /* [n_seqs * rows_per_seq], lane by lane of the batch */
    uint32_t *budgets;              /* [max_seqs] tokens that a lane keeps, where lanes have a budget */
    /* [n_seqs] whose scores attention adds to in a step: the batch's, or of those whose step is not counted, and of all
     * if it is refused, the row behind the last one, which is always empty. */
    uint32_t *scored_seqs;
    pleat__device_step_state *step;
    /* [n_kv_heads][max_tokens] of one layer's prompt of N tokens: position of the token in high slot i at i, of that in
     * low slot i at N - 1 - i.  PLEAT__ORDER_DEAD: the token is dropped, and its slot is not. */
    uint32_t *order;
    uint32_t *ranks;  /* [n_kv_heads][max_tokens] of one layer's prompt, where scores rank; else NULL */
    uint32_t *shares; /* [n_kv_heads] tokens that its lanes keep, where they share the layer's budget; else NULL */
} pleat__device_lanes;

#define PLEAT__ORDER_DEAD 0x80000000u

/* One layer of a prompt of n_tokens tokens in sequence seq_idx. */
typedef struct pleat__device_prompt {
    uint32_t seq_idx, layer, n_tokens;
    uint32_t n_past;       /* of a chunk: tokens that the sequence has; else 0 */
    const void *k, *v;     /* [n_tokens][n_kv_heads][head_dim] f16 */
    const float *received; /* [n_kv_heads][n_tokens], where it is counted */
    uint32_t budget;       /* tokens that a lane of the layer keeps, where lanes have a budget */
} pleat__device_prompt;

/* Levels of the prompt's tokens: n_slots of the layer's rows, and order. */
pleat_status pleat__device_lanes_class(const pleat__device_lanes *lanes, const pleat__device_prompt *prompt,
                                       pleat__device_stream stream, pleat_error *err);

/* The same where lanes have a budget: who stays, and in which slots the spec's reclaim leaves the lane. */
pleat_status pleat__device_lanes_keep(const pleat__device_lanes *lanes, const pleat__device_prompt *prompt,
                                      pleat__device_stream stream, pleat_error *err);

/* novel: what keep ranks a prompt's tokens by, into novelty.scores; and the scores of a step's tokens, before evict. */
pleat_status pleat__device_lanes_score_prompt(const pleat__device_lanes *lanes, const pleat__device_prompt *prompt,
                                              pleat__device_stream stream, pleat_error *err);
pleat_status pleat__device_lanes_score_step(const pleat__device_lanes *lanes, pleat__device_stream stream,
                                            pleat_error *err);

/* Tokens into the pages that settle has left the rows: whole tiles, scores and positions included. */
pleat_status pleat__device_lanes_place(const pleat__device_lanes *lanes, const pleat__device_prompt *prompt,
                                       pleat__device_stream stream, pleat_error *err);

/* A chunk's tokens behind those of the layer's lanes, which have the pages for them: uniform formats alone. */
pleat_status pleat__device_lanes_extend(const pleat__device_lanes *lanes, const pleat__device_prompt *chunk,
                                        pleat__device_stream stream, pleat_error *err);

/* The layer's first n_past tokens as attention sees them, as f16, in the order of k and v: into keys and values
 * [n_past][n_kv_heads][head_dim].  Uniform formats alone. */
pleat_status pleat__device_lanes_gather(const pleat__device_lanes *lanes, const pleat__device_prompt *chunk,
                                        uint16_t *keys, uint16_t *values, pleat__device_stream stream,
                                        pleat_error *err);

/* What wide.cu has in place of class, place, extend, gather and append, for uniform formats, heads of any length and
 * layers with a window; and of extend, gather and append for rotated tokens.  count says what the layer's rows hold once the sequence has n_tokens; store is for prompts and
 * chunks, and gather of tokens from `first` on, which is 0 or what the layer's window still holds. */
pleat_status pleat__device_wide_count(const pleat__device_lanes *lanes, uint32_t seq_idx, uint32_t layer,
                                      uint32_t n_tokens, pleat__device_stream stream, pleat_error *err);
pleat_status pleat__device_wide_store(const pleat__device_lanes *lanes, const pleat__device_prompt *prompt,
                                      pleat__device_stream stream, pleat_error *err);
pleat_status pleat__device_wide_gather(const pleat__device_lanes *lanes, const pleat__device_prompt *chunk,
                                       uint32_t first, uint16_t *keys, uint16_t *values, pleat__device_stream stream,
                                       pleat_error *err);
pleat_status pleat__device_wide_append(const pleat__device_lanes *lanes, uint32_t layer, const void *k, const void *v,
                                       pleat__device_stream stream, pleat_error *err);

/* Rows of sequence `to`, which have the pages and slots of those of `from`, hold what these hold in pages [first_page,
 * n_pages) of each side. */
pleat_status pleat__device_lanes_copy(const pleat__device_lanes *lanes, uint32_t from, uint32_t to, uint32_t first_page,
                                      uint32_t n_pages, pleat__device_stream stream, pleat_error *err);

/* Made-up tokens in place of k and v and order: n_slots of the layer's rows say how many. */
pleat_status pleat__device_lanes_make(const pleat__device_lanes *lanes, const pleat__device_prompt *prompt,
                                      uint64_t seed, pleat__device_stream stream, pleat_error *err);

/* Pages first .. first + n - 1 of a sequence, row by row, in each the high side's first. */
typedef struct pleat__device_piece {
    uint32_t seq_idx, first, n;
    const uint32_t *before; /* [rows_per_seq + 1] device memory: pages of the rows before each, and of all */
    /* [2][rows_per_seq] device memory, for put: so many pages of a side hold means in place of sums, of a sequence of
     * n_tokens.  NULL: none do. */
    const uint32_t *sealed;
    uint32_t n_tokens;
    uint8_t *pages;      /* [n][page_bytes] device memory */
    uint64_t page_bytes; /* a multiple of 16 */
} pleat__device_piece;

/* From the pool into the piece, what lies behind segments cleared; and back.  n_slots says how many pages are high. */
pleat_status pleat__device_lanes_bring(const pleat__device_lanes *lanes, const pleat__device_piece *piece,
                                       pleat__device_stream stream, pleat_error *err);
pleat_status pleat__device_lanes_put(const pleat__device_lanes *lanes, const pleat__device_piece *piece,
                                     pleat__device_stream stream, pleat_error *err);

/* Sums of n blocks of a piece's bytes, from byte `at` on, whatever that is a multiple of: cache/cuda/image_hash.h. */
typedef struct pleat__device_sums {
    const uint8_t *pages; /* of the piece */
    uint64_t at, n;
    uint64_t *sums; /* [n][8] device memory */
    uint64_t key[PLEAT__HASH_WORDS];
} pleat__device_sums;
pleat_status pleat__device_lanes_sum(const pleat__device_sums *of, pleat__device_stream stream, pleat_error *err);

/* The eight numbers of an image's hash go on by the sums of n blocks: a chain that no two launches may make at once. */
typedef struct pleat__device_chain {
    const uint64_t *sums; /* [n][8] device memory, aligned to 16 */
    uint64_t n;
    uint64_t *state; /* [8] device memory */
    uint64_t key[PLEAT__HASH_SUMS];
} pleat__device_chain;
pleat_status pleat__device_lanes_stir(const pleat__device_chain *of, pleat__device_stream stream, pleat_error *err);

/* Lanes of sequence seq_idx keep n_tokens tokens. */
pleat_status pleat__device_lanes_set_budget(const pleat__device_lanes *lanes, uint32_t seq_idx, uint32_t n_tokens,
                                            pleat__device_stream stream, pleat_error *err);

/* Sequence seq_idx has n_tokens tokens. */
pleat_status pleat__device_lanes_set_length(const pleat__device_lanes *lanes, uint32_t seq_idx, uint32_t n_tokens,
                                            pleat__device_stream stream, pleat_error *err);

pleat_status pleat__device_lanes_grow(const pleat__device_lanes *lanes, pleat__device_stream stream, pleat_error *err);

/* k, v  [n_seqs][n_kv_heads][head_dim] f16 */
pleat_status pleat__device_lanes_append(const pleat__device_lanes *lanes, uint32_t layer, const void *k, const void *v,
                                        pleat__device_stream stream, pleat_error *err);

/* The same of heads that are not ready; the queries go to q [n_seqs][n_kv_heads * n_group][head_dim] f16. */
pleat_status pleat__device_lanes_append_heads(const pleat__device_lanes *lanes, uint32_t layer,
                                              const pleat_device_cache_heads *heads, uint32_t n_group, uint16_t *q,
                                              pleat__device_stream stream, pleat_error *err);

pleat_status pleat__device_lanes_end(const pleat__device_lanes *lanes, pleat__device_stream stream, pleat_error *err);

/* Each lane that holds more than its budget loses a token. */
pleat_status pleat__device_lanes_evict(const pleat__device_lanes *lanes, pleat__device_stream stream, pleat_error *err);

/* A step's end where lanes have blocks: of each lane that has more than the buffer's tokens, the oldest become one. */
pleat_status pleat__device_lanes_compress(const pleat__device_lanes *lanes, pleat__device_stream stream,
                                          pleat_error *err);

/* The same of a layer's prompt, all tokens of which are in the high side: n_blocks of each lane. */
pleat_status pleat__device_lanes_compress_prompt(const pleat__device_lanes *lanes, uint32_t seq_idx, uint32_t layer,
                                                 uint32_t n_blocks, pleat__device_stream stream, pleat_error *err);

/* The pool's counters and the step's. */
typedef struct pleat__device_counters {
    pleat__device_pool pool;
    pleat__device_step_state step;
} pleat__device_counters;

/* What they are, to memory that the device can write, pinned memory of the host too. */
pleat_status pleat__device_lanes_tell(const pleat__device_lanes *lanes, pleat__device_counters *out,
                                      pleat__device_stream stream, pleat_error *err);

#ifdef __cplusplus
}
#endif
#endif
