/* SPDX-License-Identifier: MIT
 *
 * decode_tile.cuh: one warp, one tile of 16 tokens and up to 8 query heads, or two tiles and up to 4: from pages to
 * shared memory, from there to logits, weights and the sums of values.  Built on mma.sync m16n8k16 (f16 in, f32 out),
 * with codes unpacked in registers; decode_kernel.cuh walks the tiles.
 *
 *     S [16 tokens][8 heads] = K q^T       A = K, B = q: one product for 16 dimensions
 *     O [d][8 heads]        += V^T P^T     A = V^T, B = P^T: one product for 16 dimensions
 *
 * Lane 4r + j of a warp (r = 0..7, j = 0..3) holds rows r and r + 8 of A and C, head r of B, heads 2j and 2j+1 of C.
 * Which token or dimension a row or a step of the sum stands for is free as long as both factors agree, and is chosen
 * so that the four bytes of a page's word are what one lane needs:
 *
 *     quantised    S's rows r, r + 8: tokens 2r, 2r + 1        f16    tokens r, r + 8
 *     P^T          k of lane j: tokens 4j, 4j+2 | 4j+1, 4j+3          2j, 2j+1 | 2j+8, 2j+9
 *     O's rows     product 2i + u, rows r, r + 8: dimensions 32i + 4r + 2u, + 1, for all formats
 *
 * A step of two tiles (groups of up to 4 heads) has virtual heads: 0..3 are the first tile's, 4..7 the second's.  Lanes
 * with j < 2 take their logits from the first tile's S, the others from the second's, so softmax costs as much as for
 * one tile; each tile's P^T is zero for the other's heads.  Both halves are merged when the lane of tokens ends.
 *
 * There keys meet q as bytes (mma.sync m16n8k32, s32 sums, exact): q is 256*hi + lo, hi in B's columns 0..3 and lo in
 * 4..7, so that both cost what one would, and words of codes need a mask at most.
 *
 * Unpacking to f16: a code in the low bits of a 16-bit half is an f16: code * 2^-24, subnormal and exact; bit plane p
 * is 2^(bits*p) times that.  One fused multiply-add makes it (code - middle) * 2^-9, exactly: so nothing cancels in
 * long sums.
 *
 *     logit2 = qs*(s*acc + (m + middle*s)*qsum)    qs: softmax scale, log2 e, what q was scaled by;  s, m: of the key
 *     p      = 2^(logit2 - mb)      mb: 9 below the largest logit when it was last raised, which is when p > 2^15
 *     o      = 512*e * sum of [p*s_v/e](f16) * [(code - middle)/512]   +   sum of p*(m_v + middle*s_v)
 *
 * e is a power of two not below any scale so far, so weights keep f16's full precision for values of any size; both
 * references move rarely, by the vote of the whole warp, and then everything is rescaled.  f16 values are taken as
 * 512 * (v/512).
 */
#ifndef PLEAT_ATTN_CUDA_DECODE_TILE_CUH
#define PLEAT_ATTN_CUDA_DECODE_TILE_CUH

#include "attn/cuda/ops.cuh"
#include "core/device_view.h"
#include "hw/cuda/copy.cuh"

/* ---- a step in shared memory ---------------------------------------------------------------------------------- */

/* K codes | V codes | K metadata | V metadata | positions, each of T tiles; chunks of 16 bytes stand where reading them
 * meets all banks. */
template <int D, int KB, int VB, int T> struct step_shape {
    static constexpr bool quantised = KB <= 8;
    static constexpr int k_bytes = 2 * D * KB, v_bytes = 2 * D * VB; /* of a tile */
    static constexpr int v_off = T * k_bytes, meta_off = T * (k_bytes + v_bytes), pos_off = meta_off + T * 128;
    static constexpr int bytes = pos_off + T * 64;
};

/* The middle of a code's range. */
template <int BITS> static __device__ __forceinline__ constexpr float middle_of() {
    return BITS == 8 ? 127.5f : BITS == 4 ? 7.5f : 1.5f;
}

