/* SPDX-License-Identifier: MIT
 *
 * connection.h: a client's connection: HTTP/1.x on a bufferevent.
 *
 *     HEAD ──whole──> BODY ──whole──> WORK ──answer──> HEAD        or the end, where the connection is not to stay
 *                                      └──stream──> events ──> HEAD
 *
 * Requests of one connection are answered one after the other; what a client sends ahead waits in the socket.  The client
 * may leave in any state: then its job is cancelled.  That a client closes its sending side counts as leaving.
 *
 * Nothing here closes a connection under a caller: who reads too slowly is marked, and closed from the loop.
 */
#ifndef PLEAT_CLI_SERVE_CONNECTION_H
#define PLEAT_CLI_SERVE_CONNECTION_H

#include <event2/util.h>
#include <jansson.h>

#include "cli/serve/http.h"
#include "cli/serve/serve.h"

typedef struct connection connection;

/* The connections of a server, on its loop. */
typedef struct connections {
    struct server *server;
    struct event_base *base;
    connection *first; /* list */
    uint32_t n;
    uint64_t body_bytes;        /* of all bodies that are announced and not yet done with */
    void (*on_room)(void *ctx); /* called when a connection has gone */
    void *ctx;
} connections;

/* Take an accepted socket.  What cannot be had closes it. */
void connection_open(connections *all, evutil_socket_t fd);

/* Close it, with what it has not sent. */
void connection_close(connection *c);

/* Close those that wait for a request or have nothing left to send. */
void connections_close_idle(connections *all);

/* Answer the request under way. */
void connection_answer(connection *c, int status, json_t *body);
void connection_answer_text(connection *c, int status, const char *type, const char *text, size_t n);
void connection_refuse(connection *c, int status, const char *field, const char *text);

/* Answer with a stream of server-sent events: begin, any number of events, end. */
void connection_begin_stream(connection *c);
void connection_send(connection *c, const char *data, size_t n);
void connection_end_stream(connection *c);

/* The job that works on the request under way; NULL: none.  A connection that goes tells it (job_leave). */
void connection_set_job(connection *c, struct job *job);

/* routes.c: a request has come in whole; it is answered now or by its job. */
void route_request(server *s, connection *c, const http_head *head, const char *body, size_t n_body);

/* routes.c: may the holder of this head ask at all?  Asked before the body is read. */
int route_admits(const server *s, const http_head *head);

#endif
