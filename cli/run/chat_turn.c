/* SPDX-License-Identifier: MIT
 *
 * chat_turn.c: one answer of a conversation.
 *
 *     messages -> the model's chat form -> tokens      all of them, every turn
 *     held_plan()                                      where the cache goes on, or how far it goes back (chat/held.h)
 *     mark                                             a fork of what two turns had in common, to go back to
 *     read                                             the rest, in chunks
 *     generate                                         until an end token, -n, the context's end or Ctrl-C
 *
 * A fork shares its pages with the conversation, so a mark costs a page of each lane at most; with blocks a buffer of each
 * lane, and there is one mark.  Where a policy writes into full pages, and in rings, it would cost as much as the
 * conversation, and a GPU makes no forks.  There are no marks then, and what cannot go on is read from the start.
 */
#include <stdlib.h>
#include <string.h>

#include "chat.h"
#include "cli/lib/common.h"
#include "cli/lib/interrupt.h"
#include "cli/lib/measure.h"
#include "cli/lib/progress.h"
#include "cli/lib/terminal.h"

/* A second mark of a turn would part what is read, and parts are read otherwise than a whole; so it stands only where it
 * saves reading as much as a short turn has. */
enum { MARK_STEP_TOKENS = 64 };

/* A turn's tokens before its answer. */
typedef struct turn_prompt {
    char *text;
    size_t n_text;
    pleat_token *ids; /* [n] */
    uint32_t n;
    held_way way;
} turn_prompt;

/* ---- the cache --------------------------------------------------------------------------------- */

static void close_seq(run *r, uint32_t i) {
    if (r->seqs[i].v) pleat_engine_close(r->engine, r->seqs[i]); /* cannot fail: no step is under way */
    r->seqs[i].v = 0;
}

/* Close the marks behind the first n tokens. */
static void close_marks(chat *c, uint32_t n) {
    for (uint32_t i = 0; i < c->held.n_marks; i++)
        if (c->held.marks[i] > n) close_seq(c->r, 1 + i);
}

static void drop_oldest_mark(chat *c) {
    run *r = c->r;
    close_seq(r, 1);
    memmove(r->seqs + 1, r->seqs + 2, (HELD_MARKS - 1) * sizeof *r->seqs);
    r->seqs[HELD_MARKS].v = 0;
    held_drop_mark(&c->held);
}

void chat_forget(chat *c) {
    for (uint32_t i = 0; i <= HELD_MARKS; i++) close_seq(c->r, i);
    held_release(&c->held);
}

pleat_cache_usage chat_usage(const chat *c, uint64_t *back) {
    const pleat_seq whole = {0};
    pleat_cache_usage own = {0}, all = {0};
    if (c->r->seqs[0].v) pleat_engine_get_usage(c->r->engine, c->r->seqs[0], &own);
    pleat_engine_get_usage(c->r->engine, whole, &all);
    *back = all.bytes > own.bytes ? all.bytes - own.bytes : 0;
    return own;
}

/* Remember what the cache holds now.  Without memory there is no mark. */
static void mark(chat *c) {
    run *r = c->r;
    held_tokens *h = &c->held;
    if (c->max_marks == 0 || h->n == 0 || (h->n_marks && h->marks[h->n_marks - 1] == h->n)) return;
    if (h->n_marks == c->max_marks) drop_oldest_mark(c);
    if (pleat_engine_fork(r->engine, r->seqs[0], h->n, &r->seqs[1 + h->n_marks]) == PLEAT_OK) held_mark(h);
}

/* Have the sequence hold the first tokens that the way keeps. */
static int go(chat *c, const held_way *way) {
    run *r = c->r;
    held_tokens *h = &c->held;
    pleat_status status = PLEAT_OK;
    if (way->is_back) {
        close_seq(r, 0);
        close_marks(c, way->n_keep);
    }
    held_cut(h, way->n_keep);
    if (!r->seqs[0].v && way->n_keep)
        status = pleat_engine_fork(r->engine, r->seqs[h->n_marks], r->n_ctx, &r->seqs[0]);
    else if (!r->seqs[0].v)
        status = pleat_engine_open(r->engine, r->n_ctx, &r->seqs[0]);
    if (status == PLEAT_OK) return CLI_OK;
    chat_forget(c);
    return cli_fail("cannot open a sequence", status, NULL);
}

/* Feed n tokens.  Where pages are short, marks go first; after an error the cache is to be read anew. */
static int feed(chat *c, const pleat_token *ids, uint32_t n, uint32_t flags) {
    const run_share share = {0, n, ids};
    pleat_status status = run_step(c->r, &share, 1, flags);
    while (status == PLEAT_AGAIN && c->held.n_marks) {
        drop_oldest_mark(c);
        status = run_step(c->r, &share, 1, flags);
    }
    if (status == PLEAT_OK) {
        held_add(&c->held, ids, n);
        return CLI_OK;
    }
    chat_forget(c);
    return run_step_code(c->r, status);
}

