/* SPDX-License-Identifier: MIT
 *
 * engine.c: what engines on all devices have in common: their options, the checks of items.  The rest is the row of
 * operations (internal.h) that the options ask for.
 */
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "engine/internal.h"
#include "pleat/stats.h"

#define DEFAULT_CHUNK_TOKENS 512u
#define DEFAULT_ACTIVATION_BITS 16u

void pleat_engine_options_default(pleat_engine_options *opt) {
    if (!opt) return;
    *opt = (pleat_engine_options){
        .size_bytes = sizeof *opt,
        .spec = {.high = {16, 16}},
        .max_seqs = 1,
        .chunk_tokens = DEFAULT_CHUNK_TOKENS,
    };
}

/* Replace zeros and check what the cache does not. */
static pleat_status complete_options(pleat_engine_options *opt, const pleat_model_info *info, pleat_error *err) {
    PLEAT_FAIL_IF(opt->size_bytes != sizeof *opt, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "engine: options are not from pleat_engine_options_default()");
    if (opt->max_tokens == 0) opt->max_tokens = info->n_ctx;
    PLEAT_FAIL_IF(opt->max_tokens > info->n_ctx, err, PLEAT_E_LIMIT, PLEAT_NOWHERE,
                  "engine: a context of %u tokens is longer than the model's %u", opt->max_tokens, info->n_ctx);
    PLEAT_FAIL_IF(opt->chunk_tokens == 0 || opt->max_seqs == 0, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "engine: chunk_tokens and max_seqs must be at least 1");
    PLEAT_FAIL_IF(opt->devices > 1, err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE, "engine: %u GPUs: one is the most yet",
                  opt->devices);
    if (opt->activation_bits == 0) opt->activation_bits = DEFAULT_ACTIVATION_BITS;
    PLEAT_FAIL_IF(opt->activation_bits != 8 && opt->activation_bits != 16, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "engine: activations of %u bits: they have 8 or 16", opt->activation_bits);
    PLEAT_FAIL_IF(opt->activation_bits == 8 && opt->devices, err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "engine: activations of 8 bits are for the CPU; a GPU multiplies halves");
    opt->chunk_tokens = opt->chunk_tokens < opt->max_tokens ? opt->chunk_tokens : opt->max_tokens;
    if (opt->max_items == 0) opt->max_items = opt->max_seqs;
    if (opt->step_tokens == 0)
        opt->step_tokens = opt->chunk_tokens > opt->max_items ? opt->chunk_tokens : opt->max_items;
    return PLEAT_OK;
}

pleat_status pleat_engine_create(const pleat_model *model, const pleat_engine_options *opt, pleat_engine **out,
                                 pleat_error *err) {
    PLEAT_FAIL_IF(!model || !opt || !out, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "engine: no model, no options or no place for the result");
    const pleat_allocator al = pleat__allocator_or_default(opt->allocator);
    pleat_engine *e = pleat__alloc_zero(&al, 1, sizeof *e);
    PLEAT_FAIL_IF(!e, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "engine: out of memory");
    e->al = al;
    e->model = model;
    e->opt = *opt;
    e->opt.allocator = &e->al; /* the caller's may be gone when the options are asked for */
    pleat_model_get_info(model, &e->info);
    pleat_status status = complete_options(&e->opt, &e->info, err);
    e->ops = e->opt.devices ? &pleat__engine_on_device : &pleat__engine_on_cpu;
    if (status == PLEAT_OK) status = e->ops->create(e, err);
    if (status == PLEAT_OK) e->damaged = pleat__model_damaged_tensor(e->model, e->opt.workers);
    pleat__model_release(e->model);
    if (status != PLEAT_OK) {
        pleat_engine_destroy(&e);
        return status;
    }
    *out = e;
    return PLEAT_OK;
}

void pleat_engine_destroy(pleat_engine **engine) {
    if (!engine || !*engine) return;
    pleat_engine *e = *engine;
    const pleat_allocator al = e->al;
    e->ops->destroy(e);
    pleat__free(&al, e, 1, sizeof *e);
    *engine = NULL;
}