/* Where chunk c of K tiles goes. */
template <int KB> static __device__ __forceinline__ int k_chunk(int c) {
    return KB == 16 ? c ^ (c >> 3 & 1) : c ^ (c >> 3 & 1) << 1;
}

/* Where chunk c of V tiles goes. */
template <int D, int VB> static __device__ __forceinline__ int v_chunk(int c) {
    if (VB == 16) return c ^ (c / (D / 8) >> 1 & 3) << 1;
    if (VB == 8) return c ^ (c / (D / 4) & 3) << 1;
    if (VB == 4) return c ^ (c / (D / 4) & 1) << 2;
    return c;
}

/* Copy n of T pieces of `bytes` each, one behind the other in the page as here; `to_chunk` says where chunks go. */
#define COPY_PIECES(to, from, bytes, n, T, to_chunk)                                                         \
    _Pragma("unroll") for (int i = 0; i < ((T) * (bytes) + 511) / 512; i++) {                                \
        const bool wanted =                                                                                  \
            (bytes) % 512 == 0 ? i * 512 < (bytes) || (n) == (T) : i * 512 + lane * 16 < (int)(n) * (bytes); \
        if (wanted) pleat__copy_16((to) + to_chunk(i * 32 + lane) * 16, (from) + i * 512);                   \
    }

/* Where a lane's 16 bytes of a step's metadata stand in a page, from its tile's 64 bytes on; UINT32_MAX: it copies
 * none. */
template <int D, int KB, int VB, int T>
static __device__ __forceinline__ uint32_t meta_source(const pleat__page_layout &l, int lane) {
    const uint32_t segment = (uint32_t)lane / (4 * T), in_segment = (uint32_t)lane % (4 * T) * 16;
    if (segment < 2 && step_shape<D, KB, VB, T>::quantised)
        return (segment == 0 ? l.k_meta_off : l.v_meta_off) + in_segment;
    return segment == 2 && l.tracked ? l.pos_off + in_segment : UINT32_MAX;
}

/* Start copying tiles tile .. tile + n - 1 of a page to shared memory, n in 1..T. */
template <int D, int KB, int VB, int T>
static __device__ __forceinline__ void copy_step(uint32_t to, const uint8_t *page, const pleat__page_layout &l,
                                                 uint32_t meta, uint32_t tile, uint32_t n, int lane) {
    using shape = step_shape<D, KB, VB, T>;
    const uint8_t *k = page + (l.k_off + tile * shape::k_bytes + lane * 16);
    COPY_PIECES(to, k, shape::k_bytes, n, T, k_chunk<KB>)
    const uint8_t *v = page + (l.v_off + tile * shape::v_bytes + lane * 16);
#define V_CHUNK(c) (v_chunk<D, VB>(c))
    COPY_PIECES(to + shape::v_off, v, shape::v_bytes, n, T, V_CHUNK)
#undef V_CHUNK
    if (meta != UINT32_MAX && (T == 1 || lane % (4 * T) < (int)n * 4))
        pleat__copy_16(to + shape::meta_off + lane * 16, page + (meta + tile * 64));
}

/* ---- what a warp holds of a lane ---------------------------------------------------------------------------- */

template <int D> struct warp_state {
    uint32_t q[D / 16][2]; /* B, in the order of the side's key format */
    float qs[2], qsum[2];  /* of (virtual) heads 2j, 2j+1, as everything of two */
    float mb[2];
    float l[2];    /* sum of p over this lane's tokens: summed over rows at the end */
    float bias[2]; /* likewise, sum of p*(m_v + middle*s_v) */
    float e, inv_e;
    float o[D / 16][4];
};

template <int D> static __device__ __forceinline__ void state_clear(warp_state<D> &st) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        st.mb[h] = -3.0e38f;
        st.l[h] = st.bias[h] = 0;
    }
    st.e = 0x1p-30f;
    st.inv_e = 0x1p30f;
#pragma unroll
    for (int i = 0; i < D / 16; i++) st.o[i][0] = st.o[i][1] = st.o[i][2] = st.o[i][3] = 0;
}

