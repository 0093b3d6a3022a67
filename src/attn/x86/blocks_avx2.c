/* SPDX-License-Identifier: MIT
 *
 * blocks_avx2.c: decode attention over compressed blocks with AVX2: what happens once a group of blocks, and the
 * products.  See blocks_avx2.h.
 */
#include "attn/x86/blocks_products_avx2.h"

#include <string.h>

/* ---- 16-bit numbers ----------------------------------------------------------------------------------------------- */

/* Largest number whose sum of products with n codes of so many levels fits. */
static float top_of(uint32_t n, uint32_t n_levels) {
    const uint32_t most = (uint32_t)INT32_MAX / (n * (n_levels > 1 ? n_levels - 1 : 1));
    return (float)pleat__min_u32(most, 32639);
}

INLINE __m256 magnitude(__m256 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }

/* Sixteen whole numbers as 16 bits: plain, or each four in the order 0, 2, 1, 3. */
INLINE void store_numbers(int16_t *out, bool plain, __m256i low, __m256i high) {
    const __m256i order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    const __m256i x = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xD8);
    _mm256_store_si256((__m256i *)(void *)out, plain ? x : _mm256_shuffle_epi8(x, order));
}

INLINE int32_t sum_of_whole(__m256i x) {
    __m128i y = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    y = _mm_add_epi32(y, _mm_shuffle_epi32(y, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(y, _mm_shuffle_epi32(y, 0xB1)));
}

/* Numbers of n factors x*y, |x*y| <= most, n a multiple of 16.  Returns their unit, and their sum times it. */
INLINE float cut(const float *x, const float *y, uint32_t n, float most, float top, bool plain, int16_t *numbers,
                 float *sum) {
    most = most > 0x1p-100f ? most : 0x1p-100f; /* less is as good as zero */
    const __m256 inverse = _mm256_set1_ps(top / most);
    __m256i total = _mm256_setzero_si256();
    for (uint32_t i = 0; i < n; i += 16) {
        const __m256 a = _mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_load_ps(y + i));
        const __m256 b = _mm256_mul_ps(_mm256_loadu_ps(x + i + 8), _mm256_load_ps(y + i + 8));
        const __m256i p = _mm256_cvtps_epi32(_mm256_mul_ps(a, inverse));
        const __m256i q = _mm256_cvtps_epi32(_mm256_mul_ps(b, inverse));
        total = _mm256_add_epi32(total, _mm256_add_epi32(p, q));
        store_numbers(numbers + i, plain, p, q);
    }
    const float unit = most / top;
    *sum = (float)sum_of_whole(total) * unit;
    return unit;
}

/* ---- keys --------------------------------------------------------------------------------------------------------- */

/* A head's query times steps.  Returns the numbers' unit; *bias is what logits have beside sums of numbers times codes
 * in that unit. */
INLINE float fold_query(const pleat__blocks_walk *w, uint32_t block, uint32_t head, const float *steps,
                        const float *middles, float *bias) {
    const uint32_t d = w->format->head_dim;
    const float *q = w->query->f32 + (size_t)head * d;
    __m256 most = _mm256_setzero_ps(), sum = _mm256_setzero_ps();
    for (uint32_t i = 0; i < d; i += 8) {
        const __m256 x = _mm256_loadu_ps(q + i);
        most = _mm256_max_ps(most, magnitude(_mm256_mul_ps(x, _mm256_load_ps(steps + i))));
        sum = _mm256_fmadd_ps(x, _mm256_load_ps(middles + i), sum);
    }
    float numbers;
    const float unit = cut(q, steps, d, max_of(most), top_of(d, w->format->k_levels), false,
                           pleat__key_numbers(w, block, head), &numbers);
    *bias = sum_of(sum) - pleat__blocks_middle(w->format->k_levels) * numbers;
    return unit;
}

/* Where a step is the whole block's, numbers of the query alone serve for all blocks.  What their sum comes to around
 * the middle of codes is kept where queries would be. */
