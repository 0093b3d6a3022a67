/* SPDX-License-Identifier: MIT
 *
 * name.c: what a file is called: a hash of what its head says it is of, so that who knows that knows the name.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "store/internal.h"

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

static void put_digits(const pleat__store_key *key, char out[PLEAT__STORE_NAME_BYTES + 1]) {
    static const char digits[] = "0123456789abcdef";
    for (uint32_t i = 0; i < PLEAT__STORE_NAME_BYTES; i++)
        out[i] = digits[key->bytes[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15];
    out[PLEAT__STORE_NAME_BYTES] = 0;
}

/* The folder's name is short enough for these (store.c). */
void pleat__store_path(const pleat_store *s, const pleat__store_key *key, char *out) {
    char name[PLEAT__STORE_NAME_BYTES + 1];
    put_digits(key, name);
    (void)snprintf(out, PLEAT__STORE_PATH_CAP, "%s/%s.img", s->dir, name);
}

void pleat__store_temp_path(const pleat_store *s, const pleat__store_key *key, uint64_t serial, char *out) {
    char name[PLEAT__STORE_NAME_BYTES + 1];
    put_digits(key, name);
    (void)snprintf(out, PLEAT__STORE_PATH_CAP, "%s/%s.%ld.%llu.tmp", s->dir, name, (long)getpid(),
                   (unsigned long long)serial);
}

bool pleat__store_path_of(const pleat_store *s, const char *name, char *out) {
    const int n = snprintf(out, PLEAT__STORE_PATH_CAP, "%s/%s", s->dir, name);
    return n > 0 && n < PLEAT__STORE_PATH_CAP;
}

static int digit_of(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

bool pleat__store_key_of_name(const char *name, pleat__store_key *out) {
    if (strlen(name) != PLEAT__STORE_NAME_BYTES + 4 || strcmp(name + PLEAT__STORE_NAME_BYTES, ".img") != 0)
        return false;
    for (uint32_t i = 0; i < PLEAT__STORE_NAME_BYTES; i += 2) {
        const int high = digit_of(name[i]), low = digit_of(name[i + 1]);
        if (high < 0 || low < 0) return false;
        out->bytes[i / 2] = (uint8_t)(high << 4 | low);
    }
    return true;
}

bool pleat__store_is_temp(const char *name) {
    const size_t n = strlen(name);
    return n > PLEAT__STORE_NAME_BYTES + 4 && strcmp(name + n - 4, ".tmp") == 0;
}
