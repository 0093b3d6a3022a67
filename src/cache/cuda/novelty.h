/* SPDX-License-Identifier: MIT
 *
 * novelty.h: how unlike a token's key is to the others of its lane (policy/novelty.h), on a GPU: the scores of novel.
 *
 *     a prompt, layer by layer     add      u of each token, summed by blocks
 *                                  mean     the blocks' sums in their order: the lane's sum, and what it points to
 *                                  score    own of each token
 *                                  near     the scores: own over neighbours; keep ranks by them, and place stores them
 *     a step                       next     the new token joins its lane's sum, is scored, and joins the scores of those
 *                                           before it: a warp for each lane, before evict
 *
 * A prompt's keys are taken as they are handed in, in f16, where the CPU takes them as its pages hold them; a step's as
 * pages hold them.  Until a sequence is longer than the window nothing is scored: the step that makes it longer scores
 * all of its tokens, one after the other, as on the CPU.
 *
 * Turns are undone by policy/novelty.h's tables.
 */
#ifndef PLEAT_CACHE_CUDA_NOVELTY_H
#define PLEAT_CACHE_CUDA_NOVELTY_H

#include "hw/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Most kinds of turns that a model's layers have. */
#define PLEAT__DEVICE_TURNS_MOST 2u
#define PLEAT__DEVICE_NO_TURNS 0xFFu

/* Blocks that add up a lane's prompt. */
#define PLEAT__NOVELTY_PARTS 64u

/* pleat__turns, in device memory. */
typedef struct pleat__device_turns {
    uint32_t n_pairs, first, other;
    const float *near, *far; /* rows of [2][n_pairs] */
} pleat__device_turns;

/* Pointers are device memory. */
typedef struct pleat__device_novelty {
    bool is_on, has_means;
    uint32_t near;
    uint32_t n_turns;
    pleat__device_turns turns[PLEAT__DEVICE_TURNS_MOST];
    const uint8_t *turns_of; /* [n_layers] which of them, or PLEAT__DEVICE_NO_TURNS */
    float *sums;             /* [max_seqs][rows_per_seq][head_dim] of lanes; NULL with means */
    float *means;            /* [rows_per_seq][head_dim] the model's; without them [n_kv_heads][head_dim] of a prompt */
    float *parts;            /* [n_kv_heads][PLEAT__NOVELTY_PARTS][head_dim] */
    float *own, *scores;     /* [n_kv_heads][max_tokens] of a prompt's layer, rows of its n_tokens */
} pleat__device_novelty;

#ifdef __cplusplus
}
#endif
#endif
