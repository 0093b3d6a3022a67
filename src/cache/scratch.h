/* SPDX-License-Identifier: MIT
 *
 * scratch.h: memory by size: the arrays that a step, its units and its end work in, and a sequence's block table.
 *
 * Each carve function hands out its arrays from an arena, or counts their bytes when the arena has no base
 * (core/memory.h).  All of it is taken at create and open; a step takes nothing.
 */
#ifndef PLEAT_CACHE_SCRATCH_H
#define PLEAT_CACHE_SCRATCH_H

#include "cache/cache.h"
#include "codec/loader.h"
#include "reclaim/reclaim.h"

#define PLEAT__ITEM_STRANDS 16u /* at most, of an item and head: enough for threads to end together */

/* Slots of the longest span whose logits fit a worker's scratch. */
#define PLEAT__SCRATCH_SPAN_SLOTS 1024u

/* Tokens of an item, those before and its own, up to which a unit keeps weights: 512 bytes a token and worker. */
#define PLEAT__SCORED_TOKENS 8192u

/* Queries of a strand at least. */
#define PLEAT__STRAND_QUERIES 64u

/* ---- a cache and a sequence */

/* The step's arrays and the workspace; worker_bytes, max_splits and acc_bytes are known. */
void pleat__cache_carve_step(const pleat_cache *cache, pleat__step *step, pleat__arena *arena);
void pleat__cache_carve_work(const pleat_cache *cache, pleat__workspace *work, pleat__arena *arena);

/* Tiles of each head that prompt chunks of one step can fill in the staging buffer. */
uint64_t pleat__cache_stage_tiles(const pleat_cache *cache);

/* Whether weights of prompts may be kept, so that what slots receive is found in the walk of attention (prompt.c). */
bool pleat__cache_keeps_weights(const pleat_cache *cache);

/* Slots of a strand's array; 0 where no weights are kept. */
uint32_t pleat__cache_strand_slots(const pleat_cache *cache);

/* Pages that a lane of n_tokens tokens may take at once for what is copied. */
static inline uint32_t pleat__cache_fresh_pages(const pleat_cache *c, uint32_t n_tokens) {
    return pleat__reclaim_fresh(c->opt.spec.reclaim, n_tokens, c->page_tokens[PLEAT__HIGH]);
}

/* The block table of a sequence: rows have room for fresh pages beside the old ones. */
void pleat__cache_carve_table(const pleat_cache *cache, uint32_t max_tokens, pleat__table *table, pleat__arena *arena);

/* ---- units */

typedef struct pleat__decode_scratch {
    void *query;
    void *acc;
    void *blocks;  /* cold tokens in blocks */
    float *logits; /* [n_group][PLEAT__SCRATCH_SPAN_SLOTS] where single tokens are counted */
} pleat__decode_scratch;
void pleat__cache_carve_decode(const pleat_cache *cache, pleat__decode_scratch *scratch, pleat__arena *arena);

/* ---- ends of steps */

/* One lane's compaction (keep/compact.c): the most slots that a high side can have decide. */
typedef struct pleat__compact_scratch {
    pleat__page_id *pages; /* [row_len] low pages made from high ones */
    float *floats;         /* [slots] */
    uint8_t *levels;       /* [slots] pleat_level */
    float *k_tile;         /* [head_dim][16] */
    float *v_tile;         /* [16][head_dim] */
    float *k;              /* [head_dim] */
} pleat__compact_scratch;
void pleat__cache_carve_compact(const pleat_cache *cache, pleat__compact_scratch *scratch, pleat__arena *arena);

/* One lane's tokens scored by their keys (keep/novelty.c). */
typedef struct pleat__novelty_scratch {
    float *k;                 /* [head_dim][16] */
    float *turn;              /* [head_dim][16] */
    float *mean;              /* [head_dim] */
    float *own;               /* [max_tokens] by position */
    pleat__key_spread spread; /* of leverage */
} pleat__novelty_scratch;

/* One lane's tokens scored by the queries that are to be expected (keep/expected.c); all NULL elsewhere. */
typedef struct pleat__expected_scratch {
    float *k;      /* [head_dim][16] */
    float *v;      /* [16][head_dim] */
    float *m, *s;  /* [n_group][head_dim] */
    float *most;   /* [n_group] */
    double *total; /* [n_group] */
} pleat__expected_scratch;

/* One lane's tokens that are merged (keep/merge.c); all NULL unless the spec merges. */
typedef struct pleat__merge_scratch {
    float *s;                 /* [slots] mean attention received */
    uint32_t *by_position;    /* [max_tokens] slot + 1 of the token at a position; 0: there is none */
    uint32_t *takers;         /* [n_takers] slots */
    uint32_t *gone;           /* [n_gone] slots of tokens that are dropped */
    uint32_t *gone_to;        /* [n_gone] the taker's slot */
    uint32_t *first;          /* [slots] of a taker: the first slot of its chain */
    uint32_t *next;           /* [slots] of a dropped token: the next of its chain */
    uint32_t *top;            /* [n_top] takers of the largest s */
    float *ring_keys;         /* keys of takers that are near */
    float *top_keys;          /* [n_top][head_dim] */
    float *key, *value, *sum; /* [head_dim] */
    uint8_t *page;            /* one token's value is quantised in it */
    uint32_t n_takers, n_gone, n_top;
} pleat__merge_scratch;

/* One layer's eviction (keep/evict.c). */
typedef struct pleat__drop_scratch {
    pleat__page_id *pages; /* [row_len] a row's pages in their new order */
    float *ranks;          /* [PLEAT__SCAN_BLOCK] in generation */
    pleat__evict_scratch evict;
    pleat__kv_view *views; /* [n_kv_heads] */
    uint8_t **verdicts;    /* [n_kv_heads][slots] */
    pleat__novelty_scratch novelty;
    pleat__expected_scratch expected;
    pleat__merge_scratch merge;
    pleat__reclaim_plan reclaim;
    uint64_t n_moved; /* tokens moved so far by this unit */
} pleat__drop_scratch;
void pleat__cache_carve_drop(const pleat_cache *cache, pleat__drop_scratch *scratch, pleat__arena *arena);

/* One layer's compression into blocks (keep/block_writer.c). */
typedef struct pleat__block_scratch {
    pleat__block_codes codes;
    pleat__code_counts *counts; /* [2] of keys, of values */
    float *k_tile;              /* [head_dim][16] */
    float *v_tile;              /* [16][head_dim] */
    float *k, *v;               /* [block tokens][head_dim] */
    uint8_t *payload;           /* pleat__block_bound() */
    void *rd;                   /* pleat__rd_scratch_bytes(); NULL unless the format is rd's */
    pleat__page_id *pages;      /* [row_len] low pages made from high ones */
    pleat__page_id *left;       /* [row_len] high pages that are left over */
} pleat__block_scratch;
void pleat__cache_carve_blocks(const pleat_cache *cache, const pleat__block_format *format,
                               pleat__block_scratch *scratch, pleat__arena *arena);

#endif
