/* SPDX-License-Identifier: MIT
 *
 * connection.h: a client's connection: HTTP/1.x on a bufferevent.  What requests mean is the caller's.
 *
 *     HEAD ──whole──> BODY ──whole──> WORK ──answer──> HEAD        or the end, where the connection is not to stay
 *                                      └──stream──> events ──> HEAD
 *
 * Requests of one connection are answered one after the other, the next when the answer before it has gone out; what a
 * client sends ahead waits in the socket.  The client
 * may leave in any state: then who works for it is told.  That a client closes its sending side counts as leaving.
 *
 * A client that sends 32 KiB ahead of an answer which is not there yet is closed.
 *
 * A connection *waits* unless somebody works on its request: for a head, a body, or a reader of its last answer.  Where
 * there are too many, the one that has waited longest is closed for who comes.  So who holds connections, by whatever
 * slowness, keeps nobody else away: a request needs one for as long as it takes to be sent.
 *
 * With TLS a connection begins with a handshake, for which it has the time of a head.
 *
 * Nothing here closes a connection under a caller: who reads too slowly is marked, and closed from the loop.
 */
#ifndef PLEAT_CLI_SERVE_CONNECTION_H
#define PLEAT_CLI_SERVE_CONNECTION_H

#include <event2/util.h>

#include "http.h"
#include "tls.h"

enum {
    NET_BODIES_MAX = 128 << 20, /* bytes of all bodies that are being read */
    NET_OUTPUT_MAX = 4 << 20,   /* bytes of a stream that its reader may leave unread for NET_BEHIND_S */
    NET_OUTPUT_CUT = 64 << 20,  /* bytes of a stream that its reader has not taken: cut off at once */
    NET_BEHIND_S = 5,
    NET_HEAD_S = 20,  /* for a head to come, from its first byte or the connection's beginning */
    NET_IDLE_S = 75,  /* for the next request on a connection */
    NET_BODY_S = 30,  /* for a body, and a second more for each 32 KiB of it */
    NET_WRITE_S = 30, /* without the reader taking a byte */
};

typedef struct connection connection;

/* Who works on a request; the first member of a record of its own.  leave: its client has gone. */
typedef struct connection_work {
    void (*leave)(struct connection_work *work);
} connection_work;

/* A request that is over. */
typedef struct connection_done {
    uint64_t id; /* which of all requests: 1 first.  Its answer has it as X-Request-Id */
    const char *method, *path;
    int status;   /* 0: nothing was answered */
    int has_left; /* the connection ended before its answer was written */
    double seconds;
} connection_done;

/* What the caller does; ctx is handed to each. */
typedef struct connection_rules {
    void *ctx;
    uint64_t body_bytes; /* the longest body */
    /* Asked before the body is read.  0: it has been answered, and its body is not read. */
    int (*admits)(void *ctx, connection *c, const http_head *head);
    /* A request is there whole: it is answered now or later.  The body has a NUL behind it and lives during the call. */
    void (*request)(void *ctx, connection *c, const http_head *head, const char *body, size_t n_body);
    void (*refuse)(void *ctx, connection *c, int status, const char *text); /* answer with an error */
    void (*answered)(void *ctx, int status);
    void (*done)(void *ctx, const connection_done *d);
    void (*room)(void *ctx); /* a connection has gone */
} connection_rules;

/* The connections of a loop. */
typedef struct connections {
    struct event_base *base;
    tls *tls; /* NULL: plain HTTP */
    connection_rules rules;
    connection *first; /* list */
    uint64_t n_requests, n_waits;
    uint32_t n;
    uint64_t body_bytes; /* that have come of bodies that are not yet done with */
    int is_stopping;     /* connections end behind their answers */
} connections;

/* Take an accepted socket.  What cannot be had closes it. */
void connection_open(connections *all, evutil_socket_t fd, const struct sockaddr *peer);

/* Close it, with what it has not sent. */
void connection_close(connection *c);

/* Close the one that has waited longest.  0: none waits. */
int connections_close_oldest(connections *all);

/* Close those that wait for a request and have nothing left to send. */
void connections_close_idle(connections *all);

/* Answer the request under way. */
void connection_answer(connection *c, int status, const char *type, const char *text, size_t n);

/* Answer with a stream of server-sent events: begin, any number of events, end. */
void connection_begin_stream(connection *c);
void connection_send(connection *c, const char *data, size_t n);
void connection_end_stream(connection *c);

/* The methods that an answer 405 names; they live on. */
void connection_set_allow(connection *c, const char *methods);

/* A number of the client's address: of IPv6 its first 64 bits, which a client has for its own. */
uint64_t connection_peer(const connection *c);

/* Who works on the request under way; NULL: nobody. */
void connection_set_work(connection *c, connection_work *work);

#endif
