/* SPDX-License-Identifier: MIT
 *
 * decode_avx512.c: decode attention with 512-bit registers: the walk over groups, the softmax between keys and values;
 * and the attention received.
 *
 * The softmax takes weights against the group's own maximum u[h], so only a handful of scalars per head and group wait
 * for the running maximum m[h]:
 *
 *     e = 2^(logit2 - u)      m' = max(m, u)      l = l*2^(m - m') + 2^(u - m') * sum e
 *
 * Four heads' maxima and sums are reduced together, by transposing.
 */
#include "attn/x86/decode_avx512.h"

#include <float.h>

INLINE __m128 exp2_128(__m128 x) { return _mm512_castps512_ps128(exp2_512(_mm512_castps128_ps512(x), 0xF)); }

INLINE __m512 low_pairs(__m512 a, __m512 b) {
    return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}
INLINE __m512 high_pairs(__m512 a, __m512 b) {
    return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}

/* Element h of the result: the largest of v[h]. */
INLINE __m128 max_of_four(const __m512 *v) {
    const __m512 a = _mm512_max_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
    const __m512 b = _mm512_max_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
    const __m512 c = _mm512_max_ps(low_pairs(a, b), high_pairs(a, b));
    const __m256 e = _mm256_max_ps(_mm512_castps512_ps256(c), _mm512_extractf32x8_ps(c, 1));
    return _mm_max_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
}

/* Element h of the result: the sum of v[h]. */
INLINE __m128 sum_of_four(const __m512 *v) {
    const __m512 a = _mm512_add_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
    const __m512 b = _mm512_add_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
    const __m512 c = _mm512_add_ps(low_pairs(a, b), high_pairs(a, b));
    const __m256 e = _mm256_add_ps(_mm512_castps512_ps256(c), _mm512_extractf32x8_ps(c, 1));
    return _mm_add_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
}

/* Of a group's values, the same for every head. */
typedef struct value_scales {
    __m512 scale[TILES];
    __m512 middle[TILES]; /* minimum + c*scale */
} value_scales;

INLINE void value_scales_init(value_scales *vs, const pleat__tile_group *g, pleat_format f) {
    const __m512 c = _mm512_set1_ps((float)(1u << (f.v_bits - 1)));
    for (uint32_t t = 0; t < g->n_tiles; t++) {
        vs->scale[t] = load_f16(g->v_meta[t]);
        vs->middle[t] =
            f.rotated ? _mm512_setzero_ps() : _mm512_fmadd_ps(c, vs->scale[t], load_f16(g->v_meta[t] + PLEAT__TILE));
    }
}

/* A block of heads of the accumulator, and of the range's sums of weight * middle. */
typedef struct block_state {
    float *m;
    float *l;
    float *bias; /* NULL for float values */
} block_state;

/* Mask a block's logits, which are stored back, and give each head's largest; some slot of the group counts, so
 * it is finite. */
INLINE __m128 mask_logits(uint32_t heads, const pleat__tile_group *g, float (*logits)[TILES][PLEAT__TILE]) {
    __m512 most[HEADS];
    for (uint32_t h = 0; h < HEADS; h++) {
        most[h] = _mm512_set1_ps(-FLT_MAX);
        for (uint32_t t = 0; h < heads && t < g->n_tiles; t++) {
            const __m512 x = _mm512_mask_mov_ps(_mm512_set1_ps(-__builtin_inff()), (__mmask16)g->live[t],
                                                _mm512_load_ps(logits[h][t]));
            _mm512_store_ps(logits[h][t], x);
            most[h] = _mm512_max_ps(most[h], x);
        }
    }
    return max_of_four(most);
}

/* Weights of float values. */
INLINE __m128 weigh_float(uint32_t heads, const pleat__tile_group *g, float (*logits)[TILES][PLEAT__TILE],
                          const float *group_max, const float *share, pleat__weights_avx512 *w) {
    __m512 sum[HEADS];
    for (uint32_t h = 0; h < HEADS; h++) {
        sum[h] = _mm512_setzero_ps();
        for (uint32_t t = 0; h < heads && t < g->n_tiles; t++) {
            const __m512 e =
                exp2_512(_mm512_sub_ps(_mm512_load_ps(logits[h][t]), _mm512_set1_ps(group_max[h])), 0xFFFF);
            sum[h] = _mm512_add_ps(sum[h], e);
            _mm512_store_ps(w->u.f32[h][t], _mm512_mul_ps(e, _mm512_set1_ps(share[h])));
        }
    }
    return sum_of_four(sum);
}

