/* SPDX-License-Identifier: MIT
 *
 * decode_tile.cuh: the arithmetic of one warp's step: one tile of 16 tokens and up to 8 query heads, or two tiles or
 * four and up to 4.  From shared memory (decode_copy.cuh) to logits, weights and the sums of values (decode_state.cuh).  Built
 * on mma.sync m16n8k16 (f16 in, f32 out), with codes unpacked in registers; decode_kernel.cuh walks the tiles.
 *
 *     S [16 tokens][8 heads] = K q^T       A = K, B = q: one product for 16 dimensions
 *     O [d][8 heads]        += V^T P^T     A = V^T, B = P^T: one product for 16 dimensions
 *
 * Thread 4r + j of a warp (r = 0..7, j = 0..3) holds rows r and r + 8 of A and C, head r of B, heads 2j and 2j+1 of C.
 * Which token or dimension a row or a step of the sum stands for is free as long as both factors agree, and is chosen
 * so that the four bytes of a page's word are what one thread needs:
 *
 *     quantised    S's rows r, r + 8: tokens 2r, 2r + 1        f16    tokens r, r + 8
 *     P^T          k of thread j: tokens 4j, 4j+2 | 4j+1, 4j+3          2j, 2j+1 | 2j+8, 2j+9
 *     O's rows     product 2i + u, rows r, r + 8: dimensions 32i + 4r + 2u, + 1, for all formats
 *
 * A step of two tiles (groups of up to 4 heads) has virtual heads: 0..3 are the first tile's, 4..7 the second's.
 * Threads with j < 2 take their logits from the first tile's S, the others from the second's, so softmax costs as much
 * as for one tile; each tile's P^T is zero for the other's heads.  Both halves are merged when the lane ends.
 *
 * There keys meet q as bytes (mma.sync m16n8k32, s32 sums, exact).  q is 256*hi + lo, hi in B's columns 0..3 and lo in
 * 4..7.  So both cost what one would, and words of codes need a mask at most.
 *
 * Unpacking to f16: a code in the low bits of a 16-bit half is an f16: code * 2^-24, subnormal and exact; bit plane p
 * is 2^(bits*p) times that.  One fused multiply-add makes it (code - middle) * 2^-9, exactly: so nothing cancels in
 * long sums.
 *
 *     logit2 = q_scale*(s*acc + (m + middle*s)*q_sum)      s, m: scale and minimum of the key
 *     p      = 2^(logit2 - m_ref)
 *     o      = 512*v_unit * sum of [p*s_v/v_unit](f16) * [(code - middle)/512]   +   offset_sum
 *
 * m_ref is 9 below the largest logit when it was last raised, which is when p > 2^15.  v_unit is a power of two not
 * below any scale so far, so weights keep f16's full precision for values of any size.  Rotated formats have levels in
 * place of centred codes, and neither minimums nor middles; of 2 and 3 bits they meet bytes (decode_levels.cuh).  Both references move rarely,
 * by the vote of the whole warp, and then everything is rescaled.  f16 values are taken as 512 * (v/512).
 */
#ifndef PLEAT_ATTN_CUDA_DECODE_TILE_CUH
#define PLEAT_ATTN_CUDA_DECODE_TILE_CUH

#include "attn/cuda/decode_copy.cuh"
#include "attn/cuda/decode_levels.cuh"
#include "attn/cuda/decode_state.cuh"

/* ---- codes into f16 ------------------------------------------------------------------------------------------ */

