/* SPDX-License-Identifier: MIT
 *
 * run.c: `pleat run`: a prompt, the texts that go on from it, and what the cache held for them.
 *
 *     prompt ----> chunks of -b tokens ----> one token at a time ----> end token, -n, full context or Ctrl-C
 *     (checked)    progress on stderr   |    text on stdout as it comes
 *                                       `--> forked: --n-best texts drawn, or --beams searched; printed when done
 *
 * Rules
 *  1. A prompt is never cut: one that leaves no room for a token is refused with both numbers.
 *  2. In the terminal form stdout carries the generated text and nothing else, always as valid UTF-8; several texts
 *     have a line in front of each.
 *  3. The last token generated is never stored, since nothing reads it.
 *  4. The end token counts as no token and stands in no text.
 */
#include "run.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "common.h"
#include "progress.h"

static volatile sig_atomic_t is_interrupted;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    is_interrupted = 1;
}

int run_is_interrupted(void) { return is_interrupted; }

/* The first Ctrl-C ends the text in good order; a second one ends the process. */
static void catch_interrupt(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_interrupt;
    action.sa_flags = (int)(SA_RESETHAND | SA_RESTART); /* a write that is interrupted would lose text */
    sigaction(SIGINT, &action, NULL);
}

/* ---- the prompt -------------------------------------------------------------------------------- */

static int read_prompt(const options *o, char **text, size_t *n) {
    if (!o->prompt == !o->file) {
        cli_error(o->prompt ? "-p and -f exclude each other: give one prompt" : "no prompt: give -p TEXT or -f FILE");
        return CLI_USAGE;
    }
    if (o->prompt) {
        *n = strlen(o->prompt);
        *text = cli_copy(o->prompt, *n);
        return CLI_OK;
    }
    if (cli_read_file(o->file, text, n) != CLI_OK) return CLI_FAILED;
    if (*n && (*text)[*n - 1] == '\n') (*text)[--*n] = 0;
    return CLI_OK;
}

static int check_prompt(const options *o, const char *text, size_t n) {
    const size_t bad = utf8_first_invalid(text, n);
    if (bad < n) {
        cli_error("the prompt is not valid UTF-8: byte 0x%02x at offset %zu", (unsigned char)text[bad], bad);
        return CLI_FAILED;
    }
    const char *nul = memchr(text, 0, n);
    if (o->chat && nul) {
        cli_error("the prompt holds a NUL byte at offset %zu, which --chat cannot pass on", (size_t)(nul - text));
        return CLI_FAILED;
    }
    return CLI_OK;
}

/* Replace *text by the conversation that asks it. */
static int wrap_chat(const run *r, char **text, size_t *n) {
    const pleat_chat_message message = {"user", *text};
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    const size_t cap = *n + 256; /* ChatML adds about 50 bytes to a turn */
    char *wrapped = cli_alloc(cap, 1);
    const pleat_status status = pleat_model_chat(r->l.model, &message, 1, wrapped, cap, n, &err);
    if (status != PLEAT_OK) {
        free(wrapped);
        return cli_fail("--chat", status, &err);
    }
    free(*text);
    *text = wrapped;
    return CLI_OK;
}

/* Turn *text into r->prompt. */
static int tokenize_prompt(run *r, char **text, size_t n) {
    const options *o = r->o;
    const uint32_t flags = PLEAT_TOKENIZE_ADD_BOS | (o->chat || o->special ? PLEAT_TOKENIZE_SPECIAL : 0);
    const int is_empty = n == 0 && !o->chat; /* --chat asks an empty turn */
    int code = o->chat ? wrap_chat(r, text, &n) : CLI_OK;
    if (code == CLI_OK) code = load_tokens(&r->l, "the prompt", *text, n, flags, &r->prompt, &r->n_prompt);
    if (code == CLI_OK && r->n_prompt == 0) {
        cli_error("the prompt is empty, and this model puts no token in front of a text");
        return CLI_FAILED;
    }
    if (code == CLI_OK && is_empty && !o->quiet)
        cli_note("the prompt is empty: generation starts from the beginning-of-text token");
    return code;
}

