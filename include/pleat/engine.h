/* SPDX-License-Identifier: MIT
 *
 * engine.h: a model on a cache: tokens in, logits out, several sequences in one step.
 *
 *     pleat_engine_create(model, options)
 *         pleat_engine_open(max_tokens)                   a sequence
 *             pleat_engine_step({seq, tokens, logits}..)  a prompt chunk, or one token, of each sequence
 *         pleat_engine_close
 *     pleat_engine_destroy
 *
 * A sequence's logits depend, bit for bit, on its own tokens and on which step took which of them.  They do not depend on
 * the thread count nor on what else shares a step.
 *
 * On a GPU (options.devices) the same calls run the model and a device cache (pleat/device_cache.h) there.  What differs:
 *   - The first item of an empty sequence is its prompt, or the first part of one.  With leankv or blocks (kvcomp) a
 *     prompt is read whole: tokens that follow are read one by one, also where an item brings several.  That is slow for
 *     many, and exact.
 *   - The last bits of a sequence's logits depend on the batch, as far as the device cache's attention does, unless
 *     fixed_splits says otherwise.
 *   - A fork shares the full pages of uniform formats without windows, and copies what else there is: at once, so it may
 *     be PLEAT_AGAIN.  compress is PLEAT_E_UNSUPPORTED.  Flags that seal do nothing: pages that are shared are never
 *     written.
 *   - Images have no base.  They are the bytes that the CPU's engine writes of the same tokens, and each restores the
 *     other's.  With leankv pages must not be sealed, and no prompt be half read.  Sequences with blocks have none.
 *   - After PLEAT_E_RANGE, PLEAT_E_DEVICE or PLEAT_E_MEMORY of a step all of its sequences are lost: PLEAT_E_STATE for a
 *     step, good for close alone.  Others go on, unless the GPU itself has failed: then all calls are PLEAT_E_DEVICE, and
 *     the engine is good for destroy alone.
 *   - pleat_engine_create() is PLEAT_E_DEVICE where there is no GPU, PLEAT_E_MEMORY with the bytes where it has too
 *     little memory, PLEAT_E_UNSUPPORTED for models and specs that have no kernels there; err says which.
 *
 * Threads: an engine is driven from one thread at a time.  No function but create, open, fork, restore and is_valid
 * allocates.  Three things are allocated in a step all the same.  Codebooks are, in the one that makes a sequence's
 * first blocks (kvcomp), and oneDNN's packing buffers, where prompts over matrices of floats go through it.  On the CPU
 * the first pleat_engine_step_likeliest() with an item without logits allocates max_items rows of n_vocab floats.
 */
#ifndef PLEAT_ENGINE_H
#define PLEAT_ENGINE_H

#include "pleat/cache.h"
#include "pleat/image.h"
#include "pleat/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pleat_engine pleat_engine;

typedef struct pleat_engine_options {
    size_t size_bytes;
    pleat_spec spec;        /* default f16 */
    uint32_t max_seqs;      /* sequences open at once; default 1 */
    uint32_t max_items;     /* sequences in one step; 0: max_seqs */
    uint32_t max_tokens;    /* most tokens of one sequence; 0: the model's context, beyond which is PLEAT_E_LIMIT */
    uint32_t chunk_tokens;  /* most new tokens of one sequence in one step; default 512 */
    uint32_t step_tokens;   /* most new tokens in one step; 0: the larger of chunk_tokens and max_items */
    uint32_t page_tokens;   /* 0: the cache's default */
    uint64_t pool_bytes;    /* 0: room for max_seqs sequences of max_tokens */
    pleat_workers *workers; /* NULL: the caller's thread alone; not owned; outlives the engine */
    const pleat_allocator *allocator;
    uint32_t devices;                  /* GPUs to run on: 0, the default: the CPU; 1 */
    uint32_t first_device;             /* which GPU; default 0 */
    const struct pleat_stats *stats;   /* as in pleat_cache_options */
    struct pleat_collector *collector; /* as in pleat_cache_options; not on a GPU */
    /* 1: on a GPU a sequence's logits are the same bits whoever shares its steps, as they are on the CPU anyway; and in
     * f16 also in whatever parts of two tokens and more its prompt is read.  Attention of steps is cut at fixed places
     * (PLEAT_DEVICE_FIXED_SPLITS), and every product of steps, and every one of prompts, is made in one way.  What that
     * costs: docs/GPU.md.  Default 0 */
    int fixed_splits;
    uint32_t activation_bits; /* what a quantised matrix is multiplied with, coded with a scale for each 32: 16, as
                                        * exact as f32 for what follows; or 8, faster and less exact.  0: 16; on a GPU: 0, 16 */
} pleat_engine_options;

