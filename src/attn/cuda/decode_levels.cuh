/* SPDX-License-Identifier: MIT
 *
 * decode_levels.cuh: tiles of rotated formats (quant/levels.h) in decode attention: codes become levels by look-up, a
 * byte each, four at a time: the instruction PRMT takes four of eight bytes by the nibbles of half a word.  So two codes
 * of a byte must stand in its two nibbles.  For steps of two tiles.
 *
 *     keys     nibbles of a word are planes 0 and 2, or 1 and 3, of 2 and 3 bits, and both planes of 4.  Half a word
 *              gives levels of dimensions b, b + 2n, b + 1, b + 2n + 1 (n planes; decode_state.cuh has q so), which
 *              meet bytes of q as signed bytes
 *     values   nibbles are codes of two dimensions, each of this thread's plane, so that half a word has two tokens of
 *              two dimensions.  A byte becomes f16 as 1024 + 128 + level in the low bits of a half, less 1152
 *
 * Of 16 levels each half is looked up, and the codes' fourth bits choose.
 */
#ifndef PLEAT_ATTN_CUDA_DECODE_LEVELS_CUH
#define PLEAT_ATTN_CUDA_DECODE_LEVELS_CUH

#include "attn/cuda/decode_copy.cuh"
#include "attn/cuda/decode_state.cuh"
#include "quant/cuda/levels.cuh"

/* Levels of the four codes in the low half of `codes`; FLIP: 0x80808080 for levels plus 128, or 0. */
template <int BITS, uint32_t FLIP> static __device__ __forceinline__ uint32_t look_up_half(uint32_t codes) {
    if (BITS == 2) return permute_bytes(pleat__level_words_2 ^ FLIP, 0, codes);
    if (BITS == 3) return permute_bytes(pleat__level_words_3a ^ FLIP, pleat__level_words_3b ^ FLIP, codes);
    return 0;
}

/* The same of both halves.  Nibbles of 2 and 3 bits have no fourth. */
template <int BITS, uint32_t FLIP> static __device__ __forceinline__ void look_up(uint32_t levels[2], uint32_t codes) {
    if (BITS < 4) {
        levels[0] = look_up_half<BITS, FLIP>(codes);
        levels[1] = look_up_half<BITS, FLIP>(codes >> 16);
        return;
    }
    const uint32_t in_half = codes & 0x77777777u,
                   up = codes << 4; /* the fourth bit of either nibble as a byte's sign */
    const uint32_t chosen[2] = {permute_bytes(up, codes, 0xD9C8), permute_bytes(up, codes, 0xFBEA)};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t at = i ? in_half >> 16 : in_half;
        levels[i] = merge_bits(chosen[i], permute_bytes(pleat__level_words_4c ^ FLIP, pleat__level_words_4d ^ FLIP, at),
                               permute_bytes(pleat__level_words_4a ^ FLIP, pleat__level_words_4b ^ FLIP, at));
    }
}

/* ---- keys -------------------------------------------------------------------------------------------------- */

/* The codes of a key's word in nibbles: [0] planes 0 and 2, or all of 4 bits, [1] planes 1 and 3.  thirds: the word with
 * those of its 16 dimensions, one a plane from bit 0 of each byte on. */
template <int BITS>
static __device__ __forceinline__ void nibbles_of_key(uint32_t codes[2], uint32_t word, uint32_t thirds) {
    if (BITS == 4) {
        codes[0] = word;
        return;
    }
    const uint32_t mask = 0x33333333u;
    if (BITS == 2) {
        codes[0] = word & mask;
        codes[1] = word >> 2 & mask;
        return;
    }
    /* Plane 0's third from bit 0 to 2 and plane 2's from 2 to 6, plane 1's from 1 to 2 and plane 3's from 3 to 6; what
     * else the products have meets the mask. */
    codes[0] = merge_bits(mask, word, (thirds & 0x05050505u) * 20);
    codes[1] = merge_bits(mask, word >> 2, (thirds & 0x0A0A0A0Au) * 10);
}

