/* SPDX-License-Identifier: MIT
 *
 * replay.h: the second reading of a prompt by which kvzip drops tokens (PLEAT_ITEM_REPLAY).
 *
 *     the prompt, read ── request to repeat it, its first tokens ── request to go on, the next tokens ── ...
 *                         a step, whose tokens are not kept         another
 *
 * The requests are KVzip's; behind each stands what ends a user's turn and begins an answer in the model's chat form, if it
 * has one.  Other specs have no such reading: all of these calls do nothing then.
 */
#ifndef PLEAT_CLI_REPLAY_H
#define PLEAT_CLI_REPLAY_H

#include "cli/lib/load.h"

typedef struct replay {
    pleat_token *ask[2]; /* to repeat what stands first, or what comes behind some tokens */
    pleat_token *turn;   /* the end of the user's turn */
    uint32_t n_ask[2], n_turn;
    pleat_token *step; /* [cap] */
    uint32_t cap;      /* most tokens of a step; 0: the spec has no such reading */
    uint32_t least;    /* a step has room for so many at least */
    uint32_t n_ctx;    /* the model's context */
} replay;

/* Make the requests ready.  chunk_tokens: of a step.  CLI_OK, or CLI_FAILED after a message. */
int replay_prepare(const loaded *l, const pleat_spec *spec, uint32_t chunk_tokens, replay *out);
void replay_release(replay *r);

/* Most tokens of a sequence that has n and room for the reading: as many as the model's context allows. */
uint32_t replay_max_tokens(const replay *r, const loaded *l, uint32_t n);

/* Does the context leave room for a step behind n tokens?  PLEAT_OK, or PLEAT_E_LIMIT with err's text. */
pleat_status replay_check(const replay *r, uint32_t n, pleat_error *err);

/* Read the sequence's n tokens again, and drop what the spec drops.  After Ctrl-C it stops between steps, and PLEAT_OK.
 * told: NULL, or called with the tokens that have been read again. */
pleat_status replay_prompt(const replay *r, pleat_engine *engine, pleat_seq seq, const pleat_token *tokens, uint32_t n,
                           void (*told)(uint64_t n_done), pleat_error *err);

#endif
