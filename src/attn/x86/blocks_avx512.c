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

/* Rows of up to four heads, `stride` apart, and what they are multiplied with. */
typedef struct factors {
    const float *x; /* [heads][stride] */
    size_t stride;
    const float *steps, *middles; /* [n], the heads share them */
    uint32_t n;                   /* a multiple of 64 */
    __m128 inverse;               /* of the heads' units */
} factors;

/* Finds units of factors x * step.  Writes them, and adds x * middle to the heads' bias, element by element.  `positive`:
 * no factor is negative. */
INLINE void weigh(uint32_t heads, bool positive, factors *f, float *units, __m512 *bias) {
    __m512 most[HEADS];
    UNROLL
    for (uint32_t h = 0; h < HEADS; h++) most[h] = _mm512_setzero_ps();
    for (uint32_t i = 0; i < f->n; i += ROWS) {
        const __m512 step = _mm512_load_ps(f->steps + i), middle = _mm512_load_ps(f->middles + i);
        UNROLL
        for (uint32_t h = 0; h < heads; h++) {
            const __m512 x = _mm512_load_ps(f->x + h * f->stride + i);
            const __m512 y = _mm512_mul_ps(x, step);
            most[h] =
                positive ? _mm512_max_ps(most[h], y) : _mm512_range_ps(most[h], y, 0xB); /* the larger magnitude */
            bias[h] = _mm512_fmadd_ps(x, middle, bias[h]);
        }
    }
    const __m128 top = _mm_max_ps(largest_of_each(most), _mm_set1_ps(0x1p-100f)); /* less is as good as zero */
    f->inverse = _mm_div_ps(_mm_set1_ps(LIMB_TOP), top);
    _mm_store_ps(units, _mm_div_ps(_mm_set1_ps(1), f->inverse));
}

/* Cut what has been weighed.  Writes limbs, and what they sum up to times c, in lows and highs. */
INLINE void cut_heads(uint32_t heads, factors f, float c, int8_t *limbs, float *middles) {
    float inverse[HEADS] __attribute__((aligned(16)));
    _mm_store_ps(inverse, f.inverse);
    __m512i high[HEADS], low[HEADS]; /* sum = 256 * high + low */
    UNROLL
    for (uint32_t h = 0; h < HEADS; h++) {
        const float *x = f.x + h * f.stride, *y = f.steps;
        __m512i total = _mm512_setzero_si512();
        for (uint32_t i = 0; h < heads && i < f.n; i += COLUMNS) {
            __m512i numbers[4];
            UNROLL
            for (uint32_t v = 0; v < 4; v++) {
                const uint32_t at = i + ROWS * v;
                const __m512 factor = _mm512_mul_ps(_mm512_load_ps(x + at), _mm512_load_ps(y + at));
                const __m512 biased = _mm512_fmadd_ps(factor, _mm512_set1_ps(inverse[h]), _mm512_set1_ps(LIMB_BIAS));
                numbers[v] = _mm512_cvtps_epi32(biased);
                total = _mm512_add_epi32(total, numbers[v]);
            }
            cut(numbers, limbs + i / COLUMNS * LIMB_BYTES + h * COLUMNS);
        }
        total = _mm512_sub_epi32(total, _mm512_set1_epi32((int32_t)(f.n / ROWS) * LIMB_BIAS));
        high[h] = _mm512_srai_epi32(_mm512_add_epi32(total, _mm512_set1_epi32(128)), 8);
        low[h] = _mm512_sub_epi32(total, _mm512_slli_epi32(high[h], 8));
    }
    _mm_store_ps(middles, _mm_mul_ps(_mm_set1_ps(c), exact_sum_of_each(low)));
    _mm_store_ps(middles + HEADS, _mm_mul_ps(_mm_set1_ps(c), exact_sum_of_each(high)));
}

/* ---- keys ------------------------------------------------------------------------------------------------------ */

/* 16 halves at p, or zeros. */
INLINE __m512 load_f16_if(bool here, const uint8_t *p) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(here ? 0xFFFF : 0, p));
}

/* Steps and middles of the group's blocks, both [padded d], that are to be folded into the query; NULL: not that block. */
typedef struct key_steps {
    const float *steps[PLEAT__STREAMS], *middles[PLEAT__STREAMS];
} key_steps;

/* Limbs of the query of heads [head, head + heads) times steps, and the sum of query times middles.  All blocks are
 * weighed first: none waits for another's units. */
