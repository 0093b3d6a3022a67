/* SPDX-License-Identifier: MIT
 *
 * token.cuh: quant.h's functions for one token, on a GPU: put (the body of store and replace), load, copy; and what
 * storing into a tile's first slot does first.  Same bytes as the CPU's.
 *
 * A token is worked on by a team: head_dim/4 neighbouring threads of a warp, a whole warp for 128, half of one for 64,
 * each with four neighbouring dimensions, a quad:
 *
 *     thread t of the team        dimensions 4t .. 4t+3
 *     its key's codes             a byte, nibble or pair of bits in each byte of one word of the tile; threads that
 *                                 share a word join their parts by shuffles
 *     its value's codes           the same bits in each of four neighbouring words, 16 bytes: the thread reads these,
 *                                 changes them and writes them back
 *
 * No two threads of a team write the same word.  Other tokens of a tile share the words of values with 4 and 2 bits:
 * whoever writes to a tile owns it.  All 32 threads of the warp call together; where both halves work on the same
 * token, `writes` is false in one.  Order of operations and rounding are those of quant_ref.c: each is written out,
 * none contracts.
 *
 * Tokens of rotated formats are loaded and copied here; wide.cuh puts them.
 */
#ifndef PLEAT_QUANT_CUDA_TOKEN_CUH
#define PLEAT_QUANT_CUDA_TOKEN_CUH

#include <cuda_fp16.h>

#include "hw/cuda/warp.cuh"
#include "quant/cuda/layout.cuh"
#include "quant/cuda/levels.cuh"

/* Four neighbouring dimensions. */
typedef struct pleat__device_quad {
    float x[4];
} pleat__device_quad;

/* Scale and minimum of a token: as stored, and as the quantiser uses them. */
typedef struct pleat__device_scale {
    uint16_t scale_f16, min_f16;
    float min, inverse;
} pleat__device_scale;

template <int D> static __device__ inline uint32_t pleat__device_team_thread(void) { return threadIdx.x % (D / 4); }

/* Is the thread of its warp's first team, or only one? */
template <int D> static __device__ inline bool pleat__device_in_first_team(void) { return threadIdx.x % 32 < D / 4; }

/* ---- quantising -------------------------------------------------------------------------------------- */

/* Clamp like pleat__quant_clamp(): NaN becomes -65504. */
static __device__ inline float pleat__device_clamp(float x) {
    x = x > -PLEAT__F16_MAX ? x : -PLEAT__F16_MAX;
    return x < PLEAT__F16_MAX ? x : PLEAT__F16_MAX;
}

static __device__ inline pleat__device_quad pleat__device_clamp_quad(pleat__device_quad q) {
#pragma unroll
    for (int i = 0; i < 4; i++) q.x[i] = pleat__device_clamp(q.x[i]);
    return q;
}

/* Four f16 as they are, exact; `row` is aligned to 8. */
static __device__ inline pleat__device_quad pleat__device_quad_of(uint2 halves) {
    const float2 a = __half22float2(*(const __half2 *)&halves.x), b = __half22float2(*(const __half2 *)&halves.y);
    return pleat__device_quad{{a.x, a.y, b.x, b.y}};
}

static __device__ inline uint2 pleat__device_quad_f16(pleat__device_quad q) {
    const __half2 a = __floats2half2_rn(q.x[0], q.x[1]), b = __floats2half2_rn(q.x[2], q.x[3]);
    return make_uint2(*(const uint32_t *)&a, *(const uint32_t *)&b);
}

/* pleat__quant_scale_of(). */
static __device__ inline pleat__device_scale pleat__device_scale_between(float min, float max, uint32_t bits) {
    pleat__device_scale s;
    s.min_f16 = __half_as_ushort(__float2half_rn(__fadd_rn(min, 0.0f))); /* -0 becomes +0 */
    s.min = __half2float(__ushort_as_half(s.min_f16));
    const float range = __fsub_rn(max, s.min);
    s.scale_f16 = 0;
    if (max > min && range > 0)
        s.scale_f16 = __half_as_ushort(__float2half_rn(__fdiv_rn(range, (float)((1u << bits) - 1))));
    s.inverse = s.scale_f16 ? __fdiv_rn(1.0f, __half2float(__ushort_as_half(s.scale_f16))) : 0.0f;
    return s;
}

