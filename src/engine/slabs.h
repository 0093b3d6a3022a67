/* SPDX-License-Identifier: MIT
 *
 * slabs.h: memory that takes long to get, as pinned memory does: got in large slabs, ahead of need, by a thread.
 *
 *     expect ──> thread: take a slab ──> free units <── drop      as long as fewer are free than are kept ready, and no
 *                                           │                     more than expected are there
 *                                           └──> taken by take    where no slab has as many in a row: it waits for the
 *                                                                 one that is being got, or gets one itself
 *
 * (1) A unit is of one piece at most, and a piece is of units in a row.
 * (2) n_free of a slab is its units of no piece; n_units and n_free of all are the sums.
 * (3) One slab is being got at a time: by the thread, or by who takes.
 *
 * Slabs stay until the end, or until the system has no more: then those go that are all free.
 */
#ifndef PLEAT_ENGINE_SLABS_H
#define PLEAT_ENGINE_SLABS_H

#include "core/memory.h"

typedef struct pleat__slabs pleat__slabs;

#define PLEAT__SLAB_UNIT (1ull << 20) /* bytes: pieces are rounded up to it */

/* Where slabs come from.  Called by the thread and by who takes, one at a time. */
typedef struct pleat__slab_source {
    void *(*get)(void *ctx, uint64_t n_bytes); /* NULL: there is no more */
    void (*put)(void *ctx, void *p, uint64_t n_bytes);
    void *ctx;
} pleat__slab_source;

/* Slabs of slab_bytes and more.  NULL: out of memory.  destroy waits for the thread; pieces are gone then. */
pleat__slabs *pleat__slabs_create(const pleat__slab_source *source, uint64_t slab_bytes, const pleat_allocator *al);
void pleat__slabs_destroy(pleat__slabs **slabs);

/* Pieces may come, of most_bytes in all: ready_bytes are kept free for them from now on.  Returns at once; where there can
 * be no thread, slabs are got when they are needed. */
void pleat__slabs_expect(pleat__slabs *s, uint64_t ready_bytes, uint64_t most_bytes);

/* A piece of n_bytes; NULL: there is none.  Any thread's, as drop. */
void *pleat__slabs_take(pleat__slabs *s, uint64_t n_bytes);

/* It is free again.  n_bytes as taken, or anything in that piece and what is left of them. */
void pleat__slabs_drop(pleat__slabs *s, const void *p, uint64_t n_bytes);

/* Rules (1) and (2), and no units beyond: for tests. */
bool pleat__slabs_are_valid(pleat__slabs *s, uint64_t *n_units, uint64_t *n_free);

#endif
