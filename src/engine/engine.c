/* SPDX-License-Identifier: MIT
 *
 * engine.c: a model on a cache, one step at a time.
 *
 *     step:  check items ── cache begin ── forward pass (which calls cache attend) ── cache end
 *              E_ARG, E_LIMIT  AGAIN, E_LIMIT   E_RANGE: cache cancel                 cannot fail
 *
 * The engine owns a cache and a forward pass made for the same step size.  Which requests share a step is the caller's
 * choice, serving's for example.
 */
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "model/forward.h"
#include "model/internal.h"
#include "pleat/engine.h"

#define DEFAULT_CHUNK_TOKENS 512u

struct pleat_engine {
    pleat_allocator al;
    const pleat_model *model;
    pleat_model_info info;
    pleat_engine_options opt; /* zeros replaced */
    pleat_cache *cache;
    pleat__forward *forward;
    const char *damaged;                /* the model's; a tensor that holds NaN or infinity; NULL: none */
    pleat_cache_item *cache_items;      /* [max_items] */
    pleat__forward_item *forward_items; /* [max_items] */
};

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
    opt->chunk_tokens = opt->chunk_tokens < opt->max_tokens ? opt->chunk_tokens : opt->max_tokens;
    if (opt->max_items == 0) opt->max_items = opt->max_seqs;
    if (opt->step_tokens == 0)
        opt->step_tokens = opt->chunk_tokens > opt->max_items ? opt->chunk_tokens : opt->max_items;
    return PLEAT_OK;
}

/* Windows and sinks of the model's layers, which the cache copies.  NULL where there are none. */
static pleat_status list_layers(pleat_engine *e, uint32_t **windows, float **sinks) {
    const uint32_t n_layers = e->info.n_layers, n_heads = e->info.n_q_heads;
    if (e->info.window > 0 && !(*windows = pleat__alloc(&e->al, n_layers, sizeof **windows))) return PLEAT_E_MEMORY;
    if (e->model->layers[0].sinks && !(*sinks = pleat__alloc(&e->al, (uint64_t)n_layers * n_heads, sizeof **sinks)))
        return PLEAT_E_MEMORY;
    for (uint32_t layer = 0; layer < n_layers; layer++) {
        if (*windows) (*windows)[layer] = pleat_model_layer_window(e->model, layer);
        if (*sinks) memcpy(*sinks + (size_t)layer * n_heads, e->model->layers[layer].sinks, n_heads * sizeof **sinks);
    }
    return PLEAT_OK;
}

static pleat_status create_cache_with(pleat_engine *e, pleat_cache_options *opt, pleat_error *err) {
    uint32_t *windows = NULL;
    float *sinks = NULL;
    pleat_status status = list_layers(e, &windows, &sinks);
    opt->windows = windows;
    opt->sink_logits = sinks;
    if (status == PLEAT_OK)
        status = pleat_cache_create(opt, &e->cache, err);
    else
        pleat__error_set(err, status, PLEAT_NOWHERE, "engine: out of memory");
    pleat__free(&e->al, windows, opt->n_layers, sizeof *windows);
    pleat__free(&e->al, sinks, (uint64_t)opt->n_layers * opt->n_q_heads, sizeof *sinks);
    return status;
}

static pleat_status create_cache(pleat_engine *e, pleat_error *err) {
    pleat_cache_options opt;
    pleat_cache_options_default(&opt);
    opt.spec = e->opt.spec;
    opt.n_layers = e->info.n_layers;
    opt.n_kv_heads = e->info.n_kv_heads;
    opt.n_q_heads = e->info.n_q_heads;
    opt.head_dim = e->info.head_dim;
    opt.softmax_scale = e->info.softmax_scale;
    opt.logit_cap = e->info.attn_logit_cap;
    opt.page_tokens = e->opt.page_tokens;
    opt.max_seqs = e->opt.max_seqs;
    opt.max_items = e->opt.max_items;
    opt.max_tokens = e->opt.max_tokens;
    opt.step_tokens = e->opt.step_tokens;
    opt.pool_bytes = e->opt.pool_bytes;
    opt.workers = e->opt.workers;
    opt.allocator = &e->al;
    PLEAT_TRY(create_cache_with(e, &opt, err));
    e->opt.page_tokens = pleat_cache_page_tokens(e->cache);
    return PLEAT_OK;
}

static pleat_status create_parts(pleat_engine *e, pleat_error *err) {
    PLEAT_TRY(create_cache(e, err));
    PLEAT_TRY(pleat__forward_create(e->model, e->opt.step_tokens, e->opt.max_tokens, e->opt.workers, &e->al,
                                    &e->forward, err));
    e->damaged = pleat__model_damaged_tensor(e->model, e->opt.workers);
    e->cache_items = pleat__alloc(&e->al, e->opt.max_items, sizeof *e->cache_items);
    e->forward_items = pleat__alloc(&e->al, e->opt.max_items, sizeof *e->forward_items);
    PLEAT_FAIL_IF(!e->cache_items || !e->forward_items, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "engine: out of memory");
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
    if (status == PLEAT_OK) status = create_parts(e, err);
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
    pleat__free(&al, e->forward_items, e->opt.max_items, sizeof *e->forward_items);
    pleat__free(&al, e->cache_items, e->opt.max_items, sizeof *e->cache_items);
    pleat__forward_destroy(&e->forward);
    pleat_cache_destroy(&e->cache);
    pleat__free(&al, e, 1, sizeof *e);
    *engine = NULL;
}

