/* SPDX-License-Identifier: MIT
 *
 * tile.cuh: a whole tile at once: 16 tokens from exact f16 rows into codes and metadata, by one warp.  The bytes are
 * those of pleat__quant_store() of the same tokens into a tile from its first slot on: what has no token is zeros.
 *
 *     head_dim 128    a team is the warp: each thread has 4 dimensions of all 16 tokens
 *     head_dim 64     two teams: each thread has 4 dimensions of 8 tokens, the second team the later ones
 *
 * So a thread holds T = head_dim/8 tokens, from `first` on, whose rows it reads 8 bytes at a time, 256 or 128
 * neighbouring bytes a team.  Values' words join the codes of different tokens and one dimension: they are made in the
 * thread's registers (a 4x4 transposition of bytes).  Keys' words below 8 bits join the codes of neighbouring threads:
 * these swap halves of their tokens, so that each ends up with whole words of half of them (bits 4) or a quarter (bits
 * 2), neighbouring in memory.
 */
#ifndef PLEAT_QUANT_CUDA_TILE_CUH
#define PLEAT_QUANT_CUDA_TILE_CUH

#include "quant/cuda/token.cuh"

/* The quads of a thread's tokens, as f16. */
template <int D> struct pleat__device_rows {
    uint2 quads[D / 8]; /* clamped; zeros where there is no token */
    uint32_t first;     /* of the tile's tokens */
    uint32_t n;         /* tokens of the tile, 1..16 */
};

template <int D> static __device__ inline uint32_t pleat__device_first_token(void) {
    return threadIdx.x % 32 / (D / 4) * (D / 8);
}

static __device__ inline __half2 pleat__device_half2_of(uint32_t halves) { return *(const __half2 *)&halves; }
static __device__ inline uint32_t pleat__device_bits_of(__half2 halves) { return *(const uint32_t *)&halves; }

/* Clamp four f16 like pleat__quant_clamp(): min and max give the operand that is no NaN. */
static __device__ inline uint2 pleat__device_clamp_halves(uint2 quad) {
    const __half2 least = pleat__device_half2_of(0xFBFFFBFFu), most = pleat__device_half2_of(0x7BFF7BFFu);
    quad.x = pleat__device_bits_of(__hmin2(__hmax2(pleat__device_half2_of(quad.x), least), most));
    quad.y = pleat__device_bits_of(__hmin2(__hmax2(pleat__device_half2_of(quad.y), least), most));
    return quad;
}

/* Least value and negated largest of four clamped f16, which are exact as f16. */
static __device__ inline uint32_t pleat__device_ends(uint2 quad) {
    const __half2 a = pleat__device_half2_of(quad.x), b = pleat__device_half2_of(quad.y);
    const uint32_t least = pleat__device_bits_of(__hmin2(a, b)), most = pleat__device_bits_of(__hmax2(a, b));
    const uint32_t even = __byte_perm(least, most, 0x5410) ^ 0x80000000u;
    const uint32_t odd = __byte_perm(least, most, 0x7632) ^ 0x80000000u;
    return pleat__device_bits_of(__hmin2(pleat__device_half2_of(even), pleat__device_half2_of(odd)));
}

static __device__ inline uint32_t pleat__device_join_ends(uint32_t a, uint32_t b) {
    return pleat__device_bits_of(__hmin2(pleat__device_half2_of(a), pleat__device_half2_of(b)));
}

/* From each thread's ends of all of the team's tokens to the ends of token t/2 in thread t: threads swap halves, each
 * keeps the tokens of its own, 16 shuffles where reducing each token would take 80. */
template <int D> static __device__ inline uint32_t pleat__device_reduce_ends(uint32_t ends[D / 8]) {
    const uint32_t t = pleat__device_team_thread<D>();
#pragma unroll
    for (int n = D / 16; n >= 1; n /= 2) {
        const uint32_t apart = 2 * n;
        const bool is_upper = (t & apart) != 0;
#pragma unroll
        for (int i = 0; i < n; i++) {
            const uint32_t mine = is_upper ? ends[n + i] : ends[i], other = is_upper ? ends[i] : ends[n + i];
            ends[i] = pleat__device_join_ends(mine, __shfl_xor_sync(PLEAT__ALL_THREADS, other, apart));
        }
    }
    return pleat__device_join_ends(ends[0], __shfl_xor_sync(PLEAT__ALL_THREADS, ends[0], 1));
}

