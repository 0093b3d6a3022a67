/* SPDX-License-Identifier: MIT
 *
 * random.c: tokens stay by chance.  rank = the top 24 bits of a hash of (layer, head, position), so that runs agree,
 * and a token's chance is drawn once:
 *
 *     rank = mix(mix(layer << 16 ^ head ^ 0x9E3779B9) ^ position) >> 8
 *
 * mix is the finaliser of MurmurHash3 (Appleby), a bijection of 32 bits, so a lane's hashes differ.
 */
#include "policy/evict.h"

static inline uint32_t mix(uint32_t x) {
    x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
    x = (x ^ (x >> 13)) * 0xC2B2AE35u;
    return x ^ (x >> 16);
}

static void rank_block(const pleat__evict_lane *lane, const pleat__tracked *page, uint32_t first,
                       float *restrict ranks) {
    const uint32_t seed = mix(lane->layer << 16 ^ lane->head ^ 0x9E3779B9u);
    const int32_t *positions = page->positions + first;
    for (uint32_t i = 0; i < PLEAT__SCAN_BLOCK; i++)
        ranks[i] = (float)(int32_t)(mix(seed ^ (uint32_t)positions[i]) >> 8);
}

const pleat__evictor pleat__evictor_random = {
    .scoring = PLEAT__SCORING_NONE, .in_generation = true, .rank_block = rank_block};
