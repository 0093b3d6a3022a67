/* SPDX-License-Identifier: MIT
 *
 * paged.c: each request in blocks that stand anywhere: the pool, tables and plan of src/page as a cache uses
 * them, with one lane for each request and its tokens on the high side.  A plan has one table here, so that requests
 * ask one by one as those of the other allocators do; a cache plans all sequences of a step at once.
 */
#include <stdlib.h>

#include "allocators.h"
#include "core/memory.h"

/* Memory for what `arena` has counted. */
static void *arena_memory(pleat__arena *arena) {
    void *memory = aligned_alloc(PLEAT__ALIGN, (arena->used_bytes + PLEAT__ALIGN - 1) / PLEAT__ALIGN * PLEAT__ALIGN);
    if (!memory) need_memory(UINT64_MAX, 1);
    *arena = (pleat__arena){.base = memory, .cap_bytes = arena->used_bytes};
    return memory;
}

static void table_make(pleat__table *table, uint32_t row_len) {
    pleat__arena arena = {0};
    pleat__table_carve(table, 1, row_len, &arena);
    arena_memory(&arena);
    pleat__table_carve(table, 1, row_len, &arena);
    pleat__table_init(table);
}

void paged_make(allocator *a) {
    pleat__arena arena = {0};
    const uint32_t n_pages = a->pool_tokens / a->kind.block;
    pleat__pool_carve(&a->pool, n_pages, &arena);
    a->pool_memory = arena_memory(&arena);
    pleat__pool_carve(&a->pool, n_pages, &arena);
    pleat__pool_init(&a->pool);
    arena = (pleat__arena){0};
    pleat__plan_carve(&a->plan, 1, 1, &arena);
    a->plan_memory = arena_memory(&arena);
    pleat__plan_carve(&a->plan, 1, 1, &arena);
    a->row_len = pleat__table_row_len(a->max_tokens, a->kind.block);
    a->tables = need_memory(a->n_slots, sizeof *a->tables);
}

void paged_free(allocator *a) {
    for (uint32_t slot = 0; slot < a->n_slots; slot++)
        free(a->tables[slot].n_pages[PLEAT__HIGH]); /* the first array of the table's memory */
    free(a->tables);
    free(a->pool_memory);
    free(a->plan_memory);
}

bool paged_reserve(allocator *a, uint32_t slot, uint32_t n_tokens) {
    pleat__table *table = &a->tables[slot];
    if (table->n_lanes == 0) table_make(table, a->row_len);
    const pleat__want want = {.n_new = {n_tokens - table->n_slots[PLEAT__HIGH][0], 0},
                              .page_tokens = {a->kind.block, a->kind.block}};
    pleat__plan_begin(&a->plan);
    pleat__plan_add(&a->plan, table, &want);
    if (!pleat__plan_fits(&a->plan, &a->pool)) return false;
    pleat__plan_commit(&a->plan, &a->pool);
    table->n_slots[PLEAT__HIGH][0] = n_tokens;
    const uint32_t n = table->n_pages[PLEAT__HIGH][0] * a->kind.block;
    a->held += n - a->capacity[slot];
    a->capacity[slot] = n;
    return true;
}

void paged_release(allocator *a, uint32_t slot) { pleat__table_clear(&a->tables[slot], &a->pool); }

double paged_table_bytes(const allocator *a, double n_running, uint32_t n_lanes) {
    pleat__arena arena = {0};
    pleat__table table;
    pleat__table_carve(&table, n_lanes, a->row_len, &arena);
    return n_running * (double)arena.used_bytes + (double)PLEAT__POOL_BYTES_PER_PAGE * n_lanes * a->pool.n_pages;
}

bool paged_is_valid(const allocator *a) {
    uint32_t *refs = need_memory(a->pool.n_pages, sizeof *refs);
    uint8_t *marks = need_memory(a->pool.n_pages, 1);
    bool ok = true;
    for (uint32_t slot = 0; slot < a->n_slots; slot++)
        if (a->tables[slot].n_lanes > 0)
            ok = ok && pleat__table_count_refs(&a->tables[slot], a->pool.n_pages, refs) &&
                 a->tables[slot].n_pages_all * a->kind.block == a->capacity[slot];
    ok = ok && pleat__pool_is_valid(&a->pool, refs, marks);
    free(refs);
    free(marks);
    return ok;
}
