/* SPDX-License-Identifier: MIT
 *
 * internal.h: what a cache is made of, shared by the files of src/cache/.
 *
 *     cache.c    life: create, open, close, usage, validity
 *     step.c     begin (plan, commit), end, cancel: the only code that changes tables and the pool
 *     attend.c   store and attention of one layer: reads tables, writes page bytes
 *
 *     idle ──begin──> in step ──attend, store──> in step ──end──> idle       lengths grow at end
 *       <──────────────cancel─────────────┘                                  pages go back
 *
 * In a step the tables already hold the new tokens' pages while lane.n_slots and seq.n_tokens are still those before.
 *
 * Work of a step's layer is cut into units by the sequences' own lengths alone, so that neither the thread count nor
 * the neighbours change a result:
 *
 *     prompt item   (head, block of query positions), after all its heads are staged
 *     single token  (head, split of the lane's slots); whoever finishes a lane last merges its splits in order
 */
#ifndef PLEAT_CACHE_INTERNAL_H
#define PLEAT_CACHE_INTERNAL_H

#include <stdatomic.h>

#include "attn/attn.h"
#include "page/plan.h"
#include "pleat/cache.h"

/* A lane of n slots is cut into ceil(n / SPLIT_TOKENS) splits of whole pages, at most MAX_SPLITS.  A split costs one
 * more query preparation and merge (below 1 % at 1024 tokens); 16 of them feed 16 threads from a single lane. */
#define PLEAT__SPLIT_TOKENS 1024u
#define PLEAT__MAX_SPLITS 16u

typedef struct pleat__sequence {
    bool open;
    uint32_t generation; /* raised by close, so that an old handle is not taken for a new sequence */
    uint32_t n_tokens;
    uint32_t max_tokens;
    uint64_t n_pages_peak;
    uint64_t step_id; /* the last step that named it; tells a sequence that stands twice in one */
    pleat__table table;
    void *block; /* the table's memory */
    uint64_t block_bytes;
} pleat__sequence;

/* One sequence's share of the step, or of a read (then n_new is 0). */
typedef struct pleat__step_item {
    pleat__sequence *seq;
    uint32_t n_before;   /* tokens stored before the step */
    uint32_t n_new;      /* tokens of this step */
    uint32_t row;        /* its first row in q, k, v and out */
    uint32_t stage_tile; /* prompt items: tiles of each head before its own in the staging buffer */
    uint32_t n_cuts;     /* blocks or splits per head */
    uint32_t first_unit; /* units of the items before */
} pleat__step_item;

struct pleat_cache {
    pleat_allocator al;
    pleat_cache_options opt; /* as given */
    uint32_t n_group;        /* query heads per KV head */
    float scale;
    uint32_t n_lanes; /* of a sequence: n_layers * n_kv_heads; lane = layer * n_kv_heads + head */

    pleat__page_layout layout;
    uint64_t page_bytes;
    uint8_t *pages; /* [pool.n_pages][page_bytes] */
    pleat__pool pool;
    pleat__sequence *seqs; /* [max_seqs] */
    uint32_t n_open;

    pleat__quant_dsp quant;
    pleat__attn_dsp attn;

    /* The step. */
    bool in_step;
    uint64_t step_id;
    uint32_t n_items;
    uint32_t n_units;
    uint32_t n_rows;
    uint32_t n_prompt_items;
    uint8_t *stored;         /* [n_layers] 1: the step's tokens have been stored in this layer */
    pleat__step_item *items; /* [max_seqs] */
    uint32_t *prompt_items;  /* [max_seqs] indices of items with n_new > 1 */
    pleat__plan plan;

    /* Workspace. */
    pleat__page_layout stage_layout; /* f32, one tile a page */
    uint8_t *stage;                  /* prompt chunks of one layer: for each item, head by head */
    pleat__page_id *stage_ids;       /* 0, 1, 2, ... */
    uint8_t *worker_scratch;         /* [workers][worker_scratch_bytes] */
    uint64_t worker_scratch_bytes;
    uint8_t *partials; /* accumulators of split lanes: [max_seqs][n_kv_heads][splits_cap][acc_bytes] */
    uint64_t acc_bytes;
    uint32_t splits_cap;
    _Atomic uint32_t *pending; /* [max_seqs][n_kv_heads] splits that are not done */

    void *block; /* all of the above but the pages */
    uint64_t block_bytes;
    uint64_t pages_bytes;
};

/* The open sequence that a handle names, or NULL. */
pleat__sequence *pleat__cache_seq(const pleat_cache *cache, pleat_seq seq);

/* Query positions in a block of a prompt. */
uint32_t pleat__cache_block_queries(const pleat_cache *cache);

/* Splits of a lane of n_slots, and slots of each but the last. */
uint32_t pleat__cache_n_splits(uint32_t n_slots);
uint32_t pleat__cache_split_slots(const pleat_cache *cache, uint32_t n_slots);

/* Number the units of items[0..n_items) and count them. */
void pleat__cache_number_units(pleat_cache *cache);

#endif
