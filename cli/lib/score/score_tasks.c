/* SPDX-License-Identifier: MIT
 *
 * score_tasks.c: answers the samples of a task file, several in flight.
 *
 * A player is one open sequence and how far its sample has come.  Each pass of the loop gives every player that fits
 * its next item, runs one engine step, and looks at the logits.
 *
 *     turn's prompt, in chunks -----> answer, one token a step -----> next turn ... -----> close
 *                          \ logits      | logits
 *                           `--> greedy token is the answer's next one?   no: the turn is wrong
 *                                           an open turn: it is the next
 *
 * Rules
 *  1. A turn is right if each greedy token is the answer's next one and the last is followed by <|im_end|>.  Answers
 *     are compared as tokens: the same text cut into other tokens would count as wrong.
 *  2. The answer's own tokens are fed whatever the model said, as single tokens, so that later turns find the right
 *     answer in the cache, stored as generation would have stored it.  After a wrong token the last turn stops.
 *  3. Prompts are cut every -b tokens, wherever other players are: results do not depend on -np.
 *  4. An open turn goes on with its greedy tokens, and is counted when it is over.
 *  5. Where questions are unseen, a prompt's document is a prompt of its own: a policy acts at its end, and nothing but the
 *     tokens up to there has been computed then.
 *  6. Where the spec asks for a second reading, it is of what a sample begins with: its document, or else its first prompt.
 */
#include <stdlib.h>

#include "cli/lib/common.h"
#include "cli/lib/interrupt.h"
#include "cli/lib/measure.h"
#include "cli/lib/progress.h"
#include "cli/lib/prompt/replay.h"
#include "score.h"

typedef struct player {
    const sample *s; /* NULL: idle */
    pleat_seq seq;
    uint32_t turn;
    uint32_t n_fed;  /* tokens of the turn, prompt then answer, that are stored */
    int is_wrong;    /* this turn's answer */
    float *logits;   /* [n_vocab] */
    uint32_t n_item; /* tokens in the step under way; 0: none */
} player;

typedef struct game {
    const score_options *o;
    const loaded *l;
    const task_set *set;
    score_row *row;
    pleat_engine *engine;
    player *players; /* [o->parallel] */
    pleat_engine_item *items;
    replay again;
    uint32_t next;        /* first sample that nobody has taken */
    uint32_t step_tokens; /* most new tokens in a step */
    uint64_t n_turns, n_turns_done;
} game;

static const turn *turn_of(const player *p) { return &p->s->turns[p->turn]; }

/* Take the next sample, if one is left. */
static int take_sample(game *g, player *p) {
    if (p->s || g->next == g->set->n_samples) return CLI_OK;
    const sample *s = &g->set->samples[g->next];
    const pleat_status status = pleat_engine_open(g->engine, replay_max_tokens(&g->again, g->l, s->n_tokens), &p->seq);
    if (status != PLEAT_OK) return cli_fail(s->id, status, NULL);
    g->next++;
    p->s = s;
    p->turn = p->n_fed = 0;
    p->is_wrong = 0;
    return CLI_OK;
}

/* Tokens that come next in p's turn: a chunk of the prompt, or one of the answer. */
static uint32_t next_length(const game *g, const player *p) {
    const turn *t = turn_of(p);
    if (p->n_fed >= t->n_prompt) return 1;
    const uint32_t end = p->n_fed < t->n_document ? t->n_document : t->n_prompt;
    const uint32_t left = end - p->n_fed, chunk = g->o->load.chunk_tokens;
    return left < chunk ? left : chunk;
}

static pleat_engine_item next_item(const game *g, player *p, uint32_t n) {
    const turn *t = turn_of(p);
    const int in_prompt = p->n_fed < t->n_prompt;
    const pleat_token *answer = t->n_texts ? g->row->answers.tokens + t->first : t->answer;
    const pleat_token *tokens = in_prompt ? t->prompt + p->n_fed : answer + (p->n_fed - t->n_prompt);
    const int goes_on = p->n_fed + n < t->n_prompt, ends_document = p->n_fed + n == t->n_document;
    const uint32_t flags = goes_on && !ends_document ? PLEAT_ITEM_MORE : 0; /* no policy classes tokens amid a prompt */
    return (pleat_engine_item){p->seq, tokens, n, goes_on ? 0 : 1, goes_on ? NULL : p->logits, flags};
}

/* Fill the step with the next items of as many players as fit; single tokens first, since they always do. */
static uint32_t gather(game *g) {
    uint32_t n_items = 0, n_tokens = 0;
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < g->o->parallel; i++) {
            player *p = &g->players[i];
            if (!p->s || (p->n_fed >= turn_of(p)->n_prompt) != (pass == 0)) continue;
            p->n_item = next_length(g, p);
            if (n_tokens + p->n_item > g->step_tokens)
                p->n_item = 0;
            else
                g->items[n_items++] = next_item(g, p, p->n_item);
            n_tokens += p->n_item;
        }
    return n_items;
}

