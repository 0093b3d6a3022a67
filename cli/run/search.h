/* SPDX-License-Identifier: MIT
 *
 * search.h: beam search: the likeliest texts that go on from a prompt.
 *
 * All running texts are equally long.  A step looks at the 2 * n_beams likeliest continuations of all of them, by the
 * sum of the tokens' log-probabilities:
 *
 *     1  2  3 .. n_beams | .. 2 * n_beams      likeliest first; among equals the older beam, then the lower token
 *     those that end       their ends are      an end token among the first n_beams: a text is finished
 *     are finished texts   forgotten           the n_beams likeliest others run on: there are as many unless ends
 *                                              or tokens that cannot follow took their places
 *
 * A text's score is its log-probability per token: the sum over its tokens, the end token included, by their number.
 * The search is over when
 *
 *   (1) n_beams texts have ended; with one beam this is greedy decoding;
 *   (2) or the n_best best of those that ended score at least logprob / max_new of the likeliest one running, which
 *       is what it could still reach;
 *   (3) or max_new tokens are there: the running texts then count as finished.
 *
 * With as many beams as there are texts the best text is found.  Which text is found depends on the logits alone.
 *
 * What texts are kept in is somebody else's: the search names it by slots.  A text that is continued once stays in its
 * slot, one that is not is closed, and further continuations are forked, after all closing.
 */
#ifndef PLEAT_CLI_SEARCH_H
#define PLEAT_CLI_SEARCH_H

#include "pleat/pleat.h"

#define SEARCH_MAX 64 /* beams, and texts of one prompt */

typedef struct search_options {
    uint32_t n_beams; /* 1..SEARCH_MAX */
    uint32_t n_best;  /* texts wanted, 1..n_beams */
    uint32_t max_new; /* most tokens of a text */
    uint32_t n_vocab;
} search_options;

/* The model that is searched.  Slots are 0..n_beams-1; slot 0 holds the prompt at first, the others are closed.  What
 * returns a status ends the search if it is not PLEAT_OK. */
typedef struct search_model {
    void *self;
    const float *logits; /* [n_beams][n_vocab], by slot: what may follow; slot 0's are there at first */
    int (*is_end)(void *self, pleat_token token);
    int (*is_interrupted)(void *self); /* asked before each step: whether to end the search with what there is */
    pleat_status (*fork)(void *self, uint32_t from, uint32_t to);
    pleat_status (*close)(void *self, uint32_t slot);
    /* Append one token to each of n slots, and write their logits. */
    pleat_status (*step)(void *self, const uint32_t *slots, const pleat_token *tokens, uint32_t n);
} search_model;

typedef struct search_text {
    double logprob;      /* natural logarithm */
    double score;        /* logprob per token; 0 for no token */
    const char *finish;  /* "stop", "length" or "interrupted" */
    uint32_t n_tokens;   /* without the end token */
    pleat_token *tokens; /* owned */
} search_text;

typedef struct search_result {
    uint32_t n;                    /* at most n_best; fewer when there are no more */
    search_text texts[SEARCH_MAX]; /* best first; among equals, what was finished first */
} search_result;

/* Search.  All slots are closed in the end, after errors too.  PLEAT_E_ARG for logits with a NaN, a +inf or nothing but
 * -inf; PLEAT_E_MEMORY; or what the model returned.  *out is to be released whatever comes back. */
pleat_status search_run(const search_options *opt, const search_model *model, search_result *out);
void search_release(search_result *result);

/* Natural logarithm of the sum of exp(logits[0..n)): a token's log-probability is its logit less this.  Not finite for
 * logits that search_run() refuses. */
double search_log_sum(const float *logits, uint32_t n);

#endif
