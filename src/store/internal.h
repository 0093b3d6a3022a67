/* SPDX-License-Identifier: MIT
 *
 * internal.h: what a store is made of, shared by the files of src/store.
 *
 *     store.c     open, close, and what can be asked
 *     fetch.c     what is wanted: queued by whoever computes, taken by the reader
 *     queue.c     what is to be written: queued by whoever computes, taken by the writer
 *     read.c      found and read, counted
 *     known.c     keys that were seen lately;  head.c   heads copied and compared;  key.c   hashed
 *     shelf.h     where images lie:  folder/  or  servers/
 *
 * Calls go down this list.
 */
#ifndef PLEAT_STORE_INTERNAL_H
#define PLEAT_STORE_INTERNAL_H

#include <pthread.h>

#include "core/memory.h"
#include "pleat/store.h"
#include "store/folder/files.h"
#include "store/shelf.h"

/* Keys that are remembered, and those that a shelf is asked for at once. */
enum { PLEAT__STORE_KNOWN = 4096, PLEAT__STORE_FIND_MAX = 32 };

typedef enum pleat__job_kind {
    PLEAT__JOB_WRITE, /* an image */
    PLEAT__JOB_USE,   /* a file was read */
    PLEAT__JOB_FORGET /* a file is gone or worth nothing */
} pleat__job_kind;

typedef struct pleat__job {
    struct pleat__job *next;
    pleat__job_kind kind;
    pleat__store_key key;
    uint64_t block_bytes; /* of this job, all that it points to included */
    /* Of an image alone: */
    pleat_image_head head; /* points into the block */
    double cost_ns;
    uint8_t *file; /* [head's and body's bytes] the head is written by the writer */
    uint64_t n_head;
} pleat__job;

#define PLEAT__STORE_FIRST_SPEED 1e9

struct pleat_store {
    pleat_allocator al;
    pleat__shelf shelf;                          /* ctx NULL: it is not open */
    uint64_t max_bytes, queue_bytes, timeout_ns; /* max_bytes: of an image */

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t work, idle, wants;
    pleat__job *first, **last;
    const pleat__job *current;                /* job that the writer has taken; NULL: none */
    uint32_t n_small;                         /* queued jobs that are no images */
    uint64_t writes_since_ns;                 /* since when the writer is at its job; 0: it has none */
    pleat_store_fetch *wanted, **last_wanted; /* fetches that the reader has not taken */
    uint32_t n_fetches;                       /* begun and not ended */
    uint64_t fetched_bytes;                   /* of their bodies */
    uint64_t reads_since_ns;                  /* when the reader got somewhere last; 0: it has nothing to do */
    pleat__store_key known[PLEAT__STORE_KNOWN];
    bool is_stopping;
    pleat_store_stats stats;
    double speed; /* bytes a second; PLEAT__STORE_FIRST_SPEED before the first read */

    pthread_t writer, reader;
    bool has_locks, has_writer, has_reader;
};

/* ---- head.c */

/* Take the parts that the head points to from the arena, and make *out a head of these copies.  out NULL: only take. */
void pleat__store_copy_head(pleat__arena *arena, const pleat_image_head *head, pleat_image_head *out);

/* Is the head, as read, of what is wanted? */
bool pleat__store_head_is(const pleat_image_head *head, const pleat_image_head *wanted);

/* ---- known.c */

bool pleat__store_knows(pleat_store *s, const pleat__store_key *key);
void pleat__store_learn(pleat_store *s, const pleat__store_key *key, bool is_there);

/* Bytes of the folder that a file of n bytes takes. */
static inline uint64_t pleat__store_disk_bytes(uint64_t n_bytes) { return (n_bytes + 4095) & ~(uint64_t)4095; }

/* ---- queue.c */

/* The writer's thread. */
void *pleat__store_write_all(void *store);

/* Queue a use or a forgetting, if there is room and memory: it is no loss if not. */
void pleat__store_note(pleat_store *s, pleat__job_kind kind, const pleat__store_key *key);

/* ---- read.c */

/* The first of these heads, n <= PLEAT__STORE_FIND_MAX, that is there: PLEAT__READ, or the miss, which the caller counts.  *which as
 * a shelf has it. */
int pleat__store_look(pleat_store *s, const pleat_image_head *heads, uint32_t n, uint32_t *which, uint64_t *body_bytes);

/* pleat_store_read(), as long as goes_on(ctx), which is asked after each piece: PLEAT__READ_STOPPED when it is false.  *result: that,
 * PLEAT__READ, or the miss, which the caller counts.  goes_on may be NULL. */
pleat_status pleat__store_read_while(pleat_store *s, const pleat_image_head *wanted, void *body, uint64_t body_bytes,
                                     bool (*goes_on)(void *ctx), void *ctx, int *result);

/* What was read of this head, body_bytes of it, is worth nothing: counted, and it goes. */
void pleat__store_refuse(pleat_store *s, const pleat_image_head *head, uint64_t body_bytes);

/* ---- fetch.c */

/* The reader's thread. */
void *pleat__store_fetch_all(void *store);

/* ---- store.c */

/* Like pleat_store_open(), on other files: for tests. */
pleat_status pleat__store_open_on(const pleat_store_options *opt, const pleat__files *files, pleat_store **out,
                                  pleat_error *err);

static inline void pleat__store_add(pleat_store *s, uint64_t *counter, uint64_t n) {
    (void)pthread_mutex_lock(&s->lock);
    *counter += n;
    (void)pthread_mutex_unlock(&s->lock);
}

#endif
