/* SPDX-License-Identifier: MIT
 *
 * pool.c: the circular free list.  See pool.h.
 */
#include "page/pool.h"

#include <assert.h>
#include <string.h>

void pleat__pool_carve(pleat__pool *pool, uint32_t n_pages, pleat__arena *arena) {
    pool->n_pages = n_pages;
    pool->ring = pleat__arena_take(arena, n_pages, sizeof *pool->ring);
    pool->shares = pleat__arena_take(arena, n_pages, sizeof *pool->shares);
}

void pleat__pool_init(pleat__pool *pool) {
    pool->start = 0;
    pool->n_free = pool->n_pages;
    pool->n_peak = 0;
    pool->n_shares = 0;
    for (uint32_t i = 0; i < pool->n_pages; i++) pool->ring[i].v = i;
    memset(pool->shares, 0, (size_t)pool->n_pages * sizeof *pool->shares);
}

void pleat__pool_advance(pleat__pool *pool, uint32_t n) {
    assert(n <= pool->n_free);
    pool->start = pleat__pool_cell(pool, n);
    pool->n_free -= n;
    pool->n_peak = pleat__max_u32(pool->n_peak, pleat__pool_used(pool));
}

void pleat__pool_ref(pleat__pool *pool, pleat__page_id id) {
    pool->shares[id.v]++;
    pool->n_shares++;
}

void pleat__pool_unref(pleat__pool *pool, pleat__page_id id) {
    pleat__pool_returns returns = pleat__pool_returns_begin(pool);
    pleat__pool_return(&returns, id);
    pleat__pool_returns_end(pool, &returns);
}

bool pleat__pool_is_valid(const pleat__pool *pool, const uint32_t *refs, uint8_t *marks) {
    if (pool->n_free > pool->n_pages || pool->start >= pool->n_pages) return false;
    memset(marks, 0, pool->n_pages);
    for (uint32_t i = 0; i < pool->n_free; i++) {
        const uint32_t id = pool->ring[pleat__pool_cell(pool, i)].v;
        if (id >= pool->n_pages || marks[id] || refs[id] != 0) return false;
        marks[id] = 1;
    }
    uint32_t n_used = 0;
    uint64_t n_shares = 0;
    for (uint32_t id = 0; id < pool->n_pages; id++) {
        n_used += refs[id] > 0;
        n_shares += pool->shares[id];
        if (pool->shares[id] != (refs[id] > 0 ? refs[id] - 1 : 0)) return false;
    }
    return n_used + pool->n_free == pool->n_pages && n_shares == pool->n_shares;
}
