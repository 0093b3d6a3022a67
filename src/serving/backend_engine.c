/* SPDX-License-Identifier: MIT
 *
 * backend_engine.c: an engine as serving's backend.
 *
 * It hands on: how pages are taken and returned is the cache's traits (pleat/cache.h).
 */
#include <string.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "serving/backend.h"

typedef struct engine_backend {
    pleat_allocator al;
    pleat_engine *engine;
    uint64_t start_ns;
} engine_backend;

/* ---- sequences and steps --------------------------------------------------------------------------- */

static pleat_status backend_open(void *ctx, uint32_t max_tokens, pleat_seq *out) {
    return pleat_engine_open(((engine_backend *)ctx)->engine, max_tokens, out);
}

static pleat_status backend_fork(void *ctx, pleat_seq seq, uint32_t max_tokens, pleat_seq *out) {
    return pleat_engine_fork(((engine_backend *)ctx)->engine, seq, max_tokens, out);
}

static void backend_close(void *ctx, pleat_seq seq) { (void)pleat_engine_close(((engine_backend *)ctx)->engine, seq); }

static uint64_t backend_fork_pages(void *ctx, pleat_seq seq) {
    return pleat_engine_fork_pages(((engine_backend *)ctx)->engine, seq);
}

static pleat_status backend_run(void *ctx, const pleat_engine_item *items, uint32_t n_items, pleat_token *likeliest,
                                pleat_error *err) {
    return pleat_engine_step_likeliest(((engine_backend *)ctx)->engine, items, n_items, likeliest, err);
}

static pleat_status backend_compress(void *ctx, pleat_seq seq, float ah, float al) {
    return pleat_engine_compress(((engine_backend *)ctx)->engine, seq, ah, al);
}

/* ---- pages ----------------------------------------------------------------------------------------- */

static uint32_t backend_budget(void *ctx, uint32_t n_prompt) {
    return pleat_engine_max_kept(((engine_backend *)ctx)->engine, n_prompt);
}

static uint64_t backend_pages_needed(void *ctx, pleat_seq seq, uint32_t n_tokens, uint32_t flags) {
    const pleat_cache_item item = {.seq = seq, .n_tokens = n_tokens, .flags = flags};
    return pleat_engine_pages_needed(((engine_backend *)ctx)->engine, &item);
}

static uint64_t backend_pages_of(void *ctx, pleat_seq seq) {
    return seq.v ? pleat_engine_pages_held(((engine_backend *)ctx)->engine, seq) : 0;
}

static uint64_t backend_pages_shared(void *ctx, pleat_seq a, pleat_seq b) {
    return pleat_engine_pages_shared(((engine_backend *)ctx)->engine, a, b);
}

static uint64_t backend_pages_used(void *ctx) {
    return pleat_engine_pages_held(((engine_backend *)ctx)->engine, (pleat_seq){0});
}

static void backend_pages_by_side(void *ctx, pleat_seq seq, uint64_t *high, uint64_t *low) {
    pleat_cache_sides sides = {0};
    (void)pleat_engine_get_sides(((engine_backend *)ctx)->engine, seq, &sides);
    *high = sides.high_pages;
    *low = sides.low_pages;
}

static void backend_slots_of(void *ctx, pleat_seq seq, uint64_t *live, uint64_t *held) {
    pleat_cache_sides sides = {0};
    (void)pleat_engine_get_sides(((engine_backend *)ctx)->engine, seq, &sides);
    *live = sides.live_slots;
    *held = sides.held_slots;
}

static void backend_bytes_of(void *ctx, pleat_seq seq, uint64_t *bytes, uint64_t *bytes_f16) {
    pleat_cache_usage usage = {0};
    (void)pleat_engine_get_usage(((engine_backend *)ctx)->engine, seq, &usage);
    *bytes = usage.bytes;
    *bytes_f16 = usage.bytes_f16;
}

/* ---- images ---------------------------------------------------------------------------------------- */

static uint64_t backend_image_bytes(void *ctx, pleat_seq seq, pleat_seq base) {
    return pleat_engine_image_bytes(((engine_backend *)ctx)->engine, seq, base);
}

