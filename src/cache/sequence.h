/* SPDX-License-Identifier: MIT
 *
 * sequence.h: one sequence of a cache, and the calls that open, name and close one (sequence.c).
 *
 *     closed ──open, fork, restore──> open ──close──> closed        the generation rises, so that old handles are refused
 *
 * A sequence owns one allocation: its block table (page/table.h) and what its kind of lanes keeps beside that.  With
 * codebooks a second one, from its first blocks on.
 */
#ifndef PLEAT_CACHE_SEQUENCE_H
#define PLEAT_CACHE_SEQUENCE_H

#include <stdatomic.h>

#include "codec/block.h"
#include "page/table.h"
#include "pleat/cache.h"

/* Cold tokens in blocks: keep/blocks.c fills it, other kinds leave it empty. */
typedef struct pleat__seq_blocks {
    pleat__block_codebooks
        *codebooks;           /* [n_full_layers] made with the sequence's first blocks; NULL: no block needs them */
    uint64_t codebooks_bytes; /* of their allocation */
    uint32_t *ends;           /* [lanes of full layers][cap] as in pleat__block_run */
    uint32_t cap;             /* blocks of a lane that there is room for */
} pleat__seq_blocks;

/* How many of a layer's queries are in a sum, and the tokens that there were then. */
typedef struct pleat__query_count {
    uint32_t n, end;
} pleat__query_count;

/* expected: keep/expected.h fills it; NULL under other policies. */
typedef struct pleat__seq_queries {
    float *sums;
    pleat__query_count *counts;
} pleat__seq_queries;

typedef struct pleat__sequence {
    bool open;
    uint32_t generation; /* raised by close, so that an old handle is not taken for a new sequence */
    uint32_t n_tokens;
    uint32_t max_tokens;
    uint32_t n_classed; /* tokens before this position have left the window and been classed, or are in blocks */
    uint32_t n_prompt;  /* tokens there were when the last prompt ended: what budgets in per cent are of */
    bool lost;          /* a cancelled chunk has taken tokens from its rings */
    bool copies_due;    /* pages that it will write may be shared: it was forked since its last step */
    uint32_t n_opened;  /* times that its sealed pages were opened: images on it are void then */
    pleat_spec spec;    /* the cache's, with thresholds that compression may have raised */
    uint64_t n_pages_peak;
    uint64_t n_returned;      /* pages returned to the pool at the ends of steps */
    _Atomic uint64_t n_moved; /* tokens moved to other slots at the ends of steps */
    uint64_t step_id;         /* the last step that named it; tells a sequence that stands twice in one */
    pleat__table table;
    pleat__seq_blocks blocks;
    float *key_sums; /* [lanes of full layers][head_dim] novel: keep/novelty.h fills it */
    pleat__seq_queries queries;
    void *memory; /* of the table, the blocks and the sums */
    uint64_t memory_bytes;
} pleat__sequence;

/* Lay out the arrays of a sequence of max_tokens; returns their bytes. */
uint64_t pleat__cache_carve_seq(const pleat_cache *cache, uint32_t max_tokens, pleat__sequence *seq,
                                pleat__arena *arena);

/* Open an empty sequence of at most max_tokens tokens, which are in range. */
pleat_status pleat__cache_open_seq(pleat_cache *cache, uint32_t max_tokens, pleat__sequence **out);
pleat_seq pleat__cache_handle(const pleat_cache *cache, const pleat__sequence *seq);

/* The open sequence that a handle names, or NULL. */
pleat__sequence *pleat__cache_seq(const pleat_cache *cache, pleat_seq seq);
void pleat__cache_release_seq(pleat_cache *cache, pleat__sequence *seq);

#endif
