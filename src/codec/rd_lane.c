/* SPDX-License-Identifier: MIT
 *
 * rd_lane.c: what the codec rd knows of a lane: steps, columns in the order of their spread, classes, the mean key.
 *
 * A class is the entropy of a normal variable of the channel's spread at its step, to a quarter of a bit.  Of eight
 * columns, or sixteen dimensions of values, the mean entropy counts.
 */
#include "codec/rd.h"

#include <math.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codec/rd_internal.h"
#include "core/half.h"

/* ---- entropy --------------------------------------------------------------------------------------------- */

double pleat__rd_entropy_of(double s) {
    double bits = 0;
    if (!(s > 0.02)) return 0;
    const int reach = (int)(8 * s) + 2;
    for (int i = -reach; i <= reach; i++) {
        const double p = 0.5 * (erf((i + 0.5) / (s * M_SQRT2)) - erf((i - 0.5) / (s * M_SQRT2)));
        if (p > 1e-15) bits -= p * log2(p);
    }
    return bits;
}

static uint8_t class_of(double bits) {
    const double c = floor(4 * bits + 0.5);
    return (uint8_t)(c < PLEAT__RD_CLASSES - 1 ? c : PLEAT__RD_CLASSES - 1);
}

double pleat__rd_spread_of(uint32_t class) {
    double low = 0.02, high = 64;
    for (uint32_t i = 0; i < 60; i++) {
        const double middle = sqrt(low * high);
        if (pleat__rd_entropy_of(middle) < 0.25 * class)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* ---- turns ----------------------------------------------------------------------------------------------- */

void pleat__rd_turns_carve(const pleat_rope *rope, uint32_t n_blocks, pleat__rd_turns *t, pleat__arena *arena) {
    const uint32_t n = rope ? rope->n_dims / 2 : 0;
    *t = (pleat__rd_turns){.n_pairs = n};
    t->near = pleat__arena_take(arena, (uint64_t)n * 2 * PLEAT__RD_HALF, sizeof *t->near);
    t->far = pleat__arena_take(arena, (uint64_t)n_blocks * 2 * n, sizeof *t->far);
}

void pleat__rd_turns_init(const pleat_rope *rope, uint32_t first_position, uint32_t n_blocks, pleat__rd_turns *t) {
    if (!rope) return;
    t->first = rope->is_halves ? 1 : 2;
    t->other = rope->is_halves ? t->n_pairs : 1;
    for (uint32_t i = 0; i < t->n_pairs; i++) {
        for (uint32_t j = 0; j < PLEAT__RD_HALF; j++) {
            t->near[(size_t)(2 * i) * PLEAT__RD_HALF + j] = (float)cos(rope->frequencies[i] * (j + 0.5));
            t->near[(size_t)(2 * i + 1) * PLEAT__RD_HALF + j] = (float)sin(rope->frequencies[i] * (j + 0.5));
        }
        for (uint32_t b = 0; b < n_blocks; b++) {
            const double middle = (double)first_position + (double)PLEAT__RD_TOKENS * b + (PLEAT__RD_HALF - 0.5);
            const double angle = rope->frequencies[i] * middle;
            t->far[(size_t)(2 * b) * t->n_pairs + i] = (float)cos(angle);
            t->far[(size_t)(2 * b + 1) * t->n_pairs + i] = (float)sin(angle);
        }
    }
}

/* ---- the lane -------------------------------------------------------------------------------------------- */

void pleat__rd_lane_carve(uint32_t d, pleat__rd_lane *lane, pleat__arena *arena) {
    lane->order = pleat__arena_take(arena, d, sizeof *lane->order);
    lane->k_mins = pleat__arena_take(arena, 2 * (uint64_t)d, 1);
    lane->k_steps = pleat__arena_take(arena, 2 * (uint64_t)d, 1);
    lane->columns = pleat__arena_take(arena, d / PLEAT__RD_K_COLUMNS, sizeof *lane->columns);
    lane->k_class = pleat__arena_take(arena, d / PLEAT__RD_K_COLUMNS, 1);
    lane->v_class = pleat__arena_take(arena, d / PLEAT__RD_V_DIMS, 1);
    lane->k_reach = pleat__arena_take(arena, d / PLEAT__RD_K_COLUMNS, 1);
    lane->v_reach = pleat__arena_take(arena, d / PLEAT__RD_V_DIMS, 1);
    lane->mean_pair = pleat__arena_take(arena, d / 2, sizeof *lane->mean_pair);
    lane->mean_x = pleat__arena_take(arena, d / 2, sizeof *lane->mean_x);
    lane->mean_y = pleat__arena_take(arena, d / 2, sizeof *lane->mean_y);
    lane->flat = pleat__arena_take(arena, d, sizeof *lane->flat);
}

/* To five significant bits, so that fifteen of it are an f16 too; between 2^-14 and 2^12. */
static float round_step(float x) {
    if (!(x > 0x1p-14f)) return 0x1p-14f;
    if (x > 0x1p12f) return 0x1p12f;
    int exponent;
    const float m = frexpf(x, &exponent);
    return ldexpf(rintf(m * 32) / 32, exponent);
}

bool pleat__rd_mean_pays(float mean_square, float spread) {
    const double s = (double)spread > 1e-12 ? (double)spread : 1e-12;
    return 0.5 * log2(1 + (double)mean_square / (s * s)) > 0.05;
}

/* Which means are taken away; spreads of the others grow by them. */
static void choose_means(pleat__rd_lane *lane, const pleat__rd_source *s, float magnitude, float *spread) {
    const pleat__rd_turns *t = lane->turns;
    const uint32_t d = lane->head_dim;
    const bool is_split = lane->k_basis.to; /* then all are taken away: components are of what is left */
    memcpy(spread, is_split ? lane->k_basis.spread : s->spread, d * sizeof *spread);
    memcpy(lane->flat, s->mean, d * sizeof *lane->flat);
    lane->n_means = 0;
    for (uint32_t i = 0; i < t->n_pairs; i++) {
        const uint32_t x = t->first * i, y = x + t->other;
        const float mx = s->mean[x] * magnitude, my = s->mean[y] * magnitude, square = 0.5f * (mx * mx + my * my);
        lane->flat[x] = lane->flat[y] = 0;
        if (is_split || pleat__rd_mean_pays(square, 0.5f * (s->spread[x] + s->spread[y]))) {
            lane->mean_pair[lane->n_means] = (uint16_t)i;
            lane->mean_x[lane->n_means] = mx;
            lane->mean_y[lane->n_means++] = my;
        } else {
            spread[x] = sqrtf(spread[x] * spread[x] + square);
            spread[y] = sqrtf(spread[y] * spread[y] + square);
        }
    }
}

float pleat__rd_floor_energy(const pleat__rd_source *s, uint32_t d) {
    double sum = 0;
    for (uint32_t i = 0; i < d; i++) sum += (double)s->energy[i];
    return 0.001f * (float)(sum / d);
}

float pleat__rd_key_step(float energy, float spread, float k) {
    const float step = energy > 0 ? k / sqrtf(energy) : spread;
    return step > spread / 6 ? step : spread / 6;
}

/* Channels by the entropy of their codes, the largest first; among equals the lower. */
static void sort_channels(const double *bits, uint32_t d, uint16_t *order) {
    for (uint32_t i = 0; i < d; i++) {
        uint32_t at = i;
        for (; at > 0 && bits[order[at - 1]] < bits[i]; at--) order[at] = order[at - 1];
        order[at] = (uint16_t)i;
    }
}

static void put_f16(uint8_t *at, uint32_t i, float x) {
    const uint16_t half = pleat__f32_to_f16(x);
    memcpy(at + 2 * (size_t)i, &half, sizeof half);
}

static void choose_keys(pleat__rd_lane *lane, const pleat__rd_source *s, const float *spread, float k) {
    const uint32_t d = lane->head_dim;
    const float floor_energy = pleat__rd_floor_energy(s, d);
    float steps[PLEAT__MAX_HEAD_DIM];
    double bits[PLEAT__MAX_HEAD_DIM];
    for (uint32_t i = 0; i < d; i++) {
        const float energy = lane->k_basis.to ? 1 : s->energy[i] + floor_energy;
        steps[i] = round_step(pleat__rd_key_step(energy, spread[i], k));
        bits[i] = pleat__rd_entropy_of((double)(spread[i] / steps[i]));
    }
    sort_channels(bits, d, lane->order);
    lane->n_columns = lane->k_vectors = 0;
    for (uint32_t i = 0; i < d; i++) {
        put_f16(lane->k_steps, i, steps[lane->order[i]]);
        put_f16(lane->k_mins, i, -(float)PLEAT__RD_REACH * steps[lane->order[i]]);
    }
    for (uint32_t at = 0; at < d; at += PLEAT__RD_K_COLUMNS) {
        double sum = 0;
        for (uint32_t i = 0; i < PLEAT__RD_K_COLUMNS; i++) sum += bits[lane->order[at + i]];
        const uint8_t class = class_of(sum / PLEAT__RD_K_COLUMNS);
        const uint16_t n_vectors = PLEAT__RD_K_COLUMNS / 4;
        lane->k_class[at / PLEAT__RD_K_COLUMNS] = class;
        lane->k_reach[at / PLEAT__RD_K_COLUMNS] = (int8_t)pleat__rd_reach(&lane->books->k[class]);
        if (lane->books->k[class].n_levels > 0) lane->k_vectors += n_vectors;
        if (lane->n_columns > 0 && lane->columns[lane->n_columns - 1].class == class)
            lane->columns[lane->n_columns - 1].n_vectors += n_vectors;
        else
            lane->columns[lane->n_columns++] = (pleat__rd_columns){n_vectors, class};
    }
}

static void choose_values(pleat__rd_lane *lane, const pleat__rd_source *s) {
    const float *spread = lane->v_basis.to ? lane->v_basis.spread : s->v_rms;
    lane->v_vectors = 0;
    for (uint32_t at = 0; at < lane->head_dim; at += PLEAT__RD_V_DIMS) {
        double sum = 0;
        for (uint32_t i = 0; i < PLEAT__RD_V_DIMS; i++) sum += pleat__rd_entropy_of((double)(spread[at + i] / lane->v));
        const uint8_t class = lane->v_class[at / PLEAT__RD_V_DIMS] = class_of(sum / PLEAT__RD_V_DIMS);
        lane->v_reach[at / PLEAT__RD_V_DIMS] = (int8_t)pleat__rd_reach(&lane->books->v[class]);
        if (lane->books->v[class].n_levels > 0) lane->v_vectors += PLEAT__RD_TOKENS / 4;
    }
}

static uint32_t hash(uint32_t seed, const void *bytes, size_t n) { return n ? XXH32(bytes, n, seed) : seed; }

static uint32_t seed_of(const pleat__rd_lane *lane) {
    const uint32_t d = lane->head_dim;
    uint32_t sum = hash(lane->books->sum, lane->order, d * sizeof *lane->order);
    sum = hash(sum, lane->k_steps, 2 * (size_t)d);
    for (uint32_t i = 0; i < lane->n_columns; i++)
        sum = hash(sum, &(uint32_t){lane->columns[i].n_vectors | (uint32_t)lane->columns[i].class << 16}, 4);
    sum = hash(sum, lane->v_class, d / PLEAT__RD_V_DIMS);
    sum = hash(sum, lane->mean_pair, lane->n_means * sizeof *lane->mean_pair);
    sum = hash(sum, lane->mean_x, lane->n_means * sizeof *lane->mean_x);
    sum = hash(sum, lane->mean_y, lane->n_means * sizeof *lane->mean_y);
    sum = hash(sum, lane->k_basis.to, lane->k_basis.to ? (size_t)d * d * sizeof(float) : 0);
    sum = hash(sum, lane->v_basis.to, lane->v_basis.to ? (size_t)d * d * sizeof(float) : 0);
    return hash(sum, lane->flat, d * sizeof *lane->flat);
}

void pleat__rd_lane_init(pleat__rd_lane *lane, const pleat__rd_source *s, const pleat__rd_books *books,
                         const pleat__rd_turns *turns, const pleat_rope *rope, uint32_t d, float k, float v) {
    float spread[PLEAT__MAX_HEAD_DIM];
    lane->books = books;
    lane->turns = turns;
    lane->head_dim = d;
    lane->v = v;
    lane->k_basis = s->k;
    lane->v_basis = s->v;
    choose_means(lane, s, rope ? rope->magnitude : 1, spread);
    choose_keys(lane, s, spread, k);
    choose_values(lane, s);
    lane->seed = seed_of(lane);
}

pleat__block_format pleat__rd_format(uint32_t head_dim) {
    return (pleat__block_format){.head_dim = head_dim,
                                 .tokens = PLEAT__RD_TOKENS,
                                 .by_channel = true,
                                 .v_group = head_dim,
                                 .k_levels = PLEAT__RD_LEVELS,
                                 .v_levels = PLEAT__RD_LEVELS,
                                 .coder = PLEAT__CODER_HUFFMAN,
                                 .is_rd = true};
}

/* ---- bases ----------------------------------------------------------------------------------------------- */

/* Sixteen sums at a time, which stay in registers. */
void pleat__rd_turn(const float *restrict matrix, uint32_t d, const float *restrict x, float *restrict out) {
    for (uint32_t at = 0; at < d; at += 16) {
        float sums[16] = {0};
        for (uint32_t i = 0; i < d; i++)
            for (uint32_t l = 0; l < 16; l++) sums[l] += matrix[(size_t)i * d + at + l] * x[i];
        for (uint32_t l = 0; l < 16; l++) out[at + l] = sums[l];
    }
}

/* ---- the mean key ---------------------------------------------------------------------------------------- */

void pleat__rd_add_mean(const pleat__rd_lane *lane, uint32_t block, uint32_t place, float factor, float *k,
                        size_t stride) {
    const pleat__rd_turns *t = lane->turns;
    const bool is_behind = place >= PLEAT__RD_HALF;
    const uint32_t from_middle = is_behind ? place - PLEAT__RD_HALF : PLEAT__RD_HALF - 1 - place;
    for (uint32_t i = 0; i < lane->n_means; i++) {
        const uint32_t pair = lane->mean_pair[i];
        const size_t x = (size_t)t->first * pair, y = x + t->other;
        const float *near = t->near + (size_t)(2 * pair) * PLEAT__RD_HALF + from_middle;
        const float c = near[0], s = is_behind ? near[PLEAT__RD_HALF] : -near[PLEAT__RD_HALF];
        const float fc = t->far[(size_t)(2 * block) * t->n_pairs + pair];
        const float fs = t->far[(size_t)(2 * block + 1) * t->n_pairs + pair];
        const float cosine = fc * c - fs * s, sine = fs * c + fc * s;
        k[x * stride] += factor * (cosine * lane->mean_x[i] - sine * lane->mean_y[i]);
        k[y * stride] += factor * (sine * lane->mean_x[i] + cosine * lane->mean_y[i]);
    }
    for (uint32_t i = 0; i < lane->head_dim; i++)
        if (lane->flat[i] != 0) k[i * stride] += factor * lane->flat[i];
}