/* Scale and minimum of the team's token t/2, which are written: 0 where there is no token. */
template <int D>
static __device__ inline pleat__device_scale pleat__device_scale_rows(const pleat__device_rows<D> &rows, uint32_t bits,
                                                                      uint16_t *meta) {
    uint32_t ends[D / 8];
#pragma unroll
    for (int i = 0; i < D / 8; i++) ends[i] = pleat__device_ends(rows.quads[i]);
    const float2 both = __half22float2(pleat__device_half2_of(pleat__device_reduce_ends<D>(ends)));
    const pleat__device_scale s = pleat__device_scale_between(both.x, -both.y, bits);
    const uint32_t t = pleat__device_team_thread<D>(), token = rows.first + t / 2;
    const uint16_t value = t % 2 ? s.min_f16 : s.scale_f16;
    meta[t % 2 * PLEAT__TILE + token] = token < rows.n ? value : 0;
    return s;
}

/* Codes of the thread's tokens, a word each, 0 where there is no token; and their metadata is written. */
template <int D>
static __device__ inline void pleat__device_code_rows(const pleat__device_rows<D> &rows, uint32_t bits, uint32_t flip,
                                                      uint16_t *meta, uint32_t words[D / 8]) {
    const pleat__device_scale s = pleat__device_scale_rows<D>(rows, bits, meta);
#pragma unroll
    for (uint32_t i = 0; i < D / 8; i++) {
        const float min = __shfl_sync(PLEAT__ALL_THREADS, s.min, 2 * i, D / 4);
        const float inverse = __shfl_sync(PLEAT__ALL_THREADS, s.inverse, 2 * i, D / 4);
        const pleat__device_quad q = pleat__device_quad_of(rows.quads[i]);
        words[i] = rows.first + i < rows.n ? pleat__device_codes(min, inverse, bits, q) ^ flip : 0;
    }
}

/* n neighbouring words, 2 or a multiple of 4, at a multiple of as many bytes. */
template <int N> static __device__ inline void pleat__device_write_words(uint32_t *to, const uint32_t *words) {
    if constexpr (N == 2) {
        *(uint2 *)(void *)to = make_uint2(words[0], words[1]);
    } else {
#pragma unroll
        for (int i = 0; i < N; i += 4)
            *(uint4 *)(void *)(to + i) = make_uint4(words[i], words[i + 1], words[i + 2], words[i + 3]);
    }
}

/* ---- f16 --------------------------------------------------------------------------------------------- */

/* The tile of keys is [d][16 tokens]: of each of its dimensions the thread writes its tokens, side by side. */
template <int D>
static __device__ inline void pleat__device_store_keys_f16(const pleat__device_rows<D> &rows, uint8_t *tile) {
    const uint32_t t = pleat__device_team_thread<D>();
#pragma unroll
    for (int dim = 0; dim < 4; dim++) {
        uint32_t words[D / 16];
        const uint32_t take = dim % 2 ? 0x7632 : 0x5410; /* upper or lower halves of two words */
#pragma unroll
        for (int i = 0; i < D / 8; i += 2)
            words[i / 2] = dim < 2 ? __byte_perm(rows.quads[i].x, rows.quads[i + 1].x, take)
                                   : __byte_perm(rows.quads[i].y, rows.quads[i + 1].y, take);
        uint16_t *to = (uint16_t *)(void *)tile + (4 * t + dim) * PLEAT__TILE + rows.first;
        pleat__device_write_words<D / 16>((uint32_t *)(void *)to, words);
    }
}

template <int D>
static __device__ inline void pleat__device_store_values_f16(const pleat__device_rows<D> &rows, uint8_t *tile) {
    const uint32_t t = pleat__device_team_thread<D>();
#pragma unroll
    for (uint32_t i = 0; i < D / 8; i++) ((uint2 *)(void *)tile)[(rows.first + i) * (D / 4) + t] = rows.quads[i];
}

/* ---- keys ---------------------------------------------------------------------------------------------- */

