/* SPDX-License-Identifier: MIT
 *
 * job_parts.h: what a job is, for the files that it is made of.
 *
 *     job.c         its memory, its life: from a request to the end of its last text, by what the serving notes
 *     job_post.c    its prompts as tokens, and their continuations as requests to the serving
 *     job_answer.c  events of a stream, and whole answers
 */
#ifndef PLEAT_CLI_SERVE_JOB_PARTS_H
#define PLEAT_CLI_SERVE_JOB_PARTS_H

#include "job.h"
#include "reply.h"

typedef struct choice {
    pleat_request_id id;
    int is_open, has_begun; /* has_begun: a note of it has come */
    char *text;             /* [n_text] so far, where it is not streamed or the conversation is kept */
    size_t n_text, text_cap;
    calls *calls; /* takes tool calls out of its text; NULL: there are no tools, or the model writes none */
    uint32_t n_calls;
    json_t *tool_calls; /* so far, as the text; NULL: none */
    json_t *logprobs;   /* so far, or since the last event of a stream; NULL: not wanted */
    uint64_t n_characters;
    uint32_t n_tokens; /* chosen so far */
    pleat_finish finish;
    double last_s; /* when its last token came */
} choice;

typedef struct source {
    char *text; /* [n_text] for echo; NULL: none */
    size_t n_text;
    uint32_t n_tokens, n_predict; /* of the prompt, and at most of each answer */
    int is_string;                /* special tokens do not stand in text but where the string spells them out */
} source;

struct job {
    connection_work work; /* first */
    server *s;
    connection *c;
    json_t *body; /* params point into it; NULL once all is posted, and nothing of them that does is read */
    params p;
    const key_terms *terms; /* of its key; NULL: none */
    uint64_t who;           /* has asked (places.h) */
    uint32_t n_places;      /* that its texts hold */
    const served *served;   /* its KV spec */
    char salt[JOB_SALT_CAP];
    json_t *tools;            /* p.tools, for longer than the body */
    conversation_draft draft; /* of p.messages, where the conversation is kept; text NULL: it is not */
    char *before, *behind;    /* of the arguments of a call that is forced (calls_frame); NULL: none is */
    uint64_t tag;             /* less the prompt's number */
    char id[48];
    char *event_head; /* [n_event_head] of its events, up to their choices; NULL: none has been sent */
    size_t n_event_head;
    int64_t created_s;
    double start_s;
    uint32_t n_prompts, n_open;
    choice *choices;     /* [n_prompts][p.n] */
    source *sources;     /* [n_prompts] */
    reply_counts counts; /* of the texts that have ended */
    uint64_t n_echoed;   /* part of s->n_echoed */
    pleat_status failed; /* why a text could not go on; PLEAT_OK: all could */
};

/* ---- job_post.c ---------------------------------------------------------------------------------------------------------- */

/* Queue the continuations of the i-th prompt: 0, or -1 with *why. */
int job_post_prompt(job *j, uint32_t i, refusal *why);

/* How a call begins becomes part of the prompt: where the model has to call.  0, or -1 with *why. */
int job_force_call(job *j, refusal *why);

/* A call that the model may begin by itself has its tool's schema.  0, or -1 with *why. */
int job_hold_calls(job *j, refusal *why);

/* ---- job_answer.c -------------------------------------------------------------------------------------------------------- */

/* An event, which is taken. */
void job_send_json(job *j, json_t *object);

/* The event of choice i; delta is taken.  finish NULL: it goes on. */
void job_send_choice(job *j, uint32_t i, json_t *delta, const char *finish);

/* The same of text, which may be none. */
void job_send_piece(job *j, uint32_t i, const char *text, size_t n, const char *finish);

/* An event without text: how far a choice's prompt has been read. */
void job_send_progress(job *j, uint32_t i, const pleat_serving_event *e);

void job_end_stream(job *j);

/* The word of a text's end. */
const char *job_finish_word(const choice *ch);

/* What a choice has said: a message, or a completion's text. */
json_t *job_said(const job *j, const choice *ch);

void job_answer_whole(job *j);

#endif
