/* SPDX-License-Identifier: MIT
 *
 * job.c: see job.h.
 */
#include "job_parts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "cli/lib/common.h"
#include "cli/lib/measure.h"

enum { PLACE_BITS = 16, PROMPT_BITS = 8 };
#define TOKEN_NS 1e6 /* of computing a token, for the worth of what is stored */
_Static_assert(PARAMS_PROMPTS_MAX <= 1 << PROMPT_BITS, "a prompt's number fits in a tag");
_Static_assert(sizeof(void *) >= sizeof(uint64_t), "a tag fits in a request's user pointer");

/* ---- its memory ------------------------------------------------------------------------------------------------------- */

static uint32_t place_of(uint64_t tag) { return (uint32_t)(tag >> PROMPT_BITS) & ((1u << PLACE_BITS) - 1); }

static job *find(const server *s, uint64_t tag) {
    const uint32_t place = place_of(tag);
    job *j = place < s->n_jobs_max ? s->jobs[place] : NULL;
    return j && j->tag >> PROMPT_BITS == tag >> PROMPT_BITS ? j : NULL;
}

static void release(job *j) {
    for (uint32_t i = 0; i < j->n_prompts * j->p.n && j->choices; i++) {
        free(j->choices[i].text);
        calls_destroy(&j->choices[i].calls);
        json_decref(j->choices[i].tool_calls);
        json_decref(j->choices[i].logprobs);
    }
    for (uint32_t i = 0; i < j->n_prompts && j->sources; i++) free(j->sources[i].text);
    if (j->tag && find(j->s, j->tag) == j) j->s->jobs[place_of(j->tag)] = NULL;
    j->s->n_echoed -= j->n_echoed;
    places_return(&j->s->places, j->who, j->n_places);
    free(j->choices);
    free(j->sources);
    params_release(&j->p);
    json_decref(j->body);
    json_decref(j->tools);
    conversations_forget(j->s->conversations, &j->draft);
    free(j->before);
    free(j->behind);
    free(j->event_head);
    free(j);
}

/* Places for n texts, and a tag.  0 where there are none for who asks. */
static int register_job(job *j, uint32_t n) {
    server *s = j->s;
    uint32_t i = 0;
    if (!places_take(&s->places, j->who, n)) return 0;
    j->n_places = n;
    while (s->jobs[i]) i++; /* each job has a place at least, so there are no more of them */
    s->jobs[i] = j;
    j->tag = (++s->n_jobs_made << PLACE_BITS | i) << PROMPT_BITS;
    return 1;
}

/* The client whose places are taken. */
static uint64_t who_asks(const job *j) {
    const api_keys *keys = &j->s->keys;
    if (!j->terms) return connection_peer(j->c);
    return j->terms->tenant > 0 ? j->terms->tenant : TENANTS_MAX + (uint64_t)(j->terms - keys->terms);
}

/* Its messages and the answer, for a request that names its id. */
static void keep_conversation(const job *j) {
    size_t n_said;
    const double n_tokens = (double)(j->counts.n_prompt + j->counts.n_generated);
    char *answer = reply_dump(job_said(j, &j->choices[0]), &n_said);
    conversations_keep(j->s->conversations, j->salt, j->id, &j->draft, answer, n_said, n_tokens * TOKEN_NS);
    free(answer);
}

/* All texts have ended: the answer, or its end. */
static void finish_job(job *j) {
    connection_set_work(j->c, NULL);
    if (j->draft.text && j->failed == PLEAT_OK) keep_conversation(j);
    if (j->p.streams)
        job_end_stream(j);
    else if (j->failed == PLEAT_E_LIMIT)
        reply_refuse(j->c, 503, "", "there is no room for it beside what is pinned now");
    else if (j->failed != PLEAT_OK)
        reply_refuse(j->c, 500, "", "the model's numbers came out as no numbers, or the memory ran out");
    else
        job_answer_whole(j);
    release(j);
}

/* ---- notes ---------------------------------------------------------------------------------------------------------------- */

static void append(choice *ch, const char *text, size_t n) {
    if (ch->n_text + n > ch->text_cap) {
        ch->text_cap = 2 * (ch->n_text + n) + 256;
        char *longer = cli_alloc(ch->text_cap, 1);
        if (ch->n_text) memcpy(longer, ch->text, ch->n_text);
        free(ch->text);
        ch->text = longer;
    }
    if (n) memcpy(ch->text + ch->n_text, text, n);
    ch->n_text += n;
}