void pleat_engine_get_options(const pleat_engine *e, pleat_engine_options *out) {
    if (e && out) *out = e->opt;
}

pleat_status pleat_engine_open(pleat_engine *e, uint32_t max_tokens, pleat_seq *out) {
    return e ? e->ops->open(e, max_tokens, out) : PLEAT_E_ARG;
}

pleat_status pleat_engine_fork(pleat_engine *e, pleat_seq seq, uint32_t max_tokens, pleat_seq *out) {
    return e ? e->ops->fork(e, seq, max_tokens, out) : PLEAT_E_ARG;
}

pleat_status pleat_engine_restore(pleat_engine *e, const void *image, uint64_t n_bytes, pleat_seq base,
                                  pleat_seq *out) {
    return e ? e->ops->restore(e, image, n_bytes, base, 0, out) : PLEAT_E_ARG;
}

pleat_status pleat_engine_restore_for(pleat_engine *e, const void *image, uint64_t n_bytes, pleat_seq base,
                                      uint32_t max_tokens, pleat_seq *out) {
    return e && max_tokens ? e->ops->restore(e, image, n_bytes, base, max_tokens, out) : PLEAT_E_ARG;
}

pleat_status pleat_engine_compress(pleat_engine *e, pleat_seq seq, float ah, float al) {
    return e ? e->ops->compress(e, seq, ah, al) : PLEAT_E_ARG;
}

pleat_status pleat_engine_close(pleat_engine *e, pleat_seq seq) { return e ? e->ops->close(e, seq) : PLEAT_E_ARG; }

uint32_t pleat_engine_length(const pleat_engine *e, pleat_seq seq) { return e ? e->ops->length(e, seq) : 0; }

pleat_status pleat_engine_get_usage(const pleat_engine *e, pleat_seq seq, pleat_cache_usage *out) {
    return e && out ? e->ops->get_usage(e, seq, out) : PLEAT_E_ARG;
}

pleat_status pleat_engine_get_traits(const pleat_engine *e, pleat_cache_traits *out) {
    return e && out && out->size_bytes == sizeof *out ? e->ops->get_traits(e, out) : PLEAT_E_ARG;
}

uint32_t pleat_engine_n_open(const pleat_engine *e) { return e ? e->ops->n_open(e) : 0; }

uint32_t pleat_engine_max_kept(const pleat_engine *e, uint32_t n_prompt) {
    return e ? e->ops->max_kept(e, n_prompt) : 0;
}

uint64_t pleat_engine_pages_needed(const pleat_engine *e, const pleat_cache_item *item) {
    return e && item ? e->ops->pages_needed(e, item) : UINT64_MAX;
}

uint64_t pleat_engine_pages_held(const pleat_engine *e, pleat_seq seq) { return e ? e->ops->pages_held(e, seq) : 0; }

uint64_t pleat_engine_pages_shared(const pleat_engine *e, pleat_seq a, pleat_seq b) {
    return e ? e->ops->pages_shared(e, a, b) : 0;
}

uint64_t pleat_engine_fork_pages(const pleat_engine *e, pleat_seq seq) { return e ? e->ops->fork_pages(e, seq) : 0; }

pleat_status pleat_engine_get_sides(const pleat_engine *e, pleat_seq seq, pleat_cache_sides *out) {
    return e && out ? e->ops->get_sides(e, seq, out) : PLEAT_E_ARG;
}

void pleat_engine_get_times(const pleat_engine *e, pleat_cache_times *out) {
    if (e && out) e->ops->get_times(e, out);
}

uint64_t pleat_engine_image_bytes(const pleat_engine *e, pleat_seq seq, pleat_seq base) {
    return e ? e->ops->image_bytes(e, seq, base) : 0;
}

pleat_status pleat_engine_save(const pleat_engine *e, pleat_seq seq, pleat_seq base, void *image, uint64_t cap_bytes) {
    return e ? e->ops->save(e, seq, base, image, cap_bytes) : PLEAT_E_ARG;
}

pleat_status pleat_engine_save_soon(const pleat_engine *e, pleat_seq seq, pleat_seq base, void *image,
                                    uint64_t cap_bytes) {
    return e ? e->ops->save_soon(e, seq, base, image, cap_bytes) : PLEAT_E_ARG;
}

