/* SPDX-License-Identifier: MIT
 *
 * job_post.c: a job's prompts, from its request's body to requests of the serving.  See job_parts.h.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"
#include "job_parts.h"

enum { ECHOED_MAX = 1 << 21 }; /* logprobs of prompts in all jobs, of about 400 bytes as JSON in memory each */

/* The i-th prompt's tokens. */
static int read_prompt(job *j, uint32_t i, pleat_token **ids, uint32_t *n, refusal *why) {
    const params *p = &j->p;
    source *from = &j->sources[i];
    const chat_ask ask = {.messages = p->messages,
                          .tools = p->tools,
                          .template_args = p->template_args,
                          .begun = j->before,
                          .is_unprompted = p->is_unprompted,
                          .goes_on = p->goes_on};
    if (p->is_chat) return job_chat_tokens(j->s, &ask, ids, n, why);
    json_t *prompt = params_prompt(p->prompt, i);
    if (!json_is_string(prompt)) {
        if (params_ids(prompt, ids, n, why) != 0) return -1;
        if (job_check_ids(j->s, *ids, *n, why) != 0) return -1;
        if (p->echoes) from->text = job_text(j->s, *ids, *n, &from->n_text);
        return 0;
    }
    const char *text = json_string_value(prompt);
    const size_t n_text = json_string_length(prompt);
    from->is_string = 1;
    const uint32_t flags =
        (p->adds_special ? PLEAT_TOKENIZE_ADD_BOS : 0) | (j->s->o->special ? PLEAT_TOKENIZE_SPECIAL : 0);
    if (p->echoes) {
        from->text = cli_copy(text, n_text);
        from->n_text = n_text;
    }
    return job_tokens(j->s, text, n_text, flags, ids, n, why);
}

/* Does it fit in the context?  *n_predict: tokens to generate. */
static int fit(const job *j, uint32_t n_prompt, uint32_t *n_predict, refusal *why) {
    const uint32_t n_ctx = j->s->n_ctx;
    if (n_prompt == 0)
        return params_refuse(why, 400, "prompt",
                             "the prompt is empty, and this model puts no token in front of a text");
    if (n_prompt >= n_ctx)
        return params_refuse(why, 400, j->p.is_chat ? "messages" : "prompt",
                             "the prompt has %u tokens; the context of %u has room for %u and one to generate",
                             n_prompt, n_ctx, n_ctx - 1);
    const int64_t wanted = j->p.max_tokens == 0 ? 1 : j->p.max_tokens;
    if (wanted > n_ctx - n_prompt)
        return params_refuse(why, 400, "max_tokens",
                             "the prompt's %u tokens and max_tokens %lld are more than the context of %u", n_prompt,
                             (long long)wanted, n_ctx);
    *n_predict = wanted < 0 ? n_ctx - n_prompt : (uint32_t)wanted;
    return 0;
}

static pleat_request request_of(const job *j, uint32_t prompt, const pleat_token *ids, uint32_t n, uint32_t n_predict) {
    const params *p = &j->p;
    pleat_request q;
    pleat_request_default(&q);
    q.prompt = ids;
    q.n_prompt = n;
    q.n_predict = n_predict;
    q.salt = j->salt;
    q.tenant = j->terms ? j->s->keys.tenants[j->terms->tenant].name : NULL;
    q.priority = p->priority;
    q.sampling = p->sampling;
    q.ignores_end = p->ignores_end;
    q.user = (void *)(uintptr_t)(j->tag | prompt);
    q.wants_text = 1;
    q.wants_json = p->wants_json || j->before || p->has_strict;
    if (p->has_strict) q.json_mark = calls_marker(j->s->calls);
    q.shape = schema_shape(p->schema);
    q.text_goes_on = !p->is_chat || p->goes_on;
    q.wants_progress = p->wants_progress;
    q.text_has_special = p->is_chat && p->tools && j->s->marks_are_special;
    q.stops = p->stops;
    q.n_stops = p->n_stops;
    q.stop_ids = p->stop_ids;
    q.n_stop_ids = p->n_stop_ids;
    q.wants_logprobs = p->wants_logprobs;
    q.wants_prompt_logprobs = p->wants_logprobs && p->echoes;
    q.n_top = p->n_top < j->s->l->info.n_vocab ? p->n_top : j->s->l->info.n_vocab;
    q.biases = p->biases;
    q.n_biases = p->n_biases;
    q.frequency_penalty = p->frequency_penalty;
    q.presence_penalty = p->presence_penalty;
    q.repetition_penalty = p->repetition_penalty;
    q.time_limit_ns = p->time_limit_ms * 1000000;
    return q;
}

