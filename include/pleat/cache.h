/* SPDX-License-Identifier: MIT
 *
 * cache.h: a paged, compressed KV cache that computes attention on its own pages.
 *
 *     pleat_cache_create
 *         pleat_cache_open(max_tokens)                     a sequence: one request's tokens
 *             pleat_cache_begin({seq, n_tokens}, ...)      plan + commit: pages for the new tokens
 *                 pleat_cache_attend(layer 0, q, k, v)     store the new tokens, attend to all
 *                 ...                                      once for each layer, in any order
 *             pleat_cache_end                              the new tokens count from now on
 *         pleat_cache_close
 *     pleat_cache_destroy
 *
 *     pleat_cache_fork                                     a second sequence with the same tokens, on the same pages
 *     pleat_cache_save, _restore                           a sequence to the host's memory and back: preemption by swap
 *     pleat_cache_compress                                 keep less of a sequence, now
 *
 * A step serves any mix of prompt chunks (n_tokens > 1) and single tokens (n_tokens == 1).  The new tokens of a chunk
 * see each other exactly, as handed in, and earlier tokens as stored.  A single token is stored first and read back like
 * every other.  Keys come with their positions already applied (RoPE).
 *
 * With a policy (spec.h) the cache keeps the attention that each token received.  When a step ends, tokens that left the
 * window are kept high, kept low or dropped, and pages that become empty are returned to the pool.  A prompt that is
 * read in several steps is classed when its last part ends: PLEAT_ITEM_MORE marks the parts before.
 *
 * A layer with a sliding window keeps no more tokens than its queries see: its lanes are rings, in which the newest
 * token takes the oldest one's slot.  A chunk's queries see of both, the ring and the chunk, what their windows hold;
 * then the chunk's newest tokens take their slots.  Rings hold the spec's high format.  What the spec says beyond that is
 * for the full layers, those without a window, and these keep what they would in a cache of their own.
 *
 * Sequences can share pages.  A page with more than one holder is never written: begin copies it first for the sequence
 * that has to write it.  Without a policy only the page behind the last token is ever written.  With one every step
 * writes, since tokens' scores stand in their pages, and a sequence is sealed where others shall share it
 * (PLEAT_ITEM_SEAL).  From then on the full pages of the tokens that are classed stay as they are, levels and scores
 * too; only what comes after them is scored, demoted and dropped.  A sealed prefix depends on its own tokens alone, so
 * continuing it gives the bits that computing it would have given.
 *
 * Policies that evict seal nothing: a lane keeps its budget whatever it began from.  Whoever goes on from a shared
 * prefix copies its pages in the first step, a budget's worth of each lane, and may drop any token of them; the prefix
 * keeps its own.
 *
 * A sequence's output depends on its own tokens and on how they were cut into steps, bit for bit.  It depends neither on
 * the thread count nor on what else shares a step.  Under a policy, steps that were cancelled count as well
 * (pleat_cache_cancel).
 *
 * Threads: a cache is driven from one thread; inside, it uses the workers that it was given.
 * Functions that allocate: create, open, fork, restore, is_valid, begin where it makes room for a sequence's codebooks
 * (kvcomp), block_hash, get_drift and, of tokens in blocks, export; no other does.
 */
#ifndef PLEAT_CACHE_H
#define PLEAT_CACHE_H

#include "pleat/spec.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pleat_cache pleat_cache;

/* A sequence in a cache.  0 is never a sequence.  A handle means nothing to another cache; after close it is refused
 * until its place has been opened again 32,767 times. */
typedef struct pleat_seq {
    uint32_t v;
} pleat_seq;

/* How RoPE turned a layer's keys: what undoing it takes. */
typedef struct pleat_rope {
    uint32_t n_dims;           /* dimensions of a head that turn: the first ones; even, 2..head_dim */
    int is_halves;             /* 1: pairs are (i, i + n_dims/2); 0: (2i, 2i + 1) */
    float magnitude;           /* turned dimensions are multiplied by it (YaRN, longrope): 2^-16..65536; else 1 */
    const double *frequencies; /* [n_dims/2] radians a position of each pair; finite, below 2^16 in magnitude */
} pleat_rope;

