/* SPDX-License-Identifier: MIT
 *
 * internal.h: what a cache is made of, shared by the files of src/cache/.
 *
 *     spec*.c    the KV spec: text to struct and back
 *     layouts.c  what pages look like; the cache on a GPU asks too
 *     create.c   options to sizes, sizes to memory; create and destroy
 *     cache.c    sequences: open, close, lengths
 *     step.c     begin (plan, commit), end, cancel: takes pages and, with close, returns them
 *     share.c    fork; the copies that begin makes of shared pages; sealing
 *     image.c    save and restore
 *     compress.c higher thresholds for one sequence
 *     compact.c  what leankv and topk decide at the end of a step, done to one lane's tokens and cells
 *     evict.c    what a policy with a budget decides, and what reclaim makes of the slots that are left
 *     ring.c     layers with a sliding window
 *     blocks.c   cold tokens in compressed blocks: making them at the end of a step, reading them
 *     attend.c   the calls of one layer; prompt.c and decode.c its units: read tables, write page bytes
 *     inspect.c  usage, tokens, exported vectors, validity
 *
 *     idle ──begin──> in step ──attend, store──> in step ──end──> idle       lengths grow at end
 *       <──────────────cancel─────────────┘                                  pages go back
 *
 * In a step the tables already hold the new tokens' pages while table.n_slots and seq.n_tokens are still those before.
 * A prompt chunk's tokens take the slots after the high side's last; a single token takes the lane's hole if there is
 * one.
 *
 * Work of a step's layer is cut into units by the lengths of sequences and their lanes alone, so that neither the
 * thread count nor the neighbours change a result:
 *
 *     prompt item   (head, block of query positions), after all its heads are staged
 *                   (head, range of slots) for the attention that these received, after that
 *     single token  (head, split of the lane's slots); whoever finishes a lane last merges its splits in order
 */
#ifndef PLEAT_CACHE_INTERNAL_H
#define PLEAT_CACHE_INTERNAL_H

#include <stdatomic.h>

#include "attn/attn.h"
#include "attn/blocks.h"
#include "codec/loader.h"
#include "page/plan.h"
#include "pleat/cache.h"
#include "policy/evict.h"
#include "policy/policy.h"
#include "policy/scan.h"
#include "reclaim/reclaim.h"

/* Slots in a range of attention received: four blocks of the kernel, so that queries are made ready for enough work. */
#define PLEAT__GIVEN_SLOTS 256u

/* What the end of a step does to the lanes of an item's sequence. */
typedef enum pleat__compaction {
    PLEAT__COMPACT_NOT,    /* no policy, no token left the window, or more of the prompt follows */
    PLEAT__COMPACT_STEP,   /* one token left the window */
    PLEAT__COMPACT_PROMPT, /* several did */
} pleat__compaction;

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
    uint64_t n_returned;      /* pages, at the ends of steps */
    _Atomic uint64_t n_moved; /* tokens, to other slots */
    uint64_t step_id;         /* the last step that named it; tells a sequence that stands twice in one */
    pleat__table table;
    pleat__block_books *books; /* [n_layers] of a cache with blocks: made with the first of them */
    uint32_t *block_ends;      /* [n_lanes][blocks_cap] as in pleat__block_run */
    uint32_t blocks_cap;
    void *block; /* the memory of these */
    uint64_t block_bytes;
} pleat__sequence;

/* One sequence's share of the step, or of a read (then n_new is 0). */
typedef struct pleat__step_item {
    pleat__sequence *seq;
    uint32_t n_before; /* tokens stored before the step */
    uint32_t n_new;    /* tokens of this step */
    pleat__compaction compaction;
    uint32_t seal;            /* PLEAT_ITEM_SEAL or _SEAL_ALL; 0: neither */
    uint32_t n_classed_after; /* seq->n_classed when the step has ended */
    uint32_t n_prompt_after;  /* seq->n_prompt likewise */
    uint32_t budget;          /* eviction: tokens that a lane may keep */
    uint32_t n_fresh;         /* pages that each lane takes for what is copied (reclaim=copy) */
    uint32_t row;             /* its first row in q, k, v and out */
    uint32_t stage_tile;      /* prompt items: tiles of each head before its own in the staging buffer */
    uint32_t n_cuts;          /* blocks or splits per head */
    uint32_t first_unit;      /* units of the items before */
    uint32_t first_given;     /* prompt items: ranges of attention received of the items before */
} pleat__step_item;

