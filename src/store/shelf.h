/* SPDX-License-Identifier: MIT
 *
 * shelf.h: where the images of a store lie, as a row of functions: a folder (folder/), or servers (servers/).
 *
 * find and read are asked from any thread; write, use and forget by the writer's alone.  Each may wait for a disk or a
 * network.  A shelf counts what it holds itself, in the store's stats; misses are counted by who asks.
 */
#ifndef PLEAT_STORE_SHELF_H
#define PLEAT_STORE_SHELF_H

#include "pleat/store.h"
#include "store/key.h"

/* An image that is written: its head's bytes and its body, one behind the other. */
typedef struct pleat__writing {
    const pleat__store_key *key;
    const pleat_image_head *head;
    const uint8_t *file; /* [n_head + head->body_bytes] */
    uint64_t n_head;
    double cost_ns; /* what computing it costs */
} pleat__writing;

/* An image that is read. */
typedef struct pleat__reading {
    const pleat__store_key *key;
    const pleat_image_head *wanted; /* body_bytes and piece_bytes included */
    uint8_t *head;                  /* [n_head] scratch: as an image of what is wanted has it */
    uint64_t n_head;
    uint8_t *body;              /* [wanted->body_bytes] */
    bool (*goes_on)(void *ctx); /* asked after each piece: does anybody want it still?  NULL: yes */
    void *ctx;
} pleat__reading;

/* What comes of a read or a search beside a pleat_store_miss. */
enum { PLEAT__READ = PLEAT_STORE_N_MISSES, PLEAT__READ_STOPPED };

typedef struct pleat__shelf {
    void *ctx;
    /* Which of these n is there, the first that is?  PLEAT__READ, and how long its body is; or why none is.  *which: the one that
     * was found, or that could not be asked for; those before it are absent. */
    int (*find)(void *ctx, const pleat__store_key *keys, uint32_t n, uint32_t *which, uint64_t *body_bytes);
    /* Its body, each byte checked and of what is wanted: PLEAT__READ.  PLEAT__READ_STOPPED, or why not. */
    int (*read)(void *ctx, const pleat__reading *r);
    /* PLEAT_AGAIN: it is there already. */
    pleat_status (*write)(void *ctx, const pleat__writing *w);
    void (*use)(void *ctx, const pleat__store_key *key);    /* it was read */
    void (*forget)(void *ctx, const pleat__store_key *key); /* it is gone, or worth nothing */
    bool (*is_valid)(void *ctx);                            /* slow, for tests; nobody else is here */
    void (*close)(void *ctx);
} pleat__shelf;

/* ---- read.c: what shelves have alike */

/* Is the head, read into r->head, of what is wanted?  PLEAT__READ, or why not. */
int pleat__store_check_head(const pleat__reading *r);

#endif
