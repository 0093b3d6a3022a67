/* SPDX-License-Identifier: MIT
 *
 * pool.h: which pages are free.  Integers only: the pool knows ids, not bytes.
 *
 * All ids stand in one circular list.  Free ones are contiguous from `start`, where pages are taken; the rest of the
 * ring is one contiguous region too, whose first cell, `end`, is where the next freed id is written:
 *
 *              start             end
 *     ring  ...  | f f f f f f f |  - - - - - - - ...          f: free id, -: stale (the page is in use)
 *                | <- n_free ->  |
 *
 * So any number of lanes can take pages at once: an exclusive prefix sum over their counts gives each lane its offset
 * from start, and likewise from end for giving back (LeanKV, sections 5.2 and 5.3).  The ids depend on the order of
 * lanes alone.
 *
 *     (1) end = (start + n_free) mod n_pages
 *     (2) the free cells hold distinct ids, and exactly those with refs[id] = 0
 *     (3) n_used + n_free = n_pages
 *     (4) refs[id] = number of table cells that hold id (checked by the owner of the tables)
 *
 * A page with more than one reference is read-only.
 */
#ifndef PLEAT_PAGE_POOL_H
#define PLEAT_PAGE_POOL_H

#include "core/memory.h"

typedef struct pleat__pool {
    uint32_t n_pages;
    uint32_t start;
    uint32_t n_free;
    uint32_t n_peak;      /* most pages in use at once */
    pleat__page_id *ring; /* [n_pages] */
    uint32_t *refs;       /* [n_pages] */
} pleat__pool;

/* What one page costs in the pool besides its own bytes: its cell of the ring and its count. */
#define PLEAT__POOL_BYTES_PER_PAGE 8u

/* Hand out the arrays of a pool of n_pages from an arena; then initialise: all pages free, ids ascending. */
void pleat__pool_carve(pleat__pool *pool, uint32_t n_pages, pleat__arena *arena);
void pleat__pool_init(pleat__pool *pool);

static inline uint32_t pleat__pool_used(const pleat__pool *pool) { return pool->n_pages - pool->n_free; }

/* Cell of the ring `offset` after start; offset <= n_pages. */
static inline uint32_t pleat__pool_cell(const pleat__pool *pool, uint64_t offset) {
    const uint64_t i = pool->start + offset;
    return (uint32_t)(i < pool->n_pages ? i : i - pool->n_pages);
}

/* Give the free page `offset` places after start its first reference and return it.  offset < n_free.  May run for
 * different offsets at once; pleat__pool_advance() closes the batch. */
pleat__page_id pleat__pool_take_at(pleat__pool *pool, uint32_t offset);

/* The first n free pages have been taken. */
void pleat__pool_advance(pleat__pool *pool, uint32_t n);

/* Add a reference to a page in use. */
void pleat__pool_ref(pleat__pool *pool, pleat__page_id id);

/* Drop a reference; the last one frees the page. */
void pleat__pool_unref(pleat__pool *pool, pleat__page_id id);

/* Recompute (1) to (3).  `marks` is n_pages bytes of scratch. */
bool pleat__pool_is_valid(const pleat__pool *pool, uint8_t *marks);

#endif
