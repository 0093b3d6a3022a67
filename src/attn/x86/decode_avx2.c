/* SPDX-License-Identifier: MIT
 *
 * decode_avx2.c: decode attention with 256-bit registers: the walk over groups, the softmax between keys and values
 * (decode_avx512.c has the scheme), and the attention received.
 */
#include "attn/x86/decode_avx2.h"

#include <float.h>

INLINE __m128 exp2_128(__m128 x) { return _mm256_castps256_ps128(exp2_256(_mm256_castps128_ps256(x))); }

INLINE int32_t reduce_add_i32(__m256i x) {
    __m128i m = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    m = _mm_add_epi32(m, _mm_unpackhi_epi64(m, m));
    return _mm_cvtsi128_si32(_mm_add_epi32(m, _mm_shuffle_epi32(m, 1)));
}

/* Of a group's values, the same for every head. */
typedef struct value_scales {
    __m256 scale[TILES][2];
    __m256 middle[TILES][2]; /* minimum + c*scale */
} value_scales;

INLINE void value_scales_init(value_scales *vs, const pleat__tile_group *g, uint32_t bits) {
    const __m256 c = _mm256_set1_ps((float)(1u << (bits - 1)));
    for (uint32_t t = 0; t < g->n_tiles; t++) {
        for (uint32_t half = 0; half < 2; half++) {
            const __m256 min = load_f16(g->v_meta[t] + PLEAT__TILE + 8 * half);
            vs->scale[t][half] = load_f16(g->v_meta[t] + 8 * half);
            vs->middle[t][half] = _mm256_fmadd_ps(c, vs->scale[t][half], min);
        }
    }
}

/* What the softmax of one head leaves. */
typedef struct head_sums {
    float weight;  /* sum of e */
    float middle;  /* sum of e * middle */
    float step;    /* of the fixed-point weights */
    int32_t fixed; /* their sum */
} head_sums;

/* Mask a head's logits and give the largest; some slot of the group counts, so it is finite. */
INLINE float mask_logits(const pleat__tile_group *g, float (*logits)[PLEAT__TILE]) {
    __m256 most = _mm256_set1_ps(-FLT_MAX);
    for (uint32_t t = 0; t < g->n_tiles; t++) {
        for (uint32_t half = 0; half < 2; half++) {
            const __m256 x = _mm256_blendv_ps(_mm256_set1_ps(-__builtin_inff()), _mm256_load_ps(logits[t] + 8 * half),
                                              mask_of(g->live[t] >> (8 * half)));
            _mm256_store_ps(logits[t] + 8 * half, x);
            most = _mm256_max_ps(most, x);
        }
    }
    return max_of(most);
}

INLINE head_sums weigh_float(const pleat__tile_group *g, float (*logits)[PLEAT__TILE], float group_max, float share,
                             float (*out)[PLEAT__TILE]) {
    __m256 sum = _mm256_setzero_ps();
    for (uint32_t t = 0; t < g->n_tiles; t++) {
        for (uint32_t half = 0; half < 2; half++) {
            const __m256 e = exp2_256(_mm256_sub_ps(_mm256_load_ps(logits[t] + 8 * half), _mm256_set1_ps(group_max)));
            sum = _mm256_add_ps(sum, e);
            _mm256_store_ps(out[t] + 8 * half, _mm256_mul_ps(e, _mm256_set1_ps(share)));
        }
    }
    return (head_sums){.weight = sum_of(sum)};
}

INLINE head_sums weigh_fixed(const pleat__tile_group *g, const value_scales *vs, float (*logits)[PLEAT__TILE],
                             float group_max, int16_t (*out)[PLEAT__TILE]) {
    const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0, 1, 4, 5, 2, 3, 6, 7,
                                           8, 9, 12, 13, 10, 11, 14, 15); /* 0, 2, 1, 3 of 16-bit numbers */
    __m256 sum = _mm256_setzero_ps(), middle = _mm256_setzero_ps(), most = _mm256_setzero_ps(), scaled[TILES][2];
    for (uint32_t t = 0; t < g->n_tiles; t++) {
        for (uint32_t half = 0; half < 2; half++) {
            const __m256 e = exp2_256(_mm256_sub_ps(_mm256_load_ps(logits[t] + 8 * half), _mm256_set1_ps(group_max)));
            sum = _mm256_add_ps(sum, e);
            middle = _mm256_fmadd_ps(e, vs->middle[t][half], middle);
            scaled[t][half] = _mm256_mul_ps(e, vs->scale[t][half]);
            most = _mm256_max_ps(most, scaled[t][half]);
        }
    }
    /* A floor keeps 1/step finite; weights below it are lost, as f32 would lose them in the sum. */
    const float top = max_of(_mm256_max_ps(most, _mm256_set1_ps(0x1p-100f)));
    const __m256 to_fixed = _mm256_set1_ps((float)PLEAT__WEIGHT_TOP / top);
    __m256i fixed = _mm256_setzero_si256();
    for (uint32_t t = 0; t < g->n_tiles; t++) {
        const __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(scaled[t][0], to_fixed));
        const __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(scaled[t][1], to_fixed));
        fixed = _mm256_add_epi32(fixed, _mm256_add_epi32(a, b));
        const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xD8);
        _mm256_store_si256((__m256i *)(void *)out[t], _mm256_shuffle_epi8(packed, order));
    }
    return (head_sums){.weight = sum_of(sum),
                       .middle = sum_of(middle),
                       .step = top * (1.0f / (float)PLEAT__WEIGHT_TOP),
                       .fixed = reduce_add_i32(fixed)};
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

