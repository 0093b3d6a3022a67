/* SPDX-License-Identifier: MIT
 *
 * internal.h: an engine as its files see it: options, and the row of operations of where it runs.
 *
 *     engine.c                    options, checks, and calls of the row
 *     engine_cpu.c                on the CPU
 *     cuda/engine_device.c        on a GPU; engine_device_none.c in builds without CUDA says why not
 */
#ifndef PLEAT_ENGINE_INTERNAL_H
#define PLEAT_ENGINE_INTERNAL_H

#include "model/forward.h"
#include "pleat/engine.h"

typedef struct pleat__engine_device pleat__engine_device; /* cuda/engine_device.c */

/* Operations that pleat/engine.h describes.  create fills what is the row's own in a cleared engine whose options are
 * complete; destroy takes also what create has left half done.  step's items have been checked by themselves;
 * likeliest may be NULL. */
typedef struct pleat__engine_ops {
    pleat_status (*create)(pleat_engine *e, pleat_error *err);
    void (*destroy)(pleat_engine *e);
    pleat_status (*open)(pleat_engine *e, uint32_t max_tokens, pleat_seq *out);
    pleat_status (*fork)(pleat_engine *e, pleat_seq seq, uint32_t max_tokens, pleat_seq *out);
    pleat_status (*restore)(pleat_engine *e, const void *image, uint64_t n_bytes, pleat_seq base, uint32_t max_tokens,
                            pleat_seq *out); /* max_tokens 0: the image's */
    pleat_status (*compress)(pleat_engine *e, pleat_seq seq, float ah, float al);
    pleat_status (*close)(pleat_engine *e, pleat_seq seq);
    uint32_t (*length)(const pleat_engine *e, pleat_seq seq);
    pleat_status (*get_usage)(const pleat_engine *e, pleat_seq seq, pleat_cache_usage *out);
    int (*is_valid)(const pleat_engine *e);
    pleat_status (*get_traits)(const pleat_engine *e, pleat_cache_traits *out);
    uint32_t (*n_open)(const pleat_engine *e);
    uint32_t (*max_kept)(const pleat_engine *e, uint32_t n_prompt);
    uint64_t (*pages_needed)(const pleat_engine *e, const pleat_cache_item *item);
    uint64_t (*pages_held)(const pleat_engine *e, pleat_seq seq);
    uint64_t (*pages_shared)(const pleat_engine *e, pleat_seq a, pleat_seq b);
    uint64_t (*fork_pages)(const pleat_engine *e, pleat_seq seq);
    pleat_status (*get_sides)(const pleat_engine *e, pleat_seq seq, pleat_cache_sides *out);
    void (*get_times)(const pleat_engine *e, pleat_cache_times *out);
    uint64_t (*image_bytes)(const pleat_engine *e, pleat_seq seq, pleat_seq base);
    pleat_status (*save)(const pleat_engine *e, pleat_seq seq, pleat_seq base, void *image, uint64_t cap_bytes);
    pleat_status (*save_soon)(const pleat_engine *e, pleat_seq seq, pleat_seq base, void *image, uint64_t cap_bytes);
    uint64_t (*image_pages)(const pleat_engine *e, const void *image, uint64_t n_bytes);
    void (*expect_images)(pleat_engine *e, uint64_t n_bytes); /* NULL: nothing is done ahead */
    void *(*take_image)(pleat_engine *e, uint64_t n_bytes);
    void (*drop_image)(pleat_engine *e, void *image, uint64_t n_bytes);
    pleat_status (*step)(pleat_engine *e, const pleat_engine_item *items, uint32_t n_items, pleat_token *likeliest,
                         pleat_error *err);
} pleat__engine_ops;

extern const pleat__engine_ops pleat__engine_on_cpu, pleat__engine_on_device;

struct pleat_engine {
    pleat_allocator al;
    const pleat_model *model;
    pleat_model_info info;
    pleat_engine_options opt; /* zeros replaced */
    const pleat__engine_ops *ops;
    const char *damaged; /* the model's; a tensor that holds NaN or infinity; NULL: none */

    /* On the CPU. */
    pleat_cache *cache; /* NULL on a GPU */
    pleat__forward *forward;
    pleat_cache_item *cache_items;      /* [max_items] */
    pleat__forward_item *forward_items; /* [max_items] */
    float *unwanted; /* [max_items][n_vocab] logits that only the likeliest token is taken from; NULL until needed */

    pleat__engine_device *device; /* on a GPU; NULL on the CPU */
};

#endif
