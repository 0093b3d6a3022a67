/* SPDX-License-Identifier: MIT
 *
 * engine_cpu.c: an engine's operations on the CPU: a cache, and a forward pass made for the same step size.
 *
 *     step:  check items ── cache begin ── forward pass (which calls cache attend) ── cache end
 *              E_ARG, E_LIMIT  AGAIN, E_LIMIT   E_RANGE: cache cancel                 cannot fail
 */
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "engine/internal.h"
#include "engine/layers.h"

/* ---- create and destroy -------------------------------------------------------------------------- */

static pleat_status create_cache_with(pleat_engine *e, pleat_cache_options *opt, pleat_error *err) {
    pleat__engine_layers layers;
    PLEAT_TRY(pleat__engine_layers_init(e, &layers, err));
    opt->windows = layers.windows;
    opt->sink_logits = layers.sinks;
    opt->ropes = layers.ropes;
    const pleat_status status = pleat_cache_create(opt, &e->cache, err);
    pleat__engine_layers_free(e, &layers);
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
    opt.stats = e->opt.stats;
    opt.collector = e->opt.collector;
    PLEAT_TRY(create_cache_with(e, &opt, err));
    e->opt.page_tokens = pleat_cache_page_tokens(e->cache);
    return PLEAT_OK;
}

static void cpu_destroy(pleat_engine *e) {
    pleat__free(&e->al, e->unwanted, e->opt.max_items, e->info.n_vocab * sizeof *e->unwanted);
    pleat__free(&e->al, e->forward_items, e->opt.max_items, sizeof *e->forward_items);
    pleat__free(&e->al, e->cache_items, e->opt.max_items, sizeof *e->cache_items);
    pleat__forward_destroy(&e->forward);
    pleat_cache_destroy(&e->cache);
}

static pleat_status cpu_create(pleat_engine *e, pleat_error *err) {
    PLEAT_TRY(create_cache(e, err));
    PLEAT_TRY(pleat__forward_create(e->model, e->opt.step_tokens, e->opt.max_tokens, e->opt.activation_bits,
                                    e->opt.workers, &e->al, &e->forward, err));
    e->cache_items = pleat__alloc(&e->al, e->opt.max_items, sizeof *e->cache_items);
    e->forward_items = pleat__alloc(&e->al, e->opt.max_items, sizeof *e->forward_items);
    PLEAT_FAIL_IF(!e->cache_items || !e->forward_items, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "engine: out of memory");
    return PLEAT_OK;
}

/* ---- sequences ------------------------------------------------------------------------------------- */

static pleat_status cpu_open(pleat_engine *e, uint32_t max_tokens, pleat_seq *out) {
    return pleat_cache_open(e->cache, max_tokens, out);
}

static pleat_status cpu_fork(pleat_engine *e, pleat_seq seq, uint32_t max_tokens, pleat_seq *out) {
    return pleat_cache_fork(e->cache, seq, max_tokens, out);
}

static pleat_status cpu_restore(pleat_engine *e, const void *image, uint64_t n_bytes, pleat_seq base,
                                uint32_t max_tokens, pleat_seq *out) {
    return max_tokens ? pleat_cache_restore_for(e->cache, image, n_bytes, base, max_tokens, out)
                      : pleat_cache_restore(e->cache, image, n_bytes, base, out);
}

static pleat_status cpu_compress(pleat_engine *e, pleat_seq seq, float ah, float al) {
    return pleat_cache_compress(e->cache, seq, ah, al);
}

static pleat_status cpu_close(pleat_engine *e, pleat_seq seq) { return pleat_cache_close(e->cache, seq); }

static uint32_t cpu_length(const pleat_engine *e, pleat_seq seq) { return pleat_cache_length(e->cache, seq); }

static pleat_status cpu_get_usage(const pleat_engine *e, pleat_seq seq, pleat_cache_usage *out) {
    return pleat_cache_get_usage(e->cache, seq, out);
}

static int cpu_is_valid(const pleat_engine *e) { return pleat_cache_is_valid(e->cache); }

/* ---- what a scheduler asks --------------------------------------------------------------------------- */

static pleat_status cpu_get_traits(const pleat_engine *e, pleat_cache_traits *out) {
    return pleat_cache_get_traits(e->cache, out);
}

static uint32_t cpu_n_open(const pleat_engine *e) { return pleat_cache_n_open(e->cache); }

static uint32_t cpu_max_kept(const pleat_engine *e, uint32_t n_prompt) {
    return pleat_cache_max_kept(e->cache, n_prompt);
}

static uint64_t cpu_pages_needed(const pleat_engine *e, const pleat_cache_item *item) {
    return pleat_cache_pages_needed(e->cache, item);
}

static uint64_t cpu_pages_held(const pleat_engine *e, pleat_seq seq) { return pleat_cache_pages_held(e->cache, seq); }

static uint64_t cpu_pages_shared(const pleat_engine *e, pleat_seq a, pleat_seq b) {
    return pleat_cache_pages_shared(e->cache, a, b);
}

static uint64_t cpu_fork_pages(const pleat_engine *e, pleat_seq seq) {
    (void)e, (void)seq;
    return 0;
}

