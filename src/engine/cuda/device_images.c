/* SPDX-License-Identifier: MIT
 *
 * device_images.c: images of an engine's sequences on a GPU, and the memory of the host that they are in.
 *
 * Copies are fast to pinned memory alone, and pinning takes much longer than they do.  So it is pinned in large slabs
 * (engine/slabs.h), ahead of images where these are expected.
 */
#include "core/error.h"
#include "engine/cuda/engine_device.h"
#include "hw/pinned.h"

/* ---- memory ---------------------------------------------------------------------------------------------- */

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

#define SLAB_BYTES (512ull << 20)
#define READY_BYTES (2ull << 30) /* kept pinned ahead of images: steps bring less while another slab is pinned */

static void *pin(void *ctx, uint64_t n_bytes) {
    const pleat_engine *e = ctx;
    void *p = NULL;
    if (pleat__device_use(e->opt.first_device, NULL) != PLEAT_OK) return NULL;
    return pleat__device_pin(n_bytes, &p, NULL) == PLEAT_OK ? p : NULL;
}

static void unpin(void *ctx, void *p, uint64_t n_bytes) {
    (void)ctx;
    pleat__device_unpin(p, n_bytes);
}

/* Slabs no larger than the pool. */
static bool has_slabs(pleat_engine *e) {
    pleat__engine_device *d = e->device;
    const pleat__slab_source source = {pin, unpin, e};
    if (!d->slabs) d->slabs = pleat__slabs_create(&source, least(SLAB_BYTES, d->n_pages * d->page_bytes), &e->al);
    return d->slabs != NULL;
}

void pleat__engine_device_expect_images(pleat_engine *e, uint64_t n_bytes) {
    if (e->opt.spec.compressor != PLEAT_COMPRESSOR_NONE) return; /* blocks have none there */
    if (pleat__device_use(e->opt.first_device, NULL) != PLEAT_OK || !has_slabs(e)) return;
    (void)pleat_device_cache_expect_images(e->device->cache, NULL);
    pleat__slabs_expect(e->device->slabs, least(READY_BYTES, n_bytes), n_bytes);
}

void *pleat__engine_device_take_image(pleat_engine *e, uint64_t n_bytes) {
    const pleat__engine_device *d = e->device;
    if (n_bytes >> 48 || pleat__device_use(e->opt.first_device, NULL) != PLEAT_OK || !has_slabs(e)) return NULL;
    if (pleat_device_cache_expect_images(d->cache, NULL) != PLEAT_OK) return NULL;
    const uint64_t shift = pleat_device_cache_image_shift(d->cache, n_bytes);
    uint8_t *p = pleat__slabs_take(d->slabs, n_bytes + shift);
    return p ? p + shift : NULL;
}

void pleat__engine_device_drop_image(pleat_engine *e, void *image, uint64_t n_bytes) {
    const pleat__engine_device *d = e->device;
    (void)pleat_device_cache_save_end(d->cache, image, NULL); /* else bytes would come to who has the memory next */
    pleat__slabs_drop(d->slabs, image, n_bytes);
}

/* ---- images ---------------------------------------------------------------------------------------------- */

uint64_t pleat__engine_device_image_bytes(const pleat_engine *e, pleat_seq seq, pleat_seq base) {
    const pleat__place *place = pleat__engine_place(e, seq);
    uint64_t n = 0;
    if (!place || place->is_spoiled || place->n_tokens == 0 || base.v) return 0;
    (void)pleat_device_cache_image_bytes(e->device->cache, pleat__place_idx(e, place), &n, e->device->stream.v, NULL);
    return n;
}

pleat_status pleat__engine_device_save_soon(const pleat_engine *e, pleat_seq seq, pleat_seq base, void *image,
                                            uint64_t cap_bytes) {
    const pleat__place *place = pleat__engine_place(e, seq);
    if (!place || !image) return PLEAT_E_ARG;
    if (base.v) return PLEAT_E_UNSUPPORTED;
    if (place->is_spoiled) return PLEAT_E_STATE;
    return pleat_device_cache_save_begin(e->device->cache, pleat__place_idx(e, place), place->max_tokens,
                                         place->n_prompt, image, cap_bytes, e->device->stream.v, NULL);
}

pleat_status pleat__engine_device_save(const pleat_engine *e, pleat_seq seq, pleat_seq base, void *image,
                                       uint64_t cap_bytes) {
    PLEAT_TRY(pleat__engine_device_save_soon(e, seq, base, image, cap_bytes));
    return pleat_device_cache_save_end(e->device->cache, image, NULL);
}

uint64_t pleat__engine_device_image_pages(const pleat_engine *e, const void *image, uint64_t n_bytes) {
    pleat_device_cache_image of;
    const pleat_status status = pleat_device_cache_read_image(e->device->cache, image, n_bytes, &of, NULL);
    return status == PLEAT_OK ? of.n_pages : 0;
}

pleat_status pleat__engine_device_restore(pleat_engine *e, const void *image, uint64_t n_bytes, pleat_seq base,
                                          uint32_t max_tokens, pleat_seq *out) {
    pleat_device_cache_image of;
    pleat_seq seq;
    if (!image || !out) return PLEAT_E_ARG;
    if (base.v) return PLEAT_E_FORMAT; /* images have none here */
    PLEAT_TRY(pleat_device_cache_read_image(e->device->cache, image, n_bytes, &of, NULL));
    if (max_tokens == 0 && of.max_tokens > e->opt.max_tokens) return PLEAT_E_FORMAT;
    if (max_tokens == 0) max_tokens = of.max_tokens;
    if (max_tokens < of.n_tokens) return PLEAT_E_ARG;
    PLEAT_TRY(pleat_engine_open(e, max_tokens, &seq));
    pleat__place *place = pleat__engine_place(e, seq);
    const pleat_status status = pleat_device_cache_restore(e->device->cache, pleat__place_idx(e, place), image, n_bytes,
                                                           e->device->stream.v, NULL);
    if (status != PLEAT_OK) {
        (void)pleat_engine_close(e, seq);
        return status;
    }
    place->n_tokens = of.n_tokens;
    place->n_prompt = of.n_prompt;
    *out = seq;
    return pleat__engine_device_recount(e, NULL);
}
