/* SPDX-License-Identifier: MIT
 *
 * generate.c: the texts of `pleat run`.
 *
 *     drawn      the prompt's sequence, forked for each text but the first; each step appends a token to every text that
 *                goes on; one that ends is closed
 *     searched   search.h, on sequences as slots
 *
 * A text that is drawn with others is the one that would be drawn alone with its seed, where a cache has no policy:
 * policies go on classing a prompt's tokens, but not those of one that is shared.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"
#include "cli/lib/interrupt.h"
#include "cli/lib/measure.h"
#include "cli/lib/progress.h"
#include "cli/lib/terminal.h"
#include "run.h"

/* ---- steps ------------------------------------------------------------------------------------- */

/* Keep what r->usage is to say. */
static void watch(run *r) {
    const pleat_seq whole = {0};
    const uint64_t n_before = r->usage.pages_used;
    pleat_cache_usage now;
    if (pleat_engine_get_usage(r->engine, r->n_seqs == 1 ? r->seqs[0] : whole, &now) != PLEAT_OK) return;
    if (r->n_seqs == 1 || now.pages_used >= n_before) r->usage = now;
    r->usage.pages_peak = now.pages_peak;
}

static pleat_status fork_seq(run *r, uint32_t from, uint32_t to) {
    return pleat_engine_fork(r->engine, r->seqs[from], r->n_prompt + r->max_new, &r->seqs[to]);
}

static pleat_status close_seq(run *r, uint32_t seq) {
    const pleat_seq closed = r->seqs[seq];
    r->seqs[seq].v = 0;
    return pleat_engine_close(r->engine, closed);
}

/* Append one token to each of n sequences. */
static pleat_status extend(run *r, const run_share *shares, uint32_t n) {
    const pleat_status status = run_step(r, shares, n, 0);
    if (status != PLEAT_OK) return status;
    r->n_steps += n;
    watch(r);
    progress_update(pleat_engine_length(r->engine, r->seqs[shares[0].seq]) - r->n_prompt);
    return PLEAT_OK;
}

/* ---- text -------------------------------------------------------------------------------------- */

/* Add bytes of valid UTF-8 to the text, and show them at once where it streams. */
static void show(run *r, run_text *t, const char *bytes, size_t n) {
    if (t->n_bytes + n + 1 > t->cap) {
        const size_t cap = 2 * (t->n_bytes + n + 1);
        char *grown = cli_alloc(cap, 1);
        if (t->n_bytes) memcpy(grown, t->bytes, t->n_bytes);
        free(t->bytes);
        t->bytes = grown;
        t->cap = cap;
    }
    memcpy(t->bytes + t->n_bytes, bytes, n);
    t->n_bytes += n;
    if (run_streams(r) && n) {
        terminal_put_text(r->out.file, bytes, n);
        output_flush(&r->out);
    }
}

/* An answer of a conversation is a text of its own; else the text goes on from the prompt. */
static int begin_shown(run *r) {
    const uint32_t flags = (r->o->special ? PLEAT_DETOKENIZE_SPECIAL : 0) | (r->o->chat ? 0 : PLEAT_DETOKENIZE_MIDDLE);
    for (uint32_t i = 0; i < SEARCH_MAX; i++) {
        const pleat_status status = pleat_detokenizer_init(&r->texts[i].shown, r->l.model, flags);
        if (status != PLEAT_OK) return cli_fail("cannot show text", status, NULL);
    }
    return CLI_OK;
}

static void show_token(run *r, run_text *t, pleat_token token) {
    size_t n = 0;
    t->n_tokens++;
    if (!pleat_model_token_text(r->l.model, token, &n)) return;
    const size_t cap = PLEAT_DETOKENIZER_CAP(n);
    char *text = cli_alloc(cap, 1);
    if (pleat_detokenizer_put(&t->shown, token, text, cap, &n) == PLEAT_OK) show(r, t, text, n);
    free(text);
}

static void end_shown(run *r, run_text *t) {
    char rest[PLEAT_DETOKENIZER_CAP(0)];
    size_t n = 0;
    if (pleat_detokenizer_end(&t->shown, rest, sizeof rest, &n) == PLEAT_OK) show(r, t, rest, n);
}

/* ---- drawn ------------------------------------------------------------------------------------- */

/* A sampler for each text, and for all but the first a sequence too. */
static int begin_texts(run *r) {
    const run_options *o = r->o;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_sampler_options sampling = run_sampling(o);
    for (uint32_t i = 0; i < o->n_best; i++) {
        const size_t row = r->l.info.n_vocab;
        sampling.seed = r->texts[i].seed = o->seed + i;
        pleat_status status = pleat_sampler_create(&sampling, r->l.info.n_vocab, NULL, &r->texts[i].sampler, &err);
        if (status != PLEAT_OK) return cli_fail("cannot make the sampler", status, &err);
        r->texts[i].score = NAN;
        r->texts[i].logprob = o->n_best > 1 ? 0 : NAN;
        if (i == 0) continue;
        status = fork_seq(r, 0, i);
        if (status != PLEAT_OK) return cli_fail("cannot fork the prompt", status, NULL);
        memcpy(r->logits + i * row, r->logits, row * sizeof *r->logits);
    }
    r->n_texts = o->n_best;
    return CLI_OK;
}

