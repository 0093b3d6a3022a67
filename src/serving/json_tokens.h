/* SPDX-License-Identifier: MIT
 *
 * json_tokens.h: which tokens of a vocabulary may follow where a JSON object is being written (json.h).
 *
 * Tokens stand in buckets by their first byte.  Between the tokens of JSON few bytes may follow, so few buckets are looked
 * at.  In a string most tokens may follow, and those that are plain, whole characters that need no escape, are known
 * beforehand.  So a mask costs a look at each token of the vocabulary, and a walk along the bytes of few.
 *
 * Special tokens, those that end a text, and those without text never fit.
 */
#ifndef PLEAT_SERVING_JSON_TOKENS_H
#define PLEAT_SERVING_JSON_TOKENS_H

#include "pleat/model.h"
#include "serving/json.h"

typedef struct pleat__json_tokens {
    const pleat_model *model;
    uint32_t n_vocab;
    uint32_t *order;     /* [n_vocab] ids by first byte, plain ones with a bit; unfit ones last; NULL: not made */
    uint32_t first[257]; /* [b] where those begin that begin with byte b */
} pleat__json_tokens;

/* PLEAT_E_MEMORY: nothing has changed. */
pleat_status pleat__json_tokens_init(pleat__json_tokens *t, const pleat_model *model, uint32_t n_vocab,
                                     const pleat_allocator *al);
void pleat__json_tokens_release(pleat__json_tokens *t, const pleat_allocator *al);

/* May the token follow?  Then *json has taken it; else it is unspecified. */
bool pleat__json_tokens_take(const pleat__json_tokens *t, pleat__json *json, pleat_token token);

/* The logits of those that may not follow become -inf. */
void pleat__json_tokens_mask(const pleat__json_tokens *t, const pleat__json *json, float *logits);

#endif