void pleat__blocks_begin_avx2(pleat__blocks_walk *w) {
    if (w->format->by_channel) return;
    _Alignas(32) float ones[PLEAT__MAX_HEAD_DIM], zeros[PLEAT__MAX_HEAD_DIM] = {0};
    for (uint32_t i = 0; i < PLEAT__MAX_HEAD_DIM; i++) ones[i] = 1;
    for (uint32_t h = 0; h < w->query->n_group; h++) {
        const float *q = w->query->f32 + (size_t)h * w->format->head_dim;
        __m256 sum = _mm256_setzero_ps();
        for (uint32_t i = 0; i < w->format->head_dim; i += 8) sum = _mm256_add_ps(sum, _mm256_loadu_ps(q + i));
        w->query_sum[h] = sum_of(sum);
        w->query_scale[h] = fold_query(w, 0, h, ones, zeros, &w->queries[h]);
    }
}

static void scale_query(pleat__blocks_walk *w, uint32_t block) {
    const pleat__block_reader *r = &w->readers[block];
    const float step = pleat__blocks_unit(r->k_steps, 0);
    const float middle = pleat__blocks_unit(r->k_mins, 0) + pleat__blocks_middle(w->format->k_levels) * step;
    for (uint32_t h = 0; h < w->query->n_group; h++) {
        w->key_scale[block * w->heads + h] = step * w->query_scale[h];
        w->key_bias[block * w->heads + h] = middle * w->query_sum[h] + step * w->queries[h];
    }
}

INLINE __m256 load_half(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)); }

void pleat__blocks_keys_begin_avx2(pleat__blocks_walk *w) {
    _Alignas(32) float steps[PLEAT__MAX_HEAD_DIM], middles[PLEAT__MAX_HEAD_DIM];
    const __m256 c = _mm256_set1_ps(pleat__blocks_middle(w->format->k_levels));
    for (uint32_t b = 0; b < w->n_blocks; b++) {
        if (!w->format->by_channel) {
            scale_query(w, b);
            continue;
        }
        if (pleat__blocks_was_folded(w, b)) continue;
        const pleat__block_reader *r = &w->readers[b];
        for (size_t i = 0; i < w->format->head_dim; i += 8) {
            const __m256 step = load_half(r->k_steps + 2 * i);
            _mm256_store_ps(steps + i, step);
            _mm256_store_ps(middles + i, _mm256_fmadd_ps(c, step, load_half(r->k_mins + 2 * i)));
        }
        for (uint32_t h = 0; h < w->query->n_group; h++)
            w->key_scale[b * w->heads + h] = fold_query(w, b, h, steps, middles, &w->key_bias[b * w->heads + h]);
    }
}

/* ---- softmax ------------------------------------------------------------------------------------------------------ */

/* x[0, n) becomes 2^(x - top).  Returns the sum. */
INLINE float raise_two(float *x, uint32_t n, float top) {
    __m256 sum = _mm256_setzero_ps();
    for (uint32_t i = 0; i < n; i += 8) {
        const __m256 e = exp2_256(_mm256_sub_ps(_mm256_load_ps(x + i), _mm256_set1_ps(top)));
        sum = _mm256_add_ps(sum, e);
        _mm256_store_ps(x + i, e);
    }
    return sum_of(sum);
}

void pleat__blocks_softmax_avx2(pleat__blocks_walk *w) {
    for (uint32_t h = 0; h < w->query->n_group; h++) {
        float *x = w->weights + (size_t)h * pleat__blocks_row(w->format);
        __m256 largest = _mm256_load_ps(x);
        for (uint32_t i = 8; i < w->n_tokens; i += 8) largest = _mm256_max_ps(largest, _mm256_load_ps(x + i));
        const float most = max_of(largest), m = w->acc->m[h], raised = m > most ? m : most;
        const __m256 two = exp2_256(_mm256_setr_ps(m - raised, most - raised, 0, 0, 0, 0, 0, 0));
        const float sum = raise_two(x, w->n_tokens, most);
        w->rescale[h] = _mm256_cvtss_f32(two);
        w->share[h] = _mm_cvtss_f32(_mm_movehdup_ps(_mm256_castps256_ps128(two)));
        w->acc->m[h] = raised;
        w->acc->l[h] = w->acc->l[h] * w->rescale[h] + sum * w->share[h];
    }
}

/* ---- values ------------------------------------------------------------------------------------------------------- */

