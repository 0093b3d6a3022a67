/* SPDX-License-Identifier: MIT
 *
 * blocks_avx512.c: what happens once a group of blocks: steps folded into queries and weights, cut into limbs, and the
 * softmax between.  See blocks_avx512.h.
 */
#include "attn/x86/blocks_avx512.h"

#include <string.h>

/* ---- four heads at once ---------------------------------------------------------------------------------------- */

/* Element h of each 128 bits of out[i]: element i of those of v[h]. */
INLINE void transpose_four(const __m512 *v, __m512d *out) {
    const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(v[0], v[1]));
    const __m512d b = _mm512_castps_pd(_mm512_unpacklo_ps(v[2], v[3]));
    const __m512d c = _mm512_castps_pd(_mm512_unpackhi_ps(v[0], v[1]));
    const __m512d d = _mm512_castps_pd(_mm512_unpackhi_ps(v[2], v[3]));
    out[0] = _mm512_unpacklo_pd(a, b);
    out[1] = _mm512_unpackhi_pd(a, b);
    out[2] = _mm512_unpacklo_pd(c, d);
    out[3] = _mm512_unpackhi_pd(c, d);
}

/* Element h of the result: the largest, or the sum, of the elements of v[h]. */
INLINE __m128 largest_of_each(const __m512 *v) {
    __m512d t[4];
    transpose_four(v, t);
    const __m512 x = _mm512_max_ps(_mm512_max_ps(_mm512_castpd_ps(t[0]), _mm512_castpd_ps(t[1])),
                                   _mm512_max_ps(_mm512_castpd_ps(t[2]), _mm512_castpd_ps(t[3])));
    const __m256 y = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    return _mm_max_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
}
INLINE __m128 sum_of_each(const __m512 *v) {
    __m512d t[4];
    transpose_four(v, t);
    const __m512 x = _mm512_add_ps(_mm512_add_ps(_mm512_castpd_ps(t[0]), _mm512_castpd_ps(t[1])),
                                   _mm512_add_ps(_mm512_castpd_ps(t[2]), _mm512_castpd_ps(t[3])));
    const __m256 y = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    return _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
}
INLINE __m128 exact_sum_of_each(const __m512i *v) { /* of whole numbers; exact below 2^24 */
    __m512 x[HEADS];
    UNROLL
    for (uint32_t h = 0; h < HEADS; h++) x[h] = _mm512_cvtepi32_ps(v[h]);
    return sum_of_each(x);
}

/* ---- limbs ----------------------------------------------------------------------------------------------------- */

/* Largest whole number that is cut: 127*256 + 127. */
#define LIMB_TOP 32639.0f

/* What is added before cutting: makes every limb a byte from 0 on, and numbers positive and below 2^16. */
#define LIMB_BIAS 0x8080

/* Cut 64 columns of one head, whole numbers + LIMB_BIAS: a[v] are columns 16*v and on.  Writes the head's rows. */
INLINE void cut(const __m512i *numbers, int8_t *out) {
    const __m512i across = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i flip = _mm512_set1_epi8((char)0x80), low = _mm512_set1_epi16(0xFF);
    const __m512i a = _mm512_packus_epi32(numbers[0], numbers[1]), b = _mm512_packus_epi32(numbers[2], numbers[3]);
    const __m512i planes[LIMBS] = {
        _mm512_packus_epi16(_mm512_and_si512(a, low), _mm512_and_si512(b, low)),
        _mm512_packus_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8)),
    };
    UNROLL
    for (uint32_t l = 0; l < LIMBS; l++) {
        const __m512i plane = _mm512_permutexvar_epi32(across, planes[l]);
        _mm512_store_si512(out + l * HEADS * COLUMNS, _mm512_xor_si512(plane, flip));
    }
}

/* Factors of `heads` heads, x [heads][stride] times y, n columns, a multiple of 64; of each head |x*y| <= top.  Writes
 * limbs, and what they sum up to times c, in lows and highs.  Returns the heads' units. */
