/* SPDX-License-Identifier: MIT
 *
 * blocks.c: see blocks.h.
 */
#include <assert.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "events/blocks.h"

enum { FIRST_CELLS = 1024 };

/* ---- hashes ------------------------------------------------------------------------------------------------------- */

uint64_t pleat__blocks_start(const char *salt) { return salt && salt[0] ? XXH3_64bits(salt, strlen(salt)) : 0; }

uint64_t pleat__blocks_next(uint64_t before, const pleat_token *tokens, uint32_t n) {
    return XXH3_64bits_withSeed(tokens, n * sizeof *tokens, before);
}

/* ---- the table ---------------------------------------------------------------------------------------------------- */

/* The cell of this hash, or the free one where it would stand. */
static uint64_t cell_of(const pleat__blocks *b, uint64_t hash) {
    uint64_t i = hash & (b->n_cells - 1);
    while (b->cells[i].n_users > 0 && b->cells[i].hash != hash) i = (i + 1) & (b->n_cells - 1);
    return i;
}

pleat_status pleat__blocks_reserve(pleat__blocks *b, const pleat_allocator *al, uint64_t n) {
    pleat__blocks larger = {.n_cells = b->n_cells ? b->n_cells : FIRST_CELLS, .n_used = b->n_used};
    while (larger.n_cells / 2 < b->n_used + n) larger.n_cells *= 2;
    if (larger.n_cells == b->n_cells) return PLEAT_OK;
    larger.cells = pleat__alloc_zero(al, larger.n_cells, sizeof *larger.cells);
    if (!larger.cells) return PLEAT_E_MEMORY;
    for (uint64_t i = 0; i < b->n_cells; i++)
        if (b->cells[i].n_users > 0) larger.cells[cell_of(&larger, b->cells[i].hash)] = b->cells[i];
    pleat__blocks_release(b, al);
    *b = larger;
    return PLEAT_OK;
}

bool pleat__blocks_add(pleat__blocks *b, uint64_t hash) {
    pleat__block_cell *c = &b->cells[cell_of(b, hash)];
    c->hash = hash;
    b->n_used += c->n_users == 0;
    return c->n_users++ == 0;
}

/* Cell i is free: fill it with one behind it whose home is not behind i, and so on. */
static void close_gap(pleat__blocks *b, uint64_t i) {
    const uint64_t mask = b->n_cells - 1;
    for (uint64_t j = (i + 1) & mask; b->cells[j].n_users > 0; j = (j + 1) & mask) {
        if (((j - b->cells[j].hash) & mask) < ((j - i) & mask)) continue;
        b->cells[i] = b->cells[j];
        b->cells[j].n_users = 0;
        i = j;
    }
}

bool pleat__blocks_drop(pleat__blocks *b, uint64_t hash) {
    const uint64_t i = cell_of(b, hash);
    assert(b->cells[i].n_users > 0);
    if (--b->cells[i].n_users > 0) return false;
    b->n_used--;
    close_gap(b, i);
    return true;
}

void pleat__blocks_release(pleat__blocks *b, const pleat_allocator *al) {
    if (b->cells) pleat__free(al, b->cells, b->n_cells, sizeof *b->cells);
    *b = (pleat__blocks){0};
}
