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

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chat.h"
#include "cli/lib/common.h"
#include "cli/lib/interrupt.h"
#include "cli/lib/measure.h"
#include "cli/lib/progress.h"
#include "cli/lib/terminal.h"
#include "prompt_cache.h"

/* ---- the prompt -------------------------------------------------------------------------------- */

static int read_prompt(const run_options *o, char **text, size_t *n) {
    if (o->prompt) {
        *n = strlen(o->prompt);
        *text = cli_copy(o->prompt, *n);
        return CLI_OK;
    }
    if (cli_read_file(CONTENT_PROMPT, o->file, text, n) != CLI_OK) return CLI_FAILED;
    if (*n && (*text)[*n - 1] == '\n') (*text)[--*n] = 0;
    return CLI_OK;
}

static int check_prompt(const run_options *o, const char *text, size_t n) {
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
    const char *system = r->o->system;
    const pleat_chat_message messages[] = {{"system", system}, {"user", *text}};
    char *wrapped;
    if (load_form(&r->l, "--chat", system ? messages : messages + 1, system ? 2 : 1, &wrapped, n) != CLI_OK)
        return CLI_FAILED;
    free(*text);
    *text = wrapped;
    return CLI_OK;
}

/* Turn *text into r->prompt. */
static int tokenize_prompt(run *r, char **text, size_t n) {
    const run_options *o = r->o;
    const uint32_t flags = PLEAT_TOKENIZE_ADD_BOS | (o->special ? PLEAT_TOKENIZE_SPECIAL : 0);
    const int is_empty = n == 0 && !o->chat; /* --chat asks an empty turn */
    int code = o->chat ? wrap_chat(r, text, &n) : CLI_OK;
    if (code == CLI_OK)
        code = o->chat ? run_form_tokens(&r->l, *text, n, 0, &r->prompt, &r->n_prompt)
                       : load_tokens(&r->l, "the prompt", *text, n, flags, &r->prompt, &r->n_prompt);
    if (code == CLI_OK && r->n_prompt == 0) {
        cli_error("the prompt is empty, and this model puts no token in front of a text");
        return CLI_FAILED;
    }
    if (code == CLI_OK && is_empty && !o->common.quiet)
        cli_note("the prompt is empty: generation starts from the beginning-of-text token");
    return code;
}

/* Do --n-best, --beams and --temp go together? */
static int check_texts(const run_options *o) {
    if (o->n_beams && o->n_best > o->n_beams)
        cli_error("--n-best %u is more than --beams %u can find", o->n_best, o->n_beams);
    else if (!o->n_beams && o->n_best > 1 && !(o->temp > 0))
        cli_error("--n-best %u needs --temp above 0: greedy texts would all be the same; --beams finds different ones",
                  o->n_best);
    else
        return CLI_OK;
    return CLI_USAGE;
}

/* The command line, the prompt and the model, in this order: what is cheap to refuse comes first. */
static int load(run *r, run_options *o) {
    char *text = NULL;
    size_t n = 0;
    int code = run_take_spec(o);
    if (code == CLI_OK) code = check_texts(o);
    if (code == CLI_OK) code = read_prompt(o, &text, &n);
    if (code == CLI_OK) code = check_prompt(o, text, n);
    if (code == CLI_OK) code = load_model(&o->load, &o->common, &r->l);
    if (code == CLI_OK) r->asked = cli_copy(text, n);
    if (code == CLI_OK) code = tokenize_prompt(r, &text, n);
    free(text);
    return code;
}

