/* SPDX-License-Identifier: MIT
 *
 * engine_device.c: see engine_device.h.
 */
#include "engine/cuda/engine_device.h"

#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "engine/layers.h"

#define SEQ_IDX_BITS 17 /* as the CPU's cache has it */

/* ---- create and destroy ------------------------------------------------------------------------------ */

static void device_destroy(pleat_engine *e) {
    pleat__engine_device *d = e->device;
    if (!d) return;
    if (pleat__device_use(e->opt.first_device, NULL) == PLEAT_OK && d->stream.v) {
        (void)pleat__device_wait(d->stream, NULL);
        for (uint32_t n = 0; d->graphs && n <= e->opt.max_items; n++) pleat__device_graph_destroy(&d->graphs[n]);
        pleat__device_forward_destroy(&d->forward);
        pleat_device_cache_destroy(&d->cache);
        pleat__device_weights_destroy(&d->weights);
        pleat__device_stream_destroy(&d->stream);
    }
    pleat__slabs_destroy(&d->slabs);
    pleat__free(&e->al, d->loads, e->opt.max_seqs, sizeof *d->loads);
    pleat__free(&e->al, d->windows, e->info.n_layers, sizeof *d->windows);
    pleat__free(&e->al, d->follows, e->opt.max_items, sizeof *d->follows);
    pleat__free(&e->al, d->is_prompt, e->opt.max_items, sizeof *d->is_prompt);
    pleat__free(&e->al, d->in_batch, e->opt.max_items, sizeof *d->in_batch);
    pleat__free(&e->al, d->next, e->opt.max_items, sizeof *d->next);
    pleat__free(&e->al, d->batch, e->opt.max_items, sizeof *d->batch);
    pleat__free(&e->al, d->places, e->opt.max_seqs, sizeof *d->places);
    pleat__free(&e->al, d->n_launched, e->opt.max_items + 1ull, sizeof *d->n_launched);
    pleat__free(&e->al, d->graphs, e->opt.max_items + 1ull, sizeof *d->graphs);
    pleat__free(&e->al, d, 1, sizeof *d);
    e->device = NULL;
}

static pleat_status take_host(pleat_engine *e, pleat_error *err) {
    pleat__engine_device *d = e->device = pleat__alloc_zero(&e->al, 1, sizeof *d);
    if (d) {
        d->graphs = pleat__alloc_zero(&e->al, e->opt.max_items + 1ull, sizeof *d->graphs);
        d->n_launched = pleat__alloc_zero(&e->al, e->opt.max_items + 1ull, sizeof *d->n_launched);
        d->places = pleat__alloc_zero(&e->al, e->opt.max_seqs, sizeof *d->places);
        d->batch = pleat__alloc_zero(&e->al, e->opt.max_items, sizeof *d->batch);
        d->next = pleat__alloc_zero(&e->al, e->opt.max_items, sizeof *d->next);
        d->in_batch = pleat__alloc_zero(&e->al, e->opt.max_items, sizeof *d->in_batch);
        d->is_prompt = pleat__alloc_zero(&e->al, e->opt.max_items, sizeof *d->is_prompt);
        d->loads = pleat__alloc_zero(&e->al, e->opt.max_seqs, sizeof *d->loads);
        d->follows = pleat__alloc_zero(&e->al, e->opt.max_items, sizeof *d->follows);
    }
    PLEAT_FAIL_IF(!d || !d->graphs || !d->n_launched || !d->places || !d->batch || !d->next || !d->in_batch ||
                      !d->is_prompt || !d->loads || !d->follows,
                  err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "engine: out of memory");
    return PLEAT_OK;
}

/* Where layers have one. */
static pleat_status list_windows(pleat_engine *e, pleat_error *err) {
    if (e->info.window == 0) return PLEAT_OK;
    e->device->windows = pleat__alloc(&e->al, e->info.n_layers, sizeof *e->device->windows);
    PLEAT_FAIL_IF(!e->device->windows, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "engine: out of memory");
    for (uint32_t i = 0; i < e->info.n_layers; i++) e->device->windows[i] = pleat_model_layer_window(e->model, i);
    return PLEAT_OK;
}

static pleat_status create_cache_with(pleat_engine *e, pleat_device_cache_options *opt, pleat_error *err) {
    pleat__engine_layers layers;
    PLEAT_TRY(pleat__engine_layers_init(e, &layers, err));
    opt->ropes = layers.ropes;
    opt->stats = e->opt.stats;
    const pleat_status status = pleat_device_cache_create(opt, &e->device->cache, err);
    pleat__engine_layers_free(e, &layers);
    return status;
}