/* A head of q in B's order for key format KB, still unscaled: see the head of this file.  q == NULL: zeros. */
template <int D, int KB>
static __device__ __forceinline__ void load_query(uint32_t b[D / 16][2], const uint16_t *q, int j) {
    const uint32_t *w = (const uint32_t *)(const void *)q;
    constexpr int planes = KB == 16 ? 1 : 8 / KB;
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        b[i][0] = b[i][1] = 0;
        if (!q) continue;
        if (KB == 16) {
            b[i][0] = __ldg(w + 8 * i + j);
            b[i][1] = __ldg(w + 8 * i + j + 4);
        } else { /* word 4*(i / planes) + j of the tile has planes * 4 dimensions; this is plane i % planes */
            const int dim = (4 * (i / planes) + j) * planes * 4 + i % planes * 4;
            const uint2 x = __ldg((const uint2 *)(const void *)(w + dim / 2));
            b[i][0] = low_halves(x.x, x.y);
            b[i][1] = high_halves(x.x, x.y);
        }
    }
}

/* Make the state ready for keys of format KB.  q: this lane's head (r), or NULL for heads beyond the group.  Queries
 * that meet codes are brought by a power of two f below 2^9: centred codes are small, and nothing leaves f16 or f32. */
template <int D, int KB>
static __device__ __forceinline__ void state_set_query(warp_state<D> &st, const uint16_t *q, float scale, int lane) {
    const int j = lane & 3;
    const float qs = scale * 1.44269504088896340736f;
    load_query<D, KB>(st.q, q, j);
    if (KB == 16) {
        st.qs[0] = st.qs[1] = qs;
        st.qsum[0] = st.qsum[1] = 0;
        return;
    }
    float most = 0, sum = 0;
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
        const float2 x = halves_to_floats(st.q[i / 2][i % 2]);
        most = fmaxf(most, fmaxf(fabsf(x.x), fabsf(x.y)));
        sum += x.x + x.y;
    }
    most = fmaxf(most, __shfl_xor_sync(PLEAT__ALL_LANES, most, 1));
    most = fmaxf(most, __shfl_xor_sync(PLEAT__ALL_LANES, most, 2));
    sum += __shfl_xor_sync(PLEAT__ALL_LANES, sum, 1);
    sum += __shfl_xor_sync(PLEAT__ALL_LANES, sum, 2);
    /* f = 2^(8 - exponent of most), 2^15 at most */
    const int exponent = min(8 - ((int)(__float_as_uint(most) >> 23) - 127), 15);
#pragma unroll
    for (int i = 0; i < D / 8; i++) st.q[i / 2][i % 2] = multiply_halves(st.q[i / 2][i % 2], power_halves(exponent));
    const float unit = __uint_as_float((uint32_t)(exponent - 9 + 127) << 23); /* of the products: f * 2^-9 */
#pragma unroll
    for (int h = 0; h < 2; h++) {
        st.qsum[h] = __shfl_sync(PLEAT__ALL_LANES, sum * unit, 8 * j + 4 * h);
        st.qs[h] = __shfl_sync(PLEAT__ALL_LANES, qs * inverse_of_power(unit), 8 * j + 4 * h);
    }
}

/* The same for keys that meet bytes (steps of two tiles): q ~= qs*(256*hi + lo), with hi and lo as the two halves of
 * the virtual heads: this lane's B is hi of head r, or lo of head r - 4.  st.q[i / 2][i % 2]: the four dimensions of
 * word 4*(i % n) + j that plane i / n holds, where n words of a tile are a lane's. */