INLINE void fold_query(uint32_t heads, pleat__blocks_walk *w, uint32_t head, const key_steps *k) {
    const uint32_t padded = pleat__blocks_padded(w->format->head_dim);
    factors all[PLEAT__STREAMS];
    for (uint32_t b = 0; b < PLEAT__STREAMS; b++) {
        if (!k->steps[b]) continue;
        __m512 bias[HEADS];
        UNROLL
        for (uint32_t h = 0; h < HEADS; h++) bias[h] = _mm512_setzero_ps();
        all[b] = (factors){w->queries + (size_t)head * padded, padded, k->steps[b], k->middles[b], padded};
        weigh(heads, false, &all[b], w->key_scale + b * w->heads + head, bias);
        _mm_store_ps(w->key_bias + b * w->heads + head, sum_of_each(bias));
    }
    for (uint32_t b = 0; b < PLEAT__STREAMS; b++) {
        if (!k->steps[b]) continue;
        cut_heads(heads, all[b], pleat__blocks_middle(w->format->k_levels), pleat__key_limbs(w, b, head),
                  pleat__key_middles(w, b, head));
    }
}

static void fold_queries(pleat__blocks_walk *w, const key_steps *k) {
    PLEAT__FOR_FOUR_HEADS(w, fold_query(heads, w, head, k));
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
    fold_queries(w, &(key_steps){{ones}, {ones}});
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

/* A block's steps and middles, at `steps` and behind them. */
static void load_key_steps(const pleat__blocks_walk *w, uint32_t block, float *steps) {
    const uint32_t d = w->format->head_dim, padded = pleat__blocks_padded(d);
    const pleat__block_reader *r = &w->readers[block];
    const __m512 c = _mm512_set1_ps(pleat__blocks_middle(w->format->k_levels));
    for (uint32_t i = 0; i < padded; i += ROWS) {
        const __m512 step = load_f16_if(i < d, r->k_steps + (size_t)2 * i);
        _mm512_store_ps(steps + i, step);
        _mm512_store_ps(steps + padded + i, _mm512_fmadd_ps(c, step, load_f16_if(i < d, r->k_mins + (size_t)2 * i)));
    }
}

void pleat__blocks_keys_begin_avx512(pleat__blocks_walk *w) {
    const uint32_t padded = pleat__blocks_padded(w->format->head_dim);
    float memory[PLEAT__STREAMS * 2 * PLEAT__MAX_HEAD_DIM] __attribute__((aligned(64))), *next = memory;
    key_steps k = {{NULL}, {NULL}};
    for (uint32_t b = 0; b < w->n_blocks; b++) {
        if (!w->format->by_channel) {
            scale_query(w, b);
            continue;
        }
        if (pleat__blocks_was_folded(w, b)) continue;
        load_key_steps(w, b, next);
        k.steps[b] = next;
        k.middles[b] = next + padded;
        next += (size_t)2 * padded;
    }
    if (w->format->by_channel) fold_queries(w, &k);
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

/* Where steps and middles of 16 tokens go: a unit's, the next unit's `stride` behind; and the middle of codes. */
typedef struct unit_place {
    float *steps, *middles;
    size_t stride;
    __m512 c;
} unit_place;

/* Unit `unit` of 16 tokens: halves of its steps and minimums. */
INLINE void put_unit(const unit_place *to, uint32_t unit, __m256i steps, __m256i mins) {
    const __m512 step = _mm512_cvtph_ps(steps);
    _mm512_store_ps(to->steps + unit * to->stride, step);
    _mm512_store_ps(to->middles + unit * to->stride, _mm512_fmadd_ps(to->c, step, _mm512_cvtph_ps(mins)));
}
INLINE void put_two_units(const unit_place *to, uint32_t unit, __m512i steps, __m512i mins) {
    put_unit(to, unit, _mm512_castsi512_si256(steps), _mm512_castsi512_si256(mins));
    put_unit(to, unit + 1, _mm512_extracti64x4_epi64(steps, 1), _mm512_extracti64x4_epi64(mins, 1));
}

/* Indices: words 0, step, 2*step, ..., 16 of them, and likewise from word 1 on. */
INLINE __m512i two_of_each(uint32_t step) {
    const __m256i sixteen = _mm256_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m256i first = _mm256_mullo_epi16(sixteen, _mm256_set1_epi16((int16_t)step));
    return _mm512_inserti64x4(_mm512_castsi256_si512(first), _mm256_add_epi16(first, _mm256_set1_epi16(1)), 1);
}

INLINE __m512i two_of_two(const uint8_t *p) { return _mm512_permutexvar_epi16(two_of_each(2), _mm512_loadu_si512(p)); }
INLINE __m512i two_of_four(const uint8_t *p, int16_t unit) {
    const __m512i which = _mm512_add_epi16(two_of_each(4), _mm512_set1_epi16(unit));
    return _mm512_permutex2var_epi16(_mm512_loadu_si512(p), which, _mm512_loadu_si512(p + 64));
}

/* Halves of a unit of 16 tokens, p at the first. */
static __m256i gather_unit(const uint8_t *p, uint32_t units) {
    uint8_t halves[2 * ROWS] __attribute__((aligned(32)));
    for (uint32_t i = 0; i < ROWS; i++) memcpy(halves + (size_t)2 * i, p + (size_t)2 * units * i, 2);
    return _mm256_load_si256((const __m256i *)(const void *)halves);
}

/* Steps and minimums of 16 tokens, [token][units] f16. */
static void load_units(const uint8_t *steps, const uint8_t *mins, uint32_t units, const unit_place *to) {
    if (units == 2) {
        put_two_units(to, 0, two_of_two(steps), two_of_two(mins));
    } else if (units == 4) {
        put_two_units(to, 0, two_of_four(steps, 0), two_of_four(mins, 0));
        put_two_units(to, 2, two_of_four(steps, 2), two_of_four(mins, 2));
    } else {
        for (size_t u = 0; u < units; u++)
            put_unit(to, (uint32_t)u, gather_unit(steps + 2 * u, units), gather_unit(mins + 2 * u, units));
    }
}

static void load_value_steps(pleat__blocks_walk *w) {
    const uint32_t units = w->n_units, tokens = w->format->tokens;
    const size_t row = pleat__blocks_row(w->format);
    unit_place to = {w->value_steps, w->value_middles, row, _mm512_set1_ps(pleat__blocks_middle(w->format->v_levels))};
    for (uint32_t b = 0; b < w->n_blocks; b++) {
        const uint8_t *steps = w->readers[b].v_steps, *mins = w->readers[b].v_mins;
        for (uint32_t i = 0; i < tokens; i += ROWS, to.steps += ROWS, to.middles += ROWS) {
            const size_t at = (size_t)2 * i * units;
            if (units == 1)
                put_unit(&to, 0, _mm256_loadu_si256((const __m256i *)(const void *)(steps + at)),
                         _mm256_loadu_si256((const __m256i *)(const void *)(mins + at)));
            else
                load_units(steps + at, mins + at, units, &to);
        }
    }
    for (uint32_t i = w->n_tokens; i % COLUMNS != 0; i += ROWS, to.steps += ROWS, to.middles += ROWS)
        for (uint32_t unit = 0; unit < units; unit++)
            put_unit(&to, unit, _mm256_setzero_si256(), _mm256_setzero_si256());
}

/* Units of the weights of heads [head, head + heads) times steps of each part, and the sum of weights times middles. */
INLINE void weigh_unit(uint32_t heads, pleat__blocks_walk *w, uint32_t head, uint32_t unit, factors *parts) {
    const uint32_t padded = pleat__blocks_padded(w->n_tokens), row = pleat__blocks_row(w->format);
    const float *x = w->weights + (size_t)head * row, *steps = pleat__blocks_value_steps(w, unit);
    float *scales = w->value_scale + (size_t)unit * PLEAT__STREAMS * w->heads + head;
    const __m128 share = _mm_load_ps(w->share + head);
    __m512 bias[HEADS];
    UNROLL
    for (uint32_t h = 0; h < HEADS; h++) bias[h] = _mm512_setzero_ps();
    for (uint32_t from = 0; from < padded; from += PART_TOKENS, scales += w->heads, parts++) {
        *parts = (factors){x + from, row, steps + from, pleat__blocks_value_middles(w, unit) + from,
                           pleat__min_u32(padded - from, PART_TOKENS)};
        weigh(heads, true, parts, scales, bias);
        _mm_store_ps(scales, _mm_mul_ps(_mm_load_ps(scales), share));
    }
    _mm_store_ps(w->value_bias + unit * w->heads + head, _mm_mul_ps(sum_of_each(bias), share));
}

#define UNITS_AT_ONCE 4u

/* Limbs of the weights of heads [head, head + heads) times steps, unit by unit and part by part.  Some units are weighed
 * first, as with keys. */
INLINE void fold_weights(uint32_t heads, pleat__blocks_walk *w, uint32_t head) {
    const uint32_t n_parts = pleat__div_up_u32(w->n_tokens, PART_TOKENS);
    const float c = pleat__blocks_middle(w->format->v_levels);
    factors all[UNITS_AT_ONCE][MAX_PARTS];
    for (uint32_t from = 0, n; from < w->n_units; from += n) {
        n = pleat__min_u32(w->n_units - from, UNITS_AT_ONCE);
        for (uint32_t i = 0; i < n; i++) weigh_unit(heads, w, head, from + i, all[i]);
        for (uint32_t i = 0; i < n * n_parts; i++) {
            const uint32_t unit = from + i / n_parts, part = i % n_parts;
            cut_heads(heads, all[i / n_parts][part], c, pleat__value_limbs(w, unit, head) + part * PART_LIMB_BYTES,
                      pleat__value_middles(w, unit, part, head));
        }
    }
}

void pleat__blocks_values_begin_avx512(pleat__blocks_walk *w) {
    load_value_steps(w);
    PLEAT__FOR_FOUR_HEADS(w, fold_weights(heads, w, head));
}
