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

/* How numbers of 16 columns stand. */
typedef enum number_order {
    BY_PAIRS,    /* each four in the order 0, 2, 1, 3 */
    IN_ORDER,    /* values' packs */
    AS_THEY_COME /* planes: the second four and the third have changed places */
} number_order;

/* Sixteen whole numbers as 16 bits. */
INLINE void store_numbers(int16_t *out, number_order order, __m256i low, __m256i high) {
    const __m256i pairs =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    __m256i x = _mm256_packs_epi32(low, high);
    if (order != AS_THEY_COME) x = _mm256_permute4x64_epi64(x, 0xD8);
    _mm256_store_si256((__m256i *)(void *)out, order == BY_PAIRS ? _mm256_shuffle_epi8(x, pairs) : x);
}

/* Rows of up to four heads, `stride` apart, and what they are multiplied with. */
typedef struct factors {
    const float *x; /* [heads][stride] */
    size_t stride;
    const float *steps, *middles; /* [n], the heads share them */
    uint32_t n;                   /* a multiple of 16 */
    __m128 units, inverse;        /* of the heads' numbers, and one over them */
} factors;

/* Element h: what the elements of v[h] come to, the upper four with the lower first, then 2 and 3 with 0 and 1. */
#define OF_EACH(v, combine, x)                                                                \
    {                                                                                         \
        __m128 y[HEADS];                                                                      \
        UNROLL                                                                                \
        for (uint32_t h = 0; h < HEADS; h++)                                                  \
            y[h] = combine(_mm256_castps256_ps128((v)[h]), _mm256_extractf128_ps((v)[h], 1)); \
        const __m128 a = combine(_mm_unpacklo_ps(y[0], y[1]), _mm_unpackhi_ps(y[0], y[1]));   \
        const __m128 b = combine(_mm_unpacklo_ps(y[2], y[3]), _mm_unpackhi_ps(y[2], y[3]));   \
        (x) = combine(_mm_movelh_ps(a, b), _mm_movehl_ps(b, a));                              \
    }

/* Finds units of factors x * step, whose numbers go to `top`.  Returns sums of x * middle, by head.  `positive`: no factor
 * is negative. */
INLINE __m128 weigh(uint32_t heads, bool positive, factors *f, float top) {
    __m256 largest[HEADS], total[HEADS];
    UNROLL
    for (uint32_t h = 0; h < HEADS; h++) largest[h] = total[h] = _mm256_setzero_ps();
    for (uint32_t i = 0; i < f->n; i += 8) {
        const __m256 step = _mm256_load_ps(f->steps + i), middle = _mm256_load_ps(f->middles + i);
        UNROLL
        for (uint32_t h = 0; h < heads; h++) {
            const __m256 x = _mm256_loadu_ps(f->x + h * f->stride + i);
            const __m256 y = _mm256_mul_ps(x, step);
            largest[h] = _mm256_max_ps(largest[h], positive ? y : magnitude(y));
            total[h] = _mm256_fmadd_ps(x, middle, total[h]);
        }
    }
    __m128 most, sum;
    OF_EACH(largest, _mm_max_ps, most)
    OF_EACH(total, _mm_add_ps, sum)
    most = _mm_max_ps(most, _mm_set1_ps(0x1p-100f)); /* less is as good as zero */
    f->units = _mm_div_ps(most, _mm_set1_ps(top));
    f->inverse = _mm_div_ps(_mm_set1_ps(top), most);
    return sum;
}

/* Numbers of what has been weighed, `stride` apart.  Returns their sums times their units. */
INLINE __m128 cut_to(uint32_t heads, factors f, number_order order, int16_t *numbers) {
    float inverses[HEADS];
    __m256 inverse[HEADS];
    __m256i total[HEADS];
    _mm_storeu_ps(inverses, f.inverse);
    UNROLL
    for (uint32_t h = 0; h < HEADS; h++) {
        inverse[h] = _mm256_set1_ps(inverses[h]);
        total[h] = _mm256_setzero_si256();
    }
    for (uint32_t i = 0; i < f.n; i += 16) {
        const __m256 low = _mm256_load_ps(f.steps + i), high = _mm256_load_ps(f.steps + i + 8);
        UNROLL
        for (uint32_t h = 0; h < heads; h++) {
            const float *x = f.x + h * f.stride + i;
            const __m256 a = _mm256_mul_ps(_mm256_loadu_ps(x), low), b = _mm256_mul_ps(_mm256_loadu_ps(x + 8), high);
            const __m256i p = _mm256_cvtps_epi32(_mm256_mul_ps(a, inverse[h]));
            const __m256i q = _mm256_cvtps_epi32(_mm256_mul_ps(b, inverse[h]));
            total[h] = _mm256_add_epi32(total[h], _mm256_add_epi32(p, q));
            store_numbers(numbers + h * f.stride + i, order, p, q);
        }
    }
    return _mm_mul_ps(_mm_cvtepi32_ps(whole_sum_of_each(total)), f.units);
}

