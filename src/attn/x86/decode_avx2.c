/* SPDX-License-Identifier: MIT
 *
 * decode_avx2.c: decode attention with 256-bit registers: the walk over groups, the softmax between keys and values
 * (decode_avx512.c has the scheme), and the attention received.
 */
#include "attn/x86/decode_avx2.h"

#include <float.h>

INLINE __m128 exp2_128(__m128 x) { return _mm256_castps256_ps128(exp2_256(_mm256_castps128_ps256(x))); }

/* Each four heads' results are reduced together, by transposing: element h of these is the largest, or the sum, of
 * v[h]. */
INLINE __m256 low_pairs(__m256 a, __m256 b) {
    return _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(a), _mm256_castps_pd(b)));
}
INLINE __m256 high_pairs(__m256 a, __m256 b) {
    return _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(a), _mm256_castps_pd(b)));
}
INLINE __m128 max_of_four(const __m256 *v) {
    const __m256 a = _mm256_max_ps(_mm256_unpacklo_ps(v[0], v[1]), _mm256_unpackhi_ps(v[0], v[1]));
    const __m256 b = _mm256_max_ps(_mm256_unpacklo_ps(v[2], v[3]), _mm256_unpackhi_ps(v[2], v[3]));
    const __m256 c = _mm256_max_ps(low_pairs(a, b), high_pairs(a, b));
    return _mm_max_ps(_mm256_castps256_ps128(c), _mm256_extractf128_ps(c, 1));
}
INLINE __m128 sum_of_four(const __m256 *v) {
    const __m256 a = _mm256_add_ps(_mm256_unpacklo_ps(v[0], v[1]), _mm256_unpackhi_ps(v[0], v[1]));
    const __m256 b = _mm256_add_ps(_mm256_unpacklo_ps(v[2], v[3]), _mm256_unpackhi_ps(v[2], v[3]));
    const __m256 c = _mm256_add_ps(low_pairs(a, b), high_pairs(a, b));
    return _mm_add_ps(_mm256_castps256_ps128(c), _mm256_extractf128_ps(c, 1));
}

/* The numbers of 1, 2 or 4 heads, zeros behind them. */
INLINE __m128 load_heads(uint32_t heads, const float *p) {
    return heads == 4   ? _mm_loadu_ps(p)
           : heads == 2 ? _mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)(const void *)p))
                        : _mm_load_ss(p);
}
INLINE void store_heads(uint32_t heads, float *p, __m128 x) {
    if (heads == 4)
        _mm_storeu_ps(p, x);
    else if (heads == 2)
        _mm_storel_epi64((__m128i *)(void *)p, _mm_castps_si128(x));
    else
        _mm_store_ss(p, x);
}

/* Of a group's values, the same for every head. */
typedef struct value_scales {
    __m256 scale[TILES][2];
    __m256 middle[TILES][2]; /* minimum + c*scale */
} value_scales;

INLINE void value_scales_init(value_scales *vs, const pleat__tile_group *g, pleat_format f) {
    const __m256 c = _mm256_set1_ps((float)(1u << (f.v_bits - 1)));
    for (uint32_t t = 0; t < g->n_tiles; t++) {
        for (uint32_t half = 0; half < 2; half++) {
            vs->scale[t][half] = load_f16(g->v_meta[t] + 8 * half);
            vs->middle[t][half] = _mm256_setzero_ps(); /* levels have none */
            if (f.rotated) continue;
            const __m256 min = load_f16(g->v_meta[t] + PLEAT__TILE + 8 * half);
            vs->middle[t][half] = _mm256_fmadd_ps(c, vs->scale[t][half], min);
        }
    }
}

/* A block of heads of the accumulator, and of the range's sums of weight * middle. */
typedef struct block_state {
    float *m;
    float *l;
    float *bias; /* NULL for float values */
} block_state;

