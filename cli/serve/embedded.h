/* SPDX-License-Identifier: MIT
 *
 * embedded.h: files that are part of the command: cmake/embed.cmake writes them as arrays.
 */
#ifndef PLEAT_CLI_SERVE_EMBEDDED_H
#define PLEAT_CLI_SERVE_EMBEDDED_H

#include <stddef.h>

/* What the server takes and gives, for /openapi.json: openapi.json beside this file. */
extern const char embedded_openapi_json[];
extern const size_t embedded_openapi_json_bytes;

/* The page at /: page.html beside this file. */
extern const char embedded_page_html[];
extern const size_t embedded_page_html_bytes;

#endif
