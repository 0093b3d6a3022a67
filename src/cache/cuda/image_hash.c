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

static uint64_t stirred(uint64_t sum, uint64_t key) { return (sum ^ sum >> 47 ^ key) * XXH_PRIME32_1; }

static void stir(uint64_t *sums) {
    for (uint32_t l = 0; l < PLEAT__HASH_SUMS; l++)
        sums[l] = stirred(sums[l], load(XXH3_kSecret + STIR_AT + l * sizeof *sums));
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

/* Four of the eight numbers, in registers: one alone would wait for its multiplications. */
static void stir_four(uint64_t *four, const uint64_t *sums, uint64_t n, const uint8_t *secret) {
    uint64_t key[4], a = four[0], b = four[1], c = four[2], d = four[3];
    memcpy(key, secret, sizeof key);
    for (; n > 0; n--, sums += PLEAT__HASH_SUMS) {
        a = stirred(a + sums[0], key[0]);
        b = stirred(b + sums[1], key[1]);
        c = stirred(c + sums[2], key[2]);
        d = stirred(d + sums[3], key[3]);
    }
    four[0] = a, four[1] = b, four[2] = c, four[3] = d;
}

void pleat__image_hash_sums(pleat__image_hasher *h, const uint64_t *sums, uint64_t n) {
    for (uint32_t l = 0; l < PLEAT__HASH_SUMS; l += 4)
        stir_four(h->sums + l, sums + l, n, XXH3_kSecret + STIR_AT + l * sizeof *sums);
    h->next += n;
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