typedef struct pleat_cache_options {
    size_t size_bytes;       /* sizeof(pleat_cache_options); set by pleat_cache_options_default */
    pleat_spec spec;         /* default f16; pleat_cache_least_tokens() of it is at most max_tokens */
    uint32_t n_layers;       /* 1..1024 */
    uint32_t n_kv_heads;     /* 1..1024 */
    uint32_t n_q_heads;      /* a multiple of n_kv_heads; at most 64 query heads for each KV head */
    uint32_t head_dim;       /* a multiple of 16 in 16..512 */
    float softmax_scale;     /* factor on q.k, up to 65536; 0 means 1/sqrt(head_dim) */
    float logit_cap;         /* c in 2^-16..65536: logits x = softmax_scale q.k become c tanh(x/c) before the softmax,
                              * as Gemma 2 has it (c = 50); 0, the default: they stay */
    uint32_t page_tokens;    /* tokens in a page of the high format, a multiple of 16 up to 4096; 0, the default: 32, 64
                             * where max_tokens is 8192 or more, or with two formats what wastes least of the low
                             * format's pages */
    uint32_t max_seqs;       /* sequences open at once, 1..65535; default 1 */
    uint32_t max_items;      /* sequences in one step or read, at most max_seqs; 0: max_seqs */
    uint32_t max_tokens;     /* most tokens of one sequence; 1..2^24 */
    uint32_t step_tokens;    /* most new tokens in one step, over all sequences, 1..2^24; default 512 */
    uint64_t pool_bytes;     /* bytes of pages; 0: room for max_seqs sequences of max_tokens */
    pleat_workers *workers;  /* NULL: the caller's thread alone; not owned; outlives the cache */
    const uint32_t *windows; /* [n_layers] newest tokens that a query of the layer sees, itself included; 0: all.
                              * NULL, the default: all in every layer.  Copied by create.  A policy or blocks need a
                              * layer without a window below max_tokens.  A layer with a window from there on
                              * keeps all, as the spec says, or as a window does where the spec takes statistics
                              * and these say nothing of the layer */
    /* [n_layers][n_q_heads] a logit of each head that no token has and whose value is 0: it takes its share of every
     * softmax, as GPT-OSS has it.  Finite, below 65536 in magnitude.  NULL, the default: none.  Copied by create */
    const float *sink_logits;
    /* [n_layers] how keys were turned, for policies that look at them unturned (novel); NULL for a layer whose keys are
     * not.  Layers with one pointer share a table.  NULL, the default: unknown, and create refuses such a policy.  Read
     * by create alone */
    const pleat_rope *const *ropes;
    const pleat_allocator *allocator;
    /* Statistics of the model (pleat/stats.h): rd and novel:mean=model are refused without.  Not owned; outlive the
     * cache.  NULL, the default: none */
    const struct pleat_stats *stats;
    struct pleat_collector *collector; /* sees what chunks of two tokens or more bring; not owned.  NULL: nobody does */
} pleat_cache_options;

/* Fill *opt with defaults.  n_layers, n_kv_heads, n_q_heads, head_dim and max_tokens are left 0 and must be set. */
PLEAT_API void pleat_cache_options_default(pleat_cache_options *opt);

/* The least max_tokens that a cache of this spec takes: it has room for what is always kept, and for a budget in
 * tokens. */
PLEAT_API uint32_t pleat_cache_least_tokens(const pleat_spec *spec);

/* Make a cache: all pages and workspace are allocated here.  err may be NULL. */
PLEAT_API pleat_status pleat_cache_create(const pleat_cache_options *opt, pleat_cache **out, pleat_error *err);

/* Open an empty sequence that will hold at most max_tokens (1..options.max_tokens) tokens.  Allocates
 * its page table; takes no page.  PLEAT_E_LIMIT when max_seqs are open already. */
PLEAT_API pleat_status pleat_cache_open(pleat_cache *cache, uint32_t max_tokens, pleat_seq *out);

