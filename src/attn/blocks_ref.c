/* SPDX-License-Identifier: MIT
 *
 * blocks_ref.c: decode attention over compressed blocks in f32, written to be read, in loops that compilers turn into
 * vector instructions.
 *
 * A vector of codes is 16 rows by 4 columns.  Its 64 codes become floats as they stand, and are multiplied with four
 * factors, over and over; sums of a slice are 64 as well, four for each row, added up at the end.
 */
#include <math.h>
#include <string.h>

#include "attn/blocks_walk.h"

#define ROWS 16u
#define VECTOR 64u

/* Codes of n vectors, counted from `middle`. */
static void to_floats(const uint8_t *restrict codes, uint32_t n_vectors, float middle, float *restrict out) {
    const size_t n = (size_t)n_vectors * VECTOR;
    for (size_t i = 0; i < n; i++) out[i] = (float)(int32_t)codes[i] - middle;
}

/* sums[4*row + j] += sum over vectors of factors[4*v + j] * x[v][4*row + j], in parts of 16 vectors: long sums round
 * more. */
static void add_products(const float *restrict x, const float *restrict factors, uint32_t n_vectors,
                         float *restrict sums) {
    enum { PART = 16 };
    for (uint32_t from = 0; from < n_vectors; from += PART) {
        const uint32_t n = pleat__min_u32(n_vectors - from, PART);
        float part[VECTOR] = {0};
        for (uint32_t v = 0; v < n; v++, x += VECTOR, factors += 4) {
            float pattern[VECTOR];
            for (size_t i = 0; i < VECTOR; i += 4) memcpy(pattern + i, factors, 4 * sizeof *factors);
            for (size_t i = 0; i < VECTOR; i++) part[i] += pattern[i] * x[i];
        }
        for (size_t i = 0; i < VECTOR; i++) sums[i] += part[i];
    }
}

static float sum_of_row(const float *sums, uint32_t row) {
    const float *s = sums + (size_t)4 * row;
    return s[0] + s[1] + (s[2] + s[3]);
}

static float *key_factors(const pleat__blocks_walk *w, uint32_t block, uint32_t head) {
    return (float *)w->key_factors + ((size_t)block * w->heads + head) * w->format->head_dim;
}
static float *value_factors(const pleat__blocks_walk *w, uint32_t unit, uint32_t head) {
    return (float *)pleat__blocks_value_factors(w, unit) + (size_t)head * pleat__blocks_row(w->format);
}

static void nothing(pleat__blocks_walk *w) { (void)w; }

static void keys_begin(pleat__blocks_walk *w) {
    const uint32_t d = w->format->head_dim, channels = w->format->by_channel;
    const float c = pleat__blocks_middle(w->format->k_levels);
    for (uint32_t b = 0; b < w->n_blocks; b++) {
        if (pleat__blocks_was_folded(w, b)) continue;
        const pleat__block_reader *r = &w->readers[b];
        float middles[PLEAT__MAX_HEAD_DIM], steps[PLEAT__MAX_HEAD_DIM];
        for (uint32_t i = 0; i < d; i++) {
            steps[i] = pleat__blocks_unit(r->k_steps, channels ? i : 0);
            middles[i] = pleat__blocks_unit(r->k_mins, channels ? i : 0) + c * steps[i];
        }
        for (uint32_t h = 0; h < w->query->n_group; h++) {
            const float *q = w->query->f32 + (size_t)h * d;
            float *factors = key_factors(w, b, h);
            double bias = 0;
            for (uint32_t i = 0; i < d; i++) {
                factors[i] = q[i] * steps[i];
                bias += (double)(q[i] * middles[i]);
            }
            w->key_bias[b * w->heads + h] = (float)bias;
        }
    }
}

static void keys(pleat__blocks_walk *w, uint32_t slice) {
    const uint32_t n_vectors = w->format->head_dim / 4;
    const float middle = pleat__blocks_middle(w->format->k_levels);
    for (uint32_t b = 0; b < w->n_blocks; b++) {
        to_floats(w->codes + (size_t)b * n_vectors * VECTOR, n_vectors, middle, w->floats);
        for (uint32_t h = 0; h < w->query->n_group; h++) {
            float sums[VECTOR] = {0};
            float *out = w->weights + (size_t)h * pleat__blocks_row(w->format) + b * w->format->tokens + slice * ROWS;
            add_products(w->floats, key_factors(w, b, h), n_vectors, sums);
            for (uint32_t i = 0; i < ROWS; i++) out[i] = w->key_bias[b * w->heads + h] + sum_of_row(sums, i);
        }
    }
}