/* The same, of a token whose clamped values the team holds. */
template <int D>
static __device__ inline pleat__device_scale pleat__device_scale_of(pleat__device_quad q, uint32_t bits) {
    float min = fminf(fminf(q.x[0], q.x[1]), fminf(q.x[2], q.x[3]));
    float max = fmaxf(fmaxf(q.x[0], q.x[1]), fmaxf(q.x[2], q.x[3]));
#pragma unroll
    for (int apart = D / 8; apart > 0; apart /= 2) {
        min = fminf(min, __shfl_xor_sync(PLEAT__ALL_THREADS, min, apart));
        max = fmaxf(max, __shfl_xor_sync(PLEAT__ALL_THREADS, max, apart));
    }
    return pleat__device_scale_between(min, max, bits);
}

/* clamp(round((x - min)/scale)) in the lowest byte, as quant_ref.c has it: adding 1.5*2^23 rounds and leaves the
 * integer in the low bits. */
static __device__ inline uint32_t pleat__device_code(float min, float inverse, float top, float x) {
    float y = __fmul_rn(__fsub_rn(x, min), inverse);
    y = y > 0 ? y : 0;
    y = y < top ? y : top;
    return __float_as_uint(__fadd_rn(y, 0x1.8p23f));
}

/* The codes of a quad, one in each byte. */
static __device__ inline uint32_t pleat__device_codes(float min, float inverse, uint32_t bits, pleat__device_quad q) {
    const float top = (float)((1u << bits) - 1);
    const uint32_t low = __byte_perm(pleat__device_code(min, inverse, top, q.x[0]),
                                     pleat__device_code(min, inverse, top, q.x[1]), 0x0040);
    const uint32_t high = __byte_perm(pleat__device_code(min, inverse, top, q.x[2]),
                                      pleat__device_code(min, inverse, top, q.x[3]), 0x0040);
    return __byte_perm(low, high, 0x5410);
}

/* ---- where a token stands -------------------------------------------------------------------------------- */

/* Its thread's word of a key tile of 8 bits or less: dimensions 4t..4t+3 are planes of this word. */
static __device__ inline uint32_t *pleat__device_key_word(uint8_t *tile, uint32_t bits, uint32_t t, uint32_t token) {
    return (uint32_t *)(void *)tile + t * bits / 8 * PLEAT__TILE + token;
}

/* Its thread's four words of a value tile of 8 bits or less, and the bit at which the token's codes stand in each. */
static __device__ inline uint4 *pleat__device_value_words_of(uint8_t *tile, uint32_t bits, uint32_t n_quads, uint32_t t,
                                                             uint32_t token) {
    return (uint4 *)(void *)tile + token * bits / 32 * n_quads + t;
}
template <int D>
static __device__ inline uint4 *pleat__device_value_words(uint8_t *tile, uint32_t bits, uint32_t t, uint32_t token) {
    return pleat__device_value_words_of(tile, bits, D / 4, t, token);
}
static __device__ inline uint32_t pleat__device_value_shift(uint32_t bits, uint32_t token) {
    return 8 * (token % 4) + bits * (token / 4 % (8 / bits));
}

static __device__ inline uint32_t pleat__device_with_bits(uint32_t word, uint32_t mask, uint32_t shift, uint32_t code) {
    return (word & ~(mask << shift)) | code << shift;
}

/* ---- put ----------------------------------------------------------------------------------------------------- */

template <int D>
static __device__ inline void pleat__device_put_key(const pleat__page_layout &l, uint8_t *page, uint32_t slot,
                                                    pleat__device_quad q, bool writes) {
    const uint32_t bits = l.format.k_bits, t = pleat__device_team_thread<D>(), token = slot % PLEAT__TILE;
    uint8_t *tile = pleat__device_k_tile(l, page, slot / PLEAT__TILE);
    q = pleat__device_clamp_quad(q);
    if (bits == 16) {
        __half *halves = (__half *)(void *)tile;
        for (uint32_t i = 0; i < 4 && writes; i++) halves[(4 * t + i) * PLEAT__TILE + token] = __float2half_rn(q.x[i]);
        return;
    }
    const pleat__device_scale s = pleat__device_scale_of<D>(q, bits);
    uint32_t word = pleat__device_codes(s.min, s.inverse, bits, q);
    if (bits < 8) word |= __shfl_down_sync(PLEAT__ALL_THREADS, word, 1, D / 4) << bits;
    if (bits < 4) word |= __shfl_down_sync(PLEAT__ALL_THREADS, word, 2, D / 4) << (2 * bits);
    if (!writes) return;
    if (t % (8 / bits) == 0) *pleat__device_key_word(tile, bits, t, token) = word;
    uint16_t *meta = pleat__device_k_meta(l, page, slot / PLEAT__TILE);
    if (t == 0) meta[token] = s.scale_f16;
    if (t == 1) meta[PLEAT__TILE + token] = s.min_f16;
}

