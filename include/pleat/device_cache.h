/* SPDX-License-Identifier: MIT
 *
 * device_cache.h: cache.h's idea on a GPU: paged f16, quantised, leankv and evicting caches in device memory, whose
 * steps never wait for the host.
 *
 *     pleat_device_cache_create                              takes all device memory that it will ever use
 *         pleat_device_cache_prompt_begin(seq_idx, n_tokens) a sequence's prompt: reserves pages in every lane
 *             pleat_device_cache_prompt_attend(layer 0, q, k, v, ..) one layer's attention, on exact keys and values
 *             pleat_device_cache_prompt(layer 0, k, v, received)     class, quantise and place one layer's tokens; pages
 *             ...                                            that they do not need go back; once for each layer
 *         pleat_device_cache_prompt_end()                    the sequence's tokens count
 *
 *         pleat_device_cache_chunk_begin(seq_idx, n_tokens)  uniform formats: more tokens of a sequence that has some
 *             pleat_device_cache_chunk_attend(layer 0, q, k, v, ...) attention to what is stored and to the chunk's own
 *             pleat_device_cache_prompt(layer 0, k, v)               store them
 *             ...
 *         pleat_device_cache_prompt_end()
 *         pleat_device_cache_fork(from, to)                  a copy of a sequence, which may share its pages
 *
 *         pleat_device_cache_set_batch({seq_idx, ...})       who takes part in the steps from here on
 *             pleat_device_cache_begin                       plan + commit: pages for one more token a sequence
 *                 pleat_device_cache_append(layer 0, k, v)   store the new tokens
 *                 pleat_device_cache_attend(layer 0, q, out) attend to all; leankv and h2o count what was received
 *                 ...                                        once for each layer, in any order
 *             pleat_device_cache_end                         the policy acts on every lane, pages go back
 *
 *         pleat_device_cache_close(seq_idx)                  all pages of a sequence go back
 *     pleat_device_cache_destroy
 *
 * A sequence index, 0..max_seqs-1, names one of the sequences that the cache has room for; the caller hands them out. A
 * sequence is empty after create and after close, until a prompt or a batch takes it.
 *
 * Pages have the layout of the CPU's cache and tokens are quantised to the same bytes.  A lane's levels follow from the
 * scores as they do on the CPU (src/policy/leankv.h), with one difference: the tokens of a prompt that become low are
 * quantised from the exact values, not from the high codes.  streaming, recent and random keep the CPU's tokens in the
 * CPU's slots; h2o, snapkv, pyramidkv, adakv and novel do so where scores, which have other last bits here, leave no tie.  Of
 * the CPU's options sink_logits has no counterpart: models that need it cannot be run on this cache.
 *
 * Windows.  A layer may see the newest tokens alone.  Its lanes are rings then, as on the CPU.  For the length of a
 * prompt or a chunk they hold pages as other lanes do, and return them: before prompt_end's work, or with it.
 *
 * Streams and arguments.  k, v, q, out, lse2 and received are device memory; `stream` is a cudaStream_t, NULL the
 * default stream.  All calls of one cache go to one stream, or are ordered by the caller's events.  Calls return before
 * their work is done, unless they are said to wait.  All calls of a step but set_batch may be recorded in a CUDA
 * graph.  Sizes of launches depend on the number of sequences in the batch alone; everything else is read on the device
 * when it runs.  A graph may be launched again after set_batch() with as many sequences, while none of them has a
 * prompt under way.  What was closed since begins anew, as with begin.
 *
 * Out of pages.  Whether a step's pages fit is known on the device alone.  If not, the whole step, append and end
 * included, changes no token, and pleat_device_cache_wait() returns PLEAT_AGAIN.  Attention in that step was over what
 * was there before.  Close a sequence or take one out of the batch, and do the step again.
 *
 * Errors: PLEAT_E_ARG for arguments that cannot be, PLEAT_E_STATE for a call out of turn: both change nothing.
 * PLEAT_E_DEVICE when the GPU fails, and from every call of a build without CUDA; PLEAT_E_MEMORY from create, and from
 * calls that bring something to the host.  After either, sequences of the step, the prompt or the fork are good for close
 * alone.  Where the GPU itself has failed all calls are PLEAT_E_DEVICE, and the cache is good for destroy alone.  err may
 * be NULL everywhere.  A cache is driven from one thread, whose device it makes its own (cudaSetDevice).
 */