INLINE __m128 cut_heads(uint32_t heads, const float *x, size_t stride, const float *y, uint32_t n, __m128 top, float c,
                        int8_t *limbs, float *middles) {
    top = _mm_max_ps(top, _mm_set1_ps(0x1p-100f)); /* less is as good as zero */
    const __m128 inverses = _mm_div_ps(_mm_set1_ps(LIMB_TOP), top);
    float inverse[HEADS] __attribute__((aligned(16)));
    _mm_store_ps(inverse, inverses);
    __m512i high[HEADS], low[HEADS]; /* sum = 256 * high + low */
    UNROLL
    for (uint32_t h = 0; h < HEADS; h++) {
        __m512i total = _mm512_setzero_si512();
        for (uint32_t i = 0; h < heads && i < n; i += COLUMNS) {
            __m512i numbers[4];
            UNROLL
            for (uint32_t v = 0; v < 4; v++) {
                const uint32_t at = i + ROWS * v;
                const __m512 factor = _mm512_mul_ps(_mm512_load_ps(x + h * stride + at), _mm512_load_ps(y + at));
                const __m512 biased = _mm512_fmadd_ps(factor, _mm512_set1_ps(inverse[h]), _mm512_set1_ps(LIMB_BIAS));
                numbers[v] = _mm512_cvtps_epi32(biased);
                total = _mm512_add_epi32(total, numbers[v]);
            }
            cut(numbers, limbs + i / COLUMNS * LIMB_BYTES + h * COLUMNS);
        }
        total = _mm512_sub_epi32(total, _mm512_set1_epi32((int32_t)(n / ROWS) * LIMB_BIAS));
        high[h] = _mm512_srai_epi32(_mm512_add_epi32(total, _mm512_set1_epi32(128)), 8);
        low[h] = _mm512_sub_epi32(total, _mm512_slli_epi32(high[h], 8));
    }
    _mm_store_ps(middles, _mm_mul_ps(_mm_set1_ps(c), exact_sum_of_each(low)));
    _mm_store_ps(middles + HEADS, _mm_mul_ps(_mm_set1_ps(c), exact_sum_of_each(high)));
    return _mm_div_ps(_mm_set1_ps(1), inverses);
}

/* ---- keys ------------------------------------------------------------------------------------------------------ */

/* 16 halves at p, or zeros. */
INLINE __m512 load_f16_if(bool here, const uint8_t *p) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(here ? 0xFFFF : 0, p));
}

/* Limbs of the query of heads [head, head + heads) times steps, and the sum of query times middles; both [padded d]. */
INLINE void fold_query(uint32_t heads, pleat__blocks_walk *w, uint32_t block, uint32_t head, const float *steps,
                       const float *middles) {
    const uint32_t padded = pleat__blocks_padded(w->format->head_dim), at = block * w->heads + head;
    const float *q = w->queries + (size_t)head * padded;
    __m512 most[HEADS], bias[HEADS];
    UNROLL
    for (uint32_t h = 0; h < HEADS; h++) most[h] = bias[h] = _mm512_setzero_ps();
    for (uint32_t i = 0; i < padded; i += ROWS) {
        const __m512 step = _mm512_load_ps(steps + i), middle = _mm512_load_ps(middles + i);
        UNROLL
        for (uint32_t h = 0; h < heads; h++) {
            const __m512 x = _mm512_load_ps(q + h * padded + i);
            most[h] = _mm512_range_ps(most[h], _mm512_mul_ps(x, step), 0xB); /* the larger magnitude */
            bias[h] = _mm512_fmadd_ps(x, middle, bias[h]);
        }
    }
    const __m128 unit =
        cut_heads(heads, q, padded, steps, padded, largest_of_each(most), pleat__blocks_middle(w->format->k_levels),
                  pleat__key_limbs(w, block, head), pleat__key_middles(w, block, head));
    _mm_store_ps(w->key_scale + at, unit);
    _mm_store_ps(w->key_bias + at, sum_of_each(bias));
}

static void fold_queries(pleat__blocks_walk *w, uint32_t block, const float *steps, const float *middles) {
    PLEAT__FOR_FOUR_HEADS(w, fold_query(heads, w, block, head, steps, middles));
}

/* Queries, padded.  Where a step is the whole block's, limbs of the query alone serve for all blocks: scale and sum of
 * the query are kept where the first block's would be. */
void pleat__blocks_begin_avx512(pleat__blocks_walk *w) {
    const uint32_t d = w->format->head_dim, padded = pleat__blocks_padded(d);
    for (uint32_t h = 0; h < w->query->n_group; h++) {
        float *q = w->queries + (size_t)h * padded;
        memset(q + d, 0, (padded - d) * sizeof *q);
        memcpy(q, w->query->f32 + (size_t)h * d, d * sizeof *q);
    }
    if (w->format->by_channel) return;
    float ones[PLEAT__MAX_HEAD_DIM] __attribute__((aligned(64)));
    for (uint32_t i = 0; i < PLEAT__MAX_HEAD_DIM; i++) ones[i] = 1;
    fold_queries(w, 0, ones, ones);
    for (uint32_t h = 0; h < w->query->n_group; h++) {
        w->query_scale[h] = w->key_scale[h];
        w->query_sum[h] = w->key_bias[h];
    }
}

