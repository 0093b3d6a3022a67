/* SPDX-License-Identifier: MIT
 *
 * promise.h: what the spec `auto` promises, and how blocks keep it: a sequence of `from` tokens or more never holds more
 * than a share of f16's bytes.
 *
 * A sequence of n tokens holds high pages, whose number follows from n; its tables; and payloads, of which alone the
 * text decides.  So for b blocks in each lane the pages that payloads may take in all lanes are known:
 *
 *     pages(b) = least over n with b blocks of  (share * f16(n) - tables) / page - high pages(n)
 *
 * n goes to where the next block is made, and the token that makes it stands in pages already: so it holds within such a
 * step too.  Nothing is promised before the sequence has `from` tokens, with `first` blocks.
 *
 *     aim       slots of 16 bytes that b blocks of all lanes are meant to take: those of pages(b) but 0.55 of a page a lane,
 *               which payloads leave empty; before `first` so many for each block as there
 *     steps     k and v in rd's proportions, the finest whose blocks are expected to take no more than `first` ones aim at
 *     level     of a row of blocks, one in each lane: the finest whose row is expected to take what the blocks before it have
 *               left of the aim.  So text that takes more than expected is coded more coarsely from the next row on, and text
 *               that takes less more finely
 *     room      of a lane's block: the most with which all lanes' pages are pages(b) at most, for this b and all later ones,
 *               if all other blocks that are to come store nothing
 *
 * A block that does not fit its room is coded more coarsely until it does (codec/rd.h).  What a block is depends on the
 * blocks before it, and on nothing else: there is no state but where blocks end.
 *
 * check: blocks that store nothing always fit.  Then they do behind any row that kept to its rooms, and the promise holds
 * for any text.
 */
#ifndef PLEAT_CACHE_KEEP_PROMISE_H
#define PLEAT_CACHE_KEEP_PROMISE_H

#include "codec/rd.h"
#include "core/memory.h"
#include "pleat/cache.h"

#define PLEAT__PROMISE_AHEAD 8u /* numbers of blocks that a room is good for; promise.c shows that others follow */

typedef struct pleat__promise {
    float k, v;      /* the steps, before the layers' scales */
    uint32_t first;  /* blocks of `from` tokens */
    uint32_t least;  /* slots of a payload that stores nothing */
    uint32_t *pages; /* pages(b) of b blocks, from `first` to the longest sequence's or to it, and AHEAD more */
    double expected[PLEAT__RD_LEVELS_USED]; /* slots of a row by level */
} pleat__promise;

/* Tokens of the longest sequence of the cache that steps are chosen for, c->plain. */
uint32_t pleat__promise_plain_tokens(const pleat_cache *cache);

/* Can it be kept, by statistics that pleat__keep_check_stats() takes?  PLEAT_E_ARG, saying the smallest share that can. */
pleat_status pleat__promise_check(const pleat_cache *cache, const pleat_cache_options *opt, pleat_error *err);

/* The cache's promise, whose tables have been carved; after pleat__promise_check(). */
void pleat__promise_carve(pleat_cache *cache, pleat__arena *arena);
void pleat__promise_init(pleat_cache *cache, const pleat_cache_options *opt);

/* Bytes that n tokens never hold more than; UINT64_MAX below the spec's `from`. */
uint64_t pleat__promise_bytes(const pleat_cache *cache, uint32_t n_tokens);

/* The level of the row behind n_blocks blocks in each lane, which take n_slots slots in all. */
uint32_t pleat__promise_level(const pleat_cache *cache, uint32_t n_blocks, uint64_t n_slots);

/* A row that is being written: pages that are left when there are n_behind + i more rows, if all blocks that are not written
 * store nothing. */
typedef struct pleat__promise_row {
    uint32_t n_behind; /* rows until `first`; 0 from there on */
    int64_t left[PLEAT__PROMISE_AHEAD];
} pleat__promise_row;

/* The row behind n_blocks blocks; n_slots: of each lane. */
pleat__promise_row pleat__promise_open_row(const pleat_cache *cache, uint32_t n_blocks, const uint32_t *n_slots);

/* Slots for the row's block of a lane that has n_slots. */
uint64_t pleat__promise_room(const pleat_cache *cache, const pleat__promise_row *row, uint32_t n_slots);

/* A lane that had `before` slots has `now`. */
void pleat__promise_take(const pleat_cache *cache, pleat__promise_row *row, uint32_t before, uint32_t now);

#endif
