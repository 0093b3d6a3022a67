/* SPDX-License-Identifier: MIT
 *
 * decode_neon.c: decode attention with registers of four floats: the walk over groups, the softmax between keys and
 * values (x86/decode_avx512.c has the scheme), and the attention received.
 */
#include "attn/arm/decode_neon.h"

#include <float.h>

/* The functions that a format takes on a CPU. */
typedef struct kernels {
    const pleat__keys_neon_fn *keys; /* by heads */
    const pleat__values_neon_fn *values;
    bool limbs; /* integer values want weights cut into limbs */
} kernels;

static kernels kernels_of(pleat_format format, bool dotprod) {
    const uint32_t k = pleat__decode_row(format.k_bits, format.rotated);
    const uint32_t v = pleat__decode_row(format.v_bits, format.rotated);
    if (!pleat__format_is_quantised(format))
        return (kernels){pleat__keys_neon_float[k - 4], pleat__values_neon_float[v - 4], false};
    if (dotprod) return (kernels){pleat__keys_dotprod[k], pleat__values_dotprod[v], true};
    return (kernels){pleat__keys_neon_integer[k], pleat__values_neon_integer[v], false};
}

/* Of a group's values, the same for every head. */
typedef struct value_scales {
    float32x4_t scale[TILES][QUARTERS];
    float32x4_t middle[TILES][QUARTERS]; /* minimum + c*scale */
} value_scales;

INLINE void value_scales_init(value_scales *vs, const pleat__tile_group *g, pleat_format f) {
    const float c = (float)(1u << (f.v_bits - 1));
    for (uint32_t t = 0; t < g->n_tiles; t++) {
        for (uint32_t x = 0; x < QUARTERS; x++) {
            const uint16_t *meta = g->v_meta[t] + LANES * x;
            vs->scale[t][x] = load_f16(meta);
            vs->middle[t][x] = vdupq_n_f32(0); /* levels have none */
            if (f.rotated) continue;
            vs->middle[t][x] = vfmaq_n_f32(load_f16(meta + PLEAT__TILE), vs->scale[t][x], c);
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
    float32x4_t most[QUARTERS];
    for (uint32_t x = 0; x < QUARTERS; x++) most[x] = vdupq_n_f32(-FLT_MAX);
    for (uint32_t t = 0; t < g->n_tiles; t++) {
        for (uint32_t x = 0; x < QUARTERS; x++) {
            float *at = logits[t] + LANES * x;
            const float32x4_t y = hide(vld1q_f32(at), mask_of(g->live[t] >> (LANES * x)));
            vst1q_f32(at, y);
            most[x] = vmaxq_f32(most[x], y);
        }
    }
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(most[0], most[1]), vmaxq_f32(most[2], most[3])));
}

INLINE float32x4_t weight_of(const float *logits, float group_max) {
    return exp2_neon(vsubq_f32(vld1q_f32(logits), vdupq_n_f32(group_max)));
}

INLINE float sum_of_four(const float32x4_t *sum) {
    return vaddvq_f32(vaddq_f32(vaddq_f32(sum[0], sum[1]), vaddq_f32(sum[2], sum[3])));
}

INLINE head_sums weigh_float(const pleat__tile_group *g, float (*logits)[PLEAT__TILE], float group_max, float share,
                             float (*out)[PLEAT__TILE]) {
    float32x4_t sum[QUARTERS] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
    for (uint32_t t = 0; t < g->n_tiles; t++) {
        for (uint32_t x = 0; x < QUARTERS; x++) {
            const float32x4_t e = weight_of(logits[t] + LANES * x, group_max);
            sum[x] = vaddq_f32(sum[x], e);
            vst1q_f32(out[t] + LANES * x, vmulq_n_f32(e, share));
        }
    }
    return (head_sums){.weight = sum_of_four(sum)};
}

/* Store the 16 weights p of a tile as limbs, hi = (p + 128) >> 8 and lo = p - 256*hi, or as they are. */
INLINE void store_fixed(pleat__weights_neon *w, bool limbs, uint32_t h, uint32_t t, const int32x4_t *p) {
    const int16x8_t a = vcombine_s16(vmovn_s32(p[0]), vmovn_s32(p[1]));
    const int16x8_t b = vcombine_s16(vmovn_s32(p[2]), vmovn_s32(p[3]));
    if (limbs) {
        vst1q_s8(w->u.limbs.hi[h][t], vcombine_s8(vrshrn_n_s16(a, 8), vrshrn_n_s16(b, 8)));
        vst1q_s8(w->u.limbs.lo[h][t], vcombine_s8(vmovn_s16(a), vmovn_s16(b)));
    } else {
        vst1q_s16(w->u.fixed[h][t], a);
        vst1q_s16(w->u.fixed[h][t] + 8, b);
    }
}

