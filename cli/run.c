/* SPDX-License-Identifier: MIT
 *
 * run.c: `pleat run`: one prompt, one text, and what the cache held for it.
 *
 *     prompt ----> chunks of -b tokens ----> one token at a time ----> end token, -n, full context or Ctrl-C
 *     (checked)    progress on stderr        text on stdout as it comes
 *
 * Rules
 *  1. A prompt is never cut: one that leaves no room for a token is refused with both numbers.
 *  2. In the terminal form stdout carries the generated text and nothing else, always as valid UTF-8.
 *  3. The last token generated is never stored, since nothing reads it.
 *  4. The end token counts as no token and stands in no text.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "common.h"
#include "load.h"
#include "output.h"
#include "progress.h"
#include "utf8.h"

typedef struct run {
    const options *o;
    loaded l;
    output out;
    pleat_engine *engine;
    pleat_sampler *sampler;
    pleat_seq seq;
    float *logits; /* [n_vocab] of the newest token */

    pleat_token *prompt;      /* [n_prompt] */
    uint32_t n_prompt, n_fed; /* n_fed < n_prompt only after Ctrl-C */
    uint32_t n_ctx;           /* most tokens, prompt and generated */
    uint32_t max_new;         /* most tokens to generate */
    int is_bound_by_ctx;      /* max_new is what the context leaves, not what -n says */
    uint32_t n_generated;
    const char *finish; /* "stop", "length" or "interrupted" */

    char *text; /* generated so far, valid UTF-8 */
    size_t n_text, text_cap;
    utf8_stream utf8;

    double prompt_s, generation_s;
    uint32_t n_steps; /* tokens fed one at a time within generation_s */
    pleat_cache_usage usage;
} run;

static volatile sig_atomic_t is_interrupted;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    is_interrupted = 1;
}

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