static int finish_sample(game *g, player *p) {
    task_score *score = &g->row->score[p->s->task];
    const score_request request = {p->s->id, p->s->n_tokens, p->seq};
    const int code = score_close(g->row, g->engine, &request, &score->bytes, &score->bytes_f16, &score->of_short);
    p->s = NULL;
    return code;
}

static int finish_turn(game *g, player *p) {
    score_take_turn(g->row, g->l, p->s, turn_of(p));
    g->n_turns_done++;
    p->n_fed = 0;
    p->is_wrong = 0;
    return ++p->turn == p->s->n_turns ? finish_sample(g, p) : CLI_OK;
}

/* Tokens that are read twice: the first turn's document, or its prompt where it has none. */
static uint32_t read_twice(const turn *t) { return t->n_document ? t->n_document : t->n_prompt; }

/* Rule 6, where that has just been stored. */
static int read_again(game *g, const player *p) {
    const turn *t = turn_of(p);
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    if (p->turn > 0 || p->n_fed != read_twice(t)) return CLI_OK;
    const pleat_status status = replay_prompt(&g->again, g->engine, p->seq, t->prompt, p->n_fed, NULL, &err);
    return status == PLEAT_OK ? CLI_OK : cli_fail(p->s->id, status, &err);
}

/* The step has stored p's item: compare, and go on. */
static int advance(game *g, player *p) {
    const turn *t = turn_of(p);
    p->n_fed += p->n_item;
    p->n_item = 0;
    const int code = read_again(g, p);
    if (code != CLI_OK || p->n_fed < t->n_prompt) return code;
    const uint32_t at = p->n_fed - t->n_prompt;
    const pleat_token token = greedy_token(p->logits, g->l->info.n_vocab);
    p->is_wrong |= !score_take_token(g->row, g->l, g->set, t, at, token);
    const int is_last = p->turn + 1 == p->s->n_turns;
    return score_turn_is_over(g->l, t, at, token) || (p->is_wrong && is_last) ? finish_turn(g, p) : CLI_OK;
}

static int play_step(game *g) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    int code = interrupt_code();
    for (uint32_t i = 0; i < g->o->parallel && code == CLI_OK; i++) code = take_sample(g, &g->players[i]);
    if (code != CLI_OK) return code;
    const pleat_status status = pleat_engine_step(g->engine, g->items, gather(g), &err);
    if (status != PLEAT_OK) return cli_fail("a step failed", status, &err);
    for (uint32_t i = 0; i < g->o->parallel && code == CLI_OK; i++)
        if (g->players[i].n_item) code = advance(g, &g->players[i]);
    progress_update(g->n_turns_done);
    return code;
}

static int play(game *g) {
    const double start_s = measure_now_s();
    char label[PLEAT_SPEC_TEXT_CAP + 16];
    int code = CLI_OK;
    snprintf(label, sizeof label, "tasks %s", g->row->kv);
    progress_begin(label, g->n_turns, !g->o->common.quiet);
    while (code == CLI_OK && g->n_turns_done < g->n_turns) code = play_step(g);
    progress_end();
    g->row->seconds += measure_now_s() - start_s - g->row->watch_seconds;
    return code;
}

int score_tasks_fit(const score_options *o, const loaded *l, const task_set *set, const pleat_spec *spec) {
    replay again;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    int code = replay_prepare(l, spec, o->load.chunk_tokens, &again);
    for (uint32_t i = 0; i < set->n_samples && code == CLI_OK; i++) {
        const pleat_status status = replay_check(&again, read_twice(&set->samples[i].turns[0]), &err);
        if (status != PLEAT_OK) code = cli_fail(set->samples[i].id, status, &err);
    }
    replay_release(&again);
    return code;
}

int score_tasks(const score_options *o, const loaded *l, const task_set *set, score_row *row) {
    game g = {.o = o, .l = l, .set = set, .row = row};
    const uint32_t n = o->parallel;
    /* One whole chunk and a token of everyone else always fit; short prompts fill what is left. */
    g.step_tokens = o->load.chunk_tokens + 4 * n;
    for (uint32_t i = 0; i < set->n_samples; i++) g.n_turns += set->samples[i].n_turns;
    int code = replay_prepare(l, &row->spec, o->load.chunk_tokens, &g.again);
    if (code == CLI_OK)
        code = load_engine(&o->load, l, row->spec, n, replay_max_tokens(&g.again, l, set->max_tokens), g.step_tokens,
                           &g.engine);
    if (code != CLI_OK) {
        replay_release(&g.again);
        return code;
    }
    score_begin_row(row, set);
    float *logits = cli_alloc((size_t)n * l->info.n_vocab, sizeof *logits);
    g.players = cli_alloc(n, sizeof *g.players);
    g.items = cli_alloc(n, sizeof *g.items);
    for (uint32_t i = 0; i < n; i++) g.players[i].logits = logits + (size_t)i * l->info.n_vocab;
    code = play(&g);
    free(g.items);
    free(g.players);
    free(logits);
    pleat_engine_destroy(&g.engine);
    replay_release(&g.again);
    return code;
}