uint64_t pleat_engine_image_pages(const pleat_engine *e, const void *image, uint64_t n_bytes) {
    return e ? e->ops->image_pages(e, image, n_bytes) : 0;
}

void pleat_engine_expect_images(pleat_engine *e, uint64_t n_bytes) {
    if (e && n_bytes > 0 && e->ops->expect_images) e->ops->expect_images(e, n_bytes);
}

void *pleat_engine_take_image(pleat_engine *e, uint64_t n_bytes) {
    return e && n_bytes ? e->ops->take_image(e, n_bytes) : NULL;
}

void pleat_engine_drop_image(pleat_engine *e, void *image, uint64_t n_bytes) {
    if (e && image) e->ops->drop_image(e, image, n_bytes);
}

pleat_status pleat_engine_image_head(const pleat_engine *e, pleat_image_head *out) {
    if (!e || !out) return PLEAT_E_ARG;
    pleat_image_head head;
    pleat_image_head_default(&head);
    PLEAT_TRY(pleat_model_fingerprint(e->model, head.model));
    if (pleat_spec_takes_stats(&e->opt.spec))
        (void)snprintf(head.profile, sizeof head.profile, "%s", pleat_stats_fingerprint(e->opt.stats));
    head.n_layers = e->info.n_layers;
    head.n_q_heads = e->info.n_q_heads;
    head.n_kv_heads = e->info.n_kv_heads;
    head.head_dim = e->info.head_dim;
    head.page_tokens = e->opt.page_tokens;
    *out = head;
    return PLEAT_OK;
}

const pleat_cache *pleat_engine_cache(const pleat_engine *e) { return e ? e->cache : NULL; }

const pleat_model *pleat_engine_model(const pleat_engine *e) { return e ? e->model : NULL; }

int pleat_engine_is_valid(const pleat_engine *e) { return e && e->ops->is_valid(e); }

/* ---- a step ---------------------------------------------------------------------------------- */

static pleat_status check_item(const pleat_engine *e, const pleat_engine_item *item, uint32_t i, pleat_error *err) {
    PLEAT_FAIL_IF(!item->tokens || item->n_tokens == 0 || item->n_logits > item->n_tokens ||
                      (item->n_logits > 0 && !item->logits),
                  err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "step: item %u has no tokens, or wants logits that it has no tokens or place for", i);
    PLEAT_FAIL_IF(item->n_tokens > e->opt.chunk_tokens, err, PLEAT_E_LIMIT, PLEAT_NOWHERE,
                  "step: item %u has %u tokens, more than the %u of a chunk", i, item->n_tokens, e->opt.chunk_tokens);
    for (uint32_t t = 0; t < item->n_tokens; t++)
        PLEAT_FAIL_IF(item->tokens[t] < 0 || (uint32_t)item->tokens[t] >= e->info.n_vocab, err, PLEAT_E_ARG,
                      PLEAT_NOWHERE, "step: token %u of item %u is %d, outside 0..%u", t, i, item->tokens[t],
                      e->info.n_vocab - 1);
    return PLEAT_OK;
}

pleat_status pleat_engine_step_likeliest(pleat_engine *e, const pleat_engine_item *items, uint32_t n_items,
                                         pleat_token *likeliest, pleat_error *err) {
    PLEAT_FAIL_IF(!e || !items || n_items == 0 || n_items > e->opt.max_items, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "step: no engine, no items, or more items than max_items");
    PLEAT_FAIL_IF(e->damaged, err, PLEAT_E_RANGE, PLEAT_NOWHERE,
                  "step: tensor '%s' of the model holds weights that are not finite", e->damaged);
    for (uint32_t i = 0; i < n_items; i++) PLEAT_TRY(check_item(e, &items[i], i, err));
    return e->ops->step(e, items, n_items, likeliest, err);
}

pleat_status pleat_engine_step(pleat_engine *e, const pleat_engine_item *items, uint32_t n_items, pleat_error *err) {
    return pleat_engine_step_likeliest(e, items, n_items, NULL, err);
}