PLEAT_API void pleat_engine_options_default(pleat_engine_options *opt);

/* The model is not owned and outlives the engine.  Its quantised matrices are packed here, on opt->workers:
 * each engine holds as many bytes as they take in the file.  Of these it reads the file's embeddings alone from then on;
 * a file that pleat_model_load() has mapped gives the others' memory back, so that one engine holds its weights once. */
PLEAT_API pleat_status pleat_engine_create(const pleat_model *model, const pleat_engine_options *opt,
                                           pleat_engine **out, pleat_error *err);

/* What the engine was made with, zeros replaced by the values in use. */
PLEAT_API void pleat_engine_get_options(const pleat_engine *engine, pleat_engine_options *out);

/* See pleat_cache_open(), _fork(), _close(), _length(). */
PLEAT_API pleat_status pleat_engine_open(pleat_engine *engine, uint32_t max_tokens, pleat_seq *out);
PLEAT_API pleat_status pleat_engine_fork(pleat_engine *engine, pleat_seq seq, uint32_t max_tokens, pleat_seq *out);
PLEAT_API pleat_status pleat_engine_close(pleat_engine *engine, pleat_seq seq);
PLEAT_API uint32_t pleat_engine_length(const pleat_engine *engine, pleat_seq seq);

/* See pleat_cache_restore(), _restore_for(), _compress(). */
PLEAT_API pleat_status pleat_engine_restore(pleat_engine *engine, const void *image, uint64_t n_bytes, pleat_seq base,
                                            pleat_seq *out);
PLEAT_API pleat_status pleat_engine_restore_for(pleat_engine *engine, const void *image, uint64_t n_bytes,
                                                pleat_seq base, uint32_t max_tokens, pleat_seq *out);
PLEAT_API pleat_status pleat_engine_compress(pleat_engine *engine, pleat_seq seq, float ah, float al);

/* One sequence's share of a step. */
typedef struct pleat_engine_item {
    pleat_seq seq;
    const pleat_token *tokens; /* [n_tokens] that follow those already stored */
    uint32_t n_tokens;         /* 1..chunk_tokens */
    uint32_t n_logits;         /* logits of the last n_logits tokens are wanted; 0..n_tokens */
    float *logits;             /* [n_logits][n_vocab]; may be NULL when n_logits is 0 */
    uint32_t flags;            /* PLEAT_ITEM_*, as for pleat_cache_item */
} pleat_engine_item;

/* Run one forward pass over the new tokens of all items.  Each sequence may stand in one item.  After an error the
 * sequences are as they were, but for what pleat_cache_cancel() says.
 *     PLEAT_AGAIN     the pool has too few free pages
 *     PLEAT_E_LIMIT   an item would pass chunk_tokens, the step its step_tokens or a sequence its max_tokens; err says both
 *                     numbers
 *     PLEAT_E_ARG     a bad token id
 *     PLEAT_E_MEMORY  no memory for what a step allocates (see Threads)
 *     PLEAT_E_RANGE   weights are NaN or infinite, and err names their tensor; or keys, values or logits come out NaN or
 *                     huge */
PLEAT_API pleat_status pleat_engine_step(pleat_engine *engine, const pleat_engine_item *items, uint32_t n_items,
                                         pleat_error *err);

/* Like pleat_engine_step(), but likeliest[n_items] become each item's likeliest token after its last one, the lowest id
 * among equals, whether logits are wanted or not.  NULL: as pleat_engine_step().  On a GPU the tokens alone come to the
 * host for items without logits. */
PLEAT_API pleat_status pleat_engine_step_likeliest(pleat_engine *engine, const pleat_engine_item *items,
                                                   uint32_t n_items, pleat_token *likeliest, pleat_error *err);