/* The command line, the prompt and the model, in this order: what is cheap to refuse comes first. */
static int load(run *r, options *o) {
    char *text = NULL;
    size_t n = 0;
    int code = options_one_spec(o, "k8v4");
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

/* ---- generation -------------------------------------------------------------------------------- */

static int make_engine(run *r) {
    const options *o = r->o;
    pleat_sampler_options sampling;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    const uint32_t n_tokens = r->n_prompt + r->max_new;
    pleat_sampler_options_default(&sampling);
    sampling.temperature = o->temp;
    sampling.top_k = o->top_k;
    sampling.top_p = o->top_p;
    sampling.min_p = o->min_p;
    sampling.seed = o->seed;
    pleat_status status = pleat_sampler_create(&sampling, r->l.info.n_vocab, NULL, &r->sampler, &err);
    if (status != PLEAT_OK) return cli_fail("cannot make the sampler", status, &err);
    if (load_engine(o, &r->l, o->kv.spec[0], 1, n_tokens, 0, &r->engine) != CLI_OK) return CLI_FAILED;
    status = pleat_engine_open(r->engine, n_tokens, &r->seq);
    if (status != PLEAT_OK) return cli_fail("cannot open a sequence", status, NULL);
    r->logits = cli_alloc(r->l.info.n_vocab, sizeof *r->logits);
    return CLI_OK;
}

/* Store n tokens.  With PLEAT_ITEM_MORE in `flags` a prompt goes on; else the last one's logits go to r->logits. */
static int step(run *r, const pleat_token *tokens, uint32_t n, uint32_t flags) {
    const int wanted = !(flags & PLEAT_ITEM_MORE);
    const pleat_engine_item item = {r->seq, tokens, n, wanted ? 1 : 0, wanted ? r->logits : NULL, flags};
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    const pleat_status status = pleat_engine_step(r->engine, &item, 1, &err);
    return status == PLEAT_OK ? CLI_OK : cli_fail("a step failed", status, &err);
}

static int feed_prompt(run *r) {
    const uint32_t chunk = r->o->chunk_tokens;
    const double start_s = cli_seconds();
    int code = CLI_OK;
    progress_begin("reading the prompt", r->n_prompt, !r->o->quiet);
    while (r->n_fed < r->n_prompt && code == CLI_OK && !is_interrupted) {
        const uint32_t left = r->n_prompt - r->n_fed, n = left < chunk ? left : chunk;
        code = step(r, r->prompt + r->n_fed, n, n < left ? PLEAT_ITEM_MORE : 0);
        r->n_fed += n;
        progress_update(r->n_fed);
    }
    progress_end();
    r->prompt_s = cli_seconds() - start_s;
    return code;
}

/* Add bytes of valid UTF-8 to the text, and show them at once in the terminal form. */
static void show(run *r, const char *bytes, size_t n) {
    if (r->n_text + n + 1 > r->text_cap) {
        const size_t cap = 2 * (r->n_text + n + 1);
        char *grown = cli_alloc(cap, 1);
        if (r->n_text) memcpy(grown, r->text, r->n_text);
        free(r->text);
        r->text = grown;
        r->text_cap = cap;
    }
    memcpy(r->text + r->n_text, bytes, n);
    r->n_text += n;
    if (r->out.format == FORMAT_TERMINAL && n) {
        fwrite(bytes, 1, n, r->out.file);
        fflush(r->out.file);
    }
}

static void show_token(run *r, pleat_token token) {
    size_t n;
    const char *bytes = pleat_model_token_text(r->l.model, token, &n);
    if (!bytes || (!r->o->special && pleat_model_token_is_special(r->l.model, token))) return;
    char *valid = cli_alloc(UTF8_STREAM_CAP(n), 1);
    show(r, valid, utf8_stream_put(&r->utf8, bytes, n, valid));
    free(valid);
}

/* Draw tokens until something ends the text; says in r->finish what did. */
static int draw_tokens(run *r) {
    for (;;) {
        pleat_token token;
        r->finish = is_interrupted ? "interrupted" : "length";
        if (is_interrupted || r->n_generated == r->max_new) return CLI_OK;
        const pleat_status status = pleat_sampler_sample(r->sampler, r->logits, &token);
        if (status != PLEAT_OK) return cli_fail("cannot draw a token from the logits", status, NULL);
        if (pleat_model_token_is_end(r->l.model, token)) {
            r->finish = "stop";
            return CLI_OK;
        }
        r->n_generated++;
        show_token(r, token);
        if (r->n_generated == r->max_new) continue;
        if (step(r, &token, 1, 0) != CLI_OK) return CLI_FAILED;
        r->n_steps++;
    }
}

static int generate(run *r) {
    char rest[UTF8_STREAM_CAP(0)];
    const double start_s = cli_seconds();
    const int code = draw_tokens(r);
    r->generation_s = cli_seconds() - start_s;
    show(r, rest, utf8_stream_end(&r->utf8, rest));
    if (r->out.format == FORMAT_TERMINAL && r->n_text) fputc('\n', r->out.file);
    fflush(r->out.file); /* before the summary on stderr */
    return code;
}

/* ---- what came of it --------------------------------------------------------------------------- */

static double rate(double n, double seconds) { return n > 0 && seconds > 0 ? n / seconds : 0; }

static double fraction(const run *r) {
    return r->usage.bytes_f16 ? (double)r->usage.bytes / (double)r->usage.bytes_f16 : 0;
}

/* Short texts leave most of their pages' slots empty, which may cost more than the format saves. */
static const char *slack_hint(const run *r, char *buf, size_t cap) {
    const pleat_cache_usage *u = &r->usage;
    pleat_engine_options engine;
    pleat_engine_get_options(r->engine, &engine);
    const uint64_t n_slots = u->pages_used * engine.page_tokens;
    if (fraction(r) <= 1 || 2 * (u->tokens_high + u->tokens_low) >= n_slots) return "";
    snprintf(buf, cap, " (pages of %u tokens, mostly empty yet)", engine.page_tokens);
    return buf;
}

/* How the policy keeps the tokens; a comma at every thousand. */
static void write_levels(const pleat_cache_usage *u) {
    const struct {
        const char *name;
        uint64_t n;
    } levels[] = {{"high", u->tokens_high}, {"low", u->tokens_low}, {"dropped", u->tokens_dropped}};
    fputs("tokens     ", stderr);
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        char digits[24];
        const int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)levels[i].n);
        fprintf(stderr, "%s%s ", i ? ", " : "", levels[i].name);
        for (int at = 0; at < n; at++) fprintf(stderr, "%s%c", at && (n - at) % 3 == 0 ? "," : "", digits[at]);
    }
    fputs("; summed over layers and KV heads\n", stderr);
}