template <int D>
static __device__ inline void pleat__device_put_value(const pleat__page_layout &l, uint8_t *page, uint32_t slot,
                                                      pleat__device_quad q, bool writes) {
    const uint32_t bits = l.format.v_bits, t = pleat__device_team_thread<D>(), token = slot % PLEAT__TILE;
    uint8_t *tile = pleat__device_v_tile(l, page, slot / PLEAT__TILE);
    q = pleat__device_clamp_quad(q);
    if (bits == 16) {
        if (writes) ((uint2 *)(void *)tile)[token * (D / 4) + t] = pleat__device_quad_f16(q);
        return;
    }
    const pleat__device_scale s = pleat__device_scale_of<D>(q, bits);
    if (!writes) return;
    const uint32_t mask = (1u << bits) - 1, shift = pleat__device_value_shift(bits, token);
    uint32_t codes = pleat__device_codes(s.min, s.inverse, bits, q);
    if (bits == 8) codes ^= 0x80808080u; /* stored as code - 128 */
    uint4 *words = pleat__device_value_words<D>(tile, bits, t, token), w = *words;
    w.x = pleat__device_with_bits(w.x, mask, shift, codes & 0xFF);
    w.y = pleat__device_with_bits(w.y, mask, shift, codes >> 8 & 0xFF);
    w.z = pleat__device_with_bits(w.z, mask, shift, codes >> 16 & 0xFF);
    w.w = pleat__device_with_bits(w.w, mask, shift, codes >> 24);
    *words = w;
    uint16_t *meta = pleat__device_v_meta(l, page, slot / PLEAT__TILE);
    if (t == 0) meta[token] = s.scale_f16;
    if (t == 1) meta[PLEAT__TILE + token] = s.min_f16;
}

/* ---- clear ----------------------------------------------------------------------------------------------------- */

/* bytes, a multiple of 16, at a multiple of 16: by the whole warp. */
static __device__ inline void pleat__device_fill_bytes(uint8_t *at, uint32_t bytes, uint32_t word) {
    for (uint32_t i = threadIdx.x % 32; i < bytes / 16; i += 32)
        ((uint4 *)(void *)at)[i] = make_uint4(word, word, word, word);
}

/* Codes and metadata of a tile, by a whole warp: none of its threads writes there before it is done. */
static __device__ inline void pleat__device_clear_codes(const pleat__page_layout &l, uint8_t *page, uint32_t tile) {
    pleat__device_fill_bytes(pleat__device_k_tile(l, page, tile), l.k_tile_bytes, 0);
    pleat__device_fill_bytes(pleat__device_v_tile(l, page, tile), l.v_tile_bytes, 0);
    if (l.format.k_bits <= 8) {
        pleat__device_fill_bytes((uint8_t *)pleat__device_k_meta(l, page, tile), pleat__device_meta_bytes(l), 0);
        pleat__device_fill_bytes((uint8_t *)pleat__device_v_meta(l, page, tile), pleat__device_meta_bytes(l), 0);
    }
    __syncwarp();
}

/* pleat__quant_clear_tile(), likewise. */
static __device__ inline void pleat__device_clear_tile(const pleat__page_layout &l, uint8_t *page, uint32_t tile) {
    pleat__device_clear_codes(l, page, tile);
    if (l.tracked) {
        const uint32_t bytes = PLEAT__TILE * (uint32_t)sizeof(float);
        for (uint32_t h = 0; h < l.n_scores; h++)
            pleat__device_fill_bytes((uint8_t *)(pleat__device_scores(l, page) + h * l.tokens + tile * PLEAT__TILE),
                                     bytes, 0);
        pleat__device_fill_bytes((uint8_t *)(pleat__device_positions(l, page) + tile * PLEAT__TILE), bytes,
                                 0xFFFFFFFFu);
    }
    __syncwarp();
}