template <int D, int KB>
static __device__ __forceinline__ void state_set_query_bytes(warp_state<D> &st, const uint16_t *q, float scale,
                                                             int lane) {
    constexpr int planes = 8 / (KB == 16 ? 8 : KB), n = D / 16 / planes;
    constexpr float top = 32639; /* 127*256 + 127: products over 128 dimensions stay below 2^31 */
    const int j = lane & 3;
    uint2 x[D / 16];
    float most = 0;
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        const int dim = (4 * (i % n) + j) * planes * 4 + i / n * 4;
        x[i] = q ? __ldg((const uint2 *)(const void *)(q + dim)) : make_uint2(0, 0);
        const float2 y = halves_to_floats(x[i].x), z = halves_to_floats(x[i].y);
        most = fmaxf(most, fmaxf(fmaxf(fabsf(y.x), fabsf(y.y)), fmaxf(fabsf(z.x), fabsf(z.y))));
    }
    most = fmaxf(most, __shfl_xor_sync(PLEAT__ALL_LANES, most, 1));
    most = fmaxf(most, __shfl_xor_sync(PLEAT__ALL_LANES, most, 2));
    const float inverse = most > 0 ? top / most : 0;
    int32_t sum = 0;
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        const float2 y = halves_to_floats(x[i].x), z = halves_to_floats(x[i].y);
        const float of[4] = {y.x, y.y, z.x, z.y};
        uint32_t bytes = 0;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int32_t code = __float2int_rn(of[k] * inverse), high = (code + 128) >> 8;
            sum += code;
            bytes |= (uint32_t)((lane & 16 ? code - 256 * high : high) & 255) << (8 * k);
        }
        st.q[i / 2][i % 2] = bytes;
    }
    sum += __shfl_xor_sync(PLEAT__ALL_LANES, sum, 1);
    sum += __shfl_xor_sync(PLEAT__ALL_LANES, sum, 2);
    const float qs = scale * 1.44269504088896340736f * (most / top);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        st.qsum[h] = (float)__shfl_sync(PLEAT__ALL_LANES, sum, 8 * j + 4 * h);
        st.qs[h] = __shfl_sync(PLEAT__ALL_LANES, qs, 8 * j + 4 * h);
    }
}

/* ---- codes into f16 ------------------------------------------------------------------------------------------ */

/* The codes that `mask` takes of both halves of w, of which plane `factor` is: (code - middle) * 2^-9. */
template <int BITS>
static __device__ __forceinline__ uint32_t centre(uint32_t w, uint32_t mask, uint32_t flip, uint32_t factor) {
    /* -127.5, -7.5, -1.5, times 2^-9 */
    constexpr uint32_t minus = BITS == 8 ? 0xB3F8B3F8u : BITS == 4 ? 0xA380A380u : 0x9A009A00u;
    return fma_halves((w & mask) ^ flip, factor, minus);
}

template <int BITS> static __device__ __forceinline__ constexpr uint32_t first_plane() {
    return ((1u << (BITS & 15)) - 1) * 0x00010001u;
}

/* ---- keys ------------------------------------------------------------------------------------------------- */