struct pleat_cache {
    pleat_allocator al;
    pleat_cache_options opt; /* as given, max_items resolved */
    uint32_t n_group;        /* query heads per KV head */
    float scale;
    uint32_t n_lanes; /* of a sequence: n_layers * n_kv_heads; lane = layer * n_kv_heads + head */

    uint32_t *windows;    /* [n_layers] 0: the layer's lanes are no rings; NULL: none are */
    uint32_t *most_slots; /* [n_lanes] high slots of a lane; NULL likewise */

    bool tracked;                  /* there is a policy: pages hold positions, and scores if it asks for them */
    const pleat__evictor *evictor; /* it evicts by budget; NULL: it does not */
    pleat__scoring scoring;        /* what attention is counted */
    uint32_t byte_tokens;          /* what a budget in bytes comes to */
    bool two_sided;                /* there is a low side of tokens */
    bool has_blocks;               /* cold tokens become blocks: the low side's slots are PLEAT__BLOCK_ALIGN bytes */
    pleat__block_format blocks;    /* how, then */
    bool has_books;                /* and their codes have codebooks */
    pleat__page_layout layouts[2]; /* [pleat__side]; without a low side both are the high side's */
    uint32_t page_tokens[2];       /* slots of a page of each */
    uint64_t page_bytes;
    uint8_t *pages; /* [pool.n_pages][page_bytes] */
    pleat__pool pool;
    pleat__sequence *seqs; /* [max_seqs] */
    uint32_t n_open;
    uint32_t first_closed; /* every place before it is open */

    pleat__quant_dsp quant;
    pleat__attn_dsp attn;
    pleat__scan_dsp scan;
    pleat__codec_dsp codec;

    /* The step. */
    bool in_step;
    uint64_t step_id;
    uint32_t n_items;
    uint32_t n_units;
    uint32_t n_given_units;
    uint32_t n_rows;
    uint32_t n_prompt_items;
    uint8_t *stored;         /* [n_layers] 1: the step's tokens have been stored in this layer */
    pleat__step_item *items; /* [max_items] */
    uint32_t *prompt_items;  /* [max_items] indices of items with n_new > 1 */
    pleat__plan plan;

    /* Workspace. */
    pleat__page_layout stage_layout; /* f32, one tile a page */
    uint8_t *stage;                  /* prompt chunks of one layer: for each item, head by head */
    pleat__page_id *stage_ids;       /* 0, 1, 2, ... */
    float *lse2;                     /* tracked: [step_tokens][n_q_heads] of a layer's prompt chunks */
    float *q_kept;                   /* tracked: [step_tokens][n_q_heads][head_dim], for when out is q */
    uint8_t *worker_scratch;         /* [workers][worker_scratch_bytes] */
    uint64_t worker_scratch_bytes;
    uint8_t *partials; /* accumulators of split lanes: [max_items][n_kv_heads][splits_cap][acc_bytes] */
    uint64_t acc_bytes;
    uint32_t splits_cap;
    _Atomic uint32_t *pending; /* [max_items][n_kv_heads] splits that are not done */
    uint64_t logits_cap;       /* tracked: slots of the longest lane, tiles filled up */
    float *logits; /* tracked, if lanes can be split or long: [max_items][n_kv_heads][n_group][logits_cap]; its own
                                * allocation, never cleared, so that only what long lanes use becomes resident */
    uint64_t logits_bytes;

    pleat_cache_times times;
    uint64_t n_returned, n_moved; /* of all sequences since create */

    void *block; /* all of the above but the pages */
    uint64_t block_bytes;
    uint64_t pages_bytes;
};

