/* SPDX-License-Identifier: MIT
 *
 * blocks_neon.c: decode attention over compressed blocks with NEON's products of 16 bits.
 *
 * Factors are 16-bit numbers of units as x86/blocks_avx2.h has them, in their own order.  A load takes a vector of codes
 * apart into its four columns of 16 rows.  Their products with a head's four numbers are added to 16 sums: elements are
 * rows, and nothing is summed across a register.  Sums are exact.  The error in norm is <= 1e-4.
 */
#include "attn/arm/vector_neon.h"
#include "attn/blocks_walk.h"

#include <string.h>

#define HEADS PLEAT__BLOCKS_HEADS
#define ROWS 16u /* of a slice */
#define QUARTERS (ROWS / LANES)
#define VECTOR 64u
#define TOP 32639u

/* Weights are cut in parts of so many tokens, each in units of its own, as on x86. */
#define PART_TOKENS 256u

static int16_t *key_numbers(const pleat__blocks_walk *w, uint32_t block, uint32_t head) {
    const uint32_t of_block = w->format->by_channel ? block * w->heads : 0;
    return (int16_t *)w->key_factors + (size_t)(of_block + head) * w->format->head_dim;
}
static int16_t *value_numbers(const pleat__blocks_walk *w, uint32_t unit, uint32_t head) {
    return (int16_t *)pleat__blocks_value_factors(w, unit) + (size_t)head * pleat__blocks_row(w->format);
}

/* ---- halves of payloads, which are not aligned ------------------------------------------------------------------- */

INLINE float32x4_t load_bytes_f16(const uint8_t *p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }

/* One of four tokens each: [token][units], p at the first token's. */
INLINE float32x4_t load_strided_f16(const uint8_t *p, uint32_t units) {
    if (units == 1) return load_bytes_f16(p);
    uint64_t four = 0;
    for (uint32_t i = 0; i < 4; i++) {
        uint16_t x;
        memcpy(&x, p + (size_t)2 * units * i, sizeof x);
        four |= (uint64_t)x << (16 * i);
    }
    return vcvt_f32_f16(vreinterpret_f16_u64(vcreate_u64(four)));
}

/* ---- 16-bit numbers ----------------------------------------------------------------------------------------------- */

/* Numbers of n factors x*y, |x*y| <= most, n a multiple of 16, whose sums of products with codes fit.  Returns their
 * unit, and their sum times it. */
static float cut(const float *x, const float *y, uint32_t n, float most, uint32_t n_levels, int16_t *numbers,
                 float *sum) {
    const uint32_t fits = (uint32_t)INT32_MAX / (n * (n_levels > 1 ? n_levels - 1 : 1));
    const float top = (float)pleat__min_u32(fits, TOP);
    most = most > 0x1p-100f ? most : 0x1p-100f; /* less is as good as zero */
    const float inverse = top / most, unit = most / top;
    int32x4_t total = vdupq_n_s32(0);
    for (uint32_t i = 0; i < n; i += 8) {
        const float32x4_t a = vmulq_f32(vld1q_f32(x + i), vld1q_f32(y + i));
        const float32x4_t b = vmulq_f32(vld1q_f32(x + i + 4), vld1q_f32(y + i + 4));
        const int32x4_t p = vcvtnq_s32_f32(vmulq_n_f32(a, inverse)), q = vcvtnq_s32_f32(vmulq_n_f32(b, inverse));
        total = vaddq_s32(total, vaddq_s32(p, q));
        vst1q_s16(numbers + i, vcombine_s16(vqmovn_s32(p), vqmovn_s32(q)));
    }
    *sum = (float)vaddvq_s32(total) * unit;
    return unit;
}

/* The largest |x*y| of n. */
static float largest_product(const float *x, const float *y, uint32_t n) {
    float32x4_t most = vdupq_n_f32(0);
    for (uint32_t i = 0; i < n; i += LANES)
        most = vmaxq_f32(most, vabsq_f32(vmulq_f32(vld1q_f32(x + i), vld1q_f32(y + i))));
    return vmaxvq_f32(most);
}

static float sum_of_products(const float *x, const float *y, uint32_t n) {
    float32x4_t sum = vdupq_n_f32(0);
    for (uint32_t i = 0; i < n; i += LANES) sum = vfmaq_f32(sum, vld1q_f32(x + i), vld1q_f32(y + i));
    return vaddvq_f32(sum);
}