/* Slots that do not count get -infinity. */
INLINE void mask_logits(uint32_t heads, const pleat__tile_group *g, float (*logits)[TILES][PLEAT__TILE]) {
    for (uint32_t t = 0; t < g->n_tiles; t++) {
        if (g->live[t] == 0xFFFF) continue;
        for (uint32_t i = 0; i < PLEAT__TILE; i += 8) {
            const __m256 live = mask_of(g->live[t] >> i);
            for (uint32_t h = 0; h < heads; h++) {
                const __m256 x = _mm256_load_ps(logits[h][t] + i);
                _mm256_store_ps(logits[h][t] + i, _mm256_blendv_ps(_mm256_set1_ps(-__builtin_inff()), x, live));
            }
        }
    }
}

/* Each head's largest logit; some slot of the group counts, so it is finite. */
INLINE __m128 largest_logits(uint32_t heads, const pleat__tile_group *g, float (*logits)[TILES][PLEAT__TILE]) {
    __m256 most[HEADS];
    for (uint32_t h = 0; h < HEADS; h++) {
        __m256 m = _mm256_set1_ps(-FLT_MAX);
        for (uint32_t t = 0; h < heads && t < g->n_tiles; t++) {
            const __m256 x = _mm256_max_ps(_mm256_load_ps(logits[h][t]), _mm256_load_ps(logits[h][t] + 8));
            m = _mm256_max_ps(m, x);
        }
        most[h] = m;
    }
    return max_of_four(most);
}

/* Weights of float values; returns the sums of e. */
INLINE __m128 weigh_float(uint32_t heads, const pleat__tile_group *g, float (*logits)[TILES][PLEAT__TILE],
                          const float *group_max, const float *share, pleat__weights_avx2 *w) {
    __m256 sum[HEADS];
    for (uint32_t h = 0; h < HEADS; h++) {
        __m256 total = _mm256_setzero_ps();
        for (uint32_t i = 0; h < heads && i < g->n_tiles * PLEAT__TILE; i += 8) {
            const __m256 x = _mm256_load_ps(logits[h][0] + i);
            const __m256 e = exp2_256(_mm256_sub_ps(x, _mm256_broadcast_ss(group_max + h)));
            total = _mm256_add_ps(total, e);
            _mm256_store_ps(w->u.f32[h][0] + i, _mm256_mul_ps(e, _mm256_broadcast_ss(share + h)));
        }
        sum[h] = total;
    }
    return sum_of_four(sum);
}

/* 32-bit weights of a head to 16 bits, each four in the order 0, 2, 1, 3; returns their sums. */
INLINE __m256 store_fixed(const pleat__tile_group *g, const __m256 (*scaled)[2], __m256 to_fixed,
                          int16_t (*out)[PLEAT__TILE]) {
    const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0, 1, 4, 5, 2, 3, 6, 7,
                                           8, 9, 12, 13, 10, 11, 14, 15);
    __m256i total = _mm256_setzero_si256();
    for (uint32_t t = 0; t < g->n_tiles; t++) {
        const __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(scaled[t][0], to_fixed));
        const __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(scaled[t][1], to_fixed));
        total = _mm256_add_epi32(total, _mm256_add_epi32(a, b));
        const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xD8);
        _mm256_store_si256((__m256i *)(void *)out[t], _mm256_shuffle_epi8(packed, order));
    }
    return _mm256_cvtepi32_ps(total);
}

