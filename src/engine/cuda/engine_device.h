/* SPDX-License-Identifier: MIT
 *
 * engine_device.h: an engine on a GPU: weights, a device cache, the forward pass, and a graph for each batch size.
 *
 *     engine_device.c    memory, sequences
 *     device_images.c    images, and the memory that they are in
 *     device_pages.c     what sequences hold, share and will take
 *     device_step.c      a step: prompts, then the batch of single tokens, then what follows a prompt: as a chunk, or,
 *                        with a policy and where it is short, token by token
 *
 * A place is a sequence of the device cache.  The host knows its length, and with uniform formats its pages.  With
 * a policy the device knows, and says so after each step.  So whether a step fits is known before it begins.
 */
#ifndef PLEAT_ENGINE_CUDA_ENGINE_DEVICE_H
#define PLEAT_ENGINE_CUDA_ENGINE_DEVICE_H

#include "engine/internal.h"
#include "engine/slabs.h"
#include "model/cuda/forward.h"

typedef struct pleat__place {
    bool is_open;
    bool is_spoiled; /* a step on it failed: good for close alone */
    uint32_t generation;
    uint32_t n_tokens, max_tokens;
    uint32_t n_prompt;  /* tokens that there were when the last prompt ended */
    uint64_t last_step; /* the last with an item of it, begun or refused */
} pleat__place;

struct pleat__engine_device {
    pleat_device_cache *cache;
    pleat__device_weights *weights;
    pleat__device_forward *forward;
    pleat__device_stream stream;
    pleat__device_graph *graphs; /* [max_items + 1] of a step by its size; NULL handles: not recorded yet */
    uint8_t *n_launched;         /* [max_items + 1] steps of a size that were none, up to as many as it takes */
    pleat__place *places;        /* [max_seqs] */
    uint32_t *batch, *next;      /* [max_items] places: the cache's batch, and that of the step under way */
    uint32_t *in_batch;          /* [max_items] items of the step under way */
    bool *is_prompt, *follows;   /* [max_items] kinds of the items of the step under way */
    uint32_t n_batch;            /* 0: no batch is set */
    uint64_t n_steps;            /* begun or refused */
    uint32_t n_rows;             /* lanes of a sequence */
    uint32_t page_tokens, low_page_tokens;
    uint64_t page_bytes, n_pages;
    uint64_t table_bytes;           /* of a sequence without pages */
    uint64_t n_used, n_peak;        /* pages, as of the last recount, and the most of any */
    pleat_device_cache_load *loads; /* [max_seqs] likewise, where pages are not arithmetic */
    bool is_uniform;                /* pages are arithmetic */
    bool is_counted;                /* nothing has changed since the last count */
    bool evicts;                    /* lanes have a budget */
    pleat__slabs *slabs;            /* pinned memory that images are in; NULL until they are expected */
    uint32_t *windows;              /* [n_layers] of the model; NULL: none has one */
};

/* NULL: no such sequence is open. */
pleat__place *pleat__engine_place(const pleat_engine *e, pleat_seq seq);

/* Its sequence of the device cache. */
static inline uint32_t pleat__place_idx(const pleat_engine *e, const pleat__place *place) {
    return (uint32_t)(place - e->device->places);
}

/* Ask the device what is held: after whatever may have changed it. */
pleat_status pleat__engine_device_recount(pleat_engine *e, pleat_error *err);

/* The same as the end of a batch has told it, once it is there.  PLEAT_AGAIN: the batch was refused. */
pleat_status pleat__engine_device_count_end(pleat_engine *e, pleat_error *err);

/* The most pages that n_new tokens more take while they are stored. */
uint64_t pleat__engine_pages_for(const pleat_engine *e, const pleat__place *place, uint32_t n_new);

/* Operations of the row (engine/internal.h). */
pleat_status pleat__engine_device_get_traits(const pleat_engine *e, pleat_cache_traits *out);
uint32_t pleat__engine_device_max_kept(const pleat_engine *e, uint32_t n_prompt);
uint64_t pleat__engine_device_pages_needed(const pleat_engine *e, const pleat_cache_item *item);
uint64_t pleat__engine_device_pages_held(const pleat_engine *e, pleat_seq seq);
uint64_t pleat__engine_device_pages_shared(const pleat_engine *e, pleat_seq a, pleat_seq b);
uint64_t pleat__engine_device_fork_pages(const pleat_engine *e, pleat_seq seq);
pleat_status pleat__engine_device_get_sides(const pleat_engine *e, pleat_seq seq, pleat_cache_sides *out);
pleat_status pleat__engine_device_get_usage(const pleat_engine *e, pleat_seq seq, pleat_cache_usage *out);
void pleat__engine_device_expect_images(pleat_engine *e, uint64_t n_bytes);
void *pleat__engine_device_take_image(pleat_engine *e, uint64_t n_bytes);
void pleat__engine_device_drop_image(pleat_engine *e, void *image, uint64_t n_bytes);
uint64_t pleat__engine_device_image_bytes(const pleat_engine *e, pleat_seq seq, pleat_seq base);
pleat_status pleat__engine_device_save(const pleat_engine *e, pleat_seq seq, pleat_seq base, void *image,
                                       uint64_t cap_bytes);
pleat_status pleat__engine_device_save_soon(const pleat_engine *e, pleat_seq seq, pleat_seq base, void *image,
                                            uint64_t cap_bytes);
uint64_t pleat__engine_device_image_pages(const pleat_engine *e, const void *image, uint64_t n_bytes);
pleat_status pleat__engine_device_restore(pleat_engine *e, const void *image, uint64_t n_bytes, pleat_seq base,
                                          uint32_t max_tokens, pleat_seq *out);
pleat_status pleat__engine_device_step(pleat_engine *e, const pleat_engine_item *items, uint32_t n_items,
                                       pleat_token *likeliest, pleat_error *err);

#endif