static void scale_query(pleat__blocks_walk *w, uint32_t block) {
    const pleat__block_reader *r = &w->readers[block];
    const float step = pleat__blocks_unit(r->k_steps, 0);
    const float middle = pleat__blocks_unit(r->k_mins, 0) + pleat__blocks_middle(w->format->k_levels) * step;
    for (uint32_t h = 0; h < w->query->n_group; h++) {
        w->key_scale[block * w->heads + h] = step * w->query_scale[h];
        w->key_bias[block * w->heads + h] = middle * w->query_sum[h];
    }
}

void pleat__blocks_keys_begin_avx512(pleat__blocks_walk *w) {
    const uint32_t d = w->format->head_dim;
    float steps[PLEAT__MAX_HEAD_DIM] __attribute__((aligned(64)));
    float middles[PLEAT__MAX_HEAD_DIM] __attribute__((aligned(64)));
    const __m512 c = _mm512_set1_ps(pleat__blocks_middle(w->format->k_levels));
    for (uint32_t b = 0; b < w->n_blocks; b++) {
        if (!w->format->by_channel) {
            scale_query(w, b);
            continue;
        }
        if (pleat__blocks_was_folded(w, b)) continue;
        const pleat__block_reader *r = &w->readers[b];
        for (uint32_t i = 0; i < pleat__blocks_padded(d); i += ROWS) {
            const __m512 step = load_f16_if(i < d, r->k_steps + (size_t)2 * i);
            _mm512_store_ps(steps + i, step);
            _mm512_store_ps(middles + i, _mm512_fmadd_ps(c, step, load_f16_if(i < d, r->k_mins + (size_t)2 * i)));
        }
        fold_queries(w, b, steps, middles);
    }
}

/* ---- softmax --------------------------------------------------------------------------------------------------- */

INLINE __m128 exp2_128(__m128 x) { return _mm512_castps512_ps128(exp2_512(_mm512_castps128_ps512(x), 0xF)); }

/* The largest of x[0, n), element by element. */
INLINE __m512 largest(const float *x, uint32_t n) {
    __m512 most = _mm512_load_ps(x);
    for (uint32_t i = ROWS; i < n; i += ROWS) most = _mm512_max_ps(most, _mm512_load_ps(x + i));
    return most;
}

/* x[0, n) becomes 2^(x - top), with zeros to the next multiple of 64.  Returns the sums, element by element. */
INLINE __m512 raise_two(float *x, uint32_t n, float top) {
    __m512 sum = _mm512_setzero_ps();
    for (uint32_t i = 0; i < n; i += ROWS) {
        const __m512 e = exp2_512(_mm512_sub_ps(_mm512_load_ps(x + i), _mm512_set1_ps(top)), 0xFFFF);
        sum = _mm512_add_ps(sum, e);
        _mm512_store_ps(x + i, e);
    }
    for (uint32_t i = n; i % COLUMNS != 0; i += ROWS) _mm512_store_ps(x + i, _mm512_setzero_ps());
    return sum;
}

INLINE void softmax(uint32_t heads, pleat__blocks_walk *w, uint32_t head) {
    const uint32_t n = w->n_tokens, row = pleat__blocks_row(w->format);
    const __mmask8 mine = (__mmask8)((1u << heads) - 1);
    float *x = w->weights + (size_t)head * row;
    __m512 most[HEADS], sum[HEADS];
    UNROLL
    for (uint32_t h = 0; h < HEADS; h++) {
        sum[h] = _mm512_setzero_ps();
        most[h] = h < heads ? largest(x + h * row, n) : _mm512_setzero_ps();
    }
    const __m128 u = largest_of_each(most);
    const __m128 m = _mm_maskz_loadu_ps(mine, w->acc->m + head), raised = _mm_max_ps(m, u);
    const __m128 rescale = exp2_128(_mm_sub_ps(m, raised)), share = exp2_128(_mm_sub_ps(u, raised));
    _mm_mask_storeu_ps(w->acc->m + head, mine, raised);
    _mm_store_ps(w->rescale + head, rescale);
    _mm_store_ps(w->share + head, share);
    float top[HEADS] __attribute__((aligned(16)));
    _mm_store_ps(top, u);
    UNROLL
    for (uint32_t h = 0; h < heads; h++) sum[h] = raise_two(x + h * row, n, top[h]);
    const __m128 l = _mm_maskz_loadu_ps(mine, w->acc->l + head);
    _mm_mask_storeu_ps(w->acc->l + head, mine, _mm_fmadd_ps(l, rescale, _mm_mul_ps(sum_of_each(sum), share)));
}

void pleat__blocks_softmax_avx512(pleat__blocks_walk *w) { PLEAT__FOR_FOUR_HEADS(w, softmax(heads, w, head)); }

/* ---- values ---------------------------------------------------------------------------------------------------- */