/* ---- load ------------------------------------------------------------------------------------------------------ */

/* scale*level for the codes of a rotated quad, exact. */
static __device__ inline pleat__device_quad pleat__device_from_levels(uint16_t scale_f16, uint32_t bits,
                                                                      const uint32_t codes[4]) {
    const float scale = __half2float(__ushort_as_half(scale_f16));
    pleat__device_quad q;
#pragma unroll
    for (int i = 0; i < 4; i++) q.x[i] = __fmul_rn(scale, (float)pleat__device_level(bits, codes[i]));
    return q;
}

/* pleat__device_key_quad() and pleat__device_value_quad() of rotated formats. */
static __device__ inline pleat__device_quad pleat__device_rotated_key_quad(const pleat__page_layout &l, uint8_t *page,
                                                                           uint32_t slot, uint32_t t) {
    const uint32_t bits = l.format.k_bits, low = pleat__device_low_bits(bits), token = slot % PLEAT__TILE;
    uint8_t *tile = pleat__device_k_tile(l, page, slot / PLEAT__TILE);
    const uint32_t word = *pleat__device_key_word(tile, low, t, token) >> (low * (t % (8 / low)));
    const uint32_t mask = (1u << low) - 1;
    uint32_t third = 0;
    if (bits == 3)
        third =
            *pleat__device_key_thirds(tile, l.head_dim / 4, t, token) >> (t % 4 + pleat__device_key_third_shift(token));
    uint32_t codes[4];
#pragma unroll
    for (int i = 0; i < 4; i++) codes[i] = (word >> (8 * i) & mask) | (third >> (8 * i) & 1) << 2;
    return pleat__device_from_levels(pleat__device_k_meta(l, page, slot / PLEAT__TILE)[token], bits, codes);
}

static __device__ inline pleat__device_quad pleat__device_rotated_value_quad(const pleat__page_layout &l, uint8_t *page,
                                                                             uint32_t slot, uint32_t n_quads,
                                                                             uint32_t t) {
    const uint32_t bits = l.format.v_bits, low = pleat__device_low_bits(bits), token = slot % PLEAT__TILE;
    uint8_t *tile = pleat__device_v_tile(l, page, slot / PLEAT__TILE);
    const uint32_t mask = (1u << low) - 1, shift = pleat__device_value_shift(low, token);
    const uint4 w = *pleat__device_value_words_of(tile, low, n_quads, t, token);
    uint4 thirds = make_uint4(0, 0, 0, 0);
    if (bits == 3) thirds = *pleat__device_value_thirds(tile, n_quads, t);
    const uint32_t at = pleat__device_value_third_shift(t, token);
    const uint32_t codes[4] = {
        (w.x >> shift & mask) | (thirds.x >> at & 1) << 2, (w.y >> shift & mask) | (thirds.y >> at & 1) << 2,
        (w.z >> shift & mask) | (thirds.z >> at & 1) << 2, (w.w >> shift & mask) | (thirds.w >> at & 1) << 2};
    return pleat__device_from_levels(pleat__device_v_meta(l, page, slot / PLEAT__TILE)[token], bits, codes);
}

/* scale*code + min for a quad's codes.  The product is exact, whether it contracts or not. */
static __device__ inline pleat__device_quad pleat__device_dequantise(const uint16_t *meta, uint32_t token,
                                                                     const uint32_t codes[4]) {
    const float scale = __half2float(__ushort_as_half(meta[token]));
    const float min = __half2float(__ushort_as_half(meta[PLEAT__TILE + token]));
    pleat__device_quad q;
#pragma unroll
    for (int i = 0; i < 4; i++) q.x[i] = __fadd_rn(__fmul_rn(scale, (float)codes[i]), min);
    return q;
}