/* What ends a text that may still go on; NULL: nothing. */
static const char *outer_end(const run *r, const run_text *t) {
    if (r->out.whole.why) return "not written";
    return interrupt_came() ? "interrupted" : t->n_tokens == r->max_new ? "length" : NULL;
}

/* Draw the next token of text i.  Says in its finish if that is the end. */
static int draw(run *r, uint32_t i, pleat_token *token) {
    run_text *t = &r->texts[i];
    const float *logits = r->logits + (size_t)i * r->l.info.n_vocab;
    t->finish = outer_end(r, t);
    if (t->finish) return CLI_OK;
    const pleat_status status = pleat_sampler_sample(t->sampler, logits, token);
    if (status != PLEAT_OK) return cli_fail("cannot draw a token from the logits", status, NULL);
    if (r->n_texts > 1) t->logprob += (double)logits[*token] - search_log_sum(logits, r->l.info.n_vocab);
    if (pleat_model_token_is_end(r->l.model, *token)) {
        t->finish = "stop";
        return CLI_OK;
    }
    show_token(r, t, *token);
    t->finish = outer_end(r, t);
    return CLI_OK;
}

/* Draw tokens until something has ended every text. */
static int draw_texts(run *r) {
    for (;;) {
        run_share shares[SEARCH_MAX];
        pleat_token tokens[SEARCH_MAX];
        uint32_t n = 0;
        for (uint32_t i = 0; i < r->n_texts; i++) {
            if (r->texts[i].finish) continue;
            if (draw(r, i, &tokens[i]) != CLI_OK) return CLI_FAILED;
            if (r->texts[i].finish)
                close_seq(r, i); /* cannot fail: it is open, and no step is under way */
            else
                shares[n++] = (run_share){i, 1, &tokens[i]};
        }
        if (n == 0) return CLI_OK;
        if (run_step_code(r, extend(r, shares, n)) != CLI_OK) return CLI_FAILED;
    }
}

/* ---- searched ---------------------------------------------------------------------------------- */

static int slot_is_end(void *self, pleat_token token) {
    const run *r = self;
    return pleat_model_token_is_end(r->l.model, token);
}

static int is_interrupted(void *self) {
    (void)self;
    return interrupt_came();
}

static pleat_status slot_fork(void *self, uint32_t from, uint32_t to) { return fork_seq(self, from, to); }

static pleat_status slot_close(void *self, uint32_t slot) { return close_seq(self, slot); }

static pleat_status slots_step(void *self, const uint32_t *slots, const pleat_token *tokens, uint32_t n) {
    run_share shares[SEARCH_MAX];
    for (uint32_t i = 0; i < n; i++) shares[i] = (run_share){slots[i], 1, &tokens[i]};
    return extend(self, shares, n);
}

static int search_texts(run *r) {
    const search_options opt = {r->o->n_beams, r->o->n_best, r->max_new, r->l.info.n_vocab};
    const search_model model = {r, r->logits, slot_is_end, is_interrupted, slot_fork, slot_close, slots_step};
    search_result found;
    const pleat_status status = search_run(&opt, &model, &found);
    for (uint32_t i = 0; i < found.n; i++) {
        const search_text *text = &found.texts[i];
        run_text *t = &r->texts[i];
        t->finish = text->finish;
        t->logprob = text->logprob;
        t->score = text->score;
        for (uint32_t k = 0; k < text->n_tokens; k++) show_token(r, t, text->tokens[k]);
    }
    r->n_texts = found.n;
    search_release(&found);
    return status == PLEAT_OK ? CLI_OK : cli_fail("the search failed", status, &r->err);
}

int run_generate(run *r) {
    const double start_s = measure_now_s();
    watch(r);
    progress_begin("generating", r->max_new, !r->o->common.quiet && !run_streams(r));
    int code = begin_shown(r);
    if (code == CLI_OK && r->o->n_beams) {
        code = search_texts(r);
    } else if (code == CLI_OK) {
        code = begin_texts(r);
        if (code == CLI_OK) code = draw_texts(r);
    }
    progress_end();
    r->generation_s = measure_now_s() - start_s;
    for (uint32_t i = 0; i < r->n_texts; i++) end_shown(r, &r->texts[i]);
    if (run_streams(r) && r->texts[0].n_bytes) fputc('\n', r->out.file);
    return code;
}
