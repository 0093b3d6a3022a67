/* SPDX-License-Identifier: MIT
 *
 * image_hash.h: XXH3 of 64 bits of bytes whose blocks somebody else has summed.
 *
 * XXH3 adds to eight numbers what the bytes of a block give, and stirs them before the next block.  What a block gives
 * hangs on its own bytes alone.  So a GPU sums all blocks at once, from its own copy of the bytes.  Then eight of its
 * threads go from block to block and stir: what that takes beside a link's time stands in docs/GPU-KERNELS.md, and a
 * host that others use took as long or longer.
 */
#ifndef PLEAT_CACHE_CUDA_IMAGE_HASH_H
#define PLEAT_CACHE_CUDA_IMAGE_HASH_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PLEAT__HASH_BLOCK 1024u /* bytes */
#define PLEAT__HASH_SUMS 8u     /* of a block */
#define PLEAT__HASH_WORDS 24u   /* of the key */

typedef struct pleat__image_hasher {
    const uint8_t *bytes;
    uint64_t n_bytes, n_blocks; /* blocks behind each of which the sums are stirred */
    uint64_t next;              /* block */
    uint64_t sums[PLEAT__HASH_SUMS];
} pleat__image_hasher;

/* n_bytes: above 1024.  A block's bytes may come until it is asked for. */
void pleat__image_hash_begin(pleat__image_hasher *h, const uint8_t *bytes, uint64_t n_bytes);

/* The blocks before `end`, from their bytes. */
void pleat__image_hash_bytes(pleat__image_hasher *h, uint64_t end);

/* What is left, from its bytes: the hash. */
uint64_t pleat__image_hash_end(pleat__image_hasher *h);

/* What sums are made with: of word l of stripe i of a block, which has 64 bytes, number l is
 *     sum over i of (w & 0xFFFFFFFF) * (w >> 32), w being word ^ key[i + l], and of word l ^ 1 as it is. */
void pleat__image_hash_key(uint64_t key[PLEAT__HASH_WORDS]);

/* What stirring takes: a number and what the next block gives to it become (x ^ x >> 47 ^ key) * PLEAT__HASH_PRIME, x being
 * their sum. */
#define PLEAT__HASH_PRIME 0x9E3779B1u
void pleat__image_hash_stir_key(uint64_t key[PLEAT__HASH_SUMS]);

#ifdef __cplusplus
}
#endif
#endif