/* One f16 in four from p on: reads 64 bytes. */
INLINE __m256 load_fourth(const uint8_t *p) {
    const __m256i low = _mm256_set1_epi64x(0xFFFF);
    const __m256i a = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(const void *)p), low);
    const __m256i b = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(const void *)(p + 32)), low);
    const __m256i x = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xD8); /* 32 bits each */
    return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)));
}

/* Steps or minimums of one unit of 8 tokens: [token][units] f16, p at the first of that unit.  Behind them are at least
 * 64 bytes: what follows in a payload, and its pad. */
INLINE __m256 load_unit(const uint8_t *p, uint32_t units) {
    if (units == 1) return load_half(p);
    if (units == 4) return load_fourth(p);
    int16_t x[8]; /* never in memory: eight stores would make one load wait */
    for (uint32_t i = 0; i < 8; i++) memcpy(&x[i], p + (size_t)2 * units * i, sizeof x[i]);
    return _mm256_cvtph_ps(_mm_setr_epi16(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]));
}

static void load_value_steps(pleat__blocks_walk *w, uint32_t unit) {
    const uint32_t units = w->format->head_dim / w->format->v_group, tokens = w->format->tokens;
    const __m256 c = _mm256_set1_ps(pleat__blocks_middle(w->format->v_levels));
    for (uint32_t b = 0, at = 0; b < w->n_blocks; b++) {
        const pleat__block_reader *r = &w->readers[b];
        for (uint32_t i = 0; i < tokens; i += 8, at += 8) {
            const size_t first = 2 * ((size_t)i * units + unit);
            const __m256 step = load_unit(r->v_steps + first, units);
            _mm256_store_ps(w->value_steps + at, step);
            _mm256_store_ps(w->value_middles + at, _mm256_fmadd_ps(c, step, load_unit(r->v_mins + first, units)));
        }
    }
}

/* Numbers of a head's weights times steps, part by part, and what stands beside their sums. */
INLINE void fold_weights(pleat__blocks_walk *w, uint32_t head) {
    const float *weights = w->weights + (size_t)head * pleat__blocks_row(w->format);
    int16_t *numbers = pleat__value_numbers(w, head);
    float bias = 0;
    for (uint32_t from = 0, part = 0; from < w->n_tokens; from += PART_TOKENS, part++) {
        const uint32_t n = pleat__min_u32(w->n_tokens - from, PART_TOKENS);
        __m256 most = _mm256_setzero_ps(), sum = _mm256_setzero_ps();
        for (uint32_t i = from; i < from + n; i += 8) {
            const __m256 e = _mm256_load_ps(weights + i);
            most = _mm256_max_ps(most, _mm256_mul_ps(e, _mm256_load_ps(w->value_steps + i)));
            sum = _mm256_fmadd_ps(e, _mm256_load_ps(w->value_middles + i), sum);
        }
        float in_all;
        const float unit = cut(weights + from, w->value_steps + from, n, max_of(most), top_of(n, w->format->v_levels),
                               w->packs != NULL, numbers + from, &in_all);
        w->value_scale[part * w->heads + head] = unit * w->share[head];
        bias += sum_of(sum) - pleat__blocks_middle(w->format->v_levels) * in_all;
    }
    w->value_bias[head] = bias * w->share[head];
}

void pleat__blocks_values_begin_avx2(pleat__blocks_walk *w, uint32_t unit) {
    load_value_steps(w, unit);
    for (uint32_t h = 0; h < w->query->n_group; h++) fold_weights(w, h);
}

/* ---- the variant -------------------------------------------------------------------------------------------------- */

void pleat__blocks_end_avx2(pleat__blocks_walk *w) { (void)w; }

static void keys(pleat__blocks_walk *w, uint32_t slice) { keys_of(w, slice); }
static void values(pleat__blocks_walk *w, uint32_t slice) { values_of(w, slice); }

static const pleat__blocks_steps steps_avx2 = BLOCKS_STEPS_AVX2(keys, values);

bool pleat__attn_blocks_avx2(const pleat__attn_query *query, const pleat__codec_dsp *codec, const pleat__block_run *run,
                             uint32_t block_from, uint32_t block_to, pleat__attn_acc *acc, void *scratch) {
    return pleat__blocks_walk_run(&steps_avx2, query, codec, run, block_from, block_to, acc, scratch);
}
