/* SPDX-License-Identifier: MIT
 *
 * fetch.h: a file from a server into a folder, whole or not at all.
 *
 *     lock ──> BLOB.incomplete has n bytes ──> GET from byte n ──> size and SHA-256 are right ──> fsync, rename ──> BLOB
 *                    ^                              │
 *                    └── it broke off: wait, on ────┘      tries end where HTTP_TRIES of them bring no byte
 *
 * The n bytes stay whatever happens: Ctrl-C, a full disk, a server that is gone; the next process goes on behind them.
 * A server that does not know parts, or has another file by now (If-Range), sends all of it, and it begins again; so it
 * does, once, where bytes of two downloads do not have the hash.
 */
#ifndef PLEAT_CLI_HUB_FETCH_H
#define PLEAT_CLI_HUB_FETCH_H

#include "http.h"

typedef struct fetch_job {
    http_session *session;
    const char *url;
    const char *name;    /* for messages */
    const char *blob;    /* path of the file; its folder is there */
    const char *lock;    /* path of the lock's file; its folder is there */
    uint64_t size_bytes; /* as listed */
    const char *sha256;  /* as listed, small letters */
    int is_quiet;
} fetch_job;

/* CLI_OK: the blob is there; or an exit code after a message. */
int fetch_blob(const fetch_job *job);

#endif
