/* SPDX-License-Identifier: MIT
 *
 * device_images.c: images of an engine's sequences on a GPU, and the memory of the host that they are in.
 *
 * Copies are fast to pinned memory alone, and pinning takes longer than they do.  So what an image has left is kept for
 * the next one of its class of sizes, of which there are four to a power of two.
 */
#include "core/error.h"
#include "core/memory.h"
#include "engine/cuda/engine_device.h"

/* ---- memory ---------------------------------------------------------------------------------------------- */

#define LEAST_BYTES (1ull << 20)

/* Bytes of a block for an image of n_bytes. */
static uint64_t class_of(uint64_t n_bytes) {
    uint64_t step = LEAST_BYTES / 4;
    while (8 * step < n_bytes) step *= 2;
    return n_bytes <= LEAST_BYTES ? LEAST_BYTES : (n_bytes + step - 1) / step * step;
}

void pleat__engine_device_free_blocks(pleat__engine_device *d) {
    while (d->n_blocks > 0) pleat__device_free_host(d->blocks[--d->n_blocks].p);
}

void *pleat__engine_device_take_image(pleat_engine *e, uint64_t n_bytes) {
    pleat__engine_device *d = e->device;
    void *p = NULL;
    if (n_bytes == 0 || n_bytes >> 48 || pleat__device_use(e->opt.first_device, NULL) != PLEAT_OK) return NULL;
    const uint64_t bytes = class_of(n_bytes);
    for (uint32_t i = 0; i < d->n_blocks; i++) {
        if (d->blocks[i].bytes != bytes) continue;
        p = d->blocks[i].p;
        d->blocks[i] = d->blocks[--d->n_blocks];
        return p;
    }
    if (pleat__device_alloc_host(bytes, &p, NULL) == PLEAT_OK) return p;
    pleat__engine_device_free_blocks(d);
    return pleat__device_alloc_host(bytes, &p, NULL) == PLEAT_OK ? p : NULL;
}

void pleat__engine_device_drop_image(pleat_engine *e, void *image, uint64_t n_bytes) {
    pleat__engine_device *d = e->device;
    if (d->n_blocks < PLEAT__KEPT_BLOCKS)
        d->blocks[d->n_blocks++] = (pleat__pinned_block){image, class_of(n_bytes)};
    else
        pleat__device_free_host(image);
}

/* ---- images ---------------------------------------------------------------------------------------------- */

uint64_t pleat__engine_device_image_bytes(const pleat_engine *e, pleat_seq seq, pleat_seq base) {
    const pleat__place *place = pleat__engine_place(e, seq);
    uint64_t n = 0;
    if (!place || place->is_spoiled || place->n_tokens == 0 || base.v) return 0;
    (void)pleat_device_cache_image_bytes(e->device->cache, pleat__place_idx(e, place), &n, e->device->stream.v, NULL);
    return n;
}

pleat_status pleat__engine_device_save(const pleat_engine *e, pleat_seq seq, pleat_seq base, void *image,
                                       uint64_t cap_bytes) {
    const pleat__place *place = pleat__engine_place(e, seq);
    if (!place || !image) return PLEAT_E_ARG;
    if (base.v) return PLEAT_E_UNSUPPORTED;
    if (place->is_spoiled) return PLEAT_E_STATE;
    return pleat_device_cache_save(e->device->cache, pleat__place_idx(e, place), place->max_tokens, place->n_prompt,
                                   image, cap_bytes, e->device->stream.v, NULL);
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
