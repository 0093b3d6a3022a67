/* SPDX-License-Identifier: MIT
 *
 * score_served.c: answers the samples of a task file through a serving, as users would have it: several conversations at
 * once, each turn a request that brings all that was said before.
 *
 *     turn 0   [prompt 0]B                              ──> answer 0          B: breakpoint: kept for the next turn
 *     turn 1   [prompt 0]B[right answer 0, prompt 1]B   ──> answer 1          from the prefix kept at the first B
 *
 * A client is one conversation.  It asks a turn when the one before is over, and takes the next sample after its last.
 *
 * Rules
 *  1. A turn is right by the rule of score_tasks.c, and the next turn brings the right answer whatever the model said.
 *  2. A request is cancelled when its answer is over: at the first wrong token, or at the token behind the answer's last.
 *     So its sequence is still there to be measured, with the tokens that score_tasks.c would have stored.  It asks for a
 *     token more than it waits for, so that it does not finish first.
 *
 * What differs from score_tasks.c is what serving does: where chunks of a prompt end, what is sealed or dropped at
 * breakpoints, and who shares a step or a page.  A right answer is read as a part of the next prompt.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"
#include "cli/lib/interrupt.h"
#include "cli/lib/measure.h"
#include "cli/lib/progress.h"
#include "score.h"

/* Tokens that a request may generate beside its answer: the end, and rule 2's. */
enum { SPARE_TOKENS = 2 };

typedef struct client {
    const sample *s; /* NULL: idle */
    uint32_t turn;
    pleat_token *tokens; /* [max_tokens] what was said so far: prompts, and right answers between them */
    uint32_t n_tokens;
    uint32_t *ends; /* [max_turns] where each prompt ends in them */
    pleat_request_id id;
    uint32_t n_given; /* tokens of this turn's answer */
    int is_wrong, is_over;
} client;

typedef struct counter {
    const score_options *o;
    const loaded *l;
    const task_set *set;
    score_row *row;
    pleat_engine *engine;
    pleat_serving *serving;
    client *clients; /* [o->parallel] */
    uint32_t next;   /* first sample that nobody has taken */
    uint64_t n_turns_done;
} counter;

static const turn *turn_of(const client *c) { return &c->s->turns[c->turn]; }

static void say(client *c, const pleat_token *tokens, uint32_t n) {
    memcpy(c->tokens + c->n_tokens, tokens, n * sizeof *tokens);
    c->n_tokens += n;
}

/* ---- requests ---------------------------------------------------------------------------------- */

/* Ask the client's turn. */
static int ask(counter *k, client *c) {
    const turn *t = turn_of(c);
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_request request;
    say(c, t->prompt, t->n_prompt);
    c->ends[c->turn] = c->n_tokens;
    c->n_given = 0;
    c->is_wrong = c->is_over = 0;
    pleat_request_default(&request);
    request.prompt = c->tokens;
    request.n_prompt = c->n_tokens;
    request.n_predict = t->n_answer + SPARE_TOKENS;
    request.breakpoints = c->ends;
    request.n_breakpoints = c->turn + 1;
    request.ignores_end = 1; /* which end it is matters */
    request.user = c;
    const pleat_status status = pleat_serving_submit(k->serving, &request, &c->id, &err);
    k->row->n_requests++;
    return status == PLEAT_OK ? CLI_OK : cli_fail(c->s->id, status, &err);
}

/* Begin the next sample, if one is left. */
static int take_sample(counter *k, client *c) {
    if (c->s || k->next == k->set->n_samples) return CLI_OK;
    c->s = &k->set->samples[k->next++];
    c->turn = c->n_tokens = 0;
    return ask(k, c);
}

static int take_event(counter *k, const pleat_serving_event *event) {
    client *c = event->user;
    if (event->finish != PLEAT_FINISH_NOT) return cli_fail(c->s->id, event->status, NULL);
    c->is_wrong = !score_take_token(k->row, k->l, k->set, turn_of(c), c->n_given, event->token);
    c->is_over = c->is_wrong || score_turn_is_over(k->l, turn_of(c), c->n_given, event->token);
    c->n_given++;
    return CLI_OK;
}

static int measure(counter *k, const client *c) {
    task_score *score = &k->row->score[c->s->task];
    const pleat_seq seq = pleat_serving_sequence(k->serving, c->id);
    const score_request request = {c->s->id, c->s->n_tokens, seq};
    return score_measure(k->row, k->engine, &request, &score->bytes, &score->bytes_f16, &score->of_short);
}