#ifndef PLEAT_DEVICE_CACHE_H
#define PLEAT_DEVICE_CACHE_H

#include "pleat/cache.h"
#include "pleat/spec.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pleat_device_cache pleat_device_cache;

/* How the work of attention is cut.  Results differ in rounding.  The same calls give the same bytes with each.  But
 * how EQUAL_SHARES cuts a sequence, and so the last bits of its results, depends on the lengths and the order of all
 * sequences in the batch.  With leankv so can the level of a token whose score is at a threshold.  The others' results
 * for a sequence depend on that sequence alone. */
typedef enum pleat_device_schedule {
    PLEAT_DEVICE_EQUAL_SHARES, /* every warp gets about as much to do, whatever the lanes' lengths */
    PLEAT_DEVICE_PER_LANE,     /* LeanKV's: a thread block for each lane.  To compare with */
    PLEAT_DEVICE_FIXED_SPLITS  /* pieces of a lane, of some 1024 slots or more: how many its own length alone decides */
} pleat_device_schedule;

typedef struct pleat_device_cache_options {
    size_t size_bytes; /* sizeof(pleat_device_cache_options); set by pleat_device_cache_options_default */
    /* f16 (the default), any format of 8 to 2 bits, or h4v4 to h2v2.  Or streaming, recent, random, h2o, snapkv,
     * pyramidkv, adakv, novel of one of the plain ones, with a budget of tokens or a share.  Or leankv: of one of these where
     * al = ah, else of two of f16, k8v8, k8v4, k4v4, k4v2.  Its low format may be h3v2 or h2v2 below k8v8 or k8v4.  Or
     * kvcomp+pack: blocks of 64 tokens, k and v from 0.07 on, fewer than 16 sinks; heads of 64 and 128, groups up to 8,
     * without windows and logit_cap.  It has neither chunks nor images and export. */
    pleat_spec spec;
    uint32_t device;         /* which GPU; default 0 */
    uint32_t n_layers;       /* 1..1024 */
    uint32_t n_kv_heads;     /* 1..1024 */
    uint32_t n_q_heads;      /* 1..16 times n_kv_heads */
    uint32_t head_dim;       /* a multiple of 16 up to 256.  Heads of 64 and 128, in groups up to 8, without windows and
                          * logit_cap, have kernels of their own, which are faster; policies need them.  With
                          * rotated formats these take groups up to 4 */
    const uint32_t *windows; /* [n_layers] newest tokens that a query of the layer sees, itself included; 0: all.  NULL,
                              * the default: all layers see all.  Copied */
    float logit_cap; /* c in 2^-16..65536: logits x become c tanh(x/c) before the softmax; 0, the default: they stay */
    float softmax_scale;  /* factor on q.k, up to 65536; 0, the default: 1/sqrt(head_dim) */
    uint32_t page_tokens; /* tokens in a page of the high format, a multiple of 16 up to 4096; 0, the default: as
                           * pleat_cache_options has it */
    uint32_t max_seqs;    /* sequences that there is room for, 1..65535; default 1 */
    uint32_t max_tokens;  /* most tokens of a sequence, 1..2^24 */
    uint64_t pool_bytes;  /* device memory for pages; 0: room for max_seqs sequences of max_tokens high tokens */
    pleat_device_schedule schedule;   /* of steps; default EQUAL_SHARES */
    const pleat_allocator *allocator; /* of host memory */
    const pleat_rope *const *ropes;   /* as pleat_cache_options has them, two kinds at most; novel is refused without */
    const struct pleat_stats *stats;  /* of the model, as there; novel:mean=model is refused without */
} pleat_device_cache_options;

/* Fill *opt with defaults.  n_layers, n_kv_heads, n_q_heads, head_dim and max_tokens are left 0 and must be set. */
PLEAT_API void pleat_device_cache_options_default(pleat_device_cache_options *opt);

