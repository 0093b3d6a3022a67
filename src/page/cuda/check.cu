/* SPDX-License-Identifier: MIT
 *
 * check.cu: pleat__device_pages_check(): pool.h's and table.h's equations, recomputed on the host from what the device
 * holds.  For tests: it waits, copies everything and takes memory of its own, from the default allocator.
 */
#include <string.h>

#include "hw/cuda/cuda.cuh"
#include "page/cuda/pages.h"
extern "C" {
#include "core/memory.h"
}

/* A copy on the host. */
typedef struct image {
    pleat__device_pool pool;
    uint32_t *ring, *shares, *drops, *ids; /* as in pleat__device_pages */
    uint32_t *n_pages[2], *n_slots[2], *hole;
    uint32_t *refs; /* [n_pages] counted in all rows */
    uint8_t *marks; /* [n_pages] is free */
    void *block;    /* all of these arrays */
    uint64_t block_bytes;
} image;

static void carve(image *m, const pleat__device_pages *p, pleat__arena *arena) {
    uint32_t **of_pages[] = {&m->ring, &m->shares, &m->drops, &m->refs};
    uint32_t **of_rows[] = {&m->n_pages[0], &m->n_pages[1], &m->n_slots[0], &m->n_slots[1], &m->hole};
    for (size_t i = 0; i < sizeof of_pages / sizeof of_pages[0]; i++)
        *of_pages[i] = (uint32_t *)pleat__arena_take(arena, m->pool.n_pages, sizeof(uint32_t));
    for (size_t i = 0; i < sizeof of_rows / sizeof of_rows[0]; i++)
        *of_rows[i] = (uint32_t *)pleat__arena_take(arena, p->n_rows, sizeof(uint32_t));
    m->ids = (uint32_t *)pleat__arena_take(arena, (uint64_t)p->n_rows * p->row_len, sizeof(uint32_t));
    m->marks = (uint8_t *)pleat__arena_take(arena, m->pool.n_pages, 1);
}

/* The block, cleared. */
static pleat_status image_alloc(image *m, const pleat__device_pages *p, const pleat_allocator *al, pleat_error *err) {
    pleat__arena arena = {};
    carve(m, p, &arena);
    m->block_bytes = arena.used_bytes;
    m->block = arena.overflow ? NULL : pleat__alloc_zero(al, 1, m->block_bytes);
    PLEAT_FAIL_IF(!m->block, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "no memory to check a page table");
    arena = pleat__arena{};
    arena.base = (uint8_t *)m->block;
    arena.cap_bytes = m->block_bytes;
    carve(m, p, &arena);
    return PLEAT_OK;
}

static pleat_status fetch(uint32_t *to, const uint32_t *from, uint64_t n, pleat__device_stream stream,
                          pleat_error *err) {
    return pleat__device_copy(to, from, n * sizeof *to, stream, err);
}

static pleat_status image_fetch(image *m, const pleat__device_pages *p, const pleat_allocator *al,
                                pleat__device_stream stream, pleat_error *err) {
    PLEAT_TRY(pleat__device_copy(&m->pool, p->pool, sizeof m->pool, stream, err));
    PLEAT_TRY(pleat__device_wait(stream, err));
    PLEAT_TRY(image_alloc(m, p, al, err));
    PLEAT_TRY(fetch(m->ring, p->ring, m->pool.n_pages, stream, err));
    PLEAT_TRY(fetch(m->shares, p->shares, m->pool.n_pages, stream, err));
    PLEAT_TRY(fetch(m->drops, p->drops, m->pool.n_pages, stream, err));
    PLEAT_TRY(fetch(m->ids, p->ids, (uint64_t)p->n_rows * p->row_len, stream, err));
    for (int side = 0; side < 2; side++) {
        PLEAT_TRY(fetch(m->n_pages[side], p->n_pages[side], p->n_rows, stream, err));
        PLEAT_TRY(fetch(m->n_slots[side], p->n_slots[side], p->n_rows, stream, err));
    }
    PLEAT_TRY(fetch(m->hole, p->hole, p->n_rows, stream, err));
    return pleat__device_wait(stream, err);
}

/* table.h (1) to (3) and (6) for one row, whose references are counted. */
static bool row_is_valid(image *m, const pleat__device_pages *p, uint32_t row, bool at_rest) {
    const uint32_t n_high = m->n_pages[0][row], n_low = m->n_pages[1][row];
    if ((uint64_t)n_high + n_low > p->row_len || m->hole[row] > m->n_slots[0][row]) return false;
    for (int side = 0; side < 2; side++) {
        const uint32_t n = m->n_pages[side][row], tokens = p->page_tokens[side];
        const uint64_t n_slots = m->n_slots[side][row], room = (uint64_t)n * tokens;
        if (n_slots > room || (at_rest && n_slots + tokens <= room)) return false;
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t id = m->ids[(uint64_t)row * p->row_len + (side == 0 ? i : p->row_len - 1 - i)];
            if (id >= m->pool.n_pages) return false;
            m->refs[id]++;
        }
    }
    return true;
}

/* pool.h (1) to (4), and that nothing is left of the last launch. */
static bool pool_is_valid(image *m) {
    const pleat__device_pool *pool = &m->pool;
    if (pool->n_free > pool->n_pages || pool->start >= pool->n_pages || pool->n_faults > 0) return false;
    for (uint32_t i = 0; i < pool->n_free; i++) {
        const uint32_t id = m->ring[((uint64_t)pool->start + i) % pool->n_pages];
        if (id >= pool->n_pages || m->marks[id] || m->refs[id] > 0) return false;
        m->marks[id] = 1;
    }
    uint64_t n_used = 0, n_shares = 0;
    for (uint32_t id = 0; id < pool->n_pages; id++) {
        n_used += m->refs[id] > 0;
        n_shares += m->shares[id];
        if (m->shares[id] != (m->refs[id] > 0 ? m->refs[id] - 1 : 0) || m->drops[id] != 0) return false;
    }
    return n_used + pool->n_free == pool->n_pages && n_shares == pool->n_shares;
}

pleat_status pleat__device_pages_check(const pleat__device_pages *p, bool at_rest, pleat__device_stream stream,
                                       bool *valid, pleat_error *err) {
    const pleat_allocator al = pleat__allocator_or_default(NULL);
    image m;
    memset(&m, 0, sizeof m);
    const pleat_status status = image_fetch(&m, p, &al, stream, err);
    *valid = status == PLEAT_OK;
    for (uint32_t row = 0; *valid && row < p->n_rows; row++) *valid = row_is_valid(&m, p, row, at_rest);
    if (*valid) *valid = pool_is_valid(&m);
    pleat__free(&al, m.block, 1, m.block_bytes);
    return status;
}