/* The status of a refusal by the serving. */
static int status_of(pleat_status status, const pleat_error *err) {
    if (status == PLEAT_E_LIMIT) return err->where != PLEAT_NOWHERE ? 429 : 400;
    return status == PLEAT_E_MEMORY ? 503 : 400;
}

/* Count the logprobs of a prompt that come with its text. */
static int count_echo(job *j, uint32_t n_prompt, refusal *why) {
    if (!j->p.wants_logprobs || !j->p.echoes) return 0;
    const uint64_t n = (uint64_t)n_prompt * (1 + j->p.n_top);
    if (j->n_echoed + n > ECHOED_MAX)
        return params_refuse(why, 400, "logprobs", "echo has at most %d logprobs of prompts in one request",
                             ECHOED_MAX);
    if (j->s->n_echoed + n > ECHOED_MAX)
        return params_refuse(why, 429, "logprobs", "%d logprobs of prompts are under way, as many as there may be",
                             ECHOED_MAX);
    j->n_echoed += n;
    j->s->n_echoed += n;
    return 0;
}

/* Queue the continuations of a prompt: 0, or -1 with *why. */
static int post(job *j, uint32_t i, const pleat_token *ids, uint32_t n, uint32_t n_predict, pleat_request_id *posted,
                refusal *why) {
    uint32_t ends[JOB_TURNS_MAX + 1];
    const params *p = &j->p;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_request q = request_of(j, i, ids, n, n_predict);
    q.breakpoints = ends;
    if (p->parks) q.n_breakpoints = job_turn_ends(j->s, p, j->served->chunk_tokens, ids, n, ends);
    const pleat_status status = pleat_serving_post(j->served->serving, &q, p->n, posted, &err);
    return status == PLEAT_OK ? 0 : params_refuse(why, status_of(status, &err), "", "%s", err.text);
}

int job_post_prompt(job *j, uint32_t i, refusal *why) {
    pleat_token *ids = NULL;
    uint32_t n = 0, n_predict = 0;
    pleat_request_id posted[PARAMS_CHOICES_MAX];
    int code = read_prompt(j, i, &ids, &n, why);
    if (code == 0) code = fit(j, n, &n_predict, why);
    if (code == 0) code = count_echo(j, n, why);
    if (code == 0) code = post(j, i, ids, n, n_predict, posted, why);
    free(ids);
    if (code != 0) return -1;
    j->sources[i].n_tokens = n;
    j->sources[i].n_predict = n_predict;
    j->counts.n_prompt += n;
    for (uint32_t k = 0; k < j->p.n; k++) {
        choice *ch = &j->choices[i * j->p.n + k];
        ch->id = posted[k];
        ch->is_open = 1;
        if (j->tools && j->s->calls != CALLS_NONE) ch->calls = calls_create(j->s->calls, j->tools);
        if (j->before) calls_put(ch->calls, j->before, strlen(j->before));
        if (j->p.wants_logprobs) ch->logprobs = j->p.is_chat ? json_array() : reply_logprobs();
        j->n_open++;
    }
    return 0;
}

int job_force_call(job *j, refusal *why) {
    if (j->s->calls == CALLS_NONE)
        return params_refuse(why, 400, "tool_choice", "this model's chat template knows no tool calls to force");
    if (j->p.goes_on)
        return params_refuse(why, 400, "tool_choice", "a call that is forced does not go on with the last message");
    if (params_read_call(&j->p, calls_arguments(j->s->calls), why) != 0) return -1;
    calls_frame(j->s->calls, j->p.forced, &j->before, &j->behind);
    return 0;
}

int job_hold_calls(job *j, refusal *why) {
    if (j->s->calls == CALLS_TAGS) return params_read_call(&j->p, calls_arguments(CALLS_TAGS), why);
    return params_refuse(why, 400, "tools", "strict beside tool_choice \"auto\" needs a model that writes <tool_call>");
}
