/* SPDX-License-Identifier: MIT
 *
 * store.h: image files in a folder, so that what a process computed outlives it.  docs/STORE.md has the whole.
 *
 *     pleat_store_open(options)                     a folder; what is in it already is found again
 *         pleat_store_put(head, cost, fill)         queue a sequence; a thread of the store's writes it
 *         pleat_store_find(head)                    is there a file of just these tokens?
 *         pleat_store_read(head, body)              its body, checked; pleat_cache_restore_for() takes it
 *         pleat_store_fetch_begin(wish)             the same of the longest that is there, by a thread of the store's
 *         pleat_store_get_stats
 *     pleat_store_close                             writes what is queued
 *
 *     folder ─┬─ 32 digits.img     an image file (docs/IMAGE.md); the digits are a hash of all that its head says it is of
 *             ├─ *.tmp             one that is being written; it gets its name when it is whole and on the disk
 *             └─ index.sqlite      of each file: bytes, how often it was read, what computing it costs
 *
 * A file serves who asks for the same model, spec, profile, shape, page size and salt, the same tokens, and the same steps in
 * which they came.  All of that is compared itself when a file is read, and every byte against the file's sums.  So
 * whatever happens to a folder (a bit that flips, a full disk, a file that goes, an index of another time) costs a miss,
 * which is counted, and never gives another sequence's bytes.
 *
 * Which files go when max_bytes is reached: those with the lowest
 *
 *     uses * cost / bytes         uses: 1, and 1 for each time that it was read; each halves with 1024 later uses of any
 *
 * Processes on one machine may share a folder: each finds what the others write, and the bytes are counted together.
 *
 * Threads: from any thread; the allocator has to be thread-safe.  find and read may wait for the disk, and for one another.
 * put and what fetches never do: a thread of the store's reads, and one writes.
 */
#ifndef PLEAT_STORE_H
#define PLEAT_STORE_H

#include "pleat/image.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pleat_store pleat_store;

typedef struct pleat_store_options {
    size_t size_bytes;
    const char *dir;     /* is made if it is not there; its parent has to be.  Others may not read it.  NULL: servers */
    const char *servers; /* redis://[[USER]:PASSWORD@]HOST:PORT[,HOST:PORT]... instead of a folder; need not be there */
    uint64_t
        max_bytes;  /* of image files, as the folder's blocks of 4096 bytes hold them; >= 1.  Servers: not looked at */
    uint32_t ttl_s; /* servers forget an image so long after it was written or last read, >= 1; default a day */
    uint64_t queue_bytes; /* of bodies that wait to be written, >= 1; and as many of fetches; default 256 MiB */
    uint64_t timeout_ns;  /* so long is waited for a disk or a server that answers nothing, >= 1; default a second */
    const pleat_allocator *allocator;
} pleat_store_options;

PLEAT_API void pleat_store_options_default(pleat_store_options *opt);

/* Open a folder, or servers.  Of a folder the index is made, or made again where it is damaged, and brought to agree with the files; files
 * beyond max_bytes go.  PLEAT_E_ARG, PLEAT_E_MEMORY; PLEAT_E_IO with words in err where the folder cannot be used;
 * PLEAT_E_UNSUPPORTED for a folder in a build without SQLite, for servers in one without hiredis.  Servers are connected
 * to, which takes a dead one's time-out; who is not there is counted in servers_down, and is no error. */
PLEAT_API pleat_status pleat_store_open(const pleat_store_options *opt, pleat_store **out, pleat_error *err);

/* Write body_bytes bytes to `body`; called by pleat_store_put() on its caller's thread. */
typedef pleat_status (*pleat_store_fill)(void *ctx, void *body, uint64_t body_bytes);

/* Queue an image with this head, whose pieces get the default size.  What the head points to is copied.
 *   cost_ns   what computing the sequence costs, > 0: files that save little go first
 * PLEAT_OK: it is queued, and will be written if nothing fails and it is not there.  PLEAT_AGAIN: it is in the queue, or
 * this process has lately seen it in the folder.
 * PLEAT_E_LIMIT: the queue has no room, or it is larger than max_bytes; that is counted.  PLEAT_E_ARG: a head that breaks
 * a rule (image.h).  PLEAT_E_MEMORY, or fill's own error. */
PLEAT_API pleat_status pleat_store_put(pleat_store *store, const pleat_image_head *head, double cost_ns,
                                       pleat_store_fill fill, void *ctx);

/* Is there a file of this head?  Its body_bytes and piece_bytes are not looked at.  PLEAT_OK with the body's bytes, or
 * PLEAT_AGAIN: there is none, or the index cannot be asked, which is counted. */
PLEAT_API pleat_status pleat_store_find(pleat_store *store, const pleat_image_head *head, uint64_t *body_bytes);

/* Read the body of the file of this head, body_bytes as pleat_store_find() has said.  PLEAT_OK: every byte is what was
 * written, and of this head.  PLEAT_AGAIN: not so; the reason is counted, a damaged file goes, and what is in `body` is
 * worth nothing.  PLEAT_E_MEMORY. */
PLEAT_API pleat_status pleat_store_read(pleat_store *store, const pleat_image_head *head, void *body,
                                        uint64_t body_bytes);