/* c = K q^T of the tile at k. */
template <int D, int KB>
static __device__ __forceinline__ void multiply_keys(float c[4], const warp_state<D> &st, uint32_t k, int lane) {
    const int r = lane >> 2, j = lane & 3;
    float c1[4] = {0, 0, 0, 0}; /* two sums: a product need not wait for the one before */
    c[0] = c[1] = c[2] = c[3] = 0;
    if (KB == 16) {
        const int m = lane >> 3, row = lane & 7;
        const uint32_t at = k + ((m >> 1) * 8 + row) * 32 + ((m & 1) ^ (row >> 2)) * 16;
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            uint32_t a[4];
            load_matrices_transposed(a, at + i * 512);
            multiply(i & 1 ? c1 : c, a, st.q[i][0], st.q[i][1]);
        }
    } else {
        constexpr int planes = 8 / (KB == 16 ? 8 : KB);
        const uint32_t at = k + (j * 4 + ((r >> 1) ^ (j >> 1) << 1)) * 16 + (r & 1) * 8;
#pragma unroll
        for (int i = 0; i < D / 16 / planes; i++) {
            const uint2 w = load_8(at + i * 256);
#pragma unroll
            for (int p = 0; p < planes; p++) {
                const uint32_t mask = first_plane<KB>() << (KB * p), factor = power_halves(15 - KB * p);
                const uint32_t a[4] = {centre<KB>(w.x, mask, 0, factor), centre<KB>(w.y, mask, 0, factor),
                                       centre<KB>(w.x >> 8, mask, 0, factor), centre<KB>(w.y >> 8, mask, 0, factor)};
                const int step = i * planes + p;
                multiply(step & 1 ? c1 : c, a, st.q[step][0], st.q[step][1]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) c[i] += c1[i];
}

/* Codes times bytes of q, for the tile at k: exact. */
template <int D, int KB>
static __device__ __forceinline__ void multiply_key_bytes(int32_t c[4], const warp_state<D> &st, uint32_t k, int lane) {
    constexpr int planes = 8 / (KB == 16 ? 8 : KB), n = D / 16 / planes;
    const int r = lane >> 2, j = lane & 3;
    const uint32_t at = k + (j * 4 + ((r >> 1) ^ (j >> 1) << 1)) * 16 + (r & 1) * 8;
    int32_t of_plane[planes][4] = {};
#pragma unroll
    for (int i = 0; i < n; i += 2) {
        const uint2 x = load_8(at + i * 256), y = load_8(at + i * 256 + 256);
#pragma unroll
        for (int p = 0; p < planes; p++) {
            const uint32_t mask = KB == 8 ? 0xFFFFFFFFu : ((1u << (KB & 7)) - 1) * 0x01010101u << (KB * p & 7);
            const uint32_t a[4] = {x.x & mask, x.y & mask, y.x & mask, y.y & mask};
            const int b = p * n + i;
            multiply_bytes(of_plane[p], a, st.q[b / 2][b % 2], st.q[(b + 1) / 2][(b + 1) % 2]);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        c[i] = of_plane[0][i];
#pragma unroll
        for (int p = 1; p < planes; p++) c[i] += of_plane[p][i] >> (KB * p); /* nothing is lost */
    }
}

/* The same for both tiles of a step, hi and lo together: c is of this lane's virtual heads. */
template <int D, int KB>
static __device__ __forceinline__ void multiply_two_keys(float c[4], const warp_state<D> &st, uint32_t k, int lane) {
    const bool second = lane & 2; /* this lane has lo of both tiles and wants the second; its partner the other way */
    int32_t x[4], y[4];
    multiply_key_bytes<D, KB>(x, st, k, lane);
    multiply_key_bytes<D, KB>(y, st, k + 2 * D * KB, lane);
    const int32_t own = second ? 1 : 256, others = second ? 256 : 1;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int32_t other = __shfl_xor_sync(PLEAT__ALL_LANES, second ? x[i] : y[i], 2);
        c[i] = (float)((second ? y[i] : x[i]) * own + other * others);
    }
}

/* ---- values ----------------------------------------------------------------------------------------------- */

template <int D>
static __device__ __forceinline__ void multiply_float_values(warp_state<D> &st, uint32_t v, uint32_t b0, uint32_t b1,
                                                             int lane) {
    const int r = lane >> 2, j = lane & 3;
    const uint32_t row = v + 2 * j * D * 2 + (r & 1) * 8;
    const uint32_t chunk = (r >> 1) ^ j << 1;
#pragma unroll
    for (int i = 0; i < D / 32; i++) {
        const uint32_t at = row + (((i & 1) << 2 ^ chunk) + (i >> 1) * 8) * 16;
        const uint2 t0 = load_8(at), t1 = load_8(at + D * 2), t2 = load_8(at + 8 * D * 2), t3 = load_8(at + 9 * D * 2);
        const uint32_t a[4] = {low_halves(t0.x, t1.x), high_halves(t0.x, t1.x), low_halves(t2.x, t3.x),
                               high_halves(t2.x, t3.x)};
        multiply(st.o[2 * i], a, b0, b1);
        const uint32_t b[4] = {low_halves(t0.y, t1.y), high_halves(t0.y, t1.y), low_halves(t2.y, t3.y),
                               high_halves(t2.y, t3.y)};
        multiply(st.o[2 * i + 1], b, b0, b1);
    }
}

/* o += V^T P^T of the tile at v; b0 and b1 are P^T. */
template <int D, int VB>
static __device__ __forceinline__ void multiply_values(warp_state<D> &st, uint32_t v, uint32_t b0, uint32_t b1,
                                                       int lane) {
    if (VB == 16) {
        multiply_float_values<D>(st, v, b0, b1, lane);
        return;
    }
    const int r = lane >> 2, j = lane & 3;
    /* this lane's plane of its word: all of byte pairs, nibble j % 2, or crumb j */
    const int plane = VB == 8 ? 0 : VB == 4 ? j & 1 : j;
    const uint32_t mask = first_plane<VB>() << (plane * VB), factor = power_halves(15 - plane * VB);
    constexpr uint32_t flip = VB == 8 ? 0x00800080u : 0; /* 8-bit codes are stored minus 128 */
    const int chunk = VB == 8 ? j * (D / 4) + (r ^ j << 1) : VB == 4 ? (j >> 1) * (D / 4) + (r ^ (j >> 1) << 2) : r;
    const uint32_t at = v + chunk * 16;
#pragma unroll
    for (int i = 0; i < D / 32; i++) {
        const uint4 w = load_16(at + i * 128);
        const uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int u = 0; u < 2; u++) {
            const uint32_t x = words[2 * u], y = words[2 * u + 1];
            const uint32_t a[4] = {centre<VB>(x, mask, flip, factor), centre<VB>(y, mask, flip, factor),
                                   centre<VB>(x >> 8, mask, flip, factor), centre<VB>(y >> 8, mask, flip, factor)};
            multiply(st.o[2 * i + u], a, b0, b1);
        }
    }
}

/* ---- softmax ---------------------------------------------------------------------------------------------- */

/* Raise the references where this step exceeds them.  c: logit2; most_scale: this lane's largest value scale.  Rare. */
template <int D>
static __device__ __forceinline__ void state_raise(warp_state<D> &st, const float c[4], float most_scale) {
    const float scale = __uint_as_float(__reduce_max_sync(PLEAT__ALL_LANES, __float_as_uint(most_scale)));
    float shrink = 1;
    if (scale > st.e) { /* to 2 to 4 times the scale, a power of two */
        const float e = __uint_as_float(((__float_as_uint(scale) >> 23) + 2) << 23);
        shrink = st.e * inverse_of_power(e);
        st.e = e;
        st.inv_e = inverse_of_power(e);
    }
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float most = max_over_rows(fmaxf(c[h], c[2 + h]));
        factor[h] = 1;
        if (most - st.mb[h] > 15) {
            factor[h] = power_of_two(st.mb[h] - (most - 9));
            st.mb[h] = most - 9;
        }
        st.l[h] *= factor[h];
        st.bias[h] *= factor[h];
        factor[h] *= shrink;
    }
#pragma unroll
    for (int i = 0; i < D / 16; i++)
#pragma unroll
        for (int k = 0; k < 4; k++) st.o[i][k] *= factor[k & 1];
}