/* Return all pages of the sequence and forget it.  PLEAT_E_STATE inside a step. */
PLEAT_API pleat_status pleat_cache_close(pleat_cache *cache, pleat_seq seq);

/* Open a sequence that holds what `seq` holds, on the same pages, for at most max_tokens (>= its length) tokens.  From
 * here on both go their own ways; each page that one of them writes is copied then.  Allocates a page table, and codebooks
 * where there are; takes no page.  PLEAT_E_LIMIT when max_seqs are open already, PLEAT_E_STATE inside a step. */
PLEAT_API pleat_status pleat_cache_fork(pleat_cache *cache, pleat_seq seq, uint32_t max_tokens, pleat_seq *out);

/* Tokens that have been stored in the sequence since it was opened; 0 for an unknown sequence. */
PLEAT_API uint32_t pleat_cache_length(const pleat_cache *cache, pleat_seq seq);

/* The most tokens that the sequence was opened for; 0 for an unknown sequence. */
PLEAT_API uint32_t pleat_cache_max_tokens(const pleat_cache *cache, pleat_seq seq);

/* Sequences that are open. */
PLEAT_API uint32_t pleat_cache_n_open(const pleat_cache *cache);

/* Tokens in a page of the high format: options.page_tokens, or what was chosen for 0. */
PLEAT_API uint32_t pleat_cache_page_tokens(const pleat_cache *cache);

/* Flags of an item.  Where a policy evicts, SEAL and SEAL_ALL seal nothing: the prompt ends there, for now. */
#define PLEAT_ITEM_MORE 1u /* a part of a prompt that goes on in a later step: no token is classed or compressed yet */
#define PLEAT_ITEM_SEAL 2u /* when the step has ended, the full pages of classed tokens are sealed; not with MORE */
#define PLEAT_ITEM_SEAL_ALL 4u /* instead of SEAL: all full pages, those of the window too, whose tokens stay high */
/* kvzip alone: two tokens or more, as a request to repeat the prompt and its tokens again, read what is stored.  The most
 * that each stored token gets from one of them counts, and none of them is kept.  With MORE another such step follows;
 * without, tokens are dropped when it ends: kvzip drops some at no other time. */
#define PLEAT_ITEM_REPLAY 8u

/* One sequence's share of a step. */
typedef struct pleat_cache_item {
    pleat_seq seq;
    uint32_t n_tokens; /* new tokens, >= 1 */
    uint32_t flags;    /* PLEAT_ITEM_* */
} pleat_cache_item;

/* Pages that this item alone would take in a step that began now, copies of shared ones included.  UINT64_MAX for an
 * item that pleat_cache_begin() would refuse whatever the pool has, and inside a step. */
PLEAT_API uint64_t pleat_cache_pages_needed(const pleat_cache *cache, const pleat_cache_item *item);

/* Pages that a sequence holds, shared ones included, or for seq.v = 0 that are taken from the pool; 0 for an unknown
 * sequence.  O(1). */
PLEAT_API uint64_t pleat_cache_pages_held(const pleat_cache *cache, pleat_seq seq);

/* Pages that both sequences hold at the same places; 0 for an unknown one. */
PLEAT_API uint64_t pleat_cache_pages_shared(const pleat_cache *cache, pleat_seq a, pleat_seq b);

/* Begin a step: take the pages that the new tokens of all items need in every lane.  Each sequence may stand in one
 * item.  Returns PLEAT_AGAIN when the pool has too few free pages now.  Returns PLEAT_E_LIMIT when a sequence would
 * pass its max_tokens, the step its step_tokens, or when one sequence would need more pages than the pool has.  Returns
 * PLEAT_E_MEMORY when there is none for the codebooks of a sequence's first blocks (kvcomp).  In each case nothing has
 * changed. */
PLEAT_API pleat_status pleat_cache_begin(pleat_cache *cache, const pleat_cache_item *items, uint32_t n_items);

