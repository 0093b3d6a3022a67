/* SPDX-License-Identifier: MIT
 *
 * blocks_rd.c: see blocks_rd.h.
 */
#include <string.h>

#include "attn/blocks_mean.h"

#define T PLEAT__RD_TOKENS

/* The call's memory: queries by column; for each head A and B of the means, and what does not turn; a block's cosines and
 * sines; X and Y of two heads. */
typedef struct rd_scratch {
    float *ordered, *ab, *flat, *cosines, *xy;
} rd_scratch;

static rd_scratch scratch_of(const pleat__rd_lane *lane, uint32_t n_group, float *memory) {
    const size_t n = (size_t)n_group * lane->head_dim;
    float *flat = memory + 2 * n, *cosines = flat + n_group;
    return (rd_scratch){memory, memory + n, flat, cosines, cosines + lane->head_dim};
}

static float flat_of(const pleat__rd_lane *lane, const float *q) {
    double sum = 0;
    for (uint32_t i = 0; i < lane->head_dim; i++) sum += (double)(q[i] * lane->flat[i]);
    return (float)sum;
}

void pleat__blocks_mean_ref(const pleat__blocks_means *means) { pleat__add_means(means); }

/* A and B of each mean, [2][n_means]. */
static void meet_means(const pleat__rd_lane *lane, const float *q, float *ab) {
    const uint32_t n = lane->n_means;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t x = lane->turns->first * lane->mean_pair[i], y = x + lane->turns->other;
        ab[i] = q[x] * lane->mean_x[i] + q[y] * lane->mean_y[i];
        ab[n + i] = q[y] * lane->mean_x[i] - q[x] * lane->mean_y[i];
    }
}

/* By column: of channels, or of keys' components. */
static void order_query(const pleat__rd_lane *lane, const float *q, float *out) {
    const uint32_t d = lane->head_dim;
    float components[PLEAT__MAX_HEAD_DIM];
    if (lane->k_basis.to) pleat__rd_turn(lane->k_basis.query, d, q, components);
    for (uint32_t i = 0; i < d; i++) out[i] = (lane->k_basis.to ? components : q)[lane->order[i]];
}

float *pleat__blocks_rd_begin(const pleat__rd_lane *lane, const pleat__attn_query *query, float *memory) {
    const uint32_t d = lane->head_dim;
    const rd_scratch s = scratch_of(lane, query->n_group, memory);
    for (uint32_t h = 0; h < query->n_group; h++) {
        const float *q = query->f32 + (size_t)h * d;
        order_query(lane, q, s.ordered + (size_t)h * d);
        meet_means(lane, q, s.ab + (size_t)h * d);
        s.flat[h] = flat_of(lane, q);
    }
    return s.ordered;
}

static void add_k_escapes(const pleat__blocks_walk *w, const pleat__rd_lane *lane, uint32_t b) {
    const uint32_t d = lane->head_dim, row = pleat__blocks_row(w->format);
    for (uint32_t i = 0; i < w->readers[b].n_k_escapes; i++) {
        const pleat__rd_escape e = pleat__rd_k_escape(lane, &w->readers[b], i);
        for (uint32_t h = 0; h < w->query->n_group; h++)
            w->weights[(size_t)h * row + b * T + e.token] += w->query->f32[(size_t)h * d + e.column] * e.add;
    }
}

void pleat__blocks_rd_keys(pleat__blocks_walk *w, const pleat__rd_lane *lane, pleat__blocks_mean_fn add_means) {
    const rd_scratch s = scratch_of(lane, w->query->n_group, w->rd);
    const pleat__blocks_means means = {.lane = lane,
                                       .blocks = w->blocks,
                                       .n_blocks = w->n_blocks,
                                       .n_heads = w->query->n_group,
                                       .ab = s.ab,
                                       .flat = s.flat,
                                       .cosines = s.cosines,
                                       .xy = s.xy,
                                       .logits = w->weights,
                                       .row = pleat__blocks_row(w->format)};
    add_means(&means);
    for (uint32_t b = 0; b < w->n_blocks; b++) add_k_escapes(w, lane, b);
}

void pleat__blocks_rd_values(pleat__blocks_walk *w, const pleat__rd_lane *lane) {
    const uint32_t d = lane->head_dim, row = pleat__blocks_row(w->format);
    for (uint32_t b = 0; b < w->n_blocks; b++)
        for (uint32_t i = 0; i < w->readers[b].n_v_escapes; i++) {
            const pleat__rd_escape e = pleat__rd_v_escape(lane, &w->readers[b], i);
            for (uint32_t h = 0; h < w->query->n_group; h++)
                w->acc->o[(size_t)h * d + e.column] +=
                    w->share[h] * w->weights[(size_t)h * row + b * T + e.token] * e.add;
        }
}

void pleat__blocks_rd_end(pleat__blocks_walk *w, const pleat__rd_lane *lane, pleat__attn_acc *acc) {
    const uint32_t d = lane->head_dim;
    for (uint32_t h = 0; h < w->query->n_group; h++) {
        float *o = w->acc->o + (size_t)h * d, out[PLEAT__MAX_HEAD_DIM];
        pleat__rd_turn(lane->v_basis.from, d, o, out);
        memcpy(o, out, d * sizeof *o);
    }
    pleat__attn_merge(acc, w->acc, w->query->n_group, d);
}
