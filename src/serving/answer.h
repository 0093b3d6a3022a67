/* SPDX-License-Identifier: MIT
 *
 * answer.h: what a request wants of its answer beside tokens: text, where it ends, probabilities, and what moves the
 * choice of tokens.
 *
 *     logits ──pleat__answer_move─> a copy: + biases, - penalties ──sampler──> token
 *       └──────pleat__answer_see──> logprobs of the token
 *     token  ──pleat__answer_take─> text          stops found, what may become one held back
 *
 * Text.  What was detokenized and not yet handed out stands in `held`.  A stop string is looked for in it after each
 * token.  If there is none, all of `held` is handed out but its longest end with which a stop string begins:
 *
 *     held before | text of the token          stop "\n\nUser:"
 *     "\n"        | "\nUse"                    "\n\nUse" is held on: 6 of the stop's 7 bytes
 *     "\n\nUse"   | "ful"                      nothing is a stop's beginning any more: "\n\nUseful" goes out
 *
 * What is held on is shorter than the longest stop string, so `held` has a bound: that, and a token's text.
 */
#ifndef PLEAT_SERVING_ANSWER_H
#define PLEAT_SERVING_ANSWER_H

#include <stdbool.h>

#include "pleat/serving.h"
#include "serving/json_tokens.h"

typedef struct pleat__stop {
    const char *text;
    uint32_t n_bytes;
} pleat__stop;

typedef struct pleat__answer {
    /* Terms: constant. */
    bool wants_text, wants_logprobs, wants_prompt, wants_json;
    uint32_t n_top, n_prompt;
    uint32_t n_stops, n_stop_ids, n_biases;
    pleat__stop *stops;
    pleat_token *stop_ids;
    pleat_logit_bias *biases;
    float frequency, presence, repetition;
    const pleat_model *model;

    /* State. */
    uint32_t
        *counts; /* [n_vocab] how often in the answer; IN_PROMPT: in the prompt.  NULL: no penalties, or not begun */
    pleat_detokenizer detokenizer;
    char *held;      /* [held_cap] text that has not been handed out, behind what the last event told of it */
    uint32_t n_held; /* bytes in it */
    uint32_t n_out;  /* bytes that go out with the next event */
    uint32_t n_told; /* bytes at the front that events have told; 0 once they are forgotten */
    uint32_t held_cap;
    const pleat__json_tokens *json_tokens; /* where wants_json, before its first token */
    pleat__json *json;                     /* what has been written of the object; NULL: not wants_json */
    pleat__shape shape;                    /* what that object has to be; empty where it may be any */
    char *mark;                            /* [n_mark] text behind which an object comes; n_mark 0: it is all */
    uint32_t n_mark, n_marked;             /* n_marked: bytes of it that the text ends with */
    bool in_json;                          /* an object is being written */
    bool has_logprobs;                     /* logprobs are of the token chosen last */
    pleat_logprob logprobs[1 + PLEAT_LOGPROBS_MAX];
    pleat_logprob *prompt_logprobs; /* [n_prompt][1 + n_top]; NULL: not wanted */
    bool has_told_prompt;           /* an event had them */

    uint64_t block_bytes;
} pleat__answer;

/* Check what a request wants of its answer.  model NULL: there is none. */
pleat_status pleat__answer_check(const pleat_request *q, const pleat_model *model, uint32_t n_vocab, pleat_error *err);

/* What a checked request wants; *out NULL if that is nothing.  max_token_bytes: the longest text of a token. */
pleat_status pleat__answer_create(const pleat_request *q, const pleat_model *model, uint32_t max_token_bytes,
                                  const pleat_allocator *al, pleat__answer **out);
void pleat__answer_destroy(const pleat_allocator *al, uint32_t n_vocab, pleat__answer *a);

/* Before its first token: what penalties count with.  PLEAT_E_MEMORY. */
pleat_status pleat__answer_begin(pleat__answer *a, const pleat_request_stats *stats, const pleat_token *tokens,
                                 const pleat_allocator *al, uint32_t n_vocab);

/* Logits of n_rows prompt tokens from `first` on: each is what the next token's probability comes from. */
void pleat__answer_see_prompt(pleat__answer *a, const pleat_token *prompt, uint32_t n_prompt, uint32_t first,
                              uint32_t n_rows, const float *logits, uint32_t n_vocab);

/* Does anything move the choice? */
bool pleat__answer_moves(const pleat__answer *a);

/* Does it look at logits? */
bool pleat__answer_wants_logits(const pleat__answer *a);

/* Write the logits that a token is going to be chosen from. */
void pleat__answer_move(const pleat__answer *a, const float *logits, float *moved, uint32_t n_vocab);

/* May this token follow? */
bool pleat__answer_fits(const pleat__answer *a, pleat_token token);

/* The logits of those that may not follow become -inf. */
void pleat__answer_mask(const pleat__answer *a, float *logits);

/* Is there nothing more to write? */
bool pleat__answer_is_whole(const pleat__answer *a);

/* A token was chosen: note its logprobs if they are wanted. */
void pleat__answer_see(pleat__answer *a, pleat_token token, const float *logits, uint32_t n_vocab);

bool pleat__answer_has_stop_id(const pleat__answer *a, pleat_token token);

/* The token joins the answer.  True: its text has come to a stop string. */
bool pleat__answer_take(pleat__answer *a, pleat_token token);

/* No token follows: all that is held goes out, up to a stop string. */
void pleat__answer_close(pleat__answer *a);

/* Fill in what the answer has to say in an event, whose `chosen` is set. */
void pleat__answer_tell(pleat__answer *a, pleat_serving_event *event);

#endif