/* Store the new tokens' keys and values of one layer and attend to everything before and among them.
 * Rows are the items' new tokens in order, T of them in all.
 *   q    [T][n_q_heads][head_dim] f32      k, v   [T][n_kv_heads][head_dim] f32, positions applied
 *   out  [T][n_q_heads][head_dim] f32; may be q
 * 16-bit and quantised formats clamp values to the largest f16, 65504.  PLEAT_E_RANGE when a value is NaN or not below
 * 2^48 in magnitude: nothing was stored; the step goes on, or is cancelled.  PLEAT_E_STATE for a
 * layer that has been attended or stored in this step, under a policy, since its attention is counted once, and where a
 * chunk has taken its slots in a ring. */
PLEAT_API pleat_status pleat_cache_attend(pleat_cache *cache, uint32_t layer, const float *q, const float *k,
                                          const float *v, float *out);

/* Like pleat_cache_attend(), but only stores. */
PLEAT_API pleat_status pleat_cache_store(pleat_cache *cache, uint32_t layer, const float *k, const float *v);

/* End the step: its tokens count as stored, and each lane's policy decides.  PLEAT_E_STATE, and the step goes on,
 * while a layer has not been stored: its slots would hold what earlier sequences left in the pages. */
PLEAT_API pleat_status pleat_cache_end(pleat_cache *cache);

/* Give up the step: its pages are returned and the sequences are as before pleat_cache_begin(), but for two things.
 * With a policy, attention that layers of the step have computed stays counted in the tokens' scores.  Where a chunk
 * had begun to take the place of tokens in a full ring, its sequence is lost: PLEAT_E_STATE from begin, until
 * closed. */
PLEAT_API pleat_status pleat_cache_cancel(pleat_cache *cache);

/* Attend with one query position per sequence to all that is stored, and store nothing.  Outside a step.
 *   q, out  [n_seqs][n_q_heads][head_dim] f32     lse  [n_seqs][n_q_heads] natural log-sum-exp of the
 * scaled logits, sinks' included, or NULL.  A sequence may stand more than once.  n_seqs <= max_seqs; an empty sequence
 * is PLEAT_E_STATE; q as in pleat_cache_attend(), or PLEAT_E_RANGE. */
PLEAT_API pleat_status pleat_cache_read(pleat_cache *cache, uint32_t layer, const pleat_seq *seqs, uint32_t n_seqs,
                                        const float *q, float *out, float *lse);

/* Dequantise the stored tokens [first, first + n_tokens) of one lane into k and v, [n_tokens][head_dim] f32 each;
 * either may be NULL.  Rows of dropped tokens are zeros.  For inspection and tests: slow.  PLEAT_E_STATE inside a
 * step.  PLEAT_E_UNSUPPORTED for a low token of leankv with al = 0: nothing is dropped then, so low pages do not say
 * which of their tokens is which.  For tokens in blocks also PLEAT_E_MEMORY, and PLEAT_E_FORMAT for a damaged one. */
PLEAT_API pleat_status pleat_cache_export(const pleat_cache *cache, pleat_seq seq, uint32_t layer, uint32_t kv_head,
                                          uint32_t first, uint32_t n_tokens, float *k, float *v);

typedef struct pleat_cache_token {
    pleat_level level;
    /* Mean attention received from later tokens: of the group's heads the largest (leankv, topk) or the sum (eviction;
     * snapkv and its kind: from those that count alone).  Infinite for representatives.
     * novel: the score, 0 to 2.  0 for the newest token of other policies, where nothing is scored or has been yet, for
     * dropped tokens, and for low ones if al = 0. */
    float significance;
} pleat_cache_token;

/* How the tokens at positions [first, first + n_tokens) of one lane are kept.  For inspection and tests: slow.
 * PLEAT_E_STATE inside a step. */
PLEAT_API pleat_status pleat_cache_tokens(const pleat_cache *cache, pleat_seq seq, uint32_t layer, uint32_t kv_head,
                                          uint32_t first, uint32_t n_tokens, pleat_cache_token *out);

/* Blocks of each full layer's lane of a sequence, where cold tokens are in blocks (kvcomp, kivi, rd); else, and for an
 * unknown sequence, 0.  Block b holds as many positions as the spec's blocks, from the spec's sinks + b blocks on. */