/* The option of the sampler that was given, or NULL. */
static const char *sampling_given(const options *o) {
    pleat_sampler_options usual;
    pleat_sampler_options_default(&usual);
    return o->top_k != usual.top_k                            ? "--top-k"
           : o->top_p < usual.top_p || o->top_p > usual.top_p ? "--top-p"
           : o->min_p < usual.min_p || o->min_p > usual.min_p ? "--min-p"
           : o->seed != usual.seed                            ? "--seed"
                                                              : NULL;
}

/* Do --n-best, --beams and what draws go together? */
static int check_texts(const options *o) {
    if (o->n_beams && o->temp > 0)
        cli_error("--beams and --temp exclude each other: a search draws nothing");
    else if (o->n_beams && sampling_given(o))
        cli_error("--beams and %s exclude each other: a search draws nothing", sampling_given(o));
    else if (o->n_beams && o->n_best > o->n_beams)
        cli_error("--n-best %u is more than --beams %u can find", o->n_best, o->n_beams);
    else if (!o->n_beams && o->n_best > 1 && !(o->temp > 0))
        cli_error("--n-best %u needs --temp above 0: greedy texts would all be the same; --beams finds different ones",
                  o->n_best);
    else
        return CLI_OK;
    return CLI_USAGE;
}

/* The command line, the prompt and the model, in this order: what is cheap to refuse comes first. */
static int load(run *r, options *o) {
    char *text = NULL;
    size_t n = 0;
    int code = options_one_spec(o, "k8v4");
    if (code == CLI_OK) code = check_texts(o);
    if (code == CLI_OK) code = read_prompt(o, &text, &n);
    if (code == CLI_OK) code = check_prompt(o, text, n);
    if (code == CLI_OK) code = load_model(o, &r->l);
    if (code == CLI_OK) code = tokenize_prompt(r, &text, n);
    free(text);
    return code;
}

/* Settle how many tokens there may be. */
static int fit_context(run *r) {
    const uint32_t n_train = r->l.info.n_ctx, wanted = r->o->ctx_size;
    r->n_ctx = wanted ? wanted : n_train;
    if (wanted > n_train) {
        cli_error("--ctx-size %u: the model's context is %u tokens", wanted, n_train);
        return CLI_FAILED;
    }
    if (r->n_prompt >= r->n_ctx) {
        cli_error("the prompt is too long: it has %u tokens, and the context of %u has room for %u and a token to "
                  "generate",
                  r->n_prompt, r->n_ctx, r->n_ctx - 1);
        return CLI_FAILED;
    }
    const uint32_t room = r->n_ctx - r->n_prompt;
    r->is_bound_by_ctx = r->o->n_predict < 0 || (uint32_t)r->o->n_predict > room;
    r->max_new = r->is_bound_by_ctx ? room : (uint32_t)r->o->n_predict;
    return CLI_OK;
}

/* ---- the engine -------------------------------------------------------------------------------- */

/* Bytes of pages that several texts can hold together: the prompt's once, and each one's own.  Those are for what it
 * generates and for pages that cannot stay shared: part-filled ones, all that a sliding window moves over, under a
 * policy those of the newest tokens, of tokens that become blocks later those, and under eviction all that have dead
 * slots; copying takes as many again. */
static uint64_t pool_bytes(const run *r, const pleat_engine_options *engine) {
    enum { LARGEST_PAGE = 128 }; /* tokens, of those that a cache chooses itself */
    const pleat_model_info *model = &r->l.info;
    const uint32_t moved = engine->spec.window + engine->spec.buffer + engine->spec.block; /* those that a spec has */
    const uint32_t unshared = moved + 3 * LARGEST_PAGE;
    const int evicts = engine->spec.policy >= PLEAT_POLICY_RANDOM;
    const uint32_t own = r->max_new + (model->window || evicts || unshared > r->n_prompt ? r->n_prompt : unshared);
    const uint32_t n_own = evicts && engine->spec.reclaim == PLEAT_RECLAIM_COPY ? 2 * r->n_seqs : r->n_seqs;
    pleat_cache_options cache;
    pleat_cache_options_default(&cache);
    cache.spec = engine->spec;
    cache.n_layers = model->n_layers;
    cache.n_kv_heads = model->n_kv_heads;
    cache.n_q_heads = model->n_q_heads;
    cache.head_dim = model->head_dim;
    cache.max_tokens = engine->max_tokens;
    return pleat_cache_bytes_for(&cache, r->n_prompt, engine->max_tokens) +
           n_own * pleat_cache_bytes_for(&cache, own, engine->max_tokens);
}

