/* SPDX-License-Identifier: MIT
 *
 * job.h: a completion or chat completion on its way: its prompts as tokens, its continuations in the serving, and their
 * texts, streamed or gathered.
 *
 *     job_start ──posts──> job_note, for each event of its requests ──> the last text has ended: answered, and gone
 *         └──refused: answered, and no job                leave: the client is gone          job_abort: the server stops
 *
 * A continuation is one request of the serving.  Its tag says whose it is, so that a note that comes after its job has gone
 * finds nothing:
 *
 *     tag = job's serial << 24 | job's place << 8 | prompt            the event's index: which continuation of that prompt
 */
#ifndef PLEAT_CLI_SERVE_JOB_H
#define PLEAT_CLI_SERVE_JOB_H

#include <jansson.h>

#include "net/connection.h"
#include "params.h"
#include "serve.h"

enum { JOB_SALT_CAP = TENANT_CAP + PARAMS_SALT_MAX + 2 };

typedef struct job job;

/* Begin on a request; takes the body.  What is refused is answered at once.  terms: of its key, lives on; NULL: none. */
void job_start(server *s, connection *c, json_t *body, int is_chat, const key_terms *terms);

/* An event of the serving has come. */
void job_note(server *s, const note *n);

/* End all its texts as they are, with a well-formed last event, or refuse it where nothing was sent; forget it. */
void job_abort(job *j);

/* The texts that are here, in steps or waiting, and below them the places that are free, in the form of llama-server's
 * /slots.  What they say is not in it, nor their answers' ids, by which others could go on from them. */
json_t *job_slots(const server *s);

/* prompt.c: text to tokens.  The caller frees *ids.  0, or -1 with *why. */
int job_tokens(const server *s, const char *text, size_t n_bytes, uint32_t flags, pleat_token **ids, uint32_t *n,
               refusal *why);

/* The text of tokens, special ones by their names; the caller frees it. */
char *job_text(const server *s, const pleat_token *ids, uint32_t n, size_t *n_text);

/* Does the model have them all?  0, or -1 with *why. */
int job_check_ids(const server *s, const pleat_token *ids, uint32_t n, refusal *why);

/* The salt of a tenant's prefixes with a cache_salt, which may be NULL.  Tenants share no prefixes with each other: no salt
 * spells another tenant's, also that of a server without keys, which may share a store with one that has them. */
void job_salt(const char *tenant, const char *cache_salt, char *out, size_t cap);

/* What a key says of how much may be asked for, which p then has; t NULL: nothing.  0, or -1 with *why. */
int job_heed_key(const key_terms *t, params *p, refusal *why);

/* The draft of a chat with these messages, which is to be gone on from.  0, or -1 with *why. */
int job_draft(const server *s, json_t *messages, conversation_draft *out, refusal *why);

/* The place of the KV spec that is named, in this or another spelling; NULL: the first.  0, or -1 with *why. */
int job_find_spec(const server *s, const char *wanted, uint32_t *at, refusal *why);

/* A conversation for the model's template. */
typedef struct chat_ask {
    json_t *messages;
    json_t *tools, *template_args; /* NULL: none */
    const char *begun; /* how the answer begins, which is part of the prompt then; NULL: as the model likes */
    int is_unprompted; /* nothing behind the last message asks for an answer */
    int goes_on;       /* the prompt ends within the last message, and the answer goes on with it */
} chat_ask;

/* It as tokens. */
int job_chat_tokens(const server *s, const chat_ask *ask, pleat_token **ids, uint32_t *n, refusal *why);

enum { JOB_TURNS_MAX = 32 };

/* Where a chat's turns are cut: the prompts before each of its first answers, and ids [n], which is all of it; of what is no chat
 * the last alone.  Ascending, into out [JOB_TURNS_MAX + 1]; returns how many. */
uint32_t job_turn_ends(const server *s, const params *p, uint32_t chunk_tokens, const pleat_token *ids, uint32_t n,
                       uint32_t *out);

#endif