/* The middle of a code's range. */
template <int BITS> static __device__ __forceinline__ constexpr float middle_of() {
    return BITS == 8 ? 127.5f : BITS == 4 ? 7.5f : 1.5f;
}

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
static __device__ __forceinline__ void multiply_keys(float c[4], const warp_state<D> &st, uint32_t k, int thread) {
    const int r = thread >> 2, j = thread & 3;
    float c1[4] = {0, 0, 0, 0}; /* two sums: a product need not wait for the one before */
    c[0] = c[1] = c[2] = c[3] = 0;
    if (KB == 16) {
        const int m = thread >> 3, row = thread & 7;
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
static __device__ __forceinline__ void multiply_key_bytes(int32_t c[4], const warp_state<D> &st, uint32_t k,
                                                          int thread) {
    constexpr int planes = 8 / (KB == 16 ? 8 : KB), n = D / 16 / planes;
    const int r = thread >> 2, j = thread & 3;
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

/* The same for both tiles of a step, hi and lo together: c is of this thread's virtual heads. */
template <int D, int KB, int VB>
static __device__ __forceinline__ void multiply_two_keys(float c[4], const warp_state<D> &st, uint32_t k, int thread) {
    const bool second =
        thread & 2; /* this thread has lo of both tiles and wants the second; its partner the other way */
    int32_t x[4], y[4];
    if constexpr (is_rotated(KB)) {
        multiply_key_levels<D, bits_of(KB), is_crossed(VB)>(x, st, k, thread);
        multiply_key_levels<D, bits_of(KB), is_crossed(VB)>(y, st, k + 2 * D * bits_of(KB), thread);
    } else {
        multiply_key_bytes<D, KB>(x, st, k, thread);
        multiply_key_bytes<D, KB>(y, st, k + 2 * D * KB, thread);
    }
    const int32_t own = second ? 1 : 256, others = second ? 256 : 1;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int32_t other = __shfl_xor_sync(PLEAT__ALL_THREADS, second ? x[i] : y[i], 2);
        c[i] = (float)((second ? y[i] : x[i]) * own + other * others);
    }
}

/* ---- values ----------------------------------------------------------------------------------------------- */

template <int D>
static __device__ __forceinline__ void multiply_float_values(warp_state<D> &st, uint32_t v, uint32_t b0, uint32_t b1,
                                                             int thread) {
    const int r = thread >> 2, j = thread & 3;
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
                                                       int thread) {
    if constexpr (is_rotated(VB)) {
        multiply_value_levels<D>(st, v, b0, b1, thread);
        return;
    }
    if (VB == 16) {
        multiply_float_values<D>(st, v, b0, b1, thread);
        return;
    }
    const int r = thread >> 2, j = thread & 3;
    /* this thread's plane of its word: all of byte pairs, nibble j % 2, or crumb j */
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

/* What differs from step to step. */
struct step_context {
    uint32_t at;      /* shared memory */
    uint32_t n_valid; /* tokens of the step, 1..16*T */
    bool tracked;
    float *logits; /* head 0's, of the step's first token, or NULL */
    uint64_t logits_stride;
    uint32_t n_group;
};

/* The tokens of rows r and r + 8 in this thread's tile, and which tile of the step that is, whose pair of tiles it is. */
template <bool QUANTISED, bool CROSSED, int T> struct thread_tokens {
    uint32_t first, second, tile;
    __device__ __forceinline__ thread_tokens(int pair, int thread) {
        const uint32_t r = (uint32_t)pair_of<CROSSED>(thread);
        first = QUANTISED ? 2 * r : r;
        second = QUANTISED ? 2 * r + 1 : r + 8;
        tile = T >= 2 ? 2 * (uint32_t)pair + ((uint32_t)thread >> 1 & 1) : 0;
    }
};

/* Logits of slots that do not count are -infinity. */
template <int D, int KB, int VB, int T>
static __device__ __forceinline__ void mask_step(float c[4], const step_context &t, int pair, int thread) {
    using shape = step_shape<D, KB, VB, T>;
    const thread_tokens<shape::quantised, is_crossed(VB), T> own(pair, thread);
    bool dead0 = own.tile * 16 + own.first >= t.n_valid, dead1 = own.tile * 16 + own.second >= t.n_valid;
    if (t.tracked) {
        const uint32_t at = t.at + shape::pos_off + own.tile * 64;
        dead0 |= (int32_t)load_4(at + own.first * 4) < 0;
        dead1 |= (int32_t)load_4(at + own.second * 4) < 0;
    }
    if (dead0) c[0] = c[1] = -INFINITY;
    if (dead1) c[2] = c[3] = -INFINITY;
}

template <bool QUANTISED, bool CROSSED, int T>
static __device__ __forceinline__ void store_logits(const float c[4], const step_context &t, int pair, int thread) {
    const thread_tokens<QUANTISED, CROSSED, T> own(pair, thread);
    if (own.tile * 16 >= t.n_valid) return;
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t head = (2 * ((uint32_t)thread & 3) + h) % (T == 1 ? 8 : 4);
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

/* The key and value metadata of a thread's two tokens: scale and offset, middle*scale + minimum, or the minimum alone
 * where codes are not centred. */
struct token_pair {
    float2 k_scale, k_offset, v_scale, v_offset;
};

template <int D, int KB, int VB, int T>
static __device__ __forceinline__ token_pair load_pair(const step_context &t, int pair, int thread) {
    using shape = step_shape<D, KB, VB, T>;
    const thread_tokens<shape::quantised, is_crossed(VB), T> own(pair, thread);
    const uint32_t at = t.at + shape::meta_off + own.tile * shape::meta_bytes + own.first * 2;
    token_pair x;
    x.k_scale = halves_to_floats(load_4(at));
    if (shape::rotated) {
        x.v_scale = halves_to_floats(load_4(at + shape::segment_bytes));
        x.k_offset = x.v_offset = make_float2(0, 0);
        if (T >= 2 && own.tile * 16 >= t.n_valid) x.v_scale = make_float2(0, 0); /* no tile stands there */
        return x;
    }
    const float2 k_min = halves_to_floats(load_4(at + 32));
    x.v_scale = halves_to_floats(load_4(at + shape::segment_bytes));
    const float2 v_min = halves_to_floats(load_4(at + shape::segment_bytes + 32));
    x.k_offset = k_min;
    if (T == 1) {
        x.k_offset.x += middle_of<KB>() * x.k_scale.x;
        x.k_offset.y += middle_of<KB>() * x.k_scale.y;
    }
    x.v_offset.x = v_min.x + middle_of<VB>() * x.v_scale.x;
    x.v_offset.y = v_min.y + middle_of<VB>() * x.v_scale.y;
    if (T >= 2 && own.tile * 16 >= t.n_valid) x.v_scale = x.v_offset = make_float2(0, 0); /* no tile stands there */
    return x;
}

/* logit2 of the step's tokens, for this thread's heads. */
template <int D, int KB, int VB, int T>
static __device__ __forceinline__ void step_logits(float c[4], const warp_state<D> &st, const step_context &t,
                                                   const token_pair &x, int pair, int thread) {
    using shape = step_shape<D, KB, VB, T>;
    if constexpr (T >= 2)
        multiply_two_keys<D, KB, VB>(c, st, t.at + pair * 2 * shape::k_bytes, thread);
    else
        multiply_keys<D, KB>(c, st, t.at, thread);
    if (shape::rotated) {
#pragma unroll
        for (int i = 0; i < 4; i++) c[i] *= i < 2 ? x.k_scale.x : x.k_scale.y;
    } else if (shape::quantised) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            c[h] = x.k_scale.x * c[h] + x.k_offset.x * st.q_sum[h];
            c[2 + h] = x.k_scale.y * c[2 + h] + x.k_offset.y * st.q_sum[h];
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) c[i] *= st.q_scale[i & 1];
    const uint32_t end = T == 1 ? 16 : 32 * (pair + 1);
    if (t.n_valid < end || t.tracked) mask_step<D, KB, VB, T>(c, t, pair, thread);
    if (t.logits) store_logits<shape::quantised, is_crossed(VB), T>(c, t, pair, thread);
}

/* Add a step whose values meet weights as bytes. */
template <int D, int KB, int VB, int T>
static __device__ __forceinline__ void add_crossed_step(warp_state<D> &st, const step_context &t, int thread) {
    using shape = step_shape<D, KB, VB, T>;
    constexpr int n = T / 2;
    float c[n][4], most[4], weights[n][4], max_scale = 0;
    float2 scale[n];
#pragma unroll
    for (int i = 0; i < n; i++) {
        const token_pair x = load_pair<D, KB, VB, T>(t, i, thread);
        step_logits<D, KB, VB, T>(c[i], st, t, x, i, thread);
        scale[i] = x.v_scale;
        max_scale = fmaxf(max_scale, fmaxf(x.v_scale.x, x.v_scale.y));
#pragma unroll
        for (int k = 0; k < 4; k++) most[k] = i == 0 ? c[i][k] : fmaxf(most[k], c[i][k]);
    }
    const float above = fmaxf(fmaxf(most[0], most[2]) - st.m_ref[0], fmaxf(most[1], most[3]) - st.m_ref[1]);
    if (__any_sync(PLEAT__ALL_THREADS, above > 15 || max_scale > st.v_unit)) state_raise<D, T>(st, most, max_scale);
#pragma unroll
    for (int i = 0; i < n; i++) {
        const float first = scale[i].x * st.v_unit_inverse, second = scale[i].y * st.v_unit_inverse;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float p = power_of_two(c[i][k] - st.m_ref[k & 1]);
            st.weight_sum[k & 1] += p;
            weights[i][k] = p * (k < 2 ? first : second);
        }
    }
    weight_bytes<n> w;
    weights_to_bytes<n>(w, weights, thread);
    multiply_by_weight_bytes<D, bits_of(VB), n>(st, t.at + shape::v_off, w, thread);
}

/* Add a step to the state. */
template <int D, int KB, int VB, int T>
static __device__ __forceinline__ void add_step(warp_state<D> &st, const step_context &t, int thread) {
    if constexpr (is_crossed(VB)) {
        add_crossed_step<D, KB, VB, T>(st, t, thread);
        return;
    }
    using shape = step_shape<D, KB, VB, T>;
    constexpr bool has_offsets = shape::quantised && !shape::rotated;
    token_pair x = {{0, 0}, {0, 0}, {0x1p-9f, 0x1p-9f}, {0, 0}}; /* of f16: v = 512 * (v/512) */
    if (shape::quantised) x = load_pair<D, KB, VB, T>(t, 0, thread);
    float c[4];
    step_logits<D, KB, VB, T>(c, st, t, x, 0, thread);
    const float above = fmaxf(fmaxf(c[0], c[2]) - st.m_ref[0], fmaxf(c[1], c[3]) - st.m_ref[1]);
    const float max_scale = fmaxf(x.v_scale.x, x.v_scale.y);
    if (__any_sync(PLEAT__ALL_THREADS, above > 15 || max_scale > st.v_unit)) state_raise<D, T>(st, c, max_scale);
    float p[4];
#pragma unroll
    for (int i = 0; i < 4; i++) p[i] = power_of_two(c[i] - st.m_ref[i & 1]);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        st.weight_sum[h] += p[h] + p[2 + h];
        if (has_offsets) st.offset_sum[h] += p[h] * x.v_offset.x + p[2 + h] * x.v_offset.y;
    }
    /* Weights are rounded to f16; what that adds to sum of code*weight, it adds to the offsets' sum as well, or
     * outliers, whose tokens have large codes and large offsets of opposite sign, would show it many times over. */
    const float weight[4] = {p[0] * (x.v_scale.x * st.v_unit_inverse), p[1] * (x.v_scale.x * st.v_unit_inverse),
                             p[2] * (x.v_scale.y * st.v_unit_inverse), p[3] * (x.v_scale.y * st.v_unit_inverse)};
    const uint32_t rounded[2] = {floats_to_halves(weight[0], weight[1]), floats_to_halves(weight[2], weight[3])};
    if (has_offsets) {
        float g[2] = {x.v_offset.x * approximate_inverse(x.v_scale.x), x.v_offset.y * approximate_inverse(x.v_scale.y)};
#pragma unroll
        for (int k = 0; k < 2; k++) {
            g[k] = fminf(fmaxf(g[k], -middle_of<VB>()), middle_of<VB>()) * st.v_unit;
            const float2 y = halves_to_floats(rounded[k]);
            st.offset_sum[0] += (y.x - weight[2 * k]) * g[k];
            st.offset_sum[1] += (y.y - weight[2 * k + 1]) * g[k];
        }
    }
    uint32_t b0 = transpose_8x8(rounded[0]), b1 = transpose_8x8(rounded[1]);
    if (shape::rotated) { /* k of thread j: tokens 4j, 4j + 1 | 4j + 2, 4j + 3 */
        const uint32_t even = b0;
        b0 = low_halves(even, b1);
        b1 = high_halves(even, b1);
    }
    if (T == 1) {
        multiply_values<D, VB>(st, t.at + shape::v_off, b0, b1, thread);
        return;
    }
    const bool second = thread & 16; /* heads 4..7 */
    multiply_values<D, VB>(st, t.at + shape::v_off, second ? 0 : b0, second ? 0 : b1, thread);
    if (t.n_valid > 16)
        multiply_values<D, VB>(st, t.at + shape::v_off + shape::v_bytes, second ? b0 : 0, second ? b1 : 0, thread);
}

#endif