/* Weights of integer values: the sums of e are returned, those of e * middle left in *middle. */
INLINE __m128 weigh_fixed(uint32_t heads, const pleat__tile_group *g, const value_scales *vs,
                          float (*logits)[TILES][PLEAT__TILE], const float *group_max, __m128 share, __m128 *middle,
                          pleat__weights_avx2 *w) {
    __m256 sum[HEADS], bias[HEADS], most[HEADS], scaled[HEADS][TILES][2];
    for (uint32_t h = 0; h < HEADS; h++) {
        __m256 s = _mm256_setzero_ps(), b = s, m = s; /* not the arrays: gcc would keep those in memory */
        for (uint32_t i = 0; h < heads && i < 2 * g->n_tiles; i++) {
            const __m256 x = _mm256_load_ps(logits[h][0] + 8 * i);
            const __m256 e = exp2_256(_mm256_sub_ps(x, _mm256_broadcast_ss(group_max + h)));
            s = _mm256_add_ps(s, e);
            b = _mm256_fmadd_ps(e, vs->middle[i / 2][i % 2], b);
            scaled[h][i / 2][i % 2] = _mm256_mul_ps(e, vs->scale[i / 2][i % 2]);
            m = _mm256_max_ps(m, scaled[h][i / 2][i % 2]);
        }
        sum[h] = s;
        bias[h] = b;
        most[h] = m;
    }
    /* A floor keeps 1/step finite; weights below it are lost, as f32 would lose them in the sum. */
    const __m128 top = _mm_max_ps(max_of_four(most), _mm_set1_ps(0x1p-100f));
    _mm_store_ps(w->step, _mm_mul_ps(share, _mm_mul_ps(top, _mm_set1_ps(1.0f / (float)PLEAT__WEIGHT_TOP))));
    float to_fixed[HEADS] __attribute__((aligned(16)));
    _mm_store_ps(to_fixed, _mm_div_ps(_mm_set1_ps((float)PLEAT__WEIGHT_TOP), top));
    __m256 total[HEADS]; /* whole numbers below 2^24 */
    for (uint32_t h = 0; h < HEADS; h++)
        total[h] = h < heads ? store_fixed(g, scaled[h], _mm256_broadcast_ss(to_fixed + h), w->u.fixed[h])
                             : _mm256_setzero_ps();
    _mm_store_si128((__m128i *)(void *)w->sum, _mm_cvtps_epi32(sum_of_four(total)));
    *middle = sum_of_four(bias);
    return sum_of_four(sum);
}

/* Turn a block's logits into weights; update m, l, bias. */
INLINE void softmax(uint32_t heads, const pleat__tile_group *g, const value_scales *vs,
                    float (*logits)[TILES][PLEAT__TILE], block_state st, pleat__weights_avx2 *w) {
    mask_logits(heads, g, logits);
    const __m128 u = largest_logits(heads, g, logits);
    const __m128 m = load_heads(heads, st.m), raised = _mm_max_ps(m, u);
    const __m128 rescale = exp2_128(_mm_sub_ps(m, raised)), share = exp2_128(_mm_sub_ps(u, raised));
    store_heads(heads, st.m, raised);
    _mm_store_ps(w->rescale, rescale);
    float group_max[HEADS] __attribute__((aligned(16))), shares[HEADS] __attribute__((aligned(16)));
    _mm_store_ps(group_max, u);
    _mm_store_ps(shares, share);
    __m128 sum;
    if (st.bias) {
        __m128 middle;
        sum = weigh_fixed(heads, g, vs, logits, group_max, share, &middle, w);
        const __m128 bias = load_heads(heads, st.bias);
        store_heads(heads, st.bias, _mm_fmadd_ps(bias, rescale, _mm_mul_ps(middle, share)));
    } else {
        sum = weigh_float(heads, g, logits, group_max, shares, w);
    }
    const __m128 l = load_heads(heads, st.l);
    store_heads(heads, st.l, _mm_fmadd_ps(l, rescale, _mm_mul_ps(sum, share)));
}

static void softmax_block(uint32_t heads, const pleat__tile_group *g, const value_scales *vs,
                          float (*logits)[TILES][PLEAT__TILE], block_state st, pleat__weights_avx2 *w) {
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
    const pleat__keys_avx2_fn *keys; /* by heads */
    const pleat__values_avx2_fn *values;
    float *bias; /* [G] sums of weight * middle, NULL for float values */
} walk;

