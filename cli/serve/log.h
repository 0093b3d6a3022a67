/* SPDX-License-Identifier: MIT
 *
 * log.h: a line for each request that is over.
 *
 *     2026-11-24T00:40:00Z 17 POST /v1/completions 200 12.345 ms
 *     {"time": "2026-11-24T00:40:00Z", "id": 17, "method": "POST", "path": "/v1/completions", "status": 200,
 *      "ms": 12.345, "left": false}                                                              in one line
 */
#ifndef PLEAT_CLI_SERVE_LOG_H
#define PLEAT_CLI_SERVE_LOG_H

#include <stdio.h>
#include <time.h>

#include "net/connection.h"

typedef enum log_format { LOG_NONE, LOG_TEXT, LOG_JSON } log_format;

/* What was asked is in the line, as it is no secret: not the query, no key, no text. */
void request_log(FILE *f, log_format format, time_t now, const connection_done *d);

#endif
