/* SPDX-License-Identifier: MIT
 *
 * key.c: see key.h.
 */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/bytes.h"
#include "store/key.h"

static void add_u32(XXH3_state_t *state, uint32_t v) {
    const uint8_t bytes[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24)};
    (void)XXH3_128bits_update(state, bytes, sizeof bytes);
}

/* Each text behind its length, so that no two heads make the same bytes. */
pleat__store_key pleat__store_key_of(const pleat_image_head *h) {
    XXH3_state_t state;
    pleat__store_key key;
    const uint32_t numbers[] = {h->n_layers, h->n_q_heads, h->n_kv_heads, h->head_dim, h->page_tokens,
                                h->n_spec,   h->n_salt,    h->n_tokens,   h->n_steps};
    (void)XXH3_128bits_reset(&state);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) add_u32(&state, numbers[i]);
    (void)XXH3_128bits_update(&state, h->model, sizeof h->model);
    (void)XXH3_128bits_update(&state, h->profile, strnlen(h->profile, sizeof h->profile));
    (void)XXH3_128bits_update(&state, h->spec, h->n_spec);
    if (h->n_salt) (void)XXH3_128bits_update(&state, h->salt, h->n_salt);
    (void)XXH3_128bits_update(&state, h->tokens, h->n_tokens * sizeof *h->tokens);
    if (h->n_steps) (void)XXH3_128bits_update(&state, h->steps, h->n_steps * sizeof *h->steps);
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits_digest(&state));
    memcpy(key.bytes, &sum, sizeof key.bytes);
    return key;
}

void pleat__store_key_digits(const pleat__store_key *key, char out[PLEAT__STORE_KEY_DIGITS + 1]) {
    pleat__put_hex(key->bytes, sizeof key->bytes, out);
}
