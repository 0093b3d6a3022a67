/* SPDX-License-Identifier: MIT
 *
 * events.h: tells routers which prefixes are kept, as vLLM's KV events over ZeroMQ.  docs/EVENTS.md has the wire form.
 *
 *     pleat_events_open(options)                  a PUB socket, and a ROUTER that is asked for what was missed
 *         pleat_serving_options.events            who calls the following
 *         pleat_events_keep(from, tokens)         BlockStored, of the blocks that nobody kept before
 *         pleat_events_forget(prefix)             BlockRemoved, of those that nobody keeps any more
 *         pleat_events_get_stats
 *     pleat_events_close                          AllBlocksCleared
 *
 *     prefix of 50 tokens, blocks of 16:    | 0..15 | 16..31 | 32..47 |  two tokens are in none
 *     its hashes:                             h(salt, .) h(h0, .) h(h1, .)
 *
 * A block is block_tokens tokens that begin at a multiple of it, together with all that stands before it.  Several prefixes have a
 * block where they begin alike; it is told once, and taken back when the last of them goes.
 *
 * What is told is a hint to routers and nothing else: no answer depends on who heard it.  A batch that finds no memory is left out
 * with its number, so that it is missed as one is that the network lost.
 *
 * Threads: one calls keep and forget; a thread of its own sends.  None of these calls waits for a network.
 */
#ifndef PLEAT_EVENTS_H
#define PLEAT_EVENTS_H

#include "pleat/common.h"
#include "pleat/model.h"
#include "pleat/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pleat_events pleat_events;
typedef struct pleat_events_prefix pleat_events_prefix;

typedef struct pleat_events_options {
    size_t size_bytes;
    const char *endpoint;        /* where subscribers connect: tcp://ADDRESS:PORT, ADDRESS may be *; or ipc://PATH */
    const char *replay_endpoint; /* where the ROUTER socket is asked, as above; NULL: there is none */
    const char *topic;           /* first frame of each batch; default "" */
    uint32_t block_tokens;       /* 1..65536; default 16 */
    uint32_t replay_batches;     /* the newest that are kept for replay, 1..2^24; default 10000 */
    const pleat_allocator *allocator;
    uint64_t replay_bytes; /* bytes that are kept for replay at most, the newest batch apart; >= 1; default 64 MiB */
} pleat_events_options;

PLEAT_API void pleat_events_options_default(pleat_events_options *opt);

/* Bind the sockets and start the thread; the first batch is AllBlocksCleared.  PLEAT_E_ARG, PLEAT_E_MEMORY; PLEAT_E_IO with
 * words in err where an endpoint cannot be bound; PLEAT_E_UNSUPPORTED in a build without libzmq and msgpack. */
PLEAT_API pleat_status pleat_events_open(const pleat_events_options *opt, pleat_events **out, pleat_error *err);

/* These n_tokens tokens are kept, for requests with this salt.
 *   from   a kept prefix of them that has not been forgotten, with the same salt; NULL: none is known
 * *out is to be forgotten before the events are closed.  PLEAT_E_ARG; PLEAT_E_MEMORY: it is not told, and *out is NULL. */
PLEAT_API pleat_status pleat_events_keep(pleat_events *events, const pleat_events_prefix *from, const char *salt,
                                         const pleat_token *tokens, uint32_t n_tokens, pleat_events_prefix **out);

/* It is kept no more, and *prefix is NULL.  NULL and *prefix == NULL are fine. */
PLEAT_API void pleat_events_forget(pleat_events *events, pleat_events_prefix **prefix);

typedef struct pleat_events_stats {
    uint64_t n_batches;    /* sent, or about to be */
    uint64_t n_lost;       /* batches that there was no memory for, each with its number */
    uint64_t n_replays;    /* requests for what was missed that were answered */
    uint64_t n_refused;    /* requests that were none */
    uint64_t replay_bytes; /* kept for replay now */
} pleat_events_stats;

PLEAT_API void pleat_events_get_stats(pleat_events *events, pleat_events_stats *out);

/* Send what is queued and set *events to NULL.  NULL and *events == NULL are fine. */
PLEAT_API void pleat_events_close(pleat_events **events);

#ifdef __cplusplus
}
#endif
#endif
