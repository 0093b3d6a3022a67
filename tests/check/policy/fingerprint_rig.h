/* SPDX-License-Identifier: MIT
 *
 * fingerprint_rig.h: the variants that can run here, and a naive k-means of prints.
 */
#ifndef CHECK_FINGERPRINT_RIG_H
#define CHECK_FINGERPRINT_RIG_H

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "check.h"
#include "hw/cpu.h"

enum { NAIVE_PRINTS = 320, NAIVE_BITS = 1600 };

static uint32_t variants[3]; /* CPU flags */
static uint32_t n_variants;

static void find_variants(void) {
    const uint32_t flags = pleat_cpu_flags(), steps[] = {0, PLEAT_CPU_AVX2, PLEAT_CPU_AVX2 | PLEAT_CPU_AVX512};
    for (size_t i = 0; i < CHECK_COUNT(steps); i++)
        if ((flags & steps[i]) == steps[i]) variants[n_variants++] = steps[i];
}

static bool has_bit(const uint64_t *print, uint32_t b) { return print[b / 64] >> b % 64 & 1; }

typedef struct naive_kmeans {
    double centroids[NAIVE_PRINTS][NAIVE_BITS];
    double distances[NAIVE_PRINTS];
    uint32_t clusters[NAIVE_PRINTS], sizes[NAIVE_PRINTS];
} naive_kmeans;

static double naive_distance(const double *centroid, const uint64_t *print, uint32_t n_bits) {
    double sum = 0;
    for (uint32_t b = 0; b < n_bits; b++) {
        const double d = (has_bit(print, b) ? 1.0 : 0.0) - centroid[b];
        sum += d * d;
    }
    return sum;
}

static void naive_assign(naive_kmeans *m, const uint64_t *prints, uint32_t n, uint32_t n_words, uint32_t n_bits,
                         uint32_t k) {
    memset(m->sizes, 0, sizeof m->sizes);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t best = 0;
        double least = INFINITY;
        for (uint32_t j = 0; j < k; j++) {
            const double d = naive_distance(m->centroids[j], prints + (size_t)i * n_words, n_bits);
            if (d < least - 1e-9) best = j, least = d;
        }
        m->clusters[i] = best;
        m->distances[i] = least;
        m->sizes[best]++;
    }
    for (uint32_t j = 0; j < k; j++) {
        if (m->sizes[j]) continue;
        uint32_t worst = UINT32_MAX;
        for (uint32_t i = 0; i < n; i++)
            if (m->sizes[m->clusters[i]] > 1 && (worst == UINT32_MAX || m->distances[i] > m->distances[worst] + 1e-9))
                worst = i;
        m->sizes[m->clusters[worst]]--;
        m->clusters[worst] = j;
        m->sizes[j] = 1;
    }
}

/* nearest[k]: of each cluster the print that is nearest to its centroid. */
static void naive_run(naive_kmeans *m, const uint64_t *prints, uint32_t n, uint32_t n_bits, uint32_t k,
                      uint32_t *nearest) {
    const uint32_t n_words = (n_bits + 63) / 64;
    for (uint32_t j = 0; j < k; j++)
        for (uint32_t b = 0; b < n_bits; b++) m->centroids[j][b] = has_bit(prints + (size_t)(j * n / k) * n_words, b);
    for (int round = 0; round < 10; round++) {
        naive_assign(m, prints, n, n_words, n_bits, k);
        for (uint32_t j = 0; j < k; j++)
            for (uint32_t b = 0; b < n_bits; b++) {
                uint32_t sum = 0;
                for (uint32_t i = 0; i < n; i++) sum += m->clusters[i] == j && has_bit(prints + (size_t)i * n_words, b);
                m->centroids[j][b] = (double)sum / m->sizes[j];
            }
    }
    for (uint32_t j = 0; j < k; j++) {
        double least = INFINITY;
        for (uint32_t i = 0; i < n; i++) {
            const double d = naive_distance(m->centroids[j], prints + (size_t)i * n_words, n_bits);
            if (m->clusters[i] == j && d < least - 1e-9) least = d, nearest[j] = i;
        }
    }
}

static naive_kmeans naive; /* too large for a stack */

#endif
