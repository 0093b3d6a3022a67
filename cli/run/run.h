/* SPDX-License-Identifier: MIT
 *
 * run.h: what the parts of `pleat run` share.
 *
 *     options.c    what it takes
 *     run.c        the prompt, and the engine that reads it
 *     prompt_cache.h  a prompt that another run has read
 *     generate.c   one text, several drawn ones, or a search
 *     report.c     what is printed of them
 *     chat.h       a conversation, where --chat has no prompt
 *     setup.c      what an answer and a conversation begin with
 *     step.c       a step of the engine, and Ctrl-C: below all of them
 */
#ifndef PLEAT_CLI_RUN_H
#define PLEAT_CLI_RUN_H

#include "cli/lib/load.h"
#include "cli/lib/output.h"
#include "cli/lib/prompt/replay.h"
#include "cli/lib/utf8.h"
#include "search.h"

typedef struct run_options {
    common_options common;
    load_options load;
    uint32_t ctx_size;                       /* 0: the model's */
    const char *cache_type_k, *cache_type_v; /* NULL: not given */
    const char *prompt;                      /* NULL: not given */
    const char *file;                        /* of the prompt; NULL: not given */
    const char *prompt_cache;                /* file that keeps what was read of it; NULL: not given */
    int chat;                                /* wrap the prompt as a user's turn, or hold a conversation */
    const char *system;                      /* text in front of it; NULL: none */
    const char *load_path;                   /* of the conversation to go on with; NULL: a new one */
    int special;                             /* read and print special tokens */
    int32_t n_predict;                       /* -1: until the context is full */
    float temp, top_p, min_p;
    uint32_t top_k;
    uint64_t seed;
    uint32_t n_best;  /* texts */
    uint32_t n_beams; /* 0: no search */
} run_options;

/* A text in the making. */
typedef struct run_text {
    pleat_sampler *sampler; /* NULL: found by a search */
    uint64_t seed;
    uint32_t n_tokens;  /* generated */
    const char *finish; /* "stop", "length" or "interrupted"; NULL: goes on */
    char *bytes;        /* [n_bytes] so far, valid UTF-8; NULL: none */
    size_t n_bytes, cap;
    pleat_detokenizer shown;
    double logprob, score; /* NAN: not known */
} run_text;

typedef struct run {
    const run_options *o;
    loaded l;
    output out;
    pleat_engine *engine;
    pleat_error err; /* of the last step */

    char *asked;              /* the prompt as it was given, without a chat's form; NULL: not read yet */
    pleat_token *prompt;      /* [n_prompt] */
    uint32_t n_prompt, n_fed; /* n_fed < n_prompt only after Ctrl-C */
    uint32_t n_taken;         /* of n_fed, those that --prompt-cache had */
    replay again;
    uint32_t n_ctx;      /* most tokens, prompt and generated */
    uint32_t max_new;    /* most tokens to generate in a text */
    int is_bound_by_ctx; /* max_new is what the context leaves, not what -n says */

    uint32_t n_seqs;            /* sequences at once: texts drawn, or beams */
    pleat_seq seqs[SEARCH_MAX]; /* [n_seqs]; v 0: closed */
    float *logits;              /* [n_seqs][n_vocab] of the newest tokens */

    uint32_t n_texts;
    run_text texts[SEARCH_MAX];

    double prompt_s, generation_s;
    uint64_t n_steps;        /* tokens fed one at a time within generation_s */
    pleat_cache_usage usage; /* of one text at its end; of several together when they held the most pages */
} run;

/* Whether texts are shown as they come. */
static inline int run_streams(const run *r) {
    return r->out.format == FORMAT_TERMINAL && r->n_seqs == 1 && !r->o->n_beams;
}

/* ---- setup.c --------------------------------------------------------------------------------- */

/* The spec that --kv, or -ctk and -ctv, or else the default names.  CLI_OK, or CLI_USAGE after a message. */
int run_take_spec(run_options *o);

/* Settle r->n_ctx.  CLI_OK, or CLI_FAILED after a message. */
int run_fit_ctx(run *r);

/* What --temp and its kin ask for. */
pleat_sampler_options run_sampling(const run_options *o);

/* The traits of this cache. */
pleat_cache_traits run_traits(const pleat_cache_options *cache);

/* Tokens of a text in chat form (load_form()), or of one's rest where its beginning has become tokens already.  The caller frees *ids. */
int run_form_tokens(const loaded *l, const char *text, size_t n, int is_begun, pleat_token **ids, uint32_t *n_ids);

/* ---- step.c ---------------------------------------------------------------------------------- */

/* Append tokens to sequences in one step.  With PLEAT_ITEM_MORE in `flags` a prompt goes on; else the last token's
 * logits go to r->logits. */
typedef struct run_share {
    uint32_t seq; /* of r->seqs */
    uint32_t n_tokens;
    const pleat_token *tokens;
} run_share;
pleat_status run_step(run *r, const run_share *shares, uint32_t n_shares, uint32_t flags);

/* What run_step() came back with, as an exit code after a message. */
int run_step_code(const run *r, pleat_status status);

/* ---- generate.c, report.c, run.c ------------------------------------------------------------- */

/* Generate r->texts after the prompt has been read; show them as they come where they stream.  CLI_OK, or CLI_FAILED
 * after a message. */
int run_generate(run *r);

/* Print what came of it.  CLI_OK, CLI_INTERRUPTED, or CLI_FAILED after a message. */
int run_report(run *r);

/* All of it; `opts` is a run_options. */
int run_main(void *opts);

#endif