INLINE __m128 cut(uint32_t heads, factors f, number_order order, int16_t *numbers) {
    if (order == BY_PAIRS) return cut_to(heads, f, BY_PAIRS, numbers);
    return order == IN_ORDER ? cut_to(heads, f, IN_ORDER, numbers) : cut_to(heads, f, AS_THEY_COME, numbers);
}

/* ---- keys --------------------------------------------------------------------------------------------------------- */

/* Steps and middles of the group's blocks, both [d], that are to be folded into the query; NULL: not that block. */
typedef struct key_steps {
    const float *steps[PLEAT__STREAMS], *middles[PLEAT__STREAMS];
} key_steps;

/* Queries of heads [head, head + heads) times steps: numbers, their units, and what logits have beside sums of numbers
 * times codes in these.  All blocks are weighed first: none waits for another's units. */
INLINE void fold_query(uint32_t heads, pleat__blocks_walk *w, uint32_t head, const key_steps *k) {
    const uint32_t d = w->format->head_dim;
    const float top = top_of(d, w->format->k_levels);
    const number_order order = w->planes ? AS_THEY_COME : BY_PAIRS;
    const __m128 c = _mm_set1_ps(pleat__blocks_middle(w->format->k_levels));
    factors all[PLEAT__STREAMS];
    __m128 bias[PLEAT__STREAMS];
    for (uint32_t b = 0; b < PLEAT__STREAMS; b++) {
        if (!k->steps[b]) continue;
        all[b] = (factors){w->query->f32 + (size_t)head * d, d, k->steps[b], k->middles[b], d};
        bias[b] = weigh(heads, false, &all[b], top);
    }
    for (uint32_t b = 0; b < PLEAT__STREAMS; b++) {
        if (!k->steps[b]) continue;
        const __m128 sums = cut(heads, all[b], order, pleat__key_numbers(w, b, head));
        _mm_store_ps(w->key_scale + b * w->heads + head, all[b].units);
        _mm_store_ps(w->key_bias + b * w->heads + head, _mm_fnmadd_ps(c, sums, bias[b]));
    }
}

static void fold_queries(pleat__blocks_walk *w, const key_steps *k) {
    PLEAT__FOR_FOUR_HEADS(w, fold_query(heads, w, head, k));
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
    fold_queries(w, &(key_steps){{ones}, {zeros}});
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

/* A block's steps and middles, at `steps` and behind them. */
static void load_key_steps(const pleat__blocks_walk *w, uint32_t block, float *steps) {
    const uint32_t d = w->format->head_dim;
    const pleat__block_reader *r = &w->readers[block];
    const __m256 c = _mm256_set1_ps(pleat__blocks_middle(w->format->k_levels));
    for (size_t i = 0; i < d; i += 8) {
        const __m256 step = load_half(r->k_steps + 2 * i);
        _mm256_store_ps(steps + i, step);
        _mm256_store_ps(steps + d + i, _mm256_fmadd_ps(c, step, load_half(r->k_mins + 2 * i)));
    }
}

void pleat__blocks_keys_begin_avx2(pleat__blocks_walk *w) {
    _Alignas(32) float memory[PLEAT__STREAMS * 2 * PLEAT__MAX_HEAD_DIM];
    float *next = memory;
    key_steps k = {{NULL}, {NULL}};
    for (uint32_t b = 0; b < w->n_blocks; b++) {
        if (!w->format->by_channel) {
            scale_query(w, b);
            continue;
        }
        if (pleat__blocks_was_folded(w, b)) continue;
        load_key_steps(w, b, next);
        k.steps[b] = next;
        k.middles[b] = next + w->format->head_dim;
        next += (size_t)2 * w->format->head_dim;
    }
    if (w->format->by_channel) fold_queries(w, &k);
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

/* Halves of 8 tokens: of two units, or of four. */
INLINE void two_of_two(const uint8_t *p, __m128i *out) {
    const __m128i by_unit = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)p);
    const __m256i y = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(x, _mm256_broadcastsi128_si256(by_unit)), 0xD8);
    out[0] = _mm256_castsi256_si128(y);
    out[1] = _mm256_extracti128_si256(y, 1);
}
INLINE void four_of_four(const uint8_t *p, __m128i *out) {
    const __m128i by_unit = _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15); /* two tokens each */
    const __m256i order = _mm256_broadcastsi128_si256(by_unit);
    const __m256i a = _mm256_shuffle_epi8(_mm256_loadu_si256((const __m256i *)(const void *)p), order);
    const __m256i b = _mm256_shuffle_epi8(_mm256_loadu_si256((const __m256i *)(const void *)(p + 32)), order);
    const __m256i first = _mm256_unpacklo_epi32(a, b), last = _mm256_unpackhi_epi32(a, b);
    const __m128i first_odd = _mm256_extracti128_si256(first, 1), last_odd = _mm256_extracti128_si256(last, 1);
    out[0] = _mm_unpacklo_epi32(_mm256_castsi256_si128(first), first_odd);
    out[1] = _mm_unpackhi_epi32(_mm256_castsi256_si128(first), first_odd);
    out[2] = _mm_unpacklo_epi32(_mm256_castsi256_si128(last), last_odd);
    out[3] = _mm_unpackhi_epi32(_mm256_castsi256_si128(last), last_odd);
}

