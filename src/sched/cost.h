/* SPDX-License-Identifier: MIT
 *
 * cost.h: what steps and swaps have cost so far, and what they will: to choose between swapping and recomputing, and to
 * replay traffic without a model.  Numbers in, numbers out; no clock.
 *
 *     step(load) = fixed + chunks * chunk + prompt * prompt tokens + token * generated tokens + byte * KV bytes    ns
 *     swap(n)    = n / bandwidth                                                                ns, one way; n bytes
 *
 * A chunk of a prompt costs something whatever its length: on a GPU it reads all weights once more.
 *
 * Observations are forgotten slowly (each weighs a 64th less than the next): a machine's speed drifts.  Steps of
 * generation alone teach `fixed`, `token` and `byte`; steps with a prompt, mixed ones too, teach `chunk` and `prompt` from
 * what the other prices leave of their time.  Until something has been observed its price is what the caller gave as a
 * first guess; prices that the steps seen do not tell apart stay close to what they were.  Prices are finite and >= 0.
 */
#ifndef PLEAT_SCHED_COST_H
#define PLEAT_SCHED_COST_H

#include "core/types.h"

typedef struct pleat__serving_cost {
    double fixed_ns, chunk_ns, prompt_ns, token_ns, byte_ns; /* of a step's parts; at first the caller's guesses */
    double swap_ns;                                          /* of a byte, one way; at first the caller's guess */
    double sums[22]; /* sums of the least squares that fit the prices (cost.c); at first 0 */
} pleat__serving_cost;

/* What a step does. */
typedef struct pleat__step_load {
    uint32_t n_chunks, n_prompt; /* chunks of prompts, and their tokens */
    uint32_t n_generated;
    uint64_t kv_bytes; /* read by generation */
} pleat__step_load;

/* A step and how long it took.  A time of 0 is no observation, nor is a step of no tokens or a swap of no bytes. */
void pleat__cost_observe_step(pleat__serving_cost *cost, const pleat__step_load *load, uint64_t ns);
void pleat__cost_observe_swap(pleat__serving_cost *cost, uint64_t n_bytes, uint64_t ns);

double pleat__cost_step_ns(const pleat__serving_cost *cost, const pleat__step_load *load);

/* Out and in again. */
double pleat__cost_swap_ns(const pleat__serving_cost *cost, uint64_t n_bytes);

/* A prompt of n_prompt tokens, a chunk in a step, then n_generated single tokens, each of which reads kv_bytes (the mean
 * of them).  n_neighbours others share each step: of such a step it is charged its own tokens and its part of what is
 * fixed. */
double pleat__cost_recompute_ns(const pleat__serving_cost *cost, uint32_t n_chunks, uint32_t n_prompt,
                                uint32_t n_generated, uint32_t n_neighbours, uint64_t kv_bytes);

#endif
