/* SPDX-License-Identifier: MIT
 *
 * forward.h: model/forward.h on a GPU: one pass of new tokens through the model, on a device cache.
 *
 *     pleat__device_forward_step     a token of each sequence of the cache's batch: begins and ends the cache's step.
 *                                    Can be recorded in a graph
 *     pleat__device_forward_prompt   the prompt of an empty sequence, whole, or more tokens of one that holds some: begins
 *                                    and ends it
 *
 * A sequence's logits depend on its own tokens, and in the last bits on the batch as far as the cache's attention does
 * (pleat/device_cache.h).  Products, norms and all else depend on the row alone.
 *
 * Numbers: x and sums are f32; what products read, and keys, values and queries, are f16.
 *
 * Where cuBLASLt is found (model/cuda/gemm.h), products of a prompt of PLEAT__GEMM_LEAST tokens or more are its, and with
 * matrices of F16 those of any prompt or step of PLEAT__GEMM_FROM rows and more; but never the logits of a prompt.  So what
 * a token's logits are may depend, in last bits, on the class of its prompt's length, and of its step's size
 * (pleat__gemm_class()).  With is_fixed it does not: steps go by mul.h's kernels, and all products of all prompts by
 * cuBLASLt in one class.  Then a prompt's token has the same bits whatever part of the prompt is read with it.
 */
#ifndef PLEAT_MODEL_CUDA_FORWARD_H
#define PLEAT_MODEL_CUDA_FORWARD_H

#include "model/cuda/weights.h"
#include "pleat/device_cache.h"

typedef struct pleat__device_forward pleat__device_forward;

/* Most rows whose logits are made at once. */
#define PLEAT__LOGIT_ROWS 128u

/* Tokens of a prompt from which on it is worth while to take weights out of their tiles: at 8 billion weights in F16
 * that takes as long as mul.h's kernels take for 100 tokens or so. */
#define PLEAT__GEMM_LEAST 256u

typedef struct pleat__device_forward_options {
    uint32_t max_rows;  /* most tokens of a prompt, and of a step */
    uint32_t max_items; /* most sequences of a step */
    bool has_scores;    /* prompts tell the cache what tokens receive */
    bool is_fixed;      /* see above */
} pleat__device_forward_options;

/* All device memory is taken here, beside the weights'. */
pleat_status pleat__device_forward_create(const pleat__device_weights *weights,
                                          const pleat__device_forward_options *opt, const pleat_allocator *al,
                                          pleat__device_forward **out, pleat_error *err);
void pleat__device_forward_destroy(pleat__device_forward **fw);

/* Bytes of device memory that create takes. */
uint64_t pleat__device_forward_bytes(const pleat_model *model, const pleat__device_forward_options *opt);

/* The next step's tokens and positions: [max_items] each, memory of the host that a step reads when it runs. */
int32_t *pleat__device_forward_tokens(pleat__device_forward *fw);
uint32_t *pleat__device_forward_positions(pleat__device_forward *fw);

/* One token of each of the batch's n sequences; logits of all of them. */
pleat_status pleat__device_forward_step(pleat__device_forward *fw, pleat_device_cache *cache, uint32_t n,
                                        pleat__device_stream stream, pleat_error *err);

/* Row i of the last step's logits, [n_vocab] f32 in device memory. */
const float *pleat__device_forward_logits(const pleat__device_forward *fw, uint32_t i);

/* Of each of the last step's rows: its likeliest token, the lowest id among equals; UINT32_MAX where a logit is no
 * finite number.  Memory of the host that a step writes, to be read once its stream has been waited for. */
const uint32_t *pleat__device_forward_greedy(const pleat__device_forward *fw);

/* tokens [n_tokens] behind n_past that the sequence holds, above 0 only in uniform formats.  Their last n_logits rows of logits go to `logits` [n_logits][n_vocab], host memory.  If
 * has_greedy, the last row's likeliest token is greedy()[0].  Waits. */
pleat_status pleat__device_forward_prompt(pleat__device_forward *fw, pleat_device_cache *cache, uint32_t seq_idx,
                                          uint32_t n_past, const pleat_token *tokens, uint32_t n_tokens,
                                          uint32_t n_logits, bool has_greedy, float *logits,
                                          pleat__device_stream stream, pleat_error *err);

/* Like pleat__device_forward_step(), and in the same pass a prompt of a sequence that is empty and not of the batch: each
 * product has the rows of both, so that weights are read once.  Its last token's logits and likeliest token are row n's.
 * Where is_fixed says how many rows share a product, where heads are made ready apart (as with windows), or where there are
 * too many rows, it does not go: mixes() says so.  Nor with blocks, or for logits of more than the last token: those are
 * the caller's to keep apart. */
bool pleat__device_forward_mixes(const pleat__device_forward *fw, const pleat_device_cache *cache, uint32_t n,
                                 uint32_t n_tokens);
pleat_status pleat__device_forward_mixed(pleat__device_forward *fw, pleat_device_cache *cache, uint32_t n,
                                         uint32_t seq_idx, const pleat_token *tokens, uint32_t n_tokens,
                                         pleat__device_stream stream, pleat_error *err);

#endif