/* What differs from step to step. */
struct step_context {
    uint32_t at;      /* shared memory */
    uint32_t n_valid; /* tokens of the step, 1..16*T */
    bool tracked;
    float *logits; /* head 0's, of the step's first token, or NULL */
    uint64_t logits_stride;
    uint32_t n_group;
};

/* The tokens of rows r and r + 8 in this lane's tile, and which tile of the step that is. */
template <bool QUANTISED, int T> struct lane_tokens {
    uint32_t first, second, tile;
    __device__ __forceinline__ explicit lane_tokens(int lane) {
        const uint32_t r = (uint32_t)lane >> 2;
        first = QUANTISED ? 2 * r : r;
        second = QUANTISED ? 2 * r + 1 : r + 8;
        tile = T == 2 ? (uint32_t)lane >> 1 & 1 : 0;
    }
};

/* Logits of slots that do not count are -infinity. */
template <int D, int KB, int VB, int T>
static __device__ __forceinline__ void mask_step(float c[4], const step_context &t, int lane) {
    using shape = step_shape<D, KB, VB, T>;
    const lane_tokens<shape::quantised, T> own(lane);
    bool dead0 = own.tile * 16 + own.first >= t.n_valid, dead1 = own.tile * 16 + own.second >= t.n_valid;
    if (t.tracked) {
        const uint32_t at = t.at + shape::pos_off + own.tile * 64;
        dead0 |= (int32_t)load_4(at + own.first * 4) < 0;
        dead1 |= (int32_t)load_4(at + own.second * 4) < 0;
    }
    if (dead0) c[0] = c[1] = -INFINITY;
    if (dead1) c[2] = c[3] = -INFINITY;
}

