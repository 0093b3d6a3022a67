/* SPDX-License-Identifier: MIT
 *
 * check.cu: pleat__device_pages_check(): pool.h's and table.h's equations, recomputed on the host from what the device
 * holds.  For tests: it waits, copies everything and takes memory of its own.
 */
#include <stdlib.h>
#include <string.h>

#include "hw/cuda/cuda.cuh"
#include "page/cuda/pages.h"

/* A copy on the host. */
typedef struct image {
    pleat__device_pool pool;
    uint32_t *ring, *shares, *drops, *ids; /* as in pleat__device_pages */
    uint32_t *n_pages[2], *n_slots[2], *hole;
    uint32_t *refs; /* [n_pages] counted in all rows */
    uint8_t *marks; /* [n_pages] is free */
} image;

static void image_free(image *m) {
    uint32_t *all[] = {m->ring,       m->shares,     m->drops,      m->ids,  m->n_pages[0],
                       m->n_pages[1], m->n_slots[0], m->n_slots[1], m->hole, m->refs};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
    free(m->marks);
}

static pleat_status fetch(uint32_t **to, const uint32_t *from, uint64_t n, pleat__device_stream stream,
                          pleat_error *err) {
    *to = (uint32_t *)malloc(n * sizeof **to);
    PLEAT_FAIL_IF(!*to, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "no memory to check a page table");
    return pleat__device_copy(*to, from, n * sizeof **to, stream, err);
}

static pleat_status image_fetch(image *m, const pleat__device_pages *p, pleat__device_stream stream, pleat_error *err) {
    PLEAT_TRY(pleat__device_copy(&m->pool, p->pool, sizeof m->pool, stream, err));
    PLEAT_TRY(pleat__device_wait(stream, err));
    const uint64_t n_pages = m->pool.n_pages;
    PLEAT_TRY(fetch(&m->ring, p->ring, n_pages, stream, err));
    PLEAT_TRY(fetch(&m->shares, p->shares, n_pages, stream, err));
    PLEAT_TRY(fetch(&m->drops, p->drops, n_pages, stream, err));
    PLEAT_TRY(fetch(&m->ids, p->ids, (uint64_t)p->n_rows * p->row_len, stream, err));
    for (int side = 0; side < 2; side++) {
        PLEAT_TRY(fetch(&m->n_pages[side], p->n_pages[side], p->n_rows, stream, err));
        PLEAT_TRY(fetch(&m->n_slots[side], p->n_slots[side], p->n_rows, stream, err));
    }
    PLEAT_TRY(fetch(&m->hole, p->hole, p->n_rows, stream, err));
    m->refs = (uint32_t *)calloc(n_pages, sizeof *m->refs);
    m->marks = (uint8_t *)calloc(n_pages, 1);
    PLEAT_FAIL_IF(!m->refs || !m->marks, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "no memory to check a page table");
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
    image m;
    memset(&m, 0, sizeof m);
    const pleat_status status = image_fetch(&m, p, stream, err);
    *valid = status == PLEAT_OK;
    for (uint32_t row = 0; *valid && row < p->n_rows; row++) *valid = row_is_valid(&m, p, row, at_rest);
    if (*valid) *valid = pool_is_valid(&m);
    image_free(&m);
    return status;
}
