/* SPDX-License-Identifier: MIT
 *
 * params.h: the JSON bodies of completions, read by functions that know neither network nor model.
 *
 *     body ──json_loadb──> object ──params_read──> params: numbers in their ranges, strings that the object keeps
 *                                            └──> refusal: status, field and words for OpenAI's error object
 *
 * A field that is null is as if it were left out.  Fields that change nothing here, as user and metadata, are passed over,
 * and so are unknown ones.  What would change the answer and cannot be done is refused by name: suffix, best_of, audio,
 * min_tokens, bad_words, what guides the choice of tokens (check_undone has the list), what a schema may not say (schema.h).
 */
#ifndef PLEAT_CLI_SERVE_PARAMS_H
#define PLEAT_CLI_SERVE_PARAMS_H

#include <jansson.h>

#include "pleat/pleat.h"
#include "schema.h"

enum {
    PARAMS_LISTS_MAX = 65536, /* { and [, those in strings too */
    PARAMS_STOP_IDS_MAX = 64,
    PARAMS_TOOLS_MAX = PLEAT_JSON_CHOICES_MAX, /* among which one is required */
    PARAMS_BIASES_MAX = 1024,
    PARAMS_PROMPTS_MAX = 256,
    PARAMS_CHOICES_MAX = 128, /* of one prompt */
    PARAMS_SALT_MAX = 256,    /* bytes of cache_salt */
    PARAMS_TIME_LIMIT_MAX_MS = 86400000
};

/* Why a body is refused. */
typedef struct refusal {
    int status;
    char field[48]; /* "": none in particular */
    char text[256];
} refusal;

typedef struct params {
    int is_chat;
    const char *model;     /* NULL: not named */
    json_t *messages;      /* chat: an array of objects; NULL in completions.  All json_t here are the body's */
    json_t *tools;         /* NULL: none, or tool_choice is none */
    const char *forced;    /* the tool that is to be called, by tool_choice; NULL: none.  It is among the tools */
    int requires_call;     /* one of several tools is to be called */
    int has_strict;        /* a tool is strict: a call that the model begins by itself has its schema */
    int one_call;          /* parallel_tool_calls is false: the first call alone counts */
    json_t *template_args; /* chat_template_kwargs, an object; NULL: none */
    int is_unprompted;     /* add_generation_prompt is false */
    int goes_on;           /* continue_final_message: the answer goes on with the last message */
    json_t *prompt;        /* completions: a string, or an array of strings, of token ids, or of arrays of these */
    uint32_t n;            /* continuations of each prompt */
    int64_t max_tokens;    /* -1: not given */
    int wants_json;        /* response_format is json_object or json_schema */
    schema *schema;        /* of the answer, or of a call's arguments; NULL: any object.  params_release() returns it */
    int streams, wants_usage, wants_progress, echoes, ignores_end, adds_special;
    int wants_logprobs;
    uint32_t n_top;
    pleat_sampler_options sampling;
    int has_seed;
    float frequency_penalty, presence_penalty, repetition_penalty;
    const char *stops[PLEAT_STOPS_MAX];
    uint32_t n_stops;
    pleat_token stop_ids[PARAMS_STOP_IDS_MAX];
    uint32_t n_stop_ids;
    pleat_logit_bias biases[PARAMS_BIASES_MAX];
    uint32_t n_biases;
    int has_priority;
    int32_t priority;
    const char *kv;   /* the KV spec; NULL: none is named */
    const char *salt; /* cache_salt; NULL: none */
    int parks;        /* its prompt's end is kept for the next turn: prompt_cache_key, store, previous_response_id */
    int stores;       /* chats: the conversation, to be gone on from */
    uint64_t time_limit_ms; /* 0: none */
} params;

/* Has JSON more than PARAMS_LISTS_MAX lists and objects?  One of two bytes becomes a hundred times that. */
int params_have_many_lists(const char *json, size_t n);

/* Read the body of a chat completion or a completion.  0, or -1 with *why filled in.  *out points into body. */
int params_read(json_t *body, int is_chat, params *out, refusal *why);

void params_release(params *p);

/* The schema of a call: of the arguments of one that is forced, where its tool is strict; else of the whole call of one of
 * several tools, in which they are called `arguments`.  0, or -1 with *why. */
int params_read_call(params *p, const char *arguments, refusal *why);

/* Is it a list of messages, each with a role?  0, or -1 with *why. */
int params_check_messages(json_t *messages, refusal *why);

/* The number of prompts in a completion's `prompt`, 1..PARAMS_PROMPTS_MAX; 0 with *why where it is no such thing. */
uint32_t params_count_prompts(json_t *prompt, refusal *why);

/* The i-th of them: a string, or an array of token ids. */
json_t *params_prompt(json_t *prompt, uint32_t i);

/* Token ids of a JSON array: the caller frees *ids.  0, or -1 with *why. */
int params_ids(json_t *array, pleat_token **ids, uint32_t *n, refusal *why);

/* Fill in *why; returns -1. */
int params_refuse(refusal *why, int status, const char *field, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