/* Usage of one sequence's cache, or of the whole when seq.v is 0. */
PLEAT_API pleat_status pleat_engine_get_usage(const pleat_engine *engine, pleat_seq seq, pleat_cache_usage *out);

/* What a scheduler asks of the engine's cache, wherever it is: see the calls of cache.h that are named alike.  On a GPU
 * image_bytes is 0 with a base, and save PLEAT_E_UNSUPPORTED. */
PLEAT_API pleat_status pleat_engine_get_traits(const pleat_engine *engine, pleat_cache_traits *out);
PLEAT_API uint32_t pleat_engine_n_open(const pleat_engine *engine);
PLEAT_API uint32_t pleat_engine_max_kept(const pleat_engine *engine, uint32_t n_prompt);
PLEAT_API uint64_t pleat_engine_pages_needed(const pleat_engine *engine, const pleat_cache_item *item);
PLEAT_API uint64_t pleat_engine_pages_held(const pleat_engine *engine, pleat_seq seq);
PLEAT_API uint64_t pleat_engine_pages_shared(const pleat_engine *engine, pleat_seq a, pleat_seq b);
PLEAT_API pleat_status pleat_engine_get_sides(const pleat_engine *engine, pleat_seq seq, pleat_cache_sides *out);
PLEAT_API void pleat_engine_get_times(const pleat_engine *engine, pleat_cache_times *out);
PLEAT_API uint64_t pleat_engine_image_bytes(const pleat_engine *engine, pleat_seq seq, pleat_seq base);
PLEAT_API pleat_status pleat_engine_save(const pleat_engine *engine, pleat_seq seq, pleat_seq base, void *image,
                                         uint64_t cap_bytes);
PLEAT_API uint64_t pleat_engine_image_pages(const pleat_engine *engine, const void *image, uint64_t n_bytes);

/* The same into memory of take_image, below.  On a GPU bytes may still be on their way when it returns, beside the steps
 * that follow: the image is for restore, image_pages and drop of this engine alone. */
PLEAT_API pleat_status pleat_engine_save_soon(const pleat_engine *engine, pleat_seq seq, pleat_seq base, void *image,
                                              uint64_t cap_bytes);

/* Memory for an image of n_bytes, of this engine: on a GPU such as copies are fastest to.  NULL: there is none.  Images
 * in any other memory are as good.  drop takes the n_bytes that take was given; both before the engine is destroyed. */
PLEAT_API void *pleat_engine_take_image(pleat_engine *engine, uint64_t n_bytes);
PLEAT_API void pleat_engine_drop_image(pleat_engine *engine, void *image, uint64_t n_bytes);

/* Images may come, of n_bytes in all: on a GPU a thread of the engine's takes memory for them from now on, ahead of need.
 * Returns at once. */
PLEAT_API void pleat_engine_expect_images(pleat_engine *engine, uint64_t n_bytes);

/* Pages that a fork of the sequence takes at once: those that it cannot share.  0 on the CPU, where they are copied when
 * one of both writes them. */
PLEAT_API uint64_t pleat_engine_fork_pages(const pleat_engine *engine, pleat_seq seq);

/* What the head of a file says of each of the engine's sequences (pleat/image.h): model, statistics where the spec takes
 * some, shape and page tokens.  Spec, salt, tokens, steps and body are the caller's to say.  PLEAT_E_ARG, or
 * pleat_model_fingerprint()'s error. */
PLEAT_API pleat_status pleat_engine_image_head(const pleat_engine *engine, pleat_image_head *out);

/* The engine's cache, for the calls of cache.h that take a const one.  Lives as long as the engine.  NULL on a GPU. */
PLEAT_API const pleat_cache *pleat_engine_cache(const pleat_engine *engine);

/* The model that it was made with. */
PLEAT_API const pleat_model *pleat_engine_model(const pleat_engine *engine);

/* See pleat_cache_is_valid(). */
PLEAT_API int pleat_engine_is_valid(const pleat_engine *engine);

PLEAT_API void pleat_engine_destroy(pleat_engine **engine);

#ifdef __cplusplus
}
#endif
#endif