/* One call's arguments, handed to the units. */
typedef struct pleat__layer_job {
    pleat_cache *cache;
    uint32_t layer;
    const float *q;
    const float *k; /* NULL in a read */
    const float *v;
    float *out;
    float *lse; /* natural logarithm; NULL but in some reads */
} pleat__layer_job;

/* ---- create.c */

/* Everything that follows from the options without memory. */
pleat_status pleat__cache_derive(pleat_cache *cache, const pleat_cache_options *opt, pleat_error *err);

/* Lay out the arrays of a sequence of max_tokens; returns their bytes. */
uint64_t pleat__cache_carve_seq(const pleat_cache *cache, uint32_t max_tokens, pleat__sequence *seq,
                                pleat__arena *arena);

/* Scratch of one lane's compaction, or of a layer's eviction: the most slots that a high side can have decide. */
typedef struct pleat__compact_scratch {
    pleat__page_id *pages; /* [row_len] low pages made from high ones; a row's pages in their new order */
    float *floats;         /* [slots]; in generation under eviction PLEAT__SCAN_BLOCK */
    /* Levels: */
    uint8_t *levels; /* [slots] pleat_level */
    float *k_tile;   /* [head_dim][16] */
    float *v_tile;   /* [16][head_dim] */
    float *k;        /* [head_dim] */
    /* Eviction: */
    pleat__evict_scratch evict;
    pleat__kv_view *views; /* [n_kv_heads] */
    uint8_t **verdicts;    /* [n_kv_heads][slots] */
    pleat__reclaim_plan reclaim;
    uint64_t n_moved; /* tokens, by who holds the scratch */
} pleat__compact_scratch;
void pleat__cache_carve_compact(const pleat_cache *cache, pleat__compact_scratch *scratch, pleat__arena *arena);

/* ---- cache.c */

/* Open an empty sequence of at most max_tokens tokens, which are in range. */
pleat_status pleat__cache_open_seq(pleat_cache *cache, uint32_t max_tokens, pleat__sequence **out);
pleat_seq pleat__cache_handle(const pleat_cache *cache, const pleat__sequence *seq);

/* The open sequence that a handle names, or NULL. */
pleat__sequence *pleat__cache_seq(const pleat_cache *cache, pleat_seq seq);
void pleat__cache_release_seq(pleat_cache *cache, pleat__sequence *seq);

/* ---- step.c */

/* Number the units of items[0..n_items) and count them. */
void pleat__cache_number_units(pleat_cache *cache);

/* What every lane of the item's table wants in this step. */
pleat__want pleat__cache_want(const pleat_cache *cache, const pleat__step_item *item);

/* What a step with this item would do, without beginning it.  PLEAT_E_ARG, PLEAT_E_LIMIT. */
pleat_status pleat__cache_read_item(const pleat_cache *cache, const pleat_cache_item *in, pleat__step_item *out);

/* Pages that all lanes of the item's table need in this step. */
uint64_t pleat__cache_need(const pleat_cache *cache, const pleat__step_item *item);

/* ---- ring.c */

/* Slots of a lane's ring, 0 if it is none. */
static inline uint32_t pleat__cache_ring(const pleat_cache *c, uint32_t lane) {
    return c->windows ? c->windows[lane / c->opt.n_kv_heads] : 0;
}

/* Whether the options ask for rings, and how many tokens of n a layer keeps. */
bool pleat__cache_wants_rings(const pleat_cache_options *opt);
uint32_t pleat__cache_kept_tokens(const pleat_cache_options *opt, uint32_t layer, uint32_t n_tokens);

/* The step's tokens have been counted: full rings have their oldest token's slot as their hole. */
void pleat__cache_turn_rings(const pleat_cache *cache, pleat__sequence *seq);

/* The step is cancelled: has it written over tokens that the item's sequence had in sight? */
bool pleat__cache_ring_is_torn(const pleat_cache *cache, const pleat__step_item *item);

/* Store a chunk's tokens of one head one by one and, if job->q is not NULL, attend with each. */
void pleat__cache_ring_unit(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head, uint32_t worker);

/* ---- share.c */

/* The first page of a lane's side that a step may write: those before it are full, and sealed where tokens are
 * scored. */