/* Settle how many tokens there may be. */
static int fit_context(run *r) {
    if (run_fit_ctx(r) != CLI_OK) return CLI_FAILED;
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
 * generates and for pages of the prompt that do not stay shared; where a step takes fresh pages for all that stays, for
 * as many again. */
static uint64_t pool_bytes(const run *r, const pleat_engine_options *engine) {
    const pleat_cache_options cache = load_cache_options(&r->l, engine);
    const pleat_cache_traits traits = run_traits(&cache);
    const int is_shared = traits.unshared_tokens <= r->n_prompt;
    const uint32_t own = r->max_new + (is_shared ? traits.unshared_tokens : r->n_prompt);
    const uint32_t n_own = traits.takes_fresh ? 2 * r->n_seqs : r->n_seqs;
    return pleat_cache_bytes_for(&cache, r->n_prompt, engine->max_tokens) +
           n_own * pleat_cache_bytes_for(&cache, own, engine->max_tokens);
}

static int make_engine(run *r, prompt_cache *kept) {
    const run_options *o = r->o;
    if (replay_prepare(&r->l, &o->load.kv.spec[0], o->load.chunk_tokens, &r->again) != CLI_OK) return CLI_FAILED;
    r->err = (pleat_error){0, PLEAT_NOWHERE, ""};
    const pleat_status fits = replay_check(&r->again, r->n_prompt, &r->err);
    if (fits != PLEAT_OK) return cli_fail("the prompt is too long", fits, &r->err);
    const uint32_t n_tokens = replay_max_tokens(&r->again, &r->l, r->n_prompt + r->max_new);
    r->n_seqs = o->n_beams ? o->n_beams : o->n_best;
    pleat_engine_options opt = load_engine_options(&o->load, &r->l, o->load.kv.spec[0], r->n_seqs, n_tokens, 0);
    /* A GPU's pool has room for each text whole: not all caches share pages there. */
    if (r->n_seqs > 1 && !load_wants_gpu(&o->load) && r->again.cap == 0) opt.pool_bytes = pool_bytes(r, &opt);
    if (load_engine_with(&r->l, &opt, &r->engine) != CLI_OK) return CLI_FAILED;
    r->logits = cli_alloc((size_t)r->n_seqs * r->l.info.n_vocab, sizeof *r->logits);
    if (o->prompt_cache && prompt_cache_take(r, kept) != CLI_OK) return CLI_FAILED;
    if (r->seqs[0].v) return CLI_OK;
    const pleat_status status = pleat_engine_open(r->engine, n_tokens, &r->seqs[0]);
    return status == PLEAT_OK ? CLI_OK : cli_fail("cannot open a sequence", status, NULL);
}

/* Read the prompt up to `end`, in chunks, the last of them with last_flags. */
static int feed_up_to(run *r, uint32_t end, uint32_t last_flags, prompt_cache *kept) {
    const uint32_t chunk = r->o->load.chunk_tokens;
    int code = CLI_OK;
    while (r->n_fed < end && code == CLI_OK && !interrupt_came()) {
        const uint32_t left = end - r->n_fed, n = left < chunk ? left : chunk;
        const uint32_t flags = n < left ? PLEAT_ITEM_MORE : last_flags;
        const run_share share = {0, n, r->prompt + r->n_fed};
        code = run_step_code(r, run_step(r, &share, 1, flags));
        prompt_cache_note(kept, r->n_fed, n, flags);
        r->n_fed += n;
        progress_update(r->n_fed);
    }
    return code;
}

/* Read the prompt a second time where the spec asks for it. */
static int feed_again(run *r) {
    if (r->again.cap == 0 || interrupt_came()) return CLI_OK;
    r->err = (pleat_error){0, PLEAT_NOWHERE, ""};
    progress_end();
    progress_begin("reading it again", r->n_prompt, !r->o->common.quiet);
    return run_step_code(
        r, replay_prompt(&r->again, r->engine, r->seqs[0], r->prompt, r->n_prompt, progress_update, &r->err));
}

/* Where the prompt is to be forked it is sealed, so that a policy leaves its pages as they are. */
static int feed_prompt(run *r, prompt_cache *kept) {
    const int keeps = r->o->prompt_cache && r->n_prompt > 1;
    const double start_s = measure_now_s();
    progress_begin("reading the prompt", r->n_prompt, !r->o->common.quiet);
    int code = CLI_OK;
    if (keeps && r->n_fed < r->n_prompt - 1) {
        code = feed_up_to(r, r->n_prompt - 1, 0, kept);
        if (code == CLI_OK && !interrupt_came()) code = prompt_cache_write(r, kept);
    }
    if (code == CLI_OK) code = feed_up_to(r, r->n_prompt, r->n_seqs > 1 ? PLEAT_ITEM_SEAL_ALL : 0, kept);
    if (code == CLI_OK) code = feed_again(r);
    progress_end();
    r->prompt_s = measure_now_s() - start_s;
    return code;
}

/* On a terminal the prompt's end, dimly, before the text that goes on from it.  Where styles do not show: nothing, since
 * what is not dim would pass for generated. */
static void echo_prompt(const run *r, const char *text) {
    enum { MOST = 400 };
    if (r->o->common.quiet || r->o->common.output || !run_streams(r)) return;
    if (!isatty(STDOUT_FILENO) || !terminal_has_styles(stderr)) return;
    const size_t n = strlen(text);
    const char *at = n > MOST ? text + n - MOST : text;
    while (((unsigned char)*at & 0xC0) == 0x80) at++; /* amid a character of UTF-8 */
    fprintf(stderr, "%s%s", terminal_begin(stderr, STYLE_DIM), at > text ? "... " : "");
    for (; *at; at++) fputc(*at != '\n' && iscntrl((unsigned char)*at) ? '?' : *at, stderr);
    fprintf(stderr, "%s%s", terminal_end(stderr), r->o->chat ? "\n" : "");
}

static void release(run *r) {
    for (uint32_t i = 0; i < SEARCH_MAX; i++) {
        pleat_sampler_destroy(&r->texts[i].sampler);
        free(r->texts[i].bytes);
    }
    pleat_engine_destroy(&r->engine);
    load_release(&r->l);
    replay_release(&r->again);
    free(r->prompt);
    free(r->asked);
    free(r->logits);
}

int run_main(void *opts) {
    run_options *o = opts;
    const int has_prompt = o->prompt || o->file;
    if (!has_prompt && o->prompt_cache) {
        cli_error("--prompt-cache needs a prompt, -p TEXT or -f FILE: a conversation keeps its messages by /save");
        return CLI_USAGE;
    }
    if (!has_prompt) return chat_main(o);
    o->load.replays = !o->prompt_cache;
    run r = {.o = o};
    prompt_cache kept = {0};
    int code = load(&r, o);
    if (code == CLI_OK) code = fit_context(&r);
    if (code == CLI_OK) code = output_open(&r.out, &o->common);
    if (code == CLI_OK) code = make_engine(&r, &kept);
    if (code == CLI_OK) {
        interrupt_catch();
        code = feed_prompt(&r, &kept);
    }
    if (code == CLI_OK) echo_prompt(&r, r.asked);
    if (code == CLI_OK) code = run_generate(&r);
    if (code == CLI_OK) code = run_report(&r);
    const int closed = output_close(&r.out);
    prompt_cache_release(&kept);
    release(&r);
    return code == CLI_OK ? closed : code;
}