static void add_group(const void *context, pleat__tile_group *g) {
    const walk *wk = context;
    const uint32_t n_group = wk->query->n_group, d = wk->query->head_dim;
    float logits[HEADS][TILES][PLEAT__TILE] __attribute__((aligned(64)));
    pleat__weights_avx2 weights;
    value_scales vs;
    if (wk->bias) value_scales_init(&vs, g, wk->layout->format);
    for (uint32_t head = 0, heads; head < n_group; head += heads) {
        heads = pleat__decode_block_heads(n_group - head);
        wk->keys[heads](wk->query, head, g, logits);
        pleat__decode_adjust(wk->query, heads, g, logits, pleat__attn_cap_avx2);
        const block_state st = {wk->acc->m + head, wk->acc->l + head, wk->bias ? wk->bias + head : NULL};
        softmax_block(heads, g, &vs, logits, st, &weights);
        for (uint32_t h = 0; wk->logits && h < heads; h++)
            __builtin_memcpy(wk->logits + (head + h) * wk->logits_stride + g->slot, logits[h],
                             g->n_tiles * sizeof logits[h][0]);
        wk->values[heads](&weights, g, d, wk->acc->o + (size_t)head * d);
        if (head == 0) pleat__tile_group_stop_prefetch(g);
    }
}

void pleat__decode_walk_avx2(const pleat__keys_avx2_fn *keys, const pleat__values_avx2_fn *values,
                             const pleat__attn_query *query, const pleat__kv_run *run, uint32_t slot_from,
                             uint32_t slot_to, pleat__attn_acc *acc, float *logits, size_t logits_stride) {
    const pleat__page_layout *l = run->layout;
    float bias[PLEAT__MAX_GROUP] = {0};
    const walk wk = {.query = query,
                     .layout = l,
                     .acc = acc,
                     .logits = logits,
                     .logits_stride = logits_stride,
                     .keys = keys,
                     .values = values,
                     .bias = pleat__format_is_quantised(l->format) ? bias : NULL};
    pleat__decode_groups(run, slot_from, slot_to, query->n_group, logits, logits_stride, add_group, &wk);
    if (wk.bias) pleat__decode_add_bias(acc, bias, query->n_group, query->head_dim);
}

void pleat__attn_decode_avx2(const pleat__attn_query *query, const pleat__kv_run *run, uint32_t slot_from,
                             uint32_t slot_to, pleat__attn_acc *acc, float *logits, size_t logits_stride) {
    const pleat_format f = run->layout->format;
    pleat__decode_walk_avx2(pleat__keys_avx2[pleat__decode_row(f.k_bits, f.rotated)],
                            pleat__values_avx2[pleat__decode_row(f.v_bits, f.rotated)], query, run, slot_from, slot_to,
                            acc, logits, logits_stride);
}

INLINE void add_received(float *score, uint32_t n, const float *logits, size_t stride, const float *lse2,
                         uint32_t n_group) {
    for (uint32_t i = 0; i < n; i += PLEAT__TILE) {
        const float *x = logits + i;
        __m256 most[2] = {_mm256_set1_ps(-__builtin_inff()), _mm256_set1_ps(-__builtin_inff())};
        for (uint32_t g = 0; g < n_group; g++, x += stride) { /* logit2 - lse2; a NaN is not taken */
            const __m256 y = _mm256_broadcast_ss(lse2 + g);
            most[0] = _mm256_max_ps(_mm256_sub_ps(_mm256_loadu_ps(x), y), most[0]);
            most[1] = _mm256_max_ps(_mm256_sub_ps(_mm256_loadu_ps(x + 8), y), most[1]);
        }
        const uint32_t here = n - i < PLEAT__TILE ? (1u << (n - i)) - 1 : 0xFFFF;
        for (uint32_t half = 0; half < 2; half++) {
            float *at = score + i + 8 * half;
            const __m256 weight = _mm256_and_ps(exp2_256(most[half]), mask_of(here >> (8 * half)));
            _mm256_store_ps(at, _mm256_add_ps(_mm256_load_ps(at), weight));
        }
    }
}

void pleat__attn_decode_received_avx2(const pleat__kv_run *run, uint32_t slot_from, uint32_t slot_to,
                                      const float *logits, size_t logits_stride, const float *lse2, uint32_t n_group) {
    pleat__received_pages(run, slot_from, slot_to, logits, logits_stride, lse2, n_group, add_received);
}