void pleat_engine_get_options(const pleat_engine *e, pleat_engine_options *out) {
    if (e && out) *out = e->opt;
}

pleat_status pleat_engine_open(pleat_engine *e, uint32_t max_tokens, pleat_seq *out) {
    return e ? pleat_cache_open(e->cache, max_tokens, out) : PLEAT_E_ARG;
}

pleat_status pleat_engine_fork(pleat_engine *e, pleat_seq seq, uint32_t max_tokens, pleat_seq *out) {
    return e ? pleat_cache_fork(e->cache, seq, max_tokens, out) : PLEAT_E_ARG;
}

pleat_status pleat_engine_restore(pleat_engine *e, const void *image, uint64_t n_bytes, pleat_seq base,
                                  pleat_seq *out) {
    return e ? pleat_cache_restore(e->cache, image, n_bytes, base, out) : PLEAT_E_ARG;
}

pleat_status pleat_engine_compress(pleat_engine *e, pleat_seq seq, float ah, float al) {
    return e ? pleat_cache_compress(e->cache, seq, ah, al) : PLEAT_E_ARG;
}

pleat_status pleat_engine_close(pleat_engine *e, pleat_seq seq) {
    return e ? pleat_cache_close(e->cache, seq) : PLEAT_E_ARG;
}

uint32_t pleat_engine_length(const pleat_engine *e, pleat_seq seq) { return e ? pleat_cache_length(e->cache, seq) : 0; }

pleat_status pleat_engine_get_usage(const pleat_engine *e, pleat_seq seq, pleat_cache_usage *out) {
    return e ? pleat_cache_get_usage(e->cache, seq, out) : PLEAT_E_ARG;
}

const pleat_cache *pleat_engine_cache(const pleat_engine *e) { return e ? e->cache : NULL; }

const pleat_model *pleat_engine_model(const pleat_engine *e) { return e ? e->model : NULL; }

int pleat_engine_is_valid(const pleat_engine *e) { return e && pleat_cache_is_valid(e->cache); }

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

/* Say in words why the cache refused a step. */
static pleat_status explain(const pleat_engine *e, pleat_status status, const pleat_engine_item *items,
                            uint32_t n_items, pleat_error *err) {
    pleat_cache_usage u = {0};
    (void)pleat_cache_get_usage(e->cache, (pleat_seq){0}, &u);
    PLEAT_FAIL_IF(status == PLEAT_AGAIN, err, status, PLEAT_NOWHERE,
                  "step: too few free pages: %llu of %llu are in use", (unsigned long long)u.pages_used,
                  (unsigned long long)u.pages_total);
    PLEAT_FAIL_IF(status == PLEAT_E_MEMORY, err, status, PLEAT_NOWHERE, "step: out of memory for codebooks");
    PLEAT_FAIL_IF(status != PLEAT_E_LIMIT, err, status, PLEAT_NOWHERE,
                  "step: an unknown sequence, one that stands twice, or unknown flags");
    uint64_t n_rows = 0;
    for (uint32_t i = 0; i < n_items; i++) {
        const uint32_t max_tokens = pleat_cache_max_tokens(e->cache, items[i].seq);
        const uint64_t n = (uint64_t)pleat_cache_length(e->cache, items[i].seq) + items[i].n_tokens;
        PLEAT_FAIL_IF(n > max_tokens, err, status, PLEAT_NOWHERE,
                      "step: item %u would hold %llu tokens, more than the %u that it was opened for", i,
                      (unsigned long long)n, max_tokens);
        n_rows += items[i].n_tokens;
    }
    PLEAT_FAIL_IF(n_rows > e->opt.step_tokens, err, status, PLEAT_NOWHERE,
                  "step: %llu new tokens, more than the %u of a step", (unsigned long long)n_rows, e->opt.step_tokens);
    return pleat__error_set(err, status, PLEAT_NOWHERE,
                            "step: a sequence would need more than the %llu pages of the pool",
                            (unsigned long long)u.pages_total);
}

pleat_status pleat_engine_step(pleat_engine *e, const pleat_engine_item *items, uint32_t n_items, pleat_error *err) {
    PLEAT_FAIL_IF(!e || !items || n_items == 0 || n_items > e->opt.max_items, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "step: no engine, no items, or more items than max_items");
    PLEAT_FAIL_IF(e->damaged, err, PLEAT_E_RANGE, PLEAT_NOWHERE,
                  "step: tensor '%s' of the model holds weights that are not finite", e->damaged);
    for (uint32_t i = 0; i < n_items; i++) {
        PLEAT_TRY(check_item(e, &items[i], i, err));
        e->cache_items[i] =
            (pleat_cache_item){.seq = items[i].seq, .n_tokens = items[i].n_tokens, .flags = items[i].flags};
        e->forward_items[i] = (pleat__forward_item){.tokens = items[i].tokens,
                                                    .n_tokens = items[i].n_tokens,
                                                    .first_pos = pleat_cache_length(e->cache, items[i].seq),
                                                    .n_logits = items[i].n_logits,
                                                    .logits = items[i].logits};
    }
    const pleat_status status = pleat_cache_begin(e->cache, e->cache_items, n_items);
    if (status != PLEAT_OK) return explain(e, status, items, n_items, err);
    const pleat_status run = pleat__forward_run(e->forward, e->cache, e->forward_items, n_items);
    if (run == PLEAT_OK) return pleat_cache_end(e->cache);
    (void)pleat_cache_cancel(e->cache);
    return pleat__error_set(err, run, PLEAT_NOWHERE, "step: the forward pass failed: %s", pleat_status_str(run));
}
