/* SPDX-License-Identifier: MIT
 *
 * decode_state.cuh: what a warp holds while it reads a lane: the query, ready for the keys' format, and the running
 * softmax.  decode_tile.cuh adds tiles to it; decode_merge.cuh takes what is left at the end.
 */
#ifndef PLEAT_ATTN_CUDA_DECODE_STATE_CUH
#define PLEAT_ATTN_CUDA_DECODE_STATE_CUH

#include "attn/cuda/ops.cuh"

/* The letters are those of the equations in decode_tile.cuh.  [2]: for (virtual) heads 2j and 2j + 1. */
template <int D> struct warp_state {
    uint32_t q[D / 16][2]; /* the query as mma's operand B, in the order of the side's key format */
    float q_scale[2];      /* what a product of codes with q is worth: softmax scale, log2 e, the scaling of q */
    float q_sum[2];        /* sum of the head's elements of q, which the key's offset meets */
    float m_ref[2];        /* the logit that weights are relative to: p = 2^(logit2 - m_ref) */
    float weight_sum[2];   /* sum of p: of this thread's tokens until the lane ends, of all of them then */
    float offset_sum[2];   /* sum of p*(m_v + middle*s_v), over the same tokens as weight_sum */
    float v_unit;          /* a power of two not below any value scale so far: weights are p*s_v/v_unit */
    float v_unit_inverse;  /* 1/v_unit */
    float o[D / 16][4];    /* mma's C: the weighted sum of centred codes, [product][of two rows, each two heads] */
};

template <int D> static __device__ __forceinline__ void state_clear(warp_state<D> &st) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        st.m_ref[h] = -3.0e38f;
        st.weight_sum[h] = st.offset_sum[h] = 0;
    }
    st.v_unit = 0x1p-30f;
    st.v_unit_inverse = 0x1p30f;
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

/* Make the state ready for keys of format KB.  q: this thread's head (r), or NULL for heads beyond the group.  Queries
 * that meet codes are brought by a power of two f below 2^9: centred codes are small, and nothing leaves f16 or f32. */
template <int D, int KB>
static __device__ __forceinline__ void state_set_query(warp_state<D> &st, const uint16_t *q, float scale, int thread) {
    const int j = thread & 3;
    const float q_scale = scale * 1.44269504088896340736f;
    load_query<D, KB>(st.q, q, j);
    if (KB == 16) {
        st.q_scale[0] = st.q_scale[1] = q_scale;
        st.q_sum[0] = st.q_sum[1] = 0;
        return;
    }
    float most = 0, sum = 0;
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
        const float2 x = halves_to_floats(st.q[i / 2][i % 2]);
        most = fmaxf(most, fmaxf(fabsf(x.x), fabsf(x.y)));
        sum += x.x + x.y;
    }
    most = fmaxf(most, __shfl_xor_sync(PLEAT__ALL_THREADS, most, 1));
    most = fmaxf(most, __shfl_xor_sync(PLEAT__ALL_THREADS, most, 2));
    sum += __shfl_xor_sync(PLEAT__ALL_THREADS, sum, 1);
    sum += __shfl_xor_sync(PLEAT__ALL_THREADS, sum, 2);
    /* f = 2^(8 - exponent of most), 2^15 at most */
    const int exponent = min(8 - ((int)(__float_as_uint(most) >> 23) - 127), 15);
#pragma unroll
    for (int i = 0; i < D / 8; i++) st.q[i / 2][i % 2] = multiply_halves(st.q[i / 2][i % 2], power_halves(exponent));
    const float unit = __uint_as_float((uint32_t)(exponent - 9 + 127) << 23); /* of the products: f * 2^-9 */
#pragma unroll
    for (int h = 0; h < 2; h++) {
        st.q_sum[h] = __shfl_sync(PLEAT__ALL_THREADS, sum * unit, 8 * j + 4 * h);
        st.q_scale[h] = __shfl_sync(PLEAT__ALL_THREADS, q_scale * inverse_of_power(unit), 8 * j + 4 * h);
    }
}

/* The four dimensions of thread j's element i of B, where n_words words of a tile are a thread's: those of word
 * 4*(i % n_words) + j that plane i / n_words holds.  Of rotated keys it is what look_up() makes of half a word
 * 4*(i / planes) + j.  Zeros without q. */
template <int KB> static __device__ __forceinline__ uint2 query_quad(const uint16_t *q, int i, int n_words, int j) {
    constexpr int planes = 8 / (KB == 16 ? 8 : low_bits_of(KB));
    if (!q) return make_uint2(0, 0);
    if (!is_rotated(KB))
        return __ldg((const uint2 *)(const void *)(q + (4 * (i % n_words) + j) * planes * 4 + i / n_words * 4));
    const uint16_t *at = q + (4 * (i / planes) + j) * planes * 4 + i % planes * 2;
    const uint32_t x = __ldg((const uint32_t *)(const void *)at),
                   y = __ldg((const uint32_t *)(const void *)(at + 2 * planes));
    return make_uint2(low_halves(x, y), high_halves(x, y));
}