/* Weights of head h for integer values. */
INLINE head_sums weigh_fixed(const pleat__tile_group *g, const value_scales *vs, float (*logits)[PLEAT__TILE],
                             float group_max, bool limbs, uint32_t h, pleat__weights_neon *w) {
    float32x4_t sum[QUARTERS], middle[QUARTERS], scaled[TILES][QUARTERS];
    float32x4_t most = vdupq_n_f32(0x1p-100f); /* keeps 1/step finite; f32 would lose weights below it too */
    for (uint32_t x = 0; x < QUARTERS; x++) sum[x] = middle[x] = vdupq_n_f32(0);
    for (uint32_t t = 0; t < g->n_tiles; t++) {
        for (uint32_t x = 0; x < QUARTERS; x++) {
            const float32x4_t e = weight_of(logits[t] + LANES * x, group_max);
            sum[x] = vaddq_f32(sum[x], e);
            middle[x] = vfmaq_f32(middle[x], e, vs->middle[t][x]);
            scaled[t][x] = vmulq_f32(e, vs->scale[t][x]);
            most = vmaxq_f32(most, scaled[t][x]);
        }
    }
    const float top = vmaxvq_f32(most), to_fixed = (float)PLEAT__WEIGHT_TOP / top;
    int32x4_t fixed = vdupq_n_s32(0);
    for (uint32_t t = 0; t < g->n_tiles; t++) {
        int32x4_t p[QUARTERS];
        for (uint32_t x = 0; x < QUARTERS; x++) {
            p[x] = vcvtnq_s32_f32(vmulq_n_f32(scaled[t][x], to_fixed));
            fixed = vaddq_s32(fixed, p[x]);
        }
        store_fixed(w, limbs, h, t, p);
    }
    return (head_sums){.weight = sum_of_four(sum),
                       .middle = sum_of_four(middle),
                       .step = top * (1.0f / (float)PLEAT__WEIGHT_TOP),
                       .fixed = vaddvq_s32(fixed)};
}

/* Everything that stays the same in a range. */
typedef struct walk {
    const pleat__attn_query *query;
    const pleat__page_layout *layout;
    pleat__attn_acc *acc;
    float *logits;
    size_t logits_stride;
    kernels fn;
    float *bias; /* [G] sums of weight * middle, NULL for float values */
} walk;

/* Turn a block's logits into weights; update m, l, bias. */
static void softmax(const walk *wk, uint32_t head, uint32_t heads, const pleat__tile_group *g, const value_scales *vs,
                    float (*logits)[TILES][PLEAT__TILE], pleat__weights_neon *w) {
    float *m = wk->acc->m + head, *l = wk->acc->l + head;
    float u[HEADS] = {0}, old[HEADS] = {0}, share[HEADS];
    for (uint32_t h = 0; h < heads; h++) {
        u[h] = mask_logits(g, logits[h]);
        old[h] = m[h];
        m[h] = m[h] > u[h] ? m[h] : u[h];
    }
    const float32x4_t us = vld1q_f32(u), olds = vld1q_f32(old), raised = vmaxq_f32(olds, us);
    vst1q_f32(w->rescale, exp2_neon(vsubq_f32(olds, raised)));
    vst1q_f32(share, exp2_neon(vsubq_f32(us, raised)));
    for (uint32_t h = 0; h < heads; h++) {
        if (!wk->bias) {
            const head_sums s = weigh_float(g, logits[h], u[h], share[h], w->u.f32[h]);
            l[h] = l[h] * w->rescale[h] + s.weight * share[h];
            continue;
        }
        const head_sums s = weigh_fixed(g, vs, logits[h], u[h], wk->fn.limbs, h, w);
        l[h] = l[h] * w->rescale[h] + s.weight * share[h];
        wk->bias[head + h] = wk->bias[head + h] * w->rescale[h] + s.middle * share[h];
        w->sum[h] = s.fixed;
        w->step[h] = s.step * share[h];
    }
}