/* ---- reading ----------------------------------------------------------------------------------- */

static int check_fits(const run *r, uint32_t n) {
    if (n < r->n_ctx) return CLI_OK;
    char larger[64] = "";
    if (r->n_ctx < r->l.info.n_ctx) snprintf(larger, sizeof larger, ", and -c may be up to %u", r->l.info.n_ctx);
    cli_error(
        "the message does not fit: with it the conversation has %u tokens, and the context of %u (-c) has room for "
        "%u and an answer; /undo and /clear make room, /save FILE keeps what was said%s",
        n, r->n_ctx, r->n_ctx - 1, larger);
    return CLI_FAILED;
}

/* Whether the tokens begin with the text.  They do not where a tokenizer puts a space in front of every text, also where
 * one goes on. */
static int begins_as(const chat *c, const pleat_token *ids, uint32_t n_ids, const char *text, size_t n) {
    size_t n_first = 0;
    const char *first = n_ids ? pleat_model_token_text(c->r->l.model, ids[0], &n_first) : NULL;
    return first && text[0] != ' ' && n_first <= n && memcmp(first, text, n_first) == 0;
}

/* Where the tokens part and the texts do not, the held tokens stay. */
static int keep_spelling(const chat *c, turn_prompt *p) {
    const held_tokens *h = &c->held;
    const size_t at = held_spell(h, p->text, p->n_text);
    if (!p->way.is_back || at >= p->n_text) return CLI_OK;
    pleat_token *rest;
    uint32_t n_rest;
    if (run_form_tokens(&c->r->l, p->text + at, p->n_text - at, 1, &rest, &n_rest) != CLI_OK) return CLI_FAILED;
    if (!begins_as(c, rest, n_rest, p->text + at, p->n_text - at)) {
        free(rest);
        return CLI_OK;
    }
    pleat_token *ids = cli_alloc(h->n + n_rest, sizeof *ids);
    memcpy(ids, h->ids, h->n * sizeof *ids);
    memcpy(ids + h->n, rest, n_rest * sizeof *ids);
    free(rest);
    free(p->ids);
    p->ids = ids;
    p->n = h->n + n_rest;
    p->way = held_plan(h, p->ids, p->n);
    return CLI_OK;
}

static int make_prompt(const chat *c, turn_prompt *p) {
    const loaded *l = &c->r->l;
    if (load_form(l, "--chat", c->talk.messages, c->talk.n, &p->text, &p->n_text) != CLI_OK) return CLI_FAILED;
    if (run_form_tokens(l, p->text, p->n_text, 0, &p->ids, &p->n) != CLI_OK) return CLI_FAILED;
    if (p->n == 0) {
        cli_error("the model's chat form makes no token of the conversation");
        return CLI_FAILED;
    }
    p->way = held_plan(&c->held, p->ids, p->n);
    const int code = keep_spelling(c, p);
    return code == CLI_OK ? check_fits(c->r, p->n) : code;
}

/* Read the prompt behind what the cache keeps of it. */
static int read_prompt(chat *c, const turn_prompt *p) {
    const held_way *way = &p->way;
    const uint32_t chunk = c->r->o->load.chunk_tokens;
    const int parts = way->is_back && way->n_same >= way->n_keep + MARK_STEP_TOKENS && way->n_same + 1 < p->n;
    const uint32_t stop = parts && c->max_marks ? way->n_same : 0;
    int code = go(c, way);
    if (code == CLI_OK && !way->is_back) mark(c);
    progress_begin(way->is_back ? "reading the conversation" : "reading the message", p->n - way->n_keep,
                   !c->r->o->common.quiet);
    while (code == CLI_OK && c->held.n < p->n && !interrupt_came()) {
        const uint32_t at = c->held.n, end = at < stop ? stop : p->n;
        const uint32_t n = end - at < chunk ? end - at : chunk;
        code = feed(c, p->ids + at, n, at + n < p->n ? PLEAT_ITEM_MORE : 0);
        if (code == CLI_OK && c->held.n == stop) mark(c);
        progress_update(c->held.n - way->n_keep);
    }
    progress_end();
    return code == CLI_OK && interrupt_came() ? CLI_INTERRUPTED : code;
}

/* ---- the answer -------------------------------------------------------------------------------- */

/* A text that grows: valid UTF-8 without NUL, which a message cannot hold. */
typedef struct answer_text {
    char *bytes; /* [n] */
    size_t n, cap;
    pleat_detokenizer shown;
} answer_text;