static pleat_status backend_save(void *ctx, pleat_seq seq, pleat_seq base, pleat__image *out) {
    const engine_backend *b = ctx;
    pleat__image image = {.n_bytes = pleat_engine_image_bytes(b->engine, seq, base)};
    if (image.n_bytes == 0) return PLEAT_E_ARG;
    image.data_bytes = image.n_bytes;
    image.data = pleat_engine_take_image(b->engine, image.data_bytes);
    if (!image.data) return PLEAT_E_MEMORY;
    const uint64_t start_ns = pleat__clock_ns();
    const pleat_status status = pleat_engine_save_soon(b->engine, seq, base, image.data, image.n_bytes);
    image.moved_ns = pleat__clock_ns() - start_ns;
    if (status != PLEAT_OK) {
        pleat_engine_drop_image(b->engine, image.data, image.data_bytes);
        return status;
    }
    image.n_pages = pleat_engine_image_pages(b->engine, image.data, image.n_bytes);
    *out = image;
    return PLEAT_OK;
}

static pleat_status backend_restore(void *ctx, const pleat__image *image, pleat_seq base, pleat_seq *out) {
    pleat_engine *engine = ((engine_backend *)ctx)->engine;
    if (image->max_tokens > 0)
        return pleat_engine_restore_for(engine, image->data, image->n_bytes, base, image->max_tokens, out);
    return pleat_engine_restore(engine, image->data, image->n_bytes, base, out);
}

static pleat_status backend_describe(void *ctx, pleat_image_head *out) {
    const engine_backend *b = ctx;
    return pleat_engine_image_head(b->engine, out);
}

static pleat_status backend_save_into(void *ctx, pleat_seq seq, void *data, uint64_t n_bytes) {
    return pleat_engine_save(((engine_backend *)ctx)->engine, seq, (pleat_seq){0}, data, n_bytes);
}

static uint64_t backend_image_pages(void *ctx, const void *data, uint64_t n_bytes) {
    return pleat_engine_image_pages(((engine_backend *)ctx)->engine, data, n_bytes);
}

static void backend_drop(void *ctx, pleat__image *image) {
    pleat_engine_drop_image(((engine_backend *)ctx)->engine, image->data, image->data_bytes);
    *image = (pleat__image){0};
}

static void backend_expect(void *ctx, uint64_t n_bytes) {
    pleat_engine_expect_images(((engine_backend *)ctx)->engine, n_bytes);
}

/* ---- the rest -------------------------------------------------------------------------------------- */

static uint64_t backend_clock_ns(void *ctx) { return pleat__clock_ns() - ((engine_backend *)ctx)->start_ns; }

static void backend_advance(void *ctx, uint64_t ns) { (void)ctx, (void)ns; } /* it passes by itself */

static void backend_work(void *ctx, pleat__backend_work *out) {
    pleat_cache_times t;
    pleat_engine_get_times(((engine_backend *)ctx)->engine, &t);
    *out = (pleat__backend_work){.pages_ns = t.pages_ns[0] + t.pages_ns[1],
                                 .compact_ns = t.compact_ns[0] + t.compact_ns[1],
                                 .tokens_moved = t.tokens_moved,
                                 .pages_returned = t.pages_returned};
}

static bool backend_is_valid(void *ctx) { return pleat_engine_is_valid(((engine_backend *)ctx)->engine) != 0; }

static void backend_destroy(void *ctx) {
    const pleat_allocator al = ((engine_backend *)ctx)->al;
    pleat__free(&al, ctx, 1, sizeof(engine_backend));
}

/* How pages are taken and returned. */
static pleat_status set_pages(const pleat_engine *engine, pleat__backend_shape *shape) {
    pleat_cache_traits t = {.size_bytes = sizeof t};
    PLEAT_TRY(pleat_engine_get_traits(engine, &t));
    shape->n_pages = t.n_pages;
    shape->page_bytes = t.page_bytes;
    shape->n_lanes = t.n_lanes;
    shape->page_tokens = t.high_page_tokens;
    shape->spare_pages = t.spare_pages;
    shape->n_ring_lanes = t.n_ring_lanes;
    shape->ring_slots = t.ring_slots;
    shape->window = t.window;
    shape->is_packed = t.is_packed;
    shape->is_bounded = t.is_bounded;
    shape->takes_fresh = t.takes_fresh;
    shape->has_policy = t.has_policy;
    shape->shares_late = t.shares_late;
    shape->can_compress = t.can_compress;
    return PLEAT_OK;
}

