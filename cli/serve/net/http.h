/* SPDX-License-Identifier: MIT
 *
 * http.h: the head of an HTTP/1.x request, read by a pure function: bytes in, fields or a refusal out.
 *
 * Why our own and not libevent's evhttp: that takes two Content-Lengths and a NUL in a header, and bounds no output.  Two
 * readings of one request by a proxy and a server behind it are how requests are smuggled, so whatever is not clear is
 * refused here:
 *
 *     400  no CRLF at a line's end, NUL or another control character, a blank before a colon, a line that goes on with a
 *          blank, two Content-Lengths (equal ones too) or one that is no number, none or two Hosts in HTTP/1.1
 *     411  a body in chunks: clients of this API say how long it is       431  a head of more than HTTP_HEAD_MAX bytes
 *     414  a target of more than HTTP_TARGET_MAX bytes                     505  another version
 */
#ifndef PLEAT_CLI_SERVE_HTTP_H
#define PLEAT_CLI_SERVE_HTTP_H

#include <stddef.h>
#include <stdint.h>

enum { HTTP_HEAD_MAX = 16384, HTTP_TARGET_MAX = 2048, HTTP_METHOD_CAP = 16, HTTP_KEY_CAP = 512, HTTP_FIELDS_MAX = 100 };

typedef struct http_head {
    char method[HTTP_METHOD_CAP];
    char path[HTTP_TARGET_MAX + 1]; /* the target before its first '?' */
    int minor;                      /* HTTP/1.minor, 0 or 1 */
    int stays;                      /* 1: the connection is to stay open behind the answer */
    int expects_continue;           /* 1: the client waits for 100 before it sends the body */
    uint64_t content_length;        /* 0 where none is named */
    char key[HTTP_KEY_CAP];         /* what stands behind "Authorization: Bearer "; "": nothing */
} http_head;

/* Read the head at the beginning of bytes [n].  > 0: its length, the blank line included.  0: its end has not come.
 * < 0: the status that refuses it, negated, and *out is unspecified. */
int http_read_head(const char *bytes, size_t n, http_head *out);

/* The words of a status, as "Not Found". */
const char *http_reason(int status);

#endif
