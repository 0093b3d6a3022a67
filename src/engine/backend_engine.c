/* SPDX-License-Identifier: MIT
 *
 * backend_engine.c: an engine as serving's backend.
 *
 * Most of it hands on.  What the public interface has no cheap question for is read from the cache's own structures: the
 * pages of one sequence, and how many of them are on which side.
 */
#include <string.h>

#include "cache/internal.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "engine/backend.h"

/* Of a lane with two sides: the low side's last page, which may be part-filled, and two that the end of a step works with
 * (cache/step.c). */
#define SPARE_PAGES 3u

typedef struct real {
    pleat_allocator al;
    pleat_engine *engine;
    const pleat_cache *cache;
    uint64_t start_ns;
} real;

/* ---- sequences and steps --------------------------------------------------------------------------- */

static pleat_status real_open(void *ctx, uint32_t max_tokens, pleat_seq *out) {
    return pleat_engine_open(((real *)ctx)->engine, max_tokens, out);
}

static pleat_status real_fork(void *ctx, pleat_seq seq, uint32_t max_tokens, pleat_seq *out) {
    return pleat_engine_fork(((real *)ctx)->engine, seq, max_tokens, out);
}

static void real_close(void *ctx, pleat_seq seq) { (void)pleat_engine_close(((real *)ctx)->engine, seq); }

static pleat_status real_run(void *ctx, const pleat_engine_item *items, uint32_t n_items, pleat_error *err) {
    return pleat_engine_step(((real *)ctx)->engine, items, n_items, err);
}

static pleat_status real_compress(void *ctx, pleat_seq seq, float ah, float al) {
    return pleat_engine_compress(((real *)ctx)->engine, seq, ah, al);
}

/* ---- pages ----------------------------------------------------------------------------------------- */

static uint32_t real_budget(void *ctx, uint32_t n_prompt) {
    const pleat_cache *c = ((real *)ctx)->cache;
    return c->evictor ? pleat__cache_most_budget(c, n_prompt) : UINT32_MAX;
}

static uint64_t real_pages_needed(void *ctx, pleat_seq seq, uint32_t n_tokens, uint32_t flags) {
    const pleat_cache_item item = {.seq = seq, .n_tokens = n_tokens, .flags = flags};
    return pleat_cache_pages_needed(((real *)ctx)->cache, &item);
}

static uint64_t real_pages_of(void *ctx, pleat_seq seq) {
    const pleat__sequence *s = pleat__cache_seq(((real *)ctx)->cache, seq);
    return s ? s->table.n_pages_all : 0;
}

static uint64_t real_pages_shared(void *ctx, pleat_seq a, pleat_seq b) {
    return pleat_cache_pages_shared(((real *)ctx)->cache, a, b);
}

static uint64_t real_pages_used(void *ctx) { return pleat__pool_used(&((real *)ctx)->cache->pool); }

static void real_pages_by_side(void *ctx, pleat_seq seq, uint64_t *high, uint64_t *low) {
    const pleat__sequence *s = pleat__cache_seq(((real *)ctx)->cache, seq);
    *low = 0;
    for (uint32_t i = 0; s && i < s->table.n_lanes; i++) *low += s->table.n_pages[PLEAT__LOW][i];
    *high = s ? s->table.n_pages_all - *low : 0;
}

/* Sums of a table's counts; where cold tokens are in blocks, all of it in the bytes that a slot of theirs has. */
static void real_slots_of(void *ctx, pleat_seq seq, uint64_t *live, uint64_t *held) {
    const pleat_cache *c = ((real *)ctx)->cache;
    const pleat__sequence *s = pleat__cache_seq(c, seq);
    const uint64_t high = c->has_blocks ? c->page_tokens[PLEAT__LOW] / c->page_tokens[PLEAT__HIGH] : 1;
    *live = *held = 0;
    for (uint32_t i = 0; s && i < s->table.n_lanes; i++) {
        const pleat__lane lane = pleat__table_lane(&s->table, i);
        *live += pleat__lane_live_high(&lane) * high + lane.n_slots[PLEAT__LOW];
        *held += lane.n_pages[PLEAT__HIGH] * c->page_tokens[PLEAT__HIGH] * high;
        *held += (uint64_t)lane.n_pages[PLEAT__LOW] * c->page_tokens[PLEAT__LOW];
    }
}

/* ---- images ---------------------------------------------------------------------------------------- */

static uint64_t real_image_bytes(void *ctx, pleat_seq seq, pleat_seq base) {
    return pleat_cache_image_bytes(((real *)ctx)->cache, seq, base);
}

static pleat_status real_save(void *ctx, pleat_seq seq, pleat_seq base, pleat__image *out) {
    const real *r = ctx;
    pleat__image image = {.n_bytes = pleat_cache_image_bytes(r->cache, seq, base)};
    if (image.n_bytes == 0) return PLEAT_E_ARG;
    image.data_bytes = image.n_bytes;
    image.data = pleat__alloc(&r->al, 1, image.data_bytes);
    if (!image.data) return PLEAT_E_MEMORY;
    const pleat_status status = pleat_cache_save(r->cache, seq, base, image.data, image.n_bytes);
    if (status != PLEAT_OK) {
        pleat__free(&r->al, image.data, 1, image.data_bytes);
        return status;
    }
    image.n_pages = pleat_cache_image_pages(r->cache, image.data, image.n_bytes);
    *out = image;
    return PLEAT_OK;
}

static pleat_status real_restore(void *ctx, const pleat__image *image, pleat_seq base, pleat_seq *out) {
    return pleat_engine_restore(((real *)ctx)->engine, image->data, image->n_bytes, base, out);
}