static void write_summary(const run *r) {
    char held[BYTES_CAP], f16[BYTES_CAP], hint[64];
    if (!strcmp(r->finish, "length") && r->is_bound_by_ctx)
        fprintf(stderr, "\nstopped: the context of %u tokens is full\n", r->n_ctx);
    fprintf(stderr, "\nprompt     %u tokens, %.0f tokens/s\n", r->n_prompt, rate(r->n_fed, r->prompt_s));
    fprintf(stderr, "generated  %u tokens, %.0f tokens/s; finished: %s\n", r->n_generated,
            rate(r->n_steps, r->generation_s), r->finish);
    fprintf(stderr, "KV cache   %s: %s in %llu pages, %.1f %% of f16's %s%s\n", r->o->kv.text[0],
            print_bytes(held, r->usage.bytes), (unsigned long long)r->usage.pages_used, 100 * fraction(r),
            print_bytes(f16, r->usage.bytes_f16), slack_hint(r, hint, sizeof hint));
    if (r->o->kv.spec[0].policy != PLEAT_POLICY_NONE) write_levels(&r->usage);
}

static json_t *kv_json(const run *r) {
    const pleat_cache_usage *u = &r->usage;
    return json_pack("{s:s, s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:I}", "spec", r->o->kv.text[0], "bytes",
                     (json_int_t)u->bytes, "bytes_f16", (json_int_t)u->bytes_f16, "fraction", json_number(fraction(r)),
                     "pages_used", (json_int_t)u->pages_used, "pages_peak", (json_int_t)u->pages_peak, "tokens_high",
                     (json_int_t)u->tokens_high, "tokens_low", (json_int_t)u->tokens_low, "tokens_dropped",
                     (json_int_t)u->tokens_dropped);
}

static json_t *run_json(const run *r) {
    return json_pack("{s:o, s:{s:I, s:I, s:I}, s:s, s:o, s:{s:f, s:f, s:f}}", "text",
                     json_stringn(r->text ? r->text : "", r->n_text), "tokens", "prompt", (json_int_t)r->n_prompt,
                     "generated", (json_int_t)r->n_generated, "context", (json_int_t)r->n_ctx, "finish_reason",
                     r->finish, "kv", kv_json(r), "speed", "prompt_tokens_per_s", rate(r->n_fed, r->prompt_s),
                     "generation_tokens_per_s", rate(r->n_steps, r->generation_s), "load_ms", r->l.load_ms);
}

static void write_row(run *r) {
    static const char *const titles[] = {
        "kv",    "prompt",      "generated",  "finish_reason",  "bytes",      "bytes_f16",      "fraction",
        "pages", "tokens_high", "tokens_low", "tokens_dropped", "prompt t/s", "generation t/s", "text"};
    table t;
    table_init(&t, titles, sizeof titles / sizeof titles[0]);
    table_put(&t, "%s", r->o->kv.text[0]);
    table_put(&t, "%u", r->n_prompt);
    table_put(&t, "%u", r->n_generated);
    table_put(&t, "%s", r->finish);
    table_put(&t, "%llu", (unsigned long long)r->usage.bytes);
    table_put(&t, "%llu", (unsigned long long)r->usage.bytes_f16);
    table_put(&t, "%.4f", fraction(r));
    table_put(&t, "%llu", (unsigned long long)r->usage.pages_used);
    table_put(&t, "%llu", (unsigned long long)r->usage.tokens_high);
    table_put(&t, "%llu", (unsigned long long)r->usage.tokens_low);
    table_put(&t, "%llu", (unsigned long long)r->usage.tokens_dropped);
    table_put(&t, "%.1f", rate(r->n_fed, r->prompt_s));
    table_put(&t, "%.1f", rate(r->n_steps, r->generation_s));
    table_put_text(&t, r->text ? r->text : "");
    table_write(&t, &r->out);
    table_release(&t);
}

static int report(run *r) {
    const pleat_status status = pleat_engine_get_usage(r->engine, r->seq, &r->usage);
    if (status != PLEAT_OK) return cli_fail("cannot read the cache's usage", status, NULL);
    if (r->out.format == FORMAT_JSON)
        output_json(&r->out, run_json(r));
    else if (r->out.format != FORMAT_TERMINAL)
        write_row(r);
    if (!r->o->quiet) write_summary(r);
    return is_interrupted ? CLI_INTERRUPTED : CLI_OK;
}

static void release(run *r) {
    pleat_sampler_destroy(&r->sampler);
    pleat_engine_destroy(&r->engine);
    load_release(&r->l);
    free(r->prompt);
    free(r->logits);
    free(r->text);
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
    if (code == CLI_OK) code = generate(&r);
    if (code == CLI_OK) code = report(&r);
    const int closed = output_close(&r.out);
    release(&r);
    return code == CLI_OK ? closed : code;
}