/* One f16 in four from p on: reads 128 bytes. */
INLINE __m512 load_fourth(const uint8_t *p) {
    const __m512i fourth = _mm512_setr_epi32(4 << 16, 8 | 12 << 16, 16 | 20 << 16, 24 | 28 << 16, 32 | 36 << 16,
                                             40 | 44 << 16, 48 | 52 << 16, 56 | 60 << 16, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i x = _mm512_permutex2var_epi16(_mm512_loadu_si512(p), fourth, _mm512_loadu_si512(p + 64));
    return _mm512_cvtph_ps(_mm512_castsi512_si256(x));
}

/* Steps and minimums of one unit of 16 tokens, as f32: [token][units] f16, p at the first of that unit.  Behind them are
 * at least 64 bytes: what follows in a payload, and its pad. */
INLINE __m512 load_unit(const uint8_t *p, uint32_t units) {
    if (units == 1) return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
    if (units == 4) return load_fourth(p);
    int16_t x[ROWS]; /* never in memory: sixteen stores would make one load wait */
    for (uint32_t i = 0; i < ROWS; i++) memcpy(&x[i], p + (size_t)2 * units * i, sizeof x[i]);
    return _mm512_cvtph_ps(_mm256_setr_epi16(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], x[9], x[10], x[11],
                                             x[12], x[13], x[14], x[15]));
}

static void load_value_steps(pleat__blocks_walk *w, uint32_t unit) {
    const uint32_t units = w->format->head_dim / w->format->v_group, tokens = w->format->tokens;
    const __m512 c = _mm512_set1_ps(pleat__blocks_middle(w->format->v_levels));
    for (uint32_t b = 0, at = 0; b < w->n_blocks; b++) {
        const pleat__block_reader *r = &w->readers[b];
        for (uint32_t i = 0; i < tokens; i += ROWS, at += ROWS) {
            const size_t first = 2 * ((size_t)i * units + unit);
            const __m512 step = load_unit(r->v_steps + first, units), min = load_unit(r->v_mins + first, units);
            _mm512_store_ps(w->value_steps + at, step);
            _mm512_store_ps(w->value_middles + at, _mm512_fmadd_ps(c, step, min));
        }
    }
    for (uint32_t i = w->n_tokens; i % COLUMNS != 0; i += ROWS) {
        _mm512_store_ps(w->value_steps + i, _mm512_setzero_ps());
        _mm512_store_ps(w->value_middles + i, _mm512_setzero_ps());
    }
}

/* Limbs of the weights of heads [head, head + heads) times steps, part by part, and the sum of weights times middles.
 * */
INLINE void fold_weights(uint32_t heads, pleat__blocks_walk *w, uint32_t head) {
    const uint32_t padded = pleat__blocks_padded(w->n_tokens), row = pleat__blocks_row(w->format);
    const __m128 share = _mm_load_ps(w->share + head);
    __m512 bias[HEADS];
    UNROLL
    for (uint32_t h = 0; h < HEADS; h++) bias[h] = _mm512_setzero_ps();
    for (uint32_t from = 0, part = 0; from < padded; from += PART_TOKENS, part++) {
        const uint32_t n = pleat__min_u32(padded - from, PART_TOKENS);
        const float *weights = w->weights + (size_t)head * row + from, *steps = w->value_steps + from;
        __m512 most[HEADS];
        UNROLL
        for (uint32_t h = 0; h < HEADS; h++) most[h] = _mm512_setzero_ps();
        for (uint32_t i = 0; i < n; i += ROWS) {
            const __m512 step = _mm512_load_ps(steps + i), middle = _mm512_load_ps(w->value_middles + from + i);
            UNROLL
            for (uint32_t h = 0; h < heads; h++) {
                const __m512 e = _mm512_load_ps(weights + h * row + i);
                most[h] = _mm512_max_ps(most[h], _mm512_mul_ps(e, step));
                bias[h] = _mm512_fmadd_ps(e, middle, bias[h]);
            }
        }
        const __m128 unit =
            cut_heads(heads, weights, row, steps, n, largest_of_each(most), pleat__blocks_middle(w->format->v_levels),
                      pleat__value_limbs(w, head) + part * PART_LIMB_BYTES, pleat__value_middles(w, part, head));
        _mm_store_ps(w->value_scale + part * w->heads + head, _mm_mul_ps(unit, share));
    }
    _mm_store_ps(w->value_bias + head, _mm_mul_ps(sum_of_each(bias), share));
}

void pleat__blocks_values_begin_avx512(pleat__blocks_walk *w, uint32_t unit) {
    load_value_steps(w, unit);
    PLEAT__FOR_FOUR_HEADS(w, fold_weights(heads, w, head));
}