/* ---- beside the caller -------------------------------------------------------------------------------------------- */

typedef struct pleat_store_fetch pleat_store_fetch;

/* A beginning of a sequence: the tokens up to the end of its step n_steps - 1. */
typedef struct pleat_store_part {
    uint32_t n_steps;  /* >= 1 */
    double compute_ns; /* what computing it costs: it is read where that is cheaper */
} pleat_store_part;

typedef struct pleat_store_wish {
    size_t size_bytes;
    const pleat_image_head *head; /* of the whole: its body_bytes and piece_bytes are not looked at.  Copied */
    const pleat_store_part
        *parts;              /* [n_parts] what would do, the longest first; the first that is there is taken.  Copied */
    uint32_t n_parts;        /* >= 1 */
    uint64_t max_bytes;      /* a larger body costs too much */
    double byte_ns;          /* of a byte that has been read, until it can be used */
    void (*wake)(void *ctx); /* called by the store's thread when the fetch is over, with a lock held under which no
                                    * function of the store may be called; not after pleat_store_fetch_end().  May be NULL */
    void *ctx;
} pleat_store_wish;

PLEAT_API void pleat_store_wish_default(pleat_store_wish *wish);

/* Begin to look for it.  PLEAT_AGAIN: not so, and that is counted: too many are waiting, or the disk answers nothing.
 * PLEAT_E_ARG, PLEAT_E_MEMORY. */
PLEAT_API pleat_status pleat_store_fetch_begin(pleat_store *store, const pleat_store_wish *wish,
                                               pleat_store_fetch **out);

typedef struct pleat_store_found {
    void *body; /* [body_bytes] the fetch's, until it ends; NULL: nothing is had, and the reason counted */
    uint64_t body_bytes;
    uint32_t n_tokens; /* of the part */
    int is_costly;     /* computing is cheaper, or there is no room for it: counted by nobody */
} pleat_store_found;

/* PLEAT_OK: it is over.  PLEAT_AGAIN: not yet.  Over it is at the latest when nothing has been read for timeout_ns, or when
 * it has taken longer than that and than computing. */
PLEAT_API pleat_status pleat_store_fetch_poll(pleat_store_fetch *fetch, pleat_store_found *out);

/* What was found cannot be restored, though each byte is what was written: it counts as damaged, and what is stored goes.
 * Nothing where nothing was found. */
PLEAT_API void pleat_store_fetch_refuse(pleat_store_fetch *fetch);

/* Forget it, over or not, and set *fetch to NULL.  Before the store is closed.  NULL and *fetch == NULL are fine. */
PLEAT_API void pleat_store_fetch_end(pleat_store_fetch **fetch);

/* Bytes a second of the reads so far, the newest counting most; 1e9 before the first. */
PLEAT_API double pleat_store_read_speed(pleat_store *store);

/* Wait until nothing is queued. */
PLEAT_API void pleat_store_flush(pleat_store *store);

typedef enum pleat_store_miss {
    PLEAT_STORE_ABSENT,  /* nothing of the kind is stored */
    PLEAT_STORE_GONE,    /* its file is: another process has evicted it, or somebody removed it */
    PLEAT_STORE_IO,      /* the file could not be read */
    PLEAT_STORE_DAMAGED, /* its length, its head, or a sum does not hold; or its body was refused */
    PLEAT_STORE_OTHER,   /* it is whole, and of something else than its name says */
    PLEAT_STORE_INDEX,   /* the index could not be asked */
    PLEAT_STORE_TIMEOUT, /* the disk did not answer in time */
    PLEAT_STORE_BUSY,    /* too many fetches, or too many bytes of them, were there at once */
    PLEAT_STORE_N_MISSES
} pleat_store_miss;

/* A word for it; NULL for other numbers. */
PLEAT_API const char *pleat_store_miss_name(pleat_store_miss miss);

typedef struct pleat_store_stats {
    uint64_t n_files, bytes, max_bytes; /* in the folder, when this process last wrote or removed one */
    uint64_t hits;                      /* bodies read, without those that were refused */
    uint64_t read_bytes, read_ns;       /* bytes of their files, and the time that reading and checking took */
    uint64_t misses[PLEAT_STORE_N_MISSES];
    uint64_t written, written_bytes;        /* files */
    uint64_t evicted;                       /* files that went for max_bytes */
    uint64_t skipped;                       /* images that the queue had no room for, or that max_bytes has not */
    uint64_t failed;                        /* images that could not be written */
    uint64_t queued_bytes;                  /* now */
    uint32_t n_servers, servers_down;       /* servers, and of them those that failed when last asked */
    uint64_t read_waits_ns, write_waits_ns; /* how long the disk has been asked for something now */
} pleat_store_stats;

PLEAT_API void pleat_store_get_stats(pleat_store *store, pleat_store_stats *out);

/* Recompute what has to hold of a folder that nobody else uses: each row of the index has its file of that many bytes,
 * each file its row, and all are no more than max_bytes.  1 or 0.  Slow, for tests. */
PLEAT_API int pleat_store_is_valid(pleat_store *store);

/* Write what is queued, and set *store to NULL.  NULL and *store == NULL are fine. */
PLEAT_API void pleat_store_close(pleat_store **store);

#ifdef __cplusplus
}
#endif
#endif