/* Halves of a unit, p at the first. */
static __m128i gather_unit(const uint8_t *p, uint32_t units) {
    _Alignas(16) uint8_t halves[16];
    for (uint32_t i = 0; i < 8; i++) memcpy(halves + (size_t)2 * i, p + (size_t)2 * units * i, 2);
    return _mm_load_si128((const __m128i *)(const void *)halves);
}

/* Units from `unit` on of 8 tokens, [token][units] f16.  Returns how many. */
INLINE uint32_t take_units(const uint8_t *p, uint32_t units, uint32_t unit, __m128i *out) {
    if (units == 1) {
        out[0] = _mm_loadu_si128((const __m128i *)(const void *)p);
    } else if (units == 2) {
        two_of_two(p, out);
        return 2;
    } else if (units == 4) {
        four_of_four(p, out);
        return 4;
    } else {
        out[0] = gather_unit(p + (size_t)2 * unit, units);
    }
    return 1;
}

static void load_value_steps(pleat__blocks_walk *w) {
    const uint32_t units = w->n_units, tokens = w->format->tokens, row = pleat__blocks_row(w->format);
    const __m256 c = _mm256_set1_ps(pleat__blocks_middle(w->format->v_levels));
    for (uint32_t b = 0, at = 0; b < w->n_blocks; b++) {
        const uint8_t *steps = w->readers[b].v_steps, *mins = w->readers[b].v_mins;
        for (uint32_t i = 0; i < tokens; i += 8, at += 8, steps += (size_t)16 * units, mins += (size_t)16 * units) {
            __m128i x[4], y[4];
            for (uint32_t unit = 0, n; unit < units; unit += n) {
                n = take_units(steps, units, unit, x);
                take_units(mins, units, unit, y);
                for (uint32_t j = 0; j < n; j++) {
                    const __m256 step = _mm256_cvtph_ps(x[j]);
                    const size_t to = (size_t)(unit + j) * row + at;
                    _mm256_store_ps(w->value_steps + to, step);
                    _mm256_store_ps(w->value_middles + to, _mm256_fmadd_ps(c, step, _mm256_cvtph_ps(y[j])));
                }
            }
        }
    }
}

/* Units of the weights of heads [head, head + heads) times steps, part by part, and sums of weights times middles. */
INLINE __m128 weigh_unit(uint32_t heads, const pleat__blocks_walk *w, uint32_t head, uint32_t unit, factors *parts) {
    const uint32_t row = pleat__blocks_row(w->format);
    const float *x = w->weights + (size_t)head * row, *steps = pleat__blocks_value_steps(w, unit);
    const float *middles = pleat__blocks_value_middles(w, unit);
    __m128 bias = _mm_setzero_ps();
    for (uint32_t from = 0; from < w->n_tokens; from += PART_TOKENS, parts++) {
        *parts =
            (factors){x + from, row, steps + from, middles + from, pleat__min_u32(w->n_tokens - from, PART_TOKENS)};
        bias = _mm_add_ps(bias, weigh(heads, true, parts, top_of(parts->n, w->format->v_levels)));
    }
    return bias;
}

/* Their numbers, and what stands beside their sums. */
INLINE void cut_unit(uint32_t heads, pleat__blocks_walk *w, uint32_t head, uint32_t unit, const factors *parts,
                     __m128 bias) {
    const __m128 share = _mm_load_ps(w->share + head), c = _mm_set1_ps(pleat__blocks_middle(w->format->v_levels));
    float *scales = w->value_scale + (size_t)unit * PLEAT__STREAMS * w->heads + head;
    int16_t *numbers = pleat__value_numbers(w, unit, head);
    const number_order order = w->packs ? IN_ORDER : w->planes ? AS_THEY_COME : BY_PAIRS;
    for (uint32_t from = 0; from < w->n_tokens; from += PART_TOKENS, parts++, scales += w->heads) {
        bias = _mm_fnmadd_ps(c, cut(heads, *parts, order, numbers + from), bias);
        _mm_store_ps(scales, _mm_mul_ps(parts->units, share));
    }
    _mm_store_ps(w->value_bias + unit * w->heads + head, _mm_mul_ps(bias, share));
}

#define UNITS_AT_ONCE 4u

/* Some units are weighed first, as with keys. */
INLINE void fold_weights(uint32_t heads, pleat__blocks_walk *w, uint32_t head) {
    factors all[UNITS_AT_ONCE][MAX_PARTS];
    __m128 bias[UNITS_AT_ONCE];
    for (uint32_t from = 0, n; from < w->n_units; from += n) {
        n = pleat__min_u32(w->n_units - from, UNITS_AT_ONCE);
        for (uint32_t i = 0; i < n; i++) bias[i] = weigh_unit(heads, w, head, from + i, all[i]);
        for (uint32_t i = 0; i < n; i++) cut_unit(heads, w, head, from + i, all[i], bias[i]);
    }
}

void pleat__blocks_values_begin_avx2(pleat__blocks_walk *w) {
    load_value_steps(w);
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