static void add_group(const void *context, pleat__tile_group *g) {
    const walk *wk = context;
    const uint32_t n_group = wk->query->n_group, d = wk->query->head_dim;
    float logits[HEADS][TILES][PLEAT__TILE] __attribute__((aligned(64)));
    pleat__weights_neon weights;
    value_scales vs;
    if (wk->bias) value_scales_init(&vs, g, wk->layout->format);
    for (uint32_t head = 0, heads; head < n_group; head += heads) {
        heads = pleat__decode_block_heads(n_group - head);
        wk->fn.keys[heads](wk->query, head, g, logits);
        pleat__decode_adjust(wk->query, heads, g, logits, pleat__attn_cap_neon);
        softmax(wk, head, heads, g, &vs, logits, &weights);
        for (uint32_t h = 0; wk->logits && h < heads; h++)
            __builtin_memcpy(wk->logits + (head + h) * wk->logits_stride + g->slot, logits[h],
                             g->n_tiles * sizeof logits[h][0]);
        wk->fn.values[heads](&weights, g, d, wk->acc->o + (size_t)head * d);
        if (head == 0) pleat__tile_group_stop_prefetch(g);
    }
}

static void decode(const pleat__attn_query *query, const pleat__kv_run *run, uint32_t slot_from, uint32_t slot_to,
                   pleat__attn_acc *acc, float *logits, size_t logits_stride, bool dotprod) {
    const pleat__page_layout *l = run->layout;
    float bias[PLEAT__MAX_GROUP] = {0};
    const walk wk = {.query = query,
                     .layout = l,
                     .acc = acc,
                     .logits = logits,
                     .logits_stride = logits_stride,
                     .fn = kernels_of(l->format, dotprod),
                     .bias = pleat__format_is_quantised(l->format) ? bias : NULL};
    pleat__decode_groups(run, slot_from, slot_to, query->n_group, logits, logits_stride, add_group, &wk);
    if (wk.bias) pleat__decode_add_bias(acc, bias, query->n_group, query->head_dim);
}

void pleat__attn_decode_neon(const pleat__attn_query *query, const pleat__kv_run *run, uint32_t slot_from,
                             uint32_t slot_to, pleat__attn_acc *acc, float *logits, size_t logits_stride) {
    decode(query, run, slot_from, slot_to, acc, logits, logits_stride, false);
}

void pleat__attn_decode_dotprod(const pleat__attn_query *query, const pleat__kv_run *run, uint32_t slot_from,
                                uint32_t slot_to, pleat__attn_acc *acc, float *logits, size_t logits_stride) {
    decode(query, run, slot_from, slot_to, acc, logits, logits_stride, true);
}

INLINE void add_received(float *score, uint32_t n, const float *logits, size_t stride, const float *lse2,
                         uint32_t n_group) {
    for (uint32_t i = 0; i < n; i += PLEAT__TILE) {
        const float *x = logits + i;
        float32x4_t most[QUARTERS];
        for (uint32_t j = 0; j < QUARTERS; j++) most[j] = vdupq_n_f32(-__builtin_inff());
        for (uint32_t g = 0; g < n_group; g++, x += stride) { /* logit2 - lse2; a NaN is not taken */
            const float32x4_t y = vdupq_n_f32(lse2[g]);
            for (uint32_t j = 0; j < QUARTERS; j++)
                most[j] = vmaxnmq_f32(vsubq_f32(vld1q_f32(x + LANES * j), y), most[j]);
        }
        const uint32_t here = n - i < PLEAT__TILE ? (1u << (n - i)) - 1 : 0xFFFF;
        for (uint32_t j = 0; j < QUARTERS; j++) {
            float *at = score + i + LANES * j;
            const float32x4_t weight = zero_unless(exp2_neon(most[j]), mask_of(here >> (LANES * j)));
            vst1q_f32(at, vaddq_f32(vld1q_f32(at), weight));
        }
    }
}

void pleat__attn_decode_received_neon(const pleat__kv_run *run, uint32_t slot_from, uint32_t slot_to,
                                      const float *logits, size_t logits_stride, const float *lse2, uint32_t n_group) {
    pleat__received_pages(run, slot_from, slot_to, logits, logits_stride, lse2, n_group, add_received);
}