/* Make a cache, all of its sequences empty.  Waits for the device.
 *   PLEAT_E_ARG           options beyond the limits above, a window longer than max_tokens, a profile that nobody has
 *                         read (spec.h), more than 2^28 lanes in all, or formats that attention has no kernels for
 *   PLEAT_E_UNSUPPORTED   a policy for heads, windows or logits that its kernels do not take; f32, compressors and
 *                         policies but those named above, +merge, +novel and +kvcrush, which are the CPU's alone;
 *                         budgets in bytes; leankv of one format twice with al < ah
 *   PLEAT_E_LIMIT         rows of 2^32 page ids in all and more */
PLEAT_API pleat_status pleat_device_cache_create(const pleat_device_cache_options *opt, pleat_device_cache **out,
                                                 pleat_error *err);

/* Wait for the device, free everything, set *cache to NULL.  NULL and *cache == NULL are fine. */
PLEAT_API void pleat_device_cache_destroy(pleat_device_cache **cache);

/* ---- prompts ------------------------------------------------------------------------------------- */

/* Begin the prompt (prefill) of an empty sequence, n_tokens (1..max_tokens) tokens: every lane takes the pages that it
 * can need.  Waits.  PLEAT_AGAIN when the pool has too few free pages now, PLEAT_E_LIMIT when all of its pages would be
 * too few: nothing has changed. */
PLEAT_API pleat_status pleat_device_cache_prompt_begin(pleat_device_cache *cache, uint32_t seq_idx, uint32_t n_tokens,
                                                       void *stream, pleat_error *err);

/* Most tokens of a prompt that pleat_device_cache_prompt_attend() takes. */
#define PLEAT_DEVICE_PROMPT_TOKENS 1048576u

/* Causal attention of one layer of it, on the keys and values as handed in.
 *   q         [n_tokens][n_q_heads][head_dim] f16, as k and v below; all aligned to 16
 *   out       [n_tokens][n_q_heads][head_dim] f16, aligned to 16; not q
 *   received  [n_kv_heads][n_tokens] f32, overwritten: what pleat_device_cache_prompt() asks for; NULL: not computed.
 *             Of the group's heads the largest, summed over queries; for h2o the heads' sum; for snapkv, pyramidkv and adakv
 *             that, of the last `window` queries alone
 * Error: <= 1e-3 relative in norm, of out and of received.  PLEAT_E_LIMIT: the prompt has more than
 * PLEAT_DEVICE_PROMPT_TOKENS tokens. */
PLEAT_API pleat_status pleat_device_cache_prompt_attend(pleat_device_cache *cache, uint32_t layer, const void *q,
                                                        const void *k, const void *v, void *out, float *received,
                                                        void *stream, pleat_error *err);

/* One layer of it: class the tokens, quantise those that stay and place them.
 *   k, v      [n_tokens][n_kv_heads][head_dim] f16, positions applied, aligned to 8
 *   received  [n_kv_heads][n_tokens] f32: attention that each token received from later ones, as prompt_attend leaves
 *             it; not read, and may be NULL, unless pleat_device_cache_wants_received() */
PLEAT_API pleat_status pleat_device_cache_prompt(pleat_device_cache *cache, uint32_t layer, const void *k,
                                                 const void *v, const float *received, void *stream, pleat_error *err);

/* 1: with this spec tokens' scores are counted, so that pleat_device_cache_prompt() reads what they received; else 0. */
PLEAT_API int pleat_device_cache_wants_received(const pleat_spec *spec);

/* All layers have been placed: the sequence's tokens count.  PLEAT_E_STATE while a layer is missing. */
PLEAT_API pleat_status pleat_device_cache_prompt_end(pleat_device_cache *cache, void *stream, pleat_error *err);

/* Like pleat_device_cache_prompt_begin(), but n_tokens more of a sequence that holds some: a later turn, or a prompt's
 * next chunk.  Its layers are attended to by chunk_attend, stored by prompt(), and ended by prompt_end().  The sequence
 * alone is the batch afterwards.  PLEAT_E_UNSUPPORTED with a policy; PLEAT_E_STATE for an empty sequence; PLEAT_E_LIMIT
 * too where it would hold more than max_tokens.  Waits. */