uint32_t pleat__cache_first_written(const pleat_cache *cache, const pleat__table *table, uint32_t lane,
                                    pleat__side side);

/* Pages of the item's sequence that its step may write and others hold. */
uint64_t pleat__cache_count_copies(const pleat_cache *cache, const pleat__step_item *item);

/* The same for all items of the step together: of a page that k of them hold, and others or not, the last keeps it. */
uint64_t pleat__cache_count_step_copies(pleat_cache *cache);

/* Give the sequence pages of its own in place of these; as many as were counted are free. */
void pleat__cache_make_copies(pleat_cache *cache, const pleat__step_item *item);

/* Seal full pages whose tokens all stand before position n_final.  Changes the pages' scores from sums to means. */
void pleat__cache_seal(const pleat_cache *cache, pleat__sequence *seq, uint32_t n_final);

/* Open the lane's sealed pages again, back to the last shared one: scores are sums again. */
void pleat__cache_unseal_lane(const pleat_cache *cache, pleat__sequence *seq, uint32_t lane);

/* ---- compact.c */

/* One token left the window of every lane: what the policy does to this one.  Looks at the lane and asks for the bytes
 * that doing it will touch, so that those of several lanes arrive together. */
pleat__policy_step pleat__cache_decide_lane(const pleat_cache *cache, const pleat__step_item *item, uint32_t lane);

/* Do it. */
void pleat__cache_step_lane(const pleat_cache *cache, const pleat__step_item *item, uint32_t lane,
                            const pleat__policy_step *step, const pleat__compact_scratch *scratch);

/* Do what the policy says at the end of a prompt to one lane, whose slots count the step's tokens already.  Moves no
 * page to or from the pool: pages that no slot needs any more are left to pleat__table_trim(). */
void pleat__cache_compact_lane(const pleat_cache *cache, const pleat__step_item *item, uint32_t lane,
                               const pleat__compact_scratch *scratch);

/* ---- blocks.c */

/* Tokens that become blocks when n_after tokens are stored, of which the first n_before are in blocks. */
uint32_t pleat__cache_count_blocked(const pleat_cache *cache, uint32_t n_before, uint32_t n_after);

/* Scratch of one layer's compression. */
typedef struct pleat__block_scratch {
    pleat__block_codes codes;
    pleat__code_counts *counts; /* [2] of keys, of values */
    float *k_tile, *v_tile;     /* as pleat__compact_scratch */
    float *k, *v;               /* [block tokens][head_dim] */
    uint8_t *payload;           /* pleat__block_bound() */
    pleat__page_id *pages;      /* [row_len] low pages made from high ones */
    pleat__page_id *left;       /* [row_len] high pages that are left over */
} pleat__block_scratch;
void pleat__cache_carve_blocks(const pleat_cache *cache, pleat__block_scratch *scratch, pleat__arena *arena);

/* Compress the item's tokens that are due in all lanes of a layer, whose slots count the step's tokens already.  Takes
 * no page from the pool, and gives none back: payloads go into the f16 pages that they empty, and what is left of
 * those to pleat__table_trim(). */
void pleat__cache_compress_layer(const pleat_cache *cache, const pleat__step_item *item, uint32_t layer,
                                 pleat__block_scratch *scratch);

/* The blocks of a lane. */
pleat__block_run pleat__cache_block_run(const pleat_cache *cache, const pleat__sequence *seq, uint32_t lane);

/* Give `to` the blocks that `from` has, but for their pages: to->blocks_cap is enough. */
void pleat__cache_share_blocks(const pleat_cache *cache, const pleat__sequence *from, pleat__sequence *to);

/* Every block of the lane opens and is undamaged, and the blocks take the low side's slots. */
bool pleat__cache_blocks_are_valid(const pleat_cache *cache, const pleat__sequence *seq, uint32_t lane, uint8_t *copy);

/* ---- evict.c */

/* The most tokens that a lane may keep when a prompt of n_prompt tokens has ended, sealed ones apart: policies with
 * budgets of their own for lanes give some more than the budget. */
