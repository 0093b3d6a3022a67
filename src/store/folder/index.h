/* SPDX-License-Identifier: MIT
 *
 * index.h: the index of a folder of images: a table in SQLite, with a write-ahead log, so that readers wait for nobody.
 *
 *     images(key, bytes, body_bytes, cost_ns, uses, used_at, rank)
 *
 * Uses are counted on a clock of their own, which ticks with each: what a file is worth does not hang on the time of day.
 * A file's worth halves with every HALF_LIFE ticks, all files' alike.  So their order stays while none is used:
 *
 *     rank = log2(uses) + used_at / HALF_LIFE + log2(cost_ns / bytes)         the lowest goes first
 *
 * A connection is one thread's at a time.  Functions return PLEAT_OK, or PLEAT_E_IO where SQLite fails or waits for too
 * long; find and lowest also PLEAT_AGAIN: there is none.
 */
#ifndef PLEAT_STORE_INDEX_H
#define PLEAT_STORE_INDEX_H

#include "core/types.h"
#include "store/key.h"

enum { PLEAT__INDEX_HALF_LIFE = 1024 };

typedef struct pleat__index_row {
    uint64_t bytes;      /* bytes of the folder that the file takes */
    uint64_t body_bytes; /* of the image */
    double cost_ns;
} pleat__index_row;

typedef struct pleat__index pleat__index;

/* Open the index in this file, and make it if it is not there.  wait_ms: how long writers are waited for.  *is_damaged: it
 * is there, and no index.  al outlives it. */
pleat_status pleat__index_open(const char *path, uint32_t wait_ms, const pleat_allocator *al, pleat__index **out,
                               bool *is_damaged, pleat_error *err);
void pleat__index_close(pleat__index **ix);

pleat_status pleat__index_find(pleat__index *ix, const pleat__store_key *key, pleat__index_row *out);

/* A transaction: no other connection writes from begin to end. */
pleat_status pleat__index_begin(pleat__index *ix);
pleat_status pleat__index_end(pleat__index *ix);
void pleat__index_undo(pleat__index *ix);

/* Within one.  put: a key that is there keeps its uses.  use: nothing happens where it is not there. */
pleat_status pleat__index_put(pleat__index *ix, const pleat__store_key *key, const pleat__index_row *row);
pleat_status pleat__index_use(pleat__index *ix, const pleat__store_key *key);
pleat_status pleat__index_remove(pleat__index *ix, const pleat__store_key *key);
pleat_status pleat__index_lowest(pleat__index *ix, pleat__store_key *key, pleat__index_row *out);

pleat_status pleat__index_total(pleat__index *ix, uint64_t *n_files, uint64_t *bytes);

/* Call each(arg, key, row) for every row until it returns false; it may not use the index. */
pleat_status pleat__index_each(pleat__index *ix,
                               bool (*each)(void *arg, const pleat__store_key *key, const pleat__index_row *row),
                               void *arg);

#endif