/* Levels times bytes of q, for the tile at k: exact. */
template <int D, int BITS>
static __device__ __forceinline__ void multiply_key_levels(int32_t c[4], const warp_state<D> &st, uint32_t k,
                                                           int thread) {
    constexpr int low = BITS == 3 ? 2 : BITS, planes = 8 / low, n = D / 16 / planes;
    const int r = thread >> 2, j = thread & 3;
    const uint32_t at = k + (j * 4 + ((r >> 1) ^ (j >> 1) << 1)) * 16 + (r & 1) * 8;
    const uint32_t thirds_at = k + 4 * D + j * 32 + (r & 3) * 8; /* both tokens' word */
    int32_t sums[2][4] = {};
#pragma unroll
    for (int i = 0; i < n; i++) {
        const uint2 w = load_8(at + i * 256);
        uint2 thirds = make_uint2(0, 0);
        if (BITS == 3) {
            thirds = load_8(thirds_at + i * 128);
            thirds.x >>= r & 4;
            thirds.y >>= r & 4;
        }
        uint32_t x[2], y[2]; /* of tokens 2r and 2r + 1 */
        nibbles_of_key<BITS>(x, w.x, thirds.x);
        nibbles_of_key<BITS>(y, w.y, thirds.y);
#pragma unroll
        for (int h = 0; h < planes / 2; h++) {
            uint32_t of_x[2], of_y[2];
            look_up<BITS, 0>(of_x, x[h]);
            look_up<BITS, 0>(of_y, y[h]);
            const uint32_t a[4] = {of_x[0], of_y[0], of_x[1], of_y[1]};
            const int b = (i * planes + 2 * h) / 2;
            multiply_signed_bytes(sums[b % 2], a, st.q[b][0], st.q[b][1]);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) c[i] = sums[0][i] + sums[1][i];
}

/* ---- values ------------------------------------------------------------------------------------------------ */

/* Levels in bytes 0 and 2 (FIRST), or 1 and 3, of u, which are 128 more: as f16, times 2^-9. */
template <bool FIRST> static __device__ __forceinline__ uint32_t half_levels(uint32_t u) {
    const uint32_t x = __byte_perm(u, 0x64646464u, FIRST ? 0x4240 : 0x4341);
    return fma_halves(x, 0x18001800u, 0xC080C080u); /* (x - 1152) * 2^-9 */
}

/* o += V^T P^T of the tile at v.  b0 and b1 are P^T, of tokens 4j, 4j + 1 and 4j + 2, 4j + 3. */
template <int D, int BITS>
static __device__ __forceinline__ void multiply_value_levels(warp_state<D> &st, uint32_t v, uint32_t b0, uint32_t b1,
                                                             int thread) {
    constexpr int low = BITS == 3 ? 2 : BITS;
    const int r = thread >> 2, j = thread & 3;
    const int plane = (low == 4 ? j & 1 : j) * low, third = j + (r & 2) * 2;
    const uint32_t at = v + (low == 4 ? (j >> 1) * (D / 4) + (r ^ (j >> 1) << 2) : r) * 16;
    const uint32_t thirds_at = v + 4 * D + (r >> 2) * 32 + (r & 1) * 16;
#pragma unroll
    for (int i = 0; i < D / 32; i++) {
        const uint4 w = load_16(at + i * 128);
        uint4 t = make_uint4(0, 0, 0, 0);
        if (BITS == 3) t = load_16(thirds_at + i * 64);
        const uint32_t words[4] = {w.x, w.y, w.z, w.w}, thirds[4] = {t.x, t.y, t.z, t.w};
#pragma unroll
        for (int u = 0; u < 2; u++) {
            uint32_t codes = merge_bits(0x0F0F0F0Fu, words[2 * u] >> plane, rotate_left(words[2 * u + 1], 4 - plane));
            if (BITS < 4) codes &= 0x33333333u;
            if (BITS == 3)
                codes |= merge_bits(0x0F0F0F0Fu, rotate_left(thirds[2 * u], 2 - third),
                                    rotate_left(thirds[2 * u + 1], 6 - third)) &
                         0x44444444u;
            uint32_t levels[2];
            look_up<BITS, 0x80808080u>(levels, codes);
            const uint32_t a[4] = {half_levels<true>(levels[0]), half_levels<false>(levels[0]),
                                   half_levels<true>(levels[1]), half_levels<false>(levels[1])};
            multiply(st.o[2 * i + u], a, b0, b1);
        }
    }
}

#endif