static void real_drop(void *ctx, pleat__image *image) {
    pleat__free(&((real *)ctx)->al, image->data, 1, image->data_bytes);
    *image = (pleat__image){0};
}

/* ---- the rest -------------------------------------------------------------------------------------- */

static uint64_t real_clock_ns(void *ctx) { return pleat__clock_ns() - ((real *)ctx)->start_ns; }

static void real_advance(void *ctx, uint64_t ns) { (void)ctx, (void)ns; } /* it passes by itself */

static void real_work(void *ctx, pleat__backend_work *out) {
    const pleat_cache *c = ((real *)ctx)->cache;
    const pleat_cache_times *t = &c->times;
    *out = (pleat__backend_work){.pages_ns = t->pages_ns[0] + t->pages_ns[1],
                                 .compact_ns = t->compact_ns[0] + t->compact_ns[1],
                                 .tokens_moved = c->n_moved,
                                 .pages_returned = c->n_returned};
}

static bool real_is_valid(void *ctx) { return pleat_engine_is_valid(((real *)ctx)->engine) != 0; }

static void real_destroy(void *ctx) {
    const pleat_allocator al = ((real *)ctx)->al;
    pleat__free(&al, ctx, 1, sizeof(real));
}

/* Slots of the lanes where all are rings, as in models whose layers all have one sliding window; else 0. */
static uint32_t most_slots_of(const pleat_cache *c) {
    uint32_t most = 0;
    for (uint32_t lane = 0; lane < c->n_lanes; lane++) {
        const uint32_t ring = pleat__cache_ring(c, lane);
        if (ring == 0) return 0;
        most = pleat__max_u32(most, ring);
    }
    return most;
}

/* How pages are taken and given back. */
static void set_pages(const pleat_cache *c, const pleat_spec *spec, pleat__backend_shape *shape) {
    shape->n_pages = c->pool.n_pages;
    shape->page_bytes = c->page_bytes;
    shape->n_lanes = c->n_lanes;
    shape->page_tokens = c->page_tokens[PLEAT__HIGH];
    shape->spare_pages = c->two_sided ? SPARE_PAGES : c->tracked && !c->evictor; /* 1: for a hole */
    shape->most_slots = most_slots_of(c);
    shape->window = spec->window;
    shape->is_packed = c->evictor && (spec->reclaim == PLEAT_RECLAIM_REUSE || spec->reclaim == PLEAT_RECLAIM_COPY);
    shape->is_bounded = shape->is_packed && c->evictor->in_generation;
    shape->takes_fresh = shape->is_packed && spec->reclaim == PLEAT_RECLAIM_COPY;
    shape->fresh_more = spec->sinks; /* cache/evict.c: what may stay beside a sealed prefix */
}

static pleat_status shape_of(const real *r, pleat__backend_shape *shape) {
    pleat_engine_options o;
    pleat_engine_get_options(r->engine, &o);
    *shape = (pleat__backend_shape){
        .fraction = 1,
        .max_items = o.max_items,
        .max_seqs = o.max_seqs,
        .max_tokens = o.max_tokens,
        .chunk_tokens = o.chunk_tokens,
        .step_tokens = o.step_tokens,
        .model = pleat_engine_model(r->engine),
        .has_policy = r->cache->tracked,
        .shares_late = r->cache->has_blocks,
        .can_compress = o.spec.policy == PLEAT_POLICY_LEANKV,
        .ah = o.spec.ah,
        .al = o.spec.al,
    };
    set_pages(r->cache, &o.spec, shape);
    pleat_model_info info;
    pleat_model_get_info(shape->model, &info);
    shape->n_vocab = info.n_vocab;
    return pleat_spec_print(&o.spec, shape->key, sizeof shape->key);
}

pleat_status pleat__backend_on_engine(pleat_engine *engine, const pleat_allocator *allocator, pleat__backend *out,
                                      pleat_error *err) {
    PLEAT_FAIL_IF(!engine, err, PLEAT_E_ARG, PLEAT_NOWHERE, "serving: no engine");
    const pleat_cache *cache = pleat_engine_cache(engine);
    PLEAT_FAIL_IF(cache->n_open > 0, err, PLEAT_E_ARG, PLEAT_NOWHERE, "serving: the engine has %u open sequences",
                  cache->n_open);
    const pleat_allocator al = pleat__allocator_or_default(allocator);
    real *r = pleat__alloc(&al, 1, sizeof *r);
    PLEAT_FAIL_IF(!r, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "serving: out of memory");
    *r = (real){.al = al, .engine = engine, .cache = cache, .start_ns = pleat__clock_ns()};
    *out = (pleat__backend){
        .ctx = r,
        .open = real_open,
        .fork = real_fork,
        .close = real_close,
        .run = real_run,
        .budget = real_budget,
        .pages_needed = real_pages_needed,
        .pages_of = real_pages_of,
        .pages_shared = real_pages_shared,
        .pages_used = real_pages_used,
        .pages_by_side = real_pages_by_side,
        .slots_of = real_slots_of,
        .image_bytes = real_image_bytes,
        .save = real_save,
        .restore = real_restore,
        .drop = real_drop,
        .compress = real_compress,
        .clock_ns = real_clock_ns,
        .advance = real_advance,
        .work = real_work,
        .is_valid = real_is_valid,
        .destroy = real_destroy,
    };
    const pleat_status status = shape_of(r, &out->shape);
    if (status != PLEAT_OK) real_destroy(r);
    return status;
}