/* Threads that are `apart` swap halves of their n words; what comes stands `shift` bits higher in the one of the lower
 * dimensions.  Each is left with the first n/2 words, the joint ones of its half of the tokens. */
template <int N>
static __device__ inline void pleat__device_join_halves(uint32_t *words, uint32_t apart, uint32_t shift) {
    const bool is_upper = (threadIdx.x & apart) != 0;
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        const uint32_t mine = is_upper ? words[N / 2 + i] : words[i];
        const uint32_t theirs = __shfl_xor_sync(PLEAT__ALL_THREADS, is_upper ? words[i] : words[N / 2 + i], apart);
        words[i] = is_upper ? theirs | mine << shift : mine | theirs << shift;
    }
}

template <int D>
static __device__ inline void pleat__device_store_keys(const pleat__page_layout &l, uint8_t *page, uint32_t tile,
                                                       const pleat__device_rows<D> &rows) {
    const uint32_t bits = l.format.k_bits, t = pleat__device_team_thread<D>();
    uint8_t *codes = pleat__device_k_tile(l, page, tile);
    if (bits == 16) {
        pleat__device_store_keys_f16<D>(rows, codes);
        return;
    }
    uint32_t words[D / 8];
    pleat__device_code_rows<D>(rows, bits, 0, pleat__device_k_meta(l, page, tile), words);
    uint32_t *to = pleat__device_key_word(codes, bits, t, rows.first);
    if (bits == 8) {
        pleat__device_write_words<D / 8>(to, words);
        return;
    }
    pleat__device_join_halves<D / 8>(words, 1, bits);
    to += (t & 1) * (D / 16);
    if (bits == 4) {
        pleat__device_write_words<D / 16>(to, words);
        return;
    }
    pleat__device_join_halves<D / 16>(words, 2, 4);
    pleat__device_write_words<D / 32>(to + (t >> 1 & 1) * (D / 32), words);
}

/* ---- values -------------------------------------------------------------------------------------------- */

/* From the codes of 4 tokens, 4 dimensions in each word, to those of 4 dimensions, 4 tokens in each. */
static __device__ inline uint4 pleat__device_transpose(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    const uint32_t ab_low = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362);
    const uint32_t cd_low = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
    return make_uint4(__byte_perm(ab_low, cd_low, 0x5410), __byte_perm(ab_low, cd_low, 0x7632),
                      __byte_perm(ab_high, cd_high, 0x5410), __byte_perm(ab_high, cd_high, 0x7632));
}

template <int D>
static __device__ inline void pleat__device_store_values(const pleat__page_layout &l, uint8_t *page, uint32_t tile,
                                                         const pleat__device_rows<D> &rows) {
    const uint32_t bits = l.format.v_bits, t = pleat__device_team_thread<D>();
    uint8_t *codes = pleat__device_v_tile(l, page, tile);
    if (bits == 16) {
        pleat__device_store_values_f16<D>(rows, codes);
        return;
    }
    uint32_t w[D / 8];
    pleat__device_code_rows<D>(rows, bits, bits == 8 ? 0x80808080u : 0, pleat__device_v_meta(l, page, tile), w);
    uint4 *to = pleat__device_value_words<D>(codes, bits, t, rows.first);
    if (bits == 8) {
#pragma unroll
        for (int i = 0; i < D / 8; i += 4, to += D / 4)
            *to = pleat__device_transpose(w[i], w[i + 1], w[i + 2], w[i + 3]);
        return;
    }
#pragma unroll
    for (int i = 0; i < D / 8; i += 8) { /* words of 8 tokens, in the first of each 8 */
#pragma unroll
        for (int j = i; j < i + 4; j++) w[j] |= w[j + 4] << bits;
        if (bits == 4) to[i / 8 * (D / 4)] = pleat__device_transpose(w[i], w[i + 1], w[i + 2], w[i + 3]);
    }
    if (bits == 4) return;
#pragma unroll
    for (int j = 0; j < 4; j++) /* the other 8 are in this thread or in the other team's */
        w[j] |= D == 128 ? w[(j + 8) % (D / 8)] << 4 : __shfl_xor_sync(PLEAT__ALL_THREADS, w[j], 16) << 4;
    if (rows.first == 0) *to = pleat__device_transpose(w[0], w[1], w[2], w[3]);
}

#endif
