/* SPDX-License-Identifier: MIT
 *
 * decode_levels.cuh: tiles of rotated formats (quant/levels.h) in decode attention: codes become levels by look-up, a
 * byte each, four at a time: the instruction PRMT takes four of eight bytes by the nibbles of half a word.  So two codes
 * of a byte must stand in its two nibbles.  For steps of two tiles and of four.
 *
 *     keys     nibbles of a word are planes 0 and 2, or 1 and 3, of 2 and 3 bits, and both planes of 4.  Half a word
 *              gives levels of dimensions b, b + 2n, b + 1, b + 2n + 1 (n planes; decode_state.cuh has q so), which
 *              meet bytes of q as signed bytes
 *     values   of 4 bits: nibbles are codes of two dimensions, each of this thread's plane, so that half a word has two
 *              tokens of two dimensions.  A byte becomes f16 as 1024 + 128 + level in the low bits of a half, less 1152
 *              of 2 and 3 bits: nibbles are planes p and p + 2, so that half a word has four tokens of one dimension,
 *              which meet bytes of weights.  These are of 16 bits of a head's largest in the step, hi in B's columns
 *              0..3 and lo in 4..7, as q is for the keys.  So sums are exact in a step, and are added up in f32.  S's
 *              rows stand for pairs of tokens crosswise: then a thread's part of P^T is of the four tokens that it has
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

/* The pair of tokens, 2i and 2i + 1, that row r of S and its twin r + 8 stand for. */
template <bool CROSSED> static __device__ __forceinline__ int pair_of(int thread) {
    const int r = thread >> 2;
    return CROSSED ? (r >> 1) + (r & 1) * 4 : r;
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
template <int D, int BITS, bool CROSSED>
static __device__ __forceinline__ void multiply_key_levels(int32_t c[4], const warp_state<D> &st, uint32_t k,
                                                           int thread) {
    constexpr int low = BITS == 3 ? 2 : BITS, planes = 8 / low, n = D / 16 / planes;
    const int r = pair_of<CROSSED>(thread), j = thread & 3;
    const uint32_t at = k + (j * 4 + ((r >> 1) ^ (j >> 1) << (CROSSED ? 0 : 1))) * 16 + (r & 1) * 8;
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
        uint32_t x[2], y[2]; /* of the pair's tokens */
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

/* o += V^T P^T of the tile at v, of 4 bits.  b0 and b1 are P^T, of tokens 4j, 4j + 1 and 4j + 2, 4j + 3. */
template <int D>
static __device__ __forceinline__ void multiply_value_levels(warp_state<D> &st, uint32_t v, uint32_t b0, uint32_t b1,
                                                             int thread) {
    const int r = thread >> 2, j = thread & 3, plane = (j & 1) * 4;
    const uint32_t at = v + ((j >> 1) * (D / 4) + (r ^ (j >> 1) << 2)) * 16;
#pragma unroll
    for (int i = 0; i < D / 32; i++) {
        const uint4 w = load_16(at + i * 128);
        const uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int u = 0; u < 2; u++) {
            uint32_t levels[2];
            look_up<4, 0x80808080u>(
                levels, merge_bits(0x0F0F0F0Fu, words[2 * u] >> plane, rotate_left(words[2 * u + 1], 4 - plane)));
            const uint32_t a[4] = {half_levels<true>(levels[0]), half_levels<false>(levels[0]),
                                   half_levels<true>(levels[1]), half_levels<false>(levels[1])};
            multiply(st.o[2 * i + u], a, b0, b1);
        }
    }
}

/* Levels of four tokens of a dimension, of 2 or 3 bits: 2j, 2j + 8, 2j + 1, 2j + 9.  down: where the word has the first
 * of them; third: where that of a third stands. */
template <int BITS>
static __device__ __forceinline__ uint32_t four_levels(uint32_t word, uint32_t thirds, int down, int third) {
    const uint32_t mask = 0x33333333u;
    if (BITS == 2) return look_up_half<2, 0>(word >> down & mask);
    return look_up_half<3, 0>(merge_bits(mask, word >> down, (thirds >> third & 0x05050505u) * 20));
}

/* Weights as bytes, of N times two tiles: code = 256*hi + lo, so that weight = code * the head's unit.  b: of B's column,
 * hi of heads 0..3, lo of them; the first tile's tokens 2j, 2j + 8, 2j + 1, 2j + 9, and the second's.  unit: what a
 * product is worth of this thread's columns of C. */
template <int N> struct weight_bytes {
    uint32_t b[N][2];
    float unit[2];
};

/* weights[n]: of the pair's first token for both heads, of its second.  A head's code of 65535 is its largest weight. */
template <int N>
static __device__ __forceinline__ void weights_to_bytes(weight_bytes<N> &to, const float weights[N][4], int thread) {
    const bool is_low = thread & 16;
    uint32_t codes[N][4];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float most = 1e-30f;
#pragma unroll
        for (int n = 0; n < N; n++) most = fmaxf(most, fmaxf(weights[n][h], weights[n][2 + h]));
        most = max_over_rows(most);
        most = fmaxf(most, __shfl_xor_sync(PLEAT__ALL_THREADS, most, 2));
        const float per_weight = 65535 * approximate_inverse(most);
        to.unit[h] = most * ((thread & 2 ? 1 : 256) * (0x1p-9f / 65535));
#pragma unroll
        for (int n = 0; n < N; n++) { /* 2^23 + code */
            codes[n][h] = __float_as_uint(weights[n][h] * per_weight + 0x1p23f);
            codes[n][2 + h] = __float_as_uint(weights[n][2 + h] * per_weight + 0x1p23f);
        }
    }
#pragma unroll
    for (int n = 0; n < N; n++) {
        const uint32_t x = transpose_8x8(low_halves(codes[n][0], codes[n][1]));
        const uint32_t y = transpose_8x8(low_halves(codes[n][2], codes[n][3]));
        const uint32_t own = permute_bytes(x, y, is_low ? 0x6420 : 0x7531);
        const uint32_t others = permute_bytes(x, y, is_low ? 0x7531 : 0x6420);
        const uint32_t other = __shfl_xor_sync(PLEAT__ALL_THREADS, others, 16);
        to.b[n][0] = is_low ? other : own;
        to.b[n][1] = is_low ? own : other;
    }
}

