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

/* Sixteen whole numbers as 16 bits, each eight in an order of their bytes. */
INLINE void store_numbers(int16_t *out, __m256i order, __m256i low, __m256i high) {
    const __m256i x = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xD8);
    _mm256_store_si256((__m256i *)(void *)out, _mm256_shuffle_epi8(x, order));
}

/* Each four in the order 0, 2, 1, 3, or as they are. */
INLINE __m256i order_of(bool plain) {
    const __m128i as_they_are = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m128i by_pairs = _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
    return _mm256_broadcastsi128_si256(plain ? as_they_are : by_pairs);
}

INLINE int32_t sum_of_whole(__m256i x) {
    __m128i y = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    y = _mm_add_epi32(y, _mm_shuffle_epi32(y, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(y, _mm_shuffle_epi32(y, 0xB1)));
}

/* Rows of up to four heads, `stride` apart, and what they are multiplied with. */
typedef struct factors {
    const float *x; /* [heads][stride] */
    size_t stride;
    const float *steps, *middles; /* [n], the heads share them */
    uint32_t n;                   /* a multiple of 16 */
} factors;

/* The largest |x * step| of each head, and sums of x * middle. */
INLINE void weigh(uint32_t heads, const factors *f, float *most, float *sum) {
    __m256 largest[HEADS], total[HEADS];
    UNROLL
    for (uint32_t h = 0; h < HEADS; h++) largest[h] = total[h] = _mm256_setzero_ps();
    for (uint32_t i = 0; i < f->n; i += 8) {
        const __m256 step = _mm256_load_ps(f->steps + i), middle = _mm256_load_ps(f->middles + i);
        UNROLL
        for (uint32_t h = 0; h < heads; h++) {
            const __m256 x = _mm256_loadu_ps(f->x + h * f->stride + i);
            largest[h] = _mm256_max_ps(largest[h], magnitude(_mm256_mul_ps(x, step)));
            total[h] = _mm256_fmadd_ps(x, middle, total[h]);
        }
    }
    UNROLL
    for (uint32_t h = 0; h < heads; h++) {
        most[h] = max_of(largest[h]);
        sum[h] = sum_of(total[h]);
    }
}

/* Numbers of factors x * step, of each head |x * step| <= most; n numbers `stride` apart.  Writes their units, and their
 * sums times these. */
INLINE void cut(uint32_t heads, const factors *f, const float *most, float top, __m256i order, int16_t *numbers,
                float *units, float *sums) {
    __m256 inverse[HEADS];
    __m256i total[HEADS];
    UNROLL
    for (uint32_t h = 0; h < heads; h++) {
        const float bound = most[h] > 0x1p-100f ? most[h] : 0x1p-100f; /* less is as good as zero */
        units[h] = bound / top;
        inverse[h] = _mm256_set1_ps(top / bound);
        total[h] = _mm256_setzero_si256();
    }
    for (uint32_t i = 0; i < f->n; i += 16) {
        const __m256 low = _mm256_load_ps(f->steps + i), high = _mm256_load_ps(f->steps + i + 8);
        UNROLL
        for (uint32_t h = 0; h < heads; h++) {
            const float *x = f->x + h * f->stride + i;
            const __m256 a = _mm256_mul_ps(_mm256_loadu_ps(x), low), b = _mm256_mul_ps(_mm256_loadu_ps(x + 8), high);
            const __m256i p = _mm256_cvtps_epi32(_mm256_mul_ps(a, inverse[h]));
            const __m256i q = _mm256_cvtps_epi32(_mm256_mul_ps(b, inverse[h]));
            total[h] = _mm256_add_epi32(total[h], _mm256_add_epi32(p, q));
            store_numbers(numbers + h * f->stride + i, order, p, q);
        }
    }
    UNROLL
    for (uint32_t h = 0; h < heads; h++) sums[h] = (float)sum_of_whole(total[h]) * units[h];
}

/* ---- keys --------------------------------------------------------------------------------------------------------- */

/* Queries of heads [head, head + heads) times steps: numbers, their units, and what logits have beside sums of numbers
 * times codes in these. */
INLINE void fold_query(uint32_t heads, pleat__blocks_walk *w, uint32_t block, uint32_t head, const float *steps,
                       const float *middles) {
    const uint32_t d = w->format->head_dim, at = block * w->heads + head;
    const factors f = {w->query->f32 + (size_t)head * d, d, steps, middles, d};
    float most[HEADS], bias[HEADS], sums[HEADS];
    weigh(heads, &f, most, bias);
    cut(heads, &f, most, top_of(d, w->format->k_levels), order_of(false), pleat__key_numbers(w, block, head),
        w->key_scale + at, sums);
    for (uint32_t h = 0; h < heads; h++)
        w->key_bias[at + h] = bias[h] - pleat__blocks_middle(w->format->k_levels) * sums[h];
}

static void fold_queries(pleat__blocks_walk *w, uint32_t block, const float *steps, const float *middles) {
    PLEAT__FOR_FOUR_HEADS(w, fold_query(heads, w, block, head, steps, middles));
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
    }
    fold_queries(w, 0, ones, zeros);
    for (uint32_t h = 0; h < w->query->n_group; h++) {
        w->query_scale[h] = w->key_scale[h];
        w->queries[h] = w->key_bias[h];
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
        fold_queries(w, b, steps, middles);
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

/* Numbers of the weights of heads [head, head + heads) times steps, part by part, and what stands beside their sums. */
INLINE void fold_weights(uint32_t heads, pleat__blocks_walk *w, uint32_t head) {
    const uint32_t row = pleat__blocks_row(w->format);
    const __m256i order = order_of(w->packs != NULL);
    float most[HEADS], sum[HEADS], units[HEADS], sums[HEADS], bias[HEADS] = {0};
    for (uint32_t from = 0, part = 0; from < w->n_tokens; from += PART_TOKENS, part++) {
        const factors f = {w->weights + (size_t)head * row + from, row, w->value_steps + from, w->value_middles + from,
                           pleat__min_u32(w->n_tokens - from, PART_TOKENS)};
        weigh(heads, &f, most, sum);
        cut(heads, &f, most, top_of(f.n, w->format->v_levels), order, pleat__value_numbers(w, head) + from, units,
            sums);
        for (uint32_t h = 0; h < heads; h++) {
            w->value_scale[part * w->heads + head + h] = units[h] * w->share[head + h];
            bias[h] += sum[h] - pleat__blocks_middle(w->format->v_levels) * sums[h];
        }
    }
    for (uint32_t h = 0; h < heads; h++) w->value_bias[head + h] = bias[h] * w->share[head + h];
}

void pleat__blocks_values_begin_avx2(pleat__blocks_walk *w, uint32_t unit) {
    load_value_steps(w, unit);
    PLEAT__FOR_FOUR_HEADS(w, fold_weights(heads, w, head));
}

/* ---- the variant -------------------------------------------------------------------------------------------------- */

void pleat__blocks_end_avx2(pleat__blocks_walk *w) { (void)w; }

static void keys(pleat__blocks_walk *w, uint32_t slice) { keys_of(w, slice); }
static void values(pleat__blocks_walk *w, uint32_t slice) { values_of(w, slice); }

const pleat__blocks_steps pleat__blocks_steps_avx2 = BLOCKS_STEPS_AVX2(keys, values);

bool pleat__attn_blocks_avx2(const pleat__attn_query *query, const pleat__codec_dsp *codec, const pleat__block_run *run,
                             uint32_t block_from, uint32_t block_to, pleat__attn_acc *acc, void *scratch) {
    return pleat__blocks_walk_run(&pleat__blocks_steps_avx2, query, codec, run, block_from, block_to, acc, scratch);
}