static pleat_status shape_of(const engine_backend *b, pleat__backend_shape *shape) {
    pleat_engine_options o;
    pleat_engine_get_options(b->engine, &o);
    *shape = (pleat__backend_shape){
        .fraction = 1,
        .max_items = o.max_items,
        .max_seqs = o.max_seqs,
        .max_tokens = o.max_tokens,
        .chunk_tokens = o.chunk_tokens,
        .step_tokens = o.step_tokens,
        .model = pleat_engine_model(b->engine),
        .ah = o.spec.ah,
        .al = o.spec.al,
        .has_bases = o.devices == 0,
        .finds_likeliest = o.devices > 0,
    };
    PLEAT_TRY(set_pages(b->engine, shape));
    pleat_model_info info;
    pleat_model_get_info(shape->model, &info);
    shape->n_vocab = info.n_vocab;
    return pleat_spec_print(&o.spec, shape->key, sizeof shape->key);
}

static pleat_status check_engine(const pleat_engine *engine, pleat_error *err) {
    pleat_engine_options o;
    const uint32_t n_open = pleat_engine_n_open(engine);
    PLEAT_FAIL_IF(n_open > 0, err, PLEAT_E_ARG, PLEAT_NOWHERE, "serving: the engine has %u open sequences", n_open);
    pleat_engine_get_options(engine, &o);
    PLEAT_FAIL_IF(
        o.devices > 0 && !pleat_spec_is_exact(&o.spec) && o.chunk_tokens < o.max_tokens, err, PLEAT_E_UNSUPPORTED,
        PLEAT_NOWHERE,
        "serving: on a GPU a prompt is read whole where a policy acts or tokens become blocks: chunks of %u are "
        "shorter than sequences of %u",
        o.chunk_tokens, o.max_tokens);
    PLEAT_FAIL_IF(o.spec.policy == PLEAT_POLICY_KVZIP, err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "serving: kvzip reads each prompt twice, which no request does: it would keep every token");
    return PLEAT_OK;
}

pleat_status pleat__backend_on_engine(pleat_engine *engine, const pleat_allocator *allocator, pleat__backend *out,
                                      pleat_error *err) {
    PLEAT_FAIL_IF(!engine, err, PLEAT_E_ARG, PLEAT_NOWHERE, "serving: no engine");
    PLEAT_TRY(check_engine(engine, err));
    const pleat_allocator al = pleat__allocator_or_default(allocator);
    engine_backend *b = pleat__alloc(&al, 1, sizeof *b);
    PLEAT_FAIL_IF(!b, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "serving: out of memory");
    *b = (engine_backend){.al = al, .engine = engine, .start_ns = pleat__clock_ns()};
    *out = (pleat__backend){
        .ctx = b,
        .open = backend_open,
        .fork = backend_fork,
        .close = backend_close,
        .fork_pages = backend_fork_pages,
        .run = backend_run,
        .budget = backend_budget,
        .pages_needed = backend_pages_needed,
        .pages_of = backend_pages_of,
        .pages_shared = backend_pages_shared,
        .pages_used = backend_pages_used,
        .pages_by_side = backend_pages_by_side,
        .slots_of = backend_slots_of,
        .bytes_of = backend_bytes_of,
        .image_bytes = backend_image_bytes,
        .save = backend_save,
        .restore = backend_restore,
        .drop = backend_drop,
        .expect = backend_expect,
        .compress = backend_compress,
        .describe = backend_describe,
        .save_into = backend_save_into,
        .image_pages = backend_image_pages,
        .clock_ns = backend_clock_ns,
        .advance = backend_advance,
        .work = backend_work,
        .is_valid = backend_is_valid,
        .destroy = backend_destroy,
    };
    const pleat_status status = shape_of(b, &out->shape);
    if (status != PLEAT_OK) backend_destroy(b);
    return status;
}
