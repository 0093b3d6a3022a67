/* SPDX-License-Identifier: MIT
 *
 * resume.h: a chat that names the answer which it goes on from, and brings what is new alone.
 *
 *     previous_response_id ──> conversations: its messages, then those of the body ──> job_start
 *                               └──> the store's thread looks meanwhile; the client may leave
 */
#ifndef PLEAT_CLI_SERVE_RESUME_H
#define PLEAT_CLI_SERVE_RESUME_H

#include "net/connection.h"
#include "serve.h"

#include <jansson.h>

/* Begin on a chat that goes on from another, or from none; takes the body.  terms as job_start() has them. */
void resume_chat(server *s, connection *c, json_t *body, const key_terms *terms);

#endif