uint32_t pleat__cache_most_budget(const pleat_cache *cache, uint32_t n_prompt);

/* What the budget of the item's sequence is after the step, and the fresh pages that copying may need. */
void pleat__cache_plan_eviction(const pleat_cache *cache, pleat__step_item *item);

/* Tokens of a lane that a sequence of budget_bytes bytes has room for, whatever it does; 0: for none.  And back: bytes
 * that so many tokens need. */
uint32_t pleat__cache_byte_tokens(const pleat_cache *cache, double budget_bytes);
double pleat__cache_bytes_of_budget(const pleat_cache *cache, uint32_t n_tokens);

/* A lane's slots behind its sealed pages, of one side. */
pleat__kv_run pleat__cache_open_run(const pleat_cache *cache, const pleat__table *table, uint32_t lane,
                                    pleat__side side);

/* Drop what the policy drops of one layer at the end of a prompt, or of one lane when one token has left the window. */
void pleat__cache_evict_layer(const pleat_cache *cache, const pleat__step_item *item, uint32_t layer,
                              pleat__compact_scratch *scratch);
void pleat__cache_evict_lane(const pleat_cache *cache, const pleat__step_item *item, uint32_t lane,
                             pleat__compact_scratch *scratch);

/* ---- compact.c */

/* Class the lane's open tokens again by seq->spec, low ones too.  There are two low pages to spare in its row. */
void pleat__cache_compress_lane(const pleat_cache *cache, pleat__sequence *seq, uint32_t lane,
                                const pleat__compact_scratch *scratch);

/* ---- attend.c, prompt.c, decode.c */

static inline uint32_t pleat__cache_lane_of(const pleat_cache *c, uint32_t layer, uint32_t head) {
    return layer * c->opt.n_kv_heads + head;
}

static inline uint8_t *pleat__cache_scratch(const pleat_cache *c, uint32_t worker) {
    return c->worker_scratch + worker * c->worker_scratch_bytes;
}

/* Index of a row's head in q, out and (without head_dim) lse. */
static inline size_t pleat__cache_head_at(const pleat_cache *c, uint32_t row, uint32_t kv_head) {
    return (size_t)row * c->opt.n_q_heads + (size_t)kv_head * c->n_group;
}

/* The first n_slots of a lane's side. */
pleat__kv_run pleat__cache_run(const pleat_cache *cache, const pleat__table *table, uint32_t lane, pleat__side side,
                               uint32_t n_slots);

/* Store the item's new tokens of one head in its lane. */
void pleat__cache_store_item(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head);

/* Write n tokens of one head into consecutive slots of a run. */
void pleat__cache_store_run(const pleat_cache *cache, const pleat__kv_run *run, uint32_t slot, uint32_t n,
                            const float *k, const float *v);

/* Query positions in a block of a prompt, and ranges of attention received that an item's lane has at most. */
uint32_t pleat__cache_block_queries(const pleat_cache *cache);
uint32_t pleat__cache_n_given(const pleat__step_item *item);

void pleat__cache_prompt_store_unit(void *job, uint32_t unit, uint32_t worker);
void pleat__cache_prompt_unit(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head, uint32_t block,
                              uint32_t worker);
/* Bytes of a worker's scratch that these take. */
uint64_t pleat__cache_prompt_scratch_bytes(const pleat_cache *cache);

void pleat__cache_given_unit(void *job, uint32_t unit, uint32_t worker);

/* The most splits of any lane that holds n_tokens. */
uint32_t pleat__cache_most_splits(const pleat_cache *cache, uint32_t n_tokens);

/* Slots of the longest line whose logits fit a worker's scratch. */
#define PLEAT__SCRATCH_LINE_SLOTS 1024u

/* Bytes of a worker's scratch that decode takes. */
uint64_t pleat__cache_decode_scratch_bytes(const pleat_cache *cache);

/* Set the counters of the layer's lanes before their units run. */
void pleat__cache_decode_begin(const pleat__layer_job *job);
void pleat__cache_decode_unit(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head, uint32_t split,
                              uint32_t worker);

#endif