template <bool QUANTISED, int T>
static __device__ __forceinline__ void store_logits(const float c[4], const step_context &t, int lane) {
    const lane_tokens<QUANTISED, T> own(lane);
    if (own.tile * 16 >= t.n_valid) return;
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t head = (2 * ((uint32_t)lane & 3) + h) % (8 / T);
        if (head >= t.n_group) continue;
        float *to = t.logits + head * t.logits_stride + own.tile * 16;
        if (QUANTISED) { /* neighbours */
            *(float2 *)(void *)(to + own.first) = make_float2(c[h], c[2 + h]);
        } else {
            to[own.first] = c[h];
            to[own.second] = c[2 + h];
        }
    }
}

/* The key and value metadata of a lane's two tokens: scale and offset, middle*scale + minimum, or the minimum alone
 * where codes are not centred. */
struct token_pair {
    float2 k_scale, k_offset, v_scale, v_offset;
};

template <int D, int KB, int VB, int T>
static __device__ __forceinline__ token_pair load_pair(const step_context &t, int lane) {
    using shape = step_shape<D, KB, VB, T>;
    const lane_tokens<shape::quantised, T> own(lane);
    const uint32_t at = t.at + shape::meta_off + own.tile * 64 + own.first * 2;
    token_pair x;
    x.k_scale = halves_to_floats(load_4(at));
    const float2 k_min = halves_to_floats(load_4(at + 32));
    x.v_scale = halves_to_floats(load_4(at + T * 64));
    const float2 v_min = halves_to_floats(load_4(at + T * 64 + 32));
    x.k_offset = k_min;
    if (T == 1) {
        x.k_offset.x += middle_of<KB>() * x.k_scale.x;
        x.k_offset.y += middle_of<KB>() * x.k_scale.y;
    }
    x.v_offset.x = v_min.x + middle_of<VB>() * x.v_scale.x;
    x.v_offset.y = v_min.y + middle_of<VB>() * x.v_scale.y;
    if (T == 2 && own.tile * 16 >= t.n_valid) x.v_scale = x.v_offset = make_float2(0, 0); /* no tile stands there */
    return x;
}

/* logit2 of the step's tokens, for this lane's heads. */
template <int D, int KB, int VB, int T>
static __device__ __forceinline__ void step_logits(float c[4], const warp_state<D> &st, const step_context &t,
                                                   const token_pair &x, int lane) {
    using shape = step_shape<D, KB, VB, T>;
    if (T == 2)
        multiply_two_keys<D, KB>(c, st, t.at, lane);
    else
        multiply_keys<D, KB>(c, st, t.at, lane);
    if (shape::quantised) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            c[h] = x.k_scale.x * c[h] + x.k_offset.x * st.qsum[h];
            c[2 + h] = x.k_scale.y * c[2 + h] + x.k_offset.y * st.qsum[h];
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) c[i] *= st.qs[i & 1];
    if (t.n_valid < 16 * T || t.tracked) mask_step<D, KB, VB, T>(c, t, lane);
    if (t.logits) store_logits<shape::quantised, T>(c, t, lane);
}