/* The client's answer is over: go on to its next turn. */
static int end_turn(counter *k, client *c) {
    const turn *t = turn_of(c);
    const int is_last = c->turn + 1 == c->s->n_turns;
    const int code = is_last ? measure(k, c) : CLI_OK;
    if (code != CLI_OK) return code;
    const pleat_status status = pleat_serving_cancel(k->serving, c->id);
    if (status != PLEAT_OK) return cli_fail(c->s->id, status, NULL);
    score_take_turn(k->row, k->l, c->s, t);
    k->n_turns_done++;
    c->is_over = 0;
    if (is_last) c->s = NULL;
    if (is_last) return CLI_OK;
    say(c, t->answer, t->n_answer); /* open turns have no next one */
    c->turn++;
    return ask(k, c);
}

/* ---- all --------------------------------------------------------------------------------------- */

static int serve_step(counter *k) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    uint32_t n_events;
    int code = CLI_OK;
    for (uint32_t i = 0; i < k->o->parallel && code == CLI_OK; i++) code = take_sample(k, &k->clients[i]);
    if (code != CLI_OK) return code;
    const pleat_status status = pleat_serving_step(k->serving, &err);
    if (status != PLEAT_OK) return cli_fail("a step failed", status, &err);
    const pleat_serving_event *events = pleat_serving_events(k->serving, &n_events);
    for (uint32_t i = 0; i < n_events && code == CLI_OK; i++) code = take_event(k, &events[i]);
    for (uint32_t i = 0; i < k->o->parallel && code == CLI_OK; i++)
        if (k->clients[i].is_over) code = end_turn(k, &k->clients[i]);
    progress_update(k->n_turns_done);
    return code;
}

static int serve(counter *k) {
    const double start_s = measure_now_s();
    char label[PLEAT_SPEC_TEXT_CAP + 16];
    int code = CLI_OK;
    snprintf(label, sizeof label, "served %s", k->row->kv);
    progress_begin(label, k->set->n_turns, !k->o->common.quiet);
    while (code == CLI_OK && k->n_turns_done < k->set->n_turns)
        code = interrupt_came() ? CLI_INTERRUPTED : serve_step(k);
    progress_end();
    k->row->seconds += measure_now_s() - start_s - k->row->watch_seconds;
    pleat_serving_get_stats(k->serving, &k->row->served);
    return code;
}

/* ---- set-up ------------------------------------------------------------------------------------ */

/* The engine and its serving. */
static int start(counter *k, const service_options *service) {
    const score_options *o = k->o;
    const uint32_t n = o->parallel, n_ctx = k->l->info.n_ctx, wanted = k->set->max_tokens + SPARE_TOKENS;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_serving_options opt;
    uint32_t prefix_tokens;
    pleat_engine_options engine =
        load_engine_options(&o->load, k->l, k->row->spec, 0, wanted < n_ctx ? wanted : n_ctx, 0);
    int code = service_prefix_tokens(service, engine.chunk_tokens, engine.max_tokens, &prefix_tokens);
    if (code != CLI_OK) return code;
    service_set_engine(service, n, &engine);
    if (!engine.pool_bytes) engine.pool_bytes = load_pool_bytes(k->l, &engine, n + 1);
    code = load_engine_with(k->l, &engine, &k->engine);
    if (code != CLI_OK) return code;
    service_set_serving(service, prefix_tokens, &opt);
    opt.max_requests = n;
    const pleat_status status = pleat_serving_create(k->engine, &opt, &k->serving, &err);
    return status == PLEAT_OK ? CLI_OK : cli_fail("cannot serve", status, &err);
}

int score_tasks_served(const score_options *o, const service_options *service, const loaded *l, const task_set *set,
                       score_row *row) {
    counter k = {.o = o, .l = l, .set = set, .row = row};
    const uint32_t n = o->parallel;
    uint32_t max_turns = 0;
    for (uint32_t i = 0; i < set->n_samples; i++)
        if (set->samples[i].n_turns > max_turns) max_turns = set->samples[i].n_turns;
    score_begin_row(row, set);
    pleat_token *tokens = cli_alloc((size_t)n * set->max_tokens, sizeof *tokens);
    uint32_t *ends = cli_alloc((size_t)n * max_turns, sizeof *ends);
    k.clients = cli_alloc(n, sizeof *k.clients);
    for (uint32_t i = 0; i < n; i++) {
        k.clients[i].tokens = tokens + (size_t)i * set->max_tokens;
        k.clients[i].ends = ends + (size_t)i * max_turns;
    }
    int code = start(&k, service);
    if (code == CLI_OK) code = serve(&k);
    pleat_serving_destroy(&k.serving);
    pleat_engine_destroy(&k.engine);
    free(k.clients);
    free(ends);
    free(tokens);
    return code;
}
