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
 * So any number of lanes can take pages at once.  An exclusive prefix sum over their counts says at which offset from
 * start each lane takes, and at which offset from end it returns (LeanKV, sections 5.2 and 5.3).  The ids depend on the
 * order of lanes alone.
 *
 * With refs(id), the number of table cells that hold id:
 *
 *     (1) end = (start + n_free) mod n_pages
 *     (2) the free cells hold distinct ids, and exactly those with refs(id) = 0
 *     (3) n_used + n_free = n_pages
 *     (4) shares[id] = refs(id) - 1, or 0 where refs(id) is 0;  n_shares = sum of them
 *
 * A page with more than one reference is read-only.  Most pages have one: to take one touches its cell of the ring
 * alone, which is next to the last one's, and so does freeing it while no page at all is shared.
 */
#ifndef PLEAT_PAGE_POOL_H
#define PLEAT_PAGE_POOL_H

#include <assert.h>
#include <string.h>

#include "core/memory.h"

typedef struct pleat__pool {
    uint32_t n_pages;
    uint32_t start;
    uint32_t n_free;
    uint32_t n_peak; /* most pages in use at once */
    uint64_t n_shares;
    pleat__page_id *ring; /* [n_pages] */
    uint32_t *shares;     /* [n_pages] references beyond the first */
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

/* Takes free pages one after the other, from the one `offset` places after start.  Takers with different pages may work
 * at once; pleat__pool_advance() closes the batch.  Kept by value, so that a loop holds it in registers. */
typedef struct pleat__pool_taker {
    const pleat__page_id *ring;
    uint32_t at; /* the next page's cell */
    uint32_t n_cells;
} pleat__pool_taker;

static inline pleat__pool_taker pleat__pool_taker_at(const pleat__pool *pool, uint64_t offset) {
    return (pleat__pool_taker){pool->ring, pleat__pool_cell(pool, offset), pool->n_pages};
}

/* The next free page, which has one reference from now on. */
static inline pleat__page_id pleat__pool_take(pleat__pool_taker *t) {
    const pleat__page_id id = t->ring[t->at];
    t->at = t->at + 1 == t->n_cells ? 0 : t->at + 1;
    return id;
}

/* The next n free pages, or NULL if they do not stand in one piece: then they are taken one by one. */
static inline const pleat__page_id *pleat__pool_take_run(pleat__pool_taker *t, uint32_t n) {
    const uint32_t at = t->at;
    if (n >= t->n_cells - at) return NULL;
    t->at = at + n;
    return t->ring + at;
}

/* The first n free pages have been taken. */
void pleat__pool_advance(pleat__pool *pool, uint32_t n);

/* Add a reference to a page in use. */
void pleat__pool_ref(pleat__pool *pool, pleat__page_id id);

static inline bool pleat__pool_is_shared(const pleat__pool *pool, pleat__page_id id) {
    return pool->n_shares > 0 && pool->shares[id.v] > 0;
}

/* Drop a reference; the last one frees the page. */
void pleat__pool_unref(pleat__pool *pool, pleat__page_id id);

/* Pages on their way back, many at a time; the pool knows of them after pleat__pool_returns_end().  One at a time for a
 * pool. */
typedef struct pleat__pool_returns {
    pleat__page_id *ring;
    uint32_t *shares;
    uint64_t n_shares;
    uint32_t at; /* where the next freed page is written */
    uint32_t n_cells;
    uint32_t n_freed;
} pleat__pool_returns;

static inline pleat__pool_returns pleat__pool_returns_begin(const pleat__pool *pool) {
    return (pleat__pool_returns){
        pool->ring, pool->shares, pool->n_shares, pleat__pool_cell(pool, pool->n_free), pool->n_pages, 0};
}
static inline void pleat__pool_return(pleat__pool_returns *r, pleat__page_id id) {
    if (r->n_shares > 0 && r->shares[id.v] > 0) {
        r->shares[id.v]--;
        r->n_shares--;
        return;
    }
    r->ring[r->at] = id;
    r->at = r->at + 1 == r->n_cells ? 0 : r->at + 1;
    r->n_freed++;
}

/* Return n pages; false, and nothing is done, if any page of the pool is shared: then one by one. */
static inline bool pleat__pool_return_run(pleat__pool_returns *r, const pleat__page_id *ids, uint32_t n) {
    if (r->n_shares > 0) return false;
    const uint32_t n_first = pleat__min_u32(n, r->n_cells - r->at);
    memcpy(r->ring + r->at, ids, n_first * sizeof *ids);
    memcpy(r->ring, ids + n_first, (n - n_first) * sizeof *ids);
    r->at = n < r->n_cells - r->at ? r->at + n : n - n_first;
    r->n_freed += n;
    return true;
}

static inline void pleat__pool_returns_end(pleat__pool *pool, const pleat__pool_returns *r) {
    assert(r->n_freed <= pleat__pool_used(pool));
    pool->n_free += r->n_freed;
    pool->n_shares = r->n_shares;
}

/* Recompute (1) to (4).  refs: counted in all tables, [n_pages].  `marks` is n_pages bytes of scratch. */
bool pleat__pool_is_valid(const pleat__pool *pool, const uint32_t *refs, uint8_t *marks);

#endif