PLEAT_API pleat_status pleat_device_cache_chunk_begin(pleat_device_cache *cache, uint32_t seq_idx, uint32_t n_tokens,
                                                      void *stream, pleat_error *err);

/* Attention of one layer of it: to all tokens before the chunk, as they are stored and rounded to f16, and causally to
 * the chunk's own, as they are handed in.  Before that layer's prompt().  Arguments and error as prompt_attend has
 * them. */
PLEAT_API pleat_status pleat_device_cache_chunk_attend(pleat_device_cache *cache, uint32_t layer, const void *q,
                                                       const void *k, const void *v, void *out, void *stream,
                                                       pleat_error *err);

/* What follows by steps is a turn that ends when the sequence has n_prompt tokens: a budget that is a share is of these
 * from now on, unless that is less than before.  Does nothing to others.  PLEAT_E_STATE: the sequence is empty, or a
 * step or its prompt is under way. */
PLEAT_API pleat_status pleat_device_cache_turn(pleat_device_cache *cache, uint32_t seq_idx, uint32_t n_prompt,
                                               void *stream, pleat_error *err);

/* Sequence `to`, which is empty, becomes a copy of `from`, which is not and has no prompt under way, and either goes on
 * without the other.  In uniform formats without windows both hold the full pages, and the last one is copied; else all
 * pages are.  Waits.  PLEAT_AGAIN and PLEAT_E_LIMIT as prompt_begin. */
PLEAT_API pleat_status pleat_device_cache_fork(pleat_device_cache *cache, uint32_t from, uint32_t to, void *stream,
                                               pleat_error *err);

/* Return all pages of a sequence: it is empty.  Closing an empty one is fine; a prompt under way in it is abandoned. */
PLEAT_API pleat_status pleat_device_cache_close(pleat_device_cache *cache, uint32_t seq_idx, void *stream,
                                                pleat_error *err);

/* For measurements and tests: in place of a prompt, fill an empty sequence with made-up tokens.  Each lane gets
 * n_high[lane] high and n_low[lane] low ones (host memory, lane = layer * n_kv_heads + kv_head; n_low NULL: none), the
 * high ones the newer.  n_high[lane] >= 1, n_high + n_low <= max_tokens, low ones only with leankv, al < ah.  What a
 * token is depends on `seed`, seq_idx, lane and position alone.  The sequence's length is that of its longest lane.
 * Waits.  PLEAT_E_UNSUPPORTED where lanes have a budget.  PLEAT_AGAIN and PLEAT_E_LIMIT as prompt_begin: pages are
 * reserved as if all lanes were as long as the longest. */
PLEAT_API pleat_status pleat_device_cache_fill(pleat_device_cache *cache, uint32_t seq_idx, const uint32_t *n_high,
                                               const uint32_t *n_low, uint64_t seed, void *stream, pleat_error *err);

/* ---- steps --------------------------------------------------------------------------------------- */

/* The sequences of the steps from here on: seq_idxs[n_seqs] (host memory), each once, none with a prompt under way. An
 * empty sequence is empty no longer, and takes no prompt until it is closed: it begins with its first step. n_seqs
 * 1..max_seqs. */
PLEAT_API pleat_status pleat_device_cache_set_batch(pleat_device_cache *cache, const uint32_t *seq_idxs,
                                                    uint32_t n_seqs, void *stream, pleat_error *err);

/* Begin a step: each lane of the batch takes the pages that one more token can need; attention of all layers is
 * planned.  A sequence that has max_tokens already refuses the step like a pool without pages.  PLEAT_E_STATE while a
 * prompt is under way in a sequence of the batch. */
PLEAT_API pleat_status pleat_device_cache_begin(pleat_device_cache *cache, void *stream, pleat_error *err);

/* For measurements: pages of a step alone, outside of steps.  Each lane of the batch returns what it holds beyond its
 * tokens' pages and takes what begin would, in one launch; no token is counted.  Repeated, it does the same each
 * time. */
PLEAT_API pleat_status pleat_device_cache_plan_pages(pleat_device_cache *cache, void *stream, pleat_error *err);