static pleat_status create_cache(pleat_engine *e, pleat_error *err) {
    pleat__engine_device *d = e->device;
    pleat_device_cache_options opt;
    pleat_device_cache_usage usage;
    pleat_device_cache_held empty;
    pleat_device_cache_options_default(&opt);
    opt.spec = e->opt.spec;
    opt.device = e->opt.first_device;
    opt.n_layers = e->info.n_layers;
    opt.n_kv_heads = e->info.n_kv_heads;
    opt.n_q_heads = e->info.n_q_heads;
    opt.head_dim = e->info.head_dim;
    PLEAT_TRY(list_windows(e, err));
    opt.windows = e->device->windows;
    opt.logit_cap = e->info.attn_logit_cap;
    opt.schedule = e->opt.fixed_splits ? PLEAT_DEVICE_FIXED_SPLITS : PLEAT_DEVICE_EQUAL_SHARES;
    opt.softmax_scale = e->info.softmax_scale;
    opt.page_tokens = e->opt.page_tokens;
    opt.max_seqs = e->opt.max_seqs;
    opt.max_tokens = e->opt.max_tokens;
    opt.pool_bytes = e->opt.pool_bytes;
    opt.allocator = &e->al;
    PLEAT_TRY(create_cache_with(e, &opt, err));
    PLEAT_TRY(pleat_device_cache_get_usage(d->cache, &usage, d->stream.v, err));
    PLEAT_TRY(pleat_device_cache_get_held(d->cache, 0, &empty, d->stream.v, err));
    d->table_bytes = empty.table_bytes;
    e->opt.page_tokens = d->page_tokens = usage.page_tokens[0];
    d->low_page_tokens = usage.page_tokens[1];
    d->n_rows = e->info.n_layers * e->info.n_kv_heads;
    d->page_bytes = usage.page_bytes;
    d->n_pages = usage.pages_total;
    d->is_uniform = pleat_spec_is_exact(&e->opt.spec) != 0;
    d->evicts = pleat_policy_evicts(e->opt.spec.policy) != 0;
    return PLEAT_OK;
}

static pleat__device_forward_options forward_options(const pleat_engine *e) {
    return (pleat__device_forward_options){.max_rows = e->opt.chunk_tokens,
                                           .max_items = e->opt.max_items,
                                           .has_scores = pleat_device_cache_wants_received(&e->opt.spec) != 0,
                                           .is_fixed = e->opt.fixed_splits != 0};
}

/* Say with numbers what does not fit, before anything is sent. */
static pleat_status check_memory(const pleat_engine *e, pleat_error *err) {
    pleat_device_info info;
    uint64_t weights;
    const pleat__device_forward_options forward = forward_options(e);
    PLEAT_TRY(pleat__device_weights_bytes(e->model, e->opt.max_tokens, &e->al, &weights, err));
    PLEAT_TRY(pleat_device_get_info(e->opt.first_device, &info, err));
    const uint64_t work = pleat__device_forward_bytes(e->model, &forward);
    PLEAT_FAIL_IF(weights + work > info.free_bytes, err, PLEAT_E_MEMORY, PLEAT_NOWHERE,
                  "engine: weights take %llu bytes of the GPU's memory and steps %llu, and %llu of %llu are free",
                  (unsigned long long)weights, (unsigned long long)work, (unsigned long long)info.free_bytes,
                  (unsigned long long)info.memory_bytes);
    return PLEAT_OK;
}

static pleat_status device_create(pleat_engine *e, pleat_error *err) {
    pleat__engine_device *d;
    PLEAT_TRY(pleat__device_use(e->opt.first_device, err));
    PLEAT_TRY(take_host(e, err));
    d = e->device;
    PLEAT_TRY(check_memory(e, err));
    PLEAT_TRY(pleat__device_stream_create(&d->stream, err));
    PLEAT_TRY(create_cache(e, err));
    PLEAT_TRY(pleat__device_weights_create(e->model, e->opt.max_tokens, e->opt.workers, &e->al, &d->weights, err));
    const pleat__device_forward_options forward = forward_options(e);
    return pleat__device_forward_create(d->weights, &forward, &e->al, &d->forward, err);
}

/* ---- sequences --------------------------------------------------------------------------------------- */

pleat__place *pleat__engine_place(const pleat_engine *e, pleat_seq seq) {
    const uint32_t at = (seq.v & ((1u << SEQ_IDX_BITS) - 1)) - 1;
    if (seq.v == 0 || at >= e->opt.max_seqs) return NULL;
    pleat__place *place = &e->device->places[at];
    return place->is_open && (place->generation << SEQ_IDX_BITS | (at + 1)) == seq.v ? place : NULL;
}