/* Weights of integer values: the sums of e are returned, those of e * middle left in *middle. */
INLINE __m128 weigh_fixed(uint32_t heads, const pleat__tile_group *g, const value_scales *vs,
                          float (*logits)[TILES][PLEAT__TILE], const float *group_max, __m128 share, __m128 *middle,
                          pleat__weights_avx512 *w) {
    __m512 sum[HEADS], bias[HEADS], most[HEADS], scaled[HEADS][TILES];
    for (uint32_t h = 0; h < HEADS; h++) {
        sum[h] = bias[h] = most[h] = _mm512_setzero_ps();
        for (uint32_t t = 0; h < heads && t < g->n_tiles; t++) {
            const __m512 e =
                exp2_512(_mm512_sub_ps(_mm512_load_ps(logits[h][t]), _mm512_set1_ps(group_max[h])), 0xFFFF);
            sum[h] = _mm512_add_ps(sum[h], e);
            bias[h] = _mm512_fmadd_ps(e, vs->middle[t], bias[h]);
            scaled[h][t] = _mm512_mul_ps(e, vs->scale[t]);
            most[h] = _mm512_max_ps(most[h], scaled[h][t]);
        }
    }
    /* A floor keeps 1/step finite; weights below it are lost, as f32 would lose them in the sum. */
    const __m128 top = _mm_max_ps(max_of_four(most), _mm_set1_ps(0x1p-100f));
    const __m128 per_step = _mm_div_ps(_mm_set1_ps((float)PLEAT__WEIGHT_TOP), top);
    _mm_store_ps(w->step, _mm_mul_ps(share, _mm_mul_ps(top, _mm_set1_ps(1.0f / (float)PLEAT__WEIGHT_TOP))));
    float to_fixed[HEADS] __attribute__((aligned(16)));
    _mm_store_ps(to_fixed, per_step);
    for (uint32_t h = 0; h < heads; h++) {
        __m512i total = _mm512_setzero_si512();
        for (uint32_t t = 0; t < g->n_tiles; t++) {
            const __m512i p = _mm512_cvtps_epi32(_mm512_mul_ps(scaled[h][t], _mm512_set1_ps(to_fixed[h])));
            const __m512i hi = _mm512_srai_epi32(_mm512_add_epi32(p, _mm512_set1_epi32(128)), 8);
            total = _mm512_add_epi32(total, p);
            _mm_store_si128((__m128i *)(void *)w->u.limbs.hi[h][t], _mm512_cvtepi32_epi8(hi));
            _mm_store_si128((__m128i *)(void *)w->u.limbs.lo[h][t], _mm512_cvtepi32_epi8(p));
        }
        w->sum[h] = _mm512_reduce_add_epi32(total);
    }
    *middle = sum_of_four(bias);
    return sum_of_four(sum);
}

/* Turn a block's logits into weights; update m, l, bias. */
INLINE void softmax(uint32_t heads, const pleat__tile_group *g, const value_scales *vs,
                    float (*logits)[TILES][PLEAT__TILE], block_state st, pleat__weights_avx512 *w) {
    const __mmask8 mine = (__mmask8)((1u << heads) - 1);
    const __m128 u = mask_logits(heads, g, logits);
    const __m128 m = _mm_maskz_loadu_ps(mine, st.m), raised = _mm_max_ps(m, u);
    const __m128 rescale = exp2_128(_mm_sub_ps(m, raised)), share = exp2_128(_mm_sub_ps(u, raised));
    _mm_mask_storeu_ps(st.m, mine, raised);
    _mm_store_ps(w->rescale, rescale);
    float group_max[HEADS] __attribute__((aligned(16))), shares[HEADS] __attribute__((aligned(16)));
    _mm_store_ps(group_max, u);
    _mm_store_ps(shares, share);
    __m128 sum;
    if (st.bias) {
        __m128 middle;
        sum = weigh_fixed(heads, g, vs, logits, group_max, share, &middle, w);
        const __m128 bias = _mm_maskz_loadu_ps(mine, st.bias);
        _mm_mask_storeu_ps(st.bias, mine, _mm_fmadd_ps(bias, rescale, _mm_mul_ps(middle, share)));
    } else {
        sum = weigh_float(heads, g, logits, group_max, shares, w);
    }
    const __m128 l = _mm_maskz_loadu_ps(mine, st.l);
    _mm_mask_storeu_ps(st.l, mine, _mm_fmadd_ps(l, rescale, _mm_mul_ps(sum, share)));
}

static void softmax_block(uint32_t heads, const pleat__tile_group *g, const value_scales *vs,
                          float (*logits)[TILES][PLEAT__TILE], block_state st, pleat__weights_avx512 *w) {
    if (heads == 4)
        softmax(4, g, vs, logits, st, w);
    else if (heads == 2)
        softmax(2, g, vs, logits, st, w);
    else
        softmax(1, g, vs, logits, st, w);
}