/* Store the new tokens of one layer.  k, v  [n_seqs][n_kv_heads][head_dim] f16, positions applied, in the batch's
 * order, aligned to 8. */
PLEAT_API pleat_status pleat_device_cache_append(pleat_device_cache *cache, uint32_t layer, const void *k,
                                                 const void *v, void *stream, pleat_error *err);

/* Heads of rows as one product makes them, and what makes them ready: biases are added, q and k normed, then turned.
 * Pointers are device memory. */
typedef struct pleat_device_cache_heads {
    const float *qkv;       /* [rows][(n_q_heads + 2 n_kv_heads) * head_dim] q, k, v side by side */
    const float *biases[3]; /* of q, k and v, or NULL */
    const float *norms[2];  /* [head_dim] of q's heads and of k's, or NULL */
    float eps;
    const float *turns; /* [positions][n_dims/2][2] cos and sin of each pair; NULL: heads are not turned */
    uint32_t n_dims;    /* the first dimensions of a head, which turn */
    int is_halves;      /* pairs are (i, i + n_dims/2); 0: (2i, 2i+1) */
} pleat_device_cache_heads;

/* Does append_heads take the cache's heads?  Else they are to be made ready before. */
PLEAT_API int pleat_device_cache_takes_heads(const pleat_device_cache *cache);

/* The same of heads that are not ready, at the sequences' own positions; the queries become q, as attend asks for them.
 * PLEAT_E_UNSUPPORTED where the cache does not take them. */
PLEAT_API pleat_status pleat_device_cache_append_heads(pleat_device_cache *cache, uint32_t layer,
                                                       const pleat_device_cache_heads *heads, void *q, void *stream,
                                                       pleat_error *err);

/* Attend with one query a sequence to all that is stored, the step's tokens included.  With leankv and h2o, in a step,
 * what each slot received is added to its score: in a stream of the cache's own, beside what follows, until the next
 * append or attend.  The last layer's is in `stream`, so who records layers records them to the last.
 *   q     [n_seqs][n_q_heads][head_dim] f16, aligned to 16
 *   out   [n_seqs][n_q_heads][head_dim] f32, aligned to 16
 *   lse2  [n_seqs][n_q_heads] f32: log2 of the sum of exponentials of the scaled logits; may be NULL.  What is added to
 *         scores is reckoned from it, so it stays as it is until then
 * Error: <= 1e-3 relative in norm against exact attention over the dequantised values.  Outside a step this only reads;
 * then pleat_device_cache_plan() comes first whenever lanes or the batch have changed.  Without it this is
 * PLEAT_E_STATE after set_batch, and after any other change the result means nothing. */
PLEAT_API pleat_status pleat_device_cache_attend(pleat_device_cache *cache, uint32_t layer, const void *q, float *out,
                                                 float *lse2, void *stream, pleat_error *err);

/* The same, where the cache takes heads, and out is rounded to f16, without lse2. */
PLEAT_API pleat_status pleat_device_cache_attend_f16(pleat_device_cache *cache, uint32_t layer, const void *q,
                                                     void *out, void *stream, pleat_error *err);

/* Cut the work of attention for the batch as it stands, in all layers; attend goes by the last plan.  begin does this
 * for its step, by the options' schedule; a plan that is made after begin counts for the rest of that step.  Recorded or not, an
 * attend needs the last plan or begin before it on the device to be of the schedule that was the host's last when
 * attend was called. */
PLEAT_API pleat_status pleat_device_cache_plan(pleat_device_cache *cache, pleat_device_schedule schedule, void *stream,
                                               pleat_error *err);

/* End the step: the policy acts on every lane, pages that are not needed go back. */
PLEAT_API pleat_status pleat_device_cache_end(pleat_device_cache *cache, void *stream, pleat_error *err);

/* Wait for the stream.  PLEAT_AGAIN if a step since the last call, or since create, was refused: see
 * above.  PLEAT_E_DEVICE if some of its work failed. */
PLEAT_API pleat_status pleat_device_cache_wait(pleat_device_cache *cache, void *stream, pleat_error *err);

/* ---- images -------------------------------------------------------------------------------------- */

