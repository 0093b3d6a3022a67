/* SPDX-License-Identifier: MIT
 *
 * chat.c: a conversation, from the first prompt sign to the last.
 *
 *     wait for a message ----> /command ----> do it                 --.
 *         ^               `--> message -----> answer, figures       --|
 *         `-----------------------------------------------------------'
 *
 * What is piped in is read in the same way, a message a line, without prompt signs.  There a Ctrl-C ends the whole, and
 * what failed is told by the exit code, since nobody may have read the message.
 */
#include "chat.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "chat/input.h"
#include "cli/lib/common.h"
#include "cli/lib/interrupt.h"
#include "cli/lib/terminal.h"

/* ---- messages ---------------------------------------------------------------------------------- */

/* Whether the text goes on in the next line: it ends in a backslash that no other one stands before. */
static int goes_on(const char *text, size_t n) {
    size_t n_backslashes = 0;
    while (n_backslashes < n && text[n - 1 - n_backslashes] == '\\') n_backslashes++;
    return n_backslashes % 2 == 1;
}

/* One line, or several that go on in each other.  *text is NULL without INPUT_LINE. */
static input_kind read_message(chat_input *in, char **text, size_t *n) {
    char *line;
    size_t n_line;
    input_kind kind = input_read(in, "> ", text, n);
    while (kind == INPUT_LINE && goes_on(*text, *n)) {
        (*text)[*n - 1] = '\n';
        kind = input_read(in, "  ", &line, &n_line);
        if (kind == INPUT_END) {
            --*n;
            return INPUT_LINE;
        }
        if (kind == INPUT_LINE) {
            char *joined = cli_alloc(*n + n_line + 1, 1);
            memcpy(joined, *text, *n);
            memcpy(joined + *n, line, n_line);
            *n += n_line;
            free(line);
            free(*text);
            *text = joined;
        } else {
            free(*text);
            kind = kind == INPUT_INTERRUPT ? INPUT_DROPPED : kind;
        }
    }
    return kind;
}

static int is_blank(const char *text, size_t n) {
    size_t i = 0;
    while (i < n && isspace((unsigned char)text[i])) i++;
    return i == n;
}

static int say(chat *c, const char *text, size_t n) {
    conversation_add(&c->talk, "user", text, n);
    const int code = chat_answer(c);
    if (code == CLI_OK)
        chat_say_turn(c);
    else
        conversation_pop(&c->talk);
    if (code == CLI_INTERRUPTED && !c->r->o->common.quiet)
        cli_note("stopped before the answer: the message is dropped");
    return code;
}

static int take(chat *c, chat_input *in, const char *text, size_t n) {
    if (is_blank(text, n)) return CLI_OK;
    if (chat_check_text("the message", text, n) != CLI_OK) return CLI_FAILED;
    input_remember(in, text);
    if (text[0] != '/') return say(c, text, n);
    return text[1] == '/' ? say(c, text + 1, n - 1) : chat_command(c, text);
}

/* Until /exit, the end of the input, or Ctrl-C twice. */
static int converse(chat *c, chat_input *in) {
    const int is_terminal = input_is_terminal(in);
    uint32_t n_interrupts = 0;
    while (!c->is_over) {
        char *text;
        size_t n;
        const input_kind kind = read_message(in, &text, &n);
        if (kind == INPUT_FAILED) return CLI_FAILED;
        n_interrupts = kind == INPUT_INTERRUPT ? n_interrupts + 1 : 0;
        if (kind == INPUT_LINE) {
            c->has_failed |= take(c, in, text, n) == CLI_FAILED;
            free(text);
        } else if (is_terminal) {
            fputc('\n', stderr);
        }
        if (kind == INPUT_END) break;
        if (n_interrupts == 1 && is_terminal && !c->r->o->common.quiet)
            cli_note("Ctrl-C again leaves; so do Ctrl-D and /exit");
        if (n_interrupts == 2 || (interrupt_came() && !is_terminal)) return CLI_INTERRUPTED;
        interrupt_forget();
    }
    return c->has_failed && !is_terminal ? CLI_FAILED : CLI_OK;
}

/* ---- beginning and end ------------------------------------------------------------------------- */

/* What needs a prompt, and what there is no form for. */
static int check_options(const run_options *o) {
    if (o->n_beams || o->n_best > 1)
        cli_error("%s: a conversation has one answer to each message; give a prompt for several texts: -p TEXT",
                  o->n_beams ? "--beams" : "--n-best");
    else if (o->common.format != FORMAT_TERMINAL)
        cli_error("--format: a conversation is text; /save writes it as JSON");
    else if (o->common.output)
        cli_error("--output: a conversation is shown as it goes on; /save FILE keeps it");
    else
        return CLI_OK;
    return CLI_USAGE;
}