/* in_text: special tokens stand in the text. */
static void add_row(const job *j, choice *ch, const pleat_logprob *row, uint32_t n_top, int has_row, int in_text) {
    const pleat_model *model = j->s->l->model;
    reply_add_logprob(ch->logprobs, model, row, n_top, has_row, ch->n_characters);
    if (in_text || !pleat_model_token_is_special(model, row[0].token))
        ch->n_characters += reply_characters(model, row[0].token);
}

/* Logprobs of a note: of the echoed prompt, of the token.  The token that ends a text has a row in completions, as clients
 * that count on one for each token computed want it. */
static void add_logprobs(const job *j, const source *from, choice *ch, const pleat_serving_event *e) {
    const size_t n_row = 1 + (size_t)e->n_top;
    if (!ch->logprobs) return;
    for (uint32_t i = 0; i < e->n_prompt_rows && j->p.echoes; i++)
        add_row(j, ch, e->prompt_logprobs + i * n_row, e->n_top, i > 0,
                !from->is_string || (i > 0 && j->s->o->special));
    if (e->n_logprobs == 0 || j->p.max_tokens == 0) return;
    if (!j->p.is_chat)
        add_row(j, ch, e->logprobs, e->n_top, 1, 0);
    else if (e->token >= 0)
        json_array_append_new(ch->logprobs, reply_chat_logprob(j->s->l->model, e->logprobs, e->n_top));
}

static void measure(job *j, choice *ch, const note *n) {
    metrics *m = &j->s->metrics;
    if (n->event.chosen >= 0 && ch->last_s > 0) histogram_add(&m->token_s, n->at_s - ch->last_s);
    if (n->event.chosen >= 0 && ch->last_s <= 0) histogram_add(&m->first_token_s, n->at_s - j->start_s);
    if (n->event.chosen >= 0) ch->last_s = n->at_s;
    ch->n_tokens += n->event.chosen >= 0;
    if (n->event.finish == PLEAT_FINISH_NOT) return;
    histogram_add(&m->whole_s, n->at_s - j->start_s);
    m->n_finished[n->event.finish]++;
}

static int has_news(const job *j, const choice *ch, size_t n_text) {
    if (n_text || !ch->logprobs) return n_text > 0;
    return json_array_size(j->p.is_chat ? ch->logprobs : json_object_get(ch->logprobs, "tokens")) > 0;
}

/* Is a text wanted once more when it has ended? */
static int gathers(const job *j) { return !j->p.streams || j->draft.text; }

static void put_call(job *j, uint32_t i, const calls_piece *piece) {
    choice *ch = &j->choices[i];
    if (j->p.one_call && ch->n_calls > 0) return;
    json_t *call = reply_call(piece->name, piece->arguments, j->s->n_calls++);
    if (gathers(j)) {
        if (!ch->tool_calls) ch->tool_calls = json_array();
        json_array_append_new(ch->tool_calls, json_copy(call));
    }
    if (j->p.streams) {
        json_object_set_new(call, "index", json_integer(ch->n_calls));
        job_send_choice(j, i, json_pack("{s:[O]}", "tool_calls", call), NULL);
    }
    json_decref(call);
    ch->n_calls++;
}

/* Text in which tool calls may stand: what is certain by now goes out. */
static void put_said(job *j, uint32_t i, const char *text, size_t n, int is_over) {
    choice *ch = &j->choices[i];
    calls_piece piece;
    calls_put(ch->calls, text, n);
    if (is_over && j->behind && ch->finish == PLEAT_FINISH_END) calls_put(ch->calls, j->behind, strlen(j->behind));
    if (is_over) calls_end(ch->calls);
    while (calls_next(ch->calls, &piece)) {
        if (!piece.text) put_call(j, i, &piece);
        if (piece.text && gathers(j)) append(ch, piece.text, piece.n_text);
        if (piece.text && j->p.streams) job_send_piece(j, i, piece.text, piece.n_text, NULL);
    }
}

static void put_text(job *j, uint32_t i, const pleat_serving_event *e, const char *text, size_t n) {
    choice *ch = &j->choices[i];
    const int is_over = e->finish != PLEAT_FINISH_NOT;
    if (ch->calls) {
        put_said(j, i, text, n, is_over);
        n = 0;
    }
    if (gathers(j)) append(ch, text, n);
    if (!j->p.streams) return;
    if (e->finish == PLEAT_FINISH_FAILED)
        job_send_json(j, reply_error(500, "", "the text cannot go on: numbers that are none, or no memory"));
    else if (has_news(j, ch, n) || is_over)
        job_send_piece(j, i, text, n, is_over ? job_finish_word(ch) : NULL);
}

