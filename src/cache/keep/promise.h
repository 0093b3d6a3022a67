/* SPDX-License-Identifier: MIT
 *
 * promise.h: what the spec `auto` promises, and how blocks keep it: a sequence of `from` tokens or more never holds more
 * than a share of f16's bytes.
 *
 * A sequence of n tokens holds high pages, whose number follows from n; its tables; and payloads, of which alone the
 * text decides.  So for b blocks in each lane the slots of 16 bytes that payloads may have in all lanes are known:
 *
 *     slots(b) = least over n with b blocks of  (share * f16(n) - tables) / page - high pages(n) - one a lane,  in slots
 *
 * One page a lane is what rounding up to pages may take.  n goes to where the next block is made, and the token that
 * makes it stands in pages already: so it holds within such a step too.
 *
 *     rate      the slots that a block of all lanes may have so that no b is too long: least of slots(b) / b
 *     steps     k and v in rd's proportions, the finest whose blocks are expected to take no more than that
 *     allowed   of b blocks in each lane: least of (rate * (b + 1/2), slots(b))
 *     room      of a lane's next block: what the others of its row, one in each lane, are expected to leave, and what it
 *               is expected to take itself at least, if each of those behind it is left what it needs to store nothing
 *
 * The half of a block lets blocks differ.  slots(b) is what b blocks, and all that come until `from`, leave to it.  A block
 * that does not fit its room is coded more coarsely until it does (codec/rd.h).  So what a block is depends on the blocks
 * before it, and on nothing else: there is no state but where blocks end.
 *
 * check: each further block allows as many bytes as a payload that stores nothing has, in every lane: then the promise
 * holds for any text.
 */
#ifndef PLEAT_CACHE_KEEP_PROMISE_H
#define PLEAT_CACHE_KEEP_PROMISE_H

#include "pleat/cache.h"

typedef struct pleat__promise {
    float k, v;      /* the steps, before the layers' scales */
    uint32_t share;  /* in millionths */
    double rate;     /* slots of all lanes for a block */
    uint32_t least;  /* slots of a payload that stores nothing */
    float *expected; /* [full lanes] slots that a block is expected to take */
} pleat__promise;

/* Tokens of the longest sequence of the cache that steps are chosen for, c->plain. */
uint32_t pleat__promise_plain_tokens(const pleat_cache *cache);

/* Can it be kept, by statistics that pleat__keep_check_stats() takes?  PLEAT_E_ARG, saying the smallest share that can. */
pleat_status pleat__promise_check(const pleat_cache *cache, const pleat_cache_options *opt, pleat_error *err);

/* The cache's promise, whose expected slots have been carved; after pleat__promise_check(). */
void pleat__promise_init(pleat_cache *cache, const pleat_cache_options *opt);

/* Bytes that n tokens never hold more than; UINT64_MAX below the spec's `from`. */
uint64_t pleat__promise_bytes(const pleat_cache *cache, uint32_t n_tokens);

/* Slots that all lanes' payloads may have when there are n_blocks in each. */
uint64_t pleat__promise_allows(const pleat_cache *cache, uint32_t n_blocks);

/* Slots that a block of this full lane is expected to take. */
double pleat__promise_expects(const pleat_cache *cache, uint32_t full_lane);

#endif