PLEAT_API uint32_t pleat_cache_n_blocks(const pleat_cache *cache, pleat_seq seq);

/* Hash of what a block of a lane holds: XXH3 of 64 bits of its payload, which has in it what steps and codebooks it was
 * made with.  With rd these are the model's: equal keys and values at equal positions have equal hashes, in whatever
 * sequence, step and company they came, and in whatever cache of the spec and statistics.  With kvcomp they are the
 * sequence's: equal hashes are equal blocks, and equal tokens of two sequences need not have them.  For inspection: reads
 * the payload, allocates.  PLEAT_E_ARG where there is no such block, PLEAT_E_STATE inside a step, PLEAT_E_MEMORY. */
PLEAT_API pleat_status pleat_cache_block_hash(const pleat_cache *cache, pleat_seq seq, uint32_t layer, uint32_t kv_head,
                                              uint32_t block, uint64_t *out);

/* How far the text of blocks drifts from the statistics that rd's steps and codebooks are chosen by.  Sums over the lanes'
 * blocks; all 0 where steps and codebooks are not the model's. */
typedef struct pleat_cache_drift {
    uint64_t n_blocks;
    uint64_t n_own_keys;   /* whose keys' codes have classes of the block's own: the model's took more */
    uint64_t n_own_values; /* whose values' codes do */
    uint64_t
        n_coarser; /* whose keys have larger steps than the model's: with these they would have passed their room */
    uint64_t n_escapes; /* codes beyond their codebooks' */
    uint64_t bytes;     /* of payloads */
    uint64_t n_finer;   /* whose keys have smaller steps than the model's, since a budget has room for that */
} pleat_cache_drift;

/* Drift of one sequence, or of all when seq.v is 0.  Reads every block: slow.  PLEAT_E_ARG, PLEAT_E_STATE inside a step,
 * PLEAT_E_MEMORY. */
PLEAT_API pleat_status pleat_cache_get_drift(const pleat_cache *cache, pleat_seq seq, pleat_cache_drift *out);

/* What `auto` has chosen: rd's spec with its steps.  Other specs are themselves.  PLEAT_E_ARG. */
PLEAT_API pleat_status pleat_cache_get_choice(const pleat_cache *cache, pleat_spec *out);

/* ---- preemption ---------------------------------------------------------------------------------- */

/* Write what the sequence holds to an image, for caches with these options: in this process or, without a base, in
 * another of the same version (pleat/image.h makes files of them).  Equal sequences make equal images.  Pages that
 * `base` (0: none) holds at the same places are left out: an image is restored on the same base, or not at all.  The
 * sequence is not changed.  cap >= pleat_cache_image_bytes(), which is 0 for an unknown sequence or inside a step.
 * PLEAT_E_STATE inside a step, PLEAT_E_ARG. */
PLEAT_API uint64_t pleat_cache_image_bytes(const pleat_cache *cache, pleat_seq seq, pleat_seq base);
PLEAT_API pleat_status pleat_cache_save(const pleat_cache *cache, pleat_seq seq, pleat_seq base, void *image,
                                        uint64_t cap);

/* Pages that restoring would take; 0 for what is no image of n_bytes bytes. */
PLEAT_API uint64_t pleat_cache_image_pages(const pleat_cache *cache, const void *image, uint64_t n_bytes);

/* Is it an image, each byte of which is as it was written?  Then some cache restores it, be it not this one.  Reads them all. */
PLEAT_API int pleat_cache_image_is_whole(const void *image, uint64_t n_bytes);

/* Open a sequence from an image: it goes on as the saved one would have, bit for bit.  PLEAT_AGAIN when the pool has too
 * few free pages, PLEAT_E_LIMIT when max_seqs are open, PLEAT_E_FORMAT for an image that is damaged, of another cache's
 * shape, or that leaves out what base does not hold; nothing has changed then.  PLEAT_E_STATE inside a step. */
PLEAT_API pleat_status pleat_cache_restore(pleat_cache *cache, const void *image, uint64_t n_bytes, pleat_seq base,
                                           pleat_seq *out);