/* ---- products ----------------------------------------------------------------------------------------------------- */

typedef struct row_sums {
    int32_t of[HEADS][ROWS];
} row_sums;

/* sums = codes of n_columns columns times the numbers of `heads` heads, `stride` apart. */
INLINE void dots_of(uint32_t heads, const uint8_t *codes, uint32_t n_columns, const int16_t *numbers, size_t stride,
                    row_sums *sums) {
    int32x4_t sum[HEADS][QUARTERS];
    UNROLL
    for (uint32_t i = 0; i < heads * QUARTERS; i++) sum[i / QUARTERS][i % QUARTERS] = vdupq_n_s32(0);
    for (uint32_t i = 0; i < n_columns; i += 4, codes += VECTOR) {
        const uint8x16x4_t columns = vld4q_u8(codes);
        int16x4_t p[HEADS];
        UNROLL
        for (uint32_t h = 0; h < heads; h++) p[h] = vld1_s16(numbers + h * stride + i);
#define COLUMN(c)                                                                           \
    {                                                                                       \
        const int16x8_t low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(columns.val[c]))); \
        const int16x8_t high = vreinterpretq_s16_u16(vmovl_high_u8(columns.val[c]));        \
        UNROLL                                                                              \
        for (uint32_t h = 0; h < heads; h++) {                                              \
            sum[h][0] = vmlal_lane_s16(sum[h][0], vget_low_s16(low), p[h], c);              \
            sum[h][1] = vmlal_high_lane_s16(sum[h][1], low, p[h], c);                       \
            sum[h][2] = vmlal_lane_s16(sum[h][2], vget_low_s16(high), p[h], c);             \
            sum[h][3] = vmlal_high_lane_s16(sum[h][3], high, p[h], c);                      \
        }                                                                                   \
    }
        COLUMN(0) COLUMN(1) COLUMN(2) COLUMN(3)
#undef COLUMN
    }
    UNROLL
    for (uint32_t i = 0; i < heads * QUARTERS; i++)
        vst1q_s32(sums->of[i / QUARTERS] + i % QUARTERS * LANES, sum[i / QUARTERS][i % QUARTERS]);
}

static void dots(uint32_t n_heads, const uint8_t *codes, uint32_t n_columns, const int16_t *numbers, size_t stride,
                 row_sums *sums) {
    PLEAT__FOR_HEADS(n_heads, dots_of(heads, codes, n_columns, numbers, stride, sums));
}

INLINE float32x4_t four_sums(const row_sums *sums, uint32_t h, uint32_t row) {
    return vcvtq_f32_s32(vld1q_s32(sums->of[h] + row));
}

/* ---- keys --------------------------------------------------------------------------------------------------------- */

/* A head's query times steps.  Returns the numbers' unit; *bias is what logits have beside sums of numbers times codes
 * in that unit. */
static float fold_query(const pleat__blocks_walk *w, uint32_t block, uint32_t head, const float *steps,
                        const float *middles, float *bias) {
    const uint32_t d = w->format->head_dim;
    const float *q = w->query->f32 + (size_t)head * d;
    float numbers;
    const float unit =
        cut(q, steps, d, largest_product(q, steps, d), w->format->k_levels, key_numbers(w, block, head), &numbers);
    *bias = sum_of_products(q, middles, d) - pleat__blocks_middle(w->format->k_levels) * numbers;
    return unit;
}

/* Where a step is the whole block's, numbers of the query alone serve for all blocks.  What their sum comes to around
 * the middle of codes is kept where queries would be. */
