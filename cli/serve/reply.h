/* SPDX-License-Identifier: MIT
 *
 * reply.h: the JSON objects of answers, as OpenAI's API has them.
 *
 * A token's text that is no UTF-8 by itself is "bytes:\xe2\x80", one \x for each byte, as in OpenAI's older API; so two
 * tokens never have the same name.  A logprob of -inf is -9999.
 */
#ifndef PLEAT_CLI_SERVE_REPLY_H
#define PLEAT_CLI_SERVE_REPLY_H

#include <jansson.h>

#include "net/connection.h"
#include "params.h"

/* {"error": {...}}.  type and code follow the status; field "" is null. */
json_t *reply_error(int status, const char *field, const char *text);

/* "KIND-" and 32 digits: an id that nobody has had, nor guesses, since who knows that of a conversation may go on with it.  0:
 * the system has no random numbers. */
int reply_make_id(const char *kind, char *out, size_t cap);

/* A token's text as a JSON string. */
json_t *reply_token(const pleat_model *model, pleat_token id);

/* Characters of a token's text. */
uint32_t reply_characters(const pleat_model *model, pleat_token id);

/* A token of a chat's logprobs.content: row [1 + n_top], the token's own first. */
json_t *reply_chat_logprob(const pleat_model *model, const pleat_logprob *row, uint32_t n_top);

/* Empty logprobs of a completion, and a row more in them: its text begins `offset` characters behind the text's beginning.
 * has_row 0: the first token of a text, before which nothing stands. */
json_t *reply_logprobs(void);
void reply_add_logprob(json_t *logprobs, const pleat_model *model, const pleat_logprob *row, uint32_t n_top,
                       int has_row, uint64_t offset);

/* A tool call.  Its id is unlike those of other numbers n, and has nine letters and digits, as Mistral's templates want. */
json_t *reply_call(const char *name, const char *arguments, uint64_t n);

/* What a request took, summed over its texts; times are those of the text that took longest. */
typedef struct reply_counts {
    uint64_t n_prompt, n_hit; /* prompt tokens, and those of them that a kept prefix gave */
    uint64_t n_generated;
    uint64_t n_computed; /* prompt tokens that its texts computed themselves */
    uint64_t prompt_ns, answer_ns;
    uint64_t kv_bytes, kv_bytes_f16; /* held as texts ended, and what f16 would have held */
} reply_counts;

json_t *reply_usage(const reply_counts *c, const char *kv);

/* Times by llama-server's names, in ms and tokens a second. */
json_t *reply_timings(const reply_counts *c);

/* How far a prompt has been read, by llama-server's names: tokens of it, of a kept prefix and read, both included; ms. */
json_t *reply_progress(const pleat_request_stats *stats, uint32_t n_read);

/* The word of a text's end. */
const char *reply_finish(pleat_finish finish);

/* Answer with an object, which is taken, or with an error. */
void reply_send(connection *c, int status, json_t *body);
void reply_refuse(connection *c, int status, const char *field, const char *text);

/* The text of an object or another value, to be freed; it takes the object. */
char *reply_dump(json_t *object, size_t *n_bytes);

#endif