/* Like pleat_cache_restore(), but the sequence is opened for max_tokens tokens, whatever the saved one was for.
 * PLEAT_E_ARG unless max_tokens is at least its length and at most the cache's. */
PLEAT_API pleat_status pleat_cache_restore_for(pleat_cache *cache, const void *image, uint64_t n_bytes, pleat_seq base,
                                               uint32_t max_tokens, pleat_seq *out);

/* Raise the sequence's thresholds (leankv; ah and al at least those in force, al <= ah; al as in the spec where that is
 * 0) for good, and class all of its tokens outside the window again by them, now.  Sealed pages are opened for this
 * where nobody shares them.  A lane that shares some is left alone from its last shared page back.  So is one whose
 * turn finds fewer than two free pages (a lane can take a page more where its first token becomes low).  Outside a
 * step.  PLEAT_AGAIN when the pool has not two free pages to work with (and one for each shared page that it would
 * write); PLEAT_E_UNSUPPORTED for specs without a low side. */
PLEAT_API pleat_status pleat_cache_compress(pleat_cache *cache, pleat_seq seq, float ah, float al);

/* What a cache or a sequence holds.  Token counts are summed over lanes. */
typedef struct pleat_cache_usage {
    uint64_t bytes;       /* everything held: whole pages, tables, lane records, codebooks and ends of blocks */
    uint64_t bytes_pages; /* pages alone, their unused slots included */
    uint64_t bytes_f16;   /* what f16 would hold for as many tokens: 4*head_dim per token and lane */
    uint64_t pages_used;
    uint64_t pages_own;   /* pages held once: what closing the sequence would free */
    uint64_t pages_peak;  /* most pages used at once since create or open */
    uint64_t pages_total; /* of the pool */
    uint64_t tokens_high;
    uint64_t tokens_low;
    uint64_t tokens_dropped;
    uint64_t slots;          /* of all pages held, and tokens in blocks: 1 - (tokens_high + tokens_low) / slots is the
                              * fragmentation.  Pages that sequences share count in each */
    uint64_t tokens_moved;   /* to other slots at the ends of steps since open or create, by eviction policies */
    uint64_t pages_returned; /* at the ends of steps since open or create, those taken to work with included */
} pleat_cache_usage;

/* Usage of one sequence, or of the whole cache when seq.v is 0. */
PLEAT_API pleat_status pleat_cache_get_usage(const pleat_cache *cache, pleat_seq seq, pleat_cache_usage *out);

/* A sequence's pages and slots by side, summed over its lanes.  Where cold tokens are in blocks, slots are counted in
 * units of a payload's bytes on both sides. */
typedef struct pleat_cache_sides {
    uint64_t high_pages;
    uint64_t low_pages;
    uint64_t live_slots; /* with a token */
    uint64_t held_slots; /* of all pages held */
} pleat_cache_sides;

/* PLEAT_E_ARG for an unknown sequence.  O(lanes). */
PLEAT_API pleat_status pleat_cache_get_sides(const pleat_cache *cache, pleat_seq seq, pleat_cache_sides *out);

/* Where the time of steps went, since create, and what it was spent on.  [0]: steps with an item of two or more tokens;
 * [1]: all others. */
typedef struct pleat_cache_times {
    uint64_t n_steps[2];
    uint64_t pages_ns[2];   /* plan, prefix sum and commit of pages in begin, and their return in end */
    uint64_t compact_ns[2]; /* policy, and moving and requantising tokens */
    uint64_t tokens_moved;  /* to other slots */
    uint64_t pages_returned;
} pleat_cache_times;
PLEAT_API void pleat_cache_get_times(const pleat_cache *cache, pleat_cache_times *out);

/* ---- how lanes keep their tokens ------------------------------------------------------------------- */

/* What an engine, a scheduler or a planner has to know of how a cache keeps its tokens.  All of it follows from the
 * options, and none of it changes. */