/* A sequence as bytes in the host's memory: those that pleat_cache_save() writes of the same tokens without a base.  So
 * an image of either device is restored on the other, where options are alike. */

/* What an image says of its sequence. */
typedef struct pleat_device_cache_image {
    uint32_t max_tokens; /* what it was opened for */
    uint32_t n_tokens;
    uint32_t n_prompt; /* tokens that there were when the last prompt ended */
    uint64_t n_pages;  /* the most that restoring takes at once */
} pleat_device_cache_image;

/* Take the memory that the first image would else take. */
PLEAT_API pleat_status pleat_device_cache_expect_images(pleat_device_cache *cache, pleat_error *err);

/* An image of n_bytes is copied fastest where it begins so many bytes, below 64, behind a multiple of 64. */
PLEAT_API uint64_t pleat_device_cache_image_shift(const pleat_device_cache *cache, uint64_t n_bytes);

/* Bytes of the sequence's image; 0: it is empty.  Waits. */
PLEAT_API pleat_status pleat_device_cache_image_bytes(pleat_device_cache *cache, uint32_t seq_idx, uint64_t *n_bytes,
                                                      void *stream, pleat_error *err);

/* Write it, with the counts of pleat_device_cache_image that the cache does not know.  The copies are fastest into
 * memory that is pinned.  Waits.  PLEAT_E_ARG: an empty sequence, counts that cannot be, a place that is too small.
 * PLEAT_E_STATE: a step or a prompt is under way. */
PLEAT_API pleat_status pleat_device_cache_save(pleat_device_cache *cache, uint32_t seq_idx, uint32_t max_tokens,
                                               uint32_t n_prompt, void *image, uint64_t cap_bytes, void *stream,
                                               pleat_error *err);

/* The same in two parts.  After the first the sequence may be closed, and steps may go on; the image, though it can be
 * read already, is only whole after the second, which waits for what is still on its way.  That does nothing when the
 * image is not the last one that was begun, or is ended; NULL: whichever that is.  The next save and restore end it
 * themselves. */
PLEAT_API pleat_status pleat_device_cache_save_begin(pleat_device_cache *cache, uint32_t seq_idx, uint32_t max_tokens,
                                                     uint32_t n_prompt, void *image, uint64_t cap_bytes, void *stream,
                                                     pleat_error *err);
PLEAT_API pleat_status pleat_device_cache_save_end(pleat_device_cache *cache, const void *image, pleat_error *err);

/* What the image says.  PLEAT_E_FORMAT: it is none of such a cache. */
PLEAT_API pleat_status pleat_device_cache_read_image(pleat_device_cache *cache, const void *image, uint64_t n_bytes,
                                                     pleat_device_cache_image *out, pleat_error *err);

/* An empty sequence becomes that of the image.  Waits.  PLEAT_E_FORMAT: it is no image, or a damaged one, or with
 * leankv one whose pages are sealed or whose thresholds are not the spec's.  PLEAT_AGAIN and PLEAT_E_LIMIT as
 * prompt_begin.  After any of them the sequence is empty. */
PLEAT_API pleat_status pleat_device_cache_restore(pleat_device_cache *cache, uint32_t seq_idx, const void *image,
                                                  uint64_t n_bytes, void *stream, pleat_error *err);

/* ---- what it holds ------------------------------------------------------------------------------- */

typedef struct pleat_device_cache_usage {
    uint64_t bytes;           /* of pages in use, and of tables: rows, counts, circular list, positions' counters */
    uint64_t bytes_pages;     /* of pages in use alone, their unused slots included */
    uint64_t bytes_pool;      /* device memory taken for pages */
    uint64_t bytes_tables;    /* device memory taken for tables */
    uint64_t bytes_workspace; /* device memory taken to work with */
    uint64_t bytes_attend;    /* what attending to the batch once reads in all layers together: codes and metadata of
                               * whole tiles, positions where slots can be dead, page ids */
    uint64_t bytes_f16; /* what f16 would hold for as many tokens in the open sequences' lanes, dropped ones counted */
    uint64_t page_bytes, pages_used, pages_peak, pages_total;
    uint64_t tokens_high, tokens_low; /* summed over the lanes of all sequences */
    uint64_t n_refused;               /* plans that did not fit, since create */
    uint32_t page_tokens[2];          /* slots of a high page, of a low one */
} pleat_device_cache_usage;