/* o += V^T P^T of N times two tiles of 2 or 3 bits from v on.  Sums are exact: below 2^22, they are the low bits of a
 * float of 1.5*2^23. */
template <int D, int BITS, int N>
static __device__ __forceinline__ void multiply_by_weight_bytes(warp_state<D> &st, uint32_t v, const weight_bytes<N> &w,
                                                                int thread) {
    constexpr int32_t zero = 0x4B400000, base[4] = {zero, zero, zero, zero};
    constexpr int tile_bytes = 2 * D * BITS;
    const int r = thread >> 2, j = thread & 3;
    const int down = (j & 1) * 16 + (j >> 1) * 2, third = (j & 1) * 16 + (j >> 1) + (r & 2) * 2;
    const uint32_t at = v + r * 16, thirds_at = v + 4 * D + (r >> 2) * 32 + (r & 1) * 16;
#pragma unroll
    for (int i = 0; i < D / 32; i++) {
        int32_t c[2][4];
#pragma unroll
        for (int n = 0; n < N; n++) {
            uint4 words[2], thirds[2];
#pragma unroll
            for (int t = 0; t < 2; t++) {
                words[t] = load_16(at + (2 * n + t) * tile_bytes + i * 128);
                thirds[t] = make_uint4(0, 0, 0, 0);
                if (BITS == 3) thirds[t] = load_16(thirds_at + (2 * n + t) * tile_bytes + i * 64);
            }
            const uint32_t x[4] = {four_levels<BITS>(words[0].x, thirds[0].x, down, third),
                                   four_levels<BITS>(words[0].y, thirds[0].y, down, third),
                                   four_levels<BITS>(words[1].x, thirds[1].x, down, third),
                                   four_levels<BITS>(words[1].y, thirds[1].y, down, third)};
            multiply_by_bytes(c[0], x, w.b[n][0], w.b[n][1], n == 0 ? base : c[0]);
            const uint32_t y[4] = {four_levels<BITS>(words[0].z, thirds[0].z, down, third),
                                   four_levels<BITS>(words[0].w, thirds[0].w, down, third),
                                   four_levels<BITS>(words[1].z, thirds[1].z, down, third),
                                   four_levels<BITS>(words[1].w, thirds[1].w, down, third)};
            multiply_by_bytes(c[1], y, w.b[n][0], w.b[n][1], n == 0 ? base : c[1]);
        }
#pragma unroll
        for (int u = 0; u < 2; u++)
#pragma unroll
            for (int k = 0; k < 4; k++) st.o[2 * i + u][k] += (__int_as_float(c[u][k]) - 0x1.8p23f) * w.unit[k & 1];
    }
}

#endif