static int make_engine(run *r) {
    const options *o = r->o;
    const uint32_t n_tokens = r->n_prompt + r->max_new;
    r->n_seqs = o->n_beams ? o->n_beams : o->n_best;
    pleat_engine_options opt = load_engine_options(o, &r->l, o->kv.spec[0], r->n_seqs, n_tokens, 0);
    if (r->n_seqs > 1) opt.pool_bytes = pool_bytes(r, &opt);
    if (load_engine_with(&r->l, &opt, &r->engine) != CLI_OK) return CLI_FAILED;
    const pleat_status status = pleat_engine_open(r->engine, n_tokens, &r->seqs[0]);
    if (status != PLEAT_OK) return cli_fail("cannot open a sequence", status, NULL);
    r->logits = cli_alloc((size_t)r->n_seqs * r->l.info.n_vocab, sizeof *r->logits);
    return CLI_OK;
}

pleat_status run_step(run *r, const run_share *shares, uint32_t n_shares, uint32_t flags) {
    pleat_engine_item items[SEARCH_MOST];
    const int wanted = !(flags & PLEAT_ITEM_MORE);
    for (uint32_t i = 0; i < n_shares; i++) {
        float *logits = r->logits + (size_t)shares[i].seq * r->l.info.n_vocab;
        items[i] = (pleat_engine_item){r->seqs[shares[i].seq], shares[i].tokens,       shares[i].n_tokens,
                                       wanted ? 1 : 0,         wanted ? logits : NULL, flags};
    }
    r->err = (pleat_error){0, PLEAT_NOWHERE, ""};
    return pleat_engine_step(r->engine, items, n_shares, &r->err);
}

int run_step_code(const run *r, pleat_status status) {
    return status == PLEAT_OK ? CLI_OK : cli_fail("a step failed", status, &r->err);
}

/* Where the prompt is to be forked it is sealed, so that a policy leaves its pages as they are. */
static int feed_prompt(run *r) {
    const uint32_t chunk = r->o->chunk_tokens, last_flags = r->n_seqs > 1 ? PLEAT_ITEM_SEAL_ALL : 0;
    const double start_s = cli_seconds();
    int code = CLI_OK;
    progress_begin("reading the prompt", r->n_prompt, !r->o->quiet);
    while (r->n_fed < r->n_prompt && code == CLI_OK && !is_interrupted) {
        const uint32_t left = r->n_prompt - r->n_fed, n = left < chunk ? left : chunk;
        const run_share share = {0, n, r->prompt + r->n_fed};
        code = run_step_code(r, run_step(r, &share, 1, n < left ? PLEAT_ITEM_MORE : last_flags));
        r->n_fed += n;
        progress_update(r->n_fed);
    }
    progress_end();
    r->prompt_s = cli_seconds() - start_s;
    return code;
}

static void release(run *r) {
    for (uint32_t i = 0; i < SEARCH_MOST; i++) {
        pleat_sampler_destroy(&r->texts[i].sampler);
        free(r->texts[i].bytes);
    }
    pleat_engine_destroy(&r->engine);
    load_release(&r->l);
    free(r->prompt);
    free(r->logits);
}

int command_run(options *o) {
    run r = {.o = o};
    int code = load(&r, o);
    if (code == CLI_OK) code = fit_context(&r);
    if (code == CLI_OK) code = output_open(&r.out, o);
    if (code == CLI_OK) code = make_engine(&r);
    if (code == CLI_OK) {
        catch_interrupt();
        code = feed_prompt(&r);
    }
    if (code == CLI_OK) code = run_generate(&r);
    if (code == CLI_OK) code = run_report(&r);
    const int closed = output_close(&r.out);
    release(&r);
    return code == CLI_OK ? closed : code;
}