static void begin(pleat__blocks_walk *w) {
    if (w->format->by_channel) return;
    const uint32_t d = w->format->head_dim;
    float ones[PLEAT__MAX_HEAD_DIM], zeros[PLEAT__MAX_HEAD_DIM] = {0};
    for (uint32_t i = 0; i < PLEAT__MAX_HEAD_DIM; i++) ones[i] = 1;
    for (uint32_t h = 0; h < w->query->n_group; h++) {
        w->query_sum[h] = sum_of_products(w->query->f32 + (size_t)h * d, ones, d);
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

static void keys_begin(pleat__blocks_walk *w) {
    float steps[PLEAT__MAX_HEAD_DIM], middles[PLEAT__MAX_HEAD_DIM];
    const float32x4_t c = vdupq_n_f32(pleat__blocks_middle(w->format->k_levels));
    for (uint32_t b = 0; b < w->n_blocks; b++) {
        if (!w->format->by_channel) {
            scale_query(w, b);
            continue;
        }
        if (pleat__blocks_was_folded(w, b)) continue;
        const pleat__block_reader *r = &w->readers[b];
        for (size_t i = 0; i < w->format->head_dim; i += LANES) {
            const float32x4_t step = load_bytes_f16(r->k_steps + 2 * i);
            vst1q_f32(steps + i, step);
            vst1q_f32(middles + i, vfmaq_f32(load_bytes_f16(r->k_mins + 2 * i), c, step));
        }
        for (uint32_t h = 0; h < w->query->n_group; h++)
            w->key_scale[b * w->heads + h] = fold_query(w, b, h, steps, middles, &w->key_bias[b * w->heads + h]);
    }
}

static void keys(pleat__blocks_walk *w, uint32_t slice) {
    const uint32_t d = w->format->head_dim, row = pleat__blocks_row(w->format);
    for (uint32_t b = 0; b < w->n_blocks; b++) {
        for (uint32_t head = 0; head < w->query->n_group; head += HEADS) {
            const uint32_t n_heads = pleat__min_u32(w->query->n_group - head, HEADS), at = b * w->heads + head;
            float *out = w->weights + (size_t)head * row + (size_t)b * w->format->tokens + (size_t)slice * ROWS;
            row_sums sums;
            dots(n_heads, w->codes + (size_t)b * d * ROWS, d, key_numbers(w, b, head), d, &sums);
            for (uint32_t h = 0; h < n_heads; h++) {
                const float32x4_t bias = vdupq_n_f32(w->key_bias[at + h]);
                for (uint32_t i = 0; i < ROWS; i += LANES)
                    vst1q_f32(out + (size_t)h * row + i,
                              vfmaq_n_f32(bias, four_sums(&sums, h, i), w->key_scale[at + h]));
            }
        }
    }
}

/* ---- softmax ------------------------------------------------------------------------------------------------------ */

/* x[0, n) becomes 2^(x - top).  Returns the sum. */
static float raise_two(float *x, uint32_t n, float top) {
    float32x4_t sum = vdupq_n_f32(0);
    for (uint32_t i = 0; i < n; i += LANES) {
        const float32x4_t e = exp2_neon(vsubq_f32(vld1q_f32(x + i), vdupq_n_f32(top)));
        sum = vaddq_f32(sum, e);
        vst1q_f32(x + i, e);
    }
    return vaddvq_f32(sum);
}

static float raised_to(float x) { return vgetq_lane_f32(exp2_neon(vdupq_n_f32(x)), 0); }

static void softmax(pleat__blocks_walk *w) {
    for (uint32_t h = 0; h < w->query->n_group; h++) {
        float *x = w->weights + (size_t)h * pleat__blocks_row(w->format);
        float32x4_t largest = vld1q_f32(x);
        for (uint32_t i = LANES; i < w->n_tokens; i += LANES) largest = vmaxq_f32(largest, vld1q_f32(x + i));
        const float most = vmaxvq_f32(largest), m = w->acc->m[h], raised = m > most ? m : most;
        const float sum = raise_two(x, w->n_tokens, most);
        w->rescale[h] = raised_to(m - raised);
        w->share[h] = raised_to(most - raised);
        w->acc->m[h] = raised;
        w->acc->l[h] = w->acc->l[h] * w->rescale[h] + sum * w->share[h];
    }
}

/* ---- values ------------------------------------------------------------------------------------------------------- */

static void load_value_steps(pleat__blocks_walk *w, uint32_t unit) {
    const uint32_t tokens = w->format->tokens;
    float *steps = pleat__blocks_value_steps(w, unit), *middles = pleat__blocks_value_middles(w, unit);
    const float c = pleat__blocks_middle(w->format->v_levels);
    for (uint32_t b = 0, at = 0; b < w->n_blocks; b++) {
        const pleat__block_reader *r = &w->readers[b];
        for (uint32_t i = 0; i < tokens; i += LANES, at += LANES) {
            const size_t first = 2 * ((size_t)i * w->n_units + unit);
            const float32x4_t step = load_strided_f16(r->v_steps + first, w->n_units);
            vst1q_f32(steps + at, step);
            vst1q_f32(middles + at, vfmaq_n_f32(load_strided_f16(r->v_mins + first, w->n_units), step, c));
        }
    }
}

/* Numbers of a head's weights times steps, part by part, and what stands beside their sums. */
static void fold_weights(pleat__blocks_walk *w, uint32_t unit, uint32_t head) {
    const float *weights = w->weights + (size_t)head * pleat__blocks_row(w->format);
    float *scales = w->value_scale + (size_t)unit * PLEAT__STREAMS * w->heads;
    float bias = 0;
    for (uint32_t from = 0, part = 0; from < w->n_tokens; from += PART_TOKENS, part++) {
        const uint32_t n = pleat__min_u32(w->n_tokens - from, PART_TOKENS);
        const float *x = weights + from, *steps = pleat__blocks_value_steps(w, unit) + from;
        float numbers;
        const float scale = cut(x, steps, n, largest_product(x, steps, n), w->format->v_levels,
                                value_numbers(w, unit, head) + from, &numbers);
        scales[part * w->heads + head] = scale * w->share[head];
        bias += sum_of_products(x, pleat__blocks_value_middles(w, unit) + from, n) -
                pleat__blocks_middle(w->format->v_levels) * numbers;
    }
    w->value_bias[unit * w->heads + head] = bias * w->share[head];
}

static void values_begin(pleat__blocks_walk *w) {
    for (uint32_t unit = 0; unit < w->n_units; unit++) {
        load_value_steps(w, unit);
        for (uint32_t h = 0; h < w->query->n_group; h++) fold_weights(w, unit, h);
    }
}

static void values(pleat__blocks_walk *w, uint32_t slice) {
    const uint32_t row = pleat__blocks_row(w->format), n_group = w->query->n_group;
    const uint32_t unit = pleat__blocks_unit_of(w, slice);
    const float *scales = w->value_scale + (size_t)unit * PLEAT__STREAMS * w->heads;
    const float *biases = w->value_bias + (size_t)unit * w->heads;
    for (uint32_t head = 0; head < n_group; head += HEADS) {
        const uint32_t n_heads = pleat__min_u32(n_group - head, HEADS);
        const uint32_t n_parts = pleat__div_up_u32(w->n_tokens, PART_TOKENS);
        row_sums sums[PLEAT__STREAMS]; /* a block has 256 tokens at most */
        for (uint32_t p = 0, from = 0; p < n_parts; p++, from += PART_TOKENS)
            dots(n_heads, w->codes + (size_t)from * ROWS, pleat__min_u32(w->n_tokens - from, PART_TOKENS),
                 value_numbers(w, unit, head) + from, row, &sums[p]);
        for (uint32_t h = 0; h < n_heads; h++) {
            float *o = w->acc->o + (size_t)(head + h) * w->format->head_dim + (size_t)slice * ROWS;
            for (uint32_t i = 0; i < ROWS; i += LANES) {
                float32x4_t sum = vdupq_n_f32(biases[head + h]);
                for (uint32_t p = 0; p < n_parts; p++)
                    sum = vfmaq_n_f32(sum, four_sums(&sums[p], h, i), scales[p * w->heads + head + h]);
                vst1q_f32(o + i, vfmaq_n_f32(sum, vld1q_f32(o + i), w->rescale[head + h]));
            }
        }
    }
}

static void end(pleat__blocks_walk *w) { (void)w; }

const pleat__blocks_steps pleat__blocks_steps_neon = {begin,        keys_begin, keys, pleat__attn_cap_neon,   softmax,
                                                      values_begin, values,     end,  pleat__blocks_mean_neon};

bool pleat__attn_blocks_neon(const pleat__attn_query *query, const pleat__codec_dsp *codec, const pleat__block_run *run,
                             uint32_t block_from, uint32_t block_to, pleat__attn_acc *acc, void *scratch) {
    return pleat__blocks_walk_run(&pleat__blocks_steps_neon, query, codec, run, block_from, block_to, acc, scratch);
}