static void softmax(pleat__blocks_walk *w) {
    for (uint32_t h = 0; h < w->query->n_group; h++) {
        float *x = w->weights + (size_t)h * pleat__blocks_row(w->format), most = -INFINITY;
        double sum = 0;
        for (uint32_t i = 0; i < w->n_tokens; i++) most = x[i] > most ? x[i] : most;
        for (uint32_t i = 0; i < w->n_tokens; i++) {
            x[i] = exp2f(x[i] - most);
            sum += (double)x[i];
        }
        const float m = w->acc->m[h], raised = m > most ? m : most;
        w->rescale[h] = exp2f(m - raised);
        w->share[h] = exp2f(most - raised);
        w->acc->m[h] = raised;
        w->acc->l[h] = w->acc->l[h] * w->rescale[h] + (float)sum * w->share[h];
    }
}

static void fold_unit(pleat__blocks_walk *w, uint32_t unit) {
    const uint32_t tokens = w->format->tokens;
    float *steps = pleat__blocks_value_steps(w, unit), *middles = pleat__blocks_value_middles(w, unit);
    const float c = pleat__blocks_middle(w->format->v_levels);
    for (uint32_t i = 0; i < w->n_tokens; i++) {
        const pleat__block_reader *r = &w->readers[i / tokens];
        const size_t at = (size_t)(i % tokens) * w->n_units + unit;
        steps[i] = pleat__blocks_unit(r->v_steps, at);
        middles[i] = pleat__blocks_unit(r->v_mins, at) + c * steps[i];
    }
    for (uint32_t h = 0; h < w->query->n_group; h++) {
        const float *weights = w->weights + (size_t)h * pleat__blocks_row(w->format);
        float *factors = value_factors(w, unit, h);
        double bias = 0;
        for (uint32_t i = 0; i < w->n_tokens; i++) {
            factors[i] = weights[i] * steps[i];
            bias += (double)(weights[i] * middles[i]);
        }
        w->value_bias[unit * w->heads + h] = (float)bias;
    }
}

static void values_begin(pleat__blocks_walk *w) {
    for (uint32_t unit = 0; unit < w->n_units; unit++) fold_unit(w, unit);
}

static void values(pleat__blocks_walk *w, uint32_t slice) {
    const uint32_t n_vectors = w->format->tokens / 4, d = w->format->head_dim, n_group = w->query->n_group;
    const uint32_t unit = pleat__blocks_unit_of(w, slice);
    const float middle = pleat__blocks_middle(w->format->v_levels);
    float sums[PLEAT__MAX_GROUP][VECTOR];
    for (uint32_t h = 0; h < n_group; h++) {
        for (uint32_t i = 0; i < VECTOR; i++) sums[h][i] = 0;
    }
    for (uint32_t b = 0; b < w->n_blocks; b++) {
        to_floats(w->codes + (size_t)b * n_vectors * VECTOR, n_vectors, middle, w->floats);
        for (uint32_t h = 0; h < n_group; h++)
            add_products(w->floats, value_factors(w, unit, h) + (size_t)b * w->format->tokens, n_vectors, sums[h]);
    }
    for (uint32_t h = 0; h < n_group; h++) {
        float *o = w->acc->o + (size_t)h * d + (size_t)slice * ROWS;
        for (uint32_t i = 0; i < ROWS; i++)
            o[i] = o[i] * w->rescale[h] + w->share[h] * (w->value_bias[unit * w->heads + h] + sum_of_row(sums[h], i));
    }
}

const pleat__blocks_steps pleat__blocks_steps_ref = {nothing,      keys_begin, keys,    pleat__attn_cap_ref,   softmax,
                                                     values_begin, values,     nothing, pleat__blocks_mean_ref};

bool pleat__attn_blocks_ref(const pleat__attn_query *query, const pleat__codec_dsp *codec, const pleat__block_run *run,
                            uint32_t block_from, uint32_t block_to, pleat__attn_acc *acc, void *scratch) {
    return pleat__blocks_walk_run(&pleat__blocks_steps_ref, query, codec, run, block_from, block_to, acc, scratch);
}
