/* SPDX-License-Identifier: MIT
 *
 * blocks.h: hashes of blocks of tokens, and how many kept prefixes have each.
 *
 *     pleat__blocks_start(salt) ──> pleat__blocks_next(before, tokens) ──> ...     a chain: each block's hash has all before it
 *     pleat__blocks_add(hash), pleat__blocks_drop(hash)                            is it the first, the last?
 *
 *     cells   a table of a power of two cells, half of them free at least; a hash stands in the first free cell from its home
 *             on, so a search ends at a free cell.  What is dropped is filled by those behind it that may stand there.
 */
#ifndef PLEAT_EVENTS_BLOCKS_H
#define PLEAT_EVENTS_BLOCKS_H

#include "core/memory.h"
#include "pleat/model.h"

typedef struct pleat__block_cell {
    uint64_t hash;
    uint64_t n_users; /* 0: the cell is free */
} pleat__block_cell;

typedef struct pleat__blocks {
    pleat__block_cell *cells; /* [n_cells] NULL: there are none yet */
    uint64_t n_cells;         /* 0, or a power of two */
    uint64_t n_used;
} pleat__blocks;

/* What stands before the first block. */
uint64_t pleat__blocks_start(const char *salt);

/* The hash of a block of n tokens behind `before`. */
uint64_t pleat__blocks_next(uint64_t before, const pleat_token *tokens, uint32_t n);

/* Make room for n more.  PLEAT_E_MEMORY: nothing has changed. */
pleat_status pleat__blocks_reserve(pleat__blocks *b, const pleat_allocator *al, uint64_t n);

/* One more prefix has it; there is room.  Is it the first? */
bool pleat__blocks_add(pleat__blocks *b, uint64_t hash);

/* One prefix less has it; there is one.  Was it the last? */
bool pleat__blocks_drop(pleat__blocks *b, uint64_t hash);

void pleat__blocks_release(pleat__blocks *b, const pleat_allocator *al);

#endif