/* Waits for the stream and downloads the tables. */
PLEAT_API pleat_status pleat_device_cache_get_usage(pleat_device_cache *cache, pleat_device_cache_usage *out,
                                                    void *stream, pleat_error *err);

/* What one sequence holds, summed over its lanes. */
typedef struct pleat_device_cache_held {
    uint64_t pages[2];    /* of the high format, of the low one */
    uint64_t tokens[2];   /* live ones, by format */
    uint64_t slots;       /* of all these pages */
    uint64_t table_bytes; /* rows and counts of its lanes, and the pool's 8 bytes a page */
} pleat_device_cache_held;

/* Waits for the stream and downloads the sequence's counts. */
PLEAT_API pleat_status pleat_device_cache_get_held(pleat_device_cache *cache, uint32_t seq_idx,
                                                   pleat_device_cache_held *out, void *stream, pleat_error *err);

/* What a scheduler asks about a sequence after each step, summed over its lanes. */
typedef struct pleat_device_cache_load {
    uint32_t pages[2];   /* of the high format, of the low one */
    uint32_t slots[2];   /* with a token, live or dead */
    uint32_t holes;      /* dead ones, all of the high format */
    uint32_t next_pages; /* pages that a step with one more token would take */
} pleat_device_cache_load;

/* Pages taken from the pool, and unless `out` is NULL the loads of all sequences, [max_seqs].  Waits once. */
PLEAT_API pleat_status pleat_device_cache_get_loads(pleat_device_cache *cache, uint64_t *pages_used,
                                                    pleat_device_cache_load *out, void *stream, pleat_error *err);

/* The same as of the end of the last step, which tells the host by itself; `out` where a policy acts.  It only waits for the
 * stream, in which nothing may have come behind that end that changes pages.  PLEAT_AGAIN as pleat_device_cache_wait(). */
PLEAT_API pleat_status pleat_device_cache_wait_end(pleat_device_cache *cache, uint64_t *pages_used,
                                                   pleat_device_cache_load *out, void *stream, pleat_error *err);

/* The most tokens of a lane that stay when a prompt of n_prompt tokens has been read; UINT32_MAX: all. */
PLEAT_API uint32_t pleat_device_cache_max_kept(const pleat_device_cache *cache, uint32_t n_prompt);

/* 1: a lane that holds as many loses a token for each that comes, and has no dead slot but the next one's.  Else 0: what
 * comes behind a prompt stays, or slots of those that have gone do. */
PLEAT_API int pleat_device_cache_is_bounded(const pleat_device_cache *cache);

/* Pages that both sequences hold.  Waits. */
PLEAT_API pleat_status pleat_device_cache_get_shared(pleat_device_cache *cache, uint32_t a, uint32_t b,
                                                     uint64_t *n_pages, void *stream, pleat_error *err);

/* Tokens of a sequence, dropped ones included; 0: it is empty.  Waits. */
PLEAT_API pleat_status pleat_device_cache_length(pleat_device_cache *cache, uint32_t seq_idx, uint32_t *n_tokens,
                                                 void *stream, pleat_error *err);

/* Dequantise the tokens at positions [first, first + n_tokens) of one lane into k and v, [n_tokens][head_dim] f32 host
 * memory; rows of dropped tokens are zeros.  Slow; waits.  PLEAT_E_UNSUPPORTED where low pages keep no positions
 * (leankv, al = 0, when the lane has low tokens). */
PLEAT_API pleat_status pleat_device_cache_export(pleat_device_cache *cache, uint32_t seq_idx, uint32_t layer,
                                                 uint32_t kv_head, uint32_t first, uint32_t n_tokens, float *k,
                                                 float *v, void *stream, pleat_error *err);

/* Download everything and recompute every invariant of pool and tables.  PLEAT_E_STATE, and err says which, if one does
 * not hold.  For tests. */
PLEAT_API pleat_status pleat_device_cache_check(pleat_device_cache *cache, void *stream, pleat_error *err);

#ifdef __cplusplus
}
#endif
#endif
