/* SPDX-License-Identifier: MIT
 *
 * http.h: one GET by libcurl, with what a download from a hub needs.
 *
 *     GET url ──302──> elsewhere ──302──> ..      at most ten times, never from https to http
 *      │                 │
 *      with the token    without it, unless it is the same server
 *
 * The token goes to the origin (scheme, host and port) that the session was opened for, and to no other; over plain http
 * only to this machine.  Certificates are verified, with the system's authorities or those of SSL_CERT_FILE.  Ctrl-C ends a transfer.
 */
#ifndef PLEAT_CLI_HUB_HTTP_H
#define PLEAT_CLI_HUB_HTTP_H

#include <stddef.h>
#include <stdint.h>

typedef struct http_session http_session;

/* What a server said, of the last hop. */
typedef struct http_answer {
    long status;            /* 0: none came */
    int64_t content_length; /* -1: not said */
    int64_t range_first;    /* of Content-Range; -1: there is none */
    int64_t range_total;    /* -1: not said */
    uint32_t retry_after_s; /* UINT32_MAX: not said */
    char etag[160];         /* strong, with its quotes; "": there is none */
    char next[1024];        /* of Link: where the rest of a list is; "": there is none */
    char message[256];      /* the hub's own words for a refusal; "": none */
} http_answer;

typedef enum http_fate {
    HTTP_DONE,        /* 200 or 206, and all of its body was taken */
    HTTP_STATUS,      /* another status: answer.status */
    HTTP_BROKEN,      /* no connection, or it broke off or stood still: may go better again */
    HTTP_REFUSED,     /* it will not go better: no such scheme, a bad certificate, redirects without end */
    HTTP_STOPPED,     /* `head` or `take` did not want to go on */
    HTTP_INTERRUPTED, /* Ctrl-C */
} http_fate;

/* Who takes a body.  0 from either ends it. */
typedef struct http_sink {
    int (*head)(void *self, const http_answer *answer); /* before the first byte of a 200 or 206; NULL: nobody asks */
    int (*take)(void *self, const void *bytes, size_t n);
    void *self;
} http_sink;

/* `origin`: the URL of the server that may see `token` (NULL: there is none); both stay as long as the session.  stall_s:
 * a transfer without a byte for so long is broken.  NULL if libcurl does not start. */
http_session *http_open(const char *origin, const char *token, uint32_t stall_s);
void http_close(http_session *s);

/* Get `url` from byte `first` on; if_range (NULL: none) is an ETag without which all of it is wanted. */
http_fate http_get(http_session *s, const char *url, uint64_t first, const char *if_range, const http_sink *sink,
                   http_answer *answer);

/* Whether the same may go well in a while: no connection, or a status that says so (408, 429, 500 and above). */
int http_may_pass(http_fate fate, const http_answer *answer);

/* Wait before the try after `tries` ones: for as long as the server says, 60 s at most, or for 0.25 s, 0.5 s, 1 s, ..
 * CLI_OK, or CLI_INTERRUPTED. */
int http_wait(uint32_t tries, const http_answer *answer);

/* Tries without a byte before it is given up. */
enum { HTTP_TRIES = 5 };

/* What went wrong in the last http_get(), for a message. */
const char *http_why(const http_session *s);

/* The bytes of `text` as a part of a URL, slashes as they are; the caller frees it. */
char *http_escape(http_session *s, const char *text);

/* "libcurl 7.88.1". */
const char *http_describe(void);

#endif