static pleat_status cpu_get_sides(const pleat_engine *e, pleat_seq seq, pleat_cache_sides *out) {
    return pleat_cache_get_sides(e->cache, seq, out);
}

static void cpu_get_times(const pleat_engine *e, pleat_cache_times *out) { pleat_cache_get_times(e->cache, out); }

static uint64_t cpu_image_bytes(const pleat_engine *e, pleat_seq seq, pleat_seq base) {
    return pleat_cache_image_bytes(e->cache, seq, base);
}

static pleat_status cpu_save(const pleat_engine *e, pleat_seq seq, pleat_seq base, void *image, uint64_t cap_bytes) {
    return pleat_cache_save(e->cache, seq, base, image, cap_bytes);
}

static uint64_t cpu_image_pages(const pleat_engine *e, const void *image, uint64_t n_bytes) {
    return pleat_cache_image_pages(e->cache, image, n_bytes);
}

static void *cpu_take_image(pleat_engine *e, uint64_t n_bytes) { return pleat__alloc(&e->al, 1, n_bytes); }

static void cpu_drop_image(pleat_engine *e, void *image, uint64_t n_bytes) { pleat__free(&e->al, image, 1, n_bytes); }

/* ---- a step ---------------------------------------------------------------------------------------- */

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

/* Most engines never ask for the likeliest token of an item without logits, and have no rows for them. */
static pleat_status need_unwanted(pleat_engine *e, const pleat_engine_item *items, uint32_t n_items, pleat_error *err) {
    uint32_t i = 0;
    while (i < n_items && items[i].n_logits > 0) i++;
    if (i == n_items || e->unwanted) return PLEAT_OK;
    e->unwanted = pleat__alloc(&e->al, e->opt.max_items, e->info.n_vocab * sizeof *e->unwanted);
    PLEAT_FAIL_IF(!e->unwanted, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "step: out of memory for logits");
    return PLEAT_OK;
}

/* Item i as the forward pass has it.  Where its likeliest token is wanted and no logits are, a row is made all the
 * same. */
static pleat__forward_item forward_item_of(const pleat_engine *e, const pleat_engine_item *item, uint32_t i,
                                           bool has_likeliest) {
    const bool is_unwanted = has_likeliest && item->n_logits == 0;
    return (pleat__forward_item){.tokens = item->tokens,
                                 .n_tokens = item->n_tokens,
                                 .first_pos = pleat_cache_length(e->cache, item->seq),
                                 .n_logits = is_unwanted ? 1 : item->n_logits,
                                 .logits = is_unwanted ? e->unwanted + (size_t)i * e->info.n_vocab : item->logits};
}

static pleat_token likeliest_of(const pleat_engine *e, const pleat__forward_item *item) {
    const float *logits = item->logits + (size_t)(item->n_logits - 1) * e->info.n_vocab;
    uint32_t best = 0;
    for (uint32_t i = 1; i < e->info.n_vocab; i++)
        if (logits[i] > logits[best]) best = i;
    return (pleat_token)best;
}

static pleat_status cpu_step(pleat_engine *e, const pleat_engine_item *items, uint32_t n_items, pleat_token *likeliest,
                             pleat_error *err) {
    if (likeliest) PLEAT_TRY(need_unwanted(e, items, n_items, err));
    for (uint32_t i = 0; i < n_items; i++) {
        e->cache_items[i] =
            (pleat_cache_item){.seq = items[i].seq, .n_tokens = items[i].n_tokens, .flags = items[i].flags};
        e->forward_items[i] = forward_item_of(e, &items[i], i, likeliest != NULL);
    }
    const pleat_status status = pleat_cache_begin(e->cache, e->cache_items, n_items);
    if (status != PLEAT_OK) return explain(e, status, items, n_items, err);
    const pleat_status run = pleat__forward_run(e->forward, e->cache, e->forward_items, n_items);
    if (run != PLEAT_OK) {
        (void)pleat_cache_cancel(e->cache);
        return pleat__error_set(err, run, PLEAT_NOWHERE, "step: the forward pass failed: %s", pleat_status_str(run));
    }
    for (uint32_t i = 0; likeliest && i < n_items; i++) likeliest[i] = likeliest_of(e, &e->forward_items[i]);
    return pleat_cache_end(e->cache);
}

const pleat__engine_ops pleat__engine_on_cpu = {
    .create = cpu_create,
    .destroy = cpu_destroy,
    .open = cpu_open,
    .fork = cpu_fork,
    .restore = cpu_restore,
    .compress = cpu_compress,
    .close = cpu_close,
    .length = cpu_length,
    .get_usage = cpu_get_usage,
    .is_valid = cpu_is_valid,
    .get_traits = cpu_get_traits,
    .n_open = cpu_n_open,
    .max_kept = cpu_max_kept,
    .pages_needed = cpu_pages_needed,
    .pages_held = cpu_pages_held,
    .pages_shared = cpu_pages_shared,
    .fork_pages = cpu_fork_pages,
    .get_sides = cpu_get_sides,
    .get_times = cpu_get_times,
    .image_bytes = cpu_image_bytes,
    .save = cpu_save,
    .save_soon = cpu_save,
    .image_pages = cpu_image_pages,
    .take_image = cpu_take_image,
    .drop_image = cpu_drop_image,
    .step = cpu_step,
};
