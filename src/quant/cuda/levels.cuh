/* SPDX-License-Identifier: MIT
 *
 * levels.cuh: the codes of rotated formats (quant/levels.h) on a GPU: their levels, and where they stand.
 *
 * A code's *low bits* are all four of 4 bits, and two of 2 and 3 bits.  They stand where the codes of plain formats of 4
 * and 2 bits stand, so that token.cuh's words serve both.  The third of 3 bits stands behind all low bits of the tile:
 *
 *     key     dimensions 16c .. 16c + 15 of tokens i and i + 8: word 8c + i, bit p + 4*(token/8) of each byte the third
 *             of plane p
 *     value   dimensions 16c + i and 16c + i + 8 of all tokens: word 8c + i, bit token/4 + 4*(dimension/8 % 2) of byte
 *             token % 4
 */
#ifndef PLEAT_QUANT_CUDA_LEVELS_CUH
#define PLEAT_QUANT_CUDA_LEVELS_CUH

#include "quant/cuda/layout.cuh"

extern "C" {
#include "quant/levels.h"
}

/* ---- levels -------------------------------------------------------------------------------------------------- */

static constexpr int8_t pleat__levels_of_2[] = PLEAT__LEVELS_2;
static constexpr int8_t pleat__levels_of_3[] = PLEAT__LEVELS_3;
static constexpr int8_t pleat__levels_of_4[] = PLEAT__LEVELS_4;

/* Four levels as the bytes of a word. */
static constexpr uint32_t pleat__pack_levels(const int8_t *l) {
    return (uint32_t)(uint8_t)l[0] | (uint32_t)(uint8_t)l[1] << 8 | (uint32_t)(uint8_t)l[2] << 16 |
           (uint32_t)(uint8_t)l[3] << 24;
}

/* Levels 4i .. 4i + 3 of `bits`; those of 4 bits from 0 and 8 on, of 3 from 0. */
static constexpr uint32_t pleat__level_words_2 = pleat__pack_levels(pleat__levels_of_2);
static constexpr uint32_t pleat__level_words_3a = pleat__pack_levels(pleat__levels_of_3);
static constexpr uint32_t pleat__level_words_3b = pleat__pack_levels(pleat__levels_of_3 + 4);
static constexpr uint32_t pleat__level_words_4a = pleat__pack_levels(pleat__levels_of_4);
static constexpr uint32_t pleat__level_words_4b = pleat__pack_levels(pleat__levels_of_4 + 4);
static constexpr uint32_t pleat__level_words_4c = pleat__pack_levels(pleat__levels_of_4 + 8);
static constexpr uint32_t pleat__level_words_4d = pleat__pack_levels(pleat__levels_of_4 + 12);

static __device__ inline int32_t pleat__device_level(uint32_t bits, uint32_t code) {
    const uint32_t i = code / 4;
    uint32_t word = pleat__level_words_2;
    if (bits == 3) word = i ? pleat__level_words_3b : pleat__level_words_3a;
    if (bits == 4)
        word = i == 0   ? pleat__level_words_4a
               : i == 1 ? pleat__level_words_4b
               : i == 2 ? pleat__level_words_4c
                        : pleat__level_words_4d;
    return (int8_t)(word >> (8 * (code % 4)));
}

/* levels.c's largest level of a normal variable. */
static __device__ inline float pleat__device_largest_level(uint32_t bits) {
    constexpr float largest[] = PLEAT__LARGEST_LEVELS;
    return bits == 2 ? largest[2] : bits == 3 ? largest[3] : largest[4];
}

/* ---- where codes stand --------------------------------------------------------------------------------------- */

/* Bits of a code that stand as a plain format's do. */
static __device__ inline uint32_t pleat__device_low_bits(uint32_t bits) { return bits == 3 ? 2 : bits; }

/* The word with the thirds of a key's quads t / 4 * 4 .. + 3, n_quads of a head; and the bit of the first quad's. */
static __device__ inline uint32_t *pleat__device_key_thirds(uint8_t *tile, uint32_t n_quads, uint32_t t,
                                                            uint32_t token) {
    return (uint32_t *)(void *)tile + n_quads * 4 + t / 4 * 8 + token % 8;
}
static __device__ inline uint32_t pleat__device_key_third_shift(uint32_t token) { return token / 8 * 4; }

/* The words with the thirds of a value's quad t, which are those of quad t ^ 2 too; and the bit of quad t's. */
static __device__ inline uint4 *pleat__device_value_thirds(uint8_t *tile, uint32_t n_quads, uint32_t t) {
    return (uint4 *)(void *)tile + n_quads + t / 4 * 2 + t % 2;
}
static __device__ inline uint32_t pleat__device_value_third_shift(uint32_t t, uint32_t token) {
    return token % 4 * 8 + token / 4 + t % 4 / 2 * 4;
}

#endif