static void show(const chat *c, answer_text *t, const char *bytes, size_t n) {
    if (t->n + n > t->cap) {
        t->cap = 2 * (t->n + n);
        char *grown = cli_alloc(t->cap, 1);
        if (t->n) memcpy(grown, t->bytes, t->n);
        free(t->bytes);
        t->bytes = grown;
    }
    for (size_t i = 0; i < n; i++)
        if (bytes[i]) t->bytes[t->n++] = bytes[i];
    terminal_put_text(c->r->out.file, bytes, n);
    fflush(c->r->out.file);
}

static void show_token(chat *c, answer_text *t, pleat_token token) {
    const pleat_model *model = c->r->l.model;
    size_t n = 0;
    const char *bytes = pleat_model_token_text(model, token, &n);
    if (!bytes) return;
    held_add_text(&c->held, bytes, n);
    const size_t cap = PLEAT_DETOKENIZER_CAP(n);
    char *valid = cli_alloc(cap, 1);
    if (pleat_detokenizer_put(&t->shown, token, valid, cap, &n) == PLEAT_OK) show(c, t, valid, n);
    free(valid);
}

/* Draw, show and feed a token; *finish where the answer ends. */
static int draw(chat *c, answer_text *text, const char **finish) {
    pleat_token token;
    const pleat_status status = pleat_sampler_sample(c->sampler, c->r->logits, &token);
    if (status != PLEAT_OK) return cli_fail("cannot draw a token from the logits", status, NULL);
    if (pleat_model_token_is_end(c->r->l.model, token)) {
        *finish = "stop";
        return CLI_OK;
    }
    const int code = feed(c, &token, 1, 0);
    if (code == CLI_OK) show_token(c, text, token);
    return code;
}

static void generate(chat *c, answer_text *text, chat_turn *turn) {
    const run *r = c->r;
    const uint32_t room = r->n_ctx - turn->n_prompt;
    const uint32_t most = r->o->n_predict < 0 || (uint32_t)r->o->n_predict > room ? room : (uint32_t)r->o->n_predict;
    const double start_s = measure_now_s();
    while (!turn->finish) {
        if (interrupt_came())
            turn->finish = "interrupted";
        else if (turn->n_generated == most)
            turn->finish = "length";
        else if (draw(c, text, &turn->finish) != CLI_OK)
            turn->finish = "failed";
        else if (!turn->finish)
            turn->n_generated++;
    }
    char rest[PLEAT_DETOKENIZER_CAP(0)];
    size_t n_rest = 0;
    if (pleat_detokenizer_end(&text->shown, rest, sizeof rest, &n_rest) == PLEAT_OK) show(c, text, rest, n_rest);
    fputc('\n', r->out.file);
    fflush(r->out.file);
    turn->generation_s = measure_now_s() - start_s;
}

static void add_turn(chat *c, const chat_turn *turn) {
    if (c->n_turns == c->turns_cap) {
        c->turns_cap = c->turns_cap ? 2 * c->turns_cap : 16;
        chat_turn *grown = cli_alloc(c->turns_cap, sizeof *grown);
        if (c->n_turns) memcpy(grown, c->turns, c->n_turns * sizeof *grown);
        free(c->turns);
        c->turns = grown;
    }
    c->turns[c->n_turns++] = *turn;
}

int chat_trim_turns(chat *c) {
    const uint32_t n = conversation_turns(&c->talk);
    uint32_t start = c->held.n;
    while (c->n_turns && c->turns[c->n_turns - 1].number > n) start = c->turns[--c->n_turns].n_kept;
    if (start >= c->held.n) return CLI_OK;
    const held_way way = held_back(&c->held, start);
    return go(c, &way);
}

int chat_answer(chat *c) {
    turn_prompt p = {0};
    chat_turn turn = {.number = conversation_turns(&c->talk)};
    answer_text text = {0};
    const uint32_t flags = c->r->o->special ? PLEAT_DETOKENIZE_SPECIAL : 0;
    const double start_s = measure_now_s();
    int code = pleat_detokenizer_init(&text.shown, c->r->l.model, flags) == PLEAT_OK ? CLI_OK : CLI_FAILED;
    if (code == CLI_OK) code = make_prompt(c, &p);
    if (code == CLI_OK) code = read_prompt(c, &p);
    if (code == CLI_OK) {
        held_set_text(&c->held, p.text, p.n_text);
        turn.n_prompt = p.n;
        turn.n_kept = p.way.n_keep;
        turn.read_s = measure_now_s() - start_s;
        generate(c, &text, &turn);
        conversation_add(&c->talk, "assistant", text.bytes, text.n);
        while (c->n_turns && c->turns[c->n_turns - 1].number == turn.number) c->n_turns--; /* answered again */
        add_turn(c, &turn);
        c->has_failed |= !strcmp(turn.finish, "failed");
    }
    free(text.bytes);
    free(p.text);
    free(p.ids);
    return code;
}