/* Quad t of a token's key. */
static __device__ inline pleat__device_quad pleat__device_key_quad(const pleat__page_layout &l, uint8_t *page,
                                                                   uint32_t slot, uint32_t t) {
    if (l.format.rotated) return pleat__device_rotated_key_quad(l, page, slot, t);
    const uint32_t bits = l.format.k_bits, token = slot % PLEAT__TILE;
    uint8_t *tile = pleat__device_k_tile(l, page, slot / PLEAT__TILE);
    if (bits == 16) {
        const __half *halves = (const __half *)(const void *)tile + 4 * t * PLEAT__TILE + token;
        pleat__device_quad q;
        for (uint32_t i = 0; i < 4; i++) q.x[i] = __half2float(halves[i * PLEAT__TILE]);
        return q;
    }
    const uint32_t word = *pleat__device_key_word(tile, bits, t, token) >> (bits * (t % (8 / bits)));
    const uint32_t mask = (1u << bits) - 1;
    const uint32_t codes[4] = {word & mask, word >> 8 & mask, word >> 16 & mask, word >> 24 & mask};
    return pleat__device_dequantise(pleat__device_k_meta(l, page, slot / PLEAT__TILE), token, codes);
}

/* Quad t of n_quads of a token's value. */
static __device__ inline pleat__device_quad pleat__device_value_quad(const pleat__page_layout &l, uint8_t *page,
                                                                     uint32_t slot, uint32_t n_quads, uint32_t t) {
    if (l.format.rotated) return pleat__device_rotated_value_quad(l, page, slot, n_quads, t);
    const uint32_t bits = l.format.v_bits, token = slot % PLEAT__TILE;
    uint8_t *tile = pleat__device_v_tile(l, page, slot / PLEAT__TILE);
    if (bits == 16) return pleat__device_quad_of(((const uint2 *)(const void *)tile)[token * n_quads + t]);
    const uint32_t mask = (1u << bits) - 1, shift = pleat__device_value_shift(bits, token), flip = bits == 8 ? 0x80 : 0;
    const uint4 w = *pleat__device_value_words_of(tile, bits, n_quads, t, token);
    const uint32_t codes[4] = {(w.x >> shift & mask) ^ flip, (w.y >> shift & mask) ^ flip, (w.z >> shift & mask) ^ flip,
                               (w.w >> shift & mask) ^ flip};
    return pleat__device_dequantise(pleat__device_v_meta(l, page, slot / PLEAT__TILE), token, codes);
}

/* A team's thread's quad of a token. */
template <int D>
static __device__ inline pleat__device_quad pleat__device_load_key(const pleat__page_layout &l, uint8_t *page,
                                                                   uint32_t slot) {
    return pleat__device_key_quad(l, page, slot, pleat__device_team_thread<D>());
}
template <int D>
static __device__ inline pleat__device_quad pleat__device_load_value(const pleat__page_layout &l, uint8_t *page,
                                                                     uint32_t slot) {
    return pleat__device_value_quad(l, page, slot, D / 4, pleat__device_team_thread<D>());
}

/* ---- copy ------------------------------------------------------------------------------------------------------ */

template <int D>
static __device__ inline void pleat__device_copy_key(const pleat__page_layout &l, uint8_t *to_page, uint32_t to,
                                                     uint8_t *from_page, uint32_t from) {
    const uint32_t bits = pleat__device_low_bits(l.format.k_bits), t = pleat__device_team_thread<D>();
    uint8_t *to_tile = pleat__device_k_tile(l, to_page, to / PLEAT__TILE);
    uint8_t *from_tile = pleat__device_k_tile(l, from_page, from / PLEAT__TILE);
    to %= PLEAT__TILE;
    from %= PLEAT__TILE;
    if (bits == 16) {
        for (uint32_t i = 4 * t * PLEAT__TILE; i < 4 * (t + 1) * PLEAT__TILE; i += PLEAT__TILE)
            ((uint16_t *)(void *)to_tile)[i + to] = ((const uint16_t *)(const void *)from_tile)[i + from];
    } else if (t % (8 / bits) == 0) {
        *pleat__device_key_word(to_tile, bits, t, to) = *pleat__device_key_word(from_tile, bits, t, from);
    }
    if (l.format.k_bits == 3 && t % 4 == 0) {
        uint32_t *word = pleat__device_key_thirds(to_tile, D / 4, t, to);
        const uint32_t thirds = *pleat__device_key_thirds(from_tile, D / 4, t, from);
        *word = pleat__device_with_bits(*word, 0x0F0F0F0Fu, pleat__device_key_third_shift(to),
                                        thirds >> pleat__device_key_third_shift(from) & 0x0F0F0F0Fu);
    }
}

