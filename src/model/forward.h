/* SPDX-License-Identifier: MIT
 *
 * forward.h: one pass of new tokens through the model, on a cache.
 *
 *     pleat_cache_begin      by the caller, with the same items
 *     pleat__forward_run     rows of all items, layer by layer; stores and attends through the cache
 *     pleat_cache_end        by the caller; pleat_cache_cancel on an error
 *
 * The logits of an item depend on its tokens, what its sequence has stored and how long the item is, bit for bit.  They
 * do not depend on the other items, the thread count or n_logits.
 */
#ifndef PLEAT_MODEL_FORWARD_H
#define PLEAT_MODEL_FORWARD_H

#include "model/internal.h"
#include "pleat/cache.h"

typedef struct pleat__forward pleat__forward;

/* One sequence's share of a step. */
typedef struct pleat__forward_item {
    const pleat_token *tokens; /* [n_tokens], each in 0..n_vocab-1 */
    uint32_t n_tokens;         /* >= 1 */
    uint32_t first_pos;        /* position of tokens[0]: the tokens that the sequence has stored */
    uint32_t n_logits;         /* logits of the last n_logits tokens are wanted; 0..n_tokens */
    float *logits;             /* [n_logits][n_vocab] */
} pleat__forward_item;

/* Bytes that create takes for steps of at most max_rows new tokens over all items; 0 if that does not fit 64 bits. */
uint64_t pleat__forward_bytes(const pleat_model *model, uint32_t max_rows, const pleat_workers *workers);

/* All memory is taken here.  Neither the model nor the workers (NULL: the caller's thread alone) are owned.
 * max_tokens: the most that a sequence may hold; where RoPE has divisors for long contexts, it says which count.
 * activation_bits: 16 or 8, what quantised matrices are multiplied with (linear.h).
 * PLEAT_E_ARG or PLEAT_E_MEMORY; err may be NULL. */
pleat_status pleat__forward_create(const pleat_model *model, uint32_t max_rows, uint32_t max_tokens,
                                   uint32_t activation_bits, pleat_workers *workers, const pleat_allocator *allocator,
                                   pleat__forward **out, pleat_error *err);

/* Run the step that was begun on `cache` with these items, at most max_rows tokens in all.  An error is the
 * cache's, or PLEAT_E_RANGE where a logit is not finite. */
pleat_status pleat__forward_run(pleat__forward *fw, pleat_cache *cache, const pleat__forward_item *items,
                                uint32_t n_items);

/* Set *fw to NULL.  NULL and *fw == NULL are fine. */
void pleat__forward_destroy(pleat__forward **fw);

#endif
