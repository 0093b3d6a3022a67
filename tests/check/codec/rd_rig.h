/* SPDX-License-Identifier: MIT
 *
 * rd_rig.h: a lane of the codec rd with codebooks, and tokens as its model makes them: by channel, or by components in
 * bases.
 */
#ifndef CHECK_RD_RIG_H
#define CHECK_RD_RIG_H

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "codec/rd_internal.h"
#include "stats/stats.h"

#define T PLEAT__RD_TOKENS
#define MAX_D 256u
#define MAX_BLOCKS 9u
#define SINKS 4u

static float mean[MAX_D], energy[MAX_D], spread[MAX_D], v_rms[MAX_D];
static double frequencies[MAX_D / 2];
static pleat_rope the_rope;
static pleat__rd_books books;
static pleat__pair_counts counts;
static pleat__rd_turns turns;
static pleat__rd_lane lane;
static void *lane_memory, *turns_memory;
static float keys[MAX_BLOCKS * T * MAX_D], values[MAX_BLOCKS * T * MAX_D];

/* Codebooks as a collector finds them: from codes that are normal, of each class's spread. */
static inline void make_books(void) {
    for (uint32_t class = 0; class < PLEAT__RD_CLASSES; class ++) {
        const double s = class == 0 ? 0.05 : exp2(class / 4.0) / sqrt(2 * M_PI * M_E);
        for (uint32_t i = 0; i < 20000; i++)
            pleat__pair_counts_add(&counts, class, (int8_t)rint(s * (double)check_normal()),
                                   (int8_t)rint(s * (double)check_normal()));
        pleat__rd_book_choose(&counts, class, &books.k[class]);
        pleat__rd_book_choose(&counts, class, &books.v[class]);
    }
    books.sum = 7;
    pleat__rd_books_centre(&books);
}

/* Bases whose duals are known: a reflection, with rows of other lengths. */
static float k_to[MAX_D * MAX_D], k_from[MAX_D * MAX_D], k_query[MAX_D * MAX_D];
static float v_to[MAX_D * MAX_D], v_from[MAX_D * MAX_D], v_query[MAX_D * MAX_D];
static float k_spread[MAX_D], v_spread[MAX_D];
static bool may_split = true, is_split; /* into components */
static pleat__rd_source the_source;

static inline void fill_basis(uint32_t d, float octaves, float *to, float *from, float *query) {
    double across[MAX_D], square = 0;
    for (uint32_t i = 0; i < d; i++) {
        across[i] = (double)check_normal();
        square += across[i] * across[i];
    }
    for (uint32_t i = 0; i < d; i++) {
        const double length = exp2(check_uniform(-(double)octaves, (double)octaves));
        for (uint32_t j = 0; j < d; j++) {
            const double turned = (i == j) - 2 * across[i] * across[j] / square;
            to[j * d + i] = (float)(turned * length);
            from[i * d + j] = query[j * d + i] = (float)(turned / length);
        }
    }
}

static inline pleat__rd_source source_of(uint32_t d) {
    pleat__rd_source source = {.mean = mean, .energy = energy, .spread = spread, .v_rms = v_rms};
    is_split = may_split && check_below(2);
    if (!is_split) return source;
    fill_basis(d, 3, k_to, k_from, k_query);
    fill_basis(d, 0, v_to, v_from, v_query);
    for (uint32_t i = 0; i < d; i++) {
        k_spread[i] = (float)exp2(check_uniform(-3, 2));
        v_spread[i] = (float)check_uniform(0.3, 1.7);
    }
    source.k = (pleat__rd_basis){k_to, k_from, k_query, k_spread};
    source.v = (pleat__rd_basis){v_to, v_from, NULL, v_spread};
    return source;
}

/* What has components `of`. */
static inline void join(uint32_t d, const float *from, const float *of, float *out) {
    for (uint32_t j = 0; j < d; j++) {
        double sum = 0;
        for (uint32_t i = 0; i < d; i++) sum += (double)of[i] * (double)from[i * d + j];
        out[j] = (float)sum;
    }
}

static inline void lane_init(uint32_t d, bool turns_keys, bool is_halves, float k, float v) {
    const uint32_t n_dims = is_halves ? d : d / 2;
    for (uint32_t i = 0; i < n_dims / 2; i++) frequencies[i] = pow(10000, -2.0 * i / n_dims);
    the_rope = (pleat_rope){n_dims, is_halves, is_halves ? 1 : 1.25f, frequencies};
    const pleat_rope *rope = turns_keys ? &the_rope : NULL;
    for (uint32_t i = 0; i < d; i++) {
        mean[i] = check_below(3) ? 2 * check_normal() : 0;
        energy[i] = (float)exp2(check_uniform(-4, 4));
        spread[i] = (float)exp2(check_uniform(-3, 2));
        v_rms[i] = (float)check_uniform(0.3, 1.7);
    }
    free(lane_memory);
    free(turns_memory);
    pleat__arena a = {0};
    pleat__rd_lane_carve(d, &lane, &a);
    lane_memory = malloc(a.used_bytes);
    a = (pleat__arena){.base = lane_memory, .cap_bytes = a.used_bytes};
    pleat__rd_lane_carve(d, &lane, &a);
    a = (pleat__arena){0};
    pleat__rd_turns_carve(rope, MAX_BLOCKS, &turns, &a);
    turns_memory = malloc(a.used_bytes + 1);
    a = (pleat__arena){.base = turns_memory, .cap_bytes = a.used_bytes};
    pleat__rd_turns_carve(rope, MAX_BLOCKS, &turns, &a);
    pleat__rd_turns_init(rope, SINKS, MAX_BLOCKS, &turns);
    the_source = source_of(d);
    pleat__rd_lane_init(&lane, &the_source, &books, &turns, rope, d, k, v);
}

/* The mean key turned to a position, in double and with nothing but its definition. */
static inline void turned_mean(uint32_t d, uint32_t position, double *out) {
    for (uint32_t i = 0; i < d; i++) out[i] = (double)mean[i];
    for (uint32_t i = 0; i < turns.n_pairs; i++) {
        const uint32_t x = turns.first * i, y = x + turns.other;
        const double a = frequencies[i] * position, m = (double)the_rope.magnitude;
        out[x] = m * (cos(a) * (double)mean[x] - sin(a) * (double)mean[y]);
        out[y] = m * (sin(a) * (double)mean[x] + cos(a) * (double)mean[y]);
    }
}

/* Tokens as the lane's model makes them. */
static inline void fill_tokens(uint32_t d, uint32_t n_blocks) {
    double m[MAX_D];
    for (uint32_t t = 0; t < n_blocks * T; t++) {
        const float size = (float)exp2(check_uniform(-3, 3));
        turned_mean(d, SINKS + t, m);
        float k[MAX_D], v[MAX_D], *value = values + (size_t)t * d;
        for (uint32_t i = 0; i < d; i++) {
            k[i] = (is_split ? k_spread : spread)[i] * check_normal();
            value[i] = v[i] = size * (is_split ? v_spread : v_rms)[i] * check_normal();
        }
        if (is_split) join(d, v_from, v, value);
        if (is_split) join(d, k_from, memcpy(v, k, sizeof v), k);
        for (uint32_t i = 0; i < d; i++) keys[t * d + i] = (float)m[i] + k[i];
    }
}

#endif