static pleat_status device_open(pleat_engine *e, uint32_t max_tokens, pleat_seq *out) {
    if (!out || max_tokens == 0 || max_tokens > e->opt.max_tokens) return PLEAT_E_ARG;
    for (uint32_t i = 0; i < e->opt.max_seqs; i++) {
        pleat__place *place = &e->device->places[i];
        if (place->is_open) continue;
        *place = (pleat__place){.is_open = true, .generation = place->generation, .max_tokens = max_tokens};
        out->v = place->generation << SEQ_IDX_BITS | (i + 1);
        return PLEAT_OK;
    }
    return PLEAT_E_LIMIT;
}

static pleat_status device_close(pleat_engine *e, pleat_seq seq) {
    pleat__place *place = pleat__engine_place(e, seq);
    if (!place) return PLEAT_E_ARG;
    PLEAT_TRY(pleat_device_cache_close(e->device->cache, pleat__place_idx(e, place), e->device->stream.v, NULL));
    *place = (pleat__place){.generation = place->generation + 1};
    e->device->n_batch = 0;
    return pleat__engine_device_recount(e, NULL);
}

static uint32_t device_length(const pleat_engine *e, pleat_seq seq) {
    const pleat__place *place = pleat__engine_place(e, seq);
    return place ? place->n_tokens : 0;
}

static pleat_status device_fork(pleat_engine *e, pleat_seq seq, uint32_t max_tokens, pleat_seq *out) {
    const pleat__place *from = pleat__engine_place(e, seq);
    pleat_seq to;
    if (!from || !out) return PLEAT_E_ARG;
    if (from->is_spoiled) return PLEAT_E_STATE;
    const uint32_t n_tokens = from->n_tokens, from_idx = pleat__place_idx(e, from);
    if (max_tokens < n_tokens) return PLEAT_E_ARG;
    PLEAT_TRY(device_open(e, max_tokens, &to));
    pleat__place *place = pleat__engine_place(e, to);
    const pleat_status status = n_tokens == 0
                                    ? PLEAT_OK
                                    : pleat_device_cache_fork(e->device->cache, from_idx, pleat__place_idx(e, place),
                                                              e->device->stream.v, NULL);
    if (status != PLEAT_OK) {
        (void)pleat_device_cache_close(e->device->cache, pleat__place_idx(e, place), e->device->stream.v, NULL);
        *place = (pleat__place){.generation = place->generation + 1};
        return status;
    }
    place->n_tokens = n_tokens;
    place->n_prompt = from->n_prompt;
    *out = to;
    return pleat__engine_device_recount(e, NULL);
}

static pleat_status device_compress(pleat_engine *e, pleat_seq seq, float ah, float al) {
    (void)e, (void)seq, (void)ah, (void)al;
    return PLEAT_E_UNSUPPORTED;
}

/* ---- all of it ------------------------------------------------------------------------------------------- */

static uint32_t device_n_open(const pleat_engine *e) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->opt.max_seqs; i++) n += e->device->places[i].is_open;
    return n;
}

/* What pages and policies take is part of the graph of a step, and not told apart. */
static void device_get_times(const pleat_engine *e, pleat_cache_times *out) {
    (void)e;
    *out = (pleat_cache_times){.tokens_moved = 0};
}

static int device_is_valid(const pleat_engine *e) {
    return pleat_device_cache_check(e->device->cache, e->device->stream.v, NULL) == PLEAT_OK;
}

const pleat__engine_ops pleat__engine_on_device = {
    .create = device_create,
    .destroy = device_destroy,
    .open = device_open,
    .fork = device_fork,
    .restore = pleat__engine_device_restore,
    .compress = device_compress,
    .close = device_close,
    .length = device_length,
    .get_usage = pleat__engine_device_get_usage,
    .is_valid = device_is_valid,
    .get_traits = pleat__engine_device_get_traits,
    .n_open = device_n_open,
    .max_kept = pleat__engine_device_max_kept,
    .pages_needed = pleat__engine_device_pages_needed,
    .pages_held = pleat__engine_device_pages_held,
    .pages_shared = pleat__engine_device_pages_shared,
    .fork_pages = pleat__engine_device_fork_pages,
    .get_sides = pleat__engine_device_get_sides,
    .get_times = device_get_times,
    .image_bytes = pleat__engine_device_image_bytes,
    .save = pleat__engine_device_save,
    .save_soon = pleat__engine_device_save_soon,
    .image_pages = pleat__engine_device_image_pages,
    .expect_images = pleat__engine_device_expect_images,
    .take_image = pleat__engine_device_take_image,
    .drop_image = pleat__engine_device_drop_image,
    .step = pleat__engine_device_step,
};
