/* SPDX-License-Identifier: MIT
 *
 * kmeans.c: Lloyd's algorithm.  See kmeans.h.
 *
 * Centroids are kept as whole numbers, sums and sizes, so that a distance is rounded three times only:
 *
 *     |x - c|^2 = |x|^2 - 2 x.sums/size + |c|^2        x.x = bits set in x
 */
#include "policy/kmeans.h"

#include <math.h>
#include <string.h>

#define EQUAL 1e-9 /* see kmeans.h */

void pleat__kmeans_carve(pleat__kmeans *km, uint64_t n_cap, uint64_t bits_cap, uint64_t all_bits_cap,
                         pleat__arena *arena) {
    km->sums = pleat__arena_take(arena, all_bits_cap, sizeof *km->sums);
    km->sizes = pleat__arena_take(arena, n_cap, sizeof *km->sizes);
    km->norms = pleat__arena_take(arena, n_cap, sizeof *km->norms);
    km->clusters = pleat__arena_take(arena, n_cap, sizeof *km->clusters);
    km->before = pleat__arena_take(arena, n_cap, sizeof *km->before);
    km->distances = pleat__arena_take(arena, n_cap, sizeof *km->distances);
    km->bits_set = pleat__arena_take(arena, bits_cap, sizeof *km->bits_set);
    km->n_bits_set = 0;
}

/* The fingerprints as the steps see them. */
typedef struct vectors {
    const uint64_t *fingerprints;
    uint32_t n, n_words, n_bits;
} vectors;

/* List the bits of fingerprint i. */
static void list_bits(pleat__kmeans *km, const vectors *v, uint32_t i) {
    km->n_bits_set = 0;
    for (uint32_t w = 0; w < v->n_words; w++)
        for (uint64_t rest = v->fingerprints[(size_t)i * v->n_words + w]; rest; rest &= rest - 1)
            km->bits_set[km->n_bits_set++] = w * 64 + (uint32_t)__builtin_ctzll(rest);
}

/* Of the fingerprint whose bits are listed, to centroid j. */
static double distance_to(const pleat__kmeans *km, const vectors *v, uint32_t j) {
    const uint32_t *sums = km->sums + (size_t)j * v->n_bits;
    uint64_t product = 0;
    for (uint32_t b = 0; b < km->n_bits_set; b++) product += sums[km->bits_set[b]];
    return km->n_bits_set - 2 * (double)product / km->sizes[j] + km->norms[j];
}

static void add_to(pleat__kmeans *km, const vectors *v, uint32_t i, uint32_t j) {
    list_bits(km, v, i);
    for (uint32_t b = 0; b < km->n_bits_set; b++) km->sums[(size_t)j * v->n_bits + km->bits_set[b]]++;
}

static void measure_norms(pleat__kmeans *km, const vectors *v, uint32_t k) {
    for (uint32_t j = 0; j < k; j++) {
        double squares = 0;
        for (uint32_t b = 0; b < v->n_bits; b++) {
            const double sum = km->sums[(size_t)j * v->n_bits + b];
            squares += sum * sum;
        }
        km->norms[j] = squares / ((double)km->sizes[j] * km->sizes[j]);
    }
}

static void clear_sums(pleat__kmeans *km, const vectors *v, uint32_t k) {
    memset(km->sums, 0, (size_t)k * v->n_bits * sizeof *km->sums);
}

static void seed(pleat__kmeans *km, const vectors *v, uint32_t k) {
    clear_sums(km, v, k);
    for (uint32_t j = 0; j < k; j++) {
        add_to(km, v, (uint32_t)((uint64_t)j * v->n / k), j);
        km->sizes[j] = 1;
    }
    measure_norms(km, v, k);
}

static void assign(pleat__kmeans *km, const vectors *v, uint32_t k) {
    for (uint32_t i = 0; i < v->n; i++) {
        list_bits(km, v, i);
        double least = INFINITY;
        for (uint32_t j = 0; j < k; j++) {
            const double distance = distance_to(km, v, j);
            if (!(distance < least - EQUAL)) continue;
            least = distance;
            km->clusters[i] = j;
        }
        km->distances[i] = least;
    }
}

static void relocate(pleat__kmeans *km, const vectors *v, uint32_t k) {
    memset(km->sizes, 0, k * sizeof *km->sizes);
    for (uint32_t i = 0; i < v->n; i++) km->sizes[km->clusters[i]]++;
    for (uint32_t j = 0; j < k; j++) {
        if (km->sizes[j] > 0) continue;
        double most = -INFINITY;
        uint32_t farthest = 0;
        for (uint32_t i = 0; i < v->n; i++) {
            if (km->sizes[km->clusters[i]] < 2 || !(km->distances[i] > most + EQUAL)) continue;
            most = km->distances[i];
            farthest = i;
        }
        km->sizes[km->clusters[farthest]]--;
        km->clusters[farthest] = j;
        km->sizes[j] = 1;
    }
}

static void update(pleat__kmeans *km, const vectors *v, uint32_t k) {
    clear_sums(km, v, k);
    for (uint32_t i = 0; i < v->n; i++) add_to(km, v, i, km->clusters[i]);
    measure_norms(km, v, k);
}

static void find_nearest(pleat__kmeans *km, const vectors *v, uint32_t k, uint32_t *nearest) {
    for (uint32_t j = 0; j < k; j++) nearest[j] = UINT32_MAX;
    for (uint32_t i = 0; i < v->n; i++) {
        const uint32_t j = km->clusters[i];
        list_bits(km, v, i);
        km->distances[i] = distance_to(km, v, j);
        if (nearest[j] == UINT32_MAX || km->distances[i] < km->distances[nearest[j]] - EQUAL) nearest[j] = i;
    }
}

void pleat__kmeans_run(pleat__kmeans *km, const uint64_t *fingerprints, uint32_t n, uint32_t n_bits, uint32_t k,
                       uint32_t *nearest) {
    const vectors v = {fingerprints, n, pleat__div_up_u32(n_bits, 64), n_bits};
    seed(km, &v, k);
    for (uint32_t round = 0; round < PLEAT__KMEANS_ROUNDS; round++) {
        assign(km, &v, k);
        relocate(km, &v, k);
        if (round > 0 && !memcmp(km->clusters, km->before, n * sizeof *km->clusters)) break;
        memcpy(km->before, km->clusters, n * sizeof *km->clusters);
        update(km, &v, k);
    }
    find_nearest(km, &v, k, nearest);
}
