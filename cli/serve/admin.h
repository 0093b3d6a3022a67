/* SPDX-License-Identifier: MIT
 *
 * admin.h: kept prefixes for who runs the server: what there are, and to pin, compress or drop one.
 *
 *     GET  /admin/prefixes     all of them, of each KV spec
 *     POST /admin/prefixes     {"action": "pin" | "unpin" | "compress" | "drop", which: "id", or "prompt" or "messages"}
 *
 * An ask goes to the driver's thread and comes back between two steps, so that nobody else waits for it.  A prefix's number
 * for clients says its spec too:
 *
 *     id = the serving's id * n_served + place of its spec among those that are served
 */
#ifndef PLEAT_CLI_SERVE_ADMIN_H
#define PLEAT_CLI_SERVE_ADMIN_H

#include <jansson.h>

#include "net/connection.h"
#include "serve.h"

void admin_list(server *s, connection *c);

/* Takes the body. */
void admin_act(server *s, connection *c, json_t *body, const key_terms *terms);

#endif
