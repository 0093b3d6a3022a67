/* SPDX-License-Identifier: MIT
 *
 * device_cache_none.c: device_cache.h in a build without CUDA: there is no device.
 */
#include "hw/device.h"
#include "pleat/device_cache.h"

/* In hw/device_none.c's words. */
static pleat_status none(pleat_error *err) { return pleat__device_use(0, err); }

void pleat_device_cache_options_default(pleat_device_cache_options *opt) {
    if (opt) *opt = (pleat_device_cache_options){.size_bytes = sizeof *opt, .spec = {.high = {16, 16}}, .max_seqs = 1};
}

pleat_status pleat_device_cache_create(const pleat_device_cache_options *opt, pleat_device_cache **out,
                                       pleat_error *err) {
    (void)opt, (void)out;
    return none(err);
}

void pleat_device_cache_destroy(pleat_device_cache **cache) { (void)cache; }

pleat_status pleat_device_cache_prompt_begin(pleat_device_cache *cache, uint32_t seq_idx, uint32_t n_tokens,
                                             void *stream, pleat_error *err) {
    (void)cache, (void)seq_idx, (void)n_tokens, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_prompt_attend(pleat_device_cache *cache, uint32_t layer, const void *q, const void *k,
                                              const void *v, void *out, float *received, void *stream,
                                              pleat_error *err) {
    (void)layer, (void)cache, (void)q, (void)k, (void)v, (void)out, (void)received, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_prompt(pleat_device_cache *cache, uint32_t layer, const void *k, const void *v,
                                       const float *received, void *stream, pleat_error *err) {
    (void)cache, (void)layer, (void)k, (void)v, (void)received, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_prompt_end(pleat_device_cache *cache, void *stream, pleat_error *err) {
    (void)cache, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_chunk_begin(pleat_device_cache *cache, uint32_t seq_idx, uint32_t n_tokens,
                                            void *stream, pleat_error *err) {
    (void)cache, (void)seq_idx, (void)n_tokens, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_chunk_attend(pleat_device_cache *cache, uint32_t layer, const void *q, const void *k,
                                             const void *v, void *out, void *stream, pleat_error *err) {
    (void)cache, (void)layer, (void)q, (void)k, (void)v, (void)out, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_turn(pleat_device_cache *cache, uint32_t seq_idx, uint32_t n_prompt, void *stream,
                                     pleat_error *err) {
    (void)cache, (void)seq_idx, (void)n_prompt, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_fork(pleat_device_cache *cache, uint32_t from, uint32_t to, void *stream,
                                     pleat_error *err) {
    (void)cache, (void)from, (void)to, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_close(pleat_device_cache *cache, uint32_t seq_idx, void *stream, pleat_error *err) {
    (void)cache, (void)seq_idx, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_fill(pleat_device_cache *cache, uint32_t seq_idx, const uint32_t *n_high,
                                     const uint32_t *n_low, uint64_t seed, void *stream, pleat_error *err) {
    (void)cache, (void)seq_idx, (void)n_high, (void)n_low, (void)seed, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_set_batch(pleat_device_cache *cache, const uint32_t *seq_idxs, uint32_t n_seqs,
                                          void *stream, pleat_error *err) {
    (void)cache, (void)seq_idxs, (void)n_seqs, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_begin(pleat_device_cache *cache, void *stream, pleat_error *err) {
    (void)cache, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_plan_pages(pleat_device_cache *cache, void *stream, pleat_error *err) {
    (void)cache, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_append(pleat_device_cache *cache, uint32_t layer, const void *k, const void *v,
                                       void *stream, pleat_error *err) {
    (void)cache, (void)layer, (void)k, (void)v, (void)stream;
    return none(err);
}

int pleat_device_cache_takes_heads(const pleat_device_cache *cache) {
    (void)cache;
    return 0;
}

pleat_status pleat_device_cache_append_heads(pleat_device_cache *cache, uint32_t layer,
                                             const pleat_device_cache_heads *heads, void *q, void *stream,
                                             pleat_error *err) {
    (void)cache, (void)layer, (void)heads, (void)q, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_attend_f16(pleat_device_cache *cache, uint32_t layer, const void *q, void *out,
                                           void *stream, pleat_error *err) {
    (void)cache, (void)layer, (void)q, (void)out, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_attend(pleat_device_cache *cache, uint32_t layer, const void *q, float *out,
                                       float *lse2, void *stream, pleat_error *err) {
    (void)cache, (void)layer, (void)q, (void)out, (void)lse2, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_plan(pleat_device_cache *cache, pleat_device_schedule schedule, void *stream,
                                     pleat_error *err) {
    (void)cache, (void)schedule, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_end(pleat_device_cache *cache, void *stream, pleat_error *err) {
    (void)cache, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_wait(pleat_device_cache *cache, void *stream, pleat_error *err) {
    (void)cache, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_get_usage(pleat_device_cache *cache, pleat_device_cache_usage *out, void *stream,
                                          pleat_error *err) {
    (void)cache, (void)out, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_get_held(pleat_device_cache *c, uint32_t seq_idx, pleat_device_cache_held *out,
                                         void *stream, pleat_error *err) {
    (void)c, (void)seq_idx, (void)out, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_get_loads(pleat_device_cache *cache, uint64_t *pages_used, pleat_device_cache_load *out,
                                          void *stream, pleat_error *err) {
    (void)cache, (void)pages_used, (void)out, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_wait_end(pleat_device_cache *cache, uint64_t *pages_used, pleat_device_cache_load *out,
                                         void *stream, pleat_error *err) {
    (void)cache, (void)pages_used, (void)out, (void)stream;
    return none(err);
}

int pleat_device_cache_is_bounded(const pleat_device_cache *cache) {
    (void)cache;
    return 0;
}

int pleat_device_cache_wants_received(const pleat_spec *spec) {
    (void)spec;
    return 0;
}

uint32_t pleat_device_cache_max_kept(const pleat_device_cache *cache, uint32_t n_prompt) {
    (void)cache, (void)n_prompt;
    return UINT32_MAX;
}

pleat_status pleat_device_cache_get_shared(pleat_device_cache *cache, uint32_t a, uint32_t b, uint64_t *n_pages,
                                           void *stream, pleat_error *err) {
    (void)cache, (void)a, (void)b, (void)n_pages, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_length(pleat_device_cache *cache, uint32_t seq_idx, uint32_t *n_tokens, void *stream,
                                       pleat_error *err) {
    (void)cache, (void)seq_idx, (void)n_tokens, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_export(pleat_device_cache *cache, uint32_t seq_idx, uint32_t layer, uint32_t kv_head,
                                       uint32_t first, uint32_t n_tokens, float *k, float *v, void *stream,
                                       pleat_error *err) {
    (void)cache, (void)seq_idx, (void)layer, (void)kv_head, (void)first, (void)n_tokens, (void)k, (void)v, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_check(pleat_device_cache *cache, void *stream, pleat_error *err) {
    (void)cache, (void)stream;
    return none(err);
}

uint64_t pleat_device_cache_image_shift(const pleat_device_cache *cache, uint64_t n_bytes) {
    (void)cache, (void)n_bytes;
    return 0;
}

pleat_status pleat_device_cache_image_bytes(pleat_device_cache *cache, uint32_t seq_idx, uint64_t *n_bytes,
                                            void *stream, pleat_error *err) {
    (void)cache, (void)seq_idx, (void)n_bytes, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_save(pleat_device_cache *cache, uint32_t seq_idx, uint32_t max_tokens,
                                     uint32_t n_prompt, void *image, uint64_t cap_bytes, void *stream,
                                     pleat_error *err) {
    (void)cache, (void)seq_idx, (void)max_tokens, (void)n_prompt, (void)image, (void)cap_bytes, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_save_begin(pleat_device_cache *cache, uint32_t seq_idx, uint32_t max_tokens,
                                           uint32_t n_prompt, void *image, uint64_t cap_bytes, void *stream,
                                           pleat_error *err) {
    (void)cache, (void)seq_idx, (void)max_tokens, (void)n_prompt, (void)image, (void)cap_bytes, (void)stream;
    return none(err);
}

pleat_status pleat_device_cache_save_end(pleat_device_cache *cache, const void *image, pleat_error *err) {
    (void)cache, (void)image;
    return none(err);
}

pleat_status pleat_device_cache_expect_images(pleat_device_cache *cache, pleat_error *err) {
    (void)cache;
    return none(err);
}

pleat_status pleat_device_cache_read_image(pleat_device_cache *cache, const void *image, uint64_t n_bytes,
                                           pleat_device_cache_image *out, pleat_error *err) {
    (void)cache, (void)image, (void)n_bytes, (void)out;
    return none(err);
}

pleat_status pleat_device_cache_restore(pleat_device_cache *cache, uint32_t seq_idx, const void *image,
                                        uint64_t n_bytes, void *stream, pleat_error *err) {
    (void)cache, (void)seq_idx, (void)image, (void)n_bytes, (void)stream;
    return none(err);
}