/* Add a step to the state. */
template <int D, int KB, int VB, int T>
static __device__ __forceinline__ void add_step(warp_state<D> &st, const step_context &t, int lane) {
    using shape = step_shape<D, KB, VB, T>;
    token_pair x = {{0, 0}, {0, 0}, {0x1p-9f, 0x1p-9f}, {0, 0}}; /* of f16: v = 512 * (v/512) */
    if (shape::quantised) x = load_pair<D, KB, VB, T>(t, lane);
    float c[4];
    step_logits<D, KB, VB, T>(c, st, t, x, lane);
    const float above = fmaxf(fmaxf(c[0], c[2]) - st.mb[0], fmaxf(c[1], c[3]) - st.mb[1]);
    const float most_scale = fmaxf(x.v_scale.x, x.v_scale.y);
    if (__any_sync(PLEAT__ALL_LANES, above > 15 || most_scale > st.e)) state_raise<D>(st, c, most_scale);
    float p[4];
#pragma unroll
    for (int i = 0; i < 4; i++) p[i] = power_of_two(c[i] - st.mb[i & 1]);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        st.l[h] += p[h] + p[2 + h];
        if (shape::quantised) st.bias[h] += p[h] * x.v_offset.x + p[2 + h] * x.v_offset.y;
    }
    /* Weights are rounded to f16; what that adds to sum of code*weight, it adds to the offsets' sum as well, or
     * outliers, whose tokens have large codes and large offsets of opposite sign, would show it many times over. */
    const float weight[4] = {p[0] * (x.v_scale.x * st.inv_e), p[1] * (x.v_scale.x * st.inv_e),
                             p[2] * (x.v_scale.y * st.inv_e), p[3] * (x.v_scale.y * st.inv_e)};
    const uint32_t rounded[2] = {floats_to_halves(weight[0], weight[1]), floats_to_halves(weight[2], weight[3])};
    if (shape::quantised) {
        float g[2] = {x.v_offset.x * approximate_inverse(x.v_scale.x), x.v_offset.y * approximate_inverse(x.v_scale.y)};
#pragma unroll
        for (int k = 0; k < 2; k++) {
            g[k] = fminf(fmaxf(g[k], -middle_of<VB>()), middle_of<VB>()) * st.e;
            const float2 y = halves_to_floats(rounded[k]);
            st.bias[0] += (y.x - weight[2 * k]) * g[k];
            st.bias[1] += (y.y - weight[2 * k + 1]) * g[k];
        }
    }
    const uint32_t b0 = transpose_8x8(rounded[0]), b1 = transpose_8x8(rounded[1]);
    if (T == 1) {
        multiply_values<D, VB>(st, t.at + shape::v_off, b0, b1, lane);
        return;
    }
    const bool second = lane & 16; /* heads 4..7 */
    multiply_values<D, VB>(st, t.at + shape::v_off, second ? 0 : b0, second ? 0 : b1, lane);
    if (t.n_valid > 16)
        multiply_values<D, VB>(st, t.at + shape::v_off + shape::v_bytes, second ? b0 : 0, second ? b1 : 0, lane);
}

/* ---- the end of a lane -------------------------------------------------------------------------------------- */

/* Bring the state to plain numbers: o in true units with the bias added, l of the whole warp, virtual heads merged:
 * heads of this lane are then 2j, 2j + 1, for j < 2 alone where T is 2. */
template <int D, int T> static __device__ __forceinline__ void state_settle(warp_state<D> &st) {
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        st.l[h] = sum_over_rows(st.l[h]);
        st.bias[h] = sum_over_rows(st.bias[h]);
        factor[h] = 1;
        if (T == 2) {
            const float m = fmaxf(st.mb[h], __shfl_xor_sync(PLEAT__ALL_LANES, st.mb[h], 2));
            factor[h] = power_of_two(st.mb[h] - m);
            st.mb[h] = m;
            st.l[h] *= factor[h];
            st.l[h] += __shfl_xor_sync(PLEAT__ALL_LANES, st.l[h], 2);
        }
    }
    const float unit = 512 * st.e;
#pragma unroll
    for (int i = 0; i < D / 16; i++)
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float o = (st.o[i][k] * unit + st.bias[k & 1]) * factor[k & 1];
            if (T == 2) o += __shfl_xor_sync(PLEAT__ALL_LANES, o, 2);
            st.o[i][k] = o;
        }
}

#endif