static void count_end(job *j, choice *ch, const pleat_serving_event *e) {
    const pleat_request_stats *st = &e->stats;
    reply_counts *c = &j->counts;
    ch->is_open = 0;
    ch->finish = j->p.max_tokens == 0 && e->finish != PLEAT_FINISH_FAILED ? PLEAT_FINISH_LENGTH : e->finish;
    if (e->finish == PLEAT_FINISH_FAILED) j->failed = e->status;
    j->n_open--;
    j->n_places--;
    places_return(&j->s->places, j->who, 1);
    if (j->p.max_tokens != 0) c->n_generated += st->n_generated;
    if (j->terms) {
        tenant_counts *t = &j->s->metrics.tenants[j->terms->tenant];
        t->n_texts++;
        t->n_prompt += st->n_prompt;
        t->n_generated += st->n_generated;
    }
    if (e->index == 0) c->n_hit += st->n_hit;
    c->n_computed += st->n_computed;
    c->kv_bytes += st->kv_bytes;
    c->kv_bytes_f16 += st->kv_bytes_f16;
    if (st->prompt_ns > c->prompt_ns) c->prompt_ns = st->prompt_ns;
    if (st->answer_ns > c->answer_ns) c->answer_ns = st->answer_ns;
}

void job_note(server *s, const note *n) {
    const uint64_t tag = (uint64_t)(uintptr_t)n->event.user;
    const uint32_t prompt = (uint32_t)tag & ((1u << PROMPT_BITS) - 1);
    job *j = find(s, tag);
    if (!j || prompt >= j->n_prompts || n->event.index >= j->p.n) return;
    const uint32_t i = prompt * j->p.n + n->event.index;
    choice *ch = &j->choices[i];
    const source *from = &j->sources[prompt];
    pleat_serving_event e = n->event;
    if (!ch->is_open) return;
    if (e.is_progress) {
        job_send_progress(j, i, &e);
        return;
    }
    measure(j, ch, n);
    if (j->p.max_tokens == 0) e.n_text = 0;
    if (e.finish != PLEAT_FINISH_NOT) count_end(j, ch, &e);
    e.finish = ch->is_open ? PLEAT_FINISH_NOT : ch->finish;
    add_logprobs(j, from, ch, &e);
    if (from->text && !ch->has_begun) {
        char *both = cli_alloc(from->n_text + e.n_text + 1, 1);
        memcpy(both, from->text, from->n_text);
        if (e.n_text) memcpy(both + from->n_text, e.text, e.n_text);
        put_text(j, i, &e, both, from->n_text + e.n_text);
        free(both);
    } else {
        put_text(j, i, &e, e.text, e.n_text);
    }
    ch->has_begun = 1;
    if (j->n_open == 0) finish_job(j);
}

/* ---- the beginning -------------------------------------------------------------------------------------------------------- */

/* is_abort: they had been taken, and count. */
static void cancel_open(job *j, unsigned is_abort) {
    for (uint32_t i = 0; i < j->n_prompts * j->p.n; i++) {
        if (!j->choices[i].is_open) continue;
        pleat_serving_post_cancel(j->served->serving, j->choices[i].id);
        j->s->metrics.n_aborted += is_abort;
    }
}

static int set_up(job *j, int is_chat, refusal *why) {
    uint32_t spec;
    if (!reply_make_id(is_chat ? "chatcmpl" : "cmpl", j->id, sizeof j->id))
        return params_refuse(why, 503, "", "the system has no random numbers");
    if (params_read(j->body, is_chat, &j->p, why) != 0 || job_heed_key(j->terms, &j->p, why) != 0) return -1;
    job_salt(j->terms ? j->s->keys.tenants[j->terms->tenant].name : "", j->p.salt, j->salt, sizeof j->salt);
    if (j->p.model && strcmp(j->p.model, j->s->name) != 0)
        return params_refuse(why, 404, "model", "the model '%.100s' is not here; '%.100s' is", j->p.model, j->s->name);
    if (job_find_spec(j->s, j->p.kv, &spec, why) != 0) return -1;
    j->served = &j->s->served[spec];
    if (j->s->is_stopping) return params_refuse(why, 503, "", "the server is stopping");
    if (!j->p.has_seed && getrandom(&j->p.sampling.seed, sizeof j->p.sampling.seed, GRND_NONBLOCK) < 0)
        j->p.sampling.seed = (uint64_t)time(NULL) ^ j->s->n_jobs_made;
    j->tools = json_incref(j->p.tools);
    if ((j->p.forced || j->p.requires_call) && job_force_call(j, why) != 0) return -1;
    if (j->p.has_strict && job_hold_calls(j, why) != 0) return -1;
    j->n_prompts = is_chat ? 1 : params_count_prompts(j->p.prompt, why);
    const uint32_t n_texts = j->n_prompts * j->p.n, n_most = places_most(&j->s->places);
    if (n_texts > n_most)
        return params_refuse(why, 400, "n", "%u continuations are more than the %u that one may have here at once",
                             n_texts, n_most);
    if (!register_job(j, n_texts))
        return params_refuse(why, 429, "", "of %u places for texts %u are taken, and too few are free for who has some",
                             j->s->places.n_max, j->s->places.n_held);
    j->choices = cli_alloc(n_texts, sizeof *j->choices);
    j->sources = cli_alloc(j->n_prompts, sizeof *j->sources);
    if (j->p.stores && job_draft(j->s, j->p.messages, &j->draft, why) != 0) return -1;
    for (uint32_t i = 0; i < j->n_prompts; i++)
        if (job_post_prompt(j, i, why) != 0) return -1;
    return 0;
}

