/* SPDX-License-Identifier: MIT
 *
 * internal.h: what a store is made of, shared by the files of src/store.
 *
 *     store.c     open, close, and what can be asked
 *     agree.c     the folder and its index brought to agree, when a store is opened
 *     read.c      is it there; its body, checked
 *     fetch.c     what is wanted: queued by whoever computes, taken by the reader
 *     queue.c     what is to be written: queued by whoever computes, taken by the writer
 *     write.c     the writer: files written, used, forgotten, evicted
 *     name.c      a head's key; paths
 *     index.c     the index;  files.c     the file system
 *
 *     known.c     keys that were seen in the folder;  head.c   heads copied and compared
 *
 * Calls go down this list, and queue.c's thread calls write.c.
 *
 * A file gets its name and its row in one transaction of the index, and loses the row before it is removed.  So a process
 * that is killed leaves at most a file without a row, which the next open finds, or a temporary file, whose lock is gone.
 * A row whose file is not there costs a miss.  Nothing but the file itself is believed.
 */
#ifndef PLEAT_STORE_INTERNAL_H
#define PLEAT_STORE_INTERNAL_H

#include <pthread.h>

#include "core/memory.h"
#include "pleat/store.h"
#include "store/files.h"
#include "store/index.h"

/* Longest path of a file in the folder, NUL included. */
enum { PLEAT__STORE_PATH_CAP = 4096, PLEAT__STORE_NAME_BYTES = 32 };

/* Keys that are remembered. */
enum { PLEAT__STORE_KNOWN = 4096 };

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

struct pleat_store {
    pleat_allocator al;
    pleat__files files;
    char *dir;
    uint64_t dir_bytes;
    uint64_t max_bytes, queue_bytes, timeout_ns;
    uint64_t serial;       /* of temporary files; the writer's */
    pleat__index *written; /* the writer's connection; before its thread runs, open's */

    pthread_mutex_t find_lock; /* guards the connection of those who look for something */
    pleat__index *found;

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
    double speed; /* bytes a second */

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

/* ---- name.c */

pleat__store_key pleat__store_key_of(const pleat_image_head *head);

/* Path of a key's file, or of the writer's serial-th temporary file; cap PLEAT__STORE_PATH_CAP. */
void pleat__store_path(const pleat_store *s, const pleat__store_key *key, char *out);
void pleat__store_temp_path(const pleat_store *s, const pleat__store_key *key, uint64_t serial, char *out);

/* Path of any name in the folder.  False: it is too long. */
bool pleat__store_path_of(const pleat_store *s, const char *name, char *out);

/* The key that a file's name says; false: it is no image's name. */
bool pleat__store_key_of_name(const char *name, pleat__store_key *out);

bool pleat__store_is_temp(const char *name);

/* Bytes of the folder that a file of n bytes takes. */
static inline uint64_t pleat__store_disk_bytes(uint64_t n_bytes) { return (n_bytes + 4095) & ~(uint64_t)4095; }

/* ---- write.c */

/* Do what a job says; the writer's thread, or open's. */
void pleat__store_do(pleat_store *s, pleat__job *job);

/* Evict until n_bytes more fit.  PLEAT_E_IO: the index cannot be used. */
pleat_status pleat__store_make_room(pleat_store *s, uint64_t n_bytes);

/* Take the index's sums into the stats. */
void pleat__store_count(pleat_store *s);

/* ---- queue.c */

/* The writer's thread. */
void *pleat__store_write_all(void *store);

/* Queue a use or a forgetting, if there is room and memory: it is no loss if not. */
void pleat__store_note(pleat_store *s, pleat__job_kind kind, const pleat__store_key *key);

/* ---- read.c */

/* pleat_store_read(), as long as goes_on(ctx), which is asked after each piece: PLEAT_AGAIN when it is false, and no miss.
 * goes_on may be NULL. */
pleat_status pleat__store_read_while(pleat_store *s, const pleat_image_head *wanted, void *body, uint64_t body_bytes,
                                     bool (*goes_on)(void *ctx), void *ctx);

/* ---- fetch.c */

/* The reader's thread. */
void *pleat__store_fetch_all(void *store);

/* ---- agree.c */

/* The index and the folder agree, and what killed processes have left is gone. */
pleat_status pleat__store_agree(pleat_store *s);

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