/* Everything that stays the same in a range. */
typedef struct walk {
    const pleat__attn_query *query;
    const pleat__page_layout *layout;
    pleat__attn_acc *acc;
    float *logits;
    size_t logits_stride;
    const pleat__keys_avx512_fn *keys; /* by heads */
    const pleat__values_avx512_fn *values;
    float *bias;
} walk;

static void add_group(const void *context, pleat__tile_group *g) {
    const walk *wk = context;
    const uint32_t n_group = wk->query->n_group, d = wk->query->head_dim;
    float logits[HEADS][TILES][PLEAT__TILE] __attribute__((aligned(64)));
    pleat__weights_avx512 weights;
    value_scales vs;
    if (wk->bias) value_scales_init(&vs, g, wk->layout->format);
    for (uint32_t head = 0, heads; head < n_group; head += heads) {
        heads = pleat__decode_block_heads(n_group - head);
        wk->keys[heads](wk->query, head, g, logits);
        pleat__decode_adjust(wk->query, heads, g, logits, pleat__attn_cap_avx512);
        const block_state st = {wk->acc->m + head, wk->acc->l + head, wk->bias ? wk->bias + head : NULL};
        softmax_block(heads, g, &vs, logits, st, &weights);
        for (uint32_t h = 0; wk->logits && h < heads; h++) {
            float *out = wk->logits + (head + h) * wk->logits_stride + g->slot;
            for (uint32_t t = 0; t < g->n_tiles; t++)
                _mm512_storeu_ps(out + t * PLEAT__TILE, _mm512_load_ps(logits[h][t]));
        }
        wk->values[heads](&weights, g, d, wk->acc->o + (size_t)head * d);
        if (head == 0) pleat__tile_group_stop_prefetch(g);
    }
}

void pleat__attn_decode_vnni(const pleat__attn_query *query, const pleat__kv_run *run, uint32_t slot_from,
                             uint32_t slot_to, pleat__attn_acc *acc, float *logits, size_t logits_stride) {
    const pleat__page_layout *l = run->layout;
    float bias[PLEAT__MAX_GROUP] = {0};
    const walk wk = {.query = query,
                     .layout = l,
                     .acc = acc,
                     .logits = logits,
                     .logits_stride = logits_stride,
                     .keys = pleat__keys_avx512[pleat__decode_row(l->format.k_bits, l->format.rotated)],
                     .values = pleat__values_avx512[pleat__decode_row(l->format.v_bits, l->format.rotated)],
                     .bias = pleat__format_is_quantised(l->format) ? bias : NULL};
    pleat__decode_groups(run, slot_from, slot_to, query->n_group, logits, logits_stride, add_group, &wk);
    if (wk.bias) pleat__decode_add_bias(acc, bias, query->n_group, query->head_dim);
}

void pleat__attn_decode_avx512(const pleat__attn_query *query, const pleat__kv_run *run, uint32_t slot_from,
                               uint32_t slot_to, pleat__attn_acc *acc, float *logits, size_t logits_stride) {
    if (pleat__format_is_quantised(run->layout->format))
        pleat__attn_decode_avx2(query, run, slot_from, slot_to, acc, logits, logits_stride);
    else
        pleat__attn_decode_vnni(query, run, slot_from, slot_to, acc, logits, logits_stride);
}

INLINE void add_received(float *score, uint32_t n, const float *logits, size_t stride, const float *lse2,
                         uint32_t n_group) {
    for (uint32_t i = 0; i < n; i += PLEAT__TILE) {
        const float *x = logits + i;
        __m512 most = _mm512_set1_ps(-__builtin_inff());
        for (uint32_t g = 0; g < n_group; g++, x += stride) /* logit2 - lse2; a NaN is not taken */
            most = _mm512_max_ps(_mm512_sub_ps(_mm512_loadu_ps(x), _mm512_set1_ps(lse2[g])), most);
        const uint32_t here = n - i < PLEAT__TILE ? (1u << (n - i)) - 1 : 0xFFFF;
        _mm512_store_ps(score + i, _mm512_add_ps(_mm512_load_ps(score + i), exp2_512(most, (__mmask16)here)));
    }
}

void pleat__attn_decode_received_avx512(const pleat__kv_run *run, uint32_t slot_from, uint32_t slot_to,
                                        const float *logits, size_t logits_stride, const float *lse2,
                                        uint32_t n_group) {
    pleat__received_pages(run, slot_from, slot_to, logits, logits_stride, lse2, n_group, add_received);
}