/* The thirds of a value's quads t and t + 2. */
template <int D>
static __device__ inline void pleat__device_copy_value_thirds(uint8_t *to_tile, uint32_t to, uint8_t *from_tile,
                                                              uint32_t from, uint32_t t) {
    const uint32_t at = pleat__device_value_third_shift(t, from), shift = pleat__device_value_third_shift(t, to);
    uint4 *words = pleat__device_value_thirds(to_tile, D / 4, t), w = *words;
    const uint4 f = *pleat__device_value_thirds(from_tile, D / 4, t); /* may be the same words */
    w.x = pleat__device_with_bits(w.x, 0x11, shift, f.x >> at & 0x11);
    w.y = pleat__device_with_bits(w.y, 0x11, shift, f.y >> at & 0x11);
    w.z = pleat__device_with_bits(w.z, 0x11, shift, f.z >> at & 0x11);
    w.w = pleat__device_with_bits(w.w, 0x11, shift, f.w >> at & 0x11);
    *words = w;
}

template <int D>
static __device__ inline void pleat__device_copy_value(const pleat__page_layout &l, uint8_t *to_page, uint32_t to,
                                                       uint8_t *from_page, uint32_t from) {
    const uint32_t bits = pleat__device_low_bits(l.format.v_bits), t = pleat__device_team_thread<D>();
    uint8_t *to_tile = pleat__device_v_tile(l, to_page, to / PLEAT__TILE);
    uint8_t *from_tile = pleat__device_v_tile(l, from_page, from / PLEAT__TILE);
    to %= PLEAT__TILE;
    from %= PLEAT__TILE;
    if (bits == 16) {
        ((uint2 *)(void *)to_tile)[to * (D / 4) + t] = ((const uint2 *)(const void *)from_tile)[from * (D / 4) + t];
        return;
    }
    const uint32_t mask = (1u << bits) - 1;
    const uint32_t at = pleat__device_value_shift(bits, from), shift = pleat__device_value_shift(bits, to);
    uint4 *words = pleat__device_value_words<D>(to_tile, bits, t, to), w = *words;
    const uint4 f = *pleat__device_value_words<D>(from_tile, bits, t, from); /* may be the same words */
    w.x = pleat__device_with_bits(w.x, mask, shift, f.x >> at & mask);
    w.y = pleat__device_with_bits(w.y, mask, shift, f.y >> at & mask);
    w.z = pleat__device_with_bits(w.z, mask, shift, f.z >> at & mask);
    w.w = pleat__device_with_bits(w.w, mask, shift, f.w >> at & mask);
    *words = w;
    if (l.format.v_bits == 3 && t % 4 < 2) pleat__device_copy_value_thirds<D>(to_tile, to, from_tile, from, t);
}

/* pleat__quant_copy(), by threads for which `writes` is true: those of one team. */
template <int D>
static __device__ inline void pleat__device_copy_token(const pleat__page_layout &l, uint8_t *to_page, uint32_t to,
                                                       uint8_t *from_page, uint32_t from, bool writes) {
    if (!writes) return;
    pleat__device_copy_key<D>(l, to_page, to, from_page, from);
    pleat__device_copy_value<D>(l, to_page, to, from_page, from);
    const uint32_t t = pleat__device_team_thread<D>(), to_tile = to / PLEAT__TILE, from_tile = from / PLEAT__TILE;
    if (l.format.k_bits <= 8 && t < 4 && !(l.format.rotated && t % 2)) { /* scale and minimum: a thread for each */
        uint16_t *to_meta =
            t < 2 ? pleat__device_k_meta(l, to_page, to_tile) : pleat__device_v_meta(l, to_page, to_tile);
        uint16_t *from_meta =
            t < 2 ? pleat__device_k_meta(l, from_page, from_tile) : pleat__device_v_meta(l, from_page, from_tile);
        to_meta[t % 2 * PLEAT__TILE + to % PLEAT__TILE] = from_meta[t % 2 * PLEAT__TILE + from % PLEAT__TILE];
    }
    if (!l.tracked) return;
    for (uint32_t h = t; h < l.n_scores; h += D / 4)
        pleat__device_scores(l, to_page)[h * l.tokens + to] = pleat__device_scores(l, from_page)[h * l.tokens + from];
    if (t == 0) pleat__device_positions(l, to_page)[to] = pleat__device_positions(l, from_page)[from];
}

#endif