/* Its client has gone: cancel and forget it. */
static void leave(connection_work *work) {
    job *j = (job *)work;
    cancel_open(j, 1);
    release(j);
}

void job_start(server *s, connection *c, json_t *body, int is_chat, const key_terms *terms) {
    refusal why = {.status = 400};
    job *j = cli_alloc(1, sizeof *j);
    *j = (job){.work = {leave},
               .s = s,
               .c = c,
               .body = body,
               .terms = terms,
               .created_s = time(NULL),
               .start_s = measure_now_s()};
    j->who = who_asks(j);
    if (set_up(j, is_chat, &why) != 0) {
        if (j->choices) cancel_open(j, 0);
        release(j);
        reply_refuse(c, why.status, why.field, why.text);
        return;
    }
    params_release(&j->p);
    json_decref(j->body);
    j->body = NULL;
    connection_set_work(c, &j->work);
    if (!j->p.streams) return;
    connection_begin_stream(c);
    for (uint32_t i = 0; is_chat && i < j->p.n; i++)
        job_send_choice(j, i, json_pack("{s:s, s:s}", "role", "assistant", "content", ""), NULL);
}

/* ---- what is here ----------------------------------------------------------------------------------------------------------- */

static json_t *slot_of(const job *j, uint32_t i, size_t id) {
    const choice *ch = &j->choices[i];
    const source *from = &j->sources[i / j->p.n];
    return json_pack("{s:I, s:I, s:I, s:b, s:I, s:[{s:b, s:I, s:I}]}", "id", (json_int_t)id, "id_task",
                     (json_int_t)(j->tag >> PROMPT_BITS), "n_ctx", (json_int_t)j->s->n_ctx, "is_processing", 1,
                     "n_prompt_tokens", (json_int_t)from->n_tokens, "next_token", "has_next_token", 1, "n_decoded",
                     (json_int_t)ch->n_tokens, "n_remain", (json_int_t)from->n_predict - (json_int_t)ch->n_tokens);
}

json_t *job_slots(const server *s) {
    json_t *slots = json_array();
    for (uint32_t k = 0; k < s->n_jobs_max; k++) {
        const job *j = s->jobs[k];
        for (uint32_t i = 0; j && i < j->n_prompts * j->p.n; i++)
            if (j->choices[i].is_open) json_array_append_new(slots, slot_of(j, i, json_array_size(slots)));
    }
    while (json_array_size(slots) < s->o->parallel)
        json_array_append_new(slots, json_pack("{s:I, s:I, s:b}", "id", (json_int_t)json_array_size(slots), "n_ctx",
                                               (json_int_t)s->n_ctx, "is_processing", 0));
    return slots;
}

/* ---- other ends --------------------------------------------------------------------------------------------------------------- */

void job_abort(job *j) {
    connection_set_work(j->c, NULL);
    cancel_open(j, 1);
    if (j->p.streams) {
        for (uint32_t i = 0; i < j->n_prompts * j->p.n; i++) {
            if (!j->choices[i].is_open) continue;
            if (j->choices[i].calls) put_said(j, i, NULL, 0, 1);
            job_send_piece(j, i, NULL, 0, "abort");
            if (j->p.max_tokens != 0) j->counts.n_generated += j->choices[i].n_tokens;
        }
        job_end_stream(j);
    } else {
        reply_refuse(j->c, 503, "", "the server is stopping");
    }
    release(j);
}
