/* SPDX-License-Identifier: MIT
 *
 * device_images.c: images of an engine's sequences on a GPU, and the memory of the host that they are in.
 *
 * Copies are fast to pinned memory alone, and pinning takes much longer than they do.  So it is pinned in large slabs, which
 * are kept, and images are units of them in a row.
 */
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "engine/cuda/engine_device.h"

/* ---- memory ---------------------------------------------------------------------------------------------- */

#define UNIT_BYTES (1ull << 20)
#define SLAB_UNITS 512u /* of a large pool; of a small one as many as it has */

static uint32_t units_of(uint64_t n_bytes) { return (uint32_t)((n_bytes + UNIT_BYTES - 1) / UNIT_BYTES); }

/* NULL: it has not so many in a row. */
static void *take_units(pleat__pinned_slab *s, uint32_t n) {
    uint32_t n_free = 0;
    for (uint32_t i = 0; i < s->n_units; i++) {
        n_free = s->is_taken[i] ? 0 : n_free + 1;
        if (n_free < n) continue;
        memset(s->is_taken + i + 1 - n, true, n * sizeof *s->is_taken);
        return s->p + (i + 1 - n) * UNIT_BYTES;
    }
    return NULL;
}

static void free_slab(pleat_engine *e, pleat__pinned_slab *s) {
    pleat__device_free_host(s->p);
    pleat__free(&e->al, s->is_taken, s->n_units, sizeof *s->is_taken);
    *s = e->device->slabs[--e->device->n_slabs];
}

void pleat__engine_device_free_slabs(pleat_engine *e) {
    pleat__engine_device *d = e->device;
    for (uint32_t i = d->n_slabs; i-- > 0;)
        if (!memchr(d->slabs[i].is_taken, true, d->slabs[i].n_units)) free_slab(e, &d->slabs[i]);
}

static bool add_slab(pleat_engine *e, uint32_t n_units) {
    pleat__engine_device *d = e->device;
    void *p = NULL;
    if (d->n_slabs == PLEAT__MAX_SLABS) return false;
    bool *is_taken = pleat__alloc_zero(&e->al, n_units, sizeof *is_taken);
    if (is_taken && pleat__device_alloc_host(n_units * UNIT_BYTES, &p, NULL) == PLEAT_OK) {
        d->slabs[d->n_slabs++] = (pleat__pinned_slab){p, is_taken, n_units};
        return true;
    }
    pleat__free(&e->al, is_taken, n_units, sizeof *is_taken);
    return false;
}

/* The place for an image in the memory that was taken, if it was. */
static void *shifted(void *p, uint64_t shift) { return p ? (uint8_t *)p + shift : NULL; }

void *pleat__engine_device_take_image(pleat_engine *e, uint64_t n_bytes) {
    pleat__engine_device *d = e->device;
    if (n_bytes == 0 || n_bytes >> 48 || pleat__device_use(e->opt.first_device, NULL) != PLEAT_OK) return NULL;
    if (pleat_device_cache_expect_images(d->cache, NULL) != PLEAT_OK) return NULL;
    const uint64_t shift = pleat_device_cache_image_shift(d->cache, n_bytes);
    const uint32_t n = units_of(n_bytes + shift);
    for (uint32_t i = 0; i < d->n_slabs; i++) {
        void *p = take_units(&d->slabs[i], n);
        if (p) return shifted(p, shift);
    }
    const uint32_t n_most = pleat__min_u32(SLAB_UNITS, units_of(d->n_pages * d->page_bytes));
    bool is_there = add_slab(e, pleat__max_u32(n, n_most));
    if (!is_there) pleat__engine_device_free_slabs(e);
    is_there = is_there || add_slab(e, n);
    return is_there ? shifted(take_units(&d->slabs[d->n_slabs - 1], n), shift) : NULL;
}

void pleat__engine_device_drop_image(pleat_engine *e, void *image, uint64_t n_bytes) {
    const pleat__engine_device *d = e->device;
    (void)pleat_device_cache_save_end(d->cache, image, NULL); /* else bytes would come to who has the memory next */
    for (uint32_t i = 0; i < d->n_slabs; i++) {
        const pleat__pinned_slab *s = &d->slabs[i];
        const uint64_t from = (uint64_t)((uintptr_t)image - (uintptr_t)s->p), at = from / UNIT_BYTES;
        if ((uintptr_t)image >= (uintptr_t)s->p && at < s->n_units)
            memset(s->is_taken + at, false, units_of(n_bytes + from % UNIT_BYTES) * sizeof *s->is_taken);
    }
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