typedef struct pleat_cache_traits {
    size_t size_bytes; /* sizeof(pleat_cache_traits); set by the caller */

    uint64_t n_pages; /* pages of the pool; 0 where there is no cache */
    uint64_t page_bytes;
    uint32_t high_page_tokens; /* tokens of a page of the high format */
    uint32_t low_page_tokens;  /* tokens of a page of the low format, or again of the high one; 0: cold tokens are in
                                * blocks */
    uint32_t n_lanes;          /* lanes of a sequence */
    uint32_t n_ring_lanes;     /* of n_lanes, those of layers with a sliding window; all that follows of lanes is about
                                * the others */
    uint32_t ring_slots;       /* the most slots of a lane with a window; 0: there are none */
    uint32_t spare_pages;      /* pages that a lane may take in a step beyond those of its tokens in the high format */
    uint32_t window;           /* newest tokens of a lane that the policy spares */
    uint32_t unshared_tokens;  /* newest tokens of a fork, of a sealed sequence where there is a policy, whose pages do
                                * not stay shared; UINT32_MAX: all */

    /* 1 or 0. */
    uint32_t has_policy;   /* ends of steps change lanes; what a cancelled step has counted stays counted */
    uint32_t is_packed;    /* lanes under a budget hold no dead slots but one, which the next token takes */
    uint32_t is_bounded;   /* a packed lane that holds its budget loses a token for each that comes */
    uint32_t takes_fresh;  /* a step in which lanes lose tokens takes pages for all that stays, until it ends */
    uint32_t shares_late;  /* what a fork shares may still be copied after its first step */
    uint32_t can_compress; /* pleat_cache_compress() has a low side to move tokens to */
} pleat_cache_traits;

/* The cache's traits.  PLEAT_E_ARG unless out->size_bytes is sizeof(pleat_cache_traits). */
PLEAT_API pleat_status pleat_cache_get_traits(const pleat_cache *cache, pleat_cache_traits *out);

/* The traits of a cache that pleat_cache_create() would make, whatever its pool: n_pages is 0.  PLEAT_E_ARG for options
 * that create would refuse with any pool; err may be NULL. */
PLEAT_API pleat_status pleat_cache_traits_for(const pleat_cache_options *opt, pleat_cache_traits *out,
                                              pleat_error *err);

/* The most tokens that a budget leaves a lane when a prompt of n_prompt tokens has been read; UINT32_MAX: the spec has
 * no budget. */
PLEAT_API uint32_t pleat_cache_max_kept(const pleat_cache *cache, uint32_t n_prompt);

/* Bytes that `n_tokens` tokens of one sequence opened for max_tokens hold: what pleat_cache_get_usage() would say.
 * With a policy: the most that they can hold between steps, every token being important, as while a prompt is read.
 * opt is as for pleat_cache_create().  0 for options that pleat_cache_check() refuses, and for n_tokens > max_tokens. */
PLEAT_API uint64_t pleat_cache_bytes_for(const pleat_cache_options *opt, uint32_t n_tokens, uint32_t max_tokens);

/* The same once the prompt has been read: with policies that evict in generation and reclaim=reuse or copy no more than
 * their budget; with all others as above. */
PLEAT_API uint64_t pleat_cache_bytes_kept(const pleat_cache_options *opt, uint32_t n_tokens, uint32_t max_tokens);

/* Bytes of a token that is kept high in one lane, its scores and position with it, without slack and tables; 0 for a
 * spec that no text can name.  n_group: query heads for each KV head. */
PLEAT_API uint64_t pleat_cache_token_bytes(const pleat_spec *spec, uint32_t head_dim, uint32_t n_group);

/* Whether pleat_cache_create() would take the options, given memory and a pool that holds a page; err says why not. */
PLEAT_API pleat_status pleat_cache_check(const pleat_cache_options *opt, pleat_error *err);

/* Recompute every invariant of the pool and tables: used + free = total, references exact, rows within
 * bounds.  1 if all hold; 0 also when there was no memory to check with.  Slow, allocates; for tests. */
PLEAT_API int pleat_cache_is_valid(const pleat_cache *cache);

/* Free everything, set *cache to NULL.  NULL and *cache == NULL are fine. */
PLEAT_API void pleat_cache_destroy(pleat_cache **cache);

#ifdef __cplusplus
}
#endif
#endif
