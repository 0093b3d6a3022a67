/* SPDX-License-Identifier: MIT
 *
 * job_answer.c: what a job's client reads, chunk by chunk or whole.  See job_parts.h.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cli/lib/common.h"
#include "job_parts.h"

static json_t *frame(const job *j, int is_chunk, json_t *choices) {
    const char *object = !j->p.is_chat ? "text_completion" : is_chunk ? "chat.completion.chunk" : "chat.completion";
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", j->id, "object", object, "created", (json_int_t)j->created_s,
                     "model", j->s->name, "choices", choices);
}

static json_t *taken_logprobs(choice *ch, int is_chat) {
    json_t *logprobs = ch->logprobs;
    ch->logprobs = logprobs ? (is_chat ? json_array() : reply_logprobs()) : NULL;
    if (!logprobs) return json_null();
    return is_chat ? json_pack("{s:o}", "content", logprobs) : logprobs;
}

void job_send_json(job *j, json_t *object) {
    size_t n;
    char *text = reply_dump(object, &n);
    connection_send(j->c, text, n);
    free(text);
}

/* The event of one choice; delta and logprobs are taken.  finish NULL: it goes on. */
static json_t *choice_event(const job *j, uint32_t i, json_t *delta, json_t *logprobs, const char *finish) {
    json_t *one = json_pack("{s:i, s:o, s:o, s:o}", "index", (int)i, j->p.is_chat ? "delta" : "text", delta, "logprobs",
                            logprobs, "finish_reason", finish ? json_string(finish) : json_null());
    return frame(j, 1, json_pack("[o]", one));
}

void job_send_choice(job *j, uint32_t i, json_t *delta, const char *finish) {
    json_t *event = choice_event(j, i, delta, taken_logprobs(&j->choices[i], j->p.is_chat), finish);
    if (finish && j->n_open == 0 && !j->p.wants_usage) json_object_set_new(event, "timings", reply_timings(&j->counts));
    job_send_json(j, event);
}

/* job_send_choice() of a text alone, which is what nearly all events are: the same bytes, and no tree of JSON for each. */
static void send_plain(job *j, uint32_t i, const char *text, size_t n) {
    static const char after[] = "\"logprobs\":null,\"finish_reason\":null}]}";
    size_t n_quoted;
    if (!j->event_head) {
        j->event_head = reply_dump(frame(j, 1, json_array()), &j->n_event_head);
        j->n_event_head -= 2; /* ]} */
    }
    char *quoted = reply_dump(json_stringn(text, n), &n_quoted);
    char *event = cli_alloc(j->n_event_head + n_quoted + sizeof after + 64, 1);
    const int n_event = sprintf(
        event, j->p.is_chat ? "%.*s{\"index\":%u,\"delta\":{\"content\":%s},%s" : "%.*s{\"index\":%u,\"text\":%s,%s",
        (int)j->n_event_head, j->event_head, i, quoted, after);
    connection_send(j->c, event, (size_t)n_event);
    free(event);
    free(quoted);
}

void job_send_piece(job *j, uint32_t i, const char *text, size_t n, const char *finish) {
    if (n && !finish && !j->choices[i].logprobs) {
        send_plain(j, i, text, n);
        return;
    }
    json_t *piece = json_stringn(n ? text : "", n);
    if (j->p.is_chat) piece = n || !finish ? json_pack("{s:o}", "content", piece) : (json_decref(piece), json_object());
    job_send_choice(j, i, piece, finish);
}

void job_send_progress(job *j, uint32_t i, const pleat_serving_event *e) {
    json_t *event = choice_event(j, i, j->p.is_chat ? json_object() : json_string(""), json_null(), NULL);
    json_object_set_new(event, "prompt_progress", reply_progress(&e->stats, e->n_read));
    job_send_json(j, event);
}

static void add_usage(const job *j, json_t *answer) {
    json_object_set_new(answer, "usage", reply_usage(&j->counts, j->served->kv));
    json_object_set_new(answer, "timings", reply_timings(&j->counts));
}

void job_end_stream(job *j) {
    if (j->p.wants_usage) {
        json_t *last = frame(j, 1, json_array());
        add_usage(j, last);
        job_send_json(j, last);
    }
    connection_send(j->c, "[DONE]", 6);
    connection_end_stream(j->c);
}

const char *job_finish_word(const choice *ch) {
    const int ended = ch->finish == PLEAT_FINISH_END || ch->finish == PLEAT_FINISH_STOP;
    return ended && ch->n_calls > 0 ? "tool_calls" : reply_finish(ch->finish);
}

json_t *job_said(const job *j, const choice *ch) {
    json_t *text = ch->tool_calls && ch->n_text == 0 ? json_null() : json_stringn(ch->text ? ch->text : "", ch->n_text);
    if (j->p.is_chat) text = json_pack("{s:s, s:o}", "role", "assistant", "content", text);
    if (ch->tool_calls) json_object_set(text, "tool_calls", ch->tool_calls);
    return text;
}

static json_t *whole_choice(job *j, uint32_t i) {
    choice *ch = &j->choices[i];
    json_t *text = job_said(j, ch);
    return json_pack("{s:i, s:o, s:o, s:s}", "index", (int)i, j->p.is_chat ? "message" : "text", text, "logprobs",
                     taken_logprobs(ch, j->p.is_chat), "finish_reason", job_finish_word(ch));
}

void job_answer_whole(job *j) {
    json_t *choices = json_array();
    for (uint32_t i = 0; i < j->n_prompts * j->p.n; i++) json_array_append_new(choices, whole_choice(j, i));
    json_t *answer = frame(j, 0, choices);
    add_usage(j, answer);
    reply_send(j->c, 200, answer);
}
