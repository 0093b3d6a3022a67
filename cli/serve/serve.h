/* SPDX-License-Identifier: MIT
 *
 * serve.h: `pleat serve`: a model behind OpenAI's HTTP API.
 *
 *     serve.c, options.c   the command: options, model, engine, serving
 *     server.c             the event loop: who comes, what the engine has brought, the end
 *     routes.c             which path does what
 *     job, prompt          one HTTP request on its way: prompts, continuations, text so far
 *     resume, conversations    chats that are gone on with by the id of their last answer
 *     admin                kept prefixes for who runs the server
 *     params, reply, keys, metrics, log    JSON and text, in and out
 *     schema               JSON schemas as shapes of answers
 *     calls                tool calls, taken out of a model's text
 *     places               how many texts are here, and whose
 *     specs                the KV specs that are served, in words
 *     page.html, openapi.json              what is answered as it is, in the command by embedded.h
 *     driver               an engine's thread: steps, and notes of what they brought.  One for each KV spec; they take turns
 *     net/                 HTTP on libevent: connections, TLS, and the parser of heads
 *
 * Calls go down this list.  net/ knows nothing of models: it calls back by the rules that server.c gives it.
 *
 *     clients ──> event loop: connection ──> route ──> job ──pleat_serving_post──> driver: pleat_serving_step
 *                      ^                                                              │
 *                      └──────────────── eventfd, notes <────────────────────────────┘
 *
 * All but the drivers' loops runs on the event loop's thread: so nothing here has a lock but notes and turns.
 *
 * Bounds (net/connection.h, and options): of connections, heads, bodies one by one and together, requests that wait, answers that a slow
 * reader has not taken, and times.  What is beyond is refused or cut off, and costs nobody else.
 */
#ifndef PLEAT_CLI_SERVE_SERVE_H
#define PLEAT_CLI_SERVE_SERVE_H

#include "calls.h"
#include "cli/lib/load.h"
#include "cli/lib/service.h"
#include "conversations.h"
#include "driver.h"
#include "keys.h"
#include "metrics.h"
#include "net/tls.h"
#include "places.h"

typedef struct server_options {
    common_options common;
    load_options load;
    service_options service;
    const char *config; /* file of options; NULL: none.  options.c of cli/lib has read it */
    uint32_t ctx_size;  /* 0: the model's */
    const char *host;
    uint32_t port; /* 0: any that is free */
    const char *key_file;
    const char *tls_cert, *tls_key; /* NULL: plain HTTP */
    const char *alias;              /* the model's name for clients; NULL: the file's */
    uint32_t parallel;              /* requests in one step */
    uint32_t queue;                 /* requests that may wait beside them */
    uint64_t body_bytes;
    uint32_t connections;
    uint32_t grace_s;
    store_options store;                      /* of kept prefixes */
    const char *events;                       /* where routers hear of them; NULL: nobody does */
    const char *events_replay, *events_topic; /* NULL: none, and "" */
    uint32_t events_block;                    /* tokens of a block */
    uint32_t log_format;                      /* of log.h */
    int special;                              /* special tokens that clients spell out are read */
} server_options;

struct job;

/* A KV spec that is served: with the model's weights and threads, which all share, and its own part of the pool. */
typedef struct served {
    const char *kv; /* as pleat_spec_print() has it */
    pleat_engine *engine;
    pleat_serving *serving;
    driver *driver;
    uint64_t page_bytes;
    uint32_t chunk_tokens;  /* its engine's */
    uint32_t prefix_tokens; /* prefixes are kept at its multiples */
} served;

typedef struct server {
    const server_options *o;
    loaded *l;
    served *served; /* [n_served] the first is that of requests that name none */
    uint32_t n_served;
    pleat_store *store;   /* of all of them; NULL: none */
    pleat_events *events; /* of the first; NULL: none */
    turns turns;          /* of their drivers */
    uint32_t n_ctx;
    char name[256];        /* the model's, for clients */
    calls_form calls;      /* how the model writes tool calls */
    int marks_are_special; /* the marker before a call is a special token */
    uint64_t n_calls;      /* made so far */
    int64_t start_s;       /* seconds since 1970 */
    api_keys keys;
    tls *tls; /* NULL: plain HTTP */
    metrics metrics;
    struct job **jobs; /* [n_jobs_max] NULL: free */
    uint32_t n_jobs_max;
    uint64_t n_jobs_made;
    conversations *conversations; /* that are gone on with by an id */
    places places;                /* for the jobs' texts */
    uint64_t n_echoed;            /* logprobs of prompts that jobs hold or will */
    int is_stopping;              /* no new work is taken */
} server;

/* Run until SIGTERM or SIGINT.  CLI_OK, or CLI_FAILED after a message.  server.c, or serve.c where there is no
 * libevent. */
int server_run(server *s);

/* "k8v4, f16": what is served, as far as there is room for it. */
void server_list_specs(const server *s, char *out, size_t cap);

int serve_main_command(void *opts);

/* "libevent 2.1.12-stable", or "no libevent". */
const char *server_describe(void);

#endif
