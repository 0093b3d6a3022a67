/* SPDX-License-Identifier: MIT
 *
 * service.h: from what requests are served: the pool, kept prefixes, preemption.  The options of it that `bench serve` and
 * `eval --serve` share, and what an engine and a serving are made with.
 */
#ifndef PLEAT_CLI_SERVICE_H
#define PLEAT_CLI_SERVICE_H

#include "options.h"
#include "pleat/store.h"

#define GROUP_SERVICE "Service"
typedef struct service_options {
    uint64_t pool_bytes;    /* 0: not given */
    uint64_t swap_bytes;    /* 0: none */
    uint32_t prefix_tokens; /* UINT32_MAX: not given */
    uint32_t page_tokens;   /* 0: the cache's choice */
    float_list watermarks;  /* n 0: not given */
    pleat_preemption preempt;
} service_options;

/* A store of kept prefixes. */
typedef struct store_options {
    const char *place; /* a folder or servers; NULL: no store */
    uint64_t bytes;    /* 0: not given */
    uint32_t ttl_s;    /* 0: not given */
} store_options;

/* clang-format off */
/* Their rows; `type` has the service_options as `member`.  POOL_ROW's text says what holds where it is not given;
 * `required` names the options that all of them need, or is NULL. */
#define POOL_ROW(type, member, text, required)                                                                         \
    {GROUP_SERVICE, "pool-bytes", NULL, "BYTES", text, KIND_BYTES, .offset = offsetof(type, member.pool_bytes),        \
     1, 0x1p62, .needs = (required)}
#define SERVICE_ROWS(type, member, required)                                                                           \
    {GROUP_SERVICE, "preempt", NULL, "HOW", "cheaper, swap or recompute (default cheaper)", KIND_WORD,                 \
     .offset = offsetof(type, member.preempt), .words = service_preemptions, .needs = (required)},                     \
    {GROUP_SERVICE, "swap-bytes", NULL, "BYTES", "host memory for those that are preempted; 0: none (default 1GiB)",   \
     KIND_BYTES, .offset = offsetof(type, member.swap_bytes), 0, 0x1p62, .needs = (required)},                         \
    {GROUP_SERVICE, "watermarks", NULL, "LOW,HIGH", "of the pool: admit up to LOW, preempt above HIGH (default 0.9,1)", \
     KIND_FLOATS, .offset = offsetof(type, member.watermarks), 0, 1, .min_n = 2, .max_n = 2, .needs = (required)},     \
    {GROUP_SERVICE, "prefix-tokens", NULL, "N",                                                                        \
     "keep prefixes at multiples of N, one of -b's; 0: none (default: the first from 512)",                            \
     KIND_U32, .offset = offsetof(type, member.prefix_tokens), 0, 16777216, .needs = (required)},                      \
    {GROUP_SERVICE, "page-tokens", NULL, "N", "tokens in a page, a multiple of 16 (default: the cache's choice)",      \
     KIND_U32, .offset = offsetof(type, member.page_tokens), 16, 4096, .multiple = 16, .needs = (required)}
#define STORE_ROWS(type, member, other)                                                                                 \
    {GROUP_SERVICE, "store", NULL, "PLACE",                                                                            \
     "keep prefixes there too, so that they last: a folder, or redis://[[USER]:PASSWORD@]HOST:PORT[,HOST:PORT]..",    \
     KIND_TEXT, .offset = offsetof(type, member.place), .excludes = (other),                                           \
     .because = "nothing is stored in a simulation"},                                                                  \
    {GROUP_SERVICE, "store-bytes", NULL, "BYTES", "of a folder's files (default 8GiB)", KIND_BYTES,                    \
     .offset = offsetof(type, member.bytes), 4096, 0x1p62, .needs = "store"},                                          \
    {GROUP_SERVICE, "store-ttl", NULL, "S", "seconds that servers keep what nobody reads (default 86400)", KIND_U32,   \
     .offset = offsetof(type, member.ttl_s), 1, 0x7fffffff, .needs = "store"}
/* clang-format on */

/* What --preempt takes, by pleat_preemption. */
extern const char *const service_preemptions[];

void service_defaults(service_options *o);

/* Open the store, if there is one; a note, unless quiet, where a server is not there.  CLI_OK, or another after a message. */
int store_open(const store_options *o, int quiet, pleat_store **out);

/* What no row can say.  CLI_OK, or CLI_USAGE after a message. */
int service_check(const service_options *o);

/* The distance at which prefixes are kept, for steps of chunk_tokens and sequences of max_tokens: what is given, or the least
 * multiple of the chunk from 512 on; 0: none are kept.  CLI_OK, or CLI_USAGE after a message where it is no multiple. */
int service_prefix_tokens(const service_options *o, uint32_t chunk_tokens, uint32_t max_tokens, uint32_t *out);

/* Give opt, which has the spec, lengths and chunk, room for max_running requests in a step and for as many prefixes as are
 * ever kept, on the pool and pages of *o. */
void service_set_engine(const service_options *o, uint32_t max_running, pleat_engine_options *opt);

/* Sequences that service_set_engine() leaves to kept prefixes. */
enum { SERVICE_PREFIXES = 512 };

/* What a serving is made with, but for tenants and the requests that may wait. */
void service_set_serving(const service_options *o, uint32_t prefix_tokens, pleat_serving_options *opt);

#endif