/* Turn a block's logits into weights; update m, l, bias. */
static void softmax(const walk *wk, uint32_t head, uint32_t heads, const pleat__tile_group *g, const value_scales *vs,
                    float (*logits)[TILES][PLEAT__TILE], pleat__weights_avx2 *w) {
    float *m = wk->acc->m + head, *l = wk->acc->l + head;
    float u[HEADS] = {0}, old[HEADS] = {0}, share[HEADS];
    for (uint32_t h = 0; h < heads; h++) {
        u[h] = mask_logits(g, logits[h]);
        old[h] = m[h];
        m[h] = m[h] > u[h] ? m[h] : u[h];
    }
    const __m128 us = _mm_loadu_ps(u), olds = _mm_loadu_ps(old), raised = _mm_max_ps(olds, us);
    _mm_storeu_ps(w->rescale, exp2_128(_mm_sub_ps(olds, raised)));
    _mm_storeu_ps(share, exp2_128(_mm_sub_ps(us, raised)));
    for (uint32_t h = 0; h < heads; h++) {
        if (!wk->bias) {
            const head_sums s = weigh_float(g, logits[h], u[h], share[h], w->u.f32[h]);
            l[h] = l[h] * w->rescale[h] + s.weight * share[h];
            continue;
        }
        const head_sums s = weigh_fixed(g, vs, logits[h], u[h], w->u.fixed[h]);
        l[h] = l[h] * w->rescale[h] + s.weight * share[h];
        wk->bias[head + h] = wk->bias[head + h] * w->rescale[h] + s.middle * share[h];
        w->sum[h] = s.fixed;
        w->step[h] = s.step * share[h];
    }
}

static void add_group(const walk *wk, pleat__tile_group *g) {
    const uint32_t n_group = wk->query->n_group, d = wk->query->head_dim;
    float logits[HEADS][TILES][PLEAT__TILE] __attribute__((aligned(64)));
    pleat__weights_avx2 weights;
    value_scales vs;
    if (wk->bias) value_scales_init(&vs, g, wk->layout->format.v_bits);
    for (uint32_t head = 0, heads; head < n_group; head += heads) {
        heads = pleat__decode_block_heads(n_group - head);
        wk->keys[heads](wk->query, head, g, logits);
        softmax(wk, head, heads, g, &vs, logits, &weights);
        for (uint32_t h = 0; wk->logits && h < heads; h++)
            __builtin_memcpy(wk->logits + (head + h) * wk->logits_stride + g->slot, logits[h],
                             g->n_tiles * sizeof logits[h][0]);
        wk->values[heads](&weights, g, d, wk->acc->o + (size_t)head * d);
        if (head == 0) pleat__tile_group_stop_prefetch(g);
    }
}

void pleat__attn_decode_avx2(const pleat__attn_query *query, const pleat__kv_run *run, uint32_t slot_from,
                             uint32_t slot_to, pleat__attn_acc *acc, float *logits, size_t logits_stride) {
    const pleat__page_layout *l = run->layout;
    float bias[PLEAT__MAX_GROUP] = {0};
    const walk wk = {.query = query,
                     .layout = l,
                     .acc = acc,
                     .logits = logits,
                     .logits_stride = logits_stride,
                     .keys = pleat__keys_avx2[__builtin_ctz(l->format.k_bits)],
                     .values = pleat__values_avx2[__builtin_ctz(l->format.v_bits)],
                     .bias = pleat__format_is_quantised(l->format) ? bias : NULL};
    pleat__tile_cursor c, ahead;
    pleat__tile_cursor_init(&c, run, slot_from);
    pleat__tile_cursor_init(&ahead, run, slot_from + pleat__decode_ahead_slots(l));
    pleat__tile_group g;
    const uint32_t most = pleat__decode_group_tiles(l);
    while (c.slot < slot_to) {
        pleat__tile_group_take(&g, &c, &ahead, slot_to, most);
        if (g.any_live)
            add_group(&wk, &g);
        else
            pleat__decode_skip_group(&g, query->n_group, logits, logits_stride);
    }
    if (wk.bias) pleat__decode_add_bias(acc, bias, query->n_group, query->head_dim);
}

INLINE void add_received(float *score, uint32_t n, const float *logits, size_t stride, const float *lse2,
                         uint32_t n_group) {
    for (uint32_t i = 0; i < n; i += PLEAT__TILE) {
        const float *x = logits + i;
        __m256 most[2] = {_mm256_set1_ps(-__builtin_inff()), _mm256_set1_ps(-__builtin_inff())};
        for (uint32_t g = 0; g < n_group; g++, x += stride) { /* logit2 - lse2; a NaN gives way */
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

void pleat__attn_received_avx2(const pleat__kv_run *run, uint32_t slot_from, uint32_t slot_to, const float *logits,
                               size_t logits_stride, const float *lse2, uint32_t n_group) {
    pleat__received_pages(run, slot_from, slot_to, logits, logits_stride, lse2, n_group, add_received);
}