/* The same for keys that meet bytes (steps of two tiles): q ~= q_scale*(256*hi + lo).  hi and lo are the two halves of
 * the virtual heads: this thread's B is hi of head r, or lo of head r - 4.  st.q[i / 2][i % 2] is query_quad() i. */
template <int D, int KB>
static __device__ __forceinline__ void state_set_query_bytes(warp_state<D> &st, const uint16_t *q, float scale,
                                                             int thread) {
    constexpr int n = D / 16 * (KB == 16 ? 8 : low_bits_of(KB)) / 8;
    constexpr float top = 32639; /* 127*256 + 127: products over 128 dimensions stay below 2^31 */
    const int j = thread & 3;
    uint2 x[D / 16];
    float most = 0;
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        x[i] = query_quad<KB>(q, i, n, j);
        const float2 y = halves_to_floats(x[i].x), z = halves_to_floats(x[i].y);
        most = fmaxf(most, fmaxf(fmaxf(fabsf(y.x), fabsf(y.y)), fmaxf(fabsf(z.x), fabsf(z.y))));
    }
    most = fmaxf(most, __shfl_xor_sync(PLEAT__ALL_THREADS, most, 1));
    most = fmaxf(most, __shfl_xor_sync(PLEAT__ALL_THREADS, most, 2));
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
            bytes |= (uint32_t)((thread & 16 ? code - 256 * high : high) & 255) << (8 * k);
        }
        st.q[i / 2][i % 2] = bytes;
    }
    sum += __shfl_xor_sync(PLEAT__ALL_THREADS, sum, 1);
    sum += __shfl_xor_sync(PLEAT__ALL_THREADS, sum, 2);
    const float q_scale = scale * 1.44269504088896340736f * (most / top);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        st.q_sum[h] = (float)__shfl_sync(PLEAT__ALL_THREADS, sum, 8 * j + 4 * h);
        st.q_scale[h] = __shfl_sync(PLEAT__ALL_THREADS, q_scale, 8 * j + 4 * h);
    }
}

/* ---- when references move -------------------------------------------------------------------------------- */

/* Raise the references where this step exceeds them.  c: logit2; max_scale: this thread's largest value
 * scale.  Rare. */
template <int D, int T>
static __device__ __forceinline__ void state_raise(warp_state<D> &st, const float c[4], float max_scale) {
    const float scale = __uint_as_float(__reduce_max_sync(PLEAT__ALL_THREADS, __float_as_uint(max_scale)));
    float shrink = 1;
    if (scale > st.v_unit) { /* to 2 to 4 times the scale, a power of two */
        const float unit = __uint_as_float(((__float_as_uint(scale) >> 23) + 2) << 23);
        shrink = st.v_unit * inverse_of_power(unit);
        st.v_unit = unit;
        st.v_unit_inverse = inverse_of_power(unit);
    }
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float most = max_over_rows(fmaxf(c[h], c[2 + h]));
        if (T >= 2) most = fmaxf(most, __shfl_xor_sync(PLEAT__ALL_THREADS, most, 2)); /* both halves have one */
        factor[h] = 1;
        if (most - st.m_ref[h] > 15) {
            factor[h] = power_of_two(st.m_ref[h] - (most - 9));
            st.m_ref[h] = most - 9;
        }
        st.weight_sum[h] *= factor[h];
        st.offset_sum[h] *= factor[h];
        factor[h] *= shrink;
    }
#pragma unroll
    for (int i = 0; i < D / 16; i++)
#pragma unroll
        for (int k = 0; k < 4; k++) st.o[i][k] *= factor[k & 1];
}

/* ---- the end of a lane -------------------------------------------------------------------------------------- */

/* Bring the state to plain numbers: o in true units with the bias added, l of the whole warp, virtual heads merged.
 * Heads of this thread are then 2j, 2j + 1, for j < 2 alone where T is 2 or 4. */
template <int D, int T> static __device__ __forceinline__ void state_settle(warp_state<D> &st) {
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        st.weight_sum[h] = sum_over_rows(st.weight_sum[h]);
        st.offset_sum[h] = sum_over_rows(st.offset_sum[h]);
        factor[h] = 1;
        if (T >= 2) {
            const float m = fmaxf(st.m_ref[h], __shfl_xor_sync(PLEAT__ALL_THREADS, st.m_ref[h], 2));
            factor[h] = power_of_two(st.m_ref[h] - m);
            st.m_ref[h] = m;
            st.weight_sum[h] *= factor[h];
            st.weight_sum[h] += __shfl_xor_sync(PLEAT__ALL_THREADS, st.weight_sum[h], 2);
        }
    }
    const float unit = 512 * st.v_unit;
#pragma unroll
    for (int i = 0; i < D / 16; i++)
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float o = (st.o[i][k] * unit + st.offset_sum[k & 1]) * factor[k & 1];
            if (T >= 2) o += __shfl_xor_sync(PLEAT__ALL_THREADS, o, 2);
            st.o[i][k] = o;
        }
}

#endif