/* What was said before, and the system text. */
static int begin_talk(chat *c) {
    const run_options *o = c->r->o;
    if (o->system && chat_check_text("--system", o->system, strlen(o->system)) != CLI_OK) return CLI_FAILED;
    if (o->load_path && chat_load(c, o->load_path) != CLI_OK) return CLI_FAILED;
    if (o->system) conversation_set_system(&c->talk, o->system);
    return CLI_OK;
}

/* How many marks are worth their bytes (chat_turn.c).  A GPU makes no forks. */
static uint32_t count_marks(const run *r, const pleat_cache_traits *traits) {
    if (r->l.n_devices || traits->has_policy || traits->unshared_tokens == UINT32_MAX) return 0;
    return r->o->load.kv.spec[0].compressor == PLEAT_COMPRESSOR_NONE ? HELD_MARKS : 1;
}

/* Room for one sequence of the whole context, and for what its marks do not share. */
static int make_engine(chat *c) {
    run *r = c->r;
    const run_options *o = r->o;
    pleat_engine_options opt = load_engine_options(&o->load, &r->l, o->load.kv.spec[0], 1, r->n_ctx, 0);
    const pleat_cache_options cache = load_cache_options(&r->l, &opt);
    const pleat_cache_traits traits = run_traits(&cache);
    c->max_marks = count_marks(r, &traits);
    if (c->max_marks) {
        const uint32_t own = traits.unshared_tokens < opt.max_tokens ? traits.unshared_tokens : opt.max_tokens;
        opt.max_seqs = 1 + c->max_marks;
        opt.max_items = 1;
        opt.pool_bytes = pleat_cache_bytes_for(&cache, opt.max_tokens, opt.max_tokens) +
                         c->max_marks * pleat_cache_bytes_for(&cache, own, opt.max_tokens);
    }
    r->n_seqs = 1;
    if (load_engine_with(&r->l, &opt, &r->engine) != CLI_OK) return CLI_FAILED;
    r->logits = cli_alloc(r->l.info.n_vocab, sizeof *r->logits);
    return CLI_OK;
}

static int make_sampler(chat *c) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    const pleat_sampler_options sampling = run_sampling(c->r->o);
    const pleat_status status = pleat_sampler_create(&sampling, c->r->l.info.n_vocab, NULL, &c->sampler, &err);
    return status == PLEAT_OK ? CLI_OK : cli_fail("cannot make the sampler", status, &err);
}

/* A model without a chat form is told of at once, not by the first message. */
static int check_form(const chat *c) {
    const pleat_chat_message hello = {"user", "Hello"};
    char *text;
    size_t n;
    const int code = load_form(&c->r->l, "--chat", &hello, 1, &text, &n);
    if (code == CLI_OK) free(text);
    return code;
}

static void greet(const chat *c) {
    const run *r = c->r;
    if (r->o->common.quiet) return;
    const char *name = r->l.info.name[0] ? r->l.info.name : r->l.info.architecture;
    char *escaped = cli_alloc(UTF8_ESCAPED_CAP(strlen(name)), 1);
    fprintf(stderr, "%s%s, %s, context of %u tokens.  /help lists commands; Ctrl-C stops an answer, Ctrl-D leaves.%s\n",
            terminal_begin(stderr, STYLE_DIM), utf8_escape(name, "", escaped), r->o->load.kv.text[0], r->n_ctx,
            terminal_end(stderr));
    free(escaped);
    if (c->talk.n) cli_note("%u messages were said before", c->talk.n);
}

static void release(chat *c) {
    run *r = c->r;
    pleat_sampler_destroy(&c->sampler);
    pleat_engine_destroy(&r->engine);
    load_release(&r->l);
    held_release(&c->held);
    conversation_release(&c->talk);
    free(c->turns);
    free(r->logits);
}

int chat_main(run_options *o) {
    run r = {.o = o};
    chat c = {.r = &r};
    int code = check_options(o);
    if (code == CLI_OK) code = run_take_spec(o);
    if (code == CLI_OK) code = begin_talk(&c);
    if (code == CLI_OK) code = load_model(&o->load, &o->common, &r.l);
    if (code == CLI_OK) code = run_fit_ctx(&r);
    if (code == CLI_OK) code = check_form(&c);
    if (code == CLI_OK) code = make_engine(&c);
    if (code == CLI_OK) code = make_sampler(&c);
    if (code == CLI_OK) code = output_open(&r.out, &o->common);
    if (code == CLI_OK) {
        chat_input *in = input_open();
        interrupt_catch_each();
        if (input_is_terminal(in)) greet(&c);
        code = converse(&c, in);
        input_close(&in);
        r.out.is_done = 1;
    }
    const int closed = output_close(&r.out);
    release(&c);
    return code == CLI_OK ? closed : code;
}
