/* SPDX-License-Identifier: MIT
 *
 * server.h: a connection to one server that speaks Redis's protocol; hiredis writes what is sent and reads what is answered.
 *
 *     pleat__server_ask(s, words)     a command is sent
 *     pleat__server_answer(s, sink)   the answer to the oldest command that has none
 *
 * A server fails that cannot be reached, has not answered whole after timeout_ns, or answers what was not asked for.  Then its connection
 * is closed, and for a while nobody asks it anything.  The while doubles with each time, up to half a minute; the first
 * answer ends that.  Nothing that a server says is believed: an answer is copied only if it has the length that was asked
 * for, and lists are refused.
 *
 * A connection is one thread's at a time.
 */
#ifndef PLEAT_STORE_SERVERS_SERVER_H
#define PLEAT_STORE_SERVERS_SERVER_H

#include "core/types.h"
#include "store/servers/address.h"

enum { PLEAT__SERVER_BUFFER_BYTES = 262144 };

typedef struct pleat__server {
    pleat__server_address address;
    const pleat__server_login *login; /* lives on */
    uint64_t timeout_ns;
    char *buffer;         /* [PLEAT__SERVER_BUFFER_BYTES] scratch, of all connections of a thread's */
    void *connection;     /* NULL: there is none */
    uint64_t wait_ns;     /* how long it is left alone when it fails next; 0: it has answered */
    uint64_t retry_at_ns; /* on the clock; before that it is left alone */
    uint32_t n_asked;     /* commands that have no answer yet */
    uint64_t n_connected; /* connections so far: what one was asked another does not answer */
    bool timed_out;       /* the last failure was that it answered nothing */
} pleat__server;

/* A word of a command. */
typedef struct pleat__word {
    const void *bytes;
    uint64_t n;
} pleat__word;

typedef enum pleat__answer_kind {
    PLEAT__ANSWER_NONE,  /* the server has failed */
    PLEAT__ANSWER_TEXT,  /* n bytes, in the sink */
    PLEAT__ANSWER_LONG,  /* bytes of another length than the sink's */
    PLEAT__ANSWER_NIL,   /* there is nothing */
    PLEAT__ANSWER_OK,    /* a status, or a number */
    PLEAT__ANSWER_ERROR, /* it refuses: it has no room, or is read only */
} pleat__answer_kind;

/* Where the bytes of an answer go: [n_min..n_max] of them. */
typedef struct pleat__sink {
    void *to; /* [n_max] */
    uint64_t n_min, n_max;
    uint64_t n; /* of the answer */
} pleat__sink;

/* False: this build has no hiredis. */
bool pleat__server_exists(void);

/* May it be asked now?  Connects if need be: also where the server has closed a connection that nobody used. */
bool pleat__server_is_up(pleat__server *s);

/* False: it has failed. */
bool pleat__server_ask(pleat__server *s, const pleat__word *words, uint32_t n);

/* sink NULL: no bytes are expected. */
pleat__answer_kind pleat__server_answer(pleat__server *s, pleat__sink *sink);

void pleat__server_close(pleat__server *s);

#endif
