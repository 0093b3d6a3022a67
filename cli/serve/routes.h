/* SPDX-License-Identifier: MIT
 *
 * routes.h: which path does what.
 */
#ifndef PLEAT_CLI_SERVE_ROUTES_H
#define PLEAT_CLI_SERVE_ROUTES_H

#include "net/connection.h"
#include "serve.h"

/* May the sender of this head ask, and is there such a path?  0: no, and it has been answered. */
int route_admits(const server *s, connection *c, const http_head *head);

/* A request is there whole: it is answered now, or by its job. */
void route_request(server *s, connection *c, const http_head *head, const char *body, size_t n_body);

#endif
