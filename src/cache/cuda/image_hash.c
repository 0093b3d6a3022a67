/* SPDX-License-Identifier: MIT
 *
 * image_hash.c: see image_hash.h.
 */
#include "cache/cuda/image_hash.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    STRIPE = 64,
    STRIPES = PLEAT__HASH_BLOCK / STRIPE,
    STIR_AT = 128, /* in the secret */
    LAST_AT = STIR_AT - 7,
    END_AT = 11
};

static uint64_t load(const uint8_t *p) {
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* Add what n stripes give; each next one with the secret 8 bytes further on. */
static void add(uint64_t *sums, const uint8_t *stripes, const uint8_t *secret, uint64_t n) {
    for (uint64_t i = 0; i < n; i++, stripes += STRIPE, secret += sizeof(uint64_t)) {
        for (uint32_t l = 0; l < PLEAT__HASH_SUMS; l++) {
            const uint64_t word = load(stripes + l * sizeof word), w = word ^ load(secret + l * sizeof word);
            sums[l ^ 1] += word;
            sums[l] += (w & 0xFFFFFFFFu) * (w >> 32);
        }
    }
}

_Static_assert(PLEAT__HASH_PRIME == XXH_PRIME32_1, "XXH3's");

static void stir(uint64_t *sums) {
    uint64_t key[PLEAT__HASH_SUMS];
    pleat__image_hash_stir_key(key);
    for (uint32_t l = 0; l < PLEAT__HASH_SUMS; l++) sums[l] = (sums[l] ^ sums[l] >> 47 ^ key[l]) * PLEAT__HASH_PRIME;
}

void pleat__image_hash_begin(pleat__image_hasher *h, const uint8_t *bytes, uint64_t n_bytes) {
    static const uint64_t first[PLEAT__HASH_SUMS] = XXH3_INIT_ACC;
    *h = (pleat__image_hasher){.bytes = bytes, .n_bytes = n_bytes, .n_blocks = (n_bytes - 1) / PLEAT__HASH_BLOCK};
    memcpy(h->sums, first, sizeof first);
}

void pleat__image_hash_bytes(pleat__image_hasher *h, uint64_t end) {
    for (; h->next < end; h->next++) {
        add(h->sums, h->bytes + h->next * PLEAT__HASH_BLOCK, XXH3_kSecret, STRIPES);
        stir(h->sums);
    }
}

uint64_t pleat__image_hash_end(pleat__image_hasher *h) {
    pleat__image_hash_bytes(h, h->n_blocks);
    const uint64_t at = h->n_blocks * PLEAT__HASH_BLOCK;
    add(h->sums, h->bytes + at, XXH3_kSecret, (h->n_bytes - 1 - at) / STRIPE);
    add(h->sums, h->bytes + h->n_bytes - STRIPE, XXH3_kSecret + LAST_AT, 1);
    return XXH3_mergeAccs(h->sums, XXH3_kSecret + END_AT, h->n_bytes * XXH_PRIME64_1);
}

void pleat__image_hash_key(uint64_t key[PLEAT__HASH_WORDS]) {
    for (uint32_t i = 0; i < PLEAT__HASH_WORDS; i++) key[i] = load(XXH3_kSecret + i * sizeof *key);
}

void pleat__image_hash_stir_key(uint64_t key[PLEAT__HASH_SUMS]) {
    for (uint32_t l = 0; l < PLEAT__HASH_SUMS; l++) key[l] = load(XXH3_kSecret + STIR_AT + l * sizeof *key);
}
